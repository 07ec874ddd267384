"""A database of Trackio 0.5.0, whose runs have no ids (Python 3.11): `python -m tests.trackers.make.trackio_old`."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

from tests.trackers.make.environment import in_process, main

PACKAGES = ("trackio==0.5.0",)


def write(folder: Path) -> None:
    for name, norm, losses in (("one", "none", "0.5 nan"), ("other", "layer", "1")):
        in_process(__spec__.name, "log", name, norm, losses, folder=folder)
    shutil.copy(folder / "cache" / "trackio" / "norms.db", folder)
    shutil.rmtree(folder / "cache")


def log(name: str, norm: str, losses: str) -> None:
    """Logs these losses."""
    os.environ["HF_HOME"] = os.path.abspath("cache")
    import trackio

    trackio.init(project="norms", name=name, config={"norm": norm})
    for loss in losses.split():
        trackio.log({"loss": math.nan if loss == "nan" else float(loss)})
    trackio.finish()


if __name__ == "__main__":
    main(__spec__.name, PACKAGES, write)

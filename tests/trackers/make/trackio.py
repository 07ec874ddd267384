"""Databases of Trackio 0.43.0 (NumPy 2.4.6, Python 3.11): `python -m tests.trackers.make.trackio`."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import sqlite3
from pathlib import Path

from tests.trackers.make.environment import in_process, main

PACKAGES = ("trackio==0.43.0", "numpy==2.4.6")
RUNS = ("whole", "same-name", "resumed", "resumed-later", "resumed-bare", "resumed-bare-later", "unlogged", "killed")


def write(folder: Path) -> None:
    for run in RUNS:
        print(run, in_process(__spec__.name, "log", run, folder=folder))
    shutil.copy(folder / "store" / "norms.db", folder)
    log = folder / "store" / "norms.db-wal"
    if log.exists():
        raise SystemExit("the killed run has left a log: copy it too")
    shutil.rmtree(folder / "store")
    small(folder / "norms.db")


def small(path: Path) -> None:
    """Removes indexes and empty tables that no reader needs: they are nine tenths of the file."""
    with sqlite3.connect(path) as database:
        kinds = database.execute("SELECT type, name FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        for kind, name in sorted(kinds):  # an index goes with its table
            if kind == "index" or (kind == "table" and not re.fullmatch("metrics|configs|sqlite_.*", name)):
                database.execute(f'DROP {kind} "{name}"')
    database.execute("VACUUM")
    database.close()


def log(run: str) -> None:
    """Logs known values."""
    os.environ["TRACKIO_DIR"] = os.path.abspath("store")
    import trackio

    name = run.removesuffix("-later") if run != "same-name" else "whole"
    configuration = {
        "norm": "layer",
        "seed": RUNS.index(run),
        "optim": {"lr": 1e-3, "decay": math.nan},
        "widths": [1, 2],
        "nothing": None,
    }
    is_bare = run == "resumed-bare-later"
    trackio.init(
        project="norms",
        name=name,
        config=None if is_bare else configuration,
        **({"resume": "allow"} if "later" in run else {}),
    )
    if run == "unlogged":
        trackio.finish()
        return
    for step, loss in enumerate([1.0, math.nan, math.inf]):
        trackio.log({"test/acc": 0.5 + step / 10, "loss": loss, "text": "hello"})
    if run == "whole":
        trackio.log({"test/acc": 0.75}, step=10)
        trackio.log({"test/acc": 0.875}, step=10)
        trackio.log({"test/acc": 0.25}, step=4)
        trackio.log({"test/acc": 0.125, "low": -math.inf, "is": True, "table": {"x": 1}, "step": 7})
    if run == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    trackio.finish()


if __name__ == "__main__":
    main(__spec__.name, PACKAGES, write)

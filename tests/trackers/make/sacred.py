"""Folders of Sacred 0.8.7 (setuptools 80.9.0, NumPy 2.4.6, Python 3.11): `python -m tests.trackers.make.sacred`."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

from tests.trackers.make.environment import in_process, main

PACKAGES = ("sacred==0.8.7", "setuptools==80.9.0", "numpy==2.4.6")
ENDS = ("completed", "seeded", "failed", "interrupted", "timed-out", "killed", "terminated", "table", "array", "late")
"""How the runs 1, 2, ... end; "late" is killed after a heartbeat has written its metrics."""


def write(folder: Path) -> None:
    for end in ENDS:
        print(end, in_process(__spec__.name, "run", end, folder=folder))
    shutil.rmtree(folder / "sacred_runs" / "_sources", ignore_errors=True)
    for path in folder.glob("sacred_runs/*/run.json"):
        text = re.sub(r'"(hostname|base_dir)": "[^"]*"', r'"\1": "..."', path.read_text())
        path.write_text(re.sub(r'File \\"/[^"]*/', r'File \\"/.../', text))


def run(end: str) -> None:
    """A run of the experiment "norms", whose metrics are known."""
    import numpy as np
    from sacred import Experiment
    from sacred.observers import FileStorageObserver
    from sacred.utils import TimeoutInterrupt

    experiment = Experiment("norms", save_git_info=False)
    experiment.observers.append(FileStorageObserver("sacred_runs", copy_sources=False))
    experiment.add_config(
        norm="layer",
        optim={"lr": 1e-3, "betas": (0.9, 0.999)},
        decay=float("nan"),
        widths=np.arange(3),
        data=Path("/data/digits"),
        tags={"a"},
    )

    @experiment.main
    def train(_run):  # type: ignore[no-untyped-def]
        for step in range(3):
            _run.log_scalar("train.loss", 1 / (step + 1), step)
        _run.log_scalar("train.loss", float("nan"), 2)
        _run.log_scalar("train.loss", 0.125, 1)
        _run.log_scalar("test_acc", np.float32(0.5))
        _run.log_scalar("test_acc", float("inf"))
        _run.log_scalar("note", "a text")
        match end:
            case "failed":
                raise ValueError("boom")
            case "interrupted":
                raise KeyboardInterrupt
            case "timed-out":
                raise TimeoutInterrupt
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "terminated":
                os.kill(os.getpid(), signal.SIGTERM)
            case "late":
                _run._emit_heartbeat()
                os.kill(os.getpid(), signal.SIGKILL)
            case "table":
                return {"test": {"acc": 0.25}, "name": "x"}
            case "array":
                return np.float64(0.25)
        return 0.75

    experiment.run(config_updates={"seed": 3} if end == "seeded" else {})


if __name__ == "__main__":
    main(__spec__.name, PACKAGES, write)

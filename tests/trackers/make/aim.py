"""Repositories of Aim 3.29.1 (Python 3.11): `python -m tests.trackers.make.aim`.

`unindexed.tar.xz` is as its runs have left it, `indexed.tar.xz` the same after `aim storage reindex`.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.trackers.make.environment import in_process, main

PACKAGES = ("aim==3.29.1",)
ENDS = ("closed", "raised", "killed")


def write(folder: Path) -> None:
    command = Path(sys.executable).with_name("aim")
    repository = folder / "repository"
    repository.mkdir()
    subprocess.run([command, "init", "--repo", repository, "--yes"], check=True)
    for end in ENDS:
        print(end, in_process(__spec__.name, "log", end, folder=folder))
    pack(repository, folder / "unindexed.tar.xz")
    subprocess.run([command, "storage", "--repo", repository, "reindex", "--yes"], check=True)
    pack(repository, folder / "indexed.tar.xz")
    shutil.rmtree(repository)


def pack(repository: Path, target: Path) -> None:
    """Packs a repository without the reports of RocksDB, which name folders of this machine."""

    def kept(file: tarfile.TarInfo) -> tarfile.TarInfo | None:
        file.uname = file.gname = ""
        return None if Path(file.name).name.startswith("LOG") else file

    with tarfile.open(target, "w:xz") as archive:
        archive.add(repository / ".aim", ".aim", filter=kept)


def log(end: str) -> None:
    """Tracks known values."""
    from aim import Run

    run = Run(
        repo="repository",
        experiment="norms",
        log_system_params=False,
        system_tracking_interval=None,
        capture_terminal_logs=False,
    )
    run["hparams"] = {"norm": "layer", "seed": ENDS.index(end), "optim": {"lr": 1e-3}, "widths": [1, 2], "none": None}
    if end == "closed":
        run.name = "first"
    for step in range(40):
        run.track(step / 64, name="acc", step=step * 10, context={"subset": "val"})
    run.track(0.5, name="acc", step=0, context={"subset": "train"})
    for step, value in ((0, math.nan), (7, math.inf), (7, 3.0), (3, 2.0), (None, 9.0)):
        run.track(value, name="loss", step=step)
    run.track(0.25, name="low", step=4)
    run.track(-math.inf, name="low", step=2)
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "raised":
        raise ValueError("boom")
    run.close()


if __name__ == "__main__":
    main(__spec__.name, PACKAGES, write)

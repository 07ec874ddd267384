"""An environment for each tracker, in which the small files of the tests are written by the real package.

Trackers cannot be installed together. Each module beside this one is called by hand, from the root of the repository:

    python -m tests.trackers.make.optuna

It installs the pinned packages into a new environment in a temporary folder, calls its own `write` there, and replaces
the files in `tests/trackers/files/`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / "tests" / "trackers" / "files"


def main(module: str, packages: Sequence[str], write: Callable[[Path], None], clean: Callable[[Path], None]) -> None:
    """Makes the files of a tracker; or, in its environment, calls `write`.

    Args:
        module: the name of the module in this folder, which is also that of the folder with the files.
        packages: requirements of pip, with versions.
        write: writes files into a folder, by the tracker.
        clean: removes from that folder what tests do not need, and what names a machine or a user.
    """
    parser = argparse.ArgumentParser(description=f"Makes the files of {module}.")
    parser.add_argument("--python", default="", help="a Python with the packages, in the place of a new environment")
    parser.add_argument("--into", type=Path, help="write the files into this folder, by the packages of this Python")
    arguments = parser.parse_args()
    if arguments.into:
        write(arguments.into)
        return
    with tempfile.TemporaryDirectory() as temporary:
        python = arguments.python
        if not python:
            subprocess.run([sys.executable, "-m", "venv", f"{temporary}/environment"], check=True)
            python = f"{temporary}/environment/bin/python"
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        files = Path(temporary) / "files"
        files.mkdir()
        subprocess.run(
            [python, "-m", f"tests.trackers.make.{module}", "--into", str(files)],
            env=os.environ | {"PYTHONPATH": str(ROOT), "HOME": temporary},
            cwd=files,
            check=True,
        )
        clean(files)
        if not any(files.iterdir()):
            raise SystemExit(f"{module}: nothing was written")
        shutil.rmtree(FILES / module, ignore_errors=True)
        shutil.copytree(files, FILES / module)

"""Environments of their own in which real trackers write the files of tests.

`python -m tests.trackers.make.NAME` writes `tests/trackers/files/NAME`, in the working directory of the repository.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

FILES = Path(__file__).parents[1] / "files"
_INSIDE = "LRURUN_MAKES_FILES_IN"


def main(module: str, packages: Sequence[str], write: Callable[[Path], None], python: str = "python3.11") -> None:
    """Installs the packages in a temporary environment, and calls `write` there with an empty folder, whose files
    become those of the tests.

    Args:
        module: the name of the module that calls, as in "tests.trackers.make.sacred".
        python: the interpreter of the environment.
    """
    if folder := os.environ.get(_INSIDE):
        write(Path(folder))
        return
    with tempfile.TemporaryDirectory() as temporary:
        made, environment = Path(temporary, "made"), Path(temporary, "environment")
        made.mkdir()
        subprocess.run([python, "-m", "venv", environment], check=True)
        inner = environment / "bin" / "python"
        subprocess.run([inner, "-m", "pip", "install", "--quiet", *packages], check=True)
        subprocess.run([inner, "-m", module], check=True, env=os.environ | {_INSIDE: str(made)})
        target = FILES / module.rpartition(".")[2]
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)


def in_process(module: str, call: str, *arguments: str, folder: Path) -> int:
    """The exit code of a Python process that calls a function of the module with these texts, in a folder: runs end in
    ways that this process would not survive."""
    root = Path(__file__).parents[3]
    code = f"from {module} import {call}; import sys; {call}(*sys.argv[1:])"
    environment = os.environ | {"PYTHONPATH": str(root)}
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, env=environment).returncode

"""Environments of their own in which real trackers write the files of tests: they cannot be installed together.

`python -m tests.trackers.make.NAME`, from the root of the repository, installs the pinned packages into a new
environment in a temporary folder, calls the `write` of the module there, and replaces `tests/trackers/files/NAME`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / "tests" / "trackers" / "files"
_INSIDE = "LRURUN_MAKES_FILES_IN"


def main(
    module: str,
    packages: Sequence[str],
    write: Callable[[Path], None],
    clean: Callable[[Path], None] | None = None,
    python: str = "python3.11",
) -> None:
    """Installs the packages in a temporary environment, and calls `write` there with an empty folder, whose files
    become those of the tests.

    Args:
        module: the name of the module that calls, as in "tests.trackers.make.sacred".
        packages: requirements of pip, with versions.
        write: writes files into a folder, by the tracker.
        clean: removes from that folder what tests do not need, and what names a machine or a user.
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
        inside = {_INSIDE: str(made), "PYTHONPATH": str(ROOT), "HOME": temporary}
        subprocess.run([inner, "-m", module], check=True, cwd=made, env=os.environ | inside)
        if clean is not None:
            clean(made)
        if not any(made.iterdir()):
            raise SystemExit(f"{module}: nothing was written")
        target = FILES / module.rpartition(".")[2]
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)


def in_process(module: str, call: str, *arguments: str, folder: Path) -> int:
    """The exit code of a Python process that calls a function of the module with these texts, in a folder: runs end in
    ways that this process would not survive."""
    code = f"from {module} import {call}; import sys; {call}(*sys.argv[1:])"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, env=environment).returncode

"""The folder that all processes of a session of tests share, and what is made in it once."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

IS_OURS = "LRURUN_TESTS" not in os.environ
"""Whether this process makes the folder; those that it starts inherit its name."""
if IS_OURS:
    os.environ["LRURUN_TESTS"] = tempfile.mkdtemp(prefix="lrurun-tests-")
SHARED = Path(os.environ["LRURUN_TESTS"])


def once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` fills: the first process of the session that wants it makes it, the others wait."""
    folder = SHARED / "made" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            making = folder.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            make(making)
            making.rename(folder)
    return folder

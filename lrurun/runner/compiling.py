"""Turns at compiling: of the workers that need the same programs, one compiles them and the others load them."""

from __future__ import annotations

import contextlib
import fcntl
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from lrurun.runner.attempt import StopRequest

WAIT_SECONDS = 0.1


@contextlib.contextmanager
def turn(program: str, stop: StopRequest) -> Iterator[None]:
    """Waits while another process with the same cache of compiled programs has the turn of `program`, or until `stop`.

    The turn ends with the context or the process.
    """
    with contextlib.ExitStack() as stack:
        config: Any = jax.config  # its values are not in its type
        if config.jax_compilation_cache_dir and config.jax_enable_compilation_cache:
            folder = Path(config.jax_compilation_cache_dir)
            with contextlib.suppress(OSError):  # nothing can be written to this cache, so nobody could load it
                folder.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context((folder / "lrurun.lock").open("ab"))
                byte = zlib.crc32(program.encode())  # a lock of its own, which may be beyond the end of the file
                while not stop.requested and not _locked(file.fileno(), byte):
                    time.sleep(WAIT_SECONDS)
        yield


def _locked(file: int, byte: int) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
    except (BlockingIOError, PermissionError):
        return False
    return True

"""Turns at compiling: of the workers that need the same programs, one compiles them and the others load them.

No more workers compile at once than there are cores: they would only take memory and time from each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from lrurun import machine
from lrurun.runner.attempt import StopRequest

WAIT_SECONDS = 0.1
PLACES_AT = 2**32
"""The byte of the first place for a worker that compiles; those before are of programs."""


@contextlib.contextmanager
def turn(program: str, stop: StopRequest) -> Iterator[None]:
    """Waits for the turn of `program` and for a place among the workers that compile, or until `stop`.

    Processes with the same cache of compiled programs take turns; there are as many places as cores. Turn and place end
    with the context or the process.
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
                places = range(PLACES_AT, PLACES_AT + machine.cores())
                while not stop.requested and not any(_locked(file.fileno(), place) for place in places):
                    time.sleep(WAIT_SECONDS)
        yield


def _locked(file: int, byte: int) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
    except (BlockingIOError, PermissionError):
        return False
    return True

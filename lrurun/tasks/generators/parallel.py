"""Numbered rounds of work, done by several processes and handed over in order.

The processes are plain subprocesses that write to pipes: whoever starts them needs no `if __name__ == "__main__"`,
a full pipe makes them wait, and a broken one ends them, so they never outlive their starter, however it died.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from lrurun.errors import LrurunError

T = TypeVar("T")

_SERVE = f"from {__name__} import serve; serve()"


def rounds(work: Callable[[int], T], workers: int = 1) -> Generator[T, None, None]:
    """`work(0)`, `work(1)`, ... without end, each computed in one of `workers` processes, or in this one for 1.

    `work` must be picklable: a function of an importable module, or a `functools.partial` of one. What it raises is
    raised here in its turn. Closing the iterator ends the processes.

    Raises:
        LrurunError: a process died.
    """
    if workers == 1:
        yield from map(work, itertools.count())
        return
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for first in range(workers):
            processes.append(_start())
            _order(processes[-1], (work, first, workers))
        for process in itertools.cycle(processes):
            yield _receive(process)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
            if process.stdout:
                process.stdout.close()


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # ^C reaches the starter alone
    )


def _order(process: subprocess.Popen[bytes], order: tuple[Any, ...]) -> None:
    assert process.stdin is not None
    # a process that is dead already is told of where its first round is awaited
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
        pickle.dump(order, pipe)


def _receive(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    try:
        done, result = pickle.load(process.stdout)
    except (EOFError, pickle.UnpicklingError):
        code = process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        raise LrurunError(
            f"a process that generates data died: {how}", "check the memory of this machine, and use fewer workers"
        ) from None
    if not done:
        raise result
    return result


def serve() -> None:
    """What a process does: reads its order, sends every `stride`-th round, ends when nobody reads."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    work, first, stride = pickle.load(sys.stdin.buffer)
    for number in itertools.count(first, stride):
        try:
            result = (True, work(number))
        except Exception as error:
            result = (False, error)
        pickle.dump(result, sys.stdout.buffer, protocol=pickle.HIGHEST_PROTOCOL)
        sys.stdout.buffer.flush()

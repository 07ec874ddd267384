"""How workers are ended, and what they wrote."""

from __future__ import annotations

import os
import tempfile
from types import SimpleNamespace

from lrurun.runner import processes
from lrurun.runner.executors import local
from lrurun.runner.signals import GRACE_SECONDS, Signals


class Stubborn:
    """A worker that needs to be killed, and is then gone only when it is waited for."""

    def __init__(self, log: list[str]) -> None:
        self.log, self.code = log, None

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.log.append("kill")

    def wait(self) -> None:
        self.log.append("wait")
        self.code = -9

    def close(self) -> None:
        self.log.append("close")


def test_all_are_killed_before_the_first_is_waited_for() -> None:
    """To wait for each while the others go on computing took half a second for each of 64."""
    log: list[str] = []
    processes.finish([Stubborn(log) for _ in range(3)], Signals(), 0.0)  # type: ignore[misc]
    assert log == ["kill"] * 3 + ["wait", "close"] * 3


def test_workers_whose_runs_are_finished_get_more_time(monkeypatch) -> None:
    """Their last records may still be on the way to an object store."""
    seconds: list[float] = []
    monkeypatch.setattr(local, "finish", lambda workers, signals, limit: seconds.append(limit))
    for finished in (False, True):
        runs = SimpleNamespace(work=SimpleNamespace(stop_seconds=3.0))
        local.LocalExecutor().stop(runs, Signals(), finished=finished)  # type: ignore[arg-type]
    assert seconds[0] == GRACE_SECONDS + 3
    assert seconds[1] > seconds[0]


def test_reading_what_a_worker_wrote_does_not_move_where_it_writes() -> None:
    worker = object.__new__(processes.LocalWorker)
    with tempfile.TemporaryFile() as worker._output:
        output = os.dup(worker._output.fileno())
        os.write(output, b"one\ntwo\n")
        os.lseek(output, 4, os.SEEK_SET)
        assert worker.tail() == "one\ntwo"
        assert os.lseek(output, 0, os.SEEK_CUR) == 4
        os.close(output)

"""Many workers that do not stop by themselves are killed together."""

from __future__ import annotations

from lrurun.runner import processes
from lrurun.runner.signals import Signals


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


def test_all_are_killed_before_the_first_is_waited_for(monkeypatch) -> None:
    """To wait for each while the others go on computing took half a second for each of 64."""
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.0)
    log: list[str] = []
    processes.finish([Stubborn(log) for _ in range(3)], Signals())  # type: ignore[misc]
    assert log == ["kill"] * 3 + ["wait", "close"] * 3

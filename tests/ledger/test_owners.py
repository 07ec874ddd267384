"""Processes that hold runs: which are alive, and whose runs are taken back."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lrurun.errors import LedgerFileError
from lrurun.ledger import heartbeat, owner
from lrurun.ledger.heartbeat import OWNER_EXITED
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import Owner
from lrurun.runner.executors.local import LocalExecutor
from lrurun.server import Location, Server
from tests.harness.machine import Machine
from tests.harness.stores import ELSEWHERE, ME, key, ledger, path, python, raw, take, want

__all__ = ["key", "ledger", "path"]  # fixtures


def test_this_process_is_alive() -> None:
    assert owner.alive(ME)
    assert owner.this_process() == ME
    assert not owner.alive(msgspec.structs.replace(ME, pid_started=ME.pid_started - 1))


def age_heartbeats(path: Path, seconds: float) -> None:
    raw(path, "UPDATE stored_attempts SET heartbeat_at = heartbeat_at - ?, seen_at = seen_at - ?", seconds, seconds)


HOLDER = """
import sys
from lrurun.ledger import owner
from lrurun.ledger.ledger import Ledger
with Ledger.open(sys.argv[1]) as ledger:
    print(ledger.hold(sys.argv[2], owner.this_process()).run.id, flush=True)
    sys.stdin.readline()
"""


def test_status_says_that_a_process_has_exited_where_that_cannot_be_recorded(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise LedgerFileError("no space is left", "free some space")

    Ledger.open(machine.ledger).close()
    monkeypatch.setattr(Ledger, "has_abandoned", lambda *_: True)
    monkeypatch.setattr(Ledger, "reap", full)
    error = machine.run("status").stderr
    assert "processes of running runs have exited, but this cannot be recorded: no space is left" in error


def test_the_run_of_an_exited_process_is_reaped_and_of_a_stopped_one_not(ledger: Ledger, key: str, path: Path) -> None:
    ledger.enqueue(key, [want()])
    holder = python(HOLDER, path, key)
    try:
        assert holder.stdout is not None
        name = holder.stdout.readline().strip()
        assert ledger.reap(ME) == []
        holder.send_signal(signal.SIGSTOP)
        age_heartbeats(path, 10_000)
        assert ledger.reap(ME) == [], "on this host the heartbeat is ignored"
        holder.kill()
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
        assert [run.id for run in ledger.reap(ME)] == [name], "a zombie has exited"
    finally:
        holder.kill()
        holder.communicate()
    run = ledger.run(name)
    assert run.state == "interrupted"
    attempt = ledger.attempts(name)[0]
    assert (attempt.outcome, attempt.reason) == ("exited", OWNER_EXITED)
    last = ledger.events(run=name)[-1]
    assert attempt.ended_at == attempt.seen_at < last.time, "at its last sign of life, not when that was noticed"
    assert (last.kind, last.attempt) == ("interrupted", 1)
    assert str(holder.pid) in last.text
    assert ledger.reap(ME) == []
    assert ledger.check() == []


@pytest.mark.parametrize(
    ("by", "silent", "exited"),
    [
        pytest.param(ME, 10_000, False, id="ourselves"),
        pytest.param(msgspec.structs.replace(ME, pid_started=ME.pid_started - 5), 0, True, id="pid-reused"),
        pytest.param(msgspec.structs.replace(ME, boot="before"), 121, True, id="other-boot-silent"),
        pytest.param(msgspec.structs.replace(ME, namespace="pid:[1]"), 0, False, id="other-namespace-fresh"),
        pytest.param(msgspec.structs.replace(ME, namespace="pid:[1]"), 121, True, id="other-namespace-silent"),
        pytest.param(ELSEWHERE, 100, False, id="other-host-fresh"),
        pytest.param(ELSEWHERE, 121, True, id="other-host-silent"),
    ],
)
def test_which_owners_have_exited(ledger: Ledger, key: str, path: Path, by: Owner, silent: float, exited: bool) -> None:
    ledger.enqueue(key, [want()])
    held = take(ledger, key, by)
    age_heartbeats(path, silent)
    assert [run.id for run in ledger.reap(ME)] == [held.run.id] * exited
    assert ledger.run(held.run.id).state == ("interrupted" if exited else "running")


def test_on_a_server_a_boot_may_be_of_another_machine_and_a_write_is_a_heartbeat(
    ledger: Ledger, key: str, path: Location
) -> None:
    ledger.enqueue(key, [want(), want(seed=1, position=1)])
    writer = take(ledger, key, ELSEWHERE)
    age_heartbeats(path, 121)
    ledger.record(writer, [], 1)
    rebooted = take(ledger, key, msgspec.structs.replace(ME, boot="before"))
    exited = [] if isinstance(path, Server) else [rebooted.run.id, writer.run.id]
    assert [run.id for run in ledger.reap(ME)] == exited


def test_a_heartbeat_keeps_a_run_and_a_write_shows_the_worker(ledger: Ledger, key: str, path: Path) -> None:
    ledger.enqueue(key, [want()])
    held = take(ledger, key, ELSEWHERE)
    raw(path, "UPDATE stored_attempts SET heartbeat_at = 1, seen_at = 1")
    assert ledger.record_heartbeats([(held.run.id, 1)]) == []
    assert ledger.attempts(held.run.id)[0].seen_at == 1
    assert ledger.reap(ME) == []
    ledger.record(held, [], 1)
    assert ledger.attempts(held.run.id)[0].seen_at > 1


def test_a_node_reads_only_its_own_attempts(ledger, key, monkeypatch) -> None:
    ledger.enqueue(key, [want(seed=k, position=k) for k in range(4)])
    # machines of one name, and containers of one machine, may have processes of one number
    others = ({"host": "far"}, {"boot": "another"}, {"namespace": "pid:[1]"})
    far = [take(ledger, key, msgspec.structs.replace(owner.this_process(), **other)) for other in others]
    mine = take(ledger, key, owner.this_process())
    assert list(ledger.newest_attempts([one.run.id for one in far], beside=owner.this_process())) == []
    asked: list[str] = []
    for name in ("run", "newest_attempts", "attempts"):
        call = getattr(ledger, name)
        monkeypatch.setattr(ledger, name, lambda *a, n=name, c=call, **o: asked.append(n) or c(*a, **o))
    before = {one.run.id: ledger.newest_attempts([one.run.id])[one.run.id].heartbeat_at for one in [*far, mine]}
    asked.clear()
    executor = LocalExecutor()
    executor.workers = [SimpleNamespace(pid=os.getpid())]
    executor._write_heartbeats(SimpleNamespace(ledger=ledger, say=print), ledger.runs(key))
    assert asked == ["newest_attempts", "run"], "however many runs other nodes have"
    assert [attempt.run for attempt in ledger.attempts_of(owner.this_process())] == [mine.run.id]
    after = ledger.newest_attempts(before)
    assert [name for name in before if after[name].heartbeat_at > before[name]] == [mine.run.id]
    read: list[str] = []
    monkeypatch.setattr(heartbeat, "_exited", lambda found, *_: bool(read.append(found.host)))
    assert ledger.reap(owner.this_process()) == []
    assert read == [owner.this_process().host] * 3

"""The ledger: what goes in comes out, two never do one run, and a worker that lost its run writes nothing."""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import event

import lrurun
from lrurun.errors import LedgerError, LrurunError, NotFoundError
from lrurun.ledger import files, owner
from lrurun.ledger.store import GONE, Fenced, Ledger
from lrurun.ledger.values import Claim, Owner, Wanted
from lrurun.report import progress

ROOT = Path(lrurun.__file__).parent.parent
ME = owner.here()
ELSEWHERE = Owner(host="elsewhere", boot="its-boot", namespace="pid:[9]", pid=77, pid_started=1.0)


def want(rung: str = "ring", seed: int = 0, position: int = 0, stage: str = "train", **changes: Any) -> Wanted:
    fields: dict[str, Any] = {
        "fingerprint": "sha256:" + hashlib.sha256(f"{rung} {seed} {stage}".encode()).hexdigest(),
        "task": "sDigits",
        "rung": rung,
        "stage": stage,
        "seed": seed,
        "steps": 100,
        "config": {"model": {"rung": rung}, "seed": seed},
        "execution": {"threads": 1},
        "provenance": {"model.rung": "recipe"},
        "position": position,
    }
    return Wanted(**fields | changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path) as opened:
        yield opened


@pytest.fixture
def key(ledger: Ledger) -> str:
    return ledger.add_ladder("lru", "sDigits", None, {"set": {}, "tune": False}).key


def take(ledger: Ledger, key: str, by: Owner = ME, **filters: Any) -> Claim:
    claim = ledger.claim(key, by, **filters)
    assert claim is not None
    return claim


def counts(ledger: Ledger, key: str) -> dict[str, int]:
    """Runs of a ladder by state."""
    found: dict[str, int] = {}
    for standing in ledger.standings(key):
        found[standing.state] = found.get(standing.state, 0) + standing.first
    return {state: count for state, count in found.items() if count}


def raw(path: Path, statement: str, *values: Any) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        with connection:
            return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def dump(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def python(code: str, *words: object, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **options,
    )


def finished(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


# Asking for runs


def test_a_ladder_is_its_words(ledger: Ledger) -> None:
    first = ledger.add_ladder("lru", "sDigits", None, {"set": {"a": 1, "b": 2}, "tune": False})
    assert ledger.add_ladder("lru", "sDigits", None, {"tune": False, "set": {"b": 2, "a": 1}}) == first
    assert len(first.key) == 12
    other = ledger.add_ladder("lru", "sDigits", "smoke", {"set": {"a": 1, "b": 2}, "tune": False})
    assert other.key != first.key
    assert ledger.ladders() == [first, other]
    assert ledger.find_ladders(name="lru", task="sCIFAR") == []
    assert ledger.ladder(first.key[:8]) == first
    with pytest.raises(NotFoundError):
        ledger.ladder("zz")


def test_enqueue_makes_each_run_once(ledger: Ledger, key: str) -> None:
    wishes = [want(seed=seed, position=seed) for seed in range(3)]
    runs = ledger.enqueue(key, wishes)
    assert [run.fingerprint for run in runs] == [wish.fingerprint for wish in wishes]
    assert runs[0].id == wishes[0].fingerprint.removeprefix("sha256:")[:12]
    assert ledger.enqueue(key, wishes) == runs
    assert ledger.runs() == runs[::-1]
    run = runs[1]
    assert (run.state, run.seed, run.steps, run.step, run.result, run.code) == ("queued", 1, 100, 0, None, ())
    assert (run.config, run.execution, run.provenance) == (wishes[1].config, wishes[1].execution, wishes[1].provenance)


def test_a_run_is_shared_by_rungs_and_ladders(ledger: Ledger, key: str) -> None:
    other = ledger.add_ladder("grid", "sDigits", "smoke", {}).key
    shared = want("ring").fingerprint
    runs = ledger.enqueue(key, [want("ring"), want("disk", fingerprint=shared, position=1)])
    assert len(runs) == 1
    ledger.enqueue(other, [want("ring", position=5)])
    places = ledger.run(runs[0].id).memberships
    assert [(p.ladder, p.ladder_key, p.profile, p.rung, p.position) for p in places] == [
        ("lru", key, None, "ring", 0),
        ("lru", key, None, "disk", 1),
        ("grid", other, "smoke", "ring", 5),
    ]
    assert sum(counts(ledger, key).values()) == 1
    ledger.finish(take(ledger, other), "done", result={})
    assert counts(ledger, key)["done"] == 1
    assert ledger.claim(key, ME) is None


def test_a_place_can_move_and_be_left(ledger: Ledger, key: str) -> None:
    run = ledger.enqueue(key, [want(position=3)])[0]
    assert ledger.enqueue(key, [want(position=7)])[0].memberships[0].position == 7
    assert ledger.unlink(key, [run.id], "ring", "tune") == 0
    assert ledger.unlink(key, [run.id], "ring", "train") == 1
    assert ledger.runs(key) == []
    assert ledger.run(run.id).memberships == ()


def test_fresh_starts_a_generation(ledger: Ledger, key: str) -> None:
    other = ledger.add_ladder("grid", "sDigits", None, {}).key
    old = ledger.enqueue(key, [want()])[0]
    ledger.enqueue(other, [want(position=4)])
    assert ledger.enqueue(key, [want()], fresh=True)[0] == ledger.run(old.id), "queued still: nothing to start over"
    ledger.finish(take(ledger, key), "done", result={"val/accuracy": 0.5})
    new = ledger.enqueue(key, [want()], fresh=True)[0]
    assert (new.id, new.generation, new.state, new.superseded) == (f"{old.id}-2", 2, "queued", False)
    assert ledger.enqueue(key, [want()]) == [new]
    assert [run.id for run in ledger.runs(key)] == [new.id]
    assert [run.id for run in ledger.runs(key, superseded=True)] == [new.id, old.id]
    kept = ledger.run(old.id)
    assert (kept.state, kept.superseded, kept.result) == ("done", True, {"val/accuracy": 0.5})
    assert [run.id for run in ledger.runs(other)] == [new.id], "a ladder that shares the run follows"
    assert counts(ledger, key) == {"queued": 1}
    ledger.finish(take(ledger, key), "failed", error="boom")
    assert ledger.enqueue(key, [want()], fresh=True)[0].id == f"{old.id}-3"


def test_fresh_refuses_a_running_run_and_changes_nothing(ledger: Ledger, key: str, path: Path) -> None:
    ledger.enqueue(key, [want(seed=0), want(seed=1, position=1)])
    ledger.finish(take(ledger, key), "done", result={})
    claim = take(ledger, key)
    before = dump(path)
    with pytest.raises(LrurunError, match=claim.run.id):
        ledger.enqueue(key, [want(seed=0), want(seed=1), want(seed=2)], fresh=True)
    assert dump(path) == before


def test_requeue_takes_the_resumable_only(ledger: Ledger, key: str) -> None:
    states = ("done", "diverged", "failed", "interrupted")
    ledger.enqueue(key, [want(seed=seed, position=seed) for seed in range(6)])
    for state in states:
        ledger.finish(take(ledger, key), state, error="boom" if state == "failed" else None)
    running = take(ledger, key)
    ids = [run.id for run in ledger.runs()]
    assert ledger.requeue(ids) == 2
    assert ledger.requeue(ids) == 0
    assert counts(ledger, key) == {"queued": 3, "running": 1, "done": 1, "diverged": 1}
    assert ledger.run(running.run.id).state == "running"
    assert all(run.error is None for run in ledger.runs() if run.state == "queued")
    texts = [e.text for e in ledger.events() if e.kind == "failed"]
    assert texts == ["boom"], "the traceback outlives the next try"


# Claims


def test_claims_go_by_position_and_filters(ledger: Ledger, key: str) -> None:
    ledger.enqueue(
        key,
        [
            want("b", 1, 5),
            want("b", 0, 4),
            want("a", 0, 2),
            want("a", 1, 3),
            want("a", 1000, 6, "tune"),
            want("c", 0, 1, execution={"threads": 4}),
        ],
    )

    def order(**filters: Any) -> tuple[str, int]:
        run = take(ledger, key, **filters).run
        return run.memberships[0].rung, run.seed

    assert order(threads=4) == ("c", 0)
    assert ledger.claim(key, ME, threads=2) is None
    assert order(rungs=["b"]) == ("b", 0)
    assert order(seeds=[1]) == ("a", 1)
    assert order(seeds=[7]) == ("a", 1000), "tuning runs pass whatever the seeds"
    assert ledger.claim(key, ME, rungs=["a"], seeds=[1]) is None
    assert order() == ("a", 0)
    assert order() == ("b", 1)
    assert ledger.claim(key, ME) is None


def test_a_claim_opens_an_attempt(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want()])
    code = {"lrurun": "0.1.0", "commit": "0123456789abcdef", "dirty": "sha256:fedcba9876543210"}
    claim = take(ledger, key, environment={"code": code, "threads": 1})
    assert (claim.attempt, claim.run.state) == (1, "running")
    ledger.describe(claim, parameters=321, data_sha256="d" * 64, environment={"device": "cpu", "threads": 2})
    ledger.finish(claim, "interrupted", reason="interrupted: SIGTERM", step=40)
    ledger.requeue([claim.run.id])
    again = take(ledger, key, environment={"code": "0.2.0"})
    assert again.attempt == 2
    assert (again.run.step, again.run.parameters, again.run.data_sha256) == (40, 321, "d" * 64)
    assert again.run.code == ("lrurun 0.1.0, commit 0123456789ab, changes fedcba987654", "0.2.0")
    first, second = ledger.attempts(claim.run.id)
    assert (first.n, first.pid, first.pid_started, first.boot) == (1, ME.pid, ME.pid_started, ME.boot)
    assert first.environment == {"code": code, "threads": 2, "device": "cpu"}
    assert first.reason == "interrupted: SIGTERM"
    assert first.ended_at is not None
    assert (second.n, second.ended_at, second.reason) == (2, None, None)


CLAIMER = """
import sys
from lrurun.ledger import owner
from lrurun.ledger.store import Ledger
with Ledger.open(sys.argv[1]) as ledger:
    sys.stdin.readline()
    while claim := ledger.claim(sys.argv[2], owner.here()):
        ledger.record(claim, [(1, "loss", 1.0)], 1)
        ledger.finish(claim, "done", result={})
        print(claim.run.id)
"""


@pytest.mark.parametrize(
    ("processes", "jobs"), [pytest.param(8, 200, id="8"), pytest.param(16, 2000, id="16", marks=pytest.mark.slow)]
)
def test_claimers_never_share_a_run(ledger: Ledger, key: str, path: Path, processes: int, jobs: int) -> None:
    ids = [run.id for run in ledger.enqueue(key, [want(seed=seed, position=seed) for seed in range(jobs)])]
    claimers = [python(CLAIMER, path, key) for _ in range(processes)]
    for claimer in claimers:
        assert claimer.stdin is not None
        claimer.stdin.write("go\n")
        claimer.stdin.flush()
    done = [line.split() for line in map(finished, claimers)]
    assert sorted(name for names in done for name in names) == sorted(ids)
    assert sum(bool(names) for names in done) > 1, "one process did it all: nothing was contended"
    assert counts(ledger, key)["done"] == jobs
    assert raw(path, "SELECT max(n), count(*) FROM attempts") == [(1, jobs)]
    assert ledger.check() == []


def test_threads_may_share_a_ledger(ledger: Ledger) -> None:
    threads = [threading.Thread(target=lambda: [ledger.event("k", "t") for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.events()) == 80


# Writing by a claim


def test_metrics_round_trip(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want(seed=0), want(seed=1, position=1), want(seed=2, position=2)])
    claim, other = take(ledger, key), take(ledger, key)
    values = [1e-300, 5e-324, math.inf, -math.inf, math.nan, 0.1 + 0.2, 1.7976931348623157e308]
    ledger.record(claim, [(step, "train/loss", value) for step, value in enumerate(values)], 6)
    ledger.record(claim, [(6, "val/accuracy", 0.25), (0, "train/loss", 7.0)], 6)
    ledger.record(other, [(3, "val/accuracy", math.nan)], 3)
    curves = ledger.metrics(claim.run.id)
    assert list(curves) == ["train/loss", "val/accuracy"]
    assert [step for step, _ in curves["train/loss"]] == list(range(7))
    found = [value for _, value in curves["train/loss"]]
    assert [repr(value) for value in found] == [repr(value) for value in [7.0, *values[1:]]]
    assert ledger.metrics(claim.run.id, ["val/accuracy", "none"]) == {"val/accuracy": [(6, 0.25)]}
    latest = ledger.latest([run.id for run in ledger.runs()], ["train/loss", "val/accuracy", "none"])
    assert latest.keys() == {claim.run.id, other.run.id}
    assert latest[claim.run.id] == {"train/loss": (6, values[6]), "val/accuracy": (6, 0.25)}
    assert math.isnan(latest[other.run.id]["val/accuracy"][1])
    assert ledger.run(claim.run.id).step == 6


def test_a_result_round_trips(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want()])
    claim = take(ledger, key)
    result = {"val/accuracy": 0.1 + 0.2, "best_step": 40, "nan": math.nan, "up": math.inf, "down": -math.inf}
    ledger.finish(claim, "diverged", result=result, parameters=5, step=99)
    run = ledger.run(claim.run.id)
    assert run.result is not None
    assert repr(run.result) == repr(result)
    assert (run.state, run.step, run.parameters) == ("diverged", 99, 5)
    assert run.finished_at is not None
    assert ledger.attempts(run.id)[0].reason == "diverged"
    assert json.loads(raw(ledger.path, "SELECT result FROM runs")[0][0])["up"] == "inf", "valid JSON for SQL"


def test_a_rolled_back_metric_name_is_learnt_again(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want()])
    claim = take(ledger, key)
    with pytest.raises((TypeError, ValueError)):
        ledger.record(claim, [(1, "new", "no number")], 1)  # type: ignore[list-item]
    assert ledger.run(claim.run.id).step == 0
    ledger.record(claim, [(1, "new", 2.0)], 1)
    assert ledger.metrics(claim.run.id) == {"new": [(1, 2.0)]}


def test_rewind_deletes_what_lies_past_the_step(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want(seed=0), want(seed=1, position=1)])
    claim, other = take(ledger, key), take(ledger, key)
    for one in (claim, other):
        ledger.record(one, [(step, name, 1.0) for step in (0, 10, 20, 30) for name in ("a", "b")], 30)
    ledger.rewind(claim, 20)
    assert [step for step, _ in ledger.metrics(claim.run.id)["b"]] == [0, 10, 20]
    assert ledger.run(claim.run.id).step == 20
    assert ledger.attempts(claim.run.id)[0].resumed_from == 20
    ledger.rewind(claim, 0)
    assert ledger.metrics(claim.run.id) == {}
    assert len(ledger.metrics(other.run.id)["a"]) == 4


def test_checkpoints(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want(seed=0), want(seed=1, position=1)])
    claim, other = take(ledger, key), take(ledger, key)
    first, second = (ledger.saving(claim, step, f"{claim.run.id}/1/{step}") for step in (10, 20))
    ledger.committed(claim, first, 123, "f" * 64)
    with pytest.raises(ValueError, match="saving"):
        ledger.committed(other, second, 1, "0" * 64)
    found = ledger.checkpoints(claim.run.id)
    assert [(c.step, c.state, c.bytes, c.sha256) for c in found] == [
        (20, "saving", None, None),
        (10, "committed", 123, "f" * 64),
    ]
    assert [c.id for c in ledger.checkpoints(claim.run.id, "committed")] == [first]
    ledger.forget(other, [first])
    assert len(ledger.checkpoints(claim.run.id)) == 2, "another run's checkpoints are not one's own"
    ledger.forget(claim, [first, 999])
    assert [c.id for c in ledger.checkpoints(claim.run.id)] == [second]


def writes(ledger: Ledger, claim: Claim, checkpoint: int) -> list[Any]:
    return [
        lambda: ledger.rewind(claim, 0),
        lambda: ledger.record(claim, [(5, "loss", 9.0), (6, "brand-new", 9.0)], 6),
        lambda: ledger.record(claim, [], 6),
        lambda: ledger.saving(claim, 7, "x"),
        lambda: ledger.committed(claim, checkpoint, 1, "0" * 64),
        lambda: ledger.forget(claim, [checkpoint]),
        lambda: ledger.describe(claim, parameters=1, environment={"a": 1}),
        *[lambda state=state: ledger.finish(claim, state) for state in ("done", "diverged", "failed", "interrupted")],
    ]


def test_a_zombie_writes_nothing(ledger: Ledger, key: str, path: Path) -> None:
    ledger.enqueue(key, [want()])
    zombie = take(ledger, key, msgspec.structs.replace(ME, boot="before"))
    ledger.record(zombie, [(5, "loss", 1.0)], 5)
    checkpoint = ledger.saving(zombie, 5, "x")
    assert [run.id for run in ledger.reap(ME)] == [zombie.run.id]
    for stage in ("interrupted", "queued", "running"):
        if stage == "queued":
            ledger.requeue([zombie.run.id])
        if stage == "running":
            holder = take(ledger, key)
        before = dump(path)
        for write in writes(ledger, zombie, checkpoint):
            with pytest.raises(Fenced):
                write()
        assert ledger.beat([(zombie.run.id, 1)]) == [(zombie.run.id, 1)]
        assert dump(path) == before, stage
    ledger.record(holder, [(6, "loss", 2.0)], 6)
    assert ledger.beat([(zombie.run.id, 1), (holder.run.id, 2)]) == [(zombie.run.id, 1)]


@pytest.mark.parametrize("state", ["done", "diverged"])
def test_a_finished_run_never_changes(ledger: Ledger, key: str, path: Path, state: str) -> None:
    ledger.enqueue(key, [want()])
    claim = take(ledger, key)
    checkpoint = ledger.saving(claim, 5, "x")
    ledger.finish(claim, state, result={"val/accuracy": 0.5})
    before = dump(path)
    for write in writes(ledger, claim, checkpoint):
        with pytest.raises(Fenced):
            write()
    for change in ("state = 'queued'", "result = '{}'", "step = 1", "config = '{}'", "error = 'x'", "attempt = 9"):
        with pytest.raises(sqlite3.IntegrityError, match="never changes"):
            raw(path, f"UPDATE runs SET {change}")
    with pytest.raises(sqlite3.IntegrityError, match="never deleted"):
        raw(path, "DELETE FROM runs")
    assert ledger.reap(ME) == []
    assert dump(path) == before


# Owners


def test_this_process_is_alive() -> None:
    assert owner.alive(ME)
    assert owner.here() == ME
    assert not owner.alive(msgspec.structs.replace(ME, pid_started=ME.pid_started - 1))


def beat_ago(path: Path, seconds: float) -> None:
    raw(path, "UPDATE attempts SET heartbeat_at = heartbeat_at - ?", seconds)


HOLDER = """
import sys
from lrurun.ledger import owner
from lrurun.ledger.store import Ledger
with Ledger.open(sys.argv[1]) as ledger:
    print(ledger.claim(sys.argv[2], owner.here()).run.id, flush=True)
    sys.stdin.readline()
"""


def test_the_run_of_a_dead_process_is_taken_and_of_a_stopped_one_not(ledger: Ledger, key: str, path: Path) -> None:
    ledger.enqueue(key, [want()])
    holder = python(HOLDER, path, key)
    try:
        assert holder.stdout is not None
        name = holder.stdout.readline().strip()
        assert ledger.reap(ME) == []
        holder.send_signal(signal.SIGSTOP)
        beat_ago(path, 10_000)
        assert ledger.reap(ME) == [], "on this host the heartbeat means nothing"
        holder.kill()
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
        assert [run.id for run in ledger.reap(ME)] == [name], "a zombie is dead"
    finally:
        holder.kill()
        holder.communicate()
    run = ledger.run(name)
    assert run.state == "interrupted"
    attempt = ledger.attempts(name)[0]
    assert attempt.reason == GONE
    assert attempt.ended_at is not None
    last = ledger.events(run=name)[-1]
    assert (last.kind, last.attempt) == ("interrupted", 1)
    assert str(holder.pid) in last.text
    assert ledger.reap(ME) == []
    assert ledger.check() == []


@pytest.mark.parametrize(
    ("by", "silent_for", "gone"),
    [
        pytest.param(ME, 10_000, False, id="ourselves"),
        pytest.param(msgspec.structs.replace(ME, pid_started=ME.pid_started - 5), 0, True, id="pid-reused"),
        pytest.param(msgspec.structs.replace(ME, boot="before"), 0, True, id="other-boot"),
        pytest.param(msgspec.structs.replace(ME, namespace="pid:[1]"), 0, False, id="other-namespace-fresh"),
        pytest.param(msgspec.structs.replace(ME, namespace="pid:[1]"), 121, True, id="other-namespace-silent"),
        pytest.param(ELSEWHERE, 100, False, id="other-host-fresh"),
        pytest.param(ELSEWHERE, 121, True, id="other-host-silent"),
    ],
)
def test_who_is_gone(ledger: Ledger, key: str, path: Path, by: Owner, silent_for: float, gone: bool) -> None:
    ledger.enqueue(key, [want()])
    claim = take(ledger, key, by)
    beat_ago(path, silent_for)
    assert [run.id for run in ledger.reap(ME)] == [claim.run.id] * gone
    assert ledger.run(claim.run.id).state == ("interrupted" if gone else "running")


def test_a_beat_keeps_a_run_and_a_write_shows_the_worker(ledger: Ledger, key: str, path: Path) -> None:
    ledger.enqueue(key, [want()])
    claim = take(ledger, key, ELSEWHERE)
    raw(path, "UPDATE attempts SET heartbeat_at = 1, seen_at = 1")
    assert ledger.beat([(claim.run.id, 1)]) == []
    assert ledger.attempts(claim.run.id)[0].seen_at == 1
    assert ledger.reap(ME) == []
    ledger.record(claim, [], 1)
    assert ledger.attempts(claim.run.id)[0].seen_at > 1


# Reading


def test_runs_are_found_by_the_beginning_of_their_id(ledger: Ledger, key: str) -> None:
    prints = ["sha256:" + head + "0" * 52 for head in ("aaaa00000001", "aaaa00000002", "bbbb00000003")]
    wishes = [want(seed=seed, fingerprint=fingerprint) for seed, fingerprint in enumerate(prints)]
    ledger.enqueue(key, wishes)
    assert ledger.run("b").id == "bbbb00000003"
    assert ledger.run("AAAA00000001").id == "aaaa00000001"
    with pytest.raises(NotFoundError, match="ambiguous") as ambiguous:
        ledger.run("aaaa")
    assert "aaaa00000001, aaaa00000002" in str(ambiguous.value.hint)
    for nothing in ("c", "", "%", "bbbb00000003-2"):
        with pytest.raises(NotFoundError) as missing:
            ledger.run(nothing)
        assert missing.value.hint
        assert missing.value.exit_code == 4
    ledger.finish(take(ledger, key), "failed")
    ledger.enqueue(key, [wishes[0]], fresh=True)
    assert ledger.run("aaaa00000001").generation == 1, "the whole id wins over what it begins"
    assert ledger.run("aaaa00000001-2").generation == 2
    for ask in (ledger.attempts, ledger.checkpoints, ledger.metrics):
        with pytest.raises(NotFoundError):
            ask("aaaa")


def test_lists_of_runs(ledger: Ledger, key: str) -> None:
    ids = [run.id for run in ledger.enqueue(key, [want(seed=seed) for seed in range(5)])]
    assert [run.id for run in ledger.runs(limit=2)] == [ids[4], ids[3]]
    assert all(len(run.memberships) == 1 for run in ledger.runs(limit=2))
    assert [run.id for run in ledger.runs(ids=[ids[0], ids[2], "none"])] == [ids[2], ids[0]]
    brief = ledger.runs(brief=True)[0]
    assert (brief.config, brief.execution, brief.provenance) == ({}, {}, {})
    assert brief.memberships == ledger.runs()[0].memberships
    with pytest.raises(NotFoundError):
        ledger.runs("nowhere")


def test_a_list_costs_the_same_number_of_statements_however_long(ledger: Ledger, key: str) -> None:
    statements: list[str] = []
    event.listen(ledger._states, "before_cursor_execute", lambda *words: statements.append(words[2]))

    def cost() -> int:
        statements.clear()
        ledger.runs(key)
        return len(statements)

    ledger.enqueue(key, [want()])
    one = cost()
    assert one > 0
    ledger.enqueue(key, [want(seed=seed) for seed in range(1, 40)])
    assert cost() == one


def test_events(ledger: Ledger, key: str) -> None:
    other = ledger.add_ladder("grid", "sDigits", None, {}).key
    run, foreign = ledger.enqueue(key, [want(seed=0)])[0], ledger.enqueue(other, [want(seed=1)])[0]
    first = ledger.event("a", "of the ladder", ladder=key)
    ledger.event("b", "of the run", run=run.id, attempt=1)
    ledger.event("c", "of another run", run=foreign.id)
    ledger.event("d", "of nothing, with a lone surrogate \udcff")
    assert [e.kind for e in ledger.events()] == ["a", "b", "c", "d"]
    assert [e.kind for e in ledger.events(after=first)] == ["b", "c", "d"]
    assert [e.kind for e in ledger.events(limit=2)] == ["c", "d"]
    assert [e.kind for e in ledger.events(ladder_key=key)] == ["a", "b"]
    found = ledger.events(run=run.id)
    assert [(e.run, e.attempt, e.text) for e in found] == [(run.id, 1, "of the run")]


def test_check_finds_what_is_wrong(ledger: Ledger, key: str, path: Path) -> None:
    ledger.enqueue(key, [want(seed=0), want(seed=1, position=1)])
    take(ledger, key)
    assert ledger.check() == []
    raw(path, "UPDATE runs SET state = 'queued' WHERE state = 'running'")
    raw(path, "INSERT INTO checkpoints (run, attempt, step, state, path) VALUES (9, 9, 1, 'saving', 'x')")
    raw(path, "DROP TRIGGER runs_finished_stay")
    problems = "\n".join(ledger.check())
    assert "attempt 1 is open" in problems
    assert "checkpoints" in problems
    assert "runs_finished_stay is missing" in problems


# The file


def test_the_settings_that_keep_it_whole(ledger: Ledger) -> None:
    for engine, synchronous in ((ledger._states, 2), (ledger._measures, 1)):
        with engine.connect() as connection:
            ask = connection.exec_driver_sql
            assert ask("PRAGMA journal_mode").scalar() == "wal"
            assert ask("PRAGMA foreign_keys").scalar() == 1
            assert ask("PRAGMA synchronous").scalar() == synchronous
            assert ask("PRAGMA busy_timeout").scalar() == 30_000
    assert ledger.note is None


def test_a_network_file_system_gets_no_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger.open(path).close()
    monkeypatch.setattr(files, "filesystem", lambda path: "nfs4")
    with Ledger.open(path) as ledger:
        assert ledger.note is not None
        assert "nfs4" in ledger.note
        ledger.event("a", "b")
        with ledger._measures.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    assert [p.name for p in path.parent.iterdir()] == ["ledger.db"]


def test_the_file_system_is_told() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("/proc is Linux")
    assert files.filesystem(Path("/proc/self/stat")) == "proc"


def test_a_held_ledger_is_busy(path: Path) -> None:
    Ledger.open(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with Ledger.open(path, timeout=0.1) as ledger:
            with pytest.raises(LedgerError, match="busy") as busy:
                ledger.event("a", "b")
            assert busy.value.exit_code == 5
            assert ledger.events() == [], "readers do not wait for writers"
            other.execute("ROLLBACK")
            ledger.event("a", "b")
    finally:
        other.close()


def test_a_full_disk_is_told_and_survived(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger.open(path).close()
    connect = files.connect

    def small(*words: Any) -> sqlite3.Connection:
        connection = connect(*words)
        connection.execute("PRAGMA max_page_count=60")
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(files, "connect", small)
        with Ledger.open(path) as ledger:
            ledger.event("a", "small")
            with pytest.raises(LrurunError, match="no space") as full:
                ledger.event("b", "x" * 1_000_000)
            assert full.value.exit_code == 1
            assert full.value.hint
            ledger.event("c", "small again")
    with Ledger.open(path) as ledger:
        assert [e.kind for e in ledger.events()] == ["a", "c"]


@pytest.mark.parametrize(
    "url", ["postgresql://user:geheim@host/db", "postgresql+psycopg://u:geheim@h/d?password=geheim"]
)
def test_a_url_is_refused_without_its_password(url: str) -> None:
    for ask in (Ledger.open, Ledger.read):
        with pytest.raises(LedgerError, match="SQLite") as refused:
            ask(url)
        assert refused.value.hint
        assert "geheim" not in f"{refused.value} {refused.value.hint}"


def test_places_where_no_ledger_can_be(tmp_path: Path) -> None:
    with pytest.raises(LrurunError, match="does not exist") as missing:
        Ledger.open(tmp_path / "no" / "ledger.db")
    assert missing.value.exit_code == 1
    assert "mkdir -p" in str(missing.value.hint)
    for ask in (Ledger.open, Ledger.read):
        with pytest.raises(LrurunError, match="folder"):
            ask(tmp_path)
    with pytest.raises(NotFoundError):
        Ledger.open(tmp_path / "none.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_odd_names_are_just_names(tmp_path: Path) -> None:
    for name in ("a b.db", "50%.db", "what?x=1#y.db", "ü.db", "file:x.db", "%(here)s.db"):
        path = tmp_path / name
        with Ledger.open(path) as ledger:
            ledger.event("a", "b")
        found = Ledger.read(path)
        assert found is not None
        with found:
            assert len(found.events()) == 1
        assert path.exists()


def test_readers_create_nothing_and_change_nothing(path: Path) -> None:
    assert Ledger.read(path) is None
    assert Ledger.read(path.parent / "no" / "ledger.db") is None
    assert list(path.parent.iterdir()) == []
    path.touch()
    assert Ledger.read(path) is None
    with Ledger.open(path) as ledger:
        key = ledger.add_ladder("lru", "sDigits", None, {}).key
        ledger.enqueue(key, [want()])
    content = path.read_bytes()
    reader = Ledger.read(path)
    assert reader is not None
    with reader:
        assert reader.note is None
        assert len(reader.runs()) == 1
        for write in (lambda: reader.event("a", "b"), lambda: reader.claim(key, ME), lambda: reader.requeue([])):
            with pytest.raises(LrurunError, match="reading"):
                write()
    assert path.read_bytes() == content
    assert [p.name for p in path.parent.iterdir()] == ["ledger.db"]


UNPRIVILEGED = """
import os, sys
from lrurun.errors import LrurunError
from lrurun.ledger.store import Ledger
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
reader = Ledger.read(sys.argv[1])
print(len(reader.events()), reader.note)
reader.close()
try:
    Ledger.open(sys.argv[1])
except LrurunError as error:
    print(error.exit_code, error.message, "|", error.hint)
try:
    Ledger.open(sys.argv[1] + "-new")
except LrurunError as error:
    print(error.exit_code, error.message, "|", error.hint)
"""


def test_a_read_only_ledger_is_read_as_it_is() -> None:
    # Not in pytest's own folder, which other users cannot enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "ledger.db"
        with Ledger.open(path) as ledger:
            ledger.event("a", "b")
        path.chmod(0o444)
        folder.chmod(0o555)
        try:
            read, opened, created = finished(python(UNPRIVILEGED, path)).splitlines()
            assert read.startswith("1 the ledger")
            assert "read-only" in read
            assert opened.startswith("1 the ledger")
            assert "cannot be written" in opened
            assert "cannot be written" in created
            assert [p.name for p in folder.iterdir()] == ["ledger.db"]
        finally:
            folder.chmod(0o755)


def test_imports_are_as_light_as_promised(path: Path) -> None:
    Ledger.open(path).close()
    code = """
import sys
import lrurun.ledger.values
import lrurun.ledger
assert "sqlalchemy" not in sys.modules
with lrurun.ledger.Ledger.open(sys.argv[1]) as ledger:
    ledger.runs()
assert "alembic" not in sys.modules and "sqlalchemy.orm" not in sys.modules and "jax" not in sys.modules
"""
    finished(python(code, path))


def test_standings_are_the_runs_taken_together(ledger: Ledger, key: str) -> None:
    other = ledger.add_ladder("other", "sDigits", None, {"set": {}, "tune": False}).key
    places = [(rung, seed) for rung in ("dense", "ring") for seed in range(6)]
    ledger.enqueue(key, [want(rung, seed, position=10 * k) for k, (rung, seed) in enumerate(places)])
    ledger.enqueue(key, [want("shared", position=999, fingerprint=want("dense").fingerprint)])  # a run in two rungs
    ledger.enqueue(other, [want("elsewhere", 0)])
    ends = ["done", "done", "done", "diverged", "failed", None]
    for number, (_, seed) in enumerate(places):
        claim = take(ledger, key)
        step = 40 + number
        rows = [(20, "train/loss", 9.0), (step, "train/loss", 1.0 + number), (step, "val/accuracy", 0.125)]
        ledger.record(claim, rows if seed != 1 else rows[2:], step)
        if ends[seed] is None:
            continue
        result = {"val/accuracy": number / 16, "machine/steps_per_second": 8.0 + number}
        if seed == 2:
            result = {"val/accuracy": math.nan, "machine/steps_per_second": math.inf}
        ledger.finish(claim, ends[seed], result=None if ends[seed] == "failed" else result, step=step)
    ledger.finish(take(ledger, other), "done", result={"val/accuracy": 1.0}, step=100)

    found = {(s.rung, s.state): s for s in ledger.standings(key)}
    assert [(rung, state, s.count, s.first, s.resultless) for (rung, state), s in found.items()] == [
        ("dense", "done", 3, 3, 0),
        ("dense", "diverged", 1, 1, 0),
        ("dense", "failed", 1, 1, 1),
        ("dense", "running", 1, 1, 1),
        ("ring", "done", 3, 3, 0),
        ("ring", "diverged", 1, 1, 0),
        ("ring", "failed", 1, 1, 1),
        ("ring", "running", 1, 1, 1),
        ("shared", "done", 1, 0, 0),
    ]
    dense = found["dense", "done"]
    assert (dense.count, dense.step, dense.steps, dense.position) == (3, 40 + 41 + 42, 300, 0)
    assert dense.loss == (1.0 + 3.0) / 2  # the second has no training loss
    assert dense.score == (0 / 16 + 1 / 16) / 2  # the third has no finite one
    assert sorted(dense.speeds) == [8.0, 9.0]
    assert found["shared", "done"].speeds == (8.0,)
    assert found["ring", "diverged"].loss == 10.0

    left = ledger.runs(key, resultless=True, brief=True)
    assert sorted(run.state for run in left) == ["failed", "failed", "running", "running"]
    ledger.enqueue(key, [want("dense", seed) for seed in range(3)], fresh=True)
    assert ("dense", "done") not in {(s.rung, s.state) for s in ledger.standings(key)}


def test_progress_adds_up(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want(rung, seed, position=seed) for rung in ("dense", "ring") for seed in range(3)])
    for _ in range(3):
        claim = take(ledger, key, rungs=["dense"])
        ledger.record(claim, [(50, "train/loss", 0.5), (50, "machine/steps_per_second", 5.0)], 50)
        ledger.finish(claim, "done", result={"val/accuracy": 0.75, "machine/steps_per_second": 20.0}, step=100)
    running = take(ledger, key)
    ledger.record(running, [(60, "train/loss", 0.25), (60, "machine/steps_per_second", 10.0)], 60)
    now = progress.collect(ledger, ledger.ladder(key))
    assert (now.total, now.counts["done"], now.counts["running"], now.counts["queued"]) == (6, 3, 1, 2)
    dense, ring = now.rungs
    assert (dense.rung, dense.total, dense.step, dense.loss, dense.score, dense.speed) == (
        "dense",
        3,
        300,
        0.5,
        0.75,
        20,
    )
    assert (ring.rung, ring.counts, ring.step, ring.steps) == ("ring", {"running": 1, "queued": 2}, 60, 300)
    assert (ring.loss, ring.score, ring.speed) == (0.25, None, 10.0)
    assert ring.eta_seconds == 40 / 10 + 2 * 100 / 10
    assert now.eta_seconds == 40 / 10 + 2 * 100 / 20  # those that wait go as fast as the ladder's usual run
    assert [run.id for run in now.running] == [running.run.id] == list(now.places)

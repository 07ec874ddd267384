"""The queue of the ledger: each run is added once, and has one worker at a time."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from lrurun.config.runs import InstanceSpec
from lrurun.errors import LrurunError, NotFoundError
from lrurun.ledger.store import Ledger
from tests.harness.forks import at_once
from tests.harness.stores import ME, counts, dump, key, ledger, path, raw, take, want

__all__ = ["key", "ledger", "path"]  # fixtures


def test_a_ladder_instance_is_identified_by_its_values(ledger: Ledger) -> None:
    first = ledger.add_ladder("lru", "sDigits", None, InstanceSpec(set={"a": 1, "b": 2}))
    assert ledger.add_ladder("lru", "sDigits", None, InstanceSpec(set={"b": 2, "a": 1})) == first
    assert len(first.key) == 12
    other = ledger.add_ladder("lru", "sDigits", "smoke", InstanceSpec(set={"a": 1, "b": 2}))
    assert other.key != first.key
    assert ledger.ladders() == [first, other]
    assert ledger.ladders(name="lru", task="sCIFAR") == []
    assert ledger.ladder(first.key[:8]) == first
    with pytest.raises(NotFoundError):
        ledger.ladder("zz")


def test_enqueue_adds_each_run_once(ledger: Ledger, key: str) -> None:
    wanted = [want(seed=seed, position=seed) for seed in range(3)]
    runs = ledger.enqueue(key, wanted)
    assert [run.fingerprint for run in runs] == [one.fingerprint for one in wanted]
    assert runs[0].id == wanted[0].fingerprint.removeprefix("sha256:")[:12]
    assert ledger.enqueue(key, wanted) == runs
    assert ledger.runs() == runs[::-1]
    run = runs[1]
    assert (run.state, run.seed, run.steps, run.step, run.result, run.code) == ("queued", 1, 100, 0, None, ())
    assert (run.config, run.execution, run.sources) == (wanted[1].config, wanted[1].execution, wanted[1].sources)


def test_a_run_is_shared_by_rungs_and_ladders(ledger: Ledger, key: str) -> None:
    other = ledger.add_ladder("grid", "sDigits", "smoke", InstanceSpec()).key
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


def test_a_place_can_change_and_be_removed(ledger: Ledger, key: str) -> None:
    run = ledger.enqueue(key, [want(position=3)])[0]
    assert ledger.enqueue(key, [want(position=7)])[0].memberships[0].position == 7
    assert ledger.unlink(key, [run.id], "ring", "tune") == 0
    assert ledger.unlink(key, [run.id], "ring", "train") == 1
    assert ledger.runs(key) == []
    assert ledger.run(run.id).memberships == ()


def test_fresh_starts_a_generation(ledger: Ledger, key: str) -> None:
    other = ledger.add_ladder("grid", "sDigits", None, InstanceSpec()).key
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


def test_only_interrupted_and_failed_runs_are_requeued(ledger: Ledger, key: str) -> None:
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


def test_claims_follow_position_and_filters(ledger: Ledger, key: str) -> None:
    ledger.enqueue(
        key,
        [
            want("b", 1, 5),
            want("b", 0, 4),
            want("a", 0, 2),
            want("a", 1, 3),
            want("a", 1000, 6, "tune"),
            want("c", 0, 1, execution={"threads": 4}),
            want("d", 0, 7, execution={"threads": 1, "devices": 2}),
        ],
    )

    def order(**filters: Any) -> tuple[str, int]:
        run = take(ledger, key, **filters).run
        return run.memberships[0].rung, run.seed

    assert order(threads=4) == ("c", 0)
    assert order(threads=1, devices=2) == ("d", 0)
    assert ledger.claim(key, ME, threads=2) is None
    assert ledger.claim(key, ME, threads=1, devices=2) is None
    assert order(rungs=["b"], devices=1) == ("b", 0), "one is the default"
    assert order(seeds=[1]) == ("a", 1)
    assert order(seeds=[7]) == ("a", 1000), "tuning runs pass whatever the seeds"
    assert ledger.claim(key, ME, rungs=["a"], seeds=[1]) is None
    assert order() == ("a", 0)
    assert order() == ("b", 1)
    assert ledger.claim(key, ME) is None


def test_workers_start_on_different_rungs_and_stay_on_theirs(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want(rung, seed, 10 * at + seed) for at, rung in enumerate("abc") for seed in range(3)])

    def order(*compiled: str) -> tuple[str, int]:
        run = take(ledger, key, compiled=compiled).run
        return run.memberships[0].rung, run.seed

    assert order() == ("a", 0), "the order of the ladder"
    assert order() == ("b", 0), "a is running"
    assert order("a") == ("a", 1), "compiled, although c comes without a run"
    assert order("c", "b") == ("b", 1), "of several compiled ones, the first"
    assert order() == ("c", 0)
    assert order() == ("a", 2), "all are running: the order of the ladder"
    assert order("a") == ("b", 2), "nothing is left of a"


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
import time
from lrurun.ledger import owner
from lrurun.ledger.store import Ledger

def work(number):
    with Ledger.open(sys.argv[1]) as ledger:
        while claim := ledger.claim(sys.argv[2], owner.this_process()):
            ledger.record(claim, [(1, "loss", 1.0)], 1)
            ledger.finish(claim, "done", result={})
            print(number, claim.run.id)
            time.sleep(0.002)  # on a busy machine the first process could finish before another starts
"""


def test_claimers_never_share_a_run(ledger: Ledger, key: str, path: Path) -> None:
    jobs = 100
    ids = [run.id for run in ledger.enqueue(key, [want(seed=seed, position=seed) for seed in range(jobs)])]
    done = [line.split() for line in at_once(8, CLAIMER, path, key)]
    assert sorted(name for _, name in done) == sorted(ids)
    assert len({number for number, _ in done}) > 1, "one process did it all: there was no contention"
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

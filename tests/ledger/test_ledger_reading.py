"""Reading the ledger: lists, events, checks, summaries and progress."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from lrurun.config.runs import InstanceSpec
from lrurun.errors import NotFoundError
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import Run
from lrurun.report.live import progress
from tests.harness.stores import drop_trigger, key, ledger, on_file, path, raw, take, want

__all__ = ["key", "ledger", "path"]  # fixtures


def test_runs_are_found_by_the_beginning_of_their_id(ledger: Ledger, key: str) -> None:
    prints = ["sha256:" + head + "0" * 52 for head in ("aaaa00000001", "aaaa00000002", "bbbb00000003")]
    wanted = [want(seed=seed, fingerprint=fingerprint) for seed, fingerprint in enumerate(prints)]
    ledger.enqueue(key, wanted)
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
    ledger.enqueue(key, [wanted[0]], fresh=True)
    assert ledger.run("aaaa00000001").generation == 1, "an exact id is preferred to longer ones"
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
    assert brief.settings is None
    assert brief.memberships == ledger.runs()[0].memberships
    with pytest.raises(NotFoundError):
        ledger.runs("nowhere")


def test_configurations_come_back_with_the_seed_in_its_place(ledger: Ledger, key: str) -> None:
    configs = [
        lambda seed: {"seed": seed, "data": {"z": 1}},
        lambda seed: {"seed": seed, "data": {"a": "seed"}},
        lambda seed: {"seed": seed, "data": {"seed": seed, "of": [seed]}},
        lambda seed: {"seed": seed, "data": {"seed": None}},
        lambda seed: {"seed": seed, "data": {"a": f'"seed":{seed}'}},
        lambda seed: {"seed": seed, "code": {"recurrence": "sha256:a"}},
    ]
    wanted = [want(f"rung-{k}", seed, config=made(seed)) for k, made in enumerate(configs) for seed in (1, 12)]
    ledger.enqueue(key, wanted)
    for run, asked in zip(reversed(ledger.runs(key)), wanted, strict=True):
        assert run.config == asked.config
    ids = [run.config_id for run in reversed(ledger.runs(key, brief=True))]
    assert [first == second for first, second in zip(ids[::2], ids[1::2], strict=True)] == [1, 1, 0, 1, 0, 1]


def test_a_list_of_any_length_takes_the_same_number_of_statements(ledger: Ledger, key: str) -> None:
    statements: list[str] = []
    event.listen(ledger.database.engine, "before_cursor_execute", lambda *words: statements.append(words[2]))

    def cost() -> int:
        statements.clear()
        ledger.runs(key)
        return len(statements)

    ledger.enqueue(key, [want()])
    one = cost()
    assert one > 0
    ledger.enqueue(key, [want(seed=seed) for seed in range(1, 40)])
    assert cost() == one


LARGE = {"stored_runs", "ladder_runs", "stored_attempts", "metrics", "events", "checkpoints", "eigenvalues"}


READS: list[tuple[Callable[[Ledger, str, Run], object], set[str]]] = [
    (lambda ledger, key, run: ledger.run(run.id[:5]), set()),
    (lambda ledger, key, run: ledger.attempts(run.id), set()),
    (lambda ledger, key, run: ledger.metrics(run.id), set()),
    (lambda ledger, key, run: ledger.events(run=run.id), set()),
    (lambda ledger, key, run: ledger.checkpoints(run.id), set()),
    (lambda ledger, key, run: ledger.eigenvalues(run.id), set()),
    (lambda ledger, key, run: ledger.newest_attempts([run.id]), set()),
    (lambda ledger, key, run: ledger.runs(key), set()),
    (lambda ledger, key, run: ledger.runs(fingerprints=[run.fingerprint]), set()),
    (lambda ledger, key, run: list(ledger.each([run.id])), set()),
    (lambda ledger, key, run: list(ledger.each_checkpoint([run.id], "committed")), set()),
    (lambda ledger, key, run: ledger.state_summaries(key), set()),
    (lambda ledger, key, run: ledger.state_counts(key), set()),
    (lambda ledger, key, run: ledger.remaining_work(key), set()),
    # these two read runs, newest first, as far as the limit
    (lambda ledger, key, run: ledger.run_ids(limit=20), {"stored_runs"}),
    (lambda ledger, key, run: ledger.run_ids(ladder="lru", limit=20), {"stored_runs"}),
]


@on_file  # PostgreSQL scans small tables whatever their indexes
def test_what_is_read_is_found_by_an_index(ledger: Ledger, key: str) -> None:
    run = ledger.enqueue(key, [want()])[0]
    held = take(ledger, key)
    ledger.record(held, [(1, "train/loss", 1.0)], 1)
    ledger.commit_checkpoint(held, ledger.begin_checkpoint(held, 1, "a"), 1, "b")
    statements: list[Any] = []
    event.listen(ledger.database.engine, "before_cursor_execute", lambda *words: statements.append(words[2:4]))
    for number, (read, scanned) in enumerate(READS):
        statements.clear()
        read(ledger, key, run)
        asked = [(statement, values) for statement, values in statements if statement.startswith("SELECT")]
        with ledger._reading() as connection:
            plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {one}", values).all() for one, values in asked]
        assert asked, number
        steps = "\n".join(step.detail for plan in plans for step in plan)
        assert set(re.findall(r"SCAN (\w+)", steps)) & LARGE == scanned, number


def test_events(ledger: Ledger, key: str) -> None:
    other = ledger.add_ladder("grid", "sDigits", None, InstanceSpec()).key
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
    raw(path, "UPDATE stored_runs SET state = 'queued' WHERE state = 'running'")
    if isinstance(path, Path):  # a server refuses it
        raw(path, "INSERT INTO checkpoints (run, attempt, step, state, path) VALUES (9, 9, 1, 'saving', 'x')")
    raw(path, "DROP INDEX ix_checkpoints_run")
    drop_trigger(path, "runs_finished_stay", "stored_runs")
    problems = "\n".join(ledger.check())
    assert "attempt 1 is open" in problems
    assert ("checkpoints (1) refers" in problems) == isinstance(path, Path)
    assert "ix_checkpoints_run is missing" in problems
    assert "runs_finished_stay is missing" in problems


def test_state_summaries_are_the_runs_taken_together(ledger: Ledger, key: str) -> None:
    other = ledger.add_ladder("other", "sDigits", None, InstanceSpec()).key
    places = [(rung, seed) for rung in ("dense", "ring") for seed in range(6)]
    ledger.enqueue(key, [want(rung, seed, position=10 * k) for k, (rung, seed) in enumerate(places)])
    ledger.enqueue(key, [want("shared", position=999, fingerprint=want("dense").fingerprint)])  # a run in two rungs
    ledger.enqueue(other, [want("elsewhere", 0)])
    ends = ["done", "done", "done", "diverged", "failed", None]
    for number, (_, seed) in enumerate(places):
        held = take(ledger, key)
        step = 40 + number
        rows = [(20, "train/loss", 9.0), (step, "train/loss", 1.0 + number), (step, "val/accuracy", 0.125)]
        ledger.record(held, rows if seed != 1 else rows[2:], step)
        if ends[seed] is None:
            continue
        result = {"val/accuracy": number / 16, "machine/steps_per_second": 8.0 + number}
        if seed == 2:
            result = {"val/accuracy": math.nan, "machine/steps_per_second": math.inf}
        ledger.finish(held, ends[seed], result=None if ends[seed] == "failed" else result, step=step)
    ledger.finish(take(ledger, other), "done", result={"val/accuracy": 1.0}, step=100)

    found = {(s.rung, s.state): s for s in ledger.state_summaries(key)}
    assert [(rung, state, s.count) for (rung, state), s in found.items()] == [
        ("dense", "done", 3),
        ("dense", "diverged", 1),
        ("dense", "failed", 1),
        ("dense", "running", 1),
        ("ring", "done", 3),
        ("ring", "diverged", 1),
        ("ring", "failed", 1),
        ("ring", "running", 1),
        ("shared", "done", 1),
    ]
    dense = found["dense", "done"]
    assert (dense.count, dense.step, dense.steps, dense.position) == (3, 40 + 41 + 42, 300, 0)
    assert dense.loss == (1.0 + 3.0) / 2  # the second has no training loss
    assert dense.score == (0 / 16 + 1 / 16) / 2  # the third has no finite one
    assert sorted(dense.speeds) == [8.0, 9.0]
    assert found["shared", "done"].speeds == [8.0]
    assert found["ring", "diverged"].loss == 10.0

    assert ledger.state_counts(key) == {"done": 6, "diverged": 2, "failed": 2, "running": 2}, "each run once"
    assert progress.collect(ledger, ledger.ladder(key)).counts["done"] == 6
    unfinished = ledger.runs(key, states=("queued", "running", "failed"), brief=True)
    assert sorted(run.state for run in unfinished) == ["failed", "failed", "running", "running"]
    ledger.enqueue(key, [want("dense", seed) for seed in range(3)], fresh=True)
    assert ("dense", "done") not in {(s.rung, s.state) for s in ledger.state_summaries(key)}


def test_state_summaries_have_the_scores_of_a_metric(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want(seed=seed, position=seed) for seed in range(5)])
    for result in ({"val/r2": -3.0, "val/accuracy": 0.5}, {"val/r2": 1.0}, {"val/r2": math.nan}, {"val/accuracy": 0.5}):
        ledger.finish(take(ledger, key), "done", result=result, step=100)
    ledger.record(take(ledger, key), [(10, "val/r2", -0.25), (10, "val/accuracy", 0.5)], 10, score="val/r2")
    found = {one.state: one.score for one in ledger.state_summaries(key, "val/r2")}
    assert found == {"done": -1.0, "running": -0.25}
    assert {one.state: one.score for one in ledger.state_summaries(key)}["done"] == 0.5
    assert {one.state: one.scored for one in ledger.state_summaries(key, "val/r2")} == {"done": 2, "running": 1}


def test_progress_adds_up(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want(rung, seed, position=seed) for rung in ("dense", "ring") for seed in range(3)])
    for _ in range(3):
        held = take(ledger, key, rungs=["dense"])
        ledger.record(held, [(50, "train/loss", 0.5), (50, "machine/steps_per_second", 5.0)], 50)
        ledger.finish(held, "done", result={"val/accuracy": 0.75, "machine/steps_per_second": 20.0}, step=100)
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
    assert [run.id for run in now.running] == [running.run.id] == list(now.running_on)

"""The queue of the ledger as a state machine, against a model of lists and dictionaries; and its order, and races."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as play
from msgspec import structs

from lrurun.config.runs import InstanceSpec, PlannedRun
from lrurun.errors import LrurunError, NotFoundError
from lrurun.ledger.attempt import Fenced
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import HeldRun
from tests.harness.forks import at_once
from tests.harness.stores import ME, counts, dump, key, ledger, path, raw, take, want

__all__ = ["key", "ledger", "path"]  # fixtures

OWNERS = [structs.replace(ME, pid=pid) for pid in (101, 102)]
RUNGS = ("a", "b", "c")  # a and b share their runs
ENDS = ("done", "diverged", "failed", "interrupted")
NUMBERS = itertools.count()
FILTERS: list[dict[str, Any]] = [
    *({}, {}, {}),
    *({"rungs": ["b", "c"]}, {"seeds": [1]}, {"threads": 2}, {"devices": 1}, {"rungs": [], "devices": 2}),
    {"rungs": ["a"], "seeds": [0], "threads": 1, "devices": 1},
]


@dataclass
class Known:
    """A run as the model knows it."""

    id: str
    fingerprint: str
    generation: int
    planned: PlannedRun
    threads: int
    state: str = "queued"
    attempt: int = 0
    superseded: bool = False
    step: int = 0
    error: str | None = None
    owner: int = 0
    tags: set[str] = field(default_factory=set)
    excluded: str | None = None
    events: list[tuple[str, int | None, str]] = field(default_factory=list)
    """Of each: kind, attempt, and what its text begins with."""
    ends: list[str] = field(default_factory=list)
    """How its attempts ended."""


@dataclass
class Membership:
    ladder: str
    run: Known
    rung: str
    stage: str
    position: int


class Queue(RuleBasedStateMachine):
    """Runs of two ladder instances; each example has its own in one ledger."""

    ledger: Ledger
    held_runs: list[HeldRun]

    @initialize()
    def begin(self) -> None:
        self.number = next(NUMBERS)
        specs = [InstanceSpec(set={"a": self.number, "b": at}) for at in range(2)]
        self.keys = [self.ledger.add_ladder("lru", "sDigits", None, spec).key for spec in specs]
        self.runs: list[Known] = []
        self.memberships: list[Membership] = []
        self.held_runs = []
        for at in range(2):
            both = [("a", 0, "train", 3, 1), ("b", 1, "train", 1, 2), ("c", at, "train", 1, 1), ("a", 0, "tune", 5, 1)]
            self.enqueue(at, [*both, ("b", 0, "train", 4, 1)], fresh=False)

    def newest(self, fingerprint: str) -> Known | None:
        return next((run for run in reversed(self.runs) if run.fingerprint == fingerprint), None)

    def put(self, ladder: str, run: Known, rung: str, stage: str, position: int) -> None:
        for membership in self.memberships:
            if (membership.ladder, membership.run, membership.rung, membership.stage) == (ladder, run, rung, stage):
                membership.position = position
                return
        self.memberships.append(Membership(ladder, run, rung, stage, position))

    def want(self, rung: str, seed: int, stage: str, position: int, threads: int) -> PlannedRun:
        name = f"{self.number} {'a' if rung in 'ab' else rung} {seed} {stage}"
        fingerprint = f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
        execution = {"threads": threads, "devices": 1 + seed}
        return want(rung, seed, position, stage, fingerprint=fingerprint, execution=execution)

    @rule(
        at=st.integers(0, 1),
        wanted=st.lists(
            st.tuples(
                st.sampled_from(RUNGS),
                st.integers(0, 1),
                st.sampled_from(["train", "train", "tune"]),
                st.integers(0, 5),
                st.integers(1, 2),
            ),
            min_size=1,
            max_size=4,
        ),
        fresh=st.booleans(),
    )
    def enqueue(self, at: int, wanted: list[Any], fresh: bool) -> None:
        planned = [self.want(*one) for one in wanted]
        first = {run.fingerprint: run for run in reversed(planned)}
        first = {run.fingerprint: first[run.fingerprint] for run in planned}
        known = {name: self.newest(name) for name in first}
        old = {name: run for name, run in known.items() if run is not None and fresh and run.state != "queued"}
        if any(run.state == "running" for run in old.values()):
            with pytest.raises(LrurunError, match="cannot be started over while running"):
                self.ledger.enqueue(self.keys[at], planned, fresh=fresh)
            return
        found = self.ledger.enqueue(self.keys[at], planned, fresh=fresh)
        for name, run in first.items():
            before = known[name]
            if before is not None and name not in old:
                if before.state in ("queued", "interrupted", "failed") and not before.attempt:
                    before.threads = run.execution.threads
                continue
            generation = 1 if before is None else before.generation + 1
            short = name.removeprefix("sha256:")[:12] + (f"-{generation}" if generation > 1 else "")
            self.runs.append(Known(short, name, generation, run, run.execution.threads))
        for name, run in old.items():
            run.superseded = True
            new = self.newest(name)
            assert new is not None
            for membership in [membership for membership in self.memberships if membership.run is run]:
                self.put(membership.ladder, new, membership.rung, membership.stage, membership.position)
        for one in planned:
            run = self.newest(one.fingerprint)
            assert run is not None
            self.put(self.keys[at], run, one.rung, one.stage, one.position)
        assert [run.id for run in found] == [getattr(self.newest(name), "id", None) for name in first]

    @rule(
        at=st.sampled_from([[0], [1], [0, 1], [1, 0]]),
        owner=st.integers(0, 1),
        filters=st.sampled_from(FILTERS),
        compiled=st.lists(st.sampled_from(RUNGS), max_size=2),
        programs=st.lists(st.sampled_from([None, *RUNGS]), min_size=6, max_size=6),
        end=st.sampled_from([None, None, *ENDS]),
    )
    def train(
        self,
        at: list[int],
        owner: int,
        filters: dict[str, Any],
        compiled: list[str],
        programs: list[str | None],
        end: str | None,
    ) -> None:
        """`programs` are those of the rungs of both ladders, where they are not the rung's own."""
        before = len(self.held_runs)
        self.hold(at, owner, filters, compiled, programs)
        if end is not None and len(self.held_runs) > before:
            self.end(0, end, 7)

    def hold(
        self, at: list[int], owner: int, filters: dict[str, Any], compiled: list[str], programs: list[str | None]
    ) -> None:
        keys = [self.keys[number] for number in at]
        table: dict[str, dict[str, str]] = {}
        for (name, rung), program in zip(itertools.product(self.keys, RUNGS), programs, strict=True):
            if program is not None:
                table.setdefault(name, {})[rung] = program

        def program_of(membership: Membership) -> str:
            return table.get(membership.ladder, {}).get(membership.rung, membership.rung)

        mine = [membership for membership in self.memberships if membership.ladder in keys]
        running = {program_of(membership) for membership in mine if membership.run.state == "running"}

        def wanted(membership: Membership) -> bool:
            run, rungs, seeds = membership.run, filters.get("rungs"), filters.get("seeds")
            return (
                run.state == "queued"
                and not run.superseded
                and (rungs is None or membership.rung in rungs)
                and (seeds is None or membership.stage != "train" or run.planned.seed in seeds)
                and filters.get("threads") in (None, run.threads)
                and filters.get("devices") in (None, 1 + run.planned.seed)
            )

        def turn(membership: Membership) -> tuple[int, int]:
            program = program_of(membership)
            return 0 if program in compiled else 1 if program not in running else 2, membership.position

        expected = min(filter(wanted, mine), key=turn, default=None)  # of equal ones the first
        held_from = keys[0] if len(keys) == 1 else keys
        found = self.ledger.hold(held_from, OWNERS[owner], compiled=compiled, programs=table, **filters)
        if expected is None:
            assert found is None
            return
        run = expected.run
        run.state, run.attempt, run.error, run.owner = "running", run.attempt + 1, None, owner
        run.events.append(("running", run.attempt, f"attempt {run.attempt} on {ME.host}, process {OWNERS[owner].pid}"))
        assert found is not None
        assert (found.run.id, found.attempt, found.run.state) == (run.id, run.attempt, "running")
        self.held_runs.append(found)

    def held(self, at: int) -> tuple[HeldRun, Known, Any]:
        """A held run, what is known of it, and what its writes raise, if the run was taken from the worker."""
        held = self.held_runs[-1 - at % len(self.held_runs)]
        [run] = [run for run in self.runs if run.id == held.run.id]
        holds = run.state == "running" and run.attempt == held.attempt
        return held, run, contextlib.nullcontext() if holds else pytest.raises(Fenced)

    @precondition(lambda self: self.held_runs)
    @rule(
        at=st.integers(0, 5),
        state=st.sampled_from(["done", "diverged", "failed", "interrupted"]),
        step=st.integers(0, 9),
    )
    def finish(self, at: int, state: str, step: int) -> None:
        self.end(at, state, step)

    def end(self, at: int, state: str, step: int) -> None:
        held, run, outcome = self.held(at)
        error = "boom" if state == "failed" else None
        if self.ledger.database.may_be_away and run.attempt == held.attempt and run.ends[-1:] == [state] == [run.state]:
            return  # the same end again is no error, as the answer to the first may have been lost
        with outcome as refused:
            self.ledger.finish(held, state, error=error, step=step or None)
        if refused is None:
            run.state, run.error, run.step = state, error, step or run.step
            run.events.append((state, run.attempt, error or state))
            run.ends.append(state)

    @precondition(lambda self: self.held_runs)
    @rule(at=st.integers(0, 5), step=st.integers(0, 9), how=st.sampled_from(["record", "rewind"]))
    def write(self, at: int, step: int, how: str) -> None:
        held, run, outcome = self.held(at)
        with outcome as refused:
            if how == "record":
                self.ledger.record(held, [(step, "train/loss", 1.0)], step)
            else:
                self.ledger.rewind(held, step)
        if refused is None:
            run.step = step
        lost = [] if refused is None else [(run.id, held.attempt)]
        assert self.ledger.record_heartbeats([(run.id, held.attempt)]) == lost
        with self.held(at)[2]:
            self.ledger.check_held(held)

    @rule(
        what=st.sampled_from(["requeue", "requeue", "reap", "unlink"]),
        at=st.integers(0, 1),
        rung=st.sampled_from(RUNGS),
    )
    def tidy(self, what: str, at: int, rung: str) -> None:
        ids = [run.id for run in self.runs]
        if what == "requeue":
            changed = [run for run in self.runs if run.state in ("interrupted", "failed") and not run.superseded]
            assert self.ledger.requeue(ids) == len(changed)
            for run in changed:
                run.state, run.error = "queued", None
        elif what == "unlink":
            gone = [
                one for one in self.memberships if (one.ladder, one.rung, one.stage) == (self.keys[at], "b", "train")
            ]
            assert self.ledger.unlink(self.keys[at], ids, "b", "train") == len(gone)
            self.memberships = [membership for membership in self.memberships if membership not in gone]
        else:
            lost = [run for run in self.runs if run.state == "running" and run.owner == at]
            found = self.ledger.reap(ME, lambda owner: owner.pid != OWNERS[at].pid)
            assert {run.id for run in found} & set(ids) == {run.id for run in lost}
            for run in lost:
                run.state = "interrupted"
                run.events.append(("interrupted", run.attempt, f"owner exited: process {OWNERS[at].pid}"))
                run.ends.append("exited")

    @rule(
        at=st.integers(0, 5),
        tag=st.lists(st.sampled_from("xy"), max_size=2),
        untag=st.lists(st.sampled_from("xy"), max_size=1),
        exclude=st.sampled_from([None, "hot", "loud"]),
        include=st.booleans(),
    )
    def mark(self, at: int, tag: list[str], untag: list[str], exclude: str | None, include: bool) -> None:
        run = self.runs[at % len(self.runs)]
        include = include and exclude is None
        tags, excluded = (run.tags | set(tag)) - set(untag), None if include else exclude or run.excluded
        if tags != run.tags:
            run.events.append(("tags", None, ", ".join(sorted(tags)) or "none"))
        if excluded != run.excluded:
            run.events.append(("included" if include else "excluded", None, excluded or ""))
        run.tags, run.excluded = tags, excluded
        [found] = self.ledger.mark([run.id], tag=tag, untag=untag, exclude=exclude, include=include)
        assert (set(found.tags), found.excluded) == (run.tags, run.excluded)

    @invariant()
    def the_ledger_is_as_the_model(self) -> None:
        found = self.ledger.runs(ids=[run.id for run in self.runs], superseded=True)
        assert [
            (one.id, one.state, one.superseded, one.step, one.error, one.execution.threads, set(one.tags), one.excluded)
            for one in reversed(found)
        ] == [
            (run.id, run.state, run.superseded, run.step, run.error, run.threads, run.tags, run.excluded)
            for run in self.runs
        ]
        for one, run in zip(reversed(found), self.runs, strict=True):
            memberships = [(p.ladder_key, p.rung, p.stage, p.position) for p in one.memberships]
            assert memberships == [(p.ladder, p.rung, p.stage, p.position) for p in self.memberships if p.run is run]

    def teardown(self) -> None:
        """What changes with the rest is compared once, at the end."""
        for ladder in getattr(self, "keys", ()):
            mine = [
                run for run in reversed(self.runs) if any(p.run is run for p in self.memberships if p.ladder == ladder)
            ]
            found = self.ledger.runs(ladder, superseded=True, brief=True)
            assert [run.id for run in found] == [run.id for run in mine]
            found = self.ledger.runs(ladder, brief=True)
            assert [run.id for run in found] == [run.id for run in mine if not run.superseded]
            states = [run.state for run in mine if not run.superseded]
            assert self.ledger.state_counts(ladder) == {state: states.count(state) for state in states}
        for run in getattr(self, "runs", ()):
            events = self.ledger.events(run=run.id)
            assert [(event.kind, event.attempt) for event in events] == [event[:2] for event in run.events]
            assert all(event.text.startswith(known[2]) for event, known in zip(events, run.events, strict=True))
            attempts = self.ledger.attempts(run.id)
            assert [one.n for one in attempts] == list(range(1, run.attempt + 1))
            ends = [one.outcome for one in attempts if one.ended_at is not None]
            assert ends == run.ends
            assert len(ends) == run.attempt - (run.state == "running")


def test_the_queue_is_as_its_model(ledger: Ledger) -> None:
    queue = type("OfLedger", (Queue,), {"ledger": ledger})
    play(
        queue,
        settings=settings(
            max_examples=3 if ledger.database.may_be_away else 5,  # a server takes ten times as long
            stateful_step_count=40,
            derandomize=True,
            deadline=None,
            phases=[Phase.generate],  # a ledger is too slow for shrinking
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert ledger.check() == []


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


def test_a_changed_execution_has_the_sources_of_its_values(ledger: Ledger, key: str) -> None:
    """Those of values that stay, or that the first attempt has fixed, stay too."""
    names = "execution.threads", "execution.devices", "execution.feed"
    first = {"data.rung": "recipe", **dict.fromkeys(names, "default")}
    ledger.enqueue(key, [want(sources=first)])
    ledger.finish(take(ledger, key), "interrupted", reason="interrupted: SIGTERM", step=0)
    changed = want(execution={"threads": 3, "devices": 2}, sources=dict.fromkeys(["data.rung", *names], "--set"))
    [run] = ledger.enqueue(key, [changed])
    assert (run.execution.threads, run.execution.devices) == (1, 2)
    assert run.sources == first | {"execution.devices": "--set"}
    [run] = ledger.enqueue(key, [want(sources=first)])
    assert run.sources == first


def test_a_place_can_change_and_be_removed(ledger: Ledger, key: str) -> None:
    run = ledger.enqueue(key, [want(position=3)])[0]
    assert ledger.enqueue(key, [want(position=7)])[0].memberships[0].position == 7
    assert ledger.unlink(key, [run.id], "ring", "tune") == 0
    assert ledger.unlink(key, [run.id], "ring", "train") == 1
    assert ledger.runs(key) == []
    assert ledger.run(run.id).memberships == ()
    for ask in (ledger.hold, lambda key, _: ledger.enqueue(key, [want()])):
        with pytest.raises(NotFoundError):
            ask("zz", ME)


def test_fresh_refuses_a_running_run_and_changes_nothing(ledger: Ledger, key: str, path: Path) -> None:
    ledger.enqueue(key, [want(seed=0), want(seed=1, position=1)])
    ledger.finish(take(ledger, key), "done", result={})
    held = take(ledger, key)
    before = dump(path)
    with pytest.raises(LrurunError, match=held.run.id):
        ledger.enqueue(key, [want(seed=0), want(seed=1), want(seed=2)], fresh=True)
    assert dump(path) == before


def test_a_claim_opens_an_attempt(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want()])
    code = {"lrurun": "0.1.0", "commit": "0123456789abcdef", "dirty": "sha256:fedcba9876543210"}
    held = take(ledger, key, environment={"code": code, "threads": 1})
    assert (held.attempt, held.run.state) == (1, "running")
    ledger.describe(held, parameters=321, data_sha256="d" * 64, environment={"device": "cpu", "threads": 2})
    ledger.finish(held, "interrupted", reason="interrupted: SIGTERM", step=40)
    ledger.requeue([held.run.id])
    again = take(ledger, key, environment={"code": "0.2.0"})
    assert again.attempt == 2
    assert (again.run.step, again.run.parameters, again.run.data_sha256) == (40, 321, "d" * 64)
    assert again.run.code == ("lrurun 0.1.0, commit 0123456789ab, changes fedcba987654", "0.2.0")
    first, second = ledger.attempts(held.run.id)
    assert (first.n, first.pid, first.pid_started, first.boot) == (1, ME.pid, ME.pid_started, ME.boot)
    assert first.environment == {"code": code, "threads": 2, "device": "cpu"}
    assert first.reason == "interrupted: SIGTERM"
    assert first.ended_at is not None
    assert (second.n, second.ended_at, second.reason) == (2, None, None)


CLAIMER = """
import time
from lrurun.ledger import owner
from lrurun.ledger.ledger import Ledger

def work(number):
    with Ledger.open(sys.argv[1]) as ledger:
        while held := ledger.hold(sys.argv[2], owner.this_process()):
            ledger.record(held, [(1, "loss", 1.0)], 1)
            ledger.finish(held, "done", result={})
            print(number, held.run.id)
            time.sleep(0.002)  # on a busy machine the first process could finish before another starts
"""


@pytest.mark.slow
def test_claimers_never_share_a_run(ledger: Ledger, key: str, path: Path) -> None:
    jobs = 30
    ids = [run.id for run in ledger.enqueue(key, [want(seed=seed, position=seed) for seed in range(jobs)])]
    done = [line.split() for line in at_once(3, CLAIMER, path, key)]
    assert sorted(name for _, name in done) == sorted(ids)
    assert len({number for number, _ in done}) > 1, "one process did it all: there was no contention"
    assert counts(ledger, key)["done"] == jobs
    assert raw(path, "SELECT max(n), count(*) FROM attempts") == [(1, jobs)]
    assert ledger.check() == []


def test_threads_may_share_a_ledger(ledger: Ledger) -> None:
    threads = [threading.Thread(target=lambda: [ledger.event("k", "t") for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.events()) == 40

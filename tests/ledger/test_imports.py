"""Imported runs in a ledger: whole or not at all, once, and in generations."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from lrurun.config.fingerprint import fingerprint
from lrurun.config.runs import InstanceSpec
from lrurun.config.schema import Reading
from lrurun.errors import LrurunError, NotFoundError, UsageError
from lrurun.ledger import backups, exporting, imports, merging, query
from lrurun.ledger.database import files
from lrurun.ledger.imports import ImportedRun
from lrurun.ledger.ledger import Ledger
from lrurun.report.listing import Choice
from tests.harness.forks import at_once
from tests.harness.imported_runs import imported, instance, member
from tests.harness.machine import Machine
from tests.harness.old_ledgers import items_of
from tests.harness.stores import (
    ME,
    SERVER,
    dump,
    keep_all,
    key,
    ledger,
    machine_with,
    on_file,
    path,
    python,
    raw,
    refused_by_database,
    want,
)
from tests.ledger.test_postgres import answers_lost

__all__ = ["key", "ledger", "path"]  # fixtures


def ids(ledger: Ledger, runs: list[ImportedRun]) -> list[str]:
    """Adds runs; their ids."""
    return [run_id for run_id, _ in ledger.add_imported(runs).values()]


def outcomes(ledger: Ledger, *runs: ImportedRun) -> list[str]:
    added = ledger.add_imported(runs)
    return [added[fingerprint(run.config)][1] for run in runs]


def places(ledger: Ledger, key: str) -> dict[str, list[tuple[str, str]]]:
    """Run -> its rungs and stages in an instance, of newest generations."""
    return {
        run.id: sorted((m.rung, m.stage) for m in run.memberships if m.ladder_key == key)
        for run in ledger.runs()
        if any(m.ladder_key == key for m in run.memberships)
    }


def digest(ledger: Ledger, run_id: str) -> str:
    """The digest of what was read of a run."""
    return str(ledger.newest_attempts([run_id])[run_id].environment["digest"])


# One run


def test_a_run_is_read_as_it_ended(ledger: Ledger) -> None:
    steps = np.array([0, 5, 2**40])
    values = [math.nan, -math.inf, 5e-324]
    curves = {"val/acc": (steps, np.array(values)), "ü x": (steps[:1], np.array([1e308]))}
    result = {"test/acc": 0.1 + 0.2, "val/acc": math.inf, "best_step": 5}
    run = imported(
        7,
        settings={"lr": 0.1, "block.norm": "layer", "sizes": [1, 2], "odd": math.nan, "seed": 7},
        result=result,
        step=2**40,
        curves=curves,
        origin={"title": "MLflow", "state": "FINISHED", "code": "0123abcd", "loss": -math.inf},
        started_at=100.5,
        ended_at=160.5,
        state="diverged",
        error="stopped",
    )
    ((added_as, (run_id, outcome)),) = ledger.add_imported([run]).items()
    assert (added_as, run_id, outcome) == (fingerprint(run.config), added_as[7:19], "new")
    found = ledger.run(run_id)
    assert found.config == structs.replace(run.config, settings={**run.config.settings, "odd": "nan"})
    assert (found.kind, found.task, found.seed, found.state) == ("imported", "digits", 7, "diverged")
    assert (found.step, found.steps, found.error, found.generation) == (2**40, 2**40, "stopped", 1)
    assert (found.created_at, found.finished_at, found.code) == (100.5, 160.5, ("0123abcd",))
    assert repr(found.result) == repr(result)
    assert (found.last_score, found.last_loss) == (5e-324, None)
    recorded = {name: [(s, repr(v)) for s, v in points] for name, points in ledger.metrics(run_id).items()}
    assert recorded == {
        "val/acc": [(s, repr(v)) for s, v in zip(steps.tolist(), values, strict=True)],
        "ü x": [(0, "1e+308")],
    }
    (attempt,) = ledger.attempts(run_id)
    assert (attempt.started_at, attempt.ended_at, attempt.outcome, attempt.reason) == (
        100.5,
        160.5,
        "diverged",
        "stopped",
    )
    assert attempt.environment == {
        "digest": "a",
        "times": [100.5, 160.5],
        "origin": {"title": "MLflow", "state": "FINISHED", "code": "0123abcd", "loss": "-inf"},
        "code": "0123abcd",
    }
    assert [(event.kind, event.text) for event in ledger.events(run=run_id)] == [
        ("imported", "imported from mlflow mine/r7")
    ]
    assert ledger.check() == []


def test_a_run_without_result_is_missing(ledger: Ledger) -> None:
    running = imported(0, state="interrupted", result=None, error="RUNNING", curves={}, ended_at=20.0)
    crashed = imported(1, state="failed", result=None, error="FAILED", origin={"code": ""})
    first, second = (ledger.run(run_id) for run_id in ids(ledger, [running, crashed]))
    assert (first.state, first.result, first.error, first.finished_at) == ("interrupted", None, "RUNNING", None)
    assert (first.step, first.steps) == (50, 0)
    assert (second.state, second.code, second.last_loss) == ("failed", (), 1 / 50)
    attempts = ledger.newest_attempts([first.id, second.id])
    assert (attempts[first.id].started_at, attempts[first.id].ended_at) == (20.0, 20.0)
    assert attempts[second.id].ended_at == attempts[second.id].started_at, "unknown times are no duration"
    assert ledger.check() == []


def test_items_come_with_the_run(ledger: Ledger) -> None:
    scores = (0.25, 0.5, 1.0)
    added = ids(ledger, [imported(k, items={"test/acc": items_of(score)}) for k, score in enumerate(scores)])
    found = ledger.items(added, "test/acc")
    assert [found[run_id].mean for run_id in added] == list(scores)
    assert raw(ledger.path, "SELECT count(*) FROM test_sets") == [(1,)]
    assert ledger.check() == []


def test_texts_that_no_database_stores(ledger: Ledger) -> None:
    odd, other = "a\udc80", "a\udc81"
    curve = np.array([1]), np.array([0.5])
    run = imported(settings={odd: [odd], "\0": "\0"}, result={odd: 1.0}, curves={odd: curve, other: curve, "\0": curve})
    (run_id,) = ids(ledger, [structs.replace(run, error=odd, origin={odd: odd, "place": "b\0"})])
    found = ledger.run(run_id)
    assert (found.error, found.result, found.config.settings) == (  # type: ignore[union-attr]
        *("a?", {"a?": 1.0}), {"a?": ["a?"], "\ufffd": "\ufffd"},
    )  # fmt: skip
    assert sorted(ledger.metrics(run_id)) == ["a?", "a?-2", "\ufffd"]
    assert ledger.attempts(run_id)[0].environment["origin"] == {"a?": "a?", "place": "b\ufffd"}
    assert ledger.check() == []


# Importing again


def test_an_equal_run_stays_as_it_is(ledger: Ledger) -> None:
    runs = [imported(seed) for seed in range(3)]
    assert outcomes(ledger, *runs) == ["new"] * 3
    before = dump(ledger.path)
    assert outcomes(ledger, *runs) == ["equal"] * 3
    assert outcomes(ledger, structs.replace(runs[0], result={"test/acc": 0.9}), *runs[1:]) == ["equal"] * 3
    assert dump(ledger.path) == before
    assert outcomes(ledger, *runs, imported(3)) == ["equal"] * 3 + ["new"]
    assert ledger.count_runs() == 4


def test_another_reading_or_task_is_another_run(ledger: Ledger) -> None:
    last, best = imported(), imported(reading=Reading(metric="test_acc", protocol="best-of-test"))
    assert outcomes(ledger, last, best, imported(task="other")) == ["new"] * 3


def test_a_changed_run_is_a_new_generation_in_its_place(ledger: Ledger, key: str) -> None:
    mine, other = instance(ledger), instance(ledger, "other")
    first, second = ids(ledger, [imported(0), imported(1)])
    ledger.set_members(mine, [member(first), member(second, position=1)])
    ledger.set_members(other, [member(first, "a"), member(first, "b", stage="tune")])
    ledger.mark([first], tag=["odd"], note="look here")
    ledger.mark([first], exclude="wrong data")
    steps = np.array([1, 2])
    changed = imported(0, "b", curves={"test/acc": (steps, steps / 4)}, step=2)
    assert outcomes(ledger, changed, imported(1)) == ["changed", "equal"]
    old, new = ledger.run(first), ledger.run(f"{first}-2")
    assert (old.superseded, new.superseded, new.generation) == (True, False, 2)
    assert (new.seed, new.config.settings, new.step) == (0, old.config.settings, 2)  # type: ignore[union-attr]
    assert (new.tags, new.excluded) == (("odd",), "wrong data")
    assert ledger.metrics(new.id) == {"test/acc": [(1, 0.25), (2, 0.5)]}
    assert len(ledger.metrics(old.id)["train/loss"]) == 5, "nothing is deleted"
    assert old.excluded == "wrong data"
    assert places(ledger, mine) == {new.id: [("layer", "train")], second: [("layer", "train")]}
    assert places(ledger, other) == {new.id: [("a", "train"), ("b", "tune")]}
    assert [(event.kind, event.text) for event in ledger.events(run=new.id)] == [
        ("note", "look here"),
        ("excluded", "wrong data"),
        ("imported", f"imported from mlflow mine/r0, changed since {first}, whose tags and exclusion it has"),
    ]
    assert [digest(ledger, run.id) for run in (old, new)] == ["a", "b"]
    assert outcomes(ledger, imported(0, "a")) == ["changed"], "back to what it was before"
    assert [run.id for run in ledger.runs(mine)] == [f"{first}-3", second]
    assert ledger.check() == []


@pytest.mark.parametrize(
    ("fields", "is_same"),
    [
        ({"settings": {"lr": 0.1, "depth": 4.0}}, True),
        ({"settings": {"lr": 0.1, "depth": "4"}}, False),
        ({"settings": {"lr": 0.1}}, False),
        ({"settings": {"lr": 0.1, "depth": 4}, "seed": 5}, False),
    ],
)
def test_a_changed_run_takes_places_where_settings_and_seed_are_the_same(
    ledger: Ledger, fields: dict[str, Any], is_same: bool
) -> None:
    mine, other = instance(ledger), instance(ledger, "other")
    (first,) = ids(ledger, [imported(0, settings={"lr": 0.1, "depth": 4})])
    for instance_key in (mine, other):
        ledger.set_members(instance_key, [member(first)])
    ledger.mark([first], tag=["odd"], note="look here")
    ledger.mark([first], exclude="wrong data")
    (second,) = ids(ledger, [imported(0, "b", **fields)])
    ledger.set_members(mine, [member(second, "of its condition")])
    assert places(ledger, mine) == {second: [("of its condition", "train")]}
    assert places(ledger, other) == ({second: [("layer", "train")]} if is_same else {})
    new = ledger.run(second)
    assert (new.tags, new.excluded) == (("odd",), "wrong data"), "marks are about the run, whatever its settings"
    *said, event = ledger.events(run=second)
    assert [each.text for each in said] == ["look here", "wrong data"]
    assert event.text.endswith("has" if is_same else "other settings or another seed, so that it takes no place of it")
    assert ledger.check() == []


def test_an_equal_run_gets_the_source_of_the_last_import(ledger: Ledger) -> None:
    here = {"title": "CSV", "source": "a.csv"}
    first, second = (imported(number, origin=here) for number in range(2))
    of_first, of_second = ids(ledger, [first, second])
    moved = structs.replace(first, origin={**here, "source": "b.csv"})
    assert outcomes(ledger, moved, second) == ["equal", "equal"]
    environments = [ledger.attempts(run_id)[0].environment for run_id in (of_first, of_second)]
    assert [environment["origin"]["source"] for environment in environments] == ["b.csv", "a.csv"]
    assert environments[0] | {"origin": here} == environments[1]
    assert ledger.check() == []


def test_a_run_with_another_number_for_its_seed_has_changed(ledger: Ledger) -> None:
    numbered = imported(0, settings={"lr": 0.1})
    (first,) = ids(ledger, [numbered])
    again = structs.replace(numbered, config=structs.replace(numbered.config, seed=3))
    assert outcomes(ledger, again) == ["changed"]
    assert outcomes(ledger, again) == ["equal"]
    [newest] = ledger.runs()
    assert (newest.id, newest.seed, newest.config.seed) == (f"{first}-2", 3, 3)
    assert ledger.check() == []


def test_a_run_that_is_there_twice(ledger: Ledger) -> None:
    assert outcomes(ledger, imported(0), imported(1), imported(0)) == ["new", "new", "new"]
    assert ledger.count_runs() == 2
    with pytest.raises(UsageError, match="mlflow mine/r2 is there twice, with different contents"):
        ledger.add_imported([imported(2), imported(3), imported(2, "b"), imported(4)])
    assert [run.config.origin.run for run in ledger.runs()] == ["r3", "r2", "r1", "r0"]  # type: ignore[union-attr]
    assert {run.generation for run in ledger.runs(superseded=True)} == {1}


# Transactions


def test_runs_are_read_one_batch_at_a_time(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "_RUNS", 3)
    seen: list[int] = []

    def source() -> Iterator[ImportedRun]:
        for seed in range(8):
            with Ledger.read(ledger.path) as reader:
                seen.append(reader.count_runs())
            yield imported(seed)
        raise UsageError("the rest cannot be read")

    with pytest.raises(UsageError, match="the rest"):
        ledger.add_imported(source())
    assert seen == [0, 0, 0, 3, 3, 3, 6, 6]
    assert ledger.count_runs() == 6
    assert outcomes(ledger, *map(imported, range(8))) == ["equal"] * 6 + ["new"] * 2


def test_many_points_and_slow_sources_end_a_transaction(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "_ROWS", 15)  # each run has 10
    monkeypatch.setattr(imports, "_VALUES", 2)
    seen: list[int] = []

    def source() -> Iterator[ImportedRun]:
        for seed in range(5):
            seen.append(ledger.count_runs())
            yield imported(seed)

    ledger.add_imported(source())
    monkeypatch.setattr(imports, "_ROWS", 10**6)
    monkeypatch.setattr(imports, "_SECONDS", 0.0)
    ledger.add_imported(imported(seed + 5) for seed in range(2) if not seen.append(ledger.count_runs()))  # type: ignore[func-returns-value]
    assert seen == [0, 0, 2, 2, 4, 5, 6]
    for run in ledger.runs():
        assert ledger.metrics(run.id)["test/acc"] == [(step, step / 100) for step in range(10, 60, 10)]


_STOPPED = """
import sys
from lrurun.config.runs import InstanceSpec
from lrurun.ledger import backups, exporting, imports, merging, query
from lrurun.ledger.ledger import Ledger
from lrurun.server import Server
from tests.harness.imported_runs import imported
imports._RUNS = 3
written = []
def write_items(connection, number, items):
    written.append(number)
    if len(written) == 5:
        print("inside", flush=True)
        sys.stdin.read()
imports.write_items = write_items
place = Server(sys.argv[1]) if "://" in sys.argv[1] else sys.argv[1]
with Ledger.open(place) as ledger:
    ledger.add_imported(map(imported, range(9)))
"""


def test_a_kill_leaves_whole_runs_and_the_same_import_goes_on(ledger: Ledger) -> None:
    text = getattr(ledger.path, "text", str(ledger.path))
    process = python(_STOPPED, text)
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n", process.communicate()
    process.kill()
    process.communicate()
    assert ledger.count_runs() == 3, "the second transaction had written its rows"
    assert raw(ledger.path, "SELECT count(*), count(DISTINCT run) FROM metrics") == [(30, 3)]
    assert ledger.check() == []
    assert outcomes(ledger, *map(imported, range(9))) == ["equal"] * 3 + ["new"] * 6
    assert raw(ledger.path, "SELECT count(*), count(DISTINCT run) FROM metrics") == [(90, 9)]
    assert {run.generation for run in ledger.runs(superseded=True)} == {1}


_TOGETHER = """
import sys
from lrurun.config.runs import InstanceSpec
from lrurun.ledger import backups, exporting, imports, merging, query
from lrurun.ledger.ledger import Ledger
from lrurun.server import Server
from tests.harness.imported_runs import imported
imports._RUNS = 4
def work(number):
    place = Server(sys.argv[1]) if "://" in sys.argv[1] else sys.argv[1]
    with Ledger.open(place) as ledger:
        for digest in "ab":
            order = range(20) if number % 2 else reversed(range(20))
            for run, outcome in ledger.add_imported(imported(seed, digest) for seed in order).values():
                print(digest, outcome)
"""


def test_processes_that_import_the_same_runs_at_once(ledger: Ledger) -> None:
    lines = at_once(3, _TOGETHER, getattr(ledger.path, "text", ledger.path))
    assert lines.count("a new") == 20, "each run is new to one process"
    assert len(lines) == 120
    runs = ledger.runs(superseded=True)
    assert len({run.fingerprint for run in runs}) == 20
    newest = [run for run in runs if not run.superseded]
    assert len(newest) == 20
    of_runs = raw(ledger.path, "SELECT count(*) FROM metrics GROUP BY run")
    assert of_runs == [(10,)] * len(runs)
    assert ledger.check() == []


@on_file
def test_processes_that_import_a_changed_run_at_once(ledger: Ledger) -> None:
    ids(ledger, [imported(seed, "0") for seed in range(20)])
    code = _TOGETHER.replace('"ab"', '"b"')
    lines = at_once(3, code, ledger.path)
    assert sorted(lines) == ["b changed"] * 20 + ["b equal"] * 40
    assert {run.generation for run in ledger.runs()} == {2}


@on_file
def test_a_full_disk_leaves_whole_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger.open(path).close()
    connect = files.connect
    steps = np.arange(4000)
    runs = [imported(seed, curves={"x": (steps, steps / 7)}) for seed in range(12)]
    monkeypatch.setattr(imports, "_RUNS", 2)

    def small(*words: Any) -> sqlite3.Connection:
        connection = connect(*words)
        connection.execute("PRAGMA max_page_count=200")
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(files, "connect", small)
        with Ledger.open(path) as ledger, pytest.raises(LrurunError, match="no space") as full:
            ledger.add_imported(runs)
    assert full.value.hint
    with Ledger.open(path) as ledger:
        before = ledger.count_runs()
        assert 0 < before < 12
        assert raw(path, "SELECT count(*) FROM metrics") == [(4000 * before,)]
        assert outcomes(ledger, *runs) == ["equal"] * before + ["new"] * (12 - before)
        assert ledger.check() == []


@on_file
def test_a_ledger_that_is_only_read(path: Path) -> None:
    with Ledger.open(path) as ledger:
        key = instance(ledger)
        (run_id,) = ids(ledger, [imported()])
    with Ledger.read(path) as reader:
        assert digest(reader, run_id) == "a"
        with pytest.raises(LrurunError, match="opened for reading only"):
            reader.add_imported([imported(1)])
        with pytest.raises(LrurunError, match="opened for reading only"):
            reader.set_members(key, [member(run_id)])
        assert reader.count_runs() == 1


@on_file
def test_a_busy_ledger_gets_no_half_of_a_run(path: Path) -> None:
    with Ledger.open(path) as ledger:
        ids(ledger, [imported(0)])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Ledger.open(path, timeout=0.1) as ledger, pytest.raises(LrurunError, match="busy"):
        ledger.add_imported([imported(1)])
    other.close()
    with Ledger.open(path) as ledger:
        assert ledger.count_runs() == 1


# What happens to other runs never happens to these


def test_no_worker_gets_an_imported_run(ledger: Ledger) -> None:
    key = instance(ledger)
    states: list[Any] = ["done", "diverged", "failed", "interrupted"]
    runs = [
        imported(seed, state=state, result={"test/acc": 0.1} if seed < 2 else None) for seed, state in enumerate(states)
    ]
    added = ids(ledger, runs)
    ledger.set_members(key, [member(run_id, position=n) for n, run_id in enumerate(added)])
    before = dump(ledger.path)
    assert ledger.requeue(added) == 0
    assert ledger.reap(ME) == []
    assert ledger.hold(key, ME) is None
    with pytest.raises(ValueError, match="never queued"):
        ledger.enqueue(key, [want(kind="imported", fingerprint=fingerprint(runs[2].config))], fresh=True)
    assert dump(ledger.path) == before
    assert ledger.state_counts(key) == dict.fromkeys(states, 1)


def test_a_result_never_changes(ledger: Ledger) -> None:
    (run_id,) = ids(ledger, [imported()])
    with pytest.raises(refused_by_database(), match="a finished run never changes"):
        raw(ledger.path, "UPDATE stored_runs SET seed = 3 WHERE id = ?", run_id)


# The rungs of an instance


def test_members_are_replaced(ledger: Ledger) -> None:
    mine, other = instance(ledger), instance(ledger, "other")
    a, b, c = ids(ledger, [imported(seed) for seed in range(3)])
    ledger.set_members(mine, [member(a, "x"), member(b, "x", 1), member(a, "x", 2, "tune")])
    ledger.set_members(other, [member(a, "z")])
    ledger.set_members(mine, [member(b, "y", 1), member(c, "y", 2), member(a, "x", 7)])
    assert places(ledger, mine) == {a: [("x", "train")], b: [("y", "train")], c: [("y", "train")]}
    assert places(ledger, other) == {a: [("z", "train")]}
    assert [m.position for m in ledger.run(a).memberships] == [7, 0], "the first instance is still the first"
    ledger.set_members(mine, [])
    assert places(ledger, mine) == {}
    assert ledger.count_runs() == 3, "runs stay"
    with pytest.raises(NotFoundError, match="no run 'nothing'"):
        ledger.set_members(other, [member(b), member("nothing")])
    with pytest.raises(NotFoundError, match="no ladder instance"):
        ledger.set_members("nothing", [])
    assert places(ledger, other) == {a: [("z", "train")]}


def test_a_member_that_another_command_has_superseded(ledger: Ledger) -> None:
    mine = instance(ledger)
    a, b = ids(ledger, [imported(0), imported(1)])
    ledger.set_members(mine, [member(b, "x")])
    assert outcomes(ledger, imported(0, "b"), imported(1, "b")) == ["changed"] * 2
    ledger.set_members(mine, [member(a, "x"), member(f"{b}-2", "y")])
    assert places(ledger, mine) == {f"{a}-2": [("x", "train")], f"{b}-2": [("y", "train")]}
    old = {run.id: [m.rung for m in run.memberships] for run in ledger.runs(superseded=True) if run.superseded}
    assert old == {a: [], b: ["x"]}, "an earlier generation keeps its place"
    ledger.set_members(mine, [member(a, "x")])
    assert [m.rung for m in ledger.run(b).memberships] == [], "unless its run has left"


# Names in conditions, lists and queries


@pytest.fixture
def varied(ledger: Ledger) -> Ledger:
    key = instance(ledger)
    settings: list[dict[str, Any]] = [
        {"lr": 0.1, "model.norm": "layer", "model": "s4", "on": True},
        {"lr": 1, "model.norm": "batch", "model": "s4", "on": False, "a.b.c": 3},
        {"lr": "auto", "model.norm": None, "only": [1, 2]},
    ]
    runs = [imported(k, settings=table, result={"test/acc": k / 4}) for k, table in enumerate(settings)]
    added = ids(ledger, runs)
    ledger.set_members(key, [member(run_id, "ab"[k % 2], k) for k, run_id in enumerate(added)])
    return ledger


@pytest.mark.parametrize(
    ("condition", "seeds"),
    [
        ("kind = imported", [0, 1, 2]),
        ("kind = training", []),
        ("settings.lr = 0.1", [0]),
        ("settings.lr = auto", [2]),
        ("settings.model.norm = layer", [0]),
        ("settings.model.norm != layer", [1]),
        ("settings.model = s4", [0, 1]),
        ("settings.on = true", [0]),
        ("settings.a.b.c >= 3", [1]),
        ("settings.only = [1, 2]", [2]),
        ("origin.tracker = mlflow and origin.project = mine", [0, 1, 2]),
        ("origin.run = r1", [1]),
        ("reading.metric = test_acc and test/acc < 0.3", [0, 1]),
    ],
)
def test_conditions_name_settings_and_origins(varied: Ledger, condition: str, seeds: list[int]) -> None:
    found = Choice(condition, None, varied).ids(varied)
    assert sorted(varied.run(run_id).seed for run_id in found) == seeds


def test_lists_and_groups_by_settings(varied: Ledger) -> None:
    known = varied.program_settings()
    assert {"settings.model.norm", "settings.model", "settings.a.b.c", "settings.only", "origin.run"} <= known.keys()
    assert (known["settings.on"], known["settings.lr"], known["settings.a.b.c"]) == ("truth", "text", "number")
    by_norm = Choice(None, "settings.model.norm", varied).ids(varied)
    assert [varied.run(run_id).seed for run_id in by_norm] == [1, 0, 2]
    values = varied.columns_of(["settings.model.norm", "settings.a.b.c", "origin.run", "seed"])
    assert sorted(values.values(), key=lambda row: row[-1]) == [
        ("layer", None, "r0", 0), ("batch", 3, "r1", 1), (None, None, "r2", 2)
    ]  # fmt: skip
    groups = varied.groups_of(["settings.model"], {"digits": "test/acc"})
    assert {group.values: (group.n, group.mean) for group in groups} == {("s4",): (2, 0.125), (None,): (1, 0.5)}


def test_views_have_their_settings(varied: Ledger) -> None:
    _, rows, _ = query.select(
        varied.path,
        "SELECT seed, rung, test_acc, settings_model_norm, settings_on, settings_a_b_c, origin_run"
        " FROM results ORDER BY seed",
    )
    assert rows == [
        (0, "a", 0.0, "layer", 1, None, "r0"),
        (1, "b", 0.25, "batch", 0, 3, "r1"),
        (2, "a", 0.5, None, None, None, "r2"),
    ]
    sql = "SELECT seed, metric, step, value FROM curves WHERE step = 20 AND metric = 'test/acc'"
    assert sorted(query.select(varied.path, sql)[1]) == [(seed, "test/acc", 20, 0.2) for seed in range(3)]


# Several ledgers


@pytest.fixture(params=["file", SERVER])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    yield from machine_with(request.param, tmp_path / "here", request)


@pytest.fixture
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    yield from machine_with("file", tmp_path / "there", request)


def merge(here: Machine, there: Machine) -> merging.Merged:
    with Ledger.open(here.ledger) as ledger, Ledger.open(there.ledger) as other:
        merged, _ = merging.merge(ledger, other, here.runs, there.runs)
        assert ledger.check() == []
        return merged


def test_a_merge_brings_runs_and_later_generations(here: Machine, there: Machine) -> None:
    with Ledger.open(here.ledger) as ledger, Ledger.open(there.ledger) as other:
        mine = instance(ledger)
        first, second = ids(ledger, [imported(0), imported(1)])
        ledger.set_members(mine, [member(first), member(second, "batch", 1)])
        ledger.mark([first], exclude="wrong data", tag=["odd"], note="look")
        theirs = instance(other, "theirs")
        ids(other, [imported(0), imported(2)])
        newer, third = ids(other, [imported(0, "b"), imported(2)])
        other.set_members(theirs, [member(newer, "z"), member(third, "z", 1)])
    merged = merge(here, there)
    assert (merged.new, merged.known, merged.finished) == (2, 1, 0)
    with Ledger.open(here.ledger) as ledger:
        new = ledger.run(newer)
        assert ledger.run(first).superseded
        assert places(ledger, mine) == {newer: [("layer", "train")], second: [("batch", "train")]}
        assert places(ledger, theirs) == {newer: [("z", "train")], third: [("z", "train")]}
        assert (new.excluded, new.tags) == ("wrong data", ("odd",))
        assert [e.text for e in ledger.events(run=newer) if e.kind in ("note", "excluded")] == ["wrong data", "look"]
        assert digest(ledger, newer) == "b"
        assert outcomes(ledger, imported(0, "b"), imported(2)) == ["equal", "equal"]
    assert merge(here, there).new == 0


def test_a_merge_gives_no_place_to_a_run_of_other_settings(here: Machine, there: Machine) -> None:
    with Ledger.open(here.ledger) as ledger, Ledger.open(there.ledger) as other:
        mine = instance(ledger)
        ledger.set_members(mine, [member(run_id) for run_id in ids(ledger, [imported(0), imported(1)])])
        same, changed = ids(other, [imported(0), imported(1)])
        same, changed = ids(other, [imported(0, "b"), imported(1, "b", settings={"lr": 0.2, "seed": 1})])
    merge(here, there)
    with Ledger.open(here.ledger) as ledger:
        assert not ledger.run(changed).superseded
        assert places(ledger, mine) == {same: [("layer", "train")]}
        assert ledger.check() == []


def test_a_merge_of_an_earlier_generation(here: Machine, there: Machine) -> None:
    with Ledger.open(here.ledger) as ledger, Ledger.open(there.ledger) as other:
        (run_id,) = ids(other, [imported(0)])
        theirs = instance(other, "theirs")
        other.set_members(theirs, [member(run_id, "z")])
        ids(ledger, [imported(0)])
        (newer,) = ids(ledger, [imported(0, "b")])
    merge(here, there)
    with Ledger.open(here.ledger) as ledger:
        assert places(ledger, theirs) == {newer: [("z", "train")]}


def test_of_two_results_of_a_generation_this_ledger_keeps_its_own(here: Machine, there: Machine) -> None:
    with Ledger.open(here.ledger) as ledger, Ledger.open(there.ledger) as other:
        ids(ledger, [imported(0, "a", result={"test/acc": 0.25})])
        ids(other, [imported(0, "b", result={"test/acc": 0.75})])
    assert merge(here, there).known == 1
    with Ledger.open(here.ledger) as ledger:
        (run,) = ledger.runs()
        assert run.result == {"test/acc": 0.25}
        assert outcomes(ledger, imported(0, "b")) == ["changed"], "the next import finds what differs"


def test_a_run_that_had_not_ended_is_replaced_by_its_result(here: Machine, there: Machine) -> None:
    before = imported(0, state="interrupted", result=None, step=10, settings={"lr": 1}, seed=3)
    with Ledger.open(here.ledger) as ledger, Ledger.open(there.ledger) as other:
        ids(ledger, [before])
        ids(other, [imported(0, "b")])
    assert merge(here, there).finished == 1
    with Ledger.open(here.ledger) as ledger:
        (run,) = ledger.runs()
        assert (run.state, run.step, run.steps, run.seed) == ("done", 50, 50, 0)
        assert run.config == imported(0).config
        assert outcomes(ledger, imported(0, "b")) == ["equal"]


def test_copies_and_exports_have_imported_runs(here: Machine, tmp_path: Path) -> None:
    with Ledger.open(here.ledger) as ledger:
        key = instance(ledger)
        added = ids(ledger, [imported(0, items={"test/acc": items_of(0.5)}), imported(1)])
        ledger.set_members(key, [member(run_id) for run_id in added])
        backups.backup(ledger, tmp_path / "copy.db")
        exported = {name: [dict(zip(columns, row, strict=True)) for row in rows]
                    for name, columns, rows in exporting.export(ledger)}  # fmt: skip
        assert [row["id"] for row in exported["runs"]] == added
        assert json.loads(exported["runs"][1]["config"])["origin"]["run"] == "r1"
        assert len(exported["metrics"]) == 20
        assert {row["run"] for row in exported["ladder_runs"]} == set(added)
        with Ledger.open(tmp_path / "copy.db") as copy:
            assert copy.runs(key) == ledger.runs(key)
            assert outcomes(copy, imported(0), imported(1, "b")) == ["equal", "changed"]


@pytest.mark.parametrize("here", ["file"], indirect=True)
def test_a_rebuilt_ledger_says_that_runs_have_to_be_imported_again(here: Machine) -> None:
    with Ledger.open(here.ledger) as ledger:
        key = instance(ledger)
        (run_id,) = ids(ledger, [imported()])
        ledger.set_members(key, [member(run_id)])
        here.runs.mkdir()
        keep_all(ledger, here.runs)
    assert here.files() == ["ledger.db", f"runs/ladders/{key}.json"]
    here.ledger.rename(here.folder / "lost.db")
    assert "import them again" in here.run("ledger", "rebuild", code=4).stderr
    with Ledger.open(here.folder / "other.db") as other:
        trained = other.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        (run,) = other.enqueue(trained, [want()])
        (here.runs / run.id).mkdir()
        keep_all(other, here.runs)
    done = here.run("ledger", "rebuild")
    assert "mine: imported runs have no records here: import them again with lrurun import" in done.stderr
    with Ledger.open(here.ledger) as ledger:
        assert [run.kind for run in ledger.runs()] == ["training"]
        assert outcomes(ledger, imported()) == ["new"]
        ledger.set_members(key, [member(run_id)])
        assert places(ledger, key) == {run_id: [("layer", "train")]}


@pytest.mark.parametrize("path", [SERVER], indirect=True)
def test_an_answer_that_was_lost_changes_nothing(ledger: Ledger) -> None:
    key = instance(ledger)
    with answers_lost(ledger):
        assert outcomes(ledger, imported(0), imported(1)) == ["new", "new"]
    with answers_lost(ledger):
        assert outcomes(ledger, imported(0, "b"), imported(1)) == ["changed", "equal"]
    with answers_lost(ledger):
        ledger.set_members(key, [member(run.id) for run in ledger.runs()])
    assert len(places(ledger, key)) == 2
    assert sorted(run.generation for run in ledger.runs(superseded=True)) == [1, 1, 2]
    assert raw(ledger.path, "SELECT count(*) FROM metrics") == [(30,)]

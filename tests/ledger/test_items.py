"""Per-item results: recorded with the score, shared test sets, copies, removal, and older ledgers."""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from lrurun import items
from lrurun.config.runs import InstanceSpec
from lrurun.errors import LedgerError, NotFoundError
from lrurun.items import ItemResults
from lrurun.ledger import backups, merging, rebuilding
from lrurun.ledger.database.schema import SCHEMA
from lrurun.ledger.ledger import Ledger
from lrurun.server import Location
from tests.harness.machine import Machine
from tests.harness.old_ledgers import make_older
from tests.harness.stores import SERVER, dump, keep_all, key, ledger, machine_with, path, raw, take, want

__all__ = ["key", "ledger", "path"]  # fixtures

ACCURACY, LOSS = "test/accuracy", "test/loss"


def accuracy(seed: int, count: int = 300, **test_set: Any) -> ItemResults:
    right = np.random.default_rng(seed).random(count) < 0.8
    return ItemResults(
        test_set=items.TestSet(count=count, **{"order": "d" * 64, **test_set}), sums=right.astype(np.float64)
    )


def losses(seed: int, count: int = 7) -> ItemResults:
    draws = np.random.default_rng(seed).exponential(size=(2, count))
    tests = items.TestSet(count=count, order="e" * 64, weights=draws[0], groups=np.arange(count) // 2)
    return ItemResults(test_set=tests, sums=draws[1])


def finish(ledger: Ledger, key: str, count: int, **made: Any) -> list[str]:
    """Runs that are done, with items as they are made from their number."""
    first = len(ledger.run_ids())
    ledger.enqueue(key, [want(seed=seed, position=seed) for seed in range(first, first + count)])
    ids = []
    for seed in range(first, first + count):
        held = take(ledger, key)
        scored = {name.replace("_", "/"): make(seed) for name, make in made.items()}
        ledger.finish(held, "done", result={name: one.mean for name, one in scored.items()}, items=scored)
        ids.append(held.run.id)
    return ids


def same(found: ItemResults, expected: ItemResults) -> bool:
    """Equal up to the 32 bits of the numbers."""
    parts = [(found.sums, expected.sums), (found.test_set.weights, expected.test_set.weights)]
    parts += [(found.test_set.groups, expected.test_set.groups)]
    equal = (a is b is None or np.array_equal(np.float32(a), np.float32(b)) for a, b in parts)
    names = ("count", "order", "sha256")
    return all(equal) and all(getattr(found.test_set, n) == getattr(expected.test_set, n) for n in names)


def test_items_are_read_back_with_test_sets_that_runs_share(ledger: Ledger, key: str, path: Location) -> None:
    ids = finish(ledger, key, 3, test_accuracy=accuracy, test_loss=lambda seed: losses(0))
    without = finish(ledger, key, 1)
    found = ledger.items([*ids[1:], *without, "none"], ACCURACY)
    assert list(found) == ids[1:]
    assert all(same(found[run], accuracy(seed)) for seed, run in enumerate(ids) if seed)
    first, second = found.values()
    assert first.test_set is second.test_set
    weighted = ledger.items(ids[:1], LOSS)[ids[0]]
    assert same(weighted, losses(0))
    assert weighted.test_set.groups.dtype == np.int64
    assert raw(path, "SELECT count(*) FROM test_sets") == [(2,)]
    assert ledger.item_names(ids) == [ACCURACY, LOSS]
    assert ledger.item_names(without) == []
    assert ledger.items(ids, "test@9/accuracy") == {}
    assert ledger.metric_names() == [], "they are no curves"
    assert ledger.check() == []


ORDER = "0123456789abcdef" * 4
DIGESTS = [
    ({}, "50cbd9b5f1f1924a565e328dcab56c88d062a0ec27909e7a41cf798bb6c3ff28"),
    (
        {"order": ORDER, "weights": np.array([0.1, 0.25, 3.0])},
        "c8d7302b4fea573d02782d6176beeaaf7263fbda2ff9aefb6f71a797bf56e14e",
    ),
    (
        {"order": ORDER, "groups": np.array([0, 1, 0])},
        "b1ad8af5fd8d883fd01ac032cec3702086adf11e51d93ce9325aa42967eb1c37",
    ),
    (
        {"order": ORDER, "weights": np.array([0.0, 1.0, 0.0])},
        "a0faa888aee53aad4bae333de653ed2ce585e7ee7bed01ea066b84498efd6223",
    ),
]
"""Digests of bytes that the struct module of Python has written, as docs/ledger.md describes them."""


@pytest.mark.parametrize(("parts", "sha256"), DIGESTS)
def test_a_test_set_has_the_same_digest_on_every_machine(
    parts: dict[str, Any], sha256: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever zlib makes of its numbers, which is not the same with all releases."""
    made = items.TestSet(count=3, **parts)
    compress = zlib.compress
    monkeypatch.setattr("lrurun.items.zlib.compress", lambda content, _level: compress(content, 1))
    assert made.sha256 == sha256
    assert made.sha256 is made.sha256, "computed once, not for each of thousands of runs"


def _failing(*_: Any, **__: Any) -> None:
    raise RuntimeError("after the items")


def test_score_and_items_are_recorded_together_or_not_at_all(
    ledger: Ledger, key: str, path: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.enqueue(key, [want()])
    held = take(ledger, key)
    before = dump(path)
    short = msgspec.structs.replace(accuracy(0), sums=np.ones(299))
    odd = {"of 299 items": (short, "done"), "of a run that failed": (accuracy(0), "failed")}
    for case, (one, state) in odd.items():
        with pytest.raises(ValueError, match=r"of shape \(299,\) for 300|only a run that is done"):
            ledger.finish(held, state, result={ACCURACY: 0.5}, items={ACCURACY: one})
        assert dump(path) == before, case
    with monkeypatch.context() as patch:
        patch.setattr("lrurun.ledger.attempt.add_event", _failing)
        with pytest.raises(RuntimeError, match="after the items"):
            ledger.finish(held, "done", result={ACCURACY: 0.5}, items={ACCURACY: accuracy(0)})
    assert dump(path) == before
    ledger.finish(held, "done", result={ACCURACY: 0.5}, items={ACCURACY: accuracy(0)})
    assert list(ledger.items([held.run.id], ACCURACY)) == [held.run.id]


def test_items_are_added_to_a_run_that_is_done_once(ledger: Ledger, key: str) -> None:
    old, new = finish(ledger, key, 1)[0], finish(ledger, key, 1, test_accuracy=accuracy)[0]
    stamp = ledger.stamp()
    assert ledger.record_items(old, {ACCURACY: accuracy(5), LOSS: losses(5)}) == [ACCURACY, LOSS]
    assert ledger.stamp() != stamp
    assert ledger.record_items(new, {ACCURACY: accuracy(9)}) == []
    assert same(ledger.items([new], ACCURACY)[new], accuracy(1)), "those that it had stay"
    assert same(ledger.items([old], LOSS)[old], losses(5))
    assert [e.text for e in ledger.events(run=old) if e.kind == "items"] == [
        "per-item results added: test/accuracy, test/loss"
    ]
    assert [e for e in ledger.events(run=new) if e.kind == "items"] == []
    ledger.enqueue(key, [want(seed=7)])
    held = take(ledger, key)
    with pytest.raises(ValueError, match="only a run that is done"):
        ledger.record_items(held.run.id, {ACCURACY: accuracy(0)})
    with pytest.raises(NotFoundError):
        ledger.record_items("none", {ACCURACY: accuracy(0)})


def test_that_items_were_removed_is_kept(ledger: Ledger, key: str) -> None:
    ids = finish(ledger, key, 3, test_accuracy=accuracy, test_loss=losses)
    size = ledger.drop_items(ids[:2])
    assert 2 * 60 < size < 2 * 150
    assert list(ledger.items(ids, ACCURACY)) == ids[2:]
    assert ledger.items_removed(ids, ACCURACY) == dict.fromkeys(ids[:2], 300)
    assert ledger.items_removed(ids, LOSS) == dict.fromkeys(ids[:2], 7)
    assert ledger.drop_items(ids[:2]) == 0
    assert [e.text for e in ledger.events(run=ids[0]) if e.kind == "items"] == [
        "per-item results removed: test/accuracy, test/loss"
    ]
    assert ledger.check() == []
    assert ledger.record_items(ids[0], {ACCURACY: accuracy(0)}) == [ACCURACY], "they may be evaluated again"
    assert list(ledger.items(ids, ACCURACY)) == [ids[0], ids[2]]
    assert list(ledger.items_removed(ids, ACCURACY)) == [ids[1]]


def test_a_right_or_wrong_metric_costs_at_most_1500_bytes_for_10000_items(
    ledger: Ledger, key: str, path: Location
) -> None:
    if not isinstance(path, Path):
        pytest.skip("a server has no file")

    def size() -> int:
        raw(path, "VACUUM")
        return path.stat().st_size

    def half(seed: int) -> ItemResults:
        """Half are right: nothing can be compressed."""
        right = np.random.default_rng(seed).random(10_000) < 0.5
        return ItemResults(test_set=items.TestSet(count=10_000, order="d" * 64), sums=right.astype(np.float64))

    finish(ledger, key, 1, test_accuracy=half)
    before, runs = size(), 60
    finish(ledger, key, runs)
    without = size() - before
    finish(ledger, key, runs, test_accuracy=half)
    assert (size() - before - 2 * without) / runs <= 1500


def test_the_first_test_set_and_the_counts_need_no_results(ledger: Ledger, key: str, path: Location) -> None:
    finish(ledger, key, 1, test_loss=losses)
    excluded, removed, first, _ = (
        finish(ledger, key, 1, test_accuracy=lambda seed, count=count: accuracy(seed, count), test_loss=losses)[0]
        for count in (100, 200, 300, 400)
    )
    assert ledger.first_test_set(key, "test/f1") is None
    ledger.mark([excluded], exclude="another test set")
    ledger.drop_items([removed])
    raw(path, "UPDATE item_results SET sums = ?", b"x")
    raw(path, "UPDATE item_results SET sums = NULL WHERE run = ?", 3)
    run, test_set = ledger.first_test_set(key, ACCURACY) or (None, None)
    assert run == first
    assert test_set.difference(accuracy(0, 300).test_set) is None
    assert ledger.item_counts(first) == {ACCURACY: 300, LOSS: 7}
    assert ledger.item_counts(removed) == {}
    other = ledger.add_ladder("lru", "sDigits", "smoke", InstanceSpec()).key
    assert ledger.first_test_set(other, ACCURACY) is None
    raw(path, "UPDATE test_sets SET weights = ?", b"x")
    with pytest.raises(LedgerError, match="is damaged"):
        ledger.first_test_set(key, ACCURACY)


def test_check_finds_items_that_cannot_be_read(ledger: Ledger, key: str, path: Location) -> None:
    ids = finish(ledger, key, 3, test_accuracy=accuracy, test_loss=losses)
    raw(path, "UPDATE item_results SET sums = ? WHERE run = 1 AND result = 'test/accuracy'", b"x")
    raw(path, "UPDATE item_results SET sums = ? WHERE run = 2 AND result = 'test/loss'", items.pack(np.ones(6)))
    [(number,)] = raw(path, "SELECT min(id) FROM test_sets WHERE count = 7")
    raw(path, "UPDATE test_sets SET order_sha256 = 'other' WHERE id = ?", number)
    assert ledger.check() == [
        f"test set {number}: a test set does not match its digest",
        f"run {ids[0]}, test/accuracy: per-item results cannot be read: unknown form b'x'",
        f"run {ids[1]}, test/loss: results of 6 instead of 7 items",
    ]
    for run, name in ((ids[0], ACCURACY), (ids[1], LOSS)):
        with pytest.raises(LedgerError, match="is damaged"):
            ledger.items([run], name)


def test_a_test_set_that_is_missing_is_found(ledger: Ledger, key: str, path: Location) -> None:
    if not isinstance(path, Path):
        pytest.skip("a server keeps rows that others refer to")
    [run] = finish(ledger, key, 1, test_accuracy=accuracy, test_loss=losses)
    raw(path, "DELETE FROM test_sets WHERE count = 300")
    raw(path, "UPDATE item_results SET sums = ? WHERE result = 'test/loss'", b"x")
    problems = ledger.check()
    assert f"run {run}, test/accuracy: test set 1 is missing" in problems
    assert any(problem.startswith(f"run {run}, test/loss: ") for problem in problems), "what follows is read too"
    for read in (lambda: ledger.items([run], ACCURACY), lambda: ledger.run_file(run)):
        with pytest.raises(LedgerError, match="is damaged: test set 1 is missing"):
            read()
    assert ledger.first_test_set(key, ACCURACY) is None
    assert ledger.item_counts(run) == {LOSS: 7}


def test_gc_removes_items_from_ledger_and_records(machine: Machine) -> None:
    with Ledger.open(machine.ledger) as ledger:
        key = ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        ids = finish(ledger, key, 2, test_accuracy=lambda seed: accuracy(seed, 40_000))
        for run in ids:
            (machine.runs / run).mkdir(parents=True)
        keep_all(ledger, machine.runs)
        size = sum(ledger.item_bytes().values())
        assert 5_000 < size < 10_000
    assert machine.run("ledger", "gc").stderr == "nothing to remove\n"
    kilobytes = f"{size / 1e3:.1f} kB"
    said = f"the per-item results of 2 runs with {kilobytes}, which the ledger uses for what it records next\n"
    assert machine.run("ledger", "gc", "--items", "--dry-run").stderr == f"to be removed: {said}"
    with Ledger.read(machine.ledger) as ledger:
        assert len(ledger.items(ids, ACCURACY)) == 2
    assert machine.run("ledger", "gc", "--items").stderr == f"removed: {said}"
    assert machine.run("ledger", "gc", "--items").stderr == "nothing to remove\n"
    rebuilding.rebuild(machine.folder / "again.db", machine.runs)
    for kept in (machine.ledger, machine.folder / "again.db"):
        with Ledger.read(kept) as ledger:
            assert ledger.items(ids, ACCURACY) == {}
            assert ledger.items_removed(ids, ACCURACY) == dict.fromkeys(ids, 40_000)
            assert ledger.runs()[0].result[ACCURACY] == pytest.approx(0.8, abs=0.02), "scores stay"


def test_gc_removes_items_in_batches_with_their_records(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which an interrupted command leaves no other half than that of the last batch."""
    with Ledger.open(machine.ledger) as ledger:
        ids = finish(ledger, ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key, 7, test_accuracy=accuracy)
        for run in ids:
            (machine.runs / run).mkdir(parents=True)
        keep_all(ledger, machine.runs)
    batches, shown = list[list[str]](), list[tuple[str, int, int]]()
    drop = Ledger.drop_items

    def drop_items(ledger: Ledger, run_ids: list[str]) -> int:
        if len(batches) == 2:
            raise KeyboardInterrupt
        batches.append(run_ids)
        return drop(ledger, run_ids)

    with monkeypatch.context() as patch:
        patch.setattr("lrurun.ledger.reading.BATCH", 3)
        patch.setattr(Ledger, "drop_items", drop_items)
        patch.setattr(
            "lrurun.report.live.views.PreparationView.update", lambda _view, *progress: shown.append(progress)
        )
        machine.run("ledger", "gc", "--items", code=130)
    assert batches == [ids[:3], ids[3:6]]
    assert shown == [("removing per-item results", done, 7) for done in range(6)]
    rebuilding.rebuild(machine.folder / "again.db", machine.runs)
    for kept in (machine.ledger, machine.folder / "again.db"):
        with Ledger.read(kept) as ledger:
            assert ledger.items_removed(ids, ACCURACY) == dict.fromkeys(ids[:6], 300)
    machine.run("ledger", "gc", "--items")
    with Ledger.read(machine.ledger) as ledger:
        assert ledger.items_removed(ids, ACCURACY) == dict.fromkeys(ids, 300)


# Copies


@pytest.fixture(params=["file", SERVER])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    yield from machine_with(request.param, tmp_path / "here", request)


@pytest.fixture(params=["file", SERVER])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    yield from machine_with(request.param, tmp_path / "there", request)


def test_merge_brings_items(here: Machine, there: Machine, tmp_path: Path) -> None:
    with Ledger.open(here.ledger) as mine:
        key = mine.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        ids = finish(mine, key, 3, test_loss=losses)
        before = mine.items(ids, LOSS)
        backups.backup(mine, tmp_path / "copy.db")
    with Ledger.open(tmp_path / "copy.db") as copied, Ledger.open(there.ledger) as theirs:
        merging.merge(theirs, copied, there.runs, here.runs)
        assert all(same(one, before[run]) for run, one in theirs.items(ids, LOSS).items())
        finish(theirs, key, 2, test_accuracy=accuracy)
        theirs.record_items(ids[0], {ACCURACY: accuracy(0)})
        theirs.drop_items(ids[2:])
        theirs_items = theirs.items(theirs.run_ids(), ACCURACY)
        assert len(theirs_items) == 3
    with Ledger.open(here.ledger) as mine, Ledger.read(there.ledger) as theirs:
        mine.drop_items(ids[1:2])
        _, changed = merging.merge(mine, theirs, here.runs, there.runs)
        new = set(theirs.run_ids()) - set(ids)
        assert set(changed) == {ids[0], ids[1], *new}, "their records are written again, and no others"
        found = mine.items(mine.run_ids(), ACCURACY)
        assert found.keys() == theirs_items.keys()
        assert all(same(one, theirs_items[run]) for run, one in found.items())
        assert list(mine.items(ids, LOSS)) == ids, "what one ledger has removed comes back, and nothing is removed"
        assert merging.merge(mine, theirs, here.runs, there.runs)[1] == [], "nothing is new"
        mine.drop_items(ids[2:])
        assert merging.merge(mine, theirs, here.runs, there.runs)[1] == [], "both have removed them"
        assert mine.check() == []


def test_a_run_that_was_trained_twice_keeps_its_own_items(machine: Machine, tmp_path: Path) -> None:
    ledgers = [tmp_path / "one.db", tmp_path / "two.db"]
    for number, one in enumerate(ledgers):
        with Ledger.open(one) as opened:
            key = opened.add_ladder("lru", "sDigits", None, InstanceSpec()).key
            opened.enqueue(key, [want()])
            held = take(opened, key)
            made = accuracy(number)
            opened.finish(held, "done", result={ACCURACY: made.mean}, items={ACCURACY: made} if number else None)
    with Ledger.open(ledgers[0]) as mine, Ledger.read(ledgers[1]) as theirs:
        assert merging.merge(mine, theirs, tmp_path, tmp_path)[0].known == 1
        assert mine.items(mine.run_ids(), ACCURACY) == {}


def test_records_bring_items_back(here: Machine) -> None:
    with Ledger.open(here.ledger) as mine:
        key = mine.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        ids = finish(mine, key, 3, test_loss=losses)
        mine.drop_items(ids[2:])
        before = mine.items(ids, LOSS)
        for run in ids:
            (here.runs / run).mkdir(parents=True)
        keep_all(mine, here.runs)
    target = here.folder / "again.db"
    assert rebuilding.rebuild(target, here.runs).problems == []
    with Ledger.open(target) as again:
        found = again.items(ids, LOSS)
        assert list(found) == ids[:2]
        assert all(same(one, before[run]) for run, one in found.items())
        assert list(again.items_removed(ids, LOSS)) == ids[2:]
        assert again.check() == []


def test_a_record_with_false_items_is_left_out(machine: Machine) -> None:
    with Ledger.open(machine.ledger) as mine:
        key = mine.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        ids = finish(mine, key, 3, test_accuracy=accuracy)
        for run in ids:
            (machine.runs / run).mkdir(parents=True)
        keep_all(mine, machine.runs)
    for run, change in zip(ids, ({"count": 299}, {"order": "x"}, None), strict=True):
        file = machine.runs / run / "run.json"
        record = msgspec.json.decode(file.read_bytes())
        record["items"][ACCURACY]["test_set"] |= change or {}
        file.write_bytes(msgspec.json.encode(record))
    problems = rebuilding.rebuild(machine.folder / "again.db", machine.runs).problems
    assert [problem.partition("left out: ")[2] for problem in problems] == [
        "a test set does not match its digest",
        "a test set does not match its digest",
    ]


def test_an_export_has_numbers(here: Machine) -> None:
    with Ledger.open(here.ledger) as mine:
        key = mine.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        [run] = finish(mine, key, 1, test_accuracy=accuracy, test_loss=losses)
    here.run("ledger", "export", "--out", str(here.folder / "out.jsonl"))
    lines = [msgspec.json.decode(line) for line in (here.folder / "out.jsonl").read_bytes().splitlines()]
    tests = {line["sha256"]: line for line in lines if line["table"] == "test_sets"}
    found = {line["result"]: line for line in lines if line["table"] == "item_results"}
    assert found[ACCURACY]["run"] == run
    assert found[ACCURACY]["sums"] == accuracy(0).sums.tolist()
    weighted = losses(0)
    assert np.float32(found[LOSS]["sums"]).tolist() == np.float32(weighted.sums).tolist()
    row = tests[found[LOSS]["test_set"]]
    assert np.float32(row["weights"]).tolist() == np.float32(weighted.test_set.weights).tolist()
    assert row["groups"] == [0, 0, 1, 1, 2, 2, 3]


# Ledgers of an older revision


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A ledger of release 1.0 with three runs: its tables are made by the statements of that release."""
    file = tmp_path / "old" / "ledger.db"
    file.parent.mkdir()
    with Ledger.open(tmp_path / "new.db") as ledger:
        finish(ledger, ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key, 3)
    with sqlite3.connect(file) as made, sqlite3.connect(tmp_path / "new.db") as filled:
        made.executescript((Path(__file__).parent / "revision-1000.sql").read_text())
        for (table,) in made.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if table != "lrurun_version" and not table.startswith("sqlite_"):
                rows = filled.execute(f"SELECT * FROM {table}").fetchall()
                if rows:
                    made.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    made.close()
    filled.close()
    return file


def test_a_migrated_ledger_has_the_schema_of_a_new_one(old: Path, tmp_path: Path) -> None:
    assert raw(old, "SELECT version_num FROM lrurun_version") == [("1000",)]
    runs = raw(old, "SELECT * FROM runs")
    with Ledger.open(old) as ledger:
        assert ledger.check() == []
        [run, *_] = ledger.run_ids()
        assert ledger.record_items(run, {ACCURACY: accuracy(0)}) == [ACCURACY]
    assert raw(old, "SELECT version_num FROM lrurun_version") == [(SCHEMA,)]
    assert raw(old, "SELECT * FROM runs") == runs
    objects = "SELECT name, sql FROM sqlite_master ORDER BY name"
    made, new = ({name: sql and sql.split() for name, sql in raw(file, objects)} for file in (old, tmp_path / "new.db"))
    assert made == new


def test_an_older_ledger_is_read_as_it_is(old: Path, machine: Machine) -> None:
    content = old.read_bytes()
    old.chmod(0o444)
    old.parent.chmod(0o555)
    with Ledger.read(old) as ledger:
        ids = ledger.run_ids()
        assert len(ids) == 3
        assert ledger.items(ids, ACCURACY) == {}
        assert (ledger.item_names(ids), ledger.items_removed(ids, ACCURACY)) == ([], {})
        assert ledger.run_file(ids[0]).items == {}
        assert ledger.check() == []
    for command in (
        ["runs"],
        ["show", ids[0]],
        ["report", "--instance", "sDigits"],
        ["ledger", "check"],
        ["ledger", "export"],
    ):
        machine.run(*command, "--ledger", str(old))
    assert machine.json("query", "select count(*) as n from results", "--ledger", str(old))["rows"] == [[3]]
    backup = machine.folder / "copy.db.xz"
    machine.run("ledger", "backup", "--out", str(backup), "--ledger", str(old))
    machine.run("ledger", "merge", str(backup))
    assert len(machine.json("runs")["runs"]) == 3
    assert old.read_bytes() == content
    assert [file.name for file in old.parent.iterdir()] == ["ledger.db"]


def test_records_of_an_older_ledger_are_read(machine: Machine) -> None:
    with Ledger.open(machine.ledger) as mine:
        key = mine.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        [run] = finish(mine, key, 1)
        (machine.runs / run).mkdir(parents=True)
        keep_all(mine, machine.runs)
    for file in machine.runs.glob("*/*.json"):
        record = msgspec.json.decode(file.read_bytes())
        record["schema"] = "1000"
        record.pop("items", None)
        file.write_bytes(msgspec.json.encode(record))
    found = rebuilding.rebuild(machine.folder / "again.db", machine.runs)
    assert (found.runs, found.ladders, found.problems) == (1, 1, [])


@pytest.mark.slow
def test_an_older_ledger_on_a_server_is_read_merged_and_migrated(here: Machine, there: Machine) -> None:
    """Before the migration, other people's commands of the older release go on using it."""
    if isinstance(there.ledger, Path):
        pytest.skip("the same in a file is tested above")
    with Ledger.open(there.ledger) as theirs:
        finish(theirs, theirs.add_ladder("lru", "sDigits", None, InstanceSpec()).key, 2)
    make_older(there.ledger, "1000")
    with Ledger.open(here.ledger) as mine, Ledger.read(there.ledger) as theirs:
        assert theirs.check() == []
        assert merging.merge(mine, theirs, here.runs, there.runs)[0].new == 2
        assert theirs.items(theirs.run_ids(), ACCURACY) == {}
    there.run("ledger", "backup", "--out", str(there.folder / "copy.db"))
    said = there.run("ledger", "migrate").stderr
    assert f"was migrated to version {SCHEMA}" in said
    with Ledger.open(there.ledger) as theirs:
        [run, _] = theirs.run_ids()
        assert theirs.record_items(run, {ACCURACY: accuracy(0)}) == [ACCURACY]
        assert theirs.check() == []

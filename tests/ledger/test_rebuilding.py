"""A lost ledger is made again from the records in the runs folder."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lrurun.config.runs import InstanceSpec
from lrurun.errors import LedgerError
from lrurun.ledger import copies, merging, rebuilding
from lrurun.ledger.store import Ledger
from lrurun.runner.node import NodeTask
from lrurun.server import Place
from tests.harness.commands import answered, folder, said
from tests.harness.results import OWNER, fill
from tests.harness.stores import ME, keep_all, path, take, want

__all__ = ["folder", "path"]  # fixtures

SMOKE = ("sDigits", "--profile", "smoke")


def rows_of(ledger: Place) -> dict[str, Any]:
    """All rows of a ledger, with names instead of numbers, in their order where it matters."""
    with Ledger.open(ledger) as opened:
        found = {table: [columns, *rows] for table, columns, rows in copies.export(opened)}
    return found | {table: sorted(found[table], key=repr) for table in ("checkpoints", "metrics")}


def keep(ledger: Path, *, folders: bool = True) -> None:
    """Writes the records of all runs, as processes that train do."""
    with Ledger.open(ledger) as opened:
        if folders:
            for run in opened.run_ids():
                (ledger.parent / "runs" / run).mkdir(parents=True, exist_ok=True)
        keep_all(opened, ledger.parent / "runs")


def lose(ledger: Path) -> None:
    for file in ledger.parent.glob("ledger.db*"):
        file.unlink()


@pytest.fixture
def full(folder: Path) -> Path:
    """A ledger with all that one may have of runs that are over."""
    ledger = folder / "ledger.db"
    spectrum = {"start": [0.5 + 0.5j, complex(math.nan, math.inf)], "end": [1j]}
    fill(ledger, "sDigits", {"tanh-rnn": [0.5, None], "gamma-norm": [0.1]}, profile="smoke", eigenvalues=spectrum)
    fill(ledger, "sDigits", {"tanh-rnn": [0.25]}, more={"best_step": 3, "other": math.nan, "more": -math.inf})
    with Ledger.open(ledger) as opened:
        first, *_ = opened.ladders()
        shared = opened.runs(first.key)[0].fingerprint
        own = opened.add_ladder("own", "sDigits", None, InstanceSpec(set={"a": 1.5}))
        opened.enqueue(own.key, [want(), want(seed=1), want(seed=2), want("shared", 3, 7, fingerprint=shared)])
        for state, fields in (
            ("failed", {"error": "a\nb"}),
            ("interrupted", {"step": 4}),
            ("done", {"result": {"x": 1.0}}),
        ):
            claim = take(opened, own.key, OWNER, environment={"code": "c", "numerics": 2})
            values = {"train/loss": math.inf, "val/accuracy": math.nan, "machine/steps_per_second": 1 / 3}
            opened.record(claim, [(2, name, value) for name, value in values.items()], 2)
            opened.finish(claim, state, **fields)
        opened.enqueue(own.key, [want(seed=2)], fresh=True)
        opened.finish(take(opened, own.key, OWNER), "done", result={"x": 2.0})
        done, *others = [run.id for run in opened.runs(states=["done"])]
        opened.event("tuned", '{"é": 1}', ladder=first.key)
        NodeTask("slurm:é", 1).begin(opened, first, "n1")
        opened.mark([done], tag=["a", "b"])
        opened.mark([done], note="the fan was loud")
        opened.mark([others[0]], exclude="a broken disk")
        opened.mark([others[1]], exclude="first")
        opened.mark([others[1]], include=True)
    return ledger


def test_a_rebuilt_ledger_has_the_same_rows(full: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(full)
    before = rows_of(full)
    assert {len(rows) > 1 for table, rows in before.items() if table != "checkpoints"} == {True}
    listed, report = answered(capsys, "runs"), answered(capsys, "report", *SMOKE)
    lose(full)
    assert said(capsys, "ledger", "rebuild") == (0, "ledger.db: 8 runs, 3 ladder instances\n", "")
    assert rows_of(full) == before
    assert (answered(capsys, "runs"), answered(capsys, "report", *SMOKE)) == (listed, report)
    assert said(capsys, "ledger", "check")[0] == 0
    assert sorted(path.name for path in full.parent.iterdir() if path.is_file()) == ["ledger.db"]


def test_changes_of_tags_notes_and_exclusions_are_recorded(full: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(full)
    run = answered(capsys, "runs")["runs"][0]["id"]
    for arguments in (
        ("mark", run, "--tag", "new"),
        ("mark", run, "--note", "hot"),
        ("mark", run, "--exclude", "too hot"),
    ):
        assert said(capsys, *arguments)[0] == 0
        before = rows_of(full)
        full.rename(full.parent / "aside.db")
        assert said(capsys, "ledger", "rebuild")[0] == 0
        assert rows_of(full) == before


def test_runs_without_a_folder_get_no_record(full: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = answered(capsys, "runs")["runs"][0]["id"]
    assert said(capsys, "mark", run, "--tag", "new")[0] == 0
    assert not (full.parent / "runs").exists()


def test_a_running_run_is_rebuilt_as_interrupted_with_the_checkpoints_that_are_there(folder: Path) -> None:
    ledger = folder / "ledger.db"
    with Ledger.open(ledger) as opened:
        key = opened.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        [run] = opened.enqueue(key, [want()])
        claim = take(opened, key, ME)
        opened.record(claim, [(10, "train/loss", 0.5)], 10)
        for step in (10, 20):
            number = opened.begin_checkpoint(claim, step, f"{run.id}/1/checkpoints/{step}")
            opened.commit_checkpoint(claim, number, 100, f"sha256:{step}")
        opened.begin_checkpoint(claim, 30, f"{run.id}/1/checkpoints/30")
    (folder / "runs" / run.id / "1/checkpoints/10").mkdir(parents=True)
    keep(ledger)
    lose(ledger)
    found = rebuilding.rebuild(ledger, folder / "runs")
    assert (found.runs, found.ladders, found.problems) == (1, 1, [])
    with Ledger.open(ledger) as opened:
        assert opened.check() == []
        [rebuilt] = opened.runs()
        assert (rebuilt.state, rebuilt.step, rebuilt.last_loss) == ("interrupted", 10, 0.5)
        assert [(one.step, one.sha256) for one in opened.checkpoints(run.id)] == [(10, "sha256:10")]
        [attempt] = opened.attempts(run.id)
        assert attempt.ended_at is not None
        assert opened.requeue([run.id]) == 1
        assert take(opened, key, ME).attempt == 2


def test_a_rebuild_that_fails_leaves_no_ledger(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(full)
    lose(full)
    restored = []

    def interrupted(ledger: Ledger) -> int:
        restored.append(ledger.run_ids())
        assert not full.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "count_runs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rebuilding.rebuild(full, full.parent / "runs")
    assert len(restored[0]) == 8
    assert [path.name for path in full.parent.iterdir()] == ["runs"]


@pytest.mark.parametrize("name", ["ledger.db", "ledger.db-wal", "ledger.db-journal"])
def test_rebuild_does_not_overwrite(full: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    keep(full)
    lose(full)
    full.with_name(name).write_bytes(b"x")
    code, out, err = said(capsys, "ledger", "rebuild")
    assert (code, out) == (5, "")
    assert f"{name} {'is not a ledger' if name == 'ledger.db' else 'exists, and is not overwritten'}" in err
    assert [file.read_bytes() for file in full.parent.glob("ledger.db*")] == [b"x"]


def test_records_that_cannot_be_read_are_named(full: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(full)
    lose(full)
    first, second, third, fourth, fifth, sixth, *_ = sorted((full.parent / "runs").glob("*/run.json"))
    first.write_text("{")
    second.unlink()
    third.write_text(json.dumps(json.loads(third.read_text()) | {"schema": "9999"}))
    fourth.write_text(json.dumps(json.loads(fourth.read_text()) | {"run": 1}))
    fifth.write_text(fifth.read_text().replace('"state":"', '"state":"un', 1))
    sixth_record = json.loads(sixth.read_text())
    sixth_record["attempts"] *= 2
    sixth.write_text(json.dumps(sixth_record))
    code, out, err = said(capsys, "ledger", "rebuild")
    assert (code, out) == (0, "ledger.db: 2 runs, 3 ladder instances\n")
    assert len(err.splitlines()) == 7  # the last one says what to do
    for record in (first, second, third, fourth, fifth, sixth):
        assert str(record) in err


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("[0-9a-f]*/run.json", lambda record: record["run"].update(seed=2**70)),
        ("[0-9a-f]*/run.json", lambda record: record["curves"].update(x={"steps": [1], "values": []})),
        ("[0-9a-f]*/run.json", lambda record: record["config"].update(task=1)),
        ("[0-9a-f]*/run.json", lambda record: record["execution"].update(threads="many")),
        ("[0-9a-f]*/run.json", lambda record: record["events"][0].update(attempt=2**70)),
        ("ladders/*.json", lambda record: record["ladder"]["spec"].update(set=1)),
        ("ladders/*.json", lambda record: record["places"][0].update(position=2**70)),
    ],
)
def test_a_record_that_no_reader_would_understand_is_left_out(
    full: Path, where: str, change: Callable[[dict[str, Any]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    keep(full)
    lose(full)
    bad, *_ = sorted((full.parent / "runs").glob(where))
    record = json.loads(bad.read_text())
    change(record)
    bad.write_text(json.dumps(record))
    runs, ladders = (7, 3) if bad.name == "run.json" else (8, 2)
    code, out, err = said(capsys, "ledger", "rebuild")
    assert (code, out) == (0, f"ledger.db: {runs} runs, {ladders} ladder instances\n")
    assert str(bad) in "".join(err.split())
    assert len(answered(capsys, "runs")["runs"]) == runs
    assert said(capsys, "status")[0] == 0


def test_a_place_that_a_record_lists_twice_is_restored_once(full: Path) -> None:
    keep(full)
    before = rows_of(full)
    lose(full)
    for file in (full.parent / "runs/ladders").glob("*.json"):
        record = json.loads(file.read_text())
        record["places"] *= 2
        file.write_text(json.dumps(record))
    assert rebuilding.rebuild(full, full.parent / "runs").problems == []
    assert rows_of(full) == before


def test_nothing_to_rebuild_from(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "ledger", "rebuild")[0] == 4
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "command", [("status",), ("resume",), ("show", "abc"), ("ledger", "check"), ("ledger", "backup")], ids=" ".join
)
def test_commands_name_rebuild_beside_a_full_runs_folder(
    full: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    keep(full)
    lose(full)
    assert "lrurun ledger rebuild" in said(capsys, *command)[2]


@pytest.mark.parametrize("is_empty", [False, True], ids=["no ledger", "an empty ledger"])
def test_ladder_names_rebuild_and_does_not_train_again(
    full: Path, is_empty: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(full)
    lose(full)
    if is_empty:
        Ledger.open(full).close()
    for more in ((), ("--dry-run",)):
        code, _, err = said(capsys, "ladder", *SMOKE, *more)
        assert (code, "lrurun ledger rebuild" in err) == (2, True)
    assert said(capsys, "ladder", *SMOKE, "--dry-run", "--runs-dir", "others")[0] == 0


def test_a_merge_brings_records(full: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = full.parent / "other" / "ledger.db"
    other.parent.mkdir()
    full.rename(other)
    with Ledger.open(other) as opened:
        for run in opened.run_ids():
            other.parent.joinpath("runs", run, "1").mkdir(parents=True)
    assert said(capsys, "ledger", "merge", str(other))[0] == 0
    before = rows_of(full)
    lose(full)
    assert said(capsys, "ledger", "rebuild")[0] == 0
    assert rows_of(full) == before


@pytest.mark.slow
def test_a_ledger_on_a_server_is_rebuilt(full: Path, postgres: Any) -> None:
    keep(full)
    server = postgres.ledger()
    rebuilding.rebuild(server, full.parent / "runs")
    with pytest.raises(LedgerError, match="has runs"):
        rebuilding.rebuild(server, full.parent / "runs")
    before = rows_of(full)
    lose(full)
    with Ledger.open(full) as ledger, Ledger.open(server) as there:
        merging.merge(ledger, there, full.parent / "runs", full.parent / "runs")
    assert rows_of(full) == before
    postgres.drop(server)


def test_a_copy_of_a_record_is_left_out(full: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(full)
    before = rows_of(full)
    lose(full)
    run = next((full.parent / "runs").glob("[0-9a-f]*"))
    shutil.copytree(run, run.with_name("0123456789ab"))
    code, _, err = said(capsys, "ledger", "rebuild")
    assert code == 0
    assert f"left out: is the record of {run.name}" in " ".join(err.split())
    assert rows_of(full) == before


def test_a_run_that_was_started_over_for_one_ladder_is_rebuilt_in_all(folder: Path) -> None:
    ledger = folder / "ledger.db"
    with Ledger.open(ledger) as opened:
        keys = [opened.add_ladder(name, "sDigits", None, InstanceSpec()).key for name in ("one", "two")]
        for key in keys:
            opened.enqueue(key, [want()])
        opened.finish(take(opened, keys[0], ME), "done", result={"x": 1.0})
        opened.enqueue(keys[0], [want()], fresh=True)
        opened.finish(take(opened, keys[0], ME), "done", result={"x": 2.0})
    keep(ledger)
    before = rows_of(ledger)
    lose(ledger)
    rebuilding.rebuild(ledger, folder / "runs")
    assert rows_of(ledger) == before

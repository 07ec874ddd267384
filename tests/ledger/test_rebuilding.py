"""A lost ledger is made again from the records in the runs folder."""

from __future__ import annotations

import json
import math
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lrurun.config.runs import InstanceSpec
from lrurun.errors import LedgerError
from lrurun.ledger import exporting, merging, rebuilding
from lrurun.ledger.ledger import Ledger
from lrurun.runner.node import NodeTask
from lrurun.server import Location
from tests.harness.machine import FINISHED_LADDER, LONG, Machine, stop, wait_for
from tests.harness.old_ledgers import items_of
from tests.harness.results import OWNER, fill
from tests.harness.shared import once
from tests.harness.stores import ME, keep_all, raw, take, want

SMOKE = ("sDigits", "--profile", "smoke")


def rows_of(ledger: Location) -> dict[str, Any]:
    """All rows of a ledger, with names instead of numbers, in their order where it matters."""
    with Ledger.open(ledger) as opened:
        found = {table: [columns, *rows] for table, columns, rows in exporting.export(opened)}
    return found | {table: sorted(found[table], key=repr) for table in ("checkpoints", "metrics")}


def add_removal(
    ledger: Location, key: str, ladder: str, run: str, time: float = 2e9, finished_at: float | None = 2e9
) -> None:
    """Records that a run was forgotten."""
    raw(
        ledger,
        "INSERT INTO removals (key, kind, time, user_name, selection, why, runs, bytes, finished_at)"
        " VALUES (?, 'forgotten', ?, 'ada', 'own', 'a typo', 1, 5, ?)",
        *(key, time, finished_at),
    )
    raw(
        ledger,
        "INSERT INTO removed_runs (removal, run, ladder_key, rung, stage, instance, task, seed, state)"
        " SELECT id, ?, ?, 'ring', 'train', 'own', 'sDigits', 0, 'done' FROM removals WHERE key = ?",
        *(run, ladder, key),
    )


def keep(machine: Machine) -> None:
    """Writes the records of all runs, as processes that train do."""
    with Ledger.open(machine.ledger) as opened:
        for run in opened.run_ids():
            (machine.runs / run).mkdir(parents=True, exist_ok=True)
        keep_all(opened, machine.runs)


def lose(machine: Machine) -> None:
    for file in machine.folder.glob("ledger.db*"):
        file.unlink()


def make(folder: Path) -> None:
    """A ledger with all that one may have of runs that are over, and their records."""
    machine = Machine(folder)
    ledger = machine.ledger
    spectrum = {"start": [0.5 + 0.5j, complex(math.nan, math.inf)], "end": [1j]}
    fill(ledger, "sDigits", {"tanh-rnn": [0.5, None], "gamma-norm": [0.1]}, profile="smoke", eigenvalues=spectrum)
    fill(ledger, "sDigits", {"tanh-rnn": [0.25]}, more={"best_step": 3, "other": math.nan, "more": -math.inf})
    with Ledger.open(ledger) as opened:
        first, *_ = opened.ladders()
        shared = opened.runs(first.key)[0].fingerprint
        own = opened.add_ladder("own", "sDigits", None, InstanceSpec(set={"a": 1.5}))
        tuning = want(seed=1, stage="tune")
        opened.enqueue(own.key, [want(), tuning, want(seed=2), want("shared", 3, 7, fingerprint=shared)])
        for state, fields in (
            ("failed", {"error": "a\nb"}),
            ("interrupted", {"step": 4}),
            ("done", {"result": {"x": 1.0}}),
        ):
            held = take(opened, own.key, OWNER, environment={"code": "c", "numerics": 2})
            values = {"train/loss": math.inf, "val/accuracy": math.nan, "machine/steps_per_second": 1 / 3}
            opened.record(held, [(2, name, value) for name, value in values.items()], 2)
            opened.finish(held, state, **fields)
        opened.enqueue(own.key, [want(seed=2)], fresh=True)
        items = {"test/accuracy": items_of(0.5)}
        opened.finish(take(opened, own.key, OWNER), "done", result={"x": 2.0}, items=items)
        done, *others = [run.id for run in opened.runs(states=["done"])]
        opened.event("tuned", '{"é": 1}', ladder=first.key)
        NodeTask("slurm:é", 1).begin(opened, first, "n1")
        opened.mark([done], tag=["a", "b"])
        opened.mark([done], note="the fan was loud")
        opened.mark([others[0]], exclude="a broken disk")
        opened.mark([others[1]], exclude="first")
        opened.mark([others[1]], include=True)
        opened.hide([own.key])
        add_removal(ledger, "f0f0f0", first.key, "feedfeedfeed")
        add_removal(ledger, "a1a1a1", own.key, "abadabadabad", finished_at=3e9)
    keep(machine)


@pytest.fixture
def full(tmp_path: Path) -> Machine:
    """8 runs of 3 ladder instances, with their records."""
    return Machine(shutil.copytree(once("records", make), tmp_path / "full"))


@pytest.fixture
def lost(full: Machine) -> Machine:
    lose(full)
    return full


def test_a_rebuilt_ledger_has_the_same_rows(full: Machine) -> None:
    before = rows_of(full.ledger)
    assert {table for table, rows in before.items() if len(rows) == 1} == {"checkpoints"}
    listed, report = full.json("runs"), full.json("report", *SMOKE)
    lose(full)
    done = full.run("ledger", "rebuild")
    assert (done.stdout, done.stderr) == ("ledger.db: 8 runs, 3 ladder instances\n", "")
    assert rows_of(full.ledger) == before
    assert (full.json("runs"), full.json("report", *SMOKE)) == (listed, report)
    full.run("ledger", "check")
    assert sorted(path.name for path in full.folder.iterdir() if path.is_file()) == ["ledger.db"]


def test_what_is_hidden_and_was_removed_is_rebuilt_with_who_and_when(full: Machine) -> None:
    """Exports leave users out."""
    tables = ("hidden", "removals", "removed_runs")
    before = {table: sorted(raw(full.ledger, f"SELECT * FROM {table}")) for table in tables}
    assert [len(rows) for rows in before.values()] == [1, 2, 2]
    lose(full)
    rebuilding.rebuild(full.ledger, full.runs)
    assert {table: sorted(raw(full.ledger, f"SELECT * FROM {table}")) for table in tables} == before


def test_a_forgotten_run_whose_files_remain_does_not_come_back(full: Machine) -> None:
    with Ledger.open(full.ledger) as opened:
        first, later, *_ = opened.runs(states=["done"])
        [key, *_] = [instance.key for instance in opened.ladders()]
        add_removal(full.ledger, "b2b2b2", key, first.id, first.created_at + 1, finished_at=None)
        # forgotten before it was trained again
        add_removal(full.ledger, "c3c3c3", key, later.id, later.created_at - 1, finished_at=None)
    keep(full)
    lose(full)
    done = full.run("ledger", "rebuild")
    assert done.stdout == "ledger.db: 7 runs, 3 ladder instances\n"
    said = "it was forgotten; lrurun ledger gc or rm removes the rest"
    assert done.stderr == f"warning: {full.runs}/{first.id}/run.json: left out: {said}\n", "nothing to train again"
    with Ledger.open(full.ledger) as opened:
        assert first.id not in opened.run_ids()
        assert later.id in opened.run_ids()
    (full.runs / later.id / "run.json").write_text("{")
    lose(full)
    done = full.run("ledger", "rebuild")
    assert done.stdout == "ledger.db: 6 runs, 3 ladder instances\n"
    assert done.stderr.splitlines()[-1] == (
        "repeat the earlier lrurun ladder commands: they find what was kept and train what was left out; not those of "
        "forgotten instances, which they would train again: lrurun ledger forgotten lists these"
    )
    shutil.rmtree(full.runs / later.id)
    lose(full)
    found = full.json("ledger", "rebuild")
    assert (found["problems"], found["removals"]) == ([], len(full.json("ledger", "forgotten")["removals"]))
    assert found["forgotten"] == [f"{full.runs}/{first.id}/run.json"]


def test_what_was_forgotten_stays_so(full: Machine) -> None:
    with Ledger.read(full.ledger) as opened:
        run = opened.runs(states=["done"])[0].id
    full.run("ledger", "forget", "--where", f"id={run}", "--why", "a typo", "--yes")
    before, listed = rows_of(full.ledger), full.json("ledger", "forgotten")
    assert before["removals"][-1][1:6:3] == ("forgotten", "a typo")
    lose(full)
    full.run("ledger", "rebuild")
    assert rows_of(full.ledger) == before
    assert full.json("ledger", "forgotten") == listed
    with Ledger.read(full.ledger) as opened:
        assert run not in opened.run_ids()


def test_files_of_older_ledgers_are_read(full: Machine) -> None:
    """They say nothing of what is hidden."""
    for file in full.runs.glob("*/*.json"):
        record = json.loads(file.read_text())
        record["schema"] = "1001"
        record.pop("hidden", None)
        file.write_text(json.dumps(record))
    shutil.rmtree(full.runs / "removals")
    lose(full)
    rebuilt = rebuilding.rebuild(full.ledger, full.runs)
    assert (rebuilt.runs, rebuilt.ladders, rebuilt.problems) == (8, 3, [])
    assert raw(full.ledger, "SELECT * FROM hidden") == []


def test_a_removal_file_that_is_wrong_is_left_out(full: Machine) -> None:
    [path, other] = sorted((full.runs / "removals").iterdir())
    record = json.loads(path.read_text())
    record["removal"]["kind"] = "lost"
    path.write_text(json.dumps(record))
    other.rename(other.with_name("d4d4d4.json"))
    lose(full)
    problems = full.json("ledger", "rebuild")["problems"]
    assert problems == [
        f"{other.with_name('d4d4d4.json')}: left out: is the record of {other.stem}",
        f"{path}: left out: cannot be read: Invalid enum value 'lost' - at `$.removal.kind`",
    ]


def test_changes_of_tags_notes_and_exclusions_are_recorded(full: Machine) -> None:
    run = full.json("runs")["runs"][0]["id"]
    for change in (("--tag", "new"), ("--note", "hot"), ("--exclude", "too hot")):
        full.run("mark", run, *change)
        before = rows_of(full.ledger)
        lose(full)
        rebuilding.rebuild(full.ledger, full.runs)
        assert rows_of(full.ledger) == before
    shutil.rmtree(full.runs)
    full.run("mark", run, "--tag", "newer")
    assert not full.runs.exists(), "a run without a folder gets no record"


def test_a_running_run_is_rebuilt_as_interrupted_with_the_checkpoints_that_are_there(machine: Machine) -> None:
    with Ledger.open(machine.ledger) as opened:
        key = opened.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        [run] = opened.enqueue(key, [want()])
        held = take(opened, key, ME)
        opened.record(held, [(10, "train/loss", 0.5)], 10)
        for step in (10, 20):
            number = opened.begin_checkpoint(held, step, f"{run.id}/1/checkpoints/{step}")
            opened.commit_checkpoint(held, number, 100, f"sha256:{step}")
        opened.begin_checkpoint(held, 30, f"{run.id}/1/checkpoints/30")
    (machine.runs / run.id / "1/checkpoints/10").mkdir(parents=True)
    keep(machine)
    lose(machine)
    found = rebuilding.rebuild(machine.ledger, machine.runs)
    assert (found.runs, found.ladders, found.problems) == (1, 1, [])
    with Ledger.open(machine.ledger) as opened:
        assert opened.check() == []
        [rebuilt] = opened.runs()
        assert (rebuilt.state, rebuilt.step, rebuilt.last_loss) == ("interrupted", 10, 0.5)
        assert [(one.step, one.sha256) for one in opened.checkpoints(run.id)] == [(10, "sha256:10")]
        [attempt] = opened.attempts(run.id)
        assert attempt.ended_at is not None
        assert opened.requeue([run.id]) == 1
        assert take(opened, key, ME).attempt == 2


def test_a_run_that_was_started_over_for_one_ladder_is_rebuilt_in_all(machine: Machine) -> None:
    with Ledger.open(machine.ledger) as opened:
        keys = [opened.add_ladder(name, "sDigits", None, InstanceSpec()).key for name in ("one", "two")]
        for key in keys:
            opened.enqueue(key, [want()])
        opened.finish(take(opened, keys[0], ME), "done", result={"x": 1.0})
        opened.enqueue(keys[0], [want()], fresh=True)
        opened.finish(take(opened, keys[0], ME), "done", result={"x": 2.0})
    keep(machine)
    before = rows_of(machine.ledger)
    lose(machine)
    rebuilding.rebuild(machine.ledger, machine.runs)
    assert rows_of(machine.ledger) == before


def test_a_rebuild_that_fails_leaves_no_ledger(lost: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    restored = []

    def interrupted(ledger: Ledger) -> int:
        restored.append(ledger.run_ids())
        assert not lost.ledger.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "count_runs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rebuilding.rebuild(lost.ledger, lost.runs)
    assert len(restored[0]) == 8
    assert [path.name for path in lost.folder.iterdir()] == ["runs"]


def test_rebuild_does_not_overwrite(lost: Machine) -> None:
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-journal"):
        file = lost.folder / name
        file.write_bytes(b"x")
        error = lost.refused("ledger", "rebuild", code=5)
        assert f"{name} {'is not a ledger' if name == 'ledger.db' else 'exists, and is not overwritten'}" in error
        assert file.read_bytes() == b"x"
        file.unlink()
    shutil.rmtree(lost.runs)
    lost.refused("ledger", "rebuild", code=4)


def edit(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    record = json.loads(file.read_text())
    change(record)
    file.write_text(json.dumps(record))


BROKEN: list[Callable[[Path], Any]] = [
    lambda file: file.write_text("{"),
    Path.unlink,
    lambda file: edit(file, lambda record: record.update(schema="9999")),
    lambda file: edit(file, lambda record: record.update(run=1)),
    lambda file: file.write_text(file.read_text().replace('"state":"', '"state":"un', 1)),
    lambda file: edit(file, lambda record: record.update(attempts=record["attempts"] * 2)),
]
STRANGE: list[Callable[[dict[str, Any]], Any]] = [
    lambda record: record["run"].update(seed=2**70),
    lambda record: record["curves"].update(x={"steps": [1], "values": []}),
    lambda record: record["config"].update(task=1),
    lambda record: record["execution"].update(threads="many"),
    lambda record: record["events"][0].update(attempt=2**70),
]
STRANGE_LADDERS: list[Callable[[dict[str, Any]], Any]] = [
    lambda record: record["ladder"]["spec"].update(set=1),
    lambda record: record["places"][0].update(position=2**70),
]


def test_records_that_cannot_be_read_are_left_out_and_named(lost: Machine) -> None:
    bad = sorted(lost.runs.glob("*/run.json"))[: len(BROKEN)]
    for file, change in zip(bad, BROKEN, strict=True):
        change(file)
    done = lost.run("ledger", "rebuild")
    assert done.stdout == "ledger.db: 2 runs, 3 ladder instances\n"
    assert len(done.stderr.splitlines()) == 1 + len(bad)  # the last one says what to do
    assert [str(file.relative_to(lost.folder)) in done.stderr for file in bad] == [True] * len(bad)


@pytest.mark.parametrize(
    ("where", "changes", "left"),
    [("[0-9a-f]*/run.json", STRANGE, "3 runs, 3"), ("ladders/*.json", STRANGE_LADDERS, "8 runs, 1")],
    ids=["runs", "ladders"],
)
def test_records_that_no_reader_would_understand_are_left_out(
    lost: Machine, where: str, changes: list[Callable[[dict[str, Any]], Any]], left: str
) -> None:
    *_, last = files = sorted(lost.runs.glob(where))
    shutil.copytree(lost.runs / last.parent.name, lost.runs / "0123456789ab")  # a copy of a record
    bad = files[: len(changes)]
    for file, change in zip(bad, changes, strict=True):
        edit(file, change)
    done = lost.run("ledger", "rebuild")
    assert done.stdout.startswith(f"ledger.db: {left} ladder instance")
    said = "".join(done.stderr.split())
    assert [str(file.relative_to(lost.folder)) in said for file in bad] == [True] * len(bad)
    assert where.startswith("ladders") or f"leftout:istherecordof{last.parent.name}" in said
    assert len(lost.json("runs")["runs"]) == int(left[0])
    lost.run("status")


def test_a_place_that_a_record_lists_twice_is_restored_once(full: Machine) -> None:
    before = rows_of(full.ledger)
    lose(full)
    for file in (full.runs / "ladders").glob("*.json"):
        edit(file, lambda record: record.update(places=record["places"] * 2))
    assert rebuilding.rebuild(full.ledger, full.runs).problems == []
    assert rows_of(full.ledger) == before


def test_commands_name_rebuild_beside_a_full_runs_folder(lost: Machine) -> None:
    for command in (("status",), ("resume",), ("show", "abc"), ("ledger", "check"), ("ledger", "backup")):
        assert "lrurun ledger rebuild" in lost.run(*command, code=None).stderr, command
    for is_empty in (False, True):  # no ledger, or an empty one: nothing is trained again
        if is_empty:
            Ledger.open(lost.ledger).close()
        for more in ((), ("--dry-run",)):
            assert "lrurun ledger rebuild" in lost.run("ladder", *SMOKE, *more, code=2).stderr
        lost.run("ladder", *SMOKE, "--dry-run", "--runs-dir", "others")


def test_a_merge_brings_records(full: Machine, machine: Machine) -> None:
    shutil.rmtree(full.runs)
    with Ledger.open(full.ledger) as opened:
        for run in opened.run_ids():
            (full.runs / run / "1").mkdir(parents=True)
    machine.run("ledger", "merge", str(full.ledger))
    before = rows_of(machine.ledger)
    lose(machine)
    machine.run("ledger", "rebuild")
    assert rows_of(machine.ledger) == before


@pytest.mark.slow
def test_a_ledger_on_a_server_is_rebuilt(full: Machine, postgres: Any) -> None:
    before = rows_of(full.ledger)
    server = postgres.ledger()
    rebuilding.rebuild(server, full.runs)
    with pytest.raises(LedgerError, match="has runs"):
        rebuilding.rebuild(server, full.runs)
    lose(full)
    with Ledger.open(full.ledger) as ledger, Ledger.open(server) as there:
        merging.merge(ledger, there, full.runs, full.runs)
    assert rows_of(full.ledger) == before
    postgres.drop(server)


# Ladders that were trained


def documents(machine: Machine) -> list[dict[str, Any]]:
    """What commands say of all runs."""
    runs = machine.json("runs")
    shown = [machine.json("show", run["id"]) for run in runs["runs"]]
    return [runs, machine.json("report", *SMOKE), machine.json("status"), *shown]


@pytest.mark.slow
def test_a_ledger_that_is_deleted_after_a_ladder(finished: Machine, tmp_path: Path) -> None:
    machine = finished.copy(tmp_path / "here")
    before, rows = documents(machine), rows_of(machine.ledger)
    lose(machine)
    machine.run("ledger", "rebuild")
    assert documents(machine) == before
    assert rows_of(machine.ledger) == rows
    run = before[0]["runs"][0]["id"]
    assert machine.json("verify", run)["verdict"] == "equal"
    assert "nothing to do" in machine.run(*FINISHED_LADDER).stderr


@pytest.mark.slow
def test_a_ledger_that_is_damaged_while_a_ladder_trains(machine: Machine, long_history: dict[Any, Any]) -> None:
    command = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--jobs", "1")
    process = machine.start(*command)
    wait_for(lambda: any(json.loads(file.read_text())["checkpoints"] for file in machine.runs.glob("*/run.json")))
    stop(process, signal.SIGKILL)
    process.communicate(timeout=60)
    with machine.ledger.open("r+b") as file:
        file.write(b"\xa5" * 4096)
    for name in ("ledger.db-wal", "ledger.db-shm"):
        (machine.folder / name).unlink()
    assert "lrurun ledger rebuild" in machine.run("status", code=5).stderr
    for file in machine.folder.glob("ledger.db*"):
        file.rename(machine.folder / f"damaged-{file.name}")
    machine.run("ledger", "rebuild")
    assert machine.states() == {"interrupted": 1}
    machine.run(*command)
    assert machine.history() == {key: long_history[key] for key in [("gamma-norm", "train", 0)]}
    [attempts] = machine.attempts().values()
    assert attempts[-1].n == 2
    assert attempts[-1].resumed_from

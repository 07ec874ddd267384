"""Records of runs and ladders in the runs folder."""

from __future__ import annotations

import contextlib
import math
import shutil
import sqlite3
from pathlib import Path

import pytest

from lrurun import paths
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.records import LadderRecord, RunRecord, decode
from lrurun.runner import records
from lrurun.runner.storage import storage_for
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.stores import keep_all, want


@pytest.fixture
def folder(machine: Machine) -> Path:
    return machine.folder


def test_records_have_the_values_of_the_ledger(folder: Path) -> None:
    spectrum = {"start": [complex(0.5, math.inf)]}
    more = {"best_step": 3, "other": -math.inf}
    fill(folder / "ledger.db", "sDigits", {"tanh-rnn": [0.5], "gamma-norm": [0.1]}, eigenvalues=spectrum, more=more)
    with Ledger.open(folder / "ledger.db") as ledger:
        [instance] = ledger.ladders()
        ledger.event("tuned", "é", ladder=instance.key)
        for run_id in ledger.run_ids():
            (folder / "runs" / run_id).mkdir(parents=True)
        keep_all(ledger, folder / "runs")
        for run_id in ledger.run_ids():
            record = decode((folder / "runs" / run_id / "run.json").read_bytes(), RunRecord)
            assert record == ledger.run_record(run_id)
            assert record.result == ledger.run(run_id).result
            assert type(record.result["best_step"]) is int
            assert record.eigenvalues == {"start": [[(0.5, math.inf)], None]}
            assert {name: list(zip(one.steps, one.values, strict=True)) for name, one in record.curves.items()} == (
                ledger.metrics(run_id)
            )
        record = decode((folder / "runs" / "ladders" / f"{instance.key}.json").read_bytes(), LadderRecord)
        assert (record.ladder, [event.text for event in record.events]) == (instance, ["é"])
        assert [(place.run, place.rung) for place in record.places] == [
            (run.id, run.memberships[0].rung) for run in reversed(ledger.runs())
        ]


def test_a_record_that_cannot_be_written_is_an_event(machine: Machine, folder: Path) -> None:
    fill(folder / "ledger.db", "sDigits", {"tanh-rnn": [0.5]})
    with Ledger.open(folder / "ledger.db") as ledger:
        [run] = ledger.run_ids()
    (folder / "runs" / run / "run.json").mkdir(parents=True)
    done = machine.run("mark", run, "--tag", "new")
    assert (done.stdout, done.stderr) == (f"run {run}: tags new\n", "")
    with Ledger.open(folder / "ledger.db") as ledger:
        assert [event.kind for event in ledger.events(run=run)][-1] == "record"


def test_places_that_another_process_adds_meanwhile_are_recorded(folder: Path, monkeypatch) -> None:
    fill(folder / "ledger.db", "sDigits", {"tanh-rnn": [0.5]})
    (folder / "runs").mkdir()
    write = records._write
    with Ledger.open(folder / "ledger.db") as ledger:
        [instance] = ledger.ladders()

        def write_late(runs: Path, path: Path, content: bytes) -> None:
            ledger.enqueue(instance.key, [want()])
            write(runs, path, content)

        monkeypatch.setattr(records, "_write", write_late)
        records.keep_ladder(ledger, folder / "runs", instance.key)
        record = decode((folder / "runs/ladders" / f"{instance.key}.json").read_bytes(), LadderRecord)
        assert record == ledger.ladder_record(instance.key)


@pytest.mark.parametrize("is_remote", [False, True])
def test_records_of_another_ledger_are_kept_beside_the_new_ones(
    machine: Machine, folder: Path, is_remote: bool
) -> None:
    """As of one that was lost, before the same command is given again, also on another machine."""
    store = folder / "store"
    runs = folder / (paths._mirror_name(f"file://{store}", "--runs-dir") if is_remote else "runs")
    for name, score in (("lost.db", 0.5), ("new.db", 0.6)):
        fill(folder / name, "sDigits", {"tanh-rnn": [score]})
        with Ledger.open(folder / name) as ledger:
            [run], [instance] = ledger.run_ids(), ledger.ladders()
            (runs / run).mkdir(parents=True, exist_ok=True)
            for _ in range(2):  # its own records are replaced
                keep_all(ledger, runs)
            created = ledger.run(run).created_at
        if is_remote:
            shutil.rmtree(runs)
            assert storage_for(runs).fetch(runs / run / "run.json").is_file()
        own = decode((runs / run / "run.json").read_bytes(), RunRecord)
        assert own.run.created_at == created
    kept = store if is_remote else runs
    [older] = (kept / run).glob("run.json.*")
    assert len(list((kept / "ladders").glob("*.json.*"))) == 1
    assert (kept / "ladders" / f"{instance.key}.json").is_file()
    if not is_remote:
        err = machine.run("--ledger", "again.db", "--runs-dir", "runs", "ledger", "rebuild").stderr
        assert f"{older.name}: not used: an older record of this run" in err.replace("\n", " ")


def test_a_key_of_a_ladder_leads_nowhere_else(folder: Path) -> None:
    fill(folder / "ledger.db", "sDigits", {"tanh-rnn": [0.5]})
    with contextlib.closing(sqlite3.connect(folder / "ledger.db")) as connection, connection:
        connection.execute("UPDATE ladders SET key = '../../evil'")
    (folder / "runs").mkdir()
    with Ledger.open(folder / "ledger.db") as ledger:
        keep_all(ledger, folder / "runs")
        assert [event.kind for event in ledger.events(ladder_key="../../evil", of_runs=False)][-1] == "record"
    assert not list(folder.parent.rglob("evil.json"))

"""Run files and ladder files in the runs folder."""

from __future__ import annotations

import contextlib
import math
import shutil
import sqlite3
from pathlib import Path

import pytest

from lrurun import paths
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.run_files import LadderFile, RunFile, decode
from lrurun.runner import run_files
from lrurun.runner.storage import storage_for
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.stores import keep_all, want


@pytest.fixture
def folder(machine: Machine) -> Path:
    return machine.folder


def test_run_files_have_the_values_of_the_ledger(folder: Path) -> None:
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
            content = decode((folder / "runs" / run_id / "run.json").read_bytes(), RunFile)
            assert content == ledger.run_file(run_id)
            assert content.result == ledger.run(run_id).result
            assert type(content.result["best_step"]) is int
            assert content.eigenvalues == {"start": [[(0.5, math.inf)], None]}
            assert {name: list(zip(one.steps, one.values, strict=True)) for name, one in content.curves.items()} == (
                ledger.metrics(run_id)
            )
        content = decode((folder / "runs" / "ladders" / f"{instance.key}.json").read_bytes(), LadderFile)
        assert (content.ladder, [event.text for event in content.events]) == (instance, ["é"])
        assert [(membership.run, membership.rung) for membership in content.memberships] == [
            (run.id, run.memberships[0].rung) for run in reversed(ledger.runs())
        ]


def test_a_file_that_cannot_be_written_is_an_event(machine: Machine, folder: Path) -> None:
    fill(folder / "ledger.db", "sDigits", {"tanh-rnn": [0.5]})
    with Ledger.open(folder / "ledger.db") as ledger:
        [run] = ledger.run_ids()
    (folder / "runs" / run / "run.json").mkdir(parents=True)
    done = machine.run("mark", run, "--tag", "new")
    assert (done.stdout, done.stderr) == (f"run {run}: tags new\n", "")
    with Ledger.open(folder / "ledger.db") as ledger:
        assert [event.kind for event in ledger.events(run=run)][-1] == "record"


def test_runs_that_another_process_adds_meanwhile_are_recorded(folder: Path, monkeypatch) -> None:
    fill(folder / "ledger.db", "sDigits", {"tanh-rnn": [0.5]})
    (folder / "runs").mkdir()
    write = run_files._write
    with Ledger.open(folder / "ledger.db") as ledger:
        [instance] = ledger.ladders()

        def write_late(runs: Path, path: Path, content: bytes) -> None:
            ledger.enqueue(instance.key, [want()])
            write(runs, path, content)

        monkeypatch.setattr(run_files, "_write", write_late)
        run_files.keep_ladder(ledger, folder / "runs", instance.key)
        content = decode((folder / "runs/ladders" / f"{instance.key}.json").read_bytes(), LadderFile)
        assert content == ledger.ladder_file(instance.key)


@pytest.mark.parametrize("is_remote", [False, True])
def test_files_of_another_ledger_are_kept_beside_the_new_ones(machine: Machine, folder: Path, is_remote: bool) -> None:
    """As of one that was lost, before the same command is given again, also on another machine."""
    store = folder / "store"
    runs = folder / (paths._mirror_name(f"file://{store}", "--runs-dir") if is_remote else "runs")
    for name, score in (("lost.db", 0.5), ("new.db", 0.6)):
        fill(folder / name, "sDigits", {"tanh-rnn": [score]})
        with Ledger.open(folder / name) as ledger:
            [run], [instance] = ledger.run_ids(), ledger.ladders()
            (runs / run).mkdir(parents=True, exist_ok=True)
            for _ in range(2):  # its own files are replaced
                keep_all(ledger, runs)
            created = ledger.run(run).created_at
        if is_remote:
            shutil.rmtree(runs)
            assert storage_for(runs).fetch(runs / run / "run.json").is_file()
        own = decode((runs / run / "run.json").read_bytes(), RunFile)
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

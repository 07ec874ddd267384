"""Copies of ledgers, one ledger into another, everything written out, and checkpoints that nothing needs."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lrurun.errors import LrurunError
from lrurun.ledger import copies, owner
from lrurun.ledger.store import Ledger
from lrurun.ledger.values import Wanted

ME = owner.here()


def want(rung: str, seed: int) -> Wanted:
    return Wanted(
        fingerprint="sha256:" + hashlib.sha256(f"{rung} {seed}".encode()).hexdigest(),
        task="sDigits",
        rung=rung,
        stage="train",
        seed=seed,
        steps=100,
        config={"model": {"rung": rung}, "seed": seed},
        execution={"threads": 1},
        provenance={},
        position=seed,
    )


class Here:
    """A ledger with its runs folder, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.path, self.runs = folder / "ledger.db", folder / "runs"
        with Ledger.open(self.path) as ledger:
            self.key = ledger.add_ladder("lru", "sDigits", None, {"set": {}, "tune": False}).key

    def run(self, rung: str, seed: int, state: str | None, score: float = 0.5, step: int = 100) -> str:
        """Queues a run, and with a state takes it there; its id."""
        with Ledger.open(self.path) as ledger:
            (run,) = ledger.enqueue(self.key, [want(rung, seed)])
            if state is None:
                return run.id
            ledger.requeue([run.id])
            claim = ledger.claim(self.key, ME, rungs=[rung], seeds=[seed], environment={"device": "cpu"})
            assert claim
            ledger.record(claim, [(10, "train/loss", score), (20, "train/loss", math.nan)], 20)
            number = ledger.saving(claim, step, f"{run.id}/{claim.attempt}/checkpoints/{step}")
            folder = self.runs / run.id / str(claim.attempt) / "checkpoints" / str(step)
            folder.mkdir(parents=True)
            (folder / "data").write_text(f"{rung} {seed} {score}")
            ledger.committed(claim, number, 10, "sha256:0")
            if state != "running":
                result = {"val/accuracy": score} if state == "done" else None
                ledger.finish(claim, state, result=result, reason=state, step=step)
        return run.id

    def merge(self, other: Here) -> copies.Merged:
        return copies.merge(self.path, other.path, self.runs, other.runs)

    def scores(self) -> dict[tuple[str, int], tuple[str, float | None]]:
        with Ledger.open(self.path) as ledger:
            return {
                (run.memberships[0].rung, run.seed): (run.state, (run.result or {}).get("val/accuracy"))
                for run in ledger.runs()
            }

    def lrurun(self, *words: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "lrurun", "--ledger", str(self.path), "ledger", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Here:
    return Here(tmp_path / "there")


def rows(path: Path, table: str) -> list[Any]:
    with sqlite3.connect(path) as connection:
        return sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr)


TABLES = ("ladders", "runs", "ladder_runs", "attempts", "metric_keys", "metrics", "checkpoints", "events")
TABLES += ("tags", "exclusions")


def test_merge_brings_each_run_once(here: Here, there: Here) -> None:
    here.run("both", 0, "done", 0.9)
    here.run("mine", 0, "done", 0.8)
    here.run("half", 0, "interrupted")
    here.run("queued", 0, None)
    there.run("both", 0, "done", 0.1)
    there.run("theirs", 0, "done", 0.7)
    half = there.run("half", 0, "done", 0.6)
    there.run("queued", 0, "diverged")
    running = there.run("busy", 0, "running")
    with Ledger.open(there.path) as ledger:
        ledger.tag(half, ["good"])
        ledger.exclude(running, "a test of the queue")
    found = here.merge(there)
    assert found == copies.Merged(new=2, finished=2, known=1, held=0, checkpoints=4)
    assert here.scores() == {
        ("both", 0): ("done", 0.9),  # what is finished here stays
        ("mine", 0): ("done", 0.8),
        ("half", 0): ("done", 0.6),
        ("queued", 0): ("diverged", None),
        ("theirs", 0): ("done", 0.7),
        ("busy", 0): ("interrupted", None),
    }
    with Ledger.open(here.path) as ledger:
        assert ledger.check() == []
        assert [a.n for a in ledger.attempts(half)] == [1, 2]  # the one here, then the one there
        (loss,) = ledger.metrics(half).values()
        assert loss[0] == (10, 0.6)
        assert math.isnan(loss[1][1])
        (kept,) = ledger.checkpoints(half)
        assert (kept.attempt, kept.path) == (2, f"{half}/2/checkpoints/100")
        assert (here.runs / kept.path / "data").read_text() == "half 0 0.6"
        assert ledger.run(half).tags == ("good",)
        assert ledger.run(running).excluded == "a test of the queue"
        (attempt,) = ledger.attempts(running)
        assert attempt.reason == "interrupted: merged while it ran"
        # and it can go on from its checkpoint
        ledger.requeue([running])
        claim = ledger.claim(here.key, ME, rungs=["busy"])
        assert claim
        assert claim.attempt == 2
        assert ledger.checkpoints(running)[0].path == f"{running}/1/checkpoints/100"


def test_merging_twice_and_merging_with_oneself_change_nothing(here: Here, there: Here) -> None:
    here.run("mine", 0, "done")
    there.run("theirs", 0, "done")
    here.merge(there)
    before = {table: rows(here.path, table) for table in TABLES}
    assert here.merge(there) == copies.Merged(new=0, finished=0, known=1, held=0, checkpoints=0)
    assert {table: rows(here.path, table) for table in TABLES} == before
    assert "is this ledger itself" in here.lrurun("merge", str(here.path), code=2)
    assert {table: rows(here.path, table) for table in TABLES} == before


def test_what_runs_here_is_left_to_its_worker(here: Here, there: Here) -> None:
    run = here.run("busy", 0, "running")
    there.run("busy", 0, "done")
    assert here.merge(there) == copies.Merged(new=0, finished=0, known=1, held=1, checkpoints=0)
    with Ledger.open(here.path) as ledger:
        assert ledger.run(run).state == "running"


def test_of_several_generations_the_newest_counts(here: Here, there: Here) -> None:
    here.run("ring", 0, "done", 0.4)
    there.run("ring", 0, "done", 0.5)
    with Ledger.open(there.path) as ledger:
        ledger.enqueue(there.key, [want("ring", 0)], fresh=True)
    there.run("ring", 0, "done", 0.6)
    here.merge(there)
    with Ledger.open(here.path) as ledger:
        found = {
            run.generation: (run.superseded, (run.result or {})["val/accuracy"]) for run in ledger.runs(superseded=True)
        }
    assert found == {1: (True, 0.4), 2: (False, 0.6)}


def test_a_merge_that_cannot_copy_changes_nothing(here: Here, there: Here) -> None:
    there.run("one", 0, "done")
    second = there.run("two", 0, "done")
    here.runs.mkdir()
    (here.runs / second).write_text("in the way")
    before = {table: rows(here.path, table) for table in TABLES}
    with pytest.raises(LrurunError, match=r"File exists|Not a directory"):
        here.merge(there)
    assert {table: rows(here.path, table) for table in TABLES} == before
    assert not any(here.runs.rglob("data"))


def test_merge_refuses_what_is_no_ledger(here: Here, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("words " * 200)
    assert "is not a ledger" in here.lrurun("merge", str(tmp_path / "text"), code=5)
    assert "there is no ledger" in here.lrurun("merge", str(tmp_path / "none"), code=4)


def test_backup_is_the_ledger_at_one_moment(here: Here, tmp_path: Path) -> None:
    here.run("mine", 0, "done")
    with Ledger.open(here.path):  # others may have it open
        here.lrurun("backup", "--out", str(tmp_path / "copy.db"))
    assert not list(tmp_path.glob(".copy*"))
    for table in TABLES:
        assert rows(tmp_path / "copy.db", table) == rows(here.path, table)
    assert "is there already" in here.lrurun("backup", "--out", str(tmp_path / "copy.db"), code=1)
    said = here.lrurun("backup")
    (beside,) = here.path.parent.glob("ledger.db.backup-*")
    assert str(beside) in said


def test_export_has_every_row(here: Here, tmp_path: Path) -> None:
    run = here.run("=mine", 0, "done", 0.25)
    lines = [json.loads(line) for line in here.lrurun("export").splitlines()]
    by_table = {table: [line for line in lines if line["table"] == table] for table in copies.EXPORTED}
    assert {table: len(found) for table, found in by_table.items()} == {
        table: len(rows(here.path, table)) for table in copies.EXPORTED
    }
    assert by_table["metrics"][0] == {"table": "metrics", "run": run, "key": "train/loss", "step": 10, "value": 0.25}
    assert by_table["metrics"][1]["value"] is None
    assert by_table["runs"][0]["config"] == {"model": {"rung": "=mine"}, "seed": 0}
    here.lrurun("export", "--format", "csv", "--out", str(tmp_path / "tables"))
    with (tmp_path / "tables" / "ladder_runs.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["run"], row["rung"]) == (run, "'=mine")  # no formula
    assert sorted(p.stem for p in (tmp_path / "tables").iterdir()) == sorted(copies.EXPORTED)
    here.lrurun("export", "--out", str(tmp_path / "all.jsonl"))
    assert [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()] == lines
    assert "is there already" in here.lrurun("export", "--out", str(tmp_path / "all.jsonl"), code=1)
    assert "--out FOLDER" in here.lrurun("export", "--format", "csv", code=2)


def test_gc_takes_what_nothing_needs(here: Here) -> None:
    done, half = here.run("done", 0, "done"), here.run("half", 0, "interrupted")
    busy = here.run("busy", 0, "running")
    for run in (done, half, busy):
        (here.runs / run / "1" / "checkpoints" / "60.orbax-checkpoint-tmp-1").mkdir()
    (here.runs / half / "1.old-5").mkdir()
    (here.runs / "another" / "1" / "checkpoints" / "5").mkdir(parents=True)
    with Ledger.open(here.path) as ledger:
        ledger.enqueue(here.key, [want("done", 0)], fresh=True)  # supersedes
    listed = here.lrurun("gc", "--dry-run")
    assert "4 folders with 0.0 MB would go" in listed
    everything = sorted(here.runs.rglob("*"))
    assert sorted(here.runs.rglob("*")) == everything
    assert "4 folders" in here.lrurun("gc")
    left = sorted(str(p.relative_to(here.runs)) for p in here.runs.glob("*/*/checkpoints/*"))
    of_busy = [f"{busy}/1/checkpoints/{name}" for name in ("100", "60.orbax-checkpoint-tmp-1")]
    assert left == sorted(["another/1/checkpoints/5", f"{half}/1/checkpoints/100", *of_busy])
    with Ledger.open(here.path) as ledger:
        assert ledger.checkpoints(done) == []
        assert len(ledger.checkpoints(half)) == 1
        assert ledger.check() == []


def test_gc_of_finished_runs_is_asked_for(here: Here) -> None:
    done = here.run("done", 0, "done")
    here.lrurun("gc")
    assert (here.runs / done / "1/checkpoints/100").is_dir()
    here.lrurun("gc", "--finished")
    assert not (here.runs / done / "1/checkpoints/100").exists()
    assert os.listdir(here.runs / done / "1/checkpoints") == []

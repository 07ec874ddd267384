"""Backup, merge and export of ledgers, and checkpoints that are no longer needed."""

from __future__ import annotations

import contextlib
import csv
import json
import lzma
import math
import os
import sqlite3
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lrurun.config.runs import InstanceSpec
from lrurun.errors import LedgerError, LrurunError
from lrurun.ledger import backups, exporting, merging
from lrurun.ledger.ledger import Ledger
from lrurun.runner import run_files
from lrurun.server import Location
from tests.harness.configs import config
from tests.harness.machine import Machine
from tests.harness.stores import ME, SERVER, drop_trigger, machine_with, raw, want

TABLES = ("ladders", "runs", "ladder_runs", "attempts", "metric_keys", "metrics", "checkpoints", "events")
TABLES += ("tags", "exclusions", "eigenvalues", "test_sets", "item_results")


def key_of(ledger: Ledger) -> str:
    return ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key


def add(machine: Machine, rung: str, seed: int, state: str | None, score: float = 0.5, step: int = 100) -> str:
    """Queues a run, and with a state takes it there; its id."""
    with Ledger.open(machine.ledger) as ledger:
        key = key_of(ledger)
        (run,) = ledger.enqueue(key, [want(rung, seed, seed)])
        if state is None:
            return run.id
        ledger.requeue([run.id])
        held = ledger.hold(key, ME, rungs=[rung], seeds=[seed], environment={"device": "cpu"})
        assert held
        ledger.record(held, [(10, "train/loss", score), (20, "train/loss", math.nan)], 20)
        ledger.record_eigenvalues(held, "start", [[complex(score, math.inf)], None])
        number = ledger.begin_checkpoint(held, step, f"{run.id}/{held.attempt}/checkpoints/{step}")
        folder = machine.runs / run.id / str(held.attempt) / "checkpoints" / str(step)
        folder.mkdir(parents=True)
        (folder / "data").write_text(f"{rung} {seed} {score}")
        ledger.commit_checkpoint(held, number, 10, "sha256:0")
        if state != "running":
            result = {"val/accuracy": score} if state == "done" else None
            ledger.finish(held, state, result=result, reason=state, step=step)
    return run.id


def merge(here: Machine, there: Machine) -> merging.Merged:
    with Ledger.open(here.ledger) as ledger, Ledger.open(there.ledger) as other:
        return merging.merge(ledger, other, here.runs, there.runs)[0]


def scores(machine: Machine) -> dict[tuple[str, int], tuple[str, float | None]]:
    with Ledger.open(machine.ledger) as ledger:
        return {
            (run.memberships[0].rung, run.seed): (run.state, (run.result or {}).get("val/accuracy"))
            for run in ledger.runs()
        }


def everything(machine: Machine) -> dict[str, list[Any]]:
    return {table: rows(machine.ledger, table) for table in TABLES}


def rows(path: Location, table: str) -> list[Any]:
    return sorted(raw(path, f"SELECT * FROM {table}"), key=repr)


@pytest.fixture(params=["file", SERVER])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """A folder with an empty ledger, which may be on a server."""
    yield from machine_with(request.param, tmp_path / "here", request)


@pytest.fixture
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """Another one, in a file if not parametrized."""
    yield from machine_with(getattr(request, "param", "file"), tmp_path / "there", request)


on_file = pytest.mark.parametrize("here", ["file"], indirect=True)
on_both = pytest.mark.parametrize("there", ["file", SERVER], indirect=True)


def test_merged_runs_keep_their_settings(here: Machine, there: Machine) -> None:
    """The ledgers number equal texts differently."""
    add(here, "queued", 0, None)
    add(here, "mine", 0, "done")
    for seed in range(3):
        add(there, "theirs", seed, "done")
    half = add(there, "mine", 1, "done")
    add(here, "mine", 1, "interrupted")
    columns = "fingerprint, config, execution, provenance"
    texts = set(raw(there.ledger, f"SELECT {columns} FROM runs"))
    environments = raw(there.ledger, "SELECT DISTINCT environment FROM attempts")
    merge(here, there)
    assert texts < set(raw(here.ledger, f"SELECT {columns} FROM runs"))
    assert raw(here.ledger, "SELECT DISTINCT environment FROM attempts") == environments
    assert raw(here.ledger, "SELECT count(DISTINCT config_id) FROM stored_runs") == [(3,)]
    with Ledger.open(here.ledger) as ledger:
        assert ledger.run(half).config == config({"data": {"rung": "mine"}, "seed": 1})
        assert ledger.check() == []


@on_file
def test_a_ledger_with_altered_settings_is_not_merged(here: Machine, there: Machine) -> None:
    """Its text with a false hash would become the settings of other runs."""
    add(there, "theirs", 0, "done")
    before = rows(here.ledger, "documents")
    drop_trigger(there.ledger, "documents_stay", "documents")
    raw(there.ledger, "UPDATE documents SET text = replace(text, 'theirs', 'others')")
    assert (
        "has settings that do not match their hashes" in here.run("ledger", "merge", str(there.ledger), code=5).stderr
    )
    assert rows(here.ledger, "documents") == before
    assert (
        "1 document with settings or an environment changed after being hashed"
        in there.run("ledger", "check", code=1).stdout
    )
    with Ledger.open(there.ledger) as ledger, pytest.raises(LedgerError, match="do not match their hashes"):
        ledger.enqueue(key_of(ledger), [want("theirs", 1)])


@on_both
def test_merge_brings_each_run_once(here: Machine, there: Machine) -> None:
    add(here, "both", 0, "done", 0.9)
    add(here, "mine", 0, "done", 0.8)
    add(here, "half", 0, "interrupted")
    add(here, "queued", 0, None)
    add(there, "both", 0, "done", 0.1)
    add(there, "theirs", 0, "done", 0.7)
    half = add(there, "half", 0, "done", 0.6)
    add(there, "queued", 0, "diverged")
    running = add(there, "busy", 0, "running")
    with Ledger.open(there.ledger) as ledger:
        ledger.mark([half], tag=["good"])
        ledger.mark([running], exclude="a test of the queue")
    found = merge(here, there)
    assert found == merging.Merged(new=2, finished=2, known=1, held=0, checkpoints=4)
    assert scores(here) == {
        ("both", 0): ("done", 0.9),  # what is finished here stays
        ("mine", 0): ("done", 0.8),
        ("half", 0): ("done", 0.6),
        ("queued", 0): ("diverged", None),
        ("theirs", 0): ("done", 0.7),
        ("busy", 0): ("interrupted", None),
    }
    with Ledger.open(here.ledger) as ledger:
        assert ledger.check() == []
        assert [a.n for a in ledger.attempts(half)] == [1, 2]  # the one here, then the one there
        (loss,) = ledger.metrics(half).values()
        assert loss[0] == (10, 0.6)
        assert math.isnan(loss[1][1])
        assert ledger.eigenvalues(half) == {"start": [[complex(0.6, math.inf)], None]}
        (kept,) = ledger.checkpoints(half)
        assert (kept.attempt, kept.path) == (2, f"{half}/2/checkpoints/100")
        assert (here.runs / kept.path / "data").read_text() == "half 0 0.6"
        assert ledger.run(half).tags == ("good",)
        assert ledger.run(running).excluded == "a test of the queue"
        (attempt,) = ledger.attempts(running)
        assert attempt.reason == "interrupted: merged while it ran"
        assert attempt.ended_at == attempt.heartbeat_at
        # and it can go on from its checkpoint
        ledger.requeue([running])
        held = ledger.hold(key_of(ledger), ME, rungs=["busy"])
        assert held
        assert held.attempt == 2
        assert ledger.checkpoints(running)[0].path == f"{running}/1/checkpoints/100"


@on_file
def test_merge_brings_what_people_said_about_runs_that_both_have(here: Machine, there: Machine) -> None:
    both, silent = [add(here, name, 0, "done") for name in ("both", "silent")]
    for name in ("both", "silent"):
        add(there, name, 0, "done")
    with Ledger.open(here.ledger) as ledger, Ledger.open(there.ledger) as other:
        ledger.mark([both], note="hot", exclude="hot")
        other.mark([both], note="loud", exclude="loud", tag=["new"])
        said = [(event.kind, event.text) for event in ledger.events(run=both) + other.events(run=both)[-2:]]
        for _ in range(2):
            _, changed = merging.merge(ledger, other, here.runs, there.runs)
            assert [(event.kind, event.text) for event in ledger.events(run=both)] == said
            assert changed == [both]  # the records of the others are not written again
        assert ledger.run(both).excluded == "hot"
        assert "loud" not in [event.text for event in ledger.events(run=silent)]


@on_file
def test_merging_twice_with_itself_or_with_no_ledger_changes_nothing(
    here: Machine, there: Machine, tmp_path: Path
) -> None:
    add(here, "mine", 0, "done")
    add(there, "theirs", 0, "done")
    merge(here, there)
    before = everything(here)
    assert merge(here, there) == merging.Merged(new=0, finished=0, known=1, held=0, checkpoints=0)
    assert everything(here) == before
    (tmp_path / "text").write_text("words " * 200)
    assert "is not a ledger" in here.refused("ledger", "merge", str(tmp_path / "text"), code=5)
    assert "there is no ledger" in here.refused("ledger", "merge", str(tmp_path / "none"), code=4)
    assert "is this ledger" in here.run("ledger", "merge", str(here.ledger), code=2).stderr
    assert everything(here) == before


@on_file
def test_a_run_that_is_running_here_is_not_merged(here: Machine, there: Machine) -> None:
    run = add(here, "busy", 0, "running")
    add(there, "busy", 0, "done")
    assert merge(here, there) == merging.Merged(new=0, finished=0, known=1, held=1, checkpoints=0)
    with Ledger.open(here.ledger) as ledger:
        assert ledger.run(run).state == "running"


@on_file
def test_the_newest_generation_counts(here: Machine, there: Machine) -> None:
    add(here, "ring", 0, "done", 0.4)
    add(there, "ring", 0, "done", 0.5)
    with Ledger.open(there.ledger) as ledger:
        ledger.enqueue(key_of(ledger), [want("ring", 0)], fresh=True)
    add(there, "ring", 0, "done", 0.6)
    merge(here, there)
    with Ledger.open(here.ledger) as ledger:
        found = {
            run.generation: (run.superseded, (run.result or {})["val/accuracy"]) for run in ledger.runs(superseded=True)
        }
    assert found == {1: (True, 0.4), 2: (False, 0.6)}


@on_file
def test_a_merge_that_cannot_copy_changes_nothing(here: Machine, there: Machine) -> None:
    add(there, "one", 0, "done")
    second = add(there, "two", 0, "done")
    here.runs.mkdir()
    (here.runs / second).write_text("in the way")
    before = everything(here)
    with pytest.raises(LrurunError, match=r"File exists|Not a directory"):
        merge(here, there)
    assert everything(here) == before
    assert not any(here.runs.rglob("data"))


@on_file
def test_ledgers_may_share_their_runs_folder(here: Machine, there: Machine) -> None:
    there.runs = here.runs
    stopped = add(there, "one", 0, "interrupted")
    assert merge(here, there) == merging.Merged(new=1, finished=0, known=0, held=0, checkpoints=1)
    for side in (here, there):
        with Ledger.open(side.ledger) as ledger:
            (checkpoint,) = ledger.checkpoints(stopped)
        assert (here.runs / checkpoint.path / "data").read_text() == "one 0 0.5"
    assert [folder.name for folder in (here.runs / stopped).iterdir()] == ["1"]


@on_file
def test_attempts_that_have_one_folder_are_not_merged(here: Machine, there: Machine) -> None:
    there.runs = here.runs
    add(here, "one", 0, "interrupted", step=50)
    run = add(there, "one", 0, "done")
    before = everything(here)
    with pytest.raises(LrurunError, match="both ledgers have attempts of it"):
        merge(here, there)
    assert everything(here) == before
    assert [folder.name for folder in (here.runs / run).iterdir()] == ["1"]


@on_file
def test_a_merge_that_fails_restores_what_was_there(
    here: Machine, there: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = add(there, "one", 0, "done")
    (here.runs / run / "1").mkdir(parents=True)
    (here.runs / run / "1" / "left over").touch()
    monkeypatch.setattr(merging, "_add_checkpoints", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        merge(here, there)
    assert sorted(str(path.relative_to(here.runs / run)) for path in here.runs.rglob("*/*/*")) == ["1/left over"]
    assert scores(here) == {}


def test_a_backup_has_every_row(here: Machine, tmp_path: Path) -> None:
    add(here, "mine", 0, "done")
    with Ledger.open(here.ledger):  # others may have it open
        here.run("ledger", "backup", "--out", str(tmp_path / "copy.db"))
    assert not list(tmp_path.glob(".copy*"))
    for table in TABLES:
        assert rows(tmp_path / "copy.db", table) == rows(here.ledger, table)
    assert (
        "exists, and is not overwritten"
        in here.run("ledger", "backup", "--out", str(tmp_path / "copy.db"), code=1).stderr
    )
    done = here.run("ledger", "backup")
    (beside,) = here.folder.glob("ledger.db.backup-*")
    assert beside.name in done.stdout + done.stderr


def test_a_compressed_backup_is_merged(here: Machine, tmp_path: Path) -> None:
    run = add(here, "mine", 0, "done", score=0.75)
    kept = tmp_path / "kept.db.xz"
    here.run("ledger", "backup", "--out", str(kept))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith((".", "kept"))] == ["kept.db.xz"]
    new = tmp_path / "new.db"
    for _ in range(2):
        here.run("ledger", "merge", str(kept), "--ledger", str(new))
    with Ledger.open(new) as ledger:
        assert [(one.id, one.result) for one in ledger.runs()] == [(run, {"val/accuracy": 0.75})]
    cut = tmp_path / "cut.db.xz"
    cut.write_bytes(kept.read_bytes()[:-100])
    assert "is not an xz file, or is incomplete" in here.run("ledger", "merge", str(cut), code=5).stderr
    assert "there is no ledger" in here.run("ledger", "merge", str(tmp_path / "none.xz"), code=4).stderr
    half = kept.read_bytes()
    with lzma.open(cut, "wb") as packed:
        packed.write(lzma.decompress(half)[:6000])
    error = here.run("ledger", "merge", str(cut), code=5).stderr
    assert error.startswith(f"error: the ledger {cut} is damaged: ")
    other = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE unrelated (a)")
    cut.write_bytes(lzma.compress(other.read_bytes()))
    error = here.run("ledger", "merge", str(cut), code=5).stderr
    assert error.startswith(f"error: {cut} is not a ledger of lrurun\nhint: ")
    cut.write_bytes(lzma.compress(b"a text"))
    error = here.run("ledger", "merge", str(cut), code=5).stderr
    assert error == f"error: {cut}: has no ledger in it\nhint: name a file that lrurun ledger backup wrote\n"


def test_a_merge_says_how_far_it_is(here: Machine, there: Machine, tmp_path: Path) -> None:
    for seed in range(3):
        add(there, "mine", seed, "done")
    steps: dict[str, list[tuple[int, int | None]]] = {}

    def progress(what: str, done: int, total: int | None) -> None:
        steps.setdefault(what, []).append((done, total))

    kept = tmp_path / "kept.db.xz"
    there.run("ledger", "backup", "--out", str(kept))
    with backups.unpacked(kept, progress) as place, Ledger.open(place) as other, Ledger.open(here.ledger) as ledger:
        merging.merge(ledger, other, here.runs, there.runs, progress)
        run_files.keep_all(ledger, here.runs, ledger.run_ids(), [], progress)
    assert list(steps) == [
        "unpacking kept.db.xz",
        "copying the folders of runs",
        "adding runs to the ledger",
        "writing the records of runs",
    ]
    assert steps["unpacking kept.db.xz"][-1] == (kept.stat().st_size, kept.stat().st_size)
    assert steps["writing the records of runs"] == [(0, 3), (1, 3), (2, 3)]
    for done in steps.values():
        assert all(first <= second for first, second in pairwise(done))
    assert here.run("ledger", "merge", str(kept)).stderr == "", "a quick one says nothing"


@on_file
def test_a_backup_in_a_read_only_folder_needs_another_file(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    add(here, "mine", 0, "done")
    access = os.access
    monkeypatch.setattr(  # root may write to every folder
        os,
        "access",
        lambda path, mode: access(path, mode) and not (mode == os.W_OK and Path(path) == here.ledger.parent),
    )
    said = here.refused("ledger", "backup", code=1)
    assert "cannot be written: its folder is read-only for this user" in said
    assert "hint: name a file elsewhere with --out FILE" in said


def test_an_export_may_end_at_any_row(here: Machine) -> None:
    """As it does when a reader closes the pipe: the rest is neither read nor reported."""
    add(here, "lru", 0, "done")
    add(here, "lru", 1, None)
    with Ledger.open(here.ledger) as ledger:
        tables = exporting.export(ledger)
        _, _, ladders = next(tables)
        assert len(list(ladders)) == 1
        for name, _, rows in tables:
            if name == "runs":
                break
            list(rows)
        assert next(rows)[0] is not None
        tables.close()
        assert list(rows) == []


def test_export_has_every_row(here: Machine, tmp_path: Path) -> None:
    run = add(here, "=mine", 0, "done", 0.25)
    lines = [json.loads(line) for line in here.run("ledger", "export").stdout.splitlines()]
    by_table = {table: [line for line in lines if line["table"] == table] for table in exporting.EXPORTED}
    assert {table: len(found) for table, found in by_table.items()} == {
        table: len(rows(here.ledger, table)) for table in exporting.EXPORTED
    }
    for exported in by_table.values():  # names, not numbers of rows, and nothing of processes or their users
        assert {line.get("run") for line in exported} <= {run, None}
        assert {type(line.get("ladder")) for line in exported} <= {str, type(None)}
        assert not {"boot", "pid_started", "user_name", "last_loss"} & set().union(*exported)
    assert {"host", "reason", "environment", "numerics"} <= set(by_table["attempts"][0])
    assert by_table["metrics"][0] == {"table": "metrics", "run": run, "key": "train/loss", "step": 10, "value": 0.25}
    assert by_table["metrics"][1]["value"] is None
    assert [line["pairs"] for line in by_table["eigenvalues"]] == [[[0.25, "inf"]], None]
    assert by_table["runs"][0]["config"]["data"] == {"version": "1", "rung": "=mine"}
    here.run("ledger", "export", "--format", "csv", "--out", str(tmp_path / "tables"))
    with (tmp_path / "tables" / "ladder_runs.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["run"], row["rung"]) == (run, "'=mine")  # no formula
    assert sorted(p.stem for p in (tmp_path / "tables").iterdir()) == sorted(exporting.EXPORTED)
    here.run("ledger", "export", "--out", str(tmp_path / "all.jsonl"))
    assert [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()] == lines
    assert "is not overwritten" in here.run("ledger", "export", "--out", str(tmp_path / "all.jsonl"), code=1).stderr
    assert "--out FOLDER" in here.run("ledger", "export", "--format", "csv", code=2).stderr


def test_gc_deletes_unneeded_folders(here: Machine) -> None:
    done, half = add(here, "done", 0, "done"), add(here, "half", 0, "interrupted")
    busy = add(here, "busy", 0, "running")
    for run in (done, half, busy):
        (here.runs / run / "1" / "checkpoints" / "60.orbax-checkpoint-tmp-1").mkdir()
    (here.runs / half / "1.old-5").mkdir()
    (here.runs / "another" / "1" / "checkpoints" / "5").mkdir(parents=True)
    with Ledger.open(here.ledger) as ledger:
        ledger.enqueue(key_of(ledger), [want("done", 0)], fresh=True)  # supersedes
    everything = sorted(here.runs.rglob("*"))
    assert "to be removed: 4 folders with 0.0 MB" in here.run("ledger", "gc", "--dry-run").stderr
    assert sorted(here.runs.rglob("*")) == everything
    assert "4 folders" in here.run("ledger", "gc").stderr
    left = sorted(str(p.relative_to(here.runs)) for p in here.runs.glob("*/*/checkpoints/*"))
    of_busy = [f"{busy}/1/checkpoints/{name}" for name in ("100", "60.orbax-checkpoint-tmp-1")]
    assert left == sorted(["another/1/checkpoints/5", f"{half}/1/checkpoints/100", *of_busy])
    with Ledger.open(here.ledger) as ledger:
        assert ledger.checkpoints(done) == []
        assert len(ledger.checkpoints(half)) == 1
        assert ledger.check() == []
    finished = add(here, "finished", 0, "done")
    assert "nothing to remove\n" in here.run("ledger", "gc").stderr
    assert (here.runs / finished / "1/checkpoints/100").is_dir()
    here.run("ledger", "gc", "--finished")
    assert os.listdir(here.runs / finished / "1/checkpoints") == []

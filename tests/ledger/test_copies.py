"""Backup, merge and export of ledgers, and checkpoints that are no longer needed."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lrurun.__main__ import run as command
from lrurun.config.runs import InstanceSpec, PlannedRun
from lrurun.config.schema import Execution
from lrurun.errors import LedgerError, LrurunError
from lrurun.ledger import copies, merging, owner
from lrurun.ledger.store import Ledger
from lrurun.server import Place, Server
from tests.harness.configs import config
from tests.harness.stores import drop_trigger, raw

ME = owner.this_process()


def want(rung: str, seed: int) -> PlannedRun:
    return PlannedRun(
        fingerprint="sha256:" + hashlib.sha256(f"{rung} {seed}".encode()).hexdigest(),
        task="sDigits",
        rung=rung,
        stage="train",
        seed=seed,
        steps=100,
        config=config({"data": {"rung": rung}, "seed": seed}),
        execution=Execution(),
        sources={},
        position=seed,
    )


class Here:
    """A ledger with its runs folder, in a folder of its own."""

    def __init__(self, folder: Path, place: Place | None, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        folder.mkdir()
        self.path, self.runs = place or folder / "ledger.db", folder / "runs"
        with Ledger.open(self.path) as ledger:
            self.key = ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key

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
            ledger.record_eigenvalues(claim, "start", [[complex(score, math.inf)], None])
            number = ledger.begin_checkpoint(claim, step, f"{run.id}/{claim.attempt}/checkpoints/{step}")
            folder = self.runs / run.id / str(claim.attempt) / "checkpoints" / str(step)
            folder.mkdir(parents=True)
            (folder / "data").write_text(f"{rung} {seed} {score}")
            ledger.commit_checkpoint(claim, number, 10, "sha256:0")
            if state != "running":
                result = {"val/accuracy": score} if state == "done" else None
                ledger.finish(claim, state, result=result, reason=state, step=step)
        return run.id

    def merge(self, other: Here) -> merging.Merged:
        with Ledger.open(self.path) as ledger, Ledger.open(other.path) as there:
            return merging.merge(ledger, there, self.runs, other.runs)[0]

    def scores(self) -> dict[tuple[str, int], tuple[str, float | None]]:
        with Ledger.open(self.path) as ledger:
            return {
                (run.memberships[0].rung, run.seed): (run.state, (run.result or {}).get("val/accuracy"))
                for run in ledger.runs()
            }

    def lrurun(self, *words: str, code: int = 0) -> str:
        found = command(["--ledger", str(self.path), "--runs-dir", str(self.runs), "ledger", *words])
        out, err = self.capsys.readouterr()
        assert found == code, err
        return out + err


KINDS = [
    pytest.param(kinds, marks=[] if kinds == ("file", "file") else pytest.mark.slow)
    for kinds in itertools.product(("file", "server"), repeat=2)
]

alone = pytest.mark.parametrize(
    "kinds", [("file", "file"), pytest.param(("server", "file"), marks=pytest.mark.slow)], indirect=True, ids="-".join
)
"""Marks tests of one ledger."""


@pytest.fixture(params=KINDS, ids="-".join)
def kinds(request: pytest.FixtureRequest) -> tuple[str, str]:
    """What the ledgers `here` and `there` are."""
    return request.param


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Callable[[], Server]]:
    """Makes ledgers on a server."""
    made: list[Server] = []

    def make() -> Server:
        made.append(request.getfixturevalue("postgres").ledger())
        return made[-1]

    yield make
    for one in made:
        request.getfixturevalue("postgres").drop(one)


@pytest.fixture
def here(kinds: Any, tmp_path: Path, server: Callable[[], Server], capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(tmp_path / "here", server() if kinds[0] == "server" else None, capsys)


@pytest.fixture
def there(kinds: Any, tmp_path: Path, server: Callable[[], Server], capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(tmp_path / "there", server() if kinds[1] == "server" else None, capsys)


def rows(path: Place, table: str) -> list[Any]:
    return sorted(raw(path, f"SELECT * FROM {table}"), key=repr)


TABLES = ("ladders", "runs", "ladder_runs", "attempts", "metric_keys", "metrics", "checkpoints", "events")
TABLES += ("tags", "exclusions", "eigenvalues")


def test_merged_runs_keep_their_settings(here: Here, there: Here) -> None:
    """The ledgers number equal texts differently."""
    here.run("queued", 0, None)
    here.run("mine", 0, "done")
    for seed in range(3):
        there.run("theirs", seed, "done")
    half = there.run("mine", 1, "done")
    here.run("mine", 1, "interrupted")
    columns = "fingerprint, config, execution, provenance"
    texts = set(raw(there.path, f"SELECT {columns} FROM runs"))
    environments = raw(there.path, "SELECT DISTINCT environment FROM attempts")
    here.merge(there)
    assert texts < set(raw(here.path, f"SELECT {columns} FROM runs"))
    assert raw(here.path, "SELECT DISTINCT environment FROM attempts") == environments
    assert raw(here.path, "SELECT count(DISTINCT config_id) FROM stored_runs") == [(3,)]
    with Ledger.open(here.path) as ledger:
        assert ledger.run(half).config == config({"data": {"rung": "mine"}, "seed": 1})
        assert ledger.check() == []


def test_a_ledger_with_altered_settings_is_not_merged(here: Here, there: Here) -> None:
    """Its text with a false hash would become the settings of other runs."""
    there.run("theirs", 0, "done")
    before = rows(here.path, "documents")
    drop_trigger(there.path, "documents_stay", "documents")
    raw(there.path, "UPDATE documents SET text = replace(text, 'theirs', 'others')")
    assert "has settings that do not match their hashes" in here.lrurun("merge", str(there.path), code=5)
    assert rows(here.path, "documents") == before
    assert "1 document with settings or an environment changed after being hashed" in there.lrurun("check", code=1)
    with Ledger.open(there.path) as ledger, pytest.raises(LedgerError, match="do not match their hashes"):
        ledger.enqueue(there.key, [want("theirs", 1)])


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
        ledger.mark([half], tag=["good"])
        ledger.mark([running], exclude="a test of the queue")
    found = here.merge(there)
    assert found == merging.Merged(new=2, finished=2, known=1, held=0, checkpoints=4)
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
        assert ledger.eigenvalues(half) == {"start": [[complex(0.6, math.inf)], None]}
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


def test_merge_brings_what_people_said_about_runs_that_both_have(here: Here, there: Here) -> None:
    both, silent = [here.run(name, 0, "done") for name in ("both", "silent")]
    for name in ("both", "silent"):
        there.run(name, 0, "done")
    with Ledger.open(here.path) as ledger, Ledger.open(there.path) as other:
        ledger.mark([both], note="hot", exclude="hot")
        other.mark([both], note="loud", exclude="loud", tag=["new"])
        said = [(event.kind, event.text) for event in ledger.events(run=both) + other.events(run=both)[-2:]]
        for _ in range(2):
            _, changed = merging.merge(ledger, other, here.runs, there.runs)
            assert [(event.kind, event.text) for event in ledger.events(run=both)] == said
            assert changed == [both]  # the records of the others are not written again
        assert ledger.run(both).excluded == "hot"
        assert "loud" not in [event.text for event in ledger.events(run=silent)]


def test_merging_twice_or_with_itself_changes_nothing(here: Here, there: Here) -> None:
    here.run("mine", 0, "done")
    there.run("theirs", 0, "done")
    here.merge(there)
    before = {table: rows(here.path, table) for table in TABLES}
    assert here.merge(there) == merging.Merged(new=0, finished=0, known=1, held=0, checkpoints=0)
    assert {table: rows(here.path, table) for table in TABLES} == before
    assert "is this ledger" in here.lrurun("merge", str(here.path), code=2)
    assert {table: rows(here.path, table) for table in TABLES} == before


def test_a_run_that_is_running_here_is_not_merged(here: Here, there: Here) -> None:
    run = here.run("busy", 0, "running")
    there.run("busy", 0, "done")
    assert here.merge(there) == merging.Merged(new=0, finished=0, known=1, held=1, checkpoints=0)
    with Ledger.open(here.path) as ledger:
        assert ledger.run(run).state == "running"


def test_the_newest_generation_counts(here: Here, there: Here) -> None:
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


def test_ledgers_may_share_their_runs_folder(here: Here, there: Here) -> None:
    there.runs = here.runs
    stopped = there.run("one", 0, "interrupted")
    assert here.merge(there) == merging.Merged(new=1, finished=0, known=0, held=0, checkpoints=1)
    for side in (here, there):
        with Ledger.open(side.path) as ledger:
            (checkpoint,) = ledger.checkpoints(stopped)
        assert (here.runs / checkpoint.path / "data").read_text() == "one 0 0.5"
    assert [folder.name for folder in (here.runs / stopped).iterdir()] == ["1"]


def test_attempts_that_have_one_folder_are_not_merged(here: Here, there: Here) -> None:
    there.runs = here.runs
    here.run("one", 0, "interrupted", step=50)
    run = there.run("one", 0, "done")
    before = {table: rows(here.path, table) for table in TABLES}
    with pytest.raises(LrurunError, match="both ledgers have attempts of it"):
        here.merge(there)
    assert {table: rows(here.path, table) for table in TABLES} == before
    assert [folder.name for folder in (here.runs / run).iterdir()] == ["1"]


def test_a_merge_that_fails_restores_what_was_there(here: Here, there: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    run = there.run("one", 0, "done")
    (here.runs / run / "1").mkdir(parents=True)
    (here.runs / run / "1" / "left over").touch()
    monkeypatch.setattr(merging, "_add_checkpoints", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        here.merge(there)
    assert sorted(str(path.relative_to(here.runs / run)) for path in here.runs.rglob("*/*/*")) == ["1/left over"]
    assert here.scores() == {}


@alone
def test_merge_refuses_files_that_are_no_ledger(here: Here, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("words " * 200)
    assert "is not a ledger" in here.lrurun("merge", str(tmp_path / "text"), code=5)
    assert "there is no ledger" in here.lrurun("merge", str(tmp_path / "none"), code=4)


@alone
def test_a_backup_has_every_row(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here.run("mine", 0, "done")
    with Ledger.open(here.path):  # others may have it open
        here.lrurun("backup", "--out", str(tmp_path / "copy.db"))
    assert not list(tmp_path.glob(".copy*"))
    for table in TABLES:
        assert rows(tmp_path / "copy.db", table) == rows(here.path, table)
    assert "exists, and is not overwritten" in here.lrurun("backup", "--out", str(tmp_path / "copy.db"), code=1)
    monkeypatch.chdir(tmp_path)
    said = here.lrurun("backup")
    folder = here.path.parent if isinstance(here.path, Path) else tmp_path
    (beside,) = folder.glob("ledger.db.backup-*")
    assert str(beside) in said


@alone
def test_a_compressed_backup_is_merged(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = here.run("mine", 0, "done", score=0.75)
    kept = tmp_path / "kept.db.xz"
    here.lrurun("backup", "--out", str(kept))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith((".", "kept"))] == ["kept.db.xz"]
    new = tmp_path / "new.db"
    for _ in range(2):
        assert command(["ledger", "merge", str(kept), "--ledger", str(new)]) == 0
    with Ledger.open(new) as ledger:
        assert [(one.id, one.result) for one in ledger.runs()] == [(run, {"val/accuracy": 0.75})]
    cut = tmp_path / "cut.db.xz"
    cut.write_bytes(kept.read_bytes()[:-100])
    assert "is no whole file in the format xz" in here.lrurun("merge", str(cut), code=5)
    assert "there is no ledger" in here.lrurun("merge", str(tmp_path / "none.xz"), code=4)


@pytest.mark.parametrize("kinds", [("file", "file")], indirect=True)
def test_a_backup_in_a_read_only_folder_needs_another_file(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here.run("mine", 0, "done")
    access = os.access
    monkeypatch.setattr(  # root may write to every folder
        os, "access", lambda path, mode: access(path, mode) and not (mode == os.W_OK and Path(path) == here.path.parent)
    )
    said = here.lrurun("backup", code=1)
    assert "cannot be written: its folder is read-only for this user" in said
    assert "hint: name a file elsewhere with --out FILE" in said


@alone
def test_an_export_may_end_at_any_row(here: Here) -> None:
    """As it does when a reader closes the pipe: the rest is neither read nor reported."""
    here.run("lru", 0, "done")
    here.run("lru", 1, None)
    with Ledger.open(here.path) as ledger:
        tables = copies.export(ledger)
        _, _, ladders = next(tables)
        assert len(list(ladders)) == 1
        name, _, rows = next(tables)
        assert (name, next(rows)[0] is not None) == ("runs", True)
        tables.close()
        assert list(rows) == []


def test_export_has_every_row(here: Here, tmp_path: Path) -> None:
    run = here.run("=mine", 0, "done", 0.25)
    lines = [json.loads(line) for line in here.lrurun("export").splitlines()]
    by_table = {table: [line for line in lines if line["table"] == table] for table in copies.EXPORTED}
    assert {table: len(found) for table, found in by_table.items()} == {
        table: len(rows(here.path, table)) for table in copies.EXPORTED
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
    here.lrurun("export", "--format", "csv", "--out", str(tmp_path / "tables"))
    with (tmp_path / "tables" / "ladder_runs.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["run"], row["rung"]) == (run, "'=mine")  # no formula
    assert sorted(p.stem for p in (tmp_path / "tables").iterdir()) == sorted(copies.EXPORTED)
    here.lrurun("export", "--out", str(tmp_path / "all.jsonl"))
    assert [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()] == lines
    assert "is not overwritten" in here.lrurun("export", "--out", str(tmp_path / "all.jsonl"), code=1)
    assert "--out FOLDER" in here.lrurun("export", "--format", "csv", code=2)


@alone
def test_gc_deletes_unneeded_folders(here: Here) -> None:
    done, half = here.run("done", 0, "done"), here.run("half", 0, "interrupted")
    busy = here.run("busy", 0, "running")
    for run in (done, half, busy):
        (here.runs / run / "1" / "checkpoints" / "60.orbax-checkpoint-tmp-1").mkdir()
    (here.runs / half / "1.old-5").mkdir()
    (here.runs / "another" / "1" / "checkpoints" / "5").mkdir(parents=True)
    with Ledger.open(here.path) as ledger:
        ledger.enqueue(here.key, [want("done", 0)], fresh=True)  # supersedes
    listed = here.lrurun("gc", "--dry-run")
    assert "to be removed: 4 folders with 0.0 MB" in listed
    everything = sorted(here.runs.rglob("*"))
    assert sorted(here.runs.rglob("*")) == everything
    assert "4 folders" in here.lrurun("gc")
    left = sorted(str(p.relative_to(here.runs)) for p in here.runs.glob("*/*/checkpoints/*"))
    of_busy = [f"{busy}/1/checkpoints/{name}" for name in ("100", "60.orbax-checkpoint-tmp-1")]
    assert here.lrurun("gc") == "nothing to remove\n"
    assert left == sorted(["another/1/checkpoints/5", f"{half}/1/checkpoints/100", *of_busy])
    with Ledger.open(here.path) as ledger:
        assert ledger.checkpoints(done) == []
        assert len(ledger.checkpoints(half)) == 1
        assert ledger.check() == []


@alone
def test_gc_of_finished_runs_needs_an_option(here: Here) -> None:
    done = here.run("done", 0, "done")
    here.lrurun("gc")
    assert (here.runs / done / "1/checkpoints/100").is_dir()
    here.lrurun("gc", "--finished")
    assert not (here.runs / done / "1/checkpoints/100").exists()
    assert os.listdir(here.runs / done / "1/checkpoints") == []

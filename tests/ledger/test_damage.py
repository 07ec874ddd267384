"""Damaged ledgers and checkpoints: every command says that they are damaged, and what to do."""

from __future__ import annotations

import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from lrurun.errors import DamagedError
from lrurun.ledger.database import files
from lrurun.ledger.ledger import Ledger
from lrurun.training.checkpoint_verification import digest
from tests.harness.machine import Machine
from tests.harness.results import OWNER, fill
from tests.harness.shared import once
from tests.harness.stores import raw, want

SMOKE = ("sDigits", "--profile", "smoke")
HINT = (
    "hint: lrurun ledger check lists what is wrong; restore a copy made by lrurun ledger backup, or move it aside and "
    "run lrurun ledger rebuild\n"
)


def make(folder: Path) -> None:
    path = Machine(folder).ledger
    fill(path, "sDigits", {"tanh-rnn": [0.5, 0.6], "linear-rnn": [0.7, 0.8]}, profile="smoke")
    raw(path, "PRAGMA journal_mode=delete")


@pytest.fixture
def whole() -> Path:
    """A ledger of four runs, in one file, which tests only read."""
    return once("whole", make) / "ledger.db"


@pytest.fixture
def here(whole: Path, machine: Machine) -> Machine:
    """A copy of it."""
    shutil.copyfile(whole, machine.ledger)
    return machine


def damage(machine: Machine, *tables: str) -> None:
    """Other bytes in the first page of each of these tables."""
    pages = dict(raw(machine.ledger, "SELECT name, rootpage FROM sqlite_master"))
    [[size]] = raw(machine.ledger, "PRAGMA page_size")
    with machine.ledger.open("r+b") as file:
        for table in tables:
            file.seek((pages[table] - 1) * size)
            file.write(b"\xa5" * size)


def run_of(whole: Path) -> str:
    [[run], *_] = raw(whole, "SELECT id FROM stored_runs ORDER BY number")
    return str(run)


COMMANDS = [
    ("status",),
    ("runs",),
    ("show", "RUN"),
    ("compare", "RUN", "OTHER"),
    ("report", *SMOKE),
    ("report", *SMOKE, "--format", "html", "--out", "page.html"),
    ("plot", *SMOKE, "--out", "figure.svg"),
    ("claims",),
    ("plan", *SMOKE),
    ("show", "RUN", "--log"),
    ("verify", "RUN"),
    ("query", "select * from runs"),
    ("mark", "RUN", "--note", "good"),
    ("ledger", "backup", "--out", "copy.db"),
    ("ledger", "export"),
    ("ledger", "gc"),
    ("ledger", "merge", "whole.db"),
    ("resume",),
    ("ladder", *SMOKE),
]


def test_a_damaged_ledger_is_one_error_that_says_so(whole: Path, here: Machine) -> None:
    [[run], [other], *_] = raw(whole, "SELECT id FROM stored_runs ORDER BY number")
    shutil.copyfile(whole, here.folder / "whole.db")
    damage(here, "stored_runs", "ladders", "events")
    for command in COMMANDS:
        done = here.run(*({"RUN": run, "OTHER": other}.get(word, word) for word in command), code=5)
        assert re.fullmatch(rf"error: the ledger {here.ledger} is damaged: [^\n]+\n{re.escape(HINT)}", done.stderr), (
            command
        )
    assert not {"copy.db", "page.html", "figure.svg"} & set(here.files())


@pytest.mark.parametrize("share", [0.3, 0.95])
def test_a_truncated_ledger_is_damaged(share: float, whole: Path, here: Machine) -> None:
    content = whole.read_bytes()
    here.ledger.write_bytes(content[: int(share * len(content))])
    for command in (("status",), ("mark", run_of(whole), "--tag", "good"), ("ladder", *SMOKE)):
        error = here.run(*command, code=5).stderr
        assert error.count("\n") == 2
        assert f"error: the ledger {here.ledger} is damaged: " in error
    done = here.run("ledger", "check", code=1)
    assert "damaged: " in done.stdout
    assert "restore a copy made by lrurun ledger backup" in done.stderr


def test_check_lists_every_damaged_part_and_what_it_cannot_count(whole: Path, here: Machine) -> None:
    damage(here, "metrics", "tags")
    found = here.json("ledger", "check", code=1)
    malformed = "database disk image is malformed"
    assert found["problems"] == [f"the file is damaged: {table}: {malformed}" for table in ("metrics", "tags")]
    assert found["runs"] < 5
    for table, counts in (
        ("stored_runs", "runs and checkpoints not counted"),
        ("ladders", "4 runs, checkpoints not counted"),
    ):
        shutil.copyfile(whole, here.ledger)
        damage(here, table)
        out = here.run("ledger", "check", code=1).stdout
        assert out == f"the file is damaged: {table}: {malformed}\nledger.db: {counts}, 1 problem\n"


@pytest.mark.parametrize("byte", [b"\0", b"\xa5"])
def test_a_ledger_without_its_first_pages_is_perhaps_damaged(byte: bytes, whole: Path, here: Machine) -> None:
    here.ledger.write_bytes(byte * 8192 + whole.read_bytes()[8192:])
    assert here.refused("ledger", "check", code=5) == (
        f"error: {here.ledger} is not a ledger of lrurun\n"
        "hint: name another file; this one was not changed; if it was one, it is damaged: restore a copy "
        "made by lrurun ledger backup, or move it aside and run lrurun ledger rebuild\n"
    )


def test_a_missing_table_is_damage_and_a_mistake_is_not(whole: Path, here: Machine) -> None:
    assert here.refused("query", "select * from nowhere").startswith("error: SQL: no such table: nowhere\n")
    raw(here.ledger, "DROP TABLE tags")
    error = here.refused("runs", code=5)
    assert error == f"error: the ledger {here.ledger} is damaged: it has no table tags\n{HINT}"
    for mistake in (KeyError("mistake"), sqlite3.IntegrityError("mistake")):
        with pytest.raises(type(mistake)), files.plain_errors(whole, 1.0):
            raise mistake
    here.ledger.write_bytes(whole.read_bytes()[:-4096])
    with pytest.raises(DamagedError), files.plain_errors(here.ledger, 1.0):
        raise KeyError("a consequence")


# Checkpoints


@pytest.fixture
def checkpoint(here: Machine) -> Path:
    """The folder of a committed checkpoint of a run that is running."""
    with Ledger.open(here.ledger) as ledger:
        [instance] = ledger.ladders()
        ledger.enqueue(instance.key, [want()])
        held = ledger.hold(instance.key, OWNER, environment={})
        assert held is not None
        run = held.run.id
        saved = here.runs / run / "1" / "checkpoints" / "20"
        saved.mkdir(parents=True)
        (saved / "data").write_bytes(bytes(1000))
        number = ledger.begin_checkpoint(held, 20, f"{run}/1/checkpoints/20")
        ledger.commit_checkpoint(held, number, *digest(saved))
    return saved


def test_check_reads_the_bytes_of_checkpoints(checkpoint: Path, here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    done = here.run("ledger", "check")
    assert done.stdout == "ledger.db: 5 runs, 1 checkpoint, no problems\n"
    assert done.stderr.startswith("1 run running: to copy this ledger, use lrurun ledger backup; ")
    (checkpoint / "data").write_bytes(bytes(999) + b"1")
    here.run("ledger", "check", "--quick")
    about = f"checkpoint of run {checkpoint.parents[2].name}, step 20: {checkpoint.relative_to(here.folder)}"
    out = here.run("ledger", "check", code=1).stdout
    assert out.splitlines()[0] == f"{about} does not hold the bytes that were saved"
    shutil.rmtree(checkpoint)
    for more in ([], ["--quick"]):
        assert here.run("ledger", "check", *more, code=1).stdout.splitlines()[0] == f"{about} is missing"
    monkeypatch.setattr(Ledger, "checkpoints", lambda *_: [])  # removed by its run, when it is looked at again
    here.run("ledger", "check")


def test_check_of_a_ledger_whose_runs_folder_is_elsewhere(checkpoint: Path, here: Machine) -> None:
    here.runs.rename(here.folder / "moved")
    hint = "the ledger itself has no problems; name its runs folder with --runs-dir FOLDER\n"
    lines = "1 checkpoint is not in the runs folder runs\nledger.db: 5 runs, 1 checkpoint, 1 problem\n"
    for more in ([], ["--quick"]):
        done = here.run("ledger", "check", *more, code=1)
        assert (done.stdout, done.stderr) == (lines, hint)
        here.run("--runs-dir", "moved", "ledger", "check", *more)
    found = here.json("ledger", "check", code=1)
    assert found["problems"] == ["1 checkpoint is not in the runs folder runs"]
    raw(here.ledger, "INSERT INTO checkpoints SELECT 7, run, attempt, 21, state, '../x', 1, 'a' FROM checkpoints")
    done = here.run("ledger", "check", code=1)
    assert len(done.stdout.splitlines()) == 3
    assert "leads out of the runs folder" in done.stdout
    assert "1 checkpoint is not in the runs folder runs\n" in done.stdout
    assert "lrurun resume continues an unfinished run from an earlier one" in done.stderr
    assert "restore a copy" not in done.stderr
    assert "--runs-dir FOLDER" in done.stderr


def test_folders_of_runs_that_the_ledger_does_not_know(whole: Path, here: Machine) -> None:
    for name in (run_of(whole), "0123456789ab", "0123456789ab-2", "nodes"):
        (here.runs / name).mkdir(parents=True)
    done = here.run("ledger", "check", code=1)
    problem, _ = done.stdout.splitlines()
    assert "lrurun ledger rebuild" in done.stderr
    assert problem.endswith("2 folders of runs that this ledger does not know: 0123456789ab, 0123456789ab-2")

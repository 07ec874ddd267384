"""Damaged ledgers and checkpoints: every command says that they are damaged, and what to do."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from lrurun.errors import DamagedError
from lrurun.ledger.database import files
from lrurun.ledger.store import Ledger
from lrurun.training.digests import digest
from tests.harness.commands import folder, said
from tests.harness.results import OWNER, fill
from tests.harness.stores import raw, want

__all__ = ["folder"]  # a fixture

SMOKE = ("sDigits", "--profile", "smoke")
HINT = (
    "hint: lrurun ledger check lists what is wrong; restore a copy made by lrurun ledger backup, or move it aside and "
    "run lrurun ledger rebuild\n"
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of four runs, in one file."""
    path = tmp_path_factory.mktemp("whole") / "ledger.db"
    fill(path, "sDigits", {"tanh-rnn": [0.5, 0.6], "linear-rnn": [0.7, 0.8]}, profile="smoke")
    raw(path, "PRAGMA journal_mode=delete")
    return path


def damage(whole: Path, *tables: str) -> None:
    """Copies the ledger to the working directory, with other bytes in the first page of each of these tables."""
    shutil.copyfile(whole, "ledger.db")
    pages = dict(raw(whole, "SELECT name, rootpage FROM sqlite_master"))
    [[size]] = raw(whole, "PRAGMA page_size")
    with Path("ledger.db").open("r+b") as file:
        for table in tables:
            file.seek((pages[table] - 1) * size)
            file.write(b"\xa5" * size)


def run_of(whole: Path) -> str:
    [[run], *_] = raw(whole, "SELECT id FROM stored_runs ORDER BY number")
    return str(run)


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("runs",),
        ("runs", "--json"),
        ("show", "RUN"),
        ("compare", "RUN", "OTHER"),
        ("report", *SMOKE),
        ("report", "--all"),
        ("report", *SMOKE, "--format", "html", "--out", "page.html"),
        ("plot", *SMOKE, "--out", "figure.png"),
        ("claims",),
        ("plan", *SMOKE),
        ("show", "RUN", "--log"),
        ("verify", "RUN"),
        ("query", "select * from runs"),
        ("mark", "RUN", "--tag", "good"),
        ("mark", "RUN", "--note", "good"),
        ("mark", "RUN", "--exclude", "bad"),
        ("ledger", "backup", "--out", "copy.db"),
        ("ledger", "export"),
        ("ledger", "gc"),
        ("ledger", "merge", "whole.db"),
        ("resume",),
        ("ladder", *SMOKE),
    ],
    ids=" ".join,
)
def test_a_damaged_ledger_is_one_error_that_says_so(
    command: tuple[str, ...], whole: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [[run], [other], *_] = raw(whole, "SELECT id FROM stored_runs ORDER BY number")
    damage(whole, "stored_runs", "ladders", "events")
    shutil.copyfile(whole, "whole.db")
    code, _, err = said(capsys, *({"RUN": run, "OTHER": other}.get(word, word) for word in command))
    assert code == 5
    assert re.fullmatch(rf"error: the ledger {folder / 'ledger.db'} is damaged: [^\n]+\n{re.escape(HINT)}", err), err
    assert not {"copy.db", "page.html", "figure.png"} & {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("share", [0.3, 0.95])
def test_a_truncated_ledger_is_damaged(
    share: float, whole: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = whole.read_bytes()
    Path("ledger.db").write_bytes(content[: int(share * len(content))])
    for command in (("status",), ("mark", run_of(whole), "--tag", "good"), ("ladder", *SMOKE)):
        code, _, err = said(capsys, *command)
        assert (code, err.count("\n")) == (5, 2)
        assert f"error: the ledger {folder / 'ledger.db'} is damaged: " in err
    code, out, err = said(capsys, "ledger", "check")
    assert code == 1
    assert "damaged: " in out
    assert "restore a copy made by lrurun ledger backup" in err


def test_check_lists_every_damaged_part(whole: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(whole, "metrics", "tags")
    code, out, err = said(capsys, "ledger", "check", "--json")
    found = json.loads(out)["problems"]
    assert (code, err) == (1, "")
    malformed = "database disk image is malformed"
    assert found == [f"the file is damaged: {table}: {malformed}" for table in ("metrics", "tags")]
    assert json.loads(out)["runs"] < 5


@pytest.mark.parametrize(
    ("table", "counts"),
    [("stored_runs", "runs and checkpoints not counted"), ("ladders", "4 runs, checkpoints not counted")],
)
def test_check_says_what_it_cannot_count(
    table: str, counts: str, whole: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(whole, table)
    code, out, _ = said(capsys, "ledger", "check")
    assert code == 1
    assert out == f"the file is damaged: {table}: database disk image is malformed\nledger.db: {counts}, 1 problem\n"


@pytest.mark.parametrize("byte", [b"\0", b"\xa5"])
def test_a_ledger_without_its_first_pages_is_perhaps_damaged(
    byte: bytes, whole: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("ledger.db").write_bytes(byte * 8192 + whole.read_bytes()[8192:])
    code, out, err = said(capsys, "ledger", "check")
    assert (code, out) == (5, "")
    assert err == (
        f"error: {folder / 'ledger.db'} is not a ledger of lrurun\n"
        "hint: name another file; this one was not changed; if it was one, it is damaged: restore a copy "
        "made by lrurun ledger backup, or move it aside and run lrurun ledger rebuild\n"
    )


def test_a_missing_table_is_damage_and_a_mistake_in_a_query_is_not(
    whole: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copyfile(whole, "ledger.db")
    code, _, err = said(capsys, "query", "select * from nowhere")
    assert (code, err.splitlines()[0]) == (2, "error: SQL: no such table: nowhere")
    raw(folder / "ledger.db", "DROP TABLE tags")
    code, _, err = said(capsys, "runs")
    assert (code, err) == (5, f"error: the ledger {folder / 'ledger.db'} is damaged: it has no table tags\n{HINT}")


def test_a_mistake_of_the_program_is_not_blamed_on_a_whole_ledger(whole: Path) -> None:
    with pytest.raises(KeyError), files.plain_errors(whole, 1.0):
        raise KeyError("mistake")
    with pytest.raises(sqlite3.IntegrityError), files.plain_errors(whole, 1.0):
        raise sqlite3.IntegrityError("mistake")
    whole_bytes = whole.read_bytes()
    other = whole.with_name("other.db")
    other.write_bytes(whole_bytes[:-4096])
    with pytest.raises(DamagedError), files.plain_errors(other, 1.0):
        raise KeyError("a consequence")


# Checkpoints


@pytest.fixture
def checkpoint(whole: Path, folder: Path) -> Path:
    """The folder of a committed checkpoint of a run that is running."""
    shutil.copyfile(whole, "ledger.db")
    with Ledger.open("ledger.db") as ledger:
        [instance] = ledger.ladders()
        ledger.enqueue(instance.key, [want()])
        claim = ledger.claim(instance.key, OWNER, environment={})
        assert claim is not None
        run = claim.run.id
        saved = folder / "runs" / run / "1" / "checkpoints" / "20"
        saved.mkdir(parents=True)
        (saved / "data").write_bytes(bytes(1000))
        number = ledger.begin_checkpoint(claim, 20, f"{run}/1/checkpoints/20")
        ledger.commit_checkpoint(claim, number, *digest(saved))
    return saved


def test_check_reads_the_bytes_of_checkpoints(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "ledger", "check")
    assert (code, out) == (0, "ledger.db: 5 runs, 1 checkpoint, no problems\n")
    assert err.startswith("1 run running: to copy this ledger, use lrurun ledger backup; ")
    (checkpoint / "data").write_bytes(bytes(999) + b"1")
    assert said(capsys, "ledger", "check", "--quick")[0] == 0
    code, out, _ = said(capsys, "ledger", "check")
    run = checkpoint.parents[2].name
    assert code == 1
    checkpoint = checkpoint.relative_to(Path.cwd())
    fault = f"{checkpoint} does not hold the bytes that were saved"
    assert out.splitlines()[0] == f"checkpoint of run {run}, step 20: {fault}"
    shutil.rmtree(checkpoint)
    for more in ([], ["--quick"]):
        code, out, _ = said(capsys, "ledger", "check", *more)
        assert (code, out.splitlines()[0]) == (1, f"checkpoint of run {run}, step 20: {checkpoint} is missing")


def test_check_of_a_ledger_whose_runs_folder_is_elsewhere(
    checkpoint: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "runs").rename("moved")
    hint = "the ledger itself has no problems; name its runs folder with --runs-dir FOLDER\n"
    for more in ([], ["--quick"]):
        code, out, err = said(capsys, "ledger", "check", *more)
        lines = "1 checkpoint is not in the runs folder runs\nledger.db: 5 runs, 1 checkpoint, 1 problem\n"
        assert (code, out, err) == (1, lines, hint)
        assert said(capsys, "--runs-dir", "moved", "ledger", "check", *more)[0] == 0
    code, out, _ = said(capsys, "ledger", "check", "--json")
    assert (code, json.loads(out)["problems"]) == (1, ["1 checkpoint is not in the runs folder runs"])
    raw(
        folder / "ledger.db",
        "INSERT INTO checkpoints SELECT 7, run, attempt, 21, state, '../x', 1, 'a' FROM checkpoints",
    )
    code, out, err = said(capsys, "ledger", "check")
    assert (code, len(out.splitlines())) == (1, 3)
    assert "leads out of the runs folder" in out
    assert "1 checkpoint is not in the runs folder runs\n" in out
    assert "lrurun resume continues an unfinished run from an earlier one" in err
    assert "restore a copy" not in err
    assert "--runs-dir FOLDER" in err


def test_a_checkpoint_that_its_run_removes_meanwhile_is_no_problem(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(checkpoint)
    monkeypatch.setattr(Ledger, "checkpoints", lambda *_: [])  # as it is when the problem is looked at again
    assert said(capsys, "ledger", "check")[0] == 0


def test_folders_of_runs_that_the_ledger_does_not_know(
    whole: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copyfile(whole, "ledger.db")
    for name in (run_of(whole), "0123456789ab", "0123456789ab-2", "nodes"):
        Path("runs", name).mkdir(parents=True)
    code, out, err = said(capsys, "ledger", "check")
    problem, _ = out.splitlines()
    assert code == 1
    assert "lrurun ledger rebuild" in err
    assert problem.endswith("2 folders of runs that this ledger does not know: 0123456789ab, 0123456789ab-2")

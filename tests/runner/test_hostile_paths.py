"""Paths that a ledger names: nothing outside of the runs folder is read, written or removed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from lrurun import paths, trained
from lrurun.errors import LrurunError
from lrurun.ledger import merging
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import Checkpoint
from lrurun.training import checkpoint_verification
from tests.harness.hostile_texts import check
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.shared import once


def make(folder: Path) -> None:
    folder.mkdir()
    fill(folder / "ledger.db", "sDigits", {"tanh-rnn": [0.5, 0.6]}, profile="smoke")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger of two finished runs and its runs folder; `treasure` beside them, and `runs/RUN/1/link` to it."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    shutil.copy(once("two-runs", make) / "ledger.db", "ledger.db")
    (tmp_path / "treasure" / "1" / "checkpoints" / "7").mkdir(parents=True)
    (tmp_path / "treasure" / "1" / "checkpoints" / "7" / "gold").write_text("gold")
    (tmp_path / "treasure" / "1" / "log.txt").write_text("gold\n")
    for run in runs():
        (here / "runs" / run / "1" / "checkpoints" / "20").mkdir(parents=True)
    (here / "runs" / runs()[0] / "1" / "link").symlink_to(tmp_path / "treasure")
    return here


def runs() -> list[str]:
    with sqlite3.connect("ledger.db") as connection:
        found = [row[0] for row in connection.execute("select id from runs order by number")]
    connection.close()
    return found


def write(*statements: tuple[str, tuple[object, ...]]) -> None:
    connection = sqlite3.connect("ledger.db")
    connection.execute("drop trigger if exists runs_finished_stay")
    for statement, values in statements:
        connection.execute(statement, values)
    connection.commit()
    connection.close()


def said(arguments: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command in the working directory, whatever they are."""
    done = Machine(Path.cwd()).run(*arguments, code=None)
    return done.returncode, done.stdout, done.stderr


def outside(folder: Path) -> set[str]:
    found = (p for p in folder.parent.rglob("*") if not p.is_relative_to(folder / "runs"))
    return {str(path) for path in found if not path.name.endswith(("-wal", "-shm"))}


LEADS_OUT = [
    "../../treasure",
    "../ledger.db",
    "..",
    ".",
    "",
    "@/../..",
    "/",
    "TREASURE",
    "@/1/link",
    "@/1/link/1",
    "x/../../../treasure",
    "a\x00b",
    "x" * 5000,
    "@/1/loop/x",
]


def path_of(folder: Path, name: str) -> str:
    loop = folder / "runs" / runs()[0] / "1" / "loop"
    if not loop.is_symlink():
        loop.symlink_to(loop)
    return name.replace("@", runs()[0]).replace("TREASURE", str(folder.parent / "treasure"))


def test_paths_that_lead_out_of_the_runs_folder(folder: Path) -> None:
    for name in LEADS_OUT:
        with pytest.raises(LrurunError, match="leads out of the runs folder"):
            paths.inside(folder / "runs", path_of(folder, name))


@pytest.mark.parametrize("name", ["../../treasure", "", "TREASURE", "@/1/link", "a\x00b"])
def test_a_checkpoint_elsewhere_is_neither_removed_nor_read(folder: Path, name: str) -> None:
    path = path_of(folder, name)
    for state in ("saving", "committed"):
        write(
            (
                "insert into checkpoints (run, attempt, step, state, path, sha256) values (1, 1, 7, ?, ?, 'x')",
                (state, path),
            )
        )
    before = outside(folder)
    for arguments in (["ledger", "gc", "--finished", "--dry-run"], ["ledger", "gc", "--finished"], ["ledger", "check"]):
        code, out, err = said(arguments)
        check(code, out, err, arguments)
        if arguments[1] == "gc":
            assert "leads out of the runs folder" in err
            assert "treasure" not in out
    assert outside(folder) == before
    assert (folder / "runs").is_dir()
    assert not (folder / "runs" / runs()[1] / "1" / "checkpoints" / "20").exists(), "its own checkpoint is removed"
    entry = Checkpoint(id=1, run="r", attempt=1, step=7, state="committed", path=path, bytes=1, sha256="x")
    with Ledger.open("ledger.db") as ledger, pytest.raises(LrurunError, match="no checkpoint to read"):
        trained.newest(ledger.run(runs()[0]), [entry], folder / "runs")


@pytest.mark.parametrize("name", ["../../treasure", "TREASURE"])
def test_a_run_elsewhere_is_left_alone(folder: Path, name: str) -> None:
    """The id of the run leads out of the folder: its log is not shown, and nothing is removed."""
    path = path_of(folder, name)
    write(("update stored_runs set id = ?, superseded = 0 where number = 1", (path,)))
    before = outside(folder)
    for arguments in (["ledger", "gc", "--finished"], ["show", path, "--log"], ["show", path], ["ledger", "check"]):
        code, out, err = said(arguments)
        check(code, out, err, arguments)
        assert "gold" not in out
    assert outside(folder) == before


def test_links_below_the_runs_are_not_followed(folder: Path) -> None:
    """gc removes folders that are not in the ledger, but no links to other places."""
    home = folder / "runs" / runs()[0]
    (home / "2").symlink_to(folder.parent / "treasure" / "1")
    (home / "3.old-1").symlink_to(folder.parent / "treasure")
    (home / "1" / "checkpoints" / "9").symlink_to(folder.parent / "treasure")
    before = outside(folder)
    code, _, err = said(["ledger", "gc", "--finished"])
    assert code == 0
    assert "leads out of the runs folder" in err
    assert outside(folder) == before


def test_a_link_in_a_checkpoint_is_not_read(folder: Path) -> None:
    saved = folder / "runs" / runs()[0] / "1" / "checkpoints" / "20"
    (saved / "data").write_text("x")
    checkpoint_verification.digest(saved)
    (saved / "more").symlink_to("/etc/passwd")
    with pytest.raises(LrurunError, match="a link in a checkpoint"):
        checkpoint_verification.digest(saved)


@pytest.mark.parametrize("name", ["../../new", "@/1/link"])
def test_a_merge_writes_and_reads_nowhere_else(folder: Path, name: str) -> None:
    other = folder.parent / "other"
    shutil.copytree(folder, other, symlinks=True)
    (other / "runs" / runs()[1] / "1" / "stolen").symlink_to("/etc/passwd")
    (other / "runs" / runs()[1] / "1" / "pipe").touch()
    (other / "runs" / runs()[1] / "1" / "pipe").unlink()
    os.mkfifo(other / "runs" / runs()[1] / "1" / "pipe")
    (folder / "ledger.db").unlink()
    shutil.rmtree(folder / "runs")
    os.chdir(other)
    good, bad = runs()[1], path_of(other, name)
    before = outside(folder)
    os.chdir(folder)
    assert said(["ledger", "merge", str(other / "ledger.db")])[0] == 0
    assert sorted(p.name for p in (folder / "runs" / good / "1").iterdir()) == ["checkpoints"]
    shutil.rmtree(folder / "runs")
    os.chdir(other)
    write(("update stored_runs set id = ?, fingerprint = 'new' where number = 1", (bad,)))
    os.chdir(folder)
    code, out, err = said(["ledger", "merge", str(other / "ledger.db")])
    check(code, out, err, ["merge"])
    assert code == 1
    assert "leads out of the runs folder" in err
    assert outside(folder) == before | {str(folder / "ledger.db")}
    connection = sqlite3.connect("ledger.db")
    assert connection.execute("select count(*) from runs").fetchone() == (2,), "all of it or nothing"
    connection.close()


def test_copying_leaves_out_links_and_pipes(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    assert sorted(merging._not_copied(str(tmp_path), ["file", "folder", "link", "pipe"])) == ["link", "pipe"]


UNPICKLED = """
import sys
seen = []
sys.addaudithook(lambda name, args: seen.append(args) if name == "pickle.find_class" else None)
from pathlib import Path
from orbax.checkpoint import v1
from lrurun.training import checkpoints
import lrurun
trained = lrurun.load(sys.argv[1])
checkpoints.arrays(Path(sys.argv[2]), sys.argv[3])
print("unpickled", seen)
import pickle
pickle.loads(pickle.dumps(Path("x")))
assert seen, "the hook sees what is unpickled"
"""


@pytest.mark.slow
def test_restoring_unpickles_nothing(finished: Machine) -> None:
    run = finished.json("runs")["runs"][0]
    [last] = finished.json("show", run["id"])["checkpoints"]
    words = [run["id"], str(finished.runs / last["path"]), run["fingerprint"]]
    done = subprocess.run(
        [sys.executable, "-c", UNPICKLED, *words], cwd=finished.folder, env=finished.env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "unpickled []" in done.stdout

"""A runs folder in an object store: a folder by its URL, and a private server of S3."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import lrurun
from lrurun import paths, trained
from lrurun.__main__ import run as command
from lrurun.errors import LrurunError, UsageError
from lrurun.ledger import rebuilding
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import Checkpoint
from lrurun.runner import run_files, snapshots, storage
from lrurun.runner.attempt import MachineFault
from tests.harness import results, stores
from tests.harness.machine import LONG, Machine, stop, wait_for, workers_of

BUCKET = "s3://runs/of/a group"
GAMMA_NORM = ("gamma-norm", "train", 0)
ONE = ["ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--seeds", "1"]


@pytest.fixture
def elsewhere(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with a cache folder of its own, where the local copies of stores are."""
    cache = tmp_path / "cache"
    if paths.cache_dir().is_dir():  # compiled programs
        (cache / "lrurun").mkdir(parents=True)
        (cache / "lrurun" / "xla").symlink_to(paths.cache_dir())
    machine.env["XDG_CACHE_HOME"] = str(cache)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return machine


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s33://bucket/runs", "s33:// is no object store\nhint: did you mean 's3'?"),
        ("s3://", "expected the URL of a folder, found 's3://'"),
        ("s3://key:secret@bucket/runs", "expected the URL of a folder, found one with a user or a key"),
        ("s3://bucket/../runs", "expected the URL of a folder"),
        ("s3://bucket/runs?anon=true", "expected the URL of a folder"),
        ("s3://bucket/" + "x" * 250, "the URL is too long: 270 bytes, at most 255"),
    ],
)
def test_urls_that_name_no_folder_are_refused(machine: Machine, url: str, said: str) -> None:
    error = machine.run("status", "--runs-dir", url, code=2).stderr
    assert error.startswith("error: --runs-dir: ")
    assert said in error
    assert "hint: " in error
    assert "secret" not in error


def test_a_store_without_its_package_or_that_cannot_be_written(
    elsewhere: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage._connected.cache_clear()
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    small = ["ladder", "sDigits", "--profile", "smoke", "--rung", "gamma-norm", "--runs-dir"]
    missing = elsewhere.run(*small, "gs://bucket/runs", code=1).stderr
    assert "error: gs://bucket/runs: gcsfs is not installed\nhint: pip install gcsfs" in missing
    refused = elsewhere.run(*small, "file:///dev/null/runs", code=1).stderr
    assert "error: file:///dev/null/runs: the runs folder cannot be written: Not a directory" in refused
    assert not elsewhere.ledger.exists()


@pytest.mark.parametrize("is_remote", [False, True])
def test_what_is_stored_is_fetched_until_it_is_removed(tmp_path: Path, is_remote: bool) -> None:
    runs = tmp_path / (paths._mirror_name(f"file://{tmp_path / 'store'}", "--runs-dir") if is_remote else "runs")
    runs.mkdir()
    stored = storage.storage_for(runs)
    stored.check()
    checkpoint, log = runs / "a" / "1" / "7", runs / "a" / "1" / "log.txt"
    assert not stored.has(checkpoint)
    assert not stored.fetch(checkpoint).exists()
    for text in ("first", "second"):  # the second replaces the first
        checkpoint.mkdir(parents=True, exist_ok=True)
        (checkpoint / text).write_text(text)
        log.write_text(text)
        stored.put(checkpoint)
        stored.put(log)
    if is_remote:
        shutil.rmtree(runs)
        assert stored.has(checkpoint)
    assert [file.read_text() for file in sorted(stored.fetch(checkpoint).iterdir())] == ["first", "second"]
    assert stored.fetch(log).read_text() == "second"
    stored.remove(checkpoint)
    assert not stored.has(checkpoint)
    assert not stored.fetch(checkpoint).exists()
    stored.remove(checkpoint)


def test_names_in_a_store_that_lead_out_of_the_folder_are_not_read(tmp_path: Path) -> None:
    copy = tmp_path / paths._mirror_name("file:///somewhere", "--runs-dir")
    store = storage.storage_for(copy)

    class Listing:
        def invalidate_cache(self) -> None: ...

        def find(self, name: str) -> list[str]:
            return [f"{name}/ok", f"{name}/../../../outside"]

        def get_file(self, name: str, target: str) -> None:
            Path(target).write_text(name)

    storage._connected.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "_connected", lambda url: (Listing(), "/somewhere"))
        with pytest.raises(OSError, match="leads out of the folder"):
            store.fetch(copy / "run" / "1")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    with pytest.raises(UsageError):
        paths.expanded("s3://data", "--data-dir")


def test_records_are_copied_to_the_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    copy = tmp_path / paths._mirror_name(f"file://{store}", "--runs-dir")
    ledger, rebuilt = tmp_path / "ledger.db", tmp_path / "rebuilt.db"
    results.fill(ledger, "sDigits", {"tanh-rnn": [0.5]})
    with Ledger.open(ledger) as opened:
        [run] = opened.run_ids()
        stores.keep_all(opened, copy)
        opened.mark([run], tag=["later"])
        run_files.keep_run(opened, copy, run)
    rebuilding.rebuild(rebuilt, store)
    with Ledger.open(rebuilt) as opened:
        assert opened.run(run).tags == ("later",)
        assert len(opened.ladders()) == 1


def test_checkpoints_are_kept_while_their_store_cannot_be_read(tmp_path: Path, monkeypatch, capsys) -> None:
    """Nothing is known of them then: a resume does not remove them, and `ledger check` says why it cannot check."""
    monkeypatch.chdir(tmp_path)
    results.fill(tmp_path / "ledger.db", "sDigits", {"tanh-rnn": [0.5]})
    with Ledger.open("ledger.db") as opened:
        [run] = opened.runs()
    entry = Checkpoint(
        id=1, run=run.id, attempt=1, step=7, state="committed", path=f"{run.id}/1/checkpoints/7", bytes=1, sha256="a"
    )

    def unreachable(url: str) -> None:
        raise OSError(f"{url}: no route to host")

    monkeypatch.setattr(storage, "_connected", unreachable)
    runs = paths.runs_folder("s3://bucket/runs", "--runs-dir")
    removed: list[int] = []
    ledger = SimpleNamespace(
        checkpoints=lambda run: [entry],
        attempts=lambda run: [SimpleNamespace(n=1, numerics=1), SimpleNamespace(n=2, numerics=1)],
        delete_checkpoints=lambda held, numbers: removed.extend(numbers),
    )
    attempt = SimpleNamespace(id=run.id, runs=runs, ledger=ledger, held=None, note=lambda kind, text: None)
    restored = snapshots.Snapshots(attempt, None)  # type: ignore[arg-type]
    with pytest.raises(MachineFault, match="of step 7 cannot be fetched, and is kept: s3://bucket/runs: no route"):
        restored.restore(None)  # type: ignore[arg-type]
    restored.close()
    assert removed == []
    with pytest.raises(LrurunError, match="of step 7 cannot be fetched: s3://bucket/runs: no route"):
        trained.newest(run, [entry], runs)
    stores.raw(
        tmp_path / "ledger.db",
        "INSERT INTO checkpoints (run, attempt, step, state, path) VALUES (1, 1, 7, 'committed', ?)",
        entry.path,
    )
    for check in (["ledger", "check"], ["ledger", "check", "--quick"]):
        assert command([*check, "--runs-dir", "s3://bucket/runs"]) == 1
        assert f"checkpoint of run {run.id}, step 7: s3://bucket/runs: no route to host" in capsys.readouterr().out
    assert command(["ledger", "gc", "--finished", "--runs-dir", "s3://bucket/runs"]) == 0
    assert "warning: 7: not removed from s3://bucket/runs: s3://bucket/runs: no route" in capsys.readouterr().err


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def s3(elsewhere: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine whose S3 is a private server."""
    import s3fs

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    s3fs.S3FileSystem.clear_instance_cache()  # of the server of another test
    process = subprocess.Popen(
        [sys.executable, "-c", "from moto.server import main; main()", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    given = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}
    given |= {"AWS_DEFAULT_REGION": "us-east-1", "LRURUN_RUNS": BUCKET}
    elsewhere.env |= given
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    storage._connected.cache_clear()
    try:
        wait_for(lambda: _answers(port), 60)
        yield elsewhere
    finally:
        process.kill()
        process.wait()
        storage._connected.cache_clear()


@pytest.mark.slow
def test_a_run_goes_on_from_a_store_where_its_folder_is_not(s3: Machine, long_history) -> None:
    """Its machine is lost: the worker is killed, and the local copy is gone."""
    import s3fs

    assert "error: s3://runs/of/a group: the runs folder cannot be written: " in s3.run(*ONE, code=1, apart=True).stderr
    files = s3fs.S3FileSystem()
    files.mkdir("runs")
    s3.runs = paths.places().runs
    process = s3.start(*ONE)
    wait_for(lambda: process.poll() is not None or s3.committed())
    for worker in workers_of(process):
        worker.kill()
    stop(process, signal.SIGKILL)
    process.communicate()
    assert any("/checkpoints/" in name for name in files.find("runs"))
    shutil.rmtree(s3.runs)
    s3.run(*ONE, apart=True)
    [[_, second]] = s3.attempts().values()
    assert second.resumed_from > 0
    assert s3.history() == {GAMMA_NORM: long_history[GAMMA_NORM]}

    shutil.rmtree(s3.runs)
    [run] = s3.json("runs")["runs"]
    assert "from step" in s3.run("show", run["id"], "--log").stdout
    assert lrurun.load(run["id"], ledger=s3.ledger).id == run["id"]
    assert "in an object store" in s3.run("ledger", "merge", "other.db", code=2).stderr
    s3.run("ledger", "gc", "--finished")
    assert [name for name in files.find("runs") if "/checkpoints/" in name] == []


@pytest.mark.slow
def test_forgotten_runs_are_removed_from_a_store(s3: Machine) -> None:
    import s3fs

    stored = s3fs.S3FileSystem()
    stored.mkdir("runs")
    results.fill(s3.ledger, "npDigits", {"gamma-norm": [0.5, 0.6]})
    runs = paths.places().runs
    with Ledger.open(s3.ledger) as ledger:
        kept, gone = ledger.run_ids()
        stores.keep_all(ledger, runs)
        for run in (kept, gone):
            log = runs / run / "1" / "log.txt"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("a line")
            storage.storage_for(runs).put(log)
    shutil.rmtree(runs / gone)  # as on another machine
    done = s3.json("ledger", "forget", "--where", f"id={gone}", "--yes")
    assert done["bytes"] > len("a line")
    names = {name.removeprefix(BUCKET.removeprefix("s3://") + "/") for name in stored.find("runs")}
    assert {name.split("/")[0] for name in names} - {"removals"} == {kept, "ladders"}
    assert s3.json("ledger", "check")["problems"] == []

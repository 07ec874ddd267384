"""Real kills, hangs, full disks, clocks and lack of memory, one of each kind: the same command finishes, with the same
bits. Those at every moment are simulated in `test_every_moment.py`."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

import lrurun
from lrurun.errors import LrurunError
from lrurun.ledger.database import sqlite
from lrurun.ledger.database.schema import SCHEMA
from tests.harness import old_ledgers
from tests.harness.machine import LONG, TWO_RUNS, Machine, held, stop, training, wait_for, workers_of

pytestmark = pytest.mark.slow

GAMMA_NORM = ("gamma-norm", "train", 0)


def kill(process: subprocess.Popen[str]) -> None:
    """Kills the command and its workers."""
    for worker in workers_of(process):
        worker.kill()
    stop(process, signal.SIGKILL)


def test_supervisor_killed_while_two_terminals_work(machine: Machine, long_history) -> None:
    """The other terminal takes over the runs of the killed one, and finishes alone."""
    arguments = ("ladder", "sDigits", *LONG, *TWO_RUNS, "--jobs", "1")
    first, second = machine.start(*arguments), machine.start(*arguments)
    wait_for(training(machine, step=60))
    stop(first, signal.SIGKILL)
    first.communicate(timeout=30)
    _, err = second.communicate(timeout=300)
    assert second.returncode == 0, err
    assert machine.history() == {key: value for key, value in long_history.items() if key[2] == 0}


def test_a_kill_changes_no_bit_where_examples_are_sampled_at_every_step(machine: Machine, tmp_path) -> None:
    """The batches after a resumption are those of an undisturbed run: they depend on the seed and the step alone.

    It resumes from the checkpoint before the newest, of which a byte is flipped: Orbax would not notice.
    """
    steps = 3000  # of this small task 600 may be done before the second checkpoint
    long = [*("--set", f"train.steps={steps}", "--set", "train.eval_every=500"), *LONG[-2:]]
    arguments = ("ladder", "Copy", "--profile", "smoke", *long, "--rung", "gamma-norm", "--jobs", "1")
    alone = Machine(tmp_path / "undisturbed")
    alone.run(*arguments)
    process = machine.start(*arguments)
    wait_for(lambda: len(machine.committed()) >= 2)
    kill(process)
    process.communicate(timeout=30)
    wait_for(lambda: "running" not in machine.states(), 15)
    newest, before = machine.committed()[:2]
    files = [path for path in (machine.runs / newest.path).rglob("*") if path.is_file()]
    file = max(files, key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)
    machine.run(*arguments)
    [attempts] = machine.attempts().values()
    assert [attempt.reason for attempt in attempts] == ["interrupted: owner gone", "done"]
    assert 0 < attempts[1].resumed_from == before.step < steps
    log = (machine.runs / attempts[1].run / "2" / "log.txt").read_text()
    assert f"checkpoint of step {newest.step} not used" in log
    assert machine.history() == alone.history()


TRAININGS = {
    "muon with an average": {"name": "muon", "average": "ema", "average_decay": 0.99},
    "schedule-free in parts": {"name": "schedule_free_adamw", "schedule": "constant", "accumulate": 2, "clip": 0.5},
    "SGD, clipped": {"name": "sgd", "momentum": 0.9, "clip": 0.1, "clip_by": "block-rms", "schedule": "wsd"},
}


@pytest.mark.parametrize("case", TRAININGS)
def test_a_kill_changes_no_bit_of_other_trainings(case: str, machine: Machine, tmp_path: Path) -> None:
    """Killed twice, a run ends with the history and the model of one that was left alone."""
    sets = [word for name, value in TRAININGS[case].items() for word in ("--set", f"optim.{name}={value}")]
    longer = ("--set", "train.steps=2000", "--set", "train.eval_every=500", *LONG[-2:])
    arguments = ("ladder", "sDigits", "--profile", "smoke", *longer, *sets, "--rung", "gamma-norm", "--seeds", "1")
    alone = Machine(tmp_path / "undisturbed")
    alone.run(*arguments)
    newest = 0
    for _ in range(2):
        process = machine.start(*arguments)
        wait_for(lambda newest=newest: any(one.step > newest for one in machine.committed()))
        kill(process)
        newest = machine.committed()[0].step
        process.communicate(timeout=30)
        wait_for(lambda: "running" not in machine.states(), 15)
    machine.run(*arguments)
    [attempts] = machine.attempts().values()
    assert [attempt.reason for attempt in attempts] == ["interrupted: owner gone"] * 2 + ["done"]
    assert 0 == attempts[0].resumed_from < attempts[1].resumed_from < attempts[2].resumed_from < 2000
    assert machine.history() == alone.history()
    [run] = machine.json("runs")["runs"]
    models = [lrurun.load(run["id"], ledger=of.ledger, runs_dir=of.runs) for of in (machine, alone)]
    assert models[0].step == models[1].step
    for one, other in zip(*(jax.tree.leaves((model.params, model.stats)) for model in models), strict=True):
        assert one.tobytes() == other.tobytes()


def _tmpfs(folder, size: str):
    folder.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")


@pytest.fixture
def small_disk(machine):
    folder = machine.folder / "small"
    _tmpfs(folder, "1m")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_full_disk_under_the_runs(machine: Machine, small_disk) -> None:
    """No space for a checkpoint: an error and a hint; the run is finished when there is space."""
    arguments = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--jobs", "1", "--runs-dir", str(small_disk))
    process = machine.start(*arguments)
    wait_for(training(machine, step=20))
    with pytest.raises(OSError, match="No space"):
        (small_disk / "ballast").write_bytes(b"\0" * (2 * 2**20))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert err.splitlines()[-2].startswith("error: ")
    assert "could not be saved" in err.splitlines()[-2]
    assert err.splitlines()[-1].startswith("hint: free some space")
    assert machine.states() in ({"interrupted": 1}, {"queued": 1})
    (small_disk / "ballast").unlink()
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    machine.run(*arguments)
    assert machine.states() == {"done": 1}


def test_a_full_disk_is_reported_before_training(machine: Machine, small_disk) -> None:
    with pytest.raises(OSError, match="No space"):
        (small_disk / "ballast").write_bytes(b"\0" * (2 * 2**20))
    done = machine.run("ladder", "sDigits", "--profile", "smoke", "--runs-dir", str(small_disk), code=1)
    assert "the runs folder cannot be written: No space left on device" in done.stderr
    assert not machine.ledger.exists()


@pytest.fixture
def other_disk(machine):
    folder = machine.folder / "other"
    _tmpfs(folder, "16m")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_read_only_places(machine: Machine, other_disk) -> None:
    machine.run("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn")
    os.makedirs(other_disk / "runs")
    for name in ("ledger.db", "ledger.db-wal"):
        if (machine.folder / name).exists():
            (other_disk / name).write_bytes((machine.folder / name).read_bytes())
    subprocess.run(["mount", "-o", "remount,ro", str(other_disk)], check=True)
    arguments = ("ladder", "sDigits", "--profile", "smoke", "--rung", "linear-rnn")
    done = machine.run(*arguments, "--runs-dir", str(other_disk / "runs"), code=1)
    assert "the runs folder cannot be written: Read-only file system" in done.stderr
    done = machine.run(*arguments, "--ledger", str(other_disk / "ledger.db"), code=1)
    assert done.stderr.splitlines()[-2].startswith("error: ")
    finished = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn")
    done = machine.run(*finished, "--ledger", str(other_disk / "ledger.db"))
    assert "nothing to do" in done.stderr
    assert "tanh-rnn" in done.stdout
    listed = machine.json("runs", "--ledger", str(other_disk / "ledger.db"))["runs"]
    assert [run["state"] for run in listed] == ["done"]
    done = machine.run(
        "ladder",
        "sDigits",
        "--profile",
        "smoke",
        "--rung",
        "tanh-rnn",
        "--data-dir",
        str(other_disk / "data"),
        "--fresh",
        code=1,
    )
    assert done.stderr.splitlines()[-2].endswith("cannot be written")


def test_full_disk_under_the_ledger(machine: Machine, other_disk) -> None:
    """The ledger cannot grow: the command reports it and exits with 1, no run fails, and it can be continued."""
    arguments = ("ladder", "sDigits", *LONG, "--set", "train.steps=1200", "--rung", "gamma-norm", "--jobs", "1")
    ledger = ("--ledger", str(other_disk / "ledger.db"), "--runs-dir", str(machine.folder / "runs"))
    machine.ledger = other_disk / "ledger.db"
    process = machine.start(*arguments, *ledger)
    wait_for(training(machine, step=20))
    with pytest.raises(OSError, match="No space"):
        (other_disk / "ballast").write_bytes(b"\0" * (17 * 2**20))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "error: no space left for the ledger" in err
    (other_disk / "ballast").unlink()
    assert machine.json("runs", *ledger)["runs"][0]["state"] == "interrupted"
    machine.run(*arguments, *ledger)
    assert machine.json("runs", *ledger)["runs"][0]["state"] == "done"


def test_worker_that_hangs_is_killed_by_its_own_supervisor(machine: Machine) -> None:
    arguments = (
        "ladder",
        "sDigits",
        *LONG,
        "--rung",
        "gamma-norm",
        "--jobs",
        "1",
        "--set",
        "execution.hang_after_seconds=4",
    )
    process = machine.start(*arguments)
    wait_for(machine.committed)
    workers_of(process)[0].suspend()
    _, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    # the second where it held the ledger, for which its supervisor then waited
    assert re.search(r"its worker wrote nothing for 4 s and was killed|is suspended, wrote nothing for \d+ s", err), err
    [attempts] = machine.attempts().values()
    assert [a.reason for a in attempts] == ["interrupted: owner gone", "done"]
    assert attempts[1].resumed_from


ONE = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--jobs", "1")
SMOKE = ("ladder", "sDigits", "--profile", "smoke")


def site(machine: Machine, text: str) -> dict[str, str]:
    """The environment of a command whose processes begin with `text`."""
    folder = machine.folder / "site"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": f"{folder}:{Path(lrurun.__file__).parents[1]}"}


def test_a_ledger_that_is_held_is_waited_for(machine: Machine, long_history) -> None:
    """A command that trains waits longer than others, which exit with 5."""
    process = machine.start(*ONE)
    wait_for(training(machine, step=60))
    [run] = machine.json("runs")["runs"]
    with held(machine.ledger):
        done = machine.run("mark", run["id"], "--tag", "late", code=5)
        assert done.stderr.splitlines()[-2] == (
            f"error: the ledger {machine.ledger} is busy: another process held it for more than 30 s"
        )
        assert machine.json("runs")["runs"], "readers do not wait"
        assert process.poll() is None
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert machine.history() == {GAMMA_NORM: long_history[GAMMA_NORM]}
    assert [[a.reason for a in attempts] for attempts in machine.attempts().values()] == [["done"]]


def test_a_command_that_waits_for_the_ledger_says_so_and_can_be_stopped(machine: Machine) -> None:
    machine.run(*SMOKE, "--rung", "tanh-rnn")
    arguments = (*SMOKE, "--rung", "linear-rnn")
    with held(machine.ledger):
        process = machine.start(*arguments)
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said == f"the ledger {machine.ledger} is busy: waiting for another process that writes to it\n"
        stop(process, signal.SIGINT)
        _, err = process.communicate(timeout=15)
        assert process.returncode == 130, err
        said = "stopped by ^C before any training; the same command continues: lrurun ladder sDigits"
        assert err.splitlines()[-1] == f"{said} --profile smoke --rung linear-rnn"
    machine.run(*arguments)
    assert machine.states() == {"done": 2}


CLOCK = """
import os, time
real = time.time
time.time = lambda: real() + ({offset} if os.path.exists({file!r}) else 0)
"""


def test_a_clock_that_is_set_back(machine: Machine, long_history) -> None:
    """By two hours: no worker counts as hung, and results are the same."""
    flag = machine.folder / "set"
    env = site(machine, CLOCK.format(offset=-7200, file=str(flag)))
    process = machine.start(*ONE, "--set", "execution.hang_after_seconds=600", env=env)
    wait_for(training(machine, step=60))
    flag.touch()
    workers_of(process)[0].kill()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "was killed" not in err
    assert machine.history() == {GAMMA_NORM: long_history[GAMMA_NORM]}
    [attempts] = machine.attempts().values()
    assert [a.reason for a in attempts] == ["interrupted: owner gone", "done"]
    for arguments in (("status",), ("runs",), ("show", attempts[0].run), ("plan", *ONE[1:-2])):
        machine.run(*arguments)


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A control group whose processes may take 40 MB more: less than importing jax needs."""
    for mount, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(mount) / f"lrurun-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text("40M")
            yield group
        except OSError:
            continue
        finally:
            group.rmdir()
        return
    pytest.skip("no control group that limits memory can be made here")


def test_memory_runs_out_in_a_worker(machine: Machine, little_memory: Path) -> None:
    """One rung of two needs too much: it is tried three times, the reason is reported, and the other is done."""
    text = (
        "import os, sqlite3, sys, time\n"
        "class Limit:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'jax' and 'lrurun.runner.worker' in sys.orig_argv:\n"
        "            if attempts('a.pid = %d AND a.ended_at IS NULL' % os.getpid()):\n"
        "                open({file!r}, 'w').write(str(os.getpid()))\n"
        # The other worker, which has its memory already, must not take the run over.
        "            else:\n"
        "                while attempts('a.ended_at IS NOT NULL') < 3: time.sleep(0.1)\n"
        "def attempts(where):\n"
        "    return sqlite3.connect({ledger!r}).execute(\n"
        "        'SELECT count(*) FROM attempts a JOIN ladder_runs l ON l.run = a.run'\n"
        "        ' WHERE l.rung = \\'gamma-norm\\' AND ' + where).fetchone()[0]\n"
        "sys.meta_path.insert(0, Limit())\n"
    ).format(file=str(little_memory / "cgroup.procs"), ledger=str(machine.ledger))
    arguments = (*SMOKE, "--rung", "gamma-norm", "--rung", "tanh-rnn")
    # in a process of its own: a plug-in that another test has loaded would import jax before a run is held
    done = machine.run(*arguments, "--jobs", "2", code=3, apart=True, env=site(machine, text))
    assert machine.states() == {"done": 1, "interrupted": 1}
    [bad] = [run for run in machine.json("runs")["runs"] if run["state"] == "interrupted"]
    died = "a worker ended with SIGKILL: the system killed it because memory ran out"
    assert f"run {bad['id']} (gamma-norm, seed 0): interrupted: {died}; see lrurun show {bad['id']}" in done.stderr
    assert [a.reason for a in machine.attempts()[bad["id"]]] == ["interrupted: owner gone"] * 3
    events = [e["text"] for e in machine.json("show", bad["id"])["events"] if e["kind"] == "died"]
    assert events == [died] * 3
    machine.run(*arguments)
    assert machine.states() == {"done": 2}


def test_a_full_disk_in_a_migration(machine: Machine) -> None:
    """No space for the backup, later none for the tables: the ledger is unchanged, and the next command upgrades it."""
    disk = machine.folder / "disk"
    _tmpfs(disk, "1m")
    try:
        ledger = disk / "ledger.db"
        old_ledgers.build(ledger)
        versions = old_ledgers.later(machine.folder / "versions")
        before = ledger.read_bytes()
        ballast = disk / "ballast"
        for room in (len(before) // 2, len(before) + 20_000):
            with contextlib.suppress(OSError), ballast.open("wb") as file:
                while True:
                    file.write(b"\0" * 4096)
                    file.flush()
            os.truncate(ballast, ballast.stat().st_size - room)
            with pytest.raises(LrurunError, match="no space left for the ledger") as refused:
                sqlite.upgrade(ledger, versions=versions)
            assert str(refused.value.hint).startswith("free some space")
            with contextlib.closing(sqlite3.connect(ledger)) as connection:
                assert connection.execute("SELECT version_num FROM lrurun_version").fetchone() == (SCHEMA,)
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        ballast.unlink()
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        sqlite.upgrade(ledger, versions=versions)
        with contextlib.closing(sqlite3.connect(ledger)) as connection:
            assert connection.execute("SELECT version_num FROM lrurun_version").fetchone() == ("9001",)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)

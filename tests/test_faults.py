"""Faults of the machine: a busy ledger, memory, clocks, disks, folders that are removed.

Every fault is a real one, except for the clock: a `sitecustomize` gives the processes of the command a `time.time`
that jumps.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import lrurun
from lrurun.errors import LrurunError
from lrurun.ledger.database import sqlite
from lrurun.ledger.database.schema import SCHEMA
from tests import old_ledgers
from tests.machine import FOUR_RUNS, LONG, Machine, held, stop, training, wait_for, workers_of
from tests.test_kills import _tmpfs

ONE = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--jobs", "1")
SMOKE = ("ladder", "sDigits", "--profile", "smoke")


def only_gamma_norm(history):
    return {key: history[key] for key in [("gamma-norm", "train", 0)]}


def site(machine: Machine, text: str) -> dict[str, str]:
    """The environment of a command whose processes begin with `text`."""
    folder = machine.folder / "site"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": f"{folder}:{Path(lrurun.__file__).parents[1]}"}


@pytest.mark.slow
def test_a_ledger_held_for_a_minute_is_waited_for(machine: Machine, long_history) -> None:
    """A command that trains waits longer than others, which exit with 5."""
    process = machine.start(*ONE)
    wait_for(training(machine, step=60))
    [run] = machine.json("runs")["runs"]
    began = time.monotonic()
    with held(machine.ledger):
        done = machine.run("mark", run["id"], "--tag", "late", code=5)
        assert done.stderr.splitlines()[-2] == (
            f"error: the ledger {machine.ledger} is busy: another process held it for more than 30 s"
        )
        assert machine.json("runs")["runs"], "readers do not wait"
        time.sleep(max(0.0, 60 - (time.monotonic() - began)))
        assert process.poll() is None
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert machine.history() == only_gamma_norm(long_history)
    assert [[a.reason for a in attempts] for attempts in machine.attempts().values()] == [["done"]]


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("offset", [-7200, 7200], ids=["back", "ahead"])
def test_a_clock_that_is_set(machine: Machine, long_history, offset: int) -> None:
    """Two hours, back and ahead: no worker counts as hung, and results are the same."""
    flag = machine.folder / "set"
    env = site(machine, CLOCK.format(offset=offset, file=str(flag)))
    process = machine.start(*ONE, "--set", "execution.hang_after_seconds=600", env=env)
    wait_for(training(machine, step=60))
    flag.touch()
    workers_of(process)[0].kill()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "was killed" not in err
    assert machine.history() == only_gamma_norm(long_history)
    [attempts] = machine.attempts().values()
    assert [a.reason for a in attempts] == ["interrupted: owner gone", "done"]
    for arguments in (("status",), ("runs",), ("show", attempts[0].run), ("plan", *ONE[1:-2])):
        machine.run(*arguments, env=env)


@pytest.mark.slow
def test_a_run_that_always_breaks_is_tried_three_times_under_a_clock_set_back(machine: Machine) -> None:
    """Attempts are distinguished by number: by time, those after the jump would be older than the command."""
    flag = machine.folder / "set"
    text = CLOCK.format(offset=-7200, file=str(flag)) + (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'lrurun.training.loop': open({str(flag)!r}, 'w'); raise RuntimeError('a broken machine')\n"
        "sys.meta_path.insert(0, Refuse())\n"
    )
    machine.run(*SMOKE, "--rung", "tanh-rnn", code=3, env=site(machine, text), apart=True)
    [attempts] = machine.attempts().values()
    assert [a.reason for a in attempts] == ["failed: RuntimeError: a broken machine"] * 3
    machine.run(*SMOKE, "--rung", "tanh-rnn")
    assert machine.states() == {"done": 1}


@pytest.mark.slow
def test_the_runs_folder_is_removed_while_training(machine: Machine, long_history) -> None:
    process = machine.start(*ONE)
    wait_for(training(machine, step=60))
    machine.runs.rename(machine.folder / "elsewhere")
    _, err = process.communicate(timeout=120)
    if process.returncode:  # it was removed while a checkpoint was written
        assert process.returncode == 1
        assert "could not be saved" in err
        machine.run(*ONE)
    else:
        assert "the runs folder runs was removed or replaced" in err
    assert machine.history() == only_gamma_norm(long_history)


@pytest.mark.slow
def test_the_runs_folder_is_removed_between_commands(machine: Machine, long_history) -> None:
    process = machine.start(*ONE)
    wait_for(training(machine, step=60))
    stop(process, signal.SIGTERM)
    process.communicate(timeout=20)
    shutil.rmtree(machine.runs)
    done = machine.run(*ONE)
    [run] = machine.json("runs")["runs"]
    assert f"{run['id']}: checkpoint of step" in done.stderr
    assert "is missing" in done.stderr
    assert machine.history() == only_gamma_norm(long_history)
    [attempts] = machine.attempts().values()
    assert attempts[-1].resumed_from == 0
    shutil.rmtree(machine.runs)
    assert "nothing to do" in machine.run(*ONE).stderr
    assert "1 checkpoint is not in the runs folder" in machine.run("ledger", "check", code=1).stdout


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


@pytest.mark.slow
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
    # in a process of its own: a plug-in that another test has loaded would import jax before a run is claimed
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


@pytest.mark.slow
def test_memory_that_an_allocation_is_refused_fails_the_run(machine: Machine) -> None:
    """The run keeps what NumPy or XLA report."""
    text = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'lrurun.training.loop':\n"
        "            import numpy, resource\n"
        "            used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "            resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, -1))\n"
        "            numpy.ones(2**30)\n"
        "sys.meta_path.insert(0, Refuse())\n"
    )
    arguments = (*SMOKE, "--rung", "tanh-rnn")
    done = machine.run(*arguments, code=3, env=site(machine, text))
    assert "Unable to allocate 8.00 GiB" in done.stderr
    [run] = machine.json("runs")["runs"]
    assert run["state"] == "failed"
    machine.run(*arguments)
    assert machine.states() == {"done": 1}


@pytest.mark.slow
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


@pytest.mark.slow
def test_workers_get_a_device_each(machine: Machine) -> None:
    """Two devices that the user names, as Slurm does; how jax reads the variable is not tested."""
    text = (
        "import importlib.metadata as m\nreal = m.version\n"
        "m.version = lambda name: '1' if name == 'jax-cuda13-plugin' else real(name)\n"
    )
    env = {**site(machine, text), "CUDA_VISIBLE_DEVICES": "5,7", "JAX_PLATFORMS": "cpu"}
    process = machine.start(*SMOKE, "--seeds", "2", "--rung", "tanh-rnn", "--rung", "linear-rnn", env=env)
    seen: set[str] = set()

    def both() -> bool:
        for worker in workers_of(process):
            with contextlib.suppress(psutil.Error):
                seen.add(worker.environ()["CUDA_VISIBLE_DEVICES"])
        assert process.poll() is None or len(seen) == 2
        return len(seen) == 2

    wait_for(both)
    assert seen == {"5", "7"}
    assert len(workers_of(process)) == 2, "as many workers as devices"
    process.communicate(timeout=120)
    assert machine.states() == {"done": 4}


@pytest.mark.slow
def test_as_many_workers_as_cores_and_none_after_an_interrupt(machine: Machine) -> None:
    arguments = ("ladder", "sDigits", *LONG, "--seeds", "3")
    for cores in [{min(os.sched_getaffinity(0))}, set(sorted(os.sched_getaffinity(0))[:2])]:
        process = machine.start(*arguments, prefix=("taskset", "-c", ",".join(map(str, cores))))
        wait_for(training(machine, step=0))
        wait_for(lambda process=process, cores=cores: len(workers_of(process)) == len(cores))
        workers = workers_of(process)
        time.sleep(1)
        assert len(workers_of(process)) == len(cores)
        stop(process, signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130, err
        assert psutil.wait_procs(workers, timeout=5)[1] == []
        assert "running" not in machine.states()


@pytest.mark.slow
def test_workers_take_different_rungs_and_a_lost_run_comes_first(machine: Machine) -> None:
    """Of two workers one is killed while it trains: its run is the next of its rung to be taken."""
    arguments = ("ladder", "sDigits", *LONG, *FOUR_RUNS, "--jobs", "2")
    process = machine.start(*arguments)
    wait_for(training(machine, step=60))
    victim = workers_of(process)[0].pid
    workers_of(process)[0].kill()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "a worker ended with SIGKILL" in err
    with contextlib.closing(sqlite3.connect(machine.ledger)) as connection:
        taken = connection.execute(
            "SELECT l.position, a.n, a.pid FROM attempts a JOIN ladder_runs l ON l.run = a.run ORDER BY a.started_at"
        ).fetchall()
    rungs = {position: position // 10_000 for position, *_ in taken}
    assert len(set(rungs.values())) == 2
    assert rungs[taken[0][0]] != rungs[taken[1][0]]
    for rung in set(rungs.values()):
        first = [position for position, n, _ in taken if n == 1 and rungs[position] == rung]
        assert first == sorted(position for position in rungs if rungs[position] == rung)
    lost = [position for position, _, pid in taken if pid == victim][-1]
    again = next(place for place, (position, n, _) in enumerate(taken) if position == lost and n == 2)
    later = [position for position, n, _ in taken[again:] if rungs[position] == rungs[lost]]
    assert later == sorted(later)

"""Killed and stopped processes, damaged checkpoints, full disks: the same command finishes, with the same bits.

Kills at chosen moments are in `test_chaos.py`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time

import pytest

from tests.harness.machine import FOUR_RUNS, LONG, Machine, stop, training, wait_for, workers_of

pytestmark = pytest.mark.slow

GAMMA_NORM = ("gamma-norm", "train", 0)


def kill(process: subprocess.Popen[str]) -> None:
    """Kills the command and its workers."""
    for worker in workers_of(process):
        worker.kill()
    stop(process, signal.SIGKILL)


def test_supervisor_killed_while_two_terminals_work(machine: Machine, long_history) -> None:
    """The other terminal takes over the runs of the killed one, and finishes alone."""
    arguments = ("ladder", "sDigits", *LONG, *FOUR_RUNS, "--jobs", "1")
    first, second = machine.start(*arguments), machine.start(*arguments)
    wait_for(training(machine, step=60))
    stop(first, signal.SIGKILL)
    first.communicate(timeout=30)
    _, err = second.communicate(timeout=300)
    assert second.returncode == 0, err
    assert machine.history() == long_history


def test_a_kill_changes_no_bit_where_examples_are_sampled_at_every_step(machine: Machine, tmp_path) -> None:
    """The batches after a resumption are those of an undisturbed run: they depend on the seed and the step alone."""
    arguments = ("ladder", "Copy", *LONG, "--set", "train.steps=900", "--rung", "gamma-norm", "--jobs", "1")
    alone = Machine(tmp_path / "undisturbed")
    alone.run(*arguments)
    process = machine.start(*arguments)
    wait_for(lambda: saved(machine))
    kill(process)
    process.communicate(timeout=30)
    wait_for(lambda: "running" not in machine.states(), 15)
    machine.run(*arguments)
    [attempts] = machine.attempts().values()
    assert [attempt.reason for attempt in attempts] == ["interrupted: owner gone", "done"]
    assert 0 < attempts[1].resumed_from < 900
    assert machine.history() == alone.history()


def saved(machine: Machine) -> int:
    """The step of the newest checkpoint that is whole; 0 without one."""
    from lrurun.errors import LrurunError
    from lrurun.ledger.store import Ledger

    try:
        ledger = Ledger.read(machine.ledger)
    except LrurunError:
        return 0  # being made just now
    if ledger is None:
        return 0
    with ledger:
        found = [one.step for run in ledger.runs() for one in ledger.checkpoints(run.id, "committed")]
        return max(found, default=0)


def test_stopped_worker_keeps_its_run(machine: Machine) -> None:
    """A process that is only stopped keeps its run."""
    arguments = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--jobs", "1")
    first = machine.start(*arguments)
    wait_for(training(machine, step=60))
    [worker] = workers_of(first)
    worker.suspend()
    stop(first, signal.SIGSTOP)
    second = machine.start(*arguments)
    time.sleep(4)
    assert machine.states() == {"running": 1}
    assert second.poll() is None
    assert [len(a) for a in machine.attempts().values()] == [1]
    worker.resume()
    stop(first, signal.SIGCONT)
    for process in (first, second):
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert [len(a) for a in machine.attempts().values()] == [1]


def test_a_damaged_checkpoint_is_not_used_but_the_one_before(machine: Machine, long_history) -> None:
    """One with a flipped byte, which would be restored without an error."""
    arguments = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--jobs", "1")
    process = machine.start(*arguments)
    wait_for(lambda: len(_committed(machine)) >= 2)
    kill(process)
    process.communicate(timeout=30)
    wait_for(lambda: "running" not in machine.states(), 15)
    newest, before = _committed(machine)[:2]
    files = [path for path in (machine.runs / newest.path).rglob("*") if path.is_file()]
    file = max(files, key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)
    machine.run(*arguments)
    assert machine.history() == {GAMMA_NORM: long_history[GAMMA_NORM]}
    [attempts] = machine.attempts().values()
    assert attempts[-1].resumed_from == before.step
    [run] = machine.json("runs")["runs"]
    events = [event["text"] for event in machine.json("show", run["id"])["events"] if event["kind"] == "checkpoint"]
    assert any(f"checkpoint of step {newest.step} not used" in text for text in events)
    log = (machine.runs / run["id"] / str(attempts[-1].n) / "log.txt").read_text()
    assert f"checkpoint of step {newest.step} not used" in log


def _committed(machine: Machine):
    from lrurun.ledger.store import Ledger

    ledger = Ledger.read(machine.ledger)
    if ledger is None:
        return []
    with ledger:
        return [c for run in ledger.runs() for c in ledger.checkpoints(run.id, "committed")]


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
    arguments = ("ladder", "sDigits", *LONG, "--set", "train.steps=3000", "--rung", "gamma-norm", "--jobs", "1")
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
    wait_for(training(machine, step=60))
    workers_of(process)[0].suspend()
    _, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    # the second where it held the ledger, for which its supervisor then waited
    assert re.search(r"its worker wrote nothing for 4 s and was killed|is suspended, wrote nothing for \d+ s", err), err
    [attempts] = machine.attempts().values()
    assert [a.reason for a in attempts] == ["interrupted: owner gone", "done"]
    assert attempts[1].resumed_from

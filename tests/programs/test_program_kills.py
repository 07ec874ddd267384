"""Programs whose processes are killed, limited or without space: every run is done once, with undisturbed curves."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lrurun.ledger.ledger import Ledger
from tests.harness.machine import Machine, stop, training, wait_for, workers_of
from tests.harness.programs import curves_of, write_scripts
from tests.harness.servers import PrivateServer

pytestmark = pytest.mark.slow

SCRIPT = """\
import json, time, lrurun
from pathlib import Path
run = lrurun.this_run()
saved = Path(run.folder) / "state.json"
state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "value": float(run.seed)}
while state["step"] < 40 and not run.should_stop:
    state = {"step": state["step"] + 1, "value": (state["value"] * 31 + 7) % 101}
    time.sleep(0.05)
    run.log(state["step"], **{"val/accuracy": state["value"] / 101, "test/accuracy": state["value"] / 202})
    if state["step"] % EVERY == 0 or run.should_stop:
        saved.with_name("new.json").write_text(json.dumps(state))
        saved.with_name("new.json").replace(saved)
with (Path(run.folder) / "ends").open("a") as file:
    file.write("stopped\\n" if run.should_stop else "end\\n")
"""
"""A script of two seconds, which saves its state at every `EVERY`th step."""
SCRIPTS = {"often": SCRIPT.replace("EVERY", "1"), "rarely": SCRIPT.replace("EVERY", "15")}
LADDER = ("ladder", "scripts.toml", "--seeds", "2", "--jobs", "2")


def curve(seed: int) -> list[tuple[int, float]]:
    values = itertools.accumulate(range(40), lambda value, _: (value * 31 + 7) % 101, initial=float(seed))
    return list(enumerate([value / 101 for value in values][1:], 1))


def check(machine: Machine, runs: int = 4) -> None:
    """Every run is done once, with the curves of an undisturbed one, and no process is left."""
    with Ledger.read(machine.ledger) as ledger:
        ended = ledger.runs()
        assert ledger.check() == []
    assert len(ended) == runs
    attempts = machine.attempts()
    for run in ended:
        assert run.state == "done"
        assert [attempt.reason for attempt in attempts[run.id]].count("done") == 1
        curves = curves_of(machine, run)
        assert curves["val/accuracy"] == curve(run.seed)
        assert curves["test/accuracy"] == [(step, value / 2) for step, value in curve(run.seed)]
        assert run.result is not None
        assert run.result["val/accuracy"] == max(value for _, value in curve(run.seed))
    assert wait_for(lambda: not programs_of(machine), 10)


def programs_of(machine: Machine) -> list[psutil.Process]:
    """The processes of the programs that its workers have started."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("LRURUN_FOLDER", "").startswith(str(machine.runs)):
                processes.append(process)
    return [process for process in processes if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def test_kills_at_random_moments(machine: Machine) -> None:
    """Of programs, workers and the command; a program that was killed counts as failed, so it is killed once."""
    rng = random.Random(0)
    write_scripts(machine.folder, SCRIPTS)
    for what in rng.sample(["program", "worker", "worker", "command", "all"], 5):
        process = machine.start(*LADDER)
        wait_for(lambda process=process: process.poll() is not None or programs_of(machine))
        time.sleep(rng.uniform(0, 1.5))
        with contextlib.suppress(psutil.NoSuchProcess):
            if what == "program":
                for program in programs_of(machine)[:1]:
                    program.kill()
            if what in ("worker", "all"):
                for worker in workers_of(process)[: 1 if what == "worker" else None]:
                    worker.kill()
        if what in ("command", "all"):
            stop(process, signal.SIGKILL)
            process.communicate(timeout=30)
            wait_for(lambda: not programs_of(machine), 15)
        else:
            time.sleep(0.5)
            stop(process, signal.SIGINT)
            process.communicate(timeout=60)
    machine.run(*LADDER, apart=True)
    check(machine)


def test_nothing_of_a_program_outlives_its_worker_and_the_command(machine: Machine) -> None:
    child = "import subprocess, time\nsubprocess.Popen(['sh', '-c', 'sleep 1000 & wait'])\ntime.sleep(1000)\n"
    write_scripts(machine.folder, {"parent": SCRIPTS["often"].replace("run.should_stop:", "True:") + child})
    process = machine.start(*LADDER)
    wait_for(lambda: len(programs_of(machine)) >= 6)
    for worker in workers_of(process):
        worker.kill()
    stop(process, signal.SIGKILL)
    process.communicate(timeout=30)
    assert wait_for(lambda: not programs_of(machine), 5)


def test_a_time_limit_lets_programs_save(machine: Machine) -> None:
    write_scripts(machine.folder, SCRIPTS)
    for limit in (4, 8, 16):  # in which a program has begun, on a machine that may be slow
        done = machine.run(*LADDER, "--time-limit", str(limit), code=143, apart=True)
        assert "remaining" in done.stderr
        stopped = [path.read_text() for path in machine.runs.glob("*/program/ends")]
        if stopped:
            break
    assert "stopped\n" in stopped
    machine.run(*LADDER, apart=True)
    check(machine)


@pytest.fixture
def small_disk(machine: Machine) -> Iterator[Path]:
    folder = machine.folder / "small"
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_full_disk_under_the_runs(machine: Machine, small_disk: Path) -> None:
    """The program fails to save, which its log says; it resumes when there is space."""
    write_scripts(machine.folder, {"often": SCRIPTS["often"]})
    machine.runs = small_disk
    arguments = ("ladder", "scripts.toml", "--seeds", "1", "--jobs", "1", "--runs-dir", str(small_disk))
    process = machine.start(*arguments)
    wait_for(training(machine))
    with pytest.raises(OSError, match="No space"):
        (small_disk / "ballast").write_bytes(b"\0" * (2 * 2**20))
    _, err = process.communicate(timeout=60)
    assert process.returncode in (1, 3), err
    assert "Traceback" not in err
    assert "No space left" in err
    (small_disk / "ballast").unlink()
    machine.run(*arguments, apart=True)
    check(machine, 1)


def test_a_ledger_on_a_server_that_restarts(machine: Machine, postgres: PrivateServer) -> None:
    write_scripts(machine.folder, SCRIPTS)
    server = postgres.empty()
    machine.use(server)
    process = machine.start(*LADDER)
    wait_for(training(machine))
    postgres.restart()
    wait_for(training(machine, step=20))
    postgres.restart(signal.SIGQUIT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    check(machine)
    postgres.drop(server)

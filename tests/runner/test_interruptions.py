"""Ladders interrupted by faulty machines, closed terminals and removed files, and what is trained afterwards."""

from __future__ import annotations

import os
import pty
import signal
import sys
import time

import pytest

from lrurun import paths
from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.config.tuning import tuning_runs
from lrurun.ledger.ledger import Ledger
from lrurun.runner.signals import Signals
from tests.harness.machine import LONG, Machine, stop, training, wait_for
from tests.harness.results import fill
from tests.harness.stores import raw

AT_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
os.dup2(1, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes its standard output the terminal of its session, and becomes the command."""
SMOKE = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn")
GAMMA = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm")


def test_nohup_is_respected() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with Signals().recorded() as signals:
            signal.raise_signal(signal.SIGHUP)
            signals.check()
            signal.raise_signal(signal.SIGTERM)
            assert signals.received == signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_report_leaves_out_runs_of_an_edited_rung(here: Machine) -> None:
    ladder = (
        'name = "radius"\ntitle = "t"\nsource = "ours"\n'
        '[[rung]]\nname = "ring"\ntitle = "r"\n'
        'change = { "model.recurrence.kind" = "diagonal", "model.recurrence.r_min" = 0.9 }\n'
    )
    file = here.folder / "radius.toml"
    file.write_text(ladder)
    report = ("report", "sDigits", "--profile", "smoke", "--ladder", "radius.toml")
    fill(here.ledger, "sDigits", {"ring": [0.5]}, profile="smoke", ladder="radius.toml")
    [instance] = here.json("status")["ladders"]
    file.write_text(ladder.replace("0.9", "0.8"))
    assert f"--instance {instance['name']} (1 finished run)" in here.refused(*report, code=4)
    file.write_text(ladder)
    assert [row["n"] for row in here.json(*report)["rows"]] == [1]


@pytest.mark.slow
def test_damaged_data_are_one_error(machine: Machine) -> None:
    machine.run("data", "prepare", "sDigits", "--data-dir", "data")
    path = machine.folder / "data" / "sDigits" / "train-inputs.npy"
    whole = path.read_bytes()
    for damaged, what in (
        (whole[:-1], "has fewer bytes than its header says"),
        (whole + b"1", "has more bytes than its header says"),
    ):
        path.write_bytes(damaged)
        said = machine.refused(*SMOKE, "--data-dir", "data", code=1)
        assert f"train-inputs.npy: {what}\nhint: remove the folder" in said
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    said = machine.run(*SMOKE, "--data-dir", "data", code=1).stderr
    assert "train-inputs.npy: its digest is not that in the manifest" in said
    assert machine.states().get("failed") is None


@pytest.mark.slow
def test_a_deleted_ledger_ends_the_command_and_its_runs_do_not_matter_later(machine: Machine) -> None:
    process = machine.start(*GAMMA, "--set", "train.steps=6000")
    wait_for(training(machine, step=20))
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
        (machine.folder / name).unlink(missing_ok=True)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 5, err
    assert "was removed or replaced while this command was writing to it" in err
    for more in ((), ("--dry-run",)):
        refused = machine.run(*SMOKE, *more, code=2).stderr
        assert "lrurun ledger rebuild" in refused
        assert "--runs-dir" in refused
    machine.run(*SMOKE, "--runs-dir", "other")
    assert machine.states() == {"done": 1}


@pytest.mark.slow
def test_a_deleted_write_ahead_log_ends_the_command_and_no_run_is_trained_twice(machine: Machine) -> None:
    arguments = ("ladder", "sDigits", *LONG, "--rung", "ring-init", "--rung", "gamma-norm", "--jobs", "1")
    process = machine.start(*arguments)
    wait_for(training(machine))
    wait_for(lambda: machine.states().get("done") == 1)
    [done] = (run for run in machine.json("runs")["runs"] if run["state"] == "done")
    for name in ("ledger.db-wal", "ledger.db-shm"):
        (machine.folder / name).unlink()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 5, err
    assert "ledger.db-wal, was removed or replaced while this command was writing to it" in err
    machine.run(*arguments)
    assert machine.states() == {"done": 2}
    assert len(machine.attempts()[done["id"]]) == 1


@pytest.mark.slow
def test_a_closed_terminal_saves_and_exits_129(machine: Machine) -> None:
    """The terminal is closed before anything can be printed."""
    master, terminal = pty.openpty()
    process = machine.start(
        *GAMMA,
        prefix=(sys.executable, "-c", AT_A_TERMINAL),
        stdout=terminal,
        stderr=terminal,
        env={"TERM": "xterm"},
    )
    os.close(terminal)
    os.set_blocking(master, False)
    condition = training(machine, step=100)
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        try:
            os.read(master, 65536)
        except BlockingIOError:
            time.sleep(0.05)
    os.close(master)
    assert process.wait(timeout=120) == 129
    assert machine.states() == {"interrupted": 1}
    [attempts] = machine.attempts().values()
    assert attempts[0].reason == "interrupted: SIGTERM"
    [run] = machine.json("runs")["runs"]
    assert run["step"] >= 100


@pytest.mark.slow
def test_a_run_that_goes_on_elsewhere_keeps_its_threads_and_says_so(machine: Machine, long_history) -> None:
    """A run begun with one thread gives its bits although the ladder goes on with two; another CPU is an event."""
    process = machine.start(*GAMMA, "--jobs", "1")
    wait_for(training(machine, step=60))
    stop(process, signal.SIGTERM)
    process.communicate(timeout=10)
    assert machine.states() == {"interrupted": 1}
    changed = "select 'another', json_set(environment, '$.machine.cpu', 'an abacus') from attempts"
    raw(machine.ledger, f"insert into documents (sha256, text) {changed}")
    raw(machine.ledger, "update stored_attempts set environment_id = (select max(id) from documents)")
    machine.run(*GAMMA, "--seeds", "2", "--set", "execution.threads=2")
    assert machine.states() == {"done": 2}
    assert machine.history()["gamma-norm", "train", 0] == long_history["gamma-norm", "train", 0]
    shown = {run["seed"]: machine.json("show", run["id"]) for run in machine.json("runs")["runs"]}
    assert {seed: one["execution"]["threads"] for seed, one in shown.items()} == {0: 1, 1: 2}
    events = [event["text"] for event in shown[0]["events"] if event["kind"] == "changed"]
    assert len(events) == 1
    assert events[0].startswith("resumed with a different CPU: an abacus before, ")


@pytest.mark.slow
def test_points_removed_from_the_grid_are_not_trained(here: Machine) -> None:
    recipe = (paths.packaged("recipes") / "sDigits.toml").read_text()
    file = here.folder / "mine.toml"
    file.write_text(recipe.replace("[0.004, 0.016]", "[0.004, 0.008, 0.016, 0.032]"))
    plan = planning.make("mine.toml", profile="smoke", tune=True)
    with Ledger.open(here.ledger) as ledger:  # a command that was stopped before it trained anything
        instance = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec, plan.short_name)
        assert len(ledger.enqueue(instance.key, tuning_runs(plan, plan.rungs[:1]))) == 4
        ledger.enqueue(instance.key, final_runs(plan, plan.rungs[1], [0]))
    file.write_text(recipe.replace("[0.004, 0.016]", "[0.016]"))
    arguments = ("mine.toml", "--profile", "smoke", "--rung", "tanh-rnn", "--tune")
    here.run("ladder", *arguments)
    finished = [run for run in here.json("runs")["runs"] if run["state"] == "done"]
    assert sorted(run["stage"] for run in finished) == ["train", "tune"]
    assert here.json("status")["ladders"][1]["total"] == 2
    [row] = here.json("plan", *arguments)["rungs"]
    assert (row["runs"], row["runs_done"], row["runs_left"]) == (2, 2, 0)


@pytest.mark.slow
def test_one_faulty_run_lets_the_others_save(machine: Machine) -> None:
    """If checkpoints of one run cannot be written, the command ends with 1 and the other run is saved."""
    arguments = (*GAMMA, "--rung", "ring-init", "--set", "train.steps=4000")
    process = machine.start(*arguments, "--jobs", "2")
    wait_for(lambda: len([r for r in machine.json("runs")["runs"] if r["step"] > 100]) == 2)
    victim = machine.json("runs")["runs"][0]["id"]
    folder = machine.runs / victim / "1" / "checkpoints"
    folder.rename(folder.with_name("moved"))
    folder.write_text("in the way")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "could not be saved" in err
    assert "running" not in machine.states()
    reasons = {i: attempts[-1].reason for i, attempts in machine.attempts().items()}
    assert "the checkpoint of step" in reasons[victim]
    assert all(reason == "interrupted: SIGTERM" for i, reason in reasons.items() if i != victim)

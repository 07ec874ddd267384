"""`--time-limit`: its syntax, the time that it leaves to save, and that a ladder which it stops goes on."""

from __future__ import annotations

import shlex
import signal
import time

import pytest

from lrurun.errors import Stopped, UsageError
from lrurun.runner.signals import Signals
from lrurun.runner.supervisor import Supervisor
from lrurun.session.training_options import seconds_of
from tests.harness.machine import LONG, Machine, stop, training, wait_for

DAY = 86400


def test_durations_in_the_usual_words_and_in_slurms() -> None:
    usual = {"90": 90, "90s": 90, "45m": 2700, "1h30m": 5400, "1h30m15s": 5415, "2d": 2 * DAY, "1d12h": 36 * 3600}
    slurms = {"30:00": 1800, "1:30:00": 5400, "12:00:00": 12 * 3600, "2-12": 60 * 3600, "2-12:30": 60 * 3600 + 1800}
    bounds = {"2-12:30:05": 60 * 3600 + 1805, "0-00:00:01": 1, "366d": 366 * DAY}
    for text, seconds in {**usual, **slurms, **bounds}.items():
        assert seconds_of(text) == seconds, text


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "0", "0m", "00:00:00", "-5", "-1:00", "1.5h", "30m1h", "1h2h", "h", "inf", "\u0663", "1 h"),
        *("1\n", "1:2:3:4", "1-", "1h30", "1w", "10min", "\x1b[31m9", "367d", "9" * 400, "9" * 400 + "h"),
    ],
    ids=range(24),
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected a duration"):
        seconds_of(text)


def test_the_limit_is_a_sigterm_that_leaves_time_to_save() -> None:
    Signals(3600).check()
    for limit, leaves in ((100.0, 8.0), (16.0, 8.0), (4.0, 2.0)):
        began = time.monotonic()
        assert Signals(limit)._deadline - began == pytest.approx(limit - leaves, abs=0.5)
    signals = Signals(1e-9)
    time.sleep(0.001)
    with pytest.raises(Stopped, match="the time limit of 0:00") as caught:
        signals.check()
    assert caught.value.exit_code == 143
    with pytest.raises(Stopped) as caught:
        signals.check()
    assert caught.value.exit_code == 143
    with signals.recorded():
        signal.raise_signal(signal.SIGINT)
        assert signals.abort, "a ^C while it saves ends it at once"


def test_a_limit_that_comes_after_the_last_run_is_no_stop(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def finish_all(self: Supervisor) -> None:
        while (held := self.ledger.hold(self.instance.key, self.owner, environment={})) is not None:
            self.ledger.finish(held, "done", result={"test/accuracy": 0.5, "machine/steps_per_second": 1.0})
        self.signals.received = signal.SIGTERM
        raise Stopped(signal.SIGTERM, "the time limit of 0:12")

    monkeypatch.setattr(Supervisor, "_loop", finish_all)
    monkeypatch.setattr("lrurun.session.preparing.prepare_data", lambda *_: None)
    arguments = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn", "--seeds", "0,4,7")
    done = machine.run(*arguments, "--time-limit", "12")
    assert "stopped" not in done.stderr
    assert "50.0 ± 0.0 %" in done.stdout


@pytest.mark.slow
def test_a_ladder_that_its_limit_stops_goes_on(machine: Machine) -> None:
    """Runs are interrupted and saved, the exit code is SIGTERM's, and the printed command continues from there."""
    steps = ("--set", "train.steps=200000", "--set", "execution.checkpoint_seconds=3600")
    arguments = ("ladder", "sDigits", *LONG, *steps, "--rung", "gamma-norm", "--seeds", "2", "--jobs", "1")
    for limit in ("18", "40"):  # in which a run takes a step, on a machine that may be slow
        done = machine.run(*arguments, "--time-limit", limit, code=143)
        begun = [run for run in machine.json("runs")["runs"] if run["state"] == "interrupted" and run["step"]]
        if begun:
            break
    [run] = begun
    said = done.stderr.splitlines()[-1]
    front = f"stopped by the time limit of 0:{limit} with 2 of 2 runs remaining; the same command continues: lrurun "
    assert said.startswith(front)
    assert tuple(shlex.split(said.removeprefix(front))) == (*arguments, "--time-limit", limit)
    again = machine.start(*arguments)
    wait_for(training(machine, step=run["step"] + 1))
    stop(again, signal.SIGTERM)
    _, err = again.communicate(timeout=30)
    assert again.returncode == 143
    assert "stopped by SIGTERM with 2 of 2 runs remaining; the same command continues: lrurun ladder sDigits" in err
    assert machine.attempts()[run["id"]][-1].resumed_from == run["step"]


@pytest.mark.rare
def test_resume_has_a_limit_and_a_ladder_that_is_done_before_it_is_done(machine: Machine) -> None:
    arguments = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn")
    machine.run(*arguments, "--seeds", "1", "--time-limit", "5m")
    process = machine.start(*arguments, "--set", "train.steps=200000")
    wait_for(training(machine, step=1))
    stop(process, signal.SIGTERM)
    process.communicate(timeout=30)
    before = machine.states()
    done = machine.run("resume", "--time-limit", "10", code=143)
    assert "the same command continues: lrurun resume --time-limit 10" in done.stderr
    assert machine.states() == before

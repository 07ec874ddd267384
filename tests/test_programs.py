"""Runs of users' programs: what a worker gives them, records of them, and does when they fail or are killed."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests import conftest
from tests.machine import Machine, stop, training, wait_for
from tests.programs import curves_of, error_of, runs_of, write_scripts

_LOGS = """\
import lrurun
run = lrurun.this_run()
for step, (val, test) in enumerate(zip(VALUES, TESTS), 1):
    scores = {"val/accuracy": val, "test/accuracy": test}
    run.log(step, **{name: score for name, score in scores.items() if score is not None})
"""


def logs(values: list[float | None], tests: list[float | None]) -> str:
    """A script that logs these scores, one step after the other."""
    return f"VALUES, TESTS = {values}, {tests}\n{_LOGS}"


def writes(text: str) -> str:
    """A script that writes this text into the file of its metrics, after a first step."""
    return f"{logs([0.5], [0.4])}import os\nopen(os.environ['LRURUN_METRICS'], 'a').write({text!r})\n"


_RESUMES = """\
import json, os, signal, lrurun
from pathlib import Path
run = lrurun.this_run()
saved = Path(run.folder) / "state.json"
state = json.loads(saved.read_text()) if KEEPS and saved.exists() else {"step": 0, "value": 0.0}
interrupted = Path(run.folder) / "interrupted"
while state["step"] < run.settings.last:
    state = {"step": state["step"] + 1, "value": (state["value"] * 31 + 7) % 101}
    value = state["value"] / 101
    run.log(state["step"], **{"train/loss": value, "val/accuracy": value, "test/accuracy": value / 2})
    saved.write_text(json.dumps(state))
    if state["step"] == 5 and not interrupted.exists():
        interrupted.touch()
        os.kill(os.getppid(), signal.SIGKILL)
        import time
        time.sleep(100)
"""
"""A script that saves its state at every step, and in its first attempt kills its worker right after the fifth: too
early for the worker to have recorded all of it."""


def curve(last: int = 8) -> list[tuple[int, float]]:
    """The validation scores that it logs if nothing interrupts it."""
    values = itertools.accumulate(range(last), lambda value, _: (value * 31 + 7) % 101, initial=0.0)
    return list(enumerate([value / 101 for value in values][1:], 1))


SCRIPTS = {
    "best": logs([0.5, 0.9, 0.9, 0.7], [0.1, 0.2, 0.3, 0.4]),
    "test-once": logs([0.5, 0.9, 0.7], [None, None, 0.6]),
    "validated-rarely": logs([0.5, None, 0.7, None], [0.1, 0.2, 0.3, 0.4]),
    "no-test": logs([0.5, 0.9], [None, None]),
    "test-elsewhere": logs([0.5, 0.9, 0.7], [0.1, None, 0.2]),
    "no-validation": logs([None, None], [0.1, 0.2]),
    "other-validation": "import lrurun\nlrurun.this_run().log(1, **{'val/acc': 0.5, 'test/acc': 0.5})\n",
    "silent": "",
    "validation-nan": logs([0.0], [0.1]).replace("[0.0]", "[float('nan')]"),
    "not-json": writes("accuracy 0.9\n"),
    "cut": writes('{"step": 2, "val/accuracy": 0.7, "test/accuracy": 0.6}'),
    "exit": logs([0.5], [0.4]) + "print('first')\nprint('the disk is gone')\nraise SystemExit(3)\n",
    "killed": logs([0.5], [0.4]) + "import os\nos.kill(os.getpid(), 9)\n",
    "diverges": "import lrurun, time\nrun = lrurun.this_run()\n"
    "for step in range(1, 4):\n"
    "    run.log(step, **{'train/loss': 1.0 if step < 3 else float('nan'), 'val/accuracy': 0.5})\n"
    "time.sleep(1000)\n",
    "other-nan": logs([0.5], [0.4]) + "run.log(1, **{'train/norm': float('nan')})\n",
    "leaves-child": logs([0.5], [0.4]) + "import subprocess\n"
    "child = subprocess.Popen(['sh', '-c', 'sleep 1000 & wait'])\n"
    "open(run.folder + '/child', 'w').write(str(child.pid))\n",
    "resumes": "KEEPS = True\n" + _RESUMES,
    "begins-again": "KEEPS = False\n" + _RESUMES,
}


@pytest.fixture(scope="module")
def ended() -> Machine:
    """A ladder each of whose rungs executes another script, after all have ended."""

    def make(folder: Path) -> None:
        machine = Machine(folder)
        write_scripts(folder, SCRIPTS)
        machine.run("ladder", "scripts.toml", "--seeds", "1", "--jobs", "2", code=3)

    return Machine(conftest.once("programs", make))


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("best", {"best_step": 2, "val/accuracy": 0.9, "test/accuracy": 0.2}),
        ("test-once", {"best_step": 2, "val/accuracy": 0.9, "test/accuracy": 0.6}),
        ("validated-rarely", {"best_step": 3, "val/accuracy": 0.7, "test/accuracy": 0.3}),
        ("cut", {"best_step": 2, "val/accuracy": 0.7, "test/accuracy": 0.6}),
        ("other-nan", {"best_step": 1, "val/accuracy": 0.5, "test/accuracy": 0.4}),
        ("leaves-child", {"best_step": 1, "val/accuracy": 0.5, "test/accuracy": 0.4}),
    ],
)
def test_the_scores_are_those_of_the_best_step(ended: Machine, script: str, result: dict[str, float]) -> None:
    """Of equal ones the earliest; a test score that is logged once holds for every step."""
    run, [attempt] = runs_of(ended)[script]
    assert (run.state, attempt.outcome, run.result) == ("done", "done", result)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("no-test", "the program logged no test/accuracy beside val/accuracy; log both at the same steps, or"),
        ("test-elsewhere", "the program logged test/accuracy not at step 2, where val/accuracy is best; log both"),
        ("no-validation", "the program logged no val/accuracy; log it, or name another metric in [program]"),
        ("other-validation", "the program logged no val/accuracy; it logged val/acc; log it, or name another"),
        ("silent", "the program logged no val/accuracy; log it, or name another metric in [program]"),
        ("validation-nan", "no val/accuracy is a finite number"),
        ("not-json", "line 2 of its metrics is no JSON; one object a line, as in "),
    ],
)
def test_what_a_program_reports_wrongly_is_not_tried_again(ended: Machine, script: str, message: str) -> None:
    run, [attempt] = runs_of(ended)[script]
    assert (run.state, attempt.outcome) == ("failed", "rejected")
    assert error_of(run).startswith(message)


@pytest.mark.parametrize(
    ("script", "cause", "last"),
    [("exit", "exit code 3: the disk is gone", "the disk is gone"), ("killed", "SIGKILL", "killed.py")],
)
def test_a_program_that_fails_is_tried_three_times(ended: Machine, script: str, cause: str, last: str) -> None:
    run, attempts = runs_of(ended)[script]
    assert [attempt.outcome for attempt in attempts] == ["failed"] * 3
    assert run.state == "failed"
    first, empty, *log = error_of(run).splitlines()
    assert (first, empty) == (f"the program ended with {cause}", "")
    assert last in log[-1], "the end of its log"
    assert script != "exit" or log[-2] == "first"


def test_a_loss_that_is_no_number_is_divergence(ended: Machine) -> None:
    """At its step; the program is killed, and has no more to say."""
    run, [attempt] = runs_of(ended)["diverges"]
    assert (run.state, run.step, attempt.outcome) == ("diverged", 3, "diverged")
    loss = curves_of(ended, run)["train/loss"]
    assert [step for step, _ in loss] == [1, 2, 3]
    assert math.isnan(loss[-1][1])


def test_nothing_of_a_program_is_left_after_its_end(ended: Machine) -> None:
    run, _ = runs_of(ended)["leaves-child"]
    child = int((ended.runs / run.id / "program" / "child").read_text())
    assert is_gone(child)
    assert not [pid for pid in psutil.pids() if str(ended.runs) in folder_of(pid)]


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def folder_of(pid: int) -> str:
    """The folder of the run whose program a process is, or belongs to; empty for others."""
    try:
        return psutil.Process(pid).environ().get("LRURUN_FOLDER", "")
    except (psutil.Error, OSError):
        return ""


@pytest.mark.parametrize("script", ["resumes", "begins-again"])
def test_the_curves_of_a_program_whose_worker_was_killed_are_whole(ended: Machine, script: str) -> None:
    """Those of an undisturbed one: also the lines that the worker had not recorded before its end."""
    run, attempts = runs_of(ended)[script]
    assert [attempt.outcome for attempt in attempts] == ["exited", "done"]
    curves = curves_of(ended, run)
    assert curves["val/accuracy"] == curves["train/loss"] == curve()
    assert curves["test/accuracy"] == [(step, value / 2) for step, value in curve()]
    assert run.result is not None
    assert run.result["val/accuracy"] == max(value for _, value in curve())
    second = (ended.runs / run.id / "2" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(second[0])["step"] == (6 if script == "resumes" else 1), "what the program did itself"
    assert attempts[-1].resumed_from == (5 if script == "resumes" else 0)

"""Runs of users' programs: what a worker gives them, records of them, and does when they fail or are killed."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from lrurun.errors import LrurunError
from lrurun.judging.rung_runs import SPEED
from lrurun.ledger import heartbeat
from lrurun.ledger.values import Attempt, Run
from lrurun.programs import execution
from tests import conftest
from tests.harness.machine import Machine, stop, wait_for
from tests.harness.programs import PYTHON, curves_of, error_of, runs_of, write_scripts

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
    """A script that writes this text into the file of the program's metrics, after a first step."""
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


_POLITE = """\
import json, time, lrurun
from pathlib import Path
run = lrurun.this_run()
saved = Path(run.folder) / "state.json"
state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "value": 0.0}
while state["step"] < run.settings.last and not run.should_stop:
    state = {"step": state["step"] + 1, "value": (state["value"] * 31 + 7) % 101}
    value = state["value"] / 101
    run.log(state["step"], **{"val/accuracy": value, "test/accuracy": value})
    while state["step"] == 5 and not saved.exists() and not run.should_stop:
        time.sleep(0.02)
if run.should_stop:
    run.log(state["step"], **{"train/stopped": 1})
saved.write_text(json.dumps(state))
"""
"""A script that waits at the fifth step until it is asked to stop, and saves its state only then."""
_STUBBORN = """\
import signal, time, lrurun
from pathlib import Path
run, began = lrurun.this_run(), Path(lrurun.this_run().folder) / "began"
signal.signal(signal.SIGTERM, lambda *_: print("no", flush=True))
run.log(1, **{"val/accuracy": 0.5, "test/accuracy": 0.5})
if not began.exists():
    began.touch()
    while True:
        time.sleep(1)
"""


_POOLS = """\
import json, multiprocessing, os, time, lrurun
from pathlib import Path
run = lrurun.this_run()
saved = Path(run.folder) / "state.json"
state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "value": 0.0}
while state["step"] < run.settings.last:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        value = (pool.map(int, [state["value"]] * 4)[-1] * 31 + 7) % 101
        state = {"step": state["step"] + 1, "value": value}
        run.log(state["step"], **{"val/accuracy": value / 101, "test/accuracy": value / 101})
        while state["step"] == 5 and not saved.exists() and not run.should_stop:
            time.sleep(0.02)
    if run.should_stop:
        saved.write_text(json.dumps(state))
        break
"""
"""One with a pool of processes in its loop, which waits at the fifth step until it is asked to stop."""


def curve(last: int = 8) -> list[tuple[int, float]]:
    """The validation scores that it logs if nothing interrupts it."""
    values = itertools.accumulate(range(last), lambda value, _: (value * 31 + 7) % 101, initial=0.0)
    return list(enumerate([value / 101 for value in values][1:], 1))


_STOPS = "import os\nworker = os.getppid()\nstop = lambda: os.kill(worker, 15)\nimport json, signal"
"""A function that asks the worker to stop."""
SCRIPTS = {
    "best": logs([0.5, 0.9, 0.9, 0.7], [0.1, 0.2, 0.3, 0.4]) + "run.log(4, **{'train/norm': float('nan')})\n",
    "not-json": writes("accuracy 0.9\n"),
    "no-name": logs([0.5], [0.4]) + "run.log(2, {'val/../x': 1})\n",
    "cut": writes('{"step": 2, "val/accuracy": 0.7, "test/accuracy": 0.6}'),
    "cut-by-a-crash": logs([0.5], [0.4])
    + 'import os\nos.write(run._metrics, b\'{"step": 2, "val/acc\')\n'
    + "print('first')\nprint('the disk is full')\nraise SystemExit(5)\n",
    "overwrites": "import os, time\n"
    "for step in range(1, 5):\n"
    "    with open(os.environ['LRURUN_METRICS'], 'w') as file:\n"
    '        file.write(\'{"step": %d, "val/accuracy": 0.%d, "test/accuracy": 0.5}\\n\' % (step, step))\n'
    "    time.sleep(0.3)\n",
    "diverges-and-goes-on": logs([0.5], [0.4])
    + "run.log(2, **{'train/loss': float('nan')})\nrun.log(2, **{'val/accuracy': 0.9, 'test/accuracy': 0.9})\n",
    "killed": logs([0.5], [0.4]) + "import os\nos.kill(os.getpid(), 9)\n",
    "not-measured": logs([0.5, 0.6, None], [0.4, 0.5, None])
    + "import os\nopen(os.environ['LRURUN_METRICS'], 'a').write("
    '\'{"step": 3, "train/loss": null, "val/accuracy": null}\\n\''
    ")\nrun.log(4, {'val/accuracy': 0.55, 'test/accuracy': 0.9}, loss=None)\n",
    "diverges": "import lrurun, time\nrun = lrurun.this_run()\n"
    "for step in range(1, 4):\n"
    "    run.log(step, **{'train/loss': 1.0 if step < 3 else float('nan'), 'val/accuracy': 0.5})\n"
    "time.sleep(30)\n",
    "no-finite-score": logs([math.nan, math.nan], [0.3, 0.4]).replace("nan", "float('nan')"),
    "infinite-test": logs([0.5, 0.4], [-math.inf, 0.4]).replace("-inf", "float('-inf')"),
    "leaves-child": logs([0.5], [0.4]) + "import subprocess\n"
    "child = subprocess.Popen(['sh', '-c', 'sleep 1000 & wait'])\n"
    "open(run.folder + '/child', 'w').write(str(child.pid))\n",
    "stopped-elsewhere": "import os, signal, lrurun\nfrom pathlib import Path\nrun = lrurun.this_run()\n"
    "saved = Path(run.folder) / 'step'\nbegan = saved.exists()\nrun.should_stop\n"
    "for step in range(int(saved.read_text()) + 1 if began else 1, 5):\n"
    "    run.log(step, **{'val/accuracy': step / 4, 'test/accuracy': step / 4})\n"
    "    saved.write_text(str(step))\n"
    "    if step == 2 and not began: os.kill(os.getpid(), signal.SIGTERM)\n"
    "    if run.should_stop: break\n",
    "resumes": "KEEPS = True\n" + _RESUMES,
    "begins-again": "KEEPS = False\n" + _RESUMES,
    "polite": _POLITE.replace(
        "    while", "    if state['step'] == 5 and not saved.exists():\n        stop()\n    while", 1
    ).replace("import json", _STOPS, 1),
    "pools": _POOLS.replace(
        "        while", "        if state['step'] == 5 and not saved.exists(): stop()\n        while"
    ).replace("import json", _STOPS + "\nimport json", 1),
    "stubborn": _STUBBORN.replace("    began.touch()", "    began.touch()\n    stop()").replace(
        "import signal", _STOPS, 1
    ),
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
        ("cut", {"best_step": 2, "val/accuracy": 0.7, "test/accuracy": 0.6}),
        ("leaves-child", {"val/accuracy": 0.5, "test/accuracy": 0.4}),
        ("not-measured", {"best_step": 2, "val/accuracy": 0.6, "test/accuracy": 0.5}),
    ],
)
def test_the_scores_are_those_of_the_best_step(ended: Machine, script: str, result: dict[str, float]) -> None:
    """Of equal ones the earliest."""
    run, [attempt] = runs_of(ended)[script]
    assert (run.state, attempt.outcome, run.result) == ("done", "done", result)


def test_a_program_without_a_usable_score_has_a_result_and_is_not_tried_again(ended: Machine) -> None:
    """One that has logged no score at all fails, see `test_what_a_program_reports_wrongly_is_not_tried_again`."""
    run, [attempt] = runs_of(ended)["no-finite-score"]
    assert (run.state, attempt.outcome) == ("done", "done")
    assert repr(run.result) == repr({"val/accuracy": math.nan, "test/accuracy": math.nan})
    run, [attempt] = runs_of(ended)["infinite-test"]
    assert (run.state, run.result) == ("done", {"best_step": 1, "val/accuracy": 0.5, "test/accuracy": -math.inf})
    text = ended.run("report", "scripts.toml").stdout
    assert "2 runs finished without a usable score (no-finite-score, infinite-test)" in text


def result_of(curves: dict[str, list[float | None]], direction: str, tuning: bool) -> tuple[dict[str, float], str]:
    """What a program that has logged these values, one step after the other, is given as its result."""
    found = {
        name: [(step, value) for step, value in enumerate(values, 1) if value is not None]
        for name, values in curves.items()
    }
    known = [
        SimpleNamespace(key=name, steps=[step for step, _ in points], values=[value for _, value in points])
        for name, points in found.items()
        if points
    ]
    ledger = SimpleNamespace(
        metric_names=lambda ids: [one.key for one in known],
        curves=lambda ids, names: [one for one in known if one.key in names],
        metrics=lambda run, names: {SPEED: [(1, 2.0), (2, 3.0)]},
    )
    run = object.__new__(execution._Execution)
    run.ledger, run._step, run._diverged = cast("Any", ledger), 2, False
    run.attempt = cast("Any", SimpleNamespace(id="run", is_tuning=tuning))
    run.program = cast("Any", SimpleNamespace(metric="val/accuracy", direction=direction, read=None))
    scores, problem, _ = run._scores()
    result = dict(scores)
    assert run._step == (max(step for step, _ in [(2, 0), *found.get("val/accuracy", [])]) if result else 2)
    assert problem or result.pop(SPEED) == 3.0
    return result, problem


@pytest.mark.parametrize(
    ("val", "test", "more", "result"),
    [
        ([0.5, 0.9, 0.9, 0.7], [0.1, 0.2, 0.3, 0.4], {}, (2, 0.9, 0.2)),
        ([0.5, 0.9, 0.7], [None, None, 0.6], {}, (2, 0.9, 0.6)),
        ([0.5, None, 0.7, None], [0.1, 0.2, 0.3, 0.4], {}, (3, 0.7, 0.3)),
        ([0.5, math.nan, math.inf, 0.4], [0.1, 0.2, 0.3, 0.4], {}, (1, 0.5, 0.1)),
        ([0.5, 0.4, 0.4, 0.7], [None, None, None, 0.6], {"direction": "min"}, (2, 0.4, 0.6)),
        ([0.5], [0.1], {}, (None, 0.5, 0.1)),
        ([0.5, 0.9], [None, None], {"tuning": True}, (2, 0.9, None)),
    ],
)
def test_a_result_has_the_scores_of_the_best_step(
    val: list[float | None], test: list[float | None], more: dict[str, Any], result: tuple[float | None, ...]
) -> None:
    """Of equal ones the earliest; a test score that is logged once holds for every step, and of a single validation
    score there is no best step."""
    curves = {"train/loss": [1.0, 0.9], "val/accuracy": val, "test/accuracy": test}
    found, problem = result_of(curves, **{"direction": "max", "tuning": False} | more)
    wanted = dict(zip(("best_step", "val/accuracy", "test/accuracy"), result, strict=True))
    assert (found, problem) == ({name: value for name, value in wanted.items() if value is not None}, "")


@pytest.mark.parametrize(
    ("val", "direction", "score"),
    [
        ([math.nan, math.nan], "max", math.nan),
        ([math.nan, -math.inf], "max", -math.inf),
        ([math.inf, math.nan], "min", math.nan),
        ([math.inf, math.nan], "max", math.inf),
        ([-math.inf, math.inf], "min", -math.inf),
    ],
)
def test_without_a_finite_validation_score_there_is_no_test_score(
    val: list[float | None], direction: str, score: float
) -> None:
    """The validation score is the last one; an infinity of the better sign, an error of the metric, is kept."""
    curves = {"val/accuracy": val, "val/f1": [0.5, 0.5], "test/accuracy": [0.25, 0.5], "test@9/accuracy": [0.25, 0.5]}
    found, problem = result_of(curves, direction, False)
    assert problem == ""
    assert repr(found) == repr({"val/accuracy": score, "test/accuracy": math.nan, "test@9/accuracy": math.nan})
    assert repr(result_of(curves, direction, True)) == repr(({"val/accuracy": score}, ""))


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        (
            {"val/accuracy": [0.5, 0.9]},
            "the program logged no test/accuracy; log both at the same steps, or test/accuracy once",
        ),
        (
            {"val/accuracy": [0.5, 0.9, 0.7], "test/accuracy": [0.1, None, 0.2]},
            "the program logged no test/accuracy at step 2, where val/accuracy is best; log both",
        ),
        (
            {"test/accuracy": [0.1, 0.2]},
            "the program logged no val/accuracy; log it, or name another metric in [program]",
        ),
        (
            {"val/acc": [0.5], "test/acc": [0.5]},
            "the program logged no val/accuracy; it logged val/acc; log it, or name another",
        ),
    ],
)
def test_what_is_missing_for_a_result_is_named(curves: dict[str, list[float | None]], message: str) -> None:
    assert result_of(curves, "max", False)[1].startswith(message)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("overwrites", "the program has overwritten its metrics; append to the file"),
        ("not-json", "line 2 of the program's metrics is not JSON; write one object a line, as in "),
        (
            "no-name",
            "line 2 of the program's metrics has a metric with the name 'val/../x'; names have a letter, then ",
        ),
    ],
)
def test_what_a_program_reports_wrongly_is_not_tried_again(ended: Machine, script: str, message: str) -> None:
    run, [attempt] = runs_of(ended)[script]
    assert (run.state, attempt.outcome) == ("failed", "rejected")
    assert error_of(run).startswith(message)


@pytest.mark.parametrize(
    ("script", "cause", "last"),
    [
        (
            "cut-by-a-crash",
            "exit code 5: the disk is full; its scores were logged, up to step 1: if those are all, "
            "let it end with exit code 0",
            "the disk is full",
        ),
        ("killed", "SIGKILL", "killed.py"),
    ],
)
def test_a_program_that_fails_is_tried_three_times(ended: Machine, script: str, cause: str, last: str) -> None:
    run, attempts = runs_of(ended)[script]
    assert [attempt.outcome for attempt in attempts] == ["failed"] * 3
    assert run.state == "failed"
    first, empty, *log = error_of(run).splitlines()
    assert (first, empty) == (f"the program ended with {cause}", "")
    assert last in log[-1], "the end of its log"
    assert script == "killed" or log[-2] == "first"


@pytest.mark.parametrize(
    ("code", "last", "logged", "tests", "outcome", "message"),
    [
        (3, 4, [1, 2, 3, 4], True, "rejected", "exit code 3: bye; all its scores were logged, up to step 4 of 4"),
        (3, 4, [0, 1, 2, 3], True, "rejected", "exit code 3: bye; all its scores were logged, up to step 3 of 4"),
        (3, 4, [4], True, "rejected", "exit code 3: bye; all its scores were logged, up to step 4 of 4"),
        (3, 1, [0], True, "rejected", "exit code 3: bye; all its scores were logged, up to step 0 of 1"),
        (-9, 4, [1, 2, 3, 4], True, "failed", "SIGKILL: bye; all its scores were logged, up to step 4 of 4"),
        (3, 4, [1, 2, 3], True, "failed", "exit code 3: bye"),
        (3, 4, [1, 2, 3, 4], False, "failed", "exit code 3: bye"),
        (3, 4, [], True, "failed", "exit code 3: bye"),
        (3, 0, [1, 2], True, "failed", "exit code 3: bye; its scores were logged, up to step 2: if those are all"),
        (-9, 0, [1, 2], True, "failed", "SIGKILL: bye"),
    ],
)
def test_the_error_of_an_exit_code_says_whether_all_scores_were_logged(
    tmp_path: Path, code: int, last: int, logged: list[int], tests: bool, outcome: str, message: str
) -> None:
    """Then it is not tried again, unless a signal ended it, which may be by chance."""
    curves = {"val/accuracy": [(step, 0.5) for step in logged]} if logged else {}
    if tests:
        curves["test/accuracy"] = [(step, 0.5) for step in logged]
    ended: dict[str, Any] = {}
    run = object.__new__(execution._Execution)
    run.ledger = cast(
        "Any",
        SimpleNamespace(
            metric_names=lambda ids: list(curves),
            curves=lambda ids, names: [
                SimpleNamespace(key=name, steps=[step for step, _ in points], values=[value for _, value in points])
                for name, points in curves.items()
            ],
            metrics=lambda run, names: {name: points for name, points in curves.items() if name in names},
            finish=lambda held, state, **fields: ended.update(fields, state=state),
        ),
    )
    run._step, run.folder, run.attempt = 0, tmp_path, cast("Any", SimpleNamespace(id="run", is_tuning=False))
    run.program = cast("Any", SimpleNamespace(metric="val/accuracy", direction="max", read=None))
    run.held = cast("Any", SimpleNamespace(run=SimpleNamespace(steps=last)))
    (tmp_path / "log.txt").write_text("run abc, attempt 1: train\nbye\n\n")
    run._fail_at_exit(code)
    assert (ended["state"], ended["outcome"]) == ("failed", outcome)
    text = ended["reason"].removeprefix("failed: the program ended with ")
    ends = "let it end with exit code 0"
    assert text == message or (text.startswith(message) and text.endswith(ends) and "logged" in message)


def test_a_loss_that_is_no_number_is_divergence(ended: Machine) -> None:
    """At its step; the program is killed, and has no more to say."""
    run, [attempt] = runs_of(ended)["diverges"]
    assert (run.state, run.step, attempt.outcome) == ("diverged", 3, "diverged")
    loss = curves_of(ended, run)["train/loss"]
    assert [step for step, _ in loss] == [1, 2, 3]
    assert math.isnan(loss[-1][1])
    run, [attempt] = runs_of(ended)["diverges-and-goes-on"]
    assert (run.state, run.step) == ("diverged", 2)


def test_a_program_that_stops_at_a_signal_from_outside_is_not_done_but_continues(ended: Machine) -> None:
    """As a cluster sends it to all processes of a job."""
    run, attempts = runs_of(ended)["stopped-elsewhere"]
    assert [attempt.outcome for attempt in attempts] == ["failed", "done"]
    assert attempts[0].reason == (
        "failed: the program saw run.should_stop and ended, but lrurun did not ask for it: SIGTERM came from "
        "the program itself, a scheduler or a user"
    )
    assert attempts[1].resumed_from == 2
    assert run.result is not None
    assert (run.step, run.result["test/accuracy"]) == (4, 1.0)


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
    assert [(ended.runs / run.id / n / "recorded").exists() for n in ("1", "2")] == [False, True]
    second = (ended.runs / run.id / "2" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(second[0])["step"] == (6 if script == "resumes" else 1), "what the program did itself"
    assert attempts[-1].resumed_from == (5 if script == "resumes" else 0)


@pytest.mark.parametrize(
    ("earlier", "repeated"),
    [
        (["metrics"], [1]),
        (["metrics", ""], [1]),  # the second was stopped before it had begun
        (["metrics recorded", "metrics"], [2]),
        (["metrics", "metrics recorded"], []),
        (["metrics recorded", "metrics", "metrics"], [2, 3]),
    ],
)
def test_reports_that_may_not_be_recorded_are_repeated(tmp_path: Path, earlier: list[str], repeated: list[int]) -> None:
    """However the attempts have ended: an engine that has lost a node says that they were interrupted."""
    attempts = [SimpleNamespace(n=n) for n in range(1, len(earlier) + 2)]
    for n, made in enumerate(earlier, 1):
        (tmp_path / str(n)).mkdir()
        for file in made.replace("metrics", "metrics.jsonl").split():
            (tmp_path / str(n) / file).touch()
    attempt = SimpleNamespace(ledger=SimpleNamespace(attempts=lambda _: attempts), id="run")
    files = execution._unrecorded(cast("Any", attempt), tmp_path)
    assert files == [tmp_path / str(n) / "metrics.jsonl" for n in repeated]


_SHOWN = """\
import json, os, sys, lrurun
run = lrurun.this_run()
names = ("LRURUN_CONFIG", "LRURUN_FOLDER", "LRURUN_METRICS", "OMP_NUM_THREADS", "PYTHONPATH")
environment = {name: os.environ[name] for name in names}
seen = {"arguments": sys.argv[1:], "folder": os.getcwd(), "input": sys.stdin.read(), **environment}
seen["NPROC"] = os.environ.get("NPROC")
json.dump(seen, open(run.folder + "/seen.json", "w"))
run.log(1, **{"val/accuracy": 0.5, "test/accuracy": 0.5})
print("printed", run.settings)
"""
_TEXT = 'it\'s "{seed}" $(ls) *;\n'


def test_what_a_program_is_given(machine: Machine) -> None:
    """Arguments are filled in once, and nothing in them is interpreted; the folder is that of the recipe."""
    folder = machine.folder / "mine"
    folder.mkdir()
    (folder / "show.py").write_text(_SHOWN)
    arguments = ["{config}", "{seed}", "{run_dir}", "--x={settings.a.text}", "{settings.a.list}", "{settings.flag}"]
    arguments += ["{settings.lr}", "{}", "{ seed }", "{seed}{seed}$HOME", ""]
    (folder / "shown.toml").write_text(
        f'task = "shown"\n[program]\ncommand = {json.dumps(["PYTHON", "show.py", *arguments])}\n'.replace(
            '"PYTHON"', PYTHON
        )
        + 'metric = "val/accuracy"\nthreads = 2\n'
        + f"[settings]\na = {{ text = {json.dumps(_TEXT)}, list = [1, 2.5] }}\nflag = true\nlr = 1e-5\n"
        + '[[rung]]\nname = "only"\ntitle = "only"\n'
    )
    machine.run("ladder", "mine/shown.toml", "--seeds", "5,", "--jobs", "1")
    [(run, [attempt])] = runs_of(machine).values()
    place = machine.runs / run.id
    seen = json.loads((place / "program" / "seen.json").read_text())
    config, kept = str(place / "1" / "config.json"), str(place / "program")
    assert seen["arguments"] == [
        *(config, "5", kept, f"--x={_TEXT}", "[1,2.5]", "true", "0.00001", "{}", "{ seed }", "55$HOME", "")
    ]
    assert (seen["folder"], seen["input"], seen["OMP_NUM_THREADS"]) == (str(folder), "", "2")
    assert (seen["LRURUN_CONFIG"], seen["LRURUN_FOLDER"]) == (config, kept)
    assert seen["LRURUN_METRICS"] == str(place / "1" / "metrics.jsonl")
    assert seen["PYTHONPATH"].endswith("lrurun/programs/module")
    assert seen["NPROC"] is None, "which is for XLA"
    settings = {"a": {"text": _TEXT, "list": [1, 2.5]}, "flag": True, "lr": 1e-5}
    assert json.loads(Path(config).read_text()) == {**settings, "seed": 5}
    assert f"printed {settings}" in (place / "1" / "log.txt").read_text().splitlines()
    assert attempt.environment["folder"] == str(folder)


_SHELL = """\
i=0
for loss in 0.9 0.4 0.4 0.7; do
    i=$((i + 1))
    echo "{\\"step\\": $i, \\"val/loss\\": $1$loss}" >> "$LRURUN_METRICS"
done
echo "{\\"step\\": $i, \\"test/loss\\": $1.$2}" >> "$LRURUN_METRICS"
"""


@pytest.mark.slow
def test_a_shell_script_whose_scores_are_better_when_lower(machine: Machine) -> None:
    (machine.folder / "train.sh").write_text(_SHELL)
    (machine.folder / "shell.toml").write_text(
        'task = "shell"\n[program]\ncommand = ["sh", "train.sh", "{settings.size}", "{seed}"]\nfiles = ["*.sh"]\n'
        'metric = "val/loss"\ndirection = "min"\nunit = "nats"\n[settings]\nsize = 1\n'
        '[[rung]]\nname = "small"\ntitle = "small"\n'
        '[[rung]]\nname = "large"\ntitle = "large"\nchange = { "settings.size" = 3 }\n'
    )
    machine.run("ladder", "shell.toml", "--seeds", "3", "--jobs", "1")
    report = machine.json("report", "shell.toml")
    run, _ = runs_of(machine)["small"]
    assert run.result is not None
    assert (run.result["best_step"], run.result["val/loss"]) == (2, 10.4)
    small, large = report["rows"]
    assert (small["mean"], large["mean"]) == (pytest.approx(1.1), pytest.approx(3.1))
    assert large["verdict"] == "hurts"
    assert "lower is better" in machine.run("report", "shell.toml", "--details").stdout


def test_a_program_whose_worker_is_asked_to_stop_may_save_and_is_killed_otherwise(ended: Machine) -> None:
    found = runs_of(ended)
    for rung in ("polite", "pools", "stubborn"):
        assert [attempt.reason for attempt in found[rung][1]] == ["interrupted: SIGTERM", "done"]
    run, _ = found["stubborn"]
    assert (ended.runs / run.id / "1" / "log.txt").read_text().splitlines()[-1] == "no"
    curves = curves_of(ended, found["polite"][0])
    assert curves["train/stopped"] == [(5, 1.0)], "what it logs after the signal is recorded"
    assert curves["val/accuracy"] == curve()
    run, attempts = found["pools"]
    assert (curves_of(ended, run)["val/accuracy"], attempts[1].resumed_from) == (curve(), 5)
    reports = [(ended.runs / run.id / n / "metrics.jsonl").read_text() for n in ("1", "2")]
    assert [text.count("interrupted") for text in reports] == [1, 0], (
        "its pools are ended by SIGTERM, and report nothing"
    )


@pytest.mark.slow
def test_a_program_that_is_asked_to_stop_may_save_and_is_killed_otherwise(machine: Machine) -> None:
    write_scripts(machine.folder, {"polite": _POLITE, "pools": _POOLS, "stubborn": _STUBBORN})
    arguments = ("ladder", "scripts.toml", "--seeds", "1", "--jobs", "3")
    process = machine.start(*arguments)
    wait_for(
        lambda: len([run for run, _ in _runs(machine) if run.last_score is not None and run.state == "running"]) == 3
    )
    stop(process, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert not [pid for pid in psutil.pids() if str(machine.runs) in folder_of(pid)]
    assert {run.state for run, _ in _runs(machine)} == {"interrupted"}
    run, _ = runs_of(machine)["stubborn"]
    assert (machine.runs / run.id / "1" / "log.txt").read_text().splitlines()[-1] == "no"
    run, _ = runs_of(machine)["polite"]
    assert curves_of(machine, run)["train/stopped"] == [(5, 1.0)], "what it logs after the signal is recorded"
    machine.run(*arguments)
    ended = runs_of(machine)
    assert {rung: [attempt.reason for attempt in attempts] for rung, (_, attempts) in ended.items()} == {
        rung: ["interrupted: SIGTERM", "done"] for rung in ("polite", "pools", "stubborn")
    }
    for rung in ("polite", "pools"):
        assert curves_of(machine, ended[rung][0])["val/accuracy"] == curve()


def _runs(machine: Machine) -> list[tuple[Run, list[Attempt]]]:
    """Those of a ledger that may not be there yet."""
    with contextlib.suppress(LrurunError, AssertionError):
        return list(runs_of(machine).values())
    return []


@pytest.mark.slow
def test_a_program_that_is_silent_is_killed_and_one_that_prints_is_not(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.5)
    once = "from pathlib import Path\nbegan = Path(run.folder) / 'began'\nimport time\n"
    silent = once + "if not began.exists():\n    began.touch()\n    time.sleep(1000)\n"
    prints = "import time\nfor k in range(14):\n    print(k, flush=True)\n    time.sleep(0.25)\n"
    scores = logs([0.5], [0.4])
    write_scripts(machine.folder, {"silent": scores + silent, "prints": scores + prints}, table="silent_seconds = 2")
    done = machine.run("ladder", "scripts.toml", "--seeds", "1", "--jobs", "2")
    ended = runs_of(machine)
    assert [attempt.reason for attempt in ended["silent"][1]] == ["interrupted: owner gone", "done"], done.stderr
    assert [attempt.reason for attempt in ended["prints"][1]] == ["done"]
    assert not [pid for pid in psutil.pids() if str(machine.runs) in folder_of(pid)]

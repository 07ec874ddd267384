"""`lrurun check program`: what a trial of a program shows, and that it leaves nothing."""

from __future__ import annotations

import re

import psutil
import pytest

from tests.harness.machine import Machine
from tests.harness.programs import PYTHON, write

BOTH = '{"val/accuracy": 0.5, "test/accuracy": 0.4, "train/loss": 2.0}'
WAIT = "import time; time.sleep(1000)\n"


def checked(
    machine: Machine, script: str, *changes: tuple[str, str], code: int = 0, limit: str = "60"
) -> dict[str, str]:
    """Check -> its state and its detail, for a program with this script."""
    write(machine.folder, *changes)
    (machine.folder / "toy.py").write_text(script)
    found = machine.json("check", "program", "toy.toml", "--time-limit", limit, code=code)["findings"]
    assert sorted(path.name for path in machine.folder.iterdir()) == ["toy.py", "toy.toml"]
    states = {(True, False): "ok", (True, True): "warning", (False, False): "FAILED"}
    return {one["check"]: f"{states[one['passed'], one['warning']]}: {one['detail']}" for one in found}


def logs(*rows: str) -> str:
    lines = [f"run.log({step}, **{row})\n" for step, row in enumerate(rows, 1)]
    return f"import lrurun\nrun = lrurun.this_run()\n{''.join(lines)}"


def test_a_trial_ends_after_the_first_scores(machine: Machine) -> None:
    """With the settings of the first rung, in the folder of the recipe, from a copy; nothing of it is left."""
    seen = "import os, sys\nopen('toy.toml').close()\nprint(run.settings, run.seed, sys.argv)\n"
    found = checked(machine, logs(BOTH) + seen + WAIT)
    assert re.fullmatch(
        r"ok: .*python\S* FOLDER/programs/\w{16}/toy\.py: ended after its first scores, in .* s", found["command"]
    )
    assert found["settings"] == "ok: lr = 0.01, epochs = 4, name = plain text, block.wide = false"
    assert found["val/accuracy"] == "ok: 0.5 at step 1"
    assert found["test/accuracy"] == "ok: 0.4 at step 1"
    assert found["other metrics"] == "ok: train/loss"
    assert found["items of test/accuracy"].startswith("warning: no per-item results: verdicts will be about these ")
    assert len(found) == 6
    for process in psutil.process_iter():
        try:
            assert "lrurun-check-" not in " ".join(process.cmdline())
        except psutil.Error:
            continue


@pytest.mark.parametrize(
    ("script", "check", "expected"),
    [
        (
            "",
            "val/accuracy",
            'FAILED: not logged: add the line run.log(step, {"val/accuracy": ..., "test/accuracy": ...}',
        ),
        ("print('accuracy 0.9')", "printed", "ok: accuracy 0.9"),
        (logs('{"val/acc": 0.5}'), "val/accuracy", "FAILED: not logged; logged were val/acc: add the line run.log"),
        (logs('{"val/accuracy": 0.5}'), "test/accuracy", "FAILED: not logged; logged were val/accuracy: add the line"),
        ("import no_such", "command", "FAILED: .*: ModuleNotFoundError: No module named 'no_such'"),
        (
            logs(BOTH) + "run.log(0, a=1)",
            "command",
            "FAILED: .*line 2 of the program's metrics has step 0, after step 1",
        ),
    ],
)
def test_what_is_missing_is_named(machine: Machine, script: str, check: str, expected: str) -> None:
    found = checked(machine, script, code=1)[check]
    assert re.match(expected if ".*" in expected else re.escape(expected), found), found


def test_a_test_score_may_follow(machine: Machine) -> None:
    found = checked(machine, logs('{"val/accuracy": 0.5}', '{"val/accuracy": 0.6}') + WAIT)
    assert found["val/accuracy"] == "ok: 0.5 at step 1, 0.6 at step 2"
    assert found["test/accuracy"] == "warning: not logged yet: log it at the steps of val/accuracy, or once"


def test_scores_that_are_not_finite_are_a_warning(machine: Machine) -> None:
    found = checked(machine, logs('{"val/accuracy": 0.5, "test/accuracy": float("nan")}') + WAIT)
    assert found["val/accuracy"] == "ok: 0.5 at step 1"
    assert found["test/accuracy"] == "warning: nan at step 1; a run without a finite one ranks below all others"


ITEMS = "run.log_items('test/accuracy', {}, step={})\n"
UNIT = 'unit = "%"\n'


@pytest.mark.parametrize(
    ("script", "more", "expected"),
    [
        (
            logs(BOTH) + ITEMS.format([1, 0, 0, 1, 0], 1) + WAIT,
            "",
            "ok: 5 items, whose mean is the score: 0.4 at step 1",
        ),
        (
            f"{logs()}{ITEMS.format([1, 0, 0, 1, 0], 1)}run.log(1, **{BOTH})\n{WAIT}",
            "",
            "ok: 5 items, whose mean is the score: 0.4 at step 1",
        ),
        (
            f"{logs(BOTH)}import time; time.sleep(0.5)\n{ITEMS.format([1, 0, 0, 1, 0], 1)}{WAIT}",
            "",
            "ok: 5 items, whose mean is the score: 0.4 at step 1",
        ),
        (
            logs(BOTH) + ITEMS.format([1, 0, 0, 0, 0], 1),
            "",
            "FAILED: step 1: their mean is 0.2, and the score 0.4, which may ",
        ),
        (
            logs(BOTH) + ITEMS.format([1.4, 0, 0, 0, 0.6], 1),
            "",
            "FAILED: step 1: item 1 of 5 has 1.4, and those of a share (unit = ",
        ),
        (
            logs(BOTH) + ITEMS.format([1, 0, 0, 1, 0], 1),
            "test_items = 4\n",
            "FAILED: step 1: there are 5, and the recipe has test_items = 4; ",
        ),
        (
            logs(BOTH, BOTH) + ITEMS.format([1, 0, 0, 1, 0], 1) + ITEMS.format([1, 0, 0, 0, 0.6, 0.8], 2),
            "",
            "FAILED: 5 or 6 items, with the mean 0.4 at step 1, 0.4 at step 2: log the same items at every step",
        ),
        (
            logs(BOTH) + ITEMS.format([1, 0, 0, 1, 0], 9),
            "",
            "warning: 5 items, with the mean 0.4 at step 9; no test/accuracy was logged at this step yet",
        ),
        (
            logs(BOTH, BOTH),
            "",
            "warning: no per-item results: verdicts will be about these test items; add the line "
            'run.log_items("test/accuracy", values)',
        ),
        (
            logs(BOTH, BOTH),
            "test_items = 4\n",
            "ok: no per-item results; test_items = 4 bounds how far a share moves with the test set",
        ),
        (
            logs(BOTH, BOTH),
            "test_items = 4\nshare = false\n",
            "warning: no per-item results, and test/accuracy is no share: add the line run.log_items",
        ),
        (
            logs(BOTH, BOTH),
            "read.'test/accuracy' = 'acc ([0-9.]+)'\n",
            "warning: no per-item results: verdicts will be about these test items; write test_items = N into ",
        ),
    ],
)
def test_results_of_items_are_compared_with_the_score(machine: Machine, script: str, more: str, expected: str) -> None:
    code = 1 if expected.startswith("FAILED") else 0
    found = checked(machine, script, (UNIT, UNIT + more), code=code)["items of test/accuracy"]
    assert found.startswith(expected), found


def test_a_loss_that_diverges_ends_a_trial_as_it_ends_a_run(machine: Machine) -> None:
    found = checked(machine, logs('{"train/loss": float("inf")}') + WAIT, code=1)
    assert found["command"].endswith("train/loss is inf at step 1: the run has diverged, and is ended")


def test_per_cent_in_place_of_fractions_are_a_warning(machine: Machine) -> None:
    scores = logs('{"val/accuracy": 51.1, "test/accuracy": 1.0}')
    found = checked(machine, scores + WAIT)
    warning = 'with unit = "%" scores are fractions, which are printed in per cent'
    assert found["val/accuracy"] == f"warning: 51.1 at step 1; {warning}"
    assert found["test/accuracy"] == "ok: 1 at step 1"


def test_a_time_limit_ends_a_trial(machine: Machine) -> None:
    found = checked(machine, WAIT, code=1, limit="1")
    assert found["command"].endswith("toy.py: ended after 1 s")
    assert found["val/accuracy"].startswith("FAILED: not logged: ")


def test_printed_numbers_are_read(machine: Machine) -> None:
    read = (
        """read = { "val/accuracy" = 'val ([0-9.]+)', "test/accuracy" = 'tests ([0-9.]+)', step = 'epoch ([0-9]+)' }"""
    )
    recipe = ('metric = "val/accuracy"\n', f'metric = "val/accuracy"\n{read}\n')
    found = checked(machine, "print('epoch 3 val 0.5 test 0.4')", recipe, code=1)
    assert found["val/accuracy"] == "ok: 0.5 at step 3"
    assert (
        found["test/accuracy"]
        == "FAILED: not logged; logged were val/accuracy: no printed line matches 'tests ([0-9.]+)'"
    )
    assert found["printed"] == "ok: epoch 3 val 0.5 test 0.4"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "program"), "check program: expected the file of its recipe"),
        (("check", "program", "--all"), "check program: expected the file of its recipe"),
        (("check", "program", "npDigits"), "npDigits: its recipe has no [program], and trains a model of lrurun"),
        (("check", "recipe", "npDigits", "--time-limit", "5"), "check recipe: --time-limit is for programs"),
        (("check", "program", "toy.toml", "--ladder", "a.toml", "--ladder", "b.toml"), "check program: expected one"),
        (("check", "program", "toy.toml"), "toy.toml [program], command, rung narrow: 'nope' is not found on PATH"),
    ],
)
def test_what_cannot_be_tried(machine: Machine, arguments: tuple[str, ...], message: str) -> None:
    write(machine.folder, (PYTHON, '"nope"'))
    assert machine.run(*arguments, code=2).stderr.startswith(f"error: {message}")

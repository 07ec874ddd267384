"""Per-item results that programs log: whether they belong to a score, and what of them is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lrurun import items as item_results
from lrurun.config.programs import ProgramTable
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import ITEMS_REFUSED
from lrurun.programs import logged_items
from tests import conftest
from tests.harness.browsing import View, words
from tests.harness.machine import Machine
from tests.harness.programs import runs_of, write_scripts


def results(*values: float, **columns: Any) -> item_results.ItemResults:
    return logged_items.results_of({"items": "test/a", "values": list(values), **columns})


def table(**fields: Any) -> ProgramTable:
    return ProgramTable(command=("x",), metric="val/a", **fields)


def problem(
    name: str, items: item_results.ItemResults, score: float, program: ProgramTable | None = None
) -> str | None:
    try:
        logged_items.check(name, items, score, program)
    except logged_items.WrongReport as error:
        return error.message
    return None


def test_a_score_may_differ_from_the_mean_by_half_a_step_where_items_are_counted() -> None:
    right = results(1, 0, 1, 1)
    for score in (0.75, 0.75 + 0.125, 0.75 - 0.125):
        assert problem("test/a", right, score) is None
    for score in (0.75 + 0.126, 0.75 - 0.126, 75.0):
        expected = f"their mean is 0.75, and the score {score:g}, which may differ by 0.125"
        assert problem("test/a", right, score) == expected


@pytest.mark.parametrize("columns", [{}, {"weights": [1.0, 2.5, 0.1] * 100}])
def test_a_score_may_differ_from_the_mean_by_the_rounding_of_float32(columns: dict[str, Any]) -> None:
    """However it is summed there; a thousandth is too much."""
    values = np.random.default_rng(0).normal(3, 1, 300)
    weights = np.asarray(columns.get("weights", np.ones(300)))
    total = weight = np.float32(0)
    for value, share in zip(values.astype(np.float32), weights.astype(np.float32), strict=True):
        total, weight = total + value * share, weight + share
    score = float(total / weight)
    items = results(*values.tolist(), **columns)
    assert score != items.mean == pytest.approx(np.average(values, weights=weights))
    assert problem("test/a", items, score) is None
    assert problem("test/a", items, score * 1.001) is not None


@pytest.mark.parametrize(
    ("values", "fields", "expected"),
    [
        ((1, 0.5, 0), {"unit": "%"}, None),
        ((1, 1.5, -1), {"unit": "%"}, 'item 2 of 3 has 1.5, and those of a share (unit = "%") are from 0 to 1'),
        ((1, 0, -1), {"share": True}, "item 3 of 3 has -1, and those of a share (share = true) are from 0 to 1"),
        ((1, 1.5, -1), {"unit": "%", "share": False}, None),
        ((1, 1.5, -1), {}, None),
        ((1, float("nan"), 0), {}, "item 2 of 3 has nan"),
        ((1, float("-inf"), 0), {}, "item 2 of 3 has -inf"),
        ((1, 0, 0), {"test_items": 3}, None),
        ((1, 0, 0), {"test_items": 4}, "there are 3, and the recipe has test_items = 4"),
    ],
)
def test_what_cannot_be_results_of_a_score(values: Any, fields: dict[str, Any], expected: str | None) -> None:
    assert problem("test/a", results(*values), float(np.mean(values)), table(**fields)) == expected


def test_whole_numbers_beyond_the_largest_fraction_are_infinite() -> None:
    assert results(1, 10**400, -(10**400)).sums.tolist() == [1, float("inf"), float("-inf")]


def test_the_limits_of_the_recipe_are_those_of_its_own_score() -> None:
    """Another score has other values, and a further test has other items."""
    loss = results(2, 4, 3)
    assert problem("test/loss", loss, 3, table(unit="%")) is None
    assert problem("test/loss", loss, 3, table(unit="%", test_items=4)) is not None
    assert problem("test@256/a", results(1, 0), 0.5, table(unit="%", test_items=4)) is None
    assert problem("test@256/a", loss, 3, table(unit="%")) is not None


def test_items_without_weight_have_no_value() -> None:
    items = results(1, 7, 0, weights=[1, 0, 3])
    assert logged_items.values_of(items).tolist() == [1, 0]
    assert problem("test/a", items, 0.25, table(unit="%")) is None


def test_test_sets_differ_by_length_order_weights_and_groups() -> None:
    """Compared as a ledger has them, which keeps weights as float32."""
    weights = [0.1, 0.2, 0.3]
    one = results(1, 0, 1, ids=["a", "b", "c"], weights=weights, groups=["x", "y", "x"]).test_set
    rounded = item_results.unpack(item_results.pack(np.array(weights)))
    kept = item_results.TestSet(count=3, order=one.order, weights=rounded, groups=one.groups)
    assert rounded.tolist() != weights
    assert one.difference(kept) is None

    def differs(*values: float, **columns: Any) -> str | None:
        columns = {"ids": ["a", "b", "c"], "weights": weights, "groups": ["x", "y", "x"]} | columns
        columns = {label: column for label, column in columns.items() if column is not None}
        return results(*values, **columns).test_set.difference(kept)

    assert differs(0, 0, 0, groups=[5, 1, 5]) is None  # the same groups by other names
    assert differs(0, 0, ids=["a", "b"], weights=None, groups=None) == "2 and 3 items"
    assert differs(0, 0, 0, ids=["b", "a", "c"]) == "other items, or another order"
    assert differs(0, 0, 0, ids=None) == "other items, or another order"
    assert differs(0, 0, 0, weights=[0.1, 0.2, 0.4]) == "other weights"
    assert differs(0, 0, 0, weights=None) == "other weights"
    assert differs(0, 0, 0, groups=[1, 1, 2]) == "other groups"
    assert differs(0, 0, 0, groups=None) == "other groups"


START = """\
import os, signal, sys, lrurun
from pathlib import Path
run = lrurun.this_run()
VALUES = {1: [1, 0, 0, 0], 2: [0, 1, 1, 1], 3: [0, 0, 1, 1], 4: [1, 1, 1, 1]}
VALIDATION = {1: 0.5, 2: 0.9, 3: 0.8, 4: 0.7}
def scores(step):
    return {"val/accuracy": VALIDATION[step], "test/accuracy": sum(VALUES[step]) / 4}
"""
"""Step -> results of four items, and validation scores that are best at step 2."""
_RESUMES = """\
saved = Path(run.folder) / "step"
began = saved.exists()
for step in range(int(saved.read_text()) + 1 if began and KEEPS else 1, 5):
    values = [*reversed(VALUES[step])] if began else VALUES[step]
    run.log_items("test/accuracy", values, step=step)
    run.log(step, scores(step))
    saved.write_text(str(step))
    if step == LAST and not began:
        os.kill(os.getppid(), signal.SIGKILL)
        import time
        time.sleep(100)
"""
"""Its second attempt gets other items right, though as many; the first one kills its worker before that has recorded
what was logged last."""
_BY_HAND = """\
import subprocess
lines = '''
printf '{"step": 2, "val/accuracy": 0.5, "test/accuracy": 0.75}\\\\n' >> "$LRURUN_METRICS"
printf '{"step": 2, "items": "test/accuracy", "values": [0, 1, 1, 1]}\\\\n' >> "$LRURUN_METRICS"
'''
subprocess.run(["sh", "-c", lines], check=True)
"""
LOOP = "for step in VALUES:\n    run.log(step, scores(step))\n    "
SCRIPTS = {
    "every": LOOP + "run.log_items('test/accuracy', VALUES[step])\n",
    "before": LOOP.replace("    run.log(", "    run.log_items('test/accuracy', VALUES[step], step)\n    run.log("),
    "once": "for step in VALUES:\n    run.log(step, {'val/accuracy': VALIDATION[step]})\n"
    "run.log(4, {'test/accuracy': 0.75, 'test@9/loss': 2.5})\n"
    "run.log_items('test/accuracy', [1, 1, 1, 0])\n"
    "run.log_items('test@9/loss', [1, 3, 5], weights=[1, 2, 0.2], groups=['a', 'b', 'a'], ids=[7, 8, 9])\n"
    "run.log_items('test@9/loss', [1, 3, 3], weights=[1, 2, 1], groups=['a', 'b', 'a'], ids=[7, 8, 'z'])\n",
    "by-hand": _BY_HAND,
    "not-a-number": LOOP + "run.log_items('test/accuracy', VALUES[step])\n"
    "run.log(5, {'val/accuracy': 1.0, 'test/accuracy': float('nan')})\n"
    "run.log_items('test/accuracy', [1, 0, 1, float('nan')])\n",
    "wrong-mean": LOOP + "run.log_items('test/accuracy', [1, 1, 1, 0.6])\n",
    "another-step": LOOP + "if step != 2: run.log_items('test/accuracy', VALUES[step])\n",
    "another-name": LOOP + "run.log_items('test/acuracy', VALUES[step])\n",
    "another-length": LOOP + "run.log_items('test/accuracy', VALUES[step] * 2)\n",
    "another-order": LOOP + "run.log_items('test/accuracy', VALUES[step], ids=['a', 'b', 'c', 'd'])\n",
    "wrong-by-hand": LOOP
    + """open(os.environ["LRURUN_METRICS"], "a").write('{"step": %d, "items": "test/accuracy", '
        '"values": [1, 0], "weights": [1]}\\n' % step)
""",
    "resumes": f"KEEPS, LAST = True, 3\n{_RESUMES}",
    "begins-again": f"KEEPS, LAST = False, 3\n{_RESUMES}",
    "begins-again-without": f"KEEPS, LAST = False, 3\n{_RESUMES}".replace(
        "    run.log_items", "    began or run.log_items"
    ),
    "killed-at-the-end": f"KEEPS, LAST = True, 4\n{_RESUMES}",
}


@pytest.fixture(scope="module")
def ended() -> Machine:
    """A ladder each of whose rungs executes another script that logs per-item results, after all have ended."""

    def make(folder: Path) -> None:
        machine = Machine(folder)
        scripts = {name: START + script for name, script in SCRIPTS.items()}
        write_scripts(folder, scripts, table='unit = "%"')
        machine.run("ladder", "scripts.toml", "--seeds", "1", "--jobs", "1")

    return Machine(conftest.once("programs-items", make))


def recorded(machine: Machine, script: str) -> tuple[dict[str, list[float]], list[str]]:
    """Score -> the sums of its items, and why others are not recorded."""
    run, _ = runs_of(machine)[script]
    with Ledger.open(machine.ledger) as ledger:
        items = {name: ledger.items([run.id], name)[run.id] for name in ledger.item_names([run.id])}
        refused = [event.text for event in ledger.events(run=run.id) if event.kind == ITEMS_REFUSED]
    assert run.state == "done"
    assert run.result is not None
    for name, found in items.items():
        assert abs(found.mean - run.result[name]) < 1e-6
    return {name: found.sums.tolist() for name, found in items.items()}, refused


@pytest.mark.parametrize(
    ("script", "items"),
    [
        ("every", {"test/accuracy": [0, 1, 1, 1]}),
        ("before", {"test/accuracy": [0, 1, 1, 1]}),
        ("once", {"test/accuracy": [1, 1, 1, 0], "test@9/loss": [1, 6, 3]}),
        ("by-hand", {"test/accuracy": [0, 1, 1, 1]}),
        ("resumes", {"test/accuracy": [0, 1, 1, 1]}),
        ("begins-again", {"test/accuracy": [1, 1, 1, 0]}),
        ("begins-again-without", {}),
        ("killed-at-the-end", {"test/accuracy": [0, 1, 1, 1]}),
    ],
)
def test_the_results_of_items_are_those_of_the_step_of_the_score(
    ended: Machine, script: str, items: dict[str, list[float]]
) -> None:
    """Also where they were logged by an attempt whose worker was killed, or one that began again after it."""
    assert recorded(ended, script) == (items, [])
    kills = script.startswith(("resumes", "begins-again", "killed-at-the-end"))
    _, attempts = runs_of(ended)[script]
    assert [attempt.outcome for attempt in attempts] == ["exited"] * kills + ["done"]


def test_a_score_that_is_no_number_has_no_results_of_items(ended: Machine) -> None:
    run, _ = runs_of(ended)["not-a-number"]
    assert run.result is not None
    assert np.isnan(run.result["test/accuracy"])
    with Ledger.open(ended.ledger) as ledger:
        assert ledger.item_names([run.id]) == []
        assert ITEMS_REFUSED not in [event.kind for event in ledger.events(run=run.id)]


REFUSALS = {
    "wrong-mean": "accuracy are not recorded: their mean is 0.9, and the score 0.75, which may differ by 8.58e-07; ",
    "another-step": "accuracy are not recorded: the score is that of step 2, and they were logged at step 1, 3, 4; ",
    "another-name": "acuracy are not recorded: no score of this name was logged at step 2, whose scores count; ",
    "another-length": "accuracy are not recorded: this run and run {first} have different test sets: 8 and 4 items; ",
    "another-order": "accuracy are not recorded: this run and run {first} have different test sets: other items, or ",
    "wrong-by-hand": "accuracy are not recorded: line 4 of the program's metrics has 1 weights for 2 values; ",
}


@pytest.mark.parametrize(("script", "problem"), REFUSALS.items())
def test_what_cannot_be_results_of_items_is_left_out_and_the_scores_stay(
    ended: Machine, script: str, problem: str
) -> None:
    items, [refused] = recorded(ended, script)
    assert items == {}
    first = runs_of(ended)["every"][0].id
    assert refused.startswith(f"per-item results of test/{problem.format(first=first)}")
    assert runs_of(ended)[script][0].result == {"best_step": 2, "val/accuracy": 0.9, "test/accuracy": 0.75}


def test_what_of_items_is_recorded_is_shown(ended: Machine) -> None:
    once, wrong = (runs_of(ended)[script][0].id for script in ("once", "wrong-mean"))
    assert "per-item results: 4 of test/accuracy, 3 of test@9/loss\n" in ended.run("show", once).stdout
    assert ended.json("show", once)["item_counts"] == {"test/accuracy": 4, "test@9/loss": 3}
    assert "per-item results: " not in ended.run("show", wrong).stdout
    assert ended.json("show", wrong)["item_counts"] == {}
    page = words(View(ended.ledger, ended.runs).page(f"/runs/{once}"))
    assert "Per-item results: 4 of test/accuracy, 3 of test@9/loss." in page
    [note] = [
        note["text"]
        for note in ended.json("report", "scripts.toml")["notes"]
        if note["text"].startswith("per-item results of ")
    ]
    assert note.endswith(f"the score unrounded (run {wrong}, and 5 more)")


def test_runs_that_tune_record_no_results_of_items(machine: Machine) -> None:
    write_scripts(machine.folder, {"every": START + SCRIPTS["every"]})
    with (machine.folder / "scripts.toml").open("a") as file:
        file.write('[tune.grid]\n"settings.last" = [1, 2]\n')
    machine.run("ladder", "scripts.toml", "--tune", "--seeds", "1", "--jobs", "1")
    with Ledger.open(machine.ledger) as ledger:
        with_items = {run.seed for run in ledger.runs() if ledger.item_names([run.id])}
        assert (with_items, {run.seed for run in ledger.runs()}) == ({0}, {0, 1000, 1001, 1002})
        assert ITEMS_REFUSED not in [event.kind for event in ledger.events()]


_KILLS = """\
import os, signal
from pathlib import Path
marker = Path("killed")
if "LRURUN_METRICS" not in os.environ and not marker.exists():  # a process of lrurun
    from lrurun.ledger import attempt
    real = attempt.PLACE
    def deadly(*arguments, **fields):
        done = real(*arguments, **fields) if AFTER else None
        if not (arguments[2] if AFTER else fields.get("items")):
            return done if AFTER else real(*arguments, **fields)
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    attempt.PLACE = deadly
"""
"""Kills a worker once: when it is about to record a result with items, or after the items are written."""
_NOTES_READING = """\
from pathlib import Path
import os
if "LRURUN_METRICS" not in os.environ:  # a process of lrurun
    from lrurun.programs import reports
    real = reports.Reports.read
    def read(self):
        with open("read", "a") as file:
            print(Path(self.path).parent.name, file=file)
        real(self)
    reports.Reports.read = read
"""
_LOOKS = """\
import sqlite3
ledger = sqlite3.connect("ledger.db")
counts = ("*) FROM item_results", "*) FROM test_sets", "result) FROM stored_runs")
found = [ledger.execute(f"SELECT count({what}").fetchone()[0] for what in counts]
with open("found", "a") as file:
    print(os.path.exists("killed"), found, file=file)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("place", "after"), [("AttemptWrites.finish", False), ("write_items", True)])
def test_a_kill_between_evaluation_and_record_leaves_neither_result_nor_items(
    machine: Machine, place: str, after: bool
) -> None:
    """And both in the end: each attempt of the program notes what there is when it begins."""
    write_scripts(machine.folder, {"every": START + _LOOKS + SCRIPTS["every"]})
    (machine.folder / "sitecustomize.py").write_text(f"AFTER = {after}\n{_KILLS.replace('PLACE', place)}")
    ladder = ("ladder", "scripts.toml", "--seeds", "1", "--jobs", "1")
    machine.run(*ladder, env={"PYTHONPATH": str(machine.folder)}, apart=True)
    assert (machine.folder / "found").read_text() == "False [0, 0, 0]\nTrue [0, 0, 0]\n"
    assert recorded(machine, "every") == ({"test/accuracy": [0, 1, 1, 1]}, [])
    assert [attempt.outcome for attempt in runs_of(machine)["every"][1]] == ["exited", "done"]


@pytest.mark.slow
@pytest.mark.parametrize("script", ["resumes", "without"])
def test_metrics_of_earlier_attempts_are_read_only_where_some_have_items(machine: Machine, script: str) -> None:
    scripts = {"resumes": SCRIPTS["resumes"], "without": SCRIPTS["resumes"].replace("run.log_items(", "print(")}
    write_scripts(machine.folder, {script: START + scripts[script].replace("step=step", "step")})
    (machine.folder / "sitecustomize.py").write_text(_NOTES_READING)
    ladder = ("ladder", "scripts.toml", "--seeds", "1", "--jobs", "1")
    machine.run(*ladder, env={"PYTHONPATH": str(machine.folder)}, apart=True)
    run, attempts = runs_of(machine)[script]
    assert [attempt.outcome for attempt in attempts] == ["exited", "done"]
    assert run.result is not None
    assert run.result["best_step"] == 2
    read = machine.folder / "read"
    assert (read.read_text() if read.exists() else "") == ("1\n" if script == "resumes" else "")

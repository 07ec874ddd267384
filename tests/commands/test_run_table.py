"""`runs --columns` and `runs --by`: what the database computes is what Python computes, and how it is printed."""

from __future__ import annotations

import csv
import io
import math
import statistics
from pathlib import Path

import pytest

from lrurun.config.runs import InstanceSpec
from lrurun.ledger import columns
from lrurun.ledger.store import Ledger
from lrurun.ledger.values import Run
from tests.harness import where
from tests.harness.commands import answered, folder, lrurun, said
from tests.harness.results import fill
from tests.harness.stores import ME, want
from tests.ledger.test_conditions import SETTINGS, everything, random_ledger

__all__ = ["everything", "folder", "random_ledger"]  # fixtures

NAMES = [*(name for name in columns.FIELDS if name != "duration"), *columns.METRICS, *SETTINGS]


def test_columns_are_the_values_that_python_has(random_ledger: Ledger, everything: list[Run]) -> None:
    found = random_ledger.columns_of(NAMES)
    assert len(found) == len(everything)
    for run in everything:
        wanted = []
        for name in NAMES:
            value = where.value(run, name)
            if name in where.PLACES:
                value = getattr(run.memberships[0], name) or "" if run.memberships else None
            elif name in ("created_at", "finished_at"):
                value = getattr(run, name)
            elif isinstance(value, float) and math.isnan(value):
                value = None
            wanted.append(value)
        assert found[run.id] == tuple(wanted)
    some = [run.id for run in everything[:3]]
    assert random_ledger.columns_of(["seed"], some) == {run.id: (run.seed,) for run in everything[:3]}


@pytest.mark.parametrize("by", [["seed"], ["rung"], ["optim.lr"], ["rung", "stage", "model.glu", "execution.remat"]])
def test_means_are_those_of_python(by: list[str], random_ledger: Ledger, everything: list[Run]) -> None:
    metric = "val/accuracy"
    wanted: dict[tuple[object, ...], list[float | None]] = {}
    for run in everything:
        if run.superseded or run.excluded is not None:
            continue
        value = (run.result or {}).get(metric)
        counted = value if value is not None and math.isfinite(value) else None
        places = {tuple(getattr(place, name) for name in by if name in where.PLACES) for place in run.memberships}
        for place in places if set(by) & set(where.PLACES) else [()]:
            rest = iter(place)
            key = tuple(next(rest) if name in where.PLACES else where.value(run, name) for name in by)
            wanted.setdefault((*map(repr, key), run.task), []).append(counted)
    groups = [
        one
        for task in {run.task for run in everything}
        for one in random_ledger.groups_of([*by, "task"], {task: metric})
        if one.values[-1] == task
    ]
    assert len(groups) == len(wanted)
    for one in groups:
        values = wanted[(*map(repr, one.values[:-1]), str(one.values[-1]))]
        finite = [value for value in values if value is not None]
        assert (one.metric, one.runs, one.n) == (metric, len(values), len(finite))
        assert one.mean == (pytest.approx(statistics.mean(finite)) if finite else None)
        error = statistics.stdev(finite) / len(finite) ** 0.5 if len(finite) > 1 else None
        if error is None or error < 1e150:  # squares of larger ones are infinite
            assert one.stderr == (error if error is None else pytest.approx(error))


@pytest.fixture
def ledger(folder: Path) -> Path:
    """Six runs of three rates, of which the last was not trained, and one diverged."""
    with Ledger.open("ledger.db") as opened:
        key = opened.add_ladder("lru", "sDigits", "smoke", InstanceSpec()).key
        rates = (0.001, 0.001, 0.004, 0.004, 0.004, 0.002)
        wanted = [
            want("ring", seed, seed, config={"optim": {"lr": rate}, "seed": seed}) for seed, rate in enumerate(rates)
        ]
        opened.enqueue(key, wanted)
        for score in (0.5, 0.6, 0.25, 0.75, None):
            claim = opened.claim(key, ME)
            assert claim is not None
            state = "done" if score is not None else "diverged"
            opened.finish(claim, state, result={"test/accuracy": score, "val/loss": 1.5} if score else None, step=9)
        opened.mark([opened.runs()[-1].id], tag=["a|b"])
    return folder / "ledger.db"


FIELDS = ", ".join([*columns.FIELDS, "best_step", "escape_step"])
COLUMNS = ("runs", "--columns", "seed,rung, optim.lr", "--columns", "test/accuracy,val/loss,tag")


def test_columns_in_every_format(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = lrurun(capsys, *COLUMNS, "--sort", "seed", "--limit", "2")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "seed  rung  optim.lr  test/accuracy [%]  val/loss  tag",
        "   0  ring     0.001              50.00       1.5  a|b",
        "   1  ring     0.001              60.00       1.5",
    ]
    markdown = lrurun(capsys, *COLUMNS, "--sort", "seed", "--limit", "1", "--format", "md")[1].splitlines()
    assert markdown[0] == "| seed | rung | optim.lr | test/accuracy [%] | val/loss | tag |"
    assert markdown[2] == r"| 0 | ring | 0.001 | 50.00 | 1.5 | a\|b |"
    text = lrurun(capsys, *COLUMNS, "--where", "test/accuracy>=60%", "--format", "csv")[1]
    assert list(csv.reader(io.StringIO(text))) == [
        ["seed", "rung", "optim.lr", "test/accuracy", "val/loss", "tag"],
        ["3", "ring", "0.004", "0.75", "1.5", ""],
        ["1", "ring", "0.001", "0.6", "1.5", ""],
    ]
    found = answered(capsys, *COLUMNS, "--where", "seed>=4", "--columns", "duration,finished_at")
    assert found["columns"] == [
        "seed",
        "rung",
        "optim.lr",
        "test/accuracy",
        "val/loss",
        "tag",
        "duration",
        "finished_at",
    ]
    last, diverged = found["runs"]
    assert (last["seed"], last["test/accuracy"], last["duration"], last["finished_at"]) == (5, None, None, None)
    assert diverged["duration"] >= 0
    assert diverged["finished_at"].endswith("Z")
    assert found == {"schema_version": 1, **found}
    # the standard columns
    text = lrurun(capsys, "runs", "--format", "csv", "--limit", "1")[1]
    assert text.splitlines()[0] == "id,task,ladder,rung,stage,seed,state,step,steps,val/accuracy,test/accuracy"
    # without columns the list is what it was
    assert lrurun(capsys, "runs")[1].split()[:7] == ["id", "task", "rung", "stage", "seed", "state", "step"]


def test_groups_in_every_format(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = lrurun(capsys, "runs", "--by", "rung,optim.lr")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "rung  optim.lr  runs  n  test/accuracy [%]  ± stderr",
        "ring     0.001     2  2              55.00      5.00",
        "ring     0.002     1  0",
        "ring     0.004     3  2              50.00     25.00",
    ]
    found = answered(capsys, "runs", "--by", "optim.lr", "--sort", "-mean", "--limit", "2")
    assert found["by"] == ["optim.lr"]
    assert found["groups"] == [
        {
            "optim.lr": 0.001,
            "metric": "test/accuracy",
            "runs": 2,
            "n": 2,
            "mean": 0.55,
            "stderr": pytest.approx(0.05),
            "instances": ["sDigits"],
        },
        {
            "optim.lr": 0.004,
            "metric": "test/accuracy",
            "runs": 3,
            "n": 2,
            "mean": 0.5,
            "stderr": pytest.approx(0.25),
            "instances": ["sDigits"],
        },
    ]
    text = lrurun(capsys, "runs", "--by", "seed", "--where", "seed<1", "--metric", "val/loss", "--format", "csv")[1]
    assert text == "seed,metric,runs,n,mean,stderr\n0,val/loss,1,1,1.5,\n"
    assert (
        "| ring | 4 | 4 | 52.50 | 10.51 |"
        in lrurun(capsys, "runs", "--by", "rung", "--where", "state=done", "--ladder", "lru", "--format", "md")[1]
    )
    assert answered(capsys, "runs", "--by", "rung", "--where", "seed>99")["groups"] == []
    assert lrurun(capsys, "runs", "--by", "rung", "--where", "seed>99") == (0, "", "no such runs\n")


def test_without_a_ledger_there_are_no_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(capsys, "runs", "--by", "rung") == {"schema_version": 1, "by": ["rung"], "groups": []}
    assert answered(capsys, "runs", "--columns", "id")["runs"] == []
    code, _, err = lrurun(capsys, "runs", "--columns", "id")
    assert (code, err) == (0, "there is no ledger at ledger.db yet; lrurun ladder TASK starts one\n")


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["--columns", "sed"], "--columns: unknown name 'sed'", "did you mean 'seed'?"),
        (
            ["--columns", "id,nosuch"],
            "--columns: unknown name 'nosuch'",
            f"fields: {FIELDS}; results",
        ),
        (["--columns", "id,duratio"], "--columns: unknown name 'duratio'", "did you mean 'duration'? fields: id,"),
        (
            ["--by", "duration"],
            "--by duration: runs are grouped by fields and settings",
            "kind, task, ladder, rung, stage,",
        ),
        (["--columns", "seed,"], "--columns seed,: a name is missing", "as in --columns rung,optim.lr"),
        (["--columns", "seed,seed"], "--columns seed: named twice", "leave one of them out"),
        (["--columns", "seed", "--by", "seed"], "--columns and --by exclude each other", "leave one of them out"),
        (["--columns", "id", "--json", "--format", "csv"], "--json and --format exclude", "leave one of them out"),
        (["--by", "optim.rl"], "--by: unknown name 'optim.rl'", "did you mean 'optim.lr'?"),
        (["--by", "id"], "--by id: runs are grouped by fields and settings", "kind, task, ladder, rung, stage,"),
        (
            ["--by", "val/loss"],
            "--by val/loss: runs are grouped by fields and settings",
            "kind, task, ladder, rung, stage,",
        ),
        (["--metric", "val/loss"], "--metric: belongs to --by", "add --by, or leave it out"),
        (["--by", "rung", "--metric", "val/los"], "--metric: unknown name 'val/los'", "did you mean 'val/loss'?"),
        (["--by", "rung", "--metric", "seed"], "--metric seed: is no result", "as in --metric val/accuracy"),
        (
            ["--by", "rung", "--sort", "-seed"],
            "--sort -seed: groups have no seed",
            "they have: rung, runs, n, mean, stderr",
        ),
        (["--format", "cvs"], "--format: expected one of table, csv, md, found 'cvs'", "did you mean 'csv'?"),
    ],
)
def test_wrong_columns_and_groups_are_refused(ledger: Path, capsys, arguments, message, hint) -> None:
    code, out, err = lrurun(capsys, "runs", *arguments)
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first.startswith(f"error: {message}")
    assert second.startswith(f"hint: {hint}")


def test_means_over_several_instances_say_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(folder / "ledger.db", "sDigits", {"diagonal": [0.5], "gamma-norm": [0.5]})
    fill(folder / "ledger.db", "sDigits", {"diagonal": [0.7]}, profile="smoke")
    fill(folder / "ledger.db", "npDigits", {"diagonal": [0.9]})
    code, out, error = said(capsys, "runs", "--by", "rung")
    assert (code, len(out.splitlines())) == (0, 3)
    assert error == (
        "warning: means over several ladder instances: rung diagonal of sDigits, sDigits-smoke, npDigits; "
        "--by instance has a mean for each\n"
    )
    assert (
        "every group of sDigits, sDigits-smoke;" in said(capsys, "runs", "--by", "state", "--where", "task=sDigits")[2]
    )
    assert said(capsys, "runs", "--by", "rung,instance")[2] == ""
    assert said(capsys, "runs", "--by", "rung", "--instance", "sDigits-smoke")[2] == ""

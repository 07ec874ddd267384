"""Exports to MLflow and TensorBoard, imported into another ledger, give the report that they were made from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lrurun.config.runs import InstanceSpec
from lrurun.ledger.ledger import Ledger
from lrurun.trackers import Source, opened
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.shared import once
from tests.harness.stores import want

SCORES: dict[str, list[float | None]] = {
    "tanh-rnn": [(31 + 6 * seed) / 300 for seed in range(12)],
    "linear-rnn": [*((151 + 7 * seed) / 300 for seed in range(11)), None],
    "diagonal": [(151 + 10 * seed) / 300 for seed in range(12)],
}
"""Rung -> shares of 300 items, which have more digits than 32 bits; None is a diverged run."""
BASES = {"linear-rnn": "tanh-rnn", "diagonal": "linear-rnn"}
FORMATS = ("mlflow", "tensorboard")


pytestmark = pytest.mark.slow  # half a minute: three ledgers, filled, exported and imported


@pytest.fixture(scope="module")
def own() -> Machine:
    """A ledger with runs of three rungs, and some that no report counts."""

    def make(folder: Path) -> None:
        machine = Machine(folder)
        fill(machine.ledger, "sDigits", SCORES, profile="smoke", with_items=False, more={"best_step": 20})
        with Ledger.open(machine.ledger) as ledger:
            key = ledger.add_ladder("lru", "sDigits", "smoke", InstanceSpec()).key
            ledger.enqueue(key, [want(seed=seed, stage="tune") for seed in (0, 1)])
        excluded = machine.json("runs", "--where", "rung=diagonal and seed=11")["runs"][0]["id"]
        machine.run("mark", excluded, "--exclude", "disk was full")
        for format in FORMATS:
            machine.run("ledger", "export", "--to", format, str(folder / format), apart=True)

    return Machine(once("round-trip", make))


OF_TRAININGS = {
    *("title", "parameters", "steps_per_second", "steps", "learning_rate", "rate_source", "learning", "improving"),
    *("numerics", "failure_bound", "runs", "other_runs", "diverged", "unscored"),
}
"""What rows have of runs that lrurun trains alone, or by the ids of a ledger."""


def judged(report: dict[str, Any]) -> list[Any]:
    """What a report says of each rung that has runs, but what depends on who made them."""
    rows = []
    for row in report["rows"]:
        if not row["n"]:
            continue
        of_row = {name: value for name, value in row.items() if name not in OF_TRAININGS}
        of_row["failed_runs"] = row["diverged"] + row["unscored"]
        if comparison := row["comparison"]:
            sides = [
                {name: value for name, value in side.items() if name not in OF_TRAININGS}
                for side in comparison["sides"]
            ]
            of_row["comparison"] = comparison | {"sides": sides}
        rows.append(of_row)
    return rows


@pytest.mark.parametrize("format", FORMATS)
def test_an_export_gives_the_same_report(format: str, own: Machine, tmp_path: Path) -> None:
    expected = judged(own.json("report", "sDigits", "--profile", "smoke"))
    assert [row["rung"] for row in expected] == [*SCORES]
    assert {row["rung"]: row["comparison"]["other"] for row in expected if row["comparison"]} == BASES
    other = Machine(tmp_path)
    done = other.run("import", str(own.folder / format), "--name", "back")
    assert "left out: excluded in the ledger" in done.stderr
    assert "left out: made to tune learning rates" in done.stderr
    report = other.json("report", "back")
    assert judged(report) == expected
    assert "more than one difference" not in json.dumps(report)

    # What was imported is exported and imported in turn.
    other.run("ledger", "export", "--to", format, str(tmp_path / "again"), apart=True)
    third = Machine(tmp_path / "third")
    third.run("import", str(tmp_path / "again"), "--name", "back")
    again = third.json("report", "back")
    assert judged(again) == expected
    assert "more than one difference" not in json.dumps(again)


@pytest.mark.parametrize("format", FORMATS)
def test_an_import_keeps_its_order_and_its_bases(format: str, tmp_path: Path) -> None:
    """The rungs are neither in the order in which runs began, nor each compared with the one before."""
    seeds = range(4)
    rows = [(arch, 0.001 * wide, seed, 90 + 2 * wide + seed / 4) for wide, arch in enumerate("bca") for seed in seeds]
    lines = ["arch,wd,seed,test_acc", *(",".join(map(str, row)) for row in rows)]
    one, other = Machine(tmp_path / "one"), Machine(tmp_path / "other")
    (one.folder / "k.csv").write_text("\n".join(lines))
    one.run("import", "k.csv", "--by", "arch", "--base", "arch=c", "--test-items", "1000", "--chance", "0.1")
    expected = one.json("report", "k")
    assert [row["rung"] for row in expected["rows"]] == ["c", "b", "a"]
    assert "more than one difference from the base" in json.dumps(expected), "arch and wd"
    one.run("ledger", "export", "--to", format, str(tmp_path / "export"), apart=True)
    other.run("import", str(tmp_path / "export"), "--name", "k")
    found = other.json("report", "k")
    assert judged(found) == judged(expected)
    details = other.run("report", "k", "--details").stdout
    [several] = re.findall(r"more than one setting: b in (.*?); a in", " ".join(details.split()))
    assert sorted(several.split(", ")) == ["settings.arch", "settings.wd"]


@pytest.mark.parametrize("format", FORMATS)
def test_runs_of_an_export_say_where_they_belong(format: str, own: Machine) -> None:
    runs = list(opened(Source(name=str(own.folder / format))).runs(None))
    assert len(runs) == 35
    run = next(run for run in runs if run.settings["rung"] == "diagonal" and run.settings["seed"] == 3)
    places = {name: run.settings[name] for name in ("task", "ladder", "profile", "rung", "stage", "seed")}
    assert places == {
        "task": "sDigits", "ladder": "lru", "profile": "smoke", "rung": "diagonal", "stage": "train", "seed": 3,
    }  # fmt: skip
    assert run.settings["model.recurrence.kind"] == "diagonal"
    assert run.last["test/accuracy"] == 181 / 300
    assert run.last["best_step"] == 20
    assert (run.state, run.state_text) == ("finished", "done")
    assert not [name for name in (*run.last, *run.curves) if name.startswith("result/")]
    assert list(run.curves["val/accuracy"].steps) == [10, 20]
    diverged = runs[-1]
    assert (diverged.state_text, diverged.settings["seed"]) == ("diverged", 11)
    assert str(diverged.last["test/accuracy"]) == "nan"


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_table_of_runs_gives_the_same_scores(format: str, own: Machine, tmp_path: Path) -> None:
    """It has neither bases nor the number of test items."""
    own.run("ledger", "export", "--to", format, str(tmp_path / "export"), apart=True)
    other = Machine(tmp_path / "other")
    source = str(tmp_path / "export" / f"runs.{format}")
    done = other.run("import", source, "--name", "back", "--by", "rung", "--metric", "test/accuracy")
    assert "1 run left out: excluded in the ledger" in done.stderr
    assert "2 runs left out: made to tune learning rates" in done.stderr
    expected = {
        row["rung"]: sorted(row["scores"]) for row in own.json("report", "sDigits", "--profile", "smoke")["rows"]
    }
    found = other.json("report", "back")["rows"]
    assert {row["rung"]: sorted(row["scores"]) for row in found} == {rung: expected[rung] for rung in SCORES}
    assert [row["diverged"] + row["unscored"] for row in found if row["rung"] == "linear-rnn"] == [1]

"""Exports to MLflow and TensorBoard, imported into another ledger, give the report that they were made from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lrurun.config import planning
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


def judged(report: dict[str, Any]) -> list[Any]:
    """What a report says of each rung that has runs."""
    of_comparison = ("other", "verdict", "difference", "low", "high", "p_adjusted", "provisional")
    return [
        [
            *(row[name] for name in ("rung", "n", "mean", "stderr", "scores", "verdict")),
            row["diverged"] + row["unscored"],
            row["comparison"] and [row["comparison"][name] for name in of_comparison],
        ]
        for row in report["rows"]
        if row["n"]
    ]


def options() -> list[str]:
    """What an export does not say: the number of test items, and the score of a guess."""
    plan = planning.make("sDigits", profile="smoke")
    return ["--test-items", str(plan.task.sizes(plan.options)["test"]), "--chance", str(plan.task.metric.chance)]


def put_bases(file: Path) -> None:
    """Compares each rung of an import with the one before, as the ladder does."""
    text = file.read_text()
    for rung, base in BASES.items():
        text, count = re.subn(rf'(name = "{rung}"\n(?:(?!\[\[)[^\n]*\n)*?on = )"[^"]*"', rf'\1"{base}"', text)
        assert count == 1, text
    file.write_text(text)


@pytest.mark.parametrize("format", FORMATS)
def test_an_export_gives_the_same_report(format: str, own: Machine, tmp_path: Path) -> None:
    expected = judged(own.json("report", "sDigits", "--profile", "smoke"))
    assert [row[0] for row in expected] == [*SCORES]
    other = Machine(tmp_path)
    source = str(own.folder / format)
    done = other.run("import", source, "--name", "back", "--by", "rung", "--dry-run", *options())
    assert "left out: excluded in the ledger" in done.stderr
    assert "left out: made to tune learning rates" in done.stderr
    (tmp_path / "back.toml").write_text(done.stdout)
    put_bases(tmp_path / "back.toml")
    other.run("import", "back.toml")
    assert judged(other.json("report", "back")) == expected

    # What was imported is exported and imported in turn.
    other.run("ledger", "export", "--to", format, str(tmp_path / "again"), apart=True)
    third = Machine(tmp_path / "third")
    done = third.run("import", str(tmp_path / "again"), "--name", "back", "--by", "rung", "--dry-run", *options())
    (third.folder / "back.toml").write_text(done.stdout)
    put_bases(third.folder / "back.toml")
    third.run("import", "back.toml")
    assert judged(third.json("report", "back")) == expected


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

"""What decides a verdict on imported runs, from a file to the report."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.machine import Machine

Row = dict[str, Any]


def write(folder: Path, rows: Iterable[Row]) -> None:
    """Writes runs.csv with a column for each key of the rows."""
    every = list(rows)
    columns = list(dict.fromkeys(name for row in every for name in row))
    lines = [",".join(columns), *(",".join(str(row.get(name, "")) for name in columns) for row in every)]
    (folder / "runs.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def rows(**changes: Any) -> list[Row]:
    """Four seeds of each of two rungs."""
    return [
        {"run": f"{norm}-{seed}", "norm": norm, "seed": seed, "test_acc": 0.1 * k + 0.5 + 0.01 * seed} | changes
        for k, norm in enumerate(["none", "layer"])
        for seed in range(4)
    ]


def read(machine: Machine, *options: str, name: str = "runs") -> Row:
    """The report of the runs in runs.csv, read by these options as an import of this name."""
    machine.run("import", "runs.csv", "--metric", "test_acc", "--by", "norm", "--name", name, *options)
    report: Row = machine.json("report", "--instance", name)
    return report


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def shorts(report: Row) -> set[str]:
    return {caution["short"] for caution in report["imported"]["cautions"]} - {""}


def test_crashed_runs_are_missing_or_failures(machine: Machine, tmp_path: Path) -> None:
    crashed = rows(State="finished")
    crashed[1] |= {"State": "crashed", "test_acc": ""}
    crashed[2] |= {"State": "running"}
    write(tmp_path, crashed)
    none, layer = read(machine, "--seed-column", "seed")["rows"]
    assert (none["n"], none["missing"], none["diverged"]) == (2, 2, 0)
    assert (layer["n"], layer["missing"]) == (4, 0)
    none, _ = read(machine, "--seed-column", "seed", "--crashed", "failed", name="failed")["rows"]
    assert (none["n"], none["missing"], none["diverged"]) == (2, 1, 1)


def test_a_score_that_is_not_finite_ranks_below_all_others(machine: Machine, tmp_path: Path) -> None:
    with_nan = rows()
    with_nan[0]["test_acc"] = "nan"
    write(tmp_path, with_nan)
    none, _ = read(machine, "--seed-column", "seed")["rows"]
    assert (none["n"], none["unscored"], none["missing"]) == (3, 1, 0)


def test_without_a_seed_column_numbers_stay_when_runs_are_added(machine: Machine, tmp_path: Path) -> None:
    first = [{name: value for name, value in row.items() if name != "seed"} for row in rows()]
    write(tmp_path, first[1:])
    assert "seeds numbered here" in shorts(read(machine))
    machine.run("import", "runs.csv")
    before = {run["id"]: run["seed"] for run in machine.json("runs")["runs"]}
    write(tmp_path, [*first, {"run": "none-9", "norm": "none", "test_acc": 0.6}])
    machine.run("import", "runs.csv")
    after = {run["id"]: run["seed"] for run in machine.json("runs")["runs"]}
    assert len(after) == 9
    assert before.items() <= after.items()
    by_rung = [machine.json("runs", "--where", f"rung={rung}")["runs"] for rung in ("none", "layer")]
    assert [sorted(run["seed"] for run in runs) for runs in by_rung] == [[0, 1, 2, 3, 4], [0, 1, 2, 3]]


def test_repeats_are_listed_and_decided(machine: Machine, tmp_path: Path) -> None:
    twice = [*rows(), {"run": "none-again", "norm": "none", "seed": 3, "test_acc": 0.9}]
    write(tmp_path, twice)
    options = ("import", "runs.csv", "--metric", "test_acc", "--by", "norm", "--seed-column", "seed")
    done = machine.run(*options, code=2)
    assert "several runs of one rung and seed: none, seed 3: none-3, none-again" in done.stderr
    assert "--repeat latest, mean or all" in done.stderr
    assert not (tmp_path / "runs.toml").exists()
    expected = {"latest": [0.5, 0.51, 0.52, 0.9], "mean": [0.5, 0.51, 0.52, 0.715], "all": [0.5, 0.51, 0.52, 0.53, 0.9]}
    for repeat, scores in expected.items():
        machine.run(*options, "--repeat", repeat, "--name", repeat)
        none, _ = machine.json("report", "--instance", repeat)["rows"]
        assert sorted(none["scores"]) == pytest.approx(scores)


def test_the_best_test_score_counts_only_by_its_protocol(machine: Machine, tmp_path: Path) -> None:
    write(
        tmp_path,
        [row | {"step": step, "test_acc": row["test_acc"] + 0.1 * (step == 1)} for row in rows() for step in (0, 1, 2)],
    )
    done = machine.run(
        "import", "runs.csv", "--metric", "test_acc", "--by", "norm", "--at", "best", "--metric-for-choice", "test_acc",
        code=2,
    )  # fmt: skip
    assert "is the score itself" in done.stderr
    last = read(machine, "--seed-column", "seed")["rows"][0]["scores"]
    report = read(machine, "--seed-column", "seed", "--protocol", "best-of-test", name="best")
    assert report["rows"][0]["scores"] == pytest.approx([score + 0.1 for score in last])
    assert "best of test" in shorts(report)


def test_what_is_judged_never_chooses_without_the_protocol(machine: Machine, tmp_path: Path) -> None:
    write(
        tmp_path,
        [
            row
            | {"step": step, "test_loss": 1 - 0.1 * step, "best_test_acc": 0.9, "val_acc": 0.1 * (step + row["seed"])}
            for row in rows()
            for step in (0, 1, 2)
        ],
    )
    at_best = ("import", "runs.csv", "--by", "norm", "--metric", "test_acc", "--at", "best")
    done = machine.run(*at_best, "--metric-for-choice", "test_loss", code=2)
    assert "metric_for_choice: is of the test split by its name" in done.stderr
    assert "--protocol" in done.stderr
    best = ("import", "runs.csv", "--by", "norm", "--metric", "best_test_acc")
    done = machine.run(*best, code=2)
    assert "metric: is the best over steps by its name" in done.stderr
    assert not (tmp_path / "runs.toml").exists()
    machine.run(*best, "--protocol", "best-of-test")
    assert "best of test" in shorts(machine.json("report", "--instance", "runs"))
    # the file counts as it stands, under the same rule
    file = tmp_path / "runs.toml"
    file.write_text(file.read_text(encoding="utf-8").replace('protocol = "best-of-test"\n', ""), encoding="utf-8")
    assert "is the best over steps by its name" in machine.run("import", "runs.toml", code=2).stderr
    machine.run("import", "runs.csv", "--by", "norm", "--metric", "val_acc", "--name", "val")
    assert "the score is of validation" in shorts(machine.json("report", "--instance", "val"))


def test_a_direction_that_no_name_says_is_asked_for(machine: Machine, tmp_path: Path) -> None:
    write(tmp_path, [row | {"quux": row["test_acc"], "test_ece": row["test_acc"]} for row in rows()])
    options = ("import", "runs.csv", "--by", "norm", "--metric")
    done = machine.run(*options, "quux", code=2)
    assert "quux: its name does not say whether higher or lower is better" in done.stderr
    assert "--direction min" in done.stderr
    assert "lower is better" in machine.run(*options, "quux", "--direction", "min").stderr
    assert "lower is better" in machine.run(*options, "test_ece", "--name", "ece").stderr
    done = machine.run(*options, "test_acc", "--name", "x", "--metric-for-choice", "quux", "--choose", "seed", code=2)
    assert "--metric-for-choice quux: its name does not say" in done.stderr
    # nor is it assumed where a file leaves it out
    file = tmp_path / "ece.toml"
    file.write_text(file.read_text(encoding="utf-8").replace('direction = "min"\n', ""), encoding="utf-8")
    assert "direction" in machine.run("import", "ece.toml", code=2).stderr


@pytest.mark.parametrize("metric", ["val_loss", "dev/f1", "eval_acc"])
def test_the_step_is_asked_for_with_every_validation_metric(machine: Machine, tmp_path: Path, metric: str) -> None:
    # the last step reverses the order that the best step by validation gives
    every = [
        row
        | {
            "step": step,
            "test_acc": (0.9 if step == 1 else 0.1) if row["norm"] == "layer" else 0.5,
            "val_runtime": step,
            metric: 0.1 if (step == 1) == metric.endswith("loss") else 0.9,
        }
        for row in rows()
        for step in (0, 1, 2)
    ]
    write(tmp_path, every)
    options = ("import", "runs.csv", "--metric", "test_acc", "--by", "norm")
    done = machine.run(*options, code=2)
    assert f"is the opposite of that at the step at which {metric} is best" in done.stderr
    assert f"--at best --metric-for-choice {metric}" in done.stderr
    machine.run(*options, "--at", "last")
    machine.run(*options, "--at", "best", "--metric-for-choice", metric, "--name", "best")


def test_the_best_step_needs_steps(machine: Machine, tmp_path: Path) -> None:
    options = ("import", "runs.csv", "--metric", "test_acc", "--by", "norm", "--at", "best")
    best = (*options, "--metric-for-choice", "val_acc")
    write(tmp_path, rows(val_acc=0.5))
    done = machine.run(*best, code=2)
    assert "--at best: no run has curves of both test_acc and val_acc" in done.stderr
    assert "--at last" in done.stderr
    assert not (tmp_path / "runs.toml").exists()
    # the runs of one rung have a single row
    every = [
        row | {"step": step, "val_acc": 0.5 - 0.1 * step, "test_acc": row["test_acc"] - 0.1 * step}
        for row in rows()
        for step in ((0,) if row["norm"] == "layer" else (0, 1, 2))
    ]
    write(tmp_path, every)
    machine.run(*best)
    [caution] = [
        each
        for each in machine.json("report", "--instance", "runs")["imported"]["cautions"]
        if each["short"] == "runs without a best step"
    ]
    assert caution["rungs"] == ["layer"]
    assert "layer 4 of 4" in caution["full"]
    write(tmp_path, rows(val_acc=0.5))
    done = machine.run("import", "runs.toml", code=2)
    assert "runs.toml [import], at: no run has curves of both" in done.stderr


def test_a_run_that_went_back_counts_from_its_last_attempt(machine: Machine, tmp_path: Path) -> None:
    steps = [0, 1, 2, 3, 4, 5, 2, 3]
    every = [
        row
        | {"step": step, "time": k, "val_acc": 0.1 * k if k < 6 else 0.05 * k, "test_acc": row["test_acc"] + 0.01 * k}
        for row in rows()
        for k, step in enumerate(steps)
    ]
    write(tmp_path, every)
    machine.run(
        "import", "runs.csv", "--metric", "test_acc", "--by", "norm", "--at", "best", "--metric-for-choice", "val_acc"
    )  # fmt: skip
    none, _ = machine.json("report", "--instance", "runs")["rows"]
    # val_acc: 0, 0.1, then 0.3 and 0.35 at the steps 2 and 3 of the second attempt
    assert none["scores"] == pytest.approx([0.5 + 0.01 * seed + 0.07 for seed in range(4)])
    assert {run["step"] for run in machine.json("runs")["runs"]} == {3}


def test_settings_are_chosen_by_validation(machine: Machine, tmp_path: Path) -> None:
    tuned = [
        {"norm": norm, "lr": lr, "seed": seed, "val_acc": val + 0.001 * seed, "test_acc": 0.5 + 0.01 * seed}
        for norm in ("none", "layer")
        for lr, val in ((0.1, 0.6), (0.01, 0.7), (0.001, 0.5))
        for seed in range(18 if norm == "layer" else 3)
    ]
    write(tmp_path, [{"run": f"r{number}"} | row for number, row in enumerate(tuned)])
    report = read(machine, "--seed-column", "seed", "--choose", "lr", "--metric-for-choice", "val_acc")
    none, layer = report["rows"]
    assert none["scores"] == pytest.approx([0.5, 0.51, 0.52])
    assert layer["scores"] == pytest.approx([0.5 + 0.01 * seed for seed in range(6, 18)])
    [shared] = [each for each in report["imported"]["cautions"] if each["short"] == "choice and verdict share runs"]
    assert shared["rungs"] == ["none"]
    assert len(report["imported"]["choices"]) == 2
    assert len(machine.json("runs", "--where", "stage=train and settings.lr=0.01")["runs"]) == 3 + 12
    assert len(machine.json("runs", "--where", "stage=train")["runs"]) == 3 + 12


def test_the_chosen_settings_may_lack_test_scores(machine: Machine, tmp_path: Path) -> None:
    tuned = [
        {"norm": norm, "lr": lr, "seed": seed, "val_acc": val, "test_acc": 0.5 + 0.01 * seed}
        for norm in ("none", "layer")
        for lr, val in ((0.1, 0.9), (0.01, 0.7))
        for seed in range(3)
    ]
    for row in tuned[:2]:
        row["test_acc"] = ""
    write(tmp_path, [{"run": f"r{number}"} | row for number, row in enumerate(tuned)])
    report = read(machine, "--seed-column", "seed", "--choose", "lr", "--metric-for-choice", "val_acc")
    none, layer = report["rows"]
    assert (none["n"], none["missing"], layer["n"]) == (1, 2, 3)
    assert none["scores"] == [0.52]
    [of_none] = [choice for choice in report["imported"]["choices"] if choice.startswith("none:")]
    assert "none: lr = 0.1 is the best of 2" in of_none
    assert of_none.endswith("2 of its 3 runs have no test_acc, and count as missing")

"""`lrurun import` of files that the trackers themselves wrote: the rungs, their seeds and what is missing."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.harness.machine import Machine
from tests.harness.tables import SCORES, write_csv, write_runs

FILES = Path(__file__).parents[1] / "trackers" / "files"

FOLDERS = ("early", "filtered", "killed", "nan", "resumed", "whole")
LADDER = """\
name = "seeds"
title = "seeds"
source = "these tests"
[[rung]]
name = "small"
where = "seed < 500000000"
[[rung]]
name = "large"
where = "seed >= 500000000"
on = "small"
"""
NO_SEED = ("--seed-column", "none")
CASES: Mapping[str, tuple[str, Sequence[str], Mapping[str, tuple[int, int]]]] = {
    "csv": ("tables/runs-pandas.csv", ["--metric", "test_acc", "--by", "norm"], {"none": (3, 0), "layer": (2, 1)}),
    "jsonl": ("tables/runs-polars.jsonl", ["--metric", "test_acc", "--by", "norm"], {"none": (3, 0), "layer": (2, 1)}),
    "parquet": ("tables/steps-pandas.parquet", ["--metric", "val_acc"], {"layer": (1, 0), "none": (1, 0)}),
    # the score of "layer" is NaN, which ranks below all others
    "wandb": ("wandb/offline", ["--metric", "loss", "--by", "norm"], {"layer": (1, 0), "none": (1, 1)}),
    "mlflow": (
        "mlflow/mlflow.db",
        ["--project", "norms", "--metric", "test acc", "--by", "norm"],
        {"layer": (2, 0), "none": (1, 0)},
    ),
    "mlflow files": (
        "mlflow/mlruns",
        ["--project", "folds", "--metric", "acc", "--by", "fold"],
        {"fold-0": (1, 0), "fold-1": (1, 0)},
    ),
    "tensorboard": (
        "tensorboard/hparams",
        ["--metric", "hparam/accuracy", "--by", "lr", *NO_SEED],
        {"lr-0.1": (1, 0), "lr-0.5": (2, 0), "no-lr": (0, 1)},
    ),
    "lightning": (
        "lightning/lightning_logs",
        ["--metric", "val_acc", "--by", "seed", *NO_SEED],
        {"seed-0": (1, 0), "seed-1": (1, 0), "seed-2": (0, 1), "seed-3": (1, 0)},
    ),
    "transformers": (
        "transformers",
        ["--metric", "eval_accuracy", "--by", "folder"],
        {name: (0, 1) if name == "killed" else (1, 0) for name in FOLDERS},
    ),
    **{
        f"optuna {name}": (
            f"optuna/{file}",
            ["--project", "norms", "--metric", "value", "--by", "norm"],
            # two failed, one still runs, one was pruned; one has an infinite value, which ranks below all others
            {"none": (1, 1), "layer": (1, 1), "no-norm": (1, 1), "3": (1, 1)},
        )
        for name, file in {"database": "studies.db", "journal": "journal.log"}.items()
    },
    "hydra": (
        "hydra/multirun",
        ["--from", "hydra", "--metrics-file", "metrics.json", "--metric", "test/acc", "--by", "norm"],
        {"layer": (2, 1), "none": (2, 1)},
    ),
    "ray": (
        "ray/ladder",
        ["--metric", "acc", "--by", "seed", *NO_SEED],
        {"seed-0": (1, 0), "seed-1": (1, 0), "seed-2": (0, 1), "seed-3": (0, 1)},
    ),
    "trackio": (
        "trackio/norms.db",
        ["--metric", "test/acc", "--by", "norm", *NO_SEED],
        {"layer": (3, 0), "no-norm": (1, 0)},
    ),
    "sacred": (
        "sacred/sacred_runs",
        ["--metric", "train.loss", "--ladder", "rungs.toml", *NO_SEED],
        {"small": (3, 2), "large": (1, 4)},
    ),
    # a run of "layer" has no such metric
    "dvclive": (
        "dvclive/runs",
        ["--metric", "acc", "--by", "norm", "--unit", "hits", *NO_SEED],
        {"batch": (2, 0), "none": (1, 0), "no-norm": (1, 0), "layer": (0, 1)},
    ),
}
"""Kind -> the source, the options, and for each rung the number of seeds that count and of those that are missing."""


@pytest.mark.parametrize("kind", CASES)
def test_the_rungs_of_a_tracker(kind: str, machine: Machine) -> None:
    source, options, expected = CASES[kind]
    place = machine.folder / "source" / source
    place.parent.mkdir(parents=True)
    copy = shutil.copytree if (FILES / source).is_dir() else shutil.copy
    copy(FILES / source, place)
    (machine.folder / "rungs.toml").write_text(LADDER)
    document = machine.json("import", f"source/{source}", *options)
    assert document["import"]["from"] == kind.split()[0]
    rows = machine.json("report", "--instance", document["instance"]["short_name"])["rows"]
    assert {row["rung"]: (row["n"] + row["unscored"] + row["infinite"], row["missing"]) for row in rows} == dict(
        expected
    )


HYDRA = ("--from", "hydra", "--metrics-file", "metrics.json", "--metric", "test/acc", "--by", "norm")


@pytest.fixture
def jobs(machine: Machine) -> Path:
    """A copy of the jobs of Hydra, beside the ledger."""
    shutil.copytree(FILES / "hydra" / "multirun", machine.folder / "multirun")
    return next((machine.folder / "multirun").rglob("metrics.json")).parents[1]


def test_a_source_that_grows_changes_and_loses_runs(machine: Machine, jobs: Path) -> None:
    command = ("import", "multirun", *HYDRA)
    first = machine.json(*command)["record"]
    assert (first["new"], first["changed"], first["equal"], first["vanished"]) == (6, 0, 0, 0)
    (jobs / "5" / "metrics.json").write_text('{"test/acc": 0.2}')  # which had none
    shutil.rmtree(jobs / "1")  # the first seed of "none"
    new = shutil.copytree(jobs / "2", jobs / "6")
    for file in new.rglob("*.yaml"):
        file.write_text(file.read_text().replace("seed: 1", "seed: 3").replace("seed=1", "seed=3"))
    second = machine.json(*command)["record"]
    assert (second["new"], second["changed"], second["equal"], second["vanished"]) == (1, 1, 4, 1)
    rows = machine.json("report", "multirun")["rows"]
    assert {row["rung"]: (row["n"], row["missing"]) for row in rows} == {"layer": (3, 1), "none": (3, 0)}
    third = machine.json(*command)["record"]
    assert (third["new"], third["changed"], third["equal"], third["vanished"]) == (0, 0, 6, 1)


def test_a_folder_that_is_named_in_two_ways(machine: Machine, jobs: Path) -> None:
    (machine.folder / "link").symlink_to("multirun")
    for other in ("multirun/", "./multirun", "link", str(machine.folder / "multirun")):
        done = machine.run("import", "multirun", other, "--name", "both", *HYDRA, code=2)
        assert f"{other}: is the same source as multirun" in done.stderr
        machine.run("import", "multirun", *HYDRA)
        again = machine.json("import", other, "--name", "multirun", *HYDRA)["record"]
        assert (again["new"], again["equal"]) == (0, 6)


def test_sources_that_have_the_same_run(machine: Machine, jobs: Path) -> None:
    shutil.copytree(machine.folder / "multirun", machine.folder / "copy")
    before = machine.files()
    done = machine.run("import", "multirun", "copy", *HYDRA, code=2)
    assert "is there twice: in " in done.stderr
    assert machine.files() == before


def test_two_sources_in_one_command(machine: Machine) -> None:
    write_runs(machine.folder / "a" / "runs.csv", {norm: scores[:3] for norm, scores in SCORES.items()})
    rows = [[f"{norm}-{3 + k}", norm, 3 + k, x] for norm, scores in SCORES.items() for k, x in enumerate(scores[3:])]
    write_csv(machine.folder / "b" / "more.csv", ["run", "norm", "seed", "test_acc"], rows)
    command = ("import", "a/runs.csv", "b/more.csv", "--metric", "test_acc", "--by", "norm")
    document = machine.json(*command)
    assert [(source["place"], source["runs"]) for source in document["record"]["sources"]] == [
        ("a/runs.csv", 9),
        ("b/more.csv", 9),
    ]
    assert {row["rung"]: row["n"] for row in machine.json("report", "runs")["rows"]} == dict.fromkeys(SCORES, 6)
    swapped = ("import", "b/more.csv", "a/runs.csv", "--name", "runs", *command[3:])
    assert machine.json(*swapped)["record"]["equal"] == 18


def test_two_projects_with_equal_run_ids(machine: Machine) -> None:
    shutil.copy(FILES / "optuna" / "studies.db", machine.folder)
    command = ("import", "studies.db", "--metric", "value", "--by", "norm", *NO_SEED)
    document = machine.json(*command)  # of both studies, which have a trial 0
    assert document["record"]["new"] == 9
    rows = machine.json("report", "studies")["rows"]
    assert {row["rung"]: row["missing"] for row in rows} == {"none": 1, "layer": 1, "no-norm": 2, "3": 1}
    ladder = LADDER.replace("seed < 500000000", "project = 'norms'").replace("seed >= 500000000", "project != 'norms'")
    (machine.folder / "rungs.toml").write_text(ladder)
    other = ("import", "studies.db", "--name", "studies", "--metric", "value", "--ladder", "rungs.toml", *NO_SEED)
    (machine.folder / "studies.toml").unlink()
    machine.run(*other)
    rows = machine.json("report", "studies")["rows"]
    assert {row["rung"]: row["missing"] for row in rows} == {"small": 4, "large": 1}
    unknown = machine.run(*command, "--name", "x", "--project", "norm", code=2).stderr
    assert "norm" in unknown


def test_tables_of_one_name_with_equal_run_ids_are_refused(machine: Machine) -> None:
    for folder in ("a", "b"):
        write_runs(machine.folder / folder / "runs.csv")
    done = machine.run("import", "a/runs.csv", "b/runs.csv", "--metric", "test_acc", "--by", "norm", code=2)
    assert "run none-0 is there twice: in a/runs.csv and in b/runs.csv" in done.stderr

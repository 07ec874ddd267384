"""What `lrurun import` says about data that can be read in more than one way, or not at all: whole commands."""

from __future__ import annotations

import gzip
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.harness.machine import Machine
from tests.harness.tables import write_csv


def write_pair(path: Path, *columns: str, rows: dict[str, list[list[Any]]]) -> Path:
    """Writes a row for each run of each norm: its seed, and its cells of these columns."""
    return write_csv(
        path,
        ["run", "norm", "seed", *columns],
        [[f"{norm}{k}", norm, k, *cells] for norm, of_norm in rows.items() for k, cells in enumerate(of_norm)],
    )


def test_a_rate_that_differs_in_every_run_is_a_caution_where_rungs_differ_in_it(machine: Machine) -> None:
    rates = {"a": 0.0001, "b": 0.01}
    rows = {norm: [[0.8 + k / 1000, rate * (k + 1.5), k / 7] for k in range(6)] for norm, rate in rates.items()}
    write_pair(machine.folder / "runs.csv", "test_acc", "lr", "walltime", rows=rows)
    done = machine.run("import", "runs.csv", apart=True)
    assert (
        "warning: Settings vary among the runs of a rung, and not alike in those compared: a: lr (0.00015 to 0.00065, "
        "median 0.0004); b: lr (0.015 to 0.065, median 0.04). Verdicts are about the mixture." in done.stderr
    )
    assert "settings vary within rungs" in done.stdout
    assert "# Also vary: lr (12 values)." in (machine.folder / "runs.toml").read_text()


FRACTIONS = {"a": [[0.9], [0.91]], "b": [[0.95], [0.93]]}
PER_CENT = {norm: [[100 * score for score in run] for run in runs] for norm, runs in FRACTIONS.items()}
MIXED = {"a": PER_CENT["a"], "b": FRACTIONS["b"]}


@pytest.mark.parametrize(
    ("rows", "options", "message", "hint"),
    [
        (
            MIXED,
            [],
            "test_acc: has per cent and fractions, found 90 in run a0 and 0.95 in run b0 and 1 more",
            "give all one unit in the source; if all are in per cent, say so: --per-cent",
        ),
        (
            PER_CENT,
            ["--no-per-cent"],
            "--no-per-cent: run a0 has test_acc = 90, which as a fraction is 9000 %",
            "with --per-cent (per_cent = true), values are divided by 100; or name another unit, as --unit points",
        ),
        (
            FRACTIONS,
            ["--per-cent"],
            "--per-cent: the values of test_acc are at most 0.95, as fractions are, which would be divided by 100",
            "leave it out (per_cent = false): fractions are printed in per cent",
        ),
    ],
)
def test_per_cent_and_fractions_are_told_apart(
    machine: Machine, rows: dict[str, list[list[Any]]], options: list[str], message: str, hint: str
) -> None:
    write_pair(machine.folder / "runs.csv", "test_acc", rows=rows)
    before = machine.files()
    done = machine.run("import", "runs.csv", *options, code=2)
    assert f"error: {message}\n" in done.stderr
    assert f"{hint}\n" in done.stderr
    assert machine.files() == before


def test_small_scores_in_per_cent_are_the_word_of_the_user(machine: Machine) -> None:
    write_pair(machine.folder / "runs.csv", "test_acc", rows=MIXED)
    done = machine.run("import", "runs.csv", "--per-cent", apart=True)
    assert "warning: All values of test_acc are read as per cent, and those of 2 runs are at most 1" in done.stderr
    assert "per cent and fractions" in done.stdout
    file = machine.folder / "runs.toml"
    file.write_text(file.read_text().replace("per_cent = true", "per_cent = false"))
    error = machine.run("import", "runs.toml", code=2).stderr
    assert "runs.toml [import], per_cent: run a0 has test_acc = 90, which as a fraction is 9000 %" in error


@pytest.mark.parametrize(
    ("metric", "heading"), [("val_acc", "val acc"), ("train_acc", "train acc"), ("acc", "test acc")]
)
def test_a_score_of_another_split_is_not_called_a_test_score(machine: Machine, metric: str, heading: str) -> None:
    write_pair(machine.folder / "runs.csv", metric, rows=FRACTIONS)
    text = machine.run("import", "runs.csv", "--metric", metric).stdout
    [line] = [line for line in text.splitlines() if line.startswith("rung ")]
    assert line.split("  ")[1].strip() == heading or f"  {heading}  " in line
    assert "test val" not in text
    assert "test train" not in text


def test_a_unit_of_its_own_is_taken_as_it_is(machine: Machine) -> None:
    write_pair(machine.folder / "runs.csv", "test_acc", rows=PER_CENT)
    assert "90.500 ± 0.500 points" in machine.run("import", "runs.csv", "--unit", "points").stdout


@pytest.mark.parametrize("options", [[], ["--metric", "test_acc"]])
@pytest.mark.parametrize(
    ("cell", "others", "hint"),
    [
        ("oops", ["0.8", "0.9"], "correct it in the source, which has 3 numbers there"),
        ("test_acc", ["0.8", "0.9"], "correct it in the source, which has 3 numbers there"),
        ("90%", ["80%", "81 %"], "write 90 in place of '90%': such values are read as per cent"),
        ("high", ["low", "low"], "name a column with numbers"),
    ],
)
def test_a_cell_that_is_no_number_is_named(
    machine: Machine, options: list[str], cell: str, others: list[str], hint: str
) -> None:
    rows = {"a": [[others[0] if "%" in cell or cell == "high" else 0.8], [others[0]]], "b": [[cell], [others[1]]]}
    if "%" in cell or cell == "high":
        rows["a"], rows["b"] = [[cell], [others[0]]], [[others[1]], [others[0]]]
    write_pair(machine.folder / "runs.csv", "test_acc", rows=rows)
    error = machine.run("import", "runs.csv", *options, code=2).stderr
    run = "a0" if rows["a"][0][0] == cell else "b0"
    if cell == "high" and not options:
        assert "error: no metric was found" in error
    else:
        where = "--metric test_acc" if options else "test_acc"
        assert f"error: {where}: is no number in run {run}, found {cell!r}\n" in error
        assert f"{hint}\n" in error


def test_a_cell_of_a_table_without_names_of_runs_is_named_by_its_line(machine: Machine) -> None:
    (machine.folder / "x.csv").write_text("norm,seed,test_acc\nlayer,0,0.8\nlayer,1,abc\nbatch,0,0.9\n")
    error = machine.run("import", "x.csv", code=2).stderr
    assert error.startswith("error: test_acc: is no number in x.csv, line 3, found 'abc'\n")


def test_several_runs_of_a_seed_name_the_settings_that_differ_and_the_choice_among_them(machine: Machine) -> None:
    rows = [
        [f"{norm}{k}{lr}{opt}", norm, k, 0.8, 0.7 + lr, 1 - lr, lr, opt, 100 * k + 7 * lr]
        for norm in "ab"
        for k in range(3)
        for lr in (0.1, 0.1, 0.2)
        for opt in ("adam", "sgd")
    ]
    rows = [[f"r{number}", *row[1:]] for number, row in enumerate(rows)]
    head = ["run", "norm", "seed", "test_acc", "val_acc", "train_loss", "lr", "optimizer", "Runtime"]
    write_csv(machine.folder / "runs.csv", head, rows)
    error = machine.run("import", "runs.csv", "--by", "norm", code=2).stderr
    assert "error: several runs of one rung and seed: a, seed 0: r0, r1, r2, r3, r4, r5; " in error
    assert (
        "lr, optimizer differ between them: let validation choose with --choose lr,optimizer --metric-for-choice "
        "val_acc, make other rungs of them, or say which count with --repeat latest, mean or all\n" in error
    )


def test_what_rungs_are_made_of_is_not_chosen(machine: Machine) -> None:
    rows = {norm: [[score, 0.7, lr] for lr in (0.1, 0.2)] for norm, score in (("a", 0.8), ("b", 0.9))}
    write_pair(machine.folder / "runs.csv", "test_acc", "val_acc", "lr", rows=rows)
    choose = ("--by", "norm", "--metric-for-choice", "val_acc", "--choose")
    error = machine.run("import", "runs.csv", *choose, "lr,norm", code=2).stderr
    assert "--choose norm: makes the rungs" in error
    assert not (machine.folder / "runs.toml").exists()
    machine.run("import", "runs.csv", *choose, "lr")
    file = machine.folder / "runs.toml"
    file.write_text(file.read_text().replace('choose = ["lr"]', 'choose = ["lr", "norm"]'))
    error = machine.run("import", "runs.toml", code=2).stderr
    assert (
        "choose: norm is in the condition of rung a, where = \"norm = 'a'\": what is compared cannot be chosen too"
        in error
    )
    assert "leave norm out of choose, or out of the conditions of the rungs" in error


def test_the_latest_by_the_order_of_the_source_is_a_caution(machine: Machine) -> None:
    rows = [[f"r{k}", "ab"[k % 2], k // 4, 0.8 + k / 100] for k in range(8)]
    write_csv(machine.folder / "runs.csv", ["run", "norm", "seed", "test_acc"], rows)
    done = machine.run("import", "runs.csv", "--repeat", "latest", apart=True)
    assert (
        "warning: 8 runs share 4 seeds, of each of which the latest one (the last of the source where times "
        "are not known) counts." in done.stderr
    )
    assert "the latest by the order of the source" in done.stdout


def test_scores_at_unequal_last_steps_are_cautions(machine: Machine) -> None:
    head = ["run", "norm", "seed", "step", "test_acc", "train_loss"]
    rows = [
        [f"{norm}{seed}", norm, seed, step, None if (norm, seed, step) == ("b", 1, 2) else 0.8 + step / 100, 1 / step]
        for norm in "ab"
        for seed in range(3)
        for step in (0.5, 1, 2)
    ]
    rows = [[*row[:3], int(row[3] * 2), *row[4:]] for row in rows]
    write_csv(machine.folder / "runs.csv", head, rows)
    done = machine.run("import", "runs.csv", "--metric", "test_acc", apart=True)
    assert (
        "warning: Runs end, or have their last score, before nine tenths of the steps of their rung, as if they were "
        "stopped early or killed: b 1 of 3 with a median of 4: b1." in done.stderr
    )
    late = [[*row[:4], None if row[1] == "b" and row[3] == 4 else row[4], row[5]] for row in rows]
    write_csv(machine.folder / "late.csv", head, late)
    done = machine.run("import", "late.csv", "--metric", "test_acc", apart=True)
    assert (
        "warning: Runs end, or have their last scores, at unequal steps, by the medians of rungs: a 4, b 2, and more "
        "steps alone may make a rung better." in done.stderr
    )
    assert "unequal budgets" in done.stdout


@pytest.mark.parametrize("crashed", ["missing", "failed"])
def test_of_several_attempts_the_one_with_a_score_counts(machine: Machine, crashed: str) -> None:
    rows = [[f"{norm}{k}", norm, k, "finished", 0.8 + k / 128] for norm in "ab" for k in range(3)]
    rows += [
        ["a2-first", "a", 2, "crashed", None],
        ["b3", "b", 3, "crashed", None],
        ["b3-again", "b", 3, "killed", None],
    ]
    write_csv(machine.folder / "runs.csv", ["run", "norm", "seed", "state", "test_acc"], rows)
    done = machine.run("import", "runs.csv", "--crashed", crashed, apart=True)
    assert "2 runs without a score left out: another run has the same rung and seed" in done.stderr
    scores = {row["rung"]: row["scores"] for row in machine.json("report", "runs")["rows"]}
    assert scores["a"] == [0.8 + k / 128 for k in range(3)]
    diverged = {row["rung"]: row["diverged"] for row in machine.json("report", "runs")["rows"]}
    assert diverged == {"a": 0, "b": int(crashed == "failed")}
    unknown = "chance is not known on this task (import with --chance X, or write chance into [import])"
    assert (unknown in machine.run("report", "runs", "--details").stdout) == (crashed == "failed")


def test_a_file_that_is_no_toml_any_more_says_where(machine: Machine) -> None:
    write_pair(machine.folder / "runs.csv", "test_acc", rows=FRACTIONS)
    machine.run("import", "runs.csv")
    file = machine.folder / "runs.toml"
    file.write_text(file.read_text().replace('metric = "test_acc"', 'metric = "test_acc'))
    for source in ("runs.toml", "runs.csv"):
        error = machine.run("import", source, code=2).stderr
        assert "line 11" in error
        assert "has no [import]" not in error
        assert "is there already" not in error


def test_an_option_that_names_nothing_is_a_mistake_whatever_the_file_says(machine: Machine) -> None:
    write_pair(machine.folder / "runs.csv", "test_acc", rows=FRACTIONS)
    machine.run("import", "runs.csv")
    error = machine.run("import", "runs.csv", "--metric", "test_ac", code=2).stderr
    assert error.startswith("error: --metric test_ac: no run has this metric\n")
    assert "did you mean 'test_acc'?" in error
    error = machine.run("import", "runs.csv", "--seed-column", "sed", code=2).stderr
    assert error.startswith("error: --seed-column sed: no run has this setting\n")
    assert "has seed = seed" in machine.run("import", "runs.csv", "--seed-column", "norm", code=2).stderr


def test_runs_that_lack_per_item_results_are_named(machine: Machine) -> None:
    results = ([1, 1, 1, 0], [1, 0, 1, 0])
    rows: dict[str, list[list[Any]]] = {norm: [[sum(right) / 4, f'"{right}"'] for right in results] for norm in "ab"}
    rows["b"][1][1] = None
    write_pair(machine.folder / "runs.csv", "test_acc", "right", rows=rows)
    done = machine.run("import", "runs.csv", "--items", "right", apart=True)
    assert (
        "warning: 1 run with a score has no per-item results, unlike the others: b1. Verdicts on their rungs use none."
        in done.stderr
    )
    assert "runs without per-item results" in done.stdout


def test_what_no_reader_can_read_is_named(machine: Machine) -> None:
    folder = machine.folder
    write_pair(folder / "runs.csv", "test_acc", rows=FRACTIONS)
    machine.run("import", "runs.csv")
    os.mkfifo(folder / "pipe.csv")
    (folder / "empty.parquet").touch()
    (folder / "runs.csv.gz").write_bytes(gzip.compress((folder / "runs.csv").read_bytes()))
    with closing(sqlite3.connect(folder / "mlflow.db")) as database:
        database.executescript("create table a (b); create table c (d);")
    (folder / "cut.db").write_bytes((folder / "mlflow.db").read_bytes()[:5000])
    stream = "is no file or folder, but a stream, and sources are read more than once"
    expected = {
        "pipe.csv": (stream, "write it to a file first, and import that"),
        "/dev/stdin": (stream, "write it to a file first, and import that"),
        "-": (stream, "write it to a file first, and import that"),
        "empty.parquet": ("is an empty file", "export the runs again"),
        "runs.csv.gz": ("is compressed", "unpack it with gunzip, and import what is in it"),
        machine.ledger.name: (
            "is a ledger of lrurun, whose runs need no import", f"lrurun ledger merge {machine.ledger.name}"
        ),
        "mlflow.db": (
            "is an SQLite file of no tracker that is known",
            "lrurun import reads those of mlflow, optuna, trackio and aim",
        ),
    }  # fmt: skip
    for source, (problem, hint) in expected.items():
        done = machine.run("import", source, "--name", "other", code=2)
        assert done.stderr == f"error: {source}: {problem}\nhint: {hint}\n"
    error = machine.run("import", "cut.db", code=2).stderr
    assert "cut.db: is an SQLite file that cannot be read: database disk image is malformed" in error


def test_the_best_of_test_is_said_once(machine: Machine) -> None:
    every = [(norm, k, step) for norm in "ab" for k in range(3) for step in (1, 2)]
    rows = [[f"{norm}{k}", norm, k, step, 0.8 + k / 100 + step / 200] for norm, k, step in every]
    write_csv(machine.folder / "runs.csv", ["run", "norm", "seed", "step", "test_acc"], rows)
    report = machine.run("import", "runs.csv", "--protocol", "best-of-test").stdout
    assert "each run counts with its best test score, which is too high" in report
    assert "best of test" not in report


def test_a_source_is_named_from_where_one_is(machine: Machine) -> None:
    write_pair(machine.folder / "data" / "runs.csv", "test_acc", rows=FRACTIONS)
    place = ("--ledger", "results/ledger.db")
    (machine.folder / "results").mkdir()
    assert "data/runs.csv: CSV, 4 runs\n" in machine.run("import", "data/runs.csv", *place).stderr
    assert machine.run("import", "results/runs.toml", *place).stderr.startswith("data/runs.csv: CSV, 4 runs\n")

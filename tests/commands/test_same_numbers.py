"""The numbers of `report --json` are those of the browser view, of data frames and of every export, parsed back."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import statistics
from pathlib import Path
from typing import Any

import pandas
import pytest

import lrurun
from tests.harness.browsing import View, closed, words
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.ledger.test_exports import lines

__all__ = ["closed"]  # a fixture
SCORES = {
    "tanh-rnn": [1 / 3, 0.37, 0.29],
    "linear-rnn": [0.61, 2 / 3, 0.7123456789012345],
    "gamma-norm": [0.91, 0.93, 20 / 21],
    "small-phase": [0.5],
}
RESULTS = ("test/accuracy", "machine/steps_per_second")
REPORT = ("report", "sDigits", "--profile", "smoke")
Results = dict[str, tuple[float, float]]
"""Run -> the values of RESULTS."""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "here")
    for number, (rung, scores) in enumerate(SCORES.items(), 3):
        more = {"machine/steps_per_second": 100 / number}
        fill(machine.ledger, "sDigits", {rung: scores}, profile="smoke", more=more)
    return machine


def check(rows: list[dict[str, Any]], found: Results) -> None:
    """The rows of the report are what these results of runs say."""
    trained = {row["rung"]: row for row in rows if row["n"]}
    assert sorted(found) == sorted(run for row in trained.values() for run in row["runs"])
    for rung, row in trained.items():
        scores, speeds = zip(*(found[run] for run in row["runs"]), strict=True)
        assert list(scores) == SCORES[rung], "bit for bit"
        assert statistics.fmean(scores) == row["mean"]
        assert set(speeds) == {row["steps_per_second"]}
        if row["n"] > 1:
            assert statistics.stdev(scores) / row["n"] ** 0.5 == pytest.approx(row["stderr"], rel=1e-13)
        if row["comparison"] is not None and row["comparison"]["difference"] is not None:
            base = [found[run][0] for run in trained[row["on"]]["runs"]]
            difference = row["comparison"]["difference"]
            assert statistics.fmean(scores) - statistics.fmean(base) == pytest.approx(difference, rel=1e-13)


def test_in_data_frames(machine: Machine) -> None:
    rows = machine.json(*REPORT)["rows"]
    with lrurun.open(machine.ledger) as opened:
        report, runs = opened.report("sDigits", profile="smoke"), opened.runs()
    comparisons = [row["comparison"] or {} for row in rows]
    rows = [
        row | {f"comparison.{name}": one.get(name) for name in comparisons[1]}
        for row, one in zip(rows, comparisons, strict=True)
    ]
    numbers = [name for name, value in rows[1].items() if type(value) in (int, float)]
    compared = ("difference", "low", "high", "improvement", "p_adjusted")
    assert {"mean", "stderr", "n", *(f"comparison.{name}" for name in compared)} <= set(numbers)
    assert "comparison" not in report.columns()
    for frame in (report.to_pandas(), report.to_polars().to_pandas()):
        for name in numbers:
            values = [None if pandas.isna(value) else value for value in frame[name]]
            assert values == [row[name] for row in rows], name
    for frame in (runs.to_pandas(), runs.to_polars().to_pandas()):
        check(rows, {run: tuple(values) for run, *values in frame[["id", *RESULTS]].itertuples(index=False)})


def test_on_the_page(machine: Machine) -> None:
    """As exactly as the page prints them."""
    rows = machine.json(*REPORT)["rows"]
    view = View(machine.ledger, machine.runs)
    [address] = re.findall(r'<a href="(/ladders/\w+)">', view.page("/"))
    page = view.page(address)
    picture, numbers = (
        {
            words(heading.partition("<br>")[0]): [
                re.findall(r"[-+]?\d+(?:\.\d+)?", words(cell).replace(",", "").replace("−", "-")) for cell in cells
            ]
            for row in re.findall(r"<tr>.*?</tr>", part, re.S)
            for heading, *cells in [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)]
        }
        for part in re.findall(r'<table class="(?:seeds|numbers)">(.*?)</table>', page, re.S)
    )
    improvement = ("improvement", "improvement_low", "improvement_high")
    for row in rows:
        score, difference, p, better, parameters, speed, _ = numbers[row["rung"]]
        compared = row["comparison"] or {}
        _, mean, change = picture[row["rung"]]
        assert mean == [f"{100 * row[name]:.1f}" for name in ("mean", "stderr") if row[name] is not None]
        assert change == [f"{100 * compared[name]:+.1f}" for name in ("difference",) if compared.get(name) is not None]
        expected = [
            *(100 * row[name] for name in ("mean", "stderr") if row[name] is not None),
            row["n"],
            *(100 * compared[name] for name in ("difference", "low", "high") if compared.get(name) is not None),
            *([compared["p_adjusted"]] if compared.get("p_adjusted") is not None else []),
            *(100 * compared[name] for name in improvement if compared.get(name) is not None),
            *(row[name] for name in ("parameters", "steps_per_second") if row[name] is not None),
        ]
        printed = [*score, *difference, *p, *better, *parameters, *speed]
        assert len(printed) == len(expected), row["rung"]
        for text, value in zip(printed, expected, strict=True):
            assert f"{value:.{len(text.partition('.')[2])}f}" == text.lstrip("+"), (row["rung"], text)
    runs = [run for row in rows for run in row["runs"]]
    results = {
        run: dict(re.findall(r'<th scope="row">(\S+)</th><td class="right">(\S+)</td>', view.page(f"/runs/{run}")))
        for run in runs
    }
    for row in rows:
        for run, score in zip(row["runs"], SCORES.get(row["rung"], ()), strict=True):
            assert [results[run][name] for name in RESULTS] == [f"{score:.6g}", f"{row['steps_per_second']:.6g}"]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["parquet", "csv", "mlflow"])  # TensorBoard rounds to 32 bits
def test_in_exports(format: str, machine: Machine, tmp_path: Path) -> None:
    target = tmp_path / "out"
    machine.run("ledger", "export", "--to", format, str(target), apart=True)
    found: Results = {}
    if format == "parquet":
        frame = pandas.read_parquet(target / "runs.parquet")
        found = {run: tuple(values) for run, *values in frame[["id", *RESULTS]].itertuples(index=False)}
    elif format == "csv":
        found = {row["id"]: tuple(float(row[name]) for name in RESULTS) for row in lines(target / "runs.csv")}
    else:
        with contextlib.closing(sqlite3.connect(target / "mlflow.db")) as database:
            runs = dict(database.execute("SELECT run_uuid, value FROM tags WHERE key = 'lrurun.id'"))
            values = {
                (run, key): value for run, key, value in database.execute("SELECT run_uuid, key, value FROM metrics")
            }
        found = {name: tuple(values[run, f"result/{key}"] for key in RESULTS) for run, name in runs.items()}
    check(machine.json(*REPORT)["rows"], found)

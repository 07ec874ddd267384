"""What commands print at 80 and 120 columns, and that data frames, exports and pages have the numbers of reports."""

from __future__ import annotations

import contextlib
import csv
import re
import shlex
import sqlite3
import statistics
from pathlib import Path
from typing import Any

import pandas
import pytest

import lrurun
from lrurun.config.settings import parse_sets
from lrurun.ledger.ledger import Ledger
from tests.cli.test_help import commands
from tests.harness.browsing import View, closed, words
from tests.harness.machine import Machine
from tests.harness.plug_ins import MAJORITY, RECIPE, forgotten
from tests.harness.results import fill

__all__ = ["closed", "forgotten"]  # fixtures

TASK = "TheMajorityOfNineBitsInASequenceOfNineBits"
RUNGS = ["a-first-rung-whose-name-is-longer-than-forty-characters", "another-rung-with-a-name-as-long-as-the-first-one"]
TAG = "a-tag-whose-name-is-longer-than-forty-characters"
SETTING = "a.setting.whose.name.is.longer.than.forty.characters"
SETS = ["optim.lr=0.0123456789", "optim.weight_decay=0.0123456789"]
NAME = "a-ladder-whose-name-is-longer-than-forty-characters"
LADDER = f"""
name = "{NAME}"
title = "a dense recurrence, and a diagonal one that is described in a title of more than a line"
source = "ours"

[[rung]]
name = "{RUNGS[0]}"
title = "a dense recurrence"
change = {{ "model.recurrence.kind" = "dense" }}

[[rung]]
name = "{RUNGS[1]}"
title = "a diagonal recurrence"
change = {{ "model.recurrence.kind" = "diagonal" }}

[[claim]]
text = "A diagonal recurrence is better than a dense one, even where the sequences are as short as these are"
kind = "better"
rung = "{RUNGS[1]}"
than = "{RUNGS[0]}"
source = "ours, and described at some length in a place that has a long name"
"""
OWN = f"{TASK} --ladder {NAME} {' '.join(f'--set {text}' for text in SETS)}"

CALLS = {
    "ladder": [f"ladder {OWN} --dry-run", "ladder sDigits --profile smoke --tune --dry-run"],
    "resume": ["resume"],
    "plan": [f"plan {OWN}", "plan sDigits --profile smoke --tune", "plan sDigits --sweep optim.lr=0.001,0.002"],
    "study": ["study memory --dry-run"],
    "status": ["status", "status --details"],
    "runs": [
        "runs",
        "runs --by rung,optim.lr",
        "runs --columns id,rung,tag,optim.lr,created_at,model.recurrence.kind",
    ],
    "show": ["show", "show RUN", "show RUN --log"],
    "report": [
        "report",
        "report --details",
        "report --instance sDigits-lr0.01235-weight_decay0.01235 --details",
        f"report --all {' '.join(f'--set {text}' for text in SETS)}",
    ],
    "claims": [f"claims --ladder {NAME}", f"claims --ladder {NAME} --details"],
    "compare": ["compare RUN OTHER"],
    "query": [
        "query --views",
        "query 'select * from results'",
        "query 'select rung, instance from results'",
    ],
    "mark": [f"mark RUN --tag {TAG} --note 'the fan was loud' --exclude '{'a broken disk, ' * 9}'"],
    "data remove": ["data remove sDigits --dry-run"],
    "data info": [f"data info {TASK}", "data info sDigits", "data info ListOps"],
    "ledger path": ["ledger path"],
    "ledger check": ["ledger check"],
    "ledger migrate": ["ledger migrate"],
    "ledger backup": ["ledger backup"],
    "ledger merge": ["ledger merge other.db"],
    "ledger rename": ["ledger rename sDigits-lr0.01235-weight_decay0.01235 another"],
    "ledger hide": ["ledger hide another", "ledger hide another --undo"],
    "ledger forget": ["ledger forget another --why 'too many digits' --dry-run"],
    "ledger forgotten": ["ledger forgotten"],
    "ledger export": ["ledger export --to csv exported"],
    "ledger gc": ["ledger gc --dry-run"],
    "import": [f"import elsewhere.csv --metric test/accuracy --by {SETTING}"],
    "doctor": ["doctor"],
    "list": ["list", "list --details", "list studies bridge"],
    "new": ["new task Another"],
    "check": ["check recipe sDigits", f"check ladder {NAME}"],
}
"""Command -> what is tried of it. RUN and OTHER are runs of the ledger."""
SHOWN = [
    "status",
    "status --details",
    "runs",
    "runs --by rung,optim.lr",
    "compare RUN OTHER",
    "report",
    f"report {OWN} --detect 2 --details",
    "report --instance sDigits-lr0.01235-weight_decay0.01235 --speed",
    f"claims --ladder {NAME} --details",
    f"plan {OWN}",
    "query 'select rung, instance, test_accuracy from results'",
    "list studies bridge",
]
NO_TABLE = {
    "verify": "trains a run; prints sentences alone",
    "plot": "writes a file",
    "ledger rebuild": "reads a runs folder; prints a sentence",
    "ui": "a server, which prints its address",
    "bench": "measures for minutes; its table is an ordinary one",
    "data prepare": "prepares in another process; prints sentences alone",
    "data check": "reads what was prepared; prints sentences alone",
    "data import": "reads files of users; prints sentences alone",
}
"""Command -> why it is not tried."""


def test_every_command_is_tried_or_has_a_reason_not_to_be() -> None:
    assert sorted(map(" ".join, commands())) == sorted([*CALLS, *NO_TABLE])


@pytest.fixture
def long_names(here: Machine) -> tuple[str, str]:
    """A ledger with long names, and another one; the ids of two runs."""
    folder = here.folder
    (folder / "recipes").mkdir()
    (folder / "own.py").write_text(MAJORITY.replace('"Majority"', f'"{TASK}"'))
    (folder / "recipes" / f"{TASK}.toml").write_text(RECIPE.replace('"Majority"', f'"{TASK}"'))
    (folder / "ablations").mkdir()
    (folder / "ablations" / f"{NAME}.toml").write_text(LADDER.replace('"ours"\n', '"ours"\nload = ["../own.py"]\n', 1))
    fill(here.ledger, "sDigits", {"tanh-rnn": [0.5, 0.6], "stable-exponential": [0.9, None]}, sets=parse_sets(SETS))
    scores = {RUNGS[0]: [0.5, 0.6, 0.7], RUNGS[1]: [0.9, 0.8, None]}
    fill(here.ledger, TASK, scores, ladder=NAME, sets=parse_sets(SETS))
    fill(folder / "other.db", TASK, scores, ladder=NAME, sets=parse_sets(SETS))
    with Ledger.open(here.ledger) as ledger:
        one, other, *_ = (run.id for run in ledger.runs() if run.task == TASK)
    rows = [f"{rung},{seed},0.{seed}5\n" for rung in RUNGS for seed in range(3)]
    (folder / "elsewhere.csv").write_text(f"{SETTING},seed,test/accuracy\n{''.join(rows)}")
    (here.runs / one / "1").mkdir(parents=True)
    (here.runs / one / "1" / "log.txt").write_text("it began\n")
    return one, other


def words_of(call: str, runs: tuple[str, str]) -> list[str]:
    return [{"RUN": runs[0], "OTHER": runs[1]}.get(word, word) for word in shlex.split(call)]


@pytest.mark.parametrize("width", [80, 120])
def test_tables_at_widths(here: Machine, long_names: tuple[str, str], width: int, golden) -> None:
    texts = [f"$ lrurun {call}\n{here.shown(*words_of(call, long_names), width=width)}" for call in SHOWN]
    text = re.sub(r"\b[0-9a-f]{12}\b", "0123456789ab", "\n".join(texts))
    text = re.sub(
        r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\dZ?)?", lambda found: "2026-01-01T00:00:00Z"[: len(found[0])], text
    )
    golden(f"tables-{width}.txt", text)


@pytest.mark.slow
def test_no_line_of_other_commands_is_longer_than_the_terminal_is_wide(
    here: Machine, long_names: tuple[str, str]
) -> None:
    for call in (call for calls in CALLS.values() for call in calls if call not in SHOWN):
        lines = here.shown(*words_of(call, long_names), width=80).splitlines()
        # paths and names longer than a line are copied whole
        long = [line for line in lines if len(line) > 80 and " " in line.strip()]
        assert [line for line in long if "/" not in line.split()[-1]] == [], call


# The same numbers everywhere


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
def scored(machine: Machine) -> Machine:
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


def test_only_a_terminal_without_unicode_gets_ascii(scored: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lrurun.console.is_ascii", lambda: True)
    assert scored.run(*REPORT).stdout.isascii()
    scored.run(*REPORT, "--out", "report.txt")
    assert "±" in (scored.folder / "report.txt").read_text()


def test_in_data_frames(scored: Machine) -> None:
    rows = scored.json(*REPORT)["rows"]
    with lrurun.open(scored.ledger) as opened:
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


def test_on_the_page(scored: Machine) -> None:
    """As exactly as the page prints them."""
    rows = scored.json(*REPORT)["rows"]
    view = View(scored.ledger, scored.runs)
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
        score, difference, p, better, items, parameters, speed = numbers[row["rung"]]
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
            *([100 * compared["item_share"]] if compared.get("item_share") is not None else []),
            *(row[name] for name in ("parameters", "steps_per_second") if row[name] is not None),
        ]
        printed = [*score, *difference, *p, *better, *items, *parameters, *speed]
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


@pytest.mark.parametrize("format", ["parquet", "csv", pytest.param("mlflow", marks=pytest.mark.slow)])
def test_in_exports(format: str, scored: Machine, tmp_path: Path) -> None:
    target = tmp_path / "out"
    scored.run("ledger", "export", "--to", format, str(target), apart=format == "mlflow")
    found: Results = {}
    if format == "parquet":
        frame = pandas.read_parquet(target / "runs.parquet")
        found = {run: tuple(values) for run, *values in frame[["id", *RESULTS]].itertuples(index=False)}
    elif format == "csv":
        found = {
            row["id"]: tuple(float(row[name]) for name in RESULTS)
            for row in csv.DictReader((target / "runs.csv").read_text().splitlines())
        }
    else:
        with contextlib.closing(sqlite3.connect(target / "mlflow.db")) as database:
            runs = dict(database.execute("SELECT run_uuid, value FROM tags WHERE key = 'lrurun.id'"))
            values = {
                (run, key): value for run, key, value in database.execute("SELECT run_uuid, key, value FROM metrics")
            }
        found = {name: tuple(values[run, f"result/{key}"] for key in RESULTS) for run, name in runs.items()}
    check(scored.json(*REPORT)["rows"], found)

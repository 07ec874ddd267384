"""Tables for a paper: what is in bold and marked, chosen columns, words, captions; from whole command outputs."""

from __future__ import annotations

import csv
import io
import json
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from lrurun.data.metric import Accuracy
from lrurun.judging import claims, ranks, sequential
from lrurun.judging.samples import Scoring
from lrurun.report.tables import all_tasks, paper_tables
from tests.harness.machine import Machine
from tests.harness.reports import MINI, build, make_run, make_rung, rung_runs
from tests.harness.results import fill
from tests.harness.shared import once

SMOKE = ("sDigits", "--profile", "smoke")
LOW = [0.300 + 0.001 * k for k in range(12)]
HIGH = [score + 0.4 for score in LOW]
SCORES = {
    "tanh-rnn": LOW,
    "linear-rnn": HIGH,
    "diagonal": [score + 0.0005 for score in HIGH],
    "exponential": [score - 0.2 for score in HIGH],
    "stable-exponential": [*HIGH[:11], None],
}
"""The first one is the worst; the second, third and last are alike; the fourth is worse than they are."""


@pytest.fixture(scope="module")
def filled() -> Machine:
    def make(folder: Path) -> None:
        fill(Machine(folder).ledger, "sDigits", SCORES, profile="smoke")
        fill(Machine(folder).ledger, "npDigits", dict(reversed(SCORES.items())), profile="smoke")

    return Machine(once("paper tables", make))


def tabular(text: str) -> list[list[str]]:
    """The cells of the rows of the first table, its heading first."""
    body = text.split(r"\toprule")[1].split(r"\bottomrule")[0]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    return [[cell.strip() for cell in line.removesuffix(r"\\").split(" & ")] for line in lines]


def caption(text: str) -> str:
    [line] = [line for line in text.splitlines() if line.startswith(r"\caption{")]
    return line.removeprefix(r"\caption{").removesuffix("}")


# Bold and marks


def test_bold_are_the_rungs_that_no_other_is_better_than(filled: Machine) -> None:
    text = filled.run("report", *SMOKE, "--plain").stdout
    heading, *rows = tabular(text)
    assert heading == ["Variant", r"Accuracy (\%)", "Change", ""]
    bold = {row[0] for row in rows if row[1].startswith(r"\textbf{")}
    assert bold == {"linear-rnn", "diagonal", "stable-exponential"}
    assert "corrected over 10 pairs" in caption(text)  # of the five rungs with results
    marks = {row[0]: row[3] for row in rows}
    report = json.loads(filled.run("report", *SMOKE, "--json").stdout)
    arrows = {"helps": r"$\uparrow$", "hurts": r"$\downarrow$"}
    run = [row for row in report["rows"] if row["mean"] is not None]
    assert len(run) < len(report["rows"])  # a reader of a paper does not miss what was not run
    assert marks == {row["rung"]: arrows.get(row["verdict"], "") for row in run}
    assert set(marks.values()) == {"", *arrows.values()}
    assert rows[1][1:3] == [r"\textbf{70.55 $\pm$ 0.10}", "+40.00"]
    # what is not in the means is in the caption
    assert "Not in the means: stable-exponential (1 diverged)" in caption(text)


@pytest.mark.parametrize("seed", range(6))
def test_every_pair_is_tested_and_all_are_corrected_together(seed: int) -> None:
    """Against Holm's method by its definition: the k-th smallest p of m is compared with 5 % / (m - k + 1)."""
    rng = np.random.default_rng(seed)
    names = [f"rung-{k}" for k in range(7)]
    found = {name: tuple(rng.normal(0.5 + 0.05 * k, 0.05, 12).round(4).tolist()) for k, name in enumerate(names)}
    p = {both: ranks.p_values(found[both[0]], found[both[1]]).two_sided for both in combinations(names, 2)}
    beaten = set()
    for k, (one, other) in enumerate(sorted(p, key=p.__getitem__)):
        if p[one, other] > 0.05 / (len(p) - k):
            break
        better = ranks.p_values(found[one], found[other])
        beaten.add(other if better.above < better.below else one)
    runs = {name: rung_runs(name, scores) for name, scores in found.items()}
    unbeaten = claims.unbeaten(runs, scoring=Scoring(metric=Accuracy()))
    assert 0 < len(beaten) < len(names)
    assert set(unbeaten.rungs) == {*names} - beaten
    assert (unbeaten.pairs, unbeaten.is_tested, unbeaten.can_decide) == (21, True, True)


def test_rungs_of_one_seed_and_too_many_pairs() -> None:
    scoring = Scoring(metric=Accuracy())
    alone = claims.unbeaten({name: rung_runs(name, [0.5]) for name in "abc"}, scoring=scoring)
    assert not alone.is_tested
    assert alone.rungs == ("a", "b", "c")
    # twelve seeds have no p below 2^-11: with 27 rungs, none of 351 pairs can be decided
    apart = {f"r{k}": rung_runs(f"r{k}", [0.03 * k + 0.001 * seed for seed in range(12)]) for k in range(27)}
    many = claims.unbeaten(apart, scoring=scoring)
    assert not many.can_decide
    assert len(many.rungs) == 27
    few = claims.unbeaten({name: apart[name] for name in list(apart)[:5]}, scoring=scoring)
    assert few.rungs == ("r4",)
    # a rung without results is none of them
    assert claims.unbeaten(apart | {"none": rung_runs("none", [])}, scoring=scoring).pairs == 351


def test_of_a_sequential_design_pairs_have_the_seeds_of_a_look() -> None:
    """The last eight seeds of a rung do not count beside one that has only twelve, and the level is that of a look."""
    design = sequential.Design(max_seeds=20, looks=sequential.looks(20), settings={}, questions=(), finished_before=0)
    progress = sequential.DesignProgress(design=design)
    first = [0.5 + 0.01 * k for k in range(12)]
    runs = {"a": rung_runs("a", [*first, *[0.0] * 8]), "b": rung_runs("b", [score - 0.3 for score in first])}
    scoring = Scoring(metric=Accuracy())
    assert claims.unbeaten(runs, scoring=scoring, progress=progress).rungs == ("a",)
    both = {"a": runs["a"], "b": rung_runs("b", [*(score - 0.3 for score in first), *[0.6] * 8])}
    assert claims.unbeaten(both, scoring=scoring, progress=progress).rungs == ("a", "b")
    # p = 2^-11 of one pair decides at half of the level for 51 pairs, and at the whole for 102
    halves = {f"r{k}": rung_runs(f"r{k}", [0.05 * k + 0.001 * seed for seed in range(12)]) for k in range(12)}
    assert not claims.unbeaten(halves, scoring=scoring, progress=progress).can_decide  # 66 pairs
    assert claims.unbeaten(halves, scoring=scoring).rungs == ("r11",)


def test_a_map_has_the_tasks_with_bold_and_marks_of_each(filled: Machine) -> None:
    text = filled.run("report", "--all", "--profile", "smoke", "--plain").stdout
    heading, *rows = tabular(text)
    assert heading == ["Variant", "sDigits", "npDigits"]
    cells = {row[0]: row[1:] for row in rows}
    assert cells["tanh-rnn"][0] == r"30.6 $\pm$ 0.1"
    assert cells["linear-rnn"][0] == r"\textbf{70.5 $\pm$ 0.1\rlap{$^{\uparrow}$}}"
    assert cells["exponential"][0] == r"50.6 $\pm$ 0.1\rlap{$^{\downarrow}$}"
    assert cells["gamma-norm"] == ["--", "--"]
    assert "over 10 pairs" in caption(text)


def test_a_run_of_two_equal_rungs_is_lost_once() -> None:
    ladder = structs.replace(MINI, rungs=(make_rung("a"), make_rung("b"), make_rung("c")), claims=())
    runs = [make_run(f"a{seed}", "a", seed, score) for seed, score in enumerate(LOW)]
    both = [make_run(f"b{seed}", "b", seed, score) for seed, score in enumerate(HIGH[:11])]
    both.append(make_run("b11", "b", 11, None, state="diverged"))
    shared = [
        structs.replace(run, memberships=[*run.memberships, structs.replace(run.memberships[0], rung="c")])
        for run in both
    ]
    report = all_tasks.build(ladder, [build(ladder, [*runs, *shared], same_as_base={"c"})])
    assert [row.cells[0].diverged for row in report.rows] == [0, 1, 1]
    assert "Means leave out 1 seed without a score." in paper_tables.task_map(report).legend


# Words


@pytest.mark.parametrize(
    "words", [(*SMOKE,), (*SMOKE, "--tables", "claims"), ("--all", "--profile", "smoke"), (*SMOKE, "--width", "page")]
)
def test_plain_tables_have_no_words_of_the_tool(filled: Machine, words: tuple[str, ...]) -> None:
    text = filled.run("report", *words, "--plain", "--ladder", "lru").stdout
    assert text.isascii()
    assert not re.search(
        r"lrurun|instance|--[a-z]|\brungs?\b|ladder|ledger|profile|note:", text.partition(r"\label")[0]
    )
    assert not re.search(r"lrurun|instance|--[a-z]|ledger", text.partition(r"\vspace")[2])
    star = "*" * ("page" in words)
    assert text.count(rf"\begin{{table{star}}}") == text.count(rf"\end{{table{star}}}") == 1
    assert "resizebox" not in text


def test_caption_and_label_are_the_users(filled: Machine) -> None:
    words = ("--caption", r"On $\lambda$, see \cite{a}, 5\% é", "--label", "tab:mine")
    plain = filled.run("report", *SMOKE, "--plain", *words).stdout
    assert caption(plain).startswith(r"On $\lambda$, see \cite{a}, 5\% \'{e}. Test accuracy in per cent: mean")
    assert r"\label{tab:mine}" in plain
    whole = filled.run("report", *SMOKE, "--format", "latex", *words).stdout
    assert caption(whole) == r"On $\lambda$, see \cite{a}, 5\% \'{e}."
    assert r"\label{tab:mine}" in whole
    of_claims = filled.run("claims", "npDigits", "--plain", "--label", "tab:claims").stdout
    assert r"\label{tab:claims}" in of_claims


def test_a_file_says_what_a_table_has_no_room_for(filled: Machine, tmp_path: Path) -> None:
    done = filled.run("report", *SMOKE, "--plain", "--out", str(tmp_path / "a.tex"))
    assert done.stderr.startswith(f"wrote {tmp_path / 'a.tex'}\nCaution: ")
    assert (tmp_path / "a.tex").read_text() == filled.run("report", *SMOKE, "--plain").stdout


def test_claims_have_their_verdicts(filled: Machine) -> None:
    report = json.loads(filled.run("report", *SMOKE, "--ladder", "lru", "--json").stdout)
    expected = [[claim["text"], claim["verdict"]] for claim in report["claims"]]
    for words in (("--plain",), ("--format", "latex")):
        text = filled.run("report", *SMOKE, "--ladder", "lru", "--tables", "claims", *words).stdout
        rows = tabular(text)[1:]
        found = [[row[0].removeprefix(r"\raggedright "), row[3].split(" (")[0]] for row in rows]
        assert found == expected
        assert {verdict for _, verdict in found} >= {"supported", "not run"}
    both = filled.run("report", *SMOKE, "--plain", "--tables", "ablation,claims").stdout
    assert both.count(r"\begin{table}") == 2


# Columns


def test_csv_has_the_chosen_columns_as_it_has_all(filled: Machine) -> None:
    for words in (SMOKE, ("--all", "--profile", "smoke"), (*SMOKE, "--speed")):
        every = list(csv.DictReader(io.StringIO(filled.run("report", *words, "--format", "csv").stdout)))
        names = [list(every[0])[k] for k in (5, 3, 0, 7)]
        some = filled.run("report", *words, "--format", "csv", "--columns", ",".join(names)).stdout
        assert list(csv.reader(io.StringIO(some))) == [names, *([row[name] for name in names] for row in every)]


def test_tables_have_the_chosen_columns(filled: Machine) -> None:
    names = "rung,n,mean,difference,low,p_adjusted,parameters"
    rows = json.loads(filled.run("report", *SMOKE, "--json").stdout)["rows"]
    numbers = [[row["rung"], str(row["n"]), f"{100 * row['mean']:.2f} ± {100 * row['stderr']:.2f}"] for row in rows[:5]]
    markdown = filled.run("report", *SMOKE, "--format", "md", "--columns", names).stdout
    lines = [line.strip("| ").split(" | ") for line in markdown.splitlines() if line.startswith("|")]
    assert lines[0] == names.split(",")
    assert [line[:3] for line in lines[2:7]] == numbers
    compared = rows[1]["comparison"]
    assert lines[3][3:6] == ["+40.00", f"{100 * compared['low']:+.2f}", f"{compared['p_adjusted']:.3f}"]
    printed = filled.run("report", *SMOKE, "--columns", names).stdout
    assert all(number in printed for row in numbers for number in row)
    plain = tabular(filled.run("report", *SMOKE, "--plain", "--columns", "rung,mean,stderr,verdict").stdout)
    assert plain[0] == ["Variant", r"Accuracy (\%)", "Error", ""]
    assert plain[2] == ["linear-rnn", r"\textbf{70.55}", "0.10", r"$\uparrow$"]


# Refusals


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--columns", "rung,men"), "error: --columns: unknown column 'men'\nhint: did you mean 'mean'?"),
        (("--columns", ","), "error: --columns: expected names of columns, found none\nhint: as in --columns"),
        (("--columns", "rung", "--json"), "error: --json and --columns exclude each other\nhint: leave"),
        (("--columns", "rung", "--format", "html"), "error: --columns and --format html exclude each other"),
        (("--plain", "--format", "md"), "error: --plain: belongs to --format latex\nhint: add"),
        (("--caption", "a"), "error: --caption: belongs to --format latex\nhint: add"),
        (("--plain", "--caption", "5 %"), "error: --caption: a bare % hides the rest of the line"),
        (("--plain", "--caption", "a {b"), "error: --caption: unequal braces"),
        (("--plain", "--label", "a b"), "error: --label: expected letters, digits"),
        (("--plain", "--label", "a", "--tables", "ablation,claims"), "error: --label: is of one table"),
        (("--plain", "--tables", "clams"), "error: --tables: expected some of ablation, claims, map, found"),
        (("--plain", "--tables", "map"), "error: --tables map: is of all tasks, found one\nhint: lrurun report --all"),
        (("--plain", "--speed"), "error: --plain: is for the scores of a ladder"),
        (("--plain", "--table-only", "--label", "a"), "error: --label and --table-only exclude each other"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(filled: Machine, words: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "a.tex")) if words[0] == "--plain" and "--format" not in words else ()
    done = filled.run("report", *SMOKE, *words, *out, code=2)
    assert done.stdout == ""
    assert done.stderr.startswith(expected), done.stderr
    assert not list(tmp_path.iterdir())


def test_claims_and_maps_refuse_what_they_have_not(filled: Machine) -> None:
    of_map = ("report", "--all", "--profile", "smoke", "--plain")
    assert "--tables claims: is of one task" in filled.run(*of_map, "--tables", "claims", code=2).stderr
    assert "--columns: a map of tasks has no" in filled.run(*of_map, "--columns", "rung", code=2).stderr
    assert "--plain and --page exclude" in filled.run("claims", "--plain", "--page", "a.md", code=2).stderr
    assert "--out: belongs to --format latex" in filled.run("claims", "--out", "a.tex", code=2).stderr

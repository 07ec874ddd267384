"""`report --by K --choose`: values are chosen on validation, and rungs compared by seeds that did not choose."""

from __future__ import annotations

import csv
import io
import itertools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from lrurun.report.figures import figure_files
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.shared import once

FAST = ("sDigits", "--profile", "smoke")
RATES = (0.001, 0.002, 0.004)
RUNGS = ("ring-init", "gamma-norm", "small-phase")
PART = tuple(word for rung in RUNGS for word in ("--rung", rung))
BY = ("report", *FAST, *PART, "--by", "optim.lr")
CHOOSE = (*BY, "--choose")
ITEMS = 300
Scores = dict[str, list[float]]


def drawn(rate: float, seeds: Sequence[int]) -> tuple[Scores, Scores]:
    """Validation and test scores of the rungs with a rate: each has a best rate of its own."""
    best = {"ring-init": 0.002, "gamma-norm": 0.004, "small-phase": 0.001}
    validation: Scores = {}
    test: Scores = {}
    for k, rung in enumerate(RUNGS):
        draw = np.random.default_rng([k, round(1e6 * rate)])
        # all seeds are drawn, so that a seed has its scores whichever are asked for
        level = 0.45 + 0.06 * k - 0.1 * (rate != best[rung])
        of_validation = np.round(ITEMS * draw.normal(level, 0.03, 40)) / ITEMS
        of_test = np.round(ITEMS * draw.normal(level, 0.03, 40)) / ITEMS
        validation[rung] = [float(of_validation[seed]) for seed in seeds]
        test[rung] = [float(of_test[seed]) for seed in seeds]
    return validation, test


def train(machine: Machine, rate: float, seeds: Sequence[int], rungs: Sequence[str] = RUNGS) -> None:
    validation, test = drawn(rate, seeds)
    fill(
        machine.ledger,
        "sDigits",
        {rung: test[rung] for rung in rungs},
        profile="smoke",
        sets={"optim.lr": rate},
        first=seeds[0],
        validation={rung: validation[rung] for rung in rungs},
    )


def chosen_by_hand(seeds: Sequence[int]) -> dict[str, float]:
    means = {(rung, rate): np.mean(drawn(rate, seeds)[0][rung]) for rung in RUNGS for rate in RATES}
    return {rung: max(RATES, key=lambda rate, rung=rung: means[rung, rate]) for rung in RUNGS}


def holm_by_hand(p_values: Sequence[float]) -> list[float]:
    """The largest of the products up to a hypothesis, the smallest p first."""
    order = np.argsort(p_values)
    products = [(len(p_values) - k) * p_values[at] for k, at in enumerate(order)]
    adjusted = np.minimum(np.maximum.accumulate(products), 1.0)
    return [float(adjusted[list(order).index(k)]) for k in range(len(p_values))]


def _fill(folder: Path) -> None:
    """Three seeds of each rate, and twelve more with those that are chosen."""
    machine = Machine(folder)
    for rate in RATES:
        train(machine, rate, range(3))
    chosen = chosen_by_hand(range(3))
    assert len(set(chosen.values())) == 3
    for rung, rate in chosen.items():
        train(machine, rate, range(3, 15), [rung])


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Not changed."""
    return Machine(once("chosen", _fill)).copy(tmp_path_factory.mktemp("chosen") / "here")


def test_what_is_chosen_and_judged_is_what_hands_choose_and_judge(swept: Machine) -> None:
    report = swept.json(*CHOOSE)
    chosen = chosen_by_hand(range(3))
    assert report["by"] == ["optim.lr"]
    assert {one["rung"]: one["values"]["optim.lr"] for one in report["choice"]} == chosen
    for one in report["choice"]:
        assert (one["among"], one["seeds"], one["judged"]) == (3, [0, 1, 2], 12)
        rate = one["values"]["optim.lr"]
        assert one["validation"] == pytest.approx(np.mean(drawn(rate, range(3))[0][one["rung"]]))
        assert one["at_edge"] == (["optim.lr"] if rate in (RATES[0], RATES[-1]) else [])
    assert report["commands"] == []
    scores = {rung: drawn(rate, range(3, 15))[1][rung] for rung, rate in chosen.items()}
    assert {row["rung"]: row["scores"] for row in report["rows"]} == scores
    for row in report["rows"]:
        assert row["mean"] == pytest.approx(np.mean(scores[row["rung"]]))
        assert row["learning_rate"] == chosen[row["rung"]]
        assert row["rate_source"]["text"] == "chosen on validation among 3 values with 3 seeds"
    _, *changes = (row["comparison"] for row in report["rows"])
    for change in changes:
        mine, other = np.array(scores[change["rung"]]), np.array(scores[change["other"]])
        assert change["difference"] == pytest.approx(mine.mean() - other.mean())
        greater = mine[:, None] > other
        assert change["improvement"] == pytest.approx(np.mean(greater + (mine[:, None] == other) / 2))
        welch = scipy.stats.ttest_ind(mine, other, equal_var=False)
        interval = welch.confidence_interval()
        assert change["low"] <= interval.low <= interval.high <= change["high"], "test items widen it"
        assert not change["provisional"]
    tested = [one for one in [*changes, *report["claims"]] if one["p_unadjusted"] is not None]
    every = {(one["rung"], one["other"], one["kind"]): one["p_unadjusted"] for one in tested}
    assert len(tested) > len(every) >= len(changes), "claims and changes are the same hypotheses"
    by_hand = dict(zip(every, holm_by_hand(list(every.values())), strict=True))
    assert report["hypotheses"] == len(every)
    for one in tested:
        assert one["p_adjusted"] == pytest.approx(by_hand[one["rung"], one["other"], one["kind"]])


def test_the_choice_has_a_table_for_a_paper(swept: Machine) -> None:
    text = swept.run(*CHOOSE, "--plain").stdout
    chosen = chosen_by_hand(range(3))
    scores = {rung: 100 * np.array(drawn(rate, range(3, 15))[1][rung]) for rung, rate in chosen.items()}
    rows = {line.split(" & ")[0]: line for line in text.splitlines() if line.endswith(r"\\") and "Variant" not in line}
    assert list(rows) == list(RUNGS)
    for rung, line in rows.items():
        error = scores[rung].std(ddof=1) / len(scores[rung]) ** 0.5
        assert rf"{scores[rung].mean():.1f} $\pm$ {error:.1f}" in line
    # every pair is tested by seeds that did not choose, as for bold of any ladder: the best alone
    [best] = [rung for rung, line in rows.items() if r"\textbf{" in line]
    assert best == max(scores, key=lambda rung: scores[rung].mean())
    caption = next(line for line in text.splitlines() if line.startswith(r"\caption{"))
    for words in (
        r"\caption{From a tanh RNN to the Linear Recurrent Unit, on sDigits. ",
        "over 12 seeds. ",
        "Bold: no other variant is better, by the same test corrected over 3 pairs. ",
        "Learning rate of each variant: chosen on validation among 3 values with 3 seeds (0, 1, 2), which no score or "
        "test here uses.}",
    ):
        assert words in caption, words
    assert "optim" not in caption
    # neither the label of the ladder without a choice nor that of another setting's
    assert r"\label{tab:lru-sDigits-smoke-chosen-by-optim.lr}" in text
    error = swept.refused(*BY, "--plain")
    assert error.startswith("error: --plain: is for the scores of a ladder, of --choose, or of --all\n")


def test_the_choice_has_the_figure_of_a_ladder(swept: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    render = figure_files.render
    monkeypatch.setattr(figure_files, "render", lambda figure, *more: (drawn.append(figure), render(figure, *more))[1])
    out = str(tmp_path / "chosen.svg")
    swept.run("plot", *FAST, "--by", "optim.lr", "--choose", "--out", out)
    [figure] = drawn
    assert "as chosen" in figure.title
    assert "chosen on validation among 3 values with 3 seeds (0, 1, 2), which no verdict uses:" in figure.caption
    first, second = figure.panels
    scores = {rung: 100 * np.array(drawn_scores) for rung, drawn_scores in judged_by_hand().items()}
    points = sorted(x for curve in first.curves for x in curve.x if x is not None)
    for of_rung in scores.values():
        for score in of_rung:
            assert min(abs(score - x) for x in points) < 1e-9
    differences = [scores[rung].mean() - scores[base].mean() for base, rung in itertools.pairwise(RUNGS)]
    shown = [x for curve in second.curves for x in curve.x if x is not None]
    for difference in differences:
        assert min(abs(difference - x) for x in shown) < 1e-9
    error = swept.refused("plot", *FAST, "--by", "optim.lr", "--choose", "--metric", "test/accuracy", "--out", out)
    assert "--choose and --metric exclude each other" in error
    assert "--choose: belongs to --by" in swept.refused("plot", *FAST, "--choose", "--out", out)


def judged_by_hand() -> Scores:
    return {rung: drawn(rate, range(3, 15))[1][rung] for rung, rate in chosen_by_hand(range(3)).items()}


def _few(folder: Path) -> None:
    machine = Machine(folder)
    for rate in RATES:
        train(machine, rate, range(8))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Eight seeds of each rate. Not changed."""
    return Machine(once("chosen-few", _few)).copy(tmp_path_factory.mktemp("few") / "here")


def test_verdicts_are_those_of_the_seeds_that_did_not_choose_alone(few: Machine, tmp_path: Path) -> None:
    """As a ledger says that has one instance with these runs: of five seeds, provisional, by Welch's test."""
    report = few.json(*CHOOSE)
    chosen = chosen_by_hand(range(3))
    alone = Machine(tmp_path / "alone")
    scores = {rung: drawn(rate, range(3, 8))[1][rung] for rung, rate in chosen.items()}
    fill(alone.ledger, "sDigits", scores, profile="smoke", first=3)
    wanted = alone.json("report", *FAST, *PART)
    for row, other in zip(report["rows"], wanted["rows"], strict=True):
        assert row["scores"] == other["scores"]
        assert (row["comparison"], row["verdict"]) == (other["comparison"], other["verdict"])
    assert report["hypotheses"] == wanted["hypotheses"]
    for change in (row["comparison"] for row in report["rows"][1:]):
        assert change["provisional"]
        mine, other = scores[change["rung"]], scores[change["other"]]
        p = scipy.stats.ttest_ind(mine, other, equal_var=False).pvalue
        assert change["p_on_these_items"] >= p * 0.999
        assert change["p_unadjusted"] >= p * 0.999
    [next_, *others] = report["commands"]
    assert len(others) == 2, "one for each distinct value"
    assert next_.endswith("--set optim.lr=0.002 --rung ring-init --seeds 3-14")
    # the number of seeds that choose can be named
    other = few.json(*CHOOSE, "--choice-seeds", "5")
    assert {tuple(one["seeds"]) for one in other["choice"]} == {(0, 1, 2, 3, 4)}
    assert {one["judged"] for one in other["choice"]} == {3}


def test_nothing_is_judged_by_the_seeds_that_chose_and_a_command_trains_others(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "here")
    for rate in RATES[1:]:
        train(machine, rate, range(2), RUNGS[:2])
    report = machine.json(*CHOOSE)
    assert {one["rung"]: one["seeds"] for one in report["choice"]} == {"ring-init": [0, 1], "gamma-norm": [0, 1]}
    assert [row["n"] for row in report["rows"]] == [0, 0, 0]
    assert not any(row["comparison"] and row["comparison"]["p_adjusted"] is not None for row in report["rows"])
    assert "not judged, because only seeds that chose are finished: ring-init, gamma-norm" in [
        note["text"] for note in report["notes"]
    ]
    text = machine.run(*CHOOSE).stdout
    commands = [line.removeprefix("Next: ").partition(" (")[0] for line in text.splitlines() if "Next: " in line]
    assert commands == report["commands"]
    # the commands work, and their seeds are judged
    by_rate = {0.002: "ring-init", 0.004: "gamma-norm"}
    for command, (rate, rung) in zip(commands, by_rate.items(), strict=True):
        words = shlex.split(command)[1:]
        assert words == ["ladder", *FAST, "--set", f"optim.lr={rate}", "--rung", rung, "--seeds", "2-13"]
        assert machine.json("plan", *words[1:])["rungs"][0]["runs_left"] == 12
        train(machine, rate, range(2, 14), [rung])
        assert machine.json("plan", *words[1:])["rungs"][0]["runs_left"] == 0
    report = machine.json(*CHOOSE)
    assert {one["rung"]: (one["seeds"], one["judged"]) for one in report["choice"]} == {
        "ring-init": ([0, 1], 12),
        "gamma-norm": ([0, 1], 12),
    }
    assert report["commands"] == []


def test_only_common_seeds_choose_and_lost_seeds_are_worse_than_any_score(tmp_path: Path) -> None:
    def one(rate: float, scores: list[float | None], validation: list[float], first: int = 0) -> None:
        sets = {"optim.lr": rate}
        of_rung = {"validation": {"ring-init": validation}, "first": first}
        fill(machine.ledger, "sDigits", {"ring-init": scores}, profile="smoke", sets=sets, **of_rung)

    machine = Machine(tmp_path / "here")
    one(0.001, [0.5, 0.5], [0.6, 0.6])
    one(0.002, [0.9, None], [0.9, 0.0])  # a seed diverged
    one(0.004, [0.4, 0.4, 0.4], [0.5, 0.5, 0.99])  # no other value has the third seed
    [choice] = machine.json(*CHOOSE)["choice"]
    assert (choice["values"], choice["seeds"]) == ({"optim.lr": 0.001}, [0, 1])
    assert choice["at_edge"] == ["optim.lr"]
    # excluded runs choose nothing
    [diverged] = (run["id"] for run in machine.json("runs", "--where", "state = diverged")["runs"])
    machine.run("mark", diverged, "--exclude", "a broken disk")
    [choice] = machine.json(*CHOOSE)["choice"]
    assert (choice["values"], choice["seeds"], choice["at_edge"]) == ({"optim.lr": 0.002}, [0], [])


def test_without_two_values_or_a_common_seed_nothing_is_chosen(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "here")
    train(machine, 0.001, range(2), ["ring-init"])
    assert "--choose: no rung has finished runs with two values\nhint: train the same seeds with each value: " in (
        machine.refused(*CHOOSE, code=4)
    )
    train(machine, 0.002, range(2, 4), ["ring-init"])
    said = machine.refused(*CHOOSE, code=4)
    assert "--choose: the values of ring-init have no finished seed in common\n" in said
    assert "--sweep optim.lr=V,V" in said
    for rate in RATES:
        train(machine, rate, range(4, 6), ["gamma-norm"])
    report = machine.json(*CHOOSE)
    assert [one["rung"] for one in report["choice"]] == ["gamma-norm"]
    assert [row["n"] for row in report["rows"]] == [0, 0, 0], "no rung is judged by runs that nothing chose"
    notes = [note["text"] for note in report["notes"]]
    assert "not chosen, because its values have no finished seed in common: ring-init" in notes


def test_every_format_has_the_values_and_how_they_were_chosen(swept: Machine) -> None:
    sentence = "chosen on validation among 3 values with 3 seeds (0, 1, 2), which no verdict uses:"
    edge = "Best value at the edge of those tried: optim.lr (gamma-norm, small-phase); a better one may lie beyond."
    for name in ("table", "md", "latex", "html"):
        text = " ".join(swept.run(*CHOOSE, "--format", name, "--details").stdout.split())
        assert sentence in text, name
        assert edge in text, name
    answer = swept.run(*CHOOSE).stdout
    assert sentence in answer
    assert "best rate at the edge of those tried (gamma-norm, small-phase)" in answer
    assert "learning rates tuned on validation (3 seeds, 300 items)" in answer
    assert f"lrurun report {' '.join(FAST)} --by optim.lr --choose --details" in answer
    rows = list(csv.DictReader(io.StringIO(swept.run(*CHOOSE, "--format", "csv").stdout)))
    assert {row["rung"]: float(row["optim.lr"]) for row in rows} == chosen_by_hand(range(3))
    assert "\\label{tab:lru-sDigits-smoke-chosen-by-optim.lr}" in swept.run(*CHOOSE, "--format", "latex").stdout


def test_tables_of_a_sweep_say_where_the_best_value_is_at_the_edge(few: Machine) -> None:
    report = few.json(*BY)
    best: dict[str, Any] = {}
    for row in report["rows"]:
        if row["rung"] not in best or row["validation"] > best[row["rung"]][0]:
            best[row["rung"]] = row["validation"], row["by"]["optim.lr"]
    edges = {rung: ["optim.lr"] for rung, (_, rate) in best.items() if rate in (RATES[0], RATES[-1])}
    assert report["at_edge"] == edges
    assert edges.keys() == {"gamma-norm", "small-phase"}
    sentence = "Best value at the edge of those tried: optim.lr (gamma-norm, small-phase); a better one may lie beyond."
    for name in ("table", "md", "latex", "html"):
        assert sentence in " ".join(few.run(*BY, "--format", name).stdout.split())
    assert "at the edge" not in few.run(*BY[:4], "--rung", "ring-init", *BY[-2:]).stdout


def test_values_of_two_settings_are_chosen_together(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "here")
    scores = {(0.001, 20): 0.5, (0.001, 50): 0.7, (0.002, 20): 0.6, (0.002, 50): 0.4}
    for (rate, batch), score in scores.items():
        sets = {"optim.lr": rate, "train.batch": batch}
        of_rung = {"validation": {"ring-init": [score] * 4}}
        fill(machine.ledger, "sDigits", {"ring-init": [score] * 4}, profile="smoke", sets=sets, **of_rung)
    [choice] = machine.json("report", *FAST, *PART, "--by", "optim.lr", "--by", "train.batch", "--choose")["choice"]
    assert choice["values"] == {"optim.lr": 0.001, "train.batch": 50}
    assert (choice["among"], choice["judged"], choice["at_edge"]) == (4, 1, ["optim.lr", "train.batch"])


def test_runs_that_were_forgotten_choose_nothing_and_the_report_says_so(few: Machine, tmp_path: Path) -> None:
    machine = few.copy(tmp_path / "copy")
    condition = "rung = 'ring-init' and seed = 1 and optim.lr = 0.001"
    machine.run("ledger", "forget", "--where", condition, "--why", "a broken disk", "--yes")
    report = machine.json(*CHOOSE)
    assert [one["seeds"] for one in report["choice"]] == [[0, 2, 3], [0, 1, 2], [0, 1, 2]]
    # what chose for one rung judges none
    assert [row["n"] for row in report["rows"]] == [4, 4, 4]
    assert "1 run was forgotten (ring-init): a broken disk" in machine.run(*CHOOSE).stdout


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("report", *FAST, "--choose"), "--choose"),
        ((*BY, "--choice-seeds", "2"), "--choice-seeds"),
        ((*CHOOSE, "--choice-seeds", "0"), "--choice-seeds"),
        (("ladder", *FAST, "--choose"), "--choose"),
        (
            ("ladder", *FAST, "--sweep", "optim.lr=1,2", "--choose", "--fresh"),
            "--choose and --fresh exclude each other",
        ),
        (
            ("ladder", *FAST, "--sweep", "optim.lr=1,2", "--choose", "--decide"),
            "--choose and --decide exclude each other",
        ),
        (
            ("ladder", *FAST, "--sweep", "optim.lr=1,2", "--choose", "--on", "slurm"),
            "--choose and --on exclude each other",
        ),
    ],
)
def test_choices_without_a_sweep_are_refused(swept: Machine, words: tuple[str, ...], error: str) -> None:
    assert error in swept.refused(*words)

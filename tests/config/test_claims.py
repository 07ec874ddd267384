"""Claims of a ladder on its runs: which are judged, and what a report says about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import scipy.stats

from lrurun.config import planning
from lrurun.config.ladder import Claim, Ladder, load_ladder
from lrurun.config.resolve import RateSource
from lrurun.data import tasks
from lrurun.data.metric import Accuracy, Metric
from lrurun.errors import UsageError
from lrurun.report import formats
from lrurun.report.tables.ladder_table import LadderReport
from tests.harness.reports import MINI, build, make_run, make_rung


def test_claims_say_what_they_rest_on() -> None:
    found = {claim.text: claim for claim in build().claims}
    assert {text: claim.verdict for text, claim in found.items()} == {
        "Linear is better": "supported",
        "The ring helps": "undecided",
        "Stable is better": "undecided",
        "Phases do not matter": "not run",
    }
    assert found["Linear is better"].stand_in
    assert found["Linear is better"].mark == " (stand-in task)"
    for name in ("table", "md", "latex", "html"):
        assert formats.render(build(), name).count(" (stand-in task)") == 1, name  # type: ignore[arg-type]
    assert [claim.mark for text, claim in found.items() if text != "Linear is better"] == ["", "", ""]
    assert "sDigits stands in for the paper's tasks of this claim (sCIFAR)" in (found["Linear is better"].detail)
    assert found["The ring helps"].detail == "ring-init and linear-rnn are the same runs on this task"
    assert "stable-exponential 68.33 ± 29.17 (n=3, 1 diverged, counted as chance, 10.00)" in (
        found["Stable is better"].detail
    )
    assert found["Phases do not matter"].detail == "no finished runs of small-phase"


def report_on(scores: dict[str, list[float | None]], *claims: dict[str, Any], **more: Any) -> LadderReport:
    """Of a ladder with these rungs, one after another, and these claims; None is a diverged run."""
    made = tuple(Claim(**({"text": "c", "source": "s", "rung": "b"} | claim)) for claim in claims)
    rungs = tuple(make_rung(name) for name in scores)
    ladder = Ladder(name="some", title="some", source="s", rungs=rungs, claims=made)
    runs = [
        make_run(f"{rung}{seed}", rung, seed, score, state="diverged" if score is None else "done")
        for rung, found in scores.items()
        for seed, score in enumerate(found)
    ]
    return build(ladder, runs, **more)


def judged(mine: list[float | None], other: list[float | None], **claim: Any) -> Any:
    return report_on({"a": other, "b": mine}, {"than": "a"} | claim).claims[0]


def test_a_claim_carries_its_numbers() -> None:
    found = judged([0.95, 0.96, 0.955], [0.90, 0.91, None])
    assert [(side.rung, side.n, side.diverged, side.learning) for side in found.sides] == [
        ("b", 3, 0, 3),
        ("a", 3, 1, 2),
    ]
    assert found.difference == pytest.approx(0.955 - (0.90 + 0.91 + 0.10) / 3)
    assert found.low < found.difference < found.high
    assert found.p_adjusted == found.p_unadjusted
    assert found.detail.startswith("provisional (3 seeds); a learns in 2 of 3 seeds; b 95.50 ± 0.29 (n=3), a 63.67")
    shown = f"{100 * found.improvement_low:.0f}, {100 * found.improvement_high:.0f}"
    assert f"; chance of improvement 100 % [{shown}]; p = {found.p_adjusted:.3f}" in found.detail
    assert judged([0.9], [0.8, 0.9]).detail.endswith("difference +5.00 points; n = 1: no test")


SPREAD = [0.90 + seed / 300 for seed in range(12)]


def test_verdicts_are_provisional_below_twelve_seeds() -> None:
    base = [score - 0.02 for score in SPREAD]
    for mine, other, seeds in ((11, 12, 11), (12, 3, 3), (2, 2, 2)):
        found = judged([*SPREAD[:mine]], [*base[:other]])
        assert found.provisional
        assert found.detail.startswith(f"provisional ({seeds} seeds); b ")
    found = judged([*SPREAD], [*base])
    assert not found.provisional
    assert found.detail.startswith("b 91.83 ± 0.35 (n=12), a 89.83 ± 0.35 (n=12)")
    only = judged([0.5, 0.6, 0.55], [0.5], kind="above-chance", than=None)
    assert only.detail.startswith("provisional (3 seeds); b ")


def test_seeds_that_fail_are_counted_in_words() -> None:
    few: list[float | None] = [0.31, None, *[0.08] * 10]
    none: list[float | None] = [0.10] * 12
    base = [score - 0.06 for score in SPREAD]
    for mine, other, words in (
        ([0.1, None, *SPREAD[2:]], base, "b learns in 10 of 12 seeds"),
        (few, few, "b learns in 1 of 12 seeds, a learns in 1 of 12 seeds"),
        (none, [*SPREAD], "b learns in 0 of 12 seeds"),
        ([None] * 12, none, "neither learns"),
    ):
        report = report_on({"a": other, "b": mine}, {"than": "a"})
        assert report.claims[0].detail.startswith(f"{words}; ")
        for name in ("table", "md", "latex", "html", "json"):
            assert words in " ".join(formats.render(report, name).split()), name  # type: ignore[arg-type]
    assert "learn" not in judged([*SPREAD], base).detail
    assert judged(none, [], kind="at-chance", than=None, margin=0.03).detail.startswith("b does not learn; b 10.00")


def test_at_chance_only_finished_seeds_make_a_verdict_firm() -> None:
    claim = judged([0.10, 0.11, 0.105, *[None] * 9], [], kind="at-chance", than=None, margin=0.03)
    assert claim.provisional
    assert claim.detail.startswith("provisional (3 seeds)")


def test_a_mean_that_points_the_other_way_is_said() -> None:
    base: list[float | None] = [score - 0.06 for score in SPREAD]
    found = judged([0.1, None, *SPREAD[2:]], base)
    assert found.verdict == "supported"
    said = "a run of b is better than one of a in 83 % of pairs, though the mean is worse"
    assert f"; {said}; b 78.4" in found.detail
    assert "difference -7.36 points [" in found.detail
    assert "chance of improvement 83 % [" in found.detail


def test_the_table_says_how_many_seeds_learn_and_how_often_they_may_fail() -> None:
    base: list[float | None] = [score - 0.06 for score in SPREAD]
    report = report_on({"a": base, "b": [0.1, None, *SPREAD[2:]], "c": []}, {"than": "a"})
    assert [row.learning for row in report.rows] == [12, 10, 0]
    bounds = [scipy.stats.binomtest(k, 12, alternative="less").proportion_ci(0.95).high for k in (0, 2)]
    assert [row.failure_bound for row in report.rows] == [pytest.approx(bounds[0]), pytest.approx(bounds[1]), None]
    text = " ".join(formats.render(report, "md").split())
    assert "Learn: seeds better than chance." in text
    assert "| 10 of 12 |" in text
    assert "0 of 0" not in text
    assert (
        "A seed learns if its score is better than 15.20. Rate at which seeds fail to learn, 95 % upper bound: "
        "22 % (a); 44 % (b)."
    ) in text
    assert "| learn" not in formats.render(report_on({"a": base, "b": [*SPREAD]}), "md")


def test_no_comparison_is_supported_with_a_large_p() -> None:
    # Three differences and two claims with a margin: p = 0.0065 alone, but seven hypotheses.
    scores = {
        "a": [0.90, 0.91, 0.92],
        "b": [0.95, 0.96, 0.955],
        "c": [0.95, 0.97, 0.96],
        "d": [0.90, 0.97, 0.96],
    }
    claims = [{"than": "a"}, *({"rung": rung, "than": "a", "kind": "no-worse", "margin": 0.01} for rung in "cd")]
    report = report_on(scores, *claims)
    differences = [row.comparison for row in report.rows[1:]]
    assert differences[0] is not None
    assert report.hypotheses == 9
    assert report.claims[0].p_unadjusted == pytest.approx(0.00646, abs=5e-6)
    assert report.claims[0].p_adjusted == differences[0].p_adjusted > 0.03
    shown = [(one.verdict, one.p_adjusted) for one in (*differences, *report.claims) if one is not None]
    assert all((verdict == "undecided") == (p > 0.05) for verdict, p in shown if p is not None)


def test_beside_a_margin_is_the_test_of_the_difference() -> None:
    found = judged([0.95, 0.96, 0.955], [0.90, 0.91, 0.92], kind="no-worse", margin=0.01)
    assert found.verdict == "supported"
    assert found.difference_p == pytest.approx(2 * 0.00646, abs=1e-5)
    assert f"margin 1.00, p = {found.p_adjusted:.3f}; test items are 21 % of the variance; test of the difference: p = 0.013" in found.detail  # fmt: skip  # noqa: E501


def test_a_task_may_have_a_margin_of_its_own() -> None:
    scores: tuple[list[float | None], list[float | None]] = ([0.90, 0.92, 0.91], [0.93, 0.92, 0.94])
    narrow = judged(*scores, kind="no-worse", margin=0.001)
    wide = judged(*scores, kind="no-worse", margin=0.001, margins={"sDigits": 0.1})
    assert (narrow.verdict, narrow.margin) == ("undecided", 0.001)
    assert (wide.verdict, wide.margin) == ("supported", 0.1)


def test_the_majority_class_of_the_data_is_chance() -> None:
    scores: dict[str, list[float | None]] = {"a": [None, None], "b": [0.5, 0.6]}
    assert report_on(scores, {"than": "a"}).claims[0].sides[1].mean == 0.1
    known = report_on(scores, {"than": "a"}, data={"baselines": {"majority class": 0.25}})
    assert (known.chance, known.claims[0].sides[1].mean) == (0.25, 0.25)
    unknown = report_on(scores, {"than": "a"}, metric=Accuracy())
    assert unknown.claims[0].verdict == "undecided"
    assert "runs diverged, and chance is not known on this task" in unknown.claims[0].detail
    assert "chance is not known on this task" in formats.render(unknown, "md")


def test_an_excluded_run_moves_no_verdict() -> None:
    runs = [make_run(f"a{seed}", "a", seed, 0.90 + seed / 100) for seed in range(3)]
    runs += [make_run(f"b{seed}", "b", seed, 0.95 + seed / 100) for seed in range(3)]
    claim = Claim(text="c", source="s", rung="b", than="a")
    ladder = msgspec.structs.replace(MINI, rungs=(make_rung("a"), make_rung("b")), claims=(claim,))
    without = build(ladder, runs).claims[0]
    more = [make_run("a9", "a", 9, 0.1, excluded="a broken disk"), make_run("b9", "b", 9, 0.1, superseded=True)]
    assert build(ladder, [*runs, *more]).claims[0] == without


def test_claims_on_chance_and_speed_are_judged_on_their_tasks_alone() -> None:
    claims = [
        {"kind": "at-chance", "margin": 0.03},
        {"kind": "above-chance", "tasks": ("sCIFAR",)},
        {"kind": "faster", "than": "a", "tasks": ("sCIFAR",)},
        {"kind": "faster", "than": "a"},
    ]
    report = report_on({"a": [0.1, 0.11], "b": [0.8, 0.81]}, *claims)
    assert [(one.kind, one.verdict) for one in report.claims] == [("at-chance", "contradicted"), ("faster", "not run")]
    assert "b 80.50 ± 0.50 (n=2), chance 10.00; difference +70.50 points" in report.claims[0].detail
    assert "speeds are measured in turns: lrurun bench claims" in report.claims[1].detail
    assert report.rows[1].comparison is not None


def test_untuned_sides_are_named() -> None:
    default, tuned = RateSource("default", "the recipe's default (untuned)"), RateSource("tuned", "tuned here")
    scores: dict[str, list[float | None]] = {"a": [0.1, 0.11], "b": [0.8, 0.81]}
    found = report_on(scores, {"than": "a"}, rates={"a": (0.1, default), "b": (0.1, tuned)}).claims[0]
    assert found.untuned == ("a",)
    assert "not tuned: a" in found.detail


def test_the_papers_own_numbers_are_beside_the_verdict() -> None:
    ladder = load_ladder("lru")
    runs = [
        make_run(f"{rung}{seed}", rung, seed, 0.8 + seed / 50)
        for rung in ("diagonal", "exponential", "linear-rnn", "tanh-rnn")
        for seed in range(3)
    ]
    claims = {(one.rung, one.kind): one for one in build(ladder, runs, task="sCIFAR").claims}
    own = claims["linear-rnn", "better"]
    assert own.detail.endswith("by the paper's own numbers: supported, +2.3 [+0.8, +3.8], p = 0.024")
    assert own.paper is not None
    assert (own.paper.verdict, own.paper.sides[0].n, own.elsewhere) == ("supported", 3, {})
    stand_in = claims["exponential", "better"]
    assert stand_in.paper is not None
    assert stand_in.detail.endswith(
        "by the paper's own numbers: undecided, -1.1 [-4.0, +1.8], p = 0.342; sCIFAR stands in for the paper's "
        "tasks of this claim (ListOps, Pathfinder); by the paper's own numbers there: ListOps undecided, "
        "Pathfinder not judged"
    )
    rows = {row.rung: row for row in build(ladder, runs, task="sCIFAR").rows}
    assert rows["exponential"].paper == stand_in.paper
    assert claims["gamma-norm", "faster"].paper_ratio == pytest.approx(15.9 / 2.0)


def test_a_claim_is_not_run_until_both_rungs_have_results() -> None:
    for mine, other, missing in (([], [0.9], "b"), ([0.9, 0.8], [], "a"), ([], [], "b and a")):
        found = judged(mine, other)
        assert (found.verdict, found.detail) == ("not run", f"no finished runs of {missing}")
    queued = [
        make_run(name, rung, 0, state=state) for name, rung, state in (("1", "a", "queued"), ("2", "b", "failed"))
    ]
    claim = Claim(text="c", source="s", rung="b", than="a")
    ladder = msgspec.structs.replace(MINI, rungs=(make_rung("a"), make_rung("b")), claims=(claim,))
    assert build(ladder, queued).claims[0].verdict == "not run"
    assert build(ladder, [], same_as_base={"b"}).claims[0].verdict == "not run"
    # a diverged run is a result
    diverged = [make_run("1", "a", 0, state="diverged"), make_run("2", "b", 0, 0.9)]
    assert build(ladder, diverged).claims[0].verdict == "undecided"
    assert json.loads(formats.render(build(ladder, queued), "json"))["claims"][0]["verdict"] == "not run"
    assert "\nnot run: c. (s)\n" in formats.render(build(ladder, queued), "table")


@pytest.mark.parametrize("kind", ["equal", "no-worse"])
def test_a_claim_of_equality_or_no_loss_needs_a_margin(kind: str) -> None:
    with pytest.raises(UsageError, match=f"is of kind {kind}, but names no margin"):
        judged([0.9], [0.8], kind=kind)


def test_verdicts_do_not_depend_on_how_many_rungs_are_shown() -> None:
    whole, first = build(), build(shown=["tanh-rnn", "linear-rnn"])
    assert first.rows == whole.rows[:2]
    assert first.claims == whole.claims[:1]
    assert first.hypotheses == whole.hypotheses


def test_a_task_without_chance_refuses_claims_about_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = '[[claim]]\ntext = "c"\nsource = "s"\nrung = "a"\nkind = "above-chance"\n'
    rung = '[[rung]]\nname = "a"\ntitle = "a"\nchange."model.recurrence.kind" = "dense"\n'
    file = tmp_path / "l.toml"
    file.write_text(f'name = "l"\ntitle = "l"\nsource = "s"\n{rung}{claim}')
    assert planning.make("sDigits", ladder=str(file)).ladder.claims[0].than is None
    monkeypatch.setattr(type(tasks.TASKS["sDigits"]), "metric", Accuracy())
    with pytest.raises(UsageError) as error:
        planning.make("sDigits", ladder=str(file))
    assert "claim 'c': kind = \"above-chance\" needs a score of chance on sDigits" in error.value.message
    assert error.value.hint == (
        "declare it in the metric of sDigits (chance = ...), or restrict the claim to other tasks"
    )


def test_metrics_declare_direction_unit_chance_and_the_error_of_the_test_set() -> None:
    accuracy = Accuracy(chance=0.1)
    assert (accuracy.step(300), accuracy.variance(0.9, 300)) == (1 / 300, pytest.approx(0.0003))
    assert accuracy.variance(1.0, 300) == accuracy.variance(0.0, 300) == pytest.approx(300**-2)
    bits = Metric(name="bits_per_byte", unit="bits", higher_is_better=False, chance=8.0)
    assert (bits.scale, bits.step(10), bits.variance(2.0, 10)) == (1.0, None, None)

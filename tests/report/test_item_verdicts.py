"""What people see of verdicts that hold for other test items, or do not: on the first screen, in details, in files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.stats
from msgspec import structs

from lrurun import items
from lrurun.config.ladder import Claim, Ladder
from lrurun.items import ItemResults
from lrurun.judging.rung_runs import Note
from lrurun.judging.sequential import Design, DesignProgress, DesignSummary, LookRecord, looks, summary
from lrurun.judging.verdicts import Comparison, Question
from lrurun.report import formats
from lrurun.report.tables import all_tasks
from lrurun.report.tables.ladder_table import LadderReport
from tests.harness.items import drawn, on_items
from tests.harness.reports import build, make_run, make_rung

SKILLS = {"small": 0.0, "wider": 0.0, "deeper": 2.0}
"""Of these, small and wider are equal in the population of items."""
FOUND = drawn(SKILLS, 12, 90, taste=1.0, number=7)
"""On these 90 items wider is better than small with every seed."""
CLAIMS = (Claim(text="Width helps", source="Paper, 1", rung="wider", than="small", tasks=("sCIFAR",)),)


def shown(found: Mapping[str, Sequence[ItemResults]] = FOUND, **more: Any) -> LadderReport:
    """The report on runs with these per-item results."""
    known = {f"{rung}{k}": one for rung, every in found.items() for k, one in enumerate(every)}
    rungs = tuple(make_rung(rung) for rung in found)
    ladder = Ladder(name="items", title="on the same items", source="s", rungs=rungs, claims=CLAIMS)
    runs = [make_run(f"{rung}{k}", rung, k, one.mean) for rung, every in found.items() for k, one in enumerate(every)]
    fields = {"items": lambda ids, _: {run: known[run] for run in ids}, "test_items": 90}
    return build(ladder, runs, **(fields | more))


def nothing(_runs: Sequence[str], _result: str) -> Mapping[str, Any]:
    return {}


KINDS: dict[str, dict[str, Any]] = {
    "per-item results": {},
    "their number": {"items": nothing},
    "their number, of a program": {"items": nothing, "kind": "program"},
    "nothing": {"items": nothing, "test_items": None},
    "nothing, of a program": {"items": nothing, "test_items": None, "kind": "program"},
    "removed results": {"items": nothing, "items_removed": lambda runs, _: dict.fromkeys(runs, 90), "test_items": None},
}


def answer(report: LadderReport, width: int = 80) -> str:
    return formats.render(report, "table", width=width, answer=True)


def test_what_people_see(golden: Any) -> None:
    texts = {f"{name}": answer(shown(**more)) for name, more in KINDS.items()}
    texts |= {f"{name}, details": formats.render(shown(**more), "table", width=100) for name, more in KINDS.items()}
    texts |= {f"at {width}": answer(shown(), width) for width in (40, 60, 100, 140)}
    texts["in ASCII"] = formats.render(shown(), "table", width=140, answer=True, ascii=True)
    texts["Markdown"] = formats.render(shown(), "md")
    for difference in (0.2, 0.03, 0.0001):
        detail = formats.render(shown(detect=difference), "md")
        texts[f"detect {difference}"] = next(line for line in detail.split("\n") if line.startswith("- Seeds"))
    both = all_tasks.build(
        Ladder(name="items", title="two tasks", source="s", rungs=()), [shown(), shown(task="sCIFAR")]
    )
    texts["all tasks"] = formats.render(both, "table", width=100, answer=True)
    texts["all tasks, details"] = formats.render(both, "table", width=160)
    golden("report/items.txt", "".join(f"==== {name}\n{text}\n\n" for name, text in texts.items()))


def test_every_width_and_format_has_the_verdict_on_these_items() -> None:
    report = shown()
    row = report.rows[1]
    assert (row.verdict, row.on_these_items) == ("undecided", "helps")
    for width in (40, 60, 80, 100, 140):
        text = answer(report, width)
        assert max(map(len, text.split("\n"))) <= width
        assert "On these test items: helps (wider)." in " ".join(text.split())
    colored = formats.render(report, "table", width=140, answer=True, color=True)
    assert "\x1b[33mundecided (on these items: helps)\x1b[0m" in colored
    for name in ("table", "md", "latex", "html"):
        text = formats.render(report, name)
        for sign in ("&lt;", r"\textless{}"):
            text = text.replace(sign, "<")
        assert "on these items: helps, p < 0.001" in text, name
        assert "on these items: supported" in formats.render(report, name), "the claim"
    page = formats.render(report, "html")
    assert '<span class="undecided">undecided</span> +6.7 <span class="faint">on these items: helps</span>' in page
    data = json.loads(formats.render(report, "json"))
    found = data["rows"][1]["comparison"]
    assert (data["rows"][1]["verdict"], found["verdict"]) == ("undecided", "undecided")
    assert (found["verdict_on_these_items"], found["items_known"]) == ("supported", "results")
    assert found["p_on_these_items"] < 0.001 < 0.05 < found["p_adjusted"]
    line = list(csv.DictReader(io.StringIO(formats.render(report, "csv"))))[1]
    for field in ("verdict_on_these_items", "items_known", "p_on_these_items", "item_error", "item_share"):
        assert line[field] == str(found[field])
    assert line["score_item_error"] == str(data["rows"][1]["score_item_error"])
    decided = data["rows"][2]["comparison"]
    assert (decided["verdict"], decided["verdict_on_these_items"]) == ("supported", "")


def test_captions_say_what_p_and_intervals_hold_for() -> None:
    """That only some comparisons know their test items is made up: it takes runs of different ages."""
    known, unknown = shown(), shown(**KINDS["nothing"])
    mixed = structs.replace(known, rows=(*known.rows[:2], unknown.rows[2]))
    texts = {
        "for new seeds and test items": known,
        "for new seeds and, where their error is known, test items": mixed,
        "": unknown,
    }
    for text, report in texts.items():
        flat = formats.render(report, "md")
        assert f"p: two-sided, {text and f'{text}, '}of ranks (" in flat
        assert f"95 % interval (Welch){text and f' {text}'}, not corrected" in flat
        assert f"than one of the base, with its 95 % interval{text and f' {text}'}." in flat
        assert f"p: {text and f'{text}, '}by ranks, corrected" in " ".join(answer(report).split())


def test_the_error_of_the_test_set_is_that_of_a_score_on_other_items() -> None:
    """Beside another choice of items, with replacement, by NumPy; without per-item results, the binomial error."""
    rng = np.random.default_rng(0)
    answers = np.stack([one.sums for one in FOUND["wider"]])
    chosen = rng.integers(0, 90, (4000, 90))
    resampled = answers[:, chosen].mean(axis=2).std(axis=1)
    found = shown().rows[1].score_item_error
    assert found == pytest.approx(np.sqrt((resampled**2).mean()), rel=0.03)
    means = answers.mean(axis=1)
    bound = shown(items=nothing).rows[1].score_item_error
    assert bound == pytest.approx(np.sqrt((means * (1 - means)).mean() / 90))
    rows = {row.rung: row for row in shown().rows}
    largest = max(rows[rung].score_item_error or 0.0 for rung in ("small", "wider"))
    texts = list(formats.content_of(shown()).cautions)
    moved = f"90 test items move a score by ± {100 * largest:.1f} points, and more seeds help little"
    assert f"undecided because of the test set (wider): {moved}" in texts
    assert shown(items=nothing, test_items=None).rows[1].score_item_error is None


def test_a_score_of_many_items_has_no_caution() -> None:
    found = drawn({"small": 0.0, "wider": 1.0}, 12, 2000, taste=0.6)
    assert [row.verdict for row in shown(found, test_items=2000).rows] == ["", "helps"]
    cautions = formats.content_of(shown(found, test_items=2000)).cautions
    assert not [caution for caution in cautions if "item" in caution]


def test_where_a_side_often_fails_and_items_matter_the_first_screen_warns() -> None:
    def report(failing: int, seeds: int = 20) -> LadderReport:
        found = drawn({"small": 0.0, "wider": 0.5}, seeds, 90, taste=2.0, spread=0.02)
        failed = drawn({"small": -9.0}, failing, 90, taste=0.0)["small"] if failing else []
        return shown({"small": [*failed, *found["small"][failing:]], "wider": found["wider"]})

    def warned(made: LadderReport) -> bool:
        return any("often fails" in caution for caution in formats.content_of(made).cautions)

    often = report(6)
    [comparison] = [row.comparison for row in often.rows if row.comparison]
    assert (comparison.verdict, comparison.sides[1].failures) == ("supported", 6)
    assert (comparison.item_share or 0) >= 0.3
    assert warned(often)
    assert not warned(report(0)), "no side fails"
    assert not warned(report(2)), "seldom"
    assert not warned(report(4, seeds=12)), "with so few seeds nothing is decided wrongly"


def test_a_repetition_is_not_proposed_where_more_seeds_help_little() -> None:
    report = shown()
    assert report.fresh_seeds is not None
    assert "Next:" not in answer(report)
    of_seeds = tuple(
        structs.replace(row, comparison=row.comparison and structs.replace(row.comparison, item_share=0.2))
        for row in report.rows
    )
    assert "asks again with fresh seeds" in " ".join(answer(structs.replace(report, rows=of_seeds)).split())


def nearly_equal_runs() -> dict[str, list[ItemResults]]:
    """Ten runs of each rung give equal answers, two have two items more wrong."""
    found = {}
    for rung, runs in FOUND.items():
        worse = runs[0].sums.copy()
        worse[np.flatnonzero(worse)[:2]] = 0
        found[rung] = [on_items(runs[0].sums)] * 10 + [on_items(worse)] * 2
    return found


@pytest.mark.parametrize("found", [FOUND, nearly_equal_runs()], ids=["drawn", "nearly equal runs"])
@pytest.mark.parametrize("difference", [0.2, 0.08, 0.05, 0.03, 0.01])
def test_seeds_and_items_that_detect_a_difference_are_the_first_with_the_power(
    difference: float, found: Mapping[str, Sequence[ItemResults]]
) -> None:
    """By the noncentral t distribution of SciPy, with variances that NumPy computes from the answers."""
    detect = shown(found, detect=difference).detect
    assert detect is not None
    sides = [np.stack([one.sums for one in found[rung]]) for rung in ("wider", "small")]
    means = [side.mean(axis=1) for side in sides]
    own = [side - side.mean(axis=0) - (side - side.mean(axis=0)).mean(axis=1, keepdims=True) for side in sides]
    of_runs = [(each**2).sum() / 11 / 89 / 90 for each in own]
    shared = sides[0].mean(axis=0) - sides[1].mean(axis=0)
    of_items = shared.var(ddof=1) / 90 - sum(of_runs) / 12

    def power(n: int, count: float) -> float:
        share = 90 / count
        spreads = [scores.var(ddof=1) for scores in means]
        left = [spread - min(each, spread) * (1 - share) for spread, each in zip(spreads, of_runs, strict=True)]
        parts = [(spread / n, float(n - 1)) for spread in left]
        parts.append((of_items * share, 89 / share))
        total = sum(part for part, _ in parts)
        # the parts of the seeds are one first, as in the program
        seeds = parts[0][0] + parts[1][0]
        df_seeds = seeds**2 / sum(part**2 / df for part, df in parts[:2])
        df = total**2 / (seeds**2 / df_seeds + parts[2][0] ** 2 / parts[2][1])
        limit = scipy.stats.t.isf(0.05 / 2 / 2, df)  # two hypotheses
        return float(scipy.stats.nct.sf(limit, df, difference / np.sqrt(total)))

    n, count = detect.seeds["wider"], detect.test_items["wider"]
    assert n is not None
    assert count is not None
    assert power(n, count) >= 0.8 - 1e-6
    assert n == 12 or power(n - 1, count) < 0.8
    if count > 90:
        assert power(n, count - 1) < 0.8
        assert power(1000, 90) < 0.8, "today's items are not enough with any number of seeds"
    assert detect.bounds == ()


def test_without_results_on_items_the_numbers_of_detect_say_what_they_are() -> None:
    bound = shown(items=nothing, detect=0.05).detect
    assert bound is not None
    assert bound.bounds == ("wider", "deeper")
    assert (bound.test_items["wider"] or 0) > (shown(detect=0.05).detect.test_items["wider"] or 0)  # type: ignore[union-attr]
    unknown = shown(items=nothing, test_items=None, detect=0.05).detect
    assert unknown is not None
    assert set(unknown.test_items.values()) == {None}
    assert "These seeds are for the same test items: nothing is known of others." in formats.render(
        shown(items=nothing, test_items=None, detect=0.05), "md"
    )


def test_removed_results_are_noted_and_their_number_is_used() -> None:
    report = shown(**KINDS["removed results"])
    text = "36 runs lost their per-item results by lrurun ledger gc --items: verdicts know only how many"
    assert Note(f"{text} items there are") in report.notes
    assert report.test_items == 90
    assert [row.comparison.items_known for row in report.rows if row.comparison] == ["number"] * 2
    assert not any("lost" in note.text for note in shown().notes)


def test_verdicts_that_the_first_release_recorded_are_marked() -> None:
    question = Question(kind="better", rung="b", other="a")
    decided = Comparison(kind="better", rung="b", other="a", verdict="supported", p_adjusted=0.01, look=12)
    design = Design(max_seeds=20, looks=looks(20), settings={}, questions=(question,), finished_before=0)

    def of(rule: Any, comparison: Comparison) -> DesignSummary:
        look = LookRecord(design="d", seeds=12, rule=rule, hypotheses=1, runs=(), comparisons=(comparison,))
        return summary(DesignProgress(design=design, records=(look,)), {"a": "a", "b": "b"})

    assert of("seeds", decided).looks_of_seeds == (12,)
    assert of("seeds and items", decided).looks_of_seeds == ()
    assert of("seeds", structs.replace(decided, verdict="undecided")).looks_of_seeds == ()
    report = structs.replace(shown(), design=of("seeds", decided))
    what = "the verdicts of the look at 12 seeds, recorded by lrurun 1.0, hold for these test items alone"
    assert what in " ".join(answer(report).split())
    assert "lrurun 1.0 recorded them, and they stay." in formats.render(report, "md")
    assert "lrurun 1.0" not in formats.render(structs.replace(report, design=of("seeds and items", decided)), "md")


# Values between 0 and 1


def overlaps(better: float) -> dict[str, list[ItemResults]]:
    """Of a program: the overlap of areas in each of 40 images, which is better by so much on all of them."""
    random = np.random.default_rng(5)
    images, found = random.beta(4, 2, 40) * 0.9, {}
    for rung, more in (("small", 0.0), ("wider", better)):
        own = images + more + random.normal(0, 0.02, 40)
        found[rung] = [on_items(own + random.normal(0, 0.002) + random.normal(0, 0.005, 40)) for _ in range(12)]
    return found


def of_program(found: Mapping[str, Sequence[ItemResults]], **more: Any) -> LadderReport:
    """The report on runs of a program with these results."""
    known = {f"{rung}{k}": one for rung, every in found.items() for k, one in enumerate(every)}
    ladder = Ladder(name="overlap", title="of areas", source="s", rungs=tuple(make_rung(rung) for rung in found))
    runs = [
        make_run(f"{rung}{k}", rung, k, one.mean, kind="program")
        for rung, every in found.items()
        for k, one in enumerate(every)
    ]
    fields = {"items": lambda ids, _: {run: known[run] for run in ids}, "test_items": 40, "kind": "program"}
    return build(ladder, runs, **(fields | more))


def test_scores_of_a_program_with_values_between_0_and_1_are_not_rounded_to_whole_items() -> None:
    found = overlaps(0.017)
    report = of_program(found)
    comparison = report.rows[1].comparison
    assert report.test_step is None
    assert comparison is not None
    assert (comparison.verdict, comparison.items_known) == ("supported", "results")
    wider, small = ([one.mean for one in found[rung]] for rung in ("wider", "small"))
    assert min(wider) > max(small)
    assert comparison.p_on_these_items == 2.0**-11
    # an independent error: each item's mean over the runs of a rung, paired
    means = [np.mean([one.sums for one in found[rung]], axis=0) for rung in ("wider", "small")]
    assert comparison.item_error == pytest.approx(scipy.stats.sem(means[0] - means[1]), rel=0.1)


@pytest.mark.parametrize("known", ["results", "number"])
@pytest.mark.parametrize("counted", [True, False])
def test_scores_of_a_program_are_shares_where_all_items_are_right_or_wrong(known: str, counted: bool) -> None:
    found = overlaps(0.017)
    if counted:
        found = {rung: [on_items(np.round(one.sums)) for one in every] for rung, every in found.items()}
    report = of_program(found, **({"items": nothing} if known == "number" else {}))
    assert report.test_step == (1 / 40 if counted else None)
    comparison = report.rows[1].comparison
    assert comparison is not None
    assert comparison.items_known == known


def test_scores_of_a_program_with_unequal_weights_are_not_in_whole_items() -> None:
    random = np.random.default_rng(3)
    weights = random.integers(1, 9, 40).astype(float)

    def results(weights: np.ndarray) -> dict[str, list[ItemResults]]:
        test_set = items.TestSet(count=40, weights=weights)
        right = {rung: random.random((12, 40)) < chance for rung, chance in (("small", 0.5), ("wider", 0.6))}
        return {rung: [ItemResults(test_set=test_set, sums=weights * row) for row in rows] for rung, rows in right.items()}  # fmt: skip  # noqa: E501

    assert of_program(results(weights)).test_step is None
    assert of_program(results(np.full(40, 3.0))).test_step == 1 / 40

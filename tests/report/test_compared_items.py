"""`plot --kind items`, and the same on the page of a ladder: on which test items a rung is better than another one."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import math
import re
import sqlite3
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from lrurun import items
from lrurun.config.instance import Instance
from lrurun.items import ItemResults
from lrurun.ledger.ledger import Ledger
from lrurun.report.figures import compared_items, figure_files
from lrurun.report.figures.compared_items import ItemComparison, RungItems
from lrurun.report.widths import Width
from tests.harness import results
from tests.harness.browsing import View, closed, words
from tests.harness.drawings import caption, lines, misplaced
from tests.harness.machine import Machine
from tests.harness.shared import once

__all__ = ["closed"]  # a fixture

ACCURACY = "test/accuracy"
GROUPS = np.array([5, 5, 7, 7, 9, 9])
RIGHT = {
    "tanh-rnn": ["110010", "100010", "100110"],  # shares 1, 1/3, 0, 1/3, 1, 0
    "linear-rnn": ["111000", "110101"],  # shares 1, 1, 1/2, 1/2, 0, 1/2
    "diagonal": ["111111"],
}
# linear-rnn less tanh-rnn, from the largest gain; of equal ones in the order of the test set
DIFFERENCES = {
    1: Fraction(2, 3),
    2: Fraction(1, 2),
    5: Fraction(1, 2),
    3: Fraction(1, 6),
    0: Fraction(0),
    4: Fraction(-1),
}
ITEMS = ("plot", "sDigits", "--kind", "items")
fill = partial(results.fill, with_items=False)


def bits(text: str) -> np.ndarray:
    return np.array([float(bit) for bit in text])


def record(path: Path, rung: str, results: list[ItemResults], name: str = ACCURACY, task: str = "sDigits") -> None:
    """Adds per-item results to the runs of a rung, in the order of their seeds."""
    with Ledger.open(path) as ledger:
        [instance] = ledger.ladders(None, task)
        runs = [run for run in ledger.runs(instance.key) if run.memberships[0].rung == rung]
        for run, result in zip(sorted(runs, key=lambda run: run.seed), results, strict=False):
            assert ledger.record_items(run.id, {name: result})


@pytest.fixture(scope="module")
def filled() -> Machine:
    """Four rungs: two on the same items, one on others, and one without items; a run of the second has none either."""

    def make(folder: Path) -> None:
        path = Machine(folder).ledger
        scores = {rung: [float(bits(text).mean()) for text in texts] for rung, texts in RIGHT.items()}
        fill(path, "sDigits", scores | {"linear-rnn": [*scores["linear-rnn"], 0.5], "exponential": [0.5, 0.75]})
        for rung, texts in RIGHT.items():
            test_set = items.TestSet(count=6, order="other" if rung == "diagonal" else "order", groups=GROUPS)
            record(path, rung, [ItemResults(test_set=test_set, sums=bits(text)) for text in texts])

    return Machine(once("compared-items", make))


@pytest.fixture
def numbers(filled: Machine, tmp_path: Path) -> Any:
    """What `lrurun plot --kind items` writes as JSON."""

    def read(*words: str) -> Any:
        filled.run(*ITEMS, *words, "--out", str(tmp_path / "items.json"))
        return json.loads((tmp_path / "items.json").read_text())

    return read


def comparison(rung: np.ndarray, other: np.ndarray, *, name: str = "rung", **more: Any) -> ItemComparison:
    test_set = items.TestSet(count=rung.shape[1])
    sides = [
        RungItems(rung=name, runs=tuple(map(str, range(len(values)))), test_set=test_set, values=values)
        for values in (rung, other)
    ]
    return ItemComparison(rung=sides[0], other=sides[1], **more)


# The numbers


def test_the_numbers_are_means_over_seeds_from_the_largest_gain_to_the_largest_loss(numbers: Any) -> None:
    found = numbers("--rung", "linear-rnn")
    names = [found[name] for name in ("schema_version", "task", "ladder", "profile", "label", "metric")]
    assert names == [1, "sDigits", "lru", None, "sDigits, without --tune", ACCURACY]
    [pair] = found["comparisons"]
    assert [pair[name] for name in ("rung", "other", "test_items")] == ["linear-rnn", "tanh-rnn", 6]
    assert [(side["rung"], side["n"], len(side["runs"])) for side in pair["sides"]] == [
        ("linear-rnn", 2, 2),
        ("tanh-rnn", 3, 3),
    ]
    assert [pair[name] for name in ("better", "worse", "equal")] == [4, 1, 1]
    assert [(one["item"], one["difference"]) for one in pair["items"]] == [
        (item, pytest.approx(float(difference))) for item, difference in DIFFERENCES.items()
    ]
    assert [one["group"] for one in pair["items"]] == [int(GROUPS[item]) for item in DIFFERENCES]
    for one in pair["items"]:
        for field, rung in (("mean", "linear-rnn"), ("other_mean", "tanh-rnn")):
            share = Fraction(sum(text[one["item"]] == "1" for text in RIGHT[rung]), len(RIGHT[rung]))
            assert one[field] == pytest.approx(float(share))
    [note] = found["notes"]
    assert note["text"] == "linear-rnn: 1 run without per-item results"
    assert len(note["runs"]) == 1


def test_two_rungs_are_compared_as_they_are_named(numbers: Any) -> None:
    [one] = numbers("--rung", "tanh-rnn", "--rung", "linear-rnn")["comparisons"]
    [other] = numbers("--rung", "linear-rnn", "--rung", "tanh-rnn")["comparisons"]
    assert [one["rung"], other["rung"]] == ["linear-rnn", "tanh-rnn"]
    assert (one["better"], one["worse"]) == (other["worse"], other["better"]) == (4, 1)
    assert [item["difference"] for item in one["items"]] == [-item["difference"] for item in other["items"][::-1]]


def test_a_ladder_is_compared_rung_by_rung_and_says_what_cannot_be(
    numbers: Any, filled: Machine, tmp_path: Path
) -> None:
    found = numbers()
    assert [(pair["rung"], pair["other"]) for pair in found["comparisons"]] == [("linear-rnn", "tanh-rnn")]
    texts = [note["text"] for note in found["notes"]]
    assert texts[-1].startswith(
        "not drawn: diagonal and linear-rnn have different test sets: other items, or another order; "
        "exponential: its runs have no per-item results; stable-exponential: no run is finished; "
    )
    filled.run(*ITEMS, "--out", str(tmp_path / "items.csv"))
    with (tmp_path / "items.csv").open() as file:
        rows = list(csv.DictReader(file))
    [pair] = found["comparisons"]
    assert [row["item"] for row in rows] == [str(one["item"]) for one in pair["items"]]
    assert rows[0] == {"metric": ACCURACY, "rung": "linear-rnn", "other": "tanh-rnn"} | {
        name: str(value) for name, value in pair["items"][0].items()
    }


def test_counts_are_those_of_exact_shares() -> None:
    """Shares of different numbers of seeds, as 3 of 12 and 5 of 20, are equal where their fractions are."""
    random = np.random.default_rng(0)
    for n, others in ((12, 20), (1, 1), (3, 2), (40, 7)):
        rung, other = ((random.random((seeds, 60)) < random.random(60)).astype(float) for seeds in (n, others))
        pair = comparison(rung, other)
        gains = [
            Fraction(int(a), n) - Fraction(int(b), others)
            for a, b in zip(rung.sum(axis=0), other.sum(axis=0), strict=True)
        ]
        assert (pair.better, pair.worse, pair.equal) == (
            sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains), sum(gain == 0 for gain in gains),
        )  # fmt: skip
        sizes = sorted({abs(gain) for gain in gains} - {0})
        if len(sizes) > 60:  # then fewer are counted
            continue
        assert pair.sizes == pytest.approx(list(map(float, sizes)))
        better, worse = pair.at_least(pair.gains)
        assert better.tolist() == [sum(gain >= size for gain in gains) for size in sizes]
        assert worse.tolist() == [sum(-gain >= size for gain in gains) for size in sizes]


def test_equal_results_are_equal_whatever_the_number_of_seeds() -> None:
    pair = comparison(np.full((2, 3), 0.1), np.full((12, 3), 0.1))
    assert pair.means[0][0] != pair.means[1][0]  # in the last bits
    assert (pair.better, pair.worse, pair.equal) == (0, 0, 3)


def exchanges(rung: np.ndarray, other: np.ndarray) -> Iterator[list[Fraction]]:
    """The gains for every division of the seeds of both rungs."""
    pooled = np.concatenate([rung, other]).astype(int)
    for chosen in itertools.combinations(range(len(pooled)), len(rung)):
        is_rung = np.isin(np.arange(len(pooled)), chosen)
        yield [
            Fraction(int(item[is_rung].sum()), len(rung)) - Fraction(int(item[~is_rung].sum()), len(other))
            for item in pooled.T
        ]


def test_what_seeds_alone_do_is_the_mean_over_all_exchanges() -> None:
    rung, other = (np.stack(list(map(bits, RIGHT[name]))) for name in ("linear-rnn", "tanh-rnn"))
    pair = comparison(rung, other)
    divisions = list(exchanges(rung, other))
    assert len(divisions) == 10
    changed = [sum(gain != 0 for gain in gains) / 2 for gains in divisions]
    assert pair.changed_by_seeds == pytest.approx(np.mean(changed), abs=4 * np.std(changed) / math.sqrt(200))
    alone = pair.by_seeds()
    for k, size in enumerate(sorted({abs(difference) for difference in DIFFERENCES.values()} - {0})):
        counts = [sum(sign * gain >= size for gain in gains) for gains in divisions for sign in (1, -1)]
        assert alone.mean[k] == pytest.approx(np.mean(counts), abs=4 * np.std(counts) / math.sqrt(200))
        assert min(counts) <= alone.low[k] <= np.percentile(counts, 20)
        assert np.percentile(counts, 80) <= alone.high[k] <= max(counts)


def test_rungs_that_are_alike_are_what_seeds_alone_do() -> None:
    """The band has about nine tenths of such rungs at each size, and few with tastes of their own."""
    random = np.random.default_rng(1)
    chances = random.beta(0.5, 0.5, 400)

    def is_inside(taste: float) -> float:
        moved = np.clip(chances + random.normal(0, taste, 400), 0, 1)
        rung, other = ((random.random((8, 400)) < shares).astype(float) for shares in (moved, chances))
        pair = comparison(rung, other)
        alone = pair.by_seeds()
        at = int(np.argmin(abs(pair.sizes - 0.5)))
        return float(alone.low[at] <= pair.at_least(pair.gains)[0][at] <= alone.high[at])

    assert np.mean([is_inside(0.0) for _ in range(20)]) > 0.75
    assert np.mean([is_inside(0.5) for _ in range(5)]) < 0.3


def test_weights_and_the_direction_of_the_metric_count() -> None:
    """An item without weight has no result; of a loss the lower one is better."""
    test_set = items.TestSet(count=3, weights=np.array([2.0, 4.0, 0.0]))
    sums = {"a": [1.0, 2.0, 0.0], "b": [1.5, 1.0, 0.0]}
    sides = [
        compared_items.of_rung(name, {name: ItemResults(test_set=test_set, sums=np.array(values))})
        for name, values in sums.items()
    ]
    pair = ItemComparison(rung=sides[0], other=sides[1], lower_is_better=True)
    assert [mean.tolist()[:2] for mean in pair.means] == [[0.5, 0.5], [0.75, 0.25]]
    assert pair.gains.tolist()[:2] == [0.25, -0.25]
    assert (pair.better, pair.worse, pair.equal) == (1, 1, 0)
    assert len(pair.cells.x) == 2


# The figure


def dots(ax: Any) -> dict[tuple[float, float], float]:
    """Position -> the area of its dot."""
    found = {}
    for drawn in ax.collections:
        for (x, y), area in zip(drawn.get_offsets().tolist(), drawn.get_sizes().tolist(), strict=True):
            found[round(x, 6), round(y, 6)] = area
    return found


def test_a_dot_is_at_the_shares_of_seeds_of_both_rungs(filled: Machine, sketched: list[Any]) -> None:
    filled.run(*ITEMS, "--rung", "linear-rnn", "--out", "a.png")
    [figure] = sketched
    plane, counts = figure.axes
    places = [(100.0, 100.0), (33.333333, 100.0), (0.0, 50.0), (33.333333, 50.0), (100.0, 0.0)]
    found = dots(plane)
    assert sorted(found) == sorted(places)
    # two items; the side of a square is shorter than the diameter of a circle of its area
    assert {place for place, area in found.items() if area > 1.3 * min(found.values())} == {(0.0, 50.0)}
    assert (plane.get_xlabel(), plane.get_ylabel()) == ("tanh-rnn (n=3)", "linear-rnn (n=2)")
    assert plane.get_title().split("\n")[:2] == ["better on 4", "worse on 1"]
    assert lines(counts)["better"] == (pytest.approx([100 / 6, 50, 200 / 3]), [4, 3, 1])
    assert lines(counts)["worse"] == (pytest.approx([100 / 6, 50, 200 / 3, 100]), [1, 1, 1, 1])
    assert counts.get_xlabel() == "difference of at least [points]"
    assert "6 test items, by the test accuracy [%] of each" in caption(figure)
    assert "Note: linear-rnn: 1 run without per-item results" in caption(figure)
    assert misplaced(figure) == []
    assert len({tuple(side.get_facecolor()[0]) for side in plane.collections if len(side.get_offsets())}) == 3


def drawn(metric: str, count: int) -> ItemComparison:
    random = np.random.default_rng(count)
    values = random.exponential(size=(2, 12, count)) * random.lognormal(size=count)
    if metric == "accuracy":
        values = (values < 1.0).astype(float)
    name = "a-rung-with-a-name-of-forty-letters-in-all"
    return comparison(*values, name=name, lower_is_better=metric == "loss")


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
@pytest.mark.parametrize("count", [30, 10_000])
def test_every_item_is_in_one_dot_on_its_side_of_the_diagonal(metric: str, count: int) -> None:
    """Many items are counted in the cells of a grid."""
    pair = drawn(metric, count)
    cells = pair.cells
    assert len(cells.x) <= {"accuracy": 13 * 13, "loss": min(count, 24 * 24 + 24)}[metric]
    sides = np.sign(cells.x - cells.y if metric == "loss" else cells.y - cells.x)
    assert sides.tolist() == cells.sides.tolist()
    counts = [int(cells.counts[cells.sides == side].sum()) for side in (1, -1, 0)]
    assert counts == [pair.better, pair.worse, pair.equal]
    assert sum(counts) == count


@pytest.mark.slow
@pytest.mark.parametrize(("metric", "count"), [("loss", 30), ("accuracy", 10_000)])
def test_no_text_of_a_figure_is_cut_off_or_covered(metric: str, count: int) -> None:
    pair = drawn(metric, count)
    for panels in (1, 7):
        compared = compared_items.ComparedItems(
            instance=Instance(ladder="b", task="a"), title="e", result="test/x", what="test x", unit="", scale=1.0,
            comparisons=(pair,) * panels, notes=(),
        )  # fmt: skip
        for width in get_args(Width):
            assert misplaced(figure_files.draw(compared_items.figure(compared), width)) == []


def test_items_of_a_score_that_is_a_function_of_their_mean_are_on_their_own_scale(
    tmp_path: Path, sketched: list[Any]
) -> None:
    """As a perplexity, whose items are logarithms; and a score that lower is better for. An item has no weight."""
    machine = Machine(tmp_path)
    weights = np.array([1.0, 2.0, 0.0, 1.0])
    sums = {"tanh-rnn": [2.0, 2.0, 0.0, 0.5], "linear-rnn": [1.0, 4.0, 0.0, 0.25]}
    scores = {rung: [sum(found) / 4] for rung, found in sums.items()}
    fill(machine.ledger, "sSource", scores, more={"test/perplexity": 3.0})
    drawn = {}
    for name in ("test/bits_per_byte", "test/perplexity"):
        for rung, found in sums.items():
            result = ItemResults(test_set=items.TestSet(count=4, weights=weights), sums=np.array(found))
            record(machine.ledger, rung, [result], name, "sSource")
        machine.run("plot", "sSource", "--kind", "items", "--metric", name, "--out", "a.png")
        drawn[name] = sketched[-1]
    titles = [figure.axes[0].get_title().split("\n")[:2] for figure in drawn.values()]
    assert titles == [["better on 2", "worse on 1"], ["better on 1", "worse on 2"]]
    texts = [caption(figure) for figure in drawn.values()]
    assert "by the test bits per byte of each" in texts[0]
    assert "Without a finite mean, and not drawn: 1 item." in texts[0]
    assert "by the contribution to test/perplexity of each" in texts[1]
    assert "test/perplexity is no metric of the task: higher is counted as better" in texts[1]
    machine.run("plot", "sSource", "--kind", "items", "--out", "a.csv")
    with (tmp_path / "a.csv").open() as file:
        rows = [[row[name] for name in ("item", "weight", "mean", "other_mean")] for row in csv.DictReader(file)]
    assert rows == [
        ["0", "1.0", "1.0", "2.0"],
        ["3", "1.0", "0.25", "0.5"],
        ["1", "2.0", "2.0", "1.0"],
        ["2", "0.0", "", ""],
    ]


# Errors


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["--rung", "linear-rn"], 2, "did you mean 'linear-rnn'?"),
        (["--rung", "tanh-rnn"], 2, "--rung tanh-rnn: has no base to compare with"),
        (["--rung", "tanh-rnn", "--rung", "tanh-rnn"], 2, "--rung tanh-rnn: is named twice"),
        (["--rung", "tanh-rnn", "--rung", "linear-rnn", "--rung", "diagonal"], 2, "two rungs are compared, found 3"),
        (["--rung", "diagonal"], 2, "diagonal and linear-rnn have different test sets: other items, or another"),
        (["--rung", "linear-rnn", "--rung", "exponential"], 4, "no per-item results\nhint: lrurun verify --items --"),
        (["--rung", "ring-init"], 4, "ring-init: no run is finished\nhint: run: lrurun ladder sDigits"),
        (["--metric", "test/loss"], 4, "to draw\nhint: scores with per-item results: test/accuracy"),
        (["--metric", "test/accuracy", "--metric", "test/loss"], 2, "--metric: a figure shows one"),
        (["--kind", "ladder", "--rung", "linear-rnn"], 2, "--rung: is for --kind items, found --kind ladder"),
        (["--kind", "ladder", "--out", "a.csv"], 2, "--out a.csv: only --kind items writes its numbers"),
        (["--out", "a.json", "--plain"], 2, "--plain: is for pictures, found .json"),
        (["--out", "a.json", "--width", "page"], 2, "--width: is for pictures, found .json"),
        (["--out", "a.gif"], 2, "the name must end in .png, .svg, .pdf, .json or .csv, found '.gif'"),
        (["--out", "a.png", "--format", "csv"], 2, "--format csv and --out a.png are different formats"),
    ],
)  # fmt: skip
def test_errors_say_what_to_do_and_leave_no_file(
    words: list[str], code: int, error: str, filled: Machine, tmp_path: Path
) -> None:
    machine = Machine(tmp_path / "own")  # beside the files of a ledger that others read are theirs
    with contextlib.closing(sqlite3.connect(filled.ledger)) as source:
        with contextlib.closing(sqlite3.connect(machine.ledger)) as target:
            source.backup(target)
    before = machine.files()
    out = [] if "--out" in words else ["--out", "new.png"]
    assert error in machine.refused(*ITEMS, *words, *out, code=code)
    assert machine.files() == before


def test_without_any_items_it_says_how_to_get_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5], "linear-rnn": [0.6]})
    error = machine.refused(*ITEMS, "--out", "a.png", code=4)
    assert "no run has per-item results for test/accuracy, so there is nothing to draw\n" in error
    assert "hint: lrurun verify --items --instance sDigits evaluates kept checkpoints" in error
    for rung in ("tanh-rnn", "linear-rnn"):
        record(machine.ledger, rung, [ItemResults(test_set=items.TestSet(count=2), sums=np.ones(2))])
    machine.run(*ITEMS, "--out", "a.csv")
    with Ledger.open(machine.ledger) as ledger:
        ledger.drop_items(ledger.run_ids())
    assert "so there is nothing to draw: lrurun ledger gc --items removed them" in machine.refused(
        *ITEMS, "--out", "a.png", code=4
    )


def test_runs_of_one_rung_with_other_test_items_are_not_averaged(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    fill(machine.ledger, "sDigits", {"tanh-rnn": [1.0, 1.0], "linear-rnn": [1.0]})
    for rung, counts in (("tanh-rnn", (2, 3)), ("linear-rnn", (2,))):
        record(
            machine.ledger,
            rung,
            [ItemResults(test_set=items.TestSet(count=count), sums=np.ones(count)) for count in counts],
        )
    error = machine.refused(*ITEMS, "--out", "a.png")
    [second] = [run["id"] for run in machine.json("runs")["runs"] if (run["rung"], run["seed"]) == ("tanh-rnn", 1)]
    assert "tanh-rnn: its runs have different test sets: 2 and 3 items" in error
    machine.run("mark", second, "--exclude", "other test items")
    machine.run(*ITEMS, "--out", "a.csv")


# The browser view


def test_the_page_of_a_ladder_has_the_same_numbers_where_the_address_asks_for_them(
    filled: Machine, numbers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = View(filled.ledger, filled.runs)
    [address] = re.findall(r'<a href="(/ladders/\w+)">', view.page("/"))
    [pair] = numbers()["comparisons"]
    asked = view.page(f"{address}?items")
    assert "linear-rnn (n=2) ↑ beside tanh-rnn (n=3) →" in words(asked)
    assert f"better on 4, worse on 1, equal on 1; seeds alone: {pair['by_seeds_alone']:,.0f}" in words(asked)
    assert "not drawn: diagonal and linear-rnn have different test sets" in words(asked)
    [drawing] = re.findall(r'<div class="items">(.*?)</div>', asked, re.DOTALL)
    dots = {
        style: path.count("M") for style, path in re.findall(r'<path class="(gain|loss|same)" d="([^"]*)"', drawing)
    }
    assert dots == {"gain": 3, "loss": 1, "same": 1}
    # nothing of it is made for a page that is not asked for it
    monkeypatch.setattr(compared_items, "collect", None)
    page = view.page(address)
    assert f'href="{address}?items#test-items"' in page
    assert '<div class="items">' not in page
    with pytest.raises(TypeError):
        View(filled.ledger, filled.runs).page(f"{address}?items")


def test_a_page_without_items_says_how_to_get_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5], "linear-rnn": [0.6]})
    view = View(machine.ledger, machine.runs)
    [address] = re.findall(r'<a href="(/ladders/\w+)">', view.page("/"))
    page = words(view.page(f"{address}?items"))
    assert "no run has per-item results for test/accuracy" in page
    assert "lrurun verify --items --instance sDigits evaluates kept checkpoints" in page


def test_the_page_says_where_axes_are_logarithmic_and_on_which_side_lower_is_better(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    values = {"tanh-rnn": [8.0, 1.0, 0.5], "linear-rnn": [4.0, 2.0, 0.5]}
    fill(machine.ledger, "sSource", {rung: [float(np.mean(found))] for rung, found in values.items()})
    for rung, found in values.items():
        result = ItemResults(test_set=items.TestSet(count=3), sums=np.array(found))
        record(machine.ledger, rung, [result], "test/bits_per_byte", "sSource")
    view = View(machine.ledger, machine.runs)
    [address] = re.findall(r'<a href="(/ladders/\w+)">', view.page("/"))
    page = view.page(f"{address}?items")
    assert "better on 1, worse on 1, equal on 1; seeds alone: 1; logarithmic axes" in words(page)
    [x, y] = map(float, re.findall(r'<path class="gain" d="M([\d.]+),([\d.]+)a', page)[0])
    # 8 is at the right end, 4 three quarters of the way from 0.5 to 8 on a logarithmic axis
    assert (x, y) == (pytest.approx(184, abs=2), pytest.approx(184 - 0.75 * 168, abs=0.1))

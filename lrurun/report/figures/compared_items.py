"""The results of two rungs on each test item: on which items one is better than the other, and by how much."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from lrurun.config.instance import Instance, items_command
from lrurun.config.ladder import Ladder
from lrurun.config.planning import rung_names
from lrurun.errors import LrurunError, NotFoundError, UsageError, hint_for, plural
from lrurun.instances.phrases import read_again
from lrurun.items import ItemResults, Numbers, TestSet
from lrurun.judging.rung_runs import Note, RungRuns, note_on
from lrurun.judging.scores import form_of, metric_of_result
from lrurun.report.figures.figures import Curve, Figure, Panel, Scale, dashed, floats, suited

if TYPE_CHECKING:
    from lrurun.ledger.values import Run
    from lrurun.report.tables.loaded_instance import LoadedInstance

_DRAWS = 200
"""How many times seeds are exchanged at random between two rungs, for what seeds alone would do."""
_AT_ONCE = 2_000_000
"""Gains that are computed together."""
_PERCENTILES = (5, 95)
"""The ends of the band of what seeds alone would do."""
_CELLS = 24
"""Places on an axis at which items are counted, unless their results are shares of fewer seeds."""
_SINGLE = 400
"""The largest number of items that are drawn one by one."""
_SIZES = 60
"""The most sizes of a difference at which items are counted."""
_SAME = 1e-9
"""Means that differ by at most this share of the larger one are equal: with other numbers of seeds, means of equal
numbers may differ in their last bits."""
_LARGEST = 0.085
"""The diameter of the largest dot, as a share of the height of a panel."""
_ONE = 0.015
"""The diameter of the dot of one item, where items are where their means are."""


class RungItems(Struct, frozen=True, kw_only=True):
    """The results of a rung's runs on the items of a test set."""

    rung: str
    runs: tuple[str, ...]
    test_set: TestSet
    values: Numbers
    """(runs, items) the result of each run on each item: its mean where an item has a weight; NaN without weight."""

    @property
    def name(self) -> str:
        """The rung, with its number of seeds."""
        return f"{self.rung} (n={len(self.runs)})"


def of_rung(rung: str, results: Mapping[str, ItemResults]) -> RungItems:
    """The results of runs of a rung, by their ids.

    Raises:
        UsageError: they were not tested on the same items.
    """
    first = next(iter(results.values())).test_set
    for run, result in results.items():
        if difference := first.difference(result.test_set):
            what = f"{rung}: its runs have different test sets: {difference}"
            raise UsageError(what, f"leave runs out, as in: lrurun mark {run} --exclude 'other test items'")
    values = np.stack([result.sums for result in results.values()])
    if first.weights is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.where(first.weights > 0, values / first.weights, math.nan)
    return RungItems(rung=rung, runs=tuple(results), test_set=first, values=values)


class ItemComparison(Struct, frozen=True, kw_only=True, dict=True):
    """Two rungs on the items of their test set."""

    rung: RungItems
    other: RungItems
    """The rung that it is compared with."""
    lower_is_better: bool = False

    @cached_property
    def means(self) -> tuple[Numbers, Numbers]:
        """The mean over seeds of each item: of the rung, and of the other one."""
        return self.rung.values.mean(axis=0), self.other.values.mean(axis=0)

    @cached_property
    def gains(self) -> Numbers:
        """How much better the rung is than the other one on each item; 0 where they are equal."""
        return self._gains(*self.means)

    def _gains(self, mean: Numbers, other: Numbers) -> Numbers:
        gains = other - mean if self.lower_is_better else mean - other
        return np.where(np.abs(gains) <= _SAME * np.maximum(np.abs(mean), np.abs(other)), 0.0, gains)

    @property
    def better(self) -> int:
        """The number of items on which the rung is better than the other one."""
        return int((self.gains > 0).sum())

    @property
    def worse(self) -> int:
        return int((self.gains < 0).sum())

    @property
    def equal(self) -> int:
        return int((self.gains == 0).sum())

    @cached_property
    def is_right_or_wrong(self) -> bool:
        """Whether every result on an item is 0 or 1, so that the means are shares of seeds."""
        return all(bool(np.isin(side.values, (0.0, 1.0)).all()) for side in (self.rung, self.other))

    @cached_property
    def sizes(self) -> Numbers:
        """The sizes of a difference at which items are counted, from the smallest to the largest."""
        found = np.unique(np.abs(self.gains[np.isfinite(self.gains) & (self.gains != 0)]))
        steps = found[np.diff(found, prepend=0.0) > _SAME * found]
        return steps if len(steps) <= _SIZES else np.linspace(steps[-1] / _SIZES, steps[-1], _SIZES)

    def at_least(self, gains: Numbers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The number of items that are better, and that are worse, by at least each of `sizes`."""
        ordered = np.sort(gains[np.isfinite(gains)])
        bounds = self.sizes * (1 - 2 * _SAME)
        return len(ordered) - np.searchsorted(ordered, bounds), np.searchsorted(ordered, -bounds, side="right")

    @cached_property
    def changed_by_seeds(self) -> float:
        """The number of items on which either rung would be better, if the rungs were alike and seeds differed as these
        do: the mean over exchanges of the seeds of both rungs at random."""
        return float(np.mean([np.count_nonzero(gains) for gains in self._exchanged()])) / 2

    def by_seeds(self) -> SeedsAlone:
        """How many items would differ by how much, as `changed_by_seeds`."""
        counts = [side for gains in self._exchanged() for side in self.at_least(gains)]
        low, high = np.percentile(counts, _PERCENTILES, axis=0)
        return SeedsAlone(mean=np.mean(counts, axis=0), low=low, high=high)

    def _exchanged(self) -> Iterator[Numbers]:
        """The gains for every exchange of seeds."""
        finite = np.isfinite(self.gains)
        pooled = np.concatenate([side.values[:, finite] for side in (self.rung, self.other)])
        n, random = len(self.rung.runs), np.random.default_rng(0)
        is_rung = random.permuted(np.tile(np.arange(len(pooled)) < n, (_DRAWS, 1)), axis=1).astype(np.float64)
        for some in np.array_split(is_rung, -(-_DRAWS * pooled.shape[1] // _AT_ONCE) or 1):
            yield from self._gains(some @ pooled / n, (1 - some) @ pooled / (len(pooled) - n))

    @cached_property
    def cells(self) -> Cells:
        """Where the items are in the plane of the means of both rungs."""
        finite = np.isfinite(self.gains)
        y, x = (mean[finite] for mean in self.means)
        scale: Scale = "linear"
        if not self.is_right_or_wrong and len(x):
            scale = suited([float(np.min([x, y])), float(np.max([x, y]))])
        seeds = [len(side.runs) for side in (self.rung, self.other)]
        sides, steps = np.sign(self.gains[finite]), 0
        if self.is_right_or_wrong and max(seeds) <= _CELLS:
            steps = min(seeds)
        elif len(x) > _SINGLE:
            steps = _CELLS
            x, y = _in_cells(x, y, scale)
        points, counts = np.unique(np.stack([x, y, sides]), axis=1, return_counts=True)
        return Cells(x=points[0], y=points[1], sides=points[2], counts=counts, steps=steps, scale=scale)

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest mean that axes have."""
        if self.is_right_or_wrong or not len(self.cells.x):
            return 0.0, 1.0
        means = np.concatenate([self.cells.x, self.cells.y])
        return float(np.min(means)), float(np.max(means))


class SeedsAlone(Struct, frozen=True, kw_only=True):
    """The changes that seeds alone would make."""

    mean: Numbers
    low: Numbers
    high: Numbers
    """The number of items that are better by at least each size of a difference: its mean, and the ends of a band that
    has 90 % of all draws."""


class Cells(Struct, frozen=True, kw_only=True):
    """Places in the plane of the means of two rungs, with the number of items at each."""

    x: Numbers
    """Of the rung that is compared with."""
    y: Numbers
    sides: Numbers
    """1 where the rung is better, -1 where it is worse, 0 where both are equal."""
    counts: NDArray[np.int64]
    steps: int
    """How many steps an axis has; 0 if items are where their means are."""
    scale: Scale

    def diameters(self) -> Numbers:
        """The diameters of dots, as shares of the height: areas grow with the square root of the number of items, so
        that one item can be seen beside thousands."""
        most = max(self.most, 4)
        room = 0.95 / (self.steps + 1) if self.steps else _ONE * most**0.25
        diameters: Numbers = min(_LARGEST, room) * (self.counts / most) ** 0.25
        return diameters

    @property
    def most(self) -> int:
        """The largest number of items at one point."""
        return int(np.max(self.counts, initial=0))


def _in_cells(x: Numbers, y: Numbers, scale: Scale) -> tuple[Numbers, Numbers]:
    """Both means, each at the middle of its cell on an axis that has all of them; in cells on the diagonal, on their
    side of it."""
    if scale == "log":
        x, y = np.log(x), np.log(y)
    low = float(np.min([x, y]))
    width = (float(np.max([x, y])) - low) / _CELLS or 1.0
    across, up = (np.minimum((values - low) // width, _CELLS - 1) for values in (x, y))
    aside = np.where(across == up, 0.3 * np.sign(y - x), 0.0)
    x, y = low + width * (across + 0.5 - aside), low + width * (up + 0.5 + aside)
    return (np.exp(x), np.exp(y)) if scale == "log" else (x, y)


# The comparisons of an instance


class ComparedItems(Struct, frozen=True, kw_only=True):
    """Comparisons of the rungs of an instance on the items of their test set."""

    instance: Instance
    title: str
    result: str
    """The name of the score, as in "test/accuracy"."""
    what: str
    """What a mean of an item is, as in "test accuracy [%]"."""
    unit: str
    """The unit of differences of means, as in "points"; empty without one."""
    scale: float
    """What means are multiplied by in figures."""
    comparisons: tuple[ItemComparison, ...]
    notes: tuple[Note, ...]


def collect(
    loaded: LoadedInstance, command: str, result: str | None = None, rungs: Sequence[str] = ()
) -> ComparedItems:
    """The comparisons of an instance: of every rung with its base, of one rung with its base, or of the second of two
    rungs with the first.

    Args:
        command: trains the instance.
        result: the score whose items are compared; None is the test score of the task.

    Raises:
        UsageError: there are no such rungs, or they have no test set in common.
        NotFoundError: no run, or runs of one rung only, have per-item results.
    """
    plan, ledger = loaded.plan, loaded.ledger
    pairs = _pairs(plan.ladder, rungs)
    metric = plan.task.metric if result is None else metric_of_result(result, plan.task.metrics)
    form = form_of(metric or plan.task.metric)
    result = result or form.result
    selected, notes = loaded.counted(metric)
    runs = {run.id: run for some in selected.values() for run in some.counted}
    if not runs:
        raise NotFoundError(
            f"{loaded.identity.label}: no run is finished, so there is nothing to draw", f"run: {command}"
        )
    recorded = ledger.items(list(runs), result)
    if not recorded:
        raise _none_recorded(loaded, result, list(runs.values()))
    comparisons, refused, to_record = [], list[LrurunError](), _to_record(loaded, result)
    for other, rung in pairs:
        try:
            pair = _pair(selected[rung], selected[other], rung, other, recorded, command, to_record)
        except (UsageError, NotFoundError) as error:
            refused.append(error)
        else:
            lower = metric is not None and not metric.higher_is_better
            comparisons.append(ItemComparison(rung=pair[0], other=pair[1], lower_is_better=lower))
    if not comparisons:
        raise refused[0]
    if metric is None:
        notes.append(Note(f"{result} is no metric of the task: higher is counted as better"))
    for rung in dict.fromkeys(side.rung for pair in comparisons for side in (pair.other, pair.rung)):
        if lost := [run.id for run in selected[rung].counted if run.id not in recorded]:
            notes.append(note_on(lost, "without per-item results", rung))
    if refused:
        notes.append(Note(f"not drawn: {'; '.join(error.message for error in refused)}"))
    # a score that is a function of the mean over items, as a perplexity, is on another scale than its items
    is_mean = all(
        math.isclose(items.mean, (runs[run].result or {}).get(result, math.nan), rel_tol=1e-4, abs_tol=1e-6)
        for run, items in recorded.items()
    )
    is_score = metric is not None and is_mean
    return ComparedItems(
        instance=loaded.identity,
        title=loaded.identity.title(f"test items, {plan.ladder.title}"),
        result=result,
        what=form.on_test(form.axis) if is_score else f"contribution to {result}",
        unit=form.unit if is_score else "",
        scale=form.scale if is_score else 1.0,
        comparisons=tuple(comparisons),
        notes=tuple(notes),
    )


def _pairs(ladder: Ladder, rungs: Sequence[str]) -> list[tuple[str, str]]:
    """The rungs to compare: base, rung."""
    rung_names(ladder, rungs)  # a wrong name is an error
    if len(rungs) > 2:
        raise UsageError(f"--rung: two rungs are compared, found {len(rungs)}", "name a rung and its base, or any two")
    if len(rungs) == 2 and rungs[0] == rungs[1]:
        raise UsageError(f"--rung {rungs[0]}: is named twice", "name another rung, or leave one out")
    if len(rungs) == 2:
        return [(rungs[0], rungs[1])]
    pairs = [(base, rung) for rung, base in ladder.bases.items() if base is not None and (not rungs or rung in rungs)]
    if not pairs and rungs:
        raise UsageError(f"--rung {rungs[0]}: has no base to compare with", f"name two: --rung {rungs[0]} --rung OTHER")
    if not pairs:
        raise UsageError(f"ladder {ladder.name}: has one rung, and two are compared", "add one with on = its base")
    return pairs


def _pair(
    runs: RungRuns,
    others: RungRuns,
    rung: str,
    other: str,
    recorded: Mapping[str, ItemResults],
    command: str,
    to_record: str,
) -> tuple[RungItems, RungItems]:
    """The items of two rungs.

    Raises:
        UsageError: they have the same runs, or other test sets.
        NotFoundError: one has no per-item results.
    """
    if runs.rung == others.rung:
        raise UsageError(f"{rung} has the same runs as {other}", "name other rungs: --rung A --rung B")
    sides = []
    for name, some in ((rung, runs), (other, others)):
        if not some.counted:
            raise NotFoundError(f"{name}: no run is finished", f"run: {command}")
        results = {run.id: recorded[run.id] for run in some.counted if run.id in recorded}
        if not results:
            raise NotFoundError(f"{name}: its runs have no per-item results", to_record)
        sides.append(of_rung(name, results))
    first, second = (side.test_set for side in sides)
    if difference := first.difference(second):
        raise UsageError(f"{rung} and {other} have different test sets: {difference}", "compare rungs with the same")
    return sides[0], sides[1]


def _to_record(loaded: LoadedInstance, result: str) -> str:
    """How runs of an instance get per-item results."""
    if not loaded.plan.is_trained_here:
        return (
            f"name them as items in [import], if the score is a mean over them; then: {read_again(loaded.plan.recipe)}"
        )
    if loaded.plan.kind == "program":
        logged = f"if it is a mean over items, log them in the program, as in: run.log_items({result!r}, values)"
        return f"{logged}; then train again, with --fresh"
    command = items_command(loaded.instance.short_name)
    return f"{command} evaluates kept checkpoints; runs that are trained with --fresh record them"


def _none_recorded(loaded: LoadedInstance, result: str, runs: Sequence[Run]) -> LrurunError:
    ids = [run.id for run in runs]
    message = f"{loaded.identity.label}: no run has per-item results for {result}, so there is nothing to draw"
    hint = _to_record(loaded, result)
    if loaded.ledger.items_removed(ids, result):
        message += ": lrurun ledger gc --items removed them"
    if others := loaded.ledger.item_names(ids):
        hint = hint_for(result, others, "scores with per-item results")
    elif loaded.plan.is_of_models:
        hint += "; a score that is no mean over items has none"
    return NotFoundError(message, hint)


# The figure


def figure(compared: ComparedItems) -> Figure:
    """A panel for each comparison; of one alone, also how many items differ by how much."""
    pairs = compared.comparisons
    panels = [_plane(pair, compared.scale) for pair in pairs]
    if len(pairs) == 1:
        panels.append(_counts(pairs[0], compared))
    return Figure(
        panels=tuple(panels),
        columns=1 if len(pairs) == 1 else 2,
        title=compared.title,
        caption=caption(compared, band=len(pairs) == 1),
    )


def caption(compared: ComparedItems, *, band: bool = False) -> str:
    """What the dots are; with `band`, also what the band of their counts is."""
    counts = {len(pair.gains) for pair in compared.comparisons}
    most = max(pair.cells.most for pair in compared.comparisons)
    number = f"{counts.pop():,} test items" if len(counts) == 1 else "Test items"
    sentences = [
        f"{number}, by the {compared.what} of each: means over n seeds.",
        "Better and worse are about the rung on the vertical axis.",
    ]
    if most > 1:
        sentences.append(f"The area of a dot grows with the square root of its number of items, at most {most:,}.")
    draws = "; band: 90 % of the draws" if band else ""
    sentences.append(
        "Seeds alone: how many are better, and how many worse, on average when the seeds of both rungs are exchanged "
        f"at random{draws}."
    )
    if lost := sum(int((~np.isfinite(pair.gains)).sum()) for pair in compared.comparisons):
        sentences.append(f"Without a finite mean, and not drawn: {plural(lost, 'item')}.")
    return " ".join([*sentences, *(f"Note: {note}." for note in compared.notes)])


_LEAST = 0.5
"""Smaller numbers of items are not drawn: their axis may be logarithmic."""
_SIDES = ((1, "better"), (-1, "worse"), (0, "equal"))


def _plane(pair: ItemComparison, scale: float) -> Panel:
    """The items in the plane of the means of both rungs, with the line on which they are equal."""
    cells = pair.cells
    x, y, diameters = scale * cells.x, scale * cells.y, cells.diameters()
    ends = tuple(scale * end for end in pair.ends)
    curves = [Curve(label="", style="dashed", grey=True, x=ends, y=ends)]
    for side, label in _SIDES:
        chosen = cells.sides == side
        curves.append(
            Curve(
                label=label,
                style="points",
                x=floats(x[chosen]),
                y=floats(y[chosen]),
                diameters=floats(diameters[chosen]),
                grey=side == 0,
            )
        )
    return Panel(
        title=f"better on {pair.better:,}\nworse on {pair.worse:,}\nseeds alone: {pair.changed_by_seeds:,.0f}",
        x=pair.other.name,
        y=pair.rung.name,
        curves=tuple(curves),
        x_scale=cells.scale,
        y_scale=cells.scale,
        square=True,
    )


def _counts(pair: ItemComparison, compared: ComparedItems) -> Panel:
    """How many items are better, and how many are worse, by at least the sizes of a difference."""
    sizes, alone = compared.scale * pair.sizes, pair.by_seeds()
    curves = []
    for label, counts in zip(("better", "worse"), pair.at_least(pair.gains), strict=True):
        seen = counts > 0
        curves.append(Curve(label=label, style="points", x=floats(sizes[seen]), y=floats(counts[seen])))
    seen = alone.high >= 1
    mean = np.where(alone.mean < _LEAST, math.nan, alone.mean)[seen]
    low, high = np.maximum(alone.low[seen], _LEAST), alone.high[seen]
    curves.append(dashed("seeds alone", sizes[seen], mean, low=floats(low), high=floats(high), grey=True))
    unit = f" [{compared.unit}]" if compared.unit else ""
    scale = suited(y for curve in curves for y in curve.y)
    return Panel(x=f"difference of at least{unit}", y="items", curves=tuple(curves), y_scale=scale)

"""The rows of a ladder's table: scores, also on further tests and at slots, the step at which runs left a plateau."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from lrurun.config.ladder import Published
from lrurun.config.resolve import RateSource
from lrurun.data.metric import ESCAPE, SLOT
from lrurun.judging import statistics
from lrurun.judging.rung_runs import between
from lrurun.judging.samples import Sample
from lrurun.judging.verdicts import CONTRADICTED, SUPPORTED, Comparison
from lrurun.ledger.values import FINISHED

if TYPE_CHECKING:
    from lrurun.ledger.values import Run


class FurtherScore(Struct, frozen=True, kw_only=True):
    """The score of a rung on a further test, such as longer sequences: over the seeds that its mean is over."""

    test: str
    """The name of the further test, for example "256" of the result "test@256/accuracy"."""
    n: int
    """Seeds with a finite score."""
    mean: float | None
    stderr: float | None


class SlotScore(Struct, frozen=True, kw_only=True):
    """The test accuracy of a rung at one slot, see `lrurun.data.metric.WorstSlot`."""

    slot: int
    n: int
    mean: float | None
    stderr: float | None


class OtherRun(Struct, frozen=True, kw_only=True):
    """A run that is not counted."""

    id: str
    state: str
    reason: str = ""
    """Why it is missing, if it is an imported run."""


CHANGES = {SUPPORTED: "helps", CONTRADICTED: "hurts"}
"""The verdict on the question whether a change makes the rung better -> that on the change."""


class LadderRow(Struct, frozen=True, kw_only=True):
    """A rung. Scores and differences are as the metric has them, not scaled."""

    rung: str
    title: str
    on: str | None
    """The base rung; the first rung has none."""
    branches: bool
    """Whether its base is not the previous rung."""
    n: int
    """Finished seeds with a finite score: those that the mean is over."""
    mean: float | None
    stderr: float | None
    diverged: int
    failed: int
    unfinished: int
    left_out: int = 0
    """Runs that have other settings than the rung has now, or code that cannot be compared."""
    parameters: int | None
    steps_per_second: float | None
    """Median over the finished seeds."""
    steps: int | None = None
    """The largest number of training steps of its counted runs; None where none is counted."""
    learning_rate: float | None
    """The learning rate of its runs, or the planned one; None where tuning has yet to choose it."""
    rate_source: RateSource | None
    """The source of the learning rate; None where it is not known."""
    published: tuple[Published, ...]
    runs: tuple[str, ...]
    """Ids that n counts, in order of their seeds."""
    scores: tuple[float, ...]
    """The test scores of these runs, in the same order."""
    other_runs: tuple[OtherRun, ...]
    same_as_before: bool
    """Whether the base rung has the same settings, and so the same runs."""
    code_versions: tuple[str, ...]
    numerics: tuple[int, ...]
    """The numerics versions of the counted runs."""
    test_selected: bool
    """Whether a counted model was selected on the test split."""
    verdict: str = ""
    """The verdict on the change to the base: helps, hurts, undecided, not run, base not run, not judged, same runs;
    empty without a base."""
    comparison: Comparison | None = None
    """The comparison with the base rung; None where there is none. In a sequential design, it is of the seeds of its
    look."""
    paper: Comparison | None = None
    """The comparison with the base rung by the paper's own numbers, where it has any."""
    learning: int | None = None
    """Seeds that learn, of `ranked` ones; None where chance is not known."""
    failure_bound: float | None = None
    """The 95 % upper bound of the rate at which seeds fail to learn; where that is not known, to finish."""
    improving: int = 0
    """Finished seeds whose best validation score is of the last step."""
    untuned: tuple[str, ...] = ()
    """The rungs, of this one and its base, whose learning rate is the recipe's default: the verdict is about that
    rate."""
    further_tests: tuple[FurtherScore, ...] = ()
    """The scores on further tests, such as longer sequences."""
    slots: tuple[SlotScore, ...] = ()
    """The test accuracy by slot, where the task records it."""
    escape_step: float | None = None
    """The median step at which runs left their plateau, of those that did."""
    escaped: int | None = None
    """How many of the finished runs left it; None where that is not recorded."""
    unscored: int = 0
    """Seeds that finished without a usable score: they rank as diverged ones do."""
    infinite: int = 0
    """Seeds whose score is an infinity of the better sign, an error of the metric: nothing is judged with them."""

    score_item_error: float | None = None
    """The standard error of the score of one of its runs from the choice of test items alone; None where that is not
    known."""
    missing: int = 0
    """Imported runs without a result, which are also counted as failed or unfinished: they crashed, were killed or did
    not end."""
    removed: int = 0
    """Runs that had begun and were forgotten, or left out of this copy of a part of a ledger."""

    @property
    def on_these_items(self) -> str:
        """The verdict on the change for these test items, where that for others is undecided: helps, hurts; else
        empty."""
        return "" if self.comparison is None else CHANGES.get(self.comparison.verdict_on_these_items, "")

    @property
    def ranked(self) -> int:
        """Seeds that verdicts count: those with a score, and those that diverged or have no usable one."""
        return self.n + self.diverged + self.unscored

    @property
    def asked(self) -> int:
        """Seeds whose results are or would be counted: the ranked ones, those with an infinite score, missing ones."""
        return self.ranked + self.infinite + self.missing

    @property
    def finished_otherwise(self) -> list[str]:
        """The runs that are finished and not counted, by their ids."""
        return [run.id for run in self.other_runs if run.state in FINISHED]

    @property
    def still_improving(self) -> bool:
        """Whether most of its seeds might score better with more steps."""
        return 2 * self.improving > self.n


Row = TypeVar("Row", bound=LadderRow)


def with_fewest_lost(rows: Iterable[Row]) -> list[Row]:
    """The rows with the fewest seeds that diverged or have no usable score, of those with a mean: a mean is not the
    best because the bad seeds leave it."""
    scored = [row for row in rows if row.mean is not None]
    least = min((row.ranked - row.n for row in scored), default=0)
    return [row for row in scored if row.ranked - row.n == least]


def score_item_error(sample: Sample) -> float | None:
    """The standard error of a score from the choice of test items, in a typical run with a score."""
    scored = sample.n - sample.without_score
    if sample.items is None or not scored:
        return None
    return math.hypot(*map(float, sample.items.errors[:scored])) / math.sqrt(scored)


def further_tests(runs: Sequence[Run], metric: str) -> tuple[FurtherScore, ...]:
    """The scores on further tests, in the order of the results: "test@NAME/accuracy" for "test/accuracy"."""
    split, _, name = metric.partition("/")
    collected = _collected(runs, lambda key: between(key, f"{split}@", f"/{name}"))
    return tuple(
        FurtherScore(test=test, n=len(scores), mean=statistics.mean(scores), stderr=statistics.stderr(scores))
        for test, scores in collected.items()
    )


def slots(runs: Sequence[Run]) -> tuple[SlotScore, ...]:
    """The scores of the slots of the test split, in their order."""
    collected = _collected(runs, lambda key: between(key, f"test/{SLOT}", ""))
    return tuple(
        SlotScore(slot=int(slot), n=len(scores), mean=statistics.mean(scores), stderr=statistics.stderr(scores))
        for slot, scores in sorted(collected.items(), key=lambda item: int(item[0]))
    )


def escapes(runs: Sequence[Run]) -> tuple[float | None, int | None]:
    """The median step at which runs left the plateau, and how many did; None where none records it."""
    steps = [step for run in runs if (step := (run.result or {}).get(ESCAPE)) is not None]
    escaped = [step for step in steps if math.isfinite(step)]
    return (statistics.median(escaped), len(escaped)) if steps else (None, None)


def _collected(runs: Sequence[Run], name_of: Callable[[str], str]) -> dict[str, list[float]]:
    """Name -> the finite results of the runs with it; results that `name_of` gives no name are left out."""
    collected: dict[str, list[float]] = {}
    for run in runs:
        for key, score in (run.result or {}).items():
            if name := name_of(key):
                scores = collected.setdefault(name, [])
                scores += [score] * math.isfinite(score)
    return collected


def every_slot(rows: Iterable[tuple[SlotScore, ...]]) -> tuple[int, ...]:
    """The slots that any of these rows has."""
    return tuple(sorted({slot.slot for row in rows for slot in row}))

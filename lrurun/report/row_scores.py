"""What a row of a ladder's table has beside its score: other settings, slots, the step at which a plateau was left."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from lrurun.data.metric import ESCAPE, SLOT
from lrurun.report.judging import statistics
from lrurun.report.rung_runs import between

if TYPE_CHECKING:
    from lrurun.ledger.values import Run


class SettingScore(Struct, frozen=True, kw_only=True):
    """The test score of a rung in another setting, such as longer sequences: over the seeds that its mean is over."""

    setting: str
    """As in "256" of the result "test@256/accuracy"."""
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


def settings(runs: Sequence[Run], metric: str) -> tuple[SettingScore, ...]:
    """The scores in other settings, in the order of the results: those of "test@NAME/accuracy" for "test/accuracy"."""
    split, _, name = metric.partition("/")
    found = _collected(runs, lambda key: between(key, f"{split}@", f"/{name}"))
    return tuple(
        SettingScore(setting=setting, n=len(scores), mean=statistics.mean(scores), stderr=statistics.stderr(scores))
        for setting, scores in found.items()
    )


def slots(runs: Sequence[Run]) -> tuple[SlotScore, ...]:
    """The scores of the slots of the test split, in their order."""
    found = _collected(runs, lambda key: between(key, f"test/{SLOT}", ""))
    return tuple(
        SlotScore(slot=int(slot), n=len(scores), mean=statistics.mean(scores), stderr=statistics.stderr(scores))
        for slot, scores in sorted(found.items(), key=lambda one: int(one[0]))
    )


def escapes(runs: Sequence[Run]) -> tuple[float | None, int | None]:
    """The median step at which runs left the plateau, and how many did; None where none records it."""
    steps = [step for run in runs if (step := (run.result or {}).get(ESCAPE)) is not None]
    left = [step for step in steps if math.isfinite(step)]
    return (statistics.median(left), len(left)) if steps else (None, None)


def _collected(runs: Sequence[Run], name_of: Callable[[str], str]) -> dict[str, list[float]]:
    """Name -> the finite results of the runs with it; results that `name_of` gives no name are left out."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for key, score in (run.result or {}).items():
            if name := name_of(key):
                scores = found.setdefault(name, [])
                scores += [score] * math.isfinite(score)
    return found


def every_slot(rows: Iterable[tuple[SlotScore, ...]]) -> tuple[int, ...]:
    """The slots that any of these rows has."""
    return tuple(sorted({one.slot for row in rows for one in row}))

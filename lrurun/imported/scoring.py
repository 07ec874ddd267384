"""The state, the seed and the score of an imported run, by the table `[import]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from lrurun.ledger.values import State

if TYPE_CHECKING:
    from lrurun.config.imported import ImportTable
    from lrurun.trackers import Curve, TrackedRun


class ScoredRun(Struct, frozen=True, kw_only=True):
    """A tracked run as the table `[import]` reads it."""

    run: TrackedRun
    """Without curves."""
    tracker: str
    """The name of its reader."""
    seed: int | None
    """The value of its seed setting; None where the table names none, or the run has none."""
    state: State
    """"done" or "diverged": a result; "failed" (it crashed) or "interrupted" (not known to have ended): missing."""
    result: dict[str, float] | None
    """The score, as in "test/acc"; "val/acc" of the metric for choice, "best_step"."""
    step: int
    """The last step that it reached; 0 where it has no steps."""
    why: str = ""
    """Why it has no result."""


def scored(run: TrackedRun, tracker: str, table: ImportTable) -> ScoredRun:
    """The state, seed and score of a run whose curves of the score and of the metric for choice were read.

    Raises:
        UsageError: a seed that is no whole number.
    """
    raise NotImplementedError


def recorded_curves(run: TrackedRun, table: ImportTable) -> dict[str, Curve]:
    """The curves of a run as a ledger has them: the score and the metric for choice under the names of the result, and
    one value for each step, in order: of several, the one that was recorded last."""
    raise NotImplementedError

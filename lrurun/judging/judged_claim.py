"""A claim of a paper with a verdict on it: the one form in which reports, `lrurun claims`, studies and benchmarks have
it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from lrurun.config.ladder import Claim
from lrurun.judging import wording
from lrurun.judging.verdicts import CONTRADICTED, JUDGED, NOT_COMPARABLE, OPEN, SUPPORTED, Comparison

Judge = Literal["runs", "paper", "study", "bench"]
"""What a verdict is from: the runs of a ladder, the paper's own numbers, the results of a study, speeds measured in
turns."""


class JudgedClaim(Comparison, frozen=True, kw_only=True):
    """A claim on a task, as one judge sees it.

    `lrurun claims` has it by the paper's own numbers with the other verdict in `here`; a report has it by runs with the
    other comparison in `paper`.
    """

    by: Judge
    text: str
    source: str
    ladder: str = ""
    task: str = ""
    detail: str = ""
    """The numbers in words, or what would decide it."""
    profile: str | None = None
    instance: str | None = None
    """The key of the ladder instance whose runs judge."""
    stand_in: bool = False
    """Whether task, data or scale differ from the paper's."""
    difference_p: float | None = None
    """Adjusted p of the difference, beside a claim with a margin."""
    untuned: tuple[str, ...] = ()
    """The rungs of the claim whose learning rate is the recipe's default."""
    improving: tuple[str, ...] = ()
    """The rungs of the claim that score best at the last step in most seeds."""
    removed: int = 0
    """Runs of its rungs that were forgotten, or left out of this copy of a part of a ledger."""
    paper: Comparison | None = None
    """The comparison by the paper's own numbers on this task."""
    here: JudgedClaim | None = None
    """The claim by the runs or studies of a ledger, or why they do not judge it."""
    elsewhere: Mapping[str, str] = {}
    """Task of the claim -> verdict by the paper's own numbers, for a stand-in."""
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    """The ratio of training speeds of a claim about them, measured in turns, and its interval."""
    paper_ratio: float | None = None
    """The ratio of the published speeds of a claim about speed."""

    @property
    def ours(self) -> JudgedClaim:
        """The claim by runs or studies: itself in a report, `here` in `lrurun claims`."""
        return self if self.here is None else self.here

    @property
    def shown(self) -> str:
        """The verdict, as reports and `lrurun claims` print it."""
        if self.here is not None:
            return self.here.verdict
        return NOT_COMPARABLE if self.same_runs else self.verdict

    @property
    def mark(self) -> str:
        """The mark after the verdict that qualifies it.

        In a report it says that the paper makes the claim on other tasks only, and where the verdict on these test
        items is another one. In `lrurun claims`, which shows nothing else of the runs, it has all cautions.
        """
        if self.here is not None:
            marks = list(self.here.cautions)
        else:
            marks = ["stand-in task"] if self.stand_in and self.shown in JUDGED else []
            marks += filter(None, [wording.on_these_items(self.verdict_on_these_items)])
        joined = (", " if self.here is not None else "; ").join(marks)
        return f" ({joined})" if marks else ""

    @property
    def cautions(self) -> tuple[str, ...]:
        """What changes the reading of the verdict, in a word or two each."""
        is_judged = self.verdict not in OPEN
        is_of_these = self.items_known == "unknown" and self.verdict in (SUPPORTED, CONTRADICTED)
        cautions = {
            "stand-in": self.stand_in and is_judged,
            "runs removed": self.removed > 0,
            "profile smoke": self.profile == "smoke" and is_judged,
            "provisional": self.provisional,
            "on these items": is_of_these,
            wording.on_these_items(self.verdict_on_these_items): bool(self.verdict_on_these_items),
        }
        return tuple(caution for caution, holds in cautions.items() if holds)

    @property
    def is_of_study(self) -> bool:
        """Whether it is about the figure of a study: its text is all that is claimed."""
        return self.ours.by == "study"


def without_numbers(
    claim: Claim, ladder: str, task: str, *, by: Judge, verdict: str, reason: str = "", detail: str = ""
) -> JudgedClaim:
    """A claim of a ladder that nothing is known of but why it is not judged."""
    return JudgedClaim(
        by=by,
        ladder=ladder,
        task=task,
        text=claim.text,
        source=claim.source,
        kind=claim.kind,
        rung=claim.rung,
        other=claim.than,
        margin=claim.margin_on(task) or None,
        verdict=verdict,
        reason=reason,
        detail=detail,
    )

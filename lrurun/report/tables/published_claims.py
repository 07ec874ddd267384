"""The claims of ladders by their papers' own numbers: a line for each claim and task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import structs

from lrurun.config.ladder import Claim, Ladder
from lrurun.data import tasks
from lrurun.judging import published, questions, wording
from lrurun.judging.scores import ScoreForm, of_task
from lrurun.judging.verdicts import NOT_JUDGED, Comparison, Question

HEADERS = ("ladder", "task", "claim", "difference [95 %]", "p", "by the paper's own numbers")


class PublishedClaim(Comparison, frozen=True, kw_only=True):
    """A claim on a task, judged from the paper's numbers."""

    ladder: str
    task: str
    text: str
    source: str
    difference_p: float | None = None
    """Adjusted p of the difference, beside a claim with a margin."""
    paper_ratio: float | None = None
    """The published speed of the rung over that of the other, of a claim about speed."""

    @property
    def statement(self) -> str:
        """The comparison in words, for example "lru within 0.5 points of s5"."""
        return _statement(self, _form(self))


def collect(
    ladders: Sequence[Ladder],
    task: str | None = None,
    profiles: Mapping[str, str | None] = MappingProxyType({}),
) -> list[PublishedClaim]:
    """The claims of these ladders on the registered tasks that they name; on one, or on all.

    Args:
        profiles: task -> the profile whose numbers judge, if the paper has such; else those of the plain recipe do.
    """
    collected: list[PublishedClaim] = []
    for ladder in ladders:
        for name in tasks.TASKS if task is None else [task]:
            judged = published.judge(ladder, name, profiles.get(name))
            collected += [_judged(ladder, claim, name, judged) for claim in ladder.claims if name in claim.tasks]
    return collected


def _judged(ladder: Ladder, claim: Claim, task: str, judged: dict[Question, Comparison]) -> PublishedClaim:
    def stated(comparison: Comparison, beside: float | None = None, ratio: float | None = None) -> PublishedClaim:
        about = {"ladder": ladder.name, "task": task, "text": claim.text, "source": claim.source}
        return PublishedClaim(**{**structs.asdict(comparison), **about, "difference_p": beside, "paper_ratio": ratio})

    nothing = Comparison(
        kind=claim.kind,
        rung=claim.rung,
        other=claim.than,
        margin=claim.margin_on(task) or None,
        verdict=NOT_JUDGED,
        reason="no numbers",
    )
    if claim.is_about_speed:
        ratio, device = published.speed_ratio(ladder, claim, task) or (None, "")
        reason = nothing.reason if ratio is None else f"{ratio:.1f} times on one {device}, no spread is given"
        return stated(structs.replace(nothing, reason=reason), ratio=ratio)
    question, *difference = questions.of_claim(claim, task)
    beside = judged.get(difference[0], nothing).p_adjusted if difference else None
    return stated(judged.get(question, nothing), beside)


def cells(claim: PublishedClaim) -> list[str]:
    """A line of the table."""
    difference = wording.difference_with_interval(claim, _form(claim), short=True)
    return [claim.ladder, claim.task, claim.statement, difference, _p(claim), _verdict(claim)]


def _form(claim: PublishedClaim) -> ScoreForm:
    # a task of imported arrays, or of a plug-in, may not be here: then its metric is in the claim
    return of_task(claim.task, [f"val/{claim.metric}"] if claim.metric and claim.task not in tasks.TASKS else [])


def _statement(claim: PublishedClaim, form: ScoreForm) -> str:
    margin = "" if claim.margin is None else f"{form.short(claim.margin)} {form.unit}"
    relation = {
        "better": f"better than {claim.other}",
        "faster": f"faster than {claim.other}",
        "as-fast": f"at most {100 * (claim.margin or 0):.0f} % slower than {claim.other}",
        "no-worse": f"at most {margin} worse than {claim.other}",
        "equal": f"within {margin} of {claim.other}",
        "at-chance": f"within {margin} of chance",
        "above-chance": f"{f'more than {margin} ' if claim.margin else ''}above chance",
    }[claim.kind]
    return f"{claim.rung} {relation}"


def _p(claim: PublishedClaim) -> str:
    return "" if claim.p_adjusted is None else wording.p_number(claim.p_adjusted)


def _verdict(claim: PublishedClaim) -> str:
    beside = "" if claim.difference_p is None else f" ({wording.of_difference(claim.difference_p)})"
    return f"{claim.verdict}: {claim.reason}" if claim.reason else claim.verdict + beside

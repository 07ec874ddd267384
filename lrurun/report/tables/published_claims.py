"""The claims of ladders by their papers' own numbers: a line for each claim and task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import structs

from lrurun import data as tasks
from lrurun.config.ladder import Claim, Ladder
from lrurun.report.judging import claims, published, questions
from lrurun.report.judging.verdicts import NOT_JUDGED, Comparison, Question
from lrurun.report.scores import ScoreForm, of_task

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
    """The published speed of the rung over that of the other, of a claim "faster"."""

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
    found: list[PublishedClaim] = []
    for ladder in ladders:
        for name in tasks.TASKS if task is None else [task]:
            judged = published.judge(ladder, name, profiles.get(name))
            found += [_judged(ladder, claim, name, judged) for claim in ladder.claims if name in claim.tasks]
    return found


def _judged(ladder: Ladder, claim: Claim, task: str, judged: dict[Question, Comparison]) -> PublishedClaim:
    def made(one: Comparison, beside: float | None = None, ratio: float | None = None) -> PublishedClaim:
        about = {"ladder": ladder.name, "task": task, "text": claim.text, "source": claim.source}
        return PublishedClaim(**{**structs.asdict(one), **about, "difference_p": beside, "paper_ratio": ratio})

    nothing = Comparison(
        kind=claim.kind,
        rung=claim.rung,
        other=claim.than,
        margin=claim.margin_on(task) or None,
        verdict=NOT_JUDGED,
        reason="no numbers",
    )
    if claim.kind == "faster":
        ratio, device = published.speed_ratio(ladder, claim, task) or (None, "")
        reason = nothing.reason if ratio is None else f"{ratio:.1f} times on one {device}, no spread is given"
        return made(structs.replace(nothing, reason=reason), ratio=ratio)
    question, *difference = questions.of_claim(claim, task)
    beside = judged.get(difference[0], nothing).p_adjusted if difference else None
    return made(judged.get(question, nothing), beside)


def cells(one: PublishedClaim) -> list[str]:
    """A line of the table."""
    return [one.ladder, one.task, one.statement, _difference(one, _form(one)), _p(one), _verdict(one)]


def _form(one: PublishedClaim) -> ScoreForm:
    # a task of imported arrays, or of a plug-in, may not be here: then its metric is in the claim
    return of_task(one.task, [f"val/{one.metric}"] if one.metric and one.task not in tasks.TASKS else [])


def _statement(one: PublishedClaim, form: ScoreForm) -> str:
    margin = "" if one.margin is None else f"{form.short(one.margin)} {form.unit}"
    relation = {
        "better": f"better than {one.other}",
        "faster": f"faster than {one.other}",
        "no-worse": f"at most {margin} worse than {one.other}",
        "equal": f"within {margin} of {one.other}",
        "at-chance": f"within {margin} of chance",
        "above-chance": f"{f'more than {margin} ' if one.margin else ''}above chance",
    }[one.kind]
    return f"{one.rung} {relation}"


def _difference(one: PublishedClaim, form: ScoreForm) -> str:
    if one.difference is None:
        return ""
    text = form.short_difference(one.difference)
    if one.low is None or one.high is None:
        return text
    return f"{text} [{form.short_difference(one.low)}, {form.short_difference(one.high)}]"


def _p(one: PublishedClaim) -> str:
    return "" if one.p_adjusted is None else claims.p_text(one.p_adjusted).removeprefix("p ").removeprefix("= ")


def _verdict(one: PublishedClaim) -> str:
    beside = "" if one.difference_p is None else f" (test of the difference: {claims.p_text(one.difference_p)})"
    return f"{one.verdict}: {one.reason}" if one.reason else one.verdict + beside

"""The table of judged claims, by papers, by runs and by studies: what `lrurun claims` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from lrurun import paths
from lrurun.console import clean
from lrurun.data import tasks
from lrurun.errors import UsageError, hint_for
from lrurun.judging import wording
from lrurun.judging.judged_claim import JudgedClaim
from lrurun.judging.scores import ScoreForm, of_task
from lrurun.judging.verdicts import JUDGED, NOT_JUDGED, NOT_RUN
from lrurun.report.tables import content
from lrurun.table import NOTHING, Column, Table

PAPERS = {
    "lru": "Orvieto et al. 2023",
    "dlr": "Gupta et al. 2023",
    "rotrnn": "Biegun et al. 2024",
    "zucchet": "Zucchet and Orvieto 2024",
}
"""The name of a paper on the command line -> how sources begin."""

OTHERS = "other sources"
"""Sources of claims that come with lrurun, but are of none of these papers: ours among them."""

MOST_NAMED = 3
"""Tasks that share a row of claims are named up to this number."""
PAPER_HEADERS = ("ladder", "task", "claim", "difference [95 %]", "p", "by the paper's own numbers")
HEADERS = (*PAPER_HEADERS, "source", "in this ledger")
"""The headers of `cells`, of claims by papers alone and of those with a verdict here."""


def cells(claim: JudgedClaim) -> list[str]:
    """A line of the table."""
    form, here = form_of(claim), claim.here
    line = [claim.ladder, claim.task]
    if claim.is_of_study:
        line += [claim.text, "", "", f"{claim.verdict}: {claim.reason}"]
    else:
        p = "" if claim.p_adjusted is None else wording.p_number(claim.p_adjusted)
        difference = wording.difference_with_interval(claim, form, short=True)
        line += [wording.statement(claim, form), difference, p, _by_paper(claim)]
    if here is None:
        return line
    profile = f", profile {here.profile}" if here.profile else ""
    return [*line, claim.source, f"{here.verdict}{claim.mark}{profile}: {here.detail}"]


def reasoning(claim: JudgedClaim) -> str:
    """What is claimed, where, and why it is judged so here; by the paper's own numbers too, where those alone judge."""
    here = claim.ours
    where = claim.task if claim.is_of_study else f"{claim.task}, ladder {claim.ladder}"
    where += f", profile {here.profile}" if here.profile else ""
    if claim.is_of_study:
        return "; ".join([where, here.detail])
    form = form_of(claim)
    parts = [f"{where}: {wording.statement(claim, form)}", here.detail]
    if here.verdict == NOT_RUN:
        p = "" if claim.p_adjusted is None else wording.p_value(claim.p_adjusted)
        numbers = [_by_paper(claim), wording.difference_with_interval(claim, form, short=True), p]
        parts.append(f"by the paper's own numbers: {', '.join(filter(None, numbers))}")
    return "; ".join(parts)


def _by_paper(claim: JudgedClaim) -> str:
    if claim.reason:
        return f"{claim.verdict}: {claim.reason}"
    beside = "" if claim.difference_p is None else f" ({wording.of_difference(claim.difference_p)})"
    return f"{claim.verdict}{beside}"


def form_of(claim: JudgedClaim) -> ScoreForm:
    """The form of the scores that a claim is about."""
    # a task of imported arrays, or of a plug-in, may not be here: then its metric is in the claim
    return of_task(claim.task, [f"val/{claim.metric}"] if claim.metric and claim.task not in tasks.TASKS else [])


def contents(
    claims: Sequence[JudgedClaim],
    task: str | None,
    *,
    by_runs: bool,
    details: bool,
    command: str,
    removed: Sequence[str] = (),
) -> list[content.ReportContent]:
    """The output of `lrurun claims`: how many claims of each paper have which verdict, then a line for each that is
    judged or has runs.

    Args:
        task: the one that the claims are on, of which all have a line; None for any.
        by_runs: whether there is a ledger, whose runs and studies judge; else the papers' own numbers do.
        details: show the reasoning on every claim instead of the lines.
        command: the one that prints these claims.
        removed: what was removed from the instances that judge, a clause for each.
    """
    judges = "the runs and studies of this ledger" if by_runs else "the papers' own numbers (there is no ledger here)"
    summary = content.ReportContent(
        title=f"claims of the papers, judged by {judges}",
        table=count_table(claims, by_runs=by_runs),
        claims=tuple(claims) if details else (),
    )

    def is_listed(claim: JudgedClaim) -> bool:
        if not by_runs:
            return claim.verdict in JUDGED
        has_runs = claim.ours.verdict == NOT_JUDGED and claim.ours.instance is not None
        return claim.ours.verdict in JUDGED or has_runs

    more = f"More: {command} --details has the reasoning, and what would decide the others."
    gone = tuple(f"Removed: {clean(clause)}." for clause in removed)
    if details:
        return [structs.replace(summary, foot=gone)]
    if task is not None:
        papers = [paper for paper, _ in summary.table.rows]
        listed = sorted(claims, key=lambda claim: papers.index(paper_of(claim)))
    elif not (listed := [claim for claim in claims if is_listed(claim)]):
        return [structs.replace(summary, foot=(*gone, more))]
    return [summary, _lines(listed, (*gone, more), by_runs=by_runs, one_task=task is not None)]


def count_table(claims: Sequence[JudgedClaim], *, by_runs: bool = True) -> Table:
    """How many claims of each paper have which verdict."""
    counts: dict[str, Counter[str]] = {paper: Counter() for paper in (*PAPERS.values(), OTHERS)}
    for claim in claims:
        verdict = claim.ours.verdict if by_runs else claim.verdict
        count = counts.setdefault(paper_of(claim), Counter())
        count[verdict if verdict in (*JUDGED, NOT_RUN) else NOT_JUDGED] += 1
    return Table(
        columns=(
            Column(name="paper", cell=lambda row: row[0], right=False),
            *(_count_column(verdict) for verdict in (*JUDGED, NOT_JUDGED, *([NOT_RUN] if by_runs else []))),
        ),
        rows=tuple((paper, count) for paper, count in counts.items() if count),
    )


def _count_column(verdict: str) -> Column:
    return Column(name=verdict, cell=lambda row: str(row[1][verdict] or NOTHING))


def _lines(
    claims: Sequence[JudgedClaim], foot: Sequence[str], *, by_runs: bool, one_task: bool
) -> content.ReportContent:
    """A table with a row for each claim and verdict, with its tasks. Cautions that hold for all that are judged stand
    in its title, what keeps runs from judging others below it."""

    def verdict(claim: JudgedClaim) -> str:
        return claim.ours.verdict if by_runs else claim.verdict

    judged = [claim for claim in claims if verdict(claim) in JUDGED]
    unjudged = [claim for claim in claims if by_runs and verdict(claim) == NOT_JUDGED]
    reasons = dict.fromkeys(claim.ours.detail.split(";")[0] for claim in unjudged)
    all_cautions = dict.fromkeys(caution for claim in judged for caution in claim.ours.cautions if by_runs)
    shared = [caution for caution in all_cautions if all(caution in claim.ours.cautions for claim in judged)]
    differing = [caution for caution in all_cautions if caution not in shared]

    def cautions(claim: JudgedClaim) -> str:
        return ", ".join(caution for caution in claim.ours.cautions if caution in differing)

    rows: dict[tuple[str, str], dict[tuple[str, ...], list[JudgedClaim]]] = {}
    for claim in claims:
        of_claim = rows.setdefault((claim.ladder, claim.text), {})
        of_claim.setdefault((verdict(claim), claim.verdict, cautions(claim)), []).append(claim)

    def column(name: str, cell: Callable[[JudgedClaim], str], **more: Any) -> Column:
        return Column(name=name, cell=lambda row: clean(cell(row[0])), right=False, **more)

    def on(row: list[JudgedClaim]) -> str:
        names = [claim.task for claim in row]
        return clean(", ".join(names)) if len(names) <= MOST_NAMED else f"{len(names)} tasks"

    own = any(claim.verdict in JUDGED for claim in judged) and by_runs
    title = "judged claims" if judged and not one_task else "claims"
    return content.ReportContent(
        title=title + (f", all {' and '.join(shared)}" if shared else ""),
        table=Table(
            columns=(
                column("verdict", verdict),
                column("paper", paper_of, priority=1) if one_task else Column(name="task", cell=on, right=False),
                *([column("caution", cautions, priority=9)] if differing else []),
                *([column("by the paper", lambda claim: claim.verdict, priority=2)] if own else []),
                column("claim", lambda claim: claim.text, cut=36),
            ),
            rows=tuple(row for of_claim in rows.values() for row in of_claim.values()),
        ),
        foot=(*([f"Not judged: {'; '.join(reasons)}."] if reasons else []), *foot),
    )


def paper_of(claim: JudgedClaim) -> str:
    """The paper that states it, of those that have a name here; of others, the ladder if it is the user's own."""
    of_user = claim.rung and not (paths.packaged("ablations") / f"{claim.ladder}.toml").is_file()
    other = f"ladder {claim.ladder}" if of_user else OTHERS
    return next((source for source in PAPERS.values() if claim.source.startswith(source)), other)


def check_paper(paper: str | None, where: str = "--paper") -> None:
    """Checks the paper that `where` names.

    Raises:
        UsageError: it is not one of `PAPERS`.
    """
    if paper is not None and paper not in PAPERS:
        raise UsageError(f"{where}: unknown paper {paper!r}", hint_for(paper, PAPERS, "papers"))

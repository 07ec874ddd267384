"""The claims of ladders and studies by the runs of a ledger, beside the papers' own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from lrurun import studies
from lrurun.config import plan as planning
from lrurun.config.documents import Ladder
from lrurun.config.schema import STUDIES, STUDY
from lrurun.errors import LrurunError, UsageError, hint_for, plural
from lrurun.ledger.values import FINISHED
from lrurun.report import published_claims, selection
from lrurun.report import study as study_report
from lrurun.report.claims import Verdict
from lrurun.report.published_claims import PublishedClaim
from lrurun.report.verdicts import CONTRADICTED, NOT_JUDGED, NOT_RUN, SUPPORTED, UNDECIDED
from lrurun.studies import claims as study_claims
from lrurun.studies import plan as study_planning
from lrurun.studies.claims import StudyClaim
from lrurun.studies.study import Study

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import LadderInstance

PAPERS = {
    "lru": "Orvieto et al. 2023",
    "dlr": "Gupta et al. 2023",
    "rotrnn": "Biegun et al. 2024",
    "zucchet": "Zucchet and Orvieto 2024",
}
"""The name of a paper on the command line -> how sources begin."""

NO_CHECK = "no check of this study decides it"
HEADERS = (*published_claims.HEADERS, "in this ledger")


class LedgerVerdict(Struct, frozen=True, kw_only=True):
    """A claim by the runs of one ladder instance or study of the ledger."""

    verdict: str
    detail: str
    """The numbers, or what would decide it."""
    instance: str | None
    profile: str | None
    stand_in: bool
    """Whether task, data or scale are not those of the paper."""


class LedgerClaim(PublishedClaim, frozen=True, kw_only=True):
    """A claim with both verdicts: `verdict` is by the paper's own numbers."""

    here: LedgerVerdict


class LedgerClaims(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun claims`."""

    claims: list[LedgerClaim]
    counts: dict[str, dict[str, int]]
    """Paper -> verdict in this ledger -> how many claims, each on each task."""


def collect(
    ledger: Ledger | None, ladders: Mapping[str, Ladder], task: str | None, paper: str | None, *, with_studies: bool
) -> LedgerClaims:
    """The claims of ladders, by the names that find them, and of studies, on one task or all, of one paper or all."""
    found: list[LedgerClaim] = []
    for name, ladder in ladders.items():
        here = _of_ladder(ledger, name, ladder)
        stated = published_claims.collect([ladder], task)
        for one in stated:
            run = (one.task, one.text) in here
            found.append(_beside(one, here.pop((one.task, one.text))[0] if run else _not_run(ladder.name, one.task)))
        found += [_stand_in(ladder, on, *one) for (on, _), one in here.items() if task in (None, on)]
    if with_studies:
        asked = [study for study in studies.every() if task in (None, STUDY + study.name)]
        found += [one for study in asked for one in _of_study(ledger, study)]
    if paper is not None:
        found = [one for one in found if one.source.startswith(PAPERS[paper])]
    return LedgerClaims(claims=found, counts=_counts(found))


def count_table(found: LedgerClaims) -> tuple[list[str], list[list[str]]]:
    """Headers and rows of the counts."""
    verdicts = list(dict.fromkeys((SUPPORTED, CONTRADICTED, UNDECIDED, *(v for c in found.counts.values() for v in c))))
    rows = [[paper, *(str(counts.get(one, 0)) for one in verdicts)] for paper, counts in found.counts.items()]
    return ["paper", *verdicts], rows


def check_paper(paper: str | None) -> None:
    """Checks the value of `--paper`.

    Raises:
        UsageError: it is not one of `PAPERS`.
    """
    if paper is not None and paper not in PAPERS:
        raise UsageError(f"--paper: unknown paper {paper!r}", hint_for(paper, PAPERS, "papers"))


def cells(one: LedgerClaim) -> list[str]:
    """A line of the table, under `HEADERS`."""
    mark = " (stand-in)" if one.here.stand_in and one.here.verdict != NOT_RUN else ""
    profile = f", profile {one.here.profile}" if one.here.profile else ""
    detail = "" if one.here.verdict == NOT_RUN else f": {one.here.detail}"
    here = f"{one.here.verdict}{mark}{profile}{detail}"
    if one.task.startswith(STUDY):
        return [STUDIES, one.task.removeprefix(STUDY), one.text, "", "", f"{one.verdict}: {one.reason}", here]
    return [*published_claims.cells(one), here]


def _beside(one: PublishedClaim, here: LedgerVerdict) -> LedgerClaim:
    return LedgerClaim(**structs.asdict(one), here=here)


def _stand_in(ladder: Ladder, task: str, here: LedgerVerdict, claim: Verdict) -> LedgerClaim:
    """A claim on a task for which the paper does not state it."""
    return LedgerClaim(
        ladder=ladder.name,
        task=task,
        text=claim.text,
        source=claim.source,
        kind=claim.kind,
        rung=claim.rung,
        than=claim.than,
        margin=claim.margin,
        verdict=NOT_JUDGED,
        reason="the paper states it on other tasks",
        here=here,
    )


def _of_ladder(
    ledger: Ledger | None, name: str, ladder: Ladder
) -> dict[tuple[str, str], tuple[LedgerVerdict, Verdict]]:
    """(task, text of a claim) -> its verdict, from the instance of each task that `_best` prefers."""
    found: dict[tuple[str, str], tuple[LedgerVerdict, Verdict]] = {}
    if ledger is None:
        return found
    for task in dict.fromkeys(one.task for one in ledger.ladders(ladder.name)):
        for instance in _best(ledger, [one for one in ledger.ladders(ladder.name) if one.task == task]):
            try:
                plan = planning.make(
                    task,
                    ladder=name,
                    profile=instance.profile,
                    sets=instance.spec["set"],
                    tune=instance.spec["tune"],
                    imports=False,
                )
                report = selection.build(plan, instance, ledger)
            except LrurunError:  # the files of this instance are not these: another one, or none
                continue
            reduced = bool(plan.profile or plan.changes)
            for claim in report.claims:
                verdict = LedgerVerdict(
                    verdict=claim.shown,
                    detail=claim.detail,
                    instance=instance.key,
                    profile=plan.profile,
                    stand_in=claim.stand_in or reduced,
                )
                found[task, claim.text] = verdict, claim
            break
    return found


def _best(ledger: Ledger, instances: Sequence[LadderInstance]) -> list[LadderInstance]:
    """Instances with finished runs: unchanged recipes first, then those with the most finished runs."""
    counts = {one.key: sum(ledger.state_counts(one.key).get(state, 0) for state in FINISHED) for one in instances}
    having = [one for one in instances if counts[one.key]]
    return sorted(having, key=lambda one: (one.profile is not None or bool(one.spec["set"]), -counts[one.key]))


def _not_run(ladder: str, task: str) -> LedgerVerdict:
    option = "" if ladder == "lru" else f" --ladder {ladder}"
    detail = f"lrurun ladder {task}{option} would decide it"
    return LedgerVerdict(verdict=NOT_RUN, detail=detail, instance=None, profile=None, stand_in=False)


def _of_study(ledger: Ledger | None, study: Study[Any]) -> list[LedgerClaim]:
    """The claims of a study, by the most complete of its profiles in the ledger."""
    report = None
    for profile in ("paper", "laptop", "ci"):
        if ledger is None:
            break
        plan = study_planning.make(study, profile, {})
        made = study_report.build(plan, study_report.collect(ledger, plan))
        if not made.unfinished:
            report = made
            break
    return [
        LedgerClaim(
            ladder=STUDIES,
            task=STUDY + study.name,
            text=claim.text,
            source=claim.source,
            kind="check",
            rung="",
            than=None,
            margin=None,
            verdict=NOT_JUDGED,
            reason="a figure without numbers",
            here=_by_checks(claim, report),
        )
        for claim in study_claims.of(study.name)
    ]


def _by_checks(claim: StudyClaim, report: study_report.StudyReport | None) -> LedgerVerdict:
    if report is None:
        detail = f"{_command(claim)} would decide it" if _is_checked(claim) else NO_CHECK
        return LedgerVerdict(verdict=NOT_RUN, detail=detail, instance=None, profile=None, stand_in=False)
    verdict, checks = study_claims.judge(claim, report.checks)
    missing = f"no check of profile {report.profile} is about it; {_command(claim)} has some"
    detail = "; ".join(
        f"{one.name}: {one.measured:.4g}, {one.rule}{'' if one.passed else ' (failed)'}" for one in checks[:2]
    )
    more = f"; and {plural(len(checks) - 2, 'check')} more" if len(checks) > 2 else ""
    return LedgerVerdict(
        verdict=verdict,
        detail=(detail or (missing if _is_checked(claim) else NO_CHECK)) + more,
        instance=None,
        profile=report.profile,
        stand_in=report.substitute is not None,
    )


def _is_checked(claim: StudyClaim) -> bool:
    return bool(claim.supported_by or claim.contradicted_by)


def _command(claim: StudyClaim) -> str:
    return f"lrurun study {claim.study}{' --profile paper' * (claim.profile == 'paper')}"


def _counts(found: Sequence[LedgerClaim]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for one in found:
        paper = next((source for source in PAPERS.values() if one.source.startswith(source)), "others")
        of_paper = counts.setdefault(paper, {})
        of_paper[one.here.verdict] = of_paper.get(one.here.verdict, 0) + 1
    return counts

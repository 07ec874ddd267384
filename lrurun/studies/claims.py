"""The claims of papers about their theory figures, and the checks of a study that decide them: `claims.toml`."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from lrurun import decoding, kinds
from lrurun.errors import plural
from lrurun.kinds import TaskEvidence
from lrurun.report.judging.verdicts import NOT_JUDGED, NOT_RUN
from lrurun.report.tables.ledger_claims import LedgerClaim, LedgerVerdict
from lrurun.studies import PREFIX, plan, report
from lrurun.studies.checks import Check

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.studies.report import StudyReport
    from lrurun.studies.study import Study

NO_CHECK = "no check of this study decides it"


class StudyClaim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sentence of a paper about a figure."""

    study: str
    text: str
    source: str
    supported_by: tuple[str, ...] = ()
    """Patterns of names of checks, as in "slope*": the claim is supported if all of these checks passed."""
    contradicted_by: tuple[str, ...] = ()
    """Patterns of names of checks that say the opposite. Without any pattern, no check decides the claim."""
    profile: Literal["laptop", "paper"] = "laptop"
    """The smallest profile that has these checks, of those above "ci"."""
    would_decide: str = ""
    """What would decide a claim without any pattern."""


@cache
def every() -> tuple[StudyClaim, ...]:
    """All claims, in the order of studies."""
    file = Path(__file__).with_suffix(".toml")
    return decoding.convert(decoding.load_toml(file)["claim"], tuple[StudyClaim, ...], file.name)


def about(study: str) -> list[StudyClaim]:
    """The claims about a study."""
    return [claim for claim in every() if claim.study == study]


def judge(
    claim: StudyClaim, checks: Sequence[Check]
) -> tuple[Literal["supported", "contradicted", "undecided"], list[Check]]:
    """The verdict on a claim, and the checks that decide it.

    It is undecided where its checks are missing, as in profiles without seeds, or not all of them passed; where checks
    for and against it passed, as by means and by medians; and where an identity or a sampling check of the study
    failed, because then its numbers may be wrong. These are returned then.
    """
    if wrong := [check for check in checks if check.kind != "direction" and not check.passed]:
        return "undecided", wrong

    def matching(patterns: Sequence[str]) -> list[Check]:
        return [check for check in checks if any(fnmatchcase(check.name, pattern) for pattern in patterns)]

    for_it, against = matching(claim.supported_by), matching(claim.contradicted_by)
    verdicts: list[tuple[Literal["supported", "contradicted"], list[Check]]] = [
        ("supported", for_it),
        ("contradicted", against),
    ]
    decided = [
        (verdict, deciding) for verdict, deciding in verdicts if deciding and all(check.passed for check in deciding)
    ]
    return decided[0] if len(decided) == 1 else ("undecided", [*for_it, *against])


def evidence(ledger: Ledger | None, studies: Sequence[Study[Any]]) -> dict[str, TaskEvidence]:
    """Task -> what the ledger has on a study, by the most complete of its profiles."""
    evidence_of = {}
    for study in studies:
        study_report = None if ledger is None else _report_of(ledger, study)
        evidence_of[PREFIX + study.name] = TaskEvidence(
            name=study.name,
            command=f"lrurun study {study.name}",
            result=f"{study.name}: {NOT_RUN}" if study_report is None else _result(study_report),
            stand_in=study.stand_in.get("laptop") or "the same on a laptop",
            claims=_of_study(study.name, study_report),
        )
    return evidence_of


def _result(study_report: StudyReport) -> str:
    profile = "" if study_report.profile == "laptop" else f" --profile {study_report.profile}"
    stand_in = " (stand-in)" if study_report.substitute else ""
    counts = report.counts(study_report)
    return f"`lrurun study {study_report.study}{profile}`{stand_in}: {counts}. {study_report.answer}"


def _report_of(ledger: Ledger, study: Study[Any]) -> StudyReport | None:
    """The report of the largest profile that is complete; None if none is."""
    recorded = {instance.profile for instance in ledger.ladders(kinds.STUDY, PREFIX + study.name)}
    for profile in ("paper", "laptop", "ci"):
        if profile in recorded:
            planned = plan.make(study, profile, {})
            study_report = report.build(planned, report.collect(ledger, planned))
            if not study_report.unfinished:
                return study_report
    return None


def _of_study(study: str, study_report: StudyReport | None) -> list[LedgerClaim]:
    return [
        LedgerClaim(
            ladder=kinds.STUDY,
            task=PREFIX + study,
            text=claim.text,
            source=claim.source,
            kind="check",
            rung="",
            other=None,
            margin=None,
            verdict=NOT_JUDGED,
            reason="a figure without numbers",
            here=_by_checks(claim, study_report),
        )
        for claim in about(study)
    ]


def _by_checks(claim: StudyClaim, study_report: StudyReport | None) -> LedgerVerdict:
    is_checked = bool(claim.supported_by or claim.contradicted_by)
    command = f"lrurun study {claim.study}{' --profile paper' * (claim.profile == 'paper')}"
    unchecked = "" if is_checked else f"{NO_CHECK}; what would: {claim.would_decide}"
    if study_report is None:
        detail = unchecked or f"{command} would decide it"
        return LedgerVerdict(verdict=NOT_RUN, detail=detail, instance=None, profile=None, stand_in=False)
    verdict, checks = judge(claim, study_report.checks)
    missing = f"no check of profile {study_report.profile} is about it; {command} has some"
    detail = "; ".join(
        f"{check.name}: {check.number(4)}, {check.rule}{' (failed)' * (check.state == 'FAILED')}"
        for check in checks[:2]
    )
    more = f"; and {plural(len(checks) - 2, 'check')} more" if len(checks) > 2 else ""
    return LedgerVerdict(
        verdict=verdict,
        detail=(f"{unchecked}. {study_report.answer}" if unchecked else detail or missing) + more,
        instance=None,
        profile=study_report.profile,
        stand_in=study_report.substitute is not None,
    )

"""What the ledger says about the claims of papers about their theory figures: see `lrurun claims`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lrurun import paths, studies
from lrurun.errors import UsageError
from lrurun.judging.judged_claim import JudgedClaim
from lrurun.judging.verdicts import NOT_JUDGED, NOT_RUN
from lrurun.report.tables.ledger_claims import TaskEvidence
from lrurun.studies import PREFIX, STUDY
from lrurun.studies.machinery import reporting

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.studies.machinery.evidence import StudyClaim
    from lrurun.studies.machinery.reporting import StudyReport
    from lrurun.studies.machinery.study import Study


def task_of(task: str | None, ladder: str | None) -> str | None:
    """The task, with the name of a study where an alias stood.

    Raises:
        UsageError: it is a study, and a ladder is named.
    """
    if task is None or not studies.is_task(task):
        return task
    if ladder is not None:
        raise UsageError(f"--ladder {ladder}: {task} is a study, which no ladder has", "omit --ladder or --task")
    return PREFIX + studies.of_task(task).name


def evidence(ledger: Ledger, task: str | None) -> dict[str, TaskEvidence]:
    """Task -> the evidence of the ledger on a study, by the most complete of its profiles; of one task or of all
    studies."""
    evidence_of = {}
    for study in studies.every():
        if task not in (None, PREFIX + study.name):
            continue
        study_report = _report_of(ledger, study)
        evidence_of[PREFIX + study.name] = TaskEvidence(
            name=study.name,
            command=f"lrurun study {study.name}",
            result=f"{study.name}: {NOT_RUN}" if study_report is None else _result(study_report),
            stand_in=_scale(study),
            claims=[_judged(study, claim, study_report) for claim in study.claims],
        )
    return evidence_of


def _scale(study: Study[Any]) -> str:
    """What the profile laptop replaces, where the profile paper takes long."""
    sentence = study.stand_in.get("laptop")
    return f"`--profile paper`; on a laptop {sentence}" if sentence else "the same on a laptop"


def _result(study_report: StudyReport) -> str:
    profile = "" if study_report.profile == "laptop" else f" --profile {study_report.profile}"
    stand_in = " (stand-in)" if study_report.substitute else ""
    counts = reporting.counts(study_report)
    return f"`lrurun study {study_report.study}{profile}`{stand_in}: {counts}. {study_report.answer}"


def _report_of(ledger: Ledger, study: Study[Any]) -> StudyReport | None:
    """The report of the largest profile that is complete; None if none is."""
    largest = reporting.largest(ledger, study)
    return None if largest is None else reporting.build(*largest)


def _judged(study: Study[Any], claim: StudyClaim, study_report: StudyReport | None) -> JudgedClaim:
    return claim.judged(
        by="paper",
        ladder=STUDY,
        task=PREFIX + study.name,
        verdict=NOT_JUDGED,
        reason="a figure without numbers",
        here=_here(study, claim, study_report),
    )


def _here(study: Study[Any], claim: StudyClaim, study_report: StudyReport | None) -> JudgedClaim:
    """The claim by the results of the study, or the command that would decide it."""
    profile = ["--profile", "paper"] if claim.profile == "paper" else []
    command = shlex.join(["lrurun", "study", study.name, *profile, *paths.place_options()])
    not_run = claim.judged(by="study", verdict=NOT_RUN, detail=f"{command} would decide it")
    if study_report is None:
        return not_run
    judged = next((judged for judged in study_report.claims if judged.text == claim.text), None)
    if judged is None:
        return structs.replace(not_run, detail=f"the profile {study_report.profile} has no evidence; {not_run.detail}")
    return structs.replace(judged, profile=study_report.profile, stand_in=study_report.substitute is not None)

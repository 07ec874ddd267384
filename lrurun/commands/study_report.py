"""What commands print and write about studies: reports, figures, checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lrurun import console
from lrurun.commands import study_files
from lrurun.commands._shared import opening, output
from lrurun.commands.study_files import Drawings
from lrurun.commands.study_request import StudyRequest, newest_plan
from lrurun.config.schema import STUDY
from lrurun.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.paths import Places
    from lrurun.report.study import StudyReport
    from lrurun.studies.plan import StudyPlan
    from lrurun.studies.study import Results


def show(reports: Sequence[StudyReport], *, brief: bool = False) -> None:
    """Prints reports; brief ones have one line, and only those checks that failed."""
    from lrurun.report import study as reporting

    for report in reports:
        reporting.show(report, brief=brief)


def report_of(ledger: Ledger, request: StudyRequest, plan: StudyPlan, drawings: Drawings) -> StudyReport:
    """The report of a study, whose figure is drawn if it is wanted and the study is complete."""
    from lrurun.report import study as reporting

    results = reporting.collect(ledger, plan)
    report = reporting.build(plan, results)
    if drawings.out is None:
        return report
    if report.unfinished:
        console.warn("; ".join(_incomplete(request, plan, results)))
    return drawings.add(plan, results, report)


def _incomplete(request: StudyRequest, plan: StudyPlan, results: Results[Any]) -> tuple[str, str]:
    """Why there is no figure, and what to do."""
    import msgspec

    from lrurun.report import study as reporting

    cells = ", ".join(reporting.missing(plan, results))
    whole = msgspec.structs.replace(request, cells=[]).command()
    return f"{plan.study.name}: no figure, because cells are missing: {cells}", f"{whole} computes them"


def write_report(
    places: Places, task: str, profile: str | None, sets: Sequence[str], *, json: bool, out: Path | None
) -> int:
    """Prints the report of a study from the ledger as it is, for the seeds of its newest command, or writes it or its
    figure; the exit code.

    Raises:
        NotFoundError: the ledger has none of its cells, or not all that a figure needs.
        UsageError: a figure as JSON.
    """
    from lrurun.report import study as reporting

    request = StudyRequest(study=task.removeprefix(STUDY), profile=profile or "laptop", sets=list(sets))
    plan = request.plan()
    drawn = out is not None and study_files.is_drawn(out)
    if drawn and json:
        raise UsageError(f"--json and --out {out} exclude each other", "leave --json out, or name a .json file")
    ledger = opening.read(places)
    results, profiles = None, list[str | None]()
    if ledger is not None:
        with ledger:
            plan = newest_plan(ledger, request, plan)
            results = reporting.collect(ledger, plan)
            profiles = [one.profile for one in ledger.ladders(plan.name, plan.task)]
    unasked = profile is None and plan.profile not in profiles  # cells of another profile are no report of this one
    if not results or (unasked and reporting.missing(plan, results)):
        others = [one for one in dict.fromkeys(profiles) if one is not None and one != plan.profile]
        what = (
            f"{places.ledger}: has no cell of the study {plan.study.name} in profile {plan.profile}"
            f"{''.join(f' --set {text}' for text in sets)}"
        )
        known = f"this ledger has --profile {', '.join(others)}; or " if others else ""
        raise NotFoundError(what, f"{known}run: {request.command()}")
    report = reporting.build(plan, results)
    if out is None and json:
        output.write_json(report)
    elif out is None:
        reporting.show(report)
    elif drawn:
        if report.unfinished:
            raise NotFoundError(*_incomplete(request, plan, results))
        drawings = Drawings(out, several=False)
        drawings.add(plan, results, report)
        drawings.write_page()
        for error in drawings.errors:
            raise error
    else:
        from lrurun.report.formats import json as as_json

        text = as_json.render(report) if json else reporting.text(report)
        output.write_file(out, text.rstrip("\n").encode() + b"\n")
        console.say(f"wrote {out}")
    return 0


def record_checks(ledger: Ledger, instance: LadderInstance, report: StudyReport) -> None:
    """Records the checks of a complete study, so that the ledger shows them."""
    import msgspec

    if report.unfinished:
        return
    text = msgspec.json.encode(report.checks).decode()
    known = [event.text for event in ledger.events(ladder_key=instance.key) if event.kind == "checks"]
    if text not in known[-1:]:
        ledger.event("checks", text, ladder=instance.key)
        for check in report.failed:
            text = f"check failed: {check.name}: measured {check.number()}, expected {check.rule}"
            ledger.event("warning", text, ladder=instance.key)

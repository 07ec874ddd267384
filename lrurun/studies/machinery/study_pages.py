"""Studies as HTML: a page of several, and the page of an instance in the browser view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from lrurun.errors import LrurunError
from lrurun.report.figures import page_figures
from lrurun.report.formats import pages
from lrurun.studies.machinery import reporting

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.report.figures.figures import Figure
    from lrurun.studies.machinery.reporting import StudyReport


class Page(Struct, frozen=True):
    """The contents of a page."""

    heading: str
    body: str
    """HTML."""


def captioned(report: StudyReport, figure: Figure) -> Figure:
    """The figure of a complete study: the question above it; result, stand-in and checks below it."""
    caption = [report.answer, report.stand_in, f"{reporting.counts(report)}.", f"After {report.about.paper}."]
    return structs.replace(figure, title=report.about.question, caption=" ".join(filter(None, caption)))


def inline(report: StudyReport, figure: Figure) -> str:
    """The figure as SVG for the page, which has the texts."""
    return page_figures.inline(figure, report.study, report.about.question)


def render(studies: Sequence[tuple[StudyReport, str]]) -> str:
    """The page: question, figure (SVG, or nothing), result, checks and what the paper shows, of each study."""
    sections = [section(report, svg) for report, svg in studies]
    return pages.render("studies.html", title="Theory studies", studies=sections)


def section(report: StudyReport, figure: str) -> dict[str, Any]:
    """The values that templates show about a study; `figure` is an element as `page_figures.inline` makes it, or
    empty."""
    looks = {"ok": "supported", "FAILED": "contradicted"}
    return {
        "name": report.study,
        "question": report.about.question,
        "answer": report.answer or "Not finished.",
        "stand_in": report.stand_in,
        "published": f"{report.about.paper}: {report.about.published}",
        "figure": figure,
        "checked": "not finished" if report.unfinished else reporting.counts(report),
        "headers": reporting.HEADERS,
        "checks": [
            (looks[check.state], row) for check, row in zip(report.checks, reporting.rows(report.checks), strict=True)
        ],
    }


def conclusion(ledger: Ledger, instance: LadderInstance) -> str:
    """The result of an instance in a sentence. Raises UsageError if this version does not know the study."""
    plan = reporting.plan_of(ledger, instance)
    return reporting.build(plan, reporting.collect(ledger, plan)).answer or "Not finished."


def of_instance(ledger: Ledger, instance: LadderInstance, figure: str) -> Page:
    """The report of an instance. `figure` is the element that shows its figure, if there is one.

    Raises:
        UsageError: this version does not know the study.
    """
    plan = reporting.plan_of(ledger, instance)
    report = reporting.build(plan, reporting.collect(ledger, plan))
    study = section(report, "" if report.unfinished else figure)
    return Page(heading=f"{report.study}: {report.about.question}", body=pages.render("study.html", study=study))


def drawing(ledger: Ledger, instance: LadderInstance) -> bytes:
    """The figure of an instance as an SVG file.

    Raises:
        UsageError: this version does not know the study.
        LrurunError: cells are missing.
    """
    from lrurun.report.figures import figure_files

    plan = reporting.plan_of(ledger, instance)
    results = reporting.collect(ledger, plan)
    if missing := reporting.missing(plan, results):
        raise LrurunError(f"{plan.study.name}: no figure, because cells are missing: {', '.join(missing)}")
    return figure_files.render(plan.study.figure(results), ".svg")

"""Studies as files: a figure each, and one HTML page of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from lrurun.console import clean
from lrurun.errors import LrurunError
from lrurun.report import page_figures, study, study_figure
from lrurun.report.formats import html

if TYPE_CHECKING:
    from lrurun.report.figure_style import Figure as Drawing
    from lrurun.studies.figure import Figure


def drawing(report: study.StudyReport, figure: Figure) -> Drawing:
    """The figure of a complete study: the question above it; result, stand-in and checks below it.

    Raises:
        LrurunError: matplotlib is missing.
    """
    caption = [report.answer, report.stand_in, f"{study.counts(report)}.", f"After {report.about.paper}."]
    return _drawn(figure, report.about.question, " ".join(filter(None, caption)))


def inline(report: study.StudyReport, figure: Figure) -> str:
    """The same as SVG for the page, which has the texts. Raises as `drawing` does."""
    return page_figures.inline(_drawn(figure, "", ""), report.study, _text(report.about.question))


def _drawn(figure: Figure, title: str, caption: str) -> Drawing:
    try:
        return study_figure.draw(figure, title=title, caption=caption)
    except ModuleNotFoundError as error:
        raise LrurunError(
            f"the numbers are recorded, but {error.name} is missing, which draws figures",
            f"pip install {error.name}, then run the same command",
        ) from None


def render(studies: Sequence[tuple[study.StudyReport, str]]) -> str:
    """The page: question, figure (SVG, or nothing), result, checks and what the paper shows, of each study."""
    body = ["<ul>", *(_entry(report) for report, _ in studies), "</ul>"]
    for report, svg in studies:
        body += [f'<h2 id="{report.study}">{_text(report.study)}: {_text(report.about.question)}</h2>']
        body += section(report, svg)
    return html.page("Theory studies", body)


def section(report: study.StudyReport, figure: str) -> list[str]:
    """What the page has about a study below its question; `figure` is an element, or nothing."""
    body = [f"<p>{_text(report.answer or 'Not finished.')}</p>"]
    if report.stand_in:
        body.append(f'<p class="undecided">{_text(report.stand_in)}</p>')
    published = f"{_text(report.about.paper)}: {_text(report.about.published)}"
    body += (
        [f"<figure>{figure}", f"<figcaption>{published}</figcaption>", "</figure>"]
        if figure
        else [f"<p>{published}</p>"]
    )
    return body + _checks(report)


def _entry(report: study.StudyReport) -> str:
    """A line of the list of contents."""
    parts = ["not finished" if report.unfinished else study.counts(report), *(["stand-in"] if report.stand_in else [])]
    return f'<li><a href="#{report.study}">{_text(report.about.question)}</a> {", ".join(parts)}</li>'


def _checks(report: study.StudyReport) -> list[str]:
    heads = "".join(f'<th scope="col">{_text(name)}</th>' if name else "<td></td>" for name in study.HEADERS)
    lines = ['<div class="box" tabindex="0">', "<table>", f"<thead><tr>{heads}</tr></thead>", "<tbody>"]
    for check, row in zip(report.checks, study.rows(report.checks), strict=True):
        style = {"ok": "supported", "FAILED": "contradicted", "not tested": "undecided"}[check.state]
        cells = "".join(f"<td>{_text(cell)}</td>" for cell in row[1:])
        lines.append(f'<tr><td class="{style}">{row[0]}</td>{cells}</tr>')
    return [*lines, "</tbody>", "</table>", "</div>"]


def _text(text: str) -> str:
    return escape(clean(text))

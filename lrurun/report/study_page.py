"""Studies as files: a figure each, and one HTML page of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from lrurun.console import clean
from lrurun.report import page_figures, study, study_figure
from lrurun.report.formats import html

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from lrurun.studies.plan import StudyPlan
    from lrurun.studies.study import Results


def drawing(plan: StudyPlan, results: Results[Any], report: study.StudyReport) -> Drawing:
    """The figure of a complete study: the question above it; result, stand-in and checks below it."""
    passed = len(report.checks) - len(report.failed)
    caption = [
        report.answer,
        report.stand_in,
        f"{passed} of {len(report.checks)} checks passed.",
        f"After {report.about.paper}.",
    ]
    return study_figure.draw(
        plan.study.draw(results), title=report.about.question, caption=" ".join(filter(None, caption))
    )


def render(studies: Sequence[tuple[study.StudyReport, Drawing | None]]) -> str:
    """The page: question, figure, result, checks and what the paper shows, of each study."""
    body = [
        "<ul>",
        *(f'<li><a href="#{one.study}">{_text(one.about.question)}</a></li>' for one, _ in studies),
        "</ul>",
    ]
    for report, figure in studies:
        body += [f'<h2 id="{report.study}">{_text(report.study)}: {_text(report.about.question)}</h2>']
        body += [f"<p>{_text(report.answer or 'Not finished.')}</p>"]
        if report.stand_in:
            body.append(f'<p class="undecided">{_text(report.stand_in)}</p>')
        if figure is not None:
            svg = page_figures.inline(figure, report.study, _text(report.about.question))
            body += [
                "<figure>",
                svg,
                f"<figcaption>{_text(report.about.paper)}: {_text(report.about.published)}</figcaption>",
            ]
            body.append("</figure>")
        body += _checks(report)
    return html.page("Theory studies", body)


def _checks(report: study.StudyReport) -> list[str]:
    heads = "".join(f'<th scope="col">{_text(name)}</th>' for name in study.HEADERS)
    lines = ['<div class="box">', "<table>", f"<thead><tr>{heads}</tr></thead>", "<tbody>"]
    for check, row in zip(report.checks, study.rows(report.checks), strict=True):
        style = "supported" if check.passed else "contradicted"
        cells = "".join(f"<td>{_text(cell)}</td>" for cell in row[1:])
        lines.append(f'<tr><td class="{style}">{row[0]}</td>{cells}</tr>')
    return [*lines, "</tbody>", "</table>", "</div>"]


def _text(text: str) -> str:
    return escape(clean(text))

"""A report as one self-contained HTML page, without scripts. Every number links to its runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from lrurun.judging.scores import ACCURACY, ScoreForm
from lrurun.report.figures import page_figures, task_map
from lrurun.report.formats import pages
from lrurun.report.run_details import RunDetail
from lrurun.report.tables.all_tasks import AllTasksReport
from lrurun.report.tables.content import ReportContent, RunGroup, three_digits
from lrurun.report.tables.ladder_table import LadderReport
from lrurun.table import NOTHING, Table

if TYPE_CHECKING:
    from lrurun.report.formats import AnyReport


class RunLines(Struct, frozen=True, kw_only=True):
    """The runs behind some numbers."""

    anchor: str
    title: str
    relation: str
    """How the settings relate to the group that `link` leads to; `more` follows the link."""
    link: tuple[str, str] | None
    """The anchor and the title of the group."""
    more: str
    rows: tuple[tuple[str, ...], ...]
    """Run, seed, state, score, step, attempts."""


class ReportRuns(Struct, frozen=True, kw_only=True):
    """The runs behind all numbers of a report."""

    score: str
    """The heading of their scores."""
    groups: tuple[RunLines, ...]


def render(report: AnyReport, content: ReportContent, details: Mapping[str, RunDetail]) -> str:
    """The page of a report. Cells of runs that are not in `details` are empty."""
    curves = page_figures.learning_curves(groups_of(content), details) if content.curves else None
    return pages.render("report.html", report=parts(report, content, details), curves=curves)


def parts(report: AnyReport, content: ReportContent, details: Mapping[str, RunDetail]) -> dict[str, Any]:
    """The values of the templates: picture, sentences, tables, claims, eigenvalues, runs."""
    groups = groups_of(content)
    of_models = not isinstance(report, LadderReport) or report.is_of_models
    judged, form = (report.claims, report.score) if isinstance(report, LadderReport) else ((), ACCURACY)
    return {
        "title": content.title,
        "question": content.question,
        "picture": page_figures.ladder(report) if isinstance(report, LadderReport) else None,
        "map": task_map.make(report) if isinstance(report, AllTasksReport) else None,
        "conclusions": content.conclusions(beside_cautions=True),
        "cautions": content.cautions,
        "tables": (*content.above[:1], _without_empty(content.table)),
        "anchors": {group.anchor for group in groups},
        "notes": content.notes(content.table.columns, beside_cautions=True),
        "claims": [(claim, page_figures.interval(claim, form)) for claim in judged],
        "planes": page_figures.eigenvalues(groups, details) if content.curves and of_models else None,
        "runs": runs(groups, details) if groups else None,
    }


def _without_empty(table: Table) -> Table:
    """A table without the columns that give way first if they have nothing, as that of published values."""
    kept = tuple(
        column
        for column in table.columns
        if column.priority > 0 or any(column.cell(row) not in ("", NOTHING) for row in table.rows)
    )
    return structs.replace(table, columns=kept)


def groups_of(content: ReportContent) -> list[RunGroup]:
    """The groups of runs that the page has."""
    return [group for group in content.groups if group.runs or group.other_runs]


# The runs


def runs(groups: list[RunGroup], details: Mapping[str, RunDetail]) -> ReportRuns:
    """The runs behind the numbers."""
    headings = {
        "steps/s" if group.score is None else f"{group.score.on_test(group.score.title)} {group.score.symbol}"
        for group in groups
    }
    mixed = len(headings) > 1
    by_anchor = {group.anchor: group for group in groups}
    return ReportRuns(
        score="test score" if mixed else headings.pop().strip(),
        groups=tuple(_lines(group, by_anchor, details, mixed) for group in groups),
    )


def _lines(
    group: RunGroup, by_anchor: Mapping[str, RunGroup], details: Mapping[str, RunDetail], mixed: bool
) -> RunLines:
    relation, link, more = _about(group, by_anchor, details)
    run_ids = () if group.same_as is not None else (*group.runs, *group.other_runs)
    return RunLines(
        anchor=group.anchor,
        title=group.title,
        relation=relation,
        link=None if link is None else (link, by_anchor[link].title),
        more=more,
        rows=tuple(
            (run, *(_cells(details[run], group.score, mixed) if run in details else [""] * 5)) for run in run_ids
        ),
    )


def _cells(detail: RunDetail, form: ScoreForm | None, mixed: bool) -> list[str]:
    """`mixed`: whether other groups have other metrics."""
    score = NOTHING
    if detail.score is not None and math.isfinite(detail.score):
        score = three_digits(detail.score) if form is None else form.full(detail.score)
        if mixed and form is not None:
            score = form.labelled(score)
    return [
        str(detail.seed),
        detail.state,
        score,
        f"{detail.step:,}" + (f" of {detail.steps:,}" if detail.steps else ""),
        str(detail.attempts),
    ]


def _about(
    group: RunGroup, by_anchor: Mapping[str, RunGroup], details: Mapping[str, RunDetail]
) -> tuple[str, str | None, str]:
    """How the settings of a group differ from its base: a sentence around the link to the base."""
    if group.same_as is not None:
        return "has the settings and runs of", group.same_as, ""
    if group.base is None or group.base not in by_anchor:
        return "", None, ""
    base = by_anchor[group.base]
    while base.same_as is not None:
        base = by_anchor[base.same_as]
    settings, base_settings = (
        _shared([details[run].settings for run in side.runs if run in details]) for side in (group, base)
    )
    if settings is None or base_settings is None:
        return "compared with", group.base, ""
    changed = [
        f"{path} = {_value(settings[path])}"
        + (f" (instead of {_value(base_settings[path])})" if path in base_settings else "")
        for path in settings
        if path not in base_settings or base_settings[path] != settings[path]
    ]
    changed += [f"without {path}" for path in base_settings if path not in settings]
    return "compared with", group.base, f": {'; '.join(changed) or 'no setting differs'}"


def _shared(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The settings of the runs of a rung, by their paths: of imported ones, which may differ, those that they share;
    None without runs."""
    if not settings:
        return None
    first, *others = settings
    if "origin.tracker" not in first:
        return dict(first)
    return {path: value for path, value in first.items() if all(path in o and o[path] == value for o in others)}


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)

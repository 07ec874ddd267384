"""A ladder on all its tasks: rungs by tasks, in the form of Tables 6 to 8 of the LRU paper.

A column is one task with one profile. Nothing is averaged over columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from lrurun import catalog
from lrurun.console import clean
from lrurun.report import comparison, sheet


class Column(Struct, frozen=True, kw_only=True):
    """A task, in one profile."""

    task: str
    profile: str | None
    instance: str
    test_selected: bool
    """Whether a model that counts was selected on the test split."""
    test_items: int | None
    data: dict[str, Any]

    @property
    def name(self) -> str:
        """In a line."""
        profile = f", profile {self.profile}" if self.profile else ""
        return f"{self.task}{profile}{', selected on test' if self.test_selected else ''}"


class Row(Struct, frozen=True, kw_only=True):
    """A rung."""

    rung: str
    title: str
    cells: tuple[comparison.Row, ...]
    """What the report on each column says of it."""


class Report(Struct, frozen=True, kw_only=True):
    """One matrix."""

    ladder: str
    title: str
    metric: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def build(ladder: catalog.Ladder, reports: Sequence[comparison.Report], notes: Sequence[str] = ()) -> Report:
    """The matrix of these reports on `ladder`, a column each; `notes` are sentences for the foot."""
    columns = tuple(
        Column(
            task=report.task,
            profile=report.profile,
            instance=report.instance,
            test_selected=any(row.test_selected for row in report.rows),
            test_items=report.test_items,
            data=report.data,
        )
        for report in reports
    )
    said = [
        f"{column.name}: {note}"
        for column, report in zip(columns, reports, strict=True)
        for note in report.notes
        if note != comparison.PAPER_PROTOCOL
    ]
    return Report(
        ladder=ladder.name,
        title=ladder.title,
        metric=comparison.METRIC,
        columns=columns,
        rows=tuple(
            Row(rung=rung.name, title=rung.title, cells=tuple(report.rows[k] for report in reports))
            for k, rung in enumerate(ladder.rungs)
        ),
        notes=(*said, *notes),
    )


def _cells(report: Report) -> list[tuple[Row, list[dict[str, Any]]]]:
    """Every row with its cells as JSON."""
    return [
        (
            row,
            [
                {
                    "task": column.task,
                    "profile": column.profile,
                    "instance": column.instance,
                    "n": cell.n,
                    "mean": cell.mean,
                    "stderr": cell.stderr,
                    "diverged": cell.diverged,
                    "failed": cell.failed,
                    "unfinished": cell.unfinished,
                    "same_as_before": cell.same_as_before,
                    "test_selected": cell.test_selected,
                    "published": [
                        {"source": one.source, "value": one.value, "stderr": one.stderr, "note": one.note}
                        for one in cell.published
                    ],
                    "runs": list(cell.runs),
                    "other_runs": [{"id": run.id, "state": run.state} for run in cell.other_runs],
                    "code_versions": list(cell.code_versions),
                }
                for column, cell in zip(report.columns, row.cells, strict=True)
            ],
        )
        for row in report.rows
    ]


_CSV_COLUMNS = (
    "ladder", "task", "profile", "instance", "metric", "rung", "title", "n", "mean", "stderr", "diverged", "failed",
    "unfinished", "same_as_before", "test_selected", "published_value", "published_stderr", "published_source",
    "published_note", "runs", "code_versions",
)  # fmt: skip


def page(report: Report, text: Callable[[comparison.Row], str]) -> sheet.Sheet:
    """What the report prints; `text` is what a cell says, its score first and what was published last."""
    cells = _cells(report)
    document = sheet.finite(
        {
            "schema_version": sheet.SCHEMA_VERSION,
            "ladder": report.ladder,
            "title": report.title,
            "metric": report.metric,
            "tasks": list(dict.fromkeys(column.task for column in report.columns)),
            "columns": [
                {
                    "task": column.task,
                    "profile": column.profile,
                    "instance": column.instance,
                    "test_selected": column.test_selected,
                    "test_items": column.test_items,
                    "data": column.data,
                }
                for column in report.columns
            ],
            "rows": [{"rung": row.rung, "title": row.title, "cells": found} for row, found in cells],
            "notes": list(report.notes),
        }
    )
    columns = [_column(k, column, text) for k, column in enumerate(report.columns)]

    def stacked(row: Row) -> list[str]:
        said = [clean(row.rung)]
        for column, cell in zip(report.columns, row.cells, strict=True):
            said.append(f"{column.name}: {', '.join(text(cell).split(chr(10)))}")
        return said

    return sheet.Sheet(
        title=f"all tasks: {report.title}",
        rows=report.rows,
        layouts=((sheet.RUNG, sheet.TITLE, *columns), (sheet.RUNG, *columns)),
        stacked=stacked,
        markdown=(sheet.RUNG, sheet.TITLE, *columns),
        latex=(sheet.RUNG, *columns),
        foot=tuple(_foot(report)),
        groups=tuple(_group(column, cell) for k, column in enumerate(report.columns) for cell in _of(report, k)),
        document=document,
        csv=_CSV_COLUMNS,
        lines=tuple(
            sheet.finite({"rung": row.rung, "title": row.title, **cell}) for row, found in cells for cell in found
        ),
    )


def _of(report: Report, k: int) -> list[comparison.Row]:
    return [row.cells[k] for row in report.rows]


def _anchor(column: Column, rung: str) -> str:
    return f"{sheet.anchor(column.instance)}/{rung}"


def _group(column: Column, cell: comparison.Row) -> sheet.Group:
    on = None if cell.on is None else _anchor(column, cell.on)
    return sheet.Group(
        anchor=_anchor(column, cell.rung),
        title=f"{column.name}: {cell.rung}",
        runs=cell.runs,
        others=tuple(run.id for run in cell.other_runs),
        on=on,
        same_as=on if cell.same_as_before else None,
    )


def _column(k: int, column: Column, text: Callable[[comparison.Row], str]) -> sheet.Column:
    def link(row: Row) -> str:
        return _anchor(column, row.rung)

    return sheet.Column(
        name=column.name.replace(", ", "\n"), cell=lambda row: text(row.cells[k]), right=False, link=link
    )


def _foot(report: Report) -> list[str]:
    metric = report.metric.replace("/", " ").capitalize()
    said = [
        f"{metric} in per cent: mean ± standard error over n finished seeds; in parentheses, what was published. Each "
        "column is a task of its own, and nothing is averaged over columns."
    ]
    names = {column.task for column in report.columns}
    if "Image" in names:
        said.append(
            "Image is in gray, sCIFAR the same pictures in colour: another task. What was published for sCIFAR is not "
            "of Image."
        )
    if any(column.test_selected for column in report.columns):
        said.append(
            'Selected on test: trained with protocol = "paper", which chooses the model on the test split, as was '
            "published; such scores are too high to be set beside those of models that were chosen on validation."
        )
    for column in report.columns:
        if column.data.get("kind", "embedded") != "embedded":
            said.append(f"Data of {column.name}: {clean(str(column.data['source']))}.")
    said.append(_published(report))
    cells = [cell for row in report.rows for cell in row.cells]
    return said + sheet.last_words(cells, report.notes)


def _published(report: Report) -> str:
    tasks: dict[tuple[str, str], list[str]] = {}
    for k, column in enumerate(report.columns):
        for one in (one for cell in _of(report, k) for one in cell.published):
            found = tasks.setdefault((one.source, "" if one.value is None else one.note), [])
            if column.task not in found:
                found.append(column.task)
    if not tasks:
        return "Published: no values for these tasks."
    sources = [f"{source} ({', '.join(found)}{': ' + note if note else ''})" for (source, note), found in tasks.items()]
    profiles = dict.fromkeys(column.profile for column in report.columns if column.profile)
    smaller = f" They are of the full tasks; profiles are smaller ({', '.join(profiles)})." if profiles else ""
    return f"Published: {'; '.join(sources)}.{smaller}"

"""A table of the columns that `--columns` names, by the names of CSV: the same numbers, as people read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lrurun.console import clean, setting
from lrurun.errors import UsageError, hint_for
from lrurun.judging import wording
from lrurun.judging.scores import ScoreForm
from lrurun.report.formats import as_csv
from lrurun.report.tables import content
from lrurun.table import NOTHING, Column, Table

if TYPE_CHECKING:
    from lrurun.report.formats import AnyReport

_TEXTS = {
    *("task", "ladder", "profile", "instance", "metric", "rung", "title", "on", "verdict", "verdict_on_these_items"),
    *("published_source", "published_note", "published_metric", "runs", "scores", "code_versions", "rate_source_kind"),
    *("rate_source_text", "items_known", "label", "device", "on_these_items"),
}
"""Columns of words, which are not aligned at the right."""
_HEADINGS = {
    **{"rung": "Variant", "on": "Base", "n": "Seeds", "stderr": "Error", "p_adjusted": "p", "verdict": ""},
    **{"low": "From", "high": "To", "improvement": "Better", "steps_per_second": "Steps/s", "difference": "Change"},
    **{"published_value": "Published", "published_stderr": "Its error"},
}
"""Columns of tables for a paper whose heading is not the name."""
_SCORES = ("mean", "stderr", "compared_mean", "compared_stderr", "base_mean", "base_stderr", "score_item_error")
_DIFFERENCES = ("difference", "low", "high")
_SIZES = ("detectable", "item_error")
_SHARES = ("improvement", "improvement_low", "improvement_high", "failure_bound", "item_share")
_P_VALUES = ("p_adjusted", "p_unadjusted", "p_on_these_items")


def check(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """The names of columns, from texts separated by commas, each once.

    Raises:
        UsageError: an unknown one.
    """
    chosen = list(dict.fromkeys(name.strip() for text in names for name in text.split(",") if name.strip()))
    for name in chosen:
        if name not in known:
            raise UsageError(f"--columns: unknown column {name!r}", hint_for(name, list(known), "columns"))
    if names and not chosen:
        raise UsageError("--columns: expected names of columns, found none", "as in --columns rung,mean,p_adjusted")
    return chosen


def table(
    report: AnyReport,
    names: Sequence[str],
    *,
    marks: Mapping[str, str] | None = None,
    marked: Callable[[str], bool] | None = None,
    short: bool = False,
) -> Table:
    """The columns of these names.

    A mean stands with its error, unless that has a column of its own.

    Args:
        marks: verdict on a change -> what a table for a paper has for it, whose headings are words; None: another one.
        marked: whether the mean of a rung is in bold.
        short: whether scores and differences have one decimal less.
    """
    of_metric = {column.metric: column.score for column in getattr(report, "columns", ())}
    rows = tuple(as_csv.lines(report, names))

    def form_of(line: Mapping[str, Any]) -> ScoreForm | None:
        form = getattr(report, "score", None) or of_metric.get(line["metric"])
        return None if form is None else form.beside([line.get("mean")])

    def column(name: str) -> Column:
        def cell(line: Mapping[str, Any]) -> str:
            return _cell(name, line, form_of(line), alone="stderr" in names, marks=marks, short=short)

        is_marked = (lambda line: marked(line["rung"])) if marked is not None and name == "mean" else None
        heading = name if marks is None else _heading(name, getattr(report, "score", None))
        return Column(name=heading, cell=cell, right=name not in _TEXTS, marked=is_marked)

    return Table(columns=tuple(map(column, names)), rows=rows)


def _heading(name: str, form: ScoreForm | None) -> str:
    if name == "mean" and form is not None:
        return form.title[:1].upper() + form.title[1:] + (f" ({form.symbol})" if form.symbol else "")
    if name in _HEADINGS:
        return _HEADINGS[name]
    words = name.replace("_", " ").replace("@", " at ")
    return words[:1].upper() + words[1:]


def _cell(
    name: str,
    line: Mapping[str, Any],
    form: ScoreForm | None,
    *,
    alone: bool,
    marks: Mapping[str, str] | None,
    short: bool,
) -> str:
    value = line.get(name)
    field = name.partition("@")[0]
    if name == "verdict" and marks is not None:
        return marks.get(str(value), "" if value in (*marks, "", "undecided") else str(value))
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return clean(value)
    if field == "mean" and form is not None and not alone:
        error = line.get(name.replace("mean", "stderr", 1))
        return wording.with_error(value, error, form, short=short)
    if form is not None and field in ("published_value", "published_stderr"):
        return form.published(value)
    if form is not None and field in ("mean", "compared_mean", "base_mean", "validation"):
        return form.short(value) if short else form.full(value)
    if form is not None and (field in _SCORES or field in _SIZES):
        return form.short_size(value) if short else form.size(value)
    if form is not None and field in _DIFFERENCES:
        return form.short_difference(value) if short else form.difference(value)
    if field in _SHARES:
        return f"{100 * value:.0f} %"
    if field in _P_VALUES:
        return wording.p_number(value).replace(" ", "")
    if field == "steps_per_second":
        return content.three_digits(value)
    if isinstance(value, int):
        return f"{value:,}"
    return setting(float(f"{value:.4g}"))

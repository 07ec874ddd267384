"""Runs as a table of chosen columns, or of the means of groups of them, in several formats."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun import console
from lrurun.config.schema import is_setting
from lrurun.console import clean, setting
from lrurun.errors import UsageError
from lrurun.judging import scores
from lrurun.ledger.times import when
from lrurun.report.listing import Choice, shares

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import GroupMean
    from lrurun.report.formats import RunsFormat

STANDARD = ("id", "task", "ladder", "rung", "stage", "seed", "state", "step", "steps")
"""The columns without `--columns`, with the scores of the tasks after them."""
_SORTS = ("runs", "n", "mean", "stderr")
"""The values that groups are sorted by, beside the names that they are made by."""


class ColumnsDocument(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun runs --columns`."""

    columns: list[str]
    runs: list[dict[str, Any]]
    """Column -> its value: scores as fractions, times as text in UTC, `duration` in seconds."""


class GroupsDocument(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun runs --by`."""

    by: list[str]
    groups: list[dict[str, Any]]
    """What the groups are made by, and `metric`, `runs`, `n`, `mean`, `stderr`: scores as fractions. `n` counts the
    runs that have a finite score. `instances` are the short names of the ladder instances of the runs."""


class RunTable(Struct, frozen=True, kw_only=True):
    """A table and its JSON."""

    headers: list[str]
    names: list[str]
    """The names of the columns in CSV."""
    cells: list[list[str]]
    values: list[tuple[Any, ...]]
    document: ColumnsDocument | GroupsDocument
    caution: str = ""
    """A warning about how groups must be read; empty if there is none."""


def split(texts: Sequence[str], option: str) -> list[str]:
    """The names in the texts of an option, separated by commas.

    Raises:
        UsageError: one is missing or named twice.
    """
    names = [name.strip() for text in texts for name in text.split(",")]
    for name in names:
        if not name:
            raise UsageError(f"{option} {','.join(texts)}: a name is missing", f"as in {option} rung,optim.lr")
        if names.count(name) > 1:
            raise UsageError(f"{option} {name}: named twice", "leave one of them out")
    return names


def check_by(by: Sequence[str], metric: str | None, sort: str | None) -> None:
    """Refuses what runs are not grouped by, and what groups are not sorted by. Raises UsageError."""
    from lrurun.ledger.columns import FIELDS

    grouping = [name for name, field in FIELDS.items() if field.groups]
    for name in by:
        if name not in grouping and not is_setting(name):
            raise UsageError(
                f"--by {name}: runs are grouped by fields and settings", f"{', '.join(grouping)}; as optim.lr"
            )
    if metric is not None and (metric in FIELDS or is_setting(metric)):
        raise UsageError(f"--metric {metric}: is no result", "as in --metric val/accuracy")
    if sort is None or (name := sort.removeprefix("-")) in (*by, *_SORTS):
        return
    if name in FIELDS or is_setting(name):
        raise UsageError(f"--sort {sort}: groups have no {name}", f"they have: {', '.join((*by, *_SORTS))}")
    if metric not in (None, name):
        raise UsageError(f"--sort {sort}: groups have the means of {metric}", f"--sort mean, or --metric {name}")


def metric_sorted_by(by: Sequence[str], sort: str | None) -> str | None:
    """The metric by whose mean groups are sorted; None where it is one of their values, see `check_by`."""
    name = (sort or "").removeprefix("-")
    return name if name and name not in (*by, *_SORTS) else None


def columns(ledger: Ledger, choice: Choice, names: Sequence[str], ladder: str | None, limit: int | None) -> RunTable:
    """The runs that are asked for, with these columns; the standard ones without names."""
    if not names:
        newest = ledger.newest_results()
        declared = scores.declared(ledger, newest)
        forms = [scores.of_task(task, results, declared) for task, results in newest.items()]
        names = [*STANDARD, *dict.fromkeys(name for form in forms for name in (form.validation, form.result))]
    ids = choice.ids(ledger, ladder, limit)
    every = choice.is_all and ladder is None and limit is None
    rows = ledger.columns_of(names, None if every else ids, ladder)
    values = [tuple(map(exact, names, rows[run])) for run in ids if run in rows]
    per_cent = _per_cent(names)
    return RunTable(
        headers=[f"{name} [%]" if name in per_cent else name for name in names],
        names=list(names),
        cells=[[_cell(name, value, per_cent) for name, value in zip(names, row, strict=True)] for row in values],
        values=values,
        document=ColumnsDocument(columns=list(names), runs=[dict(zip(names, row, strict=True)) for row in values]),
    )


def groups(
    ledger: Ledger,
    choice: Choice,
    by: Sequence[str],
    metric: str | None,
    ladder: str | None,
    sort: str | None,
    limit: int | None,
) -> RunTable:
    """The means of the groups of the runs that are asked for: of the main test score of their task, or of `metric`.

    A metric that they are sorted by is the one that is shown.
    """
    if sort_metric := metric_sorted_by(by, sort):
        metric, sort = sort_metric, "-mean" if sort and sort.startswith("-") else "mean"
    newest = ledger.newest_results()
    declared = scores.declared(ledger, newest)
    by_task = {task: scores.of_task(task, results, declared) for task, results in newest.items()}
    forms = {form.result: form for form in by_task.values()}
    metric_of = {task: metric or form.result for task, form in by_task.items()}
    ids = None if choice.is_all else choice.ids(ledger)
    means = ledger.groups_of(by, metric_of, ids, ladder) if metric_of else []
    if sort is not None:
        means = _sorted(means, by, sort)
    means = means[:limit]
    names = [*by, "metric", *_SORTS]
    values = [(*group.values, group.metric, group.runs, group.n, group.mean, group.stderr) for group in means]
    metrics = list(dict.fromkeys(group.metric for group in means)) or [metric or "score"]
    per_cent = {name for name in _per_cent(metrics) if name not in forms or forms[name].symbol == "%"}
    one_metric = len(metrics) == 1
    heading = f"{metrics[0]} [%]" if one_metric and per_cent else metrics[0] if one_metric else "mean"
    headers = [*by, *([] if one_metric else ["metric"]), "runs", "n", heading, "± stderr"]
    cells = []
    for group in means:
        scored = [_score(value, group.metric, per_cent, forms) for value in (group.mean, group.stderr)]
        between = [] if one_metric else [group.metric]
        cells.append(
            [
                *(_cell(name, value, ()) for name, value in zip(by, group.values, strict=True)),
                *between,
                str(group.runs),
                str(group.n),
                *scored,
            ]
        )
    return RunTable(
        headers=headers,
        names=names,
        cells=cells,
        values=values,
        document=GroupsDocument(
            by=list(by),
            groups=[
                {**dict(zip(names, row, strict=True)), "instances": list(group.instances)}
                for row, group in zip(values, means, strict=True)
            ],
        ),
        caution=_mixed(by, means),
    )


def _mixed(by: Sequence[str], means: Sequence[GroupMean]) -> str:
    """A sentence on the groups that have runs of several instances; empty if there are none."""
    mixed = [group for group in means if len(group.instances) > 1]
    if not mixed:
        return ""
    by_instances: dict[tuple[str, ...], list[str]] = {}
    for group in mixed:
        by_instances.setdefault(group.instances, []).append(_named(by, group))
    parts = [
        f"{'every group' if len(groups) == len(means) else _some(groups, '; ')} of {_some(instances, ', ')}"
        for instances, groups in by_instances.items()
    ]
    return f"means over several ladder instances: {_some(parts, '; ')}; --by instance has a mean for each"


def _named(by: Sequence[str], group: GroupMean) -> str:
    return ", ".join(f"{name} {_cell(name, value, ()) or 'none'}" for name, value in zip(by, group.values, strict=True))


def _some(texts: Sequence[str], between: str, most: int = 4) -> str:
    more = f"{between}and {len(texts) - most} more" if len(texts) > most else ""
    return between.join(texts[:most]) + more


def render(table: RunTable, format: RunsFormat) -> str:
    """The table as CSV, Markdown or JSON."""
    if format == "json":
        from lrurun.report.formats import as_json

        return as_json.render(table.document)
    if format == "csv":
        from lrurun.report.formats.as_csv import cell

        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table.names)
        writer.writerows([cell(_plain(value)) for value in row] for row in table.values)
        return text.getvalue().rstrip("\n")
    from lrurun.report.formats import markdown

    lines = [table.headers, ["---"] * len(table.headers)]
    return "\n".join(
        [
            *map(markdown.row, [[markdown.escape(name) for name in lines[0]], lines[1]]),
            *(markdown.row(map(markdown.escape, row)) for row in table.cells),
        ]
    )


def _sorted(means: Iterable[GroupMean], by: Sequence[str], sort: str) -> list[GroupMean]:
    """Rows in the order of a value, those without one last."""
    from lrurun.ledger.columns import rank

    name, descending = sort.removeprefix("-"), sort.startswith("-")

    def key(group: GroupMean) -> Any:
        value = group.values[by.index(name)] if name in by else getattr(group, name)
        return rank(value)

    having = sorted((group for group in means if key(group) is not None), key=key, reverse=descending)
    return having + [group for group in means if key(group) is None]


def exact(name: str, value: Any) -> Any:
    """A value as CSV and JSON have it: a time as text."""
    from lrurun.ledger.columns import FIELDS

    return when(value) if name in FIELDS and FIELDS[name].type == "time" else value


def _plain(value: Any) -> Any:
    """A value as CSV has it: lists and tables, and several tags, as text."""
    if isinstance(value, tuple):
        return ", ".join(value)
    return setting(value) if isinstance(value, list | dict) else value


def _per_cent(names: Sequence[str]) -> set[str]:
    """The names of scores that tables print in per cent."""
    metrics = shares()
    return {name for name in names if "/" in name and name.rpartition("/")[2] in metrics}


def _cell(name: str, value: Any, per_cent: Iterable[str]) -> str:
    if value is None:
        return ""
    if name in per_cent:
        return scores.ACCURACY.full(value)
    if name == "duration":
        return console.duration(value)
    if isinstance(value, tuple):
        return ", ".join(value)
    return clean(f"{value:.6g}" if isinstance(value, float) else setting(value))


def _score(value: float | None, metric: str, per_cent: Iterable[str], forms: Mapping[str, scores.ScoreForm]) -> str:
    if value is None:
        return ""
    if metric in per_cent:
        return scores.ACCURACY.full(value)
    return forms[metric].full(value) if metric in forms else f"{value:.6g}"

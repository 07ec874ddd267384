"""Columns of runs, and means over groups of them. The database computes both; settings are read once for many runs."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, case, func, literal, null, select
from sqlalchemy.sql.elements import ColumnElement

from lrurun.config.schema import is_setting
from lrurun.ledger import conditions, filters
from lrurun.ledger.dialects import NUMBERS, among, infinity, json_kind, json_text, total
from lrurun.ledger.schema import attempts, documents, exclusions, ladder_runs, ladders, runs, tags
from lrurun.ledger.values import RunGroup

_PLACES: dict[str, ColumnElement[str]] = {
    "ladder": ladders.c.name,
    "rung": ladder_runs.c.rung,
    "stage": ladder_runs.c.stage,
    # null for a run that is in no ladder
    "profile": case((ladders.c.id.is_not(None), func.coalesce(ladders.c.profile, ""))),
    "user": case((ladders.c.id.is_not(None), func.coalesce(ladders.c.user, ""))),
}
"""Of a run's place in a ladder."""


def rows(
    connection: Connection, names: Sequence[str], ids: Collection[str] | None, ladder: str | None
) -> dict[str, tuple[Any, ...]]:
    """Run id -> its values of these names, of the runs `ids` or of all.

    A run has the first of its places in ladders, or in those of the name `ladder`. Tags are a tuple, times seconds.
    """
    labelled = {
        name: (_PLACES[name] if name in _PLACES else _column(name)).label(f"c{k}")
        for k, name in enumerate(names)
        if name != "tag" and not is_setting(name)
    }
    wanted: Select[Any] = select(runs.c.id, runs.c.number, runs.c.config_id, runs.c.execution_id, *labelled.values())
    source: Any = runs
    if not _PLACES.keys().isdisjoint(names):
        first = select(func.min(ladder_runs.c.id).label("id")).group_by(ladder_runs.c.run)
        if ladder is not None:
            first = first.join(ladders, ladders.c.id == ladder_runs.c.ladder).where(ladders.c.name == ladder)
        place = and_(ladder_runs.c.run == runs.c.number, ladder_runs.c.id.in_(first))
        source = runs.outerjoin(ladder_runs, place).outerjoin(ladders, ladders.c.id == ladder_runs.c.ladder)
    wanted = wanted.select_from(source)
    if ids is not None:
        wanted = wanted.where(among(runs.c.id, ids))
    settings = _settings(connection, [name for name in names if is_setting(name)], ids)
    marks: dict[int, list[str]] = {}
    if "tag" in names:
        for run, name in connection.execute(select(tags.c.run, tags.c.name).order_by(tags.c.run, tags.c.name)):
            marks.setdefault(run, []).append(name)
    at = {name: 4 + k for k, name in enumerate(labelled)}
    found = {}
    for row in connection.execute(wanted):
        values = []
        for name in names:
            if name in at:
                value = row[at[name]]
                if name == "best_step" and value is not None and math.isfinite(value):
                    value = int(value) if value == int(value) else value
            elif name == "tag":
                value = tuple(marks.get(row.number, ()))
            else:
                value = settings[name].get(row.execution_id if name.startswith("execution.") else row.config_id)
            values.append(value)
        found[row.id] = tuple(values)
    return found


def groups(
    connection: Connection,
    by: Sequence[str],
    metric_of: Mapping[str, str],
    ids: Collection[str] | None,
    ladder: str | None,
) -> list[RunGroup]:
    """The groups of runs with equal values of `by`, in the order of these; rungs as in their ladders.

    `metric_of` says for each task what the means are over. Superseded and excluded runs are left out. A run with
    several places in ladders is in the group of each.
    """
    metric = case(*((runs.c.task == task, literal(name)) for task, name in metric_of.items()), else_="")
    results = {name: conditions.result(name) for name in metric_of.values()}
    value = case(*((runs.c.task == task, results[name]) for task, name in metric_of.items()), else_=null())
    columns = {name: _PLACES[name] if name in _PLACES else _column(name) for name in by if not is_setting(name)}
    of_settings = {
        name: runs.c.execution_id if name.startswith("execution.") else runs.c.config_id
        for name in by
        if name not in columns
    }
    keys = [*columns.values(), *dict.fromkeys(of_settings.values()), metric]
    inner: Select[Any] = select(
        runs.c.number,
        *(key.label(f"k{k}") for k, key in enumerate(keys)),
        case((func.abs(value) <= _LARGEST, value)).label("value"),
    ).where(runs.c.superseded == 0, runs.c.number.not_in(select(exclusions.c.run)))
    if not _PLACES.keys().isdisjoint(by):
        source = runs.join(ladder_runs, ladder_runs.c.run == runs.c.number)
        inner = inner.select_from(source.join(ladders, ladders.c.id == ladder_runs.c.ladder)).distinct()
        if ladder is not None:
            inner = inner.where(ladders.c.name == ladder)
    elif ladder is not None:
        inner = inner.where(conditions.in_ladder(ladder))
    if ids is not None:
        inner = inner.where(among(runs.c.id, ids))
    one = inner.subquery()
    names = [one.c[f"k{k}"] for k in range(len(keys))]
    mean = func.avg(one.c.value * _SCALE).over(partition_by=names).label("mean")
    two = select(*names, one.c.value, mean).subquery()
    names = [two.c[f"k{k}"] for k in range(len(keys))]
    small = func.abs(two.c.value * _SCALE - two.c.mean) < 1e150 * _SCALE
    rest = two.c.value - two.c.mean / _SCALE
    squares = case((two.c.value.is_(None), null()), (small, rest * rest), else_=infinity())
    sums = (func.count(), func.count(two.c.value), func.max(two.c.mean) / _SCALE, total(squares))
    settings = _settings(connection, list(of_settings), ids)
    places = {name: k for k, name in enumerate(columns)}
    documents_at = {reference: len(columns) + k for k, reference in enumerate(dict.fromkeys(of_settings.values()))}
    merged: dict[tuple[Any, ...], tuple[int, int, float, float]] = {}
    for row in connection.execute(select(*names, *sums).group_by(*names)):
        values = tuple(
            row[places[name]] if name in places else settings[name].get(row[documents_at[of_settings[name]]])
            for name in by
        )
        key = (*((type(value) is bool, value) for value in values), row[len(keys) - 1])
        merged[key] = _merged(merged.get(key, (0, 0, 0.0, 0.0)), row[-4:])
    found = [_group(key, sums) for key, sums in merged.items()]
    order = _rungs(connection) if "rung" in by else {}
    found.sort(key=lambda group: [_rank(name, one, order) for name, one in zip(by, group.values, strict=True)])
    return found


_LARGEST = 1.7976931348623157e308
_SCALE = 2.0**-540
"""Numbers are averaged times this, which is exact: PostgreSQL refuses means of numbers whose squares overflow."""


def _merged(before: tuple[int, int, float, float], row: Sequence[Any]) -> tuple[int, int, float, float]:
    """Number of runs, number of values, mean and sum of squared differences from it, of two groups together."""
    count, n, mean, squares = before
    more, m, other = row[0], row[1], row[3]
    if not m:
        return count + more, n, mean, squares
    apart = row[2] - mean
    return count + more, n + m, mean + apart * m / (n + m), squares + other + apart * apart * n * m / (n + m)


def _group(key: tuple[Any, ...], sums: tuple[int, int, float, float]) -> RunGroup:
    *values, metric = key
    count, n, mean, squares = sums
    stderr = math.sqrt(squares / (n - 1) / n) if n > 1 else None
    return RunGroup(tuple(value for _, value in values), metric, count, n, mean if n else None, stderr)


def _rank(name: str, value: Any, rungs: Mapping[str, int]) -> tuple[bool, tuple[int, Any]]:
    if name == "rung":
        return False, (rungs.get(value, 0), value)
    rank = filters.order(str(value).lower() if isinstance(value, bool) else value)
    return rank is None, rank or (0, 0)


def _rungs(connection: Connection) -> dict[str, int]:
    """Rung -> its smallest position in a ladder."""
    places = select(ladder_runs.c.rung, func.min(ladder_runs.c.position)).group_by(ladder_runs.c.rung)
    return {row[0]: row[1] for row in connection.execute(places)}


def _column(name: str) -> ColumnElement[Any]:
    """A name with one value, that is no setting."""
    if name == filters.DURATION:
        seconds = func.sum(func.coalesce(attempts.c.ended_at, attempts.c.seen_at) - attempts.c.started_at)
        return select(seconds).where(attempts.c.run == runs.c.number).scalar_subquery()
    return conditions.field(name) if name in filters.FIELDS else conditions.result(name)


def _settings(connection: Connection, paths: Sequence[str], ids: Collection[str] | None) -> dict[str, dict[int, Any]]:
    """Path -> number of a document -> the value of the setting there."""
    found: dict[str, dict[int, Any]] = {path: {} for path in paths}
    for section, reference in (("execution.", runs.c.execution_id), ("", runs.c.config_id)):
        some = [path for path in paths if path.startswith("execution.") == bool(section)]
        if not some:
            continue
        used = select(reference) if ids is None else select(reference).where(among(runs.c.id, ids))
        at = [path.removeprefix(section).split(".") for path in some]
        values = [
            one for path in at for one in (json_kind(documents.c.text, *path), json_text(documents.c.text, *path))
        ]
        for row in connection.execute(select(documents.c.id, *values).where(documents.c.id.in_(used))):
            for k, path in enumerate(some):
                found[path][row[0]] = _value(row[2 * k + 1], row[2 * k + 2])
    return found


def _value(kind: str | None, value: Any) -> Any:
    """A value in JSON, of which a server has the text. None if it is none, a list or a table."""
    if kind in ("true", "false"):
        return kind == "true"
    if kind in NUMBERS:
        return json.loads(value) if isinstance(value, str) else value
    return value if kind == "text" else None

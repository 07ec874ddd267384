"""Columns of runs: the one table of their names, the type of their values, and how Python and the database read them.

A column is a field, which every run has; a result, as `test/accuracy`; or a setting, as `optim.lr`. Conditions, orders,
lists, groups, views, the browser view, data frames, exported files and JSON take columns from here. The database
computes lists and means of groups, too; settings are read once for many runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Struct
from sqlalchemy import Connection, Select, and_, case, exists, func, literal, null, select
from sqlalchemy.sql.elements import ColumnElement

from lrurun.config.schema import SETTINGS, is_setting
from lrurun.ledger.database.schema import attempts, documents, exclusions, ladder_runs, ladders, runs, tags
from lrurun.ledger.database.sql import LISTS, NUMBERS, among, infinity, json_number, json_text, json_type, total
from lrurun.ledger.values import GroupMean, Run, ValueType


class Column(Struct, frozen=True):
    """A column that every run has, as data frames, exported files and JSON show it."""

    type: ValueType
    about: str
    of_run: Callable[[Run], Any] | None
    """The value in Python; None where frames do not have the column."""

    def shown(self, run: Run) -> str:
        """The value as text for people, empty where there is none."""
        value = None if self.of_run is None else self.of_run(run)
        if isinstance(value, bool):
            return str(value).lower()
        return "" if value is None else ", ".join(value) if isinstance(value, list) else str(value)


class Field(Column, frozen=True):
    """A column that conditions, orders, lists, groups and views may name, too."""

    value: ColumnElement[Any]
    """The value in a row of `runs`; of a membership, in a row of `runs` joined with `ladder_runs` and `ladders`."""
    groups: bool = True
    """Whether runs are grouped by it; not by what single runs have, or several values of."""
    is_of_membership: bool = False
    """Whether each membership of a run in a ladder has a value of its own. In Python the value of the first counts."""


def _ladder_value(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """A column of ladders: "" where a ladder has no value, null for a run that is in no ladder."""
    return case((ladders.c.id.is_not(None), func.coalesce(column, "")))


def _of_first_membership(name: str) -> Callable[[Run], Any]:
    return lambda run: getattr(run.memberships[0], name) if run.memberships else None


def _member(about: str, name: str, value: ColumnElement[Any], *, in_frames: bool = True) -> Field:
    return Field("set", about, _of_first_membership(name) if in_frames else None, value, is_of_membership=True)


_SECONDS = func.sum(func.coalesce(attempts.c.ended_at, attempts.c.seen_at) - attempts.c.started_at)
_NEWEST = and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt)
_NUMERICS = select(attempts.c.numerics).where(_NEWEST).scalar_subquery()
_DURATION = select(_SECONDS).where(attempts.c.run == runs.c.number).scalar_subquery()
_TAG = select(func.min(tags.c.name)).where(tags.c.run == runs.c.number).scalar_subquery()
_INSTANCE = "short name of the ladder instance: task, profile, --set and --tune together"

COLUMNS: Mapping[str, Column] = {
    "id": Field("text", "the run's id", attrgetter("id"), runs.c.id, groups=False),
    "fingerprint": Column("text", "digest of the settings that determine the result", attrgetter("fingerprint")),
    "kind": Field("text", "training, study, program or imported", None, runs.c.kind),
    "task": Field("text", "task", attrgetter("task"), runs.c.task),
    "ladder": _member("ladder", "ladder", ladders.c.name),
    "rung": _member("rung", "rung", ladder_runs.c.rung),
    "stage": _member("train or tune", "stage", ladder_runs.c.stage),
    "profile": _member("profile of the recipe; '' for the plain recipe", "profile", _ladder_value(ladders.c.profile)),
    "instance": _member(_INSTANCE, "instance", ladders.c.short_name, in_frames=False),
    "user": _member("who requested the ladder", "user", _ladder_value(ladders.c.user)),
    "seed": Field("number", "seed", attrgetter("seed"), runs.c.seed),
    "state": Field("state", "state of the run", attrgetter("state"), runs.c.state),
    "step": Field("number", "training step that it has reached", attrgetter("step"), runs.c.step, groups=False),
    "steps": Field("number", "training steps", attrgetter("steps"), runs.c.steps),
    "parameters": Field("number", "trainable parameters", attrgetter("parameters"), runs.c.parameters),
    "numerics": Field("number", "version of the arithmetic", attrgetter("numerics"), _NUMERICS),
    "data_sha256": Column("text", "digest of the data", attrgetter("data_sha256")),
    "superseded": Column("truth", "whether a later run replaces it", attrgetter("superseded")),
    "excluded": Column("text", "why reports leave it out", attrgetter("excluded")),
    "tags": Column("set", "tags", lambda run: list(run.tags)),
    "error": Column("text", "traceback of a failed run", attrgetter("error")),
    "created_at": Field(
        "time",
        "when it was requested, in seconds since 1970",
        attrgetter("created_at"),
        runs.c.created_at,
        groups=False,
    ),
    "finished_at": Field(
        "time", "when it finished, in seconds since 1970", attrgetter("finished_at"), runs.c.finished_at, groups=False
    ),
    "duration": Field("number", "seconds of its attempts together", None, _DURATION, groups=False),
    "tag": Field("set", "tags", None, _TAG, groups=False),
}
"""Every column but results and settings, in the order of data frames."""

FIELDS: Mapping[str, Field] = {name: column for name, column in COLUMNS.items() if isinstance(column, Field)}
"""The columns that conditions may name."""


METRICS = (
    *("val/accuracy", "val/loss", "test/accuracy", "test/loss"),
    *("machine/steps_per_second", "best_step", "escape_step"),
)
"""Results that can be named even if no run in the ledger has them."""

OWN_COLUMNS = {
    "val/accuracy": "val_accuracy",
    "test/accuracy": "test_accuracy",
    "machine/steps_per_second": "steps_per_second",
}
"""Result -> the column of `runs` that repeats it, by which lists are sorted and filtered; null if it is NaN."""


# Values in SQL


def expression(name: str) -> ColumnElement[Any]:
    """The value of a field, or a number of a run's result: null if it is NaN or missing. Not for settings."""
    if name in FIELDS:
        return FIELDS[name].value
    if name in OWN_COLUMNS:
        return runs.c[OWN_COLUMNS[name]]
    number, text = json_number(runs.c.result, name), json_text(runs.c.result, name)
    return case(
        (json_type(runs.c.result, name).in_(NUMBERS), number),
        (text == "inf", infinity()),
        (text == "-inf", -infinity()),
    )


def has_own_column(result: str) -> bool:
    """Whether a result is not read from JSON."""
    return result in OWN_COLUMNS


def setting_expressions(path: str) -> tuple[ColumnElement[str], ColumnElement[float], ColumnElement[str]]:
    """The JSON type of a setting in a row of `documents`, and its value as a number and as a text."""
    return of_setting(json_type, path), of_setting(json_number, path), of_setting(json_text, path)


def of_setting(read: Callable[..., ColumnElement[Any]], path: str) -> ColumnElement[Any]:
    """What `read`, such as `json_text`, finds at the path of a setting in a row of `documents`."""
    keys = path.removeprefix("execution.").split(".")
    value = read(documents.c.text, *keys)
    if path.startswith(SETTINGS) and len(keys) > 2:  # imported runs have one table, whose names contain the dots
        return func.coalesce(value, read(documents.c.text, keys[0], ".".join(keys[1:])))
    return value


def document_of(path: str) -> ColumnElement[int]:
    """The document of a run that has a setting."""
    return runs.c.execution_id if path.startswith("execution.") else runs.c.config_id


def in_ladder(name: str) -> ColumnElement[bool]:
    """Whether a run is in an instance of this ladder."""
    ids = select(ladders.c.id).where(ladders.c.name == name)
    member = exists().where(ladder_runs.c.run == runs.c.number, ladder_runs.c.ladder.in_(ids))
    return member.correlate(runs)  # a list that is sorted by memberships has their tables, too


def with_first_membership(ladder: str | None = None) -> Any:
    """`runs`, each with the first of its memberships, or with the first in ladders of the name `ladder`."""
    membership_ids = select(func.min(ladder_runs.c.id).label("id")).group_by(ladder_runs.c.run)
    if ladder is not None:
        membership_ids = membership_ids.join(ladders, ladders.c.id == ladder_runs.c.ladder).where(
            ladders.c.name == ladder
        )
    first = and_(ladder_runs.c.run == runs.c.number, ladder_runs.c.id.in_(membership_ids))
    return runs.outerjoin(ladder_runs, first).outerjoin(ladders, ladders.c.id == ladder_runs.c.ladder)


def rank(value: Any) -> tuple[int, float | str] | None:
    """The key by which values are sorted; None if there is no value.

    Truths are numbers, which come before text. Lists and tables come last, by their JSON text.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, list | dict):
        return 2, json.dumps(value, separators=(",", ":"))
    return (1, value) if isinstance(value, str) else (0, value)


def _distinct(value: Any) -> Any:
    """A key that equal values have in common: lists and tables by their parts, and truths are no numbers."""
    if isinstance(value, list):
        return ("list", *map(_distinct, value))
    if isinstance(value, dict):
        return ("table", *sorted((name, _distinct(part)) for name, part in value.items()))
    return type(value) is bool, value


# Lists of runs and groups of them


def rows(
    connection: Connection, names: Sequence[str], ids: Collection[str] | None, ladder: str | None
) -> dict[str, tuple[Any, ...]]:
    """Run id -> the values of these columns, for the runs `ids` or for all.

    A run has its first membership, or the first in ladders of the name `ladder`. Tags are a tuple, times
    seconds.
    """
    labelled = {
        name: expression(name).label(f"c{k}") for k, name in enumerate(names) if name != "tag" and not is_setting(name)
    }
    query: Select[Any] = select(runs.c.id, runs.c.number, runs.c.config_id, runs.c.execution_id, *labelled.values())
    query = query.select_from(with_first_membership(ladder) if any(map(_is_of_membership, names)) else runs)
    if ids is not None:
        query = query.where(among(runs.c.id, ids))
    settings = _settings(connection, [name for name in names if is_setting(name)], ids)
    tags_by_run: dict[int, list[str]] = {}
    if "tag" in names:
        for run, name in connection.execute(select(tags.c.run, tags.c.name).order_by(tags.c.run, tags.c.name)):
            tags_by_run.setdefault(run, []).append(name)
    positions = {name: 4 + k for k, name in enumerate(labelled)}
    values_by_run = {}
    for row in connection.execute(query):
        values = []
        for name in names:
            if name in positions:
                value = row[positions[name]]
                if name == "best_step" and value is not None and math.isfinite(value):
                    value = int(value) if value == int(value) else value
            elif name == "tag":
                value = tuple(tags_by_run.get(row.number, ()))
            else:
                value = settings[name].get(row.execution_id if name.startswith("execution.") else row.config_id)
            values.append(value)
        values_by_run[row.id] = tuple(values)
    return values_by_run


def groups(
    connection: Connection,
    by: Sequence[str],
    metric_of: Mapping[str, str],
    ids: Collection[str] | None,
    ladder: str | None,
) -> list[GroupMean]:
    """The groups of runs with equal values of the columns `by`, sorted by these values; rungs as in their ladders.

    A group names the ladder instances of its runs: for a run in several, the one whose membership is in the group, else
    the first.

    `metric_of` has the metric of each task, of which a group has the mean. Superseded and excluded runs are left out. A
    run with several memberships is in the group of each.
    """
    metric = case(*((runs.c.task == task, literal(name)) for task, name in metric_of.items()), else_="")
    results = {name: expression(name) for name in metric_of.values()}
    score = case(*((runs.c.task == task, results[name]) for task, name in metric_of.items()), else_=null())
    columns = {name: expression(name) for name in by if not is_setting(name)}
    document_columns = {
        name: runs.c.execution_id if name.startswith("execution.") else runs.c.config_id
        for name in by
        if name not in columns
    }
    by_membership = any(map(_is_of_membership, by))
    instance_ids = select(func.min(ladder_runs.c.ladder)).where(ladder_runs.c.run == runs.c.number)
    if ladder is not None:
        ladder_ids = select(ladders.c.id).where(ladders.c.name == ladder)
        instance_ids = instance_ids.where(ladder_runs.c.ladder.in_(ladder_ids))
    instance = ladder_runs.c.ladder if by_membership else instance_ids.scalar_subquery()
    keys = [*columns.values(), *dict.fromkeys(document_columns.values()), metric, instance]
    inner: Select[Any] = select(
        runs.c.number,
        *(key.label(f"k{k}") for k, key in enumerate(keys)),
        case((func.abs(score) <= _LARGEST, score)).label("value"),
    ).where(runs.c.superseded == 0, runs.c.number.not_in(select(exclusions.c.run)))
    if by_membership:
        source = runs.join(ladder_runs, ladder_runs.c.run == runs.c.number)
        inner = inner.select_from(source.join(ladders, ladders.c.id == ladder_runs.c.ladder)).distinct()
        if ladder is not None:
            inner = inner.where(ladders.c.name == ladder)
    elif ladder is not None:
        inner = inner.where(in_ladder(ladder))
    if ids is not None:
        inner = inner.where(among(runs.c.id, ids))
    per_run = inner.subquery()
    if by_membership:  # a run counts once in a group, also if it has the same rung and stage in several instances
        grouped = [column for column in per_run.c if column.name != f"k{len(keys) - 1}"]
        least = func.min(per_run.c[f"k{len(keys) - 1}"]).label(f"k{len(keys) - 1}")
        per_run = select(*grouped, least).group_by(*grouped).subquery()
    names = [per_run.c[f"k{k}"] for k in range(len(keys))]
    largest = func.max(func.abs(per_run.c.value)).over(partition_by=names)
    unit = case((largest > 1e140, _LARGE), (and_(largest > 0, largest < 1e-140), _SMALL), else_=1.0).label("unit")
    scaled = select(*names, per_run.c.value, unit).subquery()
    names = [scaled.c[f"k{k}"] for k in range(len(keys))]
    value = (scaled.c.value / scaled.c.unit).label("value")
    mean = func.avg(scaled.c.value / scaled.c.unit).over(partition_by=names).label("mean")
    with_mean = select(*names, value, mean, scaled.c.unit).subquery()
    names = [with_mean.c[f"k{k}"] for k in range(len(keys))]
    deviation = with_mean.c.value - with_mean.c.mean
    units = func.max(with_mean.c.unit)
    sums = (
        func.count(),
        func.count(with_mean.c.value),
        func.max(with_mean.c.mean),
        total(deviation * deviation),
        units,
    )
    settings = _settings(connection, list(document_columns), ids)
    positions = {name: k for k, name in enumerate(columns)}
    document_positions = {column: len(columns) + k for k, column in enumerate(dict.fromkeys(document_columns.values()))}
    merged: dict[tuple[Any, ...], _Sums] = {}
    values_of: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    instances: dict[tuple[Any, ...], set[int]] = {}
    for row in connection.execute(select(*names, *sums).group_by(*names)):
        values = tuple(
            row[positions[name]]
            if name in positions
            else settings[name].get(row[document_positions[document_columns[name]]])
            for name in by
        )
        key = (*map(_distinct, values), row[len(keys) - 2])
        values_of.setdefault(key, values)
        merged[key] = _merged(merged.get(key), _Sums(*row[-5:]))
        instances.setdefault(key, set()).update({row[len(keys) - 1]} - {None})
    short_names: dict[int, str] = dict(connection.execute(select(ladders.c.id, ladders.c.short_name)).all())
    run_groups = [
        _group(values_of[key], key[-1], sums, tuple(short_names[number] for number in sorted(instances[key])))
        for key, sums in merged.items()
    ]
    order = _rungs(connection) if "rung" in by else {}
    run_groups.sort(key=lambda group: [_rank(name, value, order) for name, value in zip(by, group.values, strict=True)])
    return run_groups


_LARGEST = 1.7976931348623157e308
_LARGE, _SMALL = 2.0**540, 2.0**-540
"""Units of numbers whose squares overflow, which PostgreSQL refuses in means, or vanish. Dividing by them is exact."""


class _Sums(NamedTuple):
    """Sums over a group of runs, in a unit."""

    runs: int
    n: int
    """Runs with a value."""
    mean: float | None
    squares: float
    """The sum of squared differences from the mean."""
    unit: float


def _merged(sums: _Sums | None, more: _Sums) -> _Sums:
    """The sums over two groups together, in the larger one of their units."""
    if sums is None or sums.mean is None or more.mean is None:
        known = more if sums is None or sums.mean is None else sums
        return known._replace(runs=more.runs + (0 if sums is None else sums.runs))
    unit, n = max(sums.unit, more.unit), sums.n + more.n
    mean = sums.mean * (sums.unit / unit)
    squares = (each.squares * (each.unit / unit) ** 2 for each in (sums, more))
    difference = more.mean * (more.unit / unit) - mean
    between = difference * difference * sums.n * more.n / n
    return _Sums(sums.runs + more.runs, n, mean + difference * more.n / n, sum(squares) + between, unit)


def _group(values: tuple[Any, ...], metric: str, sums: _Sums, instances: tuple[str, ...]) -> GroupMean:
    n = sums.n
    stderr = math.sqrt(sums.squares / (n - 1) / n) * sums.unit if n > 1 else None
    mean = None if sums.mean is None else sums.mean * sums.unit
    return GroupMean(values, metric, sums.runs, n, mean, stderr, instances)


def _rank(name: str, value: Any, rungs: Mapping[str, int]) -> tuple[bool, tuple[int, Any]]:
    if name == "rung":
        return False, (rungs.get(value, 0), value)
    ranked = rank(value)
    return ranked is None, ranked or (0, 0)


def _is_of_membership(name: str) -> bool:
    return name in FIELDS and FIELDS[name].is_of_membership


def _rungs(connection: Connection) -> dict[str, int]:
    """Rung -> its smallest position in a ladder."""
    query = select(ladder_runs.c.rung, func.min(ladder_runs.c.position)).group_by(ladder_runs.c.rung)
    return {row[0]: row[1] for row in connection.execute(query)}


def _settings(connection: Connection, paths: Sequence[str], ids: Collection[str] | None) -> dict[str, dict[int, Any]]:
    """Path -> number of a document -> the value of the setting there."""
    values: dict[str, dict[int, Any]] = {path: {} for path in paths}
    for section, reference in (("execution.", runs.c.execution_id), ("", runs.c.config_id)):
        section_paths = [path for path in paths if path.startswith("execution.") == bool(section)]
        if not section_paths:
            continue
        used = select(reference) if ids is None else select(reference).where(among(runs.c.id, ids))
        expressions = [of_setting(read, path) for path in section_paths for read in (json_type, json_text)]
        for row in connection.execute(select(documents.c.id, *expressions).where(documents.c.id.in_(used))):
            for k, path in enumerate(section_paths):
                values[path][row[0]] = _setting_value(row[2 * k + 1], row[2 * k + 2])
    return values


def _setting_value(type_: str | None, value: Any) -> Any:
    """The value of a setting; lists and tables are JSON text, numbers too where a server gives them. None for null."""
    if type_ in ("true", "false"):
        return type_ == "true"
    if type_ in NUMBERS:
        return json.loads(value) if isinstance(value, str) else value
    return json.loads(value) if type_ in LISTS else value if type_ == "text" else None

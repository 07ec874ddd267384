"""Views for people's queries: `results`, `trials` and `curves`, with metrics and settings as columns.

They are not in the ledger: `lrurun query` defines them for its connection, from the metrics and settings that the
ledger has, so that they are there in old ledgers, in read-only files and on servers. A column is computed only where a
query names it.

A column has the name of its metric or setting in lower case, with "_" for every other character than letters and
digits: `test/accuracy` is test_accuracy, `optim.lr` optim_lr. Of two names that become equal, the later one gets _2.
On a server, of which names have at most 63 characters, longer ones are cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain, count
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, FromClause, Select, case, func, literal_column, select
from sqlalchemy.sql.elements import ColumnElement

from lrurun.config.runs import POSITIONS
from lrurun.config.schema import LADDER_KINDS, ORIGINS, SETTINGS
from lrurun.config.settings import flatten
from lrurun.errors import UsageError, nearest
from lrurun.ledger.columns import FIELDS, METRICS, expression, of_setting
from lrurun.ledger.database.schema import documents, exclusions, ladder_runs, ladders, metric_keys, metrics, runs
from lrurun.ledger.database.sql import among, json_number, json_text, json_type, longest_name
from lrurun.ledger.values import ValueType
from lrurun.ledger.where.names import is_plain

NAMES = {
    "results": "one row for each finished final run of a rung: what reports count, diverged runs included",
    "trials": "one row for each finished tuning run of a rung",
    "curves": "one row for each value of a curve of a run, finished or not",
}
"""The names of the views, each with what it has. Runs that were excluded or superseded, and cells of studies, are in no
view; a run that serves several rungs or ladders has a row for each of them."""


class Column(Struct, frozen=True):
    """A column of a view."""

    name: str
    about: str
    """A description; for a metric or setting, its name."""
    value: ColumnElement[Any]


class View(Struct, frozen=True):
    """A view, and the statement that defines it."""

    name: str
    about: str
    columns: Sequence[Column]
    rows: Select[Any]

    def rows_for(self, sql: str) -> Select[Any]:
        """The statement for a query: where there are very many columns, with those alone that it names, and `id`.

        Raises:
            UsageError: the query asks for all of very many columns.
        """
        if len(self.columns) <= MAX_COLUMNS:
            return self.rows
        if _EVERY_COLUMN.search(sql):
            raise UsageError(
                f"SQL: {self.name} has {len(self.columns):,} columns, too many for *",
                "name those that you need; lrurun query --views lists them",
            )
        words = {"id", *re.findall(r"\w+", sql.lower())}
        return self.rows.with_only_columns(*(c.value.label(c.name) for c in self.columns if c.name in words))


MAX_COLUMNS = 1600
"""The most columns that a statement may have: in PostgreSQL 1664, in SQLite 2000."""
_EVERY_COLUMN = re.compile(r"(\b(select|distinct|all)|[,.])\s*\*", re.IGNORECASE)


def names_in(sql: str) -> list[str]:
    """The views that a query may name."""
    return [name for name in NAMES if re.search(rf"\b{name}\b", sql, re.IGNORECASE)]


def hint(unknown: str | None, used: Sequence[View], tables: str) -> str:
    """A hint for a failed query: where names are listed, and the column nearest to the `unknown` one."""
    names = [column.name for view in used for column in view.columns]
    suggestion = nearest(unknown, names) if unknown else None
    listing = f"lrurun query --views lists views and columns, {tables} the tables"
    return f"did you mean {suggestion!r}? {listing}" if suggestion else listing


def views(connection: Connection, names: Iterable[str] = NAMES) -> list[View]:
    """These views of a ledger."""
    view_list: list[View] = []
    for name in names:
        if name == "curves":
            columns, rows = _curves()
        else:
            columns = _columns(connection, tuning=name == "trials")
            rows = _finished(tuning=name == "trials")
        labelled = [column.value.label(column.name) for column in columns]
        view_list.append(View(name, NAMES[name], columns, rows.with_only_columns(*labelled)))
    return view_list


_MEMBERS = runs.join(ladder_runs, ladder_runs.c.run == runs.c.number).join(
    ladders, ladders.c.id == ladder_runs.c.ladder
)
_COUNTED = (
    runs.c.superseded == 0,
    runs.c.number.not_in(select(exclusions.c.run)),
    runs.c.kind.in_(LADDER_KINDS),
)


def _counted_runs(source: FromClause) -> Select[Any]:
    return select(runs.c.number).select_from(source).where(*_COUNTED)


def _finished(*, tuning: bool) -> Select[Any]:
    stage = "tune" if tuning else "train"
    return _counted_runs(_MEMBERS).where(ladder_runs.c.stage == stage, runs.c.state.in_(("done", "diverged")))


def _fields(*names: str) -> list[Column]:
    return [Column(name, FIELDS[name].about, FIELDS[name].value) for name in names]


_FIRST = _fields("id", "task", "ladder", "profile", "instance", "rung")


def _curves() -> tuple[list[Column], Select[Any]]:
    columns = [
        *_FIRST,
        *_fields("stage", "seed", "state"),
        Column("metric", "name of the curve, as in val/accuracy", metric_keys.c.name),
        Column("step", "training step", metrics.c.step),
        Column("value", "value there; null for NaN", metrics.c.value),
    ]
    source = _MEMBERS.join(metrics, metrics.c.run == runs.c.number)
    return columns, _counted_runs(source.join(metric_keys, metric_keys.c.id == metrics.c.key))


def _columns(connection: Connection, *, tuning: bool) -> list[Column]:
    # the literal is in the text: the position's packing never changes
    trial = ladder_runs.c.position % literal_column(str(POSITIONS)) + 1
    columns = [
        *_FIRST,
        *([Column("trial", "number of the point that it tries in its rung, from 1", trial)] if tuning else []),
        *_fields("seed", "state", "steps", "parameters", "duration", "finished_at"),
        Column("best_step", "step of the best validation score, at which metrics are", expression("best_step")),
    ]
    taken = {column.name for column in columns}
    most = longest_name(connection)
    values = {name: expression(name) for name in _results(connection) if name != "best_step"}
    values |= {path: _setting(path, types) for path, types in _settings(connection).items()}
    for name, value in values.items():
        columns.append(Column(untaken(re.sub(r"[^a-z0-9]", "_", name.lower()), taken, most), name, value))
        taken.add(columns[-1].name)
    return columns


def untaken(name: str, taken: Container[str], most: int) -> str:
    """A name of at most so many characters: the first of it, it with _2, with _3 and so on that is not taken."""
    endings = chain([""], (f"_{number}" for number in count(2)))
    return next(free for ending in endings if (free := name[: most - len(ending)] + ending) not in taken)


def _results(connection: Connection) -> list[str]:
    """The names in the results of runs: of curves of a split, and of the results of the newest run of each task."""
    keys = connection.execute(select(metric_keys.c.name)).scalars()
    names = [name for name in keys if name.startswith(("val/", "test"))]
    newest = select(func.max(runs.c.number)).where(runs.c.result.is_not(None), *_COUNTED).group_by(runs.c.task)
    for text in connection.execute(select(runs.c.result).where(runs.c.number.in_(newest))).scalars():
        names += json.loads(text)
    order = ("test", "val", "machine")
    plain_names = [name for name in dict.fromkeys((*METRICS, *names)) if is_plain(name)]
    return sorted(plain_names, key=lambda name: (not name.startswith(order), name))


def _settings(connection: Connection) -> Mapping[str, set[ValueType]]:
    """Path of a setting -> the types of its values, in the oldest and newest settings of each task and recurrence, and
    in all of imported runs: any of them may have settings that no other has."""
    document = documents.c.id
    used = document.in_(select(runs.c.config_id).where(*_COUNTED[2:], runs.c.kind != "imported"))
    groups = (json_text(documents.c.text, "task"), json_text(documents.c.text, "model", "recurrence", "kind"))
    grouped = select(func.min(document), func.max(document)).where(used).group_by(*groups)
    numbers = {number for row in connection.execute(grouped) for number in row}
    numbers |= set(connection.execute(select(runs.c.config_id).where(runs.c.kind == "imported")).scalars())
    types: dict[str, set[ValueType]] = {}
    for text in connection.execute(
        select(documents.c.text).where(among(document, numbers)).order_by(document)
    ).scalars():
        for path, value in flatten(json.loads(text)):
            if path not in ("task", "seed") and is_plain(path):
                types.setdefault(path, set()).add(_type(value))
    return types


def program_settings(connection: Connection) -> dict[str, ValueType]:
    """Dotted path -> the type of its values, for the settings of users' programs and of imported runs, with the tables
    that have them, and the origins of imported runs."""
    settings = _settings(connection)
    types = {path: names for path, names in settings.items() if path.startswith(SETTINGS)}
    known: dict[str, ValueType] = {
        path: names.copy().pop() if len(names) == 1 else "text" for path, names in types.items()
    }
    for path in types:
        while f"{(path := path.rpartition('.')[0])}." != SETTINGS:
            known[path] = "text"
    known |= dict.fromkeys((path for path in settings if path.startswith(ORIGINS)), "text")
    return known


def _type(value: Any) -> ValueType:
    return "truth" if isinstance(value, bool) else "number" if isinstance(value, int | float) else "text"


def _setting(path: str, types: set[ValueType]) -> ColumnElement[Any]:
    value = of_setting(json_text, path)
    if types == {"truth"}:
        type_ = of_setting(json_type, path)
        value = case((type_ == "true", 1), (type_ == "false", 0))
    elif types == {"number"}:
        value = of_setting(json_number, path)
    return select(value).where(documents.c.id == runs.c.config_id).scalar_subquery()

"""Conditions and orders of runs as SQL, with the meaning that `filters.holds` and `filters.order` define.

`possible` says which of them SQL can do. Every comparison is true or false, never null, so that "not" has its meaning.
"""

from __future__ import annotations

import bisect
import re
from typing import Any

from sqlalchemy import Select, and_, case, exists, false, func, literal, not_, or_, select
from sqlalchemy.sql.elements import ColumnElement

from lrurun.config.schema import is_setting
from lrurun.ledger.dialects import NUMBER, NUMBERS, as_in_json, infinity, json_kind, json_number, json_text
from lrurun.ledger.filters import (
    FIELDS,
    FIRST_SECOND,
    LAST_SECOND,
    OPERATORS,
    And,
    Comparison,
    Condition,
    Not,
    Or,
    comparisons,
    when,
)
from lrurun.ledger.schema import attempts, documents, ladder_runs, ladders, runs, tags

MOST_COMPARISONS = 200
"""Of a condition in SQL: SQLite's expressions have at most 1000 levels."""

# Other names may be written with escapes in JSON, where SQLite does not find them.
_PLAIN = re.compile(r"[\w./:@%+ -]+", re.ASCII)
_RESULTS = {
    "val/accuracy": runs.c.val_accuracy,
    "test/accuracy": runs.c.test_accuracy,
    "machine/steps_per_second": runs.c.steps_per_second,
}
"""Results with a column of their own, which is null if they are NaN."""


def possible(condition: Condition | None, sort: str | None) -> bool:
    """Whether SQL can choose runs by this condition and sort them by this name.

    It cannot sort by fields with several values; find names of results and settings that JSON writes with escapes, or
    text that is not UTF-8; or process more than `MOST_COMPARISONS` comparisons.
    """
    compared = list(comparisons(condition)) if condition is not None else []
    names = [one.name for one in compared] + ([] if sort is None else [sort])
    return (
        (sort is None or FIELDS.get(sort) != "set")
        and len(compared) <= MOST_COMPARISONS
        and all(map(_PLAIN.fullmatch, names))
        and all(one.text == one.text.encode("utf-8", "replace").decode() for one in compared)
    )


def is_plain(name: str) -> bool:
    """Whether SQL finds this name of a result or setting in JSON."""
    return _PLAIN.fullmatch(name) is not None


def where(condition: Condition) -> ColumnElement[bool]:
    """The condition as an expression on `runs`."""
    match condition:
        case Comparison():
            return _comparison(condition)
        case Not(of):
            return not_(where(of))
        case And(parts):
            return and_(*map(where, parts))
        case Or(parts):
            return or_(*map(where, parts))


def in_order(wanted: Select[Any], sort: str | None, *, descending: bool) -> Select[Any]:
    """A selection from `runs` by this name, runs without a value last; newest first where values are equal."""
    newest = runs.c.number.desc()
    if sort is None:
        return wanted.order_by(newest)
    if sort is not None and is_setting(sort):
        kind, number_of, text_of = _setting(sort)
        truth = case((kind == "true", 1), (kind == "false", 0))
        # Computed once for each document. Without MATERIALIZED, SQLite would do so for each run.
        keys = (
            select(
                documents.c.id,
                case((kind.in_(NUMBERS), number_of), else_=truth).label("number"),
                case((kind == "text", text_of)).label("text"),
            )
            .cte("keys")
            .prefix_with("MATERIALIZED")
        )
        wanted = wanted.join(keys, keys.c.id == _reference(sort))
        number, text = keys.c.number, keys.c.text
        missing: ColumnElement[bool] = and_(number.is_(None), text.is_(None))
        ranks: list[ColumnElement[Any]] = [text.is_not(None), number, text]  # numbers come before text
    else:
        column = field(sort) if sort in FIELDS else result(sort)
        missing, ranks = column.is_(None), [column]
    return wanted.order_by(missing, *(rank.desc() if descending else rank.asc() for rank in ranks), newest)


def in_ladder(name: str) -> ColumnElement[bool]:
    """Whether a run is in an instance of this ladder."""
    return _place(ladder_runs.c.ladder.in_(select(ladders.c.id).where(ladders.c.name == name)))


def _comparison(wanted: Comparison) -> ColumnElement[bool]:
    name, compare = wanted.name, OPERATORS[wanted.operator]
    if is_setting(name):
        return _reference(name).in_(select(documents.c.id).where(_setting_holds(wanted)))
    if FIELDS.get(name) == "set":
        return _set_holds(wanted)
    if FIELDS.get(name) == "time":
        return _time_holds(runs.c[name], wanted)
    if name in FIELDS:
        return _true(compare(field(name), literal(wanted.number, NUMBER) if FIELDS[name] == "number" else wanted.text))
    holds = _true(
        compare(result(name), literal(wanted.number, NUMBER) if name in _RESULTS else as_in_json(wanted.number))
    )
    if wanted.operator == "!=":  # which is true of NaN
        holds = or_(holds, _true(json_text(runs.c.result, name) == "nan"))
    return holds


def field(name: str) -> ColumnElement[Any]:
    """A field that has one value."""
    if name != "numerics":
        return runs.c[name]
    newest = and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt)
    return select(attempts.c.numerics).where(newest).scalar_subquery()


def _true(comparison: ColumnElement[bool]) -> ColumnElement[bool]:
    return func.coalesce(comparison, false())


# Fields with several values, times


def _set_holds(wanted: Comparison) -> ColumnElement[bool]:
    member: dict[str, ColumnElement[bool]] = {
        "rung": ladder_runs.c.rung == wanted.text,
        "stage": ladder_runs.c.stage == wanted.text,
        "ladder": ladder_runs.c.ladder.in_(select(ladders.c.id).where(ladders.c.name == wanted.text)),
        "profile": ladder_runs.c.ladder.in_(
            select(ladders.c.id).where(func.coalesce(ladders.c.profile, "") == wanted.text)
        ),
        "user": ladder_runs.c.ladder.in_(select(ladders.c.id).where(func.coalesce(ladders.c.user, "") == wanted.text)),
    }
    if wanted.name == "tag":
        tagged = exists().where(tags.c.run == runs.c.number, tags.c.name == wanted.text)
        return tagged if wanted.operator == "=" else not_(tagged)
    equal = _place(member[wanted.name])
    return equal if wanted.operator == "=" else and_(not_(equal), _place())


def _place(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether a run has a place in a ladder that meets the conditions."""
    return exists().where(ladder_runs.c.run == runs.c.number, *conditions)


def _time_holds(column: ColumnElement[float], wanted: Comparison) -> ColumnElement[bool]:
    """The comparison of a time's text, which grows with the time, as one of the time itself."""
    seconds = range(FIRST_SECOND, LAST_SECOND)
    # The first second whose text is not before the wanted one, and the first whose text is after it.
    begin = FIRST_SECOND + bisect.bisect_left(seconds, wanted.text, key=_text_of)
    end = FIRST_SECOND + bisect.bisect_right(seconds, wanted.text, key=_text_of)
    holds = {
        "<": column < begin,
        "<=": column < end,
        ">": column >= end,
        ">=": column >= begin,
        "=": and_(column >= begin, column < end),
        "!=": or_(column < begin, column >= end),
    }[wanted.operator]
    return _true(and_(column >= FIRST_SECOND, column < LAST_SECOND, holds))


def _text_of(second: int) -> str:
    return when(second) or ""


# Numbers and text in JSON


def result(name: str) -> ColumnElement[Any]:
    """A number of a run's result; null if it is NaN or there is none."""
    if name in _RESULTS:
        return _RESULTS[name]
    number, text = json_number(runs.c.result, name), json_text(runs.c.result, name)
    return case(
        (json_kind(runs.c.result, name).in_(NUMBERS), number),
        (text == "inf", infinity()),
        (text == "-inf", -infinity()),
    )


def _setting(path: str) -> tuple[ColumnElement[str], ColumnElement[float], ColumnElement[str]]:
    """The JSON kind of a setting in a row of `documents`, and its value as a number and as a text."""
    at = path.removeprefix("execution.").split(".")
    return json_kind(documents.c.text, *at), json_number(documents.c.text, *at), json_text(documents.c.text, *at)


def _setting_holds(wanted: Comparison) -> ColumnElement[bool]:
    kind, number, text_of = _setting(wanted.name)
    compare = OPERATORS[wanted.operator]
    text = case((kind == "text", text_of), (kind.in_(("true", "false")), kind))
    holds = _true(compare(text, wanted.text))
    if wanted.number is not None:
        holds = or_(holds, _true(compare(case((kind.in_(NUMBERS), number)), as_in_json(wanted.number))))
    return holds


def _reference(path: str) -> ColumnElement[int]:
    """The document of a run that has a setting."""
    return runs.c.execution_id if path.startswith("execution.") else runs.c.config_id

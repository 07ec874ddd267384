"""Conditions and orders of runs as SQL.

Every comparison is true or false, never null, so that "not" has its meaning.
"""

from __future__ import annotations

import bisect
from typing import Any

from sqlalchemy import Select, and_, case, exists, false, func, literal, not_, or_, select
from sqlalchemy.sql.elements import ColumnElement

from lrurun.config.schema import is_setting
from lrurun.ledger import columns
from lrurun.ledger.columns import FIELDS
from lrurun.ledger.database.schema import documents, ladder_runs, ladders, runs, tags
from lrurun.ledger.database.sql import NUMBER, NUMBERS, as_in_json, json_text
from lrurun.ledger.filters import (
    FIRST_SECOND,
    LAST_SECOND,
    OPERATORS,
    And,
    Comparison,
    Condition,
    Not,
    Or,
    when,
)


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


def in_order(wanted: Select[Any], sort: str | None, *, descending: bool, ladder: str | None = None) -> Select[Any]:
    """A selection from `runs` by this column, runs without a value last; newest first where values are equal.

    Of several places in ladders, the first counts, or the first in those of the name `ladder`; of tags the least.
    """
    newest = runs.c.number.desc()
    if sort is None:
        return wanted.order_by(newest)
    if is_setting(sort):
        kind, number_of, text_of = columns.setting_expressions(sort)
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
        wanted = wanted.join(keys, keys.c.id == columns.document_of(sort))
        number, text = keys.c.number, keys.c.text
        missing: ColumnElement[bool] = and_(number.is_(None), text.is_(None))
        ranks: list[ColumnElement[Any]] = [text.is_not(None), number, text]  # numbers come before text
    else:
        if sort in FIELDS and FIELDS[sort].of_place:
            wanted = wanted.select_from(columns.with_first_place(ladder))
        missing, ranks = columns.expression(sort).is_(None), [columns.expression(sort)]
    return wanted.order_by(missing, *(rank.desc() if descending else rank.asc() for rank in ranks), newest)


def _comparison(wanted: Comparison) -> ColumnElement[bool]:
    name, compare = wanted.name, OPERATORS[wanted.operator]
    if is_setting(name):
        return columns.document_of(name).in_(select(documents.c.id).where(_setting_holds(wanted)))
    value = columns.expression(name)
    if name in FIELDS:
        match FIELDS[name].kind:
            case "set":
                return _set_holds(wanted)
            case "time":
                return _time_holds(value, wanted)
            case "number":
                return _true(compare(value, literal(wanted.number, NUMBER)))
            case _:
                return _true(compare(value, wanted.text))
    number = literal(wanted.number, NUMBER) if columns.has_own_column(name) else as_in_json(wanted.number)
    holds = _true(compare(value, number))
    if wanted.operator == "!=":  # which is true of NaN
        holds = or_(holds, _true(json_text(runs.c.result, name) == "nan"))
    return holds


def _true(comparison: ColumnElement[bool]) -> ColumnElement[bool]:
    return func.coalesce(comparison, false())


# Fields with several values, times


def _set_holds(wanted: Comparison) -> ColumnElement[bool]:
    if wanted.name == "tag":
        tagged = exists().where(tags.c.run == runs.c.number, tags.c.name == wanted.text)
        return tagged if wanted.operator == "=" else not_(tagged)
    equal = _place(FIELDS[wanted.name].value == wanted.text)
    return equal if wanted.operator == "=" else and_(not_(equal), _place())


def _place(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether a run has a place in a ladder that meets the conditions."""
    places = ladder_runs.join(ladders, ladders.c.id == ladder_runs.c.ladder)
    # a list that is sorted by places has their tables, too
    return exists().select_from(places).where(ladder_runs.c.run == runs.c.number, *conditions).correlate(runs)


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


def _setting_holds(wanted: Comparison) -> ColumnElement[bool]:
    kind, number, text_of = columns.setting_expressions(wanted.name)
    compare = OPERATORS[wanted.operator]
    text = case((kind == "text", text_of), (kind.in_(("true", "false")), kind))
    holds = _true(compare(text, wanted.text))
    if wanted.number is not None:
        holds = or_(holds, _true(compare(case((kind.in_(NUMBERS), number)), as_in_json(wanted.number))))
    return holds

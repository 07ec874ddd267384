"""Conditions and orders of runs as SQL.

Every comparison is true or false, never null, so that "not" has its meaning.
"""

from __future__ import annotations

import bisect
from typing import Any

from msgspec import structs
from sqlalchemy import Select, and_, case, exists, false, func, literal, not_, or_, select
from sqlalchemy.sql.elements import ColumnElement

from lrurun.config.schema import is_setting
from lrurun.ledger import columns
from lrurun.ledger.columns import FIELDS
from lrurun.ledger.database.schema import documents, ladder_runs, ladders, runs, tags
from lrurun.ledger.database.sql import LISTS, NUMBER, NUMBERS, as_in_json, json_text, same_json
from lrurun.ledger.times import FIRST_SECOND, LAST_SECOND, when
from lrurun.ledger.where.grammar import OPERATORS, And, Condition, Not, Or, ValueComparison


def where(condition: Condition) -> ColumnElement[bool]:
    """A condition as an expression on `runs`."""
    match condition:
        case ValueComparison():
            return _comparison(condition)
        case Not(negated):
            return not_(where(negated))
        case And(parts):
            return and_(*map(where, parts))
        case Or(parts):
            return or_(*map(where, parts))


def in_order(query: Select[Any], sort: str | None, *, descending: bool, ladder: str | None = None) -> Select[Any]:
    """A query on `runs`, sorted by a column: runs without a value last, newest first where values are equal.

    Where a run has several memberships, the first counts, or the first in ladders of the name `ladder`; where it
    has several tags, the first in the alphabet.
    """
    newest = runs.c.number.desc()
    if sort is None:
        return query.order_by(newest)
    if is_setting(sort):
        type_, number_value, text_value = columns.setting_expressions(sort)
        truth = case((type_ == "true", 1), (type_ == "false", 0))
        # Computed once for each document. Without MATERIALIZED, SQLite would do so for each run.
        keys = (
            select(
                documents.c.id,
                case((type_.in_(NUMBERS), number_value), else_=truth).label("number"),
                case((type_ == "text", text_value)).label("text"),
                case((type_.in_(LISTS), text_value)).label("listed"),
            )
            .cte("keys")
            .prefix_with("MATERIALIZED")
        )
        query = query.join(keys, keys.c.id == columns.document_of(sort))
        number, text, listed = keys.c.number, keys.c.text, keys.c.listed
        missing: ColumnElement[bool] = and_(number.is_(None), text.is_(None), listed.is_(None))
        # numbers come before text, and lists after it
        ranks: list[ColumnElement[Any]] = [listed.is_not(None), text.is_not(None), number, text, listed]
    else:
        if sort in FIELDS and FIELDS[sort].is_of_membership:
            query = query.select_from(columns.with_first_membership(ladder))
        missing, ranks = columns.expression(sort).is_(None), [columns.expression(sort)]
    return query.order_by(missing, *(rank.desc() if descending else rank.asc() for rank in ranks), newest)


def _comparison(comparison: ValueComparison) -> ColumnElement[bool]:
    name, compare = comparison.name, OPERATORS[comparison.operator]
    if is_setting(name):
        return columns.document_of(name).in_(select(documents.c.id).where(_setting_holds(comparison)))
    value = columns.expression(name)
    if name in FIELDS:
        match FIELDS[name].type:
            case "set":
                return _set_holds(comparison)
            case "time":
                return _time_holds(value, comparison)
            case "number":
                return _true(compare(value, literal(comparison.number, NUMBER)))
            case _:
                return _true(compare(value, comparison.text))
    number = literal(comparison.number, NUMBER) if columns.has_own_column(name) else as_in_json(comparison.number)
    holds = _true(compare(value, number))
    if comparison.operator == "!=":  # which is true of NaN
        holds = or_(holds, _true(json_text(runs.c.result, name) == "nan"))
    return holds


def _true(comparison: ColumnElement[bool]) -> ColumnElement[bool]:
    return func.coalesce(comparison, false())


# Fields with several values, times


def _set_holds(comparison: ValueComparison) -> ColumnElement[bool]:
    if comparison.name == "tag":
        tagged = exists().where(tags.c.run == runs.c.number, tags.c.name == comparison.text)
        return tagged if comparison.operator == "=" else not_(tagged)
    equal = _has_membership(FIELDS[comparison.name].value == comparison.text)
    return equal if comparison.operator == "=" else and_(not_(equal), _has_membership())


def _has_membership(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether a run has a membership that meets the conditions."""
    memberships = ladder_runs.join(ladders, ladders.c.id == ladder_runs.c.ladder)
    # Read once: SQLite would look through all runs of an instance for each run whose own membership is searched.
    return runs.c.number.in_(select(ladder_runs.c.run).select_from(memberships).where(*conditions).correlate(None))


def _time_holds(column: ColumnElement[float], comparison: ValueComparison) -> ColumnElement[bool]:
    """The comparison of a time's text, which grows with the time, as a comparison of the time itself."""
    seconds = range(FIRST_SECOND, LAST_SECOND)
    # The first second whose text is not before the comparison's, and the first whose text is after it.
    begin = FIRST_SECOND + bisect.bisect_left(seconds, comparison.text, key=_time_text)
    end = FIRST_SECOND + bisect.bisect_right(seconds, comparison.text, key=_time_text)
    holds = {
        "<": column < begin,
        "<=": column < end,
        ">": column >= end,
        ">=": column >= begin,
        "=": and_(column >= begin, column < end),
        "!=": or_(column < begin, column >= end),
    }[comparison.operator]
    return _true(and_(column >= FIRST_SECOND, column < LAST_SECOND, holds))


def _time_text(second: int) -> str:
    return when(second) or ""


def _setting_holds(comparison: ValueComparison) -> ColumnElement[bool]:
    type_, number, text_value = columns.setting_expressions(comparison.name)
    if comparison.operator == "!=":
        return and_(_true(type_ != "null"), not_(_setting_holds(structs.replace(comparison, operator="="))))
    compare = OPERATORS[comparison.operator]
    text = case((type_ == "text", text_value), (type_.in_(("true", "false")), type_))
    holds = _true(compare(text, comparison.text))
    if comparison.number is not None:
        holds = or_(holds, _true(compare(case((type_.in_(NUMBERS), number)), as_in_json(comparison.number))))
    if comparison.listed is not None and comparison.operator == "=":
        listed = case((type_.in_(LISTS), text_value))
        texts = select(listed.label("text")).distinct().subquery()  # thousands of documents have few different lists
        holds = or_(holds, _true(listed.in_(select(texts.c.text).where(same_json(texts.c.text, comparison.listed)))))
    return holds

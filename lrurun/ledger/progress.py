"""The statements that read the progress of a ladder; their parameter `ladder` is its number, `ladders` has the
numbers of several."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from sqlalchemy import (
    CompoundSelect,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    not_,
    select,
    union_all,
)
from sqlalchemy.sql.elements import ColumnElement

from lrurun.ledger import columns
from lrurun.ledger.database.schema import checkpoints, events, ladder_runs, ladders, runs, tags
from lrurun.ledger.database.sql import NUMBER, WHOLE, among_given, numbers_as_json, total

_MEMBERS = ladder_runs.join(runs, runs.c.number == ladder_runs.c.run)
_CURRENT = and_(ladder_runs.c.ladder == bindparam("ladder"), runs.c.superseded == 0)


def _finite(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return case((func.abs(column) < math.inf, column))


SCALE = 2.0**-540
"""Large numbers are averaged times this, which is exact: sums overflow, and PostgreSQL's means compute squares too."""


def _is_usual(column: ColumnElement[Any]) -> ColumnElement[bool]:
    return func.abs(column) < 1e100


def mean(row: Any, name: str) -> float | None:
    """The mean of a number of the runs in a row of `summaries`, "loss" or "score"; None without any."""
    columns = row._mapping
    usual: float | None = columns[f"usual_{name}"]
    large: float | None = columns[f"large_{name}"]
    if large is None:
        return usual
    share: float = columns[f"usual_{name}s"] / columns[f"{name}s"]
    return (usual or 0.0) * share + large * (1 - share) / SCALE


def _means(column: ColumnElement[Any], name: str) -> list[ColumnElement[Any]]:
    """The columns from which `mean` is."""
    return [
        func.avg(case((_is_usual(column), column))).label(f"usual_{name}"),
        func.avg(case((not_(_is_usual(column)), column * SCALE))).label(f"large_{name}"),
        func.count(column).label(f"{name}s"),
        func.count().filter(_is_usual(column)).label(f"usual_{name}s"),
    ]


def _by_state(
    condition: ColumnElement[bool], state: ColumnElement[str], score: ColumnElement[Any], speed: ColumnElement[Any]
) -> Select[Any]:
    """The columns of StateSummary, for the runs in some states, grouped by rung, stage and, if it varies, state."""
    return (
        select(
            ladder_runs.c.rung,
            ladder_runs.c.stage,
            func.min(ladder_runs.c.position).label("position"),
            state.label("state"),
            func.count().label("count"),
            total(runs.c.step).label("step"),  # which does not overflow, whatever a ledger contains
            total(runs.c.steps).label("steps"),
            *_means(runs.c.last_loss, "loss"),
            *_means(score, "score"),
            numbers_as_json(speed).label("speeds"),
            func.max(runs.c.created_at).label("created_at"),
            func.max(runs.c.finished_at).label("finished_at"),
            func.min(runs.c.config_id).label("first_config"),
            func.max(runs.c.config_id).label("last_config"),
        )
        .select_from(_MEMBERS)
        .where(_CURRENT, condition)
        .group_by(ladder_runs.c.rung, ladder_runs.c.stage, *([state] if state is runs.c.state else []))
    )


_DONE = runs.c.state == "done"
_ANY_RUN = runs.alias("other")
# The index has this literal.
_NOT_DONE = ladder_runs.c.run.in_(select(_ANY_RUN.c.number).where(_ANY_RUN.c.state != literal_column("'done'")))
# The index of ladder_runs has rungs and stages in order, so that SQLite sorts no finished runs.


@cache
def summaries(score: str) -> CompoundSelect[Any]:
    """The rows of StateSummary; `score` is the metric that selects the model."""
    result = _finite(columns.expression(score))
    return union_all(
        _by_state(_DONE, literal_column("'done'", Text), result, _finite(runs.c.steps_per_second)),
        _by_state(
            and_(_NOT_DONE, not_(_DONE)),
            runs.c.state,
            case((runs.c.state == "running", _finite(runs.c.last_score)), else_=result),
            _finite(case((runs.c.result.is_(None), runs.c.last_speed), else_=runs.c.steps_per_second)),
        ),
    ).order_by("position", "rung", "stage", "state")


def _current_of(ladder: ColumnElement[bool]) -> ColumnElement[bool]:
    return and_(runs.c.superseded == 0, runs.c.number.in_(select(ladder_runs.c.run).where(ladder)))


_IN_LADDER = _current_of(ladder_runs.c.ladder == bindparam("ladder"))
_IN_LADDERS = _current_of(among_given(ladder_runs.c.ladder, "ladders"))
COUNTS = select(runs.c.state, func.count()).where(_IN_LADDER).group_by(runs.c.state)
"""State -> number of runs."""
COUNTS_OF_SEVERAL = select(runs.c.state, func.count()).where(_IN_LADDERS).group_by(runs.c.state)
"""The same for `ladders`."""

_UNFINISHED = runs.c.state.in_(["queued", "running"])
_LEFT = case((runs.c.steps > runs.c.step, runs.c.steps - runs.c.step), else_=0)
_WORK = (
    func.count().filter(runs.c.state == "running").label("running"),
    total(case((runs.c.last_speed != 0, _LEFT / cast(runs.c.last_speed, NUMBER)))).label("seconds"),
    func.count().filter(runs.c.last_speed.is_(None)).label("runs"),
    total(case((runs.c.last_speed.is_(None), _LEFT))).label("steps"),
    func.count().filter(runs.c.last_speed == 0).label("stalled"),
)
REMAINING = select(*_WORK).where(_IN_LADDER, _UNFINISHED)
"""The remaining work of the ladder."""
REMAINING_OF_SEVERAL = select(*_WORK).where(_IN_LADDERS, _UNFINISHED)
"""The same for `ladders`."""
REMAINING_BY_RUNG = (
    select(ladder_runs.c.rung, ladder_runs.c.stage, *_WORK)
    .select_from(_MEMBERS)
    .where(_CURRENT, _UNFINISHED)
    .group_by(ladder_runs.c.rung, ladder_runs.c.stage)
)
"""The remaining work of each rung and stage."""

_RUNNING = select(runs).where(runs.c.state == literal_column("'running'")).subquery()
STAMP = select(
    *(
        select(func.coalesce(func.max(column), 0)).scalar_subquery()
        for column in (events.c.id, runs.c.number, ladder_runs.c.id, ladders.c.id, checkpoints.c.id)
    ),
    select(func.count()).select_from(tags).scalar_subquery(),
    select(func.count()).select_from(runs).where(runs.c.state == literal_column("'queued'")).scalar_subquery(),
    select(func.count()).select_from(_RUNNING).scalar_subquery(),
    select(cast(func.coalesce(func.sum(_RUNNING.c.step), 0), WHOLE)).scalar_subquery(),
)
"""Newest event, run, membership, instance and checkpoint; numbers of tags, of queued runs and of running ones; the
steps of these."""

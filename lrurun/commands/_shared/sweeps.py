"""Sweeps: `--sweep` of `lrurun ladder` and `lrurun plan`, an instance of the ladder for each combination of values, and
`--by` of `lrurun report` and `lrurun plot`, one table or figure of instances that differ in some settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from lrurun import console
from lrurun.commands._shared.report_output import Shown
from lrurun.config.settings import sweep_points
from lrurun.errors import NotFoundError, UsageError
from lrurun.instances.requests import LadderRequest
from lrurun.session import cautions, opening

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.ledger.store import Ledger
    from lrurun.paths import Places
    from lrurun.report.tables.swept_table import SweptReport


class Point(Struct, frozen=True):
    """A combination of values: the request of its instance, and its plan."""

    request: LadderRequest
    plan: planning.Plan
    values: dict[str, Any]
    """Swept path -> its value at this point."""

    @property
    def text(self) -> str:
        """The values of an instance as text, for example "optim.lr=0.001, train.batch=50"."""
        return ", ".join(f"{path}={console.setting(value)}" for path, value in self.values.items())


def points(request: LadderRequest, sweep: Sequence[str]) -> list[Point]:
    """The combinations of a sweep, all of which are planned before anything is trained.

    Raises:
        UsageError: a wrong path or value; two values that are the same.
    """
    assert isinstance(request.sets, list)
    swept = [text.partition("=")[0].strip() for text in sweep]
    points: list[Point] = []
    for sets in sweep_points(sweep, request.sets):
        point_request = msgspec.structs.replace(request, sets=sets)
        try:
            plan = point_request.plan()
        except UsageError as error:
            raise _sweep_error(error, swept) from None
        point = Point(point_request, plan, {path: plan.value(path) for path in swept})
        if any(plan.spec == earlier.plan.spec for earlier in points):
            raise UsageError(f"--sweep: {point.text} is named twice", "leave one of them out")
        points.append(point)
    return points


def _sweep_error(error: UsageError, swept: Sequence[str]) -> UsageError:
    """An error about a value of `--set`, which is one of `--sweep` for these paths."""
    option = re.compile(rf"--set (?=(?:{'|'.join(map(re.escape, swept))})(?![\w.]))")
    return UsageError(option.sub("--sweep ", error.message), error.hint and option.sub("--sweep ", error.hint))


def train(
    places: Places,
    request: LadderRequest,
    sweep: Sequence[str],
    points: Sequence[Point],
    train_one: Callable[[Point], int],
    *,
    report: bool,
) -> int:
    """Trains what remains of each instance, one after another, and prints one table; the exit code.

    `train_one` trains the instance of a point, and returns its exit code.
    """
    for point in points:
        rungs, _ = point.request.chosen(point.plan)
        cautions.warn_of_batches(point.plan, rungs)
    worst = 0
    for number, point in enumerate(points, 1):
        console.say(f"{number} of {len(points)}: {point.text}")
        code = train_one(point)
        if code > 128:
            return code
        worst = max(worst, code)
    if report:
        by = [text.partition("=")[0].strip() for text in sweep]
        write_report(places, request, by, Shown(rungs=request.rungs))
    return worst


def write_report(
    places: Places,
    request: LadderRequest,
    by: Sequence[str],
    show: Shown,
) -> None:
    """Prints the table of the instances that are the requested one but for the settings `by`.

    Raises:
        UsageError, NotFoundError: as `swept_table`.
    """
    with swept_table(places, request, by, show) as (report, _, ledger):
        show.write(report, ledger)


@contextmanager
def swept_table(
    places: Places,
    request: LadderRequest,
    by: Sequence[str],
    show: Shown | None = None,
) -> Iterator[tuple[SweptReport, planning.Plan, Ledger]]:
    """The table of the instances that are the requested one but for the settings `by`, the plan of the requested one,
    and the open ledger.

    Args:
        show: which rungs; None for all.

    Raises:
        UsageError: one of these is among the values of `--set`.
        NotFoundError: there is no such instance.
    """
    from lrurun.config.settings import by_paths, parse_set
    from lrurun.report.tables.swept_table import build, find

    by = by_paths(by)
    for text in request.sets:
        if (path := parse_set(text)[0]) in by:
            raise UsageError(f"--set {path} and --by {path} exclude each other", "leave one of them out")
    command = request.command(*(word for path in by for word in ("--sweep", f"{path}=V,V")))
    ledger = opening.read(places)
    with ledger or nullcontext():
        plan = request.plan(ledger)
        rungs = None if show is None else show.rung_names(plan.ladder)
        if ledger is None:
            raise NotFoundError(
                f"{places.ledger}: there is no ledger, so there are no results",
                f"run: {command}",
            )
        yield build(ledger, plan, find(ledger, plan, by, command), by, rungs), plan, ledger

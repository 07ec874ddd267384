"""Sweeps: `--sweep` of `lrurun ladder` and `lrurun plan`, an instance of the ladder for each combination of values, and
`--by` of `lrurun report` and `lrurun plot`, one table or figure of instances that differ in some settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lrurun import console
from lrurun.commands._shared.report_output import Shown
from lrurun.errors import NotFoundError, UsageError
from lrurun.instances.requests import LadderRequest
from lrurun.session import cautions, opening

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.instances.sweep import Point
    from lrurun.ledger.ledger import Ledger
    from lrurun.paths import Places
    from lrurun.report.tables.swept_table import SweptReport


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
    from lrurun.config.sweeps import by_paths
    from lrurun.report.tables.swept_table import build, find

    by = by_paths(by)
    for path in request.sets:
        if path in by:
            raise UsageError(f"--set {path} and --by {path} exclude each other", "leave one of them out")
    command = request.command(*(word for path in by for word in ("--sweep", f"{path}=V,V")))
    with opening.read(places) as ledger:
        plan = request.plan(ledger)
        rungs = None if show is None else show.rung_names(plan.ladder)
        if not ledger.exists:
            raise NotFoundError(
                f"{places.ledger}: there is no ledger, so there are no results",
                f"run: {command}",
            )
        yield build(ledger, plan, find(ledger, plan, by, command), by, rungs), plan, ledger

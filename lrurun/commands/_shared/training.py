"""What commands print around a training: the table of the ladder at its end, and what stopped it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from lrurun import console
from lrurun.commands._shared.report_output import Shown
from lrurun.errors import Stopped, UnfinishedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lrurun.session.training import LadderTraining, SweepTraining


def train(training: LadderTraining, *, report: bool = True, claims: bool = False) -> int:
    """Trains what remains of a ladder, and prints its `report`; of a dry run, what would be trained or submitted.

    Args:
        claims: whether claims of papers are shown for any task.

    Returns: the exit code.

    Raises:
        LrurunError: as `LadderTraining.train`.
    """
    if training.options.dry_run:
        return _print_plan(training)
    try:
        end = training.train()
    except Stopped as stopped:
        return training.options.stopped(stopped)
    if end.submitted:
        return 0
    if report:
        _print_report(training, claims=claims)
    for sentence in end.unfinished:
        console.warn(sentence)
    return UnfinishedError.exit_code if end.unfinished else 0


def train_sweep(sweep: SweepTraining, report: Callable[[], None]) -> int:
    """Trains what remains of all instances of a sweep, and calls what prints its report; the exit code.

    Raises:
        LrurunError: as `SweepTraining.train`.
    """
    try:
        end = sweep.train()
    except Stopped as stopped:
        return sweep.first.options.stopped(stopped)
    report()
    for sentence in end.unfinished:
        console.warn(sentence)
    return UnfinishedError.exit_code if end.unfinished else 0


def _print_plan(training: LadderTraining) -> int:
    """Prints the plan, or the script that would be submitted."""
    if training.options.site.is_local:
        from lrurun.commands._shared import plan_output

        return plan_output.show(training.places, training.request, training.plan)
    console.write(training.executor().script())
    return 0


def _print_report(training: LadderTraining, *, claims: bool) -> None:
    """Prints the answer: the table, and what it says."""
    from lrurun.ledger.ledger import Ledger
    from lrurun.report.tables import loaded_instance
    from lrurun.session import next_step

    places, request, plan = training.places, training.request, training.plan
    shown = Shown(rungs=request.rungs, claims=claims, request=request)
    with Ledger.read(places.ledger) as ledger:  # its note was shown
        loaded = loaded_instance.chosen(ledger, None, plan, None, "lrurun ladder")
        report = loaded.report(rungs=shown.rung_names(plan.ladder), with_claims=claims or None)
        structs.replace(shown, firm=next_step.command(places, request, plan, ledger, report)).write(report, ledger)

"""Sweeps: `--sweep` of `lrurun ladder` and `lrurun plan`, an instance of the ladder for each combination of values, and
`--by` of `lrurun report` and `lrurun plot`, one table or figure of instances that differ in some settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lrurun import console
from lrurun.commands._shared.report_output import Shown
from lrurun.errors import NotFoundError, UsageError, plural
from lrurun.instances.requests import LadderRequest
from lrurun.session import cautions, opening

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.ledger.ledger import Ledger
    from lrurun.paths import Places
    from lrurun.report.tables.swept_table import SweptReport
    from lrurun.runner.signals import Signals
    from lrurun.session.training_options import TrainingOptions


def train(
    places: Places, request: LadderRequest, sweep: Sequence[str], options: TrainingOptions, signals: Signals
) -> int:
    """Trains what remains of the instances of a sweep, and prints one table; the exit code.

    On this machine, the runs of all instances are in one queue. With `--decide`, where the seeds of an instance follow
    from its verdicts, and with `--on`, where a job is for one instance, it is one instance after another.
    """
    from lrurun.commands._shared import training
    from lrurun.instances.sweep import check_names, points
    from lrurun.session.training import LadderTraining, SweepTraining

    def report() -> None:
        by = [text.partition("=")[0].strip() for text in sweep]
        write_report(places, request, by, Shown(rungs=request.rungs))

    chosen = points(request, sweep)
    with opening.read(places) as ledger:
        check_names(ledger, chosen)
    trainings = [
        LadderTraining(places=places, request=point.request, plan=point.plan, options=options, signals=signals)
        for point in chosen
    ]
    for one in trainings:
        cautions.warn_of_batches(one.plan, one.rungs)
    if options.site.is_local and not request.decide:
        texts = "; ".join(point.text for point in chosen)
        console.say(f"sweep of {plural(len(chosen), 'instance')} in one queue: {texts}")
        return training.train_sweep(SweepTraining(trainings=trainings), report)
    worst = 0
    for number, (point, one) in enumerate(zip(chosen, trainings, strict=True), 1):
        console.say(f"{number} of {len(trainings)}: {point.text}")
        code = training.train(one, report=False)
        if code > 128:
            return code
        worst = max(worst, code)
    if not (options.detach or options.dry_run):
        report()
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
        plan = request.plan_in(ledger)
        rungs = None if show is None else show.rung_names(plan.ladder)
        if not ledger.exists:
            raise NotFoundError(
                f"{places.ledger}: there is no ledger, so there are no results",
                f"run: {command}",
            )
        yield build(ledger, plan, find(ledger, plan, by, command), by, rungs), plan, ledger

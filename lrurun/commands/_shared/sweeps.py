"""Sweeps: `--sweep` of `lrurun ladder` and `lrurun plan`, an instance of the ladder for each combination of values, and
`--by` of `lrurun report` and `lrurun plot`, one table or figure of instances that differ in some settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from lrurun import console, paths
from lrurun.commands._shared.report_output import Shown
from lrurun.errors import NotFoundError, UsageError, plural
from lrurun.instances.requests import LadderRequest
from lrurun.session import cautions, opening

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.ledger.ledger import Ledger
    from lrurun.paths import Places
    from lrurun.report.tables.chosen_table import Choice
    from lrurun.report.tables.loaded_instance import LoadedInstance
    from lrurun.report.tables.swept_table import SweptReport
    from lrurun.runner.signals import Signals
    from lrurun.session.training_options import TrainingOptions


def train(
    places: Places,
    request: LadderRequest,
    sweep: Sequence[str],
    options: TrainingOptions,
    signals: Signals,
    *,
    choice_seeds: int | None = None,
) -> int:
    """Trains what remains of the instances of a sweep, and prints one table; the exit code.

    Where `choice_seeds` choose, what validation chooses is trained with fresh seeds, and the comparison is printed.

    On this machine, the runs of all instances are in one queue. With `--decide`, where the seeds of an instance follow
    from its verdicts, and with `--on`, where a job is for one instance, it is one instance after another.
    """
    from lrurun.commands._shared import training
    from lrurun.instances.sweep import check_names, points
    from lrurun.session.training import LadderTraining, SweepTraining

    by = [text.partition("=")[0].strip() for text in sweep]

    def report() -> None:
        write_report(places, request, by, Shown(rungs=request.rungs))

    def training_of(request: LadderRequest, plan: planning.Plan) -> LadderTraining:
        return LadderTraining(places=places, request=request, plan=plan, options=options, signals=signals)

    chosen = points(request, sweep)
    with opening.read(places) as ledger:
        check_names(ledger, chosen)
    trainings = [training_of(point.request, point.plan) for point in chosen]
    for one in trainings:
        cautions.warn_of_batches(one.plan, one.rungs)
    if options.site.is_local and not request.decide:
        texts = "; ".join(point.text for point in chosen)
        console.say(f"sweep of {plural(len(chosen), 'instance')} in one queue: {texts}")
        code = training.train_sweep(SweepTraining(trainings=trainings), report)
        if code or choice_seeds is None:
            return code
        with swept_instances(places, request, by) as swept:
            choice = swept.choice(choice_seeds)
            fresh = choice.fresh(request.rungs or None)
        requests = [structs.replace(group.request(request), chosen_by=sorted(choice.seeds)) for group in fresh]
        show = Shown(rungs=request.rungs)

        def compare() -> None:
            write_choice(places, request, by, show, choice_seeds)

        if not requests:
            compare()
            return 0
        for group in fresh:
            console.say(f"fresh seeds {group.seeds}: {', '.join(group.rungs)}: {group.text}")
        return training.train_sweep(
            SweepTraining(trainings=[training_of(again, again.plan()) for again in requests]), compare
        )
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
    instance: str | None = None,
) -> None:
    """Prints the table of the instances that are the requested or named one but for the settings `by`.

    Raises:
        UsageError, NotFoundError: as `swept_table`.
    """
    with swept_table(places, request, by, show, instance) as (report, _, ledger):
        show.write(report, ledger)


def write_choice(
    places: Places,
    request: LadderRequest,
    by: Sequence[str],
    show: Shown,
    seeds: int,
    instance: str | None = None,
) -> None:
    """Prints the comparison of the rungs at the values that validation chooses for them.

    Args:
        seeds: how many of the first seeds choose.

    Raises:
        UsageError, NotFoundError: as `swept_instances`; or the values have no seed in common.
    """
    with swept_instances(places, request, by, instance) as sweep:
        choice = sweep.choice(seeds)
        rungs = show.rung_names(sweep.plan.ladder)
        report = choice.report(sweep.request, rungs, with_unbeaten=show.style.plain)
        structs.replace(show, request=sweep.request).write(report, sweep.ledger)


@contextmanager
def swept_table(
    places: Places,
    request: LadderRequest,
    by: Sequence[str],
    show: Shown | None = None,
    instance: str | None = None,
) -> Iterator[tuple[SweptReport, planning.Plan, Ledger]]:
    """The table of the instances that are the requested one but for the settings `by`, the plan of the requested one,
    and the open ledger.

    Args:
        show: which rungs; None for all.
        instance: the name of an instance in place of the request.

    Raises:
        UsageError: one of these is among the values of `--set`.
        NotFoundError: there is no such instance.
    """
    from lrurun.report.tables.swept_table import build

    with swept_instances(places, request, by, instance) as sweep:
        rungs = None if show is None else show.rung_names(sweep.plan.ladder)
        yield build(sweep.ledger, sweep.plan, sweep.instances, sweep.by, rungs), sweep.plan, sweep.ledger


class SweptInstances(Struct, frozen=True):
    """The instances that are a requested one but for some settings, in an open ledger."""

    ledger: Ledger
    request: LadderRequest
    """The request for the one that has no value of these settings."""
    plan: planning.Plan
    """The plan of the requested one."""
    by: Sequence[str]
    instances: Sequence[LoadedInstance]
    command: str
    """The command that trains them."""

    def choice(self, seeds: int) -> Choice:
        """What validation chooses with that many seeds.

        Raises:
            NotFoundError: the values of a rung have no seed in common.
        """
        from lrurun.report.tables.chosen_table import Choice

        return Choice(self.plan, self.instances, self.by, seeds, self.command)


@contextmanager
def swept_instances(
    places: Places, request: LadderRequest, by: Sequence[str], instance: str | None = None
) -> Iterator[SweptInstances]:
    """The instances that are the requested one but for the settings `by`.

    Args:
        instance: the name of one of them, in place of the request; its documents are as they were when it was run.

    Raises:
        UsageError: one of these is among the values of `--set`.
        NotFoundError: there is no such instance.
    """
    from lrurun.config.sweeps import by_paths
    from lrurun.report.tables.swept_table import find

    by = by_paths(by)
    for path in request.sets:
        if path in by:
            raise UsageError(f"--set {path} and --by {path} exclude each other", "leave one of them out")
    with opening.read(places) as ledger:
        if instance is not None and ledger.exists:
            request, plan = _without(ledger, instance, by)
        elif instance is None:
            plan = request.plan_in(ledger)
        command = request.command(*(word for path in by for word in ("--sweep", f"{path}=V,V")))
        if not ledger.exists:
            raise NotFoundError(
                f"{places.ledger}: there is no ledger, so there are no results",
                f"run: {command}" if instance is None else "name one with --ledger PATH",
            )
        yield SweptInstances(ledger, request, plan, by, find(ledger, plan, by, command), command)


def _without(ledger: Ledger, name: str, by: Sequence[str]) -> tuple[LadderRequest, planning.Plan]:
    """The request and the plan of the named instance without its values of the settings `by`."""
    from lrurun.instances import requests
    from lrurun.report.tables import loaded_instance

    instance = ledger.ladder(name)
    plan = loaded_instance.of_instance(ledger, instance).plan
    sets = {path: value for path, value in instance.spec.set.items() if path not in by}
    recorded = [] if plan.kind == "imported" else requests.recorded(ledger, instance, LadderRequest)
    task = instance.task if instance.task in paths.names("recipes") else plan.recipe.path
    ladder = instance.name if instance.name in paths.names("ablations") else plan.ladder.path
    if recorded:
        task, ladder = recorded[-1].task, recorded[-1].ladder
    request = LadderRequest(
        task=task, ladder=ladder, profile=instance.profile, tune=instance.spec.tune, extend=plan.extend_option,
        sets=sets,
    )  # fmt: skip
    return request, plan.with_sets(sets)

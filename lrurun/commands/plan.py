"""`lrurun plan`: what a ladder would train, what is done already, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from msgspec import structs

from lrurun import console
from lrurun.bench.rungs import Measurements, error_text
from lrurun.commands._shared import plan_output
from lrurun.commands._shared.options import (
    Decide,
    Extend,
    Json,
    LadderName,
    MaxSeeds,
    NewName,
    OnlyInstance,
    ProfileName,
    Rungs,
    Seeds,
    Sets,
    Sweeps,
    TaskOrAll,
    Tune,
)
from lrurun.commands._shared.plan_output import bytes_text, seconds_text
from lrurun.commands._shared.rules import DECIDE_HINT, INSTANCE, examples, excludes, needs
from lrurun.config.settings import parse_sets
from lrurun.errors import LrurunError, UsageError
from lrurun.instances.measurement import Measurement
from lrurun.instances.requests import LadderRequest, ladder_or_default
from lrurun.instances.sweep import points
from lrurun.session import cautions, opening, resuming

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.paths import Places


@examples(
    "lrurun plan npDigits",
    "lrurun plan npDigits --tune --seeds 12",
)
@excludes("decide", "seeds", "rung", hint=DECIDE_HINT)
@excludes("measure", "sweep", hint="measure one instance, with --set")
@excludes("instance", *INSTANCE, "task", "sweep", "name", "measure", hint="--instance is of an instance as it was run")
@needs("max_seeds", "decide")
@needs("time_limit", "measure")
def plan(
    context: typer.Context,
    task: TaskOrAll = None,
    ladder: LadderName = None,
    profile: ProfileName = None,
    rung: Rungs = None,
    seeds: Seeds = None,
    decide: Decide = False,
    max_seeds: MaxSeeds = None,
    tune: Tune = False,
    extend: Extend = None,
    set_: Sets = None,
    sweep: Sweeps = None,
    name: NewName = None,
    instance: OnlyInstance = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Compile each rung and time a few steps here: time and memory.")
    ] = False,
    time_limit: Annotated[
        Optional[str],
        typer.Option("--time-limit", metavar="T", help="With --measure: stop within this time, as in 10m."),
    ] = None,
    json: Json = False,
) -> int:
    """Show what a ladder would train, and how long that takes.

    With --instance, what remains of an instance by its newest command, with the ladder and recipe that it was run with.
    No run is trained or recorded. With -v also the parameter groups of every rung. The exit code is 3 if --measure
    fails on a rung, for lack of memory, for example. ^C and --time-limit end the measuring; the plan has what was
    found.
    """
    places: Places = context.obj.places
    if instance is not None:
        request, plan = resuming.newest_request(places, instance)
        chosen: dict[str, Any] = {"rungs": rung} if rung else {}
        if seeds is not None or decide:
            chosen |= {"seeds": seeds, "decide": decide, "max_seeds": max_seeds}
        request = structs.replace(request, **chosen)
        request.check()
        return plan_output.show(places, request, plan, json=json)
    if task is None:
        raise UsageError("plan: expected a TASK or --instance", "as in: lrurun plan npDigits")
    request = LadderRequest(
        task=task,
        ladder=ladder_or_default(ladder, task),
        profile=profile,
        rungs=rung or [],
        seeds=seeds,
        tune=tune,
        extend=extend,
        sets=parse_sets(set_ or []),
        decide=decide,
        max_seeds=max_seeds,
        name=name,
    )
    request.check()
    if sweep:
        return plan_output.show_sweep(places, points(request, sweep), json=json)
    plan = opening.plan_to_train(places, request)
    rungs, _ = request.chosen(plan)
    cautions.report_local_documents(request)
    cautions.warn_of_batches(plan, rungs)
    if not measure:
        return plan_output.show(places, request, plan, json=json)
    if plan.kind == "program":
        raise UsageError(
            f"--measure: {plan.recipe.task} is trained by a program, whose steps lrurun cannot time",
            "leave --measure out: plan knows the time of a run when the first one is finished",
        )
    measured = _measure(places, plan, rungs, time_limit)
    return plan_output.show(places, request, plan, measured.by_rung(rungs), stopped=measured.stopped, json=json)


def _measure(
    places: Places, plan: planning.Plan, rungs: Sequence[planning.ResolvedRung], time_limit: str | None
) -> Measurements:
    """Measures the rungs, and prints what is found of each."""
    from lrurun.report.live.views import MeasuringView
    from lrurun.runner.signals import GRACE_SECONDS, Signals
    from lrurun.session.training_options import seconds_of

    class Display(MeasuringView):
        def found(self, rung: planning.ResolvedRung, measurement: Measurement | LrurunError) -> None:
            if isinstance(measurement, LrurunError):
                console.say(f"{rung.name}: {error_text(measurement)}")
                return
            run = console.rough_duration(measurement.seconds(rung.training.train))
            console.say(
                f"{rung.name}: {seconds_text(measurement.seconds_per_step)} a step, {run} a run, compiled in "
                f"{seconds_text(measurement.compile_seconds)}, {bytes_text(measurement.training_bytes)} for training"
            )

    signals = Signals(None if time_limit is None else seconds_of(time_limit))
    signals.reserve(1.0 - GRACE_SECONDS)  # nothing is to be saved
    with signals.recorded(), Display() as display:
        return Measurements(rungs, places.data / plan.data_name, signals, display)

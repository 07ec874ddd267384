"""`lrurun ladder`: train what remains of a ladder on a task, and print its table."""

from __future__ import annotations

from typing import Annotated

import typer

from lrurun.commands._shared.options import (
    CHOICE_SEEDS,
    ChoiceSeeds,
    Choose,
    Decide,
    Detach,
    DryRun,
    Extend,
    Jobs,
    LadderName,
    MaxSeeds,
    NewName,
    On,
    OnNode,
    ProfileName,
    Rungs,
    Seeds,
    Sets,
    Sweeps,
    Task,
    TimeLimit,
    Tune,
    number,
)
from lrurun.commands._shared.rules import DECIDE_HINT, examples, excludes, is_given, needs
from lrurun.commands._shared.training import train
from lrurun.config.settings import parse_sets
from lrurun.instances import requests
from lrurun.instances.requests import LadderRequest
from lrurun.session import cautions, opening
from lrurun.session.training import LadderTraining, plan_on_node
from lrurun.session.training_options import TrainingOptions, site_of


@examples(
    "lrurun ladder npDigits --profile smoke",
    "lrurun ladder npDigits --seeds 5 --set optim.lr=0.002",
)
@excludes("decide", "seeds", "rung", "fresh", hint=DECIDE_HINT)
@excludes("choose", "decide", "fresh", "detach", "on")
@needs("max_seeds", "decide")
@needs("choose", "sweep")
@needs("choice_seeds", "choose")
def ladder(
    context: typer.Context,
    task: Task,
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
    choose: Choose = False,
    choice_seeds: ChoiceSeeds = CHOICE_SEEDS,
    name: NewName = None,
    jobs: Jobs = None,
    pack: Annotated[
        int,
        typer.Option(
            "--pack",
            metavar="N",
            help="Train N seeds of a rung in one program (1 to 64).",
            **number("--pack", int, 1, 64, example=4),
        ),
    ] = 1,
    time_limit: TimeLimit = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Set finished runs aside and train them again.")] = False,
    on: On = "local",
    detach: Detach = False,
    dry_run: DryRun = False,
    on_node: OnNode = False,
) -> int:
    """Train what remains of a ladder and print its table.

    Finished runs are not repeated. After an interruption of any kind, the same command continues.
    """
    request = LadderRequest(
        task=task,
        ladder=requests.ladder_or_default(ladder, task),
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
    site = site_of(on)
    options = TrainingOptions(
        jobs=jobs,
        pack=pack,
        fresh=fresh,
        time_limit=time_limit,
        arguments=context.obj.arguments,
        site=site,
        detach=detach,
        dry_run=dry_run,
        on_node=on_node,
    )
    if not on_node:
        opening.refuse_lost_ledger(context.obj.places)
    if sweep and dry_run and site.is_local:
        from lrurun.commands._shared import plan_output
        from lrurun.instances.sweep import points

        return plan_output.show_sweep(context.obj.places, points(request, sweep))
    signals = options.signals()
    if sweep:
        from lrurun.commands._shared import sweeps

        cautions.report_local_documents(request)
        return sweeps.train(
            context.obj.places, request, sweep, options, signals, choice_seeds=choice_seeds if choose else None
        )
    plan = plan_on_node(context.obj.places, request) if on_node else opening.plan_to_train(context.obj.places, request)
    training = LadderTraining(places=context.obj.places, request=request, plan=plan, options=options, signals=signals)
    cautions.report_local_documents(request)
    training.warn()
    return train(training, claims=is_given(context, "ladder"))

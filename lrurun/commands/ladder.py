"""`lrurun ladder`: train what remains of a ladder on a task, and print its table."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from lrurun import console
from lrurun.commands import opening
from lrurun.commands import request as requests
from lrurun.commands.durations import seconds_of
from lrurun.commands.options import (
    Decide,
    Jobs,
    LadderName,
    MaxSeeds,
    ProfileName,
    Rungs,
    Seeds,
    Sets,
    Task,
    TimeLimit,
    Tune,
    number,
)
from lrurun.commands.request import LadderRequest
from lrurun.errors import plural

if TYPE_CHECKING:
    from lrurun.config import plan as planning
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import LadderInstance, Run
    from lrurun.paths import Places
    from lrurun.runner.signals import Signals
    from lrurun.runner.supervisor import Outcome


class Work(Struct, frozen=True, kw_only=True):
    """How a ladder is trained, independent of what is trained."""

    jobs: int | None = None
    pack: int = 1
    fresh: bool = False
    time_limit: str | None = None
    arguments: tuple[str, ...] = ()
    """Of the command line, to be shown in messages."""

    def signals(self) -> Signals:
        """What stops the training; the time limit begins now."""
        from lrurun.runner.signals import Signals

        return Signals(None if self.time_limit is None else seconds_of(self.time_limit))

    @property
    def command(self) -> str:
        return shlex.join(["lrurun", *self.arguments])


def ladder(
    context: typer.Context,
    task: Task,
    ladder: LadderName = "lru",
    profile: ProfileName = None,
    rung: Rungs = None,
    seeds: Seeds = None,
    decide: Decide = False,
    max_seeds: MaxSeeds = None,
    tune: Tune = False,
    set_: Sets = None,
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
) -> int:
    """Train what remains of a ladder and print its table.

    Finished runs are not repeated. After an interruption of any kind, the same command continues.
    """
    request = LadderRequest(
        task=task,
        ladder=ladder,
        profile=profile,
        rungs=rung or [],
        seeds=seeds,
        tune=tune,
        sets=set_ or [],
        decide=decide,
        max_seeds=max_seeds,
    )
    request.check(fresh=fresh)
    work = Work(jobs=jobs, pack=pack, fresh=fresh, time_limit=time_limit, arguments=context.obj.arguments)
    signals = work.signals()
    plan = request.plan()
    rungs, chosen_seeds = request.chosen(plan)
    requests.report_hidden(request)
    requests.warn_of_batches(plan, rungs)
    return train(context.obj.places, request, plan, rungs, chosen_seeds, work, signals)


def train(
    places: Places,
    request: LadderRequest,
    plan: planning.Plan,
    rungs: Sequence[planning.ResolvedRung],
    seeds: Sequence[int],
    work: Work,
    signals: Signals,
) -> int:
    """Trains what remains of these rungs and seeds; the exit code."""
    from lrurun.commands import deciding
    from lrurun.report.live import LadderView
    from lrurun.runner.selection import Selection
    from lrurun.runner.signals import Stopped
    from lrurun.runner.supervisor import Supervisor
    from lrurun.runner.waiting import while_busy

    when = "before any training"
    try:
        with signals.recorded():
            _check_places(places, plan, signals)
            _warn_of_data(places, plan)
            with opening.write(places, training=True) as ledger:
                try:
                    supervisor, outcomes = None, []
                    with LadderView() as display:
                        while_busy(ledger, display.say, signals)
                        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
                        selections: Iterable[Selection]
                        if request.decide:
                            selections = deciding.selections(ledger, plan, instance, request.max_seeds, display)
                        else:
                            selections = [Selection(plan=plan, rungs=rungs, seeds=seeds, fresh=work.fresh)]
                        requests.remember(ledger, instance, request, plan, seeds)
                        for selection in selections:
                            supervisor = Supervisor(
                                ledger, places, selection, display, signals, jobs=work.jobs, pack=work.pack
                            )
                            outcomes.append(supervisor.run(lambda: _prepare_data(places, plan, signals)))
                            if outcomes[-1].exit_code:
                                break
                    _say_what_is_left(ledger, instance, request, plan, outcomes)
                    _print_report(ledger, plan, instance)
                    if signals.received is not None and supervisor is not None and supervisor.remaining()[0] > 0:
                        raise Stopped(signals.received)
                except Stopped:
                    if supervisor is not None:  # None while the ledger was busy
                        remaining, total = supervisor.remaining()
                        when = f"with {remaining} of {plural(total, 'run')} remaining"
                    raise
                for outcome in outcomes[-1:]:
                    _warn_of_unfinished(ledger, outcome.runs)
                return max((outcome.exit_code for outcome in outcomes), default=0)
    except Stopped as stopped:
        console.say(f"stopped by {stopped} {when}; the same command continues: {work.command}")
        return stopped.exit_code


def _check_places(places: Places, plan: planning.Plan, signals: Signals) -> None:
    """Checks the folders. Prepares the data before a new ledger is created, so that none is left after a failure."""
    from lrurun.runner.preparation import check_data_folder, check_runs_folder

    readable = opening.read(places)  # raises an error, before anything is written, if it cannot be used
    if readable is not None:
        readable.close()
    check_data_folder(places, plan)
    has_folder = places.ledger.absolute().parent.is_dir()
    had_runs = places.runs.exists()
    if readable is not None or has_folder:
        check_runs_folder(places)
    if readable is None and has_folder:
        with contextlib.ExitStack() as on_failure:
            if not had_runs:
                on_failure.callback(_remove_empty, places.runs)
            _prepare_data(places, plan, signals)
            on_failure.pop_all()


def _prepare_data(places: Places, plan: planning.Plan, signals: Signals) -> None:
    from lrurun.report.live import PreparationView
    from lrurun.runner.preparation import prepare_data

    with PreparationView() as view:
        prepare_data(places.data, plan, signals, view)


def _warn_of_data(places: Places, plan: planning.Plan) -> None:
    """Warns of data that are not the published ones."""
    from lrurun.data import store

    where = places.data / plan.data_name
    manifest = store.manifest(plan.task, plan.options, where)
    if manifest is not None and manifest.get("published") == "no":
        console.warn(f"{where}: not the published data: {manifest['source']}")


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _say_what_is_left(
    ledger: Ledger,
    instance: LadderInstance,
    request: LadderRequest,
    plan: planning.Plan,
    outcomes: Sequence[Outcome],
) -> None:
    """Says when nothing was to do, and which rungs without runs were added after the sequential design was recorded."""
    from lrurun.report import design_record

    if not any(outcome.worked for outcome in outcomes):
        what = "the sequential design" if request.decide else "this ladder"
        console.say(f"nothing to do: every run of {what} is finished")
    if not request.decide:
        return
    found = design_record.find(plan, instance, ledger)
    outside = design_record.outside(plan, found) if found is not None else []
    places = [place for run in ledger.runs(instance.key, brief=True) for place in run.memberships]
    has_runs = {place.rung for place in places if place.ladder_key == instance.key}
    if found is not None and (names := [rung.name for rung in outside if rung.name not in has_runs]):
        seeds = max(found.seeds.values(), default=found.design.looks[0].seeds)
        console.say(request.outside_design(names, seeds))


def _print_report(ledger: Ledger, plan: planning.Plan, instance: LadderInstance) -> None:
    from lrurun.report import formats, selection

    report = selection.build(plan, instance, ledger)
    console.write(formats.render(report, "table", width=console.width(), color=console.has_color()), styled=True)


def _warn_of_unfinished(ledger: Ledger, runs: Sequence[Run]) -> None:
    from lrurun.ledger.values import FINISHED

    for run in runs:
        if run.state not in FINISHED:
            reason = (run.error or _reason(ledger, run)).splitlines()[0]
            place = run.memberships[0]
            console.warn(f"run {run.id} ({place.rung}, seed {run.seed}): {reason}; see lrurun show {run.id}")


def _reason(ledger: Ledger, run: Run) -> str:
    """The state of an unfinished run, with the reason why its last worker exited where that is known."""
    died = [event.text for event in ledger.events(run=run.id) if event.kind == "died"]
    return f"{run.state}: {died[-1]}" if died else run.state

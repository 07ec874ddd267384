"""`lrurun ladder`: train what remains of a ladder on a task, and print its table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from lrurun import console, paths
from lrurun.commands._shared.options import (
    Decide,
    Detach,
    DryRun,
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
from lrurun.commands._shared.report_output import Shown
from lrurun.commands._shared.rules import DECIDE_HINT, examples, excludes, exclusive, is_given, needs
from lrurun.errors import LedgerError, LrurunError, UsageError, plural
from lrurun.instances import requests
from lrurun.instances.requests import LadderRequest
from lrurun.session import cautions, opening
from lrurun.session.training_options import TrainingOptions, site_of

if TYPE_CHECKING:
    from lrurun.commands.plan import PlanDocument
    from lrurun.config import planning
    from lrurun.judging.sequential import DesignProgress
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import LadderInstance, Run
    from lrurun.paths import Places
    from lrurun.report.live.views import LadderView
    from lrurun.runner.selection import Selection
    from lrurun.runner.signals import Signals
    from lrurun.runner.supervisor import SupervisorResult


@examples(
    "lrurun ladder npDigits --profile smoke",
    "lrurun ladder npDigits --seeds 5 --set optim.lr=0.002",
)
@exclusive("name", "sweep")
@excludes("decide", "seeds", "rung", "fresh", hint=DECIDE_HINT)
@needs("max_seeds", "decide")
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
    set_: Sets = None,
    sweep: Sweeps = None,
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
        sets=set_ or [],
        decide=decide,
        max_seeds=max_seeds,
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
        from lrurun.commands.plan import show_sweep

        return show_sweep(context.obj.places, request, sweep)
    signals = options.signals()
    if sweep:
        from lrurun.commands._shared import sweeps

        points = sweeps.points(request, sweep)
        cautions.report_hidden(request)

        def train_one(point: sweeps.Point) -> int:
            rungs, seeds = point.request.chosen(point.plan)
            return train(context.obj.places, point.request, point.plan, rungs, seeds, options, signals, report=False)

        return sweeps.train(context.obj.places, request, sweep, points, train_one, report=not (detach or dry_run))
    plan = _plan_on_node(context.obj.places, request) if on_node else request.plan()
    rungs, chosen_seeds = request.chosen(plan)
    cautions.report_hidden(request)
    cautions.warn_of_batches(plan, rungs)
    if site.is_local:
        cautions.warn_of_cores(rungs, jobs)
        if not dry_run:  # the plan says so
            cautions.warn_of_scale(plan)
    claims = is_given(context, "ladder")
    return train(context.obj.places, request, plan, rungs, chosen_seeds, options, signals, name=name, claims=claims)


def _plan_on_node(places: Places, request: LadderRequest) -> planning.Plan:
    """The plan on a node: with the files of a program as they were when the command that started the node queued the
    runs, which may have been edited since."""
    from lrurun.instances import documents
    from lrurun.runner import node

    files = None
    if (key := node.instance()) is not None and (ledger := opening.read(places)) is not None:
        with ledger:
            recorded = documents.find(ledger, ledger.ladder(key))
            files = None if recorded is None else recorded.files
    return request.plan(files=files)


def train(
    places: Places,
    request: LadderRequest,
    plan: planning.Plan,
    rungs: Sequence[planning.ResolvedRung],
    seeds: Sequence[int],
    options: TrainingOptions,
    signals: Signals,
    *,
    report: bool = True,
    name: str | None = None,
    claims: bool = False,
) -> int:
    """Trains what remains of these rungs and seeds, and prints the `report`; the exit code.

    `claims`: whether claims of papers were asked for.
    """
    from lrurun.commands.plan import show
    from lrurun.instances import continuing, documents
    from lrurun.report.live.views import LadderView
    from lrurun.runner import records
    from lrurun.runner.signals import Stopped
    from lrurun.runner.supervisor import Supervisor, while_busy

    if options.dry_run and options.site.is_local:
        return show(places, request, plan)
    of_programs = plan.kind == "program"
    stop_seconds = max(rung.execution.stop_seconds for rung in rungs) if of_programs else 0.0
    signals.reserve(stop_seconds)
    if of_programs and options.pack > 1:
        raise UsageError(
            "--pack: is for lrurun's own models, of which one process can train several seeds", "leave it out"
        )
    if of_programs and paths.is_copy(places.runs):
        raise UsageError(
            f"--runs-dir {paths.shown_runs(places.runs)}: what a program saves is not copied to an object store",
            "choose a folder, which all nodes share",
        )
    devices = max(rung.execution.devices for rung in rungs)
    arguments = [*request.arguments(seeds), *([] if name is None else ["--name", name])]
    executor = options.make_executor(
        places, arguments, devices=devices, of_programs=of_programs, stop_seconds=stop_seconds
    )
    if options.dry_run:
        console.write(executor.script())
        return 0
    if of_programs and options.site.is_local and not options.on_node:
        _check_command(places, request, plan, rungs)
    if not options.fresh and not opening.is_writable(places):
        with opening.read(places) or nullcontext() as ledger:
            if ledger is not None and _is_finished(ledger, places, request, plan):
                _say_what_is_left(ledger, places, request, plan, [])
                if report:
                    _print_report(ledger, places, request, plan, claims=claims)
                return 0
    when = "before any training"
    try:
        with signals.recorded():
            with _no_new_folder(places.runs):
                if not options.on_node:
                    _check_places(places, plan)
                if opening.exists(places) or (not options.on_node and opening.can_be_created(places)):
                    _prepare(places, request, plan, signals, fresh=options.fresh)
            if not options.on_node:
                _warn_of_data(places, plan)
            with opening.write(places, training=True, create=not options.on_node) as ledger:
                try:
                    supervisor, outcomes = None, []
                    with LadderView() as display:
                        while_busy(ledger, display.say, signals)
                        instance = ledger.add_ladder(
                            plan.ladder.name,
                            plan.recipe.task,
                            plan.profile,
                            plan.spec,
                            plan.short_name,
                            kind=plan.kind,
                            chosen=name,
                        )
                        selections = _selections(
                            ledger, places, instance, request, plan, rungs, seeds, options.fresh, display
                        )
                        superseded = continuing.superseded(ledger)
                        requests.remember(ledger, instance, request, plan, seeds)
                        for key in continuing.superseded(ledger).keys() - superseded.keys():
                            display.say(continuing.sentence(ledger.ladder(key), instance))
                        documents.record(ledger, instance, plan)
                        for selection in selections:
                            work = selection.work(instance, places, **options.work_fields)
                            supervisor = Supervisor(ledger, work, selection, display, signals, executor)
                            outcomes.append(options.train(supervisor))
                            if outcomes[-1].exit_code:
                                break
                    if options.on_node or (options.detach and outcomes and outcomes[-1].worked):
                        return 0
                    _say_what_is_left(ledger, places, request, plan, outcomes)
                    if report:
                        _print_report(ledger, places, request, plan, claims=claims)
                    if signals.received is not None and supervisor is not None and supervisor.remaining()[0] > 0:
                        raise Stopped(signals.received)
                except Stopped:
                    if supervisor is not None:  # None while the ledger was busy
                        remaining, total = supervisor.remaining()
                        when = f"with {remaining} of {plural(total, 'run')} remaining"
                    raise
                finally:
                    if supervisor is not None:
                        # where the ledger is lost or away, what ended the training is the error to show
                        with suppress(LedgerError):
                            records.keep_ladder(ledger, places.runs, supervisor.instance.key)
                for outcome in outcomes[-1:]:
                    _warn_of_unfinished(ledger, outcome.runs)
                return max((outcome.exit_code for outcome in outcomes), default=0)
    except Stopped as stopped:
        return options.stopped(stopped, when)


def _check_command(
    places: Places, request: LadderRequest, plan: planning.Plan, rungs: Sequence[planning.ResolvedRung]
) -> None:
    """Checks that the program's command is on this machine, if anything remains to be trained. Nodes may have others.

    Raises:
        UsageError: it is not.
    """
    from lrurun.runner.program_faults import check_command

    try:
        check_command(rungs, plan.recipe.folder, plan.recipe.path)
    except UsageError:
        with opening.read(places) or nullcontext() as ledger:
            if ledger is None or not _is_finished(ledger, places, request, plan):
                raise


def _selections(
    ledger: Ledger,
    places: Places,
    instance: LadderInstance,
    request: LadderRequest,
    plan: planning.Plan,
    rungs: Sequence[planning.ResolvedRung],
    seeds: Sequence[int],
    fresh: bool,
    display: LadderView,
) -> Iterable[Selection]:
    """What to train, one after another. Each is checked when it is asked for."""
    from lrurun.runner.selection import Selection
    from lrurun.session import rounds

    if request.decide:
        selections: Iterable[Selection] = rounds.selections(ledger, plan, instance, request.max_seeds, display)
    else:
        selections = [Selection(plan=plan, rungs=rungs, seeds=seeds)]
    if plan.kind == "program" or fresh:
        return selections
    return (_with_checked_data(selection, ledger, places) for selection in selections)


def _check_places(places: Places, plan: planning.Plan) -> None:
    """Checks the folders and the ledger."""
    from lrurun.config.tuning import require_optuna
    from lrurun.runner.preparation import check_data_folder, check_runs_folder

    if plan.tune and plan.search is not None:
        require_optuna()
    readable = opening.read(places)  # raises an error, before anything is written, if it cannot be used
    if readable is not None:
        readable.close()
    if plan.kind == "training":
        check_data_folder(places, plan)
    if readable is not None or opening.can_be_created(places):
        check_runs_folder(places.runs)


@contextmanager
def _no_new_folder(runs: Path) -> Iterator[None]:
    """Removes a new folder of runs, which is empty, where what follows fails."""
    existed = runs.exists()
    try:
        yield
    except BaseException:
        if not existed:
            with suppress(OSError):
                runs.rmdir()
        raise


def _prepare(places: Places, request: LadderRequest, plan: planning.Plan, signals: Signals, *, fresh: bool) -> None:
    """Makes sure that the data are there if anything is to be trained, and of programs the copy of their files, before
    anything is recorded: where that fails, no run is queued, and there is no new ledger.

    Raises:
        LrurunError: the data cannot be prepared, or finished runs were trained on other data; no copy can be made.
    """
    from lrurun.commands.plan import planned
    from lrurun.runner.selection import Selection

    if plan.kind == "program":  # which has data of its own
        Selection(plan=plan, rungs=plan.rungs, seeds=()).keep_files(places.runs)
        return

    with opening.read(places) or nullcontext() as ledger:
        document, rungs, design = planned(places, request, plan, ledger)
        if fresh or _remains(document, design, request):
            if text := cautions.missing_data(places, plan):
                console.say(text)
            _prepare_data(places, plan, signals)
        if ledger is not None and not fresh:
            _with_checked_data(Selection(plan=plan, rungs=rungs, seeds=document.seeds), ledger, places)


def _prepare_data(places: Places, plan: planning.Plan, signals: Signals) -> None:
    from lrurun.report.live.views import PreparationView
    from lrurun.runner.preparation import prepare_data

    with PreparationView() as view:
        prepare_data(places.data, plan, signals, view)


def _warn_of_data(places: Places, plan: planning.Plan) -> None:
    """Warns of data that are not the published ones, or that the task's file may have made before it was edited."""
    from lrurun.data import task_data

    if plan.kind == "program":
        return
    where = places.data / plan.data_name
    manifest = task_data.manifest(plan.task, plan.options, where)
    if manifest is not None and manifest.published == "no":
        console.warn(f"{where}: not the published data: {manifest.source}")
    if manifest is not None and (edited := task_data.edit(plan.task, manifest, where)):
        console.warn(edited)


def _with_checked_data(selection: Selection, ledger: Ledger, places: Places) -> Selection:
    """The selection, if its finished runs were trained on the data that are prepared now.

    Raises:
        LrurunError: some were trained on other data.
    """
    from lrurun.data import task_data
    from lrurun.ledger.values import FINISHED

    plan = selection.plan
    manifest = task_data.manifest(plan.task, plan.options, places.data / plan.data_name)
    if manifest is None:
        return selection
    planned = [run for tuning in selection.tuning().values() for run in tuning.runs] + selection.final()
    present = task_data.digest(manifest.sha256)
    finished = ledger.runs(fingerprints={run.fingerprint for run in planned}, states=FINISHED, brief=True)
    digests = {run.id: run.data_sha256 for run in finished if run.excluded is None}
    if outdated := {run: digest for run, digest in digests.items() if digest not in (None, present)}:
        shown = ", ".join(sorted(outdated)[:3]) + (", ..." if len(outdated) > 3 else "")
        trained_on = next(iter(outdated.values())) or ""
        raise LrurunError(
            f"{plural(len(outdated), 'finished run')} ({shown}) had other data: {trained_on[:19]}, those in "
            f"{places.data / plan.data_name} are {present[:19]}",
            "train them again with --fresh, or restore the data that they were trained on",
        )
    return selection


def _is_finished(ledger: Ledger, places: Places, request: LadderRequest, plan: planning.Plan) -> bool:
    """Whether nothing of a request remains to be trained."""
    from lrurun.commands.plan import planned
    from lrurun.report.tables import loaded_instance

    document, _, design = planned(places, request, plan, ledger)
    return loaded_instance.find(ledger, plan) is not None and not _remains(document, design, request)


def _remains(document: PlanDocument, design: DesignProgress | None, request: LadderRequest) -> bool:
    """Whether a run of a request remains, or a look of its design. A rung that is the same as its base counts, too:
    the base may be none of the request."""
    if request.decide and (design is None or design.next_look is not None):
        return True
    return any(row.runs_done < row.runs for row in document.rungs)


def _say_what_is_left(
    ledger: Ledger,
    places: Places,
    request: LadderRequest,
    plan: planning.Plan,
    outcomes: Sequence[SupervisorResult],
) -> None:
    """Says when nothing was to do."""
    from lrurun.report.tables import loaded_instance

    instance = loaded_instance.find(ledger, plan)
    if instance is not None and not any(outcome.worked for outcome in outcomes):
        what = "the sequential design" if request.decide else "this ladder"
        console.say(f"nothing to do: every run of {what} is finished")
        cautions.say_without_models(ledger, places, [instance])
        if any(rung.execution.probes for rung in plan.rungs) and not all(
            run.execution.probes for run in ledger.runs(instance.key)
        ):
            console.say("execution.probes: runs that were trained without it have none; --fresh trains them again")


def _print_report(ledger: Ledger, places: Places, request: LadderRequest, plan: planning.Plan, *, claims: bool) -> None:
    """The answer: the table, and what it says."""
    from lrurun.commands.plan import next_step
    from lrurun.report.tables import loaded_instance

    shown = Shown(rungs=request.rungs, claims=claims, request=request)
    loaded = loaded_instance.chosen(ledger, None, plan, None, "lrurun ladder")
    report = loaded.report(rungs=shown.rung_names(plan.ladder), with_claims=claims or None)
    structs.replace(shown, firm=next_step(places, request, plan, ledger, report)).write(report, ledger)


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

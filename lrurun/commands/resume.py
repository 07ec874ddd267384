"""`lrurun resume`: finish every unfinished ladder of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lrurun import console, kinds, paths, plugins
from lrurun.commands._shared import cautions, opening
from lrurun.commands._shared.options import (
    Detach,
    DryRun,
    Jobs,
    On,
    OnlyInstance,
    TimeLimit,
)
from lrurun.commands._shared.rules import examples
from lrurun.commands._shared.training_options import TrainingOptions, site_of
from lrurun.commands.ladder import train
from lrurun.errors import LaterVersionError, LedgerError, UsageError, plural
from lrurun.ledger.database import implementation
from lrurun.report import request as requests
from lrurun.report.request import LadderRequest

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.paths import Places
    from lrurun.runner.signals import Signals


@examples(
    "lrurun resume",
    "lrurun resume --instance npDigits --time-limit 45m",
)
def resume(
    context: typer.Context,
    instance: OnlyInstance = None,
    jobs: Jobs = None,
    time_limit: TimeLimit = None,
    on: On = "local",
    detach: Detach = False,
    dry_run: DryRun = False,
    all_users: Annotated[
        bool, typer.Option("--all-users", help="On a server: also what other users have requested.")
    ] = False,
) -> int:
    """Finish every unfinished ladder and study in this ledger.

    Repeats the recorded commands, oldest first; on a server, those of this user. The exit code is the highest of
    theirs.
    """
    places: Places = context.obj.places
    site = site_of(on)
    options = TrainingOptions(
        jobs=jobs,
        time_limit=time_limit,
        arguments=context.obj.arguments,
        site=site,
        detach=detach,
        dry_run=dry_run,
    )
    if site.is_local:
        cautions.warn_of_jobs(jobs)
    signals = options.signals()
    ledger = opening.read(places)
    if ledger is None:
        hint = opening.rebuild_hint(places)
        console.say(f"nothing to do: there is no ledger yet{f'; {hint}' if hint else ''}")
        return 0
    ledger.close()
    unfinished, left_alone, worst = _unfinished(places, instance, all_users=all_users)
    for user, keys in sorted(left_alone.items()):
        console.say(f"left alone: {plural(len(keys), 'unfinished ladder')} of {user}; --all-users takes these too")
    if not unfinished and not worst:
        if instance is not None:
            console.say(f"nothing to do: instance {instance} is finished, or was last asked for with other files")
        else:
            ladders = "your ladders" if left_alone else "every ladder of this ledger"
            console.say(f"nothing to do: {ladders} {'are' if left_alone else 'is'} finished")
            if (ledger := opening.read(places)) is not None:
                with ledger:
                    cautions.say_without_models(ledger, places, ledger.ladders())
        return 0
    for ladder, recorded in unfinished:
        for request in recorded:
            try:
                if (kind := kinds.with_reports(ladder.kind)) is not None:
                    code = kind.repeat(places, request, options, signals)
                else:
                    code = _repeat(places, ladder, request, options, signals)
            except (UsageError, LaterVersionError) as error:
                # A ladder whose files have changed, or one that a later lrurun began, does not stop the others.
                console.fail(error)
                code = error.exit_code
            if code > 128:
                return code
            worst = max(worst, code)
    return worst


Requests = Sequence[Any]
"""`LadderRequest`, or what the kind of the instance records."""


def _unfinished(
    places: Places, only: str | None, *, all_users: bool
) -> tuple[list[tuple[LadderInstance, Requests]], dict[str, set[str]], int]:
    """What to repeat for each unfinished instance, or for the one that `only` names; the keys of those that other users
    requested; and the exit code."""
    from lrurun.ledger import owner

    unfinished: list[tuple[LadderInstance, Requests]] = []
    left_alone: dict[str, set[str]] = {}
    worst = 0
    shared = implementation(places.ledger).is_shared and not all_users
    with opening.write(places) as ledger:
        ledger.reap(owner.this_process())
        for ladder in ledger.ladders() if only is None else [ledger.ladder(only)]:
            if not _is_unfinished(ledger, ladder):
                continue
            # A command that was given again after its ladder or recipe had changed belongs to the other instance.
            if requests.asked(ledger, ladder) and ladder.key not in requests.newest_instances(ledger, ladder).values():
                continue
            try:
                kind = kinds.with_reports(ladder.kind)
                recorded: Requests = requests.recorded(ledger, ladder, LadderRequest if kind is None else kind.request)
            except LedgerError as error:  # a record that cannot be read does not stop the others
                console.fail(error)
                worst = error.exit_code
                continue
            chosen = [request for request in recorded if not shared or _is_own(request, ladder)]
            if chosen or not recorded:
                unfinished.append((ladder, chosen))
            for request in recorded if not chosen else ():
                left_alone.setdefault(request.user or ladder.user or "", set()).add(ladder.key)
    return unfinished, left_alone, worst


def _is_own(request: Any, instance: LadderInstance) -> bool:
    """Whether this user made the request, as far as is known."""
    from lrurun.ledger import owner

    return (request.user or instance.user) in (None, owner.user())


def _check_file(instance: LadderInstance, request: LadderRequest, path: Path) -> None:
    """Other users can write to a ledger on a server: what it names must not make this process execute their files.

    Raises:
        UsageError: others can change the plug-in at `path`, or requested it, and no `--load` names it.
    """
    from lrurun.ledger import owner

    if request.user != owner.user() or not plugins.is_protected(path):
        raise UsageError(
            f"ladder {instance.short_name}, requested by {request.user or 'an unknown user'}: its file "
            f"{request.ladder} loads {path}",
            "what other users have requested or can change is loaded only if you name it; read it, then: "
            f"lrurun resume --load {path}",
        )


def _check_ladder(instance: LadderInstance, request: LadderRequest) -> None:
    """Nodes read the file of a ladder again, and load what it names then. Raises UsageError."""
    file = paths.find("ablations", request.ladder)
    if not plugins.is_protected(file):
        raise UsageError(
            f"ladder {instance.short_name}, requested by {request.user or 'an unknown user'}: other users can change "
            f"its file {file}, which nodes read again",
            "continue it without --on, or copy the file and start a ladder with the copy",
        )


def _repeat(
    places: Places, instance: LadderInstance, request: LadderRequest, options: TrainingOptions, signals: Signals
) -> int:
    shared = implementation(places.ledger).is_shared
    if shared and not options.site.is_local:
        _check_ladder(instance, request)
    for file in request.load:
        if not plugins.is_loaded(file, Path()):
            raise UsageError(
                f"ladder {instance.short_name}: was started with --load {file}",
                f"code is not loaded from a ledger; name it again: lrurun resume --load {file}",
            )
    for file in (request.ladder, request.task):
        if paths.is_path(file) and not Path(file).is_file():
            raise UsageError(
                f"instance {instance.short_name}: its file {file} is gone, so it cannot be continued",
                f"put the file back; its results are still here: lrurun report --instance {instance.short_name}",
            )
    with plugins.checked(partial(_check_file, instance, request)) if shared else nullcontext():
        plan = request.plan()
    if (plan.ladder.name, plan.recipe.task) != (instance.name, instance.task):
        raise UsageError(
            f"ladder {instance.short_name}: {request.ladder} is now {plan.ladder.name} on {plan.recipe.task}, "
            f"it was {instance.name} on {instance.task}",
            "restore the files, or start another ladder",
        )
    if plan.spec != instance.spec:
        console.say(
            f"ladder {instance.short_name}: its ladder, recipe or plug-ins have changed since; training another "
            "instance, as they are now"
        )
    rungs, seeds = request.chosen(plan)
    return train(places, request, plan, rungs, seeds, options, signals)


def _is_unfinished(ledger: Ledger, instance: LadderInstance) -> bool:
    """Whether a run remains, a tuned rung whose final runs are not yet in the queue, or a look of a design."""
    from lrurun.ledger.values import FINISHED
    from lrurun.report.judging import design_record

    runs = ledger.runs(instance.key, brief=True)
    stages = {(m.rung, m.stage) for run in runs for m in run.memberships if m.ladder_key == instance.key}
    awaited = any((rung, "train") not in stages for rung, stage in stages if stage == "tune")
    return awaited or any(run.state not in FINISHED for run in runs) or design_record.is_unfinished(instance, ledger)

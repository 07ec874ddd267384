"""`lrurun resume`: finish every unfinished ladder of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lrurun import console, paths, plugins
from lrurun.commands._shared.options import (
    Detach,
    DryRun,
    Jobs,
    On,
    OnlyInstance,
    TimeLimit,
)
from lrurun.commands._shared.rules import examples
from lrurun.commands.ladder import train
from lrurun.config.schema import LADDER_KINDS
from lrurun.errors import FaultyProgram, LaterVersionError, LedgerError, PreparationError, UsageError, plural
from lrurun.instances import continuing, requests
from lrurun.instances.requests import LadderRequest
from lrurun.ledger.database import implementation
from lrurun.session import cautions, opening
from lrurun.session.training_options import TrainingOptions, site_of
from lrurun.studies.machinery.request import StudyRequest

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
    with opening.existing(places) as ledger:
        _say_superseded(ledger, instance)
        if not unfinished and not worst:
            _say_nothing_to_do(places, ledger, instance, of_others=bool(left_alone))
            return 0
    for ladder, recorded in unfinished:
        if not recorded:
            error = UsageError(
                f"ladder {ladder.short_name}: the command that began it is not recorded, so it cannot be repeated",
                "give it again, as it was given then",
            )
            console.fail(error)
            worst = max(worst, error.exit_code)
        for request in recorded:
            try:
                if ladder.kind in LADDER_KINDS:
                    code = _repeat(places, ladder, request, options, signals)
                else:
                    from lrurun.commands._shared import study_output  # with what reports need

                    code = study_output.repeat(places, request, options, signals)
            except (UsageError, LaterVersionError, PreparationError, FaultyProgram) as error:
                # A ladder whose files have changed, one that a later lrurun began, one without data, or one whose
                # program logs nothing does not stop the others.
                console.fail(error)
                code = error.exit_code
            if code > 128:
                return code
            worst = max(worst, code)
    return worst


def _say_nothing_to_do(places: Places, ledger: Ledger, only: str | None, *, of_others: bool) -> None:
    """Says that what this command may continue is finished."""
    superseded = continuing.superseded(ledger)
    if only is None:
        other = " other" if superseded else ""
        ladders = f"your{other} ladders are" if of_others else f"every{other} ladder of this ledger is"
        console.say(f"nothing to do: {ladders} finished")
        cautions.say_without_models(ledger, places, ledger.ladders())
        return
    instance = ledger.ladder(only)
    if instance.key in superseded:
        console.say("nothing to do: to finish it as it was, restore the files and give the same command")
    elif not continuing.is_unfinished(ledger, instance):
        console.say(f"nothing to do: instance {instance.short_name} is finished")
    elif not of_others:
        console.say(f"nothing to do: instance {instance.short_name} is running")


def _say_superseded(ledger: Ledger, only: str | None) -> None:
    """Says which unfinished instances are left alone because nobody asks for them any more."""
    instances = [
        (instance, by)
        for key, by in continuing.superseded(ledger).items()
        if only is None or ledger.ladder(only).key == key
        for instance in [ledger.ladder(key)]
    ]
    if len(instances) > 1:
        console.say(f"left alone: {len(instances)} superseded ladders; lrurun status --superseded shows them")
    else:
        for instance, by in instances:
            console.say(f"left alone: {continuing.sentence(instance, by)}")


Requests = Sequence[Any]
"""`LadderRequest`, or `StudyRequest` of a study."""


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
        replaced = continuing.replacements(ledger)
        for ladder in ledger.ladders() if only is None else [ledger.ladder(only)]:
            if ladder.key in replaced or not continuing.is_unfinished(ledger, ladder):
                continue
            try:
                form = LadderRequest if ladder.kind in LADDER_KINDS else StudyRequest
                recorded: Requests = requests.recorded(ledger, ladder, form)
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
    if (missing := continuing.missing_file(request)) is not None:
        raise UsageError(
            f"instance {instance.short_name}: its file {missing} is gone, so it cannot be continued",
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
            f"ladder {instance.short_name}: its ladder, recipe or code has changed since; training another "
            "instance, as they are now"
        )
    rungs, seeds = request.chosen(plan)
    return train(places, request, plan, rungs, seeds, options, signals)

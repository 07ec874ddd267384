"""Which recorded requests are unfinished, and the training that continues one of them: what `lrurun resume` does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun import console, paths, plugins
from lrurun.config.schema import LADDER_KINDS
from lrurun.errors import FaultyProgram, LaterVersionError, LedgerError, PreparationError, UsageError
from lrurun.instances import continuing, requests
from lrurun.instances.requests import LadderRequest
from lrurun.ledger.database import implementation
from lrurun.session import cautions, opening
from lrurun.session.training import LadderTraining
from lrurun.studies.machinery.request import StudyRequest

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.paths import Places
    from lrurun.runner.signals import Signals
    from lrurun.session.training_options import TrainingOptions

OF_ONE_LADDER = (UsageError, LaterVersionError, PreparationError, FaultyProgram)
"""Errors that do not stop the other ladders: its files have changed, a later lrurun began it, it has no data, or its
program logs nothing."""


class Unfinished(Struct, frozen=True, kw_only=True):
    """The unfinished instances of a ledger."""

    instances: Sequence[tuple[LadderInstance, Sequence[Any]]]
    """Each with its recorded requests, oldest first: `LadderRequest`, or `StudyRequest` of a study. Without
    one, it cannot be continued."""
    of_others: dict[str, int]
    """User -> how many unfinished instances of theirs are left alone."""
    errors: Sequence[LedgerError]
    """One for each instance whose requests cannot be read."""


def find(places: Places, only: str | None, *, all_users: bool) -> Unfinished:
    """The unfinished instances, or the one that `only` names, with the requests of this user or, on a server, of
    `all_users`. Runs of exited processes are marked as interrupted.

    Raises:
        NotFoundError: there is no such instance.
    """
    from lrurun.ledger import owner

    instances: list[tuple[LadderInstance, Sequence[Any]]] = []
    of_others: dict[str, set[str]] = {}
    errors: list[LedgerError] = []
    shared = implementation(places.ledger).is_shared and not all_users
    with opening.write(places) as ledger:
        ledger.reap(owner.this_process())
        replaced = continuing.replacements(ledger)
        for instance in ledger.ladders() if only is None else [ledger.ladder(only)]:
            if instance.key in replaced or not continuing.is_unfinished(ledger, instance):
                continue
            try:
                form = LadderRequest if instance.kind in LADDER_KINDS else StudyRequest
                recorded: Sequence[Any] = requests.recorded(ledger, instance, form)
            except LedgerError as error:  # a record that cannot be read does not stop the others
                errors.append(error)
                continue
            chosen = [request for request in recorded if not shared or _is_own(request, instance)]
            if chosen or not recorded:
                instances.append((instance, chosen))
            for request in recorded if not chosen else ():
                of_others.setdefault(request.user or instance.user or "", set()).add(instance.key)
    counts = {user: len(keys) for user, keys in of_others.items()}
    return Unfinished(instances=instances, of_others=counts, errors=errors)


def not_recorded(instance: LadderInstance) -> UsageError:
    """The error for an instance without a recorded request."""
    return UsageError(
        f"ladder {instance.short_name}: the command that began it is not recorded, so it cannot be repeated",
        "give it again, as it was given then",
    )


def _is_own(request: Any, instance: LadderInstance) -> bool:
    """Whether this user made the request, as far as is known."""
    from lrurun.ledger import owner

    return (request.user or instance.user) in (None, owner.user())


def say_nothing_to_do(places: Places, ledger: Ledger, only: str | None, *, of_others: bool) -> None:
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


def say_superseded(ledger: Ledger, only: str | None) -> None:
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


def training(
    places: Places, instance: LadderInstance, request: LadderRequest, options: TrainingOptions, signals: Signals
) -> LadderTraining:
    """The training that continues a recorded request.

    Raises:
        UsageError: its files are gone or name another ladder now, or its plug-ins are not to be loaded from a ledger.
    """
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
    return LadderTraining(places=places, request=request, plan=plan, options=options, signals=signals)


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

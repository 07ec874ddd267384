"""What is unfinished in a ledger, and how it is continued: `lrurun.resume`, and what the command of that name does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun import console, paths, plugins
from lrurun.config.schema import LADDER_KINDS
from lrurun.errors import (
    FailedChecksError,
    FaultyProgram,
    LaterVersionError,
    LedgerError,
    LrurunError,
    PreparationError,
    UnfinishedError,
    UsageError,
    check_type,
    plural,
)
from lrurun.instances import continuing, requests
from lrurun.instances.requests import LadderRequest
from lrurun.ledger.database import implementation
from lrurun.session import cautions, opening
from lrurun.session.arguments import AnyPath, given_places, names_of_arguments, training_options
from lrurun.session.training import LadderTraining
from lrurun.studies.machinery.request import StudyRequest

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.paths import Places
    from lrurun.runner.signals import Signals
    from lrurun.session.study import Computation
    from lrurun.session.training_options import TrainingOptions

OF_ONE_LADDER = (
    UsageError,
    LaterVersionError,
    PreparationError,
    FaultyProgram,
    UnfinishedError,
    FailedChecksError,
)
"""Errors that do not stop the other ladders: its files have changed, a later lrurun began it, it has no data, its
program logs nothing, some runs have failed, or a check of a study fails."""


@names_of_arguments()
def resume(
    *,
    instance: str | None = None,
    ledger: AnyPath | None = None,
    runs_dir: AnyPath | None = None,
    data_dir: AnyPath | None = None,
    files: Sequence[AnyPath] = (),
    jobs: int | None = None,
    time_limit: str | float | None = None,
    on: str = "local",
    detach: bool = False,
    all_users: bool = False,
) -> None:
    """Finishes every unfinished ladder and study of a ledger, oldest first: what `lrurun resume` does.

    An error of one ladder does not stop the others.

        lrurun.resume(ledger="ledger.db")

    Args:
        instance: only the one of this name, or of the beginning of its key.
        ledger: a file, or the URL of a PostgreSQL database; None for the ledger of the commands.
        runs_dir: the folder of logs and checkpoints, or its URL; None for the one beside the ledger.
        data_dir: the folder of all data; None for the one of the commands.
        files: plug-ins with which the ladders were started: no code is loaded because a ledger names it.
        jobs, time_limit, on, detach: as for `LadderSession.train`; the limit is for all together.
        all_users: on a server, whether what other users have requested is continued too.

    Raises:
        NotFoundError: there is no such instance.
        Stopped: a signal or the time limit stopped it; all runs are saved.
        LrurunError: the error of a ladder that is not finished; of several, the one with the highest exit code, with
            the others as notes.
    """
    check_type("instance", instance, str | None, "text", 'as in instance="npDigits"')
    check_type("all_users", all_users, bool, "True or False", "as in all_users=True")
    plugins.load_files(files, named="files")
    options = training_options(jobs=jobs, time_limit=time_limit, on=on, detach=detach)

    def finish(work: LadderTraining | Computation) -> int:
        if isinstance(work, LadderTraining):
            work.train().check()
        else:
            work.run()
            work.check()
        return 0

    with options.sentences():
        _, errors = continued(given_places(ledger, runs_dir, data_dir), instance, options, finish, all_users=all_users)
    if errors:
        worst = max(errors, key=lambda error: error.exit_code)
        for error in errors:
            if error is not worst:
                worst.add_note("; ".join(filter(None, (error.message, error.hint))))
        raise worst


def continued(
    places: Places,
    only: str | None,
    options: TrainingOptions,
    finish: Callable[[LadderTraining | Computation], int],
    *,
    all_users: bool,
    fail: Callable[[LrurunError], None] = lambda _: None,
) -> tuple[int, list[LrurunError]]:
    """Finishes what is unfinished, oldest first; the highest exit code of `finish`, and the errors of single ladders.

    Args:
        only: an instance; None for all.
        finish: trains or computes what remains of one; its exit code. One above 128 ends all.
        fail: receives each error of a single ladder at once.

    Raises:
        NotFoundError: there is no such instance.
        LrurunError: what concerns all ladders.
    """
    from lrurun.runner.preparation import TooFewDevices
    from lrurun.session.study import Computation

    if options.site.is_local:
        cautions.warn_of_jobs(options.jobs)
    signals = options.signals()
    with opening.read(places) as ledger:
        exists = ledger.exists
    if not exists:
        hint = opening.rebuild_hint(places)
        console.say(f"nothing to do: there is no ledger yet{f'; {hint}' if hint else ''}")
        return 0, []
    unfinished = find(places, only, all_users=all_users)
    errors: list[LrurunError] = []

    def failed(error: LrurunError) -> None:
        fail(error)
        errors.append(error)

    for error in unfinished.errors:
        failed(error)
    for user, count in sorted(unfinished.of_others.items()):
        console.say(f"left alone: {plural(count, 'unfinished ladder')} of {user}; --all-users takes these too")
    if unfinished.hidden:
        console.say(
            f"left alone: {plural(len(unfinished.hidden), 'hidden ladder')}; lrurun status --hidden shows them, and "
            "--instance NAME continues one"
        )
    with opening.existing(places) as ledger:
        say_superseded(ledger, only)
        if not unfinished.instances and not errors:
            say_nothing_to_do(places, ledger, only, unfinished)
    code = 0
    for instance, recorded in unfinished.instances:
        if not recorded:
            failed(not_recorded(instance))
        for request in recorded:
            try:
                if instance.kind in LADDER_KINDS:
                    work: LadderTraining | Computation = training(places, instance, request, options, signals)
                else:
                    work = Computation(places, [(request, request.plan())], options, signals)
                code = max(code, finish(work))
            except OF_ONE_LADDER as error:
                if isinstance(error, TooFewDevices) and isinstance(request, LadderRequest):
                    error.hint = f"{error.elsewhere}, or use fewer: {request.on_devices(error.found)}"
                failed(error)
            if code > 128:
                return code, errors
    return code, errors


class Unfinished(Struct, frozen=True, kw_only=True):
    """The unfinished instances of a ledger."""

    instances: Sequence[tuple[LadderInstance, Sequence[Any]]]
    """Each with its recorded requests, oldest first: `LadderRequest`, or `StudyRequest` of a study. Without
    one, it cannot be continued."""
    of_others: dict[str, int]
    """User -> how many unfinished instances of theirs are left alone."""
    errors: Sequence[LedgerError]
    """One for each instance whose requests cannot be read."""
    hidden: Sequence[str]
    """The short names of unfinished instances that are left alone because they are hidden."""


def find(places: Places, only: str | None, *, all_users: bool) -> Unfinished:
    """The unfinished instances, or the one that `only` names, with the requests of this user or, on a server, of
    `all_users`. Runs of exited processes are marked as interrupted.

    Raises:
        NotFoundError: there is no such instance.
        UsageError: it was imported.
    """
    from lrurun.ledger import owner

    instances: list[tuple[LadderInstance, Sequence[Any]]] = []
    of_others: dict[str, set[str]] = {}
    errors: list[LedgerError] = []
    hidden: list[str] = []
    shared = implementation(places.ledger).is_shared and not all_users
    with opening.write(places) as ledger:
        ledger.reap(owner.this_process())
        replaced = continuing.replacements(ledger)
        if only is not None and ledger.ladder(only).kind == "imported":
            opening.refuse_imported(places, ledger.ladder(only).short_name)
        left_out = ledger.hidden() if only is None else {}
        for instance in ledger.ladders() if only is None else [ledger.ladder(only)]:
            if instance.key in replaced or not continuing.is_unfinished(ledger, instance):
                continue
            if instance.key in left_out:
                hidden.append(instance.short_name)
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
    return Unfinished(instances=instances, of_others=counts, errors=errors, hidden=hidden)


def newest_request(places: Places, name: str) -> tuple[LadderRequest, planning.Plan]:
    """The newest request of an instance, and its plan by the documents that it was run with.

    Raises:
        NotFoundError: there is no such instance.
        UsageError: it was imported, or is of a study; a plug-in is not loaded; its command is not recorded.
    """
    from lrurun.instances import documents, phrases
    from lrurun.report.tables import loaded_instance

    with opening.existing(places) as ledger:
        instance = ledger.ladder(name)
        plan = loaded_instance.of_instance(ledger, instance).plan
        if not plan.is_trained_here:
            raise phrases.not_trained_here(f"--instance {instance.short_name}", plan.recipe)
        documents.load_code(ledger, instance, documents.find(ledger, instance), "recurrence", "task", "optimizer")
        recorded = requests.recorded(ledger, instance, LadderRequest)
    if not recorded:
        raise not_recorded(instance)
    return recorded[-1], plan


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


def say_nothing_to_do(places: Places, ledger: Ledger, only: str | None, unfinished: Unfinished) -> None:
    """Says that what this command may continue is finished."""
    superseded, of_others = continuing.superseded(ledger), bool(unfinished.of_others)
    if only is None:
        other = " other" if superseded or unfinished.hidden else ""
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
    """Says which unfinished instances are left alone because they are superseded."""
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

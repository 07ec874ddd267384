"""How commands open the ledger: to read it, to change something in it, or to train."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lrurun import console
from lrurun.errors import LedgerFileError, NotFoundError, UnreachableError, UsageError, plural
from lrurun.ledger.database import TIMEOUT, TRAINING_TIMEOUT, implementation

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.instances.requests import LadderRequest
    from lrurun.ledger.ledger import Ledger
    from lrurun.paths import Places


REBUILD = "lrurun ledger rebuild makes a ledger from them"


def plan_to_train(places: Places, request: LadderRequest) -> planning.Plan:
    """The plan of a request to train, or to say what would be trained.

    Raises:
        UsageError: an unknown name, a value or a file that is wrong, or runs that were imported, also if their file is
            not here: then the ledger knows them.
    """
    from lrurun import paths
    from lrurun.instances import documents

    try:
        return request.plan()
    except UsageError as error:
        refuse_imported(places, request.task)
        if not paths.is_path(request.task) and request.task not in paths.names("recipes"):
            with read(places) as ledger:
                hint = "lrurun resume --instance {0} finishes it, lrurun plan --instance {0} shows what remains"
                documents.refuse_instance(ledger, request.task, error, hint)
        raise


def refuse_imported(places: Places, name: str) -> None:
    """Refuses to train the task or the instance of this name, if the ledger has imported runs of it.

    Raises:
        UsageError: it has.
    """
    from lrurun import paths
    from lrurun.instances import documents, phrases

    try:
        paths.find("recipes", name)
    except UsageError:
        with read(places) as ledger:
            for instance in reversed(ledger.ladders()):
                known = documents.find(ledger, instance) if name in (instance.task, instance.short_name) else None
                if known is not None and known.recipe.imported is not None:
                    named = name if name == instance.task else f"--instance {name}"
                    raise phrases.not_trained_here(named, known.recipe) from None


def rebuild_hint(places: Places) -> str | None:
    """A hint about a runs folder whose runs no ledger has; None if it has no runs."""
    from lrurun import paths

    count = len(paths.run_folders(places.runs))
    return f"{places.runs} has {plural(count, 'folder')} of runs: {REBUILD}" if count else None


def read(places: Places) -> Ledger:
    """The ledger for reading as it is; one without rows if there is none."""
    from lrurun.ledger.ledger import Ledger

    ledger = Ledger.read(places.ledger)
    _show_note(ledger)
    return ledger


def read_current(places: Places) -> Ledger:
    """The ledger for reading, after the runs of exited processes are marked as interrupted.

    A ledger that this user cannot write to is read as it is.
    """
    from lrurun.ledger import owner
    from lrurun.ledger.ledger import Ledger

    ledger = read(places)
    try:
        if ledger.exists and ledger.has_abandoned(owner.this_process()) and is_writable(places):
            try:
                with Ledger.open(places.ledger, create=False) as writing:
                    writing.reap(owner.this_process())
            except (LedgerFileError, UnreachableError) as error:  # a full disk, or a user who may only read it
                console.warn(f"processes of running runs have exited, but this cannot be recorded: {error.message}")
    except BaseException:
        ledger.close()
        raise
    return ledger


def is_writable(places: Places) -> bool:
    """Whether this user can write to the ledger or create it, as far as that is known without trying."""
    return implementation(places.ledger).is_writable(places.ledger)


def can_be_created(places: Places) -> bool:
    """Whether a new ledger can be made at its location."""
    return implementation(places.ledger).can_be_created(places.ledger)


def exists(places: Places) -> bool:
    """Whether there is a ledger, of any version."""
    return implementation(places.ledger).exists(places.ledger)


def nothing_yet(places: Places, noun: str) -> str:
    """A sentence that says that there is none of these things, and what to do next."""
    state = f"no {noun} in {places.ledger} yet" if exists(places) else f"there is no ledger at {places.ledger} yet"
    return f"{state}; {rebuild_hint(places) or 'lrurun ladder TASK starts one'}"


def refuse_lost_ledger(places: Places) -> None:
    """Refuses to begin a ledger beside the runs of another one, which would be trained again.

    Raises:
        UsageError: the runs folder has runs, and the ledger has none, or there is no ledger.
    """
    if not rebuild_hint(places):
        return
    with read(places) as ledger:
        if not ledger.count_runs():
            raise UsageError(nothing_yet(places, "runs"), "to start over, choose another runs folder: --runs-dir DIR")


def latest_instance(places: Places, expected: str) -> str:
    """The short name of the ladder instance with the run that began last, for a command that names none; says which.

    Raises:
        NotFoundError: the ledger has none, and `expected` was needed.
    """
    with read(places) as ledger:
        instance, hidden = ledger.latest_ladder(), ledger.hidden()
    if instance is None and hidden:
        problem = f"every instance with runs in {places.ledger} is hidden"
        raise NotFoundError(f"expected {expected}", f"{problem}; lrurun status --hidden lists them")
    if instance is None:
        raise NotFoundError(f"expected {expected}", nothing_yet(places, "runs"))
    console.say(f"the latest instance: --instance {instance.short_name}; lrurun status lists all")
    return instance.short_name


def latest_run(places: Places, instance: str | None = None) -> str:
    """The id of the run that was begun last, of all or of an instance, for a command that names none; says which.

    Raises:
        NotFoundError: no run was begun, or there is no such instance.
    """
    with read(places) as ledger:
        of = None if instance is None else ledger.ladder(instance)
        run = ledger.latest_run(None if of is None else of.key)
    if run is None and of is not None:
        raise NotFoundError(f"instance {of.short_name}: none of its runs was begun", "lrurun resume begins them")
    if run is None:
        raise NotFoundError("expected a RUN", nothing_yet(places, "runs"))
    console.say(f"the latest run: {run}; lrurun runs lists all")
    return run


def read_for_run(places: Places, run: str | None) -> Ledger:
    """Opens the ledger as `read_current` does, for a command about one run.

    Raises:
        NotFoundError: there is no ledger.
    """
    return _required(read_current(places), places, run)


def existing(places: Places, run: str | None = None) -> Ledger:
    """The ledger for reading as it is, for a command about one run where it is given.

    Raises:
        NotFoundError: there is no ledger.
    """
    return _required(read(places), places, run)


def write(places: Places, *, training: bool = False, create: bool = True) -> Ledger:
    """The ledger for writing; it is created or migrated if necessary. `training` waits longer for other processes.

    Raises:
        NotFoundError: there is none, and it is not to be created.
    """
    from lrurun.ledger.ledger import Ledger

    ledger = Ledger.open(places.ledger, timeout=TRAINING_TIMEOUT if training else TIMEOUT, create=create)
    _show_note(ledger)
    return ledger


def change(places: Places, run: str | None = None) -> Ledger:
    """The ledger, to change something in it, or about a run. It is neither created nor migrated.

    Raises:
        NotFoundError: there is no ledger.
    """
    from lrurun.ledger.ledger import Ledger

    _required(read(places), places, run).close()
    return Ledger.open(places.ledger, create=False)


def _show_note(ledger: Ledger) -> None:
    if ledger.note:
        console.warn(ledger.note)


def _required(ledger: Ledger, places: Places, run: str | None = None) -> Ledger:
    if not ledger.exists:
        subject = f"run {run!r}: " if run else ""
        hint = "; ".join(filter(None, ("name one with --ledger PATH", rebuild_hint(places))))
        raise NotFoundError(f"{subject}there is no ledger at {places.ledger}", hint)
    return ledger

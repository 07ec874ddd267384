"""What is checked and made before anything is trained: folders, ledger, data, and the kept files of a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lrurun import console
from lrurun.errors import LrurunError, UsageError, plural
from lrurun.session import opening

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.instances.requests import LadderRequest
    from lrurun.ledger.ledger import Ledger
    from lrurun.paths import Places
    from lrurun.runner.selection import Selection
    from lrurun.runner.signals import Signals


def check_places(places: Places, plan: planning.Plan) -> None:
    """Checks that the folders and the ledger can be used, before anything is written.

    Raises:
        LrurunError: one of them cannot, or a search needs a package that is not installed.
    """
    from lrurun.config.search import require_optuna
    from lrurun.runner.preparation import check_data_folder, check_runs_folder

    if plan.tune and plan.search is not None:
        require_optuna()
    with opening.read(places) as ledger:  # raises an error, before anything is written, if it cannot be used
        exists = ledger.exists
    if plan.kind == "training":
        check_data_folder(places, plan)
    if exists or opening.can_be_created(places):
        check_runs_folder(places.runs)


@contextmanager
def no_new_folder(runs: Path) -> Iterator[None]:
    """Removes a new folder of runs, which is empty, where what follows fails."""
    existed = runs.exists()
    try:
        yield
    except BaseException:
        if not existed:
            with suppress(OSError):
                runs.rmdir()
        raise


def prepare(places: Places, request: LadderRequest, plan: planning.Plan, signals: Signals, *, fresh: bool) -> None:
    """Makes sure that the data are there if anything is to be trained, and of programs the copy of their files, before
    anything is recorded: where that fails, no run is queued, and there is no new ledger.

    Raises:
        LrurunError: the data cannot be prepared, or finished runs were trained on other data; no copy can be made.
        Stopped: after a signal; nothing half-written remains.
    """
    from lrurun.config import planning
    from lrurun.instances import phrases, remaining
    from lrurun.runner.selection import Selection

    if plan.kind == "program":  # which has data of its own
        Selection(plan=plan, rungs=plan.rungs, seeds=()).keep_files(places.runs)
        return
    with opening.read(places) as ledger:
        document = remaining.without_firm(places, request, plan, ledger)
        if fresh or not document.is_finished:
            if text := phrases.missing_data(places, plan):
                console.say(text)
            prepare_data(places, plan, signals)
        if not fresh:
            rungs = planning.choose_rungs(plan, [row.rung for row in document.rungs])
            checked(Selection(plan=plan, rungs=rungs, seeds=document.seeds), ledger, places)


def prepare_data(places: Places, plan: planning.Plan, signals: Signals) -> None:
    """Prepares the data of a task in a process of its own, unless they are there, and shows the progress."""
    from lrurun.report.live.views import PreparationView
    from lrurun.runner import preparation

    with PreparationView() as view:
        preparation.prepare_data(places.data, plan, signals, view)


def warn_of_data(places: Places, plan: planning.Plan) -> None:
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


def check_command(places: Places, request: LadderRequest, plan: planning.Plan) -> None:
    """Checks that the program's command is on this machine, if anything remains to be trained. Nodes may have others.

    Raises:
        UsageError: it is not.
    """
    from lrurun.runner import program_faults

    rungs, _ = request.chosen(plan)
    try:
        program_faults.check_command(rungs, plan.recipe.folder, plan.recipe.path)
    except UsageError:
        with opening.read(places) as ledger:
            if not is_finished(ledger, places, request, plan):
                raise


def checked(selection: Selection, ledger: Ledger, places: Places) -> Selection:
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


def is_finished(ledger: Ledger, places: Places, request: LadderRequest, plan: planning.Plan) -> bool:
    """Whether nothing of a request remains to be trained."""
    from lrurun.instances import lookup, remaining

    return remaining.without_firm(places, request, plan, ledger).is_finished and lookup.find(ledger, plan) is not None

"""`lrurun resume`: finish every unfinished ladder of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lrurun import console
from lrurun.commands import opening, study
from lrurun.commands import request as requests
from lrurun.commands.ladder import Work, train
from lrurun.commands.options import Jobs, TimeLimit
from lrurun.commands.request import LadderRequest
from lrurun.commands.study import StudyRequest
from lrurun.config.schema import STUDY
from lrurun.errors import LaterVersionError, LedgerError, UsageError

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.paths import Places
    from lrurun.runner.signals import Signals


def resume(context: typer.Context, jobs: Jobs = None, time_limit: TimeLimit = None) -> int:
    """Finish every unfinished ladder and study in this ledger.

    Repeats the recorded commands, oldest first. The exit code is the highest of theirs.
    """
    from lrurun.ledger import owner

    places: Places = context.obj.places
    work = Work(jobs=jobs, time_limit=time_limit, arguments=context.obj.arguments)
    signals = work.signals()
    if not places.ledger.exists():
        console.say("nothing to do: there is no ledger yet")
        return 0
    unfinished: list[tuple[LadderInstance, Sequence[LadderRequest | StudyRequest]]] = []
    worst = 0
    with opening.write(places) as ledger:
        ledger.reap(owner.here())
        for one in [one for one in ledger.ladders() if _is_unfinished(ledger, one)]:
            try:
                kind = StudyRequest if one.task.startswith(STUDY) else LadderRequest
                unfinished.append((one, requests.recorded(ledger, one, kind)))
            except LedgerError as error:  # a record that cannot be read does not stop the others
                console.fail(error)
                worst = error.exit_code
    if not unfinished and not worst:
        console.say("nothing to do: every ladder of this ledger is finished")
        return 0
    for instance, recorded in unfinished:
        for request in recorded:
            try:
                if isinstance(request, StudyRequest):
                    code = study.repeat(places, request, work, signals)
                else:
                    code = _repeat(places, instance, request, work, signals)
            except (UsageError, LaterVersionError) as error:
                # A ladder whose files have changed, or one that a later lrurun began, does not stop the others.
                console.fail(error)
                code = error.exit_code
            if code > 128:
                return code
            worst = max(worst, code)
    return worst


def _repeat(places: Places, instance: LadderInstance, request: LadderRequest, work: Work, signals: Signals) -> int:
    from lrurun import plugins

    for file in request.load:
        if not plugins.is_loaded(file, Path()):
            raise UsageError(
                f"ladder {instance.key}: was started with --load {file}",
                f"code is not loaded from a ledger; name it again: lrurun resume --load {file}",
            )
    plan = request.plan()
    if (plan.ladder.name, plan.recipe.task) != (instance.name, instance.task):
        raise UsageError(
            f"ladder {instance.key}: {request.ladder} is now {plan.ladder.name} on {plan.recipe.task}, "
            f"it was {instance.name} on {instance.task}",
            "restore the files, or start another ladder",
        )
    rungs, seeds = request.chosen(plan)
    return train(places, request, plan, rungs, seeds, work, signals)


def _is_unfinished(ledger: Ledger, instance: LadderInstance) -> bool:
    """Whether a run remains, a tuned rung whose final runs are not yet in the queue, or a look of a design."""
    from lrurun.ledger.values import FINISHED
    from lrurun.report import design_record

    runs = ledger.runs(instance.key, brief=True)
    stages = {(m.rung, m.stage) for run in runs for m in run.memberships if m.ladder_key == instance.key}
    awaited = any((rung, "train") not in stages for rung, stage in stages if stage == "tune")
    return awaited or any(run.state not in FINISHED for run in runs) or design_record.is_unfinished(instance, ledger)

"""Which ladder instances `lrurun resume` can continue: `status` and the browser view say the same."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lrurun import paths
from lrurun.errors import LedgerError
from lrurun.instances import requests
from lrurun.instances.requests import LadderRequest
from lrurun.ledger.values import FINISHED, REQUEST

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Event, LadderInstance


def is_unfinished(ledger: Ledger, instance: LadderInstance) -> bool:
    """Whether a run remains, a tuned rung whose final runs are not yet in the queue, or a look of a design; nothing
    remains of an import, whose missing runs end elsewhere or not at all."""
    if instance.kind == "imported":
        return False
    from lrurun.judging import design_record

    runs = ledger.runs(instance.key, brief=True)
    stages = {(m.rung, m.stage) for run in runs for m in run.memberships if m.ladder_key == instance.key}
    awaited = any((rung, "train") not in stages for rung, stage in stages if stage == "tune")
    return awaited or any(run.state not in FINISHED for run in runs) or design_record.is_unfinished(instance, ledger)


def replacements(ledger: Ledger) -> dict[str, LadderInstance]:
    """Key of each instance that is no longer requested -> the instance that its newest command was for since.

    After a change of a ladder, a recipe, a plug-in or a program, the same command is for another instance: that one is
    continued.
    """
    made = requests.made(ledger)
    newest = dict(made)
    newest_of: dict[str, list[str]] = {}
    for runs, key in made:
        newest_of.setdefault(key, []).append(newest[runs])
    replaced = {key: now[-1] for key, now in newest_of.items() if key not in now}
    instances = {instance.key: instance for instance in ledger.ladders()} if replaced else {}
    return {key: instances[by] for key, by in replaced.items()}


def superseded(ledger: Ledger) -> dict[str, LadderInstance]:
    """The `replacements` of instances that stay unfinished: some of their runs are not, and none is running."""
    return {
        key: by
        for key, by in replacements(ledger).items()
        if not ledger.state_counts(key).get("running") and is_unfinished(ledger, ledger.ladder(key))
    }


def sentence(instance: LadderInstance, by: LadderInstance) -> str:
    """Why an instance is superseded."""
    return (
        f"{instance.short_name} is superseded by {by.short_name}: its command was given again after its ladder, recipe "
        "or code had changed"
    )


def missing_files(ledger: Ledger) -> dict[str, str]:
    """Key of each unfinished ladder instance of which no command can be repeated -> the file that is not where it was.

    Files of other users may be on other machines.
    """
    from lrurun.config.schema import LADDER_KINDS
    from lrurun.ledger import owner

    events: dict[str, list[Event]] = {}
    for key, event in ledger.events_of_ladders(REQUEST):
        events.setdefault(key, []).append(event)
    missing: dict[str, str] = {}
    for instance in ledger.ladders():
        if instance.kind not in LADDER_KINDS or instance.key not in events:
            continue
        recorded = list[LadderRequest]()
        with suppress(LedgerError):  # which resume shows
            recorded = requests.decoded(events[instance.key], LadderRequest, instance)
        files = [missing_file(request) for request in recorded if request.user in (None, owner.user())]
        if files and files[0] is not None and None not in files and is_unfinished(ledger, instance):
            missing[instance.key] = files[0]
    return missing


def missing_file(request: LadderRequest) -> str | None:
    """The ladder or recipe of a request that is not where it was; None if both are there."""
    return next(
        (file for file in (request.ladder, request.task) if paths.is_path(file) and not Path(file).is_file()), None
    )

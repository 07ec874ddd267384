"""The ladder and the recipe of an instance as they were run, in the ledger: its reports do not need their files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from lrurun import plugins
from lrurun.config import plan as planning
from lrurun.config.ladder import Ladder
from lrurun.config.recipe import Recipe
from lrurun.errors import UsageError

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import LadderInstance

KIND = "documents"
"""Kind of the event that records them, as JSON."""


class InstanceDocuments(Struct, frozen=True, kw_only=True):
    """The documents of an instance."""

    ladder: Ladder
    """With absolute paths of the plug-ins that it loads."""
    recipe: Recipe


def record(ledger: Ledger, instance: LadderInstance, plan: planning.Plan) -> None:
    """Records the documents of a plan, unless they are recorded as they are."""
    folder = Path(plan.ladder.path).parent
    load = tuple(os.path.abspath(folder / Path(file).expanduser()) for file in plan.ladder.load)
    documents = InstanceDocuments(ladder=structs.replace(plan.ladder, load=load), recipe=plan.recipe)
    if find(ledger, instance) != documents:
        ledger.event(KIND, msgspec.json.encode(_table(documents)).decode(), ladder=instance.key)


def _table(value: Any) -> Any:
    """Documents as plain tables, without empty values that are defaults: some of them may not be given."""
    if isinstance(value, Struct):
        return {
            field.encode_name: _table(getattr(value, field.name))
            for field in structs.fields(value)
            if field.required or getattr(value, field.name) not in (None, "", (), [], {})
        }
    if isinstance(value, dict):
        return {name: _table(part) for name, part in value.items()}
    return [_table(part) for part in value] if isinstance(value, list | tuple) else value


def find(ledger: Ledger, instance: LadderInstance) -> InstanceDocuments | None:
    """The documents of an instance as they were last run; None if no ladder command has made it, or another version
    of lrurun whose documents this one cannot read."""
    events = ledger.events(ladder_key=instance.key, of_runs=False)
    texts = [event.text for event in events if event.kind == KIND]
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        return msgspec.json.decode(texts[-1], type=InstanceDocuments) if texts else None
    return None


def find_ladder(ledger: Ledger, name: str) -> Ladder | None:
    """The ladder of the newest instance that has this name of a ladder; None if there is none."""
    found = [documents for one in ledger.ladders(name) if (documents := find(ledger, one)) is not None]
    return found[-1].ladder if found else None


def plan_of(ledger: Ledger, instance: LadderInstance) -> planning.Plan:
    """The plan of an instance, by its documents. Code that a ladder names is not loaded from a ledger.

    Raises:
        UsageError: a plug-in is not loaded, or the documents do not fit this version.
    """
    documents, sets, tune = find(ledger, instance), instance.spec.get("set", {}), bool(instance.spec.get("tune"))
    if documents is None:
        return planning.make(
            instance.task, ladder=instance.name, profile=instance.profile, sets=sets, tune=tune, imports=False
        )
    check_loaded(documents.ladder)
    return planning.of_documents(documents.ladder, documents.recipe, profile=instance.profile, sets=sets, tune=tune)


def check_loaded(ladder: Ladder) -> None:
    """Refuses a recorded ladder whose plug-ins are not loaded.

    Raises:
        UsageError: one is not.
    """
    for file in ladder.load:
        if not plugins.is_loaded(file, Path()):
            raise UsageError(
                f"ladder {ladder.name} of the ledger: needs {file}, which this command does not load",
                f"name it: --load {file}",
            )

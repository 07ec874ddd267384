"""The ladder and the recipe of an instance as they were run, in the ledger: its reports do not need their files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from lrurun import console, paths, plugins
from lrurun.config import ladder as ladders
from lrurun.config import plan as planning
from lrurun.config import recipe as recipes
from lrurun.config.ladder import Ladder, lasting_path
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
    ladder, recipe = plan.ladder, plan.recipe
    of_ladder = lasting_path("ablations", ladder.name) if ladder.is_packaged else os.path.abspath(ladder.path)
    of_recipe = lasting_path("recipes", recipe.task) if recipe.is_packaged else os.path.abspath(recipe.path)
    used = InstanceDocuments(
        ladder=structs.replace(ladder, load=load, path=of_ladder), recipe=structs.replace(recipe, path=of_recipe)
    )
    if find(ledger, instance) != used:
        ledger.event(KIND, "ladder and recipe as they were run", _table(used), ladder=instance.key)


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
    payloads = [event.payload for event in events if event.kind == KIND]
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(payloads[-1], InstanceDocuments) if payloads else None
    return None


def newest(ledger: Ledger | None, kind: paths.Kind, name: str) -> InstanceDocuments | None:
    """The documents of the newest instance whose ladder or recipe has this name, or was read from this file.

    None if there is such a file here, and if no instance has such documents.
    """
    if ledger is None or _is_here(kind, name):
        return None
    of_ladders, by_path = kind == "ablations", paths.is_path(name)
    for instance in reversed(ledger.ladders()):
        if by_path or name == (instance.name if of_ladders else instance.task):
            recorded = find(ledger, instance)
            file = recorded and (recorded.ladder if of_ladders else recorded.recipe).path
            if recorded is not None and (not by_path or file == os.path.abspath(name)):
                return recorded
    return None


def load_ladder(name: str, ledger: Ledger | None) -> Ladder:
    """The ladder of this name or in this file; one without a file here is the one that the ledger records.

    Raises:
        UsageError: there is none, it is wrong, or it needs a plug-in that is not loaded.
    """
    if (recorded := newest(ledger, "ablations", name)) is None:
        return ladders.load_ladder(name)
    ladder = recorded.ladder
    check_loaded(ladder)
    console.say(f"ladder {name}: as the ledger records it, from {ladder.path}; there is no such file here")
    return ladder


def load_recipe(name: str, ledger: Ledger | None) -> Recipe:
    """The recipe of this task or in this file; one without a file here is that of the newest instance on the task.

    Raises:
        UsageError: there is none, or it is wrong.
    """
    if (recorded := newest(ledger, "recipes", name)) is None:
        return recipes.load_recipe(name)
    path = recorded.recipe.path
    console.say(f"recipe of {name}: as the ledger records it, from {path}; there is no such file here")
    return recorded.recipe


def _is_here(kind: paths.Kind, name: str) -> bool:
    """Whether there is a file of this name."""
    try:
        paths.find(kind, name)
    except UsageError:
        return False
    return True


def present_plan(
    ledger: Ledger, instance: LadderInstance, ladder: Ladder, *, sets: Sequence[str] | Mapping[str, Any], tune: bool
) -> planning.Plan:
    """The plan of a ladder with the recipe of an instance: lrurun's own as it is now, others as they were run.

    Raises:
        UsageError: the values do not fit, or there is no such recipe.
    """
    recorded = find(ledger, instance)
    if recorded is None or recorded.recipe.is_packaged:
        recipe = recipes.load_recipe(instance.task, imports=False)
    else:
        recipe = recorded.recipe
    return planning.of_documents(ladder, recipe, profile=instance.profile, sets=sets, tune=tune)


def plan_of(ledger: Ledger, instance: LadderInstance) -> planning.Plan:
    """The plan of an instance, by its documents. Code that a ladder names is not loaded from a ledger.

    Raises:
        UsageError: a plug-in is not loaded, or the documents do not fit this version.
    """
    recorded, sets, tune = find(ledger, instance), instance.spec.get("set", {}), bool(instance.spec.get("tune"))
    if recorded is None:
        return planning.make(
            instance.task, ladder=instance.name, profile=instance.profile, sets=sets, tune=tune, imports=False
        )
    check_loaded(recorded.ladder)
    return planning.of_documents(recorded.ladder, recorded.recipe, profile=instance.profile, sets=sets, tune=tune)


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

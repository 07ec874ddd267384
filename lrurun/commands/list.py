"""`lrurun list`: ladders, recipes, tasks, recurrences and studies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Optional, get_args

import typer
from msgspec import UNSET, Struct, UnsetType, structs

from lrurun import console, kinds, paths
from lrurun.commands._shared import output
from lrurun.commands._shared.options import Json, choice
from lrurun.commands._shared.rules import examples
from lrurun.errors import UsageError

What = Literal["ladders", "recipes", "tasks", "recurrences", "studies"]


class ListedLadder(Struct, frozen=True):
    """A ladder that is found by its name."""

    name: str
    title: str
    rungs: list[str]
    file: str


class ListedRecipe(Struct, frozen=True):
    """A recipe that is found by its name."""

    name: str
    expect: str
    profiles: list[str]
    checked: str
    file: str


class ListedTask(Struct, frozen=True):
    """A task that is registered."""

    name: str
    title: str
    classes: int
    sizes: list[str]


class ListedRecurrence(Struct, frozen=True):
    """A recurrence that is registered."""

    name: str
    what: str


class ListedStudy(Struct, frozen=True):
    """A theory figure."""

    name: str
    question: str
    source: str
    aliases: list[str]


class ListedSetting(Struct, frozen=True):
    """A setting of a study."""

    name: str
    values: dict[str, Any]
    """Profile -> its value, or the list of those that are an axis of its grid."""


class StudyListing(Struct, frozen=True):
    """The JSON of `lrurun list studies NAME`."""

    study: str
    settings: list[ListedSetting]


class Listing(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun list`; what was not asked for is left out."""

    ladders: list[ListedLadder] | UnsetType = UNSET
    recipes: list[ListedRecipe] | UnsetType = UNSET
    tasks: list[ListedTask] | UnsetType = UNSET
    recurrences: list[ListedRecurrence] | UnsetType = UNSET
    studies: list[ListedStudy] | UnsetType = UNSET


@examples(
    "lrurun list",
    "lrurun list tasks",
)
def list_(
    what: Annotated[
        Optional[What],
        typer.Argument(
            help="ladders, recipes, tasks, recurrences or studies [all of them].", **choice("list", get_args(What))
        ),
    ] = None,
    study: Annotated[
        Optional[str], typer.Argument(metavar="NAME", help="Of studies: one of them, with its settings.")
    ] = None,
    json: Json = False,
) -> int:
    """List ladders, recipes, tasks, recurrences and studies.

    With `studies` and a name: the settings of that study in each profile.
    """
    if study is not None:
        return _show_study(what, study, json=json)
    makers: dict[str, Callable[[], Sequence[Struct]]] = {
        "ladders": _ladders,
        "recipes": _recipes,
        "tasks": _tasks,
        "recurrences": _recurrences,
        "studies": _studies,
    }
    found = {name: make() for name, make in makers.items() if what in (None, name)}
    if json:
        output.write_json(Listing(**found))  # type: ignore[arg-type]
        return 0
    for name, entries in found.items():
        headers = list(entries[0].__struct_fields__) if entries else ["name"]
        rows = [[", ".join(v) if isinstance(v, list) else str(v) for v in structs.astuple(one)] for one in entries]
        console.table(name, headers, rows)
    return 0


def _ladders() -> list[ListedLadder]:
    from lrurun.config.ladder import read_ladder

    found = []
    for name, path in paths.names("ablations").items():
        ladder = read_ladder(name)
        found.append(ListedLadder(name, ladder.title, [rung.name for rung in ladder.rungs], paths.shown(path)))
    return found


def _recipes() -> list[ListedRecipe]:
    from lrurun.config.recipe import read_recipe

    found = []
    for name, path in paths.names("recipes").items():
        recipe = read_recipe(name)
        about = recipe.about
        found.append(ListedRecipe(name, about.expect, list(recipe.profile), about.checked, paths.shown(path)))
    return found


def _tasks() -> list[ListedTask]:
    from lrurun import data

    return [
        ListedTask(task.name, task.title, task.classes, [f"{k} {v}" for k, v in task.sizes(task.options()).items()])
        for task in data.TASKS.values()
    ]


def _recurrences() -> list[ListedRecurrence]:
    from lrurun.config.recurrences import KINDS

    return [ListedRecurrence(name, _summary(kind.settings)) for name, kind in KINDS.items()]


def _studies() -> list[ListedStudy]:
    return [ListedStudy(one.name, one.question, one.source, list(one.aliases)) for one in kinds.get("study").named()]


def _show_study(what: str | None, name: str, *, json: bool) -> int:
    """Lists the settings of a study in each profile."""
    if what != "studies":
        raise UsageError(f"list {what}: takes no name, found {name!r}", "lrurun list studies NAME lists settings")
    study = kinds.get("study").get(name)
    profiles = {one: structs.asdict(study.settings()) | dict(table) for one, table in study.profiles.items()}
    settings = [
        ListedSetting(field.name, {one: values[field.name] for one, values in profiles.items()})
        for field in structs.fields(study.settings)
    ]
    if json:
        output.write_json(StudyListing(study.name, settings))
        return 0
    rows = [[one.name, *(console.setting(value) for value in one.values.values())] for one in settings]
    console.table(
        f"settings of the study {study.name}, by profile; a list is an axis of its grid", ["setting", *profiles], rows
    )
    console.say(f"lrurun study {study.name} --set NAME=VALUE or NAME=[VALUE,VALUE] changes them")
    return 0


def _summary(settings: type) -> str:
    """The first paragraph of the docstring, on one line."""
    return " ".join(inspect.cleandoc(settings.__doc__ or "").partition("\n\n")[0].split())

"""`lrurun list`: ladders, recipes, tasks, recurrences, optimisers and studies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Optional, get_args

import typer
from msgspec import UNSET, Struct, UnsetType, structs

from lrurun import console, paths, studies, table
from lrurun.commands._shared import output
from lrurun.commands._shared.options import Json, choice
from lrurun.commands._shared.rules import examples
from lrurun.errors import UsageError

What = Literal["ladders", "recipes", "tasks", "recurrences", "optimizers", "studies"]


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


class ListedOptimizer(Struct, frozen=True):
    """An optimiser that is registered."""

    name: str
    what: str
    plugin: str
    """The file or package that it comes from; empty for lrurun's own."""


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
    """Profile -> the value there; a list is an axis of the grid."""


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
    optimizers: list[ListedOptimizer] | UnsetType = UNSET
    studies: list[ListedStudy] | UnsetType = UNSET


@examples(
    "lrurun list tasks",
    "lrurun list recipes --details",
)
def list_(
    what: Annotated[
        Optional[What],
        typer.Argument(
            help="ladders, recipes, tasks, recurrences, optimizers or studies [all of them].",
            **choice("list", get_args(What)),
        ),
    ] = None,
    study: Annotated[
        Optional[str], typer.Argument(metavar="NAME", help="Of studies: one of them, with its settings.")
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="All that is known of each, on lines of its own.")] = False,
    json: Json = False,
) -> int:
    """List ladders, recipes, tasks, recurrences, optimisers, studies.

    With `studies` and a name: the settings of that study in each profile.
    """
    if study is not None:
        return _show_study(what, study, json=json)
    makers: dict[str, Callable[[], Sequence[Struct]]] = {
        "ladders": _ladders,
        "recipes": _recipes,
        "tasks": _tasks,
        "recurrences": _recurrences,
        "optimizers": _optimizers,
        "studies": _studies,
    }
    listed = {name: make() for name, make in makers.items() if what in (None, name)}
    if json:
        output.write_json(Listing(**listed))  # type: ignore[arg-type]
        return 0
    for name, entries in listed.items():
        if details:
            console.write(name)
            for entry in entries:
                console.write("")
                table.show_facts([(field, _text(value)) for field, value in structs.asdict(entry).items()])
        else:
            cells = {column: list(map(cell, entries)) for column, cell in _COLUMNS[name].items()}
            filled = {column: texts for column, texts in cells.items() if any(texts) or not entries}
            rows = list(zip(*filled.values(), strict=True))
            table.show_text(list(filled), rows, title=name, order=_LEFT_OUT, cut=dict.fromkeys(_SENTENCES, 24))
    if not details:
        console.say("--details shows everything")
    return 0


def _text(value: object) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


_COLUMNS: dict[str, dict[str, Callable[[Any], str]]] = {
    "ladders": {
        "name": lambda ladder: ladder.name,
        "rungs": lambda ladder: str(len(ladder.rungs)),
        "title": lambda ladder: ladder.title,
    },
    "recipes": {
        "name": lambda recipe: recipe.name,
        "checked": lambda recipe: recipe.checked.partition(",")[0],
        "profiles": lambda recipe: _text(recipe.profiles),
    },
    "tasks": {
        "name": lambda task: task.name,
        "classes": lambda task: str(task.classes),
        "sizes": lambda task: " / ".join(size.split()[-1] for size in task.sizes),
        "title": lambda task: task.title,
    },
    "recurrences": {"name": lambda kind: kind.name, "what": lambda kind: kind.what},
    "optimizers": {
        "name": lambda optimizer: optimizer.name,
        "what": lambda optimizer: optimizer.what,
        "plug-in": lambda optimizer: optimizer.plugin,
    },
    "studies": {
        "name": lambda study: study.name,
        "question": lambda study: study.question,
        "source": lambda study: study.source,
    },
}
"""The columns of each list without --details: title -> the cell of an entry."""
_SENTENCES = ("title", "profiles", "what", "question")
_LEFT_OUT = ("source", "sizes", "classes")
"""The columns that a narrow terminal leaves out first."""


def _ladders() -> list[ListedLadder]:
    from lrurun.config.ladder import read_ladder

    ladders = []
    for name, path in paths.names("ablations").items():
        ladder = read_ladder(name)
        ladders.append(ListedLadder(name, ladder.title, [rung.name for rung in ladder.rungs], paths.shown(path)))
    return ladders


def _recipes() -> list[ListedRecipe]:
    from lrurun.config.recipe import read_recipe

    recipes = []
    for name, path in paths.names("recipes").items():
        recipe = read_recipe(name)
        about = recipe.about
        recipes.append(ListedRecipe(name, about.expect, list(recipe.profile), about.checked, paths.shown(path)))
    return recipes


def _tasks() -> list[ListedTask]:
    from lrurun.data import tasks

    return [
        ListedTask(task.name, task.title, task.classes, [f"{k} {v}" for k, v in task.sizes(task.options()).items()])
        for task in tasks.TASKS.values()
    ]


def _recurrences() -> list[ListedRecurrence]:
    from lrurun.config.recurrences import KINDS

    return [ListedRecurrence(name, _summary(kind.settings)) for name, kind in KINDS.items()]


def _optimizers() -> list[ListedOptimizer]:
    from lrurun import plugins
    from lrurun.config.optimizers import OPTIMIZERS

    sources = {name: plugins.source_of("optimizer", name) for name in OPTIMIZERS}
    return [
        ListedOptimizer(name, _summary(OPTIMIZERS[name].settings), source.shown if source is not None else "")
        for name, source in sources.items()
    ]


def _studies() -> list[ListedStudy]:
    return [ListedStudy(study.name, study.question, study.source, list(study.aliases)) for study in studies.every()]


def _show_study(what: str | None, name: str, *, json: bool) -> int:
    """Lists the settings of a study in each profile."""
    if what != "studies":
        raise UsageError(f"list {what}: takes no name, found {name!r}", "lrurun list studies NAME lists settings")
    study = studies.get(name)
    profiles = {profile: structs.asdict(study.settings()) | dict(table) for profile, table in study.profiles.items()}
    settings = [
        ListedSetting(field.name, {profile: values[field.name] for profile, values in profiles.items()})
        for field in structs.fields(study.settings)
    ]
    if json:
        output.write_json(StudyListing(study.name, settings))
        return 0
    console.paragraph(f"settings of the study {study.name}, by profile; a list is an axis of its grid")
    table.show_facts([(setting.name, _by_profile(setting.values)) for setting in settings])
    console.say(f"lrurun study {study.name} --set NAME=VALUE or NAME=[VALUE,VALUE] changes them")
    return 0


def _by_profile(values: Mapping[str, Any]) -> str:
    """A setting as text, for example "20" or "ci: 20; laptop, paper: 1000"."""
    profiles: dict[str, list[str]] = {}
    for profile, value in values.items():
        profiles.setdefault(console.setting(value), []).append(profile)
    if len(profiles) == 1:
        return next(iter(profiles))
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in profiles.items())


def _summary(settings: type) -> str:
    """The first paragraph of the docstring, on one line."""
    return " ".join(inspect.cleandoc(settings.__doc__ or "").partition("\n\n")[0].split())

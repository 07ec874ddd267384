"""Recipes: the tables of their TOML files, how the files are read, with what they extend, and their rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from lrurun import console, decoding, paths, plugins
from lrurun.config.ladder import LARGEST, Document, Ladder, Name, Scope, as_document, comes_with_lrurun, find_recurrence
from lrurun.config.schema import SECTIONS
from lrurun.config.settings import check_path, flatten, settings
from lrurun.data import TASKS
from lrurun.decoding.faults import faults, repaired
from lrurun.errors import Sink, UsageError, hint_for, raising
from lrurun.paths import find, shown


class About(Document, frozen=True, kw_only=True):
    """Where a recipe comes from, and what to expect of it."""

    source: str
    """Paper and table, or why the values are ours."""
    expect: str
    """The result to expect, with its tolerance."""
    device: str
    hours: Annotated[float, Meta(ge=0, le=1e6)]
    """For the whole ladder with the seeds of the recipe on `device`."""
    checked: str
    """Date and versions of the last check; "never" is valid."""
    notes: str = ""


class _Documentation(Document, frozen=True):
    """The part of a recipe that no command needs."""

    about: About


SearchKind = Literal["random", "tpe"]
_Number = Annotated[int, Meta(ge=-int(LARGEST), le=int(LARGEST))] | Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]


class Range(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values that a search may try, both ends included; whole numbers for settings that are whole."""

    low: _Number
    high: _Number
    log: bool = False
    """Whether small values are as likely as large ones: uniform in the logarithm."""
    step: _Number | None = None
    """Only `low` plus multiples of this."""

    def fault(self, where: str) -> UsageError | None:
        """The error about a range without values; None if it has some."""
        found = f"{where}: low = {self.low}, high = {self.high}"
        if self.low >= self.high:
            return UsageError(f"{found}: low must be less than high", "a list has single values: [0.9]")
        if self.log and self.low <= 0:
            return UsageError(f"{found}: a logarithmic range begins above 0", "raise low, or omit log = true")
        if self.log and self.step is not None:
            return UsageError(f"{found}: log and step exclude each other", "omit one of them")
        if self.step is not None and not 0 < self.step <= self.high - self.low:
            return UsageError(f"{found}: step = {self.step} does not fit into it", "above 0, at most high - low")
        return None

    def __str__(self) -> str:
        more = " (log)" if self.log else "" if self.step is None else f" (step {self.step:g})"
        return f"{self.low:g} to {self.high:g}{more}"


Tried = Annotated[list[Any], Meta(min_length=1)] | Range
"""Values to try; in a search, also a range."""


class Tune(Document, frozen=True, kw_only=True):
    """What a recipe tunes: points of a grid, or trials of a search, of which one is chosen on validation only."""

    grid: dict[str, Tried] = field(default_factory=dict)
    """Dotted path -> values to try."""
    search: SearchKind | None = None
    """A search over `space` instead of a grid: "random" or "tpe"."""
    space: dict[str, Tried] = field(default_factory=dict)
    """Dotted path -> a range, or the values to choose from."""
    trials: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """The budget of a search: points that it tries for each rung."""
    batch: Annotated[int, Meta(ge=1, le=1000)] = 4
    """Trials of TPE that are proposed together, without each other's results: as many may be trained at a time."""
    seeds: Annotated[int, Meta(ge=1, le=100)] = 3
    """Seeds that each point of the grid, or trial of the search, is trained with."""
    found: str = ""
    """Where and when the learning rates in this recipe were chosen."""
    results: dict[str, dict[str, Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]]] = field(default_factory=dict)
    """Rung -> value -> best validation score, as measured, in the units of the task's metric."""


class RungValues(Document, frozen=True, kw_only=True):
    """The values of a recipe for one rung, and where its learning rate comes from."""

    lr_published: str = ""
    """Paper and table that give the learning rate: `optim.lr` of this table, or the recipe's."""
    lr_chosen: str = ""
    """Why this learning rate was chosen, where no paper gives it; without it, the reason is that of `[ours]`."""
    model: dict[str, Any] = field(default_factory=dict)
    """For this rung, and for those that change it too."""
    optim: dict[str, Any] = field(default_factory=dict)
    """For this rung alone."""
    tune: dict[str, Tried] = field(default_factory=dict)
    """Dotted path -> values to try for this rung, beside those of `[tune.grid]` or `[tune.space]`; those of the model
    also for rungs that change it, unless they set the value."""

    @property
    def settings(self) -> dict[str, Any]:
        return {"model": self.model, "optim": self.optim}


class LadderValues(Document, frozen=True, kw_only=True):
    """The values of a recipe for the rungs of one ladder."""

    lr_published: str = ""
    """Paper and table that give the recipe's learning rate for this ladder."""
    rung: dict[Name, RungValues] = field(default_factory=dict)


class Profile(Document, frozen=True, kw_only=True):
    """A reduced configuration of a recipe."""

    why: str = ""
    seeds: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """Number of seeds of a ladder with this profile, without `--seeds`."""
    data: dict[str, Any] = field(default_factory=dict)
    """Settings of the data, over the recipe's; these data have their own folder, `<task>-<profile>`."""
    model: dict[str, Any] = field(default_factory=dict)
    optim: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    execution: dict[str, Any] = field(default_factory=dict)
    ladder: dict[Name, LadderValues] = field(default_factory=dict)
    """Over the recipe's."""
    tune: dict[str, Tried] | None = None
    """Another grid or space, dotted path -> values."""
    tune_seeds: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Another number of seeds of tuning. Without it, tuning has no more seeds than the profile has `seeds`."""
    trials: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """Another budget of a search."""


class Recipe(Document, frozen=True, kw_only=True):
    """How a task is trained."""

    task: Name
    about: About
    seeds: Annotated[int, Meta(ge=1, le=1000)] = 3
    data: dict[str, Any] = field(default_factory=dict)
    """Settings of the data, as the task names them; the published data without it."""
    model: dict[str, Any]
    optim: dict[str, Any]
    train: dict[str, Any]
    execution: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, str] = field(default_factory=dict)
    """Dotted path -> why a value that no paper gives was chosen."""
    ladder: dict[Name, LadderValues] = field(default_factory=dict)
    """Name of a ladder -> what the recipe sets for its rungs."""
    tune: Tune | None = None
    profile: dict[Name, Profile] = field(default_factory=dict)
    path: str = ""

    @property
    def is_packaged(self) -> bool:
        """Whether it was read from the file of its task that comes with lrurun."""
        return comes_with_lrurun("recipes", self.task, self.path)

    def tables(self, scopes: Sequence[Scope], profile: str | None) -> list[RungTable]:
        """The tables of the recipe, then of its profile, for these rungs, in the order in which they apply."""
        documents: list[tuple[Recipe | Profile, str]] = [(self, f"{self.path} [")]
        if profile is not None:
            documents.append((self.profile[profile], f"{self.path} [profile.{profile}."))
        found = []
        for document, prefix in documents:
            for scope in scopes:
                scoped = document.ladder.get(scope.ladder, LadderValues()).rung
                if scope.rung in scoped:
                    where = f"{prefix}ladder.{scope.ladder}.rung.{scope.rung}]"
                    found.append(RungTable(where, scoped[scope.rung].settings, scoped[scope.rung], scope))
        return found


class RungTable(Struct, frozen=True):
    """A table of a recipe with the values of a rung."""

    where: str
    """The file, and the table in it."""
    settings: dict[str, Any]
    notes: RungValues
    """With the source of the learning rate."""
    scope: Scope
    """The rung that it is written for; others may take its values."""


def check_scopes(ladder: Ladder, recipe: Recipe) -> None:
    """Refuse a recipe that sets values for rungs that its ladder lacks. Packaged recipes are for packaged ladders.

    Raises:
        UsageError: with the nearest rung.
    """
    if recipe.is_packaged:
        return
    prefixes = [("", recipe.ladder), *((f"profile.{name}.", one.ladder) for name, one in recipe.profile.items())]
    for prefix, ladders in prefixes:
        for rung in ladders.get(ladder.name, LadderValues()).rung:
            if rung not in ladder.bases:
                where = f"{recipe.path} [{prefix}ladder.{ladder.name}.rung.{rung}]"
                raise UsageError(
                    f"{where}: ladder {ladder.name} has no rung {rung!r}", hint_for(rung, ladder.bases, "rungs")
                )


def read_recipe(name: str) -> Recipe:
    """The recipe of that task, or in that file, without a check of its paths.

    Raises:
        UsageError: unknown name, TOML, unknown or missing keys.
    """
    if name in TASKS and name not in paths.names("recipes"):
        raise UsageError(f"no recipe for task {name}", f"write recipes/{name}.toml, or name the path of one: PATH.toml")
    path = find("recipes", name)
    where = shown(path)
    table, sources = extended(decoding.load_toml(path), path)
    if not is_packaged(path):
        table = _documentation(table, where, sources)
    return as_document(table, Recipe, where, sources)


def load_recipe(name: str, *, imports: bool = True) -> Recipe:
    """The recipe of that task, or in that file; every path in it is known, whether a command uses it or not.

    With `imports`, the installed packages that have its task and recurrences by their entry points are loaded.

    Raises:
        UsageError: unknown name, TOML, unknown or missing keys, unknown paths.
    """
    recipe = read_recipe(name)
    if imports:
        load_installed(recipe)
    check(recipe)
    return recipe


def load_installed(recipe: Recipe) -> None:
    """Loads the installed packages that have the task and the recurrences of a recipe.

    Raises:
        UsageError: one cannot be loaded.
    """
    plugins.load_installed("task", recipe.task)
    documents: list[Recipe | Profile] = [recipe, *recipe.profile.values()]
    for document in documents:
        scoped = [rung.settings for ladder in document.ladder.values() for rung in ladder.rung.values()]
        for table in ({"model": document.model}, *scoped):
            find_recurrence(table)


def is_packaged(path: Path) -> bool:
    """Whether the file of a recipe is one of lrurun's own."""
    return path.resolve().parent == paths.packaged("recipes").resolve()


def get_profile(recipe: Recipe, name: str | None) -> Profile:
    """The profile of that name; without one, a profile that changes nothing."""
    if name is None:
        return Profile()
    if name not in recipe.profile:
        raise UsageError(f"{recipe.path}: unknown profile {name!r}", hint_for(name, recipe.profile, "profiles"))
    return recipe.profile[name]


def extended(table: dict[str, Any], path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The table of the recipe at `path` with what it extends below it, and dotted path -> file of values from there.

    Tables are merged, but a search replaces the grids of the file; other values of the recipe replace those of the
    file, which is beside the recipe or, for copies of packaged recipes, beside those.

    Raises:
        UsageError: there is no such file, it is not valid TOML, or extends another one.
    """
    if "extends" not in table:
        return table, {}
    name, at = table["extends"], f"{shown(path)}, extends"
    if not isinstance(name, str) or not name.endswith(".toml"):
        raise UsageError(
            f"{at}: expected the path of a TOML file, found {name!r}", 'as in extends = "shared/tasks.toml"'
        )
    file = next((one for one in (path.parent / name, paths.packaged("recipes") / name) if one.is_file()), None)
    if file is None:
        raise UsageError(f"{at}: there is no file {name}", f"its path begins in the folder of {shown(path)}")
    base = decoding.load_toml(file)
    if isinstance(about := base.get("about"), dict):  # what was checked is the other recipe
        base = base | {"about": about | {"checked": "never"}}
    if "extends" in base:
        raise UsageError(f"{shown(file)}, extends: {shown(path)} extends this file", "only a recipe may extend a file")
    own = {key: value for key, value in table.items() if key != "extends"}
    if isinstance(own.get("tune"), dict) and "search" in own["tune"]:
        base = _without_grids(base)
    theirs = {one for one, _ in flatten(base)} - {one for one, _ in flatten(own)}
    return _merged(base, own), dict.fromkeys(theirs, shown(file))


def _without_grids(table: dict[str, Any]) -> dict[str, Any]:
    """A copy without any table `tune`: of the recipe, of its profiles and of rungs."""
    kept = {key: value for key, value in table.items() if key != "tune"}
    return {key: _without_grids(value) if isinstance(value, dict) else value for key, value in kept.items()}


def _merged(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return below | {key: _merged(below.get(key), value) for key, value in above.items()}


def check(recipe: Recipe, sink: Sink = raising) -> None:
    """Unknown paths, and values that are given twice, are errors for `sink`; see `load_recipe`."""
    where = recipe.path
    for path in recipe.ours:
        _check_path(path, f"{where} [ours]", sink)
    searches = recipe.tune is not None and recipe.tune.search is not None
    if recipe.tune:
        for fault in _of_tune(recipe.tune, where):
            sink(fault)
        _check_grid(recipe.tune.grid, f"{where} [tune.grid]", sink)
        _check_grid(recipe.tune.space, f"{where} [tune.space]", sink, searches=True)
    _check_tables(recipe, where, "", sink, searches=searches)
    for name, profile in recipe.profile.items():
        _check_grid(profile.tune or {}, f"{where} [profile.{name}.tune]", sink, searches=searches)
        if profile.trials is not None and not searches:
            sink(UsageError(f"{where} [profile.{name}], trials: the recipe has no search", NEEDS_SEARCH))
        _check_tables(profile, where, f"profile.{name}.", sink, searches=searches)


NEEDS_SEARCH = 'add search = "random" or "tpe" to [tune], and what it tries to [tune.space]'


def _of_tune(tune: Tune, where: str) -> Iterator[UsageError]:
    """A mixture of a grid and a search, and either of them without what it needs."""
    if tune.search is None:
        if tune.space or tune.trials is not None:
            name = "tune.space]" if tune.space else "tune], trials"
            yield UsageError(f"{where} [{name}: is for a search", NEEDS_SEARCH)
        elif not tune.grid:
            yield UsageError(f"{where} [tune]: has neither a grid nor a search", f"add [tune.grid]; or {NEEDS_SEARCH}")
        return
    found = f"{where} [tune]: search = {tune.search!r}"
    if tune.grid:
        hint = "write what is searched into [tune.space], where a list has the values to choose from"
        yield UsageError(f"{found} and a grid exclude each other", hint)
    if not tune.space:
        hint = 'as in [tune.space] "optim.lr" = { low = 1e-4, high = 0.1, log = true }'
        yield UsageError(f"{found} without a space", hint)
    if tune.trials is None:
        yield UsageError(f"{found} without a budget", "as in trials = 20")


def _check_path(path: str, where: str, sink: Sink, within: tuple[str, ...] = ()) -> None:
    try:
        check_path(path, where, within=within)
    except UsageError as error:
        sink(error)


def _check_tables(document: Recipe | Profile, where: str, prefix: str, sink: Sink, *, searches: bool) -> None:
    for section in SECTIONS:
        table = {section: getattr(document, section)}
        settings(table, f"{where} [{prefix}{section}]" if prefix else where, sink=sink)
    for name, ladder in document.ladder.items():
        for rung, values in ladder.rung.items():
            of_rung = f"{where} [{prefix}ladder.{name}.rung.{rung}]"
            settings(values.settings, of_rung, sink=sink)
            _check_grid(values.tune, f"{where} [{prefix}ladder.{name}.rung.{rung}.tune]", sink, searches=searches)
            if values.lr_published and values.lr_chosen:
                sink(UsageError(f"{of_rung}: has both lr_published and lr_chosen", "remove one of them"))


def _check_grid(grid: dict[str, Any], where: str, sink: Sink, *, searches: bool = False) -> None:
    """Paths that tuning cannot set, and values that it cannot try; a search tries ranges too."""
    for path, values in grid.items():
        _check_path(path, where, sink, within=("model", "optim", "train"))
        if isinstance(values, Range):
            at = decoding.place(where, path)
            fault = values.fault(at) if searches else UsageError(f"{at}: a range is for a search", NEEDS_SEARCH)
            if fault is not None:
                sink(fault)
            continue
        for number, value in enumerate(values):
            if value in values[:number]:
                sink(UsageError(f"{decoding.place(where, path)}: {value!r} is listed twice", "remove one of them"))


NEUTRAL: dict[tuple[str, ...], Any] = {
    ("about", "source"): "",
    ("about", "expect"): "",
    ("about", "device"): "",
    ("about", "hours"): 0.0,
    ("about", "checked"): "never",
    ("about",): {},
    ("model",): {},
    ("optim",): {},
    ("train",): {},
}
"""What stands for missing tables and documentation, so that the rest of a recipe can be used or checked."""


def _documentation(table: dict[str, Any], where: str, sources: dict[str, str]) -> dict[str, Any]:
    """The table of a recipe with neutral values for what is wrong in `[about]`, of which it warns."""
    about = {name: value for name, value in table.items() if name == "about"}
    found = faults(about, _Documentation, where, sources)
    for one in found:
        _warn(f"{one.error.message}: only documentation, the recipe is used without it; {one.error.hint}")
    return {**table, **repaired(about, _Documentation, NEUTRAL)} if found else table


@cache
def _warn(text: str) -> None:
    """Once for each recipe, which a command may read several times."""
    console.warn(text)

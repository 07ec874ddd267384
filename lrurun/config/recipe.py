"""Recipes: the tables of their TOML files, the reading of the files and of what they extend, and their rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from lrurun import console, decoding, paths, plugins
from lrurun.config import imported, programs
from lrurun.config.imported import ImportTable
from lrurun.config.ladder import (
    LADDER_KEYS,
    LARGEST,
    Document,
    Ladder,
    Name,
    Rung,
    Scope,
    comes_with_lrurun,
    has_ladder,
    load_packages,
    read_ladder,
    refuse_ladder,
)
from lrurun.config.programs import ProgramTable
from lrurun.config.schema import OF_PROGRAMS, OPTIMIZER, RATE, SECTIONS, choices_of, known_paths, without_meaning
from lrurun.config.settings import flatten
from lrurun.config.unknown_settings import other_form_fault, path_fault, setting_faults
from lrurun.data.tasks import TASKS
from lrurun.decoding import Fault, sound
from lrurun.errors import UsageError, hint_for, raise_first
from lrurun.paths import find, shown


class About(Document, frozen=True, kw_only=True):
    """Where a recipe comes from, and what to expect of it."""

    source: str
    """Paper and table, or why the values are ours."""
    expect: str
    """The expected result, with its tolerance."""
    device: str
    hours: Annotated[float, Meta(ge=0, le=1e6)]
    """The time of the whole ladder with the seeds of the recipe on `device`."""
    checked: str
    """Date and versions of the last check; "never" is valid."""
    notes: str = ""


SearchMethod = Literal["random", "tpe"]
_Number = Annotated[int, Meta(ge=-int(LARGEST), le=int(LARGEST))] | Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]


class Range(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values that a search may try, both ends included; whole numbers for settings that are whole."""

    low: _Number
    high: _Number
    log: bool = False
    """Whether small values are as likely as large ones: uniform in the logarithm."""
    step: _Number | None = None
    """The distance between values, which begin at `low`; None: any number in the range."""

    def fault(self, where: str, path: str) -> Fault | None:
        """The fault of a range without values; None if it has values."""
        bounds = f"low = {self.low}, high = {self.high}"
        if self.low >= self.high:
            return Fault(f"{bounds}: low must be less than high", where, path, hint="a list has single values: [0.9]")
        if self.log and self.low <= 0:
            hint = "raise low, or omit log = true"
            return Fault(f"{bounds}: a logarithmic range begins above 0", where, path, hint=hint)
        if self.log and self.step is not None:
            return Fault(f"{bounds}: log and step exclude each other", where, path, hint="omit one of them")
        if self.step is not None and not 0 < self.step <= self.high - self.low:
            rule = f"{bounds}: step = {self.step} does not fit into it"
            return Fault(rule, where, path, hint="above 0, at most high - low")
        return None

    def __str__(self) -> str:
        spacing = " (log)" if self.log else "" if self.step is None else f" (step {self.step:g})"
        return f"{self.low:g} to {self.high:g}{spacing}"


Tried = Annotated[list[Any], Meta(min_length=1)] | Range
"""Values to try; in a search, also a range."""


MOST_ADDED = 20
"""The most values that may be added to the grid of a rung [ours]: 20 doublings are a factor of a million."""
Extension = Annotated[int, Meta(ge=0, le=MOST_ADDED)]


class Tune(Document, frozen=True, kw_only=True):
    """The tuning of a recipe: points of a grid, or trials of a search, of which one is chosen on validation only."""

    grid: dict[str, Tried] = field(default_factory=dict)
    """Dotted path -> values to try."""
    search: SearchMethod | None = None
    """A search over `space` instead of a grid: "random" or "tpe"."""
    space: dict[str, Tried] = field(default_factory=dict)
    """Dotted path -> the range of its values, or the values to choose from."""
    trials: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """The budget of a search: the number of points that it tries for each rung."""
    batch: Annotated[int, Meta(ge=1, le=1000)] = 4
    """The number of trials that TPE proposes together, without each other's results, and that may train at a time."""
    seeds: Annotated[int, Meta(ge=1, le=100)] = 3
    """The number of seeds with which each point of the grid, or trial of the search, is trained."""
    extend: Extension = 0
    """How many values are added to the grid of each rung, one after another, while its best value is at an edge."""
    found: str = ""
    """Where and when the learning rates in this recipe were chosen."""
    results: dict[str, dict[str, Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]]] = field(default_factory=dict)
    """Rung -> value -> best validation score, as measured, in the units of the task's metric."""


class RungValues(Document, frozen=True, kw_only=True):
    """The values of a recipe for one rung, and where its learning rate comes from."""

    lr_published: str = ""
    """Paper and table that give the learning rate: `optim.lr` of this table, or the recipe's."""
    lr_chosen: str = ""
    """Why this learning rate was chosen, where no paper gives it; empty for the reason in `[ours]`."""
    model: dict[str, Any] = field(default_factory=dict)
    """Settings of the model for this rung, and for the rungs that change it."""
    optim: dict[str, Any] = field(default_factory=dict)
    """Settings of the optimiser for this rung alone."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of a program for this rung, and for the rungs that change it."""
    tune: dict[str, Tried] = field(default_factory=dict)
    """Dotted path -> values to try for this rung, beside `[tune.grid]` or `[tune.space]`. Values of the model
    are also tried for the rungs that change it, unless they set the value."""

    @property
    def values(self) -> dict[str, Any]:
        return {"model": self.model, "optim": self.optim, "settings": self.settings}


class LadderValues(Document, frozen=True, kw_only=True):
    """The values of a recipe for the rungs of one ladder."""

    lr_published: str = ""
    """Paper and table that give the recipe's learning rate for this ladder."""
    rung: dict[Name, RungValues] = field(default_factory=dict)


class Profile(Document, frozen=True, kw_only=True):
    """A reduced configuration of a recipe."""

    why: str = ""
    seeds: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """The number of seeds of a ladder with this profile, where `--seeds` is not used."""
    data: dict[str, Any] = field(default_factory=dict)
    """Settings of the data, which override the recipe's; the data have their own folder, `<task>-<profile>`."""
    model: dict[str, Any] = field(default_factory=dict)
    optim: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    execution: dict[str, Any] = field(default_factory=dict)
    ladder: dict[Name, LadderValues] = field(default_factory=dict)
    """Name of a ladder -> values for its rungs, which override the recipe's."""
    tune: dict[str, Tried] | None = None
    """Dotted path -> values to try: a grid or space in place of the recipe's."""
    tune_seeds: Annotated[int, Meta(ge=1, le=100)] | None = None
    """The number of seeds of tuning, in place of the recipe's. None: the recipe's, at most `seeds` of the profile."""
    tune_extend: Extension | None = None
    """How many values are added to the grid of each rung, in place of the recipe's `extend`."""
    tune_values: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """The most values of a setting that the grid of a single rung has, from its ladder or from the recipe's
    table for it: of longer lists, those in the middle. None: all. The grid of all rungs is that of `tune`."""
    trials: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """The budget of a search, in place of the recipe's."""


class Recipe(Document, frozen=True, kw_only=True):
    """How a task is trained, or how a user's program is started."""

    task: Name
    about: About
    seeds: Annotated[int, Meta(ge=1, le=1000)] = 3
    data: dict[str, Any] = field(default_factory=dict)
    """Settings of the data, as the task names them; empty for the published data."""
    model: dict[str, Any]
    optim: dict[str, Any]
    train: dict[str, Any]
    program: ProgramTable | None = None
    """A user's program; `model`, `optim` and `train` are then empty."""
    imported: ImportTable | None = field(name="import", default=None)
    """How runs that were made elsewhere are read; there is nothing to train then."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings of the program: values, or tables of them."""
    execution: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, str] = field(default_factory=dict)
    """Dotted path -> why a value that no paper gives was chosen."""
    ladder: dict[Name, LadderValues] = field(default_factory=dict)
    """Name of a ladder -> the values of the recipe for its rungs."""
    tune: Tune | None = None
    profile: dict[Name, Profile] = field(default_factory=dict)
    path: str = ""
    extended_rates: dict[str, str] = field(default_factory=dict)
    """Where it chooses another optimiser than the file that it extends: dotted path of each learning rate from that
    file -> the optimiser that this rate is for."""

    @property
    def kind(self) -> Literal["training", "program", "imported"]:
        """The kind of its runs."""
        if self.imported is not None:
            return "imported"
        return "training" if self.program is None else "program"

    @property
    def folder(self) -> Path:
        """The folder in which its program is started."""
        return Path(self.path).absolute().parent

    @property
    def sections(self) -> tuple[str, ...]:
        """The tables with values for runs."""
        if self.imported is not None:
            return ()
        return tuple(SECTIONS) if self.program is None else ("settings",)

    @property
    def tried_sections(self) -> tuple[str, ...]:
        """The sections that tuning and rungs change."""
        if self.imported is not None:
            return ()
        return ("model", "optim", "train") if self.program is None else ("settings",)

    @property
    def known(self) -> tuple[str, ...]:
        """Every dotted path that can be set."""
        if self.imported is not None:
            return ()
        if self.program is None:
            return known_paths()
        return (*programs.paths_of(self.settings), *(f"execution.{name}" for name in OF_PROGRAMS))

    @property
    def is_packaged(self) -> bool:
        """Whether it was read from the file for its task that comes with lrurun."""
        return comes_with_lrurun("recipes", self.task, self.path)

    def tables(self, ladder: Ladder, rung: Rung, profile: str | None) -> list[RungTable]:
        """The tables with values for a rung alone, in the order in which they apply.

        These are the tables of the recipe, then of its profile, for the rungs whose values it takes and for itself. If
        the ladder has a rate or a grid for the rung, this comes after all that it takes and before the others.

        Raises:
            UsageError: the rung takes the values of an unknown rung, or of itself.
        """
        scopes = ladder.scopes(rung)
        documents: list[tuple[Recipe | Profile, str]] = [(self, f"{self.path} [")]
        if profile is not None:
            documents.append((self.profile[profile], f"{self.path} [profile.{profile}."))
        tables = []
        for document, prefix in documents:
            for scope in scopes:
                scoped = document.ladder.get(scope.ladder, LadderValues()).rung
                if scope.rung in scoped:
                    where = f"{prefix}ladder.{scope.ladder}.rung.{scope.rung}]"
                    tables.append(RungTable(where, scoped[scope.rung].values, scoped[scope.rung], scope))
        if rung.lr is None and not rung.tune:
            return tables
        own = scopes[-1]
        taken = [table for table in tables if table.scope != own]
        return [*taken, _of_ladder(ladder, rung, own), *(table for table in tables if table.scope == own)]


class RungTable(Struct, frozen=True):
    """A table of a recipe, or of a ladder, with the values of a rung."""

    where: str
    """The file, and the table in it."""
    settings: dict[str, Any]
    notes: RungValues
    """The whole table, with the source of the learning rate."""
    scope: Scope
    """The rung that the table is written for; others may take its values."""
    is_of_ladder: bool = False
    """Whether it is what the ladder itself has for the rung, see `Rung.lr`."""

    @property
    def where_tuned(self) -> str:
        """The file, and the table in it with the values to try."""
        return f"{self.where}, tune" if self.is_of_ladder else f"{self.where[:-1]}.tune]"


def _of_ladder(ladder: Ladder, rung: Rung, scope: Scope) -> RungTable:
    """The table with the rate and the grid that the ladder itself has for a rung."""
    values = RungValues(
        lr_published=rung.lr_published,
        lr_chosen=rung.lr_chosen,
        optim={} if rung.lr is None else {"lr": rung.lr},
        tune=dict(rung.tune),
    )
    return RungTable(f"{ladder.path}, rung {rung.name}", values.values, values, scope, is_of_ladder=True)


def check_scopes(ladder: Ladder, recipe: Recipe) -> None:
    """Refuse a recipe that sets values for rungs that its ladder lacks. Packaged recipes are for packaged ladders.

    Raises:
        UsageError: the ladder lacks a rung; names the nearest one.
    """
    if recipe.is_packaged:
        return
    prefixes = [
        ("", recipe.ladder),
        *((f"profile.{name}.", profile.ladder) for name, profile in recipe.profile.items()),
    ]
    for prefix, ladders in prefixes:
        for rung in ladders.get(ladder.name, LadderValues()).rung:
            if rung not in ladder.bases:
                where = f"{recipe.path} [{prefix}ladder.{ladder.name}.rung.{rung}]"
                raise UsageError(
                    f"{where}: ladder {ladder.name} has no rung {rung!r}", hint_for(rung, ladder.bases, "rungs")
                )


def read_recipe(name: str) -> Recipe:
    """Reads the recipe of this task, or in this file, without a check of its paths.

    Raises:
        UsageError: unknown name, TOML, unknown or missing keys.
    """
    if name in TASKS and name not in paths.names("recipes"):
        raise UsageError(f"no recipe for task {name}", f"write recipes/{name}.toml, or name the path of one: PATH.toml")
    recipe, faults, warnings = examine_recipe(name)
    for fault in warnings if not faults else ():
        _warn(f"{fault.message}: only documentation, the recipe is used without it; {fault.hint}")
    return sound((recipe, faults))


@cache
def _warn(text: str) -> None:
    """Warns once for each recipe, which a command may read several times."""
    console.warn(text)


_UNDOCUMENTED = About(source="", expect="", device="", hours=0, checked="never")
_NEUTRAL: dict[str, Any] = {
    "about": _UNDOCUMENTED,
    **{f"about.{name}": getattr(_UNDOCUMENTED, name) for name in About.__struct_fields__},
    "model": {},
    "optim": {},
    "train": {},
}
"""Substitutes for missing tables and documentation, so that the rest of a recipe can be used or checked."""


def examine_recipe(name: str) -> tuple[Recipe | None, list[Fault], list[Fault]]:
    """Reads the recipe of this task, or in this file, without the wrong values in its tables; and lists these faults.

    The second list has faults that are only warnings: those in the documentation of a recipe of the user's own.

    Raises:
        UsageError: the name is unknown; the recipe, or the file that it extends, is not TOML.
    """
    path = find("recipes", name)
    where = shown(path)
    table, sources, rates = extended(decoding.load_toml(path), path)
    refuse_ladder(table, where)
    if has_ladder(table) or "import" in table:  # whose rungs are missed where the ladder is read
        table = {key: value for key, value in table.items() if key not in LADDER_KEYS}
    if {"program", "import"} & table.keys():  # a file of the user's own, which need not document itself or a model
        about = {name: getattr(_UNDOCUMENTED, name) for name in About.__struct_fields__}
        table = {"model": {}, "optim": {}, "train": {}, **table, "about": {**about, **_table(table, "about")}}
    filled = {"path": where, "extended_rates": rates}
    recipe, faults = decoding.examine(table, Recipe, where, sources, filled=filled, neutral=_NEUTRAL)
    is_own = path.resolve().parent != paths.packaged("recipes").resolve()
    harmless = [fault for fault in faults if is_own and fault.path.partition(".")[0] == "about"]
    return recipe, [fault for fault in faults if fault not in harmless], harmless


def _table(table: dict[str, Any], name: str) -> dict[str, Any]:
    """An inner table; empty if it is missing or none."""
    inner = table.get(name)
    return inner if isinstance(inner, dict) else {}


def load_recipe(name: str, *, imports: bool = True) -> Recipe:
    """Reads and checks the recipe of this task, or in this file; every path in it is known, used or not.

    With `imports`, loads the installed packages that provide its task, recurrences and optimisers by entry points.

    Raises:
        UsageError: unknown name, TOML, unknown or missing keys, unknown paths.
    """
    recipe = read_recipe(name)
    if imports:
        load_installed(recipe)
    raise_first(rules(recipe))
    return recipe


def load_installed(recipe: Recipe) -> None:
    """Loads the installed packages that provide the task, the recurrences and the optimisers of a recipe.

    Raises:
        UsageError: a package cannot be loaded.
    """
    plugins.load_installed("task", recipe.task)
    documents: list[Recipe | Profile] = [recipe, *recipe.profile.values()]
    for document in documents:
        scoped = [rung.values for ladder in document.ladder.values() for rung in ladder.rung.values()]
        for table in ({"model": document.model, "optim": document.optim}, *scoped):
            load_packages(table)


def get_profile(recipe: Recipe, name: str | None) -> Profile:
    """The profile with this name; without a name, a profile that changes nothing."""
    if name is None:
        return Profile()
    if name not in recipe.profile:
        where = recipe.task if recipe.is_packaged else recipe.path
        raise UsageError(f"{where}: unknown profile {name!r}", hint_for(name, recipe.profile, "profiles"))
    return recipe.profile[name]


def extended(table: dict[str, Any], path: Path) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    """Merges the table of the recipe at `path` into the file that it extends, and lists the values from that file.

    The list maps dotted paths to the file; the third value is `Recipe.extended_rates`. Values of the recipe replace the
    file's, also those that have no meaning beside them, and a search also replaces its grids. The file is beside the
    recipe or, for copies of packaged recipes, beside the packaged ones.

    Raises:
        UsageError: there is no such file, it is not valid TOML, or it extends another file.
    """
    if "extends" not in table:
        return table, {}, {}
    name, at = table["extends"], f"{shown(path)}, extends"
    if not isinstance(name, str) or not name.endswith(".toml"):
        raise UsageError(
            f"{at}: expected the path of a TOML file, found {name!r}", 'as in extends = "shared/tasks.toml"'
        )
    file = next((file for file in (path.parent / name, paths.packaged("recipes") / name) if file.is_file()), None)
    if file is None:
        raise UsageError(f"{at}: there is no file {name}", f"its path begins in the folder of {shown(path)}")
    base = decoding.load_toml(file)
    if isinstance(about := base.get("about"), dict):  # the date of the check belongs to the other recipe
        base = base | {"about": about | {"checked": "never"}}
    if "extends" in base:
        raise UsageError(f"{shown(file)}, extends: {shown(path)} extends this file", "only a recipe may extend a file")
    changes = {key: value for key, value in table.items() if key != "extends"}
    if isinstance(changes.get("tune"), dict) and "search" in changes["tune"]:
        base = _without_grids(base)
    base = _with_meaning(base, changes)
    values, own = dict(flatten(base)), dict(flatten(changes))
    return (
        _merged(base, changes),
        dict.fromkeys(values.keys() - own.keys(), shown(file)),
        _rates_of_another(values, own, str(choices_of(values)[OPTIMIZER])),
    )


def _rates_of_another(values: dict[str, Any], own: dict[str, Any], optimizer: str) -> dict[str, str]:
    """`Recipe.extended_rates`, where a file with these values and this optimiser is extended by a recipe's own values.

    A table that names its optimiser itself has the rate for that one.
    """
    if all(value == optimizer for path, value in own.items() if path.endswith(OPTIMIZER)):
        return {}
    names = {path: f"{path.removesuffix(RATE)}{OPTIMIZER}" for path in values if path.endswith(RATE)}
    return {
        path: str(values.get(name, optimizer))
        for path, name in names.items()
        if path not in own and (name not in values or name in own)
    }


def _with_meaning(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy without the settings that have no meaning beside those of the same table in `changes`: of all rungs, of a
    profile, or of a rung."""
    values = {path: value for path, value in flatten(base) if path.partition(".")[0] in SECTIONS}
    own = {path: value for path, value in flatten(changes) if path.partition(".")[0] in SECTIONS}
    removed = {gone for path, value in own.items() for gone in without_meaning(path, value, values)} - own.keys()
    kept = _without(base, removed)
    for key in ("profile", "ladder", "rung"):
        inner, changed = _table(kept, key), _table(changes, key)
        tables = {name: _with_meaning(_table(inner, name), _table(changed, name)) for name in inner.keys() & changed}
        kept |= {key: inner | tables} if tables else {}
    return kept


def _without(table: dict[str, Any], paths: Collection[str], prefix: str = "") -> dict[str, Any]:
    """A copy of nested tables without these dotted paths."""
    return {
        key: _without(value, paths, f"{prefix}{key}.") if isinstance(value, dict) else value
        for key, value in table.items()
        if f"{prefix}{key}" not in paths
    }


def _without_grids(table: dict[str, Any]) -> dict[str, Any]:
    """A copy without the tables `tune` of the recipe, its profiles and its rungs, and what else is for grids alone."""
    kept = {key: value for key, value in table.items() if key not in ("tune", "tune_extend")}
    return {key: _without_grids(value) if isinstance(value, dict) else value for key, value in kept.items()}


def _merged(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return below | {key: _merged(below.get(key), value) for key, value in above.items()}


def rules(recipe: Recipe) -> Iterator[UsageError]:
    """Faults of a recipe beyond its types: unknown paths, values that are given twice, tuning."""
    where = recipe.path
    if recipe.imported is not None:
        yield from imported.rules(recipe.imported, where)
        for section in (
            "program",
            "settings",
            "data",
            "model",
            "optim",
            "train",
            "execution",
            "tune",
            "profile",
            "ladder",
        ):
            if getattr(recipe, section):
                rule = "is for what lrurun trains, and the runs of this file were imported"
                yield UsageError(f"{where} [{section}]: {rule}", "remove it")
        return
    if recipe.program is not None:
        yield from _program_rules(recipe, where)
    for path in recipe.ours:
        if fault := path_fault(path, f"{where} [ours]", known=recipe.known):
            yield fault
    searches = recipe.tune is not None and recipe.tune.search is not None
    if recipe.tune:
        yield from _tune_rules(recipe.tune, where)
        yield from _grid_rules(recipe.tune.grid, recipe, f"{where} [tune.grid]", searches=False)
        yield from _grid_rules(recipe.tune.space, recipe, f"{where} [tune.space]", searches=True)
    yield from _table_rules(recipe, recipe, where, "", searches=searches)
    for name, profile in recipe.profile.items():
        yield from _grid_rules(profile.tune or {}, recipe, f"{where} [profile.{name}.tune]", searches=searches)
        if profile.trials is not None and not searches:
            yield UsageError(f"{where} [profile.{name}], trials: the recipe has no search", NEEDS_SEARCH)
        if profile.tune_extend is not None and searches:
            yield UsageError(f"{where} [profile.{name}], tune_extend: is for a grid", INSTEAD_OF_EXTEND)
        yield from _table_rules(profile, recipe, where, f"profile.{name}.", searches=searches)


def _program_rules(recipe: Recipe, where: str) -> Iterator[UsageError]:
    assert recipe.program is not None
    documents: list[tuple[Recipe | Profile, str]] = [(recipe, "")]
    documents += [(profile, f"profile.{name}.") for name, profile in recipe.profile.items()]
    for document, prefix in documents:
        for section in ("data", "model", "optim", "train"):
            if getattr(document, section):
                yield UsageError(
                    f"{where} [{prefix}{section}]: is for lrurun's own models, and this recipe has a [program]",
                    f"write what the program takes into [{prefix}settings]",
                )
        if document.execution:
            yield UsageError(
                f"{where} [{prefix}execution]: is for lrurun's own models, and this recipe has a [program]",
                "write threads, devices, stop_seconds and silent_seconds into [program]",
            )
    yield from programs.rules(recipe.program, recipe.settings, where)


NEEDS_SEARCH = 'add search = "random" or "tpe" to [tune], and what it tries to [tune.space]'

INSTEAD_OF_EXTEND = "a search stays within its space: widen low and high, and raise trials"


def _tune_rules(tune: Tune, where: str) -> Iterator[UsageError]:
    """Faults of a table that mixes a grid and a search, or lacks what either of them needs."""
    if tune.search is None:
        if tune.space or tune.trials is not None:
            name = "tune.space]" if tune.space else "tune], trials"
            yield UsageError(f"{where} [{name}: is for a search", NEEDS_SEARCH)
        elif not tune.grid:
            yield UsageError(f"{where} [tune]: has neither a grid nor a search", f"add [tune.grid]; or {NEEDS_SEARCH}")
        return
    search = f"{where} [tune]: search = {tune.search!r}"
    if tune.grid:
        hint = "write what is searched into [tune.space], where a list has the values to choose from"
        yield UsageError(f"{search} and a grid exclude each other", hint)
    if not tune.space:
        hint = 'as in [tune.space] "optim.lr" = { low = 1e-4, high = 0.1, log = true }'
        yield UsageError(f"{search} without a space", hint)
    if tune.trials is None:
        yield UsageError(f"{search} without a budget", "as in trials = 20")
    if tune.extend:
        yield UsageError(f"{search} and extend = {tune.extend} exclude each other", INSTEAD_OF_EXTEND)


def _table_rules(
    document: Recipe | Profile, recipe: Recipe, where: str, prefix: str, *, searches: bool
) -> Iterator[UsageError]:
    known = recipe.known
    for section in ("model", "optim", "train", "settings", "execution"):
        table = {section: getattr(document, section)}
        yield from setting_faults(table, f"{where} [{prefix}{section}]" if prefix else where, known=known)
    for name, ladder in document.ladder.items():
        for rung, values in ladder.rung.items():
            rung_table = f"{prefix}ladder.{name}.rung.{rung}"
            rung_where = f"{where} [{rung_table}]"
            faults = list(setting_faults(values.values, rung_where, known=known))
            if faults and recipe.program is None:
                with suppress(UsageError):  # for better hints; the ladder need not be here
                    kind = read_ladder(name).kinds.get(rung)
                    faults = list(setting_faults(values.values, rung_where, kinds=[kind], known=known))
            yield from faults
            yield from _grid_rules(values.tune, recipe, f"{where} [{rung_table}.tune]", searches=searches)
            if values.lr_published and values.lr_chosen:
                yield UsageError(f"{where} [{rung_table}]: has both lr_published and lr_chosen", "remove one of them")


def _grid_rules(grid: dict[str, Any], recipe: Recipe, where: str, *, searches: bool) -> Iterator[Fault]:
    """Faults of paths that tuning cannot set, and of values that it cannot try; only a search tries ranges."""
    known = recipe.known if grid else ()
    earlier: list[str] = []
    for path, values in grid.items():
        fault = path_fault(path, where, within=recipe.tried_sections, known=known)
        if fault := fault or other_form_fault(path, earlier, where):
            yield fault
        earlier.append(path)
        if isinstance(values, Range):
            if not searches:
                yield Fault("a range is for a search", where, path, hint=NEEDS_SEARCH)
            elif fault := values.fault(where, path):
                yield fault
            continue
        for index, value in enumerate(values):
            if value in values[:index]:
                yield Fault(f"{value!r} is listed twice", where, path, hint="remove one of them")

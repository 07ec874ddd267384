"""Recipes and ladders: the tables of the TOML files, and how the files are read. No jax here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, field

from lrurun import decoding, paths, plugins
from lrurun.config import ladder_checks, recipe_checks
from lrurun.config.claim import LARGEST, NAME, Name
from lrurun.config.claim import Claim as Claim
from lrurun.config.extends import extended
from lrurun.config.schema import KIND
from lrurun.config.search import Kind as SearchKind
from lrurun.config.search import Range
from lrurun.config.settings import flatten
from lrurun.data import TASKS
from lrurun.errors import UsageError, hint_for
from lrurun.paths import Kind, find, shown

T = TypeVar("T", bound="_Document")
_SCOPE = rf"^{NAME}/{NAME}\Z"


class _Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every document table."""


class Published(_Document, frozen=True, kw_only=True):
    """A published score of a rung on a task."""

    source: str
    """Paper and table."""
    value: Annotated[float, Meta(ge=-LARGEST, le=LARGEST)] | None = None
    """Of `metric`, not scaled: accuracy is a fraction (0.699 for 69.9 %). None where the paper says that the model
    stayed at chance."""
    stderr: Annotated[float, Meta(ge=0, le=LARGEST)] | None = None
    n: Annotated[int, Meta(ge=2, le=1000)] | None = None
    """Seeds that the standard error is over."""
    note: str = ""
    metric: str = ""
    """One of the task's metrics, with the scale of the one that selects the model; empty: that one."""
    profile: str = ""
    """The profile of the recipe whose sizes it is for; empty: the plain recipe. Reports prefer theirs."""


class Rung(_Document, frozen=True, kw_only=True):
    """One named change to an earlier rung."""

    name: Name
    title: str
    """What the rung is, as tables show it."""
    on: Name | None = None
    """Its base: the rung that it changes, and is compared with; the previous rung where this is left out."""
    root: bool = False
    """Whether it has no base, as the first rung: it begins a comparison of its own."""
    why: str = ""
    change: dict[str, Any] = field(default_factory=dict)
    """Dotted path -> value: what the ladder itself sets."""
    takes: Annotated[str, Meta(pattern=_SCOPE)] = ""
    """"ladder/rung": the rung also takes what recipes set for that rung of that ladder, found by its name. What recipes
    set for this rung itself, `[ladder.<ladder>.rung.<rung>]`, comes after it."""
    tunes: tuple[str, ...] = ()
    """Dotted paths whose values the recipe must set for this rung."""
    published: dict[str, tuple[Published, ...]] = field(default_factory=dict)
    """Task -> published rows."""


class TrainingSpeed(_Document, frozen=True, kw_only=True):
    """The published training speed of a model, which the paper calls a system."""

    system: str
    """Its name in the paper."""
    rung: Name | None = None
    """The rung of this system; none where the ladder does not have it."""
    source: str
    """Paper and table."""
    device: str
    steps_per_second: Annotated[dict[str, Annotated[float, Meta(gt=0, le=1e9)]], Meta(min_length=1)]
    """Task -> steps per second."""


class Grid(_Document, frozen=True, kw_only=True):
    """The rungs of a ladder on two axes, for reports."""

    down: str
    """Heading of the rows."""
    across: str
    """Heading of the columns."""
    columns: Annotated[tuple[str, ...], Meta(min_length=1)]
    rows: Annotated[dict[str, tuple[str, ...]], Meta(min_length=1)]
    """Row -> its rungs, one a column; "" where the ladder has none."""


class Scope(Struct, frozen=True):
    """A rung and its ladder by name; recipes set values for it."""

    ladder: str
    rung: str
    """Whether the ladder comes with lrurun."""


class Ladder(_Document, frozen=True, kw_only=True):
    """An ordered list of rungs."""

    name: Name
    title: str
    source: str
    question: str = ""
    other_tasks: tuple[str, ...] = ()
    """Tasks of the papers that lrurun does not have: claims and published scores may name them."""
    recipes: tuple[str, ...] = ()
    """The recipes that have the values of its rungs, on which it is checked; empty: all. Others need tables of it."""
    load: tuple[str, ...] = ()
    """Files of plug-ins, `lrurun.plugins`, from the folder of this one."""
    rungs: tuple[Rung, ...] = field(name="rung", default=())
    speeds: tuple[TrainingSpeed, ...] = field(name="speed", default=())
    claims: tuple[Claim, ...] = field(name="claim", default=())
    grid: Grid | None = None
    path: str = ""
    """The file it was read from."""

    def scopes(self, rung: Rung) -> list[Scope]:
        """The rungs whose values in recipes hold for `rung`, in the order in which they apply, itself last.

        Raises:
            UsageError: it takes the values of an unknown rung, or of itself.
        """
        where = f"{self.path}, rung {rung.name}, takes"
        found = [Scope(self.name, rung.name)]
        while rung.takes:
            name, _, taken = rung.takes.partition("/")
            try:
                ladder = self if name == self.name else read_ladder(name)
            except UsageError as error:
                raise UsageError(f"{where}: {error.message}", error.hint) from None
            rungs = {one.name: one for one in ladder.rungs}
            if taken not in rungs:
                raise UsageError(f"{where}: ladder {name} has no rung {taken!r}", hint_for(taken, rungs, "rungs"))
            rung = rungs[taken]
            scope = Scope(name, taken)
            if scope in found:
                raise UsageError(f"{where}: {name}/{taken} takes its own values", "remove one `takes`")
            found.insert(0, scope)
        return found

    @property
    def bases(self) -> dict[str, str | None]:
        """Rung -> the rung that it changes; the first changes none, nor does a root."""
        before = (None, *(rung.name for rung in self.rungs))
        return {
            rung.name: None if rung.root else rung.on or name for name, rung in zip(before, self.rungs, strict=False)
        }


class About(_Document, frozen=True, kw_only=True):
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


class _Documentation(_Document, frozen=True):
    """The part of a recipe that no command needs."""

    about: About


Tried = Annotated[list[Any], Meta(min_length=1)] | Range
"""Values to try; in a search, also a range."""


class Tune(_Document, frozen=True, kw_only=True):
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


class RungValues(_Document, frozen=True, kw_only=True):
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


class LadderValues(_Document, frozen=True, kw_only=True):
    """The values of a recipe for the rungs of one ladder."""

    lr_published: str = ""
    """Paper and table that give the recipe's learning rate for this ladder."""
    rung: dict[Name, RungValues] = field(default_factory=dict)


class Profile(_Document, frozen=True, kw_only=True):
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


class Recipe(_Document, frozen=True, kw_only=True):
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


def read_ladder(name: str) -> Ladder:
    """The ladder of that name, or in that file, unchecked and without loading its plug-ins.

    Raises:
        UsageError: unknown name, TOML, unknown or missing keys.
    """
    return _load("ablations", name, Ladder)


def load_ladder(name: str, *, imports: bool = True) -> Ladder:
    """The ladder of that name, or in that file, with the plug-ins that it loads.

    Without `imports` no plug-in is loaded; see `lrurun.plugins` for when one is.

    Raises:
        UsageError: unknown name, a plug-in that cannot be loaded, TOML, unknown or missing keys, a rung that declares
            nothing or an unknown path, two rungs of one name, a rung that changes none of the earlier ones, a speed of
            an unknown rung or one that is listed twice, a claim about an unknown rung, a grid whose cells are not the
            rungs; with `imports`, an unknown task.
    """
    ladder = read_ladder(name)
    where = ladder.path
    folder = find("ablations", name).parent
    for file in ladder.load:
        if imports:
            plugins.load(file, base=folder, named=f"{where}, load")
        elif not plugins.is_loaded(file, folder):
            raise UsageError(
                f"{where}: needs {file}, which this command does not load", f"name it: --load {folder / file}"
            )
    if imports:
        for rung in ladder.rungs:
            _find_recurrence(rung.change)
    ladder_checks.check(ladder)
    if imports:
        ladder_checks.check_tasks(ladder)
    return ladder


def _find_recurrence(table: dict[str, Any]) -> None:
    plugins.load_installed("recurrence", dict(flatten(table)).get(KIND))


def is_packaged(document: Ladder | Recipe) -> bool:
    """Whether it was read from the file of its name that comes with lrurun."""
    if isinstance(document, Ladder):
        path = paths.packaged("ablations") / f"{document.name}.toml"
    else:
        path = paths.packaged("recipes") / f"{document.task}.toml"
    return path.is_file() and document.path == shown(path)


def check_scopes(ladder: Ladder, recipe: Recipe) -> None:
    """Refuse a recipe that sets values for rungs that its ladder lacks. Packaged recipes are for packaged ladders.

    Raises:
        UsageError: with the nearest rung.
    """
    if is_packaged(recipe):
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
    return _load("recipes", name, Recipe)


def load_recipe(name: str, *, imports: bool = True) -> Recipe:
    """The recipe of that task, or in that file; every path in it is known, whether a command uses it or not.

    With `imports`, the installed packages that have its task and recurrences by their entry points are loaded.

    Raises:
        UsageError: unknown name, TOML, unknown or missing keys, unknown paths.
    """
    recipe = read_recipe(name)
    if imports:
        load_installed(recipe)
    recipe_checks.check(recipe)
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
            _find_recurrence(table)


def _load(kind: Kind, name: str, type_: type[T]) -> T:
    path = find(kind, name)
    where = shown(path)
    table = decoding.load_toml(path)
    if "path" in table:
        raise UsageError(f"{where}, path: unknown name", "remove it: lrurun knows the path of the file")
    table, sources = extended(table, path) if type_ is Recipe else (table, {})
    if type_ is Recipe and not comes_with_lrurun(path):
        table = recipe_checks.documentation(table, _Documentation, where, sources)
    return decoding.convert({**table, "path": where}, type_, where, sources)


def comes_with_lrurun(path: Path) -> bool:
    """Whether the file of a recipe is one of lrurun's own."""
    return path.resolve().parent == paths.packaged("recipes").resolve()


def get_profile(recipe: Recipe, name: str | None) -> Profile:
    """The profile of that name; without one, a profile that changes nothing."""
    if name is None:
        return Profile()
    if name not in recipe.profile:
        raise UsageError(f"{recipe.path}: unknown profile {name!r}", hint_for(name, recipe.profile, "profiles"))
    return recipe.profile[name]

"""Recipes and ladders: TOML files become frozen documents. No jax here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct, field

from lrurun import plugins, strict
from lrurun.config import KIND, SECTIONS, known_paths
from lrurun.errors import UsageError, hint_for, nearest
from lrurun.paths import Kind, find, shown

T = TypeVar("T", bound="_Document")
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z")]


class _Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every document table."""


class Published(_Document, frozen=True, kw_only=True):
    """A published score of a rung on a task."""

    source: str
    """Paper and table."""
    value: Annotated[float, Meta(ge=0, le=1)] | None = None
    """A fraction (0.699 for 69.9 %); None where the paper says that the model stayed at chance."""
    stderr: Annotated[float, Meta(ge=0, le=1)] | None = None
    note: str = ""


class Rung(_Document, frozen=True, kw_only=True):
    """One named change to an earlier rung."""

    name: Name
    title: str
    """What the rung is, in the words of a table."""
    on: Name | None = None
    """The rung that it changes, and is compared with; the one before it where this is left out."""
    why: str = ""
    change: dict[str, Any] = field(default_factory=dict)
    """Dotted path -> value: what the ladder itself sets."""
    tunes: tuple[str, ...] = ()
    """Dotted paths whose values come from the recipe's `[rung.<name>]`."""
    published: dict[str, tuple[Published, ...]] = field(default_factory=dict)
    """Task -> published rows."""


class Speed(_Document, frozen=True, kw_only=True):
    """The published training speed of a system."""

    system: str
    """Its name in the paper."""
    rung: Name | None = None
    """The rung that it is; none where the ladder does not have the system."""
    source: str
    """Paper and table."""
    device: str
    steps_per_second: Annotated[dict[str, Annotated[float, Meta(gt=0, le=1e9)]], Meta(min_length=1)]
    """Task -> steps a second."""


class Claim(_Document, frozen=True, kw_only=True):
    """A sentence of a paper as a planned comparison between two rungs."""

    text: str
    source: str
    rung: Name
    """The rung that is claimed to be better, or as good."""
    than: Name
    kind: Literal["better", "no-worse", "equal"] = "better"
    margin: Annotated[float, Meta(gt=0, le=1)] | None = None
    """For "equal": the difference, as a fraction, within which two scores count as equal. For "no-worse": the loss that
    does not count as one."""
    tasks: tuple[str, ...] = ()
    """Tasks on which the paper makes it; elsewhere it is judged as a stand-in, and says so."""


class Grid(_Document, frozen=True, kw_only=True):
    """The rungs of a ladder on two axes, for reports."""

    down: str
    """What its rows are."""
    across: str
    """What its columns are."""
    columns: Annotated[tuple[str, ...], Meta(min_length=1)]
    rows: Annotated[dict[str, tuple[str, ...]], Meta(min_length=1)]
    """Row -> its rungs, one a column; "" where the ladder has none."""


class Ladder(_Document, frozen=True, kw_only=True):
    """An ordered list of rungs."""

    name: Name
    title: str
    source: str
    question: str = ""
    load: tuple[str, ...] = ()
    """Files of plug-ins, `lrurun.plugins`, from the folder of this one."""
    rungs: tuple[Rung, ...] = field(name="rung", default=())
    speeds: tuple[Speed, ...] = field(name="speed", default=())
    claims: tuple[Claim, ...] = field(name="claim", default=())
    grid: Grid | None = None
    path: str = ""
    """The file it was read from."""

    @property
    def bases(self) -> dict[str, str | None]:
        """Rung -> the rung that it changes; the first changes none."""
        before = (None, *(rung.name for rung in self.rungs))
        return {rung.name: rung.on or name for name, rung in zip(before, self.rungs, strict=False)}


class About(_Document, frozen=True, kw_only=True):
    """What a recipe is for, and what to expect of it."""

    source: str
    """Paper and table, or why the values are ours."""
    expect: str
    """The result to expect, with its tolerance."""
    device: str
    hours: Annotated[float, Meta(ge=0, le=1e6)]
    """For the whole ladder with three seeds on `device`."""
    checked: str
    """Date, and the versions it was checked with; "never" is a valid, honest answer."""
    notes: str = ""


class Tune(_Document, frozen=True, kw_only=True):
    """The grid of a recipe, one seed a point, chosen on validation only."""

    grid: dict[str, Annotated[list[Any], Meta(min_length=1)]]
    """Dotted path -> values to try."""
    found: str = ""
    """Where and when the rates in this recipe were chosen."""
    results: dict[str, dict[str, Annotated[float, Meta(ge=0, le=1)]]] = field(default_factory=dict)
    """Rung -> value -> best validation score, as measured."""


class Profile(_Document, frozen=True, kw_only=True):
    """A named shrink of a recipe."""

    why: str = ""
    seeds: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """How many seeds a ladder of this profile trains where `--seeds` says nothing."""
    data: dict[str, Any] = field(default_factory=dict)
    """Settings of the data, over the recipe's; they have a folder of their own, `<task>-<profile>`."""
    model: dict[str, Any] = field(default_factory=dict)
    optim: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    execution: dict[str, Any] = field(default_factory=dict)
    rung: dict[str, dict[str, Any]] = field(default_factory=dict)
    tune: dict[str, Annotated[list[Any], Meta(min_length=1)]] | None = None
    """Another grid, dotted path -> values."""


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
    rung: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Rung -> what it sets; of the model for the rungs above it too, of the optimizer for itself alone."""
    tune: Tune | None = None
    profile: dict[Name, Profile] = field(default_factory=dict)
    path: str = ""


def read_ladder(name: str) -> Ladder:
    """The ladder of that name, or in that file, as it stands there: its plug-ins are not loaded, its paths not checked.

    Raises:
        UsageError: unknown name, TOML, unknown or missing keys.
    """
    return _load("ablations", name, Ladder)


def load_ladder(name: str, *, imports: bool = True) -> Ladder:
    """The ladder of that name, or in that file, with the plug-ins that it loads.

    Without `imports` nothing is imported that is not there: see `lrurun.plugins` for when that is so.

    Raises:
        UsageError: unknown name, a plug-in that cannot be loaded, TOML, unknown or missing keys, a rung that declares
            nothing or an unknown path, two rungs of one name, a rung that changes none of the earlier ones, a speed of
            an unknown rung or one given twice, a claim about an unknown rung, a grid whose cells are not the rungs.
    """
    ladder = read_ladder(name)
    where = ladder.path
    folder = find("ablations", name).parent
    for file in ladder.load:
        if imports:
            plugins.load(file, base=folder, named=f"{where}, load")
        elif not plugins.is_loaded(file, folder):
            raise UsageError(
                f"{where}: loads {file}, which this command does not by itself", f"name it: --load {folder / file}"
            )
    if not ladder.rungs:
        raise UsageError(f"{where}: a ladder needs at least one [[rung]]", "add one: name, title, change")
    seen: list[str] = []
    for rung in ladder.rungs:
        source = f"{where}, rung {rung.name}"
        if imports:
            _find_recurrence(rung.change)
        if rung.name in seen:
            raise UsageError(f"{source}: there are two rungs of this name", "rename one of them")
        if rung.on is not None and rung.on not in seen:
            wrong = f"unknown rung {rung.on!r}"
            if rung.on == rung.name:
                wrong = "a rung cannot change itself"
            elif rung.on in ladder.bases:
                wrong = f"{rung.on} does not come before it"
            raise UsageError(f"{source}, on: {wrong}", hint_for(rung.on, seen, "rungs before it"))
        seen.append(rung.name)
        if not rung.change and not rung.tunes:
            raise UsageError(
                f"{source}: declares no change",
                'say what it moves: change = { "model.recurrence.activation" = "identity" }, or tunes = ["path"]',
            )
        settings(rung.change, source, within=("model", "optim", "train"))
        for path in rung.tunes:
            check_path(path, source, within=("model", "optim"))
    told: set[tuple[str | None, ...]] = set()
    for speed in ladder.speeds:
        source = f"{where}, speed of {speed.system!r}"
        if speed.rung is not None and speed.rung not in seen:
            raise UsageError(f"{source}: unknown rung {speed.rung!r}", hint_for(speed.rung, seen, "rungs"))
        for task in speed.steps_per_second:
            one = (speed.rung or speed.system, speed.source, speed.device, task)
            if one in told:
                raise UsageError(f"{source}: {task} is there twice", "remove one of them")
            told.add(one)
    for claim in ladder.claims:
        source = f"{where}, claim {claim.text!r}"
        for rung_name in (claim.rung, claim.than):
            if rung_name not in seen:
                raise UsageError(f"{source}: unknown rung {rung_name!r}", hint_for(rung_name, seen, "rungs"))
        if claim.rung == claim.than:
            raise UsageError(
                f"{where}, claim {claim.text!r}: compares {claim.rung} with itself", "name another rung in `than`"
            )
        if (claim.kind == "better") == (claim.margin is not None):
            raise UsageError(
                f'{source}: a margin belongs to kind = "equal" or "no-worse", and to them alone',
                "add margin = 0.005, or remove it",
            )
    if ladder.grid is not None:
        _check_cells(ladder.grid, seen, f"{where} [grid]")
    return ladder


def _find_recurrence(table: dict[str, Any]) -> None:
    plugins.find("recurrence", dict(flatten(table)).get(KIND))


def _check_cells(grid: Grid, rungs: list[str], where: str) -> None:
    for column in grid.columns:
        if grid.columns.count(column) > 1:
            raise UsageError(f"{where}, columns: {column!r} is there twice", "rename one of them")
    cells: dict[str, str] = {}
    for row, names in grid.rows.items():
        source = f"{where}, row {row!r}"
        if len(names) != len(grid.columns):
            raise UsageError(
                f"{source}: expected a rung for each of the {len(grid.columns)} columns, found {len(names)}",
                'leave a cell empty with ""',
            )
        for name, column in zip(names, grid.columns, strict=True):
            if name and name not in rungs:
                raise UsageError(f"{source}, column {column!r}: unknown rung {name!r}", hint_for(name, rungs, "rungs"))
            if name in cells:
                raise UsageError(
                    f"{source}, column {column!r}: {name} is in {cells[name]} already", "remove one of them"
                )
            if name:
                cells[name] = f"row {row!r}, column {column!r}"
    for name in rungs:
        if name not in cells:
            raise UsageError(f"{where}: rung {name} is in no cell", "add it to a row, or remove [grid]")


def read_recipe(name: str) -> Recipe:
    """The recipe of that task, or in that file, as it stands there: its paths are not checked.

    Raises:
        UsageError: unknown name, TOML, unknown or missing keys.
    """
    return _load("recipes", name, Recipe)


def load_recipe(name: str, *, imports: bool = True) -> Recipe:
    """The recipe of that task, or in that file; every path in it is known, whether a command uses it or not.

    With `imports`, the installed packages that have its task and recurrences by their entry points are loaded.

    Raises:
        UsageError: unknown name, TOML, unknown or missing keys, unknown paths.
    """
    recipe = read_recipe(name)
    if imports:
        plugins.find("task", recipe.task)
        every = [{"model": recipe.model}, *recipe.rung.values()]
        for profile in recipe.profile.values():
            every += [{"model": profile.model}, *profile.rung.values()]
        for table in every:
            _find_recurrence(table)
    where = recipe.path
    for path in recipe.ours:
        check_path(path, f"{where} [ours]")
    if recipe.tune:
        _check_grid(recipe.tune.grid, f"{where} [tune.grid]")
    _check_tables(recipe, where, "")
    for profile_name, profile in recipe.profile.items():
        _check_grid(profile.tune or {}, f"{where} [profile.{profile_name}.tune]")
        _check_tables(profile, where, f"profile.{profile_name}.")
    return recipe


def _load(kind: Kind, name: str, type_: type[T]) -> T:
    path = find(kind, name)
    where = shown(path)
    table = strict.load_toml(path)
    if "path" in table:
        raise UsageError(f"{where}, path: unknown name", "remove it: lrurun knows where it read the file")
    return strict.convert({**table, "path": where}, type_, where)


def _check_tables(document: Recipe | Profile, where: str, prefix: str) -> None:
    for section in SECTIONS:
        settings({section: getattr(document, section)}, f"{where} [{prefix}{section}]" if prefix else where)
    for rung, changes in document.rung.items():
        settings(changes, f"{where} [{prefix}rung.{rung}]", within=("model", "optim"))


def _check_grid(grid: dict[str, list[Any]], where: str) -> None:
    for path, values in grid.items():
        check_path(path, where, within=("model", "optim", "train"))
        for value in values:
            if values.count(value) > 1:
                raise UsageError(f"{strict.place(where, path)}: {value!r} is there twice", "remove one of them")


def get_profile(recipe: Recipe, name: str | None) -> Profile:
    """The profile of that name; without one, a profile that changes nothing."""
    if name is None:
        return Profile()
    if name not in recipe.profile:
        raise UsageError(f"{recipe.path}: unknown profile {name!r}", hint_for(name, recipe.profile, "profiles"))
    return recipe.profile[name]


def flatten(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested tables as dotted paths; a quoted dotted key is one already."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def settings(table: dict[str, Any], where: str, *, within: tuple[str, ...] = ()) -> dict[str, Any]:
    """Dotted path -> value, all of them known; the recurrence's kind first, for the other settings belong to it.

    Raises:
        UsageError: an unknown path, one outside the sections `within`, or one that is given twice.
    """
    found: dict[str, Any] = {}
    for path, value in flatten(table):
        check_path(path, where, within=within)
        if path in found:
            raise UsageError(f"{strict.place(where, path)}: given twice", "remove one of them")
        found[path] = value
    return dict(sorted(found.items(), key=lambda item: item[0] != KIND))


def check_path(path: str, where: str, *, within: tuple[str, ...] = ()) -> None:
    """Nothing, where `path` names a setting that may stand there.

    Raises:
        UsageError: with the nearest known path.
    """
    known = known_paths()
    if path not in known:
        last = path.rpartition(".")[2]
        close = nearest(path, known) or next((p for p in known if p.rpartition(".")[2] == last), None)
        hint = f"did you mean {close!r}?" if close else "paths begin with model., optim., train. or execution."
        raise UsageError(f"{strict.place(where, path)}: unknown name", hint)
    if within and path.partition(".")[0] not in within:
        allowed = ", ".join(f"{section}.*" for section in within)
        raise UsageError(f"{strict.place(where, path)}: cannot be set here", f"what can: {allowed}")

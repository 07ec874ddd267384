"""The rungs of a ladder on a recipe with every value in place, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Literal

import msgspec
from msgspec import Struct

from lrurun import data as tasks
from lrurun import decoding
from lrurun.config import plugin_code, tuning
from lrurun.config.ladder import Ladder, Rung, Scope
from lrurun.config.recipe import Recipe, RungTable, get_profile
from lrurun.config.schema import (
    KIND,
    RECURRENCE,
    SECTIONS,
    Execution,
    R,
    RunConfig,
    decode,
    examine,
    is_inherited,
    known_paths,
)
from lrurun.config.settings import flatten, settings
from lrurun.data.task import Options
from lrurun.decoding import Fault, canonical
from lrurun.errors import UsageError, plural

RATE = "optim.lr"
_Values = dict[str, tuple[Any, str]]
"""Dotted path -> value and its source, the one that was set last at the end."""


class Difference(Struct, frozen=True):
    """A value in which a rung differs from its base."""

    path: str
    before: Any
    after: Any
    source: str


class RateSource(Struct, frozen=True):
    """Where the learning rate of a rung comes from."""

    kind: Literal["tuned", "published", "chosen", "set", "default"]
    text: str
    """A phrase for messages, with the reason or the publication."""


def _tuned(recipe: Recipe, profile: str | None) -> RateSource:
    search, seeds = tuning.search_of(recipe, profile), plural(tuning.seeds_of(recipe, profile), "seed")
    how = "" if search is None else f": {search.text}"
    return RateSource("tuned", f"tuned on validation here with {seeds}{how}")


class ResolvedRung(Struct, frozen=True, kw_only=True):
    """A rung with every value in place, for any seed."""

    name: str
    title: str
    on: str | None
    """Its base; the first rung has none."""
    values: dict[str, Any]
    """Dotted path -> value, as documents and `--set` have it: no defaults."""
    sources: dict[str, str]
    """Dotted path -> where its value comes from, defaults too."""
    config: RunConfig
    """With seed 0."""
    execution: Execution
    differences: tuple[Difference, ...]
    """From its base."""
    same_as_base: bool
    """Its runs are those of its base."""
    rate_source: RateSource
    tried: tuning.Grid = {}
    """What tuning tries for it."""

    @property
    def grid(self) -> dict[str, tuning.Tried]:
        """Dotted path -> values to try, or their range."""
        return {path: values for path, (values, _) in self.tried.items()}


def resolve(
    ladder: Ladder,
    recipe: Recipe,
    profile: str | None,
    sets: dict[str, Any],
    options: Options,
    data_sources: dict[str, str],
    *,
    tune: bool = False,
) -> list[ResolvedRung]:
    """Every rung of the ladder; `options` are the settings of the data.

    Later values win: recipe, profile, rung by rung along the bases (the ladder's change, then the recipe's table), then
    `sets`. Model values of a recipe's table hold for later rungs too, optimiser values for that rung alone. With
    `tune`, a value that the grid chooses need not be set for the rung.

    Raises:
        UsageError: a value that does not fit, or that the recipe lacks; a path in `sets` that no rung has.
    """
    data = {"version": tasks.get(recipe.task, recipe.data).version, **canonical(options)}
    sources = {"task": recipe.path, "data.version": f"task {recipe.task}", **data_sources}
    bases = ladder.bases
    resolved: dict[str, ResolvedRung] = {}
    used: set[str] = set()
    for one in valued(ladder, recipe, profile, sets, tune=tune):
        if one.unset:
            raise one.unset[0]
        used |= one.used
        base = bases[one.rung.name]
        source = _tuned(recipe, profile) if tune and RATE in one.tried else _rate_source(one, recipe, profile)
        before = resolved[base] if base is not None else None
        resolved[one.rung.name] = _finish(one, recipe, data, sources, base=before, rate_source=source, tune=tune)
    for path in sets:
        if path not in used:
            raise UsageError(
                f"--set {path}: no rung of this ladder has it", f"lrurun plan {recipe.task} shows what the rungs have"
            )
    return list(resolved.values())


class Valued(Struct, frozen=True, kw_only=True):
    """A rung whose values are not yet converted."""

    rung: Rung
    values: _Values
    scopes: list[Scope]
    tables: list[RungTable]
    tried: tuning.Grid
    used: set[str]
    """The paths of `--set` that it has."""
    unset: list[UsageError]
    """Errors of what the ladder expects from the recipe, and the recipe lacks."""


def valued(
    ladder: Ladder,
    recipe: Recipe,
    profile: str | None,
    sets: dict[str, Any],
    *,
    tune: bool = False,
) -> Iterator[Valued]:
    """The rungs of the ladder in their order, each with its values, as `resolve` describes.

    Raises:
        UsageError: `--set` does not fit, or a rung takes the values of an unknown one.
    """
    for_all = common(recipe, profile)
    common_grid, bases = tuning.common(recipe, profile), ladder.bases
    inherited: dict[str, _Values] = {}
    grids: dict[str | None, tuning.Grid] = {None: {}}
    for rung in ladder.rungs:
        base = bases[rung.name]
        values = dict(for_all if base is None else inherited[base])
        scopes = ladder.scopes(rung)
        tables = recipe.tables(scopes, profile)
        alone = _apply(values, ladder, rung, tables)
        inherited[rung.name] = dict(values)
        declared = {path for table in tables for path, _ in flatten(table.settings)}
        grids[rung.name] = tuning.inherited(grids[base], tables, {*dict(flatten(rung.change)), *declared})
        for path, (value, source) in alone.items():
            put(values, path, value, source)
        used = _override(values, sets, kept=_defaults(recipe, profile), rung=rung.name)
        tried = tuning.applying(common_grid | grids[rung.name], _kind(values), sets)
        unset = [
            _unset(path, ladder, rung, recipe)
            for path in rung.tunes
            if path not in declared and not (tune and path in tried and path in values)
        ]
        yield Valued(rung=rung, values=values, scopes=scopes, tables=tables, tried=tried, used=used, unset=unset)


def _kind(values: _Values) -> Any:
    return values[KIND][0] if KIND in values else None


def _defaults(recipe: Recipe, profile: str | None) -> tuple[str, str]:
    """The sources of values that hold for all rungs."""
    return recipe.path, f"{recipe.path} [profile.{profile}]"


def common(recipe: Recipe, profile: str | None) -> _Values:
    """What the recipe and its profile set for all rungs."""
    values: _Values = {}
    for document, source in zip((recipe, get_profile(recipe, profile)), _defaults(recipe, profile), strict=True):
        tables = {name: getattr(document, name) for name in SECTIONS}
        for path, value in settings(tables).items():
            put(values, path, value, source)
    return values


def _apply(values: _Values, ladder: Ladder, rung: Rung, tables: list[RungTable]) -> _Values:
    """Applies the rung's changes to `values`; returns those that hold for this rung alone."""
    source = f"{ladder.path}, rung {rung.name}"
    for path, value in settings(rung.change).items():
        put(values, path, value, source)
    alone: _Values = {}
    for table in tables:
        for path, value in settings(table.settings).items():
            put(values if is_inherited(path) else alone, path, value, table.where)
    return alone


def _unset(path: str, ladder: Ladder, rung: Rung, recipe: Recipe) -> UsageError:
    name = f"[ladder.{ladder.name}.rung.{rung.name}]"
    return UsageError(
        f"{recipe.path}: {name} does not set {path}, which ladder {ladder.name} expects from it",
        f"add {path} to {name}, or write it into the ladder's rung",
    )


def put(values: _Values, path: str, value: Any, source: str) -> None:
    """Sets a value. A new kind of recurrence removes the settings of the old one."""
    if path == KIND and path in values and values[path][0] != value:
        for old in [p for p in values if p.startswith(RECURRENCE)]:
            del values[old]
    # to the end: an error about several values names the one that was set last
    values.pop(path, None)
    values[path] = (value, source)


def _override(values: _Values, sets: dict[str, Any], *, kept: tuple[str, ...], rung: str) -> set[str]:
    """Applies `--set` to a rung's values; returns the paths that the rung has.

    Raises:
        UsageError: it sets another kind of recurrence, without a setting that the rung changes.
    """
    if KIND in sets:
        fields = tuning.fields(sets[KIND])
        for path, (_, source) in values.items():
            if fields and path.startswith(RECURRENCE) and path != KIND and source not in kept:
                if path.removeprefix(RECURRENCE) not in fields:
                    raise UsageError(
                        f"--set {KIND}={sets[KIND]}: rung {rung} sets {path}, which this kind does not have ({source})",
                        "leave it out: what the rungs change belongs to the ladder",
                    )
        put(values, KIND, sets[KIND], f"--set {KIND}")
    kind = _kind(values)
    used = set()
    for path, value in sets.items():
        if tuning.has(kind, path):
            put(values, path, value, f"--set {path}")
            used.add(path)
    return used


def _finish(
    one: Valued,
    recipe: Recipe,
    data: dict[str, Any],
    data_sources: dict[str, str],
    *,
    base: ResolvedRung | None,
    rate_source: RateSource,
    tune: bool,
) -> ResolvedRung:
    rung, values = one.rung, one.values
    config, execution = converted(values, recipe.task, data, recipe.path)
    new = full(config)
    sources = dict.fromkeys([*new, *(f"execution.{field}" for field in execution.__struct_fields__)], "default")
    sources |= {path: source for path, source in data_sources.items() if path in new}
    sources |= plugin_code.code_of(str(values[KIND][0]), recipe.task)[1]
    sources |= {"seed": "the ladder's seeds"} | {path: source for path, (_, source) in values.items()}
    old = full(base.config) if base else new
    differences = tuple(
        # a setting that the new kind lacks has the source of the change of kind
        Difference(path, old.get(path), new.get(path), sources.get(path, sources[KIND]))
        for path in {**old, **new}
        if old.get(path) != new.get(path)
    )
    return ResolvedRung(
        name=rung.name,
        title=rung.title,
        on=base.name if base else None,
        values={path: value for path, (value, _) in values.items()},
        sources=sources,
        config=config,
        execution=execution,
        differences=differences,
        same_as_base=base is not None
        and canonical(config) == canonical(base.config)
        and (not tune or one.tried == base.tried),
        rate_source=rate_source,
        tried=one.tried,
    )


def _rate_source(one: Valued, recipe: Recipe, profile: str | None) -> RateSource:
    """The source of the rung's learning rate. A note in a table is about the rate that applies there."""
    values, scopes, tables = one.values, one.scopes, one.tables
    source = values[RATE][1] if RATE in values else ""
    if source.startswith("--set"):
        return RateSource("set", f"given by {source}")
    for table in tables:
        if table.where == source:
            noted = table.notes.lr_published or table.notes.lr_chosen
            if one.rung.takes and table.scope == scopes[-1] and not noted:
                shared, where = common(recipe, profile).get(RATE, (None, ""))
                if values[RATE][0] == shared:  # instead of the rate of the rung that it takes its settings from
                    return _untuned(where, recipe, profile)
            reason = table.notes.lr_chosen or recipe.ours.get(RATE) or f"in {source}"
            return _noted(table.notes.lr_published, reason, table.scope, scopes[-1])
    if source not in _defaults(recipe, profile):
        return RateSource("chosen", f"set by the ladder: {source}")
    ladders = recipe.ladder
    if source != recipe.path:  # notes of the recipe are about its own rate, not about that of the profile
        ladders = get_profile(recipe, profile).ladder
        tables = [table for table in tables if table.where.startswith(f"{recipe.path} [profile.")]
    for table in reversed(tables):
        if table.notes.lr_published or table.notes.lr_chosen:
            return _noted(table.notes.lr_published, table.notes.lr_chosen, table.scope, scopes[-1])
    for scope in scopes:
        if scope.ladder in ladders and ladders[scope.ladder].lr_published:
            return _noted(ladders[scope.ladder].lr_published, "", scope, scopes[-1])
    return _untuned(source, recipe, profile)


def _untuned(source: str, recipe: Recipe, profile: str | None) -> RateSource:
    whose = "the recipe's default" if source == recipe.path else f"the default of profile {profile}"
    return RateSource("default", f"{whose}, untuned")


def _noted(published: str, reason: str, scope: Scope, own: Scope) -> RateSource:
    if published:
        return RateSource("published", f"published: {published}")
    rung = "this rung" if scope == own else f"{scope.ladder}/{scope.rung}"
    return RateSource("chosen", f"chosen for {rung}: {reason}")


class _Whole(RunConfig[R], Generic[R], frozen=True, kw_only=True):
    """Everything that paths may name, converted at once."""

    execution: Execution


def converted(values: _Values, task: str, data: dict[str, Any], where: str) -> tuple[RunConfig, Execution]:
    """The configuration that `values` describe, checked as a whole, with seed 0."""
    table, sources = _table(values, task, data)
    code, _ = plugin_code.code_of(str(values[KIND][0]) if KIND in values else "", task)
    if code is not None:
        table["code"] = msgspec.to_builtins(code)
    whole = decode(table, _Whole, where, sources)
    _check_devices(whole, sources)
    config = RunConfig(**{name: getattr(whole, name) for name in RunConfig.__struct_fields__})
    return config, whole.execution


def value_faults(values: _Values, task: str, where: str) -> Iterator[Fault]:
    """Every missing or wrong value of a rung, or of a recipe for all rungs, which may have no recurrence.

    Values of unknown settings are left out: they are faults of their document.
    """
    known = {path: value for path, value in values.items() if path in known_paths()}
    table, sources = _table(known, task, {})
    for fault in examine(table, _Whole, where, sources)[1]:
        if KIND in values or fault.path not in ("model.recurrence", KIND):
            yield fault


def grid_faults(one: Valued, task: str, where: str) -> Iterator[Fault]:
    """Every wrong value of what a rung tries."""
    before = {error.message for error in value_faults(one.values, task, where)}
    for path, (tried, source) in one.tried.items():
        for value in tuning.examples(tried):
            values = {**one.values, path: (value, source)}
            yield from (error for error in value_faults(values, task, where) if error.message not in before)


def _table(values: _Values, task: str, data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The plain table of a run with these values, and dotted path -> source."""
    table: dict[str, Any] = {"task": task, "data": data, "seed": 0, **{name: {} for name in SECTIONS}}
    sources: dict[str, str] = {}
    for path, (value, source) in values.items():
        *parents, name = path.split(".")
        here = table
        for parent in parents:
            inner = here.get(parent)
            here[parent] = inner if isinstance(inner, dict) else {}
            here = here[parent]
        here[name] = value
        sources[path] = sources[".".join(parents)] = source
    return table, sources


def _check_devices(whole: _Whole, sources: dict[str, str]) -> None:
    batch, devices = whole.train.batch, whole.execution.devices
    if batch % devices:
        path = next(path for path in reversed(sources) if path in ("execution.devices", "train.batch"))
        divisors = [n for n in range(1, devices) if batch % n == 0]
        raise UsageError(
            f"{decoding.place(sources[path], path)}: the devices of a run have equal parts of each batch, found "
            f"train.batch = {batch}, execution.devices = {devices}",
            f"execution.devices = {divisors[-1]} divides the batch, or choose a multiple of {devices} for train.batch",
        )


def full(config: RunConfig) -> dict[str, Any]:
    """Dotted path -> value, of all fields."""
    return dict(flatten(msgspec.to_builtins(config)))


def with_point(rung: ResolvedRung, point: dict[str, Any], source: str) -> ResolvedRung:
    """The rung with the values of a point of the tuning."""
    values = {path: (value, rung.sources[path]) for path, value in rung.values.items()}
    for path, value in point.items():
        put(values, path, value, source)
    config, execution = converted(values, rung.config.task, rung.config.data, source)
    return msgspec.structs.replace(
        rung,
        values={path: value for path, (value, _) in values.items()},
        sources=rung.sources | dict.fromkeys(point, source),
        config=config,
        execution=execution,
    )

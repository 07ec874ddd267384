"""The rungs of a ladder on a recipe with every value in place, and where each value comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Generic, Literal

import msgspec
from msgspec import Struct

from lrurun import decoding
from lrurun.config import plugin_code, programs, tuning
from lrurun.config.ladder import Ladder, Rung, Scope
from lrurun.config.recipe import Recipe, RungTable, Tried, get_profile
from lrurun.config.schema import (
    KIND,
    RECURRENCE,
    SECTIONS,
    Execution,
    LadderConfig,
    R,
    RunConfig,
    decode,
    examine,
    is_inherited,
    used_execution,
)
from lrurun.config.settings import flatten, kind_fields, settings
from lrurun.data import tasks
from lrurun.data.task import Options
from lrurun.decoding import Fault, canonical
from lrurun.errors import UsageError, plural

RATE = "optim.lr"
_Values = dict[str, tuple[Any, str]]
"""Dotted path -> value and its source, in the order in which they were set."""


class Difference(Struct, frozen=True):
    """A value in which a rung differs from its base."""

    path: str
    before: Any
    after: Any
    source: str

    @property
    def is_default(self) -> bool:
        """Whether the base has no such setting, and the rung has it at its default: it follows from the new kind."""
        return self.before is None and self.source == "default"


class RateSource(Struct, frozen=True):
    """Where the learning rate of a rung comes from."""

    kind: Literal["tuned", "published", "chosen", "set", "default"]
    text: str
    """A phrase for messages, with the reason or the publication."""


def _tuned_rate(recipe: Recipe, profile: str | None) -> RateSource:
    search, seeds = tuning.search_of(recipe, profile), plural(tuning.seeds_of(recipe, profile), "seed")
    search_text = "" if search is None else f": {search.text}"
    return RateSource("tuned", f"tuned on validation here with {seeds}{search_text}")


class ResolvedRung(Struct, frozen=True, kw_only=True):
    """A rung with every value in place, for any seed."""

    name: str
    title: str
    on: str | None
    """The name of its base; None for the first rung and for roots."""
    values: dict[str, Any]
    """Dotted path -> value, as documents and `--set` have it, without defaults."""
    sources: dict[str, str]
    """Dotted path -> the source of the value, including defaults."""
    config: LadderConfig
    """The configuration with seed 0."""
    execution: Execution
    steps: int
    """The number of steps of its runs; 0 where a program does not say it."""
    differences: tuple[Difference, ...]
    """The differences from its base."""
    same_as_base: bool
    """Whether it shares all runs with its base."""
    rate_source: RateSource
    tried: tuning.TuningGrid = {}
    """The values that tuning tries for this rung."""

    @property
    def grid(self) -> dict[str, Tried]:
        """Dotted path -> values to try, or their range."""
        return {path: values for path, (values, _) in self.tried.items()}

    @property
    def training(self) -> RunConfig:
        """The configuration of a rung whose runs are trainings."""
        assert isinstance(self.config, RunConfig)
        return self.config

    @property
    def rate(self) -> float | None:
        """The peak learning rate; None for programs, whose settings may have one under any name."""
        return self.config.optim.lr if isinstance(self.config, RunConfig) else None


def resolve(
    ladder: Ladder,
    recipe: Recipe,
    profile: str | None,
    sets: dict[str, Any],
    options: Options,
    data_sources: dict[str, str],
    *,
    tune: bool = False,
    files: Mapping[str, str] | None = None,
) -> list[ResolvedRung]:
    """Resolves every rung of the ladder; `options` are the settings of the data, `files` the recorded digests of the
    files of a program that need not be here.

    Later values win: recipe, profile, rung by rung along the bases (the ladder's change, then the recipe's table), then
    `sets`. Model values in a recipe's table also hold for later rungs; optimiser values hold for that rung alone.
    With `tune`, a value that the grid chooses need not be set for the rung.

    Raises:
        UsageError: a value does not fit, or is missing in the recipe; no rung has a path in `sets`.
    """
    sources = {"task": recipe.path, **data_sources}
    if recipe.program is not None:
        where, folder = recipe.path, recipe.folder
        base_config = programs.config_of(recipe.task, recipe.program, recipe.settings, folder, where, files)
        convert: Callable[..., tuple[LadderConfig, Execution]] = partial(programs.with_values, base_config)
    else:
        data = {"version": tasks.get(recipe.task, recipe.data).version, **canonical(options)}
        sources |= {"data.version": f"task {recipe.task}"}
        convert = partial(converted, task=recipe.task, data=data)
    bases = ladder.bases
    resolved: dict[str, ResolvedRung] = {}
    used: set[str] = set()
    for unresolved in unresolved_rungs(ladder, recipe, profile, sets, tune=tune):
        if unresolved.unset:
            raise unresolved.unset[0]
        used |= unresolved.used
        name = unresolved.rung.name
        base = None if (base_name := bases[name]) is None else resolved[base_name]
        is_tuned = tune and (RATE in unresolved.tried or bool(recipe.program and unresolved.tried))
        rate_source = _tuned_rate(recipe, profile) if is_tuned else _rate_source(unresolved, recipe, profile)
        config, execution = convert(unresolved.values, where=recipe.path)
        resolved[name] = _resolved(
            unresolved, recipe, config, execution, sources, base=base, rate_source=rate_source, tune=tune
        )
    for path in sets:
        if path not in used:
            raise UsageError(
                f"--set {path}: no rung of this ladder has it", f"lrurun plan {recipe.task} shows what the rungs have"
            )
    return list(resolved.values())


class UnresolvedRung(Struct, frozen=True, kw_only=True):
    """A rung with its values, before these are converted to a configuration."""

    rung: Rung
    values: _Values
    scopes: list[Scope]
    tables: list[RungTable]
    tried: tuning.TuningGrid
    used: set[str]
    """The paths of `--set` that this rung has."""
    unset: list[UsageError]
    """An error for each value that the ladder expects from the recipe, and the recipe lacks."""


def unresolved_rungs(
    ladder: Ladder,
    recipe: Recipe,
    profile: str | None,
    sets: dict[str, Any],
    *,
    tune: bool = False,
) -> Iterator[UnresolvedRung]:
    """The rungs of the ladder in their order, each with its values, as `resolve` describes.

    Raises:
        UsageError: `--set` does not fit, or a rung takes the values of an unknown rung.
    """
    shared = shared_values(recipe, profile)
    common_grid, bases = tuning.common_grid(recipe, profile), ladder.bases
    inherited: dict[str, _Values] = {}
    grids: dict[str | None, tuning.TuningGrid] = {None: {}}
    for rung in ladder.rungs:
        base = bases[rung.name]
        values = dict(shared if base is None else inherited[base])
        scopes = ladder.scopes(rung)
        tables = recipe.tables(scopes, profile)
        alone = _apply(values, ladder, rung, tables)
        inherited[rung.name] = dict(values)
        declared = {path for table in tables for path, _ in flatten(table.settings)}
        grids[rung.name] = tuning.inherited_grid(grids[base], tables, {*dict(flatten(rung.change)), *declared})
        for path, (value, source) in alone.items():
            put(values, path, value, source)
        used = _override(values, sets, kept=_defaults(recipe, profile), rung=rung.name)
        tried = tuning.applicable(common_grid | grids[rung.name], _kind(values), sets)
        unset = [
            _unset(path, ladder, rung, recipe)
            for path in rung.tunes
            if path not in declared and not (tune and path in tried and path in values)
        ]
        yield UnresolvedRung(
            rung=rung, values=values, scopes=scopes, tables=tables, tried=tried, used=used, unset=unset
        )


def _kind(values: _Values) -> Any:
    return values[KIND][0] if KIND in values else None


def _defaults(recipe: Recipe, profile: str | None) -> tuple[str, str]:
    """The sources of values that hold for all rungs."""
    return recipe.path, f"{recipe.path} [profile.{profile}]"


def shared_values(recipe: Recipe, profile: str | None) -> _Values:
    """The values that the recipe and its profile set for all rungs."""
    values: _Values = {}
    if recipe.program is not None:
        source = f"{recipe.path} [program]"
        values |= {path: (value, source) for path, value in programs.execution_of(recipe.program).items()}
    for document, source in zip((recipe, get_profile(recipe, profile)), _defaults(recipe, profile), strict=True):
        tables = {name: getattr(document, name) for name in recipe.sections}
        for path, value in settings(tables).items():
            put(values, path, value, source)
    return values


def _apply(values: _Values, ladder: Ladder, rung: Rung, tables: list[RungTable]) -> _Values:
    """Applies the rung's changes to `values`; returns the values that hold for this rung alone."""
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
        for old_path in [setting for setting in values if setting.startswith(RECURRENCE)]:
            del values[old_path]
    # moved to the end: an error about several values names the source of the last one
    values.pop(path, None)
    values[path] = (value, source)


def _override(values: _Values, sets: dict[str, Any], *, kept: tuple[str, ...], rung: str) -> set[str]:
    """Applies `--set` to a rung's values; returns the paths that the rung has.

    Raises:
        UsageError: `--set` chooses a kind of recurrence that lacks a setting which the rung changes.
    """
    if KIND in sets:
        fields = kind_fields(sets[KIND])
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


def _resolved(
    unresolved: UnresolvedRung,
    recipe: Recipe,
    config: LadderConfig,
    execution: Execution,
    data_sources: dict[str, str],
    *,
    base: ResolvedRung | None,
    rate_source: RateSource,
    tune: bool,
) -> ResolvedRung:
    rung, values = unresolved.rung, unresolved.values
    new = full(config)
    sources = dict.fromkeys([*new, *(f"execution.{field}" for field in used_execution(config, execution))], "default")
    sources |= {path: source for path, source in data_sources.items() if path in new}
    if isinstance(config, RunConfig):
        sources |= plugin_code.code_of(str(values[KIND][0]), recipe.task)[1]
    else:
        sources |= {path: f"{recipe.path} [program]" for path in new if path.startswith("program.")}
    sources |= {"seed": "the ladder's seeds"} | {path: source for path, (_, source) in values.items()}
    old = full(base.config) if base else new
    differences = tuple(
        # a setting that the new kind lacks has the source of the change of kind
        Difference(path, old.get(path), new.get(path), sources.get(path) or sources[KIND])
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
        steps=_steps(config, recipe),
        differences=differences,
        same_as_base=base is not None
        and canonical(config) == canonical(base.config)
        and (not tune or unresolved.tried == base.tried),
        rate_source=rate_source,
        tried=unresolved.tried,
    )


def _steps(config: LadderConfig, recipe: Recipe) -> int:
    if isinstance(config, RunConfig):
        return config.train.steps
    return 0 if recipe.program is None else programs.steps_of(recipe.program, config)


def _rate_source(unresolved: UnresolvedRung, recipe: Recipe, profile: str | None) -> RateSource:
    """The source of the rung's learning rate. A note in a table refers to the rate that holds there."""
    if recipe.program is not None:
        return RateSource("default", "the recipe's settings, not tuned")
    values, scopes, tables = unresolved.values, unresolved.scopes, unresolved.tables
    source = values[RATE][1] if RATE in values else ""
    if source.startswith("--set"):
        return RateSource("set", f"given by {source}")
    for table in tables:
        if table.where == source:
            noted = table.notes.lr_published or table.notes.lr_chosen
            if unresolved.rung.takes and table.scope == scopes[-1] and not noted:
                shared, where = shared_values(recipe, profile).get(RATE, (None, ""))
                if values[RATE][0] == shared:  # instead of the rate of the rung that it takes its settings from
                    return _untuned(where, recipe, profile)
            reason = table.notes.lr_chosen or recipe.ours.get(RATE) or f"in {source}"
            return _noted(table.notes.lr_published, reason, table.scope, scopes[-1])
    if source not in _defaults(recipe, profile):
        return RateSource("chosen", f"set by the ladder: {source}")
    ladders = recipe.ladder
    if source != recipe.path:  # notes of the recipe are about its own rate, not about the rate of the profile
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
    default = "the recipe's default" if source == recipe.path else f"the default of profile {profile}"
    return RateSource("default", f"{default}, untuned")


def _noted(published: str, reason: str, scope: Scope, own: Scope) -> RateSource:
    if published:
        return RateSource("published", f"published: {published}")
    rung = "this rung" if scope == own else f"{scope.ladder}/{scope.rung}"
    return RateSource("chosen", f"chosen for {rung}: {reason}")


class _Whole(RunConfig[R], Generic[R], frozen=True, kw_only=True):
    """All sections that a dotted path may name, converted at once."""

    execution: Execution


def converted(values: _Values, where: str, *, task: str, data: dict[str, Any]) -> tuple[RunConfig, Execution]:
    """The configuration that `values` describe, checked as a whole, with seed 0."""
    table, sources = _table(values, task, data)
    code, _ = plugin_code.code_of(str(values[KIND][0]) if KIND in values else "", task)
    if code is not None:
        table["code"] = msgspec.to_builtins(code)
    settings = decode(table, _Whole, where, sources)
    _check_devices(settings, sources)
    config = RunConfig(**{name: getattr(settings, name) for name in RunConfig.__struct_fields__})
    return config, settings.execution


def value_faults(values: _Values, recipe: Recipe) -> Iterator[Fault]:
    """Every missing or wrong value of a rung, or of a recipe, which may have no recurrence.

    Unknown settings are left out, because they are reported as faults of their document.
    """
    where, settable = recipe.path, recipe.known
    known = {path: value for path, value in values.items() if path in settable}
    if recipe.program is not None:
        config = programs.config_of(recipe.task, recipe.program, recipe.settings, recipe.folder, where)
        yield from programs.value_faults(config, known, where)
        return
    table, sources = _table(known, recipe.task, {})
    for fault in examine(table, _Whole, where, sources)[1]:
        if KIND in values or fault.path not in ("model.recurrence", KIND):
            yield fault


def grid_faults(unresolved: UnresolvedRung, recipe: Recipe) -> Iterator[Fault]:
    """Every wrong value among those that tuning tries for a rung."""
    reported = {fault.message for fault in value_faults(unresolved.values, recipe)}
    for path, (tried, source) in unresolved.tried.items():
        for value in tuning.examples(tried):
            values = {**unresolved.values, path: (value, source)}
            yield from (fault for fault in value_faults(values, recipe) if fault.message not in reported)


def _table(values: _Values, task: str, data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The plain table of a run with these values, and a table from dotted paths to sources."""
    table: dict[str, Any] = {"task": task, "data": data, "seed": 0, **{name: {} for name in SECTIONS}}
    sources: dict[str, str] = {}
    for path, (value, source) in values.items():
        *parents, name = path.split(".")
        section = table
        for parent in parents:
            inner = section.get(parent)
            section[parent] = inner if isinstance(inner, dict) else {}
            section = section[parent]
        section[name] = value
        sources[path] = sources[".".join(parents)] = source
    return table, sources


def _check_devices(whole: _Whole, sources: dict[str, str]) -> None:
    batch, devices = whole.train.batch, whole.execution.devices
    if batch % devices:
        path = next(path for path in reversed(sources) if path in ("execution.devices", "train.batch"))
        divisors = [n for n in range(1, devices) if batch % n == 0]
        raise UsageError(
            f"{decoding.place(sources[path], path)}: each device of a run needs an equal part of each batch, found "
            f"train.batch = {batch}, execution.devices = {devices}",
            f"execution.devices = {divisors[-1]} divides the batch, or choose a multiple of {devices} for train.batch",
        )


def full(config: LadderConfig) -> dict[str, Any]:
    """Dotted path -> value, for all fields of a configuration."""
    return dict(flatten(msgspec.to_builtins(config)))


def with_point(rung: ResolvedRung, point: dict[str, Any], source: str, recipe: Recipe) -> ResolvedRung:
    """The rung with the values of a point of the tuning."""
    values = {path: (value, rung.sources[path]) for path, value in rung.values.items()}
    for path, value in point.items():
        put(values, path, value, source)
    config: LadderConfig
    if isinstance(rung.config, RunConfig):
        config, execution = converted(values, source, task=rung.config.task, data=rung.config.data)
    else:
        config, execution = programs.with_values(rung.config, values, source)
    return msgspec.structs.replace(
        rung,
        values={path: value for path, (value, _) in values.items()},
        sources=rung.sources | dict.fromkeys(point, source),
        config=config,
        execution=execution,
        steps=_steps(config, recipe),
    )

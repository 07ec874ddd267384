"""The rungs of a ladder on a recipe with every value in place, and where each value comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Literal

import msgspec
from msgspec import Struct

from lrurun import decoding
from lrurun.config import plugin_code, programs, tuning_grid
from lrurun.config.ladder import Ladder, Scope
from lrurun.config.optimizers import OPTIMIZERS
from lrurun.config.precedence import UnresolvedRung, Values, common_sources, plain, put, shared_values, unresolved_rungs
from lrurun.config.recipe import Recipe, Tried, get_profile
from lrurun.config.schema import (
    KIND,
    OPTIMIZER,
    SECTIONS,
    Execution,
    ImportedConfig,
    LadderConfig,
    ProgramConfig,
    R,
    RunConfig,
    S,
    choice_for,
    choices_of,
    decode,
    examine,
    own_settings,
    used_execution,
)
from lrurun.config.schema import RATE as RATE
from lrurun.config.search import search_of
from lrurun.config.settings import flatten, settings
from lrurun.data import tasks
from lrurun.data.task import Options
from lrurun.decoding import Fault, canonical
from lrurun.errors import UsageError, plural
from lrurun.plugins import PluginType


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

    kind: Literal["tuned", "published", "chosen", "set", "default", "elsewhere"]
    text: str
    """A phrase for messages, with the reason or the publication."""


def _tuned_rate(recipe: Recipe, profile: str | None) -> RateSource:
    search, seeds = search_of(recipe, profile), plural(tuning_grid.seeds_of(recipe, profile), "seed")
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
    tried: tuning_grid.TuningGrid = {}
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

    Its values are set in the order that `unresolved_rungs` describes.

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
        if unresolved.faults:
            raise unresolved.faults[0]
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
            raise _unused(path, list(resolved.values()), recipe)
    return list(resolved.values())


def _unused(path: str, rungs: Sequence[ResolvedRung], recipe: Recipe) -> UsageError:
    """The error of `--set` for a setting that no rung has."""
    problem = f"--set {path}: no rung of this ladder has it"
    if choice_for(path) != OPTIMIZER:
        return UsageError(problem, f"lrurun plan {recipe.task} shows what the rungs have")
    used = dict.fromkeys(choices_of(full(rung.config))[OPTIMIZER] for rung in rungs)
    of_used = "; ".join(
        f"{name} has {', '.join(own_settings(OPTIMIZER, name)) or 'no settings of its own'}" for name in used
    )
    setting = path.rpartition(".")[2]
    owners = [name for name in OPTIMIZERS if setting in own_settings(OPTIMIZER, name)]
    return UsageError(
        f"{problem}: {of_used}", f"{setting} is a setting of {', '.join(owners)}: --set {OPTIMIZER}={owners[0]}"
    )


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
        sources |= plugin_code.code_of(_names(values, recipe.task))[1]
    else:
        sources |= {path: f"{recipe.path} [program]" for path in new if path.startswith("program.")}
    sources |= {"seed": "the ladder's seeds"} | {path: source for path, (_, source) in values.items()}
    old = full(base.config) if base else new
    differences = tuple(
        # a setting that the new kind or optimiser lacks has the source of the change of kind or optimiser
        Difference(path, old.get(path), new.get(path), sources.get(path) or sources[choice_for(path) or KIND])
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
    if isinstance(config, ImportedConfig) or recipe.program is None:
        return 0
    return programs.steps_of(recipe.program, config)


def _rate_source(unresolved: UnresolvedRung, recipe: Recipe, profile: str | None) -> RateSource:
    """The source of the rung's learning rate. A note in a table refers to the rate that holds there."""
    if recipe.program is not None:
        return RateSource("default", "the recipe's settings, not tuned")
    values, scopes, tables = unresolved.values, unresolved.scopes, unresolved.tables
    source = values[RATE][1] if RATE in values else ""
    if source.startswith("--set"):
        return RateSource("set", f"given by {source}")
    if other := _other_optimizer(unresolved, recipe, profile):
        return RateSource("default", f"a rate for {other}, untuned for {choices_of(plain(values))[OPTIMIZER]}")
    for table in tables:
        noted = table.notes.lr_published or table.notes.lr_chosen
        if table.where == source and (noted or not table.is_of_ladder):
            if unresolved.rung.takes and table.scope == scopes[-1] and not noted:
                shared, where = shared_values(recipe, profile).get(RATE, (None, ""))
                if values[RATE][0] == shared:  # instead of the rate of the rung that it takes its settings from
                    return _untuned(where, recipe, profile)
            reason = table.notes.lr_chosen or recipe.ours.get(RATE) or f"in {source}"
            return _noted(table.notes.lr_published, reason, table.scope, scopes[-1])
    if source not in common_sources(recipe, profile):
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


def _other_optimizer(unresolved: UnresolvedRung, recipe: Recipe, profile: str | None) -> str | None:
    """The optimiser that a learning rate of the recipe is for, where the rung has another one.

    That is the optimiser of the recipe; for a rate of the file that the recipe extends, the one of that file.
    """
    values = unresolved.values
    source, name = values[RATE][1], choices_of(plain(values))[OPTIMIZER]
    tables = [table for table in unresolved.tables if table.where == source]
    if source not in common_sources(recipe, profile) and all(table.is_of_ladder for table in tables):
        return None
    is_of_rung = any(table.scope == unresolved.scopes[-1] for table in tables)
    choice = values.get(OPTIMIZER, (None, ""))[1]
    place = source.removeprefix(recipe.path).strip(" []")  # of the table with the rate; empty for that of all rungs
    if (path := ".".join(filter(None, [place, RATE]))) in recipe.extended_rates:
        other = recipe.extended_rates[path]
        is_for_it = is_of_rung and not (choice == recipe.path or choice.startswith((f"{recipe.path} [", "--set")))
    else:
        other = str(choices_of(plain(shared_values(recipe, profile)))[OPTIMIZER])
        is_for_it = choice == source or is_of_rung or any(OPTIMIZER in dict(flatten(one.settings)) for one in tables)
        is_for_it = is_for_it and not choice.startswith("--set")
    return None if name == other or is_for_it else other


def _untuned(source: str, recipe: Recipe, profile: str | None) -> RateSource:
    default = "the recipe's default" if source == recipe.path else f"the default of profile {profile}"
    return RateSource("default", f"{default}, untuned")


def _noted(published: str, reason: str, scope: Scope, own: Scope) -> RateSource:
    if published:
        return RateSource("published", f"published: {published}")
    rung = "this rung" if scope == own else f"{scope.ladder}/{scope.rung}"
    return RateSource("chosen", f"chosen for {rung}: {reason}")


class _Whole(RunConfig[R, S], Generic[R, S], frozen=True, kw_only=True):
    """All sections that a dotted path may name, converted at once."""

    execution: Execution


def converted(values: Values, where: str, *, task: str, data: dict[str, Any]) -> tuple[RunConfig, Execution]:
    """The configuration that `values` describe, checked as a whole, with seed 0."""
    table, sources = _table(values, task, data)
    code, _ = plugin_code.code_of(_names(values, task))
    if code is not None:
        table["code"] = msgspec.to_builtins(code)
    whole = decode(table, _Whole, where, sources)
    _check_devices(whole, sources)
    config = RunConfig(**{name: getattr(whole, name) for name in RunConfig.__struct_fields__})
    return config, whole.execution


def _names(values: Values, task: str) -> dict[PluginType, str]:
    """The names of what a run has that may come from plug-ins."""
    choices = choices_of(plain(values))
    return {"recurrence": str(choices[KIND] or ""), "task": task, "optimizer": str(choices[OPTIMIZER])}


def value_faults(values: Values, recipe: Recipe) -> Iterator[Fault]:
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
    """Every wrong value that tuning tries for a rung."""
    reported = {fault.message for fault in value_faults(unresolved.values, recipe)}
    for path, (tried, source) in unresolved.tried.items():
        for value in tuning_grid.examples(tried):
            values = {**unresolved.values, path: (value, source)}
            yield from (fault for fault in value_faults(values, recipe) if fault.message not in reported)


def _table(values: Values, task: str, data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
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
    batch, parts, devices = whole.train.batch, whole.optim.accumulate, whole.execution.devices
    if batch // parts % devices:
        what, paths = "batch", ["train.batch", "execution.devices"]
        if parts > 1:
            what, paths = "part of a batch", ["train.batch", "optim.accumulate", "execution.devices"]
        path = next(path for path in reversed(sources) if path in paths)
        values = {"train.batch": batch, "optim.accumulate": parts, "execution.devices": devices}
        divisors = [n for n in range(1, devices) if batch // parts % n == 0]
        raise UsageError(
            f"{decoding.path_in(sources[path], path)}: each device of a run needs an equal part of each {what}, found "
            f"{', '.join(f'{path} = {values[path]}' for path in paths)}",
            f"execution.devices = {divisors[-1]} divides the {what.split()[0]}, or choose a multiple of "
            f"{devices * parts} for train.batch",
        )


def full(config: LadderConfig) -> dict[str, Any]:
    """Dotted path -> value, for all fields of a configuration."""
    return dict(flatten(msgspec.to_builtins(config)))


def with_point(rung: ResolvedRung, point: dict[str, Any], source: str, recipe: Recipe) -> ResolvedRung:
    """The rung with the values of a point of the tuning_grid."""
    values = {path: (value, rung.sources[path]) for path, value in rung.values.items()}
    for path, value in settings(point).items():
        put(values, path, value, source)
    config: LadderConfig
    if isinstance(rung.config, RunConfig):
        config, execution = converted(values, source, task=rung.config.task, data=rung.config.data)
    else:
        assert isinstance(rung.config, ProgramConfig)  # imported runs are not tuned
        config, execution = programs.with_values(rung.config, values, source)
    return msgspec.structs.replace(
        rung,
        values={path: value for path, (value, _) in values.items()},
        sources=rung.sources | dict.fromkeys(point, source),
        config=config,
        execution=execution,
        steps=_steps(config, recipe),
    )

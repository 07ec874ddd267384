"""Ladder x recipe x seeds -> run configurations, and what each rung changes. No jax here."""

from __future__ import annotations

import copy
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import msgspec
from msgspec import Struct

from lrurun import strict, tasks
from lrurun.catalog import (
    Ladder,
    Profile,
    Recipe,
    Rung,
    check_path,
    flatten,
    get_profile,
    load_ladder,
    load_recipe,
    settings,
)
from lrurun.config import (
    KIND,
    RECURRENCES,
    SECTIONS,
    TUNING_SEED,
    Execution,
    RunConfig,
    canonical,
    fingerprint,
    known_paths,
    shared_settings,
)
from lrurun.errors import UsageError, hint_for
from lrurun.ledger.values import Wanted
from lrurun.tasks.base import Options, Task

__all__ = ["Move", "Plan", "ResolvedRung", "choose_rungs", "grid_points", "known_paths", "make", "parse_set", "plain"]
__all__ += ["seeds_of", "wanted_final", "wanted_tuning"]

_RECURRENCE = "model.recurrence."
_Values = dict[str, tuple[Any, str]]
"""Dotted path -> value and where it came from, the one that was set last at the end."""


class Move(Struct, frozen=True):
    """A value that a rung has and the rung that it changes has not."""

    path: str
    before: Any
    after: Any
    source: str


class ResolvedRung(Struct, frozen=True, kw_only=True):
    """A rung with every value in place, for any seed."""

    name: str
    title: str
    on: str | None
    """The rung that it changes; the first changes none."""
    values: dict[str, Any]
    """Dotted path -> value, as given: no defaults."""
    provenance: dict[str, str]
    """Dotted path -> where its value came from, defaults too."""
    config: RunConfig
    """With seed 0."""
    execution: Execution
    moves: tuple[Move, ...]
    same_as_before: bool
    """Its runs are those of the rung that it changes."""


class Plan(Struct, frozen=True, kw_only=True):
    """What a ladder instance is."""

    ladder: Ladder
    recipe: Recipe
    profile: str | None
    seeds: int
    """How many seeds it trains where the command says nothing."""
    changes: dict[str, Any]
    """`--set`, execution left out: what makes this instance another one."""
    tune: bool
    grid: dict[str, list[Any]]
    """Dotted path -> values to try; what `--set` fixes is not in it."""
    rungs: tuple[ResolvedRung, ...]
    options: Options
    """Of the data."""
    data_name: str
    """Of their folder in the data folder."""

    @property
    def task(self) -> Task:
        return tasks.get(self.recipe.task)

    @property
    def spec(self) -> dict[str, Any]:
        """What tells this instance from others of the same ladder, task and profile."""
        return {"set": self.changes, "tune": self.tune}

    @property
    def same_as_before(self) -> frozenset[str]:
        return frozenset(rung.name for rung in self.rungs if rung.same_as_before)


def make(
    task: str,
    *,
    ladder: str = "lru",
    profile: str | None = None,
    sets: Sequence[str] | dict[str, Any] = (),
    tune: bool = False,
) -> Plan:
    """Reads the documents and resolves every rung.

    Raises:
        UsageError: unknown names, wrong values, rungs that change unknown fields.
    """
    recipe = load_recipe(task)
    if recipe.task not in tasks.TASKS:
        raise UsageError(
            f"{recipe.path}, task: unknown task {recipe.task!r}", hint_for(recipe.task, tasks.TASKS, "tasks")
        )
    document = load_ladder(ladder)
    shrink = get_profile(recipe, profile)
    changes = dict(sets) if isinstance(sets, Mapping) else dict(parse_set(text) for text in sets)
    options, provenance = _data(recipe, profile, shrink)
    rungs = _resolve(document, recipe, profile, shrink, changes, options, provenance)
    known = tasks.TASKS[recipe.task].protocols
    for rung in rungs:
        if rung.config.train.protocol not in known:
            source = rung.provenance.get("train.protocol", recipe.path)
            found = f"{recipe.task} has no protocol {rung.config.train.protocol!r}"
            where = source if source.startswith("--set") else f"{source}, train.protocol"
            raise UsageError(f"{where}: {found}", f"protocols of this task: {', '.join(known)}")
        _check_length(rung, options)
    grid, grid_source = (recipe.tune.grid, f"{recipe.path} [tune.grid]") if recipe.tune else ({}, "")
    if shrink.tune:
        grid, grid_source = shrink.tune, f"{recipe.path} [profile.{profile}.tune]"
    free = {path: values for path, values in grid.items() if path not in changes}
    if tune and not grid:
        raise UsageError(f"{recipe.path}: has no grid to tune over", "add a table [tune.grid], or leave --tune out")
    if tune and not free:
        raise UsageError(f"--tune: nothing is left to tune, --set fixes {', '.join(grid)}", "leave one of them out")
    for rung in rungs:
        for path, values in free.items():
            for value in values:
                _check_length(_tuned(rung, {path: value}, grid_source), options)
    typed = {path: value for rung in reversed(rungs) for path, value in _full(rung.config).items()}
    return Plan(
        ladder=document,
        recipe=recipe,
        profile=profile,
        seeds=shrink.seeds or recipe.seeds,
        # as converted: 1 and 1.0 are one instance
        changes={path: typed[path] for path in changes if not path.startswith("execution.")},
        tune=tune,
        grid=free,
        rungs=tuple(rungs),
        options=options,
        data_name=_data_name(recipe, profile, shrink),
    )


def _check_length(rung: ResolvedRung, options: Options) -> None:
    """Nothing, where the task's sequences are long enough for the rung's recurrence.

    Raises:
        UsageError: they are too short.
    """
    config = rung.config
    try:
        config.model.recurrence.fits_length(tasks.get(config.task).spec(options).length)
    except ValueError as error:
        path = f"{_RECURRENCE}kernel_length"
        raise UsageError(
            f"{strict.place(rung.provenance.get(path, config.task), path)}: {error}", "give it a smaller value"
        ) from None


def data_of(task: str, profile: str | None = None) -> tuple[Task, Options, str]:
    """The task of a recipe, the settings of its data, and the name of their folder.

    Raises:
        UsageError: an unknown name, or a setting that the task has not.
    """
    recipe = load_recipe(task)
    shrink = get_profile(recipe, profile)
    options, _ = _data(recipe, profile, shrink)
    return tasks.get(recipe.task), options, _data_name(recipe, profile, shrink)


def _data_name(recipe: Recipe, profile: str | None, shrink: Profile) -> str:
    """The name of the folder of the data; a profile that changes them has one of its own."""
    return f"{recipe.task}-{profile}" if shrink.data else recipe.task


def _data(recipe: Recipe, profile: str | None, shrink: Profile) -> tuple[Options, dict[str, str]]:
    """The settings of the data, and where each came from."""
    sources = dict.fromkeys(recipe.data, f"{recipe.path} [data]")
    sources |= dict.fromkeys(shrink.data, f"{recipe.path} [profile.{profile}.data]")
    options = strict.convert(
        recipe.data | shrink.data, tasks.get(recipe.task).options, f"{recipe.path} [data]", sources
    )
    return options, {f"data.{name}": source for name, source in sources.items()}


def parse_set(text: str) -> tuple[str, Any]:
    """`a.b=value`, the value in TOML; a word that is not TOML is a string.

    Raises:
        UsageError: no `=`, an unknown table or field.
    """
    path, equals, word = text.partition("=")
    path = path.strip()
    if not equals or not path:
        raise UsageError(f"--set {text}: expected path=value", "as in --set optim.lr=0.002")
    if path in ("seed", "seeds"):
        raise UsageError(f"--set {path}: seeds are not set this way", "use --seeds 0,1,2")
    if path.startswith("data."):
        raise UsageError(
            f"--set {path}: the data of a ladder are not set this way, for they have a folder of their own",
            "copy the recipe to ./recipes and set it in [data] or in a [profile.<name>.data]",
        )
    check_path(path, f"--set {path}")
    try:
        table = tomllib.loads(f"x = {word}")
    except (ValueError, RecursionError):
        table = {}
    return path, table["x"] if list(table) == ["x"] else word


def seeds_of(text: str) -> tuple[int, ...]:
    """`3` means 0, 1, 2; `0,4,7` is a list, and so is `4,`.

    Raises:
        UsageError: no number, none, one twice, or one kept for tuning.
    """
    hint = "a number of seeds, as in --seeds 3, or a list, as in --seeds 0,4,7"
    if not re.fullmatch(r"-?[0-9]{1,9}(,-?[0-9]{1,9})*,?", text, re.ASCII):
        raise UsageError(f"--seeds {text}: expected whole numbers", hint)
    if "," in text:
        numbers = tuple(map(int, text.removesuffix(",").split(",")))
    elif int(text) < 1:
        raise UsageError(f"--seeds {text}: at least one seed is needed", hint)
    else:
        numbers = tuple(range(min(int(text), TUNING_SEED + 1)))
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"--seeds {text}: a seed is named twice", hint)
    if min(numbers) < 0 or max(numbers) >= TUNING_SEED:
        raise UsageError(
            f"--seeds {text}: seeds lie between 0 and {TUNING_SEED - 1}", f"{TUNING_SEED} is the seed of tuning runs"
        )
    return numbers


def choose_rungs(plan: Plan, names: Sequence[str]) -> tuple[ResolvedRung, ...]:
    """The rungs of those names, in ladder order; all of them without names."""
    known = [rung.name for rung in plan.rungs]
    for name in names:
        if name not in known:
            raise UsageError(f"{plan.ladder.path}: unknown rung {name!r}", hint_for(name, known, "rungs"))
    return tuple(rung for rung in plan.rungs if not names or rung.name in names)


def wanted_tuning(plan: Plan, rungs: Iterable[ResolvedRung]) -> list[Wanted]:
    """The tuning runs: each rung at each point of the grid, one seed."""
    return [
        _wanted(plan, _tuned(rung, point, "the tuning grid"), "tune", TUNING_SEED, k)
        for rung in rungs
        for k, point in enumerate(grid_points(plan.grid))
    ]


def wanted_final(
    plan: Plan, rung: ResolvedRung, seeds: Iterable[int], point: dict[str, Any] | None = None
) -> list[Wanted]:
    """The final runs of a rung; `point` holds the tuned values."""
    tuned = rung if point is None else _tuned(rung, point, "tuned on validation")
    return [_wanted(plan, tuned, "train", seed, 5000 + seed) for seed in seeds]


def choose_point(plan: Plan, results: Sequence[dict[str, float] | None]) -> dict[str, Any] | None:
    """The point of the grid that did best on validation; None where no point has a result.

    `results` holds the metrics of each point, in the order of `grid_points`. Of two equal scores the lower loss wins,
    then the earlier point.
    """
    scored = [
        (result["val/accuracy"], -result["val/loss"], -k)
        for k, result in enumerate(results)
        if result is not None and math.isfinite(result["val/loss"])
    ]
    return grid_points(plan.grid)[-max(scored)[-1]] if scored else None


def grid_points(grid: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of the grid's values, the first path slowest."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def common_settings(config: Mapping[str, Any], without: Sequence[str] = ()) -> dict[str, Any]:
    """What all seeds of a rung have in common: a run's configuration less its seed and the paths `without`."""
    try:
        table = shared_settings(config)
    except msgspec.ValidationError:
        strict.convert(config, RunConfig, "a run of the ledger")  # which says where
        raise
    if without:
        table = copy.deepcopy(table)
    for path in without:
        *sections, name = path.split(".")
        here = table
        for section in sections:
            here = here.get(section, {})
        here.pop(name, None)
    return table


def plain(value: Any) -> Any:
    """A config as the plain table that the ledger keeps."""
    return msgspec.to_builtins(value)


def _wanted(plan: Plan, rung: ResolvedRung, stage: str, seed: int, order: int) -> Wanted:
    config = msgspec.structs.replace(rung.config, seed=seed)  # a checked int: nothing else moves
    index = [r.name for r in plan.rungs].index(rung.name)
    return Wanted(
        fingerprint=fingerprint(config),
        task=config.task,
        rung=rung.name,
        stage=stage,
        seed=seed,
        steps=config.train.steps,
        config=plain(config),
        execution=plain(rung.execution),
        provenance={**rung.provenance, "seed": "the seed of tuning runs" if stage == "tune" else "the ladder's seeds"},
        position=index * 10_000 + order,
    )


def _tuned(rung: ResolvedRung, point: dict[str, Any], source: str) -> ResolvedRung:
    """The rung with the values of a point of the grid."""
    values = {path: (value, rung.provenance[path]) for path, value in rung.values.items()}
    for path, value in point.items():
        _put(values, path, value, source)
    config, execution = _convert(values, rung.config.task, rung.config.data, source)
    return msgspec.structs.replace(
        rung,
        values={path: value for path, (value, _) in values.items()},
        provenance=rung.provenance | dict.fromkeys(point, source),
        config=config,
        execution=execution,
    )


def _resolve(
    ladder: Ladder,
    recipe: Recipe,
    profile: str | None,
    shrink: Profile,
    sets: dict[str, Any],
    options: Options,
    provenance: dict[str, str],
) -> list[ResolvedRung]:
    data = {"version": tasks.get(recipe.task).version, **canonical(options)}
    provenance = {"task": recipe.path, "data.version": f"task {recipe.task}", **provenance}
    own = f"{recipe.path} [profile.{profile}]"
    values: _Values = {}
    for document, source in ((recipe, recipe.path), (shrink, own)):
        for path, value in settings({name: getattr(document, name) for name in SECTIONS}, source).items():
            _put(values, path, value, source)
    bases = ladder.bases
    resolved: dict[str, ResolvedRung] = {}
    inherited: dict[str, _Values] = {}
    used: set[str] = set()
    for rung in ladder.rungs:
        on = bases[rung.name]
        if on is not None:
            values = dict(inherited[on])
        source = f"{ladder.path}, rung {rung.name}"
        for path, value in settings(rung.change, source).items():
            _put(values, path, value, source)
        alone: _Values = {}
        given: set[str] = set()
        for document, where in ((recipe, recipe.path), (shrink, own)):
            source = f"{recipe.path} [rung.{rung.name}]" if document is recipe else f"{where[:-1]}.rung.{rung.name}]"
            for path, value in settings(document.rung.get(rung.name, {}), source).items():
                given.add(path)
                _put(values if path.startswith("model.") else alone, path, value, source)
        for path in rung.tunes:
            if path not in given:
                raise UsageError(
                    f"{recipe.path}: [rung.{rung.name}] gives no {path}, which ladder {ladder.name} leaves to it",
                    f"add {path} to [rung.{rung.name}], or write it into the ladder's rung",
                )
        inherited[rung.name] = values
        here = dict(values)
        for path, (value, source) in alone.items():
            _put(here, path, value, source)
        used |= _override(here, sets, kept=(recipe.path, own), rung=rung.name)
        resolved[rung.name] = _finish(rung, here, recipe, data, provenance, resolved[on] if on is not None else None)
    for path in sets:
        if path not in used:
            raise UsageError(
                f"--set {path}: no rung of this ladder has it", f"lrurun plan {recipe.task} shows what the rungs have"
            )
    return list(resolved.values())


def _put(values: _Values, path: str, value: Any, source: str) -> None:
    if path == KIND and path in values and values[path][0] != value:
        # another recurrence: the settings of the one before mean nothing to it
        for old in [p for p in values if p.startswith(_RECURRENCE)]:
            del values[old]
    # to the end: a rule about several values is laid to the one that was set last
    values.pop(path, None)
    values[path] = (value, source)


def _override(values: _Values, sets: dict[str, Any], *, kept: tuple[str, ...], rung: str) -> set[str]:
    """Puts `--set` values over a rung's own; the paths that it has.

    Raises:
        UsageError: another recurrence, where rungs set what only theirs has.
    """
    if KIND in sets:
        fields = _fields(sets[KIND])
        for path, (_, source) in values.items():
            if fields and path.startswith(_RECURRENCE) and path != KIND and source not in kept:
                if path.removeprefix(_RECURRENCE) not in fields:
                    raise UsageError(
                        f"--set {KIND}={sets[KIND]}: rung {rung} sets {path}, which this kind has not ({source})",
                        "leave it out: what the rungs change is the ladder's",
                    )
        _put(values, KIND, sets[KIND], f"--set {KIND}")
    fields = _fields(values[KIND][0] if KIND in values else None)
    used = set()
    for path, value in sets.items():
        if not path.startswith(_RECURRENCE) or path == KIND or path.removeprefix(_RECURRENCE) in fields:
            _put(values, path, value, f"--set {path}")
            used.add(path)
    return used


def _fields(kind: Any) -> tuple[str, ...]:
    return RECURRENCES[kind].__struct_fields__ if isinstance(kind, str) and kind in RECURRENCES else ()


def _finish(
    rung: Rung,
    values: _Values,
    recipe: Recipe,
    data: dict[str, Any],
    given: dict[str, str],
    base: ResolvedRung | None,
) -> ResolvedRung:
    config, execution = _convert(values, recipe.task, data, recipe.path)
    new = _full(config)
    provenance = dict.fromkeys([*new, *(f"execution.{field}" for field in execution.__struct_fields__)], "default")
    provenance |= {path: source for path, source in given.items() if path in new}
    provenance |= {"seed": "the ladder's seeds"} | {path: source for path, (_, source) in values.items()}
    old = _full(base.config) if base else new
    moves = tuple(
        # what another kind dropped is laid to the change of kind
        Move(path, old.get(path), new.get(path), provenance.get(path, provenance[KIND]))
        for path in {**old, **new}
        if old.get(path) != new.get(path)
    )
    return ResolvedRung(
        name=rung.name,
        title=rung.title,
        on=base.name if base else None,
        values={path: value for path, (value, _) in values.items()},
        provenance=provenance,
        config=config,
        execution=execution,
        moves=moves,
        same_as_before=base is not None and canonical(config) == canonical(base.config),
    )


class _Whole(RunConfig, frozen=True, kw_only=True):
    """Everything that paths may name, converted at once."""

    execution: Execution


def _convert(values: _Values, task: str, data: dict[str, Any], where: str) -> tuple[RunConfig, Execution]:
    table: dict[str, Any] = {"task": task, "data": data, "seed": 0, **{name: {} for name in SECTIONS}}
    sources: dict[str, str] = {}
    for path, (value, source) in values.items():
        *parents, name = path.split(".")
        here = table
        for parent in parents:
            here = here.setdefault(parent, {})
        here[name] = value
        sources[path] = sources[".".join(parents)] = source
    whole = strict.convert(table, _Whole, where, sources)
    config = RunConfig(**{name: getattr(whole, name) for name in RunConfig.__struct_fields__})
    return config, whole.execution


def _full(config: RunConfig) -> dict[str, Any]:
    return dict(flatten(plain(config)))

"""Ladder x recipe x seeds -> run configurations, and what each rung changes. No jax here."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, get_args

import msgspec
from msgspec import Struct

from lrurun import strict, tasks
from lrurun.catalog import Ladder, Profile, Recipe, flatten, get_profile, load_ladder, load_recipe
from lrurun.config import (
    TUNING_SEED,
    Execution,
    ModelConfig,
    OptimConfig,
    Recurrence,
    RunConfig,
    TrainConfig,
    canonical,
    fingerprint,
)
from lrurun.errors import UsageError, hint_for
from lrurun.ledger.values import Wanted

_KIND = "model.recurrence.kind"
_SECTIONS: dict[str, Any] = {"model": ModelConfig, "optim": OptimConfig, "train": TrainConfig, "execution": Execution}
_RECURRENCES = {member.__struct_config__.tag: member for member in get_args(Recurrence)}


class Move(Struct, frozen=True):
    """A value that a rung has and the rung before it has not."""

    path: str
    before: Any
    after: Any
    source: str


class ResolvedRung(Struct, frozen=True, kw_only=True):
    """A rung with every value in place, for any seed."""

    name: str
    title: str
    values: dict[str, Any]
    """Dotted path -> value, the seed left out."""
    provenance: dict[str, str]
    """Dotted path -> where its value came from."""
    config: RunConfig
    """With seed 0."""
    execution: Execution
    moves: tuple[Move, ...]
    same_as_before: bool
    """Its runs are those of the rung before."""


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
    rungs: tuple[ResolvedRung, ...]

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
    data = tasks.get(recipe.task)
    document = load_ladder(ladder)
    shrink = get_profile(recipe, profile)
    changes = sets if isinstance(sets, dict) else dict(parse_set(text) for text in sets)
    grid = shrink.tune or (recipe.tune.grid if recipe.tune else {})
    if tune and not grid:
        raise UsageError(f"{recipe.path}: has no grid to tune over", "add a table [tune.grid], or leave --tune out")
    rungs = _resolve(document, recipe, profile, shrink, changes, data.version)
    for path, values in grid.items():
        _tuned_values(rungs[0], {path: values[0]}, recipe.path)
        for value in values:
            _tuned(rungs[0], {path: value}, f"{recipe.path} [tune.grid]")
    return Plan(
        ladder=document,
        recipe=recipe,
        profile=profile,
        seeds=shrink.seeds or recipe.seeds,
        changes={path: value for path, value in changes.items() if not path.startswith("execution.")},
        tune=tune,
        grid=grid,
        rungs=tuple(rungs),
    )


def parse_set(text: str) -> tuple[str, Any]:
    """`a.b=value`, the value in TOML; a word that is not TOML is a string.

    Raises:
        UsageError: no `=`, an unknown table or field.
    """
    path, equals, word = text.partition("=")
    path = path.strip()
    if not equals or not path:
        raise UsageError(f"--set {text}: expected path=value", "as in --set optim.lr=0.002")
    try:
        value = tomllib.loads(f"x = {word}")["x"]
    except tomllib.TOMLDecodeError:
        value = word
    if path in ("seed", "seeds"):
        raise UsageError(f"--set {path}: seeds are not set this way", "use --seeds 0,1,2")
    known = known_paths()
    if path not in known:
        raise UsageError(f"--set {path}: unknown path", hint_for(path, known, "paths"))
    return path, value


def known_paths() -> list[str]:
    """Every dotted path that a ladder, a recipe or `--set` may name."""
    paths = []
    for section, type_ in _SECTIONS.items():
        for field in msgspec.structs.fields(type_):
            if section == "model" and field.name == "recurrence":
                names = {name: None for member in _RECURRENCES.values() for name in member.__struct_fields__}
                paths += [_KIND, *(f"model.recurrence.{name}" for name in names)]
            else:
                paths.append(f"{section}.{field.name}")
    return paths


def seeds_of(text: str) -> tuple[int, ...]:
    """`3` means 0, 1, 2; `0,4,7` is a list.

    Raises:
        UsageError: no number, none, one twice, or one kept for tuning.
    """
    hint = "a number of seeds, as in --seeds 3, or a list, as in --seeds 0,4,7"
    try:
        numbers = [int(part) for part in text.rstrip(",").split(",")] if "," in text else list(range(int(text)))
    except ValueError:
        raise UsageError(f"--seeds {text}: not a number", hint) from None
    if not numbers or (("," not in text) and int(text) < 1):
        raise UsageError(f"--seeds {text}: at least one seed is needed", hint)
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"--seeds {text}: a seed is named twice", hint)
    if min(numbers) < 0 or max(numbers) >= TUNING_SEED:
        raise UsageError(
            f"--seeds {text}: seeds lie between 0 and {TUNING_SEED - 1}", f"{TUNING_SEED} is the seed of tuning runs"
        )
    return tuple(numbers)


def choose_rungs(plan: Plan, names: Sequence[str]) -> tuple[ResolvedRung, ...]:
    """The rungs of those names, in ladder order; all of them without names."""
    known = [rung.name for rung in plan.rungs]
    for name in names:
        if name not in known:
            raise UsageError(f"{plan.ladder.path}: unknown rung {name!r}", hint_for(name, known, "rungs"))
    return tuple(rung for rung in plan.rungs if not names or rung.name in names)


def wanted_tuning(plan: Plan, rungs: Iterable[ResolvedRung]) -> list[Wanted]:
    """The tuning runs: each rung at each point of the grid, one seed."""
    wanted = []
    for rung in rungs:
        for k, point in enumerate(grid_points(plan.grid)):
            tuned = _tuned(rung, point, "the tuning grid")
            wanted.append(_wanted(plan, rung, tuned, "tune", TUNING_SEED, k))
    return wanted


def wanted_final(
    plan: Plan, rung: ResolvedRung, seeds: Iterable[int], point: dict[str, Any] | None = None
) -> list[Wanted]:
    """The final runs of a rung; `point` holds the tuned values."""
    values = (
        (rung.values, rung.provenance, rung.config) if point is None else _tuned(rung, point, "tuned on validation")
    )
    return [_wanted(plan, rung, values, "train", seed, 5000 + seed) for seed in seeds]


def grid_points(grid: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of the grid's values, the first path slowest."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def _wanted(
    plan: Plan,
    rung: ResolvedRung,
    values: tuple[dict[str, Any], dict[str, str], RunConfig],
    stage: str,
    seed: int,
    order: int,
) -> Wanted:
    _, provenance, config = values
    config = msgspec.structs.replace(config, seed=seed)  # a checked int: nothing else moves
    index = [r.name for r in plan.rungs].index(rung.name)
    return Wanted(
        fingerprint=fingerprint(config),
        task=config.task,
        rung=rung.name,
        stage=stage,
        seed=seed,
        steps=config.train.steps,
        config=msgspec.to_builtins(config),
        execution=msgspec.to_builtins(rung.execution),
        provenance=provenance,
        position=index * 10_000 + order,
    )


def _tuned_values(rung: ResolvedRung, point: dict[str, Any], where: str) -> None:
    for path in point:
        if path not in known_paths() or path.startswith("execution."):
            raise UsageError(f"{where} [tune.grid]: unknown path {path!r}", hint_for(path, known_paths(), "paths"))


def _tuned(rung: ResolvedRung, point: dict[str, Any], source: str) -> tuple[dict[str, Any], dict[str, str], RunConfig]:
    values = {**rung.values, **point}
    provenance = {**rung.provenance, **dict.fromkeys(point, source)}
    config, _ = _convert(values, provenance, rung.config.data.version, rung.config.task)
    return values, provenance, config


def _resolve(
    ladder: Ladder, recipe: Recipe, profile: str | None, shrink: Profile, sets: dict[str, Any], version: str
) -> list[ResolvedRung]:
    values: dict[str, Any] = {}
    provenance: dict[str, str] = {}

    def put(path: str, value: Any, source: str) -> None:
        if path not in known_paths():
            raise UsageError(f"{source}: unknown path {path!r}", hint_for(path, known_paths(), "paths"))
        if path == _KIND and values.get(path, value) != value:
            # another recurrence: the settings of the one before mean nothing to it
            for old in [p for p in values if p.startswith("model.recurrence.")]:
                del values[old], provenance[old]
        values[path] = value
        provenance[path] = source

    for section in _SECTIONS:
        for path, value in flatten(getattr(recipe, section), f"{section}."):
            put(path, value, recipe.path)
        for path, value in flatten(getattr(shrink, section), f"{section}."):
            put(path, value, f"{recipe.path} [profile.{profile}]")
    tables = {name: (dict(flatten(table)), f"{recipe.path} [rung.{name}]") for name, table in recipe.rung.items()}
    overrides = {
        name: (dict(flatten(table)), f"{recipe.path} [profile.{profile}.rung.{name}]")
        for name, table in shrink.rung.items()
    }
    resolved: list[ResolvedRung] = []
    for rung in ladder.rungs:
        source = f"{ladder.path}, rung {rung.name}"
        # the recurrence's kind first: it starts the table that the others fill
        for path in sorted(rung.change, key=lambda p: p != _KIND):
            put(path, rung.change[path], source)
        alone: dict[str, tuple[Any, str]] = {}
        given: set[str] = set()
        for table, table_source in filter(None, (tables.get(rung.name), overrides.get(rung.name))):
            for path, value in table.items():
                given.add(path)
                if path.startswith("model."):
                    put(path, value, table_source)
                elif path.startswith("optim."):
                    alone[path] = (value, table_source)
                else:
                    raise UsageError(
                        f"{table_source}: {path!r} cannot differ between rungs", "a rung may set model.* and optim.*"
                    )
        for path in rung.tunes:
            if path not in known_paths():
                raise UsageError(f"{source}: unknown path {path!r}", hint_for(path, known_paths(), "paths"))
            if path not in given:
                raise UsageError(
                    f"{recipe.path}: [rung.{rung.name}] gives no {path}, which ladder {ladder.name} leaves to it",
                    f"add {path} to [rung.{rung.name}], or write it into the ladder's rung",
                )
        here = {**values, **{path: value for path, (value, _) in alone.items()}}
        whence = {**provenance, **{path: where for path, (_, where) in alone.items()}}
        resolved.append(_finish(rung.name, rung.title, here, whence, sets, recipe.task, version, resolved))
    _check_sets(resolved, sets)
    return resolved


def _finish(
    name: str,
    title: str,
    values: dict[str, Any],
    provenance: dict[str, str],
    sets: dict[str, Any],
    task: str,
    version: str,
    before: list[ResolvedRung],
) -> ResolvedRung:
    kind = sets.get(_KIND, values.get(_KIND))
    fields = _RECURRENCES[kind].__struct_fields__ if kind in _RECURRENCES else ()
    for path, value in sets.items():
        setting = path.removeprefix("model.recurrence.")
        if setting != path and path != _KIND and setting not in fields:
            continue
        values[path] = value
        provenance[path] = f"--set {path}"
    config, execution = _convert(values, provenance, version, task)
    moves: list[Move] = []
    same = False
    if before:
        old, new = _full(before[-1].config), _full(config)
        for path in {**old, **new}:
            if old.get(path) != new.get(path):
                moves.append(Move(path, old.get(path), new.get(path), provenance.get(path, "the recurrence's default")))
        same = canonical(config) == canonical(before[-1].config)
    return ResolvedRung(
        name=name,
        title=title,
        values=values,
        provenance=provenance,
        config=config,
        execution=execution,
        moves=tuple(moves),
        same_as_before=same,
    )


def _convert(
    values: dict[str, Any], provenance: dict[str, str], version: str, task: str
) -> tuple[RunConfig, Execution]:
    table: dict[str, Any] = {"task": task, "data": {"version": version}, "seed": 0}
    execution: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        here = table if sections[0] != "execution" else {"execution": execution}
        for section in sections:
            here = here.setdefault(section, {})
        here[name] = value
    for section in _SECTIONS:
        if section != "execution":
            table.setdefault(section, {})
    sources = {**provenance}
    for path, source in provenance.items():
        # an error of a whole table is laid to the last file that wrote into it
        sources[path.rpartition(".")[0]] = source
    config = strict.convert(table, RunConfig, f"the run of {task}", sources)
    settings = {f"execution.{k}": v for k, v in execution.items()}
    at = {k.removeprefix("execution."): v for k, v in sources.items() if k in settings}
    where = next(iter(at.values()), "execution")
    return config, strict.convert(execution, Execution, where, at)


def _check_sets(rungs: list[ResolvedRung], sets: dict[str, Any]) -> None:
    for path in sets:
        if not any(path in rung.values and rung.provenance[path] == f"--set {path}" for rung in rungs):
            raise UsageError(
                f"--set {path}: no rung of this ladder has it", "lrurun plan TASK shows what each rung has"
            )


def plain(value: Any) -> Any:
    """A config as the plain table that the ledger keeps."""
    return msgspec.to_builtins(value)


def _full(config: RunConfig) -> dict[str, Any]:
    return dict(flatten(msgspec.to_builtins(config)))

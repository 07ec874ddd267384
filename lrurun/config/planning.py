"""A ladder on a recipe: every rung resolved, the tuning, the data, and the runs that it needs. No jax here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec
from msgspec import Struct

from lrurun import decoding, paths, plugins
from lrurun.config import imported, names, programs, tuning_grid
from lrurun.config.fingerprint import fingerprint
from lrurun.config.instance import Instance
from lrurun.config.ladder import Ladder, Rung, default_ladder, load_ladder, load_packages, metric_rules, outside_scope
from lrurun.config.recipe import (
    INSTEAD_OF_EXTEND,
    Profile,
    Recipe,
    Tried,
    check_scopes,
    get_profile,
    load_recipe,
    read_recipe,
)
from lrurun.config.recurrences.lru import LRUSettings
from lrurun.config.recurrences.rnn import RNNSettings
from lrurun.config.resolve import RATE, RateSource, full, resolve, with_point
from lrurun.config.resolve import ResolvedRung as ResolvedRung
from lrurun.config.runs import InstanceSpec, PlannedRun, pack
from lrurun.config.schema import OTHER_FORMS, TUNING_SEED, Execution, RunConfig, RunKind
from lrurun.config.search import Search, search_of
from lrurun.config.unknown_settings import check_set, path_fault, setting_faults
from lrurun.data import tasks
from lrurun.data.outside import OutsideTask
from lrurun.data.task import Options, Task
from lrurun.errors import UsageError, hint_for, plural, raise_first


class Plan(Struct, frozen=True, kw_only=True):
    """A ladder instance, resolved."""

    ladder: Ladder
    recipe: Recipe
    profile: str | None
    seeds: int
    """The number of seeds where `--seeds` is not used."""
    changes: dict[str, Any]
    """The values of `--set` that have an effect, without settings of execution. Other values make another instance."""
    tune: bool
    extend: int = 0
    """How many values tuning may add to the grid of each rung, see `lrurun.config.tuning`."""
    rungs: tuple[ResolvedRung, ...]
    options: Options
    """Settings of the data."""
    data_name: str
    """Name of the task's folder in the data folder."""

    @property
    def task(self) -> Task:
        return task_of(self.recipe)

    @property
    def kind(self) -> RunKind:
        """The kind of its runs."""
        return self.recipe.kind

    @property
    def is_of_models(self) -> bool:
        """Whether lrurun's own models are trained, on data that it knows."""
        return self.kind == "training"

    @property
    def is_trained_here(self) -> bool:
        """Whether lrurun can make its runs; imported ones were made elsewhere."""
        return self.kind != "imported"

    @property
    def identity(self) -> Instance:
        """The identity of the instance; neither a ledger nor the data are known here."""
        ladder, task = self.ladder.name, self.recipe.task
        return Instance(
            ladder=ladder, task=task, profile=self.profile, set=self.changes, tune=self.tune, extend=self.extend,
            kind=self.kind,
        )  # fmt: skip

    @property
    def spec(self) -> InstanceSpec:
        """What distinguishes this instance from others of the same ladder, task and profile."""
        return InstanceSpec(set=self.changes, tune=self.tune, extend=self.extend, digest=self._digest)

    @property
    def _digest(self) -> str:
        """A digest of everything that determines the runs, whichever documents it comes from: the rungs with their
        bases and settings and, with `tune`, their grids and the search."""
        if self.recipe.imported is not None:  # whose rungs have the settings of their runs, which may change
            table = self.recipe.imported
            conditions = [[rung.name, self.ladder.bases[rung.name], rung.where] for rung in self.ladder.rungs]
            document = [conditions, msgspec.to_builtins(table.reading), table.choose]
            return hashlib.sha256(msgspec.json.encode(document)).hexdigest()[:12]
        rungs = [[rung.name, rung.on, fingerprint(rung.config)] for rung in self.rungs]
        tuned: list[Any] = [self.search, len(self.tuning_seeds), [list(rung.grid.items()) for rung in self.rungs]]
        tuned += [self.extend] if self.extend else []
        return hashlib.sha256(msgspec.json.encode([rungs, tuned if self.tune else None])).hexdigest()[:12]

    @property
    def name_parts(self) -> names.NameParts:
        """The facts that distinguish the instance from others, of which its name is made."""
        recipe, ladder = Path(self.recipe.path).stem, Path(self.ladder.path).stem or self.ladder.name
        extended = None if self.extend_option is None else f"extend{self.extend_option}"
        is_plain = ladder == "lru" or self.ladder.path == self.recipe.path
        return names.NameParts(
            files=(recipe if recipe and self.is_trained_here else self.recipe.task, *([] if is_plain else [ladder])),
            options=tuple(filter(None, [self.profile, "tune" if self.tune else None, extended])),
            changes=self.changes,
        )

    @property
    def short_name(self) -> str:
        """A name for people to type, as in "npDigits-smoke", "npDigits-lr0.01" and "search-rotrnn-tune".

        Where a ledger has another instance of this name, `lrurun.instances.naming` says what to choose.
        """
        return names.proposed(self.name_parts)

    @property
    def search(self) -> Search | None:
        """The search of the recipe or profile; None for a grid."""
        return search_of(self.recipe, self.profile)

    @property
    def tuning_seeds(self) -> range:
        """The seeds that each point of the grid, or trial of the search, is trained with."""
        return range(TUNING_SEED, TUNING_SEED + tuning_grid.seeds_of(self.recipe, self.profile))

    @property
    def extend_option(self) -> int | None:
        """The value of `--extend` that makes this instance; None where it makes no difference."""
        is_as_declared = self.extend == tuning_grid.extension_of(self.recipe, self.profile)
        return None if not self.tune or is_as_declared or not _is_extensible(self.rungs) else self.extend

    @property
    def grid(self) -> dict[str, Tried]:
        """Dotted path -> values to try, or their range, in the first rung that tunes the path."""
        return {path: values for rung in reversed(self.rungs) for path, values in rung.grid.items()}

    def free(self, rung: str) -> tuple[str, ...]:
        """The paths that tuning chooses for a rung."""
        return tuple(path for resolved in self.rungs if self.tune and resolved.name == rung for path in resolved.grid)

    @property
    def same_as_base(self) -> frozenset[str]:
        """The rungs that share all runs with their base."""
        return frozenset(rung.name for rung in self.rungs if rung.same_as_base)

    @property
    def steps_path(self) -> str | None:
        """The setting with the number of steps of a run; None where a program has none."""
        if self.recipe.imported is not None:
            return None
        if self.recipe.program is None:
            return "train.steps"
        return self.recipe.program.steps if isinstance(self.recipe.program.steps, str) else None

    def value(self, path: str) -> Any:
        """The value of a setting in the first rung that has it."""
        configs = (full(rung.config) for rung in self.rungs)
        return next((config[path] for config in configs if path in config), None)

    @property
    def length(self) -> int:
        """The number of steps of the task's sequences, or of the longest one where lengths vary."""
        return self.task.spec(self.options).length

    def depth(self, rung: str) -> int:
        """The number of layers of a rung."""
        return self._training(rung).model.depth

    def _training(self, rung: str) -> RunConfig:
        return next(resolved.training for resolved in self.rungs if resolved.name == rung)

    @property
    def outside_scope(self) -> dict[str, str]:
        """Text of a claim -> why it is not about these sequences, networks and trainings, for each that is not."""
        if self.kind != "training":  # whose sequences and networks are not known; its claims have no such scope
            return {}
        reasons = {
            claim.text: outside_scope(
                claim,
                self.length,
                self.depth(claim.rung),
                decays=self._training(claim.rung).optim.weight_decay > 0,
            )
            for claim in self.ladder.claims
        }
        return {text: reason for text, reason in reasons.items() if reason}

    def with_sets(self, sets: Mapping[str, Any]) -> Plan:
        """The plan of the instance with these values of `--set` instead. Raises UsageError."""
        return of_documents(
            self.ladder, self.recipe, profile=self.profile, sets=sets, tune=self.tune, extend=self.extend_option
        )

    def cautions(self, rungs: Collection[str]) -> list[str]:
        """Sentences for reports about side effects: what these rungs change beyond their declared change."""
        shown = {rung.name: rung for rung in self.rungs if rung.name in rungs and self.kind == "training"}
        return [
            f"{rung.name} starts with a larger spectral radius than {rung.on}, whose initial matrix is {matrix}. The "
            "ladder controls separates this from the change of form"
            for rung in shown.values()
            if rung.on in shown and (matrix := _smaller_radius(rung, shown[rung.on]))
        ]


def make(
    task: str,
    *,
    ladder: str | None = None,
    profile: str | None = None,
    sets: Mapping[str, Any] = MappingProxyType({}),
    tune: bool = False,
    extend: int | None = None,
    imports: bool = True,
) -> Plan:
    """Reads the documents and resolves every rung; with `imports`, loads the plug-ins that they name.

    Raises:
        UsageError: unknown names, wrong values, rungs that change unknown fields, plug-ins that cannot be loaded.
    """
    document = load_ladder(ladder or default_ladder(task), imports=imports)
    recipe = load_recipe(task, imports=imports)
    return of_documents(document, recipe, profile=profile, sets=sets, tune=tune, extend=extend, imports=imports)


def of_documents(
    document: Ladder,
    recipe: Recipe,
    *,
    profile: str | None,
    sets: Mapping[str, Any],
    tune: bool,
    extend: int | None = None,
    imports: bool = False,
    files: Mapping[str, str] | None = None,
) -> Plan:
    """Makes a plan like `make`, from documents that have been read; `sets` are the values of `--set`, `extend` is that
    of `--extend`, `files` is as for `resolve`."""
    check_scopes(document, recipe)
    if extend is not None and not tune:
        raise UsageError("--extend: belongs to --tune", "add --tune, or leave it out")
    settable = recipe.known
    for declared in document.rungs:
        where = f"{document.path}, rung {declared.name}"
        raise_first(setting_faults(declared.change, where, known=settable))
        raise_first(_rung_path_faults(declared, where, settable))
    if recipe.program is not None:
        raise_first(_program_claims(document))
    raise_first(imported.ladder_faults(document, recipe.imported))
    raise_first(metric_rules(document, task_of(recipe), _profiles(recipe)))
    reduced = get_profile(recipe, profile)
    if recipe.imported is not None:
        return _of_import(document, recipe, sets, tune=tune)
    used = document.kinds.values()
    known = None if recipe.program is None else settable
    for path in sets:
        check_set(path, used, known)
        if (other := OTHER_FORMS.get(path)) in sets:
            raise UsageError(f"--set {path}: is set in another form too, --set {other}", "leave one of them out")
    changes = dict(sets)
    if imports:
        load_packages(changes)
    options, data_sources = _data(recipe, profile, reduced)

    def resolved(changes: Mapping[str, Any]) -> list[ResolvedRung]:
        return resolve(document, recipe, profile, dict(changes), options, data_sources, tune=tune, files=files)

    rungs = resolved(changes)
    if len(effective := _effective(changes, rungs, resolved, tune=tune)) < len(changes):
        changes, rungs = effective, resolved(effective)
    for rung in rungs:
        if recipe.program is None:
            _check_protocol(rung, recipe)
            _check_length(rung, options)
            _check_pooling(rung, options)
            _check_frame(rung, options)
        for path, (values, source) in rung.tried.items():
            for value in tuning_grid.examples(values):
                tried = with_point(rung, {path: value}, source, recipe)
                if recipe.program is None:
                    _check_length(tried, options)
    if tune and not any(rung.tried for rung in rungs):
        raise _nothing_to_tune(document, recipe, profile, changes)
    added = _extension(recipe, profile, rungs, extend) if tune else 0
    typed = {path: value for rung in reversed(rungs) for path, value in full(rung.config).items()}
    # as converted: 1 and 1.0 are one instance
    changes = {path: typed[path] for path in changes if not path.startswith("execution.")}
    return of_rungs(document, recipe, rungs, profile=profile, changes=changes, tune=tune, extend=added)


def _extension(recipe: Recipe, profile: str | None, rungs: Sequence[ResolvedRung], extend: int | None) -> int:
    """How many values tuning may add to the grid of each rung: as `--extend` says, else the profile or the recipe.

    Raises:
        UsageError: `--extend` of a search, or of grids that it cannot extend.
    """
    if extend and (search := search_of(recipe, profile)) is not None:
        raise UsageError(f"--extend {extend}: is for a grid, and the recipe has a {search.text}", INSTEAD_OF_EXTEND)
    if _is_extensible(rungs):
        return tuning_grid.extension_of(recipe, profile) if extend is None else extend
    if extend:
        raise UsageError(
            f"--extend {extend}: no rung tries two or more numbers, whose ratio gives the next one",
            "list two numbers in [tune.grid], or leave it out",
        )
    return 0


def _is_extensible(rungs: Iterable[ResolvedRung]) -> bool:
    return any(tuning_grid.extensible(rung.grid) for rung in rungs)


def fits(plan: Plan, rung: ResolvedRung, point: dict[str, Any]) -> bool:
    """Whether the values of a point are valid for a rung: within the limits of each setting, and together."""
    try:
        tried = with_point(rung, point, plan.recipe.path, plan.recipe)
        if plan.is_of_models:
            _check_length(tried, plan.options)
            _check_frame(tried, plan.options)
    except UsageError:
        return False
    return True


def _rung_path_faults(rung: Rung, where: str, settable: Collection[str]) -> Iterator[UsageError]:
    """Faults of the settings that a rung names beside its change, where the recipe does not have them."""
    names = {"resets": rung.resets, "tune": rung.tune, "lr": () if rung.lr is None else (RATE,)}
    for name, settings in names.items():
        for path in settings:
            if fault := path_fault(path, f"{where}, {name}", known=settable):
                yield fault


def _of_import(document: Ladder, recipe: Recipe, sets: Mapping[str, Any], *, tune: bool) -> Plan:
    """The plan of imported runs, of which the documents know the conditions of rungs and not their settings.

    Raises:
        UsageError: a value of `--set`, or a request to tune.
    """
    for option in (*(f"--set {path}" for path in sets), *(["--tune"] if tune else [])):
        hint = "what they were trained with cannot be changed; the rungs are in the file"
        raise UsageError(f"{recipe.path}, {option}: these runs were imported", hint)
    assert recipe.imported is not None
    table = recipe.imported
    config = imported.config_of_rung(recipe.task, table)
    source = RateSource("elsewhere", "as the runs were made elsewhere; whether they were tuned is not known")
    if table.choose:
        source = RateSource("chosen", f"{', '.join(table.choose)} chosen for each rung by {table.metric_for_choice}")
    bases = document.bases
    rungs = [
        ResolvedRung(
            name=rung.name,
            title=rung.title,
            on=bases[rung.name],
            values={},
            sources={},
            config=config,
            execution=Execution(),
            steps=0,
            differences=(),
            same_as_base=False,
            rate_source=source,
        )
        for rung in document.rungs
    ]
    return of_rungs(document, recipe, rungs, profile=None, changes={}, tune=False)


def _program_claims(ladder: Ladder) -> Iterator[UsageError]:
    """Faults of claims that cannot be judged of programs, of which lrurun knows neither length, depth nor steps."""
    for claim in ladder.claims:
        if claim.has_scope or claim.is_about_speed:
            yield UsageError(
                f"{ladder.path}, claim {claim.text!r}: speed, min_length, depth and decays of a program are not known",
                "claim something about scores",
            )


def of_rungs(
    document: Ladder,
    recipe: Recipe,
    rungs: Iterable[ResolvedRung],
    *,
    profile: str | None,
    changes: dict[str, Any],
    tune: bool,
    extend: int = 0,
) -> Plan:
    """The plan with these rungs, which have been resolved.

    Raises:
        UsageError: an unknown profile or task, or a setting that the task does not have.
    """
    reduced = get_profile(recipe, profile)
    return Plan(
        ladder=document,
        recipe=recipe,
        profile=profile,
        seeds=reduced.seeds or recipe.seeds,
        changes=changes,
        tune=tune,
        extend=extend,
        rungs=tuple(rungs),
        options=_data(recipe, profile, reduced)[0],
        data_name=_data_name(recipe, profile, reduced),
    )


def _effective(
    changes: Mapping[str, Any],
    rungs: Sequence[ResolvedRung],
    resolved: Callable[[Mapping[str, Any]], Sequence[ResolvedRung]],
    *,
    tune: bool,
) -> dict[str, Any]:
    """The values of `--set` without those that the rungs have anyway, which do not make another instance."""

    def settings(rungs: Sequence[ResolvedRung]) -> list[Any]:
        return [(rung.config, rung.grid if tune else None) for rung in rungs]

    for path in changes:
        if path.startswith("execution."):
            continue
        fewer = {name: value for name, value in changes.items() if name != path}
        try:
            rungs_without = resolved(fewer)
        except UsageError:  # another value needs this one
            continue
        if settings(rungs_without) == settings(rungs):
            changes = fewer
    return dict(changes)


def _smaller_radius(rung: ResolvedRung, base: ResolvedRung) -> str:
    """How a dense base has a smaller radius than the unit disk of its diagonal rung; empty if it does not."""
    before, after = base.training.model.recurrence, rung.training.model.recurrence
    if not isinstance(before, RNNSettings) or not isinstance(after, LRUSettings) or after.r_max < 1.0:
        return ""
    if 0.0 < before.radius < 1.0:
        return f"scaled: about 1 instead of {before.radius:g}"
    return "truncated: about 1 instead of 0.9" if before.draw == "truncated" and not before.radius else ""


def _nothing_to_tune(ladder: Ladder, recipe: Recipe, profile: str | None, changes: dict[str, Any]) -> UsageError:
    tables = [table for rung in ladder.rungs for table in recipe.tables(ladder, rung, profile)]
    paths = dict.fromkeys(
        [*tuning_grid.common_grid(recipe, profile), *(path for table in tables for path in table.notes.tune)]
    )
    if not paths:
        return UsageError(f"{recipe.path}: has no grid to tune over", "add a table [tune.grid], or omit --tune")
    if fixed := [path for path in paths if path in changes]:
        return UsageError(f"--tune: --set fixes every setting in the grid: {', '.join(fixed)}", "omit one of them")
    return UsageError(
        f"--tune: no rung of ladder {ladder.name} has the settings in the grid: {', '.join(paths)}",
        "add settings of its rungs to [tune.grid], or omit --tune",
    )


def _check_protocol(rung: ResolvedRung, recipe: Recipe) -> None:
    known = task_of(recipe).protocols
    if rung.training.train.protocol not in known:
        at = decoding.path_in(rung.sources.get("train.protocol", recipe.path), "train.protocol")
        rule = f"{recipe.task} has no protocol {rung.training.train.protocol!r}"
        raise UsageError(f"{at}: {rule}", f"protocols of this task: {', '.join(known)}")


def _check_length(rung: ResolvedRung, options: Options) -> None:
    """Refuse a rung whose recurrence does not fit the length of the task's sequences."""
    config = rung.training
    task = tasks.get(config.task, config.data)
    lengths = [task.spec(split).length for split in (options, *task.further_tests(options).values())]
    # the recurrence is built for the training length, even where further test splits have longer sequences
    recurrence = config.model.recurrence.at_length(lengths[0])
    try:
        for length in sorted(set(lengths)):
            recurrence.fits_length(length)
    except ValueError as error:
        path = "model.recurrence.kernel_length"
        at = decoding.path_in(rung.sources.get(path, config.task), path)
        raise UsageError(f"{at}: {error}", f"the length of the sequences always fits: {path} = {length}") from None


def _check_pooling(rung: ResolvedRung, options: Options) -> None:
    """Refuse a pooling where every position has an output: it would change nothing."""
    config, source = rung.training, rung.sources.get("model.pooling", "default")
    if tasks.get(config.task, config.data).spec(options).output.at == "positions" and source != "default":
        at = decoding.path_in(source, "model.pooling")
        raise UsageError(f"{at}: {config.task} has outputs at positions, which are not pooled", "remove it")


def _check_frame(rung: ResolvedRung, options: Options) -> None:
    """Refuse recurrences without a frame where inputs or outputs do not have their width."""
    config = rung.training
    model, spec = config.model, tasks.get(config.task, config.data).spec(options)
    if model.frame == "blocks" or (spec.kind == "features" and spec.features == spec.classes == model.width):
        return
    at = decoding.path_in(rung.sources.get("model.frame", "default"), "model.frame")
    inputs = "tokens" if spec.kind == "tokens" else f"inputs of size {spec.features}"
    sizes = f"{config.task} has {inputs} and outputs of size {spec.classes}, width is {model.width}"
    is_square = spec.kind == "features" and spec.features == spec.classes
    hint = f"set model.width = {spec.features}" if is_square else "remove it"
    raise UsageError(f'{at}: frame = "none" needs inputs and outputs of the size of width, found: {sizes}', hint)


def data_of(task: str, profile: str | None = None) -> tuple[Task, Options, str]:
    """The task of a recipe, the settings of its data, and the name of their folder.

    Raises:
        UsageError: an unknown name, or a setting that the task does not have.
    """
    recipe = load_recipe(task)
    if recipe.kind != "training":
        has = "a program" if recipe.program is not None else "imported runs"
        raise UsageError(f"{recipe.path}: has {has}, whose data lrurun does not know", "name another task")
    reduced = get_profile(recipe, profile)
    options, _ = _data(recipe, profile, reduced)
    return task_of(recipe), options, _data_name(recipe, profile, reduced)


def task_of(recipe: Recipe) -> Task:
    """The task of a recipe.

    Raises:
        UsageError: an unknown name, or wrong settings of imported arrays.
    """
    if recipe.kind != "training":
        if recipe.task in tasks.TASKS:
            table = "[program]" if recipe.imported is None else "[import]"
            raise UsageError(
                f"{recipe.path}, task: {recipe.task!r} is a task of lrurun, and this recipe has a table {table}",
                "choose another name",
            )
    if recipe.imported is not None:
        read = f"runs imported from {', '.join(recipe.imported.source)}"
        return OutsideTask(recipe.task, read, imported.metric_of(recipe.imported), recipe.imported.test_items)
    if recipe.program is not None:
        program = recipe.program
        title = f"a program: {' '.join(program.command)}"
        return OutsideTask(recipe.task, title, programs.metric_of(program), program.test_items)
    if tasks.IMPORTED not in recipe.data and recipe.task not in tasks.TASKS:
        raise UsageError(f"{recipe.path}, task: unknown task {recipe.task!r}", tasks.hint(recipe.task))
    task = tasks.get(recipe.task, recipe.data, f"{recipe.path} [data]")
    if plugins.source_of("task", recipe.task) is not None:
        task.recipe = recipe.path
    return task


def _profiles(recipe: Recipe) -> list[str]:
    """The profiles of a recipe and of the packaged recipe of its task: published scores may name any of them."""
    packaged = paths.packaged("recipes") / f"{recipe.task}.toml"
    if recipe.is_packaged or not packaged.is_file():
        return list(recipe.profile)
    return [*recipe.profile, *read_recipe(str(packaged)).profile]


def _data_name(recipe: Recipe, profile: str | None, reduced: Profile) -> str:
    """The name of the folder of the data; a profile that changes the data has its own folder."""
    return f"{recipe.task}-{profile}" if reduced.data else recipe.task


def _data(recipe: Recipe, profile: str | None, reduced: Profile) -> tuple[Options, dict[str, str]]:
    """The settings of the data, and the source of each."""
    if tasks.IMPORTED in recipe.data and reduced.data:
        raise UsageError(
            f"{recipe.path} [profile.{profile}.data]: the settings of imported arrays cannot be changed",
            "import fewer or shorter examples under another name",
        )
    sources = dict.fromkeys(recipe.data, f"{recipe.path} [data]")
    sources |= dict.fromkeys(reduced.data, f"{recipe.path} [profile.{profile}.data]")
    options = decoding.convert(recipe.data | reduced.data, task_of(recipe).options, f"{recipe.path} [data]", sources)
    return options, {f"data.{name}": source for name, source in sources.items()}


def choose_rungs(plan: Plan, names: Sequence[str]) -> tuple[ResolvedRung, ...]:
    """The rungs with these names, in ladder order; without names, all rungs. Raises UsageError."""
    chosen = rung_names(plan.ladder, names)
    return tuple(rung for rung in plan.rungs if rung.name in chosen)


def rung_names(ladder: Ladder, names: Sequence[str]) -> list[str]:
    """These names in ladder order; without names, the names of all rungs.

    Raises:
        UsageError: an unknown name.
    """
    known = [rung.name for rung in ladder.rungs]
    for name in names:
        if name not in known:
            raise UsageError(f"{ladder.path}: unknown rung {name!r}", hint_for(name, known, "rungs"))
    return [name for name in known if not names or name in names]


def final_runs(
    plan: Plan, rung: ResolvedRung, seeds: Iterable[int], point: dict[str, Any] | None = None
) -> list[PlannedRun]:
    """The final runs of a rung, with the tuned values of `point`."""
    source = f"tuned on validation with {plural(len(plan.tuning_seeds), 'seed')}"
    tuned = rung if point is None else with_point(rung, point, source, plan.recipe)
    return [planned_run(plan, tuned, "train", seed, seed) for seed in seeds]


def planned_run(
    plan: Plan, rung: ResolvedRung, stage: Literal["tune", "train"], seed: int, point_or_seed: int
) -> PlannedRun:
    config = msgspec.structs.replace(rung.config, seed=seed)  # a checked int: nothing else changes
    index = [resolved.name for resolved in plan.rungs].index(rung.name)
    return PlannedRun(
        fingerprint=fingerprint(config),
        kind=plan.kind,
        task=config.task,
        rung=rung.name,
        stage=stage,
        seed=seed,
        steps=rung.steps,
        config=config,
        execution=rung.execution,
        sources={**rung.sources, "seed": "the seeds of tuning runs" if stage == "tune" else "the ladder's seeds"},
        position=pack(index, stage, point_or_seed),
    )

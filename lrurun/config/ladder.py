"""Ladders: the tables of their TOML files, the claims of papers, the reading of the files, and their rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, field

from lrurun import decoding, paths, plugins
from lrurun.config.schema import KIND, OPTIMIZER
from lrurun.config.settings import flatten
from lrurun.config.unknown_settings import other_form_fault, path_fault, setting_faults, untried_fault
from lrurun.decoding import Fault, sound
from lrurun.errors import LrurunError, UsageError, hint_for, plural, raise_first
from lrurun.paths import find, shown

if TYPE_CHECKING:
    from lrurun.data.metric import Metric
    from lrurun.data.task import Task

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_NAME_RULE = "a name of letters, digits, '.', '_' and '-'"
Name = Annotated[str, Meta(pattern=rf"^{NAME}\Z", description=_NAME_RULE)]
_SCOPE = rf"^{NAME}/{NAME}\Z"
CHANGED = ("model", "optim", "train", "settings")
"""The tables whose settings rungs may change."""
LARGEST = 1e9
"""The largest score or margin in a document, which excludes infinity; fractions are at most 1, see `_share_rules`."""


class Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every document table."""


class Claim(Document, frozen=True, kw_only=True):
    """A statement of a paper that compares a rung with another one or with chance."""

    text: str
    source: str
    rung: Name
    """The rung that the claim calls better, as good, above chance, ..."""
    than: Name | None = None
    """The rung that it is compared with; None for chance."""
    kind: Literal["better", "no-worse", "equal", "above-chance", "at-chance", "faster", "as-fast"] = "better"
    margin: Annotated[float, Meta(gt=0, le=LARGEST)] | None = None
    """The margin in the units of the metric: 0.005 is half a point of accuracy. For "equal" and "at-chance": the
    largest difference at which two scores count as equal. For "no-worse": the largest loss that does not count as
    one. For "above-chance", optional: the largest distance from chance that does not count. For "as-fast": the largest
    share of the other rung's speed that does not count as a loss."""
    margins: dict[str, Annotated[float, Meta(gt=0, le=LARGEST)]] = field(default_factory=dict)
    """Task -> margin, instead of `margin`."""
    metric: str = ""
    """The metric that the claim is judged on; empty for the one that selects the model. It may be another metric of the
    task; a metric in a further test, as in "accuracy@256" or "accuracy@longest"; or "escape_step", the step at which a
    run leaves its plateau."""
    tasks: tuple[str, ...] = ()
    """Tasks for which the paper states it. On others the report says so, or leaves out claims on chance or speed."""
    min_length: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    """The least number of steps of the sequences that it is about, as for "very long sequences"; None for any."""
    depth: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    """The number of layers of `rung` that it is about, as for "one layer"; None for any."""
    decays: bool = False
    """Whether it is about trainings in which parameters of `rung` decay, as claims on weight decay are."""

    @property
    def has_scope(self) -> bool:
        """Whether it is judged for some sequences, networks or trainings alone."""
        return self.min_length is not None or self.depth is not None or self.decays

    def is_about(self, task: str) -> bool:
        """Whether it is judged on a task. Outside `tasks`, it is unless it needs something that not every task has."""
        needs_chance = self.kind.endswith("-chance")
        needs_more = self.is_about_speed or needs_chance or "@" in self.metric or self.metric == "escape_step"
        return task in self.tasks or not self.tasks or not needs_more

    @property
    def is_about_speed(self) -> bool:
        """Whether it compares training speeds, not scores."""
        return self.kind in ("faster", "as-fast")

    def margin_on(self, task: str) -> float:
        """The margin on a task; 0 without one."""
        return self.margins.get(task, self.margin or 0.0)


def outside_scope(claim: Claim, length: int, depth: int, *, decays: bool = True) -> str:
    """Why a claim is not about sequences of this length, networks of this depth, and trainings in which parameters do
    or do not decay; empty if it is."""
    reasons = []
    if claim.min_length is not None and length < claim.min_length:
        reasons.append(f"about sequences of at least {claim.min_length:,} steps; these have {length:,}")
    if claim.depth is not None and depth != claim.depth:
        reasons.append(f"about networks of {plural(claim.depth, 'layer')}; these have {depth:,}")
    if claim.decays and not decays:
        reasons.append("about weight decay; here there is none")
    return ", and ".join(reasons)


class Published(Document, frozen=True, kw_only=True):
    """A published score of a rung on a task."""

    source: str
    """Paper and table."""
    value: Annotated[float, Meta(ge=-LARGEST, le=LARGEST)] | None = None
    """The value of `metric`, not scaled: accuracy is a fraction (0.699 for 69.9 %). None where the paper says that the
    model stayed at chance."""
    stderr: Annotated[float, Meta(ge=0, le=LARGEST)] | None = None
    n: Annotated[int, Meta(ge=2, le=1000)] | None = None
    """The number of seeds behind the standard error."""
    note: str = ""
    metric: str = ""
    """A metric of the task, with the scale of the metric that selects the model; empty for the latter."""
    profile: str = ""
    """The profile whose sizes it is for; empty for the recipe without one. Reports prefer scores for their profile."""


class Rung(Document, frozen=True, kw_only=True):
    """One named change to an earlier rung."""

    name: Name
    title: str
    """The title of the rung in tables; where a file leaves it out, its name."""
    on: Name | None = None
    """The base: the rung that this one changes and is compared with; the previous rung where this is left out."""
    root: bool = False
    """Whether it has no base, like the first rung, and begins a comparison of its own."""
    why: str = ""
    where: str = ""
    """For imported runs: the condition, as `--where` takes it, on the runs that are seeds of this rung."""
    change: dict[str, Any] = field(default_factory=dict)
    """Dotted path -> value, for the settings that the ladder itself changes."""
    takes: Annotated[str, Meta(pattern=_SCOPE, description='a rung with its ladder, as in "lru/ring-init"')] = ""
    """A rung of any ladder, "ladder/rung", whose values in recipes also hold for this rung. The values that recipes set
    for this rung itself, `[ladder.<ladder>.rung.<rung>]`, come after them."""
    tunes: tuple[str, ...] = ()
    """Dotted paths whose values the recipe must set for this rung."""
    resets: tuple[str, ...] = ()
    """Dotted paths that an earlier rung changes, and that have the recipe's values, or their defaults, from here on."""
    lr: Annotated[float, Meta(gt=0, le=10)] | None = None
    """The learning rate of this rung alone, where the recipe has none for it; before the recipe's common rate, and the
    rate of a rung whose values it takes."""
    lr_published: str = ""
    """The paper and section, or table, that give `lr`."""
    lr_chosen: str = ""
    """Why `lr` was chosen, where no paper gives it."""
    tune: dict[str, Annotated[list[Any], Meta(min_length=1)]] = field(default_factory=dict)
    """Dotted path -> values to try for this rung, where the recipe has none for it; before the recipe's common ones.
    Values of the model are also tried for the rungs that change this one, unless they set the value."""
    published: dict[str, tuple[Published, ...]] = field(default_factory=dict)
    """Task -> published rows."""


class TrainingSpeed(Document, frozen=True, kw_only=True):
    """The published training speed of a model, which the paper calls a system."""

    system: str
    """The name of the model in the paper."""
    rung: Name | None = None
    """The rung of this system; None where the ladder has none."""
    source: str
    """Paper and table."""
    device: str
    steps_per_second: dict[str, Annotated[float, Meta(gt=0, le=1e9)]] = field(default_factory=dict)
    """Task -> steps per second."""
    relative_time: dict[str, Annotated[float, Meta(gt=0, le=1e9)]] = field(default_factory=dict)
    """Task -> time of a step over the time of another system, where the source prints no speed: 1 for that system."""

    @property
    def speeds(self) -> dict[str, float]:
        """Task -> the speed, which only the speeds of one source can be divided by."""
        return self.steps_per_second or {task: 1 / time for task, time in self.relative_time.items()}


class Grid(Document, frozen=True, kw_only=True):
    """The rungs of a ladder on two axes, for reports."""

    down: str
    """Heading of the rows."""
    across: str
    """Heading of the columns."""
    columns: Annotated[tuple[str, ...], Meta(min_length=1)]
    rows: Annotated[dict[str, tuple[str, ...]], Meta(min_length=1)]
    """Row -> the rungs in its columns; "" for a cell without a rung."""


class Scope(Struct, frozen=True):
    """The name of a rung and of its ladder, for which recipes set values."""

    ladder: str
    rung: str


class Ladder(Document, frozen=True, kw_only=True):
    """An ordered list of rungs."""

    name: Name
    title: str
    source: str
    question: str = ""
    other_tasks: tuple[str, ...] = ()
    """Tasks of the papers that lrurun does not have: claims and published scores may name them."""
    recipes: tuple[str, ...] = ()
    """Recipes with values for its rungs, on which it is checked; empty for all. Other recipes need tables for it."""
    load: tuple[str, ...] = ()
    """Files of plug-ins, see `lrurun.plugins`, relative to the folder of this file."""
    rungs: tuple[Rung, ...] = field(name="rung", default=())
    speeds: tuple[TrainingSpeed, ...] = field(name="speed", default=())
    claims: tuple[Claim, ...] = field(name="claim", default=())
    grid: Grid | None = None
    path: str = ""
    """The file it was read from."""

    def scopes(self, rung: Rung) -> list[Scope]:
        """The rungs whose values in recipes hold for `rung`, in the order in which they apply; `rung` itself is last.

        Raises:
            UsageError: the rung takes the values of an unknown rung, or of itself.
        """
        where = f"{self.path}, rung {rung.name}, takes"
        scopes = [Scope(self.name, rung.name)]
        while rung.takes:
            name, _, taken = rung.takes.partition("/")
            try:
                ladder = self if name == self.name else read_ladder(name)
            except UsageError as error:
                raise UsageError(f"{where}: {error.message}", error.hint) from None
            rungs = {candidate.name: candidate for candidate in ladder.rungs}
            if taken not in rungs:
                raise UsageError(f"{where}: ladder {name} has no rung {taken!r}", hint_for(taken, rungs, "rungs"))
            rung = rungs[taken]
            scope = Scope(name, taken)
            if scope in scopes:
                raise UsageError(f"{where}: {name}/{taken} takes its own values", "remove one `takes`")
            scopes.insert(0, scope)
        return scopes

    @property
    def bases(self) -> dict[str, str | None]:
        """Rung -> its base, the rung that it changes; None for the first rung and for roots."""
        previous = (None, *(rung.name for rung in self.rungs))
        return {
            rung.name: None if rung.root else rung.on or name for name, rung in zip(previous, self.rungs, strict=False)
        }

    @property
    def kinds(self) -> dict[str, str]:
        """Rung -> its kind of recurrence, where the ladder says it."""
        return self._along_bases(KIND)

    @property
    def optimizers(self) -> dict[str, str]:
        """Rung -> the name of its optimiser, where the ladder says it."""
        return self._along_bases(OPTIMIZER)

    def _along_bases(self, path: str) -> dict[str, str]:
        """Rung -> the text that it, or a base of it, sets for a path."""
        values: dict[str, str] = {}
        for rung in self.rungs:
            value = dict(flatten(rung.change)).get(path) or values.get(self.bases[rung.name] or "")
            if isinstance(value, str):
                values[rung.name] = value
        return values

    @property
    def is_packaged(self) -> bool:
        """Whether it was read from the file with its name that comes with lrurun."""
        return comes_with_lrurun("ablations", self.name, self.path)


def comes_with_lrurun(kind: paths.Group, name: str, read_from: str) -> bool:
    """Whether a document was read from the file with its name that comes with lrurun."""
    path = paths.packaged(kind) / f"{name}.toml"
    return path.is_file() and read_from in (shown(path), lasting_path(kind, name))


def lasting_path(kind: paths.Group, name: str) -> str:
    """The path of a document that comes with lrurun, wherever lrurun is and from whichever folder it is called."""
    return f"lrurun/{kind}/{name}.toml"


def read_ladder(name: str) -> Ladder:
    """Reads the ladder with this name, or in this file, unchecked and without loading its plug-ins.

    Raises:
        UsageError: unknown name, TOML, unknown or missing keys.
    """
    return sound(examine_ladder(name))


def examine_ladder(name: str) -> tuple[Ladder | None, list[Fault]]:
    """Reads the ladder with this name, or in this file, without the wrong values in its tables; and lists these faults.

    Raises:
        UsageError: an unknown name; it is not TOML.
    """
    path = find("ablations", name)
    where = shown(path)
    if path.parent == paths.packaged("ablations") and path.is_file():
        ladder, faults = _packaged_ladder(path, path.stat().st_mtime_ns, where)
        return ladder, list(faults)
    return _examined(_with_base(decoding.load_toml(path), path), where)


@lru_cache(64)
def _packaged_ladder(path: Path, _changed: int, where: str) -> tuple[Ladder | None, list[Fault]]:
    """A ladder that comes with lrurun. It is kept: rungs of other ladders take values from it over and over."""
    return _examined(decoding.load_toml(path), where)


def _examined(table: dict[str, Any], where: str) -> tuple[Ladder | None, list[Fault]]:
    if RECIPE_KEYS & table.keys() and not isinstance(table.get("rung"), list):
        raise UsageError(
            f"{where}: this is a recipe, expected a ladder",
            f"name it in the place of the task, as in: lrurun plan {where}; lrurun check recipe {where} checks it",
        )
    if has_ladder(table):
        own = {key: value for key, value in table.items() if key in LADDER_KEYS}
        table = {"name": table["task"], "title": "ladder", "source": "", **own}
    if isinstance(rungs := table.get("rung"), list):
        titled = [
            {"title": rung["name"]} | rung if isinstance(rung, dict) and "name" in rung else rung for rung in rungs
        ]
        table = {**table, "rung": titled}
    return decoding.examine(table, Ladder, where, filled={"path": where})


LADDER_KEYS = frozenset(Ladder.__struct_encode_fields__) - {"path"}
"""The keys of a ladder's file."""


RECIPE_KEYS = frozenset(
    {"task", "extends", "about", "data", "model", "optim", "train", "program", "import", "tune", "profile"}
)
"""Keys by which the file of a recipe is recognised: no ladder has them."""


def refuse_ladder(table: dict[str, Any], where: str) -> None:
    """Refuses the table of a ladder's file where the table of a recipe is expected.

    Raises:
        UsageError: it has rungs or claims, and nothing of a recipe.
    """
    if {"rung", "claim"} & table.keys() and not RECIPE_KEYS & table.keys():
        raise UsageError(
            f"{where}: this is a ladder, expected a recipe",
            f"name it with --ladder, as in: lrurun plan TASK --ladder {where}; lrurun check ladder {where} checks it",
        )


def has_ladder(table: dict[str, Any]) -> bool:
    """Whether the table of a recipe's file also has a ladder."""
    return "task" in table and isinstance(table.get("rung"), list)


def _with_base(table: dict[str, Any], path: Path) -> dict[str, Any]:
    """The table of a recipe's file with the keys of the file that it extends; the recipe's reader checks them."""
    name = table.get("extends")
    if not isinstance(name, str):
        return table
    file = next((file for file in (path.parent / name, paths.packaged("recipes") / name) if file.is_file()), None)
    return table if file is None else {**decoding.load_toml(file), **table}


DEFAULT_LADDER = "lru"


def default_ladder(task: str) -> str:
    """The ladder of a command that names none: the one in the file of the recipe, else `lru`.

    Raises:
        UsageError: the recipe has a program, and no ladder.
    """
    try:
        path = find("recipes", task)
        table = _with_base(decoding.load_toml(path), path)
    except LrurunError:  # which reading the recipe reports, unless a ledger has it
        return DEFAULT_LADDER
    if has_ladder(table):
        return task if paths.is_path(task) else str(path)
    if "import" in table:
        hint = """add [[rung]] tables to it, as in: name = "layer", where = "norm = 'layer'\""""
        raise UsageError(f"{shown(path)}: has an [import], but no rungs", hint)
    if "program" in table:
        hint = "add [[rung]] tables to it, or name a ladder: --ladder FILE"
        raise UsageError(f"{shown(path)}: has a [program], but no rungs", hint)
    return DEFAULT_LADDER


def load_ladder(name: str, *, imports: bool = True) -> Ladder:
    """Reads and checks the ladder with this name, or in this file, and loads its plug-ins.

    Without `imports` no plug-in is loaded; see `lrurun.plugins` for when one is.

    Raises:
        UsageError: unknown name, a plug-in that cannot be loaded, TOML, unknown or missing keys, a rung that declares
            nothing or an unknown path, two rungs with the same name, a rung whose base is no earlier rung, a speed of
            an unknown rung or one that is listed twice, a claim about an unknown rung, a grid whose cells are not the
            rungs; with `imports`, and if it is a user's own, an unknown task.
    """
    ladder = read_ladder(name)
    load_plug_ins(ladder, name, imports=imports)
    # the packaged ladders fit their tasks, as tests check: a report on one task imports no other
    raise_first(rules(ladder, imports=imports and not ladder.is_packaged))
    return ladder


def load_plug_ins(ladder: Ladder, name: str, *, imports: bool = True) -> None:
    """Loads the plug-ins of the ladder that was read by this name; without `imports` they must be loaded already.

    Raises:
        UsageError: a plug-in cannot be loaded, or is not loaded.
    """
    folder = find("ablations", name).parent
    for file in ladder.load:
        if imports:
            plugins.load(file, base=folder, named=f"{ladder.path}, load")
        elif not plugins.is_loaded(file, folder):
            raise UsageError(
                f"{ladder.path}: needs {file}, which this command does not load", f"name it: --load {folder / file}"
            )
    if imports:
        for rung in ladder.rungs:
            load_packages(rung.change)


def load_packages(table: Mapping[str, Any]) -> None:
    """Loads the installed packages that provide the recurrence and the optimiser in these settings."""
    changes = dict(flatten(dict(table)))
    plugins.load_installed("recurrence", changes.get(KIND))
    plugins.load_installed("optimizer", changes.get(OPTIMIZER))


def rules(ladder: Ladder, *, imports: bool = True) -> Iterator[UsageError]:
    """Faults between the tables of a ladder; with `imports`, also faults of the tasks that it names."""
    yield from _rung_rules(ladder)
    yield from _speed_rules(ladder)
    yield from _claim_rules(ladder)
    if ladder.grid is not None:
        yield from _cell_rules(ladder.grid, list(ladder.bases), f"{ladder.path} [grid]")
    if imports:
        yield from _task_rules(ladder)


def _rung_rules(ladder: Ladder) -> Iterator[UsageError]:
    where = ladder.path
    if not ladder.rungs:
        yield UsageError(f"{where}: a ladder needs at least one [[rung]]", "add one: name, title, change")
    seen: list[str] = []
    kinds = ladder.kinds
    for rung in ladder.rungs:
        source = f"{where}, rung {rung.name}"
        if rung.name in seen:
            yield UsageError(f"{source}: there are two rungs with this name", "rename one of them")
        if rung.root and rung.on is not None:
            yield UsageError(
                f"{source}: has root = true and on = {rung.on!r}", "remove one of them: a root has no base"
            )
        if rung.on is not None and rung.on not in seen:
            rule = f"unknown rung {rung.on!r}"
            if rung.on == rung.name:
                rule = "a rung cannot change itself"
            elif rung.on in ladder.bases:
                rule = f"{rung.on} does not come before it"
            yield UsageError(f"{source}, on: {rule}", hint_for(rung.on, seen, "rungs before it"))
        seen.append(rung.name)
        declares = rung.change or rung.tunes or rung.resets or rung.where
        if not declares and ladder.bases[rung.name] is not None:
            yield UsageError(
                f"{source}: declares no change",
                'say what it changes: change = { "model.recurrence.activation" = "identity" }, or tunes = ["path"]',
            )
        recurrences = [kinds.get(rung.name)]
        yield from setting_faults(rung.change, source, within=CHANGED, kinds=recurrences)
        for path in rung.tunes:
            if fault := path_fault(path, source, within=("model", "optim", "settings"), kinds=recurrences):
                yield fault
        yield from _reset_rules(ladder, rung, source)
        yield from _tuning_rules(ladder, rung, source, recurrences)
        try:
            ladder.scopes(rung)
        except UsageError as error:
            yield error


def _reset_rules(ladder: Ladder, rung: Rung, source: str) -> Iterator[UsageError]:
    """Faults of the settings that a rung resets: an earlier rung must change them, and this one must not."""
    where = f"{source}, resets"
    for path in rung.resets:
        if fault := path_fault(path, where, within=CHANGED, kinds=[ladder.kinds.get(rung.name)]):
            yield fault
        elif path == KIND:
            yield Fault("decides what other settings there are", where, path, hint="write its value into `change`")
        elif path in dict(flatten(rung.change)):
            yield Fault("set in `change` too", where, path, hint="remove one of them")
        elif path not in _changed_before(ladder, rung):
            yield Fault("no rung before it changes this setting", where, path, hint="remove it")


def _changed_before(ladder: Ladder, rung: Rung) -> set[str]:
    """The paths that the bases of a rung change."""
    rungs, bases = {candidate.name: candidate for candidate in ladder.rungs}, ladder.bases
    changed: set[str] = set()
    seen = {rung.name}
    base = bases[rung.name]
    while base in rungs and base not in seen:  # a rung that changes itself or an unknown one is another fault
        seen.add(base)
        changed |= dict(flatten(rungs[base].change)).keys()
        base = bases[base]
    return changed


def _tuning_rules(ladder: Ladder, rung: Rung, source: str, kinds: Collection[str | None]) -> Iterator[UsageError]:
    """Faults of the rate of a rung, and of the values that tuning tries for it."""
    noted = [name for name in ("lr_published", "lr_chosen") if getattr(rung, name)]
    if len(noted) == 2:
        yield UsageError(f"{source}: has both lr_published and lr_chosen", "remove one of them")
    if noted and rung.lr is None:
        yield UsageError(f"{source}, {noted[0]}: says where lr comes from, which it does not have", "add lr = RATE")
    if rung.lr is not None and "optim.lr" in dict(flatten(rung.change)):
        hint = "keep it in `lr`, for this rung alone, or in `change`, for the rungs that change this one too"
        yield Fault("set in `lr` and in `change`", source, "optim.lr", hint=hint)
    choices = {KIND: ladder.kinds.get(rung.name), OPTIMIZER: ladder.optimizers.get(rung.name)}
    earlier: list[str] = []
    for path, values in rung.tune.items():
        where = f"{source}, tune"
        fault = path_fault(path, where, within=CHANGED, kinds=kinds) or other_form_fault(path, earlier, where)
        if fault := fault or untried_fault(path, where, choices, rung.tune):
            yield fault
        earlier.append(path)
        for k, value in enumerate(values):
            if value in values[:k]:
                yield Fault(f"{value!r} is listed twice", where, path, hint="remove one of them")


def _speed_rules(ladder: Ladder) -> Iterator[UsageError]:
    rungs = list(ladder.bases)
    seen: set[tuple[str | None, ...]] = set()
    for speed in ladder.speeds:
        source = f"{ladder.path}, speed of {speed.system!r}"
        if speed.rung is not None and speed.rung not in rungs:
            yield UsageError(f"{source}: unknown rung {speed.rung!r}", hint_for(speed.rung, rungs, "rungs"))
        if bool(speed.steps_per_second) == bool(speed.relative_time):
            hint = "give one of the two, as in relative_time = { Shift = 6.3 }"
            yield UsageError(f"{source}: needs steps_per_second or relative_time", hint)
        for task in speed.speeds:
            measurement = (speed.rung or speed.system, speed.source, speed.device, task)
            if measurement in seen:
                yield UsageError(f"{source}: {task} is listed twice", "remove one of them")
            seen.add(measurement)


def _claim_rules(ladder: Ladder) -> Iterator[UsageError]:
    rungs = list(ladder.bases)
    texts = [claim.text for claim in ladder.claims]
    for claim in ladder.claims:
        source = f"{ladder.path}, claim {claim.text!r}"
        if texts.count(claim.text) > 1:
            yield UsageError(f"{source}: two claims have this text", "say in each what distinguishes it")
        for name in (claim.rung, claim.than):
            if name is not None and name not in rungs:
                yield UsageError(f"{source}: unknown rung {name!r}", hint_for(name, rungs, "rungs"))
        if claim.rung == claim.than:
            yield UsageError(f"{source}: compares {claim.rung} with itself", "name another rung in `than`")
        kind = f'kind = "{claim.kind}"'
        if claim.kind.endswith("-chance") and claim.than is not None:
            yield UsageError(f"{source}: {kind} compares with chance, not with {claim.than}", "remove `than`")
        if not claim.kind.endswith("-chance") and claim.than is None:
            yield UsageError(f"{source}: {kind} needs another rung", 'name it: than = "RUNG"')
        if claim.kind in ("better", "faster") and (claim.margin is not None or claim.margins):
            hint = 'remove it, or set kind = "no-worse" or "equal"'
            yield UsageError(f"{source}: {kind} has no margin", hint)
        if claim.is_about_speed and claim.metric:
            yield UsageError(f"{source}: {kind} is about speed, not about a metric", "remove `metric`")
        if claim.is_about_speed and (claim.min_length, claim.depth) != (None, None):
            hint = "remove `min_length` and `depth`: `lrurun bench` measures speed at the sizes of its tasks"
            yield UsageError(f"{source}: {kind} has no scope", hint)
        if claim.kind in ("no-worse", "equal", "at-chance", "as-fast") and claim.margin is None:
            yield UsageError(f"{source}: {kind} needs a margin", "add one, as in margin = 0.005")
        for task in claim.margins:
            if claim.tasks and task not in claim.tasks:
                hint = hint_for(task, claim.tasks, "its tasks")
                yield UsageError(f"{source}, margins: {task!r} is not among the tasks of the claim", hint)


def named_tasks(ladder: Ladder) -> Iterator[tuple[str, str]]:
    """Each position in the ladder that names a task, and the name."""
    for rung in ladder.rungs:
        yield from ((f"rung {rung.name}, published", task) for task in rung.published)
    for speed in ladder.speeds:
        field_name = "steps_per_second" if speed.steps_per_second else "relative_time"
        yield from ((f"speed of {speed.system!r}, {field_name}", task) for task in speed.speeds)
    for claim in ladder.claims:
        yield from ((f"claim {claim.text!r}, tasks", task) for task in claim.tasks)
        yield from ((f"claim {claim.text!r}, margins", task) for task in claim.margins)


def _task_rules(ladder: Ladder) -> Iterator[UsageError]:
    """Faults about tasks, once the plug-ins of the command are loaded.

    Tasks of installed packages and of local recipes are known without an import.
    """
    # Documents are also read without tasks, to complete names quickly.
    from lrurun.data import tasks

    for name in dict.fromkeys(task for _, task in named_tasks(ladder)):
        if name in tasks.TASKS:
            yield from metric_rules(ladder, tasks.TASKS[name])
    for where, name in named_tasks(ladder):
        if name in tasks.TASKS or name in ladder.other_tasks:
            continue
        known = dict.fromkeys([*tasks.TASKS, *plugins.installed_names(), *paths.names("recipes"), *ladder.other_tasks])
        if name not in known:
            hint = (
                f"{hint_for(name, known, 'tasks')}; {tasks.OF_PLUG_IN}, other_tasks = [{name!r}] if only a paper has it"
            )
            yield UsageError(f"{ladder.path}, {where}: unknown task {name!r}", hint)


def metric_rules(ladder: Ladder, task: Task, profiles: Collection[str] | None = None) -> Iterator[UsageError]:
    """Faults of a ladder's claims and published scores on a task, which must fit the metrics of the task.

    With `profiles`, the profiles of a recipe of the task, published scores must be for one of them.
    """
    for claim in ladder.claims:
        if not claim.is_about(task.name) or claim.is_about_speed:
            continue
        source = f"{ladder.path}, claim {claim.text!r}"
        try:
            metric = _claim_metric(claim.metric or task.metric.name, task, f"{source}, metric")
        except UsageError as error:
            yield error
            continue
        if metric.chance is None and claim.kind.endswith("-chance"):
            yield UsageError(
                f'{source}: kind = "{claim.kind}" needs a score of chance on {task.name}',
                f"declare it in the metric of {task.name} (chance = ...), or restrict the claim to other tasks",
            )
        yield from _share_rules(claim.margin_on(task.name), metric, f"{source}, margin")
    for rung in ladder.rungs:
        for k, row in enumerate(rung.published.get(task.name, ())):
            source = f"{ladder.path}, rung[{rung.name}].published.{task.name}[{k}]"
            yield from _published_rules(row.metric, task, f"{source}.metric")
            if row.profile and profiles is not None and row.profile not in profiles:
                hint = hint_for(row.profile, profiles, f"profiles of {task.name}")
                yield UsageError(f"{source}.profile: unknown profile {row.profile!r}", hint)
            yield from _share_rules(row.value, task.metric, f"{source}.value")
            yield from _share_rules(row.stderr, task.metric, f"{source}.stderr")


def _claim_metric(name: str, task: Task, source: str) -> Metric:
    """The metric that a claim names, see `Claim.metric`."""
    from lrurun.data.metric import ESCAPE, named
    from lrurun.data.task import Task

    claimed = named(name, task.metrics)
    if claimed is not None and "@" in name and type(task).further_tests is Task.further_tests:
        raise UsageError(f"{source}: {task.name} has no further tests, found {name!r}", "leave out what follows the @")
    if claimed is None:
        if name == ESCAPE:
            hint = f"declare escape = ... in the metric of {task.name}, or restrict the claim to other tasks"
            raise UsageError(f"{source}: {task.name} declares no plateau, found {name!r}", hint)
        hint = hint_for(name, [metric.name for metric in task.metrics], f"metrics of {task.name}")
        raise UsageError(f"{source}: {task.name} has no metric {name!r}", hint)
    return claimed


def _published_rules(name: str, task: Task, source: str) -> Iterator[UsageError]:
    """Faults of published scores that cannot be printed beside scores of the metric that selects the model."""
    metrics = {metric.name: metric for metric in task.metrics}
    if name and name not in metrics:
        hint = hint_for(name, metrics, f"metrics of {task.name}")
        yield UsageError(f"{source}: {task.name} has no metric {name!r}", hint)
    elif name and metrics[name].scale != task.metric.scale:
        yield UsageError(
            f"{source}: {name} has another scale than {task.metric.name}, which selects the model",
            "leave this score out",
        )


def _share_rules(value: float | None, metric: Metric, source: str) -> Iterator[UsageError]:
    """The fault of a score in per cent where the metric is a fraction, which is only printed in per cent."""
    if metric.symbol == "%" and value is not None and not 0 <= value <= 1:
        bound = ">= 0" if value < 0 else "<= 1"
        hint = f"{metric.name.replace('_', ' ')} is a fraction here: 0.699 for 69.9 %"
        yield UsageError(f"{source}: expected a number {bound}, found {value:g}", hint)


def _cell_rules(grid: Grid, rungs: list[str], where: str) -> Iterator[UsageError]:
    for column in grid.columns:
        if grid.columns.count(column) > 1:
            yield UsageError(f"{where}, columns: {column!r} is listed twice", "rename one of them")
    cells: dict[str, str] = {}
    for row, names in grid.rows.items():
        source = f"{where}, row {row!r}"
        if len(names) != len(grid.columns):
            yield UsageError(
                f"{source}: expected a rung for each of the {len(grid.columns)} columns, found {len(names)}",
                'leave a cell empty with ""',
            )
            continue
        for name, column in zip(names, grid.columns, strict=True):
            if name and name not in rungs:
                yield UsageError(f"{source}, column {column!r}: unknown rung {name!r}", hint_for(name, rungs, "rungs"))
            if name in cells:
                yield UsageError(
                    f"{source}, column {column!r}: {name} is in {cells[name]} already", "remove one of them"
                )
            if name:
                cells[name] = f"row {row!r}, column {column!r}"
    for name in rungs:
        if name not in cells:
            yield UsageError(f"{where}: rung {name} is in no cell", "add it to a row, or remove [grid]")

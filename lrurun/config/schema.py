"""The frozen configuration of a run, its defaults and its rules.

Every default of the project is here or in `lrurun.config.recurrences`. `RunConfig` determines the result and is hashed;
`Execution` is how the run is carried out and is only recorded. Both are decoded from plain tables, because replacing
fields of a struct checks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from lrurun import decoding, plugins
from lrurun.config.optimizers import OPTIMIZERS, OptimConfig
from lrurun.config.phases import phases
from lrurun.config.recurrences import KINDS, RecurrenceSettings
from lrurun.decoding import Fault, missing, not_one_of, sound

TUNING_SEED = 1000
"""The first seed of tuning runs. Final seeds lie below it, so that no final run was used to choose a setting."""

Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class _Frozen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every table: immutable, keyword-only, unknown keys refused."""

    inherited: ClassVar[bool] = False
    """Whether the values that a recipe has for a rung also hold for the rungs that change it."""


R = TypeVar("R", bound=RecurrenceSettings)
"""A configuration is decoded with the settings of its kind, see `decode`; in annotations the kind is left open."""


class ModelConfig(_Frozen, Generic[R], frozen=True, kw_only=True):
    """The network around the recurrence (Orvieto et al. 2023, figure 1 and appendix D)."""

    inherited: ClassVar[bool] = True

    recurrence: R
    depth: Annotated[int, Meta(ge=1, le=1000)]
    width: Annotated[int, Meta(ge=1, le=65536)]
    """H: features between the blocks."""
    state: Annotated[int, Meta(ge=1, le=65536)]
    """N: size of the recurrent state, as the paper of each kind counts it. dense, block-diagonal, rotrnn, gru: N real
    numbers; lstm: N units with two real numbers each; diagonal: N complex ones; dlr, dss: N complex ones, which all
    channels share; s5: N of the real system, so N / 2 complex ones, or N without `conj_sym`; s4d, s4: N of each
    channel's real system, so N / 2 complex ones a channel. Two kinds have no such state: in sgconv, N numbers of the
    kernel for each scale and channel; in attention, N numbers in the query, in the key and in the value of each step,
    all heads together. rg-lru: N real numbers, the width unless mixing = "dense"; mingru, minlstm,
    hgrn: N real numbers; s6: N real numbers for each channel."""
    frame: Literal["blocks", "none"] = "blocks"
    """What is around the recurrences. "none": nothing, the first one sees the inputs and the outputs of the last one
    are those of the network (Zucchet and Orvieto 2024, section 4.2). There is no encoder, norm, residual connection,
    GLU or head then, and `width` is the number of inputs and of outputs."""
    norm: Literal["batch", "layer"] = "batch"
    norm_momentum: Annotated[float, Meta(ge=0, lt=1)] = 0.95
    norm_place: Literal["pre", "post"] = "pre"
    """Where a block x + f(x) has its norm: x + f(norm(x)), as in all LRU and S5 settings, or norm(x + f(x)), as in S4
    and DLR on some tasks."""
    final_norm: bool = False
    """Whether a norm follows the last block, as in S4 with norm_place = "pre"; LRU and S5 have none."""
    glu: Literal["full", "half", "half2", "linear", "none", "switch"] = "full"
    """What follows the recurrence's output y, with g = dropout(GELU(y)) and dense maps V, W. "full": V(g) sigma(W(g)),
    as LRU and S4; "half": g sigma(W(g)), as LRU on PathX; "half2": y sigma(W(g)), y itself; "linear": V(g), as DLR on
    atomic tasks; "none": g. S5's code (Smith et al. 2023) calls all but "linear" full_glu, half_glu1, half_glu2 and
    gelu. A second dropout follows all but "none". "switch": dropout(y); after the residual connection follows a Switch
    layer with a norm, a dropout and a residual connection of its own, as in DLR's language models (Gupta et al. 2023,
    appendix A.6)."""
    experts: Annotated[int, Meta(ge=1, le=4096)] = 16
    """For glu = "switch": the number of feed-forward networks of 4 H hidden features in a block, each for its share of
    the positions; 1: an ordinary feed-forward layer."""
    feed_forward: Annotated[int, Meta(ge=0, le=64)] = 0
    """Feed-forward layers after each block, x + dropout(V GELU(W x + b) + c), each with a norm where the block has its
    own: two in the DLR paper's larger attention (Gupta et al. 2023, appendix A.5), which prints their hidden features
    only, so that norms, residual connections and GELU are those of the framework that it was built on."""
    feed_forward_ratio: Annotated[int, Meta(ge=1, le=256)] = 4
    """Hidden features of a feed-forward layer, over the width: 16 in the DLR paper, 2,048 of 128."""
    conv: Annotated[int, Meta(ge=0, le=64)] = 0
    """Steps of a causal convolution of each feature before the recurrence: 4 in Griffin and Mamba; 0: none."""
    conv_activation: Literal["none", "silu"] = "none"
    """What follows the convolution: nothing, as in Griffin, or SiLU, as in Mamba."""
    branch: Literal["none", "gelu", "silu"] = "none"
    """A second branch, which multiplies the recurrence's output y = recurrence(conv(W_x u)): the block is
    x + dropout(W_out (GELU(W_y u) y)), as in Griffin, or with SiLU, as in Mamba. It takes the place of the GLU; with
    glu = "switch" the Switch layer follows it."""
    expand: Annotated[int, Meta(ge=1, le=64)] = 1
    """For a branch: the ratio of the features inside a block to those between the blocks, 2 in Mamba."""
    pooling: Literal["mean", "max", "last"] = "mean"
    """How the last block's outputs at real positions are reduced to one: their mean, as in LRU, S4 and S5; the maximum
    of each feature, as in DLR (Gupta et al. 2023); or the last position."""
    head_activation: Literal["relu", "gelu"] = "relu"
    """The activation of the hidden layer that a task of pairs, such as Retrieval, has before its last map: "gelu" in
    the published code."""
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    dropout_mask: Literal["sequence", "position"] = "sequence"
    """Whether a feature is dropped for all of a sequence, as in the published code, or separately at each position."""
    bidirectional: bool = False
    precision: Literal["tf32", "float32", "bf16"] = "tf32"
    """The precision of dense products around the recurrence, which itself is always float32. "tf32": the default of JAX
    on NVIDIA devices, also for the papers; a CPU then computes in float32."""
    parity: Literal["none", "reference"] = "none"
    """"reference": batch statistics count padding, a backward scan starts in it, and attention in both directions sees
    it, as in the published code."""

    def __post_init__(self) -> None:
        if self.final_norm and self.norm_place == "post":
            raise ValueError('final_norm = true needs norm_place = "pre": with "post" the last block ends in a norm')
        if self.frame == "none" and (self.dropout or self.final_norm):
            values = f"dropout = {self.dropout}, final_norm = {str(self.final_norm).lower()}"
            raise ValueError(f'dropout and final_norm need frame = "blocks", found frame = "none", {values}')
        values = f'glu = "{self.glu}", experts = {self.experts}'
        if self.glu != "switch" and self.experts != 16:
            raise ValueError(f'experts needs glu = "switch", found {values}')
        if self.frame == "none" and self.glu != "full":
            raise ValueError(f'glu needs frame = "blocks", found frame = "none", {values}')
        if self.frame == "none" and self.feed_forward:
            raise ValueError(f'feed_forward needs frame = "blocks", found frame = "none", {self.feed_forward} layers')
        if self.feed_forward_ratio != 4 and not self.feed_forward:
            raise ValueError(f"feed_forward_ratio = {self.feed_forward_ratio} needs feed_forward, found 0")
        if self.frame == "none" and (self.conv or self.branch != "none"):
            values = f'frame = "none", conv = {self.conv}, branch = "{self.branch}"'
            raise ValueError(f'conv and branch need frame = "blocks", found {values}')
        if self.conv_activation != "none" and not self.conv:
            raise ValueError(f'conv_activation needs conv, found conv_activation = "{self.conv_activation}", conv = 0')
        if self.expand != 1 and self.branch == "none":
            raise ValueError(f'expand needs a branch, found expand = {self.expand}, branch = "none"')
        if self.branch != "none" and self.glu not in ("none", "switch"):
            raise ValueError(
                f'a branch takes the place of the GLU: it needs glu = "none" or "switch", found branch = '
                f'"{self.branch}", glu = "{self.glu}"'
            )
        self.recurrence.fits(width=self.inner, state=self.state, bidirectional=self.bidirectional)

    @property
    def inner(self) -> int:
        """The number of features that the recurrence sees."""
        return self.expand * self.width


S = TypeVar("S", bound=OptimConfig)
"""The same for the settings of an optimiser, by its name."""


class TrainConfig(_Frozen, frozen=True, kw_only=True):
    """Steps, batch size, and how often the model is evaluated."""

    steps: Count
    batch: Annotated[int, Meta(ge=1, le=1_000_000)]
    eval_every: Count
    """Steps between evaluations on the validation split; the last step is always evaluated."""
    log_every: Count = 10
    """The number of steps that are averaged into one row of the training curve."""
    protocol: Literal["holdout", "paper"] = "holdout"
    """"paper": model selection as published, where that used the test split; every report says so."""


class Code(_Frozen, frozen=True, kw_only=True, omit_defaults=True):
    """The digests, `sha256:...`, of the plug-ins of a run, see `lrurun.plugins`."""

    recurrence: str | None = None
    task: str | None = None
    optimizer: str | None = None


class RunConfig(_Frozen, Generic[R, S], frozen=True, kw_only=True, omit_defaults=True):
    """One training with one result: task, model, optimiser, schedule, seed."""

    task: Annotated[str, Meta(min_length=1)]
    data: dict[str, Any]
    """The declared "version" of the data, and the settings with which they were made, except those at their default."""
    model: ModelConfig[R]
    optim: S
    train: TrainConfig
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    code: Code | None = None
    """Set by `lrurun.config.planning`, never by a document."""

    def __post_init__(self) -> None:
        batch, parts = self.train.batch, self.optim.accumulate
        if batch < 2 and self._shuffles:
            raise ValueError('gates = "shuffled" needs other sequences: train.batch must be at least 2, found 1')
        if batch % parts:
            values = f"train.batch = {batch}, optim.accumulate = {parts}"
            raise ValueError(f"optim.accumulate divides a batch into equal parts, found {values}")
        if batch // parts < 2 and self._shuffles:
            values = f"train.batch = {batch}, optim.accumulate = {parts}"
            raise ValueError(f'gates = "shuffled" needs other sequences in a part of a batch, found {values}')
        phases(self.optim, self.train.steps)

    @property
    def _shuffles(self) -> bool:
        return getattr(self.model.recurrence, "gates", None) == "shuffled"

    @property
    def _norms_batches(self) -> bool:
        return self.model.norm == "batch" and self.model.frame == "blocks"

    @property
    def sees_parts(self) -> tuple[str, ...]:
        """What has one part of a batch at a time, so that a step is not that of the whole batch."""
        if self.optim.accumulate == 1:
            return ()
        seen = {"batch norm": self._norms_batches, "shuffled gates": self._shuffles}
        return tuple(name for name, applies in seen.items() if applies)

    @property
    def depends_on_parts(self) -> bool:
        """Whether a step on the parts of a batch is not that of the whole batch, apart from dropout and rounding."""
        return bool(self.sees_parts)


class FixedExecution(_Frozen, frozen=True, kw_only=True):
    """The part of `Execution` on which last bits depend: a run's first attempt fixes it for all later ones."""

    threads: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Size of XLA's thread pool."""
    steps_per_dispatch: Annotated[int, Meta(ge=1, le=100_000)] = 25
    scan_backend: Literal["auto", "sequential", "chunked", "associative"] = "auto"
    remat: bool = False
    """Whether the backward pass recomputes the blocks instead of keeping their activations: less memory, more time."""


class Execution(FixedExecution, frozen=True, kw_only=True):
    """How a run is carried out: recorded, never hashed, because it should not change a result.

    The fields that `FixedExecution` does not have may be changed when a run is resumed.
    """

    checkpoint_seconds: Annotated[float, Meta(ge=0, le=1e6)] = 60.0
    hang_after_seconds: Annotated[float, Meta(gt=0, le=1e7)] = 1800.0
    devices: Annotated[int, Meta(ge=1, le=4096)] = 1
    """The number of devices of one process over which each batch is split; each has the parameters and data. An
    interrupted run may go on with another number, which its events note."""
    feed: Literal["auto", "device", "stream"] = "auto"
    """Where batches are gathered: on the device, where the training data then live, or on the host, which holds up to
    five blocks of steps_per_dispatch * train.batch examples; "auto" decides by the size of the data."""
    stop_seconds: Annotated[float, Meta(gt=0, le=1e6)] = 5.0
    """The time that a user's program has to save and exit after SIGTERM, before it is killed."""
    probes: bool = False
    """Whether evaluations also record gradients, eigenvalues and Adam's steps, see `lrurun.training.probes`."""


SETTINGS = "settings."
"""The prefix of the path of a setting of a user's program or of an imported run; only its recipe, or its tracker, says
which there are."""
ORIGINS = ("origin.", "reading.")
"""The prefixes of the paths of what identifies an imported run beside its task, see `ImportedConfig`."""
OF_PROGRAMS = ("threads", "devices", "hang_after_seconds", "stop_seconds")
"""The fields of `Execution` that users' programs have; trainings have all but the last."""
RECURRENCE = "model.recurrence."
"""The prefix of the path of a setting of a recurrence."""
KIND = f"{RECURRENCE}kind"
OPTIMIZER = "optim.name"
"""The path of the name of an optimiser, which decides what other settings `optim` has, as `KIND` does for recurrences.
Where no document has it, it is `DEFAULT_OPTIMIZER`."""
DEFAULT_OPTIMIZER = "adamw"
RATE = "optim.lr"
"""The path of the learning rate."""
SECTIONS: dict[str, type[_Frozen | OptimConfig]] = {
    "model": ModelConfig,
    "optim": OptimConfig,
    "train": TrainConfig,
    "execution": Execution,
}


def is_inherited(path: str) -> bool:
    """Whether the value of a setting that a recipe has for a rung also holds for the rungs that change it."""
    section = SECTIONS.get(path.partition(".")[0])
    return path.startswith(SETTINGS) or (section is not None and section.inherited)


C = TypeVar("C", bound="RunConfig")


class CellConfig(_Frozen, frozen=True, kw_only=True):
    """One cell of a study with one result."""

    task: str
    """The task, for example "study:memory"."""
    version: int
    """The version of the study; another version computes other numbers."""
    cell: dict[str, Any]
    """The settings of the cell, as the study declares them."""
    seed: int


class Program(_Frozen, frozen=True, kw_only=True, omit_defaults=True):
    """What decides the result of a user's program beside its settings and seed, see `lrurun.config.programs`."""

    command: tuple[str, ...]
    files: dict[str, str] = {}
    """Path of a file from the folder of the recipe -> `sha256:` and 64 hex digits."""
    metric: str
    direction: Literal["max", "min"] = "max"
    read: dict[str, str] | None = None
    """Metric -> the regular expression with which it is read from what the program prints. Where there is none it is
    None, not empty, so that fingerprints do not have it."""


class ProgramConfig(_Frozen, frozen=True, kw_only=True):
    """One execution of a user's program with one result."""

    task: str
    program: Program
    settings: dict[str, Any]
    """The table `[settings]` of the recipe, with the changes of the rung."""
    seed: int


class Reading(_Frozen, frozen=True, kw_only=True, omit_defaults=True):
    """How an imported run is scored, see `lrurun.config.imported`: with another reading, it is another run."""

    metric: str
    direction: Literal["max", "min"] = "max"
    at: Literal["last", "best"] | Annotated[int, Meta(ge=0, le=2**62)] = "last"
    metric_for_choice: str | None = None
    direction_for_choice: Literal["max", "min"] | None = None
    protocol: Literal["holdout", "best-of-test"] = "holdout"
    seed: str | None = None
    crashed: Literal["missing", "failed"] = "missing"
    repeat: Literal["latest", "mean", "all"] | None = None
    per_cent: bool = False
    items: str | None = None


class Origin(_Frozen, frozen=True, kw_only=True, omit_defaults=True):
    """Which run of which tracker an imported run is. It does not change when the tracker's run does."""

    tracker: str
    """The name of its reader, as in "mlflow"."""
    project: str = ""
    """Its project, experiment or study."""
    run: str
    """The tracker's id of the run; of the mean of several, their ids, joined by "+"."""


class ImportedConfig(_Frozen, frozen=True, kw_only=True):
    """A run that was made elsewhere. Its fingerprint is of its task, origin and reading: see `fingerprint`."""

    task: str
    origin: Origin
    reading: Reading
    settings: dict[str, Any]
    """Dotted path -> value, as the tracker has them. In the configuration of a rung: those that all its runs share."""
    seed: int


RunKind = Literal["training", "study", "program", "imported"]
"""The kind of a run: the training of a model, a cell of a study, an execution of a user's program, or a run that was
made elsewhere and imported."""
LADDER_KINDS: tuple[RunKind, ...] = ("training", "program", "imported")
"""The kinds of runs whose instances are ladders, with rungs that are compared; studies have reports of their own."""
LadderConfig = RunConfig[Any, Any] | ProgramConfig | ImportedConfig
"""The configuration of a run of a ladder."""
Config = LadderConfig | CellConfig
"""A configuration, which determines the result of a run."""


def recorded(table: Mapping[str, Any]) -> Config:
    """The configuration of a run as it is recorded in a ledger.

    The settings of a recurrence whose plug-in is not loaded, or has changed, are as recorded, unchecked.

    Raises:
        msgspec.ValidationError: the configuration does not fit this version.
    """
    if "cell" in table:
        return msgspec.convert(table, CellConfig)
    if "program" in table:
        return msgspec.convert(table, ProgramConfig)
    if "origin" in table:
        return msgspec.convert(table, ImportedConfig)
    settings, optim = _settings_as_recorded(table), _optim_as_recorded(table)
    config: Config = msgspec.convert(table, RunConfig[settings, optim])  # type: ignore[valid-type]
    return config


def _settings_as_recorded(table: Any) -> type[RecurrenceSettings]:
    try:
        recurrence = table["model"]["recurrence"]
        kind, names = recurrence["kind"], tuple(recurrence)
    except (KeyError, TypeError):
        return RecurrenceSettings  # an error, which converting the table raises
    if kind in KINDS and _is_as_recorded(table, "recurrence", kind):
        return KINDS[kind].settings
    return _unchecked(kind, names)


def _optim_as_recorded(table: Any) -> type[OptimConfig]:
    try:
        optim = table["optim"]
        name, names = optim.get("name", DEFAULT_OPTIMIZER), tuple(optim)
    except (KeyError, TypeError, AttributeError):
        return OptimConfig  # an error, which converting the table raises
    if name in OPTIMIZERS and _is_as_recorded(table, "optimizer", name):
        return OPTIMIZERS[name].settings
    return _unchecked_optim(names)


def _is_as_recorded(table: Any, type_: Literal["recurrence", "optimizer"], name: str) -> bool:
    """Whether the code of a recurrence or optimiser is that with which a run was trained."""
    source, code = plugins.source_of(type_, name), table.get("code") or {}
    return (source.sha256 if source is not None else None) == code.get(type_)


class UncheckedOptim(OptimConfig, frozen=True, kw_only=True):
    """The base of settings of an optimiser whose code is not loaded."""


@cache
def _unchecked_optim(names: tuple[str, ...]) -> type[OptimConfig]:
    settings: type[OptimConfig] = msgspec.defstruct(  # type: ignore[assignment]
        "RecordedOptim",
        [(name, Any) for name in names if name not in OptimConfig.__struct_fields__],
        bases=(UncheckedOptim,),
        frozen=True,
        kw_only=True,
    )
    return settings


class UncheckedSettings(RecurrenceSettings, frozen=True, kw_only=True):
    """The base of settings whose code is not loaded: without defaults, and all that are recorded."""


@cache
def _unchecked(kind: str, names: tuple[str, ...]) -> type[RecurrenceSettings]:
    settings: type[RecurrenceSettings] = msgspec.defstruct(  # type: ignore[assignment]
        "RecordedSettings",
        [(name, Any) for name in names if name != "kind"],
        bases=(UncheckedSettings,),
        frozen=True,
        kw_only=True,
        tag_field="kind",
        tag=kind,
    )
    return settings


def decode(table: Any, type_: type[C], where: str, sources: Mapping[str, str] | None = None) -> C:
    """Converts a plain table to `type_`, `RunConfig` or a subclass: first the kind of its recurrence, then the whole.

    `where` and `sources` are as for `lrurun.decoding.convert`.

    Raises:
        UsageError: where, dotted path, rule, what was found, nearest known name.
    """
    return sound(examine(table, type_, where, sources))


def examine(
    table: Any, type_: type[C], where: str, sources: Mapping[str, str] | None = None
) -> tuple[C | None, list[Fault]]:
    """Converts a plain table to `type_`, and lists every fault in it, see `lrurun.decoding.examine`."""
    known_faults: dict[str, Fault] = {}
    settings: type[RecurrenceSettings] = RecurrenceSettings
    optim: type[OptimConfig] = OptimConfig
    try:
        settings = settings_type(table, where, sources or {})
    except Fault as fault:
        known_faults["model.recurrence"] = fault
    try:
        optim = _optim_type(table, where, sources or {})
    except Fault as fault:
        known_faults["optim"] = fault
    specialised: type[C] = type_[settings, optim]  # type: ignore[index]
    return decoding.examine(table, specialised, where, sources, known_faults=known_faults)


def _optim_type(table: Any, where: str, sources: Mapping[str, str]) -> type[OptimConfig]:
    """The type of the table `optim`, by the name of its optimiser. Raises Fault where that is unknown."""
    optim = table.get("optim") if isinstance(table, Mapping) else None
    name = optim.get("name", DEFAULT_OPTIMIZER) if isinstance(optim, Mapping) else DEFAULT_OPTIMIZER
    if not isinstance(name, str) or name not in OPTIMIZERS:
        raise not_one_of(sources.get(OPTIMIZER, where), OPTIMIZER, name, OPTIMIZERS)
    return OPTIMIZERS[name].settings


def settings_type(table: Any, where: str, sources: Mapping[str, str]) -> type[RecurrenceSettings]:
    """The type of the table `model.recurrence`, by its kind.

    Raises:
        Fault: the table has no kind, or an unknown one.
    """
    settings = table
    for name in ("model", "recurrence"):
        settings = settings.get(name) if isinstance(settings, Mapping) else None
    if not isinstance(settings, Mapping):
        return RecurrenceSettings  # an error, which decoding the whole table reports
    source = sources.get(KIND, where)
    if "kind" not in settings:
        raise missing(source, KIND)
    kind = settings["kind"]
    if not isinstance(kind, str) or kind not in KINDS:
        raise not_one_of(source, KIND, kind, KINDS)
    return KINDS[kind].settings


OTHER_FORMS = {"optim.warmup": "optim.warmup_steps", "optim.warmup_steps": "optim.warmup"}
"""The other form of a setting that has two; only one of them can be set."""
_NEEDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "optim.cooldown": ("optim.schedule", lambda schedule: schedule == "wsd"),
    "optim.average_decay": ("optim.average", lambda average: average == "ema"),
    "optim.clip_by": ("optim.clip", bool),
    "optim.nesterov": ("optim.momentum", bool),
}
"""A setting -> the setting on which its meaning depends, and whether it has one beside a value of that, or beside None,
its default."""
CELL = "cell."
"""The prefix of the path of a setting of a cell."""


def is_setting(path: str) -> bool:
    """Whether a dotted path names a setting of a training, a cell of a study, a user's program or an imported run."""
    section, _, name = path.partition(".")
    if section in SECTIONS and name in SECTIONS[section].__struct_fields__:
        return f"{path}." != RECURRENCE  # a table
    if path.startswith((CELL, SETTINGS, *ORIGINS)):
        return True
    return path.startswith(tuple(prefix for prefix, _ in _CHOICES.values())) and path in known_paths()


_CHOICES: dict[str, tuple[str, type[Struct]]] = {
    KIND: (RECURRENCE, RecurrenceSettings),
    OPTIMIZER: ("optim.", OptimConfig),
}
"""A setting that decides which others a table has -> the prefix of these, and the type that all choices have in common.
"""


def choices_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The kind of recurrence and the name of the optimiser, `KIND` and `OPTIMIZER`, of the values of paths."""
    return {KIND: values.get(KIND), OPTIMIZER: values.get(OPTIMIZER, DEFAULT_OPTIMIZER)}


def is_known(choice: str, value: Any) -> bool:
    """Whether there is such a kind of recurrence or optimiser; `choice` is `KIND` or `OPTIMIZER`."""
    return isinstance(value, str) and value in (KINDS if choice == KIND else OPTIMIZERS)


def without_meaning(path: str, value: Any, values: Mapping[str, Any]) -> list[str]:
    """The settings among `values` that have no meaning once a setting has a new value, None for its default.

    A new kind of recurrence, or optimiser, has none of the settings that the old one alone has; a schedule without
    cooldown none of the cooldown, and so on; of the warm-up in steps and as a share of them, one counts.
    """
    settings = [setting for setting, (needed, fits) in _NEEDS.items() if needed == path and not fits(value)]
    settings += [OTHER_FORMS[path]] if path in OTHER_FORMS else []
    if path in _CHOICES and choices_of(values)[path] not in (None, value):
        settings += [setting for setting in values if choice_for(setting) == path]
    return [setting for setting in settings if setting in values]


def own_settings(choice: str, value: Any) -> tuple[str, ...]:
    """The names of the settings that a kind of recurrence or an optimiser alone has; none of an unknown one.

    Args:
        choice: `KIND` or `OPTIMIZER`.
        value: the kind or name.
    """
    if not is_known(choice, value):
        return ()
    entries: Mapping[str, Any] = KINDS if choice == KIND else OPTIMIZERS
    common = _CHOICES[choice][1].__struct_fields__
    return tuple(name for name in entries[value].settings.__struct_fields__ if name not in common)


def choice_for(path: str) -> str | None:
    """`KIND` or `OPTIMIZER` where this setting is one that only some kinds or optimisers have, else None."""
    for choice, (prefix, common) in _CHOICES.items():
        if path.startswith(prefix) and path != choice and path.removeprefix(prefix) not in common.__struct_fields__:
            return choice
    return None


def known_paths() -> tuple[str, ...]:
    """Every dotted path that a ladder, a recipe or `--set` may name."""
    return _known_paths(
        tuple(declaration.settings for declaration in KINDS.values()),
        tuple(declaration.settings for declaration in OPTIMIZERS.values()),
    )


@cache
def _known_paths(kinds: tuple[type[Struct], ...], optimizers: tuple[type[Struct], ...]) -> tuple[str, ...]:
    paths: list[str] = []
    for section, type_ in SECTIONS.items():
        for name in type_.__struct_fields__:
            if (section, name) == ("model", "recurrence"):
                paths += [KIND, *_all_fields(RECURRENCE, kinds)]
            else:
                paths.append(f"{section}.{name}")
        if section == "optim":
            paths += [path for path in _all_fields("optim.", optimizers) if path not in paths]
    return tuple(paths)


def _all_fields(prefix: str, types: tuple[type[Struct], ...]) -> list[str]:
    return [prefix + name for name in dict.fromkeys(name for type_ in types for name in type_.__struct_fields__)]


def types_of(section: str) -> list[type[Struct]]:
    """The types that the table of a section, as "optim" or "model.recurrence", can have; none of an unknown one."""
    if section == "model.recurrence":
        return [declaration.settings for declaration in KINDS.values()]
    if section == "optim":
        return [OptimConfig, *(declaration.settings for declaration in OPTIMIZERS.values())]
    return [SECTIONS[section]] if section in SECTIONS else []


def used_execution(config: Config, execution: Execution) -> dict[str, Any]:
    """The fields of the execution that have an effect on runs with this configuration."""
    table: dict[str, Any] = msgspec.to_builtins(execution)
    if isinstance(config, ImportedConfig):
        return {}
    if isinstance(config, ProgramConfig):
        return {name: table[name] for name in OF_PROGRAMS}
    return {name: value for name, value in table.items() if name != OF_PROGRAMS[-1]}

"""The frozen configuration of a run, its defaults, its rules and its fingerprint.

Every default of the project is visible here. `RunConfig` is what a run *is* and is hashed; `Execution` is how it is
carried out and is recorded beside it. Both are made from plain tables by `lrurun.plan`, never by replacing fields.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args

import msgspec
from msgspec import Meta, Struct

CONFIG_VERSION = 1
"""Hashed into every fingerprint: it changes when the meaning of a field or a default changes."""

TUNING_SEED = 1000
"""The seed of tuning runs; final seeds lie below it, so that no final run has been used to choose a rate."""

LARGEST_HIPPO = 4096
"""Of a matrix whose eigenvectors are looked for: half a minute of one core."""

Fraction = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class _Frozen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every table: immutable, keyword-only, unknown keys refused."""


class RecurrenceSettings(_Frozen, frozen=True, kw_only=True, tag_field="kind"):
    """The base of every `[model.recurrence]` table. The tag of a subclass is its kind."""

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        """Raise ValueError where a model of `width` H, `state` N and these settings cannot be built.

        The message tells the rule and what was found, in the words of `[model]`: it is what a user reads.
        """

    def fits_length(self, length: int) -> None:
        """Raise ValueError, with such a message, where sequences of `length` steps are too short for these settings."""


class DenseRecurrence(RecurrenceSettings, frozen=True, kw_only=True, tag="dense"):
    """x_k = activation(A x_(k-1) + B u_k) with a dense real A (Orvieto et al. 2023, eq. 1 and section 3.1)."""

    activation: Literal["tanh", "relu", "identity"] = "identity"
    draw: Literal["normal", "truncated"] = "normal"
    """How A starts: N(0, 1/N), whose eigenvalues reach a little beyond the unit circle, or the same normal cut off at
    two standard deviations, whose eigenvalues reach to about 0.9."""


class DiagonalRecurrence(RecurrenceSettings, frozen=True, kw_only=True, tag="diagonal"):
    """x_k = lambda x_(k-1) + gamma B u_k with a complex diagonal lambda (Orvieto et al. 2023, sections 3.2 to 3.4)."""

    parametrization: Literal["cartesian", "exponential", "stable-exponential"] = "stable-exponential"
    """What is trained: Re and Im of lambda; nu and theta; log nu and theta."""
    phase: Literal["plain", "log"] = "plain"
    """Whether theta itself or its logarithm is trained."""
    r_min: Fraction = 0.0
    r_max: Fraction = 1.0
    max_phase: Annotated[float, Meta(gt=0, le=2 * math.pi)] = 2 * math.pi
    """Upper end of the initial phases, in radians."""
    normalize: bool = False
    """Whether gamma (eq. 7), trained, scales the input."""
    conjugate: bool = False
    """Whether the N numbers of the state are N/2 and their conjugates, as the eigenvalues of a real matrix are."""
    heads: Annotated[int, Meta(ge=0, le=65536)] = 0
    """How many decays there are, each shared by the states of a head; 0: one for each state."""

    def __post_init__(self) -> None:
        if self.r_min > self.r_max:
            raise ValueError(f"r_min must not be larger than r_max, found r_min = {self.r_min}, r_max = {self.r_max}")
        if self.parametrization == "cartesian" and self.phase == "log":
            raise ValueError('phase = "log" needs an exponential parametrization, found parametrization = "cartesian"')
        if self.heads and self.parametrization != "stable-exponential":
            raise ValueError(
                'heads need parametrization = "stable-exponential", '
                f'found parametrization = "{self.parametrization}", heads = {self.heads}'
            )

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        if self.conjugate and state % 2:
            raise ValueError(f"conjugate pairs need an even state, found state = {state}")
        if self.heads and (state // 2 if self.conjugate else state) % self.heads:
            pairs = " into whole pairs" if self.conjugate else ""
            raise ValueError(f"heads must divide state{pairs}, found heads = {self.heads}, state = {state}")


class RotRNNRecurrence(RecurrenceSettings, frozen=True, kw_only=True, tag="rotrnn"):
    """x_k = gamma P Theta P^T x_(k-1) + xi B u_k, real, a scaled rotation in each head (RotRNN paper, eq. 12)."""

    heads: Annotated[int, Meta(ge=1, le=65536)] = 1
    """How many rotations there are, each of N / heads dimensions with a decay gamma of its own."""
    r_min: Fraction = 0.9
    r_max: Fraction = 0.999
    """The initial gamma lies between them."""
    draw: Literal["log", "ring"] = "log"
    """How the initial gamma is spread: log(-log gamma) uniformly, as in the public code, or uniformly in area, as the
    LRU's |lambda|."""
    max_phase: Annotated[float, Meta(gt=0, le=2 * math.pi)] = 2 * math.pi
    """Upper end of the initial angles, in radians."""
    normalizer: Literal["trace", "gamma", "none"] = "trace"
    """xi: from gamma and tr(B^T B) at every step (eq. 11), trained like the gamma of the LRU, or 1."""

    def __post_init__(self) -> None:
        if self.r_min > self.r_max:
            raise ValueError(f"r_min must not be larger than r_max, found r_min = {self.r_min}, r_max = {self.r_max}")

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        if state % (2 * self.heads):
            raise ValueError(
                f"heads must divide state into planes, an even part each, found heads = {self.heads}, state = {state}"
            )


Step = Annotated[float, Meta(gt=0, le=1000)]


def _check_steps(dt_min: float, dt_max: float) -> None:
    if dt_min > dt_max:
        raise ValueError(f"dt_min must not be larger than dt_max, found dt_min = {dt_min}, dt_max = {dt_max}")


class S5Recurrence(RecurrenceSettings, frozen=True, kw_only=True, tag="s5"):
    """x' = Lambda x + B u, y = C x + D u in steps of Delta, from the normal part of HiPPO-LegS (Smith et al. 2023)."""

    blocks: Annotated[int, Meta(ge=1, le=65536)] = 1
    """Lambda starts as that of so many HiPPO matrices of size N / blocks."""
    conj_sym: bool = True
    """Whether one number of each pair of conjugates is kept, N / 2 in all, and y = 2 Re(C x) + D u."""
    discretization: Literal["zoh", "bilinear"] = "zoh"
    c_init: Literal["truncated", "lecun", "complex"] = "truncated"
    """How the published code draws C: with entries of variance 1 / N in the real system's coordinates; the same with
    1 / (N H), which is how its LeCun normal comes out; with N(0, 1/2) for each part in those of the eigenvectors."""
    dt_min: Step = 0.001
    dt_max: Step = 0.1
    """Each state's own Delta starts log-uniform between the two."""
    clip_eigs: bool = False
    """Whether Re(Lambda) is kept at -1e-4 and below."""
    slow_b: bool = True
    slow_dt: bool = True
    """Whether B and Delta are in the recurrent group, as Lambda always is."""

    def __post_init__(self) -> None:
        _check_steps(self.dt_min, self.dt_max)

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        found = f"found state = {state}, blocks = {self.blocks}"
        if state % self.blocks:
            raise ValueError(f"blocks must divide state, {found}")
        size = state // self.blocks
        if self.conj_sym and size % 2:
            raise ValueError(f"conj_sym = true needs blocks of an even size, state / blocks, {found}")
        if size > LARGEST_HIPPO:
            raise ValueError(f"a block, state / blocks, must not be larger than {LARGEST_HIPPO}, {found}")


class S4DRecurrence(RecurrenceSettings, frozen=True, kw_only=True, tag="s4d"):
    """x' = A x + B u, y = C x + D u for each channel by itself, A diagonal, in steps of Delta (Gu et al. 2022, S4D)."""

    init: Literal["lin", "inv", "inv2", "quad", "legs", "real"] = "lin"
    """Where the N / 2 numbers of A start, see `lrurun.recurrences.s4d`."""
    discretization: Literal["zoh", "bilinear"] = "zoh"
    dt_min: Step = 0.001
    dt_max: Step = 0.1
    """Each channel's own Delta starts log-uniform between the two."""
    n_ssm: Annotated[int, Meta(ge=0, le=65536)] = 0
    """How many A and B there are, which the channels share in turn; 0: one of each for every channel."""
    train_b: bool = True
    """Whether B is trained. It starts at ones; for "legs", at HiPPO's."""
    slow_dt: bool = True
    """Whether Delta is in the recurrent group, as A and B always are."""

    def __post_init__(self) -> None:
        _check_steps(self.dt_min, self.dt_max)

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        if state % 2:
            raise ValueError(f"s4d needs an even state, for pairs of conjugates, found state = {state}")
        if self.init == "legs" and state > LARGEST_HIPPO:
            raise ValueError(f'init = "legs" needs a state of at most {LARGEST_HIPPO}, found state = {state}')
        if self.n_ssm and width % self.n_ssm:
            raise ValueError(f"n_ssm must divide width, found n_ssm = {self.n_ssm}, width = {width}")


class S4Recurrence(RecurrenceSettings, frozen=True, kw_only=True, tag="s4"):
    """x' = (Lambda - P P*) x + B u, y = C x + D u for each channel by itself, bilinear in steps of Delta, from
    HiPPO-LegS (Gu, Goel and Ré 2022, S4)."""

    dt_min: Step = 0.001
    dt_max: Step = 0.1
    """Each channel's own Delta starts log-uniform between the two."""
    n_ssm: Annotated[int, Meta(ge=0, le=65536)] = 0
    """How many Lambda, P and B there are, which the channels share in turn; 0: one of each for every channel."""
    slow_dt: bool = True
    """Whether Delta is in the recurrent group, as Lambda, P and B always are."""

    def __post_init__(self) -> None:
        _check_steps(self.dt_min, self.dt_max)

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        if state % 2:
            raise ValueError(f"s4 needs an even state, for pairs of conjugates, found state = {state}")
        if state > LARGEST_HIPPO:
            raise ValueError(f"s4 needs a state of at most {LARGEST_HIPPO}, found state = {state}")
        if self.n_ssm and width % self.n_ssm:
            raise ValueError(f"n_ssm must divide width, found n_ssm = {self.n_ssm}, width = {width}")


def _check_kernel(kernel_length: int, length: int) -> None:
    if kernel_length > length:
        raise ValueError(
            f"kernel_length must not be larger than the task's sequences, {length} steps, found {kernel_length}"
        )


class DLRRecurrence(RecurrenceSettings, frozen=True, kw_only=True, tag="dlr"):
    """x_k = Lambda x_(k-1) + u_k for each channel, with a Lambda that all share (Gupta et al. 2023, DLR)."""

    cast: Literal["real", "imag", "sum", "prod"] = "real"
    """What of the complex kernel K is taken: Re K, Im K, their sum, or their product, which is DLR-prod."""
    poles: Literal["complex", "unit", "real"] = "complex"
    """Lambda = exp(-a^2 + i b), or with b alone, |Lambda| = 1, or with a alone."""
    weights: Literal["complex", "real"] = "complex"
    phases: Literal["uniform", "normal"] = "uniform"
    """Where b starts: 2 pi n / N, or N(0, 1)."""
    dt_min: Step = 0.0005
    dt_max: Step = 0.5
    """a^2 starts as dt / 2, dt log-uniform between the two."""
    kernel_length: Annotated[int, Meta(ge=0, le=2**24)] = 0
    """Lags of the kernel; 0: as many as there are steps."""

    def __post_init__(self) -> None:
        _check_steps(self.dt_min, self.dt_max)
        if self.poles == "real" and (self.cast, self.weights) != ("real", "real"):
            raise ValueError(
                'poles = "real" needs cast = "real" and weights = "real", of the rest there is nothing to take, '
                f'found cast = "{self.cast}", weights = "{self.weights}"'
            )

    def fits_length(self, length: int) -> None:
        _check_kernel(self.kernel_length, length)


class DSSRecurrence(RecurrenceSettings, frozen=True, kw_only=True, tag="dss"):
    """x' = Lambda x + u for each channel in steps of its own, with a Lambda that all share (Gupta et al. 2022, DSS)."""

    init: Literal["lin", "hippo"] = "lin"
    """Where Lambda starts: -1/2 + i pi n, or HiPPO-LegS's frequencies for i pi n."""
    dt_min: Step = 0.001
    dt_max: Step = 0.1
    """Each channel's own step starts log-uniform between the two."""
    kernel_length: Annotated[int, Meta(ge=0, le=2**24)] = 0
    """Lags of the kernel; 0: as many as there are steps."""

    def __post_init__(self) -> None:
        _check_steps(self.dt_min, self.dt_max)

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        if self.init == "hippo" and 2 * state > LARGEST_HIPPO:
            raise ValueError(f'init = "hippo" needs a state of at most {LARGEST_HIPPO // 2}, found state = {state}')

    def fits_length(self, length: int) -> None:
        _check_kernel(self.kernel_length, length)


Recurrence = (
    DenseRecurrence
    | DiagonalRecurrence
    | RotRNNRecurrence
    | DLRRecurrence
    | DSSRecurrence
    | S5Recurrence
    | S4DRecurrence
    | S4Recurrence
)
RECURRENCES: dict[str, type[Struct]] = {str(m.__struct_config__.tag): m for m in get_args(Recurrence)}
"""By the value of `model.recurrence.kind`; `lrurun.plugins` adds to it."""

if TYPE_CHECKING:
    AnyRecurrence = RecurrenceSettings
else:

    class AnyRecurrence(ABC):  # noqa: B024
        """Whatever `RECURRENCES` has when a table is converted: msgspec asks `decode_hook`."""

    AnyRecurrence.register(RecurrenceSettings)


def recurrence_type() -> Any:
    """The union of all recurrences' tables, those of plug-ins too."""
    return Union[tuple(RECURRENCES.values())]


def decode_hook(type_: type, value: Any) -> Any:
    """What msgspec needs to convert a table that may have a recurrence of a plug-in.

    An error within has two places, the outer one last: ` - at `$.r_min` - at `$.model.recurrence``.
    """
    if type_ is not AnyRecurrence:
        raise NotImplementedError
    try:
        return msgspec.convert(value, recurrence_type(), strict=True)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


class ModelConfig(_Frozen, frozen=True, kw_only=True):
    """The network around the recurrence (Orvieto et al. 2023, figure 1 and appendix D)."""

    recurrence: AnyRecurrence
    depth: Annotated[int, Meta(ge=1, le=1000)]
    width: Annotated[int, Meta(ge=1, le=65536)]
    """H: features between the blocks."""
    state: Annotated[int, Meta(ge=1, le=65536)]
    """N: size of the recurrent state, as the paper of each kind counts it. dense, rotrnn: N real numbers; diagonal: N
    complex ones; dlr, dss: N complex ones, which all channels share; s5: N of the real system, so N / 2 complex ones,
    or N without `conj_sym`; s4d, s4: N of each channel's real system, so N / 2 complex ones a channel."""
    norm: Literal["batch", "layer"] = "batch"
    norm_momentum: Annotated[float, Meta(ge=0, lt=1)] = 0.95
    norm_place: Literal["pre", "post"] = "pre"
    """Where a block x + f(x) has its norm: x + f(norm(x)), as all LRU and S5 settings; norm(x + f(x)), as S4 and DLR on
    some tasks."""
    final_norm: bool = False
    """One more norm after the last block: S4's with norm_place = "pre"; LRU and S5 have none."""
    glu: Literal["full", "half", "half2", "none"] = "full"
    """What follows the recurrence's output y, with g = dropout(GELU(y)) and dense maps V, W. "full": V(g) sigma(W(g)),
    as LRU and S4; "half": g sigma(W(g)), as LRU on PathX; "half2": y sigma(W(g)), y itself; "none": g. S5's code (Smith
    et al. 2023) calls them full_glu, half_glu1, half_glu2 and gelu. A second dropout follows all but "none"."""
    pooling: Literal["mean", "max", "last"] = "mean"
    """Of the last block's outputs, over true positions: their mean, as LRU, S4 and S5; their largest, feature by
    feature, as DLR (Gupta et al. 2022); the last one of them."""
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    dropout_mask: Literal["sequence", "position"] = "sequence"
    """Whether a feature is dropped for all of a sequence, as in the published code, or at each position anew."""
    bidirectional: bool = False
    precision: Literal["tf32", "float32", "bf16"] = "tf32"
    """Of the dense products around the recurrence, which is float32 always. "tf32": as JAX does by itself on NVIDIA's
    devices, and did for the papers; a CPU then computes in float32."""
    parity: Literal["none", "reference"] = "none"
    """"reference": batch statistics count padding and a backward scan starts in it, as in the published code."""

    def __post_init__(self) -> None:
        if self.final_norm and self.norm_place == "post":
            raise ValueError('final_norm = true needs norm_place = "pre": with "post" the last block ends in a norm')
        self.recurrence.fits(width=self.width, state=self.state, bidirectional=self.bidirectional)


class OptimConfig(_Frozen, frozen=True, kw_only=True):
    """AdamW in two groups, linear warm-up, then cosine (Orvieto et al. 2023, appendix D)."""

    lr: Annotated[float, Meta(gt=0, le=10)]
    recurrent_factor: Annotated[float, Meta(gt=0, le=100)]
    """The recurrent group trains at lr * recurrent_factor, without decay."""
    weight_decay: Annotated[float, Meta(ge=0, le=10)]
    decay_norm_bias: bool = True
    """Whether biases, and the scales and biases of norms, decay like the dense maps: they do in the code of S5, not in
    S4's; no paper says."""
    warmup: Annotated[float, Meta(ge=0, lt=1)] = 0.1
    """Share of the steps in which the rate rises."""
    floor: Annotated[float, Meta(ge=0, le=1)] = 1e-7
    """The rate at the first and after the last step."""
    b1: Annotated[float, Meta(ge=0, lt=1)] = 0.9
    b2: Annotated[float, Meta(ge=0, lt=1)] = 0.999
    eps: Annotated[float, Meta(gt=0, le=1)] = 1e-8

    def __post_init__(self) -> None:
        if self.floor > self.lr:
            raise ValueError(f"floor must not be larger than lr, found floor = {self.floor}, lr = {self.lr}")


class TrainConfig(_Frozen, frozen=True, kw_only=True):
    """How long, on how much, and how often the model is looked at."""

    steps: Count
    batch: Annotated[int, Meta(ge=1, le=1_000_000)]
    eval_every: Count
    """Steps between evaluations on the validation split; the last step is always evaluated."""
    log_every: Count = 10
    """Steps averaged into one row of the training curve."""
    protocol: Literal["holdout", "paper"] = "holdout"
    """"paper": selection as published where that used the test split; flagged in every report."""


class Code(_Frozen, frozen=True, kw_only=True, omit_defaults=True):
    """What of a run is not lrurun's own: `sha256:` and the digest of what defines it, see `lrurun.plugins`."""

    recurrence: str | None = None
    task: str | None = None


class RunConfig(_Frozen, frozen=True, kw_only=True, omit_defaults=True):
    """One training with one result: task, model, optimizer, schedule, seed."""

    task: Annotated[str, Meta(min_length=1)]
    data: dict[str, Any]
    """The declared "version" of the data, and the settings they were made with, those at their default left out."""
    model: ModelConfig
    optim: OptimConfig
    train: TrainConfig
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    code: Code | None = None
    """Set by `lrurun.plan`, never by a document."""


class Execution(_Frozen, frozen=True, kw_only=True):
    """How a run is carried out. Recorded, never hashed: none of it is meant to change a result."""

    threads: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Size of XLA's thread pool; fixed at a run's first attempt, because sums depend on it."""
    steps_per_dispatch: Annotated[int, Meta(ge=1, le=100_000)] = 25
    checkpoint_seconds: Annotated[float, Meta(ge=0, le=1e6)] = 60.0
    hang_after_seconds: Annotated[float, Meta(gt=0, le=1e7)] = 1800.0
    scan_backend: Literal["auto", "sequential", "chunked", "associative", "pallas"] = "auto"
    remat: bool = False
    """Whether the backward pass computes the blocks again instead of keeping what is inside: less memory, more time."""
    feed: Literal["auto", "device", "stream"] = "auto"
    """Where batches are gathered: on the device, where the training data then live, or on the host, which holds up to
    five blocks of steps_per_dispatch * train.batch examples; "auto" goes by their size."""


KIND = "model.recurrence.kind"
SECTIONS: dict[str, type[Struct]] = {
    "model": ModelConfig,
    "optim": OptimConfig,
    "train": TrainConfig,
    "execution": Execution,
}


def known_paths() -> tuple[str, ...]:
    """Every dotted path that a ladder, a recipe or `--set` may name."""
    return _known_paths(tuple(RECURRENCES.values()))


@cache
def _known_paths(members: tuple[type[Struct], ...]) -> tuple[str, ...]:
    paths: list[str] = []
    for section, type_ in SECTIONS.items():
        for name in type_.__struct_fields__:
            if (section, name) == ("model", "recurrence"):
                settings = dict.fromkeys(s for member in members for s in member.__struct_fields__)
                paths += [KIND, *(f"model.recurrence.{setting}" for setting in settings)]
            else:
                paths.append(f"{section}.{name}")
    return tuple(paths)


_fields = cache(msgspec.structs.fields)


def canonical(value: Any) -> Any:
    """A config as plain data, fields at their default left out, so that a later version's field changes no hash."""
    if isinstance(value, Struct):
        config = value.__struct_config__
        table: dict[str, Any] = {config.tag_field: config.tag} if config.tag_field else {}
        for field in _fields(type(value)):
            item = getattr(value, field.name)
            if field.default is msgspec.NODEFAULT or item != field.default:
                table[field.name] = canonical(item)
        return table
    if isinstance(value, float):
        return value + 0.0  # -0.0 and 0.0 are one value
    return value


def fingerprint(config: RunConfig) -> str:
    """`sha256:` and 64 hex digits over the canonical JSON of `config`."""
    document = {"config_version": CONFIG_VERSION, "run": canonical(config)}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def shared_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What all seeds of a rung have in common: the canonical form of a plain configuration, less its seed.

    Not to be changed: a thousand seeds get the same one. Raises msgspec.ValidationError.
    """
    return _shared(msgspec.json.encode({**config, "seed": 0}), tuple(RECURRENCES.values()))


@cache
def _shared(text: bytes, _known: tuple[type[Struct], ...]) -> dict[str, Any]:
    table: dict[str, Any] = canonical(msgspec.json.decode(text, type=RunConfig, dec_hook=decode_hook))
    del table["seed"]
    return table


def program_key(config: RunConfig, execution: Execution) -> str:
    """What two runs must share to share compiled programs: everything but the seed and the peak rate."""
    table = canonical(config)
    del table["seed"], table["optim"]["lr"]
    return json.dumps([table, execution.scan_backend, execution.remat], sort_keys=True)

"""Search beyond a grid: `[tune] search` proposes settings by Optuna's samplers. No jax.

The ledger is the only record: trials are ordinary tuning runs. What a trial tries follows from its number, the recipe
and the scores of earlier trials, so that a search is continued by proposing all of its trials again: each is asked for
with a seed of its own, after the scores of earlier ones are reported, in the order of their numbers.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from lrurun.config.claim import LARGEST
from lrurun.errors import LrurunError, UsageError, plural

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

Kind = Literal["random", "tpe"]
STARTUP = 10
"""Trials at random with which TPE begins, as is Optuna's default."""
DIGITS = 4
"""Significant digits of proposed numbers: no trial depends on the last bits of a logarithm."""

_Number = Annotated[int, Meta(ge=-int(LARGEST), le=int(LARGEST))] | Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]


class Range(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values that a search may try, both ends included; whole numbers for settings that are whole."""

    low: _Number
    high: _Number
    log: bool = False
    """Whether small values are as likely as large ones: uniform in the logarithm."""
    step: _Number | None = None
    """Only `low` plus multiples of this."""

    def fault(self, where: str) -> UsageError | None:
        """The error about a range without values; None if it has some."""
        found = f"{where}: low = {self.low}, high = {self.high}"
        if self.low >= self.high:
            return UsageError(f"{found}: low must be less than high", "a list has single values: [0.9]")
        if self.log and self.low <= 0:
            return UsageError(f"{found}: a logarithmic range begins above 0", "raise low, or omit log = true")
        if self.log and self.step is not None:
            return UsageError(f"{found}: log and step exclude each other", "omit one of them")
        if self.step is not None and not 0 < self.step <= self.high - self.low:
            return UsageError(f"{found}: step = {self.step} does not fit into it", "above 0, at most high - low")
        return None

    def __str__(self) -> str:
        more = " (log)" if self.log else "" if self.step is None else f" (step {self.step:g})"
        return f"{self.low:g} to {self.high:g}{more}"


class Search(Struct, frozen=True, kw_only=True):
    """How a recipe searches."""

    kind: Kind
    trials: int
    batch: int
    """Trials of TPE that are proposed together, after the first ones."""

    @property
    def text(self) -> str:
        """As in "random search, 20 trials"."""
        name = "random search" if self.kind == "random" else f"TPE search, batches of {self.batch}"
        return f"{name}, {plural(self.trials, 'trial')}"

    def needed(self, number: int) -> int:
        """How many of the first trials must be over before this one is proposed."""
        if self.kind == "random" or number < STARTUP:
            return 0
        return STARTUP + (number - STARTUP) // self.batch * self.batch


def require_optuna() -> None:
    """Raise LrurunError if Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ModuleNotFoundError:
        raise LrurunError(
            "a search needs Optuna, which is not installed", "install it: pip install 'lrurun[search]'"
        ) from None


def proposed(
    search: Search, tried: Mapping[str, Range | list[Any]], config: Mapping[str, Any], scores: Sequence[float | None]
) -> list[dict[str, Any]]:
    """What the first trials try, as far as it follows from the scores: dotted path -> value, for each of them.

    Args:
        tried: dotted path -> its range, or the values to choose from.
        config: dotted path -> value without tuning, whose types the values have.
        scores: of the first trials, more is better; None for a trial of which a seed diverged or failed, which counts
            as worst.

    Raises:
        LrurunError: Optuna is not installed.
    """
    require_optuna()
    import optuna
    from optuna.trial import TrialState

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        # options of samplers that Optuna calls experimental, and steps that end before `high`
        warnings.simplefilter("ignore")
        distributions = {path: _distribution(values, config.get(path)) for path, values in tried.items()}
        study = optuna.create_study(direction="maximize", sampler=_sampler(search, 0))
        points: list[dict[str, Any]] = []
        reported = 0
        asked: list[optuna.Trial] = []
        for number in range(search.trials):
            needed = search.needed(number)
            if needed > len(scores):
                break
            for before, score in zip(asked[reported:needed], scores[reported:needed], strict=True):
                if score is None:
                    study.tell(before, state=TrialState.PRUNED)
                else:
                    study.tell(before, score)
            reported = needed
            study.sampler = _sampler(search, number)
            asked.append(study.ask(distributions))
            points.append({path: _value(asked[-1].params[path], values) for path, values in tried.items()})
    return points


def _sampler(search: Search, number: int) -> BaseSampler:
    """The sampler of one trial: its seed is that of its number, the same for all rungs."""
    from optuna.samplers import RandomSampler, TPESampler

    seed = zlib.crc32(f"trial {number}".encode())
    if search.kind == "random":
        return RandomSampler(seed=seed)
    return TPESampler(seed=seed, n_startup_trials=STARTUP, constant_liar=True)


def _distribution(values: Range | list[Any], default: Any) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(values, list):
        # by number: Optuna's categories are single values, settings may be lists
        return CategoricalDistribution(list(range(len(values))))
    if isinstance(default, float) or any(isinstance(one, float) for one in (values.low, values.high, values.step)):
        return FloatDistribution(float(values.low), float(values.high), log=values.log, step=values.step)
    step = {} if values.step is None else {"step": int(values.step)}
    return IntDistribution(int(values.low), int(values.high), log=values.log, **step)


def _value(found: Any, values: Range | list[Any]) -> Any:
    if isinstance(values, list):
        return values[found]
    if isinstance(found, int):
        return found
    if values.step is not None:  # only what binary fractions add: 0.3 for 0.30000000000000004
        return float(f"{found:.12g}")
    return min(max(float(f"{found:.{DIGITS}g}"), float(values.low)), float(values.high))

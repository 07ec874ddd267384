"""The search of a recipe: the points that Optuna's samplers propose to tuning. No jax.

Nothing but the ledger keeps a search: trials are ordinary tuning runs. The point of a trial follows from its
number, the recipe and the scores of earlier trials. A search is continued by proposing all its trials again: each with
its own seed, after the scores of earlier trials are reported, in the order of the trials.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun.config.recipe import Range, Recipe, SearchMethod, get_profile
from lrurun.errors import LrurunError, plural

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

STARTUP = 10
"""The number of random trials with which TPE begins, as is Optuna's default."""
DIGITS = 4
"""The significant digits of proposed numbers, so that no trial depends on the last bits of a logarithm."""


class Search(Struct, frozen=True, kw_only=True):
    """The search of a recipe."""

    method: SearchMethod
    trials: int
    batch: int
    """The number of trials that TPE proposes together, after the random ones."""

    @property
    def text(self) -> str:
        """A description, as in "random search, 20 trials"."""
        name = "random search" if self.method == "random" else f"TPE search, batches of {self.batch}"
        return f"{name}, {plural(self.trials, 'trial')}"

    def needed(self, number: int) -> int:
        """How many of the first trials must be over before the trial with this number is proposed."""
        if self.method == "random" or number < STARTUP:
            return 0
        return STARTUP + (number - STARTUP) // self.batch * self.batch


def search_of(recipe: Recipe, profile: str | None) -> Search | None:
    """The search of the recipe or its profile; None for a grid."""
    if recipe.tune is None or recipe.tune.search is None:
        return None
    trials = get_profile(recipe, profile).trials or recipe.tune.trials or 0
    return Search(method=recipe.tune.search, trials=trials, batch=recipe.tune.batch)


def require_optuna() -> None:
    """Raise LrurunError if Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ModuleNotFoundError:
        raise LrurunError(
            "a search needs Optuna, which is not installed", "install it: pip install 'lrurun[search]'"
        ) from None


def proposed_points(
    search: Search, tried: Mapping[str, Range | list[Any]], config: Mapping[str, Any], scores: Sequence[float | None]
) -> list[dict[str, Any]]:
    """The points of the first trials, as far as they follow from the scores; each is dotted path -> value.

    Args:
        tried: dotted path -> its range, or the values to choose from.
        config: dotted path -> value without tuning; proposed values have the same types.
        scores: the scores of the first trials, more is better; None for a trial of which a seed diverged, failed or has
            no finite score, which counts as worst.

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
        proposed: list[optuna.Trial] = []
        for number in range(search.trials):
            needed = search.needed(number)
            if needed > len(scores):
                break
            for trial, score in zip(proposed[reported:needed], scores[reported:needed], strict=True):
                if score is None:
                    study.tell(trial, state=TrialState.PRUNED)
                else:
                    study.tell(trial, score)
            reported = needed
            study.sampler = _sampler(search, number)
            proposed.append(study.ask(distributions))
            points.append({path: _value(proposed[-1].params[path], values) for path, values in tried.items()})
    return points


def _sampler(search: Search, number: int) -> BaseSampler:
    """The sampler of a trial. Its seed depends on the number of the trial, and is the same for all rungs."""
    from optuna.samplers import RandomSampler, TPESampler

    seed = zlib.crc32(f"trial {number}".encode())
    if search.method == "random":
        return RandomSampler(seed=seed)
    return TPESampler(seed=seed, n_startup_trials=STARTUP, constant_liar=True)


def _distribution(values: Range | list[Any], default: Any) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(values, list):
        # by index: Optuna's categories are single values, settings may be lists
        return CategoricalDistribution(list(range(len(values))))
    if isinstance(default, float) or any(
        isinstance(number, float) for number in (values.low, values.high, values.step)
    ):
        return FloatDistribution(float(values.low), float(values.high), log=values.log, step=values.step)
    step = {} if values.step is None else {"step": int(values.step)}
    return IntDistribution(int(values.low), int(values.high), log=values.log, **step)


def _value(proposal: Any, values: Range | list[Any]) -> Any:
    if isinstance(values, list):
        return values[proposal]
    if isinstance(proposal, int):
        return proposal
    if values.step is not None:  # only what binary fractions add: 0.3 for 0.30000000000000004
        return float(f"{proposal:.12g}")
    return min(max(float(f"{proposal:.{DIGITS}g}"), float(values.low)), float(values.high))

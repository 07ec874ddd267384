"""The points that tuning tries for each rung: a grid, or a space that Optuna's samplers search. No jax.

The grid or space comes from the recipe or its profile, and from the recipe's table for the rung. The ledger is the only
record of a search: trials are ordinary tuning runs. The point of a trial follows from its number, the recipe and the
scores of earlier trials, so that a search is continued by proposing all its trials again: each is asked for with its
own seed, after the scores of earlier trials are reported, in the order of the trials.
"""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun.config.recipe import Range, Recipe, RungTable, SearchKind, Tried, Tune, get_profile
from lrurun.config.schema import KIND, RECURRENCE, is_inherited
from lrurun.config.settings import kind_fields
from lrurun.errors import LrurunError, plural

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

STARTUP = 10
"""The number of random trials with which TPE begins, as is Optuna's default."""
DIGITS = 4
"""The significant digits of proposed numbers, so that no trial depends on the last bits of a logarithm."""
TuningGrid = dict[str, tuple[Tried, str]]
"""Dotted path -> the values to try, or their range, and their source."""


class Search(Struct, frozen=True, kw_only=True):
    """The search of a recipe."""

    kind: SearchKind
    trials: int
    batch: int
    """The number of trials that TPE proposes together, after the random ones."""

    @property
    def text(self) -> str:
        """A description, as in "random search, 20 trials"."""
        name = "random search" if self.kind == "random" else f"TPE search, batches of {self.batch}"
        return f"{name}, {plural(self.trials, 'trial')}"

    def needed(self, number: int) -> int:
        """How many of the first trials must be over before the trial with this number is proposed."""
        if self.kind == "random" or number < STARTUP:
            return 0
        return STARTUP + (number - STARTUP) // self.batch * self.batch


def common_grid(recipe: Recipe, profile: str | None) -> TuningGrid:
    """The grid for all rungs. A rung tries those of its paths that its recurrence has."""
    values = get_profile(recipe, profile).tune
    if values:
        return {path: (tried, f"{recipe.path} [profile.{profile}.tune]") for path, tried in values.items()}
    if recipe.tune is None:
        return {}
    name = "grid" if recipe.tune.search is None else "space"
    return {path: (tried, f"{recipe.path} [tune.{name}]") for path, tried in getattr(recipe.tune, name).items()}


def replacement_note(recipe: Recipe, profile: str | None) -> str:
    """A phrase that says that the profile replaces the grid of its recipe, which may come from `extends`; empty if it
    does not."""
    tried = {} if recipe.tune is None else recipe.tune.grid | recipe.tune.space
    if not tried or get_profile(recipe, profile).tune in (None, {}, tried) or recipe.is_packaged:
        return ""
    name = "grid" if recipe.tune is None or recipe.tune.search is None else "space"
    return f"profile {profile} has values of its own to try, so {recipe.path} [tune.{name}] is not used"


def search_of(recipe: Recipe, profile: str | None) -> Search | None:
    """The search of the recipe or its profile; None for a grid."""
    if recipe.tune is None or recipe.tune.search is None:
        return None
    trials = get_profile(recipe, profile).trials or recipe.tune.trials or 0
    return Search(kind=recipe.tune.search, trials=trials, batch=recipe.tune.batch)


def seeds_of(recipe: Recipe, profile: str | None) -> int:
    """The number of seeds with which each point is trained."""
    reduced = get_profile(recipe, profile)
    seeds = (recipe.tune or Tune()).seeds
    return reduced.tune_seeds or min(seeds, reduced.seeds or seeds)


def examples(tried: Tried) -> list[Any]:
    """The values to try, or the ends of their range, which must all be valid for the rung."""
    return [tried.low, tried.high] if isinstance(tried, Range) else tried


def is_edge(value: Any, tried: Tried) -> bool:
    """Whether a value is the smallest or the largest number that was tried, so that the best one may lie beyond."""
    ends = examples(tried)
    if len(ends) < 2 or any(isinstance(end, bool) or not isinstance(end, int | float) for end in ends):
        return False
    return value in (min(ends), max(ends))


def inherited_grid(base: TuningGrid, tables: Sequence[RungTable], declared: Collection[str]) -> TuningGrid:
    """The grid of a rung and of the rungs that change it, beside the common grid.

    Args:
        base: the inherited grid of the base of the rung.
        tables: the tables of the recipe for the rung.
        declared: the paths that the ladder or the recipe sets for the rung, which are then no longer tried.
    """
    kept = {path: values for path, values in base.items() if is_inherited(path) and path not in declared}
    if KIND in declared:
        kept = {path: values for path, values in kept.items() if not path.startswith(RECURRENCE)}
    return kept | {
        path: (tried, f"{table.where[:-1]}.tune]") for table in tables for path, tried in table.notes.tune.items()
    }


def applicable(grid: TuningGrid, kind: Any, fixed: Collection[str]) -> TuningGrid:
    """The part of a grid that fits this kind of recurrence, without the paths that `--set` fixes."""
    return {path: values for path, values in grid.items() if path not in fixed and has(kind, path)}


def has(kind: Any, path: str) -> bool:
    """Whether a rung with this kind of recurrence has a setting."""
    return not path.startswith(RECURRENCE) or path == KIND or path.removeprefix(RECURRENCE) in kind_fields(kind)


def sentences(grids: Mapping[str, Mapping[str, Tried]], seeds: int, search: Search | None = None) -> list[str]:
    """Sentences about the values that tuning tries, one for each different grid or space in `grids`, by rung."""
    method = f" with {plural(seeds, 'seed')}" + ("" if search is None else f" by {search.text}")
    rungs: dict[str, list[str]] = {}
    for rung, grid in grids.items():
        tried = "; ".join(f"{path} from {_listed(values)}" for path, values in grid.items())
        rungs.setdefault(tried, []).append(rung)
    if len(rungs) == 1:
        return [f"Chosen on validation{method}, for each rung: {tried}." for tried in rungs]
    return [
        f"Chosen on validation{method}, for {', '.join(names)}: {tried}."
        if tried
        else f"Not tuned: {', '.join(names)}."
        for tried, names in rungs.items()
    ]


def _listed(values: Tried) -> str:
    return str(values) if isinstance(values, Range) else ", ".join(map(short, values))


def short(value: Any) -> str:
    """A value as tables show it."""
    return f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


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
        asked: list[optuna.Trial] = []
        for number in range(search.trials):
            needed = search.needed(number)
            if needed > len(scores):
                break
            for trial, score in zip(asked[reported:needed], scores[reported:needed], strict=True):
                if score is None:
                    study.tell(trial, state=TrialState.PRUNED)
                else:
                    study.tell(trial, score)
            reported = needed
            study.sampler = _sampler(search, number)
            asked.append(study.ask(distributions))
            points.append({path: _value(asked[-1].params[path], values) for path, values in tried.items()})
    return points


def _sampler(search: Search, number: int) -> BaseSampler:
    """The sampler of a trial. Its seed depends on the number of the trial, and is the same for all rungs."""
    from optuna.samplers import RandomSampler, TPESampler

    seed = zlib.crc32(f"trial {number}".encode())
    if search.kind == "random":
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

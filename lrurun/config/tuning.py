"""What tuning tries for each rung: a grid, or a space that Optuna's samplers search. No jax.

It is that of the recipe, or of its profile, and what the recipe has for the rung alone. The ledger is the only record
of a search: trials are ordinary tuning runs. What a trial tries follows from its number, the recipe and the scores of
earlier trials, so that a search is continued by proposing all of its trials again: each is asked for with a seed of its
own, after the scores of earlier ones are reported, in the order of their numbers.
"""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun.config.recipe import Range, Recipe, RungTable, SearchKind, Tune, get_profile
from lrurun.config.recurrences import KINDS
from lrurun.config.schema import KIND, RECURRENCE, is_inherited
from lrurun.errors import LrurunError, plural

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

STARTUP = 10
"""Trials at random with which TPE begins, as is Optuna's default."""
DIGITS = 4
"""Significant digits of proposed numbers: no trial depends on the last bits of a logarithm."""
Tried = list[Any] | Range
Grid = dict[str, tuple[Tried, str]]
"""Dotted path -> the values to try, and their source."""


class Search(Struct, frozen=True, kw_only=True):
    """How a recipe searches."""

    kind: SearchKind
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


def common(recipe: Recipe, profile: str | None) -> Grid:
    """The grid of all rungs. A rung tries what its recurrence has of it."""
    values = get_profile(recipe, profile).tune
    if values:
        return {path: (tried, f"{recipe.path} [profile.{profile}.tune]") for path, tried in values.items()}
    if recipe.tune is None:
        return {}
    name = "grid" if recipe.tune.search is None else "space"
    return {path: (tried, f"{recipe.path} [tune.{name}]") for path, tried in getattr(recipe.tune, name).items()}


def replaced(recipe: Recipe, profile: str | None) -> str:
    """A phrase on a grid of a profile that replaces another one of the recipe, as one that it has by `extends`; empty
    if there is none."""
    own = {} if recipe.tune is None else recipe.tune.grid | recipe.tune.space
    if not own or get_profile(recipe, profile).tune in ({}, own) or recipe.is_packaged:
        return ""
    name = "grid" if recipe.tune is None or recipe.tune.search is None else "space"
    return f"{recipe.path} [tune.{name}] is not used with profile {profile}, which has values of its own to try"


def search_of(recipe: Recipe, profile: str | None) -> Search | None:
    """How the recipe searches; None for a grid."""
    if recipe.tune is None or recipe.tune.search is None:
        return None
    trials = get_profile(recipe, profile).trials or recipe.tune.trials or 0
    return Search(kind=recipe.tune.search, trials=trials, batch=recipe.tune.batch)


def seeds_of(recipe: Recipe, profile: str | None) -> int:
    """The number of seeds that each point is trained with."""
    reduced = get_profile(recipe, profile)
    seeds = (recipe.tune or Tune()).seeds
    return reduced.tune_seeds or min(seeds, reduced.seeds or seeds)


def examples(tried: Tried) -> list[Any]:
    """The values to try, or the ends of their range: what a rung must be able to have."""
    return [tried.low, tried.high] if isinstance(tried, Range) else tried


def inherited(base: Grid, tables: Sequence[RungTable], declared: Collection[str]) -> Grid:
    """What a rung and those that change it try, beside the common grid.

    Args:
        base: the same of its base.
        tables: what the recipe has for the rung.
        declared: the paths that the ladder or the recipe sets for it, which are not tried any more.
    """
    kept = {path: one for path, one in base.items() if is_inherited(path) and path not in declared}
    if KIND in declared:
        kept = {path: one for path, one in kept.items() if not path.startswith(RECURRENCE)}
    return kept | {path: (tried, f"{one.where[:-1]}.tune]") for one in tables for path, tried in one.notes.tune.items()}


def applying(grid: Grid, kind: Any, fixed: Collection[str]) -> Grid:
    """What a rung with this kind of recurrence tries: settings that it has, without those that `--set` fixes."""
    return {path: one for path, one in grid.items() if path not in fixed and has(kind, path)}


def has(kind: Any, path: str) -> bool:
    """Whether a rung with this kind of recurrence has a setting."""
    return not path.startswith(RECURRENCE) or path == KIND or path.removeprefix(RECURRENCE) in fields(kind)


def fields(kind: Any) -> tuple[str, ...]:
    """The settings of a kind of recurrence; none if it is unknown."""
    return KINDS[kind].settings.__struct_fields__ if isinstance(kind, str) and kind in KINDS else ()


def sentences(grids: Mapping[str, Mapping[str, Tried]], seeds: int, search: Search | None = None) -> list[str]:
    """Sentences on what tuning tries, from rung -> its grid or space: one for each of them."""
    how = f" with {plural(seeds, 'seed')}" + ("" if search is None else f" by {search.text}")
    rungs: dict[str, list[str]] = {}
    for rung, grid in grids.items():
        tried = "; ".join(f"{path} from {_listed(values)}" for path, values in grid.items())
        rungs.setdefault(tried, []).append(rung)
    if len(rungs) == 1:
        return [f"Chosen on validation{how}, for each rung: {tried}." for tried in rungs]
    return [
        f"Chosen on validation{how}, for {', '.join(names)}: {tried}." if tried else f"Not tuned: {', '.join(names)}."
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

"""The state, the seed and the score of an imported run, by the table `[import]`.

| the tracker calls the run | and it has | the ledger's state | in verdicts |
|---|---|---|---|
| finished | the score, a finite number | done | counts with its score |
| finished | the score, which is NaN or an infinity | done | ranks below all others |
| finished | no score at the step that counts | failed | missing |
| crashed | anything; `crashed = "missing"` | failed | missing |
| crashed | anything; `crashed = "failed"` | diverged | ranks below all others |
| running | anything | interrupted | missing |
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from msgspec import Struct, structs

from lrurun.config import metric_names
from lrurun.errors import UsageError
from lrurun.imported.attempts import one_per_step, ordered
from lrurun.ledger.values import State
from lrurun.trackers import Curve
from lrurun.trackers.numbers import number

if TYPE_CHECKING:
    from lrurun.config.imported import ImportTable
    from lrurun.trackers import TrackedRun

BEST_STEP = "best_step"
"""The name of the step that was chosen among the values of a result."""

_LARGEST = 2**63 - 1
"""The largest seed that a ledger can have; the least one is as far below 0."""
_EXACT = 2**53
"""From here on, numbers of 64 bits with a fraction no longer have all whole numbers."""


_WentBack = Literal["", "attempts", "writers"]


class ScoredRun(Struct, frozen=True, kw_only=True):
    """A tracked run as the table `[import]` reads it."""

    run: TrackedRun
    """Without curves."""
    tracker: str
    """The name of its reader."""
    seed: int | None
    """The value of its seed setting; None where the table names none, or the run has none that is a seed."""
    state: State
    """"done" or "diverged": a result; "failed" (it crashed, or has no score) or "interrupted" (not known to have
    ended): missing."""
    result: dict[str, float] | None
    """The score, as in "test/acc"; "val/acc" of the metric for choice, "best_step"."""
    step: int
    """The last step that it reached; 0 where it has no steps."""
    score_step: int | None = None
    """The step of a score that is the last of several; None where it is not known, or has no such step."""
    why: str = ""
    """Why it has no result."""
    seed_error: UsageError | None = None
    """Why the value of its seed setting is no seed: an error only where the run belongs to a rung and has a result."""
    choice: float | None = None
    """The metric for choice, wherever the score is missing too; NaN if it is there and never finite. None: the run has
    none, or has not ended well."""
    at_only_value: bool = False
    """Whether it is scored at its only value, although the best step counts: it has no curves of both metrics."""
    went_back: _WentBack = ""
    """Why the steps of a curve that was read go back, if they do, see `attempts`."""

    @property
    def end(self) -> int:
        """The last step that its score is of."""
        return self.step if self.score_step is None else self.score_step

    @property
    def key(self) -> tuple[str, str]:
        """Its project and id, which no other run has."""
        return self.run.project, self.run.id

    @property
    def has_result(self) -> bool:
        """Whether verdicts count it; else it is missing."""
        return self.state in ("done", "diverged")

    @property
    def is_eligible(self) -> bool:
        """Whether it counts where settings are chosen: it has ended with the metric for choice, or is a failure."""
        return self.choice is not None or self.state == "diverged"

    @property
    def label(self) -> str:
        """Its id in messages, with its name where it has one, or the row that it is."""
        name = self.run.name or self.run.row
        return f"{self.run.id} ({name})" if name else self.run.id


class _Reading(NamedTuple):
    """What is read of a run that has ended well."""

    score: float | None = None
    """None: the run has none where it counts."""
    choice: float | None = None
    """The metric for choice at the same step."""
    best_step: int | None = None
    at_only_value: bool = False
    why: str = ""


def scored(run: TrackedRun, tracker: str, table: ImportTable) -> ScoredRun:
    """The state, seed and score of a run whose curves of the score and of the metric for choice were read.

    The state follows from the table at the head of this module. The score is

    * at the last step: the last value that the tracker has (`TrackedRun.last`);
    * at a step: the value that was recorded there last;
    * at the best step: of the steps at which both metrics were recorded, the one at which the metric for choice is
      best, the first of equal ones; NaN and infinities are never best. Where they were recorded in turn and never at
      the same step, as by calls without steps, each value belongs to the one beside it. A score with a single value, as
      of a test after training, is that value whatever the step: a caution counts such runs, and `check_best` refuses
      the best step where there are no others;
    * with `protocol = "best-of-test"`: the best finite value.

    Where the steps of a curve go back, in the order of recording, the points at and after the step to which they return
    are void, as of an attempt that was abandoned, and the run has reached the last step of the last attempt. Where two
    writers interleave, all points stay, and of each step the one that was recorded last: `attempts` has the rule.

    The metric for choice has a value of its own, which does not depend on the score, so that settings are chosen alike
    whatever test scores are missing: its last value, with a number as the step the last one up to there, with the best
    step its best one.
    """
    ended = run.state == "finished"
    reading = _reading(run, table) if ended else _Reading(why=_why_missing(run))
    state: State = "interrupted" if run.state == "running" else "failed"
    if run.state == "crashed" and table.crashed == "failed":
        state = "diverged"
    result: dict[str, float] | None = None
    factor = 100.0 if table.per_cent else 1.0
    of_choice = factor if table.choice_is_twin else 1.0
    if reading.score is not None:
        state = "done"
        result = {table.result: reading.score / factor}
        if reading.choice is not None and (math.isfinite(reading.choice) or table.at == "best"):
            result[table.result_for_choice] = reading.choice / of_choice
        if reading.best_step is not None:
            result[BEST_STEP] = float(reading.best_step)
    seed, seed_error = None, None
    try:
        seed = seed_of(run, table.seed)
    except UsageError as error:
        seed_error = error
    choice = _choice(run, table) if ended else None
    ends = _ends(run, (table.metric, table.metric_for_choice))
    reasons = {went_back for _, _, went_back in ends}
    return ScoredRun(
        run=_without_curves(run),
        tracker=tracker,
        seed=seed,
        state=state,
        result=result,
        step=_step_of(run, ends),
        score_step=_last_of_several(run, table) if ended and table.at == "last" else None,
        why=reading.why,
        seed_error=seed_error,
        choice=choice if choice is None else choice / of_choice,
        at_only_value=reading.at_only_value,
        went_back="writers" if "writers" in reasons else "attempts" if "attempts" in reasons else "",
    )


def _last_of_several(run: TrackedRun, table: ImportTable) -> int | None:
    """The step of the last score. A single one, as of a test after training, may be at any step."""
    if table.protocol == "best-of-test":
        return None
    if run.ends is not None and not run.curves:
        return run.ends.get(table.metric, (0, 0))[0] or None
    steps = _curve(run, table.metric).steps
    return int(steps[-1]) if len(steps) > 1 else None


def _ends(run: TrackedRun, metrics: Sequence[str]) -> list[tuple[int, int, _WentBack]]:
    """Of each of these metrics that has steps, the step at which it ends, the greatest one that was recorded, and why
    its steps go back. Without curves, an abandoned attempt is the only reason known."""
    if run.ends is not None and not run.curves:
        known = [run.ends[name] for name in metrics if name in run.ends]
        return [(end, greatest, "attempts" if end < greatest else "") for end, greatest in known]
    curves = [run.curves[name] for name in metrics if name in run.curves]
    found = [(ordered(curve), int(np.max(curve.steps))) for curve in curves if len(curve.steps)]
    return [
        (int(of_steps.curve.steps[-1]), greatest, of_steps.went_back)
        for of_steps, greatest in found
        if len(of_steps.curve.steps)
    ]


def _step_of(run: TrackedRun, ends: Sequence[tuple[int, int, _WentBack]]) -> int:
    """The step that a run has reached: its greatest one, without what an abandoned attempt alone has reached."""
    last = max((end for end, _, _ in ends), default=0)
    reached = max((greatest for _, greatest, _ in ends), default=0)
    return last if last < reached else max(run.last_step or 0, 0)


def _choice(run: TrackedRun, table: ImportTable) -> float | None:
    """The metric for choice of a run, whatever its score."""
    if not table.metric_for_choice or value_of(run, table.metric_for_choice) is None:
        return None
    if table.protocol == "best-of-test" or table.at == "last":
        return value_of(run, table.metric_for_choice)
    curve = _curve(run, table.metric_for_choice)
    if isinstance(table.at, int):
        before = np.flatnonzero(curve.steps <= table.at)
        return float(curve.values[before[-1]]) if len(before) else None
    values = curve.values if len(curve.steps) else np.array([value_of(run, table.metric_for_choice)])
    index = _best(values, 1.0 if table.is_higher_better_for_choice else -1.0)
    return math.nan if index is None else float(values[index])


def check_best(runs: Sequence[ScoredRun], table: ImportTable, where: str) -> None:
    """Refuses the best step where no run has curves of which one could be chosen.

    Raises:
        UsageError: with what can be done.
    """
    if table.at == "best" and all(run.at_only_value for run in runs if run.result is not None):
        raise UsageError(
            f"{where}: no run has curves of both {table.metric} and {table.metric_for_choice}, so that there are no "
            "steps to choose from",
            "take the last values, with --at last; or name a source with the values of each step",
        )


def _reading(run: TrackedRun, table: ImportTable) -> _Reading:
    if table.protocol == "best-of-test":
        return _best_of_test(run, table)
    if isinstance(table.at, int):
        return _at_step(run, table, table.at)
    return _at_last(run, table) if table.at == "last" else _at_best(run, table)


def _without_curves(run: TrackedRun) -> TrackedRun:
    return structs.replace(run, curves={}) if run.curves else run


def _why_missing(run: TrackedRun) -> str:
    if run.state_text:
        return f"its state is {run.state_text}"
    return "it crashed or was killed" if run.state == "crashed" else "it still runs, or its end is not known"


def value_of(run: TrackedRun, metric: str) -> float | None:
    """The last value of a metric; a column of numbers counts as one, where a table has it among the settings."""
    if metric in run.last:
        return float(run.last[metric])
    value = run.settings.get(metric)
    return number(value) if isinstance(value, int | float) else None


def _why_no_value(run: TrackedRun, metric: str) -> str:
    found = run.settings.get(metric)
    return f"it has no {metric}" if found in (None, "") else f"its {metric} is {found!r}, no number"


def _at_last(run: TrackedRun, table: ImportTable) -> _Reading:
    score = value_of(run, table.metric)
    if score is None:
        return _Reading(why=_why_no_value(run, table.metric))
    return _Reading(score, value_of(run, table.metric_for_choice) if table.metric_for_choice else None)


def _at_step(run: TrackedRun, table: ImportTable, step: int) -> _Reading:
    curve = _curve(run, table.metric)
    index = np.flatnonzero(curve.steps == step)
    if not len(index):
        seen = f"; its last one is at step {curve.steps[-1]}" if len(curve.steps) else ""
        why = _why_no_value(run, table.metric) if value_of(run, table.metric) is None else ""
        return _Reading(why=why or f"it has no {table.metric} at step {step}{seen}")
    return _Reading(float(curve.values[index[0]]), _choice(run, table))


def _at_best(run: TrackedRun, table: ImportTable) -> _Reading:
    for metric in (table.metric, table.metric_for_choice):
        if value_of(run, metric) is None:
            return _Reading(why=_why_no_value(run, metric))
    score, choice = _curve(run, table.metric), _curve(run, table.metric_for_choice)
    sign = 1.0 if table.is_higher_better_for_choice else -1.0
    if len(score.steps) < 2:  # there is nothing to choose
        single = float(score.values[0]) if len(score.steps) else value_of(run, table.metric)
        return _Reading(single, _choice(run, table), at_only_value=True)
    steps, scores, choices = _together(score, choice)
    if not len(steps):
        apart = f"{table.metric} and {table.metric_for_choice} were not recorded at the same steps"
        return _Reading(why=f"{apart}, so that none is chosen")
    index = _best(choices, sign)
    if index is None:
        return _Reading(math.nan, math.nan)
    only = len(choice.steps) < 2
    return _Reading(float(scores[index]), float(choices[index]), int(steps[index]), at_only_value=only)


def _best_of_test(run: TrackedRun, table: ImportTable) -> _Reading:
    last = value_of(run, table.metric)
    if last is None:
        return _Reading(why=_why_no_value(run, table.metric))
    curve = _curve(run, table.metric)
    values = curve.values if len(curve.steps) else np.array([last])
    index = _best(values, 1.0 if table.direction == "max" else -1.0)
    choice = value_of(run, table.metric_for_choice) if table.metric_for_choice else None
    return _Reading(math.nan if index is None else float(values[index]), choice)


def _best(values: np.ndarray, sign: float) -> int | None:
    """The index of the first of the best finite values; None if no value is finite."""
    oriented = np.where(np.isfinite(values), sign * values, -np.inf)
    index = int(np.argmax(oriented))
    return index if np.isfinite(oriented[index]) else None


def _curve(run: TrackedRun, metric: str) -> Curve:
    """The curve of a metric with one value for each step; an empty one where the run has none."""
    curve = run.curves.get(metric)
    return _NO_POINTS if curve is None else one_per_step(curve)


_NO_POINTS = Curve(steps=np.empty(0, np.int64), values=np.empty(0))


def _together(score: Curve, choice: Curve) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(points,) steps of the metric for choice, and the values of both metrics that belong together; empty arrays if
    nothing says which do."""
    steps, of_score, of_choice = np.intersect1d(score.steps, choice.steps, assume_unique=True, return_indices=True)
    if len(steps):
        return steps, score.values[of_score], choice.values[of_choice]
    for first, second in ((choice.steps, score.steps), (score.steps, choice.steps)):
        if len(first) == len(second) and (first < second).all() and (second[:-1] < first[1:]).all():
            return choice.steps, score.values, choice.values
    return steps, steps, steps


def recorded_curves(run: TrackedRun, table: ImportTable) -> dict[str, Curve]:
    """The curves of a run as a ledger has them: the score and the metric for choice under the names of the result, and
    one value for each step, in order: of several, the one that was recorded last.

    NaN and infinities are kept. Where the run has another metric with such a name already, that one gets a number.
    """
    names = {table.metric: table.result}
    if table.metric_for_choice:
        names[table.metric_for_choice] = table.result_for_choice
    curves: dict[str, Curve] = {}
    for metric, recorded in run.curves.items():
        curve = one_per_step(recorded)
        if not len(curve.steps):
            continue
        if table.per_cent and (metric == table.metric or (metric == table.metric_for_choice and table.choice_is_twin)):
            curve = Curve(steps=curve.steps, values=curve.values / 100.0)
        name, number = names.get(metric, metric), 2
        while name in curves or (metric not in names and name in names.values()):
            name, number = f"{metric}_{number}", number + 1
        curves[name] = curve
    return curves


def seed_of(run: TrackedRun, setting: str) -> int | None:
    """The value of the seed setting of a run; None without such a setting, or where the run has no value.

    Whole numbers count, also as in 3.0 and "3"; any that a ledger can keep exactly, so that no two become one.

    Raises:
        UsageError: the value is no such number.
    """
    value = run.settings.get(setting) if setting else None
    if value is None or value == "":
        return None
    seed: int | None = None
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,400}(\.0*)?\s*", value, re.ASCII):
        seed = int(value.partition(".")[0])
    elif isinstance(value, int) and not isinstance(value, bool):
        seed = value
    elif isinstance(value, float) and value.is_integer():
        seed = int(value)
    name = run.name or run.row
    label = f"{run.id} ({name})" if name else run.id
    if seed is None:
        hint = "name another setting with --seed-column; with --seed-column none, runs are numbered"
        raise UsageError(f"run {label}, {setting}: expected a whole number as its seed, found {value!r}", hint)
    if abs(seed) > (_EXACT if isinstance(value, float) else _LARGEST):
        hint = "give runs smaller seeds in the source, or with --seed-column none, runs are numbered"
        raise UsageError(f"run {label}, {setting}: the seed {value!r} is too large to be kept exactly", hint)
    return seed


# Per cent and fractions

_PER_CENT = 1.5
"""From here on, a share is one in per cent [ours]: fractions end at 1, but for what rounding and penalties add."""


def raw_score(run: ScoredRun, table: ImportTable) -> float:
    """The score of a run as its tracker has it; NaN where it has none."""
    return (run.result or {}).get(table.result, math.nan) * (100.0 if table.per_cent else 1.0)


def fractions_among(runs: Sequence[ScoredRun], table: ImportTable) -> tuple[ScoredRun | None, list[ScoredRun]]:
    """Of scores in per cent: the first run with one above 1.5, and those with one above 0 and at most 1, which may be
    fractions."""
    if table.unit != "%":
        return None, []
    above = next((run for run in runs if raw_score(run, table) > _PER_CENT), None)
    return above, [run for run in runs if 0 < raw_score(run, table) <= 1]


def check_unit(runs: Sequence[ScoredRun], table: ImportTable, *, word: str, is_asked: bool) -> None:
    """Refuses scores that are not of the unit that the table has.

    Args:
        word: what says that they are per cent, or are not: an option, or a key of the file.
        is_asked: that they are per cent is the word of the user, so that some may be at most 1 %.

    Raises:
        UsageError: per cent and fractions in one column; fractions that are called per cent, or the other way round.
    """
    above, fractions = fractions_among(runs, table)
    metric = table.metric
    if above is not None and not table.per_cent:
        score = raw_score(above, table)
        raise UsageError(
            f"{word}: run {above.label} has {metric} = {score:g}, which as a fraction is {score * 100:g} %",
            "with --per-cent (per_cent = true), values are divided by 100; or name another unit, as --unit points",
        )
    if above is not None and fractions and not is_asked:
        raise UsageError(
            f"{metric}: has per cent and fractions, found {raw_score(above, table):g} in run {above.label} and "
            f"{raw_score(fractions[0], table):g} in run {fractions[0].label}"
            + (f" and {len(fractions) - 1} more" if len(fractions) > 1 else ""),
            "give all one unit in the source; if all are in per cent, say so: --per-cent",
        )
    if table.unit == "%" and table.per_cent and above is None and fractions:
        largest = max(score for run in runs if math.isfinite(score := raw_score(run, table)))
        if largest <= 1:
            raise UsageError(
                f"{word}: the values of {metric} are at most {largest:g}, as fractions are, which would be divided by "
                "100",
                "leave it out (per_cent = false): fractions are printed in per cent",
            )


# Both steps that may count

LastAndBest = tuple[float, float]
"""The scores of a run at its last step, and at the step with the best validation score."""


def last_and_best(run: TrackedRun, table: ImportTable, choice: str) -> LastAndBest | None:
    """Both scores of a run whose curves of the score and of the validation metric `choice` were read, the latter in the
    direction of its own name; None if it lacks one of them, or one is not finite."""
    if choice != table.metric_for_choice:
        table = structs.replace(table, metric_for_choice=choice, direction_for_choice=None)
        if not table.choice_is_twin:
            table = structs.replace(table, direction_for_choice=metric_names.direction_of(choice))
    scores = [scored(run, "", structs.replace(table, seed="", at=at)).result for at in ("last", "best")]
    last, best = ((result or {}).get(table.result, math.nan) for result in scores)
    return (last, best) if math.isfinite(last) and math.isfinite(best) else None

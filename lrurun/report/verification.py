"""Whether a run that was trained again gave the same curves and result: bit for bit, or within a tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from lrurun.ledger.values import Attempt, Run

BEGINNING = 1e-3
"""Largest relative difference in the first row of the training loss: rounding errors have not grown yet."""
SCORE = 0.05
"""Largest difference of a score in the result, relative to it where it is above 1: rounding errors have grown, and the
two trainings differ like two seeds."""

_MACHINE = "machine/"
"""Metrics of the machine, which are not compared."""

Verdict = Literal["equal", "within tolerance", "different"]
_Key = tuple[str, int | None]
"""Metric and step; no step for a value of the result."""


class Recorded(Struct, frozen=True, kw_only=True):
    """The record of a finished run in a ledger."""

    run: Run
    attempts: Sequence[Attempt]
    curves: Mapping[str, Sequence[tuple[int, float]]]


class Difference(Struct, frozen=True, kw_only=True):
    """Two values that are not the same."""

    metric: str
    step: int | None
    """The step; None for a value of the result."""
    recorded: float | None
    """The recorded value; None where there is none."""
    repeated: float | None


class Verification(Struct, frozen=True, kw_only=True):
    """A run compared with its repetition."""

    verdict: Verdict
    reasons: tuple[str, ...]
    """Why equality bit for bit is not required."""
    metrics: int
    values: int
    """How many values were compared."""
    differing: int
    first: Difference | None
    """The first difference by step, differences of the result last."""
    beyond: Difference | None
    """The first difference that is larger than allowed."""
    largest: tuple[Difference, ...]
    """The largest difference of each metric, in a curve or in the result."""

    @property
    def exact(self) -> bool:
        """Whether equality bit for bit is required."""
        return not self.reasons


def verify(recorded: Recorded, repeated: Recorded) -> Verification:
    """Compares all that the run has recorded, except metrics of the machine. The repetition may have other metrics too.

    Equality bit for bit is required on a CPU of the same type with the same versions, numerics and threads.
    """
    reasons = tuple(_reasons(recorded, repeated.attempts[-1]))
    before, now = dict(_values(recorded)), dict(_values(repeated))
    metrics = {metric for metric, _ in before}
    both = before.keys() | {key for key in now if key[0] in metrics}
    differences = [
        Difference(metric=metric, step=step, recorded=before.get((metric, step)), repeated=now.get((metric, step)))
        for metric, step in sorted(both, key=_order)
        if not _same(before.get((metric, step)), now.get((metric, step)))
    ]
    first_row = min((step for step, _ in recorded.curves.get("train/loss", ())), default=None)
    beyond = [difference for difference in differences if not reasons or not _is_tolerated(difference, first_row)]
    ends = [(side.run.state, side.run.step if not reasons else None) for side in (recorded, repeated)]
    return Verification(
        verdict="different" if beyond or ends[0] != ends[1] else "within tolerance" if differences else "equal",
        reasons=reasons,
        metrics=len(metrics),
        values=len(before),
        differing=len(differences),
        first=next(iter(differences), None),
        beyond=next(iter(beyond), None),
        largest=tuple(_largest(differences)),
    )


def _largest(differences: Sequence[Difference]) -> Iterator[Difference]:
    """The largest difference of each metric; a value that one side lacks is larger than any."""

    def size(difference: Difference) -> float:
        if difference.recorded is None or difference.repeated is None:
            return math.inf
        distance = abs(difference.recorded - difference.repeated)
        return math.inf if math.isnan(distance) else distance

    largest: dict[str, Difference] = {}
    for difference in differences:
        if size(difference) > (size(largest[difference.metric]) if difference.metric in largest else -1.0):
            largest[difference.metric] = difference
    yield from largest.values()


def _values(record: Recorded) -> Iterator[tuple[_Key, float]]:
    for metric, curve in record.curves.items():
        if not metric.startswith(_MACHINE):
            yield from (((metric, step), value) for step, value in curve)
    for metric, value in (record.run.result or {}).items():
        if not metric.startswith(_MACHINE):
            yield (metric, None), value


def _order(key: _Key) -> tuple[float, str]:
    metric, step = key
    return math.inf if step is None else step, metric


def _same(before: float | None, now: float | None) -> bool:
    return before == now or (before is not None and now is not None and math.isnan(before) and math.isnan(now))


def _is_tolerated(difference: Difference, first_row: int | None) -> bool:
    """Whether a difference is within the tolerance: the beginning and the scores of the result are judged."""
    judged = (difference.metric == "train/loss" and difference.step == first_row) or (
        difference.step is None
        and difference.metric.startswith(("val", "test"))
        and not difference.metric.endswith("/loss")
    )
    if not judged:
        return True
    if difference.recorded is None or difference.repeated is None:
        return False
    size = abs(difference.recorded)
    allowed = SCORE * max(1.0, size) if difference.step is None else BEGINNING * size
    return abs(difference.recorded - difference.repeated) <= allowed


_COMPARED = {
    ("machine", "cpu"): "CPU",
    ("device",): "device",
    ("threads",): "threads",
    ("versions", "jax"): "jax",
    ("versions", "jaxlib"): "jaxlib",
    ("versions", "flax"): "flax",
    ("versions", "optax"): "optax",
}
"""Entry of an attempt's environment -> its name in a message."""


def _reasons(recorded: Recorded, now: Attempt) -> Iterator[str]:
    """Why the repetition cannot be required to be equal bit for bit, one reason for each entry that differs."""
    involved = _involved(recorded.attempts)
    if recorded.run.kind == "program":
        yield "a program need not give the same numbers twice"
        return
    for path, name in _COMPARED.items():
        present = _entry(now.environment, path)
        for before in dict.fromkeys(_entry(attempt.environment, path) for attempt in involved):
            if before != present:
                yield f"{name} {before or 'not recorded'} then, {present or 'not recorded'} now"
    for numerics in dict.fromkeys(attempt.numerics for attempt in involved):
        if numerics != now.numerics:
            yield f"numerics version {numerics} then, {now.numerics} now"
    devices = [_entry(attempt.environment, ("placement", "devices")) or "1" for attempt in (*involved, now)]
    for before in dict.fromkeys(devices[:-1]):
        if before != devices[-1]:
            yield f"batches over {before} devices then, over {devices[-1]} now"
    for packed in dict.fromkeys(_entry(attempt.environment, ("packed",)) for attempt in involved):
        if packed is not None:
            yield f"one of {packed} runs in one program then, trained alone now"
    platform = _entry(now.environment, ("platform",))
    if platform != "cpu":
        yield f"results on a {platform} are not exact"


def _involved(attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """The attempts that the result comes from: the last that began at step 0, and those that resumed it."""
    began = [attempt for attempt in attempts if attempt.resumed_from is not None]
    starts = [index for index, attempt in enumerate(began) if attempt.resumed_from == 0]
    return began[starts[-1] :] if starts else attempts


def _entry(environment: Mapping[str, Any], path: Sequence[str]) -> str | None:
    """An entry of an environment as text, None where it is not recorded."""
    entry: Any = environment
    for name in path:
        entry = entry.get(name) if isinstance(entry, Mapping) else None
    return None if entry is None else str(entry)

"""What a page about one run and the command `show` have in common: tables of a run, as headers and rows of text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun.config.settings import flatten
from lrurun.console import setting
from lrurun.ledger import owner
from lrurun.ledger.filters import when
from lrurun.report import devices

if TYPE_CHECKING:
    from lrurun.ledger.values import Attempt, Checkpoint, Event, Run

Curves = Mapping[str, Sequence[tuple[int, float]]]
"""Metric -> its values as (step, value)."""

Spectra = Mapping[str, Sequence[Sequence[complex] | None]]
"""Moment ("start", "end") -> the eigenvalues of each layer, None if its recurrence has none."""

MOMENTS = {"start": "at initialisation", "end": "after training"}


class TextTable(Struct, frozen=True):
    """A table of text."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def _table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> TextTable:
    return TextTable(title, tuple(headers), tuple(map(tuple, rows)))


def heading(run: Run) -> str:
    """As in "run 0123456789ab: sDigits, seed 0, done at step 300 of 300"."""
    return f"run {run.id}: {run.task}, seed {run.seed}, {run.state} at step {run.step} of {run.steps}"


def places(run: Run) -> str:
    """Its ladders and rungs, and its fingerprint."""
    where = ", ".join(dict.fromkeys(f"{m.ladder}/{m.rung} ({m.stage})" for m in run.memberships))
    return f"of {where or 'no ladder'}; {run.fingerprint}"


def result(run: Run) -> TextTable:
    """Metrics at the best validation step."""
    return _table("result", ["metric", "value"], [[k, f"{v:.6g}"] for k, v in sorted((run.result or {}).items())])


def configuration(run: Run) -> TextTable:
    """All settings, with the source of each value."""
    settings = {**dict(flatten(run.config)), **dict(flatten(run.execution, "execution."))}
    rows = [[path, setting(value), run.sources.get(path, "default")] for path, value in settings.items()]
    return _table("configuration", ["path", "value", "source"], rows)


def attempts(found: Sequence[Attempt]) -> TextTable:
    """The attempts at a run; numerics versions and users only where they differ."""
    mixed = len({a.numerics for a in found}) > 1
    others = any(a.user not in (None, owner.user()) for a in found)
    more = [*["numerics"] * mixed, *["user"] * others]
    headers = ["n", "started", "seconds", "from step", "process", "device", *more, "reason of its end"]
    rows = [
        [
            str(a.n),
            when(a.started_at) or "",
            f"{a.ended_at - a.started_at:.1f}" if a.ended_at else "",
            "" if a.resumed_from is None else str(a.resumed_from),
            f"{a.host}:{a.pid}",
            devices.name(a) + _packed(a),
            *[str(a.numerics)] * mixed,
            *[a.user or ""] * others,
            a.reason or "",
        ]
        for a in found
    ]
    return _table("attempts", headers, rows)


def _packed(attempt: Attempt) -> str:
    count = attempt.environment.get("packed", 1)
    return f", one of {count} runs packed" if isinstance(count, int) and count > 1 else ""


def curves(found: Curves) -> TextTable:
    """First, last, smallest and largest value of each curve."""
    rows = [[name, str(len(curve)), *_ends(curve)] for name, curve in sorted(found.items())]
    return _table("curves", ["metric", "points", "first", "last", "min", "max"], rows)


def _ends(curve: Sequence[tuple[int, float]]) -> list[str]:
    values = [value for _, value in curve]
    finite = [value for value in values if math.isfinite(value)] or [math.nan]
    return [f"{v:.4g}" for v in (values[0], values[-1], min(finite), max(finite))]


def eigenvalues(found: Spectra) -> TextTable:
    """The largest magnitude of each layer, before and after training."""
    layers = max(map(len, found.values()), default=0)
    rows = [[str(layer), *(_largest(found.get(moment, ()), layer) for moment in MOMENTS)] for layer in range(layers)]
    return _table("eigenvalues: largest magnitude", ["layer", *MOMENTS.values()], rows)


def _largest(layers: Sequence[Sequence[complex] | None], layer: int) -> str:
    if layer >= len(layers):
        return "not recorded"
    values = layers[layer]
    return "none" if values is None else f"{max(map(abs, values), default=math.nan):.6g}"


def events(found: Sequence[Event]) -> TextTable:
    """What happened to a run."""
    return _table("events", ["time", "kind", "text"], [[when(e.time) or "", e.kind, e.text] for e in found])


def checkpoints(found: Sequence[Checkpoint]) -> TextTable:
    """The checkpoints of a run, newest first."""
    return _table("checkpoints", ["step", "state", "path"], [[str(c.step), c.state, c.path] for c in found])


class RunDifferences(Struct, frozen=True):
    """How runs differ, and their results; a value for each run."""

    differs: dict[str, list[Any]]
    """Path -> values: only what is not the same in all."""
    results: dict[str, list[float | None]]
    """Metric -> values."""


def compare(runs: Sequence[Run]) -> RunDifferences:
    """The differences between runs."""
    settings = [_compared(run) for run in runs]
    paths = dict.fromkeys(path for one in settings for path in one)
    known = {path: [one.get(path) for one in settings] for path in paths}
    metrics = sorted({name for run in runs for name in run.result or ()})
    return RunDifferences(
        {path: values for path, values in known.items() if any(value != values[0] for value in values)},
        {name: [(run.result or {}).get(name) for run in runs] for name in metrics},
    )


def differences(compared: RunDifferences, runs: Sequence[str]) -> TextTable:
    """The settings that differ, with a column for each run."""
    rows = [
        [path, *("" if value is None else setting(value) for value in values)]
        for path, values in compared.differs.items()
    ]
    return _table("differences", ["path", *runs], rows)


def results(compared: RunDifferences, runs: Sequence[str]) -> TextTable:
    """The results, with a column for each run."""
    rows = [
        [name, *("" if value is None else f"{value:.6g}" for value in values)]
        for name, values in compared.results.items()
    ]
    return _table("results", ["metric", *runs], rows)


def _compared(run: Run) -> dict[str, Any]:
    """Everything that runs are compared by, except their results."""
    at = dict.fromkeys(f"{place.ladder}/{place.rung} ({place.stage})" for place in run.memberships)
    return {
        "rung": ", ".join(at),
        "state": run.state,
        **dict(flatten(run.config)),
        **dict(flatten(run.execution, "execution.")),
        "code": "; ".join(run.code),
        "numerics": run.numerics,
        "data_sha256": run.data_sha256,
    }

"""Tables of a run as headers and rows of text, which a page about one run and the command `show` have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun.config.schema import ImportedConfig
from lrurun.console import setting
from lrurun.ledger import owner
from lrurun.ledger.times import when
from lrurun.report import devices
from lrurun.report.listing import flat
from lrurun.table import Table, of_text

if TYPE_CHECKING:
    from lrurun.ledger.values import Attempt, Checkpoint, Event, Run

Curves = Mapping[str, Sequence[tuple[int, float]]]
"""Metric -> its values as (step, value)."""

Spectra = Mapping[str, Sequence[Sequence[complex] | None]]
"""Moment ("start", "end") -> the eigenvalues of each layer, None if its recurrence has none."""

MOMENTS = {"start": "at initialisation", "end": "after training"}


def heading(run: Run) -> str:
    """The first line about a run, for example "run 0123456789ab: sDigits, seed 0, done at step 300 of 300"."""
    at = "" if run.kind == "imported" and not run.step else f" at {run.reached}"  # its tracker has no steps
    return f"run {run.id}: {run.task}, seed {run.seed}, {run.state}{at}"


def memberships(run: Run) -> str:
    """The ladders and rungs of a run, and its fingerprint."""
    where = ", ".join(dict.fromkeys(f"{m.ladder}/{m.rung} ({m.stage})" for m in run.memberships))
    return f"of {where or 'no ladder'}; {run.fingerprint}"


def result(run: Run) -> Table:
    """Metrics at the best validation step."""
    rows = [[name, f"{value:.6g}"] for name, value in sorted((run.result or {}).items())]
    return of_text(["metric", "value"], rows, title="result")


def items(counts: Mapping[str, int]) -> str:
    """A line on the test items whose results a run has: "per-item results: 300 of test/accuracy"; or nothing."""
    listed = ", ".join(f"{count:,} of {name}" for name, count in counts.items())
    return f"per-item results: {listed}" if counts else ""


_ORIGIN = ("title", "version", "name", "place", "state", "code", "data")
"""What an import records about the origin of a run, beside its configuration, in the order of the table."""
_LABELS = {"title": "tracker", "name": "name of the run", "state": "state there"}


def origin(run: Run, recorded: Sequence[Attempt]) -> Table | None:
    """Where an imported run is from; None for others."""
    if not isinstance(run.config, ImportedConfig):
        return None
    environment = recorded[-1].environment if recorded else {}
    known = environment.get("origin")
    table: dict[str, Any] = dict(known) if isinstance(known, Mapping) else {}
    source = run.config.origin
    names = [*_ORIGIN, *sorted(table.keys() - {*_ORIGIN, *source.__struct_fields__})]
    values: dict[str, Any] = {"tracker": source.tracker, "project": source.project, "run": source.run}
    for name in names:
        value = table.get(name)
        values |= {_LABELS.get(name, name): value} if value not in (None, "") else {}
    values["digest"] = environment.get("digest")
    # a source without times gives none, and the attempt has that of the import
    if recorded and recorded[-1].ended_at not in (None, recorded[-1].started_at):
        values |= {"started": when(recorded[-1].started_at), "ended": when(recorded[-1].ended_at)}
    rows = [[name, setting(value)] for name, value in values.items() if value not in (None, "")]
    return of_text(["imported run", "value"], rows, title="origin", cut={"value": 24})


def _source(run: Run, path: str) -> str:
    """Where the value of a setting comes from."""
    if path in run.sources or not isinstance(run.config, ImportedConfig):
        return run.sources.get(path, "default")
    if path == "seed":
        named = run.config.reading.seed
        return "the runs of the rung are numbered" if named is None else f"its setting {named}"
    if path == "task" or path.startswith("reading."):
        return "[import]"
    origin = run.config.origin
    return f"imported from {' '.join(filter(None, [origin.tracker, origin.project]))}"


def configuration(run: Run) -> Table:
    """All settings, with the source of each value."""
    rows = [[path, setting(value), _source(run, path)] for path, value in flat(run).items()]
    headers = ["path", "value", "source"]
    return of_text(headers, rows, title="configuration", order=["source"], cut={"source": 16}, keeps_ends=["source"])


def attempts(recorded: Sequence[Attempt]) -> Table:
    """The attempts at a run; numerics versions and users only where they differ."""
    mixed = len({a.numerics for a in recorded}) > 1
    has_other_users = any(a.user not in (None, owner.user()) for a in recorded)
    more = [*["numerics"] * mixed, *["user"] * has_other_users]
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
            *[a.user or ""] * has_other_users,
            a.reason or "",
        ]
        for a in recorded
    ]
    order = ["device", "process", "seconds", "from step"]
    return of_text(headers, rows, title="attempts", order=order, cut={"reason of its end": 16})


def _packed(attempt: Attempt) -> str:
    count = attempt.environment.get("packed", 1)
    return f", one of {count} runs packed" if isinstance(count, int) and count > 1 else ""


def curves(recorded: Curves) -> Table:
    """First, last, smallest and largest value of each curve."""
    rows = [[name, str(len(curve)), *_ends(curve)] for name, curve in sorted(recorded.items())]
    return of_text(["metric", "points", "first", "last", "min", "max"], rows, title="curves")


def _ends(curve: Sequence[tuple[int, float]]) -> list[str]:
    values = [value for _, value in curve]
    finite = [value for value in values if math.isfinite(value)] or [math.nan]
    return [f"{v:.4g}" for v in (values[0], values[-1], min(finite), max(finite))]


def eigenvalues(spectra: Spectra) -> Table:
    """The largest magnitude of each layer, before and after training."""
    layers = max(map(len, spectra.values()), default=0)
    rows = [[str(layer), *(_largest(spectra.get(moment, ()), layer) for moment in MOMENTS)] for layer in range(layers)]
    return of_text(["layer", *MOMENTS.values()], rows, title="eigenvalues: largest magnitude")


def _largest(layers: Sequence[Sequence[complex] | None], layer: int) -> str:
    if layer >= len(layers):
        return "not recorded"
    values = layers[layer]
    return "none" if values is None else f"{max(map(abs, values), default=math.nan):.6g}"


def events(recorded: Sequence[Event]) -> Table:
    """The events of a run."""
    rows = [[when(event.time) or "", event.kind, event.text] for event in recorded]
    below = {"text": itemgetter(0)}
    return of_text(["time", "kind", "text"], rows, title="events", cut={"text": 24}, below=below)


def checkpoints(recorded: Sequence[Checkpoint]) -> Table:
    """The checkpoints of a run, newest first."""
    rows = [[str(checkpoint.step), checkpoint.state, checkpoint.path] for checkpoint in recorded]
    return of_text(["step", "state", "path"], rows, title="checkpoints")


class RunDifferences(Struct, frozen=True):
    """How runs differ, and their results; a value for each run."""

    differs: dict[str, list[Any]]
    """Path -> values: only what is not the same in all."""
    results: dict[str, list[float | None]]
    """Metric -> values."""


def compare(runs: Sequence[Run]) -> RunDifferences:
    """The differences between runs."""
    settings = [_compared(run) for run in runs]
    paths = dict.fromkeys(path for table in settings for path in table)
    by_path = {path: [table.get(path) for table in settings] for path in paths}
    metrics = sorted({name for run in runs for name in run.result or ()})
    return RunDifferences(
        {path: values for path, values in by_path.items() if any(value != values[0] for value in values)},
        {name: [(run.result or {}).get(name) for run in runs] for name in metrics},
    )


def differences(compared: RunDifferences, runs: Sequence[str]) -> Table:
    """The settings that differ, with a column for each run."""
    rows = [
        [path, *("" if value is None else setting(value) for value in values)]
        for path, values in compared.differs.items()
    ]
    return of_text(["path", *runs], rows, title="differences", whole=runs)


def results(compared: RunDifferences, runs: Sequence[str]) -> Table:
    """The results, with a column for each run."""
    rows = [
        [name, *("" if value is None else f"{value:.6g}" for value in values)]
        for name, values in compared.results.items()
    ]
    return of_text(["metric", *runs], rows, title="results", whole=runs)


def _compared(run: Run) -> dict[str, Any]:
    """Everything that runs are compared by, except their results."""
    memberships = dict.fromkeys(f"{each.ladder}/{each.rung} ({each.stage})" for each in run.memberships)
    return {
        "rung": ", ".join(memberships),
        "state": run.state,
        **flat(run),
        "code": "; ".join(run.code),
        "numerics": run.numerics,
        "data_sha256": run.data_sha256,
    }

"""`lrurun show`: everything about one run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from lrurun import console
from lrurun.commands import opening, output
from lrurun.commands.options import Json, RunId
from lrurun.errors import LrurunError, UsageError

if TYPE_CHECKING:
    from lrurun.ledger.values import Attempt, Checkpoint, Event, Run
    from lrurun.paths import Places

LOG_LINES = 10
"""How many lines of the log are printed."""

Curves = Mapping[str, Sequence[tuple[int, float]]]
"""Metric -> its values as (step, value)."""


Spectra = Mapping[str, Sequence[Sequence[complex] | None]]
"""Moment ("start", "end") -> the eigenvalues of each layer, None if its recurrence has none."""


class AttemptOutput(Struct, frozen=True, kw_only=True):
    """An attempt at a run."""

    n: int
    host: str
    pid: int
    started_at: str | None
    ended_at: str | None
    reason: str | None
    resumed_from: int | None
    environment: Mapping[str, Any]
    numerics: int
    user: str | None


class CheckpointOutput(Struct, frozen=True):
    """A checkpoint, its path relative to the runs folder."""

    step: int
    state: str
    path: str
    bytes: int | None
    sha256: str | None


class EventOutput(Struct, frozen=True):
    """Something that happened to a run."""

    attempt: int | None
    time: str | None
    kind: str
    text: str


class RunDocument(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun show`."""

    run: output.RunOutput
    config: Mapping[str, Any]
    execution: Mapping[str, Any]
    provenance: Mapping[str, str]
    error: str | None
    attempts: list[AttemptOutput]
    metrics: Curves
    checkpoints: list[CheckpointOutput]
    events: list[EventOutput]
    eigenvalues: Mapping[str, list[list[tuple[float, float]] | None]]
    """Moment ("start", "end") -> (real, imaginary) of each layer; empty if they were not recorded."""


def show(
    context: typer.Context,
    run: RunId,
    toml: Annotated[bool, typer.Option("--toml", help="Print a ladder file that trains this run again.")] = False,
    requirements: Annotated[
        bool, typer.Option("--requirements", help="Print the versions that it ran with, as pip reads them.")
    ] = False,
    json: Json = False,
) -> int:
    """Show one run: result, configuration, curves, attempts, log.

    The configuration names the source of every value.
    """
    places: Places = context.obj.places
    given = [f"--{name}" for name, on in (("json", json), ("toml", toml), ("requirements", requirements)) if on]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} exclude each other", "leave one of them out")
    with opening.read_for_run(places, run) as ledger:
        found = ledger.run(run)
        attempts, metrics, events = ledger.attempts(found.id), ledger.metrics(found.id), ledger.events(run=found.id)
        checkpoints, eigenvalues = ledger.checkpoints(found.id), ledger.eigenvalues(found.id)
    if toml:
        from lrurun.config import export

        console.write(export.toml(found))
    elif requirements:
        from lrurun.report import requirements as versions

        console.write(versions.text(found, attempts))
    elif json:
        output.write_json(_document(found, attempts, metrics, checkpoints, events, eigenvalues))
    else:
        _print_run(found)
        _print_attempts(attempts)
        _print_curves(found.task, metrics)
        _print_eigenvalues(eigenvalues)
        _print_events(events)
        _print_checkpoints(checkpoints)
        _print_log(places, found, attempts)
    return 0


def _document(
    run: Run,
    attempts: list[Attempt],
    metrics: Curves,
    checkpoints: list[Checkpoint],
    events: list[Event],
    eigenvalues: Spectra,
) -> RunDocument:
    from lrurun.ledger.filters import when

    return RunDocument(
        run=output.run_output(run),
        config=run.config,
        execution=run.execution,
        provenance=run.provenance,
        error=run.error,
        attempts=[
            AttemptOutput(
                n=a.n,
                host=a.host,
                pid=a.pid,
                started_at=when(a.started_at),
                ended_at=when(a.ended_at),
                reason=a.reason,
                resumed_from=a.resumed_from,
                environment=a.environment,
                numerics=a.numerics,
                user=a.user,
            )
            for a in attempts
        ],
        metrics=dict(metrics),
        checkpoints=[CheckpointOutput(c.step, c.state, c.path, c.bytes, c.sha256) for c in checkpoints],
        events=[EventOutput(e.attempt, when(e.time), e.kind, e.text) for e in events],
        eigenvalues={
            moment: [None if layer is None else [(z.real, z.imag) for z in layer] for layer in layers]
            for moment, layers in eigenvalues.items()
        },
    )


def _print_run(run: Run) -> None:
    from lrurun.report import listing

    where = ", ".join(dict.fromkeys(f"{m.ladder}/{m.rung} ({m.stage})" for m in run.memberships))
    console.write(f"run {run.id}: {run.task}, seed {run.seed}, {run.state} at step {run.step} of {run.steps}")
    console.write(console.clean(f"of {where or 'no ladder'}; {run.fingerprint}"))
    if run.tags:
        console.write(console.clean(f"tags: {', '.join(run.tags)}"))
    if run.excluded is not None:
        console.write(console.clean(f"excluded from every report: {run.excluded}"))
    if run.error:
        console.write(console.clean(run.error, lines=True))
    if run.result:
        console.table("result", ["metric", "value"], [[k, f"{v:.6g}"] for k, v in sorted(run.result.items())])
    settings = listing.flat(run).items()
    console.table(
        "configuration",
        ["path", "value", "source"],
        [[path, console.setting(value), run.provenance.get(path, "default")] for path, value in settings],
    )


def _print_attempts(attempts: list[Attempt]) -> None:
    from lrurun.ledger import owner
    from lrurun.ledger.filters import when
    from lrurun.report import devices

    mixed = len({a.numerics for a in attempts}) > 1
    others = any(a.user not in (None, owner.user()) for a in attempts)
    console.table(
        "attempts",
        [
            "n",
            "started",
            "seconds",
            "from step",
            "process",
            "device",
            *["numerics"] * mixed,
            *["user"] * others,
            "reason of its end",
        ],
        [
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
            for a in attempts
        ],
    )


def _print_curves(task: str, metrics: Curves) -> None:
    curves = [[k, str(len(c)), *_ends(c)] for k, c in sorted(metrics.items())]
    console.table("curves", ["metric", "points", "first", "last", "min", "max"], curves)
    for line in sparklines(task, metrics):
        console.write(line)


def _print_eigenvalues(eigenvalues: Spectra) -> None:
    if not eigenvalues:
        console.write("eigenvalues: not recorded")
        return
    moments = {"start": "at initialisation", "end": "after training"}
    layers = max(map(len, eigenvalues.values()))
    console.table(
        "eigenvalues: largest magnitude",
        ["layer", *moments.values()],
        [
            [str(layer), *(_largest(eigenvalues.get(moment, ()), layer) for moment in moments)]
            for layer in range(layers)
        ],
    )


def _largest(layers: Sequence[Sequence[complex] | None], layer: int) -> str:
    if layer >= len(layers):
        return "not recorded"
    values = layers[layer]
    return "none" if values is None else f"{max(map(abs, values), default=math.nan):.6g}"


def _print_events(events: list[Event]) -> None:
    from lrurun.ledger.filters import when

    if events:
        console.table("events", ["time", "kind", "text"], [[when(e.time) or "", e.kind, e.text] for e in events])


def _print_checkpoints(checkpoints: list[Checkpoint]) -> None:
    if checkpoints:
        console.table("checkpoints", ["step", "state", "path"], [[str(c.step), c.state, c.path] for c in checkpoints])


def _print_log(places: Places, run: Run, attempts: list[Attempt]) -> None:
    """The last lines of the newest attempt's log."""
    from lrurun.runner import logs

    if not attempts:
        return
    with suppress(LrurunError):  # the log would be outside of the runs folder
        path = logs.path_of(places, run.id, attempts[-1].n)
        if last := logs.tail(path, LOG_LINES):
            console.write("\n".join([console.clean(f"log, the last lines of {path}"), *last]) + "\n")


def sparklines(task: str, metrics: Curves) -> list[str]:
    """A line for the training loss and for the validation score, if they have more than one point."""
    from lrurun.report import scores, sparkline

    main = list(scores.curves_of(scores.of_task(task, metrics)))

    levels = sparkline.BLOCKS if console.can_show(sparkline.BLOCKS) else sparkline.ASCII
    wide = max(map(len, main))
    room = min(console.width(), 100) - wide - 2
    curves = {name: [value for _, value in metrics.get(name, ())] for name in main}
    return [f"{k.ljust(wide)}  {sparkline.draw(c, room, levels)}" for k, c in curves.items() if len(c) > 1]


def _packed(attempt: Attempt) -> str:
    count = attempt.environment.get("packed", 1)
    return f", one of {count} runs packed" if isinstance(count, int) and count > 1 else ""


def _ends(curve: Sequence[tuple[int, float]]) -> list[str]:
    values = [value for _, value in curve]
    finite = [value for value in values if math.isfinite(value)] or [math.nan]
    return [f"{v:.4g}" for v in (values[0], values[-1], min(finite), max(finite))]

"""`lrurun show`: everything about one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec import Struct

from lrurun import console
from lrurun.commands._shared import opening, output
from lrurun.commands._shared.options import Json, RunId
from lrurun.errors import LrurunError, UsageError

if TYPE_CHECKING:
    from lrurun.ledger.values import Attempt, Checkpoint, Event, Run
    from lrurun.paths import Places
    from lrurun.report.run_tables import Curves, Spectra, TextTable

LOG_LINES = 10
"""How many lines of the log are printed."""


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
    metrics: Mapping[str, Sequence[tuple[int, float]]]
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
        from lrurun.report import again

        console.write(again.toml(found))
    elif requirements:
        from lrurun.report import requirements as versions

        console.write(versions.text(found, attempts))
    elif json:
        output.write_json(_document(found, attempts, metrics, checkpoints, events, eigenvalues))
    else:
        _print_run(found)
        _print_records(found.task, attempts, metrics, eigenvalues, events, checkpoints)
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
        config=msgspec.to_builtins(run.config),
        execution=msgspec.to_builtins(run.execution),
        provenance=run.sources,
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
    from lrurun.report import run_tables as tables

    console.write(tables.heading(run))
    console.write(console.clean(tables.places(run)))
    if run.tags:
        console.write(console.clean(f"tags: {', '.join(run.tags)}"))
    if run.excluded is not None:
        console.write(console.clean(f"excluded from every report: {run.excluded}"))
    if run.error:
        console.write(console.clean(run.error, lines=True))
    if run.result:
        _print(tables.result(run))
    _print(tables.configuration(run))


def _print(table: TextTable) -> None:
    console.table(table.title, table.headers, table.rows)


def _print_records(
    task: str,
    attempts: list[Attempt],
    metrics: Curves,
    eigenvalues: Spectra,
    events: list[Event],
    checkpoints: list[Checkpoint],
) -> None:
    """What the ledger has about a run beside its row."""
    from lrurun.report import run_tables as tables

    _print(tables.attempts(attempts))
    _print(tables.curves(metrics))
    for line in sparklines(task, metrics):
        console.write(line)
    if eigenvalues:
        _print(tables.eigenvalues(eigenvalues))
    else:
        console.write("eigenvalues: not recorded")
    if events:
        _print(tables.events(events))
    if checkpoints:
        _print(tables.checkpoints(checkpoints))


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

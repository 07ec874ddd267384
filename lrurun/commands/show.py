"""`lrurun show`: everything about one run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Optional

import msgspec
import typer
from msgspec import Struct

from lrurun import console, table
from lrurun.commands._shared import output
from lrurun.commands._shared.options import Json, OnlyInstance, OptionalRunId, number
from lrurun.commands._shared.rules import examples, excludes, exclusive, needs
from lrurun.errors import LrurunError, NotFoundError
from lrurun.session import opening

if TYPE_CHECKING:
    from lrurun.config.schema import RunKind
    from lrurun.judging.scores import ScoreForm
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Attempt, Checkpoint, Event, Run
    from lrurun.paths import Places
    from lrurun.report.tables.run_tables import Curves, Spectra
    from lrurun.runner.logs import Reader

POLL_SECONDS = 0.5
"""How often a followed log is read."""
FILE_SECONDS = 5.0
"""How long to wait for the log of an attempt that has just begun."""
QUEUE_SECONDS = 30.0
"""How long to wait for a worker to claim a queued run."""
LOG_LINES = 10
"""How many lines of the log are printed after everything else."""


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
    item_counts: Mapping[str, int]
    """Score -> the number of test items whose results are recorded."""


class LogDocument(Struct, frozen=True):
    """The JSON of `lrurun show --log`."""

    run: str
    attempt: int
    path: str
    lines: list[str]


class ProgramFile(Struct, frozen=True):
    """A file that the recipe of a program lists."""

    path: str
    """The path of the file from the folder of the recipe."""
    sha256: str
    """The digest of the file when the run was queued."""
    state: str
    """"kept" in the copy, which the run has; "unchanged", where there is no copy of it; or "changed"."""
    at: str | None
    """The path at which the file is as it was; None if it is gone or has changed."""


class FilesDocument(Struct, frozen=True):
    """The JSON of `lrurun show --files`."""

    run: str
    folder: str | None
    """The folder of the recipe."""
    copy: str | None
    """The folder with the snapshot of the files, and with links to what is beside them; None if there is none."""
    files: list[ProgramFile]


@examples(
    "lrurun show 3f2a",
    "lrurun show 3f2a --log -f",
)
@exclusive("toml", "requirements", "log", "files")
@needs("attempt", "log")
@needs("follow", "log")
@excludes("follow", "json", "attempt")
@excludes("json", "toml", "requirements")
@exclusive("run", "instance")
def show(
    context: typer.Context,
    run: OptionalRunId = None,
    instance: OnlyInstance = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print a ladder file that trains this run again.")] = False,
    requirements: Annotated[
        bool, typer.Option("--requirements", help="Print the versions that it ran with, as pip reads them.")
    ] = False,
    files: Annotated[
        bool, typer.Option("--files", help="Print the files of its program, and where they are kept.")
    ] = False,
    log: Annotated[bool, typer.Option("--log", help="Print its log, and nothing else.")] = False,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="With --log: print new lines until the run ends.")
    ] = False,
    attempt: Annotated[
        Optional[int],
        typer.Option(
            "--attempt", metavar="N", help="With --log: of this attempt [the newest].", **number("--attempt", int, 1)
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Show one run: result, configuration, curves, attempts, log.

    Without a RUN, it is the one that was begun last, of all or of an instance. The configuration names the source of
    every value.
    """
    from lrurun.judging import scores

    places: Places = context.obj.places
    run = opening.latest_run(places, instance) if run is None else run
    if log:
        return _show_log(places, run, attempt, follow=follow, json=json)
    with opening.read_for_run(places, run) as ledger:
        recorded = ledger.run(run)
        attempts, metrics, events = (
            ledger.attempts(recorded.id),
            ledger.metrics(recorded.id),
            ledger.events(run=recorded.id),
        )
        checkpoints, eigenvalues = ledger.checkpoints(recorded.id), ledger.eigenvalues(recorded.id)
        item_counts = ledger.item_counts(recorded.id)
        form = scores.of_task(recorded.task, metrics, scores.declared(ledger, [recorded.task]))
        if files:
            return _show_files(places, ledger, recorded, attempts, json=json)
        if toml:
            from lrurun.instances import documents

            documents.load_code_of(ledger, recorded)
            program = documents.program_of(ledger, recorded)
    if toml:
        from lrurun.report import again

        console.write(again.toml(recorded, program))
    elif requirements:
        from lrurun.report import pip_requirements

        console.write(pip_requirements.text(recorded, attempts))
    elif json:
        output.write_json(_document(recorded, attempts, metrics, checkpoints, events, eigenvalues, item_counts))
    else:
        _print_run(recorded, attempts, item_counts)
        _print_records(form, recorded.kind, attempts, metrics, eigenvalues, events, checkpoints)
        _print_log(places, recorded, attempts)
    return 0


def _document(
    run: Run,
    attempts: list[Attempt],
    metrics: Curves,
    checkpoints: list[Checkpoint],
    events: list[Event],
    eigenvalues: Spectra,
    item_counts: Mapping[str, int],
) -> RunDocument:
    from lrurun.ledger.times import when

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
        item_counts=item_counts,
    )


def _show_files(places: Places, ledger: Ledger, run: Run, attempts: Sequence[Attempt], *, json: bool) -> int:
    """Prints the files of a run's program."""
    from lrurun.config.schema import ProgramConfig

    if not isinstance(run.config, ProgramConfig):
        raise NotFoundError(
            f"run {run.id} has no files: it is not the run of a program of yours",
            f"lrurun show {run.id} has its settings, and --requirements its versions",
        )
    document = _files_of(places, ledger, run, run.config.program.files, attempts)
    if json:
        output.write_json(document)
    elif not document.files:
        console.paragraph("The recipe lists no files: write them into [program] as files, so that they are kept.")
    else:
        console.paragraph(console.clean(f"run {run.id}: files from {document.folder or 'an unknown folder'}"))
        if document.copy is not None:
            console.paragraph(console.clean(f"copied when the run was queued: {document.copy}"))
        rows = [[file.path, file.state, file.at or "", file.sha256] for file in document.files]
        table.show_text(["file", "state", "where it is as it was", "digest"], rows, cut={"digest": 19})
    return 0


def _files_of(
    places: Places, ledger: Ledger, run: Run, digests: Mapping[str, str], attempts: Sequence[Attempt]
) -> FilesDocument:
    from pathlib import Path

    from lrurun.instances import documents
    from lrurun.runner.program_files import ProgramSnapshot, digest_at

    folders = [str(attempt.environment["folder"]) for attempt in attempts if "folder" in attempt.environment]
    for membership in run.memberships:
        if (recorded := documents.find(ledger, ledger.ladder(membership.ladder_key))) is not None:
            folders.insert(0, str(recorded.recipe.folder))
    folder = Path(folders[-1]) if folders else None
    snapshot = None if folder is None else ProgramSnapshot(places.runs.absolute(), folder, digests)
    files = []
    for name, digest in digests.items():
        state, at = "changed", None
        if snapshot is not None and name in snapshot.digests and snapshot.has(name):
            state, at = "kept", str(snapshot.path / name)
        elif folder is not None and digest_at(folder / name) == digest:
            state, at = "unchanged", str(folder / name)
        files.append(ProgramFile(name, digest, state, at))
    kept = str(snapshot.path) if snapshot is not None and snapshot and snapshot.path.is_dir() else None
    return FilesDocument(run.id, None if folder is None else str(folder), kept, files)


def _print_run(run: Run, attempts: Sequence[Attempt], item_counts: Mapping[str, int]) -> None:
    from lrurun.report.tables import run_tables

    console.paragraph(run_tables.heading(run))
    console.paragraph(run_tables.memberships(run))
    if run.tags:
        console.paragraph(f"tags: {', '.join(run.tags)}")
    if run.excluded is not None:
        console.paragraph(f"excluded from every report: {console.clean(run.excluded)}")
    if run.error:
        console.write(console.clean(run.error, lines=True))
    if run.result:
        table.show(run_tables.result(run))
    if item_counts:
        console.paragraph(run_tables.items(item_counts))
    if (origin := run_tables.origin(run, attempts)) is not None:
        table.show(origin)
    table.show(run_tables.configuration(run))


def _print_records(
    form: ScoreForm,
    kind: RunKind,
    attempts: list[Attempt],
    metrics: Curves,
    eigenvalues: Spectra,
    events: list[Event],
    checkpoints: list[Checkpoint],
) -> None:
    """What the ledger has about a run beside its row."""
    from lrurun.report.tables import run_tables

    if kind != "imported":  # which was executed elsewhere
        table.show(run_tables.attempts(attempts))
    if metrics or kind != "imported":
        table.show(run_tables.curves(metrics))
    for line in sparklines(form, metrics, test=kind == "imported"):
        console.write(line)
    if kind in ("program", "imported"):
        pass  # which have no eigenvalues
    elif eigenvalues:
        table.show(run_tables.eigenvalues(eigenvalues))
    else:
        console.write("eigenvalues: not recorded")
    if events:
        table.show(run_tables.events(events))
    if checkpoints:
        table.show(run_tables.checkpoints(checkpoints))


def _print_log(places: Places, run: Run, attempts: list[Attempt]) -> None:
    """The last lines of the newest attempt's log."""
    from lrurun.runner import logs

    if not attempts or run.kind == "imported":
        return
    with suppress(LrurunError):  # the log would be outside of the runs folder
        path = logs.path_of(places, run.id, attempts[-1].n)
        if last := logs.tail(path, LOG_LINES):
            console.write("\n".join([console.clean(f"log, the last lines of {path}"), *last]) + "\n")


def sparklines(form: ScoreForm, metrics: Curves, *, test: bool = False) -> list[str]:
    """A line for the training loss, the validation score and, with `test`, the test score, if they have more than one
    point."""
    from lrurun.judging import scores
    from lrurun.report.tables import sparkline

    main = list(scores.curves_of(form, test=test))
    levels = sparkline.BLOCKS if console.can_show(sparkline.BLOCKS) else sparkline.ASCII
    wide = max(map(len, main))
    room = min(console.width(), 100) - wide - 2
    curves = {name: [value for _, value in metrics.get(name, ())] for name in main}
    return [f"{k.ljust(wide)}  {sparkline.draw(c, room, levels)}" for k, c in curves.items() if len(c) > 1]


def _show_log(places: Places, run_id: str, attempt: int | None, *, follow: bool, json: bool) -> int:
    """Prints the log of an attempt, the newest one if none is named."""
    run, known = _run_and_attempts(places, run_id)
    if run.kind == "imported":
        raise NotFoundError(
            f"run {run.id} has no log: it was imported", f"lrurun show {run.id} names its place in the tracker"
        )
    if follow and not known and run.state == "queued":
        console.say(f"run {run.id} is queued")
        run, known = _wait(places, run, 0)
    if not known:
        raise NotFoundError(f"run {run.id} has no log: it has not begun", "lrurun status shows which runs are running")
    if attempt is not None and attempt not in known:
        raise NotFoundError(
            f"run {run.id} has no attempt {attempt}",
            f"it has: {', '.join(map(str, known))}; without --attempt the newest is shown",
        )
    number = known[-1] if attempt is None else attempt
    if follow:
        return _follow(places, run, number)
    reader = _reader(places, run, number, patience=0.0)
    if json:
        lines = list(itertools.chain.from_iterable(_blocks(reader, last=True)))
        output.write_json(LogDocument(run.id, number, str(reader.path), lines))
        return 0
    for block in _blocks(reader, last=True):
        console.write("\n".join(block) + "\n")
    return 0


def _follow(places: Places, run: Run, number: int) -> int:
    """Prints the log of the run's attempts from `number` on, until the run ends."""
    newest = number
    reader = _reader(places, run, number, patience=FILE_SECONDS if run.state == "running" else 0.0)
    while True:
        over = run.state not in ("running", "queued")
        for block in _blocks(reader, last=over or newest > number):
            console.write("\n".join(block) + "\n")
        if settled := reader.settled():
            console.write("\n".join(settled) + "\n")
        if over:
            console.say(f"run {run.id}: {run.state} at {run.reached}")
            return 0
        if newest > number:
            number = newest
            console.say(f"attempt {number}")
            reader = _reader(places, run, number, patience=FILE_SECONDS)
            continue
        time.sleep(POLL_SECONDS)
        run, known = _wait(places, run, number)
        newest = known[-1]


def _wait(places: Places, run: Run, number: int) -> tuple[Run, list[int]]:
    """The run and its attempts as they are now. While the run is queued, waits for a worker to claim it."""
    end = time.monotonic() + QUEUE_SECONDS
    while True:
        run, known = _run_and_attempts(places, run.id)
        if run.state != "queued" or (known and known[-1] > number):
            return run, known
        if time.monotonic() > end:
            raise LrurunError(f"run {run.id} is queued, and no worker claims it", "lrurun resume starts workers")
        time.sleep(POLL_SECONDS)


def _run_and_attempts(places: Places, run_id: str) -> tuple[Run, list[int]]:
    with opening.read_for_run(places, run_id) as ledger:
        run = ledger.run(run_id)
        return run, [attempt.n for attempt in ledger.attempts(run.id)]


def _reader(places: Places, run: Run, attempt: int, *, patience: float) -> Reader:
    """The log of an attempt, which is created a moment after the attempt has begun.

    Raises:
        NotFoundError: there is still none after `patience` seconds.
    """
    from lrurun.runner import logs

    path = logs.path_of(places, run.id, attempt)
    end = time.monotonic() + patience
    while not path.exists() and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
    try:
        return logs.Reader(path)
    except OSError as error:
        raise NotFoundError(
            f"run {run.id}, attempt {attempt}: no log at {path}: {error.strerror}",
            "name the runs folder: --runs-dir DIR",
        ) from None


def _blocks(reader: Reader, *, last: bool) -> Iterator[list[str]]:
    while block := reader.lines(last=last):
        yield block

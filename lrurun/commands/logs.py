"""`lrurun logs`: the log of a run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from msgspec import Struct

from lrurun import console
from lrurun.commands._shared import opening, output
from lrurun.commands._shared.options import Json, RunId, number
from lrurun.errors import LrurunError, NotFoundError, UsageError

if TYPE_CHECKING:
    from lrurun.ledger.values import Attempt, Run
    from lrurun.paths import Places
    from lrurun.runner.logs import Reader

POLL_SECONDS = 0.5
"""How often a followed log is read."""
FILE_SECONDS = 5.0
"""How long to wait for the log of an attempt that has just begun."""
QUEUE_SECONDS = 30.0
"""How long to wait for a worker to claim a queued run."""


class LogDocument(Struct, frozen=True):
    """The JSON of `lrurun logs`."""

    run: str
    attempt: int
    path: str
    lines: list[str]


def logs(
    context: typer.Context,
    run: RunId,
    attempt: Annotated[
        Optional[int],
        typer.Option("--attempt", metavar="N", help="The attempt [the newest].", **number("--attempt", int, 1)),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Print new lines until the run ends.")] = False,
    json: Json = False,
) -> int:
    """Show the log of a run."""
    places: Places = context.obj.places
    if follow and json:
        raise UsageError("--follow prints lines until the run ends, --json one object", "leave one of them out")
    if follow and attempt is not None:
        raise UsageError("--follow follows the newest attempt, --attempt names one", "leave one of them out")
    found, attempts = _attempts(places, run)
    known = [one.n for one in attempts]
    if follow and not known and found.state == "queued":
        console.say(f"run {found.id} is queued")
        found, known = _wait(places, found, 0)
    if not known:
        raise NotFoundError(
            f"run {found.id} has no log: it has not begun", "lrurun status shows which runs are running"
        )
    if attempt is not None and attempt not in known:
        raise NotFoundError(
            f"run {found.id} has no attempt {attempt}",
            f"it has: {', '.join(map(str, known))}; without --attempt the newest is shown",
        )
    number = known[-1] if attempt is None else attempt
    if follow:
        return _follow(places, found, number)
    reader = _reader(places, found, number, patience=0.0)
    if json:
        lines = list(itertools.chain.from_iterable(_blocks(reader, last=True)))
        output.write_json(LogDocument(found.id, number, str(reader.path), lines))
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
        if over:
            console.say(f"run {run.id}: {run.state} at step {run.step} of {run.steps}")
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
        run, attempts = _attempts(places, run.id)
        known = [one.n for one in attempts]
        if run.state != "queued" or (known and known[-1] > number):
            return run, known
        if time.monotonic() > end:
            raise LrurunError(f"run {run.id} is queued, and no worker claims it", "lrurun resume starts workers")
        time.sleep(POLL_SECONDS)


def _attempts(places: Places, run: str) -> tuple[Run, list[Attempt]]:
    with opening.read_for_run(places, run) as ledger:
        found = ledger.run(run)
        return found, ledger.attempts(found.id)


def _reader(places: Places, run: Run, attempt: int, *, patience: float) -> Reader:
    """The log of an attempt, which is created a moment after the attempt has begun.

    Raises:
        NotFoundError: there is still none after `patience` seconds.
    """
    from lrurun.runner import logs as logfiles

    path = logfiles.path_of(places, run.id, attempt)
    end = time.monotonic() + patience
    while not path.exists() and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
    try:
        return logfiles.Reader(path)
    except OSError as error:
        raise NotFoundError(
            f"run {run.id}, attempt {attempt}: no log at {path}: {error.strerror}",
            "name the runs folder: --runs-dir DIR",
        ) from None


def _blocks(reader: Reader, *, last: bool) -> Iterator[list[str]]:
    while block := reader.lines(last=last):
        yield block

"""What people say of runs: tag, note, exclude. The runs themselves stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lrurun import console
from lrurun.errors import NotFoundError, UsageError
from lrurun.paths import Places

_TAG = re.compile(r"[^\s\"'<>=!(),]{1,100}")
"""What `--where tag=...` reads as one word, and a list of tags keeps apart."""


def tag(places: Places, prefix: str, tags: Sequence[str], *, remove: bool) -> int:
    """Gives a run tags, or takes them from it."""
    for name in tags:
        if not _TAG.fullmatch(name) or console.clean(name) != name or name.lower() in ("and", "or", "not"):
            raise UsageError(
                f"tag {name[:100]!r}: expected one word of at most 100 characters",
                "as in: lrurun tag RUN paper best-so-far",
            )
    with _ledger(places, prefix) as ledger:
        run = ledger.tag(ledger.run(prefix).id, tags, remove=remove)
    said = f"tags {', '.join(run.tags)}" if run.tags else "no tags"
    console.write(console.clean(f"run {run.id}: {said}"))
    return 0


def note(places: Places, prefix: str, text: str) -> int:
    """Writes a note on a run."""
    if not text.strip():
        raise UsageError("note: the text is empty", "as in: lrurun note RUN 'the fan was loud'")
    with _ledger(places, prefix) as ledger:
        run = ledger.run(prefix)
        ledger.annotate(run.id, text)
    console.write(f"run {run.id}: noted; lrurun show {run.id} shows it")
    return 0


def exclude(places: Places, prefix: str, *, why: str | None, undo: bool) -> int:
    """Leaves a run out of every report, or takes it in again."""
    if undo and why is not None:
        raise UsageError("exclude: --undo takes the run in again, --why leaves it out", "leave one of them out")
    if not undo and not (why or "").strip():
        raise UsageError("exclude: no reason given", "say why: lrurun exclude RUN --why 'trained on a broken disk'")
    with _ledger(places, prefix) as ledger:
        before = ledger.run(prefix)
        run = ledger.exclude(before.id, None if undo else why)
    if not undo:
        console.write(f"run {run.id}: out of every report; --undo takes it in again")
    elif before.excluded is None:
        console.write(f"run {run.id}: was not excluded")
    else:
        console.write(f"run {run.id}: in the reports again")
    return 0


@contextmanager
def _ledger(places: Places, run: str) -> Iterator[Any]:
    from lrurun.ledger.store import Ledger

    # one that is not there is not made, and one of an older version is not migrated on the way
    readable = Ledger.read(places.ledger)
    if readable is None:
        raise NotFoundError(f"run {run!r}: there is no ledger at {places.ledger}", "name one with --ledger PATH")
    readable.close()
    with Ledger.open(places.ledger, create=False) as ledger:
        yield ledger

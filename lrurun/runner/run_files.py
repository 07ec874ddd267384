"""Writes run files, ladder files and removal records when what they hold changes.

`lrurun ledger rebuild` makes a ledger of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from lrurun import files, paths
from lrurun.console import no_progress, warn
from lrurun.errors import LedgerError, LrurunError
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.run_files import LADDERS_FOLDER, REMOVALS_FOLDER, RUN_FILE, encode
from lrurun.runner.storage import storage_for
from lrurun.server import Location

if TYPE_CHECKING:
    from lrurun.data.task import Progress

_OWN: set[tuple[Location, Path]] = set()
"""Ledgers and files that are theirs, as this process has seen."""


def keep_run(ledger: Ledger, runs: Path, run_id: str) -> None:
    """Writes the file of a run, if the run has a folder. That it could not be written is an event of the run."""
    try:
        path = paths.inside(runs, run_id, RUN_FILE)
        if not path.parent.is_dir() and not paths.is_mirror(runs):
            return
        _set_aside(ledger, runs, path, ledger.run(run_id).created_at)
        for _ in range(3):  # another process may change the run, and write its file, in the meantime
            content = ledger.run_file(run_id)
            _write(runs, path, encode(content))
            now = ledger.run(run_id)
            if (now.state, now.tags, now.excluded, ledger.events(run=run_id)) == (
                content.run.state,
                content.run.tags,
                content.run.excluded,
                content.events,
            ):
                return
    except LedgerError:
        raise
    except (OSError, LrurunError) as error:
        ledger.event("record", f"{RUN_FILE} is not written: {error}", run=run_id)


def keep_ladder(ledger: Ledger, runs: Path, key: str) -> None:
    """Writes the file of a ladder instance, if there is a runs folder. That it could not be written is an event of
    the instance."""
    if not runs.is_dir() and not paths.is_mirror(runs):
        return
    try:
        path = paths.inside(runs, LADDERS_FOLDER, f"{key}.json")
        _set_aside(ledger, runs, path, ledger.ladder(key).created_at)
        for _ in range(3):  # as above: another process may add runs
            content = ledger.ladder_file(key)
            _write(runs, path, encode(content))
            if ledger.ladder_file(key) == content:
                return
    except LedgerError:
        raise
    except (OSError, LrurunError) as error:
        ledger.event("record", f"the record of the ladder is not written: {error}", ladder=key)


def keep_removal(ledger: Ledger, runs: Path, key: str) -> None:
    """Writes the file of a removal, if there is a runs folder. That it could not be written is a warning."""
    if not runs.is_dir() and not paths.is_mirror(runs):
        return
    try:
        path = paths.inside(runs, REMOVALS_FOLDER, f"{key}.json")
        _write(runs, path, encode(ledger.removal_record(key)))
    except LedgerError:
        raise
    except (OSError, LrurunError) as error:
        warn(f"the record of the removal {key} is not written: {error}")


def keep_all(
    ledger: Ledger,
    runs: Path,
    run_ids: Sequence[str],
    ladder_keys: Iterable[str],
    progress: Progress = no_progress,
    *,
    removal_keys: Iterable[str] = (),
) -> None:
    """Writes the files of these runs, ladder instances and removals."""
    for done, run_id in enumerate(run_ids):
        progress("writing the records of runs", done, len(run_ids))
        keep_run(ledger, runs, run_id)
    for key in ladder_keys:
        keep_ladder(ledger, runs, key)
    for key in removal_keys:
        keep_removal(ledger, runs, key)


class _Created(Struct):
    created_at: float


class _Any(Struct):
    """A run file or a ladder file, of which only the time of creation counts."""

    run: _Created | None = None
    ladder: _Created | None = None


def _set_aside(ledger: Ledger, runs: Path, path: Path, created_at: float) -> None:
    """Renames the file of another ledger, such as one that was lost, so that it is not replaced."""
    if (ledger.path, path) in _OWN:
        return
    storage = storage_for(runs)
    if storage.fetch(path).is_file():
        created = 0.0
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            content = msgspec.json.decode(path.read_bytes(), type=_Any)
            created = next((kept.created_at for kept in (content.run, content.ladder) if kept is not None), 0.0)
        if created != created_at:
            storage.put(path.rename(path.with_name(f"{path.name}.{int(created)}")))
    _OWN.add((ledger.path, path))


def _write(runs: Path, path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, content)
    storage_for(runs).put(path)

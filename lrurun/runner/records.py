"""Records in the runs folder, written when what they hold changes: `lrurun ledger rebuild` makes a ledger of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from lrurun import files, paths
from lrurun.console import no_progress
from lrurun.errors import LedgerError, LrurunError
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.records import LADDERS_FOLDER, RUN_FILE, encode
from lrurun.runner.storage import storage_for
from lrurun.server import Place

if TYPE_CHECKING:
    from lrurun.data.task import Progress

_OWN: set[tuple[Place, Path]] = set()
"""Ledgers and records that are theirs, as this process has seen."""


def keep_run(ledger: Ledger, runs: Path, run_id: str) -> None:
    """Writes the record of a run, if the run has a folder. That it could not be written is an event of the run."""
    try:
        path = paths.inside(runs, run_id, RUN_FILE)
        if not path.parent.is_dir() and not paths.is_mirror(runs):
            return
        _set_aside(ledger, runs, path, ledger.run(run_id).created_at)
        for _ in range(3):  # another process may change the run, and write its record, in the meantime
            record = ledger.run_record(run_id)
            _write(runs, path, encode(record))
            now = ledger.run(run_id)
            if (now.state, now.tags, now.excluded, ledger.events(run=run_id)) == (
                record.run.state,
                record.run.tags,
                record.run.excluded,
                record.events,
            ):
                return
    except LedgerError:
        raise
    except (OSError, LrurunError) as error:
        ledger.event("record", f"{RUN_FILE} is not written: {error}", run=run_id)


def keep_ladder(ledger: Ledger, runs: Path, key: str) -> None:
    """Writes the record of a ladder instance, if there is a runs folder. That it could not be written is an event of
    the instance."""
    if not runs.is_dir() and not paths.is_mirror(runs):
        return
    try:
        path = paths.inside(runs, LADDERS_FOLDER, f"{key}.json")
        _set_aside(ledger, runs, path, ledger.ladder(key).created_at)
        for _ in range(3):  # as above: another process may add places
            record = ledger.ladder_record(key)
            _write(runs, path, encode(record))
            if ledger.ladder_record(key) == record:
                return
    except LedgerError:
        raise
    except (OSError, LrurunError) as error:
        ledger.event("record", f"the record of the ladder is not written: {error}", ladder=key)


def keep_all(
    ledger: Ledger,
    runs: Path,
    run_ids: Sequence[str],
    ladder_keys: Iterable[str],
    progress: Progress = no_progress,
) -> None:
    """Writes the records of these runs and ladder instances."""
    for done, run_id in enumerate(run_ids):
        progress("writing the records of runs", done, len(run_ids))
        keep_run(ledger, runs, run_id)
    for key in ladder_keys:
        keep_ladder(ledger, runs, key)


class _Created(Struct):
    created_at: float


class _Any(Struct):
    """A record of a run or of a ladder, of which only the time of creation counts."""

    run: _Created | None = None
    ladder: _Created | None = None


def _set_aside(ledger: Ledger, runs: Path, path: Path, created_at: float) -> None:
    """Renames the record of another ledger, such as one that was lost, so that it is not replaced."""
    if (ledger.path, path) in _OWN:
        return
    storage = storage_for(runs)
    if storage.fetch(path).is_file():
        created = 0.0
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            record = msgspec.json.decode(path.read_bytes(), type=_Any)
            created = next((kept.created_at for kept in (record.run, record.ladder) if kept is not None), 0.0)
        if created != created_at:
            storage.put(path.rename(path.with_name(f"{path.name}.{int(created)}")))
    _OWN.add((ledger.path, path))


def _write(runs: Path, path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, content)
    storage_for(runs).put(path)

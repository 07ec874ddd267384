"""Records in the runs folder, written when what they hold changes: `lrurun ledger rebuild` makes a ledger of them."""

from __future__ import annotations

from pathlib import Path

from lrurun import files, paths
from lrurun.errors import LedgerError, LrurunError
from lrurun.ledger.records import LADDERS_FOLDER, RUN_FILE, encode
from lrurun.ledger.store import Ledger
from lrurun.runner import object_store


def keep_run(ledger: Ledger, runs: Path, run_id: str) -> None:
    """Writes the record of a run, if the run has a folder. That it could not be written is an event of the run."""
    try:
        folder = paths.inside(runs, run_id)
        if folder.is_dir() or paths.is_copy(runs):
            _write(runs, folder / RUN_FILE, encode(ledger.run_record(run_id)))
    except LedgerError:
        raise
    except (OSError, LrurunError) as error:
        ledger.event("record", f"{RUN_FILE} is not written: {error}", run=run_id)


def keep_ladder(ledger: Ledger, runs: Path, key: str) -> None:
    """Writes the record of a ladder instance, if there is a runs folder. That it could not be written is an event of
    the instance."""
    if not runs.is_dir() and not paths.is_copy(runs):
        return
    try:
        _write(runs, runs / LADDERS_FOLDER / f"{key}.json", encode(ledger.ladder_record(key)))
    except OSError as error:
        ledger.event("record", f"the record of the ladder is not written: {error}", ladder=key)


def keep_all(ledger: Ledger, runs: Path) -> None:
    """Writes the records of all runs and ladder instances."""
    for run_id in ledger.run_ids():
        keep_run(ledger, runs, run_id)
    for ladder in ledger.ladders():
        keep_ladder(ledger, runs, ladder.key)


def _write(runs: Path, path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, content)
    if (store := object_store.of(runs)) is not None:
        store.put(path)

"""Copies of whole ledgers: backup and export. Merging is in `merging`."""

from __future__ import annotations

import contextlib
import errno
import lzma
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table

from lrurun import console
from lrurun.errors import DamagedError, LedgerError, LrurunError
from lrurun.files import atomic, is_database
from lrurun.ledger.database import COMPRESSED
from lrurun.ledger.database.schema import documents, info, item_results, metadata, metric_keys, test_sets
from lrurun.ledger.ledger import Ledger
from lrurun.server import Place

if TYPE_CHECKING:
    from lrurun.data.task import Progress


def backup(ledger: Ledger, target: Path) -> None:
    """Copy a ledger, even while others write to it, to the new file `target`, which appears complete or not at all.

    It is compressed if its name ends in ".xz".

    Raises LrurunError if `target` exists or cannot be written, DamagedError if the ledger is damaged.
    """
    if target.exists():
        raise LrurunError(f"{target} exists, and is not overwritten", "name a new file")
    if not target.parent.is_dir():
        raise LrurunError(f"the folder {target.parent} does not exist", f"create it: mkdir -p {target.parent}")
    if not os.access(target.parent, os.W_OK):
        raise LrurunError(
            f"{target} cannot be written: its folder is read-only for this user",
            "name a file elsewhere with --out FILE",
        )
    try:
        with atomic(target) as partial:
            if target.suffix != COMPRESSED:
                ledger.database.backup(partial)
                return
            whole = partial.with_name(f"{partial.name}.db")  # removed with the partial file
            ledger.database.backup(whole)
            with whole.open("rb") as source, lzma.open(partial, "wb") as packed:
                shutil.copyfileobj(source, packed)
    except OSError as error:
        raise LrurunError(f"{target}: {error.strerror}", "choose another file") from None


@contextlib.contextmanager
def unpacked(place: Place, progress: Progress = console.no_progress) -> Iterator[Place]:
    """The place of a ledger; of a compressed backup a temporary copy that can be read.

    Errors about the copy name the backup.

    Raises:
        DamagedError: the compressed file is not whole.
        LedgerError: it has something else in it.
        LrurunError: it cannot be read, or there is no space for it.
    """
    if not isinstance(place, Path) or place.suffix != COMPRESSED or not place.exists():
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="lrurun-") as folder:
        whole = Path(folder) / place.stem
        try:
            size = place.stat().st_size
            with place.open("rb") as source, lzma.open(source) as packed, whole.open("wb") as target:
                while chunk := packed.read(2**20):
                    target.write(chunk)
                    progress(f"unpacking {place.name}", source.tell(), size)
        except (lzma.LZMAError, EOFError):
            raise DamagedError(f"{place}: is not an xz file, or is incomplete", "copy it again") from None
        except OSError as error:
            hint = "free some space" if error.errno == errno.ENOSPC else "check the path and its permissions"
            raise LrurunError(f"{place} cannot be unpacked: {error.strerror}", hint) from None
        if not is_database(whole):
            raise LedgerError(f"{place}: has no ledger in it", "name a file that lrurun ledger backup wrote")
        try:
            yield whole
        except LrurunError as error:
            error.message = error.message.replace(str(whole), str(place))
            error.hint = error.hint and error.hint.replace(str(whole), str(place))
            raise


_NAMED = {
    "run": ("stored_runs", "number", "id"),
    "ladder": ("ladders", "id", "key"),
    "key": ("metric_keys", "id", "name"),
    "test_set": ("test_sets", "id", "sha256"),
}
"""Column that refers to a row by its number -> the table, its column of numbers, and that of names."""


_INTERNAL = frozenset(
    {"boot", "namespace", "pid_started", "heartbeat_at", "seen_at", "user_name"}
    | {"last_loss", "last_score", "last_speed", "val_accuracy", "test_accuracy", "steps_per_second"}
)
"""Columns that are not exported: those that tell whether an attempt is still running and which user started it, and
copies of metrics."""


def _statement(table: Table) -> str:
    """The query for all rows of a table, with names and texts instead of numbers of rows."""
    values, joins = [], []
    for column in table.c:
        if column.identity is not None or column.name in _INTERNAL:
            continue
        if column.foreign_keys and column.name in _NAMED:
            referenced, number, name = _NAMED[column.name]
            values.append(f"{column.name}_row.{name} AS {column.name}")
            joins.append(f"LEFT JOIN {referenced} {column.name}_row ON {column.name}_row.{number} = t.{column.name}")
        else:
            values.append(f"t.{column.name.removesuffix('_id')}")  # a view has the texts of documents
    order = ", ".join(f"t.{column.name}" for column in table.primary_key)
    name = table.name.removeprefix("stored_")
    return f"SELECT {', '.join(values)} FROM {name} t {' '.join(joins)} ORDER BY {order}"


EXPORTED = {
    table.name.removeprefix("stored_"): _statement(table)
    for table in metadata.sorted_tables
    if table not in (info, documents, metric_keys)
}
"""Table -> the query that exports it, so that an export can be read without the ledger."""

PACKED = frozenset(
    {"spec", "config", "execution", "provenance", "result", "environment", "pairs", "payload"}
    | {"weights", "groups", "sums"}
)
"""Columns that hold JSON, in an export."""


def export(ledger: Ledger) -> Generator[tuple[str, list[str], Iterator[tuple[Any, ...]]], None, None]:
    """Every table as it was at one moment: its name, its columns, and its rows, to be read before the next table.

    Close it if it is not read to its end: rows that are left are not read then.
    """
    with ledger.database.rows() as source:
        for table, statement in EXPORTED.items():
            if table in ledger.database.lacking:
                continue
            columns, rows = source.select(statement)
            with contextlib.closing(rows):  # it cannot be closed after its connection
                yield table, columns, _readable(rows) if table in _WITH_NUMBERS else rows


_WITH_NUMBERS = (test_sets.name, item_results.name)
"""The tables with packed numbers."""


def _readable(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    from lrurun.ledger import item_rows

    for row in rows:
        yield tuple(item_rows.as_json(cell) if isinstance(cell, bytes) else cell for cell in row)

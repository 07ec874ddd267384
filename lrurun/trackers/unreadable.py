"""Why no reader knows a source, and what to do about it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from lrurun.errors import UsageError

_COMPRESSED = {".gz": "gunzip", ".bz2": "bunzip2", ".xz": "unxz", ".zst": "unzstd", ".zip": "unzip", ".tgz": "tar xf"}
"""Ending of a compressed file -> the command that unpacks it."""
_SQLITE = b"SQLite format 3\0"
_LEDGER = {"ledger_info", "ladders", "ladder_runs"}
"""Tables of a ledger of lrurun."""


def check_stream(name: str) -> None:
    """Refuses what can be read just once, and may never end: a source is read several times.

    Raises:
        UsageError: it is a pipe, a terminal or another device.
    """
    path = Path(name).expanduser()
    is_stream = "://" not in name and path.exists() and not path.is_file() and not path.is_dir()
    if is_stream or (name == "-" and not path.exists()):
        raise UsageError(
            f"{name}: is no file or folder, but a stream, and sources are read more than once",
            "write it to a file first, and import that",
        )


def reason(path: Path) -> tuple[str, str] | None:
    """What a file is that no reader knows, and a hint; None where that is not known."""
    if not path.is_file():
        return None
    if path.stat().st_size == 0:
        return "is an empty file", "export the runs again"
    if (command := _COMPRESSED.get(path.suffix.lower())) is not None:
        return "is compressed", f"unpack it with {command}, and import what is in it"
    with path.open("rb") as file:
        is_sqlite = file.read(len(_SQLITE)) == _SQLITE
    if not is_sqlite:
        return None
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            tables = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}
    except sqlite3.DatabaseError as error:
        return f"is an SQLite file that cannot be read: {error}", "copy it again from where it was written"
    if tables >= _LEDGER:
        return "is a ledger of lrurun, whose runs need no import", f"lrurun ledger merge {path}"
    return (
        "is an SQLite file of no tracker that is known",
        "lrurun import reads those of mlflow, optuna, trackio and aim",
    )

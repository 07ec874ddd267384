"""Creating a ledger, and migrating one of an older version.

Many processes may try at once: the first that gets SQLite's write lock does the work in one transaction, and the others
find it done. If a process is killed meanwhile, the ledger is unchanged.
"""

from __future__ import annotations

import contextlib
import filecmp
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.pool import NullPool

from lrurun import __version__
from lrurun.errors import LedgerError
from lrurun.ledger import files
from lrurun.ledger.schema import APPLICATION_ID, SCHEMA, VERSION_TABLE
from lrurun.server import Place

if TYPE_CHECKING:
    from alembic.config import Config

TIMEOUT = 60.0
"""Seconds to wait for another process that creates or migrates the same ledger."""

SHRINK_TIMEOUT = 5.0
"""Seconds to wait for them before the file is made smaller, which it need not be."""

_FOLDER = Path(__file__).parent / "migrations"


def version_of(connection: sqlite3.Connection, path: Path) -> str | None:
    """The revision of an open file, None if it has no tables yet. Raises LedgerError if it is not a ledger."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    names = {name for name in tables if not name.startswith("sqlite_")}
    if not names:
        return None
    if VERSION_TABLE not in names:
        raise files.not_a_ledger(path)
    rows = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall()
    if len(rows) != 1:
        raise LedgerError(
            f"the ledger {path} has {len(rows)} versions instead of one", "it was changed by hand: restore a backup"
        )
    return str(rows[0][0])


def written_by(connection: sqlite3.Connection) -> str | None:
    """The version of lrurun that created or last migrated a file."""
    try:
        row = connection.execute("SELECT value FROM ledger_info WHERE name = 'lrurun'").fetchone()
    except sqlite3.OperationalError:
        # A later version may have moved the table; then only its own number is known.
        row = None
    return str(row[0]) if row else None


def newer(at: Place, version: str, lrurun: str | None) -> LedgerError:
    """The error for a ledger that a later `lrurun` has written."""
    wanted = f"lrurun>={lrurun}" if lrurun else "lrurun"
    return LedgerError(
        f"the ledger {at} was written by a newer lrurun (its version is {version}, this one knows {SCHEMA})",
        f"install it: pip install --upgrade '{wanted}'; or name another ledger with --ledger",
    )


def upgrade(path: Path, *, versions: Path | None = None, timeout: float = TIMEOUT) -> Path | None:
    """Create the ledger at `path`, or migrate it to the newest revision if it has an older one.

    `versions` is a folder of revisions to use instead of the packaged ones. Returns the backup that was made beside a
    ledger that had rows, else None. Raises LedgerError if the file is not a ledger, is newer, or is busy.
    """

    def open_file() -> sqlite3.Connection:
        # With keys enforced, copying a table in batch mode would delete the rows that refer to it.
        return files.connect(path, "mode=rwc", timeout, "foreign_keys=OFF", "synchronous=FULL")

    engine = create_engine("sqlite://", creator=open_file, poolclass=NullPool)
    event.listen(engine, "begin", lambda begun: begun.exec_driver_sql("BEGIN IMMEDIATE"))
    with files.plain_errors(path, timeout):
        with engine.connect() as connection, connection.begin():
            backup = _upgrade_locked(connection, path, versions)
        if backup is not None:
            _shrink(path)
    return backup


def _upgrade_locked(connection: Connection, path: Path, versions: Path | None) -> Path | None:
    raw = cast(sqlite3.Connection, connection.connection.dbapi_connection)
    # Read again under the lock: another process may have migrated it meanwhile.
    version = version_of(raw, path)
    if versions is None:
        if version == SCHEMA:
            return None
        if version is not None and version > SCHEMA:
            raise newer(path, version, written_by(raw))

    # Imported here because most processes have nothing to migrate.
    from alembic import command
    from alembic.script import ScriptDirectory

    settings = config(versions)
    script = ScriptDirectory.from_config(settings)
    if version == script.get_current_head():
        return None
    if version is not None and version not in {revision.revision for revision in script.walk_revisions()}:
        raise newer(path, version, written_by(raw))
    backup = _backup(path, version) if version is not None and _has_rows(raw) else None
    settings.attributes["connection"] = connection
    command.upgrade(settings, "head")
    broken = raw.execute("PRAGMA foreign_key_check").fetchall()
    if broken:
        tables = ", ".join(sorted({str(row[0]) for row in broken}))
        raise LedgerError(
            f"the ledger {path} could not be migrated: {len(broken)} rows of {tables} refer to rows that do not exist",
            "it was not changed; `lrurun ledger check` lists what is wrong",
        )
    if not raw.in_transaction:
        raise RuntimeError("a migration ended the transaction that it runs in")
    raw.execute(f"PRAGMA application_id={APPLICATION_ID}")
    raw.execute(
        "INSERT INTO ledger_info (name, value) VALUES ('lrurun', ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (__version__,),
    )
    return backup


def config(versions: Path | None) -> Config:
    from alembic.config import Config

    made = Config()
    for name, value in {
        "script_location": str(_FOLDER),
        "version_locations": str(versions or _FOLDER / "versions"),
        # One location, whatever characters it contains.
        "path_separator": "newline",
    }.items():
        made.set_main_option(name, value.replace("%", "%%"))
    return made


def _shrink(path: Path) -> None:
    """Return the space of removed pages to the file system, if they are many."""
    with contextlib.closing(files.connect(path, "mode=rw", SHRINK_TIMEOUT)) as connection:
        # The ledger is migrated, and SQLite uses the free pages later: it is no error if the disk is too full for a
        # copy, or others use the file.
        with contextlib.suppress(sqlite3.OperationalError):
            free = connection.execute("PRAGMA freelist_count").fetchone()[0]
            if free * 4 > connection.execute("PRAGMA page_count").fetchone()[0]:
                connection.execute("VACUUM")


def _has_rows(connection: sqlite3.Connection) -> bool:
    tables = [
        row[0]
        for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        if row[0] not in (VERSION_TABLE, "ledger_info") and not row[0].startswith("sqlite_")
    ]
    return any(connection.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() for table in tables)


def _backup(path: Path, version: str) -> Path:
    """Copy the ledger, as it is before the open transaction, to the first free name beside it.

    A backup that is equal byte for byte is used instead: a migration that was killed left it. The caller holds the
    write lock, so that nothing changes meanwhile, and no other process makes a backup.
    """
    partial = path.with_name(path.name + ".backup-partial")
    partial.unlink(missing_ok=True)
    with (
        contextlib.closing(files.connect(path, "mode=rw", TIMEOUT)) as source,
        contextlib.closing(files.connect(partial, "mode=rwc", TIMEOUT)) as target,
    ):
        source.backup(target)
    backup = path.with_name(f"{path.name}.backup-{version}")
    count = 1
    while backup.exists():
        with contextlib.suppress(OSError):  # it is not readable, and so not known to be equal
            if filecmp.cmp(partial, backup, shallow=False):
                partial.unlink()
                return backup
        count += 1
        backup = path.with_name(f"{path.name}.backup-{version}-{count}")
    partial.replace(backup)
    return backup

"""Creating a ledger, and migrating one of an older version, in a file or in a database on a server.

Many processes may try at once: the first that gets SQLite's write lock, or an advisory lock of the server, does the
work in one transaction, and the others find it done. If a process is killed meanwhile, the ledger is unchanged.
"""

from __future__ import annotations

import contextlib
import filecmp
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.pool import NullPool

from lrurun.errors import LedgerError
from lrurun.ledger import files, schema
from lrurun.ledger.dialects import MIGRATION
from lrurun.ledger.schema import APPLICATION_ID, SCHEMA, VERSION_TABLE
from lrurun.server import Place, Server
from lrurun.version import VERSION

if TYPE_CHECKING:
    from alembic.config import Config

TIMEOUT = 60.0
"""Seconds to wait for another process that creates or migrates the same ledger."""

SHRINK_TIMEOUT = 5.0
"""Seconds to wait for them before the file is made smaller, which it need not be."""

FIRST = "1000"
"""The version of new ledgers at the first release. There is no way from versions before it."""

_FOLDER = Path(__file__).parent / "migrations"
_VERSIONS = _FOLDER / "versions"


# Both databases


def newer(at: Place, version: str, lrurun: str | None) -> LedgerError:
    """The error for a ledger that a later `lrurun` has written."""
    wanted = f"lrurun>={lrurun}" if lrurun else "lrurun"
    return LedgerError(
        f"the ledger {at} was written by a newer lrurun (its version is {version}, this one knows {SCHEMA})",
        f"install it: pip install --upgrade '{wanted}'; or name another ledger with --ledger",
    )


def older(at: Place, version: str, hint: str) -> LedgerError:
    """The error for a ledger that has to be migrated before it is read; `hint` says how."""
    if version < FIRST:
        return LedgerError(
            f"the ledger {at} is from before the first release of lrurun (its version is {version})",
            "it cannot be migrated: name another ledger with --ledger",
        )
    return LedgerError(f"the ledger {at} has an older version ({version}, this lrurun reads {SCHEMA})", hint)


def _only(versions: Sequence[object], at: Place) -> str:
    """The version of a ledger, of which there is one."""
    if len(versions) != 1:
        raise LedgerError(
            f"the ledger {at} has {len(versions)} versions instead of one", "it was changed by hand: restore a backup"
        )
    return str(versions[0])


class _Migration:
    """What is to be done with a ledger of this version, None for an empty database, by the revisions in a folder."""

    def __init__(self, at: Place, version: str | None, versions: Path | None, lrurun: str | None) -> None:
        # Imported here because most processes have nothing to migrate.
        from alembic.script import ScriptDirectory

        self._version = version
        self._settings = _settings(versions)
        script = ScriptDirectory.from_config(self._settings)
        self.is_due = version != script.get_current_head()
        if version is not None and version not in {revision.revision for revision in script.walk_revisions()}:
            raise older(at, version, "") if version < FIRST else newer(at, version, lrurun)

    def run(self, connection: Connection) -> None:
        """Does it in the transaction of a connection."""
        from alembic import command

        self._settings.attributes["connection"] = connection
        if self._version is None:
            schema.create(connection)
            command.stamp(self._settings, SCHEMA)
        command.upgrade(self._settings, "head")
        connection.execute(schema.info.delete().where(schema.info.c.name == "lrurun"))
        connection.execute(schema.info.insert().values(name="lrurun", value=VERSION))


def _settings(versions: Path | None) -> Config:
    from alembic.config import Config

    made = Config()
    for name, value in {
        "script_location": str(_FOLDER),
        "version_locations": str(versions or _VERSIONS),
        # One location, whatever characters it contains.
        "path_separator": "newline",
    }.items():
        made.set_main_option(name, value.replace("%", "%%"))
    return made


# Files


def version_of_file(connection: sqlite3.Connection, path: Path) -> str | None:
    """The revision of an open file, None if it has no tables yet. Raises LedgerError if it is not a ledger."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    names = {name for name in tables if not name.startswith("sqlite_")}
    if not names:
        return None
    if VERSION_TABLE not in names:
        raise files.not_a_ledger(path)
    return _only([row[0] for row in connection.execute(f"SELECT version_num FROM {VERSION_TABLE}")], path)


def writer_of_file(connection: sqlite3.Connection) -> str | None:
    """The version of lrurun that created or last migrated a file."""
    try:
        row = connection.execute("SELECT value FROM ledger_info WHERE name = 'lrurun'").fetchone()
    except sqlite3.OperationalError:
        # A later version may have moved the table; then only its own number is known.
        row = None
    return str(row[0]) if row else None


def upgrade_file(path: Path, *, versions: Path | None = None, timeout: float = TIMEOUT) -> Path | None:
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
            backup = _upgrade_locked_file(connection, path, versions)
        if backup is not None:
            _shrink(path)
    return backup


def _upgrade_locked_file(connection: Connection, path: Path, versions: Path | None) -> Path | None:
    raw = cast(sqlite3.Connection, connection.connection.dbapi_connection)
    # Read again under the lock: another process may have migrated it meanwhile.
    version = version_of_file(raw, path)
    if version == SCHEMA and versions is None:
        return None
    migration = _Migration(path, version, versions, writer_of_file(raw))
    if not migration.is_due:
        return None
    backup = _backup(path, version) if version is not None and _has_rows(raw) else None
    migration.run(connection)
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
    return backup


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


# Servers


def _existing(connection: Connection, names: Sequence[str]) -> set[str]:
    """The tables and views of these names."""
    # Not by to_regclass: within a transaction it may not find what another one has created meanwhile.
    wanted = text(
        "SELECT relname::text FROM pg_class WHERE relname = ANY(:names) AND relkind IN ('r', 'p', 'v')"
        " AND pg_table_is_visible(oid)"
    )
    return set(connection.execute(wanted, {"names": list(names)}).scalars())


def version_of_server(connection: Connection, server: Server) -> str | None:
    """The revision of the ledger in a database, None if there is none.

    Raises LedgerError if a later lrurun has written it, or tables of another program have the names of a ledger's.
    """
    names = [VERSION_TABLE, *schema.metadata.tables, *schema.VIEWS]
    found = _existing(connection, names)
    if not found:
        return None
    if VERSION_TABLE not in found:
        raise LedgerError(
            f"the database {server} has a table {min(found)}, which is not of a ledger",
            "name another database, or another schema with ?options=-csearch_path%3DNAME; this one was not changed",
        )
    version = _only(connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars().all(), server)
    if version > SCHEMA:
        raise newer(server, version, _writer_of_server(connection))
    return version


def _writer_of_server(connection: Connection) -> str | None:
    with connection.begin_nested():
        # A later version may have moved the table; then only its own number is known.
        if not _existing(connection, ["ledger_info"]):
            return None
        return connection.execute(text("SELECT value FROM ledger_info WHERE name = 'lrurun'")).scalar()


def upgrade_server(connection: Connection, server: Server, versions: Path | None = None) -> None:
    """Create the ledger in a database, or migrate it to the newest revision, in the transaction of `connection`.

    `versions` is a folder of revisions to use instead of the packaged ones.
    """
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION})
    # Read again under the lock: another process may have migrated it meanwhile.
    version = version_of_server(connection, server)
    if version == SCHEMA and versions is None:
        return
    migration = _Migration(server, version, versions, None)
    if migration.is_due:
        migration.run(connection)

"""Creating a ledger on a PostgreSQL server, and migrating one of an older version.

Many processes may try at once: the first that gets an advisory lock does the work in one transaction, and the others
find it done. If a process is killed meanwhile, the database is unchanged.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Text, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY

from lrurun import __version__
from lrurun.errors import LedgerError
from lrurun.ledger import migrate
from lrurun.ledger.dialects import MIGRATION
from lrurun.ledger.schema import SCHEMA, VERSION_TABLE, VIEWS, metadata
from lrurun.server import Server

FIRST = "0005"
"""The first revision for servers, which creates the whole schema."""
_BEFORE = "0004"

# Not by to_regclass: within a transaction it may not find what another one has created meanwhile.
_EXISTING = text(
    "SELECT relname::text FROM pg_class WHERE relname = ANY(:names) AND relkind IN ('r', 'p', 'v')"
    " AND pg_table_is_visible(oid)"
).bindparams(bindparam("names", type_=ARRAY(Text)))


def version_of(connection: Connection, server: Server) -> str | None:
    """The revision of the ledger in a database, None if there is none.

    Raises LedgerError if a later lrurun has written it, or tables of another program have the names of a ledger's.
    """
    names = [VERSION_TABLE, *metadata.tables, *VIEWS]
    found = set(connection.execute(_EXISTING, {"names": names}).scalars())
    if not found:
        return None
    if VERSION_TABLE not in found:
        raise LedgerError(
            f"the database {server} has a table {min(found)}, which is not of a ledger",
            "name another database, or another schema with ?options=-csearch_path%3DNAME; this one was not changed",
        )
    versions = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars().all()
    if len(versions) != 1:
        raise LedgerError(
            f"the ledger {server} has {len(versions)} versions instead of one",
            "it was changed by hand: restore a backup",
        )
    version = str(versions[0])
    if version > SCHEMA:
        raise migrate.newer(server, version, _written_by(connection))
    return version


def _written_by(connection: Connection) -> str | None:
    with connection.begin_nested():
        # A later version may have moved the table; then only its own number is known.
        if not connection.execute(_EXISTING, {"names": ["ledger_info"]}).scalars().all():
            return None
        return connection.execute(text("SELECT value FROM ledger_info WHERE name = 'lrurun'")).scalar()


def upgrade(connection: Connection, server: Server, versions: Path | None = None) -> None:
    """Create the ledger in a database, or migrate it to the newest revision, in the transaction of `connection`.

    `versions` is a folder of revisions to use instead of the packaged ones.
    """
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION})
    # Read again under the lock: another process may have migrated it meanwhile.
    version = version_of(connection, server)
    if version == SCHEMA and versions is None:
        return

    # Imported here because most processes have nothing to migrate.
    from alembic import command

    settings = migrate.config(versions)
    settings.attributes["connection"] = connection
    if version is None:
        command.stamp(settings, _BEFORE)
    command.upgrade(settings, "head")
    connection.execute(
        text(
            "INSERT INTO ledger_info (name, value) VALUES ('lrurun', :version)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        ),
        {"version": __version__},
    )

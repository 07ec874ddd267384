"""Creating a ledger, and migrating one of an older version, by Alembic: the same for a file and for a server.

Many processes may try at once: the first that gets SQLite's write lock, or an advisory lock of the server, does the
work in one transaction, and the others find it done. If a process is killed meanwhile, the ledger is unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from lrurun.errors import LedgerError
from lrurun.ledger.database import schema
from lrurun.ledger.database.schema import SCHEMA, VERSION_TABLE
from lrurun.server import Location
from lrurun.version import VERSION

if TYPE_CHECKING:
    from alembic.config import Config

FIRST = "1000"
"""The version of new ledgers at the first release. There is no way from versions before it."""

_FOLDER = Path(__file__).parent / "migrations"
_VERSIONS = _FOLDER / "versions"


def newer(location: Location, version: str, lrurun: str | None) -> LedgerError:
    """The error for a ledger that a later `lrurun` has written."""
    requirement = f"lrurun>={lrurun}" if lrurun else "lrurun"
    return LedgerError(
        f"the ledger {location} was written by a newer lrurun (its version is {version}, this one knows {SCHEMA})",
        f"install it: pip install --upgrade '{requirement}'; or name another ledger",
    )


def older(location: Location, version: str, hint: str) -> LedgerError:
    """The error for a ledger that has to be migrated before it is read; `hint` says how."""
    if version < FIRST:
        return LedgerError(
            f"the ledger {location} is from before the first release of lrurun (its version is {version})",
            "it cannot be migrated: name another ledger",
        )
    return LedgerError(f"the ledger {location} has an older version ({version}, this lrurun reads {SCHEMA})", hint)


def only(versions: Sequence[object], location: Location) -> str:
    """The only version that a ledger records."""
    if len(versions) != 1:
        raise LedgerError(
            f"the ledger {location} has {len(versions)} versions instead of one",
            "it was changed by hand: restore a backup",
        )
    return str(versions[0])


class Migration:
    """The steps that bring a ledger from this version (None: an empty database) to the newest revision in a folder."""

    def __init__(self, location: Location, version: str | None, versions: Path | None, lrurun: str | None) -> None:
        self._version, self._versions = version, versions
        self.is_due = True
        if self._is_new:
            return
        # Imported here because most processes have nothing to migrate.
        from alembic.script import ScriptDirectory

        script = ScriptDirectory.from_config(_settings(versions))
        self.is_due = version != script.get_current_head()
        if version is not None and version not in {revision.revision for revision in script.walk_revisions()}:
            raise older(location, version, "") if version < FIRST else newer(location, version, lrurun)

    @property
    def _is_new(self) -> bool:
        """Whether an empty database gets the newest tables, for which no step of a migration is needed."""
        return self._version is None and self._versions is None

    def run(self, connection: Connection) -> None:
        """Migrates the ledger in the transaction of a connection."""
        if self._version is None:
            schema.create(connection)
            _set_version(connection)
        if not self._is_new:
            from alembic import command

            settings = _settings(self._versions)
            settings.attributes["connection"] = connection
            command.upgrade(settings, "head")
        connection.execute(schema.info.delete().where(schema.info.c.name == "lrurun"))
        connection.execute(schema.info.insert().values(name="lrurun", value=VERSION))


def _set_version(connection: Connection) -> None:
    """Makes the table of the version, as Alembic does: importing that takes longer than making the ledger."""
    connection.exec_driver_sql(
        f"CREATE TABLE {VERSION_TABLE} ( version_num VARCHAR(32) NOT NULL,"
        f" CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num) )"
    )
    connection.exec_driver_sql(f"INSERT INTO {VERSION_TABLE} VALUES ('{SCHEMA}')")


def _settings(versions: Path | None) -> Config:
    from alembic.config import Config

    config = Config()
    for name, value in {
        "script_location": str(_FOLDER),
        "version_locations": str(versions or _VERSIONS),
        # One location, whatever characters it contains.
        "path_separator": "newline",
    }.items():
        config.set_main_option(name, value.replace("%", "%%"))
    return config

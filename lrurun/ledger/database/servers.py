"""PostgreSQL servers: how they are connected to, and their errors as messages for users.

No message contains a password: the text of a `Server` has none, and PostgreSQL does not repeat the one that it gets.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from lrurun.errors import LedgerError, LedgerFileError, LrurunError, UnreachableError, UsageError
from lrurun.ledger.database import damaged_column
from lrurun.server import Server

if TYPE_CHECKING:
    import psycopg

    from lrurun.ledger.database.sessions import GivenUp

_DEFAULTS: dict[str, str | int] = {
    "application_name": "lrurun",
    "client_encoding": "UTF8",
    "connect_timeout": 10,
    # A machine that has vanished does not answer, and is not waited for.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "tcp_user_timeout": 60_000,
}
"""Settings of connections that the URL of a ledger may replace."""

_LIMITS = "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '60s'"
"""A process that is stopped within a transaction holds the locks of its run for a minute at most."""

_REFUSALS = {
    r"password authentication failed|no password supplied|authentication failed": (
        "check the user's name and the password, which is read from PGPASSFILE (~/.pgpass), PGSERVICE or the URL in "
        "LRURUN_LEDGER"
    ),
    r"no pg_hba\.conf entry": "ask the server's administrator to allow this user and machine in pg_hba.conf",
    r'database ".*" does not exist': "create it as its owner: createdb DATABASE, or name another one in the URL",
    r'role ".*" does not exist': "create it on the server: CREATE ROLE name LOGIN, or name another user in the URL",
    r"is not permitted to log in|permission denied for database": "ask its administrator for the right to use it",
    r"no schema has been selected": "create the schema that search_path names, or name another one",
}
"""Messages of servers that refuse a connection for good -> what to do."""


class Busy(UnreachableError):
    """The server answers, and another transaction holds what this one needs."""


def connect(server: Server, **settings: Any) -> psycopg.Connection[Any]:
    """A connection to a server that begins a transaction with the first statement.

    `settings` are libpq's, and replace the URL's. Raises psycopg.Error, which `plain_errors` explains; LrurunError
    without the driver or with a database that is not UTF-8.
    """
    url = server.url()
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    from lrurun.ledger.database.sessions import Session

    try:
        parameters: dict[str, Any] = conninfo_to_dict("postgresql" + url[url.index("://") :], **settings)
    except psycopg.ProgrammingError as error:
        # Other texts of libpq may have parts of a password.
        match = re.search(r'invalid URI query parameter: "([\w-]+)"', str(error))
        problem = f"{match[1]!r} is no parameter of libpq" if match else "libpq cannot read it"
        raise UsageError(
            f"the URL of the ledger {server}: {problem}", "correct it; as in ?connect_timeout=2&sslmode=require"
        ) from None
    # Statements that are prepared on one connection are unknown to the next one that a pooling proxy uses.
    connection = Session.connect(**{**_DEFAULTS, **parameters}, autocommit=True, prepare_threshold=None)
    try:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise LedgerError(
                f"the database of the ledger {server} has the encoding {encoding}, which cannot hold every text",
                "create one with UTF-8: createdb --encoding UTF8 --template template0 DATABASE",
            )
        connection.adapters.register_dumper(str, _text_dumper())
        connection.execute(_LIMITS)
        connection.autocommit = False
    except BaseException:
        connection.close()
        raise
    return connection


QUICK_TIMEOUT = 2
"""Seconds that shell completion waits for a connection: PostgreSQL's shortest time."""


def quick_select(server: Server, statement: str, values: Mapping[str, str]) -> list[str]:
    """The first column of a statement's rows."""
    with contextlib.closing(connect(server, connect_timeout=QUICK_TIMEOUT)) as connection:
        return [row[0] for row in connection.execute(in_psycopg(statement), values)]


def in_psycopg(statement: str) -> bytes:
    """A statement with values as in ":name", as psycopg reads it."""
    return re.sub(r":(\w+)", r"%(\1)s", statement).encode()


def _text_dumper() -> Any:
    from psycopg.types.string import StrDumperUnknown

    class Text(StrDumperUnknown):
        """Text that PostgreSQL can store: without NUL characters and lone surrogates."""

        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\0", "\ufffd").encode("utf-8", "replace").decode())

    return Text


@contextlib.contextmanager
def plain_errors(server: Server) -> Iterator[None]:
    """Turn errors of PostgreSQL that the user can do something about into LrurunError and LedgerError; others pass."""
    try:
        yield
    except (msgspec.DecodeError, RecursionError) as raised:
        raise damaged_column(server, raised) from raised
    except LrurunError:
        raise
    except Exception as raised:
        original = getattr(raised, "orig", raised)  # SQLAlchemy wraps the errors of psycopg
        if _given_up(original):
            raise original.cause from None
        explained = explain(original, server)
        if explained is None:
            raise
        raise explained from raised


def _given_up(error: object) -> TypeGuard[GivenUp]:
    from lrurun.ledger.database.sessions import GivenUp

    return isinstance(error, GivenUp)


def explain(error: object, server: Server) -> LrurunError | None:
    """The error as a message for users, or None if it is not about the server."""
    import psycopg

    if not isinstance(error, psycopg.Error):
        return None
    text = first_line(error)
    for pattern, hint in _REFUSALS.items():
        if re.search(pattern, str(error)):
            return LedgerError(f"the server of the ledger {server} refuses: {text}", hint)
    state = error.sqlstate or ""
    if state == "42501":
        return LedgerFileError(
            f"the user of the ledger {server} lacks a right: {text}",
            "the owner of the database grants it: GRANT ALL ON SCHEMA public TO name, and on the tables in it",
        )
    if state == "25006":
        return LedgerFileError(
            f"the ledger {server} cannot be written: {text}", "name the server that accepts writes, not its copy"
        )
    if state == "53100":
        return LedgerFileError(f"no space left on the server of the ledger {server}", "free some space there")
    if state == "22P02" and "json" in text:
        return damaged_column(server, error)
    if state == "55P03":
        return Busy(
            f"the ledger {server} is busy: another process holds what this one writes",
            "try again; if it is still busy, look for a session that is idle in a transaction in pg_stat_activity",
        )
    if state == "53300" or re.search(r"too many (clients|connections)|remaining connection slots", text):
        return UnreachableError(
            f"the server of the ledger {server} has no connection left: {text}",
            "end commands that use it, or ask its administrator to raise max_connections (each worker has one or two)",
        )
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) or state.startswith(
        ("08", "57P", "25P03")
    ):
        return UnreachableError(
            f"the ledger {server} cannot be reached: {text}",
            "check that the server is running, and that its host and port are those of the URL",
        )
    return None


def first_line(error: psycopg.Error) -> str:
    """The message of an error, without the place where it happened."""
    text = error.diag.message_primary or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    line = lines[0].removeprefix("connection failed: ")
    return re.sub(r"^connection to server at .* failed: (FATAL: +)?", "", line)

"""The database of a ledger: an SQLite file or a PostgreSQL database, behind one interface.

`Database` is the interface; `sqlite` and `postgresql` implement it, and `sql` has what the two write differently in
statements. Nothing else asks which of them a ledger is. Importing this package does not import SQLAlchemy.
"""

from __future__ import annotations

import contextlib
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeVar

from lrurun.errors import DamagedError
from lrurun.paths import places
from lrurun.server import Location, Server

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Select, Table

T = TypeVar("T")

COMPRESSED = ".xz"
"""The end of the name of a compressed backup."""

TIMEOUT = 30.0
"""Seconds to wait for other processes that write."""

TRAINING_TIMEOUT = 600.0
"""Seconds to wait in commands that train: hours of work are worth minutes of waiting."""


class Rows(Protocol):
    """The rows of a database as they are at one moment."""

    def select(self, statement: str) -> tuple[list[str], Generator[tuple[Any, ...], None, None]]:
        """Columns and rows of a statement; the rows are read as they are needed, before the next statement."""


class Joined(Protocol):
    """A database that is written, with the tables of another one beside its own.

    Statements are in the SQL that SQLite and PostgreSQL have in common, with values as in ":name"; {main} and {other}
    stand before the names of tables, as in "SELECT id FROM {other}ladders".
    """

    def begin(self, *, writing: bool) -> None:
        """Begins a transaction. While it writes, no process takes or queues a run."""

    def execute(self, statement: str, values: Mapping[str, Any] | None = None) -> list[Any]: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class Copying(Protocol):
    """A new SQLite file that gets rows of a database, as they are at one moment."""

    connection: Connection
    """Reads the database at that moment."""

    def copy(self, rows: Select[Any]) -> None:
        """Copies rows of one table: the columns are all of that table's."""

    def insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds other rows; a column that numbers its rows does so where it is not named."""


class Freed(NamedTuple):
    """The space that a database gave back."""

    bytes: int
    kept: str = ""
    """Why space of deleted rows is left, as a clause; empty if that is little."""


class QueryError(Exception):
    """The database does not understand a query."""

    def __init__(self, message: str, column: str | None = None) -> None:
        super().__init__(message)
        self.column = column
        """The column that the query names and that does not exist; None for other errors."""


class Database(ABC):
    """A database that is open, for writing (`open`) or for reading (`read`). Threads may share it."""

    is_shared: ClassVar[bool]
    """Whether processes on several machines, and several people, may use it."""
    may_be_away: ClassVar[bool]
    """Whether it may not answer for a while, so that the end of a transaction may be unknown."""
    catalogue: ClassVar[str]
    """The table that lists the tables, for queries."""

    is_missing: ClassVar[bool] = False
    """Whether there is no ledger at the location: a reader gets one without rows, see `missing`."""

    location: Location
    read_only: bool
    lacking: frozenset[str] = frozenset()
    """The tables that a ledger of its revision does not have: it is read as it is, see `schema.LACKING`."""
    note: str | None
    """A sentence for the user about how it had to be opened, or None."""
    timeout: float
    """How many seconds each transaction waits for other processes, or until the database answers."""
    waiting: Callable[[float], None] | None = None
    """Called about every second of such a wait, with the seconds so far; what it raises ends the wait."""
    away_at = float("-inf")
    """When the database did not answer last, by the monotonic clock of this process."""
    engine: Engine

    # Opening

    @classmethod
    @abstractmethod
    def open(cls, location: Any, *, create: bool, timeout: float) -> Self:
        """Opens it for writing; it is created or migrated if necessary.

        Raises:
            NotFoundError: there is no ledger, and `create` is off.
        """

    @classmethod
    @abstractmethod
    def read(cls, location: Any, *, timeout: float) -> Self | None:
        """Opens it for reading; None if there is no ledger."""

    @classmethod
    @abstractmethod
    def exists(cls, location: Any) -> bool:
        """Whether there is a ledger, of any version."""

    @classmethod
    @abstractmethod
    def is_writable(cls, location: Any) -> bool:
        """Whether this user can write to the ledger or create it, as far as that is known without trying."""

    @classmethod
    @abstractmethod
    def can_be_created(cls, location: Any) -> bool:
        """Whether a new ledger can be made at this location: a file needs a folder."""

    @classmethod
    @abstractmethod
    def making(cls, location: Any) -> AbstractContextManager[Any]:
        """Where to make a new ledger in one transaction: at the end of the block it is at `location`, whole.

        Raises:
            LedgerError: a part of a ledger that is gone is left, which a new one would destroy, or another process made
                a ledger there.
        """

    @classmethod
    @abstractmethod
    def backup_file(cls, location: Any) -> Path:
        """The file from whose name the name of a backup is made."""

    @abstractmethod
    def close(self) -> None:
        """Closes it. Closing twice is allowed; a transaction of another thread ends before."""

    # Transactions

    @abstractmethod
    def reading(self) -> AbstractContextManager[Connection]:
        """A transaction that reads."""

    @abstractmethod
    def writing(self, *, durable: bool) -> AbstractContextManager[Connection]:
        """A transaction that writes. What is not `durable` survives a killed process, but maybe not a power cut."""

    @abstractmethod
    def retry(self, call: Callable[[], T]) -> T:
        """The result of `call`, which is one transaction; it is called again while the database is away."""

    @abstractmethod
    def write_back(self) -> None:
        """Copies what a write-ahead log has to its file, as far as that needs no waiting."""

    @abstractmethod
    def wait_text(self, seconds: float) -> str:
        """A sentence for people about a wait of this many seconds."""

    # Whole ledgers

    @abstractmethod
    def damage(self, connection: Connection) -> Iterator[str]:
        """The faults of its pages, one sentence each."""

    @abstractmethod
    def references(self, connection: Connection) -> Iterator[str]:
        """The rows that refer to rows that do not exist, one sentence each."""

    @abstractmethod
    def names(self, connection: Connection) -> set[str]:
        """The names of its tables, views, indexes and triggers."""

    @abstractmethod
    def missing_rights(self, connection: Connection, wanted: Iterable[tuple[str, str]]) -> list[str]:
        """Those of these rights, each a table and as in "DELETE", that its user lacks, as in "DELETE on metrics"."""

    @abstractmethod
    def give_back(self) -> Freed:
        """Gives the space of deleted rows back to the file system, if that pays and nobody is in the way."""

    @abstractmethod
    def query(self, sql: str, views: Mapping[str, Select[Any]], limit: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Columns and at most `limit` rows of a user's query, which may name the `views` and can only read.

        Raises:
            QueryError: it is not understood.
            UsageError: it would do more than read.
            KeyboardInterrupt: the user pressed ^C.
        """

    @abstractmethod
    def rows(self) -> AbstractContextManager[Rows]:
        """The rows as they are at one moment."""

    @abstractmethod
    def backup(self, target: Path) -> None:
        """Copies it, even while others write to it, to a new SQLite file.

        Raises:
            DamagedError: it is damaged.
        """

    @abstractmethod
    def copying(self, target: Path) -> AbstractContextManager[Copying]:
        """A new ledger in the file `target`, without rows: those that are copied are there at the end of the block."""

    @abstractmethod
    def file(self) -> AbstractContextManager[Path]:
        """An SQLite file that has its rows, to be read."""

    @abstractmethod
    def joined(self, other: Database) -> AbstractContextManager[Joined]:
        """A connection of its own, with the tables of `other`, which is only read."""


def implementation(location: Location) -> type[Database]:
    """The class of the database at a location."""
    if isinstance(location, Server):
        from lrurun.ledger.database.postgresql import PostgreSQL

        return PostgreSQL
    from lrurun.ledger.database.sqlite import SQLite

    return SQLite


def names_beginning(location: Location, table: Literal["runs", "ladders"], beginning: str) -> list[str]:
    """The ids of runs or short names of ladder instances with this beginning, newest first.

    An empty list if they cannot be read. It is for shell completion: it does not import SQLAlchemy, which takes long,
    and hardly waits.
    """
    column, order = {"runs": ("id", "number"), "ladders": ("short_name", "id")}[table]
    # A range, so that the index on names is used.
    query = f"SELECT {column} FROM {table} WHERE {column} >= :first AND {column} < :last ORDER BY {order} DESC"
    values = {"first": beginning, "last": beginning + "\U0010ffff"}
    with contextlib.suppress(Exception):  # a shell shows no errors
        if isinstance(location, Server):
            from lrurun.ledger.database import servers

            return servers.quick_select(location, query, values)
        from lrurun.ledger.database import files

        return files.quick_select(location, query, values)
    return []


# Locations


def is_same(first: Location, second: Location) -> bool:
    """Whether two locations have the same ledger."""
    if isinstance(first, Path) and isinstance(second, Path):
        return first.exists() and second.exists() and first.samefile(second)
    return first == second


def command(name: str, location: Location) -> str:
    """A command of `lrurun ledger` about a ledger, which it names unless that is the default one."""
    is_default = location.absolute() == places().ledger.absolute()
    return f"lrurun ledger {name}" + ("" if is_default else f" --ledger {shlex.quote(str(location))}")


# Errors

DAMAGED = "the file is damaged: "
"""The beginning of the sentences of `damage`."""


def damaged(location: Location, problem: object) -> DamagedError:
    """The error for a ledger that is damaged; `problem` says how that shows."""
    otherwise = "" if isinstance(location, Server) else f", or move it aside and run {command('rebuild', location)}"
    return DamagedError(
        f"the ledger {location} is damaged: {problem}",
        f"{command('check', location)} lists what is wrong; restore a copy made by lrurun ledger backup{otherwise}",
    )


def damaged_column(location: Location, error: BaseException) -> DamagedError:
    """The error for a column that does not contain what it should."""
    return damaged(location, f"a column that should contain a table in JSON does not ({error})")

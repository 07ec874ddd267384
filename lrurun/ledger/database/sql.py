"""What SQLite and PostgreSQL write differently, as expressions and functions that work on both.

A statement is built once for both databases; SQLAlchemy compiles it for the one that it is sent to.
"""

from __future__ import annotations

import json
import math
import time
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    REAL,
    BigInteger,
    BindParameter,
    Boolean,
    Connection,
    Dialect,
    Double,
    Engine,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    TypeDecorator,
    bindparam,
    cast,
    event,
    extract,
    func,
    literal,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

if TYPE_CHECKING:
    from sqlalchemy.dialects.sqlite import Insert

WHOLE: TypeEngine[int] = Integer().with_variant(BigInteger(), "postgresql")
"""Whole numbers of 64 bits."""
NUMBER: TypeEngine[float] = REAL().with_variant(Double(), "postgresql")
"""Numbers of 64 bits."""

EVENTS, MIGRATION, ENQUEUE = 0x4C525501, 0x4C525502, 0x4C525503
"""Keys of the advisory locks on a server."""


def _on_server(connection: Connection) -> bool:
    """Whether the database is PostgreSQL."""
    return connection.dialect.name == "postgresql"


def now(connection: Connection) -> float:
    """The ledger's clock, in seconds since 1970: for a file, the clock of this machine; for a server, the server's."""
    return float(connection.execute(_CLOCK).scalar_one()) if _on_server(connection) else time.time()


def longest_name(connection: Connection) -> int:
    """The most characters of the name of a column: of longer ones, PostgreSQL ignores the rest."""
    return 63 if _on_server(connection) else 1_000_000


def server_age(connection: Connection) -> float:
    """Seconds since the server started; infinite for a file."""
    return float(connection.execute(_AGE).scalar_one()) if _on_server(connection) else math.inf


def lock(connection: Connection, key: int) -> None:
    """Waits until no other transaction has this lock, and holds it to the end of this one. A file has one writer."""
    if _on_server(connection):
        connection.execute(select(func.pg_advisory_xact_lock(key)))


def lock_tables(connection: Connection, *tables: Table) -> None:
    """Waits until no other transaction writes to these tables, and lets none write to them before the end of this one.
    A file has one writer."""
    if _on_server(connection):
        names = ", ".join(table.name for table in tables)
        connection.exec_driver_sql(f"LOCK TABLE {names} IN EXCLUSIVE MODE")


_AGE: Select[Any] = select(cast(extract("epoch", func.clock_timestamp() - func.pg_postmaster_start_time()), Double()))
_CLOCK: Select[Any] = select(cast(extract("epoch", func.clock_timestamp()), Double()))


def upsert(connection: Connection, table: Table) -> Insert:
    """An INSERT that may have an ON CONFLICT clause."""
    if _on_server(connection):
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)  # type: ignore[return-value]
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def insert_columns(connection: Connection, table: Table, columns: Mapping[str, Sequence[Any]]) -> None:
    """Adds rows that are given as columns of equal length, in half the time that rows as dictionaries take."""
    names, raw = ", ".join(columns), typing.cast(Any, connection.connection.dbapi_connection)
    if _on_server(connection):
        with raw.cursor() as cursor, cursor.copy(f"COPY {table.name} ({names}) FROM STDIN".encode()) as into:
            for row in zip(*columns.values(), strict=True):
                into.write_row(row)
        return
    count = len(next(iter(columns.values())))
    at_once = _PARAMETERS // len(columns)
    flat: list[Any] = [None] * (count * len(columns))
    for k, column in enumerate(columns.values()):
        flat[k :: len(columns)] = column  # refuses columns of other lengths
    marks = f"({', '.join('?' * len(columns))})"
    for start in range(0, count, at_once):
        rows = ", ".join([marks] * min(at_once, count - start))
        values = flat[start * len(columns) : (start + at_once) * len(columns)]
        raw.execute(f"INSERT INTO {table.name} ({names}) VALUES {rows}", values)


_PARAMETERS = 999
"""The most parameters of a statement in every version of SQLite."""


def literal_statement(statement: Select[Any], dialect: Dialect) -> str:
    """The text of a statement, with its values."""
    return str(statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))


def close(engine: Engine) -> None:
    """Close the connections of an engine: idle ones now, those in use by other threads when they are returned, which
    SQLAlchemy would keep in a pool that nobody closes. Closing twice is allowed; a connection that is opened later is
    closed after its transaction."""
    event.listen(engine, "checkin", lambda _connection, entry: entry.close())
    engine.dispose()


# Tables


def create_tables(connection: Connection, tables: MetaData) -> None:
    """Makes tables and their indexes, of which `sqlite_where` limits some."""
    if _on_server(connection):
        for table in tables.tables.values():
            for index in table.indexes:  # a declared option of PostgreSQL would import its dialect for files too
                index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"].get("where")
        connection.exec_driver_sql(
            "CREATE FUNCTION lrurun_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'integrity_constraint_violation'; END $$"
        )
    tables.create_all(connection)


def create_refusal(
    connection: Connection,
    name: str,
    statement: str,
    table: str,
    rows: str | None,
    message: str,
    *,
    unless: str | None = None,
) -> None:
    """Makes a trigger that refuses a statement, DELETE or UPDATE, on a table's rows, or on some of them.

    Args:
        rows: a condition on OLD; None for all rows.
        unless: a condition with queries under which the statement is allowed; None: it never is.
    """
    if _on_server(connection):
        function = "lrurun_refuse"
        if unless is not None:  # no WHEN of PostgreSQL has a query
            function = f"lrurun_refuse_{name}"
            connection.exec_driver_sql(
                f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                f" IF {unless} THEN RETURN {'OLD' if statement == 'DELETE' else 'NEW'}; END IF;"
                " RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'integrity_constraint_violation'; END $$"
            )
        when = " FOR EACH ROW" + ("" if rows is None else f" WHEN ({rows})")
        refuse = f"EXECUTE FUNCTION {function}('{message}')"
    else:
        conditions = [*([] if rows is None else [f"({rows})"]), *([] if unless is None else [f"NOT ({unless})"])]
        when = f" WHEN {' AND '.join(conditions)}" if conditions else ""
        refuse = f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
    connection.exec_driver_sql(f"CREATE TRIGGER {name} BEFORE {statement} ON {table}{when} {refuse}")


# Lists of any length, as one parameter: the statement is prepared once, and no limit on parameters is reached


class _List(TypeDecorator[Any]):
    """A list of values: an array for PostgreSQL, JSON for SQLite."""

    impl = Text
    cache_ok = True

    def __init__(self, element: type[TypeEngine[Any]]) -> None:
        super().__init__()
        self.element = element

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name != "postgresql":
            return dialect.type_descriptor(Text())
        from sqlalchemy.dialects.postgresql import ARRAY

        return dialect.type_descriptor(ARRAY(self.element))

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return value if dialect.name == "postgresql" else json.dumps(value)


_WHOLE_NUMBERS, _TEXTS = _List(BigInteger), _List(Text)


class _Elements(FunctionElement[Any]):
    name = "elements"
    inherit_cache = True


def among(column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    """Whether a column has one of the values, which may be any number of them."""
    return _in(column, bindparam(None, list(values), type_=_kind(column)))


def among_given(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """The same in a statement that is built once: the list is given by `name` when it is executed."""
    return _in(column, bindparam(name, type_=_kind(column)))


def _kind(column: ColumnElement[Any]) -> _List:
    return _WHOLE_NUMBERS if isinstance(column.type, Integer) else _TEXTS


def _in(column: ColumnElement[Any], values: BindParameter[Any]) -> ColumnElement[bool]:
    return column.bool_op("IN")(_Elements(values))


@compiles(_Elements)
def _elements_in_file(element: _Elements, compiler: Any, **options: Any) -> str:
    return f"(SELECT value FROM json_each({compiler.process(element.clauses, **options)}))"


@compiles(_Elements, "postgresql")
def _elements_on_server(element: _Elements, compiler: Any, **options: Any) -> str:
    return f"(SELECT unnest({compiler.process(element.clauses, **options)}))"


# JSON in text columns


class _Path(TypeDecorator[Any]):
    """The names that lead to a value in JSON."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return _TEXTS.load_dialect_impl(dialect)

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return list(value) if dialect.name == "postgresql" else "$" + "".join(f'."{step}"' for step in value)


class _JSONKind(FunctionElement[str]):
    name = "json_type"
    type = Text()
    inherit_cache = True


class _JSONNumber(FunctionElement[float]):
    name = "json_number"
    type = NUMBER
    inherit_cache = True


class _JSONText(FunctionElement[str]):
    name = "json_text"
    type = Text()
    inherit_cache = True


NUMBERS = ("integer", "real")
"""The types of numbers."""
LISTS = ("array", "object")
"""The types of lists and tables, whose text is JSON without blanks."""


def json_type(text: ColumnElement[Any], *path: str) -> ColumnElement[str]:
    """The type of a value in JSON: one of NUMBERS, "text", "true", "false", "array", "object", "null"."""
    return _JSONKind(text, literal(path, _Path()))


def json_number(text: ColumnElement[Any], *path: str) -> ColumnElement[float]:
    """A number in JSON; for other values, the result depends on the database."""
    return _JSONNumber(text, literal(path, _Path()))


def json_text(text: ColumnElement[Any], *path: str) -> ColumnElement[str]:
    """A text in JSON; for other values, the result depends on the database."""
    return _JSONText(text, literal(path, _Path()))


@compiles(_JSONKind)
def _kind_in_file(element: _JSONKind, compiler: Any, **options: Any) -> str:
    return f"json_type({compiler.process(element.clauses, **options)})"


@compiles(_JSONNumber)
@compiles(_JSONText)
def _value_in_file(element: FunctionElement[Any], compiler: Any, **options: Any) -> str:
    return f"json_extract({compiler.process(element.clauses, **options)})"


def _value(element: FunctionElement[Any], compiler: Any, **options: Any) -> str:
    text, path = (compiler.process(clause, **options) for clause in element.clauses)
    return f"({_json(text)} #> {path})"


def _json(text: str) -> str:
    # PostgreSQL refuses every value of a JSON text in which one is a NUL.
    return rf"CAST(replace({text}, '\u0000', '\ufffd') AS json)"


@compiles(_JSONKind, "postgresql")
def _kind_on_server(element: _JSONKind, compiler: Any, **options: Any) -> str:
    value = _value(element, compiler, **options)
    return (
        f"CASE json_typeof({value}) WHEN 'number' THEN 'real' WHEN 'string' THEN 'text'"
        f" WHEN 'boolean' THEN {value} #>> '{{}}' ELSE json_typeof({value}) END"
    )


@compiles(_JSONNumber, "postgresql")
def _number_on_server(element: _JSONNumber, compiler: Any, **options: Any) -> str:
    value = _value(element, compiler, **options)
    return f"CASE json_typeof({value}) WHEN 'number' THEN CAST({value} #>> '{{}}' AS double precision) END"


@compiles(_JSONText, "postgresql")
def _text_on_server(element: _JSONText, compiler: Any, **options: Any) -> str:
    return f"({_value(element, compiler, **options)} #>> '{{}}') COLLATE \"C\""


class _AsInJSON(FunctionElement[float]):
    name = "as_in_json"
    type = NUMBER
    inherit_cache = True


def as_in_json(number: float | None) -> ColumnElement[Any]:
    """A number as the database reads it in JSON: some versions of SQLite do not round decimal numbers correctly."""
    if number is None or math.isinf(number):
        return literal(number, NUMBER)
    return _AsInJSON(literal(json.dumps(number), Text()))


@compiles(_AsInJSON)
def _number_of_json_in_file(element: _AsInJSON, compiler: Any, **options: Any) -> str:
    return f"json_extract({compiler.process(element.clauses, **options)}, '$')"


@compiles(_AsInJSON, "postgresql")
def _number_of_json_on_server(element: _AsInJSON, compiler: Any, **options: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **options)} AS double precision)"


class _SameJSON(FunctionElement[bool]):
    name = "same_json"
    type = Boolean()
    inherit_cache = True


def same_json(text: ColumnElement[Any], other: str) -> ColumnElement[bool]:
    """Whether two JSON texts are lists or tables with equal parts: 1 equals 1.0, and not true."""
    return _SameJSON(text, literal(other, Text()))


@compiles(_SameJSON)
def _same_json_in_file(element: _SameJSON, compiler: Any, **options: Any) -> str:
    first, second = (
        "SELECT fullkey, CASE type WHEN 'real' THEN 'integer' ELSE type END, atom"
        f" FROM json_tree({compiler.process(clause, **options)})"
        for clause in element.clauses
    )
    return f"(NOT EXISTS ({first} EXCEPT {second}) AND NOT EXISTS ({second} EXCEPT {first}))"


@compiles(_SameJSON, "postgresql")
def _same_json_on_server(element: _SameJSON, compiler: Any, **options: Any) -> str:
    first, second = (f"CAST({_json(compiler.process(clause, **options))} AS jsonb)" for clause in element.clauses)
    return f"({first} = {second})"


class infinity(FunctionElement[float]):
    """Infinity, which has no literal that both databases read."""

    name = "infinity"
    type = NUMBER
    inherit_cache = True


@compiles(infinity)
def _infinity_in_file(element: infinity, compiler: Any, **options: Any) -> str:
    return "9e999"


@compiles(infinity, "postgresql")
def _infinity_on_server(element: infinity, compiler: Any, **options: Any) -> str:
    return "CAST('inf' AS double precision)"


class json_names(FunctionElement[str]):
    """The names in a JSON object, as rows."""

    name = "json_names"
    inherit_cache = True


@compiles(json_names)
def _names_in_file(element: json_names, compiler: Any, **options: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **options)})"


@compiles(json_names, "postgresql")
def _names_on_server(element: json_names, compiler: Any, **options: Any) -> str:
    return f"LATERAL (SELECT json_object_keys({_json(compiler.process(element.clauses, **options))}) AS key)"


# Sums and lists of groups


class total(FunctionElement[float]):
    """The sum of numbers that may be null, as a real number: 0 of none. It does not overflow."""

    name = "total"
    type = NUMBER
    inherit_cache = True


@compiles(total, "postgresql")
def _total_on_server(element: total, compiler: Any, **options: Any) -> str:
    return f"coalesce(sum(CAST({compiler.process(element.clauses, **options)} AS double precision)), 0)"


@compiles(total)
def _total_in_file(element: total, compiler: Any, **options: Any) -> str:
    return f"total({compiler.process(element.clauses, **options)})"


class numbers_as_json(FunctionElement[str]):
    """The numbers of a group, as a JSON list with null for null."""

    name = "numbers_as_json"
    type = Text()
    inherit_cache = True


@compiles(numbers_as_json)
def _numbers_in_file(element: numbers_as_json, compiler: Any, **options: Any) -> str:
    return f"json_group_array({compiler.process(element.clauses, **options)})"


@compiles(numbers_as_json, "postgresql")
def _numbers_on_server(element: numbers_as_json, compiler: Any, **options: Any) -> str:
    return f"CAST(json_agg({compiler.process(element.clauses, **options)}) AS text)"

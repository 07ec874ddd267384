"""What `lrurun ledger check` finds in a ledger: damage, contradictions, and missing parts of the schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from sqlalchemy import Connection, and_, select
from sqlalchemy.exc import DatabaseError

from lrurun.errors import plural
from lrurun.ledger.dialects import on_server
from lrurun.ledger.rows import altered_documents
from lrurun.ledger.schema import TRIGGERS, VIEWS, attempts, documents, eigenvalues, events, ladders, metadata, runs
from lrurun.ledger.values import STATES

_DAMAGED = "the file is damaged: "

_JSON = (ladders.c.spec, runs.c.result, documents.c.text, eigenvalues.c.pairs, events.c.payload)


def _damage(connection: Connection) -> Iterator[str]:
    if on_server(connection):  # which checks files itself
        return
    try:
        yield from _found(connection, "PRAGMA integrity_check")
    except DatabaseError:  # SQLite stops at a table that it cannot read at all
        for table in sorted(metadata.tables):
            try:
                yield from _found(connection, f'PRAGMA integrity_check("{table}")')
            except DatabaseError as error:
                yield f"{_DAMAGED}{table}: {error.orig}"


def _found(connection: Connection, check: str) -> Iterator[str]:
    for (text,) in connection.exec_driver_sql(check):
        if text != "ok":
            yield from (f"{_DAMAGED}{line}" for line in text.splitlines() if not line.startswith("***"))


def _references(connection: Connection) -> Iterator[str]:
    if on_server(connection):
        return
    for table, rowid, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield f"a row of {table} ({rowid}) refers to a row of {parent} that does not exist"


def _contradictions(connection: Connection) -> Iterator[str]:
    for run_id, state in connection.execute(select(runs.c.id, runs.c.state).where(runs.c.state.not_in(STATES))):
        yield f"run {run_id} is in an unknown state, {state!r}"
    current = and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt)
    for run_id, state, n, ended in connection.execute(
        select(runs.c.id, runs.c.state, attempts.c.n, attempts.c.ended_at).outerjoin(attempts, current)
    ):
        if state == "running" and (n is None or ended is not None):
            yield f"run {run_id} is running without an open attempt"
        elif state != "running" and n is not None and ended is None:
            yield f"run {run_id} is {state}, but its attempt {n} is open"


def _contents(connection: Connection) -> Iterator[str]:
    if count := altered_documents(connection):
        yield f"{plural(count, 'document')} with settings or an environment changed after being hashed"
    for column in _JSON:
        texts = connection.execute(
            select(column).where(column.is_not(None)).execution_options(yield_per=1000)
        ).scalars()
        if count := sum(map(_no_json, texts)):
            yield f"{plural(count, 'row')} of {column.table.name} hold no JSON in {column.name}"


def _missing(connection: Connection) -> list[str]:
    found = set(connection.exec_driver_sql(_NAMES[on_server(connection)]).scalars())
    indexes = {str(index.name) for table in metadata.tables.values() for index in table.indexes}
    wanted = {*metadata.tables, *TRIGGERS, *VIEWS} | indexes
    return [f"{name} is missing from the schema" for name in sorted(wanted - found)]


_NAMES = {
    False: "SELECT name FROM sqlite_master",
    True: "SELECT relname FROM pg_class WHERE pg_table_is_visible(oid) UNION ALL "
    "SELECT tgname FROM pg_trigger WHERE pg_table_is_visible(tgrelid)",
}


def _no_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return True
    return False


PARTS = (_damage, _references, _contradictions, _contents, _missing)
"""Each returns what is wrong with a ledger, one sentence each."""


def distinct(found: Iterable[str]) -> list[str]:
    """The problems without repetitions: the general message of a damaged file is left out if others name the parts."""
    once = list(dict.fromkeys(found))
    if any(problem.startswith(_DAMAGED) for problem in once):
        return [problem for problem in once if not problem.endswith(" is damaged: database disk image is malformed")]
    return once

"""What `lrurun ledger check` finds in a ledger: damage, contradictions, and missing parts of the schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import msgspec
from sqlalchemy import Connection, and_, select

from lrurun.errors import DamagedError, plural
from lrurun.ledger.database import DAMAGED, Database
from lrurun.ledger.database.schema import (
    TRIGGERS,
    UNRECORDED,
    VIEWS,
    attempts,
    documents,
    eigenvalues,
    events,
    item_results,
    ladders,
    metadata,
    runs,
    test_sets,
)
from lrurun.ledger.rows import altered_documents
from lrurun.ledger.run_files import PackedItems
from lrurun.ledger.values import STATES

_JSON = (ladders.c.spec, runs.c.result, documents.c.text, eigenvalues.c.pairs, events.c.payload)


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


def _items(database: Database, connection: Connection) -> Iterator[str]:
    if database.lacking >= {item_results.name}:
        return
    from lrurun.ledger import item_rows

    counts: dict[int, int] = {}
    for row in connection.execute(select(test_sets)):
        tests = item_rows.packed_test_set(row)
        counts[row.id] = tests.count
        try:
            item_rows.check(PackedItems(test_set=tests))
        except ValueError as error:
            yield f"test set {row.id}: {error}"
    columns = (runs.c.id, item_results.c.result, item_results.c.test_set, item_results.c.sums)
    rows = select(*columns).join(runs).where(item_results.c.sums.is_not(None)).execution_options(yield_per=1000)
    for run_id, result, number, content in connection.execute(rows):
        if number not in counts:
            yield f"run {run_id}, {result}: test set {number} is missing"
            continue
        try:
            item_rows.sums(content, counts[number])
        except ValueError as error:
            yield f"run {run_id}, {result}: {error}"


def _missing(database: Database, connection: Connection) -> list[str]:
    indexes = {str(index.name) for table in metadata.tables.values() for index in table.indexes}
    expected = {*metadata.tables, *TRIGGERS, UNRECORDED, *VIEWS, *indexes} - database.lacking
    return [f"{name} is missing from the schema" for name in sorted(expected - database.names(connection))]


def _no_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return True
    return False


def problems(database: Database) -> list[str]:
    """The faults of a ledger, one sentence each; empty if there are none."""
    sentences: list[str] = []
    of_rows = (_contradictions, _contents, partial(_items, database))
    for check in (database.damage, database.references, *of_rows, partial(_missing, database)):
        try:
            with database.reading() as connection:
                for sentence in check(connection):
                    sentences.append(sentence)
        except DamagedError as error:  # in the rows that this check reads; the others may still find more
            sentences.append(error.message)
    return distinct(sentences)


def distinct(sentences: Iterable[str]) -> list[str]:
    """The problems without repetitions: the general message of a damaged file is left out if others name the parts."""
    sentences = list(dict.fromkeys(sentences))
    general = " is damaged: database disk image is malformed"
    if any(sentence.startswith(DAMAGED) for sentence in sentences):
        return [sentence for sentence in sentences if not sentence.endswith(general)]
    return sentences

"""The copy of a ledger that is published: without checkpoints, of which it has no files, and, on request, without the
names of people, machines and folders.

It works on a file of SQLite that nobody else uses.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from lrurun.ledger.rows import Document, pack

_PATH = re.compile(r"(?<![\w.~:/-])((?:/[\w.@+~-]+)+)/([\w.@+~-]+)")
"""An absolute path of at least two parts: its folder, and its name."""
_HOME = re.compile(r"^/(?:home|Users)/([\w.@+~-]+)")
_COLUMNS = {
    "ladders": ("user_name",),
    "stored_attempts": ("host", "boot", "namespace", "user_name", "reason"),
    "stored_runs": ("error",),
    "events": ("text", "payload"),
    "exclusions": ("why",),
    "hidden": ("user_name",),
    "removals": ("user_name", "selection", "why"),
}
"""Table -> the columns whose texts may name people, machines or folders. Configurations are not among them: they are
what fingerprints are of."""
_WHOLE = {"host": "host", "boot": "boot", "namespace": "namespace", "user_name": "user"}
"""Columns that are such a name -> what it is."""
_AS_RECORDED = ("config", "command")
"""Parts of recorded documents that configurations repeat, and that must stay equal to them."""


_NOBODY = ("root",)
"""Users that are no person; texts have such words with other meanings."""


class Names(Struct, frozen=True):
    """The names of people, machines and folders that a ledger has."""

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.users or self.hosts or self.folders)

    @property
    def all(self) -> tuple[str, ...]:
        """All of them, long ones first, as a part of one may be another."""
        return tuple(sorted({*self.users, *self.hosts, *self.folders}, key=lambda name: (-len(name), name)))


def prepare(file: Path, *, anonymous: bool) -> Names:
    """Removes the checkpoints from a copy, and the names if it is to be `anonymous`; the names that it had.

    Nothing of what was removed is left in the file.
    """
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM checkpoints")
        names = _find(connection)
        if anonymous:
            with _without_triggers(connection):
                _replace(connection, names)
        connection.execute("COMMIT")
        connection.execute("VACUUM")
    return names


@contextlib.contextmanager
def _without_triggers(connection: sqlite3.Connection) -> Iterator[None]:
    """Rows that never change in a ledger may change inside: this is a new ledger, which nobody has seen."""
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name").fetchall()
    for name, _ in triggers:
        connection.execute(f'DROP TRIGGER "{name}"')
    yield
    for _, statement in triggers:
        connection.execute(statement)


def words_in(text: str, names: tuple[str, ...]) -> list[str]:
    """The names that a text has, as words of their own."""
    return [name for name in names if re.search(_word(name), text)]


def _word(name: str) -> str:
    return rf"(?<![\w-]){re.escape(name)}(?![\w-])"


def _find(connection: sqlite3.Connection) -> Names:
    found: dict[str, dict[str, None]] = {"user": {}, "host": {}, "folder": {}}
    for table, columns in _tables(connection).items():
        for column in columns:
            for (text,) in connection.execute(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL"):
                if (kind := _WHOLE.get(column)) is not None:
                    found.get(kind, {})[text] = None
                else:
                    _find_in(text, found)
    for (text,) in connection.execute("SELECT text FROM documents ORDER BY id"):
        _find_in(text, found)
    users = [name for name in found["user"] if name not in _NOBODY]
    return Names(users=tuple(users), hosts=tuple(found["host"]), folders=tuple(found["folder"]))


def _find_in(text: str, found: dict[str, dict[str, None]]) -> None:
    for value in _texts(text):
        for folder, name in _PATH.findall(value):
            found["folder"][folder] = None
            if (home := _HOME.match(f"{folder}/{name}")) is not None and home[1]:
                found["user"][home[1]] = None
    table = _table(text)
    if isinstance(table, dict) and isinstance(user := table.get("user"), str):
        found["user"][user] = None


def _texts(text: str) -> Iterator[str]:
    """The texts in a text that may be JSON."""
    table = _table(text)
    if table is None:
        yield text
        return
    waiting: list[Any] = [table]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _table(text: str) -> Any:
    """The table or list that a text is in JSON; None for other texts."""
    if text[:1] not in "{[":
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


_NOT_CONFIGURATIONS = "id NOT IN (SELECT config_id FROM stored_runs)"


def _tables(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """The tables that the ledger has, of which older ones have fewer."""
    known = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return {table: columns for table, columns in _COLUMNS.items() if table in known}


class _Replaced(Struct):
    """What stands in the place of each name."""

    names: dict[str, str] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    others: dict[str, dict[str, str]] = field(default_factory=dict)

    def whole(self, kind: str, name: str) -> str:
        """In the place of a text that is a name."""
        if kind in ("user", "host"):
            return self.names.get(name, name)
        known = self.others.setdefault(kind, {})
        return known.setdefault(name, f"{kind}-{len(known) + 1}")

    def within(self, text: str) -> str:
        """A text, which may be JSON, without the names."""
        table = _table(text)
        return self._plain(text) if table is None else pack(self._value(table))

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._plain(value)
        if isinstance(value, dict):
            return {name: part if name in _AS_RECORDED else self._value(part) for name, part in value.items()}
        return [self._value(part) for part in value] if isinstance(value, list) else value

    def _plain(self, text: str) -> str:
        text = _PATH.sub(lambda found: f"{self.folders.get(found[1], '/folder')}/{found[2]}", text)
        for name in sorted(self.names, key=len, reverse=True):
            text = re.sub(_word(name), self.names[name], text)
        return text


def _replace(connection: sqlite3.Connection, names: Names) -> None:
    replaced = _Replaced(
        names={
            **{name: f"user-{number}" for number, name in enumerate(names.users, 1)},
            **{name: f"host-{number}" for number, name in enumerate(names.hosts, 1)},
        },
        folders={name: f"/folder-{number}" for number, name in enumerate(names.folders, 1)},
    )
    for table, columns in _tables(connection).items():
        for column in columns:
            kind = _WHOLE.get(column)
            _update(connection, table, column, replaced, kind)
    _replace_documents(connection, replaced.within)


def _update(connection: sqlite3.Connection, table: str, column: str, replaced: _Replaced, kind: str | None) -> None:
    texts = connection.execute(
        f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL ORDER BY 1"
    ).fetchall()
    for (text,) in texts:
        new = replaced.within(text) if kind is None else replaced.whole(kind, text)
        if new != text:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (new, text))


_REFERENCES = (("stored_runs", "execution_id"), ("stored_runs", "provenance_id"), ("stored_attempts", "environment_id"))


def _replace_documents(connection: sqlite3.Connection, within: Callable[[str], str]) -> None:
    """Documents that become equal become one: rows refer to the first."""
    query = f"SELECT id, seed_at, text FROM documents WHERE {_NOT_CONFIGURATIONS} ORDER BY id"
    for number, seed_at, text in connection.execute(query).fetchall():
        new = within(text)
        if new == text:
            continue
        sha256 = Document(new, seed_at).sha256
        equal = connection.execute("SELECT id FROM documents WHERE sha256 = ?", (sha256,)).fetchone()
        if equal is None:
            connection.execute("UPDATE documents SET text = ?, sha256 = ? WHERE id = ?", (new, sha256, number))
            continue
        for table, column in _REFERENCES:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (equal[0], number))
        connection.execute("DELETE FROM documents WHERE id = ?", (number,))

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
from urllib.parse import urlsplit

from msgspec import Struct, field

from lrurun.ledger.rows import Document, pack

_PART = r"[\w.@+~%-]+"
_PATH = re.compile(
    "|".join(
        (
            r"(?<=[\"'])((?:/[^\"'\n/]+)+)/([^\"'\n/]+)(?=[\"'])",  # in quotation marks: blanks may be in it
            r"\A((?:/[^\n/:]+)+)/([^\n/:]+)\Z",
            rf"(?<=://)(?<!http://)(?<!https://)([\w.@+~%:/-]*[\w.@+~%-])/({_PART})",
            rf"(?<![\w.~/-])((?:/{_PART})+)/({_PART})",  # the folder of another machine follows its name and a colon
            rf"(?<![\w\\])((?:[A-Za-z]:(?:\\+[\w.@+~$ -]+)+|\\\\+[\w.$-]+(?:\\+[\w.@+~$ -]+)*))\\+({_PART})",
        )
    )
)
"""An absolute path of at least two parts, also of Windows, or in an address that is no page: its folder, its name."""
_HOME = re.compile(r"(?:^|[/\\])(?:home|homes|Users|users)[/\\]+([\w.@+~-]+)")
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+(?::[\w.~/-]+)?")
"""An address for mail, or of a repository as Git has it for SSH."""
_KEYS = {
    "user": "user",
    "username": "user",
    "user_name": "user",
    "host": "host",
    "hostname": "host",
    "folder": "folder",
}
"""Keys in recorded texts of this or other software -> what their texts are."""
_SETTINGS = ("config", "settings", "recipe", "ladder", "rungs")
"""Parts of recorded texts in which users choose the keys."""
_COLUMNS = {
    "ladders": ("user_name",),
    "stored_attempts": ("host", "boot", "namespace", "user_name", "reason"),
    "stored_runs": ("error",),
    "events": ("text", "payload"),
    "exclusions": ("why",),
    "hidden": ("user_name",),
    "removals": ("user_name", "selection", "why", "instances"),
    "tags": ("name",),
}
"""Table -> the columns whose texts may name people, machines or folders. Configurations are not among them: they are
what fingerprints are of."""
_WHOLE = {"host": "host", "boot": "boot", "namespace": "namespace", "user_name": "user"}
"""Columns that are such a name -> what it is."""
_AS_RECORDED = ("config", "command")
"""Parts of recorded documents that configurations repeat, and that must stay equal to them."""


_NOBODY = ("root", "nobody", "ubuntu", "ec2-user", "jovyan", "localhost")
"""Users that are no person, and a host that is each one; texts have such words with other meanings."""


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
    """Removes the checkpoints from a copy, what says where files are that have to be removed, and the names if it is to
    be `anonymous`; the names that it had.

    Nothing of what was removed is left in the file.
    """
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM checkpoints")
        if "removals" in _tables(connection):  # files that remain are not of the new ledger
            connection.execute("UPDATE removals SET files = NULL, finished_at = coalesce(finished_at, time)")
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
    """The names that a text has, in whatever case, as words or as parts of such names as "ada-wide" and "ada_2"."""
    folded = text.casefold()
    return [
        name
        for name in names
        if any(
            form in folded and re.search(rf"(?<![^\W_]){re.escape(form)}(?![^\W_])", folded)
            for form in {name.casefold(), json.dumps(name)[1:-1].casefold()}
        )
    ]


def texts_of(file: Path) -> Iterator[str]:
    """Every text in a ledger, each once in its column: a search in the file would miss those that pages divide."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        for (table,) in tables:
            for _, column, type_, *_ in connection.execute(f'PRAGMA table_info("{table}")').fetchall():
                if type_ == "TEXT":
                    query = f'SELECT DISTINCT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'
                    yield from (text for (text,) in connection.execute(query))


def _word(name: str, replaced: str) -> str:
    """The pattern of a name as a word of its own, of a machine with its domain."""
    domain = r"(?:\.[A-Za-z0-9-]+)*" if replaced.startswith("host-") else ""
    return rf"(?<![\w-]){re.escape(name)}{domain}(?![\w-])"


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
    users, hosts = ([name for name in found[kind] if name and name not in _NOBODY] for kind in ("user", "host"))
    # messages have a machine by its first name as well
    hosts = list(dict.fromkeys(name for host in hosts for name in (host, _first_name(host))))
    return Names(users=tuple(users), hosts=tuple(hosts), folders=tuple(filter(None, found["folder"])))


def _first_name(host: str) -> str:
    """The name of a machine without its domain; addresses of numbers stay."""
    return host if re.fullmatch(r"[\d.:]+", host) else host.partition(".")[0]


def _find_in(text: str, found: dict[str, dict[str, None]]) -> None:
    for key, value in _texts(text):
        kind = _KEYS.get(key)
        if kind in ("user", "host"):
            found[kind][value] = None
        if kind == "folder" and value[:1] == "/":
            found["folder"][value] = None
            found["user"] |= dict.fromkeys(_HOME.findall(value))
            continue
        if key == "place" and (host := _host_of(value)):
            found["host"][host] = None
        for path in _PATH.finditer(value):
            folder, _ = _parts(path)
            found["folder"][folder] = None
            found["user"] |= dict.fromkeys(_HOME.findall(path[0]))
        for address in _ADDRESS.findall(value):
            found["user"][address] = None


def _parts(path: re.Match[str]) -> tuple[str, str]:
    """The folder and the name of a path."""
    folder, name = (part for part in path.groups() if part is not None)
    return folder, name


def _host_of(place: str) -> str | None:
    """The machine in the address of another program's server."""
    try:
        return urlsplit(place).hostname
    except ValueError:
        return None


def _texts(text: str) -> Iterator[tuple[str, str]]:
    """The texts in a text that may be JSON, each with its key, which is empty where users choose keys."""
    table = _table(text)
    if table is None:
        yield "", text
        return
    waiting: list[tuple[str, bool, Any]] = [("", True, table)]
    while waiting:
        key, is_known, value = waiting.pop()
        if isinstance(value, str):
            yield key if is_known else "", value
        elif isinstance(value, dict):
            yield from (("", name) for name in value)
            waiting += [(name, is_known and name not in _SETTINGS, part) for name, part in value.items()]
        elif isinstance(value, list):
            waiting += [(key, is_known, part) for part in value]


def _table(text: str) -> Any:
    """The table or list that a text is in JSON; None for other texts."""
    if text[:1] not in ("{", "["):
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
            return {
                self._key(name): part if name in _AS_RECORDED else self._value(part) for name, part in value.items()
            }
        return [self._value(part) for part in value] if isinstance(value, list) else value

    def _key(self, name: str) -> str:
        """A key, which is a word with a meaning unless it is a path or an address."""
        return self._plain(name) if _PATH.search(name) or _ADDRESS.search(name) else name

    def _plain(self, text: str) -> str:
        text = _PATH.sub(self._path, _ADDRESS.sub(lambda found: self.names.get(found[0], found[0]), text))
        for name in sorted(self.names, key=len, reverse=True):
            if name in text:
                text = re.sub(_word(name, self.names[name]), self.names[name], text)
        return text

    def _path(self, found: re.Match[str]) -> str:
        folder, name = _parts(found)
        if (whole := self.folders.get(found[0])) is not None:
            return whole
        return f"{self.folders.get(folder, '/folder')}/{name}"


def _replace(connection: sqlite3.Connection, names: Names) -> None:
    first_names = list(dict.fromkeys(map(_first_name, names.hosts)))
    replaced = _Replaced(
        names={
            **{name: f"user-{number}" for number, name in enumerate(names.users, 1)},
            **{name: f"host-{first_names.index(_first_name(name)) + 1}" for name in names.hosts},
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

"""The file that an import writes: what it understood, as tables that the user can edit, with the alternatives."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from lrurun.config.imported import ImportTable
from lrurun.config.settings import toml_value
from lrurun.console import clean

ALWAYS = ("source", "from", "metric", "direction", "at", "seed", "crashed")
"""The keys that are written even where they have their defaults: they decide verdicts."""


class RungText(Struct, frozen=True, kw_only=True):
    """A rung as the file has it."""

    table: Mapping[str, Any]
    """Key -> value."""
    comment: str = ""


def text(
    task: str,
    title: str,
    table: ImportTable,
    rungs: Sequence[RungText],
    *,
    head: Sequence[str],
    notes: Mapping[str, str],
    tables: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> str:
    """The text of the file.

    Args:
        title: what the details of reports begin with.
        head: sentences at its beginning.
        notes: key of `[import]` -> a comment on its value; "rung": a comment on the rungs.
        tables: further lists of tables, as the claims of a ladder.
    """
    lines = [*map(_comment, head), f"task = {toml_value(task)}", f"title = {toml_value(title)}", "", "[import]"]
    defaults = msgspec.to_builtins(ImportTable(source=("",), from_="", metric="x", direction="max"))
    for key, value in msgspec.to_builtins(table).items():
        if key in ALWAYS or value != defaults[key]:
            lines += [_comment(notes[key])] if notes.get(key) else []
            lines.append(f"{key} = {_value(value)}")
    if notes.get("rung"):
        lines += ["", *map(_comment, notes["rung"].splitlines())]
    for rung in rungs:
        lines += ["", "[[rung]]", *([_comment(rung.comment)] if rung.comment else []), *_entries(rung.table)]
    for name, several in (tables or {}).items():
        for entries in several:
            lines += ["", f"[[{name}]]", *_entries(entries)]
    return "\n".join(lines) + "\n"


def _comment(sentence: str) -> str:
    return f"# {clean(sentence)}".rstrip()


def _entries(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_value(value)}" for key, value in table.items()]


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key, re.ASCII) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_value(part)}" for key, part in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _text(value) if isinstance(value, str) else toml_value(value)


def _text(text: str) -> str:
    """A text as TOML writes it. What would not be seen, such as an end of line, is escaped, so that conditions on it
    hold."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(sign if clean(sign) == sign else _escaped(sign) for sign in quoted)


def _escaped(sign: str) -> str:
    is_surrogate = 0xD800 <= ord(sign) <= 0xDFFF  # half of a sign, which no file can have
    return "\ufffd" if is_surrogate else f"\\u{ord(sign):04x}" if ord(sign) < 0x10000 else f"\\U{ord(sign):08x}"


def line_of(content: str, key: str) -> int | None:
    """The number of the line of `[import]` that has a key, or of the first rung with "rung"; None if there is none."""
    inside = False
    for number, line in enumerate(content.splitlines(), 1):
        if re.match(r"\s*\[", line):
            if key == "rung" and re.match(r"\s*\[\[\s*rung\s*\]\]", line):
                return number
            inside = re.match(r"\s*\[\s*import\s*\]", line) is not None
        elif inside and re.match(rf"\s*\"?{re.escape(key)}\"?\s*=", line):
            return number
    return None

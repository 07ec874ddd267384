"""The content of msgspec's validation errors, parsed from their text.

msgspec gives the rule and the place of a failure only as one line of text, without the value. Everything that depends
on the wording of msgspec is in this module; `tests/test_config.py` has an example of each form.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

_KINDS = {
    "object": "a table",
    "array": "a list",
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}


class Problem(Struct, frozen=True, kw_only=True):
    """A validation error."""

    kind: Literal["missing", "unknown", "choice", "type", "rule"]
    """A field is missing; a field is unknown; not one of the permitted values; another type or range was expected; a
    check of our own failed."""
    rule: str
    """For people, with the terms of TOML."""
    field: str = ""
    """The missing or unknown field."""
    steps: tuple[str | int | None, ...] = ()
    """Fields and indices from the top to the place; None for a key of a dictionary, which msgspec does not name."""


def parse(message: str) -> Problem:
    """The problem that the text of a `msgspec.ValidationError` describes."""
    rule, place = re.fullmatch(r"(.*?)(?: - at `([^`]*)`)?", message, re.DOTALL).groups()  # type: ignore[union-attr]
    steps = tuple(
        name or (int(index) if index != "..." else None)
        for name, index in re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", (place or "").removeprefix("$"))
    )
    if found := re.match(r"Object missing required field `(.*)`", rule, re.DOTALL):
        return Problem(kind="missing", rule="missing", field=found.group(1), steps=steps)
    if found := re.match(r"Object contains unknown field `(.*)`", rule, re.DOTALL):
        return Problem(kind="unknown", rule="unknown name", field=found.group(1), steps=steps)
    if re.match(r"Invalid (?:enum )?value", rule):
        return Problem(kind="choice", rule="expected one of the known values", steps=steps)
    if not rule.startswith("Expected"):
        return Problem(kind="rule", rule=_lower(rule), steps=steps)
    rule = re.sub(r"`(.*?)`", lambda kinds: _described(kinds.group(1)), re.sub(r", got .*$", "", rule))
    # the only pattern in our types is that of names
    rule = re.sub(r"a string matching regex .*", "a name of letters, digits, '.', '_' and '-'", rule)
    rule = re.sub(r"(\d)\.0\b", r"\1", rule)
    return Problem(kind="type", rule=_lower(rule), steps=steps)


def _lower(rule: str) -> str:
    return rule[:1].lower() + rule[1:]


def _described(kinds: str) -> str:
    """`float | null` as "a number"; there is no null in TOML."""
    return " or ".join(_KINDS.get(kind, kind) for kind in kinds.split(" | ") if kind != "null")

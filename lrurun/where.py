"""Conditions on runs, as in `task=ListOps and val/accuracy>0.5`: read by hand, nothing of them is ever evaluated.

    condition   ->  alternative ("or" alternative)*
    alternative ->  term ("and" term)*
    term        ->  "not" term | "(" condition ")" | name operator value
    operator    ->  = != < <= > >=

A value is a number, a word or a quoted string. What a run has not is neither equal nor unequal to anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from lrurun.config import RECURRENCES, SECTIONS, known_paths
from lrurun.errors import UsageError, nearest

Kind = Literal["number", "text", "truth", "set"]
Value = float | str | bool | tuple[str, ...] | None
"""Of a run: a set is a tuple, and None is what the run has not."""

FIELDS: dict[str, Kind] = {
    "id": "text",
    "task": "text",
    "ladder": "set",
    "rung": "set",
    "stage": "set",
    "profile": "set",
    "seed": "number",
    "state": "text",
    "step": "number",
    "steps": "number",
    "parameters": "number",
    "created_at": "text",
    "finished_at": "text",
    "tag": "set",
}
"""What every run has. A run may have several ladders, rungs and tags: one that is equal is enough."""

METRICS = ("val/accuracy", "val/loss", "test/accuracy", "test/loss", "machine/steps_per_second", "best_step")
"""Names of results that are known before any run has one."""

LONGEST = 10_000
"""Characters of a condition."""

DEEPEST = 100
"""Parentheses and nots within one another."""

_TOKEN = re.compile(
    r"(?P<blank>\s+)|(?P<string>\"[^\"]*\"|'[^']*')|(?P<operator><=|>=|!=|==|=|<|>)|(?P<paren>[()])"
    r"|(?P<word>[^\s\"'<>=!()]+)"
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_HINT = "as in: task=sDigits and (val/accuracy>=0.9 or not state=done)"


class Comparison(Struct, frozen=True):
    """A name of a run's beside a value."""

    name: str
    operator: str
    text: str
    """The value as written, without its quotes."""
    number: float | None
    """What it is as a number, where it is one."""


class Not(Struct, frozen=True):
    of: Condition


class All(Struct, frozen=True):
    of: tuple[Condition, ...]


class Any_(Struct, frozen=True):
    of: tuple[Condition, ...]


Condition = Comparison | Not | All | Any_


def names(metrics: Sequence[str] = ()) -> dict[str, Kind]:
    """Every name that may be compared, with what it holds: the fields, the results, the settings."""
    return {**FIELDS, **dict.fromkeys((*METRICS, *metrics), "number"), **_settings()}


def check_name(name: str, known: Mapping[str, Kind], where: str) -> None:
    """Nothing, where `name` is known.

    Raises:
        UsageError: with the nearest known name.
    """
    if name in known:
        return
    close = nearest(name, known) or next((path for path in known if path.endswith(f".{name}")), None)
    rest = f"fields: {', '.join(FIELDS)}; results such as val/accuracy; settings such as optim.lr"
    raise UsageError(f"{where}: unknown name {_short(name)}", f"did you mean {close!r}? {rest}" if close else rest)


def parse(text: str, known: Mapping[str, Kind], option: str = "--where") -> Condition:
    """The condition that `text` says; `known` is what `names` gives, `option` is named in errors.

    Raises:
        UsageError: with the column, what was expected there and what was found.
    """
    if len(text) > LONGEST:
        raise UsageError(f"{option}: {len(text)} characters are too long", f"at most {LONGEST}; {_HINT}")
    return _Parser(text, known, option).condition()


def holds(condition: Condition, value_of: Callable[[str], Value]) -> bool:
    """Whether the condition holds of a run whose values `value_of` tells."""
    match condition:
        case Comparison():
            return _compare(condition, value_of(condition.name))
        case Not(of):
            return not holds(of, value_of)
        case All(parts):
            return all(holds(part, value_of) for part in parts)
        case Any_(parts):
            return any(holds(part, value_of) for part in parts)


def named(condition: Condition) -> set[str]:
    """The names that the condition compares."""
    if isinstance(condition, Comparison):
        return {condition.name}
    if isinstance(condition, Not):
        return named(condition.of)
    return {name for part in condition.of for name in named(part)}


def order(value: Value) -> tuple[int, float | str] | None:
    """What runs are sorted by; None where there is nothing to sort by. Numbers come before words."""
    if isinstance(value, tuple):
        value = ", ".join(value) or None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return (1, value) if isinstance(value, str) else (0, value)


def _compare(wanted: Comparison, value: Value) -> bool:
    if value is None:
        return False
    if isinstance(value, tuple):
        # no tag at all is something to know of a run; no ladder at all is a run that lacks one
        return (wanted.text in value) == (wanted.operator == "=") and (bool(value) or wanted.name == "tag")
    found: Any
    sought: Any
    if isinstance(value, bool) or isinstance(value, str):
        found, sought = (str(value).lower() if isinstance(value, bool) else value), wanted.text
    elif wanted.number is not None:
        found, sought = value, wanted.number
    else:
        return False
    match wanted.operator:
        case "=":
            return bool(found == sought)
        case "!=":
            return bool(found != sought)
        case "<":
            return bool(found < sought)
        case "<=":
            return bool(found <= sought)
        case ">":
            return bool(found > sought)
        case _:
            return bool(found >= sought)


class _Token(Struct, frozen=True):
    kind: str
    text: str
    column: int

    @property
    def shown(self) -> str:
        return "the end" if self.kind == "end" else _short(self.text)


class _Parser:
    """Recursive descent over the tokens of one condition."""

    def __init__(self, text: str, known: Mapping[str, Kind], option: str) -> None:
        self._option = option
        self._known = known
        self._tokens = self._split(text)
        self._at = 0
        self._depth = 0

    def condition(self) -> Condition:
        found = self._either()
        if self._next.kind != "end":
            raise self._wrong("and, or, or the end")
        return found

    def _split(self, text: str) -> list[_Token]:
        tokens = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                if text[at] in "\"'":
                    raise UsageError(f"{self._where(at + 1)}: a quote that does not end", f"add another {text[at]}")
                raise UsageError(f"{self._where(at + 1)}: unexpected {text[at]!r}", _HINT)
            if match.lastgroup != "blank":
                tokens.append(_Token(str(match.lastgroup), match[0], at + 1))
            at = match.end()
        return [*tokens, _Token("end", "", len(text) + 1)]

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _is(self, word: str) -> bool:
        return self._next.kind == "word" and self._next.text.lower() == word

    def _either(self) -> Condition:
        parts = [self._both()]
        while self._is("or"):
            self._take()
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Any_(tuple(parts))

    def _both(self) -> Condition:
        parts = [self._term()]
        while self._is("and"):
            self._take()
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _term(self) -> Condition:
        nested = self._is("not") or self._next.text == "("
        if not nested:
            return self._comparison()
        self._depth += 1
        if self._depth > DEEPEST:
            raise UsageError(f"{self._where()}: nested more than {DEEPEST} deep", "write it flatter")
        found: Condition
        if self._take().text == "(":
            found = self._either()
            if self._next.text != ")":
                raise self._wrong("')', and or or")
            self._take()
        else:
            found = Not(self._term())
        self._depth -= 1
        return found

    def _comparison(self) -> Condition:
        if self._next.kind != "word" or any(map(self._is, ("and", "or"))):
            raise self._wrong("a name, not or '('")
        where = self._where()
        name = self._take().text
        check_name(name, self._known, where)
        if self._next.kind != "operator":
            raise self._wrong(f"= != < <= > or >= after {name}")
        kind = self._known[name]
        operator = self._next.text.replace("==", "=")
        if kind in ("set", "truth") and operator not in ("=", "!="):
            raise self._wrong(f"= or != after {name}")
        self._take()
        if self._next.kind not in ("word", "string") or any(map(self._is, ("and", "or", "not"))):
            raise self._wrong(f"a value to compare {name} with")
        value = self._next.text[1:-1] if self._next.kind == "string" else self._next.text
        number = float(value) if self._next.kind == "word" and _NUMBER.fullmatch(value) else None
        if kind == "number" and number is None:
            raise self._wrong(f"a number to compare {name} with")
        if kind == "truth" and value not in ("true", "false"):
            raise self._wrong(f"true or false to compare {name} with")
        self._take()
        return Comparison(name, operator, value, number)

    def _where(self, column: int | None = None) -> str:
        return f"{self._option}, column {column or self._next.column}"

    def _wrong(self, expected: str) -> UsageError:
        return UsageError(f"{self._where()}: expected {expected}, found {self._next.shown}", _HINT)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def _settings() -> dict[str, Kind]:
    return _settings_of(tuple(RECURRENCES.values()))


@cache
def _settings_of(members: tuple[Any, ...]) -> dict[str, Kind]:
    hints: dict[str, Any] = {}
    for section, type_ in SECTIONS.items():
        hints |= {f"{section}.{name}": hint for name, hint in get_type_hints(type_).items()}
    for member in members:
        hints |= {f"model.recurrence.{name}": hint for name, hint in get_type_hints(member).items()}
    return {path: _kind(hints.get(path, str)) for path in known_paths()}


def _kind(hint: Any) -> Kind:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        hint = get_args(hint)[0]
    return "truth" if hint is bool else "number" if hint in (int, float) else "text"

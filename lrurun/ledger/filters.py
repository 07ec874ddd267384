"""Conditions on runs, as in `task=ListOps and val/accuracy>0.5`. They are parsed here and never evaluated as code.

    condition   ->  alternative ("or" alternative)*
    alternative ->  term ("and" term)*
    term        ->  "not" term | "(" condition ")" | name operator value
    operator    ->  = != < <= > >=

A value is a number, a word or a quoted string; of a time, what `time_text` reads; of a share, such as accuracy, also a
number of per cent: 30% is 0.3. If a run has no value of a name,
every comparison with it is false, with two exceptions: a run without tags is unequal to every tag, and the profile of
the plain recipe is "". A user is one who requested a ladder of the run, "" in ledgers of older versions.
"""

from __future__ import annotations

import math
import operator
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from lrurun.config.recurrences import KINDS
from lrurun.config.schema import SECTIONS, known_paths
from lrurun.errors import UsageError, hint_for, nearest
from lrurun.ledger.values import STATES

Kind = Literal["number", "share", "text", "truth", "set", "state", "time"]
Value = float | str | bool | tuple[str, ...] | None
"""Of a run: a set is a tuple, and None means that the run has no such value."""

FIELDS: dict[str, Kind] = {
    "id": "text",
    "task": "text",
    "ladder": "set",
    "rung": "set",
    "stage": "set",
    "profile": "set",
    "user": "set",
    "seed": "number",
    "state": "state",
    "step": "number",
    "steps": "number",
    "parameters": "number",
    "numerics": "number",
    "created_at": "time",
    "finished_at": "time",
    "tag": "set",
}
"""What every run has. Of a run's ladders, rungs, profiles and tags, one that is equal is enough."""

METRICS = (
    *("val/accuracy", "val/loss", "test/accuracy", "test/loss"),
    *("machine/steps_per_second", "best_step", "escape_step"),
)
"""Results that can be named even if no run in the ledger has them."""

DURATION = "duration"
"""The seconds of all attempts at a run together, which no condition has, but a column of runs."""

MAX_CHARACTERS = 10_000
"""Most characters of a condition."""

MAX_DEPTH = 100
"""Most levels of parentheses and nots."""

_TOKEN = re.compile(
    r"(?P<blank>\s+)|(?P<string>\"[^\"]*\"|'[^']*')|(?P<operator><=|>=|!=|==|=|<|>)|(?P<paren>[()])"
    r"|(?P<word>[^\s\"'<>=!()]+)"
)
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **{"=": operator.eq, "!=": operator.ne},
    **{"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_TIME = re.compile(
    r"\d{4}(-\d\d(-\d\d(?P<clock>[T ]\d\d:\d\d(?P<second>:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?)?)?)?", re.ASCII
)
# Shorter numbers are rather years, clock times or dates without hyphens.
_EPOCH = re.compile(r"-?\d{9,12}(\.\d+)?", re.ASCII)
_HINT = "as in: task=sDigits and (val/accuracy>=0.9 or not state=done)"
_TIME_HINT = "as in: created_at>2026-11-22 and finished_at<='2026-11-22 14:49:40' (UTC), or seconds since 1970"


class Comparison(Struct, frozen=True):
    """A name, an operator and a value."""

    name: str
    operator: str
    text: str
    """The value without its quotes; a time as `time_text` returns it."""
    number: float | None
    """The value as a number, if it is one."""


class Not(Struct, frozen=True):
    of: Condition


class And(Struct, frozen=True):
    of: tuple[Condition, ...]


class Or(Struct, frozen=True):
    of: tuple[Condition, ...]


Condition = Comparison | Not | And | Or


def names(metrics: Iterable[str] = (), shares: Collection[str] = ("accuracy",)) -> dict[str, Kind]:
    """Every name that may be compared, with the kind of its values: fields, results and settings.

    `shares` are the metrics that are fractions, and printed in per cent.
    """
    results: dict[str, Kind] = {
        name: "share" if name.rpartition("/")[2] in shares else "number" for name in (*METRICS, *metrics)
    }
    return {**FIELDS, **results, **_settings()}


def check_name(name: str, known: Mapping[str, Kind], where: str) -> None:
    """Check that `name` is known.

    Raises:
        UsageError: with the nearest known name.
    """
    if name in known:
        return
    close = nearest(name, known) or next((path for path in known if path.endswith(f".{name}")), None)
    fields = ", ".join([*FIELDS, DURATION] if DURATION in known else FIELDS)
    rest = f"fields: {fields}; results such as val/accuracy; settings such as optim.lr"
    if name == DURATION:
        rest = f"{name} is a column of `lrurun runs --columns` alone; {rest}"
    elif close:
        rest = f"did you mean {close!r}? {rest}"
    raise UsageError(f"{where}: unknown name {_short(name)}", rest)


def parse(text: str, known: Mapping[str, Kind], option: str = "--where") -> Condition:
    """The condition in `text`; `known` are the names from `names`, `option` is named in errors.

    Raises:
        UsageError: with the column, what was expected there and what was found.
    """
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"{option}: {len(text)} characters are too long", f"at most {MAX_CHARACTERS}; {_HINT}")
    return _Parser(text, known, option).condition()


def holds(condition: Condition, value_of: Callable[[str], Value]) -> bool:
    """Whether the condition is true of a run; `value_of` returns its value of a name."""
    match condition:
        case Comparison():
            return _compare(condition, value_of(condition.name))
        case Not(of):
            return not holds(of, value_of)
        case And(parts):
            return all(holds(part, value_of) for part in parts)
        case Or(parts):
            return any(holds(part, value_of) for part in parts)


def comparisons(condition: Condition) -> Iterator[Comparison]:
    """The comparisons in a condition."""
    if isinstance(condition, Comparison):
        yield condition
        return
    for part in (condition.of,) if isinstance(condition, Not) else condition.of:
        yield from comparisons(part)


def too_large(condition: Condition, known: Mapping[str, Kind]) -> list[str]:
    """Sentences on the shares that a condition compares with numbers above 1, which no share exceeds."""
    return [
        f"{one.name}{one.operator}{one.text}: {one.name.rpartition('/')[2].replace('_', ' ')} is a fraction: "
        f"{one.number / 100:g}, or {one.number:g}%"
        for one in comparisons(condition)
        if known[one.name] == "share" and one.number is not None and one.number > 1 and "%" not in one.text
    ]


def order(value: Value) -> tuple[int, float | str] | None:
    """What runs are sorted by; None if there is no value. Numbers come before text."""
    if isinstance(value, tuple):
        value = ", ".join(filter(None, value)) or None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return (1, value) if isinstance(value, str) else (0, value)


FIRST_SECOND, LAST_SECOND = -30610224000, 253402300800
"""The years from 1000 to 9999, whose texts sort as the times do."""


def when(seconds: float | None) -> str | None:
    """A time as it is printed and compared; None if it is out of range."""
    if seconds is None or not FIRST_SECOND <= seconds < LAST_SECOND:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def time_text(value: str) -> str | None:
    """A time as `when` prints it, so that their texts compare as the times do; None if `value` is not a time.

    Args:
        value: a date and time (UTC unless it has an offset), seconds since 1970, or a year, month, day or minute. The
            latter are returned as the beginning of a time's text, which precedes all times in it and equals none.
    """
    if _EPOCH.fullmatch(value):
        return when(math.floor(float(value)))
    parts = _TIME.fullmatch(value)
    if parts is None:
        return None
    try:
        moment = datetime.fromisoformat(value + "0001-01-01"[len(value) :])
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    if parts["second"]:
        return moment.isoformat(timespec="seconds") + "Z"
    return moment.isoformat(timespec="minutes") if parts["clock"] else value


def _compare(wanted: Comparison, value: Value) -> bool:
    if value is None:
        return False
    if isinstance(value, tuple):
        # A run without tags is known to lack the tag; a run that is in no ladder has no rung to be compared.
        return (wanted.text in value) == (wanted.operator == "=") and (bool(value) or wanted.name == "tag")
    found: float | str
    sought: float | str
    if isinstance(value, bool | str):
        found, sought = (str(value).lower() if isinstance(value, bool) else value), wanted.text
    elif wanted.number is not None:
        found, sought = value, wanted.number
    else:
        return False
    return bool(OPERATORS[wanted.operator](found, sought))


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
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _both(self) -> Condition:
        parts = [self._term()]
        while self._is("and"):
            self._take()
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _term(self) -> Condition:
        nested = self._is("not") or self._next.text == "("
        if not nested:
            return self._comparison()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UsageError(f"{self._where()}: nested more than {MAX_DEPTH} deep", "use fewer parentheses")
        found: Condition
        if self._take().text == "(":
            found = self._either()
            if self._next.text != ")":
                raise self._wrong("')', 'and' or 'or'")
            self._take()
        else:
            found = Not(self._term())
        self._depth -= 1
        return found

    def _comparison(self) -> Condition:
        if self._next.kind != "word" or any(map(self._is, ("and", "or"))):
            raise self._wrong("a name, 'not' or '('")
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
        value = self._value(kind, name)
        number = _number(value, kind) if self._next.kind == "word" else None
        if kind in ("number", "share") and number is None:
            share = _number(value, "share") if kind == "number" and self._next.kind == "word" else None
            hint = _HINT if share is None else self._no_share(name, share)
            raise self._wrong(f"a number to compare {name} with", hint)
        if kind == "truth" and value not in ("true", "false"):
            raise self._wrong(f"true or false to compare {name} with")
        self._take()
        return Comparison(name, operator, value, number)

    def _value(self, kind: Kind, name: str) -> str:
        """The value as it is compared, without its quotes."""
        value = self._next.text[1:-1] if self._next.kind == "string" else self._next.text
        if kind == "state" and value not in STATES:
            raise UsageError(f"{self._where()}: unknown state {_short(value)}", hint_for(value, STATES, "states"))
        if kind != "time":
            return value
        text = time_text(value)
        if text is None:
            raise self._wrong(f"a date or time to compare {name} with", _TIME_HINT)
        return text

    def _no_share(self, name: str, share: float) -> str:
        """A hint on a number of per cent for what is not known to be a share."""
        hint = "only shares such as test/accuracy are compared in per cent"
        if not name.startswith(("val/", "test/")) or name in METRICS:
            return hint
        load = "--load FILE" if self._option.startswith("--") else "files=[FILE]"
        return f"{hint}; a metric of a task of your own needs {load}, or write {share:g}"

    def _where(self, column: int | None = None) -> str:
        return f"{self._option}, column {column or self._next.column}"

    def _wrong(self, expected: str, hint: str = _HINT) -> UsageError:
        return UsageError(f"{self._where()}: expected {expected}, found {self._next.shown}", hint)


def _number(text: str, kind: Kind) -> float | None:
    """The value as a number, if it is one: of a share, it may be in per cent."""
    digits = text.removesuffix("%") if kind == "share" else text
    if _NUMBER.fullmatch(digits) is None:
        return None
    return float(digits) if digits == text else float(Decimal(digits) / 100)  # 69.9% is 0.699, as 69.9 / 100 is not


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def _settings() -> dict[str, Kind]:
    return _settings_of(tuple(one.settings for one in KINDS.values()))


@cache
def _settings_of(members: tuple[Any, ...]) -> dict[str, Kind]:
    hints: dict[str, Any] = {}
    for section, type_ in SECTIONS.items():
        hints |= {f"{section}.{name}": hint for name, hint in get_type_hints(type_).items()}
    for member in members:
        hints |= {f"model.recurrence.{name}": hint for name, hint in get_type_hints(member).items()}
    return {path: kind(hints.get(path, str)) for path in known_paths()}


def kind(hint: Any) -> Kind:
    """The kind of the values of a field with this annotation."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        hint = get_args(hint)[0]
    return "truth" if hint is bool else "number" if hint in (int, float) else "text"

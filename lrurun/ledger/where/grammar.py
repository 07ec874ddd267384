"""Conditions on runs, as in `task=ListOps and val/accuracy>0.5`. They are parsed here and never evaluated as code.

    condition   ->  alternative ("or" alternative)*
    alternative ->  term ("and" term)*
    term        ->  "not" term | "(" condition ")" | name operator value
    operator    ->  = != < <= > >=

A name with blanks or other signs of the grammar stands in quotes, as in "settings.batch size"=32.

A value is a number, a word, a quoted string, or a list or table in JSON or TOML; of a time, what `times.time_text`
reads; of a share, such as accuracy, also a number of per cent: 30% is 0.3. If a run has no value of a name, every
comparison with it is false, with two exceptions: a run without tags is unequal to every tag, and the profile of the
plain recipe is "". A user is one who requested a ladder of the run.

Lists and tables have no order. They are equal if their parts are: [64, 64] is [64.0, 64], and [1] is not [true].
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, TypeGuard

from msgspec import Struct

from lrurun.config.settings import split_set
from lrurun.errors import UsageError, hint_for, nearest
from lrurun.ledger.times import time_text
from lrurun.ledger.values import STATES, ValueType

MAX_CHARACTERS = 10_000
"""The most characters that a condition may have."""

MAX_DEPTH = 100
"""The most levels of parentheses and nots, and of lists in a list."""

MAX_COMPARISONS = 200
"""The most comparisons in a condition: SQLite's expressions have at most 1000 levels."""

_TOKEN = re.compile(
    r"(?P<blank>\s+)|(?P<string>\"[^\"]*\"|'[^']*')|(?P<operator><=|>=|!=|==|=|<|>)|(?P<paren>[()])"
    r"|(?P<word>[^\s\"'<>=!()]+)"
)
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **{"=": operator.eq, "!=": operator.ne},
    **{"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_HINT = "as in: task=sDigits and (val/accuracy>=0.9 or not state=done)"
_LIST_HINT = """a list is written as in settings.layers=[64, 64] or settings.names=["a", "b"]; a text in quotes"""
_PART_OF_LIST = re.compile(r"""[][{}]|"(?:[^"\\]|\\.)*"|'[^']*'""")
"""A bracket, or a string in which brackets do not count."""
_TIME_HINT = "as in: created_at>2026-11-22 and finished_at<='2026-11-22 14:49:40' (UTC), or seconds since 1970"


class ValueComparison(Struct, frozen=True):
    """A name, an operator and a value."""

    name: str
    operator: str
    text: str
    """The value without its quotes; a time as `times.time_text` returns it."""
    number: float | None
    """The value as a number, if it is one."""
    listed: str | None = None
    """The value in JSON, if it is a list or a table."""


class Not(Struct, frozen=True):
    condition: Condition


class And(Struct, frozen=True):
    conditions: tuple[Condition, ...]


class Or(Struct, frozen=True):
    conditions: tuple[Condition, ...]


Condition = ValueComparison | Not | And | Or


def check_name(name: str, types: Mapping[str, ValueType], where: str) -> None:
    """Check that `name` is known.

    Raises:
        UsageError: with the nearest known name.
    """
    if name in types:
        return
    if not name.isascii():
        raise UsageError(
            f"{where}: {_short(name)}: only names in plain ASCII can be compared or listed",
            "lrurun show RUN has all",
        )
    suggestion = nearest(name, types) or next((path for path in types if path.endswith(f".{name}")), None)
    fields = ", ".join(path for path in types if "/" not in path and "." not in path)
    listing = f"fields: {fields}; results such as val/accuracy; settings such as optim.lr"
    hint = f"did you mean {suggestion!r}? {listing}" if suggestion else listing
    raise UsageError(f"{where}: unknown name {_short(name)}", hint)


def parse(text: str, types: Mapping[str, ValueType], option: str = "--where") -> Condition:
    """The condition in `text`; `types` has the names that it may have, `option` is named in errors.

    Raises:
        UsageError: with the column, what was expected there and what was found.
    """
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"{option}: {len(text)} characters are too long", f"at most {MAX_CHARACTERS}; {_HINT}")
    if text != text.encode("utf-8", "replace").decode():
        raise UsageError(f"{option}: a character that is not valid UTF-8", _HINT)
    condition = _Parser(text, types, option).condition()
    if (count := sum(1 for _ in comparisons(condition))) > MAX_COMPARISONS:
        raise UsageError(f"{option}: {count} comparisons are too many", f"at most {MAX_COMPARISONS}; {_HINT}")
    return condition


def comparable(value: Any) -> str:
    """The value of a setting as a text, the same for two values if no condition distinguishes them.

    Numbers are equal by value, as 64 bits have them: 1 is 1.0, and neither "1" nor true. True is the text "true".
    """
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_comparable_part, value))}]"
    if isinstance(value, Mapping):
        parts = (f"{json.dumps(name)}:{_comparable_part(part)}" for name, part in sorted(value.items()))
        return f"{{{','.join(parts)}}}"
    return value if value in ("true", "false") else _comparable_part(value)


def _comparable_part(value: Any) -> str:
    """A part of a list or table, in which true is no text."""
    if isinstance(value, list | tuple | Mapping):
        return comparable(value)
    return repr(in_floats(value)) if is_number(value) else json.dumps(value, ensure_ascii=False)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def in_floats(number: float) -> float:
    """A number as conditions compare it: an infinity where a whole number is beyond all numbers of 64 bits."""
    try:
        return float(number) + 0.0  # no zero is negative
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def comparisons(condition: Condition) -> Iterator[ValueComparison]:
    """The comparisons in a condition."""
    if isinstance(condition, ValueComparison):
        yield condition
        return
    for part in (condition.condition,) if isinstance(condition, Not) else condition.conditions:
        yield from comparisons(part)


def too_large(condition: Condition, types: Mapping[str, ValueType]) -> list[str]:
    """Sentences on the shares that a condition compares with numbers above 1, which no share exceeds."""
    sentences = []
    for comparison in comparisons(condition):
        name, number = comparison.name, comparison.number
        if types[name] == "share" and number is not None and number > 1 and "%" not in comparison.text:
            share = name.rpartition("/")[2].replace("_", " ")
            sentences.append(
                f"{name}{comparison.operator}{comparison.text}: {share} is a fraction: {number / 100:g}, or {number:g}%"
            )
    return sentences


class _Token(Struct, frozen=True):
    form: str
    text: str
    column: int

    @property
    def shown(self) -> str:
        return "the end" if self.form == "end" else _short(self.text)


class _Parser:
    """Recursive descent over the tokens of one condition."""

    def __init__(self, text: str, types: Mapping[str, ValueType], option: str) -> None:
        self._option = option
        self._types = types
        self._tokens = self._split(text)
        self._position = 0
        self._depth = 0

    def condition(self) -> Condition:
        condition = self._alternatives()
        if self._next.form != "end":
            raise self._unexpected("and, or, or the end")
        return condition

    def _split(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if tokens and tokens[-1].form == "operator" and (text_of_list := _list_at(text, position)):
                tokens.append(_Token("list", text_of_list, position + 1))
                position += len(text_of_list)
                continue
            if match is None:
                character, where = text[position], self._where(position + 1)
                if character in "\"'":
                    raise UsageError(f"{where}: a quote that does not end", f"add another {character}")
                raise UsageError(f"{where}: unexpected {character!r}", _HINT)
            if match.lastgroup != "blank":
                tokens.append(_Token(str(match.lastgroup), match[0], position + 1))
            position = match.end()
        return [*tokens, _Token("end", "", len(text) + 1)]

    @property
    def _next(self) -> _Token:
        return self._tokens[self._position]

    def _take(self) -> _Token:
        self._position += 1
        return self._tokens[self._position - 1]

    def _next_is(self, word: str) -> bool:
        return self._next.form == "word" and self._next.text.lower() == word

    def _alternatives(self) -> Condition:
        parts = [self._alternative()]
        while self._next_is("or"):
            self._take()
            parts.append(self._alternative())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _alternative(self) -> Condition:
        parts = [self._term()]
        while self._next_is("and"):
            self._take()
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _term(self) -> Condition:
        nested = self._next_is("not") or self._next.text == "("
        if not nested:
            return self._comparison()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UsageError(f"{self._where()}: nested more than {MAX_DEPTH} deep", "use fewer parentheses")
        condition: Condition
        if self._take().text == "(":
            condition = self._alternatives()
            if self._next.text != ")":
                raise self._unexpected("')', 'and' or 'or'")
            self._take()
        else:
            condition = Not(self._term())
        self._depth -= 1
        return condition

    def _comparison(self) -> Condition:
        if self._next.form not in ("word", "string") or any(map(self._next_is, ("and", "or"))):
            raise self._unexpected("a name, 'not' or '('")
        where = self._where()
        name = self._take().text
        if name[0] in "\"'":
            name = name[1:-1]
        check_name(name, self._types, where)
        if self._next.form != "operator":
            raise self._unexpected(f"= != < <= > or >= after {name}")
        type_ = self._types[name]
        operator = self._next.text.replace("==", "=")
        if type_ in ("set", "truth") and operator not in ("=", "!="):
            raise self._unexpected(f"= or != after {name}")
        self._take()
        if self._next.form not in ("word", "string", "list") or any(map(self._next_is, ("and", "or", "not"))):
            raise self._unexpected(f"a value to compare {name} with")
        value = self._value(type_, name)
        number = _number(value, type_) if self._next.form == "word" else None
        if type_ in ("number", "share") and number is None:
            share = _number(value, "share") if type_ == "number" and self._next.form == "word" else None
            hint = _HINT if share is None else self._share_hint(name, share)
            raise self._unexpected(f"a number to compare {name} with", hint)
        if type_ == "truth" and value not in ("true", "false"):
            raise self._unexpected(f"true or false to compare {name} with")
        self._take()
        return ValueComparison(name, operator, value, number, in_json(value))

    def _value(self, type_: ValueType, name: str) -> str:
        """The value as it is compared, without its quotes."""
        value = self._next.text[1:-1] if self._next.form == "string" else self._next.text
        if type_ == "state" and value not in STATES:
            raise UsageError(f"{self._where()}: unknown state {_short(value)}", hint_for(value, STATES, "states"))
        if type_ != "time":
            return value
        text = time_text(value)
        if text is None:
            raise self._unexpected(f"a date or time to compare {name} with", _TIME_HINT)
        return text

    def _share_hint(self, name: str, share: float) -> str:
        """The hint for a value in per cent where the name is not known to be a share."""
        hint = "only shares such as test/accuracy are compared in per cent"
        if not name.startswith(("val/", "test/")) or name.endswith("/loss"):
            return hint
        load = "--load FILE" if self._option.startswith("--") else "files=[FILE]"
        return f"{hint}; a metric of a task of your own needs {load}, or write {share:g}"

    def _where(self, column: int | None = None) -> str:
        return f"{self._option}, column {column or self._next.column}"

    def _unexpected(self, expected: str, hint: str = _HINT) -> UsageError:
        before = self._tokens[self._position - 1]  # at the beginning this is the end
        if hint == _HINT and before.form == "word" and before.text[0] in "[{":
            hint = _LIST_HINT
        return UsageError(f"{self._where()}: expected {expected}, found {self._next.shown}", hint)


def _number(text: str, type_: ValueType) -> float | None:
    """The value as a number, if it is one: of a share, it may be in per cent."""
    digits = text.removesuffix("%") if type_ == "share" else text
    if _NUMBER.fullmatch(digits) is None:
        return None
    return float(digits) if digits == text else float(Decimal(digits) / 100)  # 69.9% is 0.699, as 69.9 / 100 is not


def in_json(text: str) -> str | None:
    """The list or table that a text has in JSON or TOML, in JSON; None if it has none."""
    if text[:1] not in ("[", "{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = split_set(f"x={text}", "")[1]
    try:
        return (
            json.dumps(value, allow_nan=False) if isinstance(value, list | dict) and _depth(value) < MAX_DEPTH else None
        )
    except (ValueError, TypeError, RecursionError):  # numbers that are not finite, and times
        return None


def _depth(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def _list_at(text: str, start: int) -> str:
    """The list or table that begins at a place of a text; "" if none does."""
    if text[start] not in "[{":
        return ""
    depth = 0
    for part in _PART_OF_LIST.finditer(text, start):
        depth += (part[0] in "[{") - (part[0] in "]}")
        if not depth:
            found = text[start : part.end()]
            return found if in_json(found) is not None else ""
    return ""


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")

"""Conditions of rungs on tracked runs, in the grammar of `--where` and with its meaning.

A setting is named by its dotted path, with or without `settings.` before it. A name with blanks or signs of the grammar
stands in quotes, as in `"batch size" = 32`. Runs also have the names `id`, `name`, `project` and `tracker`; a setting
of such a name is written with `settings.`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from lrurun.errors import UsageError
from lrurun.ledger.values import ValueType
from lrurun.ledger.where import grammar
from lrurun.ledger.where.grammar import (
    OPERATORS,
    And,
    Condition,
    Not,
    Or,
    ValueComparison,
    comparable,
    comparisons,
    in_floats,
    is_number,
)
from lrurun.trackers import TrackedRun, Value

PREFIX = "settings."
"""What may stand before the path of a setting."""
_OTHER_CONDITIONS = (
    "give the rungs in a file: --ladder FILE, with conditions on another setting, or on the names of runs"
)
PROJECT = "project"
FIELDS = ("id", "name", PROJECT, "tracker")
"""Names that every run has, beside its settings."""


def names_of(settings: Iterable[str]) -> dict[str, ValueType]:
    """Every name that a condition may have, for runs with these settings."""
    paths = list(settings)
    return dict.fromkeys((*FIELDS, *paths, *(f"{PREFIX}{path}" for path in paths)), "text")


def parse(text: str, names: Mapping[str, ValueType], where: str) -> Condition:
    """The condition of a rung. `where` is the rung, for messages.

    Raises:
        UsageError: it cannot be read, or names what no run has.
    """
    return grammar.parse(text, names, where)


def holds(condition: Condition, run: TrackedRun, tracker: str) -> bool:
    """Whether a run meets a condition."""
    match condition:
        case ValueComparison():
            return _compares(condition, value_of(condition.name, run, tracker))
        case Not(negated):
            return not holds(negated, run, tracker)
        case And(parts):
            return all(holds(part, run, tracker) for part in parts)
        case Or(parts):
            return any(holds(part, run, tracker) for part in parts)


def value_of(name: str, run: TrackedRun, tracker: str = "") -> Value:
    """The value of a name of a condition in a run."""
    if name in FIELDS:
        return tracker if name == "tracker" else str(getattr(run, name))
    return run.settings.get(name, run.settings.get(name.removeprefix(PREFIX)))


def _compares(comparison: ValueComparison, value: Value) -> bool:
    """Whether a comparison holds for a value, as `lrurun.ledger.where.sql` has it in SQL."""
    if value is None:
        return False
    if comparison.operator == "!=":
        return not _is_equal(comparison, value)
    if comparison.operator == "=":
        return _is_equal(comparison, value)
    compare = OPERATORS[comparison.operator]
    if is_number(value):
        return comparison.number is not None and bool(compare(in_floats(value), comparison.number))
    text = _text(value)
    return text is not None and bool(compare(text, comparison.text))


def _is_equal(comparison: ValueComparison, value: Value) -> bool:
    if isinstance(value, list):
        return comparison.listed is not None and comparable(value) == comparable(json.loads(comparison.listed))
    if is_number(value):
        return comparison.number is not None and in_floats(value) == comparison.number
    return _text(value) == comparison.text


def _text(value: Value) -> str | None:
    """A text or a truth as it is compared; None for other values."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else None


def equals(name: str, value: Value, others: Iterable[Value] = (), *, is_setting: bool = True) -> str:
    """The condition that a setting, or one of `FIELDS`, has this value, and none of the others that it has in other
    runs: `d = 1` alone also holds for the text "1".

    Raises:
        UsageError: the grammar cannot write the name or the value.
    """
    written = _name(name) if is_setting else name
    if value is None:
        return f"not ({written} = '' or {written} != '')"
    # only a text and what is no text may be written alike
    is_text = isinstance(value, str)
    different = {
        comparable(other): other for other in others if other is not None and isinstance(other, str) != is_text
    }
    different.pop(comparable(value), None)
    texts = [other for other in (value, *different.values()) if isinstance(other, str)]
    plain = f"{written} = {_written(value, name, texts)}"
    [comparison] = comparisons(parse(plain, {_bare(written): "text"}, name))
    excluded = [other for other in different.values() if _is_equal(comparison, other)]
    return " and ".join([plain, *(f"{written} != {_written(other, name, texts)}" for other in excluded)])


def _bare(written: str) -> str:
    """The name in the text of a condition."""
    return written[1:-1] if written[0] in "'\"" else written


def _written(value: Value, name: str, texts: Sequence[str]) -> str:
    """A value as a condition has it: a list in such a way that none of these texts is written alike."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_number(value):
        return repr(value)
    if isinstance(value, list):
        listed = json.dumps(value, ensure_ascii=False)
        while listed in texts:
            listed = f"[ {listed[1:]}"
        return listed
    return _quoted(str(value), f"the value of {name}")


def _name(name: str) -> str:
    """A name as a condition has it."""
    shown = f"{PREFIX}{name}" if name in FIELDS else name
    is_plain = not any(sign in shown for sign in " \t\n\r\"'<>=!()")
    if is_plain and shown.lower() not in ("and", "or", "not"):
        return shown
    return _quoted(shown, "the name of a setting")


def _quoted(text: str, what: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"{what}: {text!r} has half of a character, which no condition can write", _OTHER_CONDITIONS)
    for quote in "'\"":
        if quote not in text:
            return f"{quote}{text}{quote}"
    raise UsageError(
        f"{what}: {text!r} has both kinds of quotes, which no condition can write",
        _OTHER_CONDITIONS,
    )

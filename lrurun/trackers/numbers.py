"""Numbers that trackers write in JSON, or as texts.

Three readers have rules of their own, since there a text may be a setting: a column of a CSV file has numbers or texts
as a whole (`tables.csv`), one of JSON lines too, with the words of JavaScript alone (`tables.json_lines`), and a
parameter of MLflow is a number only if Python would write it so (`mlflow.stores.typed`).
"""

from __future__ import annotations

import math
import re
from typing import Any

_WHOLE = re.compile(r" *-?[0-9]{1,19} *")
_WORD = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)


def number(value: Any) -> float | None:
    """A value as a number, where it is one: also words for NaN and infinities, as which some trackers store them, but
    not true and false. A whole number that no float reaches is infinite."""
    if isinstance(value, bool) or not (isinstance(value, int | float) or _is_word(value)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def results(values: Any) -> list[float] | None:
    """A list of per-item results as numbers; true and false are 1 and 0. None of anything else."""
    if not isinstance(values, list) or not all(isinstance(value, int | float) for value in values):
        return None
    return [float(value) if isinstance(value, bool) else number(value) or 0.0 for value in values]


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


def step(value: Any) -> int | None:
    """A value as the number of a step, where it is one: a whole number of 64 bits."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and value == value // 1 and abs(value) < 2**63:
        return int(value)
    return None


def number_of_text(text: str) -> float | None:
    """The number in a cell of a table; None if it has none. "nan" and "inf" are numbers."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def step_of_text(text: str) -> int | None:
    """The step in a cell of a table, also one that is written as a float; None if it has none."""
    return int(text) if _WHOLE.fullmatch(text) and abs(int(text)) < 2**63 else step(number_of_text(text))

"""Per-item results that a program logs: what a line must have, and whether they belong to the score."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lrurun.config.programs import ProgramTable
from lrurun.errors import LrurunError
from lrurun.items import ItemResults, Numbers, TestSet
from lrurun.programs.module.lrurun import MOST_ITEMS

EXAMPLE = '{"step": 1, "items": "test/accuracy", "values": [1, 0, 1]}'
COLUMNS = ("values", "weights", "groups", "ids")
"""The names of the lists of a line, which have an entry for each test item."""
_NUMBERS, _LABELS = frozenset({int, float, bool}), frozenset({int, str, bool})


class WrongReport(LrurunError):
    """A program reports what cannot be recorded: to start it again does not help."""


def results_of(table: Mapping[str, Any]) -> ItemResults:
    """The results in a line of a program's metrics, whose values need not be finite.

    Raises:
        ValueError: it is not valid; the first argument says what is wrong, the second what to write.
    """
    if other := next((key for key in table if key not in ("step", "items", *COLUMNS)), None):
        raise ValueError(f"has items and {other[:40]!r}", f"write {', '.join(COLUMNS)} alone; scores in another line")
    columns = {label: _column(label, table[label]) for label in COLUMNS if table.get(label) is not None}
    if "values" not in columns:
        raise ValueError("has items without values", f"write a number for each, as in {EXAMPLE}")
    values, count = columns["values"], len(columns["values"])
    for label, column in columns.items():
        if len(column) != count:
            raise ValueError(f"has {len(column):,} {label} for {count:,} values", "write one for each test item")
    weights = columns.get("weights")
    if weights is not None and not (np.isfinite(weights).all() and (weights >= 0).all() and 0 < weights.sum() < np.inf):
        raise ValueError("has weights that are negative, not finite or all 0", "correct them, or leave them out")
    ids = columns.get("ids")
    if ids is not None and len(set(ids)) < count:
        raise ValueError("has the same id twice", "give each test item its own, or leave ids out")
    groups = columns.get("groups")
    if groups is not None and len(set(groups)) < 2:
        raise ValueError(
            "has one group alone, which says nothing of others", "name each item's own, or leave groups out"
        )
    test_set = TestSet(
        count=count,
        order="" if ids is None else hashlib.sha256(json.dumps(ids).encode()).hexdigest(),
        weights=weights,
        groups=None if groups is None else _numbered(groups),
    )
    with np.errstate(invalid="ignore", over="ignore"):
        return ItemResults(test_set=test_set, sums=values if weights is None else values * weights)


def _column(label: str, column: Any) -> Any:
    """A list of a line: numbers as an array, groups and ids as they are."""
    of_numbers = label in ("values", "weights")
    if not isinstance(column, list) or not 0 < len(column) <= MOST_ITEMS:
        actual = f"{len(column):,}" if isinstance(column, list) else "no list"
        raise ValueError(f"has {actual} as {label}", f"write a list of 1 to {MOST_ITEMS:,}, as in {EXAMPLE}")
    if wrong := set(map(type, column)) - (_NUMBERS if of_numbers else _LABELS):
        entry = json.dumps(next(entry for entry in column if type(entry) in wrong))[:40]
        expected = "numbers" if of_numbers else "names or whole numbers"
        raise ValueError(f"has {entry} among {label}, expected {expected}", f"write {expected} alone, as in {EXAMPLE}")
    if not of_numbers:
        return column
    try:
        return np.array(column, np.float64)
    except OverflowError:  # a whole number beyond the largest float
        return np.array([float(x) if abs(x) < 2**1023 else math.inf if x > 0 else -math.inf for x in column])


def _numbered(groups: list[Any]) -> np.ndarray:
    """The groups as numbers from 0 on, in the order in which they appear first."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in groups], np.int64)


def values_of(results: ItemResults) -> Numbers:
    """The value of each item that has a weight."""
    weights = results.test_set.weights
    return results.sums if weights is None else results.sums[weights > 0] / weights[weights > 0]


def check(name: str, results: ItemResults, score: float, program: ProgramTable | None) -> None:
    """Checks whether these can be the items of a score.

    Args:
        score: the score that was logged at their step.
        program: the table of the recipe; None if it is not known.

    Raises:
        WrongReport: they cannot.
    """
    values, count = values_of(results), results.test_set.count
    if not np.isfinite(values).all():
        index = int(np.flatnonzero(~np.isfinite(values))[0])
        raise WrongReport(f"item {index + 1} of {count:,} has {values[index]:g}", "log finite numbers")
    if program is not None and program.is_share and name.rpartition("/")[2] == program.name:
        outside = np.flatnonzero((values < 0) | (values > 1))
        if len(outside):
            index, why = int(outside[0]), "share = true" if program.share else 'unit = "%"'
            raise WrongReport(
                f"item {index + 1} of {count:,} has {values[index]:g}, and those of a share ({why}) are from 0 to 1",
                "log 1 where an item is right; or write share = false into [program], if it is none",
            )
    if program is not None and program.test_items not in (None, count) and name.startswith("test/"):
        raise WrongReport(f"there are {count:,}, and the recipe has test_items = {program.test_items}", "correct one")
    mean, tolerance = results.mean, results.tolerance
    if not abs(mean - score) <= tolerance:
        raise WrongReport(
            f"their mean is {mean:.9g}, and the score {score:.9g}, which may differ by {tolerance:.3g}",
            "log both from the same evaluation, and the score unrounded",
        )

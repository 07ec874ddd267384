"""What a program reports: lines of JSON in a file, which a worker reads while the program runs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lrurun.items import ItemResults
from lrurun.programs import logged_items
from lrurun.programs.logged_items import WrongReport
from lrurun.programs.module.lrurun import METRIC_NAME, NAME_RULE

LONGEST_LINE = 1_000_000
"""The most bytes of a line of metrics."""
LONGEST_ITEMS = 100_000_000
"""The most bytes of a line with per-item results."""
MOST_SCORES = 100
"""The most test scores of a run that have per-item results."""
MOST_NAMES = 1_000
"""The most metrics of a run with different names."""
MOST_VALUES = 1_000_000
"""The most values that an attempt may record."""
_BLOCK = 1 << 20
_COMPARED = 64
_OF_ITEMS = re.compile(rb'\s*\{[^\[\]]{0,400}"(?:%s)"\s*:\s*\[' % "|".join(logged_items.COLUMNS).encode())
"""The beginning of a line with per-item results, whose names may have any order."""
_CHANGED, _APPEND = "has changed since it was logged", "append to the file, as with >> in a shell"


class Row(NamedTuple):
    """The metrics of one step."""

    step: int
    values: dict[str, float]


def divergence(row: Row) -> str | None:
    """The loss that is NaN or infinite, by which a run has diverged; None if none is."""
    losses = (name for name in row.values if name.rpartition("/")[2] == "loss")
    return next((name for name in losses if not math.isfinite(row.values[name])), None)


class Reports:
    """Reads the file of one attempt, and checks every line. A last line that is unfinished waits for its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = self._line = 0
        self._end = b""
        """The last bytes that were read, which stay as they are in a file that is appended to."""
        self._rest = b""
        self._step = 0
        self.is_behind = False
        """Whether there was more to read at the last call."""
        self.interrupted = False
        """Whether the program has said that SIGTERM has reached it, and that it looks at such requests."""
        self._names: set[str] = set()
        self._values = 0
        self.first_step: int | None = None
        """The step of the first row."""
        self.lines_of_items = 0
        """How many lines with per-item results were read."""
        self._items: dict[str, dict[int, tuple[int, int, int]]] = {}
        """Test score -> step -> the number of the line with the results of its items, its offset in the file, its
        length."""

    def rows(self, *, last: bool = False) -> Iterator[Row]:
        """The rows of the lines that were finished since the last call, of a block at most: a program may report faster
        than they are recorded. `last` includes an unfinished one.

        Raises:
            WrongReport: the file was overwritten; a line is none, too long, or reports too much, with its number.
        """
        start = self._at - len(self._rest)
        with self.path.open("rb") as file:
            file.seek(self._at - len(self._end))
            if file.read(len(self._end)) != self._end:
                raise WrongReport("the program has overwritten its metrics", _APPEND)
            block = file.read(_BLOCK)
        self._at += len(block)
        self._end = (self._end + block)[-_COMPARED:]
        self.is_behind = len(block) == _BLOCK
        *lines, self._rest = (self._rest + block).split(b"\n")
        if last and not self.is_behind:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._line += 1
            if line.strip() and (row := self._row(line, start)):
                self.first_step = row.step if self.first_step is None else self.first_step
                yield row
            start += len(line) + 1
        if len(self._rest) > LONGEST_LINE:
            self._check_length(self._rest, self._line + 1)

    def read(self) -> None:
        """Reads all lines that are finished, for the offsets of per-item results. Raises WrongReport as `rows` does."""
        self.is_behind = True
        while self.is_behind:
            for _ in self.rows():
                pass

    def _check_length(self, line: bytes, number: int) -> None:
        limit = LONGEST_ITEMS if _OF_ITEMS.match(line) else LONGEST_LINE
        if len(line) > limit:
            self._line = number
            hint = "log fewer items" if limit == LONGEST_ITEMS else "log fewer metrics at a step"
            raise self._wrong(f"is longer than {limit:,} bytes", hint)

    def steps_of_items(self, name: str) -> list[int]:
        """The steps at which per-item results were logged for a test score."""
        return list(self._items.get(name, ()))

    @property
    def scores_with_items(self) -> list[str]:
        """The test scores for which per-item results were logged."""
        return list(self._items)

    def items(self, name: str, step: int) -> ItemResults | None:
        """The per-item results that were logged last for a score and step; None if there are none.

        They are read and checked when they are needed: most steps are not, and a training goes on without them.

        Raises:
            WrongReport: the line is not valid, or no longer there.
        """
        if (where := self._items.get(name, {}).get(step)) is None:
            return None
        number, start, length = where
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                table = json.loads(file.read(length))
        except (OSError, ValueError, RecursionError) as error:
            reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else _CHANGED
            raise WrongReport(f"line {number} of the program's metrics {reason}", _APPEND) from None
        if not isinstance(table, dict) or (table.get("items"), _step(table.get("step"))) != (name, step):
            raise WrongReport(f"line {number} of the program's metrics {_CHANGED}", _APPEND)
        try:
            return logged_items.results_of(table)
        except ValueError as error:
            what, hint = error.args
            raise WrongReport(f"line {number} of the program's metrics {what}", hint) from None

    def _row(self, line: bytes, start: int) -> Row | None:
        self._check_length(line, self._line)
        try:
            table = json.loads(line)
        except (ValueError, RecursionError):
            raise self._wrong(
                "is not JSON", 'write one object a line, as in {"step": 1, "val/accuracy": 0.9}'
            ) from None
        if not isinstance(table, dict):
            raise self._wrong("is not a JSON object", 'write one, as in {"step": 1, "val/accuracy": 0.9}')
        if table == {"interrupted": True}:
            self.interrupted = True
            return None
        step = _step(table.pop("step", None))
        if step is None:
            raise self._wrong(
                "has no valid step", 'write a whole number from 0 on, as in {"step": 1, "val/accuracy": 0.9}'
            )
        if isinstance(table.get("items"), str):
            self._add_items(table["items"], step, start, len(line))
            return None
        if step < self._step:
            raise self._wrong(f"has step {step}, after step {self._step}", "log steps in their order")
        self._step = step
        values = {}
        for name, value in table.items():
            self._check_name(name)
            if value is not None:  # not measured: as if the line did not name it
                values[name] = self._value(name, value)
        self._names |= values.keys()
        self._values += max(1, len(values))
        if len(self._names) > MOST_NAMES:
            raise self._wrong(
                f"names more than {MOST_NAMES:,} different metrics", "give metrics the same names at every step"
            )
        if self._values > MOST_VALUES:
            hint = "log less often, for example at every tenth step"
            raise WrongReport(f"the program has reported more than {MOST_VALUES:,} values", hint)
        return Row(step, values)

    def _add_items(self, name: str, step: int, start: int, length: int) -> None:
        """Keeps the offset of a line with per-item results. Its step may be an earlier one."""
        self._check_name(name)
        self.lines_of_items += 1
        self._items.setdefault(name, {})[step] = self._line, start, length
        if len(self._items) > MOST_SCORES:
            raise self._wrong(f"has the items of more than {MOST_SCORES} scores", "log those that are compared")

    def _check_name(self, name: str) -> None:
        if not METRIC_NAME.fullmatch(name):
            raise self._wrong(f"has a metric with the name {name[:40]!r}", NAME_RULE)
        if name.startswith("machine/"):
            raise self._wrong(f"has the metric {name[:40]!r}", "choose another name: lrurun records machine/...")

    def _value(self, name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            text = json.dumps(value)
            shown = text if len(text) <= 40 else f"{text[:37]}..."
            raise self._wrong(f"has {name} = {shown}, expected a number", "log numbers only")
        try:
            return float(value)
        except OverflowError:  # a whole number beyond the largest float
            return math.inf if value > 0 else -math.inf

    def _wrong(self, what: str, hint: str) -> WrongReport:
        return WrongReport(f"line {self._line} of the program's metrics {what}", hint)


def mentions_items(path: Path) -> bool:
    """Whether a file of metrics may have lines with per-item results, which is quicker than to read its lines."""
    end = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            if _NAME in end + block:
                return True
            end = block[-len(_NAME) :]
    return False


_NAME = b'"items"'


def _step(value: Any) -> int | None:
    """The step; None if it is no whole number that a ledger can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**31 or value != int(value):
        return None
    return int(value)

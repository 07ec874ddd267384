"""What a program prints: numbers in its log, which a worker reads with the patterns of the recipe."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path

from lrurun.config.programs import STEP
from lrurun.programs.reports import MOST_VALUES, Row, WrongReport

LONGEST_LINE = 10_000
"""How many bytes of a line are searched, from its beginning."""
MATCH_SECONDS = 2.0
"""How long the search for one pattern in one line may compute."""
_BLOCK = 1 << 20
_END = re.compile(rb"[\r\n]")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Colours, and movements of the cursor."""


class Printed:
    """Reads the log of one attempt. A progress bar, which returns to the beginning of its line, has many lines.

    A last line that is unfinished waits for its end.
    """

    def __init__(self, path: Path, patterns: Mapping[str, str], begin: str) -> None:
        """
        Args:
            patterns: metric, or "step" -> regular expression with one group.
            begin: what the line begins with after which the program prints.
        """
        self.path = path
        self.is_behind = False
        """Whether there was more to read at the last call."""
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        self._begin: str | None = begin
        self._at = self._line = self._values = 0
        self._rest = b""
        self._step = 0 if STEP in patterns else 1
        self._seen: set[str] = set()
        """The metrics that were read at this step, where lines do not say the step."""

    def rows(self, *, last: bool = False) -> Iterator[Row]:
        """The numbers of the lines that were finished since the last call, of a block at most. `last` includes an
        unfinished one.

        Raises:
            WrongReport: what a pattern finds is no number, or the step is wrong; a search takes too long.
        """
        with self.path.open("rb") as file:
            file.seek(self._at)
            block = file.read(_BLOCK)
        self._at += len(block)
        self.is_behind = len(block) == _BLOCK
        *lines, self._rest = _END.split(self._rest + block)
        if last and not self.is_behind:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            yield from self._read(line)
        self._rest = self._rest[:LONGEST_LINE]

    def _read(self, line: bytes) -> Iterator[Row]:
        text = _CONTROL.sub("", line[:LONGEST_LINE].decode("utf-8", "replace"))
        if self._begin is not None:  # lrurun itself has printed this
            self._begin = None if text.startswith(self._begin) else self._begin
            return
        self._line += 1
        numbers = {name: number for name in self._patterns if (number := self._search(name, text)) is not None}
        if (step := numbers.pop(STEP, None)) is not None:
            if not (self._step <= step < 2**31 and step == int(step)):
                problem = f"has step {step:g}, after step {self._step}"
                raise self._wrong(problem, "steps are whole numbers that do not decrease: correct read.step")
            self._step = int(step)
        if not numbers:
            return
        if STEP not in self._patterns:
            if self._seen & numbers.keys() and any(name.startswith(("val", "test")) for name in self._seen):
                self._step += 1
                self._seen.clear()
            self._seen |= numbers.keys()
        self._values += len(numbers)
        if self._values > MOST_VALUES:
            hint = "print less often, or write patterns for fewer metrics"
            raise WrongReport(f"the program has printed more than {MOST_VALUES:,} values", hint)
        yield Row(self._step, numbers)

    def _search(self, name: str, text: str) -> float | None:
        try:
            with _limited(MATCH_SECONDS):
                match = self._patterns[name].search(text)
        except TimeoutError:
            what = f"takes the pattern of {name} more than {MATCH_SECONDS:g} s"
            raise self._wrong(what, f"write a simpler one as read.{name}, without repetitions in repetitions") from None
        if match is None or match.group(1) is None:
            return None
        number = number_of(match.group(1))
        if number is None:
            matched = match.group(1)
            shown = repr(matched if len(matched) <= 40 else f"{matched[:37]}...")
            hint = f"correct read.{name}: its group must match numbers alone, as ([-+.0-9e]+) does"
            raise self._wrong(f"has {name} = {shown}, expected a number", hint)
        return number

    def _wrong(self, what: str, hint: str) -> WrongReport:
        return WrongReport(f"line {self._line} that the program has printed {what}", hint)


def number_of(text: str) -> float | None:
    """The number that is written so, without the end of a sentence: "93.1%" is 0.931. None if it is none."""
    text = text.strip().rstrip(".,;:)")
    number, percent, rest = text.partition("%")
    if rest or "_" in number:
        return None
    try:
        return float(Decimal(number.strip()).scaleb(-2)) if percent else float(number)
    except (ValueError, ArithmeticError):
        return None


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raises TimeoutError when this process has computed for so long: a search looks for signals now and then."""

    def expire(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, expire)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)

"""Durations as people and Slurm write them."""

from __future__ import annotations

import re

from lrurun.errors import UsageError

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_WRITTEN = re.compile("".join(rf"(?:(\d+){unit})?" for unit in _UNITS), re.ASCII)
_LONGEST = 366 * 86400


def seconds_of(text: str) -> float:
    """Seconds of a duration: `90`, `45m`, `1h30m`; or as Slurm writes them: `30:00`, `12:00:00`, `2-12:00:00`, `2-12`.

    Raises:
        UsageError: it is no duration, is zero, or is longer than a year.
    """
    seconds = None
    if text.isascii() and text.isdigit():
        seconds = int(text[:18])
    elif text and (written := _WRITTEN.fullmatch(text)):
        seconds = sum(
            int((found or "0")[:18]) * unit for found, unit in zip(written.groups(), _UNITS.values(), strict=True)
        )
    elif clocked := _CLOCK.fullmatch(text):
        days, *rest = ((found or "0")[:18] for found in clocked.groups())
        fields = [int(found) for found in rest]
        if clocked[1] is None and clocked[4] is None:
            fields = [0, *fields[:2]]  # minutes and seconds; after days the first is hours, however many follow
        hours, minutes, rest_seconds = fields
        seconds = int(days) * 86400 + hours * 3600 + minutes * 60 + rest_seconds
    if seconds is None or not 0 < seconds <= _LONGEST:
        if seconds is None:
            problem = _problem(text)
        else:
            problem = "no time at all, expected at least one second" if not seconds else "longer than a year (366 days)"
        raise UsageError(
            f"--time-limit {text[:100]}: {problem}", "in seconds, or as 45m, 1h30m, 2d, 12:00:00 or 2-12:00:00"
        )
    return float(seconds)


def _problem(text: str) -> str:
    """What is wrong with a text that is no duration."""
    shown = text[:40]
    letters = re.findall(r"\d+([^\d\s:.,-]+)", text, re.ASCII)
    units = " ".join(_UNITS)
    if not text.strip():
        return "expected a duration, found nothing"
    if text.startswith("-"):
        return "a duration cannot be negative"
    if not re.search(r"\d", text, re.ASCII):
        return f"expected a duration, found no number in {shown!r}"
    if re.search(r"\s", text):
        return "expected no spaces in a duration"
    if re.search(r"\d[.,]\d", text):
        return "expected whole numbers: a smaller unit says the rest, as in 1h30m"
    if unknown := [one for one in letters if one not in _UNITS]:
        return f"unknown unit {unknown[0][:20]!r}, the units are {units}"
    if letters and re.search(r"\d$", text):
        return f"{re.split('[a-z]', text)[-1][:20]} has no unit, the units are {units}"
    if letters != [unit for unit in _UNITS if unit in letters]:
        return f"expected each unit once, in the order {units}"
    if ":" in text or "-" in text:
        return "expected at most days-hours:minutes:seconds"
    return f"expected a duration, found {shown!r}"

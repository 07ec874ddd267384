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
        expected = "a duration" if seconds is None else "more than nothing and at most a year"
        raise UsageError(
            f"--time-limit {text[:100]}: expected {expected}",
            "in seconds, or as 45m, 1h30m, 2d, 12:00:00 or 2-12:00:00",
        )
    return float(seconds)

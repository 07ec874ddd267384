"""Times as a ledger prints, reads and compares them: texts in UTC, which sort as the times do."""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, datetime

_TIME = re.compile(
    r"\d{4}(-\d\d(-\d\d(?P<clock>[T ]\d\d:\d\d(?P<second>:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?)?)?)?", re.ASCII
)
# Shorter numbers are rather years, clock times or dates without hyphens.
_EPOCH = re.compile(r"-?\d{9,12}(\.\d+)?", re.ASCII)

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

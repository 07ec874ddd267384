"""Text and JSON files in the folders of runs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lrurun.errors import LrurunError, UsageError

REPAIR = "if its run still writes it, import again later; else write it whole, or move the folder of the run away"


def half_written(path: Path) -> str:
    """The sentence on a file whose last line was still being written, or was cut off by a kill."""
    return f"{path}: the last line is half written and left out"


def text(path: Path) -> str:
    """The text of a file, without a mark of its byte order.

    Raises:
        UsageError: it is not UTF-8.
        LrurunError: it cannot be read.
    """
    try:
        with reading(path):
            return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})", REPAIR) from None


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns errors of reading a file or folder into LrurunError."""
    try:
        yield
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path | str, error: Exception) -> LrurunError:
    """The error of a file or folder that cannot be read."""
    reason = getattr(error, "strerror", None) or str(error)
    return LrurunError(f"{path}: cannot be read: {reason}", "check its permissions, and those of its folder")


def json_table(path: Path) -> dict[str, Any]:
    """The table of a JSON file, in which NaN and infinities may be bare words.

    Raises:
        UsageError: it is not UTF-8, not JSON, or no table.
        LrurunError: it cannot be read.
    """
    return _table(json_value(path), path)


def json_value(path: Path) -> Any:
    """The value of a JSON file, in which NaN and infinities may be bare words.

    Raises:
        UsageError: it is not UTF-8, or not JSON.
        LrurunError: it cannot be read.
    """
    content = text(path)
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise UsageError(f"{path}: not valid JSON: {error.msg} at {where}", REPAIR) from None
    except (RecursionError, ValueError):
        # values nested too deeply, or with more digits than Python reads
        raise UsageError(f"{path}: not JSON that can be read: nested too deeply, or a number is too long") from None


def _table(value: Any, path: Path) -> dict[str, Any]:
    """The value of a file as a table. Raises UsageError if it is none."""
    if not isinstance(value, dict):
        raise UsageError(f"{path}: expected a table, found {type(value).__name__}", "name another file or folder")
    return {str(key): inner for key, inner in value.items()}

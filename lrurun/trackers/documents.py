"""Text and JSON files in the folders of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lrurun.errors import LrurunError, UsageError

REPAIR = "if its run still writes it, import again later; else write it whole, or move the folder of the run away"


def text(path: Path) -> str:
    """The text of a file, without a mark of its byte order.

    Raises:
        UsageError: it is not UTF-8.
        LrurunError: it cannot be read.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})", REPAIR) from None
    except OSError as error:
        raise LrurunError(f"{path}: {error.strerror}", "check the path and its permissions") from None


def json_table(path: Path) -> dict[str, Any]:
    """The table of a JSON file, in which NaN and infinities may be bare words.

    Raises:
        UsageError: it is not UTF-8, not JSON, or no table.
        LrurunError: it cannot be read.
    """
    content = text(path)
    try:
        table = json.loads(content)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise UsageError(f"{path}: not valid JSON: {error.msg} at {where}", REPAIR) from None
    except (RecursionError, ValueError):
        # values nested too deeply, or with more digits than Python reads
        raise UsageError(f"{path}: not JSON that can be read: nested too deeply, or a number is too long") from None
    return _table(table, path)


def _table(value: Any, path: Path) -> dict[str, Any]:
    """The value of a file as a table. Raises UsageError if it is none."""
    if not isinstance(value, dict):
        raise UsageError(f"{path}: expected a table, found {type(value).__name__}", "name another file or folder")
    return {str(key): inner for key, inner in value.items()}

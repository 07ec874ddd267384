"""The commands that look closer: query."""

from __future__ import annotations

import json as jsonlib
import math
from typing import Any

from lrurun import console
from lrurun.paths import Places
from lrurun.report import sheet


def query(places: Places, sql: str, *, json: bool) -> int:
    """Prints what SQL that only reads has found."""
    from lrurun.ledger.query import select

    columns, rows, note = select(places.ledger, sql)
    if note:
        console.warn(note)
    if json:
        plain = [[cell.hex() if isinstance(cell, bytes) else cell for cell in row] for row in rows]
        infinite = any(isinstance(cell, float) and math.isinf(cell) for row in rows for cell in row)
        console.write(_json({"columns": columns, "rows": plain} | ({"finite": False} if infinite else {})))
        return 0
    console.table(None, [console.clean(column) for column in columns], [[_cell(cell) for cell in row] for row in rows])
    if not rows:
        console.say("no rows")
    return 0


def _cell(value: Any) -> str:
    return "" if value is None else value.hex() if isinstance(value, bytes) else str(value)


def _json(table: dict[str, Any]) -> str:
    return jsonlib.dumps(sheet.finite({"schema_version": 1, **table}), indent=2, allow_nan=False)

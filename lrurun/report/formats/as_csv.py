"""CSV: one line for each row, with the numbers of the JSON object. It has no claims and notes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from lrurun.console import clean
from lrurun.data.metric import SLOT
from lrurun.report.formats.as_json import finite, plain
from lrurun.report.tables.content import COMPARED


def render(report: Struct, columns: Sequence[str]) -> str:
    """`columns` are fields of the report, of its rows and, where rows have cells, of these.

    `published_x` is the field x of the values published for a row.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for line in lines(report, columns):
        writer.writerow([cell(line.get(column) if "@" in column else line[column]) for column in columns])
    return text.getvalue().rstrip("\n")


def lines(report: Struct, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The values of each line, by their columns and others."""
    for line in _lines(finite(plain(report))):
        line |= line["by"] if isinstance(line.get("by"), dict) else {}
        line |= _chosen(line)
        line |= _comparison(line.get("comparison"))
        line["runs"] = " ".join(line["runs"])
        line["scores"] = " ".join(map(str, line.get("scores", ())))
        line["code_versions"] = "; ".join(line["code_versions"])
        line["numerics"] = "; ".join(map(str, line["numerics"]))
        for column in columns:
            if column.startswith("published_"):
                values = [published[column.removeprefix("published_")] for published in line["published"]]
                texts = ["" if value is None else str(value) for value in values]
                line[column] = values[0] if len(values) == 1 else "; ".join(texts)
            if column.startswith("rate_source_"):
                line[column] = (line["rate_source"] or {}).get(column.removeprefix("rate_source_"))
        for score in line.get("further_tests", ()):
            line |= {f"{field}@{score['test']}": score[field] for field in ("mean", "stderr", "n")}
        for score in line.get("slots", ()):
            line |= {f"{field}@{SLOT}{score['slot']}": score[field] for field in ("mean", "stderr", "n")}
        yield line


def _chosen(line: dict[str, Any]) -> dict[str, Any]:
    """The columns of the values that were chosen for a rung; empty cells without a choice."""
    if "choice" not in line:
        return {}
    values = {choice["rung"]: choice["values"] for choice in line["choice"]}.get(line["rung"], {})
    return {path: values.get(path) for path in line["by"]}


def _comparison(comparison: dict[str, Any] | None) -> dict[str, Any]:
    """The columns of a comparison with the base, and of its two sides; empty cells without one."""
    columns = {name: None if comparison is None else comparison[name] for name in COMPARED}
    sides = comparison["sides"] if comparison else ({}, {})
    for prefix, side in zip(("compared", "base"), sides, strict=False):
        columns |= {f"{prefix}_{name}": side.get(name) for name in ("n", "mean", "stderr")}
    return columns


def _lines(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for row in report["rows"]:
        for part in row.get("cells", [{}]):
            yield report | row | part


def cell(value: Any) -> str | int | float:
    """A value as a cell of CSV."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    text = clean(value)
    # A spreadsheet would evaluate it as a formula.
    return f"'{text}" if text.lstrip()[:1] in ("=", "+", "-", "@") else text

"""The text of cells that several reports share."""

from __future__ import annotations

from lrurun.config import documents
from lrurun.report.content import NOTHING, mixed_versions
from lrurun.report.ladder_table import LadderRow


def score(row: LadderRow) -> str:
    if row.mean is None:
        return f"{NOTHING} (n=0)"
    error = "" if row.stderr is None else f" ± {row.stderr * 100:.2f}"
    return f"{row.mean * 100:.2f}{error} (n={row.n})"


def remarks(row: LadderRow) -> list[str]:
    """What qualifies a score."""
    counts = ((row.diverged, "diverged"), (row.failed, "failed"), (row.unfinished, "unfinished"))
    return [f"{count} {state}" for count, state in counts if count] + mixed_versions(row)


def in_grid(row: LadderRow) -> str:
    """The text of a cell of a table that has a rung in every cell."""
    values = [f"({published(row)})"] if row.published else []
    return "\n".join([score(row), *remarks(row), *values])


def published(row: LadderRow) -> str:
    return " / ".join(_published_score(one) for one in row.published) or NOTHING


def _published_score(one: documents.Published) -> str:
    if one.value is None:
        return "chance"
    error = "" if one.stderr is None else f" ± {_percent(one.stderr)}"
    return _percent(one.value) + error


def _percent(value: float) -> str:
    """In per cent, with one or two decimals, as published."""
    text = f"{value * 100:.2f}"
    return text[:-1] if text.endswith("0") else text

"""A report as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lrurun.console import clean
from lrurun.report.tables.content import ReportContent, sentence
from lrurun.table import Column


def render(content: ReportContent) -> str:
    lines = [f"### {escape(content.title)}", ""]
    if content.question:
        lines += [escape(content.question), ""]
    if conclusions := content.conclusions():
        lines += [*(f"- {escape(conclusion)}" for conclusion in conclusions), ""]
    for table in (*content.above[:1], content.table):
        lines.append(row(_lines(column.name) for column in table.columns))
        lines.append(row("---:" if column.right else "---" for column in table.columns))
        lines += [row(_cell(column, item) for column in table.columns) for item in table.rows]
        lines.append("")
    lines += [f"- {escape(note)}" for note in content.notes(content.table.columns)]
    if content.claims:
        lines += ["", "**Claims**", ""]
        for claim in content.claims:
            text = f"{sentence(claim.text)} ({claim.source}) {sentence(claim.detail)}"
            lines.append(f"- **{claim.shown}**{claim.mark}: {escape(text)}")
    return "\n".join(lines)


def _cell(column: Column, item: Any) -> str:
    first, *rest = column.cell(item).split("\n")
    marked = f"**{escape(first)}**" if column.is_marked(item) else escape(first)
    return "<br>".join([marked, *map(escape, rest)])


def _lines(text: str) -> str:
    return "<br>".join(escape(line) for line in text.split("\n"))


def row(cells: Iterable[str]) -> str:
    """A line of a table, of cells that are Markdown."""
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """Text as Markdown that shows that text: no pipe ends a cell, no tag, link or emphasis begins."""
    text = clean(text).replace("&", "&amp;")
    # Brackets alone are harmless, and the intervals are full of them: only a link's joint is broken.
    text = re.sub(r"([\\`*|])", r"\\\1", text).replace("](", "]\\(").replace("][", "]\\[")
    # An underscore between letters, as in r_max, begins no emphasis.
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)
    return text.replace("<", "&lt;").replace(">", "&gt;")

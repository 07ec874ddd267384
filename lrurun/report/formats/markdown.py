"""A report as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lrurun.console import clean
from lrurun.report.content import Column, ReportContent, sentence


def render(content: ReportContent) -> str:
    lines = [f"### {_escape(content.title)}", ""]
    if content.question:
        lines += [_escape(content.question), ""]
    if content.conclusions:
        lines += [*(f"- {_escape(one)}" for one in content.conclusions), ""]
    for table in (*content.above[:1], content.table):
        lines.append(_row(_lines(column.name) for column in table.columns))
        lines.append(_row("---:" if column.right else "---" for column in table.columns))
        lines += [_row(_cell(column, row) for column in table.columns) for row in table.rows]
        lines.append("")
    lines += [f"- {_escape(one)}" for one in content.notes(content.table.columns)]
    if content.claims:
        lines += ["", "**Claims**", ""]
        for claim in content.claims:
            text = f"{sentence(claim.text)} ({claim.source}) {sentence(claim.detail)}"
            lines.append(f"- **{claim.shown}**{claim.mark}: {_escape(text)}")
    return "\n".join(lines)


def _cell(column: Column, row: Any) -> str:
    first, *others = column.cell(row).split("\n")
    marked = f"**{_escape(first)}**" if column.is_marked(row) else _escape(first)
    return "<br>".join([marked, *map(_escape, others)])


def _lines(text: str) -> str:
    return "<br>".join(_escape(line) for line in text.split("\n"))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """Text as Markdown that shows that text: no pipe ends a cell, no tag, link or emphasis begins."""
    text = clean(text).replace("&", "&amp;")
    # Brackets alone are harmless, and the intervals are full of them: only a link's joint is broken.
    text = re.sub(r"([\\`*|])", r"\\\1", text).replace("](", "]\\(").replace("][", "]\\[")
    # An underscore between letters, as in r_max, begins no emphasis.
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)
    return text.replace("<", "&lt;").replace(">", "&gt;")

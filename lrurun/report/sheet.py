"""What a report prints: a table for terminals, documents and data, with the same numbers in each format."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct

from lrurun.console import PIPE_WIDTH, clean
from lrurun.report import claims

if TYPE_CHECKING:
    from rich.table import Table

    from lrurun.report.detail import Detail

Format = Literal["table", "md", "csv", "json", "latex", "html"]
FORMATS: tuple[str, ...] = get_args(Format)

SCHEMA_VERSION = 1
NOTHING = "–"
_GAP = 2
"""Blanks between the columns of a table."""


class Column(Struct, frozen=True, kw_only=True):
    """A column of a table."""

    name: str
    cell: Callable[[Any], str]
    """The text of a row's cell; a newline begins another line of it."""
    right: bool = True
    link: Callable[[Any], str | None] | None = None
    """The group of runs that a row's cell is made from."""
    marked: Callable[[Any], bool] | None = None
    """Whether a row's cell is the best of the table."""

    def is_marked(self, row: Any) -> bool:
        return self.marked is not None and self.marked(row)


class Group(Struct, frozen=True, kw_only=True):
    """The runs behind some numbers."""

    anchor: str
    title: str
    runs: tuple[str, ...]
    """Ids of those that are counted."""
    others: tuple[str, ...] = ()
    on: str | None = None
    """The group that it is compared with."""
    same_as: str | None = None
    """The group whose runs these are."""


RUNG = Column(name="rung", cell=lambda row: clean(row.rung), right=False)
TITLE = Column(name="title", cell=lambda row: clean(row.title), right=False)


def anchor(rung: str) -> str:
    """Of the runs of a rung."""
    return f"runs/{rung}"


def runs_of(row: Any) -> str:
    """The link of a cell that is made from the runs of its row's rung."""
    return anchor(row.rung)


PARAMETERS = Column(
    name="parameters", cell=lambda row: NOTHING if row.parameters is None else f"{row.parameters:,}", link=runs_of
)


class Block(Struct, frozen=True, kw_only=True):
    """A table."""

    columns: tuple[Column, ...]
    rows: tuple[Any, ...]


class Sheet(Struct, frozen=True, kw_only=True):
    """A report, ready to be printed. Its rows are of any kind that its columns know."""

    title: str
    question: str = ""
    above: tuple[Block, ...] = ()
    """Another table before the main one, in forms of less and less width: a terminal has the first that fits, if any,
    LaTeX the last."""
    rows: tuple[Any, ...]
    layouts: tuple[tuple[Column, ...], ...]
    """For terminals, from everything to the least, the column that is missed least going first."""
    stacked: Callable[[Any], list[str]]
    """A row as lines, its name first, for a terminal too narrow for any layout."""
    markdown: tuple[Column, ...]
    latex: tuple[Column, ...]
    """Of less width than Markdown's."""
    foot: tuple[str, ...]
    groups: tuple[Group, ...]
    claims: tuple[claims.Verdict, ...] = ()
    document: dict[str, Any]
    """The JSON object, of finite numbers; "rows" are those of the table."""
    csv: tuple[str, ...]
    """Columns: fields of the document and of its rows; published_x is x of what a row has published."""
    lines: tuple[dict[str, Any], ...] | None = None
    """What CSV has lines of, where these are not the document's rows."""
    curves: bool = False
    """Whether the page shows how validation went."""


def render(
    sheet: Sheet,
    format: Format,
    *,
    width: int = PIPE_WIDTH,
    color: bool = False,
    details: Mapping[str, Detail] | None = None,
) -> str:
    """`sheet` in a format.

    `width` and `color` are for the table alone; it leaves columns out rather than cut one. `details` of the runs are
    for the page.
    """
    if format == "table":
        return _table(sheet, width=width, color=color)
    if format == "md":
        return _markdown(sheet)
    if format == "csv":
        return _csv(sheet)
    if format == "latex":
        from lrurun.report import latex

        return latex.render(sheet)
    if format == "html":
        from lrurun.report import webpage

        return webpage.render(sheet, details or {})
    return json.dumps(sheet.document, indent=2, allow_nan=False)


def three_digits(value: float) -> str:
    """At least three significant digits, and no exponent for what a machine does in a second."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.{2 if value < 10 else 1}f}" if value >= 0.1 else f"{value:.3g}"


def heading(task: str, profile: str | None, title: str) -> str:
    """The first line of a report."""
    return f"{task}{f', profile {profile}' if profile else ''}: {title}"


def scale(profile: str | None) -> str:
    """What must be said of published numbers beside runs of a profile."""
    return f" They are of the full task; profile {profile} is smaller." if profile else ""


def last_words(rows: Sequence[Any], notes: Sequence[str]) -> list[str]:
    """The end of every foot: the code versions of the rows, and notes."""
    versions = sorted({version for row in rows for version in row.code_versions})
    said = [f"These runs come from more than one code version: {', '.join(versions)}."] if len(versions) > 1 else []
    return said + [f"Note: {note}" for note in notes]


# Data: JSON and CSV


def _unfinite(value: Any) -> bool:
    """Whether a number, or a list of lists of them, holds one that JSON has no word for."""
    if isinstance(value, list | tuple):
        return any(_unfinite(item) for item in value)
    return isinstance(value, float) and not math.isfinite(value)


def finite(value: Any) -> Any:
    """NaN and infinities as null, beside "finite": false in the object that held them."""
    if isinstance(value, dict):
        table = {key: finite(item) for key, item in value.items()}
        if any(_unfinite(item) for item in value.values()):
            table["finite"] = False
        return table
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _csv(sheet: Sheet) -> str:
    """One line a row, with the numbers of JSON; claims and notes are not rows and are left to the other formats."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(sheet.csv)
    for row in sheet.document["rows"] if sheet.lines is None else sheet.lines:
        line = sheet.document | row
        for column in sheet.csv:
            if column.startswith("published_"):
                known = [one[column.removeprefix("published_")] for one in row["published"]]
                line[column] = known[0] if len(known) == 1 else "; ".join(_plain(one) for one in known)
        line["runs"] = " ".join(row["runs"])
        line["code_versions"] = "; ".join(row["code_versions"])
        writer.writerow([csv_cell(line[column]) for column in sheet.csv])
    return text.getvalue().rstrip("\n")


def _plain(value: float | str | None) -> str:
    return "" if value is None else str(value)


def csv_cell(value: Any) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    text = clean(value)
    # A spreadsheet would run it as a formula.
    return f"'{text}" if text.lstrip()[:1] in ("=", "+", "-", "@") else text


# Markdown


def _markdown(sheet: Sheet) -> str:
    lines = [f"### {_escape(sheet.title)}", ""]
    if sheet.question:
        lines += [_escape(sheet.question), ""]
    for block in (*sheet.above[:1], Block(columns=sheet.markdown, rows=sheet.rows)):
        lines.append(_markdown_row(_markdown_lines(column.name) for column in block.columns))
        lines.append(_markdown_row("---:" if column.right else "---" for column in block.columns))
        lines += [_markdown_row(_markdown_cell(column, row) for column in block.columns) for row in block.rows]
        lines.append("")
    lines += [f"- {_escape(one)}" for one in sheet.foot]
    if sheet.claims:
        lines += ["", "**Claims**", ""]
        for claim in sheet.claims:
            said = f"{sentence(claim.text)} ({claim.source}) {sentence(claim.detail)}"
            lines.append(f"- **{claim.verdict}**: {_escape(said)}")
    return "\n".join(lines)


def _markdown_cell(column: Column, row: Any) -> str:
    first, *others = column.cell(row).split("\n")
    marked = f"**{_escape(first)}**" if column.is_marked(row) else _escape(first)
    return "<br>".join([marked, *map(_escape, others)])


def _markdown_lines(text: str) -> str:
    return "<br>".join(_escape(line) for line in text.split("\n"))


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """Text as Markdown that shows that text: no pipe ends a cell, no tag, link or emphasis begins."""
    text = clean(text).replace("&", "&amp;")
    # Brackets alone are harmless, and the intervals are full of them: only a link's joint is broken.
    text = re.sub(r"([\\`*|])", r"\\\1", text).replace("](", "]\\(").replace("][", "]\\[")
    # An underscore between letters, as in r_max, begins no emphasis.
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)
    return text.replace("<", "&lt;").replace(">", "&gt;")


def sentence(text: str) -> str:
    """`text` with a full stop, where it has no end."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


# The table

_STYLES = {claims.SUPPORTED: "green", claims.CONTRADICTED: "red", claims.UNDECIDED: "yellow"}


def _table(sheet: Sheet, *, width: int, color: bool) -> str:
    from rich.console import Console
    from rich.text import Text

    text = io.StringIO()
    # A width of the pipe is no one's screen: what is wider still is printed whole.
    piped = width >= PIPE_WIDTH
    layout = sheet.layouts[0] if piped else _layout(sheet, width)
    blocks = [Block(columns=layout, rows=sheet.rows)] if layout else []
    blocks = [*_above(sheet, width), *blocks]
    width = max(width, *map(_natural_width, blocks), 0)
    console = Console(
        file=text,
        width=width,
        force_terminal=color,
        force_interactive=False,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
    )

    def line(label: str = "", style: str = "", rest: str = "", indent: int = 0) -> None:
        whole = label + rest
        for one in [whole] if piped else _wrap(whole, width - indent):
            said = Text(" " * indent + one)
            if style:
                said.stylize(style, indent, indent + len(label))
            console.print(said, soft_wrap=True)
            # The label is on the first line.
            style = style if not rest else ""

    line(clean(sheet.title), "bold")
    if sheet.question:
        line(clean(sheet.question))
    for block in blocks:
        line()
        console.print(_grid(block), soft_wrap=True)
    if not layout:
        line()
        for row in sheet.rows:
            name, *sentences = sheet.stacked(row)
            line(name, "bold")
            for one in sentences:
                line(one, indent=2)
    line()
    for one in sheet.foot:
        line(clean(one))
    if sheet.claims:
        line()
        line("Claims", "bold")
        for claim in sheet.claims:
            line(claim.verdict, _STYLES[claim.verdict], f": {clean(sentence(claim.text))} ({clean(claim.source)})")
            line(clean(sentence(claim.detail)), indent=4)
    # Rich fills cells with blanks up to the column's width; no one wants them at the end of a line.
    return "\n".join(one.rstrip() for one in text.getvalue().splitlines()).rstrip("\n")


def _wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width`, broken between words, never inside "92.67 ± 0.19", "[+1.3, +2.9]" or "95 %"."""
    bound = re.sub(r" ± | (?=%)|(?<=[\d]), (?=[+-]\d)", lambda found: found[0].replace(" ", "\xa0"), text)
    lines = textwrap.wrap(bound, max(width, 20), break_long_words=False, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines] or [""]


def _above(sheet: Sheet, width: int) -> list[Block]:
    """The first form of the table above that fits."""
    fitting = (block for block in sheet.above if width >= PIPE_WIDTH or _natural_width(block) <= width)
    return [block for block, _ in zip(fitting, range(1), strict=False)]


def _layout(sheet: Sheet, width: int) -> tuple[Column, ...]:
    """The first layout that fits `width`; none where even the smallest does not."""
    blocks = (Block(columns=layout, rows=sheet.rows) for layout in sheet.layouts)
    return next((block.columns for block in blocks if _natural_width(block) <= width), ())


def _natural_width(block: Block) -> int:
    return sum(_column_width(block, column) for column in block.columns) + _GAP * (len(block.columns) - 1)


def _column_width(block: Block, column: Column) -> int:
    from rich.cells import cell_len

    cells = [column.name, *(_cell(column, row) for row in block.rows)]
    return max(cell_len(line) for cell in cells for line in cell.split("\n"))


def _cell(column: Column, row: Any) -> str:
    first, *others = column.cell(row).split("\n")
    return "\n".join([f"{first} *" if column.is_marked(row) else first, *others])


def _grid(block: Block) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for column in block.columns:
        table.add_column(
            Text(column.name), justify="right" if column.right else "left", no_wrap=True, overflow="ignore"
        )
    table.add_row(*("─" * _column_width(block, column) for column in block.columns))
    for row in block.rows:
        table.add_row(*(Text(_cell(column, row)) for column in block.columns))
    return table

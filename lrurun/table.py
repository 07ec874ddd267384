"""Tables: rows under columns that narrow, or go, where a width has no room for all of them. A row is one line.

The same table is fitted to a terminal by `fit`, printed whole into a pipe, and written by the formats of reports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from lrurun import console
from lrurun.console import clean, plain

NOTHING = "–"
KEPT = 100
"""The priority of columns that are never left out."""
GAP = 2
"""Blanks between columns."""
LEAST = 12
"""Names are cut to at least this width, where nothing else helps."""

_NUMBER = re.compile(r"[-+]?\d[\d.,:/]*(?:e[-+]?\d+)?(?: ?%)?")
_FIRST = re.compile(r",| \(")
"""Ends the first words of a cell, whose style it has."""
_BOLD, _DIM, _RED, _GREEN, _YELLOW, _CYAN = (f"\x1b[{code}m" for code in (1, 2, 31, 32, 33, 36))
_RESET = "\x1b[0m"
STYLES = {
    **dict.fromkeys(("helps", "supported", "done"), _GREEN),
    **dict.fromkeys(("hurts", "contradicted", "failed", "FAILED", "PROBLEM"), _RED),
    **dict.fromkeys(("undecided", "diverged", "interrupted", "warning"), _YELLOW),
    **dict.fromkeys(("not run", "base not run", "left out", "not judged", "not comparable"), _DIM),
    "running": _CYAN,
}
"""The text of a cell -> its style, where there are colours."""


class Column(Struct, frozen=True, kw_only=True):
    """A column of a table."""

    name: str
    cell: Callable[[Any], str]
    """The text of a row's cell; a newline begins another line of it."""
    right: bool = True
    """Whether it has numbers, which are aligned and never cut."""
    link: Callable[[Any], str | None] | None = None
    """The group of runs that a row's cell is made from."""
    marked: Callable[[Any], bool] | None = None
    """Whether a row's cell is the best of the table."""
    priority: int = KEPT
    """Where width is scarce, columns of the lowest priority are narrowed or left out first; LaTeX always leaves out
    those below `ON_PAGE`."""
    narrower: Column | None = None
    """The column that replaces it then, with a priority of its own."""
    note: str = ""
    """Sentences that explain it, where it is shown."""
    cut: int | None = None
    """Where width is scarce, its cells are cut to at least this width before any column is left out."""
    keeps_ends: bool = False
    """Whether they are then cut in the middle, as names are; of sentences, the beginning remains."""
    whole: bool = False
    """Whether its cells are never cut, as ids are not. Names are cut in the middle, where nothing else helps."""
    below: Callable[[Any], str] | None = None
    """The beginning of the line below the table with the whole text of a row whose cell was cut; empty: no line."""
    is_plot: bool = False
    """Whether it draws numbers that other columns have, so that it is not missed where there is no room for it."""
    full_name: str = ""
    """The whole name, if `name` was cut."""

    def is_marked(self, row: Any) -> bool:
        return self.marked is not None and self.marked(row)

    def text(self, row: Any) -> str:
        """The cell of a row, with its mark."""
        text = self.cell(row)
        if not self.is_marked(row):
            return text
        first, *rest = text.split("\n")
        return "\n".join([f"{first} *", *rest])


def narrowed(columns: Sequence[Column], priority: int) -> tuple[Column, ...]:
    """The columns as they are where there is room for this priority and above."""
    forms = []
    for column in columns:
        form: Column | None = column
        while form is not None and form.priority < priority:
            form = form.narrower
        if form is not None:
            forms.append(form)
    return tuple(forms)


class Table(Struct, frozen=True, kw_only=True):
    """A table. Its rows are of any type that its columns know."""

    columns: tuple[Column, ...]
    rows: tuple[Any, ...]
    title: str = ""

    @property
    def width(self) -> int:
        """The width of the lines of the table."""
        return sum(map(self._width, self.columns)) + GAP * (len(self.columns) - 1)

    def fit(self, width: int) -> Table | None:
        """The table in lines of at most `width`; None where that is too narrow for any.

        Sentences are cut first. Then columns are narrowed or left out by priority, and at last names are cut.
        """
        table = self
        while (excess := table.width - width) > 0:
            for k, column in enumerate(table.columns):
                room = table._width(column) - excess
                if column.cut is not None and room >= column.cut:
                    cut = _cut(column, room, middle=column.keeps_ends)
                    return structs.replace(table, columns=(*table.columns[:k], cut, *table.columns[k + 1 :]))
            lowest = min(column.priority for column in table.columns)
            if lowest >= KEPT:
                return table._cut_names(width)
            table = structs.replace(table, columns=narrowed(table.columns, lowest + 1))
        return table

    def lines(self, *, rule: bool = True, color: bool = False) -> Iterator[str]:
        """The header, unless it is empty, a rule if there is to be one, and a line for each row; no title."""
        texts = [self._texts(column) for column in self.columns]
        names = [column.name for column in self.columns]
        widths = [max(map(_longest, (name, *cells))) for name, cells in zip(names, texts, strict=True)]

        def drawn(cells: Sequence[str], style: str | None = None) -> Iterator[str]:
            parts = [cell.split("\n") for cell in cells]
            height = max(map(len, parts))
            if cells is names:  # just above the rule
                parts = [[""] * (height - len(part)) + part for part in parts]
            for k in range(height):
                line = []
                for column, lines, size in zip(self.columns, parts, widths, strict=True):
                    text = lines[k] if k < len(lines) else ""
                    blanks = " " * (size - _size(text))
                    chosen = STYLES.get(_FIRST.split(text, 1)[0].strip(), "") if style is None else style
                    text = f"{chosen}{text}{_RESET}" if color and chosen and text else text
                    line.append(blanks + text if column.right else text + blanks)
                yield (" " * GAP).join(line).rstrip()

        if any(names):
            yield from drawn(names, _BOLD)
            if rule:
                yield from drawn(["─" * size for size in widths])
        for cells in zip(*texts, strict=True):
            yield from drawn(cells)

    def stacked(self, width: int) -> Iterator[str]:
        """The first cell of each row, and the others below it, for a terminal that is too narrow for the table."""
        first, *below = self.columns
        for row in self.rows:
            yield from console.wrapped(clean(first.text(row)), width)
            for column in below:
                if (cell := column.text(row)) not in ("", NOTHING):
                    text = clean(f"{_in_a_line(column.name)}: {_in_a_line(cell)}")
                    yield from console.wrapped(text, width, label="  ", indent=4 if width >= 30 else 2)

    def left_out(self, whole: Table) -> str:
        """A sentence that names the columns of `whole` that this one, fitted to a width, lacks; empty if none."""
        shown = {column.full_name or column.name for column in self.columns}
        gone = [_in_a_line(c.name) for c in whole.columns if c.name not in shown and not c.is_plot]
        return f"Not shown at this width: {', '.join(gone)}." if gone else ""

    def in_ascii(self) -> Table:
        """The table with cells and headings whose width does not change when they are printed in ASCII."""
        return structs.replace(self, columns=tuple(map(_in_ascii, self.columns)))

    def _texts(self, column: Column) -> list[str]:
        texts = [column.text(row) for row in self.rows]
        joined = "".join(texts)
        # usually they are clean
        return texts if joined.isascii() and joined.isprintable() else [clean(text, lines=True) for text in texts]

    def _width(self, column: Column) -> int:
        return max(map(_longest, (column.name, *self._texts(column))))

    def _cut_names(self, width: int) -> Table | None:
        """The table with the longest names cut in the middle, if that is enough. Of numbers, it is their heading."""
        widths = list(map(self._width, self.columns))
        least = [
            max(min(LEAST, size), max(map(_longest, self._texts(column)), default=0))
            if column.whole or column.right
            else min(LEAST, size)
            for column, size in zip(self.columns, widths, strict=True)
        ]
        room = width - GAP * (len(self.columns) - 1)
        if sum(least) > room:
            return None
        for _ in range(sum(widths) - room):
            longest = max((k for k, size in enumerate(widths) if size > least[k]), key=widths.__getitem__)
            widths[longest] -= 1
        cut = (
            _cut(c, size, middle=c.cut is None or c.keeps_ends) for c, size in zip(self.columns, widths, strict=True)
        )
        return structs.replace(self, columns=tuple(cut))


def of_text(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    order: Sequence[str] = (),
    whole: Sequence[str] = (),
    cut: Mapping[str, int] | None = None,
    keeps_ends: Sequence[str] = (),
    below: Mapping[str, Callable[[Sequence[str]], str]] | None = None,
) -> Table:
    """A table of texts.

    Args:
        order: the columns that may be left out, those first that go first.
        whole: the columns that are never cut; ids never are.
        cut: column -> the width that its cells may be cut to before any column is left out.
        keeps_ends: columns of `cut` that are cut in the middle.
        below: column of sentences -> what begins the line of a row below the table, if its cell was cut.
    """
    cells = tuple([row if clean(text := "".join(row)) is text else [clean(cell) for cell in row] for row in rows])
    priorities = {name: k for k, name in reversed(list(enumerate(order)))}

    def column(k: int, name: str) -> Column:
        texts = [row[k] for row in cells if row[k]]
        return Column(
            name=clean(name),
            cell=lambda row: row[k],
            right=name != "id" and bool(texts) and all(map(_NUMBER.fullmatch, texts)),
            priority=priorities.get(name, KEPT),
            whole=name == "id" or name in whole,
            cut=(cut or {}).get(name),
            keeps_ends=name in keeps_ends,
            below=(below or {}).get(name),
        )

    return Table(columns=tuple(column(k, name) for k, name in enumerate(headers)), rows=cells, title=title)


def show(table: Table) -> None:
    """Print a table on stdout: fitted to a terminal, whole into a pipe."""
    if console.is_ascii():
        table = table.in_ascii()
    title = clean(table.title)
    if not console.is_screen():
        if title:
            console.write(title)
        _write(table.lines(rule=False))
        return
    width, color = console.width(), console.has_color()
    if title:
        text = "\n".join(console.wrapped(title, width))
        console.write(f"{_BOLD}{text}{_RESET}" if color else text, styled=color)
    fitted = table.fit(width)
    if fitted is None:
        _write(table.stacked(width))
        console.write("")
        return
    _write(fitted.lines(color=color), styled=color)
    for column in table.columns:
        for shown in fitted.columns if column.below else ():
            if column.below is not None and shown.below is column.below:
                for row in table.rows:
                    if shown.cell(row) != column.cell(row) and (label := column.below(row)):
                        console.write("\n".join(console.wrapped(f"{label}: {column.cell(row)}", width, indent=4)))
    if gone := fitted.left_out(table):
        console.paragraph(gone)
    console.write("")


def show_text(headers: Sequence[str], rows: Iterable[Sequence[str]], **options: Any) -> None:
    """Print a table of texts on stdout, with the options of `of_text`."""
    show(of_text(headers, rows, **options))


def show_facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names, and what is to say of each on lines of its own beside it."""
    _write(facts([(name, clean(text)) for name, text in pairs], console.width() if console.is_screen() else None))


def facts(pairs: Sequence[tuple[str, str]], width: int | None) -> Iterator[str]:
    """A name and a text a line; longer texts go on in more lines, which end between words.

    Args:
        width: None: each text is in one line.
    """
    size = max((_size(name) for name, _ in pairs), default=0) + GAP
    for name, text in pairs:
        label = name + " " * (size - _size(name))
        if width is None or (" " not in text and size < width / 2):
            yield label + text  # a path is copied whole
        elif size < width / 2:
            yield from console.wrapped(text, width, label=label, indent=size)
        else:
            yield from console.wrapped(f"{name}: {text}", width, indent=4)


def _write(lines: Iterable[str], *, styled: bool = False) -> None:
    """Prints lines, many at a time."""
    block: list[str] = []
    for line in lines:
        block.append(line)
        if len(block) == 1000:
            console.write("\n".join(block), styled=styled)
            block = []
    if block:
        console.write("\n".join(block), styled=styled)


def _in_a_line(text: str) -> str:
    """A text of several lines; a name that is broken after a hyphen is whole again."""
    return text.replace("-\n", "-").replace("\n", ", ")


def _in_ascii(column: Column) -> Column:
    narrower = None if column.narrower is None else _in_ascii(column.narrower)
    cell = column.cell
    return structs.replace(column, name=plain(column.name), cell=lambda row: plain(cell(row)), narrower=narrower)


def _cut(column: Column, width: int, *, middle: bool) -> Column:
    def cell(row: Any) -> str:
        room = width - len(" *") * column.is_marked(row)
        return "\n".join(shortened(line, room, middle=middle) for line in column.cell(row).split("\n"))

    name = "\n".join(shortened(line, width, middle=middle) for line in column.name.split("\n"))
    return structs.replace(column, name=name, cell=cell, full_name=column.full_name or column.name)


def shortened(text: str, width: int, *, middle: bool = True) -> str:
    """`text`, or as much of its beginning and end as `width` has room for, or of its beginning alone."""
    if _size(text) <= width:
        return text
    last = (width - 3) // 2 if middle else 0
    head, tail = width - 3 - last, ""
    for sign in reversed(text):
        if _size(sign + tail) > last:
            break
        tail = sign + tail
    while _size(text) > head:
        text = text[:-1]
    return f"{text.rstrip()}...{tail.lstrip()}"


def _longest(text: str) -> int:
    return max(map(_size, text.split("\n"))) if "\n" in text else _size(text)


def _size(text: str) -> int:
    """The columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)

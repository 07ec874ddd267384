"""A report as a table for terminals and pipes."""

from __future__ import annotations

from msgspec import structs

from lrurun.console import PIPE_WIDTH, clean, plain, wrapped
from lrurun.report.tables.content import ReportContent, sentence
from lrurun.table import STYLES, narrowed

_STACKED = 6
"""A terminal too narrow for any table shows the columns from this priority on, a line each."""
_BOLD, _RESET = "\x1b[1m", "\x1b[0m"


def render(content: ReportContent, *, width: int, color: bool, ascii: bool = False) -> str:
    """The report with lines of at most `width`, in `ascii` where the terminal has no other characters."""
    # In a pipe the width does not matter: wider tables are printed whole.
    piped = width >= PIPE_WIDTH
    main, *above = (table.in_ascii() if ascii else table for table in (content.table, *content.above))
    fitting = main if piped and all(column.cut is None for column in main.columns) else main.fit(width)
    # of the table above, the first form that fits
    tables = [table for table in above if piped or table.width <= width][:1] + ([fitting] if fitting else [])
    lines: list[str] = []

    def write(text: str, *, label: str = "", style: str = "", indent: int = 0) -> None:
        """Adds lines of sentences; the style is for the label, on the first one."""
        blanks = " " * indent
        if ascii:
            text, label = plain(text), plain(label)
        added = [blanks + label + text] if piped else wrapped(text, width, label=blanks + label, indent=indent)
        if style and color:
            added[0] = f"{blanks}{style}{label}{_RESET}{added[0][indent + len(label) :]}"
        lines.extend(added)

    def title(text: str) -> None:
        for line in [text] if piped else wrapped(text, width):
            lines.append(f"{_BOLD}{line}{_RESET}" if color else line)

    title(clean(content.title))
    for text in filter(None, (content.question, *content.conclusions())):
        write(clean(text))
    for table in tables:
        lines += ["", *table.lines(color=color)]
    shown = fitting or structs.replace(main, columns=narrowed(main.columns, _STACKED))
    if not fitting:
        lines += ["", *shown.stacked(width)]
    omitted = shown.left_out(main)
    notes = (*([omitted] if omitted else []), *content.notes(shown.columns))
    for note in ("", *notes) if notes and notes[0] else notes:
        write(clean(note))
    if content.claims:
        lines.append("")
        title("Claims")
        for claim in content.claims:
            about = f"{claim.mark}: {clean(sentence(claim.text))} ({clean(claim.source)})"
            write(about, label=claim.shown, style=STYLES[claim.shown])
            write(clean(sentence(claim.detail)), indent=4)
    whole = "\n".join(line.rstrip() for line in lines).rstrip("\n")
    return plain(whole) if ascii else whole

"""What is shown of a report, and where it goes: to stdout, or into a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from lrurun import console
from lrurun.commands._shared import output
from lrurun.instances.requests import LadderRequest
from lrurun.report import formats
from lrurun.report.formats.paper_style import PaperStyle

if TYPE_CHECKING:
    from lrurun.config.ladder import Ladder
    from lrurun.ledger.ledger import Ledger
    from lrurun.report.formats import AnyReport


class Shown(Struct, frozen=True, kw_only=True):
    """What is shown of a report, and how."""

    rungs: Sequence[str] = ()
    """The rungs that are shown; all of them if empty."""
    limit: int | None = None
    """The largest number of rungs that are shown; None or 0 for all."""
    claims: bool = False
    """Whether the user asked for claims of papers: without that, reports on a task of one's own show none."""
    details: bool = False
    """Whether a table of text shows everything that is known, not the answer alone."""
    request: LadderRequest | str | None = None
    """The request, or the name of an instance that no request finds."""
    firm: str = ""
    """The command that makes verdicts firm, or repeats firm ones, with what it costs."""
    table_only: bool = False
    """Whether LaTeX has the tabular environment alone."""
    columns: Sequence[str] = ()
    """Texts with names of columns of CSV, which are shown in place of others."""
    style: PaperStyle = PaperStyle()
    """The form of LaTeX."""
    format: formats.Format = "table"
    out: Path | None = None

    def rung_names(self, ladder: Ladder) -> list[str] | None:
        """The names of the rungs to show, in ladder order; None is all of them.

        Raises:
            UsageError: an unknown name.
        """
        from lrurun.config import planning

        if not self.rungs and not self.limit:
            return None
        return planning.rung_names(ladder, self.rungs)[: self.limit or None]

    def write(self, made: AnyReport, ledger: Ledger) -> None:
        """The report to stdout, or into the file."""
        details = None
        if self.format == "html":
            from lrurun.report import run_details

            details = run_details.collect(formats.content_of(made), ledger)
        text = formats.render(
            made,
            self.format,
            width=console.width() if self.out is None else console.PIPE_WIDTH,
            color=self.out is None and console.has_color(),
            details=details,
            answer=not self.details,
            request=self.request,
            firm=self.firm,
            table_only=self.table_only,
            columns=self.columns,
            style=self.style,
            ascii=self.out is None and console.is_ascii(),
        )
        if self.out is None:
            console.write(text, styled=self.format == "table")
            return
        output.write_file(self.out, (text if text.endswith("\n") else text + "\n").encode())
        console.say(f"wrote {self.out}")
        cautions = formats.content_of(made).cautions if self.style.plain else []
        if cautions:  # a paper's table has no room for all of them
            console.say(f"Caution: {'; '.join(cautions)}.")

"""What is shown of a report, and where it goes: to stdout, or into a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from lrurun import console
from lrurun.commands._shared import output
from lrurun.commands._shared.options import FormatName

if TYPE_CHECKING:
    from lrurun.config.ladder import Ladder
    from lrurun.ledger.store import Ledger
    from lrurun.report.formats import AnyReport


class Shown(Struct, frozen=True, kw_only=True):
    """What is shown of a report, and how."""

    rungs: Sequence[str] = ()
    """Only these; all of them if empty."""
    limit: int | None = None
    """At most so many of them."""
    format: FormatName = "table"
    out: Path | None = None

    def of(self, ladder: Ladder) -> list[str] | None:
        """The names of the rungs to show, in ladder order; None is all of them.

        Raises:
            UsageError: an unknown name.
        """
        from lrurun.config import plan as planning

        if not self.rungs and self.limit is None:
            return None
        return planning.rung_names(ladder, self.rungs)[: self.limit]

    def write(self, made: AnyReport, ledger: Ledger) -> None:
        """The report to stdout, or into the file."""
        from lrurun.report import formats, run_details

        details = run_details.collect(formats.content_of(made), ledger) if self.format == "html" else None
        text = formats.render(
            made,
            self.format,
            width=console.width() if self.out is None else console.PIPE_WIDTH,
            color=self.out is None and console.has_color(),
            details=details,
        )
        if self.out is None:
            console.write(text, styled=self.format == "table")
            return
        output.write_file(self.out, (text if text.endswith("\n") else text + "\n").encode())
        console.say(f"wrote {self.out}")

"""The display of a running ladder in a notebook: a table below the cell, which changes."""

from __future__ import annotations

import html
import sys
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lrurun import console
from lrurun.report.live.progress import collect, collect_sweep, view_of
from lrurun.report.live.views import LadderView

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance

COLUMNS = 100
"""Characters of a line."""
REDRAW_SECONDS = 1.0
"""The shortest time between two drawings that no change of a state causes."""


def ladder_view() -> LadderView:
    """The display for where this process runs: a notebook, a terminal or a pipe."""
    return NotebookView() if _kernel() is not None else LadderView()


def _kernel() -> Any:
    """The kernel of the notebook that this process executes; None outside of one, as in IPython in a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None)


class NotebookView(LadderView):
    """Shows the progress of a ladder below the cell. Messages are lines of their own."""

    def __init__(self) -> None:
        super().__init__()
        self._id = uuid4().hex
        self._text: str | None = None
        """What is shown; None before the first drawing."""

    def update(self, ledger: Ledger, *ladders: LadderInstance) -> None:
        """Draws the progress of a ladder or a sweep, if it has changed."""
        if console.verbosity() < 0 or not (self._changed(ledger, ladders) or time.monotonic() >= self._due):
            return
        progress = collect(ledger, ladders[0]) if len(ladders) == 1 else collect_sweep(ledger, ladders)
        text = "\n".join(view_of(progress, COLUMNS))
        if text != self._text:
            self._show(text)
        self._due = time.monotonic() + REDRAW_SECONDS

    def _show(self, text: str) -> None:
        from IPython.display import display

        picture = {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>"}
        display(picture, raw=True, display_id=self._id, update=self._text is not None)
        self._text = text

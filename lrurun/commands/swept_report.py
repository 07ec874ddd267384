"""`lrurun report TASK --by SETTING`: the instances of a ladder that differ in some settings, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from lrurun.commands import opening
from lrurun.commands.report_output import Shown
from lrurun.errors import NotFoundError, UsageError
from lrurun.report.request import LadderRequest

if TYPE_CHECKING:
    from lrurun.paths import Places


def write_report(
    places: Places,
    request: LadderRequest,
    by: Sequence[str],
    show: Shown,
) -> None:
    """Prints the table of the instances that are the requested one but for the settings `by`.

    Raises:
        UsageError: one of these is among the values of `--set`.
        NotFoundError: there is no such instance.
    """
    from lrurun.config.settings import by_paths, parse_set
    from lrurun.report import swept

    by = by_paths(by)
    for text in request.sets:
        if (path := parse_set(text)[0]) in by:
            raise UsageError(f"--set {path} and --by {path} exclude each other", "leave one of them out")
    command = request.command(*(word for path in by for word in ("--sweep", f"{path}=V,V")))
    ledger = opening.read(places)
    with ledger or nullcontext():
        plan = request.plan(ledger)
        rungs = show.of(plan.ladder)
        if ledger is None:
            raise NotFoundError(
                f"{places.ledger}: there is no ledger, so there are no results",
                f"run: {command}",
            )
        show.write(swept.build(ledger, plan, swept.find(ledger, plan, by, command), by, rungs), ledger)

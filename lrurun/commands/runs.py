"""`lrurun runs`: the list of runs."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from msgspec import Struct

from lrurun import console
from lrurun.commands import opening, output
from lrurun.commands.options import Json, Limit, Sort, Where
from lrurun.config.schema import STUDIES
from lrurun.errors import NotFoundError, hint_for

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.paths import Places


class RunsDocument(Struct, frozen=True):
    """The JSON of `lrurun runs`."""

    runs: list[output.RunOutput]


def runs(
    context: typer.Context,
    ladder: Annotated[Optional[str], typer.Option("--ladder", metavar="NAME", help="Only runs of this ladder.")] = None,
    where: Where = None,
    sort: Sort = None,
    limit: Limit = None,
    json: Json = False,
) -> int:
    """List runs, newest first."""
    from lrurun.ledger import owner
    from lrurun.report import listing

    places: Places = context.obj.places
    on_screen = limit is None and not json and console.is_screen()
    ledger = opening.read_current(places)
    with ledger if ledger is not None else nullcontext():
        choice = listing.Choice(where, sort, ledger)
        for caution in choice.cautions:
            console.warn(f"--where, {caution}")
        if ledger is not None and ladder is not None:
            _check_ladder(ledger, ladder)
        ids = choice.ids(ledger, ladder, limit or None) if ledger is not None else []
        shown = ids[: listing.SCREENFUL] if on_screen else ids
        found = ledger.each(shown, brief=json or not _has_cells(ledger)) if ledger is not None else iter(())
        if json:
            output.write_json_list(RunsDocument, map(output.run_output, found))
            return 0
        if not ids:
            known = ledger.number_of_runs(ladder) if ledger is not None else 0
            if known:
                console.say(f"none of {known} runs fulfils the condition")
            else:
                console.say(f"no runs in {places.ledger} yet; lrurun ladder TASK starts some")
            return 0
        headers, rows = listing.table(found, owner.user())
    gone = console.leave_out(headers, rows, listing.least_important(headers, rows))
    console.table(None, headers, rows)
    if gone:
        console.say(f"left out on this narrow terminal: {', '.join(gone)}")
    if len(ids) > len(rows):
        console.say(f"and {len(ids) - len(rows)} more; --limit 0 lists all")
    return 0


def _check_ladder(ledger: Ledger, name: str) -> None:
    """Refuse a ladder that has no runs, if others have some."""
    names = ledger.ladder_names()
    if names and name not in names:
        raise NotFoundError(f"ladder {name!r}: this ledger has no runs of it", hint_for(name, names, "ladders here"))


def _has_cells(ledger: Ledger) -> bool:
    """Whether there are runs of studies, whose settings are shown."""
    return STUDIES in ledger.ladder_names()

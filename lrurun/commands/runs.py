"""`lrurun runs`: the list of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer
from msgspec import Struct

from lrurun import console, table
from lrurun.commands._shared import output
from lrurun.commands._shared.options import (
    Columns,
    GroupBy,
    GroupMetric,
    Json,
    Limit,
    OnlyInstance,
    RunsFormat,
    Sort,
    Where,
)
from lrurun.commands._shared.rules import examples, exclusive, is_given, needs
from lrurun.errors import NotFoundError, hint_for
from lrurun.session import opening

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.paths import Places
    from lrurun.report import formats


class RunsDocument(Struct, frozen=True):
    """The JSON of `lrurun runs`."""

    runs: list[output.RunOutput]


@examples(
    "lrurun runs --where 'task=npDigits and val/accuracy>0.5'",
    "lrurun runs --by rung,optim.lr --metric val/accuracy",
)
@exclusive("columns", "by")
@exclusive("json", "format")
@needs("metric", "by")
def runs(
    context: typer.Context,
    ladder: Annotated[Optional[str], typer.Option("--ladder", metavar="NAME", help="Only runs of this ladder.")] = None,
    instance: OnlyInstance = None,
    where: Where = None,
    sort: Sort = None,
    limit: Limit = None,
    columns: Columns = None,
    by: GroupBy = None,
    metric: GroupMetric = None,
    format: RunsFormat = "table",
    json: Json = False,
) -> int:
    """List runs, newest first.

    With the settings that vary among runs of the same task, profile and rung.
    With --columns these columns, with --by the means of groups of runs.
    """
    if columns or by or metric or is_given(context, "format"):
        chosen = "json" if json else format
        return _table(context.obj.places, ladder, instance, where, sort, limit, columns or [], by or [], metric, chosen)
    from lrurun.judging import scores
    from lrurun.ledger import owner
    from lrurun.report import listing

    places: Places = context.obj.places
    on_screen = limit is None and not json and console.is_screen()
    with opening.read_current(places) as ledger:
        choice = listing.Choice(where, sort, ledger, instance=instance)
        for caution in choice.cautions:
            console.warn(f"--where, {caution}")
        if ladder is not None:
            _check_ladder(ledger, ladder)
        ids = choice.ids(ledger, ladder, limit or None)
        shown = ids[: listing.SCREENFUL] if on_screen else ids
        listed = ledger.each(shown, brief=json or not _has_cells(ledger))
        if json:
            output.write_json_list(RunsDocument, map(output.run_output, listed))
            return 0
        if not ids:
            known = ledger.count_runs(ladder)
            if known:
                console.say(f"none of {known} runs meets the condition{choice.likely(ledger)}")
            else:
                console.say(opening.nothing_yet(places, "runs"))
            return 0
        settings: list[str] = []
        values: dict[str, tuple[object, ...]] = {}
        if len(shown) <= listing.MOST_COMPARED:
            compared = list(listed)
            (settings, values), listed = listing.varying(compared, ledger), iter(compared)
        declared = scores.declared(ledger, ledger.names_of("task"))
        headers, rows = listing.table(listed, owner.user(), settings, values, declared=declared)
    table.show_text(headers, rows, order=listing.least_important(headers, rows))
    if len(ids) > len(rows):
        console.say(f"and {len(ids) - len(rows)} more; --limit 0 lists all")
    return 0


def _table(
    places: Places,
    ladder: str | None,
    instance: str | None,
    where: str | None,
    sort: str | None,
    limit: int | None,
    columns: list[str],
    by: list[str],
    metric: str | None,
    format: formats.RunsFormat,
) -> int:
    """Runs with chosen columns, or groups of them."""
    from lrurun.report import listing, run_table

    names, groups = run_table.split(columns, "--columns"), run_table.split(by, "--by")
    options = [("--columns", name) for name in names]
    options += [("--by", name) for name in groups] + ([] if metric is None else [("--metric", metric)])
    on_screen = limit is None and format == "table" and console.is_screen()
    if by and (sorted_by := run_table.metric_sorted_by(groups, sort)):
        options.append(("--sort", sorted_by))
    with opening.read_current(places) as ledger:
        choice = listing.Choice(where, None if by else sort, ledger, further=options, instance=instance)
        if by:
            run_table.check_by(groups, metric, sort)
        for caution in choice.cautions:
            console.warn(f"--where, {caution}")
        if ladder is not None:
            _check_ladder(ledger, ladder)
        if by:
            listed = run_table.groups(ledger, choice, groups, metric, ladder, sort, limit or None)
        else:
            listed = run_table.columns(ledger, choice, names, ladder, limit or None)
    if listed.caution:
        console.warn(listed.caution)
    if format != "table":
        console.write(run_table.render(listed, format))
    elif not listed.cells:
        console.say("no such runs" if ledger.exists else opening.nothing_yet(places, "runs"))
    else:
        shown = listed.cells[: listing.SCREENFUL] if on_screen else listed.cells
        table.show_text(listed.headers, shown)
        if len(shown) < len(listed.cells):
            console.say(f"and {len(listed.cells) - len(shown)} more; --limit 0 lists all")
    return 0


def _check_ladder(ledger: Ledger, name: str) -> None:
    """Refuse a ladder that has no runs, if others have some."""
    names = ledger.names_of("ladder")
    if names and name not in names:
        raise NotFoundError(f"ladder {name!r}: this ledger has no runs of it", hint_for(name, names, "ladders here"))


def _has_cells(ledger: Ledger) -> bool:
    """Whether there are runs that are no trainings, whose settings are shown."""
    from lrurun.config.schema import LADDER_KINDS

    return any(instance.kind not in LADDER_KINDS for instance in ledger.ladders())

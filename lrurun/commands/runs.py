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
    from lrurun.ledger.values import Run
    from lrurun.paths import Places
    from lrurun.report.scores import ScoreForm


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
    from lrurun.report import listing, scores

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
        texts: dict[str, str] = {}
        rows, forms = [], []
        for run in found:
            form = scores.of_task(run.task, run.result or ())
            # Most cells are the same text in many rows; one copy of each keeps long lists small.
            rows.append([texts.setdefault(cell, cell) for cell in _row(run, form)])
            forms.append(form)
    metric = _label_scores(rows, forms)
    headers = ["id", "task", "rung", "stage", "seed", "state", "step", f"val {metric}", f"test {metric}"]
    headers += ["numerics", "tags", "cell", "user"]
    for column, usual, least in ((12, owner.user(), 1), (11, "", 1), (10, "", 1), (9, "", 2)):
        for row in [headers, *rows] if len({row[column] for row in rows} - {"", usual}) < least else ():
            del row[column]
    console.table(None, headers, rows)
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


def _row(run: Run, form: ScoreForm) -> list[str]:
    from lrurun.report import listing, progress

    first = run.memberships[0] if run.memberships else None
    result = run.result or {}
    return [
        run.id,
        run.task,
        first.rung if first else "",
        first.stage if first else "",
        str(run.seed),
        listing.state(run),
        f"{run.step}/{run.steps}",
        *("" if (score := result.get(key)) is None else form.full(score) for key in (form.validation, form.result)),
        str(run.numerics or ""),
        ", ".join(run.tags),
        progress.cell(run),
        first.user or "" if first else "",
    ]


def _label_scores(rows: list[list[str]], forms: list[ScoreForm]) -> str:
    """The metric of all scores, for their columns; if they have several, each cell gets its own."""
    shown = {form.name: form for row, form in zip(rows, forms, strict=True) if any(row[_SCORES])}
    if len(shown) < 2:
        return next(iter(shown.values()), forms[0]).heading
    for row, form in zip(rows, forms, strict=True):
        row[_SCORES] = [cell and form.labelled(cell) for cell in row[_SCORES]]
    return "score"


_SCORES = slice(7, 9)
"""The columns of scores."""

"""`lrurun claims`: the claims of papers, judged by the papers' own numbers and by the runs of the ledger."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from lrurun import console
from lrurun.commands import opening, output
from lrurun.commands.options import Json, OnlyLadder, OnlyTask


def claims(
    context: typer.Context,
    ladder: OnlyLadder = None,
    task: OnlyTask = None,
    paper: Annotated[
        Optional[str], typer.Option("--paper", metavar="P", help="Only this paper: lru, dlr, rotrnn or zucchet.")
    ] = None,
    json: Json = False,
) -> int:
    """Judge the papers' claims by their own numbers and by your runs.

    The rule is the same for both. Claims about theory figures are decided by the checks of studies.
    """
    from lrurun import data as tasks
    from lrurun import paths, studies
    from lrurun.config.documents import load_ladder
    from lrurun.config.schema import STUDY
    from lrurun.errors import UsageError
    from lrurun.report import ledger_claims

    ledger_claims.check_paper(paper)
    if task is not None and task.startswith(STUDY):
        if ladder is not None:
            raise UsageError(f"--ladder {ladder}: {task} is a study, which no ladder has", "omit --ladder or --task")
        task = STUDY + studies.of_task(task).name  # it may be an alias
    names = [ladder] if ladder is not None else list(paths.names("ablations"))
    ladders = {name: load_ladder(name) for name in names}
    ledger = opening.read(context.obj.places)
    try:
        if task is not None and not task.startswith(STUDY) and not (ledger and ledger.ladders(None, task)):
            tasks.get(task)  # those of the ledger may be of imported arrays or of a plug-in that is not loaded
        found = ledger_claims.collect(ledger, ladders, task, paper, with_studies=ladder is None)
    finally:
        if ledger is not None:
            ledger.close()
    if json:
        output.write_json(found)
        return 0
    if not found.claims:
        console.say(f"no claims{f' of ladder {ladder}' if ladder else ''} on {task or 'tasks that are here'}")
        return 0
    columns = len(ledger_claims.HEADERS) - (ledger is None)
    rows = [ledger_claims.cells(one)[:columns] for one in found.claims]
    console.table("claims", ledger_claims.HEADERS[:columns], rows)
    if ledger is not None:
        console.table("claims in this ledger", *ledger_claims.count_table(found))
    return 0

"""`lrurun compare`: how runs differ, and their results."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from msgspec import Struct

from lrurun import console, table
from lrurun.commands._shared import output
from lrurun.commands._shared.options import Json, complete_runs
from lrurun.commands._shared.rules import examples
from lrurun.errors import UsageError
from lrurun.session import opening


class SettingValues(Struct, frozen=True):
    """A setting in which runs differ, with its value in each of them."""

    path: str
    values: list[Any]


class MetricValues(Struct, frozen=True):
    """A metric, with its value in each of the runs."""

    metric: str
    values: list[float | None]


class CompareDocument(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun compare`."""

    runs: list[str]
    differs: list[SettingValues]
    results: list[MetricValues]


@examples(
    "lrurun compare 3f2a 81bc",
    "lrurun compare 3f2a 81bc --json",
)
def compare(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN RUN ...", help="Run ids, or the beginnings of some.", autocompletion=complete_runs),
    ],
    json: Json = False,
) -> int:
    """Show how runs differ, with their results side by side."""
    from lrurun.report.tables import run_tables

    with opening.read_for_run(context.obj.places, runs[0]) as ledger:
        different = list({run.id: run for run in map(ledger.run, runs)}.values())
    if len(different) < 2:
        found = f"{' and '.join(runs)}, which are one run" if len(runs) > 1 else f"only {different[0].id}"
        hint = "name another run beside it, as in lrurun compare RUN RUN; lrurun runs lists them"
        raise UsageError(f"compare: expected two runs, found {found}", hint)
    compared = run_tables.compare(different)
    if json:
        output.write_json(
            CompareDocument(
                runs=[run.id for run in different],
                differs=[SettingValues(path, values) for path, values in compared.differs.items()],
                results=[MetricValues(name, values) for name, values in compared.results.items()],
            )
        )
        return 0
    names = [run.id for run in different]
    if not compared.differs:
        console.say("the runs differ only in their results")
    for content in (run_tables.differences(compared, names), run_tables.results(compared, names)):
        if content.rows:
            table.show(content)
    return 0

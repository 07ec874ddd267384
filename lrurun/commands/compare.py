"""`lrurun compare`: how runs differ, and their results."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer
from msgspec import Struct

from lrurun import console, table
from lrurun.commands._shared import output
from lrurun.commands._shared.options import InstancesOfRuns, Json, complete_runs
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
    "lrurun compare --instance npDigits --json",
)
def compare(
    context: typer.Context,
    runs: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="RUN RUN ...", help="Run ids, or the beginnings of some.", autocompletion=complete_runs),
    ] = None,
    instance: InstancesOfRuns = None,
    json: Json = False,
) -> int:
    """Show how runs differ, with their results side by side."""
    from lrurun.report.tables import run_tables

    runs = runs or []
    if not (runs or instance):
        raise UsageError(
            "compare: expected RUNs or --instance", "lrurun runs lists the runs, lrurun status the instances"
        )
    with opening.read_for_run(context.obj.places, runs[0] if runs else None) as ledger:
        different = list({run.id: run for run in [*map(ledger.run, runs), *ledger.runs_of(instance or ())]}.values())
    if len(different) < 2 and instance:
        named = " and ".join(instance)
        raise UsageError(
            f"compare: expected two runs, found {len(different)} of --instance {named}",
            "name another RUN or instance beside it; lrurun status lists them",
        )
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

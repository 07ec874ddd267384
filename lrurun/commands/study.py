"""`lrurun study`: the theory figures of the papers, computed, checked and recorded like runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from msgspec import Struct

from lrurun import console, studies
from lrurun.commands._shared import output
from lrurun.commands._shared.options import (
    Detach,
    DryRun,
    FigureWidth,
    Jobs,
    Json,
    NewName,
    On,
    OnNode,
    Plain,
    Seeds,
    TimeLimit,
)
from lrurun.commands._shared.rules import examples
from lrurun.errors import UsageError, hint_for
from lrurun.session import cautions
from lrurun.session.training_options import TrainingOptions, site_of
from lrurun.studies.machinery.request import PROFILES, StudyRequest

if TYPE_CHECKING:
    from lrurun.studies.machinery.reporting import StudyReport


class StudiesDocument(Struct, frozen=True):
    """The JSON of `lrurun study all`."""

    studies: list[StudyReport]


def _names(incomplete: str) -> list[str]:
    return [name for name in (*studies.names(), "all", "ci") if name.startswith(incomplete)]


@examples(
    "lrurun study ring",
    "lrurun study memory --plain --width page --out memory.pdf",
)
def study(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A study, or all, or ci.", autocompletion=_names)],
    profile: Annotated[
        Optional[str], typer.Option("--profile", metavar="P", help="ci, laptop or paper [laptop; for ci: ci].")
    ] = None,
    cell: Annotated[
        Optional[list[str]], typer.Option("--cell", metavar="C", help="Only cells with this label. Repeatable.")
    ] = None,
    seeds: Seeds = None,
    set_: Annotated[
        Optional[list[str]],
        typer.Option("--set", metavar="K=V", help="Set a value or a list, as in rho=[0,0.5]. Repeatable."),
    ] = None,
    new_name: NewName = None,
    jobs: Jobs = None,
    time_limit: TimeLimit = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Set finished cells aside and compute them again.")] = False,
    out: Annotated[
        Optional[Path],
        typer.Option("--out", metavar="FILE|DIR", help="Draw a .png, .svg, .pdf or .html; of all studies, a folder."),
    ] = None,
    plain: Plain = False,
    width: FigureWidth = "column",
    json: Json = False,
    on: On = "local",
    detach: Detach = False,
    dry_run: DryRun = False,
    on_node: OnNode = False,
) -> int:
    """Compute, check and record a theory figure of the papers.

    "all" stands for every study, "ci" for every study in its quickest form. Finished cells are not repeated. The exit
    code is 3 if a check fails.
    """
    from lrurun.commands._shared import study_output
    from lrurun.session.study import Computation
    from lrurun.studies.machinery import reporting

    several = name in ("all", "ci")
    if several and (cell or set_ or new_name):
        option = "--name belongs" if new_name else "--cell and --set belong"
        raise UsageError(f"study {name}: {option} to one study", "name the study")
    chosen = profile or ("ci" if name == "ci" else "laptop")
    if chosen not in PROFILES:
        raise UsageError(f"--profile: unknown profile {chosen!r}", hint_for(chosen, PROFILES, "profiles of studies"))
    if name == "ci" and chosen != "ci":
        raise UsageError(
            f"study ci: computes every study in its quickest form, found --profile {chosen}",
            f"lrurun study all --profile {chosen}",
        )
    requests = [
        StudyRequest(
            study=studies.get(study_name).name,
            profile=chosen,
            cells=cell or [],
            seeds=seeds,
            sets=set_ or [],
            name=new_name,
        )
        for study_name in (studies.names() if several else [name])
    ]
    planned = [(request, request.plan()) for request in requests]
    study_output.check_out(out, several=several)
    if (plain or width != "column") and (out is None or out.suffix.lower() == study_output.PAGE):
        option = "--plain" if plain else f"--width {width}"
        raise UsageError(f"{option}: is for figures", "name one, as in --out figure.pdf")
    if seeds is not None and not several and not planned[0][1].study.seeded:
        console.say(f"{requests[0].study}: nothing in it depends on the seed, so it has one seed")
    site = site_of(on)
    options = TrainingOptions(
        jobs=jobs,
        fresh=fresh,
        time_limit=time_limit,
        arguments=context.obj.arguments,
        site=site,
        detach=detach,
        dry_run=dry_run,
        on_node=on_node,
    )
    if site.is_local:
        cautions.warn_of_jobs(jobs)
    drawings = study_output.Drawings(out, several=several, plain=plain, width=width)
    computation = Computation(context.obj.places, planned, options, options.signals(), drawings.add)
    code = study_output.run(computation, options)
    if dry_run or on_node:
        return code
    if code < 128:
        drawings.write_page()
    reports, errors = computation.reports, [*computation.errors, *drawings.errors]
    if json and (several or reports):
        output.write_json(StudiesDocument(reports) if several else reports[0])
    elif not json:
        for report in reports:
            reporting.show(report, brief=several)
    for error in errors:
        console.fail(error)
    return 1 if errors and code < 128 else code

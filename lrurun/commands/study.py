"""`lrurun study`: the theory figures of the papers, computed, checked and recorded like runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from msgspec import Struct

from lrurun import console
from lrurun.commands import study_files, study_report
from lrurun.commands._shared import cautions, opening, output
from lrurun.commands._shared.options import (
    Detach,
    DryRun,
    Jobs,
    Json,
    On,
    OnNode,
    Seeds,
    StudyName,
    TimeLimit,
)
from lrurun.commands._shared.rules import examples
from lrurun.commands._shared.training_options import TrainingOptions, site_of
from lrurun.commands.study_files import Drawings
from lrurun.commands.study_request import PROFILES, SelectedCells, StudyRequest, remember
from lrurun.errors import LrurunError, UsageError, hint_for

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.paths import Places
    from lrurun.report.study import StudyReport
    from lrurun.runner.executors import Executor
    from lrurun.runner.signals import Signals
    from lrurun.runner.supervisor import Outcome
    from lrurun.studies.plan import StudyPlan


class StudiesDocument(Struct, frozen=True):
    """The JSON of `lrurun study all`."""

    studies: list[StudyReport]


@examples(
    "lrurun study ring",
    "lrurun study memory --out memory.pdf",
)
def study(
    context: typer.Context,
    name: StudyName,
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
    jobs: Jobs = None,
    time_limit: TimeLimit = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Set finished cells aside and compute them again.")] = False,
    out: Annotated[
        Optional[Path],
        typer.Option("--out", metavar="FILE|DIR", help="Draw a .png, .svg, .pdf or .html; of all studies, a folder."),
    ] = None,
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
    from lrurun import studies

    several = name in ("all", "ci")
    if several and (cell or set_):
        raise UsageError(f"study {name}: --cell and --set belong to one study", "name the study")
    chosen = profile or ("ci" if name == "ci" else "laptop")
    if chosen not in PROFILES:
        raise UsageError(f"--profile: unknown profile {chosen!r}", hint_for(chosen, PROFILES, "profiles of studies"))
    if name == "ci" and chosen != "ci":
        raise UsageError(
            f"study ci: computes every study in its quickest form, found --profile {chosen}",
            f"lrurun study all --profile {chosen}",
        )
    wanted = [
        StudyRequest(study=studies.get(one).name, profile=chosen, cells=cell or [], seeds=seeds, sets=set_ or [])
        for one in (studies.names() if several else [name])
    ]
    planned = [(request, request.plan()) for request in wanted]
    study_files.check(out, several=several)
    if seeds is not None and not several and not planned[0][1].study.seeded:
        console.say(f"{wanted[0].study}: nothing in it depends on the seed, so it has one seed")
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
    code, reports, errors = compute(
        context.obj.places, planned, options, options.signals(), Drawings(out, several=several)
    )
    if dry_run or on_node:
        return code
    if json and (several or reports):
        output.write_json(StudiesDocument(reports) if several else reports[0])
    elif not json:
        study_report.show(reports, brief=several)
    for error in errors:
        console.fail(error)
    return code


def compute(
    places: Places,
    wanted: Sequence[tuple[StudyRequest, StudyPlan]],
    options: TrainingOptions,
    signals: Signals,
    drawings: Drawings,
) -> tuple[int, list[StudyReport], list[LrurunError]]:
    """Computes what remains of these studies, and draws them.

    A ledger that cannot be written to is enough if it has all their cells.

    Returns: the exit code, the reports, and the errors of studies without a report, if there are several, and of
        figures.

    Raises:
        LrurunError: folders or ledger do not allow it, or the only study has no report.
    """
    from lrurun.runner import records
    from lrurun.runner.preparation import check_runs_folder
    from lrurun.runner.signals import Stopped

    codes, errors = [0], drawings.errors
    reports: list[StudyReport] = []
    executors = [options.make_executor(places, request.arguments()) for request, _ in wanted]
    on_node = options.on_node
    if options.dry_run:
        for executor in executors:
            console.write(executor.script())
        return 0, reports, errors
    if not options.fresh and not opening.is_writable(places) and (found := _recorded(places, wanted, drawings)):
        reports = found
    else:
        try:
            with signals.recorded():
                if not on_node and opening.can_be_created(places):
                    check_runs_folder(places.runs)
                with opening.write(places, training=True, create=not on_node) as ledger:
                    for (request, plan), executor in zip(wanted, executors, strict=True):
                        outcome = _run(ledger, places, request, plan, options, signals, executor)
                        if on_node or (options.detach and outcome.worked):
                            continue
                        codes.append(outcome.exit_code)
                        try:
                            reports.append(study_report.report_of(ledger, request, plan, drawings))
                        except Exception as error:
                            if len(wanted) == 1:
                                raise
                            errors.append(_error_of(request, error))
                        else:
                            study_report.record_checks(ledger, outcome.instance, reports[-1])
                            records.keep_ladder(ledger, places.runs, outcome.instance.key)
                    drawings.write_page()
        except Stopped as stopped:
            return options.stopped(stopped, ""), reports, errors
    if any(report.failed for report in reports):
        codes.append(3)
    return (1 if errors else max(codes)), reports, errors


def _run(
    ledger: Ledger,
    places: Places,
    request: StudyRequest,
    plan: StudyPlan,
    options: TrainingOptions,
    signals: Signals,
    executor: Executor,
) -> Outcome:
    """Computes the cells that remain."""
    from lrurun.report.live import LadderView
    from lrurun.runner.supervisor import Supervisor, while_busy

    with LadderView() as display:
        while_busy(ledger, display.say, signals)
        instance = ledger.add_ladder(plan.name, plan.task, plan.profile, plan.spec, plan.short_name, kind="study")
        remember(ledger, instance, request)
        cells = SelectedCells(plan=plan, cells=request.cells)
        work = cells.work(instance, places, **options.work_fields)
        return options.train(Supervisor(ledger, work, cells, display, signals, executor), lambda: None)


def _recorded(
    places: Places, wanted: Sequence[tuple[StudyRequest, StudyPlan]], drawings: Drawings
) -> list[StudyReport]:
    """The reports of studies that are complete in the ledger as it is; none if one of them is not."""
    from lrurun.report import study as reporting

    ledger = opening.read(places)
    if ledger is None:
        return []
    with ledger:
        if any(reporting.missing(plan, reporting.collect(ledger, plan)) for _, plan in wanted):
            return []
        reports = [study_report.report_of(ledger, request, plan, drawings) for request, plan in wanted]
    drawings.write_page()
    return reports


def _error_of(request: StudyRequest, error: Exception) -> LrurunError:
    """What stopped the report of one of several studies."""
    if isinstance(error, LrurunError):
        return error
    return LrurunError(
        f"{request.study}: a bug in lrurun: {type(error).__name__}: {error}",
        f"{request.command()} --debug shows where; please report what it says",
    )


def repeat(places: Places, request: StudyRequest, options: TrainingOptions, signals: Signals) -> int:
    """Computes what remains of a recorded study, and prints its report; the exit code."""
    code, reports, _ = compute(places, [(request, request.plan())], options, signals, Drawings(None, several=False))
    study_report.show(reports)
    return code

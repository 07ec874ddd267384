"""`lrurun study`: the theory figures of the papers, computed, checked and recorded like runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from msgspec import Struct

from lrurun import console, kinds, studies, table
from lrurun.commands._shared import output
from lrurun.commands._shared.options import (
    Detach,
    DryRun,
    FigureWidth,
    Jobs,
    Json,
    On,
    OnNode,
    Plain,
    Seeds,
    TimeLimit,
)
from lrurun.commands._shared.rules import examples
from lrurun.errors import LrurunError, NotFoundError, UsageError, hint_for
from lrurun.session import cautions, opening
from lrurun.session.training_options import TrainingOptions, site_of
from lrurun.studies import PREFIX
from lrurun.studies.request import PROFILES, SelectedCells, StudyRequest, newest_plan, remember

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.paths import Places
    from lrurun.runner.executors import Executor
    from lrurun.runner.signals import Signals
    from lrurun.runner.supervisor import SupervisorResult
    from lrurun.studies.page import Drawings
    from lrurun.studies.plan import StudyPlan
    from lrurun.studies.report import StudyReport
    from lrurun.studies.study import Results


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
    from lrurun.studies import page
    from lrurun.studies import report as reporting

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
    requests = [
        StudyRequest(study=studies.get(study_name).name, profile=chosen, cells=cell or [], seeds=seeds, sets=set_ or [])
        for study_name in (studies.names() if several else [name])
    ]
    planned = [(request, request.plan()) for request in requests]
    page.check(out, several=several)
    if (plain or width != "column") and (out is None or out.suffix.lower() == page.PAGE):
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
    code, reports, errors = compute(
        context.obj.places,
        planned,
        options,
        options.signals(),
        page.Drawings(out, several=several, plain=plain, width=width),
    )
    if dry_run or on_node:
        return code
    if json and (several or reports):
        output.write_json(StudiesDocument(reports) if several else reports[0])
    elif not json:
        for report in reports:
            reporting.show(report, brief=several)
    for error in errors:
        console.fail(error)
    return code


def compute(
    places: Places,
    planned: Sequence[tuple[StudyRequest, StudyPlan]],
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
    executors = [options.make_executor(places, request.arguments()) for request, _ in planned]
    on_node = options.on_node
    if options.dry_run:
        if options.site.is_local:
            _show_plans(places, planned)
        else:
            for executor in executors:
                console.write(executor.script())
        return 0, reports, errors
    if not options.fresh and not opening.is_writable(places) and (recorded := _recorded(places, planned, drawings)):
        reports = recorded
    else:
        try:
            with signals.recorded():
                if not on_node and opening.can_be_created(places):
                    check_runs_folder(places.runs)
                with opening.write(places, training=True, create=not on_node) as ledger:
                    for (request, plan), executor in zip(planned, executors, strict=True):
                        outcome = _run(ledger, places, request, plan, options, signals, executor)
                        if on_node or (options.detach and outcome.worked):
                            continue
                        codes.append(outcome.exit_code)
                        try:
                            reports.append(_report_of(ledger, request, plan, drawings))
                        except Exception as error:
                            if len(planned) == 1:
                                raise
                            errors.append(_error_of(request, error))
                        else:
                            _record_checks(ledger, outcome.instance, reports[-1])
                            records.keep_ladder(ledger, places.runs, outcome.instance.key)
                    drawings.write_page()
        except Stopped as stopped:
            return options.stopped(stopped, ""), reports, errors
    if any(report.failed for report in reports):
        codes.append(3)
    return (1 if errors else max(codes)), reports, errors


def _show_plans(places: Places, wanted: Sequence[tuple[StudyRequest, StudyPlan]]) -> None:
    """Prints the cells of studies, and how many of their seeds are done."""
    from lrurun.studies import report as reporting

    with opening.read(places) or nullcontext() as ledger:
        for request, plan in wanted:
            results = [] if ledger is None else reporting.collect(ledger, plan)
            done = Counter(result.cell for result in results)
            labels = {cell: plan.study.label(cell) for cell in plan.cells}
            table.show_text(
                ["cell", "done"],
                [
                    [label, f"{done[cell]}/{len(plan.seeds)}"]
                    for cell, label in labels.items()
                    if not request.cells or label in request.cells
                ],
                title=f"study {plan.study.name}, profile {plan.profile}: {plan.study.question}",
            )


def _run(
    ledger: Ledger,
    places: Places,
    request: StudyRequest,
    plan: StudyPlan,
    options: TrainingOptions,
    signals: Signals,
    executor: Executor,
) -> SupervisorResult:
    """Computes the cells that remain."""
    from lrurun.report.live.views import LadderView
    from lrurun.runner.supervisor import Supervisor, while_busy

    with LadderView() as display:
        while_busy(ledger, display.say, signals)
        instance = ledger.add_ladder(plan.name, plan.task, plan.profile, plan.spec, plan.short_name, kind=kinds.STUDY)
        remember(ledger, instance, request)
        cells = SelectedCells(plan=plan, cells=request.cells)
        work = cells.work(instance, places, **options.work_fields)
        return options.train(Supervisor(ledger, work, cells, display, signals, executor))


def _recorded(
    places: Places, planned: Sequence[tuple[StudyRequest, StudyPlan]], drawings: Drawings
) -> list[StudyReport]:
    """The reports of studies that are complete in the ledger as it is; none if one of them is not."""
    from lrurun.studies import report as reporting

    ledger = opening.read(places)
    if ledger is None:
        return []
    with ledger:
        if any(reporting.missing(plan, reporting.collect(ledger, plan)) for _, plan in planned):
            return []
        reports = [_report_of(ledger, request, plan, drawings) for request, plan in planned]
    drawings.write_page()
    return reports


def _error_of(request: StudyRequest, error: Exception) -> LrurunError:
    """The error that stopped the report of one of several studies."""
    if isinstance(error, LrurunError):
        return error
    return LrurunError(
        f"{request.study}: a bug in lrurun: {type(error).__name__}: {error}",
        f"{request.command()} --debug shows where; please report what it says",
    )


def repeat(places: Places, request: StudyRequest, options: TrainingOptions, signals: Signals) -> int:
    """Computes what remains of a recorded study, and prints its report; the exit code."""
    from lrurun.studies import page
    from lrurun.studies import report as reporting

    code, reports, _ = compute(
        places, [(request, request.plan())], options, signals, page.Drawings(None, several=False)
    )
    for report in reports:
        reporting.show(report)
    return code


def _report_of(ledger: Ledger, request: StudyRequest, plan: StudyPlan, drawings: Drawings) -> StudyReport:
    """The report of a study, whose figure is drawn if it is wanted and the study is complete."""
    from lrurun.studies import report as reporting

    results = reporting.collect(ledger, plan)
    report = reporting.build(plan, results)
    if drawings.out is None:
        return report
    if report.unfinished:
        console.warn("; ".join(_incomplete(request, plan, results)))
    return drawings.add(plan, results, report)


def _incomplete(request: StudyRequest, plan: StudyPlan, results: Results[Any]) -> tuple[str, str]:
    """Why there is no figure, and what to do."""
    import msgspec

    from lrurun.studies import report as reporting

    cells = ", ".join(reporting.missing(plan, results))
    whole = msgspec.structs.replace(request, cells=[]).command()
    return f"{plan.study.name}: no figure, because cells are missing: {cells}", f"{whole} computes them"


def write_report(
    places: Places, task: str, profile: str | None, sets: Sequence[str], *, json: bool, out: Path | None
) -> int:
    """Prints the report of a study from the ledger as it is, for the seeds of its newest command, or writes it or its
    figure; the exit code.

    Raises:
        NotFoundError: the ledger has none of its cells, or not all that a figure needs.
        UsageError: a figure as JSON.
    """
    import msgspec

    from lrurun.studies import page
    from lrurun.studies import report as reporting

    request = StudyRequest(study=task.removeprefix(PREFIX), profile=profile or "laptop", sets=list(sets))
    plan = request.plan()
    drawn = out is not None and page.is_drawn(out)
    if drawn and json:
        raise UsageError(f"--json and --out {out} exclude each other", "leave --json out, or name a .json file")
    ledger = opening.read(places)
    results, profiles = None, list[str | None]()
    if ledger is not None:
        with ledger:
            if profile is None and not sets and (largest := reporting.largest(ledger, plan.study)) is not None:
                plan, results = largest
                request = msgspec.structs.replace(request, profile=plan.profile)
            newest = newest_plan(ledger, request, plan)
            if results is None or newest != plan:
                plan, results = newest, reporting.collect(ledger, newest)
            profiles = [instance.profile for instance in ledger.ladders(plan.name, plan.task)]
    unasked = profile is None and plan.profile not in profiles  # cells of another profile are no report of this one
    if not results or (unasked and reporting.missing(plan, results)):
        other_profiles = [other for other in dict.fromkeys(profiles) if other is not None and other != plan.profile]
        problem = (
            f"{places.ledger}: has no cell of the study {plan.study.name} in profile {plan.profile}"
            f"{''.join(f' --set {text}' for text in sets)}"
        )
        existing = f"this ledger has --profile {', '.join(other_profiles)}; or " if other_profiles else ""
        raise NotFoundError(problem, f"{existing}run: {request.command()}")
    report = reporting.build(plan, results)
    if out is None and json:
        output.write_json(report)
    elif out is None:
        reporting.show(report)
    elif drawn:
        if report.unfinished:
            raise NotFoundError(*_incomplete(request, plan, results))
        drawings = page.Drawings(out, several=False)
        drawings.add(plan, results, report)
        drawings.write_page()
        for error in drawings.errors:
            raise error
    else:
        from lrurun.report.formats import as_json

        text = as_json.render(report) if json else reporting.text(report)
        output.write_file(out, text.rstrip("\n").encode() + b"\n")
        console.say(f"wrote {out}")
    return 0


def _record_checks(ledger: Ledger, instance: LadderInstance, report: StudyReport) -> None:
    """Records the checks of a complete study, so that the ledger shows them."""
    import msgspec

    if report.unfinished:
        return
    text = msgspec.json.encode(report.checks).decode()
    recorded = [event.text for event in ledger.events(ladder_key=instance.key) if event.kind == "checks"]
    if text not in recorded[-1:]:
        ledger.event("checks", text, ladder=instance.key)
        for check in report.failed:
            text = f"check failed: {check.name}: measured {check.measured:.6g}, expected {check.rule}"
            ledger.event("warning", text, ladder=instance.key)

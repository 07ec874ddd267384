"""`lrurun study`: the theory figures of the papers, computed, checked and recorded like runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from msgspec import Struct

from lrurun import console
from lrurun.commands import opening, output
from lrurun.commands import request as requests
from lrurun.commands.ladder import Work
from lrurun.commands.options import Jobs, Json, Seeds, StudyName, TimeLimit
from lrurun.commands.request import ASKED
from lrurun.config.schema import STUDY
from lrurun.errors import LrurunError, NotFoundError, UsageError, hint_for

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.paths import Places
    from lrurun.report.study import StudyReport
    from lrurun.runner.signals import Signals
    from lrurun.studies.plan import StudyPlan

PROFILES = ("ci", "laptop", "paper")


class StudyRequest(Struct, frozen=True, kw_only=True):
    """A study with everything that decides its cells; stored in the ledger as JSON."""

    study: str
    profile: str = "laptop"
    cells: list[str] = []
    """Only those with these labels; all of them if empty."""
    seeds: str | None = None
    sets: list[str] = []

    def plan(self) -> StudyPlan:
        """The plan of the study.

        Raises:
            UsageError: an unknown name, or a value that is wrong.
        """
        from lrurun import studies
        from lrurun.config.runs import seeds_of
        from lrurun.config.settings import split_set
        from lrurun.studies import plan as planning

        study = studies.get(self.study)
        changes = dict(split_set(text, "rho=0.5") for text in self.sets)
        made = planning.make(study, self.profile, changes, None if self.seeds is None else seeds_of(self.seeds))
        made.choose(self.cells)
        return made

    def command(self) -> str:
        """The command that computes it."""
        arguments = ["lrurun", "study", self.study]
        arguments += [] if self.profile == "laptop" else ["--profile", self.profile]
        arguments += [argument for name in self.cells for argument in ("--cell", name)]
        arguments += [] if self.seeds is None else ["--seeds", self.seeds]
        return shlex.join([*arguments, *(argument for text in self.sets for argument in ("--set", text))])


class Selected(Struct, frozen=True, kw_only=True):
    """The cells that a command is for: what the supervisor of runs needs to know about them."""

    plan: StudyPlan
    cells: Sequence[str]
    fresh: bool = False

    @property
    def seeds(self) -> Sequence[int]:
        return self.plan.seeds

    @property
    def names(self) -> Sequence[str]:
        return self.plan.choose(self.cells)

    @property
    def data_name(self) -> str:
        return ""

    def instance(self, ledger: Ledger) -> LadderInstance:
        return ledger.add_ladder(self.plan.name, self.plan.task, self.plan.profile, self.plan.spec)

    def tuning(self) -> dict[str, list[Any]]:
        return {}

    def final(self) -> list[Any]:
        return self.plan.runs(self.cells)

    def chosen(self, rung: str, results: Sequence[Any]) -> tuple[None, list[Any]]:
        raise NotImplementedError("studies are not tuned")

    def settings(self, config: Any) -> Any:
        return {name: value for name, value in config.items() if name != "seed"}


class StudiesDocument(Struct, frozen=True):
    """The JSON of `lrurun study all`."""

    studies: list[StudyReport]


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
    plans = [request.plan() for request in wanted]
    _check_out(out, several)
    work = Work(jobs=jobs, fresh=fresh, time_limit=time_limit, arguments=context.obj.arguments)
    code, reports, errors = compute(
        context.obj.places, list(zip(wanted, plans, strict=True)), work, work.signals(), out
    )
    if json:
        output.write_json(StudiesDocument(reports) if several else reports[0])
    else:
        for report in reports:
            show(report, brief=several)
    for error in errors:
        console.fail(error)
    return code


def compute(
    places: Places,
    wanted: Sequence[tuple[StudyRequest, StudyPlan]],
    work: Work,
    signals: Signals,
    out: Path | None = None,
) -> tuple[int, list[StudyReport], list[LrurunError]]:
    """Computes what remains of these studies, and draws them.

    Returns: the exit code, the reports, and the errors of studies without a report, if there are several.

    Raises:
        LrurunError: folders or ledger do not allow it, or the only study has no report.
    """
    from lrurun.report.live import LadderView
    from lrurun.runner.preparation import check_runs_folder
    from lrurun.runner.signals import Stopped
    from lrurun.runner.supervisor import Supervisor
    from lrurun.runner.waiting import while_busy

    codes, found, errors = [0], [], []
    try:
        with signals.recorded():
            if places.ledger.absolute().parent.is_dir():
                check_runs_folder(places)
            with opening.write(places, training=True) as ledger:
                for request, plan in wanted:
                    with LadderView() as display:
                        while_busy(ledger, display.say, signals)
                        selection = Selected(plan=plan, cells=request.cells, fresh=work.fresh)
                        instance = selection.instance(ledger)
                        _remember(ledger, instance, request)
                        supervisor = Supervisor(ledger, places, selection, display, signals, jobs=work.jobs)
                        outcome = supervisor.run(lambda: None)
                    codes.append(outcome.exit_code)
                    try:
                        found.append(_reported(ledger, request, plan, out, several=len(wanted) > 1))
                    except Exception as error:
                        if len(wanted) == 1:
                            raise
                        errors.append(_error_of(request, error))
                    else:
                        _record_checks(ledger, instance, found[-1][0])
                if found and out is not None and (len(wanted) > 1 or out.suffix == ".html"):
                    _write_page(found, out / "index.html" if len(wanted) > 1 else out)
    except Stopped as stopped:
        console.say(f"stopped by {stopped}; the same command continues: {work.command}")
        return stopped.exit_code, [report for report, _ in found], errors
    reports = [report for report, _ in found]
    if any(report.failed for report in reports):
        codes.append(3)
    return (1 if errors else max(codes)), reports, errors


def _error_of(request: StudyRequest, error: Exception) -> LrurunError:
    """What stopped the report of one of several studies."""
    if isinstance(error, LrurunError):
        return error
    return LrurunError(
        f"{request.study}: a bug in lrurun: {type(error).__name__}: {error}",
        f"{request.command()} --debug shows where; please report what it says",
    )


def repeat(places: Places, request: StudyRequest, work: Work, signals: Signals) -> int:
    """Computes what remains of a recorded study, and prints its report; the exit code."""
    code, reports, _ = compute(places, [(request, request.plan())], work, signals)
    for report in reports:
        show(report)
    return code


def show(report: StudyReport, *, brief: bool = False) -> None:
    """Prints a report; a brief one has only those checks that failed."""
    from lrurun.report import study as reporting

    failed = report.failed
    counts = reporting.counts(report)
    if brief:
        console.write(f"{report.study}: {counts}. {report.answer} {report.stand_in}".rstrip())
    else:
        for line in reporting.sentences(report):
            console.write(line)
    shown = failed if brief else report.checks
    if shown:
        console.table(None, reporting.HEADERS, reporting.rows(shown))
    if not brief and report.checks:
        console.write(counts)


def _check_out(out: Path | None, several: bool) -> None:
    from lrurun.report import figure_style

    if out is None:
        return
    if several:
        if out.exists() and not out.is_dir():
            raise UsageError(f"--out {out}: is a file, but several studies need a folder", "name a folder")
    elif out.suffix not in (*figure_style.SUFFIXES, ".html"):
        found = repr(out.suffix) if out.suffix else "no suffix"
        raise UsageError(
            f"--out {out}: the name must end in .png, .svg, .pdf or .html, found {found}", "as in --out figure.png"
        )


def _reported(
    ledger: Ledger, request: StudyRequest, plan: StudyPlan, out: Path | None, *, several: bool
) -> tuple[StudyReport, Any]:
    """The report of a study and its drawing, which is written if it is wanted and the study is complete."""
    import msgspec

    from lrurun.report import figure_style
    from lrurun.report import study as reporting

    results = reporting.collect(ledger, plan)
    report = reporting.build(plan, results)
    if out is not None and report.unfinished:
        whole = msgspec.structs.replace(request, cells=[]).command()
        cells = ", ".join(reporting.missing(plan, results))
        console.warn(f"{plan.study.name}: no figure, because cells are missing: {cells}; {whole} computes them")
    if out is None or report.unfinished:
        return report, None
    try:
        from lrurun.report import study_page

        drawing = study_page.drawing(plan, results, report)
    except ModuleNotFoundError as error:
        raise LrurunError(
            f"{plan.study.name}: its numbers are recorded, but {error.name} is missing, which draws figures",
            f"pip install {error.name}, then run the same command",
        ) from None
    files = [out / f"{plan.study.name}{suffix}" for suffix in (".png", ".svg")] if several else [out]
    for file in files:
        if file.suffix in figure_style.SUFFIXES:
            _make_folder(file.parent)
            output.write_file(file, figure_style.encode(drawing, file.suffix))
            console.say(f"wrote {file}")
    return msgspec.structs.replace(report, figure=str(files[0])), drawing


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LrurunError(f"{folder}: {error.strerror}", "choose another --out") from None


def _write_page(found: Sequence[tuple[StudyReport, Any]], file: Path) -> None:
    from lrurun.report import study_page

    _make_folder(file.parent)
    output.write_file(file, (study_page.render(found) + "\n").encode())
    console.say(f"wrote {file}")


def _remember(ledger: Ledger, instance: LadderInstance, request: StudyRequest) -> None:
    """Records the request, unless it is the newest, so that `resume` can repeat it and `report` knows its seeds."""
    import msgspec

    text = msgspec.json.encode(request).decode()
    if text not in requests.texts(ledger, instance)[-1:]:
        ledger.event(ASKED, text, ladder=instance.key)


def write_report(
    places: Places, task: str, profile: str | None, sets: Sequence[str], *, json: bool, out: Path | None
) -> int:
    """Prints the report of a study from the ledger as it is, for the seeds of its newest command; the exit code.

    Raises:
        NotFoundError: the ledger has none of its cells.
    """
    from lrurun.report import study as reporting

    request = StudyRequest(study=task.removeprefix(STUDY), profile=profile or "laptop", sets=list(sets))
    plan = request.plan()
    ledger = opening.read(places)
    results, profiles = None, list[str | None]()
    if ledger is not None:
        with ledger:
            plan = _newest(ledger, request, plan)
            results = reporting.collect(ledger, plan)
            profiles = [one.profile for one in ledger.ladders(plan.name, plan.task)]
    if not results:
        others = [one for one in dict.fromkeys(profiles) if one is not None]
        what = (
            f"{places.ledger}: has no cell of the study {plan.study.name} in profile {plan.profile} with these settings"
        )
        known = f"this ledger has --profile {', '.join(others)}; or " if others else ""
        raise NotFoundError(what, f"{known}run: {request.command()}")
    report = reporting.build(plan, results)
    if out is None and json:
        output.write_json(report)
    elif out is None:
        show(report)
    else:
        from lrurun.report.formats import json as as_json

        output.write_file(out, (as_json.render(report) if json else _text(report)).rstrip("\n").encode() + b"\n")
        console.say(f"wrote {out}")
    return 0


def _newest(ledger: Ledger, request: StudyRequest, plan: StudyPlan) -> StudyPlan:
    """The plan with the seeds of the newest command on this study, profile and settings."""
    import msgspec

    for instance in ledger.ladders(plan.name, plan.task):
        if (instance.profile, instance.spec) == (plan.profile, plan.spec):
            for newest in requests.recorded(ledger, instance, StudyRequest)[-1:]:
                return msgspec.structs.replace(request, seeds=newest.seeds).plan()
    return plan


def _text(report: StudyReport) -> str:
    """What `show` prints, as text for a file."""
    from lrurun.report import study as reporting

    rows = reporting.rows(report.checks)
    lines = [*reporting.sentences(report), *(console.aligned(None, reporting.HEADERS, rows) if rows else ())]
    return "\n".join([*lines, *([reporting.counts(report)] if rows else ())])


def _record_checks(ledger: Ledger, instance: LadderInstance, report: StudyReport) -> None:
    """Records the checks of a complete study, so that the ledger shows them."""
    import msgspec

    if report.unfinished:
        return
    text = msgspec.json.encode(report.checks).decode()
    known = [event.text for event in ledger.events(ladder_key=instance.key) if event.kind == "checks"]
    if text not in known[-1:]:
        ledger.event("checks", text, ladder=instance.key)
        for check in report.failed:
            text = f"check failed: {check.name}: measured {check.measured:.6g}, expected {check.rule}"
            ledger.event("warning", text, ladder=instance.key)

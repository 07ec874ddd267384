"""Studies from Python, `lrurun.study`; and the computation of what remains of studies, which commands share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct, json, structs

from lrurun import console, studies
from lrurun.errors import (
    FailedChecksError,
    LrurunError,
    NotFoundError,
    UnfinishedError,
    UsageError,
    check_type,
    hint_for,
    plural,
    raise_first,
)
from lrurun.judging.judged_claim import JudgedClaim
from lrurun.reading.rows import Rows, columns_of
from lrurun.session import forgetting, opening
from lrurun.session.arguments import (
    AnyPath,
    check_width,
    given_places,
    names_of_arguments,
    plain_value,
    seeds_of,
    text_of,
    texts,
    training_options,
)
from lrurun.studies.machinery.checks import Check
from lrurun.studies.machinery.request import PROFILES, SelectedCells, StudyRequest, newest_plan, remember

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.paths import Places
    from lrurun.report.frame_columns import Columns
    from lrurun.report.widths import Width
    from lrurun.runner.executors import Executor
    from lrurun.runner.signals import Signals
    from lrurun.runner.supervisor import SupervisorResult
    from lrurun.session.training_options import TrainingOptions
    from lrurun.studies.machinery.planning import StudyPlan
    from lrurun.studies.machinery.reporting import CellOutput, StudyReport
    from lrurun.studies.machinery.study import Results

Draw = Callable[[StudyRequest, "StudyPlan", "Results[Any]", "StudyReport"], "StudyReport"]
"""Draws a study; its report, with the name of the figure."""


class Computation:
    """What remains of studies, with how and where it is computed."""

    def __init__(
        self,
        places: Places,
        planned: Sequence[tuple[StudyRequest, StudyPlan]],
        options: TrainingOptions,
        signals: Signals,
        draw: Draw | None = None,
    ) -> None:
        self.reports: list[StudyReport] = []
        """The reports of the studies that were computed so far."""
        self.errors: list[LrurunError] = []
        """Why studies have no report, if there are several."""
        self._places, self._planned, self._options = places, planned, options
        self._signals, self._draw, self._codes = signals, draw, [0]

    @property
    def exit_code(self) -> int:
        """1 if a study has no report, 3 if cells were not finished or a check fails, else 0."""
        if self.errors:
            return 1
        return max(*self._codes, 3 if any(report.failed for report in self.reports) else 0)

    def planned(self) -> list[tuple[str, list[PlannedCell]]]:
        """A title for each study, and its requested cells with how many of their seeds are done."""
        with opening.read(self._places) as ledger:
            return [
                (
                    f"study {plan.study.name}, profile {plan.profile}: {plan.study.question}",
                    planned_cells(ledger, request, plan),
                )
                for request, plan in self._planned
            ]

    def executors(self) -> list[Executor]:
        """The executor of each study, which is checked. Nothing is written. Raises LrurunError if it cannot work."""
        return [self._options.make_executor(self._places, request.arguments()) for request, _ in self._planned]

    def run(self) -> None:
        """Computes what remains, with a live view; each study is drawn when it is complete.

        A ledger that cannot be written to is enough if it has all cells.

        Raises:
            Stopped: a signal or the time limit stopped it.
            LrurunError: folders or ledger do not allow it, or the only study has no report.
        """
        from lrurun.runner.preparation import check_runs_folder

        executors, on_node = self.executors(), self._options.on_node
        if not self._options.fresh and not opening.is_writable(self._places) and self._is_recorded():
            return
        with self._signals.recorded():
            if not on_node and opening.can_be_created(self._places):
                check_runs_folder(self._places.runs)
            with opening.write(self._places, training=True, create=not on_node) as ledger:
                forgetting.go_on(ledger, self._places)  # before a cell that was forgotten is queued again
                for (request, plan), executor in zip(self._planned, executors, strict=True):
                    self._run(ledger, request, plan, executor)

    def check(self) -> None:
        """Raises what its exit code stands for.

        Raises:
            FailedChecksError: a check fails.
            UnfinishedError: some cells are not finished.
            LrurunError: a study has no report.
        """
        raise_first(self.errors)
        for report in self.reports:
            if failed := report.failed:
                raise FailedChecksError(
                    f"{report.study}: {len(failed)} of {plural(len(report.checks), 'check')} failed: "
                    f"{'; '.join(f'{check.name}: {check.measured:.6g}, expected {check.rule}' for check in failed)}",
                    "report() has all of them",
                )
            if self.exit_code:
                raise UnfinishedError(
                    f"{report.study}: {plural(report.unfinished, 'cell')} not finished",
                    "call train() again to retry them",
                )

    def _is_recorded(self) -> bool:
        """Whether all studies are complete in the ledger as it is, which then have reports."""
        from lrurun.studies.machinery import reporting

        with opening.read(self._places) as ledger:
            if any(reporting.missing(plan, reporting.collect(ledger, plan)) for _, plan in self._planned):
                return False
            self.reports = [self._report(ledger, request, plan) for request, plan in self._planned]
        return True

    def _run(self, ledger: Ledger, request: StudyRequest, plan: StudyPlan, executor: Executor) -> None:
        """Computes the cells of a study that remain, and makes its report."""
        from lrurun.runner import run_files

        end = self._supervise(ledger, request, plan, executor)
        if self._options.on_node or (self._options.detach and end.worked):
            return
        self._codes.append(end.exit_code)
        try:
            self.reports.append(self._report(ledger, request, plan))
        except Exception as error:
            if len(self._planned) == 1:
                raise
            self.errors.append(_error_of(request, error))
        else:
            _record_checks(ledger, end.instance, self.reports[-1])
            run_files.keep_ladder(ledger, self._places.runs, end.instance.key)

    def _supervise(
        self, ledger: Ledger, request: StudyRequest, plan: StudyPlan, executor: Executor
    ) -> SupervisorResult:
        from lrurun.instances import lookup, naming, phrases
        from lrurun.report.live.views import LadderView
        from lrurun.runner.supervisor import Supervisor, while_busy

        with LadderView() as display:
            while_busy(ledger, display.say, self._signals)
            names = plan.name, plan.task, plan.profile
            before = lookup.find_same(ledger, *names, plan.spec)
            instance = ledger.add_ladder(
                *names,
                plan.spec,
                plan.short_name,
                kind=studies.STUDY,
                others=naming.of_parts(ledger, plan.name_parts),
                chosen=None if self._options.on_node else request.name,
            )
            if renamed := naming.renamed(before, instance):
                display.say(renamed)
            if instance.key in ledger.hidden():
                display.say(phrases.hidden(instance))
            remember(ledger, instance, request)
            cells = SelectedCells(plan=plan, cells=request.cells)
            work = cells.work(instance, self._places, **self._options.work_fields)
            return self._options.train(Supervisor(ledger, work, cells, display, self._signals, executor))

    def _report(self, ledger: Ledger, request: StudyRequest, plan: StudyPlan) -> StudyReport:
        from lrurun.studies.machinery import reporting

        results = reporting.collect(ledger, plan)
        report = reporting.build(plan, results)
        return report if self._draw is None else self._draw(request, plan, results, report)


def _error_of(request: StudyRequest, error: Exception) -> LrurunError:
    """The error that stopped the report of one of several studies."""
    if isinstance(error, LrurunError):
        return error
    return LrurunError(
        f"{request.study}: a bug in lrurun: {type(error).__name__}: {error}",
        f"{request.command()} --debug shows where; please report what it says",
    )


def _record_checks(ledger: Ledger, instance: LadderInstance, report: StudyReport) -> None:
    """Records the checks of a complete study, so that the ledger shows them."""
    if report.unfinished:
        return
    text = json.encode(report.checks).decode()
    recorded = [event.text for event in ledger.events(ladder_key=instance.key) if event.kind == "checks"]
    if text not in recorded[-1:]:
        ledger.event("checks", text, ladder=instance.key)
        for check in report.failed:
            text = f"check failed: {check.name}: measured {check.measured:.6g}, expected {check.rule}"
            ledger.event("warning", text, ladder=instance.key)


def incomplete(request: StudyRequest, plan: StudyPlan, results: Results[Any]) -> tuple[str, str]:
    """Why a study has no figure, and what to do."""
    from lrurun.studies.machinery import reporting

    cells = ", ".join(reporting.missing(plan, results))
    whole = structs.replace(request, cells=[]).command()
    return f"{plan.study.name}: no figure, because cells are missing: {cells}", f"{whole} computes them"


def recorded(
    places: Places, name: str, profile: str | None, sets: Sequence[str]
) -> tuple[StudyRequest, StudyPlan, Results[Any]]:
    """The cells of a study that the ledger has, for the seeds of its newest command.

    Args:
        profile: None for the largest profile that is complete.
        sets: the values of `--set`.

    Raises:
        NotFoundError: the ledger has none.
    """
    from lrurun.studies.machinery import reporting

    request = StudyRequest(study=name, profile=profile or "laptop", sets=list(sets))
    plan = request.plan()
    results = None
    with opening.read(places) as ledger:
        if profile is None and not sets and (largest := reporting.largest(ledger, plan.study)) is not None:
            plan, results = largest
            request = structs.replace(request, profile=plan.profile)
        newest = newest_plan(ledger, request, plan)
        if results is None or newest != plan:
            plan, results = newest, reporting.collect(ledger, newest)
        profiles = [instance.profile for instance in ledger.ladders(plan.name, plan.task)]
    unasked = profile is None and plan.profile not in profiles  # cells of another profile are no report of this one
    if not results or (unasked and reporting.missing(plan, results)):
        raise _no_cells(places, request, profiles)
    return request, plan, results


def _no_cells(places: Places, request: StudyRequest, profiles: Iterable[str | None]) -> NotFoundError:
    """The error for a study without cells in the ledger, which has some of these profiles."""
    others = [other for other in dict.fromkeys(profiles) if other is not None and other != request.profile]
    problem = (
        f"{places.ledger}: has no cell of the study {studies.get(request.study).name} in profile {request.profile}"
        f"{''.join(f' --set {text}' for text in request.sets)}"
    )
    existing = f"this ledger has --profile {', '.join(others)}; or " if others else ""
    return NotFoundError(problem, f"{existing}run: {request.command()}")


class PlannedCell(Struct, frozen=True, kw_only=True):
    """A cell of a study, before it is computed."""

    cell: str
    """Its label."""
    settings: dict[str, Any]
    seeds: int
    done: int
    """How many seeds have a result."""


def planned_cells(ledger: Ledger, request: StudyRequest, plan: StudyPlan) -> list[PlannedCell]:
    """The requested cells, in the order of the grid."""
    from lrurun.studies.machinery import reporting

    done = Counter(result.cell for result in reporting.collect(ledger, plan))
    return [
        PlannedCell(cell=label, settings=structs.asdict(cell), seeds=len(plan.seeds), done=done[cell])
        for cell in plan.cells
        if (label := plan.study.label(cell)) in request.cells or not request.cells
    ]


class StudyResult:
    """The report of a study: its cells, checks and claims are data frames; in a notebook, a page with the figure."""

    def __init__(self, plan: StudyPlan, results: Results[Any]) -> None:
        from lrurun.studies.machinery import reporting

        self._plan, self._results = plan, results
        self.report: StudyReport = reporting.build(plan, results)
        """The values of `lrurun study --json`."""

    def __repr__(self) -> str:
        from lrurun.studies.machinery import reporting

        return reporting.text(self.report)

    @property
    def answer(self) -> str:
        """The result in a sentence; empty while cells are missing."""
        return self.report.answer

    @property
    def cells(self) -> Rows[CellOutput]:
        """The finished cells; in a data frame, their settings and values are columns."""
        return Rows(self.report.cells, _columns_of_cells)

    @property
    def checks(self) -> Rows[Check]:
        """The checks; none while cells are missing."""
        return Rows(self.report.checks, columns_of(Check.__struct_fields__))

    @property
    def claims(self) -> Rows[JudgedClaim]:
        """The claims of the paper that this profile judges; none while cells are missing."""
        return Rows(self.report.claims, columns_of(JudgedClaim.__struct_fields__))

    @cached_property
    def page(self) -> str:
        """The report as an HTML page, with the figure if the study is complete."""
        from lrurun.studies.machinery import study_pages

        figure = ""
        if not self.report.unfinished:
            figure = study_pages.inline(self.report, self._plan.study.figure(self._results))
        return study_pages.render([(self.report, figure)])

    def _repr_html_(self) -> str:
        """The page, in a frame."""
        from lrurun.report.formats import pages

        return pages.render("frame.html", title=self.report.about.question, page=self.page)


def _columns_of_cells(cells: Sequence[CellOutput]) -> Columns:
    """Run, label, seed and state of cells, their settings, and their values. A list is text."""
    names: dict[str, Sequence[Any]] = {
        "run": [cell.id for cell in cells],
        "cell": [cell.arch for cell in cells],
        "seed": [cell.seed for cell in cells],
        "state": [cell.state for cell in cells],
    }
    settings = dict.fromkeys(name for cell in cells for name in cell.grid)
    values = dict.fromkeys(name for cell in cells for name in cell.values)
    grid = {name: [cell.grid.get(name) for cell in cells] for name in settings}
    for name, column in grid.items():
        if any(isinstance(value, list | dict) for value in column):
            grid[name] = [console.setting(value) for value in column]
    return {**names, **grid, **{name: [cell.values.get(name) for cell in cells] for name in values}}


class StudySession:
    """A theory figure of a paper, which is planned, computed, reported and drawn.

    `lrurun.study` makes it. Its methods have the names that they have for a ladder: its cells are computed by workers
    and recorded as runs, as the runs of a ladder are. They raise the same exceptions, which `LadderSession` lists, and
    `FailedChecksError` (3) where a check fails.
    """

    def __init__(self, places: Places, request: StudyRequest) -> None:
        self.places = places
        """The ledger, the folder of all runs and the folder of all data."""
        self.request = request
        """The study, and all that decides its cells."""
        self._plan = request.plan()

    def __repr__(self) -> str:
        """The command that computes the same, for example `<lrurun study ring --profile ci>`."""
        return f"<{self.request.command()}>"

    @property
    def question(self) -> str:
        """The question that the study answers."""
        return self._plan.study.question

    @names_of_arguments()
    def plan(self) -> Rows[PlannedCell]:
        """The cells, and how many of their seeds are done; in a data frame, their settings are columns."""
        with opening.read(self.places) as ledger:
            return Rows(planned_cells(ledger, self.request, self._plan), _columns_of_plan)

    @names_of_arguments()
    def train(
        self,
        *,
        jobs: int | None = None,
        time_limit: str | float | None = None,
        on: str = "local",
        detach: bool = False,
        fresh: bool = False,
    ) -> None:
        """Computes the cells that remain, in worker processes, and returns when all are finished and checked.

        The process that calls needs no jax. What stops and what continues it is as for `LadderSession.train`.

        Args:
            jobs: the number of worker processes; None for as many as the machine has cores for.
            time_limit: seconds, or a text as "45m", "1h30m" or "12:00:00".
            on: where cells are computed: "local", "slurm", "ray", or a table of your configuration file.
            detach: whether to return once a job is submitted.
            fresh: whether finished cells are set aside and computed again.

        Raises:
            Stopped: a signal or the time limit stopped it.
            UnfinishedError: some cells have failed three times.
            FailedChecksError: a check fails; `report` has all of them.
            UsageError: a wrong argument.
            LrurunError: folders, ledger or executor do not allow it.
        """
        options = training_options(jobs=jobs, time_limit=time_limit, on=on, detach=detach, fresh=fresh)
        computation = Computation(self.places, [(self.request, self._plan)], options, options.signals())
        with options.sentences():
            computation.run()
        computation.check()

    @names_of_arguments()
    def report(self) -> StudyResult:
        """The report of the cells that the ledger has. Raises NotFoundError if it has none."""
        return StudyResult(self._plan, self._results())

    @names_of_arguments()
    def plot(self, *, plain: bool = False, width: Width = "column") -> Figure:
        """The figure of the study, a `Figure` of Matplotlib.

        Args:
            plain: whether it is drawn without title and caption, as for a paper.
            width: "column" (3.3 inches) or "page" (6.75).

        Raises:
            NotFoundError: cells are missing.
            UsageError: an unknown width.
        """
        from lrurun.report.figures import figure_files
        from lrurun.studies.machinery import reporting, study_pages

        check_width(width)
        results = self._results()
        if reporting.missing(self._plan, results):
            raise NotFoundError(*incomplete(self.request, self._plan, results))
        figure = self._plan.study.figure(results)
        report = reporting.build(self._plan, results)
        return figure_files.shown(figure if plain else study_pages.captioned(report, figure), width)

    def _results(self) -> Results[Any]:
        from lrurun.studies.machinery import reporting

        with opening.read(self.places) as ledger:
            results = reporting.collect(ledger, self._plan)
            if not results:
                instances = ledger.ladders(self._plan.name, self._plan.task)
                raise _no_cells(self.places, self.request, [instance.profile for instance in instances])
            return results


@names_of_arguments()
def study(
    name: str,
    *,
    profile: str = "laptop",
    cells: str | Sequence[str] = (),
    seeds: int | Sequence[int] | None = None,
    set: Mapping[str, Any] | None = None,
    ledger: AnyPath | None = None,
    runs_dir: AnyPath | None = None,
    data_dir: AnyPath | None = None,
) -> StudySession:
    """A theory figure of a paper, which can be planned, computed, reported and drawn: what `lrurun study` is given.

    Nothing is computed or written yet.

        study = lrurun.study("ring", profile="ci")
        study.train()
        study.report()

    Args:
        name: of a study, or an alias, as "ring" or "lru-fig8".
        profile: "ci", "laptop" or "paper".
        cells: only cells with these labels; empty for all.
        seeds: a number (3 stands for 0, 1, 2) or a list; None for the number in the profile.
        set: setting -> its value, or a list of values, which makes it an axis of the grid.
        ledger: a file, or the URL of a PostgreSQL database; None for the ledger of the commands.
        runs_dir: the folder of logs, or its URL; None for the one beside the ledger.
        data_dir: the folder of all data; None for the one of the commands.

    Raises:
        UsageError: an unknown name, a value that is out of range, or an argument of another type.
    """
    hint = 'as in study("memory", profile="ci", seeds=3, set={"rho": [0, 0.9]})'
    check_type("name", name, str, "text", hint)
    check_type("profile", profile, str, "text", hint)
    check_type("set", set, Mapping | None, "a mapping", hint)
    if profile not in PROFILES:
        raise UsageError(f"profile: unknown profile {profile!r}", hint_for(profile, PROFILES, "profiles of studies"))
    request = StudyRequest(
        study=studies.get(name.removeprefix(studies.PREFIX)).name,
        profile=profile,
        cells=texts("cells", cells, 'as in cells=["rho=0"]'),
        seeds=seeds_of(seeds),
        sets=[f"{text_of('set', path, hint)}={_written(plain_value(value))}" for path, value in (set or {}).items()],
    )
    return StudySession(given_places(ledger, runs_dir, data_dir), request)


def _written(value: Any) -> str:
    """A value as `--set` takes it, which keeps a float apart from a whole number."""
    return repr(value) if isinstance(value, float) else console.setting(value)


def _columns_of_plan(cells: Sequence[PlannedCell]) -> Columns:
    settings = dict.fromkeys(name for cell in cells for name in cell.settings)
    return {
        "cell": [cell.cell for cell in cells],
        "seeds": [cell.seeds for cell in cells],
        "done": [cell.done for cell in cells],
        **{name: [console.setting(cell.settings[name]) for cell in cells] for name in settings},
    }

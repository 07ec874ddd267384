"""Studies as a kind of runs: what the rest of the program asks of them. Everything is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from msgspec import Struct

from lrurun import studies
from lrurun.config.schema import CELL
from lrurun.errors import LrurunError
from lrurun.kinds import OwnReports, Page, TaskEvidence, limited
from lrurun.studies import PREFIX

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import LadderInstance, Run
    from lrurun.paths import Places
    from lrurun.studies.machinery.study import Study


class StudyKind(OwnReports):
    """The cells of studies."""

    plural = "studies"
    uses_jax = True

    def environment(self, threads: int) -> Mapping[str, str]:
        """One thread for NumPy's linear algebra: threads of several workers would wait for each other, thirty times
        longer than they compute with matrices of size 500, and the last bits would depend on the cores."""
        return limited(1)

    @property
    def request(self) -> type[Struct]:
        from lrurun.studies.machinery.request import StudyRequest

        return StudyRequest

    def execute(self, attempt: Any, stop: Any) -> None:
        from lrurun.studies.machinery import execution

        execution.execute(attempt, stop)

    def described(self, run: Run) -> str:
        from lrurun.studies.machinery.planning import cell_of

        try:
            study = studies.of_task(run.task)
            return study.described(cell_of(study, run.config, run.task))
        except LrurunError:
            return ""

    def settings(self) -> dict[str, Any]:
        tables = [get_type_hints(study.settings) for study in studies.every()]
        return {f"{CELL}{name}": hint for table in tables for name, hint in table.items()}

    def task(self, task: str) -> str:
        return PREFIX + studies.of_task(task).name

    def named(self) -> Sequence[Study[Any]]:
        return studies.every()

    def get(self, name: str) -> Study[Any]:
        return studies.get(name)

    def check(self, name: str) -> list[tuple[str, bool, str]]:
        from lrurun.studies.machinery import execution, planning

        study = studies.get(name)
        return [
            (
                check.name,
                check.passed,
                f"{check.kind}: measured {check.measured:.6g}, expected {check.expected:.6g}, {check.rule}",
            )
            for check in study.checks(execution.in_process(planning.make(study, "ci", {})))
        ]

    def evidence(self, ledger: Ledger | None, task: str | None) -> dict[str, TaskEvidence]:
        from lrurun.studies.machinery import claims

        return claims.evidence(ledger, [study for study in studies.every() if task in (None, PREFIX + study.name)])

    def conclusion(self, ledger: Ledger, instance: LadderInstance) -> str:
        from lrurun.studies.machinery import reporting

        plan = reporting.plan_of(ledger, instance)
        return reporting.build(plan, reporting.collect(ledger, plan)).answer or "Not finished."

    def page(self, ledger: Ledger, instance: LadderInstance, figure: str) -> Page:
        from lrurun.report.formats import pages
        from lrurun.studies.machinery import page, reporting

        plan = reporting.plan_of(ledger, instance)
        result = reporting.build(plan, reporting.collect(ledger, plan))
        section = page.section(result, "" if result.unfinished else figure)
        return Page(heading=f"{result.study}: {result.about.question}", body=pages.render("study.html", study=section))

    def drawing(self, ledger: Ledger, instance: LadderInstance) -> bytes:
        from lrurun.report.figures import figure_files
        from lrurun.studies.machinery import reporting

        plan = reporting.plan_of(ledger, instance)
        results = reporting.collect(ledger, plan)
        if missing := reporting.missing(plan, results):
            raise LrurunError(f"{plan.study.name}: no figure, because cells are missing: {', '.join(missing)}")
        return figure_files.render(plan.study.figure(results), ".svg")

    def write_report(
        self, places: Places, task: str, profile: str | None, sets: Sequence[str], *, json: bool, out: Path | None
    ) -> int:
        from lrurun.studies.machinery import command

        return command.write_report(places, task, profile, sets, json=json, out=out)

    def repeat(self, places: Places, request: Any, options: Any, signals: Any) -> int:
        from lrurun.studies.machinery import command

        return command.repeat(places, request, options, signals)


KIND = StudyKind()

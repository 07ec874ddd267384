"""The report of a study: its cells as the ledger has them, its checks, and the result in one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct, to_builtins

from lrurun import console, studies, table
from lrurun.config.runs import parse_seeds
from lrurun.errors import plural
from lrurun.instances import requests
from lrurun.judging.judged_claim import JudgedClaim
from lrurun.ledger.values import FINISHED
from lrurun.studies.machinery import planning
from lrurun.studies.machinery.checks import Check, failed
from lrurun.studies.machinery.evidence import judge
from lrurun.studies.machinery.planning import cell_of
from lrurun.studies.machinery.study import CellResult, Results, Study

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance, Run
    from lrurun.studies.machinery.planning import StudyPlan


HEADERS = ("", "kind", "check", "measured", "expected", "rule")
"""The headers of the table of checks."""


class About(Struct, frozen=True):
    """Where the figure is from."""

    paper: str
    question: str
    published: str


class CellOutput(Struct, frozen=True, kw_only=True):
    """A cell and its run."""

    id: str
    arch: str
    grid: dict[str, Any]
    seed: int
    state: str
    values: dict[str, float]


class StudyReport(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun study`."""

    json_fields: ClassVar[Mapping[str, Sequence[str]]] = {"claims": ("text", "source", "verdict", "detail")}
    study: str
    profile: str
    about: About
    cells: list[CellOutput]
    unfinished: int
    """How many cells of the grid have no result; there are no checks and no answer then."""
    checks: list[Check]
    claims: list[JudgedClaim]
    """The paper's claims about which this profile says something."""
    answer: str
    figure: str | None
    substitute: str | None
    """What stands in for the paper's data or scale."""

    @property
    def failed(self) -> list[Check]:
        return failed(self.checks)

    @property
    def stand_in(self) -> str:
        """A sentence, or nothing."""
        return f"Stand-in: {self.substitute}" if self.substitute else ""


def collect(ledger: Ledger, plan: StudyPlan) -> Results[Any]:
    """The finished cells of a plan, in its order."""
    study = plan.study
    fingerprints = [run.fingerprint for run in plan.runs()]
    runs = {run.fingerprint: run for run in _runs(ledger, plan, fingerprints)}
    cells = []
    for run in (runs[fingerprint] for fingerprint in fingerprints if fingerprint in runs):
        curves = ledger.metrics(run.id)
        cells.append(
            CellResult(
                cell=cell_of(study, run.config, f"run {run.id}"),
                seed=run.seed,
                run=run.id,
                diverged=run.state == "diverged",
                values=run.result or {},
                curves={name: np.array([value for _, value in curve]) for name, curve in curves.items()},
            )
        )
    return Results(cells, plan.profile)


def plan_of(ledger: Ledger, instance: LadderInstance) -> StudyPlan:
    """The plan of a study as it was last asked for.

    Raises:
        UsageError: this version has no such study, profile or setting.
    """
    events = requests.events(ledger, instance)
    seeds = (events[-1].payload or {}).get("seeds") if events else None
    study, changes = studies.of_task(instance.task), instance.spec.set
    return planning.make(study, instance.profile or "laptop", changes, None if seeds is None else parse_seeds(seeds))


def _runs(ledger: Ledger, plan: StudyPlan, fingerprints: Iterable[str]) -> list[Run]:
    wanted = set(fingerprints)
    runs = [
        run for instance in ledger.ladders(plan.name) if instance.task == plan.task for run in ledger.runs(instance.key)
    ]
    return [
        run
        for run in {run.id: run for run in runs}.values()
        if run.fingerprint in wanted and run.state in FINISHED and not run.superseded and run.excluded is None
    ]


def build(plan: StudyPlan, results: Results[Any], figure: str | None = None) -> StudyReport:
    """The report; checks and answer need every cell of the grid."""
    study = plan.study
    unfinished = len(plan.cells) * len(plan.seeds) - len(results)
    complete = unfinished == 0
    checks = study.checks(results) if complete else []
    return StudyReport(
        study=study.name,
        profile=plan.profile,
        about=About(study.source, study.question, study.published),
        cells=[
            CellOutput(
                id=result.run,
                arch=study.label(result.cell),
                grid=to_builtins(result.cell),
                seed=result.seed,
                state="diverged" if result.diverged else "done",
                values=result.values,
            )
            for result in results
        ],
        unfinished=unfinished,
        checks=checks,
        claims=judge(study.claims, results, checks) if complete else [],
        answer=study.answer(results) if complete else "",
        figure=figure,
        substitute=_substitute(plan),
    )


def _substitute(plan: StudyPlan) -> str | None:
    """What stands in for the paper's data or scale in the profile, after the values of `--set`."""
    sentence = plan.study.stand_in.get(plan.profile)
    if not plan.changes:
        return sentence
    changes = ", ".join(f"{name}={json.dumps(value)}" for name, value in plan.changes.items())
    return f"{changes} by --set, otherwise the profile {plan.profile}{f': {sentence}' if sentence else '.'}"


def largest(ledger: Ledger, study: Study[Any]) -> tuple[StudyPlan, Results[Any]] | None:
    """The largest profile of a study of which a ledger has all cells, without changed settings, and these cells.

    None if it has none.
    """
    recorded = {instance.profile for instance in ledger.ladders(studies.STUDY, studies.PREFIX + study.name)}
    for profile in ("paper", "laptop", "ci"):
        if profile in recorded:
            plan = planning.make(study, profile, {})
            results = collect(ledger, plan)
            if not missing(plan, results):
                return plan, results
    return None


def missing(plan: StudyPlan, results: Results[Any], most: int = 5) -> list[str]:
    """The labels of cells without a result, and how many more there are."""
    done = {(result.cell, result.seed) for result in results}
    unfinished = [cell for cell in plan.cells if any((cell, seed) not in done for seed in plan.seeds)]
    labels = list(dict.fromkeys(map(plan.study.label, unfinished)))
    return labels[:most] + ([f"and {len(labels) - most} more"] if len(labels) > most else [])


def show(report: StudyReport, *, brief: bool = False) -> None:
    """Prints a report; a brief one has one line, and only those checks that failed."""
    above, checks, below = _parts(report, brief=brief)
    for line in above:
        console.paragraph(line)
    if checks.rows:
        table.show(checks)
    if below:
        console.paragraph(below)


def text(report: StudyReport) -> str:
    """The text that `show` prints into a pipe."""
    above, checks, below = _parts(report)
    return "\n".join([*above, *(checks.lines(rule=False) if checks.rows else ()), *filter(None, [below])])


def _parts(report: StudyReport, *, brief: bool = False) -> tuple[list[str], table.Table, str]:
    """The lines above the table of checks, that table, and the line below it."""
    if brief:
        line = f"{report.study}: {counts(report)}. {report.answer} {report.stand_in}".rstrip()
        return [line], _table(report.failed), ""
    return _sentences(report), _table(report.checks), counts(report) if report.checks else ""


def counts(report: StudyReport) -> str:
    """How many checks passed."""
    passed = len(report.checks) - len(report.failed)
    return f"{passed} of {plural(len(report.checks), 'check')} passed"


def _sentences(report: StudyReport) -> list[str]:
    lines = [f"{report.about.paper}: {report.about.question}", f"Published: {report.about.published}"]
    if report.unfinished:
        total = report.unfinished + len(report.cells)
        lines.append(f"{report.unfinished} of {total} cells have no result: they are not finished, or excluded.")
    diverged = sum(cell.state == "diverged" for cell in report.cells)
    if diverged:
        lines.append(f"{diverged} of {len(report.cells)} cells diverged.")
    return [line for line in (*lines, report.answer, report.stand_in) if line]


def _table(checks: Iterable[Check]) -> table.Table:
    return table.of_text(
        HEADERS,
        rows(checks),
        order=["kind", "expected"],
        cut={"rule": 28},
        below={"rule": lambda row: row[2] if row[0] != "ok" else ""},
    )


def rows(checks: Iterable[Check]) -> list[list[str]]:
    """A line for each check, under `HEADERS`."""
    return [
        [check.state, check.kind, check.name, f"{check.measured:.6g}", f"{check.expected:.6g}", check.rule]
        for check in checks
    ]

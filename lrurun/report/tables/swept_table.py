"""The instances of a ladder that differ in some settings, in one table: a row for each rung and value."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct, structs

from lrurun.config import planning, tuning_grid
from lrurun.config.instance import Instance, data_sentence
from lrurun.config.resolve import full
from lrurun.config.schema import ProgramConfig
from lrurun.config.unknown_settings import check_path
from lrurun.console import clean, setting
from lrurun.errors import LrurunError, NotFoundError, UsageError
from lrurun.instances import lookup
from lrurun.judging import statistics
from lrurun.judging.rung_runs import Note
from lrurun.judging.scores import ScoreForm
from lrurun.report.tables import cells, content, forgotten_values, remarks
from lrurun.report.tables.content import PARAMETERS, RUNG
from lrurun.report.tables.forgotten_values import ForgottenValue
from lrurun.report.tables.ladder_table import LadderReport, further_tests_of
from lrurun.report.tables.loaded_instance import LoadedInstance
from lrurun.report.tables.remarks import Remark
from lrurun.report.tables.row_scores import LadderRow, with_fewest_lost
from lrurun.table import KEPT, NOTHING, Column, Table

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger


class SweptRow(LadderRow, frozen=True, kw_only=True):
    """A rung with some values: its row in the report on an instance that has them."""

    json_fields: ClassVar[Sequence[str]] = (
        *LadderRow.__struct_fields__,
        *("instance=key", "by", "set", "validation"),
    )
    instance: Instance
    by: dict[str, Any]
    """Dotted path -> the value that the rung has in this instance; None where its model has no such setting, or tuning
    chooses it for each rung."""
    validation: float | None
    """Mean over the same seeds, of the best validation scores."""


class SweptReport(Struct, frozen=True, kw_only=True):
    """One table of several instances."""

    json_fields: ClassVar[Sequence[str]] = (
        "task ladder title profile by metric rows instances data notes set tune extend label "
        "score at_edge forgotten_values"
    ).split()
    instance: Instance
    """What all instances share."""
    title: str
    by: tuple[str, ...]
    """Dotted paths of the settings in which the instances differ."""
    metric: str
    rows: tuple[SweptRow, ...]
    """Rungs in the order of the ladder, their values in ascending order."""
    instances: tuple[str, ...]
    data: dict[str, Any]
    notes: tuple[Note, ...]
    score: ScoreForm
    not_run: tuple[str, ...] = ()
    """Rungs that no instance has run, unless they were asked for: tables leave them out, and name them below."""
    forgotten_values: tuple[ForgottenValue, ...] = ()
    """The values whose instances were forgotten."""

    @property
    def shown(self) -> tuple[SweptRow, ...]:
        """The rows of tables."""
        return tuple(row for row in self.rows if row.rung not in self.not_run)

    @property
    def at_edge(self) -> dict[str, list[str]]:
        """Rung -> the settings whose best value is the smallest or the largest of those swept."""
        edges: dict[str, list[str]] = {}
        for rung in dict.fromkeys(row.rung for row in self.rows):
            rows = [row for row in self.rows if row.rung == rung]
            swept = [row for row in rows if row.ranked]
            for path in self.by:
                best = [row.by[path] for row in _best(rows, self.score)]
                if best and all(is_at_edge(value, [row.by[path] for row in swept]) for value in best):
                    edges.setdefault(rung, []).append(path)
        return edges


def find(ledger: Ledger, plan: planning.Plan, by: Collection[str], command: str) -> list[LoadedInstance]:
    """The instances that differ from a plan in no setting but `by`, oldest first.

    Raises:
        UsageError: the program of the recipe has no such setting.
        NotFoundError: there is none; `command` trains them.
    """
    program = plan.rungs[0].config
    for path in by if isinstance(program, ProgramConfig) else ():
        check_path(path, f"--by {path}", known=full(program))
    instances: list[LoadedInstance] = []
    for instance in ledger.ladders(plan.ladder.name, plan.recipe.task):
        if (instance.profile, instance.spec.tune) != (plan.profile, plan.tune):
            continue
        values = {path: value for path, value in instance.spec.set.items() if path in by}
        with suppress(UsageError):  # a value that does not fit the plan: the instance differs in others
            varied = plan.with_sets(plan.changes | values)
            if varied.spec.digest == instance.spec.digest:
                instances.append(LoadedInstance(varied, instance, ledger))
    if not instances:
        forgotten = forgotten_values.caution(forgotten_values.find(ledger, plan, tuple(by)))
        raise NotFoundError(
            f"{plan.identity.description}: not in this ledger, with any value of {', '.join(by)}"
            f"{'' if forgotten is None else f'; {forgotten.text}'}",
            lookup.recorded_hint(ledger, plan.recipe.task, command),
        )
    return instances


def build(
    ledger: Ledger,
    plan: planning.Plan,
    instances: Sequence[LoadedInstance],
    by: Sequence[str],
    rungs: Sequence[str] | None,
) -> SweptReport:
    """The table of these `instances`; `rungs` names those to show, None is all of them.

    Raises:
        LrurunError: their runs were trained on unequal data.
    """
    reports = [loaded.report(rungs=rungs) for loaded in instances]
    _refuse_unequal_data(reports)
    counted = {run for report in reports for row in report.rows for run in row.runs}
    runs = {run.id: run.result or {} for run in ledger.runs(ids=counted, brief=True)}
    score = reports[0].score
    rows: list[SweptRow] = []
    for loaded, report in zip(instances, reports, strict=True):
        resolved = {rung.name: rung for rung in loaded.plan.rungs}
        for row in report.rows:
            settings = full(resolved[row.rung].config)
            values = {path: None if path in loaded.plan.free(row.rung) else settings.get(path) for path in by}
            # Rungs without the setting share their runs.
            if (row.rung, values, row.runs) in [(earlier.rung, earlier.by, earlier.runs) for earlier in rows]:
                continue
            found = [runs[run][score.validation] for run in row.runs if score.validation in runs.get(run, {})]
            scores = [value for value in found if math.isfinite(value)]
            rows.append(
                SweptRow(
                    **structs.asdict(row),
                    instance=loaded.instance.identity,
                    by=values,
                    validation=statistics.mean(scores),
                )
            )
    order = {rung.name: k for k, rung in enumerate(plan.ladder.rungs)}
    run = {row.rung for row in rows if row.runs or row.other_runs or cells.uncounted(row)}
    rows.sort(key=lambda row: (order[row.rung], *(value_rank(row.by[path]) for path in by)))
    return SweptReport(
        instance=plan.identity,
        title=plan.ladder.title,
        by=tuple(by),
        metric=reports[0].metric,
        rows=tuple(rows),
        instances=tuple(loaded.instance.key for loaded in instances),
        data=next((report.instance.data for report in reports if report.instance.data), {}),
        notes=tuple(dict.fromkeys(note for report in reports for note in report.notes)),
        score=score,
        not_run=tuple(dict.fromkeys(row.rung for row in rows if row.rung not in run)) if run and rungs is None else (),
        forgotten_values=forgotten_values.find(ledger, plan, by),
    )


def _refuse_unequal_data(reports: Sequence[LadderReport]) -> None:
    instances = [report.instance for report in reports]
    hashes = {instance.data["sha256"]: instance.key for instance in instances if instance.data.get("sha256")}
    if len(hashes) > 1:
        sides = "; ".join(f"{digest[:19]}: instance {key}" for digest, key in sorted(hashes.items()))
        raise LrurunError(
            f"these instances were trained on unequal data and are never compared: {sides}",
            "`lrurun data check` says which of them is the data on disk; train the others again with --fresh",
        )


def is_at_edge(value: Any, swept: Sequence[Any]) -> bool:
    """Whether a value is the smallest or the largest number of those that a rung was swept over."""
    known = [one for one in swept if one is not None]
    return value is not None and len(set(map(setting, known))) > 1 and tuning_grid.is_edge(value, known)


def value_rank(value: Any) -> tuple[int, Any]:
    """Numbers in ascending order, then texts, then no value."""
    if value is None:
        return 2, ""
    return (0, value) if isinstance(value, int | float) else (1, setting(value))


# What the table shows


_CSV_COLUMNS = (
    "task ladder profile instance metric rung n mean stderr validation diverged failed unfinished parameters "
    "steps_per_second same_as_before runs code_versions numerics learning_rate label"
).split()


def title(report: SweptReport) -> str:
    """The title of the report: ladder, settings, task."""
    return report.instance.title(f"{report.title}, by {', '.join(report.by)}")


def content_of(report: SweptReport) -> content.ReportContent:
    """The contents of the report."""
    form = report.score
    best = {row.rung: _best([other for other in report.rows if other.rung == row.rung], form) for row in report.rows}
    tests = further_tests_of(report.shown)
    columns = (
        structs.replace(RUNG, link=None),
        *(_value_column(path) for path in report.by),
        _column(form.on_test(form.title), lambda row: _score(row, form)),
        *(
            _column(f"{form.title} at {clean(name)}", lambda row, name=name: cells.further_score(row, name, form), 7)
            for name in tests
        ),
        structs.replace(
            _column(
                f"val {form.title}", lambda row: NOTHING if row.validation is None else form.full(row.validation), 9
            ),
            right=True,
            marked=lambda row: row in best[row.rung],
        ),
        structs.replace(PARAMETERS, link=_anchor),
        structs.replace(
            content.number("steps/s", "steps_per_second", content.three_digits, priority=4, note="Steps/s: median."),
            link=_anchor,
        ),
    )
    return content.ReportContent(
        title=title(report),
        table=Table(columns=columns, rows=report.shown),
        remarks=_remarks(report),
        groups=tuple(
            content.RunGroup(
                anchor=_anchor(row),
                title=f"{row.rung}: {_values(row)}",
                runs=row.runs,
                other_runs=tuple(run.id for run in row.other_runs),
                metric=report.metric,
                score=form,
            )
            for row in report.shown
        ),
        label=report.instance.anchor("by-" + "-".join(report.by)),
        csv=(*_CSV_COLUMNS[:6], *report.by, *_CSV_COLUMNS[6:], *content.further_fields(tests)),
    )


def _best(rows: Sequence[SweptRow], form: ScoreForm) -> list[SweptRow]:
    """The rows of a rung with the best validation score, of those with the fewest lost seeds."""
    few = [row for row in with_fewest_lost(rows) if row.validation is not None]
    best = form.best(row.validation for row in few if row.validation is not None)
    return [row for row in few if row.validation == best]


def _anchor(row: SweptRow) -> str:
    return f"{content.anchor(row.instance.key)}/{row.rung}"


def _column(name: str, cell: Any, priority: int = KEPT) -> Column:
    return Column(name=name, cell=cell, right=False, whole=True, link=_anchor, priority=priority)


def _value_column(path: str) -> Column:
    return Column(name=path, cell=lambda row: value_text(row.by[path]))


def value_text(value: Any) -> str:
    """A value of a setting as a cell."""
    return NOTHING if value is None else clean(f"{value:g}" if isinstance(value, float) else setting(value))


def _values(row: SweptRow) -> str:
    return ", ".join(f"{path}={NOTHING if value is None else setting(value)}" for path, value in row.by.items())


def _score(row: SweptRow, form: ScoreForm) -> str:
    return "\n".join([cells.score(row, form), *cells.remarks(row)])


def _remarks(report: SweptReport) -> tuple[Remark, ...]:
    form = report.score
    is_lost = any(row.ranked > row.n for row in report.rows)
    fewest = ", of the values with the fewest seeds without one" if is_lost else ""
    sentences = [
        f"{form.sentence}: mean ± standard error over n finished seeds; validation: mean of the best scores of the "
        f"same seeds. The best validation score of each rung is marked{fewest}. Choose a value by it: the best of "
        "several test scores is too good. No difference between rows is tested."
    ]
    if edges := remarks.edges_text(report.at_edge):
        sentences.append(f"Best value at the edge of those tried: {edges}; a better one may lie beyond.")
    if report.not_run:
        sentences.append(f"Not run in any of these instances, and not shown: {', '.join(map(clean, report.not_run))}.")
    if any(value is None for row in report.shown for value in row.by.values()):
        sentences.append(f"{NOTHING}: the rung has no such setting, or tuning chose its value.")
    if source := data_sentence(report.data):
        sentences.append(source)
    if report.instance.set or report.instance.tune:
        sentences.append(f"All instances: {report.instance.label}.")
    forgotten = forgotten_values.remarks(report.forgotten_values)
    return (*forgotten, *remarks.sentences(sentences), *content.versions(report.rows), *remarks.of_notes(report.notes))

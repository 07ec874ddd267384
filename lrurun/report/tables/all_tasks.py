"""A ladder on all its tasks: rungs by tasks, in the form of Tables 6 to 8 of the LRU paper.

A column is one task with one profile. Nothing is averaged over columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct, structs

from lrurun.config.instance import Instance, data_sentence
from lrurun.config.ladder import Ladder
from lrurun.config.schema import LADDER_KINDS
from lrurun.config.settings import set_text
from lrurun.data import tasks
from lrurun.errors import LrurunError, NotFoundError, nearest_hint
from lrurun.judging.claims import Unbeaten
from lrurun.judging.rung_runs import Note
from lrurun.judging.scores import ScoreForm
from lrurun.report.tables import cells, content, ladder_content, ladder_remarks, remarks
from lrurun.report.tables.ladder_table import BEST_OF_TEST, SELECTED_ON_TEST, LadderReport
from lrurun.report.tables.remarks import Caution, Remark
from lrurun.report.tables.row_scores import LadderRow
from lrurun.table import Column, Table

if TYPE_CHECKING:
    from lrurun.instances.requests import LadderRequest
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance


COMPARED = ("helps", "hurts", "undecided", "same runs")
"""Verdicts on a change whose two rungs have results."""


class TaskColumn(Struct, frozen=True, kw_only=True):
    """A task, in one profile."""

    name: str
    """The task in a sentence, with what qualifies it: its profile, where the columns have several."""
    json_fields: ClassVar[Sequence[str]] = (
        "name task profile instance=key test_selected test_items data set tune extend label metric score cautions"
    ).split()
    instance: Instance
    test_selected: bool
    """Whether a model that counts was selected on the test split."""
    test_items: int | None
    metric: str
    score: ScoreForm
    """How scores are printed, and their direction."""
    cautions: tuple[Caution, ...]
    """What changes the reading of the differences."""
    unbeaten: Unbeaten | None = None
    """The rungs that no other one is decided to be better than, where that was asked."""


class TaskCell(LadderRow, frozen=True, kw_only=True):
    """A rung on one task: its row in the report on that task."""

    json_fields: ClassVar[Sequence[str]] = (
        *LadderRow.__struct_fields__,
        *("task", "profile", "instance=key", "label", "metric"),
    )
    instance: Instance
    metric: str
    unbeaten: bool = False
    """Whether no other rung is decided to be better on this task, where that was asked."""


class AllTasksRow(Struct, frozen=True, kw_only=True):
    """A rung."""

    rung: str
    title: str
    cells: tuple[TaskCell, ...]
    """The cell of each column."""


class AllTasksReport(Struct, frozen=True, kw_only=True):
    """One table for all tasks."""

    json_fields: ClassVar[Sequence[str]] = ("ladder title metric tasks columns rows conclusions notes label").split()
    instance: Instance
    """What all columns share."""
    title: str
    metric: str
    """The metric of all columns; with several, their names."""
    tasks: tuple[str, ...]
    columns: tuple[TaskColumn, ...]
    rows: tuple[AllTasksRow, ...]
    conclusions: tuple[str, ...]
    """Which changes help or hurt on most tasks, on some, and on none, of those that two tasks or more can judge."""
    notes: tuple[Note, ...]


def collect(
    ledger: Ledger,
    ladder: Ladder,
    request: LadderRequest,
    rungs: Sequence[str] | None = None,
    *,
    with_unbeaten: bool = False,
) -> AllTasksReport:
    """The report on every instance of `ladder` that is requested and not hidden, with notes on the others.

    Args:
        request: profile, tuning and settings; its task is ignored.
        rungs: show only these.
        with_unbeaten: whether it says which rungs no other one is decided to be better than on a task.

    Raises:
        NotFoundError: there is none.
    """
    from lrurun.instances import documents, lookup, phrases
    from lrurun.report.tables import loaded_instance

    reports, notes, differing, hidden = [], [], [], []
    refused: LrurunError | None = None
    left_out = ledger.hidden()
    for instance in sorted(ledger.ladders(ladder.name), key=_rank):
        if instance.key in left_out:
            hidden.append(instance.short_name)
            continue
        if request.profile not in (None, instance.profile) or not _may_be(instance, request):
            differing.append(lookup.title(instance))
            continue
        try:
            sets = request.sets | _protocol(instance)
            plan = documents.present_plan(ledger, instance, ladder, sets=sets, tune=request.tune, extend=request.extend)
            if plan.spec == instance.spec:
                loaded = loaded_instance.LoadedInstance(plan, instance, ledger)
                reports.append(loaded.report(rungs=rungs, with_claims=False, with_unbeaten=with_unbeaten))
            else:
                differing.append(lookup.title(instance))
        except LrurunError as error:
            refused = refused or error
            own = "" if instance.task in tasks.TASKS else f"; {tasks.OF_PLUG_IN}"
            notes.append(f"left out: {lookup.title(instance)}: {error.message}{own}")
    if not reports:
        if refused is not None:
            raise refused
        requested = f"ladder {ladder.name}" + (f", profile {request.profile}" if request.profile else "")
        requested += ", tuned" if request.tune else ", without --tune"
        requested += "" if request.extend is None else f" with --extend {request.extend}"
        requested += "".join(f", {set_text(path, value)}" for path, value in request.sets.items())
        ladders = dict.fromkeys(
            f"--ladder {instance.name}" for instance in ledger.ladders() if instance.kind in LADDER_KINDS
        )
        hint = f"run: lrurun ladder TASK --ladder {request.ladder}"
        if differing or ladders:
            hint = f"{_meant(ledger.ladders(ladder.name), request)}this ledger has: {_some(differing or list(ladders))}"
        if hidden:
            hint = f"hidden: {_some(hidden)}; {phrases.show_again()}"
        raise NotFoundError(f"{requested}: on no task of this ledger", hint)
    if differing:
        options = "profile, --set, --tune" + (", --extend" if _is_extended(ledger, ladder) else "")
        notes.append(f"left out, because {options} or the recipe differ: {_some(differing)}")
    if hidden:
        notes.append(f"left out, because they are hidden: {_some(hidden)}")
    return build(ladder, reports, notes)


def _is_extended(ledger: Ledger, ladder: Ladder) -> bool:
    """Whether the grid of some instance of a ladder could be extended."""
    return any(instance.spec.extend for instance in ledger.ladders(ladder.name))


def _meant(instances: Sequence[LadderInstance], request: LadderRequest) -> str:
    """The beginning of a hint where no instance is requested: the profile or the option that is probably meant."""
    profiles = {instance.profile for instance in instances if instance.profile}
    if request.profile is not None and request.profile not in profiles:
        close = nearest_hint(request.profile, sorted(profiles))
        return f"{close} " if close else ""
    tuned = {instance.spec.tune for instance in instances if request.profile in (None, instance.profile)}
    if tuned == {not request.tune}:
        return "leave --tune out; " if request.tune else "add --tune; "
    return ""


def _rank(instance: LadderInstance) -> tuple[int, str, str]:
    """Tasks in the order of `lrurun list tasks`, the plain recipe of each before its profiles."""
    names = list(tasks.TASKS)
    number = names.index(instance.task) if instance.task in names else len(names)
    return number, instance.task, instance.profile or ""


def _may_be(instance: LadderInstance, request: LadderRequest) -> bool:
    """Whether it can be the requested one. A quick test without its plan: there may be hundreds of others."""
    if instance.spec.tune != request.tune:
        return False
    return bool(request.sets) or not set(instance.spec.set) - {"train.protocol"}


def _protocol(instance: LadderInstance) -> dict[str, Any]:
    """The protocol of the instance, if it was set: tasks have different ones, and each column names its own."""
    return {path: value for path, value in instance.spec.set.items() if path == "train.protocol"}


def _some(titles: list[str], most: int = 5) -> str:
    more = f"; and {len(titles) - most} more" if len(titles) > most else ""
    return "; ".join(titles[:most]) + more


def build(ladder: Ladder, reports: Sequence[LadderReport], notes: Sequence[str] = ()) -> AllTasksReport:
    """The table of these reports on `ladder`, with a column for each; `notes` are more sentences for the footnotes."""
    several = len({report.instance.profile for report in reports}) > 1
    columns = tuple(
        TaskColumn(
            name=_name(report, with_profile=several),
            instance=report.instance,
            test_selected=_test_selected(report),
            test_items=report.test_items,
            metric=report.metric,
            score=report.score,
            cautions=tuple(_cautions(ladder, report)),
            unbeaten=report.unbeaten,
        )
        for report in reports
    )
    columns_of: dict[Note, list[str]] = {}
    for column, report in zip(columns, reports, strict=True):
        for note in report.notes:
            if note not in SELECTED_ON_TEST:
                columns_of.setdefault(note, []).append(column.name)
    of_columns = [structs.replace(note, text=f"{'; '.join(names)}: {note.text}") for note, names in columns_of.items()]
    rows = tuple(
        AllTasksRow(rung=row.rung, title=row.title, cells=tuple(_cell(report, k) for report in reports))
        for k, row in enumerate(reports[0].rows)
    )
    return AllTasksReport(
        instance=_shared(ladder, columns),
        title=ladder.title,
        metric=", ".join(dict.fromkeys(column.metric for column in columns)),
        tasks=tuple(dict.fromkeys(column.instance.task for column in columns)),
        columns=columns,
        rows=rows,
        conclusions=tuple(_conclusions(rows)),
        notes=(*of_columns, *map(Note, notes)),
    )


def _conclusions(rows: Sequence[AllTasksRow]) -> list[str]:
    groups: dict[str, list[str]] = {
        name: [] for name in ("Helps on most tasks", "Hurts on most tasks", "By the task", "Decided on no task")
    }
    for row in rows:
        counts = Counter(cell.verdict for cell in row.cells if cell.verdict in COMPARED)
        helps, hurts, total = counts["helps"], counts["hurts"], counts.total()
        if total < 2:
            continue
        if 2 * max(helps, hurts) > total:
            name, number = ("Helps", helps) if helps > hurts else ("Hurts", hurts)
            groups[f"{name} on most tasks"].append(f"{row.rung} ({number} of {total})")
        elif helps or hurts:
            counted = ", ".join(f"{word} on {counts[word]}" for word in ("helps", "hurts") if counts[word])
            groups["By the task"].append(f"{row.rung} ({counted} of {total})")
        else:
            groups["Decided on no task"].append(f"{row.rung} (of {total})")
    return [f"{name}: {', '.join(rungs)}." for name, rungs in groups.items() if rungs]


def _name(report: LadderReport, *, with_profile: bool) -> str:
    instance = report.instance
    parts = [instance.task, *([f"profile {instance.profile}"] if instance.profile and with_profile else [])]
    if _test_selected(report):
        parts.append("selected on test")
    if instance.data.get("published") == "no":
        parts.append("not the published data")
    return ", ".join(parts)


def _test_selected(report: LadderReport) -> bool:
    return any(row.test_selected for row in report.rows)


def _cautions(ladder: Ladder, report: LadderReport) -> list[Caution]:
    """The cautions of a report, without what the name of its column says, and whether its task stands in for those
    that the claims of the ladder are about."""
    claimed = {task for claim in ladder.claims for task in claim.tasks}
    task = report.instance.task
    stands_in = claimed and task not in claimed and tasks.is_built_in(task)
    stand_in = [Caution(what="stand-in for the paper's tasks")] if stands_in else []
    of_report = [remark for remark in ladder_remarks.cautions(report) if remark.topic != "test-selected"]
    return stand_in + remarks.cautions_of(of_report)


def _shared_cautions(report: AllTasksReport) -> list[Remark]:
    """The cautions without the rungs that they are about, but with the tasks."""
    columns: dict[str, list[str]] = {}
    for column in report.columns:
        for caution in column.cautions:
            text = caution.what if caution.runs is None else f"runs {caution.what}"
            columns.setdefault(text, []).append(column.name.replace(", ", " "))
    every = len(report.columns)
    return [
        Remark(caution=Caution(what=text, where=", ".join(names) if len(names) < every else "all tasks"))
        for text, names in columns.items()
    ]


def _shared(ladder: Ladder, columns: Sequence[TaskColumn]) -> Instance:
    """What the instances of the columns have in common."""
    # They differ in no other setting, and each column says itself if its models were selected on the test split.
    instances = [column.instance for column in columns]
    sets = {path: value for instance in instances for path, value in instance.set.items() if path != "train.protocol"}
    tune = any(instance.tune for instance in instances)
    [profile, *others] = {instance.profile for instance in instances}
    kinds = {instance.kind for instance in instances}
    return Instance(
        ladder=ladder.name,
        task="all tasks",
        profile=None if others else profile,
        tune=tune,
        extend=max(instance.extend for instance in instances),
        set=sets,
        kind=kinds.pop() if len(kinds) == 1 else "training",
    )


def _cell(report: LadderReport, k: int) -> TaskCell:
    row = report.rows[k]
    unbeaten = report.unbeaten is not None and row.rung in report.unbeaten.rungs
    return TaskCell(instance=report.instance, metric=report.metric, unbeaten=unbeaten, **structs.asdict(row))


def content_of(report: AllTasksReport) -> content.ReportContent:
    """The contents of the report."""
    columns = [_column(k, column) for k, column in enumerate(report.columns)]
    return content.ReportContent(
        title=report.instance.title(report.title),
        table=Table(columns=(content.RUNG, content.TITLE, *columns), rows=report.rows),
        remarks=_remarks(report),
        groups=tuple(_group(column, cell) for k, column in enumerate(report.columns) for cell in _cells(report, k)),
        label=structs.replace(report.instance, task="all").anchor(),
        csv=ladder_content.csv_columns([cell for row in report.rows for cell in row.cells]),
    )


def _cells(report: AllTasksReport, k: int) -> list[LadderRow]:
    return [row.cells[k] for row in report.rows]


def anchor(column: TaskColumn, rung: str) -> str:
    """The anchor of the runs of a rung on a task."""
    return f"{content.anchor(column.instance.key)}/{rung}"


def _group(column: TaskColumn, cell: LadderRow) -> content.RunGroup:
    base = None if cell.on is None else anchor(column, cell.on)
    return content.RunGroup(
        anchor=anchor(column, cell.rung),
        title=f"{column.name}: {cell.rung}",
        runs=cell.runs,
        other_runs=tuple(run.id for run in cell.other_runs),
        base=base,
        same_as=base if cell.same_as_before else None,
        metric=column.metric,
        score=column.score,
    )


def _column(k: int, column: TaskColumn) -> Column:
    def link(row: AllTasksRow) -> str:
        return anchor(column, row.rung)

    text = cells.in_grid(column.score, changes=True)
    name = column.name.replace(", ", "\n")
    return Column(name=name, cell=lambda row: text(row.cells[k]), right=False, whole=True, link=link)


def _remarks(report: AllTasksReport) -> tuple[Remark, ...]:
    sentences = [
        f"{_metrics(report)}: mean ± standard error over n finished seeds; in parentheses, the published values. "
        "Each column is a separate task, and nothing is averaged over columns."
    ]
    every = [cell for row in report.rows for cell in row.cells]
    if ladder_remarks.with_difference(every):
        new = f", both {text}" if (text := ladder_content.scope(cell.comparison for cell in every)) else ""
        sentences.append(
            "Below the score: what the change to the base rung did, the difference with its 95 % interval (Welch), not "
            f"corrected, and p, corrected by Holm's method over the differences and claims of a task{new}."
        )
    names = {column.instance.task for column in report.columns}
    if "Image" in names:
        sentences.append(
            "Image has gray pictures, sCIFAR the same pictures in colour: these are different tasks, and values "
            "published for sCIFAR do not apply to Image."
        )
    of_imports = [column.test_selected for column in report.columns if column.instance.kind == "imported"]
    if any(of_imports):
        sentences.append(f"Selected on test: {BEST_OF_TEST.text}.")
    if any(column.test_selected for column in report.columns if column.instance.kind != "imported"):
        sentences.append(
            'Selected on test: trained with protocol = "paper", which selects the model on the test split, as the '
            "paper did; such scores are too high to be compared with those of models selected on validation."
        )
    sentences += filter(None, (data_sentence(column.instance.data, column.name) for column in report.columns))
    sentences += _rates(report)
    sentences.append(_published(report))
    return (
        *_shared_cautions(report),
        *map(remarks.conclusion, report.conclusions),
        *remarks.sentences(sentences),
        *_cautions_in_full(report),
        *content.versions(every),
        *remarks.of_notes(report.notes),
    )


def _cautions_in_full(report: AllTasksReport) -> list[Remark]:
    """The cautions in full, with the rungs that they are about: a sentence for all columns that have the same."""
    columns: dict[str, list[str]] = {}
    for column in report.columns:
        for caution in column.cautions:
            columns.setdefault(caution.text, []).append(column.name)
    by_columns: dict[str, list[str]] = {}
    for text, headings in columns.items():
        by_columns.setdefault("; ".join(headings), []).append(text)
    return [
        Remark(full=f"Caution, {names}: {'; '.join(texts)}.", is_covered=True) for names, texts in by_columns.items()
    ]


def _metrics(report: AllTasksReport) -> str:
    """The metric, for example "Test accuracy in per cent"; with several metrics, each with its tasks."""
    by_metric: dict[str, list[str]] = {}
    for column in report.columns:
        by_metric.setdefault(column.score.sentence, []).append(column.name)
    if len(by_metric) == 1:
        return next(iter(by_metric))
    return "; ".join(f"{sentence} ({'; '.join(names)})" for sentence, names in by_metric.items())


def _rates(report: AllTasksReport) -> list[str]:
    """Where the learning rates come from, by column; rungs are named where they differ."""
    kinds: dict[str, list[str]] = {}
    for k, column in enumerate(report.columns):
        rungs: dict[str, list[str]] = {}
        for cell in _cells(report, k):
            if cell.rate_source is not None:
                rungs.setdefault(cell.rate_source.kind, []).append(cell.rung)
        for kind, names in rungs.items():
            kinds.setdefault(kind, []).append(column.name + (f" ({', '.join(names)})" if len(rungs) > 1 else ""))
    return [
        f"{'Settings of imported runs' if kind == 'elsewhere' else 'Learning rate'} {cells.RATES[kind]}: "
        f"{'; '.join(columns)}."
        for kind, columns in kinds.items()
    ]


def _published(report: AllTasksReport) -> str:
    tasks: dict[tuple[str, str], list[str]] = {}
    for k, column in enumerate(report.columns):
        for score in (score for cell in _cells(report, k) for score in cell.published):
            names = tasks.setdefault((score.source, "" if score.value is None else score.note), [])
            if column.instance.task not in names:
                names.append(column.instance.task)
    if not tasks:
        return "Published: no values for these tasks."
    sources = [f"{source} ({', '.join(names)}{': ' + note if note else ''})" for (source, note), names in tasks.items()]
    profiles = dict.fromkeys(
        column.instance.profile
        for k, column in enumerate(report.columns)
        if column.instance.profile and cells.scale(column.instance.profile, _cells(report, k))
    )
    smaller = f" They are for the full tasks; these profiles are smaller ({', '.join(profiles)})." if profiles else ""
    return f"Published: {'; '.join(sources)}.{smaller}"

"""`lrurun.import_runs`: runs that were made elsewhere, as a ladder that is reported and drawn from Python."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from lrurun import console, files
from lrurun.errors import LrurunError, UsageError, check_type, plural
from lrurun.imported import first_import, later_import, recording
from lrurun.imported.earlier import Earlier
from lrurun.imported.placing import Understood
from lrurun.imported.request import ImportOptions, Request, parsed_at
from lrurun.imported.sources import FRAME, OpenedSource, located_in
from lrurun.instances import import_record
from lrurun.instances.import_record import ImportRecord
from lrurun.instances.requests import LadderRequest
from lrurun.paths import shown
from lrurun.reading.rows import ReportRows, Rows, shown_runs
from lrurun.report import frame_columns
from lrurun.runner import run_files
from lrurun.session import opening
from lrurun.session.arguments import (
    AnyPath,
    check_finite,
    check_whole,
    given_places,
    names_of_arguments,
    text_of,
    texts,
)
from lrurun.session.ladder import LadderSession

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lrurun.config.schema import Reading
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance, Run
    from lrurun.paths import Places
    from lrurun.report.widths import Width
    from lrurun.session.plotting import InstanceFigure


class Import(Struct, frozen=True, kw_only=True):
    """An import that has been recorded."""

    understood: Understood
    instance: LadderInstance
    record: ImportRecord


def folder_of(places: Places) -> Path:
    """The folder of the files of imports: beside the ledger; with a server, the working directory."""
    return places.ledger.parent if isinstance(places.ledger, Path) else Path()


def understand(places: Places, request: Request) -> Understood:
    """Reads the sources, and says on stderr what was understood. Nothing is written.

    Raises:
        UsageError: something does not fit, or is not clear.
        LrurunError: a source cannot be read.
    """
    target = request.target
    if request.document is not None and not target.is_file():
        raise UsageError(f"{target}: there is no such file", "name a source of runs, or the file of an import")
    way = later_import if target.exists() else first_import
    try:
        with opening.read(places) as ledger:
            made = way.understand(request, target, _EarlierImports(ledger))
    except KeyboardInterrupt:
        console.say("interrupted: nothing is recorded yet")
        raise
    for source in made.sources:
        record = source.record(made.counts[source.name])
        version = f", {record.version}" if record.version else ""
        console.say(f"{_where(source, made)}: {source.reader.title}{version}, {plural(record.runs, 'run')}")
        for note in record.notes:
            console.warn(note)
    for sentence in made.sentences:
        console.say(sentence)
    for caution in made.cautions:
        if caution.short:  # the others are among the details of the report
            console.warn(caution.full)
    return made


def _where(source: OpenedSource, made: Understood) -> str:
    """A source as one would type it here: in a file, paths are from its folder."""
    if made.is_new or "://" in source.name or source.name == FRAME:
        return source.name
    return shown(located_in(made.target.parent, source.name))


class _EarlierImports(Struct, frozen=True):
    """What the ledger has of earlier imports."""

    ledger: Ledger

    def runs(self, task: str, reading: Reading) -> list[Earlier]:
        """The imported runs of a task with this reading, without superseded ones."""
        found: dict[str, Run] = {}
        for instance in self.ledger.ladders(None, task):
            if instance.kind == "imported":
                found |= {run.id: run for run in self.ledger.runs(instance.key)}
        in_order = reversed(found.values())  # of their import
        same = [run for run in in_order if getattr(run.config, "reading", None) == reading]
        attempts = self.ledger.newest_attempts([run.id for run in same])
        environments = {run_id: attempt.environment for run_id, attempt in attempts.items()}
        return [
            Earlier(run=run, environment=environments.get(run.id, {}))
            for run in sorted(same, key=lambda run: run.created_at)
        ]

    def request(self, task: str) -> Mapping[str, Any]:
        """What the user asked for when the file of the task was written; empty if that is not known."""
        return import_record.newest_request(self.ledger, task)


def record(places: Places, made: Understood, *, scores_only: bool = False) -> Import:
    """Writes an import: its runs, their rungs, what was understood, and the file.

    Each run is there whole or not at all; after an interruption, the same import goes on.

    Raises:
        LedgerError: the ledger is busy or of another version.
        LrurunError: a source cannot be read any more, or the file cannot be written.
    """
    table, task = made.table, made.plan.recipe.task
    with opening.write(places, training=True) as ledger:
        of_origin = {place.origin: place for place in made.placed}
        rows = recording.runs(made.sources, of_origin, task, table, with_curves=not scores_only, known=made.known)
        outcomes: dict[str, tuple[str, str]] = {}
        try:
            ledger.add_imported(rows, outcomes)
        except KeyboardInterrupt:
            of_all = f"{len(outcomes)} of {plural(len(of_origin), 'run')}"
            console.say(f"interrupted: {of_all} recorded; the same command goes on")
            raise
        ids = {place.origin: outcomes[recording.key_of(place, task, table)][0] for place in made.placed}
        counts = [outcome for _, outcome in outcomes.values()]
        written = ImportRecord(
            sources=tuple(source.record(made.counts[source.name]) for source in made.sources),
            new=counts.count("new"),
            changed=counts.count("changed"),
            equal=counts.count("equal"),
            vanished=len(made.kept),
            outside=made.outside,
            choices=made.choices,
            cautions=made.cautions,
        )
        instance = recording.instance_of(ledger, made.plan)
        recording.record(ledger, instance, made.plan, written, made.request)
        every = [*((place, ids[place.origin]) for place in made.placed), *made.kept]
        ledger.set_members(instance.key, recording.members(every))
        run_files.keep_ladder(ledger, places.runs, instance.key)
    if made.is_new:
        _write(made)
    counts_text = f"{written.new} new runs, {written.changed} changed, {written.equal} as they were"
    file = f"wrote {made.target}, which you may edit and import" if made.is_new else f"by {made.target}"
    console.say(f"{instance.short_name}: {counts_text}; {file}")
    return Import(understood=made, instance=instance, record=written)


def _write(made: Understood) -> None:
    try:
        files.write(made.target, made.text.encode())
    except OSError as error:
        raise LrurunError(
            f"{made.target}: {error.strerror}", "the runs are in the ledger; the same import writes the file"
        ) from None


# Python


class ImportedRuns:
    """Imported runs, as a ladder in a ledger. `lrurun.import_runs` makes it. In a notebook it shows its report."""

    def __init__(self, places: Places, done: Import) -> None:
        self.path = done.understood.target
        """The file that says how the runs are read. Edited, it counts as it stands for the next import."""
        self.record = done.record
        """What the import found: how many runs are new, changed, equal and no longer there."""
        self.places = places
        """The ledger, the folder of all runs and the folder of all data."""
        self._instance = done.instance
        self._session = LadderSession(places, _request(done.understood))

    def __repr__(self) -> str:
        record = self.record
        found = f"{record.new} new, {record.changed} changed, {record.equal} as they were"
        return f"<imported runs {self._instance.short_name}: {found}>"

    @property
    def runs(self) -> Rows[Run]:
        """The runs of its rungs."""
        with opening.read(self.places) as ledger:
            return Rows(ledger.runs(self._instance.key), frame_columns.of_runs, shown=shown_runs)

    @names_of_arguments()
    def report(self) -> ReportRows:
        """The comparison of the rungs, as `lrurun report` prints it: see `LadderSession.report`."""
        return self._session.report()

    @names_of_arguments()
    def plot(
        self,
        kind: InstanceFigure = "ladder",
        *,
        metrics: str | Sequence[str] = (),
        rungs: str | Sequence[str] = (),
        differences: bool = True,
        plain: bool = False,
        width: Width = "column",
    ) -> Figure:
        """A figure of `lrurun plot`, drawn by Matplotlib: see `LadderSession.plot`."""
        return self._session.plot(kind, metrics=metrics, rungs=rungs, differences=differences, plain=plain, width=width)

    def _repr_html_(self) -> str:
        """The page of the report, in a frame."""
        return self.report()._repr_html_()


def _request(made: Understood) -> LadderRequest:
    path = str(made.target.absolute())
    return LadderRequest(task=path, ladder=path, profile=None, tune=False, sets={})


@names_of_arguments()
def import_runs(
    source: Any,
    *,
    kind: str | None = None,
    name: str | None = None,
    metric: str | None = None,
    direction: Literal["max", "min"] | None = None,
    at: Literal["last", "best"] | int | None = None,
    metric_for_choice: str | None = None,
    by: str | Sequence[str] = (),
    base: Mapping[str, Any] | None = None,
    seed_column: str | None = None,
    ladder: AnyPath | None = None,
    choose: str | Sequence[str] = (),
    crashed: Literal["missing", "failed"] | None = None,
    repeat: Literal["latest", "mean", "all"] | None = None,
    protocol: Literal["holdout", "best-of-test"] | None = None,
    test_items: int | None = None,
    items: str | None = None,
    unit: str | None = None,
    per_cent: bool | None = None,
    chance: float | None = None,
    project: str | None = None,
    metrics_file: str | None = None,
    scores_only: bool = False,
    ledger: AnyPath | None = None,
) -> ImportedRuns:
    """Reads runs that were made elsewhere into the ledger: what `lrurun import` does.

        runs = lrurun.import_runs("runs.csv", metric="test_acc", by="norm", seed_column="seed")
        runs.report()

    Args:
        source: a file, a folder, an address, or a list of them; a frame of pandas or polars; or the file that an
            earlier import wrote.
        kind: what wrote it, as "csv" or "mlflow"; None: what it looks like.
        name: the name of the import, of its file and of its instance; None for the name of the source.
        metric: the score; None for the only metric of a test split.
        direction: "max" or "min", where the name of the metric does not say whether higher is better.
        at: which step counts: "last", a number, or "best", at which `metric_for_choice` is best.
        metric_for_choice: the validation metric that chooses the step, or the settings in `choose`.
        by: settings whose combinations of values are the rungs.
        base: setting -> value, of the rung that the others are compared with.
        seed_column: the setting with the seed; "none" if there is none, so that runs are numbered; None for one whose
            name says so.
        ladder: a file with rungs that have conditions, in place of `by`.
        choose: settings of which each rung counts one combination of values, which validation chooses.
        crashed: whether runs that crashed are "missing" or "failed".
        repeat: which of several runs of one rung and seed count: "latest", "mean" or "all".
        protocol: "best-of-test" counts the best of all test scores of a run, and every report says so.
        test_items: the number of test items.
        items: the column with lists of per-item results, or the name of a file with them in the folder of each run.
        unit: the unit of scores, as "%".
        per_cent: whether the source has per cent where fractions are meant.
        chance: the score of a guess.
        project: the project or experiment to which reading is limited.
        metrics_file: the name of the file with the metrics in the folder of each run.
        scores_only: whether curves are left out.
        ledger: a file, or the URL of a PostgreSQL database; None for the ledger of the commands.

    Raises:
        UsageError: something in the source or in an argument does not fit, or is not clear.
        LrurunError: the source cannot be read.
        LedgerError: the ledger is busy or of another version.
    """
    hint = 'as in import_runs("runs.csv", metric="test_acc", by=["norm"], seed_column="seed")'
    for argument, value in (
        *(("kind", kind), ("name", name), ("metric", metric), ("metric_for_choice", metric_for_choice)),
        *(("seed_column", seed_column), ("items", items), ("unit", unit), ("project", project)),
        *(("metrics_file", metrics_file), ("direction", direction), ("crashed", crashed), ("repeat", repeat)),
        ("protocol", protocol),
    ):
        check_type(argument, value, str | None, "text", hint)
    for argument, value, known in (
        ("direction", direction, ("max", "min")),
        ("crashed", crashed, ("missing", "failed")),
        ("repeat", repeat, ("latest", "mean", "all")),
        ("protocol", protocol, ("holdout", "best-of-test")),
    ):
        if value is not None and value not in known:
            raise UsageError(f"{argument}: expected one of {', '.join(known)}, found {value!r}", hint)
    check_type("ladder", ladder, str | os.PathLike | None, "a path", hint)
    check_type("base", base, Mapping | None, "a mapping", 'as in base={"norm": "none"}')
    check_whole("test_items", test_items, 1)
    check_finite("chance", chance, -1e9, 1e9)
    check_type("per_cent", per_cent, bool | None, "True or False", hint)
    check_type("scores_only", scores_only, bool, "True or False", hint)
    step: str | int | None = at
    if at is not None:
        step = parsed_at(at if isinstance(at, str) else str(at))
    is_frame = not isinstance(source, str | os.PathLike | list | tuple)
    if is_frame and not hasattr(source, "columns"):
        expected = "a path, a list of paths, or a frame of pandas or polars"
        raise UsageError(f"source: expected {expected}, found {type(source).__name__}", hint)
    named = [] if is_frame else [source] if isinstance(source, str | os.PathLike) else list(source)
    if not is_frame and not named:
        raise UsageError("source: expected a path, found an empty list", hint)
    for place in named:
        check_type("source", place, str | os.PathLike, "a path", hint)
    places = given_places(ledger, None, None)
    request = Request(
        sources=tuple(os.fspath(place) for place in named) or ("frame",),
        options=ImportOptions(
            kind=kind,
            metric=metric,
            direction=direction,
            at=step,
            metric_for_choice=metric_for_choice,
            by=tuple(texts("by", by, 'as in by=["norm", "optimizer"]')),
            base={text_of("base", key, hint): console.setting(value) for key, value in (base or {}).items()},
            seed=seed_column,
            ladder=None if ladder is None else os.fspath(ladder),
            choose=tuple(texts("choose", choose, 'as in choose=["lr"]')),
            crashed=crashed,
            repeat=repeat,
            protocol=protocol,
            test_items=test_items,
            items=items,
            unit=unit,
            per_cent=per_cent,
            chance=None if chance is None else float(chance),
            project=project,
            metrics_file=metrics_file,
        ),
        name=name,
        folder=folder_of(places),
        command=(),
        frame=source if is_frame else None,
    )
    return ImportedRuns(places, record(places, understand(places, request), scores_only=scores_only))

"""Figures of an instance of a ladder, of runs, and of what trained models predict: what `lrurun plot` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from lrurun.errors import NoEigenvaluesError, NotFoundError, UsageError, hint_for, plural

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Run
    from lrurun.paths import Places
    from lrurun.report.figures.drawing import Layers, SpectraOf
    from lrurun.report.figures.figures import Figure
    from lrurun.report.tables.loaded_instance import LoadedInstance

InstanceFigure = Literal[
    "ladder", "curves", "rates", "eigenvalues", "norms", "speed", "slots", "lengths", "items", "errors", "predictions"
]
"""The figures of one instance."""
OF_EXAMPLES = ("errors", "predictions")
"""Figures for which trained models predict examples of the validation split."""
SHOWN = 4
"""Examples whose predictions are drawn."""


def check(
    kind: str, metrics: Sequence[str], rungs: Sequence[str], examples: int | None, *, differences: bool = True
) -> None:
    """Refuses arguments of a call in Python that this figure has not. Raises UsageError."""
    kinds = get_args(InstanceFigure)
    if kind not in kinds:
        raise UsageError(f"kind: unknown figure {kind!r}", hint_for(str(kind), kinds, "figures"))
    if metrics and kind not in ("curves", "items"):
        raise UsageError(f"metrics: is for curves and items, found {kind}", "leave it out")
    if metrics and kind == "items" and len(metrics) > 1:
        raise UsageError(f"metrics: a figure of items shows one, found {', '.join(metrics)}", "draw one for each")
    if rungs and kind != "items":
        raise UsageError(f"rungs: is for items, found {kind}", "leave it out")
    if examples is not None and kind not in OF_EXAMPLES:
        raise UsageError(f"examples: is for errors and predictions, found {kind}", "leave it out")
    if not differences and kind != "ladder":
        raise UsageError(f"differences: is for ladder, found {kind}", "leave it out")


_OF_MODELS = ("rates", "eigenvalues", "norms", "speed", "slots", "lengths", *OF_EXAMPLES)
"""Figures of what only models of lrurun have."""


def _refuse_imported(kind: str, runs: Sequence[Run]) -> None:
    """Refuses figures of models for imported runs. Raises UsageError."""
    if kind in _OF_MODELS and (imported := [run.id for run in runs if run.kind == "imported"]):
        raise UsageError(
            f"{kind}: run {imported[0]} was imported, and of such runs only scores, curves and items are known",
            "draw ladder, curves or items",
        )


def of_instance(
    kind: str,
    loaded: LoadedInstance,
    places: Places,
    command: str,
    metrics: Sequence[str] = (),
    rungs: Sequence[str] = (),
    examples: int | None = None,
    *,
    differences: bool = True,
) -> Figure:
    """A figure of an instance.

    Args:
        kind: one of `InstanceFigure`.
        command: what trains the instance, for messages.
        metrics, rungs, examples, differences: as of `LadderSession.plot`.

    Raises:
        NotFoundError: no run is finished that it could show.
    """
    _refuse_imported(kind, loaded.runs)
    if kind == "items":
        from lrurun.report.figures import compared_items

        return compared_items.figure(compared_items.collect(loaded, command, metrics[0] if metrics else None, rungs))
    if kind in OF_EXAMPLES:
        title = loaded.identity.title(loaded.plan.ladder.title)
        return of_examples(kind, counted(loaded, command), loaded.ledger, places, examples, title)[0]
    return _of_runs_of_instance(kind, loaded, places.runs, command, metrics, differences=differences)


def of_runs(kind: str, runs: Sequence[Run], ledger: Ledger, folder: Path, metrics: Sequence[str]) -> Figure:
    """Rates, norms, eigenvalues or curves of runs, whichever ladders they belong to."""
    from lrurun.report.figures import drawing
    from lrurun.report.tables import loaded_instance

    _refuse_imported(kind, runs)
    labels = loaded_instance.labels_of(runs, ledger)
    if kind == "rates":
        return drawing.run_rates(runs, labels)
    if kind == "norms":
        return drawing.run_norms(runs, ledger, labels)
    return (
        drawing.run_eigenvalues(runs, _spectra_of(ledger, folder), labels)
        if kind == "eigenvalues"
        else drawing.run_curves(runs, ledger, labels, metrics)
    )


def _of_runs_of_instance(
    kind: str,
    loaded: LoadedInstance,
    folder: Path,
    command: str,
    metrics: Sequence[str],
    *,
    differences: bool,
) -> Figure:
    from lrurun.judging import rung_runs, scores
    from lrurun.report.figures import drawing
    from lrurun.report.tables import paper_tables

    plan, ledger = loaded.plan, loaded.ledger
    if kind == "rates":
        return drawing.ladder_rates(plan, loaded.identity, loaded.runs, loaded.instance.key, command)
    of_speed = kind == "speed"
    metric = rung_runs.SPEED if of_speed else scores.form_of(plan.task.metric).result
    selected, notes = loaded.with_speed() if of_speed else loaded.counted()
    if not any(runs.counted for runs in selected.values()):
        task = plan.recipe.task + (f" --profile {plan.profile}" if plan.profile else "")
        what, hint = "no run is finished", f"run: {command}"
        if any(run.state == "done" for run in loaded.runs):
            what, hint = f"no finished run has a finite {metric}", "the notes of lrurun report say why"
            if of_speed:
                what, hint = "no finished run has recorded its speed", "runs of a few seconds record none"
        raise NotFoundError(f"ladder {plan.ladder.name} on {task}: {what}, so there is nothing to draw", hint)
    if kind in ("curves", "norms", "eigenvalues"):
        if kind == "curves":
            return drawing.ladder_curves(plan, loaded.identity, selected, notes, ledger, metrics)
        if kind == "norms":
            return drawing.ladder_norms(plan, loaded.identity, selected, notes, ledger)
        return drawing.ladder_eigenvalues(plan, loaded.identity, selected, notes, _spectra_of(ledger, folder))
    numbers = {run.id: (run.result or {})[metric] for runs in selected.values() for run in runs.counted}
    if kind == "speed":
        return drawing.speeds(loaded.speeds(), numbers)
    report = loaded.report()
    if kind == "slots":
        return drawing.slots(report)
    if kind == "lengths":
        return drawing.lengths(report, plan.task.spec(plan.options).length)
    shown = paper_tables.with_results(report, or_published=True)
    not_run = [row.rung for row in report.rows if row not in shown.rows]
    return drawing.ladder(shown, numbers, with_differences=differences, not_run=not_run)


def counted(loaded: LoadedInstance, command: str) -> dict[str, Sequence[Run]]:
    """The rungs with runs of their own -> those that a report counts.

    Raises:
        NotFoundError: no run is finished.
    """
    selected, _ = loaded.counted()
    own = {rung: runs.counted for rung, runs in selected.items() if runs.rung == rung and runs.counted}
    if not own:
        raise NotFoundError(
            f"ladder {loaded.plan.ladder.name}: no run is finished, so there is nothing to draw", f"run: {command}"
        )
    return {rung if len(runs) == 1 else f"{rung} (n={len(runs)})": runs for rung, runs in own.items()}


def of_examples(
    kind: str,
    lines: Mapping[str, Sequence[Run]],
    ledger: Ledger,
    places: Places,
    count: int | None,
    title: str,
) -> tuple[Figure, Sequence[Any]]:
    """What the models of some lines predict for the first `count` validation examples, and the rows of their errors,
    of which predictions have none.

    Raises:
        LrurunError: checkpoints or data are missing, or the task has no such predictions.
    """
    from lrurun import trained
    from lrurun.config import plugin_code
    from lrurun.data import task_data
    from lrurun.data.task import Split
    from lrurun.instances import documents
    from lrurun.report import again
    from lrurun.report.figures import predicted

    runs = [run for line in lines.values() for run in line]
    _refuse_imported(kind, runs)
    if len({(run.task, run.data_sha256) for run in runs}) > 1:
        raise UsageError("the runs were trained on different data", "draw those of each task into a file of its own")
    documents.load_code_of(ledger, runs[0])
    config = plugin_code.config_of(runs[0].config, f"run {runs[0].id}")
    plan = again.plan_of(runs[0])
    data = task_data.load(
        plan.task, plan.options, places.data / again.data_folder(plan, runs[0], places.data), config.train.protocol
    )
    if kind == "errors" and data.spec.output.loss != "cross-entropy":
        raise UsageError(f"--kind errors: {runs[0].task} predicts real values", "draw --kind predictions")
    if kind == "predictions":
        predicted.check_positions(data.spec)
    kept, full = slice(SHOWN if kind == "predictions" and count is None else count), data.validation
    lengths = None if full.lengths is None else full.lengths[kept]
    split = Split(inputs=full.inputs[kept], labels=full.labels[kept], lengths=lengths)
    drawn = {name: line[:1] if kind == "predictions" else line for name, line in lines.items()}
    outputs = {
        name: [trained.predictions(run, ledger, places.runs, split) for run in line] for name, line in drawn.items()
    }
    examples = plural(len(split.labels), "validation example")
    if kind == "predictions":
        caption = f"Labels and predictions of {examples}."
        return predicted.example_figure(data.spec, split, outputs, title=title, caption=caption), ()
    rows = predicted.errors(plan.task.groupings(data.spec, split), split.labels, outputs)
    caption = f"Labels of {examples} that are predicted wrongly; mean ± standard error over n runs."
    return predicted.error_figure(rows, title=title, caption=caption), rows


def _spectra_of(ledger: Ledger, folder: Path) -> SpectraOf:
    """Where the eigenvalues of a run come from: the ledger, or the checkpoints of a run that has not recorded them."""

    def spectra(run: Run) -> tuple[int, Layers, Layers]:
        recorded = ledger.eigenvalues(run.id)
        if recorded.keys() < {"start", "end"}:
            from lrurun.trained import before_and_after

            return before_and_after(run, ledger, folder)
        start, end = ([tuple(layer or ()) for layer in recorded[moment]] for moment in ("start", "end"))
        if not any(end):
            raise NoEigenvaluesError(f"run {run.id}: its recurrence has no eigenvalues", "draw --kind curves instead")
        return run.step, start, end

    return spectra

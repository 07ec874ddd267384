"""`lrurun plot`: figures of a ladder or of runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, get_args

import typer

from lrurun import console, paths, table
from lrurun.commands._shared import completing, output
from lrurun.commands._shared.options import (
    CHOICE_SEEDS,
    ChoiceSeeds,
    Choose,
    ComparedRungs,
    ExtendedInstance,
    FigureWidth,
    Instance,
    LadderName,
    Plain,
    ProfileName,
    SetsOfInstance,
    TaskOrRuns,
    TunedInstance,
    choice,
)
from lrurun.commands._shared.rules import INSTANCE, examples, excludes, is_given, needs, spelling
from lrurun.config.settings import parse_sets
from lrurun.errors import NotFoundError, UsageError, hint_for
from lrurun.instances.requests import LadderRequest, ladder_or_default
from lrurun.report.formats import FigureFormat
from lrurun.session import opening, plotting

if TYPE_CHECKING:
    from lrurun.data.metric import Metric
    from lrurun.paths import Places
    from lrurun.report.figures.figures import Figure

Kind = Literal[
    "curves", "ladder", "rates", "eigenvalues", "norms", "speed", "slots", "lengths", "items", "errors", "predictions",
    "map", "summary",
]  # fmt: skip
OF_LADDERS = ("map", "summary")
"""Kinds of figures of all tasks of a ladder."""
OF_TASKS = (*OF_LADDERS, "ladder", "speed", "slots", "lengths", "items")
"""Kinds of figures that compare the rungs of a ladder and cannot show single runs."""
DATA = (".json", ".csv")
"""The suffixes of files with the numbers of a figure, which --kind items can write."""


@examples(
    "lrurun plot --kind map --out tasks.png",
    "lrurun plot npDigits --plain --width page --out ladder.pdf",
)
@excludes("instance", *INSTANCE)
@excludes("by", "kind", "count", "no_differences")
@excludes("choose", "metric")
@needs("choose", "by")
@needs("choice_seeds", "choose")
def plot(
    context: typer.Context,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", help="The file to write: .png, .svg or .pdf; numbers of --kind items: .json, .csv."
        ),
    ],
    what: TaskOrRuns = None,
    kind: Annotated[
        Optional[Kind],
        typer.Option("--kind", help="What to draw [a TASK: ladder; RUNs: curves].", **choice("--kind", get_args(Kind))),
    ] = None,
    metric: Annotated[
        Optional[list[str]],
        typer.Option(
            "--metric",
            metavar="NAME",
            help="Draw this curve, as in gradient/recurrent (repeatable); with --by and --kind items this result, as "
            "in test/exact.",
        ),
    ] = None,
    rung: ComparedRungs = None,
    by: Annotated[
        Optional[list[str]],
        typer.Option(
            "--by",
            metavar="K",
            help="Draw the scores of all rungs over this setting, in which instances differ.",
            autocompletion=completing.paths,
        ),
    ] = None,
    choose: Choose = False,
    choice_seeds: ChoiceSeeds = CHOICE_SEEDS,
    count: Annotated[
        Optional[int],
        typer.Option(
            "--examples", metavar="N", min=1, help=f"Predict the first N [errors: all; predictions: {plotting.SHOWN}]."
        ),
    ] = None,
    ladder: LadderName = None,
    profile: ProfileName = None,
    tune: TunedInstance = False,
    extend: ExtendedInstance = None,
    set_: SetsOfInstance = None,
    instance: Instance = None,
    no_differences: Annotated[
        bool,
        typer.Option("--no-differences", help="Of --kind ladder, draw the scores without differences and verdicts."),
    ] = False,
    plain: Plain = False,
    width: FigureWidth = "column",
    format: Annotated[
        Optional[FigureFormat],
        typer.Option(
            "--format",
            help="The format of the figure [by the ending of the file].",
            **choice("--format", get_args(FigureFormat)),
        ),
    ] = None,
) -> int:
    """Draw a ladder, all its tasks (--kind map) or runs into a PNG, SVG or PDF file.

    Without a TASK or RUNs, it is the latest instance. For --kind errors and predictions, trained models predict
    examples of the validation split; errors are also printed. --kind items compares rungs on single test items, each
    with its base.
    """
    from lrurun.instances import documents, phrases
    from lrurun.report.figures import compared_items, drawing
    from lrurun.report.formats import item_lists
    from lrurun.report.tables import all_tasks, loaded_instance

    places: Places = context.obj.places
    names = what or []
    if kind in OF_LADDERS:
        if names or instance is not None:
            raise UsageError(f"--kind {kind}: shows all tasks of a ladder", "leave TASK and --instance out")
    elif not names and instance is None:
        if any(is_given(context, name) for name in INSTANCE):
            raise UsageError("plot: expected a TASK, RUNs or --instance", "lrurun status lists what is in the ledger")
        instance = opening.latest_instance(places, "a TASK, RUNs or --instance")
    ladder = ladder_or_default(ladder, names[0] if names else None)
    request = LadderRequest(
        task=names[0] if names else "",
        ladder=ladder,
        profile=profile,
        tune=tune,
        extend=extend,
        sets=parse_sets(set_ or []),
    )
    suffix = _suffix(context, out, format, kind)
    of_runs = bool(names) and _are_runs(names)
    if by is not None:
        if of_runs or not (names or is_given(context, "instance")):
            raise UsageError(
                "--by: is about instances of a TASK",
                "name the task or --instance, as in lrurun plot npDigits --by optim.lr --out rates.pdf",
            )
        if choose:
            figure = _figure_of_choice(places, request, by, choice_seeds, instance)
        else:
            figure = _figure_by(places, request, by, metric or (), instance, plain=plain)
        _write(figure, out, suffix, plain=plain, width=width)
        return 0
    drawn = kind or ("curves" if of_runs or metric else "ladder")
    if metric and drawn not in ("curves", "items"):
        raise UsageError(f"--metric: names a curve, found --kind {drawn}", "leave --kind out, or use --kind curves")
    if metric and drawn == "items" and len(metric) > 1:
        raise UsageError(f"--metric: a figure shows one, found {', '.join(metric)}", "draw one file for each")
    if rung and drawn != "items":
        raise UsageError(f"--rung: is for --kind items, found --kind {drawn}", "leave it out")
    if count is not None and drawn not in plotting.OF_EXAMPLES:
        raise UsageError(f"--examples: is for errors and predictions, found --kind {drawn}", "leave it out")
    if no_differences and drawn != "ladder":
        raise UsageError(f"--no-differences: is for --kind ladder, found --kind {drawn}", "leave it out")
    if of_runs:
        _check_for_runs(context, drawn)
    errors: Sequence[Any] = ()
    ledger, made_by = opening.read(places), ""
    if not ledger.exists:
        if not of_runs and not instance and drawn not in OF_LADDERS:
            made_by = phrases.read_again(request.plan_in(ledger).recipe)  # a wrong name or value is the error to show
        hint = f"run: {made_by or request.command()}"
        hint = "name one with --ledger PATH" if of_runs or instance or drawn in OF_LADDERS else hint
        raise NotFoundError(f"{places.ledger}: there is no ledger, so there is nothing to draw", hint)
    with ledger:
        if drawn in OF_LADDERS:
            report = all_tasks.collect(ledger, documents.ladder_of_name(ladder, ledger), request)
            figure = drawing.every_task(report) if drawn == "map" else drawing.summary(report)
        elif of_runs:
            runs = list({run.id: run for run in map(ledger.run, names)}.values())
            if drawn in plotting.OF_EXAMPLES:
                title = loaded_instance.labels_of(runs, ledger)
                single = {f"{run.memberships[0].rung if run.memberships else run.task} {run.id}": [run] for run in runs}
                figure, errors = plotting.of_examples(drawn, single, ledger, places, count, title)
            else:
                figure = plotting.of_runs(drawn, runs, ledger, places.runs, metric or ())
        else:
            asked = None if instance else request.plan_in(ledger)
            loaded = loaded_instance.chosen(ledger, request.task or None, asked, instance, request.command())
            command = loaded.command if instance else request.command()
            if drawn == "items":
                compared = compared_items.collect(loaded, command, metric[0] if metric else None, rung or ())
                if suffix in DATA:
                    output.write_file(out, item_lists.text(compared, suffix).encode())
                    console.say(f"wrote {out}")
                    return 0
                figure = compared_items.figure(compared)
            elif drawn in plotting.OF_EXAMPLES:
                title = loaded.identity.title(loaded.plan.ladder.title)
                lines = plotting.counted(loaded, command)
                figure, errors = plotting.of_examples(drawn, lines, ledger, places, count, title)
            else:
                shown = not no_differences
                figure = plotting.of_instance(drawn, loaded, places, command, metric or (), differences=shown)
    if errors:
        from lrurun.report.figures import predicted

        table.show_text(*predicted.error_texts(errors))
    _write(figure, out, suffix, plain=plain, width=width)
    return 0


def _suffix(context: typer.Context, out: Path, format: str | None, kind: str | None) -> str:
    """The suffix of the format that is written: of `--format`, else of the file."""
    from lrurun.report.figures import figure_files

    suffix = out.suffix.lower() if format is None else f".{format}"
    possible = (*figure_files.SUFFIXES, *(DATA if kind == "items" else ()))
    if suffix in DATA and kind != "items":
        raise UsageError(
            f"{f'--out {out}' if format is None else f'--format {format}'}: only --kind items writes its numbers",
            "the numbers of other figures are in: lrurun report --json, lrurun show RUN --json",
        )
    if format is not None and out.suffix.lower() in set(possible) - {suffix}:
        raise UsageError(f"--format {format} and --out {out} are different formats", "leave --format out")
    if suffix not in possible:
        ending = repr(out.suffix) if out.suffix else "no suffix"
        raise UsageError(
            f"--out {out}: the name must end in {', '.join(possible[:-1])} or {possible[-1]}, found {ending}",
            f"as in --out {out.stem or 'figure'}.pdf",
        )
    for name in ("plain", "width"):
        if suffix in DATA and is_given(context, name):
            option = spelling(context, name)
            raise UsageError(f"{option}: is for pictures, found {suffix}", f"leave {option} out")
    return suffix


def _write(figure: Figure, out: Path, suffix: str, *, plain: bool, width: Literal["column", "page"]) -> None:
    from lrurun.report.figures import figure_files

    drawn = figure.without_texts() if plain else figure
    output.write_file(out, figure_files.render(drawn, suffix, width))
    console.say(f"wrote {out}")
    if plain:  # nothing that changes the reading of the figure is lost
        console.say(figure.caption)


def _are_runs(names: Sequence[str]) -> bool:
    """Whether these are runs; else it is one task."""
    tasks = paths.names("recipes")
    are_ids = [bool(re.fullmatch(r"[0-9a-f]+(-\d*)?", name)) and name not in tasks for name in names]
    if len(names) > 1 and not all(are_ids):
        raise UsageError(
            f"plot takes one TASK, or RUNs alone, found {' '.join(names)}",
            "draw each task into a file of its own; lrurun runs lists the ids of runs",
        )
    return are_ids[0]


def _check_for_runs(context: typer.Context, kind: str) -> None:
    if kind in OF_TASKS:
        raise UsageError(
            f"--kind {kind}: compares the rungs of a TASK, found runs", "name a TASK, or draw --kind curves"
        )
    for name in (*INSTANCE, "instance"):
        if is_given(context, name):
            option = spelling(context, name)
            raise UsageError(f"{option}: chooses among the ladders of a TASK, found runs", f"leave {option} out")


def _figure_by(
    places: Places,
    request: LadderRequest,
    by: Sequence[str],
    metrics: Sequence[str],
    instance: str | None,
    *,
    plain: bool,
) -> Figure:
    """A score of every rung over the values of a setting; `metrics` names another result."""
    from lrurun.commands._shared import sweeps
    from lrurun.config.sweeps import by_paths
    from lrurun.report.figures import drawing

    for option, names in (("--by", by_paths(by)), ("--metric", metrics)):
        if len(names) > 1:
            raise UsageError(f"{option}: a figure shows one, found {', '.join(names)}", "draw one file for each")
    with sweeps.swept_table(places, request, by, instance=instance) as (report, plan, ledger):
        counted = {run for row in report.rows for run in row.runs}
        results = {run.id: run.result or {} for run in ledger.runs(ids=counted, brief=True)}
    if not results:
        hint = f"run: {request.command('--sweep', f'{report.by[0]}=V,V')}"
        hint = hint if instance is None else f"lrurun resume --instance {instance} trains it"
        raise NotFoundError(f"{report.instance.label}: no run is finished, so there is nothing to draw", hint)
    name = metrics[0] if metrics else report.score.result
    numbers = {run: result[name] for run, result in results.items() if name in result}
    if not numbers:
        existing = sorted({other for result in results.values() for other in result})
        raise NotFoundError(f"--metric {name}: no finished run has this result", hint_for(name, existing, "results"))
    return drawing.swept(report, numbers, *_axis(name, plan.task.metrics), plain=plain)


def _figure_of_choice(
    places: Places, request: LadderRequest, by: Sequence[str], seeds: int, instance: str | None
) -> Figure:
    """The rungs at the values that validation chooses for them, by the seeds that did not choose."""
    from lrurun.commands._shared import sweeps
    from lrurun.report.figures import drawing

    with sweeps.swept_instances(places, request, by, instance) as sweep:
        report = sweep.choice(seeds).report(sweep.request, None)
    numbers = {run: score for row in report.rows for run, score in zip(row.runs, row.scores, strict=True)}
    if not numbers:
        raise NotFoundError(
            "--choose: only seeds that chose are finished, so there is nothing to draw",
            f"run: {next(iter(report.commands), sweep.command)}",
        )
    return drawing.ladder(report, numbers)


def _axis(result: str, metrics: Sequence[Metric]) -> tuple[str, float]:
    """The label and the scale of a result's axis; as it is, where the task does not declare its metric."""
    from lrurun.judging import scores

    metric = scores.metric_of_result(result, metrics)
    if metric is None:
        return result, 1.0
    form = scores.form_of(metric)
    return f"{scores.SPLITS[result.partition('/')[0].partition('@')[0]]} {form.axis}", form.scale

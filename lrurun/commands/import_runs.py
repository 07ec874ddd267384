"""`lrurun import`: runs that were made elsewhere, as a ladder with verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer

from lrurun import console
from lrurun.commands._shared.options import Json, choice, number
from lrurun.commands._shared.report_output import Shown
from lrurun.commands._shared.rules import examples, excludes, exclusive
from lrurun.errors import UsageError

if TYPE_CHECKING:
    from lrurun.paths import Places
    from lrurun.session.importing import Import

KINDS = (
    *("csv", "jsonl", "parquet", "wandb", "mlflow", "tensorboard", "lightning", "transformers", "optuna", "hydra"),
    *("ray", "trackio", "aim", "sacred", "dvclive"),
)
"""The kinds of sources in the help; installed packages add others."""


@examples(
    "lrurun import runs.csv --metric test_acc --by norm,optimizer --seed-column seed",
    "lrurun import mlruns.db --at best --metric-for-choice val_acc --by norm --base norm=none",
)
@exclusive("by", "ladder", hint="the rungs are made of settings, or are in the file")
@excludes("ladder", "base", hint="the file says which rung is the base of which")
@exclusive("dry_run", "json")
def import_(
    context: typer.Context,
    source: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE ...", help="Files, folders or addresses with runs; or the file of an import."),
    ],
    kind: Annotated[
        Optional[str],
        typer.Option("--from", metavar="KIND", help=f"What wrote it [what it looks like]: {', '.join(KINDS)}."),
    ] = None,
    name: Annotated[
        Optional[str],
        typer.Option("--name", metavar="NAME", help="The name of the import and its file [the source's]."),
    ] = None,
    metric: Annotated[
        Optional[str], typer.Option("--metric", metavar="M", help="The score [the only metric of a test split].")
    ] = None,
    direction: Annotated[
        Optional[Literal["max", "min"]],
        typer.Option(
            "--direction",
            help="Whether higher or lower is better [by the name of the metric].",
            **choice("--direction", ("max", "min")),
        ),
    ] = None,
    at: Annotated[
        Optional[str],
        typer.Option(
            "--at", metavar="last|best|STEP", help="The step that counts; best: by --metric-for-choice [last]."
        ),
    ] = None,
    metric_for_choice: Annotated[
        Optional[str],
        typer.Option("--metric-for-choice", metavar="M", help="The validation metric for --at best and --choose."),
    ] = None,
    by: Annotated[
        Optional[list[str]],
        typer.Option("--by", metavar="C,C", help="Settings of whose values the rungs are made [the only one]."),
    ] = None,
    base: Annotated[
        Optional[str],
        typer.Option("--base", metavar="C=V,..", help="The rung that the others are compared with [the first]."),
    ] = None,
    seed_column: Annotated[
        Optional[str], typer.Option("--seed-column", metavar="C", help="The setting with the seed, or none [by name].")
    ] = None,
    ladder: Annotated[
        Optional[str],
        typer.Option("--ladder", metavar="FILE", help="Rungs with conditions: where = \"norm = 'layer'\"."),
    ] = None,
    choose: Annotated[
        Optional[list[str]],
        typer.Option("--choose", metavar="C,C", help="Settings of which validation chooses one value for each rung."),
    ] = None,
    crashed: Annotated[
        Optional[Literal["missing", "failed"]],
        typer.Option(
            "--crashed",
            help="Whether runs that crashed are missing, or failures [missing].",
            **choice("--crashed", ("missing", "failed")),
        ),
    ] = None,
    repeat: Annotated[
        Optional[Literal["latest", "mean", "all"]],
        typer.Option(
            "--repeat",
            help="Which of several runs of one rung and seed count.",
            **choice("--repeat", ("latest", "mean", "all")),
        ),
    ] = None,
    protocol: Annotated[
        Optional[Literal["holdout", "best-of-test"]],
        typer.Option(
            "--protocol",
            help="best-of-test: the best test score of each run counts, and reports say so.",
            **choice("--protocol", ("holdout", "best-of-test")),
        ),
    ] = None,
    test_items: Annotated[
        Optional[int],
        typer.Option(
            "--test-items",
            metavar="N",
            help="The number of test items.",
            **number("--test-items", int, 1, example=10_000),
        ),
    ] = None,
    items: Annotated[
        Optional[str],
        typer.Option("--items", metavar="C|FILE", help="A column, or a file of each run, with results per item."),
    ] = None,
    unit: Annotated[
        Optional[str], typer.Option("--unit", metavar="U", help="The unit of scores; %: fractions, shown in per cent.")
    ] = None,
    per_cent: Annotated[
        Optional[bool],
        typer.Option("--per-cent/--no-per-cent", help="The source has per cent for fractions.", show_default=False),
    ] = None,
    chance: Annotated[
        Optional[float],
        typer.Option(
            "--chance",
            metavar="X",
            help="The score of a guess.",
            **number("--chance", float, -1e9, 1e9, example=0.1),
        ),
    ] = None,
    project: Annotated[
        Optional[str], typer.Option("--project", metavar="P", help="Only runs of this project or experiment.")
    ] = None,
    metrics_file: Annotated[
        Optional[str],
        typer.Option("--metrics-file", metavar="FILE", help="The file with the metrics in the folder of each run."),
    ] = None,
    scores_only: Annotated[bool, typer.Option("--scores-only", help="Leave curves out.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the file that would be written, and stop.")] = False,
    json: Json = False,
) -> int:
    """Read runs that were made elsewhere, and print their table.

    Writes a small file beside the ledger that says what was understood: edit it, and import again. That adds what is
    new, and leaves what is equal. To make a task of your own arrays: lrurun data import.
    """
    from lrurun.imported.request import ImportOptions, Request, parsed_at, parsed_base
    from lrurun.session import importing

    places: Places = context.obj.places
    request = Request(
        sources=tuple(source),
        options=ImportOptions(
            kind=kind,
            metric=metric,
            direction=direction,
            at=None if at is None else parsed_at(at),
            metric_for_choice=metric_for_choice,
            by=_listed("--by", by),
            base={} if base is None else parsed_base(base),
            seed=seed_column,
            ladder=ladder,
            choose=_listed("--choose", choose),
            crashed=crashed,
            repeat=repeat,
            protocol=protocol,
            test_items=test_items,
            items=items,
            unit=unit,
            per_cent=per_cent,
            chance=chance,
            project=project,
            metrics_file=metrics_file,
        ),
        name=name,
        folder=importing.folder_of(places),
        command=("lrurun", *context.obj.arguments),
    )
    made = importing.understand(places, request)
    if dry_run:
        console.write(made.text)
        return 0
    done = importing.record(places, made, scores_only=scores_only)
    if json:
        _print_json(done)
    else:
        _print_report(places, done)
    return 0


def _listed(option: str, words: list[str] | None) -> tuple[str, ...]:
    """Names that are separated by commas, or by repeating the option.

    Raises:
        UsageError: there are none.
    """
    names = tuple(name.strip() for word in words or () for name in word.split(",") if name.strip())
    if words and not names:
        raise UsageError(f"{option}: names no setting, found {words[0]!r}", f"as in {option} norm,optimizer")
    return names


def _print_json(done: Import) -> None:
    """One object: the instance, its file, how the runs were read, the rungs, and what the import found."""
    import json

    import msgspec

    made = done.understood
    every = [*made.placed, *(place for place, _ in made.kept)]
    rungs = [
        {
            "rung": rung.name,
            "where": rung.where,
            "on": made.plan.ladder.bases[rung.name],
            "seeds": [place.seed for place in every if place.rung == rung.name],
        }
        for rung in made.plan.ladder.rungs
    ]
    document = {
        "instance": {"key": done.instance.key, "short_name": done.instance.short_name, "task": done.instance.task},
        "file": str(made.target),
        "import": msgspec.to_builtins(made.table),
        "rungs": rungs,
        "record": msgspec.to_builtins(done.record),
    }
    console.write(json.dumps(document, indent=2, ensure_ascii=False))


def _print_report(places: Places, done: Import) -> None:
    """Prints the answer: the table, and what it says."""
    from lrurun.ledger.ledger import Ledger
    from lrurun.report.tables import loaded_instance

    with Ledger.read(places.ledger) as ledger:
        loaded = loaded_instance.LoadedInstance(done.understood.plan, done.instance, ledger)
        Shown(request=done.instance.short_name).write(loaded.report(), ledger)

"""`lrurun report`: the comparison table of a ladder, with its claims."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from msgspec import structs

from lrurun import console, studies
from lrurun.commands._shared import output
from lrurun.commands._shared.options import (
    CHOICE_SEEDS,
    By,
    Caption,
    ChoiceSeeds,
    Choose,
    ExtendedInstance,
    Format,
    Instance,
    Json,
    Label,
    LadderName,
    OnlyRungs,
    OutFile,
    PlainTable,
    ProfileName,
    SetsOfInstance,
    TableWidth,
    TaskOrAll,
    TunedInstance,
    number,
)
from lrurun.commands._shared.report_output import Shown
from lrurun.commands._shared.rules import INSTANCE, examples, excludes, exclusive, is_given, needs, spelling
from lrurun.config.settings import parse_sets
from lrurun.errors import NotFoundError, UsageError
from lrurun.instances.requests import LadderRequest, ladder_or_default
from lrurun.report import formats
from lrurun.report.formats import paper_style
from lrurun.session import opening

if TYPE_CHECKING:
    from pathlib import Path

    from lrurun.config import planning
    from lrurun.ledger.ledger import Ledger
    from lrurun.paths import Places
    from lrurun.report.tables.loaded_instance import LoadedInstance


@examples(
    "lrurun report npDigits",
    "lrurun report npDigits --plain --out ablation.tex",
)
@exclusive("json", "format")
@exclusive("json", "columns")
@excludes("all_", "task", "instance", "speed", "by")
@excludes("detect", "all_", "speed", "by")
@excludes("by", "speed")
@excludes(
    "methods", "all_", "speed", "by", "detect", "details", "table_only", "limit", "rung", "columns", "plain", "tables"
)
@excludes("instance", *INSTANCE)
@needs("choose", "by")
@needs("choice_seeds", "choose")
def report(
    context: typer.Context,
    task: TaskOrAll = None,
    all_: Annotated[bool, typer.Option("--all", help="One table of all tasks that have results.")] = False,
    ladder: LadderName = None,
    profile: ProfileName = None,
    rung: OnlyRungs = None,
    by: By = None,
    choose: Choose = False,
    choice_seeds: ChoiceSeeds = CHOICE_SEEDS,
    tune: TunedInstance = False,
    extend: ExtendedInstance = None,
    set_: SetsOfInstance = None,
    instance: Instance = None,
    speed: Annotated[bool, typer.Option("--speed", help="Report training speeds instead of test scores.")] = False,
    format: Format = "table",
    out: OutFile = None,
    limit: Annotated[
        Optional[int],
        typer.Option(
            "--limit", metavar="N", help="Only the first N rungs; 0 is all.", **number("--limit", int, 0, example=5)
        ),
    ] = None,
    detect: Annotated[
        Optional[float],
        typer.Option(
            "--detect",
            metavar="D",
            help="Say how many seeds and test items a difference of D needs, in the unit of the table (2: two points).",
            **number("--detect", float, 0.0001, 10_000, example=2),
        ),
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Add intervals, settings, speeds, published values and the reasoning.")
    ] = False,
    table_only: Annotated[
        bool, typer.Option("--table-only", help="With --format latex: the rows, without float, caption and notes.")
    ] = False,
    methods: Annotated[
        bool, typer.Option("--methods", help="Write the methods paragraph of a paper: what was done, as recorded.")
    ] = False,
    columns: Annotated[
        Optional[list[str]],
        typer.Option(
            "--columns",
            metavar="C,C",
            help="These columns, by their names in CSV; for all formats but html and json.",
        ),
    ] = None,
    plain: PlainTable = False,
    tables: Annotated[
        Optional[list[str]],
        typer.Option(
            "--tables",
            metavar="|".join(paper_style.TABLES),
            help="With LaTeX: the rungs, the claims, or with --all tasks by rungs. Several with commas.",
        ),
    ] = None,
    caption: Caption = None,
    label: Label = None,
    width: TableWidth = "column",
    json: Json = False,
) -> int:
    """Compare a ladder's rungs with each other.

    Without a TASK, it is of the latest instance. Prints the scores of all seeds, what each change did, and what changes
    the reading of that. Formats other than table have what --details adds. --plain makes LaTeX for a paper.
    """
    places: Places = context.obj.places
    if not (all_ or task or instance):
        if by or any(is_given(context, name) for name in INSTANCE):
            raise UsageError(
                "report: expected a TASK, --instance or --all", "lrurun status lists the tasks that have results"
            )
        instance = opening.latest_instance(places, "a TASK, --instance or --all")
    if instance is not None and not all_ and (study := _study_of(places, instance)) is not None:
        task, profile, set_ = study
        instance = None
    is_study = task is not None and studies.is_task(task)
    chosen: formats.Format = "json" if json else format
    if methods and task is not None and is_study:
        raise UsageError("--methods: does not apply to reports of studies", f"lrurun report {task}")
    if out is not None and not (json or is_given(context, "format")):
        chosen = _format_of(out, of_ladder=not is_study)
    elif plain and not (json or is_given(context, "format")):
        chosen = "latex"
    for name in ("table_only", "plain", "tables", "caption", "label", "width"):
        if is_given(context, name) and chosen != "latex":
            raise UsageError(
                f"{spelling(context, name)}: belongs to --format latex", "add --format latex, or leave it out"
            )
    style = _style(plain, tables, caption, label, width, table_only=table_only)
    if columns and chosen == "html":
        raise UsageError("--columns and --format html exclude each other: a page has all", "leave one of them out")
    if task is not None and is_study:
        from lrurun.commands._shared import study_output

        for option in ("ladder", "rung", "by", "tune", "extend", "speed", "limit", "detect", "columns"):
            if is_given(context, option):
                raise UsageError(f"--{option}: does not apply to reports of studies", f"lrurun report {task}")
        if chosen not in ("table", "json"):
            raise UsageError(
                f"--format {chosen}: reports of studies are tables or JSON",
                f"lrurun report {task} --out FILE.html",
            )
        return study_output.write_report(places, task, profile, set_ or [], json=chosen == "json", out=out)
    if detect is not None and chosen == "csv":
        raise UsageError(
            "--detect and --format csv exclude each other: CSV has the rows alone",
            f"lrurun report{'' if task is None else f' {task}'} --detect {detect:g} --json",
        )
    request = LadderRequest(
        task=task or "",
        ladder=ladder_or_default(ladder, task),
        profile=profile,
        tune=tune,
        extend=extend,
        sets=parse_sets(set_ or []),
    )
    show = Shown(
        rungs=rung or [],
        limit=limit,
        claims=is_given(context, "ladder"),
        details=details,
        request=None if instance else request,
        table_only=table_only,
        columns=columns or [],
        style=style,
        format=chosen,
        out=out,
    )
    if methods:
        return _write_methods(places, request, instance, chosen, out)
    if all_:
        return _report_all(places, request, show)
    if by:
        from lrurun.commands._shared import sweeps

        if choose:
            sweeps.write_choice(places, request, by, show, choice_seeds, instance)
        else:
            sweeps.write_report(places, request, by, show, instance)
        return 0
    return _report(places, request, show, instance=instance, speeds=speed, detect=detect)


def _study_of(places: Places, name: str) -> tuple[str, str | None, list[str]] | None:
    """The task, the profile and the values of `--set` of an instance that is a study; None for a ladder's, and where
    there is none."""
    from lrurun.config.settings import set_text

    with opening.read(places) as ledger:
        if not ledger.exists:
            return None
        instance = ledger.ladder(name)
    if not studies.is_task(instance.task):
        return None
    return instance.task, instance.profile, [set_text(path, value) for path, value in instance.spec.set.items()]


def _style(
    plain: bool, tables: list[str] | None, caption: str | None, label: str | None, width: str, *, table_only: bool
) -> paper_style.PaperStyle:
    """The form of LaTeX that the options say."""
    kinds = paper_style.table_kinds(tables or [])
    for option, text in (("--caption", caption), ("--label", label)):
        if text is not None and table_only:
            raise UsageError(f"{option} and --table-only exclude each other", "leave one of them out")
        if text is not None and len(kinds) > 1:
            raise UsageError(
                f"{option}: is of one table, found --tables {','.join(kinds)}", "write one table at a time"
            )
    return paper_style.PaperStyle(
        plain=plain,
        tables=kinds,
        caption="" if caption is None else paper_style.check_caption(caption),
        label="" if label is None else paper_style.check_label(label),
        width="page" if width == "page" else "column",
    )


def _format_of(out: Path, *, of_ladder: bool) -> formats.Format:
    """The format of a file by its ending. Reports of studies know their own endings, all but .json."""
    ending = out.suffix.lower()
    if of_ladder and ending not in formats.ENDINGS:
        actual = repr(out.suffix) if ending else "no suffix"
        raise UsageError(
            f"--out {out}: the name must end in {', '.join(formats.ENDINGS)}, found {actual}",
            f"as in --out {out.stem or 'report'}.md, or name a --format",
        )
    return formats.ENDINGS[ending] if of_ladder or ending == ".json" else "table"


def _report(
    places: Places,
    request: LadderRequest,
    show: Shown,
    *,
    instance: str | None,
    speeds: bool,
    detect: float | None,
) -> int:
    """The comparison table of one ladder instance, or the table of its training speeds."""
    from lrurun.session import next_step

    with _loaded(places, request, instance) as (loaded, plan, ledger):
        rungs = show.rung_names(loaded.plan.ladder)
        if speeds:
            show.write(loaded.speeds(rungs=rungs), ledger)
        else:
            with_claims = True if show.claims or "claims" in show.style.tables else None
            report = loaded.report(rungs=rungs, detect=detect, with_claims=with_claims, with_unbeaten=show.style.plain)
            if show.format == "table" and not show.details:
                if plan is None:
                    show = structs.replace(show, request=next_step.request_of(loaded))
                else:
                    show = structs.replace(show, firm=next_step.command(places, request, plan, ledger, report))
            show.write(report, ledger)
    return 0


def _write_methods(
    places: Places, request: LadderRequest, instance: str | None, format: formats.Format, out: Path | None
) -> int:
    """The methods paragraph of an instance, to stdout or into a file."""
    from lrurun.report.methods import paragraph

    if format not in paragraph.FORMATS:
        raise UsageError(
            f"--methods and {format}: a paragraph is text, not a table or a page",
            f"formats: {', '.join(paragraph.FORMATS)}; as in --out methods.tex",
        )
    with _loaded(places, request, instance) as (loaded, _, _):
        made = paragraph.of_instance(loaded)
    # one line elsewhere, as the sentences of reports in a pipe: an editor folds it
    text = made.render(format, width=console.width() if out is None and console.is_screen() else None)
    if out is None:
        console.write(console.plain(text) if console.is_ascii() else text, styled=False)
    else:
        output.write_file(out, f"{text}\n".encode())
        console.say(f"wrote {out}")
    return 0


@contextmanager
def _loaded(
    places: Places, request: LadderRequest, instance: str | None
) -> Iterator[tuple[LoadedInstance, planning.Plan | None, Ledger]]:
    """The instance that is requested or named, the plan of the request, and the open ledger."""
    from lrurun.instances import phrases
    from lrurun.report.tables import loaded_instance

    with opening.read(places) as ledger:
        plan = None if instance else request.plan_in(ledger)
        if not ledger.exists:
            made_by = f"run: {(plan and phrases.read_again(plan.recipe)) or request.command()}"
            raise NotFoundError(
                f"{places.ledger}: there is no ledger, so there are no results",
                "name one with --ledger PATH" if instance else made_by,
            )
        loaded = loaded_instance.chosen(ledger, request.task or None, plan, instance, request.command())
        if loaded.instance.key in ledger.hidden():
            console.say(phrases.hidden(loaded.instance))
        yield loaded, plan, ledger


def _report_all(places: Places, request: LadderRequest, show: Shown) -> int:
    """One table of a ladder on all tasks of the ledger, with a column for each task and profile."""
    from lrurun.instances import documents
    from lrurun.report.tables import all_tasks

    with opening.read(places) as ledger:
        ladder = documents.ladder_of_name(request.ladder, ledger)
        rungs = show.rung_names(ladder)
        if not ledger.exists:
            raise NotFoundError(
                f"{places.ledger}: there is no ledger, so there are no results",
                f"run: lrurun ladder TASK --ladder {request.ladder}",
            )
        show.write(all_tasks.collect(ledger, ladder, request, rungs, with_unbeaten=show.style.plain), ledger)
    return 0

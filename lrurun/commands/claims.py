"""`lrurun claims`: the claims of papers, judged by the papers' own numbers and by the runs of the ledger."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional, get_args

import typer
from msgspec import structs

from lrurun import console, paths, plugins, studies
from lrurun.commands._shared import output
from lrurun.commands._shared.options import (
    Caption,
    Json,
    Label,
    OnlyInstance,
    OnlyLadder,
    OnlyTask,
    PlainTable,
    TableWidth,
    choice,
)
from lrurun.commands._shared.rules import examples, excludes, exclusive, is_given, spelling
from lrurun.errors import NotFoundError, UsageError
from lrurun.report.formats import paper_style
from lrurun.session import opening

if TYPE_CHECKING:
    from lrurun.report.tables.ledger_claims import LedgerClaims

ClaimsFormat = Literal["table", "latex"]


@examples(
    "lrurun claims",
    "lrurun claims npDigits --plain --out claims.tex",
)
@excludes("instance", "task", "ladder", "page", hint="the instance has a task and a ladder")
@exclusive("json", "format", "plain", "page")
def claims(
    context: typer.Context,
    task: OnlyTask = None,
    ladder: OnlyLadder = None,
    instance: OnlyInstance = None,
    paper: Annotated[
        Optional[str], typer.Option("--paper", metavar="P", help="Only this paper: lru, dlr, rotrnn or zucchet.")
    ] = None,
    page: Annotated[
        Optional[Path],
        typer.Option(
            "--page",
            metavar="FILE",
            help="Write every table and figure of the papers, with command and result, as Markdown.",
        ),
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="The reasoning on every claim, or what would decide it.")
    ] = False,
    format: Annotated[
        ClaimsFormat,
        typer.Option("--format", help="The output format.", **choice("--format", get_args(ClaimsFormat))),
    ] = "table",
    plain: PlainTable = False,
    caption: Caption = None,
    label: Label = None,
    width: TableWidth = "column",
    out: Annotated[
        Optional[Path], typer.Option("--out", metavar="FILE", help="With LaTeX: write to this file.")
    ] = None,
    json: Json = False,
) -> int:
    """Judge the papers' claims by their own numbers and by your runs.

    The rule is the same for both. Of several instances of a ladder on a task, the plain recipe judges, else a profile
    at the paper's sizes; --instance names another one. Claims about theory figures are decided by the results of
    studies. --paper also shows what became of every table, figure and checkable sentence of the paper.
    """
    from lrurun.config.recipe import read_recipe
    from lrurun.report import papers
    from lrurun.report.formats import table
    from lrurun.report.tables import claims_table, ledger_claims
    from lrurun.studies.machinery import study_claims

    if plain and not is_given(context, "format"):
        format = "latex"
    for name in ("plain", "caption", "label", "width", "out"):
        if is_given(context, name) and format != "latex":
            raise UsageError(
                f"{spelling(context, name)}: belongs to --format latex", "add --format latex, or leave it out"
            )
    style = paper_style.PaperStyle(
        plain=plain,
        caption="" if caption is None else paper_style.check_caption(caption),
        label="" if label is None else paper_style.check_label(label),
        width=width,
    )
    claims_table.check_paper(paper)
    _check_page(page, task, ladder)
    if task is not None and paths.is_path(task):
        task = read_recipe(task).task
    task = study_claims.task_of(task, ladder)
    with opening.read(context.obj.places) as ledger:
        only = None
        if instance is not None:
            from lrurun.report.tables import loaded_instance

            only = loaded_instance.of_instance(ledger, ledger.ladder(instance))
            task, ladder = only.instance.task, only.instance.name
        ladders, errors = ({only.ladder.name: only.ladder}, []) if only else ledger_claims.ladders_of(ledger, ladder)
        for error in errors:
            raise error
        if task is None or not studies.is_task(task):
            ledger_claims.check_task(task, ledger)
        by_task = study_claims.evidence(ledger, task) if ladder is None else {}
        evidence = ledger_claims.gather(ledger, ladders, task, by_task, only)
    document = ledger_claims.collect(evidence, ladders, task, paper)
    citation = None if paper is None else claims_table.PAPERS[paper]
    whole_papers = [known for known in papers.every() if known.name == citation and (task, ladder) == (None, None)]
    for whole_paper in whole_papers:
        document = structs.replace(document, places=papers.statuses(whole_paper, evidence, document.claims))
    if page is not None:
        output.write_file(page, papers.render(evidence, document.claims, citation).encode(), "--page")
        console.say(f"wrote {page}")
    if json:
        output.write_json(document)
    elif format == "latex":
        _write_latex(document, style, out, by_runs=ledger.exists, subject=task or paper or ladder)
    elif page is None and not document.claims:
        console.say(f"no claims{f' of ladder {ladder}' if ladder else ''} on {task or 'tasks that are here'}")
    elif page is None:
        options = {"--ladder": ladder, "--paper": paper} if only is None else {"--instance": instance, "--paper": paper}
        named = [word for option, value in options.items() if value is not None for word in (option, value)]
        words = ["lrurun", "claims", *([task] if task and only is None else []), *named]
        command = shlex.join([*words, *paths.place_options(), *plugins.load_options()])
        contents = claims_table.contents(
            document.claims,
            task,
            by_runs=ledger.exists,
            details=details,
            command=command,
            removed=[f"{removed.name}: {removed.text}" for removed in document.removed],
        )
        contents += [papers.content_of(whole_paper, document.places) for whole_paper in whole_papers]
        tables = [
            table.render(content, width=console.width(), color=console.has_color(), ascii=console.is_ascii())
            for content in contents
        ]
        console.write("\n\n".join(tables), styled=True)
    return 0


def _write_latex(
    document: LedgerClaims,
    style: paper_style.PaperStyle,
    out: Path | None,
    *,
    by_runs: bool,
    subject: str | None,
) -> None:
    """The claims that are judged, as a table of LaTeX."""
    from lrurun.report.formats import latex
    from lrurun.report.tables import paper_tables

    judged = paper_tables.judged(document.claims, by_runs=by_runs)
    if not judged:
        raise NotFoundError(
            "no claim is judged, so there is no table", "lrurun claims --details says what would judge them"
        )
    label = f"claims-{subject}" if subject else "claims"
    instances = {claim.ours.instance for claim in judged}
    removed = [(one.kind, one.runs, one.why) for one in document.removed if one.instance in instances]
    table = paper_tables.with_removed(paper_tables.of_claims(judged, label=label, plain=style.plain), removed)
    text = "\n".join(latex.paper_pages(table, style))
    if out is None:
        console.write(text)
        return
    output.write_file(out, f"{text}\n".encode())
    console.say(f"wrote {out}")


def _check_page(page: Path | None, task: str | None, ladder: str | None) -> None:
    """Refuses options that a page of all ladders and tasks does not have."""
    words = " ".join([*([task] if task else []), *([f"--ladder {ladder}"] if ladder else [])])
    if page is not None and words:
        raise UsageError(f"--page: shows all ladders and tasks, found {words}", "omit it; --paper P is possible")

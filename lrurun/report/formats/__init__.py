"""The formats of what is printed and written, and reports as text in each of theirs, a file for each format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from msgspec import structs

from lrurun.console import PIPE_WIDTH
from lrurun.errors import UsageError
from lrurun.report.formats.paper_style import PaperStyle

if TYPE_CHECKING:
    from lrurun.instances.requests import LadderRequest
    from lrurun.report.run_details import RunDetail
    from lrurun.report.tables.all_tasks import AllTasksReport
    from lrurun.report.tables.content import ReportContent
    from lrurun.report.tables.ladder_table import LadderReport
    from lrurun.report.tables.speed import SpeedReport
    from lrurun.report.tables.swept_table import SweptReport

    AnyReport = LadderReport | SpeedReport | AllTasksReport | SweptReport

Format = Literal["table", "md", "csv", "latex", "html", "json"]
"""The formats of reports. On the command line, `--format json` is `--json`."""
RunsFormat = Literal["table", "csv", "md", "json"]
"""The formats of lists of runs."""
FigureFormat = Literal["png", "svg", "pdf", "json", "csv"]
"""The formats of figures; the last two of their numbers, where no report has them."""
ExportFormat = Literal["parquet", "csv", "tensorboard", "mlflow"]
"""The files of other programs that `report.exports` writes."""
NAMES = tuple(dict.fromkeys(get_args(Format) + get_args(FigureFormat) + get_args(ExportFormat)))
"""The names of all formats, which people also type as options."""
ENDINGS: dict[str, Format] = {
    ".txt": "table",
    ".md": "md",
    ".csv": "csv",
    ".tex": "latex",
    ".html": "html",
    ".json": "json",
}
"""How the name of a report's file ends -> its format."""


def content_of(report: AnyReport) -> ReportContent:
    """The contents of a report, whatever the format."""
    # Imported here: every command with --json uses this package, and those modules import numpy.
    from lrurun.report.tables import all_tasks, ladder_content, speed, swept_table

    if isinstance(report, swept_table.SweptReport):
        return swept_table.content_of(report)
    if isinstance(report, all_tasks.AllTasksReport):
        return all_tasks.content_of(report)
    if isinstance(report, speed.SpeedReport):
        return speed.content_of(report)
    return ladder_content.content_of(report)


def answer_of(report: AnyReport, request: LadderRequest | str | None = None, firm: str = "") -> ReportContent:
    """The first layer of a report, where it has several."""
    from lrurun.report.figures import task_map
    from lrurun.report.tables import answer
    from lrurun.report.tables.all_tasks import AllTasksReport
    from lrurun.report.tables.ladder_table import LadderReport

    if isinstance(report, LadderReport):
        return answer.content_of(report, request, firm)
    return task_map.answer_of(report) if isinstance(report, AllTasksReport) else content_of(report)


def render(
    report: AnyReport,
    format: Format,
    *,
    width: int = PIPE_WIDTH,
    color: bool = False,
    details: Mapping[str, RunDetail] | None = None,
    answer: bool = False,
    request: LadderRequest | str | None = None,
    firm: str = "",
    ascii: bool = False,
    table_only: bool = False,
    columns: Sequence[str] = (),
    style: PaperStyle | None = None,
) -> str:
    """`report` in a format, of which only the one that is needed is imported.

    `width`, `color` and `ascii` apply to the table, which leaves columns out rather than cutting one, and so does
    `answer`: on a ladder, the first layer alone, with commands that show more of the `request`, and the one that makes
    verdicts `firm`. `details` of the runs (by their ids) are for the HTML page, `table_only` leaves out what LaTeX has
    around the table, and `style` is the form of LaTeX. `columns` are texts with names of CSV's columns, which a table,
    Markdown, CSV and LaTeX have in place of theirs.
    """
    if format == "json":
        from lrurun.report.formats import as_json

        return as_json.render(report)
    if columns:
        answer = False
    content = answer_of(report, request, firm) if answer and format == "table" else content_of(report)
    names: Sequence[str] = content.csv
    if columns:
        from lrurun.report.formats import named_columns

        names = named_columns.check(columns, content.csv)
    if format == "csv":
        from lrurun.report.formats import as_csv

        return as_csv.render(report, names)
    if format == "latex" and style is not None and (style.plain or style.tables):
        return "\n".join(_paper_tables(report, content, style, names if columns else (), table_only=table_only))
    if columns:
        content = structs.replace(content, table=named_columns.table(report, names), above=())
    if format == "md":
        from lrurun.report.formats import markdown

        return markdown.render(content)
    if format == "latex":
        from lrurun.report.formats import latex

        return latex.render(content, table_only=table_only, whole=bool(columns), style=style)
    if format == "html":
        from lrurun.report.formats import html

        return html.render(report, content, details or {})
    from lrurun.report.formats import table
    from lrurun.report.tables.ladder_table import LadderReport
    from lrurun.report.tables.speed import SpeedReport

    if isinstance(report, SpeedReport) or (isinstance(report, LadderReport) and not answer):
        content = structs.replace(content, title=report.instance.named(content.title))
    return table.render(content, width=width, color=color, ascii=ascii)


def _paper_tables(
    report: AnyReport, content: ReportContent, style: PaperStyle, columns: Sequence[str], *, table_only: bool
) -> Iterator[str]:
    """The tables that LaTeX has of a report in this style.

    Raises:
        UsageError: the report has no such table.
    """
    from lrurun.report.figures import task_map
    from lrurun.report.formats import latex, named_columns
    from lrurun.report.tables import answer, paper_tables
    from lrurun.report.tables.all_tasks import AllTasksReport
    from lrurun.report.tables.ladder_table import LadderReport

    if isinstance(report, AllTasksReport):
        if wrong := [kind for kind in style.tables if kind != "map"]:
            raise UsageError(f"--tables {wrong[0]}: is of one task, found --all", "name a TASK, or --tables map")
        if columns:
            raise UsageError("--columns: a map of tasks has no columns of its own", "leave --columns or the map out")
        if style.plain:
            yield latex.paper_table(paper_tables.task_map(report), style, table_only=table_only)
        else:
            yield latex.render(task_map.content_of(report), table_only=table_only, whole=True, style=style)
        return
    if not isinstance(report, LadderReport):
        option = "--plain" if style.plain else f"--tables {style.tables[0]}"
        raise UsageError(
            f"{option}: is for the scores of a ladder, of --choose, or of --all",
            "leave it out; --columns chooses columns",
        )
    if "map" in style.tables:
        raise UsageError("--tables map: is of all tasks, found one", "lrurun report --all --tables map")
    for kind in style.tables or ("ablation",):
        if kind == "claims":
            if not report.claims:
                raise UsageError("--tables claims: this report has no claims", "leave it out")
            yield from latex.paper_pages(paper_tables.claims(report, plain=style.plain), style, table_only=table_only)
        elif style.plain:
            report = paper_tables.with_results(report)
            bold, short = paper_tables.marked(report), not answer.needs_decimals(report)
            chosen = (
                named_columns.table(report, columns, marks=paper_tables.MARKS, marked=bold.__contains__, short=short)
                if columns
                else None
            )
            yield latex.paper_table(paper_tables.ablation(report, columns, chosen), style, table_only=table_only)
        else:
            shown = structs.replace(content, claims=())
            if columns:
                shown = structs.replace(shown, table=named_columns.table(report, columns), above=())
            yield latex.render(shown, table_only=table_only, whole=bool(columns), style=style)

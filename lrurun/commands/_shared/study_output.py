"""What is shown of a study, and where it goes: to stdout, or into files of figures and pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lrurun import console, table
from lrurun.commands._shared import output
from lrurun.errors import LrurunError, NotFoundError, Stopped, UsageError, raise_first
from lrurun.session.study import Computation, incomplete, recorded
from lrurun.studies import PREFIX
from lrurun.studies.machinery import reporting, study_pages

if TYPE_CHECKING:
    from lrurun.paths import Places
    from lrurun.report.figures.figures import Figure
    from lrurun.report.widths import Width
    from lrurun.session.training_options import TrainingOptions
    from lrurun.studies.machinery.planning import StudyPlan
    from lrurun.studies.machinery.reporting import StudyReport
    from lrurun.studies.machinery.request import StudyRequest
    from lrurun.studies.machinery.study import Results

PAGE = ".html"


def is_drawn(out: Path) -> bool:
    """Whether a file of this name is a figure or a page."""
    from lrurun.report.figures import figure_files

    return out.suffix.lower() in (*figure_files.SUFFIXES, PAGE)


def check_out(out: Path | None, *, several: bool) -> None:
    """Checks the value of `--out` of one or several studies.

    Raises:
        UsageError: it is not a file of a known format, or not a folder.
    """
    if out is None:
        return
    if several and (out.exists() or is_drawn(out)) and not out.is_dir():
        problem = "is a file" if out.exists() else "is the name of a file"
        raise UsageError(
            f"--out {out}: {problem}, but several studies need a folder", "as in --out figures; or name one study"
        )
    if not several and not is_drawn(out):
        suffix = repr(out.suffix) if out.suffix else "no suffix"
        raise UsageError(
            f"--out {out}: the name must end in .png, .svg, .pdf or .html, found {suffix}", "as in --out figure.png"
        )


class Drawings:
    """Draws studies: one into a file; several into a folder, as PNG and SVG and as a page of all."""

    def __init__(self, out: Path | None, *, several: bool, plain: bool = False, width: Width = "column") -> None:
        """`plain` files have neither title nor caption; the page has its own."""
        self.out = out
        self._plain, self._width = plain, width
        self.errors: list[LrurunError] = []
        """Why there are no figures, each reason once."""
        self._several = several
        self._made: list[tuple[StudyReport, str]] = []
        """Reports, with their figures as SVG for the page."""

    def add(self, request: StudyRequest, plan: StudyPlan, results: Results[Any], report: StudyReport) -> StudyReport:
        """Writes the figure of a study, if one is wanted and the study is complete; its report, with the name of the
        figure."""
        if self.out is None:
            return report
        svg = ""
        if report.unfinished:
            console.warn("; ".join(incomplete(request, plan, results)))
        else:
            stem = self.out / plan.study.name
            files = [stem.with_suffix(suffix) for suffix in (".png", ".svg")] if self._several else [self.out]
            try:
                contents, svg = self._drawn(plan.study.figure(results), report, files)
            except LrurunError as error:
                if error.message not in [recorded.message for recorded in self.errors]:
                    self.errors.append(error)
            else:
                for file, content in contents.items():
                    _write(file, content)
                report = structs.replace(report, figure=str(files[0]))
        self._made.append((report, svg))
        return report

    def _drawn(self, figure: Figure, report: StudyReport, files: Sequence[Path]) -> tuple[dict[Path, bytes], str]:
        """The contents of the files of figures, and what the page has."""
        from lrurun.report.figures import figure_files

        whole = figure if self._plain else study_pages.captioned(report, figure)
        suffixes = {file: suffix for file in files if (suffix := file.suffix.lower()) in figure_files.SUFFIXES}
        try:
            contents = {file: figure_files.render(whole, suffix, self._width) for file, suffix in suffixes.items()}
            return contents, study_pages.inline(report, figure) if self._page else ""
        except ModuleNotFoundError as error:
            raise LrurunError(
                f"the numbers are recorded, but {error.name} is missing, which draws figures",
                f"pip install {error.name}, then run the same command",
            ) from None

    @property
    def _page(self) -> Path | None:
        if self.out is None:
            return None
        return self.out / "index.html" if self._several else self.out if self.out.suffix.lower() == PAGE else None

    def write_page(self) -> None:
        """Writes the page, if there is one."""
        if self._made and self._page is not None:
            _write(self._page, (study_pages.render(self._made) + "\n").encode())


def _write(file: Path, content: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LrurunError(f"{file.parent}: {error.strerror}", "choose another --out") from None
    output.write_file(file, content)
    console.say(f"wrote {file}")


def write_report(
    places: Places, task: str, profile: str | None, sets: Sequence[str], *, json: bool, out: Path | None
) -> int:
    """Prints the report of a study from the ledger as it is, for the seeds of its newest command, or writes it or its
    figure; the exit code.

    Raises:
        NotFoundError: the ledger has none of its cells, or not all that a figure needs.
        UsageError: a figure as JSON.
    """
    drawn = out is not None and is_drawn(out)
    if drawn and json:
        raise UsageError(f"--json and --out {out} exclude each other", "leave --json out, or name a .json file")
    request, plan, results = recorded(places, task.removeprefix(PREFIX), profile, sets)
    report = reporting.build(plan, results)
    if out is None and json:
        output.write_json(report)
    elif out is None:
        reporting.show(report)
    elif drawn:
        if report.unfinished:
            raise NotFoundError(*incomplete(request, plan, results))
        drawings = Drawings(out, several=False)
        drawings.add(request, plan, results, report)
        drawings.write_page()
        raise_first(drawings.errors)
    else:
        from lrurun.report.formats import as_json

        text = as_json.render(report) if json else reporting.text(report)
        output.write_file(out, text.rstrip("\n").encode() + b"\n")
        console.say(f"wrote {out}")
    return 0


def repeat(computation: Computation, options: TrainingOptions) -> int:
    """Computes what remains of a recorded study, and prints its report; the exit code."""
    code = run(computation, options)
    for report in computation.reports:
        reporting.show(report)
    return code


def run(computation: Computation, options: TrainingOptions) -> int:
    """Computes what remains of studies, or shows it; the exit code."""
    if options.dry_run and options.site.is_local:
        for title, cells in computation.planned():
            rows = [[cell.cell, f"{cell.done}/{cell.seeds}"] for cell in cells]
            table.show_text(["cell", "done"], rows, title=title)
        return 0
    if options.dry_run:
        for executor in computation.executors():
            console.write(executor.script())
        return 0
    try:
        computation.run()
    except Stopped as stopped:
        return options.stopped(stopped)
    return computation.exit_code

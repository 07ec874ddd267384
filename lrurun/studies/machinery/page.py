"""Studies as files: a figure each, and one HTML page of all of them, as `--out` asks for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lrurun import console
from lrurun.commands._shared import output
from lrurun.errors import LrurunError, UsageError
from lrurun.report.figures import page_figures
from lrurun.report.formats import pages
from lrurun.studies.machinery import reporting

if TYPE_CHECKING:
    from lrurun.report.figures.figures import Figure, Width
    from lrurun.studies.machinery.planning import StudyPlan
    from lrurun.studies.machinery.reporting import StudyReport
    from lrurun.studies.machinery.study import Results

PAGE = ".html"


def is_drawn(out: Path) -> bool:
    """Whether a file of this name is a figure or a page."""
    from lrurun.report.figures import figure_files

    return out.suffix.lower() in (*figure_files.SUFFIXES, PAGE)


def check(out: Path | None, *, several: bool) -> None:
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

    def add(self, plan: StudyPlan, results: Results[Any], report: StudyReport) -> StudyReport:
        """Writes the figure of a study, if it is complete; its report, with the name of the figure."""
        assert self.out is not None
        svg = ""
        if not report.unfinished:
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

        whole = figure if self._plain else captioned(report, figure)
        suffixes = {file: suffix for file in files if (suffix := file.suffix.lower()) in figure_files.SUFFIXES}
        try:
            contents = {file: figure_files.render(whole, suffix, self._width) for file, suffix in suffixes.items()}
            return contents, inline(report, figure) if self._page else ""
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
            _write(self._page, (render(self._made) + "\n").encode())


def _write(file: Path, content: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LrurunError(f"{file.parent}: {error.strerror}", "choose another --out") from None
    output.write_file(file, content)
    console.say(f"wrote {file}")


def captioned(report: StudyReport, figure: Figure) -> Figure:
    """The figure of a complete study: the question above it; result, stand-in and checks below it."""
    caption = [report.answer, report.stand_in, f"{reporting.counts(report)}.", f"After {report.about.paper}."]
    return structs.replace(figure, title=report.about.question, caption=" ".join(filter(None, caption)))


def inline(report: StudyReport, figure: Figure) -> str:
    """The figure as SVG for the page, which has the texts."""
    return page_figures.inline(figure, report.study, report.about.question)


def render(studies: Sequence[tuple[StudyReport, str]]) -> str:
    """The page: question, figure (SVG, or nothing), result, checks and what the paper shows, of each study."""
    sections = [section(report, svg) for report, svg in studies]
    return pages.render("studies.html", title="Theory studies", studies=sections)


def section(report: StudyReport, figure: str) -> dict[str, Any]:
    """The values that templates show about a study; `figure` is an element as `page_figures.inline` makes it, or
    empty."""
    looks = {"ok": "supported", "FAILED": "contradicted"}
    return {
        "name": report.study,
        "question": report.about.question,
        "answer": report.answer or "Not finished.",
        "stand_in": report.stand_in,
        "published": f"{report.about.paper}: {report.about.published}",
        "figure": figure,
        "checked": "not finished" if report.unfinished else reporting.counts(report),
        "headers": reporting.HEADERS,
        "checks": [
            (looks[check.state], row) for check, row in zip(report.checks, reporting.rows(report.checks), strict=True)
        ],
    }

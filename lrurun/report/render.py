"""A report as text: a table for terminals, Markdown, CSV and JSON, with the same numbers in each."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct

from lrurun import catalog
from lrurun.console import PIPE_WIDTH, clean
from lrurun.report import claims
from lrurun.report.comparison import Report, Row

if TYPE_CHECKING:
    from rich.table import Table

Format = Literal["table", "md", "csv", "json"]
FORMATS: tuple[str, ...] = get_args(Format)

SCHEMA_VERSION = 1
NOTHING = "–"
_GAP = 2
"""Blanks between the columns of a table."""


def render(report: Report, format: Format, *, width: int = PIPE_WIDTH, color: bool = False) -> str:
    """`report` in a format. `width` and `color` are for the table alone; it leaves columns out rather than cut one."""
    if format == "table":
        return _table(report, width=width, color=color)
    if format == "md":
        return _markdown(report)
    if format == "csv":
        return _csv(report)
    return json.dumps(document(report), indent=2, allow_nan=False)


# Data: JSON and CSV


def document(report: Report) -> dict[str, Any]:
    """The JSON object of a report, before it is text. Scores are fractions."""
    return finite(
        {
            "schema_version": SCHEMA_VERSION,
            "task": report.task,
            "ladder": report.ladder,
            "profile": report.profile,
            "instance": report.instance,
            "metric": report.metric,
            "rows": [
                {
                    "rung": row.rung,
                    "title": row.title,
                    "on": row.on,
                    "n": row.n,
                    "mean": row.mean,
                    "stderr": row.stderr,
                    "delta": row.delta,
                    "delta_low": row.delta_low,
                    "delta_high": row.delta_high,
                    "p_value": row.p_value,
                    "diverged": row.diverged,
                    "failed": row.failed,
                    "unfinished": row.unfinished,
                    "parameters": row.parameters,
                    "steps_per_second": row.steps_per_second,
                    "speedup": row.speedup,
                    "same_as_before": row.same_as_before,
                    "published": [
                        {"source": one.source, "value": one.value, "stderr": one.stderr, "note": one.note}
                        for one in row.published
                    ],
                    "runs": list(row.runs),
                    "other_runs": [{"id": run.id, "state": run.state} for run in row.other_runs],
                    "code_versions": list(row.code_versions),
                }
                for row in report.rows
            ],
            "claims": [
                {
                    "text": claim.text,
                    "verdict": claim.verdict,
                    "detail": claim.detail,
                    "source": claim.source,
                    "rung": claim.rung,
                    "than": claim.than,
                    "kind": claim.kind,
                    "stand_in": claim.stand_in,
                }
                for claim in report.claims
            ],
            "detectable": report.detectable,
            "detectable_seeds": report.detectable_seeds,
            "test_items": report.test_items,
            "data": report.data,
            "notes": list(report.notes),
        }
    )


def _unfinite(value: Any) -> bool:
    """Whether a number, or a list of lists of them, holds one that JSON has no word for."""
    if isinstance(value, list | tuple):
        return any(_unfinite(item) for item in value)
    return isinstance(value, float) and not math.isfinite(value)


def finite(value: Any) -> Any:
    """NaN and infinities as null, beside "finite": false in the object that held them."""
    if isinstance(value, dict):
        table = {key: finite(item) for key, item in value.items()}
        if any(_unfinite(item) for item in value.values()):
            table["finite"] = False
        return table
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


_CSV_COLUMNS = (
    "task", "ladder", "profile", "instance", "metric", "rung", "title", "n", "mean", "stderr", "delta", "delta_low",
    "delta_high", "p_value", "diverged", "failed", "unfinished", "parameters", "steps_per_second", "speedup",
    "same_as_before", "on", "published_value", "published_stderr", "published_source", "published_note", "runs",
    "code_versions",
)  # fmt: skip


def _csv(report: Report) -> str:
    """One line a rung, fractions as in JSON; claims and notes are not rows and are left to the other formats."""
    whole = document(report)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for row in whole["rows"]:
        line = {key: whole[key] for key in ("task", "ladder", "profile", "instance", "metric")} | row
        for key in ("value", "stderr", "source", "note"):
            known = [one[key] for one in row["published"]]
            line[f"published_{key}"] = known[0] if len(known) == 1 else "; ".join(_plain(one) for one in known)
        line["runs"] = " ".join(row["runs"])
        line["code_versions"] = "; ".join(row["code_versions"])
        writer.writerow([_csv_cell(line[column]) for column in _CSV_COLUMNS])
    return text.getvalue().rstrip("\n")


def _plain(value: float | str | None) -> str:
    return "" if value is None else str(value)


def _csv_cell(value: Any) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    text = clean(value)
    # A spreadsheet would run it as a formula.
    return f"'{text}" if text.lstrip()[:1] in ("=", "+", "-", "@") else text


# Cells and sentences, shared by the table and Markdown


def _score(row: Row) -> str:
    if row.mean is None:
        return f"{NOTHING} (n=0)"
    error = "" if row.stderr is None else f" ± {row.stderr * 100:.2f}"
    return f"{row.mean * 100:.2f}{error} (n={row.n})"


def _troubles(row: Row) -> list[str]:
    """What a score must not be read without."""
    counts = ((row.diverged, "diverged"), (row.failed, "failed"), (row.unfinished, "unfinished"))
    said = [f"{count} {word}" for count, word in counts if count]
    if len(row.code_versions) > 1:
        said.append(f"{len(row.code_versions)} code versions")
    return said


def _delta(row: Row) -> str:
    if row.same_as_before:
        return f"as {clean(row.on or '')}" if row.branches else "as the rung before"
    return NOTHING if row.delta is None else f"{row.delta * 100:+.2f}"


def _delta_interval(row: Row) -> str:
    if row.delta_low is None or row.delta_high is None:
        return _delta(row)
    return f"{_delta(row)} [{row.delta_low * 100:+.2f}, {row.delta_high * 100:+.2f}]"


def _delta_short(row: Row) -> str:
    return "same" if row.same_as_before else _delta(row)


def _p_value(row: Row) -> str:
    if row.p_value is None:
        return NOTHING
    return "<0.001" if row.p_value < 0.001 else f"{row.p_value:.3f}"


def _parameters(row: Row) -> str:
    return NOTHING if row.parameters is None else f"{row.parameters:,}"


def _speed(row: Row) -> str:
    return NOTHING if row.steps_per_second is None else _three_digits(row.steps_per_second)


def _speedup(row: Row) -> str:
    return NOTHING if row.speedup is None else f"{_three_digits(row.speedup)}×"


def _three_digits(value: float) -> str:
    """At least three significant digits, and no exponent for what a machine does in a second."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.{2 if value < 10 else 1}f}" if value >= 0.1 else f"{value:.3g}"


def _published(row: Row) -> str:
    return " / ".join(_published_score(one) for one in row.published) or NOTHING


def _published_score(one: catalog.Published) -> str:
    if one.value is None:
        return "chance"
    error = "" if one.stderr is None else f" ± {_percent(one.stderr)}"
    return _percent(one.value) + error


def _percent(value: float) -> str:
    """As many digits as were published: one at least, two at most."""
    text = f"{value * 100:.2f}"
    return text[:-1] if text.endswith("0") else text


def _title(report: Report) -> str:
    profile = f", profile {report.profile}" if report.profile else ""
    return f"{report.task}{profile}: {report.title}"


def _metric(report: Report) -> str:
    """ "test/accuracy" as words."""
    return report.metric.replace("/", " ")


def _foot(report: Report) -> list[str]:
    first = report.rows[0].rung if report.rows else "the first rung"
    base = "rung it changes" if _branches(report) else "rung before"
    said = [
        f"{_metric(report).capitalize()} in per cent: mean ± standard error over n finished seeds. Change: against the "
        f"{base}, in points, with its 95 % interval (Welch). p: two-sided, Holm-corrected over the table. "
        f"Steps/s: median; speed-up over {first}."
    ]
    if report.detectable is None:
        said.append(
            "Smallest difference that these seeds could have shown: not known, "
            "as no rung has two finished seeds with spread."
        )
    else:
        said.append(
            f"Smallest difference that {report.detectable_seeds} seeds a side could have shown: "
            f"{report.detectable * 100:.2f} points (two-sided 5 %, power 80 %, from the spread over seeds seen here, "
            f"{(report.spread or 0.0) * 100:.2f})."
        )
    if report.data.get("kind", "embedded") != "embedded":
        said.append(f"Data: {clean(str(report.data['source']))}.")
    if report.data.get("baselines"):
        naive = ", ".join(f"{clean(name)} {score * 100:.1f} %" for name, score in report.data["baselines"].items())
        said.append(f"Naive predictors on the same test items: {naive}.")
    if report.test_items:
        said.append(f"One test item is {100 / report.test_items:.2f} points ({report.test_items:,} items).")
    said.append(_published_foot(report))
    versions = sorted({version for row in report.rows for version in row.code_versions})
    if len(versions) > 1:
        said.append(f"These runs come from more than one code version: {', '.join(versions)}.")
    return said + [f"Note: {note}" for note in report.notes]


def _branches(report: Report) -> bool:
    """Whether a rung changes another than the one before it."""
    return any(row.branches for row in report.rows)


def _published_foot(report: Report) -> str:
    rungs: dict[tuple[str, str], list[str]] = {}
    for row in report.rows:
        for one in row.published:
            rungs.setdefault((one.source, one.note), []).append(row.rung)
    if not rungs:
        return f"Published: no values for {report.task}."
    sources = [f"{source} ({', '.join(names)}{': ' + note if note else ''})" for (source, note), names in rungs.items()]
    scale = f" They are of the full task; profile {report.profile} is smaller." if report.profile else ""
    return f"Published: {'; '.join(sources)}.{scale}"


# Markdown


def _markdown(report: Report) -> str:
    on = _branches(report)
    named = ["rung", "on", "title"] if on else ["rung", "title"]
    header = [*named, _metric(report), "change", "p", "parameters", "steps/s", "speed-up", "published"]
    lines = [f"### {_escape(_title(report))}", ""]
    if report.question:
        lines += [_escape(report.question), ""]
    lines += [_markdown_row(header), _markdown_row(["---"] * len(named) + ["---:"] * (len(header) - len(named)))]
    for row in report.rows:
        cells = [row.rung, row.on or NOTHING, row.title] if on else [row.rung, row.title]
        cells += [", ".join([_score(row), *_troubles(row)]), _delta_interval(row), _p_value(row)]
        cells += [_parameters(row), _speed(row), _speedup(row), _published(row)]
        lines.append(_markdown_row([_escape(cell) for cell in cells]))
    lines.append("")
    lines += [f"- {_escape(sentence)}" for sentence in _foot(report)]
    if report.claims:
        lines += ["", "**Claims**", ""]
        for claim in report.claims:
            said = f"{_sentence(claim.text)} ({claim.source}) {_sentence(claim.detail)}"
            lines.append(f"- **{claim.verdict}**: {_escape(said)}")
    return "\n".join(lines)


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """Text as Markdown that shows that text: no pipe ends a cell, no tag, link or emphasis begins."""
    text = clean(text).replace("&", "&amp;")
    # Brackets alone are harmless, and the intervals are full of them: only a link's joint is broken.
    text = re.sub(r"([\\`*|])", r"\\\1", text).replace("](", "]\\(").replace("][", "]\\[")
    # An underscore between letters, as in r_max, begins no emphasis.
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)
    return text.replace("<", "&lt;").replace(">", "&gt;")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


# The table


class _Column(Struct, frozen=True, kw_only=True):
    """A column of the terminal table."""

    name: str
    """Its header; empty for the metric's own."""
    cell: Callable[[Row], str]
    right: bool = True


_RUNG = _Column(name="rung", cell=lambda row: clean(row.rung), right=False)
_TITLE = _Column(name="title", cell=lambda row: clean(row.title), right=False)
_ON = _Column(name="on", cell=lambda row: clean(row.on or NOTHING), right=False)
_SCORE_LONG = _Column(name="", cell=lambda row: ", ".join([_score(row), *_troubles(row)]), right=False)
_SCORE = _Column(name="", cell=lambda row: "\n".join([_score(row), *_troubles(row)]), right=False)
_DELTA_LONG = _Column(name="change [95 %]", cell=_delta_interval)
_DELTA = _Column(name="change", cell=_delta)
_DELTA_SHORT = _Column(name="change", cell=_delta_short)
_P = _Column(name="p", cell=_p_value)
_PARAMETERS = _Column(name="parameters", cell=_parameters)
_SPEED = _Column(name="steps/s", cell=_speed)
_SPEEDUP = _Column(name="speed-up", cell=_speedup)
_PUBLISHED = _Column(name="published", cell=_published)

_LAYOUTS: tuple[tuple[_Column, ...], ...] = (
    (_RUNG, _TITLE, _SCORE_LONG, _DELTA_LONG, _P, _PARAMETERS, _SPEED, _SPEEDUP, _PUBLISHED),
    (_RUNG, _SCORE_LONG, _DELTA_LONG, _P, _PARAMETERS, _SPEED, _SPEEDUP, _PUBLISHED),
    (_RUNG, _SCORE, _DELTA_LONG, _P, _PARAMETERS, _SPEED, _SPEEDUP, _PUBLISHED),
    (_RUNG, _SCORE, _DELTA_LONG, _P, _SPEED, _SPEEDUP, _PUBLISHED),
    (_RUNG, _SCORE, _DELTA_LONG, _P, _SPEEDUP, _PUBLISHED),
    (_RUNG, _SCORE, _DELTA_LONG, _P, _PUBLISHED),
    (_RUNG, _SCORE, _DELTA_LONG, _PUBLISHED),
    (_RUNG, _SCORE, _DELTA, _P, _PUBLISHED),
    (_RUNG, _SCORE, _DELTA, _PUBLISHED),
    (_RUNG, _SCORE, _DELTA_SHORT, _PUBLISHED),
    (_RUNG, _SCORE, _DELTA_SHORT),
    (_RUNG, _SCORE),
)
"""From everything to the least, the column that is missed least going first. The first that fits is printed."""

_BRANCHING: tuple[tuple[_Column, ...], ...] = tuple((layout[0], _ON, *layout[1:]) for layout in _LAYOUTS[:-1])
"""The same where a change is against another rung than the one before: it says little without that rung's name."""

_STYLES = {claims.SUPPORTED: "green", claims.CONTRADICTED: "red", claims.UNDECIDED: "yellow"}


def _table(report: Report, *, width: int, color: bool) -> str:
    from rich.console import Console
    from rich.text import Text

    text = io.StringIO()
    # A width of the pipe is no one's screen: what is wider still is printed whole.
    piped = width >= PIPE_WIDTH
    layout = _layouts(report)[0] if piped else _layout(report, width)
    if layout:
        width = max(width, _natural_width(report, layout))
    console = Console(
        file=text,
        width=width,
        force_terminal=color,
        force_interactive=False,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
    )

    def line(label: str = "", style: str = "", rest: str = "", indent: int = 0) -> None:
        whole = label + rest
        for one in [whole] if piped else _wrap(whole, width - indent):
            said = Text(" " * indent + one)
            if style:
                said.stylize(style, indent, indent + len(label))
            console.print(said, soft_wrap=True)
            # The label is on the first line.
            style = style if not rest else ""

    line(clean(_title(report)), "bold")
    if report.question:
        line(clean(report.question))
    line()
    if layout:
        console.print(_grid(report, layout), soft_wrap=True)
    else:
        for row in report.rows:
            line(clean(row.rung), "bold")
            for sentence in _stacked(row):
                line(sentence, indent=2)
    line()
    for sentence in _foot(report):
        line(clean(sentence))
    if report.claims:
        line()
        line("Claims", "bold")
        for claim in report.claims:
            line(claim.verdict, _STYLES[claim.verdict], f": {clean(_sentence(claim.text))} ({clean(claim.source)})")
            line(clean(_sentence(claim.detail)), indent=4)
    # Rich fills cells with blanks up to the column's width; no one wants them at the end of a line.
    return "\n".join(one.rstrip() for one in text.getvalue().splitlines()).rstrip("\n")


def _wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width`, broken between words, never inside "92.67 ± 0.19", "[+1.3, +2.9]" or "95 %"."""
    bound = re.sub(r" ± | (?=%)|(?<=[\d]), (?=[+-]\d)", lambda found: found[0].replace(" ", "\xa0"), text)
    lines = textwrap.wrap(bound, max(width, 20), break_long_words=False, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines] or [""]


def _layout(report: Report, width: int) -> tuple[_Column, ...]:
    """The first layout that fits `width`; none where even the smallest does not."""
    return next((layout for layout in _layouts(report) if _natural_width(report, layout) <= width), ())


def _layouts(report: Report) -> tuple[tuple[_Column, ...], ...]:
    return (*_BRANCHING, *_LAYOUTS) if _branches(report) else _LAYOUTS


def _natural_width(report: Report, layout: Sequence[_Column]) -> int:
    return sum(_column_width(report, column) for column in layout) + _GAP * (len(layout) - 1)


def _column_width(report: Report, column: _Column) -> int:
    from rich.cells import cell_len

    cells = [_header(report, column), *(column.cell(row) for row in report.rows)]
    return max(cell_len(line) for cell in cells for line in cell.split("\n"))


def _header(report: Report, column: _Column) -> str:
    return column.name or _metric(report)


def _grid(report: Report, layout: Sequence[_Column]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for column in layout:
        table.add_column(
            Text(_header(report, column)), justify="right" if column.right else "left", no_wrap=True, overflow="ignore"
        )
    table.add_row(*("─" * _column_width(report, column) for column in layout))
    for row in report.rows:
        table.add_row(*(Text(column.cell(row)) for column in layout))
    return table


def _stacked(row: Row) -> list[str]:
    """A row as lines, for a terminal too narrow for any column."""
    said = [", ".join([_score(row), *_troubles(row)])]
    if row.delta is not None:
        on = f" on {clean(row.on or '')}" if row.branches and not row.same_as_before else ""
        said.append(f"change{on} {_delta_interval(row)}")
    if row.published:
        said.append(f"published {_published(row)}")
    return said

"""A report as text: what each column and sentence says. How they are laid out is the sheet's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lrurun import catalog
from lrurun.console import PIPE_WIDTH, clean
from lrurun.report import grid, matrix, sheet, speed
from lrurun.report.comparison import Report, Row
from lrurun.report.sheet import FORMATS, NOTHING, PARAMETERS, RUNG, SCHEMA_VERSION, TITLE, Column, Format

if TYPE_CHECKING:
    from lrurun.report.detail import Detail

AnyReport = Report | speed.Report | matrix.Report

__all__ = ["FORMATS", "AnyReport", "document", "layout", "render"]


def render(
    report: AnyReport,
    format: Format,
    *,
    width: int = PIPE_WIDTH,
    color: bool = False,
    details: Mapping[str, Detail] | None = None,
) -> str:
    """`report` in a format. `width` and `color` are for the table alone, `details` of the runs for the page."""
    return sheet.render(layout(report), format, width=width, color=color, details=details)


def layout(report: AnyReport) -> sheet.Sheet:
    """What any report prints."""
    if isinstance(report, matrix.Report):
        return matrix.page(report, _in_grid)
    return page(report) if isinstance(report, Report) else speed.page(report)


def page(report: Report) -> sheet.Sheet:
    """What the report prints."""
    branches = _branches(report)
    layouts = (*_BRANCHING, *_LAYOUTS) if branches else _LAYOUTS
    return sheet.Sheet(
        title=sheet.heading(report.task, report.profile, report.title),
        question=report.question,
        above=grid.blocks(report.grid, report.rows, _in_grid) if report.grid else (),
        rows=report.rows,
        layouts=tuple(_named(report, layout) for layout in layouts),
        stacked=_stacked,
        markdown=_named(report, (RUNG, _ON, *_MARKDOWN) if branches else (RUNG, *_MARKDOWN)),
        latex=_named(report, (RUNG, _ON, *_LATEX) if branches else (RUNG, *_LATEX)),
        foot=tuple(_foot(report)),
        groups=tuple(_group(row) for row in report.rows),
        claims=report.claims,
        document=document(report),
        csv=_CSV_COLUMNS,
        curves=True,
    )


def _group(row: Row) -> sheet.Group:
    on = None if row.on is None else sheet.anchor(row.on)
    return sheet.Group(
        anchor=sheet.anchor(row.rung),
        title=row.rung,
        runs=row.runs,
        others=tuple(run.id for run in row.other_runs),
        on=on,
        same_as=on if row.same_as_before else None,
    )


def document(report: Report) -> dict[str, Any]:
    """The JSON object of a report, before it is text. Scores are fractions."""
    return sheet.finite(
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


_CSV_COLUMNS = (
    "task", "ladder", "profile", "instance", "metric", "rung", "title", "n", "mean", "stderr", "delta", "delta_low",
    "delta_high", "p_value", "diverged", "failed", "unfinished", "parameters", "steps_per_second", "speedup",
    "same_as_before", "on", "published_value", "published_stderr", "published_source", "published_note", "runs",
    "code_versions",
)  # fmt: skip


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


def _in_grid(row: Row) -> str:
    published = [f"({_published(row)})"] if row.published else []
    return "\n".join([_score(row), *_troubles(row), *published])


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


def _speed(row: Row) -> str:
    return NOTHING if row.steps_per_second is None else sheet.three_digits(row.steps_per_second)


def _speedup(row: Row) -> str:
    return NOTHING if row.speedup is None else f"{sheet.three_digits(row.speedup)}×"


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
    if report.grid:
        said.insert(0, "Grid: the best mean is marked; in parentheses, what was published.")
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
    return said + sheet.last_words(report.rows, report.notes)


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
    return f"Published: {'; '.join(sources)}.{sheet.scale(report.profile)}"


# Columns

_ON = Column(name="on", cell=lambda row: clean(row.on or NOTHING), right=False)
_SCORE_LONG = Column(
    name="", cell=lambda row: ", ".join([_score(row), *_troubles(row)]), right=False, link=sheet.runs_of
)
_SCORE = Column(name="", cell=lambda row: "\n".join([_score(row), *_troubles(row)]), right=False, link=sheet.runs_of)
_DELTA_LONG = Column(name="change [95 %]", cell=_delta_interval, link=sheet.runs_of)
_DELTA = Column(name="change", cell=_delta, link=sheet.runs_of)
_DELTA_SHORT = Column(name="change", cell=_delta_short, link=sheet.runs_of)
_P = Column(name="p", cell=_p_value, link=sheet.runs_of)
_SPEED = Column(name="steps/s", cell=_speed, link=sheet.runs_of)
_SPEEDUP = Column(name="speed-up", cell=_speedup, link=sheet.runs_of)
_PUBLISHED = Column(name="published", cell=_published)

_MARKDOWN = (
    TITLE,
    structs.replace(_SCORE_LONG, right=True),
    structs.replace(_DELTA_LONG, name="change"),
    _P,
    PARAMETERS,
    _SPEED,
    _SPEEDUP,
    _PUBLISHED,
)

_LATEX = (structs.replace(_SCORE, right=True), *_MARKDOWN[2:])

_LAYOUTS: tuple[tuple[Column, ...], ...] = (
    (RUNG, TITLE, _SCORE_LONG, _DELTA_LONG, _P, PARAMETERS, _SPEED, _SPEEDUP, _PUBLISHED),
    (RUNG, _SCORE_LONG, _DELTA_LONG, _P, PARAMETERS, _SPEED, _SPEEDUP, _PUBLISHED),
    (RUNG, _SCORE, _DELTA_LONG, _P, PARAMETERS, _SPEED, _SPEEDUP, _PUBLISHED),
    (RUNG, _SCORE, _DELTA_LONG, _P, _SPEED, _SPEEDUP, _PUBLISHED),
    (RUNG, _SCORE, _DELTA_LONG, _P, _SPEEDUP, _PUBLISHED),
    (RUNG, _SCORE, _DELTA_LONG, _P, _PUBLISHED),
    (RUNG, _SCORE, _DELTA_LONG, _PUBLISHED),
    (RUNG, _SCORE, _DELTA, _P, _PUBLISHED),
    (RUNG, _SCORE, _DELTA, _PUBLISHED),
    (RUNG, _SCORE, _DELTA_SHORT, _PUBLISHED),
    (RUNG, _SCORE, _DELTA_SHORT),
    (RUNG, _SCORE),
)

_BRANCHING: tuple[tuple[Column, ...], ...] = tuple((layout[0], _ON, *layout[1:]) for layout in _LAYOUTS[:-1])
"""The same where a change is against another rung than the one before: it says little without that rung's name."""


def _named(report: Report, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns, the score's own with the name of the metric."""
    return tuple(column if column.name else structs.replace(column, name=_metric(report)) for column in columns)


def _stacked(row: Row) -> list[str]:
    said = [clean(row.rung), ", ".join([_score(row), *_troubles(row)])]
    if row.delta is not None:
        on = f" on {clean(row.on or '')}" if row.branches and not row.same_as_before else ""
        said.append(f"change{on} {_delta_interval(row)}")
    if row.published:
        said.append(f"published {_published(row)}")
    return said

"""What the report on a ladder shows: its columns, cells and footnotes."""

from __future__ import annotations

from msgspec import structs

from lrurun.console import clean
from lrurun.errors import plural
from lrurun.report import cells, content, grid_table, sequential, verdicts
from lrurun.report.content import NOTHING, PARAMETERS, RUNG, TITLE, Column
from lrurun.report.instance_label import data_sentence, label_of
from lrurun.report.ladder_table import LadderReport, LadderRow
from lrurun.report.sequential import DesignSummary


def content_of(report: LadderReport) -> content.ReportContent:
    """What the report shows."""
    label = label_of(report)
    return content.ReportContent(
        title=label.title(report.title),
        question=report.question,
        conclusions=report.conclusions,
        above=grid_table.tables(report.grid, report.rows, cells.in_grid) if report.grid else (),
        table=content.Table(columns=_columns(report), rows=report.rows),
        foot=tuple(_foot(report)),
        groups=tuple(_group(row) for row in report.rows),
        claims=report.claims,
        metric=report.metric,
        label=label.anchor(report.ladder),
        csv=_CSV_COLUMNS,
        curves=True,
    )


def _group(row: LadderRow) -> content.RunGroup:
    on = None if row.on is None else content.anchor(row.on)
    return content.RunGroup(
        anchor=content.anchor(row.rung),
        title=row.rung,
        runs=row.runs,
        others=tuple(run.id for run in row.other_runs),
        on=on,
        same_as=on if row.same_as_before else None,
    )


_CSV_FIRST = (
    "task ladder profile instance metric rung title n mean stderr delta delta_low delta_high p_value diverged failed "
    "unfinished parameters steps_per_second speedup same_as_before on published_value published_stderr "
    "published_source published_note runs code_versions learning_rate rate_source_kind rate_source_text"
).split()
"""The columns of CSV that keep this order; those of other fields follow them."""
_NOT_IN_CSV = {"branches", "published", "rate_source", "other_runs", "test_selected", "paper", "untuned"}
"""Fields of a row that are no column: `published` and `rate_source` have columns for their parts, `branches` follows
from `on`, a note says what `test_selected` does, and JSON has the runs that are not counted, the paper's numbers, and
which side of a difference is untuned."""
_CSV_COLUMNS = (
    *_CSV_FIRST,
    *(name for name in LadderRow.__struct_fields__ if name not in {*_CSV_FIRST, *_NOT_IN_CSV}),
    "label",
)


# Cells and footnotes


def _delta(row: LadderRow) -> str:
    if row.same_as_before:
        return f"as {clean(row.on or '')}"
    return NOTHING if row.counted_delta is None else f"{row.counted_delta * 100:+z.2f}{_look(row)}"


def _delta_interval(row: LadderRow) -> str:
    if row.counted_low is None or row.counted_high is None:
        return _delta(row)
    interval = f"[{row.counted_low * 100:+z.2f}, {row.counted_high * 100:+z.2f}]"
    return f"{(row.counted_delta or 0.0) * 100:+z.2f} {interval}{_look(row)}"


def _look(row: LadderRow) -> str:
    """The look that a difference is from: the mean of the rung may be of more seeds."""
    return "" if row.look is None else f" at {row.look} seeds"


def _delta_short(row: LadderRow) -> str:
    return "same" if row.same_as_before else _delta(row)


def _metric(report: LadderReport) -> str:
    """As in "test accuracy"."""
    return report.metric.replace("/", " ")


def _foot(report: LadderReport) -> list[str]:
    first = report.rows[0].rung if report.rows else "the first rung"
    base = "base rung" if _branches(report) else "previous rung"
    corrected = f"method over all differences and claims of the ladder{', at each look' if report.design else ''}."
    sentences = [
        f"{_metric(report).capitalize()} in per cent: mean ± standard error over n finished seeds. Difference: to the "
        f"{base}, in points, with its 95 % interval (Welch), not corrected. p: two-sided (Welch), corrected by Holm's "
        f"{corrected} Steps/s: median; speed-up over {first}."
    ]
    if report.design is not None:
        sentences += _design_foot(report.design)
    if any(row.diverged for row in report.rows):
        chance = "; chance is not known on this task, which leaves their comparisons undecided"
        if report.chance is not None:
            chance = f" with the score of chance, {report.chance * 100:.2f}"
        sentences.append(f"Diverged runs count in differences, p and verdicts{chance}, but not in the means.")
    sentences += _near_chance_foot(report)
    if report.grid:
        sentences.insert(0, "Grid: the best mean is marked; in parentheses, the published values.")
    if report.detectable is None:
        sentences.append(
            "Smallest difference that these seeds could have shown: not known, "
            "as no rung has two finished seeds with spread."
        )
    else:
        sentences.append(
            f"Smallest difference that {report.detectable_seeds} seeds a side could have shown: "
            f"{report.detectable * 100:.2f} points (two-sided 5 %, power 80 %, from the spread over seeds seen here, "
            f"{(report.spread or 0.0) * 100:.2f})."
        )
    if source := data_sentence(report.data):
        sentences.append(source)
    if report.data.get("baselines"):
        naive = ", ".join(f"{clean(name)} {score * 100:.1f} %" for name, score in report.data["baselines"].items())
        sentences.append(f"Naive predictors on the same test items: {naive}.")
    if report.test_items:
        sentences.append(f"One test item is {100 / report.test_items:.2f} points ({report.test_items:,} items).")
    sentences += _rates_foot(report)
    sentences.append(_published_foot(report))
    return sentences + content.closing_notes(report.rows, report.notes)


def _near_chance_foot(report: LadderReport) -> list[str]:
    """The differences between two rungs near chance, which are counted apart from the others; nothing without any."""
    differing = [
        row for row in report.rows if row.on is not None and row.verdict not in (verdicts.NOT_RUN, "same runs")
    ]
    near = [row.rung for row in differing if row.near_chance]
    if not near or report.learns_from is None:
        return []
    others = [row.verdict for row in differing if not row.near_chance]
    decided = sum(verdict in ("better", "worse") for verdict in others)
    apart = f" Of the other {len(others)} differences, {decided} {'is' if decided == 1 else 'are'} decided."
    if len(others) < 2:
        apart = f" The other difference is {'decided' if decided else 'undecided'}." * len(others)
    return [
        f"Near chance: {len(near)} of {plural(len(differing), 'difference')} ({', '.join(near)}). Fewer than half "
        "of the seeds of each rung learn, and the mean of the others is near chance. A seed learns if it scores better "
        f"than {report.learns_from * 100:.2f}.{apart}"
    ]


def _design_foot(design: DesignSummary) -> list[str]:
    """The sequential design, how far it is, and what it does not cover."""
    looks = [f"{look.seeds} seeds ({look.share * 100:.0f} %)" for look in design.looks]
    next_one = "the design is complete"
    if design.next_look is not None and design.level is not None:
        next_one = f"the next look, at {design.next_look} seeds, corrects for {design.hypotheses} hypotheses"
    known = sequential.known_before(design.finished_before)
    before = f" {known}." if known else ""
    return [
        f"Sequential design (--decide --max-seeds {design.max_seeds}): looks at {', '.join(looks)}, with the share "
        f"of a hypothesis's level that each look spends. {plural(design.looks_done, 'look')} taken, "
        f"{design.undecided} of {plural(design.questions, 'question')} undecided; {next_one}.{before}",
        "Differences, p and verdicts are those of the look that decided them, else of the last look, as marked: from "
        "exactly the first seeds of both rungs. Means are over all finished seeds. Intervals are not adjusted for "
        "stopping. Later seeds, claims and exclusions are "
        "outside the design and change no verdict.",
    ]


def _rates_foot(report: LadderReport) -> list[str]:
    """Where the learning rates come from: a sentence for each source."""
    sources: dict[str, dict[float | None, list[str]]] = {}
    for row in report.rows:
        if row.rate_source is not None:
            sources.setdefault(row.rate_source.text, {}).setdefault(row.learning_rate, []).append(row.rung)
    sentences = []
    for source, rates in sources.items():
        values = {"not chosen yet" if rate is None else f"{rate:g}": rungs for rate, rungs in rates.items()}
        everywhere = len(sources) == len(values) == 1
        shown = [value + ("" if everywhere else f" ({', '.join(rungs)})") for value, rungs in values.items()]
        sentences.append(f"Learning rate ({source}): {'; '.join(shown)}.")
    differing = [row for row in report.rows if row.on is not None]
    untuned = [row.rung for row in differing if row.untuned]
    if untuned:
        which = "all differences" if len(untuned) == len(differing) else f"the differences of {', '.join(untuned)}"
        sentences.append(
            f"Untuned: {which} involve a rung at the recipe's default learning rate, which may favour one side. For "
            "conclusions, --tune chooses the rate of each rung on validation."
        )
    return sentences


def _branches(report: LadderReport) -> bool:
    """Whether the base of a rung is not the previous rung."""
    return any(row.branches for row in report.rows)


def _published_foot(report: LadderReport) -> str:
    rungs: dict[tuple[str, str], list[str]] = {}
    for row in report.rows:
        for one in row.published:
            rungs.setdefault((one.source, one.note), []).append(row.rung)
    if not rungs:
        return f"Published: no values for {report.task}."
    sources = [f"{source} ({', '.join(names)}{': ' + note if note else ''})" for (source, note), names in rungs.items()]
    return f"Published: {'; '.join(sources)}.{content.scale(report.profile)}"


# Columns, with priorities: what a narrow table loses first


def _columns(report: LadderReport) -> tuple[Column, ...]:
    base = Column(name="base", cell=lambda row: clean(row.on or NOTHING), right=False, priority=10)
    return (
        RUNG,
        *((base,) if _branches(report) else ()),
        TITLE,
        _score_column(_metric(report)),
        _DIFFERENCE,
        content.number("p", "p_adjusted", lambda p: "<0.001" if p < 0.001 else f"{p:.3f}", priority=6),
        PARAMETERS,
        content.number("steps/s", "steps_per_second", content.three_digits, priority=4),
        content.number("speed-up", "speedup", lambda ratio: f"{content.three_digits(ratio)}×", priority=5),
        Column(name="published", cell=cells.published, priority=9),
    )


def _score_column(metric: str) -> Column:
    def lines(row: LadderRow) -> str:
        return "\n".join([cells.score(row), *cells.remarks(row)])

    narrow = Column(name=metric, cell=lines, right=False, link=content.runs_of)
    return structs.replace(narrow, cell=lambda row: lines(row).replace("\n", ", "), priority=2, narrower=narrow)


_DIFFERENCE = Column(
    name="difference [95 %]",
    cell=_delta_interval,
    link=content.runs_of,
    priority=7,
    narrower=Column(
        name="difference",
        cell=_delta,
        link=content.runs_of,
        priority=8,
        narrower=Column(name="diff.", cell=_delta_short, link=content.runs_of, priority=11),
    ),
)

"""What the report on a ladder shows: its columns, cells and footnotes."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import structs

from lrurun import data as tasks
from lrurun.console import clean
from lrurun.errors import plural
from lrurun.report import cells, content, grid_table, sequential, sparkline, verdicts
from lrurun.report.content import NOTHING, PARAMETERS, RUNG, TITLE, Column
from lrurun.report.instance_label import data_sentence, label_of
from lrurun.report.ladder_table import LadderReport, LadderRow, settings_of
from lrurun.report.row_scores import every_slot
from lrurun.report.scores import ScoreForm
from lrurun.report.sequential import DesignSummary


def content_of(report: LadderReport) -> content.ReportContent:
    """What the report shows."""
    label = label_of(report)
    return content.ReportContent(
        title=label.title(report.title),
        question=report.question,
        conclusions=report.conclusions,
        above=grid_table.tables(report.grid, report.rows, cells.in_grid(report.score), report.score)
        if report.grid
        else (),
        table=content.Table(columns=_columns(report), rows=report.rows),
        foot=tuple(_foot(report)),
        groups=tuple(_group(row, report.score, {one.rung for one in report.rows}) for row in report.rows),
        claims=report.claims,
        label=label.anchor(report.ladder),
        csv=(
            *_CSV_COLUMNS,
            *content.setting_fields(settings_of(report.rows)),
            *content.slot_fields(every_slot(row.slots for row in report.rows)),
        ),
        curves=True,
    )


def _group(row: LadderRow, form: ScoreForm, shown: Collection[str]) -> content.RunGroup:
    on = content.anchor(row.on) if row.on is not None and row.on in shown else None
    return content.RunGroup(
        anchor=content.anchor(row.rung),
        title=row.rung,
        runs=row.runs,
        others=tuple(run.id for run in row.other_runs),
        on=on,
        same_as=on if row.same_as_before else None,
        metric=form.result,
        score=form,
    )


_CSV_FIRST = (
    "task ladder profile instance metric rung title n mean stderr delta delta_low delta_high p_value diverged failed "
    "unfinished parameters steps_per_second speedup same_as_before on published_value published_stderr "
    "published_source published_note published_metric runs code_versions learning_rate "
    "rate_source_kind rate_source_text"
).split()
"""The columns of CSV that keep this order; those of other fields follow them."""
_NOT_IN_CSV = {
    *("branches", "published", "rate_source", "other_runs", "test_selected", "paper", "untuned", "settings", "slots"),
}
"""Fields of a row that are no column: `published`, `rate_source`, `settings` and `slots` have columns for their parts,
`branches` follows from `on`, a note says what `test_selected` does, and JSON has the runs that are not counted, the
paper's numbers, and which side of a difference is untuned."""
_CSV_COLUMNS = (
    *_CSV_FIRST,
    *(name for name in LadderRow.__struct_fields__ if name not in {*_CSV_FIRST, *_NOT_IN_CSV}),
    "label",
)


# Cells and footnotes


def _look(row: LadderRow) -> str:
    """The look that a difference is from: the mean of the rung may be of more seeds."""
    return "" if row.look is None else f" at {row.look} seeds"


def _foot(report: LadderReport) -> list[str]:
    form, sentences = report.score, list[str]()
    if report.design is not None:
        sentences += _design_foot(report.design)
    if any(row.diverged for row in report.rows):
        chance = "; chance is not known on this task, which leaves their comparisons undecided"
        if report.chance is not None:
            chance = f" with the score of chance, {form.full(report.chance)}"
        sentences.append(f"Diverged runs count in differences, p and verdicts{chance}, but not in the means.")
    if report.without_spread:
        rungs = ", ".join(report.without_spread)
        error = f"the error of {plural(report.test_items or 0, 'test item')}"
        sentences.append(f"No spread over seeds: {error} is used in tests and claims ({rungs}).")
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
            f"{form.full(report.detectable)} {form.unit} (two-sided 5 %, power 80 %, from the spread over seeds seen "
            f"here, {form.full(report.spread or 0.0)})."
        )
    if source := data_sentence(report.data):
        sentences.append(source)
    sentences += _items_foot(report)
    sentences += _rates_foot(report)
    sentences.append(_published_foot(report))
    return sentences + content.closing_notes(report.rows, report.notes)


def _items_foot(report: LadderReport) -> list[str]:
    """Naive predictors on the test items, and what one of these counts for."""
    form, sentences = report.score, []
    if report.data.get("baselines"):
        known = report.data["baselines"].items()
        naive = ", ".join(f"{clean(name)} {form.with_symbol(form.short(score))}" for name, score in known)
        sentences.append(f"Naive predictors on the same test items: {naive}.")
    if report.test_step is not None:
        step, sequences = f"{form.full(report.test_step)} {form.unit}", report.test_items or 0
        labels = report.data.get("test_labels")
        if labels == round(1 / report.test_step) != sequences:
            sentences.append(f"One label is {step}: {labels:,} labels in {sequences:,} test sequences.")
        else:
            sentences.append(f"One test item is {step} ({sequences:,} items).")
    return sentences


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
    count = f"{decided} are" if decided > 1 else "1 is" if decided else "none is"
    apart = f" Of the other {len(others)} differences, {count} decided."
    if len(others) < 2:
        apart = f" The other difference is {'decided' if decided else 'undecided'}." * len(others)
    which = "the only difference" if len(differing) == 1 else f"{len(near)} of {len(differing)} differences"
    return [
        f"In {which} ({', '.join(near)}) both rungs are near chance: fewer than half of their seeds learn (score "
        f"better than {report.score.full(report.learns_from)}), and their other seeds score about chance.{apart}"
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
        f"Sequential design (--decide --max-seeds {design.max_seeds}): looks at {', '.join(looks)}. In brackets: the "
        f"share of a hypothesis's level that the look spends. {plural(design.looks_done, 'look')} taken, "
        f"{design.undecided} of {plural(design.questions, 'question')} undecided; {next_one}.{before}",
        "A difference, its p and its verdict are from the look beside it: the one that decided it, or the last one. A "
        "look uses exactly the first seeds of both rungs; means are over all finished seeds. Intervals are not "
        "adjusted for stopping. Later seeds, claims and exclusions are outside the design and change no verdict.",
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
    differing = [row for row in report.rows if row.counted_delta is not None and not row.same_as_before]
    untuned = [row.rung for row in differing if row.untuned]
    if untuned:
        which = "all differences" if len(untuned) == len(differing) else f"the differences of {', '.join(untuned)}"
        verb = "involve"
        if len(untuned) == 1:
            which, verb = f"the difference of {untuned[0]}", "involves"
        sentences.append(
            f"Untuned: {which} {verb} a rung at the recipe's default learning rate, which may favour one side. For "
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
    return f"Published: {'; '.join(sources)}.{cells.scale(report.profile, report.rows)}"


# Columns, with priorities: what a narrow table loses first


def _columns(report: LadderReport) -> tuple[Column, ...]:
    base = Column(name="base", cell=lambda row: clean(row.on or NOTHING), right=False, priority=10)
    corrected = f"method over all differences and claims of the ladder{', at each look' if report.design else ''}"
    tests = f"p: two-sided (Welch), corrected by Holm's {corrected}."
    published = 9 if any(row.published for row in report.rows) else 0
    return (
        RUNG,
        *((base,) if _branches(report) else ()),
        TITLE,
        _score_column(report.score),
        *(_setting_column(name, report.score) for name in settings_of(report.rows)),
        *_slots_column(report),
        *_escape_column(report),
        _difference_column(report),
        content.number("p", "p_adjusted", lambda p: "<0.001" if p < 0.001 else f"{p:.3f}", priority=11, note=tests),
        PARAMETERS,
        content.number("steps/s", "steps_per_second", content.three_digits, priority=4, note="Steps/s: median."),
        content.number(
            "speed-up",
            "speedup",
            lambda ratio: f"{content.three_digits(ratio)}×",
            priority=5,
            note=f"Speed-up: over {report.first or 'the first rung'}.",
        ),
        Column(name="published", cell=lambda row: cells.published(row, report.score), priority=published),
    )


def _score_column(form: ScoreForm) -> Column:
    def lines(row: LadderRow) -> str:
        return "\n".join([cells.score(row, form), *cells.remarks(row)])

    note = f"{form.sentence}: mean ± standard error over n finished seeds."
    narrow = Column(name=f"test {form.title}", cell=lines, right=False, link=content.runs_of, note=note)
    return structs.replace(narrow, cell=lambda row: lines(row).replace("\n", ", "), priority=2, narrower=narrow)


def _setting_column(name: str, form: ScoreForm) -> Column:
    heading = f"{form.title} at {clean(name)}"
    return Column(name=heading, cell=lambda row: cells.setting(row, name, form), link=content.runs_of, priority=7)


def _slots_column(report: LadderReport) -> tuple[Column, ...]:
    """The accuracy by slot as a curve in one line, between its two ends; none where the task has no slots."""
    last = max((one.slot for row in report.rows for one in row.slots), default=0)
    if last < 2:
        return ()

    def cell(row: LadderRow) -> str:
        means = [one.mean for one in row.slots if one.mean is not None]
        if not means:
            return NOTHING
        # the two ends fix the levels: 0 and 1 are the same height in all rows
        levels = "".join(sparkline.BLOCKS[min(int(mean * 8), 7)] for mean in sparkline.averages(means, 16))
        return f"{100 * means[0]:.0f} {levels} {100 * means[-1]:.0f}"

    note = f"By slot: test accuracy of the first to the last of {last} labels of a sequence, in per cent."
    return (Column(name="by slot", cell=cell, right=False, link=content.runs_of, priority=2, note=note),)


def _escape_column(report: LadderReport) -> tuple[Column, ...]:
    """The step at which the runs left the plateau; none where that is not recorded."""
    if all(row.escaped is None for row in report.rows):
        return ()

    def cell(row: LadderRow) -> str:
        if row.escaped is None:
            return NOTHING
        if row.escape_step is None:
            return "never"
        return f"{row.escape_step:,.0f}" + (f" ({row.escaped} of {row.n})" if row.escaped < row.n else "")

    bound = tasks.TASKS[report.task].metric.escape if report.task in tasks.TASKS else None
    beyond = "" if bound is None else f" of {report.score.with_symbol(report.score.short(bound))}"
    note = (
        f"Escape: the step of the first validation score{beyond} or better, the median of the seeds with one; never: "
        "no seed has one."
    )
    return (Column(name="escape", cell=cell, link=content.runs_of, priority=6, note=note),)


def _difference_column(report: LadderReport) -> Column:
    form = report.score
    note = f"Difference: to the {'base' if _branches(report) else 'previous'} rung, in {form.unit}"

    def alone(row: LadderRow) -> str:
        if row.same_as_before:
            return f"as {clean(row.on or '')}"
        return NOTHING if row.counted_delta is None else f"{form.difference(row.counted_delta)}{_look(row)}"

    def interval(row: LadderRow) -> str:
        if row.counted_low is None or row.counted_high is None:
            return alone(row)
        interval = f"[{form.difference(row.counted_low)}, {form.difference(row.counted_high)}]"
        return f"{form.difference(row.counted_delta or 0.0)} {interval}{_look(row)}"

    def short(row: LadderRow) -> str:
        return "same" if row.same_as_before else alone(row)

    narrowest = Column(name="diff.", cell=short, link=content.runs_of, priority=12, note=f"{note}.")
    narrow = structs.replace(narrowest, name="difference", cell=alone, priority=8, narrower=narrowest)
    with_interval = f"{note}, with its 95 % interval (Welch), not corrected."
    return structs.replace(
        narrow, name="difference [95 %]", cell=interval, priority=7, narrower=narrow, note=with_interval
    )

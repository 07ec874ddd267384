"""The contents of the report on a ladder: its columns, cells and footnotes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec import structs

from lrurun.config.instance import data_sentence
from lrurun.console import clean
from lrurun.data import tasks
from lrurun.errors import plural
from lrurun.judging import sequential, statistics, verdicts, wording
from lrurun.judging.scores import ScoreForm
from lrurun.judging.sequential import DesignSummary
from lrurun.report.tables import cells, content, grid_table, sparkline
from lrurun.report.tables.content import PARAMETERS, RUNG, TITLE
from lrurun.report.tables.ladder_table import BASE_NOT_RUN, LEFT_OUT, LadderReport, further_tests_of
from lrurun.report.tables.row_scores import LadderRow, every_slot
from lrurun.table import NOTHING, Column, Table


def content_of(report: LadderReport) -> content.ReportContent:
    """The contents of the report."""
    return content.ReportContent(
        title=report.instance.title(report.title),
        question=report.question,
        conclusions=report.conclusions,
        above=grid_table.tables(report.grid, report.rows, cells.in_grid(report.score), report.score)
        if report.grid
        else (),
        table=Table(columns=_columns(report), rows=report.rows),
        foot=tuple(_foot(report)),
        groups=tuple(_group(row, report.score, {other.rung for other in report.rows}) for row in report.rows),
        claims=report.claims,
        label=report.instance.anchor(),
        csv=csv_columns(report.rows),
        curves=True,
    )


def _group(row: LadderRow, form: ScoreForm, rungs: Collection[str]) -> content.RunGroup:
    base = content.anchor(row.on) if row.on is not None and row.on in rungs else None
    return content.RunGroup(
        anchor=content.anchor(row.rung),
        title=row.rung,
        runs=row.runs,
        other_runs=tuple(run.id for run in row.other_runs),
        base=base,
        same_as=base if row.same_as_before else None,
        metric=form.result,
        score=form,
    )


_CSV_FIRST = (
    "task ladder profile instance metric rung title n mean stderr on verdict difference low high improvement "
    "improvement_low improvement_high p_adjusted p_unadjusted provisional look detectable compared_n compared_mean "
    "compared_stderr base_n base_mean base_stderr diverged learning failure_bound improving failed "
    "unfinished parameters steps_per_second same_as_before published_value published_stderr "
    "published_source published_note published_metric runs scores code_versions learning_rate "
    "rate_source_kind rate_source_text"
).split()
"""The columns of CSV that keep this order; those of other fields follow them."""
_NOT_IN_CSV = {
    *("branches", "comparison", "published", "rate_source", "other_runs", "paper", "untuned"),
    *("further_tests", "slots"),
}
"""Fields of a row that are no column: `comparison`, `published`, `rate_source`, `further_tests` and `slots` have
columns for their parts, `branches` follows from `on`, and JSON has the runs that are not counted, the paper's numbers,
and which side of a difference is untuned."""
_CSV_COLUMNS = (
    *_CSV_FIRST,
    *(name for name in LadderRow.__struct_fields__ if name not in {*_CSV_FIRST, *_NOT_IN_CSV}),
    "label",
    *(name for name in content.COMPARED if name not in _CSV_FIRST),
)


def csv_columns(rows: Sequence[LadderRow]) -> tuple[str, ...]:
    """The columns of CSV for these rows."""
    slots = every_slot(row.slots for row in rows)
    return (*_CSV_COLUMNS, *content.further_fields(further_tests_of(rows)), *content.slot_fields(slots))


# Cells and footnotes


def _foot(report: LadderReport) -> list[str]:
    form, sentences = report.score, list[str]()
    if report.design is not None:
        sentences += _design_foot(report.design)
    if runs := _ranked_last(report.rows):
        chance = " nowhere, as chance is not known on this task"
        if report.chance is not None:
            chance = f" with the score of chance, {form.full(report.chance)}"
        sentences.append(
            f"{runs} rank below all others in p and verdicts, and count in differences{chance}; the means of the rungs "
            "are without them."
        )
    if report.without_spread:
        rungs = ", ".join(report.without_spread)
        error = f"the error of {plural(report.test_items or 0, 'test item')}"
        sentences.append(f"No spread over seeds: {error} is used in tests and claims ({rungs}).")
    sentences += _failures_foot(report)
    sentences += _verdict_items_foot(report)
    if report.grid:
        fewest = ", of the rungs with the fewest seeds without a score" if _ranked_last(report.rows) else ""
        sentences.insert(0, f"Grid: the best mean is marked{fewest}; in parentheses, the published values.")
    sentences += detect_foot(report)
    if source := data_sentence(report.instance.data):
        sentences.append(source)
    sentences += _items_foot(report)
    sentences += _rates_foot(report)
    sentences += filter(None, [_published_foot(report)])
    return sentences + content.closing_notes(report.rows, report.notes)


def _ranked_last(rows: Sequence[LadderRow]) -> str:
    """The runs that rank below all others, at the beginning of a sentence; empty without any."""
    if any(row.unscored for row in rows):
        beside = "that diverged and runs " if any(row.diverged for row in rows) else ""
        return f"Runs {beside}without a usable score"
    return "Diverged runs" if any(row.diverged for row in rows) else ""


def _items_foot(report: LadderReport) -> list[str]:
    """Naive predictors on the test items, and what one of these counts for."""
    form, sentences, data = report.score, [], report.instance.data
    if data.get("baselines"):
        baselines = data["baselines"].items()
        naive = ", ".join(f"{clean(name)} {form.with_symbol(form.short(score))}" for name, score in baselines)
        sentences.append(f"Naive predictors on the same test items: {naive}.")
    if report.test_step is not None:
        step, sequences = f"{form.full(report.test_step)} {form.unit}", report.test_items or 0
        labels = data.get("test_labels")
        if labels == round(1 / report.test_step) != sequences:
            sentences.append(f"One label is {step}: {labels:,} labels in {sequences:,} test sequences.")
        else:
            sentences.append(f"One test item is {step} ({sequences:,} items).")
    return sentences


LARGE_ITEM_SHARE = 0.5
"""From this share of test items in the variance on, more seeds help less than more test items [ours]."""


def _verdict_items_foot(report: LadderReport) -> list[str]:
    """What verdicts know of the test items, and whether more seeds or more test items would help."""
    compared = [row.comparison for row in report.rows if row.comparison is not None and row.comparison.is_tested]
    by_kind: dict[str, list[str]] = {}
    for comparison in compared:
        by_kind.setdefault(comparison.items_known, []).append(comparison.rung)
    sentences = []
    for kind, about in _ITEM_KINDS.items():
        if kind in by_kind:
            where = f" ({', '.join(map(clean, by_kind[kind]))})" if len(by_kind) > 1 else ""
            sentences.append(about.format(where=where, items=f"{report.test_items or 0:,} test items"))
    if large := [
        comparison
        for comparison in compared
        if comparison.item_share is not None and comparison.item_share >= LARGE_ITEM_SHARE and not comparison.is_decided
    ]:
        shares = [_item_share_text(comparison) for comparison in large]
        sentences.append(
            f"Of the variance of a difference, {', '.join(shares)} is from the choice of test items: there more test "
            "items would help, and more seeds little."
        )
    return sentences


def _item_share_text(comparison: verdicts.Comparison) -> str:
    """The share of test items in a variance; where only their number is known, it is an upper bound."""
    at_most = "at most " if comparison.items_known == "number" else ""
    return f"{at_most}{100 * (comparison.item_share or 0):.0f} % ({clean(comparison.rung)})"


_ITEM_KINDS = {
    "results": "Verdicts hold for new seeds and new test items{where}: they use per-item results of {items}.",
    "number": "Verdicts hold for new seeds and new test items{where}, by a bound: only their number is known, {items}. "
    "Per-item results would decide more.",
    "unknown": "Verdicts hold for new seeds on these test items{where}: nothing is known of how far others would move "
    "them.",
}
"""What comparisons know of the test items -> in a sentence."""


def _failures_foot(report: LadderReport) -> list[str]:
    """Which seeds learn, and how often seeds of each rung may fail, or diverge where nothing else is known."""
    bounds: dict[str, list[str]] = {}
    for row in report.rows:
        if row.failure_bound is not None and not row.same_as_before:
            bounds.setdefault(f"{100 * row.failure_bound:.0f} %", []).append(row.rung)
    if not bounds:
        return []
    upper = "; ".join(bound + (f" ({', '.join(rungs)})" if len(bounds) > 1 else "") for bound, rungs in bounds.items())
    if report.learns_from is None:
        fail = "diverge or have no usable score" if any(row.unscored for row in report.rows) else "diverge"
        return [f"Rate at which seeds {fail}, 95 % upper bound: {upper}."]
    return [
        f"A seed learns if its score is better than {report.score.full(report.learns_from)}. Rate at which seeds fail "
        f"to learn, 95 % upper bound: {upper}."
    ]


def detect_foot(report: LadderReport) -> list[str]:
    """The seeds and test items that a difference needs which --detect names."""
    detect = report.detect
    if detect is None:
        return []
    size = f"{detect.difference * report.score.scale:.6g} {report.score.unit}"
    if not detect.seeds and not detect.failing:
        return [f"Seeds to detect {size}: not known before two seeds of both rungs have a score."]
    needed: dict[tuple[int, int], list[str]] = {}
    for rung, count in detect.seeds.items():
        items = detect.test_items[rung]
        more = items if items is not None and items != report.test_items else 0
        needed.setdefault((count or 0, more), []).append(rung)
    too_many = needed.pop((0, 0), [])
    parts = [
        f"{seeds}{f' and {items:,} test items' if items else ''} ({', '.join(rungs)})"
        for (seeds, items), rungs in sorted(needed.items())
    ]
    parts += [f"more than {statistics.MOST_SEEDS:,} ({', '.join(too_many)})"] if too_many else []
    if detect.failing:
        parts.append(f"no number, because a seed of it or of its base fails ({', '.join(detect.failing)})")
    sentences = [
        f"Seeds a side to detect {size} between a rung and its base (by means, power 80 %, spreads as seen here, "
        f"Holm's correction of {plural(report.hypotheses, 'hypothesis')}): {'; '.join(parts)}."
    ]
    if any(items for _, items in needed):
        sentences.append(
            f"Where test items are named, no number of seeds is enough with today's {report.test_items:,}."
        )
    known = [rung for rung, count in detect.seeds.items() if count is not None]
    if detect.bounds:
        rungs = f" ({', '.join(detect.bounds)})" if len(detect.bounds) < len(known) else ""
        sentences.append(f"These are upper bounds{rungs}: per-item results are not known.")
    if of_seeds := [rung for rung in known if detect.test_items[rung] is None]:
        rungs = f" ({', '.join(of_seeds)})" if len(of_seeds) < len(known) else ""
        sentences.append(f"These seeds are for the same test items{rungs}: nothing is known of others.")
    return [" ".join(sentences)]


def _design_foot(design: DesignSummary) -> list[str]:
    """The sequential design, how far it is, and what it does not cover."""
    looks = [f"{look.seeds} seeds ({look.share * 100:.0f} %)" for look in design.looks]
    state = "the design is complete"
    older = ""
    if design.looks_of_seeds:
        at = " and ".join(map(str, design.looks_of_seeds))
        older = (
            f" Verdicts of the look at {at} seeds hold for new seeds on these test items alone: lrurun 1.0 recorded "
            "them, and they stay."
        )
    if design.next_look is not None and design.level is not None:
        state = f"the next look, at {design.next_look} seeds, corrects for {plural(design.hypotheses, 'hypothesis')}"
    caution = sequential.known_before(design.finished_before)
    before = f" {caution}." if caution else ""
    return [
        f"Sequential design (--decide --max-seeds {design.max_seeds}): looks at {', '.join(looks)}. In brackets: the "
        f"share of a hypothesis's level that the look spends. {plural(design.looks_done, 'look')} taken, "
        f"{design.undecided} of {plural(design.questions, 'question')} undecided; {state}.{before}{older}",
        "A difference, its p and its verdict are from the look beside it: the one that decided it, or the last one. A "
        "look uses exactly the first seeds of both rungs; means are over all finished seeds. Intervals are not "
        "adjusted for stopping. Later seeds, claims and exclusions are outside the design and change no verdict.",
    ]


def _rates_foot(report: LadderReport) -> list[str]:
    """Where the learning rates come from, or the settings of a program: a sentence for each source."""
    sources: dict[str, dict[float | None, list[str]]] = {}
    for row in report.rows:
        if row.rate_source is not None:
            sources.setdefault(row.rate_source.text, {}).setdefault(row.learning_rate, []).append(row.rung)
    sentences = []
    for source, rates in sources.items():
        if report.kind == "program":
            names = [rung for rungs in rates.values() for rung in rungs]
            sentences.append(f"Settings: {source}" + ("." if len(sources) == 1 else f" ({', '.join(names)})."))
            continue
        values = {"not chosen yet" if rate is None else f"{rate:g}": rungs for rate, rungs in rates.items()}
        everywhere = len(sources) == len(values) == 1
        parts = [value + ("" if everywhere else f" ({', '.join(rungs)})") for value, rungs in values.items()]
        sentences.append(f"Learning rate ({source}): {'; '.join(parts)}.")
    if (tuning := report.tuning) is not None:
        by_paths: dict[str, list[str]] = {}
        for rung, settings in tuning.at_edge.items():
            by_paths.setdefault(", ".join(settings), []).append(rung)
        edges = "; ".join(f"{settings} ({', '.join(rungs)})" for settings, rungs in by_paths.items())
        beyond = f" Best value at the edge of those tried: {edges}; a better one may lie beyond." if edges else ""
        items = "" if tuning.items is None else f" on {tuning.items:,} validation items"
        sentences.append(f"Tuning compared means over {plural(tuning.seeds, 'seed')}{items}.{beyond}")
    return sentences + untuned_foot(report)


def with_difference(rows: Sequence[LadderRow]) -> list[LadderRow]:
    """The rungs that have results, as their base has."""
    without = ("same runs", "not run", BASE_NOT_RUN, LEFT_OUT)
    return [row for row in rows if row.comparison is not None and row.verdict not in without]


def untuned_foot(report: LadderReport) -> list[str]:
    """Which differences involve a rung that was not tuned."""
    differing = with_difference(report.rows)
    untuned = [row.rung for row in differing if row.untuned]
    if not untuned:
        return []
    differences = "all differences" if len(untuned) == len(differing) else f"the differences of {', '.join(untuned)}"
    verb = "involve"
    if len(untuned) == 1:
        differences, verb = f"the difference of {untuned[0]}", "involves"
    at, rate = ("with", "settings") if report.kind == "program" else ("at", "default learning rate")
    chosen = "what [tune] names, for" if report.kind == "program" else "the rate of"
    advice = f" For conclusions, --tune chooses {chosen} each rung on validation." if not report.instance.tune else ""
    return [f"Untuned: {differences} {verb} a rung {at} the recipe's {rate}, which may favour one side.{advice}"]


def has_branches(report: LadderReport) -> bool:
    """Whether the base of a rung is not the previous rung."""
    return any(row.branches for row in report.rows)


def _published_foot(report: LadderReport) -> str:
    rungs: dict[tuple[str, str], list[str]] = {}
    for row in report.rows:
        for score in row.published:
            rungs.setdefault((score.source, score.note), []).append(row.rung)
    if not rungs:
        return "" if report.kind == "program" else f"Published: no values for {report.instance.task}."
    sources = [f"{source} ({', '.join(names)}{': ' + note if note else ''})" for (source, note), names in rungs.items()]
    return f"Published: {'; '.join(sources)}.{cells.scale(report.instance.profile, report.rows)}"


# Columns, with priorities: what a narrow table loses first


def scope(comparisons: Iterable[verdicts.Comparison | None]) -> str:
    """What their p values and intervals hold for, where that is more than new seeds."""
    known = {one.items_known in ("results", "number") for one in comparisons if one is not None and one.is_tested}
    if known == {True}:
        return "for new seeds and test items"
    return "for new seeds and, where their error is known, test items" if True in known else ""


BASE = Column(name="base", cell=lambda row: clean(row.on or NOTHING), right=False, priority=10)


def _columns(report: LadderReport) -> tuple[Column, ...]:
    corrected = f"method over all differences and claims with results{', at each look' if report.design else ''}"
    tested = [row.comparison for row in report.rows if row.comparison and row.comparison.is_tested]
    kinds = {False: "of ranks (Brunner and Munzel, by permutation)", True: "of means (Welch)"}
    methods = [kinds[few] for few in (False, True) if few in {comparison.provisional for comparison in tested}]
    few = f"; with fewer than {verdicts.LEAST_SEEDS} seeds, "
    new = f"{text}, " if (text := scope(tested)) else ""
    tests = f"p: two-sided, {new}{few.join(methods) or kinds[False]}, corrected by Holm's {corrected}."
    published, of_program = 9 if any(row.published for row in report.rows) else 0, report.kind == "program"
    paper = Column(name="published", cell=lambda row: cells.published(row, report.score), priority=published)
    return (
        RUNG,
        *((BASE,) if has_branches(report) else ()),
        TITLE,
        _score_column(report.score),
        *(_further_column(name, report.score) for name in further_tests_of(report.rows)),
        *_slots_column(report),
        *_escape_column(report),
        _difference_column(report),
        *((Column(name="p", cell=p_cell, link=content.runs_of, priority=11, note=tests),) if tested else ()),
        *_learning_column(report),
        *_improvement_column(report),
        *_items_column(report),
        *(() if of_program else (PARAMETERS,)),
        content.number("steps/s", "steps_per_second", content.three_digits, priority=4, note="Steps/s: median."),
        *(() if of_program else (paper,)),
    )


def _score_column(form: ScoreForm) -> Column:
    def lines(row: LadderRow) -> str:
        return "\n".join([cells.score(row, form), *cells.remarks(row)])

    note = f"{form.sentence}: mean ± standard error over n finished seeds."
    narrow = Column(name=f"test {form.title}", cell=lines, right=False, whole=True, link=content.runs_of, note=note)
    return structs.replace(narrow, cell=lambda row: lines(row).replace("\n", ", "), priority=2, narrower=narrow)


def _further_column(name: str, form: ScoreForm) -> Column:
    heading = f"{form.title} at {clean(name)}"
    return Column(name=heading, cell=lambda row: cells.further_score(row, name, form), link=content.runs_of, priority=7)


def _slots_column(report: LadderReport) -> tuple[Column, ...]:
    """The accuracy by slot as a curve in one line, between its two ends; none where the task has no slots."""
    last = max((slot.slot for row in report.rows for slot in row.slots), default=0)
    if last < 2:
        return ()

    def cell(row: LadderRow) -> str:
        means = [slot.mean for slot in row.slots if slot.mean is not None]
        if not means:
            return NOTHING
        # the two ends fix the levels: 0 and 1 are the same height in all rows
        levels = "".join(sparkline.BLOCKS[min(int(mean * 8), 7)] for mean in sparkline.averages(means, 16))
        return f"{100 * means[0]:.0f} {levels} {100 * means[-1]:.0f}"

    note = f"By slot: test accuracy of the first to the last of {last} labels of a sequence, in per cent."
    return (Column(name="by slot", cell=cell, right=False, whole=True, link=content.runs_of, priority=2, note=note),)


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

    task = report.instance.task
    bound = tasks.TASKS[task].metric.escape if task in tasks.TASKS else None
    beyond = "" if bound is None else f" of {report.score.with_symbol(report.score.short(bound))}"
    note = (
        f"Escape: the step of the first validation score{beyond} or better, the median of the seeds with one; never: "
        "no seed has one."
    )
    return (Column(name="escape", cell=cell, link=content.runs_of, priority=6, note=note),)


def p_cell(row: LadderRow) -> str:
    p = row.comparison.p_adjusted if row.comparison else None
    return NOTHING if p is None else wording.p_number(p).replace(" ", "")


def _learning_column(report: LadderReport) -> tuple[Column, ...]:
    """How many seeds learn; none where all do, or where that is not known."""

    def cell(row: LadderRow) -> str:
        seeds = row.ranked
        return f"{row.learning} of {seeds}" if row.learning is not None and seeds else NOTHING

    if all(row.learning is None or row.learning == row.ranked for row in report.rows):
        return ()
    return (Column(name="learn", cell=cell, link=content.runs_of, priority=6, note="Learn: seeds better than chance."),)


def _improvement_column(report: LadderReport) -> tuple[Column, ...]:
    """The chance that a run is better than one of the base; none where too few seeds say nothing of it."""

    def cell(row: LadderRow) -> str:
        return NOTHING if row.comparison is None else wording.improvement(row.comparison) or NOTHING

    if all(cell(row) == NOTHING for row in report.rows):
        return ()
    new = f" {text}" if (text := scope(row.comparison for row in report.rows)) else ""
    note = f"Better: the chance that a run scores better than one of the base, with its 95 % interval{new}."
    return (Column(name="better [95 %]", cell=cell, link=content.runs_of, priority=3, note=note),)


def _items_column(report: LadderReport) -> tuple[Column, ...]:
    """The share of test items in the variance of a difference; none where it is not known."""

    def cell(row: LadderRow) -> str:
        share = None if row.comparison is None else row.comparison.item_share
        return NOTHING if share is None else f"{100 * share:.0f} %"

    if all(cell(row) == NOTHING for row in report.rows):
        return ()
    note = "Items: the share of the choice of test items in the variance of the difference; the rest is of the seeds."
    return (Column(name="items", cell=cell, link=content.runs_of, priority=3, note=note),)


def _difference_column(report: LadderReport) -> Column:
    form = report.score
    note = f"Difference: to the {'base' if has_branches(report) else 'previous'} rung, in {form.unit}"

    def alone(row: LadderRow) -> str:
        if row.same_as_before:
            return f"as {clean(row.on or '')}"
        if row.comparison is None or row.comparison.difference is None:
            return NOTHING
        return f"{wording.difference(row.comparison, form)}{wording.look(row.comparison)}"

    def interval(row: LadderRow) -> str:
        comparison = row.comparison
        if comparison is None or comparison.low is None or comparison.high is None or comparison.difference is None:
            return alone(row)
        return f"{wording.difference_with_interval(comparison, form)}{wording.look(comparison)}"

    def short(row: LadderRow) -> str:
        return "same" if row.same_as_before else alone(row)

    narrowest = Column(name="diff.", cell=short, link=content.runs_of, priority=12, note=f"{note}.")
    narrow = structs.replace(narrowest, name="difference", cell=alone, priority=8, narrower=narrowest)
    if all(row.comparison is None or row.comparison.low is None for row in report.rows):
        return narrow
    new = f" {text}" if (text := scope(row.comparison for row in report.rows)) else ""
    with_interval = f"{note}, with its 95 % interval (Welch){new}, not corrected."
    return structs.replace(
        narrow, name="difference [95 %]", cell=interval, priority=7, narrower=narrow, note=with_interval
    )

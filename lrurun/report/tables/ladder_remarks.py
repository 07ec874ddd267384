"""The remarks on a ladder: its conclusions, the notes below its table, and the cautions that change their reading."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction

from lrurun.config.instance import data_sentence, items_command
from lrurun.config.resolve import RATE
from lrurun.config.schema import SETTINGS
from lrurun.console import clean
from lrurun.errors import plural
from lrurun.judging import sequential, statistics, verdicts, wording
from lrurun.judging.sequential import DesignSummary
from lrurun.judging.verdicts import Comparison
from lrurun.ledger.values import REMOVED, RemovedRun
from lrurun.report.tables import cells, content, forgotten_values
from lrurun.report.tables.chosen_table import ChosenReport
from lrurun.report.tables.ladder_table import BASE_NOT_RUN, LEFT_OUT, SELECTED_ON_TEST, LadderReport, Tuning
from lrurun.report.tables.next_step import LARGE_ITEM_SHARE, longer
from lrurun.report.tables.remarks import Caution, Remark, Topic, edges_text, merged, of_notes, sentences
from lrurun.report.tables.row_scores import LadderRow

FEW = 3
"""The largest number of rungs that are named in a sentence that need not name them all."""


def of_report(report: LadderReport) -> tuple[Remark, ...]:
    """All remarks on a ladder: conclusions and notes in the order of the details, then what cautions alone say."""
    return merged([*report.findings, *_notes(report)], cautions(report))


# Notes


def _notes(report: LadderReport) -> list[Remark]:
    """The notes below the table."""
    form, first = report.score, list[str]()
    if report.grid:
        fewest = ", of the rungs with the fewest seeds without a score" if _ranked_last(report.rows) else ""
        first.append(f"Grid: the best mean is marked{fewest}; in parentheses, the published values.")
    if report.design is not None:
        first += _on_design(report.design)
    if runs := _ranked_last(report.rows):
        chance = " nowhere, as chance is not known on this task"
        if report.kind == "imported":
            chance += " (import with --chance X, or write chance into [import])"
        if report.chance is not None:
            chance = f" with the score of chance, {form.full(report.chance)}"
        first.append(
            f"{runs} rank below all others in p and verdicts, and count in differences{chance}; the means of the rungs "
            "are without them."
        )
    if report.without_spread:
        rungs = ", ".join(report.without_spread)
        error = f"the error of {plural(report.test_items or 0, 'test item')}"
        first.append(f"No spread over seeds: {error} is used in tests and claims ({rungs}).")
    first += [*_on_failures(report), *_on_verdicts_and_items(report)]
    on_data = data_sentence(report.instance.data)
    return [
        *_on_removed(report),
        *forgotten_values.remarks(report.forgotten_values),
        *sentences(first),
        *(Remark(full=text, brief=text) for text in on_detection(report)),
        *sentences([on_data] if on_data else []),
        *sentences(_on_items(report)),
        *_on_rates(report),
        *sentences(filter(None, [_on_published(report)])),
        *content.versions(report.rows),
        *sentences(_on_missing(report)),
        *_on_import(report),
        *_notes_of_runs(report),
    ]


_AGAIN = "again"
_WORDS: dict[str, str] = {kind: f"{words}{{by}}" for kind, words in REMOVED.items()}
_WORDS[_AGAIN] = "forgotten{by} and trained again"
"""The kind of a removal -> in a sentence, after "2 runs were"."""


def removed_groups(
    removed: Iterable[RemovedRun], again: Iterable[RemovedRun] = ()
) -> list[tuple[str, str, str, list[RemovedRun]]]:
    """Kind, reason and stage of runs that were removed, with the runs; final runs come first, and those that were
    trained `again` last, as a kind of their own."""
    groups: dict[tuple[str, str, str], list[RemovedRun]] = {}
    kinds = [(run.kind, run) for run in removed] + [(_AGAIN, run) for run in again]
    for kind, run in sorted(kinds, key=lambda each: each[1].stage != "train"):
        groups.setdefault((kind, run.why or "", run.stage), []).append(run)
    return [(kind, clean(why), stage, runs) for (kind, why, stage), runs in groups.items()]


def _removed_rungs(runs: Sequence[RemovedRun]) -> str:
    rungs = list(dict.fromkeys(clean(run.rung) for run in runs))
    return ", ".join(rungs) if len(rungs) <= FEW else f"{len(rungs)} rungs"


def _were_removed(kind: str, stage: str, runs: Sequence[RemovedRun], by: str = "") -> str:
    """The beginning of a sentence, for example "2 runs were forgotten". A run in several rungs counts once."""
    count = len({run.run for run in runs})
    noun = plural(count, "tuning run" if stage == "tune" else "run")
    return f"{noun} {'was' if count == 1 else 'were'} {_WORDS[kind].format(by=by)}"


def removed_cautions(removed: Iterable[RemovedRun], again: Iterable[RemovedRun] = ()) -> list[Caution]:
    """How many runs were removed, of which rungs, and why."""
    return [
        Caution(what=_were_removed(kind, stage, runs), where=_removed_rungs(runs), advice=why)
        for kind, why, stage, runs in removed_groups(removed, again)
    ]


def _on_removed(report: LadderReport) -> list[Remark]:
    """The runs that were removed, with seeds and states, and what that means for the numbers."""
    texts = []
    for kind, why, stage, runs in removed_groups(report.removed_runs, report.trained_again):
        by_rung: dict[str, list[str]] = {}
        for run in runs:
            state = "" if run.state == "done" else f" ({run.state})"
            by_rung.setdefault(clean(run.rung), []).append(f"{run.seed}{state}")
        listed = "; ".join(
            f"{rung}, {'seed' * (len(seeds) == 1) or 'seeds'} {', '.join(seeds)}" for rung, seeds in by_rung.items()
        )
        users = ", ".join(dict.fromkeys(clean(run.removed_by) for run in runs if run.removed_by))
        reason = f" Reason: {content.sentence(why)}" if why else " No reason is on record." * (kind != "left out")
        texts.append(f"{_were_removed(kind, stage, runs, f' by {users}' if users else '')}: {listed}.{reason}")
    if any(run.stage == "train" for run in (*report.removed_runs, *report.trained_again)):
        looks = ", but for the verdicts that looks of the design have recorded" if report.design is not None else ""
        texts.append(
            f"Their scores count in nothing here{looks}. If results were the reason, verdicts are wrong in more than "
            "5 %."
        )
    if any(run.stage == "tune" for run in report.removed_runs):
        texts.append("What tuning chose stays as it was recorded; it cannot be checked by runs that are gone.")
    return [Remark(full=" ".join(texts), topic="removed")] if texts else []


def _notes_of_runs(report: LadderReport) -> list[Remark]:
    """The notes of the report; the caution on the protocol is the short text of the one on it."""
    remarks = of_notes(report.notes)
    return [
        Remark(full=remark.full, topic="test-selected") if note in SELECTED_ON_TEST else remark
        for note, remark in zip(report.notes, remarks, strict=True)
    ]


def _on_missing(report: LadderReport) -> list[str]:
    """Which imported runs have no result, and why."""
    parts = []
    for row in report.rows:
        reasons: dict[str, list[str]] = {}
        for run in row.other_runs:
            if run.reason:
                reasons.setdefault(clean(run.reason), []).append(run.id)
        if row.missing:
            whys = ", ".join(f"{', '.join(runs)} ({why})" for why, runs in reasons.items())
            parts.append(f"{row.missing} of {row.asked} of {clean(row.rung)}: {whys}")
    if not parts:
        return []
    unequal = ""
    if _is_unequally_missing(report):
        unequal = " If they are missing because they were bad, the rungs with more of them look too good."
    return [f"Missing runs, which count in no number and no verdict: {'; '.join(parts)}.{unequal}"]


def _on_import(report: LadderReport) -> list[Remark]:
    """Where imported runs are from, and the cautions of their import in full."""
    if (record := report.imported) is None:
        return []
    read = "; ".join(
        f"{plural(source.runs, 'run')} from {clean(source.place)} ({clean(source.version or source.tracker)})"
        for source in record.sources
    )
    texts = [f"Imported: {read}.", *(clean(note) for source in record.sources for note in source.notes)]
    texts += [f"Chosen by validation: {clean('; '.join(record.choices))}."] if record.choices else []
    if record.outside:
        names = ", ".join(map(clean, record.outside[:FEW])) + (", ..." if len(record.outside) > FEW else "")
        texts.append(f"In no rung: {plural(len(record.outside), 'run')} ({names}).")
    return [*sentences(texts), *(Remark(full=clean(caution.full)) for caution in record.cautions)]


def _ranked_last(rows: Sequence[LadderRow]) -> str:
    """The runs that rank below all others, at the beginning of a sentence; empty without any."""
    if any(row.unscored for row in rows):
        beside = "that diverged and runs " if any(row.diverged for row in rows) else ""
        return f"Runs {beside}without a usable score"
    return "Diverged runs" if any(row.diverged for row in rows) else ""


def _on_items(report: LadderReport) -> list[str]:
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


def _on_verdicts_and_items(report: LadderReport) -> list[str]:
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


def _on_failures(report: LadderReport) -> list[str]:
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


def on_detection(report: LadderReport) -> list[str]:
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


def _on_design(design: DesignSummary) -> list[str]:
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


def _on_rates(report: LadderReport) -> list[Remark]:
    """Where the learning rates come from, or the settings of a program: a sentence for each source."""
    sources: dict[str, dict[str, list[str]]] = {}
    for row in report.rows:
        if row.rate_source is not None:
            value = "not chosen yet" if row.learning_rate is None else f"{row.learning_rate:g}"
            value += " times its estimate" if row.rung in report.estimating else ""
            sources.setdefault(row.rate_source.text, {}).setdefault(value, []).append(row.rung)
    texts = []
    for source, rates in sources.items():
        if not report.is_of_models:
            names = [rung for rungs in rates.values() for rung in rungs]
            texts.append(f"Settings: {source}" + ("." if len(sources) == 1 else f" ({', '.join(names)})."))
            continue
        everywhere = len(sources) == len(rates) == 1
        parts = [rate + ("" if everywhere else f" ({', '.join(rungs)})") for rate, rungs in rates.items()]
        texts.append(f"Learning rate ({source}): {'; '.join(parts)}.")
    return [*sentences(texts), *_on_tuning(report), *_on_untuned(report)]


def _on_tuning(report: LadderReport) -> list[Remark]:
    """What tuning compared, and which of the best values are at the edge of those tried."""
    if (tuning := report.tuning) is None:
        return []
    edges = edges_text(tuning.at_edge)
    beyond = f" Best value at the edge of those tried: {edges}; a better one may lie beyond." if edges else ""
    if tuning.at_limit:
        which = "" if len(tuning.at_limit) == len(tuning.at_edge) else f" ({', '.join(tuning.at_limit)})"
        beyond += f" As many values as could be added, {tuning.extend}, were added there{which}."
    if invalid := [rung for rung in tuning.at_edge if tuning.added.get(rung, tuning.extend) < tuning.extend]:
        beyond += f" No further value is valid: {', '.join(invalid)}."
    items = "" if tuning.items is None else f" on {tuning.items:,} validation items"
    full = f"Tuning compared means over {plural(tuning.seeds, 'seed')}{items}.{_points(tuning)}{beyond}"
    return [Remark(full=full, topic="edge")]


def _points(tuning: Tuning) -> str:
    """A sentence on the points that the rungs of extended grids had, and what more of them mean; empty for others."""
    if not tuning.added:
        return ""
    rungs: dict[int, list[str]] = {}
    for rung in tuning.added:
        rungs.setdefault(tuning.points[rung], []).append(rung)
    parts = [f"{count} ({', '.join(names)})" for count, names in sorted(rungs.items())]
    listed = f"{next(iter(rungs))} of each rung" if len(rungs) == 1 else "; ".join(parts)
    return (
        f" Points tried, with values that were added to the grids: {listed}. More points are more luck in the best "
        "validation score; test scores have none of it."
    )


def with_difference(rows: Sequence[LadderRow]) -> list[LadderRow]:
    """The rungs that have results, as their base has."""
    without = ("same runs", "not run", BASE_NOT_RUN, LEFT_OUT)
    return [row for row in rows if row.comparison is not None and row.verdict not in without]


def _on_untuned(report: LadderReport) -> list[Remark]:
    """Which differences involve a rung that was not tuned."""
    differing = with_difference(report.rows)
    untuned = [row.rung for row in differing if row.untuned]
    if not untuned:
        return []
    differences = "all differences" if len(untuned) == len(differing) else f"the differences of {', '.join(untuned)}"
    verb = "involve"
    if len(untuned) == 1:
        differences, verb = f"the difference of {untuned[0]}", "involves"
    at, rate = ("at", "default learning rate") if report.is_of_models else ("with", "settings")
    chosen = "the rate of" if report.is_of_models else "what [tune] names, for"
    advice = f" For conclusions, --tune chooses {chosen} each rung on validation." if not report.instance.tune else ""
    text = f"Untuned: {differences} {verb} a rung {at} the recipe's {rate}, which may favour one side.{advice}"
    return [Remark(full=text, topic="untuned", is_covered=True)]


def _on_published(report: LadderReport) -> str:
    rungs: dict[tuple[str, str], list[str]] = {}
    for row in report.rows:
        for score in row.published:
            rungs.setdefault((score.source, score.note), []).append(row.rung)
    if not rungs:
        return f"Published: no values for {report.instance.task}." if report.is_of_models else ""
    sources = [f"{source} ({', '.join(names)}{': ' + note if note else ''})" for (source, note), names in rungs.items()]
    return f"Published: {'; '.join(sources)}.{cells.scale(report.instance.profile, report.rows)}"


# Cautions


_UNCOUNTED = {
    "diverged": "diverged",
    "unscored": "finished without a usable score",
    "infinite": "with an infinite score, an error of the metric",
    "failed": "failed",
    "unfinished": "unfinished",
    "missing": "missing",
}
"""The field of a row with a number of runs that its mean is not over -> in a caution, after "2 runs"."""


def cautions(report: LadderReport) -> list[Remark]:
    """What changes the reading of the answer, in a few words each."""
    rows = report.rows
    differing = with_difference(rows)
    compared = [row for row in rows if row.comparison is not None and row.comparison.is_tested]
    few = [row for row in compared if row.comparison is not None and row.comparison.provisional]
    improving = [row for row in rows if row.still_improving]
    at_edge = [row for row in rows if _is_at_edge(row, report)]
    opposite = [row for row in compared if row.comparison and wording.opposite_mean(row.comparison, report.score)]
    if report.instance.tune:
        without = {rung for row in differing for rung in row.untuned}
        untuned = _about(
            "not tuned, because no tuning run finished", [row for row in rows if row.rung in without], rows
        )
    else:
        what = "not tuned, see --tune" if report.can_tune else "not tuned"
        untuned = _about(what, [row for row in differing if row.untuned], differing)
    is_of_rates = report.is_of_models and (not isinstance(report, ChosenReport) or report.by == (RATE,))
    value, more = "rate" if is_of_rates else "value", longer(report)
    smoke = "profile smoke shows that everything runs, its scores mean nothing"
    warnings: list[tuple[Topic, Caution | None]] = [
        ("smoke", Caution(what=smoke) if report.instance.profile == "smoke" else None),
        *(("removed", caution) for caution in removed_cautions(report.removed_runs, report.trained_again)),
        ("removed", forgotten_values.caution(report.forgotten_values)),
        ("untuned", untuned),
        (
            "unchanged",
            _about(
                "the same score as before with every seed",
                _unchanged(report),
                differing,
                "was the setting used?" if report.kind == "imported" else "does the program use the setting?",
            ),
        ),
        ("provisional", _about(f"provisional, fewer than {verdicts.LEAST_SEEDS} seeds", few, compared)),
        ("edge", _about(f"best {value} at the edge of those tried", at_edge, rows, _limit(report, at_edge))),
        (
            "improving",
            _about("still improving at the last step", improving, rows, f"longer with --set {more}" if more else ""),
        ),
        ("opposite", _about("the typical run and the mean disagree", opposite, compared)),
        (
            "test-selected",
            _about(
                "each run counts with its best test score, which is too high"
                if report.kind == "imported"
                else "models selected on the test split",
                [row for row in rows if row.test_selected],
                rows,
            ),
        ),
        *(("items", caution) for caution in _item_cautions(report)),
        *(("untested", caution) for caution in _untested(report)),
        *(("uncounted", caution) for caution in _uncounted(report)),
        ("code", _several("code", {version for row in rows for version in row.code_versions})),
        ("numerics", _several("numerics", {version for row in rows for version in row.numerics})),
        *(("design", caution) for caution in _design_cautions(report.design)),
        *(("import", caution) for caution in _import_cautions(report)),
    ]
    return [Remark(caution=caution, topic=topic) for topic, caution in warnings if caution is not None]


def _import_cautions(report: LadderReport) -> list[Caution]:
    """What the import says in a few words, without what is about rungs that are not shown, and what rows say."""
    if report.imported is None:
        return []
    shown = {row.rung for row in report.rows}
    of_rows = {"best of test"} if any(row.test_selected for row in report.rows) else set()
    return [
        Caution(what=clean(caution.short))
        for caution in report.imported.cautions
        if caution.short and caution.short not in of_rows and (not caution.rungs or shown & set(caution.rungs))
    ]


def _untested(report: LadderReport) -> list[Caution | None]:
    """Why there is no test of changes that are undecided."""
    reasons: dict[str, list[LadderRow]] = {}
    for row in report.rows:
        if row.verdict == verdicts.UNDECIDED and row.comparison is not None and not row.comparison.is_tested:
            reasons.setdefault(row.comparison.reason, []).append(row)
    every = [row for row in report.rows if row.comparison]
    return [_about(reason, rows, every) for reason, rows in reasons.items()]


def _uncounted(report: LadderReport) -> list[Caution]:
    """How many runs the means are not over."""
    warnings = []
    for state, what in _UNCOUNTED.items():
        if state in ("failed", "unfinished") and report.kind == "imported":  # which are missing
            continue
        counts = {clean(row.rung): getattr(row, state) for row in report.rows if not row.same_as_before}
        names = ", ".join(rung for rung, count in counts.items() if count)
        advice = "unequal shares may favour a rung" if state == "missing" and _is_unequally_missing(report) else ""
        if total := sum(counts.values()):
            warnings.append(Caution(what=what, where=names, runs=total, advice=advice))
    return warnings


def _is_unequally_missing(report: LadderReport) -> bool:
    """Whether two rungs that are compared, as a rung with its base or by a claim, lack unequal shares of their runs."""
    rows = {row.rung: (row.missing, row.asked) for row in report.rows if not row.same_as_before}
    pairs = [(row.rung, row.on) for row in report.rows] + [(claim.rung, claim.other) for claim in report.claims]
    return any(are_unequal_shares(rows[rung], rows[base]) for rung, base in pairs if rung in rows and base in rows)


MISSING_POINTS = 10
"""Shares of missing runs that differ by more points are unequal [ours]."""


def are_unequal_shares(first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Whether so many of so many missing runs are unequal shares: they differ by more than 10 points, be it by a single
    run. Verdicts may then favour the side that lacks more."""
    if not (first[1] and second[1]):
        return False
    return 100 * abs(Fraction(*first) - Fraction(*second)) > MISSING_POINTS


def _several(what: str, versions: Collection[str | int]) -> Caution | None:
    return Caution(what=f"runs of {len(versions)} {what} versions") if len(versions) > 1 else None


def _design_cautions(design: DesignSummary | None) -> list[Caution]:
    """How far a sequential design is, and what its looks do not cover."""
    if design is None:
        return []
    texts = []
    if older := design.looks_of_seeds:
        at = " and ".join(map(str, older))
        texts.append(f"the verdicts of the look at {at} seeds, recorded by lrurun 1.0, hold for these test items alone")
    texts.append(sequential.known_before(design.finished_before))
    texts.append(sequential.with_gone(design.removed))
    texts.append("" if design.next_look is None else f"the next look is at {design.next_look} seeds")
    return [Caution(what=text) for text in texts if text]


# Simulated (benchmarks/item_error_rates.py), more than 6 % of ladders have a wrong verdict only where every other rung
# fails with 30 to 40 % and the others never, each rung has strong tastes for items (1 logit), a test set has 300 items
# or 2,000, and there are 20 seeds or looks up to 20: 6.2 to 7.5 %. With 12 seeds it is at most 5.5 %. What is observed
# of such rungs is scattered around this, so that the shares below are smaller than the simulated ones.
HARD_SEEDS = 20
"""Seeds a side from which on the rule errs more often on comparisons with the next two properties."""
OFTEN = 0.25
"""A side that fails in this share of seeds, beside one that never does, often fails [ours]."""
STRONG_ITEM_SHARE = 0.3
"""From this share of test items in the variance on, which items are drawn decides much [ours]."""


def _item_cautions(report: LadderReport) -> list[Caution | None]:
    """How far verdicts hold for other test items, and how much these alone move a score."""
    changes = [row.comparison for row in report.rows if row.comparison is not None]
    compared = [each for each in (*changes, *report.claims) if each.is_tested]
    hidden = [each for each in compared if each.verdict_on_these_items]
    limited = [each for each in compared if not each.metric and (each in hidden or _is_limited_by_items(each))]
    names = {name for each in limited for name in (each.rung, each.other)}
    error = max((row.score_item_error or 0.0 for row in report.rows if row.rung in names), default=0.0)
    moved = f"{report.test_items or 0:,} test items move a score by ± {_size(error, report)}"
    if all((each.item_share or 0.0) >= LARGE_ITEM_SHARE for each in limited):
        moved += ", and more seeds help little"
    how = _how_to_record(report)
    return [
        _about(
            "verdicts hold for these test items alone",
            [each for each in compared if each.items_known == "unknown"],
            compared,
            how,
        ),
        _about(
            "undecided because of the test set", limited if error > (report.test_step or 0.0) else [], compared, moved
        ),
        _about(
            "per-item results are not known",
            [each for each in hidden if each.items_known == "number"],
            compared,
            how,
        ),
        _about(
            "a side often fails and test items matter: such verdicts are wrong more often than in 5 %",
            [each for each in compared if each.is_decided and _is_hard(each)],
            compared,
        ),
    ]


def _is_limited_by_items(comparison: Comparison) -> bool:
    """Whether the choice of test items makes most of the error of an undecided difference that is no smaller."""
    difference, error = comparison.difference, comparison.item_error
    return (
        comparison.verdict == verdicts.UNDECIDED
        and (comparison.item_share or 0.0) >= LARGE_ITEM_SHARE
        and difference is not None
        and error is not None
        and abs(difference) >= error
    )


def _size(error: float, report: LadderReport) -> str:
    form = report.score
    return f"{(form.size if form.needs_decimals(error) else form.short_size)(error)} {form.unit}"


def _how_to_record(report: LadderReport) -> str:
    """How per-item results are recorded."""
    if not report.has_items:
        return f"{report.score.title} is no mean over them"
    if report.is_of_models:
        return clean(items_command(report.instance.short_name))
    needs_number = report.test_items is None and report.score.unit == "points"
    if report.kind == "imported":
        return "set test_items in [import]" if needs_number else "name per-item results as items in [import]"
    share = ", or test_items in [program]" if needs_number else ""
    return f"if the score is a mean over items, use run.log_items{share}"


def _is_hard(comparison: Comparison) -> bool:
    """Whether one side often fails, the other never, and test items matter much: there the rule errs more often."""
    failing = [side.failures / side.n for side in comparison.sides if side.n]
    return (
        len(failing) == 2
        and min(side.n for side in comparison.sides) >= HARD_SEEDS
        and min(failing) == 0
        and max(failing) >= OFTEN
        and (comparison.item_share or 0.0) >= STRONG_ITEM_SHARE
    )


def _unchanged(report: LadderReport) -> list[LadderRow]:
    """The rungs of a user's program, or of an import, whose change has changed no score."""
    if report.is_of_models:
        return []
    by_rung = {row.rung: row for row in report.rows}
    return [
        row
        for row in with_difference(report.rows)
        if row.on in by_rung and row.scores == by_rung[row.on].scores and len(set(row.scores)) > 1
    ]


def _limit(report: LadderReport, at_edge: Sequence[LadderRow]) -> str:
    """That as many values as possible were added to the grids of rungs whose best value is at the edge; empty else."""
    limited = () if report.tuning is None else report.tuning.at_limit
    if report.tuning is None or not any(row.rung in limited for row in at_edge):
        return ""
    return f"{report.tuning.extend} were added, the limit of --extend"


def _is_at_edge(row: LadderRow, report: LadderReport) -> bool:
    """Whether the learning rate that tuning chose for a rung is the smallest or the largest that it tried; of a user's
    program and of a sweep, any setting."""
    paths = () if report.tuning is None else report.tuning.at_edge.get(row.rung, ())
    if isinstance(report, ChosenReport):
        return bool(paths)
    return RATE in paths or any(path.startswith(SETTINGS) for path in paths)


def _about(
    what: str,
    rows: Sequence[LadderRow] | Sequence[Comparison],
    every: Sequence[LadderRow] | Sequence[Comparison],
    advice: str = "",
) -> Caution | None:
    """A caution about these rungs of all in `every`, for example "not tuned (all rungs)"; None without any.

    More than three rungs are not named: those that are left out are, or there are more than three of them too.
    """
    if not rows:
        return None
    names = list(dict.fromkeys(clean(row.rung) for row in rows))
    rest = list(dict.fromkeys(name for row in every if (name := clean(row.rung)) not in names))
    if not rest:
        where = "all rungs"
    elif len(names) <= FEW:
        where = ", ".join(names)
    else:
        where = f"all but {', '.join(rest)}" if len(rest) <= FEW else f"{len(names)} rungs"
    return Caution(what=what, where=where, advice=advice)

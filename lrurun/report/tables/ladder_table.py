"""A ladder instance compared rung by rung: the runs of the ledger as the rows of one table, and the claims."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct, structs

from lrurun.config.instance import Instance
from lrurun.config.ladder import Grid, Ladder, Published, Rung
from lrurun.config.resolve import RateSource
from lrurun.config.schema import TUNING_SEED, ImportedConfig, RunConfig, RunKind
from lrurun.config.wording import estimates_rate
from lrurun.data.metric import Metric
from lrurun.errors import plural
from lrurun.instances import phrases
from lrurun.instances.import_record import ImportRecord
from lrurun.judging import claims, item_errors, published, ranks, sequential, statistics, verdicts
from lrurun.judging.claims import Unbeaten
from lrurun.judging.judged_claim import JudgedClaim
from lrurun.judging.rung_runs import SPEED, InstanceRuns, Note, RungRuns, numerics, select
from lrurun.judging.samples import Sample
from lrurun.judging.scored_runs import claimed_metrics, scored
from lrurun.judging.scores import ScoreForm, form_of
from lrurun.judging.sequential import DesignProgress
from lrurun.judging.verdicts import Comparison
from lrurun.ledger.values import FINISHED, RemovedRun
from lrurun.report.tables import row_scores
from lrurun.report.tables.conclusions import about, conclude
from lrurun.report.tables.forgotten_values import ForgottenValue
from lrurun.report.tables.remarks import Remark, conclusion
from lrurun.report.tables.row_scores import LadderRow, OtherRun

if TYPE_CHECKING:
    from lrurun.ledger.values import Run

PAPER_PROTOCOL = Note('protocol = "paper": models were selected as published, where that used the test split')
"""The note on runs that were trained with this protocol."""
BEST_OF_TEST = Note(
    'protocol = "best-of-test": each run counts with the best of all its scores, which were selected on what they '
    "measure, and are too high"
)
"""The note on runs that were imported with this protocol."""
SELECTED_ON_TEST = (PAPER_PROTOCOL, BEST_OF_TEST)

BASE_NOT_RUN, LEFT_OUT = "base not run", "left out"
"""The verdicts on the change of a rung that has results while its base has none, and of one whose runs do not count."""


class Detect(Struct, frozen=True, kw_only=True):
    """The seeds and test items that a true difference of the means needs to be decided."""

    difference: float
    seeds: dict[str, int | None]
    """Rung -> seeds a side, in the comparison with its base; None for more than a thousand."""
    test_items: dict[str, int | None] = {}
    """Rung -> test items, with these seeds: today's where they are enough; None where these seeds are about today's
    items alone, because nothing is known of others, and where more than a thousand seeds are needed."""
    bounds: tuple[str, ...] = ()
    """Rungs for which these are upper bounds, because only the number of test items is known."""
    failing: tuple[str, ...] = ()
    """Rungs for which no number is given: a seed of theirs, or of their base, fails, which is most of the spread."""


class Tuning(Struct, frozen=True, kw_only=True):
    """How the settings of tuned rungs were chosen."""

    seeds: int
    """The number of seeds of each point that was tried."""
    items: int | None
    """Validation sequences by whose scores points were compared."""
    at_edge: dict[str, list[str]]
    """Rung -> the settings whose best value is the smallest or the largest that was tried."""
    extend: int = 0
    """How many values could be added to the grid of each rung."""
    points: dict[str, int] = {}
    """Rung -> the number of points that were tried, those beyond the edges of the grid included."""
    added: dict[str, int] = {}
    """Rung -> the number of those beyond the edges, where some could be added."""

    @property
    def at_limit(self) -> list[str]:
        """The rungs whose best value is still at the edge, after as many values as could be added."""
        return [rung for rung in self.at_edge if self.extend and self.added.get(rung) == self.extend]


_OF_CLAIM = (
    "text source detail stand_in difference_p untuned improving paper elsewhere ratio ratio_low ratio_high paper_ratio"
).split()
"""The fields of a claim that reports have in JSON, beside its comparison."""


class LadderReport(Struct, frozen=True, kw_only=True):
    """One table with its claims and footnotes."""

    json_fields: ClassVar[Sequence[str]] = (
        *"task ladder title question profile instance=key short_name metric rows".split(),
        *(f"claims.{field}" for field in (*Comparison.__struct_fields__, *_OF_CLAIM)),
        *"test_items data notes grid set tune extend tuning label chance learns_from conclusions design score".split(),
        *"test_step without_spread has_items hypotheses kind can_tune steps_path detect fresh_seeds imported".split(),
        "removed_runs",
        "trained_again",
    )
    instance: Instance
    title: str
    question: str
    metric: str
    rows: tuple[LadderRow, ...]
    claims: tuple[JudgedClaim, ...]
    test_items: int | None
    notes: tuple[Note, ...]
    grid: Grid | None = None
    """The rows on two axes."""
    tuning: Tuning | None = None
    """How it was tuned; None if it was not."""
    chance: float | None = None
    """The score in means of comparisons of a run that diverged or has no usable one."""
    learns_from: float | None = None
    """The score beyond which a seed learns."""
    findings: tuple[Remark, ...] = ()
    """The conclusions as remarks."""
    design: sequential.DesignSummary | None = None
    """The sequential design that the verdicts are from."""
    score: ScoreForm = ScoreForm()
    """How scores are printed, and their direction."""
    test_step: float | None = None
    """The smallest difference between two scores on the test split; None for a continuous score."""
    without_spread: tuple[str, ...] = ()
    """Rungs whose seeds show no spread: comparisons use the error of the test set for them."""
    has_items: bool = True
    """Whether the metric has per-item results, of which it is a mean."""
    hypotheses: int = 0
    """The number of hypotheses with results, which p is corrected for."""
    kind: RunKind = "training"
    """The kind of its runs."""
    can_tune: bool = True
    """Whether the recipe says what tuning tries."""
    steps_path: str | None = None
    """The setting with the number of steps of a run; None where there is none, as of some users' programs."""
    estimating: tuple[str, ...] = ()
    """The rungs whose optimisers estimate a learning rate, which that of the configuration multiplies."""
    detect: Detect | None = None
    """The seeds that a difference needs, where one was named."""
    fresh_seeds: str | None = None
    """The first seeds after the seeds of its runs, enough for a repetition, as `--seeds` takes them; None where
    verdicts are provisional, and where the runs are not of the first seeds, as in a repetition."""

    imported: ImportRecord | None = None
    """The newest import of its runs."""
    unbeaten: Unbeaten | None = None
    """The rungs that no other one is decided to be better than; None where that was not asked."""
    removed_runs: tuple[RemovedRun, ...] = ()
    """The runs of the instance that had begun and were forgotten, or left out of this copy of a part of a ledger, and
    that are not back."""
    trained_again: tuple[RemovedRun, ...] = ()
    """The runs of the instance with results that were forgotten, and in whose place others were trained."""
    forgotten_values: tuple[ForgottenValue, ...] = ()
    """The values among which others were chosen, and whose instances were forgotten."""
    read_again: str = ""
    """The command that imports its runs again; empty where they were made here."""

    @property
    def is_of_models(self) -> bool:
        """Whether its runs are trainings of lrurun's models, of which it knows sizes, speeds and learning rates."""
        return self.kind == "training"

    @property
    def conclusions(self) -> tuple[str, ...]:
        """Plain sentences on what rows and claims show."""
        return tuple(remark.full for remark in self.findings)


def build(
    instance: InstanceRuns,
    *,
    sentences: Iterable[str] = (),
    test_items: int | None = None,
    rates: Mapping[str, tuple[float | None, RateSource]] = MappingProxyType({}),
    tuning: Tuning | None = None,
    progress: DesignProgress | None = None,
    shown: Sequence[str] | None = None,
    detect: float | None = None,
    kind: RunKind = "training",
    can_tune: bool = True,
    steps_path: str | None = None,
    outside: Mapping[str, str] = MappingProxyType({}),
    left_out: Mapping[str, int] = MappingProxyType({}),
    with_claims: bool = True,
    imported: ImportRecord | None = None,
    removed_runs: Sequence[RemovedRun] = (),
    trained_again: Sequence[RemovedRun] = (),
    read_again: str = "",
    with_unbeaten: bool = False,
) -> LadderReport:
    """The report on a ladder instance. Runs of unequal data are refused.

    Args:
        sentences: further notes, after those of the instance.
        rates: rung -> its planned learning rate, if it is planned, and where that comes from.
        tuning: how a tuned instance was tuned.
        progress: a sequential design with its looks, from which the verdicts are then.
        shown: show only these rungs, and the claims on them. Verdicts do not depend on it.
        detect: a difference of the means, as the metric has it, for which the report says the seeds that it needs.
        kind: the kind of its runs.
        can_tune: whether the recipe says what tuning tries.
        steps_path: the setting with the number of steps of a run.
        outside: text of a claim -> why it is not judged here.
        left_out: rung -> how many of its runs are not among `runs`, because they have other settings.
        with_claims: whether the report has claims. Verdicts do not depend on it.
        imported: the newest import of its runs.
        removed_runs: its runs that were forgotten, or left out of a copy.
        trained_again: its runs that were forgotten with results, and trained again.
        read_again: the command that imports them again.
        with_unbeaten: whether every pair of rungs is tested, for the rungs that no other one is better than.
    """
    ladder, metric = instance.ladder, instance.metric
    task, profile = instance.identity.task, instance.identity.profile
    notes = [*instance.notes, *map(Note, sentences)]
    form = form_of(metric)
    name = form.result
    selected = select(instance, metric, notes)
    if any(_test_selected(run) for runs in selected.values() for run in runs.runs):
        notes.append(BEST_OF_TEST if kind == "imported" else PAPER_PROTOCOL)
    if text := phrases.parts_of_batches({rung: runs.runs[0].config for rung, runs in selected.items() if runs.runs}):
        notes.append(Note(text))
    selecting = scored(instance, selected, metric, test_items)
    results, scoring = selecting.rungs, selecting.scoring
    untuned = [rung for rung, (_, source) in rates.items() if source.kind == "default"]
    by_metric = {}
    for claimed in claimed_metrics(ladder, task, instance.metrics):
        counted = select(instance, claimed, notes)
        by_metric[claimed.name] = scored(instance, counted, claimed, test_items)
    removed = {run for every in (selecting, *by_metric.values()) for run in every.items_removed}
    if removed:
        what = f"{plural(len(removed), 'run')} lost their per-item results by lrurun ledger gc --items"
        notes.append(Note(f"{what}: verdicts know only how many items there are"))
    notes = list(dict.fromkeys(notes))
    judged = claims.judge(
        ladder,
        results,
        task=task,
        scoring=scoring,
        untuned=untuned,
        improving=[rung for rung, runs in selected.items() if 2 * _improving(runs.counted) > len(runs.scores)],
        progress=progress,
        by_metric=by_metric,
        profile=profile,
        outside=outside,
    )
    every = [rung.name for rung in ladder.rungs]
    names = [name for name in every if shown is None or name in shown]
    papers = published.rows_for(ladder, task, profile)
    begun = [run for run in removed_runs if run.state != "queued"]  # the others had no result
    gone = Counter(run.rung for run in begun if run.stage == "train")
    rows = _rows(ladder, names, selected, papers, rates, judged, untuned, name, left_out, gone, kind)
    their_claims = tuple(
        claim for claim in judged.claims if with_claims and {claim.rung, claim.other or claim.rung} <= set(names)
    )
    hidden = len(judged.claims) - len(their_claims) if with_claims else 0
    design = None
    if progress:
        first = {rung: own.rung for rung, own in results.items()}
        design = sequential.summary(progress, first, {run.run for run in removed_runs})
    # a look corrects for the questions of the design, with results or not
    hypotheses = max(judged.hypotheses, design.hypotheses if design else 0)
    return LadderReport(
        instance=instance.identity,
        title=ladder.title,
        question=ladder.question,
        metric=name,
        rows=rows,
        claims=their_claims,
        test_items=scoring.items,
        notes=tuple(notes),
        grid=ladder.grid if shown is None else None,
        tuning=tuning,
        chance=scoring.chance,
        learns_from=scoring.learns_from,
        findings=(
            *conclude(rows, their_claims, design, form, task=task),
            *map(conclusion, about(names, every, hidden)),
        ),
        design=design,
        score=form,
        test_step=scoring.step,
        without_spread=tuple(row.rung for row in rows if _has_error_of_test_set(judged.samples[row.rung])),
        has_items=kind != "training" or type(metric).items is not Metric.items,
        hypotheses=hypotheses,
        kind=kind,
        can_tune=can_tune,
        steps_path=steps_path,
        estimating=tuple(
            rung
            for rung, runs in selected.items()
            if runs.runs and isinstance(config := runs.runs[0].config, RunConfig) and estimates_rate(config.optim)
        ),
        detect=None if detect is None else _detect(detect, ladder, names, judged, hypotheses, progress, scoring.items),
        imported=imported,
        removed_runs=tuple(begun),
        trained_again=tuple(trained_again),
        read_again=read_again,
        unbeaten=claims.unbeaten(results, scoring=scoring, progress=progress) if with_unbeaten else None,
        fresh_seeds=_fresh_seeds(
            {run.seed for runs in selected.values() for run in runs.runs if run.state in FINISHED}
        ),
    )


def _has_error_of_test_set(sample: Sample) -> bool:
    """Whether its runs show no spread, and no per-item results that do."""
    return sample.of_test_set() and (sample.items is None or sample.items.influences is None)


def _fresh_seeds(finished: Collection[int]) -> str | None:
    if 0 not in finished or len(finished) < verdicts.LEAST_SEEDS:
        return None
    last = max(finished) + sequential.MAX_SEEDS
    return f"{max(finished) + 1}-{last}" if last < TUNING_SEED else None


def _detect(
    difference: float,
    ladder: Ladder,
    names: Sequence[str],
    judged: claims.Judged,
    hypotheses: int,
    progress: DesignProgress | None,
    test_items: int | None,
) -> Detect:
    """The seeds and test items that detect a difference: by the spreads seen, with a power of 80 %, at the level that
    Holm's method leaves to the smallest p (of a sequential design, at its last look); at least as many seeds as a firm
    verdict needs."""
    share = 1.0 if progress is None else progress.design.looks[-1].share
    level = share * statistics.ALPHA / max(hypotheses, 1)

    seeds: dict[str, int | None] = {}
    of_items: dict[str, int | None] = {}
    failing, bounds = [], []
    for rung, base in ladder.bases.items():
        if base is None or rung not in names or judged.differences[rung].same_runs:
            continue
        mine, other = judged.samples[rung], judged.samples[base]
        if any(side.failures for side in judged.differences[rung].sides):
            failing.append(rung)
        elif mine.counted is not None and other.counted is not None:
            error = _item_error(mine, other, test_items)
            first, second = (
                structs.replace(mean, variance=0.0) if error is not None and side.of_test_set() else mean
                for side, mean in ((mine, mine.counted), (other, other.counted))
            )
            needed = statistics.to_detect(difference, first, second, level, error, least=verdicts.LEAST_SEEDS)
            seeds[rung], of_items[rung] = needed or (None, None)
            if needed is not None and error is not None and math.isinf(error.df):
                bounds.append(rung)
    return Detect(difference=difference, seeds=seeds, test_items=of_items, failing=tuple(failing), bounds=tuple(bounds))


def _item_error(mine: Sample, other: Sample, test_items: int | None) -> statistics.ItemError | None:
    """The error of the difference of the means of two samples from the choice of test items; None where it is not
    known."""
    if mine.items is None or other.items is None or test_items is None:
        return None
    shift = item_errors.mean_shift(0.0, mine.items, other.items)
    of_runs = (_between_runs(mine.items), _between_runs(other.items))
    return statistics.ItemError(stderr=shift.error, df=shift.df, test_items=test_items, of_runs=of_runs)


def _between_runs(spread: item_errors.ItemSpread) -> float:
    """The standard error of the score of a run from the answers that it does not share with the other runs of its
    rung."""
    found = spread.influences
    if found is None or spread.shares is None or len(found) < 2:
        return 0.0
    # without a least error: equal runs differ by 0
    own = item_errors.of_results(found - found.mean(axis=0), spread.shares)
    return math.hypot(*map(float, own.errors)) / math.sqrt(len(found) - 1)


def _rows(
    ladder: Ladder,
    names: Sequence[str],
    selected: Mapping[str, RungRuns],
    papers: Mapping[str, tuple[Published, ...]],
    rates: Mapping[str, tuple[float | None, RateSource]],
    judged: claims.Judged,
    untuned: Collection[str],
    metric: str,
    left_out: Mapping[str, int],
    removed: Mapping[str, int],
    kind: RunKind,
) -> tuple[LadderRow, ...]:
    bases = ladder.bases
    rungs = [rung for rung in ladder.rungs if rung.name in names]
    previous = (None, *(rung.name for rung in rungs))
    return tuple(
        _row(
            rung,
            selected[rung.name],
            kind=kind,
            base=bases[rung.name],
            branches=bases[rung.name] != before,
            published=papers[rung.name],
            rate=rates.get(rung.name, (None, None)),
            judged=judged.differences.get(rung.name),
            sample=judged.samples[rung.name],
            paper=judged.papers.get(rung.name),
            untuned=tuple(name for name in (rung.name, bases[rung.name]) if name is not None and name in untuned),
            metric=metric,
            left_out=left_out.get(rung.name, 0),
            removed=removed.get(rung.name, 0),
        )
        for rung, before in zip(rungs, previous, strict=False)
    )


def _row(
    rung: Rung,
    runs: RungRuns,
    *,
    kind: RunKind,
    base: str | None,
    branches: bool,
    published: tuple[Published, ...],
    rate: tuple[float | None, RateSource | None],
    judged: Comparison | None,
    sample: Sample,
    paper: Comparison | None,
    untuned: tuple[str, ...],
    metric: str,
    left_out: int,
    removed: int,
) -> LadderRow:
    same = runs.rung != rung.name
    states = [run.state for run in runs.runs]
    escape_step, escaped = row_scores.escapes(runs.counted)
    counted = {run.id for run in runs.counted}
    of_models = kind == "training"  # the numbers of others do not depend on lrurun
    without = [run for run in runs.runs if run.state not in FINISHED]
    return LadderRow(
        rung=rung.name,
        title=rung.title,
        on=base,
        branches=branches,
        n=len(runs.counted),
        mean=statistics.mean(runs.scores),
        stderr=statistics.stderr(runs.scores),
        diverged=states.count("diverged"),
        unscored=len(runs.unscored),
        infinite=len(runs.infinite),
        failed=states.count("failed"),
        unfinished=sum(state in ("queued", "running", "interrupted") for state in states),
        missing=len(without) if kind == "imported" else 0,
        left_out=left_out,
        removed=removed,
        parameters=runs.parameters,
        steps_per_second=_speed(runs.counted),
        steps=max((run.steps for run in runs.counted), default=None),
        learning_rate=_learning_rate(runs.runs, rate[0]),
        rate_source=rate[1],
        published=published,
        runs=tuple(run.id for run in runs.counted),
        scores=runs.scores,
        other_runs=tuple(
            OtherRun(id=run.id, state=run.state, reason=_why_missing(run)) for run in runs.runs if run.id not in counted
        ),
        same_as_before=same,
        code_versions=tuple(sorted({version for run in runs.counted for version in run.code})) if of_models else (),
        numerics=numerics(runs.counted) if of_models else (),
        test_selected=any(map(_test_selected, runs.counted)),
        verdict="" if judged is None else _verdict(judged, sample, left_out),
        comparison=judged,
        paper=paper,
        learning=sample.learning,
        failure_bound=_failure_bound(sample),
        improving=_improving(runs.counted),
        untuned=untuned,
        further_tests=row_scores.further_tests(runs.counted, metric),
        slots=row_scores.slots(runs.counted),
        escape_step=escape_step,
        escaped=escaped,
        score_item_error=row_scores.score_item_error(sample),
    )


def _verdict(comparison: Comparison, sample: Sample, left_out: int) -> str:
    """The verdict on a change, from that on the question whether it makes the rung better."""
    if comparison.same_runs:
        return "same runs"
    if comparison.verdict == verdicts.NOT_RUN and (sample.n or left_out):
        return BASE_NOT_RUN if sample.n else LEFT_OUT
    return row_scores.CHANGES.get(comparison.verdict, comparison.verdict)


def _improving(runs: Iterable[Run]) -> int:
    """How many runs score best on validation at their last step."""
    return sum(
        run.state == "done" and (run.result or {}).get("best_step") == run.step and _is_at_best(run) for run in runs
    )


def _is_at_best(run: Run) -> bool:
    """Whether its score is of its best step; imported ones may be of another one."""
    return not isinstance(run.config, ImportedConfig) or run.config.reading.at == "best"


def _why_missing(run: Run) -> str:
    """Why an imported run has no result, in a line; empty for others."""
    if not isinstance(run.config, ImportedConfig) or run.state in FINISHED:
        return ""
    return next(iter((run.error or "").splitlines()), "") or run.state


def _failure_bound(sample: Sample) -> float | None:
    if not sample.n:
        return None
    return ranks.failure_bound(verdicts.side_of(None, sample).failures, sample.n)


def further_tests_of(rows: Iterable[LadderRow]) -> tuple[str, ...]:
    """The further tests that the runs of these rows have scores on."""
    return tuple(dict.fromkeys(score.test for row in rows for score in row.further_tests))


def _learning_rate(runs: Sequence[Run], planned: float | None) -> float | None:
    """The learning rate that all runs have, else the planned one."""
    rates = {run.config.optim.lr for run in runs if isinstance(run.config, RunConfig)}
    return next(iter(rates)) if len(rates) == 1 else planned


def _test_selected(run: Run) -> bool:
    if isinstance(run.config, ImportedConfig):
        return run.config.reading.protocol == "best-of-test"
    return isinstance(run.config, RunConfig) and run.config.train.protocol == "paper"


def _speed(runs: Sequence[Run]) -> float | None:
    """The median of the speeds that are recorded, in steps a second."""
    speeds = [speed for run in runs if (speed := (run.result or {}).get(SPEED)) is not None and math.isfinite(speed)]
    return statistics.median(speeds)

"""The figures of `lrurun plot`: numbers of the ledger as figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from lrurun import console
from lrurun.config.instance import Instance
from lrurun.config.sweeps import in_words
from lrurun.errors import NoEigenvaluesError, NotFoundError, UsageError, hint_for, plural
from lrurun.judging import rung_runs, statistics
from lrurun.judging.scores import curves_of, declared, form_of, of_task
from lrurun.report.figures import curves, figures, rates, task_map
from lrurun.report.figures.figures import Curve, Figure, Panel, Picture, Scale, floats, suited
from lrurun.report.tables import (
    all_tasks,
    cells,
    content,
    ladder_content,
    ladder_remarks,
    ladder_table,
    paper_tables,
    speed,
    swept_table,
)
from lrurun.report.tables.all_tasks import AllTasksReport
from lrurun.report.tables.row_scores import FurtherScore, LadderRow, SlotScore
from lrurun.report.tables.swept_table import SweptReport

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Run

Layers = Sequence[Sequence[complex]]
"""The eigenvalues of each layer."""

SpectraOf = Callable[["Run"], tuple[int, Layers, Layers]]
"""A function of a run: the step of its trained eigenvalues, the eigenvalues at initialisation, the trained ones."""


class _Rung(Struct, frozen=True, kw_only=True):
    """A line of a figure of means."""

    name: str
    """The name, with the number of seeds and the states of the others below it."""
    mean: float | None
    stderr: float | None
    seeds: tuple[float, ...]
    published: tuple[tuple[float, float | None], ...] = ()
    """Values with their standard errors."""
    group: str = ""
    """Means of one group have one style."""


_UP = 0.16
"""How far above the middle of its row a mean is: seeds are below it, published values above."""


def _means(rungs: Sequence[_Rung], label: str, *, log: bool = False) -> Panel:
    """A line for each rung, the first on top: mean and standard error, seeds below, published values above."""

    def bars(name: str, points: Sequence[tuple[float, float, float | None]]) -> Curve:
        ends = [[x + sign * (error or 0.0) for x, _, error in points] for sign in (-1, 1)]
        low, high = map(floats, ends)
        x, y = floats(x for x, _, _ in points), floats(y for _, y, _ in points)
        return Curve(label=name, style="points", x=x, y=y, low=low, high=high, sideways=True)

    lines = [(-float(k), rung) for k, rung in enumerate(rungs)]
    groups: dict[str, list[tuple[float, float, float | None]]] = {}
    for y, rung in lines:
        if rung.mean is not None:
            groups.setdefault(rung.group or "mean ± standard error", []).append((rung.mean, y + _UP, rung.stderr))
    drawn = [bars(name, points) for name, points in groups.items()]
    if published := [(value, y + _UP + 0.22, error) for y, rung in lines for value, error in rung.published]:
        drawn.append(bars("published", published))
    if seeds := [(seed, y - 0.03) for y, rung in lines for seed in rung.seeds]:
        across, down = map(floats, zip(*seeds, strict=True))
        drawn.append(Curve(label="one seed", style="rings", grey=True, x=across, y=down, lane=0.46))
    values = [x for curve in drawn for x in (*curve.x, *curve.low, *curve.high)]
    return Panel(
        x=label,
        y="",
        curves=tuple(drawn),
        x_scale=suited(values) if log else "linear",
        y_ticks=tuple((y, rung.name) for y, rung in lines),
    )


def ladder(
    report: ladder_table.LadderReport,
    scores: Mapping[str, float],
    *,
    with_differences: bool = True,
    not_run: Sequence[str] = (),
) -> Figure:
    """The test score of every rung, and beside it what its change did.

    Args:
        scores: the score of each run that counts, by its id.
        with_differences: whether the differences to the bases are drawn, with intervals and verdicts.
        not_run: rungs that the report leaves out because nothing is known of them.
    """
    form = report.score
    differences = _differences(report) if with_differences else None

    def scaled(value: float | None) -> float | None:
        return None if value is None else form.scale * value

    lines = []
    without_value: dict[str, list[str]] = {}
    for row in report.rows:
        for score in row.published:
            if score.value is None:
                without_value.setdefault(score.note or "no value", []).append(row.rung)
        lines.append(
            _Rung(
                name=f"{row.rung}\n{_note(row)}" + _base(row, report) * (differences is not None),
                mean=scaled(row.mean),
                stderr=scaled(row.stderr),
                seeds=tuple(form.scale * scores[run] for run in row.runs),
                published=tuple(
                    (form.scale * score.value, scaled(score.stderr))
                    for score in row.published
                    if score.value is not None
                ),
            )
        )
    sources = dict.fromkeys(
        score.source + cells.other_metric(score, form).replace(" ", ", ", 1)
        for row in report.rows
        for score in row.published
        if score.value is not None
    )
    sentences = [_SEEDS, *(_of_differences(report) if differences is not None else [])]
    if sources:
        sentences.append(f"Published: {'; '.join(sources)}.{cells.scale(report.instance.profile, report.rows)}")
    sentences += [
        f"{caution.text}." for caution in ladder_remarks.removed_cautions(report.removed_runs, report.trained_again)
    ]
    sentences += [f"Published without a value ({note}): {', '.join(rungs)}." for note, rungs in without_value.items()]
    if not_run:
        sentences.append(f"Not run, and not drawn: {', '.join(not_run)}.")
    scored = structs.replace(_means(lines, form.on_test(form.axis)), is_beside=differences is not None)
    return Figure(
        panels=(scored,) if differences is None else (scored, structs.replace(differences, y_ticks=scored.y_ticks)),
        columns=1 if differences is None else 2,
        same_y=differences is not None and "row",
        title=report.instance.title(report.title),
        caption=_caption(sentences, report.notes),
    )


_SEEDS = "Mean ± standard error over n finished seeds; each seed below its mean, equal ones side by side."


def _base(row: LadderRow, report: ladder_table.LadderReport) -> str:
    """The base that a rung is compared with, beside its name, where it is not the rung before for all."""
    if not ladder_content.has_branches(report) or row.comparison is None or row.same_as_before:
        return ""
    return f"\nfrom {row.on}"


def _differences(report: ladder_table.LadderReport) -> Panel | None:
    """The difference of every rung to its base with its interval, and the verdict on it; None where there is none."""
    form = report.score
    drawn: dict[str, list[tuple[float, float, float, float]]] = {}
    notes = []
    for k, row in enumerate(report.rows):
        comparison = row.comparison
        if comparison is None:
            continue
        notes.append((-float(k), f"{row.verdict}\n({row.on_these_items})" if row.on_these_items else row.verdict))
        if comparison.difference is not None and math.isfinite(comparison.difference) and not row.same_as_before:
            ends = [
                comparison.difference if end is None or not math.isfinite(end) else end
                for end in (comparison.low, comparison.high)
            ]
            kind = row.verdict if row.verdict in _STYLES else "undecided"
            low, middle, high = (form.scale * value for value in (ends[0], comparison.difference, ends[1]))
            drawn.setdefault(kind, []).append((middle, -float(k), low, high))
    if not drawn:
        return None
    curves_ = []
    for kind, style in _STYLES.items():
        if points := drawn.get(kind):
            x, y, low_ends, high_ends = map(floats, zip(*points, strict=True))
            curves_.append(Curve(label=kind, style=style, x=x, y=y, low=low_ends, high=high_ends, sideways=True))
    label = f"change [{form.unit}]" if form.symbol else "change"
    return Panel(x=label, y="", curves=tuple(curves_), notes=tuple(notes), is_beside=True, zero=True)


_STYLES: dict[str, figures.Style] = {"helps": "better", "hurts": "worse", "undecided": "open"}
"""The verdict on a change -> the style of its difference."""


def _of_differences(report: ladder_table.LadderReport) -> list[str]:
    """What the differences beside the scores are."""
    compared = [row.comparison for row in report.rows if row.comparison is not None]
    tested = [comparison for comparison in compared if comparison.is_tested]
    to = "base" if ladder_content.has_branches(report) else "rung above"
    sentences = []
    if tested:
        sentences.append(
            f"Right: the change from the {to}, with its 95 % interval (Welch), not corrected. Verdicts: "
            f"{paper_tables.test_of(tested)} at 5 %, corrected by Holm's method over "
            f"{plural(report.hypotheses, 'comparison')}."
        )
    else:
        sentences.append(f"Right: the change from the {to}; a test needs two seeds.")
    if any(row.on_these_items for row in report.rows):
        sentences.append("In brackets: the verdict on these test items.")
    return sentences


def every_task(report: AllTasksReport) -> Figure:
    """The map of tasks by rungs."""
    drawn = task_map.make(report)
    sentences = [drawn.legend, "Colour: blue helps, orange hurts, grey is undecided. Narrow cells have two digits."]
    whole = all_tasks.content_of(report)
    sentences += _caution(whole)
    positions = [(float(k), -float(n), cell) for n, row in enumerate(drawn.cells) for k, cell in enumerate(row)]
    picture = Picture(
        x=floats(range(len(drawn.columns))),
        y=floats(-n for n in range(len(drawn.rows))),
        z=tuple(tuple(map(_strength, row)) for row in drawn.cells),
    )
    panel = Panel(
        x="",
        y="",
        picture=picture,
        texts=tuple((x, y, cell.text.replace("-", "−")) for x, y, cell in positions),
        short_texts=tuple(cell.short.replace("-", "−") for _, _, cell in positions),
        x_ticks=tuple(zip(picture.x, drawn.columns, strict=True)),
        y_ticks=tuple(zip(picture.y, drawn.rows, strict=True)),
    )
    return Figure(panels=(panel,), title=whole.title, caption=_caption(sentences, report.notes))


def _strength(cell: task_map.MapCell) -> float:
    """The colour of a cell: strong for large differences, none where they are undecided."""
    if cell.benefit is None:
        return math.nan
    if cell.verdict not in task_map.DECIDED:
        return 0.0
    return math.copysign(0.2 + 0.6 * abs(cell.benefit), cell.benefit)


def summary(report: AllTasksReport) -> Figure:
    """The scores of every rung on all tasks, and their mean, beside the published ones: the right part of Figure 1 of
    the LRU paper (Orvieto et al. 2023).

    Tasks with another metric than most are left out, and so is the mean of a rung without a score on each task.
    """
    metric = Counter(column.score.name for column in report.columns).most_common(1)[0][0]
    chosen = [k for k, column in enumerate(report.columns) if column.score.name == metric]
    form = report.columns[chosen[0]].score
    positions = [(-float(k), row) for k, row in enumerate(report.rows)]
    panels = []
    for title, score_of in (("this ledger", _own_score), ("published", _published_score)):
        by_task = {
            report.columns[k].name: {
                y: (form.scale * score[0], form.scale * (score[1] or 0.0))
                for y, row in positions
                if (score := score_of(row.cells[k], metric)) is not None
            }
            for k in chosen
        }
        drawn = {name: scores for name, scores in by_task.items() if scores}
        means = {
            y: (math.fsum(scores[y][0] for scores in drawn.values()) / len(drawn), 0.0)
            for y, _ in positions
            if drawn and all(y in scores for scores in drawn.values())
        }
        lines = [_across(name, scores) for name, scores in drawn.items()]
        lines += [structs.replace(_across("mean", means), style="marked", low=(), high=(), grey=True)] if means else []
        if lines:
            ticks = tuple((y, row.rung) for y, row in positions)
            panels.append(Panel(title=title, x=form.on_test(form.axis), y="", curves=tuple(lines), y_ticks=ticks))
    if not panels:
        raise NotFoundError(
            f"ladder {report.instance.ladder}: no run is finished, so there is nothing to draw", "lrurun status"
        )
    sentences = [
        "Mean ± standard error over seeds, of each task; the mean is over tasks, of rungs with a score on each."
    ]
    if lost := [column.name for column in report.columns if column.score.name != metric]:
        sentences.append(f"Not drawn, because of another metric: {', '.join(lost)}.")
    cells_of = [cell for row in report.rows for cell in row.cells]
    sources = dict.fromkeys(score.source for cell in cells_of for score in cell.published if score.value is not None)
    profiles = [column.instance.profile for column in report.columns if column.instance.profile]
    if sources:
        sentences.append(f"Published: {'; '.join(sources)}.{cells.scale(profiles[0] if profiles else None, cells_of)}")
    whole = all_tasks.content_of(report)
    sentences += _caution(whole)
    return Figure(
        panels=tuple(panels),
        columns=2,
        same_x=True,
        same_y=True,
        title=whole.title,
        caption=_caption(sentences, report.notes),
    )


def _own_score(cell: all_tasks.TaskCell, metric: str) -> tuple[float, float | None] | None:
    return None if cell.mean is None else (cell.mean, cell.stderr)


def _published_score(cell: all_tasks.TaskCell, metric: str) -> tuple[float, float | None] | None:
    """The first published score with a value, of that metric."""
    for score in cell.published:
        if score.value is not None and score.metric in ("", metric):
            return score.value, score.stderr
    return None


def _across(name: str, scores: Mapping[float, tuple[float, float]]) -> Curve:
    """Scores with their errors, by their positions from above."""
    values, errors = zip(*scores.values(), strict=True)
    low, high = (floats(x + sign * error for x, error in zip(values, errors, strict=True)) for sign in (-1, 1))
    return Curve(label=name, style="points", x=floats(values), y=floats(scores), low=low, high=high, sideways=True)


def _note(row: LadderRow) -> str:
    """The text under a rung's name."""
    sentences = [f"n = {row.n}", *cells.uncounted(structs.replace(row, left_out=0))]
    return ", ".join([*sentences, f"as {row.on}"] if row.same_as_before else sentences)


def speeds(report: speed.SpeedReport, speed_of: Mapping[str, float]) -> Figure:
    """The training speed of every rung on every device; `speed_of` has each counted run, by its id."""
    settings = list(dict.fromkeys(row.setting for row in report.rows if row.setting is not None))
    differing = [
        name
        for name in speed.SpeedSetting.__struct_fields__
        if len({getattr(setting, name) for setting in settings}) > 1
    ]
    lines = [
        _Rung(
            name=f"{row.rung}\nn = {row.n}" + (", as its base rung" if row.same_as_before else ""),
            mean=row.steps_per_second,
            stderr=row.stderr,
            seeds=tuple(speed_of[run] for run in row.runs),
            # once for each rung, although it has a line for every setting
            published=()
            if number and report.rows[number - 1].rung == row.rung
            else tuple((printed.value, None) for printed in row.published if printed.value is not None),
            group=", ".join(_setting(row.setting, name) for name in differing) if row.setting else "",
        )
        for number, row in enumerate(report.rows)
    ]
    sentences = [_SEEDS]
    shared = [_setting(settings[0], name) for name in ("device", "threads", "packed") if name not in differing]
    if shared := [text for text in shared if text]:
        sentences.append(f"All runs: {', '.join(shared)}.")
    sources = dict.fromkeys(
        f"{printed.source}, on {printed.device}" for row in report.rows for printed in row.published
    )
    if sources:
        sentences.append(f"Published: {'; '.join(sources)}.{content.scale(report.instance.profile)}")
        sentences.append("Speeds on different devices cannot be compared; their ratios can.")
    return Figure(
        panels=(_means(lines, "training speed [steps/s]", log=True),),
        title=report.instance.title(f"training speed, {report.title}"),
        caption=_caption(sentences, report.notes),
    )


def _setting(setting: speed.SpeedSetting, name: str) -> str:
    value = getattr(setting, name)
    if name == "device":
        return "unknown device" if value is None else str(value)
    if name == "packed":
        return "" if value == 1 else f"{value} runs packed"
    unit = name.replace("_", " ")
    return "" if value is None else f"{value} {unit.removesuffix('s') if value == 1 else unit}"


Score = FurtherScore | SlotScore | LadderRow
"""A score with a mean over seeds and its error."""


def slots(report: ladder_table.LadderReport) -> Figure:
    """The test accuracy of every rung at each slot."""
    by_rung = {
        f"{row.rung} (n={row.n})": {slot.slot: slot for slot in row.slots}
        for row in report.rows
        if not row.same_as_before
    }
    sentence = "Slot k has the k-th label of every sequence."
    return _profile(report, by_rung, "slot", "test accuracy [%]", sentence, scale=100.0, log=False)


def swept(
    report: SweptReport, numbers: Mapping[str, float], label: str, scale: float, *, plain: bool = False
) -> Figure:
    """A result of every rung over the values of the setting in which instances differ.

    Args:
        numbers: the result of each run that counts and has it, by the run's id.
        label: of the axis, for numbers that are multiplied by `scale`.
        plain: whether the setting is named in words, as in a paper, and not by its dotted path.

    Raises:
        UsageError: values of the setting are no numbers.
        NotFoundError: no run has both.
    """
    [path] = report.by
    values = [row.by[path] for row in report.rows if row.by[path] is not None]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        texts = ", ".join(dict.fromkeys(map(console.setting, values)))
        raise UsageError(f"--by {path}: a figure is over numbers, found {texts}", "print the table: lrurun report --by")
    drawn: dict[str, dict[float, dict[str, float]]] = {}
    lost: list[str] = []
    for row in report.rows:
        if row.by[path] is None:
            continue
        # instances with the same value have a point together
        if seeds := {run: numbers[run] for run in row.runs if math.isfinite(numbers.get(run, math.nan))}:
            drawn.setdefault(row.rung, {}).setdefault(float(row.by[path]), {}).update(seeds)
        started = len(row.runs) + row.diverged + row.unscored + row.infinite + row.failed + row.unfinished
        if len(seeds) < started:
            lost.append(f"{row.rung} at {console.setting(row.by[path])} ({started - len(seeds)} of {started})")
    if not drawn:
        raise NotFoundError(
            f"no finished run has a value of {path}: its rung has none, or tuning chose it",
            "--by K: name a setting in which instances differ; lrurun report --by K prints all",
        )
    tried = sorted({x for points in drawn.values() for x in points})
    x_scale = suited(tried)
    panel = Panel(
        x=in_words(path) if plain else path,
        y=label,
        curves=tuple(_over(rung, places, scale) for rung, places in drawn.items()),
        x_scale=x_scale,
        x_ticks=_ticks(tried, x_scale),
    )
    sentences = [curves.BAND]
    if lost:
        sentences.append(f"Left out, because diverged, failed, unfinished or without the result: {', '.join(lost)}.")
    if without := [name for name in dict.fromkeys(row.rung for row in report.rows if row.n) if name not in drawn]:
        sentences.append(f"Not drawn, because they have no {path}, or tuning chose it: {', '.join(without)}.")
    return Figure(panels=(panel,), title=swept_table.title(report), caption=_caption(sentences, report.notes))


def _ticks(tried: Sequence[float], x_scale: Scale) -> tuple[tuple[float, str], ...]:
    """The places of the points on a logarithmic axis, if their labels have room there; else empty."""
    ticks = tuple((x, console.setting(x)) for x in tried)
    # short labels fit where no gap is under an eighth of the axis
    short = x_scale == "log" and max(len(text) for _, text in ticks) <= 7
    return ticks if short and min(b / a for a, b in pairwise(tried)) ** 8 > tried[-1] / tried[0] else ()


def _over(rung: str, points: Mapping[float, Mapping[str, float]], scale: float) -> Curve:
    """The mean over seeds at each x."""
    seeds = {x: list(numbers.values()) for x, numbers in points.items()}
    counts = sorted({len(scores) for scores in seeds.values()})
    n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    means = [(x, statistics.mean(scores), statistics.stderr(scores)) for x, scores in seeds.items()]
    return _marked(f"{rung} (n={n})", means, scale)


def lengths(report: ladder_table.LadderReport, length: int) -> Figure:
    """The test score of every rung at `length`, as trained, and in further tests whose names are lengths."""
    by_rung: dict[str, dict[int, Score]] = {}
    for row in report.rows:
        further = {int(score.test): score for score in row.further_tests if score.test.isdecimal()}
        if further and not row.same_as_before:
            by_rung[f"{row.rung} (n={row.n})"] = {length: row, **further}
    form = report.score
    return _profile(report, by_rung, "length", form.on_test(form.axis), "", scale=form.scale, log=True)


def _profile(
    report: ladder_table.LadderReport,
    by_rung: Mapping[str, Mapping[int, Score]],
    across: str,
    label: str,
    sentence: str,
    *,
    scale: float,
    log: bool,
) -> Figure:
    drawn = tuple(
        _marked(name, [(x, score.mean, score.stderr) for x, score in scores.items()], scale)
        for name, scores in by_rung.items()
    )
    if not any(curve.x for curve in drawn):
        missing = "scores by slot" if across == "slot" else "scores at other sequence lengths"
        raise NotFoundError(
            f"{report.instance.task}: its runs have no {missing}, so there is nothing to draw",
            "draw --kind ladder instead",
        )
    scale_of = suited(x for curve in drawn for x in curve.x) if log else "linear"
    places = sorted({x for curve in drawn for x in curve.x})
    panel = Panel(
        x=across,
        y=label,
        curves=tuple(curve for curve in drawn if curve.x),
        x_scale=scale_of,
        x_ticks=_ticks(places, scale_of),
    )
    caption = _caption([sentence, curves.BAND] if sentence else [curves.BAND], report.notes)
    return Figure(panels=(panel,), title=report.instance.title(report.title), caption=caption)


def _marked(name: str, points: Iterable[tuple[float, float | None, float | None]], scale: float) -> Curve:
    """Means with their standard errors at each x."""
    drawn = [(x, scale * mean, scale * (error or 0.0)) for x, mean, error in points if mean is not None]
    drawn.sort()
    several = any(error for _, _, error in drawn)
    return Curve(
        label=name,
        style="marked",
        x=floats(x for x, _, _ in drawn),
        y=tuple(mean for _, mean, _ in drawn),
        low=tuple(mean - error for _, mean, error in drawn) if several else (),
        high=tuple(mean + error for _, mean, error in drawn) if several else (),
    )


def ladder_curves(
    plan: planning.Plan,
    instance: Instance,
    selected: Mapping[str, rung_runs.RungRuns],
    notes: Sequence[rung_runs.Note],
    ledger: Ledger,
    metrics: Sequence[str] = (),
) -> Figure:
    """Loss and validation score of every rung, or `metrics`, as means over its finished seeds."""
    own = {rung: runs for rung, runs in selected.items() if runs.rung == rung and runs.counted}
    drawn = _drawn(metrics, [run for runs in own.values() for run in runs.counted], ledger)
    drawn = drawn or curves_of(form_of(plan.task.metric), test=not plan.is_trained_here)
    panels = curves.of_rungs(curves.recorded(ledger, own, drawn), drawn)
    if not panels:
        raise _no_curves(f"ladder {plan.ladder.name}", of_import=not plan.is_trained_here)
    sentences = [curves.BAND]
    same = [f"{rung} as {runs.rung}" for rung, runs in selected.items() if runs.rung != rung and runs.counted]
    if same:
        sentences.append(f"Not drawn, because they are the same runs: {', '.join(same)}.")
    lost = [
        f"{rung} ({len(runs.runs) - len(runs.counted)} of {len(runs.runs)})"
        for rung, runs in selected.items()
        if runs.rung == rung and len(runs.runs) > len(runs.counted)
    ]
    if lost:
        sentences.append(
            f"Left out, because diverged, failed, unfinished or without a finite score: {', '.join(lost)}."
        )
    title = instance.title(plan.ladder.title)
    return Figure(panels=tuple(panels), same_x=True, title=title, caption=_caption(sentences, notes))


def run_curves(runs: Sequence[Run], ledger: Ledger, instances: str, metrics: Sequence[str] = ()) -> Figure:
    """Loss and validation score of single runs of these `instances`, or `metrics`, up to their current steps."""
    recorded = {run.id: ledger.metrics(run.id) for run in runs}
    known = declared(ledger, [run.task for run in runs])
    forms = {form.name: form for form in (of_task(run.task, recorded[run.id], known) for run in runs)}
    of_import = any(run.kind == "imported" for run in runs)
    drawn = _drawn(metrics, runs, ledger) or curves_of(*forms.values(), test=of_import)
    names = curves.names_of(runs)
    panels = curves.panels({names[run.id]: [recorded[run.id]] for run in runs}, drawn)
    if not panels:
        if metrics_of := sorted({name for curves in recorded.values() for name in curves}):
            raise NotFoundError(
                f"run {', '.join(recorded)}: has curves, but none that is drawn without --metric",
                f"name one: --metric {metrics_of[0]}; curves: {', '.join(metrics_of)}",
            )
        raise _no_curves(f"run {', '.join(recorded)}", of_import=of_import)
    return Figure(panels=tuple(panels), same_x=True, title=_heading(runs, instances), caption=_states(runs))


def _drawn(metrics: Sequence[str], runs: Sequence[Run], ledger: Ledger) -> dict[str, tuple[str, float]]:
    """Each of `metrics` with its name and scale on an axis; one that no run has is an error."""
    for name in metrics:
        if not any(ledger.metrics(run.id, [name]) for run in runs):
            existing = sorted({metric for run in runs for metric in ledger.metrics(run.id)})
            raise NotFoundError(
                f"--metric {name}: none of these runs has this curve", hint_for(name, existing, "curves")
            )
    return {name: (name, 1.0) for name in metrics}


def _no_curves(subject: str, *, of_import: bool) -> NotFoundError:
    if of_import:
        return NotFoundError(
            f"{subject}: was imported without such curves, so there is nothing to draw",
            "if its tracker has them, import again without --scores-only",
        )
    return NotFoundError(
        f"{subject}: has no curves yet, so there is nothing to draw", "lrurun status shows its progress"
    )


def ladder_rates(plan: planning.Plan, instance: Instance, runs: Sequence[Run], key: str, command: str) -> Figure:
    """The learning rates of every rung, of its runs with their present settings, finished or not.

    Args:
        key: of the instance.
        command: what trains it, for messages.
    """
    by_rung: dict[str, list[Run]] = {rung.name: [] for rung in plan.rungs}
    for run in runs:
        for membership in run.memberships:
            if (membership.ladder_key, membership.stage) == (key, "train") and run.excluded is None:
                by_rung[membership.rung].append(run)
    if not (drawn := rates.lines(by_rung, curves.names_of(runs))):
        raise NotFoundError(
            f"ladder {plan.ladder.name}: no run has begun, so there is nothing to draw",
            f"run: {command}; lrurun plan with -v describes the schedules of a ladder",
        )
    return rates.figure(drawn, title=instance.title(plan.ladder.title))


def run_rates(runs: Sequence[Run], instances: str) -> Figure:
    """The learning rates of single runs of these `instances`."""
    several = len({run.memberships[0].instance for run in runs if run.memberships}) > 1
    by_rung: dict[str, list[Run]] = {}
    for run in runs:
        first = run.memberships[0] if run.memberships else None
        name = run.task if first is None else first.rung + (" (tune)" if first.stage == "tune" else "")
        by_rung.setdefault(f"{first.instance}: {name}" if first and several else name, []).append(run)
    return rates.figure(rates.lines(by_rung, curves.names_of(runs)), title=_heading(runs, instances))


def ladder_norms(
    plan: planning.Plan,
    instance: Instance,
    selected: Mapping[str, rung_runs.RungRuns],
    notes: Sequence[rung_runs.Note],
    ledger: Ledger,
) -> Figure:
    """The norms of every rung's states, as means over its finished seeds."""
    own = {rung: runs for rung, runs in selected.items() if runs.rung == rung and runs.counted}
    recorded = {rung: [ledger.metrics(run.id) for run in runs.counted] for rung, runs in own.items()}
    panels = [curves.norms(curves.with_count(rung, len(seeds)), seeds) for rung, seeds in recorded.items()]
    title = instance.title(plan.ladder.title)
    several = any(len(runs.counted) > 1 for runs in own.values())
    sentences = [curves.NORMS, *([curves.BAND] if several else [])]
    return _norm_figure(panels, title, _caption(sentences, notes), f"ladder {plan.ladder.name}")


def run_norms(runs: Sequence[Run], ledger: Ledger, instances: str) -> Figure:
    """The norms of the states of single runs of these `instances`."""
    names = curves.names_of(runs)
    panels = [curves.norms("" if len(runs) == 1 else names[run.id], [ledger.metrics(run.id)]) for run in runs]
    caption = " ".join([curves.NORMS, _states(runs)]).strip()
    return _norm_figure(panels, _heading(runs, instances), caption, f"run {', '.join(run.id for run in runs)}")


def _norm_figure(panels: Sequence[Panel], title: str, caption: str, subject: str) -> Figure:
    if not any(panel.curves for panel in panels):
        raise NotFoundError(
            f"{subject}: no norms are recorded, so there is nothing to draw",
            "newer versions record them at every evaluation; train again with --fresh",
        )
    scale = suited(curves.values_of([curve for panel in panels for curve in panel.curves]))
    scaled = tuple(structs.replace(panel, y_scale=scale) for panel in panels)
    columns = 1 if len(panels) == 1 else 2
    return Figure(panels=scaled, columns=columns, same_x=True, same_y=True, title=title, caption=caption)


def ladder_eigenvalues(
    plan: planning.Plan,
    instance: Instance,
    selected: Mapping[str, rung_runs.RungRuns],
    notes: Sequence[rung_runs.Note],
    spectra_of: SpectraOf,
) -> Figure:
    """The eigenvalues of every rung that has runs of its own: of all layers of its first finished seed."""
    spectra: list[Panel] = []
    seeds: dict[int, list[str]] = {}
    without: dict[str, NoEigenvaluesError] = {}
    for rung, runs in selected.items():
        if runs.rung == rung and runs.counted:
            run = runs.counted[0]
            try:
                _, initial, trained = spectra_of(run)
            except NoEigenvaluesError as error:
                without[rung] = error
                continue
            spectra.append(figures.spectrum(rung, _all(initial), _all(trained)))
            seeds.setdefault(run.seed, []).append(rung)
    if without and not spectra:
        raise next(iter(without.values()))
    if without:
        console.warn(f"not drawn, because their recurrences define no eigenvalues: {', '.join(without)}")
    origin = "; ".join(
        f"seed {seed} of {', '.join(rungs)}" if len(seeds) > 1 else f"seed {seed}" for seed, rungs in seeds.items()
    )
    sentences = [f"Eigenvalues of the recurrence, all layers, {origin}; the unit circle.", *figures.not_finite(spectra)]
    title = instance.title(plan.ladder.title)
    return figures.spectra(spectra, title=title, caption=_caption(sentences, notes))


def run_eigenvalues(runs: Sequence[Run], spectra_of: SpectraOf, instances: str) -> Figure:
    """The eigenvalues of every layer of these runs, of these `instances`."""
    spectra, steps = [], []
    labels = curves.names_of(runs)
    for run in runs:
        step, initial, trained = spectra_of(run)
        steps.append(f"{step:,}" if len(runs) == 1 else f"{step:,} ({labels[run.id]})")
        for number, (before, after) in enumerate(zip(initial, trained, strict=True)):
            title = f"layer {number}" if len(runs) == 1 else f"{labels[run.id]}, layer {number}"
            spectra.append(figures.spectrum(title, before, after))
    sentences = [
        f"Eigenvalues of the recurrence, trained to step {', '.join(steps)}; the unit circle.",
        *figures.not_finite(spectra),
    ]
    names = ", ".join(map(_name, runs)) if len(runs) == 1 else f"{len(runs)} runs"
    caption = _caption([*sentences, _states(runs)], []).strip()
    return figures.spectra(spectra, title=f"{instances}: {names}", caption=caption)


def _all(layers: Layers) -> tuple[complex, ...]:
    return tuple(value for layer in layers for value in layer)


def _name(run: Run) -> str:
    rung = run.memberships[0].rung if run.memberships else run.task
    return f"{run.id} ({rung}, seed {run.seed})"


def _heading(runs: Sequence[Run], instances: str) -> str:
    return f"{instances}: run {runs[0].id}" if len(runs) == 1 else f"{instances}: {len(runs)} runs"


def _states(runs: Sequence[Run]) -> str:
    """A sentence for each run that is not done."""
    unfinished = [run for run in runs if run.state != "done"]
    return " ".join(f"{run.id} is {run.state}, at {run.reached}." for run in unfinished)


def _caution(whole: content.ReportContent) -> list[str]:
    """The cautions as a sentence; none without any."""
    return [f"Caution: {'; '.join(whole.cautions)}."] if whole.cautions else []


def _caption(sentences: Sequence[str], notes: Sequence[rung_runs.Note]) -> str:
    return " ".join([*sentences, *(f"Note: {note}." for note in notes)])

"""Curves as the pages draw them: panels of lines, reduced to what a screen can show."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import structs

from lrurun.judging.scores import curves_of, declared, form_of, of_task
from lrurun.report.figures import curves
from lrurun.report.figures.curves import LOGARITHMIC
from lrurun.report.figures.figures import Curve, Figure, Panel, floats, suited

if TYPE_CHECKING:
    from lrurun.config.planning import Plan
    from lrurun.judging.rung_runs import RungRuns
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import RecordedCurve, Run

Kind = Literal["curves", "norms", "rates"]
"""What the page of a ladder draws."""
Span = tuple[int, int] | None
"""The first and the last step that are shown; None for all."""
Remember = Callable[[object, object, Callable[[], list[Panel]]], list[Panel]]
"""Keeps what its last argument makes, by a key and what it is made from."""
_MOST, _BESIDE = 1600, 700
"""Points of a curve, and of one beside many others: two for each column of a screen."""
_SINGLE = 12
"""How many runs of a rung get a line each: more would be hard to distinguish."""


def run_figure(runs: Sequence[Run], ledger: Ledger, span: Span) -> Figure:
    """All curves of one run, or of several runs on common axes: the main ones first."""
    known: dict[str, dict[str, RecordedCurve]] = {run.id: {} for run in runs}
    for curve in ledger.curves(list(known)):
        known[curve.run][curve.key] = curve
    forms = declared(ledger, [run.task for run in runs])
    of_import = any(run.kind == "imported" for run in runs)
    main = curves_of(*dict.fromkeys(of_task(run.task, known[run.id], forms) for run in runs), test=of_import)
    names = dict.fromkeys([*main, *sorted({name for by_name in known.values() for name in by_name})])

    def is_curve(name: str, run: Run) -> bool:
        """Whether a metric has more than one point: a single one is in the table of results too."""
        curve = known[run.id].get(name)
        return curve is not None and (len(curve.steps) > 1 or name not in (run.result or ()))

    labels = curves.names_of(runs)
    groups: dict[str, list[str]] = {}
    for name in names:
        if any(is_curve(name, run) for run in runs):
            groups.setdefault(name if len(runs) > 1 else re.sub(r"\d+$", "", name), []).append(name)
    panels = []
    for stem, metrics in groups.items():
        label, scale = main.get(stem, (stem, 1.0))
        lines = [
            _shown(known[run.id][name], labels[run.id] if len(runs) > 1 else name, scale, span, _MOST, family=str(look))
            for look, (run, name) in enumerate((run, name) for run in runs for name in metrics)
            if name in known[run.id]
        ]
        panels.append(_panel(lines, label, log=stem.startswith(LOGARITHMIC)))
    return Figure(panels=tuple(panels))


def _panel(lines: Sequence[Curve], label: str, title: str = "", *, log: bool) -> Panel:
    scale = suited(curves.values_of(lines)) if log else "linear"
    return Panel(title=title, x="step", y=label, curves=tuple(lines), y_scale=scale)


def _shown(
    curve: RecordedCurve, label: str, scale: float, span: Span, most: int, *, family: str, thin: bool = False
) -> Curve:
    """The part of a recorded curve that is shown."""
    part = _within(curve.steps, span)
    y = tuple(scale * value for value in curve.values[part])
    whole = Curve(label=label, x=floats(curve.steps[part]), y=y, family=family, style="thin" if thin else "line")
    return curves.reduced(whole, most)


def _within(steps: Sequence[float] | memoryview, span: Span) -> slice:
    """The points of a span, and the nearest one to each side of it."""
    if span is None:
        return slice(None)
    return slice(max(bisect.bisect_left(steps, span[0]) - 1, 0), bisect.bisect_right(steps, span[1]) + 1)


def _cut(curve: Curve, span: Span) -> Curve:
    part = _within(curve.x, span)
    columns = {name: getattr(curve, name)[part] for name in ("x", "y", "low", "high")}
    return curves.reduced(structs.replace(curve, **columns), _BESIDE)


def rates_figure(figure: Figure, span: Span) -> Figure:
    """The learning rates of a ladder, as `lrurun plot` draws them, without the points where their parts begin."""
    panels = [
        structs.replace(panel, curves=tuple(_cut(curve, span) for curve in panel.curves if curve.style == "line"))
        for panel in figure.panels
    ]
    return Figure(panels=tuple(panels), caption=figure.caption)


def ladder_figure(
    plan: Plan,
    selected: Mapping[str, RungRuns],
    ledger: Ledger,
    kind: Kind,
    span: Span,
    remember: Remember,
    *,
    seeds: bool,
) -> Figure:
    """The curves of all rungs as the report draws them: means over the finished seeds. Runs that are running have lines
    of their own, with `seeds` all runs do."""
    rungs = {rung: rung_runs for rung, rung_runs in selected.items() if rung_runs.rung == rung}
    shown = curves_of(form_of(plan.task.metric), test=not plan.is_trained_here)
    metrics = _norms_of(rungs.values(), ledger) if kind == "norms" else list(shown)
    lines: dict[tuple[str, str], list[Curve]] = {}
    left_out = False
    for rung, rung_runs in rungs.items():
        ids, mean = [run.id for run in rung_runs.counted], curves.with_count(rung, len(rung_runs.counted))

        def means(name: str = mean, rung: str = rung, rung_runs: RungRuns = rung_runs) -> list[Panel]:
            seeds = curves.recorded(ledger, {rung: rung_runs}, metrics)
            if kind == "norms":
                return [curves.norms(name, seeds[rung])] if any(seeds[rung]) else []
            return curves.of_rungs(seeds, shown)

        for panel in remember((plan.ladder.name, plan.profile, kind, rung, tuple(metrics)), tuple(ids), means):
            lines.setdefault((panel.title, panel.y), []).extend(_cut(curve, span) for curve in panel.curves)
        if kind == "curves":
            single_runs = [run for run in rung_runs.runs if seeds or run.state == "running"]
            left_out |= len(single_runs) > _SINGLE
            single_runs = sorted(single_runs, key=lambda run: run.state != "running")[:_SINGLE]
            for points in ledger.curves([run.id for run in single_runs], metrics):
                seed = next(run.seed for run in single_runs if run.id == points.run)
                label, scale = shown[points.key]
                line = _shown(points, f"{rung}, seed {seed}", scale, span, _BESIDE, family=mean, thin=True)
                lines.setdefault(("", label), []).append(line)
    logarithmic = {label for metric, (label, _) in shown.items() if metric.startswith(LOGARITHMIC)}
    order = [label for label, _ in shown.values()]
    panels = [
        _panel(panel_lines, label, title, log=label in logarithmic or kind == "norms")
        for (title, label), panel_lines in sorted(
            lines.items(), key=lambda item: order.index(item[0][1]) if item[0][1] in order else 0
        )
    ]
    all_lines = [line for panel_lines in lines.values() for line in panel_lines]
    notes = [curves.NORMS] if panels and kind == "norms" else []
    if any(line.low for line in all_lines):
        notes.append(curves.BAND)
    if any(line.style == "thin" for line in all_lines):
        most = f", {_SINGLE} of a rung at most" if left_out else ""
        notes.append(f"Thin lines: single seeds{most}.")
    return Figure(panels=tuple(panels), caption=" ".join(notes))


def _norms_of(rungs: Iterable[RungRuns], ledger: Ledger) -> list[str]:
    names = {name for rung in rungs for run in rung.counted[:1] for name in ledger.metrics(run.id)}
    return sorted(name for name in names if name.startswith(curves.NORM))

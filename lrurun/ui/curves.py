"""Curves as the pages draw them: panels of lines, reduced to what a screen can show."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from lrurun.ledger.values import Curve as RecordedCurve
from lrurun.report import drawing, figures
from lrurun.report.curves import reduced
from lrurun.report.figures import Curve
from lrurun.report.scores import curves_of, form_of, of_task

if TYPE_CHECKING:
    from lrurun.config.plan import Plan
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import Run
    from lrurun.report.rung_runs import RungRuns

Kind = Literal["curves", "norms"]
Span = tuple[int, int] | None
"""The first and the last step that are shown; None for all."""
Points = Curve | RecordedCurve
Remember = Callable[[object, object, Callable[[], list[figures.Panel]]], list[figures.Panel]]
"""Keeps what its last argument makes, by a key and what it is made from."""
_MOST, _BESIDE = 1600, 700
"""Points of a curve, and of one beside many others: two for each column of a screen."""
_SINGLE = 12
"""How many runs of a rung get a line each: more would be hard to distinguish."""


class Line(Struct, frozen=True, kw_only=True):
    """A line of a panel, or a band."""

    name: str
    look: int
    """Lines of one look have the same colour and dashes."""
    seed: bool = False
    """Whether it is one run of a rung, drawn thinly."""
    steps: list[int]
    values: list[float]
    low: list[float] = []
    high: list[float] = []


class DrawnPanel(Struct, frozen=True, kw_only=True):
    """Lines that share two axes."""

    title: str
    label: str
    log: bool
    lines: list[Line]


class Drawn(Struct, frozen=True):
    """The JSON that a page asks for."""

    panels: list[DrawnPanel]
    notes: list[str] = []


def of_runs(runs: Sequence[Run], ledger: Ledger, span: Span) -> Drawn:
    """All curves of one run, or those of several runs on common axes: the main ones first."""
    known: dict[str, dict[str, Points]] = {run.id: {} for run in runs}
    for curve in ledger.curves(list(known)):
        known[curve.run][curve.key] = curve
    main = curves_of(*dict.fromkeys(of_task(run.task, known[run.id]) for run in runs))
    names = dict.fromkeys([*main, *sorted({name for curves in known.values() for name in curves})])
    groups: dict[str, list[str]] = {}
    for name in names:
        if any(name in curves for curves in known.values()):
            groups.setdefault(name if len(runs) > 1 else re.sub(r"\d+$", "", name), []).append(name)
    panels = []
    for stem, metrics in groups.items():
        label, scale = main.get(stem, (stem, 1.0))
        lines = [
            _thin(run.id if len(runs) > 1 else name, look, known[run.id][name], scale, span)
            for look, (run, name) in enumerate((run, name) for run in runs for name in metrics)
            if name in known[run.id]
        ]
        panels.append(DrawnPanel(title="", label=label, log=stem.startswith(figures.LOGARITHMIC), lines=lines))
    return Drawn(panels)


def _reduced(curve: Points, span: Span, most: int) -> tuple[list[int], list[float]]:
    """The points of a span, and the nearest one to each side of it: at most so many."""
    first, last = 0, len(curve.steps)
    if span is not None:
        first = max(bisect.bisect_left(curve.steps, span[0]) - 1, 0)
        last = bisect.bisect_right(curve.steps, span[1]) + 1
    return reduced(curve.steps[first:last], curve.values[first:last], most)


def _thin(name: str, look: int, curve: Points, scale: float, span: Span, *, seed: bool = False) -> Line:
    steps, values = _reduced(curve, span, _BESIDE if seed else _MOST)
    return Line(name=name, look=look, seed=seed, steps=steps, values=[scale * value for value in values])


def of_ladder(
    plan: Plan,
    selected: Mapping[str, RungRuns],
    ledger: Ledger,
    kind: Kind,
    span: Span,
    remember: Remember,
    *,
    seeds: bool,
) -> Drawn:
    """The curves of all rungs as the report draws them: means over the finished seeds. Runs that are running have lines
    of their own, with `seeds` all runs do."""
    own = {rung: one for rung, one in selected.items() if one.of == rung}
    shown = curves_of(form_of(plan.task.metric))
    metrics = _norms_of(own.values(), ledger) if kind == "norms" else list(shown)
    panels: dict[tuple[str, str], DrawnPanel] = {}
    left_out = False
    for look, (rung, one) in enumerate(own.items()):
        ids = [run.id for run in one.counted]

        def means(name: str = f"{rung} (n={len(ids)})", ids: list[str] = ids) -> list[figures.Panel]:
            known = _known(ledger, ids, metrics)
            found = [known.get(run, {}) for run in ids]
            if kind == "norms":
                return [drawing.norm_panel(name, found)] if found else []
            return figures.curve_panels({name: found}, shown)

        for panel in remember((plan.ladder.name, plan.profile, kind, rung, tuple(metrics)), tuple(ids), means):
            for number, curve in enumerate(panel.curves):
                line = _banded(curve, number if kind == "norms" else look, span)
                _add(panels, panel.title, panel.label, panel.log, line)
        if kind == "curves":
            single = [run for run in one.runs if seeds or run.state == "running"]
            left_out |= len(single) > _SINGLE
            single = sorted(single, key=lambda run: run.state != "running")[:_SINGLE]
            for points in ledger.curves([run.id for run in single], metrics):
                seed = next(run.seed for run in single if run.id == points.run)
                label, scale = shown[points.key]
                line = _thin(f"{rung}, seed {seed}", look, points, scale, span, seed=True)
                _add(panels, "", label, points.key.startswith(figures.LOGARITHMIC), line)
    notes = [drawing.NORMS] if kind == "norms" else []
    if any(line.low for panel in panels.values() for line in panel.lines):
        notes.append(figures.BAND)
    if any(line.seed for panel in panels.values() for line in panel.lines):
        most = f", {_SINGLE} of a rung at most" if left_out else ""
        notes.append(f"Thin lines: single seeds{most}.")
    order = [label for label, _ in shown.values()]
    ordered = sorted(panels.values(), key=lambda one: order.index(one.label) if one.label in order else 0)
    return Drawn(ordered if panels else [], notes if panels else [])


def _known(ledger: Ledger, ids: Sequence[str], metrics: Sequence[str]) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Run id -> metric -> its curve."""
    found: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for curve in ledger.curves(ids, metrics):
        found.setdefault(curve.run, {})[curve.key] = list(zip(curve.steps, curve.values, strict=True))
    return found


def _norms_of(rungs: Iterable[RungRuns], ledger: Ledger) -> list[str]:
    names = {name for one in rungs for run in one.counted[:1] for name in ledger.metrics(run.id)}
    return sorted(name for name in names if name.startswith(drawing.NORM))


def _add(panels: dict[tuple[str, str], DrawnPanel], title: str, label: str, log: bool, line: Line) -> None:
    panels.setdefault((title, label), DrawnPanel(title=title, label=label, log=log, lines=[])).lines.append(line)


def _banded(curve: Curve, look: int, span: Span) -> Line:
    band = {step: ends for step, *ends in zip(curve.steps, curve.low, curve.high, strict=True)} if curve.low else {}
    steps, values = _reduced(curve, span, _BESIDE)
    low, high = ([band[step][end] for step in steps] if band else [] for end in (0, 1))
    return Line(name=curve.name, look=look, steps=steps, values=values, low=low, high=high)

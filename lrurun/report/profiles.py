"""Figures of what a score depends on: the slot of a label, the length of a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lrurun.errors import NotFoundError
from lrurun.report import figures
from lrurun.report.figures import Curve, Panel
from lrurun.report.instance_label import label_of
from lrurun.report.ladder_table import LadderReport
from lrurun.report.row_scores import LadderRow, SettingScore, SlotScore

if TYPE_CHECKING:
    from lrurun.report.figure_style import Figure

Score = SettingScore | SlotScore | LadderRow
"""What has a mean over seeds, and its error."""


def slots(report: LadderReport) -> Figure:
    """The test accuracy of every rung at each slot."""
    found = {
        f"{row.rung} (n={row.n})": {one.slot: one for one in row.slots} for row in report.rows if not row.same_as_before
    }
    what = "Slot k has the k-th label of every sequence."
    return _figure(report, found, "slot", "test accuracy [%]", what, scale=100.0, log=False)


def lengths(report: LadderReport, length: int) -> Figure:
    """The test score of every rung at `length`, that of training, and in further tests whose names are lengths."""
    found: dict[str, dict[int, Score]] = {}
    for row in report.rows:
        others = {int(one.setting): one for one in row.settings if one.setting.isdecimal()}
        if others and not row.same_as_before:
            found[f"{row.rung} (n={row.n})"] = {length: row, **others}
    form = report.score
    return _figure(report, found, "length", f"test {form.axis}", "", scale=form.scale, log=True)


def _figure(
    report: LadderReport,
    found: Mapping[str, Mapping[int, Score]],
    across: str,
    label: str,
    what: str,
    *,
    scale: float,
    log: bool,
) -> Figure:
    curves = tuple(_curve(name, scores, scale) for name, scores in found.items())
    if not any(curve.steps for curve in curves):
        of = "labels at slots" if across == "slot" else "further tests named by a number"
        raise NotFoundError(
            f"{report.task}: its runs have no {of}, so there is nothing to draw", "draw --kind ladder instead"
        )
    panel = Panel(label=label, across=across, log_across=log, curves=tuple(curve for curve in curves if curve.steps))
    caption = " ".join(filter(None, [what, figures.BAND, *(f"Note: {note}." for note in report.notes)]))
    return figures.curves([panel], title=label_of(report).title(report.title), caption=caption, height=2.2)


def _curve(name: str, scores: Mapping[int, Score], scale: float) -> Curve:
    known = [(at, scale * one.mean, scale * (one.stderr or 0.0)) for at, one in scores.items() if one.mean is not None]
    known.sort()
    several = any(error for _, _, error in known)
    return Curve(
        name=name,
        steps=tuple(at for at, _, _ in known),
        values=tuple(mean for _, mean, _ in known),
        low=tuple(mean - error for _, mean, error in known) if several else (),
        high=tuple(mean + error for _, mean, error in known) if several else (),
    )

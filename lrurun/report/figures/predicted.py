"""What trained models predict: errors by group of labels, and predictions of examples beside their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from lrurun.data.task import Grouping, Spec, Split
from lrurun.errors import UsageError
from lrurun.judging import statistics
from lrurun.report.figures.figures import Curve, Figure, Panel, Picture, Style, floats

Outputs = Mapping[str, Sequence[np.ndarray]]
"""The name of a line -> the predictions of each of its runs for the same examples, in the shape of the labels."""

MOST_TICKS = 12
"""More groups than these have no names on an axis."""


class GroupErrors(Struct, frozen=True, kw_only=True):
    """The errors in one group of labels."""

    division: str
    """The name of the grouping."""
    group: str
    labels: int
    rates: dict[str, tuple[float, float | None]]
    """Line -> the share of labels that is predicted wrongly, a mean over runs, and its standard error."""


def errors(groupings: Sequence[Grouping], labels: np.ndarray, outputs: Outputs) -> list[GroupErrors]:
    """The errors in every group that has labels; labels below 0 are none."""
    labels, rows = np.asarray(labels), []
    known = labels >= 0
    for grouping in groupings:
        index = np.asarray(grouping.index)[known]
        counts = np.bincount(index, minlength=len(grouping.groups))
        wrong = {
            name: [
                np.bincount(index, weights=np.asarray(predicted)[known] != labels[known], minlength=len(counts))
                for predicted in runs
            ]
            for name, runs in outputs.items()
        }
        for group in np.flatnonzero(counts).tolist():
            shares = {name: [float(of[group] / counts[group]) for of in runs] for name, runs in wrong.items()}
            rates = {name: (float(np.mean(share)), statistics.stderr(share)) for name, share in shares.items()}
            of_group = GroupErrors(
                division=grouping.name, group=grouping.groups[group], labels=int(counts[group]), rates=rates
            )
            rows.append(of_group)
    return rows


def error_texts(rows: Sequence[GroupErrors]) -> tuple[list[str], list[list[str]]]:
    """The headers and the rows of a table of errors, in per cent."""
    names = list(rows[0].rates)
    lines = []
    for row in rows:
        cells = []
        for name in names:
            mean, error = row.rates[name]
            cells.append(f"{100 * mean:.1f}" + ("" if error is None else f" ± {100 * error:.1f}"))
        lines.append([row.division, row.group, f"{row.labels:,}", *cells])
    return ["labels by", "group", "labels", *(f"{name} [%]" for name in names)], lines


def error_figure(rows: Sequence[GroupErrors], *, title: str, caption: str) -> Figure:
    """The errors of each line, a panel for each grouping."""
    panels = []
    for division in dict.fromkeys(row.division for row in rows):
        groups = [row for row in rows if row.division == division]
        numbered = all(row.group.isdecimal() for row in groups)
        positions = [float(row.group) if numbered else float(k) for k, row in enumerate(groups)]
        ticks = (
            () if numbered or len(groups) > MOST_TICKS else zip(positions, (row.group for row in groups), strict=True)
        )
        curves = []
        for name in groups[0].rates:
            means, widths = zip(*((100 * row.rates[name][0], row.rates[name][1]) for row in groups), strict=True)
            ends = zip(means, widths, strict=True) if any(width is not None for width in widths) else ()
            both = [(mean - 100 * (width or 0.0), mean + 100 * (width or 0.0)) for mean, width in ends]
            low, high = zip(*both, strict=True) if both else ((), ())
            style: Style = "marked" if numbered else "points"
            curves.append(Curve(label=name, style=style, x=floats(positions), y=floats(means), low=low, high=high))
        panels.append(Panel(x=division, y="wrong labels [%]", curves=tuple(curves), x_ticks=tuple(ticks)))
    return Figure(panels=tuple(panels), columns=min(2, len(panels)), same_y=True, title=title, caption=caption)


def check_positions(spec: Spec) -> None:
    """Checks that predictions can be drawn over positions.

    Raises:
        UsageError: an example has one label only.
    """
    if spec.output.at == "sequence":
        other = "errors" if spec.output.loss == "cross-entropy" else "curves"
        raise UsageError(f"--kind predictions: an example of {spec.name} has one label", f"draw --kind {other}")


def example_figure(spec: Spec, split: Split, outputs: Outputs, *, title: str, caption: str) -> Figure:
    """The labels of every example of a split, and below them the predictions of the first run of each line.

    Classes of all pixels of an image are drawn as images, from white (class 0) to black, as in Figures 1 and 3 of Gupta
    et al. 2023; other classes and real values over their positions, of several values the first.

    Raises:
        UsageError: see `check_positions`.
    """
    check_positions(spec)
    labels = np.asarray(split.labels)
    side = round(labels.shape[1] ** 0.5)
    is_class = spec.output.loss == "cross-entropy"
    if spec.kind == "features" and is_class and side * side == spec.length == labels.shape[1]:
        rows = {"labels": labels, **{name: runs[0] for name, runs in outputs.items()}}
        panels = [
            _image(name if index == 0 else "", np.asarray(of[index]).reshape(side, side), spec.classes)
            for name, of in rows.items()
            for index in range(len(labels))
        ]
        return Figure(panels=tuple(panels), columns=len(labels), title=title, caption=caption)
    panels = [
        _positions(name if index == 0 else "", labels[index], runs[0][index], is_class, spec.length)
        for name, runs in outputs.items()
        for index in range(len(labels))
    ]
    return Figure(panels=tuple(panels), columns=min(2, len(labels)), same_y=is_class, title=title, caption=caption)


def _image(name: str, classes: np.ndarray, levels: int) -> Panel:
    x, y = floats(range(classes.shape[1])), floats(-k for k in range(len(classes)))
    return Panel(x="", y=name, picture=Picture(x=x, y=y, z=tuple(map(floats, classes)), levels=levels))


def _positions(name: str, labels: np.ndarray, predicted: np.ndarray, is_class: bool, length: int) -> Panel:
    """One example: labels as rings, predictions as crosses; of real values as lines. The last label is at the end."""
    first = length - len(labels)
    labels, predicted = (np.asarray(part).reshape(len(part), -1)[:, 0] for part in (labels, predicted))
    positions = np.flatnonzero(labels >= 0 if is_class else ~np.isnan(labels))
    styles: tuple[Style, Style] = ("rings", "crosses") if is_class else ("dashed", "thin")
    curves = (
        Curve(label=label, style=style, x=floats(first + positions), y=floats(values[positions]), grey=label == "label")
        for label, values, style in zip(("label", "prediction"), (labels, predicted), styles, strict=True)
    )
    return Panel(x="position", y="class" if is_class else "value", title=name, curves=tuple(curves))

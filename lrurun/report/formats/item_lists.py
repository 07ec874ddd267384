"""The numbers of a figure of test items, as JSON and CSV."""

from __future__ import annotations

import csv
import io
from typing import ClassVar

import numpy as np
from msgspec import Struct

from lrurun.config.instance import Instance
from lrurun.judging.rung_runs import Note
from lrurun.report.figures.compared_items import ComparedItems, ItemComparison, RungItems
from lrurun.report.formats import as_json
from lrurun.report.formats.as_csv import cell


class ItemSide(Struct, frozen=True, kw_only=True):
    """The runs of a rung."""

    rung: str
    n: int
    runs: tuple[str, ...]


class ComparedItem(Struct, frozen=True, kw_only=True):
    """The means over seeds of one item."""

    item: int
    """Its place in the test set, from 0 on."""
    group: int | None
    weight: float
    mean: float
    other_mean: float
    difference: float


class ItemsOfPair(Struct, frozen=True, kw_only=True):
    """Two rungs on the items of their test set."""

    rung: str
    other: str
    sides: tuple[ItemSide, ItemSide]
    test_items: int
    better: int
    worse: int
    equal: int
    by_seeds_alone: float
    """The mean number of items that would be better, and that would be worse, if the rungs were alike."""
    items: tuple[ComparedItem, ...]
    """From the largest gain to the largest loss."""


class ItemsDocument(Struct, frozen=True, kw_only=True):
    """The numbers of a figure of items."""

    flat: ClassVar[str] = "task ladder profile instance label"
    instance: Instance
    metric: str
    """The name of the score."""
    comparisons: tuple[ItemsOfPair, ...]
    notes: tuple[Note, ...]


def document(compared: ComparedItems) -> ItemsDocument:
    """The numbers of the figure."""
    return ItemsDocument(
        instance=compared.instance,
        metric=compared.result,
        comparisons=tuple(map(_of_pair, compared.comparisons)),
        notes=compared.notes,
    )


def _of_pair(pair: ItemComparison) -> ItemsOfPair:
    test_set = pair.rung.test_set
    columns = [
        np.arange(test_set.count) if test_set.groups is None else test_set.groups,
        np.ones(test_set.count) if test_set.weights is None else test_set.weights,
        *pair.means,
        pair.means[0] - pair.means[1],
    ]
    # of equal gains, in the order of the test set; those without a finite one last
    order = np.argsort(-pair.gains, kind="stable")
    lists = [column[order].tolist() for column in columns]
    return ItemsOfPair(
        rung=pair.rung.rung,
        other=pair.other.rung,
        sides=(_side(pair.rung), _side(pair.other)),
        test_items=test_set.count,
        better=pair.better,
        worse=pair.worse,
        equal=pair.equal,
        by_seeds_alone=pair.changed_by_seeds,
        items=tuple(
            ComparedItem(
                item=item,
                group=None if test_set.groups is None else group,
                weight=weight,
                mean=mean,
                other_mean=other,
                difference=difference,
            )
            for item, group, weight, mean, other, difference in zip(order.tolist(), *lists, strict=True)
        ),
    )


def _side(side: RungItems) -> ItemSide:
    return ItemSide(rung=side.rung, n=len(side.runs), runs=side.runs)


def text(compared: ComparedItems, suffix: str) -> str:
    """The numbers of the figure as the text of a .json or a .csv file, which has a line for each item."""
    found = document(compared)
    if suffix == ".json":
        return f"{as_json.render(found)}\n"
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    fields = ComparedItem.__struct_fields__
    writer.writerow(["metric", "rung", "other", *fields])
    for pair in found.comparisons:
        head = [cell(name) for name in (found.metric, pair.rung, pair.other)]
        rows = ([as_json.finite(getattr(item, name)) for name in fields] for item in pair.items)
        writer.writerows([*head, *map(cell, row)] for row in rows)
    return lines.getvalue()

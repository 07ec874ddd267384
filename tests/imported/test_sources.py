"""Which curves are read before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pytest

from lrurun.imported import sources
from lrurun.imported.sources import OpenedSource
from lrurun.trackers import TrackedRun
from tests.harness.tracked_runs import table, tracked

CHOICE = {"metric_for_choice": "val_acc"}


class Reader:
    """A reader that notes which curves were asked for."""

    name = title = "mlflow"

    def __init__(self, tells_ends: bool) -> None:
        self.asked: list[list[str]] = []
        if tells_ends:
            self.tells_ends = True

    def runs(self, curves: Collection[str] | None = ()) -> Iterator[TrackedRun]:
        assert curves is not None
        self.asked.append(list(curves))
        known = {name: [(1, 0.5)] for name in curves}
        yield tracked(curves=known, last={"test_acc": 0.5, "val_acc": 0.5}, last_step=1, ends={})

    def notes(self) -> list[str]:
        return []

    def version(self) -> str:
        return ""


def opened(tells_ends: bool) -> list[OpenedSource]:
    return [OpenedSource(name="x", tracker="mlflow", reader=Reader(tells_ends))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tells_ends", "fields", "for_steps", "needed"),
    [
        (True, {}, None, []),
        (True, CHOICE, None, []),
        (True, {}, "val_acc", ["test_acc", "val_acc"]),
        (True, {"at": 5}, None, ["test_acc"]),
        (True, {"at": "best", **CHOICE}, None, ["test_acc", "val_acc"]),
        (True, {"protocol": "best-of-test"}, None, ["test_acc"]),
        (False, {}, None, ["test_acc"]),
        (False, {}, "val_acc", ["test_acc", "val_acc"]),
    ],
)
def test_curves_are_read_where_scores_need_them(
    tells_ends: bool, fields: dict[str, Any], for_steps: str | None, needed: list[str]
) -> None:
    source = opened(tells_ends)
    assert sources.needed(table(**fields), source, [for_steps] if for_steps else []) == needed
    read = sources.read(source, [])
    assert [list(run.curves) for run, _ in sources.with_curves(read, source, needed)] == [needed]
    assert source[0].reader.asked == [[], *([needed] if needed else [])]  # type: ignore[attr-defined]

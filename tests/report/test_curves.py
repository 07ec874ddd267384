"""Curves of many runs, and their reduction."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import event

from lrurun.ledger import reading
from lrurun.ledger.ledger import Ledger
from lrurun.report.figures.curves import average, kept, reduced
from tests.harness.stores import key, ledger, on_file, path, take, want

__all__ = ["key", "ledger", "path"]  # fixtures


def test_curves_of_many_runs_are_those_of_each(ledger: Ledger, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CURVES_AT_ONCE", 3)
    ledger.enqueue(key, [want(seed=seed, position=seed) for seed in range(8)])
    held_runs = [take(ledger, key) for _ in range(8)]
    for k, held in enumerate(held_runs[:6]):
        rows = [(step, "train/loss", k + 1 / step) for step in (1, 2, 10)]
        rows += [(2, "val/accuracy", math.nan), (10, "val/accuracy", math.inf)] if k % 2 else []
        ledger.record(held, rows, 10)
    ids = [held.run.id for held in reversed(held_runs)]
    found = list(ledger.curves([*ids, "none"]))
    expected = [(run, key, curve) for run in ids for key, curve in ledger.metrics(run).items()]
    assert [(one.run, one.key) for one in found] == [(run, key) for run, key, _ in expected]
    assert len(found) == 9
    for curve, (_, _, points) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.array(points)[:, 0], curve.steps)
        np.testing.assert_array_equal(np.array(points)[:, 1], curve.values)
    with pytest.raises(TypeError):
        found[0].values[0] = 1.0
    assert repr(found[0]).endswith("key='train/loss', points=3, steps 1 to 10, last value 5.1)")
    assert [one.key for one in ledger.curves(ids, ["val/accuracy", "none"])] == ["val/accuracy"] * 3
    assert ledger.metric_names() == ["train/loss", "val/accuracy"]
    assert ledger.metric_names([ids[-1], "none"]) == ["train/loss"]
    assert ledger.metric_names(ids[:2]) == []
    assert ledger.metric_names([]) == []


@on_file  # PostgreSQL scans small tables whatever their indexes
def test_curves_are_read_without_the_rows_of_other_runs_and_keys(ledger: Ledger, key: str, path: Path) -> None:
    run = ledger.enqueue(key, [want()])[0].id
    ledger.record(take(ledger, key), [(1, "train/loss", 1.0)], 1)
    asked: list[tuple[str, object]] = []
    event.listen(ledger.database.engine, "before_cursor_execute", lambda *words: asked.append(words[2:4]))
    list(ledger.curves([run], ["train/loss"]))
    ledger.metric_names([run])
    with ledger._reading() as connection:
        plans = [
            step.detail
            for one, values in [pair for pair in asked if pair[0].startswith("SELECT")]
            for step in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {one}", values)
        ]
    assert [plan for plan in plans if "metrics USING PRIMARY KEY (run=? AND key=?)" in plan]
    assert [plan for plan in plans if re.search(r"SCAN (metrics|stored_runs)|TEMP B-TREE", plan)] == []


@pytest.mark.parametrize("points", [4, 5, 100])
@pytest.mark.parametrize("odd", [0, 50])
def test_reduced_curves_keep_their_extremes(points: int, odd: int) -> None:
    random = np.random.default_rng(points + odd)
    steps = np.cumsum(random.integers(1, 50, 10_000))
    values = random.standard_normal(10_000)
    values[random.choice(10_000, odd, replace=False)] = math.nan
    places = kept(memoryview(steps), memoryview(values), points)
    assert 4 <= len(places) <= points
    assert list(places) == sorted(set(places))
    assert (places[0], places[-1]) == (0, 9_999)
    height = values[places]
    assert (np.nanmin(height), np.nanmax(height)) == (np.nanmin(values), np.nanmax(values))
    assert np.isnan(height).any() == (odd > 0 and points > 4)


def test_a_reduced_mean_keeps_its_band() -> None:
    curve = average("x", [[(step, step / 10_000 + seed) for step in range(1, 10_001)] for seed in (0, 2)])
    thin = reduced(curve, 300)
    assert 150 < len(thin.x) == len(thin.y) == len(thin.low) == len(thin.high) <= 300
    assert (thin.x[-1], thin.y[-1], thin.low[-1], thin.high[-1]) == (10_000, 2.0, 1.0, 3.0)
    assert reduced(thin, 300) == thin


def test_short_curves_stay_and_infinities_are_kept() -> None:
    assert list(kept([1, 2, 9], [0.1, math.inf, 0.2], 4)) == [0, 1, 2]
    values = [math.inf] * 50 + [1.0] * 50
    assert [values[k] for k in kept(range(100), values, 20)].count(math.inf) >= 3
    with pytest.raises(ValueError, match="at least 4"):
        kept([1], [1.0], 3)

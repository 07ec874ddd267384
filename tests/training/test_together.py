"""Runs that are trained together are those that are trained alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

import jax
import msgspec
import numpy as np
import pytest

from lrurun.data.task import Data
from lrurun.training.events import Ended, Event, Measured, Reached, Snapshot, Spectrum
from lrurun.training.loop import train, train_together
from tests.harness.toy import EXECUTION, config, data, history, leaves

__all__ = ["data"]  # a fixture


def by_member(events: list[Event], members: int) -> list[list[Event]]:
    return [[event for event in events if event.member == member] for member in range(members)]


def assert_near(packed: list[Event], alone: list[Event]) -> None:
    """The same events, and numbers that differ by no more than float32 sums in another order."""
    # a row comes before or after the boundary that it belongs to, as the clock has it
    kinds = [sorted((event.step, type(event).__name__) for event in events) for events in (packed, alone)]
    assert kinds[0] == kinds[1]
    one, two = history(packed), history(alone)
    assert one.keys() == two.keys()
    for key, value in one.items():
        # accuracies move by whole examples where two logits are as good as equal
        assert value == pytest.approx(two[key], rel=1e-3, abs=1e-4 if "loss" in key[1] else 0.05), key
    (*_, ended), (*_, last) = packed, alone
    assert isinstance(ended, Ended)
    assert isinstance(last, Ended)
    for left, right in zip(leaves(ended.snapshot), leaves(last.snapshot), strict=True):
        np.testing.assert_allclose(left, right, rtol=2e-3, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("feed", ["device", pytest.param("stream", marks=pytest.mark.slow)])
def test_runs_trained_together_are_those_trained_alone(feed: str, data: Data) -> None:
    execution = msgspec.structs.replace(EXECUTION, feed=feed)
    configs = [config(seed=seed) for seed in (0, 1, 4)]
    together = by_member(list(train_together(configs, execution, data)), 3)
    for packed, run in zip(together, configs, strict=True):
        assert_near(packed, list(train(run, execution, data)))
    ends = [leaves(events[-1].snapshot) for events in together]  # type: ignore[union-attr]
    assert not np.allclose(ends[0][1], ends[1][1])  # and not the same run thrice


@pytest.mark.slow
def test_a_run_may_leave_those_it_was_trained_with(data: Data) -> None:
    """Stopped together, it goes on alone; and those that were stopped alone go on together."""
    configs = [config(seed=seed) for seed in (0, 1)]
    whole = [list(train(run, EXECUTION, data)) for run in configs]

    def stopped(events: Iterator[Event], members: int) -> list[Snapshot]:
        found = []
        for event in events:
            if isinstance(event, Reached) and event.step == 9:
                found.append(event.snapshot())
                if len(found) == members:
                    break
        return found

    packed = stopped(train_together(configs, EXECUTION, data), 2)
    second = list(train(configs[1], EXECUTION, data, resume=packed[1]))
    np.testing.assert_allclose(second[-1].result["val/loss"], whole[1][-1].result["val/loss"], rtol=1e-3)  # type: ignore[union-attr]
    alone = [stopped(train(run, EXECUTION, data), 1)[0] for run in configs]
    events = by_member(list(train_together(configs, EXECUTION, data, resume=alone)), 2)
    for packed_events, of_run in zip(events, whole, strict=True):
        after = [e for e in of_run if e.step > 9 or isinstance(e, Ended)]
        assert_near([e for e in packed_events if e.step > 9 or isinstance(e, Ended)], after)


@pytest.mark.slow
def test_one_that_diverges_leaves_the_others_alone(data: Data) -> None:
    configs = [config(seed=seed) for seed in (0, 1)]
    starts = [next(e for e in train(run, EXECUTION, data) if isinstance(e, Reached)) for run in configs]
    good, bad = (start.snapshot() for start in starts)
    broken = jax.tree.map(lambda leaf: leaf * np.nan, bad.live.params)
    bad = msgspec.structs.replace(bad, live=bad.live._replace(params=broken))
    one, two = by_member(list(train_together(configs, EXECUTION, data, resume=[good, bad])), 2)
    assert_near(one, list(train(configs[0], EXECUTION, data, resume=good)))
    *_, nan, spectrum, ended = two
    assert isinstance(spectrum, Spectrum)
    assert np.isnan(spectrum.layers[0]).all()
    assert isinstance(ended, Ended)
    assert (ended.state, ended.step) == ("diverged", good.step + 1)
    assert isinstance(nan, Measured)
    assert nan.step == good.step + 1
    assert math.isnan(nan.values["train/loss"])


def test_only_runs_of_one_program_are_trained_together(data: Data) -> None:
    with pytest.raises(ValueError, match="differ only in seed and learning rate"):
        next(iter(train_together([config(), config(dropout=0.5)], EXECUTION, data)))

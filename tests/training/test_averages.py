"""Averages of parameters: against their formula in float64, and that they are what is evaluated, kept and read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from msgspec import structs

from lrurun.config.fingerprint import fingerprint
from lrurun.config.schema import RunConfig
from lrurun.data.task import Data
from lrurun.errors import LrurunError
from lrurun.nn.spectra import eigenvalues
from lrurun.training import checkpoints, feed
from lrurun.training.compiled import Compiled, Evaluated, compiled_for
from lrurun.training.evaluation import evaluate
from lrurun.training.events import Ended, Event, Reached, Snapshot, Spectrum
from lrurun.training.loop import train, train_together
from tests.harness.toy import EXECUTION, assert_same, config, data, history

__all__ = ["data"]  # a fixture


def averaged(decay: float = 0.9, **changes: Any) -> RunConfig:
    run = config(**changes)
    return structs.replace(run, optim=structs.replace(run.optim, average="ema", average_decay=decay))


@pytest.fixture(scope="module")
def events(data: Data) -> list[Event]:
    return list(train(averaged(), EXECUTION, data))


def end(events: list[Event]) -> Ended:
    ended = events[-1]
    assert isinstance(ended, Ended)
    return ended


def test_averages_are_those_of_the_formula(data: Data) -> None:
    """From a copy of the initial values on: until step 9 of a decay of 0.5, shares of (1 + t) / (10 + t) are kept."""
    run = averaged(0.5)
    compiled = compiled_for(run, EXECUTION, data)
    seeds, batches = np.array([3, 4], np.uint32), feed.Batches(3, 8, 50)
    states = compiled.init(run.model, seeds)
    arrays = feed.to_devices(data.train, compiled.placement.everywhere)
    expected: list[Any] = [None, None]
    shares = []
    for step in range(13):
        indices = np.zeros((2, compiled.rows, 8), np.int32)
        indices[:, 0] = batches(step)
        for number, state in enumerate(compiled.on_host(states)):
            trained = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), Evaluated(state.params, state.stats))
            if step == 0:
                assert state.average is not None
                jax.tree.map(np.testing.assert_array_equal, tuple(state.average), tuple(trained))
                expected[number] = trained
                continue
            share = min(0.5, (1 + step) / (10 + step))
            shares.append(share)
            expected[number] = jax.tree.map(
                lambda old, new, share=share: share * old + (1 - share) * new, expected[number], trained
            )
            jax.tree.map(
                lambda found, value: np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6),
                tuple(state.average or ()),
                tuple(expected[number]),
            )
        rates = np.full((2, compiled.rows), 0.05, np.float32)
        states, _ = compiled.dispatch(states, seeds, indices, rates, np.bool_(False), np.int32(1), arrays)
    assert shares[0] < shares[6] < shares[-1] == 0.5


def test_training_itself_is_that_without_an_average(events: list[Event], data: Data) -> None:
    plain = end(list(train(config(), EXECUTION, data))).snapshot
    live = end(events).snapshot.live
    assert live.average is not None
    for found, expected in zip(jax.tree.leaves(live._replace(average=None)), jax.tree.leaves(plain.live), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    distances = jax.tree.map(lambda one, other: np.abs(one - other).max(), live.average.params, live.params)
    assert max(jax.tree.leaves(distances)) > 1e-3


def test_averages_are_evaluated_kept_and_tested(events: list[Event], data: Data) -> None:
    compiled, ended, rows = compiled_for(averaged(), EXECUTION, data), end(events), history(events)
    live, best = ended.snapshot.live, ended.snapshot.best
    assert live.average is not None
    scores = {}
    for name, evaluated in {"live": Evaluated(live.params, live.stats), "average": live.average, "best": best}.items():
        [found] = evaluate(compiled, compiled.on_device([evaluated]), data.validation, 8, data.metrics)
        scores[name] = found.scores["loss"]
    assert rows[23, "val/loss"] == scores["average"] != scores["live"]
    assert ended.result["val/loss"] == scores["best"] == rows[ended.snapshot.best_step, "val/loss"]
    [test] = evaluate(compiled, compiled.on_device([best]), data.test, 8, data.metrics)
    assert ended.result["test/accuracy"] == test.scores["accuracy"]
    if ended.snapshot.best_step == 23:
        jax.tree.map(np.testing.assert_array_equal, tuple(best), tuple(live.average))


def test_spectra_are_those_of_averages(events: list[Event], data: Data) -> None:
    last = [event for event in events if isinstance(event, Spectrum)][-1]
    live, recurrence = end(events).snapshot.live, compiled_for(averaged(), EXECUTION, data).model.recurrence
    assert live.average is not None
    of_average, of_live = (eigenvalues(recurrence, params) for params in (live.average.params, live.params))
    assert of_average is not None
    assert of_live is not None
    np.testing.assert_array_equal(last.layers[0], of_average[0])
    assert np.abs(last.layers[0] - of_live[0]).max() > 1e-4


def test_checkpoints_hold_both(events: list[Event], data: Data, tmp_path: Path) -> None:
    name = fingerprint(averaged())
    checkpoints.save(tmp_path / "saved", stopped(train(averaged(), EXECUTION, data), 12), name)
    saved = checkpoints.arrays(tmp_path / "saved", name)
    of_average = {key for key in saved if key.startswith("['average']")}
    assert {key.removeprefix("['average'].params") for key in of_average} >= {
        key.removeprefix("['params']") for key in saved if key.startswith("['params']")
    }
    assert "['average'].stats['blocks']['0']['norm']['mean']" in of_average
    restored = checkpoints.restore(tmp_path / "saved", compiled_for(averaged(), EXECUTION, data), name)
    again = list(train(averaged(), EXECUTION, data, resume=restored))
    assert_same(end(again).snapshot, end(events).snapshot)
    assert history(again).items() <= history(events).items()
    # a run without averages has no such arrays, and cannot continue from a checkpoint that has them, or lacks them
    with pytest.raises(LrurunError, match=r"live\['average'\].*: expected no such array, found float32"):
        checkpoints.restore(tmp_path / "saved", compiled_for(config(), EXECUTION, data), name)
    snapshot = structs.replace(end(events).snapshot, live=restored.live._replace(average=None))
    checkpoints.save(tmp_path / "without", snapshot, name)
    assert not any("average" in key for key in checkpoints.arrays(tmp_path / "without", name))
    with pytest.raises(LrurunError, match=r"live\['average'\].*: expected float32 .*, found no such array"):
        checkpoints.restore(tmp_path / "without", compiled_for(averaged(), EXECUTION, data), name)


def stopped(events: Any, step: int) -> Snapshot:
    return next(event for event in events if isinstance(event, Reached) and event.step == step).snapshot()


@pytest.mark.parametrize("step", [5, 12])
def test_an_average_that_is_not_finite_is_never_chosen(step: int, events: list[Event], data: Data) -> None:
    """Its scores are NaN. What was chosen before stays; the run, whose losses are finite, does not diverge."""
    snapshot = stopped(train(averaged(), EXECUTION, data), step)
    average = snapshot.live.average
    assert average is not None
    broken = average._replace(params=jax.tree.map(lambda leaf: np.where(leaf > 0, np.inf, leaf), average.params))
    resumed = structs.replace(snapshot, live=snapshot.live._replace(average=broken))
    after = list(train(averaged(), EXECUTION, data, resume=resumed))
    ended, rows = end(after), history(after)
    assert ended.state == "done"
    assert all(math.isnan(rows[at, "val/loss"]) for at in (9, 18, 23) if at > step)
    assert math.isfinite(rows[23, "train/loss"])
    assert ended.snapshot.best_step == snapshot.best_step
    if step == 5:
        assert "best_step" not in ended.result
        assert math.isnan(ended.result["val/loss"])
        assert math.isnan(ended.result["test/accuracy"])
    else:
        assert ended.result["best_step"] == 9
        assert ended.result["val/loss"] == history(events)[9, "val/loss"]
        assert_same(
            structs.replace(ended.snapshot, live=snapshot.live), structs.replace(snapshot, step=ended.snapshot.step)
        )


def test_divergence_is_that_of_training(data: Data) -> None:
    """Not that of the average, which is finite for longer, or for ever."""
    snapshot = stopped(train(averaged(), EXECUTION, data), 12)
    broken = jax.tree.map(lambda leaf: leaf * np.nan, snapshot.live.params)
    resumed = structs.replace(snapshot, live=snapshot.live._replace(params=broken))
    ended = end(list(train(averaged(), EXECUTION, data, resume=resumed)))
    assert (ended.state, ended.step) == ("diverged", 13)
    assert ended.snapshot.best_step == 9


def test_memory_of_averages_is_that_of_the_parameters_and_statistics(data: Data) -> None:
    def size(run: RunConfig) -> int:
        shapes = Compiled(run, EXECUTION, data.spec).vector_shapes
        return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))

    compiled = compiled_for(config(), EXECUTION, data)
    statistics = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(compiled.vector_shapes.stats))
    assert size(averaged()) - size(config()) == compiled.parameters + statistics


@pytest.mark.slow
def test_runs_trained_together_have_their_own_averages(data: Data) -> None:
    runs = [averaged(seed=seed) for seed in (3, 4)]
    together = [event for event in train_together(runs, EXECUTION, data) if isinstance(event, Ended)]
    for ended, run in zip(together, runs, strict=True):
        alone = end(list(train(run, EXECUTION, data))).snapshot
        for found, expected in zip(
            jax.tree.leaves(ended.snapshot.live.average), jax.tree.leaves(alone.live.average), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4)

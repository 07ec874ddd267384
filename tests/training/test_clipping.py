"""Clipping against its formulas in float64 and optax's own transformations; gradients that are zero or not finite."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from msgspec import structs

from lrurun.config.optimizers import OptimConfig
from lrurun.config.optimizers.adamw import AdamW
from lrurun.data.task import Data
from lrurun.training.clipping import clipped
from lrurun.training.events import Ended, Snapshot
from lrurun.training.layout import Layout
from lrurun.training.loop import train
from tests.harness.toy import EXECUTION, config, data, history, leaves

__all__ = ["data"]  # a fixture

SHAPES = {"a": (3, 2), "b": (), "c": (4,)}
LAYOUT = Layout(
    {name: jax.ShapeDtypeStruct(shape, np.float32) for name, shape in SHAPES.items()},
    {"a": "regular", "b": "recurrent", "c": "recurrent"},
)


def settings(**changes: Any) -> OptimConfig:
    return AdamW(lr=0.01, recurrent_factor=0.5, weight_decay=0.05, **changes)


def gradient(scale: float = 1.0) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    sizes = {"a": 1.0, "b": 300.0, "c": 0.01}
    return {
        name: np.asarray(scale * sizes[name] * draw.normal(size=shape), np.float32) for name, shape in SHAPES.items()
    }


def after(tree: dict[str, np.ndarray], **changes: Any) -> dict[str, np.ndarray]:
    """The gradient after clipping, as the compiled function has it."""
    config = settings(**changes)
    function = jax.jit(lambda vector: clipped(vector, config, LAYOUT, LAYOUT.starts()))
    found: dict[str, np.ndarray] = LAYOUT.tree(np.asarray(function(LAYOUT.vector(tree))))
    return found


def norm(tree: dict[str, np.ndarray]) -> float:
    return math.sqrt(sum(float(np.sum(np.square(leaf, dtype=np.float64))) for leaf in tree.values()))


@pytest.mark.parametrize("clip", [1e-3, 1.0, 30.0, 1e3])
def test_the_norm_of_all_parameters_together_is_clipped(clip: float) -> None:
    before = gradient()
    factor = min(1.0, clip / norm(before))
    assert (factor == 1.0) == (clip == 1e3)
    found = after(before, clip=clip)
    library, _ = optax.clip_by_global_norm(clip).update(before, optax.EmptyState())
    for name, leaf in before.items():
        np.testing.assert_allclose(found[name], leaf.astype(np.float64) * factor, rtol=1e-6)
        np.testing.assert_allclose(found[name], library[name], rtol=1e-6)
    if factor == 1.0:
        jax.tree.map(np.testing.assert_array_equal, found, before)


@pytest.mark.parametrize("clip", [1e-3, 1.0, 1e3])
def test_each_array_is_clipped_alone_by_its_root_mean_square(clip: float) -> None:
    before = gradient()
    found = after(before, clip=clip, clip_by="block-rms")
    library, _ = optax.clip_by_block_rms(clip).update(before, optax.EmptyState())
    factors = set()
    for name, leaf in before.items():
        factor = min(1.0, clip / math.sqrt(np.mean(np.square(leaf, dtype=np.float64))))
        factors.add(factor)
        np.testing.assert_allclose(found[name], leaf.astype(np.float64) * factor, rtol=1e-6)
        np.testing.assert_allclose(found[name], library[name], rtol=1e-6)
    assert len(factors) == {1e-3: 3, 1.0: 2, 1e3: 1}[clip]


@pytest.mark.parametrize("clip_by", ["global-norm", "block-rms"])
def test_a_zero_gradient_stays_zero(clip_by: str) -> None:
    zero = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    jax.tree.map(np.testing.assert_array_equal, after(zero, clip=0.1, clip_by=clip_by), zero)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("clip_by", ["global-norm", "block-rms"])
def test_a_gradient_that_is_not_finite_never_becomes_finite(clip_by: str, bad: float) -> None:
    before = gradient()
    before["a"][1, 1] = bad
    found = after(before, clip=0.1, clip_by=clip_by)
    assert np.isnan(found["a"][1, 1])
    others = [found["a"][0, 0]] + ([found["b"], found["c"][0]] if clip_by == "global-norm" else [])
    assert np.isnan(others).all()
    if clip_by == "block-rms":
        unharmed = after(gradient(), clip=0.1, clip_by=clip_by)
        np.testing.assert_array_equal(found["c"], unharmed["c"])


@pytest.mark.parametrize("clip_by", ["global-norm", "block-rms"])
def test_a_gradient_whose_squares_overflow_keeps_its_direction(clip_by: str) -> None:
    """The numbers are finite, their norm in float32 is not: with optax alone, zero would be left of it."""
    found, small = (after(gradient(scale), clip=0.1, clip_by=clip_by) for scale in (1e30, 1e3))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=2e-6), found, small)


def clipping(clip: float, **changes: Any) -> Any:
    run = config()
    return structs.replace(run, optim=structs.replace(run.optim, clip=clip, **changes))


def test_training_clips_what_the_optimiser_takes(data: Data) -> None:
    """A clip that is never reached changes nothing but the order of float32 sums; others bound the first moments, which
    are averages of clipped gradients, without the decay of the weights."""
    snapshots = []
    for run in (config(), clipping(1e6), clipping(1e-3), clipping(1e-3, clip_by="block-rms")):
        ended = list(train(run, EXECUTION, data))[-1]
        assert isinstance(ended, Ended)
        snapshots.append(ended.snapshot)
    plain, loose, tight, blocks = snapshots
    for left, right in zip(leaves(loose), leaves(plain), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-6)
    assert size_of_moments(tight) < 1e-3 < size_of_moments(plain)
    for leaf in jax.tree.leaves(blocks.live.moments.mu):
        assert math.sqrt(np.mean(np.square(leaf, dtype=np.float64))) < 1e-3


def size_of_moments(snapshot: Snapshot) -> float:
    """The norm of the first moments of all parameters."""
    return norm(dict(enumerate(jax.tree.leaves(snapshot.live.moments.mu))))  # type: ignore[arg-type]


def test_a_run_whose_gradient_is_not_finite_diverges(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the step after the gradient: its own loss is finite."""
    from lrurun.training import compiled

    def poisoned(gradient: Any, *rest: Any) -> Any:
        return clipped(gradient.at[0].set(jnp.inf), *rest)

    monkeypatch.setattr(compiled, "clipped", poisoned)
    monkeypatch.setattr(compiled, "_CACHE", type(compiled._CACHE)())
    events = list(train(clipping(0.5), EXECUTION, data))
    ended = events[-1]
    assert isinstance(ended, Ended)
    assert (ended.state, ended.step) == ("diverged", 2)
    assert math.isnan(history(events)[2, "train/loss"])

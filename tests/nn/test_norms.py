"""Lengths of recurrent states: against loops in float64, and as training records them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.config.recurrences.lru import LRURecurrence
from lrurun.config.recurrences.rnn import RNNRecurrence
from lrurun.config.schema import ModelConfig
from lrurun.data.task import Data, Spec
from lrurun.nn.network import Model
from lrurun.training.events import Measured
from lrurun.training.loop import train, train_together
from tests.harness.toy import EXECUTION, config, data

__all__ = ["data"]  # a fixture

KINDS: dict[str, Any] = {
    "tanh": RNNRecurrence(activation="tanh"),
    "diagonal": LRURecurrence(r_min=0.5, r_max=0.9),
    "normalised": LRURecurrence(r_min=0.9, r_max=0.999, normalize=True, phase="log", max_phase=0.3),
}


def states(kind: str, params: dict[str, Any], u: np.ndarray) -> np.ndarray:
    """(B, T, N), complex where the recurrence is, of inputs (B, T, H), from the published formulas."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    if kind == "tanh":
        x, found = np.zeros((len(u), len(p["A"]))), []
        for k in range(u.shape[1]):
            x = np.tanh(x @ p["A"].T + u[:, k] @ p["B"].T)
            found.append(x)
        return np.stack(found, 1)
    theta = np.exp(p["theta_log"]) if "theta_log" in p else p["theta"]
    lam = np.exp(-np.exp(p["nu_log"]) + 1j * theta)
    b = (p["B_re"] + 1j * p["B_im"]) * np.exp(p.get("gamma_log", np.zeros(len(lam))))[:, None]
    x, found = np.zeros((len(u), len(lam)), complex), []
    for k in range(u.shape[1]):
        x = lam * x + u[:, k] @ b.T
        found.append(x)
    return np.stack(found, 1)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        pytest.param(kind, shape, marks=() if kind == usual else pytest.mark.rare)
        for shape, usual in (("full", "tanh"), ("lengths", "diagonal"), ("both ways", "normalised"), ("pairs", "tanh"))
        for kind in KINDS
    ],
)
def test_norms_are_those_of_a_loop_in_float64(kind, shape, strict) -> None:
    pair = shape == "pairs"
    model = Model(
        ModelConfig(recurrence=KINDS[kind], depth=2, width=6, state=5, bidirectional=shape == "both ways"),
        Spec(name="toy", kind="features", features=1, classes=2, length=24, scale=0.25, pair=pair),
        remat=shape == "full",
    )
    params, stats = jax.jit(model.init)(jax.random.key(1))
    # a closed gate hands the encoder's outputs on to the second layer as they are
    params["blocks"]["0"]["gate"]["bias"] = jnp.full(6, -1e4, jnp.float32)
    draw = np.random.RandomState(0)
    inputs = draw.randint(0, 9, (4, 2, 24) if pair else (8, 24)).astype(np.uint8)
    lengths = None if shape == "full" else draw.randint(1, 25, inputs.shape[:-1]).astype(np.int32)
    counted = np.arange(len(inputs)) != 1
    arrays = jnp.asarray(inputs), None if lengths is None else jnp.asarray(lengths)
    evaluate = jax.jit(model.evaluate)
    logits, found = evaluate(params, stats, *arrays, counted)
    applied, _ = jax.jit(model.apply, static_argnames="train")(params, stats, *arrays, train=False)
    np.testing.assert_allclose(logits, applied, rtol=1e-5)
    assert not evaluate(params, stats, *arrays, np.zeros_like(counted))[1].any()

    rows = inputs.reshape(8, 24)
    ends = np.full(8, 24) if lengths is None else lengths.reshape(8)
    ends = np.where(np.repeat(counted, 8 // len(counted)), ends, 0)
    kernel = np.asarray(params["encoder"]["kernel"], np.float64)
    u = rows[..., None] * 0.25 @ kernel / np.sqrt(1 + 1e-5)
    for layer in range(2):
        x = states(kind, params["blocks"][str(layer)]["recurrence"], u)
        norms = np.sqrt((np.abs(x) ** 2).sum(-1))
        expected = np.mean(np.concatenate([norms[row, :end] for row, end in enumerate(ends)]))
        assert float(found[layer]) == pytest.approx(expected, rel=2e-6)


def test_every_evaluation_records_them_on_the_first_validation_batch(data: Data) -> None:
    settings = config()
    events = list(train(settings, EXECUTION, data))
    measured = [e for e in events if isinstance(e, Measured)]
    rows = {e.step: e.values for e in measured if "norm/layer0" in e.values}
    assert list(rows) == [9, 18, 23] == [e.step for e in measured if "val/accuracy" in e.values]
    live = events[-1].snapshot.live  # type: ignore[union-attr]
    split = data.validation
    assert split.lengths is not None
    model = Model(settings.model, data.spec, backend="sequential")
    _, [last] = jax.jit(model.evaluate)(
        live.params, live.stats, jnp.asarray(split.inputs[:8]), jnp.asarray(split.lengths[:8]), np.ones(8, bool)
    )
    assert rows[23]["norm/layer0"] == pytest.approx(float(last), rel=1e-6)


@pytest.mark.slow
def test_runs_trained_together_have_the_norms_of_those_trained_alone(data: Data) -> None:
    configs = [config(seed=seed, lr=lr) for seed, lr in ((3, 0.01), (4, 0.02))]
    together = [e for e in train_together(configs, EXECUTION, data) if isinstance(e, Measured)]
    for member, one in enumerate(configs):
        alone = [e for e in train(one, EXECUTION, data) if isinstance(e, Measured)]
        norms = [[e.values["norm/layer0"] for e in part if "norm/layer0" in e.values] for part in (
            alone, [e for e in together if e.member == member])]  # fmt: skip
        assert len(norms[0]) == 3
        assert norms[1] == pytest.approx(norms[0], rel=1e-5)

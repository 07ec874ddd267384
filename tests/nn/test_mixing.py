"""The short convolution and the multiplicative branch of a block: against plain NumPy, and what does not fit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.config.recurrences.rg_lru import RGLRURecurrence
from lrurun.nn.convolution.short import short, short_state, short_step
from lrurun.nn.network import EPSILON, Model
from tests.harness.networks import config, initial, tokens


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def convolved(u, kernel, bias, starts=()):
    y = np.zeros(u.shape)
    for k in range(len(u)):
        first = max(s for s in (0, *starts) if s <= k)
        for j in range(min(len(kernel), k - first + 1)):
            y[k] += kernel[j] * u[k - j]
    return y + bias


@pytest.mark.parametrize("taps", [1, 4, 9])
def test_the_short_convolution_and_its_step(taps):
    u, kernel, bias = normal(7, 2, 3), normal(taps, 3), normal(3)
    np.testing.assert_allclose(short(u, kernel, bias), convolved(u, kernel, bias), atol=1e-5)
    state, found = short_state(2, kernel), []
    for u_k in u:
        state, y = short_step(state, u_k, kernel, bias)
        found.append(y)
    np.testing.assert_allclose(np.stack(found), convolved(u, kernel, bias), atol=1e-5)


def test_the_short_convolution_starts_again_where_a_document_starts():
    u, kernel, bias = normal(9, 2, 3), normal(4, 3), normal(3)
    reset = np.zeros((9, 2), bool)
    reset[[0, 3, 5], 1] = True
    y = np.asarray(short(u, kernel, bias, jnp.asarray(reset)))
    np.testing.assert_allclose(y[:, 0], convolved(u[:, 0], kernel, bias), atol=1e-5)
    np.testing.assert_allclose(y[:, 1], convolved(u[:, 1], kernel, bias, (3, 5)), atol=1e-5)


MIXING = {"conv": 4, "conv_activation": "silu", "branch": "gelu", "expand": 2, "glu": "none", "norm": "layer"}


def reference(params, model, ids, activation):
    """Logits of one block: x + outward(act(branch(norm(x))) recurrence(silu(conv(inward(norm(x)))))), and a mean."""
    x = params["encoder"]["kernel"][ids.T] + params["encoder"]["bias"]
    p = params["blocks"]["0"]
    centred = x - x.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON) * p["norm"]["scale"] + p["norm"]["bias"]

    def linear(name, z):
        return z @ p[name]["kernel"] + p[name]["bias"]

    v = convolved(linear("inward", normed), p["conv"]["kernel"], p["conv"]["bias"])
    v = np.asarray(v / (1 + np.exp(-v)), np.float32)
    states = np.asarray(model.recurrence.scan(p["recurrence"], v))
    gated = np.asarray(activation(linear("branch", normed).astype(np.float32))) * states
    x = x + linear("outward", gated)
    return x.mean(0) @ params["head"]["kernel"] + params["head"]["bias"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("branch", "activation"), [("gelu", jax.nn.gelu), pytest.param("silu", jax.nn.silu, marks=pytest.mark.slow)]
)
def test_a_block_with_a_branch_and_a_convolution(branch, activation):
    sizes = {"width": 4, "state": 8, "depth": 1, "recurrence": RGLRURecurrence(gate_blocks=2)}
    model = Model(config(**MIXING | sizes | {"branch": branch}), tokens())
    params, stats = initial(model)
    ids = np.random.default_rng(1).integers(0, 7, (3, 12))
    logits = jax.jit(lambda p: model.apply(p, stats, ids, train=False)[0])(params)
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    np.testing.assert_allclose(logits, reference(params, model, ids, activation), atol=1e-4)


@pytest.mark.slow
def test_a_convolution_alone_comes_before_the_recurrence_and_padding_does_not_leak():
    model = Model(config(conv=3, norm="layer", bidirectional=True), tokens())
    params, stats = initial(model)
    assert params["blocks"]["0"]["conv"]["kernel"].shape == (3, 6)
    ids = np.random.default_rng(1).integers(0, 7, (2, 12))
    other = ids.copy()
    other[:, 5:] = 0
    apply = jax.jit(lambda ids: model.apply(params, stats, ids, jnp.array([5, 3]), train=False)[0])
    np.testing.assert_allclose(apply(ids), apply(other), atol=1e-6)
    short_ids = ids.copy()
    short_ids[:, 3:] = 1
    moved = np.abs(np.asarray(apply(ids) - apply(short_ids)))
    assert moved[0].max() > 1e-3
    assert moved[1].max() < 1e-6


def test_a_switch_layer_follows_a_branch():
    model = Model(config(branch="silu", glu="switch", experts=1), tokens())
    params, _ = model.init(jax.random.key(0))
    assert {"inward", "branch", "outward", "second_norm", "switch"} <= params["blocks"]["0"].keys()
    assert "conv" not in params["blocks"]["0"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"frame": "none", "conv": 4}, 'conv and branch need frame = "blocks"'),
        ({"conv_activation": "silu"}, "conv_activation needs conv"),
        ({"expand": 2}, "expand needs a branch"),
        ({"branch": "gelu"}, 'it needs glu = "none" or "switch", found branch = "gelu", glu = "full"'),
        ({"branch": "gelu", "glu": "none", "recurrence": RGLRURecurrence(), "expand": 2, "state": 6}, "width = 12"),
    ],
)
def test_refuses_what_does_not_fit(changes, said):
    with pytest.raises(ValueError, match=said):
        config(**changes)

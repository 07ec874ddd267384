"""Steps of AdamW against their formula, groups of parameters, states of optimisers."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
import pytest

from lrurun.config.optimizers.adamw import AdamW
from lrurun.errors import LrurunError
from lrurun.nn.network import Model
from lrurun.training import optimizer
from lrurun.training.layout import Layout
from tests.harness import networks

STANDARD = AdamW(lr=0.02, recurrent_factor=0.25, weight_decay=0.3)
CONFIG = msgspec.structs.replace(STANDARD, b1=0.8, b2=0.95, eps=1e-6, decay_norm_bias=False)
RECURRENCE: Any = SimpleNamespace(recurrent_parameters={"A"}, undecayed_parameters={"D"})


def test_steps_against_numpy():
    rng = np.random.default_rng(0)
    params = {
        "recurrence": {"A": rng.normal(size=(3, 4)), "D": rng.normal(size=3)},
        "encoder": {"kernel": rng.normal(size=5), "bias": rng.normal(size=2)},
    }
    groups = {
        "recurrence": {"A": "recurrent", "D": "undecayed"},
        "encoder": {"kernel": "regular", "bias": "undecayed"},
    }
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
    assert optimizer.groups(CONFIG, RECURRENCE, params) == groups
    layout = Layout(params, groups)
    adamw = optimizer.LayoutOptimizer(CONFIG, layout)
    update = jax.jit(lambda g, s, p, r: adamw.update(g, s, p, rate=r))
    vector = layout.vector(params)
    state = adamw.init(vector)
    wanted = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    first, second = (jax.tree.map(np.zeros_like, wanted) for _ in range(2))
    for step in range(1, 6):
        grads = jax.tree.map(lambda x: rng.normal(size=x.shape) * 10.0 ** rng.integers(-3, 3), wanted)
        rate = 0.01 * step
        first = jax.tree.map(lambda m, g: 0.8 * m + 0.2 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, second, grads)

        def moved(group, p, m, v, step=step, rate=rate):
            direction = (m / (1 - 0.8**step)) / (np.sqrt(v / (1 - 0.95**step)) + 1e-6)
            factors = {"recurrent": (0.25, 0.0), "regular": (1.0, 0.3), "undecayed": (1.0, 0.0)}
            return p - rate * (factors[group][0] * direction + factors[group][1] * p)

        wanted = jax.tree.map(moved, groups, wanted, first, second)
        gradient = layout.vector(jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), grads))
        changes, state = update(gradient, state, vector, jnp.float32(rate))
        vector = optax.apply_updates(vector, changes)
    for found, value in zip(jax.tree.leaves(layout.tree(vector)), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(found, value, rtol=2e-5, atol=1e-6)
    for name, value in (("mu", first), ("nu", second)):
        moments = layout.tree(optimizer.of_state(state, name))
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), moments, value)
    assert optimizer.of_state(state, "count") == 5


def test_no_gradient_moves_only_what_decays():
    params = {"recurrence": {"A": jnp.ones(3)}, "encoder": {"kernel": jnp.ones(3)}}
    layout = Layout(params, optimizer.groups(CONFIG, RECURRENCE, params))
    adamw, vector = optimizer.LayoutOptimizer(CONFIG, layout), layout.vector(params)
    changes, _ = adamw.update(jnp.zeros_like(vector), adamw.init(vector), vector, rate=jnp.float32(0.1))
    moved = layout.tree(optax.apply_updates(vector, changes))
    np.testing.assert_array_equal(moved["recurrence"]["A"], 1.0)
    np.testing.assert_allclose(moved["encoder"]["kernel"], 1.0 - 0.1 * 0.3, rtol=1e-6)


def test_parts_of_a_state_are_not_parameters_of_the_same_name():
    params = {"recurrence": {"nu": jnp.ones(3), "mu": jnp.ones(2), "count": jnp.ones(1)}}
    state = optax.scale_by_adam().init(params)
    assert optimizer.of_state(state, "nu") is state.nu
    assert optimizer.of_state(optax.chain(optax.clip(1.0), optax.scale_by_adam()).init(params), "count") == 0
    with pytest.raises(KeyError, match="trace"):
        optimizer.of_state(state, "trace")


def test_every_parameter_is_in_the_group_of_its_kind():
    model = Model(networks.config(bidirectional=True), networks.features())
    params, _ = jax.eval_shape(model.init, jax.random.key(0))
    groups = optimizer.groups(STANDARD, model.recurrence, params)
    assert jax.tree.structure(groups) == jax.tree.structure(params)
    listing = optimizer.listing(STANDARD, model.recurrence, params)
    assert len(listing) == len(jax.tree.leaves(params))
    recurrent = {path for path, _, group in listing if group == "recurrent"}
    names = ("nu_log", "theta", "gamma_log", "B_re", "B_im")
    assert recurrent == {f"blocks.{i}.recurrence.{name}" for i in (0, 1) for name in names}
    assert {group for path, _, group in listing if path not in recurrent} == {"regular"}
    assert ("blocks.1.recurrence.C_im_back", (6, 5), "regular") in listing


def test_norms_and_biases_are_a_group_of_their_own_where_they_do_not_decay():
    model = Model(networks.config(final_norm=True), networks.tokens(pair=True))
    params, _ = jax.eval_shape(model.init, jax.random.key(0))
    groups, usual = (
        {path: group for path, _, group in optimizer.listing(optim, model.recurrence, params)}
        for optim in (msgspec.structs.replace(STANDARD, decay_norm_bias=False), STANDARD)
    )
    undecayed = {path for path, group in groups.items() if group == "undecayed"}
    blocks = {f"blocks.{i}.{name}" for i in (0, 1) for name in ("norm.scale", "norm.bias", "gate.bias", "value.bias")}
    others = {"encoder.bias", "hidden.bias", "head.bias", "final.scale", "final.bias"}
    assert undecayed == blocks | others
    assert {path: usual[path] for path in undecayed} == dict.fromkeys(undecayed, "regular")
    assert {path: group for path, group in groups.items() if path not in undecayed} == {
        path: group for path, group in usual.items() if path not in undecayed
    }


def test_parameters_lie_in_a_vector_group_by_group() -> None:
    rng = np.random.default_rng(0)
    tree = {"a": {"x": rng.normal(size=(3, 2)), "y": rng.normal(size=())}, "b": rng.normal(size=4)}
    tree = jax.tree.map(lambda x: np.asarray(x, np.float32), tree)
    layout = Layout(tree, {"a": {"x": "regular", "y": "recurrent"}, "b": "recurrent"})
    vector = layout.vector(tree)
    assert isinstance(vector, np.ndarray)
    np.testing.assert_array_equal(vector, [tree["a"]["y"], *tree["b"], *tree["a"]["x"].ravel()])
    assert layout.segments == {"recurrent": slice(0, 5), "regular": slice(5, 11)}
    traced = jax.jit(lambda vector: layout.arrays(vector, layout.starts()))(vector)
    for found in (layout.tree(vector), layout.tree(jnp.asarray(vector)), traced):
        jax.tree.map(np.testing.assert_array_equal, found, tree)
    assert layout.tree(vector)["b"].base is not None
    with pytest.raises(LrurunError, match=r"parameter a\.x: expected float32, found bfloat16"):
        Layout({"a": {"x": jnp.zeros(2, jnp.bfloat16)}}, {"a": {"x": "regular"}})

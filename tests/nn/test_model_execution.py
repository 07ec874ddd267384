"""The same network with rounded products, with less memory, in both modes of nnx and in chunks side by side."""

import contextlib
import io
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.config.recurrences.rnn import RNNSettings
from lrurun.nn.network import Model
from tests.harness.networks import batch, config, features, initial, tokens


@pytest.mark.slow
def test_products_in_bf16(strict):
    """Every product, and none but those, rounds its factors to 8 binary digits: outputs and gradients move by that."""
    recurrence, bidirectional = RNNSettings(activation="tanh"), True
    spec = features(length=64)
    kinds = ("float32", "tf32", "bf16")
    models = {
        kind: Model(config(recurrence=recurrence, bidirectional=bidirectional, width=32, depth=1, precision=kind), spec)
        for kind in kinds
    }
    params, stats = initial(models["float32"])
    inputs, _ = batch(spec)

    def outcome(model):
        def loss(params):
            logits, _ = model.apply(params, stats, inputs, train=True)
            return jnp.sum(jnp.sin(logits)), logits

        return jax.jit(jax.grad(loss, has_aux=True))

    found = {kind: outcome(models[kind])(params) for kind in kinds}
    exact, tf32, rounded = (jax.tree.leaves(found[kind]) for kind in kinds)
    for one, two, three in zip(exact, tf32, rounded, strict=True):
        np.testing.assert_array_equal(one, two)  # a CPU has no such format
        scale = np.max(np.abs(one))
        assert three.dtype == jnp.float32
        assert np.max(np.abs(three - one)) < 0.1 * scale + 1e-6
    assert np.max(np.abs(rounded[-1] - exact[-1])) > 1e-5
    factors = list(factors_of_products(jax.make_jaxpr(outcome(models["bf16"]))(params).jaxpr))
    assert {"bfloat16"} in factors
    exact = sum(kinds == {"float32"} for kinds in factors)  # A's, forward and backward, and the gradient of A
    assert exact == 3 * (1 + bidirectional)
    assert len(factors) == exact + factors.count({"bfloat16"})


def factors_of_products(jaxpr):
    """The dtypes that every product in a program takes."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield {str(variable.aval.dtype) for variable in equation.invars}
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, tuple | list) else [parameter]:
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from factors_of_products(inner)


@pytest.mark.slow
def test_remat_gives_the_same_network(strict):
    spec = tokens(length=48)
    models = [Model(config(depth=2, dropout=0.3), spec, remat=remat) for remat in (False, True)]
    params, stats = initial(models[0])
    inputs, lengths = batch(spec)

    def outcome(model):
        def loss(params):
            logits, new = model.apply(params, stats, inputs, lengths, train=True, key=jax.random.key(1))
            return jnp.sum(jnp.sin(logits)), (logits, new)

        return jax.jit(jax.grad(loss, has_aux=True))

    plain, again = map(outcome, models)
    for one, two in zip(jax.tree.leaves(plain(params)), jax.tree.leaves(again(params)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)
    assert "remat" not in str(jax.make_jaxpr(plain)(params))
    assert str(jax.make_jaxpr(again)(params)).count("remat") >= 2


@pytest.mark.slow
def test_both_modes_of_nnx():
    """The library's coming default has no shared references; the same numbers must come out."""
    program = (
        "import jax, jax.numpy as jnp\n"
        "from lrurun.config.recurrences.lru import LRUSettings\n"
        "from lrurun.config.schema import ModelConfig\n"
        "from lrurun.nn.network import Model\n"
        "from lrurun.data.task import Spec\n"
        "model = Model(ModelConfig(recurrence=LRUSettings(), depth=1, width=4, state=3, dropout=0.5),\n"
        "              Spec(name='x', kind='tokens', features=5, classes=2, length=4))\n"
        "params, stats = jax.jit(model.init)(jax.random.key(0))\n"
        "step = jax.jit(lambda p, s: model.apply(p, s, jnp.ones((2, 4), int), train=True, key=jax.random.key(1)))\n"
        "logits, stats = step(params, stats)\n"
        "print(logits.tolist(), stats['blocks']['0']['norm']['weight'])\n"
        "model = Model(model.config, model.spec, remat=True)\n"
        "loss = lambda p, s: model.apply(p, s, jnp.ones((2, 4), int), train=True, key=jax.random.key(1))[0].sum()\n"
        "print(jax.jit(jax.grad(loss))(params, stats)['head']['bias'].tolist())\n"
        "evaluated = jax.jit(model.evaluate)(params, stats, jnp.ones((2, 4), int), None, jnp.array([True, False]))\n"
        "print(*(array.tolist() for array in evaluated))\n"
    )
    environment = {**os.environ, "NNX_GRAPH_MODE": "false", "NNX_GRAPH_UPDATES": "false"}
    command = [sys.executable, "-W", "error", "-c", program]
    apart = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert apart.returncode == 0, apart.stderr
    with contextlib.redirect_stdout(io.StringIO()) as here:
        exec(program, {})
    assert apart.stdout == here.getvalue() != ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        (tokens(length=32, pair=True), {"bidirectional": True, "parity": "reference", "dropout": 0.4}),
        (features(features=3, length=64), {"pooling": "last", "norm_place": "post"}),
    ],
    ids=["pairs", "last-of-whole"],
)
def test_chunks_side_by_side_give_the_same_network(strict, spec, changes):
    """Outputs, norm statistics and gradients of a sequence laid out in chunks, against one step after another."""
    models = [Model(config(depth=1, **changes), spec, backend=backend) for backend in ("sequential", "chunked")]
    assert models[1].recurrence.chunks(spec.length, 4) >= 4
    params, stats = initial(models[0])
    inputs, lengths = batch(spec)
    if spec.features == 3 and spec.kind == "features":
        inputs, lengths = jnp.stack([inputs, inputs // 2, inputs % 5], axis=-1), None

    def outcome(model):
        def loss(params):
            logits, new = model.apply(params, stats, inputs, lengths, train=True, key=jax.random.key(1))
            return jnp.sum(jnp.sin(logits)), (logits, new)

        gradient, (logits, new) = jax.jit(jax.grad(loss, has_aux=True))(params)
        return gradient, logits, new

    for one, two in zip(*map(jax.tree.leaves, map(outcome, models)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=2e-5)

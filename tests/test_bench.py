"""The published forms of `lrurun bench` give the same numbers as ours, and the command says what it measured."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.bench import Shape, forms
from lrurun.model import Model
from lrurun.tasks.base import Spec

SMALL = Shape(3, 32, 6, 5)


def value_and_gradients(form):
    value, gradients = form.function(*form.arguments(form.state))
    return float(value), gradients


def close(one, two, tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance * float(jnp.max(jnp.abs(b))))


@pytest.mark.parametrize("what", ["layer", "rnn"])
def test_published_layers_are_ours(what):
    (ours, mine), (theirs, (params, u)) = (
        value_and_gradients(forms.FORMS[what](SMALL, form)) for form in (True, False)
    )
    assert ours == pytest.approx(theirs, rel=1e-4)
    close(mine[0], params, 1e-4)
    close(mine[1].reshape(-1), (u if what == "rnn" else flat(u)).reshape(-1), 1e-4)


def flat(u):
    """(B, L, H) as our chunks lie in memory."""
    steps = jnp.swapaxes(u, 0, 1)
    chunks = forms.stretches(SMALL.length, SMALL.batch * SMALL.state, "auto")
    return forms.split(steps, chunks) if chunks > 1 else steps


def test_published_scan_is_ours():
    (ours, (lam, v)), (theirs, (lam_c, v_c)) = (value_and_gradients(forms.scan(SMALL, form)) for form in (True, False))
    assert ours == pytest.approx(theirs, rel=1e-4)
    # jax gives the conjugate of a complex number's gradient
    close(lam, (jnp.real(lam_c), -jnp.imag(lam_c)), 1e-4)
    close(v, (flat(jnp.real(v_c)), flat(-jnp.imag(v_c))), 1e-4)


def test_published_network_is_ours():
    spec = Spec(name="bench", kind="features", features=1, classes=forms.CLASSES, length=32, scale=1 / 255)
    model = Model(forms._config(SMALL).model, spec)
    params, stats = jax.jit(model.init)(jax.random.key(3))
    inputs = jnp.asarray(np.random.default_rng(0).integers(0, 256, (3, 32)), jnp.uint8)
    ours = jax.jit(lambda p: model.apply(p, stats, inputs, train=True)[0])
    theirs = jax.jit(lambda p: forms.published_network(p, inputs, spec.scale))
    close(ours(params), theirs(params), 1e-4)
    gradients = [jax.jit(jax.grad(lambda p, f=f: jnp.sum(jnp.sin(f(p)))))(params) for f in (ours, theirs)]
    close(*gradients, 1e-3)


def test_published_step_is_ours():
    """After as many steps on the same batch, the same parameters."""
    one, two = (forms.step(SMALL, form) for form in (True, False))
    assert one.steps == forms.STEPS > 1
    live, seed, index, *rest = one.arguments(one.state)
    same = np.broadcast_to(index[:1], index.shape)  # one batch, as theirs
    live = one.function(live, seed, same, *rest)
    state = two.state
    for _ in range(one.steps):
        state = two.function(*two.arguments(state))
    close(live.params, state[0], 2e-3)


def test_bench_says_what_it_measured(machine):
    document = machine.json("bench", "scan", "--shape", "digits", "--rounds", "3", "--seconds", "0.05")
    assert document["schema_version"] == 1
    assert document["machine"]["copy_gb_s"] > 0.1
    names = [result["name"] for result in document["results"]]
    assert names == ["scan/digits", "scan/digits/memory", "scan/digits/compile"]
    speed = document["results"][0]
    assert speed["low"] <= speed["ratio"] <= speed["high"]
    assert speed["against_seconds"] > 0
    assert 0 < document["results"][1]["ratio"] < 0.5  # from the compiler, the same on every machine of this kind


def test_bench_refuses_unknown_shapes_before_it_measures(machine):
    done = machine.run("bench", "scan", "--shape", "cifar", code=2)
    assert "expected one of digits, scifar, listops, long, found 'cifar'" in done.stderr
    assert "measuring" not in done.stderr

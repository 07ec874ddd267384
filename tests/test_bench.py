"""The published forms of `lrurun bench` give the same numbers as ours, and the command says what it measured."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.bench import Shape, forms
from lrurun.model import Model
from lrurun.tasks.base import Spec

SMALL = Shape(3, 256, 6, 5)


def outputs_and_gradients(form):
    return form.function(*form.arguments(form.state))


def close(one, two, tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance * float(jnp.max(jnp.abs(b))))


def laid(x):
    """(B, L, N) as our forms have it: time first, in stretches."""
    chunks = forms.stretches(SMALL.length, SMALL.batch * SMALL.state, "auto")
    assert chunks > 1
    return forms.split(jnp.swapaxes(x, 0, 1), chunks)


def test_published_layer_is_ours():
    (y, (params, u)), (y_theirs, (params_theirs, u_theirs)) = (
        outputs_and_gradients(forms.layer(SMALL, form)) for form in (True, False)
    )
    close((y, params, u), (laid(y_theirs), params_theirs, laid(u_theirs)), 1e-4)


def test_plain_rnn_is_ours():
    ours, theirs = (outputs_and_gradients(forms.rnn(SMALL, form)) for form in (True, False))
    close(ours, theirs, 1e-4)


def test_published_scan_is_ours():
    (x, (lam, v)), (x_theirs, theirs) = (outputs_and_gradients(forms.scan(SMALL, form)) for form in (True, False))
    close(x, (laid(jnp.real(x_theirs)), laid(jnp.imag(x_theirs))), 1e-4)
    lam_theirs, v_theirs = map(jnp.conj, theirs)  # jax gives the conjugates of complex gradients
    close(lam, (jnp.real(lam_theirs), jnp.imag(lam_theirs)), 1e-4)
    close(v, (laid(jnp.real(v_theirs)), laid(jnp.imag(v_theirs))), 1e-4)


def test_published_network_is_ours():
    spec = Spec(name="bench", kind="features", features=1, classes=forms.CLASSES, length=SMALL.length, scale=1 / 255)
    model = Model(forms._config(SMALL).model, spec)
    params, stats = jax.jit(model.init)(jax.random.key(3))
    inputs = jnp.asarray(np.random.default_rng(0).integers(0, 256, (3, SMALL.length)), jnp.uint8)
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

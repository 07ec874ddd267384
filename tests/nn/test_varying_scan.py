"""linear_scan where the transition varies: every backend against double precision, and what it keeps."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.nn.complex import Complex
from lrurun.nn.scan import linear_scan, split

BACKENDS = ["sequential", "chunked", "associative"]


CASES = [
    (48, True, True),
    pytest.param(1, True, False, marks=pytest.mark.slow),
    pytest.param(37, False, True, marks=pytest.mark.slow),
]


def whole(z):
    return z.numpy() if isinstance(z, Complex) else np.asarray(z)


def single(z, real):
    number = Complex(jnp.asarray(z.real, jnp.float32), jnp.asarray(z.imag, jnp.float32))
    return number.real if real else number


def problem(steps, real, batch=3, states=5, radius=(0.3, 0.999), seed=0):
    """a, b, initial state and a cotangent, complex128 with float32 values; and where the state is reset."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        z = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64).astype(np.complex128)
        return z.real.astype(np.complex128) if real else z

    a = rng.uniform(*radius, (steps, batch, states)) * (1 if real else np.exp(2j * np.pi * rng.uniform(size=states)))
    a = a.astype(np.complex64).astype(np.complex128)
    drive, start, g = normal(steps, batch, states), normal(batch, states), normal(steps, batch, states)
    return a, drive, start, g, rng.uniform(size=(steps, batch)) < 0.1


def reference(a, b, initial, g, reset):
    """States, and gradients of sum Re(conj(g) x) with respect to a, b and the initial state, one step after another."""
    kept = np.where(reset[..., None], 0, a)
    x, d, da = np.zeros_like(b), np.zeros_like(b), np.zeros_like(a)
    for k in range(len(b)):
        x[k] = kept[k] * (x[k - 1] if k else initial) + b[k]
    for k in reversed(range(len(b))):
        d[k] = g[k] + (np.conj(kept[k + 1]) * d[k + 1] if k + 1 < len(b) else 0)
        da[k] = np.where(reset[k][..., None], 0, d[k] * np.conj(x[k - 1] if k else initial))
    return x, da, d, np.conj(kept[0]) * d[0]


def close(found, wanted, tolerance):
    error = np.max(np.abs(whole(found) - wanted)) / np.max(np.abs(wanted))
    assert error < tolerance, error


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("steps", "with_initial", "resets"), CASES)
def test_values_and_gradients(strict, real, backend, steps, with_initial, resets):
    a, b, initial, g, reset = problem(steps, real)
    initial = initial if with_initial else np.zeros_like(initial)
    reset = reset if resets else np.zeros_like(reset)
    wanted = reference(a, b, initial, g, reset)

    @jax.jit
    def run(a, b, initial, g):
        scan = partial(linear_scan, reset=jnp.asarray(reset) if resets else None, backend=backend)
        x, back = jax.vjp(lambda a, b, start: scan(a, b, initial=start), a, b, initial)
        return x, *back(g)

    found = run(single(a, real), single(b, real), single(initial, real) if with_initial else None, single(g, real))
    for one, two in zip(found, wanted, strict=True):
        if one is not None:
            close(one, two, 5e-6)


@pytest.mark.parametrize(("backend", "tolerance"), [("sequential", 1e-4), ("chunked", 1e-3)])
@pytest.mark.parametrize("radius", [pytest.param((0.9999, 0.99999), marks=pytest.mark.slow), (0.2, 0.5)])
def test_long_sequences(backend, tolerance, radius):
    """16,384 steps: slow decays, and fast ones, whose product underflows after some dozens of steps."""
    a, b, initial, g, reset = problem(16_384, True, batch=1, states=4, radius=radius)
    x, da, d, _ = reference(a, b, 0 * initial, g, np.zeros_like(reset))
    run = jax.jit(
        lambda a, b, g: (lambda x, back: (x, *back(g)))(*jax.vjp(partial(linear_scan, backend=backend), a, b))
    )
    for one, two in zip(run(*(single(z, True) for z in (a, b, g))), (x, da, d), strict=True):
        assert np.max(np.abs(one - two) / np.sqrt(np.mean(np.abs(two) ** 2))) < tolerance


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("real", [True, False])
def test_keeps_a_and_the_states(backend, real):
    a, b, *_ = problem(16, real)
    _, back = jax.vjp(jax.jit(partial(linear_scan, backend=backend)), single(a, real), single(b, real))
    assert sum(leaf.size for leaf in jax.tree.leaves(back)) == (1 if real else 2) * (a.size + b.size)


def test_chunks_that_are_laid_out_already():
    a, b, initial, g, reset = problem(48, True)
    wanted = reference(a, b, initial, g, np.zeros_like(reset))
    laid = [split(single(z, True), 4) for z in (a, b, g)]
    x, back = jax.vjp(lambda a, b: linear_scan(a, b, initial=single(initial, True)), *laid[:2])
    for one, two in zip((x, *back(laid[2])), wanted, strict=False):
        close(one, np.asarray(split(jnp.asarray(two.real, jnp.float32), 4)), 5e-6)


def test_maps_over_models():
    problems = [[single(z, True) for z in problem(9, True, seed=seed)[:2]] for seed in range(2)]
    gradient = jax.jit(jax.grad(lambda a, b: jnp.sum(jnp.sin(linear_scan(a, b)))))
    together = jax.vmap(gradient)(*map(jnp.stack, zip(*problems, strict=True)))
    for one, alone in zip(together, problems, strict=True):
        np.testing.assert_allclose(one, gradient(*alone), rtol=1e-5, atol=1e-5)


def test_refuses_what_does_not_fit():
    a, b, initial, _, reset = problem(4, True)
    real = [single(z, True) for z in (a, b, initial)]
    with pytest.raises(ValueError, match="auto, sequential, chunked, associative, found 'other'"):
        linear_scan(*real[:2], backend="other")
    for wrong, rule in (
        ({"a": real[0][:2], "b": real[1]}, "^a must be"),
        ({"a": real[0], "b": Complex(real[1], real[1])}, "^a and b must be both real or both Complex"),
        ({"a": real[2], "b": real[2]}, "^b must be"),
        ({"a": real[0], "b": real[1], "initial": real[2][:1]}, "^initial must be"),
        ({"a": real[0], "b": real[1], "reset": jnp.asarray(reset[:2])}, "^reset must be"),
        ({"a": real[0], "b": real[1], "reverse": True}, "^reverse needs an a that is the same at every step"),
    ):
        with pytest.raises(ValueError, match=rule):
            linear_scan(**wrong)

"""linear_scan: every backend against the sum it stands for, in double precision."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.nn.complex import Complex, stack
from lrurun.nn.scan import chunk_count, linear_scan, resolve, split

BACKENDS = ["sequential", "chunked", "associative"]


def pair(z):
    return Complex(jnp.asarray(z.real, jnp.float32), jnp.asarray(z.imag, jnp.float32))


def whole(z):
    return z.numpy()


def problem(steps, batch=3, states=5, seed=0):
    """lambda, v, initial state and a cotangent, complex128 with float32 values."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64).astype(np.complex128)

    lam = rng.uniform(0.3, 0.999, states) * np.exp(2j * np.pi * rng.uniform(size=states))
    lam = lam.astype(np.complex64).astype(np.complex128)
    return lam, normal(steps, batch, states), normal(batch, states), normal(steps, batch, states)


def reference(lam, v, initial, g, reverse):
    """Values and gradients of sum Re(conj(g) x) from x_k = lam^(k+1) x_0 + sum_j lam^(k-j) v_j, without recursion."""
    if reverse:
        v, g = v[::-1], g[::-1]
    steps = len(v)
    lag = np.arange(steps)[:, None] - np.arange(steps)[None, :]
    power = np.where(lag[..., None] >= 0, lam ** np.maximum(lag, 0)[..., None], 0)
    slope = np.where(lag[..., None] >= 1, lag[..., None] * lam ** np.maximum(lag - 1, 0)[..., None], 0)
    k = np.arange(1, steps + 1)[:, None]
    x = np.einsum("kjn,jbn->kbn", power, v) + (lam**k)[:, None] * initial
    moved = np.einsum("kjn,jbn->kbn", slope, v) + (k * lam ** (k - 1))[:, None] * initial
    dlam = np.sum(np.conj(moved) * g, axis=(0, 1))
    dv = np.einsum("kjn,kbn->jbn", np.conj(power), g)
    dinitial = np.sum(np.conj(lam**k)[:, None] * g, axis=0)
    return (x[::-1], dlam, dv[::-1], dinitial) if reverse else (x, dlam, dv, dinitial)


def close(found, wanted, tolerance=2e-6):
    error = np.max(np.abs(found - wanted)) / np.max(np.abs(wanted))
    assert error < tolerance, error


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("with_initial", [False, True])
@pytest.mark.parametrize("steps", [1, 37, 48])
def test_values_and_gradients(strict, backend, reverse, with_initial, steps):
    lam, v, initial, g = problem(steps)
    initial = initial if with_initial else np.zeros_like(initial)
    x, dlam, dv, dinitial = reference(lam, v, initial, g, reverse)

    @jax.jit
    def run(lam, v, initial, g):
        states, back = jax.vjp(
            lambda *a: linear_scan(*a[:2], reverse=reverse, initial=a[2], backend=backend), lam, v, initial
        )
        return states, back(g)

    found, gradients = run(pair(lam), pair(v), pair(initial) if with_initial else None, pair(g))
    close(whole(found), x)
    close(whole(gradients[1]), dv)
    if steps > 1 or with_initial:
        close(whole(gradients[0]), dlam, 1e-5)
    if with_initial:
        close(whole(gradients[2]), dinitial)


@pytest.mark.parametrize(
    ("backend", "forward", "backward"),
    [
        ("sequential", 5e-5, 1.5e-4),
        ("chunked", 1e-3, 3e-3),
        pytest.param("associative", 1e-3, 3e-3, marks=pytest.mark.slow),  # its many levels compile slowly
    ],
)
def test_long_slow_memory(backend, forward, backward):
    """16,384 steps at |lambda| = 0.9999: errors of states in their own rms, of dlambda in its size, worst of states."""
    lam, v, _, g = problem(16_384, batch=1, states=8)
    lam = (0.9999 * lam / np.abs(lam)).astype(np.complex64).astype(np.complex128)
    x, w, dlam = np.zeros_like(v), np.zeros_like(v), 0
    for k in range(len(v)):
        x[k] = lam * x[k - 1] + v[k] if k else v[k]
    for k in reversed(range(len(v))):
        w[k] = g[k] + np.conj(lam) * w[k + 1] if k + 1 < len(v) else g[k]
        dlam = dlam + (w[k] * np.conj(x[k - 1])).sum(0) if k else dlam

    @jax.jit
    def run(lam, v, g):
        states, back = jax.vjp(lambda lam, v: linear_scan(lam, v, backend=backend), lam, v)
        return states, back(g)[0]

    found, gradient = run(pair(lam), pair(v), pair(g))
    rms = np.sqrt(np.mean(np.abs(x) ** 2, axis=(0, 1)))
    errors = np.max(np.abs(whole(found) - x) / rms), np.max(np.abs(whole(gradient) - dlam) / np.abs(dlam))
    assert errors[0] < forward, errors
    assert errors[1] < backward, errors


@pytest.mark.parametrize("backend", BACKENDS)
def test_keeps_nothing_but_the_states(backend):
    lam, v, _, _ = problem(16)
    scan = jax.jit(lambda lam, v: linear_scan(lam, v, backend=backend))
    _, back = jax.vjp(scan, pair(lam), pair(v))
    kept = sum(leaf.size for leaf in jax.tree.leaves(back))
    assert kept == 2 * lam.size + 2 * v.size


@pytest.mark.parametrize("backend", BACKENDS)
def test_maps_over_models(backend):
    problems = [problem(9, seed=seed)[:2] for seed in range(2)]
    lam, v = (stack([pair(p[i]) for p in problems]) for i in range(2))
    gradient = jax.jit(jax.grad(lambda lam, v: jnp.sum(linear_scan(lam, v, backend=backend).real)))
    together = jax.jit(jax.vmap(gradient))(lam, v)
    for i, (lam, v) in enumerate(problems):
        alone = gradient(pair(lam), pair(v))
        np.testing.assert_allclose(together.numpy()[i], alone.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(1, 3, 5), (7, 1, 1), (1, 1, 1), (13, 1, 2)])
def test_the_smallest_and_odd_shapes(strict, backend, reverse, shape):
    """One step, one sequence, one state; lengths that nothing divides."""
    length, batch, states = shape
    lam, v, initial, g = problem(length, batch=batch, states=states)
    x, dlam, dv, dinitial = reference(lam, v, initial, g, reverse)

    @jax.jit
    def run(lam, v, initial, g):
        scan = lambda *a: linear_scan(*a[:2], reverse=reverse, initial=a[2], backend=backend)  # noqa: E731
        found, back = jax.vjp(scan, lam, v, initial)
        return found, back(g)

    found, gradients = run(pair(lam), pair(v), pair(initial), pair(g))
    for one, two in zip((found, *gradients), (x, dlam, dv, dinitial), strict=True):
        close(whole(one), two, 1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_outside_the_unit_disk_states_grow_as_they_should(strict, backend):
    """|lambda| = 1.1: exact while float32 can hold it, then infinite or not a number, and never anything else."""
    lam = np.array([1.1 + 0j, 0.5 + 0j])
    v = np.ones((2048, 1, 2), np.complex128)
    x = jax.jit(partial(linear_scan, backend=backend))(pair(lam), pair(v))
    re, im = np.asarray(x.real), np.asarray(x.imag)
    wanted = np.array([1.1 ** np.arange(1, 301) - 1, 0.5 ** np.arange(1, 301) - 1]).T / np.array([0.1, -0.5])
    np.testing.assert_allclose(re[:300, 0], wanted, rtol=2e-4)
    assert not np.isfinite(re[1500:, 0, 0]).any()
    np.testing.assert_allclose(re[1500:, 0, 1], 2, rtol=1e-5)  # the other state does not notice
    np.testing.assert_array_equal(im[:, 0, 1], 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_input_that_is_no_number_stays_in_its_state_and_its_future(strict, backend):
    lam, v, _, _ = problem(64)
    hurt = v.copy()
    hurt[40, 1, 2] = np.nan
    scan = jax.jit(partial(linear_scan, backend=backend))
    clean, found = (whole(scan(pair(lam), pair(z))) for z in (v, hurt))
    assert np.isnan(found[40:, 1, 2]).all()
    found[40:, 1, 2] = clean[40:, 1, 2]
    if backend == "chunked":  # a step of all its chunks is one step: what follows in the other ones stays exact
        assert np.isfinite(found[:40]).all()
    np.testing.assert_allclose(found, clean, rtol=1e-5, atol=1e-5)


def test_refuses_what_does_not_fit():
    lam, v, initial, _ = problem(4)
    with pytest.raises(ValueError, match="auto, sequential, chunked, associative, found 'other'"):
        linear_scan(pair(lam), pair(v), backend="other")
    reset = jnp.zeros((4, 3), bool)
    for a, b, others, rule in (
        (pair(lam), pair(initial), {}, r"^b must be \(T, B, N\) with T > 0, found \[\(3, 5\)\]"),
        (pair(lam), pair(v[:0]), {}, "^b must be"),
        (pair(lam[:2]), pair(v), {}, r"^a must be \(5,\), or \(4, 3, 5\) as b, found \[\(2,\)\]"),
        (pair(lam).real, pair(v), {}, "^a and b must be both real or both Complex"),
        (pair(lam), pair(v).real, {}, "^a and b must be both real or both Complex"),
        (pair(lam), pair(v), {"initial": pair(initial[:1])}, r"^initial must be \(3, 5\), found \[\(1, 5\)\]"),
        (pair(lam), pair(v), {"reset": reset}, "^reset must be"),
        (pair(lam), pair(v), {"reset": reset, "reverse": True}, "^reset must be"),
    ):
        with pytest.raises(ValueError, match=rule):
            linear_scan(a, b, **others)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("chunks", [1, 2, 3, 12])
def test_chunks_side_by_side_are_one_sequence(strict, chunks, reverse):
    lam, v, initial, g = problem(12)
    x, dlam, dv, dinitial = reference(lam, v, initial, g, reverse)
    laid = [split(pair(z), chunks) for z in (v, g)]
    assert laid[0].shape == (12 // chunks, chunks, 3, 5)

    @jax.jit
    def run(lam, v, initial, g):
        states, back = jax.vjp(lambda *a: linear_scan(*a[:2], reverse=reverse, initial=a[2]), lam, v, initial)
        return states, back(g)

    found, gradients = run(pair(lam), laid[0], pair(initial), laid[1])
    close(whole(joined(found)), x)
    close(whole(gradients[0]), dlam, 1e-5)
    close(whole(joined(gradients[1])), dv)
    close(whole(gradients[2]), dinitial)


def joined(x):
    """(T, K, ...) as (K * T, ...)."""
    return jax.tree.map(lambda part: jnp.concatenate([part[:, k] for k in range(part.shape[1])]), x)


def test_chunks_are_for_few_numbers_a_step(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert chunk_count(16_384, 256, "auto") == 16
    assert chunk_count(16_384, 1, "auto") == 256  # no shorter than 64 steps
    assert chunk_count(16_384, 512, "auto") == chunk_count(64, 16, "auto") == 1
    assert chunk_count(1023, 16, "auto") == 1
    assert chunk_count(2000, 16, "auto") == 16  # 2000 = 16 * 125
    assert chunk_count(16_384, 256, "sequential") == chunk_count(16_384, 256, "associative") == 1
    assert chunk_count(1024, 64 * 64, "chunked") == 32
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert chunk_count(16_384, 256, "auto") == 1


def test_auto_is_sequential_on_a_cpu_alone(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert resolve("auto") == "sequential"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert resolve("auto") == "associative"

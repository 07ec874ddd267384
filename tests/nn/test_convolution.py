"""Convolutions, and the sums and reciprocals that make their kernels, against NumPy and SciPy in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft

from lrurun.nn import convolution
from lrurun.nn.complex import Complex
from lrurun.nn.convolution import powers, series


def test_fast_lengths_are_scipy_s():
    assert [convolution.fast(n) for n in range(1, 3000)] == [
        scipy.fft.next_fast_len(n, real=True) for n in range(1, 3000)
    ]


def summed(u, kernels):
    """The convolution, term by term."""
    y = np.zeros(u.shape)
    for k in range(kernels.shape[1]):
        y[k:] += kernels[0, k] * u[: len(u) - k]
        if len(kernels) == 2:
            y[: max(0, len(u) - k - 1)] += kernels[1, k] * u[k + 1 :]
    return y


@pytest.mark.parametrize(("steps", "taps", "ways"), [(17, 17, 2), (17, 5, 2), (64, 64, 1), (1, 1, 2)])
def test_a_convolution_is_its_sum(strict, steps, taps, ways):
    rng = np.random.default_rng(0)
    u, kernels = rng.normal(size=(steps, 3, 4)), rng.normal(size=(ways, taps, 4))
    weight = rng.normal(size=u.shape)

    def loss(u, kernels):
        y = convolution.convolve(u, kernels)
        return jnp.sum(y * weight.astype(np.float32)), y

    arrays = jnp.asarray(u, jnp.float32), jnp.asarray(kernels, jnp.float32)
    (du, dk), y = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(*arrays)
    assert (y.dtype, du.dtype, dk.dtype) == (jnp.float32,) * 3
    scale = np.sqrt(taps)
    np.testing.assert_allclose(y, summed(u, kernels), atol=2e-6 * scale)
    # linear in both: the gradient along a direction is the loss of that direction
    for found, direction, moved in (
        (du, rng.normal(size=u.shape), lambda d: (d, kernels)),
        (dk, rng.normal(size=kernels.shape), lambda d: (u, d)),
    ):
        wanted = np.sum(weight * summed(*moved(direction)))
        assert np.sum(np.asarray(found, np.float64) * direction) == pytest.approx(wanted, rel=1e-4, abs=1e-4)


def test_a_convolution_refuses_what_does_not_fit():
    u = jnp.zeros((4, 2, 3))
    with pytest.raises(ValueError, match=r"found \(4, 2, 3\) and \(1, 4, 2\)"):
        convolution.convolve(u, jnp.zeros((1, 4, 2)))
    with pytest.raises(ValueError, match="1 to 4 entries"):
        convolution.convolve(u, jnp.zeros((1, 5, 3)))


def inverse(a):
    """1 / (1 + z a), term by term."""
    g = np.zeros_like(a)
    g[..., 0] = 1
    for k in range(1, a.shape[-1]):
        g[..., k] = -np.sum(a[..., k - 1 :: -1] * g[..., :k], axis=-1)
    return g


@pytest.mark.parametrize("length", [1, 2, 3, 37])
def test_a_reciprocal_is_its_recursion(strict, length):
    rng = np.random.default_rng(0)
    # sums of decaying oscillations, whose feedback is stable as that of a small gain is
    a = 0.5 * rng.normal(size=(2, length)) * 0.7 ** np.arange(length)
    weight, direction = rng.normal(size=(2, *a.shape))

    def loss(a):
        g = series.reciprocal(a)
        return jnp.sum(weight.astype(np.float32) * g), g

    slope, g = jax.jit(jax.grad(loss, has_aux=True))(jnp.asarray(a, jnp.float32))
    assert (g.dtype, slope.dtype) == (jnp.float32,) * 2
    np.testing.assert_allclose(g, inverse(a), atol=1e-6)
    ends = [np.sum(weight * inverse(a + h * direction)) for h in (1e-6, -1e-6)]
    assert np.sum(np.asarray(slope, np.float64) * direction) == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-5)


@pytest.mark.parametrize("length", [1, 2, 5, 100, 2**20])
def test_sums_of_powers_stay_exact(length):
    """Up to a million steps of slow decay, where a phase of k theta in float32 is wrong by a quarter of a radian."""
    rng = np.random.default_rng(0)
    nu, theta = (rng.uniform(0, 1e-6, (1, 2))).astype(np.float32), rng.uniform(-3.1, 3.1, (1, 2)).astype(np.float32)
    weights = rng.normal(size=(2, 3, 1, 2)).astype(np.float32)
    found = np.asarray(jax.jit(powers.real_sums, static_argnums=3)(Complex(*weights), nu, theta, length))
    w = weights[0] + 1j * weights[1].astype(np.complex128)
    exponent = -nu.astype(np.float64) + 1j * theta.astype(np.float64)
    k = np.arange(length)
    wanted = sum(w[:, :, n, None] * np.exp(exponent[0, n] * k) for n in range(2)).real
    assert found.shape == (3, 1, length)
    assert np.max(np.abs(found - wanted)) < 1e-5 * np.max(np.sum(np.abs(w), axis=-1))

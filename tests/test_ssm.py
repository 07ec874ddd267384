"""The state space layers, and the convolution that some of them are, against NumPy and SciPy in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft

from lrurun.scan import convolution


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

"""Convolutions, and what makes their kernels: sums of powers, angles, reciprocals, by NumPy and SciPy in float64."""

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


@pytest.mark.parametrize(("steps", "taps", "ways"), [(17, 17, 2), (17, 5, 1), (1, 1, 2)])
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


@pytest.mark.parametrize("length", [1, 3, 37])
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


@pytest.mark.parametrize("length", [1, 100, 2**20])
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


def test_angles_keep_their_digits_however_long():
    rng = np.random.default_rng(0)
    small = np.concatenate([2 * np.pi * np.arange(64) / 64, rng.uniform(-7, 7, 300), [1e-6, -1e-9, 0.0, 1e-4]])
    phases = np.concatenate([small, rng.uniform(-1024, 1024, 200)]).astype(np.float32)
    for length, bar in ((2**12, 1e-6), (2**20, 1e-5), (2**31 - 1, 2e-2)):
        steps = np.append(rng.integers(0, length, 200), [0, 1, length - 1, length]).astype(np.uint32)
        found = np.asarray(jax.jit(powers.angle)(phases[:, None], steps[None]))
        assert np.max(np.abs(found)) <= np.pi * (1 + 1e-6)
        assert np.finfo(np.longdouble).nmant >= 63
        wanted = phases.astype(np.longdouble)[:, None] * steps.astype(np.longdouble)[None]
        wanted = np.asarray(np.exp(1j * wanted), complex)
        assert np.max(np.abs(np.exp(1j * found.astype(np.float64)) - wanted)) < bar, length


def test_angles_of_what_is_no_phase_are_not_numbers_and_the_gradient_is_that_of_the_product():
    steps = np.arange(4, dtype=np.uint32)[None]
    assert np.all(np.isnan(jax.jit(powers.angle)(jnp.asarray([[np.inf], [np.nan], [2.0**19]], jnp.float32), steps)))
    exponents = np.asarray([[3, 2**20]], np.uint32)
    slope = jax.jit(jax.grad(lambda p: jnp.sum(powers.angle(p[None, None], exponents))))
    assert slope(jnp.float32(-2.5)) == 3 + 2**20


@pytest.mark.slow
def test_a_kernel_of_a_million_lags_keeps_its_phases_and_never_holds_all_powers():
    n, h, length = 16, 2, 2**20
    rng = np.random.default_rng(1)
    nu = jnp.asarray(np.geomspace(1e-8, 1e-5, n), jnp.float32)
    theta = jnp.asarray(2 * np.pi * np.arange(n) / n + 0.01, jnp.float32)
    w = Complex(*(jnp.asarray(rng.normal(size=(h, n)) / n, jnp.float32) for _ in range(2)))
    made = jax.jit(powers.kernel, static_argnums=3).lower(w, nu, theta, length).compile()
    found = made(w, nu, theta).numpy()
    log_lam = -np.asarray(nu, np.float64) + 1j * np.asarray(theta, np.float64)
    # phases of 10^7 radians are exact to 10^-9 in double precision
    blocks = [w.numpy() @ np.exp(log_lam[:, None] * np.arange(at, at + 2**15)) for at in range(0, length, 2**15)]
    wanted = np.concatenate(blocks, axis=1)
    assert np.max(np.abs(found - wanted)) < 1e-5 * np.max(np.abs(wanted))
    assert made.memory_analysis().temp_size_in_bytes < 2 * 4 * found.size < 2 * 4 * n * length / 4


@pytest.mark.parametrize(("channels", "length"), [(False, 64), (False, 200), (True, 200), (True, 1)])
def test_kernels_in_blocks_and_their_gradients(monkeypatch, strict, channels, length):
    """Eigenvalues of all channels and of each, lengths below, at and beyond a block, the last one cut."""
    monkeypatch.setattr(powers, "LONGEST", 64)
    rng = np.random.default_rng(2)
    h, n = 3, 5
    nu, theta = rng.uniform(0.001, 0.1, (h, n)), rng.normal(size=(h, n)) * 3
    if not channels:
        nu, theta = nu[0], theta[0]
    w = rng.normal(size=(2, h, n))
    weight = rng.normal(size=(2, h, length))

    def exact(w, nu, theta):
        lags = np.exp((-nu + 1j * theta)[..., None] * np.arange(length))
        return np.einsum("hn,hnl->hl" if channels else "hn,nl->hl", w[0] + 1j * w[1], lags)

    def loss(w, nu, theta):
        k = powers.kernel(Complex(w[0], w[1]), nu, theta, length)
        return jnp.sum(k.real * weight[0].astype(np.float32) + k.imag * weight[1].astype(np.float32)), k

    arrays = [np.asarray(x, np.float32) for x in (w, nu, theta)]
    gradient, k = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(*map(jnp.asarray, arrays))
    arrays = [x.astype(np.float64) for x in arrays]
    np.testing.assert_allclose(k.numpy(), exact(*arrays), atol=3e-6)
    for i, found in enumerate(gradient):
        direction = rng.normal(size=found.shape)

        def at(step, i=i, direction=direction):
            k = exact(*(x + step * direction if j == i else x for j, x in enumerate(arrays)))
            return np.sum(weight[0] * k.real + weight[1] * k.imag)

        wanted = (at(1e-6) - at(-1e-6)) / 2e-6
        assert np.sum(np.asarray(found, np.float64) * direction) == pytest.approx(wanted, rel=1e-3, abs=1e-3)

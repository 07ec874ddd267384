"""Systems in continuous time: their published spectra, and their discretization against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

from lrurun.nn.complex import Complex, polar
from lrurun.nn.recurrences import continuous
from lrurun.nn.recurrences.s4d import initial_a
from tests.harness.state_spaces import legs, normal


@pytest.mark.parametrize("size", [1, 7, 64])
def test_hippo_s_eigenvectors(size):
    found = continuous.hippo(size)
    v = found.vectors
    np.testing.assert_allclose(v.conj().T @ v, np.eye(size), atol=1e-12)
    lam = np.diag(-0.5 + 1j * found.frequencies)
    np.testing.assert_allclose(v @ lam @ v.conj().T, normal(size), atol=1e-10 * size**2)
    np.testing.assert_allclose(v.conj().T @ legs(size)[1], found.inputs, atol=1e-10)
    assert np.all(found.inputs > 0)
    assert np.all(np.diff(found.frequencies) > 0)


def test_the_published_spectra():
    """Of S4D with N = 64: the largest frequencies of HiPPO, and those of the inverse law that follows it."""
    assert continuous.hippo(64).frequencies[-3:][::-1] == pytest.approx([1303.3, 433.0, 258.2], abs=0.05)
    assert initial_a("legs", 64)[:3].imag == pytest.approx([1303.3, 433.0, 258.2], abs=0.05)
    assert initial_a("inv", 64)[:3].imag == pytest.approx([1283.4, 414.2, 240.4], abs=0.05)
    assert initial_a("inv2", 64)[:2].imag == pytest.approx([64 / np.pi * 63, 64 / np.pi * 31])
    assert initial_a("lin", 64)[:3].imag == pytest.approx([0, np.pi, 2 * np.pi])
    assert initial_a("quad", 64)[:3].imag == pytest.approx([1 / np.pi, 9 / np.pi, 25 / np.pi])
    assert initial_a("real", 64)[:3] == pytest.approx([-1, -2, -3])
    for init in ("legs", "inv", "inv2", "lin", "quad"):
        assert initial_a(init, 64).shape == (32,)
        assert np.all(initial_a(init, 64).real == -0.5)


@pytest.mark.parametrize("how", ["zoh", "bilinear"])
def test_discretization_is_scipy_s(strict, how):
    a = np.array([-0.5, -0.5 + 3j, -0.5 - 1300j, -40.0, -1e-4 + 1e-4j, -3 + 0.01j, 0.2 + 1j])
    dt = np.array([0.001, 0.1, 0.1, 0.5, 1e-3, 1.0, 0.3])
    wanted_lam, wanted_b = np.zeros((2, a.size), complex)
    for i in range(a.size):
        system = (np.array([[a[i]]]), np.ones((1, 1)), np.ones((1, 1)), np.zeros((1, 1)))
        lam, b, *_ = scipy.signal.cont2discrete(system, dt[i], method=how)
        wanted_lam[i], wanted_b[i] = lam[0, 0], b[0, 0]
    numbers = Complex(jnp.asarray(a.real, jnp.float32), jnp.asarray(a.imag, jnp.float32))
    nu, theta, factor = jax.jit(continuous.discretize, static_argnums=2)(numbers, jnp.asarray(dt, jnp.float32), how)
    lam, b = polar(nu, theta).numpy(), factor.numpy()
    # the third one turns by 130 radians a step, which float32 has to 1e-5
    np.testing.assert_allclose(lam, wanted_lam, atol=2e-5)
    np.testing.assert_allclose(np.delete(lam, 2), np.delete(wanted_lam, 2), rtol=5e-7)
    np.testing.assert_allclose(b, wanted_b, rtol=1e-5)
    np.testing.assert_allclose(np.delete(b, 2), np.delete(wanted_b, 2), rtol=5e-7)


def test_the_euler_rule_is_zoh_with_its_factor_to_the_first_order():
    a, dt = np.array([-0.5 + 3j, -2.0 - 40j]), np.array([1e-4, 1e-6])
    numbers = Complex(jnp.asarray(a.real, jnp.float32), jnp.asarray(a.imag, jnp.float32))
    steps = jnp.asarray(dt, jnp.float32)
    (*lam, held), (*same, factor) = (continuous.discretize(numbers, steps, how) for how in ("zoh", "euler"))
    np.testing.assert_array_equal(lam, same)
    np.testing.assert_allclose(factor.numpy(), dt, rtol=1e-6)
    # (exp(z) - 1) / a = dt (1 + z / 2 + ...)
    np.testing.assert_allclose(held.numpy() / factor.numpy() - 1, dt * a / 2, rtol=1e-2, atol=2e-7)


def test_a_held_input_is_added_up_where_there_is_no_decay():
    """(exp(z) - 1) / a has the limit dt at a = 0, and a derivative: dt^2 / 2."""

    def held(re, im):
        factor = continuous.discretize(Complex(re, im), jnp.float32(0.1), "zoh")[2]
        return factor.real, factor.imag

    zero = jnp.float32(0)
    assert held(zero, zero) == pytest.approx((0.1, 0.0))
    slopes = jax.jacobian(held, argnums=(0, 1))(zero, zero)
    np.testing.assert_allclose(np.asarray(slopes), [[0.005, 0], [0, 0.005]], atol=1e-9)

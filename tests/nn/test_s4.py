"""S4: how it starts, against HiPPO and SciPy, and its kernel against S4D's and central differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

from lrurun.config.recurrences.s4 import S4Recurrence
from lrurun.config.recurrences.s4d import S4DRecurrence
from lrurun.nn import recurrences
from lrurun.nn.recurrences import continuous
from tests.harness.loops import double
from tests.harness.state_spaces import bilinear, legs


@pytest.mark.parametrize("state", [4, 16])
def test_the_clipped_b_gives_the_kernel_of_the_published_initialisation(state):
    """With eigenvectors as LAPACK returns them: only imaginary parts of B are clipped, so their phases matter."""
    s4 = recurrences.build(S4Recurrence(clip_b=True), width=3, state=state)
    params = jax.jit(s4.init)(jax.random.key(0)) | {"D": jnp.zeros(3)}
    found, p = np.asarray(jax.jit(s4.kernels, static_argnums=1)(params, 64)), double(params)
    a, b = legs(state)
    low_rank = b / np.sqrt(2)
    skew = a + np.outer(low_rank, low_rank)
    frequencies, vectors = np.linalg.eigh(-1j * (skew - np.diag(np.diag(skew))))
    frequencies, vectors = frequencies[: state // 2], vectors[:, : state // 2]
    whole, q = vectors.conj().T @ b, vectors.conj().T @ low_rank
    assert np.max(np.abs(whole.imag)) > 2
    clipped = whole.real + 1j * np.clip(whole.imag, -2, 2)
    both = np.concatenate
    matrix = np.diag(both([-0.5 + 1j * frequencies, -0.5 - 1j * frequencies]))
    matrix = matrix - np.outer(both([q, q.conj()]), both([q.conj(), q]))
    driven = both([clipped, clipped.conj()])
    wanted = np.zeros(found.shape)
    for h in range(3):
        # our eigenvectors have the phases that make HiPPO's inputs positive, and are those of the other half
        read = (p["C_re"][h] - 1j * p["C_im"][h]) * (np.abs(whole) / whole)
        system = (matrix, driven[:, None], both([read, read.conj()])[None], np.zeros((1, 1)))
        move, x, *_ = scipy.signal.cont2discrete(system, np.exp(p["log_dt"][h]), method="bilinear")
        for k in range(64):
            wanted[0, k, h] = (system[2] @ x).item().real
            x = move @ x
    assert np.max(np.abs(found - wanted) / np.max(np.abs(wanted), axis=1, keepdims=True)) < 1e-5


@pytest.mark.parametrize(("state", "steps"), [(16, 256), pytest.param(64, 16_384, marks=pytest.mark.slow)])
def test_s4_s_kernel_starts_as_that_of_hippo(state, steps):
    """The matrix of HiPPO-LegS, entry by entry, discretised by SciPy and taken step by step, in double precision."""
    s4 = recurrences.build(S4Recurrence(dt_min=1e-3, dt_max=0.1), width=3, state=state)
    params = jax.jit(s4.init)(jax.random.key(0)) | {"D": jnp.zeros(3), "log_dt": jnp.log(jnp.array([1e-3, 1e-2, 0.1]))}
    found, p = np.asarray(jax.jit(s4.kernels, static_argnums=1)(params, steps)), double(params)
    a, b = legs(state)
    v = continuous.hippo(state).vectors[:, : state // 2].conj()
    wanted = np.zeros(found.shape)
    for h in range(3):
        c = 2 * ((p["C_re"][h] + 1j * p["C_im"][h]) @ v.conj().T).real
        system = (a, b[:, None], c[None], np.zeros((1, 1)))
        move, x, *_ = scipy.signal.cont2discrete(system, np.exp(p["log_dt"][h]), method="bilinear")
        for k in range(steps):
            wanted[0, k, h] = (c @ x).item()
            x = move @ x
    assert np.max(np.abs(found - wanted) / np.max(np.abs(wanted), axis=1, keepdims=True)) < 1e-5


def test_s4_s_spectrum_starts_as_that_of_hippo():
    """The matrix is triangular: -1, ..., -N. It is far from normal, and of a larger one float32 keeps few digits."""
    s4 = recurrences.build(S4Recurrence(), width=3, state=4)
    params = jax.jit(s4.init)(jax.random.key(0))
    steps = np.arange(1, 5)[::-1] * np.exp(double(params)["log_dt"][:, None])
    found = s4.spectrum(params).reshape(3, 4)
    np.testing.assert_allclose(np.sort(found.real), bilinear(-steps, 1)[0], atol=1e-6)
    np.testing.assert_allclose(found.imag, 0, atol=1e-6)
    params["P_im"] = params["P_im"].at[1].set(jnp.nan)
    assert np.isnan(s4.spectrum(params).reshape(3, 4)).all(axis=1).tolist() == [False, True, False]


def test_an_s4_without_its_rank_one_is_an_s4d():
    both = S4Recurrence(), S4DRecurrence(init="legs", discretization="bilinear")
    s4, s4d = (recurrences.build(settings, width=3, state=8, bidirectional=True) for settings in both)
    params = jax.jit(s4.init)(jax.random.key(0)) | {"P_re": jnp.zeros((3, 4))}
    wanted = jax.jit(s4d.kernels, static_argnums=1)({name: x for name, x in params.items() if name[0] != "P"}, 12)
    found = jax.jit(s4.kernels, static_argnums=1)(params, 12)
    np.testing.assert_allclose(found, wanted, atol=1e-6 * np.max(np.abs(wanted)))


def test_s4_s_kernel_has_the_slopes_of_central_differences():
    """In double precision, for each parameter along a random direction, at the start and where P and B are apart."""
    s4 = recurrences.build(S4Recurrence(), width=3, state=8, bidirectional=True)
    start, rng = double(jax.jit(s4.init)(jax.random.key(0))), np.random.default_rng(0)
    weight = rng.normal(size=(2, 12, 3))
    with jax.enable_x64(True):
        value = jax.jit(lambda p: jnp.sum(weight * s4.kernels(p, 12)))
        slopes = jax.jit(jax.grad(lambda p: jnp.sum(weight * s4.kernels(p, 12))))
        for arrays in (start, {name: x + 0.1 * rng.normal(size=x.shape) for name, x in start.items()}):
            found = slopes(arrays)
            for name, array in arrays.items():
                direction = rng.normal(size=array.shape)
                ends = [float(value(arrays | {name: array + h * direction})) for h in (1e-6, -1e-6)]
                wanted = (ends[0] - ends[1]) / 2e-6
                assert np.sum(np.asarray(found[name]) * direction) == pytest.approx(wanted, rel=1e-6, abs=1e-7), name

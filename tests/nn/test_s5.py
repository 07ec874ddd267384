"""S5: how it starts, against HiPPO and SciPy in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.signal

from lrurun.config.recurrences.s5 import S5Recurrence
from lrurun.nn import recurrences
from lrurun.nn.recurrences import continuous
from tests.harness.loops import double
from tests.harness.state_spaces import normal


@pytest.mark.parametrize("how", ["zoh", "bilinear"])
def test_s5_starts_as_a_real_system(how):
    """HiPPO's normal part, a real matrix of size N in blocks, discretised by SciPy and taken step by step."""
    n, blocks, h, dt = 12, 3, 5, 0.03
    settings = S5Recurrence(blocks=blocks, discretization=how, dt_min=dt, dt_max=dt)
    s5 = recurrences.build(settings, width=h, state=n)
    params = jax.jit(s5.init)(jax.random.key(0))
    p, rng = double(params), np.random.default_rng(1)
    a = scipy.linalg.block_diag(*[normal(n // blocks)] * blocks)
    v = scipy.linalg.block_diag(*[continuous.hippo(n // blocks).vectors[:, : n // blocks // 2]] * blocks)
    b0 = 2 * (v @ (p["B_re"] + 1j * p["B_im"])).real
    c0 = rng.normal(size=(h, n)) / np.sqrt(n)
    c = (c0 @ v).astype(np.complex64)
    params |= {"C_re": jnp.asarray(c.real), "C_im": jnp.asarray(c.imag)}
    a_bar, b_bar, *_ = scipy.signal.cont2discrete((a, b0, c0, np.zeros((h, h))), dt, method=how)
    u = rng.normal(size=(200, 1, h)).astype(np.float32)
    x, wanted = np.zeros(n), []
    for u_k in u[:, 0].astype(np.float64):
        x = a_bar @ x + b_bar @ u_k
        wanted.append(c0 @ x + p["D"] * u_k)
    y = np.asarray(jax.jit(s5.scan)(params, u))[:, 0]
    np.testing.assert_allclose(y, wanted, atol=1e-5 * np.max(np.abs(wanted)))
    eigenvalues = np.linalg.eigvals(a_bar)
    found = s5.spectrum(params)
    assert found.shape == (n,)
    assert max(np.min(np.abs(eigenvalues - one)) for one in found) < 1e-6
    # B0 is real, truncated, and of the variance 1 / N, whatever H is
    assert np.max(np.abs(b0)) * np.sqrt(n) < 2.3


@pytest.mark.parametrize(
    ("c_init", "conj_sym", "of_c"),
    [("truncated", True, 1 / 32), ("lecun", True, 1 / (32 * 200)), ("complex", False, 0.5)],
)
def test_s5_s_initial_scales(c_init, conj_sym, of_c):
    """N = 32, H = 200: the fan-in of B is N, and LeCun's C is smaller by the root of H."""
    settings = S5Recurrence(c_init=c_init, conj_sym=conj_sym, blocks=2, dt_min=0.01, dt_max=0.2)
    s5 = recurrences.build(settings, width=200, state=32, bidirectional=True)
    init = jax.jit(s5.init)
    p, other = double(init(jax.random.key(0))), double(init(jax.random.key(1)))
    for name, variance in {"B_re": 0.5 / 32, "B_im": 0.5 / 32, "C_re": of_c, "C_im_back": of_c}.items():
        assert np.var(p[name]) == pytest.approx(variance, rel=0.1)
        assert abs(np.mean(p[name])) < 0.1 * np.sqrt(variance)
    lam = -0.5 + 1j * np.linalg.eigvalsh(-1j * (normal(16) + np.eye(16) / 2))
    kept = lam[:8] if conj_sym else lam
    np.testing.assert_allclose(p["lam_re"] + 1j * p["lam_im"], np.tile(kept, 2), rtol=1e-5)
    np.testing.assert_array_equal(p["lam_im"], other["lam_im"])
    dt = np.exp(p["log_dt"])
    assert 0.01 <= dt.min() < 0.03
    assert 0.1 < dt.max() <= 0.2001

"""S4D: how it starts, its kernel against sums in double precision, and that forms which differ are caught."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.config.recurrences.s4d import S4DRecurrence
from lrurun.nn import conformance, convolution, recurrences
from lrurun.nn.recurrences.s4d import S4D
from tests.harness.loops import double
from tests.harness.state_spaces import zoh


def test_s4d_s_initial_values():
    s4d = recurrences.build(S4DRecurrence(init="legs", n_ssm=2), width=200, state=64)
    p = double(jax.jit(s4d.init)(jax.random.key(0)))
    assert np.var(p["C_re"]) == pytest.approx(0.5, rel=0.05)  # O(1): not scaled by the size of the state
    np.testing.assert_allclose(p["A_re_log"], np.log(0.5), rtol=1e-6)
    assert p["A_im"][1, :3] == pytest.approx([1303.3, 433.0, 258.2], abs=0.05)
    assert np.max(p["B_re"]) == 2.0  # cut: HiPPO's reach 41
    assert np.min(p["B_re"]) > 0.4
    assert np.all(np.exp(p["log_dt"]) > 0.000999)
    assert np.all(np.exp(p["log_dt"]) < 0.1001)


@pytest.mark.slow
def test_a_long_kernel_is_its_sum():
    """16,384 steps of N = 64: against complex128 powers of the eigenvalues that the float32 parameters stand for."""
    length = 16_384
    s4d = recurrences.build(S4DRecurrence(init="inv", dt_min=1e-4, dt_max=1e-2), width=4, state=64)
    params = jax.jit(s4d.init)(jax.random.key(0))
    # As after training: decays that end later than the sequence.
    params["A_re_log"] = params["A_re_log"] - 4.0
    kernel = np.asarray(jax.jit(s4d.kernels, static_argnums=1)(params, length))[0]
    p, k = double(params), np.arange(length)
    worst = []
    for h in range(4):
        a, dt = -np.exp(p["A_re_log"][h]) + 1j * p["A_im"][h], np.exp(p["log_dt"][h])
        # Rounding dt a to float32 turns its powers: that much the parameters leave open, to the scan as well.
        lam, factor = zoh(a, dt)
        weights = 2 * (p["C_re"][h] + 1j * p["C_im"][h]) * factor
        wanted = (weights @ lam[:, None] ** k).real
        wanted[0] += p["D"][h]
        worst.append(np.max(np.abs(kernel[:, h] - wanted)) / np.max(np.abs(wanted[1:])))
    assert max(worst) < 2e-3
    nu, theta, _ = s4d._system(params)
    exact = np.exp((-np.asarray(nu, np.float64) + 1j * np.asarray(theta, np.float64))[:, :, None] * k)
    _, _, b = s4d._system(params)
    weights = 2 * (p["C_re"] + 1j * p["C_im"]) * b.numpy()
    wanted = np.einsum("hn,hnk->kh", weights, exact).real
    wanted[0] += p["D"]
    assert np.max(np.abs(kernel - wanted)) < 3e-6 * np.max(np.sum(np.abs(weights), axis=1))


@pytest.mark.slow
def test_forms_that_differ_are_caught(monkeypatch):
    """A kernel that is off by a thousandth, and one that looks back from the current input on."""
    right = S4D.kernels

    def wrong(self, params, length):
        found = right(self, params, length)
        return found.at[0].multiply(1.001)

    def scan(self, params, u, mask=None):
        found = right(self, params, len(u))
        return convolution.convolve(u, found.at[1].set(jnp.roll(found[1], 1, axis=0)) if len(found) == 2 else found)

    monkeypatch.setattr(S4D, "kernels", wrong)
    monkeypatch.setattr(S4D, "scan", scan)
    settings, sizes = S4DRecurrence(), {"width": 4, "state": 8}
    cases = {
        two_way: conformance._Case(recurrences.build(settings, bidirectional=two_way, **sizes), jax.random.key(0))
        for two_way in (False, True)
    }
    assert not conformance._convolution_is_step(cases[False])[0]
    assert not conformance._scan_is_convolution(cases[False])[0]
    monkeypatch.setattr(S4D, "kernels", right)
    assert conformance._convolution_is_step(cases[False])[0]
    assert conformance._scan_is_convolution(cases[False])[0]
    assert not conformance._scan_is_convolution(cases[True])[0]

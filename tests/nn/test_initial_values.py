"""How recurrences start: against the laws, constants and matrices of the papers, by NumPy and SciPy."""

import functools
import math
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.signal
import scipy.stats

from lrurun.config.recurrences import KINDS
from lrurun.config.recurrences.block_diagonal import BlockDiagonalSettings
from lrurun.config.recurrences.dlr import DLRSettings
from lrurun.config.recurrences.dss import DSSSettings
from lrurun.config.recurrences.gru_lstm import GRUSettings, LSTMSettings
from lrurun.config.recurrences.lru import LRUSettings
from lrurun.config.recurrences.rg_lru import RGLRUSettings
from lrurun.config.recurrences.rnn import RNNSettings
from lrurun.config.recurrences.rotrnn import RotRNNSettings
from lrurun.config.recurrences.s4 import S4Settings
from lrurun.config.recurrences.s4d import S4DSettings
from lrurun.config.recurrences.s5 import S5Settings
from lrurun.config.recurrences.s6 import S6Settings
from lrurun.config.recurrences.sgconv import SGConvSettings
from lrurun.config.schema import ModelConfig
from lrurun.nn import conformance, recurrences, sampling
from lrurun.nn.draws import Parts, over_keys
from lrurun.nn.network import Model, body
from lrurun.nn.recurrences import continuous, lru
from lrurun.nn.recurrences.block_diagonal import remapped
from tests.harness import ROOT
from tests.harness.loops import double
from tests.harness.networks import features
from tests.harness.state_spaces import bilinear, legs, normal
from tests.nn import equations
from tests.nn.equations import softplus


@functools.cache
def compiled(settings, width, state, **others):
    layer = recurrences.build(settings, width=width, state=state, **others)
    return layer, jax.jit(layer.init)


def started(settings, width, state, key=0, **others):
    """A layer and its initial parameters."""
    layer, init = compiled(settings, width, state, **others)
    return layer, init(jax.random.key(key))


def all_started(settings, width, state, key=0, only=None, **others):
    """Layers of several settings and their initial parameters, or `only` one of these; compiled together."""
    layers = [recurrences.build(one, width=width, state=state, **others) for one in settings]

    @jax.jit
    def init(key):
        drawn = [layer.init(key) for layer in layers]
        return [{only: params[only]} for params in drawn] if only else drawn

    return list(zip(layers, init(jax.random.key(key)), strict=True))


def uniform(share):
    return scipy.stats.kstest(np.ravel(share), "uniform").pvalue > 0.01


# --- dense and diagonal ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("r_min", "r_max", "mean", "tolerance"),
    [(0.0, 0.99, 4.00, 0.02), (0.9, 0.999, 24.2, 0.015), (0.999, 0.9999, 1279.7, 0.01)],
)
def test_the_mean_gain_of_a_ring_is_that_of_the_lru_paper(r_min, r_max, mean, tolerance):
    """The mean of 1 / (1 - |lambda|^2) over the ring (proposition 3.3), four or more standard errors wide."""
    nu, _ = lru.ring(jax.random.key(1), 200_000, r_min, r_max, 1.0)
    assert np.mean(-1.0 / np.expm1(-2.0 * np.asarray(nu, np.float64))) == pytest.approx(mean, rel=tolerance)


def test_a_ring_is_uniform_in_area_and_stays_inside():
    nu, theta = (np.asarray(x, np.float64) for x in lru.ring(jax.random.key(2), 200_000, 0.5, 0.9, math.pi / 10))
    share = np.sort((np.exp(-2 * nu) - 0.25) / (0.81 - 0.25))
    assert np.max(np.abs(share - np.linspace(0, 1, share.size))) < 0.01
    assert share[0] > -1e-6
    assert share[-1] < 1 + 1e-6
    assert np.max(np.abs(np.sort(theta) / (math.pi / 10) - np.linspace(0, 1, theta.size))) < 0.01
    assert abs(np.corrcoef(nu, theta)[0, 1]) < 0.02


@pytest.mark.parametrize("r", [(0.0, 1.0), (0.0, 0.0), (1.0, 1.0), (0.999999, 1.0)])
def test_extreme_rings_have_finite_logarithms(r, monkeypatch):
    nu, theta = (np.asarray(x, np.float64) for x in lru.ring(jax.random.key(0), 200_000, *r, 2 * math.pi))
    assert 0.999e-7 <= nu.min() <= nu.max() <= -math.log(1e-4) * 1.0001
    assert 0 < theta.min() <= theta.max() <= 2 * math.pi * 1.000001
    inner, outer = np.clip(r, 1e-4, 1 - 1e-7)
    assert nu.min() >= -math.log(outer) * (1 - 1e-5)
    assert nu.max() <= -math.log(inner) * (1 + 1e-5)
    for drawn in (0.0, 1.0 - 2.0**-23):  # the generator may return these, one in 2^23 does
        with monkeypatch.context() as patch:
            patch.setattr(jax.random, "uniform", lambda key, shape, dtype, drawn=drawn: jnp.full(shape, drawn, dtype))
            nu, theta = lru.ring(jax.random.key(0), 200_000, *r, 2 * math.pi)
        assert np.all(np.isfinite(np.log(nu)))
        assert np.all(np.asarray(theta) > 0)


def test_gamma_keeps_its_digits():
    nu = jnp.asarray(np.logspace(-7, 0.9, 2000), jnp.float32)
    wanted = np.sqrt(-np.expm1(-2.0 * np.asarray(nu, np.float64)))
    # log gamma is near -8 there, and rounding it costs up to 8 units of the last place in gamma itself.
    np.testing.assert_allclose(np.exp(np.asarray(lru.log_gamma(nu), np.float64)), wanted, rtol=1e-6)


def test_all_parametrizations_start_at_the_same_eigenvalues():
    names = ("stable-exponential", "cartesian", "exponential")
    ring = {"r_min": 0.9, "r_max": 0.999, "max_phase": 1.0, "normalize": True}
    layers = [recurrences.build(LRUSettings(parametrization=one, **ring), width=3, state=50) for one in names]

    @jax.jit
    def run(key):
        drawn = [layer.init(key) for layer in layers]
        of = [(layer.parametrization, params) for layer, params in zip(layers, drawn, strict=True)]
        return drawn, [(form.eigenvalues(params), form.decay_and_phase(params)) for form, params in of]

    (one, *rest), ((wanted, of_first), *others) = run(jax.random.key(0))
    wanted = wanted.numpy()
    for two, (found, parts) in zip(rest, others, strict=True):
        found = found.numpy()
        np.testing.assert_allclose([found.real, found.imag], [wanted.real, wanted.imag], rtol=1e-5)
        np.testing.assert_allclose(parts, of_first, rtol=1e-4)
        np.testing.assert_array_equal(one["gamma_log"], two["gamma_log"])
    np.testing.assert_allclose(np.exp(2 * double(one)["gamma_log"]), 1 - np.abs(wanted) ** 2, rtol=1e-4)


def test_a_truncated_draw_is_that_of_a_normal_cut_off_at_two_standard_deviations():
    n, law = 300, scipy.stats.truncnorm(-2, 2)
    draws = [RNNSettings(draw=draw) for draw in ("normal", "truncated")]
    (_, usual), (layer, cut) = all_started(draws, 7, n, 4, bidirectional=True)
    entries = np.sort(double(cut)["A"].ravel()) * math.sqrt(n)
    assert scipy.stats.kstest(entries, law.cdf).pvalue > 0.01
    assert max(abs(entries[0]), abs(entries[-1])) <= 2 * (1 + 1e-6)
    assert sampling.TRUNCATED == pytest.approx(law.std(), rel=1e-12)
    assert layer.variances["A"] == pytest.approx(law.var() / n)
    # A alone is another, and its entries keep their order
    assert {name for name in cut if not np.array_equal(cut[name], usual[name])} == {"A"}
    assert np.all(np.diff(np.asarray(cut["A"]).ravel()[np.argsort(np.asarray(usual["A"]).ravel())]) >= 0)
    ends = np.asarray(sampling.truncated(jnp.asarray([-40.0, -6.0, 0.0, 1.0, 6.0, 40.0], jnp.float32)))
    assert ends == pytest.approx([-2, -2, 0, law.ppf(scipy.stats.norm.cdf(1.0)), 2, 2], abs=1e-6)


@pytest.mark.parametrize(("draw", "radius"), [("normal", 0.5), ("truncated", 1.0), ("remapped", 1.7)])
def test_a_dense_matrix_with_a_radius_is_the_drawn_one_scaled_to_that_spectral_radius(draw, radius):
    (_, drawn), (layer, scaled) = all_started([RNNSettings(draw=draw, radius=r) for r in (0.0, radius)], 7, 24, 4)
    before, after = double(drawn)["A"], double(scaled)["A"]
    sizes = [np.max(np.abs(np.linalg.eigvals(a))) for a in (before, after)]
    assert sizes[1] == pytest.approx(radius, rel=1e-5)
    np.testing.assert_allclose(after, before * radius / sizes[0], rtol=1e-5)
    assert {name for name in drawn if not np.array_equal(drawn[name], scaled[name])} == {"A"}
    assert layer.init_on_cpu
    assert "A" not in layer.variances


@pytest.mark.parametrize(("r_min", "max_phase"), [(0.0, math.pi), (0.99, math.pi), (0.5, 0.3)])
def test_eigenvalues_of_block_diagonal_matrices_are_remapped_as_in_the_paper(r_min, max_phase):
    """lambda to (nu + (1 - nu) tanh |lambda|) exp(i angle theta_0 / pi), by NumPy's eigenvectors."""
    drawn = np.random.default_rng(0).normal(size=(200, 2, 2)) / math.sqrt(2)
    found = np.asarray(jax.jit(remapped, static_argnums=(1, 2))(jnp.asarray(drawn, jnp.float32), r_min, max_phase))
    lam, vectors = np.linalg.eig(drawn)
    assert 20 < np.sum(lam[:, 0].imag != 0) < 180
    there = (r_min + (1 - r_min) * np.tanh(np.abs(lam))) * np.exp(1j * np.angle(lam) * max_phase / math.pi)
    wanted = (vectors @ (there[:, :, None] * np.linalg.inv(vectors))).real
    size = np.max(np.abs(wanted), axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(found / size, wanted / size, atol=3e-5)


def test_rings_of_tied_blocks_and_of_heads():
    ring = {"r_min": 0.5, "r_max": 0.9, "max_phase": 1.0}
    of_rings = (
        BlockDiagonalSettings(tied=True, **ring),
        LRUSettings(normalize=True, conjugate=True, heads=500, **ring),
        RotRNNSettings(heads=500, draw="ring", normalizer="gamma", **ring),
    )
    for layer, params in all_started(of_rings, 2, 1000, 7):
        lam = layer.spectrum(params)
        assert len(lam) == 1000
        upper = lam[lam.imag > 0]
        assert len(upper) == 500
        assert uniform((np.abs(upper) ** 2 - 0.25) / 0.56)
        assert uniform(np.angle(upper))
    layer, params = started(BlockDiagonalSettings(), 2, 8)
    params["A"] = np.where(np.arange(4)[:, None, None] == 1, np.float32(np.inf), params["A"])  # of a diverged run
    broken = layer.spectrum(params)
    assert np.isnan(broken).tolist() == [False, False, True, True, *[False] * 4]


def test_pairs_leave_the_initial_variance_of_the_output_as_it_was():
    ring = {"normalize": True, "r_min": 0.5, "r_max": 0.9}
    layers = [recurrences.build(LRUSettings(conjugate=one, **ring), width=64, state=128) for one in (False, True)]

    @jax.jit
    def run(u):
        drawn = [layer.init(jax.random.key(0)) | {"D": jnp.zeros(64)} for layer in layers]
        return [layer.scan(params, u) for layer, params in zip(layers, drawn, strict=True)]

    u = np.random.default_rng(1).normal(size=(60, 32, 64)).astype(np.float32)
    spread = [float(np.var(y[50:])) for y in map(np.asarray, run(u))]
    assert spread[1] == pytest.approx(spread[0], rel=0.1)


@pytest.mark.parametrize("draw", ["log", "ring"])
def test_rotrnn_starts_with_these_decays_and_angles(draw):
    settings = RotRNNSettings(heads=3000, r_min=0.5, r_max=0.999, max_phase=0.3, draw=draw, normalizer="gamma")
    p = double(started(settings, 2, 12_000, 3)[1])
    gamma = np.exp(-np.exp(p["gamma_log"]))
    low, high = math.log(-math.log(0.999)), math.log(-math.log(0.5))
    assert uniform((p["gamma_log"] - low) / (high - low) if draw == "log" else (gamma**2 - 0.25) / (0.999**2 - 0.25))
    assert 0.5 - 1e-6 < gamma.min() < gamma.max() < 0.999 + 1e-6
    assert uniform(p["theta"] / 0.3)
    assert p["theta"].min() > 0
    np.testing.assert_allclose(np.exp(2 * p["xi_log"]), 1 - gamma**2, rtol=1e-4)


def test_the_trace_normaliser_of_rotrnn_keeps_its_digits_near_gamma_one():
    layer, params = started(RotRNNSettings(heads=50), 3, 100)
    params["gamma_log"] = jnp.asarray(np.log(np.logspace(-9, 0, 50)), jnp.float32)
    p = double(params)
    wanted = np.sqrt(-np.expm1(-2 * np.exp(p["gamma_log"])) / np.sum(p["B"] ** 2, axis=(1, 2)))
    np.testing.assert_allclose(jax.jit(layer._normalizer)(params), wanted, rtol=3e-6)


# --- cells and gates ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "forget", "usual"), [(GRUSettings, 2, 0.0), (LSTMSettings, 1, 1.0)])
def test_biases_and_matrices_of_gru_and_lstm(kind, forget, usual):
    """Usual ones, those of chrono initialisation, whose time constants T are uniform, and of T = 1."""

    ends, low, high = {"t_max": 100.0}, 2, 100
    if kind is LSTMSettings:
        ends, low, high = {"t_min": 30.0, "t_max": 60.0}, 30, 60
    settings = [kind(), kind(**ends), kind(t_min=1.0, t_max=1.0)]
    plain, *chrono = [double(params) for _, params in all_started(settings, 5, 100, 1)]
    assert [set(part) for part in np.split(plain["b"], 4)] == [{usual if k == forget else 0.0} for k in range(4)]
    found, shortest = (np.split(params["b"], 4) for params in chrono)
    assert uniform((1 + np.exp(found[forget]) - low) / (high - low))
    if kind is LSTMSettings:
        np.testing.assert_array_equal(found[0], -found[1])  # the input gate is 1/T
    others = {0, 1, 2, 3} - {forget} - ({0} if kind is LSTMSettings else set())
    assert not np.any([found[k] for k in others])
    np.testing.assert_allclose(shortest[forget], math.log(1e-3), rtol=1e-6)
    blocks = plain["A"].reshape(-1, 100, 100)
    for block in blocks:
        np.testing.assert_allclose(block @ block.T, np.eye(100), atol=1e-5)
    assert abs(np.sum(blocks[0] * blocks[1])) < 100 * 0.99  # different ones


def test_the_two_published_initialisations_of_rg_lru_and_those_of_the_ring():
    """Medians and shares of long time constants, from the two laws by hand."""

    def decay(params):
        rate = softplus(double(params)["Lambda"])
        return lambda r: np.exp(-8 * r * rate)

    published = [RGLRUSettings(init=init) for init in ("code", "paper")]
    code, paper = (decay(params) for _, params in all_started(published, 4000, 4000, only="Lambda"))
    assert np.median(code(1)) == pytest.approx(0.668, abs=0.02)
    assert np.median(code(0.5)) == pytest.approx(0.817, abs=0.01)
    assert code(1).min() == pytest.approx(0.430, abs=0.01)
    shares = [np.mean(-1 / np.log(a(0.5)) > steps) for a in (code, paper) for steps in (64, 250)]
    np.testing.assert_allclose(shares, [0.03, 0, 0.30, 0.07], atol=0.02)
    assert 0.9 <= paper(1).min() < paper(1).max() <= 0.999 + 1e-6
    fixed = [
        RGLRUSettings(recurrence_gate=False, input_gate=False, r_min=0.5, r_max=0.99, **settings)
        for settings in ({"decay": "exponential"}, {"init": "ring"})
    ]
    made = [layer.spectrum(params).real for layer, params in all_started(fixed, 64, 64)]
    np.testing.assert_allclose(made[1], made[0], rtol=1e-5)
    assert 0.5 <= made[0].min() < 0.7 < 0.95 < made[0].max() <= 0.99


def test_time_constants_and_decays_of_s6():
    params = double(started(S6Settings(), 4000, 3)[1])
    quantiles = np.quantile(np.log(softplus(params["b_dt"])), [0, 0.5, 1])
    np.testing.assert_allclose(quantiles, np.log([0.001, 0.01, 0.1]), atol=0.1)
    np.testing.assert_allclose(np.exp(params["A_log"][7]), [1, 2, 3], rtol=1e-6)
    decays = np.exp(double(started(S6Settings(heads=500), 500, 3)[1])["A_log"])
    np.testing.assert_allclose([decays.min(), decays.mean(), decays.max()], [1, 8.5, 16], atol=0.5)


# --- state spaces ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["zoh", "bilinear"])
def test_s5_starts_as_a_real_system(how):
    """HiPPO's normal part, a real matrix of size N in blocks, discretised by SciPy and taken step by step."""
    n, blocks, h, dt = 12, 3, 5, 0.03
    s5, params = started(S5Settings(blocks=blocks, discretization=how, dt_min=dt, dt_max=dt), h, n)
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
    found = s5.spectrum(params)
    assert found.shape == (n,)
    assert max(np.min(np.abs(np.linalg.eigvals(a_bar) - one)) for one in found) < 1e-6
    assert np.max(np.abs(b0)) * np.sqrt(n) < 2.3  # B0 is real, truncated, and of the variance 1 / N, whatever H is


@pytest.mark.parametrize(
    ("c_init", "conj_sym", "of_c"),
    [("truncated", True, 1 / 32), ("lecun", True, 1 / (32 * 200)), ("complex", False, 0.5)],
)
def test_s5_s_initial_scales(c_init, conj_sym, of_c):
    """N = 32, H = 200: the fan-in of B is N, and LeCun's C is smaller by the root of H."""
    settings = S5Settings(c_init=c_init, conj_sym=conj_sym, blocks=2, dt_min=0.01, dt_max=0.2)
    p, other = (double(started(settings, 200, 32, key, bidirectional=True)[1]) for key in (0, 1))  # compiled once
    for name, variance in {"B_re": 0.5 / 32, "B_im": 0.5 / 32, "C_re": of_c, "C_im_back": of_c}.items():
        assert np.var(p[name]) == pytest.approx(variance, rel=0.1)
        assert abs(np.mean(p[name])) < 0.1 * np.sqrt(variance)
    lam = -0.5 + 1j * np.linalg.eigvalsh(-1j * (normal(16) + np.eye(16) / 2))
    np.testing.assert_allclose(p["lam_re"] + 1j * p["lam_im"], np.tile(lam[:8] if conj_sym else lam, 2), rtol=1e-5)
    np.testing.assert_array_equal(p["lam_im"], other["lam_im"])
    dt = np.exp(p["log_dt"])
    assert 0.01 <= dt.min() < 0.03
    assert 0.1 < dt.max() <= 0.2001


def test_s4d_s_initial_values():
    p = double(started(S4DSettings(init="legs", n_ssm=2), 200, 64)[1])
    assert np.var(p["C_re"]) == pytest.approx(0.5, rel=0.05)  # O(1): not scaled by the size of the state
    np.testing.assert_allclose(p["A_re_log"], np.log(0.5), rtol=1e-6)
    assert p["A_im"][1, :3] == pytest.approx([1303.3, 433.0, 258.2], abs=0.05)
    assert np.max(p["B_re"]) == 2.0  # cut: HiPPO's reach 41
    assert np.min(p["B_re"]) > 0.4
    two = started(S4DSettings(shared_dt=False), 4, 8)[1]
    np.testing.assert_array_equal(two["log_dt_b"], two["log_dt"])
    assert np.all((np.exp(p["log_dt"]) > 0.000999) & (np.exp(p["log_dt"]) < 0.1001))


def test_the_clipped_b_of_s4_gives_the_kernel_of_the_published_initialisation():
    """With eigenvectors as LAPACK returns them: only imaginary parts of B are clipped, so their phases matter."""
    state = 16
    s4, params = started(S4Settings(clip_b=True), 3, state)
    found = np.asarray(jax.jit(s4.kernels, static_argnums=1)(params | {"D": jnp.zeros(3)}, 64))
    p, (a, b) = double(params), legs(state)
    low_rank = b / np.sqrt(2)
    skew = a + np.outer(low_rank, low_rank)
    frequencies, vectors = np.linalg.eigh(-1j * (skew - np.diag(np.diag(skew))))
    frequencies, vectors = frequencies[: state // 2], vectors[:, : state // 2]
    whole, q = vectors.conj().T @ b, vectors.conj().T @ low_rank
    assert np.max(np.abs(whole.imag)) > 2
    clipped, both = whole.real + 1j * np.clip(whole.imag, -2, 2), np.concatenate
    matrix = np.diag(both([-0.5 + 1j * frequencies, -0.5 - 1j * frequencies]))
    matrix = matrix - np.outer(both([q, q.conj()]), both([q.conj(), q]))
    wanted = np.zeros(found.shape)
    for h in range(3):
        # our eigenvectors have the phases that make HiPPO's inputs positive, and are those of the other half
        read = (p["C_re"][h] - 1j * p["C_im"][h]) * (np.abs(whole) / whole)
        drive, out = both([clipped, clipped.conj()])[:, None], both([read, read.conj()])[None]
        system = (matrix, drive, out, np.zeros((1, 1)))
        move, x, *_ = scipy.signal.cont2discrete(system, np.exp(p["log_dt"][h]), method="bilinear")
        for k in range(64):
            wanted[0, k, h] = (out @ x).item().real
            x = move @ x
    assert np.max(np.abs(found - wanted) / np.max(np.abs(wanted), axis=1, keepdims=True)) < 1e-5


@pytest.mark.parametrize(("state", "steps"), [(16, 256), pytest.param(64, 16_384, marks=pytest.mark.slow)])
def test_s4_s_kernel_starts_as_that_of_hippo(state, steps):
    """The matrix of HiPPO-LegS, entry by entry, discretised by SciPy and taken step by step, in double precision."""
    s4, params = started(S4Settings(dt_min=1e-3, dt_max=0.1), 3, state)
    params |= {"D": jnp.zeros(3), "log_dt": jnp.log(jnp.array([1e-3, 1e-2, 0.1]))}
    found, p = np.asarray(jax.jit(s4.kernels, static_argnums=1)(params, steps)), double(params)
    (a, b), v = legs(state), continuous.hippo(state).vectors[:, : state // 2].conj()
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
    s4, params = started(S4Settings(), 3, 4)
    steps = np.arange(1, 5)[::-1] * np.exp(double(params)["log_dt"][:, None])
    found = s4.spectrum(params).reshape(3, 4)
    np.testing.assert_allclose(np.sort(found.real), bilinear(-steps, 1)[0], atol=1e-6)
    np.testing.assert_allclose(found.imag, 0, atol=1e-6)
    params["P_im"] = np.where(np.arange(3)[:, None] == 1, np.float32(np.nan), params["P_im"])
    assert np.isnan(s4.spectrum(params).reshape(3, 4)).all(axis=1).tolist() == [False, True, False]


# --- kernels -----------------------------------------------------------------------------------------------------


def test_dlr_s_initial_values():
    n, h = 2000, 4
    p = double(started(DLRSettings(), h, n, 8, bidirectional=True)[1])
    np.testing.assert_allclose(p["log_im"], 2 * np.pi * np.arange(n) / n, rtol=1e-6)
    assert uniform((np.log(2 * p["log_re"] ** 2) - math.log(0.0005)) / (math.log(0.5) - math.log(0.0005)))
    assert np.std(p["W_im_back"]) * n == pytest.approx(1, abs=0.04)
    drawn = started(DLRSettings(phases="normal"), h, n, 8)[1]["log_im"]
    assert scipy.stats.kstest(drawn, "norm").pvalue > 0.01


def test_where_dss_starts():
    n = 8
    p = double(started(DSSSettings(), 500, n)[1])
    np.testing.assert_allclose(-np.exp(p["re_log"]), -0.5, rtol=1e-6)
    np.testing.assert_allclose(p["im"], np.pi * np.arange(n), rtol=1e-6)
    assert uniform((p["log_dt"] - math.log(0.001)) / math.log(100))
    lam = np.linalg.eigvals(normal(2 * n))
    other = started(DSSSettings(init="hippo"), 2, n)[1]
    np.testing.assert_allclose(other["im"], np.sort(lam.imag)[n:], rtol=1e-5)


def test_sgconv_s_kernel_starts_with_norm_one():
    forms = [equations.FORMS[f"sgconv, {name}"].settings for name in ("one scale", "cut", "trained", "no decay")]
    for state, used in ((1, forms[1:2]), (8, forms)):
        for settings, (_, params) in zip(used, all_started(used, 5, state, 1, bidirectional=True), strict=True):
            p = double(params)
            alpha = equations.first_alpha(settings, 5)
            norm = equations.sgconv_norm(settings, alpha, len(p["w"]), state)
            for way in ("", "_back"):
                k = equations.scales(p[f"w{way}"], alpha) / norm[:, None]
                np.testing.assert_allclose(np.linalg.norm(k, axis=1), 1.0, rtol=1e-5)
            assert not np.array_equal(p["w"], p["w_back"])
    for init, deviation in (("one", 1.0), ("state", 1 / 256)):
        w = double(started(SGConvSettings(kernel_length=1024, init=init), 32, 256)[1])["w"]
        assert w.shape == (3, 32, 256)
        # 24,576 numbers; that the norm is exact takes one in 768 away.
        assert np.std(w) == pytest.approx(deviation, rel=0.02)


@pytest.mark.parametrize(
    ("length", "state", "scales"),
    [(1, 8, 1), (8, 8, 1), (9, 8, 2), (16, 8, 2), (17, 8, 3), (33, 8, 4), (2**18, 4096, 7), (2**20, 4096, 9)],
)
def test_sgconv_has_just_enough_scales(length, state, scales):
    """With H = 32 and N = 4,096, lengths of 2^18 take the 920K parameters of the DLR paper's Table 2."""
    layer = recurrences.build(SGConvSettings(kernel_length=length), width=32, state=state)
    assert jax.eval_shape(layer.init, jax.random.key(0))["w"].shape == (scales, 32, state)


# --- parts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (40_000,)])
def test_numpy_draws_the_bits_of_jax(shape):
    keys = jax.random.split(jax.random.key(2**32 - 1), 3)

    def draw(seed, key):
        folded = jax.random.fold_in(jax.random.key(seed), 2**32 - 1)
        many = jax.random.split(key, (2, 3))
        bits = [jax.random.bits(one, shape) for one in (folded, key, many[1, 2], *jax.random.split(key))]
        return bits, jax.vmap(lambda one: jax.random.bits(jax.random.fold_in(one, 3), shape))(jax.random.split(key, 2))

    parts = Parts(draw, np.uint32(0), keys[0])
    words = np.asarray(jax.random.key_data(keys[1]))
    drawn = parts.draw([np.uint32(7), words])
    computed = jax.jit(parts.compute)(drawn)
    found, wanted = parts.arrange(drawn, jax.device_get(computed)), jax.jit(draw)(np.uint32(7), keys[1])
    assert not computed
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(one, other)


def in_parts(function, key):
    """What `function` gives of `key`, each part by itself."""
    return all_in_parts(function, [key])[0]


def all_in_parts(function, keys):
    """The same of many keys, compiled once."""
    parts = Parts(function, keys[0])
    compute = jax.jit(parts.compute)

    def one(key):
        drawn = parts.draw([np.asarray(jax.random.key_data(key))])
        return parts.arrange(drawn, jax.device_get(compute(drawn)))

    return [one(key) for key in keys]


def whole(distribution, key, shapes, scales):
    """Pieces of one sample as all of XLA's programs had them before there were parts."""
    pool = distribution(key, sum(map(math.prod, shapes.values())))
    pieces = jnp.split(pool, np.cumsum([math.prod(shape) for shape in shapes.values()])[:-1])
    return {n: piece.reshape(shapes[n]) * scales[n] for n, piece in zip(shapes, pieces, strict=True)}


def lecun(key, shapes):
    """Weights as they were before scales were constants."""
    unit = whole(sampling._truncated_normal, key, shapes, dict.fromkeys(shapes, 1.0))
    return {name: array / array.shape[-2] ** 0.5 for name, array in unit.items()}


def equal(found, wanted):
    """Whether two trees of arrays have the same bits."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    return all(np.asarray(a).dtype == b.dtype and np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def of_a_plug_in(key):
    """Draws of other widths, in loops, in conditions, with keys of its own, and with those of rbg."""
    key_walk, key_gamma, key_other = jax.random.split(key, 3)

    def step(walk, key):
        return walk + jax.random.normal(key, (3,)), jax.random.uniform(key)

    _, steps = jax.lax.scan(step, jnp.zeros(3), jax.random.split(key_walk, 4))
    bits = jax.random.bits(key_other, (5,), jnp.uint8)
    return {
        "walk": jax.lax.fori_loop(0, 3, lambda k, x: x + step(x, jax.random.fold_in(key_walk, k))[0], jnp.zeros(3)),
        "steps": steps,
        "gamma": jax.random.gamma(key_gamma, 2.0, (4,)),
        "order": jax.random.permutation(key_other, 7),
        "narrow": bits,
        "chosen": jax.lax.cond(bits[0] > 9, lambda: jax.random.normal(key, (2,)), lambda: jnp.ones(2)),
        "old": jax.random.normal(jax.random.wrap_key_data(jax.random.key_data(key)), (2,)),
        "others": jax.random.normal(jax.random.key(3, impl="rbg"), (2,)),
        "orthogonal": jax.random.orthogonal(key_other, 3),
        "turned": jax.lax.reshape(jnp.arange(6.0).reshape(2, 3), (3, 2), dimensions=(1, 0)),
        "constant": jnp.full((2, 3), 0.25),
        "number": jnp.float32(2.0),
    }


def test_parts_of_a_plug_in_have_the_bits_of_the_whole():
    key = jax.random.key(5)
    assert equal(in_parts(of_a_plug_in, key), jax.jit(of_a_plug_in)(key))
    found = in_parts(lambda key: over_keys(of_a_plug_in, jax.random.split(key, 2)), key)
    wanted = jax.jit(lambda key: jax.lax.map(of_a_plug_in, jax.random.split(key, 2)))(key)
    # jax 0.10 rounds the loops of its gamma otherwise beside other draws
    np.testing.assert_allclose(found.pop("gamma"), wanted.pop("gamma"), rtol=1e-6)
    assert equal(found, wanted)


def test_an_initialisation_may_have_no_draws():
    def constants(_):
        return {"A": jnp.eye(3), "b": jnp.arange(2.0), "c": np.ones((2, 2), np.float32), "d": jnp.zeros(())}

    key = jax.random.key(1)
    found = in_parts(lambda key: over_keys(constants, jax.random.split(key, 2)), key)
    assert equal(found, {name: np.stack([array, array]) for name, array in constants(key).items()})
    assert equal(jax.jit(lambda key: over_keys(constants, jax.random.split(key, 2)))(key), found)


def test_a_sample_may_have_numbers_among_its_arrays():
    shapes, variances = {"a": (), "b": (3,), "c": (16,)}, {"a": 4.0, "b": 1.0, "c": 1.0}
    key = jax.random.key(1)
    found = in_parts(lambda key: sampling.normals(key, shapes, variances), key)
    entries = np.asarray(jax.jit(lambda key: jax.random.normal(key, (20,)))(key))
    np.testing.assert_allclose(found["a"], 2.0 * entries[0], rtol=1e-6)
    np.testing.assert_allclose(np.concatenate([found["b"], found["c"]]), entries[1:], rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_recurrences_in_parts_have_the_bits_of_the_whole(kind, monkeypatch):
    """Of two blocks of the last variant, in both directions where it can; most rows are no whole vectors."""
    settings = list(conformance.variants(kind).values())[-1]
    width, state = (48, 48) if settings.elementwise else (20, 24)
    two_way = not KINDS[kind].load().causal_only
    layer = recurrences.build(settings, width=width, state=state, bidirectional=two_way)
    found = in_parts(lambda key: over_keys(layer.init, jax.random.split(key)), jax.random.key(1))
    monkeypatch.setattr(sampling, "_pieces", whole)
    assert equal(found, jax.jit(lambda key: jax.lax.map(layer.init, jax.random.split(key)))(jax.random.key(1)))


def test_a_network_in_parts_has_the_bits_of_the_whole(monkeypatch):
    config = ModelConfig(recurrence=LRUSettings(normalize=True), width=16, state=12, depth=2, final_norm=True)
    model = Model(config, features(classes=10, length=16))
    found = in_parts(model.init, jax.random.key(2))
    monkeypatch.setattr(sampling, "_pieces", whole)
    monkeypatch.setattr(body, "lecun_normals", lecun)
    assert equal(found, jax.jit(model.init)(jax.random.key(2)))


def test_short_rows_in_parts_have_the_bits_of_the_whole(monkeypatch):
    """A processor computes several rows of 3 at once, and rounds those that are left over otherwise."""
    config = ModelConfig(recurrence=LRUSettings(), width=18, state=4, depth=4, glu="switch", experts=3)
    model, keys = Model(config, features(classes=10, length=16)), list(jax.random.split(jax.random.key(1), 100))

    def routers(key):
        return [block["switch"]["router"] for block in model.init(key)[0]["blocks"].values()]

    found = all_in_parts(routers, keys)
    monkeypatch.setattr(sampling, "_pieces", whole)
    assert equal(found, list(map(jax.jit(routers), keys)))


def test_kernels_of_sgconv_in_parts_have_the_bits_of_the_whole():
    """What divides them is computed of them in other loops than they are, so that their rounding differs there."""
    layer = recurrences.build(SGConvSettings(kernel_length=30), width=21, state=5)
    keys = list(jax.random.split(jax.random.key(1), 20))
    assert equal(all_in_parts(layer.init, keys), list(map(jax.jit(layer.init), keys)))


def test_parts_outside_of_programs_have_the_bits_of_single_operations(monkeypatch):
    """A program makes one constant of two factors; studies draw without one, from rows that are no whole vectors."""
    layer = recurrences.build(S4DSettings(init="lin"), width=20, state=24, bidirectional=True)
    found = layer.init(jax.random.key(1))
    monkeypatch.setattr(sampling, "_pieces", whole)
    assert equal(found, layer.init(jax.random.key(1)))


@pytest.mark.slow
def test_parts_have_the_bits_of_the_whole_where_xla_optimises():
    """As it does for users: tests compile without that, see FLAGS."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", __file__, "-k", "parts and bits and not optimises"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"XLA_FLAGS": ""}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout

"""DLR and DSS-exp, and the powers that their kernels are made of, against NumPy in double precision."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from lrurun.config import plan as planning
from lrurun.config.recurrences.dlr import DLRRecurrence
from lrurun.config.recurrences.dss import DSSRecurrence
from lrurun.errors import UsageError
from lrurun.nn import recurrences
from lrurun.nn.complex import Complex
from lrurun.nn.convolution import powers
from lrurun.nn.recurrences import dlr
from tests.harness.loops import double

WIDTH, STATE = 3, 8


# --- powers ------------------------------------------------------------------------------------------------------


def test_angles_keep_their_digits_however_long():
    rng = np.random.default_rng(0)
    small = np.concatenate([2 * np.pi * np.arange(64) / 64, rng.uniform(-7, 7, 300), [1e-6, -1e-9, 0.0, 1e-4]])
    phases = np.concatenate([small, rng.uniform(-1024, 1024, 200)]).astype(np.float32)
    for length, bar in ((2**12, 1e-6), (2**20, 1e-5), (2**31 - 1, 2e-2)):
        steps = np.unique(np.append(rng.integers(0, length, 200), [0, 1, length - 1, length])).astype(np.uint32)
        found = np.asarray(jax.jit(powers.angle)(jnp.asarray(phases)[:, None], jnp.asarray(steps)[None]))
        assert np.max(np.abs(found)) <= np.pi * (1 + 1e-6)
        assert np.finfo(np.longdouble).nmant >= 63
        wanted = phases.astype(np.longdouble)[:, None] * steps.astype(np.longdouble)[None]
        wanted = np.asarray(np.exp(1j * wanted), complex)
        assert np.max(np.abs(np.exp(1j * found.astype(np.float64)) - wanted)) < bar, length


def test_angles_of_what_is_no_phase_are_not_numbers_and_the_gradient_is_that_of_the_product():
    steps = jnp.arange(4, dtype=jnp.uint32)[None]
    assert np.all(np.isnan(jax.jit(powers.angle)(jnp.asarray([[np.inf], [np.nan], [2.0**19]], jnp.float32), steps)))
    exponents = jnp.asarray([[3, 2**20]], jnp.uint32)
    slope = jax.jit(jax.grad(lambda p: jnp.sum(powers.angle(p[None, None], exponents))))
    assert slope(jnp.float32(-2.5)) == 3 + 2**20


@pytest.fixture(scope="module")
def million():
    """A kernel of 2^20 lags in float32, that in complex128, and what it is made of."""
    n, h, length = 64, 2, 2**20
    rng = np.random.default_rng(1)
    nu = jnp.asarray(np.geomspace(1e-8, 1e-5, n), jnp.float32)
    theta = jnp.asarray(2 * np.pi * np.arange(n) / n + 0.01, jnp.float32)
    w = Complex(*(jnp.asarray(rng.normal(size=(h, n)) / n, jnp.float32) for _ in range(2)))
    made = jax.jit(powers.kernel, static_argnums=3).lower(w, nu, theta, length).compile()
    kernel = made(w, nu, theta)
    log_lam = -np.asarray(nu, np.float64) + 1j * np.asarray(theta, np.float64)
    weights = w.numpy()
    # phases of 10^7 radians are exact to 10^-9 in double precision
    blocks = [weights @ np.exp(log_lam[:, None] * np.arange(at, at + 2**15)) for at in range(0, length, 2**15)]
    return made, kernel.numpy(), np.concatenate(blocks, axis=1)


@pytest.mark.slow
def test_a_kernel_of_a_million_lags_keeps_its_phases(million):
    _, found, wanted = million
    assert np.max(np.abs(found - wanted)) < 1e-5 * np.max(np.abs(wanted))


@pytest.mark.slow
def test_a_kernel_of_a_million_lags_never_holds_all_powers(million):
    made, found, _ = million
    held = made.memory_analysis().temp_size_in_bytes
    all_powers = 2 * 4 * 64 * 2**20
    assert held < 2 * 4 * found.size < all_powers / 16, "less than what is returned"


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("length", [1, 37, 64, 200])
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


# --- DLR ---------------------------------------------------------------------------------------------------------


def dlr_kernel(settings, p, length, way=""):
    """(H, length), by the paper's listing."""
    a2 = p["log_re"] ** 2 if "log_re" in p else np.zeros_like(p["log_im"])
    lags = np.exp((-a2 + 1j * p.get("log_im", np.zeros_like(a2)))[:, None] * np.arange(length))
    k = (p[f"W_re{way}"] + 1j * p.get(f"W_im{way}", 0.0)) @ lags
    k = {"real": k.real, "imag": k.imag, "sum": k.real + k.imag, "prod": k.real * k.imag}[settings.cast]
    k[:, settings.kernel_length or length :] = 0.0
    return k


def dss_kernel(settings, p, length, way=""):
    lam = -np.exp(p["re_log"]) + 1j * p["im"]
    dt = np.exp(p["log_dt"])[:, None]
    w = (p[f"W_re{way}"] + 1j * p[f"W_im{way}"]) * (np.exp(dt * lam) - 1) / lam
    k = np.einsum("hn,hnl->hl", w, np.exp((dt * lam)[..., None] * np.arange(length))).real
    k[:, settings.kernel_length or length :] = 0.0
    return k


def summed(kernels, d, u, lengths):
    """Outputs from (1 or 2, H, L) kernels, each sequence alone: the second starts at the next input."""
    y = np.zeros(u.shape)
    for i, length in enumerate(lengths):
        y[:length, i] = d * u[:length, i]
        for t in range(length):
            for s in range(length):
                if s <= t:
                    y[t, i] += kernels[0][:, t - s] * u[s, i]
                elif len(kernels) == 2:
                    y[t, i] += kernels[1][:, s - t - 1] * u[s, i]
    return y


FORMS = {
    "real": DLRRecurrence(),
    "imag": DLRRecurrence(cast="imag", phases="normal"),
    "sum": DLRRecurrence(cast="sum"),
    "prod": DLRRecurrence(cast="prod"),
    "unit circle": DLRRecurrence(poles="unit"),
    "real weights": DLRRecurrence(weights="real"),
    "reals": DLRRecurrence(poles="real", weights="real"),
    "short": DLRRecurrence(kernel_length=5),
    "short prod": DLRRecurrence(cast="prod", kernel_length=5),
    "dss": DSSRecurrence(),
    "dss short": DSSRecurrence(init="hippo", kernel_length=5),
}


@pytest.mark.parametrize("form", FORMS)
def test_outputs_are_those_of_the_kernels_in_both_directions(strict, form):
    settings = FORMS[form]
    recurrence = recurrences.build(settings, width=WIDTH, state=STATE, bidirectional=True)
    params = recurrence.init(jax.random.key(4))
    p = double(params)
    of = dss_kernel if isinstance(settings, DSSRecurrence) else dlr_kernel
    lengths, steps = [21, 9, 1], 21
    kernels = [of(settings, p, steps, way) for way in ("", "_back")]
    u = np.random.default_rng(0).normal(size=(steps, 3, WIDTH))
    mask = np.arange(steps)[:, None] < np.array(lengths)
    y = np.asarray(jax.jit(recurrence.scan)(params, jnp.asarray(u, jnp.float32), mask))
    wanted = summed(kernels, p["D"], u, lengths)
    np.testing.assert_allclose(y[mask], wanted[mask], atol=2e-6 * np.max(np.abs(wanted)))


@pytest.mark.parametrize("form", ["sum", "short", "short prod", "dss short"])
def test_steps_are_the_kernel(form):
    """In double precision, one step after the other, beyond the end of a kernel that is cut."""
    recurrence = recurrences.build(FORMS[form], width=WIDTH, state=STATE)
    p = double(recurrence.init(jax.random.key(5)))
    of = dss_kernel if isinstance(FORMS[form], DSSRecurrence) else dlr_kernel
    u = np.random.default_rng(0).normal(size=(21, 2, WIDTH))
    with jax.enable_x64(True):
        step = jax.jit(recurrence.step)
        state = jax.tree.map(lambda x: x.astype(np.float64), recurrence.initial_state(2))
        y = []
        for u_k in u:
            state, y_k = step(p, state, u_k)
            y.append(np.asarray(y_k))
    np.testing.assert_allclose(np.stack(y), summed([of(FORMS[form], p, 21)], p["D"], u, [21, 21]), atol=1e-11)


def test_the_product_kernel_is_a_dlr_of_size_4_n_squared():
    """Gupta et al. 2023, appendix A.2: all products of two of the eigenvalues and of their conjugates."""
    recurrence = recurrences.build(FORMS["prod"], width=WIDTH, state=STATE)
    p = double(recurrence.init(jax.random.key(6)))
    lam = np.exp(-(p["log_re"] ** 2) + 1j * p["log_im"])
    w = p["W_re"] + 1j * p["W_im"]
    left, right = np.concatenate([lam, lam.conj()]), np.concatenate([lam, lam.conj()])
    w_left = np.concatenate([w, w.conj()], axis=1) / 2
    w_right = np.concatenate([w, -w.conj()], axis=1) / 2j
    big = np.kron(left, right)
    weights = np.einsum("hm,hn->hmn", w_left, w_right).reshape(WIDTH, -1)
    assert big.size == 4 * STATE**2
    wanted = weights @ big[:, None] ** np.arange(200)
    assert np.max(np.abs(wanted.imag)) < 1e-12
    with jax.enable_x64(True):
        kernels = jax.jit(recurrence.kernels, static_argnums=1)
        found = np.asarray(kernels(p | {"D": np.zeros(WIDTH)}, 200))[0].T
    np.testing.assert_allclose(found, wanted.real, atol=1e-14)
    single = np.asarray(kernels({k: jnp.asarray(v, jnp.float32) for k, v in p.items()}, 200))[0].T
    np.testing.assert_allclose(single[:, 1:], wanted.real[:, 1:], atol=1e-5 * np.max(np.abs(wanted)))


def test_a_product_kernel_of_a_large_state_has_no_step():
    recurrence = recurrences.build(FORMS["prod"], width=1, state=dlr.LARGEST_PRODUCT + 1)
    params = {name: jnp.ones(leaf.shape) for name, leaf in jax.eval_shape(recurrence.init, jax.random.key(0)).items()}
    with pytest.raises(ValueError, match="up to state = 128, found state = 129"):
        recurrence.step(params, recurrence.initial_state(1), jnp.ones((1, 1)))
    assert jax.eval_shape(recurrence.scan, params, jnp.ones((4, 1, 1))).shape == (4, 1, 1)


def test_a_dense_linear_rnn_is_the_dlr_of_its_eigenvectors():
    """Gupta et al. 2023, proposition 1, for each channel: y = Re(C x), x_k = A x_(k-1) + B u_k, one A for all."""
    rng = np.random.default_rng(7)
    a = rng.normal(size=(STATE, STATE))
    a *= 0.97 / np.max(np.abs(np.linalg.eigvals(a)))
    b, c = rng.normal(size=(2, WIDTH, STATE))
    lam, vectors = np.linalg.eig(a)
    w = (c @ vectors) * np.linalg.solve(vectors, b.T).T
    d = rng.normal(size=WIDTH)
    params = {"log_re": np.sqrt(-np.log(np.abs(lam))), "log_im": np.angle(lam), "W_re": w.real, "W_im": w.imag, "D": d}
    recurrence = recurrences.build(DLRRecurrence(), width=WIDTH, state=STATE)
    u = rng.normal(size=(100, 2, WIDTH))
    x, wanted = np.zeros((2, WIDTH, STATE)), []
    for u_k in u:
        x = x @ a.T + b * u_k[..., None]
        wanted.append(np.sum(c * x, axis=-1) + d * u_k)
    wanted = np.stack(wanted)
    with jax.enable_x64(True):
        exact = jax.jit(recurrence.scan)(params, jnp.asarray(u))
    np.testing.assert_allclose(exact, wanted, atol=1e-10 * np.max(np.abs(wanted)))
    single = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    found = jax.jit(recurrence.scan)(single, jnp.asarray(u, jnp.float32))
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.max(np.abs(wanted)))
    np.testing.assert_allclose(recurrence.spectrum(single), lam, atol=1e-6)


def test_initial_values():
    n, h = 2000, 4
    recurrence = recurrences.build(DLRRecurrence(), width=h, state=n, bidirectional=True)
    p = double(jax.jit(recurrence.init)(jax.random.key(8)))
    np.testing.assert_allclose(p["log_im"], 2 * np.pi * np.arange(n) / n, rtol=1e-6)
    share = (np.log(2 * p["log_re"] ** 2) - math.log(0.0005)) / (math.log(0.5) - math.log(0.0005))
    assert scipy.stats.kstest(share, "uniform").pvalue > 0.01
    assert {k: v.shape for k, v in p.items() if k[0] in "WD"} == dict.fromkeys(
        ("W_re", "W_im", "W_re_back", "W_im_back"), (h, n)
    ) | {"D": (h,)}
    assert np.std(p["W_im_back"]) * n == pytest.approx(1, abs=0.04)
    assert recurrence.recurrent_parameters == set(p) - {"D"}
    other = recurrences.build(DLRRecurrence(phases="normal"), width=h, state=n)
    assert scipy.stats.kstest(other.init(jax.random.key(8))["log_im"], "norm").pvalue > 0.01
    reals = recurrences.build(FORMS["reals"], width=h, state=n)
    assert set(jax.eval_shape(reals.init, jax.random.key(0))) == {"log_re", "W_re", "D"}
    unit = recurrences.build(FORMS["unit circle"], width=h, state=n)
    assert set(jax.eval_shape(unit.init, jax.random.key(0))) == {"log_im", "W_re", "W_im", "D"}
    np.testing.assert_allclose(np.abs(unit.spectrum(unit.init(jax.random.key(0)))), 1.0)


def test_with_equal_phases_any_kernel_can_be_expressed():
    """2 pi n / N on the unit circle: the powers are a Fourier matrix (section 2.3)."""
    recurrence = recurrences.build(FORMS["unit circle"], width=1, state=64)
    k = np.random.default_rng(9).normal(size=64)
    w = np.fft.fft(k) / 64
    params = recurrence.init(jax.random.key(0)) | {
        "W_re": jnp.asarray(w.real[None], jnp.float32),
        "W_im": jnp.asarray(w.imag[None], jnp.float32),
        "D": jnp.zeros(1, jnp.float32),
    }
    found = jax.jit(recurrence.kernels, static_argnums=1)(params, 64)
    np.testing.assert_allclose(found[0, :, 0], k, atol=1e-5)


def test_norms_are_those_of_the_states():
    recurrence = recurrences.build(FORMS["short prod"], width=WIDTH, state=STATE)
    params = recurrence.init(jax.random.key(1))
    lam = recurrence.spectrum(params)
    u = np.random.default_rng(0).normal(size=(12, 2, WIDTH))
    x, wanted = np.zeros((2, WIDTH, STATE), complex), []
    for u_k in u:
        x = lam * x + u_k[..., None]
        wanted.append(np.sqrt(np.sum(np.abs(x) ** 2, axis=(1, 2))))
    np.testing.assert_allclose(recurrence.norms(params, jnp.asarray(u, jnp.float32)), np.stack(wanted), rtol=1e-5)


# --- DSS ---------------------------------------------------------------------------------------------------------


def test_where_dss_starts():
    recurrence = recurrences.build(DSSRecurrence(), width=500, state=STATE)
    p = double(recurrence.init(jax.random.key(0)))
    np.testing.assert_allclose(-np.exp(p["re_log"]), -0.5, rtol=1e-6)
    np.testing.assert_allclose(p["im"], np.pi * np.arange(STATE), rtol=1e-6)
    share = (p["log_dt"] - math.log(0.001)) / math.log(100)
    assert scipy.stats.kstest(share, "uniform").pvalue > 0.01
    assert recurrence.recurrent_parameters == {"re_log", "im", "log_dt", "W_re", "W_im"}
    # HiPPO-LegS of size 2N, made normal, by its definition
    size = 2 * STATE
    k = np.arange(size)
    legs = -np.tril(np.sqrt(2 * k + 1)[:, None] * np.sqrt(2 * k + 1)[None], -1) - np.diag(k + 1.0)
    lam = np.linalg.eigvals(legs + np.outer(np.sqrt(k + 0.5), np.sqrt(k + 0.5)))
    other = recurrences.build(DSSRecurrence(init="hippo"), width=2, state=STATE).init(jax.random.key(0))
    np.testing.assert_allclose(other["im"], np.sort(lam.imag)[STATE:], rtol=1e-5)
    np.testing.assert_allclose(lam.real, -0.5, atol=1e-9)


def test_the_eigenvalue_zero_is_harmless():
    recurrence = recurrences.build(DSSRecurrence(), width=WIDTH, state=STATE)
    params = recurrence.init(jax.random.key(0))
    params |= {"re_log": jnp.full(STATE, -80.0), "im": jnp.zeros(STATE)}
    value, gradient = jax.jit(jax.value_and_grad(lambda p: jnp.sum(recurrence.kernels(p, 50) ** 2)))(params)
    p = double(params)
    wanted = (np.exp(p["log_dt"]) * p["W_re"].sum(1)) * np.ones((50, 1))
    wanted[0] += p["D"]
    assert value == pytest.approx(np.sum(wanted**2), rel=1e-5)
    assert all(np.all(np.isfinite(g)) for g in gradient.values())


# --- all ---------------------------------------------------------------------------------------------------------


LADDER = """
name = "one"
title = "one"
source = "ours"

[[rung]]
name = "dlr"
title = "dlr"
change = {{ "model.recurrence.kind" = "{kind}", "optim.lr" = 0.01 }}
"""


@pytest.mark.parametrize(
    ("kind", "sets", "message", "hint"),
    [
        (
            "dlr",
            "kernel_length=65",
            "--set model.recurrence.kernel_length: kernel_length must not be larger than the task's sequences, "
            "64 steps, found 65",
            "the length of the sequences always fits: model.recurrence.kernel_length = 64",
        ),
        (
            "dss",
            "kernel_length=65",
            "--set model.recurrence.kernel_length: kernel_length must not be larger than the task's sequences, "
            "64 steps, found 65",
            "the length of the sequences always fits: model.recurrence.kernel_length = 64",
        ),
        ("dlr", "poles=real", 'poles = "real" needs cast = "real" and weights = "real"', "change"),
        ("dlr", "dt_min=0.7", "dt_min must not be larger than dt_max, found dt_min = 0.7, dt_max = 0.5", "change"),
        ("dss", "init=hippo model.state=2049", 'init = "hippo" needs a state of at most 2048, found state = 2049', ""),
    ],
)
def test_what_does_not_fit_is_told_before_anything_runs(tmp_path, kind, sets, message, hint):
    path = tmp_path / "one.toml"
    path.write_text(LADDER.format(kind=kind))
    planning.make("sDigits", ladder=str(path), sets=["model.recurrence.kernel_length=64"])
    with pytest.raises(UsageError) as caught:
        planning.make("sDigits", ladder=str(path), sets=f"model.recurrence.{sets}".split())
    assert message in caught.value.message
    assert hint in str(caught.value.hint)

"""The state space layers, and the convolution that some of them are, against NumPy and SciPy in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
import scipy.linalg
import scipy.signal

from lrurun import conformance, recurrences
from lrurun.config import DiagonalRecurrence, ModelConfig, S4DRecurrence, S4Recurrence, S5Recurrence
from lrurun.errors import UsageError
from lrurun.model import Model
from lrurun.recurrences import S4D, continuous
from lrurun.recurrences.s4d import initial_a
from lrurun.scan import convolution, powers, series
from lrurun.strict import convert
from lrurun.tasks.base import Spec


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


def double(params):
    return {name: np.asarray(value, np.float64) for name, value in params.items()}


def legs(size):
    """The matrix of HiPPO-LegS and its vector of inputs, entry by entry (Gu et al. 2020, theorem 2)."""
    a, b = np.zeros((size, size)), np.array([np.sqrt(2 * n + 1) for n in range(size)])
    for n in range(size):
        for k in range(n):
            a[n, k] = -np.sqrt(2 * n + 1) * np.sqrt(2 * k + 1)
        a[n, n] = -(n + 1)
    return a, b


def normal(size):
    """The normal part of HiPPO-LegS: it plus a matrix of rank one."""
    a, b = legs(size)
    return a + np.outer(b, b) / 2


@pytest.mark.parametrize("size", [1, 2, 7, 64])
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
    pair = (jnp.asarray(a.real, jnp.float32), jnp.asarray(a.imag, jnp.float32))
    nu, theta, factor = jax.jit(continuous.discretize, static_argnums=2)(pair, jnp.asarray(dt, jnp.float32), how)
    lam, b = (np.asarray(re) + 1j * np.asarray(im) for re, im in (continuous.eigenvalues(nu, theta), factor))
    # the third one turns by 130 radians a step, which float32 has to 1e-5
    np.testing.assert_allclose(lam, wanted_lam, atol=2e-5)
    np.testing.assert_allclose(np.delete(lam, 2), np.delete(wanted_lam, 2), rtol=5e-7)
    np.testing.assert_allclose(b, wanted_b, rtol=1e-5)
    np.testing.assert_allclose(np.delete(b, 2), np.delete(wanted_b, 2), rtol=5e-7)


def test_a_held_input_is_added_up_where_there_is_no_decay():
    """(exp(z) - 1) / a has the limit dt at a = 0, and a derivative: dt^2 / 2."""

    def held(re, im):
        return continuous.discretize((re, im), jnp.float32(0.1), "zoh")[2]

    zero = jnp.float32(0)
    assert held(zero, zero) == pytest.approx((0.1, 0.0))
    slopes = jax.jacobian(held, argnums=(0, 1))(zero, zero)
    np.testing.assert_allclose(np.asarray(slopes), [[0.005, 0], [0, 0.005]], atol=1e-9)


def outputs(lam, b, c, back, d, u, lengths, excluded):
    """Of each sequence by itself, without its padding: a loop over time, complex128; zero in the padding.

    `lam`, `b` (..., H) and the readouts `c`, `back` (H, ...) as matrices, `lam` as a matrix or its diagonal; `excluded`
    is whether the current input is left out looking back.
    """
    move = np.diag(lam) if lam.ndim == 1 else lam
    y = np.zeros(u.shape)
    for i, length in enumerate(lengths):
        y[:length, i] = d * u[:length, i]
        x = np.zeros(len(lam), complex)
        for k in range(length):
            x = move @ x + b @ u[k, i]
            y[k, i] += (c @ x).real
        x = np.zeros(len(lam), complex)
        for k in reversed(range(length if back is not None else 0)):
            before, x = x, move @ x + b @ u[k, i]
            y[k, i] += (back @ (before if excluded else x)).real
    return y


def zoh(a, dt):
    return np.exp(dt * a), np.expm1(dt * a) / a


def bilinear(a, dt):
    return (1 + dt * a / 2) / (1 - dt * a / 2), dt / (1 - dt * a / 2)


RULES = {"zoh": zoh, "bilinear": bilinear}
SSM = {
    "s5": S5Recurrence(blocks=2),
    "s5-bilinear": S5Recurrence(c_init="complex", discretization="bilinear", dt_max=0.5),
    "s5-clipped": S5Recurrence(conj_sym=False, clip_eigs=True),
    "s4d": S4DRecurrence(init="legs"),
    "s4d-shared": S4DRecurrence(init="inv", n_ssm=2, discretization="bilinear"),
    "s4d-fixed": S4DRecurrence(init="legs", train_b=False, dt_max=0.5),
    "s4": S4Recurrence(dt_max=0.5),
    "s4-shared": S4Recurrence(n_ssm=2),
}
WIDTH, STATE = 6, 8


def whole(p, h):
    """The bilinear matrices (N, N) and (N,) of channel h of an S4, of all N numbers, conjugates too, by an inverse."""
    one, dt = h % len(p["A_im"]), np.exp(p["log_dt"][h])
    half = -np.exp(p["A_re_log"]) + 1j * p["A_im"], p["P_re"] + 1j * p["P_im"], p["B_re"] + 1j * p["B_im"]
    lam, low, b = (np.concatenate([x[one], x[one].conj()]) for x in half)
    a, eye = np.diag(lam) - np.outer(low, low.conj()), np.eye(len(lam))
    inverse = np.linalg.inv(eye - dt / 2 * a)
    return inverse @ (eye + dt / 2 * a), inverse @ (dt * b)


def reference(settings, p, u, lengths, bidirectional):
    """Outputs from the parameters by the equations of the papers."""
    if isinstance(settings, S4Recurrence):
        y = np.zeros(u.shape)
        for h in range(WIDTH):
            a, b = whole(p, h)
            of, ways = slice(h, h + 1), ("", "_back") if bidirectional else ("",)
            c = [np.hstack([m[of], m[of].conj()]) for m in (p[f"C_re{way}"] + 1j * p[f"C_im{way}"] for way in ways)]
            y[..., of] = outputs(a, b[:, None], *[*c, None][:2], p["D"][of], u[..., of], lengths, True)
        return y
    rule = RULES[settings.discretization]
    names = [("C_re", "C_im"), ("C_re_back", "C_im_back")][: 1 + bidirectional]
    c = [p[re] + 1j * p[im] for re, im in names] + [None]
    if isinstance(settings, S5Recurrence):
        re = np.minimum(p["lam_re"], -1e-4) if settings.clip_eigs else p["lam_re"]
        lam, factor = rule(re + 1j * p["lam_im"], np.exp(p["log_dt"]))
        c = [m if m is None else m * (2 if settings.conj_sym else 1) for m in c]
        b = factor[:, None] * (p["B_re"] + 1j * p["B_im"])
        return outputs(lam, b, c[0], c[1], p["D"], u, lengths, False)
    y = np.zeros(u.shape)
    for h in range(WIDTH):
        one = h % len(p["A_im"])
        lam, factor = rule(-np.exp(p["A_re_log"][one]) + 1j * p["A_im"][one], np.exp(p["log_dt"][h]))
        if settings.train_b:
            b = p["B_re"][one] + 1j * p["B_im"][one]
        else:
            _, vectors = np.linalg.eigh(-1j * (normal(STATE) + np.eye(STATE) / 2))
            b = np.minimum(np.abs(vectors.conj().T @ legs(STATE)[1]), 2)[: STATE // 2]
        of = slice(h, h + 1)
        readouts = [None if m is None else 2 * m[of] for m in c]
        y[..., of] = outputs(lam, (factor * b)[:, None], *readouts[:2], p["D"][of], u[..., of], lengths, True)
    return y


@pytest.mark.parametrize(
    ("name", "bidirectional"), [(name, True) for name in SSM] + [("s5", False), ("s4d", False), ("s4", False)]
)
def test_values(strict, name, bidirectional):
    settings = SSM[name]
    recurrence = recurrences.build(settings, width=WIDTH, state=STATE, bidirectional=bidirectional)
    params = jax.jit(recurrence.init)(jax.random.key(3))
    if isinstance(settings, S4Recurrence):  # as after training: P and B apart, and complex
        params["P_im"], params["B_im"] = params["B_re"][:, ::-1], 0.5 - params["P_re"]
    if name == "s5-clipped":
        params["lam_re"] = params["lam_re"].at[:3].set(0.5)
    lengths, steps = [23, 9, 1], 23
    mask = np.arange(steps)[:, None] < np.array(lengths)
    u = np.asarray(np.random.default_rng(0).normal(size=(steps, 3, WIDTH)), np.float32)
    y = np.asarray(jax.jit(recurrence.scan)(params, u, mask))
    wanted = reference(settings, double(params), u.astype(np.float64), lengths, bidirectional)
    scale = np.max(np.abs(wanted))
    np.testing.assert_allclose(y[mask], wanted[mask], atol=1e-5 * scale)


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
    weights = 2 * (p["C_re"] + 1j * p["C_im"]) * (np.asarray(b[0]) + 1j * np.asarray(b[1]))
    wanted = np.einsum("hn,hnk->kh", weights, exact).real
    wanted[0] += p["D"]
    assert np.max(np.abs(kernel - wanted)) < 3e-6 * np.max(np.sum(np.abs(weights), axis=1))


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


@pytest.mark.parametrize("length", [1, 2, 5, 100, 2**20])
def test_sums_of_powers_stay_exact(length):
    """Up to a million steps of slow decay, where a phase of k theta in float32 is wrong by a quarter of a radian."""
    rng = np.random.default_rng(0)
    nu, theta = (rng.uniform(0, 1e-6, (1, 2))).astype(np.float32), rng.uniform(-3.1, 3.1, (1, 2)).astype(np.float32)
    weights = rng.normal(size=(2, 3, 1, 2)).astype(np.float32)
    found = np.asarray(jax.jit(powers.real_sums, static_argnums=3)(tuple(weights), nu, theta, length))
    w = weights[0] + 1j * weights[1].astype(np.complex128)
    exponent = -nu.astype(np.float64) + 1j * theta.astype(np.float64)
    k = np.arange(length)
    wanted = sum(w[:, :, n, None] * np.exp(exponent[0, n] * k) for n in range(2)).real
    assert found.shape == (3, 1, length)
    assert np.max(np.abs(found - wanted)) < 1e-5 * np.max(np.sum(np.abs(w), axis=-1))


def test_parameters_and_groups():
    def names(settings, bidirectional):
        layer = recurrences.build(settings, width=WIDTH, state=STATE, bidirectional=bidirectional)
        shapes = {name: leaf.shape for name, leaf in jax.eval_shape(layer.init, jax.random.key(0)).items()}
        return shapes, layer.slow

    h, n, half = (WIDTH,), (STATE,), (STATE // 2,)
    shapes, slow = names(S5Recurrence(), True)
    inner = {"lam_re": half, "lam_im": half, "log_dt": half, "B_re": half + h, "B_im": half + h}
    outer = dict.fromkeys(("C_re", "C_im", "C_re_back", "C_im_back"), h + half)
    assert shapes == {**inner, **outer, "D": h}
    assert slow == set(inner)
    shapes, slow = names(S5Recurrence(conj_sym=False, slow_b=False, slow_dt=False), False)
    assert shapes["C_re"] == h + n
    assert slow == {"lam_re", "lam_im"}
    shapes, slow = names(S4DRecurrence(), True)
    inner = dict.fromkeys(("A_re_log", "A_im", "B_re", "B_im"), h + half) | {"log_dt": h}
    assert shapes == {**inner, **outer, "D": h}
    assert slow == set(inner)
    shapes, slow = names(S4DRecurrence(n_ssm=2, train_b=False, slow_dt=False), False)
    assert shapes == {
        "A_re_log": (2, *half),
        "A_im": (2, *half),
        "log_dt": h,
        "C_re": h + half,
        "C_im": h + half,
        "D": h,
    }
    assert slow == {"A_re_log", "A_im"}
    shapes, slow = names(S4Recurrence(n_ssm=2), True)
    shared = dict.fromkeys(("A_re_log", "A_im", "P_re", "P_im", "B_re", "B_im"), (2, *half))
    assert shapes == {**shared, **outer, "log_dt": h, "D": h}
    assert slow == {*shared, "log_dt"}
    assert names(S4Recurrence(slow_dt=False), False)[1] == set(shared)


def count(recurrence, state, **changes):
    config = ModelConfig(recurrence=recurrence, depth=6, width=96, state=state, glu="half", **changes)
    model = Model(config, Spec(name="any", kind="features", features=1, classes=35, length=16))
    return model.count(jax.eval_shape(model.init, jax.random.key(0))[0])


def test_an_s5_network_has_as_many_parameters_as_an_lru_of_half_its_state():
    """Of the sizes that S5 has for spoken commands: (3P + 6PH + H + H^2 + H + 2H) a block, with P = 64, H = 96."""
    lru = count(DiagonalRecurrence(normalize=True), 64, bidirectional=True)
    assert count(S5Recurrence(blocks=16), 128, bidirectional=True) == lru
    assert lru == 6 * (3 * 64 + 6 * 64 * 96 + 96 + 96**2 + 96 + 2 * 96) + (96 + 96) + (96 * 35 + 35)


def test_an_s4d_network_s_parameters():
    """A, B and C of N / 2 complex numbers a channel, its Delta and D."""
    rest = 6 * (96**2 + 96 + 2 * 96) + (96 + 96) + (96 * 35 + 35)
    assert count(S4DRecurrence(), 64) == 6 * (96 * 3 * 64 + 2 * 96) + rest
    assert count(S4DRecurrence(n_ssm=1), 64) == 6 * (2 * 64 + 96 * 64 + 2 * 96) + rest
    # S4 has P too
    assert count(S4Recurrence(), 64) == 6 * (96 * 4 * 64 + 2 * 96) + rest
    assert count(S4Recurrence(n_ssm=1), 64) == 6 * (3 * 64 + 96 * 64 + 2 * 96) + rest


@pytest.mark.parametrize(
    ("recurrence", "state", "rule"),
    [
        ({"kind": "s5", "blocks": 3}, 8, "blocks must divide state, found state = 8, blocks = 3"),
        ({"kind": "s5", "blocks": 2}, 6, "conj_sym = true needs blocks of an even size"),
        ({"kind": "s5"}, 8194, "must not be larger than 4096, found state = 8194, blocks = 1"),
        ({"kind": "s5", "dt_min": 0.2}, 8, "dt_min must not be larger than dt_max, found dt_min = 0.2, dt_max = 0.1"),
        ({"kind": "s4d"}, 7, "s4d needs an even state, for pairs of conjugates, found state = 7"),
        ({"kind": "s4d", "init": "legs"}, 5000, "needs a state of at most 4096, found state = 5000"),
        ({"kind": "s4d", "n_ssm": 4}, 8, "n_ssm must divide width, found n_ssm = 4, width = 6"),
        ({"kind": "s4d", "dt_max": 1e-4}, 8, "found dt_min = 0.001, dt_max = 0.0001"),
        ({"kind": "s4"}, 7, "s4 needs an even state, for pairs of conjugates, found state = 7"),
        ({"kind": "s4"}, 5000, "s4 needs a state of at most 4096, found state = 5000"),
        ({"kind": "s4", "n_ssm": 4}, 8, "n_ssm must divide width, found n_ssm = 4, width = 6"),
        ({"kind": "s4", "dt_max": 1e-4}, 8, "found dt_min = 0.001, dt_max = 0.0001"),
    ],
)
def test_what_does_not_fit_is_refused(recurrence, state, rule):
    with pytest.raises(UsageError) as raised:
        convert({"recurrence": recurrence, "depth": 1, "width": 6, "state": state}, ModelConfig, "a test")
    assert rule in str(raised.value)


LADDER = """
name = "ssm"
title = "state space layers"
source = "ours"

[[rung]]
name = "for-all"
title = "S5"
change = { "model.recurrence.kind" = "s5", "model.recurrence.blocks" = 2, "model.bidirectional" = true }

[[rung]]
name = "for-each"
title = "S4D"
change = { "model.recurrence.kind" = "s4d", "model.recurrence.init" = "legs" }

[[rung]]
name = "with-rank-one"
title = "S4"
change = { "model.recurrence.kind" = "s4" }
"""
SHORT = ("--set", "train.steps=60", "--set", "train.eval_every=60")
SMOKE = ("sDigits", "--profile", "smoke", "--ladder", "ssm.toml")


def test_a_command_says_what_does_not_fit(machine):
    (machine.folder / "ssm.toml").write_text(LADDER)
    done = machine.run("plan", *SMOKE, "--set", "model.state=15", code=2)
    assert "blocks must divide state, found state = 15, blocks = 2" in done.stderr
    assert "hint: change one of the values named above" in done.stderr


@pytest.mark.slow
def test_all_are_trained_reported_and_drawn(machine):
    (machine.folder / "ssm.toml").write_text(LADDER)
    machine.run("ladder", *SMOKE, *SHORT)
    rows = {row["rung"]: row for row in machine.json("report", *SMOKE, *SHORT)["rows"]}
    # one block of width 16 and state 16
    rest = 2 * (16**2 + 16) + 2 * 16 + 16 + 16 + 16 * 10 + 10
    shapes = {"for-all": 3 * 8 + 6 * 8 * 16 + 16, "for-each": 2 * 16 + 4 * 16 * 8 + 4 * 16 * 8}
    shapes["with-rank-one"] = shapes["for-each"] + 2 * 16 * 8
    assert {name: (row["n"], row["parameters"]) for name, row in rows.items()} == {
        name: (1, rest + shape) for name, shape in shapes.items()
    }
    machine.run("plot", *SMOKE, *SHORT, "--kind", "eigenvalues", "--out", "a.png")
    assert (machine.folder / "a.png").read_bytes().startswith(b"\x89PNG")


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

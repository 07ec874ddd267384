"""The equations of the papers, of one sequence at a time, in NumPy and double precision: for every recurrence.

A reference takes settings, parameters, inputs (L, H), and whether there is a backward direction; it returns outputs
(L, H).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from lrurun.config.recurrences.attention import AttentionSettings
from lrurun.config.recurrences.block_diagonal import BlockDiagonalSettings
from lrurun.config.recurrences.dlr import DLRSettings
from lrurun.config.recurrences.dss import DSSSettings
from lrurun.config.recurrences.gru_lstm import GRUSettings, LSTMSettings
from lrurun.config.recurrences.hgrn import HGRNSettings
from lrurun.config.recurrences.lru import LRUSettings
from lrurun.config.recurrences.min_gru import MinGRUSettings, MinLSTMSettings
from lrurun.config.recurrences.rg_lru import RGLRUSettings
from lrurun.config.recurrences.rnn import RNNSettings
from lrurun.config.recurrences.rotrnn import RotRNNSettings
from lrurun.config.recurrences.s4 import S4Settings
from lrurun.config.recurrences.s4d import S4DSettings
from lrurun.config.recurrences.s5 import S5Settings
from lrurun.config.recurrences.s6 import S6Settings
from lrurun.config.recurrences.sgconv import SGConvSettings
from tests.harness.state_spaces import bilinear, euler, legs, normal, zoh

RULES = {"zoh": zoh, "bilinear": bilinear, "euler": euler}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.log1p(np.exp(x))


# --- a state for all channels ------------------------------------------------------------------------------------


def driven(step, start, readouts, p, u):
    """D u_k and, for each direction, the real part of C x_k; `step` gives the next state and what C sees of it."""
    y = p["D"] * u
    for c, order in zip(readouts, (range(len(u)), reversed(range(len(u)))), strict=False):
        x = start
        for k in order:
            x, seen = step(x, u[k])
            y[k] += (c @ seen).real
    return y


def linear(a, b, readouts, p, u):
    move = np.diag(a) if a.ndim == 1 else a

    def step(x, u_k):
        x = move @ x + b @ u_k
        return x, x

    return driven(step, np.zeros(len(a), complex), readouts, p, u)


def real_readouts(p, two_way):
    return [p["C"], p["C_back"]] if two_way else [p["C"]]


def complex_readouts(p, two_way):
    return [p[f"C_re{way}"] + 1j * p[f"C_im{way}"] for way in ("", "_back")[: 1 + two_way]]


def rnn(settings, p, u, two_way):
    act = {"tanh": np.tanh, "relu": lambda x: np.where(x > 0, x, 0), "identity": lambda x: x}[settings.activation]

    def step(x, u_k):
        x = act(p["A"] @ x + p["B"] @ u_k)
        return x, x

    return driven(step, np.zeros(len(p["A"])), real_readouts(p, two_way), p, u)


def block_diagonal(settings, p, u, two_way):
    """Block m acts on the numbers m and N / 2 + m of the state."""
    if settings.tied:
        blocks = [[[a, -b], [b, a]] for a, b in zip(p["lam_re"], p["lam_im"], strict=True)]
    else:
        blocks = p["A"]
    half = len(blocks)
    a = np.zeros((2 * half, 2 * half))
    for m, block in enumerate(blocks):
        a[np.ix_([m, half + m], [m, half + m])] = block
    return linear(a, p["B"], real_readouts(p, two_way), p, u)


def lru(settings, p, u, two_way):
    each = len(p["B_re"]) // settings.heads if settings.heads else 1
    if settings.parametrization == "cartesian":
        a = p["lam_re"] + 1j * p["lam_im"]
    else:
        theta = np.exp(p["theta_log"]) if settings.phase == "log" else p["theta"]
        nu = np.exp(p["nu_log"]) if settings.parametrization == "stable-exponential" else p["nu"]
        a = np.exp(-np.repeat(nu, each) + 1j * theta)
    b = p["B_re"] + 1j * p["B_im"]
    if settings.normalize:
        gamma = np.repeat(np.exp(p["gamma_log"]), each) if settings.train_gamma else np.sqrt(1 - np.abs(a) ** 2)
        b = gamma[:, None] * b
    twice = 2 if settings.conjugate else 1
    return linear(a, b, [twice * c for c in complex_readouts(p, two_way)], p, u)


def rotrnn(settings, p, u, two_way):
    """The real N x N matrix, head below head, with the matrix exponential of SciPy."""
    a, b = [], []
    of_heads = zip(p["theta"], p["gamma_log"], p["M"], p["B"], p.get("xi_log", p["gamma_log"]), strict=True)
    for theta, gamma_log, m, of_b, xi in of_heads:
        gamma, rotated = math.exp(-math.exp(gamma_log)), scipy.linalg.expm(m - m.T)
        planes = [[[math.cos(t), -math.sin(t)], [math.sin(t), math.cos(t)]] for t in theta]
        a.append(gamma * rotated @ scipy.linalg.block_diag(*planes) @ rotated.T)
        trace = np.trace(of_b.T @ of_b)
        normalizers = {"trace": math.sqrt((1 - gamma**2) / trace), "gamma": math.exp(xi), "none": 1.0}
        normalizers["naive"] = 1 / math.sqrt(gamma**2 + trace)
        b.append(normalizers[settings.normalizer] * of_b)
        if settings.normalizer == "naive":  # of the whole right side of equation 6
            a[-1] = normalizers["naive"] * a[-1]
    return linear(scipy.linalg.block_diag(*a), np.concatenate(b), real_readouts(p, two_way), p, u)


def s5(settings, p, u, two_way):
    re = np.minimum(p["lam_re"], -1e-4) if settings.clip_eigs else p["lam_re"]
    a, factor = RULES[settings.discretization](re + 1j * p["lam_im"], np.exp(p["log_dt"]))
    twice = 2 if settings.conj_sym else 1
    b = factor[:, None] * (p["B_re"] + 1j * p["B_im"])
    return linear(a, b, [twice * c for c in complex_readouts(p, two_way)], p, u)


def gru(settings, p, u, two_way):
    """Cho et al. 2014, equations 5 to 8, with the reset gate after the product and a bias for it."""
    u_n, u_r, u_z = np.split(p["A"], 3)
    w_r, w_z, w_n = np.split(p["B"], 3)
    b_u, b_r, b_z, b_n = np.split(p["b"], 4)

    def step(h, u_k):
        r, z = sigmoid(w_r @ u_k + u_r @ h + b_r), sigmoid(w_z @ u_k + u_z @ h + b_z)
        h = (1 - z) * np.tanh(w_n @ u_k + b_n + r * (u_n @ h + b_u)) + z * h
        return h, h

    return driven(step, np.zeros(len(b_n)), real_readouts(p, two_way), p, u)


def lstm(settings, p, u, two_way):
    """Gers et al. 2000, with tanh for both squashing functions and without peepholes."""

    def step(state, u_k):
        h, c = state
        i, f, g, o = np.split(p["A"] @ h + p["B"] @ u_k + p["b"], 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        return (h, c), h

    zero = np.zeros(len(p["b"]) // 4)
    return driven(step, (zero, zero), real_readouts(p, two_way), p, u)


# --- a kernel for each channel -----------------------------------------------------------------------------------


def convolved(kernels, p, u):
    """D u_k and the sums of the convolution with (H, L) kernels, of which the second one begins at the next input."""
    y = p["D"] * u
    for t in range(len(u)):
        for s in range(len(u)):
            if s <= t:
                y[t] += kernels[0][:, t - s] * u[s]
            elif len(kernels) == 2:
                y[t] += kernels[1][:, s - t - 1] * u[s]
    return y


def s4d(settings, p, u, two_way):
    lags, width = np.arange(len(u)), len(p["D"])
    kernels = np.zeros((1 + two_way, width, len(u)))
    for h in range(width):
        one = h % len(p["A_im"])
        a = -np.exp(p["A_re_log"][one]) + 1j * p["A_im"][one]
        lam, factor = RULES[settings.discretization](a, np.exp(p["log_dt"][h]))
        if not settings.shared_dt:
            _, factor = RULES[settings.discretization](a, np.exp(p["log_dt_b"][h]))
        if settings.train_b:
            b = p["B_re"][one] + 1j * p["B_im"][one]
        else:
            size = 2 * len(a)
            _, vectors = np.linalg.eigh(-1j * (normal(size) + np.eye(size) / 2))
            b = np.minimum(np.abs(vectors.conj().T @ legs(size)[1]), 2)[: size // 2]
        for way, c in enumerate(complex_readouts(p, two_way)):
            kernels[way, h] = 2 * ((c[h] * factor * b) @ lam[:, None] ** lags).real
    return convolved(kernels, p, u)


def s4(settings, p, u, two_way):
    """By the bilinear matrices of all N numbers, conjugates too, and an inverse."""
    kernels = np.zeros((1 + two_way, len(p["D"]), len(u)))
    for h in range(len(p["D"])):
        one, dt = h % len(p["A_im"]), np.exp(p["log_dt"][h])
        half = -np.exp(p["A_re_log"]) + 1j * p["A_im"], p["P_re"] + 1j * p["P_im"], p["B_re"] + 1j * p["B_im"]
        lam, low, b = (np.concatenate([x[one], x[one].conj()]) for x in half)
        a, eye = np.diag(lam) - np.outer(low, low.conj()), np.eye(len(lam))
        inverse = np.linalg.inv(eye - dt / 2 * a)
        move, x = inverse @ (eye + dt / 2 * a), inverse @ (dt * b)
        for k in range(len(u)):
            for way, c in enumerate(complex_readouts(p, two_way)):
                kernels[way, h, k] = (np.concatenate([c[h], c[h].conj()]) @ x).real
            x = move @ x
    return convolved(kernels, p, u)


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


def dlr(settings, p, u, two_way):
    of = dss_kernel if isinstance(settings, DSSSettings) else dlr_kernel
    return convolved([of(settings, p, len(u), way) for way in ("", "_back")[: 1 + two_way]], p, u)


def stretched(w, factor):
    """Linear interpolation of `w` as numbers at the middles of equal intervals, constant outside, by NumPy."""
    return np.interp((np.arange(len(w) * factor) + 0.5) / factor - 0.5, np.arange(len(w)), w)


def scales(w, alpha):
    """(H, lags): the concatenation of Li et al., eq. 1, from `w` (S, H, N) and `alpha` (H,), not normalised."""
    return np.array(
        [
            np.concatenate([a**i * stretched(one[h], 2 ** max(i - 1, 0)) for i, one in enumerate(w)])
            for h, a in enumerate(alpha)
        ]
    )


def first_alpha(settings, width):
    """1 / alpha is evenly spaced where it is fixed, alpha itself where it is trained."""
    if settings.train_alpha:
        return np.linspace(settings.alpha_min, settings.alpha_max, width)
    return 1 / np.linspace(1 / settings.alpha_min, 1 / settings.alpha_max, width)


def sgconv_norm(settings, alpha, count, n):
    """The root of E|k|^2, from the matrix of every interpolation."""
    deviation = 1 / n if settings.init == "state" else 1.0
    energy = [np.sum([stretched(row, 2 ** max(i - 1, 0)) ** 2 for row in np.eye(n)]) for i in range(count)]
    return deviation * np.sqrt([sum(a ** (2 * i) * e for i, e in enumerate(energy)) for a in alpha])


def sgconv(settings, p, u, two_way):
    first = first_alpha(settings, len(p["D"]))
    norm = sgconv_norm(settings, first, *np.array(p["w"].shape)[[0, 2]])
    kernels = np.zeros((1 + two_way, len(first), len(u)))
    for at, way in enumerate(("", "_back")[: 1 + two_way]):
        k = (scales(p[f"w{way}"], p.get(f"alpha{way}", first)) / norm[:, None])[:, : settings.kernel_length]
        kernels[at, :, : k.shape[1]] = k[:, : len(u)]
    return convolved(kernels, p, u)


# --- gates, and attention ----------------------------------------------------------------------------------------


def rg_lru(settings, p, u, two_way):
    """Griffin, equations 1 to 4 and appendix B."""

    def gate(name, u_k):
        """sigma(u W + b) with W block-diagonal, (blocks, in, out)."""
        parts = np.split(u_k, len(p[f"W_{name}"]))
        return sigmoid(np.concatenate([x @ w for x, w in zip(parts, p[f"W_{name}"], strict=True)]) + p[f"b_{name}"])

    y, x = np.zeros(u.shape), 0.0
    for k, u_k in enumerate(u):
        r = gate("a", u_k) if settings.recurrence_gate else 0.5
        if settings.decay == "sigmoid":
            a, middle = 1 - r, 0.0
        elif settings.decay == "exponential":
            a, middle = (np.exp(-2 * s * np.exp(p["nu_log"])) for s in (r, 0.5))
        else:
            a, middle = (np.exp(-8 * s * softplus(p["Lambda"])) for s in (r, 0.5))
        used = 2 * a - 1 if settings.negative else a
        multipliers = {"sqrt": np.sqrt(1 - used**2), "fixed": np.sqrt(1 - middle**2), "complement": 1 - a}
        m = np.exp(p["gamma_log"]) if settings.multiplier == "trained" else multipliers[settings.multiplier]
        if k == 0 and settings.first == "plain":
            m = 1.0
        i_k = gate("x", u_k) if settings.input_gate else 1.0
        if settings.complex:
            re, im = np.split(u_k, 2)
            x = used * np.exp(1j * p["theta"] * r) * x + m * i_k * (re + 1j * im)
            y[k] = np.concatenate([x.real, x.imag])
            continue
        x = used * x + m * i_k * (p["B"] @ u_k if "B" in p else u_k)
        y[k] = p["C"] @ x + p["D"] * u_k if "C" in p else x
    return y


def s6(settings, p, u, two_way):
    """Mamba, algorithm 2, and the public code's selective_scan_ref; Mamba-2 with heads."""
    y, x, width = np.zeros(u.shape), 0.0, u.shape[1]
    for k, u_k in enumerate(u):
        low = p["W_r"] @ u_k if "W_r" in p else u_k
        delta = softplus(p["b_dt"] + (p["W_dt"] @ low if "W_dt" in p else 0))
        a = -np.exp(p["A_log"])
        if settings.heads:
            delta, a = (np.repeat(z, width // settings.heads) for z in (delta, a))
            a = a[:, None]
        b = p["W_B"] @ u_k if "W_B" in p else p["B"]
        c = p["W_C"] @ u_k if "W_C" in p else p["C"]
        decay = np.exp(delta[:, None] * a)
        drive = (decay - 1) / a if settings.discretization == "zoh" else delta[:, None]
        x = (2 * decay - 1 if settings.negative else decay) * x + drive * b * u_k[:, None]
        y[k] = (x * c).sum(-1) + (np.repeat(p["D"], width // len(p["D"])) * u_k if "D" in p else 0)
    return y


def minimal(settings, p, u, two_way):
    """Feng et al. 2024, equations of sections 3.1.3 and 3.2.4 with g of appendix B; Qin et al. 2023 without phases."""
    kind = settings.__struct_config__.tag

    def put(x):
        return np.where(x >= 0, x + 0.5, sigmoid(x)) if getattr(settings, "candidate", "") == "positive" else x

    def mapped(name, x):
        return p[f"W_{name}"] @ x + p[f"b_{name}"]

    y, h = np.zeros(u.shape), put(p["h0"]) if "h0" in p else 0.0
    for k, u_k in enumerate(u):
        candidate = mapped("h", u_k) if "W_h" in p else u_k
        if kind == "minlstm":
            keep, new = sigmoid(mapped("f", u_k)), sigmoid(mapped("i", u_k))
            keep, new = (keep / (keep + new), new / (keep + new)) if settings.normalised else (keep, new)
        else:
            new = sigmoid(mapped("z", u_k)) if kind == "mingru" else sigmoid(-mapped("z", u_k))
            keep = 1 - new
        candidate = candidate * sigmoid(candidate) if kind == "hgrn" else put(candidate)
        h = (2 * keep - 1 if settings.negative else keep) * h + new * candidate
        y[k] = p["C"] @ h + p["b_C"] if "C" in p else h
    return y


def attention(settings, p, u, two_way):
    """Query by query, with angles as complex numbers."""
    state = len(p["Q"])
    size, y = state // settings.heads, np.zeros(u.shape)
    rates = 10000.0 ** (-2 * np.arange(size // 2) / size)
    for at in range(len(u)):
        sums = []
        for head in range(settings.heads):
            rows = slice(head * size, (head + 1) * size)

            def number(name, k, rows=rows):
                return p[name][rows] @ u[k] + p.get(f"b_{name}", np.zeros(state))[rows]

            def turned(name, k, number=number):
                x = number(name, k)
                return (
                    (x[: size // 2] + 1j * x[size // 2 :]) * np.exp(1j * k * rates)
                    if settings.positions == "rotary"
                    else x
                )

            chunk = settings.chunk or len(u)
            seen = [k for k in range(len(u)) if (two_way or k <= at) and abs(k // chunk - at // chunk) <= 1]
            scores = np.array([(turned("Q", at) * turned("K", k).conj()).real.sum() for k in seen]) / np.sqrt(size)
            share = np.exp(scores - scores.max())
            sums.append(sum(s * number("V", k) for s, k in zip(share / share.sum(), seen, strict=True)))
        y[at] = p["O"] @ np.concatenate(sums) + p["b_O"]
    return y


# --- all ---------------------------------------------------------------------------------------------------------


def apart(params):
    """P and B of S4 apart, and complex."""
    return params | {"P_im": params["B_re"][:, ::-1], "B_im": 0.5 - params["P_re"]}


def two_deltas(params):
    return params | {"log_dt_b": params["log_dt_b"][::-1] + 0.5}


def moved_biases(params):
    """Zero biases would hide a state that starts in the padding."""
    rng = np.random.default_rng(4)
    return {
        name: x + 0.5 * rng.normal(size=x.shape).astype(np.float32) if name[:2] in ("b", "b_") else x
        for name, x in params.items()
    }


class Form(NamedTuple):
    """Settings, by which equations they are computed, and sizes; `after` moves parameters to where training may."""

    settings: Any
    reference: Callable[..., np.ndarray]
    width: int = 6
    state: int = 8
    two_way: bool = True
    after: Callable[[Any], Any] = dict


LRU = {"normalize": True, "r_max": 0.99}
WIDE = {"width": 4, "state": 12}
GATED = {"width": 4, "state": 4, "two_way": False, "after": moved_biases}
CELL = {"state": 4, "after": moved_biases}
CONSTANT = {"b": "constant", "c": "constant"}
REAL = {"mixing": "dense", "decay": "exponential", "recurrence_gate": False, "input_gate": False}
FORMS = {
    "dense, tanh": Form(RNNSettings(activation="tanh"), rnn),
    "dense, relu": Form(RNNSettings(activation="relu"), rnn),
    "dense, identity": Form(RNNSettings(), rnn),
    "block-diagonal": Form(BlockDiagonalSettings(), block_diagonal),
    "block-diagonal, tied": Form(BlockDiagonalSettings(tied=True, r_min=0.5), block_diagonal),
    "diagonal, cartesian": Form(LRUSettings(parametrization="cartesian", **LRU), lru),
    "diagonal, exponential": Form(LRUSettings(parametrization="exponential", phase="log"), lru),
    "diagonal, lru": Form(LRUSettings(normalize=True, phase="log", r_min=0.9, r_max=0.999), lru),
    "diagonal, gamma of lambda": Form(LRUSettings(train_gamma=False, r_min=0.5, **LRU), lru),
    "diagonal, conjugate heads": Form(LRUSettings(conjugate=True, heads=2, **LRU), lru),
    "rotrnn": Form(RotRNNSettings(heads=3), rotrnn, **WIDE),
    "rotrnn, gamma": Form(RotRNNSettings(heads=6, normalizer="gamma", draw="ring"), rotrnn, **WIDE),
    "rotrnn, none": Form(
        RotRNNSettings(heads=2, normalizer="none", max_phase=0.3, slow_rotations=False), rotrnn, **WIDE
    ),
    "rotrnn, naive": Form(RotRNNSettings(heads=3, normalizer="naive"), rotrnn, **WIDE),
    "gru": Form(GRUSettings(), gru, **CELL),
    "lstm": Form(LSTMSettings(), lstm, **CELL),
    "s5": Form(S5Settings(blocks=2), s5),
    "s5, bilinear": Form(S5Settings(c_init="complex", discretization="bilinear", dt_max=0.5), s5),
    "s5, clipped": Form(
        S5Settings(conj_sym=False, clip_eigs=True, slow_b=False, slow_dt=False),
        s5,
        after=lambda p: p | {"lam_re": p["lam_re"].at[:3].set(0.5)},
    ),
    "s4d": Form(S4DSettings(init="legs"), s4d),
    "s4d, shared": Form(S4DSettings(init="inv", n_ssm=2, discretization="bilinear"), s4d),
    "s4d, fixed B": Form(S4DSettings(init="legs", train_b=False, slow_dt=False, dt_max=0.5), s4d),
    "s4d, two Deltas": Form(S4DSettings(init="legs", discretization="euler", shared_dt=False), s4d, after=two_deltas),
    "s4d, two Deltas, zoh": Form(S4DSettings(shared_dt=False, dt_max=0.5), s4d, after=two_deltas),
    "s4": Form(S4Settings(dt_max=0.5), s4, after=apart),
    "s4, shared": Form(S4Settings(n_ssm=2, slow_dt=False), s4, after=apart),
    "dlr": Form(DLRSettings(), dlr, 3),
    "dlr, imaginary": Form(DLRSettings(cast="imag", phases="normal"), dlr, 3),
    "dlr, sum": Form(DLRSettings(cast="sum", poles="unit"), dlr, 3),
    "dlr, product": Form(DLRSettings(cast="prod"), dlr, 3),
    "dlr, short product": Form(DLRSettings(cast="prod", kernel_length=5), dlr, 3),
    "dlr, real weights": Form(DLRSettings(weights="real", kernel_length=5), dlr, 3),
    "dlr, reals": Form(DLRSettings(poles="real", weights="real"), dlr, 3),
    "dss": Form(DSSSettings(), dlr, 3),
    "dss, short": Form(DSSSettings(init="hippo", kernel_length=5), dlr, 3),
    "sgconv, one scale": Form(SGConvSettings(kernel_length=8), sgconv, 5),
    "sgconv, cut": Form(SGConvSettings(kernel_length=13, alpha_min=0.3, alpha_max=0.9), sgconv, 5),
    "sgconv, trained": Form(  # moved from where alpha starts, which the norm must not follow
        SGConvSettings(kernel_length=64, alpha_min=0.3, alpha_max=0.9, train_alpha=True, init="state"),
        sgconv,
        5,
        after=lambda p: {name: 0.9 * x if "alpha" in name else x for name, x in p.items()},
    ),
    "sgconv, no decay": Form(SGConvSettings(kernel_length=33, alpha_min=1.0, alpha_max=1.0, init="state"), sgconv, 5),
    "rg-lru": Form(RGLRUSettings(gate_blocks=2), rg_lru, **GATED),
    "rg-lru, complex": Form(RGLRUSettings(complex=True, gate_blocks=2, first="normalised"), rg_lru, **GATED),
    "rg-lru, negative": Form(RGLRUSettings(negative=True, gate_blocks=4, first="normalised"), rg_lru, **GATED),
    "rg-lru, real LRU": Form(RGLRUSettings(multiplier="trained", **REAL), rg_lru, **GATED),
    "rg-lru, fixed": Form(
        RGLRUSettings(multiplier="fixed", init="paper", gate_blocks=1, gate_fan="width"), rg_lru, **GATED
    ),
    "rg-lru, sigmoid": Form(
        RGLRUSettings(decay="sigmoid", multiplier="complement", input_gate=False, gate_blocks=1, first="normalised"),
        rg_lru,
        **GATED,
    ),
    "s6": Form(S6Settings(), s6, **GATED),
    "s6, constant": Form(S6Settings(delta="constant", discretization="zoh", skip=False, **CONSTANT), s6, **GATED),
    "s6, selective Delta": Form(S6Settings(delta="dense", discretization="zoh", **CONSTANT), s6, **GATED),
    "s6, heads, negative": Form(S6Settings(delta="dense", heads=2, negative=True), s6, **GATED),
    "mingru": Form(MinGRUSettings(), minimal, **GATED),
    "mingru, in log space": Form(MinGRUSettings(form="log-space"), minimal, **GATED),
    "mingru, linear": Form(MinGRUSettings(candidate="linear", negative=True, readout=False), minimal, **GATED),
    "mingru, input": Form(MinGRUSettings(candidate="input", initial="zero", readout=False), minimal, **GATED),
    "minlstm": Form(MinLSTMSettings(forget_bias=0.5), minimal, **GATED),
    "minlstm, normalised": Form(MinLSTMSettings(form="log-space", normalised=True, initial="zero"), minimal, **GATED),
    "hgrn": Form(HGRNSettings(), minimal, **GATED),
    "attention": Form(AttentionSettings(heads=2), attention, 5, 12, after=moved_biases),
    "attention, no positions": Form(AttentionSettings(heads=3, positions="none"), attention, 5, 12, after=moved_biases),
    "attention, local": Form(AttentionSettings(heads=2, chunk=4), attention, 5, 12, after=moved_biases),
    "attention, one step": Form(AttentionSettings(heads=1, chunk=1), attention, 5, 12, after=moved_biases),
    "attention, long chunks": Form(AttentionSettings(heads=2, chunk=100), attention, 5, 12, after=moved_biases),
}

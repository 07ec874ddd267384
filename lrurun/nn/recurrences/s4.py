"""State space models with a diagonal matrix minus one of rank one, for each channel, as convolutions: S4 (Gu, Goel and
Ré 2022, "Efficiently Modeling Long Sequences with Structured State Spaces")."""

from __future__ import annotations

import math
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array, Kernels, StepFeatures
from lrurun.nn.complex import Complex, polar, stack
from lrurun.nn.convolution import convolve
from lrurun.nn.convolution.powers import real_sums
from lrurun.nn.convolution.series import reciprocal
from lrurun.nn.recurrences.base import Params, complex_parameter
from lrurun.nn.recurrences.continuous import discretize, hippo, log_steps
from lrurun.nn.recurrences.s4d import B_CLIP, EachChannel
from lrurun.nn.sampling import normals


class RankOneSystem(NamedTuple):
    """x_k = lambda x_(k-1) - q s(x_(k-1)) + b u_k with s(x) = 2 Re(r x), (H, N/2) each; lambda by `nu` and `theta`."""

    nu: Array
    theta: Array
    q: Complex
    r: Complex
    b: Complex


@final
class S4(EachChannel):
    """x' = (Lambda - P P*) x + B u, y = 2 Re(C x) + D u for each of the H channels, x of N/2 numbers and conjugates.

    Trained: A_re_log, A_im, P_re, P_im, B_re, B_im (S, N/2) with Lambda = -exp(A_re_log) + i A_im, initially
    all of HiPPO-LegS, in the eigenvectors of its normal part, with B clipped where `clip_b` is set; log_dt (H,),
    log-uniform; C_re, C_im (H, N/2), each N(0, 1/2), so not scaled by 1 / sqrt(N); D (H,), N(0, 1). S is `n_ssm`, or H:
    channel h has the A, P and B of number h mod S. Bidirectional layers share all but C, add C_re_back and C_im_back,
    and use D once; their backward direction starts at the next input, as in the published code.

    The bilinear rule turns a diagonal matrix minus one of rank one into another such matrix, which is a contraction for
    all parameters. `scan` is one convolution. The published code computes the Fourier transform of a kernel of fixed
    length L from C (1 - A^L), with A discretised, and trains that in place of C. Here C is trained, and the kernel is
    computed in the time domain, for any length: as a power series in z it is k_cb - z k_cq k_rb / (1 + z k_rq), where
    k_ab are the sums of S4D, sum_n a_n lambda_n^k b_n. Measured in float32 at N = 64 and 16,384 steps, relative to the
    largest |K|, the error is below 3e-6 initially, and 3e-5 with P three times as large and decays 55 times as slow;
    with ten times the P and such decays, no digit may be correct. Input at padding counts as zero.
    """

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        return frozenset({*self._shared, *(("log_dt",) if self.settings.slow_dt else ())})

    @property
    def _shared(self) -> tuple[str, ...]:
        return ("A_re_log", "A_im", "P_re", "P_im", "B_re", "B_im")

    def init(self, key: Array) -> Params:
        settings, h, n = self.settings, self.width, self.state // 2
        key_dt, key_normal = jax.random.split(key)
        normal = hippo(self.state)
        # The upper half of the eigenvalues: conjugates of the lower half, with the same inputs, which are real. HiPPO
        # is its normal part minus p p^T with p = B / sqrt(2).
        p = normal.inputs[:n] / math.sqrt(2.0)
        b = self._initial_b
        initial = [np.full(n, math.log(0.5)), -normal.frequencies[:n], p, np.zeros(n), b.real, b.imag]
        sets = settings.n_ssm or h
        params = {
            name: jnp.broadcast_to(jnp.asarray(x, jnp.float32)[None], (sets, n))
            for name, x in zip(self._shared, initial, strict=True)
        }
        params["log_dt"] = log_steps(key_dt, h, settings.dt_min, settings.dt_max)
        shapes = {name: (h,) if name == "D" else (h, n) for name in self.variances}
        return params | normals(key_normal, shapes, self.variances)

    @property
    def _initial_b(self) -> np.ndarray:
        """(N/2,) complex: HiPPO's, clipped with `clip_b`."""
        n = self.state // 2
        b = hippo(self.state).inputs[:n].astype(complex)
        if not self.settings.clip_b:
            return b
        # The published eigenvectors are LAPACK's, whose first entry is real. Ours differ from them in phase, and are
        # conjugates, as B is.
        first = hippo(self.state).vectors[0, :n]
        phase = first / np.abs(first)
        rotated = phase * b
        clipped: np.ndarray = rotated.real + 1j * np.clip(rotated.imag, -B_CLIP, B_CLIP)
        return (clipped * phase.conj()).conj()

    def _system(self, params: Params) -> RankOneSystem:
        copies = (self.width // params["A_im"].shape[0], 1)
        log_re, im, p_re, p_im, b_re, b_im = (jnp.tile(params[name], copies) for name in self._shared)
        dt = jnp.exp(params["log_dt"])[:, None]
        nu, theta, factor = discretize(Complex(-jnp.exp(log_re), im), dt, "bilinear")
        # With E = 1 / (1 - dt Lambda / 2), factor = dt E, and Woodbury's 1 + (dt / 2) P* E P, real and at least 1:
        # A = lambda - (dt / (1 + ...)) (E P) (P* E), B = (E - (dt / 2) (E P) (P* E) / (1 + ...)) dt B.
        P, B = Complex(p_re, p_im), Complex(b_re, b_im)
        p, r = factor * P, factor * P.conj()
        wood = 1.0 + (P.conj() * p).real.sum(-1, keepdims=True)
        q, r = p / wood, r / dt
        driven = dt * (r * B).real.sum(-1, keepdims=True)
        return RankOneSystem(nu, theta, q, r, factor * B - driven * q)

    def kernels(self, params: Params, length: int) -> Kernels:
        nu, theta, q, r, b = self._system(params)
        # Any real multiple of q may be subtracted from b, because C A^k q is known without b. Initially that is all of
        # b. The smaller the rest, the fewer digits are lost; the multiple itself changes nothing, so it has no
        # gradient.
        along, size = ((q.conj() * x).real.sum(-1, keepdims=True) for x in (b, q))
        share = jax.lax.stop_gradient(jnp.where(size > 0, along / jnp.where(size > 0, size, 1.0), 0.0))
        rest = b - share * q
        rows = [2.0 * complex_parameter(params, "C", way) for way in self.directions] + [2.0 * r]
        weights = stack([row * column for column in (rest, q) for row in rows])
        of_rest, of_q = jnp.split(jnp.moveaxis(real_sums(weights, nu, theta, length), -1, 0), 2, axis=1)
        g = reciprocal(of_q[:, -1].T).T
        after_q = convolve(of_q[:, :-1], g[None])
        fed = convolve(after_q, of_rest[None, :, -1])
        later = jnp.pad(fed[:-1], ((1, 0), (0, 0), (0, 0)))
        kernels = of_rest[:, :-1] + share.T[None] * after_q - later
        return kernels.swapaxes(0, 1).at[0, 0].add(params["D"])

    def step(self, params: Params, state: Complex, u: StepFeatures) -> tuple[Complex, StepFeatures]:
        self.require_causal()
        nu, theta, q, r, b = self._system(params)
        fed = 2.0 * (r * state).real.sum(-1, keepdims=True)
        x = polar(nu, theta) * state - q * fed + b * u[..., None]
        y = 2.0 * (complex_parameter(params, "C") * x).real.sum(-1)
        return x, y + params["D"][None] * u

    def spectrum(self, params: Params) -> np.ndarray:
        """The eigenvalues of all channels, the first channel first."""
        system = self._system(params)
        nu, theta = np.asarray(system.nu, np.float64), np.asarray(system.theta, np.float64)
        half = [np.exp(-nu + 1j * theta), system.q.numpy(), system.r.numpy()]
        lam, q, r = (np.concatenate([x, x.conj()], axis=1) for x in half)
        matrices = lam[:, :, None] * np.eye(self.state) - q[:, :, None] * r[:, None]
        good = np.isfinite(matrices).all(axis=(1, 2), keepdims=True)
        eigenvalues_of = np.linalg.eigvals(np.where(good, matrices, 0.0))
        spectrum: np.ndarray = np.where(good[..., 0], eigenvalues_of, np.nan).ravel()
        return spectrum

"""The RotRNN: a real recurrence whose matrix is a scaled rotation in each of its heads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array
from lrurun.nn.complex import Complex, polar
from lrurun.nn.recurrences.base import Params
from lrurun.nn.recurrences.lru import RADII, Diagonal, System, log_gamma, ring
from lrurun.nn.recurrences.parametrizations import per_state
from lrurun.nn.sampling import normals


def rotations(m: Array) -> Array:
    """exp(M - M^T) of M (heads, n, n): orthogonal, with determinant 1 (RotRNN paper, lemma 1)."""
    # with fewer digits, the default of accelerators, the columns of the result would not be orthonormal
    with jax.default_matmul_precision("highest"):
        p: Array = jax.scipy.linalg.expm(m - m.swapaxes(-1, -2))
    return p


@final
class RotRNN(Diagonal):
    """x_k = gamma P Theta P^T x_(k-1) + xi B u_k in each head, y_k = C x_k + D u_k, all real (RotRNN paper, eq. 12).

    A head has n = N / heads numbers, P = exp(M - M^T) of M (n, n), and Theta, n/2 rotations of the plane by the angles
    theta. Trained: theta (heads, n/2), gamma_log (heads,) with gamma = exp(-exp gamma_log), M (heads, n, n),
    B (heads, n, H), C (H, N), D (H,). The normaliser xi is one number a head: sqrt((1 - gamma^2) / tr(B^T B)), which
    keeps E|x_k|^2 = 1 for white input ("trace", eq. 11), trained as the LRU's gamma is, xi_log (heads,), from
    log sqrt(1 - gamma^2) ("gamma"), or 1 ("none"). With the normaliser "naive"
    x_k = alpha (gamma P Theta P^T x_(k-1) + B u_k) and alpha = 1 / sqrt(gamma^2 + tr(B^T B)) (eq. 6 and lemma 3): that
    also keeps E|x_k|^2 = 1, but inputs fade by alpha gamma a step instead of gamma (eq. 10).

    theta is uniform in (0, max_phase]; gamma lies in [r_min, r_max], its gamma_log uniform there (draw = "log", as in
    the public code) or uniform in area, as the LRU's |lambda| ("ring"). M ~ N(0, 1), B and C ~ N(0, 1 / (H + N)),
    D ~ N(0, 1) (appendix B.3). Bidirectional layers share theta, gamma, P and B, add C_back (H, N) for the other
    direction, which reads the inputs, not the states of the first, and use D once.

    In the coordinates P^T x the planes are complex numbers z_k = gamma exp(i theta) z_(k-1) + ...: P goes into B and C
    once, and the scanned system is a complex diagonal of N/2.
    """

    @property
    def modes(self) -> int:
        return self.state // 2

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        rotations = ("theta", "M") if self.settings.slow_rotations else ()
        normalizer = ("xi_log",) if self.settings.normalizer == "gamma" else ()
        return frozenset({"gamma_log", "B", *rotations, *normalizer})

    @property
    def variances(self) -> Mapping[str, float]:
        glorot = 1.0 / (self.width + self.state)
        return {"M": 1.0, "B": glorot, **{f"C{way}": glorot for way in self.directions}, "D": 1.0}

    def init(self, key: Array) -> Params:
        settings, heads, h = self.settings, self.settings.heads, self.width
        n = self.state // heads
        key_ring, key_decay, key_normal = jax.random.split(key, 3)
        nu, theta = ring(key_ring, self.modes, settings.r_min, settings.r_max, settings.max_phase)
        if settings.draw == "ring":
            gamma_log = jnp.log(nu[:heads])
        else:
            ends = [math.log(-math.log(min(max(r, RADII[0]), RADII[1]))) for r in (settings.r_max, settings.r_min)]
            gamma_log = ends[0] + (ends[1] - ends[0]) * jax.random.uniform(key_decay, (heads,), jnp.float32)
        params = {"theta": theta.reshape(heads, n // 2), "gamma_log": gamma_log}
        if settings.normalizer == "gamma":
            params["xi_log"] = log_gamma(jnp.exp(gamma_log))
        readouts = {f"C{way}": (h, self.state) for way in self.directions}
        shapes = {"M": (heads, n, n), "B": (heads, n, h), **readouts, "D": (h,)}
        return params | normals(key_normal, shapes, self.variances)

    def system(self, params: Params) -> System:
        heads, n = params["M"].shape[:2]
        P, xi = rotations(params["M"]), self._normalizer(params)
        # P^T xi B, its rows in pairs (..., 2): real and imaginary part.
        B = jnp.einsum("hij,hik->hjk", P, xi[:, None, None] * params["B"], precision="highest")
        B = B.reshape(self.modes, 2, -1)
        readouts = []
        for way in self.directions:
            C = jnp.einsum("ohi,hij->ohj", params[f"C{way}"].reshape(-1, heads, n), P, precision="highest")
            C = C.reshape(-1, self.modes, 2)
            # Re((a - ib)(x + iy)) = a x + b y: what reads the second number of a plane is minus the imaginary part.
            readouts.append(Complex(C[..., 0], -C[..., 1]))
        return System(self._lam(params), Complex(B[:, 0], B[:, 1]), tuple(readouts), params["D"])

    def _lam(self, params: Params) -> Complex:
        """gamma exp(i theta), or with the naive normaliser alpha gamma exp(i theta), (N/2,) each."""
        nu = jnp.exp(params["gamma_log"])
        if self.settings.normalizer == "naive":
            nu = nu - jnp.log(self._normalizer(params))
        return polar(per_state(nu, self.modes), params["theta"].reshape(-1))

    def _normalizer(self, params: Params) -> Array:
        """xi, or alpha of the naive normaliser, (heads,)."""
        match self.settings.normalizer:
            case "none":
                return jnp.ones_like(params["gamma_log"])
            case "gamma":
                return jnp.exp(params["xi_log"])
        nu, trace = jnp.exp(params["gamma_log"]), jnp.sum(jnp.square(params["B"]), axis=(1, 2))
        if self.settings.normalizer == "naive":
            return jax.lax.rsqrt(jnp.exp(-2.0 * nu) + trace)
        # 1 - gamma^2 by expm1: rounding a gamma near 1 first would lose all digits
        return jnp.sqrt(-jnp.expm1(-2.0 * nu) / trace)

    def spectrum(self, params: Params) -> np.ndarray:
        lam = self._lam(params).numpy()
        return np.concatenate([lam, lam.conj()])

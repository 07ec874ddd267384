"""The recurrence with a complex diagonal: from free eigenvalues to the Linear Recurrent Unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lrurun.recurrences.base import Params, Recurrence, normals
from lrurun.scan import Pair, linear_scan, stretches

RADII: Final = (1e-4, 1.0 - 1e-7)
"""The smallest and the largest initial |lambda|: outside them its logarithms are not finite, or not distinct."""


def ring(key: Array, count: int, r_min: float, r_max: float, max_phase: float) -> Pair:
    """nu = -log |lambda| and theta, (count,) each, uniform in area on a ring (Orvieto et al. 2023, Lemma 3.2).

    Radii lie in [r_min, r_max] cut to `RADII`, phases in (0, max_phase], radians.
    """
    inner, outer = (min(max(r, RADII[0]), RADII[1]) for r in (r_min, r_max))
    # w = 1 - u for u from (0, 1]. Both squared radius and its distance to 1 come from double-precision constants, so
    # that neither end loses digits.
    w, w_phase = jax.random.uniform(key, (2, count), jnp.float32)
    area = (outer - inner) * (outer + inner)
    missing = (1.0 - outer) * (1.0 + outer) + w * area
    squared = inner * inner + (1.0 - w) * area
    near = missing < 0.5
    nu = -0.5 * jnp.where(near, jnp.log1p(-jnp.where(near, missing, 0.0)), jnp.log(squared))
    theta = max_phase * (1.0 - w_phase)
    return nu, theta


def log_gamma(nu: Array) -> Array:
    """log sqrt(1 - |lambda|^2) of |lambda| = exp(-nu) (Orvieto et al. 2023, eq. 7), accurate at any positive nu."""
    return 0.5 * jnp.log(-jnp.expm1(-2.0 * nu))


def decay_and_phase(params: Params) -> Pair:
    """nu = -log |lambda| and theta in radians, (N,) each, of the parameters of any `Diagonal`."""
    if "lam_re" in params:
        re, im = params["lam_re"], params["lam_im"]
        return -0.5 * jnp.log(re * re + im * im), jnp.arctan2(im, re)
    nu = jnp.exp(params["nu_log"]) if "nu_log" in params else params["nu"]
    theta = jnp.exp(params["theta_log"]) if "theta_log" in params else params["theta"]
    return nu, theta


def eigenvalues(params: Params) -> Pair:
    """Real and imaginary part of lambda, (N,) each, of the parameters of any `Diagonal`."""
    if "lam_re" in params:
        return params["lam_re"], params["lam_im"]
    nu, theta = decay_and_phase(params)
    radius = jnp.exp(-nu)
    return radius * jnp.cos(theta), radius * jnp.sin(theta)


@final
class Diagonal(Recurrence):
    """x_k = lambda x_(k-1) + gamma B u_k, y_k = Re(C x_k) + D u_k (Orvieto et al. 2023, sections 3.2 to 3.4).

    Trained for lambda, (N,) each: lam_re and lam_im ("cartesian"), nu and theta with lambda = exp(-nu + i theta)
    ("exponential"), nu_log = log nu and theta ("stable-exponential"); with phase = "log", theta_log for theta. Initial
    lambda: see `ring`. B_re, B_im (N, H) ~ N(0, 1/2H), C_re, C_im (H, N) ~ N(0, 1/N), D (H,) ~ N(0, 1) (appendix A).
    With `normalize`, gamma_log (N,), see `log_gamma`. Bidirectional layers share lambda, B and gamma, add C_re_back and
    C_im_back (H, N) for the other direction, and use D once.
    """

    @property
    def slow(self) -> frozenset[str]:
        return frozenset({*self._spectrum, "B_re", "B_im", *(["gamma_log"] if self.settings.normalize else [])})

    @property
    def variances(self) -> Mapping[str, float]:
        of_c = {name: 1.0 / self.state for pair in self._readouts for name in pair}
        return {"B_re": 0.5 / self.width, "B_im": 0.5 / self.width, **of_c, "D": 1.0}

    @property
    def _spectrum(self) -> tuple[str, str]:
        if self.settings.parametrization == "cartesian":
            return "lam_re", "lam_im"
        decay = "nu_log" if self.settings.parametrization == "stable-exponential" else "nu"
        return decay, "theta_log" if self.settings.phase == "log" else "theta"

    @property
    def _readouts(self) -> tuple[tuple[str, str], ...]:
        one_way = ("C_re", "C_im")
        return (one_way, ("C_re_back", "C_im_back")) if self.bidirectional else (one_way,)

    def init(self, key: Array) -> Params:
        settings, n, h = self.settings, self.state, self.width
        key_ring, key_normal = jax.random.split(key)
        nu, theta = ring(key_ring, n, settings.r_min, settings.r_max, settings.max_phase)
        drawn = {
            "lam_re": jnp.exp(-nu) * jnp.cos(theta),
            "lam_im": jnp.exp(-nu) * jnp.sin(theta),
            "nu": nu,
            "nu_log": jnp.log(nu),
            "theta": theta,
            "theta_log": jnp.log(theta),
        }
        params = {name: drawn[name] for name in self._spectrum}
        if settings.normalize:
            params["gamma_log"] = log_gamma(nu)
        sizes = {"B": (n, h), "C": (h, n), "D": (h,)}
        shapes = {name: sizes[name[0]] for name in self.variances}
        return params | normals(key_normal, shapes, self.variances)

    def _input_matrices(self, params: Params) -> Pair:
        """Real and imaginary part of gamma B, (N, H): scaling the matrix is cheaper than scaling its product."""
        if not self.settings.normalize:
            return params["B_re"], params["B_im"]
        gamma = jnp.exp(params["gamma_log"])[:, None]
        return gamma * params["B_re"], gamma * params["B_im"]

    def chunks(self, length: int, batch: int) -> int:
        return stretches(length, batch * self.state, self.backend)

    def scan(self, params: Params, u: Array, mask: Array | None = None) -> Array:
        lam = eigenvalues(params)
        b_re, b_im = self._input_matrices(params)
        seen = u if mask is None or not self.bidirectional else jnp.where(mask[..., None], u, 0.0)
        v = (self.product(seen, b_re), self.product(seen, b_im))
        y = params["D"].reshape((1,) * (u.ndim - 1) + (-1,)) * u
        for (c_re, c_im), reverse in zip(self._readouts, (False, True), strict=False):
            # Zero input and zero state stay zero, so the backward direction starts at the last real position.
            x_re, x_im = linear_scan(lam, v, reverse=reverse, backend=self.backend)
            y = y + self.product(x_re, params[c_re]) - self.product(x_im, params[c_im])
        return y

    def spectrum(self, params: Params) -> np.ndarray:
        real, imaginary = (np.asarray(part, np.float64) for part in eigenvalues(params))
        return real + 1j * imaginary

    def initial_state(self, batch: int) -> Pair:
        return jnp.zeros((batch, self.state), jnp.float32), jnp.zeros((batch, self.state), jnp.float32)

    def step(self, params: Params, state: Pair, u: Array) -> tuple[Pair, Array]:
        self.require_causal()
        lam_re, lam_im = (part[None] for part in eigenvalues(params))
        b_re, b_im = self._input_matrices(params)
        x_re = lam_re * state[0] - lam_im * state[1] + self.product(u, b_re)
        x_im = lam_re * state[1] + lam_im * state[0] + self.product(u, b_im)
        y = self.product(x_re, params["C_re"]) - self.product(x_im, params["C_im"])
        return (x_re, x_im), y + params["D"][None] * u

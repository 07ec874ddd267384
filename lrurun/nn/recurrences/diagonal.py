"""The recurrence with a complex diagonal matrix: from unconstrained eigenvalues to the Linear Recurrent Unit."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from typing import Final, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array, Features, Mask, StateNorms, StepFeatures
from lrurun.nn.pairs import Pair, polar, times_add
from lrurun.nn.recurrences.base import Params, Recurrence
from lrurun.nn.sampling import normals
from lrurun.nn.scan import chunk_count, linear_scan

RADII: Final = (1e-4, 1.0 - 1e-7)
"""The smallest and the largest initial |lambda|: outside them logarithms are not finite, or not distinct."""


def ring(key: Array, count: int, r_min: float, r_max: float, max_phase: float) -> Pair:
    """nu = -log |lambda| and theta, (count,) each, uniform in area on a ring (Orvieto et al. 2023, Lemma 3.2).

    Radii lie in [r_min, r_max] cut to `RADII`, phases in (0, max_phase], radians.
    """
    inner, outer = (min(max(r, RADII[0]), RADII[1]) for r in (r_min, r_max))
    # w = 1 - u with u in (0, 1]. The squared radius and its distance to 1 both come from double-precision constants, so
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
    """nu = -log |lambda| and theta in radians, (N,) each, from the parameters of any `Diagonal`."""
    if "lam_re" in params:
        re, im = params["lam_re"], params["lam_im"]
        return -0.5 * jnp.log(re * re + im * im), jnp.arctan2(im, re)
    nu = jnp.exp(params["nu_log"]) if "nu_log" in params else params["nu"]
    theta = jnp.exp(params["theta_log"]) if "theta_log" in params else params["theta"]
    return shared(nu, theta.size), theta


def shared(of_head: Array, count: int) -> Array:
    """(count,) numbers: those of `of_head` (heads,), each repeated for all states of its head."""
    return of_head if of_head.size == count else jnp.repeat(of_head, count // of_head.size)


def eigenvalues(params: Params) -> Pair:
    """Real and imaginary part of lambda, (N,) each, from the parameters of any `Diagonal`."""
    if "lam_re" in params:
        return params["lam_re"], params["lam_im"]
    return polar(*decay_and_phase(params))


class System(NamedTuple):
    """x_k = lam x_(k-1) + b u_k, y_k = Re(c x_k) + d u_k with M complex numbers in x: the system that is scanned."""

    lam: Pair
    """(M,) each."""
    b: Pair
    """(M, H) each."""
    c: tuple[Pair, ...]
    """(H, M) each: for the forward direction and, in bidirectional layers, for the backward direction."""
    d: Array
    """(H,)"""


class Modal(Recurrence):
    """A recurrence whose state is M independent complex numbers, each driven by all features.

    Subclasses define `lam`, `b`, `c` and `d` by their parameters; scan and step are the same for all.
    """

    @property
    @abc.abstractmethod
    def modes(self) -> int:
        """M, the number of complex numbers in the state."""

    @abc.abstractmethod
    def system(self, params: Params) -> System:
        """The system that `params` define; computed once per scan, outside its loop."""

    def chunks(self, length: int, batch: int) -> int:
        return chunk_count(length, batch * self.modes, self.backend)

    def scan(self, params: Params, u: Features, mask: Mask | None = None) -> Features:
        lam, b, readouts, d = self.system(params)
        seen = u if mask is None or not self.bidirectional else jnp.where(mask[..., None], u, 0.0)
        v = (self.product(seen, b[0]), self.product(seen, b[1]))
        y = d.reshape((1,) * (u.ndim - 1) + (-1,)) * u
        for c, reverse in zip(readouts, (False, True), strict=False):
            # Zero input and zero state stay zero, so the backward direction starts at the last real position.
            x_re, x_im = linear_scan(lam, v, reverse=reverse, backend=self.backend)
            y = y + self.product(x_re, c[0]) - self.product(x_im, c[1])
        return y

    def initial_state(self, batch: int) -> Pair:
        return jnp.zeros((batch, self.modes), jnp.float32), jnp.zeros((batch, self.modes), jnp.float32)

    def step(self, params: Params, state: Pair, u: StepFeatures) -> tuple[Pair, StepFeatures]:
        self.require_causal()
        lam, b, ((c_re, c_im),), d = self.system(params)
        x_re, x_im = times_add(lam, state, (self.product(u, b[0]), self.product(u, b[1])))
        y = self.product(x_re, c_re) - self.product(x_im, c_im)
        return (x_re, x_im), y + d[None] * u


@final
class Diagonal(Modal):
    """x_k = lambda x_(k-1) + gamma B u_k, y_k = Re(C x_k) + D u_k (Orvieto et al. 2023, sections 3.2 to 3.4).

    Trained for lambda, (N,) each: lam_re and lam_im ("cartesian"), nu and theta with lambda = exp(-nu + i theta)
    ("exponential"), nu_log = log nu and theta ("stable-exponential"); with phase = "log", theta_log for theta. Initial
    lambda: see `ring`. B_re, B_im (N, H) ~ N(0, 1/2H), C_re, C_im (H, N) ~ N(0, 1/N), D (H,) ~ N(0, 1) (appendix A).
    With `normalize`, gamma_log (N,), see `log_gamma`. Bidirectional layers share lambda, B and gamma, add C_re_back and
    C_im_back (H, N) for the other direction, and use D once.

    With `conjugate` the N numbers are N/2 and their conjugates: only half of lambda, of the rows of B and of the
    columns of C are stored, y_k = 2 Re(C x_k) + D u_k, and C_re, C_im ~ N(0, 1/2N), so that the initial variance of y
    is the same (our own addition; the LRU has no pairs). With `heads`, nu_log and gamma_log are (heads,): one decay and
    one normalisation for all states of a head, which are neighbours.
    """

    @property
    def modes(self) -> int:
        return self.state // 2 if self.settings.conjugate else self.state

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        return frozenset({*self._eigenvalue_names, "B_re", "B_im", *(["gamma_log"] if self.settings.normalize else [])})

    @property
    def variances(self) -> Mapping[str, float]:
        of_c = (0.5 if self.settings.conjugate else 1.0) / self.state
        of_readouts = {name: of_c for pair in self.complex_readouts for name in pair}
        return {"B_re": 0.5 / self.width, "B_im": 0.5 / self.width, **of_readouts, "D": 1.0}

    @property
    def _eigenvalue_names(self) -> tuple[str, str]:
        if self.settings.parametrization == "cartesian":
            return "lam_re", "lam_im"
        decay = "nu_log" if self.settings.parametrization == "stable-exponential" else "nu"
        return decay, "theta_log" if self.settings.phase == "log" else "theta"

    def init(self, key: Array) -> Params:
        settings, n, h = self.settings, self.modes, self.width
        key_ring, key_normal = jax.random.split(key)
        nu, theta = ring(key_ring, n, settings.r_min, settings.r_max, settings.max_phase)
        if settings.heads:
            nu = nu[: settings.heads]
        initial = {
            "lam_re": lambda: jnp.exp(-nu) * jnp.cos(theta),
            "lam_im": lambda: jnp.exp(-nu) * jnp.sin(theta),
            "nu": lambda: nu,
            "nu_log": lambda: jnp.log(nu),
            "theta": lambda: theta,
            "theta_log": lambda: jnp.log(theta),
        }
        params = {name: initial[name]() for name in self._eigenvalue_names}
        if settings.normalize:
            params["gamma_log"] = log_gamma(nu)
        sizes = {"B": (n, h), "C": (h, n), "D": (h,)}
        shapes = {name: sizes[name[0]] for name in self.variances}
        return params | normals(key_normal, shapes, self.variances)

    def system(self, params: Params) -> System:
        b_re, b_im = params["B_re"], params["B_im"]
        if self.settings.normalize:
            # scaling the matrix is cheaper than scaling its product
            gamma = jnp.exp(shared(params["gamma_log"], self.modes))[:, None]
            b_re, b_im = gamma * b_re, gamma * b_im
        c = tuple((params[re], params[im]) for re, im in self.complex_readouts)
        if self.settings.conjugate:
            c = tuple((2.0 * re, 2.0 * im) for re, im in c)
        return System(eigenvalues(params), (b_re, b_im), c, params["D"])

    def norms(self, params: Params, u: Features) -> StateNorms:
        norms = super().norms(params, u)
        return math.sqrt(2.0) * norms if self.settings.conjugate else norms

    def spectrum(self, params: Params) -> np.ndarray:
        real, imaginary = (np.asarray(part, np.float64) for part in eigenvalues(params))
        one_half = real + 1j * imaginary
        return np.concatenate([one_half, one_half.conj()]) if self.settings.conjugate else one_half

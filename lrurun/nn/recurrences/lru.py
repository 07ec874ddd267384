"""The Linear Recurrent Unit, and the complex diagonal recurrences that lead to it.

Orvieto et al. 2023, "Resurrecting Recurrent Neural Networks for Long Sequences", sections 3.2 to 3.4:

    x_k = lambda x_(k-1) + gamma B u_k,    y_k = Re(C x_k) + D u_k,
    lambda = exp(-exp(nu_log) + i theta),  gamma = exp(gamma_log), at first sqrt(1 - |lambda|^2)    (eq. 7).

`parametrizations.py` has the other forms of lambda; `Diagonal` is also what S5 and the RotRNN scan.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array, Features, Mask, StateNorms, StepFeatures, expand
from lrurun.nn.complex import Complex, Packed, zeros
from lrurun.nn.recurrences.base import Params, Recurrence, complex_parameter
from lrurun.nn.recurrences.parametrizations import Parametrization, parametrization, per_state
from lrurun.nn.sampling import normals
from lrurun.nn.scan import chunk_count, join, linear_scan

RADII: Final = (1e-4, 1.0 - 1e-7)
"""The smallest and the largest initial |lambda|: outside them logarithms are not finite, or not distinct."""


def ring(key: Array, count: int, r_min: float, r_max: float, max_phase: float) -> tuple[Array, Array]:
    """nu = -log |lambda| and theta, (count,) each, uniform in area on a ring (Lemma 3.2).

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
    return nu, max_phase * (1.0 - w_phase)


def log_gamma(nu: Array) -> Array:
    """log sqrt(1 - |lambda|^2) of |lambda| = exp(-nu) (section 3.4), accurate at any positive nu."""
    return 0.5 * jnp.log(-jnp.expm1(-2.0 * nu))


class System(NamedTuple):
    """The matrices of x_k = lambda x_(k-1) + B u_k, y_k = Re(C x_k) + D u_k with M complex numbers in x."""

    lam: Complex
    """(M,)"""
    B: Complex
    """(M, H)"""
    C: tuple[Complex, ...]
    """(H, M) for the forward direction and, in bidirectional layers, for the backward direction."""
    D: Array
    """(H,)"""


class Diagonal(Recurrence):
    """A recurrence whose matrix is complex and diagonal, each number of the state driven by all features."""

    @property
    @abc.abstractmethod
    def modes(self) -> int:
        """M, the number of complex numbers in the state."""

    @abc.abstractmethod
    def system(self, params: Params) -> System:
        """The matrices that `params` define; computed once per scan, outside its loop."""

    @property
    def pairs(self) -> bool:
        """Whether each number of the state stands for itself and its conjugate, which is not computed."""
        return False

    def scan(self, params: Params, u: Features, mask: Mask | None = None) -> Features:
        return self.scan_and_norms(params, u, mask)[0]

    def scan_and_norms(
        self, params: Params, u: Features, mask: Mask | None = None
    ) -> tuple[Features, Callable[[], StateNorms]]:
        lam, B, C, D = self.system(params)
        packed_lam = Packed.of(lam)
        y = expand(D, u.ndim) * u
        # Zero input and zero state stay zero, so the backward direction starts at the last real position.
        real = u if mask is None or not self.bidirectional else jnp.where(mask[..., None], u, 0.0)
        v = Packed(self.product(real, Packed.of(B, axis=0).parts))
        forward, *_ = states = [
            linear_scan(packed_lam, v, reverse=reverse, backend=self.backend) for reverse in (False, True)[: len(C)]
        ]
        for C_way, x in zip(C, states, strict=True):
            y = y + self.product(x.parts, Packed.of(C_way.conj()).parts)  # Re(C x)

        def norms() -> StateNorms:
            x = forward.parts if u.ndim == 3 else join(forward.parts)
            return self._with_conjugates(jnp.sqrt(jnp.sum(jnp.square(x), axis=-1)))

        return y, norms

    def norms(self, params: Params, u: Features) -> StateNorms:
        return self._with_conjugates(super().norms(params, u))

    def _with_conjugates(self, norms: StateNorms) -> StateNorms:
        """The norms of the whole state, for those of the numbers that are computed."""
        return math.sqrt(2.0) * norms if self.pairs else norms

    def step(self, params: Params, state: Complex, u: StepFeatures) -> tuple[Complex, StepFeatures]:
        self.require_causal()
        lam, B, (C,), D = self.system(params)
        x = lam * state + self.product(u, B)
        y = self.product(x.real, C.real) - self.product(x.imag, C.imag)
        return x, y + D[None] * u

    def initial_state(self, batch: int) -> Complex:
        return zeros(batch, self.modes)

    def chunks(self, length: int, batch: int) -> int:
        return chunk_count(length, batch * self.modes, self.backend)


@final
class LRU(Diagonal):
    """x_k = lambda x_(k-1) + gamma B u_k, y_k = Re(C x_k) + D u_k, kind "diagonal".

    Trained: two numbers for each of the N eigenvalues lambda, see `Parametrization`; their initial values: see `ring`.
    B_re, B_im (N, H) ~ N(0, 1/2H), C_re, C_im (H, N) ~ N(0, 1/N), D (H,) ~ N(0, 1) (appendix A). With `normalize`,
    gamma_log (N,), see `log_gamma`; without it, gamma = 1. The LRU has the stable exponential parametrisation and
    `normalize`. Bidirectional layers share lambda, B and gamma, add C_re_back and C_im_back (H, N), and use D once.
    Without `train_gamma`, gamma = sqrt(1 - |lambda|^2) of the current lambda (footnote 9): there is no gamma_log, and
    the gradient of lambda has a part by way of gamma; the paper does not say whether its own has.

    Ours: with `conjugate` the N numbers are N/2 and their conjugates. Only half of lambda, of the rows of B and of the
    columns of C are stored, y_k = 2 Re(C x_k) + D u_k, and C_re, C_im ~ N(0, 1/2N), so that the initial variance of y
    is the same. With `heads`, nu_log and gamma_log are (heads,): one decay and one normalisation for all states of a
    head, which are neighbours.
    """

    @property
    def parametrization(self) -> Parametrization:
        """The parametrisation of lambda."""
        return parametrization(self.settings.parametrization, log_phase=self.settings.phase == "log")

    @property
    def modes(self) -> int:
        return self.state // 2 if self.settings.conjugate else self.state

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        gamma = ("gamma_log",) if self._trains_gamma else ()
        return frozenset({*self.parametrization.names, "B_re", "B_im", *gamma})

    @property
    def _trains_gamma(self) -> bool:
        trains: bool = self.settings.normalize and self.settings.train_gamma
        return trains

    @property
    def variances(self) -> Mapping[str, float]:
        of_c = (0.5 if self.settings.conjugate else 1.0) / self.state
        c = {f"C_{part}{way}": of_c for way in self.directions for part in ("re", "im")}
        return {"B_re": 0.5 / self.width, "B_im": 0.5 / self.width, **c, "D": 1.0}

    def init(self, key: Array) -> Params:
        settings, n, h = self.settings, self.modes, self.width
        key_ring, key_normal = jax.random.split(key)
        nu, theta = ring(key_ring, n, settings.r_min, settings.r_max, settings.max_phase)
        nu = nu[: settings.heads] if settings.heads else nu
        params = self.parametrization.initial(nu, theta)
        if self._trains_gamma:
            params["gamma_log"] = log_gamma(nu)
        sizes = {"B": (n, h), "C": (h, n), "D": (h,)}
        shapes = {name: sizes[name[0]] for name in self.variances}
        return params | normals(key_normal, shapes, self.variances)

    def system(self, params: Params) -> System:
        lam, B = self.parametrization.eigenvalues(params), complex_parameter(params, "B")
        C = tuple(complex_parameter(params, "C", way) for way in self.directions)
        if self.settings.normalize:
            # scaling the matrix is cheaper than scaling its product
            trained = self._trains_gamma
            gamma_log = params["gamma_log"] if trained else log_gamma(self.parametrization.decay_and_phase(params)[0])
            B = B * jnp.exp(per_state(gamma_log, self.modes))[:, None]
        if self.settings.conjugate:
            C = tuple(2.0 * C_way for C_way in C)
        return System(lam, B, C, params["D"])

    @property
    def pairs(self) -> bool:
        return bool(self.settings.conjugate)

    def spectrum(self, params: Params) -> np.ndarray:
        lam = self.parametrization.eigenvalues(params).numpy()
        return np.concatenate([lam, lam.conj()]) if self.settings.conjugate else lam

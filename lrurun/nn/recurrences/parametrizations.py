"""Which numbers are trained for the eigenvalues lambda of a complex diagonal matrix (Orvieto et al. 2023, section 3).

Each parametrisation knows its parameters, their initial values, and the eigenvalues that they stand for.
"""

from __future__ import annotations

import abc

import jax.numpy as jnp

from lrurun.nn.axes import Array
from lrurun.nn.complex import Complex, polar
from lrurun.nn.recurrences.base import Params


class Parametrization(abc.ABC):
    """Two trained numbers for each eigenvalue lambda = exp(-nu + i theta)."""

    names: tuple[str, str]
    """The names of the two parameters."""

    @abc.abstractmethod
    def initial(self, nu: Array, theta: Array) -> Params:
        """The parameters of lambda = exp(-nu + i theta), for `nu` and `theta` (N,)."""

    @abc.abstractmethod
    def decay_and_phase(self, params: Params) -> tuple[Array, Array]:
        """nu = -log |lambda| and theta in radians, (N,) each."""

    def eigenvalues(self, params: Params) -> Complex:
        """lambda, (N,)."""
        return polar(*self.decay_and_phase(params))


class Cartesian(Parametrization):
    """lambda = lam_re + i lam_im: the rung `diagonal`."""

    names = ("lam_re", "lam_im")

    def initial(self, nu: Array, theta: Array) -> Params:
        lam = polar(nu, theta)
        return {"lam_re": lam.real, "lam_im": lam.imag}

    def eigenvalues(self, params: Params) -> Complex:
        return Complex(params["lam_re"], params["lam_im"])

    def decay_and_phase(self, params: Params) -> tuple[Array, Array]:
        lam = self.eigenvalues(params)
        return -0.5 * jnp.log(lam.abs2()), jnp.arctan2(lam.imag, lam.real)


class Exponential(Parametrization):
    """lambda = exp(-nu + i theta): the rung `exponential`."""

    decay = "nu"

    def __init__(self, *, log_phase: bool = False) -> None:
        """With `log_phase`, theta_log = log theta is trained in place of theta."""
        self.log_phase = log_phase
        self.names = (self.decay, "theta_log" if log_phase else "theta")

    def initial(self, nu: Array, theta: Array) -> Params:
        decay, phase = self.names
        return {decay: self.trained_decay(nu), phase: jnp.log(theta) if self.log_phase else theta}

    def decay_and_phase(self, params: Params) -> tuple[Array, Array]:
        decay, phase = (params[name] for name in self.names)
        theta = jnp.exp(phase) if self.log_phase else phase
        return per_state(self.actual_decay(decay), theta.size), theta

    def trained_decay(self, nu: Array) -> Array:
        """The trained numbers that stand for `nu`, (N,)."""
        return nu

    def actual_decay(self, trained: Array) -> Array:
        """The nu that `trained` numbers stand for, (N,) or (heads,)."""
        return trained


class StableExponential(Exponential):
    """lambda = exp(-exp(nu_log) + i theta), so that |lambda| < 1: from the rung `stable-exponential` on."""

    decay = "nu_log"

    def trained_decay(self, nu: Array) -> Array:
        return jnp.log(nu)

    def actual_decay(self, trained: Array) -> Array:
        return jnp.exp(trained)


def parametrization(name: str, *, log_phase: bool = False) -> Parametrization:
    """The parametrisation that a recipe calls `name`."""
    if name == "cartesian":
        return Cartesian()
    return (StableExponential if name == "stable-exponential" else Exponential)(log_phase=log_phase)


def per_state(of_heads: Array, count: int) -> Array:
    """(count,) numbers: `of_heads` (heads,), each repeated for all states of its head."""
    return of_heads if of_heads.size == count else jnp.repeat(of_heads, count // of_heads.size)

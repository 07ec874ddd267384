"""Coordinates of one eigenvalue λ = ν exp(iθ), and its distance to a teacher's, for white input.

Everything works on NumPy and on jax arrays alike. Zucchet and Orvieto 2024, appendix B.1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from lrurun.studies.machinery.study import Array

Form = Literal["polar", "exponential", "optimal", "optimal-stop"]
"""polar: (ν, θ); exponential: ν = exp(-exp w), θ = exp v; optimal: ν = tanh w, θ = v (1 - ν²) / (ν √(1 + ν²)), where
"optimal-stop" takes the ν of θ as a constant when it differentiates."""
FORMS: list[Form] = ["polar", "exponential", "optimal", "optimal-stop"]

Modulus = Annotated[float, Meta(gt=0, lt=1)]
"""An absolute value for which all forms have finite coordinates."""
Angle = Annotated[float, Meta(gt=0, le=1)]
"""An angle in units of π."""


def same(value: Any) -> Any:
    """Returns its argument: it replaces jax.lax.stop_gradient where nothing is differentiated."""
    return value


def magnitude(form: Form, w: Any, xp: Any = np) -> Any:
    """ν of the first coordinate."""
    if form == "polar":
        return w
    return xp.exp(-xp.exp(w)) if form == "exponential" else xp.tanh(w)


def angle(form: Form, v: Any, nu: Any, xp: Any = np, stop: Callable[[Any], Any] = same) -> Any:
    """θ of the second coordinate, in radians; `stop` is jax.lax.stop_gradient where derivatives are taken."""
    if form == "polar":
        return v
    if form == "exponential":
        return xp.exp(v)
    nu = stop(nu) if form == "optimal-stop" else nu
    return v * unit(nu, xp)


def unit(nu: Any, xp: Any = np) -> Any:
    """The angle of one unit of the optimal coordinate: (1 - ν²) / (ν √(1 + ν²)), eq. 88."""
    return (1 - nu**2) / (nu * xp.sqrt(1 + nu**2))


def coordinates(form: Form, nu: float, theta: float) -> tuple[float, float]:
    """(w, v) of ν and θ."""
    if form == "polar":
        return nu, theta
    if form == "exponential":
        return float(np.log(-np.log(nu))), float(np.log(theta))
    return float(np.arctanh(nu)), theta / float(unit(nu))


def jacobian(form: Form, nu: float, theta: float) -> Array:
    """The derivatives of (ν, θ), in rows, by (w, v)."""
    if form == "polar":
        return np.eye(2)
    if form == "exponential":
        return np.diag([nu * np.log(nu), theta])
    by_nu = -theta * (2 * nu / (1 - nu**2) + 1 / nu + nu / (1 + nu**2)) if form == "optimal" else 0.0
    return np.array([[1 - nu**2, 0.0], [by_nu * (1 - nu**2), float(unit(nu))]])


def distance(nu: Any, theta: Any, target: Any, normalised: Any, xp: Any = np, gamma: Any = None) -> Any:
    """E|h - h*|² / 2 for white input, with both states multiplied by γ = √(1 - |λ|²) if `normalised`.

    Args:
        target: (ν, θ) of the teacher.
        normalised: a boolean, or an array of one.
        gamma: γ of the student, where it does not come from this closed form.
    """
    goal, turn = target
    product = 1 - nu * goal * xp.exp(1j * (theta - turn))
    cross = (1 / product).real
    size, goal_size = 1 - nu**2, 1 - goal**2
    gamma = xp.sqrt(size) if gamma is None else gamma
    return xp.where(normalised, 1 - gamma * xp.sqrt(goal_size) * cross, 0.5 / size + 0.5 / goal_size - cross)


def curvature(nu: float, theta: float, form: Form, normalised: bool) -> Array:
    """The Hessian (2, 2) of `distance` by (w, v) where λ is the teacher's: eqs. 74 to 85, completed by the
    derivative of θ by w."""
    size = 1 - nu**2
    growth = (1 + nu**2) / size**3
    polar = np.diag([1 / size**2, nu**2 * (1 + nu**2) / size**2] if normalised else [growth, nu**2 * growth])
    turned = jacobian(form, nu, theta)
    return turned.T @ polar @ turned


def magnitude_basin(form: Form, nu: float) -> float:
    """How far w may move towards |λ| = 1 until the normalised distance of equal angles is 1/2.

    Derived from `distance`, which is 1 - 1 / cosh(a - b) for the absolute values tanh a and tanh b.
    """
    edge = float(np.tanh(np.arctanh(nu) + np.arccosh(2)))
    return abs(coordinates(form, edge, 1.0)[0] - coordinates(form, nu, 1.0)[0])


def basin(nu: float) -> float:
    """The error of the angle, in radians, at which the normalised distance of equal ν is 1/2; π where it stays below.

    Derived from `distance`: the sine of half of it is (1 - ν²) / (2ν²).
    """
    return float(2 * np.arcsin(min((1 - nu) * (1 + nu) / (2 * nu**2), 1.0)))


def eigenvalue(form: Form, w: Any, v: Any) -> tuple[Any, Any, Any]:
    """ν, θ and γ of jax arrays. The layers compute them for "exponential"; they do not have the other forms."""
    import jax
    import jax.numpy as jnp

    if form == "exponential":
        from lrurun.nn.recurrences.lru import log_gamma
        from lrurun.nn.recurrences.parametrizations import StableExponential

        layer = StableExponential(log_phase=True)
        decay, theta = layer.decay_and_phase(dict(zip(layer.names, (w, v), strict=True)))
        return jnp.exp(-decay), theta, jnp.exp(log_gamma(decay))
    nu = magnitude(form, w, jnp)
    return nu, angle(form, v, nu, jnp, jax.lax.stop_gradient), jnp.sqrt(1 - nu**2)


@cache
def differentiated(form: Form) -> Any:
    """(optimum, target, points of w, points of v) -> Hessians of both losses, loss and second derivative of slices."""
    import jax
    import jax.numpy as jnp

    def run(optimum: Any, target: Any, first: Any, second: Any) -> Any:
        def loss(coordinates: Any, norm: bool) -> Any:
            nu, theta, gamma = eigenvalue(form, *coordinates)
            return distance(nu, theta, target, norm, jnp, gamma)

        hessians = [jax.hessian(partial(loss, norm=norm))(optimum) for norm in (True, False)]

        def over_magnitude(w: Any) -> Any:
            nu, _, gamma = eigenvalue(form, w, optimum[1])
            return distance(nu, target[1], target, True, jnp, gamma)

        def over_angle(v: Any) -> Any:
            return distance(target[0], eigenvalue(form, optimum[0], v)[1], target, True, jnp)

        slices = [
            (jax.vmap(slice_)(x), jax.vmap(jax.grad(jax.grad(slice_)))(x))
            for slice_, x in ((over_magnitude, first), (over_angle, second))
        ]
        return hessians, slices

    return jax.jit(run)

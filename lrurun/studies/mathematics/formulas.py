"""Closed forms that several studies share, in float64.

One linear unit h_t = lambda h_(t-1) + x_t, from t = -infinity, with a real stationary input of variance 1 whose
autocorrelation at lag D is rho^|D|. Zucchet and Orvieto 2024, section 2 and appendix A, with their equation (37)
corrected: every factor (1 - rho) of its numerator is (1 - rho^2).
"""

from __future__ import annotations

from typing import Annotated, Any
from zlib import crc32

import numpy as np
from msgspec import Meta

from lrurun.errors import UsageError
from lrurun.studies.machinery.study import Array, Radius

Ring = tuple[Radius, Annotated[float, Meta(gt=0, le=1)]]
"""The inner and the outer radius of a ring around 0."""


def _check(*eigenvalues: Any, rho: float) -> None:
    for value in eigenvalues:
        if not np.all(np.abs(value) < 1):
            raise UsageError("the closed forms need |lambda| < 1", f"found {np.max(np.abs(value)):g}")
    if not 0 <= rho <= 1:
        raise UsageError(f"the closed forms need 0 <= rho <= 1, found {rho:g}", "rho is an autocorrelation")


def generating(a: Any, b: Any, rho: float) -> Any:
    """F(a, b): the sum of a^n b^m rho^|n - m| over n, m >= 0. Complex if a or b is."""
    _check(a, b, rho=rho)
    a, b = np.asarray(a), np.asarray(b)
    return (1 - rho**2 * a * b) / ((1 - a * b) * (1 - rho * a) * (1 - rho * b))


def derivative(a: Any, b: Any, rho: float) -> Any:
    """S(a, b): the derivative of F by a and by b, in a form without cancellation."""
    _check(a, b, rho=rho)
    a, b = np.asarray(a), np.asarray(b)
    p = a * b
    first = (1 + p) * (1 - rho**2 * p) / ((1 - p) ** 3 * (1 - rho * a) * (1 - rho * b))
    second = (rho * a / (1 - rho * a) ** 2 + rho * b / (1 - rho * b) ** 2) / (1 - p) ** 2
    return first + second


def state_variance(eigenvalue: Any, rho: float) -> Array:
    """E|h|^2, of the shape of `eigenvalue`."""
    return np.real(generating(eigenvalue, np.conj(eigenvalue), rho))


def sensitivity(eigenvalue: Any, rho: float) -> Array:
    """E|dh/dlambda|^2, of the shape of `eigenvalue`."""
    return np.real(derivative(eigenvalue, np.conj(eigenvalue), rho))


def printed_derivative(a: Any, b: Any, rho: float) -> Any:
    """S(a, b) as equations (37) and (110) of Zucchet and Orvieto 2024 print it: too small for 0 < rho < 1."""
    _check(a, b, rho=rho)
    a, b = np.asarray(a), np.asarray(b)
    p = a * b
    top = (1 - rho) * (1 + p) + rho**2 * (1 - p) ** 3 + rho * (1 - rho) * p * (rho * p * (1 + p) - 2 * a - 2 * b)
    return top / ((1 - p) ** 3 * (1 - rho * a) ** 2 * (1 - rho * b) ** 2)


def check_ring(ring: Ring) -> None:
    """Checks the radii of a ring.

    Raises:
        ValueError: the inner radius is not the smaller one, or layers cannot sample the ring in float32, because it is
            too small or too thin.
    """
    inner, outer = ring
    if inner >= outer:
        raise ValueError(f"the inner radius of the ring, {inner:g}, must be below the outer one, {outer:g}")
    if outer < 0.01 or outer - inner < 1e-5:
        raise ValueError(
            f"the ring must have an outer radius from 0.01 and a width from 1e-5, found {inner:g} to {outer:g}"
        )


def distance_to_uniform(ordered: Array) -> float:
    """The Kolmogorov distance of sorted samples to the uniform distribution from 0 to 1."""
    n = len(ordered)
    share = np.arange(n + 1) / n
    return float(max(np.max(share[1:] - ordered), np.max(ordered - share[:-1])))


def generator(seed: int, name: str) -> np.random.Generator:
    """Random numbers of a seed for one purpose, independent of those for other purposes."""
    return np.random.default_rng([seed, crc32(name.encode())])


def energy(first: Array, second: Array, rho: float) -> complex:
    """The sum of first[n] conj(second[m]) rho^|n - m|, over any n and m: E of the product of two filtered inputs.

    The series of `generating` and `derivative`: a second computation of both, of any length, in linear time.
    """
    from scipy.signal import lfilter

    past = [lfilter([1.0], [1.0, -rho], signal) for signal in (first, second)]
    return complex(np.vdot(second, past[0]) + np.vdot(past[1], first) - np.vdot(second, first))


def loss(student: Any, teacher: Any, rho: float) -> Array:
    """E|h - h*|^2 / 2 of two eigenvalues with the same input, of the shapes of both."""
    _check(student, teacher, rho=rho)
    cross = np.real(generating(student, np.conj(teacher), rho))
    return np.asarray((state_variance(student, rho) + state_variance(teacher, rho)) / 2 - cross)


def ring_gain(ring: Ring, steps: int | None = None) -> float:
    """E|h|^2 for an input of E|x|^2 = 1 and eigenvalues uniform on a ring (Orvieto et al. 2023, Prop. 3).

    Without `steps`, the limit of long sequences; else after so many inputs, as a sum over their lags. Constant inputs
    have the same mean as white ones if the phase is uniform on the circle.
    """
    a, b = (radius**2 for radius in ring)
    if steps is None:
        _check(ring[1], rho=0.0)
        return float((np.log1p(-a) - np.log1p(-b)) / (b - a))
    n = np.arange(1, steps + 1)
    return float(np.sum((b**n - a**n) / n) / (b - a))


def slice_gain(ring: Ring, phase: float) -> float:
    """The mean of |1 - lambda|^-2, the gain of a constant input, for phases uniform from 0 to `phase`, at most pi."""
    from scipy.integrate import quad

    a, b = ring
    tangent = np.tan(phase / 2)

    def gain(r: float) -> float:
        return float(2 / (1 - r * r) * np.arctan((1 + r) / (1 - r) * tangent) / phase * 2 * r / (b * b - a * a))

    return float(quad(gain, a, b, epsabs=0, epsrel=1e-10)[0])

"""Closed forms that several studies share, in float64.

One linear unit h_t = lambda h_(t-1) + x_t, from t = -infinity, with a real stationary input of variance 1 whose
autocorrelation at lag D is rho^|D|. Zucchet and Orvieto 2024, section 2 and appendix A, with their equation (37)
corrected: every factor (1 - rho) of its numerator is (1 - rho^2).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lrurun.errors import UsageError
from lrurun.studies.study import Array


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

"""Checks of studies: each compares a measured number with an expected one, and can fail.

Three kinds: `identity` compares two computations of one number; `sampling` compares a mean with its expected value, in
exact standard errors; `direction` tests the sign of a difference over seeds, or compares a number with a bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

STANDARD_ERRORS = 5.0
"""How far a sampled mean may be from its expected value."""
LEVEL = 0.05
"""Of the one-sided tests over seeds."""

Kind = Literal["identity", "sampling", "direction"]


class Check(Struct, frozen=True, kw_only=True):
    """A comparison and its outcome."""

    name: str
    kind: Kind
    measured: float
    expected: float
    tolerance: float
    """identity: largest relative difference (absolute where 0 is expected); sampling: largest absolute difference;
    direction: 0."""
    rule: str
    """What must hold, in words, as in "within 1e-08 of it"."""
    passed: bool


def identity(name: str, measured: float, expected: float, tolerance: float = 1e-8) -> Check:
    """That two computations give the same number, up to a relative `tolerance` (absolute where 0 is expected)."""
    scale = abs(expected) or 1.0
    return Check(
        name=name,
        kind="identity",
        measured=float(measured),
        expected=float(expected),
        tolerance=tolerance,
        rule=f"equal up to {tolerance:g}",
        passed=bool(abs(measured - expected) <= tolerance * scale),
    )


def sampling(name: str, measured: float, expected: float, stderr: float) -> Check:
    """That a sampled mean is within `STANDARD_ERRORS` of its expected value; `stderr` is exact, not the sample's."""
    tolerance = STANDARD_ERRORS * stderr
    return Check(
        name=name,
        kind="sampling",
        measured=float(measured),
        expected=float(expected),
        tolerance=float(tolerance),
        rule=f"within {STANDARD_ERRORS:g} standard errors of {stderr:.3g}",
        passed=bool(abs(measured - expected) <= tolerance),
    )


def above(name: str, measured: float, bound: float) -> Check:
    """That a number is above a bound."""
    return _bounded(name, measured, bound, "above", measured > bound)


def below(name: str, measured: float, bound: float) -> Check:
    """That a number is below a bound."""
    return _bounded(name, measured, bound, "below", measured < bound)


def _bounded(name: str, measured: float, bound: float, word: str, passed: bool) -> Check:
    return Check(
        name=name,
        kind="direction",
        measured=float(measured),
        expected=float(bound),
        tolerance=0.0,
        rule=f"{word} {bound:g}",
        passed=bool(passed),
    )


def larger(name: str, first: Sequence[float], second: Sequence[float]) -> Check:
    """That `first` is larger than `second`, paired by seed: a one-sided t test on the differences of the logarithms.

    Measured is p; with fewer than two pairs, or numbers that are not positive and finite, it is NaN and the check
    fails.
    """
    pairs = zip(first, second, strict=True)
    p = one_sided_p([math.log(a) - math.log(b) if a > 0 and b > 0 else math.nan for a, b in pairs])
    return Check(
        name=name,
        kind="direction",
        measured=p,
        expected=LEVEL,
        tolerance=0.0,
        rule=f"p of a paired t test on logarithms below {LEVEL:g}",
        passed=p < LEVEL,
    )


def one_sided_p(differences: Sequence[float]) -> float:
    """p of the one-sided t test that the mean of `differences` is positive; NaN with fewer than two finite ones."""
    from scipy.special import stdtr

    n = len(differences)
    if n < 2 or not all(map(math.isfinite, differences)):
        return math.nan
    mean = math.fsum(differences) / n
    variance = math.fsum((d - mean) ** 2 for d in differences) / (n - 1)
    if variance == 0.0:
        return 0.0 if mean > 0 else 1.0
    return float(stdtr(n - 1, -mean / math.sqrt(variance / n)))


def failed(checks: Iterable[Check]) -> list[Check]:
    """Those that did not pass."""
    return [check for check in checks if not check.passed]

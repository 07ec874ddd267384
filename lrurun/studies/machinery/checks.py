"""Checks of studies: each compares a measured number with an expected one, and can fail.

There are three: `identity` compares two computations of one number; `sampling` compares a mean with its expected value,
in exact standard errors; `bound` compares a number with another that it may not reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

STANDARD_ERRORS = 5.0
"""How far a sampled mean may be from its expected value."""
LEVEL = 0.05
"""The level of the one-sided tests over seeds."""
FEWEST = 5
"""Seeds with which p of a sign test can be below `LEVEL`: 0.5**5 is."""

Comparison = Literal["identity", "sampling", "bound"]


class Check(Struct, frozen=True, kw_only=True):
    """A comparison and its outcome."""

    name: str
    kind: Comparison
    measured: float
    expected: float
    tolerance: float
    """identity: largest relative difference (absolute where 0 is expected); sampling: largest absolute difference;
    bound: 0."""
    tolerance_kind: Literal["relative", "absolute"] = "absolute"
    rule: str
    """The rule in words, for example "within 1e-08 of it"."""
    passed: bool

    @property
    def state(self) -> Literal["ok", "FAILED"]:
        """The outcome, in words."""
        return "ok" if self.passed else "FAILED"


def identity(name: str, measured: float, expected: float, tolerance: float = 1e-8) -> Check:
    """Checks that two computations give the same number, up to a relative `tolerance` (absolute where 0 is
    expected)."""
    scale = abs(expected) or 1.0
    tolerance_kind: Literal["relative", "absolute"] = "relative" if expected else "absolute"
    return Check(
        name=name,
        kind="identity",
        measured=float(measured),
        expected=float(expected),
        tolerance=tolerance,
        tolerance_kind=tolerance_kind,
        rule=f"equal up to {tolerance:g} ({tolerance_kind})",
        passed=bool(abs(measured - expected) <= tolerance * scale),
    )


def nan_last(difference: float) -> float:
    """The absolute value of a difference, infinite for NaN: by it `max` finds the worst of several."""
    return math.inf if math.isnan(difference) else abs(difference)


def sampling(name: str, measured: float, expected: float, stderr: float) -> Check:
    """Checks that a sampled mean is within `STANDARD_ERRORS` of its expected value; `stderr` is exact, not the
    sample's."""
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


def below(name: str, measured: float, bound: float) -> Check:
    """Checks that a number is below a bound."""
    return Check(
        name=name,
        kind="bound",
        measured=float(measured),
        expected=float(bound),
        tolerance=0.0,
        rule=f"below {bound:g}",
        passed=bool(measured < bound),
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


def sign_p(wins: int, pairs: int) -> float:
    """p of the one-sided sign test: at least so many wins of fair coins."""
    from scipy.special import bdtrc

    return float(bdtrc(wins - 1, pairs, 0.5))


def failed(checks: Iterable[Check]) -> list[Check]:
    """The checks that did not pass."""
    return [check for check in checks if not check.passed]

"""Checks of studies: each compares a measured number with an expected one, and can fail.

Three kinds: `identity` compares two computations of one number; `sampling` compares a mean with its expected value, in
exact standard errors; `direction` tests the sign of a difference over seeds, or compares a number with a bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct, structs

STANDARD_ERRORS = 5.0
"""How far a sampled mean may be from its expected value."""
LEVEL = 0.05
"""The level of the one-sided tests over seeds."""
FEWEST = 5
"""Pairs with which p of a sign test can be below `LEVEL`: 0.5**5 is."""

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
    tolerance_kind: Literal["relative", "absolute"] = "absolute"
    rule: str
    """The rule in words, for example "within 1e-08 of it"."""
    passed: bool
    lower_bound: bool = False
    """Whether `measured` is only a bound: the number itself is as large or larger."""
    needs: str = ""
    """What a check needs that was not tested, for example "at least 2 seeds". It has neither passed nor failed."""

    @property
    def state(self) -> Literal["ok", "FAILED", "not tested"]:
        """The outcome, in words."""
        return "ok" if self.passed else "not tested" if self.needs else "FAILED"

    def number(self, digits: int = 6) -> str:
        """The measured number as text."""
        return f"{'≥ ' * (self.lower_bound and not math.isnan(self.measured))}{self.measured:.{digits}g}"


def identity(name: str, measured: float, expected: float, tolerance: float = 1e-8) -> Check:
    """Checks that two computations give the same number, up to a relative `tolerance` (absolute where 0 is
    expected)."""
    scale = abs(expected) or 1.0
    kind: Literal["relative", "absolute"] = "relative" if expected else "absolute"
    return Check(
        name=name,
        kind="identity",
        measured=float(measured),
        expected=float(expected),
        tolerance=tolerance,
        tolerance_kind=kind,
        rule=f"equal up to {tolerance:g} ({kind})",
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


def above(name: str, measured: float, bound: float, needs: str = "") -> Check:
    """Checks that a number is above a bound; with `needs`, it is not tested."""
    return _bounded(name, measured, bound, "above", measured > bound, needs)


def below(name: str, measured: float, bound: float, needs: str = "") -> Check:
    """Checks that a number is below a bound; with `needs`, it is not tested."""
    return _bounded(name, measured, bound, "below", measured < bound, needs)


def at_least_above(name: str, least: float, bound: float) -> Check:
    """Checks that a number is above a bound, where training ended too early to know more of it than `least`, a lower
    bound.

    Where `least` is not above `bound`, nothing is decided, and the check is not tested.
    """
    return structs.replace(above(name, least, bound, "" if least > bound else "more updates"), lower_bound=True)


def _bounded(name: str, measured: float, bound: float, word: str, passed: bool, needs: str) -> Check:
    return Check(
        name=name,
        kind="direction",
        measured=float(measured),
        expected=float(bound),
        tolerance=0.0,
        rule=f"{word} {bound:g}{_after(needs)}",
        passed=bool(passed) and not needs,
        needs=needs,
    )


def larger(name: str, first: Sequence[float], second: Sequence[float]) -> Check:
    """Checks that `first` is larger than `second`, paired by seed: a one-sided t test on the differences of the
    logarithms.

    The measured number is p. It is NaN with one pair, which is not tested. It is NaN, and the check fails, with no pair
    and with numbers that are not positive and finite, as where training diverged.
    """
    pairs = zip(first, second, strict=True)
    differences = [math.log(a) - math.log(b) if a > 0 and b > 0 else math.nan for a, b in pairs]
    p = one_sided_p(differences)
    needs = "at least 2 seeds" if len(differences) == 1 and math.isfinite(differences[0]) else ""
    return Check(
        name=name,
        kind="direction",
        measured=p,
        expected=LEVEL,
        tolerance=0.0,
        rule=f"p of a paired t test on logarithms below {LEVEL:g}{_after(needs)}",
        passed=p < LEVEL,
        needs=needs,
    )


def _after(needs: str) -> str:
    return f"; not tested: needs {needs}" if needs else ""


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


def sign_test(question: str, wins: Sequence[bool]) -> Check:
    """Checks that more pairs win than by chance, by p of a one-sided sign test; with fewer than `FEWEST`, it is not
    tested."""
    name, needs = f"p of a sign test on {len(wins)} seeds, {question}", f"at least {FEWEST} seeds"
    return below(name, sign_p(sum(wins), len(wins)), LEVEL, "" if len(wins) >= FEWEST else needs)


def sign_p(wins: int, pairs: int) -> float:
    """p of the one-sided sign test: at least so many wins of fair coins."""
    from scipy.special import bdtrc

    return float(bdtrc(wins - 1, pairs, 0.5))


def failed(checks: Iterable[Check]) -> list[Check]:
    """The checks that were tested and did not pass."""
    return [check for check in checks if check.state == "FAILED"]

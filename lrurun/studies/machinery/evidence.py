"""Claims of papers about their theory figures, and rules by which the results of a study support or contradict them.

Every rule can go both ways. What arithmetic decides, as two computations of one number, is a check and no claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from lrurun.judging import holm, wording
from lrurun.judging.judged_claim import Judge, JudgedClaim
from lrurun.studies.machinery.checks import FEWEST, LEVEL, Check, one_sided_p, sign_p

Verdict = Literal["supported", "contradicted", "undecided"]


class Evidence(Struct, frozen=True):
    """The verdict of results on a claim."""

    verdict: Verdict
    detail: str
    """The numbers and the rule, in words."""
    p: float | None = None
    """p of the test that decided; None where there was no test."""


class StudyClaim(Struct, frozen=True, kw_only=True):
    """A sentence of a paper about a figure."""

    text: str
    source: str
    """The paper, and its section, figure or equation."""
    evidence: Callable[[Any], Evidence | None]
    """The evidence of the study's `Results`; None where the profile has none."""
    profile: Literal["laptop", "paper"] = "laptop"
    """The smallest profile above "ci" that has evidence."""

    def judged(self, *, by: Judge, verdict: str, **about: Any) -> JudgedClaim:
        """The claim with this verdict; it has no rungs."""
        return JudgedClaim(
            by=by, text=self.text, source=self.source, kind="check", rung="", other=None, verdict=verdict, **about
        )


def judge(claims: Sequence[StudyClaim], results: Any, checks: Sequence[Check]) -> list[JudgedClaim]:
    """The claims about which the results say something, with Holm's correction over their tests.

    They are undecided where a check failed, because the study's numbers may be wrong then.
    """
    wrong = [check.name for check in checks if not check.passed]
    found = [(claim, evidence) for claim in claims if (evidence := claim.evidence(results)) is not None]
    verdicts = []
    for (claim, evidence), p in zip(found, holm.step_down([evidence.p for _, evidence in found]), strict=True):
        verdict, detail = evidence.verdict, evidence.detail
        if p is not None and p != evidence.p:
            detail = f"{detail}; adjusted p = {_number(p)}"
            verdict = verdict if p < LEVEL else "undecided"
        if wrong:
            verdict, detail = "undecided", f"failed: {'; '.join(wrong[:2])}. {detail}"
        verdicts.append(claim.judged(by="study", verdict=verdict, detail=detail))
    return verdicts


def threshold(name: str, value: float, *, supported: float, contradicted: float) -> Evidence:
    """Supports the claim if `value` is at `supported` or beyond, as seen from `contradicted`; contradicts it likewise.

    A value between them, or none, decides nothing.
    """
    rises = supported > contradicted
    verdict: Verdict = "undecided"
    if value >= supported if rises else value <= supported:
        verdict = "supported"
    elif value <= contradicted if rises else value >= contradicted:
        verdict = "contradicted"
    words = ("from", "up to") if rises else ("up to", "from")
    rule = f"supported {words[0]} {supported:.4g}, contradicted {words[1]} {contradicted:.4g}"
    return Evidence(verdict, f"{name}: {value:.4g}; {rule}")


def positive(name: str, differences: Sequence[float], fewest: int = FEWEST) -> Evidence:
    """Supports the claim if the mean of `differences` over seeds is positive, by a one-sided t test at 5 %; contradicts
    it if it is negative.

    Nothing is decided with fewer than `fewest` seeds, where a number is not finite, and where the median has another
    sign than the mean, because a few seeds decide the mean then.
    """
    n = len(differences)
    if n < fewest or not all(map(math.isfinite, differences)):
        return Evidence("undecided", f"{name}: needs {fewest} seeds with finite numbers, has {n}")
    mean, median = float(np.mean(differences)), float(np.median(differences))
    above, below = one_sided_p(differences), one_sided_p([-difference for difference in differences])
    verdict: Verdict = "undecided"
    if mean * median > 0 and min(above, below) < LEVEL:
        verdict = "supported" if above < below else "contradicted"
    p = min(above, below)
    return Evidence(verdict, f"{name}: mean {mean:.3g}, median {median:.3g} of {n} seeds, p = {_number(p)}", p)


def larger(name: str, first: Sequence[float], second: Sequence[float], fewest: int = FEWEST) -> Evidence:
    """Supports the claim if `first` is larger than `second`, paired by seed: `positive` of the differences of the
    logarithms."""
    pairs = zip(first, second, strict=True)
    return positive(
        f"log of {name}", [math.log(a / b) if a > 0 and b > 0 else math.nan for a, b in pairs], fewest=fewest
    )


def majority(name: str, wins: Sequence[bool], fewest: int = FEWEST) -> Evidence:
    """Supports the claim if more seeds win than lose, by a one-sided sign test at 5 %; contradicts it if more lose.

    For numbers of which a few seeds are larger than all others together, or infinite.
    """
    n, won = len(wins), sum(wins)
    if n < fewest:
        return Evidence("undecided", f"{name}: needs {fewest} seeds, has {n}")
    above, below = sign_p(won, n), sign_p(n - won, n)
    verdict: Verdict = "undecided"
    if min(above, below) < LEVEL:
        verdict = "supported" if above < below else "contradicted"
    p = min(above, below)
    return Evidence(verdict, f"{name}: in {won} of {n} seeds, p = {_number(p)} of a sign test", p)


def equivalent(name: str, differences: Sequence[float], margin: float, fewest: int = FEWEST) -> Evidence:
    """Supports the claim if the mean of `differences` over seeds is within `margin` of 0, by two one-sided t tests at
    5 %; contradicts it if it is beyond, by one."""
    n = len(differences)
    if n < fewest or not all(map(math.isfinite, differences)):
        return Evidence("undecided", f"{name}: needs {fewest} seeds with finite numbers, has {n}")
    low = [difference + margin for difference in differences]
    high = [margin - difference for difference in differences]
    within = max(one_sided_p(low), one_sided_p(high))
    beyond = min(one_sided_p([-x for x in low]), one_sided_p([-x for x in high]))
    verdict: Verdict = "undecided"
    if min(within, beyond) < LEVEL:
        verdict = "supported" if within < beyond else "contradicted"
    detail = f"{name}: mean {np.mean(differences):.3g} of {n} seeds, margin ±{margin:.3g}"
    return Evidence(verdict, detail, min(within, beyond))


def together(*parts: Evidence | None) -> Evidence | None:
    """Supports the claim if all parts do, contradicts it if one does; None without any part.

    A test contradicts it at 5 % over the number of parts, because one of several is below 5 % more often than that.
    """
    found = [part for part in parts if part is not None]
    if not found:
        return None
    detail = "; ".join(part.detail for part in found)
    tests = [part.p for part in found if part.p is not None]
    if against := [part.p for part in found if part.verdict == "contradicted"]:
        if None in against:
            return Evidence("contradicted", detail)
        p = min(1.0, len(tests) * min(p for p in against if p is not None))
        return Evidence("contradicted" if p < LEVEL else "undecided", detail, p)
    verdict: Verdict = "supported" if all(part.verdict == "supported" for part in found) else "undecided"
    return Evidence(verdict, detail, max(tests, default=None))


def _number(p: float) -> str:
    """A p with two digits, and more where two would make it the level itself."""
    return wording.beside_level(p, "{:.2g}", "{:.3g}", "{:.4g}", "{:.5g}")

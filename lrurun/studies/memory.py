"""`memory`: how the state and its sensitivity grow as the memory of one linear unit does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import Figure, grey, line, log_log
from lrurun.studies.machinery.checks import Check, identity
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, threshold, together
from lrurun.studies.machinery.study import Results, Rho, Settings, Study, Values
from lrurun.studies.mathematics.formulas import sensitivity, state_variance

GRID = {"rho": [0.0, 0.9, 0.99, 0.999, 1.0]}


class Memory(Settings, frozen=True, kw_only=True):
    """One autocorrelation of the input."""

    rho: Rho = 0.0
    points: Annotated[int, Meta(ge=2, le=10**8)] = 41
    """Eigenvalues 1 - 10**-x with x evenly spaced from 0 to 4."""


def _explosion(results: Results[Memory]) -> Evidence | None:
    parts = [
        threshold(
            f"power of the sensitivity over that of the state, rho={result.cell.rho:g}",
            result["sensitivity slope"] / result["state slope"],
            supported=1.5,
            contradicted=1.0,
        )
        for result in results
    ]
    return together(*parts)


def _correlation(at: str) -> Callable[[Results[Memory]], Evidence | None]:
    """Evidence that the sensitivity at an eigenvalue is larger with correlated input than without."""

    def evidence(results: Results[Memory]) -> Evidence | None:
        parts = []
        for white in results.where(rho=0.0):
            for result in results.where(lambda result: result.cell.rho >= 0.9):
                ratio = result[f"sensitivity at {at}"] / white[f"sensitivity at {at}"]
                name = f"sensitivity at {at}, rho={result.cell.rho:g} over 0"
                parts.append(threshold(name, ratio, supported=1.1, contradicted=1 / 1.1))
        return together(*parts)

    return evidence


class MemoryStudy(Study[Memory]):
    name = "memory"
    aliases = ("zucchet-fig1a",)
    source = "Zucchet and Orvieto 2024, Fig. 1A"
    question = "How do E|h|² and E|dh/dλ|² grow as λ approaches 1?"
    published = "All curves rise, the more steeply the larger the autocorrelation; the state itself grows less."
    claims = (
        StudyClaim(
            text="The sensitivity to the eigenvalue explodes faster than the state",
            source="Zucchet and Orvieto 2024, section 2.2, Fig. 1A",
            evidence=_explosion,
        ),
        StudyClaim(
            text="Correlated input makes the sensitivity to a positive real eigenvalue explode more",
            source="Zucchet and Orvieto 2024, section 2.2, Fig. 1A",
            evidence=_correlation("0.9"),
        ),
    )
    settings = Memory
    exact = True
    seeded = False
    profiles = {"ci": GRID, "laptop": GRID, "paper": {**GRID, "points": 401}}

    def label(self, cell: Memory) -> str:
        return f"rho={cell.rho:g}"

    def simulate(self, cell: Memory, seed: int) -> Values:
        eigenvalue = 1 - 10.0 ** -np.linspace(0, 4, cell.points)
        ends = np.array([0.999, 0.9999])
        steps = np.diff(np.log(1 - ends))[0]
        return {
            "lambda": eigenvalue,
            "state": state_variance(eigenvalue, cell.rho),
            "sensitivity": sensitivity(eigenvalue, cell.rho),
            "state slope": -np.diff(np.log(state_variance(ends, cell.rho)))[0] / steps,
            "sensitivity slope": -np.diff(np.log(sensitivity(ends, cell.rho)))[0] / steps,
            "state at 0.9": float(state_variance(0.9, cell.rho)),
            "sensitivity at 0.9": float(sensitivity(0.9, cell.rho)),
        }

    def checks(self, results: Results[Memory]) -> list[Check]:
        checks = []
        for result in results:
            rho, n = result.cell.rho, np.arange(2000)
            # Both are sums over lags: of E x_n x_m = rho^|n - m| with the powers of lambda, and with their derivatives.
            for name, powers in (("state", 0.9**n), ("sensitivity", n[1:] * 0.9 ** n[:-1])):
                products = np.correlate(powers, powers, "full")[len(powers) - 1 :]  # summed, by lag
                total = 2 * rho ** np.arange(len(powers)) @ products - products[0]  # lags of both signs
                checks.append(identity(f"{name} at 0.9 as a sum, rho={rho:g}", result[f"{name} at 0.9"], float(total)))
        return checks

    def answer(self, results: Results[Memory]) -> str:
        slopes = "; ".join(
            f"{result['sensitivity slope']:.2f} and {result['state slope']:.2f} (ρ = {result.cell.rho:g})"
            for result in results
        )
        return f"Powers of 1 / (1 - λ) with which E|dh/dλ|² and E|h|² grow near λ = 1: {slopes}."

    def draw(self, results: Results[Memory]) -> Figure:
        curves = [
            line(f"$ρ = {result.cell.rho:g}$", 1 / (1 - result.curves["lambda"]), result.curves["sensitivity"])
            for result in results
        ]
        correlated = results.where(rho=1.0)
        curves += [
            grey("$E|h|^2$, $ρ = 1$", 1 / (1 - result.curves["lambda"]), result.curves["state"])
            for result in correlated
        ]
        panel = log_log("$1 / (1 - λ)$", "$E|dh/dλ|^2$", curves)
        return Figure(panels=(panel,))


STUDY = MemoryStudy()

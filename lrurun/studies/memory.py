"""`memory`: how the state and its sensitivity grow as the memory of one linear unit does."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import Figure, grey, line, log_log
from lrurun.studies.checks import Check, above, below, identity
from lrurun.studies.formulas import printed_derivative, sensitivity, state_variance
from lrurun.studies.study import Results, Rho, Settings, Study, Values

TURNED = 0.9 * np.exp(0.25j * np.pi)
GRID = {"rho": [0.0, 0.9, 0.99, 0.999, 1.0]}


class Memory(Settings, frozen=True, kw_only=True):
    """One autocorrelation of the input."""

    rho: Rho = 0.0
    points: Annotated[int, Meta(ge=2, le=10**8)] = 41
    """Eigenvalues 1 - 10**-x with x evenly spaced from 0 to 4."""


class MemoryStudy(Study[Memory]):
    name = "memory"
    aliases = ("zucchet-fig1a",)
    source = "Zucchet and Orvieto 2024, Fig. 1A"
    question = "How do E|h|² and E|dh/dλ|² grow as λ approaches 1?"
    published = "All curves rise, the more steeply the larger the autocorrelation; the state itself grows less."
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
                lags = rho ** np.abs(np.subtract.outer(np.arange(len(powers)), np.arange(len(powers))))
                checks.append(
                    identity(
                        f"{name} at 0.9 as a sum, rho={rho:g}", result[f"{name} at 0.9"], float(powers @ lags @ powers)
                    )
                )
            checks.append(
                above(
                    f"slope of sensitivity over state, rho={rho:g}", result["sensitivity slope"], result["state slope"]
                )
            )
            if 0 < rho < 1:
                ratio = float(np.real(printed_derivative(0.9, 0.9, rho))) / result["sensitivity at 0.9"]
                checks.append(below(f"equation (37) as printed over the sum, rho={rho:g}", ratio, 1.0))
            if rho >= 0.9:  # with 0.5, the turned eigenvalue is still more sensitive than with 0
                for place, eigenvalue, check in (("0.9", 0.9, above), ("0.9 exp(iπ/4)", TURNED, below)):
                    ratio = float(sensitivity(eigenvalue, rho) / sensitivity(eigenvalue, 0.0))
                    checks.append(check(f"sensitivity at {place}, rho={rho:g} over 0", ratio, 1.0))
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

"""`remedy`: what normalisation and the exponential form repair, and for which inputs."""

from __future__ import annotations

import numpy as np

from lrurun.report.figures.figures import Figure, dashed, line, log_log
from lrurun.studies.checks import Check, above, below, identity
from lrurun.studies.formulas import energy, sensitivity, state_variance
from lrurun.studies.study import Array, Count, Results, Rho, Settings, Study, Values

GRID = {"rho": [0.0, 0.9, 0.99, 1.0]}
NEAR = 0.9999
"""The eigenvalue whose numbers are compared with the limits."""


class Remedy(Settings, frozen=True, kw_only=True):
    """One autocorrelation of the input."""

    rho: Rho = 0.0
    points: Count = 61
    """Eigenvalues 1 - 10**-x with x evenly spaced from 0.05 to 4: the exponential form has no eigenvalue 0."""


def state(eigenvalue: Array, rho: float) -> Array:
    """gamma^2 E|h|^2."""
    return (1 - eigenvalue**2) * state_variance(eigenvalue, rho)


def gradient(eigenvalue: Array, rho: float) -> Array:
    """gamma^2 E|dh/domega|^2 of lambda = exp(-exp(omega)); gamma is held fixed."""
    return (1 - eigenvalue**2) * (eigenvalue * np.log(eigenvalue)) ** 2 * sensitivity(eigenvalue, rho)


class RemedyStudy(Study[Remedy]):
    name = "remedy"
    aliases = ("zucchet-fig2",)
    source = "Zucchet and Orvieto 2024, Fig. 2"
    question = "Do γ and the exponential form keep states and gradients bounded as λ approaches 1?"
    published = (
        "Both stay flat for ρ = 0 and rise for correlated inputs, below the grey curves without the remedies. The axis "
        "of panel B names the derivative by λ, the curve is that by ω."
    )
    settings = Remedy
    exact = True
    seeded = False
    profiles = {"ci": GRID, "laptop": GRID, "paper": {**GRID, "points": 601}}

    def label(self, cell: Remedy) -> str:
        return f"rho={cell.rho:g}"

    def simulate(self, cell: Remedy, seed: int) -> Values:
        eigenvalue = 1 - 10.0 ** -np.linspace(0.05, 4, cell.points)
        values: Values = {
            "lambda": eigenvalue,
            "state": state(eigenvalue, cell.rho),
            "gradient": gradient(eigenvalue, cell.rho),
            "state without": state_variance(eigenvalue, cell.rho),
            "gradient without": sensitivity(eigenvalue, cell.rho),
        }
        for near in (0.99, 0.999, NEAR):
            values |= {f"state at {near:g}": float(state(np.array(near), cell.rho))}
            values |= {f"gradient at {near:g}": float(gradient(np.array(near), cell.rho))}
        return values

    def checks(self, results: Results[Remedy]) -> list[Check]:
        checks = []
        for result in results:
            rho = result.cell.rho
            n, eigenvalue = np.arange(6000), 0.99
            gamma, slope = np.sqrt(1 - eigenvalue**2), eigenvalue * np.log(eigenvalue)
            for name, kernel in (("state", eigenvalue**n), ("gradient", slope * n * eigenvalue ** (n - 1.0))):
                series = energy(gamma * kernel, gamma * kernel, rho).real
                checks.append(
                    identity(
                        f"{name} at {eigenvalue} as a series, rho={rho:g}", result[f"{name} at {eigenvalue}"], series
                    )
                )
                last = result[f"{name} at {NEAR}"]
                if rho == 1:
                    checks.append(above(f"{name} at {NEAR} over 0.999, rho=1", last / result[f"{name} at 0.999"], 9.0))
                    continue
                limit = (1 + rho) / (1 - rho) * (1.0 if name == "state" else 0.5)
                tolerance = 3 * (1 - NEAR) / (1 - rho)
                checks.append(identity(f"{name} at {NEAR} near its limit, rho={rho:g}", last, limit, tolerance))
                if rho > 0:
                    checks.append(below(f"{name} at {NEAR} and its limit, rho={rho:g}", last, limit))
        return checks

    def answer(self, results: Results[Remedy]) -> str:
        parts = []
        for result in results:
            numbers = " and ".join(f"{result[f'{name} at {NEAR}']:.4g}" for name in ("state", "gradient"))
            rho = result.cell.rho
            limit = (1 + rho) / (1 - rho) if rho < 1 else np.inf
            limits = f"{limit:.4g} and {limit / 2:.4g}" if rho < 1 else "none"
            parts.append(f"{numbers} (ρ = {rho:g}, limits {limits})")
        return f"State and gradient at λ = {NEAR}, and their limits at λ = 1: {'; '.join(parts)}."

    def draw(self, results: Results[Remedy]) -> Figure:
        panels = []
        for name, y, without in (
            ("state", "$γ^2 E|h|^2$", "$E|h|^2$"),
            ("gradient", "$γ^2 E|dh/dω|^2$", "$E|dh/dλ|^2$"),
        ):
            curves = []
            for result in results:
                x = 1 / (1 - result.curves["lambda"])
                curves.append(line(label := f"$ρ = {result.cell.rho:g}$", x, result.curves[name]))
                curves.append(dashed("", x, result.curves[f"{name} without"], family=label))
            panels.append(log_log("$1 / (1 - λ)$", y, curves, title=f"dashed: {without}"))
        return Figure(panels=tuple(panels), columns=2)


STUDY = RemedyStudy()

"""`remedy`: what normalisation and the exponential form repair, and for which inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from lrurun.report.figures.figures import Figure, dashed, line, log_log
from lrurun.studies.machinery.checks import Check, identity
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, threshold, together
from lrurun.studies.machinery.study import Array, Count, Results, Rho, Settings, Study, Values
from lrurun.studies.mathematics.formulas import energy, sensitivity, state_variance

GRID = {"rho": [0.0, 0.9, 0.99, 1.0]}
MIDDLE, NEAR = 0.5, 0.9999
"""Eigenvalues between which changes are judged. The numbers of the second one are compared with the limits."""


class Remedy(Settings, frozen=True, kw_only=True):
    """One autocorrelation of the input."""

    rho: Rho = 0.0
    points: Count = 61
    """Eigenvalues 1 - 10**-x with x evenly spaced from 0.05 to 4: the exponential form has no eigenvalue 0."""


@cache
def remedies() -> Any:
    """Real eigenvalues (N,) -> γ of the LRU, and dλ/dω of its parametrisation λ = exp(-exp(ω)), (N,) each."""
    import jax
    import jax.numpy as jnp

    from lrurun.nn.recurrences.lru import log_gamma
    from lrurun.nn.recurrences.parametrizations import StableExponential

    form = StableExponential()
    decay, _ = form.names

    def run(eigenvalue: Any) -> Any:
        nu = -jnp.log(eigenvalue)
        params = form.initial(nu, jnp.zeros_like(nu))

        def moved(omega: Any) -> Any:
            return form.eigenvalues(params | {decay: omega}).real

        return jnp.exp(log_gamma(nu)), jax.jvp(moved, (params[decay],), (jnp.ones_like(nu),))[1]

    return jax.jit(run)


def curves(eigenvalue: Array, rho: float) -> dict[str, Array]:
    """γ² E|h|² and γ² E|dh/dω|², with γ held fixed, and both without the remedies, (N,) each."""
    gamma, slope = map(np.asarray, remedies()(eigenvalue))
    without = {"state": state_variance(eigenvalue, rho), "gradient": sensitivity(eigenvalue, rho)}
    return {
        "state": gamma**2 * without["state"],
        "gradient": (gamma * slope) ** 2 * without["gradient"],
        **{f"{name} without": curve for name, curve in without.items()},
    }


def _control(correlated: bool) -> Callable[[Results[Remedy]], Evidence | None]:
    """Evidence that state and gradient hardly change with the eigenvalue, or that they do.

    Ours: they are under control if they change by less than a factor of 3, and not if by 5, of 10,000 and more without
    the remedies.
    """

    def evidence(results: Results[Remedy]) -> Evidence | None:
        supported, contradicted = (5.0, 3.0) if correlated else (3.0, 5.0)
        parts = [
            threshold(
                f"{name} at {NEAR} over that at {MIDDLE}, rho={result.cell.rho:g}",
                result[f"{name} at {NEAR}"] / result[f"{name} at {MIDDLE}"],
                supported=supported,
                contradicted=contradicted,
            )
            for result in results.where(lambda result: (result.cell.rho > 0) == correlated)
            for name in ("state", "gradient")
        ]
        return together(*parts)

    return evidence


class RemedyStudy(Study[Remedy]):
    name = "remedy"
    aliases = ("zucchet-fig2",)
    source = "Zucchet and Orvieto 2024, Fig. 2"
    question = "Do γ and the exponential form keep states and gradients bounded as λ approaches 1?"
    published = (
        "Both stay flat for ρ = 0 and rise for correlated inputs, below the grey curves without the remedies. The axis "
        "of panel B names the derivative by λ, the curve is that by ω."
    )
    claims = (
        StudyClaim(
            text="For uncorrelated input, normalisation and the exponential form control state and gradient",
            source="Zucchet and Orvieto 2024, caption of Fig. 2",
            evidence=_control(correlated=False),
        ),
        StudyClaim(
            text="For correlated input, normalisation and the exponential form do not control state and gradient",
            source="Zucchet and Orvieto 2024, caption of Fig. 2",
            evidence=_control(correlated=True),
        ),
    )
    version = 2
    settings = Remedy
    exact = True
    simulates = True
    seeded = False
    profiles = {"ci": GRID, "laptop": GRID, "paper": {**GRID, "points": 601}}

    def label(self, cell: Remedy) -> str:
        return f"rho={cell.rho:g}"

    def simulate(self, cell: Remedy, seed: int) -> Values:
        eigenvalue = 1 - 10.0 ** -np.linspace(0.05, 4, cell.points)
        values: Values = {"lambda": eigenvalue, **curves(eigenvalue, cell.rho)}
        eigenvalues = (MIDDLE, 0.99, 0.999, NEAR)
        for name, numbers in curves(np.array(eigenvalues), cell.rho).items():
            values |= {f"{name} at {at}": number for at, number in zip(eigenvalues, numbers, strict=True)}
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
                if rho < 1:
                    limit = (1 + rho) / (1 - rho) * (1.0 if name == "state" else 0.5)
                    tolerance = 3 * (1 - NEAR) / (1 - rho)
                    last = result[f"{name} at {NEAR}"]
                    checks.append(identity(f"{name} at {NEAR} near its limit, rho={rho:g}", last, limit, tolerance))
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

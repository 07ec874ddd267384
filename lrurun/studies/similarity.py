"""`similarity`: which pairs of eigenvalues interact in the Hessian."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import IMAGINARY, REAL, Figure, Panel, Picture, dashed, line
from lrurun.studies.checks import Check, above, identity
from lrurun.studies.formulas import derivative, energy, printed_derivative
from lrurun.studies.study import CellResult, Results, Rho, Settings, Study, Values

REFERENCE = 0.99 * np.exp(0.25j * np.pi)
PARTNERS = {"its conjugate": np.conj(REFERENCE), "itself": REFERENCE, "0.99": 0.99 + 0j}
FINE = 200_001
"""Angles among which the largest value on the circle |lambda| = 0.99 is searched."""

RHOS = [0.0, 0.9, 0.99, 0.999, 1.0]


class Similarity(Settings, frozen=True, kw_only=True):
    """One autocorrelation of the input."""

    rho: Rho = 0.0
    side: Annotated[int, Meta(ge=3, le=2001)] = 81
    """Points of each side of the square grid, of which those inside the unit circle are computed."""


class SimilarityStudy(Study[Similarity]):
    name = "similarity"
    aliases = ("zucchet-fig8",)
    source = "Zucchet and Orvieto 2024, Fig. 8"
    question = "Which eigenvalues λ are similar to λ₀ = 0.99 exp(iπ/4), as measured by |S(λ, λ₀)|?"
    published = "For ρ = 0 there is a spot at the conjugate of λ₀; as ρ grows it fades, and one at 1 appears."
    settings = Similarity
    exact = True
    seeded = False
    profiles = {"ci": {"rho": RHOS}, "laptop": {"rho": RHOS}, "paper": {"rho": RHOS, "side": 317}}

    def label(self, cell: Similarity) -> str:
        return f"rho={cell.rho:g}"

    def simulate(self, cell: Similarity, seed: int) -> Values:
        axis = np.linspace(-1, 1, cell.side)
        plane = axis + 1j * axis[:, None]
        circle = 0.99 * np.exp(1j * np.pi * np.linspace(-1, 1, FINE))
        on_circle = np.abs(derivative(circle, REFERENCE, cell.rho))
        largest = int(np.argmax(on_circle))
        angle = np.linspace(-0.5, 0.25, 401)
        arc = 0.99 * np.exp(1j * np.pi * angle)
        values: Values = {
            "axis": axis,
            "inside": np.abs(derivative(plane[np.abs(plane) < 1], REFERENCE, cell.rho)),
            "angle": angle,
            "on the circle": np.abs(derivative(arc, REFERENCE, cell.rho)),
            "on the circle as printed": np.abs(printed_derivative(arc, REFERENCE, cell.rho)),
            "angle of the largest": np.angle(circle[largest]) / np.pi,
            "largest": on_circle[largest],
        }
        for name, partner in PARTNERS.items():
            values[name] = float(np.abs(derivative(partner, REFERENCE, cell.rho)))
            values[f"{name} as printed"] = float(np.abs(printed_derivative(partner, REFERENCE, cell.rho)))
        return values

    def checks(self, results: Results[Similarity]) -> list[Check]:
        checks = []
        n = np.arange(1, 6000)
        for result in results:
            rho = result.cell.rho
            for name, partner in PARTNERS.items():
                slopes = [n * eigenvalue ** (n - 1.0) for eigenvalue in (partner, np.conj(REFERENCE))]
                series = abs(energy(slopes[0], slopes[1], rho))
                checks.append(identity(f"with {name} as a series, rho={rho:g}", result[name], series))
            printed = result["its conjugate as printed"]
            if rho in (0, 1):
                checks.append(identity(f"equation (110) as printed, rho={rho:g}", printed, result["its conjugate"]))
            else:
                share = result["its conjugate"] / printed
                checks.append(above(f"corrected over printed equation (110), rho={rho:g}", share, 1.2))
        for result in results.where(rho=0.0):
            checks.append(identity("angle of the largest, in pi, rho=0", result["angle of the largest"], -0.25, 1e-4))
        for result in results.where(rho=1.0):
            checks.append(identity("angle of the largest, in pi, rho=1", result["angle of the largest"], 0.0, 1e-4))
        return checks

    def answer(self, results: Results[Similarity]) -> str:
        parts = "; ".join(f"{result['angle of the largest']:.3f} (ρ = {result.cell.rho:g})" for result in results)
        share = "; ".join(
            f"{result['its conjugate as printed']:.5g} for {result['its conjugate']:.5g} (ρ = {result.cell.rho:g})"
            for result in results.where(lambda result: 0 < result.cell.rho < 1)
        )
        tail = f" The paper's equation (110) gives at the conjugate: {share}." if share else ""
        return f"The most similar on the circle has the angle, in π: {parts}.{tail}"

    def draw(self, results: Results[Similarity]) -> Figure:
        panels = [_plane(result) for result in results]
        curves = []
        for result in results:
            label, angle = f"$ρ = {result.cell.rho:g}$", result.curves["angle"]
            curves.append(line(label, angle, result.curves["on the circle"]))
            if 0 < result.cell.rho < 1:
                curves.append(
                    dashed(f"{label}, as printed", angle, result.curves["on the circle as printed"], family=label)
                )
        panels.append(Panel(title="$|λ| = 0.99$", x="angle / $π$", y="$|S|$", curves=tuple(curves), y_scale="log"))
        return Figure(panels=tuple(panels), columns=2)


def _plane(result: CellResult[Similarity]) -> Panel:
    axis = result.curves["axis"]
    colours = np.full((len(axis), len(axis)), np.nan)
    colours[np.abs(axis + 1j * axis[:, None]) < 1] = result.curves["inside"]
    sides = tuple(map(float, axis))
    picture = Picture(x=sides, y=sides, z=tuple(tuple(map(float, row)) for row in colours), label="$|S|$", scale="log")
    return Panel(title=f"$ρ = {result.cell.rho:g}$", x=REAL, y=IMAGINARY, picture=picture, circles=((0.0, 0.0),))


STUDY = SimilarityStudy()

"""`similarity`: which pairs of eigenvalues interact in the Hessian."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import IMAGINARY, REAL, Figure, Panel, Picture, dashed, line
from lrurun.studies.machinery.checks import Check, identity
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, threshold, together
from lrurun.studies.machinery.study import CellResult, Results, Rho, Settings, Study, Values
from lrurun.studies.mathematics.formulas import derivative, energy, printed_derivative

REFERENCE = 0.99 * np.exp(0.25j * np.pi)
PARTNERS = {
    "its conjugate": np.conj(REFERENCE),
    "itself": REFERENCE,
    "0.99": 0.99 + 0j,
    "0.9 at the angle of its conjugate": 0.9 * np.exp(-0.25j * np.pi),
    "0.9": 0.9 + 0j,
}
FINE = 200_001
"""Angles among which the largest value on the circle |lambda| = 0.99 is searched."""

RHOS = [0.0, 0.9, 0.99, 0.999, 1.0]


class Similarity(Settings, frozen=True, kw_only=True):
    """One autocorrelation of the input."""

    rho: Rho = 0.0
    side: Annotated[int, Meta(ge=3, le=2001)] = 81
    """Points of each side of the square grid, of which those inside the unit circle are computed."""


def _conjugates(results: Results[Similarity]) -> Evidence | None:
    """Evidence that the largest value on the circle is at the conjugate without correlation (bounds: ours)."""
    name = "distance of the largest from the angle of the conjugate, in π, rho=0"
    distances = [abs(result["angle of the largest"] + 0.25) for result in results.where(rho=0.0)]
    return together(*(threshold(name, distance, supported=0.01, contradicted=0.05) for distance in distances))


def _fading(results: Results[Similarity]) -> Evidence | None:
    """Evidence that from no to the largest correlation the value at the conjugate falls and that at 0.99 rises, by
    half at least."""
    if (ends := _ends(results)) is None:
        return None
    white, correlated = ends
    where = f"rho={correlated.cell.rho:g} over 0"
    fall, rise = (correlated[name] / white[name] for name in ("its conjugate", "0.99"))
    return together(
        threshold(f"with its conjugate, {where}", fall, supported=0.5, contradicted=1.0),
        threshold(f"with 0.99, {where}", rise, supported=2.0, contradicted=1.0),
    )


def _magnitude(results: Results[Similarity]) -> Evidence | None:
    """Evidence that both values are larger at 0.99 than at 0.9; twice as large is ours."""
    if (ends := _ends(results)) is None:
        return None
    pairs = (("its conjugate", "0.9 at the angle of its conjugate"), ("0.99", "0.9"))
    return together(
        *(
            threshold(
                f"{large} over {small}, rho={end.cell.rho:g}", end[large] / end[small], supported=2.0, contradicted=1.0
            )
            for end, (large, small) in zip(ends, pairs, strict=True)
        )
    )


def _ends(results: Results[Similarity]) -> tuple[CellResult[Similarity], CellResult[Similarity]] | None:
    """The cells without correlation and with the largest one, where it is at least 0.99."""
    cells = sorted(results, key=lambda result: result.cell.rho)
    return (cells[0], cells[-1]) if cells[0].cell.rho == 0 and cells[-1].cell.rho >= 0.99 else None


class SimilarityStudy(Study[Similarity]):
    name = "similarity"
    aliases = ("zucchet-fig8",)
    source = "Zucchet and Orvieto 2024, Fig. 8"
    question = "Which eigenvalues λ are similar to λ₀ = 0.99 exp(iπ/4), as measured by |S(λ, λ₀)|?"
    published = "For ρ = 0 there is a spot at the conjugate of λ₀; as ρ grows it fades, and one at 1 appears."
    claims = (
        StudyClaim(
            text="Without correlation, eigenvalues are most similar to their conjugates",
            source="Zucchet and Orvieto 2024, caption of Fig. 8",
            evidence=_conjugates,
        ),
        StudyClaim(
            text="With more correlation this effect decreases, and eigenvalues become similar to those close to 1",
            source="Zucchet and Orvieto 2024, caption of Fig. 8",
            evidence=_fading,
        ),
        StudyClaim(
            text="In both cases, the effect is amplified as the magnitude of the eigenvalue increases",
            source="Zucchet and Orvieto 2024, appendix B.2, below equation (110)",
            evidence=_magnitude,
        ),
    )
    version = 2
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
            if rho in (0, 1):  # it is too small in between: see the answer
                checks.append(identity(f"equation (110) as printed, rho={rho:g}", printed, result["its conjugate"]))
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

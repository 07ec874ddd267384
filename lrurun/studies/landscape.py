"""`landscape`: the loss of one eigenvalue that learns another, along the real axis and along the circle."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import Figure, Panel, line
from lrurun.studies.machinery.checks import Check, identity
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, threshold, together
from lrurun.studies.machinery.study import CellResult, Count, Results, Rho, Settings, Study, Values
from lrurun.studies.mathematics.coordinates import basin
from lrurun.studies.mathematics.formulas import energy, loss, sensitivity

GAPS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64]
TRIED = 0.9
"""The student, and the factor exp(0.3 i) of the other one, at which the loss is computed in a second way."""
TURNED = np.exp(0.3j)


class Landscape(Settings, frozen=True, kw_only=True):
    """One teacher, 1 - gap, and one autocorrelation of the input."""

    gap: Annotated[float, Meta(ge=1e-4, le=0.95)] = 0.01
    rho: Rho = 0.0
    points: Count = 401


def _sharpness(results: Results[Landscape]) -> Evidence | None:
    """Evidence that the curvature at the teacher grows with its memory: at least as fast as it, by our bound."""
    parts = []
    for short, long in _ends(results):
        for name in ("curvature by radius", "curvature by angle"):
            power = np.log(long[name] / short[name]) / np.log(short.cell.gap / long.cell.gap)
            where = f"power of 1 / (1 - λ*) with which the {name} grows, rho={long.cell.rho:g}"
            parts.append(threshold(where, power, supported=1.0, contradicted=0.0))
    return together(*parts)


def _flatness(results: Results[Landscape]) -> Evidence | None:
    """Evidence that the loss hardly falls on the first half of the way to the teacher with the longest memory.

    Ours: by at most a tenth. A loss that falls evenly has lost half.
    """
    parts = []
    for _, long in _ends(results):
        for name in ("radius", "angle"):
            where = f"fall of the loss half way along the {name}, 1 - λ* = {long.cell.gap:g}, rho={long.cell.rho:g}"
            parts.append(threshold(where, long[f"fall half way by {name}"], supported=0.1, contradicted=0.5))
    return together(*parts)


def _ends(results: Results[Landscape]) -> list[tuple[CellResult[Landscape], CellResult[Landscape]]]:
    """The teachers with the shortest and with the longest memory, for each autocorrelation that has two."""
    ends = []
    for rho in results.axis("rho"):
        cells = sorted(results.where(rho=rho), key=lambda result: result.cell.gap)
        if cells[0].cell.gap < cells[-1].cell.gap:
            ends.append((cells[-1], cells[0]))
    return ends


class LandscapeStudy(Study[Landscape]):
    name = "landscape"
    aliases = ("zucchet-fig1b", "zucchet-fig1c")
    source = "Zucchet and Orvieto 2024, Fig. 1B and C"
    question = "How sharp is the loss of one eigenvalue near the teacher, and how flat far from it?"
    published = "The loss is flat far from the teacher and has ever sharper minima, narrower in the angle."
    claims = (
        StudyClaim(
            text="The loss sharpens as longer memories are encoded, in absolute value and angle",
            source="Zucchet and Orvieto 2024, section 4.1, Fig. 1B and C",
            evidence=_sharpness,
        ),
        StudyClaim(
            text="Far from a teacher with a long memory, the loss is flat",
            source="Zucchet and Orvieto 2024, section 4.1, Fig. 1B and C",
            evidence=_flatness,
        ),
    )
    version = 2
    settings = Landscape
    exact = True
    seeded = False
    profiles = {"ci": {"gap": GAPS}, "laptop": {"rho": [0.0, 0.9], "gap": GAPS}, "paper": {"gap": GAPS}}

    def label(self, cell: Landscape) -> str:
        return f"gap={cell.gap:g}"

    def simulate(self, cell: Landscape, seed: int) -> Values:
        teacher = 1 - cell.gap
        real, angle = np.linspace(0, 0.9975, cell.points), np.linspace(-np.pi, np.pi, cell.points)
        step, turn = 1e-3 * cell.gap, 1e-3 * cell.gap / teacher
        around = loss(teacher + np.array([-step, 0, step]), teacher, cell.rho)
        turned = loss(teacher * np.exp(1j * np.array([-turn, 0, turn])), teacher, cell.rho)
        return {
            "lambda": real,
            "loss": loss(real, teacher, cell.rho),
            "angle": angle,
            "loss by angle": loss(teacher * np.exp(1j * angle), teacher, cell.rho),
            "loss at 0.9": float(loss(TRIED, teacher, cell.rho)),
            "loss at 0.3 rad": float(loss(teacher * TURNED, teacher, cell.rho)),
            "fall half way by radius": _fall(0.0, teacher / 2, teacher, cell.rho),
            "fall half way by angle": _fall(-teacher, 1j * teacher, teacher, cell.rho),
            "curvature by radius": (around[0] - 2 * around[1] + around[2]) / step**2,
            "curvature by angle": (turned[0] - 2 * turned[1] + turned[2]) / turn**2,
        }

    def checks(self, results: Results[Landscape]) -> list[Check]:
        checks = []
        for result in results:
            cell, where = result.cell, f"gap {result.cell.gap:g}, rho={result.cell.rho:g}"
            teacher = 1 - cell.gap
            n = np.arange(int(40 / min(cell.gap, 1 - TRIED)))
            for name, student in (("loss at 0.9", TRIED), ("loss at 0.3 rad", teacher * TURNED)):
                apart = student**n - teacher**n
                series = energy(apart, apart, cell.rho).real / 2
                checks.append(identity(f"{name} as a series, {where}", result[name], series))
            # E|dh/dlambda|^2 is the curvature in any direction. Differences of the loss have errors of order 1e-6.
            exact = float(sensitivity(teacher, cell.rho))
            for name, formula in (("radius", exact), ("angle", teacher**2 * exact)):
                checks.append(identity(f"curvature by {name}, {where}", result[f"curvature by {name}"], formula, 1e-4))
        return checks

    def answer(self, results: Results[Landscape]) -> str:
        cells = sorted(results.where(rho=results.axis("rho")[0]), key=lambda result: result.cell.gap)
        parts = [
            f"{result['curvature by radius']:.3g} at λ* = {1 - result.cell.gap:g}" for result in (cells[-1], cells[0])
        ]
        return (
            f"The curvature is {parts[0]}, and {parts[1]}. With γ the basin of the angle is "
            f"{basin(1 - cells[0].cell.gap):.3g} rad wide to each side there."
        )

    def draw(self, results: Results[Landscape]) -> Figure:
        panels = []
        for rho in results.axis("rho"):
            for x, y, name in (("lambda", "loss", "$λ$"), ("angle", "loss by angle", "$θ - θ^*$ [rad]")):
                curves = [
                    line(f"$1 - λ^* = {result.cell.gap:g}$", result.curves[x], result.curves[y])
                    for result in results.where(rho=rho)
                ]
                panels.append(Panel(title=f"$ρ = {rho:g}$", x=name, y="loss", curves=tuple(curves), y_scale="log"))
        return Figure(panels=tuple(panels), columns=2)


def _fall(start: complex, way: complex, teacher: float, rho: float) -> float:
    """The share of its loss that a student has lost which has moved from one eigenvalue to another."""
    return float(1 - loss(way, teacher, rho) / loss(start, teacher, rho))


STUDY = LandscapeStudy()

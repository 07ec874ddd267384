"""`concentration`: what nearly equal angles do to the Hessian of a complex diagonal network, and to its training."""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator
from statistics import geometric_mean
from typing import Any, Literal

import numpy as np

from lrurun.report.figures.figures import (
    IMAGINARY,
    REAL,
    Figure,
    Panel,
    dashed,
    greek,
    line,
    log_log,
    parameter_matrix,
    spread,
)
from lrurun.studies.machinery.checks import Check, identity
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, larger, positive, together
from lrurun.studies.machinery.study import Count, Rate, Results, Rho, Settings, Study, Values
from lrurun.studies.mathematics import kernels
from lrurun.studies.mathematics.coordinates import Angle
from lrurun.studies.mathematics.hessians import concentrated
from lrurun.studies.mathematics.kernels import TITLES, Initial

NU = 0.99  # of teacher and student, in training

Architecture = Literal["complex", "lru", "dense"]
PAIR: list[Architecture] = ["complex", "lru"]
GRID: dict[str, Any] = {"architecture": PAIR, "angle": [1.0, 0.1, 0.01], "rho": [0.0, 0.99]}
WIDTHS = [1.0, 0.316, 0.1, 0.0316, 0.01]
PUBLISHED: kernels.Rates = {
    True: [3.16e-5, 1e-4, 3.16e-4, 1e-3],
    False: [3.16e-4, 1e-3, 3.16e-3, 0.01, 0.0316, 0.1, 0.316, 1.0],
}
"""Table 3."""
REDUCED: kernels.Rates = {True: [1e-4, 3.16e-4, 1e-3], False: [1e-3, 3.16e-3, 0.01]}
"""[ours] Those that win with 3,000 updates, and their neighbours."""
TRAINED = {**GRID, "part": ["hessian", "training"], "architecture": [*PAIR, "dense"], "systems": 5}
HALVES = ((4.5, REAL), (14.5, IMAGINARY))  # of the 20 parameters


class Concentration(Settings, frozen=True, kw_only=True):
    """Hessians of random systems with angles from -θ0 to θ0, by their eigenvalues; or one training of a student."""

    part: Literal["hessian", "training"] = "hessian"
    architecture: Architecture = "complex"
    angle: Angle = 1.0
    """θ0, in units of π."""
    rho: Rho = 0.0
    """The correlation of the input for Hessians; training has white input."""
    systems: Count = 50
    lr: Rate = 1e-3
    """The learning rate of training: of a grid, each architecture has its own part."""
    initial: Initial = "zero"
    """The lower bound of the initial |λ| of a dense student: 0, or the teacher's."""
    updates: Count = 3000


def _less_diagonal(results: Results[Concentration]) -> Evidence | None:
    cells = results.where(part="hessian", rho=0.0)
    parts, widths = [], sorted(cells.axis("angle"), reverse=True)
    for (wide, narrow), name in itertools.product(itertools.pairwise(widths), cells.axis("architecture")):
        text = f"{TITLES[name]}: share off the diagonal, θ0 = {narrow:g} π / {wide:g} π"
        parts.append(larger(text, _shares(cells, name, narrow), _shares(cells, name, wide)))
    return together(*parts)


def _less_of_it(results: Results[Concentration]) -> Evidence | None:
    cells = results.where(part="hessian", rho=0.0)
    if not set(PAIR) <= set(cells.axis("architecture")):
        return None
    parts = []
    for x in cells.axis("angle"):
        complex_, lru = (_shares(cells, name, x) for name in PAIR)
        parts.append(larger(f"share off the diagonal, complex / LRU, θ0 = {x:g} π", complex_, lru))
    return together(*parts)


def _widening(results: Results[Concentration]) -> Evidence | None:
    trained = results.where(part="training")
    angles = trained.axis("angle")
    if len(angles) < 2 or not set(PAIR) <= set(trained.axis("architecture")):
        return None
    logs = [[math.log(gap) for gap in _gaps(trained, x)] for x in angles]
    slopes = [math.nan]
    if len({len(of_seeds) for of_seeds in logs}) == 1:
        slopes = [float(slope) for slope in np.polyfit(-np.log(angles), np.array(logs), 1)[0]]
    return positive("slope of log(complex / LRU) on log(1 / θ0)", slopes)


def _worst(results: Results[Concentration]) -> Evidence | None:
    trained = results.where(part="training")
    if len(trained.axis("architecture")) < 3:
        return None
    parts = []
    for x, name in itertools.product(trained.axis("angle"), PAIR):
        losses = kernels.pairs(*(kernels.by_seed(trained, other, angle=x) for other in ("dense", name)))
        parts.append(larger(f"loss, dense / {TITLES[name]}, θ0 = {x:g} π", *losses))
    return together(*parts)


class ConcentrationStudy(Study[Concentration]):
    name = "concentration"
    aliases = ("zucchet-fig10",)
    source = "Zucchet and Orvieto 2024, Fig. 10"
    question = "Do nearly equal angles of eigenvalues make the Hessian less diagonal, and the LRU's lead larger?"
    published = "With falling θ0 the Hessian gets less diagonal, and complex falls behind LRU; the RNN is always worst."
    claims = (
        StudyClaim(
            text="Concentrated angles make the Hessian less diagonal",
            source="Zucchet and Orvieto 2024, appendix B.4, Fig. 10A to 10C",
            evidence=_less_diagonal,
        ),
        StudyClaim(
            text="The Hessian of an LRU is more diagonal than that of the complex diagonal RNN",
            source="Zucchet and Orvieto 2024, appendix B.4",
            evidence=_less_of_it,
        ),
        StudyClaim(
            text="Concentrated angles widen the lead of the LRU over the complex diagonal RNN",
            source="Zucchet and Orvieto 2024, appendix B.4, Fig. 10D",
            evidence=_widening,
        ),
        StudyClaim(
            text="A dense linear RNN is worse than both, however concentrated the angles are",
            source="Zucchet and Orvieto 2024, Fig. 10D",
            evidence=_worst,
        ),
    )
    version = 2
    settings = Concentration
    profiles = {
        "ci": GRID,
        "laptop": {**TRAINED, "lr": kernels.union(REDUCED)},
        "paper": {
            **TRAINED,
            "angle": WIDTHS,
            "lr": kernels.union(PUBLISHED),
            "initial": ["zero", "teacher"],
            "updates": 10_000,
        },
    }
    seeds = {"laptop": 10, "paper": 10}
    simulates = True
    stand_in = {
        "ci": "Hessians of 50 systems at 3 angles stand in for those of 10 seeds at 5 angles and for all training.",
        "laptop": "3,000 updates, 3 rates, 3 angles and initial |λ| of the RNN from 0 stand in for 10,000, 4 to 8, 5, "
        "and from 0 or ν, which take hours.",
    }

    def label(self, cell: Concentration) -> str:
        return f"{cell.part}-{cell.architecture}"

    def has(self, cell: Concentration) -> bool:
        if cell.part == "training":
            return cell.rho == 0.0 and kernels.tried(cell.architecture, cell.lr, cell.initial, PUBLISHED)
        return cell.architecture in PAIR and cell.lr == 1e-3 and cell.initial == "zero"

    def steps(self, cell: Concentration) -> int:
        return cell.updates if cell.part == "training" else 1

    def simulate(self, cell: Concentration, seed: int) -> Generator[int, None, Values]:
        name, angle, first = cell.architecture, cell.angle * np.pi, seed * cell.systems
        if cell.part == "hessian":
            return concentrated(name, range(first, first + cell.systems), angle, cell.rho)
        trained = yield from kernels.train(
            name, NU, cell.lr, seed, updates=cell.updates, angle=angle, initial=cell.initial
        )
        return trained.values

    def checks(self, results: Results[Concentration]) -> list[Check]:
        checks = []
        for result in results.where(lambda result: result.seed == results[0].seed, part="hessian"):
            name = f"{TITLES[result.cell.architecture]}, θ0 = {result.cell.angle:g} π, ρ = {result.cell.rho:g}"
            text = f"{name}: the layer's Hessian, a sum over lags, less the closed form"
            checks.append(identity(text, result["sum error"], 0.0, 1e-8))
        return checks + kernels.start_checks(results.where(part="training"))

    def answer(self, results: Results[Concentration]) -> str:
        hessian_cells, trained = results.where(part="hessian", rho=0.0), results.where(part="training")
        angles = results.axis("angle")
        text = f"At θ0 = {', '.join(f'{x:g} π' for x in angles)}, share of the Hessian off its diagonal"
        for name in hessian_cells.axis("architecture"):
            text += f"; {TITLES[name]} " + ", ".join(f"{np.mean(_shares(hessian_cells, name, x)):.2g}" for x in angles)
        if set(PAIR) <= set(trained.axis("architecture")):
            text += ". Loss at the best rate, mean (median)"
            for name in trained.axis("architecture"):
                text += f"; {TITLES[name]} " + ", ".join(
                    kernels.centre(kernels.by_seed(trained, name, angle=x)) for x in angles
                )
            gaps = ", ".join(f"{geometric_mean(_gaps(trained, x)):.2g}" for x in angles)
            text += f"; complex over LRU, geometric mean: {gaps}"
        return f"{text}."

    def draw(self, results: Results[Concentration]) -> Figure:
        hessians, trained, panels = results.where(part="hessian"), results.where(part="training"), []
        for result in hessians.where(lambda result: result.seed == results[0].seed, architecture="complex", rho=0.0):
            panels.append(
                parameter_matrix(f"complex, $θ_0 = {result.cell.angle:g}π$", result.curves["hessian"], HALVES)
            )
        curves = []
        for rho, name in itertools.product(hessians.axis("rho"), hessians.axis("architecture")):
            means = [np.mean(_shares(hessians.where(rho=rho), name, x)) for x in hessians.axis("angle")]
            draw = dashed if rho else line
            curves.append(
                draw(f"{greek(TITLES[name])}, $ρ = {rho:g}$", hessians.axis("angle"), means, family=TITLES[name])
            )
        panels.append(Panel(x="$θ_0 / π$", y="share off the diagonal", curves=tuple(curves), x_scale="log"))
        curves = []
        for name in trained.axis("architecture"):
            losses = {x: list(kernels.by_seed(trained, name, angle=x).values()) for x in trained.axis("angle")}
            curves.append(spread(f"{greek(TITLES[name])}, loss", losses, family=TITLES[name]))
        panels.append(log_log("$θ_0 / π$", "loss: median, range", curves))
        return Figure(panels=tuple(panels if curves else panels[:-1]), columns=2)


def _shares(results: Results[Concentration], architecture: str, angle: float) -> list[float]:
    return [
        x for result in results.where(architecture=architecture, angle=angle) for x in result.curves["share of systems"]
    ]


def _gaps(results: Results[Concentration], angle: float) -> list[float]:
    return kernels.ratios(*(kernels.by_seed(results, name, angle=angle) for name in PAIR))


STUDY = ConcentrationStudy()

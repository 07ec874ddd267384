"""`concentration`: what nearly equal angles do to the Hessian of a complex diagonal network, and to its training."""

from __future__ import annotations

import itertools
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
from lrurun.studies import kernels
from lrurun.studies.checks import Check, below, identity, larger
from lrurun.studies.coordinates import Angle
from lrurun.studies.hessians import concentrated
from lrurun.studies.kernels import TITLES, Multiple
from lrurun.studies.study import Count, Results, Rho, Settings, Study, Values

NU = 0.99  # of teacher and student, in training

Architecture = Literal["complex", "lru", "dense"]
PAIR: list[Architecture] = ["complex", "lru"]
GRID: dict[str, Any] = {"architecture": PAIR, "angle": [1.0, 0.1, 0.01], "rho": [0.0, 0.99]}
WIDTHS = [1.0, 0.316, 0.1, 0.0316, 0.01]
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
    rate: Multiple = 1.0
    """The learning rate of training, as a multiple of the lowest of the architecture's grid."""
    updates: Count = 3000


class ConcentrationStudy(Study[Concentration]):
    name = "concentration"
    aliases = ("zucchet-fig10",)
    source = "Zucchet and Orvieto 2024, Fig. 10"
    question = "Do nearly equal angles of eigenvalues make the Hessian less diagonal, and the LRU's lead larger?"
    published = "With falling θ0 the Hessian gets less diagonal, and complex falls behind LRU; the RNN is always worst."
    settings = Concentration
    profiles = {
        "ci": GRID,
        "laptop": {**TRAINED, "rate": [1.0, 3.2, 10.0]},
        "paper": {**TRAINED, "angle": WIDTHS, "rate": [0.32, *kernels.GRID], "updates": 10_000},
    }
    seeds = {"laptop": 10, "paper": 10}
    simulates = True
    stand_in = {
        "ci": "Hessians of 50 systems at 3 angles stand in for those of 10 seeds at 5 angles and for all training.",
        "laptop": "3,000 updates, 3 rates and 3 angles stand in for 10,000, 4 to 8 and 5, which take hours.",
    }

    def label(self, cell: Concentration) -> str:
        return f"{cell.part}-{cell.architecture}"

    def has(self, cell: Concentration) -> bool:
        return cell.rho == 0.0 if cell.part == "training" else cell.architecture in PAIR and cell.rate == 1.0

    def steps(self, cell: Concentration) -> int:
        return cell.updates if cell.part == "training" else 1

    def simulate(self, cell: Concentration, seed: int) -> Generator[int, None, Values]:
        name, angle, first = cell.architecture, cell.angle * np.pi, seed * cell.systems
        if cell.part == "hessian":
            return concentrated(name, range(first, first + cell.systems), angle, cell.rho)
        lr = kernels.LOWEST[name] * cell.rate
        return (yield from kernels.train(name, NU, lr, seed, updates=cell.updates, angle=angle)).values

    def checks(self, results: Results[Concentration]) -> list[Check]:
        checks, trained = [], results.where(part="training")
        for result in results.where(lambda result: result.seed == results[0].seed, part="hessian"):
            name = f"{TITLES[result.cell.architecture]}, θ0 = {result.cell.angle:g} π, ρ = {result.cell.rho:g}"
            checks.append(identity(f"{name}: closed form less a sum over lags", result["sum error"], 0.0, 1e-8))
            if result.cell.architecture == "complex" and 0 < result.cell.rho < 1:
                ratio = result["printed trace"] / result["summed trace"]
                checks.append(below(f"{name}: trace by eq. 110 as printed, over the sum", ratio, 0.99))
        for rho in results.axis("rho"):
            hessian_cells = results.where(part="hessian", rho=rho)
            widths = sorted(hessian_cells.axis("angle"), reverse=True)
            share = {
                (x, name): _shares(hessian_cells, name, x)
                for x in widths
                for name in hessian_cells.axis("architecture")
            }
            for (wide, narrow), name in itertools.product(
                itertools.pairwise(widths), hessian_cells.axis("architecture")
            ):
                text = f"{TITLES[name]}, ρ = {rho:g}: share off the diagonal, θ0 = {narrow:g} π over {wide:g} π"
                checks.append(larger(text, share[narrow, name], share[wide, name]))
            for x in widths if hessian_cells.axis("architecture") == PAIR else ():
                text = f"θ0 = {x:g} π, ρ = {rho:g}: share off the diagonal, complex over LRU"
                checks.append(larger(text, share[x, "complex"], share[x, "lru"]))
        checks += kernels.start_checks(trained)
        for x, name in itertools.product(trained.axis("angle"), PAIR if len(trained.axis("architecture")) == 3 else ()):
            ratios = kernels.ratios(kernels.by_seed(trained, "dense", angle=x), kernels.by_seed(trained, name, angle=x))
            checks.append(larger(f"θ0 = {x:g} π: loss, dense over {TITLES[name]}", ratios, [1.0] * len(ratios)))
        if {1.0, 0.1} <= set(trained.axis("angle")) and set(trained.axis("architecture")) >= set(PAIR):
            narrow = _gaps(trained, 0.1)
            wide = list(np.resize(_gaps(trained, 1.0), len(narrow)))
            checks.append(larger("loss, complex over LRU: θ0 = 0.1 π over 1 π", narrow, wide))
        return checks

    def answer(self, results: Results[Concentration]) -> str:
        hessian_cells, trained = results.where(part="hessian", rho=0.0), results.where(part="training")
        angles = results.axis("angle")
        text = f"At θ0 = {', '.join(f'{x:g} π' for x in angles)}, share of the Hessian off its diagonal"
        for name in hessian_cells.axis("architecture"):
            text += f"; {TITLES[name]} " + ", ".join(f"{np.mean(_shares(hessian_cells, name, x)):.2g}" for x in angles)
        if trained.axis("architecture")[:2] == PAIR:
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

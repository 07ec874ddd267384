"""`ring`: eigenvalues sampled on a ring of the complex plane, and whether they fill it evenly."""

from __future__ import annotations

from typing import Any

import numpy as np

from lrurun.report.figures.figures import IMAGINARY, REAL, Figure, Panel, line, points
from lrurun.studies.checks import Check, below, identity, sampling
from lrurun.studies.formulas import Ring, check_ring, distance_to_uniform, generator, ring_radius
from lrurun.studies.study import Array, CellResult, Count, Results, Settings, Study, Values

RINGS = [[0.0, 1.0], [0.9, 0.999], [0.999, 0.9999]]
GLOROT = 500
"""Size of the matrix whose spectrum the full disk is compared with."""
SHOWN = 500
"""Samples in the figure."""
LEVEL = 2.7
"""Times n**-1/2: the Kolmogorov distance of n uniform samples that is exceeded with a probability below 1e-6, as
2 exp(-2 x^2) bounds it. A run with hundreds of these checks fails by chance with a probability below 1e-3.
"""
NU = 5e-7
"""Decay at which 1 - |lambda|^2 is computed in float32: it is nearly the largest radius that float32 separates from 1.
"""


class RingCell(Settings, frozen=True, kw_only=True):
    """Samples on one ring, by Lemma 2 of Orvieto et al. 2023."""

    ring: Ring = (0.0, 1.0)
    """Inner and outer radius, as in --set ring=[[0.9,0.999]]."""
    samples: Count = 10_000

    def __post_init__(self) -> None:
        check_ring(self.ring)


class RingStudy(Study[RingCell]):
    name = "ring"
    aliases = ("lru-fig3",)
    source = "Orvieto et al. 2023, Fig. 3"
    question = "Does the sampler of eigenvalues fill a ring evenly?"
    published = "The points spread evenly in each ring; the ring from 0 to 1 looks like a Glorot spectrum."
    settings = RingCell
    profiles = {"ci": {"ring": RINGS}, "laptop": {"ring": RINGS}, "paper": {"ring": RINGS}}

    def label(self, cell: RingCell) -> str:
        return f"{cell.ring[0]:g}-{cell.ring[1]:g}"

    def simulate(self, cell: RingCell, seed: int) -> Values:
        rng = generator(seed, f"ring {self.label(cell)}")
        radius = ring_radius(1 - rng.random(cell.samples), cell.ring)
        phase = 2 * np.pi * (1 - rng.random(cell.samples))  # in (0, 2 pi], so that its logarithm is finite
        inner, outer = cell.ring
        share = np.sort((radius**2 - inner**2) / (outer**2 - inner**2))
        where = np.linspace(0, 1, 41)
        values: Values = {
            "re": (radius * np.cos(phase))[:SHOWN],
            "im": (radius * np.sin(phase))[:SHOWN],
            "share of the area": where,
            "share within": np.searchsorted(share, where, side="right") / cell.samples,
            "mean square": np.mean(radius**2),
            "mean radius": radius.mean(),
            "distance of |lambda|^2 to uniform": distance_to_uniform(share),
            "distance of the phase to uniform": distance_to_uniform(np.sort(phase / (2 * np.pi))),
            "gamma in float32": _gamma(np.float32(NU), careful=False),
            "gamma in float32 by expm1": _gamma(np.float32(NU), careful=True),
        }
        if cell.ring == (0.0, 1.0):
            matrix = generator(seed, "glorot").standard_normal((GLOROT, GLOROT)) / np.sqrt(GLOROT)
            values["distance to a Glorot spectrum"] = _distance(share, np.abs(np.linalg.eigvals(matrix)) ** 2)
        return values

    def checks(self, results: Results[RingCell]) -> list[Check]:
        from scipy.integrate import quad

        checks = []
        for result in results:
            ring, n, where = result.cell.ring, result.cell.samples, self.label(result.cell)
            square, mean = moments(ring)
            for name, power, expected in (("|lambda|", 1, mean), ("|lambda|^2", 2, square)):
                integral = quad(lambda u, power=power, ring=ring: ring_radius(u, ring) ** power, 0, 1)[0]
                checks.append(identity(f"expected {name}, {where}", integral, expected))
            deviation = (ring[1] ** 2 - ring[0] ** 2) / np.sqrt(12)
            checks.append(
                sampling(f"mean of |lambda|^2, {where}", result["mean square"], square, deviation / np.sqrt(n))
            )
            deviation = np.sqrt(square - mean**2)
            checks.append(sampling(f"mean of |lambda|, {where}", result["mean radius"], mean, deviation / np.sqrt(n)))
            for name in ("distance of |lambda|^2 to uniform", "distance of the phase to uniform"):
                checks.append(below(f"{name}, {where}", result[name], LEVEL / np.sqrt(n)))
            if "distance to a Glorot spectrum" in result.values:
                bound = LEVEL * np.sqrt((n + GLOROT) / (n * GLOROT))
                checks.append(below("distance to a Glorot spectrum", result["distance to a Glorot spectrum"], bound))
        exact = float(_gamma(np.float64(NU), careful=True))
        checks.append(identity("gamma in float32 by expm1", results[0]["gamma in float32 by expm1"], exact, 1e-6))
        return checks

    def answer(self, results: Results[RingCell]) -> str:
        worst = max(
            results, key=lambda result: result["distance of |lambda|^2 to uniform"] * np.sqrt(result.cell.samples)
        )
        distance, bound = worst["distance of |lambda|^2 to uniform"], LEVEL / np.sqrt(worst.cell.samples)
        naive, careful = (results[0][name] for name in ("gamma in float32", "gamma in float32 by expm1"))
        return (
            f"The Kolmogorov distance of |λ|² to the uniform distribution is at most {distance:.4f}, "
            f"{'below' if distance < bound else 'not below'} the bound of {bound:.4f} for "
            f"uniform samples. At ν = {NU:g} in float32, γ is {naive:.4e} without expm1 and {careful:.4e} with it; "
            f"exact is {float(_gamma(np.float64(NU), careful=True)):.4e}."
        )

    def draw(self, results: Results[RingCell]) -> Figure:
        within = [line("uniform in area", [0, 1], [0, 0])]
        for result in results:
            area = result.curves["share of the area"]
            within.append(points(f"ring {self.label(result.cell)}", area, result.curves["share within"] - area))
        last = Panel(x="share of the area", y="share within - uniform", curves=tuple(within))
        return Figure(
            panels=(*(_scatter(f"ring {self.label(result.cell)}", result) for result in results), last), columns=2
        )


def moments(ring: Ring) -> tuple[float, float]:
    """E|lambda|^2, which is also the square of the median radius, and E|lambda|."""
    a, b = ring
    return (a**2 + b**2) / 2, 2 / 3 * (b**3 - a**3) / (b**2 - a**2)


def _gamma(nu: Any, *, careful: bool) -> Any:
    """sqrt(1 - |lambda|^2) of |lambda| = exp(-nu), in the precision of `nu`."""
    return np.sqrt(-np.expm1(-2 * nu)) if careful else np.sqrt(1 - np.exp(-nu) ** 2)


def _distance(first: Array, second: Array) -> float:
    """The largest difference of the two distribution functions."""
    places = np.concatenate((first, second))
    shares = (np.searchsorted(np.sort(values), places, side="right") / len(values) for values in (first, second))
    return float(np.max(np.abs(np.subtract(*shares))))


def _scatter(label: str, result: CellResult[RingCell]) -> Panel:
    cloud = points("eigenvalues", result.curves["re"], result.curves["im"])
    return Panel(title=label, x=REAL, y=IMAGINARY, curves=(cloud,), circles=((0.0, 0.0),))


STUDY = RingStudy()

"""`disk`: the spectrum of a matrix with Glorot's entries, against the uniform distribution on the unit disk."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import IMAGINARY, REAL, Figure, Panel, line, points
from lrurun.studies.checks import Check, failed, identity, larger, sampling
from lrurun.studies.formulas import distance_to_uniform
from lrurun.studies.study import CellResult, Results, Settings, Study, Values

AREAS = np.linspace(0.0, 1.25, 51)
"""Squared radii at which the distribution is recorded."""


class Disk(Settings, frozen=True, kw_only=True):
    """One matrix of independent N(0, 1 / size) entries; the seed is that of NumPy's default generator."""

    size: Annotated[int, Meta(ge=2, le=4096)] = 50


def real_count(size: int) -> float:
    """The expected number of real eigenvalues, for an even size (Edelman, Kostlan and Shub 1994, Cor. 5.2)."""
    k = np.arange(1, size // 2)
    ratios = (4 * k - 3) * (4 * k - 1) / ((4 * k - 2) * (4 * k))
    return float(np.sqrt(2) * (1 + np.cumprod(ratios).sum()))


def asymptotic_real_count(size: int) -> float:
    """The expected number of real eigenvalues of any size, up to relative terms of order size**-2."""
    return float(np.sqrt(2 * size / np.pi) * (1 - 3 / (8 * size)) + 0.5)


class DiskStudy(Study[Disk]):
    name = "disk"
    aliases = ("lru-fig2",)
    source = "Orvieto et al. 2023, Fig. 2"
    question = "Are the eigenvalues of a Glorot matrix uniform on the unit disk?"
    published = (
        "The eigenvalues fill the disk more evenly as N grows from 50 to 500; some are real, and a few lie outside."
    )
    settings = Disk
    profiles = {"ci": {"size": [50, 100]}, "laptop": {"size": [50, 100, 500]}, "paper": {"size": [50, 100, 500]}}
    seeds = {"ci": 20, "laptop": 20, "paper": 20}
    stand_in = {"ci": "Sizes up to 100 stand in for sizes up to 500."}

    def label(self, cell: Disk) -> str:
        return f"N={cell.size}"

    def simulate(self, cell: Disk, seed: int) -> Values:
        matrix = np.random.default_rng(seed).standard_normal((cell.size, cell.size)) / np.sqrt(cell.size)
        eigenvalues = np.linalg.eigvals(matrix)
        areas = np.sort(np.abs(eigenvalues) ** 2)
        return {
            "re": eigenvalues.real,
            "im": eigenvalues.imag,
            "area": AREAS,
            "share within": np.searchsorted(areas, AREAS, side="right") / cell.size,
            "mean square": areas.mean(),
            "real eigenvalues": np.count_nonzero(eigenvalues.imag == 0),
            "distance to uniform": distance_to_uniform(np.minimum(areas, 1.0)),
            "spectral radius": np.sqrt(areas[-1]),
            "share in the disk": np.mean(areas <= 1),
        }

    def checks(self, results: Results[Disk]) -> list[Check]:
        checks, sizes = [], results.axis("size")
        for size in sizes:
            cells = results.where(size=size)
            # For large N the sum of |lambda|^2 has the variance 1: twice that of complex matrices, for which these are
            # independent gamma variables. The number of real ones has 2 - sqrt(2) times its mean (Forrester and Nagao
            # 2007).
            checks.append(
                sampling(
                    f"mean of |lambda|^2, N={size}", _mean(cells, "mean square"), 0.5, 1 / size / np.sqrt(len(cells))
                )
            )
            expected = real_count(size) if size % 2 == 0 else asymptotic_real_count(size)
            stderr = np.sqrt((2 - np.sqrt(2)) * expected / len(cells))
            checks.append(sampling(f"real eigenvalues, N={size}", _mean(cells, "real eigenvalues"), expected, stderr))
            if size % 2 == 0:
                approximate = asymptotic_real_count(size)
                checks.append(identity(f"expected real eigenvalues, N={size}", expected, approximate, 0.1 / size**2))
        return checks + _falls(results)

    def answer(self, results: Results[Disk]) -> str:
        parts = []
        for size in results.axis("size"):
            cells = results.where(size=size)
            parts.append(
                f"N = {size}: Kolmogorov distance of |λ|² {_mean(cells, 'distance to uniform'):.3f}, "
                f"{_mean(cells, 'real eigenvalues'):.1f} real eigenvalues, "
                f"spectral radius {_mean(cells, 'spectral radius'):.3f}"
            )
        steps = _falls(results)
        start = "The distance to the uniform spectrum falls at each step of N" if steps else "One size of matrices"
        if any(step.needs for step in steps):
            start = "One matrix of each size does not test whether the distance to the uniform spectrum falls with N"
        elif failed(steps):
            start = "The distance to the uniform spectrum does not significantly fall at each step of N"
        return f"{start} ({'; '.join(parts)})."

    def draw(self, results: Results[Disk]) -> Figure:
        sizes = results.axis("size")
        panels = [_scatter(results.where(size=size)[0]) for size in sizes]
        curves = [line("uniform on the disk", [0, AREAS[-1]], [0, 0])]
        for size in sizes:
            cells = results.where(size=size)
            area = cells[0].curves["area"]
            share = np.mean([cell.curves["share within"] for cell in cells], axis=0) - np.minimum(area, 1.0)
            curves.append(points(f"$N = {size}$", area, share))
        title = f"mean over {len(results.where(size=sizes[0]))} matrices"
        panels.append(Panel(title=title, x="$|λ|^2$", y="share within - uniform", curves=tuple(curves)))
        return Figure(panels=tuple(panels), columns=2)


def _falls(results: Results[Disk]) -> list[Check]:
    """Checks that the distance to the uniform distribution falls from each size to the next."""
    checks = []
    for small, large in pairwise(sorted(results.axis("size"))):
        distances = [results.where(size=size).by_seed("distance to uniform") for size in (small, large)]
        shared = sorted(distances[0].keys() & distances[1].keys())
        first, second = ([by_seed[seed] for seed in shared] for by_seed in distances)
        checks.append(larger(f"distance to uniform, N={small} over N={large}", first, second))
    return checks


def _mean(results: Results[Disk], name: str) -> float:
    return float(np.mean([result[name] for result in results]))


def _scatter(result: CellResult[Disk]) -> Panel:
    cloud = points("eigenvalues", result.curves["re"], result.curves["im"])
    return Panel(title=f"$N = {result.cell.size}$", x=REAL, y=IMAGINARY, curves=(cloud,), circles=((0.0, 0.0),))


STUDY = DiskStudy()

"""`disk`: the spectrum of the dense RNN's matrix as it is drawn, against the uniform distribution on the unit disk."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import IMAGINARY, REAL, Figure, Panel, line, points
from lrurun.studies.machinery.checks import Check, sampling
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, larger, positive, together
from lrurun.studies.machinery.study import CellResult, Results, Settings, Study, Values
from lrurun.studies.mathematics import layers
from lrurun.studies.mathematics.formulas import distance_to_uniform

AREAS = np.linspace(0.0, 1.25, 51)
"""Squared radii at which the distribution is recorded."""


class Disk(Settings, frozen=True, kw_only=True):
    """The recurrent matrix of one dense RNN (Orvieto et al. 2023, section 3.1), as its layer draws it."""

    size: Annotated[int, Meta(ge=2, le=4096)] = 50


@cache
def _drawn(size: int) -> Any:
    """seed -> the matrix A (size, size) of a dense RNN, float32."""
    import jax

    from lrurun.config.recurrences.rnn import RNNSettings

    layer = layers.build(RNNSettings(), width=1, state=size)
    return jax.jit(lambda seed: layer.init(jax.random.key(seed, impl="threefry2x32"))["A"])


def real_count(size: int) -> float:
    """The expected number of real eigenvalues, for an even size (Edelman, Kostlan and Shub 1994, Cor. 5.2)."""
    k = np.arange(1, size // 2)
    ratios = (4 * k - 3) * (4 * k - 1) / ((4 * k - 2) * (4 * k))
    return float(np.sqrt(2) * (1 + np.cumprod(ratios).sum()))


def asymptotic_real_count(size: int) -> float:
    """The expected number of real eigenvalues of any size, up to relative terms of order size**-2."""
    return float(np.sqrt(2 * size / np.pi) * (1 - 3 / (8 * size)) + 0.5)


def _uniform(results: Results[Disk]) -> Evidence | None:
    """Evidence that the distances to the uniform distribution fall at each step of N."""
    parts = []
    for small, large in pairwise(sorted(results.axis("size"))):
        for name in ("distance to uniform", "distance of the angles"):
            first, second = _paired(results, name, small, large)
            parts.append(larger(f"{name}, N={small} over N={large}", first, second))
    return together(*parts)


def _stable(results: Results[Disk]) -> Evidence | None:
    """Evidence that a smaller share of the eigenvalues is outside the disk for the largest N than for the smallest."""
    small, large = min(results.axis("size")), max(results.axis("size"))
    if small == large:
        return None
    inside, more = _paired(results, "share in the disk", small, large)
    differences = [second - first for first, second in zip(inside, more, strict=True)]
    return positive(f"share of eigenvalues outside the disk, N={small} minus N={large}", differences)


def _paired(results: Results[Disk], name: str, *sizes: int) -> list[list[float]]:
    """The values of each size, of the seeds that all of them have."""
    by_seed = [results.where(size=size).by_seed(name) for size in sizes]
    shared = sorted(set.intersection(*map(set, by_seed)))
    return [[values[seed] for seed in shared] for values in by_seed]


class DiskStudy(Study[Disk]):
    name = "disk"
    aliases = ("lru-fig2",)
    source = "Orvieto et al. 2023, Fig. 2"
    question = "Are the eigenvalues of a Glorot matrix uniform on the unit disk?"
    published = (
        "The eigenvalues fill the disk more evenly as N grows from 50 to 500; some are real, and a few lie outside."
    )
    claims = (
        StudyClaim(
            text="The eigenvalues of a Glorot matrix become uniform on the unit disk as it grows",
            source="Orvieto et al. 2023, Theorem 1, Fig. 2",
            evidence=_uniform,
        ),
        StudyClaim(
            text="Glorot's initialisation is approximately stable: a smaller share of eigenvalues is outside the unit "
            "disk of larger matrices",
            source="Orvieto et al. 2023, section 3.2",
            evidence=_stable,
        ),
    )
    version = 2
    settings = Disk
    simulates = True
    profiles = {"ci": {"size": [50, 100]}, "laptop": {"size": [50, 100, 500]}, "paper": {"size": [50, 100, 500]}}
    seeds = {"ci": 20, "laptop": 20, "paper": 20}
    stand_in = {"ci": "Sizes up to 100 stand in for sizes up to 500."}

    def label(self, cell: Disk) -> str:
        return f"N={cell.size}"

    def simulate(self, cell: Disk, seed: int) -> Values:
        matrix = np.asarray(_drawn(cell.size)(seed), np.float64)
        eigenvalues = np.linalg.eigvals(matrix)
        areas = np.sort(np.abs(eigenvalues) ** 2)
        return {
            "re": eigenvalues.real,
            "im": eigenvalues.imag,
            "area": AREAS,
            "share within": np.searchsorted(areas, AREAS, side="right") / cell.size,
            "mean entry squared": np.mean(matrix**2),
            "mean square": areas.mean(),
            "real eigenvalues": np.count_nonzero(eigenvalues.imag == 0),
            "distance to uniform": distance_to_uniform(np.minimum(areas, 1.0)),
            "distance of the angles": distance_to_uniform(np.sort(np.abs(np.angle(eigenvalues))) / np.pi),
            "spectral radius": np.sqrt(areas[-1]),
            "share in the disk": np.mean(areas <= 1),
        }

    def checks(self, results: Results[Disk]) -> list[Check]:
        checks, sizes = [], results.axis("size")
        for size in sizes:
            cells = results.where(size=size)
            n = len(cells)
            entry = _mean(cells, "mean entry squared")
            checks.append(sampling(f"mean square of an entry, N={size}", entry, 1 / size, np.sqrt(2 / n) / size**2))
            # For large N the sum of |lambda|^2 has the variance 1, twice as large as for complex matrices, for which
            # these are independent gamma variables. The number of real eigenvalues has the variance 2 - sqrt(2) times
            # its mean (Forrester and Nagao 2007).
            square = _mean(cells, "mean square")
            checks.append(sampling(f"mean of |lambda|^2, N={size}", square, 0.5, 1 / size / np.sqrt(n)))
            expected = real_count(size) if size % 2 == 0 else asymptotic_real_count(size)
            stderr = np.sqrt((2 - np.sqrt(2)) * expected / n)
            checks.append(sampling(f"real eigenvalues, N={size}", _mean(cells, "real eigenvalues"), expected, stderr))
        return checks

    def answer(self, results: Results[Disk]) -> str:
        parts = []
        for size in results.axis("size"):
            cells = results.where(size=size)
            parts.append(
                f"N = {size}: Kolmogorov distance of |λ|² {_mean(cells, 'distance to uniform'):.3f}, "
                f"{_mean(cells, 'real eigenvalues'):.1f} real eigenvalues, "
                f"spectral radius {_mean(cells, 'spectral radius'):.3f}"
            )
        return f"The spectra, by the size of the matrix: {'; '.join(parts)}."

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


def _mean(results: Results[Disk], name: str) -> float:
    return float(np.mean([result[name] for result in results]))


def _scatter(result: CellResult[Disk]) -> Panel:
    cloud = points("eigenvalues", result.curves["re"], result.curves["im"])
    return Panel(title=f"$N = {result.cell.size}$", x=REAL, y=IMAGINARY, curves=(cloud,), circles=((0.0, 0.0),))


STUDY = DiskStudy()

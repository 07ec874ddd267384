"""`reals`: whether real eigenvalues can express a shift."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import Curve, Figure, Panel, line, points
from lrurun.studies.checks import Check, above, below, identity
from lrurun.studies.study import Array, Results, Settings, Study, Values

STEP = 1e-5
"""Real part of the complex modes, twice."""
SMALLEST = 1e-10
"""Singular values below this share of the largest count as zero, as float64 cannot use their directions."""
FITTED = "least squares stand in for the training of a layer, because training cannot do better."
NODES = [4, 8, 12, 16]


class Reals(Settings, frozen=True, kw_only=True):
    """Least squares of a kernel that is 1 at one lag, by exponentials."""

    eigenvalues: Literal["complex", "real"] = "complex"
    """complex: exp(-dt / 2 + 2 pi i n / N), dt = 1e-5; real: exp(-dt_n), dt_n log-spaced from 1e-4 to 1."""
    modes: Annotated[int, Meta(ge=2, le=4096)] = 64
    length: Annotated[int, Meta(ge=8, le=4096, multiple_of=8)] = 256
    """The length of the kernel; the lag is 7 / 8 of it."""


def residual(cell: Reals) -> float:
    """The smallest energy of kernel minus exponentials, of an energy of 1."""
    lags, n = np.arange(cell.length)[:, None], np.arange(cell.modes)
    exponents: Array = -STEP / 2 + 2j * np.pi * n / cell.modes
    if cell.eigenvalues == "real":
        exponents = -np.geomspace(1e-4, 1.0, cell.modes)
    basis = np.exp(lags * exponents)
    kernel = np.zeros(cell.length)
    kernel[7 * cell.length // 8] = 1.0
    weights = np.linalg.lstsq(basis, kernel.astype(basis.dtype), rcond=SMALLEST)[0]
    return float(np.sum(np.abs(kernel - basis @ weights) ** 2))


def equal(cell: Reals) -> int:
    """How many lags are equal to that of the kernel, modulo the number of modes."""
    return len(range((7 * cell.length // 8) % cell.modes, cell.length, cell.modes))


def weight(nodes: Array) -> float:
    """The sum of |w| of the only weights with sum_j w_j x_j^k = 0 for k < N - 1 and 1 for k = N - 1."""
    gaps = np.subtract.outer(nodes, nodes) + np.eye(len(nodes))
    return float(np.sum(1 / np.abs(gaps.prod(1))))


def chebyshev(count: int) -> Array:
    """The nodes from 0 to 1 whose weights are smallest."""
    return np.asarray((1 - np.cos(np.pi * np.arange(count) / (count - 1))) / 2)


class RealsStudy(Study[Reals]):
    name = "reals"
    aliases = ("dlr-table2",)
    source = "Gupta et al. 2023, Table 2"
    question = "Can a layer with real eigenvalues express a shift, and how many complex ones does it need?"
    published = "With real eigenvalues the layer does not learn Shift, with complex ones it does if N is large enough."
    settings = Reals
    seeded = False
    profiles = {
        "ci": {"eigenvalues": ["complex", "real"], "modes": [64, 256]},
        "laptop": {"eigenvalues": ["complex", "real"], "modes": [16, 32, 64, 128, 192, 256, 1024]},
        "paper": {"eigenvalues": ["complex", "real"], "modes": [64, 256, 1024, 4096], "length": 4096},
    }
    stand_in = {
        "ci": f"256 lags stand in for 4,096 and more, because that takes seconds, and {FITTED}",
        "laptop": f"256 lags stand in for 4,096 and more, because that takes seconds, and {FITTED}",
        "paper": FITTED,
    }

    def label(self, cell: Reals) -> str:
        return cell.eigenvalues

    def simulate(self, cell: Reals, seed: int) -> Values:
        return {
            "residual": residual(cell),
            "nodes": np.array(NODES, float),
            "weights at Chebyshev nodes": np.array([weight(chebyshev(n)) for n in NODES]),
            "weights at uniform nodes": np.array([weight(np.linspace(0, 1, n)) for n in NODES]),
        }

    def checks(self, results: Results[Reals]) -> list[Check]:
        checks = []
        for result in results:
            cell = result.cell
            name = f"{cell.eigenvalues}, N={cell.modes}"
            if cell.eigenvalues == "real":
                checks.append(above(f"residual, {name}", result["residual"], 0.9))
                continue
            # The modes repeat after N lags: the best sum of them is the mean over the lags that are equal modulo N.
            # Their decay makes an error of order dt times the length.
            if (count := equal(cell)) > 1:
                share = 1 - 1 / count
                checks.append(
                    identity(f"residual 1 - 1 / {count}, {name}", result["residual"], share, cell.length * STEP)
                )
            else:
                checks.append(below(f"residual, {name}", result["residual"], 1e-20))
        for n, best, uniform in zip(*(results[0].curves[name] for name in CURVES), strict=True):
            checks.append(identity(f"smallest sum of |w|, {n:g} nodes", best, 2.0 ** (2 * n - 3)))
            checks.append(above(f"sum of |w| at uniform nodes, {n:g} nodes", uniform / best, 1.0))
        return checks

    def answer(self, results: Results[Reals]) -> str:
        cells = results.where(eigenvalues="complex")
        parts = [", ".join(f"{result['residual']:.3g} (N = {result.cell.modes})" for result in cells)] if cells else []
        real = [result["residual"] for result in results.where(eigenvalues="real")]
        nodes, best, uniform = (results[0].curves[name] for name in CURVES)
        parts += [f"at least {min(real):.3g} with real ones"] if real else []
        return (
            f"Energy that is left of a shift by 7/8 of the kernel, with N complex eigenvalues: {'; '.join(parts)}. For "
            f"a shift to the last of {nodes[-1]:g} lags, the |w| of {nodes[-1]:g} real ones in [0, 1] have a sum of "
            f"{best[-1]:.3g} at Chebyshev's nodes and of {uniform[-1]:.3g} at uniform ones."
        )

    def draw(self, results: Results[Reals]) -> Figure:
        curves: list[Curve] = []
        for kind in results.axis("eigenvalues"):
            cells = results.where(eigenvalues=kind)
            curves.append(points(kind, [cell.cell.modes for cell in cells], [cell["residual"] for cell in cells]))
            if kind == "complex":
                shares = [1 - 1 / equal(cell.cell) for cell in cells]
                curves.append(line("complex, closed form", [cell.cell.modes for cell in cells], shares, family=kind))
        nodes, best, uniform = (results[0].curves[name] for name in CURVES)
        bound = line("smallest possible, $2^{2N-3}$", nodes, 2.0 ** (2 * nodes - 3), family="Chebyshev nodes")
        right = (points("Chebyshev nodes", nodes, best), bound, points("uniform nodes", nodes, uniform))
        first = Panel(x="modes $N$", y="residual energy", curves=tuple(curves), x_scale="log")
        return Figure(panels=(first, Panel(x="nodes $N$", y="sum of $|w|$", curves=right, y_scale="log")), columns=2)


CURVES = ("nodes", "weights at Chebyshev nodes", "weights at uniform nodes")
STUDY = RealsStudy()

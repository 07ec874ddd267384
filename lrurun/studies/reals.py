"""`reals`: whether real eigenvalues can express a shift."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from lrurun.config.recurrences.dlr import DLRSettings
from lrurun.report.figures.figures import Curve, Figure, Panel, line, points
from lrurun.studies.machinery.checks import Check, identity, sampling
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, threshold, together
from lrurun.studies.machinery.study import Array, Results, Settings, Study, Values
from lrurun.studies.mathematics import layers

STEP = 1e-5
"""Twice the decay -log |lambda| of the complex modes."""
SLOWEST, FASTEST = 1e-4, 1.0
"""The smallest and the largest initial decay of the real modes."""
SMALLEST = 1e-10
"""Singular values below this share of the largest count as zero, as float64 cannot use their directions."""
FITTED = "least squares stand in for the training of a layer, because training cannot do better."
NODES = [4, 8, 12, 16]


class Reals(Settings, frozen=True, kw_only=True):
    """Least squares of a kernel that is 1 at one lag, by a DLR layer with its initial eigenvalues."""

    eigenvalues: Literal["complex", "real"] = "complex"
    """complex: exp(-dt / 2 + 2 pi i n / N), dt = 1e-5; real: exp(-a), a log-uniform from 1e-4 to 1."""
    modes: Annotated[int, Meta(ge=2, le=4096)] = 64
    length: Annotated[int, Meta(ge=8, le=4096, multiple_of=8)] = 256
    """The length of the kernel; the lag is 7 / 8 of it."""


def fitted(cell: Reals, seed: int) -> Values:
    """The layer's kernel after least squares of its weights.

    Returns:
        "residual": the energy of the shift, which is 1 by itself, minus the kernel that the layer computes; "least
        squares", the same of the sum of exponentials that was fitted; "mean log decay" of the initial eigenvalues.
    """
    import jax

    layer = layers.build(settings(cell), width=1, state=cell.modes)
    params = layers.initial(layer, seed)
    eigenvalue = layer.spectrum(params)
    basis = eigenvalue ** np.arange(cell.length)[:, None]
    basis = basis.real if cell.eigenvalues == "real" else basis
    shift = np.zeros(cell.length)
    shift[7 * cell.length // 8] = 1.0
    weights = np.linalg.lstsq(basis, shift.astype(basis.dtype), rcond=SMALLEST)[0]
    params |= {"W_re": weights.real[None], "D": np.zeros(1)}
    if cell.eigenvalues == "complex":
        params["W_im"] = weights.imag[None]
    kernel = np.asarray(jax.jit(layer.kernels, static_argnums=1)(params, cell.length))[0, :, 0]
    return {
        "residual": float(np.sum((shift - kernel) ** 2)),
        "least squares": float(np.sum((shift - (basis @ weights).real) ** 2)),
        "mean log decay": float(np.mean(np.log(-np.log(np.abs(eigenvalue))))),
    }


def settings(cell: Reals) -> DLRSettings:
    """The layer; its initial decays are dt / 2."""
    if cell.eigenvalues == "real":
        return DLRSettings(poles="real", weights="real", dt_min=2 * SLOWEST, dt_max=2 * FASTEST)
    return DLRSettings(dt_min=STEP, dt_max=STEP)


def equal(cell: Reals) -> int:
    """How many lags are equal to the kernel's, modulo the number of modes."""
    return len(range((7 * cell.length // 8) % cell.modes, cell.length, cell.modes))


def weight(nodes: Array) -> float:
    """The sum of |w| of the only weights with sum_j w_j x_j^k = 0 for k < N - 1 and 1 for k = N - 1."""
    gaps = np.subtract.outer(nodes, nodes) + np.eye(len(nodes))
    return float(np.sum(1 / np.abs(gaps.prod(1))))


def chebyshev(count: int) -> Array:
    """The nodes from 0 to 1 whose weights are smallest."""
    return np.asarray((1 - np.cos(np.pi * np.arange(count) / (count - 1))) / 2)


def _residuals(results: Results[Reals], spectrum: str, *, small: bool) -> list[float]:
    """Residuals with fewer modes than lags, or with as many or more."""
    return [
        result["residual"]
        for result in results.where(eigenvalues=spectrum)
        if (result.cell.modes < result.cell.length) == small
    ]


def _left(name: str, residuals: list[float]) -> Evidence | None:
    """Evidence that much of the shift is left [ours: half of its energy, or a tenth]."""
    return threshold(name, min(residuals), supported=0.5, contradicted=0.1) if residuals else None


def _real(results: Results[Reals]) -> Evidence | None:
    residuals = [residual for small in (True, False) for residual in _residuals(results, "real", small=small)]
    return _left("smallest residual, real eigenvalues", residuals)


def _small(results: Results[Reals]) -> Evidence | None:
    small, large = (_residuals(results, "complex", small=small) for small in (True, False))
    if not small or not large:
        return None
    return together(
        # 0.4: with 128 or 192 modes for 256 lags, half of the energy is left up to rounding
        threshold("smallest residual, N < L", min(small), supported=0.4, contradicted=0.1),
        threshold("largest residual, N ≥ L", max(large), supported=0.1, contradicted=0.4),
    )


class RealsStudy(Study[Reals]):
    name = "reals"
    aliases = ("dlr-table2",)
    source = "Gupta et al. 2023, Table 2"
    question = "Can a layer with real eigenvalues express a shift, and how many complex ones does it need?"
    published = "With real eigenvalues the layer does not learn Shift, with complex ones it does if N is large enough."
    claims = (
        StudyClaim(
            text="Real eigenvalues cannot express a shift",
            source="Gupta et al. 2023, section 3.3, Table 2, appendix A.4",
            evidence=_real,
        ),
        StudyClaim(
            text="A state smaller than the length limits a shift",
            source="Gupta et al. 2023, section 3.3, Table 2",
            evidence=_small,
        ),
    )
    version = 2
    simulates = True
    settings = Reals
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
            **fitted(cell, seed),
            "nodes": np.array(NODES, float),
            "weights at Chebyshev nodes": np.array([weight(chebyshev(n)) for n in NODES]),
            "weights at uniform nodes": np.array([weight(np.linspace(0, 1, n)) for n in NODES]),
        }

    def checks(self, results: Results[Reals]) -> list[Check]:
        checks = []
        for result in results:
            cell = result.cell
            name = f"{cell.eigenvalues}, N={cell.modes}"
            apart = result["residual"] - result["least squares"]
            checks.append(identity(f"residual of the layer minus that of the sum of powers, {name}", apart, 0.0, 1e-6))
            if cell.eigenvalues == "real":
                low, high = np.log(SLOWEST), np.log(FASTEST)
                stderr = (high - low) / np.sqrt(12 * cell.modes)
                checks.append(sampling(f"mean log decay, {name}", result["mean log decay"], (low + high) / 2, stderr))
                continue
            # The modes repeat after N lags: the best sum of them is the mean over the lags that are equal modulo N.
            # Their decay makes an error of order dt times the length.
            share, tolerance = 1 - 1 / equal(cell), cell.length * STEP
            checks.append(identity(f"residual, {name}, 1 - 1 / {equal(cell)}", result["residual"], share, tolerance))
        for n, best, _ in zip(*(results[0].curves[name] for name in CURVES), strict=True):
            checks.append(identity(f"smallest sum of |w|, {n:g} nodes", best, 2.0 ** (2 * n - 3)))
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
        for spectrum in results.axis("eigenvalues"):
            cells = results.where(eigenvalues=spectrum)
            curves.append(points(spectrum, [cell.cell.modes for cell in cells], [cell["residual"] for cell in cells]))
            if spectrum == "complex":
                shares = [1 - 1 / equal(cell.cell) for cell in cells]
                modes = [cell.cell.modes for cell in cells]
                curves.append(line("complex, closed form", modes, shares, family=spectrum))
        nodes, best, uniform = (results[0].curves[name] for name in CURVES)
        bound = line("smallest possible, $2^{2N-3}$", nodes, 2.0 ** (2 * nodes - 3), family="Chebyshev nodes")
        right = (points("Chebyshev nodes", nodes, best), bound, points("uniform nodes", nodes, uniform))
        first = Panel(x="modes $N$", y="residual energy", curves=tuple(curves), x_scale="log")
        return Figure(panels=(first, Panel(x="nodes $N$", y="sum of $|w|$", curves=right, y_scale="log")), columns=2)


CURVES = ("nodes", "weights at Chebyshev nodes", "weights at uniform nodes")
STUDY = RealsStudy()

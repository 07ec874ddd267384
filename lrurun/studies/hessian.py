"""`hessian`: whether the sharp directions of the loss at the optimum are along single parameters."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import Figure, Panel, greek, matrix, parameter_matrix, points
from lrurun.studies.machinery.checks import Check, identity, nan_last
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, equivalent, larger
from lrurun.studies.machinery.study import Results, Settings, Study, Values
from lrurun.studies.mathematics import hessians
from lrurun.studies.mathematics.formulas import generator
from lrurun.studies.mathematics.hessians import LAGS, NETWORKS, Network, block, differentiated, error

Highest = Annotated[float, Meta(ge=0.5, le=0.993)]
"""A radius |λ|: kernels of `LAGS` lags are complete up to rounding."""
STATISTICS = ("top", "participation", "share", "scaled")
FACTOR = 3.0
"""[ours] Largest eigenvalues within this factor of each other count as alike."""
GRID = {"network": NETWORKS}
TITLES = {
    "dense": "dense",
    "complex": "complex, pairs",
    "complex-single": "complex, one per pair",
    "lru": "LRU, pairs",
    "lru-single": "LRU, one per pair",
}


class Hessian(Settings, frozen=True, kw_only=True):
    """One network that is a random system with two pairs of eigenvalues; the seed chooses the system."""

    network: Network = "dense"
    low: Highest = 0.99
    high: Highest = 0.993
    length: Annotated[int, Meta(ge=10, le=LAGS)] = 300
    """Steps of the sequences."""

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low must not be larger than high, found low = {self.low:g}, high = {self.high:g}")


def _pair(results: Results[Hessian], name: str) -> tuple[list[float], list[float]]:
    """A statistic of the dense and of the complex network, of each system."""
    first, second = (results.where(network=network).by_seed(name) for network in ("dense", "complex"))
    seeds = sorted(first.keys() & second.keys())
    return [first[seed] for seed in seeds], [second[seed] for seed in seeds]


def _concentrated(results: Results[Hessian]) -> Evidence | None:
    dense, complex_ = _pair(results, "participation")
    return larger("participation ratio, dense / complex", dense, complex_) if dense else None


def _alike(results: Results[Hessian]) -> Evidence | None:
    logs = [float(np.log(dense / complex_)) for dense, complex_ in zip(*_pair(results, "top"), strict=True)]
    return equivalent("log of the largest eigenvalues, dense / complex", logs, np.log(FACTOR)) if logs else None


def _angles(results: Results[Hessian]) -> Evidence | None:
    cells = results.where(network="lru")
    theta, nu = ([cell[f"largest {name}"] for cell in cells] for name in ("theta_log", "nu_log"))
    return larger("largest entry of the diagonal, θ / ν", theta, nu) if cells else None


class HessianStudy(Study[Hessian]):
    name = "hessian"
    aliases = ("zucchet-fig4", "zucchet-fig4a", "zucchet-fig4b", "zucchet-fig9")
    source = "Zucchet and Orvieto 2024, Figs. 4A, 4B and 9"
    question = "Are the sharp directions of the loss at the optimum along single parameters?"
    published = (
        "The spectra of the dense and of the complex network are almost the same; the top eigenvectors are spread for "
        "the dense one and on few coordinates for the complex one; in the LRU, the angles are sharp."
    )
    claims = (
        StudyClaim(
            text="The largest eigenvectors are more concentrated for complex diagonal networks than for dense ones",
            source="Zucchet and Orvieto 2024, section 4.3, Fig. 4A, 4B",
            evidence=_concentrated,
        ),
        StudyClaim(
            text="The spectra of the Hessians of dense and complex networks are almost the same",
            source="Zucchet and Orvieto 2024, section 4.3, Fig. 4; the margin is ours",
            evidence=_alike,
        ),
        StudyClaim(
            text="The loss of an LRU is sharper in its angles than in its absolute values",
            source="Zucchet and Orvieto 2024, appendix B.4, Fig. 9",
            evidence=_angles,
        ),
    )
    version = 2
    settings = Hessian
    profiles = {"ci": GRID, "laptop": GRID, "paper": GRID}
    seeds = {"laptop": 20, "paper": 20}
    simulates = True
    stand_in = {"ci": "One system stands in for 20."}

    def label(self, cell: Hessian) -> str:
        return cell.network

    def simulate(self, cell: Hessian, seed: int) -> Values:
        system = hessians.system(generator(seed, "system"), cell.low, cell.high)
        parameters, dense = hessians.parameters(cell.network, system), cell.network == "dense"
        flat, shapes = hessians.flattened(parameters)
        compute = differentiated(cell.network, shapes)
        weights = np.maximum(1 - np.arange(cell.length if dense else LAGS) / cell.length, 0)
        kernel, hessian, linearised = map(np.asarray, compute(flat, weights))
        spectrum = hessians.spectrum(hessian)
        values: Values = {
            **{name: getattr(spectrum, name) for name in STATISTICS},
            "kernel error": error(kernel, hessians.impulse_response(system, len(kernel))),
            "linearised error": error(linearised, hessian),
            "eigenvalues": spectrum.eigenvalues,
            "eigenvectors": spectrum.vectors.ravel(),
            "hessian": hessian.ravel(),
        }
        ends = np.cumsum([array.size for array in parameters.values()])[:-1]
        for name, part in zip(parameters, np.split(np.diag(hessian), ends), strict=True):
            values[f"largest {name}"] = part.max()
        if not dense:
            eigenvalues, b, c = hessians.diagonal(cell.network, system)
            n, form = len(b), hessians.COORDINATES[cell.network]
            theory = block(eigenvalues, b, c, 0.0, form, hessians.angles(eigenvalues))
            whole = np.asarray(compute(flat, np.ones(LAGS))[1])[: 2 * n, : 2 * n]  # sequences without end
            values |= {"trace": np.trace(whole), "theory": np.trace(theory), "block error": error(whole, theory)}
        return values

    def checks(self, results: Results[Hessian]) -> list[Check]:
        checks = []
        for network in results.axis("network"):
            cells, title = results.where(network=network), TITLES[network]
            most = max((cell["kernel error"] for cell in cells), key=nan_last)
            checks.append(identity(f"{title}: the layer's kernel less that of the system, relative", most, 0.0, 1e-8))
            most = max((cell["linearised error"] for cell in cells), key=nan_last)
            checks.append(identity(f"{title}: jax.hessian less that of the linearised kernel", most, 0.0, 1e-9))
            if network != "dense":
                worst = max(cells, key=lambda cell: nan_last(cell["block error"]))
                checks.append(identity(f"{title}: block of λ, autodiff less theory", worst["block error"], 0.0, 1e-8))
                checks.append(identity(f"{title}: its trace, autodiff and theory", worst["trace"], worst["theory"]))
        return checks

    def answer(self, results: Results[Hessian]) -> str:
        texts = []
        for network in results.axis("network"):
            logs = [[np.log(result[name]) for name in STATISTICS] for result in results.where(network=network)]
            top, spread, share, scaled = np.exp(np.mean(logs, axis=0))
            texts.append(f"{TITLES[network]} {top:.2g}, {spread:.2g}, {share:.2g}, {scaled:.2g}")
        return (
            "Top eigenvalue, participation ratio of top eigenvectors, share off the diagonal, and top eigenvalue after "
            f"scaling the diagonal to 1 (geometric means over systems): {'; '.join(texts)}."
        )

    def draw(self, results: Results[Hessian]) -> Figure:
        first = results.where(lambda result: result.seed == results[0].seed and result.cell.network in hessians.GROUPS)
        panels, spectra = [], []
        for result in first:
            title, n = greek(TITLES[result.cell.network]), len(result.curves["eigenvalues"])
            where, top = _symbols(result.cell.network), len(result.curves["eigenvectors"]) // n
            panels.append(parameter_matrix(title, result.curves["hessian"], where))
            picture = matrix(result.curves["eigenvectors"], "|entry|", rows=top)
            numbers = tuple((n, str(n + 1)) for n in range(0, top, 2))
            panels.append(
                Panel(title=title, x="parameter", y="eigenvector", picture=picture, x_ticks=where, y_ticks=numbers)
            )
            large = result.curves["eigenvalues"][:top]
            spectra.append(points(title, range(1, len(large) + 1), large))
        spread = [
            points(
                greek(TITLES[name]), *zip(*results.where(network=name).by_seed("participation").items(), strict=True)
            )
            for name in first.axis("network")
        ]
        panels.append(Panel(x="number", y="eigenvalue of $H$", curves=tuple(spectra), y_scale="log"))
        panels.append(Panel(x="system", y="participation ratio", curves=tuple(spread)))
        return Figure(panels=tuple(panels), columns=2)


def _symbols(network: hessians.Network) -> tuple[tuple[float, str], ...]:
    """The names of the groups of parameters, at the middle of each."""
    return tuple((index, greek(name)) for index, name in hessians.centres(network))


STUDY = HessianStudy()

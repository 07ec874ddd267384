"""`ring`: eigenvalues sampled on a ring of the complex plane, and whether they fill it evenly."""

from __future__ import annotations

import numpy as np

from lrurun.config.recurrences.lru import LRUSettings
from lrurun.report.figures.figures import IMAGINARY, REAL, Figure, Panel, line, points
from lrurun.studies.machinery.checks import Check, below, identity, sampling
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, threshold
from lrurun.studies.machinery.study import Array, CellResult, Count, Results, Settings, Study, Values
from lrurun.studies.mathematics import layers
from lrurun.studies.mathematics.formulas import Ring, check_ring, distance_to_uniform, generator

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


GAMMA = float(np.sqrt(-np.expm1(-2 * NU)))
"""The exact sqrt(1 - |lambda|^2) there."""
RADIUS, PHASE = "distance of |lambda|^2 to uniform", "distance of the phase to uniform"
TO_GLOROT = "distance to a Glorot spectrum"
NAIVE, CAREFUL = "gamma in float32", "gamma of the layer"


class RingCell(Settings, frozen=True, kw_only=True):
    """The initial eigenvalues of an LRU on one ring (Orvieto et al. 2023, Lemma 2)."""

    ring: Ring = (0.0, 1.0)
    """Inner and outer radius, as in --set ring=[[0.9,0.999]]."""
    samples: Count = 10_000

    def __post_init__(self) -> None:
        check_ring(self.ring)


def _glorot(results: Results[RingCell]) -> Evidence | None:
    distances = [result[TO_GLOROT] for result in results if TO_GLOROT in result.values]
    # a twentieth and a tenth of the eigenvalues [ours]
    return threshold(TO_GLOROT, max(distances), supported=0.05, contradicted=0.1) if distances else None


class RingStudy(Study[RingCell]):
    name = "ring"
    aliases = ("lru-fig3",)
    source = "Orvieto et al. 2023, Fig. 3"
    question = "Does the sampler of eigenvalues fill a ring evenly?"
    published = "The points spread evenly in each ring; the ring from 0 to 1 looks like a Glorot spectrum."
    claims = (
        StudyClaim(
            text="Eigenvalues that are sampled on the unit disk are distributed as those of a Glorot matrix",
            source="Orvieto et al. 2023, caption of Fig. 3",
            evidence=_glorot,
        ),
    )
    version = 2
    simulates = True
    settings = RingCell
    profiles = {"ci": {"ring": RINGS}, "laptop": {"ring": RINGS}, "paper": {"ring": RINGS}}

    def label(self, cell: RingCell) -> str:
        return _name(cell)

    def simulate(self, cell: RingCell, seed: int) -> Values:
        import jax.numpy as jnp

        from lrurun.nn.recurrences import lru

        inner, outer = cell.ring
        layer = layers.build(LRUSettings(normalize=True, r_min=inner, r_max=outer), width=1, state=cell.samples)
        params = layers.initial(layer, seed, f"ring {_name(cell)}")
        eigenvalue = layer.spectrum(params)
        radius, phase = np.abs(eigenvalue), layers.phases(eigenvalue)
        share = np.sort((radius**2 - inner**2) / (outer**2 - inner**2))
        where = np.linspace(0, 1, 41)
        values: Values = {
            "re": eigenvalue.real[:SHOWN],
            "im": eigenvalue.imag[:SHOWN],
            "share of the area": where,
            "share within": np.searchsorted(share, where, side="right") / cell.samples,
            "mean radius": radius.mean(),
            RADIUS: distance_to_uniform(share),
            PHASE: distance_to_uniform(np.sort(phase / (2 * np.pi))),
            NAIVE: np.sqrt(1 - np.exp(-np.float32(NU)) ** 2),
            CAREFUL: np.exp(np.float64(lru.log_gamma(jnp.float32(NU)))),
            **layers.sampled(eigenvalue, np.exp(params["gamma_log"])),
        }
        if cell.ring == (0.0, 1.0):
            matrix = generator(seed, "glorot").standard_normal((GLOROT, GLOROT)) / np.sqrt(GLOROT)
            values[TO_GLOROT] = _distance(share, np.abs(np.linalg.eigvals(matrix)) ** 2)
        return values

    def checks(self, results: Results[RingCell]) -> list[Check]:
        checks = []
        for result in results:
            ring, n, where = result.cell.ring, result.cell.samples, self.label(result.cell)
            checks += layers.ring_checks(result.values, ring, count=n, where=where)
            square, mean = moments(ring)
            deviation = np.sqrt(square - mean**2)
            checks.append(sampling(f"mean of |lambda|, {where}", result["mean radius"], mean, deviation / np.sqrt(n)))
            for name in (RADIUS, PHASE):
                checks.append(below(f"{name}, {where}", result[name], LEVEL / np.sqrt(n)))
        checks.append(identity(f"{CAREFUL} at nu = {NU:g}", results[0][CAREFUL], GAMMA, 1e-6))
        return checks

    def answer(self, results: Results[RingCell]) -> str:
        worst = max(results, key=lambda result: result[RADIUS] * np.sqrt(result.cell.samples))
        distance, bound = worst[RADIUS], LEVEL / np.sqrt(worst.cell.samples)
        naive, careful = (results[0][name] for name in (NAIVE, CAREFUL))
        return (
            f"The Kolmogorov distance of |λ|² to the uniform distribution is at most {distance:.4f}, "
            f"{'below' if distance < bound else 'not below'} the bound of {bound:.4f} for "
            f"uniform samples. At ν = {NU:g} in float32, γ is {naive:.4e} without expm1 and {careful:.4e} as the layer "
            f"computes it; exact is {GAMMA:.4e}."
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


def _name(cell: RingCell) -> str:
    return f"{cell.ring[0]:g}-{cell.ring[1]:g}"


def moments(ring: Ring) -> tuple[float, float]:
    """E|lambda|^2, which is also the square of the median radius, and E|lambda|."""
    a, b = ring
    return (a**2 + b**2) / 2, 2 / 3 * (b**3 - a**3) / (b**2 - a**2)


def _distance(first: Array, second: Array) -> float:
    """The largest difference of the two distribution functions."""
    samples = np.concatenate((first, second))
    shares = (np.searchsorted(np.sort(values), samples, side="right") / len(values) for values in (first, second))
    return float(np.max(np.abs(np.subtract(*shares))))


def _scatter(label: str, result: CellResult[RingCell]) -> Panel:
    cloud = points("eigenvalues", result.curves["re"], result.curves["im"])
    return Panel(title=label, x=REAL, y=IMAGINARY, curves=(cloud,), circles=((0.0, 0.0),))


STUDY = RingStudy()

"""`gain`: how much a layer with eigenvalues on a ring amplifies its input."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from lrurun.config.recurrences.lru import LRUSettings
from lrurun.report.figures.figures import Figure, line, log_log, spread
from lrurun.studies.machinery.checks import Check, identity, sampling
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, larger
from lrurun.studies.machinery.study import Count, Results, Settings, Study, Values
from lrurun.studies.mathematics import layers
from lrurun.studies.mathematics.formulas import Ring, check_ring, generator, ring_gain, slice_gain

RINGS = [[0.0, 0.9], [0.0, 0.99], [0.9, 0.99], [0.9, 0.999], [0.99, 0.999]]
SLICE = np.pi / 50
"""The small phase of the long tasks of Orvieto et al. 2023."""


CHUNK = 1000
"""Steps of one call of the compiled scan."""


class Gain(Settings, frozen=True, kw_only=True):
    """One ring, one input signal with E|x|^2 = 1 for each unit, and one sample of the eigenvalues."""

    ring: Ring = (0.0, 0.9)
    """Inner and outer radius, as in --set ring=[[0.9,0.999]]."""
    input: Literal["white", "constant"] = "white"
    units: Count = 500
    steps: Annotated[int, Meta(ge=1, le=10**6)] = 10_000

    def __post_init__(self) -> None:
        check_ring(self.ring)
        if self.ring[1] == 1.0:
            raise ValueError("ring: the gain is finite only for an outer radius below 1")


def variance(cell: Gain) -> float:
    """The variance of |h|^2 of a unit after a long sequence, over eigenvalue and input. White inputs are real, and
    each unit has its own.

    E|h|^4 is 2 (E|h|^2)^2 + |E h^2|^2 for a white input and |1 - lambda|^-4 for a constant one, then averaged over the
    ring in closed form.
    """
    a, b = (radius**2 for radius in cell.ring)
    if cell.input == "white":
        fourth = 2 / ((1 - a) * (1 - b)) + (np.arctanh(b) - np.arctanh(a)) / (b - a)
    else:
        fourth = (b / (1 - b) ** 2 - a / (1 - a) ** 2) / (b - a)
    return float(fourth - ring_gain(cell.ring) ** 2)


def _stderr(runs: Results[Gain]) -> float:
    """The exact standard error of the mean gain over runs that differ in the seed."""
    return float(np.sqrt(variance(runs[0].cell) / (runs[0].cell.units * len(runs))))


def _mean(runs: Results[Gain]) -> float:
    return float(np.mean([run["gain"] for run in runs]))


def _errors(results: Results[Gain]) -> dict[int, float]:
    """Seed -> the mean over rings of the relative error of the formula."""
    errors: dict[int, list[float]] = {}
    for result in results:
        errors.setdefault(result.seed, []).append(abs(result["gain"] / ring_gain(result.cell.ring) - 1))
    return {seed: float(np.mean(of_rings)) for seed, of_rings in errors.items()}


def _accuracy(results: Results[Gain]) -> Evidence | None:
    white, constant = (_errors(results.where(input=signal)) for signal in ("white", "constant"))
    seeds = sorted(white.keys() & constant.keys())
    if not seeds:
        return None
    name = "error of the formula, constant over white input"
    return larger(name, [constant[seed] for seed in seeds], [white[seed] for seed in seeds])


class GainStudy(Study[Gain]):
    name = "gain"
    aliases = ("lru-fig9",)
    source = "Orvieto et al. 2023, Fig. 9"
    question = "How much does a layer with eigenvalues on a ring amplify a white or a constant input?"
    published = (
        "The boxes of 10 runs lie on the curve of Prop. 3 for both inputs, more accurately for random ones: medians, "
        "with the 5th and the 95th percentile."
    )
    claims = (
        StudyClaim(
            text="The formula for the gain is more accurate with random than with constant input",
            source="Orvieto et al. 2023, caption of Fig. 9",
            evidence=_accuracy,
        ),
    )
    version = 2
    simulates = True
    settings = Gain
    profiles = {
        "ci": {"input": ["white", "constant"], "ring": [RINGS[0], RINGS[2]]},
        "laptop": {"input": ["white", "constant"], "ring": RINGS},
        "paper": {"input": ["white", "constant"], "ring": RINGS},
    }
    seeds = {"ci": 10, "laptop": 10, "paper": 10}
    stand_in = {"ci": "2 rings stand in for 5."}

    def label(self, cell: Gain) -> str:
        return f"{cell.input}/{cell.ring[0]:g}-{cell.ring[1]:g}"

    def simulate(self, cell: Gain, seed: int) -> Values:
        name = f"gain {self.label(cell)}"
        settings = LRUSettings(r_min=cell.ring[0], r_max=cell.ring[1])
        layer = layers.build(settings, width=1, state=cell.units)
        eigenvalue = layer.spectrum(layers.initial(layer, seed, name))
        random, scan = generator(seed, name), last_state()
        lam, state = layers.numbers(eigenvalue), layers.numbers(np.zeros((1, cell.units)))
        for start in range(0, cell.steps, CHUNK):
            shape = (min(CHUNK, cell.steps - start), 1, cell.units)
            inputs = random.standard_normal(shape) if cell.input == "white" else np.ones(shape)
            state = scan(lam, state, inputs)
        outer = 1 - (1 - cell.ring[0]) * np.geomspace(0.9, 5e-4, 60)
        return {
            "gain": np.mean(np.abs(state.numpy()) ** 2),
            **layers.sampled(eigenvalue),
            "outer radius": outer,
            "expected": np.array([ring_gain((cell.ring[0], b)) for b in outer]),
        }

    def checks(self, results: Results[Gain]) -> list[Check]:
        from scipy.integrate import quad

        checks = []
        for ring in results.axis("ring"):
            cells = results.where(ring=ring)
            name, steps, (a, b) = f"{ring[0]:g}-{ring[1]:g}", cells[0].cell.steps, (radius**2 for radius in ring)
            integral = quad(lambda r: 1 / (1 - r), a, b, epsabs=0, epsrel=1e-12)[0] / (b - a)
            checks.append(identity(f"Prop. 3 as an integral, ring {name}", integral, ring_gain(ring)))
            finite = quad(lambda r, n=steps: (1 - r**n) / (1 - r), a, b, epsabs=0, epsrel=1e-12)[0] / (b - a)
            checks.append(identity(f"after {steps} steps as an integral, ring {name}", finite, ring_gain(ring, steps)))
            for signal in cells.axis("input"):
                runs = cells.where(input=signal)
                where = f"{signal} input, ring {name}"
                checks.append(sampling(f"mean gain, {where}", _mean(runs), ring_gain(ring, steps), _stderr(runs)))
                means = {key: np.mean([run[key] for run in runs]) for key in (layers.MEAN_SQUARE, layers.MEAN_PHASE)}
                checks += layers.ring_checks(means, ring, count=runs[0].cell.units * len(runs), where=where)
        return checks

    def answer(self, results: Results[Gain]) -> str:
        ring = results.axis("ring")[-1]
        parts = []
        for signal in results.axis("input"):
            gains = [result["gain"] for result in results.where(input=signal, ring=ring)]
            below = sum(gain < ring_gain(ring) for gain in gains)
            parts.append(
                f"{signal} {np.mean(gains):.4g} (median {np.median(gains):.4g}, {below} of {len(gains)} below the mean)"
            )
        return (
            f"On the ring {ring[0]:g}-{ring[1]:g} the forward pass amplifies white and constant inputs by "
            f"{ring_gain(ring):.4g} in the mean. Runs: {'; '.join(parts)}. With phases up to π/50 the mean of "
            f"constant inputs is {slice_gain(ring, SLICE):.4g}."
        )

    def draw(self, results: Results[Gain]) -> Figure:
        panels = []
        for signal in results.axis("input"):
            curves = []
            for inner in dict.fromkeys(ring[0] for ring in results.axis("ring")):
                cells = _within(results.where(input=signal), inner)
                label = f"inner radius {inner:g}"
                curves.append(line(label, 1 / (1 - cells[0].curves["outer radius"]), cells[0].curves["expected"]))
                rings = cells.axis("ring")
                runs = {1 / (1 - ring[1]): [result["gain"] for result in cells.where(ring=ring)] for ring in rings}
                curves.append(spread(f"{label}, runs", runs, percent=90, family=label))
            axes = "1 / (1 - outer radius)", "gain $E|h|^2 / E|Bu|^2$"
            panels.append(log_log(*axes, curves, title=f"{signal} input"))
        return Figure(panels=tuple(panels), columns=len(panels))


@cache
def last_state() -> Any:
    """(lambda (N,), state (1, N), inputs (T, 1, N)) -> the state after the last input, which each unit has for itself.

    That is the scan of a layer whose B is the identity.
    """
    import jax

    from lrurun.nn.complex import Complex
    from lrurun.nn.scan import linear_scan

    def scan(lam: Any, state: Any, inputs: Any) -> Any:
        driven = Complex(inputs, jax.numpy.zeros_like(inputs))
        return jax.tree.map(lambda part: part[-1], linear_scan(lam, driven, initial=state))

    return jax.jit(scan)


def _within(results: Results[Gain], inner: float) -> Results[Gain]:
    return results.where(lambda result: result.cell.ring[0] == inner)


STUDY = GainStudy()

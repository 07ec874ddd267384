"""`gain`: how much a layer with eigenvalues on a ring amplifies its input."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import Figure, line, log_log, spread
from lrurun.studies.checks import Check, above, identity, sampling
from lrurun.studies.formulas import Ring, check_ring, generator, ring_gain, ring_radius, slice_gain
from lrurun.studies.study import Array, Count, Results, Settings, Study, Values

RINGS = [[0.0, 0.9], [0.0, 0.99], [0.9, 0.99], [0.9, 0.999], [0.99, 0.999]]
SLICE = np.pi / 50
"""The small phase of the long tasks of Orvieto et al. 2023."""


class Gain(Settings, frozen=True, kw_only=True):
    """One ring, one kind of input with E|x|^2 = 1 for each unit, and one sample of the eigenvalues."""

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


class GainStudy(Study[Gain]):
    name = "gain"
    aliases = ("lru-fig9",)
    source = "Orvieto et al. 2023, Fig. 9"
    question = "How much does a layer with eigenvalues on a ring amplify a white or a constant input?"
    published = (
        "The boxes of 10 runs lie on the curve of Prop. 3 for both inputs, more accurately for random ones: medians, "
        "with the 5th and the 95th percentile."
    )
    settings = Gain
    profiles = {
        "ci": {"ring": [RINGS[0], RINGS[2]]},
        "laptop": {"input": ["white", "constant"], "ring": RINGS},
        "paper": {"input": ["white", "constant"], "ring": RINGS},
    }
    seeds = {"ci": 10, "laptop": 10, "paper": 10}
    stand_in = {"ci": "White inputs and 2 rings stand in for white and constant inputs and 5 rings."}

    def label(self, cell: Gain) -> str:
        return f"{cell.input}/{cell.ring[0]:g}-{cell.ring[1]:g}"

    def simulate(self, cell: Gain, seed: int) -> Values:
        rng = generator(seed, f"gain {self.label(cell)}")
        phase = 2 * np.pi * rng.random(cell.units)
        eigenvalue = ring_radius(1 - rng.random(cell.units), cell.ring) * np.exp(1j * phase)
        state: Array = (1 - eigenvalue**cell.steps) / (1 - eigenvalue)
        if cell.input == "white":
            state = np.zeros(cell.units, complex)
            for start in range(0, cell.steps, 1000):
                for inputs in rng.standard_normal((min(1000, cell.steps - start), cell.units)):
                    state *= eigenvalue
                    state += inputs
        outer = 1 - (1 - cell.ring[0]) * np.geomspace(0.9, 5e-4, 60)
        return {
            "gain": np.mean(np.abs(state) ** 2),
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
            for kind in cells.axis("input"):
                runs = cells.where(input=kind)
                stderr = np.sqrt(variance(runs[0].cell) / (runs[0].cell.units * len(runs)))
                mean = float(np.mean([run["gain"] for run in runs]))
                checks.append(sampling(f"mean gain, {kind} input, ring {name}", mean, ring_gain(ring, steps), stderr))
            over = slice_gain(ring, SLICE) / ring_gain(ring)
            checks.append(above(f"constant input, phases up to pi/50 over the whole circle, ring {name}", over, 1.0))
        return checks

    def answer(self, results: Results[Gain]) -> str:
        ring = results.axis("ring")[-1]
        parts = []
        for kind in results.axis("input"):
            gains = [result["gain"] for result in results.where(input=kind, ring=ring)]
            below = sum(gain < ring_gain(ring) for gain in gains)
            parts.append(
                f"{kind} {np.mean(gains):.4g} (median {np.median(gains):.4g}, {below} of {len(gains)} below the mean)"
            )
        return (
            f"On the ring {ring[0]:g}-{ring[1]:g} by {ring_gain(ring):.4g} in the mean, for white and constant inputs. "
            f"Runs: {'; '.join(parts)}. With phases up to π/50 the mean of constant inputs is "
            f"{slice_gain(ring, SLICE):.4g}."
        )

    def draw(self, results: Results[Gain]) -> Figure:
        panels = []
        for kind in results.axis("input"):
            curves = []
            for inner in dict.fromkeys(ring[0] for ring in results.axis("ring")):
                cells = _within(results.where(input=kind), inner)
                label = f"inner radius {inner:g}"
                curves.append(line(label, 1 / (1 - cells[0].curves["outer radius"]), cells[0].curves["expected"]))
                rings = cells.axis("ring")
                runs = {1 / (1 - ring[1]): [result["gain"] for result in cells.where(ring=ring)] for ring in rings}
                curves.append(spread(f"{label}, runs", runs, percent=90, family=label))
            axes = "1 / (1 - outer radius)", "gain $E|h|^2 / E|Bu|^2$"
            panels.append(log_log(*axes, curves, title=f"{kind} input"))
        return Figure(panels=tuple(panels), columns=len(panels))


def _within(results: Results[Gain], inner: float) -> Results[Gain]:
    return results.where(lambda result: result.cell.ring[0] == inner)


STUDY = GainStudy()

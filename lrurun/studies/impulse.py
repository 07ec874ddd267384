"""`impulse`: how often the states of a diagonal layer oscillate after one input."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from lrurun.config.recurrences.lru import LRUSettings
from lrurun.report.figures.figures import Figure, Panel, dashed, thin
from lrurun.studies.machinery.checks import Check, below, identity, sampling
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, threshold
from lrurun.studies.machinery.study import Array, Results, Settings, Study, Values
from lrurun.studies.mathematics import layers

COMPONENTS = 3
"""The number of components in the figure."""
SAMPLED = 200
"""Phases for the mean number of sign changes; the figure has the first ones."""
LONG, SHORT = 16384, 1024
"""The lengths that the caption compares."""
CIRCLE, SLICE = 2.0, 0.02
FURTHEST = 600
"""The largest exponent of a decay: exp(-708) is the smallest normal number of float64."""
PARTS = 512
"""The figure has the smallest and the largest state of so many parts of the sequence, which looks like all of them."""

GRID = {"phase": [CIRCLE, SLICE], "steps": [LONG, SHORT]}


class Impulse(Settings, frozen=True, kw_only=True):
    """One range of initial phases, and one length of the sequence."""

    phase: Annotated[float, Meta(gt=0, le=2)] = 2.0
    """Largest phase in units of π; the smallest is 0."""
    steps: Annotated[int, Meta(ge=PARTS, le=10**5)] = LONG
    decay: Annotated[float, Meta(ge=1e-6, le=1)] = 5e-5
    """ν = -log |λ|, the same for all components."""

    def __post_init__(self) -> None:
        if self.decay * self.steps > FURTHEST:
            raise ValueError(
                f"decay times steps must be at most {FURTHEST}, or states underflow, found {self.decay * self.steps:g}"
            )


def mean_changes(phase: float) -> tuple[float, float]:
    """Mean and standard deviation of sign changes per step, for phases uniform from 0 to π · `phase`.

    cos(θ k) changes its sign min(θ, 2 π - θ) / π times in a step, on average over k.
    """
    rising, falling = min(phase, 1.0), max(phase - 1.0, 0.0)
    first = rising**2 / 2 + (1 - (1 - falling) ** 2) / 2
    second = rising**3 / 3 + (1 - (1 - falling) ** 3) / 3
    mean = first / phase
    return mean, float(np.sqrt(second / phase - mean**2))


def _changes(results: Results[Impulse], phase: float, steps: int) -> float | None:
    """The mean number of sign changes over seeds."""
    cells = results.where(phase=phase, steps=steps)
    return float(np.mean([cell["mean sign changes"] for cell in cells])) if len(cells) else None


def _few(results: Results[Impulse]) -> Evidence | None:
    if (changes := _changes(results, CIRCLE, SHORT)) is None:
        return None
    # an oscillation has two changes: 10 are a few, 50 are not [ours]
    return threshold("oscillations in 1,024 steps", changes / 2, supported=10, contradicted=50)


def _similar(results: Results[Impulse]) -> Evidence | None:
    long, short = _changes(results, SLICE, LONG), _changes(results, CIRCLE, SHORT)
    if long is None or short is None:
        return None
    name = "oscillations in 16,384 steps, phases up to π/50, over those in 1,024 steps, all phases"
    return threshold(name, long / short, supported=1, contradicted=2)


class ImpulseStudy(Study[Impulse]):
    name = "impulse"
    aliases = ("lru-fig4",)
    source = "Orvieto et al. 2023, Fig. 4"
    question = "How often does a state oscillate over a long sequence, and how often with a small initial phase?"
    published = (
        "With phases up to 2π the states oscillate so fast over 16k steps that they fill a band; up to π/50 they make "
        "slow waves. The caption calls the number acceptable for 1,024 steps: an input comes back only a few times."
    )
    claims = (
        StudyClaim(
            text="Over 1,024 steps, eigenvalues with phases on the whole circle oscillate only a few times",
            source="Orvieto et al. 2023, caption of Fig. 4",
            evidence=_few,
        ),
        StudyClaim(
            text="Phases in a small slice oscillate over 16,384 steps no more than all phases over 1,024",
            source="Orvieto et al. 2023, caption of Fig. 4",
            evidence=_similar,
        ),
    )
    version = 2
    simulates = True
    settings = Impulse
    profiles = {"ci": GRID, "laptop": GRID, "paper": GRID}

    def label(self, cell: Impulse) -> str:
        return f"phase={cell.phase:g}pi"

    def simulate(self, cell: Impulse, seed: int) -> Values:
        import jax.numpy as jnp

        radius = float(np.exp(-cell.decay))
        settings = LRUSettings(r_min=radius, r_max=radius, max_phase=np.pi * cell.phase, phase="log")
        layer = layers.build(settings, width=1, state=SAMPLED)
        params = layers.initial(layer, seed, "impulse") | {
            "B_re": np.ones((SAMPLED, 1)),
            "B_im": np.zeros((SAMPLED, 1)),
        }
        impulse = jnp.zeros((cell.steps, 1, 1)).at[0].set(1.0)
        states = layers.states(layer, params, impulse)[:, 0].numpy()
        phases, ends = layers.phases(layer.spectrum(params)), np.linspace(0, cell.steps - 1, 50)
        values: Values = {
            "mean sign changes": float(np.mean(_sign_changes(states.real))),
            "step": ends,
            "envelope": np.exp(-cell.decay * ends),
        }
        for number in range(1, COMPONENTS + 1):
            state = states[:, number - 1]
            kept = _extremes(state.real)
            values |= {
                f"phase {number}": phases[number - 1],
                f"step {number}": kept.astype(float),
                f"state {number}": state.real[kept],
                f"sign changes {number}": _sign_changes(state.real),
                f"|state| at the end {number}": np.abs(state[-1]),
            }
        return values

    def checks(self, results: Results[Impulse]) -> list[Check]:
        checks = []
        for result in results:
            steps, where = result.cell.steps - 1, f"{self.label(result.cell)}, {result.cell.steps} steps"
            for number in range(1, COMPONENTS + 1):
                last, phase = result[f"|state| at the end {number}"], result[f"phase {number}"]
                name = f"|h| at the end, component {number}, {where}"
                # float32 parameters: nu is exact up to a share of 1e-6, of which the exponent is `steps` times as much
                checks.append(
                    identity(name, last, np.exp(-result.cell.decay * steps), 1e-5 * (1 + result.cell.decay * steps))
                )
                expected = steps * min(phase, 2 * np.pi - phase) / np.pi
                difference = abs(result[f"sign changes {number}"] - expected)
                checks.append(below(f"sign changes minus the formula, component {number}, {where}", difference, 1.0))
            mean, deviation = mean_changes(result.cell.phase)
            stderr = steps * deviation / np.sqrt(SAMPLED)
            checks.append(sampling(f"mean sign changes, {where}", result["mean sign changes"], steps * mean, stderr))
        return checks

    def answer(self, results: Results[Impulse]) -> str:
        parts = []
        for phase in results.axis("phase"):
            counts = [
                f"{result['mean sign changes']:.0f} in {result.cell.steps} steps"
                for result in results.where(phase=phase)
            ]
            parts.append(f"with phases up to {phase:g}π {' and '.join(counts)}")
        many = [
            result["mean sign changes"] for result in results.where(steps=1024) if result["mean sign changes"] > 100
        ]
        tail = (
            f" {max(many):.0f} in 1,024 steps are not the few recurrences of which the caption speaks." if many else ""
        )
        return f"Mean number of sign changes: {'; '.join(parts)}.{tail}"

    def draw(self, results: Results[Impulse]) -> Figure:
        panels = []
        for result in results:
            curves = [
                thin(f"component {n}", result.curves[f"step {n}"], result.curves[f"state {n}"])
                for n in range(1, COMPONENTS + 1)
            ]
            curves.append(dashed("$|h|$", result.curves["step"], result.curves["envelope"]))
            title = f"phases up to ${result.cell.phase:g}π$"
            panels.append(Panel(title=title, x=f"step, of {result.cell.steps:,}", y="Re $h$", curves=tuple(curves)))
        return Figure(panels=tuple(panels), columns=len(results.axis("steps")))


def _sign_changes(values: Array) -> Array:
    """The number of sign changes along the first axis."""
    return np.count_nonzero(np.diff(np.signbit(values), axis=0), axis=0)


def _extremes(values: Array) -> Array:
    """Indices of the smallest and of the largest value in each part, in order."""
    kept = []
    for part in np.array_split(np.arange(len(values)), PARTS):
        kept += sorted({part[np.argmin(values[part])], part[np.argmax(values[part])]})
    return np.array(kept)


STUDY = ImpulseStudy()

"""`impulse`: how often the states of a diagonal layer oscillate after one input."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import Figure, Panel, dashed, thin
from lrurun.studies.checks import Check, above, below, identity, sampling
from lrurun.studies.study import Array, Results, Settings, Study, Values

COMPONENTS = 3
"""The number of components in the figure."""
SAMPLED = 200
"""Phases for the mean number of sign changes; the first ones are those of the figure."""
MANY, FEW = {(2.0, 1024): 100}, {(0.02, 16384): 1000}
"""(Phase, steps) -> the mean number of sign changes above which they are not a few, and below which they are [ours]: a
few are far from 100, and 1,000 in 16,384 steps are an eighth of those on the whole circle."""
PARTS = 512
"""The figure has the smallest and the largest state of so many parts of the sequence, which looks like all of them."""

GRID = {"phase": [2.0, 0.02], "steps": [16384, 1024]}


class Impulse(Settings, frozen=True, kw_only=True):
    """One range of initial phases, and one length of the sequence."""

    phase: Annotated[float, Meta(gt=0, le=2)] = 2.0
    """Largest phase in units of π; the smallest is 0."""
    steps: Annotated[int, Meta(ge=PARTS, le=10**6)] = 16384
    decay: Annotated[float, Meta(ge=0, le=1)] = 5e-5
    """ν = -log |λ|, the same for all components."""


def mean_changes(phase: float) -> tuple[float, float]:
    """Mean and standard deviation of sign changes per step, for phases uniform from 0 to π · `phase`.

    cos(θ k) changes its sign min(θ, 2 π - θ) / π times in a step, on average over k.
    """
    rising, falling = min(phase, 1.0), max(phase - 1.0, 0.0)
    first = rising**2 / 2 + (1 - (1 - falling) ** 2) / 2
    second = rising**3 / 3 + (1 - (1 - falling) ** 3) / 3
    mean = first / phase
    return mean, float(np.sqrt(second / phase - mean**2))


class ImpulseStudy(Study[Impulse]):
    name = "impulse"
    aliases = ("lru-fig4",)
    source = "Orvieto et al. 2023, Fig. 4"
    question = "How often does a state oscillate over a long sequence, and how often with a small initial phase?"
    published = (
        "With phases up to 2π the states oscillate so fast over 16k steps that they fill a band; up to π/50 they make "
        "slow waves. The caption calls the number acceptable for 1,024 steps: an input comes back only a few times."
    )
    settings = Impulse
    profiles = {"ci": GRID, "laptop": GRID, "paper": GRID}

    def label(self, cell: Impulse) -> str:
        return f"phase={cell.phase:g}pi"

    def simulate(self, cell: Impulse, seed: int) -> Values:
        phases = np.pi * cell.phase * np.random.default_rng(seed).random(SAMPLED)
        changes = [_changes(np.cos(phase * np.arange(cell.steps))) for phase in phases]
        ends = np.linspace(0, cell.steps - 1, 50)
        values: Values = {
            "mean sign changes": float(np.mean(changes)),
            "step": ends,
            "envelope": np.exp(-cell.decay * ends),
        }
        for number, phase in enumerate(phases[:COMPONENTS], 1):
            factors = np.full(cell.steps, np.exp(-cell.decay + 1j * phase))
            factors[0] = 1.0
            state = np.cumprod(factors)
            kept = _extremes(state.real)
            values |= {
                f"phase {number}": phase,
                f"step {number}": kept.astype(float),
                f"state {number}": state.real[kept],
                f"sign changes {number}": _changes(state.real),
                f"|state| at the end {number}": np.abs(state[-1]),
            }
        return values

    def checks(self, results: Results[Impulse]) -> list[Check]:
        checks = []
        for result in results:
            steps, where = result.cell.steps - 1, f"{self.label(result.cell)}, {result.cell.steps} steps"
            for number in range(1, COMPONENTS + 1):
                last, phase = result[f"|state| at the end {number}"], result[f"phase {number}"]
                checks.append(
                    identity(f"|h| at the end, component {number}, {where}", last, np.exp(-result.cell.decay * steps))
                )
                expected = steps * min(phase, 2 * np.pi - phase) / np.pi
                difference = abs(result[f"sign changes {number}"] - expected)
                checks.append(below(f"sign changes minus the formula, component {number}, {where}", difference, 1.0))
            mean, deviation = mean_changes(result.cell.phase)
            stderr = steps * deviation / np.sqrt(SAMPLED)
            measured, setting = result["mean sign changes"], (result.cell.phase, result.cell.steps)
            checks.append(sampling(f"mean sign changes, {where}", measured, steps * mean, stderr))
            if setting in MANY:
                checks.append(above(f"sign changes are many, {where}", measured, MANY[setting]))
            if setting in FEW:
                checks.append(below(f"sign changes are few, {where}", measured, FEW[setting]))
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


def _changes(values: Array) -> int:
    return int(np.count_nonzero(np.diff(np.signbit(values))))


def _extremes(values: Array) -> Array:
    """Indices of the smallest and of the largest value in each part, in order."""
    kept = []
    for part in np.array_split(np.arange(len(values)), PARTS):
        kept += sorted({part[np.argmin(values[part])], part[np.argmax(values[part])]})
    return np.array(kept)


STUDY = ImpulseStudy()

"""`leak`: the frequencies that a ReLU creates, by the spectrum of its gate."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import Figure, Panel, line, points
from lrurun.studies.machinery.checks import Check, identity
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, threshold, together
from lrurun.studies.machinery.study import Array, Results, Settings, Study, Values

FREQUENCY = 3.0
"""The frequency of the pulse exp(-t² / 2) cos(3 t), in radians per unit of time."""
WHERE = np.array([0.0, 1.0, 3.0, 4.5, 6.0])
"""Angular frequencies at which the two computations are compared."""
SHOWN = np.linspace(0.0, 12.0, 97)
PERIODS = 8
"""The number of periods of the sine in its sequence."""


class Leak(Settings, frozen=True, kw_only=True):
    """One signal: a pulse in continuous time, or a sampled sine."""

    signal: Literal["pulse", "sine"] = "pulse"
    samples: Annotated[int, Meta(ge=256, le=65536, multiple_of=64)] = 4096


def pulse(time: Array) -> Array:
    return np.asarray(np.exp(-(time**2) / 2) * np.cos(FREQUENCY * time))


def pulse_spectrum(w: Array) -> Array:
    """The integral of the pulse times exp(-i w t), which is real."""
    return np.sqrt(np.pi / 2) * (np.exp(-((w - FREQUENCY) ** 2) / 2) + np.exp(-((w + FREQUENCY) ** 2) / 2))


def intervals() -> tuple[Array, float]:
    """Centres p_i and half length L of the intervals in which the pulse is positive, where it is not negligible."""
    return 2 * np.pi / FREQUENCY * np.arange(-7, 8), np.pi / (2 * FREQUENCY)


def direct(w: Array) -> Array:
    """The spectrum of the rectified pulse: Gauss-Legendre quadrature over each interval."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    centres, half = intervals()
    time = (centres[:, None] + half * nodes).ravel()
    return np.asarray(np.cos(np.outer(w, time)) @ (pulse(time) * np.tile(half * weights, len(centres))))


def convolved(w: Array) -> Array:
    """The spectrum of the rectified pulse by Prop. 4: the convolution of the spectra of pulse and gate, times 1 / (2
    π)."""
    centres, half = intervals()
    spectrum = []
    for frequency in w:
        v = np.linspace(frequency - 16, frequency + 16, 6401)
        gate = 2 * half * np.sinc(v * half / np.pi) * np.cos(np.outer(centres, v)).sum(0)
        spectrum.append(np.sum(pulse_spectrum(frequency - v) * gate) * (v[1] - v[0]) / (2 * np.pi))
    return np.array(spectrum)


def _leakage(results: Results[Leak]) -> Evidence | None:
    """Evidence that a noticeable share of the energy is at higher frequencies; 5 % and 1 % are ours."""
    name = "share of the energy of the rectified sine above its frequency"
    shares = [result["share at higher frequencies"] for result in results.where(signal="sine")]
    return together(*(threshold(name, share, supported=0.05, contradicted=0.01) for share in shares))


class LeakStudy(Study[Leak]):
    name = "leak"
    aliases = ("lru-fig6",)
    source = "Orvieto et al. 2023, Fig. 6"
    question = "Which frequencies does a ReLU add to a signal?"
    published = "The spectrum of the rectified signal has peaks at frequencies that the signal does not have."
    claims = (
        StudyClaim(
            text="A ReLU leaks a signal to higher frequencies",
            source="Orvieto et al. 2023, appendix E.1.1, Fig. 6",
            evidence=_leakage,
        ),
    )
    version = 2
    settings = Leak
    seeded = False
    profiles = {key: {"signal": ["pulse", "sine"]} for key in ("ci", "laptop", "paper")}

    def label(self, cell: Leak) -> str:
        return cell.signal

    def simulate(self, cell: Leak, seed: int) -> Values:
        if cell.signal == "pulse":
            time = np.linspace(-5, 5, 201)
            values: Values = {"time": time, "signal": pulse(time), "rectified": np.maximum(pulse(time), 0)}
            values |= {"frequency": SHOWN, "signal spectrum": pulse_spectrum(SHOWN)}
            values |= {"rectified spectrum": direct(SHOWN), "product rule": convolved(SHOWN)}
            return values | {"direct": direct(WHERE), "convolved": convolved(WHERE)}
        n = cell.samples
        time = np.arange(n) / n
        signal = np.sin(2 * np.pi * PERIODS * time)
        gate = (signal > 0).astype(float)
        before, after = np.fft.fft(signal) / n, np.fft.fft(signal * gate) / n
        # The circular convolution as a sum over the two frequencies that the signal has.
        gates = np.fft.fft(gate) / n
        rule = before[PERIODS] * np.roll(gates, PERIODS) + before[-PERIODS] * np.roll(gates, -PERIODS)
        energy = np.abs(after[1 : n // 2]) ** 2
        count = 5 * PERIODS
        return {
            "time": time[: n // 4],
            "signal": signal[: n // 4],
            "rectified": (signal * gate)[: n // 4],
            "frequency": np.arange(count) / PERIODS,
            "signal spectrum": np.abs(before[:count]),
            "rectified spectrum": np.abs(after[:count]),
            "product rule": np.abs(rule[:count]),
            "largest error of the rule": np.max(np.abs(rule - after)) / np.max(np.abs(after)),
            "share at other frequencies": 1 - energy[PERIODS - 1] / energy.sum(),
            "share at higher frequencies": 2 * energy[PERIODS:].sum() / np.sum(np.abs(after) ** 2),
        }

    def checks(self, results: Results[Leak]) -> list[Check]:
        checks = []
        for result in results.where(signal="pulse"):
            for w, by_rule, exact in zip(WHERE, result.curves["convolved"], result.curves["direct"], strict=True):
                checks.append(identity(f"rectified pulse at ω={w:g}", by_rule, exact))
        for result in results.where(signal="sine"):
            error = result["largest error of the rule"]
            checks.append(identity("DFT of the rectified sine by the product rule, error", error, 0.0, 1e-12))
            close = 100 * (PERIODS / result.cell.samples) ** 2  # Aliases of a series whose terms fall as n**-2.
            for n, exact in enumerate((1 / np.pi, 1 / 4, 1 / (3 * np.pi), 0.0, 1 / (15 * np.pi))):
                measured = result.curves["rectified spectrum"][n * PERIODS]
                checks.append(identity(f"rectified sine, coefficient {n} of its series", measured, exact, close))
            share = 1 - (1 / 8) / (1 / 4 - 1 / np.pi**2)
            checks.append(identity("share at other frequencies", result["share at other frequencies"], share, close))
            higher = 1 / 2 - 4 / np.pi**2
            checks.append(identity("share at higher ones", result["share at higher frequencies"], higher, close))
        return checks

    def answer(self, results: Results[Leak]) -> str:
        sentences = [
            f"Of the variance of a rectified sine, {100 * result['share at other frequencies']:.2f} % is at other "
            f"frequencies; of its energy, {100 * result['share at higher frequencies']:.2f} % is at higher ones."
            for result in results.where(signal="sine")
        ]
        for result in results.where(signal="pulse"):
            ratio = result.curves["convolved"][0] / result.curves["direct"][0]
            sentences.append(
                f"For the pulse at ω = 0, the convolution of Prop. 4 over the integral is {2 * np.pi * ratio:.4g} as "
                f"printed, and {ratio:.4g} with the factor 1 / (2π), which the paper leaves out."
            )
        return " ".join(sentences)

    def draw(self, results: Results[Leak]) -> Figure:
        panels = []
        for result in results:
            curves = result.curves
            unit = "angular frequency $ω$" if result.cell.signal == "pulse" else "frequency (sine: 1)"
            time = tuple(line(name, curves["time"], curves[name]) for name in ("signal", "rectified"))
            spectra = [line(n, curves["frequency"], curves[f"{n} spectrum"]) for n in ("signal", "rectified")]
            spectra.append(points("product rule", curves["frequency"][::PERIODS], curves["product rule"][::PERIODS]))
            panels.append(Panel(title=result.cell.signal, x="time $t$", y="$u(t)$", curves=time))
            panels.append(Panel(title="its spectrum", x=unit, y="transform", curves=tuple(spectra)))
        return Figure(panels=tuple(panels), columns=2)


STUDY = LeakStudy()

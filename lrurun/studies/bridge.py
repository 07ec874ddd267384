"""`bridge`: the steps from a dense linear network to an LRU, one by one, on a teacher with a long memory."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from lrurun.report.figures.figures import Figure, Panel, greek, grey, line, spread
from lrurun.studies import kernels
from lrurun.studies.checks import Check, above, below, larger, one_sided_p
from lrurun.studies.kernels import ARCHITECTURES, TITLES, Architecture, Multiple
from lrurun.studies.study import Count, Radius, Results, Settings, Study, Values

LADDER = list(ARCHITECTURES)
STEPS: list[tuple[Architecture, Architecture]] = [
    ("dense", "block"),
    ("block", "block-64"),
    ("block", "complex"),
    ("complex", "gamma"),
    ("gamma", "lru"),
]
"""Pairs that are compared: each architecture with the one that it changes."""
HIGHER: list[tuple[Architecture, Architecture]] = [("dense", "block"), ("dense", "complex")]
"""Pairs with a higher loss of the first."""
SLOWER: list[tuple[Architecture, Architecture]] = [("complex", "gamma"), ("lru", "gamma")]
"""Pairs whose difference 1,500 updates do not show reliably."""


class Bridge(Settings, frozen=True, kw_only=True):
    """One training of a student."""

    architecture: Architecture = "lru"
    nu: Radius = 0.99
    """The absolute values of the teacher's eigenvalues are between this and 1."""
    rate: Multiple = 10.0
    """The learning rate, as a multiple of the lowest of the architecture's grid."""
    updates: Count = 1500


class BridgeStudy(Study[Bridge]):
    name = "bridge"
    aliases = ("zucchet-fig3b",)
    source = "Zucchet and Orvieto 2024, Fig. 3B"
    question = "Which step from a dense linear RNN to the LRU lowers the loss: blocks, width, complex numbers, γ, exp?"
    published = (
        "The loss falls at each step, except for more neurons; the caption finds the largest step in the "
        "2 × 2 blocks, the text in the complex numbers."
    )
    settings = Bridge
    profiles = {
        "ci": {"architecture": ["block", "gamma"], "updates": 50},
        "laptop": {"architecture": LADDER, "rate": kernels.GRID},
        "paper": {"architecture": LADDER, "rate": kernels.GRID, "updates": 10_000},
    }
    seeds = {"laptop": 10, "paper": 10}
    simulates = True
    stand_in = {
        "ci": "50 updates stand in for 10,000, which only checks the computation.",
        "laptop": "1,500 updates stand in for 10,000, to take minutes.",
    }

    def label(self, cell: Bridge) -> str:
        return cell.architecture

    def steps(self, cell: Bridge) -> int:
        return cell.updates

    def simulate(self, cell: Bridge, seed: int) -> Generator[int, None, Values]:
        lr = kernels.LOWEST[cell.architecture] * cell.rate
        trained = yield from kernels.train(cell.architecture, cell.nu, lr, seed, updates=cell.updates)
        return trained.values

    def checks(self, results: Results[Bridge]) -> list[Check]:
        checks = kernels.start_checks(results)
        if results.profile == "ci":
            return checks
        for nu in results.axis("nu"):
            for high, low in (*HIGHER, *(SLOWER if results.profile == "paper" else ())):
                if {high, low} <= set(results.axis("architecture")):
                    ratios = kernels.ratios(*(kernels.by_seed(results, name, nu=nu) for name in (high, low)))
                    checks.append(larger(f"{high} > {low}, nu={nu:g}", ratios, [1.0] * len(ratios)))
            blocks, complex_ = (list(kernels.by_seed(results, name, nu=nu).values()) for name in ("block", "complex"))
            if blocks and complex_:  # a few slow seeds of the blocks decide the mean
                name = "block over complex, ratio of"
                checks.append(above(f"{name} means, nu={nu:g}", float(np.mean(blocks) / np.mean(complex_)), 1.0))
                checks.append(below(f"{name} medians, nu={nu:g}", float(np.median(blocks) / np.median(complex_)), 1.0))
        return checks

    def answer(self, results: Results[Bridge]) -> str:
        parts = []
        for nu in results.axis("nu"):
            losses = {name: kernels.by_seed(results, name, nu=nu) for name in results.axis("architecture")}
            parts.append(
                f"At ν = {nu:g} and the best rate, mean (median): "
                + ", ".join(f"{TITLES[name]} {kernels.centre(by_seed)}" for name, by_seed in losses.items())
            )
            ratios = [
                f"{TITLES[before]} / {TITLES[after]} {_compared(losses[before], losses[after])}"
                for before, after in STEPS
                if losses.get(before) and losses.get(after)
            ]
            if ratios:
                parts.append(f"geometric mean of ratios (seeds above 1, p): {', '.join(ratios)}")
        return f"{'; '.join(parts)}."

    def draw(self, results: Results[Bridge]) -> Figure:
        nu = results.axis("nu")[-1]
        courses, ends, means = [], [], {}
        for number, name in enumerate(results.axis("architecture"), 1):
            cells = results.where(architecture=name, nu=nu).best("rate", "loss")
            if not cells:
                continue
            middle = np.median([cell.curves["losses"] for cell in cells], axis=0)
            title = greek(TITLES[name])
            courses.append(line(title, cells[0].curves["update"], middle))
            losses = list(cells.by_seed("loss").values())
            ends.append(spread(title, {number: losses}))
            means[number] = np.mean(losses)
        ends.append(grey("mean", means, means.values()))
        names = tuple((number, greek(TITLES[name])) for number, name in enumerate(results.axis("architecture"), 1))
        return Figure(
            panels=(
                Panel(x="update", y="loss, median", curves=tuple(courses), y_scale="log"),
                Panel(
                    x="student", y="loss at the end: median, range", curves=tuple(ends), y_scale="log", x_ticks=names
                ),
            )
        )


def _compared(first: dict[int, float], second: dict[int, float]) -> str:
    """The ratio of two losses, as "3.1 (8 of 10, 0.02)"."""
    logs = list(np.log(kernels.ratios(first, second)))
    higher = sum(log > 0 for log in logs)
    return f"{np.exp(np.mean(logs)):.2g} ({higher} of {len(logs)}, {one_sided_p(logs):.2g})"


STUDY = BridgeStudy()

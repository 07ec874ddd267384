"""`bridge`: the steps from a dense linear network to an LRU, one by one, on a teacher with a long memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator

import numpy as np

from lrurun.report.figures.figures import Figure, Panel, greek, grey, line, spread
from lrurun.studies.machinery.checks import Check, one_sided_p
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, equivalent, positive, together
from lrurun.studies.machinery.study import Count, Rate, Results, Settings, Study, Values
from lrurun.studies.mathematics import kernels
from lrurun.studies.mathematics.kernels import ARCHITECTURES, PUBLISHED, REDUCED, TITLES, Architecture, Initial, Nu

LADDER = list(ARCHITECTURES)
STEPS: list[tuple[Architecture, Architecture]] = [
    ("dense", "block"),
    ("block", "block-64"),
    ("block", "complex"),
    ("block-64", "complex"),
    ("complex", "gamma"),
    ("gamma", "lru"),
]
"""Pairs that are compared: each architecture with the one that it changes."""
FACTOR = 3.0
"""[ours] Losses within this factor of each other count as equal."""


class Bridge(Settings, frozen=True, kw_only=True):
    """One training of a student."""

    architecture: Architecture = "lru"
    nu: Nu = 0.99
    """The absolute values of the teacher's eigenvalues are between this and 1."""
    lr: Rate = 3.16e-3
    """The learning rate: of a grid, each architecture has its own part."""
    initial: Initial = "zero"
    """The lower bound of the initial |λ| of a real student: 0, or the teacher's."""
    updates: Count = 1500


def _logs(results: Results[Bridge], nu: float, first: Architecture, second: Architecture) -> list[float] | None:
    """The logarithms of the ratio of two losses, of each seed; None without one of the architectures."""
    if not {first, second} <= set(results.axis("architecture")):
        return None
    losses = (kernels.by_seed(results, name, nu=nu) for name in (first, second))
    return [math.log(ratio) for ratio in kernels.ratios(*losses)]


def _lowers(
    before: Architecture, after: Architecture, profile: str = "laptop"
) -> Callable[[Results[Bridge]], Evidence | None]:
    """Evidence that a step lowers the loss; at a smaller scale than `profile` there is none."""

    def evidence(results: Results[Bridge]) -> Evidence | None:
        if profile == "paper" and results.profile != "paper":
            return None
        parts = []
        for nu in results.axis("nu"):
            if (logs := _logs(results, nu, before, after)) is not None:
                parts.append(positive(f"log of {TITLES[before]} / {TITLES[after]}, ν = {nu:g}", logs))
        return together(*parts)

    return evidence


def _neurons(results: Results[Bridge]) -> Evidence | None:
    parts = []
    for nu in results.axis("nu"):
        if (logs := _logs(results, nu, "block", "block-64")) is not None:
            parts.append(equivalent(f"log of blocks / 64 blocks, ν = {nu:g}", logs, math.log(FACTOR)))
    return together(*parts)


def _most(results: Results[Bridge]) -> Evidence | None:
    parts = []
    for nu in results.axis("nu"):
        blocks, complex_ = _logs(results, nu, "dense", "block"), _logs(results, nu, "block-64", "complex")
        if blocks is not None and complex_ is not None and len(blocks) == len(complex_):
            differences = [second - first for first, second in zip(blocks, complex_, strict=True)]
            parts.append(positive(f"log of 64 blocks / complex less that of dense / blocks, ν = {nu:g}", differences))
    return together(*parts)


class BridgeStudy(Study[Bridge]):
    name = "bridge"
    aliases = ("zucchet-fig3b",)
    source = "Zucchet and Orvieto 2024, Fig. 3B"
    question = "Which step from a dense linear RNN to the LRU lowers the loss: blocks, width, complex numbers, γ, exp?"
    published = (
        "The loss falls at each step, except for more neurons; the caption finds the largest step in the "
        "2 × 2 blocks, the text in the complex numbers."
    )
    claims = (
        StudyClaim(
            text="A block-diagonal matrix of 2 x 2 blocks lowers the loss of the dense linear RNN",
            source="Zucchet and Orvieto 2024, caption of Fig. 3B",
            evidence=_lowers("dense", "block"),
        ),
        StudyClaim(
            text="Complex diagonal matrices have a lower loss than dense ones",
            source="Zucchet and Orvieto 2024, section 4.2, Fig. 3B",
            evidence=_lowers("dense", "complex"),
        ),
        StudyClaim(
            text="More neurons do not explain the gap",
            source="Zucchet and Orvieto 2024, section 4.2, Fig. 3B; the margin is ours",
            evidence=_neurons,
        ),
        StudyClaim(
            text="Complex numbers in place of the blocks lower the loss further",
            source="Zucchet and Orvieto 2024, section 4.2, caption of Fig. 3B",
            evidence=_lowers("block-64", "complex"),
        ),
        StudyClaim(
            text="Most of the gap comes from the complex numbers, not from the blocks",
            source="Zucchet and Orvieto 2024, section 4.2",
            evidence=_most,
        ),
        StudyClaim(
            text="The normalisation by gamma lowers the loss of the complex diagonal RNN",
            source="Zucchet and Orvieto 2024, Fig. 3B",
            evidence=_lowers("complex", "gamma", "paper"),
            profile="paper",  # 1,500 updates do not show it reliably, nor the next one
        ),
        StudyClaim(
            text="The exponential parametrisation lowers the loss further",
            source="Zucchet and Orvieto 2024, Fig. 3B",
            evidence=_lowers("gamma", "lru", "paper"),
            profile="paper",
        ),
    )
    version = 2
    settings = Bridge
    profiles = {
        "ci": {"architecture": ["block", "gamma"], "updates": 50},
        "laptop": {"architecture": LADDER, "lr": kernels.union(REDUCED)},
        "paper": {
            "architecture": LADDER,
            "lr": kernels.union(PUBLISHED),
            "initial": ["zero", "teacher"],
            "updates": 10_000,
        },
    }
    seeds = {"laptop": 10, "paper": 10}
    simulates = True
    stand_in = {
        "ci": "50 updates stand in for 10,000, which only checks the computation.",
        "laptop": "1,500 updates, 4 rates and initial |λ| of real students from 0 stand in for 10,000, 5 to 6, and "
        "from 0 or ν, which take hours.",
    }

    def label(self, cell: Bridge) -> str:
        return cell.architecture

    def has(self, cell: Bridge) -> bool:
        return kernels.tried(cell.architecture, cell.lr, cell.initial, PUBLISHED)

    def steps(self, cell: Bridge) -> int:
        return cell.updates

    def simulate(self, cell: Bridge, seed: int) -> Generator[int, None, Values]:
        trained = yield from kernels.train(
            cell.architecture, cell.nu, cell.lr, seed, updates=cell.updates, initial=cell.initial
        )
        return trained.values

    def checks(self, results: Results[Bridge]) -> list[Check]:
        return kernels.start_checks(results)

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
            cells = kernels.best(results, name, nu=nu)
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

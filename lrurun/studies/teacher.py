"""`teacher`: a dense linear network and an LRU learn teachers of growing memory."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from lrurun.report.figures.figures import Curve, Figure, dashed, greek, line, log_log, spread
from lrurun.studies.machinery.checks import Check
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, larger, positive
from lrurun.studies.machinery.study import Count, Rate, Results, Settings, Study, Values
from lrurun.studies.mathematics import kernels
from lrurun.studies.mathematics.kernels import PUBLISHED, REDUCED, Architecture, Initial, Nu

PAIR: list[Architecture] = ["dense", "lru"]


class Teacher(Settings, frozen=True, kw_only=True):
    """One training of a student."""

    architecture: Architecture = "lru"
    nu: Nu = 0.99
    """The absolute values of the teacher's eigenvalues are between this and 1."""
    lr: Rate = 3.16e-3
    """The learning rate: of a grid, each architecture has its own part."""
    initial: Initial = "zero"
    """The lower bound of the initial |λ| of a real student: 0, or the teacher's."""
    updates: Count = 1500


def _growth(results: Results[Teacher]) -> Evidence | None:
    if len(results.axis("nu")) < 2 or not set(PAIR) <= set(results.axis("architecture")):
        return None
    return positive("slope of log(dense / LRU) on log(1 / (1 - ν))", _slopes(results))


def _longest(results: Results[Teacher]) -> Evidence | None:
    if not set(PAIR) <= set(results.axis("architecture")) or (nu := max(results.axis("nu"))) < 0.9:
        return None
    return larger(f"dense / LRU at ν = {nu:g}", *kernels.pairs(*(kernels.by_seed(results, x, nu=nu) for x in PAIR)))


class TeacherStudy(Study[Teacher]):
    name = "teacher"
    aliases = ("zucchet-fig3a",)
    source = "Zucchet and Orvieto 2024, Fig. 3A"
    question = "Does a dense linear RNN fall behind the LRU as the memory of its teacher grows?"
    published = (
        "The loss of the RNN rises by many orders of magnitude as ν approaches 1, that of the LRU far less; "
        "at small ν they are equal."
    )
    claims = (
        StudyClaim(
            text="LRUs outperform dense linear RNNs the more, the longer the memory of the teacher is",
            source="Zucchet and Orvieto 2024, section 4.2, Fig. 3A",
            evidence=_growth,
        ),
        StudyClaim(
            text="An LRU with a tenth of the parameters outperforms a dense linear RNN at the longest memory",
            source="Zucchet and Orvieto 2024, section 4.2, Fig. 3A",
            evidence=_longest,
        ),
    )
    version = 2
    settings = Teacher
    profiles = {
        "ci": {"architecture": PAIR, "nu": 0.84, "updates": 50},
        "laptop": {"architecture": PAIR, "nu": [0.32, 0.84, 0.96, 0.99], "lr": kernels.union(REDUCED)},
        "paper": {
            "architecture": PAIR,
            "nu": [0.32, 0.68, 0.84, 0.92, 0.96, 0.98, 0.99],
            "lr": kernels.union(PUBLISHED),
            "initial": ["zero", "teacher"],
            "updates": 10_000,
        },
    }
    seeds = {"laptop": 5, "paper": 10}
    simulates = True
    stand_in = {
        "ci": "50 updates stand in for 10,000, which only checks the computation.",
        "laptop": "1,500 updates, 4 values of ν, 4 rates, initial |λ| of the RNN from 0 and 5 seeds stand in for "
        "10,000, 7, 5 to 6, from 0 or ν, and 10, which take hours.",
    }

    def label(self, cell: Teacher) -> str:
        return cell.architecture

    def has(self, cell: Teacher) -> bool:
        return kernels.tried(cell.architecture, cell.lr, cell.initial, PUBLISHED)

    def steps(self, cell: Teacher) -> int:
        return cell.updates

    def simulate(self, cell: Teacher, seed: int) -> Generator[int, None, Values]:
        trained = yield from kernels.train(
            cell.architecture, cell.nu, cell.lr, seed, updates=cell.updates, initial=cell.initial
        )
        return trained.values

    def checks(self, results: Results[Teacher]) -> list[Check]:
        return kernels.start_checks(results)

    def answer(self, results: Results[Teacher]) -> str:
        parts = []
        for nu in results.axis("nu"):
            losses = {name: kernels.by_seed(results, name, nu=nu) for name in results.axis("architecture")}
            listed = ", ".join(f"{kernels.TITLES[name]} {kernels.centre(by_seed)}" for name, by_seed in losses.items())
            parts.append(f"ν = {nu:g}: {listed}")
        return f"Loss at the best rate, mean (median): {'; '.join(parts)}."

    def draw(self, results: Results[Teacher]) -> Figure:
        curves: list[Curve] = []
        for name in results.axis("architecture"):
            title = greek(kernels.TITLES[name])
            losses_of = {nu: kernels.by_seed(results, name, nu=nu) for nu in results.axis("nu")}
            losses_of = {nu: losses for nu, losses in losses_of.items() if losses}
            memory = [1 / (1 - nu) for nu in losses_of]
            seeds = [list(losses.values()) for losses in losses_of.values()]
            curves.append(line(title, memory, map(np.mean, seeds)))
            curves.append(spread(title, dict(zip(memory, seeds, strict=True))))
        means = [np.mean([result["baseline"] for result in results.where(nu=nu)]) for nu in results.axis("nu")]
        curves.append(dashed("output 0", [1 / (1 - nu) for nu in results.axis("nu")], means))
        return Figure(panels=(log_log("memory of the teacher, $1 / (1 - ν)$", "loss: mean, median, range", curves),))


def _slopes(results: Results[Teacher]) -> list[float]:
    """The slope of log(dense / LRU) on log(1 / (1 - nu)) for each seed; one NaN where a cell diverged at each rate."""
    memory = [-np.log1p(-nu) for nu in results.axis("nu")]
    logs = []
    for nu in results.axis("nu"):
        dense, lru = (kernels.by_seed(results, name, nu=nu) for name in PAIR)
        logs.append(np.log(kernels.ratios(dense, lru)))
    if len({len(values) for values in logs}) > 1:
        return [np.nan]
    return [float(slope) for slope in np.polyfit(memory, np.array(logs), 1)[0]]


STUDY = TeacherStudy()

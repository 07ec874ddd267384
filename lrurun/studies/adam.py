"""`adam`: the size of the step that Adam takes in each parameter of a linear network."""

from __future__ import annotations

from collections.abc import Callable, Generator

import numpy as np

from lrurun.report.figures.figures import Curve, Figure, Panel, greek, line, points
from lrurun.studies.machinery.checks import Check, identity, nan_last
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, larger, together
from lrurun.studies.machinery.study import Count, Rate, Results, Settings, Study, Values
from lrurun.studies.mathematics import kernels
from lrurun.studies.mathematics.kernels import TITLES, Architecture, Nu

SHARES = np.linspace(0, 1, 41)
"""Shares of the parameters of a group. A curve shows the largest step of each share."""
COMPARED: list[Architecture] = ["dense", "block", "complex", "lru"]
NAMES = {
    "lam_re": "Re λ",
    "lam_im": "Im λ",
    "nu_log": "ν",
    "theta_log": "θ",
    "gamma_log": "γ",
    "B_re": "Re B",
    "B_im": "Im B",
    "C_re": "Re C",
    "C_im": "Im C",
}
Group = tuple[Architecture, str]
"""A group of parameters of an architecture."""


class Adam(Settings, frozen=True, kw_only=True):
    """One training of a student at a constant rate."""

    architecture: Architecture = "lru"
    nu: Nu = 0.99
    lr: Rate = 1e-3
    updates: Count = 4000


def _larger(*pairs: tuple[Group, Group]) -> Callable[[Results[Adam]], Evidence | None]:
    """Evidence that the median step of the first group of each pair is larger than the second's."""

    def evidence(results: Results[Adam]) -> Evidence | None:
        parts = []
        for pair in pairs:
            steps = [_finished(results, name).by_seed(f"{group} median") for name, group in pair]
            if all(steps):
                text = " / ".join(f"{TITLES[name]} {group}" for name, group in pair)
                parts.append(larger(f"step of {text}", *kernels.pairs(*steps)))
        return together(*parts)

    return evidence


class AdamStudy(Study[Adam]):
    name = "adam"
    aliases = ("zucchet-fig4cd",)
    source = "Zucchet and Orvieto 2024, Fig. 4C, 4D and 9"
    question = "How large are Adam's steps per gradient in each parameter, at the end of training?"
    published = (
        "In the recurrent matrix of the dense RNN they are between 1e-4 and 1e-10; in the complex diagonal RNN and the "
        "LRU near the learning rate of 1e-3, the lowest ones in the LRU's angles."
    )
    claims = (
        StudyClaim(
            text="Adam takes larger steps in the complex diagonal RNN than in the dense one",
            source="Zucchet and Orvieto 2024, section 4.3, Figs. 4C and 4D",
            evidence=_larger(*((("complex", f"lam_{part}"), ("dense", "A")) for part in ("re", "im"))),
        ),
        StudyClaim(
            text="In the LRU, Adam takes smaller steps in the angles than in the absolute values",
            source="Zucchet and Orvieto 2024, appendix B.4, Fig. 9",
            evidence=_larger((("lru", "nu_log"), ("lru", "theta_log"))),
        ),
    )
    version = 2
    settings = Adam
    profiles = {
        "ci": {"architecture": ["lru"], "updates": 50},
        "laptop": {"architecture": COMPARED},
        "paper": {"architecture": COMPARED, "updates": 10_000},
    }
    seeds = {"laptop": 5, "paper": 5}
    simulates = True
    stand_in = {
        "ci": "50 updates stand in for 10,000, which only checks the computation.",
        "laptop": "4,000 updates stand in for 10,000.",
    }

    def label(self, cell: Adam) -> str:
        return cell.architecture

    def steps(self, cell: Adam) -> int:
        return cell.updates

    def simulate(self, cell: Adam, seed: int) -> Generator[int, None, Values]:
        trained = yield from kernels.train(
            cell.architecture, cell.nu, cell.lr, seed, updates=cell.updates, cosine=False
        )
        steps, published, error = kernels.effective(trained, cell.lr, cell.updates)
        values: Values = {**trained.values, "formula error": error, "share": SHARES}
        for name, taken in steps.items():
            values |= {f"{name} median": float(np.median(taken)), f"{name} steps": np.quantile(taken, SHARES)}
            sizes = np.abs(published[name])
            values |= {f"{name} published median": float(np.median(sizes))}
            values |= {f"{name} published": np.quantile(sizes, SHARES)}
            values |= {f"{name} negative": float(np.mean(published[name] < 0))}
        return values

    def checks(self, results: Results[Adam]) -> list[Check]:
        checks = kernels.start_checks(results)
        for name in results.axis("architecture"):
            if cells := results.where(lambda result: np.isfinite(result["loss"]), architecture=name):
                error = max((cell["formula error"] for cell in cells), key=nan_last)
                checks.append(identity(f"{name}: published step by Adam's formula, relative error", error, 0.0, 1e-9))
        return checks

    def answer(self, results: Results[Adam]) -> str:
        parts = []
        for name in results.axis("architecture"):
            cells = _finished(results, name)
            if not cells:
                continue
            groups = [key.removesuffix(" steps") for key in cells[0].curves if key.endswith(" steps")]
            listed = ", ".join(
                f"{NAMES.get(group, group)} {_middle(cells, f'{group} median'):.2g}"
                f" ({_middle(cells, f'{group} published median'):.2g})"
                for group in groups
            )
            parts.append(f"{TITLES[name]}: {listed}")
        if not parts:
            return "All trainings diverged."
        return f"Median steps per gradient, beside the published measure: {'; '.join(parts)}."

    def draw(self, results: Results[Adam]) -> Figure:
        panels = []
        for name in results.axis("architecture"):
            cells, curves = _finished(results, name), []
            for key in cells[0].curves if cells else ():
                group, _, measure = key.rpartition(" ")
                if measure in ("steps", "published") and group not in ("D", "B_im", "C_im"):
                    curves.append(_curve(group, measure, cells))
            panels.append(
                Panel(
                    title=greek(TITLES[name]),
                    x="share of parameters",
                    y="step; points: published",
                    curves=tuple(curves),
                    y_scale="log",
                )
            )
        return Figure(panels=tuple(panels), columns=2, same_y=True)


def _finished(results: Results[Adam], name: str) -> Results[Adam]:
    return results.where(lambda result: not result.diverged, architecture=name)


def _middle(cells: Results[Adam], value: str) -> float:
    return float(np.median([cell[value] for cell in cells]))


def _curve(group: str, measure: str, cells: Results[Adam]) -> Curve:
    """The median over seeds of the sizes of the steps of a group; of complex weights the real parts stand for both."""
    middle = np.median([cell.curves[f"{group} {measure}"] for cell in cells], axis=0)
    label = greek(NAMES.get(group, group))
    return line(label, SHARES, middle) if measure == "steps" else points(label, SHARES[::5], middle[::5])


STUDY = AdamStudy()

"""`adam`: the size of the step that Adam takes in each parameter of a linear network."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from lrurun.report.figures.figures import Curve, Figure, Panel, greek, line, points
from lrurun.studies import kernels
from lrurun.studies.checks import Check, below, identity, larger
from lrurun.studies.kernels import TITLES, Architecture
from lrurun.studies.study import Count, Radius, Rate, Results, Settings, Study, Values

SHARES = np.linspace(0, 1, 41)
"""Shares of the parameters of a group. A curve shows the largest step of each share."""
COMPARED: list[Architecture] = ["dense", "block", "complex", "lru"]


class Adam(Settings, frozen=True, kw_only=True):
    """One training of a student at a constant rate."""

    architecture: Architecture = "lru"
    nu: Radius = 0.99
    lr: Rate = 1e-3
    updates: Count = 4000


class AdamStudy(Study[Adam]):
    name = "adam"
    aliases = ("zucchet-fig4cd",)
    source = "Zucchet and Orvieto 2024, Fig. 4C, 4D and 9"
    question = "How large are Adam's steps per gradient in each parameter, at the end of training?"
    published = (
        "In the recurrent matrix of the dense RNN they are between 1e-4 and 1e-10; in the complex diagonal RNN and the "
        "LRU near the learning rate of 1e-3, the lowest ones in the LRU's angles."
    )
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
        values["largest published"] = max(float(np.max(sizes)) for sizes in published.values())
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
            cells = _finished(results, name)
            error = max((cell["formula error"] for cell in cells), default=np.nan)
            checks.append(identity(f"{name}: published step by Adam's formula, relative error", error, 0.0, 1e-9))
            largest = max((cell["largest published"] / cell.cell.lr for cell in cells), default=np.nan)
            checks.append(below(f"{name}: largest published step over the rate", largest, kernels.LARGEST))
        names = set(results.axis("architecture"))
        if results.profile != "ci":
            for part in ("re", "im") if {"dense", "complex"} <= names else ():
                checks.append(_ten_times(results, ("complex", part), ("dense", "A")))
            if "lru" in names:
                checks.append(_ten_times(results, ("lru", "nu"), ("lru", "theta")))
        return checks

    def answer(self, results: Results[Adam]) -> str:
        parts = []
        for name in results.axis("architecture"):
            cells = _finished(results, name)
            if not cells:
                continue
            groups = [key.removesuffix(" steps") for key in cells[0].curves if key.endswith(" steps")]
            listed = ", ".join(
                f"{group} {_middle(cells, f'{group} median'):.2g} ({_middle(cells, f'{group} published median'):.2g})"
                for group in groups
            )
            parts.append(f"{TITLES[name]}: {listed}")
        return f"Median steps per gradient, beside the published measure: {'; '.join(parts)}."

    def draw(self, results: Results[Adam]) -> Figure:
        panels = []
        for name in results.axis("architecture"):
            cells, curves = _finished(results, name), []
            for key in cells[0].curves if cells else ():
                group, _, kind = key.rpartition(" ")
                if kind in ("steps", "published") and group not in ("D", "B im", "C im"):
                    curves.append(_curve(group, kind, cells))
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


def _ten_times(results: Results[Adam], first: tuple[str, str], second: tuple[str, str]) -> Check:
    """Checks that the median step of one group is more than ten times that of another; fails if a cell diverged."""
    (_, large), (_, small) = first, second
    cells = [results.where(architecture=name) for name, _ in (first, second)]
    ratios = kernels.ratios(cells[0].by_seed(f"{large} median"), cells[1].by_seed(f"{small} median"))
    return larger(f"step of {' '.join(first)} > 10 times that of {' '.join(second)}", ratios, [10.0] * len(ratios))


def _curve(group: str, kind: str, cells: Results[Adam]) -> Curve:
    """The median over seeds of the sizes of the steps of a group; of complex weights the real parts stand for both."""
    middle = np.median([cell.curves[f"{group} {kind}"] for cell in cells], axis=0)
    label = greek(group.removesuffix(" re").replace("theta", "θ").replace("nu", "ν").replace("gamma", "γ"))
    return line(label, SHARES, middle) if kind == "steps" else points(label, SHARES[::5], middle[::5])


STUDY = AdamStudy()

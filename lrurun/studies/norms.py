"""`norms`: whether the normaliser of the RotRNN keeps the norm of the hidden state at 1."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from lrurun.studies.checks import Check, below, identity, sampling
from lrurun.studies.figure import Curve, Figure, Panel, line, points
from lrurun.studies.norm_cells import CHUNK, HORIZON, SHOWN, Model, Shape, mapped, train, white
from lrurun.studies.study import Count, Radius, Rate, Results, Settings, Study, Values

TASKS = {"digits": "digits by pixel", "marked": "marked digit", "ListOps": "ListOps"}
BOTH: dict[str, Any] = {"model": ["RotRNN", "LRU"], "sequences": 20_000}
PUBLISHED = {"depth": 6, "width": 128, "state": 256, "heads": 32, "r_min": 0.5, "updates": 80_000, "lr": 1e-3}
STAND_IN = "8x8 digits by pixel and a marked digit among random ones stand in for ListOps, which needs a GPU"

Even = Annotated[int, Meta(ge=2, le=65536, multiple_of=2)]


class Norms(Settings, frozen=True, kw_only=True):
    """White input into one head, the map of a RotRNN to an LRU, or a training."""

    task: Literal["white", "map", "digits", "marked", "ListOps"] = "white"
    model: Model = "RotRNN"
    decay: Radius = 0.99
    """gamma of the head with white input."""
    sequences: Count = 2000
    """Of white input."""
    depth: Count = 4
    width: Count = 32
    state: Even = 64
    heads: Count = 8
    r_min: Radius = 0.9
    r_max: Radius = 0.999
    batch: Count = 32
    updates: Annotated[int, Meta(ge=CHUNK, le=10**8, multiple_of=CHUNK)] = 400
    lr: Rate = 3e-3

    def __post_init__(self) -> None:
        if self.state % (2 * self.heads):
            raise ValueError(f"heads must divide state into planes, found heads = {self.heads}, state = {self.state}")
        if self.r_min > self.r_max:
            raise ValueError(f"r_min must not be above r_max, found {self.r_min:g} and {self.r_max:g}")


class NormsStudy(Study[Norms]):
    name = "norms"
    aliases = ("rotrnn-fig3",)
    source = "Biegun et al. 2024, Fig. 3"
    question = "Does the RotRNN keep the norm of its hidden state constant, with white input and in training?"
    published = "On ListOps RotRNN's norms stay flat, equal over layers and seeds; the LRU's differ and keep moving."
    settings = Norms
    profiles = {
        "ci": {"task": ["white", "map"]},
        "laptop": BOTH | {"task": ["white", "map", "digits", "marked"]},
        "paper": BOTH | PUBLISHED | {"task": ["white", "map", "ListOps"]},
    }
    seeds = {"laptop": 3, "paper": 3}
    simulates = True
    stand_in = {
        "ci": "2,000 white sequences of one seed stand in for 20,000 of 3 and for all training.",
        "laptop": f"{STAND_IN}.",
    }

    def label(self, cell: Norms) -> str:
        return f"{cell.model}, {cell.task}"

    def has(self, cell: Norms) -> bool:
        return cell.model == "RotRNN" or cell.task in TASKS

    def steps(self, cell: Norms) -> int:
        return cell.updates if cell.task in TASKS else 1

    def simulate(self, cell: Norms, seed: int) -> Values | Generator[int, None, Values]:
        if cell.task == "white":
            return white(cell.decay, cell.sequences, seed)
        if cell.task == "map":
            return mapped(cell.width, cell.state, cell.heads, seed)
        sizes = cell.depth, cell.width, cell.state, cell.heads
        shape = Shape(cell.task, cell.model, *sizes, r_min=cell.r_min, r_max=cell.r_max)
        return train(shape, rate=cell.lr, updates=cell.updates, size=cell.batch, seed=seed)

    def checks(self, results: Results[Norms]) -> list[Check]:
        found = []
        for one in results.where(task="white"):
            decay, place = one.cell.decay, f"of white input, decay {one.cell.decay:g}, seed {one.seed}"
            for t, *rest in zip(*(one.curves[name] for name in ("step", "mean", "trace", "stderr")), strict=True):
                found.append(identity(f"E|h|² {place}, step {t:g}", rest[1], -np.expm1(2 * t * np.log(decay))))
                found.append(sampling(f"mean |h|² {place}, step {t:g}", *rest))
            if decay >= 0.9 and (after := round(1 / (1 - decay))) in SHOWN:  # then 1 - decay^2t is 0.86 to 0.88
                share = one.curves["trace"][SHOWN.index(after)]
                found.append(below(f"share of the final |h|² after 1 / (1 - decay) steps {place}", share, 0.9))
        for one in results.where(task="map"):
            found.append(identity(f"outputs of the RotRNN and of its LRU, seed {one.seed}", one["apart"], 0.0, 1e-10))
        for one in results.where(lambda one: one.cell.task in TASKS):
            fallen = one["last loss"] / one["first loss"]
            found.append(below(f"loss at the end over the start, {self.label(one.cell)}, seed {one.seed}", fallen, 0.9))
        return found

    def answer(self, results: Results[Norms]) -> str:
        said = []
        for task in [task for task in results.axis("task") if task in TASKS]:
            moved = {
                model: np.mean([one["change"] for one in results.where(task=task, model=model)])
                for model in results.where(task=task).axis("model")
            }
            said.append(
                f"on {TASKS[task]} norms change by a factor of "
                + ", ".join(f"{np.exp(change):.2f} ({model})" for model, change in moved.items())
            )
        parts = []
        for one in results.where(task="white")[:1]:
            shown = np.array([one.curves["step"], one.curves["mean"]])[:, [0, 6, 8]]
            norms = ", ".join(f"{mean:.3g} ({t:g})" for t, mean in shown.T)
            parts.append(f"With white input and decay {one.cell.decay:g}, the mean of |h|² by step is {norms}")
        if apart := [one["apart"] for one in results.where(task="map")]:
            parts.append(f"Outputs of a RotRNN and of its LRU differ by at most {max(apart):.1g}")
        if said:
            parts.append(f"In training, {'; '.join(said)}, in the geometric mean over layers and seeds")
        return f"{'. '.join(parts)}."

    def draw(self, results: Results[Norms]) -> Figure:
        panels = []
        for one in results.where(task="white")[:1]:
            steps = np.arange(1, HORIZON + 1)
            curves = (
                line("1 - decay²ᵗ", steps, one.curves["expected"]),
                points("simulated, white input", one.curves["step"], one.curves["mean"]),
            )
            title = f"white, decay {one.cell.decay:g}"
            panels.append(Panel(title=title, x="step t", y="E|h|²", curves=curves, x_scale="log"))
        for task in [task for task in results.axis("task") if task in TASKS]:
            drawn = [_band(results.where(task=task, model=model)) for model in results.where(task=task).axis("model")]
            panels.append(Panel(title=TASKS[task], x="update", y="norm of the state", curves=tuple(drawn)))
        return Figure(panels=tuple(panels), columns=max(1, len(panels)))


def _band(cells: Results[Norms]) -> Curve:
    """The geometric mean of the norms of a model over layers and seeds, and the smallest and the largest of them."""
    logs = np.log([curve for one in cells for name, curve in one.curves.items() if name.startswith("norm")])
    middle, low, high = (np.exp(of(logs, axis=0)) for of in (np.mean, np.min, np.max))
    label = f"{cells[0].cell.model}, mean and range over layers and seeds"
    return line(label, cells[0].curves["updates"], middle, low=low, high=high)


STUDY = NormsStudy()

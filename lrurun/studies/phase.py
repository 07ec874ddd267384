"""`phase`: whether a small phase lets a long LRU generalise, and whether gamma repairs its initial loss."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from lrurun.studies import phase_cells as lru
from lrurun.studies.checks import Check, above, identity
from lrurun.studies.figure import Figure, Panel, Scale, dashed, line
from lrurun.studies.formulas import generator
from lrurun.studies.study import Count, Radius, Rate, Results, Settings, Study, Values

EVERY = 20
"""Updates between two points of the curves."""
CURVES = ("training loss", "training accuracy", "test accuracy")
FIRST, TEST = "first training loss", "last test accuracy"
GRID: dict[str, Any] = {"normalize": [False, True], "phase": [2.0, 0.02]}
STAND_IN = (
    "white noise of 2,048 steps, with the sign of a slow sum as its class, stands in for PathX, which needs a GPU; "
    "unlike there, γ is not necessary"
)


class Phase(Settings, frozen=True, kw_only=True):
    """One training of one LRU layer."""

    normalize: bool = True
    """Whether gamma scales the input."""
    phase: Annotated[float, Meta(gt=0, le=2)] = 2.0
    """The largest initial phase, in units of π."""
    lr: Rate = 0.01
    updates: Annotated[int, Meta(ge=EVERY, le=10**7, multiple_of=EVERY)] = 400
    length: Annotated[int, Meta(ge=2, le=2**20)] = 2048
    state: Count = 64
    r_min: Radius = 0.999
    r_max: Radius = 0.9999

    def __post_init__(self) -> None:
        if self.r_min >= self.r_max:
            raise ValueError(f"r_min must be below r_max, found {self.r_min:g} and {self.r_max:g}")


class PhaseStudy(Study[Phase]):
    name = "phase"
    aliases = ("lru-fig5",)
    source = "Orvieto et al. 2023, Fig. 5"
    question = "Does a small phase let a long LRU generalise, and does γ lower its loss at initialisation?"
    published = "On PathX, chance without γ; with γ training improves; test accuracy does only with a small phase too."
    settings = Phase
    profiles = {
        "ci": GRID | {"updates": EVERY, "length": 512},
        "laptop": GRID,
        "paper": GRID | {"lr": [0.003, 0.01, 0.03]},
    }
    seeds = {"laptop": 3, "paper": 3}
    simulates = True
    stand_in = {
        "ci": f"{STAND_IN}; 20 updates on 512 steps stand in for 400 on 2,048, which only checks the computation.",
        "laptop": f"{STAND_IN}; one learning rate stands in for 3.",
        "paper": f"{STAND_IN}.",
    }

    def label(self, cell: Phase) -> str:
        return f"{'γ' if cell.normalize else 'no γ'}, phase {cell.phase:g}π"

    def steps(self, cell: Phase) -> int:
        return cell.updates

    def simulate(self, cell: Phase, seed: int) -> Generator[int, None, Values]:
        phase = cell.phase * np.pi
        by_powers, by_scan, adam, run = lru.programs(cell.normalize, cell.state, cell.length)
        params = lru.initial(cell.normalize, cell.state, cell.r_min, cell.r_max, phase)(seed)
        (u, labels), random = lru.data(cell.length, seed), generator(seed, "batches")
        scanned, same = np.asarray(by_scan(params, u[:4])), np.asarray(by_powers(params, u[:4]))
        carry, curves = (params, adam(params)), [lru.scores(np.asarray(by_powers(params, u)), labels)]
        rates = cell.lr * (1 + np.cos(np.pi * np.arange(cell.updates) / cell.updates)) / 2
        for done in range(lru.CHUNK, cell.updates + 1, lru.CHUNK):
            chosen = random.integers(lru.TRAINING, size=(lru.CHUNK, lru.BATCH))
            carry = run(carry, (u[chosen], labels[chosen]), rates[done - lru.CHUNK : done])
            if done % EVERY == 0:
                curves.append(lru.scores(np.asarray(by_powers(carry[0], u)), labels))
            yield done
        columns = dict(zip(CURVES, np.array(curves).T, strict=True))
        return {
            "update": EVERY * np.arange(len(curves)),
            **columns,
            **{f"last {name}": column[-1] for name, column in columns.items()},
            FIRST: columns["training loss"][0],
            "outputs apart": np.max(np.abs(scanned - same)) / np.max(np.abs(scanned)),
            "gain of constant input": lru.constant_gain(cell.r_min, cell.r_max, phase),
            "gain as a sum": lru.gain_by_sums(cell.r_min, cell.r_max, phase),
        }

    def checks(self, results: Results[Phase]) -> list[Check]:
        found = []
        for one in results:
            name = f"{self.label(one.cell)}, lr {one.cell.lr:g}, seed {one.seed}"
            found.append(identity(f"last outputs by powers and by a scan, {name}", one["outputs apart"], 0.0, 1e-9))
            if one.cell.normalize and one.seed == results[0].seed:
                gain = "gain of constant input"
                found.append(identity(f"{gain}, {name}", one[gain], one["gain as a sum"]))
        for at in (results.where(lr=rate) for rate in results.axis("lr")):
            for phase in at.axis("phase"):
                plain, normal = (_means(at.where(phase=phase, normalize=on), FIRST) for on in (False, True))
                name = f"initial loss without γ over with it, phase {phase:g}π, lr {at[0].cell.lr:g}"
                found += [above(name, one / other, 5) for one, other in zip(plain, normal, strict=False)]
            small, full = (at.where(normalize=True, phase=phase).by_seed(TEST) for phase in (0.02, 2.0))
            for seed in small.keys() & full.keys() if results.profile != "ci" else ():
                name = f"test accuracy of phase 0.02π above 2π, γ, lr {at[0].cell.lr:g}, seed {seed}"
                found.append(above(name, small[seed] - full[seed], 0.3))
        return found

    def answer(self, results: Results[Phase]) -> str:
        of_groups = [(self.label(cells[0].cell), cells) for cells in _groups(results)]
        firsts = ", ".join(f"{_means(cells, FIRST)[0]:.2f} ({label})" for label, cells in of_groups)
        if results.profile == "ci":
            return f"The loss at initialisation is {firsts}."
        tests = ", ".join(f"{_means(cells, TEST)[0]:.2f} ({label})" for label, cells in of_groups)
        return f"The loss at initialisation is {firsts}; the test accuracy is {tests}."

    def draw(self, results: Results[Phase]) -> Figure:
        panels = []
        for name in CURVES:
            curves = []
            for cells in _groups(results):
                cell, mean = cells[0].cell, np.mean([one.curves[name] for one in cells], 0)
                style = line if cell.normalize else dashed
                curves.append(style(self.label(cell), cells[0].curves["update"], mean, of=f"{cell.phase:g}"))
            scale: Scale = "log" if "loss" in name else "linear"
            panels.append(Panel(x="update", y=name, curves=tuple(curves), y_scale=scale))
        return Figure(panels=tuple(panels), columns=3)


def _groups(results: Results[Phase]) -> list[Results[Phase]]:
    """The cells of each setting at the largest rate."""
    at = results.where(lr=max(results.axis("lr")))
    groups = [at.where(phase=phase, normalize=on) for phase in at.axis("phase") for on in at.axis("normalize")]
    return [cells for cells in groups if len(cells)]


def _means(cells: Results[Phase], name: str) -> list[float]:
    """The mean over seeds, or nothing if there are none."""
    return [float(np.mean([one[name] for one in cells]))] if len(cells) else []


STUDY = PhaseStudy()

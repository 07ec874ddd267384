"""`depth`: how states and gradients of deep networks grow with their memory, at initialisation."""

from __future__ import annotations

from itertools import product
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from lrurun.studies.checks import Check, above, below, sampling
from lrurun.studies.depth_cells import Model, Norm, by_group, expected, inputs, program, start
from lrurun.studies.figure import Curve, Figure, dashed, line, log_log, points
from lrurun.studies.study import Results, Rho, Settings, Study, Values

TIMES = [1.0, 10**0.5, 10.0, 10**1.5, 100.0]
GROUPS = {"cRNN": ("lambda", "rest"), "LRU": ("nu", "theta", "rest"), "LSTM": ("cell", "rest")}
SYMBOLS = {"lambda": "λ", "nu": "ν", "theta": "θ"}
GRID: dict[str, Any] = {"norm": ["none", "layer"], "model": list(GROUPS), "rho": [0.0, 0.9], "time": TIMES}
STAND_IN = "autocorrelated noise stands in for the embeddings of a language model, which need a download"


class Depth(Settings, frozen=True, kw_only=True):
    """One network of four blocks: recurrence, GELU, gated linear unit, sum with the input."""

    model: Model = "LRU"
    norm: Norm = "none"
    """Before each recurrence and before each gated linear unit."""
    rho: Rho = 0.0
    time: Annotated[float, Meta(ge=1, le=1e6)] = 10.0
    """The time constant: eigenvalues have absolute values from 1 - 1/time; forget gates remember so many steps."""
    width: Annotated[int, Meta(ge=1, le=4096)] = 128
    """Of the input and of the network; also the size of the state."""
    length: Annotated[int, Meta(ge=2, le=2**20)] = 512


class DepthStudy(Study[Depth]):
    name = "depth"
    aliases = ("zucchet-fig5",)
    source = "Zucchet and Orvieto 2024, Fig. 5"
    question = "How do states and gradients of deep networks grow with their memory, at initialisation?"
    published = (
        "States and gradients of the complex RNN explode with memory; those of the LRU do not, except for θ, nor those "
        "of an LSTM. Layer norm bounds the gradients of the RNN as a whole."
    )
    settings = Depth
    profiles = {
        "ci": {"model": ["cRNN", "LRU"], "rho": [0.0, 0.9], "time": [1.0, 10.0], "width": 16, "length": 128},
        "laptop": GRID,
        "paper": GRID | {"width": 256, "length": 1024},
    }
    seeds = {"laptop": 2, "paper": 3}
    simulates = True
    stand_in = {
        "ci": f"{STAND_IN}; width 16, 128 steps and two models stand in for 256, 1,024 and three.",
        "laptop": f"{STAND_IN}; width 128 and 512 steps stand in for 256 and 1,024.",
        "paper": f"{STAND_IN}.",
    }

    def label(self, cell: Depth) -> str:
        return f"{cell.model}, norm {cell.norm}, rho={cell.rho:g}"

    def has(self, cell: Depth) -> bool:
        return cell.norm == "none" or cell.rho == 0

    def simulate(self, cell: Depth, seed: int) -> Values:
        params = start(cell.model, cell.width, cell.time, seed)
        squares, slopes = program(cell.model, cell.norm)(params, inputs(cell.width, cell.length, cell.rho, seed))
        found: Values = {f"state of block {1 + n}": float(square) for n, square in enumerate(np.asarray(squares))}
        found |= {f"gradient of {group}": value for group, value in by_group(slopes).items()}
        if cell.model != "LSTM" and cell.norm == "none":
            found["expected state of block 1"], found["standard error"] = expected(params, cell.rho, cell.length)
        return found

    def checks(self, results: Results[Depth]) -> list[Check]:
        found = []
        for one in results.where(lambda one: "standard error" in one.values):
            name = f"E|h|² of block 1, {self.label(one.cell)}, time {one.cell.time:g}, seed {one.seed}"
            values = (one[value] for value in ("state of block 1", "expected state of block 1", "standard error"))
            found.append(sampling(name, *values))
        seeds = [] if results.profile == "ci" else sorted({one.seed for one in results})
        for seed, norm, rho in product(seeds, results.axis("norm"), results.axis("rho")):
            cells = [one for one in results.where(norm=norm, rho=rho) if one.seed == seed]
            found += _slopes(Results(cells, results.profile), f"norm {norm}, rho {rho:g}, seed {seed}")
        return found

    def answer(self, results: Results[Depth]) -> str:
        said, norm, rho = [], results[0].cell.norm, results[0].cell.rho
        for model in results.axis("model"):
            for group in GROUPS[model]:
                values = _mean(results.where(model=model, norm=norm, rho=rho), f"gradient of {group}")[1]
                said += [f"{values[-1] / values[0]:.2g} ({model}, {SYMBOLS.get(group, group)})"] if values else []
        first, last = results.axis("time")[0], results.axis("time")[-1]
        return (
            f"From a time constant of {first:g} to {last:g}, with ρ = {rho:g} and norm {norm}, squared gradients "
            f"change by the factors {', '.join(said)}."
        )

    def draw(self, results: Results[Depth]) -> Figure:
        panels, rho = [], results[0].cell.rho
        for model, norm in product(results.axis("model"), results.axis("norm")):
            cells = results.where(model=model, norm=norm)
            if norm == "none":
                states = _states(cells.where(rho=rho))
                panels.append(log_log("time constant", f"{model}: E|h|²", states, title=f"no norm, ρ = {rho:g}"))
            title = "no norm" if norm == "none" else "layer norm"
            panels.append(log_log("time constant", "squared gradient", _gradients(cells), title=title))
        return Figure(panels=tuple(panels), columns=len(panels) // len(results.axis("model")))


def _states(cells: Results[Depth]) -> list[Curve]:
    """E|h|² of the first and of the last block; of the first with its closed form, where there is one."""
    curves = [points(f"block {n}", *_mean(cells, f"state of block {n}")) for n in (1, 4)]
    if (form := "expected state of block 1") in cells[0].values:
        curves.append(line("block 1, closed form", *_mean(cells, form), of="block 1"))
    return curves


def _gradients(cells: Results[Depth]) -> list[Curve]:
    curves = []
    for group, rho in product(GROUPS[cells[0].cell.model], cells.axis("rho")):
        name, means = SYMBOLS.get(group, group), _mean(cells.where(rho=rho), f"gradient of {group}")
        curves.append((dashed if rho else line)(f"{name}, ρ = {rho:g}", *means, of=name))
    return curves


def _mean(cells: Results[Depth], name: str) -> tuple[list[float], list[float]]:
    """Time constants, and the mean over seeds of a number."""
    times = cells.axis("time")
    return times, [float(np.mean([one[name] for one in cells.where(time=at)])) for at in times]


def _slopes(cells: Results[Depth], name: str) -> list[Check]:
    """Checks of the powers of the time constant with which squared gradients of one seed grow."""
    if cells and cells[0].cell.norm == "layer":
        bounds = {"cRNN lambda": (above, 1.0), "cRNN rest": (below, 0.3)}
    else:
        bounds = {"cRNN lambda": (above, 4.0), "LRU theta": (above, 1.0), "LSTM rest": (below, 0.1)}
    found = []
    for which, (check, bound) in {**bounds, "LRU rest": (below, 0.3)}.items():
        model, group = which.split()
        times, values = _mean(cells.where(model=model), f"gradient of {group}")
        if len(times) > 1:
            power = float(np.polyfit(np.log(times), np.log(values), 1)[0])
            measured = power if check is above else abs(power)
            found.append(check(f"power of the time constant, {which}, {name}", measured, bound))
    return found


STUDY = DepthStudy()

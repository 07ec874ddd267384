"""`depth`: how states and gradients of deep networks grow with their memory, at initialisation."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import Curve, Figure, dashed, greek, line, log_log, points
from lrurun.studies.checks import Check, above, below, sampling
from lrurun.studies.formulas import generator
from lrurun.studies.study import Array, Results, Rho, Settings, Study, Values

BLOCKS, BATCH = 4, 8

Model = Literal["cRNN", "LRU", "LSTM"]
Norm = Literal["none", "layer"]
PARAMETER_GROUPS = {"lam": "lambda", "nu_log": "nu", "theta_log": "theta", "cell": "cell"}
"""First name of a parameter -> its group; all others are "rest"."""

TIMES = [1.0, 10**0.5, 10.0, 10**1.5, 100.0]
GROUPS = {"cRNN": ("lambda", "rest"), "LRU": ("nu", "theta", "rest"), "LSTM": ("cell", "rest")}
SYMBOLS = {"lambda": "λ", "nu": "ν", "theta": "θ"}
GRID: dict[str, Any] = {"norm": ["none", "layer"], "model": list(GROUPS), "rho": [0.0, 0.9], "time": TIMES}
STAND_IN = "autocorrelated noise stands in for the embeddings of a language model, which need a download"


class Depth(Settings, frozen=True, kw_only=True):
    """One network of four blocks: recurrence, GELU, gated linear unit, sum with the input."""

    model: Model = "LRU"
    norm: Norm = "none"
    """The normalisation before each recurrence and before each gated linear unit."""
    rho: Rho = 0.0
    time: Annotated[float, Meta(ge=1, le=1e6)] = 10.0
    """The time constant: eigenvalues have absolute values from 1 - 1/time; forget gates remember so many steps."""
    width: Annotated[int, Meta(ge=1, le=4096)] = 128
    """The features of the input and of the network; also the size of the state."""
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
        values: Values = {f"state of block {1 + n}": float(square) for n, square in enumerate(np.asarray(squares))}
        values |= {f"gradient of {group}": value for group, value in by_group(slopes).items()}
        if cell.model != "LSTM" and cell.norm == "none":
            values["expected state of block 1"], values["standard error"] = expected(params, cell.rho, cell.length)
        return values

    def checks(self, results: Results[Depth]) -> list[Check]:
        checks = []
        for result in results.where(lambda result: "standard error" in result.values):
            name = f"E|h|² of block 1, {self.label(result.cell)}, time {result.cell.time:g}, seed {result.seed}"
            values = (result[value] for value in ("state of block 1", "expected state of block 1", "standard error"))
            checks.append(sampling(name, *values))
        seeds = [] if results.profile == "ci" else sorted({result.seed for result in results})
        for seed, norm, rho in product(seeds, results.axis("norm"), results.axis("rho")):
            cells = [result for result in results.where(norm=norm, rho=rho) if result.seed == seed]
            checks += _slopes(Results(cells, results.profile), f"norm {norm}, rho {rho:g}, seed {seed}")
        return checks

    def answer(self, results: Results[Depth]) -> str:
        factors, norm, rho = [], results[0].cell.norm, results[0].cell.rho
        for model in results.axis("model"):
            for group in GROUPS[model]:
                values = _mean(results.where(model=model, norm=norm, rho=rho), f"gradient of {group}")[1]
                factors += [f"{values[-1] / values[0]:.2g} ({model}, {SYMBOLS.get(group, group)})"] if values else []
        first, last = results.axis("time")[0], results.axis("time")[-1]
        return (
            f"From a time constant of {first:g} to {last:g}, with ρ = {rho:g} and norm {norm}, squared gradients "
            f"change by the factors {', '.join(factors)}."
        )

    def draw(self, results: Results[Depth]) -> Figure:
        panels, rho = [], results[0].cell.rho
        for model, norm in product(results.axis("model"), results.axis("norm")):
            cells = results.where(model=model, norm=norm)
            if norm == "none":
                states = _states(cells.where(rho=rho))
                panels.append(log_log("time constant", f"{model}: $E|h|^2$", states, title=f"no norm, $ρ = {rho:g}$"))
            title = "no norm" if norm == "none" else "layer norm"
            panels.append(log_log("time constant", "squared gradient", _gradients(cells), title=title))
        return Figure(panels=tuple(panels), columns=len(panels) // len(results.axis("model")))


def _states(cells: Results[Depth]) -> list[Curve]:
    """E|h|² of the first and of the last block; of the first with its closed form, where there is one."""
    curves = [points(f"block {n}", *_mean(cells, f"state of block {n}")) for n in (1, 4)]
    if (form := "expected state of block 1") in cells[0].values:
        curves.append(line("block 1, closed form", *_mean(cells, form), family="block 1"))
    return curves


def _gradients(cells: Results[Depth]) -> list[Curve]:
    curves = []
    for group, rho in product(GROUPS[cells[0].cell.model], cells.axis("rho")):
        name, means = greek(SYMBOLS.get(group, group)), _mean(cells.where(rho=rho), f"gradient of {group}")
        curves.append((dashed if rho else line)(f"{name}, $ρ = {rho:g}$", *means, family=name))
    return curves


def _mean(cells: Results[Depth], name: str) -> tuple[list[float], list[float]]:
    """Time constants, and the mean over seeds of a number."""
    times = cells.axis("time")
    return times, [float(np.mean([result[name] for result in cells.where(time=time)])) for time in times]


def _slopes(cells: Results[Depth], name: str) -> list[Check]:
    """Checks of the powers of the time constant with which squared gradients of one seed grow."""
    if cells and cells[0].cell.norm == "layer":
        bounds = {"cRNN lambda": (above, 1.0), "cRNN rest": (below, 0.3)}
    else:
        bounds = {"cRNN lambda": (above, 4.0), "LRU theta": (above, 1.0), "LSTM rest": (below, 0.1)}
    checks = []
    for model_and_group, (check, bound) in {**bounds, "LRU rest": (below, 0.3)}.items():
        model, group = model_and_group.split()
        times, values = _mean(cells.where(model=model), f"gradient of {group}")
        if len(times) > 1:
            power = float(np.polyfit(np.log(times), np.log(values), 1)[0])
            measured = power if check is above else abs(power)
            checks.append(check(f"power of the time constant, {model_and_group}, {name}", measured, bound))
    return checks


def inputs(width: int, length: int, rho: float, seed: int) -> Array:
    """Stationary AR(1) features of variance 1, (length + 1, BATCH, width)."""
    x = generator(seed, "inputs").normal(size=(length + 1, BATCH, width))
    for t in range(length):
        x[t + 1] = rho * x[t] + np.sqrt(1 - rho**2) * x[t + 1]
    return x


def start(model: Model, width: int, time: float, seed: int) -> dict[str, Any]:
    """Parameters: time constants between `time` and twice that; entries have variance 1 over the number of inputs."""
    random = generator(seed, "parameters")

    def dense(*shape: int) -> Array:
        return random.normal(size=shape) / np.sqrt(shape[-1])

    def block() -> dict[str, Array]:
        glu = {"value": dense(width, width), "gate": dense(width, width)}
        if model == "LSTM":
            # the gates of input, forgetting and output, and the candidate; chrono initialisation (Tallec and Ollivier)
            bias = np.log(np.maximum(random.uniform(time, 2 * time, width) - 1, 1e-3))
            zero = np.zeros(width)
            biases = np.concatenate([-bias, bias, zero, zero])
            return glu | {"cell w": dense(4 * width, width), "cell u": dense(4 * width, width), "cell bias": biases}
        low = 1 - 1 / time
        ends = low**2, ((1 + low) / 2) ** 2
        nu, theta = -0.5 * np.log(random.uniform(*ends, width)), 2 * np.pi * (1 - random.uniform(size=width))
        b = {"B_re": dense(width, width), "B_im": dense(width, width)}
        glu |= b | {"C_re": dense(width, width), "C_im": dense(width, width)}
        if model == "cRNN":
            return glu | {"lam_re": np.exp(-nu) * np.cos(theta), "lam_im": np.exp(-nu) * np.sin(theta)}
        gamma = 0.5 * np.log(-np.expm1(-2 * nu))
        return glu | {"nu_log": np.log(nu), "theta_log": np.log(theta), "gamma_log": gamma}

    return {
        "encoder": dense(width, width),
        "blocks": [block() for _ in range(BLOCKS)],
        "decoder": dense(width, width),
    }


@cache
def program(model: Model, norm: Norm) -> Any:
    """(parameters, inputs) -> (mean of |h|^2 in the second half, by block), gradient of the loss."""
    import jax
    import jax.numpy as jnp

    from lrurun.nn.complex import Complex
    from lrurun.nn.recurrences.parametrizations import Cartesian, StableExponential
    from lrurun.nn.scan import linear_scan

    def linear(block: Any, u: Any) -> Any:
        gamma = jnp.exp(block["gamma_log"])[:, None] if model == "LRU" else jnp.ones((1, 1))
        lam = (StableExponential(log_phase=True) if model == "LRU" else Cartesian()).eigenvalues(block)
        x = linear_scan(lam, Complex(u @ (gamma * block["B_re"]).T, u @ (gamma * block["B_im"]).T))
        return x.real @ block["C_re"].T - x.imag @ block["C_im"].T, x.abs2()

    def lstm(cell: Any, u: Any) -> Any:
        def step(carry: Any, driven: Any) -> Any:
            h, c = carry
            i, f, o, g = jnp.split(driven + h @ cell["cell u"].T, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros(u.shape[1:])
        states = jax.lax.scan(step, (zero, zero), u @ cell["cell w"].T + cell["cell bias"][None, None])[1]
        return states, states**2

    def scaled(u: Any) -> Any:
        if norm == "none":
            return u
        u = u - jnp.mean(u, axis=-1, keepdims=True)
        return u / jnp.sqrt(jnp.mean(u**2, axis=-1, keepdims=True) + 1e-6)

    def loss(params: Any, x: Any) -> Any:
        z, squares = x[:-1] @ params["encoder"].T, []
        for block in params["blocks"]:
            y, squared = (lstm if model == "LSTM" else linear)(block, scaled(z))
            active = scaled(jax.nn.gelu(y))
            z = z + (active @ block["value"].T) * jax.nn.sigmoid(active @ block["gate"].T)
            squares.append(jnp.mean(squared[len(squared) // 2 :]))
        return 0.5 * jnp.mean(jnp.sum((z @ params["decoder"].T - x[1:]) ** 2, axis=-1)), jnp.stack(squares)

    def run(params: Any, x: Any) -> Any:
        slopes, squares = jax.grad(loss, has_aux=True)(params, x)
        return squares, slopes

    return jax.jit(run)


def by_group(slopes: Any) -> dict[str, float]:
    """Group -> mean over its parameters of the squares of a gradient."""
    parts_of: dict[str, list[Array]] = {}
    for table in (*slopes["blocks"], {name: slopes[name] for name in ("encoder", "decoder")}):
        for name, slope in table.items():
            group = next((group for first, group in PARAMETER_GROUPS.items() if name.startswith(first)), "rest")
            parts_of.setdefault(group, []).append(np.ravel(slope))
    return {group: float(np.mean(np.square(np.concatenate(parts)))) for group, parts in parts_of.items()}


def expected(params: dict[str, Any], rho: float, length: int) -> tuple[float, float]:
    """Mean of |h|^2 of the first block in the second half, from a zero state; and the standard error of a sample.

    The standard error is that of the stationary states: sums over lags of |E h_i conj h_j|^2 + |E h_i h_j|^2, because
    states are jointly normal.
    """
    block = params["blocks"][0]
    lam, gamma = (block["lam_re"] + 1j * block["lam_im"], 1.0) if "lam_re" in block else _of_lru(block)
    b = np.reshape(gamma, (-1, 1)) * ((block["B_re"] + 1j * block["B_im"]) @ params["encoder"])
    power, variance, cross, first = np.sum(np.abs(b) ** 2, axis=1), np.zeros(len(lam)), np.zeros(len(lam), complex), []
    for t in range(length):
        # E h_(t+1) conj h_(t+1) of the sum of past inputs, `cross` being E x_(t+1) conj h_t
        variance = np.abs(lam) ** 2 * variance + 1 + 2 * np.real(lam * np.conj(cross))
        cross = rho * (np.conj(lam) * cross + 1)
        if t >= length // 2:
            first.append(float(np.mean(power * variance)))
    steps, total = len(first), 0.0
    for partner, products in ((np.conj(lam), b @ b.conj().T), (lam, b @ b.T)):
        a, d = lam[:, None], partner[None]
        stationary = (1 - rho**2 * a * d) / ((1 - a * d) * (1 - rho * a) * (1 - rho * d))
        ahead = np.zeros_like(stationary)
        for lag in range(steps):
            total += (1 if lag == 0 else 2) * (steps - lag) * float(np.sum(np.abs(products * stationary) ** 2))
            ahead = rho * ahead + rho / (1 - rho * d) if lag == 0 else rho * ahead
            stationary = a * stationary + ahead
    return float(np.mean(first)), float(np.sqrt(total / BATCH) / (steps * len(lam)))


def _of_lru(block: dict[str, Array]) -> tuple[Array, Array]:
    return np.exp(-np.exp(block["nu_log"]) + 1j * np.exp(block["theta_log"])), np.exp(block["gamma_log"])


STUDY = DepthStudy()

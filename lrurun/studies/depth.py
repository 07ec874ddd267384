"""`depth`: how states and gradients of deep networks grow with their memory, at initialisation."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache, lru_cache
from itertools import product
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from lrurun.config.recurrences.gru_lstm import LSTMSettings
from lrurun.config.recurrences.lru import LRUSettings
from lrurun.config.schema import ModelConfig
from lrurun.data.task import Output, Spec
from lrurun.report.figures.figures import Curve, Figure, dashed, greek, line, log_log, points
from lrurun.studies.machinery.checks import Check, below, identity, sampling
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, threshold, together
from lrurun.studies.machinery.study import Array, Results, Rho, Settings, Study, Values
from lrurun.studies.mathematics import layers
from lrurun.studies.mathematics.formulas import Ring, generator

BLOCKS, BATCH = 4, 8

Model = Literal["cRNN", "LRU", "LSTM"]
Norm = Literal["none", "layer"]
PARAMETER_GROUPS: dict[Model, dict[str, str]] = {
    "cRNN": {"lam_re": "lambda", "lam_im": "lambda"},
    "LRU": {"nu_log": "nu", "theta_log": "theta"},
    "LSTM": {"A": "cell", "B": "cell", "b": "cell"},
}
"""Parameters of the recurrence -> their group; all others are "rest"."""

TIMES = [1.0, 10**0.5, 10.0, 10**1.5, 100.0]
GROUPS = {"cRNN": ("lambda", "rest"), "LRU": ("nu", "theta", "rest"), "LSTM": ("cell", "rest")}
SYMBOLS = {"lambda": "λ", "nu": "ν", "theta": "θ"}
GRID: dict[str, Any] = {"norm": ["none", "layer"], "model": list(GROUPS), "rho": [0.0, 0.9], "time": TIMES}
STAND_IN = "autocorrelated noise stands in for the embeddings of a language model, which need a download"


class Depth(Settings, frozen=True, kw_only=True):
    """One network of four blocks: recurrence, GELU, gated linear unit, sum with the input.

    It has the parameters of `lrurun.nn.network`, and without normalisation its outputs.
    """

    model: Model = "LRU"
    norm: Norm = "none"
    """The normalisation before each recurrence and before each gated linear unit; networks of this package have none
    before the latter."""
    rho: Rho = 0.0
    time: Annotated[float, Meta(ge=1, le=1e6)] = 10.0
    """The time constant: eigenvalues have absolute values from 1 - 1/time; forget gates remember so many steps."""
    width: Annotated[int, Meta(ge=1, le=4096)] = 128
    """The features of the input and of the network; also the size of the state."""
    length: Annotated[int, Meta(ge=2, le=2**20)] = 512
    sequences: Annotated[int, Meta(ge=BATCH, le=2**20, multiple_of=BATCH)] = BATCH
    """A gradient is of a batch of 8 of them; the squares of gradients are averaged."""


def ring(time: float) -> Ring:
    """The smallest and the largest absolute value of an eigenvalue (Zucchet and Orvieto 2024, appendix C.1)."""
    return 1 - 1 / time, 1 - 1 / (2 * time)


def recurrence(model: Model, time: float) -> LRUSettings | LSTMSettings:
    """The layer with this time constant."""
    low, high = ring(time)
    match model:
        case "cRNN":
            return LRUSettings(parametrization="cartesian", r_min=low, r_max=high)
        case "LRU":
            return LRUSettings(normalize=True, phase="log", r_min=low, r_max=high)
    return LSTMSettings(t_min=time, t_max=2 * time)


def _power(results: Results[Depth], model: Model, norm: Norm, rho: float, value: str) -> float | None:
    """The power of the time constant with which a number grows; None for fewer than three of them."""
    cells = results.where(model=model, norm=norm, rho=rho)
    times, values = _mean(cells, value)
    return float(np.polyfit(np.log(times), np.log(values), 1)[0]) if len(times) >= 3 else None


def _growth(norm: Norm, **explodes: bool) -> Callable[[Results[Depth]], Evidence | None]:
    """Evidence that squared gradients, or squares of states, explode with the memory, or do not.

    `explodes` has names such as "LRU_theta" and "cRNN_state".
    """

    def evidence(results: Results[Depth]) -> Evidence | None:
        parts = []
        for (name, rises), rho in product(explodes.items(), results.axis("rho")):
            model, group = name.split("_")
            value = f"state of block {BLOCKS}" if group == "state" else f"gradient of {group}"
            if (power := _power(results, model, norm, rho, value)) is None:  # type: ignore[arg-type]
                continue
            label = f"power of the time constant, {value}, {model}, rho={rho:g}"
            # ours: proportional to the memory or more is an explosion, to its root or less is none
            parts.append(
                threshold(label, power, supported=1.0, contradicted=0.5)
                if rises
                else threshold(label, abs(power), supported=0.5, contradicted=1.0)
            )
        return together(*parts)

    return evidence


def _cell_below_rest(results: Results[Depth]) -> Evidence | None:
    lstm = results.where(model="LSTM", norm="none")
    ratios = [result["gradient of cell"] / result["gradient of rest"] for result in lstm]
    if not ratios:
        return None
    name = "squared gradients of the LSTM's parameters over those of the others, largest"
    return threshold(name, max(ratios), supported=0.5, contradicted=1.0)


class DepthStudy(Study[Depth]):
    name = "depth"
    aliases = ("zucchet-fig5",)
    source = "Zucchet and Orvieto 2024, Fig. 5"
    question = "How do states and gradients of deep networks grow with their memory, at initialisation?"
    published = (
        "States and gradients of the complex RNN explode with memory; those of the LRU do not, except for θ, nor those "
        "of an LSTM. Layer norm bounds the gradients of the RNN as a whole."
    )
    claims = (
        StudyClaim(
            text="The states of a complex RNN explode with the memory, those of an LRU hardly grow",
            source="Zucchet and Orvieto 2024, section 5, Fig. 5A",
            evidence=_growth("none", cRNN_state=True, LRU_state=False),
        ),
        StudyClaim(
            text="Gradients of a complex RNN explode with the memory, those of an LRU in its angles only",
            source="Zucchet and Orvieto 2024, section 5, Fig. 5B",
            evidence=_growth("none", cRNN_lambda=True, LRU_theta=True, LRU_nu=False, LRU_rest=False),
        ),
        StudyClaim(
            text="Layer norm bounds the gradients of a complex RNN by parameters other than its eigenvalues",
            source="Zucchet and Orvieto 2024, section 5, Fig. 5C",
            evidence=_growth("layer", cRNN_rest=False),
        ),
        StudyClaim(
            text="Gradients of an LSTM with chrono initialisation do not depend on the memory",
            source="Zucchet and Orvieto 2024, section 5, Fig. 5B",
            evidence=_growth("none", LSTM_cell=False, LSTM_rest=False),
        ),
        StudyClaim(
            text="The LSTM's own parameters have smaller gradients than the feed-forward parameters",
            source="Zucchet and Orvieto 2024, section 5, Fig. 5B",
            evidence=_cell_below_rest,
        ),
    )
    version = 2
    settings = Depth
    profiles = {
        "ci": {"model": ["cRNN", "LRU"], "rho": 0.9, "width": 16, "length": 128},
        "laptop": GRID,
        "paper": GRID | {"width": 256, "length": 512, "sequences": 1024},
    }
    seeds = {"laptop": 2}
    simulates = True
    stand_in = {
        "ci": f"{STAND_IN}; 8 sequences of 128 steps, width 16, 2 models, 1 correlation and 1 time constant stand in "
        "for 1,024 of 512, 256, 3, 2 and 5.",
        "laptop": f"{STAND_IN}; width 128 and 8 sequences stand in for 256 and 1,024.",
        "paper": f"{STAND_IN}.",
    }

    def label(self, cell: Depth) -> str:
        return f"{cell.model}, norm {cell.norm}, rho={cell.rho:g}"

    def has(self, cell: Depth) -> bool:
        return cell.norm == "none" or cell.rho == 0

    def steps(self, cell: Depth) -> int:
        return cell.sequences // BATCH

    def simulate(self, cell: Depth, seed: int) -> Generator[int, None, Values]:
        params = start(cell.model, cell.width, cell.time, seed)
        run, of_network = compiled(cell.model, cell.norm, cell.width, cell.length)
        batches, values = cell.sequences // BATCH, dict[str, Any]()
        for number in range(batches):
            x = inputs(cell.width, cell.length, cell.rho, seed, number)
            squares, slopes, y = run(params, x)
            found = {f"state of block {1 + n}": float(square) for n, square in enumerate(np.asarray(squares))}
            found |= {f"gradient of {group}": value for group, value in by_group(cell.model, slopes).items()}
            values = {name: values.get(name, 0.0) + value / batches for name, value in found.items()}
            yield number + 1
        values["initial weights"] = farthest_variance(cell.model, cell.width, params)
        if cell.norm == "none":
            values["outputs apart"] = float(np.max(np.abs(of_network(params, x) - y)) / np.max(np.abs(y)))
        if cell.model == "LSTM":
            return values
        if cell.norm == "none":
            values["expected state of block 1"], stderr = expected(params, cell.rho, cell.length)
            values["standard error"] = stderr / np.sqrt(batches)
        eigenvalue, gamma = (np.concatenate(part) for part in zip(*map(_of_block, _recurrences(params)), strict=True))
        return values | layers.sampled(eigenvalue, gamma if cell.model == "LRU" else None)

    def checks(self, results: Results[Depth]) -> list[Check]:
        checks = []
        for result in results:
            cell = result.cell
            name = f"{self.label(cell)}, time {cell.time:g}, seed {result.seed}"
            if "standard error" in result.values:
                keys = "state of block 1", "expected state of block 1", "standard error"
                checks.append(sampling(f"E|h|² of block 1, {name}", *(result[key] for key in keys)))
            if "outputs apart" in result.values:
                # batch norm that has seen no batch divides by the root of 1.00001
                checks.append(identity(f"outputs and those of the network, {name}", result["outputs apart"], 0.0, 1e-3))
            # cells that differ in the input or in the norm have the same parameters
            if (cell.rho, cell.norm) == (results[0].cell.rho, results[0].cell.norm):
                variance = f"largest distance of a variance of initial weights, in standard errors, {name}"
                checks.append(below(variance, result["initial weights"], 5.0))
                if layers.MEAN_SQUARE in result.values:
                    count = BLOCKS * cell.width
                    checks += layers.ring_checks(result.values, ring(cell.time), count=count, where=name)
        return checks

    def answer(self, results: Results[Depth]) -> str:
        factors, norm, rho = [], results[0].cell.norm, results[0].cell.rho
        first, last = results.axis("time")[0], results.axis("time")[-1]
        if first == last:
            states = ", ".join(f"{result['state of block 1']:.3g} ({self.label(result.cell)})" for result in results)
            return f"With a time constant of {first:g}, the mean of |h|² in the first block is {states}."
        for model in results.axis("model"):
            for group in GROUPS[model]:
                values = _mean(results.where(model=model, norm=norm, rho=rho), f"gradient of {group}")[1]
                factors += [f"{values[-1] / values[0]:.2g} ({model}, {SYMBOLS.get(group, group)})"] if values else []
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


def inputs(width: int, length: int, rho: float, seed: int, batch: int = 0) -> Array:
    """Stationary AR(1) features of variance 1, (length + 1, BATCH, width), rounded to float32 as networks do."""
    x = generator(seed, f"inputs {batch}").normal(size=(length + 1, BATCH, width))
    for t in range(length):
        x[t + 1] = rho * x[t] + np.sqrt(1 - rho**2) * x[t + 1]
    return np.asarray(x, np.float32).astype(np.float64)


def network(model: Model, width: int, time: float, length: int = 1) -> Any:
    """The network of this package around the layer."""
    from lrurun.nn.network import Model as Network

    output = Output(at="positions", loss="squared-error")
    spec = Spec(name="depth", kind="features", features=width, classes=width, length=length, output=output)
    return Network(ModelConfig(recurrence=recurrence(model, time), depth=BLOCKS, width=width, state=width), spec)


@lru_cache(maxsize=8)  # as many as there are time constants, over which cells differ first
def start(model: Model, width: int, time: float, seed: int) -> Any:
    """The initial parameters of the network, float64: time constants are between `time` and twice that."""
    import jax

    params, _ = network(model, width, time).init(layers.key(seed, "parameters"))
    return jax.tree.map(lambda part: np.asarray(part, np.float64), params)


def _recurrences(params: Any) -> list[dict[str, Array]]:
    return [block["recurrence"] for block in params["blocks"].values()]


def farthest_variance(model: Model, width: int, params: Any) -> float:
    """The largest distance of a mean square of initial weights from its declared variance, in standard errors of normal
    numbers.

    Linear maps declare 1 / (number of inputs), recurrences `Recurrence.variances`.
    """
    declared = layers.build(recurrence(model, 2.0), width=width, state=width).variances
    weights = {name: [params[name]["kernel"]] for name in ("encoder", "head")}
    weights |= {name: [block[name]["kernel"] for block in params["blocks"].values()] for name in ("value", "gate")}
    weights |= {name: [block[name] for block in _recurrences(params)] for name in declared}
    scores = []
    for name, parts in weights.items():
        squares = np.square(np.concatenate([np.ravel(part) for part in parts])) / declared.get(name, 1 / width)
        scores.append(abs(np.mean(squares) - 1) / np.sqrt(2 / squares.size))
    return float(max(scores))


@cache
def compiled(model: Model, norm: Norm, width: int, length: int) -> Any:
    """(parameters, inputs) -> (mean of |h|^2 in the second half, by block), gradient of the loss, outputs (T, B, H);
    and parameters, inputs -> outputs of the network, which has no norm."""
    import jax
    import jax.numpy as jnp

    layer, whole = layers.build(recurrence(model, 2.0), width=width, state=width), network(model, width, 2.0, length)

    def scaled(u: Any) -> Any:
        if norm == "none":
            return u
        u = u - jnp.mean(u, axis=-1, keepdims=True)
        return u / jnp.sqrt(jnp.mean(u**2, axis=-1, keepdims=True) + 1e-6)

    def linear(weights: Any, u: Any) -> Any:
        return u @ weights["kernel"] + weights["bias"][None, None]

    def mean_square(params: Any, u: Any) -> Any:
        states = layers.states(layer, *jax.lax.stop_gradient((params, u)))
        squares = states[0] ** 2 if model == "LSTM" else states.abs2()
        return jnp.mean(squares[length // 2 :])

    def outputs(params: Any, x: Any) -> Any:
        z, squares = linear(params["encoder"], x), []
        for block in params["blocks"].values():
            u = scaled(z)
            squares.append(mean_square(block["recurrence"], u))
            active = scaled(jax.nn.gelu(layer.scan(block["recurrence"], u)))
            z = z + linear(block["value"], active) * jax.nn.sigmoid(linear(block["gate"], active))
        return linear(params["head"], z), jnp.stack(squares)

    def loss(params: Any, x: Any) -> Any:
        y, squares = outputs(params, x[:-1])
        return 0.5 * jnp.mean(jnp.sum((y - x[1:]) ** 2, axis=-1)), (squares, y)

    def run(params: Any, x: Any) -> Any:
        slopes, (squares, y) = jax.grad(loss, has_aux=True)(params, x)
        return squares, slopes, y

    def of_network(params: Any, x: Any) -> Any:
        _, stats = whole.shapes
        unseen = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), stats)
        return whole.apply(params, unseen, x[:-1].swapaxes(0, 1), train=False)[0].swapaxes(0, 1)

    return jax.jit(run), jax.jit(of_network)


def by_group(model: Model, slopes: Any) -> dict[str, float]:
    """Group -> mean over its parameters of the squares of a gradient. Norms do not count: they are not used here."""
    parts_of: dict[str, list[Array]] = {}
    for block in slopes["blocks"].values():
        for name, slope in block["recurrence"].items():
            parts_of.setdefault(PARAMETER_GROUPS[model].get(name, "rest"), []).append(np.ravel(slope))
    maps = [block[name] for block in slopes["blocks"].values() for name in ("value", "gate")]
    for weights in (slopes["encoder"], slopes["head"], *maps):
        parts_of.setdefault("rest", []).extend(np.ravel(slope) for slope in weights.values())
    return {group: float(np.mean(np.square(np.concatenate(parts)))) for group, parts in parts_of.items()}


def expected(params: dict[str, Any], rho: float, length: int) -> tuple[float, float]:
    """Mean of |h|^2 of the first block in the second half, from a zero state; and the standard error of a sample.

    The standard error is for stationary states: sums over lags of |E h_i conj h_j|^2 + |E h_i h_j|^2, because
    states are jointly normal.
    """
    block = _recurrences(params)[0]
    lam, gamma = _of_block(block)
    b = gamma[:, None] * ((block["B_re"] + 1j * block["B_im"]) @ params["encoder"]["kernel"].T)
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


def _of_block(block: dict[str, Array]) -> tuple[Array, Array]:
    """The eigenvalues of a complex RNN or of an LRU, and gamma, not by the layer's code."""
    if "lam_re" in block:
        return block["lam_re"] + 1j * block["lam_im"], np.ones(len(block["lam_re"]))
    return np.exp(-np.exp(block["nu_log"]) + 1j * np.exp(block["theta_log"])), np.exp(block["gamma_log"])


STUDY = DepthStudy()

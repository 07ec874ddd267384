"""`convolution`: whether a linear RNN learns a linear target faster than one with tanh."""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from lrurun.report.figures.figures import Figure, Panel, dashed, grey, line
from lrurun.studies.machinery.checks import Check, identity
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, majority, together
from lrurun.studies.machinery.study import Array, Count, Rate, Results, Settings, Study, Values
from lrurun.studies.mathematics import layers
from lrurun.studies.mathematics.descent import Carry, descent
from lrurun.studies.mathematics.formulas import generator

LENGTH, SEQUENCES, CHUNK = 100, 32, 30
"""Steps of the kernel and of the sequences; number of sequences; updates of one call of the compiled function."""
RANGE = 10.0
"""a and c of the inputs are uniform in [0, 10]: the paper does not say where."""

Model = Literal["linear", "tanh"]


class Convolution(Settings, frozen=True, kw_only=True):
    """One training by Adam of a dense RNN, the layer of the ladders' first rungs with D = 0."""

    model: Model = "linear"
    lr: Rate = 1e-3
    state: Count = 100
    updates: Annotated[int, Meta(ge=CHUNK, le=10**7, multiple_of=CHUNK)] = 1500


def _at_best(results: Results[Convolution]) -> Evidence | None:
    """Evidence that the linear RNN has the lower final loss, each at the best rate of the seed."""
    if not (ratios := _ratios(_trained(results))):
        return None
    return majority("linear below tanh, each at its best rate", [ratio < 1 for ratio in ratios.values()])


def _at_each(results: Results[Convolution]) -> Evidence | None:
    """Evidence that the linear RNN has the lower final loss at every rate."""
    trained, parts = _trained(results), []
    for rate in trained.axis("lr"):
        if ratios := _ratios(trained.where(lr=rate)):
            parts.append(majority(f"linear below tanh, rate {rate:g}", [ratio < 1 for ratio in ratios.values()]))
    return together(*parts)


def _trained(results: Results[Convolution]) -> Results[Convolution]:
    """The cells that are trained long enough to say something about the figure."""
    return results.where(lambda result: result.cell.updates >= Convolution().updates)


class ConvolutionStudy(Study[Convolution]):
    name = "convolution"
    aliases = ("lru-fig7",)
    source = "Orvieto et al. 2023, Fig. 7"
    question = "Does a linear RNN learn a linear convolution faster than an RNN with tanh?"
    published = "The loss of the linear RNN falls faster for all learning rates of their grid."
    claims = (
        StudyClaim(
            text="A linear RNN learns a linear filter faster than a tanh RNN, at the best learning rate of each",
            source="Orvieto et al. 2023, appendix E.2",
            evidence=_at_best,
        ),
        StudyClaim(
            text="A linear RNN learns a linear filter faster than a tanh RNN at every learning rate of the grid",
            source="Orvieto et al. 2023, Fig. 7",
            evidence=_at_each,
        ),
    )
    version = 2
    settings = Convolution
    profiles = {
        "ci": {"model": ["linear", "tanh"], "updates": 30},
        "laptop": {"model": ["linear", "tanh"], "lr": [1e-4, 3e-4, 1e-3]},
        "paper": {"model": ["linear", "tanh"], "lr": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2]},
    }
    seeds = {"laptop": 16, "paper": 16}
    simulates = True
    stand_in = {
        "ci": "30 updates at one rate stand in for 1,500 at 5, which only checks the computation.",
        "laptop": "3 learning rates stand in for 5.",
    }

    def label(self, cell: Convolution) -> str:
        return cell.model

    def steps(self, cell: Convolution) -> int:
        return cell.updates

    def simulate(self, cell: Convolution, seed: int) -> Generator[int, None, Values]:
        init, run, by_layer, by_other = compiled(cell.model, cell.state)
        (u, y), parameters = data(seed), start(cell.state, seed)
        (value, slopes), (same_value, same_slopes) = by_layer(parameters, u, y), by_other(parameters, u, y)
        apart = [
            np.linalg.norm(slope - same) / np.linalg.norm(same) for slope, same in zip(slopes, same_slopes, strict=True)
        ]
        radius = np.max(np.abs(np.linalg.eigvals(parameters[0])))
        carry, losses = (parameters, init(parameters)), []
        for done in range(CHUNK, cell.updates + 1, CHUNK):
            carry, values = run(carry, u, y, cell.lr)
            losses.append(np.asarray(values))
            yield done
        curve = np.concatenate(losses)[::10]
        return {
            "update": 10 * np.arange(len(curve)),
            "loss": curve,
            "final loss": losses[-1][-1],
            "first loss": value,
            "first loss without the layer": same_value,
            "gradient apart": max(apart),
            "radius": radius,
            "kernel": kernel(),
            "learned kernel": response(*map(np.asarray, carry[0])),
            "sum": np.sum(kernel()),
            "energy": np.sum(kernel() ** 2),
            "bump": 40 + np.argmax(kernel()[40:]),
        }

    def checks(self, results: Results[Convolution]) -> list[Check]:
        result = results[0]
        total, energy, bump = kernel_in_closed_form()
        checks = [
            identity("sum of the kernel as a series", result["sum"], total),
            identity("energy of the kernel", result["energy"], energy),
            identity("step of the second bump", result["bump"], bump),
        ]
        for result in results.where(lr=results.axis("lr")[0]):
            where = f"{result.cell.model}, seed {result.seed}: layer against {_other(result.cell.model)}"
            losses = result["first loss"], result["first loss without the layer"]
            checks.append(identity(f"{where}, loss", *losses, 1e-10))
            checks.append(identity(f"{where}, gradient", result["gradient apart"], 0.0, 1e-10))
        return checks

    def answer(self, results: Results[Convolution]) -> str:
        ratios, rates = _ratios(results), results.axis("lr")
        if not ratios or not _trained(results):
            return f"The {results[0].cell.model} RNN starts at a loss of {results[0]['first loss']:.3g}."
        better = [f"{rate:g}" for rate in rates if _log_mean(_ratios(results.where(lr=rate))) < 0] or ["none"]
        lost = sum(not 0 < ratio < np.inf for ratio in ratios.values())
        gone = f", without {lost} seeds where one of them diverged at each rate" if lost else ""
        wins, pairs, mean = sum(ratio < 1 for ratio in ratios.values()), len(ratios), np.exp(-_log_mean(ratios))
        rank = f" Rank correlation of its first loss with linear / tanh: {_rank(results):.2f}." if pairs > 1 else ""
        return (
            f"Each at its best rate, linear has the lower loss in {wins} of {pairs} seeds (tanh / linear: {mean:.2g} "
            f"in the geometric mean{gone}); of the rates {', '.join(f'{rate:g}' for rate in rates)}, its mean is lower "
            f"at {', '.join(better)}.{rank}"
        )

    def draw(self, results: Results[Convolution]) -> Figure:
        panels = []
        for rate in results.axis("lr"):
            curves = []
            for model in results.axis("model"):
                cells = results.where(lr=rate, model=model)
                mean = np.exp(np.mean(np.log([cell.curves["loss"] for cell in cells]), axis=0))
                curves.append((dashed if model == "tanh" else line)(model, cells[0].curves["update"], mean))
            panels.append(Panel(title=f"rate {rate:g}", x="update", y="loss", curves=tuple(curves), y_scale="log"))
        panels.append(_kernels(results))
        return Figure(panels=tuple(panels), columns=2)


def _kernels(results: Results[Convolution]) -> Panel:
    """The kernels that the models of the first seed learned at their best rates, beside the target's."""
    first = results.where(lambda result: result.seed == results[0].seed)
    curves = []
    for model in first.axis("model"):
        for cell in first.where(model=model).best("lr", "final loss"):
            draw = dashed if model == "tanh" else line
            curves.append(draw(model, range(LENGTH), cell.curves["learned kernel"]))
    curves.append(grey("target", range(LENGTH), first[0].curves["kernel"]))  # above those that oscillate around it
    return Panel(title=f"learned kernel, seed {first[0].seed}", x="step $k$", y="$CA^kB$", curves=tuple(curves))


def _other(model: Model) -> str:
    """The computation beside the layer's."""
    return "its kernel C A^k B" if model == "linear" else "a plain loop"


def _ratios(results: Results[Convolution]) -> dict[int, float]:
    """Seed -> final loss of linear over final loss of tanh, both at their best rate there.

    A model that diverged at each rate has an infinite loss; seeds where both did are left out.
    """
    best: dict[str, dict[int, float]] = {"linear": {}, "tanh": {}}
    for result in results:
        losses = best[result.cell.model]
        losses[result.seed] = min(losses.get(result.seed, np.inf), np.inf if result.diverged else result["final loss"])
    pairs = {seed: (loss, best["tanh"][seed]) for seed, loss in best["linear"].items() if seed in best["tanh"]}
    return {seed: first / second for seed, (first, second) in pairs.items() if min(first, second) < np.inf}


def _log_mean(ratios: dict[int, float]) -> float:
    """The mean logarithm of the ratios over the seeds where neither model diverged; NaN if there is none."""
    logs = [np.log(ratio) for ratio in ratios.values() if 0 < ratio < np.inf]
    return float(np.mean(logs)) if logs else np.nan


def _rank(results: Results[Convolution]) -> float:
    """Spearman's correlation over seeds of the first loss of the linear RNN with its disadvantage."""
    from scipy.stats import spearmanr

    ratios = _ratios(results)
    first = results.where(model="linear", lr=results.axis("lr")[0]).by_seed("first loss")
    return float(spearmanr([first[seed] for seed in ratios], list(ratios.values())).statistic)


def kernel() -> Array:
    """The target (Orvieto et al. 2023, appendix E.2)."""
    k = np.arange(LENGTH)
    return 0.1 * np.exp(-0.015 * k) * np.cos(0.04 * k) ** 2


def response(a: Array, b: Array, c: Array) -> Array:
    """C A^k B of the steps k < LENGTH, which is the response to a small impulse also with tanh."""
    values = []
    for _ in range(LENGTH):
        values.append(c @ b)
        b = a @ b
    return np.array(values)


def kernel_in_closed_form() -> tuple[float, float, int]:
    """The sum of the target, the sum of its squares, and the step of its second bump."""
    # geometric series of cos^2 x = (1 + cos 2x) / 2 and cos^4 x = (3 + 4 cos 2x + cos 4x) / 8
    waves = np.exp(np.array([[-0.015], [-0.03]]) + 0.08j * np.arange(3))
    sums = np.real((1 - waves**LENGTH) / (1 - waves))
    bump = round((np.pi - np.arctan(0.1875)) / 0.04)
    return 0.1 * float(sums[0] @ [1, 1, 0]) / 2, 0.01 * float(sums[1] @ [3, 4, 1]) / 8, bump


def data(seed: int) -> tuple[Array, Array]:
    """Inputs and outputs, (LENGTH, SEQUENCES) each."""
    a, c = generator(seed, "data").uniform(0, RANGE, (2, SEQUENCES))
    k = np.arange(LENGTH)[:, None]
    u = np.sin(0.05 * a * k) * np.cos(0.05 * c * k) ** 2
    return u, np.stack([np.convolve(column, kernel())[:LENGTH] for column in u.T], axis=1)


def start(state: int, seed: int) -> tuple[Array, Array, Array]:
    """A (state, state), B and C (state,) by Glorot's initialisation."""
    random = generator(seed, "init")
    glorot = [((state, state), 1 / state), ((state,), 2 / (state + 1)), ((state,), 2 / (state + 1))]
    a, b, c = (random.normal(size=size) * np.sqrt(variance) for size, variance in glorot)
    return a, b, c


@cache
def compiled(model: Model, state: int) -> Any:
    """Initial state of Adam, `CHUNK` updates, and two functions that return (loss, gradient): by the layer's scan, and
    by the kernel of a linear RNN or a plain loop over the states of one with tanh."""
    import jax
    import jax.numpy as jnp
    import optax

    from lrurun.config.recurrences.rnn import RNNSettings

    settings = RNNSettings(activation="identity" if model == "linear" else "tanh")
    layer = layers.build(settings, width=1, state=state)

    def error(outputs: Any, y: Any) -> Any:
        return 0.5 * jnp.mean((outputs - y) ** 2)

    def by_layer(parameters: Any, u: Any, y: Any) -> Any:
        a, b, c = parameters
        named = {"A": a, "B": b[:, None], "C": c[None], "D": jnp.zeros(1)}
        return error(layer.scan(named, u[..., None])[..., 0], y)

    def by_loop(parameters: Any, u: Any, y: Any) -> Any:
        a, b, c = parameters

        def step(h: Any, inputs: Any) -> Any:
            h = jnp.tanh(h @ a.T + jnp.outer(inputs, b))
            return h, h @ c

        return error(jax.lax.scan(step, jnp.zeros((u.shape[1], len(b))), u)[1], y)

    def by_kernel(parameters: Any, u: Any, y: Any) -> Any:
        a, b, c = parameters
        response = jax.lax.scan(lambda h, _: (a @ h, h @ c), b, length=len(u))[1]
        lags = jnp.subtract.outer(jnp.arange(len(u)), jnp.arange(len(u)))
        return error(jnp.where(lags >= 0, response[lags], 0.0) @ u, y)

    # a linear RNN is its kernel C A^k B: that is LENGTH states instead of LENGTH times SEQUENCES
    loss, other = (by_kernel, by_kernel) if model == "linear" else (by_layer, by_loop)
    adam = optax.scale_by_adam()

    def run(carry: Carry, u: Any, y: Any, rate: Any) -> Any:
        trained = descent(lambda now: loss(now, u, y), adam, carry, jnp.full(CHUNK, rate))
        return trained.carry, trained.losses

    return adam.init, jax.jit(run), jax.jit(jax.value_and_grad(by_layer)), jax.jit(jax.value_and_grad(other))


STUDY = ConvolutionStudy()

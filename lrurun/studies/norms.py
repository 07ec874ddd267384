"""`norms`: whether the normaliser of the RotRNN keeps the norm of the hidden state at 1."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from lrurun.config.optimizers.adamw import AdamW
from lrurun.config.recurrences.lru import LRUSettings
from lrurun.config.recurrences.rotrnn import RotRNNSettings
from lrurun.config.schema import ModelConfig
from lrurun.data.task import Spec
from lrurun.report.figures.figures import Curve, Figure, Panel, line, points
from lrurun.studies.machinery.checks import Check, identity, sampling
from lrurun.studies.machinery.evidence import Evidence, StudyClaim, larger, positive, threshold, together
from lrurun.studies.machinery.study import Array, CellResult, Count, Results, Settings, Study, Values
from lrurun.studies.mathematics import layers
from lrurun.studies.mathematics.formulas import generator

HORIZON = 400
"""Steps of white input."""
SHOWN = (1, 2, 5, 10, 20, 50, 100, 200, 400)
"""The steps whose mean is recorded."""
HEAD, INPUTS, TOGETHER = 8, 16, 2000
"""Numbers of the head with white input, its inputs, and how many sequences are in memory at a time."""

Task = Literal["digits", "marked", "ListOps"]
Model = Literal["LRU", "RotRNN"]

MARKED_LENGTH = 128
LISTS = 96_000
"""Examples of ListOps, as many as the benchmark trains on."""
CHUNK = 10
"""Updates of one call of the compiled function."""

TASKS = {"digits": "digits by pixel", "marked": "marked digit", "ListOps": "ListOps"}
BOTH: dict[str, Any] = {"model": ["RotRNN", "LRU"], "sequences": 20_000}
PUBLISHED = {"width": 128, "state": 256, "heads": 32, "updates": 80_000, "rate": 1.0}
RATES: dict[Model, float] = {"RotRNN": 1e-3, "LRU": 2e-3}
"""The learning rates of the recipe ListOps."""
STAND_IN = "8x8 digits by pixel and a marked digit among random ones stand in for ListOps, which needs a GPU"

Even = Annotated[int, Meta(ge=2, le=65536, multiple_of=2)]


class Norms(Settings, frozen=True, kw_only=True):
    """White input into one head, the map of a RotRNN to an LRU, or a training."""

    task: Literal["white", "map", "digits", "marked", "ListOps"] = "white"
    model: Model = "RotRNN"
    decay: Annotated[float, Meta(ge=1e-3, le=0.9999)] = 0.99
    """gamma of the head with white input."""
    sequences: Count = 2000
    """The number of sequences of white input."""
    depth: Count = 1
    """The number of layers that are trained."""
    width: Count = 32
    state: Even = 64
    heads: Count = 8
    batch: Count = 32
    updates: Annotated[int, Meta(ge=CHUNK, le=10**8, multiple_of=CHUNK)] = 400
    rate: Annotated[float, Meta(ge=1e-3, le=10)] = 3.0
    """The learning rate over the rate of the recipe ListOps [ours: larger for fewer updates]."""

    def __post_init__(self) -> None:
        if self.state % (2 * self.heads):
            raise ValueError(f"heads must divide state into planes, found heads = {self.heads}, state = {self.state}")


def recurrence(model: Model, heads: int) -> RotRNNSettings | LRUSettings:
    """The layer, initialised as in the recipe ListOps."""
    if model == "RotRNN":
        return RotRNNSettings(heads=heads, r_min=0.5, r_max=0.999, max_phase=0.0314)
    return LRUSettings(normalize=True, r_min=0.0, r_max=0.99)


def optimiser(model: Model, rate: float) -> AdamW:
    """AdamW with warm-up, as in the recipe ListOps, at `rate` times its learning rate."""
    factor = 1.0 if model == "RotRNN" else 0.5
    return AdamW(lr=rate * RATES[model], recurrent_factor=factor, weight_decay=0.05)


def _constant(results: Results[Norms]) -> Evidence | None:
    white = results.where(task="white")
    if not len(white):
        return None
    shares = [result.curves["mean"][0] / result.curves["mean"][-1] for result in white]
    name = f"mean |h|² after the first of {HORIZON} white inputs over that after the last"
    return threshold(name, float(np.mean(shares)), supported=0.9, contradicted=0.5)


def _learned(result: CellResult[Norms]) -> bool:
    """Whether the loss has fallen by a tenth [ours]; norms of other trainings say nothing."""
    return result["last loss"] < 0.9 * result["first loss"]


def _pairs(results: Results[Norms], value: str, *, single: bool) -> dict[str, tuple[list[float], list[float]]]:
    """Task -> a number of the LRU and of the RotRNN by seed, of networks with one layer or with more that have learned
    something."""
    pairs = {}
    for task in [task for task in results.axis("task") if task in TASKS]:
        cells = results.where(lambda result: (result.cell.depth == 1) == single and _learned(result), task=task)
        lru, rotrnn = (cells.where(model=model).by_seed(value) for model in ("LRU", "RotRNN"))
        if seeds := sorted(lru.keys() & rotrnn.keys()):
            pairs[TASKS[task]] = [lru[seed] for seed in seeds], [rotrnn[seed] for seed in seeds]
    return pairs


def _larger_of_lru(value: str) -> Callable[[Results[Norms]], Evidence | None]:
    """Evidence that a number is larger for the LRU than for the RotRNN, in networks with several layers."""

    def evidence(results: Results[Norms]) -> Evidence | None:
        pairs = _pairs(results, value, single=False)
        return together(*(larger(f"{value}, LRU over RotRNN, {task}", *numbers) for task, numbers in pairs.items()))

    return evidence


def _single(results: Results[Norms]) -> Evidence | None:
    parts = []
    for task, (lru, rotrnn) in _pairs(results, "last norm", single=True).items():
        parts.append(larger(f"last norm, LRU over RotRNN, {task}", lru, rotrnn))
        far = [np.abs(np.log(norms) - np.median(np.log(norms))) for norms in (lru, rotrnn)]
        name = f"distance of ln(last norm) to the median over seeds, LRU minus RotRNN, {task}"
        parts.append(positive(name, list(far[0] - far[1])))
    return together(*parts)


class NormsStudy(Study[Norms]):
    name = "norms"
    aliases = ("rotrnn-fig3",)
    source = "Biegun et al. 2024, Fig. 3"
    question = "Does the RotRNN keep the norm of its hidden state constant, with white input and in training?"
    published = "On ListOps RotRNN's norms stay flat, equal over layers and seeds; the LRU's differ and keep moving."
    claims = (
        StudyClaim(
            text="White input keeps the expected norm of the RotRNN's state constant over the whole sequence",
            source="Biegun et al. 2024, section 4.1, Lemma 3",
            evidence=_constant,
        ),
        StudyClaim(
            text="In training the norms of a RotRNN change less than those of an LRU",
            source="Biegun et al. 2024, section 5.1, Fig. 3",
            evidence=_larger_of_lru("change"),
        ),
        StudyClaim(
            text="After training the norms of a RotRNN differ less over its layers than those of an LRU",
            source="Biegun et al. 2024, section 5.1, Fig. 3",
            evidence=_larger_of_lru("ratio over layers"),
        ),
        StudyClaim(
            text="With one layer the norms of the LRU are larger, and differ more over seeds",
            source="Biegun et al. 2024, section 5.1, Fig. 3",
            evidence=_single,
        ),
    )
    version = 2
    settings = Norms
    profiles = {
        "ci": {"task": ["white", "map"]},
        "laptop": BOTH | {"task": ["white", "map", "digits", "marked"], "depth": [1, 4]},
        "paper": BOTH | PUBLISHED | {"task": ["white", "map", "ListOps"], "depth": [1, 6]},
    }
    seeds = {"laptop": 5, "paper": 5}
    simulates = True
    stand_in = {
        "ci": "2,000 white sequences of one seed stand in for 20,000 of 5 and for all training.",
        "laptop": f"{STAND_IN}.",
    }

    def label(self, cell: Norms) -> str:
        return f"{cell.model}, {cell.task}"

    def has(self, cell: Norms) -> bool:
        return cell.task in TASKS or (cell.model, cell.depth) == ("RotRNN", 1)

    def steps(self, cell: Norms) -> int:
        return cell.updates if cell.task in TASKS else 1

    def simulate(self, cell: Norms, seed: int) -> Values | Generator[int, None, Values]:
        if cell.task == "white":
            return white(cell.decay, cell.sequences, seed)
        if cell.task == "map":
            return mapped(cell.width, cell.state, cell.heads, seed)
        shape = Shape(cell.task, cell.model, cell.depth, cell.width, cell.state, cell.heads)
        return train(shape, rate=cell.rate, updates=cell.updates, size=cell.batch, seed=seed)

    def checks(self, results: Results[Norms]) -> list[Check]:
        checks = []
        for result in results.where(task="white"):
            decay, where = result.cell.decay, f"of white input, decay {result.cell.decay:g}, seed {result.seed}"
            for t, *rest in zip(*(result.curves[name] for name in ("step", "mean", "trace", "stderr")), strict=True):
                # the layer's decay comes from float32 parameters
                checks.append(identity(f"E|h|² {where}, step {t:g}", rest[1], -np.expm1(2 * t * np.log(decay)), 1e-5))
                checks.append(sampling(f"mean |h|² of the layer {where}, step {t:g}", *rest))
        for result, name in product(results.where(task="map"), MAPPED):
            checks.append(identity(f"{name}, seed {result.seed}", result[name], 0.0, 1e-10))
        return checks

    def answer(self, results: Results[Norms]) -> str:
        changes = []
        for task, depth in product([task for task in results.axis("task") if task in TASKS], results.axis("depth")):
            moved = {
                model: np.mean([result["change"] for result in cells])
                for model in results.axis("model")
                if len(cells := results.where(task=task, depth=depth, model=model))
            }
            factors = ", ".join(f"{np.exp(change):.2f} ({model})" for model, change in moved.items())
            changes += [f"{TASKS[task]}, {layers_of(depth)}: {factors}"] if moved else []
        parts = []
        for result in results.where(task="white")[:1]:
            by_step = np.array([result.curves["step"], result.curves["mean"]])[:, [0, 6, 8]]
            norms = ", ".join(f"{mean:.3g} ({t:g})" for t, mean in by_step.T)
            parts.append(f"With white input and decay {result.cell.decay:g}, the mean of |h|² by step is {norms}")
        if apart := [result[MAPPED[1]] for result in results.where(task="map")]:
            parts.append(f"Outputs of a RotRNN and of its LRU differ by at most {max(apart):.1g}")
        if changes:
            parts.append(
                "In training norms change by these factors, in the geometric mean over layers and seeds: "
                f"{'; '.join(changes)}"
            )
        return f"{'. '.join(parts)}."

    def draw(self, results: Results[Norms]) -> Figure:
        panels = []
        for result in results.where(task="white")[:1]:
            steps = np.arange(1, HORIZON + 1)
            curves = (
                line("$1 - \\mathrm{decay}^{2t}$", steps, result.curves["expected"]),
                points("simulated, white input", result.curves["step"], result.curves["mean"]),
            )
            title = f"white, decay {result.cell.decay:g}"
            panels.append(Panel(title=title, x="step $t$", y="$E|h|^2$", curves=curves, x_scale="log"))
        for task, depth in product([task for task in results.axis("task") if task in TASKS], results.axis("depth")):
            cells = results.where(task=task, depth=depth)
            drawn = tuple(_band(cells.where(model=model)) for model in cells.axis("model"))
            title = f"{TASKS[task]}, {layers_of(depth)}"
            panels += [Panel(title=title, x="update", y="norm of the state", curves=drawn)] if drawn else []
        return Figure(panels=tuple(panels), columns=max(1, min(3, len(panels))))


def layers_of(depth: int) -> str:
    """The number of layers in words."""
    return "1 layer" if depth == 1 else f"{depth} layers"


def _band(cells: Results[Norms]) -> Curve:
    """The geometric mean of the norms of a model over layers and seeds, and the smallest and the largest of them."""
    logs = np.log([curve for cell in cells for name, curve in cell.curves.items() if name.startswith("norm")])
    middle, low, high = (np.exp(statistic(logs, axis=0)) for statistic in (np.mean, np.min, np.max))
    label = f"{cells[0].cell.model}, mean and range over layers and seeds"
    return line(label, cells[0].curves["updates"], middle, low=low, high=high)


class Head(NamedTuple):
    """x_t = A x_(t-1) + B u_t of one head, in real numbers (Biegun et al. 2024, eq. 12), not by the layer's code."""

    matrix: Array
    inward: Array
    decay: float
    angles: Array
    eigenvectors: Array
    """P: orthogonal, its columns in pairs."""


def head(params: dict[str, Array], number: int) -> Head:
    """A head of a RotRNN with these parameters."""
    from scipy.linalg import block_diag, expm

    decay, m, b = float(np.exp(-np.exp(params["gamma_log"][number]))), params["M"][number], params["B"][number]
    turns = [np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in params["theta"][number]]
    p = expm(m - m.T)
    inward = np.sqrt((1 - decay**2) / np.sum(b**2)) * b
    return Head(decay * p @ block_diag(*turns) @ p.T, inward, decay, params["theta"][number], p)


def white(decay: float, sequences: int, seed: int) -> dict[str, Any]:
    """E|h_t|^2 of a RotRNN layer with one head of 8 numbers and 16 white inputs, from a zero state.

    Returns:
        "step", and at each step: "mean" over sampled sequences, by the layer; "trace" of the covariance, which is
        exact; "stderr", the exact standard error of the mean. "expected", at the steps 1 to `HORIZON`: 1 - decay^2t.
    """
    import jax

    layer = layers.build(RotRNNSettings(r_min=decay, r_max=decay), width=INPUTS, state=HEAD)
    params = layers.initial(layer, seed, "white")
    squares = jax.jit(lambda u: layers.states(layer, params, u).abs2().sum(axis=(1, 2)))
    random, sums = generator(seed, "white"), np.zeros(HORIZON)
    for start in range(0, sequences, TOGETHER):
        size = min(TOGETHER, sequences - start)
        sums += np.asarray(squares(random.normal(size=(HORIZON, size, INPUTS))))
    matrix, inward, *_ = head(params, 0)
    covariance, rows = np.zeros((HEAD, HEAD)), []
    for t in range(1, HORIZON + 1):
        covariance = matrix @ covariance @ matrix.T + inward @ inward.T
        if t in SHOWN:
            # the variance of |h|^2 of a normal h with covariance S is 2 tr(S^2)
            stderr = np.sqrt(2 * np.sum(covariance**2) / sequences)
            rows.append((t, sums[t - 1] / sequences, np.trace(covariance), stderr))
    columns = dict(zip(("step", "mean", "trace", "stderr"), np.array(rows).T, strict=True))
    return columns | {"expected": -np.expm1(2 * np.arange(1, HORIZON + 1) * np.log(decay))}


MAPPED = ("RotRNN layer and its real form apart", "RotRNN and its LRU apart")


def mapped(width: int, state: int, heads: int, seed: int) -> dict[str, Any]:
    """A RotRNN layer, its real form head by head, and the LRU layer with its eigenvalues (Biegun et al. 2024, section
    4.1).

    lambda of a plane is decay exp(i theta). P^T xi B and C P, in pairs of rows and of columns, are B and conj(C); the
    LRU has B / sqrt(1 - |lambda|^2), because its own normaliser multiplies it.

    Returns:
        The names of `MAPPED` -> the largest difference of outputs over 200 steps, in units of the largest output.
    """
    import jax.numpy as jnp

    rotrnn = layers.build(RotRNNSettings(heads=heads), width=width, state=state)
    params = layers.initial(rotrnn, seed, "map")
    u = generator(seed, "map").normal(size=(200, width))
    real = params["D"] * u
    eigenvalues, inwards, outwards = [], [], []
    for number, c in enumerate(np.split(params["C"], heads, axis=1)):
        matrix, b, decay, angles, p = head(params, number)
        h = np.zeros(len(matrix))
        for t in range(len(u)):
            h = matrix @ h + b @ u[t]
            real[t] += c @ h
        eigenvalues.append(decay * np.exp(1j * angles))
        inwards.append((p.T @ b)[0::2] + 1j * (p.T @ b)[1::2])
        outwards.append((c @ p)[:, 0::2] - 1j * (c @ p)[:, 1::2])
    lam, b, c = np.concatenate(eigenvalues), np.concatenate(inwards), np.concatenate(outwards, axis=1)
    gamma = np.sqrt(1 - np.abs(lam) ** 2)
    b = b / gamma[:, None]
    lru = layers.build(LRUSettings(normalize=True, phase="log"), width=width, state=state // 2)
    of_lru = {
        "nu_log": np.log(-np.log(np.abs(lam))),
        "theta_log": np.log(np.angle(lam) % (2 * np.pi)),
        "gamma_log": np.log(gamma),
        **{"B_re": b.real, "B_im": b.imag, "C_re": c.real, "C_im": c.imag, "D": params["D"]},
    }
    first, second = (
        np.asarray(layer.scan({name: jnp.asarray(value) for name, value in table.items()}, jnp.asarray(u)[:, None]))
        for layer, table in ((rotrnn, params), (lru, of_lru))
    )
    apart = [np.max(np.abs(first[:, 0] - real)), np.max(np.abs(first - second))]
    return {name: float(distance / np.max(np.abs(real))) for name, distance in zip(MAPPED, apart, strict=True)}


class Shape(NamedTuple):
    """The settings that determine the compiled function."""

    task: Task
    model: Model
    depth: int
    width: int
    state: int
    heads: int


class Batch(NamedTuple):
    """Sequences and their classes."""

    inputs: np.ndarray
    labels: np.ndarray
    lengths: np.ndarray | None


SPECS = {
    "digits": Spec(name="digits", kind="features", features=1, classes=10, length=64, scale=1 / 16),
    "marked": Spec(name="marked", kind="tokens", features=21, classes=10, length=MARKED_LENGTH),
    "ListOps": Spec(name="ListOps", kind="tokens", features=16, classes=10, length=2000),
}


@cache
def _stored(task: Task) -> Batch:
    """All examples of a task that has a fixed number."""
    if task == "digits":
        from lrurun.data.synthetic.digits import splits

        train = splits()["train"]
        return Batch(train.inputs, train.labels, None)
    from lrurun.data.synthetic.listops_generator import generate

    rounds = list(generate(LISTS, 0))
    inputs, labels, lengths = (
        np.concatenate([getattr(examples, name) for examples in rounds]) for name in ("inputs", "labels", "lengths")
    )
    return Batch(inputs, labels, lengths)


def batch(task: Task, size: int, random: np.random.Generator) -> Batch:
    """Random examples. Tokens of "marked": 1 to 10 for the digits, 11 to 20 for a marked one, which is the class."""
    if task != "marked":
        data = _stored(task)
        chosen = random.integers(len(data.labels), size=size)
        return Batch(data.inputs[chosen], data.labels[chosen], None if data.lengths is None else data.lengths[chosen])
    inputs = random.integers(1, 11, (size, MARKED_LENGTH)).astype(np.uint8)
    rows, marked = np.arange(size), random.integers(MARKED_LENGTH, size=size)
    labels = inputs[rows, marked] - 1
    inputs[rows, marked] += 10
    return Batch(inputs, labels, None)


@cache
def _compiled(shape: Shape) -> Any:
    """(initial parameters of a seed, CHUNK updates, norms of a batch); see `train`."""
    import jax
    import jax.numpy as jnp
    import optax

    from lrurun.nn.network import Model as Network
    from lrurun.training import optimizer
    from lrurun.training.layout import Layout

    settings: Any = recurrence(shape.model, shape.heads)
    config = ModelConfig(recurrence=settings, depth=shape.depth, width=shape.width, state=shape.state)
    network, optim = Network(config, SPECS[shape.task]), optimiser(shape.model, 1.0)
    shapes, _ = network.shapes
    layout = Layout(shapes, optimizer.groups(optim, network.recurrence, shapes))
    adamw = optimizer.LayoutOptimizer(optim, layout)
    # E|h|^2 of white stationary input and the initial B: 1 for each unit of the LRU, 1 for each head of the RotRNN
    unit = np.float32(np.sqrt(shape.heads if shape.model == "RotRNN" else shape.state))

    def loss(params: Any, stats: Any, batch: Any) -> Any:
        logits, stats = network.apply(layout.tree(params), stats, batch.inputs, batch.lengths, train=True)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch.labels.astype(jnp.int32))), stats

    def update(carry: Any, many: Any) -> Any:
        (params, stats, state), (batch, rate) = carry, many
        (value, stats), slope = jax.value_and_grad(loss, has_aux=True)(params, stats, batch)
        changes, state = adamw.update(slope, state, params, rate=rate)
        return (optax.apply_updates(params, changes), stats, state), value

    def norms(params: Any, batch: Any, empty: Any) -> Any:
        params = layout.tree(params)
        # statistics of this batch alone, as in training: the averages start empty and are corrected for it
        _, stats = network.apply(params, empty, batch.inputs, batch.lengths, train=True)
        logits, layer_norms = network.evaluate(
            params, stats, batch.inputs, batch.lengths, jnp.ones(len(batch.labels), bool)
        )
        return layer_norms / unit, jnp.mean(jnp.argmax(logits, axis=1) == batch.labels)

    def init(seed: int) -> Any:
        params, stats = network.init(layers.key(seed, "init"))
        vector = layout.vector(params)
        return vector, stats, adamw.init(vector)

    def run(carry: Any, batches: Any, rates: Any) -> Any:
        return jax.lax.scan(update, carry, (batches, rates))

    return jax.jit(init), jax.jit(run), jax.jit(norms)


def train(shape: Shape, *, rate: float, updates: int, size: int, seed: int) -> Generator[int, None, dict[str, Any]]:
    """Trains as the recipe ListOps does, at `rate` times its learning rate; yields the update reached.

    Returns:
        "updates": where norms were measured; "norm, layer N": the mean over steps and sequences of the norm of the
        state, 1 for white stationary input at the start; "loss": mean over the updates since the last measurement;
        "accuracy" of the last measurement, on examples of the training set; "change", the mean over layers of
        |ln (last norm / first norm)|; "ratio over layers", largest to smallest last norm; "last norm", the geometric
        mean over layers.
    """
    import jax

    from lrurun.config.schedules import learning_rates

    init, run, norms = _compiled(shape)
    rates = learning_rates(optimiser(shape.model, rate), updates)
    random = generator(seed, "batches")
    probe = batch(shape.task, 64, generator(seed, "probe"))
    carry = init(seed)
    empty = carry[1]
    every = CHUNK * max(1, updates // (CHUNK * 20))
    measured_at, measured, losses, recent = [0], [norms(carry[0], probe, empty)], [], []
    for done in range(CHUNK, updates + 1, CHUNK):
        many = [batch(shape.task, size, random) for _ in range(CHUNK)]
        batches = jax.tree.map(lambda *arrays: np.stack(arrays), *many)
        carry, values = run(carry, batches, rates[done - CHUNK : done])
        recent.append(np.mean(values))
        if done % every == 0 or done == updates:
            measured_at.append(done)
            measured.append(norms(carry[0], probe, empty))
            losses.append(np.mean(recent))
            recent = []
        yield done
    table = np.array([layers for layers, _ in measured], np.float64)
    return {
        "updates": np.array(measured_at),
        **{f"norm, layer {number + 1}": column for number, column in enumerate(table.T)},
        "loss": np.array(losses),
        "first loss": losses[0],
        "last loss": losses[-1],
        "accuracy": float(measured[-1][1]),
        "change": float(np.mean(np.abs(np.log(table[-1] / table[0])))),
        "ratio over layers": float(table[-1].max() / table[-1].min()),
        "last norm": float(np.exp(np.mean(np.log(table[-1])))),
    }


STUDY = NormsStudy()

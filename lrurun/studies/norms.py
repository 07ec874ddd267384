"""`norms`: whether the normaliser of the RotRNN keeps the norm of the hidden state at 1."""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple
from zlib import crc32

import numpy as np
from msgspec import Meta

from lrurun.data.task import Spec
from lrurun.report.figures.figures import Curve, Figure, Panel, line, points
from lrurun.studies.checks import Check, below, identity, sampling
from lrurun.studies.formulas import generator
from lrurun.studies.study import Count, Radius, Rate, Results, Settings, Study, Values

HORIZON = 400
"""Steps of white input."""
SHOWN = (1, 2, 5, 10, 20, 50, 100, 200, 400)
"""The steps whose mean is recorded."""

Task = Literal["digits", "marked", "ListOps"]
Model = Literal["LRU", "RotRNN"]

MARKED_LENGTH = 128
LISTS = 96_000
"""Examples of ListOps, as many as the benchmark trains on."""
CHUNK = 10
"""Updates of one call of the compiled program."""

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
    """The number of sequences of white input."""
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
        checks = []
        for result in results.where(task="white"):
            decay, place = result.cell.decay, f"of white input, decay {result.cell.decay:g}, seed {result.seed}"
            for t, *rest in zip(*(result.curves[name] for name in ("step", "mean", "trace", "stderr")), strict=True):
                checks.append(identity(f"E|h|² {place}, step {t:g}", rest[1], -np.expm1(2 * t * np.log(decay))))
                checks.append(sampling(f"mean |h|² {place}, step {t:g}", *rest))
            if decay >= 0.9 and (after := round(1 / (1 - decay))) in SHOWN:  # then 1 - decay^2t is 0.86 to 0.88
                share = result.curves["trace"][SHOWN.index(after)]
                checks.append(below(f"share of the final |h|² after 1 / (1 - decay) steps {place}", share, 0.9))
        for result in results.where(task="map"):
            checks.append(
                identity(f"outputs of the RotRNN and of its LRU, seed {result.seed}", result["apart"], 0.0, 1e-10)
            )
        for result in results.where(lambda result: result.cell.task in TASKS):
            fallen = result["last loss"] / result["first loss"]
            checks.append(
                below(f"loss at the end over the start, {self.label(result.cell)}, seed {result.seed}", fallen, 0.9)
            )
        return checks

    def answer(self, results: Results[Norms]) -> str:
        changes = []
        for task in [task for task in results.axis("task") if task in TASKS]:
            moved = {
                model: np.mean([result["change"] for result in results.where(task=task, model=model)])
                for model in results.where(task=task).axis("model")
            }
            changes.append(
                f"on {TASKS[task]} norms change by a factor of "
                + ", ".join(f"{np.exp(change):.2f} ({model})" for model, change in moved.items())
            )
        parts = []
        for result in results.where(task="white")[:1]:
            by_step = np.array([result.curves["step"], result.curves["mean"]])[:, [0, 6, 8]]
            norms = ", ".join(f"{mean:.3g} ({t:g})" for t, mean in by_step.T)
            parts.append(f"With white input and decay {result.cell.decay:g}, the mean of |h|² by step is {norms}")
        if apart := [result["apart"] for result in results.where(task="map")]:
            parts.append(f"Outputs of a RotRNN and of its LRU differ by at most {max(apart):.1g}")
        if changes:
            parts.append(f"In training, {'; '.join(changes)}, in the geometric mean over layers and seeds")
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
        for task in [task for task in results.axis("task") if task in TASKS]:
            drawn = [_band(results.where(task=task, model=model)) for model in results.where(task=task).axis("model")]
            panels.append(Panel(title=TASKS[task], x="update", y="norm of the state", curves=tuple(drawn)))
        return Figure(panels=tuple(panels), columns=max(1, len(panels)))


def _band(cells: Results[Norms]) -> Curve:
    """The geometric mean of the norms of a model over layers and seeds, and the smallest and the largest of them."""
    logs = np.log([curve for cell in cells for name, curve in cell.curves.items() if name.startswith("norm")])
    middle, low, high = (np.exp(statistic(logs, axis=0)) for statistic in (np.mean, np.min, np.max))
    label = f"{cells[0].cell.model}, mean and range over layers and seeds"
    return line(label, cells[0].curves["updates"], middle, low=low, high=high)


def white(decay: float, sequences: int, seed: int) -> dict[str, Any]:
    """E|h_t|^2 of a head of 8 numbers with 16 white inputs, from a zero state.

    Returns:
        "step", and at each step: "mean" over sampled sequences; "trace" of the covariance, which is exact; "stderr",
        the exact standard error of the mean. "expected", at the steps 1 to `HORIZON`: 1 - decay^2t.
    """
    from scipy.stats import ortho_group

    random = generator(seed, "white")
    turn = decay * ortho_group.rvs(8, random_state=random)
    inward = random.normal(size=(8, 16))
    inward *= np.sqrt((1 - decay**2) / np.sum(inward**2))
    covariance, state = np.zeros((8, 8)), np.zeros((sequences, 8))
    rows = []
    for t in range(1, HORIZON + 1):
        covariance = turn @ covariance @ turn.T + inward @ inward.T
        state = state @ turn.T + random.normal(size=(sequences, 16)) @ inward.T
        if t in SHOWN:
            # the variance of |h|^2 of a normal h with covariance S is 2 tr(S^2)
            stderr = np.sqrt(2 * np.sum(covariance**2) / sequences)
            rows.append((t, np.mean(np.sum(state**2, axis=1)), np.trace(covariance), stderr))
    columns = dict(zip(("step", "mean", "trace", "stderr"), np.array(rows).T, strict=True))
    return columns | {"expected": -np.expm1(2 * np.arange(1, HORIZON + 1) * np.log(decay))}


def mapped(width: int, state: int, heads: int, seed: int) -> dict[str, Any]:
    """A RotRNN in real numbers, head by head (its paper, eq. 12), and the LRU layer with its eigenvalues.

    lambda of a plane is decay exp(i theta). P^T xi B and C P, in pairs of rows and of columns, are B and conj(C); the
    LRU has B / sqrt(1 - |lambda|^2), because its own normaliser multiplies it.

    Returns:
        "apart": the largest difference of their outputs over 200 steps, in units of the largest output.
    """
    import jax
    import jax.numpy as jnp
    from scipy.linalg import block_diag, expm

    from lrurun.config.recurrences.lru import LRURecurrence
    from lrurun.config.recurrences.rotrnn import RotRNNRecurrence
    from lrurun.nn import recurrences

    rotrnn = recurrences.build(RotRNNRecurrence(heads=heads), width=width, state=state)
    initial = rotrnn.init(jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), crc32(b"map")))
    params = {name: np.asarray(value, np.float64) for name, value in initial.items()}
    u = generator(seed, "map").normal(size=(200, width))
    outputs = params["D"] * u
    eigenvalues, inwards, outwards = [], [], []
    for head, c in enumerate(np.split(params["C"], heads, axis=1)):
        decay = np.exp(-np.exp(params["gamma_log"][head]))
        p = expm(params["M"][head] - params["M"][head].T)
        angles = params["theta"][head]
        turns = [np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in angles]
        matrix, b = decay * p @ block_diag(*turns) @ p.T, params["B"][head]
        b = np.sqrt((1 - decay**2) / np.sum(b**2)) * b
        h = np.zeros(len(matrix))
        for t in range(len(u)):
            h = matrix @ h + b @ u[t]
            outputs[t] += c @ h
        eigenvalues.append(decay * np.exp(1j * angles))
        inwards.append((p.T @ b)[0::2] + 1j * (p.T @ b)[1::2])
        outwards.append((c @ p)[:, 0::2] - 1j * (c @ p)[:, 1::2])
    lam, b, c = np.concatenate(eigenvalues), np.concatenate(inwards), np.concatenate(outwards, axis=1)
    gamma = np.sqrt(1 - np.abs(lam) ** 2)
    b = b / gamma[:, None]
    lru = recurrences.build(LRURecurrence(normalize=True, phase="log"), width=width, state=state // 2)
    of_lru = {
        "nu_log": np.log(-np.log(np.abs(lam))),
        "theta_log": np.log(np.angle(lam) % (2 * np.pi)),
        "gamma_log": np.log(gamma),
        **{"B_re": b.real, "B_im": b.imag, "C_re": c.real, "C_im": c.imag, "D": params["D"]},
    }
    same = lru.scan({name: jnp.asarray(value) for name, value in of_lru.items()}, jnp.asarray(u)[:, None])
    return {"apart": float(np.max(np.abs(np.asarray(same)[:, 0] - outputs)) / np.max(np.abs(outputs)))}


class Shape(NamedTuple):
    """The settings that determine the compiled program."""

    task: Task
    model: Model
    depth: int
    width: int
    state: int
    heads: int
    r_min: float
    r_max: float


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
        from lrurun.data.generated.digits import splits

        train = splits()["train"]
        return Batch(train.inputs, train.labels, None)
    from lrurun.data.generated.generators.listops import generate

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
    rows, places = np.arange(size), random.integers(MARKED_LENGTH, size=size)
    labels = inputs[rows, places] - 1
    inputs[rows, places] += 10
    return Batch(inputs, labels, None)


@cache
def _programs(shape: Shape, rate: float, updates: int) -> Any:
    """(initial parameters of a seed, CHUNK updates, norms of a batch); see `train`."""
    import jax
    import jax.numpy as jnp
    import optax

    from lrurun.config.recurrences.lru import LRURecurrence
    from lrurun.config.recurrences.rotrnn import RotRNNRecurrence
    from lrurun.config.schema import ModelConfig
    from lrurun.nn.network import Model as Network

    recurrence: Any = (
        RotRNNRecurrence(heads=shape.heads, r_min=shape.r_min, r_max=shape.r_max)
        if shape.model == "RotRNN"
        else LRURecurrence(normalize=True, phase="log", r_min=shape.r_min, r_max=shape.r_max)
    )
    network = Network(
        ModelConfig(recurrence=recurrence, depth=shape.depth, width=shape.width, state=shape.state), SPECS[shape.task]
    )
    # E|h|^2 of white stationary input and the initial B: 1 for each unit of the LRU, 1 for each head of the RotRNN
    unit = np.float32(np.sqrt(shape.heads if shape.model == "RotRNN" else shape.state))
    adam = optax.adam(optax.cosine_decay_schedule(rate, updates))

    def loss(params: Any, stats: Any, batch: Any) -> Any:
        logits, stats = network.apply(params, stats, batch.inputs, batch.lengths, train=True)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch.labels.astype(jnp.int32))), stats

    def update(carry: Any, batch: Any) -> Any:
        params, stats, state = carry
        (value, stats), slope = jax.value_and_grad(loss, has_aux=True)(params, stats, batch)
        change, state = adam.update(slope, state, params)
        return (optax.apply_updates(params, change), stats, state), value

    def norms(params: Any, batch: Any, empty: Any) -> Any:
        # statistics of this batch alone, as in training: the averages start empty and are corrected for it
        _, stats = network.apply(params, empty, batch.inputs, batch.lengths, train=True)
        logits, layer_norms = network.evaluate(
            params, stats, batch.inputs, batch.lengths, jnp.ones(len(batch.labels), bool)
        )
        return layer_norms / unit, jnp.mean(jnp.argmax(logits, axis=1) == batch.labels)

    def init(seed: int) -> Any:
        key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), crc32(b"init"))
        params, stats = network.init(key)
        return params, stats, adam.init(params)

    return jax.jit(init), jax.jit(lambda carry, many: jax.lax.scan(update, carry, many)), jax.jit(norms)


def train(shape: Shape, *, rate: float, updates: int, size: int, seed: int) -> Generator[int, None, dict[str, Any]]:
    """Trains by Adam with a cosine; yields the update reached.

    Returns:
        "updates": where norms were measured; "norm, layer N": the mean over steps and sequences of the norm of the
        state, 1 for white stationary input at the start; "loss": mean over the updates since the last measurement;
        "accuracy" of the last measurement, on examples of the training set; "change", the mean over layers of
        |ln (last norm / first norm)|; "ratio over layers", largest to smallest last norm.
    """
    import jax

    init, run, norms = _programs(shape, rate, updates)
    random = generator(seed, "batches")
    probe = batch(shape.task, 64, generator(seed, "probe"))
    carry = init(seed)
    empty = carry[1]
    every = CHUNK * max(1, updates // (CHUNK * 20))
    measured_at, measured, losses, recent = [0], [norms(carry[0], probe, empty)], [], []
    for done in range(CHUNK, updates + 1, CHUNK):
        many = [batch(shape.task, size, random) for _ in range(CHUNK)]
        carry, values = run(carry, jax.tree.map(lambda *arrays: np.stack(arrays), *many))
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
    }


STUDY = NormsStudy()

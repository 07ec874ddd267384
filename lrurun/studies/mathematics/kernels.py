"""Training of linear recurrent networks on linear teachers, in the form of their kernels.

Teacher and student have one input and one output and are linear, so that y = k * x with a kernel k of `LENGTH`
numbers. With d the student's kernel less the teacher's, the loss of a batch is d' G d / 2, where G is the batch's
matrix of lagged products. That is the mean of half the squared error, and has the gradient of backpropagation through
time, without most of its cost. Students are the layers of `lrurun.nn`, and their kernels the responses of these to an
impulse. Setting of Zucchet and Orvieto 2024, section 4 and tables 1 to 3.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, get_args

import numpy as np
from msgspec import Meta

from lrurun.studies.machinery.checks import Check, identity, nan_last, sampling
from lrurun.studies.machinery.study import Array, Results, Values
from lrurun.studies.mathematics import layers
from lrurun.studies.mathematics.descent import descent
from lrurun.studies.mathematics.formulas import generator

if TYPE_CHECKING:
    from lrurun.nn.recurrences import Recurrence

LENGTH: Final = 300
"""Steps of a sequence."""
BATCH: Final = 128
WIDTH: Final = 64
"""Hidden units of the student: real ones of a dense or block-diagonal matrix, or complex ones of a diagonal."""
CHUNK: Final = 50
"""Updates between two points where training may be stopped."""
DIVERGED: Final = 1e6
"""[ours] A loss of this many times the loss of the output 0 counts as infinite: Adam does not return from there."""

Architecture = Literal["dense", "block", "block-64", "complex", "gamma", "lru"]
ARCHITECTURES: Final[tuple[Architecture, ...]] = get_args(Architecture)
TITLES: Final[dict[Architecture, str]] = {
    "dense": "dense",
    "block": "blocks",
    "block-64": "64 blocks",
    "complex": "complex",
    "gamma": "+ γ",
    "lru": "LRU",
}
REAL: Final[tuple[Architecture, ...]] = ("dense", "block", "block-64")
"""Students with a real matrix."""

Nu = Annotated[float, Meta(ge=0, le=0.9999)]
"""The smallest |λ| of a teacher; closer to 1, layers cannot sample the |λ| of a student evenly in float32."""
Initial = Literal["zero", "teacher"]
"""The lower bound of the initial |λ| of a real student: 0, or the teacher's. A complex student always has the
teacher's."""
Rates = dict[bool, list[float]]
"""Learning rates of real (True) and of complex students (False)."""
PUBLISHED: Final[Rates] = {
    True: [1e-5, 3.16e-5, 1e-4, 3.16e-4, 1e-3, 3.16e-3],
    False: [3.16e-3, 0.01, 0.0316, 0.1, 0.316],
}
"""Tables 1 and 2."""
REDUCED: Final[Rates] = {True: PUBLISHED[True][2:], False: PUBLISHED[False][:-1]}
"""[ours] The rates in `PUBLISHED` that win with 1,500 updates, and their neighbours."""

_FIRST, _SECOND, _EPSILON = 0.9, 0.999, 1e-8
"""Adam's constants."""

Parameters = dict[str, Any]


class Trained(NamedTuple):
    """The end of a training: the values of a cell, and what Adam has."""

    values: Values
    parameters: Parameters
    first: Parameters
    """Adam's mean of the gradient, without correction of the bias."""
    second: Parameters
    """Adam's mean of its square, likewise."""


def union(rates: Rates) -> list[float]:
    """All learning rates of a grid, the axis from which `tried` takes the rates of an architecture."""
    return sorted({*rates[True], *rates[False]})


def tried(architecture: Architecture, lr: float, initial: Initial, rates: Rates) -> bool:
    """Whether an architecture is trained at this point of a grid: not at rates that only the other ones have."""
    real = architecture in REAL
    return (lr in rates[real] or lr not in rates[not real]) and (real or initial == "zero")


def teacher_kernel(nu: float, seed: int, angle: float = np.pi) -> Array:
    """The kernel of a random teacher of 10 units, of `LENGTH` lags; phases of eigenvalues are up to `angle`."""
    from lrurun.data.sampled import teacher

    options = teacher.TeacherOptions(nu=nu, teacher=seed, max_phase=angle)
    return teacher.teacher(options).kernel(LENGTH)


@cache
def layer(architecture: Architecture, radius: float = 0.0, angle: float = np.pi) -> Recurrence:
    """The layer that is the student, with |λ| of its initial eigenvalues from `radius` and phases up to `angle`.

    Phases of complex eigenvalues are positive: λ and its conjugate with conjugate weights are the same unit, because
    the output is a real part.
    """
    from lrurun.config.recurrences.block_diagonal import BlockDiagonalSettings
    from lrurun.config.recurrences.lru import LRUSettings
    from lrurun.config.recurrences.rnn import RNNSettings

    settings: Any
    if architecture == "dense":
        settings = RNNSettings(activation="identity")  # `student` moves its eigenvalues
    elif architecture in REAL:
        settings = BlockDiagonalSettings(doubled=architecture == "block-64", r_min=radius, max_phase=angle)
    elif architecture == "lru":
        settings = LRUSettings(phase="log", r_min=radius, max_phase=angle, normalize=True)
    else:
        settings = LRUSettings(
            parametrization="cartesian", r_min=radius, max_phase=angle, normalize=architecture == "gamma"
        )
    built: Recurrence = layers.build(settings, width=1, state=WIDTH)
    return built


def student(
    architecture: Architecture, nu: float, seed: int, angle: float = np.pi, initial: Initial = "zero"
) -> Parameters:
    """Initial parameters of the layer, float64. All complex students of a seed start with the same eigenvalues
    and weights.

    The eigenvalues of the dense matrix are moved as the teacher's (eq. 133). Input and output weights are normal as in
    all layers of this package; the paper truncates them.
    """
    from lrurun.nn.recurrences import rnn

    radius = start_radius(architecture, nu, initial)
    parameters = _drawn(architecture, radius, angle, seed)
    if architecture == "dense":
        parameters["A"] = np.asarray(rnn.remapped(parameters["A"], radius, angle))
    return parameters


def _drawn(architecture: Architecture, radius: float, angle: float, seed: int) -> Parameters:
    """The initial parameters of the layer, float64."""
    import jax

    drawn = jax.jit(layer(architecture, radius, angle).init)(layers.key(seed, "student"))
    return {name: np.asarray(value, float) for name, value in drawn.items()}


def start_radius(architecture: Architecture, nu: float, initial: Initial) -> float:
    """The lower bound of the initial |λ| of a student, whose teacher has `nu`."""
    return 0.0 if architecture in REAL and initial == "zero" else nu


def eigenvalues(parameters: Parameters) -> Array:
    """λ of a complex student, (WIDTH,), by its parameters: not as the layer computes them."""
    p = parameters
    if "lam_re" in p:
        return np.asarray(p["lam_re"] + 1j * p["lam_im"])
    return np.asarray(np.exp(-np.exp(p["nu_log"]) + 1j * np.exp(p["theta_log"])))


def formula(parameters: Parameters) -> Array:
    """The kernel of a student, (LENGTH,), by the powers of its matrix: C A^n B + D at n = 0, or the real part of
    sum c λ^n γ b."""
    p, kernel = parameters, np.zeros(LENGTH)
    if "A" not in p:
        weights = (p["C_re"] + 1j * p["C_im"])[0] * (p["B_re"] + 1j * p["B_im"])[:, 0] * np.exp(p.get("gamma_log", 0.0))
        kernel = np.real(np.exp(np.arange(LENGTH)[:, None] * np.log(eigenvalues(p))) @ weights)
    else:
        blocks = p["A"] if p["A"].ndim == 3 else p["A"][None]
        # block m of M has the numbers m and M + m of the state
        state, output = (p[name].reshape(blocks.shape[1], -1).T for name in ("B", "C"))
        for lag in range(LENGTH):
            kernel[lag] = np.sum(output * state)
            state = np.einsum("mij,mj->mi", blocks, state)
    kernel[0] += p["D"][0]
    return kernel


def expected_loss(difference: Any) -> Any:
    """The mean of the loss over white inputs, of the difference of two kernels: exact for sequences of `LENGTH`."""
    return 0.5 * (1 - np.arange(LENGTH) / LENGTH) @ difference**2


def loss_spread(difference: Array) -> tuple[float, float]:
    """Mean and standard deviation of the loss of one white sequence, from the matrix that makes the error of it."""
    lags = np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH))
    matrix = np.where(lags >= 0, difference[lags], 0.0)
    covariance = matrix @ matrix.T
    return 0.5 * np.trace(covariance) / LENGTH, float(np.sqrt(0.5 * np.sum(covariance**2)) / LENGTH)


def lagged_products(inputs: Array) -> Array:
    """G of batches of sequences: (updates, batch, LENGTH) -> (updates, LENGTH, LENGTH).

    G[n, m] is the mean over batch and time t of x_(t-n) x_(t-m), with 0 before the start.
    """
    products = np.array(_products()(inputs[..., ::-1]))
    for row in range(LENGTH - 2, -1, -1):
        products[:, row, :-1] += products[:, row + 1, 1:]
    products /= inputs.shape[1] * LENGTH
    return products


def kernel_of(architecture: Architecture, parameters: Parameters) -> Any:
    """The kernel of a student, (LENGTH,): the layer's response to an impulse."""
    import jax.numpy as jnp

    impulse = jnp.zeros((LENGTH, 1, 1), float).at[0].set(1.0)
    return layer(architecture).scan(parameters, impulse)[:, 0, 0]


def _through_time(architecture: Architecture) -> Any:
    """(parameters, target, inputs) -> the loss of a batch, as the layer itself computes it step by step."""
    import jax
    import jax.numpy as jnp

    def loss(parameters: Parameters, target: Any, inputs: Any) -> Any:
        outputs = layer(architecture).scan(parameters, inputs.T[..., None])[..., 0].T
        targets = jax.vmap(lambda x: jnp.convolve(x, target)[:LENGTH])(inputs)
        return 0.5 * jnp.mean((outputs - targets) ** 2)

    return loss


def _by_kernel(architecture: Architecture) -> Any:
    """(parameters, target, G) -> the loss of a batch."""

    def loss(parameters: Parameters, target: Any, products: Any) -> Any:
        difference = kernel_of(architecture, parameters) - target
        return 0.5 * difference @ products @ difference

    return loss


@cache
def _gradients(architecture: Architecture) -> Any:
    """(parameters, target, inputs, G) -> kernel; gradients by backpropagation through time and by the kernel."""
    import jax

    def compute(parameters: Parameters, target: Any, inputs: Any, products: Any) -> Any:
        slow = jax.grad(_through_time(architecture))(parameters, target, inputs)
        fast = jax.grad(_by_kernel(architecture))(parameters, target, products)
        return kernel_of(architecture, parameters), slow, fast

    return jax.jit(compute)


@cache
def _products() -> Any:
    """Inputs (updates, BATCH, LENGTH) -> products of time steps, (updates, LENGTH, LENGTH)."""
    import jax

    # Not NumPy's, whose threads wait busily for each other where several workers share the cores.
    return jax.jit(lambda reverse: jax.lax.map(lambda x: x.T @ x, reverse))


@cache
def _updates(architecture: Architecture) -> Any:
    """(parameters, state of Adam, target, G of each update, rate of each) -> the first two, losses before updates."""
    import jax
    import jax.numpy as jnp
    import optax

    adam = optax.scale_by_adam()

    def run(parameters: Parameters, state: Any, target: Any, products: Any, rates: Any) -> Any:
        def loss(now: Parameters, matrix: Any) -> Any:
            return _by_kernel(architecture)(now, target, matrix.astype(jnp.float64))

        (parameters, state), losses, _ = descent(loss, adam, (parameters, state), rates, (products,))
        error = kernel_of(architecture, parameters) - target
        return parameters, state, losses, expected_loss(error)

    return jax.jit(run)


def train(
    architecture: Architecture,
    nu: float,
    lr: float,
    seed: int,
    *,
    updates: int,
    cosine: bool = True,
    angle: float = np.pi,
    initial: Initial = "zero",
) -> Generator[int, None, Trained]:
    """Trains a student with Adam on batches of white inputs, the same for all architectures of a seed.

    Yields the update reached. Values: `loss` is the exact expected loss at the end, `batches` the mean over the last
    100 batches, `baseline` the loss of the output 0; NaN if it diverged. The curve `losses` over `update` is the
    expected loss.

    Args:
        cosine: whether the rate falls to 0 by a cosine; else it is constant.
        angle: the largest phase of eigenvalues, of teacher and student.
        initial: see `Initial`.
    """
    import optax

    target, parameters = teacher_kernel(nu, seed, angle), student(architecture, nu, seed, angle, initial)
    baseline, state = float(expected_loss(target)), optax.scale_by_adam().init(parameters)
    rates = lr * (0.5 * (1 + np.cos(np.pi * np.arange(updates) / updates)) if cosine else np.ones(updates))
    rng = generator(seed, "batches")
    start = _start(architecture, parameters, target, seed)
    start |= _initial(architecture, parameters, start_radius(architecture, nu, initial), angle, seed)
    reached, curve, losses, loss = [0], [start["expected"]], np.empty(0), float(start["expected"])
    for done in range(0, updates, CHUNK):
        count = min(CHUNK, updates - done)
        # Sampled and multiplied in float32: the loss is still 0 exactly where the kernels are equal.
        products = lagged_products(rng.standard_normal((count, BATCH, LENGTH), dtype=np.float32))
        parameters, state, now, exact = _updates(architecture)(
            parameters, state, target, products, rates[done : done + count]
        )
        losses, loss = np.append(losses, now)[-100:], float(exact)
        if not loss < DIVERGED * baseline:
            loss, losses = np.nan, np.full(1, np.nan)
            break
        reached.append(done + count)
        curve.append(loss)
        yield done + count
    values: Values = {
        **start,
        "loss": loss,
        "batches": float(np.mean(losses)),
        "baseline": baseline,
        "lr": lr,
        "update": np.array(reached),
        "losses": np.array(curve),
    }
    return Trained(values, parameters, state.mu, state.nu)


def effective(trained: Trained, lr: float, updates: int) -> tuple[dict[str, Array], dict[str, Array], float]:
    """Name -> step per gradient, and the published one; largest relative error of that by Adam's formula.

    The published step is Adam's answer to a gradient of ones. It adds them to both means, and has the sign of the
    mean gradient where that is larger than they are.
    """
    import jax
    import optax

    adam = optax.scale_by_adam()
    state = adam.init(trained.parameters)._replace(count=np.int32(updates), mu=trained.first, nu=trained.second)
    answers = adam.update(jax.tree.map(np.ones_like, trained.parameters), state)[0]
    steps, published, errors = {}, {}, []
    for name, second in trained.second.items():
        square = np.asarray(second).ravel()
        first = (_FIRST * np.asarray(trained.first[name]).ravel() + 1 - _FIRST) / (1 - _FIRST ** (updates + 1))
        root = np.sqrt((_SECOND * square + 1 - _SECOND) / (1 - _SECOND ** (updates + 1)))
        published[name] = lr * np.asarray(answers[name]).ravel()
        errors.append(float(np.max(np.abs(published[name] / (lr * first / (root + _EPSILON)) - 1))))
        steps[name] = lr / (np.sqrt(square / (1 - _SECOND**updates)) + _EPSILON)
    return steps, published, max(errors, key=nan_last)


def _start(architecture: Architecture, parameters: Parameters, target: Array, seed: int) -> Values:
    """The numbers at the initial parameters that the checks compare."""
    inputs = generator(seed, "checks").standard_normal((4, BATCH, LENGTH))
    products = lagged_products(inputs)
    kernel, slow, fast = _gradients(architecture)(parameters, target, inputs[0], products[0])
    theory, difference = formula(parameters), np.asarray(kernel) - target
    error, size = (np.sqrt(sum(np.sum(g[name] ** 2) for name in slow)) for g in (_less(slow, fast), slow))
    mean, spread = loss_spread(difference)
    return {
        "kernel error": float(np.max(np.abs(kernel - theory)) / np.max(np.abs(theory))),
        "expected": float(expected_loss(difference)),
        "expected by covariance": mean,
        "sampled": float(0.5 * difference @ products.mean(axis=0) @ difference),
        "stderr": spread / np.sqrt(4 * BATCH),
        "gradient error": float(error / size),
    }


def _initial(architecture: Architecture, parameters: Parameters, radius: float, angle: float, seed: int) -> Values:
    """The initial matrix against the distribution of its eigenvalues: deviations of means in exact standard errors."""
    from lrurun.data.sampled.teacher import moved

    if architecture == "dense":
        wanted = moved(_drawn(architecture, radius, angle, seed)["A"], radius, angle)
        return {"matrix error": float(np.max(np.abs(parameters["A"] - wanted)) / np.max(np.abs(wanted)))}
    if architecture in REAL:
        return {}
    numbers = eigenvalues(parameters)
    squared, phase = np.abs(numbers) ** 2, np.angle(numbers) % (2 * np.pi)
    # uniform in area: squared radii and phases are uniform, from radius^2 to 1 and from 0 to the angle
    values: Values = {
        "radius deviation": _deviation(squared, radius**2, 1.0),
        "phase deviation": _deviation(phase, 0.0, angle),
    }
    if "gamma_log" in parameters:
        values["gamma error"] = float(np.max(np.abs(np.exp(2 * parameters["gamma_log"]) + squared - 1)))
    return values


def _deviation(samples: Array, low: float, high: float) -> float:
    """The mean of samples less the mean of a uniform distribution, in standard errors of the latter."""
    stderr = (high - low) / np.sqrt(12 * len(samples))
    return float((np.mean(samples) - (low + high) / 2) / stderr)


def _less(gradient: Parameters, reference: Parameters) -> Parameters:
    return {name: gradient[name] - reference[name] for name in gradient}


def start_checks(results: Results[Any]) -> list[Check]:
    """The checks of layers and of the kernel form, of the worst cell of each architecture."""
    checks = []
    identities = (
        ("kernel error", "the layer's kernel less that by powers of its matrix, relative", 1e-10),
        ("gradient error", "relative error of the gradient by kernel", 1e-12),
        ("matrix error", "the initial matrix less eq. 133, relative", 1e-8),
        ("gamma error", "γ² + |λ|² - 1 at the start", 1e-6),  # parameters are initialised in float32
    )
    deviations = (("radius deviation", "mean of |λ|²"), ("phase deviation", "mean phase of λ"))
    for name in results.axis("architecture"):
        cells = list(results.where(architecture=name))
        for value, text, tolerance in identities:
            if value in cells[0].values:
                checks.append(
                    identity(f"{name}: {text}", max((cell[value] for cell in cells), key=nan_last), 0.0, tolerance)
                )
        for value, text in deviations:
            if value in cells[0].values:
                farthest = max((cell[value] for cell in cells), key=nan_last)
                checks.append(sampling(f"{name}: {text} at the start, in standard errors", farthest, 0.0, 1.0))
        worst = max(cells, key=lambda cell: nan_last(cell["expected"] / cell["expected by covariance"] - 1))
        checks.append(
            identity(f"{name}: expected loss at the start", worst["expected"], worst["expected by covariance"], 1e-10)
        )
        worst = max(cells, key=lambda cell: nan_last((cell["sampled"] - cell["expected"]) / cell["stderr"]))
        checks.append(
            sampling(f"{name}: sampled loss at the start", worst["sampled"], worst["expected"], worst["stderr"])
        )
    return checks


def best(results: Results[Any], architecture: Architecture, **at: Any) -> Results[Any]:
    """The cells at the learning rate, and the initial matrix, with the smallest mean loss over seeds; empty if a cell
    diverged at each."""
    candidates = [
        results.where(architecture=architecture, initial=initial, **at).best("lr", "loss")
        for initial in results.axis("initial")
    ]
    return min(
        (cells for cells in candidates if cells),
        key=lambda cells: np.mean(list(cells.by_seed("loss").values())),
        default=results.where(lambda _: False),
    )


def by_seed(results: Results[Any], architecture: Architecture, **at: Any) -> dict[int, float]:
    """Seed -> loss, of the cells that are `best`."""
    return best(results, architecture, **at).by_seed("loss")


def ratios(first: dict[int, float], second: dict[int, float]) -> list[float]:
    """The ratio of two losses of each seed; one NaN where there are none."""
    return [first[seed] / second[seed] for seed in first if seed in second] or [np.nan]


def pairs(first: dict[int, float], second: dict[int, float]) -> tuple[list[float], list[float]]:
    """The numbers of the seeds that both have."""
    seeds = [seed for seed in first if seed in second]
    return [first[seed] for seed in seeds], [second[seed] for seed in seeds]


def centre(losses: dict[int, float]) -> str:
    """Mean and median, as "1.2e-05 (3.4e-06)"."""
    values = list(losses.values())
    return f"{np.mean(values):.2g} ({np.median(values):.2g})" if values else "diverged"

"""Training of linear recurrent networks on linear teachers, in the form of their kernels.

Teacher and student have one input and one output and are linear, so that y = k * x with a kernel k of `LENGTH`
numbers. With d the student's kernel less the teacher's, the loss of a batch is d' G d / 2, where G is the batch's
matrix of lagged products. That is the mean of half the squared error, and has the gradient of backpropagation through
time, without its cost. Setting of Zucchet and Orvieto 2024, section 4 and tables 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args

import numpy as np
from msgspec import Meta

from lrurun.studies.checks import Check, identity, sampling
from lrurun.studies.formulas import generator
from lrurun.studies.study import Array, Results, Values

LENGTH: Final = 300
"""Steps of a sequence."""
BATCH: Final = 128
WIDTH: Final = 64
"""Hidden units of the student: real ones of a dense or block-diagonal matrix, or complex ones of a diagonal."""
CHUNK: Final = 50
"""Updates between two points where training may be stopped."""
ROWS: Final = 15
"""The kernel is made of this many rows, of LENGTH / ROWS lags each."""
DIVERGED: Final = 1e6
"""[ours] A loss of this many times that of the output 0 counts as infinite: Adam does not return from there."""

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
_BLOCKS: Final = {"dense": (1, WIDTH), "block": (WIDTH // 2, 2), "block-64": (WIDTH, 2)}
"""Number and size of the blocks of the recurrent matrix."""
LOWEST: Final[dict[Architecture, float]] = {
    "dense": 1e-4,
    "block": 1e-3,
    "block-64": 1e-3,
    "complex": 1e-3,
    "gamma": 3.2e-3,
    "lru": 3.2e-3,
}
"""[ours] The lowest learning rate of the search; the best one is inside the GRID of multiples of this."""

GRID: Final = [1.0, 3.2, 10.0, 32.0]
"""Learning rates, as multiples of the lowest."""
Multiple = Annotated[float, Meta(gt=0, le=1000)]

_FIRST, _SECOND, _EPSILON = 0.9, 0.999, 1e-8
"""Adam's constants."""
LARGEST: Final = (1 - _FIRST) / np.sqrt((1 - _SECOND) * (1 - _FIRST**2 / _SECOND))
"""No step of Adam is larger, over the learning rate (Cauchy's inequality): 7.27. Its answer to a gradient of ones is
near 3.16 where the gradients before were negligible."""

Parameters = dict[str, Any]


class Trained(NamedTuple):
    """The end of a training: the values of a cell, and what Adam has."""

    values: Values
    parameters: Parameters
    first: Parameters
    """Adam's mean of the gradient, without correction of the bias."""
    second: Parameters
    """Adam's mean of its square, likewise."""


def teacher(nu: float, seed: int, angle: float = np.pi) -> Array:
    """The kernel of a random teacher of 10 units, of `LENGTH` lags; phases of eigenvalues are up to `angle`."""
    from lrurun.data.sampled import teacher as task

    options = task.TeacherOptions(nu=nu, teacher=seed, max_phase=angle)
    return task.teacher(options).kernel(LENGTH)


def student(architecture: Architecture, nu: float, seed: int, angle: float = np.pi) -> Parameters:
    """Initial parameters: eigenvalues of dense and blocks as of a teacher with nu = 0, of diagonals between nu and 1.

    The input and output weights of real students have variance 1 / (number of their inputs); those of complex ones
    have 1 / WIDTH and 1 in each part, as in the published code. All complex ones of a seed start with the same
    eigenvalues and weights.
    """
    from lrurun.data.sampled.teacher import moved

    if architecture in _BLOCKS:
        rng = generator(seed, f"student {architecture}")
        blocks, n = _BLOCKS[architecture]
        units = blocks * n
        return {
            "A": moved(rng.standard_normal((blocks, n, n)) / np.sqrt(n), 0.0, angle),
            "B": _truncated(rng, (blocks, n)),
            "C": _truncated(rng, (blocks, n)) / np.sqrt(units),
            "D": _truncated(rng, ()),
        }
    rng = generator(seed, "student diagonal")
    radius, phase = np.sqrt(rng.uniform(nu**2, 1, WIDTH)), rng.uniform(-angle, angle, WIDTH)
    parameters: Parameters = {"nu": np.log(-np.log(radius)), "theta": np.log(phase % (2 * np.pi))}
    if architecture != "lru":
        parameters = {"re": radius * np.cos(phase), "im": radius * np.sin(phase)}
    if architecture != "complex":
        parameters["gamma"] = 0.5 * np.log1p(-(radius**2))
    parameters |= {name: _truncated(rng, (WIDTH,)) / np.sqrt(WIDTH) for name in ("B re", "B im")}
    parameters |= {name: _truncated(rng, (WIDTH,)) for name in ("C re", "C im")}
    return {**parameters, "D": _truncated(rng, ())}


def _truncated(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Standard normals cut at two standard deviations, rescaled to variance 1."""
    from scipy.special import ndtr, ndtri

    low = ndtr(-2.0)
    return np.asarray(ndtri(rng.uniform(low, 1 - low, shape)) / 0.8796256610342398)


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


def _recurrence(architecture: Architecture, parameters: Parameters) -> tuple[Callable[[Any], Any], Any, Any]:
    """The map from a state to the next, input weights and output weights, both of the shape of the state."""
    import jax.numpy as jnp

    p = parameters
    if architecture in _BLOCKS:
        return lambda h: jnp.einsum("kij,kj->ki", p["A"], h), p["B"], p["C"]
    eigenvalues = _eigenvalues(architecture, p)
    entry = p["B re"] + 1j * p["B im"]
    if architecture != "complex":
        entry = jnp.exp(p["gamma"]) * entry
    return lambda h: eigenvalues * h, entry, p["C re"] + 1j * p["C im"]


def _eigenvalues(architecture: Architecture, parameters: Parameters) -> Any:
    """The eigenvalues of a complex student, (WIDTH,)."""
    import jax.numpy as jnp

    p = parameters
    return jnp.exp(-jnp.exp(p["nu"]) + 1j * jnp.exp(p["theta"])) if architecture == "lru" else p["re"] + 1j * p["im"]


def kernel_of(architecture: Architecture, parameters: Parameters) -> Any:
    """The kernel of a student, (LENGTH,): products of the states after an impulse with outputs moved back in time."""
    import jax
    import jax.numpy as jnp

    columns = LENGTH // ROWS
    forth, entry, output = _recurrence(architecture, parameters)
    if architecture in _BLOCKS:
        jump = jnp.linalg.matrix_power(parameters["A"], columns)

        def back(c: Any) -> Any:
            return jnp.einsum("ki,kij->kj", c, jump)
    else:
        jump = jnp.prod(jnp.broadcast_to(_eigenvalues(architecture, parameters), (columns, WIDTH)), axis=0)

        def back(c: Any) -> Any:
            return jump * c

    states = jax.lax.scan(lambda h, _: (forth(h), h.ravel()), entry, length=columns)[1]
    outputs = jax.lax.scan(lambda c, _: (back(c), c.ravel()), output, length=ROWS)[1]
    kernel = jnp.real(outputs @ states.T).ravel()
    return kernel.at[0].add(parameters["D"])


def _through_time(architecture: Architecture) -> Any:
    """(parameters, target, inputs) -> the loss of a batch, as the network itself computes it step by step."""
    import jax
    import jax.numpy as jnp

    def loss(parameters: Parameters, target: Any, inputs: Any) -> Any:
        forth, entry, output = _recurrence(architecture, parameters)

        def step(state: Any, x: Any) -> Any:
            state = forth(state) + x * entry
            return state, jnp.real(jnp.sum(state * output)) + parameters["D"] * x

        outputs = jax.vmap(lambda one_input: jax.lax.scan(step, jnp.zeros_like(entry), one_input)[1])(inputs)
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
        def update(carry: Any, step: Any) -> Any:
            now, moments = carry
            matrix, rate = step
            value, slope = jax.value_and_grad(_by_kernel(architecture))(now, target, matrix.astype(jnp.float64))
            change, moments = adam.update(slope, moments)
            return (jax.tree.map(lambda p, c: p - rate * c, now, change), moments), value

        (parameters, state), losses = jax.lax.scan(update, (parameters, state), (products, rates))
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
) -> Generator[int, None, Trained]:
    """Trains a student with Adam on batches of white inputs, the same for all architectures of a seed.

    Yields the update reached. Values: `loss` is the exact expected loss at the end, `batches` the mean over the last
    100 batches, `baseline` that of the output 0; NaN if it diverged. Curve `losses` over `update` is the expected loss.

    Args:
        cosine: whether the rate falls to 0 by a cosine; else it is constant.
        angle: the largest phase of eigenvalues, of teacher and student.
    """
    import optax

    target, parameters = teacher(nu, seed, angle), student(architecture, nu, seed, angle)
    baseline, state = float(expected_loss(target)), optax.scale_by_adam().init(parameters)
    rates = lr * (0.5 * (1 + np.cos(np.pi * np.arange(updates) / updates)) if cosine else np.ones(updates))
    rng = generator(seed, "batches")
    start = _start(architecture, parameters, target, seed)
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
    steps, published, errors = {}, {}, [0.0]
    for name, second in trained.second.items():
        square = np.asarray(second).ravel()
        first = (_FIRST * np.asarray(trained.first[name]).ravel() + 1 - _FIRST) / (1 - _FIRST ** (updates + 1))
        root = np.sqrt((_SECOND * square + 1 - _SECOND) / (1 - _SECOND ** (updates + 1)))
        published[name] = lr * np.asarray(answers[name]).ravel()
        errors.append(float(np.max(np.abs(published[name] / (lr * first / (root + _EPSILON)) - 1))))
        steps[name] = lr / (np.sqrt(square / (1 - _SECOND**updates)) + _EPSILON)
    return steps, published, max(errors)


def _start(architecture: Architecture, parameters: Parameters, target: Array, seed: int) -> Values:
    """The numbers at the initial parameters that the checks compare."""
    inputs = generator(seed, "checks").standard_normal((4, BATCH, LENGTH))
    products = lagged_products(inputs)
    kernel, slow, fast = _gradients(architecture)(parameters, target, inputs[0], products[0])
    difference = np.asarray(kernel) - target
    error, size = (np.sqrt(sum(np.sum(g[name] ** 2) for name in slow)) for g in (_less(slow, fast), slow))
    mean, spread = loss_spread(difference)
    return {
        "expected": float(expected_loss(difference)),
        "expected by covariance": mean,
        "sampled": float(0.5 * difference @ products.mean(axis=0) @ difference),
        "stderr": spread / np.sqrt(4 * BATCH),
        "gradient error": float(error / size),
    }


def _less(gradient: Parameters, reference: Parameters) -> Parameters:
    return {name: gradient[name] - reference[name] for name in gradient}


def start_checks(results: Results[Any]) -> list[Check]:
    """The checks of the kernel form, of the worst cell of each architecture."""
    checks = []
    for name in results.axis("architecture"):
        cells = list(results.where(architecture=name))
        error = max(cell["gradient error"] for cell in cells)
        checks.append(identity(f"{name}: relative error of the gradient by kernel", error, 0.0, 1e-12))
        worst = max(cells, key=lambda cell: abs(cell["expected"] / cell["expected by covariance"] - 1))
        checks.append(
            identity(f"{name}: expected loss at the start", worst["expected"], worst["expected by covariance"], 1e-10)
        )
        worst = max(cells, key=lambda cell: abs(cell["sampled"] - cell["expected"]) / cell["stderr"])
        checks.append(
            sampling(f"{name}: sampled loss at the start", worst["sampled"], worst["expected"], worst["stderr"])
        )
    return checks


def by_seed(results: Results[Any], architecture: Architecture, **at: Any) -> dict[int, float]:
    """Seed -> loss at the learning rate with the smallest mean; empty if a cell diverged at each rate."""
    return results.where(architecture=architecture, **at).best("rate", "loss").by_seed("loss")


def ratios(first: dict[int, float], second: dict[int, float]) -> list[float]:
    """The ratio of two losses of each seed; one NaN where there are none."""
    return [first[seed] / second[seed] for seed in first if seed in second] or [np.nan]


def centre(losses: dict[int, float]) -> str:
    """Mean and median, as "1.2e-05 (3.4e-06)"."""
    values = list(losses.values())
    return f"{np.mean(values):.2g} ({np.median(values):.2g})" if values else "diverged"

"""The functions that `lrurun bench` measures: our forms and the published ones.

The published forms follow the listing in appendix A of Orvieto et al. (2023) and the public code around it: complex64,
`jax.lax.associative_scan` under `jax.vmap`, complex products, batch first, gradients by autodiff. With the same
parameters and inputs they compute the same numbers, which is tested.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from lrurun.bench import Shape
from lrurun.bench.steps import SEEDS, dispatch_arguments, stand_in
from lrurun.config.optimizers.adamw import AdamW
from lrurun.config.recurrences.lru import LRUSettings
from lrurun.config.recurrences.rg_lru import RGLRUSettings
from lrurun.config.recurrences.rnn import RNNSettings
from lrurun.config.recurrences.s4d import S4DSettings
from lrurun.config.recurrences.s5 import S5Settings
from lrurun.config.schema import Execution, ModelConfig, RunConfig, TrainConfig
from lrurun.data import tasks
from lrurun.data.task import Spec
from lrurun.nn import recurrences
from lrurun.nn.complex import Complex
from lrurun.nn.network import EPSILON
from lrurun.nn.recurrences.base import Params, Recurrence
from lrurun.nn.scan import BACKENDS, chunk_count, linear_scan, split
from lrurun.training import optimizer
from lrurun.training.compiled import Compiled, of_member

Tree = Any
CLASSES, SCALE = 10, 1 / 255
STEPS = 5
"""Training steps per dispatch."""


class Form(NamedTuple):
    """A function to time, jitted."""

    function: Any
    arguments: Callable[[Any], tuple[Any, ...]]
    """The arguments of a call, from the result of the previous call."""
    state: Any = None
    """The result to start from; None if calls do not depend on each other."""
    steps: int = 1
    """How often the timed operation happens in one call."""


# Published forms. Batch first: inputs (B, L, H).


def published_scan(lam: Array, v: Array) -> Array:
    """States (B, L, N) complex64 for `lam` (N,) and `v` (B, L, N)."""

    def combine(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return b[0] * a[0], b[0] * a[1] + b[1]

    def scan_example(v: Array) -> Array:
        states: Array = jax.lax.associative_scan(combine, (jnp.repeat(lam[None], v.shape[0], axis=0), v))[1]
        return states

    return jax.vmap(scan_example)(v)


def published_layer(params: Params, u: Array) -> Array:
    """Outputs (B, L, H) of the layer in appendix A."""
    lam = jnp.exp(-jnp.exp(params["nu_log"]) + 1j * params["theta"])
    b = (params["B_re"] + 1j * params["B_im"]) * jnp.exp(params["gamma_log"])[:, None]
    c = params["C_re"] + 1j * params["C_im"]
    v = jax.vmap(jax.vmap(lambda x: b @ x.astype(jnp.complex64)))(u)
    states = published_scan(lam, v)
    return jax.vmap(jax.vmap(lambda x, x_in: (c @ x).real + params["D"] * x_in))(states, u)


def plain_rnn(params: Params, u: Array) -> Array:
    """Outputs (L, B, H) of a tanh RNN for inputs (L, B, H): ours, but with the gradient of autodiff."""

    def body(x: Array, v_k: Array) -> tuple[Array, Array]:
        x = jnp.tanh(x @ params["A"].T + v_k)
        return x, x

    start = jnp.zeros((u.shape[1], params["A"].shape[0]), jnp.float32)
    states = jax.lax.scan(body, start, u @ params["B"].T)[1]
    return states @ params["C"].T + params["D"][None, None] * u


def published_network(params: Tree, inputs: Array, scale: float) -> Array:
    """Logits (B, classes) of (B, L) pixels: the network of Figure 1, batch norm with the statistics of the batch."""

    def linear(p: Tree, x: Array) -> Array:
        return x @ p["kernel"] + p["bias"].reshape((1,) * (x.ndim - 1) + (-1,))

    x = linear(params["encoder"], (inputs.astype(jnp.float32) * scale)[..., None])
    for block in params["blocks"].values():
        # as Flax computes it, in one pass
        mean, square = (jnp.mean(values, axis=(0, 1), keepdims=True) for values in (x, jnp.square(x)))
        spread, shift = (block["norm"][name][None, None] for name in ("scale", "bias"))
        y = (x - mean) * (jax.lax.rsqrt(jnp.maximum(0.0, square - jnp.square(mean)) + EPSILON) * spread) + shift
        y = jax.nn.gelu(published_layer(block["recurrence"], y))
        x = x + linear(block["value"], y) * jax.nn.sigmoid(linear(block["gate"], y))
    return linear(params["head"], jnp.mean(x, axis=1))


# What is timed.


def _normal(seed: int, *shape: int) -> Array:
    return jnp.asarray(np.random.RandomState(seed).standard_normal(shape), jnp.float32)


LRU = LRUSettings(normalize=True, r_min=0.9, r_max=0.999)
RNN = RNNSettings(activation="tanh", draw="truncated")


def _layer(settings: Any, shape: Shape, state: int | None = None) -> tuple[Recurrence, Params]:
    built = recurrences.build(settings, width=shape.width, state=state or shape.state)
    return built, jax.jit(built.init)(jax.random.key(0))


def with_gradients(function: Callable[..., Tree], cotangent: Tree, *arguments: Tree) -> Form:
    """Forward and backward: outputs, and gradients with respect to all arguments."""

    @jax.jit
    def run(cotangent: Tree, *arguments: Tree) -> tuple[Tree, tuple[Tree, ...]]:
        outputs, back = jax.vjp(function, *arguments)
        return outputs, back(cotangent)

    return Form(run, lambda _: (cotangent, *arguments))


def scan(shape: Shape, ours: bool) -> Form:
    """Forward and backward, gradients of lambda and v. Each form gets v in its own layout."""
    radius, phase = 0.9 + 0.099 * np.random.RandomState(0).uniform(size=shape.state), np.linspace(0.1, 3, shape.state)
    v, w = (_normal(seed, 2, shape.length, shape.batch, shape.state) for seed in (1, 2))
    if not ours:
        lam = jnp.asarray(radius * np.exp(1j * phase), jnp.complex64)
        driven, weight = (jnp.swapaxes(x[0] + 1j * x[1], 0, 1) for x in (v, w))
        return with_gradients(published_scan, jnp.conj(weight), lam, driven)  # cotangents are conjugates in jax
    eigenvalues = Complex(*(jnp.asarray(x, jnp.float32) for x in (radius * np.cos(phase), radius * np.sin(phase))))
    chunks = chunk_count(shape.length, shape.batch * shape.state, "auto")
    laid = [split(Complex(*x), chunks) if chunks > 1 else Complex(*x) for x in (v, w)]
    return with_gradients(linear_scan, laid[1], eigenvalues, laid[0])


def published_varying_scan(a: Array, b: Array) -> Array:
    """States (B, L, N) of x_k = a_k x_(k-1) + b_k for real `a` and `b` (B, L, N): what public code does in jax."""

    def combine(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
        return second[0] * first[0], second[0] * first[1] + second[1]

    states: Array = jax.vmap(lambda a, b: jax.lax.associative_scan(combine, (a, b))[1])(a, b)
    return states


def scan_varying(shape: Shape, ours: bool) -> Form:
    """Forward and backward with a real factor at every step, gradients of a and b. Each form in its own layout."""
    sizes = (shape.length, shape.batch, shape.state)
    a = jnp.asarray(np.random.RandomState(0).uniform(0.5, 0.999, sizes), jnp.float32)
    b, w = (_normal(seed, *sizes) for seed in (1, 2))
    if not ours:
        a, b, w = (jnp.swapaxes(x, 0, 1) for x in (a, b, w))
        return with_gradients(published_varying_scan, w, a, b)
    chunks = chunk_count(shape.length, shape.batch * shape.state, "auto")
    a, b, w = (split(x, chunks) if chunks > 1 else x for x in (a, b, w))
    return with_gradients(linear_scan, w, a, b)


def layer_rg_lru(shape: Shape, ours: bool) -> Form:
    """The RG-LRU; if `ours` is false, the LRU of the same width with as many complex states. Gradients of all."""
    shape = shape._replace(state=shape.width)
    return _scanned(*_layer(RGLRUSettings() if ours else LRU, shape), shape)


def layer_parameters(shape: Shape) -> Params:
    """The parameters of the LRU layer of this shape."""
    return _layer(LRU, shape)[1]


def layer(shape: Shape, ours: bool) -> Form:
    """Forward and backward, gradients of all parameters and of the input."""
    built, params = _layer(LRU, shape)
    if ours:
        return _scanned(built, params, shape)
    u, w = (jnp.swapaxes(x, 0, 1) for x in inputs_of(shape))
    return with_gradients(published_layer, w, params, u)


def inputs_of(shape: Shape) -> tuple[Array, Array]:
    """Inputs and cotangents (L, B, H)."""
    u, w = (_normal(seed, shape.length, shape.batch, shape.width) for seed in (1, 2))
    return u, w


def _scanned(built: Recurrence, params: Params, shape: Shape) -> Form:
    """One of our layers, in the layout that it has in a network."""
    u, w = inputs_of(shape)
    chunks = built.chunks(shape.length, shape.batch)
    if chunks > 1:
        u, w = split(u, chunks), split(w, chunks)
    return with_gradients(built.scan, w, params, u)


def other_layer(shape: Shape, ours: bool, *, settings: Any, state: Callable[[Shape], int]) -> Form:
    """A layer of another kind, with a state of `state`(shape); if `ours` is false, the LRU layer of the same shape."""
    built, params = _layer(settings, shape, state(shape)) if ours else _layer(LRU, shape)
    return _scanned(built, params, shape)


def rnn(shape: Shape, ours: bool) -> Form:
    """A dense tanh layer, forward and backward, gradients of all parameters and of the input."""
    built, params = _layer(RNN, shape)
    u, w = inputs_of(shape)
    return with_gradients(built.scan if ours else plain_rnn, w, params, u)


def _config(shape: Shape) -> RunConfig:
    return RunConfig(
        task="bench",
        data={},
        model=ModelConfig(recurrence=LRU, depth=shape.depth, width=shape.width, state=shape.state),
        optim=AdamW(lr=1e-3, recurrent_factor=0.25, weight_decay=0.05),
        train=TrainConfig(steps=1000, batch=shape.batch, eval_every=1000, log_every=1000),
        seed=0,
    )


def _compiled(config: RunConfig, shape: Shape) -> Compiled:
    spec = Spec(name="bench", kind="features", features=1, classes=CLASSES, length=shape.length, scale=SCALE)
    return Compiled(config, Execution(steps_per_dispatch=STEPS), spec)


def pixels(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (4 B, L) and labels of four batches."""
    random = np.random.RandomState(0)
    inputs = random.randint(0, 256, (4 * shape.batch, shape.length)).astype(np.uint8)
    return inputs, random.randint(0, CLASSES, 4 * shape.batch)


def _dispatch(compiled: Compiled, shape: Shape) -> Form:
    """Training steps as in a worker."""
    inputs, labels = pixels(shape)
    index = np.arange(STEPS * shape.batch, dtype=np.int32).reshape(1, STEPS, shape.batch) % len(labels)
    rates = np.full((1, STEPS), 1e-3, np.float32)
    data = (jnp.asarray(inputs), jnp.asarray(labels, jnp.int32), None)
    rest = (SEEDS, index, rates, np.bool_(False), np.int32(STEPS), data)
    states = compiled.init(compiled.model.config, SEEDS)
    return Form(compiled.dispatch, lambda state: (state[0], *rest), (states,), STEPS)


def training(config: RunConfig, execution: Execution) -> Form:
    """Training steps of a configuration as in a worker, on made-up examples of its task."""
    task = tasks.get(config.task, config.data)
    options = tasks.options_of(task, config.data)
    spec, sampler = task.spec(options), task.sampler(options)
    compiled = Compiled(config, execution, spec, metrics=task.metrics, sampler=sampler)
    steps = execution.steps_per_dispatch
    _, *rest = dispatch_arguments(compiled, stand_in(spec, config.train.batch, sampler), steps)
    return Form(compiled.dispatch, lambda state: (state[0], SEEDS, *rest), (compiled.init(config.model, SEEDS),), steps)


def step(shape: Shape, ours: bool) -> Form:
    """A whole training step: batch, forward, backward, AdamW in two groups. Ours as in a worker."""
    config = _config(shape)
    compiled = _compiled(config, shape)
    if ours:
        return _dispatch(compiled, shape)
    start = compiled.layout.tree(of_member(compiled.init(config.model, SEEDS).params, 0))
    inputs, labels = pixels(shape)
    groups = optimizer.groups(config.optim, compiled.model.recurrence, start)
    optimizers = {
        "regular": optax.adamw(1e-3, weight_decay=config.optim.weight_decay),
        "recurrent": optax.adam(1e-3 * config.optim.recurrent_factor),
    }
    adamw = optax.multi_transform(optimizers, groups)
    batch = jnp.asarray(inputs[: shape.batch]), jnp.asarray(labels[: shape.batch], jnp.int32)

    @partial(jax.jit, donate_argnums=0)
    def train_step(state: Tree, inputs: Array, labels: Array) -> Tree:
        def loss(params: Tree) -> Array:
            logits = published_network(params, inputs, SCALE)
            return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))

        params, moments = state
        changes, moments = adamw.update(jax.grad(loss)(params), moments, params)
        return optax.apply_updates(params, changes), moments

    state = (start, adamw.init(start))
    return Form(train_step, lambda state: (state, *batch), state)


FORMS: dict[str, Callable[[Shape, bool], Form]] = {
    "scan": scan,
    "scan-varying": scan_varying,
    "layer": layer,
    # N complex numbers, which this kind counts as 2N
    "layer-s5": partial(other_layer, settings=S5Settings(), state=lambda shape: 2 * shape.state),
    # N complex numbers in all channels together, rounded to whole numbers per channel
    "layer-s4d": partial(
        other_layer, settings=S4DSettings(), state=lambda shape: 2 * max(1, round(shape.state / shape.width))
    ),
    "layer-s4d-64": partial(other_layer, settings=S4DSettings(), state=lambda shape: 64),
    "layer-rg-lru": layer_rg_lru,
    "rnn": rnn,
    "step": step,
}


def machine_speeds() -> dict[str, float]:
    """Speeds of the machine: bytes copied and floating-point operations of a product, both in 1e9 per second."""
    side = 2048
    large = jnp.ones(1 << 24, jnp.float32)
    square = jnp.ones((side, side), jnp.float32)
    copy = jax.jit(lambda x: x + 1.0, donate_argnums=0)
    product = jax.jit(jnp.matmul)
    jax.block_until_ready((copy(large), product(square, square)))
    best = {"copy": np.inf, "product": np.inf}
    large = jnp.ones(1 << 24, jnp.float32)
    for _ in range(7):
        start = time.perf_counter()
        large = jax.block_until_ready(copy(large))
        middle = time.perf_counter()
        jax.block_until_ready(product(square, square))
        best["copy"] = min(best["copy"], middle - start)
        best["product"] = min(best["product"], time.perf_counter() - middle)
    return {"copy_gb_s": 2 * large.nbytes / best["copy"] / 1e9, "product_gflop_s": 2 * side**3 / best["product"] / 1e9}


def scan_errors() -> dict[str, list[float]]:
    """Errors of the states and of the gradient of lambda, for every backend and for the published scan.

    Against float64, at |lambda| = 0.9999 and 16,384 steps: the largest over time, relative to the root mean square of
    the state or to the size of the gradient, of the worst of 16 states.
    """
    length, states = 16_384, 16
    random = np.random.RandomState(0)
    lam = (0.9999 * np.exp(1j * random.uniform(0.1, 3.0, states))).astype(np.complex64).astype(np.complex128)
    v, g = random.standard_normal((2, 2, length, 1, states)).astype(np.float32).astype(np.float64)
    x, dlam, w = (v[0] + 1j * v[1]), np.zeros((1, states), np.complex128), (g[0] + 1j * g[1])
    for k in range(1, length):
        x[k] += lam * x[k - 1]
    for k in reversed(range(1, length)):
        dlam += w[k] * np.conj(x[k - 1])
        w[k - 1] += np.conj(lam) * w[k]
    rms = np.sqrt(np.mean(np.abs(x) ** 2, axis=(0, 1)))

    def errors(computed: Any, gradient: Any) -> list[float]:
        return [
            float(np.max(np.abs(np.asarray(computed) - x) / rms)),
            float(np.max(np.abs(np.asarray(gradient) - dlam) / np.abs(dlam))),
        ]

    table = {}
    parts, driven, weight = (
        Complex(*(jnp.asarray(part, jnp.float32) for part in pair)) for pair in ((lam.real, lam.imag), v, g)
    )
    for backend in sorted(BACKENDS):
        form = with_gradients(partial(linear_scan, backend=backend), weight, parts, driven)
        computed, (gradient, _) = form.function(*form.arguments(None))
        table[backend] = errors(computed.numpy(), gradient.numpy())
    first = jnp.asarray(lam, jnp.complex64), jnp.asarray(v[0] + 1j * v[1], jnp.complex64).swapaxes(0, 1)
    cotangent = jnp.asarray(g[0] - 1j * g[1], jnp.complex64).swapaxes(0, 1)
    form = with_gradients(published_scan, cotangent, *first)
    states_found, (gradient, _) = form.function(*form.arguments(None))
    return table | {"published": errors(np.swapaxes(states_found, 0, 1), np.conj(gradient))}

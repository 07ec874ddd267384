"""Training steps and evaluations of a configuration, as a worker calls them: timed, or compared between devices."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np

from lrurun import machine, plugins
from lrurun.config.optimizers.adamw import AdamW
from lrurun.config.schema import Execution, ModelConfig, RunConfig, TrainConfig, decode
from lrurun.data import task_data, tasks
from lrurun.data.on_device import training_batch
from lrurun.data.task import Sampler, Spec, Split
from lrurun.errors import LrurunError
from lrurun.instances.measurement import Measurement
from lrurun.nn import conformance
from lrurun.training import feed, optimizer
from lrurun.training.compiled import Compiled

ROUNDS = 5
ROUND_SECONDS = 0.3
"""The least duration of a round."""
SMALL = Spec(name="short run", kind="features", features=1, classes=10, length=32, scale=1 / 255)
STEPS = 5
"""Steps of a short run."""
SEEDS = np.zeros(1, np.uint32)
"""The seed of the one member that is trained."""


def stand_in(spec: Spec, examples: int, sampler: Sampler | None = None) -> Split:
    """Random examples with the shapes and types of a task; with a sampler, examples that it samples.

    A spec does not say whether sequences have lengths: sequences of tokens with one output get some.
    """
    if sampler is not None:
        inputs, labels, lengths = jax.device_get(training_batch(sampler, 0, 0, examples))
        return Split(inputs=inputs, labels=labels, lengths=lengths)
    random, count = np.random.RandomState(0), min(examples, 64)
    tokens, at_positions = spec.kind == "tokens", spec.output.at == "positions"
    shape: tuple[int, ...] = (count, 2, spec.length) if spec.pair else (count, spec.length)
    if not tokens and spec.features > 1:
        shape = (*shape, spec.features)
    most = spec.features if tokens else 256
    labelled = (count, spec.length) if at_positions else (count,)
    if spec.output.loss == "cross-entropy":
        labels = random.randint(0, spec.classes, labelled).astype(np.int32)
    else:
        labels = random.normal(size=(*labelled, spec.classes)).astype(np.float32)
    lengths = None
    if tokens and not at_positions:
        lengths = random.randint(max(1, spec.length // 4), spec.length + 1, shape[:-1]).astype(np.int32)
    block = Split(
        inputs=random.randint(int(tokens), most, shape).astype(np.uint8 if most <= 256 else np.int32),
        labels=labels,
        lengths=lengths,
    )
    return _repeated(block, np.resize, examples)


def _repeated(split: Split, repeat: Callable[..., np.ndarray], examples: int) -> Split:
    return Split(
        inputs=repeat(split.inputs, (examples, *split.inputs.shape[1:])),
        labels=repeat(split.labels, (examples, *split.labels.shape[1:])),
        lengths=None if split.lengths is None else repeat(split.lengths, (examples, *split.lengths.shape[1:])),
    )


def dispatch_arguments(compiled: Compiled, split: Split, n: int, rate: float = 0.0) -> tuple[Any, ...]:
    """The arguments of `Compiled.dispatch` after the state, for `n` steps on the examples of a split.

    With a rate of 0 steps cost as much as any, and no parameter changes.
    """
    arrays: Any = ()
    indices = np.zeros((1, compiled.rows, 1), np.int32)
    if compiled.sampler is None:
        arrays = feed.to_devices(split, compiled.placement.everywhere)
        indices = np.arange(compiled.rows * compiled.batch, dtype=np.int32).reshape(1, compiled.rows, compiled.batch)
        indices %= len(split.labels)
    return SEEDS, indices, np.full((1, compiled.rows), rate, np.float32), np.bool_(True), np.int32(n), arrays


def evaluate_arguments(compiled: Compiled, split: Split) -> tuple[Any, ...]:
    """The arguments of `Compiled.outputs` after the parameters, for one batch."""
    batch = feed.to_devices(_repeated(split, np.resize, compiled.batch), compiled.placement.batch())
    return *batch, np.ones(compiled.batch, np.bool_)


def measure(
    config: RunConfig, execution: Execution, folder: Path, say: Callable[[str], object] = lambda stage: None
) -> Measurement:
    """Compiles and times the training step and the evaluation of a configuration; `say` gets what is begun."""
    task = tasks.get(config.task, config.data)
    options = tasks.options_of(task, config.data)
    synthetic = task_data.manifest(task, options, folder) is None
    if synthetic:
        spec, sampler, metrics, sizes = task.spec(options), task.sampler(options), task.metrics, task.sizes(options)
        example = stand_in(spec, 1, sampler)
        train, validation = (_repeated(example, np.broadcast_to, sizes[name]) for name in ("train", "validation"))
    else:
        data = task_data.load(task, options, folder, config.train.protocol)
        spec, sampler, metrics, train, validation = data.spec, data.sampler, data.metrics, data.train, data.validation
    compiled = Compiled(config, execution, spec, metrics=metrics, sampler=sampler)
    longest = feed.longest(config.train, execution.steps_per_dispatch)
    on_device = len(train.labels)
    if sampler is not None or feed.streams(execution, train):
        on_device = longest * config.train.batch
    if synthetic:
        split = stand_in(spec, config.train.batch if sampler else on_device, sampler)
    else:
        split = _repeated(train, _first, min(on_device, len(train.labels)))
    arguments = dispatch_arguments(compiled, split, 1)
    evaluated = evaluate_arguments(compiled, split if synthetic else validation)
    state = compiled.init(config.model, SEEDS)
    began = time.perf_counter()
    say("compiling the training step")
    run = compiled.dispatch.lower(state, *arguments).compile()
    say("compiling the evaluation")
    live = compiled.on_device(compiled.evaluated_on_host(state))
    outputs = compiled.outputs.lower(live, *evaluated).compile()
    weight, with_items = np.ones(compiled.batch, np.float32), np.bool_(False)
    predicted, _ = outputs(live, *evaluated)
    scores = compiled.scores.lower(predicted, evaluated[1], weight, with_items).compile()
    compile_seconds = time.perf_counter() - began
    timed = 0

    def steps(n: int) -> None:
        nonlocal state, timed
        state, readings = run(state, *arguments[:-2], np.int32(n), arguments[-1])
        jax.block_until_ready(readings)
        timed += n
        if np.asarray(readings.bad_step)[0] >= 0:
            raise FloatingPointError("a loss is not finite, so that steps cannot be timed: try a smaller optim.lr")

    def evaluation() -> None:
        predicted, _ = outputs(live, *evaluated)
        jax.block_until_ready(scores(predicted, evaluated[1], weight, with_items))

    say("timing")
    steps(1)
    began = time.perf_counter()
    steps(1)
    n = max(1, min(longest, int(ROUND_SECONDS / (time.perf_counter() - began))))
    timed = 0
    seconds_per_step = _median_seconds(lambda: steps(n)) / n
    batches = -(-len(validation.labels) // config.train.batch)
    evaluation()
    return Measurement(
        device=device()["device"],
        parameters=compiled.parameters,
        seconds_per_step=seconds_per_step,
        steps=timed,
        seconds_per_evaluation=batches * _median_seconds(evaluation),
        compile_seconds=compile_seconds,
        training_bytes=_bytes(run),
        evaluation_bytes=max(_bytes(outputs), _bytes(scores)),
        synthetic=synthetic,
    )


def _first(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return array[: shape[0]]


def _median_seconds(call: Callable[[], None]) -> float:
    """The median of `ROUNDS`, each of at least `ROUND_SECONDS`; of three where a call takes longer."""
    rounds: list[float] = []
    while len(rounds) < (ROUNDS if not rounds or rounds[0] < ROUND_SECONDS else 3):
        calls, began = 0, time.perf_counter()
        while not calls or time.perf_counter() - began < ROUND_SECONDS:
            call()
            calls += 1
        rounds.append((time.perf_counter() - began) / calls)
    return statistics.median(rounds)


def _bytes(compiled: Any) -> int:
    memory = compiled.memory_analysis()
    return int(memory.argument_size_in_bytes + memory.temp_size_in_bytes)


def device() -> dict[str, str]:
    """The model of the first device, and the platform."""
    kind, platform = str(jax.local_devices()[0].device_kind), jax.default_backend()
    return {"device": machine.cpu() if platform == "cpu" else kind, "platform": platform}


def short_runs(kinds: Sequence[str], backend: str) -> dict[str, Any]:
    """A few steps with each kind of recurrence in its first variant, compiled several at a time."""
    with ThreadPoolExecutor(max_workers=min(4, machine.cores())) as threads:
        compiled = {kind: threads.submit(_compiled_run, kind, backend) for kind in kinds}
    # all are compiled now, so that no compilation slows the steps that are timed
    runs = {}
    for kind, future in compiled.items():
        try:
            runs[kind] = _short_run(*future.result())
        except Exception as error:  # whatever one kind does, the others are of interest
            runs[kind] = {"error": message(error)}
    return {**device(), "runs": runs}


def _compiled_run(kind: str, backend: str) -> tuple[Compiled, Any, Any, tuple[Any, ...]]:
    """The functions of a configuration, the compiled dispatch, the first state, and the arguments of one step."""
    settings = next(iter(conformance.variants(kind).values()))
    config = RunConfig(
        task=SMALL.name,
        data={"version": "1"},
        model=ModelConfig(recurrence=settings, depth=1, width=16, state=16, norm="layer", precision="float32"),
        optim=AdamW(lr=1e-3, recurrent_factor=0.5, weight_decay=0.05),
        train=TrainConfig(steps=100, batch=8, eval_every=100),
        seed=0,
    )
    compiled = Compiled(config, Execution(scan_backend=backend, steps_per_dispatch=10), SMALL)  # type: ignore[arg-type]
    arguments = dispatch_arguments(compiled, stand_in(SMALL, 80), 1, rate=1e-3)
    state = compiled.init(config.model, SEEDS)
    return compiled, compiled.dispatch.lower(state, *arguments).compile(), state, arguments


def _short_run(compiled: Compiled, run: Any, state: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
    losses: list[float] = []
    for _ in range(STEPS):
        state, readings = run(state, *arguments)
        total, _, count = np.asarray(readings.window)[0].tolist()
        losses.append(total / count)
        if len(losses) == 1:  # the first moments are then the gradient times a constant
            first = optimizer.of_state(state.moments, "mu")
            gradients = [np.asarray(leaf, np.float64).ravel().tolist() for leaf in jax.tree.leaves(first)]

    def steps() -> None:
        nonlocal state
        state, readings = run(state, *arguments[:-2], np.int32(compiled.rows), arguments[-1])
        jax.block_until_ready(readings)

    began, calls = time.perf_counter(), 0
    while time.perf_counter() - began < ROUND_SECONDS:
        steps()
        calls += 1
    speed = calls * compiled.rows / (time.perf_counter() - began)
    return {"values": {"losses": [losses], "gradients": gradients}, "steps_per_second": speed}


def message(error: Exception) -> str:
    """An error on one line, with its type unless it is ours, at most 300 characters."""
    if isinstance(error, LrurunError):
        return error.message
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def answer(request: dict[str, Any], say: Callable[[str], object]) -> dict[str, Any]:
    """The answer to a request of `lrurun.bench.rungs`; `say` gets what is begun in between."""
    plugins.load_all(msgspec.convert(request["plugins"], plugins.Loaded))
    if request["do"] == "recurrences":
        return short_runs(request["kinds"], request["backend"])
    try:
        config = decode(request["config"], RunConfig, "plan")
        execution = msgspec.convert(request["execution"], Execution)
        result: dict[str, Any] = msgspec.to_builtins(measure(config, execution, Path(request["folder"]), say))
    except Exception as error:  # for lack of memory, mostly: the other rungs are still of interest
        return {"error": message(error)}
    return result

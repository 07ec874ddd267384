"""Short runs on one and on several devices, in a process that has them; see `test_placement`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np

from lrurun.config import planning
from lrurun.config.recurrences.rnn import RNNSettings
from lrurun.config.recurrences.s4 import S4Settings
from lrurun.config.schema import Execution, RunConfig
from lrurun.data import task_data
from lrurun.data.task import Data
from lrurun.training.compiled import Compiled
from lrurun.training.events import Ended, Event, Measured, Reached
from lrurun.training.loop import train, train_together
from tests.harness import toy
from tests.training import test_feeds


def execution(devices: int, **changes: Any) -> Execution:
    return Execution(steps_per_dispatch=5, scan_backend="sequential", devices=devices, **changes)


def sampled(folder: Path) -> tuple[RunConfig, Data]:
    """Examples that are sampled on the device, with labels that are real values."""
    sets = {"train.steps": 20, "train.eval_every": 10, "train.batch": 8}
    sets |= {"model.width": 6, "model.state": 5, "model.depth": 1}
    plan = planning.make("CumSum", ladder="lru", profile="laptop", sets=sets)
    task_data.prepare(plan.task, plan.options, folder / "data")
    return plan.rungs[-1].config, task_data.load(plan.task, plan.options, folder / "data")


def convolution() -> RunConfig:
    """Whose kernel is itself made by convolutions, without a batch."""
    config = toy.config(steps=10)
    model = msgspec.structs.replace(config.model, recurrence=S4Settings(), state=6)
    return msgspec.structs.replace(config, model=model)


def cases(folder: Path) -> dict[str, tuple[list[RunConfig], Data, dict[str, Any]]]:
    features = toy.config()  # batch norm and dropout
    return {
        "features": ([features], test_feeds.task("features"), {}),
        "streamed": ([features], test_feeds.task("tokens"), {"feed": "stream"}),
        "pairs": ([toy.config(recurrence=RNNSettings())], test_feeds.task("pairs"), {}),
        "convolution": ([convolution()], test_feeds.task("features"), {"remat": True}),
        "packed": ([features, msgspec.structs.replace(features, seed=4)], test_feeds.task("features"), {}),
        "parts": ([in_parts(features, 2)], test_feeds.task("features"), {}),
        "packed tokens in parts": (
            [in_parts(run, 2) for run in (features, msgspec.structs.replace(features, seed=4))],
            test_feeds.task("tokens"),
            {},
        ),
        "sampled": ([(found := sampled(folder))[0]], found[1], {}),
    }


def in_parts(config: RunConfig, count: int) -> RunConfig:
    """With batches in parts, and an average."""
    optim = msgspec.structs.replace(config.optim, accumulate=count, clip=0.5, average="ema", average_decay=0.9)
    return msgspec.structs.replace(config, optim=optim)


def losses(events: Sequence[Event]) -> Iterator[float]:
    for event in events:
        if isinstance(event, Measured):
            yield from (value for name, value in sorted(event.values.items()) if name.endswith("loss"))


def distance(one: Sequence[Event], other: Sequence[Event]) -> float:
    """The largest relative difference of a loss."""
    assert all(event.state == "done" for event in (*one, *other) if isinstance(event, Ended))
    before, now = np.array(list(losses(one))), np.array(list(losses(other)))
    return float(np.max(np.abs(now / before - 1)))


def measure(folder: str) -> str:
    """JSON: name of a case -> the largest difference of a loss between one and four devices; and memory, in bytes."""
    found: dict[str, Any] = {}
    for name, (configs, data, changes) in cases(Path(folder)).items():
        one, four = (list(train_together(configs, execution(n, **changes), data)) for n in (1, 4))
        found[name] = distance(one, four)
    config, data = toy.config(), test_feeds.task("features")
    whole, halves = list(train(config, execution(1), data)), []
    for event in train(config, execution(4), data):
        halves.append(event)
        if isinstance(event, Reached) and event.step >= 9:
            break
    halves += train(config, execution(2), data, resume=event.snapshot())
    found["resumed with two"] = distance(whole, halves)
    found["bytes"] = [memory(n) for n in (1, 4)]
    found["bytes of parts"] = [memory(n, parts=2) for n in (1, 4)]
    return json.dumps(found)


def memory(devices: int, *, parts: int = 1) -> int:
    """What a training step needs on each device beside its arguments, where activations are most of it."""
    config = msgspec.structs.replace(toy.config(batch=64), model=msgspec.structs.replace(toy.config().model, width=32))
    config = msgspec.structs.replace(config, optim=msgspec.structs.replace(config.optim, accumulate=parts))
    spec = test_feeds.task("tokens").spec
    compiled = Compiled(config, execution(devices), spec)
    shapes = ((47, 200), np.uint8), ((47,), np.int32), ((47,), np.int32)
    split = tuple(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes)
    index = np.zeros((1, compiled.rows, 64), np.int32)
    rates, reset, seeds = np.zeros((1, compiled.rows), np.float32), np.bool_(False), np.zeros(1, np.uint32)
    state = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), compiled.vector_shapes)
    lowered = compiled.dispatch.lower(state, seeds, index, rates, reset, np.int32(1), split)
    return int(lowered.compile().memory_analysis().temp_size_in_bytes)

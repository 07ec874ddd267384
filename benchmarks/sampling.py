"""The share of a training step in which its batch is sampled, for the tasks that sample examples on the device.

    python benchmarks/sampling.py [--tasks Copy MQAR ...] [--profile laptop] [--ladder lru] [--rung gamma-norm]
        [--steps N] [--rounds N] [--seconds S]

The sampler alone is compiled into a loop over as many steps as a dispatch has, like the training steps, of which it is
a part, and both are timed in turns, with one thread, as in the recipes. What it samples is summed, so that nothing of
it is left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from lrurun.config import planning
from lrurun.data.on_device import Sampled, training_key
from lrurun.data.tasks import TASKS
from lrurun.runner.processes import worker_environment


def seconds(call: Callable[[], Any], at_least: float) -> float:
    """Mean seconds of a call, over `at_least` seconds and three calls or more; it waits for each of them."""
    calls, began = 0, time.perf_counter()
    while calls < 3 or time.perf_counter() - began < at_least:
        call()
        calls += 1
    return (time.perf_counter() - began) / calls


def programs(task: str, options: argparse.Namespace) -> tuple[Callable[[], Any], Callable[[], Any], int]:
    """Calls of a dispatch of training steps, and of their sampler alone; how many steps each has."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from lrurun.training.compiled import Compiled

    plan = planning.make(
        task,
        ladder=options.ladder,
        profile=options.profile or None,
        sets={"execution.steps_per_dispatch": options.steps} if options.steps else {},
    )
    (rung,) = planning.choose_rungs(plan, [options.rung])
    sampler = plan.task.sampler(plan.options)
    assert sampler is not None
    made = Compiled(
        rung.config, rung.execution, plan.task.spec(plan.options), metrics=plan.task.metrics, sampler=sampler
    )
    steps, seeds = made.rows, np.zeros(1, np.uint32)
    state = made.init(rung.config.model, seeds)
    rates = np.full((1, steps), 1e-4, np.float32)
    places = np.zeros((1, steps, 1), np.int32)

    def train() -> Any:
        nonlocal state
        state, readings = made.dispatch(state, seeds, places, rates, np.bool_(False), np.int32(steps), ())
        jax.block_until_ready(readings)

    def sample(seed: jax.Array, first: jax.Array) -> jax.Array:
        def body(k: Any, total: jax.Array) -> jax.Array:
            parts = sampler(training_key(seed, first + k), made.batch)
            return total + sum(jnp.sum(part, dtype=jnp.float32) for part in parts if part is not None)

        return jax.lax.fori_loop(0, steps, body, jnp.float32(0.0))

    alone = jax.jit(sample)
    return train, lambda: jax.block_until_ready(alone(seeds[0], jnp.int32(0))), steps


def main() -> None:
    sampled = [name for name, task in TASKS.items() if isinstance(task, Sampled)]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=sampled, default=sampled, metavar="TASK")
    parser.add_argument("--profile", default="laptop", help="empty: that of the paper")
    parser.add_argument("--ladder", default="lru")
    parser.add_argument("--rung", default="gamma-norm")
    parser.add_argument("--steps", type=int, help="of a dispatch, in place of the recipe's")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    options = parser.parse_args()
    os.environ.update(worker_environment(1))  # before jax
    for task in options.tasks:
        train, sample, steps = programs(task, options)
        train(), sample()
        pairs = [(seconds(sample, options.seconds), seconds(train, options.seconds)) for _ in range(options.rounds)]
        shares = sorted(alone / whole for alone, whole in pairs)
        alone, whole = (1e3 * statistics.median(column) / steps for column in zip(*pairs, strict=True))
        print(
            f"{task:16} step {whole:7.2f} ms, its batch {alone:6.3f} ms: {statistics.median(shares):.2%}"
            f" ({shares[0]:.2%} to {shares[-1]:.2%})",
            flush=True,
        )


if __name__ == "__main__":
    main()

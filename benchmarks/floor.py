"""The matrix products of a training step alone, as a fraction of the step's time, in turns.

A dense map takes three products: its output, the gradient of its input, and that of its weights. Each is timed as a
program of its own, two-dimensional, in float32. No training step that computes them can be faster.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

from lrurun.bench import STEP_SHAPES
from lrurun.machine import cores
from lrurun.runner.processes import worker_environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    options = parser.parse_args()
    os.environ.update(worker_environment(cores()))  # before jax

    import jax
    import jax.numpy as jnp

    from lrurun.bench.forms import step

    def seconds(function: Any, *arguments: Any) -> float:
        """Mean seconds of a call, over `options.seconds` and at least three calls."""
        calls, began = 0, time.perf_counter()
        while calls < 3 or time.perf_counter() - began < options.seconds:
            jax.block_until_ready(function(*arguments))
            calls += 1
        return (time.perf_counter() - began) / calls

    for name, shape in STEP_SHAPES.items():
        m, h, n = shape.batch * shape.length, shape.width, shape.state
        # (rows, inner, columns) -> how many in a block: B and C have two parts, the gated unit two maps
        products = (((m, h, n), 4), ((m, n, h), 4), ((h, m, n), 4), ((m, h, h), 4), ((h, m, h), 2))
        form = step(shape, True)
        state = form.function(*form.arguments(form.state))
        pairs = []
        for _ in range(options.rounds):
            began, calls = time.perf_counter(), 0
            while calls < 3 or time.perf_counter() - began < options.seconds:
                state = jax.block_until_ready(form.function(*form.arguments(state)))
                calls += 1
            whole = (time.perf_counter() - began) / calls / form.steps
            alone = 0.0
            for (rows, inner, columns), count in products:
                weights = rows == h and inner == m
                a = jnp.ones((inner, rows) if weights else (rows, inner), jnp.float32)
                b = jnp.ones((inner, columns), jnp.float32)
                product = jax.jit((lambda a, b: a.T @ b) if weights else jnp.matmul)
                jax.block_until_ready(product(a, b))
                alone += count * shape.depth * seconds(product, a, b)
            pairs.append((alone, whole))
        shares = sorted(alone / whole for alone, whole in pairs)
        print(
            f"{name:8} step {1e3 * statistics.median(w for _, w in pairs):6.1f} ms, products alone"
            f" {1e3 * statistics.median(a for a, _ in pairs):6.1f} ms: {statistics.median(shares):.0%}"
            f" ({shares[0]:.0%} to {shares[-1]:.0%})"
        )


if __name__ == "__main__":
    main()

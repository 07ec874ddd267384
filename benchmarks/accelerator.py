"""The forms of the scan on whatever device jax finds: an accelerator, or the CPU.

    python benchmarks/accelerator.py [--small] [--tasks sCIFAR ...] [--out FILE]

It prints a line per measurement and writes all of them as JSON. A measurement that fails, for lack of memory for
example, is recorded with its error. `--small` takes tiny sizes, to test the script or to run it on a CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from lrurun.bench import PAPER, Shape, forms
from lrurun.nn.complex import Complex
from lrurun.nn.scan import BACKENDS, chunk_count, linear_scan, split

ROUNDS = 5
BYTES = 40
"""A number of a scan: v is read and x written forward; the cotangent and x are read and w is written backward."""

Row = dict[str, Any]


def seconds_per_call(call: Callable[[], Any], at_least: float) -> float:
    """Median over rounds of at least `at_least` seconds each; `call` returns arrays, and the last ones are awaited."""
    jax.block_until_ready(call())
    began = time.perf_counter()
    jax.block_until_ready(call())
    calls = max(1, min(1000, int(at_least / (time.perf_counter() - began))))
    rounds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(calls):
            last = call()
        jax.block_until_ready(last)
        rounds.append((time.perf_counter() - began) / calls)
    return statistics.median(rounds)


def compiled(run: Any, *arguments: Any) -> tuple[Any, Row]:
    """The compiled function, the seconds that compiling took, and the temporary memory that it needs."""
    began = time.perf_counter()
    done = run.lower(*arguments).compile()
    memory = done.memory_analysis()
    return done, {"compile_s": time.perf_counter() - began, "temp_gb": memory and memory.temp_size_in_bytes / 1e9}


def scan(task: str, backend: str, small: bool, copy_gb_s: float) -> Row:
    """One scan of the paper's shape, forward and backward, by one of our backends or as published."""
    shape = Shape(2, PAPER[task].length // 16, 8, 8) if small else PAPER[task]
    phase, radius = jnp.linspace(0.1, 3.0, shape.state), jnp.linspace(0.9, 0.999, shape.state)
    lam: Any = Complex(radius * jnp.cos(phase), radius * jnp.sin(phase))
    size = (shape.length, shape.batch, shape.state)
    v, g = ([jax.random.normal(jax.random.key(2 * i + j), size) for j in (0, 1)] for i in (0, 1))
    if backend == "published":
        lam = lam.real + 1j * lam.imag
        v, g = (jnp.swapaxes(re + 1j * im, 0, 1) for re, im in (v, g))
        function: Any = forms.published_scan
    else:
        chunks = chunk_count(shape.length, shape.batch * shape.state, backend)
        v, g = (split(Complex(*pair), chunks) if chunks > 1 else Complex(*pair) for pair in (v, g))
        function = partial(linear_scan, backend=backend)

    @jax.jit
    def both_ways(lam: Any, v: Any, g: Any) -> Any:
        x, back = jax.vjp(function, lam, v)
        return x, back(g)

    run, row = compiled(both_ways, lam, v, g)
    seconds = seconds_per_call(lambda: run(lam, v, g), 0.02 if small else 0.15)
    gb_s = BYTES * shape.batch * shape.length * shape.state / seconds / 1e9
    return row | {"ms": seconds * 1e3, "gb_s": gb_s, "of_copy": gb_s / copy_gb_s}


def measurements(options: argparse.Namespace, copy_gb_s: float) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Name and function of everything that is to be measured."""
    on_cpu = jax.default_backend() == "cpu"
    backends = [name for name in BACKENDS if on_cpu or name != "sequential"]
    for task in options.tasks:
        for backend in (*backends, "published"):
            yield f"scan/{task}/{backend}", partial(scan, task, backend, options.small, copy_gb_s)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="tiny sizes")
    parser.add_argument("--tasks", nargs="+", choices=list(PAPER), default=list(PAPER), metavar="TASK")
    parser.add_argument("--out", type=Path, default=Path("accelerator.json"), metavar="FILE")
    options = parser.parse_args(arguments)
    device, speeds = jax.devices()[0], forms.machine_speeds()
    document: Row = {"device": device.device_kind, "platform": device.platform, "jax": jax.__version__, **speeds}
    document |= {"small": options.small, "results": {}}
    print(", ".join(f"{key} {value}" for key, value in document.items() if key != "results"), flush=True)
    for name, measure in measurements(options, speeds["copy_gb_s"]):
        try:
            row = measure()
        except Exception as error:  # too large for the device, for example: the others are still of interest
            row = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:600]}
        document["results"][name] = row
        cells = [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()]
        print(f"{name}: {', '.join(cells)}", flush=True)
        options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

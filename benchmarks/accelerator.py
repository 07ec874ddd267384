"""Scan, training step and training loop on whatever device jax finds: an accelerator, or the CPU.

    python benchmarks/accelerator.py [--small] [--only scan step loop] [--tasks sCIFAR ...] [--out FILE]

It prints a line per measurement and writes all of them as JSON. A measurement that fails, for lack of memory for
example, is recorded with its error. `--small` takes tiny sizes, to test the script or to run it on a CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from lrurun.bench import PAPER, Shape, forms
from lrurun.config import plan as planning
from lrurun.config.ladder import load_ladder
from lrurun.nn.complex import Complex
from lrurun.nn.scan import BACKENDS, chunk_count, linear_scan, split
from lrurun.training.programs import Programs

ROUNDS = 5
BYTES = 40
"""A number of a scan: v is read and x written forward; the cotangent and x are read and w is written backward."""

Row = dict[str, Any]
SMALL = {"model.depth": 1, "model.width": 8, "model.state": 8, "train.batch": 4}


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


def step(task: str, rung: str, precision: str, small: bool) -> Row:
    """Training steps of a recipe on random data, as a worker takes them, beside the published speed."""
    sets = {"model.precision": precision, "execution.steps_per_dispatch": 5} | (SMALL if small else {})
    plan = planning.make(task, sets=sets)
    (chosen,) = planning.choose_rungs(plan, [rung])
    spec = plan.task.spec(plan.options)
    if small:
        spec = msgspec.structs.replace(spec, length=64)
    batch, random, lengths = chosen.config.train.batch, np.random.RandomState(0), None
    size: tuple[int, ...] = (4 * batch, 2, spec.length) if spec.pair else (4 * batch, spec.length)
    if spec.kind == "tokens":
        inputs = random.randint(1, spec.features, size)
        lengths = jnp.asarray(random.randint(spec.length // 4, spec.length + 1, size[:-1]), jnp.int32)
    else:
        inputs = random.randint(0, 256, size if spec.features == 1 else (*size, spec.features))
    labels = jnp.asarray(random.randint(0, spec.classes, len(inputs)), jnp.int32)
    split = jnp.asarray(inputs.astype(np.uint8)), labels, lengths

    programs = Programs(chosen.config, chosen.execution, spec)
    index = np.arange(programs.rows * batch, dtype=np.int32).reshape(1, programs.rows, batch) % len(inputs)
    rest = np.full((1, programs.rows), 1e-4, np.float32), np.bool_(False), np.int32(programs.rows), split
    seeds = np.zeros(1, np.uint32)
    state = programs.init(seeds)
    run, row = compiled(programs.dispatch, state, seeds, index, *rest)

    def call() -> Any:
        nonlocal state
        state, readings = run(state, seeds, index, *rest)
        return readings

    speed = programs.rows / seconds_per_call(call, 0.05 if small else 0.8)
    row |= {"steps_per_second": speed, "parameters": programs.parameters}
    for published in load_ladder("lru").speeds:
        if published.rung == rung and task in published.steps_per_second:
            row |= {"published": published.steps_per_second[task], "published_device": published.device}
    return row


def loop() -> Row:
    """A worker's loop against a bare loop of the same program: the ratios of `lrurun bench loop`."""
    arguments = [sys.executable, "-m", "lrurun", "bench", "loop", "--rounds", "5", "--seconds", "1", "--json"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return {result["name"]: result["ratio"] for result in json.loads(done.stdout)["results"]}


def measurements(options: argparse.Namespace, copy_gb_s: float) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Name and function of everything that is to be measured."""
    if "scan" in options.only:
        on_cpu = jax.default_backend() == "cpu"
        backends = [name for name in BACKENDS if on_cpu or name != "sequential"]
        for task in options.tasks:
            for backend in (*backends, "published"):
                yield f"scan/{task}/{backend}", partial(scan, task, backend, options.small, copy_gb_s)
    if "step" in options.only:
        for task in options.tasks:
            lru = "small-phase" if task == "PathX" else "gamma-norm"
            for rung, precision in ((lru, "tf32"), (lru, "bf16"), (lru, "float32"), ("tanh-rnn", "tf32")):
                yield f"step/{task}/{rung}/{precision}", partial(step, task, rung, precision, options.small)
    if "loop" in options.only:
        yield "loop", loop


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="tiny sizes")
    parser.add_argument("--only", nargs="+", choices=("scan", "step", "loop"), default=["scan", "step", "loop"])
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

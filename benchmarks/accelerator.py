"""All there is to measure on an accelerator, in one call of at most ten minutes.

    python benchmarks/accelerator.py [--minutes 9] [--out DIR] [--only PART ...]

It runs from a source tree, without installation and without a network. Of the packages in pyproject.toml it does not
need tensorflow-datasets, grain, array-record, pillow and requests. Where others are missing, unpacked wheels will do:

    PYTHONPATH=WHEELS python benchmarks/accelerator.py --out DIR

What it finds stands in DIR/accelerator.json and DIR/accelerator.md, written anew after every item, and what the
measuring process said beside that in DIR/accelerator.log. That process is a child: where it breaks or hangs it is
ended, which is reported, and the next item gets a new one. Parts have shares of the time; what one leaves over is the
later ones'. `--small` takes tiny sizes and a few items of each part, to try the script itself.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import gc
import json
import math
import os
import select
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lrurun import bench, catalog, provenance  # noqa: E402  (none of these imports jax, which only the child may)

Tree = Any
Row = dict[str, Any]
"""What was found: numbers, or why there are none, under "left_out" or "error"."""

SHAPES = ("sCIFAR", "ListOps", "PathX")
"""Of which of the paper's shapes the scan is timed."""
BYTES = 40
"""A number of a scan: v is read and x written forward, the cotangent and x are read and w is written backward."""
ROUNDS = 7
AIM_COPY = 0.6
"""An aim of the project's design: the best scan's share of the copy bandwidth."""
AIM_STEPS = 60.0
"""Another: steps/s of sCIFAR in tf32."""


class LeftOut(Exception):
    """Why something is not measured."""


class Context(NamedTuple):
    """What measuring one item has to know."""

    small: bool
    found: dict[str, dict[str, Row]]
    """Part -> item -> what was found so far."""
    place: str
    """A folder for files that nobody wants to keep."""
    seconds: float
    """As long as it may take."""


class Part(NamedTuple):
    """A group of items."""

    share: float
    """Of the time, in any unit."""
    least: float
    """Seconds below which no item is begun."""
    most: float
    """Seconds after which an item counts as hanging."""
    items: Sequence[str] | Callable[[Context], Sequence[str]]
    measure: Callable[[str, Context], Row]
    every: int = 1
    """The small form takes the first of so many items."""
    here: bool = False
    """Whether it starts processes of its own, which need the device's memory: no child may be there then."""


# Timing. From here to the runner, everything happens in the child.


def _turns(runs: dict[str, Callable[[int], None]], seconds: float, rounds: int = ROUNDS) -> dict[str, float]:
    """Median seconds of a call of each; all take turns of about `seconds`. `run(n)` calls n times and then waits."""
    calls, taken = {}, {name: list[float]() for name in runs}
    for name, run in runs.items():
        run(1)
        calls[name] = max(1, min(1000, int(seconds / _clocked(run, 1))))
    for _ in range(rounds):
        for name, run in runs.items():
            taken[name].append(_clocked(run, calls[name]) / calls[name])
    return {name: statistics.median(times) for name, times in taken.items()}


def _clocked(run: Callable[[int], None], calls: int) -> float:
    began = time.perf_counter()
    run(calls)
    return time.perf_counter() - began


def _calling(run: Any, arguments: tuple[Any, ...]) -> Callable[[int], None]:
    import jax

    def call(calls: int) -> None:
        for _ in range(calls):
            last = run(*arguments)
        jax.block_until_ready(last)

    return call


def _temporary(run: Any) -> float | None:
    """GB that a compiled function needs beside its arguments and results, where the compiler tells."""
    memory = run.memory_analysis()
    return memory and memory.temp_size_in_bytes / 1e9


def _wants_accelerator(context: Context) -> None:
    import jax

    if jax.default_backend() == "cpu" and not context.small:
        raise LeftOut("the device is a CPU, and the sizes are an accelerator's; --small has others")


# 1. The machine.

MACHINE = ("device", "copy", "product float32", "product tf32", "product bf16")
SMI = ["nvidia-smi", "--query-gpu=memory.total,driver_version,clocks.max.mem,power.limit", "--format=csv,noheader"]


def measure_machine(item: str, context: Context) -> Row:
    import jax
    import jax.numpy as jnp

    if item == "device":
        device = jax.devices()[0]
        row: Row = {"device": device.device_kind, "platform": device.platform, "count": jax.device_count()}
        row |= {"pool_gb": (device.memory_stats() or {}).get("bytes_limit", 0) / 1e9}
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            row["nvidia"] = subprocess.run(SMI, capture_output=True, text=True, timeout=10).stdout.strip()
        return row | {"cpu": provenance.cpu(), "cores": provenance.cores(), **provenance.versions()}
    if item == "copy":
        add = jax.jit(lambda x: x + 1.0, donate_argnums=0)
        large = jnp.ones(1 << (20 if context.small else 28), jnp.float32)
        size = large.nbytes

        def copy(calls: int) -> None:
            nonlocal large
            for _ in range(calls):
                large = add(large)
            jax.block_until_ready(large)

        return {"gb_s": 2 * size / _turns({"": copy}, 0.1)[""] / 1e9}
    precision = item.removeprefix("product ")
    if jax.default_backend() == "cpu" and precision != "float32":
        raise LeftOut("a CPU computes in float32")
    side = 256 if context.small else 8192
    square = jax.random.normal(jax.random.key(0), (side, side), jnp.bfloat16 if precision == "bf16" else jnp.float32)
    how = {"float32": "highest", "tf32": "tensorfloat32", "bf16": None}[precision]
    multiply = jax.jit(functools.partial(jnp.matmul, precision=how, preferred_element_type=jnp.float32))
    return {"tflop_s": 2 * side**3 / _turns({"": _calling(multiply, (square, square))}, 0.1)[""] / 1e12}


# 2. Whether every backend is right here.


class Case(NamedTuple):
    """A scan whose values and gradients are compared with float64."""

    steps: int
    batch: int
    states: int
    radius: float
    reverse: bool = False
    initial: bool = False


CASES = {
    "one step": Case(1, 1, 1, 0.9, initial=True),
    "odd": Case(21, 3, 50, 0.99, reverse=True, initial=True),
    "padded": Case(1000, 7, 130, 0.99, initial=True),
    "pieces": Case(784, 50, 64, 0.99, reverse=True),
    "lanes": Case(96, 64, 256, 0.99, reverse=True, initial=True),
    "slow": Case(1024, 1, 16, 0.9999),
    "long": Case(16_384, 1, 16, 0.9999),
}
CHECKS = {
    "sequential": ("odd", "slow"),  # step after step, a GPU would take long for more
    "chunked": ("odd", "pieces", "long"),
    "associative": ("odd", "pieces", "long"),
    "published": ("long",),
}
LIMITS = {0.9999: 3e-3}
"""Radius -> the largest error that is taken for rounding: powers of lambda by squaring lose digits near 1."""
LIMIT = 2e-4


def _scan_of(backend: str, reverse: bool = False) -> Callable[..., Any]:
    """Pairs of lambda (N,), v (T, B, N) and the initial state, which may be left out -> a pair of states."""
    from lrurun.bench.forms import published_scan
    from lrurun.scan import linear_scan

    def ours(lam: Tree, v: Tree, *initial: Tree) -> Tree:
        return linear_scan(lam, v, initial=initial[0] if initial else None, reverse=reverse, backend=backend)

    def published(lam: Tree, v: Tree) -> Tree:
        x = published_scan(lam[0] + 1j * lam[1], (v[0] + 1j * v[1]).swapaxes(0, 1)).swapaxes(0, 1)
        return x.real, x.imag

    return published if backend == "published" else ours


def _reference(case: Case) -> tuple[list[Any], list[Any]]:
    """Lambda, v, g and the initial state; then the states and the gradients of lambda, v and initial, in float64."""
    import numpy as np

    random = np.random.RandomState(0)

    def rounded(z: Any) -> Any:
        return z.astype(np.complex64).astype(np.complex128)

    def normal(*shape: int) -> Any:
        return rounded(random.standard_normal(shape) + 1j * random.standard_normal(shape))

    lam = rounded(case.radius * np.exp(1j * random.uniform(0.1, 3.0, case.states)))
    v, g = normal(case.steps, case.batch, case.states), normal(case.steps, case.batch, case.states)
    initial = normal(case.batch, case.states) * case.initial
    order = list(range(case.steps))[:: -1 if case.reverse else 1]
    x, w, before, after = v.copy(), g.copy(), initial, np.zeros_like(initial)
    for k in order:
        x[k] += lam * before
        before = x[k]
    for k in order[::-1]:
        w[k] += np.conj(lam) * after
        after = w[k]
    previous = np.concatenate([x[1:], initial[None]] if case.reverse else [initial[None], x[:-1]])
    dlam = np.sum(w * np.conj(previous), axis=(0, 1))
    return [lam, v, g, initial], [x, dlam, w, np.conj(lam) * after]


def measure_correct(item: str, context: Context) -> Row:
    """Errors over the root mean square of each state, the worst one; of lambda's gradient relative, the worst one."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    backend, _, name = item.partition(" ")
    if name in SHAPES:
        return _agreement(backend, name, context)
    case = CASES[name]
    if context.small:
        case = case._replace(steps=-(-case.steps // 16))
    (lam, v, g, initial), wanted = _reference(case)

    def pair(z: Any) -> Tree:
        return jnp.asarray(z.real, jnp.float32), jnp.asarray(z.imag, jnp.float32)

    @jax.jit
    def run(g: Tree, *arguments: Tree) -> Tree:
        x, back = jax.vjp(_scan_of(backend, case.reverse), *arguments)
        return x, *back(g)

    arguments = [pair(g), pair(lam), pair(v), *([pair(initial)] if case.initial else [])]
    began = time.perf_counter()
    found = jax.block_until_ready(run(*arguments))
    row: Row = {"seconds": time.perf_counter() - began}
    for what, (re, im), right in zip(("states", "lambda", "inputs", "initial"), found, wanted, strict=False):
        size = np.sqrt(np.mean(np.abs(right) ** 2, axis=tuple(range(right.ndim - 1))))
        row[what] = float(np.max(np.abs(np.asarray(re, np.float64) + 1j * np.asarray(im, np.float64) - right) / size))
    limit = LIMITS.get(case.radius, LIMIT)
    return row | {"right": all(row[what] < limit for what in row if what != "seconds"), "limit": limit}


def _agreement(backend: str, name: str, context: Context) -> Row:
    """The same at the paper's size, against "chunked" on the device; errors over the root mean square of everything."""
    import jax
    import jax.numpy as jnp

    _wants_accelerator(context)

    @jax.jit
    def differences(g: Tree, *arguments: Tree) -> list[Any]:
        results = []
        for one in (backend, "chunked"):
            x, back = jax.vjp(_scan_of(one), *arguments)
            results.append((x, *back(g)))
        return [
            jnp.max(jnp.stack([jnp.max(jnp.abs(p - q)) / jnp.sqrt(jnp.mean(q * q)) for p, q in zip(a, b, strict=True)]))
            for a, b in zip(*results, strict=True)
        ]

    began = time.perf_counter()
    found = [float(number) for number in differences(*_problem(_shape(name, context)))]
    row: Row = {"seconds": time.perf_counter() - began, **dict(zip(("states", "lambda", "inputs"), found, strict=True))}
    return row | {"right": max(found) < LIMITS[0.9999], "limit": LIMITS[0.9999], "against": "chunked"}


# 3. The scan.


def _shape(name: str, context: Context) -> bench.Shape:
    shape = bench.PAPER[name]
    return bench.Shape(2, shape.length // 16, 8, 8, 1) if context.small else shape


def _problem(shape: bench.Shape) -> tuple[Tree, Tree, Tree]:
    """A cotangent, lambda and v, pairs, made on the device."""
    import jax
    import jax.numpy as jnp

    phase = jnp.linspace(0.1, 3.0, shape.state)
    radius = jax.random.uniform(jax.random.key(0), (shape.state,), minval=0.9, maxval=0.999)
    size = (shape.length, shape.batch, shape.state)
    g_re, g_im, v_re, v_im = (jax.random.normal(jax.random.key(seed), size) for seed in range(1, 5))
    return (g_re, g_im), (radius * jnp.cos(phase), radius * jnp.sin(phase)), (v_re, v_im)


def _scan_form(name: str, g: Tree, lam: Tree, v: Tree) -> Any:
    """A form to time, each in the layout that it works in."""
    import jax
    import jax.numpy as jnp

    from lrurun.bench import forms
    from lrurun.scan import split, stretches

    if name == "published":
        turn = jax.jit(lambda z: jnp.swapaxes(z[0] + 1j * z[1], 0, 1))
        return forms._both_ways(forms.published_scan, jnp.conj(turn(g)), lam[0] + 1j * lam[1], turn(v))
    chunks = stretches(len(v[0]), v[0][0].size, name)
    if chunks > 1:
        g, v = ((split(re, chunks), split(im, chunks)) for re, im in (g, v))
    return forms._both_ways(_scan_of(name), g, lam, v)


def measure_scan(item: str, context: Context) -> Row:
    from lrurun.bench import forms

    _wants_accelerator(context)
    began, shape = time.monotonic(), _shape(item, context)
    problem = _problem(shape)
    rows: dict[str, Row] = {}
    runs = {}
    checked = context.found.get("pallas", {}).get(f"pallas {item}", {"right": True})
    for name in ("chunked", "pallas", "associative", "published"):
        if name == "pallas" and "right" not in checked:  # it might break or hang
            rows[name] = {"left_out": f"when it was checked: {_brief(checked)}"}
            continue
        if time.monotonic() - began > context.seconds / 2:
            rows[name] = {"left_out": "the others took too long to compile"}
            continue
        try:
            form = _scan_form(name, *problem)
            run, seconds = forms._compiled(form)
            runs[name] = _calling(run, form.arguments(None))
            runs[name](1)
            rows[name] = {"compile_s": seconds, "temp_gb": _temporary(run)}
        except Exception as error:  # any of them may be too large
            runs.pop(name, None)
            rows[name] = {"error": _text(error)}
    copy = context.found.get("machine", {}).get("copy", {}).get("gb_s")
    for name, seconds in _turns(runs, 0.02 if context.small else 0.15).items():
        rate = BYTES * shape.batch * shape.length * shape.state / seconds / 1e9
        rows[name] |= {"ms": seconds * 1e3, "gb_s": rate, "of_copy": copy and rate / copy}
    ours = [name for name, row in rows.items() if "ms" in row and name != "published"]
    if not checked.get("right"):
        ours = [name for name in ours if name != "pallas"]
    return {"shape": shape._asdict(), "forms": rows, "best": min(ours, key=lambda name: rows[name]["ms"], default=None)}


# 4. Training steps of the paper's tasks, and 5. seeds in one program.


def _best(task: str, found: dict[str, dict[str, Row]]) -> str:
    """The fastest backend at the measured shape whose length is nearest; "auto" where that is the same, or unknown."""
    known = {name: row["best"] for name, row in found.get("scan", {}).items() if row.get("best")}
    if not known:
        return "auto"
    length = math.log(bench.PAPER[task].length)
    best: str = known[min(known, key=lambda name: abs(math.log(bench.PAPER[name].length) - length))]
    on_cpu = found.get("machine", {}).get("device", {}).get("platform") == "cpu"
    return "auto" if best == ("sequential" if on_cpu else "associative") else best


def step_items(context: Context) -> list[str]:
    """task/rung/precision/backend, what matters most first."""

    def lru(task: str, precision: str, backend: str) -> str:
        return "/".join((task, "small-phase" if task == "PathX" else "gamma-norm", precision, backend))

    best = {task: _best(task, context.found) for task in bench.PAPER}
    items = [lru(task, "tf32", best[task]) for task in best]
    items += [lru("sCIFAR", "tf32", "auto")]
    items += [lru("sCIFAR", precision, best["sCIFAR"]) for precision in ("float32", "bf16")]
    items += ["sCIFAR/tanh-rnn/tf32/auto"]
    items += [lru(task, "tf32", "auto") for task in best]
    items += [f"{task}/tanh-rnn/tf32/auto" for task in best]
    return items


SMALL = {"model.depth": 1, "model.width": 8, "model.state": 8, "train.batch": 4}


class _Training:
    """Training steps on random data of a task's kind, as a worker takes them."""

    def __init__(self, task: str, rung: str, sets: Row, small: bool, pack: int = 1) -> None:
        import jax.numpy as jnp
        import msgspec
        import numpy as np

        from lrurun import plan as planning
        from lrurun import train

        plan = planning.make(task, sets=sets | (SMALL if small else {}))
        (chosen,) = planning.choose_rungs(plan, [rung])
        spec = plan.task.spec(plan.options)
        if small:
            spec = msgspec.structs.replace(spec, length=64)
        batch = chosen.config.train.batch
        random = np.random.RandomState(0)
        size: tuple[int, ...] = (4 * batch, 2, spec.length) if spec.pair else (4 * batch, spec.length)
        lengths = None
        if spec.kind == "tokens":
            inputs = random.randint(1, spec.features, size)
            lengths = jnp.asarray(random.randint(spec.length // 4, spec.length + 1, size[:-1]), jnp.int32)
        else:
            inputs = random.randint(0, 256, size if spec.features == 1 else (*size, spec.features))
        labels = jnp.asarray(random.randint(0, spec.classes, len(inputs)), jnp.int32)
        split = jnp.asarray(inputs.astype(np.uint8)), labels, lengths

        programs = train.Programs(chosen.config, chosen.execution, spec, pack)
        self.rows = programs.rows
        index = np.arange(self.rows * batch, dtype=np.int32).reshape(self.rows, batch) % len(inputs)
        rates = np.full(self.rows, 1e-4, np.float32)
        seeds = programs.together([np.uint32(seed) for seed in range(pack)])
        of_runs = seeds, programs.together([index] * pack), programs.together([rates] * pack)
        self._arguments: Callable[[], tuple[Any, ...]] = lambda: (*of_runs, np.bool_(False), np.int32(self.n), split)
        self._live = programs.init(seeds)
        self.n = 1
        """Steps a call."""
        began = time.perf_counter()
        self._run = programs.dispatch.lower(self._live, *self._arguments()).compile()
        self.compile_s = time.perf_counter() - began
        self.temp_gb = _temporary(self._run)
        self.parameters = programs.parameters

    def __call__(self, calls: int) -> None:
        import jax

        for _ in range(calls):
            self._live, seen = self._run(self._live, *self._arguments())
        jax.block_until_ready((self._live, seen))


def measure_steps(item: str, context: Context) -> Row:
    _wants_accelerator(context)
    task, rung, precision, backend = item.split("/")
    sets = {"model.precision": precision, "execution.scan_backend": backend, "execution.steps_per_dispatch": 5}
    without = None
    try:
        row = _steps(task, rung, sets, context)
    except Exception as error:
        without = _text(error)
        if "RESOURCE_EXHAUSTED" not in without and "out of memory" not in without.lower():
            raise
    if without:
        gc.collect()  # what the error held
        row = _steps(task, rung, sets | {"execution.remat": True}, context) | {"without_remat": without}
    for speed in catalog.load_ladder("lru").speeds:
        if speed.rung == rung and task in speed.steps_per_second:
            published = speed.steps_per_second[task]
            row |= {"published": published, "device": speed.device, "source": speed.source}
            row |= {"ratio": row["steps_per_second"] / published}
    return row


def _steps(task: str, rung: str, sets: Row, context: Context) -> Row:
    training = _Training(task, rung, sets, context.small)
    if rung == "tanh-rnn":  # one step that does not count, and two that do
        training(1)
        seconds = _clocked(training, 2) / 2
    else:
        training(1)
        training.n = max(1, min(training.rows, int(0.4 / _clocked(training, 1))))
        seconds = _turns({"it": training}, 0.05 if context.small else 0.8, rounds=5)["it"] / training.n
    row: Row = {"steps_per_second": 1 / seconds, "compile_s": training.compile_s, "temp_gb": training.temp_gb}
    return row | {"parameters": training.parameters, "remat": bool(sets.get("execution.remat"))}


def measure_packing(item: str, context: Context) -> Row:
    """One seed, and several in one program, in turns."""
    _wants_accelerator(context)
    several = int(item.partition(" ")[0])
    both = {pack: _Training("sDigits", "gamma-norm", {}, context.small, pack) for pack in (1, several)}
    for training in both.values():
        training.n = training.rows
    taken = _turns({str(pack): training for pack, training in both.items()}, 0.05 if context.small else 0.5)
    one, together = (pack * both[pack].n / taken[str(pack)] for pack in both)
    return {"one": one, "together": together, "ratio": together / one}


# 6. The runner: commands, in processes of their own.


def measure_runner(item: str, context: Context) -> Row:
    profile, steps = ("smoke", 20) if context.small else ("laptop", 200)
    where = f"ListOps --profile {profile} --set train.steps={steps} --set train.eval_every={steps // 2}"
    rungs = "--rung gamma-norm" if context.small else "--rung gamma-norm --rung small-phase"
    words = {
        "ladder": f"ladder {where} {rungs} --seeds 1",
        "report": f"report {where} --speed",
        "loop": "bench loop --rounds 5 --seconds 1 --json",
    }[item]
    if item == "loop" and context.small:
        raise LeftOut("it takes longer than everything else that is small")
    place = Path(context.place)
    path = [ROOT, *(Path(p).resolve() for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "COLUMNS": "120"}
    env |= {"XDG_CACHE_HOME": str(place), "XDG_DATA_HOME": str(place), "LRURUN_LEDGER": str(place / "ledger.db")}
    if item == "loop":
        env["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.4"  # it has two processes on the device at once
    command = [sys.executable, "-m", "lrurun", *words.split()]
    began, code = time.monotonic(), None
    with (place / "out").open("w") as out, (place / "err").open("w") as err:
        process = subprocess.Popen(command, cwd=place, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(context.seconds)
        finally:
            _end(process)
    text, said = ((place / name).read_text(errors="replace").strip() for name in ("out", "err"))
    row: Row = {"command": f"lrurun {words}", "code": code, "seconds": time.monotonic() - began, "said": said[-4000:]}
    if item == "loop" and code == 0:
        row["loops"] = {result["name"]: result["ratio"] for result in json.loads(text)["results"]}
    else:
        row["text"] = text
    if code != 0:
        row["error"] = f"{'no end' if code is None else f'exit code {code}'}: {' | '.join(said.splitlines()[-3:])}"
    return row


def _end(process: subprocess.Popen[Any]) -> None:
    """Ends a process and all that it started."""
    import psutil

    if process.poll() is not None:
        return
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


# The parts, the child that measures, and what is written down.


PARTS = {
    "machine": Part(30, 5, 40, MACHINE, measure_machine),
    "correct": Part(60, 8, 45, [f"{b} {case}" for b, cases in CHECKS.items() for case in cases], measure_correct, 3),
    "pallas": Part(55, 8, 30, [f"pallas {case}" for case in ("odd", *SHAPES, *CASES)], measure_correct, 3),
    "scan": Part(100, 15, 120, SHAPES, measure_scan, 3),
    "steps": Part(200, 15, 120, step_items, measure_steps, 12),
    "packing": Part(25, 10, 60, ["3 seeds"], measure_packing),
    "runner": Part(70, 15, math.inf, ["ladder", "report", "loop"], measure_runner, here=True),
}


def _text(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:600]


def serve() -> None:
    """The child: answers a line of JSON with another, until its input ends."""
    out = sys.stdout
    sys.stdout = sys.stderr  # nothing else may get between the answers
    for line in sys.stdin:
        asked = json.loads(line)
        answer = _answer(PARTS[asked["part"]], asked["item"], Context(*asked["context"]))
        gc.collect()
        answer["over"] = "error" in answer and not _works()
        out.write(json.dumps(answer) + "\n")
        out.flush()


def _answer(part: Part, item: str, context: Context) -> Row:
    try:
        return part.measure(item, context)
    except LeftOut as reason:
        return {"left_out": str(reason)}
    except Exception as error:
        traceback.print_exc()
        return {"error": _text(error)}


def _works() -> bool:
    """Whether the device still computes: after some errors it does nothing more for this process."""
    import jax.numpy as jnp

    try:
        return bool(jnp.sum(jnp.ones(8)) == 8)
    except Exception:
        return False


class Child:
    """The measuring process, started when it is needed."""

    def __init__(self, log: Path) -> None:
        self._log = log
        log.write_text("")
        self._process: subprocess.Popen[str] | None = None

    def ask(self, part: str, item: str, context: Context) -> Row:
        if self._process is None or self._process.poll() is not None:
            command, env = [sys.executable, __file__, "--serve"], {"JAX_ENABLE_COMPILATION_CACHE": "false"}
            pipe = subprocess.PIPE
            with self._log.open("a") as log:
                self._process = subprocess.Popen(
                    command, stdin=pipe, stdout=pipe, stderr=log, env=os.environ | env, text=True
                )
        requests, answers = self._process.stdin, self._process.stdout
        assert requests
        assert answers
        with contextlib.suppress(BrokenPipeError):
            requests.write(json.dumps({"part": part, "item": item, "context": context}) + "\n")
            requests.flush()
        if not select.select([answers], [], [], context.seconds)[0]:
            self.close()
            return {"error": f"no answer within {context.seconds:.0f} s"}
        if line := answers.readline():
            row: Row = json.loads(line)
            if row.pop("over"):
                self.close()
            return row
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        code = self._process.poll()
        words = " | ".join(self._log.read_text(errors="replace").strip().splitlines()[-3:])
        return {"error": f"the process ended with code {code}: {words}"[:600]}

    def close(self) -> None:
        if self._process is not None:
            _end(self._process)
            self._process = None


class Results:
    """What was found so far, printed, and written to files that are whole at any time."""

    def __init__(self, folder: Path, said: Row) -> None:
        self.folder = folder
        self.document: Row = {"schema_version": 1, **said, "parts": {}, "aims": [], "finished": False}

    @property
    def found(self) -> dict[str, dict[str, Row]]:
        return {name: part["items"] for name, part in self.document["parts"].items() if "items" in part}

    def put(self, part: str, item: str, row: Row) -> None:
        self.document["parts"].setdefault(part, {"items": {}})["items"][item] = _finite(row)
        print(f"{part}, {item}: {_brief(row)}", flush=True)
        self.write()

    def write(self) -> None:
        self.document["aims"] = aims(self.found, self.document["small"])
        texts = {"json": json.dumps(self.document, indent=1, allow_nan=False), "md": markdown(self.document)}
        for kind, text in texts.items():
            path = self.folder / f"accelerator.{kind}"
            new = path.with_suffix(f".{kind}.new")
            new.write_text(text + "\n")
            new.replace(path)


def _finite(value: Any) -> Any:
    """With text for numbers that JSON has not."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _brief(row: Row) -> str:
    if "error" in row or "left_out" in row:
        return "failed: " + row["error"] if "error" in row else "left out: " + row["left_out"]
    if "forms" in row:
        return "; ".join(f"{name}: {_brief(form)}" for name, form in row["forms"].items())
    kept = {name: value for name, value in row.items() if isinstance(value, bool | int | float)}
    return ", ".join(f"{name} {_number(value)}" for name, value in kept.items())


def aims(found: dict[str, dict[str, Row]], small: bool) -> list[Row]:
    """What the project's design aims at, and whether it is met: null where that was not measured."""
    rows: list[tuple[str, float, float | None]] = []
    for name in SHAPES:
        row = found.get("scan", {}).get(name, {})
        share = row["forms"][row["best"]]["of_copy"] if row.get("best") else None
        rows.append((f"share of the copy bandwidth that the best scan reaches, {name}", AIM_COPY, share))
    speeds = [
        row["steps_per_second"]
        for item, row in found.get("steps", {}).items()
        if item.startswith("sCIFAR/gamma-norm/tf32/") and "steps_per_second" in row
    ]
    rows.append(("steps/s of sCIFAR in tf32", AIM_STEPS, max(speeds, default=None)))
    return [
        {"aim": aim, "at_least": least, "found": value, "met": None if value is None or small else value >= least}
        for aim, least, value in rows
    ]


TITLES = {
    "machine": "The machine",
    "correct": "Errors of the scans against float64, over the root mean square",
    "pallas": "Errors of the Pallas kernel; at a task's size, against another backend on the device",
    "scan": f"Scan, forward and backward; GB/s are {BYTES} bytes a number over the time",
    "steps": "Training steps on random data",
    "packing": "Seeds in one program: steps/s of all together",
    "runner": "The runner",
}
HEADERS = {
    "gb_s": "GB/s",
    "tflop_s": "TFLOP/s",
    "pool_gb": "memory for arrays, GB",
    "of_copy": "of the copy's GB/s",
    "compile_s": "compile, s",
    "temp_gb": "temporary, GB",
    "steps_per_second": "steps/s",
    "published": "published, steps/s",
}
LONG = ("command", "text", "said", "shape", "best", "loops", "source", "without_remat")
"""What is no cell of a table."""


def _table(rows: dict[str, Row]) -> list[str]:
    """A line a row, and a column for everything that any of them has."""
    keys = dict.fromkeys(key for row in rows.values() for key in row if key not in LONG)
    cells = [["", *(HEADERS.get(key, key.replace("_", " ")) for key in keys)], ["---"] * (1 + len(keys))]
    cells += [[name, *(_number(row.get(key)) for key in keys)] for name, row in rows.items()]
    return ["| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in cells] + [""]


def markdown(document: Row) -> str:
    """Tables as in `benchmarks/README.md`."""
    device = document["parts"].get("machine", {}).get("items", {}).get("device", {})
    where = [device.get(key, "?") for key in ("device", "count", "cores", "cpu", "python", "jax")]
    exactly = ", ".join(f"{key} {_number(value)}" for key, value in device.items())
    lines = [
        "# Accelerator",
        "",
        "Machine: {}, {} of them; {} cores of {}; Python {}, jax {}.".format(*where)
        + f" {document['date']}, `{document['command']}`."
        + (" Sizes are small ones: the figures mean nothing." if document["small"] else ""),
        "",
        *([f"Exactly: {exactly}.", ""] if exactly else []),
        *_table({row["aim"]: {key: row[key] for key in ("at_least", "found", "met")} for row in document["aims"]}),
    ]
    for name, part in document["parts"].items():
        items = {item: row for item, row in part.get("items", {}).items() if row is not device}
        lines += [f"## {TITLES[name]}", "", *([f"Left out: {part['left_out']}.", ""] if "left_out" in part else [])]
        flat = {f"{i}, {form}": r for i, row in items.items() for form, r in row.get("forms", {"": row}).items()}
        flat = {item.removesuffix(", "): row for item, row in flat.items()}
        without = {item: _brief(row) for item, row in flat.items() if {"error", "left_out"} & set(row)}
        if measured := {item: row for item, row in flat.items() if item not in without}:
            lines += _table(measured)
        lines += [f"* {item}: {why}" for item, why in without.items()] + [""] * bool(without)
        for row in items.values():
            if "command" in row:
                lines += [f"`{row['command']}`", "", "```text", row.get("text") or str(row.get("loops")), "```", ""]
            elif "without_remat" in row:
                lines += [f"Without remat: {row['without_remat']}", ""]
    return "\n".join(lines).rstrip()


def measure(chosen: Sequence[str], results: Results, ends: float, small: bool) -> None:
    """All parts, until `ends` at the latest, on the monotonic clock."""
    child = Child(results.folder / "accelerator.log")
    shares = sum(PARTS[name].share for name in chosen)
    began, passed = time.monotonic(), 0.0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        try:
            for name, part in PARTS.items():
                if name not in chosen:
                    results.document["parts"][name] = {"left_out": "not asked for"}
                    continue
                passed += part.share
                until = began + (ends - began) * passed / shares
                if part.here:
                    child.close()
                started = time.monotonic()
                items = part.items(Context(small, results.found, place, 0)) if callable(part.items) else part.items
                for item in list(dict.fromkeys(items))[:: part.every if small else 1]:
                    left = until - time.monotonic()
                    context = Context(small, results.found, place, min(left, part.most))
                    if left < part.least:
                        row: Row = {"left_out": f"{max(0, left):.0f} s are left for this part, too few"}
                    else:
                        row = _answer(part, item, context) if part.here else child.ask(name, item, context)
                    results.put(name, item, row)
                results.document["parts"][name]["seconds"] = time.monotonic() - started
        finally:
            child.close()


def _words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=9.0, help="all of it ends within so many (default: 9)")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="where the files go (default: here)")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the script itself")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    began, words = time.monotonic(), _words()
    if words.serve:
        serve()
        return 0
    words.out.mkdir(parents=True, exist_ok=True)
    said = {
        "date": datetime.date.today().isoformat(),
        "command": shlex.join(["python", "benchmarks/accelerator.py", *sys.argv[1:]]),
        "code": provenance.code(),
        "minutes": words.minutes,
        "small": words.small,
    }
    results = Results(words.out, said)
    # The last seconds are for ending processes.
    measure(words.only or list(PARTS), results, began + max(0.0, 60 * words.minutes - 5), words.small)
    results.document |= {"finished": True, "seconds": time.monotonic() - began}
    results.write()
    for aim in results.document["aims"]:
        print(f"aim: {aim['aim']}: {_number(aim['found']) or 'not measured'} of {aim['at_least']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

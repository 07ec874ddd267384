"""`lrurun bench`: how fast our forms are, as ratios against the published ones on the same machine in the same minute.

Times of one machine say little of another's, and a machine that is shared says little of itself. So two processes take
turns, a round of each after a round of the other, and what is reported is the median over rounds of the ratio within a
round, with its interval. No jax here: the processes are `forms`.
"""

from __future__ import annotations

import contextlib
import json as jsonlib
import os
import pty
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from math import comb
from pathlib import Path
from typing import Any, NamedTuple

from lrurun import console, provenance
from lrurun.errors import LrurunError, UsageError
from lrurun.executors.local import environment


class Shape(NamedTuple):
    """Sizes of what is measured."""

    batch: int
    length: int
    width: int
    state: int
    depth: int = 1


SHAPES = {
    "digits": Shape(64, 64, 64, 64),
    "scifar": Shape(8, 1024, 256, 192),
    "listops": Shape(4, 2048, 128, 256),
    "long": Shape(1, 16_384, 128, 256),
}
"""Of a single layer: those of the tasks, with batches that two cores can bear."""

STEP_SHAPES = {
    "digits": Shape(64, 64, 64, 64, 4),
    "scifar": Shape(8, 1024, 128, 128, 3),
    "listops": Shape(2, 2048, 128, 256, 3),
    "long": Shape(1, 16_384, 64, 128, 2),
}
"""Of a whole network."""

PAPER = {
    "sCIFAR": Shape(50, 1024, 512, 384, 6),
    "ListOps": Shape(32, 2000, 128, 256, 6),
    "Text": Shape(32, 4096, 256, 192, 6),
    "Retrieval": Shape(128, 4000, 128, 256, 6),
    "Pathfinder": Shape(64, 1024, 192, 256, 6),
    "PathX": Shape(32, 16_384, 128, 256, 6),
}
"""The recipes' own, of the paper's sizes, for accelerators: layers and networks alike. One direction, no pairs."""

COMPILED = Shape(1, 16_384, 64, 64, 6)
"""Of the network whose step is compiled and not run."""

LOOP_TASK, LOOP_RUNG = "sDigits", "gamma-norm"
LOOP_MODELS: dict[str, dict[str, Any]] = {
    "sDigits": {},
    "small": {"model.depth": 1, "model.width": 16, "model.state": 16, "train.batch": 32},
}
"""What the loop trains: the recipe's own model, and one whose step takes about a millisecond on one core."""

WHAT = {
    "scan": "jax.lax.associative_scan under vmap, complex64",
    "layer": "the layer of the paper's appendix A",
    "layer-s5": "our LRU layer of as many complex states",
    "layer-s4d": "our LRU layer of as many complex states, or the fewest: one a channel",
    "layer-s4d-64": "our LRU layer, whatever its states, beside the published 32 a channel",
    "rnn": "a tanh layer left to autodiff",
    "step": "the appendix's layer in the same network, optax.adamw, one step a call",
    "loop": "the same compiled program called in a bare loop",
}
"""What is measured -> what it is measured against."""

LAYERS = [name for name in WHAT if name.startswith("layer-")]
"""Those of other kinds, all asked for at once."""

ERRORS = "the error of the published scan, against float64"
COMPILE_ROUNDS = 3


class Result(NamedTuple):
    """One thing against another, in rounds. Ratios above 1: ours is faster, smaller or more exact."""

    name: str
    against: str
    ours: float
    """Median."""
    theirs: float
    ratios: tuple[float, ...]
    """One a round, in rising order."""
    unit: str = "times as fast"
    limit: float | None = None
    """Share of what the machine's copy and product rates allow."""
    compile: tuple[float, float] | None = None
    """Seconds to trace and compile, ours and theirs, with no cache."""

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def interval(self) -> tuple[float, float]:
        return interval(self.ratios)

    @classmethod
    def of(cls, name: str, against: str, pairs: Sequence[tuple[float, float]], **more: Any) -> Result:
        """Of (ours, theirs) in every round."""
        ours, theirs = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
        return cls(name, against, ours, theirs, tuple(sorted(b / a for a, b in pairs)), **more)


def interval(ordered: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median of numbers in rising order, by their ranks (sign test).

    The least and the most where there are fewer than six, too few for 95 %.
    """
    n, tail, below = len(ordered), 0.0, 0
    while below < n // 2 and tail + comb(n, below) / 2**n <= 0.025:
        tail += comb(n, below) / 2**n
        below += 1
    first = max(0, below - 1)
    return ordered[first], ordered[n - 1 - first]


class _Process:
    """A process that makes forms ready and times them."""

    def __init__(self, threads: int, cache: str | None = None) -> None:
        """`cache` is the folder of compiled programs, None for none."""
        env = environment(threads) | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
        env.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.45")  # two of them share an accelerator
        if cache is not None:
            env |= {"JAX_ENABLE_COMPILATION_CACHE": "true", "JAX_COMPILATION_CACHE_DIR": cache}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lrurun.bench.forms"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            text=True,
            start_new_session=True,  # ^C reaches the command alone, which ends them
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            LrurunError: the process has died.
        """
        requests, answers = self._process.stdin, self._process.stdout
        assert requests
        assert answers
        try:
            requests.write(jsonlib.dumps(request) + "\n")
            requests.flush()
            line = answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise LrurunError(
                f"bench: the measuring process ended with code {self._process.wait()}",
                "its own words stand above; is there enough memory?",
            )
        answer: dict[str, Any] = jsonlib.loads(line)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def _processes(count: int, threads: int, cache: str | None = None) -> Iterator[list[_Process]]:
    made: list[_Process] = []
    try:
        for _ in range(count):
            made.append(_Process(threads, cache))
        yield made
    finally:
        for process in made:
            process.close()


def _floor(what: str, shape: Shape, machine: dict[str, Any]) -> float | None:
    """Seconds, at least, of the products and of the scan's one pass each way at the machine's rates.

    None where there is no scan, but a convolution.

    A scan reads v and writes x forward, 16 bytes a number; it reads the cotangents and x and writes w backward, 24. A
    product takes as much again for each of its two gradients. Norms, gates and the optimizer count nothing.
    """
    if what.startswith("layer-s4d"):
        return None
    positions, h, n = shape.batch * shape.length, shape.width, shape.state
    scan = 0 if what == "rnn" else 40 * positions * n
    products = {
        "scan": 0,
        "layer": 8 * h * n,
        "layer-s5": 8 * h * n,
        "rnn": 2 * n * n + 4 * h * n,
        "step": 8 * h * n + 4 * h * h,
    }[what]
    flops, seconds = 3 * positions * products, scan / machine["copy_gb_s"] / 1e9
    return shape.depth * (seconds + flops / machine["product_gflop_s"] / 1e9)


def _forms(
    what: str, name: str, rounds: int, seconds: float, machine: dict[str, Any], both: list[_Process]
) -> list[Result]:
    """Times both forms in turns, `seconds` a turn."""
    shape = (PAPER | (STEP_SHAPES if what == "step" else SHAPES))[name]
    ready = [p.ask(do="ready", what=what, shape=shape, ours=mine) for p, mine in zip(both, (True, False), strict=True)]
    pairs = [_turns(both, seconds) for _ in range(rounds)]
    speed = Result.of(f"{what}/{name}", WHAT[what], pairs, compile=(ready[0]["compile"], ready[1]["compile"]))
    memory, floor = (max(1, ready[0]["temp"]), ready[1]["temp"]), _floor(what, shape, machine)
    return [
        speed if floor is None else speed._replace(limit=floor / speed.ours),
        Result.of(f"memory-{what}/{name}", WHAT[what], [memory], unit="times as small"),
    ]


def _turns(both: list[_Process], seconds: float) -> tuple[float, float]:
    ours, theirs = (process.ask(do="time", seconds=seconds)["seconds"] for process in both)
    return ours, theirs


def _loop(model: str, rounds: int, seconds: float) -> Result:
    """Ours with a live view of its ledger beside it, which waits while the bare one has its turn."""
    with tempfile.TemporaryDirectory() as place, _processes(2, 1) as both:
        both[0].ask(do="loop", model=model, place=place)
        both[1].ask(do="loop", model=model, place=None)
        with _display(Path(place) / "ledger.db") as display:
            pairs = []
            for _ in range(1 + rounds):
                display.send_signal(signal.SIGCONT)
                ours = both[0].ask(do="time", seconds=seconds)["seconds"]
                display.send_signal(signal.SIGSTOP)
                pairs.append((ours, both[1].ask(do="time", seconds=seconds)["seconds"]))
    return Result.of(f"loop/{model}", WHAT["loop"], pairs[1:])  # in the first one the view is still starting


@contextlib.contextmanager
def _display(ledger: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`lrurun status --watch` on a terminal that nobody looks at."""
    here, there = pty.openpty()
    command = [sys.executable, "-m", "lrurun", "--ledger", str(ledger), "status", "--watch"]
    process = subprocess.Popen(command, stdin=there, stdout=there, stderr=there, start_new_session=True)
    os.close(there)

    def drain() -> None:
        with contextlib.suppress(OSError):
            while os.read(here, 65536):
                pass

    threading.Thread(target=drain, daemon=True).start()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        os.close(here)


def _compiles(both: list[_Process]) -> list[Result]:
    """A six-block step of 16,384 positions: against the published form, and with a warm cache against a cold one."""
    rounds = [
        [p.ask(do="compile", ours=ours)["seconds"] for p, ours in zip(both, (True, False), strict=True)]
        for _ in range(COMPILE_ROUNDS)
    ]
    pairs = []
    for _ in range(COMPILE_ROUNDS):
        seconds = []
        with tempfile.TemporaryDirectory() as cache:
            for _ in ("cold", "warm"):
                with _processes(1, provenance.cores(), cache) as (process,):
                    seconds.append(process.ask(do="compile", ours=True)["seconds"])
        pairs.append((seconds[1], seconds[0]))
    return [
        Result.of("compile/long", WHAT["step"], [(a, b) for a, b in rounds]),
        Result.of("compile-warm", "an empty cache of compiled programs", pairs),
    ]


def run(what: Sequence[str], shapes: Sequence[str], *, rounds: int, seconds: float, json: bool) -> int:
    """Measures and prints what is named, "layers" for all in `LAYERS`; everything where nothing is."""
    what = [one for name in what for one in (LAYERS if name == "layers" else [name])]
    for names, known in ((what, WHAT), (shapes, SHAPES | PAPER)):
        for name in names:
            if name not in known:
                raise UsageError(f"bench: expected one of {', '.join(known)}, found {name!r}", "lrurun bench --help")
    results: list[Result] = []
    with _processes(2, provenance.cores()) as both:
        machine = {"cpu": provenance.cpu(), "cores": provenance.cores(), **both[0].ask(do="machine")}
        for name in what or WHAT:
            if name == "loop":
                continue
            for shape in shapes or (SHAPES if machine["platform"] == "cpu" else PAPER):
                console.say(f"measuring {name}, {shape}: {rounds} rounds")
                results += _forms(name, shape, rounds, seconds, machine, both)
            if name == "scan":
                console.say("measuring the scan's errors")
                results += _errors(both[0].ask(do="errors"))
            if name == "step" and "long" in (shapes or ["long"]):
                console.say(f"compiling: {COMPILE_ROUNDS} rounds")
                results += _compiles(both)
    if "loop" in (what or WHAT):
        for model in LOOP_MODELS:
            console.say(f"measuring loop, {model}: {rounds} rounds")
            results.append(_loop(model, rounds, seconds))
    if json:
        console.write(jsonlib.dumps({"schema_version": 1, "machine": machine, "results": _listed(results)}, indent=2))
    else:
        _print(machine, results, rounds)
    return 0


def _errors(found: dict[str, list[float]]) -> list[Result]:
    theirs = found.pop("published")
    return [
        Result.of(f"{kind}/{backend}", ERRORS, [(error, published)], unit="times as exact")
        for backend, pair in found.items()
        for kind, error, published in zip(("error", "error-gradient"), pair, theirs, strict=True)
    ]


_UNITS = {"times as fast": "seconds", "times as small": "bytes", "times as exact": "error"}


def _listed(results: Sequence[Result]) -> list[dict[str, Any]]:
    table = []
    for result in results:
        low, high = result.interval
        quantity = _UNITS[result.unit]
        row: dict[str, Any] = {"name": result.name, "against": result.against, "ratio": result.ratio}
        row |= {"low": low, "high": high, "unit": result.unit, "rounds": len(result.ratios)}
        row |= {quantity: result.ours, f"against_{quantity}": result.theirs}
        if result.limit is not None:
            row["of_limit"] = result.limit
        table.append(row)
    return table


def _print(machine: dict[str, Any], results: Sequence[Result], rounds: int) -> None:
    memory = {r.name.removeprefix("memory-"): r.ours / r.theirs for r in results if r.unit == "times as small"}
    rows = []
    for result in results:
        if result.unit != "times as fast":
            continue
        low, high = result.interval
        rows.append(
            [
                result.name,
                *(f"{1e3 * s:,.0f}" if s > 1 else f"{1e3 * s:.3g}" for s in (result.ours, result.theirs)),
                f"{result.ratio:.2f} ({low:.2f} to {high:.2f})",
                "" if result.limit is None else f"{100 * result.limit:.0f} %",
                f"{memory[result.name]:.2f}" if result.name in memory else "",
                "" if result.compile is None else f"{result.compile[0]:.2g} / {result.compile[1]:.2g}",
            ]
        )
    if rows:
        headers = ["what", "ours, ms", "theirs, ms", "times as fast", "of limit", "memory", "compile, s"]
        console.table(None, headers, rows)
    errors = {r.name: r for r in results if r.unit == "times as exact"}
    pairs = [(e, errors[e.name.replace("error/", "error-gradient/")]) for e in errors.values() if "/" in e.name[:6]]
    if pairs:
        rows = [[e.name, f"{e.ours:.1e}", f"{e.theirs:.1e}", f"{g.ours:.1e}", f"{g.theirs:.1e}"] for e, g in pairs]
        console.table(None, ["what", "states", "published", "gradient of lambda", "published"], rows)
    said = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['device']}; jax {machine['jax']}; "
        f"copies {machine['copy_gb_s']:.0f} GB/s, multiplies at {machine['product_gflop_s']:.0f} GFLOP/s.",
        f"Forward and backward. Times as fast: median over {rounds} rounds, one form after the other in each, and the "
        "95 % interval of the median (under six rounds the least and the most). Limit: the time of the products and of "
        "the scan's one pass at those rates. Memory: temporary, ours over theirs. Compile: tracing too, no cache.",
        *(
            f"{name}: against {against}."
            for name, against in WHAT.items()
            if any(r.against == against for r in results)
        ),
    ]
    if pairs:
        said.append(
            "Errors: largest over time, over the root mean square, worst state; |lambda| = 0.9999, 16,384 steps."
        )
    console.write("\n".join(said))

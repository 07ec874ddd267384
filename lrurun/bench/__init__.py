"""`lrurun bench`: lrurun's speed as a ratio to the published forms' speed, on the same machine at the same time.

Absolute times depend on the machine and on its load. Therefore two processes take turns, and the result is the median
over rounds of the ratio within a round, with its interval. No jax here: the processes run `serve`.
"""

from __future__ import annotations

import contextlib
import json as jsonlib
import math
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from math import comb
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lrurun import console, paths
from lrurun.errors import LrurunError, UsageError
from lrurun.machine import cores, cpu


class Shape(NamedTuple):
    """Sizes of a measurement."""

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
"""Sizes of single layers, as the tasks have them, with batches for two cores."""

STEP_SHAPES = {
    "digits": Shape(64, 64, 64, 64, 4),
    "scifar": Shape(8, 1024, 128, 128, 3),
    "listops": Shape(2, 2048, 128, 256, 3),
    "long": Shape(1, 16_384, 64, 128, 2),
}
"""Sizes of whole networks."""

PAPER = {
    "sCIFAR": Shape(50, 1024, 512, 384, 6),
    "ListOps": Shape(32, 2000, 128, 256, 6),
    "Text": Shape(32, 4096, 256, 192, 6),
    "Retrieval": Shape(128, 4000, 128, 256, 6),
    "Pathfinder": Shape(64, 1024, 192, 256, 6),
    "PathX": Shape(32, 16_384, 128, 256, 6),
}
"""Sizes of the recipes, at the paper's scale, for layers and networks on accelerators. One direction, no pairs."""

COMPILED = Shape(1, 16_384, 64, 64, 6)
"""Sizes of the network whose training step is only compiled."""

LOOP_TASK, LOOP_RUNG = "sDigits", "gamma-norm"
LOOP_MODELS: dict[str, dict[str, Any]] = {
    "sDigits": {},
    "small": {"model.depth": 1, "model.width": 16, "model.state": 16, "train.batch": 32},
}
"""Models of the loop: the recipe's own, and one whose step takes about a millisecond on one core."""

WHAT = {
    "scan": "jax.lax.associative_scan under vmap, complex64",
    "scan-varying": "jax.lax.associative_scan under vmap with the gradient of autodiff, real factors at every step",
    "layer": "the layer of the paper's appendix A",
    "layer-s5": "our LRU layer with as many complex states",
    "layer-s4d": "our LRU layer with as many complex states; the other has at least one per channel",
    "layer-s4d-64": "our LRU layer with its usual number of states; the other has the published 32 per channel",
    "layer-rg-lru": "our LRU layer of the same width, as many complex states as features",
    "rnn": "a tanh layer with the gradient of autodiff",
    "step": "the appendix's layer in the same network, optax.adamw, one step a call",
    "claims": "the other rung of a claim about speed, at the sizes of the recipe",
    "loop": "the same compiled program called in a bare loop",
}
"""Measurement -> what it is compared with."""

ALL = [name for name in WHAT if name != "claims"]
"""The measurements that are made unless others are chosen: these compare with published forms."""
LAYERS = [name for name in WHAT if name.startswith("layer-")]
"""Layers of other kinds, which `layers` selects together."""

ERRORS = "the error of the published scan, against float64"
COMPILE_ROUNDS = 3


class Result(NamedTuple):
    """A comparison in rounds. Ratios above 1: ours is faster, smaller or more exact."""

    name: str
    against: str
    ours: float
    """Median."""
    theirs: float
    ratios: tuple[float, ...]
    """The ratios of the rounds, in ascending order."""
    least: tuple[float, float]
    """The least of ours and of theirs."""
    unit: str = "times as fast"
    limit: float | None = None
    """Fraction of the speed that the machine's copy and product rates allow."""
    compile: tuple[float, float] | None = None
    """Seconds to trace and compile, ours and theirs, without a cache."""

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def interval(self) -> tuple[float, float]:
        return interval(self.ratios)

    @classmethod
    def from_rounds(cls, name: str, against: str, pairs: Sequence[tuple[float, float]], **more: Any) -> Result:
        """The comparison of (ours, theirs) of every round."""
        ours, theirs = ([pair[i] for pair in pairs] for i in (0, 1))
        ratios, least = tuple(sorted(b / a for a, b in pairs)), (min(ours), min(theirs))
        return cls(name, against, statistics.median(ours), statistics.median(theirs), ratios, least, **more)


def interval(ordered: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median of numbers in ascending order, by their ranks (sign test).

    The least and the most where there are fewer than six, too few for 95 %.
    """
    n, tail, below = len(ordered), 0.0, 0
    while below < n // 2 and tail + comb(n, below) / 2**n <= 0.025:
        tail += comb(n, below) / 2**n
        below += 1
    first = max(0, below - 1)
    return ordered[first], ordered[n - 1 - first]


WAIT_SECONDS = 0.25
"""How often a command that waits for an answer looks after signals and its display."""


class Process:
    """A process that prepares forms and times them."""

    def __init__(
        self, threads: int, cache: str | None = None, *, shares: bool = True, platform: str | None = None
    ) -> None:
        """Starts the process.

        Args:
            cache: the folder of compiled functions, None for none.
            shares: whether another one uses the same accelerator.
            platform: jax's platform; None for the one of workers.
        """
        from lrurun.runner.processes import worker_environment  # `plan` and `report` start no process

        env = worker_environment(threads) | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
        if shares:
            env.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.45")
        if platform is not None:
            env["JAX_PLATFORMS"] = platform
        if cache is not None:
            env |= {"JAX_ENABLE_COMPILATION_CACHE": "true", "JAX_COMPILATION_CACHE_DIR": cache}
        # -P: no module of the user's folder takes the place of one of Python's
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lrurun.bench.serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            start_new_session=True,  # ^C reaches only the command, which ends them
        )
        self._received = b""
        """The part of the output that was not read as lines yet."""

    def ask(self, progress: Callable[[str], None] | None = None, **request: Any) -> dict[str, Any]:
        """The answer to a request.

        Args:
            progress: as in `receive`.

        Raises:
            LrurunError: the process has exited.
        """
        self.send(**request)
        return self.receive(progress)

    def send(self, **request: Any) -> None:
        """Sends a request, whose answer is to be received."""
        requests = self._process.stdin
        assert requests
        with contextlib.suppress(BrokenPipeError):  # it has exited, which `receive` reports
            requests.write(jsonlib.dumps(request).encode() + b"\n")
            requests.flush()

    def receive(self, progress: Callable[[str], None] | None = None) -> dict[str, Any]:
        """The answer to the request that was sent.

        Args:
            progress: called several times a second with what the process does.

        Raises:
            LrurunError: the process has exited.
        """
        stage = "starting"
        while True:
            if progress is not None:
                progress(stage)
            line = self._line(math.inf if progress is None else WAIT_SECONDS)
            if line is None:
                continue
            answer = self._decoded(line)
            if "stage" not in answer:
                return answer
            stage = answer["stage"]

    def _line(self, seconds: float) -> bytes | None:
        """The next line, empty after the last one; None if none has arrived in this time."""
        assert self._process.stdout
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._received:
            ready, _, _ = select.select([descriptor], [], [], None if math.isinf(seconds) else seconds)
            if not ready:
                return None
            block = os.read(descriptor, 1 << 16)
            if not block:
                return b""
            self._received += block
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _decoded(self, line: bytes) -> dict[str, Any]:
        if not line:
            code = self._process.wait()
            if code == -signal.SIGKILL:
                raise LrurunError(
                    "the measuring process was killed, mostly for lack of memory", "measure smaller sizes"
                )
            raise LrurunError(f"the measuring process ended with code {code}", "its messages are above")
        answer: dict[str, Any] = jsonlib.loads(line)
        return answer

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError), self._process as process:
            process.kill()


@contextlib.contextmanager
def _processes(count: int, threads: int, cache: str | None = None) -> Iterator[list[Process]]:
    made: list[Process] = []
    try:
        for _ in range(count):
            made.append(Process(threads, cache))
        yield made
    finally:
        for process in made:
            process.close()


def _floor(what: str, shape: Shape, machine: dict[str, Any]) -> float | None:
    """The least seconds for the products and for one pass of the scan each way, at the machine's rates.

    None for layers that are convolutions or have gates.

    A scan reads v and writes x forward, 16 bytes a complex number; it reads the cotangents and x and writes w backward,
    24. With a factor at every step it is 32 bytes a real number. A product takes as much again for each of its two
    gradients. Norms, gates and the optimiser are left out.
    """
    if what.startswith(("layer-s4d", "layer-rg")):
        return None
    positions, h, n = shape.batch * shape.length, shape.width, shape.state
    scan = {"rnn": 0, "scan-varying": 32}.get(what, 40) * positions * n
    products = {
        "scan": 0,
        "scan-varying": 0,
        "layer": 8 * h * n,
        "layer-s5": 8 * h * n,
        "rnn": 2 * n * n + 4 * h * n,
        "step": 8 * h * n + 4 * h * h,
    }[what]
    flops, seconds = 3 * positions * products, scan / machine["copy_gb_s"] / 1e9
    return shape.depth * (seconds + flops / machine["product_gflop_s"] / 1e9)


def _forms(
    what: str,
    name: str,
    rounds: int,
    seconds: float,
    machine: dict[str, Any],
    processes: list[Process],
) -> list[Result]:
    """Times our form and the published one in turns, `seconds` a turn."""
    shape = (PAPER | (STEP_SHAPES if what.startswith("step") else SHAPES))[name]
    ours, theirs = [
        process.ask(do="ready", what=what, shape=shape, form=form)
        for process, form in zip(processes, ("ours", "published"), strict=True)
    ]
    pairs = [tuple(process.ask(do="time", seconds=seconds)["seconds"] for process in processes) for _ in range(rounds)]
    memory = (max(1, ours["temp"]), theirs["temp"])
    speed = Result.from_rounds(f"{what}/{name}", WHAT[what], pairs, compile=(ours["compile"], theirs["compile"]))
    floor = _floor(what, shape, machine)
    return [
        speed if floor is None else speed._replace(limit=floor / speed.ours),
        Result.from_rounds(f"memory-{what}/{name}", WHAT[what], [memory], unit="times as small"),
    ]


class SpeedPair(NamedTuple):
    """Two rungs of a ladder on a task, whose training speeds a claim compares."""

    task: str
    ladder: str
    rung: str
    than: str

    @property
    def name(self) -> str:
        """The name of the result of the pair."""
        return "/".join(("claims", *self))


def speed_pairs() -> list[SpeedPair]:
    """The pairs of all claims about speed of the ladders that come with lrurun."""
    from lrurun.config.ladder import load_ladder  # the help of `plan` imports this module

    ladders = [load_ladder(name) for name in sorted(path.stem for path in paths.packaged("ablations").glob("*.toml"))]
    pairs = [
        SpeedPair(task, ladder.name, claim.rung, claim.than or "")
        for ladder in ladders
        for claim in ladder.claims
        if claim.is_about_speed
        for task in claim.tasks
    ]
    return list(dict.fromkeys(pairs))


def _pair(pair: SpeedPair, rounds: int, seconds: float, processes: list[Process]) -> Result:
    """Times training steps of two rungs in turns, with the settings of the recipe, on made-up examples."""
    from lrurun.config import planning

    plan = planning.make(pair.task, ladder=pair.ladder, imports=False)
    rungs = {rung.name: rung for rung in plan.rungs}
    ready = []
    for process, name in zip(processes, (pair.rung, pair.than), strict=True):
        config, execution = map(msgspec.to_builtins, (rungs[name].training, rungs[name].execution))
        ready.append(process.ask(do="train", config=config, execution=execution))
    pairs = [tuple(process.ask(do="time", seconds=seconds)["seconds"] for process in processes) for _ in range(rounds)]
    return Result.from_rounds(
        pair.name, f"{pair.than}, in the same network", pairs, compile=(ready[0]["compile"], ready[1]["compile"])
    )


def _loop(model: str, rounds: int, seconds: float) -> Result:
    """Our loop with a live view of its ledger, which is stopped during the turns of the bare loop."""
    with tempfile.TemporaryDirectory() as folder, _processes(2, 1) as processes:
        processes[0].ask(do="loop", model=model, folder=folder)
        processes[1].ask(do="loop", model=model, folder=None)
        with _display(Path(folder) / "ledger.db") as display:
            pairs = []
            for _ in range(1 + rounds):
                display.send_signal(signal.SIGCONT)
                ours = processes[0].ask(do="time", seconds=seconds)["seconds"]
                display.send_signal(signal.SIGSTOP)
                pairs.append((ours, processes[1].ask(do="time", seconds=seconds)["seconds"]))
    return Result.from_rounds(f"loop/{model}", WHAT["loop"], pairs[1:])  # in the first round the view is still starting


@contextlib.contextmanager
def _display(ledger: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`lrurun status --watch` on a pseudo-terminal whose output is discarded."""
    reader, terminal = os.openpty()
    command = [sys.executable, "-m", "lrurun", "--ledger", str(ledger), "status", "--watch"]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True)
    os.close(terminal)

    def drain() -> None:
        with contextlib.suppress(OSError):
            while os.read(reader, 65536):
                pass

    threading.Thread(target=drain, daemon=True).start()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        os.close(reader)


def _compiles(both: list[Process]) -> list[Result]:
    """Compiling a six-block step of 16,384 positions: against the published form, and warm against cold cache."""
    rounds = [
        [p.ask(do="compile", form=form)["seconds"] for p, form in zip(both, ("ours", "published"), strict=True)]
        for _ in range(COMPILE_ROUNDS)
    ]
    pairs = []
    for _ in range(COMPILE_ROUNDS):
        seconds = []
        with tempfile.TemporaryDirectory() as cache:
            for _ in ("cold", "warm"):
                with _processes(1, cores(), cache) as (process,):
                    seconds.append(process.ask(do="compile", form="ours")["seconds"])
        pairs.append((seconds[1], seconds[0]))
    return [
        Result.from_rounds("compile/long", WHAT["step"], [(a, b) for a, b in rounds]),
        Result.from_rounds("compile-warm", "an empty cache of compiled programs", pairs),
    ]


def measure(
    what: str | None, shapes: Sequence[str], *, rounds: int, seconds: float
) -> tuple[dict[str, Any], list[Result]]:
    """Measures one comparison, all of `LAYERS` for "layers", or everything for None.

    Args:
        shapes: names of `SHAPES` or `PAPER`; without any, the shapes for this type of machine. For "claims", tasks.
        seconds: duration of one measurement.

    Returns:
        What the machine is and how fast it copies and multiplies, and the results.
    """
    pairs = speed_pairs() if what == "claims" else []
    known = dict.fromkeys(pair.task for pair in pairs) if pairs else SHAPES | PAPER
    for name in shapes:
        if name not in known:
            raise UsageError(f"--shape: expected one of {', '.join(known)}, found {name!r}", "lrurun bench --help")
    if pairs and not shapes:
        raise UsageError("bench claims: needs a task, whose sizes are the paper's", f"--shape {next(iter(known))}")
    if what == "loop" and shapes:
        raise UsageError("bench loop: measures whole trainings, which have no --shape", "leave --shape out")
    chosen = LAYERS if what == "layers" else [what] if what else ALL
    results: list[Result] = []
    with _processes(2, cores()) as processes:
        machine = {"cpu": cpu(), "cores": cores(), **processes[0].ask(do="machine")}
        for name in chosen:
            for pair in (pair for pair in pairs if pair.task in shapes):
                console.say(
                    f"measuring {pair.rung} and {pair.than} of ladder {pair.ladder}, {pair.task}: {rounds} rounds"
                )
                results.append(_pair(pair, rounds, seconds, processes))
            if name in ("loop", "claims"):
                continue
            for shape in shapes or (SHAPES if machine["platform"] == "cpu" else PAPER):
                console.say(f"measuring {name}, {shape}: {rounds} rounds")
                results += _forms(name, shape, rounds, seconds, machine, processes)
            if name == "scan":
                console.say("measuring the scan's errors")
                results += _errors(processes[0].ask(do="errors"))
            if name == "step" and "long" in (shapes or ["long"]):
                console.say(f"compiling: {COMPILE_ROUNDS} rounds")
                results += _compiles(processes)
    if "loop" in chosen:
        for model in LOOP_MODELS:
            console.say(f"measuring loop, {model}: {rounds} rounds")
            results.append(_loop(model, rounds, seconds))
    return machine, results


def _errors(errors: dict[str, list[float]]) -> list[Result]:
    theirs = errors.pop("published")
    return [
        Result.from_rounds(f"{kind}/{backend}", ERRORS, [(error, published)], unit="times as exact")
        for backend, pair in errors.items()
        for kind, error, published in zip(("error", "error-gradient"), pair, theirs, strict=True)
    ]

"""`lrurun bench`: how fast our forms are, as ratios against the published ones on the same machine in the same minute.

Times of one machine say little of another's, and a machine that is shared says little of itself. So two processes take
turns, a round of each after a round of the other, and what is reported is the median over rounds of the ratio within a
round, with the smallest and the largest. No jax here: the processes are `forms`.
"""

from __future__ import annotations

import json as jsonlib
import statistics
import subprocess
import sys
from collections.abc import Sequence
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

WHAT = {
    "scan": "jax.lax.associative_scan under vmap, complex64",
    "layer": "the layer of the paper's appendix A",
    "rnn": "a tanh layer left to autodiff",
    "step": "the appendix's layer in the same network, optax.adamw, one step a call",
}
"""What is measured -> what it is measured against."""


class Result(NamedTuple):
    """One form against another. Ratios are times of theirs over ours: above 1, ours is faster."""

    what: str
    shape: str
    ours: float
    """Median seconds."""
    theirs: float
    ratios: tuple[float, ...]
    """One a round, in rising order."""
    memory: float
    """Temporary memory, ours over theirs, from the compiler's analysis."""
    compile: tuple[float, float]
    """Seconds to trace and compile, ours and theirs, with no cache."""

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


class _Process:
    """A process that makes forms ready and times them."""

    def __init__(self) -> None:
        env = environment(provenance.cores()) | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
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


def measure(what: str, shape: str, rounds: int, seconds: float, ours: _Process, theirs: _Process) -> Result:
    """Times both forms in turns, `seconds` a turn."""
    ready = [p.ask(do="ready", what=what, shape=shape, ours=mine) for p, mine in ((ours, True), (theirs, False))]
    pairs = [
        (ours.ask(do="time", seconds=seconds)["seconds"], theirs.ask(do="time", seconds=seconds)["seconds"])
        for _ in range(rounds)
    ]
    return Result(
        what=what,
        shape=shape,
        ours=statistics.median(pair[0] for pair in pairs),
        theirs=statistics.median(pair[1] for pair in pairs),
        ratios=tuple(sorted(b / a for a, b in pairs)),
        memory=ready[0]["temp"] / max(1, ready[1]["temp"]),
        compile=(ready[0]["compile"], ready[1]["compile"]),
    )


def run(what: Sequence[str], shapes: Sequence[str], *, rounds: int, seconds: float, json: bool) -> int:
    """Measures and prints."""
    for names, known in ((what, WHAT), (shapes, SHAPES)):
        for name in names:
            if name not in known:
                raise UsageError(f"bench: expected one of {', '.join(known)}, found {name!r}", "lrurun bench --help")
    results: list[Result] = []
    processes: list[_Process] = []
    try:
        processes = [_Process(), _Process()]
        found = processes[0].ask(do="machine")
        for name in what or WHAT:
            for shape in shapes or SHAPES:
                console.say(f"measuring {name}, {shape}: {rounds} rounds")
                results.append(measure(name, shape, rounds, seconds, *processes))
    finally:
        for process in processes:
            process.close()
    machine = {"cpu": provenance.cpu(), "cores": provenance.cores(), **found}
    if json:
        console.write(jsonlib.dumps({"schema_version": 1, "machine": machine, "results": _listed(results)}, indent=2))
        return 0
    _print(machine, results, rounds)
    return 0


def _listed(results: Sequence[Result]) -> list[dict[str, Any]]:
    table = []
    for result in results:
        name = f"{result.what}/{result.shape}"
        low, high = result.ratios[0], result.ratios[-1]
        table.append({"name": name, "against": WHAT[result.what], "ratio": result.ratio, "low": low, "high": high})
        table[-1] |= {"unit": "times as fast", "seconds": result.ours, "against_seconds": result.theirs}
        for kind, ratio, unit in (
            ("memory", result.memory, "of its temporary memory"),
            ("compile", result.compile[0] / result.compile[1], "of its seconds to compile"),
        ):
            table.append({"name": f"{name}/{kind}", "against": WHAT[result.what], "ratio": ratio})
            table[-1] |= {"low": ratio, "high": ratio, "unit": unit}
    return table


def _print(machine: dict[str, Any], results: Sequence[Result], rounds: int) -> None:
    rows = [
        [
            result.what,
            result.shape,
            f"{result.ours * 1e3:.3g}",
            f"{result.theirs * 1e3:.3g}",
            f"{result.ratio:.2f} ({result.ratios[0]:.2f} to {result.ratios[-1]:.2f})",
            f"{result.memory:.2f}",
            f"{result.compile[0]:.2g} / {result.compile[1]:.2g}",
        ]
        for result in results
    ]
    headers = ["what", "shape", "ours, ms", "theirs, ms", "times as fast", "memory", "compile, s"]
    console.table(None, headers, rows)
    said = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['device']}; jax {machine['jax']}; "
        f"copies {machine['copy_gb_s']:.0f} GB/s, multiplies at {machine['product_gflop_s']:.0f} GFLOP/s.",
        f"Forward and backward. Times as fast: median over {rounds} rounds, one form after the other in each, with the "
        "least and the most. Memory: temporary, ours over theirs. Compile: tracing too, without a cache.",
        *(f"{name}: against {against}." for name, against in WHAT.items() if any(r.what == name for r in results)),
    ]
    console.write("\n".join(said))

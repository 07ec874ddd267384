"""The measuring process of `lrurun bench`, `plan --measure` and `doctor --device`.

It reads requests and answers them, one JSON line each.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import jax
import msgspec

from lrurun.bench import COMPILED, Shape, loop, steps
from lrurun.bench.forms import FORMS, Form, machine_speeds, scan_errors, step, training
from lrurun.bench.loop import Turn
from lrurun.config.schema import Execution, RunConfig, decode


def timed(form: Form, run: Any) -> Turn:
    """A function that calls a form for some seconds, and returns the seconds of a step."""
    state = jax.block_until_ready(run(*form.arguments(form.state)))

    def turn(seconds: float) -> float:
        nonlocal state
        calls, began = 0, time.perf_counter()
        while calls == 0 or time.perf_counter() - began < seconds:
            state = jax.block_until_ready(run(*form.arguments(state)))
            calls += 1
        return (time.perf_counter() - began) / (calls * form.steps)

    return turn


def serve() -> None:
    """Answers requests, one JSON line each: prepare a form, time it for some seconds, and others."""
    out = sys.stdout
    sys.stdout = sys.stderr  # nothing else may appear between the answers
    turn: Turn | None = None

    def write(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        match request["do"]:
            case "machine":
                device = jax.devices()[0]
                answer = machine_speeds() | {
                    "device": device.device_kind,
                    "platform": device.platform,
                    "jax": jax.__version__,
                }
            case "errors":
                answer = scan_errors()
            case "compile":
                _, seconds = compiled(step(Shape(*COMPILED), request["form"] == "ours"))
                answer = {"seconds": seconds}
            case "ready" | "train":
                turn = None  # the previous form is no longer needed
                if request["do"] == "ready":
                    form = FORMS[request["what"]](Shape(*request["shape"]), request["form"] == "ours")
                else:
                    config = decode(request["config"], RunConfig, "plan")
                    form = training(config, msgspec.convert(request["execution"], Execution))
                run, seconds = compiled(form)
                answer = {"compile": seconds, "temp": run.memory_analysis().temp_size_in_bytes}
                turn = timed(form, run)
            case "loop":
                turn = (
                    loop.ours(Path(request["folder"]), request["model"])
                    if request["folder"]
                    else loop.bare(request["model"])
                )
                answer = {}
            case "device":
                answer = steps.device()
            case "rung" | "recurrences":
                answer = steps.answer(request, lambda stage: write({"stage": stage}))
            case _:
                assert turn, "nothing is ready"
                answer = {"seconds": turn(request["seconds"])}
        write(answer)


def compiled(form: Form) -> tuple[Any, float]:
    """The compiled function of a form, and the seconds that it took to trace and compile it."""
    began = time.perf_counter()
    run = form.function.lower(*form.arguments(form.state)).compile()
    return run, time.perf_counter() - began


def _end_with_parent() -> None:
    """The kernel of Linux ends this process when the command does, however that ends: it may hold an accelerator."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG


if __name__ == "__main__":
    _end_with_parent()
    serve()

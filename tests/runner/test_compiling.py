"""Compiled programs: one worker compiles them, the others load them."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import jax
import pytest

from lrurun.runner.attempt import StopRequest
from lrurun.runner.execute import turn
from tests.harness.machine import Machine

HOLDER = """
import sys, jax
from lrurun.runner.attempt import StopRequest
from lrurun.runner.execute import turn
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
with turn(sys.argv[2], StopRequest()):
    print("holds", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_one_process_compiles_a_program_while_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lrurun.runner.execute.WAIT_SECONDS", 0.01)
    monkeypatch.setattr("lrurun.machine.cores", lambda: 2)
    before = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), "program"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds\n"
        with turn("another", StopRequest()):
            pass
        monkeypatch.setattr("lrurun.machine.cores", lambda: 1)
        assert not _enters("another"), "the only place is taken"
        monkeypatch.setattr("lrurun.machine.cores", lambda: 2)
        stop, entered = StopRequest(), threading.Event()

        def enter() -> None:
            with turn("program", stop):
                entered.set()

        waiting = threading.Thread(target=enter)
        waiting.start()
        assert not entered.wait(0.2)
        stop.request()
        assert entered.wait(10), "a request to stop ends the wait"
        waiting.join()
        holder.kill()
        with turn("program", StopRequest()):  # the turn of a process that was killed is over
            pass
    finally:
        holder.kill()
        holder.communicate()
        jax.config.update("jax_compilation_cache_dir", before)


def _enters(program: str) -> bool:
    """Whether a turn begins soon."""
    stop = StopRequest()
    ends = threading.Timer(0.2, stop.request)
    ends.start()
    with turn(program, stop):
        ends.cancel()
        return not stop.requested


@pytest.mark.slow
def test_every_program_is_compiled_once(tmp_path: Path, machine: Machine) -> None:
    """Three workers on two rungs: each waits for or starts elsewhere than the others."""
    sizes = [f"model.{name}=4" for name in ("width", "state")] + ["train.steps=20", "train.eval_every=20"]
    done = machine.run(
        *("ladder", "sDigits", "--profile", "smoke", "--rung", "linear-rnn", "--rung", "diagonal"),
        *("--seeds", "3", "--jobs", "3"),
        *(word for setting in sizes for word in ("--set", setting)),
        env={"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_DEBUG_LOG_MODULES": "jax._src.compiler"},
        apart=True,
    )
    assert done.stderr.count("done, val") == 6
    logs = "".join(path.read_text() for path in machine.runs.glob("*/*/log.txt"))
    for program in ("_dispatch", "_evaluate"):
        assert logs.count(f"CACHE MISS for 'jit_{program}'") == 2, program

"""Worker processes on this machine: started by subprocess, in a session of their own, never forked."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO

from lrurun import kinds, machine, plugins
from lrurun.errors import LrurunError
from lrurun.paths import cache_dir
from lrurun.runner.signals import Signals
from lrurun.runner.work import Needs, Order, Preparation, Work, WorkerError, encode, last

FAULT_EXIT = 74
"""Exit code (EX_IOERR) of a worker whose last line of output is a WorkerError."""
POLL_SECONDS = 0.1


def worker_environment(threads: int) -> dict[str, str]:
    """The environment variables of a worker whose XLA has this number of threads."""
    env = dict(os.environ)
    env["NPROC"] = str(threads)  # XLA:CPU takes the size of its thread pool from this, and results depend on it
    env |= {"JAX_RANDOM_SEED_OFFSET": "0", "JAX_ENABLE_X64": "0"}  # all random numbers depend on them
    if (platforms := env.get("JAX_PLATFORMS", "")) and "cpu" not in platforms.split(","):
        env["JAX_PLATFORMS"] = f"{platforms},cpu"  # fixed splits and digests are computed on the CPU
        env[machine.NOT_ON_CPU] = platforms
    env.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_dir()))
    env.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    env.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # numpy's threads sleep when they are idle, and do not spin
    # of glibc: threads that compile leave no memory behind that only they reuse
    env.setdefault("MALLOC_ARENA_MAX", "1")
    return env


class LocalWorker:
    """One worker process. It exits when its standard input is closed, and is killed when this process exits."""

    def __init__(self, work: Work | Preparation, *, needs: Needs, devices: Sequence[str] = ()) -> None:
        """Starts the process.

        Args:
            needs: of its runs.
            devices: the accelerators that it may use, as CUDA_VISIBLE_DEVICES names them; without any, all.
        """
        order = Order(supervisor=os.getpid(), plugins=plugins.loaded(), needs=needs, work=work)
        kind = kinds.of(work.kind) if isinstance(work, Work) else None
        env = worker_environment(needs.threads) if kind is None or kind.uses_jax else dict(os.environ)
        if kind is not None:
            env |= kind.environment(needs.threads)
        if devices:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
        self._output = tempfile.TemporaryFile()  # its output while it trains no run; attempts have logs of their own
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lrurun.runner.worker"],  # -P: modules never come from the working directory
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,  # ^C reaches the supervisor alone
        )
        self.needs = needs
        self.devices = devices
        pipe = self._process.stdin
        assert pipe is not None
        self._pipe: IO[bytes] = pipe
        with contextlib.suppress(BrokenPipeError):  # it exited at once, which poll() reports
            self._pipe.write((encode(order) + "\n").encode())
            self._pipe.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def is_suspended(self) -> bool:
        """Whether a signal such as SIGSTOP, or a debugger, keeps it from running."""
        import psutil

        try:
            status = psutil.Process(self.pid).status()
        except psutil.Error:
            return False
        return status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)

    def terminate(self) -> None:
        """Asks it to save and exit."""
        if self.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        """Kills it; `wait` waits until it is gone."""
        if self.poll() is None:
            self._process.kill()

    def wait(self) -> None:
        """Waits until it has exited."""
        self._process.wait()

    def dismiss(self) -> None:
        """Closes its input: it exits when it has no run."""
        with contextlib.suppress(BrokenPipeError):
            self._pipe.close()

    def tail(self, lines: int = 3) -> str:
        """The last lines of its output outside of attempts."""
        file = self._output.fileno()
        # Not by `seek`: the worker writes at the same position.
        text = os.pread(file, 32_768, max(0, os.fstat(file).st_size - 32_768)).decode(errors="replace")
        return "\n".join(text.strip().splitlines()[-lines:])

    def close(self) -> None:
        """Releases the pipe and the output of a worker that has exited."""
        self.dismiss()
        self._output.close()


def finish(workers: Sequence[LocalWorker], signals: Signals, seconds: float) -> None:
    """Waits until workers have exited, kills those that take longer than `seconds`, and closes all.

    A second ^C ends the wait.
    """
    deadline = time.monotonic() + seconds
    while any(worker.poll() is None for worker in workers) and time.monotonic() < deadline and not signals.abort:
        time.sleep(POLL_SECONDS)
    for worker in workers:  # all at once: one after the other would take seconds each on a machine with many of them
        worker.kill()
    for worker in workers:
        worker.wait()
        worker.close()


def cause(code: int) -> str:
    """The name of the signal that ended a process, or its exit code."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def error_of(output: str) -> LrurunError:
    """The error that a worker with exit code FAULT_EXIT reports."""
    fault = last(output, WorkerError)
    if fault is None:
        return LrurunError("a worker could not write its results", output or None)
    error = LrurunError(fault.message, fault.hint)
    error.exit_code = fault.exit_code
    if fault.trace:
        error.add_note(f"In the worker process:\n{fault.trace}")
    return error

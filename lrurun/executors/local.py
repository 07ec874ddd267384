"""Worker processes on this machine: started by subprocess, in a session of their own, never forked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import IO, Any

from lrurun.paths import cache_dir


def environment(threads: int) -> dict[str, str]:
    """The environment of a worker whose XLA has so many threads."""
    env = dict(os.environ)
    env["NPROC"] = str(threads)  # XLA:CPU sizes its pool by this, and its sums depend on the size
    env.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_dir()))
    env.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    return env


class LocalWorker:
    """One worker process. It ends when its standard input is closed, and dies with this process."""

    def __init__(self, order: dict[str, Any], *, threads: int, device: str | None = None) -> None:
        """Starts the process.

        Args:
            order: what `lrurun.worker` reads as its first line.
            threads: size of XLA's thread pool.
            device: the accelerator that it may see, as CUDA_VISIBLE_DEVICES names it; None for all.
        """
        env = environment(threads)
        if device is not None:
            env["CUDA_VISIBLE_DEVICES"] = device
        self._output = tempfile.TemporaryFile()  # what it says while it has no run in hand; runs have logs of their own
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lrurun.worker"],  # -P: modules never come from the working directory
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,  # ^C reaches the supervisor alone
        )
        self.threads = threads
        self.device = device
        pipe = self._process.stdin
        assert pipe is not None
        self._pipe: IO[bytes] = pipe
        try:
            self._pipe.write((json.dumps(order) + "\n").encode())
            self._pipe.flush()
        except BrokenPipeError:
            pass  # it died at once; poll() tells

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives."""
        return self._process.poll()

    def terminate(self) -> None:
        """Asks it to save and stop."""
        if self.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        """Ends it at once."""
        if self.poll() is None:
            self._process.kill()
            self._process.wait()

    def dismiss(self) -> None:
        """Closes its input: an idle worker ends."""
        try:
            self._pipe.close()
        except BrokenPipeError:
            pass

    def tail(self, lines: int = 3) -> str:
        """The end of what it said outside of runs."""
        self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, self._output.tell() - 32_768))
        text = self._output.read().decode(errors="replace")
        return "\n".join(text.strip().splitlines()[-lines:])

    def close(self) -> None:
        """Lets go of an ended worker's pipe and output."""
        self.dismiss()
        self._output.close()

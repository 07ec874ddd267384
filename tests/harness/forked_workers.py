"""Workers of commands that run in this process: forks of one process that has imported what they need.

They are real processes, which are given the same order and environment, and start in a tenth of the time.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

WORKER = "lrurun.runner.worker"
IMPORTED = (
    "lrurun.runner.execute",
    "lrurun.training.checkpoints",
    "lrurun.runner.records",
    "lrurun.ledger.database.sqlite",
)
CACHE = "JAX_COMPILATION_CACHE_DIR"
_READ_BY_IMPORTS = ("JAX_", "PYTHON", "LD_", "TF_", "OMP_", "OPENBLAS_", "MKL_")
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def _fixed(env: dict[str, str]) -> dict[str, str]:
    """The variables that are read while modules are imported: the same for all forks."""
    return {key: value for key, value in env.items() if key.startswith(_READ_BY_IMPORTS) and key != CACHE}


class Origin:
    """The process whose forks are the workers."""

    def __init__(self, env: dict[str, str]) -> None:
        self.fixed = _fixed(env)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def close(self) -> None:
        """Ends the process."""
        self._control.close()
        self._process.wait()

    def fork(self, env: dict[str, str], given: int, output: int) -> int:
        """The number of a new process, which becomes a child of this one."""
        order = {"env": env, "folder": os.getcwd(), "parent": os.getpid()}
        prctl = ctypes.CDLL(None).prctl
        prctl(_SUBREAPER, 1)  # only now: what other processes leave behind is nothing to this one
        try:
            socket.send_fds(self._control, [json.dumps(order).encode()], [given, output])
            pid = int(self._control.recv(100))
            assert self._control.recv(100) == b"done"
        finally:
            prctl(_SUBREAPER, 0)
        return pid


ORIGINS: list[Origin] = []


def _origin_for(env: dict[str, str]) -> Origin | None:
    """The process to fork for a worker with these variables; of all but a few kinds of them there is none."""
    for one in ORIGINS:
        if one.fixed == _fixed(env):
            return one
    if len(ORIGINS) == 2:
        return None
    ORIGINS.append(Origin(env))
    atexit.register(ORIGINS[-1].close)
    return ORIGINS[-1]


class Worker(subprocess.Popen[bytes]):
    """A forked process, where it would be the same as a started one."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        env = rest[5]
        given, output = rest[9], rest[12]
        is_worker = args[1:] == ["-P", "-m", WORKER] and sys.platform == "linux"
        origin = _origin_for(env) if is_worker and "NPROC" in env else None
        if origin is None:
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        self.pid = origin.fork(env, given, output)
        self._child_created = True
        os.close(given)


SUBPROCESS = SimpleNamespace(
    Popen=Worker, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT, TimeoutExpired=subprocess.TimeoutExpired
)
"""Takes the place of the module `subprocess` where workers are started."""


def _serve(control: socket.socket) -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        text, files, _, _ = socket.recv_fds(control, 1_000_000, 2)
        if not text:
            return
        middle = os.fork()
        if middle == 0:  # its child is an orphan at once, whose new parent is the one who asked
            pid = os.fork()
            if pid == 0:
                _become_worker(json.loads(text), files, control)
                return
            control.send(str(pid).encode())
            os._exit(0)
        os.waitpid(middle, 0)
        for file in files:
            os.close(file)
        control.send(b"done")


def _become_worker(order: dict[str, Any], files: list[int], control: socket.socket) -> None:
    import jax

    os.setsid()
    control.close()
    for file, number in zip([*files, files[1]], range(3), strict=True):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["env"])
    tempfile.tempdir = None  # found again when it is asked for
    if CACHE in os.environ:
        jax.config.update("jax_compilation_cache_dir", os.environ[CACHE])
    while os.getppid() != order["parent"]:
        time.sleep(0.001)
    sys.argv = [str(Path(importlib.import_module("lrurun").__file__ or "").with_name("worker"))]
    sys.orig_argv = [sys.executable, "-P", "-m", WORKER]
    runpy.run_module(WORKER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))

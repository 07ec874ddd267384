"""The process of a user's program: its command and environment, how it is started, stopped and ended."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from lrurun import files
from lrurun.config import programs
from lrurun.config.schema import ProgramConfig
from lrurun.errors import LrurunError
from lrurun.runner.attempt import MachineFault

CONFIG, FOLDER, METRICS = "LRURUN_CONFIG", "LRURUN_FOLDER", "LRURUN_METRICS"
"""Environment variables of a program: the JSON file of its settings and seed, the folder that all attempts share, and
the file to which it writes its metrics."""
REPORTS = "metrics.jsonl"
"""The file of metrics, in the folder of the attempt."""
KEPT = "program"
"""The folder that all attempts share, in the folder of the run."""
STOPPING_POLL = 0.05
"""How often a program that may save is looked at, in seconds."""
GONE_SECONDS = 10.0
"""How long to wait until processes that were killed are gone."""


def write_files(config: ProgramConfig, folder: Path) -> None:
    """Writes the settings of an attempt, and the empty file of its metrics. Raises OSError."""
    files.write(folder / "config.json", json.dumps({**config.settings, "seed": config.seed}).encode())
    (folder / REPORTS).touch()


def command_of(config: ProgramConfig, folder: Path, kept: Path) -> list[str]:
    """The command of a run, filled in for an attempt."""
    values = {path: programs.as_argument(value) for path, value in programs.paths_of(config.settings).items()}
    values |= {"config": str(folder / "config.json"), "seed": str(config.seed), "run_dir": str(kept)}
    return [programs.filled(text, values) for text in config.program.command]


def environment(folder: Path, kept: Path) -> dict[str, str]:
    """The environment of the program; the folder of the module `lrurun` is the last one of PYTHONPATH."""
    env = dict(os.environ)
    module = str(Path(__file__).parent / "module")
    env["PYTHONPATH"] = os.pathsep.join([*filter(None, [env.get("PYTHONPATH")]), module])
    env.setdefault("PYTHONUNBUFFERED", "1")  # so that its log is there while it runs
    return env | {CONFIG: str(folder / "config.json"), FOLDER: str(kept), METRICS: str(folder / REPORTS)}


def end_leftovers(kept: Path) -> None:
    """Ends processes that an earlier attempt has left on this machine, before they write beside this one."""
    import psutil

    deadline = time.monotonic() + GONE_SECONDS
    while time.monotonic() < deadline:  # one that is being killed may have started another
        left = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(FOLDER) == str(kept):
                    process.kill()
                    left.append(process)
        if not left:
            return
        psutil.wait_procs(left, timeout=GONE_SECONDS)


_OF_MACHINE = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Errors of a start for which the command is not to blame."""
_GUARD = 'read -r group; read -r end; kill -s KILL -- "-$group"'
"""A shell that kills the program's process group when this process is gone, whose end closes its input."""


class NotStarted(LrurunError):
    """The command cannot be started."""


@contextlib.contextmanager
def started(
    command: Sequence[str], folder: Path, env: Mapping[str, str], output: int | None = None
) -> Iterator[Process]:
    """The program in a process group of its own, of which nothing is left afterwards. It prints to the file descriptor
    `output`, by default to where this process prints.

    Raises:
        NotStarted: there is no such executable.
        MachineFault: the folder is not here, or the machine can start no process.
    """
    if not folder.is_dir():
        raise MachineFault(f"{folder}: the folder of the program is not on this machine", "share it with all nodes")
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert guard.stdin is not None
    try:
        try:
            program = subprocess.Popen(
                command,
                cwd=folder,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            if isinstance(error, OSError) and error.errno in _OF_MACHINE:
                raise MachineFault(f"{command[0]!r} cannot be started: {reason}", "stop other processes") from None
            hint = (
                "correct the command in the recipe's [program]; it is looked up on PATH, and started beside the recipe"
            )
            raise NotStarted(f"{command[0]!r} cannot be started: {reason}", hint) from None
        process = Process(program)
        try:
            guard.stdin.write(f"{program.pid}\n".encode())
            guard.stdin.flush()
            yield process
        finally:
            process.end()
    finally:
        guard.kill()
        guard.stdin.close()
        guard.wait()


class Process:
    """The process that was started, and its group."""

    def __init__(self, program: subprocess.Popen[bytes]) -> None:
        self._program = program

    def has_exited(self) -> bool:
        """Whether it has exited; its number stays taken until `end`, where the system can do that."""
        if self._program.returncode is not None or not hasattr(os, "waitid"):
            return self._program.poll() is not None
        return os.waitid(os.P_PID, self._program.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def terminate(self) -> None:
        """Asks it to save and exit."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._program.pid, signal.SIGTERM)

    def stop(self, seconds: float, meanwhile: Callable[[], bool] = lambda: True) -> None:
        """Asks it to save and exit, and waits for that, at most `seconds` and only while `meanwhile` returns true."""
        self.terminate()
        deadline = time.monotonic() + seconds
        while not self.has_exited() and time.monotonic() < deadline and meanwhile():
            time.sleep(STOPPING_POLL)

    def end(self) -> int:
        """Kills what is left of the group; the exit code of the process."""
        if self._program.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._program.pid, signal.SIGKILL)
        return self._program.wait()

"""Real commands, in this process or in one of their own, and what they leave behind."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psutil

from lrurun import console
from lrurun.__main__ import run as command

LONG = [
    *("--profile", "smoke"),
    *("--set", "train.steps=1000", "--set", "train.eval_every=100"),
    *("--set", "execution.checkpoint_seconds=0.4"),
]
"""A smoke ladder whose runs last a second or two, with many checkpoints."""
RUNGS = ("ring-init", "gamma-norm")
"""Those of it that tests of kills and faults train: a worker compiles once for all seeds of a rung."""
FOUR_RUNS = ("--rung", "ring-init", "--rung", "gamma-norm", "--seeds", "2")
TWO_RUNS = (*FOUR_RUNS[:-1], "1")

FINISHED = ("tanh-rnn", "ring-init", "gamma-norm")
"""The rungs of the fixture `finished`: a first one, and two that are compared."""
FINISHED_LADDER = ("ladder", "sDigits", "--profile", "smoke", *(word for rung in FINISHED for word in ("--rung", rung)))
"""The command that has trained it, with one more option."""

STARTED: list[subprocess.Popen[str]] = []


def end_processes() -> None:
    """Kills what `Machine.start` has started and is still running, and closes the pipes."""
    while STARTED:
        process = STARTED.pop()
        with process:
            process.kill()


class Machine:
    """A folder with a ledger, runs and data of its own."""

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.ledger: Any = folder / "ledger.db"
        self.runs = folder / "runs"
        drop = ("LRURUN", "NO_COLOR", "FORCE_COLOR", "PYTHONWARNINGS", "PYTEST")
        env = {key: value for key, value in os.environ.items() if not key.startswith(drop)}
        self.env = env | {"COLUMNS": "200"}
        if cache is not None:  # of compiled programs and prepared data
            self.env |= {"XDG_CACHE_HOME": str(cache), "XDG_DATA_HOME": str(cache / "share")}

    def use(self, server: Any) -> Machine:
        """The same folder, with a ledger on a server."""
        self.ledger = server
        self.env["LRURUN_LEDGER"] = str(server)
        return self

    def copy(self, folder: Path) -> Machine:
        """Another one with the same ledger and runs, which may be changed. Other processes may read this one."""
        copy = Machine(shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("ledger.db*")))
        with (
            contextlib.closing(sqlite3.connect(self.ledger)) as source,  # read-only, it would leave -wal and -shm
            contextlib.closing(sqlite3.connect(copy.ledger)) as target,
        ):
            source.backup(target)
        copy.env["XLA_FLAGS"] = self.env.get("XLA_FLAGS", "")
        return copy

    def _choose_compiler(self, arguments: tuple[str, ...]) -> None:
        """From the first ladder of many steps on, programs are compiled as for users: training takes longer then."""
        if any(int(steps) >= 200 for steps in re.findall(r"train\.steps=(\d+)", " ".join(arguments))):
            self.env["XLA_FLAGS"] = ""

    def start(self, *arguments: str, prefix: tuple[str, ...] = (), **options: Any) -> subprocess.Popen[str]:
        """Starts `lrurun ARGUMENTS` in a process group of its own."""
        self._choose_compiler(arguments)
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True} | options
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "lrurun", *arguments],
            cwd=self.folder,
            env=self.env | options.pop("env", {}),
            text=True,
            stdin=subprocess.DEVNULL,
            **options,
        )
        STARTED.append(process)
        return process

    def run(
        self,
        *arguments: str,
        code: int | None = 0,
        apart: bool = False,
        env: dict[str, str] | None = None,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Runs `lrurun ARGUMENTS` in this process, or `apart` as `start` does with `options`; checks the exit code."""
        self._choose_compiler(arguments)
        done = self._apart(arguments, env or {}, **options) if apart or options else self._here(arguments, env or {})
        assert code is None or done.returncode == code, (
            f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def _here(self, arguments: tuple[str, ...], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        before = Path.cwd()
        out, err = io.StringIO(), io.StringIO()
        os.chdir(self.folder)
        try:
            with (
                mock.patch.dict(os.environ, self.env | env, clear=True),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                code = command(list(arguments))
        finally:
            os.chdir(before)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def _apart(
        self, arguments: tuple[str, ...], env: dict[str, str], timeout: float = 300, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, env=env, **options)
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def json(self, *arguments: str, **options: Any) -> dict[str, Any]:
        table: dict[str, Any] = json.loads(self.run(*arguments, "--json", **options).stdout)
        return table

    def files(self) -> list[str]:
        """The paths of all files of the folder, in order."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())

    def digests(self) -> dict[str, str]:
        """The hash of each file of the folder by its path."""
        return {name: hashlib.sha256((self.folder / name).read_bytes()).hexdigest() for name in self.files()}

    def refused(self, *arguments: str, code: int = 2, **options: Any) -> str:
        """What a command says that must end with `code`, change no file, and print nothing else."""
        before = self.digests()
        done = self.run(*arguments, code=code, **options)
        assert (done.stdout, self.digests()) == ("", before)
        return done.stderr

    def shown(self, *arguments: str, width: int = 80, **options: Any) -> str:
        """What a command prints on a terminal of this width."""
        with mock.patch.multiple(console, is_screen=lambda: True, width=lambda: width):
            return self.run(*arguments, **options).stdout

    def states(self) -> dict[str, int]:
        """Runs per state, as `lrurun runs` shows."""
        counts: dict[str, int] = {}
        for run in self.json("runs")["runs"]:
            counts[run["state"]] = counts.get(run["state"], 0) + 1
        return counts

    def history(self) -> dict[tuple[str, str, int], Any]:
        """All that must be the same however a ladder was disturbed: by rung, stage and seed."""
        found: dict[tuple[str, str, int], Any] = {}
        for run, recorded in self._recorded():
            for member in run.memberships:
                assert (member.rung, member.stage, run.seed) not in found
                found[member.rung, member.stage, run.seed] = recorded
        return found

    def histories(self) -> dict[str, Any]:
        """The same of several instances: by the id of the run, with its places in them."""
        return {
            run.id: (*recorded, sorted((one.rung, one.stage, one.position) for one in run.memberships))
            for run, recorded in self._recorded()
        }

    def _recorded(self) -> Iterator[tuple[Any, Any]]:
        """Runs, with what is recorded of them that must be the same."""
        from lrurun.ledger.ledger import Ledger

        with Ledger.read(self.ledger) as ledger:
            for run in ledger.runs():
                curves = {k: v for k, v in ledger.metrics(run.id).items() if not k.startswith("machine/")}
                result = {k: v for k, v in (run.result or {}).items() if not k.startswith("machine/")}
                last = ledger.checkpoints(run.id, "committed")
                assert run.state != "done" or len(last) == 1, f"{run.id}: {last}"
                arrays = self._arrays(self.runs / last[0].path) if last else None
                yield run, (run.id, run.state, run.step, result, curves, arrays)

    @staticmethod
    def _arrays(folder: Path) -> dict[str, bytes]:
        from orbax.checkpoint import v1

        tree = v1.load(folder)
        flat = {**tree["live"], **{f"best{key}": value for key, value in tree["best"].items()}}
        return {key: np.asarray(value).tobytes() for key, value in flat.items()}

    def committed(self) -> list[Any]:
        """The checkpoints that can be used, of each run the newest first."""
        from lrurun.errors import LrurunError
        from lrurun.ledger.ledger import Ledger

        try:
            ledger = Ledger.read(self.ledger)
        except LrurunError:
            return []  # being made just now
        with ledger:
            return [one for run in ledger.runs() for one in ledger.checkpoints(run.id, "committed")]

    def attempts(self) -> dict[str, list[Any]]:
        from lrurun.ledger.ledger import Ledger

        with Ledger.read(self.ledger) as ledger:
            return {run.id: ledger.attempts(run.id) for run in ledger.runs()}


@contextlib.contextmanager
def small_files(size: int) -> Iterator[None]:
    """Files that this process writes hold `size` bytes at most. Above it the call fails as on a full disk, with the
    same kind of error."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def held(ledger: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which is in the middle of writing to the ledger."""
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30);"
        "c.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(ledger)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        yield process
    finally:
        process.communicate()


def start_python(machine: Machine, script: str) -> subprocess.Popen[str]:
    """Starts a script of Python in the folder of a machine, in a process group of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=machine.folder,
        env=machine.env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    STARTED.append(process)
    return process


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        children = psutil.Process(process.pid).children()
    except psutil.NoSuchProcess:
        return []
    return [child for child in children if _is_worker(child)]


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "lrurun.runner.worker" in process.cmdline()
    except psutil.Error:
        return False


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> Any:
    """What `condition` returns as soon as it is true. Asking takes a quarter of the time at most, as what is waited for
    needs the processor; but it is asked at least five times a second, as what is waited for may be over soon."""
    end = time.monotonic() + seconds
    while (asked := time.monotonic()) < end:
        value = condition()
        if value:
            return value
        time.sleep(min(0.2, max(0.02, 3 * (time.monotonic() - asked))))
    raise AssertionError(f"not so within {seconds} s: {condition}")


def training(machine: Machine, *, step: int = 1) -> Callable[[], bool]:
    """Whether some run has taken `step` steps and is running."""
    found = f"SELECT count(*) FROM runs WHERE state = 'running' AND step >= {step}"

    def in_file() -> bool:
        try:
            with contextlib.closing(sqlite3.connect(f"file:{machine.ledger}?mode=ro", uri=True)) as connection:
                return bool(connection.execute(found).fetchone()[0])
        except sqlite3.Error:
            return False  # being made just now

    def on_server() -> bool:
        import psycopg

        url = machine.env.get("LRURUN_LEDGER", str(machine.ledger)).replace("+psycopg", "")  # it may have a password
        try:
            with psycopg.connect(url) as connection:
                row = connection.execute(found).fetchone()
                return row is not None and bool(row[0])
        except psycopg.Error:
            return False  # being made just now

    return in_file if isinstance(machine.ledger, Path) else on_server


def stop(process: subprocess.Popen[str], number: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(number)

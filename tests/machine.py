"""Real commands in real processes, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

LONG = [
    *("--profile", "smoke"),
    *("--set", "train.steps=600", "--set", "train.eval_every=100"),
    *("--set", "execution.checkpoint_seconds=0.2"),
]
"""A smoke ladder whose runs last a second or two, with many checkpoints."""


class Machine:
    """A folder with a ledger, runs and data of its own."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.ledger = folder / "ledger.db"
        self.runs = folder / "runs"
        drop = ("LRURUN", "NO_COLOR", "FORCE_COLOR", "PYTHONWARNINGS", "PYTEST")
        env = {key: value for key, value in os.environ.items() if not key.startswith(drop)}
        # what is compiled once serves the whole session; so do the prepared data
        self.env = env | {"XDG_CACHE_HOME": str(cache), "XDG_DATA_HOME": str(cache / "share"), "COLUMNS": "200"}

    def start(self, *words: str, prefix: tuple[str, ...] = (), **options: Any) -> subprocess.Popen[str]:
        """Starts `lrurun words` in a process group of its own."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True} | options
        return subprocess.Popen(
            [*prefix, sys.executable, "-m", "lrurun", *words],
            cwd=self.folder,
            env=self.env | options.pop("env", {}),
            text=True,
            stdin=subprocess.DEVNULL,
            **options,
        )

    def run(
        self, *words: str, code: int | None = 0, timeout: float = 300, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs it to its end and checks its exit code."""
        process = self.start(*words, **options)
        out, err = process.communicate(timeout=timeout)
        assert code is None or process.returncode == code, f"{words}: exit {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def json(self, *words: str, **options: Any) -> dict[str, Any]:
        table: dict[str, Any] = json.loads(self.run(*words, "--json", **options).stdout)
        return table

    def states(self) -> dict[str, int]:
        """Runs per state, as `lrurun runs` tells."""
        counts: dict[str, int] = {}
        for run in self.json("runs")["runs"]:
            counts[run["state"]] = counts.get(run["state"], 0) + 1
        return counts

    def history(self) -> dict[tuple[str, str, int], Any]:
        """All that must be the same however a ladder was disturbed: by rung, stage and seed."""
        from lrurun.ledger.store import Ledger

        found: dict[tuple[str, str, int], Any] = {}
        ledger = Ledger.read(self.ledger)
        assert ledger is not None
        with ledger:
            for run in ledger.runs():
                curves = {k: v for k, v in ledger.metrics(run.id).items() if not k.startswith("machine/")}
                result = {k: v for k, v in (run.result or {}).items() if not k.startswith("machine/")}
                last = ledger.checkpoints(run.id, "committed")
                assert run.state != "done" or len(last) == 1, f"{run.id}: {last}"
                arrays = self._arrays(self.runs / last[0].path) if last else None
                for member in run.memberships:
                    assert (member.rung, member.stage, run.seed) not in found
                    found[member.rung, member.stage, run.seed] = (run.id, run.state, run.step, result, curves, arrays)
        return found

    @staticmethod
    def _arrays(folder: Path) -> dict[str, bytes]:
        from orbax.checkpoint import v1

        tree = v1.load(folder)
        flat = {**tree["live"], **{f"best{key}": value for key, value in tree["best"].items()}}
        return {key: np.asarray(value).tobytes() for key, value in flat.items()}

    def attempts(self) -> dict[str, list[Any]]:
        from lrurun.ledger.store import Ledger

        ledger = Ledger.read(self.ledger)
        assert ledger is not None
        with ledger:
            return {run.id: ledger.attempts(run.id) for run in ledger.runs()}


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        children = psutil.Process(process.pid).children()
    except psutil.NoSuchProcess:
        return []
    return [child for child in children if _is_worker(child)]


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "lrurun.worker" in process.cmdline()
    except psutil.Error:
        return False


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> Any:
    """What `condition` returns as soon as it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not so within {seconds} s: {condition}")


def training(machine: Machine, *, step: int = 1) -> Callable[[], bool]:
    """Whether some run has taken `step` steps and is running."""
    from lrurun.errors import LrurunError
    from lrurun.ledger.store import Ledger

    def condition() -> bool:
        try:
            ledger = Ledger.read(machine.ledger)
        except LrurunError:
            return False  # being made just now
        if ledger is None:
            return False
        with ledger:
            return any(run.state == "running" and run.step >= step for run in ledger.runs())

    return condition


def stop(process: subprocess.Popen[str], number: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(number)

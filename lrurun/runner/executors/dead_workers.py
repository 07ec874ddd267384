"""Workers of this machine that have died: why, and what their runs record of it.

The ledger itself takes the runs back: a run whose process is gone becomes interrupted, and is queued again.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from lrurun import machine
from lrurun.ledger.values import Attempt
from lrurun.runner import logs
from lrurun.runner.processes import cause
from lrurun.runner.selection import SelectedRuns


class DeadWorkers:
    """Explains why workers have died, with what the system has counted since this object was made."""

    def __init__(self) -> None:
        self._killed_for_memory = machine.killed_for_memory()

    def record(self, runs: SelectedRuns, code: int, output: str, broken: Sequence[Attempt]) -> str:
        """Adds the reason to the events of the runs that a worker was training, and returns it as a sentence.

        Args:
            code: the exit code, negative for a signal.
            output: the last lines that the worker printed.
            broken: the attempts that ended with the worker.
        """
        text = f"a worker ended with {self._explain(code, output, runs.work.runs, broken)}"
        for attempt in broken:
            runs.ledger.event("died", text, run=attempt.run, attempt=attempt.n)
        return text

    def _explain(self, code: int, output: str, folder: Path, broken: Sequence[Attempt]) -> str:
        """Signal or exit code, and what the worker printed last."""
        why = cause(code)
        killed = machine.killed_for_memory()
        if code == -signal.SIGKILL and killed > self._killed_for_memory:
            self._killed_for_memory += 1
            return f"{why}: the system killed it because memory ran out"
        self._killed_for_memory = killed
        if code == -signal.SIGABRT and broken and not output:  # C++ gives its reason in the log of the attempt
            output = "\n".join(logs.tail(folder / broken[-1].run / str(broken[-1].n) / "log.txt", 1))
        last = output.splitlines()[-1].strip() if output else ""
        if "bad_alloc" in last:
            last += " (memory ran out)"
        return f"{why}: {last}" if last else why

"""The worker processes of a supervisor: how many there are, and why they exited."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from lrurun import machine
from lrurun.ledger.values import Attempt
from lrurun.runner import logs
from lrurun.runner.messages import TrainOrder
from lrurun.runner.processes import LocalWorker, Needs, cause, finish
from lrurun.runner.signals import Signals


class WorkerPool:
    """Starts and stops workers, which all get the same order, except for what their runs need."""

    def __init__(self, order: TrainOrder, jobs: int | None, variables: Mapping[str, str] | None = None) -> None:
        self.order, self.jobs, self.variables = order, jobs, variables
        self.workers: list[LocalWorker] = []
        self._killed_for_memory = machine.killed_for_memory()

    def fill(self, queued: Counter[Needs], busy: set[int]) -> None:
        """Starts as many workers as there are queued runs and room for.

        Args:
            queued: needs -> how many queued runs have them.
            busy: processes that train a run.
        """
        for needs, count in sorted(queued.items()):
            same = [worker for worker in self.workers if worker.needs == needs]
            idle = sum(worker.pid not in busy for worker in same)
            while idle * self.order.pack < count and self._has_room(needs):
                order = msgspec.structs.replace(self.order, threads=needs.threads, devices=needs.devices)
                devices = self._least_used(needs.devices)
                self.workers.append(LocalWorker(order, needs=needs, devices=devices, variables=self.variables))
                idle += 1
            if not idle and not same:
                for worker in self.workers:
                    if worker.pid not in busy and worker.needs not in queued:
                        worker.dismiss()  # makes room: no run needs what it has

    def _has_room(self, needs: Needs) -> bool:
        """Whether there may be another worker with these needs; the first one there always may."""
        if self.jobs is not None or not self.workers:
            return len(self.workers) < (self.jobs or 1)
        if devices := len(machine.accelerators()):
            return sum(worker.needs.devices for worker in self.workers) + needs.devices <= devices
        return len(self.workers) < machine.cores() // max(needs)

    def _least_used(self, count: int) -> list[str]:
        """The accelerators of a new worker, in order; none where there is no choice."""
        names = machine.accelerators()
        used = Counter(name for worker in self.workers for name in worker.devices)
        chosen = sorted(names, key=lambda name: used[name])[:count]
        return [name for name in names if name in chosen] if len(names) > 1 else []

    def exited(self) -> Iterator[tuple[int, int, str]]:
        """Removes workers that have exited: process id, exit code and last output of each."""
        for worker in list(self.workers):
            code = worker.poll()
            if code is not None:
                output = worker.tail()
                worker.close()
                self.workers.remove(worker)
                yield worker.pid, code, output

    def explain(self, code: int, output: str, runs: Path, broken: Sequence[Attempt]) -> str:
        """Why a worker exited: signal or exit code, and what it printed last.

        Args:
            runs: folder of the logs.
            broken: the attempts that ended with the worker.
        """
        why = cause(code)
        killed = machine.killed_for_memory()
        if code == -signal.SIGKILL and killed > self._killed_for_memory:
            self._killed_for_memory += 1
            return f"{why}: the system killed it because memory ran out"
        self._killed_for_memory = killed
        if code == -signal.SIGABRT and broken and not output:  # C++ gives its reason in the log of the attempt
            output = "\n".join(logs.tail(runs / broken[-1].run / str(broken[-1].n) / "log.txt", 1))
        last = output.splitlines()[-1].strip() if output else ""
        if "bad_alloc" in last:
            last += " (memory ran out)"
        return f"{why}: {last}" if last else why

    def terminate(self) -> None:
        """Asks all workers to save and exit."""
        for worker in self.workers:
            worker.terminate()

    def dismiss(self) -> None:
        """Lets idle workers exit."""
        for worker in self.workers:
            worker.dismiss()

    def wait(self, signals: Signals) -> None:
        """Waits until all workers have exited, and kills those that take too long."""
        finish(self.workers, signals)
        self.workers.clear()

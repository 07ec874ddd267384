"""Nodes of workers without jax, for `capacity.py`: the calls of the ledger that supervisors and workers make."""

from __future__ import annotations

import heapq
import os
import random
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from lrurun.config.runs import PlannedRun
from lrurun.config.schema import CellConfig, Execution
from lrurun.ledger import owner
from lrurun.ledger.database import TRAINING_TIMEOUT
from lrurun.ledger.heartbeat import HEARTBEAT_SECONDS
from lrurun.ledger.ledger import Ledger
from lrurun.paths import Places
from lrurun.report.live.views import LadderView
from lrurun.runner import environment
from lrurun.runner.executors.local import LocalExecutor
from lrurun.runner.recorder import FLUSH_SECONDS
from lrurun.runner.signals import Signals
from lrurun.runner.supervisor import UPDATE_SECONDS, Supervisor
from lrurun.runner.work import Needs, work_on

CHECKPOINT_SECONDS = Execution().checkpoint_seconds
RUNGS = [f"rung-{k}" for k in range(8)]
METRICS = ("train/loss", "train/accuracy")
STEPS = 8
"""Steps in one write, each with a row of every metric."""
TIMED = ("hold", "record", "begin_checkpoint", "commit_checkpoint", "finish", "record_heartbeats")
NEEDS = Needs(threads=1, devices=1)


class Measured:
    """What one thread has done: calls with their seconds, transactions, heartbeats of attempts."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.calls: dict[str, list[float]] = defaultdict(list)
        self.transactions = self.heartbeats = 0


class CountedLedger(Ledger):
    """A ledger that measures its calls."""

    measured: Measured

    def _reading(self) -> Any:
        self.measured.transactions += 1
        return super()._reading()

    def _writing(self, *, durable: bool = True) -> Any:
        self.measured.transactions += 1
        return super()._writing(durable=durable)

    def record_heartbeats(self, pairs: Any) -> Any:
        self.measured.heartbeats += len(pairs)
        return super().record_heartbeats(pairs)


def _timed(name: str) -> Callable[..., Any]:
    call = getattr(CountedLedger, name)

    def timed(self: CountedLedger, *arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        found = call(self, *arguments, **options)
        self.measured.calls[name].append(time.perf_counter() - began)
        return found

    return timed


for _name in TIMED:
    setattr(CountedLedger, _name, _timed(_name))


class SimulatedWorker:
    """The calls of one worker."""

    def __init__(self, ledger: CountedLedger, ladder: str, here: Any, run_seconds: float, draw: random.Random) -> None:
        self.ledger, self.ladder, self.here, self.run_seconds = ledger, ladder, here, run_seconds
        self.described = environment.record(1)
        self.held: Any = None
        self.step = 0
        self.ends, self.saves = draw.uniform(0, run_seconds), draw.uniform(0, CHECKPOINT_SECONDS)
        """Seconds from now; the first are drawn, so that workers are not in step."""
        self.rows: dict[str, int] = {}
        """Run -> the rows that it got."""

    def take(self) -> None:
        """Holds a run."""
        self.ledger.reap(self.here)
        self.held = self.ledger.hold(
            self.ladder, self.here, rungs=RUNGS, seeds=[0], threads=1, devices=1, environment=self.described
        )
        self.step = 0
        if self.held is not None:
            assert self.held.run.id not in self.rows
            self.rows[self.held.run.id] = 0

    def begin(self) -> None:
        """What comes before the first step."""
        self.ledger.describe(self.held, data_sha256="sha256:0", environment={"device": "cpu"})
        self.ledger.checkpoints(self.held.run.id)
        self.ledger.attempts(self.held.run.id)
        self.ledger.rewind(self.held, 0)
        self.ledger.describe(self.held, parameters=1000)
        self.ledger.record_eigenvalues(self.held, "start", [[0.5 + 0.5j] * 64] * 4)

    def set_clock(self, now: float) -> None:
        self.ends, self.saves = now + self.ends, now + self.saves

    def turn(self) -> float:
        """What is due every FLUSH_SECONDS; returns after how many seconds to come again."""
        now = time.monotonic()
        if self.held is None:
            self.take()
            if self.held is None:
                return 0.2
            self.begin()
            self.ends = now + self.run_seconds
        elif now >= self.ends:
            self.end()
            return 0.0
        else:
            self.record()
            if now >= self.saves:
                self.save()
                self.saves = now + CHECKPOINT_SECONDS
        return FLUSH_SECONDS

    def record(self) -> None:
        rows = [(self.step + k + 1, metric, 0.5) for k in range(STEPS) for metric in METRICS]
        self.step += STEPS
        self.ledger.record(self.held, rows, self.step)
        self.rows[self.held.run.id] += len(rows)

    def save(self, keep: int = 2) -> None:
        run = self.held.run.id
        row = self.ledger.begin_checkpoint(self.held, self.step, f"{run}/1/checkpoints/{self.step}")
        self.ledger.commit_checkpoint(self.held, row, 1000, "sha256:0")
        if old := [one.id for one in self.ledger.checkpoints(run)[keep:]]:
            self.ledger.delete_checkpoints(self.held, old)

    def end(self) -> None:
        """The end of a run."""
        self.record()
        self.ledger.record_eigenvalues(self.held, "end", [[0.5 + 0.5j] * 64] * 4)
        self.save(keep=1)
        self.ledger.finish(self.held, "done", result={"test/accuracy": 0.5}, reason="done", step=self.step)
        self.held = None


class SimulatedExecutor(LocalExecutor):
    """Has the simulated workers of a node as its processes."""

    def __init__(self, workers: int, here: Any) -> None:
        super().__init__()
        worker: Any = SimpleNamespace(pid=here.pid, needs=NEEDS, dismiss=lambda: None)
        self.workers = [worker] * workers
        self._host = here.host
        self._heartbeat_at = time.monotonic() - random.uniform(0, HEARTBEAT_SECONDS)  # nodes are not in step


def _supervisor(ledger: CountedLedger, ladder: Any, here: Any, names: list[str], workers: int) -> Supervisor:
    selection: Any = SimpleNamespace(tuning=dict, final=list)
    folder = Path(tempfile.gettempdir())
    places = Places(ledger=ledger.path, runs=folder, data=folder)
    work = work_on(ladder, places, "t", RUNGS, [0], jobs=workers, on_node=True)
    made = Supervisor(ledger, work, selection, LadderView(), Signals(), SimulatedExecutor(workers, here))
    made.owner = here
    made.runs.needs = dict.fromkeys(names, NEEDS)
    made._reload()
    return made


class Client(threading.Thread):
    """One thread with one connection, which plays some nodes in turn."""

    def __init__(self, text: str, options: dict[str, Any], nodes: list[tuple[int, int]], barrier: Any) -> None:
        super().__init__(daemon=True)
        self.ledger = CountedLedger.open(text, timeout=TRAINING_TIMEOUT)
        self.measured = self.ledger.measured = Measured()
        self.options, self.barrier = options, barrier
        (ladder,) = self.ledger.ladders()
        names = [run.id for run in self.ledger.runs(ladder.key, brief=True)]
        draw = random.Random(nodes[0][0])
        self.workers: list[SimulatedWorker] = []
        self.supervisors: list[Supervisor] = []
        for node, count in nodes:
            here = msgspec.structs.replace(owner.this_process(), host=f"node-{node}")
            self.workers += [
                SimulatedWorker(self.ledger, ladder.key, here, options["run_seconds"], draw) for _ in range(count)
            ]
            self.supervisors.append(_supervisor(self.ledger, ladder, here, names, count))
        self.found: dict[str, Any] = {}
        self.error: str | None = None
        self.processor_seconds = 0.0
        """Of the whole process, while it is measured."""

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.error = f"{type(error).__name__}: {error}"
            self.barrier.abort()

    def _run(self) -> None:
        self.barrier.wait()
        for worker in self.workers:
            worker.take()
        self.found["burst"] = self.measured.calls
        self.barrier.wait()
        for supervisor in self.supervisors:
            supervisor._update()  # reads what the others have begun
        self.measured.clear()
        self.barrier.wait()  # the load begins
        before = time.process_time()
        self._load(time.monotonic() + self.options["seconds"])
        self.processor_seconds = time.process_time() - before
        self.found |= {"calls": self.measured.calls, "transactions": self.measured.transactions}
        self.found["heartbeats"] = self.measured.heartbeats
        self.measured.clear()  # what follows is not of the load
        self.barrier.wait()
        for worker in self.workers:
            if worker.held is not None:
                worker.end()
        self.barrier.wait()
        self.found["held"] = [list(worker.rows.items()) for worker in self.workers]

    def _load(self, until: float) -> None:
        draw, now = random.Random(len(self.workers)), time.monotonic()
        due: list[tuple[float, int, Callable[[], float]]] = []
        for worker in self.workers:
            worker.set_clock(now)
        turns = [worker.turn for worker in self.workers] + [self._tick(one) for one in self.supervisors]
        for number, turn in enumerate(turns):
            heapq.heappush(due, (now + draw.uniform(0, FLUSH_SECONDS), number, turn))
        while due[0][0] < until and time.monotonic() < until:
            at, number, turn = heapq.heappop(due)
            time.sleep(max(0.0, at - time.monotonic()))
            began = time.monotonic()
            heapq.heappush(due, (max(at, began - FLUSH_SECONDS) + turn(), number, turn))

    def _tick(self, supervisor: Supervisor) -> Callable[[], float]:
        def tick() -> float:
            began = time.perf_counter()
            supervisor._update()
            self.measured.calls["tick"].append(time.perf_counter() - began)
            return UPDATE_SECONDS

        return tick


def play(text: str, options: dict[str, Any], nodes: list[list[tuple[int, int]]], barrier: Any, answers: Any) -> None:
    """A process of clients; sends what they found, their errors and its seconds of processor time under load."""
    sys.stderr = open(os.devnull, "w")
    try:
        clients = [Client(text, options, each, barrier) for each in nodes]
    except BaseException:
        barrier.abort()
        raise
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    errors = [client.error for client in clients if client.error]
    answers.put(([client.found for client in clients], errors, clients[0].processor_seconds))


def planned(count: int) -> Iterator[PlannedRun]:
    for k in range(count):
        yield PlannedRun(
            fingerprint=f"sha256:{random.Random(k).getrandbits(256):064x}",
            task="t",
            rung=RUNGS[k % len(RUNGS)],
            stage="train",
            seed=0,
            steps=10**6,
            config=CellConfig(task="t", version=1, cell={"of": k}, seed=0),
            execution=Execution(),
            sources={},
            position=k,
        )

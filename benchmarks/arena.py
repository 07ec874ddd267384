"""A ladder whose processes are killed in chosen phases, and whose results are compared. For chaos.py."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from phases import HOOK, Trace  # noqa: E402

from lrurun.ledger.ledger import Ledger  # noqa: E402
from tests.harness.machine import Machine, workers_of  # noqa: E402
from tests.harness.servers import PrivateServer  # noqa: E402

INTERVAL = 0.3
"""Seconds between checkpoints."""
LADDER = [
    *("ladder", "sDigits", "--profile", "smoke"),
    *("--set", "train.steps=300", "--set", "train.eval_every=50"),
    *("--set", f"execution.checkpoint_seconds={INTERVAL}"),
]
DECK = ("any", "any", "start", "hold", "compile", "train", "evaluate", "evaluate", "checkpoint", "checkpoint")
"""Phases that kills are aimed at, in shuffled order; "any" is that of some worker after a random time."""
ATTACKS = (*[("worker", "KILL")] * 4, ("worker", "TERM"), *[("supervisor", "KILL")] * 3, ("supervisor", "TERM"))
PATIENCE = 6.0
"""Seconds to wait for a worker in the wanted phase; then any worker gets the signal."""


class Arena:
    """One ladder whose processes are killed."""

    def __init__(
        self,
        folder: Path,
        cache: Path,
        workers: int,
        arguments: list[str],
        draw: random.Random,
        postgres: PrivateServer | None = None,
    ) -> None:
        self.machine = Machine(folder, cache)
        self.postgres = postgres
        if postgres is not None:
            self.machine.use(postgres.empty())
        self.faults: Counter[str] = Counter()
        """Fault of the server -> how many."""
        self.arguments, self.workers, self.draw = arguments, workers, draw
        self.traces_folder = folder / "traces"
        site = folder / "site"
        site.mkdir()
        self.traces_folder.mkdir()
        (site / "sitecustomize.py").write_text(HOOK.format(folder=str(self.traces_folder)))
        # compiled bytecode would be kept beside modules that others use, too
        self.env = {"PYTHONPATH": f"{site}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        self.traces: dict[int, Trace] = {}
        self.hits: Counter[tuple[str, str]] = Counter()
        """(phase, attack) -> how many."""
        self.died_along: Counter[str] = Counter()
        """Phase -> workers that died because their supervisor was killed."""
        self.paused: dict[int, list[tuple[float, float]]] = {}
        self.missed = 0
        """Times a process was stopped and continued."""
        self.starts = 0
        self.violations: list[str] = []

    def trace(self, pid: int) -> Trace:
        return self.traces.setdefault(pid, Trace(self.traces_folder / str(pid))).refresh()

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        self.starts += 1
        with (self.machine.folder / "said.txt").open("a") as log:
            return self.machine.start(*arguments, env=self.env, stdout=log, stderr=log)

    def ladder(self) -> subprocess.Popen[str]:
        return self.start(*self.arguments, "--jobs", str(self.workers))

    def aim(self, wanted: str, candidates: Callable[[], list[psutil.Process]], seconds: float) -> psutil.Process | None:
        """A process that is in the phase wanted, stopped; after some seconds whichever there is; None when none is."""
        end = time.monotonic() + seconds
        listed, there = 0.0, []
        while True:
            late = time.monotonic() > end
            if late or time.monotonic() >= listed:  # reading all processes at every look would take a core
                listed, there = time.monotonic() + 0.05, candidates()
            self.draw.shuffle(there)
            for process in there:
                if late or wanted == "any" or self.trace(process.pid).phase == wanted:
                    if not _stop(process):
                        continue
                    if late or wanted == "any" or self.trace(process.pid).phase == wanted:
                        return process
                    self._go_on(process)
                    self.missed += 1
            if late:
                return None
            time.sleep(0.001)

    def _go_on(self, process: psutil.Process) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()

    def kill(self, process: subprocess.Popen[str], wanted: str, victim: str, name: str) -> bool:
        """Whether a signal was sent. A supervisor gets it when one of its workers is in the wanted phase."""
        time.sleep(self.draw.uniform(0.0, 1.5))
        found = self.aim(wanted, lambda: [] if process.poll() is not None else workers_of(process), PATIENCE)
        if found is None or process.poll() is not None:
            if found is not None:
                self._go_on(found)
            return False
        number = getattr(signal, f"SIG{name}")
        self.hits[self.trace(found.pid).phase, f"{victim} {name}"] += 1
        if victim == "supervisor":
            others = [worker for worker in workers_of(process) if worker.pid != found.pid]
            if name == "KILL":
                self.died_along.update(self.trace(worker.pid).phase for worker in others)
            process.send_signal(number)
        else:
            with contextlib.suppress(psutil.NoSuchProcess):
                found.send_signal(number)
        self._go_on(found)
        if victim == "supervisor":
            self._ends(process, [found, *others])
        return True

    def _ends(self, process: subprocess.Popen[str], workers: list[psutil.Process]) -> None:
        """A supervisor that got a signal ends, and its workers with it."""
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.violations.append(f"a supervisor with {len(workers)} workers did not end within 20 s of a signal")
            process.kill()
            process.wait()
        _, alive = psutil.wait_procs(workers, timeout=10)
        for worker in alive:
            self.violations.append(f"worker {worker.pid} outlived its supervisor by 10 s")
            worker.kill()

    def stand_still(self, process: subprocess.Popen[str]) -> None:
        """Stops a supervisor and its workers: a second command must not take over their runs."""
        time.sleep(self.draw.uniform(0.0, 1.5))
        until = time.monotonic() + PATIENCE
        while not self._running() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        if process.poll() is not None:
            return
        began = time.monotonic()
        supervisor = psutil.Process(process.pid)
        while True:
            stopped = [p for p in [supervisor, *workers_of(process)] if _stop(p)]
            if self._free() or not stopped:
                break
            for one in stopped:  # one was stopped while it wrote, and no other process could
                self._go_on(one)
            time.sleep(0.01)
        pids = {p.pid for p in stopped}
        held = {run: n for run, n, pid in self._running() if pid in pids}
        for one in stopped[1:]:
            if any(pid == one.pid for *_, pid in self._running()):
                self.hits[self.trace(one.pid).phase, "STOP"] += 1
        second = self.start(*self.arguments, "--jobs", "1")
        time.sleep(self.draw.uniform(2.5, 3.5))
        if second.poll() is not None:
            self.violations.append(
                f"beside a stopped command another ended with {second.returncode} instead of waiting"
            )
        now = {run: n for run, n, pid in self._running() if pid in pids}
        if now != held:
            self.violations.append(f"a stopped command's runs were taken: {held} before, {now} after")
        second.terminate()
        self._ends(second, workers_of(second))
        for one in stopped:
            self._go_on(one)
            self.paused.setdefault(one.pid, []).append((began, time.monotonic()))

    def server_fault(self) -> None:
        """Restarts the server or lets it crash, at once or after some seconds without it."""
        assert self.postgres is not None
        name = self.draw.choice(("restart", "crash", "outage"))
        self.faults[name] += 1
        time.sleep(self.draw.uniform(0.0, 1.5))
        self.postgres.stop(signal.SIGQUIT if name == "crash" else signal.SIGINT)
        if name == "outage":
            time.sleep(self.draw.uniform(1.0, 6.0))
        self.postgres.start()

    def _free(self) -> bool:
        """Whether no process is writing to the ledger. On a server others write beside a stopped process."""
        if self.postgres is not None:
            return True
        with contextlib.closing(sqlite3.connect(self.machine.ledger, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
        return True

    def _running(self) -> list[tuple[str, int, int]]:
        """(run, attempt, pid) of the runs that are running according to the ledger, which is only read."""
        if self.postgres is not None:
            with Ledger.read(self.machine.ledger) as ledger:
                newest = {run.id: ledger.attempts(run.id)[-1] for run in ledger.runs() if run.state == "running"}
            return [(run, attempt.n, attempt.pid) for run, attempt in newest.items()]
        with contextlib.closing(sqlite3.connect(self.machine.ledger, timeout=30)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchone():
                return []  # the ledger is still to be created
            return connection.execute(
                "SELECT r.id, a.n, a.pid FROM runs r JOIN attempts a ON a.run = r.number AND a.n = r.attempt"
                " WHERE r.state = 'running'"
            ).fetchall()

    def kill_migration(self, *arguments: str) -> bool:
        """Whether a command that creates a ledger was killed at it."""
        process = self.start(*arguments)
        end = time.monotonic() + 30
        while self.trace(process.pid).phase != "migration" and process.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(self.draw.uniform(0.0, 0.05))  # it takes less than a tenth of a second
        hit = process.poll() is None and _stop(psutil.Process(process.pid))
        hit = hit and self.trace(process.pid).phase == "migration"
        if hit:
            self.hits["migration", "supervisor KILL"] += 1
        workers = workers_of(process) if process.poll() is None else []
        process.kill()
        self._ends(process, workers)
        return hit

    def kill_creation(self) -> bool:
        """The same for a ledger that does not exist yet."""
        for path in self.machine.folder.glob("ledger.db*"):
            path.unlink()
        return self.kill_migration(*self.arguments, "--jobs", str(self.workers))

    def finish(self, process: subprocess.Popen[str]) -> None:
        """Starts the same command until it ends with all done."""
        for _ in range(5):
            code = process.wait(timeout=600)
            if not self.may_end(code):
                break
            if code == 0:
                return
            process = self.ladder()
        self.violations.append(f"left alone, the command ended with {code}")

    def may_end(self, code: int) -> bool:
        """Whether this exit code is expected: done, runs whose workers were killed three times, or the signal."""
        ok = code in (0, 3, 143, -signal.SIGTERM, -signal.SIGKILL)  # SIGTERM: before its handler was installed
        ok = ok or (self.postgres is not None and code == 5)  # the server was away when the command began
        if not ok:
            said = (self.machine.folder / "said.txt").read_text().splitlines()[-3:]
            self.violations.append(f"a command ended with {code}: {' / '.join(said)}")
        return ok

    def judge(self, undisturbed: dict[Any, Any]) -> dict[str, Any]:
        """Compares with the undisturbed ladder; returns what kills cost, in steps and seconds."""
        found = self.machine.history()
        differ = [key for key in undisturbed if found.get(key) != undisturbed[key]]
        for key in differ:
            parts = ("id", "state", "step", "result", "curves", "parameters")
            which = [n for n, a, b in zip(parts, found.get(key, [None] * 6), undisturbed[key], strict=True) if a != b]
            self.violations.append(f"{key}: {', '.join(which)} differ from the undisturbed ladder")
        if extra := found.keys() - undisturbed.keys():
            self.violations.append(f"runs that were not requested: {extra}")
        running = self._running()
        if running:
            self.violations.append(f"left running: {running}")
        lost: list[dict[str, float]] = []
        twice = attempts_made = 0
        for run, attempts in self.machine.attempts().items():
            attempts_made += len(attempts)
            done = [a.n for a in attempts if a.reason == "done"]
            if not done or done != [attempts[-1].n]:
                twice += 1
                self.violations.append(f"run {run}: done by attempts {done} of {len(attempts)}")
            for one, two in itertools.pairwise(attempts):
                if one.ended_at is None or one.ended_at > two.started_at:
                    self.violations.append(f"run {run}: attempts {one.n} and {two.n} overlap")
            lost += self._lost(run, attempts)
        return {"runs": len(found), "attempts": attempts_made, "differ": len(differ), "twice": twice, "lost": lost}

    def _lost(self, run: str, attempts: list[Any]) -> Iterator[dict[str, float]]:
        """Training of a killed attempt that a later one repeated."""
        for place, one in enumerate(attempts):
            later = next((a for a in attempts[place + 1 :] if a.resumed_from is not None), None)
            lines = self.trace(one.pid).attempt(run, one.n)
            reached = [(at, int(arguments[1])) for at, arguments in lines if arguments[0] == "reached"]
            if later is None or not reached:
                continue
            (first, began), (last, step) = reached[0], reached[-1]
            again = int(later.resumed_from)
            saves = [(at, int(arguments[3])) for at, arguments in lines if arguments[0] == "saving"]
            saved = sum(arguments[0] == "saved" for _, arguments in lines)
            committed = [s for _, s in saves[:saved]]
            if again < max([began, *committed]):
                self.violations.append(f"run {run}: attempt {later.n} began at {again}, {committed} were saved")
            if one.reason == "interrupted: SIGTERM" and again < step:
                self.violations.append(f"run {run}: attempt {one.n} saved and stopped at {step}, {again} was used")
            if again >= step:
                yield {"steps": 0, "seconds": 0.0, "allowed": INTERVAL}
                continue
            at = next((t for t, s in reached if s >= again), first)
            pauses = sum(max(0.0, min(b, last) - max(a, at)) for a, b in self.paused.get(one.pid, []))
            writing = last - saves[saved][0] if len(saves) > saved else 0.0
            dispatch = max((b - a for (a, _), (b, _) in itertools.pairwise(reached)), default=0.0)
            goes_on = next((t for t, _ in reached if t > at), at)  # once the snapshot is being written
            seconds, allowed = last - at - pauses, goes_on - at + INTERVAL + max(0.0, writing) + dispatch
            if seconds > allowed and self.postgres is None:
                self.violations.append(
                    f"run {run}: {seconds:.2f} s of attempt {one.n} were repeated, {allowed:.2f} s are allowed"
                )
            yield {"steps": step - again, "seconds": seconds, "allowed": allowed}


def _stop(process: psutil.Process) -> bool:
    """Stops a process and waits until it is stopped; returns whether it exists."""
    try:
        process.suspend()
        while process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
            time.sleep(0.0005)
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False

"""The supervisor of a ladder: reconciles what was asked for with what the ledger has, through worker processes.

It owns the signals, the heartbeat and the display, and never imports jax: a compiling worker may be silent for minutes.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from lrurun import plan as planning
from lrurun import plugins, provenance
from lrurun.config import canonical
from lrurun.errors import LedgerError, LrurunError
from lrurun.executors.local import LocalWorker
from lrurun.ledger import owner
from lrurun.ledger.store import GONE, Ledger
from lrurun.ledger.values import FINISHED, Attempt, Run, Wanted
from lrurun.ledger.values import Ladder as Instance
from lrurun.paths import Places
from lrurun.report.live import Preparing
from lrurun.report.progress import Progress, clock, collect
from lrurun.tasks import folder
from lrurun.tasks.base import Options, Task
from lrurun.worker import MACHINE_FAULT

TICK_SECONDS = 0.1
LOOK_SECONDS = 0.5
BEAT_SECONDS = 10.0
GRACE_SECONDS = 8.0
BUSY_SECONDS = 5.0
"""How long the ledger may keep this process waiting before anybody hears of it."""
RETRIES = 2
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Display(Protocol):
    """Where progress goes."""

    def update(self, progress: Progress, runs: Callable[[], Iterable[Run]]) -> None: ...

    def say(self, text: str) -> None: ...


class Stopped(Exception):
    """A signal, or the time limit, asked the ladder to stop; its state is saved."""

    def __init__(self, number: int, cause: str | None = None) -> None:
        super().__init__(cause or signal.Signals(number).name)
        self.exit_code = 128 + number


class Signals:
    """Notes SIGINT, SIGTERM and SIGHUP instead of dying of them; a second ^C is noted too.

    With a time limit in seconds it is as if SIGTERM came while there is still time for workers to save: 8 s before the
    limit is reached, or at its half if that is later.
    """

    def __init__(self, limit: float | None = None) -> None:
        self.first: int | None = None
        self.again = False
        self.limit = limit
        self._until = math.inf if limit is None else time.monotonic() + max(limit - GRACE_SECONDS, limit / 2)

    def _note(self, number: int, _frame: object) -> None:
        if self.first is None:
            self.first = number
        elif number == signal.SIGINT:
            self.again = True

    @contextlib.contextmanager
    def noted(self) -> Iterator[Signals]:
        """Inside, signals are noted; those that the starter of this process ignores (nohup) stay ignored."""
        heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._note) for number in heeded}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """Raises Stopped when a signal came, or the time limit is near."""
        if self.first is None and self.limit is not None and time.monotonic() >= self._until:
            self.first = signal.SIGTERM
            raise Stopped(self.first, f"the time limit of {clock(self.limit)}")
        if self.first is not None:
            raise Stopped(self.first)


class Outcome:
    """What a ladder command left behind."""

    def __init__(self, instance: Instance, runs: Sequence[Run], worked: bool) -> None:
        self.instance = instance
        self.runs = runs
        self.worked = worked
        """Whether anything was left to do."""

    @property
    def exit_code(self) -> int:
        return 0 if all(run.state in FINISHED for run in self.runs) else 3


class Supervisor:
    """One command's work on one ladder instance."""

    def __init__(
        self,
        ledger: Ledger,
        places: Places,
        plan: planning.Plan,
        rungs: Sequence[planning.ResolvedRung],
        seeds: Sequence[int],
        jobs: int | None,
        display: Display,
        signals: Signals,
        pack: int = 1,
    ) -> None:
        self.pack = pack
        """Seeds of a rung that a worker trains at once."""
        self.ledger, self.places, self.plan, self.rungs, self.seeds = ledger, places, plan, rungs, list(seeds)
        self.jobs, self.display, self.signals = jobs, display, signals
        self.me = owner.here()
        self.workers: list[LocalWorker] = []
        self.barren = 0
        """Workers in a row that died before they had claimed anything."""
        self.selection: dict[str, int] = {}
        """Run id -> threads of the runs that this command is for."""
        self.past: dict[str, int] = {}
        """Run id -> how many of its attempts had ended when this command took it on: no clock can tell them apart."""
        self.beaten = -1e9
        self.silent: dict[tuple[str, int], tuple[float, float]] = {}
        """(Run id, attempt) -> its last sign of life, and the seconds that this process has seen it without another."""
        self.starved = provenance.killed_for_memory()
        self.ending = False
        self.said_busy = False
        self.file = _identity(places.ledger)
        self.folder = _identity(places.runs)
        self.points = {rung.name: planning.wanted_tuning(plan, [rung]) for rung in rungs} if plan.tune else {}
        self.tuned: set[str] = set()
        self.fresh = False
        self.renewed: set[str] = set()
        """Fingerprints that `--fresh` has started over."""
        ledger.waiting = self._waiting
        self.instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        self.heard = max((event.id for event in ledger.events(limit=1)), default=0)

    def run(self, *, fresh: bool = False) -> Outcome:
        """Runs everything that is chosen and not yet done, to the end; with `fresh`, all of it once more.

        Raises:
            Stopped: after a signal, with state saved.
            LrurunError: data, folders or ledger do not allow it.
        """
        self.fresh = fresh
        self.ledger.reap(self.me)
        if self.plan.tune:
            self._enqueue([want for points in self.points.values() for want in points])
        else:
            self._enqueue([w for rung in self.rungs for w in planning.wanted_final(self.plan, rung, self.seeds)])
        runs = self._advance(self._chosen(), first=True)
        if all(self._over(run) for run in runs):
            return Outcome(self.instance, self._chosen(), worked=False)
        try:
            prepare_data(self.places.data, self.plan, self.signals)
            self._loop()
        except Stopped:
            self._stop("stopping: runs are saved at their next boundary (^C again stops at once)")
            raise
        except BaseException:
            self._stop("stopping the other workers, which save their runs")
            raise
        self._dismiss()
        return Outcome(self.instance, self._chosen(), worked=True)

    def _enqueue(self, wanted: list[Wanted]) -> None:
        """Asks for runs, and lets go of those that an earlier wording of the same rungs asked for."""
        self._unlink_stale(wanted)
        groups = [(wanted, False)]
        if self.fresh:
            new = [w for w in wanted if w.fingerprint not in self.renewed]
            groups = [(new, True), ([w for w in wanted if w.fingerprint in self.renewed], False)]
            self.renewed |= {w.fingerprint for w in new}
        for group, fresh in groups:
            for run in self.ledger.enqueue(self.instance.key, group, fresh=fresh) if group else []:
                self.selection[run.id] = int(run.execution.get("threads", 1))
        newest = self.ledger.newest_attempts(self.selection.keys() - self.past.keys())
        for run_id in self.selection.keys() - self.past.keys():
            last = newest.get(run_id)
            self.past[run_id] = 0 if last is None else last.n - (last.ended_at is None)

    def _unlink_stale(self, wanted: list[Wanted]) -> None:
        """Final runs of a rung must agree in all but the seed; tuning runs must be points of the grid."""
        final = {w.rung: planning.common_settings(w.config) for w in wanted if w.stage == "train"}
        points: dict[str, set[str]] = {}
        for want in wanted:
            if want.stage == "tune":
                points.setdefault(want.rung, set()).add(want.fingerprint)
        stale: dict[tuple[str, str], list[str]] = {}
        for run in self.ledger.runs(self.instance.key):
            for member in run.memberships:
                if member.ladder_key != self.instance.key:
                    continue
                if member.stage == "train":
                    old = member.rung in final and planning.common_settings(run.config) != final[member.rung]
                else:
                    old = member.rung in points and run.fingerprint not in points[member.rung]
                if old:
                    stale.setdefault((member.rung, member.stage), []).append(run.id)
        for (rung, stage), ids in stale.items():
            self.ledger.unlink(self.instance.key, ids, rung, stage)
            what = f"{len(ids)} {'tuning runs' if stage == 'tune' else 'runs'} of earlier settings"
            self.display.say(f"{rung}: {what} leave this ladder; the ledger keeps them")

    def _chosen(self) -> list[Run]:
        return self.ledger.runs(ids=list(self.selection), brief=True)

    def _advance(self, runs: list[Run], *, first: bool = False) -> list[Run]:
        """Puts resumable runs back into the queue, and asks for the final runs of rungs whose tuning is over."""
        unfinished = [
            run.id for run in runs if run.state in ("interrupted", "failed") and (first or not self._over(run))
        ]
        asked = len(self.selection)
        if unfinished:
            self.ledger.requeue(unfinished)
        for rung in self.rungs:
            if self.plan.tune and rung.name not in self.tuned:
                self._finish_tuning(rung, runs)
        return self._chosen() if unfinished or len(self.selection) > asked else runs

    def _finish_tuning(self, rung: planning.ResolvedRung, runs: list[Run]) -> None:
        by_fingerprint = {run.fingerprint: run for run in runs}
        tuning = [by_fingerprint[want.fingerprint] for want in self.points[rung.name]]
        if not all(self._over(run) for run in tuning):
            return
        self.tuned.add(rung.name)
        point = planning.choose_point(self.plan, [run.result if run.state == "done" else None for run in tuning])
        if point is None:
            text = f"{rung.name}: no tuning run finished; the final runs keep the recipe's values"
        else:
            text = f"{rung.name}: chosen on validation: " + ", ".join(f"{k} = {v}" for k, v in point.items())
        known = [event.text for event in self.ledger.events(ladder_key=self.instance.key) if event.kind == "tuned"]
        if text not in known:
            self.ledger.event("tuned", text, ladder=self.instance.key)
            self.display.say(text)
        self._enqueue(planning.wanted_final(self.plan, rung, self.seeds, point))

    def _over(self, run: Run) -> bool:
        return run.state in FINISHED or (run.state in ("failed", "interrupted") and self._broken(run) > RETRIES)

    def left(self) -> tuple[int, int]:
        """Of the runs that this command is for, how many are not finished, and how many there are."""
        runs = self._chosen()
        awaited = len(self.seeds) * sum(self.plan.tune and rung.name not in self.tuned for rung in self.rungs)
        return sum(run.state not in FINISHED for run in runs) + awaited, len(runs) + awaited

    def _broken(self, run: Run) -> int:
        """How often an attempt of this command broke: an exception, or a worker that died of itself."""
        return sum((a.reason or "").startswith(("failed", GONE)) for a in self._since(run) if a.ended_at is not None)

    def _loop(self) -> None:
        looked = -1e9
        while True:
            self.signals.check()
            now = time.monotonic()
            self._bury()
            if now - looked >= LOOK_SECONDS:
                looked = now
                self._check_ledger()
                self.ledger.reap(self.me)
                runs = self._advance(self._chosen())
                if now - self.beaten >= BEAT_SECONDS:
                    self._beat(runs, now)
                self._tell()
                self._show()
                if all(self._over(run) for run in runs):
                    return
                self._staff(runs)
            time.sleep(TICK_SECONDS)

    def _check_ledger(self) -> None:
        """A deleted or exchanged file goes on taking what is written, and nobody would ever see it again."""
        if _identity(self.places.ledger) != self.file:
            raise LedgerError(
                f"the ledger {self.places.ledger} was removed or replaced while this command was writing to it",
                "put it back if you can; the same command starts a new one",
            )
        folder = _identity(self.places.runs)
        if folder != self.folder and self.folder is not None:
            gone = "the logs and checkpoints in it are gone, runs that are interrupted now start anew"
            self.display.say(f"the runs folder {self.places.runs} was removed or replaced: {gone}")
        self.folder = folder

    def _waiting(self, seconds: float) -> None:
        """While another process keeps the ledger: signals are heeded, and the wait is told once.

        Raises:
            Stopped: a signal came.
            LedgerError: this command is ending anyway.
        """
        self.signals.check()
        if self.ending:
            raise LedgerError(f"the ledger {self.ledger.path} is busy")
        if seconds >= BUSY_SECONDS and not self.said_busy:
            self.said_busy = True
            self.display.say(f"the ledger {self.ledger.path} is busy: waiting for another process that writes to it")

    def _tell(self) -> None:
        """Says what the workers found when they resumed: damaged checkpoints, another machine."""
        for event in self.ledger.events(after=self.heard, ladder_key=self.instance.key):
            self.heard = event.id
            if event.kind in ("checkpoint", "changed", "resumed"):
                self.display.say(f"{event.run}: {event.text}")

    def _staff(self, runs: Sequence[Run]) -> None:
        """As many workers as there are queued runs and room for, each with the threads that its runs have."""
        queued: dict[int, int] = {}
        for run in runs:
            if run.state == "queued":
                threads = self.selection[run.id]
                queued[threads] = queued.get(threads, 0) + 1
        if not queued:
            return
        devices = provenance.accelerators()
        busy = self._busy(runs)
        for threads, count in sorted(queued.items()):
            room = self.jobs or len(devices) or max(1, provenance.cores() // threads)
            same = [worker for worker in self.workers if worker.threads == threads]
            idle = sum(worker.pid not in busy for worker in same)
            while idle * self.pack < count and len(self.workers) < room:
                used = [worker.device for worker in self.workers]
                device = min(devices, key=used.count) if len(devices) > 1 else None
                self._start({"threads": threads}, threads=threads, device=device)
                idle += 1
            if not idle and not same:
                for worker in self.workers:
                    if worker.pid not in busy and worker.threads not in queued:
                        worker.dismiss()  # makes room: no run is left for its number of threads

    def _busy(self, runs: Sequence[Run]) -> set[int]:
        """Processes of this host that have a run in hand."""
        newest = [self.ledger.attempts(run.id)[-1] for run in runs if run.state == "running"]
        return {attempt.pid for attempt in newest if attempt.host == self.me.host}

    def _start(self, order: dict[str, Any], *, threads: int, device: str | None = None) -> LocalWorker:
        order = {
            **order,
            "supervisor": os.getpid(),
            "ladder": self.instance.key,
            "rungs": [rung.name for rung in self.rungs],
            "seeds": self.seeds,
            "pack": self.pack,
            "plugins": plugins.order(),
            "ledger": str(self.places.ledger.absolute()),
            "runs": str(self.places.runs.absolute()),
            "where": str((self.places.data / self.plan.data_name).absolute()),
        }
        self.workers.append(LocalWorker(order, threads=threads, device=device))
        return self.workers[-1]

    def _bury(self) -> None:
        """Takes note of workers that ended.

        Raises:
            LrurunError: one could not write, or they keep dying before they have claimed a run.
        """
        for worker in list(self.workers):
            code = worker.poll()
            if code is None:
                continue
            tail = worker.tail()
            worker.close()
            self.workers.remove(worker)
            if code == MACHINE_FAULT:
                raise _fault(tail)
            if code in (0, 143):
                continue
            claimed = [
                attempt
                for run in self._chosen()
                for attempt in self._since(run)
                if attempt.pid == worker.pid and attempt.host == self.me.host
            ]
            broken = [attempt for attempt in claimed if attempt.ended_at is None or attempt.reason == GONE]
            said = f"a worker ended with {self._why(code, tail, broken)}"
            for attempt in broken:
                self.ledger.event("died", said, run=attempt.run, attempt=attempt.n)
            self.display.say(said)
            self.barren = 0 if claimed else self.barren + 1
            if self.barren > RETRIES:
                raise LrurunError(said, "lrurun doctor tells what this machine has")

    def _why(self, code: int, tail: str, broken: Sequence[Attempt]) -> str:
        """What a worker died of, with its last words."""
        why = _cause(code)
        killed = provenance.killed_for_memory()
        if code == -signal.SIGKILL and killed > self.starved:
            self.starved += 1
            return f"{why}: the system killed it because memory ran out"
        self.starved = killed
        if code == -signal.SIGABRT and broken:  # C++ says why, in the log of the attempt
            tail = tail or _end_of(self.places.runs / broken[-1].run / str(broken[-1].n) / "log.txt")
        last = tail.splitlines()[-1].strip() if tail else ""
        if "bad_alloc" in last:
            last += " (memory ran out)"
        return f"{why}: {last}" if last else why

    def _since(self, run: Run) -> list[Attempt]:
        """The attempts that were not over when this command took the run on."""
        return self.ledger.attempts(run.id)[self.past.get(run.id, 0) :]

    def _beat(self, runs: Sequence[Run], now: float) -> None:
        """A sign of life for the runs of own workers; a worker that shows none itself is ended.

        Silence counts only while this process has looked on: not while it was stopped, or the machine asleep, or the
        ledger held by another process, and whatever became of the clock.
        """
        looked, self.beaten = min(now - self.beaten, 2 * BEAT_SECONDS), now
        mine = {worker.pid: worker for worker in self.workers}
        pairs = []
        for run in runs:
            if run.state != "running":
                continue
            attempt = self.ledger.attempts(run.id)[-1]
            if attempt.host != self.me.host or attempt.pid not in mine:
                continue
            pairs.append((run.id, attempt.n))
            seen, silence = self.silent.get((run.id, attempt.n), (attempt.seen_at, -looked))
            silence = silence + looked if seen == attempt.seen_at else 0.0
            self.silent[run.id, attempt.n] = attempt.seen_at, silence
            limit = float(self.ledger.run(run.id).execution.get("hang_after_seconds", 1800.0))
            if silence > limit:
                self.display.say(f"{run.id}: no sign of its worker for {limit:.0f} s: killed")
                mine[attempt.pid].kill()
        if pairs:
            self.ledger.beat(pairs)

    def _stop(self, words: str) -> None:
        """Asks the workers to save, waits, ends those that do not answer, and leaves no row of theirs running."""
        self.ending = True
        for worker in self.workers:
            worker.terminate()
        if self.workers:
            self.display.say(words)
        self._wait()
        with contextlib.suppress(Exception):
            self.ledger.reap(self.me)
            self._show()

    def _show(self) -> None:
        members = partial(self.ledger.runs, self.instance.key, brief=True)
        self.display.update(collect(self.ledger, self.instance), members)

    def _dismiss(self) -> None:
        """Lets idle workers go."""
        for worker in self.workers:
            worker.dismiss()
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + GRACE_SECONDS
        while any(worker.poll() is None for worker in self.workers) and time.monotonic() < deadline:
            if self.signals.again:
                break
            time.sleep(TICK_SECONDS)
        for worker in self.workers:
            worker.kill()
            worker.close()
        self.workers.clear()


class Prepares(Protocol):
    """What says which data are meant: a plan, or the words of `lrurun data`."""

    @property
    def task(self) -> Task: ...

    @property
    def options(self) -> Options: ...

    @property
    def data_name(self) -> str: ...


def prepare_data(data_dir: Path, what: Prepares, signals: Signals, *, given: Path | None = None) -> bool:
    """Makes the data where they are missing, in a process of its own; whether there was anything to do.

    Raises:
        Stopped: a signal came; nothing half-written stays behind.
        LrurunError: they cannot be had or written.
    """
    where = (data_dir / what.data_name).absolute()
    if folder.manifest(what.task, what.options, where) is not None:
        return False
    order = {
        "prepare": what.task.name,
        "plugins": plugins.order(),
        "options": canonical(what.options),
        "where": str(where),
        "given": None if given is None else str(given.absolute()),
        "supervisor": os.getpid(),
    }
    worker = LocalWorker(order, threads=1)
    try:
        with Preparing() as display:
            while worker.poll() is None:
                signals.check()
                _pass_on(worker.tail(1), display)
                time.sleep(TICK_SECONDS)
        code, tail = worker.poll(), worker.tail()
    finally:
        worker.terminate()
        deadline = time.monotonic() + GRACE_SECONDS
        while worker.poll() is None and time.monotonic() < deadline and not signals.again:
            time.sleep(TICK_SECONDS)
        worker.kill()
        worker.close()
    if code == MACHINE_FAULT:
        raise _fault(tail)
    if code != 0:
        last = tail.splitlines()[-1] if tail else "it said nothing"
        raise LrurunError(
            f"{what.data_name}: preparing ended with {_cause(code or 1)}: {last}",
            "lrurun doctor tells what this machine has",
        )
    return True


def _pass_on(line: str, display: Preparing) -> None:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        display.tell(*json.loads(line)["tell"])


def check_data_folder(places: Places, what: Prepares) -> None:
    """Finds out whether the data are sound or can be prepared, before anything is written anywhere.

    Raises:
        LrurunError: they are not.
    """
    if folder.manifest(what.task, what.options, places.data / what.data_name) is None:
        above = places.data.absolute()
        while not above.exists():
            above = above.parent
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            why = "cannot be written" if above.is_dir() else "is no folder"
            raise LrurunError(
                f"{places.data}: no data folder can be made there: {above} {why}", "choose another with --data-dir"
            )


def check_runs_folder(places: Places) -> None:
    """Finds out whether the runs folder takes files, before anything is written anywhere.

    Raises:
        LrurunError: it does not.
    """
    runs = places.runs
    made = False
    try:
        with contextlib.suppress(FileExistsError):  # a file of that name, too, which is told of below
            runs.mkdir()
            made = True
        with tempfile.NamedTemporaryFile(dir=runs, prefix=".room-") as file:
            file.write(b"\0" * 65536)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if made:
            with contextlib.suppress(OSError):
                runs.rmdir()
        hint = "make room or give permission there, or choose another place with --runs-dir"
        if isinstance(error, FileNotFoundError):
            hint = f"make the folder: mkdir -p {runs.parent}"
        raise LrurunError(f"{runs}: the runs folder cannot be written: {error.strerror}", hint) from None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _end_of(log: Path) -> str:
    """The last bytes of a log, "" when it is gone."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        return file.read().decode(errors="replace").strip()
    return ""


def _cause(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def _fault(tail: str) -> LrurunError:
    for line in reversed(tail.splitlines()):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            table = json.loads(line)
            error = LrurunError(table["error"], table["hint"])
            error.exit_code = int(table["exit_code"])
            return error
    return LrurunError("a worker could not write its results", tail or None)

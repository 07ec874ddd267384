"""The supervisor of a ladder: reconciles what was asked for with what the ledger has, through worker processes.

It owns the signals, the heartbeat and the display, and never imports jax: a compiling worker may be silent for minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from lrurun import plan as planning
from lrurun import provenance, tasks
from lrurun.config import canonical
from lrurun.errors import LrurunError
from lrurun.executors.local import LocalWorker
from lrurun.ledger import owner
from lrurun.ledger.store import GONE, Ledger
from lrurun.ledger.values import FINISHED, Run, Wanted
from lrurun.ledger.values import Ladder as Instance
from lrurun.paths import Places
from lrurun.report.progress import Progress, collect
from lrurun.tasks import folder
from lrurun.worker import MACHINE_FAULT

TICK_SECONDS = 0.1
LOOK_SECONDS = 0.5
BEAT_SECONDS = 10.0
GRACE_SECONDS = 8.0
RETRIES = 2
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Display(Protocol):
    """Where progress goes."""

    def update(self, progress: Progress) -> None: ...

    def say(self, text: str) -> None: ...


class Stopped(Exception):
    """A signal asked the ladder to stop; its state is saved."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Signals:
    """Notes SIGINT, SIGTERM and SIGHUP instead of dying of them; a second ^C is noted too."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.again = False

    def _note(self, number: int, _frame: object) -> None:
        if self.first is None:
            self.first = number
        elif number == signal.SIGINT:
            self.again = True

    @contextlib.contextmanager
    def noted(self) -> Iterator[Signals]:
        before = {number: signal.signal(number, self._note) for number in SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """Raises Stopped when a signal came."""
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
    ) -> None:
        self.ledger, self.places, self.plan, self.rungs, self.seeds = ledger, places, plan, rungs, list(seeds)
        self.jobs, self.display, self.signals = jobs, display, signals
        self.me = owner.here()
        self.workers: list[LocalWorker] = []
        self.selection: dict[str, None] = {}
        self.began = time.time()
        self.tuned: set[str] = set()
        self.fresh = False
        self.instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)

    def run(self, *, fresh: bool = False) -> Outcome:
        """Runs everything that is chosen and not yet done, to the end; with `fresh`, all of it once more.

        Raises:
            Stopped: after a signal, with state saved.
            LrurunError: data, folders or ledger do not allow it.
        """
        self.fresh = fresh
        self.ledger.reap(self.me)
        for rung in self.rungs:
            if self.plan.tune:
                self._enqueue(planning.wanted_tuning(self.plan, [rung]))
            else:
                self._enqueue(planning.wanted_final(self.plan, rung, self.seeds))
        self._advance(first=True)
        if self._settled():
            return self._outcome(worked=False)
        self._check_runs_folder()
        try:
            self._prepare()
            self._loop()
        except Stopped:
            self._stop()
            raise
        except BaseException:
            for worker in self.workers:
                worker.kill()
            raise
        finally:
            for worker in self.workers:
                worker.dismiss()
            self._bury(wait=True)
        return self._outcome(worked=True)

    def _outcome(self, worked: bool) -> Outcome:
        return Outcome(self.instance, self._chosen(), worked)

    def _enqueue(self, wanted: list[Wanted]) -> None:
        """Asks for runs, and lets go of those that an earlier wording of the same rung asked for."""
        by_place = {
            (w.rung, w.stage): _recipe_of(w.config, self.plan.grid if w.stage == "tune" else {}) for w in wanted
        }
        stale: dict[tuple[str, str], list[str]] = {}
        for run in self.ledger.runs(self.instance.key):
            for member in run.memberships:
                place = (member.rung, member.stage)
                if member.ladder_key == self.instance.key and place in by_place:
                    grid = self.plan.grid if member.stage == "tune" else {}
                    if _recipe_of(run.config, grid) != by_place[place]:
                        stale.setdefault(place, []).append(run.id)
        for (rung, stage), ids in stale.items():
            self.ledger.unlink(self.instance.key, ids, rung, stage)
            self.display.say(
                f"{rung}: {len(ids)} runs of an earlier wording of this rung leave the ladder; the ledger keeps them"
            )
        for run in self.ledger.enqueue(self.instance.key, wanted, fresh=self.fresh):
            self.selection[run.id] = None

    def _chosen(self) -> list[Run]:
        return self.ledger.runs(ids=list(self.selection))

    def _advance(self, *, first: bool = False) -> list[Run]:
        """Puts resumable runs back into the queue, and asks for the final runs of rungs whose tuning is finished."""
        chosen = self._chosen()
        again = []
        for run in chosen:
            if run.state in ("interrupted", "failed") and (first or not self._over(run)):
                again.append(run.id)
        if again:
            self.ledger.requeue(again)
        if self.plan.tune:
            for rung in self.rungs:
                if rung.name not in self.tuned:
                    self._finish_tuning(rung, chosen)
        return self._chosen() if again or self.plan.tune else chosen

    def _finish_tuning(self, rung: planning.ResolvedRung, chosen: list[Run]) -> None:
        points = planning.wanted_tuning(self.plan, [rung])
        by_fingerprint = {run.fingerprint: run for run in chosen}
        runs = [by_fingerprint.get(w.fingerprint) for w in points]
        if any(run is None or not self._over(run) for run in runs):
            return
        # of two equal scores the lower loss, then the earlier point
        scored = [
            (run.result["val/accuracy"], -run.result["val/loss"], -k)
            for k, run in enumerate(runs)
            if run is not None and run.state == "done" and run.result
        ]
        self.tuned.add(rung.name)
        if scored:
            point = planning.grid_points(self.plan.grid)[-max(scored)[-1]]
            text = f"{rung.name}: chosen on validation: " + ", ".join(f"{k} = {v:g}" for k, v in point.items())
        else:
            point = None
            text = f"{rung.name}: no tuning run finished; the final runs keep the recipe's values"
        self.ledger.event("tuned", text, ladder=self.instance.key)
        self.display.say(text)
        self._enqueue(planning.wanted_final(self.plan, rung, self.seeds, point))

    def _over(self, run: Run) -> bool:
        return run.state in FINISHED or (run.state in ("failed", "interrupted") and self._broken(run) > RETRIES)

    def _broken(self, run: Run) -> int:
        """How often an attempt of this command broke: an exception, or a worker that died of itself."""
        attempts = self.ledger.attempts(run.id)
        reasons = [a.reason or "" for a in attempts if a.ended_at is not None and a.ended_at >= self.began]
        return sum(reason.startswith(("failed", GONE)) for reason in reasons)

    def _settled(self) -> bool:
        return all(self._over(run) for run in self._chosen())

    def _prepare(self) -> None:
        task = tasks.get(self.plan.recipe.task)
        if folder.manifest(task, self.places.data) is not None:
            return
        self.display.say(f"preparing {task.name} ({task.source}) in {self.places.data / task.name}")
        worker = self._start({"prepare": task.name}, threads=1)
        while worker.poll() is None:
            self.signals.check()
            time.sleep(TICK_SECONDS)
        self._bury()
        if folder.manifest(task, self.places.data) is None:
            raise LrurunError(f"{task.name} could not be prepared", worker.tail() or "run again with --debug")

    def _loop(self) -> None:
        looked = beaten = -1e9
        while True:
            self.signals.check()
            now = time.monotonic()
            self._bury()
            if now - beaten >= BEAT_SECONDS:
                beaten = now
                self._beat()
            if now - looked >= LOOK_SECONDS:
                looked = now
                self._reap()
                runs = self._advance()
                self.display.update(collect(self.ledger, self.instance))
                if all(self._over(run) for run in runs):
                    return
                self._staff(runs)
            time.sleep(TICK_SECONDS)

    def _staff(self, runs: Sequence[Run]) -> None:
        """As many workers as there are queued runs and room for."""
        queued: dict[int, int] = {}
        for run in runs:
            if run.state == "queued":
                threads = int(run.execution.get("threads", 1))
                queued[threads] = queued.get(threads, 0) + 1
        for threads, count in sorted(queued.items()):
            accelerators = provenance.accelerators()
            room = self.jobs or accelerators or max(1, provenance.cores() // threads)
            mine = {run.id for run in runs if run.state == "running"}
            idle = max(0, len(self.workers) - len(mine))
            used = {worker.device for worker in self.workers}
            while len(self.workers) < room and idle < count:
                free = [k for k in range(accelerators) if k not in used] if accelerators > 1 else []
                device = free[0] if free else None
                used.add(device)
                self.workers.append(self._start({"threads": threads}, threads=threads, device=device))
                idle += 1

    def _start(self, order: dict[str, Any], *, threads: int, device: int | None = None) -> LocalWorker:
        order = {
            **order,
            "supervisor": os.getpid(),
            "ladder": self.instance.key,
            "rungs": [rung.name for rung in self.rungs],
            "seeds": self.seeds,
            "ledger": str(self.places.ledger.absolute()),
            "runs": str(self.places.runs.absolute()),
            "data": str(self.places.data.absolute()),
        }
        number, name = tempfile.mkstemp(prefix="lrurun-worker-", suffix=".log")
        os.close(number)
        worker = LocalWorker(order, threads=threads, log=Path(name), device=device)
        if "prepare" in order:
            self.workers.append(worker)
        return worker

    def _bury(self, *, wait: bool = False) -> None:
        """Takes note of workers that ended."""
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in list(self.workers):
            while wait and worker.poll() is None and time.monotonic() < deadline:
                time.sleep(TICK_SECONDS)
            if wait:
                worker.kill()
            code = worker.poll()
            if code is None:
                continue
            worker.dismiss()
            self.workers.remove(worker)
            tail = worker.tail()
            worker.log.unlink(missing_ok=True)
            if code == MACHINE_FAULT:
                raise _fault(tail)
            if code not in (0, 143) and not wait:
                said = f": {tail.splitlines()[-1]}" if tail else ""
                self.display.say(f"a worker ended with {_cause(code)}{said}")
                if code > 0:
                    raise LrurunError(
                        f"a worker could not start: {tail.splitlines()[-1] if tail else _cause(code)}",
                        "lrurun doctor tells what this machine has",
                    )

    def _reap(self) -> None:
        self.ledger.reap(self.me)
        for run in self._chosen():
            if run.state == "running":
                self._check_hang(run)

    def _check_hang(self, run: Run) -> None:
        attempt = self.ledger.attempts(run.id)[-1]
        limit = float(run.execution.get("hang_after_seconds", 1800.0))
        mine = {worker.pid: worker for worker in self.workers}
        if attempt.pid in mine and time.time() - attempt.seen_at > limit:
            self.display.say(f"{run.id}: no sign of its worker for {limit:.0f} s: killed")
            mine[attempt.pid].kill()

    def _beat(self) -> None:
        pids = {worker.pid for worker in self.workers}
        pairs = []
        for run in self._chosen():
            if run.state == "running":
                attempt = self.ledger.attempts(run.id)[-1]
                if attempt.pid in pids and attempt.host == self.me.host:
                    pairs.append((run.id, attempt.n))
        if pairs:
            self.ledger.beat(pairs)

    def _stop(self) -> None:
        """Asks the workers to save, waits, ends those that do not answer, and leaves no row running."""
        self.display.say("stopping: runs are saved at their next boundary (^C again stops at once)")
        for worker in self.workers:
            worker.terminate()
        deadline = time.monotonic() + GRACE_SECONDS
        while any(worker.poll() is None for worker in self.workers) and time.monotonic() < deadline:
            if self.signals.again:
                break
            time.sleep(TICK_SECONDS)
        for worker in self.workers:
            worker.kill()
        self.ledger.reap(self.me)
        with contextlib.suppress(Exception):
            self.display.update(collect(self.ledger, self.instance))

    def _check_runs_folder(self) -> None:
        """A folder that cannot take a file is found before anything is trained."""
        runs = self.places.runs
        try:
            runs.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=runs, prefix=".room-") as file:
                file.write(b"\0" * 65536)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise LrurunError(
                f"{runs}: the runs folder cannot be written: {error.strerror}",
                "make room or give permission there, or choose another place with --runs-dir",
            ) from None


def _recipe_of(config: dict[str, Any], grid: dict[str, Any]) -> Any:
    """A run's configuration without its seed and without what tuning varies."""
    from lrurun.config import RunConfig
    from lrurun.strict import convert

    table = canonical(convert(config, RunConfig, "a run of the ledger"))
    table.pop("seed")
    for path in grid:
        here = table
        *sections, name = path.split(".")
        for section in sections:
            here = here.get(section, {})
        here.pop(name, None)
    return table


def _cause(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def _fault(tail: str) -> LrurunError:
    for line in reversed(tail.splitlines()):
        with contextlib.suppress(ValueError, KeyError):
            table = json.loads(line)
            return LrurunError(table["error"], table["hint"])
    return LrurunError("a worker could not write its results", tail or None)

"""Workers on this machine: the executor of every command without `--on`, and of node supervisors.

It starts as many workers as there are queued runs and room for, writes the heartbeats of their attempts, ends those
that hang, and has the others recorded that have exited (`dead_workers`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import structs

from lrurun import kinds, machine
from lrurun.errors import LrurunError, UsageError
from lrurun.ledger import heartbeat, owner
from lrurun.ledger.values import Run
from lrurun.runner.executors import NodeJob
from lrurun.runner.executors.dead_workers import DeadWorkers
from lrurun.runner.preparation import check_devices
from lrurun.runner.processes import FAULT_EXIT, LocalWorker, error_of, finish
from lrurun.runner.selection import MAX_RETRIES, SelectedRuns
from lrurun.runner.signals import GRACE_SECONDS, Signals
from lrurun.runner.work import Needs, Work

LAST_RECORD_SECONDS = 600.0
"""How long a worker may take to write the record and the log of its last run, which may go to an object store."""


class LocalExecutor:
    """The supervisor is this process, and starts worker processes."""

    def __init__(self, job: NodeJob | None = None) -> None:
        self.job = job
        self.workers: list[LocalWorker] = []
        self._failed_starts = 0
        """Workers in a row that exited before they held a run."""
        self._dead = DeadWorkers()
        self._owner = owner.this_process()
        self._heartbeat_at = float("-inf")
        self._silence: dict[tuple[str, int], tuple[float, float]] = {}
        """(Run id, attempt) -> the time of the worker's last write, and the seconds watched since without another."""
        self._kept_waiting = 0
        """For about how many seconds this process has watched suspended workers while it waits for the ledger."""

    def check(self, *, detach: bool) -> None:
        if detach:
            raise UsageError("--detach: belongs to an executor of several machines", "name it, as in --on slurm")
        if self.job is not None and (self.job.settings or self.job.nodes):
            settings = ", ".join([*self.job.settings, *(["nodes"] if self.job.nodes else [])])
            raise UsageError(f"--on local: has no settings, found {settings}", "remove them, or name another executor")
        if self.job is not None:
            check_devices(self.job.devices, of_programs=self.job.of_programs)

    def script(self) -> str:
        raise UsageError(
            "--dry-run: the local executor submits nothing",
            "lrurun status shows what is done",
        )

    def start(self, runs: SelectedRuns) -> None:
        running = runs.in_state("running")
        self._write_heartbeats(runs, running)
        if queued := runs.queued():
            attempts = runs.ledger.newest_attempts([run.id for run in running], beside=self._owner)
            self._fill(runs.work, queued, {attempt.pid for attempt in attempts.values()})
        elif runs.work.on_node and not runs.is_tuning:
            self._dismiss()  # they finish their runs; other nodes have the rest

    def count(self) -> int:
        return len(self.workers)

    def ended(self, runs: SelectedRuns) -> Iterator[str]:
        """Records why workers exited.

        Raises:
            LrurunError: one reported a fault, or they exit again and again before they have held a run.
        """
        for worker in list(self.workers):
            code = worker.poll()
            if code is None:
                continue
            output = worker.tail()
            worker.close()
            self.workers.remove(worker)
            if code == FAULT_EXIT:
                raise error_of(output)
            if code in (0, 143):
                continue
            held = runs.attempts_of(structs.replace(self._owner, pid=worker.pid))
            # those that the process did not end itself
            broken = [attempt for attempt in held if attempt.ended_at is None or attempt.outcome == "exited"]
            text = self._dead.record(runs, code, output, broken)
            yield text
            self._failed_starts = 0 if held else self._failed_starts + 1
            if self._failed_starts > MAX_RETRIES:
                raise LrurunError(text, "lrurun doctor shows what this machine has")

    def stop(self, runs: SelectedRuns, signals: Signals, *, finished: bool) -> None:
        if finished:
            self._dismiss()
        else:
            for worker in self.workers:
                worker.terminate()
        grace = GRACE_SECONDS + runs.work.stop_seconds
        finish(self.workers, signals, LAST_RECORD_SECONDS if finished else grace)
        self.workers.clear()

    def end_suspended(self, runs: SelectedRuns, seconds: float) -> None:
        """Kills workers that are suspended while this process waits for the ledger, which one of them may hold.

        It is called about once a second, and the calls are counted, so that time in which this process is suspended too
        has no effect. A worker has as long as for a write.

        Args:
            seconds: how long this wait has lasted.
        """
        suspended = [worker for worker in self.workers if worker.is_suspended()]
        self._kept_waiting = self._kept_waiting + 1 if suspended and seconds >= 2 else 1
        if self._kept_waiting <= runs.hang_after_seconds:
            return
        for worker in suspended:
            runs.say(f"worker {worker.pid} is suspended, wrote nothing for {self._kept_waiting} s and was killed")
            worker.kill()

    def _fill(self, work: Work, queued: Counter[Needs], busy: set[int]) -> None:
        """Starts as many workers as there are queued runs and room for.

        Args:
            queued: needs -> how many queued runs have them.
            busy: processes that train a run.
        """
        for needs, count in sorted(queued.items()):
            matching = [worker for worker in self.workers if worker.needs == needs]
            idle = sum(worker.pid not in busy for worker in matching)
            while idle * work.pack < count and self._has_room(work, needs):
                self.workers.append(LocalWorker(work, needs=needs, devices=self._least_used(work, needs.devices)))
                idle += 1
            if not idle and not matching:
                for worker in self.workers:
                    if worker.pid not in busy and worker.needs not in queued:
                        worker.dismiss()  # makes room: no run needs what it has

    def _has_room(self, work: Work, needs: Needs) -> bool:
        """Whether there may be another worker with these needs; the first one there always may."""
        if work.jobs is not None or not self.workers:
            return len(self.workers) < (work.jobs or 1)
        of_programs = not _uses_jax(work)
        if devices := len(_accelerators(work)):  # which the workers may need different numbers of
            cores = machine.cores() if of_programs else float("inf")
            others = [worker.needs for worker in self.workers]
            has_devices = sum(other.devices for other in others) + needs.devices <= devices
            return has_devices and sum(other.threads for other in others) + needs.threads <= cores
        return len(self.workers) < machine.default_jobs(*needs, of_programs=of_programs)

    def _least_used(self, work: Work, count: int) -> list[str]:
        """The accelerators of a new worker, in order; none where there is no choice."""
        names = _accelerators(work)
        used = Counter(name for worker in self.workers for name in worker.devices)
        chosen = sorted(names, key=lambda name: used[name])[:count]
        return [name for name in names if name in chosen] if len(names) > 1 else []

    def _dismiss(self) -> None:
        """Lets idle workers exit."""
        for worker in self.workers:
            worker.dismiss()

    def _write_heartbeats(self, runs: SelectedRuns, running: Sequence[Run]) -> None:
        """Writes the heartbeats of the workers if they are due, because one that compiles may be unable to for minutes.

        A worker that itself writes nothing for longer than its run's `hang_after_seconds` is killed. Only time during
        which this process watches is counted: not while it is stopped, the machine sleeps or another process holds the
        ledger (see `end_suspended`). Changes of the clock have no effect.
        """
        now = time.monotonic()
        if now - self._heartbeat_at < heartbeat.HEARTBEAT_SECONDS:
            return
        watched, self._heartbeat_at = min(now - self._heartbeat_at, 2 * heartbeat.HEARTBEAT_SECONDS), now
        by_pid = {worker.pid: worker for worker in self.workers}
        heartbeats = []
        # one query, however many runs the ladder has on other nodes
        for run, attempt in runs.ledger.newest_attempts([run.id for run in running], beside=self._owner).items():
            if attempt.pid not in by_pid:
                continue
            heartbeats.append((run, attempt.n))
            seen, silence = self._silence.get((run, attempt.n), (attempt.seen_at, -watched))
            silence = silence + watched if seen == attempt.seen_at else 0.0
            self._silence[run, attempt.n] = attempt.seen_at, silence
            limit = runs.ledger.run(run).execution.hang_after_seconds
            if silence > limit:
                what = "its worker wrote nothing"
                if runs.work.kind == "program":
                    what = "the program has reported and printed nothing"
                runs.say(f"{run}: {what} for {limit:g} s and was killed")
                by_pid[attempt.pid].kill()
        if heartbeats:
            runs.ledger.record_heartbeats(heartbeats)


def _uses_jax(work: Work) -> bool:
    kind = kinds.of(work.kind)
    return kind is None or kind.uses_jax


def _accelerators(work: Work) -> list[str]:
    """The accelerators that workers may be given: of users' programs also those that jax here cannot use."""
    return machine.accelerators() if _uses_jax(work) else machine.nvidia_devices()

"""Workers on this machine: the executor of every command without `--executor`, and of node supervisors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from lrurun.errors import LrurunError, UsageError
from lrurun.ledger.values import Run
from lrurun.runner import reasons
from lrurun.runner.executors import NodeJob, Work
from lrurun.runner.heartbeat import Heartbeat
from lrurun.runner.pool import WorkerPool
from lrurun.runner.preparation import check_devices
from lrurun.runner.processes import FAULT_EXIT, Needs, error_of
from lrurun.runner.selection import RETRIES


class LocalExecutor:
    """The supervisor is this process, and starts worker processes."""

    def __init__(self, job: NodeJob | None = None) -> None:
        self.job = job
        self._pool: WorkerPool | None = None
        self._heartbeat: Heartbeat | None = None
        self._failed_starts = 0
        """Workers in a row that exited before they claimed a run."""

    def check(self, *, detach: bool) -> None:
        options = {
            "--detach": detach,
            "--nodes": self.job is not None and self.job.nodes is not None,
        }
        for option in (option for option, given in options.items() if given):
            raise UsageError(f"{option}: belongs to an executor of several machines", "name it with --executor")
        if self.job is not None and self.job.settings:
            raise UsageError(f"--executor local: has no settings, found {', '.join(self.job.settings)}", "remove them")
        if self.job is not None:
            check_devices(self.job.devices)

    def script(self) -> str:
        raise UsageError(
            "--dry-run: the local executor submits nothing", "lrurun plan shows what a command would train"
        )

    def start(self, work: Work, queued: Counter[Needs], running: Sequence[Run]) -> None:
        if self._pool is None or self._heartbeat is None:
            self._pool = WorkerPool(work.order, work.jobs, work.variables)
            self._heartbeat = Heartbeat(work.ledger, work.owner.host, work.say)
        self._heartbeat.update(running, self._pool.workers)
        if queued:
            here = work.ledger.newest_attempts([run.id for run in running], host=work.owner.host)
            self._pool.fill(queued, {attempt.pid for attempt in here.values()})
        elif work.on_node and not work.runs.is_tuning:
            self._pool.dismiss()  # they finish their runs; other nodes have the rest

    def count(self) -> int:
        return 0 if self._pool is None else len(self._pool.workers)

    def ended(self, work: Work) -> Iterator[str]:
        """Records why workers exited.

        Raises:
            LrurunError: one reported a fault, or they exit again and again before they have claimed a run.
        """
        for pid, code, output in [] if self._pool is None else self._pool.exited():
            if code == FAULT_EXIT:
                raise error_of(output)
            if code in (0, 143) or self._pool is None:
                continue
            claimed = work.runs.attempts_of(work.owner.host, pid)
            broken = [attempt for attempt in claimed if reasons.process_exited(attempt)]
            text = f"a worker ended with {self._pool.explain(code, output, work.places.runs, broken)}"
            for attempt in broken:
                work.ledger.event("died", text, run=attempt.run, attempt=attempt.n)
            yield text
            self._failed_starts = 0 if claimed else self._failed_starts + 1
            if self._failed_starts > RETRIES:
                raise LrurunError(text, "lrurun doctor shows what this machine has")

    def stop(self, work: Work, *, finished: bool) -> None:
        if self._pool is not None:
            if finished:
                self._pool.dismiss()
            else:
                self._pool.terminate()
            self._pool.wait(work.signals)
        self._pool = None

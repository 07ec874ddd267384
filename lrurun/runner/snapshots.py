"""The checkpoints of an attempt: on disk, and as rows of the ledger. Imports jax."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from lrurun.errors import LrurunError
from lrurun.ledger.values import Checkpoint
from lrurun.paths import inside
from lrurun.runner import logs, run_files
from lrurun.runner.attempt import ActiveAttempt, MachineFault
from lrurun.runner.recorder import LedgerThread
from lrurun.runner.storage import storage_for
from lrurun.training import checkpoint_verification, checkpoints
from lrurun.training.compiled import Compiled
from lrurun.training.events import Snapshot


class _Pending(NamedTuple):
    """A checkpoint that is being written."""

    row: Future[int]
    folder: Path
    result: Future[tuple[int, str]]
    """The size in bytes and the digest."""


class Snapshots:
    """Saves the snapshots of one attempt by a thread, and restores the newest of the attempts before.

    Rows of the ledger are written by `writes`: one that a checkpoint is being saved before its files, and that it is
    committed after they are on disk.
    """

    def __init__(self, attempt: ActiveAttempt, writes: LedgerThread) -> None:
        self.attempt, self.ledger, self.held, self.writes = attempt, attempt.ledger, attempt.held, writes
        self._storage = storage_for(attempt.runs)
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._pending: _Pending | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no checkpoint is being written."""
        return self._pending is None

    def save(self, snapshot: Snapshot) -> None:
        """Starts to write a snapshot; the one before is committed first. Its rows must be written or given already."""
        self.commit()
        relative = f"{self.attempt.id}/{self.held.attempt}/checkpoints/{snapshot.step}"
        row = self.writes.submit(lambda: self.ledger.begin_checkpoint(self.held, snapshot.step, relative))
        folder = self.attempt.runs / relative
        self._pending = _Pending(row, folder, self._thread.submit(self._save, row, folder, snapshot))

    def _save(self, row: Future[int], folder: Path, snapshot: Snapshot) -> tuple[int, str]:
        row.result()
        size_and_digest = checkpoints.save(folder, snapshot, self.held.run.fingerprint)
        self._storage.put(folder)
        return size_and_digest

    def poll(self) -> None:
        """Commits the checkpoint that was being written, if it is on disk."""
        if self._pending and self._pending.result.done():
            self.commit()

    def commit(self, *, keep: int = 2) -> None:
        """Waits for the checkpoint that is being written, if there is one; removes those before the last `keep`.

        Raises:
            MachineFault: it could not be written.
            Fenced, LedgerError: the ledger did not take the row that announces it.
        """
        if self._pending is None:
            return
        row, folder, result = self._pending
        self._pending = None
        number = row.result()
        try:
            size, digest = result.result()
        except Exception as error:
            logs.write("".join(traceback.format_exception(error)))
            reason = f"the checkpoint of step {folder.name} could not be saved: {error}".splitlines()[0]
            raise MachineFault(
                f"{folder}: {reason}",
                "free some space or change the permissions, or choose another --runs-dir; then repeat the command",
            ) from None
        self.writes.submit(lambda: self._committed(number, size, digest, keep))

    def _committed(self, row: int, size: int, digest: str, keep: int) -> None:
        self.ledger.commit_checkpoint(self.held, row, size, digest)
        self._remove([entry for entry in self.ledger.checkpoints(self.attempt.id)[keep:] if entry.id != row])
        run_files.keep_run(self.ledger, self.attempt.runs, self.attempt.id)

    def restore(self, compiled: Compiled) -> Snapshot | None:
        """The newest snapshot of this numerics version that ledger and disk agree on, or None; others are removed.

        Raises:
            MachineFault: the object store of the runs folder cannot be read, so that nothing is known of them.
        """
        entries = self.ledger.checkpoints(self.attempt.id)
        *before, current = self.ledger.attempts(self.attempt.id)
        other_numerics = {attempt.n: attempt.numerics for attempt in before if attempt.numerics != current.numerics}
        # The previous attempt may have been killed before it removed the checkpoints of those before it.
        relevant = {entry.attempt for entry in entries} | {attempt.n for attempt in before[-1:]}
        if versions := sorted({other_numerics[n] for n in relevant & other_numerics.keys()}):
            self.attempt.note(
                "restarted",
                f"starts again from step 0: it began with numerics version {', '.join(map(str, versions))}, "
                f"this lrurun has {current.numerics}",
            )
        usable = [entry for entry in entries if entry.state == "committed" and entry.attempt not in other_numerics]
        self._remove([entry for entry in entries if entry not in usable])
        for entry in usable:
            try:
                path = self._fetched(entry)
                checkpoint_verification.verify(path, entry.sha256)
                snapshot = checkpoints.restore(path, compiled, self.held.run.fingerprint)
            except MachineFault:
                raise
            except Exception as error:  # whatever Orbax raises
                reason = str(error).splitlines()[0]
                self.attempt.note("checkpoint", f"checkpoint of step {entry.step} not used: {reason}")
                self._remove([entry])
                continue
            self.attempt.report_changes()
            self.attempt.note("resumed", f"from step {snapshot.step}")
            return snapshot
        return None

    def _fetched(self, entry: Checkpoint) -> Path:
        """The folder of a checkpoint, copied from the object store where it is absent and there is one."""
        path = inside(self.attempt.runs, entry.path)
        try:
            return self._storage.fetch(path)
        except (OSError, LrurunError) as error:
            raise MachineFault(
                f"the checkpoint of step {entry.step} cannot be fetched, and is kept: {error}",
                "check the store, its credentials and the free space here; then repeat the command",
            ) from None

    def close(self) -> None:
        """Waits for the thread."""
        self._thread.shutdown()

    def _remove(self, entries: Sequence[Checkpoint]) -> None:
        for entry in entries:
            with contextlib.suppress(LrurunError):  # a path that leads out of the runs folder: not ours to remove
                path = inside(self.attempt.runs, entry.path)
                try:
                    self._storage.remove(path)
                except OSError as error:  # the run goes on; `ledger gc` removes what is left
                    logs.write(f"checkpoint of step {path.name} not removed: {error}")
        if entries:
            self.ledger.delete_checkpoints(self.held, [entry.id for entry in entries])

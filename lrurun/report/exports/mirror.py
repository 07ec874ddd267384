"""A folder of TensorBoard event files that follows runs while they train, from outside.

Each file has the rows before the run's last committed checkpoint, which no resume changes. A file is compared with what
the ledger says when the mirror starts, when an attempt begins and when a run is finished: what is missing is appended,
also the rest of a record that a killed mirror has left; a file with anything else is replaced.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from lrurun import files
from lrurun.errors import LrurunError
from lrurun.report.exports import check_parent, tensorboard

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import Run

MARK = ".lrurun-mirror"
"""The file by which a mirror's folder is known, and which the process that follows has locked."""
WAITING = ("queued", "running", "interrupted")
"""States of runs that may still change."""


@contextmanager
def opened(target: Path) -> Iterator[Path]:
    """The folder of a mirror, new or of an earlier one, for this process alone.

    Raises:
        LrurunError: it is another folder, in use by another mirror, or cannot be written.
    """
    tensorboard.check()
    mark = target / MARK
    if target.exists() and not mark.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise LrurunError(f"{target}: exists already, and is no mirror of a ledger", "name a new folder")
    check_parent(target)
    try:
        target.mkdir(exist_ok=True)
        with mark.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LrurunError(
                    f"{target}: another process mirrors runs into it", "end that one, or name another folder"
                ) from None
            yield target
    except OSError as error:
        raise LrurunError(f"{target}: {error.strerror or error}", "name another folder, or make room") from None


class Mirror:
    """Files of runs, which `update` brings up to date."""

    def __init__(self, ledger: Ledger, folder: Path) -> None:
        self._ledger, self._folder = ledger, folder
        self._files: dict[str, _File] = {}

    def update(self, ids: Callable[[], Sequence[str]]) -> bool:
        """Appends what has become final; whether a run may still change, or there is none yet."""
        wanted = ids()
        pending = [run_id for run_id in wanted if not (run_id in self._files and self._files[run_id].is_complete)]
        waiting = not wanted
        for run in self._ledger.each(pending, brief=False):
            if run.id not in self._files:
                self._files[run.id] = _File(tensorboard.place(self._folder, run))
            self._files[run.id].update(self._ledger, run)
            waiting = waiting or (run.state in WAITING and not run.superseded)
        return waiting

    @property
    def complete(self) -> int:
        """How many runs are finished, with all that they recorded in their files."""
        return sum(file.is_complete for file in self._files.values())


class _File:
    """The file of one run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._attempt: int | None = None
        """That of the rows in the file; None: not compared yet."""
        self._upto = 0
        self.is_complete = False

    def update(self, ledger: Ledger, run: Run) -> None:
        """Brings the file up to date with the ledger; `run` was read before."""
        begun = self._attempt is not None
        found = ledger.committed_curves(run.id, self._upto if begun else 0)
        fell_back = found.upto is not None and found.upto < self._upto
        if found.finished or fell_back or found.attempt != self._attempt:
            if begun:
                found = ledger.committed_curves(run.id)
            self._events = tensorboard.Events(run)
            whole = self._events.beginning() + self._events.points(found.curves)
            if found.finished:  # it may have finished since it was read
                whole += self._events.late(found.curves) + self._events.end(ledger.run(run.id))
            self._replace(whole)
        elif found.curves:
            self._append(self._events.points(found.curves))
        self._attempt = found.attempt
        self._upto = found.upto or 0
        self.is_complete = found.finished

    @staticmethod
    def _is_prefix(path: Path, whole: bytes) -> bool:
        return path.exists() and whole.startswith(path.read_bytes())

    def _replace(self, whole: bytes) -> None:
        """Makes the file these bytes; if it is the beginning of them, by appending the others."""
        if self._is_prefix(self._path, whole):
            self._append(whole[self._path.stat().st_size :])
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with files.atomic(self._path) as partial, partial.open("wb") as file:
            _flush(file, whole)

    def _append(self, more: bytes) -> None:
        if more:
            with self._path.open("ab") as file:
                _flush(file, more)


def _flush(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())

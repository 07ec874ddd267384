"""Folders of attempts that a merge brings: copied before its transaction, put into their places within it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from lrurun.errors import LrurunError
from lrurun.paths import inside

Wanted = tuple[str, int, int]
"""A run's id, the number of its attempt in the other ledger, and how many attempts it has in this one already."""


class AttemptFolders:
    """Copies of attempts' folders. A folder that both ledgers use stays as it is."""

    def __init__(self, runs: Path, other_runs: Path) -> None:
        self.runs, self.other_runs = runs, other_runs
        self._stamp = time.time_ns()
        self._copies: dict[Path, Path] = {}
        """Folder of the other ledger -> its copy, which has no place yet."""
        self._placed: list[tuple[Path, Path | None]] = []
        """What was put into its place, and where that which was there before is now."""

    def copy(self, wanted: Iterable[Wanted]) -> None:
        """Copies folders beside their places. Copying may take long: no transaction should wait for it.

        Raises:
            LrurunError: a file cannot be copied, or both ledgers have the same folder for two attempts.
        """
        for name, n, shift in wanted:
            source, folder = inside(self.other_runs, name, str(n)), inside(self.runs, name, str(n + shift))
            if not source.is_dir() or source in self._copies or _same(source, folder):
                continue
            if _same(self.runs, self.other_runs):
                raise LrurunError(
                    f"run {name}: both ledgers have attempts of it in the runs folder {self.runs}",
                    "copy the folder of the other ledger, and name the copy with --other-runs",
                )
            copy = folder.with_name(f"{folder.name}.new-{self._stamp}")
            self._copies[source] = copy
            try:
                shutil.copytree(source, copy, ignore=_not_copied)
            except OSError as error:
                raise LrurunError(
                    f"{folder}: {error.strerror or error}", "free some space, or change the permissions there"
                ) from None

    def place(self, wanted: Iterable[Wanted]) -> None:
        """Puts the copies into their places; what is there is renamed. Copies what `copy` did not know of."""
        wanted = list(wanted)
        self.copy(wanted)
        for name, n, shift in wanted:
            copy = self._copies.get(inside(self.other_runs, name, str(n)))
            if copy is None:
                continue
            folder, old = inside(self.runs, name, str(n + shift)), None
            try:
                if folder.exists():
                    old = folder.rename(folder.with_name(f"{folder.name}.old-{self._stamp}"))
                self._placed.append((folder, old))
                copy.rename(folder)
            except OSError as error:
                raise LrurunError(f"{folder}: {error.strerror or error}", "change the permissions there") from None

    def undo(self) -> None:
        """Restores what was there before."""
        for folder, old in reversed(self._placed):
            shutil.rmtree(folder, ignore_errors=True)
            if old is not None:
                old.rename(folder)

    def clean(self) -> None:
        """Removes copies that have no place."""
        for copy in self._copies.values():
            shutil.rmtree(copy, ignore_errors=True)


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _not_copied(folder: str, names: list[str]) -> list[str]:
    """Links, which could lead anywhere, and whatever is neither a file nor a folder."""
    paths = {name: os.path.join(folder, name) for name in names}
    return [n for n, path in paths.items() if os.path.islink(path) or not (os.path.isfile(path) or os.path.isdir(path))]

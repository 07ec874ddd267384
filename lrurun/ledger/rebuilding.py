"""A lost ledger is made again from the run files, ladder files and removal records in a runs folder.

Imported runs have no such files: they are imported again from where they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from lrurun import paths
from lrurun.errors import LrurunError, NotFoundError
from lrurun.ledger.database import implementation
from lrurun.ledger.database.schema import LACKING, SCHEMA
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.run_files import (
    LADDERS_FOLDER,
    REMOVALS_FOLDER,
    RUN_FILE,
    Head,
    LadderFile,
    RemovalRecord,
    RunFile,
    decode,
)
from lrurun.server import Location

R = TypeVar("R", bound=Head)


class Rebuilt(Struct, frozen=True, kw_only=True):
    """The contents of a ledger that was made from files."""

    runs: int
    ladders: int
    problems: list[str]
    """Files that are missing or cannot be read, one sentence each."""
    forgotten: list[str]
    """Files that remain of forgotten runs, which do not come back."""
    removals: int
    """The removals of runs that are on record, which training must not bring back."""


def rebuild(path: Location, runs: Path) -> Rebuilt:
    """Make the ledger at `path`, which has nothing yet, from the files in the folder `runs`; whole or not at all.

    Raises:
        LedgerError: there is a ledger with runs, or a part of a ledger that is gone.
        NotFoundError: there are no run files.
    """
    problems: list[str] = []
    run_paths = _sorted([runs / name / RUN_FILE for name in paths.run_folders(runs)], problems)
    ladder_paths = _sorted(sorted((runs / LADDERS_FOLDER).glob("*.json")), problems)
    if not run_paths:
        why = f"; {problems[0]}" if problems else ""
        imported = ", ".join(
            file.ladder.short_name
            for file in _read(ladder_paths, LadderFile, problems)
            if file.ladder.kind == "imported"
        )
        hint = "imported runs have no records: import them again with lrurun import"
        hint = f"{imported}: {hint}" if imported else f"name the folder with --runs-dir FOLDER; {hint}"
        raise NotFoundError(f"{runs}: no readable records of runs{why}", hint)

    def has_checkpoint(folder: str) -> bool:
        with contextlib.suppress(LrurunError, OSError):
            return paths.inside(runs, folder).is_dir()
        return False

    removal_paths = _sorted(sorted((runs / REMOVALS_FOLDER).glob("*.json")), problems)
    removal_records = _read(removal_paths, RemovalRecord, problems)
    run_files = _read(run_paths, RunFile, problems)
    ladder_files = _read(ladder_paths, LadderFile, problems)
    with implementation(path).making(path) as new, Ledger.open(new) as ledger:
        refused, of_forgotten = ledger.restore(run_files, ladder_files, removal_records, has_checkpoint)
        problems += [f"{runs / file}: left out: {why}" for file, why in refused.items()]
        problems += [
            f"{older}: not used: an older record of this run, which was trained again after its ledger was lost; "
            f"to use it, rename it {path.name}"
            for path in run_paths
            for older in sorted(path.parent.glob(f"{path.name}.*"))
        ]
        problems += [
            f"{instance.short_name}: imported runs have no records here: import them again with lrurun import"
            for instance in ledger.ladders()
            if instance.kind == "imported"
        ]
        return Rebuilt(
            runs=ledger.count_runs(),
            ladders=len(ledger.ladders()),
            problems=problems,
            forgotten=[str(runs / file) for file in of_forgotten],
            removals=sum(removal.kind == "forgotten" for removal in ledger.removals()),
        )


class _Run(Struct):
    id: str


class _Ladder(Struct):
    key: str


class _Removal(Struct):
    key: str


class _Named(Head, frozen=True, kw_only=True):
    """A run file, a ladder file or a removal record, of which only the name is read."""

    run: _Run | None = None
    ladder: _Ladder | None = None
    removal: _Removal | None = None

    @property
    def name(self) -> str:
        """The id of the run, or the key of the ladder instance or of the removal."""
        if self.run:
            return self.run.id
        return next((file.key for file in (self.ladder, self.removal) if file), "nothing")


def _sorted(files: list[Path], problems: list[str]) -> list[Path]:
    """The paths of the files that can be read, in the order of the ledger."""
    numbers = {}
    for path in files:
        name = path.parent.name if path.name == RUN_FILE else path.stem
        for head in _read([path], _Named, problems):
            if head.name != name:
                problems.append(f"{path}: left out: is the record of {head.name}")
            elif head.schema == SCHEMA or head.schema in LACKING:
                numbers[path] = head.number
            else:
                problems.append(f"{path}: left out: of a ledger of version {head.schema}, this lrurun reads {SCHEMA}")
    return sorted(numbers, key=lambda path: numbers[path])


def _read(files: list[Path], form: type[R], problems: list[str]) -> Iterator[R]:
    for path in files:
        try:
            content = decode(path.read_bytes(), form)
        except OSError as error:
            problems.append(f"{path}: left out: {error.strerror or error}")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            problems.append(f"{path}: left out: cannot be read: {error}")
        else:
            yield content

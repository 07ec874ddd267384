"""The files of plug-ins and programs that the runs of an instance used, if they are as they were."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from msgspec import Struct

from lrurun import plugins
from lrurun.instances import documents
from lrurun.runner.program_files import ProgramSnapshot, digest_at

if TYPE_CHECKING:
    from lrurun.instances.documents import InstanceDocuments
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance


class MissingFile(Struct, frozen=True, kw_only=True):
    """A file that runs used and that is not in a record."""

    name: str
    why: str


class CopiedFiles(Struct, frozen=True, kw_only=True):
    """The files of an instance in a record."""

    names: dict[str, str] = {}
    """Where each file was found -> its path in the folder of the record, which no other one has."""
    missing: tuple[MissingFile, ...] = ()

    def name_for(self, path: str) -> str:
        """The path of a file in the folder, or the name that it would have."""
        return self.names.get(path) or unused(Path(path).name, self.names.values())


class _File(Struct, frozen=True, kw_only=True):
    """A file that runs used."""

    name: str
    place: Path | None = None
    """Where it is as it was."""
    why: str = ""
    """Why it is missing."""
    stays: bool = False
    """Whether runs know it by this path from the folder of their recipe."""


def copy(ledger: Ledger, instance: LadderInstance, runs: Path, folder: Path) -> CopiedFiles:
    """Copies the files of an instance into a folder.

    Args:
        runs: the folder with the runs, which has snapshots of programs.

    Raises:
        OSError: they cannot be written.
    """
    recorded = documents.find(ledger, instance)
    if recorded is None:
        return CopiedFiles()
    files = [*_plug_ins(ledger, instance, recorded), *_of_program(recorded, runs)]
    names: dict[str, str] = {}
    for file in sorted(files, key=lambda file: not file.stays):
        if file.place is None or str(file.place) in names:  # one file may have several plug-ins
            continue
        name = names[str(file.place)] = unused(file.name, names.values())
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.place, target)
    return CopiedFiles(
        names=names, missing=tuple(MissingFile(name=file.name, why=file.why) for file in files if file.place is None)
    )


def unused(name: str, used: Iterable[str]) -> str:
    """A path that differs from all `used` ones, and is in none of them, on file systems that ignore case too.

    It is the name, or the same with a number, as in "model-2.py". Characters that lists of files and other systems
    cannot have are replaced.
    """
    name = re.sub(r"[\x00-\x1f\x7f\\\ud800-\udfff]", "_", name)
    taken = {part.casefold() for other in used for part in _with_folders(other)}
    files = {other.casefold() for other in used}
    stem, dot, ending = name.rpartition(".")
    first, last = (stem, f"{dot}{ending}") if stem and "/" not in ending else (name, "")
    for number in itertools.count(1):
        found = name if number == 1 else f"{first}-{number}{last}"
        inside = {part.casefold() for part in _with_folders(found)}
        if found.casefold() not in taken and not inside & files:
            return found
    raise AssertionError


def _with_folders(path: str) -> Iterator[str]:
    """A path, and the folders that it is in."""
    yield path
    yield from (str(parent) for parent in PurePosixPath(path).parents if parent.name)


def _plug_ins(ledger: Ledger, instance: LadderInstance, recorded: InstanceDocuments) -> Iterator[_File]:
    plug_ins = recorded.plug_ins
    if not plug_ins:
        return
    files = [Path(file) for file in documents.files_of_code(ledger, instance, recorded.ladder)]
    digests = {file: plugins.digest_of(file) for file in files}
    for (type_, name), digest in sorted(plug_ins.items()):
        found = next((file for file in files if digests[file] == digest), None)
        if found is not None:
            yield _File(name=found.name, place=found)
            continue
        why = "no file is as it was then" if any(digests.values()) else "its file is not here"
        yield _File(name=f"{type_} {name}", why=f"{why} (digest {digest[:19]})")


def _of_program(recorded: InstanceDocuments, runs: Path) -> Iterator[_File]:
    snapshot = ProgramSnapshot(runs, recorded.recipe.folder, recorded.files or {})
    for name, digest in sorted((recorded.files or {}).items()):
        places = [recorded.recipe.folder / name]
        places += [snapshot.path / name] if name in snapshot.digests else []
        stays = name in snapshot.digests
        shown = name if stays else PurePosixPath(name).name
        found = next((place for place in places if digest_at(place) == digest), None)
        changed = any(place.exists() for place in places)
        why = f"{'has changed since' if changed else 'is not here'} (digest {digest[:19]})"
        yield _File(name=shown, place=found, why=why, stays=stays)

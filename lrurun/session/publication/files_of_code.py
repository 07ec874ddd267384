"""The files of plug-ins and programs that the runs of an instance used, if they are as they were."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
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


def copy(ledger: Ledger, instance: LadderInstance, runs: Path, folder: Path) -> tuple[list[str], list[MissingFile]]:
    """Copies the files of an instance into a folder; their names there, and those that are missing.

    Args:
        runs: the folder with the runs, which has snapshots of programs.

    Raises:
        OSError: they cannot be written.
    """
    recorded = documents.find(ledger, instance)
    if recorded is None:
        return [], []
    copied: list[str] = []
    missing: list[MissingFile] = []
    for name, source in _sources(ledger, instance, recorded, runs):
        if isinstance(source, str):
            missing.append(MissingFile(name=name, why=source))
            continue
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        copied.append(name)
    return copied, missing


def _sources(
    ledger: Ledger, instance: LadderInstance, recorded: InstanceDocuments, runs: Path
) -> Iterator[tuple[str, Path | str]]:
    """The name of each file in a record, and the file that is as it was, or why there is none."""
    plug_ins = recorded.plug_ins
    if plug_ins:
        files = [Path(file) for file in documents.files_of_code(ledger, instance, recorded.ladder)]
        digests = {file: plugins.digest_of(file) for file in files}
        for (type_, name), digest in sorted(plug_ins.items()):
            found = next((file for file in files if digests[file] == digest), None)
            if found is not None:
                yield found.name, found
                continue
            why = "no file is as it was then" if any(digests.values()) else "its file is not here"
            yield f"{type_} {name}", f"{why} (digest {digest[:19]})"
    if recorded.files:
        snapshot = ProgramSnapshot(runs, recorded.recipe.folder, recorded.files)
        for name, digest in sorted(recorded.files.items()):
            places = [recorded.recipe.folder / name]
            places += [snapshot.path / name] if name in snapshot.digests else []
            inside = PurePosixPath(name)
            shown = name if not inside.is_absolute() and ".." not in inside.parts else inside.name
            found = next((place for place in places if digest_at(place) == digest), None)
            changed = any(place.exists() for place in places)
            why = f"{'has changed since' if changed else 'is not here'} (digest {digest[:19]})"
            yield shown, found or why

"""Which folders with event files are parts of one run: several writers make a folder for each of their parts."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath

from msgspec import Struct

from lrurun.trackers.tensorboard.content import Content
from lrurun.trackers.tensorboard.records import Messages, events

EVENTS = "tfevents"
"""What the names of event files have in them."""
_SPLITS = ("train", "validation", "val", "eval", "test")
"""The folders that Keras and Estimators make in that of a run, for the metrics of each split."""
_TIME = re.compile(r"\d{9,11}\.\d+")
"""The folder that `add_hparams` makes in that of a run: the time."""
_HERE = PurePosixPath(".")


class Part(Struct, frozen=True):
    """A folder with event files, and how its metrics are named in the run that it is part of."""

    folder: PurePosixPath
    """Relative to the root."""
    prefix: str = ""
    suffix: str = ""
    """What is before and after its tags."""

    def name(self, tag: str) -> str:
        """The name of a metric in the run."""
        return f"{self.prefix}{tag}{self.suffix}"

    def tags(self, names: Iterable[str]) -> list[str]:
        """The tags of these metrics of the run, of those that can be in this folder."""
        return [
            name.removeprefix(self.prefix).removesuffix(self.suffix)
            for name in names
            if name.startswith(self.prefix) and name.endswith(self.suffix)
        ]


def event_files(root: Path) -> dict[PurePosixPath, list[Path]]:
    """Folder relative to the root -> its event files.

    Raises:
        OSError: a folder cannot be read.
    """
    if root.is_file():
        return {_HERE: [root]}

    def refuse(error: OSError) -> None:
        raise error

    found = {}
    for folder, folders, files in os.walk(root, onerror=refuse):
        folders.sort()
        of_folder = [Path(folder, file) for file in sorted(files) if EVENTS in file]
        if of_folder:
            found[PurePosixPath(Path(folder).relative_to(root).as_posix())] = of_folder
    return found


def parts_of_runs(
    files: Mapping[PurePosixPath, list[Path]], peek: Callable[[PurePosixPath], Content]
) -> dict[PurePosixPath, list[Part]]:
    """Folder of a run -> the folders that it consists of, its own first.

    Args:
        peek: reads the beginning of the files of a folder.
    """
    owners: dict[PurePosixPath, tuple[PurePosixPath, str, str]] = {}
    sessions: dict[PurePosixPath, list[PurePosixPath]] = {}
    for folder in files:
        if folder.name in _SPLITS:
            owners[folder] = (folder.parent, f"{folder.name}/", "")
            continue
        above = next((parent for parent in folder.parents if parent in files and parent != folder), None)
        if above is None:
            continue
        content = peek(folder)
        if _TIME.fullmatch(folder.name) and content.has_session:
            sessions.setdefault(above, []).append(folder)
        elif (suffix := _of_add_scalars(folder.relative_to(above), list(content.newest))) is not None:
            owners[folder] = (above, "", f"/{suffix}")
    for above, of_folder in sessions.items():
        if len(of_folder) == 1:  # of several, each is a run, as where one writer compares settings
            owners[of_folder[0]] = (above, "", "")
    runs: dict[PurePosixPath, list[Part]] = {folder: [Part(folder)] for folder in files if folder not in owners}
    for folder in owners:
        top, prefix, suffix = folder, "", ""
        while top in owners:
            top, before, after = owners[top]
            prefix, suffix = before + prefix, suffix + after
        runs.setdefault(top, []).append(Part(folder, prefix, suffix))
    return runs


def in_order(
    runs: Mapping[PurePosixPath, list[Part]], files: Mapping[PurePosixPath, list[Path]], messages: Messages
) -> dict[PurePosixPath, list[Part]]:
    """The runs by the time of their first event; those without one are the last."""

    def start(folder: PurePosixPath) -> float:
        firsts = (next(events(file, messages, _ignore), None) for part in runs[folder] for file in files[part.folder])
        return min((first.wall_time for first in firsts if first is not None), default=math.inf)

    return {folder: runs[folder] for folder in sorted(runs, key=lambda folder: (start(folder), folder))}


def _ignore(_sentence: str) -> None:
    pass


def _of_add_scalars(folder: PurePosixPath, tags: list[str]) -> str | None:
    """The name of a curve if the folder has but this one, as `add_scalars("loss", {"train": ...})` makes it: in
    `loss_train` (PyTorch) or `loss/train` (tensorboardX); None if it is another folder."""
    if len(tags) != 1:
        return None
    for beginning in (f"{tags[0].replace('/', '_')}_", f"{tags[0]}/"):
        if str(folder).startswith(beginning):
            return str(folder).removeprefix(beginning)
    return None

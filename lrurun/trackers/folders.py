"""Folders in which each run has a folder of its own: how they are found, and how their files are read."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from lrurun.errors import UsageError, hint_for, plural
from lrurun.trackers import Source, TrackedRun, Value, documents, numbers

_SEEN_FIRST = 2_000
"""The most folders in which a source is looked for before it is known whose it is."""
Names = Collection[str]


class FolderReader:
    """Reads runs of a tracker that gives each a folder.

    A run's id is the path of its folder, from the source on. Links to folders are not followed, so that no run is there
    twice.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    looked_for: ClassVar[str]
    """What a folder of a run has, as in "metrics.csv", for errors."""
    reads_metrics_file: ClassVar[bool] = False
    """Whether metrics are in the file that `--metrics-file` names."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._notes: list[str] = []

    @classmethod
    def recognises(cls, source: Source) -> bool:
        """Whether one of the first folders is that of a run."""
        return is_seen(source, cls.is_run, cls.is_left_out)

    @classmethod
    @abstractmethod
    def is_run(cls, folder: Path, names: Names) -> bool:
        """Whether a folder, with files and folders of these names, is that of a run."""

    @classmethod
    def is_left_out(cls, name: str) -> bool:
        """Whether folders of this name are not looked into."""
        return name.startswith(".")

    def version(self) -> str:
        """Empty: the files have no version."""
        return ""

    def runs(self, curves: Collection[str] | None = ()) -> Iterator[TrackedRun]:
        """Yields the runs, by the names of their folders: "version_2" is before "version_10"."""
        self._notes = []
        root = folder_of(self.source)
        projects: set[str] = set()
        count = 0
        for folder in self._folders(root):
            count += 1
            run = self.read(folder, id_of(folder, root), curves)
            projects.add(run.project)
            if self.source.project in ("", run.project):
                yield run
        check_found(self.source, self.title, self.looked_for, count, projects)

    def _folders(self, root: Path) -> Iterator[Path]:
        links = 0

        def count_link(error: OSError | None) -> None:
            nonlocal links
            if error:
                raise documents.unreadable(Path(error.filename), error)
            links += 1

        yield from (folder for folder, is_run in walk(root, self.is_run, self.is_left_out, count_link) if is_run)
        if links:
            self._notes.append(f"{root}: {plural(links, 'link')} to other folders not followed")

    @abstractmethod
    def read(self, folder: Path, id: str, curves: Collection[str] | None) -> TrackedRun:
        """Reads the run in a folder. What it has to say of it goes to `note`."""

    def note(self, sentence: str) -> None:
        """Adds a sentence to the notes of this reading."""
        self._notes.append(sentence)

    def notes(self) -> Sequence[str]:
        """Sentences on what the last reading left out or had to interpret."""
        return list(self._notes)


def walk(
    root: Path,
    is_run: Callable[[Path, Names], bool],
    is_left_out: Callable[[str], bool],
    report: Callable[[OSError | None], None],
) -> Iterator[tuple[Path, bool]]:
    """The folders in and below `root`, in natural order, each with whether it is that of a run.

    Args:
        report: is called with an error of a folder, or with None for a link to a folder, which is not followed.
    """
    for place, folders, files in os.walk(root, onerror=report):
        folder = Path(place)
        yield folder, is_run(folder, {*folders, *files})
        real = [name for name in folders if not is_left_out(name)]
        for name in real:
            if (folder / name).is_symlink():
                report(None)
        folders[:] = sorted(real, key=natural)


def is_seen(source: Source, is_run: Callable[[Path, Names], bool], is_left_out: Callable[[str], bool]) -> bool:
    """Whether one of the first folders of a source is that of a run."""
    if source.frame is not None or not source.path.is_dir():
        return False

    def is_readable_run(folder: Path, names: Names) -> bool:
        with contextlib.suppress(OSError):
            return is_run(folder, names)
        return False

    found = walk(source.path, is_readable_run, is_left_out, lambda error: None)
    return any(is_run for _, is_run in itertools.islice(found, _SEEN_FIRST))


def natural(name: str) -> list[tuple[int, str]]:
    """The key of a name by which "version_2" is before "version_10"."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def id_of(folder: Path, root: Path) -> str:
    """The id of a run: the path of its folder from the source on; the name of the folder if it is the source."""
    return folder.resolve().name if folder == root else folder.relative_to(root).as_posix()


def relative(folder: Path, root: Path) -> PurePosixPath:
    """The path of a folder from the source on, which has no parts if it is the source."""
    return PurePosixPath(folder.relative_to(root).as_posix())


def settings_in(path: PurePosixPath) -> dict[str, Value]:
    """The settings that the names of folders say, of a run that has none of its own.

    A part as `norm=none`, or `norm=none,seed=1` as Hydra and Ray Tune name folders, has settings with their names;
    `seed0`, `seed_0` and `seed-0` are the seed 0. Any other part is the setting `folder.N`, where N is its place in the
    path: 1 for folders in the source.
    """
    settings: dict[str, Value] = {}
    for place, part in enumerate(path.parts, 1):
        pairs = [_PAIR.fullmatch(text) for text in part.split(",")]
        if all(pairs):
            settings |= {pair[1]: _value(pair[2]) for pair in pairs if pair}
        elif seed := _SEED.fullmatch(part):
            settings["seed"] = int(seed[1])
        else:
            settings[f"folder.{place}"] = part
    return settings


_PAIR = re.compile(r"\+{0,2}([A-Za-z_][\w./-]*)=(.*)")
"""A setting in the name of a folder; Hydra has plus signs before those that it adds."""
_SEED = re.compile(r"seed[_-]?(\d{1,18})", re.ASCII | re.IGNORECASE)


def _value(text: str) -> Value:
    """A number, or else the text."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            if math.isfinite(number := kind(text)) and "_" not in text:
                return number
    return text


def folder_of(source: Source) -> Path:
    """The folder of a source.

    Raises:
        UsageError: there is none.
    """
    path = source.path
    if not path.exists():
        raise UsageError(f"{path}: there is no such folder", "check the path")
    if not path.is_dir():
        raise UsageError(f"{path}: is a file, not a folder with runs", f"name its folder: {path.parent}")
    return path


def check_found(source: Source, title: str, looked_for: str, count: int, projects: Collection[str]) -> None:
    """Refuses a source without runs, or without any of the project asked for.

    Raises:
        UsageError: with what was looked for, or with the nearest project.
    """
    if not count:
        raise UsageError(
            f"{source.name}: has no run of {title}",
            f"a folder of a run has {looked_for}; folders of runs were looked for",
        )
    check_project(source, projects)


def check_project(source: Source, projects: Collection[str]) -> None:
    """Refuses a source of which no run is of the project asked for.

    Args:
        projects: those of its runs; empty for runs without one.

    Raises:
        UsageError: with the nearest project, and all of them.
    """
    if source.project and source.project not in projects:
        named = sorted({project for project in projects if project})
        hint = hint_for(source.project, named, "projects") if named else "its runs are of no project: leave it out"
        raise UsageError(f"{source.name}: has no project {source.project!r}", hint)


def items_in(folder: Path, name: str) -> list[float] | None:
    """The per-item results in the file of this name in the folder of a run; None if there is no such file.

    It is a list in JSON, a one-dimensional array in .npy, or a text with a number in each line.

    Raises:
        UsageError: it is none of these.
    """
    path = folder / name
    if not name or not path.is_file():
        return None
    if path.suffix == ".npy":
        try:
            with documents.reading(path):
                array = np.load(path, allow_pickle=False)
        except ValueError as error:
            raise UsageError(f"{path}: is no array of numbers: {error}", "save one by numpy.save") from None
        return item_results(array.tolist() if array.ndim == 1 else [array.tolist()], path)
    content = documents.text(path)
    try:
        values = json.loads(content) if content.lstrip()[:1] == "[" else [json.loads(line) for line in content.split()]
    except (ValueError, RecursionError):
        raise UsageError(f"{path}: is no list of numbers", "write a list in JSON, or a number in each line") from None
    return item_results(values, path)


def item_results(values: list[Any], path: Path) -> list[float]:
    """Per-item results as numbers; true and false are 1 and 0.

    Raises:
        UsageError: one is no number.
    """
    for index, value in enumerate(values):
        if not isinstance(value, int | float):
            shown = json.dumps(value, default=str)[:40]
            raise UsageError(f"{path}: item {index} is {shown}, expected a number", "write a number for each test item")
    return numbers.results(values) or []

"""Runs of TensorBoard: a folder for each, with event files."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath

from msgspec import structs

from lrurun.errors import UsageError, plural
from lrurun.trackers import Source, State, TrackedRun, documents, flat, yaml
from lrurun.trackers.folders import check_project, is_seen, settings_in
from lrurun.trackers.lrurun_exports import ExportedRuns, of_event_file
from lrurun.trackers.tensorboard.content import Content, read
from lrurun.trackers.tensorboard.folders import EVENTS, event_files, in_order, parts_of_runs
from lrurun.trackers.tensorboard.records import messages

_HPARAMS = "hparams.yaml"
"""The settings that Lightning writes beside its event files."""
_PEEK = 50
"""How many events of each file say what a folder is."""
_STATES: dict[str, State] = {"failure": "crashed", "running": "running"}


class TensorBoardReader:
    """Reads all scalars of event files below a folder. The id of a run is the path of its folder from there.

    Nothing is thinned out. Points are in the order of time; those that a writer with `purge_step` made void are left
    out, as TensorBoard leaves them out. Settings are those of the hparams plugin, or of Lightning's `hparams.yaml`;
    without both, those in the names of folders.
    """

    name = "tensorboard"
    title = "TensorBoard"

    def __init__(self, source: Source) -> None:
        self._source = source
        self._root = source.path
        self._notes: list[str] = []

    @classmethod
    def recognises(cls, source: Source) -> bool:
        """Whether this is an event file, or one of the first folders has one."""
        path = source.path
        with contextlib.suppress(OSError):
            if path.is_file():
                return EVENTS in path.name
        return is_seen(source, lambda _, names: any(EVENTS in name for name in names), lambda _: False)

    def version(self) -> str:
        """The package that has the form of event files."""
        return messages(self._source.name).version

    def runs(self, curves: Collection[str] | None = ()) -> Iterator[TrackedRun]:
        """Yields the runs in the order in which they started."""
        check_project(self._source, ())  # it has none
        loaded = messages(self._source.name)
        notes: dict[str, None] = {}

        def read_folder(folder: PurePosixPath, wanted: Collection[str] | None, most: int | None = None) -> Content:
            return read(files[folder], loaded, wanted, lambda note: notes.setdefault(note), most)

        exports = ExportedRuns()
        void = joined = 0
        try:
            files = self._files()
            runs = in_order(parts_of_runs(files, lambda folder: read_folder(folder, (), _PEEK)), files, loaded)
            above = {parent for folder in runs for parent in folder.parents if parent != folder}
            for folder, parts in runs.items():
                content = Content()
                for part in parts:
                    wanted = None if curves is None else part.tags(curves)
                    content.add(read_folder(part.folder, wanted), part.name)
                joined += sum(part.folder != folder for part in parts)
                void += content.void
                run = self._run(folder, content)
                if run.last or run.settings or folder not in above:
                    run = structs.replace(run, settings=run.settings or settings_in(folder))
                    yield from exports.read(run, of_event_file(content.texts))
            yield from exports.waiting()
        except OSError as error:
            raise documents.unreadable(error.filename or self._root, error) from None
        self._notes = list(notes)
        if joined:
            self._notes.append(f"{plural(joined, 'folder')} read as parts of the run in the folder above")
        if void:
            self._notes.append(f"{plural(void, 'point')} left out that became void when a run began again")
        self._notes += exports.sentences()
        self._notes.append("numbers have 32 bits, about 7 digits")

    def notes(self) -> Sequence[str]:
        """What was left out or joined."""
        return self._notes

    def _files(self) -> dict[PurePosixPath, list[Path]]:
        if not self._root.exists():
            raise UsageError(
                f"{self._root}: there is no such folder", "name the folder that `tensorboard --logdir` has"
            )
        if files := event_files(self._root):
            return files
        raise UsageError(
            f"{self._root}: has no event files, whose names have tfevents in them",
            "name the folder that `tensorboard --logdir` has",
        )

    def _run(self, folder: PurePosixPath, content: Content) -> TrackedRun:
        own = self._root / folder if self._root.is_dir() else self._root.parent
        written = flat(yaml.table(own / _HPARAMS)) if (own / _HPARAMS).is_file() else {}
        # Lightning gives the same settings to the plugin, with slashes for dots, and other types as text.
        others = {name: value for name, value in content.settings.items() if name.replace("/", ".") not in written}
        return TrackedRun(
            id=str(folder) if folder.parts else self._root.resolve().name, settings={**written, **others},
            state=_STATES.get(content.status, "finished"), state_text=content.status,
            last={tag: point[2] for tag, point in content.newest.items()},
            last_step=content.greatest_step or None, curves=content.curves(), started_at=content.first_time,
            ended_at=content.last_time, place=str(own if self._root.is_dir() else self._root),
        )  # fmt: skip

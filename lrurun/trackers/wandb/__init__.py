"""Weights & Biases: folders of runs as the package writes them, offline or online, and files that were downloaded.

* A run with a `.wandb` file is read from it: the whole history. Others are read from `config.yaml` and
  `wandb-summary.json`, which have last values only; they do not say how a run ended, so it counts as finished.
* A run is finished if its exit record has code 0, crashed with any other code, and running without one: then it still
  runs, or was killed.
* Last values are those of the history. The summary has those of metrics that the history does not have, and those that
  `define_metric` keeps, as `val/acc.max`; where it says something else than the history, a note says so.
* Names of nested keys have dots. A literal key `n.x` beside `{"n": {"x": ...}}` is `"n.x"`, with quotes.
* Several folders of one run, which was resumed, are one run, in the order of their times.
* Texts, media and keys that begin with an underscore are no metrics.
"""

from __future__ import annotations

import contextlib
import json
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from lrurun.errors import UsageError, listed, plural
from lrurun.trackers import Curve, Source, State, TrackedRun, documents, numbers, plain, yaml
from lrurun.trackers.folders import Names, check_project, is_seen, items_in, walk
from lrurun.trackers.wandb import nested
from lrurun.trackers.wandb.records import MAGIC, RecordFile

_FOLDER = re.compile(r"(?:offline-)?run-(\d{8}_\d{6})-(.+)")
_CONFIG, _SUMMARY, _METADATA = "config.yaml", "wandb-summary.json", "wandb-metadata.json"


class WandbReader:
    """Reads the folders that wandb writes."""

    name = "wandb"
    title = "Weights & Biases"

    def __init__(self, source: Source) -> None:
        self.source = source
        self._places: dict[str, list[str]] = {}
        """What there is to say -> the places where it was seen."""
        self._other_projects: dict[str, int] = {}
        self._quoted: set[str] = set()

    @classmethod
    def recognises(cls, source: Source) -> bool:
        path = source.path
        with contextlib.suppress(OSError):
            if path.is_file():
                with path.open("rb") as file:
                    return file.read(len(MAGIC)) == MAGIC
            if source.frame is None and _nearest(path):
                return True
        return is_seen(source, _is_run, _is_left_out)

    def version(self) -> str:
        return ""

    def runs(self, curves: Collection[str] | None = ()) -> Iterator[TrackedRun]:
        self._places, self._other_projects, self._quoted = {}, {}, set()
        for folders in self._grouped():
            run = _Run(folders[0])
            for folder in folders:
                run.read(folder, self.source.items, curves)
            if len(folders) > 1:
                self._note("was resumed, and has several folders, which are read as one run", str(folders[0].place))
            made = run.made()
            for note in run.notes:
                self._note(note, str(run.place))
            self._quoted |= run.quoted
            yield made

    def notes(self) -> Sequence[str]:
        notes = [f"{listed(places)}: {note}" for note, places in self._places.items()]
        for project, count in self._other_projects.items():
            of_project = f"of the project {project!r}" if project else "without a project"
            notes.append(f"{plural(count, 'run')} {of_project} left out")
        if self._quoted:
            names = listed(sorted(self._quoted))
            notes.append(f"keys with dots that nested ones are named like are written in quotes: {names}")
        return notes

    def _note(self, note: str, place: str) -> None:
        self._places.setdefault(note, []).append(place)

    def _grouped(self) -> list[list[_Folder]]:
        """The folders of each run, in the order of their times.

        Raises:
            UsageError: there is none.
            LrurunError: one cannot be read.
        """
        path = self.source.path
        try:
            folders = [_Folder(path)] if path.is_file() else [_Folder(folder) for folder in _run_folders(path)]
        except OSError as error:
            raise documents.unreadable(path, error) from None
        if not folders:
            found = "there are no runs of wandb in this folder" if path.exists() else "there is no such file or folder"
            hint = "name a folder `wandb`, one of its folders run-..., or a file run-ID.wandb"
            raise UsageError(f"{path}: {found}", hint)
        groups: dict[tuple[str, str], list[_Folder]] = {}
        for folder in folders:
            folder.identify()
            if self.source.project not in ("", folder.project):
                self._other_projects[folder.project] = self._other_projects.get(folder.project, 0) + 1
            else:
                groups.setdefault((folder.project, folder.id), []).append(folder)
        check_project(self.source, {*self._other_projects, *(project for project, _ in groups)})
        return list(groups.values())


def _run_folders(path: Path) -> list[Path]:
    """The folders of runs at a path, by their times: itself, those in it or in its folder `wandb`, or those below it,
    as where each job of a sweep has a folder `wandb`. Links are not followed."""
    if found := _nearest(path):
        return found

    def refuse(error: OSError | None) -> None:
        if error:
            raise error

    if not path.exists():
        return []
    return sorted((folder for folder, is_run in walk(path, _is_run, _is_left_out, refuse) if is_run), key=_order)


def _nearest(path: Path) -> list[Path]:
    """The folders of runs where the package makes them, which need no search."""
    if _is_run(path):
        return [path]
    for parent in (path, path / "wandb", path / ".wandb"):
        if parent.is_dir():
            found = [folder for folder in parent.iterdir() if not folder.is_symlink() and _is_run(folder)]
            if found:
                return sorted(found, key=_order)
    return []


def _is_run(path: Path, _names: Names = ()) -> bool:
    """Whether a folder is that of a run. Other tools write files called config.yaml too, without W&B's own key."""
    if not path.is_dir():
        return False
    own, downloaded = path / "files", (_SUMMARY, _METADATA)
    if any(path.glob("run-*.wandb")) or any((own / name).is_file() for name in downloaded):
        return True
    return any((path / name).is_file() for name in downloaded) or _is_config(own / _CONFIG)


def _is_config(path: Path) -> bool:
    """Whether a file has settings as W&B writes them, with what it records itself."""
    return path.is_file() and re.search(rb"^(_wandb|wandb_version):", path.read_bytes(), re.MULTILINE) is not None


def _is_left_out(name: str) -> bool:
    """Whether folders of this name are not looked into: in the folder of a run, `files` looks like a downloaded run."""
    return name in ("files", "logs", "tmp") or (name.startswith(".") and name != ".wandb")


def _order(folder: Path) -> tuple[str, str]:
    match = _FOLDER.fullmatch(folder.name)
    return (match[1] if match else "", folder.name)


class _Folder:
    """A folder with the files of a run, or a `.wandb` file alone."""

    def __init__(self, path: Path) -> None:
        self.place = path
        if path.is_file():
            self.log: Path | None = path
            self.files: Path | None = None
        else:
            self.log = min(path.glob("run-*.wandb"), default=None)
            self.files = path / "files" if (path / "files").is_dir() else path
        match = _FOLDER.fullmatch(path.name)
        self.id = match[2] if match else path.name
        if self.log is not None:
            self.id = self.log.stem.removeprefix("run-")
        self.project = ""

    def identify(self) -> None:
        """Reads the id and the project of the run, if they are recorded."""
        if self.log is None:
            return
        try:
            for record in RecordFile(self.log):
                if record.HasField("run"):
                    self.id, self.project = record.run.run_id or self.id, record.run.project
                    return
        except OSError as error:
            raise documents.unreadable(self.log, error) from None

    def json(self, name: str) -> Any:
        """The value in a JSON file among those of the run; None if there is none, or an empty one.

        Raises:
            UsageError: it is not JSON.
            LrurunError: it cannot be read.
        """
        path = None if self.files is None else self.files / name
        if path is None or not path.is_file() or not documents.text(path).strip():
            return None
        return documents.json_value(path)


class _Run:
    """What is known of a run, which grows as its files are read."""

    def __init__(self, folder: _Folder) -> None:
        self.id, self.project, self.place = folder.id, folder.project, folder.place
        self.name = self.code = ""
        self.state: State = "running"
        self.state_text = ""
        self.config: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}
        self._changes: dict[nested.Path, str | None] = {}
        """Path -> the text of a value of the summary, None if it was removed; in the order of the last changes."""
        self.last: dict[nested.Path, float] = {}
        self.last_step: int | None = None
        self.points: dict[nested.Path, tuple[array[int], array[float]]] = {}
        self._is_kept: dict[nested.Path, bool] = {}
        """Whether the curve of a metric was asked for."""
        self.items: list[float] | None = None
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.quoted: set[str] = set()
        """Names with quotes, because others are the same without them."""
        self.notes: list[str] = []

    def read(self, folder: _Folder, items: str, curves: Collection[str] | None) -> None:
        """Adds what is in a folder.

        Raises:
            UsageError: a file is not what its name says.
            LrurunError: it cannot be read.
        """
        self.state, self.state_text = "running", "no exit record"
        has_run = folder.log is not None and self._read_log(folder.log, items, curves)
        if not has_run and folder.files is not None:
            self._read_files(folder, items)
        metadata = folder.json(_METADATA)
        if isinstance(metadata, dict):
            git = metadata.get("git")
            self.code = self.code or (str(git.get("commit") or "") if isinstance(git, dict) else "")
            if self.started_at is None:
                self.started_at = _seconds(metadata.get("startedAt"))
        if folder.files is not None and (listed := items_in(folder.files, items)) is not None:
            self.items = listed

    # .wandb files

    def _read_log(self, path: Path, items: str, curves: Collection[str] | None) -> bool:
        """Reads a `.wandb` file; returns whether it has the run, which it has after 15 seconds or so."""
        file = RecordFile(path)
        has_run = False
        self._changes = {}
        try:
            for record in file:
                if record.HasField("history"):
                    self._add_row(record.history, items, curves)
                elif record.HasField("summary"):
                    self._add_summary(record.summary)
                elif record.HasField("config"):
                    _change(self.config, record.config)
                elif record.HasField("run"):
                    has_run = True
                    self._add_run(record.run)
                elif record.HasField("environment"):
                    self.code = record.environment.git.commit or self.code
                elif record.HasField("exit"):
                    code = record.exit.exit_code
                    self.state, self.state_text = "finished" if code == 0 else "crashed", f"exit code {code}"
        except OSError as error:
            raise documents.unreadable(path, error) from None
        for path_of_value, text in self._changes.items():
            if text is None:
                nested.remove(self.summary, path_of_value)
            else:
                nested.put(self.summary, path_of_value, _json(text))
        if file.fault:
            self.notes.append(f"its .wandb file {file.fault}: what comes before is read")
        if not has_run:
            self.notes.append("its .wandb file has no records yet: the run has just begun, or was killed soon")
        return has_run

    def _add_summary(self, changes: Any) -> None:
        """Keeps the last change of each value: each row of the history changes the summary too."""
        for item in changes.update:
            path = _path(item)
            self._changes.pop(path, None)
            self._changes[path] = item.value_json
        for item in changes.remove:
            path = _path(item)
            self._changes.pop(path, None)
            self._changes[path] = None

    def _add_run(self, run: Any) -> None:
        self.id, self.project = run.run_id or self.id, run.project or self.project
        self.name = run.display_name or self.name
        self.code = run.git.commit or self.code
        _change(self.config, run.config)
        if self.started_at is None and run.HasField("start_time"):
            self.started_at = run.start_time.seconds + run.start_time.nanos / 1e9

    def _add_row(self, row: Any, items: str, curves: Collection[str] | None) -> None:
        step = row.step.num if row.HasField("step") else None
        values: list[tuple[nested.Path, float]] = []
        for item in row.item:
            path, text = _path(item), item.value_json
            if path == ("_step",):
                step = numbers.step(_json(text))
            elif path == ("_timestamp",):
                self.ended_at = _finite(_json(text))
            elif not path[0].startswith("_"):
                try:
                    values.append((path, float(text)))  # JSON of numbers, also NaN and Infinity
                except ValueError:
                    self._collect(values, path, _json(text), items)
        if step is not None:
            self.last_step = step if self.last_step is None else max(step, self.last_step)
        self.last.update(values)
        if step is None:
            return
        for path, value in values:
            if path not in self._is_kept:
                self._is_kept[path] = curves is None or bool({".".join(path), nested.quoted(path)} & set(curves))
                if self._is_kept[path]:
                    self.points[path] = array("q"), array("d")
            if self._is_kept[path]:
                steps, points = self.points[path]
                steps.append(step)
                points.append(value)

    def _collect(self, values: list[tuple[nested.Path, float]], path: nested.Path, value: Any, items: str) -> None:
        """Adds the numbers in a table; takes a list of results of items."""
        if isinstance(value, dict):
            inner = nested.leaves({path[-1]: value}, path[:-1])
            values += [
                (longer, number)
                for longer, leaf in inner
                if _is_number(leaf) and (number := numbers.number(leaf)) is not None
            ]
        elif isinstance(value, list) and ".".join(path) == items:
            self.items = numbers.results(value) or self.items

    # Files beside it

    def _read_files(self, folder: _Folder, items: str) -> None:
        config, summary = _config(folder), folder.json(_SUMMARY)
        if config is None and summary is None:
            return
        for key, value in (config or {}).items():
            nested.put(self.config, (key,), value)
        if isinstance(summary, dict):
            self.summary = summary
            if (step := numbers.step(summary.get("_step"))) is not None:
                self.last_step = step
            if (time := _finite(summary.get("_timestamp"))) is not None:
                self.ended_at = time
            listed = summary.get(items) if items else None
            self.items = numbers.results(listed) if isinstance(listed, list) else self.items
        if folder.log is None:
            self.state, self.state_text = "finished", ""
            self.notes.append("has no .wandb file, which would say how the run ended: it counts as finished")

    # The run

    def made(self) -> TrackedRun:
        """The run as it is known now."""
        last = self._last()
        metrics = self._names(last)
        config = {path: value for path, value in nested.leaves(self.config) if path[0] != "_wandb"}
        settings = self._names(config)
        return TrackedRun(
            id=self.id,
            project=self.project,
            name="" if self.name == self.id else self.name,
            settings={settings[path]: plain(value) for path, value in config.items()},
            state=self.state,
            state_text=self.state_text,
            last={metrics[path]: value for path, value in last.items()},
            last_step=self.last_step,
            curves={
                metrics[path]: Curve(np.array(steps, np.int64), np.array(values, np.float64))
                for path, (steps, values) in self.points.items()
            },
            items=self.items,
            started_at=self.started_at,
            ended_at=self.ended_at,
            code=self.code,
            place=str(self.place),
        )

    def _names(self, paths: Iterable[nested.Path]) -> dict[nested.Path, str]:
        names = nested.names(paths)
        self.quoted |= {name for path, name in names.items() if name != ".".join(path)}
        return names

    def _last(self) -> dict[nested.Path, float]:
        """Last values of the history, and those of the summary that it does not have."""
        last, other = dict(self.last), []
        for path, value in nested.leaves(self.summary):
            if path[0].startswith("_") or not _is_number(value) or (number := numbers.number(value)) is None:
                continue
            if path not in last:
                last[path] = number
            elif last[path] != number and not (np.isnan(last[path]) and np.isnan(number)):
                other.append(".".join(path))
        if other:
            names = listed(sorted(other))
            self.notes.append(f"the summary has another value than the end of the history, which counts: {names}")
        return last


def _path(item: Any) -> nested.Path:
    keys = item.nested_key
    return (keys[0],) if len(keys) == 1 else tuple(keys) or (item.key,)


def _change(table: dict[str, Any], changes: Any) -> None:
    for item in changes.update:
        nested.put(table, _path(item), _json(item.value_json))
    for item in changes.remove:
        nested.remove(table, _path(item))


def _json(text: str) -> Any:
    """The value of a text in JSON; the text itself if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _finite(value: Any) -> float | None:
    """A time in seconds; None if it is none."""
    time = numbers.number(value)
    return time if time is not None and np.isfinite(time) else None


def _seconds(text: Any) -> float | None:
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return time.timestamp() if time.tzinfo else datetime.fromisoformat(f"{text}+00:00").timestamp()


def _config(folder: _Folder) -> dict[str, Any] | None:
    """The values in `config.yaml`, in which each key has a table with `value`; None if there is no file."""
    path = None if folder.files is None else folder.files / _CONFIG
    if path is None or not path.is_file():
        return None
    return {
        key: entry["value"] if isinstance(entry, dict) and "value" in entry else entry
        for key, entry in yaml.table(path, "1.2").items()
        if key not in ("_wandb", "wandb_version")
    }

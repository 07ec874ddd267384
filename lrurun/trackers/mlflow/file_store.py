"""A store of MLflow in a folder `mlruns`, read as files: MLflow itself refuses such stores by now."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lrurun.errors import UsageError
from lrurun.trackers import Curve, documents
from lrurun.trackers.mlflow.stores import PARENT, Last, StoredRun, ends, seconds

_META = "meta.yaml"
_STATUS = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
"""The numbers of MLflow's states."""


def is_store(path: Path) -> bool:
    """Whether a folder has experiments; MLflow also makes folders `mlruns` for artifacts of runs in a database."""
    return any(path.glob(f"*/{_META}"))


class FileStore:
    """A folder with a folder for each experiment, in which each run has one."""

    version = "files"

    def __init__(self, path: Path, name: str) -> None:
        """
        Args:
            name: what messages call it.

        Raises:
            UsageError: it is no store.
            LrurunError: it cannot be read.
        """
        self._path, self._name = path, name
        self._sentences: list[str] = []
        self._runs: dict[Path, dict[str, Any]] = {}
        if not path.is_dir():
            raise UsageError(f"{name}: there is no such folder", "name the folder mlruns")
        try:
            self._experiments = {
                str(table["experiment_id"]): (folder, table)
                for folder in sorted(path.iterdir())
                if (folder / _META).is_file() and "experiment_id" in (table := self._table(folder / _META))
            }
        except OSError as error:
            raise documents.unreadable(error.filename or self._name, error) from None
        if not self._experiments:
            raise UsageError(f"{name}: is no store of MLflow: no folder in it has a {_META}", "name the folder mlruns")

    def close(self) -> None:
        pass

    def sentences(self) -> list[str]:
        return self._sentences

    def experiments(self) -> dict[str, str]:
        return {
            number: str(table.get("name", number))
            for number, (_, table) in self._experiments.items()
            if table.get("lifecycle_stage") != "deleted"
        }

    def parents(self, experiments: Collection[str]) -> dict[str, str]:
        tags = {folder.name: folder / "tags" / PARENT for folder in self._folders(experiments)}
        return {run: self._text(file) for run, file in tags.items() if file.is_file()}

    def deleted(self, experiments: Collection[str]) -> int:
        return sum(table.get("lifecycle_stage") == "deleted" for table in self._tables(experiments).values())

    def runs(self, experiments: Collection[str]) -> Iterator[StoredRun]:
        tables = self._tables(experiments)
        for folder, table in sorted(tables.items(), key=lambda entry: (entry[1].get("start_time") or 0, entry[0].name)):
            if table.get("lifecycle_stage") != "deleted":
                tags = self._texts(folder / "tags")
                status = table.get("status", "")
                yield StoredRun(
                    id=folder.name, experiment=str(table["experiment_id"]), tags=tags, place=str(folder),
                    name=table.get("run_name") or tags.get("mlflow.runName", ""),
                    status=_STATUS.get(status, str(status)),
                    started_at=seconds(table.get("start_time")), ended_at=seconds(table.get("end_time")),
                    parameters=self._texts(folder / "params"), data=self._data(folder),
                )  # fmt: skip

    def parameters(self, run: str) -> dict[str, str]:
        folders = [folder for folder in self._folders(self._experiments) if folder.name == run]
        return self._texts(folders[0] / "params") if folders else {}

    def metrics(self, run: StoredRun, names: Collection[str] | None) -> tuple[dict[str, Last], dict[str, Curve]]:
        folder = Path(run.place) / "metrics"
        files = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*")) if file.is_file()}
        curves = {name: curve for name, file in files.items() if (curve := self._curve(file)) is not None}
        return ends(curves), {name: curve for name, curve in curves.items() if names is None or name in names}

    def _curve(self, file: Path) -> Curve | None:
        """The points of a metric by time; lines are `time value`, `time value step`, or these with a data set."""
        points = []
        lines = self._text(file).splitlines()
        for number, line in enumerate(lines, 1):
            words = line.split(" ")
            try:
                points.append((int(words[0]), float(words[1]), int(words[2]) if len(words) > 2 else 0))
            except (ValueError, IndexError):
                if number < len(lines):
                    raise UsageError(
                        f"{file}: line {number}: expected a time, a value and a step, found {line[:60]!r}",
                        "remove the line, or the run",
                    ) from None
                self._sentences.append(f"{file}: the last line is half-written, and was left out: {line[:60]!r}")
        points.sort(key=lambda point: point[0])
        if not points:
            return None
        _, values, steps = zip(*points, strict=True)
        return Curve(np.array(steps, np.int64), np.array(values, np.float64))

    def _data(self, folder: Path) -> str:
        """The data sets that are inputs of a run."""
        found = []
        for file in sorted(folder.glob(f"inputs/*/{_META}")):
            table = self._table(file)
            about = folder.parent / "datasets" / str(table.get("source_id")) / _META
            if table.get("source_type") == "DATASET" and about.is_file():
                dataset = self._table(about)
                found.append(f"{dataset.get('name')} {dataset.get('digest')}")
        return ", ".join(sorted(found))

    def _folders(self, experiments: Collection[str]) -> list[Path]:
        """The folders of runs."""
        try:
            return [
                folder
                for number in experiments
                for folder in sorted(self._experiments[number][0].iterdir())
                if (folder / _META).is_file()
            ]
        except OSError as error:
            raise documents.unreadable(error.filename or self._name, error) from None

    def _tables(self, experiments: Collection[str]) -> dict[Path, dict[str, Any]]:
        """Folder of a run -> what its file says of it."""
        for folder in self._folders(experiments):
            if folder not in self._runs and "run_id" in (table := self._table(folder / _META)):
                self._runs[folder] = table
        wanted = {self._experiments[number][0] for number in experiments}
        return {folder: table for folder, table in self._runs.items() if folder.parent in wanted}

    def _table(self, file: Path) -> dict[str, Any]:
        import yaml

        try:
            # Not by trackers.yaml, which is slower: a store has many of these files, of which MLflow wrote every value.
            table = yaml.load(self._text(file), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError:
            table = None
        if not isinstance(table, dict):
            raise UsageError(f"{file}: is no table of MLflow", "remove its folder, or restore the file from a backup")
        return table

    def _texts(self, folder: Path) -> dict[str, str]:
        """Name -> text of the files in a folder; names with slashes are in folders of their own."""
        if not folder.is_dir():
            return {}
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        return {file.relative_to(folder).as_posix(): self._text(file) for file in files}

    def _text(self, file: Path) -> str:
        """The text of a file. Parameters and tags may have any bytes, and one of them is no reason to read nothing."""
        with documents.reading(file):
            return file.read_text(encoding="utf-8", errors="replace")

"""Runs of DVCLive: the folder that it writes, or a folder that has several of them."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from lrurun.errors import UsageError
from lrurun.trackers import Source, TrackedRun, documents, flat, folders, yaml
from lrurun.trackers.points import Points, numbers_in

METRICS = "metrics.json"
PARAMETERS = "params.yaml"
CURVES = Path("plots", "metrics")
"""The folder with a TSV file for each metric; the folders in it are part of the metric's name."""
FOLDER = "dvclive"
"""The folder that DVCLive writes by default: the run is then named by the folder around it."""


class DvcLiveReader:
    """A folder of DVCLive, or one that has several. DVCLive knows no states: every run counts as finished."""

    name = "dvclive"
    title = "DVCLive"

    def __init__(self, source: Source) -> None:
        self.source = source
        self._notes: list[str] = []

    @classmethod
    def recognises(cls, source: Source) -> bool:
        return folders.is_seen(source, _is_run, _is_left_out)

    def version(self) -> str:
        return ""

    def runs(self, curves: Collection[str] | None = ()) -> Iterator[TrackedRun]:
        self._notes = []
        root = _absolute(self.source.path)
        # one that was named is read although it may have nothing but metrics
        found = [root] if (root / METRICS).is_file() else list(_folders(root))
        if not found:
            raise UsageError(
                f"{self.source.name}: no folder of DVCLive, with {METRICS} and {PARAMETERS} or {CURVES}",
                f"name the folder of a run, as in {FOLDER}, or one that has such folders",
            )
        projects = set()
        for folder in found:
            run = self._run(folder, root, curves)
            projects.add(run.project)
            if not self.source.project or run.project == self.source.project:
                yield run
        folders.check_project(self.source, projects)

    def notes(self) -> Sequence[str]:
        return self._notes

    def _run(self, folder: Path, root: Path, curves: Collection[str] | None) -> TrackedRun:
        """The run in a folder, which is `root` or in it."""
        named = folder.parent if folder.name == FOLDER else folder
        above = root if named != root and root in named.parents else named.parent
        below = folders.relative(named, root) if above == root else PurePosixPath()
        summary = self._summary(folder)
        points = Points(curves)
        for metric, step, value in self._points(folder):
            points.add(metric, value, step)
        for metric, value in summary.items():
            if metric not in points.last:
                points.add(metric, value, None)
            elif not _agree(value, end := points.last[metric]):
                self._notes.append(
                    f"{folder}: {metric} is {value:g} in {METRICS} and {end:g} at the end of its curve,"
                    " which is read: a summary may be of another step"
                )
        return TrackedRun(
            id=named.relative_to(above).as_posix(),
            project=above.name,
            settings=self._settings(folder) or folders.settings_in(below),
            last=points.last,
            last_step=points.last_step,
            curves=points.curves,
            place=str(folder),
        )

    def _summary(self, folder: Path) -> dict[str, float]:
        """The last values that DVCLive has written, by metric; none, with a note, where the file is damaged."""
        if not (folder / METRICS).exists():
            return {}
        try:
            table = documents.json_table(folder / METRICS)
        except UsageError as error:
            self._notes.append(f"{error.message}: its run is read without it")
            return {}
        table.pop("step", None)
        return dict(numbers_in(table))

    def _settings(self, folder: Path) -> dict[str, Any]:
        """The parameters of a run; none, with a note, where the file is damaged."""
        if not (folder / PARAMETERS).exists():
            return {}
        try:
            return flat(yaml.table(folder / PARAMETERS, "1.2"))
        except UsageError as error:
            self._notes.append(f"{error.message}: its run is read without settings")
            return {}

    def _points(self, folder: Path) -> Iterator[tuple[str, int, float]]:
        """Metric, step and value of the points of a run; points that cannot be read are left out, with a note."""
        for path in sorted((folder / CURVES).rglob("*.tsv")):
            metric = path.relative_to(folder / CURVES).with_suffix("").as_posix()
            try:
                found, bad = _points(path)
            except UsageError as error:
                self._notes.append(f"{error.message}: {metric} is read without its curve")
                continue
            if bad:
                others = f", as {len(bad) - 1} more are" if len(bad) > 1 else ""
                self._notes.append(f"{path}: line {bad[0]} is no whole point of a curve and is left out{others}")
            for step, value in found:
                yield metric, step, value


def _folders(root: Path) -> Iterator[Path]:
    """The folders of DVCLive in and below a folder.

    Raises:
        LrurunError: a folder cannot be read.
    """

    def refuse(error: OSError | None) -> None:
        if error:
            raise documents.unreadable(error.filename, error)

    if root.is_dir():
        yield from (folder for folder, is_run in folders.walk(root, _is_run, _is_left_out, refuse) if is_run)


def _is_run(folder: Path, names: folders.Names) -> bool:
    return (METRICS in names and PARAMETERS in names) or (folder / CURVES).is_dir()


def _is_left_out(name: str) -> bool:
    """Whether folders of this name are not looked into: those of DVC itself are hidden, and have copies of runs."""
    return name.startswith(".")


def _absolute(path: Path) -> Path:
    """A path from the root, whose last part is the name of the folder, as that of `.` and `..` is not."""
    return Path(os.path.abspath(path))


def _points(path: Path) -> tuple[list[tuple[int, float]], list[int]]:
    """Steps and values in a TSV file, and the numbers of the lines that are no points.

    Raises:
        UsageError: it has no columns of a curve.
    """
    content = documents.text(path)
    lines = csv.reader(content.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    header, column = next(lines, []), path.stem
    if "step" not in header or column not in header:
        names = ", ".join(header) or "an empty file"
        raise UsageError(f"{path}: expected the columns step and {column}, found {names}")
    # of a metric called step the second column has the values
    step_at, value_at = header.index("step"), len(header) - 1 - header[::-1].index(column)
    found: list[tuple[int, float]] = []
    bad: list[int] = []
    for number, line in enumerate(lines, 2):
        try:
            found.append((int(np.int64(int(line[step_at]))), float(line[value_at])))
        except (IndexError, ValueError, OverflowError):
            bad.append(number)
    if found and not content.endswith("\n") and number not in bad:
        # its number may lack digits
        found.pop()
        bad.append(number)
    return found, bad


def _agree(one: float, other: float) -> bool:
    """Whether two numbers are the same but for the digits of single precision."""
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-6)

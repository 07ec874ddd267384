"""Runs that other tools have recorded: a reader for each tracker or format, and the form in which each gives its runs.

A reader knows what its tool writes, and nothing of ladders: which settings make a rung, which metric is the score, and
what counts as a seed is decided in `lrurun.imported`.

Installed packages add readers by entry points of the group `lrurun.trackers`.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from lrurun import machine
from lrurun.errors import LrurunError, UsageError, hint_for
from lrurun.trackers import unreadable

GROUP = "lrurun.trackers"
FRAME = "frame"
"""The name of the reader of frames, which are no source that a command can name."""
BUILT_IN = {
    "parquet": "lrurun.trackers.tables.parquet:ParquetReader",
    "csv": "lrurun.trackers.tables.csv:CsvReader",
    "jsonl": "lrurun.trackers.tables.json_lines:JsonLinesReader",
    "mlflow": "lrurun.trackers.mlflow:MlflowReader",
    "optuna": "lrurun.trackers.optuna:OptunaReader",
    "trackio": "lrurun.trackers.trackio:TrackioReader",
    "aim": "lrurun.trackers.aim:AimReader",
    "wandb": "lrurun.trackers.wandb:WandbReader",
    "sacred": "lrurun.trackers.sacred:SacredReader",
    "ray": "lrurun.trackers.ray_tune:RayTuneReader",
    "transformers": "lrurun.trackers.transformers:TransformersReader",
    "lightning": "lrurun.trackers.lightning:LightningReader",
    "dvclive": "lrurun.trackers.dvclive:DvcLiveReader",
    "hydra": "lrurun.trackers.hydra:HydraReader",
    "tensorboard": "lrurun.trackers.tensorboard:TensorBoardReader",
}
"""Name of a source, as `--from` takes it -> its reader. The order is that in which sources are recognised: of several
tools that have written into one folder, the first one here counts, as Lightning before the event files beside its
metrics.csv, unless `--from` names another. Files and databases of one tool alone are before folders in which others
write too; TensorBoard, whose files many tools write beside their own, is the last."""

Value = str | int | float | bool | None | list[Any]
"""The value of a setting."""

Direction = Literal["max", "min"]
"""Whether higher or lower values of a metric are better."""

State = Literal["finished", "crashed", "running"]
"""What a tracker says about the end of a run: it ended well; it failed or was killed; it has not ended, or the tracker
does not know that it has. A tracker without states calls every run finished."""


class Curve(Struct, frozen=True):
    """The values of one metric, in the order in which they were recorded."""

    steps: NDArray[np.int64]
    """(points,) they may repeat and go back, as the tracker has them."""
    values: NDArray[np.float64]
    """(points,) NaN and infinities are kept."""


class Exported(Struct, frozen=True, kw_only=True):
    """The ladder of a run, as an export of lrurun records it."""

    rung: str
    place: int
    """The number of the rung in the ladder."""
    base: str = ""
    """The rung that its rung was compared with; empty where there was none."""
    metric: str = ""
    """The score, by which the ladder was judged."""
    unit: str = ""
    """The unit of the score; with "%", the score is a fraction."""
    test_items: int | None = None
    chance: float | None = None
    """The score of a guess."""


class TrackedRun(Struct, frozen=True, kw_only=True):
    """A run as a tracker has it."""

    id: str
    """The id of the run, which no other run of the project has."""
    project: str = ""
    """The project, experiment or study; empty where the tracker has none."""
    name: str = ""
    """The name that people gave the run, where it is not the id."""
    settings: dict[str, Value] = {}
    """Dotted path -> value of its configuration. Of a table, every column whose name does not say that it is a
    metric: a number there may be a setting or a score."""
    state: State = "finished"
    state_text: str = ""
    """The state in the tracker's own words, with the exit code where there is one."""
    last: dict[str, float] = {}
    """Metric -> its last value: of the newest point by time, where the tracker has times, else of the last one
    recorded; of a metric without steps, its only value. All metrics of the run are here, whatever was asked for."""
    last_step: int | None = None
    """The greatest step of the run; None where no metric has steps."""
    ends: dict[str, tuple[int, int]] | None = None
    """Metric -> the step of its last value, and the greatest step that it has reached, which is another one where its
    steps go back; None where only curves tell."""
    directions: dict[str, Direction] = {}
    """Metric -> its direction, of those for which the tracker records it."""
    objective: str = ""
    """The metric that a search minimises or maximises, where it is just one."""
    curves: dict[str, Curve] = {}
    """Metric -> its curve, of those that were asked for and have steps."""
    items: list[float] | None = None
    """Whether each test item is right, or its score, where the source has it."""
    started_at: float | None = None
    """Seconds since 1970."""
    ended_at: float | None = None
    code: str = ""
    """The version of the code, as a git commit, where the tracker records it."""
    data: str = ""
    """The name, version or digest of the data, where the tracker records it."""
    place: str = ""
    """The file, folder or address that it was read from."""
    exported: Exported | None = None
    """Its place in a ladder of lrurun, where lrurun has exported it."""
    row: str = ""
    """Of a table without ids of runs, how people find its row, as in "line 7"."""


class Source(Struct, frozen=True, kw_only=True):
    """What is read, and how: the source that a user names, and the options that readers need."""

    name: str
    """A path, a URL, or what else names a source to its tracker."""
    project: str = ""
    """The project or experiment to which reading is limited; empty for all."""
    metrics_file: str = ""
    """The name of the file with the metrics in each folder of a run, for tools that write none of their own."""
    items: str = ""
    """The column with a list of per-item results, or the name of a file in each folder of a run."""
    frame: Any = None
    """A pandas or polars frame, in the place of a file."""

    @property
    def path(self) -> Path:
        """The source as a path."""
        return Path(self.name).expanduser()


class Reader(Protocol):
    """Reads the runs of one tracker. The class is called with a Source, and nothing is read then.

    A reader of a tool that writes no metrics itself has `reads_metrics_file = True` too. Without it, a source with a
    `metrics_file` is none of its own. One that is much faster without curves has `tells_ends = True`, and fills in
    `ends`: where scores are last values, it is then asked for no curves.
    """

    name: str
    """The name of the tracker, as `--from` takes it."""
    title: str
    """The name of the tracker as people write it, as in "Weights & Biases"."""

    def __init__(self, source: Source) -> None: ...

    @classmethod
    def recognises(cls, source: Source) -> bool:
        """Whether a source looks like its own, by names of files and first bytes, without importing its package."""

    def version(self) -> str:
        """The version of the format, or of the package that reads it, as in "mlflow-skinny 3.17.2"; empty where there
        is none."""

    def runs(self, curves: Collection[str] | None = ()) -> Iterator[TrackedRun]:
        """Yields the runs in the order of the tracker, one at a time, so that memory does not hold all of them.

        It may be called again, and then reads again.

        Args:
            curves: the metrics whose curves are read; None for all of them.

        Raises:
            UsageError: the source is not what it should be, as a store of a newer version.
            LrurunError: it cannot be read: a permission, a locked file, a package that is not installed.
        """

    def notes(self) -> Sequence[str]:
        """Sentences on what the last reading left out or had to interpret, as a half-written last line."""


def names() -> list[str]:
    """The names of the readers that `--from` takes, built in and installed."""
    return [*BUILT_IN, *sorted({point.name for point in machine.entry_points(GROUP)} - {*BUILT_IN, FRAME})]


def reader(name: str) -> type[Reader]:
    """The reader of this name.

    Raises:
        UsageError: an unknown name.
    """
    if place := _FRAMES if name == FRAME else BUILT_IN.get(name):
        module, _, attribute = place.partition(":")
        of_name: type[Reader] = getattr(importlib.import_module(module), attribute)
        return of_name
    points = list(machine.entry_points(GROUP).select(name=name))
    if not points:
        raise UsageError(f"--from {name}: is no source", hint_for(name, names(), "sources"))
    loaded: type[Reader] = points[0].load()
    return loaded


_FRAMES = "lrurun.trackers.tables.frames:FrameReader"


def recognise(source: Source) -> type[Reader]:
    """The reader whose source this looks like: the first one that recognises it.

    Raises:
        UsageError: there is no such file or folder, or none knows it.
        LrurunError: it cannot be read now, or a file in it that might tell what it is: another process holds it.
    """
    unread: LrurunError | None = None
    if source.frame is not None:
        return reader(FRAME)
    for name in names():
        candidate = reader(name)
        if source.metrics_file and not _reads_metrics_file(candidate):
            continue
        try:
            if candidate.recognises(source):
                return candidate
        except LrurunError as error:
            if source.path.is_file():
                raise
            unread = unread or error  # beside it there may be what another reader knows
    if unread is not None:
        raise unread
    if "://" not in source.name and not source.path.exists():
        found = "there is no such file or folder"
    elif source.metrics_file:
        found = "no reader that takes --metrics-file knows this source"
    elif (known := unreadable.reason(source.path)) is not None:
        raise UsageError(f"{source.name}: {known[0]}", known[1])
    else:
        found = "no reader knows this source"
    raise UsageError(f"{source.name}: {found}", f"name its kind with --from: {', '.join(names())}")


def opened(source: Source, name: str | None = None) -> Reader:
    """The reader of a source, by its name or by what the source looks like.

    Raises:
        UsageError: an unknown name, an unknown source, or a metrics file that the reader does not read.
    """
    if source.frame is None:
        unreadable.check_stream(source.name)
    found = reader(name) if name else recognise(source)
    if source.metrics_file and not _reads_metrics_file(found):
        takers = ", ".join(f"--from {taker}" for taker in names() if _reads_metrics_file(reader(taker)))
        raise UsageError(
            f"--metrics-file {source.metrics_file}: {found.title} has metrics in files of its own",
            f"leave --metrics-file out; it goes with {takers}",
        )
    return found(source)


def _reads_metrics_file(found: type[Reader]) -> bool:
    return bool(getattr(found, "reads_metrics_file", False))


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    """Dotted path -> value of nested tables. Lists stay as they are, and other values become texts."""
    settings: dict[str, Value] = {}
    for key, value in table.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            settings |= flat(value, f"{path}.")
        else:
            settings[path] = plain(value)
    return settings


def plain(value: Any) -> Value:
    """A value as one of a setting: others than texts, numbers, truth values, lists and nothing become texts."""
    return value if value is None or isinstance(value, str | int | float | bool | list) else str(value)

"""TensorBoard event files: a folder for each run, with its configuration, its curves and its results.

TensorBoard's scalars are tensors of float32: its fast reader leaves out any other. The number of 64 bits is beside it,
in the tensor's `double_val`, which TensorBoard ignores. The file of a run is a function of what the ledger holds: rows
that are added append to it, and nothing else changes.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lrurun.config.settings import flatten
from lrurun.ledger.values import FINISHED
from lrurun.report.exports import RESULT, missing, result_step

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import Curve, Run


LATE = ("test/", "test@")
"""Scores on the test split belong to the step of the best validation score, and are recorded when training is over."""


def check() -> None:
    """Raises LrurunError if the library of the format is not installed."""
    try:
        import tensorboardX.proto.event_pb2  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing(error, "tensorboard") from None


def write(ledger: Ledger, ids: Sequence[str], folder: Path, named: Path) -> None:
    """A file for each run with all rows that the ledger has.

    Raises:
        LrurunError: tensorboardX is not installed.
    """
    check()
    for run in ledger.each(ids, brief=False):
        path = place(folder, run)
        path.parent.mkdir(parents=True)
        events = Events(run)
        with path.open("wb") as file:
            file.write(events.beginning())
            curves = list(ledger.curves([run.id]))
            file.write(events.points(curves) + events.late(curves))
            file.write(events.end(run))


def place(folder: Path, run: Run) -> Path:
    """The file of a run: its folder is the run's name in TensorBoard."""
    parts = ["other"]
    label = "run"
    if run.memberships:
        first = run.memberships[0]
        of_task = first.task + (f"-{first.profile}" if first.profile else "")
        parts = [first.ladder, of_task, first.rung]
        label = f"seed-{run.seed}" if first.stage == "train" else f"{first.stage}-{run.seed}"
    name = f"{label}-{run.id}"
    return (
        folder.joinpath(*map(_file_name, parts), _file_name(name)) / f"events.out.tfevents.{int(run.created_at)}.lrurun"
    )


def _file_name(text: str) -> str:
    """A text from a ledger as the name of a folder."""
    return re.sub(r"[^\w.@=+-]", "_", text, flags=re.ASCII).lstrip(".")[:100] or "_"


class Events:
    """The bytes of a run's file, in order: the beginning, points by step, late points, the end."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tags: set[str] = set()
        """Those that have had a point: TensorBoard reads the kind of a tag from its first one."""

    def beginning(self) -> bytes:
        """The version of the format, and the configuration: as a text, and as hyper-parameters."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData, SessionStartInfo

        run = self._run
        start = SessionStartInfo(start_time_secs=run.created_at, group_name=run.id)
        # Without the settings of the execution, which may change when a run is resumed.
        for path, value in flatten(run.config):
            _set(start.hparams[path], value)
        data = HParamsPluginData(session_start_info=start, version=0)
        config = json.dumps(msgspec.to_builtins(run.config), indent=1)
        return b"".join(
            (
                _record(Event(wall_time=run.created_at, file_version="brain.Event:2")),
                self._event(0, [_text("lrurun/configuration", config)]),
                self._event(0, [_plugin("_hparams_/session_start_info", "hparams", data)]),
            )
        )

    def points(self, curves: Sequence[Curve]) -> bytes:
        """An event for each step, with the values of all keys but the late ones."""
        return self._points([curve for curve in curves if not curve.key.startswith(LATE)])

    def late(self, curves: Sequence[Curve]) -> bytes:
        """The values that are recorded after the last step, for an earlier one."""
        return self._points([curve for curve in curves if curve.key.startswith(LATE)])

    def _points(self, curves: Sequence[Curve]) -> bytes:
        return b"".join(
            self._event(step, [self._scalar(key, value) for key, value in row]) for step, row in _by_step(curves)
        )

    def end(self, run: Run) -> bytes:
        """The results of a run that is finished; nothing otherwise."""
        from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData, SessionEndInfo

        if run.state not in FINISHED:
            return b""
        result = run.result or {}
        scalars = [self._scalar(f"{RESULT}{name}", float(value)) for name, value in sorted(result.items())]
        status = 1 if run.state == "done" else 2  # STATUS_SUCCESS, STATUS_FAILURE
        end = SessionEndInfo(status=status, end_time_secs=run.finished_at or run.created_at)
        data = HParamsPluginData(session_end_info=end, version=0)
        marks = [_text("lrurun/state", run.state), _plugin("_hparams_/session_end_info", "hparams", data)]
        return (self._event(result_step(run), scalars) if scalars else b"") + self._event(run.step, marks)

    def _event(self, step: int, values: list[Any]) -> bytes:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        # The ledger has no time of a row; one that never changes keeps the file a function of the ledger.
        return _record(Event(wall_time=self._run.created_at, step=step, summary=Summary(value=values)))

    def _scalar(self, tag: str, value: float) -> Any:
        from tensorboardX.proto.summary_pb2 import Summary
        from tensorboardX.proto.tensor_pb2 import TensorProto
        from tensorboardX.proto.types_pb2 import DT_FLOAT

        known = tag in self._tags
        self._tags.add(tag)
        return Summary.Value(
            tag=tag,
            tensor=TensorProto(dtype=DT_FLOAT, float_val=[value], double_val=[value]),
            metadata=None if known else _metadata("scalars"),
        )


def _by_step(curves: Sequence[Curve]) -> Iterator[tuple[int, list[tuple[str, float]]]]:
    rows: dict[int, list[tuple[str, float]]] = {}
    for curve in sorted(curves, key=lambda one: one.key):
        for step, value in zip(curve.steps, curve.values, strict=True):
            rows.setdefault(step, []).append((curve.key, value))
    yield from sorted(rows.items(), key=lambda row: row[0])


def _set(target: Any, value: object) -> None:
    """A hyper-parameter: a truth value, a number or a text."""
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int | float):
        target.number_value = value
    else:
        target.string_value = value if isinstance(value, str) else json.dumps(value)


def _metadata(plugin: str, content: bytes = b"") -> Any:
    from tensorboardX.proto.summary_pb2 import SummaryMetadata

    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin, content=content))


def _plugin(tag: str, plugin: str, data: Any) -> Any:
    from tensorboardX.proto.summary_pb2 import Summary

    # Hyper-parameters are a map, whose order is the same only on request.
    return Summary.Value(tag=tag, metadata=_metadata(plugin, data.SerializeToString(deterministic=True)))


def _text(tag: str, text: str) -> Any:
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.proto.tensor_pb2 import TensorProto
    from tensorboardX.proto.types_pb2 import DT_STRING

    shown = "\n".join(f"    {line}" for line in text.splitlines())  # code, for TensorBoard's Markdown
    content = shown.encode("utf-8", "replace")
    return Summary.Value(
        tag=f"{tag}/text_summary",
        tensor=TensorProto(dtype=DT_STRING, string_val=[content]),
        metadata=_metadata("text"),
    )


def _record(event: Any) -> bytes:
    """An event as a record: length, checksum, bytes, checksum (TensorFlow's TFRecord)."""
    data: bytes = event.SerializeToString(deterministic=True)
    length = struct.pack("<Q", len(data))
    return b"".join((length, _checksum(length), data, _checksum(data)))


def _checksum(data: bytes) -> bytes:
    from tensorboardX.crc32c import crc32c

    value = crc32c(data)
    return struct.pack("<I", (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF)

"""What the event files of one folder have: scalars in both forms, settings of the hparams plugin, lrurun's texts."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from lrurun.trackers import Curve, Value
from lrurun.trackers.tensorboard.records import Messages, events

OWN = "lrurun/"
"""The beginning of the tags of texts in lrurun's own exports."""
_TEXT = "/text_summary"
"""The end that writers add to the tag of a text."""
_START = 1
"""The state of a session that begins again, and makes points from its step on void."""
_FAILURE = 2
"""The state of a session of the hparams plugin that failed; 3 is one that has not ended."""
_RUNNING = 3
_SCALARS = {
    1: ("float_val", np.float32),
    2: ("double_val", np.float64),
    3: ("int_val", np.int32),
    9: ("int64_val", np.int64),
}
"""Type of a tensor -> where its value is: in this list, or as bytes of this type."""

Point = tuple[float, int, float]
"""Time, step and value."""


class Content(Struct):
    """The content of a folder."""

    points: dict[str, list[Point]] = field(default_factory=dict)
    """Tag -> its points that are wanted, in the order of the files."""
    newest: dict[str, Point] = field(default_factory=dict)
    """Tag -> its newest point by time."""
    settings: dict[str, Value] = field(default_factory=dict)
    has_session: bool = False
    """Whether there are settings of the hparams plugin, if only empty ones."""
    status: str = ""
    """How the session of the hparams plugin ended: "success", "failure", "running"."""
    texts: dict[str, str] = field(default_factory=dict)
    """Tag -> text of lrurun's own exports."""
    first_time: float | None = None
    last_time: float | None = None
    greatest_step: int = 0
    void: int = 0
    """How many points became void because the run began again from an earlier step."""

    def curves(self) -> dict[str, Curve]:
        """The curves by time, without those of single values that have no step: writers give them the step 0."""
        curves = {}
        for tag, points in self.points.items():
            points.sort(key=lambda point: point[0])
            steps, values = np.array([p[1] for p in points], np.int64), np.array([p[2] for p in points], np.float64)
            if len(points) > 1 or steps.any():
                curves[tag] = Curve(steps, values)
        return curves

    def add(self, other: Content, name: Callable[[str], str]) -> None:
        """Adds what another folder has of the same run; `name` gives the names of its metrics here."""
        for tag, points in other.points.items():
            self.points.setdefault(name(tag), []).extend(points)
        for tag, point in other.newest.items():
            if (known := self.newest.get(name(tag))) is None or known[0] <= point[0]:
                self.newest[name(tag)] = point
        self.settings = {**other.settings, **self.settings}
        self.texts |= other.texts
        self.status = self.status or other.status
        self.first_time = min(filter(None, (self.first_time, other.first_time)), default=None)
        self.last_time = max(filter(None, (self.last_time, other.last_time)), default=None)
        self.greatest_step = max(self.greatest_step, other.greatest_step)
        self.void += other.void


def read(
    files: Collection[Path], messages: Messages, wanted: Collection[str] | None, notice: Callable[[str], None],
    most: int | None = None,
) -> Content:  # fmt: skip
    """Reads event files of one folder, in the order of their names, which begin with the time.

    Args:
        wanted: the tags whose points are kept; None for all.
        most: the number of events after which reading ends; None for all.

    Raises:
        OSError: a file cannot be read.
    """
    content = Content()
    # Points that a new start makes void may be the newest ones, so that all are kept until the end.
    points: dict[str, list[Point]] = {}
    scalars: set[str] = set()
    for file in sorted(files):
        for number, event in enumerate(events(file, messages, notice)):
            if most is not None and number >= most:
                break
            time, step, kind = event.wall_time, event.step, event.WhichOneof("what")
            if kind == "session_log" and event.session_log.status == _START:
                content.void += _remove(points, step)
            if kind != "summary":
                continue
            for value in event.summary.value:
                number_of_value = _scalar(value, scalars)
                if number_of_value is not None:
                    points.setdefault(value.tag, []).append((time, step, number_of_value))
                elif value.metadata.plugin_data.plugin_name == "hparams":
                    _read_session(messages.HParamsPluginData.FromString(value.metadata.plugin_data.content), content)
                elif value.tag.startswith(OWN) and value.tensor.string_val:
                    text = value.tensor.string_val[0].decode(errors="replace")
                    content.texts[value.tag.removesuffix(_TEXT).removeprefix(OWN)] = text
            content.first_time = time if content.first_time is None else min(content.first_time, time)
            content.last_time = time if content.last_time is None else max(content.last_time, time)
    for tag, of_tag in points.items():
        if of_tag:
            content.newest[tag] = max(enumerate(of_tag), key=lambda entry: (entry[1][0], entry[0]))[1]
            content.greatest_step = max(content.greatest_step, max(point[1] for point in of_tag))
            if wanted is None or tag in wanted:
                content.points[tag] = of_tag
    return content


def _scalar(value: Any, scalars: set[str]) -> float | None:
    """The number of a value; None if it is none. Only the first value of a tag need say that it is a scalar."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind != "tensor":
        return None
    if value.metadata.plugin_data.plugin_name == "scalars":
        scalars.add(value.tag)
    if value.tag not in scalars or value.tensor.dtype not in _SCALARS:
        return None
    name, dtype = _SCALARS[value.tensor.dtype]
    if value.tensor.tensor_content:
        return float(np.frombuffer(value.tensor.tensor_content, dtype)[0])
    numbers = getattr(value.tensor, name)
    return float(numbers[0]) if numbers else 0.0  # protobufs of TensorFlow leave out trailing zeros


def _read_session(data: Any, content: Content) -> None:
    """Reads the settings or the end of a session of the hparams plugin."""
    kind = data.WhichOneof("data")
    if kind == "session_start_info":
        content.has_session = True
        for name, value in data.session_start_info.hparams.items():
            content.settings[name] = _setting(value)
    elif kind == "session_end_info":
        status = data.session_end_info.status
        content.status = {_FAILURE: "failure", _RUNNING: "running"}.get(status, "success" if status else "")


def _setting(value: Any) -> Value:
    """A setting; whole numbers are fractions in these files, and come back as whole."""
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() and abs(number) <= 2**53 else number
    return getattr(value, kind) if kind in ("string_value", "bool_value") else None


def _remove(points: dict[str, list[Point]], step: int) -> int:
    """Removes the points from a step on; how many these are."""
    removed = 0
    for tag, of_tag in points.items():
        kept = [point for point in of_tag if point[1] < step]
        removed += len(of_tag) - len(kept)
        points[tag] = kept
    return removed

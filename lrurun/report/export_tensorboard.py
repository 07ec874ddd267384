"""Runs as event files of TensorBoard, whose scalars have 32 bits."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lrurun.config.settings import flatten
from lrurun.console import setting
from lrurun.report.export_shared import RESULT, Departures, Names, Places, as_it_is, known_metrics, result_step

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Run

_CONFIGURATION, _STATE, _RENAMED, _RUN = (f"lrurun/{name}" for name in ("configuration", "state", "renamed", "run"))
_ABOUT = ("id", "fingerprint", "superseded", "excluded", "task", "seed", "ladder", "rung", "stage", "profile")
"""The columns of a run that it has as a text, for programs."""
_LARGEST = float.fromhex("0x1.ffffffp127")
"""From here on a number is infinite in 32 bits."""


def write(ledger: Ledger, ids: Sequence[str], folder: Path) -> list[str]:
    """A folder for each run, with its configuration, its curves and its results in one file; see `exports.write`.

    tensorboardX's `SummaryWriter` writes in a thread, which loses the error of a full disk, and its `EventsWriter`
    names files by the second: this is the writer in both. Its function for scalars changes names, and prints a line for
    NaN: it is not used.
    """
    from tensorboardX import summary
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import RecordWriter

    names = Names(as_it_is, known_metrics(ledger), taken=(_CONFIGURATION, _STATE, _RENAMED, _RUN))
    departures = Departures("TensorBoard")
    places = Places(ledger)
    for run in ledger.each(ids, brief=False):
        run_folder = _folder(folder, run)
        run_folder.mkdir(parents=True)
        file = run_folder / f"events.out.tfevents.{int(run.created_at)}.{run.id}"
        with contextlib.closing(RecordWriter(str(file))) as writer:
            # The ledger has no time of a row.
            writer.write(Event(wall_time=run.created_at, file_version="brain.Event:2").SerializeToString())
            for step, part in _summaries(ledger, run, names, departures, places.of(run), summary):
                event = Event(wall_time=run.created_at, step=step, summary=part)
                writer.write(event.SerializeToString())
    return departures.sentences(
        [names],
        record=f"the text {_RENAMED} of a run",
        infinite="infinite in TensorBoard, whose numbers have 32 bits",
    )


def _summaries(
    ledger: Ledger, run: Run, names: Names, departures: Departures, place: dict[str, Any], summary: Any
) -> Iterator[tuple[int, Any]]:
    """The values that TensorBoard shows of a run, each with its step; `place` is that in its ladder, and `summary` the
    module of tensorboardX."""
    from tensorboardX.proto.summary_pb2 import Summary

    from lrurun.ledger.columns import COLUMNS

    def scalar(name: str, value: float) -> Any:
        if math.isfinite(value) and abs(value) >= _LARGEST:
            departures.infinite.add(names.before(name))
        return Summary(value=[Summary.Value(tag=name, simple_value=value)])

    results = {names(name, RESULT): float(score) for name, score in (run.result or {}).items()}
    settings = {path: _hyperparameter(value) for path, value in flatten(run.config)}
    experiment, start, end = summary.hparams(settings, results)
    yield 0, experiment
    yield 0, start
    config = json.dumps(msgspec.to_builtins(run.config), indent=1)
    yield 0, summary.text(_CONFIGURATION, _code(config))
    about: dict[str, Any] = {name: text for name in _ABOUT if (text := COLUMNS[name].shown(run))}
    about |= place
    about["results"] = run.result or {}  # with all their digits
    yield 0, summary.text(_RUN, _code(json.dumps(about, indent=1)))
    used = {*results}
    for curve in ledger.curves([run.id]):
        used.add(name := names(curve.key))
        for step, value in zip(curve.steps, curve.values, strict=True):
            yield step, scalar(name, value)
    for name, score in results.items():
        yield result_step(run), scalar(name, score)
    if changed := names.changed(used):
        yield 0, summary.text(_RENAMED, _code(json.dumps(changed, indent=1)))
    yield run.step, summary.text(_STATE, run.state)
    if run.state == "done":
        yield run.step, end


def _hyperparameter(value: Any) -> bool | float | str:
    """The value of a setting: numbers have 64 bits, and larger whole ones are text."""
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) > 2**53:
        return str(value)
    return value if isinstance(value, int | float) else setting(value)


def _code(text: str) -> str:
    """A text as code in TensorBoard's Markdown."""
    return "".join(f"    {line}\n" for line in text.splitlines())


def _folder(folder: Path, run: Run) -> Path:
    """The folder of a run, which is its name in TensorBoard."""
    parts = ["other"]
    label = "run"
    if run.memberships:
        first = run.memberships[0]
        parts = [first.ladder, first.task + (f"-{first.profile}" if first.profile else ""), first.rung]
        label = f"seed-{run.seed}" if first.stage == "train" else f"{first.stage}-{run.seed}"
    return folder.joinpath(*map(_file_name, [*parts, f"{label}-{run.id}"]))


def _file_name(text: str) -> str:
    """A text from a ledger as the name of a folder."""
    return re.sub(r"[^\w.@=+-]", "_", text, flags=re.ASCII).lstrip(".")[:100] or "_"

"""What a supervisor and its worker processes send to each other: one JSON object a line."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec
from msgspec import Struct


class TrainOrder(Struct, frozen=True, kw_only=True, tag="train"):
    """ClaimedRun and train queued runs of a ladder, until standard input is closed."""

    supervisor: int
    """Process id of the supervisor."""
    plugins: dict[str, Any]
    """What `plugins.loaded` returned: the code to load."""
    ledger: str
    runs: str
    """Folder of logs and checkpoints."""
    data: str
    """Folder of the task's prepared data."""
    ladder: str
    """Key of the ladder instance."""
    rungs: list[str]
    seeds: list[int]
    threads: int
    """Size of XLA's thread pool; only runs with this number are claimed."""
    devices: int = 1
    """Devices of each run; only runs with this number are claimed."""
    pack: int
    """Seeds of a rung that are trained in one program."""


class PrepareOrder(Struct, frozen=True, kw_only=True, tag="prepare"):
    """Prepare the data of a task."""

    supervisor: int
    plugins: dict[str, Any]
    task: str
    options: dict[str, Any]
    data: str
    from_path: str | None
    """File or folder that holds a copy of the published data, or None."""
    force: bool = False
    """Whether data that are there are replaced."""
    recipes: dict[str, str] = {}
    """`obtaining.RECIPES` of the supervisor."""


class PreparationProgress(Struct, frozen=True, kw_only=True, tag="progress"):
    """`done` of `total` units of the step `what` are finished; `total` is None where it is unknown."""

    what: str
    done: int
    total: int | None


class Fault(Struct, frozen=True, kw_only=True, tag="fault"):
    """An error that the supervisor raises as its own: the ledger, a folder, data or plug-ins cannot be used."""

    message: str
    hint: str | None
    exit_code: int
    trace: str = ""
    """The traceback in the worker, for --debug."""


Order = TrainOrder | PrepareOrder
Message = TrainOrder | PrepareOrder | PreparationProgress | Fault
M = TypeVar("M", bound=Message)


def encode(message: Message) -> str:
    """One line, without its newline."""
    # `json`, because file names that are not UTF-8 come as lone surrogates, which msgspec refuses
    return json.dumps(msgspec.to_builtins(message))


def decode(line: str | bytes, kind: type[M]) -> M:
    """The message in a line. Raises ValueError where it is not one."""
    return msgspec.convert(json.loads(line), kind)


def decode_order(line: str | bytes) -> Order:
    """As `decode`, for the first line that a worker reads."""
    order: Order = msgspec.convert(json.loads(line), TrainOrder | PrepareOrder)
    return order


def last(output: str, kind: type[M]) -> M | None:
    """The last message of a kind in a worker's output, which may contain lines of libraries too."""
    for line in reversed(output.splitlines()):
        try:
            return decode(line, kind)
        except (ValueError, RecursionError):
            continue
    return None

"""The work of a command, which goes as it is from the command to supervisor, executor and workers, and what workers
answer: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from lrurun.config.schema import RunKind
from lrurun.ledger.values import LadderInstance
from lrurun.paths import Places
from lrurun.plugins import Loaded


class Needs(NamedTuple):
    """The threads and devices that a run needs of its worker process."""

    threads: int = 1
    """Size of XLA's thread pool."""
    devices: int = 1


class Work(Struct, frozen=True, kw_only=True, tag="train"):
    """The runs of a ladder instance that are trained, and how."""

    ledger: str
    """The file or the URL of the ledger."""
    runs: Path
    """Folder of logs and checkpoints."""
    data: Path
    """Folder of the task's prepared data; of a user's program, the folder in which it is started."""
    ladder: str
    """Key of the ladder instance; of a sweep, of the first one."""
    others: Sequence[str] = []
    """Keys of the other instances of a sweep, of which the same seeds are trained."""
    programs: Mapping[str, Mapping[str, str]] = {}
    """Key of an instance -> rung -> a name of its program, which rungs share that are compiled to the same functions.
    Where none is given, each rung has one."""
    kind: RunKind
    """The kind of the runs."""
    rungs: Sequence[str]
    seeds: Sequence[int]
    fresh: bool = False
    """Whether finished runs are superseded and started again."""
    jobs: int | None = None
    """How many workers a machine has; None for `machine.default_jobs`."""
    pack: int = 1
    """How many seeds of a rung a worker trains together."""
    stop_seconds: float = 0.0
    """How long users' programs may take to save and exit."""
    on_node: bool = False
    """Whether an executor started this command, on a node: it leaves when nothing is queued for it."""
    detach: bool = False
    """Whether the command returns when its executor has started: what fails then is an error."""

    @property
    def ladders(self) -> Sequence[str]:
        """The keys of all instances."""
        return [self.ladder, *self.others]

    def program(self, ladder: str, rung: str) -> str:
        """The name of a rung's program."""
        return self.programs.get(ladder, {}).get(rung, rung)


def work_on(
    instance: LadderInstance,
    places: Places,
    data: str | Path,
    rungs: Sequence[str],
    seeds: Sequence[int],
    **fields: Any,
) -> Work:
    """The work on some rungs and seeds of a ladder instance.

    Args:
        data: name of the task's folder in the data folder, or the folder of a program.
        fields: further fields of the work.
    """
    return Work(
        ledger=str(places.ledger.absolute()),
        runs=places.runs.absolute(),
        data=(places.data / data).absolute(),
        ladder=instance.key,
        kind=instance.kind,
        rungs=list(rungs),
        seeds=list(seeds),
        **fields,
    )


class Preparation(Struct, frozen=True, kw_only=True, tag="prepare"):
    """Data of a task that a worker prepares."""

    task: str
    options: dict[str, Any]
    data: Path
    from_path: Path | None
    """File or folder that holds a copy of the published data."""
    force: bool = False
    """Whether data that were prepared before are replaced."""
    recipe: str = ""
    """`Task.recipe` in the supervisor."""


class Order(Struct, frozen=True, kw_only=True, tag="order"):
    """The first line that a worker process reads."""

    supervisor: int
    """Process id of the supervisor."""
    plugins: Loaded
    needs: Needs
    """The threads and devices of this worker: of queued runs, it takes those that need these."""
    work: Work | Preparation


class PreparationProgress(Struct, frozen=True, kw_only=True, tag="progress"):
    """`done` of `total` units of the step `what` are finished; `total` is None where it is unknown."""

    what: str
    done: int
    total: int | None


class WorkerError(Struct, frozen=True, kw_only=True, tag="error"):
    """An error that the supervisor raises as its own: the ledger, a folder, data or plug-ins cannot be used."""

    message: str
    hint: str | None
    exit_code: int
    trace: str = ""
    """The traceback in the worker, for --debug."""


Message = Order | PreparationProgress | WorkerError
M = TypeVar("M", bound=Message)


def encode(message: Message) -> str:
    """One line, without its newline."""
    # `json`, because file names that are not UTF-8 come as lone surrogates, which msgspec refuses
    return json.dumps(msgspec.to_builtins(message, enc_hook=str))


def decode(line: str | bytes, message_type: type[M]) -> M:
    """The message in a line. Raises ValueError where it is not one."""
    return msgspec.convert(json.loads(line), message_type, dec_hook=lambda path, text: path(text))


def last(output: str, message_type: type[M]) -> M | None:
    """The last message of a type in a worker's output, which may contain lines of libraries too."""
    for line in reversed(output.splitlines()):
        try:
            return decode(line, message_type)
        except (ValueError, RecursionError):
            continue
    return None

"""Tasks: data sets with a question. A new task is a class in a file of a group here and a line of `_CLASSES`."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import Any

from lrurun import decoding, plugins
from lrurun.data import imported
from lrurun.data.task import Options, Task
from lrurun.errors import UsageError, hint_for

_CLASSES = (
    "downloaded.images:SCifar",
    "downloaded.images:Image",
    "generated.listops:ListOps",
    "generated.listops_subtrees:ListOpsSubTrees",
    "downloaded.text:Text",
    "downloaded.retrieval:Retrieval",
    "generated.pathfinder:Pathfinder",
    "generated.pathfinder:PathX",
    "generated.pathfinder_segmentation:PathfinderSegmentation",
    "downloaded.speech:SpeechCommands",
    "generated.digits:Digits",
    "generated.np_digits:NpDigits",
    "downloaded.np_cifar:NpCifar",
    "sampled.atomic:Shift",
    "sampled.atomic:CumSum",
    "sampled.atomic:CumMax",
    "sampled.atomic:Reverse",
    "sampled.atomic:Sort",
    "sampled.atomic:Select",
    "sampled.atomic:SelectFixed",
    "sampled.atomic:Mips",
    "sampled.atomic:ContextShift",
    "sampled.atomic:Solve",
    "sampled.atomic:SolveFixed",
    "sampled.recall:Copy",
    "sampled.recall:SelectiveCopy",
    "sampled.recall:Mqar",
    "sampled.recall:InductionHeads",
    "sampled.recall:Parity",
    "sampled.teacher:TeacherStudent",
    "generated.source_code:SourceCode",
    "downloaded.pg19:PG19",
    "downloaded.pg19:PG19Tokens",
)

OF_PLUG_IN = "--load FILE if it is a task of your own"
"""A hint for an unknown task."""
TASKS: dict[str, Task] = plugins.registry("task")
"""By name, those of plug-ins last."""

for _name in _CLASSES:
    _task: Task = pkgutil.resolve_name(f"{__name__}.{_name}")()
    TASKS[_task.name] = _task


def get(name: str, data: Mapping[str, Any] | None = None, where: str = "") -> Task:
    """The task of that name; with `data`, settings in a recipe or of a run, also one of imported arrays.

    Raises:
        UsageError: an unknown name, with the nearest known one; wrong settings of imported arrays, and `where`.
    """
    if data is not None and imported.KEY in data:
        if name in TASKS:
            raise UsageError(f"task {name!r}: lrurun has one of this name", "import the arrays under another name")
        return imported.make(name, data, where or f"data of {name}")
    if name not in TASKS:
        raise UsageError(f"unknown task {name!r}", hint(name))
    return TASKS[name]


def hint(name: str) -> str:
    """For an unknown task: the nearest known one, all of them, and how to load one that is the user's own."""
    return f"{hint_for(name, TASKS, 'tasks')}; {OF_PLUG_IN}"


def options_of(task: Task, data: Mapping[str, Any]) -> Options:
    """The settings in a run's `data` table, without the version.

    Raises:
        UsageError: settings that this version does not know.
    """
    settings = {name: value for name, value in data.items() if name != "version"}
    return decoding.convert(settings, task.options, f"data of {task.name}")

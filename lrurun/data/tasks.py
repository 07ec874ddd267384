"""Tasks: data sets with a question. A new task is a class in a file of a group here and a line of `_CLASSES`."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lrurun import plugins
from lrurun.data.metric import METRICS, Metric
from lrurun.errors import UsageError, hint_for
from lrurun.plugins import Registry

if TYPE_CHECKING:
    from lrurun.data.task import Options, Task

_CLASSES = {
    "sCIFAR": "downloaded.images:SCifar",
    "Image": "downloaded.images:Image",
    "ListOps": "synthetic.listops:ListOps",
    "ListOpsSubTrees": "synthetic.listops_subtrees:ListOpsSubTrees",
    "Text": "downloaded.text:Text",
    "Retrieval": "downloaded.retrieval:Retrieval",
    "Pathfinder": "synthetic.pathfinder:Pathfinder",
    "PathX": "synthetic.pathfinder:PathX",
    "PathfinderSegmentation": "synthetic.pathfinder_segmentation:PathfinderSegmentation",
    "SpeechCommands": "downloaded.speech:SpeechCommands",
    "sDigits": "synthetic.digits:Digits",
    "npDigits": "synthetic.np_digits:NpDigits",
    "npCIFAR": "downloaded.np_cifar:NpCifar",
    "Shift": "sampled.atomic:Shift",
    "CumSum": "sampled.atomic:CumSum",
    "CumMax": "sampled.atomic:CumMax",
    "Reverse": "sampled.atomic:Reverse",
    "Sort": "sampled.atomic:Sort",
    "Select": "sampled.atomic:Select",
    "SelectFixed": "sampled.atomic:SelectFixed",
    "MIPS": "sampled.atomic:Mips",
    "ContextShift": "sampled.atomic:ContextShift",
    "Solve": "sampled.atomic:Solve",
    "SolveFixed": "sampled.atomic:SolveFixed",
    "Copy": "sampled.recall:Copy",
    "SelectiveCopy": "sampled.recall:SelectiveCopy",
    "MQAR": "sampled.recall:Mqar",
    "InductionHeads": "sampled.recall:InductionHeads",
    "Parity": "sampled.recall:Parity",
    "TeacherStudent": "sampled.teacher:TeacherStudent",
    "sSource": "synthetic.source_code:SourceCode",
    "PG19": "downloaded.pg19:PG19",
    "PG19Tokens": "downloaded.pg19:PG19Tokens",
}
_SELECTED_ON = {
    "PathfinderSegmentation": "f1",
    "Shift": "r2",
    "CumSum": "r2",
    "CumMax": "r2",
    "Reverse": "r2",
    "Sort": "r2",
    "Select": "r2",
    "SelectFixed": "r2",
    "MIPS": "r2",
    "ContextShift": "r2",
    "Solve": "r2",
    "SolveFixed": "r2",
    "TeacherStudent": "nmse",
    "sSource": "bits_per_byte",
    "PG19": "bits_per_byte",
    "PG19Tokens": "cross_entropy",
}
"""The metric that selects the models of a task, where it is not accuracy: lists of runs show it, without the task."""
_CHANCE = {"Pathfinder": 0.5, "PathX": 0.5}
"""The accuracy of chance where claims of papers are about it: they are judged without the task."""
_TEST_ITEMS = {
    "sCIFAR": 10_000,
    "Image": 10_000,
    "ListOps": 2_000,
    "ListOpsSubTrees": 2_000,
    "Text": 25_000,
    "Retrieval": 17_437,
    "Pathfinder": 20_000,
    "PathX": 20_000,
    "SpeechCommands": 11_005,
    "sDigits": 300,
    "npDigits": 300,
    "npCIFAR": 10_000,
    "Copy": 1_024,
    "SelectiveCopy": 1_024,
    "MQAR": 1_024,
    "InductionHeads": 1_024,
    "Parity": 1_024,
}
"""The number of test items of tasks whose models are selected on a share of them: it bounds the error of a paper's
numbers, which are judged without the task."""

IMPORTED = "imported"
"""The setting that only data of users' own arrays have."""
OF_PLUG_IN = "--load FILE if it is a task of your own"
"""A hint for an unknown task."""


def _make(path: str) -> Task:
    task: Task = pkgutil.resolve_name(f"lrurun.data.{path}")()
    return task


TASKS: Registry[Task] = plugins.registry("task", {name: partial(_make, path) for name, path in _CLASSES.items()})
"""All tasks by name, plug-ins last; a task is imported when it is asked for."""


def is_built_in(name: str) -> bool:
    """Whether a task comes with lrurun."""
    return name in _CLASSES


def selected_on(name: str) -> Metric:
    """The metric that selects the models of a task, without importing lrurun's own: its chance may be unknown."""
    if TASKS.is_imported(name):
        return TASKS[name].metric
    metric = METRICS[_SELECTED_ON.get(name, "accuracy")]
    return structs.replace(metric, chance=_CHANCE.get(name, metric.chance))


def test_items(name: str) -> int | None:
    """The number of test items of a task, without importing lrurun's own; None where it bounds no error."""
    if is_built_in(name):
        return _TEST_ITEMS.get(name)
    task = TASKS[name]
    return task.sizes(task.options()).get("test")


def metrics() -> dict[str, Metric]:
    """The metrics of lrurun and of the plug-ins that are loaded, by name."""
    by_name = dict(METRICS)
    for task in TASKS:
        if task not in _CLASSES:
            by_name |= {metric.name: metric for metric in TASKS[task].metrics}
    return by_name


def get(name: str, data: Mapping[str, Any] | None = None, where: str = "") -> Task:
    """The task of that name; with `data`, settings in a recipe or of a run, also one of imported arrays.

    Raises:
        UsageError: an unknown name, with the nearest known one; wrong settings of imported arrays, and `where`.
    """
    if data is not None and IMPORTED in data:
        if name in TASKS:
            raise UsageError(f"task {name!r}: already part of lrurun", "import the arrays under another name")
        from lrurun.data import imported

        return imported.make(name, data, where or f"data of {name}")
    if name not in TASKS:
        raise UsageError(f"unknown task {name!r}", hint(name))
    return TASKS[name]


def hint(name: str) -> str:
    """A hint for an unknown task: the nearest known one, all of them, and how to load one that is the user's own."""
    return f"{hint_for(name, TASKS, 'tasks')}; {OF_PLUG_IN}"


def options_of(task: Task, data: Mapping[str, Any]) -> Options:
    """The settings in a run's `data` table, without the version.

    Raises:
        UsageError: settings that this version does not know.
    """
    settings = {name: value for name, value in data.items() if name != "version"}
    from lrurun import decoding

    return decoding.convert(settings, task.options, f"data of {task.name}")

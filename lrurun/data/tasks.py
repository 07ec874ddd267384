"""Tasks: data sets with a question. A new task is a class in a file of a group here and a line of `_BUILT_IN`."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from lrurun import plugins
from lrurun.data.metric import METRICS, Metric
from lrurun.errors import UsageError, hint_for
from lrurun.plugins import Registry

if TYPE_CHECKING:
    from lrurun.data.task import Options, Task


class _BuiltIn(NamedTuple):
    """A task that comes with lrurun, and facts that are needed without importing it: lists of runs show its metric, and
    the numbers of papers are judged."""

    path: str
    """The module below this package, and the class."""
    selected_on: str = "accuracy"
    """The metric that selects the models."""
    chance: float | None = None
    """The accuracy of chance where claims of papers are about it; None: the metric's."""
    classes: int | None = None
    """The number of classes where models are selected on accuracy: by guessing, 1 / classes are right."""
    test_items: int | None = None
    """The number of test items, where models are selected on a share of them, for the error of papers' numbers."""


_BUILT_IN = {
    "sCIFAR": _BuiltIn("downloaded.images:SCifar", classes=10, test_items=10_000),
    "Image": _BuiltIn("downloaded.images:Image", classes=10, test_items=10_000),
    "ListOps": _BuiltIn("synthetic.listops:ListOps", classes=10, test_items=2_000),
    "ListOpsSubTrees": _BuiltIn("synthetic.listops_subtrees:ListOpsSubTrees", classes=10, test_items=2_000),
    "Text": _BuiltIn("downloaded.text:Text", classes=2, test_items=25_000),
    "Retrieval": _BuiltIn("downloaded.retrieval:Retrieval", classes=2, test_items=17_437),
    "Pathfinder": _BuiltIn("synthetic.pathfinder:Pathfinder", classes=2, chance=0.5, test_items=20_000),
    "PathX": _BuiltIn("synthetic.pathfinder:PathX", classes=2, chance=0.5, test_items=20_000),
    "PathfinderSegmentation": _BuiltIn("synthetic.pathfinder_segmentation:PathfinderSegmentation", selected_on="f1"),
    "SpeechCommands": _BuiltIn("downloaded.speech:SpeechCommands", classes=35, test_items=11_005),
    "sDigits": _BuiltIn("synthetic.digits:Digits", classes=10, test_items=300),
    "npDigits": _BuiltIn("synthetic.np_digits:NpDigits", classes=10, test_items=300),
    "npCIFAR": _BuiltIn("downloaded.np_cifar:NpCifar", classes=10, test_items=10_000),
    "Shift": _BuiltIn("sampled.atomic:Shift", selected_on="r2"),
    "CumSum": _BuiltIn("sampled.atomic:CumSum", selected_on="r2"),
    "CumMax": _BuiltIn("sampled.atomic:CumMax", selected_on="r2"),
    "Reverse": _BuiltIn("sampled.atomic:Reverse", selected_on="r2"),
    "Sort": _BuiltIn("sampled.atomic:Sort", selected_on="r2"),
    "Select": _BuiltIn("sampled.atomic:Select", selected_on="r2"),
    "SelectFixed": _BuiltIn("sampled.atomic:SelectFixed", selected_on="r2"),
    "MIPS": _BuiltIn("sampled.atomic:Mips", selected_on="r2"),
    "ContextShift": _BuiltIn("sampled.atomic:ContextShift", selected_on="r2"),
    "Solve": _BuiltIn("sampled.atomic:Solve", selected_on="r2"),
    "SolveFixed": _BuiltIn("sampled.atomic:SolveFixed", selected_on="r2"),
    "Copy": _BuiltIn("sampled.recall:Copy", classes=14, test_items=1_024),
    "SelectiveCopy": _BuiltIn("sampled.recall:SelectiveCopy", classes=14, test_items=1_024),
    "MQAR": _BuiltIn("sampled.recall:Mqar", classes=4_096, test_items=1_024),
    "InductionHeads": _BuiltIn("sampled.recall:InductionHeads", classes=15, test_items=1_024),
    "Parity": _BuiltIn("sampled.recall:Parity", classes=2, test_items=1_024),
    "TeacherStudent": _BuiltIn("sampled.teacher:TeacherStudent", selected_on="nmse"),
    "sSource": _BuiltIn("synthetic.source_code:SourceCode", selected_on="bits_per_byte"),
    "PG19": _BuiltIn("downloaded.pg19:PG19", selected_on="bits_per_byte"),
    "PG19Tokens": _BuiltIn("downloaded.pg19:PG19Tokens", selected_on="cross_entropy"),
}

IMPORTED = "imported"
"""The setting that only data of users' own arrays have."""
OF_PLUG_IN = "--load FILE if it is a task of your own"
"""A hint for an unknown task."""


def _make(path: str) -> Task:
    task: Task = pkgutil.resolve_name(f"lrurun.data.{path}")()
    return task


TASKS: Registry[Task] = plugins.registry("task", {name: partial(_make, path) for name, (path, *_) in _BUILT_IN.items()})
"""All tasks by name, plug-ins last; a task is imported when it is asked for."""


def is_built_in(name: str) -> bool:
    """Whether a task comes with lrurun."""
    return name in _BUILT_IN


def selected_on(name: str) -> Metric:
    """The metric that selects the models of a task, without importing lrurun's own: its chance may be unknown."""
    if TASKS.is_imported(name):
        return TASKS[name].metric
    # a plug-in that has not been imported is taken to be selected on accuracy
    built_in = _BUILT_IN.get(name, _BuiltIn(""))
    metric = METRICS[built_in.selected_on]
    return metric if built_in.chance is None else structs.replace(metric, chance=built_in.chance)


def metric_with_chance(name: str) -> Metric:
    """The metric that selects the models of a task, with the score of chance, without importing lrurun's own."""
    if not is_built_in(name) or TASKS.is_imported(name):
        return TASKS[name].metric
    metric, classes = METRICS[_BUILT_IN[name].selected_on], _BUILT_IN[name].classes
    return metric if classes is None else structs.replace(metric, chance=1 / classes)


def test_items(name: str) -> int | None:
    """The number of test items of a task, without importing lrurun's own; None where it bounds no error."""
    if is_built_in(name):
        return _BUILT_IN[name].test_items
    task = TASKS[name]
    return task.sizes(task.options()).get("test")


def metrics() -> dict[str, Metric]:
    """The metrics of lrurun and of the plug-ins that are loaded, by name."""
    by_name = dict(METRICS)
    for task in TASKS:
        if task not in _BUILT_IN:
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
        from lrurun.data import own_array_task

        return own_array_task.make(name, data, where or f"data of {name}")
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

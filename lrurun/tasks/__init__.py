"""Data sets with a question: names, preparation, arrays. No jax here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lrurun import strict
from lrurun.errors import UsageError, hint_for
from lrurun.tasks.base import Options, Task
from lrurun.tasks.digits import Digits
from lrurun.tasks.images import Image, SCifar
from lrurun.tasks.listops import ListOps
from lrurun.tasks.pathfinder import Pathfinder, PathX
from lrurun.tasks.retrieval import Retrieval
from lrurun.tasks.speech import SpeechCommands
from lrurun.tasks.text import Text

_ALL = (SCifar(), Image(), ListOps(), Text(), Retrieval(), Pathfinder(), PathX(), SpeechCommands(), Digits())

TASKS: dict[str, Task] = {task.name: task for task in _ALL}


def get(name: str) -> Task:
    """The task of that name.

    Raises:
        UsageError: with the nearest known name.
    """
    if name not in TASKS:
        raise UsageError(f"unknown task {name!r}", hint_for(name, TASKS, "tasks"))
    return TASKS[name]


def options_of(task: Task, data: Mapping[str, Any]) -> Options:
    """The settings in a run's `data` table, which holds the version beside them.

    Raises:
        UsageError: settings that this version does not know.
    """
    settings = {name: value for name, value in data.items() if name != "version"}
    return strict.convert(settings, task.options, f"data of {task.name}")

"""Data sets with a question: names, preparation, arrays. No jax here."""

from __future__ import annotations

from lrurun.errors import UsageError, hint_for
from lrurun.tasks.base import Task
from lrurun.tasks.digits import Digits

TASKS: dict[str, Task] = {task.name: task for task in (Digits(),)}


def get(name: str) -> Task:
    """The task of that name.

    Raises:
        UsageError: with the nearest known name.
    """
    if name not in TASKS:
        raise UsageError(f"unknown task {name!r}", hint_for(name, TASKS, "tasks"))
    return TASKS[name]

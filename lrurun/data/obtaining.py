"""What to do about data that are missing, or older than the file of their task: hints and notes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lrurun import plugins
from lrurun.data.task import Task
from lrurun.errors import LrurunError

RECIPES: dict[str, str] = {}
"""Task of a plug-in -> the recipe with which this process uses it, for messages."""


def missing(task: Task, where: Path, arguments: str = "") -> LrurunError:
    """The error for data that are not in the folder `where`; `arguments` are those of a command that prepares them."""
    hint = task.restore or f"run: lrurun data prepare {arguments or arguments_of(task, where)}"
    return LrurunError(f"{where}: there are no prepared data for {task.name}", hint)


def how_to_get(task: Task, where: Path) -> str:
    """A hint for users who have a copy; for authors, where the task has no way to get its data."""
    if not task.wanted:
        return f"define offline() in the class of task {task.name}, or find(), with `wanted`, which describes a copy"
    return (
        f"if you have a copy: lrurun data prepare {arguments_of(task, where)} --from PATH, where PATH is {task.wanted}"
    )


def arguments_of(task: Task, where: Path) -> str:
    """The arguments of `lrurun data prepare` for a folder: one with other data is named `<task>-<profile>`.

    A plug-in's task is named by its recipe and its file.
    """
    profile = where.name.removeprefix(task.name).removeprefix("-")
    source = plugins.source_of("task", task.name)
    recipe = shlex.quote(RECIPES.get(task.name, "RECIPE.toml"))
    named = f"{recipe} --load {shlex.quote(source.shown)}" if source else task.name
    return f"{named} --profile {profile}" if profile else named


def edit(task: Task, table: Mapping[str, Any], where: Path) -> str | None:
    """A note if the file of a plug-in's task has changed since its data were prepared, and its version has not."""
    if table.get("code", "") == task.code:
        return None
    source = plugins.source_of("task", task.name)
    return (
        f"{source.shown if source else task.name} has changed since {where} was prepared, but not its version "
        f"{task.version!r}: if its data are others now, change the version, "
        f"or {again(task, where)}"
    )


def again(task: Task, where: Path) -> str:
    """The command that replaces prepared data, as a hint."""
    return f"run: lrurun data prepare {arguments_of(task, where)} --force"

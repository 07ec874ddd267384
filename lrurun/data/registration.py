"""Tasks of plug-ins: `lrurun.task`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from lrurun import console, plugins
from lrurun.data.task import Task
from lrurun.errors import UsageError

C = TypeVar("C", bound=type)


@overload
def task(name: str) -> Callable[[C], C]: ...
@overload
def task(name: C) -> C: ...
def task(name: str | C) -> Callable[[C], C] | C:
    """Registers a subclass of `lrurun.Task` under `name`; a class decorator.

    `@lrurun.task("name")`, or `@lrurun.task` with the name in the class's attribute `name`.

    Raises:
        UsageError: a name that is taken or missing, or two names; another class, abstract methods, attributes that are
            missing.
    """
    return plugins.decorator(name, _register)


def _register(name: str, cls: Any) -> Any:
    own = vars(cls).get("name", name) if isinstance(cls, type) else name
    if own != name:
        raise UsageError(f"task {name!r}: its attribute name is {own!r}", "use one name, or leave one of them out")

    def made(source: plugins.Source) -> Task:
        for attribute, type_ in (("title", str), ("version", str), ("classes", int)):
            if not isinstance(getattr(cls, attribute, None), type_):
                raise UsageError(f"task {name!r}: has no {attribute}", f"add {attribute}, as lrurun.Task describes it")
        cls.name = name
        task: Task = cls()
        task.code = source.sha256
        return task

    plugins.register("task", name, made, cls, Task, console.warn)
    return cls

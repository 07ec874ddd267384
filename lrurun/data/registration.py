"""Tasks of plug-ins: `lrurun.task`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar, overload

from lrurun import plugins
from lrurun.data import tasks  # noqa: F401  it has the registry
from lrurun.data.metric import OF_CLASSES, OF_VALUES, Mean, Metric
from lrurun.data.task import Task
from lrurun.errors import UsageError, hint_for

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
            missing; metrics that cannot be computed, or whose names are taken.
    """
    return plugins.decorator(name, _register)


def _register(name: str, cls: Any) -> Any:
    declared = vars(cls).get("name", name) if isinstance(cls, type) else name
    if declared != name:
        raise UsageError(f"task {name!r}: its attribute name is {declared!r}", "use one name, or leave one of them out")

    def create(source: plugins.Source) -> Task:
        for attribute, type_ in (("title", str), ("version", str), ("classes", int)):
            if not isinstance(getattr(cls, attribute, None), type_):
                raise UsageError(f"task {name!r}: has no {attribute}", f"add {attribute}, as lrurun.Task describes it")
        cls.name = name
        task: Task = cls()
        task.code = source.sha256
        _check_metrics(task)
        return task

    plugins.register("task", name, create, cls, Task)
    return cls


def _check_metrics(task: Task) -> None:
    """Refuse metrics of a task that cannot be computed, or named in a ledger."""
    where = f"task {task.name!r}"
    metrics = list(task.metrics)
    if not metrics or not all(isinstance(metric, Metric) for metric in metrics):
        shown = [type(metric).__name__ for metric in metrics]
        raise UsageError(f"{where}: metrics are {shown}", "instances of lrurun.data.metric.Metric: metrics = (metric,)")
    if metrics[0].name != task.metric.name:
        raise UsageError(
            f"{where}: metrics begins with {metrics[0].name!r}, metric is {task.metric.name!r}",
            "the first one selects the model: write metric first",
        )
    names = [metric.name for metric in metrics]
    for metric in metrics:
        label = f"{where}, metric {metric.name!r} ({type(metric).__name__})"
        if metric.name == "loss" or not re.fullmatch(r"[A-Za-z][\w.-]*", metric.name, re.ASCII):
            raise UsageError(
                f"{label}: expected a name of letters, digits, '.', '_' and '-'; the name loss is taken",
                'as in: name: str = "top_two"',
            )
        if names.count(metric.name) > 1:
            raise UsageError(f"{label}: two metrics have this name", "give one of them another name")
        if type(metric).value is Metric.value:
            raise UsageError(f"{label}: defines no value", "def value(self, sums): returns the score as a float")
        if isinstance(metric, Mean) and type(metric).each is Mean.each:
            raise UsageError(f"{label}: defines no each", "def each(self, outputs, labels): returns a number per label")
        for name in metric.sums:
            if name not in OF_CLASSES | OF_VALUES:
                hint = hint_for(name, sorted(OF_CLASSES | OF_VALUES), "sums")
                raise UsageError(f"{label}: sums has an unknown name {name!r}", f"{hint}; or define measure")

"""The rules between the tables of a ladder, which its types do not express."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from lrurun import paths, plugins
from lrurun.config.settings import check_path, settings
from lrurun.errors import UsageError, hint_for

if TYPE_CHECKING:
    from lrurun.config.documents import Grid, Ladder
    from lrurun.data.metric import Metric
    from lrurun.data.task import Task


def check(ladder: Ladder) -> None:
    """Refuse a ladder whose rungs, speeds, claims or grid are inconsistent; see `documents.load_ladder`."""
    _check_rungs(ladder)
    _check_speeds(ladder)
    _check_claims(ladder)
    if ladder.grid is not None:
        _check_cells(ladder.grid, list(ladder.bases), f"{ladder.path} [grid]")


def _check_rungs(ladder: Ladder) -> None:
    where = ladder.path
    if not ladder.rungs:
        raise UsageError(f"{where}: a ladder needs at least one [[rung]]", "add one: name, title, change")
    seen: list[str] = []
    for rung in ladder.rungs:
        source = f"{where}, rung {rung.name}"
        if rung.name in seen:
            raise UsageError(f"{source}: there are two rungs of this name", "rename one of them")
        if rung.root and rung.on is not None:
            raise UsageError(
                f"{source}: has root = true and on = {rung.on!r}", "remove one of them: a root has no base"
            )
        if rung.on is not None and rung.on not in seen:
            wrong = f"unknown rung {rung.on!r}"
            if rung.on == rung.name:
                wrong = "a rung cannot change itself"
            elif rung.on in ladder.bases:
                wrong = f"{rung.on} does not come before it"
            raise UsageError(f"{source}, on: {wrong}", hint_for(rung.on, seen, "rungs before it"))
        seen.append(rung.name)
        if not rung.change and not rung.tunes:
            raise UsageError(
                f"{source}: declares no change",
                'say what it changes: change = { "model.recurrence.activation" = "identity" }, or tunes = ["path"]',
            )
        settings(rung.change, source, within=("model", "optim", "train"))
        for path in rung.tunes:
            check_path(path, source, within=("model", "optim"))
        if rung.takes:
            ladder.scopes(rung)


def _check_speeds(ladder: Ladder) -> None:
    rungs = list(ladder.bases)
    seen: set[tuple[str | None, ...]] = set()
    for speed in ladder.speeds:
        source = f"{ladder.path}, speed of {speed.system!r}"
        if speed.rung is not None and speed.rung not in rungs:
            raise UsageError(f"{source}: unknown rung {speed.rung!r}", hint_for(speed.rung, rungs, "rungs"))
        for task in speed.steps_per_second:
            one = (speed.rung or speed.system, speed.source, speed.device, task)
            if one in seen:
                raise UsageError(f"{source}: {task} is listed twice", "remove one of them")
            seen.add(one)


def _check_claims(ladder: Ladder) -> None:
    rungs = list(ladder.bases)
    texts = [claim.text for claim in ladder.claims]
    for claim in ladder.claims:
        source = f"{ladder.path}, claim {claim.text!r}"
        if texts.count(claim.text) > 1:
            raise UsageError(f"{source}: two claims have this text", "say in each what distinguishes it")
        for name in (claim.rung, claim.than):
            if name is not None and name not in rungs:
                raise UsageError(f"{source}: unknown rung {name!r}", hint_for(name, rungs, "rungs"))
        if claim.rung == claim.than:
            raise UsageError(f"{source}: compares {claim.rung} with itself", "name another rung in `than`")
        kind = f'kind = "{claim.kind}"'
        if claim.kind.endswith("-chance") and claim.than is not None:
            raise UsageError(f"{source}: {kind} compares with chance, not with {claim.than}", "remove `than`")
        if not claim.kind.endswith("-chance") and claim.than is None:
            raise UsageError(f"{source}: {kind} needs another rung", 'name it: than = "RUNG"')
        if claim.kind in ("better", "faster") and (claim.margin is not None or claim.margins):
            hint = 'remove it, or set kind = "no-worse" or "equal"'
            raise UsageError(f"{source}: {kind} has no margin", hint)
        if claim.kind == "faster" and claim.metric:
            raise UsageError(f"{source}: {kind} is about speed, not about a metric", "remove `metric`")
        if claim.kind == "faster" and (claim.min_length, claim.depth) != (None, None):
            hint = "remove `min_length` and `depth`: `lrurun bench` measures speed at the sizes of its tasks"
            raise UsageError(f"{source}: {kind} has no scope", hint)
        if claim.kind in ("no-worse", "equal", "at-chance") and claim.margin is None:
            raise UsageError(f"{source}: {kind} needs a margin", "add one, as in margin = 0.005")
        for task in claim.margins:
            if claim.tasks and task not in claim.tasks:
                hint = hint_for(task, claim.tasks, "its tasks")
                raise UsageError(f"{source}, margins: {task!r} is not among the tasks of the claim", hint)


def named_tasks(ladder: Ladder) -> Iterator[tuple[str, str]]:
    """Where the ladder names a task, and which."""
    for rung in ladder.rungs:
        yield from ((f"rung {rung.name}, published", task) for task in rung.published)
    for speed in ladder.speeds:
        yield from ((f"speed of {speed.system!r}, steps_per_second", task) for task in speed.steps_per_second)
    for claim in ladder.claims:
        yield from ((f"claim {claim.text!r}, tasks", task) for task in claim.tasks)
        yield from ((f"claim {claim.text!r}, margins", task) for task in claim.margins)


def check_tasks(ladder: Ladder) -> None:
    """Refuse unknown tasks, once the plug-ins of the command are loaded.

    Those of installed packages and of recipes here are known without an import.
    """
    # Documents are also read without tasks, to complete names quickly.
    from lrurun import data as tasks

    for where, name in named_tasks(ladder):
        if name in tasks.TASKS:
            check_metrics(ladder, tasks.TASKS[name])
        if name in tasks.TASKS or name in ladder.other_tasks:
            continue
        known = dict.fromkeys([*tasks.TASKS, *plugins.installed_names(), *paths.names("recipes"), *ladder.other_tasks])
        if name not in known:
            hint = (
                f"{hint_for(name, known, 'tasks')}; {tasks.OF_PLUG_IN}, other_tasks = [{name!r}] if only a paper has it"
            )
            raise UsageError(f"{ladder.path}, {where}: unknown task {name!r}", hint)


def check_metrics(ladder: Ladder, task: Task, profiles: Collection[str] | None = None) -> None:
    """Refuse what a ladder says about scores on a task, if that does not fit the metrics that the task declares.

    With `profiles`, those that a recipe of the task has, published scores must be for one of them.
    """
    for claim in ladder.claims:
        if not claim.is_about(task.name) or claim.kind == "faster":
            continue
        source = f"{ladder.path}, claim {claim.text!r}"
        metric = _claimed(claim.metric or task.metric.name, task, f"{source}, metric")
        if metric.chance is None and claim.kind.endswith("-chance"):
            raise UsageError(
                f'{source}: kind = "{claim.kind}" needs a score of chance on {task.name}',
                f"declare it in the metric of {task.name} (chance = ...), or restrict the claim to other tasks",
            )
        _check_share(claim.margin_on(task.name), metric, f"{source}, margin")
    for rung in ladder.rungs:
        for k, one in enumerate(rung.published.get(task.name, ())):
            source = f"{ladder.path}, rung[{rung.name}].published.{task.name}[{k}]"
            _check_metric(one.metric, task, f"{source}.metric")
            if one.profile and profiles is not None and one.profile not in profiles:
                hint = hint_for(one.profile, profiles, f"profiles of {task.name}")
                raise UsageError(f"{source}.profile: unknown profile {one.profile!r}", hint)
            _check_share(one.value, task.metric, f"{source}.value")
            _check_share(one.stderr, task.metric, f"{source}.stderr")


def _claimed(name: str, task: Task, source: str) -> Metric:
    """The metric that a claim names, see `Claim.metric`."""
    from lrurun.data.metric import ESCAPE, named
    from lrurun.data.task import Task

    found = named(name, task.metrics)
    if found is not None and "@" in name and type(task).settings is Task.settings:
        raise UsageError(f"{source}: {task.name} has no further tests, found {name!r}", "leave out what follows the @")
    if found is None:
        if name == ESCAPE:
            hint = f"declare escape = ... in the metric of {task.name}, or restrict the claim to other tasks"
            raise UsageError(f"{source}: {task.name} declares no plateau, found {name!r}", hint)
        hint = hint_for(name, [one.name for one in task.metrics], f"metrics of {task.name}")
        raise UsageError(f"{source}: {task.name} has no metric {name!r}", hint)
    return found


def _check_metric(name: str, task: Task, source: str) -> None:
    """Refuse published scores that cannot be printed beside those of the metric that selects the model."""
    metrics = {metric.name: metric for metric in task.metrics}
    if name and name not in metrics:
        hint = hint_for(name, metrics, f"metrics of {task.name}")
        raise UsageError(f"{source}: {task.name} has no metric {name!r}", hint)
    if name and metrics[name].scale != task.metric.scale:
        raise UsageError(
            f"{source}: {name} has another scale than {task.metric.name}, which selects the model",
            "leave this score out",
        )


def _check_share(value: float | None, metric: Metric, source: str) -> None:
    """Refuse a score in per cent, where the metric is a fraction that is only printed as such."""
    if metric.symbol == "%" and value is not None and not 0 <= value <= 1:
        bound = ">= 0" if value < 0 else "<= 1"
        hint = f"{metric.name.replace('_', ' ')} is a fraction here: 0.699 for 69.9 %"
        raise UsageError(f"{source}: expected a number {bound}, found {value:g}", hint)


def _check_cells(grid: Grid, rungs: list[str], where: str) -> None:
    for column in grid.columns:
        if grid.columns.count(column) > 1:
            raise UsageError(f"{where}, columns: {column!r} is listed twice", "rename one of them")
    cells: dict[str, str] = {}
    for row, names in grid.rows.items():
        source = f"{where}, row {row!r}"
        if len(names) != len(grid.columns):
            raise UsageError(
                f"{source}: expected a rung for each of the {len(grid.columns)} columns, found {len(names)}",
                'leave a cell empty with ""',
            )
        for name, column in zip(names, grid.columns, strict=True):
            if name and name not in rungs:
                raise UsageError(f"{source}, column {column!r}: unknown rung {name!r}", hint_for(name, rungs, "rungs"))
            if name in cells:
                raise UsageError(
                    f"{source}, column {column!r}: {name} is in {cells[name]} already", "remove one of them"
                )
            if name:
                cells[name] = f"row {row!r}, column {column!r}"
    for name in rungs:
        if name not in cells:
            raise UsageError(f"{where}: rung {name} is in no cell", "add it to a row, or remove [grid]")

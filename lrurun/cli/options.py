"""Arguments and options that several commands share, and how they complete."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Literal, Optional

import typer

from lrurun import paths
from lrurun.errors import LrurunError


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    """Those that begin so; the shell evaluates what completes a word, so that nothing but plain names is offered."""
    return [name for name in names if name.startswith(incomplete) and re.fullmatch(r"[\w.+-]+", name, re.ASCII)]


def _tasks(incomplete: str) -> list[str]:
    return _beginning(incomplete, paths.names("recipes"))


def _ladders(incomplete: str) -> list[str]:
    return _beginning(incomplete, paths.names("ablations"))


def _rungs(context: typer.Context, incomplete: str) -> list[str]:
    from lrurun.catalog import read_ladder

    with suppress(LrurunError):
        ladder = read_ladder(context.params.get("ladder") or "lru")
        return _beginning(incomplete, (rung.name for rung in ladder.rungs))
    return []


def _profiles(context: typer.Context, incomplete: str) -> list[str]:
    from lrurun.catalog import read_recipe

    with suppress(LrurunError):
        # a line that ends in an option without its value is not parsed: the words are left in args
        recipe = read_recipe(context.params.get("task") or next(iter(context.args), ""))
        return _beginning(incomplete, recipe.profile)
    return []


def complete_runs(context: typer.Context, incomplete: str) -> list[str]:
    """The ids of runs of the ledger."""
    return _in_ledger(context, "runs", incomplete)


def _instances(context: typer.Context, incomplete: str) -> list[str]:
    return _in_ledger(context, "ladders", incomplete)


def _in_ledger(context: typer.Context, table: Literal["runs", "ladders"], incomplete: str) -> list[str]:
    from lrurun.ledger import completion

    with suppress(LrurunError):
        path = paths.places(context.find_root().params.get("ledger")).ledger
        return _beginning(incomplete, completion.names(path, table, incomplete))
    return []


def _condition(incomplete: str) -> list[str]:
    from lrurun import where

    # what stands before the name stays: the shell replaces the whole word
    before, name = re.fullmatch(r"(.*?)([a-zA-Z][\w./-]*)?", incomplete, re.DOTALL).groups("")  # type: ignore[union-attr]
    return [before + known for known in where.names() if known.startswith(name)]


def _tasks_and_runs(context: typer.Context, incomplete: str) -> list[str]:
    return _tasks(incomplete) + complete_runs(context, incomplete)


Task = Annotated[str, typer.Argument(metavar="TASK", help="A task, or the path of a recipe.", autocompletion=_tasks)]
TaskOrAll = Annotated[
    Optional[str],
    typer.Argument(metavar="TASK", help="A task, or the path of a recipe; or --all.", autocompletion=_tasks),
]
LadderName = Annotated[
    str, typer.Option("--ladder", metavar="NAME", help="A ladder, or the path of one.", autocompletion=_ladders)
]
ProfileName = Annotated[
    Optional[str],
    typer.Option("--profile", metavar="P", help="A named shrink of the recipe.", autocompletion=_profiles),
]
Sets = Annotated[
    Optional[list[str]],
    typer.Option("--set", metavar="K=V", help="Set a value, as in optim.lr=0.002; may be repeated."),
]
Rungs = Annotated[
    Optional[list[str]],
    typer.Option("--rung", metavar="R", help="Only this rung; may be repeated.", autocompletion=_rungs),
]
Tune = Annotated[bool, typer.Option("--tune", help="Choose the recipe's grid values per rung on validation first.")]
Seeds = Annotated[Optional[str], typer.Option("--seeds", metavar="S", help="A number of seeds, or a list: 0,4,7.")]
Jobs = Annotated[
    Optional[int], typer.Option("--jobs", metavar="N", min=1, max=4096, help="Worker processes [cores / threads].")
]
TimeLimit = Annotated[
    Optional[str],
    typer.Option(
        "--time-limit",
        metavar="T",
        help="Save and exit with 143 within this time: 90, 45m, 1h30m, 12:00:00, 2-12:00:00.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Where = Annotated[
    Optional[str],
    typer.Option(
        "--where",
        metavar="EXPR",
        help="Only such runs, as in 'task=ListOps and val/accuracy>0.5 or optim.lr<1e-3'.",
        autocompletion=_condition,
    ),
]
Sort = Annotated[
    Optional[str],
    typer.Option(
        "--sort",
        metavar="C",
        help="By a field, result or setting; -C begins with the largest.",
        autocompletion=_condition,
    ),
]
InstanceId = Annotated[
    Optional[str],
    typer.Option(
        "--instance",
        metavar="ID",
        help="A ladder instance by its id (lrurun status --json).",
        autocompletion=_instances,
    ),
]
RunId = Annotated[
    str, typer.Argument(metavar="RUN", help="A run id, or the beginning of one.", autocompletion=complete_runs)
]
Drawn = Annotated[
    list[str],
    typer.Argument(metavar="TASK|RUN...", help="A task, or runs by their ids.", autocompletion=_tasks_and_runs),
]

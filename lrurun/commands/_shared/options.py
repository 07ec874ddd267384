"""Arguments and options that several commands share, and how they complete."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, get_args

import typer

from lrurun import paths
from lrurun.commands._shared import completing
from lrurun.config.recipe import MOST_ADDED
from lrurun.errors import LrurunError, UsageError, nearest_hint
from lrurun.report import formats


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that begin with `incomplete`. Only plain names: the shell evaluates what it completes."""
    return [name for name in names if name.startswith(incomplete) and re.fullmatch(r"[\w.+-]+", name, re.ASCII)]


def _tasks(incomplete: str) -> list[str]:
    return _beginning(incomplete, paths.names("recipes"))


def _ladders(incomplete: str) -> list[str]:
    return _beginning(incomplete, paths.names("ablations"))


def _rungs(context: typer.Context, incomplete: str) -> list[str]:
    from lrurun.config.ladder import read_ladder

    with suppress(LrurunError):
        ladder = read_ladder(context.params.get("ladder") or "lru")
        return _beginning(incomplete, (rung.name for rung in ladder.rungs))
    return []


def _profiles(context: typer.Context, incomplete: str) -> list[str]:
    from lrurun.config.recipe import read_recipe

    with suppress(LrurunError):
        # a line that ends in an option without its value is not parsed: its arguments are still in args
        recipe = read_recipe(context.params.get("task") or next(iter(context.args), ""))
        return _beginning(incomplete, recipe.profile)
    return []


def _executors(incomplete: str) -> list[str]:
    from lrurun.session import training_options

    with suppress(LrurunError):
        return _beginning(incomplete, training_options.site_names())
    return []


def _short_name(text: str) -> str:
    from lrurun.config import names

    return names.check(text, "--name")


def _given_name(text: str) -> str:
    from lrurun.config import names

    return names.check(text, "NEW")


def choice(
    name: str, values: Sequence[str], *, also: Mapping[str, str] | None = None, hints: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Settings of an option or argument that takes one of these values.

    Errors of Typer's own choices do not have the value that was found.

    Args:
        also: another spelling -> the value that it stands for.
        hints: a value that people try -> what to do instead.
    """

    def parse(text: str) -> str:
        value = (also or {}).get(text, text)
        if value not in values:
            hint = (hints or {}).get(text) or nearest_hint(text, values)
            raise UsageError(f"{name}: expected one of {', '.join(values)}, found {text!r}", hint)
        return value

    def complete(incomplete: str) -> list[str]:
        return _beginning(incomplete, values)

    metavar = "|".join(values) if name.startswith("-") else "WHAT"
    return {"metavar": metavar, "parser": parse, "autocompletion": complete}


def number(
    name: str, type_: type[float], least: float, most: float = 2**31 - 1, *, example: float = 1
) -> dict[str, Any]:
    """Settings of an option that takes a number from `least` to `most`: a whole one where `type_` is int.

    Errors of Typer's own ranges do not have the value that was found.
    """
    noun = "a whole number" if type_ is int else "a number"

    def parse(text: str) -> float:
        try:
            value = type_(text)
        except ValueError:  # of more than 4300 digits too
            expected = f"{noun} from {least} to {most}"
        else:
            if least <= value <= most:
                return value
            expected = f"{noun} of at most {most}" if value > most else f"{noun} of at least {least}"
        shortened = text if len(text) <= 40 else f"{text[:37]}..."
        raise UsageError(f"{name}: expected {expected}, found {shortened!r}", f"as in {name} {example:g}")

    return {"parser": parse}


def complete_runs(context: typer.Context, incomplete: str) -> list[str]:
    """The ids of runs of the ledger."""
    return _in_ledger(context, "runs", incomplete)


def complete_instances(context: typer.Context, incomplete: str) -> list[str]:
    """The short names of the instances of the ledger."""
    return _in_ledger(context, "ladders", incomplete)


def _in_ledger(context: typer.Context, table: Literal["runs", "ladders"], incomplete: str) -> list[str]:
    from lrurun.ledger import database

    with suppress(LrurunError):
        path = paths.places(context.find_root().params.get("ledger")).ledger
        return _beginning(incomplete, database.names_beginning(path, table, incomplete))
    return []


def _tasks_and_runs(context: typer.Context, incomplete: str) -> list[str]:
    return _tasks(incomplete) + complete_runs(context, incomplete)


Task = Annotated[str, typer.Argument(metavar="TASK", help="A task, or the path of a recipe.", autocompletion=_tasks)]
TaskOrAll = Annotated[
    Optional[str],
    typer.Argument(metavar="TASK", help="A task, or the path of a recipe.", autocompletion=_tasks),
]
LadderName = Annotated[
    Optional[str],
    typer.Option(
        "--ladder",
        metavar="NAME",
        help="A ladder, or the path of one [default: the one in the recipe, else lru].",
        autocompletion=_ladders,
    ),
]
OnlyLadder = Annotated[
    Optional[str],
    typer.Option("--ladder", metavar="NAME", help="Only this ladder, or the path of one.", autocompletion=_ladders),
]
OnLadders = Annotated[
    Optional[list[str]],
    typer.Option(
        "--ladder",
        metavar="NAME",
        help="A ladder to check a recipe on, or the path of one; repeatable.",
        autocompletion=_ladders,
    ),
]
OnlyTask = Annotated[
    Optional[str],
    typer.Argument(
        metavar="TASK", help="Only this task, or the path of a recipe, or study:NAME.", autocompletion=_tasks
    ),
]
ProfileName = Annotated[
    Optional[str],
    typer.Option("--profile", metavar="P", help="A reduced configuration of the recipe.", autocompletion=_profiles),
]
Sets = Annotated[
    Optional[list[str]],
    typer.Option(
        "--set",
        metavar="K=V",
        help="Set a value, as in optim.lr=0.002. Repeatable.",
        autocompletion=completing.settings,
    ),
]
Sweeps = Annotated[
    Optional[list[str]],
    typer.Option(
        "--sweep",
        metavar="K=V,V",
        help="An instance for each value, as --set. Repeatable: all combinations.",
        autocompletion=completing.settings,
    ),
]
By = Annotated[
    Optional[list[str]],
    typer.Option(
        "--by",
        metavar="K",
        help="One table of the instances that differ in these settings.",
        autocompletion=completing.paths,
    ),
]
Choose = Annotated[
    bool,
    typer.Option(
        "--choose",
        help="Compare the rungs at the values that validation chooses, by seeds that did not choose.",
    ),
]
CHOICE_SEEDS = 3
"""How many seeds choose, where `--choice-seeds` is not given; as in tuning."""
ChoiceSeeds = Annotated[
    int,
    typer.Option(
        "--choice-seeds",
        metavar="N",
        help="With --choose: how many of the first seeds choose.",
        **number("--choice-seeds", int, 1, 100, example=3),
    ),
]
OnlyRungs = Annotated[
    Optional[list[str]],
    typer.Option("--rung", metavar="R", help="Show only this rung. Repeatable.", autocompletion=_rungs),
]
Rungs = Annotated[
    Optional[list[str]],
    typer.Option("--rung", metavar="R", help="Only this rung. Repeatable.", autocompletion=_rungs),
]
ComparedRungs = Annotated[
    Optional[list[str]],
    typer.Option(
        "--rung",
        metavar="R",
        help="With --kind items: only this rung and its base; of two, the second compared with the first.",
        autocompletion=_rungs,
    ),
]
Tune = Annotated[bool, typer.Option("--tune", help="First choose learning rates by validation score.")]
Extend = Annotated[
    Optional[int],
    typer.Option(
        "--extend",
        metavar="N",
        help="With --tune, add up to N values to the grid of a rung, while its best one is at the edge.",
        **number("--extend", int, 0, MOST_ADDED, example=4),
    ),
]
ExtendedInstance = Annotated[
    Optional[int],
    typer.Option(
        "--extend",
        metavar="N",
        help="The ladder that was trained with this --extend.",
        **number("--extend", int, 0, MOST_ADDED, example=4),
    ),
]
TunedInstance = Annotated[bool, typer.Option("--tune", help="The ladder that was trained with --tune.")]
SetsOfInstance = Annotated[
    Optional[list[str]],
    typer.Option(
        "--set",
        metavar="K=V",
        help="The ladder that was trained with this --set. Repeatable.",
        autocompletion=completing.settings,
    ),
]
Seeds = Annotated[
    Optional[str],
    typer.Option("--seeds", metavar="S", help="Number of seeds (3 means 0,1,2), or a list: 0,4,7 or 0-4."),
]
Decide = Annotated[
    bool, typer.Option("--decide", help="Add seeds until each difference and claim is decided (12, 20).")
]
MaxSeeds = Annotated[
    Optional[int],
    typer.Option(
        "--max-seeds",
        metavar="N",
        help="With --decide: 12 or 20 seeds at most [20].",
        **number("--max-seeds", int, 1, example=12),
    ),
]
Jobs = Annotated[
    Optional[int],
    typer.Option(
        "--jobs",
        metavar="N",
        help="Worker processes [cores / threads of a run; accelerators / its devices].",
        **number("--jobs", int, 1, 4096, example=2),
    ),
]
TimeLimit = Annotated[
    Optional[str],
    typer.Option(
        "--time-limit",
        metavar="T",
        help="Save and exit within this time: 90 (seconds), 45m, 1h30m, 12:00:00.",
    ),
]
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="E[:K=V,..]",
        help="Where runs are trained: local, slurm, ray, or a table [on.NAME] of your configuration file; settings as "
        "in slurm:nodes=4,partition=gpu.",
        autocompletion=_executors,
    ),
]
Detach = Annotated[bool, typer.Option("--detach", help="Return once the job is submitted.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the plan, or the script that would be submitted.")]
OnNode = Annotated[bool, typer.Option("--on-node", hidden=True, help="For executors: leave when no run is queued.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Plain = Annotated[bool, typer.Option("--plain", help="Draw without title and caption, as for a paper.")]
FigureWidth = Annotated[
    Literal["column", "page"],
    typer.Option(
        "--width",
        help="How wide to draw: a column of a paper (3.3 inches), or both (6.75).",
        **choice("--width", ("column", "page")),
    ),
]
PlainTable = Annotated[
    bool,
    typer.Option("--plain", help="With LaTeX: mean ± error, best in bold, marks for verdicts, as a paper has tables."),
]
Caption = Annotated[
    Optional[str], typer.Option("--caption", metavar="TEXT", help="With LaTeX: begin the caption with this text.")
]
Label = Annotated[
    Optional[str], typer.Option("--label", metavar="TEXT", help="With LaTeX: the label, as in tab:ablation.")
]
TableWidth = Annotated[
    Literal["column", "page"],
    typer.Option(
        "--width",
        help="With LaTeX: a column of a page in two columns, or both.",
        **choice("--width", ("column", "page")),
    ),
]
Where = Annotated[
    Optional[str],
    typer.Option(
        "--where",
        metavar="EXPR",
        help="A condition, as in 'task=ListOps and val/accuracy>0.5 or optim.lr<1e-3'.",
        autocompletion=completing.condition,
    ),
]
Sort = Annotated[
    Optional[str],
    typer.Option(
        "--sort",
        metavar="C",
        help="Sort by a field, result or setting; -C for descending order.",
        autocompletion=completing.condition,
    ),
]
Columns = Annotated[
    Optional[list[str]],
    typer.Option(
        "--columns",
        metavar="C,C",
        help="These columns: fields, results, settings.",
        autocompletion=completing.names,
    ),
]
GroupBy = Annotated[
    Optional[list[str]],
    typer.Option(
        "--by",
        metavar="C,C",
        help="Groups of runs with the same values: n, mean, standard error.",
        autocompletion=completing.names,
    ),
]
GroupMetric = Annotated[
    Optional[str],
    typer.Option(
        "--metric",
        metavar="M",
        help="With --by: the mean of this result [test score].",
        autocompletion=completing.condition,
    ),
]
RunsFormat = Annotated[
    formats.RunsFormat,
    typer.Option(
        "--format",
        help="The output format.",
        **choice("--format", get_args(formats.RunsFormat)),
    ),
]
Instance = Annotated[
    Optional[str],
    typer.Option(
        "--instance",
        metavar="NAME",
        help="The ladder instance of this short name, or id, as lrurun status shows them.",
        autocompletion=complete_instances,
    ),
]
OnlyInstance = Annotated[
    Optional[str],
    typer.Option(
        "--instance",
        metavar="NAME",
        help="Only the ladder instance of this short name, or id.",
        autocompletion=complete_instances,
    ),
]
OnlyInstances = Annotated[
    Optional[list[str]],
    typer.Option(
        "--instance",
        metavar="NAME",
        help="Only the ladder instance of this short name, or id. Repeatable.",
        autocompletion=complete_instances,
    ),
]
SomeInstances = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="INSTANCE ...",
        help="Ladder instances by short name, or id, as lrurun status shows them.",
        autocompletion=complete_instances,
        show_default=False,
    ),
]
InstancesOfRuns = Annotated[
    Optional[list[str]],
    typer.Option(
        "--instance",
        metavar="NAME",
        help="All runs of the ladder instance of this short name, or id. Repeatable.",
        autocompletion=complete_instances,
    ),
]
NewName = Annotated[
    Optional[str],
    typer.Option(
        "--name", metavar="NAME", help="The short name of the instance [of files and options].", parser=_short_name
    ),
]
InstanceName = Annotated[
    str,
    typer.Argument(
        metavar="INSTANCE", help="The short name or the id of a ladder instance.", autocompletion=complete_instances
    ),
]
GivenName = Annotated[str, typer.Argument(metavar="NEW", help="The short name that it gets.", parser=_given_name)]
AllUsers = Annotated[bool, typer.Option("--all-users", help="On a server: also what other users have requested.")]
OptionalRunId = Annotated[
    Optional[str],
    typer.Argument(metavar="RUN", help="The id of a run, or its first characters.", autocompletion=complete_runs),
]
SomeRunIds = Annotated[
    Optional[list[str]],
    typer.Argument(metavar="RUN ...", help="Ids of runs, or their first characters.", autocompletion=complete_runs),
]
TaskOrRuns = Annotated[
    Optional[list[str]],
    typer.Argument(metavar="TASK|RUN ...", help="A task, or runs by their ids.", autocompletion=_tasks_and_runs),
]
Limit = Annotated[
    Optional[int],
    typer.Option(
        "--limit",
        metavar="N",
        help="At most N; 0 is all [terminal: 50, else all].",
        **number("--limit", int, 0, example=20),
    ),
]
Format = Annotated[
    formats.Format,
    typer.Option(
        "--format",
        help="The output format.",
        **choice("--format", get_args(formats.Format)),
    ),
]
OutFile = Annotated[
    Optional[Path],
    typer.Option(
        "--out", metavar="FILE", help=f"Write to a file, whose ending is the format: {', '.join(formats.ENDINGS)}."
    ),
]

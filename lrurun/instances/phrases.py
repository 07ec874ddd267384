"""Phrases on what a plan needs: an accelerator, data that are missing, more test items, another import; and on hidden
instances."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from lrurun import paths
from lrurun.console import clean
from lrurun.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lrurun.config import planning
    from lrurun.config.recipe import Recipe
    from lrurun.config.schema import Config
    from lrurun.ledger.values import LadderInstance
    from lrurun.paths import Places


def scale(plan: planning.Plan) -> str | None:
    """The time of a recipe at the paper's scale on the device that it names, and whether this machine has one; None for
    profiles, and for recipes that need no accelerator."""
    from lrurun import machine

    about, reduced = plan.recipe.about, "laptop"
    has_reduced = reduced in plan.recipe.profile
    if plan.profile is not None or "CPU" in about.device or not (about.hours or has_reduced):
        return None
    hours = f"about {about.hours:g} hours " if about.hours else ""
    text = f"the plain recipe of {plan.recipe.task} is of the paper's scale, {hours}on {about.device}"
    if machine.accelerators():
        return text
    return f"{text}, and this machine has no accelerator" + f"; --profile {reduced} is reduced" * has_reduced


def parts_of_batches(configs: Mapping[str, Config]) -> str | None:
    """Of which rungs the steps depend on the parts of a batch, by the configurations of all; None if of none."""
    from lrurun.config.schema import RunConfig

    seen = {
        name: config.sees_parts
        for name, config in configs.items()
        if isinstance(config, RunConfig) and config.depends_on_parts
    }
    if not seen:
        return None
    what = list(dict.fromkeys(part for parts in seen.values() for part in parts))
    rungs = "" if len(seen) == len(configs) else f" of {clean(', '.join(seen))}"
    return (
        f"with optim.accumulate, {' and '.join(what)}{rungs} {'sees' if what == ['batch norm'] else 'see'} one part of "
        "a batch at a time, so that a step is not that of the whole batch"
    )


def hidden(instance: LadderInstance) -> str:
    """That an instance is hidden, and how it is shown again."""
    name = instance.short_name
    return f"instance {name} is hidden: lists leave it out; {show_again(name)}"


def show_again(name: str = "NAME") -> str:
    """The command that takes back that an instance is hidden, and what it does."""
    return f"lrurun ledger hide {name} --undo shows it again"


def missing_data(places: Places, plan: planning.Plan) -> str | None:
    """What the data of a plan need that are missing; None if nothing has to be obtained."""
    from lrurun.data import task_data

    if not plan.is_of_models:  # programs have data of their own
        return None
    return task_data.to_obtain(plan.task, plan.options, places.data / plan.data_name)


def read_again(recipe: Recipe) -> str:
    """The command that imports the runs of a recipe again; empty for those that lrurun makes."""
    if recipe.imported is None:
        return ""
    return clean(shlex.join(["lrurun", "import", paths.shown(Path(recipe.path)), *paths.place_options()]))


def not_trained_here(name: str, recipe: Recipe) -> UsageError:
    """The error of what would train imported runs; `lrurun report` finds them by this name."""
    report = clean(shlex.join(["lrurun", "report", *shlex.split(name), *paths.place_options()]))
    return UsageError(
        f"{clean(name)}: these runs were imported, and cannot be trained here",
        f"{report} compares them; {read_again(recipe)} reads them again",
    )


def few_test_items(plan: planning.Plan) -> str | None:
    """How far the choice of few test items moves a score, of imported arrays; None where there are enough, for other
    tasks, and for the profile whose scores mean nothing."""
    if not plan.is_of_models or plan.profile == "smoke":
        return None
    from lrurun.data.own_array_task import OwnArrayTask

    return plan.task.few_items() or None if isinstance(plan.task, OwnArrayTask) else None

"""Phrases on what a plan needs: an accelerator, data that are missing, more test items."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lrurun.config import planning
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


def missing_data(places: Places, plan: planning.Plan) -> str | None:
    """What the data of a plan need that are missing; None if nothing has to be obtained."""
    from lrurun.data import task_data

    if plan.kind == "program":  # which has data of its own
        return None
    return task_data.to_obtain(plan.task, plan.options, places.data / plan.data_name)


def few_test_items(plan: planning.Plan) -> str | None:
    """How far the choice of few test items moves a score, of imported arrays; None where there are enough, for other
    tasks, and for the profile whose scores mean nothing."""
    if plan.kind == "program" or plan.profile == "smoke":
        return None
    from lrurun.data.imported import Imported

    return plan.task.few_items() or None if isinstance(plan.task, Imported) else None

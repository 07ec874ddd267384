"""Find the instance of a plan in a ledger, or say what the ledger has instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lrurun.console import clean
from lrurun.errors import NotFoundError, plural
from lrurun.instances import phrases

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.config.runs import InstanceSpec
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance


def find(ledger: Ledger, plan: planning.Plan) -> LadderInstance | None:
    """The instance of a plan; None if the ledger does not have it."""
    return find_same(ledger, plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)


def find_same(ledger: Ledger, name: str, task: str, profile: str | None, spec: InstanceSpec) -> LadderInstance | None:
    """The instance of these values, of a ladder or a study; None if the ledger does not have it."""
    for instance in ledger.ladders(name, task):
        if (instance.profile, instance.spec) == (profile, spec):
            return instance
    return None


def require(ledger: Ledger, plan: planning.Plan, command: str) -> LadderInstance:
    """The instance of a plan, which `command` trains, unless it was imported.

    Raises:
        NotFoundError: the ledger does not have it.
    """
    if (instance := find(ledger, plan)) is not None:
        return instance
    command = phrases.read_again(plan.recipe) or command
    requested = plan.identity.description
    if sentence := other_versions(plan, ledger):
        raise NotFoundError(
            f"{requested}: not in this ledger with these documents; {sentence}", f"name one of these, or run: {command}"
        )
    forgotten = _forgotten(ledger, plan)
    raise NotFoundError(f"{requested}: not in this ledger{forgotten}", recorded_hint(ledger, plan.recipe.task, command))


def _forgotten(ledger: Ledger, plan: planning.Plan) -> str:
    """The end of a sentence on the instance of a plan that was forgotten; empty for another one."""
    from lrurun.ledger.removed import was_forgotten
    from lrurun.ledger.values import instance_key

    key = instance_key(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
    for removal in reversed(ledger.removals()):
        for instance in removal.instances:
            if instance.key == key:
                return f"; {clean(instance.name)} {was_forgotten(removal)}"
    return ""


def recorded_hint(ledger: Ledger, task: str, command: str) -> str:
    """The newest instances on a task; without one, the command that trains it."""
    instances = [
        f"{title(instance)} (--instance {instance.short_name})" for instance in reversed(ledger.ladders(None, task))
    ]
    more = "; lrurun status lists all" if len(instances) > 3 else ""
    return f"this ledger has: {'; '.join(instances[:3])}{more}" if instances else f"run: {command}"


def other_versions(plan: planning.Plan, ledger: Ledger) -> str:
    """A phrase on the instances with results that were trained with another ladder or recipe, or with other plug-ins,
    by a command that looks the same; empty if there are none."""
    from lrurun.judging import design_record
    from lrurun.ledger.values import FINISHED

    phrases = []
    for instance in ledger.ladders(plan.ladder.name, plan.recipe.task):
        spec = instance.spec
        same = (instance.profile, spec.set, spec.tune, spec.extend) == (
            plan.profile, plan.changes, plan.tune, plan.extend,
        )  # fmt: skip
        if same and spec != plan.spec:
            counts = ledger.state_counts(instance.key)
            if finished := sum(counts.get(state, 0) for state in FINISHED):
                design = design_record.verdict_counts(instance, ledger)
                more = f", sequential design: {design}" if design else ""
                phrases.append(f"--instance {instance.short_name} ({plural(finished, 'finished run')}{more})")
    if not phrases:
        return ""
    return f"another version of the ladder, recipe or code has results: {'; '.join(phrases)}"


def title(instance: LadderInstance) -> str:
    """The title, for example "ladder lru on sDigits, profile smoke, without --tune, optim.lr=0.01"."""
    return instance.identity.description

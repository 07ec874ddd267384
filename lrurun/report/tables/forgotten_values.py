"""The values of a sweep whose instances were forgotten: a choice among those that are left was one among more."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun.config.resolve import full
from lrurun.console import clean, setting
from lrurun.errors import UsageError, plural
from lrurun.ledger.values import instance_key
from lrurun.report.tables.remarks import Caution, Remark

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.ledger.ledger import Ledger


class ForgottenValue(Struct, frozen=True, kw_only=True):
    """A value of a sweep, or a combination of values, whose instance was forgotten with all its runs."""

    name: str
    """The short name of the instance."""
    instance: str
    """Its key."""
    by: dict[str, Any]
    """Dotted path -> the value that all rungs had; None where they had several."""
    why: str | None
    removed_at: float
    removed_by: str | None
    """The user of the operating system."""

    @property
    def values(self) -> str:
        """The values as text, for example "optim.lr 0.016"."""
        return ", ".join(
            f"{path} {'as in the recipe' if value is None else clean(setting(value))}"
            for path, value in self.by.items()
        )

    @property
    def text(self) -> str:
        """The values with the reason, for example "optim.lr 0.016 (a trial)"."""
        return f"{self.values} ({clean(self.why)})" if self.why else self.values


def find(ledger: Ledger, plan: planning.Plan, by: Sequence[str]) -> tuple[ForgottenValue, ...]:
    """The values of forgotten instances that differ from a plan in no setting but `by`."""
    wanted = [plan.ladder.name, plan.recipe.task, plan.profile, plan.tune]
    found = []
    for gone, removal in ledger.forgotten_instances():
        if [gone.ladder, gone.task, gone.profile, gone.tune] != wanted:
            continue
        values = {path: value for path, value in gone.set.items() if path in by}
        with suppress(UsageError):  # a value that does not fit the plan: the instance differs in others
            varied = plan.with_sets(plan.changes | values)
            key = instance_key(gone.ladder, gone.task, gone.profile, varied.spec)
            if key == gone.key:
                found.append(
                    ForgottenValue(
                        name=gone.name,
                        instance=gone.key,
                        by={path: _value(varied, path, values) for path in by},
                        why=removal.why,
                        removed_at=removal.time,
                        removed_by=removal.user,
                    )
                )
    return tuple(found)


def _value(varied: planning.Plan, path: str, values: dict[str, Any]) -> Any:
    """The value of a setting in an instance; None where rungs have several."""
    if path in values:
        return values[path]
    of_rungs = [full(rung.config).get(path) for rung in varied.rungs]
    return of_rungs[0] if of_rungs and all(value == of_rungs[0] for value in of_rungs) else None


def caution(forgotten: Sequence[ForgottenValue]) -> Caution | None:
    """How many values were forgotten, which, and why; None if none was."""
    if not forgotten:
        return None
    verb = "was" if len(forgotten) == 1 else "were"
    return Caution(
        what=f"{plural(len(forgotten), 'value')} {verb} forgotten", advice="; ".join(value.text for value in forgotten)
    )


def remarks(forgotten: Sequence[ForgottenValue]) -> list[Remark]:
    """What was forgotten and what that means, for the details of a report; empty if nothing was."""
    if (short := caution(forgotten)) is None:
        return []
    full = f"{short.text}. The values that are left were chosen among more."
    return [Remark(full=full, topic="removed", caution=short)]

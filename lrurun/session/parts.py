"""The part of a ledger that a command's `--where` and `--instance` name."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from lrurun.errors import NotFoundError, plural

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.part import Part
    from lrurun.report.listing import Choice


def named(ledger: Ledger, instances: Sequence[str] = (), where: str | None = None) -> Part:
    """The runs of the instances of these short names or ids, of all if there are none, that meet a condition.

    Raises:
        UsageError: the condition is wrong.
        NotFoundError: there is no such instance.
    """
    from lrurun.ledger.part import Part

    return _read(ledger, instances, where)[0] if instances or where is not None else Part()


def required(ledger: Ledger, instances: Sequence[str] = (), where: str | None = None) -> Part:
    """The same part, which has at least one run unless it is the whole ledger.

    Raises:
        UsageError: the condition is wrong.
        NotFoundError: there is no such instance, or no run is in the part.
    """
    part, choice = _read(ledger, instances, where)
    if part.is_all or ledger.count_runs(part=part):
        return part
    option = part.text if part.instances else "--where"
    known = ledger.count_runs(part=structs.replace(part, condition=None))
    problem = f"none of {plural(known, 'run')} meets the condition" if known else "there are no runs"
    likely = choice.likely(ledger).removeprefix("; ")
    raise NotFoundError(f"{option}: {problem} in {ledger.path}", likely or "lrurun runs lists the runs")


def _read(ledger: Ledger, instances: Sequence[str], where: str | None) -> tuple[Part, Choice]:
    from lrurun.ledger.part import Part
    from lrurun.report import listing

    choice = listing.Choice(where, None, ledger)
    chosen = {instance.key: instance for instance in map(ledger.ladder, instances)}
    words = [word for instance in chosen.values() for word in ("--instance", instance.short_name)]
    words += [] if where is None else ["--where", where]
    return Part(instances=tuple(chosen.values()), condition=choice.condition, text=shlex.join(words)), choice

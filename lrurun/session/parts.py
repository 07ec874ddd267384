"""The part of a ledger that a command's `--where` and `--instance` name."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lrurun.ledger.part import Part

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger


def named(ledger: Ledger, instances: Sequence[str] = (), where: str | None = None) -> Part:
    """The runs of the instances of these short names or ids, of all if there are none, that meet a condition.

    Raises:
        UsageError: the condition is wrong.
        NotFoundError: there is no such instance.
    """
    from lrurun.report import listing

    condition = None if where is None else listing.Choice(where, None, ledger).condition
    chosen = {instance.key: instance for instance in map(ledger.ladder, instances)}
    words = [word for instance in chosen.values() for word in ("--instance", instance.short_name)]
    words += [] if where is None else ["--where", where]
    return Part(instances=tuple(chosen.values()), condition=condition, text=shlex.join(words))

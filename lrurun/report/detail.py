"""What a page tells of each run beside its score: settings, attempts, and how validation went."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun import catalog

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger

CURVE = "val/accuracy"


class Detail(Struct, frozen=True, kw_only=True):
    """A run."""

    seed: int
    state: str
    step: int
    steps: int
    score: float | None
    """What its row counts."""
    attempts: int
    settings: dict[str, Any]
    """Dotted path -> value, the seed left out."""
    curve: tuple[tuple[int, float], ...]
    """(step, score on validation) by step."""


def collect(ledger: Ledger, ids: Iterable[str], metric: str) -> dict[str, Detail]:
    """Run id -> detail, with the value of `metric` as the score."""
    found = {}
    for run in ledger.runs(ids=ids, superseded=True):
        settings = dict(catalog.flatten(run.config))
        settings.pop("seed", None)
        found[run.id] = Detail(
            seed=run.seed,
            state=run.state,
            step=run.step,
            steps=run.steps,
            score=(run.result or {}).get(metric),
            attempts=len(ledger.attempts(run.id)),
            settings=settings,
            curve=tuple(ledger.metrics(run.id, [CURVE]).get(CURVE, ())),
        )
    return found

"""What a page tells of each run beside its score: settings, attempts, and how validation went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    initial: tuple[complex, ...] = ()
    """Eigenvalues of all layers before the first step."""
    trained: tuple[complex, ...] = ()
    """Those of its last checkpoint; none of either where they are not asked for, or not known."""


Spectra = Mapping[str, tuple[tuple[complex, ...], tuple[complex, ...]]]
"""Run id -> eigenvalues before and after training."""


def collect(ledger: Ledger, ids: Iterable[str], metric: str, spectra: Spectra | None = None) -> dict[str, Detail]:
    """Run id -> detail, with the value of `metric` as the score."""
    found = {}
    spectra = spectra or {}
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
            initial=spectra[run.id][0] if run.id in spectra else (),
            trained=spectra[run.id][1] if run.id in spectra else (),
        )
    return found

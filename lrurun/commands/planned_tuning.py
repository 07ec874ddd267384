"""The tuning runs that `lrurun plan` knows of, and their results in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lrurun.config import plan as planning
    from lrurun.config.runs import PlannedRun
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import Run


def tuning(
    made: planning.Plan, rung: planning.ResolvedRung, ledger: Ledger | None
) -> tuple[list[PlannedRun], dict[str, Run], list[Any] | None]:
    """The tuning runs of a rung that are known, those in the ledger, and their results; None if some are unfinished."""
    from lrurun.config.plan import tuning_of
    from lrurun.ledger.values import FINISHED

    wanted: list[PlannedRun] = []
    known: dict[str, Run] = {}
    results: list[Any] = []
    while made.tune and len(found := tuning_of(made, rung, results)) > len(wanted):
        known |= in_ledger(ledger, found[len(wanted) :])
        wanted = found
        runs = [known.get(want.fingerprint) for want in wanted]
        if not all(run is not None and run.state in FINISHED for run in runs):
            return wanted, known, None
        results = [run.result if run is not None and run.state == "done" else None for run in runs]
    return wanted, known, results


def in_ledger(ledger: Ledger | None, wanted: Sequence[PlannedRun]) -> dict[str, Run]:
    """Fingerprint -> the run, of those that the ledger has."""
    if ledger is None or not wanted:
        return {}
    found = ledger.runs(fingerprints=[want.fingerprint for want in wanted], brief=True)
    return {run.fingerprint: run for run in reversed(found)}

"""The command of the next step after a report, with its cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lrurun.errors import LrurunError

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.instances.requests import LadderRequest
    from lrurun.ledger.ledger import Ledger
    from lrurun.paths import Places
    from lrurun.report.tables.ladder_table import LadderReport


def command(places: Places, request: LadderRequest, plan: planning.Plan, ledger: Ledger, report: LadderReport) -> str:
    """The command that makes verdicts firm, or repeats firm ones, with its cost; "" if there is neither, or the cost
    cannot be known, because data or documents cannot be read."""
    from lrurun.report.tables import next_step

    step, firm = next_step.proposal(report), None
    if not step or not plan.is_trained_here:
        return ""
    from lrurun.instances import remaining

    try:
        if step == "firm":
            firm = remaining.firm_verdict(places, request, plan, ledger)
        elif step == "repetition":
            seeds, longer = report.fresh_seeds or "", next_step.longer(report)
            firm = remaining.fresh_repetition(places, request, plan, ledger, seeds, longer)
    except LrurunError:
        return ""
    return "" if firm is None else firm.text

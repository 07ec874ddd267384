"""The commands that a report names: of the next step, with its cost, and those that show more of the same instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lrurun.errors import LrurunError
from lrurun.instances.requests import LadderRequest

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.ledger.ledger import Ledger
    from lrurun.paths import Places
    from lrurun.report.tables.ladder_table import LadderReport
    from lrurun.report.tables.loaded_instance import LoadedInstance


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


def request_of(loaded: LoadedInstance) -> LadderRequest | str:
    """The request that finds an instance by the documents that are here now; its name, if none does.

    The ledger may have come from somebody else: the code that a document of that name loads is not executed.
    """
    from lrurun.config import planning

    instance = loaded.instance
    task, ladder, profile = instance.task, instance.name, instance.profile
    sets, tune, extend = instance.spec.set, instance.spec.tune, instance.spec.extend if instance.spec.tune else None
    try:
        plan = planning.make(task, ladder=ladder, profile=profile, sets=sets, tune=tune, extend=extend, imports=False)
    except LrurunError:  # the documents are not here, or need code
        return instance.short_name
    request = LadderRequest(task=task, ladder=ladder, profile=profile, tune=tune, extend=plan.extend_option, sets=sets)
    return request if plan.spec == instance.spec else instance.short_name

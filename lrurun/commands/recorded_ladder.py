"""Plans of ladders whose file is gone or elsewhere, as the ledger records them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lrurun import console, paths
from lrurun.errors import UsageError

if TYPE_CHECKING:
    from lrurun.commands.request import LadderRequest
    from lrurun.config import plan as planning
    from lrurun.ledger.store import Ledger


def plan(request: LadderRequest, ledger: Ledger | None) -> planning.Plan:
    """The plan of a request. A ladder without a file of its name here is the one that the ledger records.

    Raises:
        UsageError: as `LadderRequest.plan`; the recorded ladder needs a plug-in that is not loaded.
    """
    from lrurun.config import plan as planning
    from lrurun.config.recipe import load_recipe
    from lrurun.report import instance_documents

    try:
        paths.find("ablations", request.ladder)
    except UsageError:
        ladder = None if ledger is None else instance_documents.find_ladder(ledger, request.ladder)
        if ladder is None:
            raise
    else:
        return request.plan()
    instance_documents.check_loaded(ladder)
    console.say(f"ladder {ladder.name}: as the ledger records it, from {ladder.path}; there is no such file here")
    recipe = load_recipe(request.task)
    return planning.of_documents(
        ladder, recipe, profile=request.profile, sets=request.sets, tune=request.tune, imports=True
    )

"""Ladders of the user's own files as the ledger records them, for reports when the file is gone or elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lrurun import console, paths
from lrurun.errors import UsageError

if TYPE_CHECKING:
    from lrurun.commands.request import LadderRequest
    from lrurun.config import plan as planning
    from lrurun.config.documents import Ladder
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import LadderInstance

DOCUMENT = "document"
"""Kind of the event that records a ladder, as JSON."""


def remember(ledger: Ledger, instance: LadderInstance, ladder: Ladder) -> None:
    """Records the ladder of an instance, unless it comes with lrurun or is recorded as it is."""
    from lrurun.config.documents import is_packaged

    if is_packaged(ladder):
        return
    text = msgspec.json.encode(_given(msgspec.to_builtins(ladder))).decode()
    if _newest(ledger, instance) != text:
        ledger.event(DOCUMENT, text, ladder=instance.key)


def plan(request: LadderRequest, ledger: Ledger | None) -> planning.Plan:
    """The plan of a request. A ladder without a file of its name here is the one that the ledger records.

    Raises:
        UsageError: as `LadderRequest.plan`; the recorded ladder needs a plug-in that is not loaded.
    """
    from lrurun import plugins
    from lrurun.config import documents
    from lrurun.config import plan as planning

    try:
        paths.find("ablations", request.ladder)
    except UsageError:
        ladder = None if ledger is None else _find(ledger, request.ladder)
        if ladder is None:
            raise
    else:
        return request.plan()
    folder = Path(ladder.path).parent
    for file in ladder.load:
        if not plugins.is_loaded(file, folder):
            raise UsageError(
                f"ladder {ladder.name} of the ledger: needs {file}, which this command does not load",
                f"name it: --load {folder / file}",
            )
    console.say(f"ladder {ladder.name}: as the ledger records it, from {ladder.path}; there is no such file here")
    recipe = documents.load_recipe(request.task)
    return planning.of_documents(
        ladder, recipe, profile=request.profile, sets=request.sets, tune=request.tune, imports=True
    )


def _find(ledger: Ledger, name: str) -> Ladder | None:
    """The newest ladder of that name that the ledger records."""
    from lrurun.config.documents import Ladder

    found = [text for one in ledger.ladders(name) if (text := _newest(ledger, one)) is not None]
    return msgspec.json.decode(found[-1], type=Ladder) if found else None


def _given(value: Any) -> Any:
    """A table without its empty values, which are defaults and may not be written; `change` as it is."""
    if isinstance(value, dict):
        return {
            key: one if key == "change" else _given(one)
            for key, one in value.items()
            if one is not None and one not in ("", [], {})
        }
    return [_given(one) for one in value] if isinstance(value, list | tuple) else value


def _newest(ledger: Ledger, instance: LadderInstance) -> str | None:
    texts = [event.text for event in ledger.events(ladder_key=instance.key) if event.kind == DOCUMENT]
    return texts[-1] if texts else None

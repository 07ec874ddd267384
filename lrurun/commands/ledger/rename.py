"""`lrurun ledger rename`: another short name for an instance."""

from __future__ import annotations

import typer
from msgspec import Struct

from lrurun import console
from lrurun.commands._shared import output
from lrurun.commands._shared.options import AllUsers, GivenName, InstanceName, Json
from lrurun.commands._shared.rules import examples
from lrurun.session import opening


class RenameDocument(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun ledger rename`."""

    instance: str
    """The key."""
    before: str
    """The short name that it had."""
    name: str
    """The short name that it has now."""


@examples(
    "lrurun ledger rename npDigits-lr0.01 best",
    "lrurun ledger rename 3f2a best --json",
)
def rename(
    context: typer.Context,
    instance: InstanceName,
    new: GivenName,
    all_users: AllUsers = False,
    json: Json = False,
) -> int:
    """Give an instance another short name.

    Runs, reports and the key of the instance stay as they are. Commands that name it as it was called before say how
    it is called now.
    """
    from lrurun.ledger import owner
    from lrurun.runner import run_files

    with opening.change(context.obj.places) as ledger:
        known = ledger.ladder(instance)
        if ledger.database.is_shared and not all_users and known.user not in (None, owner.user()):
            raise owner.belongs_to_others(f"instance {known.short_name}", [str(known.user)])
        renamed = ledger.rename(known.key, new)
        run_files.keep_ladder(ledger, context.obj.places.runs, known.key)
    if json:
        output.write_json(RenameDocument(instance=known.key, before=known.short_name, name=renamed.short_name))
    elif renamed == known:
        console.say(f"{known.short_name}: has this name already")
    else:
        console.say(f"{known.short_name}: is now {renamed.short_name}")
    return 0

"""`lrurun ledger hide`: instances that lists leave out."""

from __future__ import annotations

from typing import Annotated

import typer

from lrurun import console
from lrurun.commands._shared import output
from lrurun.commands._shared.options import AllUsers, Json, SomeInstances, Where
from lrurun.commands._shared.rules import examples, exclusive
from lrurun.errors import UsageError


@examples(
    "lrurun ledger hide npDigits-2",
    "lrurun ledger hide --where 'task=npDigits and optim.lr>0.1'",
)
@exclusive("instances", "where")
def hide(
    context: typer.Context,
    instances: SomeInstances = None,
    where: Where = None,
    undo: Annotated[bool, typer.Option("--undo", help="Show them in lists again.")] = False,
    all_users: AllUsers = False,
    json: Json = False,
) -> int:
    """Leave instances out of lists: status, ui, report --all, the map, resume without a name.

    Nothing is lost, and no verdict, claim or sequential design changes. A hidden instance is trained and reported
    where it is named; lrurun status --hidden lists those that are hidden. With --where, instances all of whose runs
    meet the condition.
    """
    from lrurun.session import hiding

    if not instances and where is None:
        raise UsageError(
            "hide: expected an INSTANCE or --where",
            "lrurun status lists them; those that are hidden: status --hidden",
        )
    done = hiding.hide(context.obj.places, instances or (), where, undo=undo, all_users=all_users)
    if json:
        output.write_json(done)
        return 0
    state = "shown again" if undo else "hidden"
    if done.changed:
        console.paragraph(f"{state}: {', '.join(done.changed)}")
    if done.unchanged:
        console.paragraph(f"{'not hidden' if undo else 'hidden already'}: {', '.join(done.unchanged)}")
    if not (done.changed or done.unchanged):
        console.paragraph(f"nothing {state}: no{' hidden' * undo} instance has only runs that meet the condition")
    if done.in_part:
        phrases = "; ".join(entry.phrase for entry in done.in_part)
        console.say(f"left as they are, for only some of their runs meet the condition: {phrases}")
    for user, names in sorted(done.left_to_others.items()):
        console.say(f"left alone: {', '.join(names)} of {user}; --all-users takes these too")
    return 0

"""`lrurun tag`, `note` and `exclude`: what people record about runs. The runs themselves stay as they are."""

from __future__ import annotations

import re
from typing import Annotated, Optional

import typer

from lrurun import console
from lrurun.commands._shared import opening
from lrurun.commands._shared.options import RunId
from lrurun.errors import UsageError

MOST_CHARACTERS = 2000
"""Of a note, and of the reason of an exclusion."""
_TAG = re.compile(r"[^\s\"'<>=!(),]{1,100}")
"""What `--where tag=...` reads as one word."""


def tag(
    context: typer.Context,
    run: RunId,
    tags: Annotated[
        list[str], typer.Argument(metavar="TAG ...", help="Tags; lrurun runs --where tag=TAG finds the run.")
    ],
    remove: Annotated[bool, typer.Option("--remove", help="Remove these tags from the run.")] = False,
) -> int:
    """Add tags to a run, or remove them."""
    for name in tags:
        if not _TAG.fullmatch(name) or console.clean(name) != name or name.lower() in ("and", "or", "not"):
            raise UsageError(
                f"tag {name[:100]!r}: expected one word of at most 100 characters",
                "as in: lrurun tag RUN paper best-so-far",
            )
    from lrurun.runner import records

    with opening.change(context.obj.places, run) as ledger:
        changed = ledger.tag(ledger.run(run).id, tags, remove=remove)
        records.keep_run(ledger, context.obj.places.runs, changed.id)
    now = f"tags {', '.join(changed.tags)}" if changed.tags else "no tags"
    console.write(console.clean(f"run {changed.id}: {now}"))
    return 0


def note(
    context: typer.Context,
    run: RunId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The note.")],
) -> int:
    """Add a note to a run.

    It is recorded as an event, which `lrurun show RUN` lists.
    """
    if not text.strip():
        raise UsageError("note: the text is empty", "as in: lrurun note RUN 'the fan was loud'")
    _check_length("note", text)
    from lrurun.runner import records

    with opening.change(context.obj.places, run) as ledger:
        found = ledger.run(run)
        ledger.annotate(found.id, text)
        records.keep_run(ledger, context.obj.places.runs, found.id)
    console.write(f"run {found.id}: noted; lrurun show {found.id} shows it")
    return 0


def exclude(
    context: typer.Context,
    run: RunId,
    why: Annotated[
        Optional[str],
        typer.Option("--why", metavar="TEXT", help="The reason, which reports print; required unless --undo is given."),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Include the run again.")] = False,
) -> int:
    """Exclude a run from all reports.

    The run is kept, and --undo includes it again.
    """
    if undo and why is not None:
        raise UsageError("exclude: --undo includes the run again, --why excludes it", "leave one of them out")
    if not undo and not (why or "").strip():
        raise UsageError("exclude: no reason given", "say why: lrurun exclude RUN --why 'trained on a broken disk'")
    _check_length("exclude --why", why or "")
    from lrurun.runner import records

    with opening.change(context.obj.places, run) as ledger:
        before = ledger.run(run)
        ledger.exclude(before.id, None if undo else why)
        records.keep_run(ledger, context.obj.places.runs, before.id)
    if not undo:
        replaced = "" if before.excluded is None else f" (replaces: {before.excluded})"
        console.write(console.clean(f"run {before.id}: excluded from all reports{replaced}; --undo includes it again"))
    elif before.excluded is None:
        console.write(f"run {before.id}: was not excluded")
    else:
        console.write(f"run {before.id}: included in reports again")
    return 0


def _check_length(what: str, text: str) -> None:
    """Refuses a text that is too long for lists and pages. Raises UsageError."""
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"{what}: the text has {len(text):,} characters, at most {MOST_CHARACTERS:,} are allowed",
            "write the rest into a file, and name the file",
        )

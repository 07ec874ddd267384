"""`lrurun mark`: what people record about runs: tags, notes, exclusions. The runs themselves stay as they are."""

from __future__ import annotations

import re
from typing import Annotated, Optional

import typer

from lrurun import console
from lrurun.commands._shared import output
from lrurun.commands._shared.options import InstancesOfRuns, SomeRunIds
from lrurun.commands._shared.rules import examples, exclusive
from lrurun.errors import NotFoundError, UsageError
from lrurun.session import opening

_TAG = re.compile(r"[^\s\"'<>=!(),]{1,100}")
"""A tag is a text that `--where tag=...` reads as one word."""


@examples(
    "lrurun mark 3f2a --tag paper --note 'the fan was loud'",
    "lrurun mark 3f2a 81bc --exclude 'trained on a broken disk'",
)
@exclusive("exclude", "include")
def mark(
    context: typer.Context,
    runs: SomeRunIds = None,
    instance: InstancesOfRuns = None,
    tag: Annotated[
        Optional[list[str]],
        typer.Option("--tag", metavar="TAG", help="Add a tag, for lrurun runs --where tag=TAG. Repeatable."),
    ] = None,
    untag: Annotated[
        Optional[list[str]], typer.Option("--untag", metavar="TAG", help="Remove a tag. Repeatable.")
    ] = None,
    note: Annotated[
        Optional[str], typer.Option("--note", metavar="TEXT", help="Add a note, which lrurun show lists.")
    ] = None,
    exclude: Annotated[
        Optional[str],
        typer.Option("--exclude", metavar="WHY", help="Exclude from all reports, which print this reason."),
    ] = None,
    include: Annotated[bool, typer.Option("--include", help="Include in reports again.")] = False,
) -> int:
    """Tag runs, add notes to them, or exclude them from reports.

    All of it is recorded for all the runs, or nothing is. The runs themselves stay as they are.
    """
    for name in [*(tag or ()), *(untag or ())]:
        if not _TAG.fullmatch(name) or console.clean(name) != name or name.lower() in ("and", "or", "not"):
            raise UsageError(
                f"tag {name[:100]!r}: expected one word of at most 100 characters", "as in: lrurun mark RUN --tag paper"
            )
    for option, text in (("--note", note), ("--exclude", exclude)):
        output.check_text(option, text)
    if not (tag or untag or note or exclude or include):
        raise UsageError(
            "mark: nothing to record", "add --tag TAG, --untag TAG, --note TEXT, --exclude WHY or --include"
        )
    from lrurun.runner import run_files

    runs = runs or []
    if not (runs or instance):
        raise UsageError("mark: expected RUNs or --instance", "lrurun runs lists the runs, lrurun status the instances")
    with opening.change(context.obj.places, runs[0] if runs else None) as ledger:
        before = list({run.id: run for run in [*map(ledger.run, runs), *ledger.runs_of(instance or ())]}.values())
        if not before:
            raise NotFoundError(f"--instance {' '.join(instance or ())}: has no runs", "lrurun resume trains them")
        ids = [run.id for run in before]
        after = ledger.mark(ids, tag=tag or (), untag=untag or (), note=note, exclude=exclude, include=include)
        for run in ids:
            run_files.keep_run(ledger, context.obj.places.runs, run)
    for old, new in zip(before, after, strict=True):
        done = []
        if tag or untag:
            done.append(f"tags {', '.join(new.tags)}" if new.tags else "no tags")
        if missing := [name for name in untag or () if name not in old.tags]:
            done.append(f"had no tag {', '.join(missing)}")
        if note is not None:
            done.append("noted")
        if include:
            done.append("was not excluded" if old.excluded is None else "included in reports again")
        if exclude is not None:
            replaced = "" if old.excluded is None else f" (replaces: {old.excluded})"
            done.append(f"excluded from all reports{replaced}; --include includes it again")
        console.paragraph(f"run {new.id}: {'; '.join(done)}")
    return 0

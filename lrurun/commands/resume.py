"""`lrurun resume`: finish every unfinished ladder of the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lrurun import console
from lrurun.commands._shared.options import (
    Detach,
    DryRun,
    Jobs,
    On,
    OnlyInstance,
    TimeLimit,
)
from lrurun.commands._shared.rules import examples
from lrurun.commands._shared.training import train
from lrurun.config.schema import LADDER_KINDS
from lrurun.errors import LrurunError, plural
from lrurun.session import cautions, opening, resuming
from lrurun.session.training_options import TrainingOptions, site_of

if TYPE_CHECKING:
    from lrurun.paths import Places


@examples(
    "lrurun resume",
    "lrurun resume --instance npDigits --time-limit 45m",
)
def resume(
    context: typer.Context,
    instance: OnlyInstance = None,
    jobs: Jobs = None,
    time_limit: TimeLimit = None,
    on: On = "local",
    detach: Detach = False,
    dry_run: DryRun = False,
    all_users: Annotated[
        bool, typer.Option("--all-users", help="On a server: also what other users have requested.")
    ] = False,
) -> int:
    """Finish every unfinished ladder and study in this ledger.

    Repeats the recorded commands, oldest first; on a server, those of this user. The exit code is the highest of
    theirs.
    """
    places: Places = context.obj.places
    site = site_of(on)
    options = TrainingOptions(
        jobs=jobs,
        time_limit=time_limit,
        arguments=context.obj.arguments,
        site=site,
        detach=detach,
        dry_run=dry_run,
    )
    if site.is_local:
        cautions.warn_of_jobs(jobs)
    signals = options.signals()
    ledger = opening.read(places)
    if not ledger.exists:
        hint = opening.rebuild_hint(places)
        console.say(f"nothing to do: there is no ledger yet{f'; {hint}' if hint else ''}")
        return 0
    ledger.close()
    unfinished = resuming.find(places, instance, all_users=all_users)
    for error in unfinished.errors:
        console.fail(error)
    for user, count in sorted(unfinished.of_others.items()):
        console.say(f"left alone: {plural(count, 'unfinished ladder')} of {user}; --all-users takes these too")
    with opening.existing(places) as ledger:
        resuming.say_superseded(ledger, instance)
        if not unfinished.instances and not unfinished.errors:
            resuming.say_nothing_to_do(places, ledger, instance, of_others=bool(unfinished.of_others))
            return 0
    errors: list[LrurunError] = [*unfinished.errors]
    codes = [0]
    for ladder, requests in unfinished.instances:
        if not requests:
            errors.append(resuming.not_recorded(ladder))
            console.fail(errors[-1])
        for request in requests:
            try:
                if ladder.kind in LADDER_KINDS:
                    codes.append(train(resuming.training(places, ladder, request, options, signals)))
                else:
                    from lrurun.commands._shared import study_output  # with what reports need

                    codes.append(study_output.repeat(places, request, options, signals))
            except resuming.OF_ONE_LADDER as error:
                console.fail(error)
                errors.append(error)
            if codes[-1] > 128:
                return codes[-1]
    return max(*codes, *(error.exit_code for error in errors))

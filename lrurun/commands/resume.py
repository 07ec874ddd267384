"""`lrurun resume`: finish every unfinished ladder of the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from lrurun import console
from lrurun.commands._shared.options import (
    AllUsers,
    Detach,
    DryRun,
    Jobs,
    On,
    OnlyInstance,
    TimeLimit,
)
from lrurun.commands._shared.rules import examples
from lrurun.commands._shared.training import train
from lrurun.session import resuming
from lrurun.session.training import LadderTraining
from lrurun.session.training_options import TrainingOptions, site_of

if TYPE_CHECKING:
    from lrurun.session.study import Computation


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
    all_users: AllUsers = False,
) -> int:
    """Finish every unfinished ladder and study in this ledger.

    Repeats the recorded commands, oldest first; on a server, those of this user. The exit code is the highest of
    theirs.
    """
    options = TrainingOptions(
        jobs=jobs,
        time_limit=time_limit,
        arguments=context.obj.arguments,
        site=site_of(on),
        detach=detach,
        dry_run=dry_run,
    )

    def finish(work: LadderTraining | Computation) -> int:
        if isinstance(work, LadderTraining):
            return train(work)
        from lrurun.commands._shared import study_output  # with what reports need

        return study_output.repeat(work, options)

    code, errors = resuming.continued(
        context.obj.places, instance, options, finish, all_users=all_users, fail=console.fail
    )
    return code if code > 128 else max(code, *(error.exit_code for error in errors), 0)

"""`lrurun data remove`: the prepared data of a task are removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from lrurun import console
from lrurun.commands._shared import asking
from lrurun.commands._shared.options import ProfileName, Task
from lrurun.commands._shared.rules import examples
from lrurun.errors import LrurunError, listed, plural
from lrurun.session import opening

if TYPE_CHECKING:
    from lrurun.data.task_data import Manifest
    from lrurun.paths import Places


@examples(
    "lrurun data remove sCIFAR",
    "lrurun data remove ListOps --profile laptop --dry-run",
)
def remove(
    context: typer.Context,
    task: Task,
    profile: ProfileName = None,
    dry_run: asking.OnlySay = False,
    yes: asking.Yes = False,
) -> int:
    """Remove the prepared data of a task, or of a profile that has its own.

    It says first how much that is and what makes them again, and asks. Data of running runs are refused. Results stay,
    and what was downloaded does too.
    """
    from lrurun.config import planning
    from lrurun.data import task_data

    places: Places = context.obj.places
    wanted, options, name = planning.data_of(task, profile)
    folder = places.data / name
    manifest = task_data.manifest_to_remove(wanted, folder)
    _refuse_running(places, wanted.name, options, folder)
    asking.check("data remove", yes=yes or dry_run)
    size = task_data.size_of(folder)
    console.paragraph(f"{folder}: {size / 1e6:,.1f} MB{_source(manifest)}")
    console.paragraph(_again(manifest, name, places.data / "downloads", [remote.name for remote in wanted.remotes]))
    if dry_run:
        return 0
    if not asking.agreed("remove them for good?", yes=yes):
        console.say("nothing was removed")
        return 1
    task_data.remove(folder, lambda text, *_: console.say(text))
    console.paragraph(f"removed: {folder}, {size / 1e6:,.1f} MB")
    return 0


def _source(manifest: Manifest | None) -> str:
    if manifest is None:
        return ", with a manifest that cannot be read"
    counts = manifest.counts
    return f", {counts.train + counts.validation + counts.test:,} examples from {console.clean(manifest.source)}"


def _again(manifest: Manifest | None, name: str, downloads: Path, archives: list[str]) -> str:
    """What makes the data again."""
    kind = None if manifest is None else manifest.kind
    if kind == "imported":
        return "imported arrays cannot be made again: lrurun data import needs the files from which they were copied"
    if kind == "folder":
        return "lrurun data prepare makes them again, from the same copy: --from PATH"
    if kind == "download":
        kept = [archive for archive in archives if (downloads / archive).is_file()]
        if len(kept) == len(archives):
            return f"lrurun data prepare makes them again from what was downloaded, which stays: {downloads}"
        return "lrurun data prepare downloads them again"
    return "lrurun data prepare makes them again"


def _refuse_running(places: Places, task: str, options: Any, folder: Path) -> None:
    """Refuses data that a running run of this ledger reads.

    Raises:
        LrurunError: with these runs.
    """
    from lrurun.config.schema import RunConfig
    from lrurun.data import tasks

    if not opening.exists(places):
        return
    with opening.read_current(places) as ledger:
        running = [
            run.id
            for run in ledger.runs(states=["running"])
            if run.task == task
            and isinstance(run.config, RunConfig)
            and tasks.options_of(tasks.get(task, run.config.data), run.config.data) == options
        ]
    if running:
        verb = "reads" if len(running) == 1 else "read"
        raise LrurunError(
            f"{folder}: {plural(len(running), 'running run')} {verb} these data: {listed(running)}",
            "stop the command that trains, or wait until it is done",
        )

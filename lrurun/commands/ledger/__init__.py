"""`lrurun ledger`: path, check, migrate, backup, merge, rebuild, export, rename, hide, forget, forgotten, gc."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from msgspec import Struct, structs

from lrurun import console, paths
from lrurun.commands._shared import output
from lrurun.commands._shared.options import Json, OnlyInstances, Where
from lrurun.commands._shared.rules import examples
from lrurun.commands.ledger import export, forget, hide, rename
from lrurun.errors import DamagedError, LrurunError, NotFoundError, UsageError, plural
from lrurun.ledger import database
from lrurun.runner.storage import storage_for
from lrurun.session import opening, parts

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Checkpoint
    from lrurun.paths import Places

app = typer.Typer(
    help="Check, back up, merge, rebuild, export or clean up the ledger.", no_args_is_help=True, rich_markup_mode=None
)


class IntegrityDocument(Struct, frozen=True):
    """The JSON of `lrurun ledger check`."""

    path: str
    runs: int
    problems: list[str]


@app.command()
@examples(
    "lrurun ledger path",
    "lrurun ledger path --ledger other.db",
)
def path(context: typer.Context) -> int:
    """Print the path of the ledger."""
    console.write(str(context.obj.places.ledger.absolute()))
    return 0


@app.command()
@examples(
    "lrurun ledger check",
    "lrurun ledger check --json",
)
def check(
    context: typer.Context,
    quick: Annotated[
        bool, typer.Option("--quick", help="Look whether checkpoints exist, without reading them.")
    ] = False,
    json: Json = False,
) -> int:
    """Check the ledger's integrity, and the bytes of its checkpoints.

    The exit code is 1 if there is a problem. To copy a ledger that is in use, use lrurun ledger backup: a copy of the
    file alone may be damaged, or lack what was written last.
    """
    places: Places = context.obj.places
    checked = _checked(places, quick=quick)
    problems = [*checked.problems, *checked.faults]
    if checked.elsewhere:
        verb = "is" if checked.elsewhere == 1 else "are"
        problems = [*problems, f"{plural(checked.elsewhere, 'checkpoint')} {verb} not in the runs folder {places.runs}"]
    if checked.unknown:
        folders = f"{places.runs} has {plural(len(checked.unknown), 'folder')} of runs that this ledger does not know"
        problems = [*problems, f"{folders}: {', '.join(checked.unknown[:5])}{', ...' if checked.unknown[5:] else ''}"]
    if checked.unfinished:
        problems = [*problems, f"runs are forgotten, and their files remain: {'; '.join(checked.unfinished)}"]
    if json:
        output.write_json(IntegrityDocument(str(places.ledger.absolute()), checked.runs, problems))
        return 1 if problems else 0
    for problem in problems:
        console.paragraph(problem)
    about = plural(len(problems), "problem") if problems else "no problems"
    console.paragraph(f"{places.ledger}: {_counts(checked)}, {about}")
    if checked.elsewhere:
        fine = "" if checked.problems or checked.faults else "the ledger itself has no problems; "
        console.say(f"{fine}name its runs folder with --runs-dir FOLDER")
    if checked.problems:
        console.say(
            "restore a copy made by lrurun ledger backup, or move the file aside and run lrurun ledger rebuild; a copy "
            "of the file alone, made while runs were recorded, may be damaged"
        )
    if checked.faults:
        console.say(
            "no score depends on checkpoints: lrurun resume continues an unfinished run from an earlier one, or begins "
            "it again (if the disk is full, free some space before); of a finished run, only the trained model is lost"
        )
    if checked.unfinished:
        console.say("lrurun ledger gc removes the files of what is forgotten")
    if checked.unknown:
        console.say(f"to have them in a ledger, move this one aside: {opening.REBUILD}")
    if checked.running and not problems:
        console.say(
            f"{plural(checked.running, 'run')} running: to copy this ledger, use lrurun ledger backup; a copy of the "
            "file alone may be damaged, or lack what was written last"
        )
    return 1 if problems else 0


class _CheckedLedger(Struct):
    """What a check found; `total` and `counted` say whether runs and checkpoints could be counted."""

    problems: list[str]
    """Faults of the ledger itself."""
    faults: list[str] = []
    """Faults of checkpoints."""
    total: int | None = None
    runs: int = 0
    """The number of runs that can be read."""
    running: int = 0
    checkpoints: int = 0
    counted: bool = False
    elsewhere: int = 0
    """Checkpoints that are not in the runs folder, if it has no folder of any run of the ledger."""
    unknown: list[str] = []
    """Runs with a folder in the runs folder that the ledger does not have, and that are not being forgotten."""
    unfinished: list[str] = []
    """What was named in removals whose files remain."""


def _checked(places: Places, *, quick: bool) -> _CheckedLedger:
    from lrurun.session import forgetting

    checked = _CheckedLedger([])
    try:
        with opening.existing(places) as ledger:
            checked.problems += ledger.check()
            folders = paths.run_folders(places.runs)  # before the runs: others may be queued meanwhile
            ids = ledger.run_ids()
            checked.total = len(ids)
            for run in ledger.each(ids):  # whether each can be read
                checked.runs += 1
                checked.running += run.state == "running"
            # The copy of an object store has only what was needed here.
            elsewhere = not paths.is_mirror(places.runs) and not any(os.path.isdir(places.runs / run) for run in ids)
            for c in ledger.each_checkpoint(ids, "committed"):
                checked.checkpoints += 1
                if elsewhere and _absent(places, c):
                    checked.elsewhere += 1
                else:
                    checked.faults += _faults(places, ledger, c, quick=quick)
            checked.counted = True
            checked.unknown = sorted(set(folders) - set(ids) - forgetting.remaining_folders(ledger))
            checked.unfinished = [removal.selection for removal in ledger.removals(unfinished=True)]
    except DamagedError as error:
        from lrurun.ledger import checks

        checked.problems = checks.distinct([*checked.problems, error.message])
    return checked


def _counts(checked: _CheckedLedger) -> str:
    """The numbers of runs and checkpoints as text, for example "2 runs, 1 checkpoint"."""
    if checked.total is None:
        return "runs and checkpoints not counted"
    kept = plural(checked.checkpoints, "checkpoint") if checked.counted else "checkpoints not counted"
    return f"{plural(checked.total, 'run')}, {kept}"


def _absent(places: Places, checkpoint: Checkpoint) -> bool:
    """Whether there is certainly no such file or folder."""
    try:
        return not paths.inside(places.runs, checkpoint.path).exists()
    except (LrurunError, OSError):
        return False


def _faults(places: Places, ledger: Ledger, checkpoint: Checkpoint, *, quick: bool) -> list[str]:
    from lrurun.training import checkpoint_verification

    subject = f"checkpoint of run {checkpoint.run}, step {checkpoint.step}"
    try:
        at = paths.inside(places.runs, checkpoint.path)
        if not quick:
            checkpoint_verification.verify(storage_for(places.runs).fetch(at), checkpoint.sha256)
        elif not storage_for(places.runs).has(at):
            return [f"{subject}: {at} is missing"]
        return []
    except LrurunError as error:
        fault = f"{subject}: {error.message}"
    except OSError as error:
        fault = f"{subject}: {error.filename}: {error.strerror}" if error.filename else f"{subject}: {error}"
    # A run that is being trained removes its older checkpoints.
    return [fault] if any(checkpoint.id == kept.id for kept in ledger.checkpoints(checkpoint.run)) else []


@app.command()
@examples(
    "lrurun ledger migrate",
    "lrurun ledger migrate --ledger postgresql://host/runs",
)
def migrate(context: typer.Context) -> int:
    """Create the ledger, or update it to this version."""
    places: Places = context.obj.places
    existed = opening.exists(places)
    opening.write(places).close()
    console.say(f"{places.ledger}: {'up to date' if existed else 'created'}")
    return 0


@app.command()
@examples(
    "lrurun ledger backup --out kept.db.xz",
    "lrurun ledger backup --instance npDigits --out paper.db",
)
def backup(
    context: typer.Context,
    out: Annotated[
        Optional[Path],
        typer.Option("--out", metavar="FILE", help="A new file [beside the ledger]; NAME.xz is compressed."),
    ] = None,
    where: Where = None,
    instance: OnlyInstances = None,
) -> int:
    """Copy the ledger or a part of it, even while it is in use.

    A part is a ledger of its own: runs with all that is recorded of them, and their instances. Of an instance that
    comes in part, it records which runs were left out.
    """
    from lrurun.ledger import backups

    places: Places = context.obj.places
    beside = database.implementation(places.ledger).backup_file(places.ledger)
    name = f"{beside.name}.backup-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    target = (out or beside.with_name(name)).absolute()
    with opening.existing(places) as ledger:
        copied = backups.backup(ledger, target, parts.required(ledger, instance or (), where))
    console.say(f"wrote {target}{f': {copied.sentence}' if copied else ''}")
    return 0


@app.command()
@examples(
    "lrurun ledger merge other.db --other-runs other-runs",
    "lrurun ledger merge other.db --where 'task=npDigits and tag=paper'",
)
def merge(
    context: typer.Context,
    other: Annotated[
        str,
        typer.Argument(
            metavar="OTHER", help="The file, also NAME.xz, the URL, or the published record of another ledger."
        ),
    ],
    other_runs: Annotated[
        Optional[Path], typer.Option("--other-runs", metavar="DIR", help="Its runs folder [beside it].")
    ] = None,
    where: Where = None,
    instance: OnlyInstances = None,
    json: Json = False,
) -> int:
    """Add the runs of another ledger to this one.

    --where and --instance select in the other ledger. Of an instance that comes in part, this ledger records which
    runs were left out; merging the rest later completes it.
    """
    from lrurun.ledger import backups, merging
    from lrurun.report.live.views import PreparationView
    from lrurun.runner import run_files
    from lrurun.session import forgetting

    places: Places = context.obj.places
    named = backups.in_record(paths.ledger_location(other, "OTHER"))
    if paths.is_mirror(places.runs):
        raise UsageError(
            "--runs-dir: merge copies checkpoints between folders, and this runs folder is in an object store",
            "copy the store to a folder, and name it with --runs-dir",
        )
    with PreparationView(pause=2.0) as view, backups.unpacked(named, view.update) as source:
        with opening.read(structs.replace(places, ledger=source)) as source_ledger:
            if not source_ledger.exists:
                raise NotFoundError(f"{other}: there is no ledger", "name the other ledger's file")
            if database.is_same(source, places.ledger):
                raise UsageError(f"{other}: is this ledger", "name another ledger")
            try:
                part = parts.required(source_ledger, instance or (), where)
            except NotFoundError as error:
                raise _of_other(error, other, in_record=source != named) from None
            with backups.of_part(source_ledger, part) as (of_part, copied), opening.write(places) as ledger:
                forgetting.go_on(ledger, places)  # a run that comes back has the name of its folder again
                other_folder = (other_runs or paths.default_runs(named)).absolute()
                merged, changed = merging.merge(ledger, of_part, places.runs, other_folder, view.update)
                ladders = [ladder.key for ladder in of_part.ladders()]
                removals = [removal.key for removal in of_part.removals()]
                run_files.keep_all(ledger, places.runs, changed, ladders, view.update, removal_keys=removals)
    if json:
        output.write_json(structs.replace(merged, instances=copied and copied.instances))
        return 0
    console.paragraph(
        f"{other}: {f'{copied.sentence}; ' if copied else ''}runs new here: {merged.new}; "
        f"unfinished here and now finished: {merged.finished}; unchanged: {merged.known}; "
        f"checkpoints copied: {merged.checkpoints}"
    )
    if merged.back:
        console.say(f"forgotten before, and back: {plural(merged.back, 'run')}")
    if merged.hidden:
        from lrurun.instances import phrases

        console.say(f"hidden here as in {other}: {', '.join(merged.hidden)}; {phrases.show_again()}")
    if merged.held:
        console.warn(f"finished there and running here: {plural(merged.held, 'run')}; merge again later")
    return 0


@app.command()
@examples(
    "lrurun ledger rebuild",
    "lrurun ledger rebuild --runs-dir runs",
)
def rebuild(context: typer.Context, json: Json = False) -> int:
    """Make a lost ledger again, from the runs folder.

    Each run has a record there, run.json, and each ladder one in the folder ladders. Move a damaged ledger aside
    first. Runs whose process was killed become interrupted, and continue from their last checkpoint.
    """
    from lrurun.ledger import rebuilding

    places: Places = context.obj.places
    if paths.is_mirror(places.runs):
        raise UsageError(
            "--runs-dir: rebuild reads a folder, and this runs folder is in an object store",
            "copy the store to a folder, and name it with --runs-dir",
        )
    rebuilt = rebuilding.rebuild(places.ledger.absolute(), places.runs.absolute())
    for problem in rebuilt.problems:
        console.warn(console.clean(problem))
    for file in rebuilt.forgotten:
        console.warn(f"{console.clean(file)}: left out: it was forgotten; lrurun ledger gc or rm removes the rest")
    if json:
        output.write_json(rebuilt)
        return 0
    console.paragraph(f"{places.ledger}: {plural(rebuilt.runs, 'run')}, {plural(rebuilt.ladders, 'ladder instance')}")
    if rebuilt.problems:
        repeat = "repeat the earlier lrurun ladder commands: they find what was kept and train what was left out"
        if rebuilt.removals:
            repeat += (
                "; not those of forgotten instances, which they would train again: lrurun ledger forgotten lists these"
            )
        console.say(repeat)
    return 0


app.command()(export.export)
app.command()(hide.hide)
app.command()(forget.forget)
app.command()(forget.forgotten)
app.command()(rename.rename)


@app.command()
@examples(
    "lrurun ledger gc --dry-run",
    "lrurun ledger gc --finished --items",
)
def gc(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    finished: Annotated[bool, typer.Option("--finished", help="Also the checkpoints of finished runs.")] = False,
    items: Annotated[
        bool, typer.Option("--items", help="Also the per-item results of all runs, from the ledger.")
    ] = False,
    gone: Annotated[
        bool, typer.Option("--gone", help="Files of forgotten runs that are not in the runs folder are gone for good.")
    ] = False,
) -> int:
    """Remove checkpoints that are no longer needed.

    These are checkpoints of superseded runs, half-written ones, and those of abandoned attempts. With --finished also
    those of finished runs, which are needed only to load the trained parameters. Unfinished runs keep theirs. Folders
    of runs that are not in this ledger are left alone.

    With --items also the per-item results in the ledger. Scores stay, but reports then judge without per-item
    results, and say so; lrurun verify --items adds them again where the checkpoints are kept.

    Files that a lrurun ledger forget has left, because it was killed, are removed too.
    """
    from lrurun.ledger import owner
    from lrurun.session import forgetting

    places: Places = context.obj.places
    with opening.change(places) as ledger:
        unfinished = (
            forgetting.left_here(ledger, places, gone=gone) if dry_run else forgetting.go_on(ledger, places, gone=gone)
        )
        sizes = ledger.item_bytes() if items else {}
        ledger.reap(owner.this_process())
        removable, problems = _removable(ledger, places, finished=finished)
        size = sum(_bytes(folder) for folder in removable)
        if not dry_run:
            removed = set(ledger.drop_checkpoints([n for n in removable.values() if n is not None]))
            for folder, number in removable.items():
                if number is None or number in removed:
                    _remove(places, folder)
            _drop_items(ledger, places, list(sizes))
    for problem in problems:
        console.warn(f"{problem}; not removed")
    if dry_run:
        for folder in removable:
            console.write(str(folder))
    parts = [f"{plural(len(removable), 'folder')} with {size / 1e6:.1f} MB"] if removable else []
    if sizes:
        of_runs = f"the per-item results of {plural(len(sizes), 'run')}"
        parts.append(
            f"{of_runs} with {sum(sizes.values()) / 1e3:,.1f} kB, which the ledger uses for what it records next"
        )
    parts += [f"the files of {removal.selection}, which was forgotten" for removal in unfinished]
    action = "to be removed" if dry_run else "removed"
    console.say(f"{action}: {', and '.join(parts)}" if parts else "nothing to remove")
    return 0


def _drop_items(ledger: Ledger, places: Places, run_ids: Sequence[str]) -> None:
    """Removes the per-item results of runs, from the ledger and then from their run files.

    Each batch is a transaction of its own: other processes wait only for its end, and an interrupt leaves at most the
    run files of one batch as they were.
    """
    from lrurun.ledger.reading import BATCH
    from lrurun.report.live.views import PreparationView
    from lrurun.runner import run_files

    with PreparationView(pause=2.0) as view:
        for start in range(0, len(run_ids), BATCH):
            batch = run_ids[start : start + BATCH]
            ledger.drop_items(batch)
            for done, run_id in enumerate(batch, start):
                view.update("removing per-item results", done, len(run_ids))
                run_files.keep_run(ledger, places.runs, run_id)


def _remove(places: Places, folder: Path) -> None:
    try:
        storage_for(places.runs).remove(folder)
    except (OSError, LrurunError) as error:
        console.warn(f"{folder.name}: not removed from {paths.shown_runs(places.runs)}: {error}")


def _removable(ledger: Ledger, places: Places, *, finished: bool) -> tuple[dict[Path, int | None], list[str]]:
    """Folder -> number of its checkpoint, None if it has no row; and the paths that lead out of the runs folder."""
    from lrurun.ledger.values import FINISHED

    removable: dict[Path, int | None] = {}
    problems: list[str] = []
    for run in ledger.each(ledger.run_ids()):
        if run.state == "running":
            continue
        entries = ledger.checkpoints(run.id)
        unneeded = run.superseded or (finished and run.state in FINISHED)
        for c in entries:
            if unneeded or c.state != "committed":
                try:
                    removable[paths.inside(places.runs, c.path)] = c.id
                except LrurunError as error:
                    problems.append(error.message)
        try:
            home = paths.inside(places.runs, run.id)
        except LrurunError as error:
            problems.append(error.message)
            continue
        known = {places.runs / c.path for c in entries}
        for folder in (*home.glob("*/checkpoints/*"), *home.glob("*.old-*")):
            if folder not in known and folder.is_dir():
                try:
                    removable[paths.inside(places.runs, str(folder.relative_to(places.runs)))] = None
                except LrurunError as error:
                    problems.append(error.message)
    return removable, problems


def _bytes(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())


def _of_other(error: NotFoundError, other: str, *, in_record: bool) -> NotFoundError:
    """The error about a name that is looked for in the other ledger, with commands that read that one; a ledger in a
    record is read by none."""
    hint = error.hint or ""
    for command in ("lrurun status", "lrurun runs"):
        hint = hint.replace(command, f"{command} --ledger {shlex.quote(other)}")
    if in_record:
        hint = "unpack the record to see what it has"
    return NotFoundError(error.message.replace("in this ledger", f"in {other}"), hint)

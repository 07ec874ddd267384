"""Runs are forgotten, with their files: what is refused, what goes, and how a removal that was killed goes on.

The rows go first, in one transaction that records the removal. The files follow: in batches, each in a transaction that
looks whether the runs are in the ledger again, they are moved to a folder of the removal, whose name no command reads
as a run's; then that folder is removed, and the removal is finished. After a kill in between, the ledger knows which
files remain, and `go_on` continues.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from lrurun import console, paths
from lrurun.console import no_progress
from lrurun.errors import LrurunError, NotFoundError, UsageError, listed, plural
from lrurun.ledger.values import FINISHED, KEEP

if TYPE_CHECKING:
    from lrurun.data.task import Progress
    from lrurun.ledger.forgetting import Forgettable, ForgettableRun, RemovalFiles
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.part import Part
    from lrurun.ledger.values import LadderInstance, Removal
    from lrurun.paths import Places

_FEW = 3
"""Up to this number of runs, a command names them."""
ASIDE = ".forgotten-"
"""The beginning of the name of the folder in the runs folder to which the files of a removal are moved."""
_INSTANCE_KEY = re.compile(r"[0-9a-f]{12}")


class Plan(Struct, frozen=True, kw_only=True):
    """What a command is to forget, and why that may need a reason."""

    part: Part
    selection: str
    """What was named, as a user types it."""
    keep_shared: bool
    what: Forgettable
    sizes: Mapping[str, int]
    """Run id -> the bytes of its folder, of those that have one here."""
    evidence: Sequence[str]
    """Clauses on what the runs are evidence for: it needs a reason to forget them. Empty for runs that no report
    counts."""

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


# Choosing


def plan(
    ledger: Ledger, places: Places, instances: Sequence[str], where: str | None, *, keep_shared: bool = False
) -> Plan:
    """What these instances, or the runs that meet a condition, take away.

    Raises:
        NotFoundError: there is no such instance, or no run meets the condition.
        UsageError: the condition is wrong.
    """
    from lrurun.session import parts

    part = parts.named(ledger, instances, where)
    what = ledger.forgettable(part, keep_shared=keep_shared)
    if where is not None and not what.runs:
        from lrurun.report import listing

        likely = listing.Choice(where, None, ledger).likely(ledger).removeprefix("; ")
        condition = shlex.join(["--where", where])
        raise NotFoundError(f"{condition}: no run meets it", likely or f"see the runs: lrurun runs {condition}")
    words = [instance.short_name for instance in part.instances] if where is None else ["--where", where]
    return Plan(
        part=part,
        selection=shlex.join(words),
        keep_shared=keep_shared,
        what=what,
        sizes=_sizes(places.runs, [run.id for run in what.runs]),
        evidence=list(_evidence(ledger, what)),
    )


def looked_again(ledger: Ledger, plan: Plan) -> Plan:
    """The plan with what its runs are evidence for now: while a question waits, other runs of their instances finish.

    Raises:
        ChangedError: what it takes away is not the same.
        NotFoundError: an instance is gone.
    """
    from lrurun.ledger import forgetting

    what = ledger.forgettable(plan.part, keep_shared=plan.keep_shared)
    if structs.replace(what, standing=plan.what.standing) != plan.what:
        raise forgetting.changed()
    if what == plan.what:
        return plan
    return structs.replace(plan, what=what, evidence=list(_evidence(ledger, what)))


def _sizes(runs: Path, run_ids: Sequence[str]) -> dict[str, int]:
    """Run id -> the bytes of its files. Raises LrurunError."""
    from lrurun.runner.storage import storage_for

    try:
        return storage_for(runs).sizes([run_id for run_id in run_ids if paths.is_run_id(run_id)])
    except OSError as error:
        raise LrurunError(
            f"{paths.shown_runs(runs)}: the sizes of files cannot be read: {error.strerror or error}",
            "check the permissions of the runs folder, or the credentials of the store",
        ) from None


def _evidence(ledger: Ledger, what: Forgettable) -> Iterable[str]:
    """What the runs are evidence for, a clause for each instance."""
    from lrurun.ledger import forgetting

    for instance in what.instances:
        try:
            clause = _clause(ledger, instance)
        except NotFoundError:
            raise forgetting.gone(instance.short_name) from None
        if clause:
            yield clause


def _clause(ledger: Ledger, instance: LadderInstance) -> str:
    """What the runs of an instance are evidence for; empty if for nothing."""
    from lrurun.judging import design_record

    events = ledger.events(ladder_key=instance.key, of_runs=False)
    if any(event.kind in (design_record.DESIGN, design_record.LOOK) for event in events):
        return f"{instance.short_name} has a sequential design (--decide)"
    pair = _judged(ledger, instance)
    return f"{instance.short_name} compares {pair[0]} with {pair[1]}" if pair else ""


def _judged(ledger: Ledger, instance: LadderInstance) -> tuple[str, str] | None:
    """Two rungs that the ladder compares and that both have results, excluded ones among them; None if there are none.

    A ladder whose document cannot be read compares every rung with every other one.
    """
    from lrurun.instances import documents

    results: dict[str, set[str]] = {}
    for run in ledger.runs(instance.key, states=FINISHED, brief=True):
        for membership in run.memberships:
            if (membership.ladder_key, membership.stage) == (instance.key, "train"):
                results.setdefault(membership.rung, set()).add(run.id)
    recorded = documents.find(ledger, instance)
    if recorded is None:
        pairs = [(rung, other) for rung in results for other in results if rung > other]
    else:
        ladder = recorded.ladder
        pairs = [(rung, base) for rung, base in ladder.bases.items() if base is not None]
        pairs += [(claim.rung, claim.than) for claim in ladder.claims if claim.than is not None]
    # rungs with equal settings share their runs, of which nothing is judged
    return next((p for p in pairs if p[0] in results and p[1] in results and results[p[0]] != results[p[1]]), None)


# Refusals


def check_rights(ledger: Ledger, places: Places) -> None:
    """Refuses a user who may not delete rows.

    Raises:
        LrurunError: with the rights that are missing.
    """
    if missing := ledger.missing_rights():
        raise LrurunError(
            f"the user of the ledger {places.ledger} may not forget runs: it lacks {listed(missing)}",
            "the owner of the tables grants it: GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "
            "name; GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO name",
        )


def check(plan: Plan, places: Places, *, all_users: bool, is_shared: bool) -> None:
    """Refuses to forget what is needed, in use, kept, or not this user's.

    Raises:
        LrurunError: with the runs or instances, and what to do.
    """
    what = plan.what
    if running := [run for run in what.runs if run.state == "running"]:
        raise LrurunError(
            f"{_count(running)} running: {_named(running)}", "stop the command that trains, or wait until it is done"
        )
    if what.shared and not plan.keep_shared:
        raise _needed(plan)
    if kept := [run for run in what.runs if run.is_kept]:
        raise LrurunError(
            f"{_count(kept)} tagged {KEEP}: {_named(kept)}",
            f"remove the tag: {_untag(kept)}",
        )
    if is_shared and not all_users:
        _check_users(what)
    _check_folders(places.runs, list(plan.sizes))


def check_reason(plan: Plan, why: str | None) -> None:
    """Refuses to forget evidence without a reason.

    Raises:
        UsageError: with what the runs are evidence for.
    """
    if plan.evidence and not why:
        raise UsageError(
            f"{'; '.join(plan.evidence[:3])}{'; ...' if plan.evidence[3:] else ''}: "
            "to forget runs of a ladder that has results to judge is a statement about the evidence",
            "say why: --why TEXT; the reason is kept, and reports show it. lrurun ledger hide takes an instance out of "
            "lists instead, and lrurun mark RUN --exclude WHY a run out of reports",
        )


def reasons(ledger: Ledger, plan: Plan, why: str | None) -> str | None:
    """The reason to record: the user's, and those for which runs that go were excluded, as no other record stays."""
    going = {run.id for run in plan.what.runs if run.is_excluded}
    found: dict[str, int] = {}
    for exclusion in ledger.exclusions() if going else ():
        if exclusion.run in going:
            found[exclusion.why] = found.get(exclusion.why, 0) + 1
    texts = [
        f"{plural(count, 'run')} {'was' if count == 1 else 'were'} excluded: {text}" for text, count in found.items()
    ]
    return "; ".join([*([why] if why else []), *texts]) or None


def _needed(plan: Plan) -> LrurunError:
    named = {instance.key for instance in plan.part.instances}
    others = {place.instance: None for run in plan.what.shared for place in run.places if place.ladder_key not in named}
    names = [instance.short_name for instance in plan.part.instances]
    verb = "is" if len(plan.what.shared) == 1 else "are"
    return LrurunError(
        f"{plural(len(plan.what.shared), 'run')} of {listed(names)} {verb} needed by {listed(list(others))}: "
        f"{_named(plan.what.shared)}",
        f"forget both: lrurun ledger forget {shlex.join([*names, *others])}; or leave these runs there: --keep-shared",
    )


def _check_users(what: Forgettable) -> None:
    from lrurun.ledger import owner

    me = owner.user()
    others = Counter(user for run in what.runs for user in run.users if user != me)
    for instance in what.whole:
        if instance.user not in (None, me):
            others.setdefault(str(instance.user), 0)
    if not others:
        return
    foreign = [run for run in what.runs if set(run.users) - {me}]
    subject = plural(len(foreign), "run") if foreign else f"instance {what.whole[0].short_name}"
    raise owner.belongs_to_others(subject, others, several=len(foreign) > 1)


def _check_folders(runs: Path, names: Sequence[str]) -> None:
    """Refuses where folders of runs could not be removed later."""
    if not names or not runs.is_dir():
        return
    fixed = [runs] if not os.access(runs, os.W_OK | os.X_OK) else []
    fixed += [folder for name in names if (folder := runs / name).is_dir() and not os.access(folder, os.W_OK | os.X_OK)]
    if fixed:
        more = f" (and {len(fixed) - 1} more)" if len(fixed) > 1 else ""
        raise LrurunError(
            f"{fixed[0]}{more}: this user cannot remove files there",
            "ask the owner of these files, or change the permissions",
        )


def _untag(kept: Sequence[ForgettableRun]) -> str:
    """The command that removes the tag from these runs."""
    instances = [place.instance for run in kept for place in run.places]
    if len(kept) <= _FEW or not instances:
        return f"lrurun mark {' '.join(run.id for run in kept)} --untag {KEEP}"
    names = " ".join(f"--instance {shlex.quote(name)}" for name in dict.fromkeys(instances))
    return f"lrurun mark {names} --untag {KEEP}"


def _count(runs: Sequence[ForgettableRun]) -> str:
    return f"{plural(len(runs), 'run')} {'is' if len(runs) == 1 else 'are'}"


def _named(runs: Sequence[ForgettableRun]) -> str:
    """A few runs by id, with the instances that they are in."""
    instances = dict.fromkeys(place.instance for run in runs for place in run.places)
    where = f" ({listed(list(instances))})" if instances else ""
    return f"{listed([run.id for run in runs])}{where}"


# Forgetting


def forget(
    ledger: Ledger, places: Places, plan: Plan, why: str | None, progress: Progress = no_progress
) -> tuple[str, bool]:
    """Forgets what is planned. Returns the key of the removal, and whether its files are removed too.

    Raises:
        ChangedError: another command has changed it meanwhile: nothing was removed.
        NotFoundError: another command has forgotten it.
        LrurunError: the ledger cannot be written, for example because the disk is full: nothing was removed.
    """
    from lrurun.ledger.forgetting import RemovalFiles

    key = secrets.token_hex(6)
    files = RemovalFiles(
        runs_dir=_place(places.runs),
        bytes=plan.bytes,
        instances={instance.key: instance.short_name for instance in plan.what.whole},
        programs=_programs(ledger, places.runs, plan.what),
    )
    progress("deleting rows", 0, None)
    ledger.forget(
        key,
        plan.part,
        plan.what,
        keep_shared=plan.keep_shared,
        selection=plan.selection,
        why=why,
        files=files,
    )
    return key, _remove_files(ledger, places, key, progress)


def _place(runs: Path) -> str:
    """The runs folder, by which a later command knows it again."""
    return paths.shown_runs(runs) if paths.is_mirror(runs) else os.path.realpath(runs)


def _programs(ledger: Ledger, runs: Path, what: Forgettable) -> dict[str, dict[str, str]]:
    """Folder in the runs folder of each copy of a program's files that only these runs have -> their digests."""
    from lrurun.config.programs import SNAPSHOTS
    from lrurun.runner import program_files

    of_programs = [run.id for run in what.runs if run.kind == "program"]
    versions = ledger.program_files(of_programs) if of_programs else []
    found: dict[str, dict[str, str]] = {}
    for folder in (runs / SNAPSHOTS).glob("[0-9a-f]" * 16) if versions else ():
        for version in versions:
            if program_files.has_all(folder, version):
                found[f"{SNAPSHOTS}/{folder.name}"] = version
    return found


def go_on(ledger: Ledger, places: Places, progress: Progress = no_progress, *, gone: bool = False) -> list[Removal]:
    """Goes on with the removals that were killed before their files in this runs folder were removed.

    Args:
        gone: whether files that are not there count as removed.

    Returns those that are finished now. Where files cannot be removed, there is a warning, and the next command tries
    again.
    """
    finished = []
    for removal in _unfinished(ledger, places):
        if gone or _has_files(ledger, places.runs, removal.key):
            if _remove_files(ledger, places, removal.key, progress):
                finished.append(removal)
        else:
            console.warn(
                f"{paths.shown_runs(places.runs)}: has no files of {console.clean(removal.selection)}, which was "
                "forgotten: is a disk not mounted? lrurun ledger gc removes them once they are there, and lrurun "
                "ledger gc --gone is for files that are gone"
            )
    return finished


def left_here(ledger: Ledger, places: Places, *, gone: bool = False) -> list[Removal]:
    """The removals with which `go_on` would go on."""
    return [removal for removal in _unfinished(ledger, places) if gone or _has_files(ledger, places.runs, removal.key)]


def _unfinished(ledger: Ledger, places: Places) -> list[Removal]:
    """The removals that were killed before their files in a runs folder of this path were removed."""
    return [
        removal
        for removal in ledger.removals(unfinished=True)
        if removal.kind == "forgotten" and ledger.removal_files(removal.key)[0].runs_dir == _place(places.runs)
    ]


def _has_files(ledger: Ledger, runs: Path, key: str) -> bool:
    """Whether files of a removal are or were in this runs folder, if there were any: another machine may have another
    folder at its path, and where a disk is not mounted there is none."""
    from lrurun.ledger.run_files import REMOVALS_FOLDER

    files, run_ids = ledger.removal_files(key)
    names = (f"{REMOVALS_FOLDER}/{key}.json", f"{ASIDE}{key}", *filter(paths.is_run_id, run_ids))
    return not files.bytes or paths.is_mirror(runs) or any(os.path.lexists(runs / name) for name in names)


def elsewhere(ledger: Ledger, places: Places) -> dict[str, Removal]:
    """Other runs folder -> an unfinished removal whose files remain there."""
    unfinished = {
        ledger.removal_files(removal.key)[0].runs_dir: removal for removal in ledger.removals(unfinished=True)
    }
    unfinished.pop(_place(places.runs), None)
    return unfinished


def remaining_folders(ledger: Ledger) -> set[str]:
    """The runs whose files unfinished removals still have."""
    return {run for removal in ledger.removals(unfinished=True) for run in ledger.removal_files(removal.key)[1]}


def _remove_files(ledger: Ledger, places: Places, key: str, progress: Progress) -> bool:
    """Removes the files of a removal; whether it is finished then."""
    from lrurun.runner import run_files
    from lrurun.runner.storage import storage_for

    files, run_ids = ledger.removal_files(key)
    run_ids = [run_id for run_id in run_ids if paths.is_run_id(run_id)]
    runs, storage = places.runs, storage_for(places.runs)
    aside = runs / f"{ASIDE}{key}"
    run_files.keep_removal(ledger, runs, key)
    try:
        if runs.is_dir() or paths.is_mirror(runs):
            for start in range(0, len(run_ids), storage.at_once):
                progress("removing files", start, len(run_ids))
                batch = run_ids[start : start + storage.at_once]
                if not ledger.while_removed(key, lambda ids, *_: storage.set_aside(ids, aside), run_ids=batch):
                    return True  # another command has finished it
            keys = _ladder_keys(ledger, key, files)

            def move(_: list[str], instances: list[str], programs: list[str]) -> None:
                storage.set_aside([*map(_ladder_file, instances), *programs], aside)

            for start in range(0, len(keys), storage.at_once):
                if not ledger.while_removed(key, move, ladder_keys=keys[start : start + storage.at_once]):
                    return True
            for name, version in files.programs.items():
                if not ledger.while_removed(key, move, programs={name: version}):
                    return True
            for ladder_key in sorted(set(keys) - files.instances.keys()):
                _keep_ladder(ledger, runs, ladder_key)
            progress("removing files", len(run_ids), len(run_ids))
            storage.remove_aside(aside)
    except OSError as error:
        at = error.filename or paths.shown_runs(runs)
        console.warn(
            f"{at}: {error.strerror or error}: the runs are forgotten, and some of their files remain; "
            "lrurun ledger gc tries again to remove them"
        )
        return False
    ledger.finish_removal(key, files.bytes)
    run_files.keep_removal(ledger, places.runs, key)
    return True


def _ladder_keys(ledger: Ledger, key: str, files: RemovalFiles) -> list[str]:
    keys = {run.ladder_key for run in ledger.removed_runs(key)} | files.instances.keys()
    return sorted(filter(_INSTANCE_KEY.fullmatch, keys))


def _ladder_file(key: str) -> str:
    from lrurun.ledger.run_files import LADDERS_FOLDER

    return f"{LADDERS_FOLDER}/{key}.json"


def _keep_ladder(ledger: Ledger, runs: Path, key: str) -> None:
    """Writes the file of an instance that has lost runs, if it is still there."""
    from lrurun.runner import run_files

    if any(instance.key == key for instance in ledger.ladders()):
        run_files.keep_ladder(ledger, runs, key)


# Names that are gone


def forgotten_by(ledger: Ledger, name: str) -> Removal | None:
    """The newest removal with which an instance of this name, or key, went; None if there is none."""
    for removal in reversed(ledger.removals()):
        if any(name in (instance.key, instance.name) for instance in removal.instances):
            return removal
    return None

"""`lrurun ledger forget` and `forgotten`: runs that are removed for good, and the record of it."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from msgspec import Struct

from lrurun import console, paths, table
from lrurun.commands._shared import asking, output
from lrurun.commands._shared.options import Json, SomeInstances, Where
from lrurun.commands._shared.rules import examples, exclusive
from lrurun.errors import LrurunError, NotFoundError, UsageError, plural
from lrurun.session import opening

if TYPE_CHECKING:
    from lrurun.ledger.database import Freed
    from lrurun.ledger.forgetting import Forgettable
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance, Removal
    from lrurun.paths import Places
    from lrurun.session.forgetting import Plan


class ForgottenInstance(Struct, frozen=True):
    """An instance that loses runs."""

    name: str
    """The short name."""
    instance: str
    """The key."""
    ladder: str
    task: str
    profile: str | None
    runs: int
    """How many it loses."""
    whole: bool
    """Whether it goes too."""


class ForgetDocument(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun ledger forget`."""

    dry_run: bool
    removal: str | None
    """The key of the removal; null with --dry-run, and where only an earlier removal was continued."""
    selection: str
    why: str | None
    instances: list[ForgottenInstance]
    runs: list[str]
    bytes: int
    """Of the files of the runs."""
    evidence: list[str]
    """What the runs are evidence for; unless it is empty, --why is needed."""
    finished: bool
    """Whether the files are removed."""
    continued: list[str]
    """Keys of earlier removals whose files were left, and are removed now."""
    given_back: int
    """The bytes by which the ledger is smaller."""


class RemovedRunOutput(Struct, frozen=True, kw_only=True):
    """A run in `lrurun ledger forgotten --json`."""

    run: str
    task: str
    name: str
    """The short name of an instance that it was in; empty for a run of none. So is the next one."""
    instance: str
    """The key of this instance."""
    rung: str
    stage: str
    seed: int
    state: str


class RemovalOutput(Struct, frozen=True, kw_only=True):
    """A removal in `lrurun ledger forgotten --json`."""

    key: str
    kind: str
    """"forgotten", or "left out" of the copy of a part of a ledger."""
    time: str | None
    user: str | None
    selection: str
    why: str | None
    instances: list[str]
    """The short names of the instances that went."""
    runs: int
    bytes: int | None
    """Of the files that were removed; null until then, and for runs that were left out."""
    finished_at: str | None
    removed: list[RemovedRunOutput]


class Removals(Struct, frozen=True):
    """The JSON of `lrurun ledger forgotten`."""

    removals: list[RemovalOutput]


@examples(
    "lrurun ledger forget npDigits-2",
    "lrurun ledger forget --where 'state=failed and task=train' --dry-run",
)
@exclusive("instances", "where", hint="a condition can name an instance: --where 'instance=NAME and seed>20'")
def forget(
    context: typer.Context,
    instances: SomeInstances = None,
    where: Where = None,
    why: Annotated[
        Optional[str], typer.Option("--why", metavar="TEXT", help="The reason, which is kept, and shown by reports.")
    ] = None,
    keep_shared: Annotated[
        bool, typer.Option("--keep-shared", help="Leave runs in place that other instances have too.")
    ] = False,
    all_users: Annotated[
        bool, typer.Option("--all-users", help="Also runs that other users of the server have trained.")
    ] = False,
    dry_run: asking.OnlySay = False,
    yes: asking.Yes = False,
    json: Json = False,
) -> int:
    """Remove instances or runs for good: rows, logs, checkpoints.

    An instance goes with the runs that only it has; --where takes runs out of all their instances. It says first what
    and how much, and asks. Refused are runs that another instance needs, that are running, or tagged keep. That runs
    were removed, by whom and why is kept: lrurun ledger forgotten. After a kill, the same command goes on.
    """
    from lrurun.ledger import owner
    from lrurun.report.live.views import PreparationView
    from lrurun.session import forgetting

    output.check_text("--why", why)
    if not instances and where is None:
        raise UsageError("forget: nothing is named", "name instances, as lrurun status shows them, or --where EXPR")
    if keep_shared and where is not None:
        raise UsageError(
            "--keep-shared: is for instances; --where takes runs out of all that have them", "leave it out"
        )
    if json and not (yes or dry_run):
        raise UsageError("--json: nothing is asked then", "add --yes, or --dry-run")
    places: Places = context.obj.places
    with opening.change(places) as ledger:
        if not dry_run:
            forgetting.check_rights(ledger, places)
        continued: list[Removal] = []
        if not dry_run:
            with PreparationView(pause=2.0) as view:
                continued = forgetting.go_on(ledger, places, view.update)
        if not json:
            _print_continued(continued)
        ledger.reap(owner.this_process())
        named = _left(ledger, instances or (), continued)
        if instances and not named:
            return _end_continued(continued, where, json=json)
        try:
            plan = forgetting.plan(ledger, places, named, where, keep_shared=keep_shared)
        except NotFoundError:
            if not any(removal.selection == _selection(where) for removal in continued):
                raise
            return _end_continued(continued, where, json=json)
        is_shared = ledger.database.is_shared
        forgetting.check(plan, places, all_users=all_users, is_shared=is_shared)
        if not dry_run:
            forgetting.check_reason(plan, why)
        asking.check("forget", yes=yes or dry_run)
        if not json:
            _print(plan, places)
        if dry_run:
            if json:
                output.write_json(_document(plan, why))
            elif plan.evidence and not why:
                console.say("to forget evidence, a reason is needed: --why TEXT")
            return 0
        if not asking.agreed("forget them for good?", yes=yes):
            console.say("nothing was forgotten")
            return 1
        plan = forgetting.looked_again(ledger, plan)
        forgetting.check_reason(plan, why)
        why = forgetting.reasons(ledger, plan, why)
        with PreparationView(pause=2.0) as view:
            key, finished = forgetting.forget(ledger, places, plan, why, view.update)
        if not json:
            console.paragraph(
                f"forgotten: {_amount(plan.what)}; {plan.bytes / 1e6:,.1f} MB of files removed"
                if finished
                else f"forgotten: {_amount(plan.what)}; files remain"
            )
        freed = _give_back(ledger)
        if json:
            output.write_json(
                _document(plan, why, key=key, finished=finished, continued=continued, given_back=freed.bytes)
            )
        if freed.bytes >= _SHOWN_BYTES and not json:
            console.say(f"the ledger is {freed.bytes / 1e6:,.1f} MB smaller")
        if freed.kept:
            console.say(f"{freed.kept}: the space of what was forgotten is used for what is recorded next")
        return 0 if finished else 1


_SHOWN_BYTES = 50_000
"""Less would be printed as 0.0 MB."""


def _give_back(ledger: Ledger) -> Freed:
    """Gives space back to the system. What was forgotten is forgotten, although this fails or is stopped."""
    from lrurun.ledger.database import Freed
    from lrurun.report.live.views import PreparationView

    try:
        with PreparationView(pause=2.0) as view:
            view.update("giving space back", 0, None)
            return ledger.database.give_back()
    except LrurunError as error:
        return Freed(0, f"the ledger was not made smaller ({error.message})")
    except KeyboardInterrupt:
        return Freed(0, "the ledger was not made smaller (stopped)")


def _selection(where: str | None) -> str:
    return "" if where is None else shlex.join(["--where", where])


def _left(ledger: Ledger, instances: list[str] | tuple[str, ...], continued: list[Removal]) -> list[str]:
    """The named instances without those that an earlier command has forgotten, whose removal was continued now.

    Raises:
        NotFoundError: there is no such instance.
    """
    from lrurun.session import forgetting

    keys = {removal.key for removal in continued}
    left = []
    for name in instances:
        try:
            ledger.ladder(name)
            left.append(name)
        except NotFoundError:
            removal = forgetting.forgotten_by(ledger, name)
            if removal is None or removal.key not in keys:
                raise
    return left


def _print_continued(continued: list[Removal]) -> None:
    for removal in continued:
        console.paragraph(
            f"{console.clean(removal.selection)}: was forgotten before, {plural(removal.runs, 'run')}; the files that "
            "were left are removed now"
        )


def _end_continued(continued: list[Removal], where: str | None, *, json: bool) -> int:
    """The end of a command that has only continued earlier ones."""
    if json:
        output.write_json(
            ForgetDocument(
                dry_run=False,
                removal=None,
                selection=_selection(where) or ", ".join(removal.selection for removal in continued),
                why=None,
                instances=[],
                runs=[],
                bytes=0,
                evidence=[],
                finished=True,
                continued=[removal.key for removal in continued],
                given_back=0,
            )
        )
    return 0


def _print(plan: Plan, places: Places) -> None:
    for instance in plan.what.instances:
        states = Counter(run.state for run in plan.what.runs if _is_in(run, instance))
        counted = ", ".join(f"{count} {state}" for state, count in states.items())
        where = f"{instance.name} on {instance.task}" + f", profile {instance.profile}" * bool(instance.profile)
        stay = "" if instance in plan.what.whole else "; its other runs stay"
        console.paragraph(
            f"{instance.short_name} ({where}): {plural(states.total(), 'run')}: {counted or 'none'}{stay}"
        )
    if plan.keep_shared and plan.what.shared:
        verb = "stays" if len(plan.what.shared) == 1 else "stay"
        console.paragraph(f"{plural(len(plan.what.shared), 'run')} of other instances {verb} there")
    trained = [run for run in plan.what.runs if run.state != "queued" and run.kind != "imported"]
    if absent := len([run for run in trained if run.id not in plan.sizes]):
        console.paragraph(f"{plural(absent, 'run')} without a folder in {paths.shown_runs(places.runs)}")
    for clause in plan.evidence:
        console.paragraph(f"evidence: {clause}")
    console.paragraph(f"to be forgotten: {_amount(plan.what)}, {plan.bytes / 1e6:,.1f} MB of files")


def _is_in(run: object, instance: LadderInstance) -> bool:
    return any(place.ladder_key == instance.key for place in run.places)  # type: ignore[attr-defined]


def _amount(what: Forgettable) -> str:
    superseded = sum(run.superseded for run in what.runs)
    more = f" ({superseded} superseded)" if superseded else ""
    parts = [plural(len(what.whole), "instance")] if what.whole else []
    return ", ".join([*parts, f"{plural(len(what.runs), 'run')}{more}"])


def _document(
    plan: Plan,
    why: str | None,
    *,
    key: str | None = None,
    finished: bool = False,
    continued: list[Removal] | tuple[()] = (),
    given_back: int = 0,
) -> ForgetDocument:
    return ForgetDocument(
        dry_run=key is None,
        removal=key,
        selection=plan.selection,
        why=why,
        instances=[
            ForgottenInstance(
                name=instance.short_name,
                instance=instance.key,
                ladder=instance.name,
                task=instance.task,
                profile=instance.profile,
                runs=sum(_is_in(run, instance) for run in plan.what.runs),
                whole=instance in plan.what.whole,
            )
            for instance in plan.what.instances
        ],
        runs=[run.id for run in plan.what.runs],
        bytes=plan.bytes,
        evidence=list(plan.evidence),
        finished=finished,
        continued=[removal.key for removal in continued],
        given_back=given_back,
    )


@examples(
    "lrurun ledger forgotten",
    "lrurun ledger forgotten --json",
)
def forgotten(context: typer.Context, json: Json = False) -> int:
    """List what was forgotten or left out: when, by whom, why."""
    from lrurun.ledger.times import when
    from lrurun.session import forgetting

    places: Places = context.obj.places
    with opening.existing(places) as ledger:
        removals = ledger.removals()
        if json:
            output.write_json(Removals([_removal(ledger, removal) for removal in removals]))
            return 0
        unfinished = forgetting.elsewhere(ledger, places)
    if not removals:
        console.say("nothing was forgotten")
        return 0

    def column(name: str, cell: object, **more: object) -> table.Column:
        return table.Column(name=name, cell=cell, **more)  # type: ignore[arg-type]

    columns = (
        column("time", lambda row: when(row.time) or "", right=False),
        column("kind", lambda row: row.kind if row.finished_at else f"{row.kind}, unfinished", right=False),
        column("what", lambda row: console.clean(row.selection), right=False),
        column("runs", lambda row: f"{row.runs:,}"),
        column("MB", lambda row: "" if row.bytes is None else f"{row.bytes / 1e6:,.1f}", priority=1),
        column("user", lambda row: console.clean(row.user or ""), right=False, priority=2),
        column("why", lambda row: console.clean(row.why or ""), right=False),
    )
    table.show(table.Table(columns=columns, rows=tuple(removals)))
    if any(removal.finished_at is None for removal in removals):
        other = "".join(f"; in {folder} with --runs-dir" for folder in unfinished)
        console.say(f"files of unfinished ones remain: lrurun ledger gc removes them{other}")
    return 0


def _removal(ledger: Ledger, removal: Removal) -> RemovalOutput:
    from lrurun.ledger.times import when

    files, _ = ledger.removal_files(removal.key)
    return RemovalOutput(
        key=removal.key,
        kind=removal.kind,
        time=when(removal.time),
        user=removal.user,
        selection=removal.selection,
        why=removal.why,
        instances=sorted(files.instances.values()),
        runs=removal.runs,
        bytes=removal.bytes,
        finished_at=when(removal.finished_at),
        removed=[
            RemovedRunOutput(
                run=run.run,
                task=run.task,
                name=run.instance,
                instance=run.ladder_key,
                rung=run.rung,
                stage=run.stage,
                seed=run.seed,
                state=run.state,
            )
            for run in ledger.removed_runs(removal.key)
        ],
    )

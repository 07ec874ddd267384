"""`lrurun status`: the progress of the ladders in the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeVar

import typer
from msgspec import Struct, field

from lrurun import console
from lrurun.commands._shared import output
from lrurun.commands._shared.options import Json, OnlyInstances, Where
from lrurun.commands._shared.rules import examples, exclusive
from lrurun.config.instance import Instance
from lrurun.errors import LrurunError, UnreachableError, plural
from lrurun.session import opening

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.paths import Places
    from lrurun.report.live.progress import LadderProgress
    from lrurun.report.live.views import LadderView

WATCH_SECONDS = 1.0
STALLED_SECONDS = 30.0
"""How long --watch waits for queued runs that no process works on."""


class RungStatus(Struct, frozen=True, kw_only=True):
    """The runs of one rung and stage."""

    rung: str
    stage: str
    total: int
    queued: int
    running: int
    done: int
    diverged: int
    failed: int
    interrupted: int
    step: int
    steps: int
    loss: float | None = field(name="train/loss")
    accuracy: float | None = field(name="val/accuracy")
    """Null for tasks of other metrics."""
    steps_per_second: float | None
    eta_seconds: float | None
    score: float | None
    """The newest mean of the metric of the ladder."""


class LadderStatus(Struct, frozen=True, kw_only=True):
    """The progress of a ladder instance."""

    json_fields: ClassVar[Sequence[str]] = (
        "ladder task profile total done running queued interrupted diverged failed eta_seconds instance=key "
        "name=short_name set tune extend running_on silent user metric superseded_by missing_file hidden finished_at "
        "removed rungs"
    ).split()
    instance: Instance
    total: int
    done: int
    running: int
    queued: int
    interrupted: int
    diverged: int
    failed: int
    eta_seconds: float | None
    running_on: Mapping[str, str]
    silent: Mapping[str, float]
    """Id of a running run whose worker has not advanced for longer than usual -> seconds since it did."""
    user: str | None
    metric: str
    """The metric that selects the models of the task, for example "val/accuracy"."""
    superseded_by: str | None
    """The short name of the instance that replaces this one, which stays unfinished."""
    missing_file: str | None
    """The ladder or recipe of an unfinished instance that is not where it was."""
    hidden: bool
    """Whether `lrurun ledger hide` took it out of lists."""
    finished_at: str | None
    """When the last of its runs ended; null while runs remain."""
    removed: Mapping[str, int]
    """"forgotten" or "left out" of this copy -> how many of its runs were, and are not back."""
    rungs: list[RungStatus]


class StatusDocument(Struct, frozen=True):
    """The JSON of `lrurun status`."""

    ladders: list[LadderStatus]


@examples(
    "lrurun status",
    "lrurun status --watch",
)
@exclusive("watch", "json")
@exclusive("watch", "superseded")
@exclusive("watch", "details")
@exclusive("json", "details")
def status(
    context: typer.Context,
    instance: OnlyInstances = None,
    where: Where = None,
    details: Annotated[bool, typer.Option("--details", help="Show the rungs of every ladder.")] = False,
    hidden: Annotated[bool, typer.Option("--hidden", help="Also show hidden instances.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Update the display until all runs are finished.")] = False,
    superseded: Annotated[
        bool,
        typer.Option("--superseded", help="Also show those that stay unfinished, because their files have changed."),
    ] = False,
    json: Json = False,
) -> int:
    """Show the progress of every ladder.

    By ladder and task, newest first. What is finished is a line: its runs, when it ended, the best rung. Others, those
    that --instance names, and with --details all, have their rungs: how many runs are done, running or queued, training
    loss, validation score, speed and time left. --where selects ladders that have a run which meets the condition.
    """
    from lrurun.report.live import projects

    places: Places = context.obj.places
    wanted = _Wanted(instances=instance or [], where=where, with_hidden=hidden)
    if watch:
        return _watch(places, wanted)
    states, hidden_count = _states(places, wanted)
    if json:
        output.write_json(StatusDocument([_output(state) for state in states]))
        return 0
    shown = [state for state in states if superseded or instance or state.superseded_by is None]
    if shown:
        listed = [projects.Shown(state.progress, state.remarks()) for state in shown]
        is_screen, color = console.is_screen(), console.has_color()
        lines = projects.lines(
            listed,
            details=details or bool(instance),
            width=console.width() if is_screen else None,
            color=color and is_screen,
            ascii=console.is_ascii(),
        )
        console.write("\n".join(lines.lines), styled=color and is_screen)
        if lines.folded:
            console.say("lrurun status --details shows the rungs of all, --instance NAME those of one")
    elif not states and not hidden_count:
        is_chosen = instance or where is not None
        console.say("no ladder has such a run" if is_chosen else opening.nothing_yet(places, "ladders"))
    if count := len(states) - len(shown):
        console.say(f"not shown: {plural(count, 'superseded ladder')}; lrurun status --superseded shows all")
    if hidden_count:
        console.say(f"not shown: {plural(hidden_count, 'hidden instance')}; lrurun status --hidden shows all")
    return 0


class _Wanted(Struct, frozen=True, kw_only=True):
    """The instances that the options select."""

    instances: Sequence[str]
    """Their short names or ids; empty: all."""
    where: str | None
    with_hidden: bool

    def ledger(self, places: Places) -> Ledger:
        """The ledger for reading, as it is now. Raises NotFoundError if there is none, and an instance is named."""
        return opening.read_for_run(places, None) if self.instances else opening.read_current(places)

    def of(self, ledger: Ledger, hidden: Container[str]) -> tuple[list[LadderInstance], int]:
        """The instances, oldest first, and how many are left out because they are hidden and not named."""
        from lrurun.session import parts

        chosen = ledger.ladders_of(parts.named(ledger, self.instances, self.where))
        shown = [one for one in chosen if self.with_hidden or self.instances or one.key not in hidden]
        return shown, len(chosen) - len(shown)


def _watch(places: Places, wanted: _Wanted) -> int:
    """Shows one unfinished ladder after the other until all are finished or no process works on them.

    A ladder whose runs were submitted to an engine is shown until it is finished: its jobs may wait for hours. On a
    server these are the ladders of this user, or everybody's if this user has none. A server that does not answer is
    waited for as long as a process that does not work.
    """
    from lrurun.ledger import owner
    from lrurun.report.live.views import LadderView

    active = _active(places, wanted)
    if not active:
        console.say("nothing to watch: no run is queued or running")
        return 0
    own_users = {None, owner.user()}
    users = {ladder.user for ladder, _ in active}
    if users & own_users:
        users = own_users
    stalled: set[str] = set()
    since = time.monotonic()
    while candidates := [
        (ladder, runs) for ladder, runs in active if ladder.user in users and (runs or ladder.key not in stalled)
    ]:
        # the newest that has a running run, else the newest
        chosen, _ = max(candidates, key=lambda candidate: (candidate[1], candidate[0].created_at))
        with LadderView() as display:
            finished, since = _follow(places, chosen, display, since)
        if not finished:
            stalled.add(chosen.key)
        active = _patiently(places, lambda: _active(places, wanted))
    if stalled & {ladder.key for ladder, _ in active}:
        console.say(
            f"nothing has run for {STALLED_SECONDS:.0f} s: no process works on the queued runs; "
            "lrurun resume starts one"
        )
    return 0


def _active(places: Places, wanted: _Wanted) -> list[tuple[LadderInstance, bool]]:
    """The ladders with queued or running runs, and whether one is running."""
    from lrurun.instances import continuing

    with wanted.ledger(places) as ledger:
        if not ledger.exists:
            return []
        superseded, hidden = continuing.superseded(ledger), ledger.hidden()
        counted = [
            (ladder, ledger.state_counts(ladder.key))
            for ladder in wanted.of(ledger, hidden)[0]
            if ladder.key not in superseded
        ]
    return [(ladder, "running" in counts) for ladder, counts in counted if {"running", "queued"} & set(counts)]


def _follow(places: Places, ladder: LadderInstance, display: LadderView, since: float) -> tuple[bool, float]:
    """Shows a ladder until it is finished, or until nothing has run since `since` for too long.

    Returns:
        Whether it is finished, and when a run was last seen running.
    """
    submitted = False
    while True:
        counts, was_submitted = _patiently(places, lambda: _shown(places, ladder, display))
        submitted |= was_submitted
        remaining = counts.get("queued", 0) + (counts.get("interrupted", 0) if submitted else 0)
        if counts.get("running"):
            since = time.monotonic()
        elif not remaining:
            return True, since
        elif not submitted and time.monotonic() - since > STALLED_SECONDS:
            return False, since
        time.sleep(WATCH_SECONDS)


T = TypeVar("T")


def _patiently(places: Places, call: Callable[[], T]) -> T:
    """The result of `call`; a server that does not answer is asked again for half a minute."""

    away: float | None = None
    while True:
        try:
            return call()
        except UnreachableError:
            if away is None:
                away = time.monotonic()
                console.say(f"the ledger {places.ledger} does not answer")
            if time.monotonic() - away > STALLED_SECONDS:
                raise


def _shown(places: Places, ladder: LadderInstance, display: LadderView) -> tuple[Mapping[str, int], bool]:
    """Updates the display; how many runs are in each state, and whether they were submitted to an engine."""
    from lrurun.runner.node import SUBMITTED

    with opening.read_current(places) as ledger:
        if not ledger.exists:
            raise LrurunError(f"{places.ledger}: the ledger was removed while it was watched", "put it back")
        display.update(ledger, ladder)
        events = ledger.events(ladder_key=ladder.key, of_runs=False)
        return ledger.state_counts(ladder.key), any(event.kind == SUBMITTED for event in events)


def _output(state: _State) -> LadderStatus:
    from lrurun.ledger.times import when
    from lrurun.ledger.values import SCORE, STATES

    progress = state.progress
    metric = progress.form.validation
    return LadderStatus(
        instance=progress.ladder.identity,
        total=progress.total,
        **{state: progress.counts.get(state, 0) for state in STATES},
        eta_seconds=progress.eta_seconds,
        running_on=progress.running_on,
        silent={run: since for run, (since, _) in progress.silent.items()},
        user=progress.ladder.user,
        metric=metric,
        superseded_by=None if state.superseded_by is None else state.superseded_by.short_name,
        missing_file=state.missing_file,
        hidden=state.hidden,
        finished_at=when(progress.finished_at),
        removed={str(kind): count for kind, count in progress.removed.items()},
        rungs=[
            RungStatus(
                rung=rung.rung,
                stage=rung.stage,
                total=rung.total,
                **{state: rung.counts.get(state, 0) for state in STATES},
                step=rung.step,
                steps=rung.steps,
                loss=rung.loss,
                accuracy=rung.score if metric == SCORE else None,
                steps_per_second=rung.speed,
                eta_seconds=rung.eta_seconds,
                score=rung.score,
            )
            for rung in progress.rungs
        ],
    )


class _State(Struct, frozen=True, kw_only=True):
    """The progress of an instance, and what prevents `lrurun resume` from finishing it."""

    progress: LadderProgress
    superseded_by: LadderInstance | None
    missing_file: str | None
    hidden: bool

    def remarks(self) -> list[str]:
        """What prevents it, in sentences."""
        from lrurun.instances import continuing, phrases

        if self.superseded_by is not None:
            return [continuing.sentence(self.progress.ladder, self.superseded_by)]
        if self.missing_file is not None:
            return [f"its file {self.missing_file} is gone: lrurun resume continues it when the file is back"]
        if self.hidden:
            return [f"hidden: {phrases.show_again(self.progress.ladder.short_name)}"]
        return []


def _states(places: Places, wanted: _Wanted) -> tuple[list[_State], int]:
    """The instances that the options select, and how many hidden ones are left out."""
    from lrurun.instances import continuing
    from lrurun.report.live import progress

    with wanted.ledger(places) as ledger:
        if not ledger.exists:
            return [], 0
        hidden = ledger.hidden()
        chosen, left_out = wanted.of(ledger, hidden)
        superseded, missing = continuing.superseded(ledger), continuing.missing_files(ledger)
        states = [
            _State(
                progress=progress.collect(ledger, ladder),
                superseded_by=superseded.get(ladder.key),
                missing_file=missing.get(ladder.key),
                hidden=ladder.key in hidden,
            )
            for ladder in chosen
        ]
        return states, left_out

"""`lrurun status`: the progress of the ladders in the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeVar

import typer
from msgspec import Struct, field

from lrurun import console, table
from lrurun.commands._shared import output
from lrurun.commands._shared.options import Json, OnlyInstance
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
        "name=short_name set tune running_on silent user metric superseded_by missing_file rungs"
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
def status(
    context: typer.Context,
    instance: OnlyInstance = None,
    watch: Annotated[bool, typer.Option("--watch", help="Update the display until all runs are finished.")] = False,
    superseded: Annotated[
        bool,
        typer.Option("--superseded", help="Also show those that stay unfinished, because their files have changed."),
    ] = False,
    json: Json = False,
) -> int:
    """Show the progress of every ladder.

    For each rung: how many runs are done, running or queued, training loss, validation score, speed and time left.
    """
    from lrurun.report.live import progress

    places: Places = context.obj.places
    if watch:
        return _watch(places, instance)
    states = _states(places, instance)
    if json:
        output.write_json(StatusDocument([_output(state) for state in states]))
        return 0
    if not states:
        console.say(opening.nothing_yet(places, "ladders"))
    shown = [state for state in states if superseded or instance is not None or state.superseded_by is None]
    for number, state in enumerate(shown):
        ladder = state.progress
        if number:
            console.write("")
        if console.is_screen():
            color = console.has_color()
            lines = progress.view(ladder, console.width(), color=color)
            lines += [
                line for text in state.remarks() for line in console.wrapped(console.clean(text), console.width())
            ]
            console.write("\n".join(lines), styled=color)
            continue
        table.show_text(progress.columns(ladder), progress.rows(ladder), title=progress.title(ladder.ladder))
        lines = [progress.summary(ladder), *filter(None, [progress.so_far(ladder)]), *progress.running_lines(ladder)]
        console.write("\n".join(map(console.clean, [*lines, *state.remarks()])))
    if count := len(states) - len(shown):
        console.say(f"not shown: {plural(count, 'superseded ladder')}; lrurun status --superseded shows all")
    return 0


def _watch(places: Places, only: str | None) -> int:
    """Shows one unfinished ladder after the other until all are finished or no process works on them.

    A ladder whose runs were submitted to an engine is shown until it is finished: its jobs may wait for hours. On a
    server these are the ladders of this user, or everybody's if this user has none. A server that does not answer is
    waited for as long as a process that does not work.
    """
    from lrurun.ledger import owner
    from lrurun.report.live.views import LadderView

    active = _active(places, only)
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
        active = _patiently(places, lambda: _active(places, only))
    if stalled & {ladder.key for ladder, _ in active}:
        console.say(
            f"nothing has run for {STALLED_SECONDS:.0f} s: no process works on the queued runs; "
            "lrurun resume starts one"
        )
    return 0


def _active(places: Places, only: str | None) -> list[tuple[LadderInstance, bool]]:
    """The ladders with queued or running runs, and whether one is running."""
    from lrurun.instances import continuing

    with opening.read_current(places) as ledger:
        if not ledger.exists:
            return []
        superseded = continuing.superseded(ledger)
        counted = [
            (ladder, ledger.state_counts(ladder.key))
            for ladder in _instances(ledger, only)
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


class _State(Struct, frozen=True):
    """The progress of an instance, and what prevents `lrurun resume` from finishing it."""

    progress: LadderProgress
    superseded_by: LadderInstance | None
    missing_file: str | None

    def remarks(self) -> list[str]:
        """What prevents it, in sentences."""
        from lrurun.instances import continuing

        if self.superseded_by is not None:
            return [continuing.sentence(self.progress.ladder, self.superseded_by)]
        if self.missing_file is not None:
            return [f"its file {self.missing_file} is gone: lrurun resume continues it when the file is back"]
        return []


def _states(places: Places, only: str | None) -> list[_State]:
    from lrurun.instances import continuing
    from lrurun.report.live import progress

    with opening.read_current(places) as ledger:
        if not ledger.exists:
            return []
        superseded, missing = continuing.superseded(ledger), continuing.missing_files(ledger)
        return [
            _State(progress.collect(ledger, ladder), superseded.get(ladder.key), missing.get(ladder.key))
            for ladder in _instances(ledger, only)
        ]


def _instances(ledger: Ledger, only: str | None) -> list[LadderInstance]:
    """All instances, or the one that `only` names."""
    return ledger.ladders() if only is None else [ledger.ladder(only)]

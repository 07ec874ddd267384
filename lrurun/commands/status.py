"""`lrurun status`: the progress of the ladders in the ledger."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct, field

from lrurun import console
from lrurun.commands import opening, output
from lrurun.commands.options import Json
from lrurun.errors import LrurunError, UsageError

if TYPE_CHECKING:
    from lrurun.paths import Places
    from lrurun.report.progress import Progress

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
    """Of the metric of the ladder."""


class LadderStatus(Struct, frozen=True, kw_only=True):
    """The progress of a ladder instance."""

    ladder: str
    task: str
    profile: str | None
    total: int
    done: int
    running: int
    queued: int
    interrupted: int
    diverged: int
    failed: int
    eta_seconds: float | None
    instance: str
    set: Mapping[str, Any]
    tune: bool
    running_on: Mapping[str, str]
    metric: str
    """That which selects the models of the task, as in "val/accuracy"."""
    rungs: list[RungStatus]


class StatusDocument(Struct, frozen=True):
    """The JSON of `lrurun status`."""

    ladders: list[LadderStatus]


def status(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Update the display until all runs are finished.")] = False,
    json: Json = False,
) -> int:
    """Show the progress of every ladder.

    For each rung: how many runs are done, running or queued, training loss, validation score, speed and time left.
    """
    from lrurun.report import progress

    places: Places = context.obj.places
    if watch and json:
        raise UsageError("--watch and --json exclude each other", "leave one of them out")
    if watch:
        return _watch(places)
    found = _progress(places)
    if json:
        output.write_json(StatusDocument([_output(one) for one in found]))
        return 0
    if not found:
        console.say(f"no ladders in {places.ledger} yet; lrurun ladder TASK starts one")
    for number, one in enumerate(found):
        if console.is_screen():
            console.show(progress.view(one, console.width()))
            continue
        if number:
            console.write("")
        console.table(progress.title(one.ladder), progress.columns(one), progress.rows(one))
        console.write("\n".join(map(console.clean, [progress.summary(one), *progress.running_lines(one)])))
    return 0


def _watch(places: Places) -> int:
    """Shows the ladder that is running until it is finished or no process works on it."""
    from lrurun.report.live import LadderView

    active = [p for p in _progress(places) if p.counts.get("running") or p.counts.get("queued")]
    if not active:
        console.say("nothing to watch: no run is queued or running")
        return 0
    # the newest that has a running run, else the newest
    chosen = max(active, key=lambda p: (p.counts.get("running", 0) > 0, p.ladder.created_at))
    last_seen = time.monotonic()
    with LadderView() as display:
        while True:
            ledger = opening.read_current(places)
            if ledger is None:
                raise LrurunError(f"{places.ledger}: the ledger was removed while it was watched", "put it back")
            with ledger:
                display.update(ledger, chosen.ladder)
                counts = ledger.state_counts(chosen.ladder.key)
            if counts.get("running"):
                last_seen = time.monotonic()
            if not counts.get("running") and not counts.get("queued"):
                return 0
            if time.monotonic() - last_seen > STALLED_SECONDS:
                console.say(
                    f"nothing has run for {STALLED_SECONDS:.0f} s: no process works on the queued runs; "
                    "lrurun resume starts one"
                )
                return 0
            time.sleep(WATCH_SECONDS)


def _output(progress: Progress) -> LadderStatus:
    from lrurun.ledger.values import SCORE, STATES

    spec, metric = progress.ladder.spec, progress.form.validation
    return LadderStatus(
        ladder=progress.ladder.name,
        task=progress.ladder.task,
        profile=progress.ladder.profile,
        total=progress.total,
        **{state: progress.counts.get(state, 0) for state in STATES},
        eta_seconds=progress.eta_seconds,
        instance=progress.ladder.key,
        set=spec.get("set", {}),
        tune=spec.get("tune", False),
        running_on=progress.places,
        metric=metric,
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


def _progress(places: Places) -> list[Progress]:
    from lrurun.report import progress

    ledger = opening.read_current(places)
    if ledger is None:
        return []
    with ledger:
        return [progress.collect(ledger, ladder) for ladder in ledger.ladders()]

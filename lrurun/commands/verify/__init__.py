"""`lrurun verify`: train a run again, and compare; `--items`: see `items`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct, structs

from lrurun import console
from lrurun.commands._shared import output
from lrurun.commands._shared.options import Json, OnlyInstance, SomeRunIds
from lrurun.commands._shared.rules import examples, needs
from lrurun.errors import LrurunError, Stopped, UsageError, plural
from lrurun.report.verification import Difference
from lrurun.session import opening

if TYPE_CHECKING:
    from lrurun.config.planning import Plan
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Run
    from lrurun.paths import Places
    from lrurun.report.verification import Recorded, Verification
    from lrurun.runner.signals import Signals


class TrainingOutput(Struct, frozen=True, kw_only=True):
    """How a run ended, and where it was trained."""

    state: str
    step: int
    result: Mapping[str, float]
    environment: Mapping[str, Any]
    """The environment of the last attempt."""


class VerifyDocument(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun verify`."""

    run: str
    verdict: str
    """"equal" (bit for bit), "within tolerance" or "different"."""
    exact: bool
    """Whether equality bit for bit was required."""
    reasons: Sequence[str]
    """Why it was not."""
    metrics: int
    values: int
    """How many were compared."""
    differing: int
    first_difference: Difference | None
    beyond_tolerance: Difference | None
    """The first difference that is larger than allowed."""
    largest_differences: Sequence[Difference]
    """The largest difference of each metric."""
    recorded: TrainingOutput
    repeated: TrainingOutput


@examples(
    "lrurun verify 3f2a",
    "lrurun verify --items --instance npDigits",
)
@needs("instance", "items")
def verify(
    context: typer.Context,
    run: SomeRunIds = None,
    items: Annotated[
        bool, typer.Option("--items", help="Add per-item results from final checkpoints, without training.")
    ] = False,
    instance: OnlyInstance = None,
    json: Json = False,
) -> int:
    """Train a run again and compare its curves and result.

    It is trained in a temporary folder, on the data that it was trained on; ledger and runs folder stay as they are. On
    a machine of the same type all values must be equal bit for bit, on another one within a tolerance. The exit code is
    3 if they are not.

    With --items runs that were recorded without per-item results get them: their final checkpoints, where
    they are kept, are evaluated once on the test split, and must give the recorded scores.
    """
    places: Places = context.obj.places
    names = run or []
    if items:
        from lrurun.commands.verify.items import verify_items

        return verify_items(places, names, instance, json=json)
    if len(names) != 1:
        found = f"{len(names)} RUNs" if names else "none"
        raise UsageError(f"verify: expected one RUN, found {found}", "lrurun runs lists the runs")
    return _verify(places, names[0], json=json)


def _verify(places: Places, run: str, *, json: bool) -> int:
    from lrurun.instances import documents
    from lrurun.report import verification
    from lrurun.runner.preparation import TooFewDevices, check_devices
    from lrurun.runner.signals import Signals

    with opening.existing(places, run) as ledger:
        recorded = _recorded(ledger, run)
        documents.load_code_of(ledger, recorded.run)
    plan = _plan(places, recorded)
    devices = max(rung.execution.devices for rung in plan.rungs)
    try:
        check_devices(devices, of_programs=plan.kind == "program")
    except TooFewDevices as error:
        error.hint = error.elsewhere  # the repetition has the settings of the run
        raise
    signals = Signals()
    try:
        with signals.recorded(), _temporary_folder() as folder:
            console.say(_announcement(recorded.run))
            temporary = structs.replace(places, ledger=folder / "ledger.db", runs=folder / "runs")
            repeated = _train(temporary, plan, recorded.run, signals, others=_snapshots(places, plan))
    except Stopped as stopped:
        console.say(f"stopped by {stopped}; nothing of the repetition remains")
        return stopped.exit_code
    result = verification.verify(recorded, repeated)
    if json:
        output.write_json(_document(result, recorded, repeated))
    else:
        _print(result, recorded, repeated)
    return 3 if result.verdict == "different" else 0


def _recorded(ledger: Ledger, name: str) -> Recorded:
    from lrurun.report.verification import Recorded

    run = ledger.run(name)
    return Recorded(run=run, attempts=ledger.attempts(run.id), curves=ledger.metrics(run.id))


def _plan(places: Places, recorded: Recorded) -> Plan:
    """The plan that trains the run again.

    Raises:
        LrurunError: it is unfinished, a plug-in is not loaded, its data are not in the data folder, or its program is
            not where it was.
    """
    from lrurun.ledger.values import FINISHED
    from lrurun.report import again

    run = recorded.run
    if run.state not in FINISHED and run.kind != "imported":
        hints = {"failed": f"its error: lrurun show {run.id}", "running": "wait for its end: lrurun status --watch"}
        raise LrurunError(
            f"run {run.id} is {run.state}, at {run.reached}: only finished runs can be verified",
            hints.get(run.state, "finish it first: lrurun resume"),
        )
    if run.kind == "program":
        folders = [str(attempt.environment.get("folder", "")) for attempt in recorded.attempts]
        return again.plan_of(run, Path(folders[-1]))
    plan = again.plan_of(run)
    return structs.replace(plan, data_name=again.data_folder(plan, run, places.data))


def _announcement(run: Run) -> str:
    from lrurun.judging.rung_runs import SPEED

    speed = (run.result or {}).get(SPEED)
    time = f", about {console.duration(run.step / speed)} at the speed of the run" if speed else ""
    return f"run {run.id} is trained again: {plural(run.step, 'step')}{time}"


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A folder that is removed at the end."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="lrurun-verify-")
    except OSError as error:
        raise LrurunError(
            f"no temporary folder can be created: {error.strerror}", "free some space, or name a folder in TMPDIR"
        ) from None
    with folder as name:
        yield Path(name)


def _snapshots(places: Places, plan: Plan) -> list[Path]:
    """Where the files of a program may be as they were, if they are not in the folder of the recipe."""
    from lrurun.config.schema import ProgramConfig
    from lrurun.runner.program_files import ProgramSnapshot

    config = plan.rungs[0].config
    if not isinstance(config, ProgramConfig):
        return []
    return [ProgramSnapshot(places.runs.absolute(), plan.recipe.folder, config.program.files).path]


def _train(places: Places, plan: Plan, run: Run, signals: Signals, *, others: Sequence[Path]) -> Recorded:
    """Trains the run of a plan in temporary places. `others` may have the files of its program.

    Raises:
        Stopped: after a signal.
        LrurunError: the training failed.
    """
    from lrurun.instances import documents
    from lrurun.ledger.values import FINISHED
    from lrurun.report.live.views import LadderView
    from lrurun.runner.selection import Selection
    from lrurun.runner.supervisor import Supervisor

    with opening.write(places, training=True) as ledger:
        with LadderView() as display:
            selection = Selection(plan=plan, rungs=plan.rungs, seeds=[run.seed])
            instance = ledger.add_ladder(
                plan.ladder.name, plan.recipe.task, plan.profile, plan.spec, plan.short_name, kind=plan.kind
            )
            if plan.kind == "program":  # whose recipe says how scores are printed
                documents.record(ledger, instance, plan)
            selection.keep_files(places.runs, *others)
            work = selection.work(instance, places, jobs=1)
            outcome = Supervisor(ledger, work, selection, display, signals).run()
        repeated = _recorded(ledger, outcome.runs[0].id)
        if repeated.run.state not in FINISHED:
            died = [event.text for event in ledger.events(run=repeated.run.id) if event.kind == "died"]
            reason = (repeated.run.error or "".join(died[-1:]) or repeated.run.state).splitlines()[0]
            raise LrurunError(
                f"run {run.id} was {run.state}, its repetition did not finish: {reason}",
                "lrurun doctor shows what this machine has",
            )
    return repeated


def _document(result: Verification, recorded: Recorded, repeated: Recorded) -> VerifyDocument:
    return VerifyDocument(
        run=recorded.run.id,
        verdict=result.verdict,
        exact=result.exact,
        reasons=result.reasons,
        metrics=result.metrics,
        values=result.values,
        differing=result.differing,
        first_difference=result.first,
        beyond_tolerance=result.beyond,
        largest_differences=result.largest,
        recorded=_training(recorded),
        repeated=_training(repeated),
    )


def _training(training: Recorded) -> TrainingOutput:
    return TrainingOutput(
        state=training.run.state,
        step=training.run.step,
        result=training.run.result or {},
        environment=training.attempts[-1].environment if training.attempts else {},
    )


_VERDICTS = {
    "equal": "verified: {subject} equal bit for bit",
    "within tolerance": "verified within the tolerance: {difference}",
    "different": "not verified: {difference}",
}


def _print(result: Verification, recorded: Recorded, repeated: Recorded) -> None:
    run, repetition = recorded.run, repeated.run
    rung = f", {run.memberships[0].rung}" if run.memberships else ""
    numbers = f"{plural(result.values, 'value')} of {plural(result.metrics, 'metric')}"
    difference = (
        f"{result.differing} of {numbers} {'differs' if result.differing == 1 else 'differ'}"
        if result.differing
        else "it ended differently"
    )
    subject = "the only value is" if result.values == 1 else f"all {numbers} are"
    verdict = _VERDICTS[result.verdict].format(subject=subject, difference=difference)
    console.paragraph(console.clean(f"run {run.id} ({run.task}{rung}, seed {run.seed}): {verdict}"))
    ends = [f"{side.state} at step {side.step}" for side in (run, repetition)]
    if ends[0] != ends[1]:
        console.paragraph(f"The run is {ends[0]}, the repetition {ends[1]}.")
    if result.first is not None:
        console.paragraph(f"First difference: {_difference(result.first)}.")
    if result.beyond not in (None, result.first):
        console.paragraph(f"First difference beyond the tolerance: {_difference(result.beyond)}.")
    if result.reasons and result.differing:
        console.paragraph(console.clean(f"Equality bit for bit is not required: {'; '.join(result.reasons)}."))
    if len(result.largest) > 1 or (result.largest and result.largest[0] != result.first):
        console.paragraph(f"Largest differences: {'; '.join(map(_difference, result.largest[:10]))}.")
    codes = ["; ".join(side.code) or "not recorded" for side in (run, repetition)]
    if codes[0] != codes[1]:
        console.paragraph(console.clean(f"Code: {codes[0]} in the run, {codes[1]} now."))


def _difference(difference: Difference | None) -> str:
    assert difference is not None
    where = "in the result" if difference.step is None else f"at step {difference.step}"
    recorded, repeated = (
        "no value" if value is None else repr(value) for value in (difference.recorded, difference.repeated)
    )
    return console.clean(f"{difference.metric} {where}: {recorded} in the run, {repeated} in the repetition")

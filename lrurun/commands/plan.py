"""`lrurun plan`: what a ladder would train, what is done already, and how long the rest will take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Optional

import msgspec
import typer
from msgspec import Struct, structs

from lrurun import console, table
from lrurun.bench.rungs import Measurement, Measurements
from lrurun.commands._shared import output
from lrurun.commands._shared.options import (
    Decide,
    Json,
    LadderName,
    MaxSeeds,
    ProfileName,
    Rungs,
    Seeds,
    Sets,
    Sweeps,
    Task,
    Tune,
)
from lrurun.commands._shared.rules import DECIDE_HINT, examples, excludes, needs
from lrurun.config.instance import Instance
from lrurun.errors import LrurunError, UsageError, plural
from lrurun.instances.requests import LadderRequest, ladder_or_default
from lrurun.session import cautions, opening

if TYPE_CHECKING:
    from lrurun.commands._shared import sweeps
    from lrurun.config import planning
    from lrurun.config.runs import PlannedRun
    from lrurun.config.schema import Config
    from lrurun.judging import sequential
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import Run
    from lrurun.paths import Places
    from lrurun.report.tables.ladder_table import LadderReport


_TO_BE_CHOSEN = "will be chosen on validation"


class Change(Struct, frozen=True, kw_only=True):
    """A setting in which a rung differs from its base."""

    path: str
    before: Any
    after: Any
    source: str


class PlannedRung(Struct, frozen=True, kw_only=True):
    """A rung, what it would train, and what is done."""

    rung: str
    title: str
    on: str | None
    same_as_before: bool
    moves: list[Change]
    learning_rate: float | None
    """None for a user's program."""
    rate_source: Mapping[str, Any]
    steps: int
    tuning_runs: int
    runs: int
    runs_left: int
    runs_done: int
    seeds_left: list[int]
    """The seeds of the final runs that remain."""
    starts_again: list[str]
    """Ids of unfinished runs that start again from step 0, because they began with an earlier numerics version."""
    refused: list[str]
    """Ids of unfinished runs that this lrurun does not continue, because they began with a later one."""
    steps_per_second: float | None
    """The speed that was measured, or that of an earlier run with these settings; None if there is none, and for users'
    programs."""
    seconds_per_run: float | None
    """The time of a run with one worker, as measured or as earlier runs show it; None if there is neither."""
    seconds_left: float | None
    """The time left with one worker; None where it is not known."""
    measurement: Measurement | None = None
    """With `--measure`: what it found; it is then the source of the speed and the times."""
    measurement_error: str | None = None
    """Why the rung could not be measured."""

    def seconds_for(self, seeds: int) -> float | None:
        """The time of so many final runs, with one worker; None where that is not known."""
        return None if self.seconds_per_run is None else seeds * self.seconds_per_run


class FirmVerdict(Struct, frozen=True, kw_only=True):
    """The runs that are left until verdicts hold when seeds fail, or of a repetition of the ladder."""

    seeds: int
    """The number of seeds of each rung."""
    runs_left: int
    eta_seconds: float | None
    """The time of training; None if no finished run shows the speed."""
    command: str
    compiles: bool
    """Whether compiling takes time beside it."""

    @property
    def text(self) -> str:
        """The command with its cost, for example "lrurun ladder sDigits --seeds 12 (72 runs, about 4 min plus
        compiling)"."""
        time = "" if self.eta_seconds is None else f", about {console.rough_duration(self.eta_seconds)}"
        time += " plus compiling" if time and self.compiles else ""
        return f"{self.command} ({plural(self.runs_left, 'run')}{time})"


class PlanDocument(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun plan`."""

    flat: ClassVar[str] = "ladder task profile set tune name label data"
    instance: Instance
    """With the short name that it has in the ledger, or will get, and the data as far as they are prepared."""
    seeds: list[int]
    design: Mapping[str, Any] | None = None
    """The sequential design with `--decide`, as in the report on a ladder."""
    workers: int
    eta_seconds: float | None
    later_runs: int = 0
    """With `--decide`: at most so many more follow, after the next look."""
    later_seconds: float | None = None
    """The time that they take at most; None where that is not known."""
    firm: FirmVerdict | None = None
    """The runs that firm verdicts need, without `--decide` and with too few seeds. Profile smoke has none."""
    rungs: list[PlannedRung]
    notes: list[str]


class SweepDocument(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun plan --sweep`."""

    sweep: dict[str, list[Any]]
    """Dotted path -> its values."""
    eta_seconds: float | None
    plans: Sequence[Any]
    """One for each combination of values, as without `--sweep`."""


@examples(
    "lrurun plan npDigits",
    "lrurun plan npDigits --tune --seeds 12",
)
@excludes("decide", "seeds", "rung", hint=DECIDE_HINT)
@excludes("measure", "sweep", hint="measure one instance, with --set")
@needs("max_seeds", "decide")
@needs("time_limit", "measure")
def plan(
    context: typer.Context,
    task: Task,
    ladder: LadderName = None,
    profile: ProfileName = None,
    rung: Rungs = None,
    seeds: Seeds = None,
    decide: Decide = False,
    max_seeds: MaxSeeds = None,
    tune: Tune = False,
    set_: Sets = None,
    sweep: Sweeps = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Compile each rung and time a few steps here: time and memory.")
    ] = False,
    time_limit: Annotated[
        Optional[str],
        typer.Option("--time-limit", metavar="T", help="With --measure: stop within this time, as in 10m."),
    ] = None,
    json: Json = False,
) -> int:
    """Show what a ladder would train, and how long that takes.

    No run is trained or recorded. With -v also the parameter groups of every rung. The exit code is 3 if --measure
    fails on a rung, for lack of memory, for example. ^C and --time-limit end the measuring; the plan has what was
    found.
    """
    places: Places = context.obj.places
    request = LadderRequest(
        task=task,
        ladder=ladder_or_default(ladder, task),
        profile=profile,
        rungs=rung or [],
        seeds=seeds,
        tune=tune,
        sets=set_ or [],
        decide=decide,
        max_seeds=max_seeds,
    )
    request.check()
    if sweep:
        return show_sweep(places, request, sweep, json=json)
    made = request.plan()
    rungs, _ = request.chosen(made)
    cautions.report_hidden(request)
    cautions.warn_of_batches(made, rungs)
    measured: Measurements | None = None
    if measure:
        if made.kind == "program":
            raise UsageError(
                f"--measure: {made.recipe.task} is trained by a program, whose steps lrurun cannot time",
                "leave --measure out: plan knows the time of a run when the first one is finished",
            )
        measured = _measure(places, made, rungs, time_limit)
    return show(places, request, made, measured, json=json)


def _measure(
    places: Places, made: planning.Plan, rungs: Sequence[planning.ResolvedRung], time_limit: str | None
) -> Measurements:
    """Measures the rungs, and prints what is found of each."""
    from lrurun.bench.rungs import error_text
    from lrurun.report.live.views import MeasuringView
    from lrurun.runner.signals import GRACE_SECONDS, Signals
    from lrurun.session.training_options import seconds_of

    class Display(MeasuringView):
        def found(self, rung: planning.ResolvedRung, measurement: Measurement | LrurunError) -> None:
            if isinstance(measurement, LrurunError):
                console.say(f"{rung.name}: {error_text(measurement)}")
                return
            run = console.rough_duration(measurement.seconds(rung.training.train))
            console.say(
                f"{rung.name}: {_seconds(measurement.seconds_per_step)} a step, {run} a run, compiled in "
                f"{_seconds(measurement.compile_seconds)}, {_bytes(measurement.training_bytes)} for training"
            )

    signals = Signals(None if time_limit is None else seconds_of(time_limit))
    signals.reserve(1.0 - GRACE_SECONDS)  # nothing is to be saved
    with signals.recorded(), Display() as display:
        return Measurements(rungs, places.data / made.data_name, signals, display)


def show_sweep(places: Places, request: LadderRequest, sweep: Sequence[str], *, json: bool = False) -> int:
    """Prints what the instances of a sweep would train."""
    from lrurun.commands._shared import sweeps

    points = sweeps.points(request, sweep)
    with opening.read(places) or nullcontext() as ledger:
        documents = [_complete(places, point.request, point.plan, ledger)[0] for point in points]
    return _show_sweep(points, documents, json=json)


def show(
    places: Places,
    request: LadderRequest,
    made: planning.Plan,
    measured: Measurements | None = None,
    *,
    json: bool = False,
) -> int:
    """Prints what a request would train. Nothing is trained or written."""
    with opening.read(places) or nullcontext() as ledger:
        document, rungs, so_far = _complete(places, request, made, ledger, measured)
    code = 3 if any(row.measurement_error for row in document.rungs) else 0
    if measured is not None and measured.stopped is not None:
        code = measured.stopped.exit_code
        count = sum(row.measurement is not None for row in document.rungs)
        console.say(f"stopped by {measured.stopped}: {count} of {plural(len(document.rungs), 'rung')} measured")
    if json:
        output.write_json(document)
        return code
    _print_plan(made, document)
    if measured is not None:
        _print_measured(document, rungs)
    _print_rest(request, so_far, document)
    if console.verbosity() > 0:
        _print_groups(places, made, rungs)
    return code


def _complete(
    places: Places,
    request: LadderRequest,
    made: planning.Plan,
    ledger: Ledger | None,
    measured: Measurements | None = None,
) -> tuple[PlanDocument, Sequence[planning.ResolvedRung], sequential.DesignProgress | None]:
    """`planned`, with what firm verdicts need."""
    document, rungs, so_far = planned(places, request, made, ledger, measured)
    firm = firm_verdict(places, request, made, ledger, measured)
    return msgspec.structs.replace(document, firm=firm), rungs, so_far


def planned(
    places: Places,
    request: LadderRequest,
    made: planning.Plan,
    ledger: Ledger | None,
    measured: Measurements | None = None,
) -> tuple[PlanDocument, Sequence[planning.ResolvedRung], sequential.DesignProgress | None]:
    """What a request would train, its rungs, and its sequential design; times are those measured, if there are any."""
    from lrurun.config import tuning
    from lrurun.report.tables import loaded_instance
    from lrurun.session import rounds

    rungs, seeds = request.chosen(made)
    design = None
    seeds_of = dict.fromkeys((rung.name for rung in rungs), seeds)
    so_far = rounds.design_of(made, ledger, request)
    if so_far is not None and request.decide:
        rungs, seeds_of, design = rounds.next_look(made, so_far)
        seeds = max(seeds_of.values(), key=len)
    past: Sequence[tuple[Config, float]] = []
    if ledger is not None:
        past = ledger.newest_durations("program") if made.kind == "program" else ledger.newest_speeds()
    rows = [_planned(made, rung, seeds_of[rung.name], ledger, past, measured) for rung in rungs]
    remains = any(row.runs_done < row.runs for row in rows)
    phrases = [
        cautions.scale(made) if remains else None,
        cautions.missing_data(places, made) if remains else None,
        cautions.few_test_items(made) if remains else None,
        tuning.replacement_note(made.recipe, made.profile) if made.tune else "",
        "" if ledger is None else loaded_instance.other_versions(made, ledger),
    ]
    notes = [phrase for phrase in phrases if phrase]
    document = _document(places, made, _short_name(made, ledger), rungs, seeds, design, rows, notes)
    return document, rungs, so_far


def _short_name(made: planning.Plan, ledger: Ledger | None) -> str:
    """The short name of the instance in the ledger, or the one that a new instance will get."""
    from lrurun.ledger.rows import numbered
    from lrurun.report.tables import loaded_instance

    if ledger is None:
        return made.short_name
    if (instance := loaded_instance.find(ledger, made)) is not None:
        return instance.short_name
    taken = {ladder.short_name for ladder in ledger.ladders()}
    return next(name for name in numbered(made.short_name) if name not in taken)


def firm_verdict(
    places: Places,
    request: LadderRequest,
    made: planning.Plan,
    ledger: Ledger | None,
    measured: Measurements | None = None,
) -> FirmVerdict | None:
    """The runs that firm verdicts need beyond the seeds of a request; None where these suffice or the ladder asks
    nothing."""
    from lrurun.judging import questions
    from lrurun.judging.verdicts import LEAST_SEEDS

    rungs, seeds = request.chosen(made)
    asked = questions.asked(made.ladder, made.task.name, made.outside_scope)
    names = {rung.name for rung in rungs}
    if request.decide or made.profile == "smoke" or len(seeds) >= LEAST_SEEDS:
        return None
    if not any(names.issuperset(question.rungs) for question in asked):
        return None
    firm_request = msgspec.structs.replace(request, seeds=str(LEAST_SEEDS))
    document, _, so_far = planned(places, firm_request, made, ledger, measured)
    runs_left = sum(row.runs_left for row in document.rungs)
    if not runs_left or (so_far is not None and so_far.records):
        return None
    return FirmVerdict(
        seeds=LEAST_SEEDS,
        runs_left=runs_left,
        eta_seconds=document.eta_seconds,
        command=request.with_seeds(str(LEAST_SEEDS)),
        compiles=made.kind == "training",
    )


def next_step(places: Places, request: LadderRequest, made: planning.Plan, ledger: Ledger, report: LadderReport) -> str:
    """The command that makes verdicts firm, or repeats firm ones, with its cost; "" if there is neither, or the cost
    cannot be known, because data or documents cannot be read."""
    from lrurun.report.tables import next_step

    step, firm = next_step.proposal(report), None
    try:
        if step == "firm":
            firm = firm_verdict(places, request, made, ledger)
        elif step == "repetition":
            seeds, longer = report.fresh_seeds or "", next_step.longer(report)
            firm = fresh_repetition(places, request, made, ledger, seeds, longer)
    except LrurunError:
        return ""
    return "" if firm is None else firm.text


def fresh_repetition(
    places: Places, request: LadderRequest, made: planning.Plan, ledger: Ledger, seeds: str, longer: str
) -> FirmVerdict:
    """What a repetition with fresh seeds needs, in another ledger, with the value of `--set` in `longer` where it is
    not empty: tuning is repeated too."""
    repeated = request.repeated(seeds, longer)
    document, _, _ = planned(places, repeated, repeated.plan(ledger) if longer else made, ledger)
    return FirmVerdict(
        seeds=len(document.seeds),
        runs_left=sum(0 if row.same_as_before else row.runs for row in document.rungs),
        eta_seconds=None if made.tune else document.eta_seconds,
        command=repeated.fresh(),
        compiles=made.kind == "training",
    )


def _document(
    places: Places,
    made: planning.Plan,
    name: str,
    rungs: Sequence[planning.ResolvedRung],
    seeds: Sequence[int],
    design: Mapping[str, Any] | None,
    rows: list[PlannedRung],
    notes: list[str],
) -> PlanDocument:
    from lrurun import machine

    devices = max(rung.execution.devices for rung in rungs)
    threads = max(rung.execution.threads for rung in rungs)
    workers = machine.default_jobs(threads, devices, of_programs=made.kind == "program")
    remaining = [row.seconds_left for row in rows if row.runs_left]
    is_open = design is not None and design["next_look"] is not None
    more_seeds = design["max_seeds"] - design["next_look"] if design is not None and is_open else 0
    later = [row.seconds_for(more_seeds) for row in rows if not row.same_as_before]
    return PlanDocument(
        instance=structs.replace(made.identity, short_name=name, data=_data(places, made)),
        seeds=list(seeds),
        design=design,
        workers=workers,
        eta_seconds=None if None in remaining else sum(filter(None, remaining)) / workers,
        later_runs=more_seeds * len(later),
        later_seconds=None if None in later or not more_seeds else sum(filter(None, later)) / workers,
        rungs=rows,
        notes=notes,
    )


def _data(places: Places, made: planning.Plan) -> dict[str, Any]:
    """What the manifest of the prepared data says about them."""
    from lrurun.data import task_data

    if made.kind == "program":
        return {}

    manifest = task_data.manifest(made.task, made.options, places.data / made.data_name)
    if manifest is None:
        return {}
    return {
        "source": manifest.source,
        "kind": manifest.kind,
        "published": manifest.published,
        "sha256": task_data.digest(manifest.sha256),
    }


def _planned(
    made: planning.Plan,
    rung: planning.ResolvedRung,
    seeds: Sequence[int],
    ledger: Ledger | None,
    past: Sequence[tuple[Config, float]],
    measured: Measurements | None,
) -> PlannedRung:
    """`past`: configurations of earlier runs with their speeds; those of programs with their durations."""
    from lrurun.config.planning import budget, choose_point, final_runs
    from lrurun.config.resolve import RATE
    from lrurun.ledger.values import FINISHED
    from lrurun.training import NUMERICS

    trials, known, results = _tuning_runs(made, rung, ledger)
    left = budget(made, rung) - len(trials) if made.tune else 0
    chosen = results is not None and not left
    point = choose_point(made, rung, results) if trials and chosen and results is not None else None
    final = final_runs(made, rung, seeds, point)
    known |= _in_ledger(ledger, final)
    versions = {
        run.id: run.numerics
        for want in (*trials, *final)
        if made.kind == "training"
        and (run := known.get(want.fingerprint))
        and run.numerics
        and run.state not in (*FINISHED, "running")
    }
    states = [_state(known, want.fingerprint) for want in trials] + ["queued"] * left
    # the final runs are known once the grid is finished; until then they count as remaining
    states += [_state(known, want.fingerprint) if chosen else "queued" for want in final]
    left_seeds = [want.seed for want in final if not chosen or _state(known, want.fingerprint) not in FINISHED]
    speed, seconds, measurement = _past(rung, past), None, None
    if made.kind == "program":
        speed, seconds = None, speed
    elif measured is not None:
        measurement = measured.of(rung)
        speed = None if measurement is None else 1 / measurement.seconds_per_step
        seconds = None if measurement is None else measurement.seconds(rung.training.train)
    elif speed:
        seconds = rung.steps / speed
    unfinished = [s for s in states if s not in FINISHED]
    return PlannedRung(
        rung=rung.name,
        title=rung.title,
        on=rung.on,
        same_as_before=rung.same_as_base,
        moves=[Change(path=m.path, before=m.before, after=m.after, source=m.source) for m in rung.differences],
        learning_rate=(point or {}).get(RATE, rung.rate),
        rate_source=_rate_source(rung, chosen),
        steps=rung.steps,
        tuning_runs=len(trials) + left,
        runs=len(states),
        runs_left=0 if rung.same_as_base else len(unfinished),
        runs_done=len(states) - len(unfinished),
        seeds_left=[] if rung.same_as_base else left_seeds,
        starts_again=[run for run, version in versions.items() if version < NUMERICS],
        refused=[run for run, version in versions.items() if version > NUMERICS],
        steps_per_second=speed,
        seconds_per_run=seconds,
        seconds_left=None if seconds is None else seconds * len(unfinished),
        measurement=measurement,
        measurement_error=None if measured is None else measured.error(rung),
    )


def _tuning_runs(
    made: planning.Plan, rung: planning.ResolvedRung, ledger: Ledger | None
) -> tuple[list[PlannedRun], dict[str, Run], list[Any] | None]:
    """The tuning runs of a rung that are known, those in the ledger, and their results; None if some are unfinished."""
    from lrurun.config.planning import tuning_of
    from lrurun.ledger.values import FINISHED

    wanted: list[PlannedRun] = []
    known: dict[str, Run] = {}
    results: list[Any] = []
    while made.tune and len(extended := tuning_of(made, rung, results)) > len(wanted):
        known |= _in_ledger(ledger, extended[len(wanted) :])
        wanted = extended
        runs = [known.get(want.fingerprint) for want in wanted]
        if not all(run is not None and run.state in FINISHED for run in runs):
            return wanted, known, None
        results = [run.result if run is not None and run.state == "done" else None for run in runs]
    return wanted, known, results


def _in_ledger(ledger: Ledger | None, wanted: Sequence[PlannedRun]) -> dict[str, Run]:
    """Fingerprint -> its run, for those that the ledger has."""
    if ledger is None or not wanted:
        return {}
    runs = ledger.runs(fingerprints=[want.fingerprint for want in wanted], brief=True)
    return {run.fingerprint: run for run in reversed(runs)}


def _rate_source(rung: planning.ResolvedRung, chosen: bool) -> dict[str, Any]:
    """Where the learning rate comes from; until all tuning runs are finished, it is not chosen."""
    source: dict[str, Any] = msgspec.to_builtins(rung.rate_source)
    return source if chosen or source["kind"] != "tuned" else {**source, "text": _TO_BE_CHOSEN}


def _state(known: dict[str, Run], fingerprint: str) -> str:
    return known[fingerprint].state if fingerprint in known else "queued"


def _past(rung: planning.ResolvedRung, recorded: Sequence[tuple[Config, float]]) -> float | None:
    """The number recorded of the newest run with this rung's model and batch; of a program, with its settings but those
    that tuning chooses."""
    from lrurun.config.program import paths_of
    from lrurun.config.schema import ProgramConfig, RunConfig

    def alike(config: Config) -> tuple[Any, ...]:
        if isinstance(config, RunConfig):
            return config.task, config.data, config.model, config.code, config.train.batch
        if isinstance(config, ProgramConfig):
            settings = paths_of(config.settings)
            return config.task, config.program, {path: settings[path] for path in settings if path not in rung.grid}
        return ()

    wanted = alike(rung.config)
    return next((number for config, number in recorded if alike(config) == wanted), None)


def _print_plan(made: planning.Plan, document: PlanDocument) -> None:
    from lrurun.config import tuning
    from lrurun.config.instance import data_sentence
    from lrurun.judging import sequential

    previous = dict(pairwise(rung.name for rung in reversed(made.rungs)))
    rows = []
    for row in document.rungs:
        branches = row.on != previous.get(row.rung)
        changes = "; ".join(_changes(row, made)) or ("tuned values" if row.moves else "the first rung")
        if row.same_as_before:
            changes = f"as {row.on}" if branches else "as the previous rung"
        elif branches:
            changes = "no base" if row.on is None else f"on {row.on}: {changes}"
        time = "unknown" if row.seconds_left is None else console.duration(row.seconds_left / document.workers)
        rows.append([row.rung, f"{row.runs_done}/{row.runs}", time if row.runs_left else "", changes])
    table.show_text(
        ["rung", "done", "time left", "what changes"],
        rows,
        title=f"ladder {made.ladder.name} ({made.ladder.path}) on {made.recipe.task} ({made.recipe.path})",
        cut={"what changes": 24},
        below={"what changes": lambda row: row[0]},
    )
    console.paragraph(f"Instance {document.instance.short_name}: {document.instance.label}.")
    if document.design:
        console.paragraph(_design(document.design))
        if known := sequential.known_before(document.design["finished_before"]):
            console.paragraph(f"{known}.")
    if source := data_sentence(document.instance.data):
        console.paragraph(source)
    if made.tune:
        shown = {row.rung for row in document.rungs}
        for sentence in tuning.sentences(
            {rung.name: rung.grid for rung in made.rungs if rung.name in shown}, len(made.tuning_seeds), made.search
        ):
            console.paragraph(sentence)
    for sentence in _rates(document.rungs):
        console.paragraph(sentence)
    for sentence in _other_numerics(document.rungs):
        console.paragraph(sentence)
    for note in document.notes:
        console.paragraph(f"{note[0].upper()}{note[1:]}.")
    count = sum(row.runs_left for row in document.rungs)
    later = ""
    if document.later_runs:
        time = "" if document.later_seconds is None else f", about {console.duration(document.later_seconds)}"
        later = f" After this look, at most {plural(document.later_runs, 'run')} follow{time}."
    if not count:
        console.paragraph(f"All runs of the next look are finished.{later}" if later else "All runs are finished.")
        return
    if document.eta_seconds is None:
        reason = "no finished run shows how fast these rungs train here"
        if any(row.measurement or row.measurement_error for row in document.rungs):
            reason = "not all rungs were measured"
        console.paragraph(f"Time left: unknown, because {reason}.{later}")
        return
    left = sorted({seed for row in document.rungs for seed in row.seeds_left})
    seeds = f", seed{'s' if len(left) > 1 else ''} {', '.join(map(str, left))}" if left else ""
    time, workers = console.duration(document.eta_seconds), plural(document.workers, "worker")
    console.paragraph(f"{plural(count, 'run')} remaining{seeds}: about {time} with {workers}.{later}")


def _is_about_memory(error: str) -> bool:
    return "RESOURCE_EXHAUSTED" in error or "lack of memory" in error


def _print_measured(document: PlanDocument, rungs: Sequence[planning.ResolvedRung]) -> None:
    """Prints time and memory of each rung, and what was measured."""
    rows = []
    if not any(row.measurement or row.measurement_error for row in document.rungs):
        return
    for row in document.rungs:
        if (found := row.measurement) is None:
            cells = ["failed"] * 6 if row.measurement_error else ["not measured", *[""] * 5]
            rows.append([row.rung, *cells])
            continue
        rows.append(
            [
                row.rung,
                f"{found.parameters:,}",
                _seconds(found.seconds_per_step),
                "" if row.same_as_before else console.rough_duration((row.seconds_per_run or 0.0) * row.runs),
                _seconds(found.compile_seconds),
                _bytes(found.training_bytes),
                _bytes(found.evaluation_bytes),
            ]
        )
    table.show_text(["rung", "parameters", "step", "all runs", "compiling", "training", "evaluation"], rows)
    for row in document.rungs:
        if row.measurement_error:
            console.paragraph(f"{row.rung}: {row.measurement_error}")
    if any(_is_about_memory(row.measurement_error or "") for row in document.rungs):
        console.paragraph(
            "A rung that needs too much memory may fit with --set execution.remat=true, with more execution.devices, "
            "or with a smaller train.batch."
        )
    measurements = [row.measurement for row in document.rungs if row.measurement is not None]
    if not measurements:
        return
    counts = sorted(found.steps for found in measurements)
    steps = plural(counts[0], "step") if counts[0] == counts[-1] else f"{counts[0]:,} to {counts[-1]:,} steps"
    threads = plural(max(rung.execution.threads for rung in rungs), "thread")
    devices = max(rung.execution.devices for rung in rungs)
    inputs = "Inputs were random: the data are not prepared." if any(found.synthetic for found in measurements) else ""
    console.paragraph(
        f"Measured on {measurements[0].device} ({threads}, {plural(devices, 'device')}), one rung after another, the "
        f"median over {steps}. All runs: of all seeds and of tuning, finished ones too, with one worker, with "
        "evaluations and without compiling. Training and evaluation: the memory that XLA plans on each device, for "
        "arguments and temporaries. Compiled programs are kept for the ladder: there they take little time. "
        f"{inputs}".rstrip()
    )


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"


def _print_rest(request: LadderRequest, so_far: sequential.DesignProgress | None, document: PlanDocument) -> None:
    """Prints what the options leave out: a sequential design, and firm verdicts."""
    if so_far is not None and so_far.next_look is not None and not request.decide:
        console.paragraph("A sequential design is recorded; continue it with --decide.")
    if (firm := document.firm) is not None:
        console.paragraph(
            f"Firm verdicts need {firm.seeds} seeds a rung, chosen beforehand: {firm.text}. With fewer, verdicts are "
            "provisional: they assume that no seed fails."
        )


def _design(design: Mapping[str, Any]) -> str:
    """A sentence on the sequential design."""
    looks = ", ".join(f"{look['seeds']} seeds ({look['share'] * 100:.0f} % of the level)" for look in design["looks"])
    state = f"Sequential design: looks at {looks}; {plural(design['looks_done'], 'look')} taken"
    if design["next_look"] is None:
        return f"{state}; complete, {design['undecided']} of {plural(design['questions'], 'question')} undecided."
    is_last = design["next_look"] == design["max_seeds"]
    outlook = "It is the last one." if is_last else "Seeds are then added where questions are undecided."
    tested = plural(design["hypotheses"], "hypothesis")
    return (
        f"{state}. The next look, at {design['next_look']} seeds, tests {tested} by Holm's "
        f"method, the smallest p at {design['level'] * 100:.3f} %. {outlook}"
    )


def _rates(rows: Sequence[PlannedRung]) -> list[str]:
    """Sentences that say where the learning rates come from, one for each source; none for those still to be chosen."""
    by_source: dict[str, list[str]] = {}
    for row in rows:
        if (source := row.rate_source["text"]) != _TO_BE_CHOSEN:
            rate = "" if row.learning_rate is None else f" {row.learning_rate:g}"
            by_source.setdefault(source, []).append(f"{row.rung}{rate}")
    what = "Settings" if all(row.learning_rate is None for row in rows) else "Learning rates"
    return [f"{what} ({source}): {', '.join(names)}." for source, names in by_source.items()]


def _other_numerics(rows: Sequence[PlannedRung]) -> list[str]:
    """Sentences on the unfinished runs that cannot be continued from their checkpoints."""
    restarted = dict.fromkeys(run for row in rows for run in row.starts_again)
    refused = dict.fromkeys(run for row in rows for run in row.refused)
    sentences = []
    if restarted:
        sentences.append(
            "Begun with an earlier numerics version, will start again from step 0: "
            f"{plural(len(restarted), 'run')}: {', '.join(restarted)}."
        )
    if refused:
        sentences.append(
            "Begun with a later lrurun, which is needed to continue: "
            f"{plural(len(refused), 'run')}: {', '.join(refused)}."
        )
    return sentences


def _changes(row: PlannedRung, made: planning.Plan) -> list[str]:
    """What a rung changes, without the values that tuning replaces, and those that a new kind has by default."""
    from lrurun.config import tuning

    [rung] = (rung for rung in made.rungs if rung.name == row.rung)
    hidden = {*made.free(row.rung), *(change.path for change in rung.differences if change.is_default)}
    changes = [
        f"{re.sub(r'^(model[.](recurrence[.])?|settings[.])', '', change.path)} = {tuning.short(change.after)}"
        for change in row.moves
        if change.after is not None and not change.path.startswith("code.") and change.path not in hidden
    ]
    return changes + [f"code = {change.source}" for change in row.moves if change.path.startswith("code.")]


def _print_groups(places: Places, made: planning.Plan, rungs: Sequence[planning.ResolvedRung]) -> None:
    """The number of parameters, with the group and learning rate of each.

    Needs jax and the size of the vocabulary for the shapes.
    """
    if made.kind == "program":  # whose parameters are not known
        return
    from lrurun.data import task_data
    from lrurun.nn.network import Model

    manifest = task_data.manifest(made.task, made.options, places.data / made.data_name)
    spec = made.task.spec(made.options, manifest.vocabulary if manifest else ())
    for rung in rungs:
        optim = rung.training.optim
        model = Model(rung.training.model, spec)
        params, _ = model.shapes
        rates = {"recurrent": optim.lr * optim.recurrent_factor, "regular": optim.lr, "undecayed": optim.lr}
        rows = [
            [path, "x".join(map(str, shape)) or "1", group, f"{rates[group]:g}"]
            for path, shape, group in model.listing(params, decay_norm_bias=optim.decay_norm_bias)
        ]
        title = f"{rung.name}: {model.count(params):,} parameters"
        table.show_text(["parameter", "shape", "group", "peak learning rate"], rows, title=title)


def _show_sweep(points: Sequence[sweeps.Point], documents: Sequence[PlanDocument], *, json: bool) -> int:
    """Prints what each instance would train, and what is done."""
    times = [document.eta_seconds for document in documents]
    eta = None if None in times else sum(filter(None, times))
    if json:
        sweep = {path: list(dict.fromkeys(point.values[path] for point in points)) for path in points[0].values}
        output.write_json(SweepDocument(sweep=sweep, eta_seconds=eta, plans=documents))
        return 0
    first = documents[0]
    rows = []
    for point, document in zip(points, documents, strict=True):
        left = sum(row.runs_left for row in document.rungs)
        seconds = document.eta_seconds
        time = "" if not left else "unknown" if seconds is None else console.duration(seconds)
        done, runs = (sum(getattr(row, field) for row in document.rungs) for field in ("runs_done", "runs"))
        rows.append([*(console.setting(value) for value in point.values.values()), f"{done}/{runs}", time])
    instance = first.instance
    profile = "" if instance.profile is None else f", profile {instance.profile}"
    table.show_text(
        [*points[0].values, "done", "time left"], rows, title=f"ladder {instance.ladder} on {instance.task}{profile}"
    )
    for note in dict.fromkeys(note for document in documents for note in document.notes):
        console.paragraph(f"{note[0].upper()}{note[1:]}.")
    left = sum(row.runs_left for document in documents for row in document.rungs)
    if not left:
        console.paragraph("All runs are finished.")
    else:
        time = "time unknown, because no finished run shows how fast these rungs train here"
        if eta is not None:
            time = f"about {console.duration(eta)}, one instance after another"
        console.paragraph(f"{left} runs remaining: {time}.")
    console.paragraph("lrurun plan with --set instead of --sweep shows the rungs of one instance.")
    return 0

"""What remains of a request: the runs of each rung, which are done, how long the others take, and what firm verdicts
need. It is computed from a plan and a ledger. Nothing is trained or recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import Struct, structs

from lrurun import console
from lrurun.config.instance import Instance  # msgspec reads the fields of documents
from lrurun.config.resolve import Difference, RateSource
from lrurun.errors import plural
from lrurun.instances import lookup, naming, phrases
from lrurun.instances.measurement import Measurement

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.config.runs import PlannedRun
    from lrurun.config.schema import Config
    from lrurun.instances.requests import LadderRequest
    from lrurun.judging.sequential import DesignProgress
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Run
    from lrurun.paths import Places

TO_BE_CHOSEN = "will be chosen on validation"
"""The source of a learning rate while tuning runs remain."""

Measured = Mapping[str, "Measurement | str"]
"""Rung -> its measurement, or why it could not be measured. Rungs that were not tried are left out."""


class PlannedRung(Struct, frozen=True, kw_only=True):
    """A rung, what it would train, and what is done."""

    rung: str
    title: str
    on: str | None
    same_as_before: bool
    moves: Sequence[Difference]
    learning_rate: float | None
    """None for a user's program."""
    rate_source: RateSource
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
    """The speed that was measured, or the speed of an earlier run with these settings; None if there is none, and for
    users' programs."""
    seconds_per_run: float | None
    """The time of a run with one worker, as measured or as earlier runs show it; None if there is neither."""
    seconds_left: float | None
    """The time left with one worker; None where it is not known."""
    extension_runs: int = 0
    """At most so many tuning runs follow beyond the edges of the grid."""
    measurement: Measurement | None = None
    """With `--measure`: what it found; it is then the source of the speed and the times."""
    measurement_error: str | None = None
    """Why the rung could not be measured."""

    def seconds_for(self, runs: int) -> float | None:
        """The time of so many runs, with one worker; None where that is not known."""
        return None if self.seconds_per_run is None else runs * self.seconds_per_run


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
    extends: bool = False
    """Whether more tuning runs may follow beyond the edges of a grid."""

    @property
    def text(self) -> str:
        """The command with its cost, for example "lrurun ladder sDigits --seeds 12 (72 runs, about 4 min plus
        compiling)"."""
        time = "" if self.eta_seconds is None else f", about {console.rough_duration(self.eta_seconds)}"
        time += " plus compiling" if time and self.compiles else ""
        least = "at least " if self.extends else ""
        return f"{self.command} ({least}{plural(self.runs_left, 'run')}{time})"


class PlanDocument(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun plan`."""

    json_fields: ClassVar[Sequence[str]] = (
        "ladder task profile set tune extend name=short_name label data seeds design workers eta_seconds later_runs "
        "later_seconds extension_runs extension_seconds firm rungs notes"
    ).split()
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
    extension_runs: int = 0
    """At most so many tuning runs follow beyond the edges of the grids; `runs` and `eta_seconds` are without them."""
    extension_seconds: float | None = None
    """The time that they take at most; None where that is not known."""
    firm: FirmVerdict | None = None
    """The runs that firm verdicts need, without `--decide` and with too few seeds. Profile smoke has none."""
    rungs: list[PlannedRung]
    notes: list[str]

    @property
    def runs_left(self) -> int:
        """The number of runs that remain; of a sequential design, before its next look."""
        return sum(row.runs_left for row in self.rungs)

    @property
    def is_finished(self) -> bool:
        """Whether neither a run remains nor a look. A rung that is the same as its base counts, too: the base may be
        none of the request."""
        awaits_look = self.design is not None and self.design["next_look"] is not None
        return not awaits_look and all(row.runs_done == row.runs for row in self.rungs)


def planned(
    places: Places,
    request: LadderRequest,
    plan: planning.Plan,
    ledger: Ledger,
    measured: Measured | None = None,
) -> PlanDocument:
    """What a request would train, as `lrurun plan` shows it."""
    document = without_firm(places, request, plan, ledger, measured)
    return msgspec.structs.replace(document, firm=firm_verdict(places, request, plan, ledger, measured))


def without_firm(
    places: Places,
    request: LadderRequest,
    plan: planning.Plan,
    ledger: Ledger,
    measured: Measured | None = None,
) -> PlanDocument:
    """What a request would train, without what firm verdicts need."""
    from lrurun.config import tuning_grid

    rungs, seeds = request.chosen(plan)
    design = None
    seeds_of = dict.fromkeys((rung.name for rung in rungs), seeds)
    if request.decide and (progress := design_progress(request, plan, ledger)) is not None:
        rungs, seeds_of, design = _next_look(plan, progress)
        seeds = max(seeds_of.values(), key=len)
    past = ledger.newest_durations("program") if plan.kind == "program" else ledger.newest_speeds()
    rows = [_planned(plan, rung, seeds_of[rung.name], ledger, past, measured) for rung in rungs]
    remains = any(row.runs_done < row.runs for row in rows)
    notes = [
        phrases.scale(plan) if remains else None,
        phrases.missing_data(places, plan) if remains else None,
        phrases.few_test_items(plan) if remains else None,
        phrases.parts_of_batches({rung.name: rung.config for rung in rungs}),
        tuning_grid.replacement_note(plan.recipe, plan.profile) if plan.tune else "",
        lookup.other_versions(plan, ledger),
    ]
    name = naming.of_plan(ledger, plan, request.name)
    return _document(places, plan, name, rungs, seeds, design, rows, [note for note in notes if note])


def design_progress(request: LadderRequest, plan: planning.Plan, ledger: Ledger) -> DesignProgress | None:
    """The recorded sequential design of the plan; without one, with `--decide`, the one that would be recorded.

    Raises:
        UsageError: it has another largest number of seeds than the request, or there is nothing to decide.
    """
    from lrurun.judging import design_record

    progress = None
    if (instance := lookup.find(ledger, plan)) is not None:
        progress = design_record.find(plan, instance, ledger)
    if request.decide:
        progress = progress or design_record.planned(plan, ledger, request.max_seeds)
        design_record.check(progress, request.max_seeds)
    return progress


def _next_look(
    plan: planning.Plan, progress: DesignProgress
) -> tuple[Sequence[planning.ResolvedRung], dict[str, Sequence[int]], dict[str, Any]]:
    """The rungs that the next look of the recorded or planned design needs, their seeds, and the design.

    Of a complete design these are all its rungs, with the seeds that they had.
    """
    from lrurun.config import planning
    from lrurun.judging import rung_runs, sequential

    summary = sequential.summary(progress, rung_runs.first_of_same(plan.ladder, plan.same_as_base))
    look = progress.next_look
    seeds = progress.seeds if look is None else dict.fromkeys(progress.next_rungs, look.seeds)
    needed: dict[str, Sequence[int]] = {name: range(count) for name, count in seeds.items()}
    return planning.choose_rungs(plan, sorted(needed)), needed, msgspec.to_builtins(summary)


def firm_verdict(
    places: Places,
    request: LadderRequest,
    plan: planning.Plan,
    ledger: Ledger,
    measured: Measured | None = None,
) -> FirmVerdict | None:
    """The runs that firm verdicts need beyond the seeds of a request; None where these suffice or the ladder asks
    nothing."""
    from lrurun.judging import questions
    from lrurun.judging.verdicts import LEAST_SEEDS

    rungs, seeds = request.chosen(plan)
    ladder_questions = questions.asked(plan.ladder, plan.task.name, plan.outside_scope)
    names = {rung.name for rung in rungs}
    if request.decide or plan.profile == "smoke" or len(seeds) >= LEAST_SEEDS:
        return None
    if not any(names.issuperset(question.rungs) for question in ladder_questions):
        return None
    firm_request = msgspec.structs.replace(request, seeds=str(LEAST_SEEDS))
    document = without_firm(places, firm_request, plan, ledger, measured)
    if not document.runs_left:
        return None
    progress = design_progress(firm_request, plan, ledger)
    if progress is not None and progress.records:
        return None
    return FirmVerdict(
        seeds=LEAST_SEEDS,
        runs_left=document.runs_left,
        eta_seconds=document.eta_seconds,
        command=request.with_seeds(str(LEAST_SEEDS)),
        compiles=plan.kind == "training",
        extends=bool(document.extension_runs),
    )


def fresh_repetition(
    places: Places, request: LadderRequest, plan: planning.Plan, ledger: Ledger, seeds: str, longer: str
) -> FirmVerdict:
    """What a repetition with fresh seeds needs, in another ledger, with the value of `--set` in `longer` where it is
    not empty: tuning is repeated too."""
    repeated = request.repeated(seeds, longer)
    document = without_firm(places, repeated, repeated.plan_in(ledger) if longer else plan, ledger)
    return FirmVerdict(
        seeds=len(document.seeds),
        runs_left=sum(0 if row.same_as_before else row.runs for row in document.rungs),
        eta_seconds=None if plan.tune else document.eta_seconds,
        command=repeated.fresh(),
        compiles=plan.kind == "training",
        extends=bool(plan.extend),
    )


def _document(
    places: Places,
    plan: planning.Plan,
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
    workers = machine.default_jobs(threads, devices, of_programs=plan.kind == "program")
    remaining = [row.seconds_left for row in rows if row.runs_left]
    is_open = design is not None and design["next_look"] is not None
    more_seeds = design["max_seeds"] - design["next_look"] if design is not None and is_open else 0
    later = [row.seconds_for(more_seeds) for row in rows if not row.same_as_before]
    extended = [row for row in rows if row.extension_runs]
    extension = [row.seconds_for(row.extension_runs) for row in extended]
    return PlanDocument(
        instance=structs.replace(plan.identity, short_name=name, data=_data(places, plan)),
        seeds=list(seeds),
        design=design,
        workers=workers,
        eta_seconds=None if None in remaining else sum(filter(None, remaining)) / workers,
        later_runs=more_seeds * len(later),
        later_seconds=None if None in later or not more_seeds else sum(filter(None, later)) / workers,
        extension_runs=sum(row.extension_runs for row in extended),
        extension_seconds=None if None in extension or not extended else sum(filter(None, extension)) / workers,
        rungs=rows,
        notes=notes,
    )


def _data(places: Places, plan: planning.Plan) -> dict[str, Any]:
    """What the manifest of the prepared data says about them."""
    from lrurun.data import task_data

    if not plan.is_of_models:
        return {}

    manifest = task_data.manifest(plan.task, plan.options, places.data / plan.data_name)
    if manifest is None:
        return {}
    return {
        "source": manifest.source,
        "kind": manifest.kind,
        "published": manifest.published,
        "sha256": task_data.digest(manifest.sha256),
    }


def _planned(
    plan: planning.Plan,
    rung: planning.ResolvedRung,
    seeds: Sequence[int],
    ledger: Ledger,
    past: Sequence[tuple[Config, float]],
    measured: Measured | None,
) -> PlannedRung:
    """What remains of a rung. `past` has the configurations of earlier runs with their speeds, of programs with their
    durations."""
    from lrurun.config.planning import final_runs
    from lrurun.config.resolve import RATE
    from lrurun.config.tuning import budget, choose_point, most_added
    from lrurun.ledger.values import FINISHED
    from lrurun.version import NUMERICS

    trials, known, results = _tuning_runs(plan, rung, ledger)
    left = max(budget(plan, rung) - len(trials), 0) if plan.tune else 0
    chosen = results is not None and not left
    point = choose_point(plan, rung, results) if trials and results is not None and not left else None
    most = budget(plan, rung) + most_added(plan, rung) if plan.tune and not chosen else 0
    final = final_runs(plan, rung, seeds, point)
    known |= _in_ledger(ledger, final)
    versions = {
        run.id: run.numerics
        for want in (*trials, *final)
        if plan.kind == "training"
        and (run := known.get(want.fingerprint))
        and run.numerics
        and run.state not in (*FINISHED, "running")
    }
    states = [_state(known, want.fingerprint) for want in trials] + ["queued"] * left
    # the final runs are known once the grid is finished; until then they count as remaining
    states += [_state(known, want.fingerprint) if chosen else "queued" for want in final]
    left_seeds = [want.seed for want in final if not chosen or _state(known, want.fingerprint) not in FINISHED]
    result = None if measured is None else measured.get(rung.name)
    speed, seconds, measurement = _past(rung, past), None, None
    if plan.kind == "program":
        speed, seconds = None, speed
    elif measured is not None:
        measurement = result if isinstance(result, Measurement) else None
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
        moves=rung.differences,
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
        extension_runs=0 if rung.same_as_base else max(most - len(trials) - left, 0),
        measurement=measurement,
        measurement_error=result if isinstance(result, str) else None,
    )


def _tuning_runs(
    plan: planning.Plan, rung: planning.ResolvedRung, ledger: Ledger
) -> tuple[list[PlannedRun], dict[str, Run], list[Any] | None]:
    """The tuning runs of a rung that are known, those in the ledger, and their results; None if some are unfinished."""
    from lrurun.config.tuning import tuning_of
    from lrurun.ledger.values import FINISHED

    wanted: list[PlannedRun] = []
    known: dict[str, Run] = {}
    results: list[Any] = []
    while plan.tune and len(extended := tuning_of(plan, rung, results)) > len(wanted):
        known |= _in_ledger(ledger, extended[len(wanted) :])
        wanted = extended
        runs = [known.get(want.fingerprint) for want in wanted]
        if not all(run is not None and run.state in FINISHED for run in runs):
            return wanted, known, None
        results = [run.result if run is not None and run.state == "done" else None for run in runs]
    return wanted, known, results


def _in_ledger(ledger: Ledger, wanted: Sequence[PlannedRun]) -> dict[str, Run]:
    """Fingerprint -> its run, for the runs that the ledger has."""
    if not wanted:
        return {}
    runs = ledger.runs(fingerprints=[want.fingerprint for want in wanted], brief=True)
    return {run.fingerprint: run for run in reversed(runs)}


def _rate_source(rung: planning.ResolvedRung, chosen: bool) -> RateSource:
    """Where the learning rate comes from; until all tuning runs are finished, it is not chosen."""
    source = rung.rate_source
    return source if chosen or source.kind != "tuned" else msgspec.structs.replace(source, text=TO_BE_CHOSEN)


def _state(known: dict[str, Run], fingerprint: str) -> str:
    return known[fingerprint].state if fingerprint in known else "queued"


def _past(rung: planning.ResolvedRung, recorded: Sequence[tuple[Config, float]]) -> float | None:
    """The number recorded of the newest run with this rung's model and batch; of a program, with its settings but those
    that tuning chooses."""
    from lrurun.config.programs import paths_of
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

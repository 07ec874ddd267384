"""What a ladder would train, what is done already, and how long the rest will take, for people or as JSON."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lrurun import console, table
from lrurun.commands._shared import output
from lrurun.errors import plural
from lrurun.instances.sweep import SweepDocument
from lrurun.session import opening

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.errors import Stopped
    from lrurun.instances.remaining import Measured, PlanDocument, PlannedRung
    from lrurun.instances.requests import LadderRequest
    from lrurun.instances.sweep import Point
    from lrurun.judging.sequential import DesignProgress
    from lrurun.paths import Places


def show_sweep(places: Places, points: Sequence[Point], *, json: bool = False) -> int:
    """Prints what the instances of a sweep would train."""
    from lrurun.instances import naming, remaining

    documents = []
    before: dict[str, planning.Plan] = {}
    with opening.read(places) as ledger:
        for point in points:
            name = naming.of_plan(ledger, point.plan, point.request.name, before)
            before[name] = point.plan
            document = remaining.planned(places, point.request, point.plan, ledger)
            documents.append(structs.replace(document, instance=structs.replace(document.instance, short_name=name)))
    return _show_sweep(points, documents, json=json)


def show(
    places: Places,
    request: LadderRequest,
    plan: planning.Plan,
    measured: Measured | None = None,
    *,
    stopped: Stopped | None = None,
    json: bool = False,
) -> int:
    """Prints what a request would train. Nothing is trained or written.

    `stopped`: why not all rungs were measured.
    """
    from lrurun.instances import remaining

    with opening.read(places) as ledger:
        document = remaining.planned(places, request, plan, ledger, measured)
        progress = remaining.design_progress(request, plan, ledger)
    code = 3 if any(row.measurement_error for row in document.rungs) else 0
    if stopped is not None:
        code = stopped.exit_code
        count = sum(row.measurement is not None for row in document.rungs)
        console.say(f"stopped by {stopped}: {count} of {plural(len(document.rungs), 'rung')} measured")
    if json:
        output.write_json(document)
        return code
    rungs = [rung for rung in plan.rungs if rung.name in {row.rung for row in document.rungs}]
    _print_plan(plan, document)
    if measured is not None:
        _print_measured(document, rungs)
    _print_rest(request, progress, document)
    if console.verbosity() > 0:
        _print_trainings(plan, rungs)
        _print_groups(places, plan, rungs)
    return code


def _print_plan(plan: planning.Plan, document: PlanDocument) -> None:
    from lrurun.config import tuning_grid
    from lrurun.config.instance import data_sentence
    from lrurun.judging import sequential

    previous = dict(pairwise(rung.name for rung in reversed(plan.rungs)))
    rows = []
    for row in document.rungs:
        branches = row.on != previous.get(row.rung)
        changes = "; ".join(_changes(row, plan)) or ("tuned values" if row.moves else "the first rung")
        if row.same_as_before:
            changes = f"as {row.on}" if branches else "as the previous rung"
        elif branches:
            changes = "no base" if row.on is None else f"on {row.on}: {changes}"
        time = "unknown" if row.seconds_left is None else console.duration(row.seconds_left / document.workers)
        rows.append([row.rung, f"{row.runs_done}/{row.runs}", time if row.runs_left else "", changes])
    table.show_text(
        ["rung", "done", "time left", "what changes"],
        rows,
        title=f"ladder {plan.ladder.name} ({plan.ladder.path}) on {plan.recipe.task} ({plan.recipe.path})",
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
    if plan.tune:
        shown = {row.rung for row in document.rungs}
        for sentence in tuning_grid.sentences(
            {rung.name: rung.grid for rung in plan.rungs if rung.name in shown},
            len(plan.tuning_seeds),
            plan.search,
            plan.extend,
        ):
            console.paragraph(sentence)
    for sentence in _rates(document.rungs, _estimating(plan)):
        console.paragraph(sentence)
    for sentence in _other_numerics(document.rungs):
        console.paragraph(sentence)
    for note in document.notes:
        console.paragraph(f"{note[0].upper()}{note[1:]}.")
    count = document.runs_left
    later = ""
    if document.later_runs:
        time = "" if document.later_seconds is None else f", about {console.duration(document.later_seconds)}"
        later = f" After this look, at most {plural(document.later_runs, 'run')} follow{time}."
    if document.extension_runs:
        time = "" if document.extension_seconds is None else f", about {console.duration(document.extension_seconds)}"
        more = plural(document.extension_runs, "more run")
        later = f" At most {more}{time}, if the best values are at the edge.{later}"
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
    time += " plus compiling" if plan.is_of_models else ""
    console.paragraph(f"{plural(count, 'run')} remaining{seeds}: about {time} with {workers}.{later}")


def _is_about_memory(error: str) -> bool:
    return "RESOURCE_EXHAUSTED" in error or "lack of memory" in error


def _print_measured(document: PlanDocument, rungs: Sequence[planning.ResolvedRung]) -> None:
    """Prints time and memory of each rung, and what was measured."""
    rows = []
    if not any(row.measurement or row.measurement_error for row in document.rungs):
        return
    for row in document.rungs:
        if (measurement := row.measurement) is None:
            cells = ["failed"] * 6 if row.measurement_error else ["not measured", *[""] * 5]
            rows.append([row.rung, *cells])
            continue
        rows.append(
            [
                row.rung,
                f"{measurement.parameters:,}",
                seconds_text(measurement.seconds_per_step),
                "" if row.same_as_before else console.rough_duration((row.seconds_per_run or 0.0) * row.runs),
                seconds_text(measurement.compile_seconds),
                bytes_text(measurement.training_bytes),
                bytes_text(measurement.evaluation_bytes),
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
    counts = sorted(measurement.steps for measurement in measurements)
    steps = plural(counts[0], "step") if counts[0] == counts[-1] else f"{counts[0]:,} to {counts[-1]:,} steps"
    threads = plural(max(rung.execution.threads for rung in rungs), "thread")
    devices = max(rung.execution.devices for rung in rungs)
    is_random = any(measurement.synthetic for measurement in measurements)
    inputs = "Inputs were random: the data are not prepared." if is_random else ""
    console.paragraph(
        f"Measured on {measurements[0].device} ({threads}, {plural(devices, 'device')}), one rung after another, the "
        f"median over {steps}. All runs: of all seeds and of tuning, finished ones too, with one worker, with "
        "evaluations and without compiling. Training and evaluation: the memory that XLA plans on each device, for "
        "arguments and temporaries. Compiled programs are kept for the ladder: there they take little time. "
        f"{inputs}".rstrip()
    )


def seconds_text(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def bytes_text(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"


def _print_rest(request: LadderRequest, progress: DesignProgress | None, document: PlanDocument) -> None:
    """Prints what the options leave out: a sequential design, and firm verdicts."""
    if progress is not None and progress.next_look is not None and not request.decide:
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


def _estimating(plan: planning.Plan) -> set[str]:
    """The rungs whose optimiser estimates a learning rate, which that of the configuration multiplies."""
    if plan.kind == "program":
        return set()
    from lrurun.config.wording import estimates_rate

    return {rung.name for rung in plan.rungs if estimates_rate(rung.training.optim)}


def _rates(rows: Sequence[PlannedRung], estimating: Collection[str]) -> list[str]:
    """Sentences that say where the learning rates come from, one for each source; none for those still to be chosen.

    Args:
        estimating: the rungs whose rates multiply an estimate.
    """
    from lrurun.instances.remaining import TO_BE_CHOSEN

    by_source: dict[str, list[str]] = {}
    for row in rows:
        if (source := row.rate_source.text) != TO_BE_CHOSEN:
            rate = "" if row.learning_rate is None else f" {row.learning_rate:g}"
            rate += " times its estimate" if row.rung in estimating else ""
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


def _changes(row: PlannedRung, plan: planning.Plan) -> list[str]:
    """What a rung changes, without the values that tuning replaces, and the values that a new kind has by default."""
    from lrurun.config import tuning_grid

    [rung] = (rung for rung in plan.rungs if rung.name == row.rung)
    hidden = {*plan.free(row.rung), *(change.path for change in rung.differences if change.is_default)}
    changes = [
        f"{re.sub(r'^(model[.](recurrence[.])?|settings[.])', '', change.path)} = {tuning_grid.short(change.after)}"
        for change in row.moves
        if change.after is not None and not change.path.startswith("code.") and change.path not in hidden
    ]
    return changes + [f"code = {change.source}" for change in row.moves if change.path.startswith("code.")]


def _print_trainings(plan: planning.Plan, rungs: Sequence[planning.ResolvedRung]) -> None:
    """How rungs are trained, in words, with the learning rates of all steps as a curve. Rungs that differ in nothing
    but their peak are together."""
    if plan.kind == "program":  # whose training is not known
        return
    from lrurun.config import wording
    from lrurun.config.schedules import learning_rates
    from lrurun.report.tables import sparkline

    trainings: dict[tuple[str, str], list[str]] = {}
    for rung in rungs:
        optim, train = rung.training.optim, rung.training.train
        rates = learning_rates(optim, train.steps) / optim.lr
        levels = sparkline.BLOCKS if console.can_show(sparkline.BLOCKS) else sparkline.ASCII
        curve = sparkline.draw(rates.tolist(), min(console.width(), 100) - 2, levels, low=0.0)
        trainings.setdefault((wording.training(optim, train, console.setting), curve), []).append(rung.name)
    for (text, curve), names in trainings.items():
        which = "all rungs" if len(names) == len(rungs) > 1 else ", ".join(names)
        console.paragraph(f"Training of {which}: {text}.")
        console.write(f"  {curve}\n")


def _print_groups(places: Places, plan: planning.Plan, rungs: Sequence[planning.ResolvedRung]) -> None:
    """The number of parameters, with the group and learning rate of each.

    Needs jax and the size of the vocabulary for the shapes.
    """
    if plan.kind == "program":  # whose parameters are not known
        return
    from lrurun.config.wording import estimates_rate
    from lrurun.data import task_data
    from lrurun.nn.network import Model
    from lrurun.training import optimizer

    manifest = task_data.manifest(plan.task, plan.options, places.data / plan.data_name)
    spec = plan.task.spec(plan.options, manifest.vocabulary if manifest else ())
    for rung in rungs:
        optim = rung.training.optim
        model = Model(rung.training.model, spec)
        params, _ = model.shapes
        rates = {"recurrent": optim.lr * optim.recurrent_factor, "regular": optim.lr, "undecayed": optim.lr}
        rows = [
            [path, "x".join(map(str, shape)) or "1", group, f"{rates[group]:g}"]
            for path, shape, group in optimizer.listing(optim, model.recurrence, params)
        ]
        title = f"{rung.name}: {model.count(params):,} parameters"
        peak = "peak factor of the learning rate" if estimates_rate(optim) else "peak learning rate"
        table.show_text(["parameter", "shape", "group", peak], rows, title=title)


def _show_sweep(points: Sequence[Point], documents: Sequence[PlanDocument], *, json: bool) -> int:
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
        left = document.runs_left
        seconds = document.eta_seconds
        time = "" if not left else "unknown" if seconds is None else console.duration(seconds)
        done, runs = (sum(getattr(row, field) for row in document.rungs) for field in ("runs_done", "runs"))
        values = [console.setting(value) for value in point.values.values()]
        rows.append([*values, document.instance.short_name, f"{done}/{runs}", time])
    instance = first.instance
    profile = "" if instance.profile is None else f", profile {instance.profile}"
    table.show_text(
        [*points[0].values, "instance", "done", "time left"],
        rows,
        title=f"ladder {instance.ladder} on {instance.task}{profile}",
    )
    for note in dict.fromkeys(note for document in documents for note in document.notes):
        console.paragraph(f"{note[0].upper()}{note[1:]}.")
    left = sum(document.runs_left for document in documents)
    if not left:
        console.paragraph("All runs are finished.")
    else:
        time = "time unknown, because no finished run shows how fast these rungs train here"
        if eta is not None:
            order = "one instance after another" if points[0].request.decide else "all in one queue"
            compiling = " plus compiling" if points[0].plan.is_of_models else ""
            time = f"about {console.duration(eta)}{compiling} with {plural(first.workers, 'worker')}, {order}"
        more = sum(document.extension_runs for document in documents)
        later = f" At most {plural(more, 'more run')}, if the best values are at the edge." if more else ""
        console.paragraph(f"{plural(left, 'run')} remaining: {time}.{later}")
    console.paragraph("lrurun plan with --set instead of --sweep shows the rungs of one instance.")
    return 0

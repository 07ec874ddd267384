"""Which runs of a ladder instance count, and the reports that are made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lrurun.config import plan as planning
from lrurun.config import plugin_code, tuning
from lrurun.config.recipe import read_recipe
from lrurun.config.resolve import RATE
from lrurun.config.runs import parse_seeds
from lrurun.config.schema import common_settings
from lrurun.config.settings import flatten
from lrurun.data.metric import Metric
from lrurun.errors import LedgerError, NotFoundError, plural
from lrurun.ledger.values import FINISHED
from lrurun.report import instance_documents, ladder_table, request, rung_runs, speed
from lrurun.report.instance_label import InstanceLabel, data_phrase, instance_title, make_label
from lrurun.report.judging import claims, design_record, scored_runs, sequential
from lrurun.report.scores import form_of

if TYPE_CHECKING:
    from lrurun.config.resolve import ResolvedRung
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import Attempt, LadderInstance, Membership, Run
    from lrurun.report.judging.sequential import LookRecord, Progress


def chosen(
    ledger: Ledger, task: str | None, plan: planning.Plan | None, name: str | None, command: str
) -> tuple[planning.Plan, LadderInstance]:
    """The requested ladder instance and its plan: that of a plan, or the one that has a short name or id.

    Args:
        task: the one that the instance named is to be of; None for any.
        command: trains the instance of the plan.

    Raises:
        NotFoundError: the ledger has no such instance, or it is on another task.
    """
    if plan is not None:
        return plan, _instance(ledger, plan, command)
    found = ledger.ladder(name or "")
    if task is not None and found.task != (read_recipe(task).task if task.endswith(".toml") else task):
        raise NotFoundError(
            f"instance {found.short_name} belongs to task {found.task}, not {task}",
            f"leave {task} out: --instance {found.short_name} names the task, too",
        )
    return instance_documents.plan_of(ledger, found), found


def find(ledger: Ledger, plan: planning.Plan) -> LadderInstance | None:
    """The instance of a plan; None if the ledger does not have it."""
    for instance in ledger.ladders(plan.ladder.name, plan.recipe.task):
        if (instance.profile, instance.spec) == (plan.profile, plan.spec):
            return instance
    return None


def _instance(ledger: Ledger, plan: planning.Plan, command: str) -> LadderInstance:
    if (found := find(ledger, plan)) is not None:
        return found
    wanted = instance_title(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
    if sentence := other_versions(plan, ledger):
        raise NotFoundError(
            f"{wanted}: not in this ledger with these documents; {sentence}", f"name one of these, or run: {command}"
        )
    raise NotFoundError(f"{wanted}: not in this ledger", recorded_hint(ledger, plan.recipe.task, command))


def recorded_hint(ledger: Ledger, task: str, command: str) -> str:
    """The newest instances on a task; without one, the command that trains it."""
    others = [f"{title(one)} (--instance {one.short_name})" for one in reversed(ledger.ladders(None, task))]
    more = "; lrurun status lists all" if len(others) > 3 else ""
    return f"this ledger has: {'; '.join(others[:3])}{more}" if others else f"run: {command}"


def other_versions(plan: planning.Plan, ledger: Ledger) -> str:
    """A phrase on the instances with results that were trained with another ladder or recipe, or with other plug-ins,
    by a command that looks the same; empty if there are none."""
    phrases = []
    for other in ledger.ladders(plan.ladder.name, plan.recipe.task):
        same = (other.profile, other.spec.get("set"), other.spec.get("tune")) == (plan.profile, plan.changes, plan.tune)
        if same and other.spec != plan.spec:
            counts = ledger.state_counts(other.key)
            if finished := sum(counts.get(state, 0) for state in FINISHED):
                design = design_record.verdict_counts(other, ledger)
                more = f", sequential design: {design}" if design else ""
                phrases.append(f"--instance {other.short_name} ({plural(finished, 'finished run')}{more})")
    if not phrases:
        return ""
    return f"another version of the ladder, the recipe or their plug-ins has results: {'; '.join(phrases)}"


def title(instance: LadderInstance) -> str:
    """As in "ladder lru on sDigits, profile smoke, without --tune, optim.lr=0.01"."""
    return instance_title(instance.name, instance.task, instance.profile, instance.spec)


def build(
    plan: planning.Plan,
    instance: LadderInstance,
    ledger: Ledger,
    *,
    rungs: Sequence[str] | None = None,
    detect: float | None = None,
    with_claims: bool = True,
) -> ladder_table.LadderReport:
    """The report on an instance, from its runs in the ledger.

    Args:
        rungs: those to show; None is all of them.
        detect: a difference, as it is printed, for which the report says the seeds that it needs.
        with_claims: whether it has the claims of the ladder. Verdicts do not depend on it.
    """
    task = plan.task
    current, notes = _current(plan, instance, ledger.runs(instance.key))
    progress = design_record.find(plan, instance, ledger)
    if sentence := other_versions(plan, ledger):
        notes.append(sentence)
    notes += added_seeds(plan, instance, ledger, current)
    return ladder_table.build(
        plan.ladder,
        task=task.name,
        profile=plan.profile,
        instance=instance.key,
        runs=current,
        notes=[*notes, *plan.cautions(_finished(current, instance)), *_tuned(plan, instance, current)],
        same_as_before=plan.same_as_base,
        rates={rung.name: (_planned_rate(rung), rung.rate_source) for rung in plan.rungs},
        test_items=task.sizes(plan.options)["test"],
        data=_data(plan, ledger, current),
        metric=task.metric,
        metrics=task.metrics,
        changes=plan.changes,
        tune=plan.tune,
        progress=progress,
        shown=rungs,
        detect=None if detect is None else detect / task.metric.scale,
        outside=plan.outside_scope,
        with_claims=with_claims,
    )


def take_look(plan: planning.Plan, instance: LadderInstance, ledger: Ledger, so_far: Progress) -> LookRecord:
    """The next look of a sequential design, from the runs of the ledger. It is not recorded here."""
    look = so_far.next_look
    assert look is not None
    current, _ = _current(plan, instance, ledger.runs(instance.key))
    data, items = _data(plan, ledger, current), plan.task.sizes(plan.options)["test"]

    def select(metric: Metric) -> dict[str, rung_runs.RungRuns]:
        return rung_runs.select(
            plan.ladder,
            instance=instance.key,
            runs=current,
            same_as_before=plan.same_as_base,
            metric=form_of(metric).result,
            notes=[],
        )

    selected = select(plan.task.metric)
    used = {run.id for rung in so_far.next_rungs for run in selected[rung].runs if run.seed < look.seeds}
    return claims.take_look(
        so_far,
        look,
        {rung: scored_runs.results_of(one) for rung, one in selected.items()},
        scoring=scored_runs.scoring_of(plan.task.metric, data, items),
        design=design_record.digest(so_far.design),
        runs=sorted(used),
        others={
            one.name: scored_runs.scored(select(one), scored_runs.scoring_of(one, data, items, selects=False))
            for one in scored_runs.claimed_metrics(plan.ladder, plan.task.name, plan.task.metrics)
        },
    )


def added_seeds(plan: planning.Plan, instance: LadderInstance, ledger: Ledger, runs: Sequence[Run]) -> list[str]:
    """Sentences on counted seeds that the first command for a rung did not ask for, and a later one did.

    Raises:
        LedgerError: a recorded command cannot be read.
    """
    first: dict[str, set[int]] = {}
    added: dict[str, set[int]] = {rung.name: set() for rung in plan.rungs}
    designed = False
    """Whether there is a sequential design, whose verdicts later seeds do not move."""
    for event in request.asked(ledger, instance):
        asked = request.decode(event.payload, request.LadderRequest, instance)
        looks = range(asked.max_seeds or sequential.MAX_SEEDS)
        seeds = set(looks if asked.seeds is None else parse_seeds(asked.seeds))
        designed |= asked.seeds is None
        for rung in asked.rungs or added:
            before = first.setdefault(rung, seeds)
            # Without --seeds, it is a sequential design that adds seeds, and reports describe the design.
            if rung in added and asked.seeds is not None:
                added[rung] |= seeds - before
    shared = rung_runs.first_of_same(plan.ladder, plan.same_as_base)
    counted: dict[str, set[int]] = {}
    for run in runs:
        if run.state in ("done", "diverged") and run.excluded is None and not run.superseded:
            for place in run.memberships:
                if place.ladder_key == instance.key and place.stage == "train" and place.rung in shared:
                    counted.setdefault(shared[place.rung], set()).add(run.seed)
    by_seeds: dict[tuple[int, ...], list[str]] = {}
    for rung, later in added.items():
        by_seeds.setdefault(tuple(sorted(later & counted.get(shared[rung], set()))), []).append(rung)
    by_seeds.pop((), None)
    sentences = []
    for more, rungs in by_seeds.items():
        which = "" if len(rungs) == len(added) else f" of {', '.join(rungs)}"
        verb = "was" if len(more) == 1 else "were"
        sentences.append(f"{_seed_text(more)}{which} {verb} added in a later command")
    if sentences and not designed:
        sentences[-1] += ": the error rate of verdicts holds only if earlier results are not the reason"
    return sentences


def _seed_text(seeds: Sequence[int]) -> str:
    """As in "seed 4" and "seeds 3, 100 to 111"."""
    series: list[list[int]] = []
    for seed in seeds:
        if series and seed == series[-1][-1] + 1:
            series[-1].append(seed)
        else:
            series.append([seed])
    parts = [str(one[0]) if len(one) == 1 else f"{one[0]} to {one[-1]}" for one in series]
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(parts)}"


def _finished(runs: Sequence[Run], instance: LadderInstance) -> set[str]:
    """The rungs that have finished final runs."""
    places = (place for run in runs if run.state == "done" for place in run.memberships)
    return {place.rung for place in places if place.ladder_key == instance.key and place.stage == "train"}


def _tuned(plan: planning.Plan, instance: LadderInstance, runs: Sequence[Run]) -> list[str]:
    """What tuning chose beside learning rates, as the final runs have it: one sentence, or none."""
    chosen: dict[str, list[str]] = {}
    for rung in plan.rungs:
        paths = [path for path in plan.free(rung.name) if path != RATE]
        final = (run for run in runs for place in run.memberships if _is_final(place, instance, rung.name))
        if paths and (run := next(final, None)) is not None:
            settings = dict(flatten(run.config))
            values = ", ".join(f"{path} = {tuning.short(settings[path])}" for path in paths)
            chosen.setdefault(values, []).append(rung.name)
    listed = "; ".join(f"{values} ({', '.join(names)})" for values, names in chosen.items())
    return [f"chosen on validation with {plural(len(plan.tuning_seeds), 'seed')}: {listed}"] if listed else []


def _is_final(place: Membership, instance: LadderInstance, rung: str) -> bool:
    return (place.ladder_key, place.stage, place.rung) == (instance.key, "train", rung)


def _planned_rate(rung: ResolvedRung) -> float | None:
    return None if rung.rate_source.kind == "tuned" else rung.config.optim.lr


def build_speeds(
    plan: planning.Plan, instance: LadderInstance, ledger: Ledger, *, rungs: Sequence[str] | None = None
) -> speed.SpeedReport:
    """The training speeds of an instance, from its runs in the ledger; `rungs` names those to show."""
    current, notes = _current(plan, instance, ledger.runs(instance.key))
    return speed.build(
        plan.ladder,
        shown=rungs,
        task=plan.task.name,
        profile=plan.profile,
        instance=instance.key,
        runs=current,
        last_attempt=partial(_newest, ledger.newest_attempts([run.id for run in current])),
        notes=notes,
        same_as_before=plan.same_as_base,
        changes=plan.changes,
        tune=plan.tune,
        data=_data(plan, ledger, current),
    )


def label(plan: planning.Plan, instance: LadderInstance, ledger: Ledger) -> InstanceLabel:
    """The label of an instance."""
    current, _ = _current(plan, instance, ledger.runs(instance.key))
    return make_label(plan.task.name, plan.profile, plan.tune, plan.changes, _data(plan, ledger, current))


def labels_of(runs: Sequence[Run], ledger: Ledger) -> str:
    """The labels of the instances that runs were first made for, each once."""
    found = dict.fromkeys(_first_label(run, ledger) for run in runs)
    return "; ".join(found)


def _first_label(run: Run, ledger: Ledger) -> str:
    environment = next((a.environment for a in reversed(ledger.attempts(run.id)) if "data" in a.environment), {})
    data = environment.get("data", {})
    if not run.memberships:
        return ", ".join(filter(None, [run.task, data_phrase(data)]))
    instance = ledger.ladder(run.memberships[0].ladder_key)
    tune, changes = bool(instance.spec.get("tune")), instance.spec.get("set", {})
    return make_label(instance.task, instance.profile, tune, changes, data).text


def counted(
    plan: planning.Plan, instance: LadderInstance, ledger: Ledger, metric: str | None = None
) -> tuple[dict[str, rung_runs.RungRuns], list[str]]:
    """Rung -> the runs of an instance that a report counts, and notes on those that it leaves out.

    `metric` is what they must have; without it, the test score.
    """
    current, notes = _current(plan, instance, ledger.runs(instance.key))
    return (
        rung_runs.select(
            plan.ladder,
            instance=instance.key,
            runs=current,
            same_as_before=plan.same_as_base,
            metric=metric or form_of(plan.task.metric).result,
            notes=notes,
        ),
        notes,
    )


def _data(plan: planning.Plan, ledger: Ledger, found: list[Run]) -> dict[str, Any]:
    """What the newest finished run that counts recorded about its data; reports refuse runs on unequal data."""
    counting = [run for run in found if run.excluded is None]
    for run in sorted(counting, key=lambda run: run.finished_at or 0.0, reverse=True):
        for attempt in reversed(ledger.attempts(run.id)):
            if "data" in attempt.environment:
                return {**attempt.environment["data"], "sha256": run.data_sha256}
    return {}


def _current(plan: planning.Plan, instance: LadderInstance, found: list[Run]) -> tuple[list[Run], list[str]]:
    """The runs whose settings are those that ladder and recipe have now, and notes on the others."""
    free = {rung.name: plan.free(rung.name) for rung in plan.rungs}
    wanted = {rung.name: common_settings(rung.config, free[rung.name]) for rung in plan.rungs}
    settings: dict[tuple[int, tuple[str, ...]], dict[str, Any]] = {}

    def is_current(run: Run, rung: str) -> bool:
        key = (run.config_id, free[rung])
        if key not in settings:
            settings[key] = common_settings(run.config, free[rung])
        return settings[key] == wanted[rung]

    current: list[Run] = []
    others: dict[str, list[str]] = {}
    for run in found:
        rungs = {m.rung for m in run.memberships if m.ladder_key == instance.key and m.stage == "train"}
        if rungs and not any(is_current(run, rung) for rung in rungs if rung in wanted):
            why = plugin_code.outdated(run.config) or "the ladder or the recipe has changed since"
            others.setdefault(why, []).append(run.id)
        else:
            current.append(run)
    return current, [f"left out, because {why}: {', '.join(sorted(ids))}" for why, ids in others.items()]


def _newest(attempts: Mapping[str, Attempt], run: str) -> Attempt:
    if run not in attempts:
        raise LedgerError(f"run {run} has a result, but no attempt is recorded", "run: lrurun ledger check")
    return attempts[run]

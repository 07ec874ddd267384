"""A ladder instance with what the ledger has of it: the runs that count, and the reports that are made from them."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from lrurun import paths
from lrurun.config import planning, plugin_code, tuning_grid
from lrurun.config.fingerprint import same_settings
from lrurun.config.instance import Instance, data_phrase
from lrurun.config.recipe import read_recipe
from lrurun.config.resolve import RATE, RateSource
from lrurun.config.runs import parse_seeds
from lrurun.config.schema import LADDER_KINDS
from lrurun.config.settings import combinations, flatten
from lrurun.data import tasks
from lrurun.errors import LedgerError, NotFoundError, UsageError, plural
from lrurun.instances import documents, import_record, lookup, phrases, requests
from lrurun.judging import claims, design_record, rung_runs, scored_runs, sequential
from lrurun.ledger.values import FINISHED, ITEMS_REFUSED
from lrurun.report.tables import ladder_table

if TYPE_CHECKING:
    from lrurun.config.ladder import Ladder
    from lrurun.config.recipe import Tried
    from lrurun.config.resolve import ResolvedRung
    from lrurun.data.metric import Metric
    from lrurun.data.task import Task
    from lrurun.items import ItemResults
    from lrurun.judging.sequential import DesignProgress, LookRecord
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Attempt, LadderInstance, Membership, RemovedRun, Run
    from lrurun.report.tables.speed import SpeedReport


def chosen(
    ledger: Ledger, task: str | None, plan: planning.Plan | None, name: str | None, command: str
) -> LoadedInstance:
    """The requested ladder instance: the one of a plan, or the one that has a short name or id.

    Args:
        task: the one that the instance named is to be of; None for any.
        command: trains the instance of the plan.

    Raises:
        NotFoundError: the ledger has no such instance, or it is on another task.
    """
    if plan is not None:
        return LoadedInstance(plan, lookup.require(ledger, plan, command), ledger)
    instance = ledger.ladder(name or "")
    if task is not None and instance.task != (read_recipe(task).task if task.endswith(".toml") else task):
        raise NotFoundError(
            f"instance {instance.short_name} belongs to task {instance.task}, not {task}",
            f"leave {task} out: --instance {instance.short_name} names the task, too",
        )
    return of_instance(ledger, instance)


def of_instance(ledger: Ledger, instance: LadderInstance) -> LoadedInstance:
    """An instance by the documents that it was run with.

    Raises:
        UsageError: a plug-in is not loaded, or the documents do not fit this version; or it is a study.
    """
    if instance.kind not in LADDER_KINDS:
        study = instance.task.partition(":")[2]
        raise UsageError(
            f"instance {instance.short_name}: is of a study, which has no rungs",
            f"lrurun study {study} --profile {instance.profile} --out FILE draws it; lrurun report {instance.task}",
        )
    return LoadedInstance(documents.plan_of(ledger, instance), instance, ledger)


class LoadedInstance(Struct, frozen=True, dict=True):
    """A ladder instance and what the ledger has of it."""

    plan: planning.Plan
    instance: LadderInstance
    ledger: Ledger

    @property
    def command(self) -> str:
        """The command that continues the instance."""
        return shlex.join(["lrurun", "resume", "--instance", self.instance.short_name, *paths.place_options()])

    @property
    def ladder(self) -> Ladder:
        """The ladder, as it is planned."""
        return self.plan.ladder

    @cached_property
    def _task(self) -> Task:
        return self.plan.task

    @property
    def metric(self) -> Metric:
        """The metric that selects the model."""
        return self._task.metric

    @property
    def metrics(self) -> Sequence[Metric]:
        """All metrics of the task."""
        return self._task.metrics

    def items(self, runs: Sequence[str], result: str, /) -> Mapping[str, ItemResults]:
        """The per-item results of runs, by the runs' ids, for the score of this name."""
        return self.ledger.items(runs, result)

    def items_removed(self, runs: Sequence[str], result: str, /) -> Mapping[str, int]:
        """The runs of which these results were removed, each with the number of test items."""
        return self.ledger.items_removed(runs, result)

    @property
    def runs(self) -> list[Run]:
        """The runs whose settings are the ones that ladder and recipe have now."""
        return self._selected[0]

    @property
    def notes(self) -> list[rung_runs.Note]:
        """Notes on the other runs."""
        outdated: dict[str, list[str]] = {}
        for run in self._selected[1]:
            why = plugin_code.outdated(run.config) or "the ladder or the recipe has changed since"
            outdated.setdefault(why, []).append(run.id)
        return [rung_runs.note_on(sorted(ids), f"left out, because {why}") for why, ids in outdated.items()]

    @cached_property
    def _selected(self) -> tuple[list[Run], list[Run]]:
        """The runs with the settings that their rungs have now, and the others."""
        rungs = {rung.name: (rung.config, self.plan.free(rung.name)) for rung in self.plan.rungs}
        same: dict[tuple[int, str], bool] = {}

        def is_current(run: Run, rung: str) -> bool:
            key = (run.config_id, rung)
            if key not in same:
                same[key] = same_settings(run.config, *rungs[rung])
            return same[key]

        current: list[Run] = []
        outdated: list[Run] = []
        for run in self.ledger.runs(self.instance.key):
            final = self._final_rungs(run)
            is_other = final and not any(is_current(run, rung) for rung in final if rung in rungs)
            (outdated if is_other else current).append(run)
        return current, outdated

    def _final_rungs(self, run: Run) -> set[str]:
        """The rungs that count this run, which is not one of tuning."""
        return {m.rung for m in run.memberships if m.ladder_key == self.instance.key and m.stage == "train"}

    @cached_property
    def data(self) -> dict[str, Any]:
        """The data that the newest counted finished run recorded; reports refuse runs on unequal data."""
        counting = [run for run in self.runs if run.excluded is None]
        newest = self.ledger.newest_attempts([run.id for run in counting])
        begun = [run for run in counting if run.id in newest]
        for run in sorted(begun, key=lambda run: run.finished_at or 0.0, reverse=True):
            is_first = newest[run.id].n == 1
            for attempt in [newest[run.id]] if is_first else reversed(self.ledger.attempts(run.id)):
                if "data" in attempt.environment:
                    return {**attempt.environment["data"], "sha256": run.data_sha256}
        return {}

    @cached_property
    def same_as_base(self) -> frozenset[str]:
        """The rungs that share all runs with their base: by their settings, or because tuning chose equal ones."""
        final: dict[str, set[str]] = {}
        for run in self.runs:
            for membership in run.memberships:
                if _is_final(membership, self.instance, membership.rung):
                    final.setdefault(membership.rung, set()).add(run.id)
        bases = self.plan.ladder.bases.items()
        shared = {rung for rung, base in bases if base is not None and final.get(rung, set()) & final.get(base, set())}
        return self.plan.same_as_base | shared

    @cached_property
    def identity(self) -> Instance:
        """The identity, with the data of its runs."""
        return structs.replace(self.instance.identity, data=self.data)

    def report(
        self,
        *,
        rungs: Sequence[str] | None = None,
        detect: float | None = None,
        with_claims: bool | None = None,
        with_unbeaten: bool = False,
    ) -> ladder_table.LadderReport:
        """The comparison of its rungs.

        Args:
            rungs: those to show; None is all of them.
            detect: a difference, as it is printed, for which the report says the seeds that it needs.
            with_claims: whether it has the claims of the ladder, on which verdicts do not depend. None: of the ladder
                `lru`, whose claims are about the papers' tasks, only on a task that comes with lrurun.
            with_unbeaten: whether it has the rungs that no other one is decided to be better than.
        """
        plan, task = self.plan, self._task
        if with_claims is None:
            with_claims = plan.ladder.name != "lru" or tasks.is_built_in(plan.recipe.task)
        sentences = documents.changed_code(self.ledger, self.instance, plan)
        if sentence := lookup.other_versions(plan, self.ledger):
            sentences.append(sentence)
        sentences += [*self.added_seeds(), *plan.cautions(self._finished), *self._tuned(), *self._refused_items()]
        return ladder_table.build(
            self,
            sentences=sentences,
            test_items=task.sizes(plan.options).get("test"),
            rates={rung.name: self._rate(rung) for rung in plan.rungs},
            tuning=self._tuning() if plan.tune else None,
            progress=design_record.find(plan, self.instance, self.ledger),
            shown=rungs,
            detect=None if detect is None else detect / task.metric.scale,
            kind=plan.kind,
            can_tune=bool(plan.grid),
            steps_path=plan.steps_path,
            outside=plan.outside_scope,
            left_out=Counter(rung for run in self._selected[1] for rung in self._final_rungs(run)),
            with_claims=with_claims,
            imported=None if plan.is_trained_here else import_record.newest(self.ledger, self.instance),
            removed_runs=self.removed,
            trained_again=self.trained_again,
            read_again=phrases.read_again(plan.recipe),
            with_unbeaten=with_unbeaten,
        )

    def sentences_on(self, rungs: Collection[str]) -> list[str]:
        """What readers must know of a comparison for which the values of these rungs were chosen: the code of its runs,
        side effects of its rungs, per-item results that were refused."""
        sentences = documents.changed_code(self.ledger, self.instance, self.plan)
        if sentence := lookup.other_versions(self.plan, self.ledger):
            sentences.append(sentence)
        cautions = self.plan.cautions(self._finished & set(rungs))
        return [*sentences, *cautions, *self._refused_items()]

    def speeds(self, *, rungs: Sequence[str] | None = None) -> SpeedReport:
        """The training speeds of its rungs; `rungs` names those to show.

        Raises:
            UsageError: its runs were imported.
        """
        if not self.plan.is_trained_here:
            name = self.instance.short_name
            raise UsageError(f"{name}: these runs were imported, and their speeds are not known", "leave --speed out")
        from lrurun.report.tables import speed

        newest = partial(_newest, self.ledger.newest_attempts([run.id for run in self.runs]))
        return speed.build(self, newest, rungs)

    def counted(self, metric: Metric | None = None) -> tuple[dict[str, rung_runs.RungRuns], list[rung_runs.Note]]:
        """Rung -> the runs that a report counts, and notes on the others.

        `metric` is the one whose score they must have; without it, the one that selects the model.
        """
        notes = list(self.notes)
        return rung_runs.select(self, metric or self.metric, notes), notes

    def with_speed(self) -> tuple[dict[str, rung_runs.RungRuns], list[rung_runs.Note]]:
        """Rung -> the runs that have recorded their speed, and notes on the others."""
        notes = list(self.notes)
        return rung_runs.with_speed(self, notes), notes

    @cached_property
    def removed(self) -> list[RemovedRun]:
        """The runs that were forgotten, or left out of this copy of a part of a ledger, and are not back."""
        return self.ledger.removed_from(self.instance.key)

    @cached_property
    def trained_again(self) -> list[RemovedRun]:
        """The runs with results that were forgotten, and in whose place others were trained."""
        return self.ledger.trained_again(self.instance.key)

    def take_look(self, so_far: DesignProgress) -> LookRecord:
        """The next look of its sequential design. It is not recorded here."""
        plan, look = self.plan, so_far.next_look
        assert look is not None
        test_items = self._task.sizes(plan.options).get("test")
        selected, _ = self.counted()
        used = {run.id for rung in so_far.next_rungs for run in selected[rung].runs if run.seed < look.seeds}
        selecting = scored_runs.scored(self, selected, self.metric, test_items)
        return claims.take_look(
            so_far,
            look,
            selecting.rungs,
            scoring=selecting.scoring,
            design=design_record.digest(so_far.design),
            runs=sorted(used),
            by_metric={
                metric.name: scored_runs.scored(self, self.counted(metric)[0], metric, test_items)
                for metric in scored_runs.claimed_metrics(plan.ladder, self._task.name, self.metrics)
            },
        )

    def added_seeds(self) -> list[str]:
        """Sentences on counted seeds that the first command for a rung did not ask for, and a later one did.

        Raises:
            LedgerError: a recorded command cannot be read.
        """
        return added_seeds([self])

    @property
    def _finished(self) -> set[str]:
        """The rungs that have finished final runs."""
        done = [run for run in self.runs if run.state == "done"]
        return {rung for run in done for rung in self._final_rungs(run)}

    def rate_of(self, rung: str) -> tuple[float | None, RateSource]:
        """The learning rate of a rung, by its name, and its source."""
        return self._rate(next(one for one in self.plan.rungs if one.name == rung))

    def _rate(self, rung: ResolvedRung) -> tuple[float | None, RateSource]:
        """The learning rate of a rung, None if tuning chooses it, and its source."""
        if rung.rate_source.kind != "tuned":
            return rung.rate, rung.rate_source
        if rung.grid and self._final_run(rung.name) is not None and not self._is_tuned(rung):
            return rung.rate, RateSource("default", "the recipe's, because no tuning run finished")
        return None, rung.rate_source

    def _final_run(self, rung: str) -> Run | None:
        """A final run of a rung; all final runs of a rung have the same settings."""
        return next((run for run in self.runs if rung in self._final_rungs(run)), None)

    def _is_tuned(self, rung: ResolvedRung) -> bool:
        """Whether tuning has chosen the values of its final runs. It has not if no tuning run finished.

        A final run that another instance trained first has the sources that its values had there.
        """
        run = self._final_run(rung.name)
        if run is None or any(run.sources.get(path, "").startswith("tuned") for path in rung.grid):
            return run is not None
        score = f"val/{self.metric.name}"
        # of runs that are gone, the choice is on record
        settings = dict(flatten(run.config))
        points = (choice.get("point") for choice in self._choices if choice.get("rung") == rung.name)
        if any(point and all(settings.get(path) == value for path, value in point.items()) for point in points):
            return True
        return any(
            math.isfinite((run.result or {}).get(score, math.nan))
            and any(_is_of(membership, self.instance, "tune", rung.name) for membership in run.memberships)
            for run in self.runs
        )

    @cached_property
    def _choices(self) -> list[dict[str, Any]]:
        """What tuning has chosen by runs of which some are gone, as its commands have recorded it."""
        if not any(run.stage == "tune" for run in self.removed):
            return []
        events = self.ledger.events(ladder_key=self.instance.key, of_runs=False, kind="tuned")
        return [event.payload for event in events if event.payload is not None]

    def _tuning(self) -> ladder_table.Tuning:
        """How many seeds and items decided, and which of the chosen values are at the edge of what was tried."""
        at_edge: dict[str, list[str]] = {}
        points: dict[str, int] = {}
        added: dict[str, int] = {}
        for rung in self.plan.rungs:
            if (run := self._final_run(rung.name)) is not None and self._is_tuned(rung):
                settings = dict(flatten(run.config))
                known = self._points(rung)
                if paths := [
                    path
                    for path, tried in rung.grid.items()
                    if tuning_grid.is_edge(settings.get(path), _with(tried, (point[path] for point in known)))
                ]:
                    at_edge[rung.name] = paths
                points[rung.name] = len(known)
                if self.plan.extend and tuning_grid.extensible(rung.grid):
                    added[rung.name] = sum(not _is_in(rung.grid, point) for point in known)
        items = self.plan.task.sizes(self.plan.options).get("validation")
        return ladder_table.Tuning(
            seeds=len(self.plan.tuning_seeds), items=items, at_edge=at_edge, extend=self.plan.extend, points=points,
            added=added,
        )  # fmt: skip

    def _points(self, rung: ResolvedRung) -> list[dict[str, Any]]:
        """The points that tuning has tried for a rung: those of its grid, then as its runs have them; added ones of
        which the runs are gone are on record."""
        points: list[dict[str, Any]] = []
        if self.plan.search is None:
            points = combinations({path: tuning_grid.examples(tried) for path, tried in rung.grid.items()})
        for run in self.runs:
            if not run.superseded and any(_is_of(m, self.instance, "tune", rung.name) for m in run.memberships):
                settings = dict(flatten(run.config))
                point = {path: settings.get(path) for path in rung.grid}
                points += [] if point in points else [point]
        recorded = (choice.get("added") or () for choice in self._choices if choice.get("rung") == rung.name)
        for point in (dict(point) for added in recorded for point in added):
            points += [] if point in points or point.keys() != rung.grid.keys() else [point]
        return points

    def _refused_items(self) -> list[str]:
        """A sentence on runs whose per-item results are not recorded; empty if there are none."""
        events = self.ledger.events(ladder_key=self.instance.key, kind=ITEMS_REFUSED)
        done = {run.id for run in self.runs if run.state == "done"}
        refused = {event.run: event.text for event in events if event.run in done}
        if not refused:
            return []
        run, text = next(iter(refused.items()))
        return [f"{text} (run {run}" + f", and {len(refused) - 1} more" * (len(refused) > 1) + ")"]

    def _tuned(self) -> list[str]:
        """A sentence on what tuning chose beside learning rates, as the final runs have it; empty if nothing."""
        chosen: dict[str, list[str]] = {}
        for rung in self.plan.rungs:
            free = (path for path in self.plan.free(rung.name) if len(tuning_grid.examples(rung.grid[path])) > 1)
            paths = [path for path in free if path != RATE]
            if paths and (run := self._final_run(rung.name)) is not None and self._is_tuned(rung):
                settings = dict(flatten(run.config))
                values = ", ".join(f"{path} = {tuning_grid.short(settings[path])}" for path in paths)
                chosen.setdefault(values, []).append(rung.name)
        listed = "; ".join(f"{values} ({', '.join(names)})" for values, names in chosen.items())
        return [f"chosen on validation with {plural(len(self.plan.tuning_seeds), 'seed')}: {listed}"] if listed else []


def _with(tried: Tried, values: Iterable[Any]) -> Tried:
    """The values of a grid with those that were added to it; a range as it is."""
    return [*tried, *(value for value in values if value not in tried)] if isinstance(tried, list) else tried


def _is_in(grid: Mapping[str, Tried], point: Mapping[str, Any]) -> bool:
    """Whether a point has values that the grid lists, for all settings."""
    return all(point[path] in tried for path, tried in grid.items() if isinstance(tried, list))


def added_seeds(
    instances: Sequence[LoadedInstance], rungs: Collection[str] | None = None, without: frozenset[int] = frozenset()
) -> list[str]:
    """Sentences on counted seeds that the first command for a rung did not ask for: a later one did, or the same one
    after it had chosen a value.

    Args:
        instances: those whose runs count together, because the rungs have equal settings in them.
        rungs: only these; None for all.
        without: seeds that do not count.

    Raises:
        LedgerError: a recorded command cannot be read.
    """
    plan = instances[0].plan
    first: dict[str, set[int]] = {}
    chosen = [rung.name for rung in plan.rungs if rungs is None or rung.name in rungs]
    added: dict[str, set[int]] = {rung: set() for rung in chosen}
    by_choice: dict[tuple[int, ...], dict[str, set[int]]] = {}
    """The seeds that chose a value -> rung -> the seeds that were trained with it then."""
    designed = False
    """Whether there is a sequential design, whose verdicts later seeds do not move."""
    commands = [(event, one.instance) for one in instances for event in requests.events(one.ledger, one.instance)]
    for event, instance in sorted(commands, key=lambda command: (command[0].time, command[0].id)):
        recorded = requests.decode(event.payload, requests.LadderRequest, instance)
        looks = range(recorded.max_seeds or sequential.MAX_SEEDS)
        seeds = set(looks if recorded.seeds is None else parse_seeds(recorded.seeds)).difference(without)
        if not seeds:
            continue
        designed |= recorded.seeds is None
        for rung in recorded.rungs or added:
            if recorded.chosen_by:
                if without.issuperset(recorded.chosen_by):  # no score that counts here was known to that choice
                    first[rung] = first.get(rung, set()) | seeds
                elif rung in added:
                    trained = by_choice.setdefault(tuple(recorded.chosen_by), {}).setdefault(rung, set())
                    trained |= seeds - first.get(rung, set())
                continue
            before = first.setdefault(rung, seeds)
            # Without --seeds, it is a sequential design that adds seeds, and reports describe the design.
            if rung in added and recorded.seeds is not None:
                added[rung] |= seeds - before
    shared = rung_runs.first_of_same(plan.ladder, frozenset().union(*(one.same_as_base for one in instances)))
    counted: dict[str, set[int]] = {}
    for one in instances:
        for run in one.runs:
            if run.state in FINISHED and run.excluded is None and not run.superseded:
                for membership in run.memberships:
                    if membership.rung in shared and _is_final(membership, one.instance, membership.rung):
                        counted.setdefault(shared[membership.rung], set()).add(run.seed)
    sentences = []
    reasons = [("in a later command", added)]
    for choosing, of_rungs in by_choice.items():
        reasons.append((f"because validation chose this value by {_seed_text(choosing)}", of_rungs))
    for reason, seeds_of in reasons:
        by_seeds: dict[tuple[int, ...], list[str]] = {}
        for rung, later in seeds_of.items():
            by_seeds.setdefault(tuple(sorted(later & counted.get(shared[rung], set()))), []).append(rung)
        by_seeds.pop((), None)
        for more, names in by_seeds.items():
            named = "" if len(names) == len(plan.rungs) else f" of {', '.join(names)}"
            verb = "was" if len(more) == 1 else "were"
            sentences.append(f"{_seed_text(more)}{named} {verb} added {reason}")
    if sentences and not designed:
        sentences[-1] += ": the error rate of verdicts holds only if earlier results are not the reason"
    return sentences


def _seed_text(seeds: Sequence[int]) -> str:
    """Seeds as text, for example "seed 4" and "seeds 3, 100 to 111"."""
    series: list[list[int]] = []
    for seed in seeds:
        if series and seed == series[-1][-1] + 1:
            series[-1].append(seed)
        else:
            series.append([seed])
    parts = [str(span[0]) if len(span) == 1 else f"{span[0]} to {span[-1]}" for span in series]
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(parts)}"


def _is_final(membership: Membership, instance: LadderInstance, rung: str) -> bool:
    return _is_of(membership, instance, "train", rung)


def _is_of(membership: Membership, instance: LadderInstance, stage: str, rung: str) -> bool:
    return (membership.ladder_key, membership.stage, membership.rung) == (instance.key, stage, rung)


def labels_of(runs: Sequence[Run], ledger: Ledger) -> str:
    """The labels of the instances that runs were first made for, each once."""
    labels = dict.fromkeys(_first_label(run, ledger) for run in runs)
    return "; ".join(labels)


def _first_label(run: Run, ledger: Ledger) -> str:
    environment = next((a.environment for a in reversed(ledger.attempts(run.id)) if "data" in a.environment), {})
    data = environment.get("data", {})
    if not run.memberships:
        return ", ".join(filter(None, [run.task, data_phrase(data)]))
    return structs.replace(ledger.ladder(run.memberships[0].ladder_key).identity, data=data).label


def _newest(attempts: Mapping[str, Attempt], run: str) -> Attempt:
    if run not in attempts:
        raise LedgerError(f"run {run} has a result, but no attempt is recorded", "run: lrurun ledger check")
    return attempts[run]

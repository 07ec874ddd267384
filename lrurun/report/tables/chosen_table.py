"""The instances of a sweep as one ladder: of each rung the value that validation chooses, compared by other seeds.

The first seeds that all values of a rung have choose, and enter no verdict on any rung. What is left is judged as every
ladder is: the rungs that were swept are rungs with tuned settings.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import Struct, structs

from lrurun.config import planning
from lrurun.config.instance import Instance
from lrurun.config.resolve import RATE, RateSource, full
from lrurun.config.schema import TUNING_SEED
from lrurun.console import setting
from lrurun.data import tasks
from lrurun.errors import NotFoundError, plural
from lrurun.judging import rung_runs, statistics, verdicts
from lrurun.judging.rung_runs import Note
from lrurun.judging.scores import form_of
from lrurun.ledger.values import FINISHED
from lrurun.report.tables import forgotten_values, ladder_table, loaded_instance
from lrurun.report.tables.ladder_table import LadderReport
from lrurun.report.tables.loaded_instance import LoadedInstance
from lrurun.report.tables.swept_table import is_at_edge, value_rank

if TYPE_CHECKING:
    from lrurun.config.ladder import Ladder
    from lrurun.data.metric import Metric
    from lrurun.instances.requests import LadderRequest
    from lrurun.items import ItemResults
    from lrurun.ledger.values import RemovedRun, Run


class Candidate(Struct, frozen=True, kw_only=True, dict=True):
    """A rung with some values, in all instances that have it with these."""

    values: dict[str, Any]
    """Dotted path -> the value; None where the rung has no such setting, or tuning chooses it."""
    instances: tuple[LoadedInstance, ...]
    """The instances whose runs count here, oldest first."""
    runs: tuple[Run, ...]
    """The runs that a report on these instances has, each once, in order of their seeds."""
    notes: tuple[Note, ...]
    """Notes on runs that count in one instance, but not beside those of another."""

    @cached_property
    def finished(self) -> dict[int, Run]:
        """Seed -> the run that is finished, diverged ones included."""
        return {run.seed: run for run in self.runs if run.state in FINISHED}


class RungChoice(Struct, frozen=True, kw_only=True):
    """What was chosen for a rung."""

    rung: str
    values: dict[str, Any]
    """Dotted path -> the chosen value; None where the rung has no such setting, or tuning chooses it."""
    among: int
    """The number of values, or of combinations, that it was chosen among; 1: there was nothing to choose."""
    seeds: list[int]
    """The seeds that chose; empty where there was nothing to choose."""
    validation: float | None
    """The mean of the best validation scores of these seeds, with the chosen values."""
    at_edge: list[str]
    """The settings whose chosen value is the smallest or the largest of those swept."""
    judged: int
    """The number of other finished seeds, by which the rung is compared."""

    @property
    def text(self) -> str:
        """The values as text."""
        return values_text(self.values)


def values_text(values: Mapping[str, Any]) -> str:
    """Values as text, for example "optim.lr = 0.004"; empty without any."""
    return ", ".join(f"{path} = {setting(value)}" for path, value in values.items() if value is not None)


class ChosenReport(LadderReport, frozen=True, kw_only=True):
    """The comparison of rungs at the values that were chosen for them."""

    json_fields: ClassVar[Sequence[str]] = (*LadderReport.json_fields, "by", "choice", "commands", "forgotten_values")
    by: tuple[str, ...]
    """Dotted paths of the settings that were chosen."""
    choice: tuple[RungChoice, ...]
    """What was chosen for each rung that has results."""
    commands: tuple[str, ...] = ()
    """The commands that train the fresh seeds which firm verdicts need; empty where all rungs have them."""

    @property
    def title_of_ladder(self) -> str:
        """The title without what was chosen."""
        return self.title.removesuffix(_as_chosen(self.by))


def _as_chosen(by: Sequence[str]) -> str:
    """The end of the title, by the dotted paths of the settings that were chosen."""
    return f", by {', '.join(by)} as chosen"


class Fresh(Struct, frozen=True, kw_only=True):
    """Rungs that are trained with the same values, because these were chosen for them."""

    rungs: list[str]
    values: dict[str, Any]
    seeds: str
    """As `--seeds` takes them."""

    @property
    def text(self) -> str:
        """The values as text."""
        return values_text(self.values)

    def request(self, request: LadderRequest) -> LadderRequest:
        """The request that trains them. Its instance keeps the name that the sweep gave it."""
        sets = request.sets | {path: value for path, value in self.values.items() if value is not None}
        return structs.replace(request, sets=sets, rungs=self.rungs, seeds=self.seeds, name=None)


class Choice:
    """What validation chooses among the instances of a sweep.

    Args:
        seeds: how many seeds choose, at most: those that all values of a rung have, the first ones.

    Raises:
        NotFoundError: nothing can be chosen, because the values of no rung have a finished seed in common.
    """

    def __init__(
        self, plan: planning.Plan, instances: Sequence[LoadedInstance], by: Sequence[str], seeds: int, command: str
    ) -> None:
        self.plan, self.by, self._instances = plan, tuple(by), instances
        candidates = _candidates(plan, instances, by)
        self._chosen: dict[str, Candidate] = {}
        self._seeds: dict[str, list[int]] = {}
        """Rung -> the seeds that chose."""
        self._not_chosen: list[str] = []
        """Rungs whose values have no finished seed in common."""
        for rung, of_rung in candidates.items():
            common = (
                sorted(set.intersection(*(set(one.finished) for one in of_rung)))[:seeds] if len(of_rung) > 1 else []
            )
            if len(of_rung) > 1 and not common:
                self._not_chosen.append(rung)
                continue
            self._seeds[rung] = common
            self._chosen[rung] = _best(of_rung, common, plan.task.metric) if common else of_rung[0]
        if not any(self._seeds.values()):
            why = "no rung has finished runs with two values"
            if self._not_chosen:
                why = f"the values of {', '.join(self._not_chosen)} have no finished seed in common"
            raise NotFoundError(f"--choose: {why}", f"train the same seeds with each value: {command}")
        self._candidates = candidates
        self.seeds = frozenset(seed for of_rung in self._seeds.values() for seed in of_rung)
        """The seeds that chose for some rung, which enter no verdict."""

    @cached_property
    def chosen(self) -> _ChosenRuns:
        """The runs that are compared."""
        return _ChosenRuns(self.plan, self._chosen, self.seeds)

    @cached_property
    def rungs(self) -> tuple[RungChoice, ...]:
        """What was chosen, by rung."""
        key = form_of(self.plan.task.metric).validation
        compared = rung_runs.select(self.chosen, self.plan.task.metric, [])
        choices = []
        for rung, candidate in self._chosen.items():
            tried = self._candidates[rung]
            scores = [_score(candidate.finished[seed], key) for seed in self._seeds[rung]]
            choices.append(
                RungChoice(
                    rung=rung,
                    values=candidate.values,
                    among=len(tried),
                    seeds=self._seeds[rung],
                    validation=statistics.mean([score for score in scores if score is not None]),
                    at_edge=[
                        path
                        for path, value in candidate.values.items()
                        if is_at_edge(value, [one.values[path] for one in tried])
                    ],
                    judged=len({run.seed for run in compared[rung].runs if run.state in FINISHED}),
                )
            )
        return tuple(choices)

    def fresh(self, rungs: Collection[str] | None = None) -> list[Fresh]:
        """What is to be trained so that the rungs of the choice, or those of `rungs`, have enough seeds for firm
        verdicts which the choice did not use: one for each distinct chosen value, or nothing."""
        wanted = [choice for choice in self.rungs if rungs is None or choice.rung in rungs]
        if all(choice.judged >= verdicts.LEAST_SEEDS for choice in wanted):
            return []
        first = max(self.seeds, default=-1) + 1
        if first + verdicts.LEAST_SEEDS > TUNING_SEED:
            return []
        seeds = f"{first}-{first + verdicts.LEAST_SEEDS - 1}"
        groups: list[Fresh] = []
        for choice in wanted:
            same = next((group for group in groups if group.values == choice.values), None)
            if same is None:
                groups.append(Fresh(rungs=[choice.rung], values=choice.values, seeds=seeds))
            else:
                same.rungs.append(choice.rung)
        return groups

    def report(
        self, request: LadderRequest, rungs: Sequence[str] | None, *, with_unbeaten: bool = False
    ) -> ChosenReport:
        """The comparison; `rungs` names those to show, None is all of them.

        Args:
            with_unbeaten: whether it has the rungs that no other one is decided to be better than.
        """
        plan, chosen = self.plan, self.chosen
        shown = [choice for choice in self.rungs if rungs is None or choice.rung in rungs]
        commands = [fresh.request(request).with_seeds(fresh.seeds) for fresh in self.fresh(rungs)]
        items = plan.task.sizes(plan.options).get("validation")
        made = ladder_table.build(
            chosen,
            sentences=[*self._sentences(shown), *chosen.sentences(self.seeds)],
            test_items=plan.task.sizes(plan.options).get("test"),
            rates={rung.name: self._rate(rung) for rung in plan.rungs if rung.name in self._chosen},
            tuning=ladder_table.Tuning(
                seeds=max((len(choice.seeds) for choice in self.rungs), default=0),
                items=items,
                at_edge={choice.rung: choice.at_edge for choice in shown if choice.at_edge},
            ),
            shown=rungs,
            removed_runs=self._once("removed"),
            trained_again=self._once("trained_again"),
            kind=plan.kind,
            can_tune=bool(plan.grid),
            steps_path=plan.steps_path,
            outside=plan.outside_scope,
            with_claims=plan.ladder.name != "lru" or tasks.is_built_in(plan.recipe.task),
            with_unbeaten=with_unbeaten,
        )
        made = structs.replace(
            made,
            fresh_seeds=None,
            title=f"{made.title}{_as_chosen(self.by)}",
            forgotten_values=forgotten_values.find(self._instances[0].ledger, plan, self.by),
        )
        return ChosenReport(**structs.asdict(made), by=self.by, choice=tuple(shown), commands=tuple(commands))

    def _once(self, name: Literal["removed", "trained_again"]) -> list[RemovedRun]:
        """Such runs of all instances, because they might have chosen; each once for a rung."""
        runs = [run for loaded in self._instances for run in getattr(loaded, name)]
        return list({(run.run, run.rung, run.stage): run for run in runs}.values())

    def _sentences(self, shown: Sequence[RungChoice]) -> list[str]:
        """What was chosen, by what, and what is missing."""
        groups: dict[tuple[int, tuple[int, ...]], dict[str, list[str]]] = {}
        for choice in shown:
            if choice.seeds:
                of_values = groups.setdefault((choice.among, tuple(choice.seeds)), {})
                of_values.setdefault(choice.text, []).append(choice.rung)
        sentences = []
        for (among, seeds), values in groups.items():
            parts = "; ".join(f"{text} ({', '.join(rungs)})" for text, rungs in values.items())
            listed = ", ".join(map(str, seeds))
            sentences.append(
                f"chosen on validation among {plural(among, 'value')} with {plural(len(seeds), 'seed')} ({listed}), "
                f"which no verdict uses: {parts}"
            )
        if without := [choice.rung for choice in shown if not choice.judged]:
            sentences.append(f"not judged, because only seeds that chose are finished: {', '.join(without)}")
        if self._not_chosen:
            rungs = ", ".join(self._not_chosen)
            sentences.append(f"not chosen, because its values have no finished seed in common: {rungs}")
        return sentences

    def _rate(self, rung: planning.ResolvedRung) -> tuple[float | None, RateSource]:
        """The learning rate of a rung, and its source."""
        candidate = self._chosen[rung.name]
        count = len(self._seeds[rung.name])
        if RATE in self.by and candidate.values[RATE] is not None and count:
            among = len(self._candidates[rung.name])
            text = f"chosen on validation among {plural(among, 'value')} with {plural(count, 'seed')}"
            return candidate.values[RATE], RateSource("tuned", text)
        return candidate.instances[0].rate_of(rung.name)


def _candidates(
    plan: planning.Plan, instances: Sequence[LoadedInstance], by: Sequence[str]
) -> dict[str, list[Candidate]]:
    """Rung -> its values with finished runs, in ascending order. The runs of instances with equal values are of one: a
    sweep may have the value of an instance that was there before, and rungs without the setting are in all."""
    found: dict[str, list[tuple[dict[str, Any], list[tuple[LoadedInstance, Sequence[Run]]]]]] = {}
    for loaded in instances:
        resolved = {rung.name: rung for rung in loaded.plan.rungs}
        selected, _ = loaded.counted()
        for rung, of_rung in selected.items():
            if not of_rung.runs:
                continue
            settings = full(resolved[rung].config)
            values = {path: None if path in loaded.plan.free(rung) else settings.get(path) for path in by}
            known = found.setdefault(rung, [])
            same = next((members for other, members in known if other == values), None)
            if same is None:
                known.append((values, same := []))
            same.append((loaded, of_rung.runs))
    candidates: dict[str, list[Candidate]] = {}
    for rung in (rung.name for rung in plan.ladder.rungs):
        of_values = [_candidate(rung, values, members) for values, members in found.get(rung, ())]
        if finished := [candidate for candidate in of_values if candidate.finished]:
            candidates[rung] = sorted(finished, key=lambda one: [value_rank(one.values[path]) for path in by])
    return candidates


def _candidate(rung: str, values: dict[str, Any], members: Sequence[tuple[LoadedInstance, Sequence[Run]]]) -> Candidate:
    """A rung with these values, by its runs in each instance that has them."""
    runs = {run.id: run for _, of_instance in members for run in of_instance}
    notes: list[Note] = []
    newest = rung_runs.of_newest_settings(rung, sorted(runs.values(), key=lambda run: (run.seed, run.id)), notes)
    return Candidate(
        values=values, instances=tuple(loaded for loaded, _ in members), runs=tuple(newest), notes=tuple(notes)
    )


def _score(run: Run, key: str) -> float | None:
    """The best validation score of a run; None if it diverged or has none."""
    score = (run.result or {}).get(key)
    return score if run.state == "done" and score is not None and math.isfinite(score) else None


def _best(candidates: Sequence[Candidate], seeds: Sequence[int], metric: Metric) -> Candidate:
    """The candidate with the fewest seeds without a usable score, of those the one with the best mean score; between
    equal ones the first."""
    key = form_of(metric).validation

    def order(candidate: Candidate) -> tuple[int, float]:
        scores = [score for seed in seeds if (score := _score(candidate.finished[seed], key)) is not None]
        mean = statistics.mean(scores)
        return len(seeds) - len(scores), math.inf if mean is None else -metric.oriented(mean)

    return min(candidates, key=order)


class _ChosenRuns:
    """The chosen runs as the runs of one ladder instance, which has no key in the ledger."""

    def __init__(self, plan: planning.Plan, chosen: Mapping[str, Candidate], seeds: Collection[int]) -> None:
        self.plan, self._chosen, self._without = plan, chosen, seeds
        self.loaded = list({id(loaded): loaded for one in chosen.values() for loaded in one.instances}.values())

    @property
    def ladder(self) -> Ladder:
        return self.plan.ladder

    @cached_property
    def identity(self) -> Instance:
        data = next((loaded.data for loaded in self.loaded if loaded.data), {})
        return structs.replace(self.plan.identity, data=data, key="", short_name="")

    @cached_property
    def runs(self) -> list[Run]:
        """Each run once, in the rungs for which its values were chosen."""
        runs: dict[str, Run] = {}
        for rung, candidate in self._chosen.items():
            keys = {loaded.instance.key for loaded in candidate.instances}
            for run in candidate.runs:
                if run.seed in self._without:
                    continue
                members = [] if run.id not in runs else list(runs[run.id].memberships)
                own = next(one for one in run.memberships if one.ladder_key in keys)
                member = structs.replace(own, ladder_key="", rung=rung, stage="train")
                runs[run.id] = structs.replace(run, memberships=[*members, member])
        return list(runs.values())

    @cached_property
    def notes(self) -> list[Note]:
        notes = [note for loaded in self.loaded for note in loaded.counted()[1]]
        return list(dict.fromkeys([*notes, *(note for one in self._chosen.values() for note in one.notes)]))

    @cached_property
    def same_as_base(self) -> frozenset[str]:
        """The rungs that share runs with their base."""
        final: dict[str, set[str]] = {}
        for run in self.runs:
            for member in run.memberships:
                final.setdefault(member.rung, set()).add(run.id)
        bases = self.ladder.bases.items()
        return frozenset(
            rung for rung, base in bases if base is not None and final.get(rung, set()) & final.get(base, set())
        )

    @property
    def metric(self) -> Metric:
        return self.plan.task.metric

    @property
    def metrics(self) -> Sequence[Metric]:
        return self.plan.task.metrics

    def items(self, runs: Sequence[str], result: str, /) -> Mapping[str, ItemResults]:
        return self.loaded[0].items(runs, result) if self.loaded else {}

    def items_removed(self, runs: Sequence[str], result: str, /) -> Mapping[str, int]:
        return self.loaded[0].items_removed(runs, result) if self.loaded else {}

    def sentences(self, chose: frozenset[int]) -> list[str]:
        """What readers must know of the instances: changed code, side effects, seeds that were added later."""
        sentences: list[str] = []
        together: dict[tuple[int, ...], list[str]] = {}
        """Instances, as their places in `loaded` -> the rungs whose runs are theirs."""
        for rung, candidate in self._chosen.items():
            keys = {loaded.instance.key for loaded in candidate.instances}
            places = tuple(k for k, loaded in enumerate(self.loaded) if loaded.instance.key in keys)
            together.setdefault(places, []).append(rung)
        for k, loaded in enumerate(self.loaded):
            sentences += loaded.sentences_on(
                [rung for places, rungs in together.items() if k in places for rung in rungs]
            )
        for places, rungs in together.items():
            sentences += loaded_instance.added_seeds([self.loaded[k] for k in places], rungs, chose)
        return list(dict.fromkeys(sentences))

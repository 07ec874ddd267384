"""The runs of each rung that a report counts, of all that the ledger has."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from lrurun.config.fingerprint import common_settings
from lrurun.config.instance import Instance
from lrurun.config.ladder import Ladder
from lrurun.data.metric import ESCAPE, LONGEST, Metric
from lrurun.errors import LrurunError, plural
from lrurun.judging.scores import form_of

if TYPE_CHECKING:
    from lrurun.items import ItemResults
    from lrurun.ledger.values import Run

SPEED = "machine/steps_per_second"
"""The metric of training speed."""


class Note(Struct, frozen=True):
    """A sentence at the end of a report, with the ids of the runs that it is about."""

    text: str
    runs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.text}; runs: {', '.join(self.runs)}" if self.runs else self.text


class InstanceRuns(Protocol):
    """What verdicts and tables need of a ladder instance. `LoadedInstance` has it from a ledger."""

    @property
    def ladder(self) -> Ladder: ...

    @property
    def identity(self) -> Instance:
        """Its identity. Runs of instances with other keys are ignored, and so are runs of tuning."""

    @property
    def runs(self) -> Sequence[Run]: ...

    @property
    def notes(self) -> Sequence[Note]:
        """Notes for the end of the footnotes."""

    @property
    def same_as_base(self) -> Collection[str]:
        """The rungs whose settings equal the settings of their base."""

    @property
    def metric(self) -> Metric:
        """The metric that selects the model."""

    @property
    def metrics(self) -> Sequence[Metric]:
        """All metrics of the task, those that claims name among them."""

    def items(self, runs: Sequence[str], result: str, /) -> Mapping[str, ItemResults]:
        """Finds the per-item results of runs, by the runs' ids, for the score of this name."""

    def items_removed(self, runs: Sequence[str], result: str, /) -> Mapping[str, int]:
        """Finds the runs of which these results were removed, each with the number of test items."""


class Result(NamedTuple):
    """The result of a run for its rung."""

    seed: int
    score: float | None
    """The score; None if the run diverged or has no usable one."""
    unscored: bool = False
    """Whether it finished without a usable score."""
    items: ItemResults | None = None
    """Its per-item results; None where they are not known."""


class RungRuns(Struct, frozen=True, kw_only=True, dict=True):
    """The runs of a rung with the scores of one metric."""

    rung: str
    """The rung that the runs belong to: its base, if that has the same settings."""
    runs: tuple[Run, ...]
    """All runs that are not of tuning, in order of their seeds."""
    counted: tuple[Run, ...]
    """The finished runs with a finite score."""
    scores: tuple[float, ...]
    """The scores of the counted runs."""
    unscored: tuple[Run, ...] = ()
    """The finished runs without a usable score: they rank as diverged ones do."""
    infinite: tuple[Run, ...] = ()
    """The finished runs whose score is an infinity of the better sign, which is an error of the metric."""
    unmeasured: tuple[Run, ...] = ()
    """The finished runs that do not have this result, though their model was chosen: they did not measure it."""
    parameters: int | None
    metric: str = ""
    """The name of the result that the scores are."""
    items: Mapping[str, ItemResults] = {}
    """Run -> its per-item results, where they are known."""
    look: int | None = None
    """The number of first seeds that count at a look of a sequential design; None: all count."""

    @cached_property
    def results(self) -> tuple[Result, ...]:
        """The results of the runs that are finished with a score or without a usable one, and of the diverged ones."""
        scores: dict[str, float | None] = dict(zip((run.id for run in self.counted), self.scores, strict=True))
        unscored = {run.id for run in self.unscored}
        scores |= dict.fromkeys(unscored)
        if scores or not self.unmeasured:  # else no run of the rung has measured it
            scores |= {run.id: self._diverged(run) for run in self.runs if run.state == "diverged"}
        return tuple(
            Result(run.seed, scores[run.id], run.id in unscored, self.items.get(run.id))
            for run in self.runs
            if run.id in scores and (self.look is None or run.seed < self.look)
        )

    def _diverged(self, run: Run) -> float | None:
        """The score that a diverged run counts with: None for the score of chance; the step of its escape is known."""
        return (score_of(run, ESCAPE) or float(run.steps)) if self.metric == ESCAPE else None

    @property
    def problem(self) -> str:
        """Why nothing is judged with these runs; empty if they can be judged."""
        if self.infinite:
            return f"{self.rung} has {plural(len(self.infinite), 'run')} with an infinite score, an error of the metric"
        if self.unmeasured and (self.counted or self.unscored) and self.metric != SPEED:
            return f"{self.rung} has {plural(len(self.unmeasured), 'run')} without {self.metric}, beside others with it"
        return ""


def select(instance: InstanceRuns, metric: Metric, notes: list[Note]) -> dict[str, RungRuns]:
    """Rung -> its runs with the test score of `metric`, in the ladder's order. What is not counted is added to `notes`.

    Raises:
        LrurunError: runs that enter verdicts were trained on unequal data.
    """
    return _select(instance, form_of(metric).result, lambda run: _use_of(run, metric, instance.metric), notes)


def with_speed(instance: InstanceRuns, notes: list[Note]) -> dict[str, RungRuns]:
    """Rung -> its runs with their speed, as `select`."""

    def use(run: Run) -> Use:
        speed = score_of(run, SPEED)
        return "counted" if speed is not None and math.isfinite(speed) else "unmeasured"

    return _select(instance, SPEED, use, notes)


Use = Literal["counted", "unscored", "infinite", "unmeasured"]
"""The list of `RungRuns` to which a run that is done belongs."""


def _use_of(run: Run, metric: Metric, selecting: Metric) -> Use:
    """What becomes of a run that is done, by its score of a metric and by the validation score that chose its model."""
    score, chosen = score_of(run, form_of(metric).result), score_of(run, form_of(selecting).validation)
    scores = [(metric, score), (selecting, chosen)]
    if any(value is not None and of.oriented(value) == math.inf for of, value in scores):
        return "infinite"
    if score is None and metric.name != selecting.name:
        return "unmeasured"
    return "counted" if score is not None and math.isfinite(score) else "unscored"


def _select(
    instance: InstanceRuns, result: str, use_of: Callable[[Run], Use], notes: list[Note]
) -> dict[str, RungRuns]:
    runs: dict[str, RungRuns] = {}
    notes.extend(_excluded(instance))
    for group in _groups(instance.ladder, instance.same_as_base):
        members = of_newest_settings(group[0], _members(group, instance), notes)
        uses: dict[Use, list[Run]] = {}
        for run in members:
            if run.state == "done":
                uses.setdefault(use_of(run), []).append(run)
        counted = tuple(uses.get("counted", ()))
        rung_runs = RungRuns(
            rung=group[0],
            runs=tuple(members),
            counted=counted,
            scores=tuple(score for run in counted if (score := score_of(run, result)) is not None),
            unscored=tuple(uses.get("unscored", ())),
            infinite=tuple(uses.get("infinite", ())),
            unmeasured=tuple(uses.get("unmeasured", ())),
            parameters=_parameters(group[0], members, notes),
            metric=result,
        )
        notes.extend(_not_counted(rung_runs))
        runs |= dict.fromkeys(group, rung_runs)
    _refuse_unequal_data([(*rung_runs.counted, *rung_runs.unscored) for rung_runs in runs.values()])
    return {rung.name: runs[rung.name] for rung in instance.ladder.rungs}


def numerics(runs: Sequence[Run]) -> tuple[int, ...]:
    """The numerics versions of runs, each once."""
    return tuple(sorted({run.numerics for run in runs if run.numerics is not None}))


def _groups(ladder: Ladder, same_as_base: Collection[str]) -> list[list[str]]:
    """The names of the rungs. Those that share their runs are in one group, the rung that has them first."""
    groups: dict[str, list[str]] = {}
    for name, base in ladder.bases.items():
        group = groups[base] if base is not None and name in same_as_base else []
        group.append(name)
        groups[name] = group
    return [group for name, group in groups.items() if group[0] == name]


def first_of_same(ladder: Ladder, same_as_base: Collection[str]) -> dict[str, str]:
    """Rung -> the rung that its runs belong to."""
    return {name: group[0] for group in _groups(ladder, same_as_base) for name in group}


def _members(group: Collection[str], instance: InstanceRuns) -> list[Run]:
    """The runs of these rungs without tuning, each once, in order of their seeds."""
    key = instance.identity.key
    members = {
        run.id: run
        for run in instance.runs
        if not run.superseded
        and run.excluded is None
        and any(
            membership.ladder_key == key and membership.stage == "train" and membership.rung in group
            for membership in run.memberships
        )
    }
    return sorted(members.values(), key=_seed)


def _seed(run: Run) -> tuple[int, str]:
    return run.seed, run.id


def note_on(runs: Sequence[str], change: str, rung: str = "") -> Note:
    """A note on runs, by their ids, of a rung or of all, for example "a: 2 runs excluded: disk broken"."""
    return Note(f"{rung and f'{rung}: '}{plural(len(runs), 'run')} {change}", tuple(runs))


def _excluded(instance: InstanceRuns) -> list[Note]:
    """A note on the excluded runs for each reason."""
    names = {rung.name for rung in instance.ladder.rungs}
    whys: dict[str, list[str]] = {}
    for run in sorted(instance.runs, key=_seed):
        is_member = any(
            membership.ladder_key == instance.identity.key and membership.stage == "train" and membership.rung in names
            for membership in run.memberships
        )
        if run.excluded is not None and not run.superseded and is_member:
            whys.setdefault(run.excluded, []).append(run.id)
    return [note_on(ids, f"excluded: {why}") for why, ids in whys.items()]


def of_newest_settings(rung: str, runs: list[Run], notes: list[Note]) -> list[Run]:
    """The runs of the newest settings: an edited recipe leaves runs of the old ones in the same instance."""
    groups: list[tuple[dict[str, Any], list[Run]]] = []
    by_config: dict[int, list[Run]] = {}
    for run in runs:
        by_config.setdefault(run.config_id, []).append(run)
    for members in by_config.values():
        settings = common_settings(members[0].config)
        for other_settings, group in groups:
            if other_settings == settings:
                group.extend(members)
                break
        else:
            groups.append((settings, members))
    if len(groups) < 2:
        return runs
    groups.sort(key=lambda group: max(run.created_at for run in group[1]))
    left_out = sorted(run.id for _, group in groups[:-1] for run in group)
    notes.append(note_on(left_out, "left out, because of older settings", rung))
    return sorted(groups[-1][1], key=_seed)


def _not_counted(runs: RungRuns) -> Iterator[Note]:
    """Notes on the runs of a rung that are done and have no score that counts."""
    if runs.unscored:
        ranked = f"ranked below all others, for lack of a finite {runs.metric}"
        yield note_on([run.id for run in runs.unscored], ranked, runs.rung)
    if runs.problem:
        wrong = runs.infinite or runs.unmeasured
        until = f"until {'it is' if len(wrong) == 1 else 'they are'} excluded"
        ids = " ".join(run.id for run in wrong)
        yield Note(f"{runs.problem}: nothing is judged with {runs.rung} {until}: lrurun mark {ids} --exclude WHY")
    elif runs.unmeasured:
        counted = f"not counted, for lack of a finite {runs.metric}"
        yield note_on([run.id for run in runs.unmeasured], counted, runs.rung)


def _refuse_unequal_data(rows: Collection[Sequence[Run]]) -> None:
    by_hash: dict[str, set[str]] = {}
    for run in (run for row in rows for run in row if run.kind != "imported"):  # of which the import has a caution
        by_hash.setdefault(run.data_sha256 or "not recorded", set()).add(run.id)
    if len(by_hash) > 1:
        sides = "; ".join(f"{digest[:19]}: {', '.join(sorted(ids))}" for digest, ids in sorted(by_hash.items()))
        raise LrurunError(
            f"these runs were trained on unequal data and are never averaged or compared: {sides}",
            hint="`lrurun data check` says which of them is the data on disk; train the others again with --fresh",
        )


def _parameters(rung: str, runs: Sequence[Run], notes: list[Note]) -> int | None:
    counts = sorted({run.parameters for run in runs if run.parameters is not None})
    if len(counts) > 1:
        disagree = f"its runs disagree on the number of parameters ({', '.join(map(str, counts))})"
        notes.append(Note(f"{rung}: {disagree}"))
        return None
    return counts[0] if counts else None


def score_of(run: Run, metric: str) -> float | None:
    """The result `metric` of a run, as claims and tables count it; None if it has none.

    For "test@longest/...", it is the result of the further test whose name is the largest number. A run that never left
    its plateau counts with its number of steps, which is the least that it would need.
    """
    result = run.result or {}
    if metric == ESCAPE:
        step = result.get(ESCAPE)
        return float(run.steps) if step == math.inf else step
    return result.get(name_in(result, metric))


def name_in(result: Mapping[str, float], metric: str) -> str:
    """The name that a metric has among the results of a run, of which "test@longest/..." is the longest test."""
    if not metric.startswith(f"test@{LONGEST}/"):
        return metric
    name = metric.partition("/")[2]
    named = {test: key for key in result if (test := between(key, "test@", f"/{name}")).isdecimal()}
    return named[max(named, key=int)] if named else metric


def between(text: str, first: str, last: str) -> str:
    """The text between the two that begin and end it; empty for other texts."""
    fits = text.startswith(first) and text.endswith(last)
    return text[len(first) : len(text) - len(last)] if fits else ""

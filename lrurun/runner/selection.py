"""The runs that one command is for: queued, tuned, retried, and finished."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from lrurun.config import planning
from lrurun.config.fingerprint import common_settings, program_key
from lrurun.config.planning import final_runs
from lrurun.config.runs import PlannedRun
from lrurun.config.schema import ProgramConfig, RunConfig
from lrurun.config.settings import flatten
from lrurun.config.tuning import added_points, budget, choose_point, tuning_of, tuning_runs
from lrurun.console import setting
from lrurun.errors import LedgerError, LrurunError, plural
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.queue import refuse_later
from lrurun.ledger.values import FINISHED, Attempt, LadderInstance, Owner, Run
from lrurun.paths import Places
from lrurun.runner.program_files import ProgramSnapshot
from lrurun.runner.work import Needs, Work, work_on
from lrurun.version import NUMERICS

MAX_RETRIES = 2
"""How often a run that breaks is tried again by one command, and a worker that exits before it has held one."""


def broke(attempt: Attempt) -> bool:
    """Whether an attempt has ended by an exception, or because its process exited: its run is tried MAX_RETRIES times
    again. A run that was interrupted by a signal is tried as often as it takes; one that was rejected, because of what
    its program reports, not at all."""
    return attempt.outcome in ("failed", "exited")


Results = Sequence[dict[str, float] | None]
"""The results of tuning runs, in their order; None for a run that has no result."""


class RungTuning:
    """The tuning of a rung of a plan: runs that follow one another, and final runs that follow from their results."""

    def __init__(self, plan: planning.Plan, rung: planning.ResolvedRung, seeds: Sequence[int]) -> None:
        self.plan, self.rung, self.seeds = plan, rung, seeds
        self.runs = tuning_runs(plan, [rung])
        """The tuning runs that are known; of a grid, all but those that follow from the results."""
        self.budget = budget(plan, rung)
        """How many there will be at least."""

    def next(self, results: Results) -> list[PlannedRun]:
        """The runs that follow when the known ones have these results; none after the last one."""
        return tuning_of(self.plan, self.rung, results)[len(results) :]

    def choose(self, results: Results) -> tuple[dict[str, Any] | None, list[PlannedRun]]:
        """The values that the results choose, None if there is no result; the final runs with them."""
        point = choose_point(self.plan, self.rung, results)
        return point, final_runs(self.plan, self.rung, self.seeds, point)

    def added(self, results: Results) -> list[dict[str, Any]] | None:
        """The points beyond the grid that the results have added; None where none may be added."""
        return added_points(self.plan, self.rung, results) if self.plan.extend else None


class RunSelection(Protocol):
    """The runs that a command is for: of a ladder, or of a study."""

    def final(self) -> list[PlannedRun]:
        """The final runs of the rungs that are not tuned."""

    def tuning(self) -> dict[str, RungTuning]:
        """Rung -> its tuning, for every rung that is tuned."""


class Selection(Struct, frozen=True, kw_only=True):
    """Rungs and seeds of a plan of a ladder."""

    plan: planning.Plan
    rungs: Sequence[planning.ResolvedRung]
    seeds: Sequence[int]

    def work(self, instance: LadderInstance, places: Places, **fields: Any) -> Work:
        """The work on the selected runs; `fields` are further fields of it."""
        rungs, folder = [rung.name for rung in self.rungs], self.plan.recipe.folder
        fields = {"programs": programs_of({instance.key: self.plan}), **fields}
        if self.plan.kind == "program":
            fields |= {"stop_seconds": max(rung.execution.stop_seconds for rung in self.rungs)}
            return work_on(instance, places, folder, rungs, self.seeds, **fields)
        return work_on(instance, places, self.plan.data_name, rungs, self.seeds, **fields)

    def keep_files(self, runs: Path, *others: Path) -> None:
        """Copies the files of a program to the runs folder, so that its runs have them as they are now; where they have
        changed already, from one of the folders `others`.

        Raises:
            LrurunError: they are in none of the folders, or cannot be written.
        """
        if isinstance(config := self.rungs[0].config, ProgramConfig):
            ProgramSnapshot(runs.absolute(), self.plan.recipe.folder, config.program.files).keep(*others)

    def final(self) -> list[PlannedRun]:
        rungs = [rung for rung in self.rungs if not self._is_tuned(rung)]
        return [planned for rung in rungs for planned in final_runs(self.plan, rung, self.seeds)]

    def tuning(self) -> dict[str, RungTuning]:
        return {rung.name: RungTuning(self.plan, rung, self.seeds) for rung in self.rungs if self._is_tuned(rung)}

    def _is_tuned(self, rung: planning.ResolvedRung) -> bool:
        return self.plan.tune and bool(rung.grid)


def programs_of(plans: Mapping[str, planning.Plan]) -> dict[str, dict[str, str]]:
    """Key of an instance -> rung -> name of its program, for the instances of some plans.

    The name is the same for rungs with the same compiled functions, and for a rung of a user's program.
    """
    names: dict[str, str] = {}

    def name(rung: planning.ResolvedRung) -> str:
        key = program_key(rung.config, rung.execution) if isinstance(rung.config, RunConfig) else rung.name
        return names.setdefault(key, f"program {len(names)}")

    return {key: {rung.name: name(rung) for rung in plan.rungs} for key, plan in plans.items()}


def _needs(run: Run) -> Needs:
    return Needs(run.execution.threads, run.execution.devices)


class SelectedRuns:
    """The runs of a selection, in the ledger; of a sweep, those of the selections of all its instances.

    On a node, runs that had failed before are left to the command that started this one.
    """

    def __init__(
        self,
        ledger: Ledger,
        work: Work,
        selection: RunSelection,
        say: Callable[[str], None],
        others: Sequence[RunSelection] = (),
    ) -> None:
        """
        Args:
            selection: of the instance `work.ladder`.
            others: one for each of `work.others`.
        """
        self.ledger, self.work, self.say = ledger, work, say
        self._selections = dict(zip(work.ladders, [selection, *others], strict=True))
        self.needs: dict[str, Needs] = {}
        """Run id -> what its worker must have."""
        self.hang_after_seconds = math.inf
        """The least `hang_after_seconds` of the runs: how long a worker may write nothing."""
        self._known: dict[str, Run] = {}
        """Run id -> the run when it was last read."""
        self._by_state: dict[str, dict[str, Run]] = {}
        """State -> run id -> the run, for the same runs."""
        self._breaks: dict[str, int] = {}
        """Id of a stopped run -> how many of its attempts in this command broke."""
        self._ids: dict[str, str] = {}
        """Fingerprint -> run id."""
        self._earlier: dict[str, int] = {}
        """Run id -> how many of its attempts ended before this command: by number, because clocks may be set."""
        self._tuning = {
            (ladder, rung): tuning
            for ladder, chosen in self._selections.items()
            for rung, tuning in chosen.tuning().items()
        }
        """(Ladder key, rung) -> its tuning, while it is not over."""
        self._left: set[str] = set()
        """Ids of the runs that are left alone, because they had failed before."""
        self._superseded: set[str] = set()
        """Fingerprints that were started again because of `fresh`."""
        self.enqueued = 0
        """How often runs were queued: each time, the ladder may have got memberships."""

    def enqueue(self) -> None:
        """Queues the first runs: of tuning where there is any, else the final ones."""
        for ladder, selection in self._selections.items():
            tuning = [planned for (key, _), rung in self._tuning.items() if key == ladder for planned in rung.runs]
            self._enqueue(ladder, tuning + selection.final())

    def load(self) -> list[Run]:
        """Reads all runs, without their settings.

        Another command may have changed the execution of queued ones, and so what they need.
        """
        self.refresh(self.needs)
        if queued := [run.id for run in self.in_state("queued")]:
            self.needs |= {run.id: _needs(run) for run in self.ledger.runs(ids=queued)}
        return list(self._known.values())

    def refresh(self, changed: Iterable[str]) -> None:
        """Reads again those runs of the command that are among the ids `changed`."""
        ids = [run_id for run_id in changed if run_id in self.needs]
        now = {run.id: run for run in self.ledger.runs(ids=ids, brief=True)} if ids else {}
        for run_id in ids:
            self._breaks.pop(run_id, None)
            if before := self._known.pop(run_id, None):
                del self._by_state[before.state][run_id]
            if run := now.get(run_id):  # else another command has started it over
                self._known[run_id] = self._by_state.setdefault(run.state, {})[run_id] = run

    def queued(self) -> Counter[Needs]:
        """Needs of a run -> how many runs that have them are queued, as far as was read."""
        return Counter(self.needs[run.id] for run in self.in_state("queued"))

    def known(self, run_id: str) -> Run | None:
        """The run when it was last read."""
        return self._known.get(run_id)

    def put_back(self) -> None:
        """Queues the runs that were interrupted, for another command."""
        with contextlib.suppress(LedgerError):  # what ended the training is the error to show
            self.load()
            self.ledger.requeue([run.id for run in self.in_state("interrupted")])

    def in_state(self, state: str) -> list[Run]:
        """The runs that were in a state when they were last read."""
        return list(self._by_state.get(state, {}).values())

    def is_over(self, run: Run) -> bool:
        """Whether this command does nothing more about a run."""
        if run.state not in ("failed", "interrupted"):
            return run.state in FINISHED
        if run.id in self._left:
            return True
        if run.id not in self._breaks:
            attempts = self.attempts(run)
            is_rejected = any(attempt.outcome == "rejected" for attempt in attempts)
            self._breaks[run.id] = MAX_RETRIES + 1 if is_rejected else sum(map(broke, attempts))
        return self._breaks[run.id] > MAX_RETRIES

    def all_over(self) -> bool:
        """Whether this command does nothing more about any run, as far as was read."""
        if self._by_state.get("queued") or self._by_state.get("running"):
            return False
        return all(map(self.is_over, self._stopped()))

    def remaining(self) -> tuple[int, int]:
        """How many runs are unfinished, and how many there are, with those that follow the tuning for certain."""
        runs = list(self._known.values())
        with contextlib.suppress(LedgerError):  # else as they were when they were last read
            runs = self.load()
        to_come = sum(len(self.work.seeds) + max(rung.budget - len(rung.runs), 0) for rung in self._tuning.values())
        return sum(run.state not in FINISHED for run in runs) + to_come, len(runs) + to_come

    @property
    def ladder_keys(self) -> set[str]:
        """The ladder instances of the runs, which others share."""
        return {membership.ladder_key for run in self._known.values() for membership in run.memberships}

    @property
    def is_tuning(self) -> bool:
        """Whether final runs are still to be queued, when the tuning of their rungs is over."""
        return bool(self._tuning)

    def attempts(self, run: Run) -> list[Attempt]:
        """The attempts at a run that had not ended before this command."""
        return self.ledger.attempts(run.id)[self._earlier.get(run.id, 0) :]

    def attempts_of(self, owner: Owner) -> list[Attempt]:
        """The attempts of a process at the runs that had not ended before this command."""
        attempts = self.ledger.attempts_of(owner)
        return [attempt for attempt in attempts if attempt.n > self._earlier.get(attempt.run, attempt.n)]

    def advance(self, *, first: bool = False) -> None:
        """Queues resumable runs again, and the final runs of rungs whose tuning is over.

        Args:
            first: whether runs that broke too often are queued too: a new command tries them again.
        """
        stopped = [run.id for run in self._stopped() if first or not self.is_over(run)]
        if stopped:
            self.ledger.requeue(stopped)
            self.refresh(stopped)
        for ladder, rung in list(self._tuning):
            self._finish_tuning(ladder, rung)

    def _stopped(self) -> list[Run]:
        return self.in_state("interrupted") + self.in_state("failed")

    def _enqueue(self, ladder: str, planned: list[PlannedRun]) -> None:
        self.enqueued += 1
        # a search may try a point again
        unique: dict[tuple[str, str, str], PlannedRun] = {}
        repeated, known = list[PlannedRun](), list[PlannedRun]()
        for run in planned:
            unique.setdefault((run.rung, run.stage, run.fingerprint), run)
        for run in unique.values():
            (repeated if self.work.fresh and run.fingerprint not in self._superseded else known).append(run)
        self._superseded |= {run.fingerprint for run in repeated}
        states: dict[str, str] = {}
        for group, fresh in ((repeated, True), (known, False)):
            for queued in self.ledger.enqueue(ladder, group, fresh=fresh) if group else []:
                self.needs[queued.id] = _needs(queued)
                self.hang_after_seconds = min(self.hang_after_seconds, queued.execution.hang_after_seconds)
                self._ids[queued.fingerprint] = queued.id
                states[queued.id] = queued.state
        new = self.needs.keys() - self._earlier.keys()
        if self.work.on_node:
            self._left |= {run_id for run_id in new if states[run_id] == "failed"}
        newest = self.ledger.newest_attempts(new)
        for run_id in new:
            last = newest.get(run_id)
            of_program = self.work.kind == "program"  # whose numbers do not depend on lrurun
            if last is not None and states[run_id] not in (*FINISHED, "running") and not of_program:
                refuse_later(last, NUMERICS)
            self._earlier[run_id] = 0 if last is None else last.n - (last.ended_at is None)
        self.refresh(states)

    def _unlink_outdated(self, ladder: str, rung: str, tuning: Collection[str], final: PlannedRun) -> None:
        """Takes the runs out of a rung that follow from other results of its tuning.

        A tuning run that had failed, or was started over, may change what a search tries and which point is chosen.
        """
        settings = common_settings(final.config)
        outdated: dict[str, list[str]] = {}
        for run in self.ledger.runs(ladder):
            for membership in run.memberships:
                if (membership.ladder_key, membership.rung) == (ladder, rung) and (
                    run.id not in tuning if membership.stage == "tune" else common_settings(run.config) != settings
                ):
                    outdated.setdefault(membership.stage, []).append(run.id)
        for stage, ids in outdated.items():
            self.ledger.unlink(ladder, ids, rung, stage)
            count = plural(len(ids), "tuning run" if stage == "tune" else "run")
            name = self._name(ladder, rung)
            self.say(f"{name}: no longer part of this ladder: {count} of another choice of tuning; still in the ledger")

    def _name(self, ladder: str, rung: str) -> str:
        """A rung in messages: of a sweep, with its instance."""
        return f"{self.ledger.ladder(ladder).short_name}: {rung}" if self.work.others else rung

    def _finish_tuning(self, ladder: str, rung: str) -> None:
        while more := self._finish_known(ladder, rung):
            tuning = self._tuning[ladder, rung]
            tuning.runs += more
            self._enqueue(ladder, more)
            if tuning.plan.extend and any(self._known[self._ids[run.fingerprint]].state == "queued" for run in more):
                values = dict(flatten(more[0].config))
                text = ", ".join(f"{path} = {setting(values[path])}" for path in tuning.rung.grid)
                self.say(f"{self._name(ladder, rung)}: the best value is at the edge of those tried; next: {text}")

    def _finish_known(self, ladder: str, rung: str) -> list[PlannedRun]:
        """Queues the final runs of a rung if its tuning is over; else the tuning runs that follow from the results."""
        selected = self._tuning[ladder, rung]
        ids = [self._ids[run.fingerprint] for run in selected.runs]
        if not self._known.keys() >= set(ids):
            raise LrurunError(
                f"{self._name(ladder, rung)}: another command has started its tuning runs over",
                "when that is done, run this command again",
            )
        tuning = [self._known[run_id] for run_id in ids]
        if not all(map(self.is_over, tuning)):
            return []
        results = [run.result if run.state == "done" else None for run in tuning]
        if more := selected.next(results):
            return more
        del self._tuning[ladder, rung]
        seeds = len({run.seed for run in selected.runs})
        point, final = selected.choose(results)
        if point is None:
            text = f"{rung}: no tuning run finished; the final runs keep the recipe's values"
        else:
            values = ", ".join(f"{path} = {setting(value)}" for path, value in point.items())
            text = f"{rung}: chosen on validation with {plural(seeds, 'seed')}: {values}"
        choice: dict[str, Any] = {"rung": rung, "seeds": seeds, "point": point}
        if (added := selected.added(results)) is not None:
            choice["added"] = added
            text += f"; {plural(len(added), 'value')} added to the grid"
        known = self.ledger.events(ladder_key=ladder, of_runs=False)
        if choice not in [event.payload for event in known if event.kind == "tuned"]:
            self.ledger.event("tuned", text, choice, ladder=ladder)
            self.say(f"{self.ledger.ladder(ladder).short_name}: {text}" if self.work.others else text)
        self._unlink_outdated(ladder, rung, {run.id for run in tuning}, final[0])
        self._enqueue(ladder, final)
        return []

"""The training loop, as a generator of events.

Nothing here knows of ledgers, terminals or the time of day: the caller records events and decides when to save and when
to stop. A run is a pure function of its configuration and seed.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal, NamedTuple

import jax
import numpy as np

from lrurun.config.schema import Execution, RunConfig, program_key
from lrurun.data.metric import ESCAPE
from lrurun.data.task import Data, Split
from lrurun.training import feed, optimizer, probes
from lrurun.training.evaluation import Evaluation, compile_for, evaluate
from lrurun.training.events import Began, Ended, Event, Measured, Reached, Snapshot, Spectrum
from lrurun.training.programs import Best, Programs, Readings, Tree, programs_for

SLOW_SECONDS = 0.5
"""A dispatch that takes longer is slow: the host then waits for the next one, so that a signal waits for one alone."""


def train(
    config: RunConfig, execution: Execution, data: Data, *, resume: Snapshot | None = None, test: bool = True
) -> Iterator[Event]:
    """Trains one run, from `resume` or from step 0, and evaluates it on test once, at its best validation step.

    Args:
        test: False for tuning runs, which never see the test split.
    """
    return train_together([config], execution, data, resume=None if resume is None else [resume], test=test)


def train_together(
    configs: Sequence[RunConfig],
    execution: Execution,
    data: Data,
    *,
    resume: Sequence[Snapshot] | None = None,
    test: bool = True,
) -> Iterator[Event]:
    """Trains runs that differ only in seed and learning rate, in one program, as `train` does one.

    Each has its own batches, events and end: if one diverges, it ends there and the others continue.

    Args:
        resume: one snapshot per run, all of the same step.
    """
    if len({program_key(config, execution) for config in configs}) > 1 or len({r.step for r in resume or ()}) > 1:
        raise ValueError("runs trained together must differ only in seed and learning rate, and be at one step")
    schedule = configs[0].train
    compiled = programs_for(configs[0], execution, data, len(configs))
    batches = [feed.Batches(config.seed, schedule.batch, len(data.train.labels)) for config in configs]
    start = resume[0].step if resume else 0
    with contextlib.closing(feed.dispatch_inputs(execution, data, batches, schedule, start, compiled.rows)) as inputs:
        first = next(inputs)  # has no steps: it compiles
        began = time.perf_counter()
        with ThreadPoolExecutor(max_workers=1) as thread:
            ahead = None if compiled.ready else thread.submit(compile_for, compiled, data.validation, schedule.batch)
            runs = _PackedRuns(compiled, configs, data, resume)
            dispatched = runs.dispatch(first)
            jax.block_until_ready(runs.state)
            if ahead is not None:
                ahead.result()
                compiled.ready = True
        yield from runs.begin(time.perf_counter() - began)
        yield from runs.report(dispatched)
        unread: _Dispatched | None = None
        slow = True
        while runs.step < schedule.steps and runs.active:
            clock = time.perf_counter()
            dispatch_input = next(inputs)
            dispatched = runs.dispatch(dispatch_input)
            if unread is not None:
                yield from runs.report(unread)  # while this dispatch runs
            unread = dispatched
            evaluates = runs.step % schedule.eval_every == 0 or runs.step == schedule.steps
            if evaluates or slow:
                yield from runs.report(unread)
                unread = None
            if evaluates:
                yield from runs.validate(dispatch_input if execution.probes else None)
            del dispatch_input  # the next input is made without this one in memory
            slow = time.perf_counter() - clock > SLOW_SECONDS
            if runs.step < schedule.steps:
                yield from runs.boundary()
        speed = runs.speed(runs.step)
    yield from runs.finish(speed, test)


class _Dispatched(NamedTuple):
    """A dispatch that the device may still be running."""

    step: int
    """The step at which it ends."""
    readings: Readings


class _PackedRuns:
    """The runs that one program trains, between two dispatches."""

    def __init__(
        self, compiled: Programs, configs: Sequence[RunConfig], data: Data, resume: Sequence[Snapshot] | None
    ) -> None:
        self.compiled, self.data, self.schedule = compiled, data, configs[0].train
        self.seeds = compiled.stack([np.uint32(config.seed) for config in configs])
        self.rates = [optimizer.rates(config.optim, self.schedule.steps) for config in configs]
        self.active = list(range(len(configs)))
        """Members that are still trained."""
        if resume is None:
            self.step = 0
            self.state = compiled.init(self.seeds)
            self.best = compiled.keep(self.state)
            self.scores, self.best_steps = [-math.inf] * len(configs), [0] * len(configs)
            self.escaped: list[float | None] = [math.inf] * len(configs)
        else:
            self.step = resume[0].step
            resumed = compiled.stack([(r.live, r.best) for r in resume])
            self.state, self.best = jax.device_put(resumed, compiled.placement.everywhere)
            self.scores, self.best_steps = [r.score for r in resume], [r.best_step for r in resume]
            self.escaped = [r.escaped for r in resume]

    def dispatch(self, batches: feed.DispatchInput) -> _Dispatched:
        """Starts the steps of one dispatch."""
        compiled, step, n = self.compiled, batches.step, batches.n
        rate = np.zeros((compiled.pack, compiled.rows), np.float32)
        rate[:, :n] = [of_run[step : step + n] for of_run in self.rates]
        reset = np.bool_(n > 0 and step % self.schedule.log_every == 0)
        places, rate = compiled.stack(batches.places), compiled.stack(rate)
        self.state, readings = compiled.dispatch(
            self.state, self.seeds, places, rate, reset, np.int32(n), batches.split
        )
        self.step = step + n
        return _Dispatched(self.step, readings)

    def begin(self, compile_seconds: float) -> Iterator[Event]:
        """The events before the first step. The clock of `speed` starts after them."""
        parameters = self.compiled.parameters
        for member in self.active:
            yield Began(member=member, step=self.step, parameters=parameters, compile_seconds=compile_seconds)
        if self.step == 0:
            for member in self.active:
                params = self.compiled.member(self.state.params, member)
                yield from self._spectrum(member, self.step, params, "start")
        self.began, self.first = time.perf_counter(), self.step

    def report(self, dispatched: _Dispatched) -> Iterator[Event]:
        """Waits for a dispatch, and yields the ends of runs that diverged in it and the curve rows that end with it."""
        step, readings = dispatched
        bad_steps = np.asarray(readings.bad_step).reshape(-1).tolist()
        for member in [member for member in self.active if bad_steps[member] >= 0]:
            self.active.remove(member)
            speed = self.speed(step)
            yield Measured(member=member, step=bad_steps[member], values={"train/loss": math.nan})
            # of the dispatch that is reported: the next one may be running, and changes nothing of this run
            last = self.snapshot(member, step)
            yield from self._spectrum(member, step, last.live.params, "end")
            result = self._escape(member) | speed
            yield Ended(member=member, state="diverged", step=bad_steps[member], result=result, snapshot=last)
        if step and (step % self.schedule.log_every == 0 or step == self.schedule.steps):
            sums = np.asarray(readings.window, np.float64).reshape(-1, 3)
            for member in self.active:
                loss, correct, count = sums[member].tolist()
                values = {"train/loss": loss / count}
                if self.data.spec.output.loss == "cross-entropy":
                    values["train/accuracy"] = correct / count
                yield Measured(member=member, step=step, values=values)

    def validate(self, probed: feed.DispatchInput | None) -> Iterator[Event]:
        """Scores on the validation split, and keeps the parameters of a new best one.

        Args:
            probed: the input of the last dispatch, if there are probes.
        """
        if not self.active:
            return
        now, speed = time.perf_counter(), self.speed(self.step)
        current = Best(self.state.params, self.state.stats)
        evaluations = self._evaluate(current, self.data.validation)
        inside: dict[int, dict[str, float]] = {member: {} for member in self.active}
        if probed is not None:
            rates = {member: float(self.rates[member][self.step - 1]) for member in self.active}
            inside = probes.measure(self.compiled, self.state, self.seeds, probed, rates)
        self.began += time.perf_counter() - now  # evaluation and probes are no part of the training speed
        is_better = np.zeros(self.compiled.pack, bool)
        for member in self.active:
            score = self.data.metrics[0].oriented(evaluations[member].scores[self.data.metrics[0].name])
            self._note_escape(member, score)
            if score > self.scores[member]:
                self.scores[member], self.best_steps[member] = score, self.step
                is_better[member] = True
        if is_better.all():
            self.best = self.compiled.keep(self.state)
        elif is_better.any():
            self.best = self.compiled.select(self.best, self.state, is_better)
        for member in self.active:
            scores, norms = evaluations[member]
            values = speed | {f"val/{name}": value for name, value in scores.items()} | norms | inside[member]
            yield Measured(member=member, step=self.step, values=values)

    def _note_escape(self, member: int, score: float) -> None:
        """Keeps the step of the first validation score, oriented, that is beyond the plateau of the task."""
        metric = self.data.metrics[0]
        if metric.escape is not None and self.escaped[member] == math.inf and score >= metric.oriented(metric.escape):
            self.escaped[member] = float(self.step)

    def _escape(self, member: int) -> dict[str, float]:
        """The step of the escape for a result, where the task declares a plateau."""
        escaped = self.escaped[member]
        return {} if escaped is None or self.data.metrics[0].escape is None else {ESCAPE: escaped}

    def _evaluate(self, best: Best, split: Split) -> list[Evaluation]:
        return evaluate(self.compiled, best, split, self.schedule.batch, self.data.metrics)

    def boundary(self) -> Iterator[Event]:
        """The events at which runs may be saved or stopped."""
        for member in list(self.active):
            yield Reached(member=member, step=self.step, snapshot=partial(self.snapshot, member, self.step))

    def finish(self, speed: dict[str, float], test: bool) -> Iterator[Event]:
        """The last scores, at the best validation step, and the ends of all runs that did not diverge."""
        if not self.active:
            return
        splits = {"val": self.data.validation}
        if test:
            further = {f"test@{name}": split for name, split in self.data.further_tests.items()}
            splits |= {"test": self.data.test} | further
        evaluations = {name: self._evaluate(self.best, split) for name, split in splits.items()}
        for member in self.active:
            scores = {
                f"{name}/{key}": x for name, of_runs in evaluations.items() for key, x in of_runs[member].scores.items()
            }
            if test:
                tested = {key: value for key, value in scores.items() if key.startswith("test")}
                yield Measured(member=member, step=self.best_steps[member], values=tested)
            result = {"best_step": float(self.best_steps[member])} | self._escape(member) | scores | speed
            last = self.snapshot(member, self.step)
            yield from self._spectrum(member, self.step, last.live.params, "end")
            yield Ended(member=member, state="done", step=self.step, result=result, snapshot=last)

    def snapshot(self, member: int, step: int) -> Snapshot:
        """A copy of one run's state at `step`, on the host."""
        # np.array copies: on a CPU the host would see the device's own memory, which the next dispatch reuses
        state, best = jax.tree.map(np.array, self.compiled.member((self.state, self.best), member))
        return Snapshot(
            step=step,
            score=self.scores[member],
            best_step=self.best_steps[member],
            escaped=self.escaped[member],
            live=state,
            best=best,
        )

    def speed(self, step: int) -> dict[str, float]:
        """Training steps per second from the start of this attempt to `step`, without evaluation."""
        seconds, steps = time.perf_counter() - self.began, step - self.first
        return {"machine/steps_per_second": steps / seconds} if steps and seconds > 0 else {}

    def _spectrum(self, member: int, step: int, params: Tree, moment: Literal["start", "end"]) -> Iterator[Spectrum]:
        layers = probes.spectra(self.compiled, params, step)
        if layers is not None:
            yield Spectrum(member=member, step=step, moment=moment, layers=layers)

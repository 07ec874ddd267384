"""The training loop, as a generator of events.

Nothing here knows of ledgers, terminals or the time of day: the caller records events and decides when to save and when
to stop. A run is a pure function of its configuration and seed.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeVar

import jax
import numpy as np

from lrurun.config.fingerprint import compiled_key
from lrurun.config.schedules import learning_rates
from lrurun.config.schema import Execution, RunConfig
from lrurun.data.task import Data, Split
from lrurun.training import feed, probes
from lrurun.training.compiled import Compiled, Evaluated, Readings, Tree, compiled_for
from lrurun.training.evaluation import Evaluation, compiling, evaluate
from lrurun.training.events import Began, Ended, Event, Measured, Reached, Snapshot, Spectrum

T = TypeVar("T")

SLOW_SECONDS = 0.5
"""A dispatch that takes longer is slow, see `Pipeline`."""


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
    """Trains runs that differ only in seed and learning rate, with the same compiled functions, as `train` does one.

    Each has its own batches, events and end: if one diverges, it ends there and the others continue.

    Args:
        resume: one snapshot per run, all of the same step.
    """
    if len({compiled_key(config, execution) for config in configs}) > 1 or len({r.step for r in resume or ()}) > 1:
        raise ValueError("runs trained together must differ only in seed and learning rate, and be at one step")
    schedule = configs[0].train
    compiled = compiled_for(configs[0], execution, data)
    batches = [feed.Batches(config.seed, schedule.batch, len(data.train.labels)) for config in configs]
    start = resume[0].step if resume else 0
    with contextlib.closing(feed.dispatch_inputs(execution, data, batches, schedule, start, compiled.rows)) as inputs:
        first = next(inputs)  # has no steps: it compiles
        clock = time.perf_counter()
        with compiling(compiled, len(configs), data.validation, schedule.batch):
            training = Training(compiled, configs, data, resume)
            dispatched = training.dispatch(first)
            jax.block_until_ready(training.state)
        yield from training.begin(time.perf_counter() - clock)
        yield from training.report(dispatched)
        del first
        pipeline = Pipeline()
        while training.active and (dispatch_input := next(inputs, None)):
            dispatched = training.dispatch(dispatch_input)
            for finished in pipeline.put(dispatched, wait=training.is_to_validate):
                yield from training.report(finished)
            if training.is_to_validate:
                yield from training.validate(dispatch_input if execution.probes else None)
            del dispatch_input  # the next input is made without this one in memory
            yield from training.boundary()
        speed = training.speed(training.step)
    yield from training.finish(speed, test)


def order_digest(data: Data, split: str) -> str:
    """A digest of the examples of a test split and of their order, "test" or "test@NAME"."""
    return hashlib.sha256(f"{data.sha256}\n{split}".encode()).hexdigest()


def _copied(tree: T) -> T:
    """A copy of a tree of arrays on the host."""
    copies: T = jax.tree.map(np.array, tree)
    return copies


def _is_finite(tree: Tree) -> bool:
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(tree))


class Dispatched(NamedTuple):
    """Steps that the device may still be computing."""

    step: int
    """The step at which they end."""
    readings: Readings


class Pipeline:
    """Dispatches that the host has yet to read: it reads one while the device computes the next.

    To read a dispatch is to wait for it. One that follows a slow one is read at once, before another is started, so
    that a signal waits for one alone.
    """

    def __init__(self) -> None:
        self.unread: list[Dispatched] = []
        self.put_at = -math.inf

    def put(self, dispatched: Dispatched, *, wait: bool) -> list[Dispatched]:
        """Takes the dispatch that was just started; returns the dispatches to read now, with `wait` all."""
        now = time.perf_counter()
        is_slow, self.put_at = now - self.put_at > SLOW_SECONDS, now
        ready, self.unread = self.unread, [dispatched]
        if wait or is_slow:
            ready, self.unread = [*ready, dispatched], []
        return ready


@dataclass
class Member:
    """One of the runs that are trained together."""

    number: int
    """Its index on the leading axis of arrays, and in events."""
    rates: np.ndarray
    """(steps,) float32: the learning rate of every step."""
    score: float = -math.inf
    """The best validation score so far, negated where lower is better."""
    best_step: int = 0
    active: bool = True
    """False once it has diverged."""

    @property
    def is_chosen(self) -> bool:
        """Whether it had a finite validation score, so that there are best parameters."""
        return self.score > -math.inf


class Training:
    """Runs that are trained together: their arrays on the device, and what the host knows of each."""

    def __init__(
        self, compiled: Compiled, configs: Sequence[RunConfig], data: Data, resume: Sequence[Snapshot] | None
    ) -> None:
        self.compiled, self.data, self.schedule = compiled, data, configs[0].train
        self.started_at, self.first_step = 0.0, 0
        """When and where the clock of `speed` started."""
        self.seeds = np.array([config.seed for config in configs], np.uint32)
        rates = [learning_rates(config.optim, self.schedule.steps) for config in configs]
        if resume is None:
            self.step = 0
            self.members = [Member(number, run_rates) for number, run_rates in enumerate(rates)]
            self.state = compiled.init(configs[0].model, self.seeds)
            self.best = _copied(compiled.evaluated_on_host(self.state))
            """The best parameters of each member, on the host, where a copy needs no compiled function."""
        else:
            self.step = resume[0].step
            self.members = [Member(k, rates[k], r.score, r.best_step) for k, r in enumerate(resume)]
            self.best = [r.best for r in resume]
            self.state = compiled.on_device([compiled.vectors(r.live) for r in resume])

    @property
    def active(self) -> list[Member]:
        """Members that have not diverged."""
        return [member for member in self.members if member.active]

    @property
    def is_to_validate(self) -> bool:
        """Whether this step has an evaluation."""
        return self.step % self.schedule.eval_every == 0 or self.step == self.schedule.steps

    def dispatch(self, batches: feed.DispatchInput) -> Dispatched:
        """Starts the steps of one dispatch."""
        step, n = batches.step, batches.n
        rates = np.zeros((len(self.members), self.compiled.rows), np.float32)
        rates[:, :n] = [member.rates[step : step + n] for member in self.members]
        reset = np.bool_(n > 0 and step % self.schedule.log_every == 0)
        self.state, readings = self.compiled.dispatch(
            self.state, self.seeds, batches.indices, rates, reset, np.int32(n), batches.split
        )
        self.step = step + n
        return Dispatched(self.step, readings)

    def begin(self, compile_seconds: float) -> Iterator[Event]:
        """The events before the first step. The clock of `speed` starts after them."""
        for member in self.members:
            yield Began(
                member=member.number,
                step=self.step,
                parameters=self.compiled.parameters,
                compile_seconds=compile_seconds,
            )
        if self.step == 0:
            for member, evaluated in zip(self.members, self.compiled.evaluated_on_host(self.state), strict=True):
                yield from self._spectrum(member, self.step, evaluated.params, "start")
        self.started_at, self.first_step = time.perf_counter(), self.step

    def report(self, dispatched: Dispatched) -> Iterator[Event]:
        """Waits for a dispatch, and yields the ends of runs that diverged in it and the curve rows that end with it."""
        step, readings = dispatched
        bad_steps = np.asarray(readings.bad_step).tolist()
        for member in self.active:
            bad_step = bad_steps[member.number]
            if bad_step >= 0:
                member.active = False
                speed = self.speed(step)
                yield Measured(member=member.number, step=bad_step, values={"train/loss": math.nan})
                # of the dispatch that is reported: the next one may be running, and changes nothing of this run
                last = self.snapshot(member, step)
                yield from self._spectrum(member, step, self._evaluated(member).params, "end")
                yield Ended(member=member.number, state="diverged", step=bad_step, result=speed, snapshot=last)
        if step and (step % self.schedule.log_every == 0 or step == self.schedule.steps):
            sums = np.asarray(readings.window, np.float64)
            for member in self.active:
                loss, correct, count = sums[member.number].tolist()
                values = {"train/loss": loss / count}
                if self.data.spec.output.loss == "cross-entropy":
                    values["train/accuracy"] = correct / count
                yield Measured(member=member.number, step=step, values=values)

    def validate(self, probed: feed.DispatchInput | None) -> Iterator[Event]:
        """Scores on the validation split, and keeps the parameters of a new best one.

        Args:
            probed: the input of the last dispatch, if there are probes.
        """
        active, metric = self.active, self.data.metrics[0]
        if not active:
            return
        now, speed = time.perf_counter(), self.speed(self.step)
        evaluations = self._evaluate_live()
        inside: dict[int, dict[str, float]] = {}
        if probed is not None:
            rates = {member.number: float(member.rates[self.step - 1]) for member in active}
            inside = probes.measure(self.compiled, self.state, self.seeds, probed, rates)
        self.started_at += time.perf_counter() - now  # evaluation and probes are no part of the training speed
        live = self.compiled.evaluated_on_host(self.state)
        for member in active:
            score = metric.oriented(evaluations[member.number].scores[metric.name])
            if math.isfinite(score) and score > member.score:
                member.score, member.best_step = score, self.step
                self.best[member.number] = _copied(live[member.number])
        for member in active:
            found = evaluations[member.number]
            values = speed | {f"val/{name}": value for name, value in found.scores.items()} | found.norms
            yield Measured(member=member.number, step=self.step, values=values | inside.get(member.number, {}))

    def boundary(self) -> Iterator[Event]:
        """The events at which runs may be saved or stopped, none at the last step."""
        for member in self.active if self.step < self.schedule.steps else ():
            yield Reached(member=member.number, step=self.step, snapshot=partial(self.snapshot, member, self.step))

    def finish(self, speed: dict[str, float], test: bool) -> Iterator[Event]:
        """The last scores, at the best validation step, and the ends of all runs that did not diverge."""
        if not self.active:
            return
        splits = {"val": self.data.validation}
        if test:
            further = {f"test@{name}": split for name, split in self.data.further_tests.items()}
            splits |= {"test": self.data.test} | further
        best = self.compiled.on_device(self.best)
        evaluations = {
            name: self._evaluate(best, split, None if name == "val" else order_digest(self.data, name))
            for name, split in splits.items()
        }
        at_end: list[Evaluation] = []
        if not all(member.is_chosen for member in self.active):
            at_end = self._evaluate_live()
        for member in self.active:
            scores = {
                f"{name}/{key}": value
                for name, of_split in evaluations.items()
                for key, value in of_split[member.number].scores.items()
            }
            if not member.is_chosen:  # the best parameters are the initial ones, whose scores say nothing
                scores = dict.fromkeys(scores, math.nan)
                scores |= {f"val/{key}": value for key, value in at_end[member.number].scores.items()}
            elif test:
                tested = {key: value for key, value in scores.items() if key.startswith("test")}
                yield Measured(member=member.number, step=member.best_step, values=tested)
            last = self.snapshot(member, self.step)
            yield from self._spectrum(member, self.step, self._evaluated(member).params, "end")
            best_step = {"best_step": float(member.best_step)} if member.is_chosen else {}
            tested_on = {name: of_split[member.number] for name, of_split in evaluations.items() if member.is_chosen}
            yield Ended(
                member=member.number,
                state="done",
                step=self.step,
                result=best_step | scores | speed,
                items={f"{name}/{key}": of_key for name, of in tested_on.items() for key, of_key in of.items.items()},
                item_faults={f"{name}/{key}": why for name, of in tested_on.items() for key, why in of.faults.items()},
                snapshot=last,
            )

    def snapshot(self, member: Member, step: int) -> Snapshot:
        """A copy of one run's state at `step`, on the host."""
        live, best = _copied(self.compiled.on_host(self.state)[member.number]), self.best[member.number]
        return Snapshot(step=step, score=member.score, best_step=member.best_step, live=live, best=best)

    def _evaluated(self, member: Member) -> Evaluated:
        """What evaluations would take of one run's present state, on the host."""
        return self.compiled.evaluated_on_host(self.state)[member.number]

    def _evaluate_live(self) -> list[Evaluation]:
        """Each run's present state on the validation split.

        The scores of parameters that are not finite, as averages of finite ones may be, are NaN: of NaN, too, an
        accuracy would be a number.
        """
        of_members = self.compiled.evaluated_on_host(self.state)
        evaluations = self._evaluate(self.compiled.on_device(of_members), self.data.validation)
        for number, evaluated in enumerate(of_members):
            if not _is_finite(evaluated):
                scores = dict.fromkeys(evaluations[number].scores, math.nan)
                evaluations[number] = evaluations[number]._replace(scores=scores)
        return evaluations

    def speed(self, step: int) -> dict[str, float]:
        """Training steps per second from the start of this attempt to `step`, without evaluation."""
        seconds, steps = time.perf_counter() - self.started_at, step - self.first_step
        return {"machine/steps_per_second": steps / seconds} if steps and seconds > 0 else {}

    def _evaluate(self, evaluated: Evaluated, split: Split, order: str | None = None) -> list[Evaluation]:
        return evaluate(self.compiled, evaluated, split, self.schedule.batch, self.data.metrics, order)

    def _spectrum(self, member: Member, step: int, params: Tree, moment: Literal["start", "end"]) -> Iterator[Spectrum]:
        layers = probes.spectra(self.compiled, params, step)
        if layers is not None:
            yield Spectrum(member=member.number, step=step, moment=moment, layers=layers)

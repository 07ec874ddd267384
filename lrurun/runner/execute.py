"""Trains the attempts of a worker and writes what training yields. Imports jax."""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import jax

from lrurun import machine
from lrurun.data import arrays
from lrurun.data.metric import ESCAPE
from lrurun.data.on_device import batch_digest
from lrurun.data.task import Data
from lrurun.errors import LedgerError, LrurunError
from lrurun.ledger.attempt import Fenced
from lrurun.runner import logs
from lrurun.runner.attempt import ActiveAttempt, MachineFault, StopRequest
from lrurun.runner.recorder import LedgerThread, Recorder
from lrurun.runner.snapshots import Snapshots
from lrurun.training import loop
from lrurun.training.compiled import compiled_for
from lrurun.training.events import Began, Ended, Event, Measured, Reached, Snapshot, Spectrum
from lrurun.training.placement import placement


def execute(active: list[ActiveAttempt], stop: StopRequest) -> None:
    """Trains attempts, together where there are several, to their ends or to a stop.

    Attempts that are over leave `active`, so that after an exception it has those that must be ended.
    """
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    for attempt in active:
        _describe(attempt)
    if _stopped(active, stop):
        return
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(EventWriter(attempt)) for attempt in active]
        resume = _restore(writers, active)
        members = [writer for writer in writers if writer.attempt in active]
        for writer, snapshot in zip(members, resume, strict=True):
            writer.begin(snapshot.step if snapshot else None, packed=len(members))
        first = members[0].attempt
        compiling = stack.enter_context(contextlib.ExitStack())
        compiled = compiled_for(first.config, first.execution, first.data)
        if not compiled.is_compiled(first.config.model, len(members), begins=None in resume):
            compiling.enter_context(turn(json.dumps([first.program_key, len(members)]), stop))
        if _stopped(active, stop):
            return
        events = loop.train_together(
            [writer.attempt.config for writer in members],
            first.execution,
            first.data,
            resume=[snapshot for snapshot in resume if snapshot] or None,
            test=not first.is_tuning,
        )
        for event, stopping in _with_stops(events, stop):
            if isinstance(event, Began):
                compiling.close()
            writer = members[event.member]
            if writer.attempt not in active:
                continue
            try:
                over = writer.write(event, stopping)
            except Fenced as error:
                logs.write(f"{error.message}: {error.hint}")
                stop.refused = over = True
            if over:
                active.remove(writer.attempt)
            if not active:
                return


def _stopped(active: Sequence[ActiveAttempt], stop: StopRequest) -> bool:
    """Whether to stop before training; the attempts are then interrupted."""
    for attempt in active if stop.requested else ():
        attempt.interrupt("SIGTERM")
    return stop.requested


def _describe(attempt: ActiveAttempt) -> None:
    """Records the device and the data of an attempt."""
    device, data, config = jax.local_devices()[0], attempt.data, attempt.config
    try:
        devices = placement(attempt.execution.devices).names
    except LrurunError as error:
        raise MachineFault(error.message, error.hint) from None
    sampled = {}
    if data.sampler is not None:
        sampled["batch_sha256"] = now = batch_digest(data.sampler, config.seed, config.train.batch)
        attempts = attempt.ledger.attempts(attempt.id)
        before = {earlier.environment.get("batch_sha256", now) for earlier in attempts}
        for digest in sorted(before - {now}):
            sides = f"{digest[:19]} before, {now[:19]} now"
            attempt.note("changed", f"resumed with other training examples: batch 0 {sides}")
    logs.write(f"run {attempt.id}, attempt {attempt.held.attempt}, on {', '.join(devices)} ({device.device_kind})")
    attempt.ledger.describe(
        attempt.held,
        data_sha256=data.sha256,
        environment={
            "device": device.device_kind,
            "platform": device.platform,
            "devices": jax.device_count(),
            "placement": {"devices": len(devices), "names": devices},
            **sampled,
            "data": {
                "source": data.source,
                "kind": data.kind,
                "baselines": data.baselines,
                **({"published": data.published} if data.published else {}),
                **_test_labels(data),
            },
        },
    )


def _test_labels(data: Data) -> dict[str, int]:
    """The number of labels of the test split, where a sequence may have several classes as labels."""
    output = data.spec.output
    if output.at != "positions" or output.loss != "cross-entropy":
        return {}
    return {"test_labels": arrays.count_labels(data.test.labels)}


def _restore(writers: Sequence[EventWriter], active: list[ActiveAttempt]) -> list[Snapshot | None]:
    """The snapshots to resume from; attempts that cannot be trained with the first are interrupted."""
    first, resume = writers[0].attempt, list[Snapshot | None]()
    for writer in writers:
        attempt = writer.attempt
        compiled = compiled_for(attempt.config, attempt.execution, attempt.data)
        snapshot = writer.snapshots.restore(compiled)
        same_step = not resume or (snapshot and snapshot.step) == (resume[0] and resume[0].step)
        if attempt.compiled_key != first.compiled_key or not same_step:
            active.remove(attempt)
            attempt.interrupt(f"not at the step of run {first.id}, to be trained with it")
        else:
            resume.append(snapshot)
    return resume


def _with_stops(events: Iterator[Event], stop: StopRequest) -> Iterator[tuple[Event, bool]]:
    """Events, and whether to stop at each: the same answer for all runs at one boundary."""
    decided: tuple[type[Event], int] | None = None
    stopping = False
    for event in events:
        if (type(event), event.step) != decided:
            decided = type(event), event.step
            stopping = stop.at(event)
        yield event, stopping


class EventWriter:
    """Writes the events of one attempt to ledger, checkpoints and log. A context manager: nothing is lost at its end.

    Rows go to the ledger in batches, by a thread. Before a checkpoint and at the end all of them are written: what a
    checkpoint has seen, the ledger has. Training waits for that if the ledger is a file. It does not wait for a server,
    which may be away for minutes: the thread writes the same in the same order, and no second checkpoint begins.
    """

    def __init__(self, attempt: ActiveAttempt) -> None:
        self.attempt, self.ledger, self.held = attempt, attempt.ledger, attempt.held
        self.writes = LedgerThread()
        self.recorder = Recorder(self.ledger, self.held, self.writes, f"val/{attempt.data.metrics[0].name}")
        self.snapshots = Snapshots(attempt, self.writes)
        self._may_be_away = self.ledger.database.may_be_away
        self._saved = time.monotonic()

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except LedgerError as lost:
            error = lost
            raise
        finally:
            if isinstance(error, LedgerError):
                after = (
                    "nothing of this attempt"
                    if self.recorder.recorded is None
                    else f"nothing after step {self.recorder.recorded}"
                )
                logs.write(f"{after} is recorded: {error}")

    def close(self) -> None:
        """Writes what remains, unless another attempt has taken over, and waits for the threads."""
        try:
            with contextlib.suppress(Fenced):
                self.recorder.flush()
                self.writes.drain()
        finally:
            self.writes.close()
            self.snapshots.close()

    def begin(self, step: int | None, packed: int) -> None:
        """Deletes what the ledger has past `step`, where training continues, as one of `packed` runs."""
        self.ledger.rewind(self.held, step, score=self.recorder.score)
        if packed > 1:
            logs.write(f"one of {packed} runs in one program")
            self.ledger.describe(self.held, environment={"packed": packed})
        self._saved = time.monotonic()

    def write(self, event: Event, stopping: bool) -> bool:
        """Writes an event, and saves where it is time to or `stopping`; returns whether the attempt is over."""
        self.snapshots.poll()
        self.writes.poll()
        match event:
            case Measured():
                self.recorder.add(event.step, event.values)
            case Reached():
                return self._reached(event, stopping)
            case Began():
                logs.write(f"compiled in {event.compile_seconds:.1f} s; from step {event.step}")
                self.writes.submit(lambda: self.ledger.describe(self.held, parameters=event.parameters))
                return self._interrupted() if stopping else False
            case Spectrum():
                layers = [layer.tolist() for layer in event.layers]
                self.writes.submit(lambda: self.ledger.record_eigenvalues(self.held, event.moment, layers))
            case Ended():
                self._save(event.snapshot)
                self.snapshots.commit(keep=1)
                self.writes.drain()
                result = self._escape() | event.result
                for name, why in event.item_faults.items():
                    self.attempt.refuse_items(name, why)
                self.ledger.finish(
                    self.held, event.state, result=result, reason=event.state, step=event.step, items=event.items
                )
                results = ", ".join(f"{name} {value:.6g}" for name, value in sorted(result.items()))
                logs.write(f"{event.state} at step {event.step}" + (f": {results}" if results else ""))
                return True
        return False

    def _escape(self) -> dict[str, float]:
        """The step of the escape, from the recorded curve, where the task declares a plateau."""
        metric, curve = self.attempt.data.metrics[0], self.recorder.score
        if metric.escape is None:
            return {}
        return {ESCAPE: metric.escape_step(self.ledger.metrics(self.attempt.id, [curve]).get(curve, ()))}

    def _reached(self, event: Reached, stopping: bool) -> bool:
        due = time.monotonic() - self._saved >= self.attempt.execution.checkpoint_seconds
        answered = self.snapshots.is_idle and self.writes.is_idle
        if stopping or (due and (answered or not self._may_be_away)):
            self._save(event.snapshot())
            self._saved = time.monotonic()
        else:
            self.recorder.write_soon(event.step)
        return self._interrupted() if stopping else False

    def _interrupted(self) -> bool:
        self.snapshots.commit()
        self.writes.drain()
        self.attempt.interrupt("SIGTERM")
        return True

    def _save(self, snapshot: Snapshot) -> None:
        self.snapshots.commit()
        self.recorder.flush(snapshot.step)
        self.snapshots.save(snapshot)
        if not self._may_be_away:
            self.writes.drain()


# Turns at compiling

WAIT_SECONDS = 0.1
TURNS_AT = 2**32
"""The byte of the first place for a worker that compiles; the bytes before it are for keys of compiled functions."""


@contextlib.contextmanager
def turn(key: str, stop: StopRequest) -> Iterator[None]:
    """Waits for the turn of `key` and for a place among the workers that compile, or until `stop`.

    Processes with the same cache of compiled functions take turns: of the ones that need the functions of this key, one
    compiles them and the others load them. There are as many places as cores: more workers would only take memory and
    time from each other. Turn and place end with the context or the process.
    """
    with contextlib.ExitStack() as stack:
        config: Any = jax.config  # its values are not in its type
        if config.jax_compilation_cache_dir and config.jax_enable_compilation_cache:
            folder = Path(config.jax_compilation_cache_dir)
            with contextlib.suppress(OSError):  # nothing can be written to this cache, so nobody could load it
                folder.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context((folder / "lrurun.lock").open("ab"))
                byte = zlib.crc32(key.encode())  # a lock of its own, which may be beyond the end of the file
                while not stop.requested and not _locked(file.fileno(), byte):
                    time.sleep(WAIT_SECONDS)
                turns = range(TURNS_AT, TURNS_AT + machine.cores())
                while not stop.requested and not any(_locked(file.fileno(), number) for number in turns):
                    time.sleep(WAIT_SECONDS)
        yield


def _locked(file: int, byte: int) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
    except (BlockingIOError, PermissionError):
        return False
    return True

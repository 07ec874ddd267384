"""A worker process: claims a run, trains it, writes down its events; then the next one.

Its first line of standard input is its order, in JSON. It acts on SIGTERM alone, by saving at the next dispatch
boundary; it dies with its supervisor.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lrurun import plugins, provenance, tasks
from lrurun.config import Execution, RunConfig, program_key
from lrurun.errors import LedgerError, LrurunError
from lrurun.ledger import owner
from lrurun.ledger.store import PATIENCE, Fenced, Ledger
from lrurun.ledger.values import Claim
from lrurun.paths import inside
from lrurun.strict import convert
from lrurun.tasks import folder
from lrurun.tasks.base import Data

MACHINE_FAULT = 74
"""Exit code (EX_IOERR) of a worker that could not write: the fault is the machine's, no run's."""

FLUSH_SECONDS = 0.5
TELL_SECONDS = 0.2
IDLE_SECONDS = 0.2

INTERRUPTED = "interrupted: SIGTERM"


class Stop:
    """Whether SIGTERM came, and whether a run is in hand."""

    def __init__(self) -> None:
        self.asked = False
        self.idle = True

    def ask(self, *_: object) -> None:
        self.asked = True

    def at(self, event: Any) -> bool:
        """Whether to stop at this event of training; asked once an event, for what is decided on it must agree."""
        return self.asked


def main() -> int:
    """Reads the order and carries it out; the exit code."""
    stop = Stop()
    signal.signal(signal.SIGTERM, stop.ask)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    order = _order()
    if not order:
        return 0
    _die_with(order["supervisor"], stop)
    try:
        plugins.obey(order["plugins"])
        if "prepare" in order:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # at once: data appear whole or not at all
            _prepare(order)
            return 0
        with Ledger.open(Path(order["ledger"]), timeout=PATIENCE) as ledger:
            _work(ledger, order, stop)
    except LrurunError as error:
        # the supervisor reads this line and shows it as its own
        print(json.dumps({"error": error.message, "hint": error.hint, "exit_code": error.exit_code}), flush=True)
        return MACHINE_FAULT
    return 143 if stop.asked else 0


def _prepare(order: dict[str, Any]) -> None:
    """Makes the data that the order names, telling its supervisor how far it is."""
    task = tasks.get(order["prepare"])
    said: tuple[str, float] = ("", 0.0)

    def tell(what: str, done: int, total: int | None) -> None:
        nonlocal said
        now = time.monotonic()
        if what != said[0] or now - said[1] >= TELL_SECONDS:
            said = (what, now)
            print(json.dumps({"tell": [what, done, total]}), flush=True)

    given = Path(order["given"]) if order["given"] else None
    folder.prepare(task, tasks.options_of(task, order["options"]), Path(order["where"]), given=given, tell=tell)


def _work(ledger: Ledger, order: dict[str, Any], stop: Stop) -> None:
    me = owner.here()
    environment = {
        "threads": order["threads"],
        "code": provenance.code(),
        "versions": provenance.versions(),
        "machine": provenance.machine(),
    }

    def take(rungs: Sequence[str]) -> Claim | None:
        return ledger.claim(
            order["ladder"], me, rungs=rungs, seeds=order["seeds"], threads=order["threads"], environment=environment
        )

    while not stop.asked:
        ledger.reap(me)
        claim = take(order["rungs"])
        if claim is None:
            stop.idle = True
            time.sleep(IDLE_SECONDS)
            continue
        stop.idle = False
        claims = [claim]
        (place,) = [m for m in claim.run.memberships if m.ladder_key == order["ladder"]][:1]
        while len(claims) < order["pack"] and place.stage == "train":
            another = take([place.rung])
            if another is None:
                break
            claims.append(another)
        runs = Path(order["runs"])
        with contextlib.ExitStack() as logs:
            for one in reversed(claims):
                logs.enter_context(_log_of(inside(runs, one.run.id, str(one.attempt))))
                if one is not claim:
                    _log(f"trained together with run {claim.run.id}: its log has the rest")
            work([Attempt(ledger, one, runs, Path(order["where"])) for one in claims], stop)


def work(attempts: Sequence[Attempt], stop: Stop) -> None:
    """Trains runs of one rung, together where there are several, to their ends, or to the next boundary after SIGTERM.

    Raises:
        LrurunError: data cannot be read, ledger or runs folder not be written.
    """
    held = list(attempts)
    with contextlib.ExitStack() as writers:
        for attempt in held:
            writers.enter_context(attempt.recorder)
            writers.enter_context(attempt.writer)
        try:
            _train(held, stop)
        except LedgerError:
            raise
        except (Fenced, Unusable) as error:  # the fault of the machine, or none at all: not of the runs
            for attempt in held:
                with contextlib.suppress(LrurunError):
                    attempt.finish("interrupted", f"interrupted: {error.message}")
            if isinstance(error, Unusable):
                raise
        except Exception as error:
            _log(traceback.format_exc())
            for attempt in held:
                with contextlib.suppress(Fenced):
                    attempt.fail(error)


def _train(held: list[Attempt], stop: Stop) -> None:
    """As `work`; runs that are over leave `held`."""

    def stopped() -> bool:
        """Whether SIGTERM came before the runs could go on; then they are interrupted where they were left before."""
        if stop.asked:
            for attempt in held:
                attempt.finish("interrupted", INTERRUPTED)
        return stop.asked

    if stopped():
        return
    for attempt in held:
        attempt.load()
    import jax

    from lrurun import train

    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    for attempt in held:
        attempt.describe(jax.devices()[0], jax.device_count())
    if stopped():
        return
    first, resume = held[0], list[Any]()
    for attempt in list(held):
        snapshot = attempt.restore(train.programs(attempt.config, attempt.execution, attempt.loaded.spec))
        if resume and (attempt.program, snapshot and snapshot.step) != (first.program, resume[0] and resume[0].step):
            held.remove(attempt)
            attempt.finish("interrupted", f"interrupted: not at the step of run {first.id}, to be trained with it")
        else:
            resume.append(snapshot)
    members = list(held)
    for attempt, snapshot in zip(members, resume, strict=True):
        attempt.begin(snapshot.step if snapshot else 0, packed=len(members))
    together = train.train_together(
        [attempt.config for attempt in members],
        first.execution,
        first.loaded,
        resume=resume if resume[0] else None,
        test=first.claim.run.memberships[0].stage != "tune",
    )
    decided: tuple[type, int] | None = None
    asked = False
    for event in together:
        if (type(event), event.step) != decided:  # of one boundary all runs must be told the same
            decided = type(event), event.step
            asked = stop.at(event)
        attempt = members[event.member]
        if attempt not in held:
            continue
        try:
            if attempt.take(event, asked):
                held.remove(attempt)
        except Fenced:
            held.remove(attempt)
        if not held:
            return


class Attempt:
    """One go at one run: what it has and writes."""

    config: RunConfig
    execution: Execution
    loaded: Data

    def __init__(self, ledger: Ledger, claim: Claim, runs: Path, data: Path) -> None:
        self.ledger, self.claim, self.runs, self.data = ledger, claim, runs, data
        """`data` is the folder of the task's prepared data."""
        self.id = claim.run.id
        self.rows: list[tuple[int, dict[str, float]]] = []
        """Step and values that are not written yet: the loop only appends to them."""
        self.flushed = self.saved = time.monotonic()
        self.recorder = ThreadPoolExecutor(max_workers=1)
        self.recording: Future[None] | None = None
        """Rows on their way into the ledger, which another process may hold: the loop does not wait for that."""
        self.writer = ThreadPoolExecutor(max_workers=1)
        self.writing: tuple[int, Path, Future[tuple[int, str]]] | None = None
        """The checkpoint being written: its number in the ledger, its folder, and its size and digest to come."""

    def close(self) -> None:
        """Writes what is left, and ends the threads."""
        self._flush()
        self.recorder.shutdown()
        self.writer.shutdown()

    @functools.cached_property
    def train(self) -> Any:
        """The module of training, which imports jax; a statement that imports it anew would cost every event."""
        from lrurun import train

        return train

    def fail(self, error: Exception) -> None:
        """Ends the attempt with an exception, which the run keeps."""
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, LrurunError):
            text = f"{error.message}; {error.hint}" if error.hint else error.message
        self._flush()
        trace = "".join(traceback.format_exception(error))
        self.ledger.finish(self.claim, "failed", error=f"{text}\n\n{trace}", reason=f"failed: {text}")

    def finish(self, state: str, reason: str) -> None:
        """Ends the attempt without a result."""
        self.ledger.finish(self.claim, state, reason=reason)

    def load(self) -> None:
        """Reads the run's configuration and the data.

        Raises:
            Unusable: the data cannot be read, or the plug-ins are not those that the run was asked for with.
            LrurunError: the run began on other data.
        """
        self.execution = convert(self.claim.run.execution, Execution, f"run {self.id}")
        try:
            self.config = plugins.config_of(self.claim.run.config, f"run {self.id}")
            self.loaded = _loaded(self.config, self.data)
        except LrurunError as error:
            raise Unusable(error.message, error.hint) from None  # of all runs, not of this one
        before, now = self.claim.run.data_sha256, self.loaded.sha256
        if before and before != now:
            raise LrurunError(
                f"run {self.id}: began on data {before[:19]}, the prepared data are {now[:19]}",
                "restore the data it began on, or start again with --fresh",
            )

    def describe(self, device: Any, devices: int) -> None:
        """Writes down on what the run is trained."""
        _log(f"run {self.id}, attempt {self.claim.attempt}, on {device.device_kind} ({device.platform})")
        data = self.loaded
        self.ledger.describe(
            self.claim,
            data_sha256=data.sha256,
            environment={
                "device": device.device_kind,
                "platform": device.platform,
                "devices": devices,
                "data": {"source": data.source, "kind": data.kind, "baselines": data.baselines},
            },
        )

    @property
    def program(self) -> tuple[str, int]:
        """What runs must share to be trained together."""
        return program_key(self.config, self.execution), self.execution.steps_per_dispatch

    def begin(self, step: int, packed: int) -> None:
        """Forgets what the ledger has past `step`, from which the run is trained, as one of `packed`."""
        self.ledger.rewind(self.claim, step)
        if packed > 1:
            _log(f"one of {packed} runs in one program")
            self.ledger.describe(self.claim, environment={"packed": packed})
        self.saved = time.monotonic()

    def take(self, event: Any, asked: bool) -> bool:
        """Writes an event down, saves where it is time to, or `asked` to; whether the attempt is over.

        Rows go to the ledger in batches, by a thread; at checkpoints, at the end and when asked to stop all of them are
        there before anything else is written.
        """
        train = self.train
        if self.writing and self.writing[2].done():
            self._commit()
        if self.recording and self.recording.done():
            self._settle()
        match event:
            case train.Began():
                _log(f"compiled in {event.compile_seconds:.1f} s; from step {event.step}")
                self.ledger.describe(self.claim, parameters=event.parameters)
                if asked:
                    self.finish("interrupted", INTERRUPTED)
                    return True
            case train.Measured():
                self.rows.append((event.step, event.values))
            case train.Reached():
                if asked or time.monotonic() - self.saved >= self.execution.checkpoint_seconds:
                    self._save(event.snapshot())
                    self.saved = time.monotonic()
                elif self.recording is None and time.monotonic() - self.flushed >= FLUSH_SECONDS:
                    self.flushed = time.monotonic()
                    rows, self.rows = self.rows, []
                    self.recording = self.recorder.submit(self._record, rows, event.step)
                if asked:
                    self._commit()
                    self.finish("interrupted", INTERRUPTED)
                    return True
            case train.Ended():
                self._save(event.snapshot)
                self._commit(kept=1)
                self.ledger.finish(self.claim, event.state, result=event.result, reason=event.state, step=event.step)
                _log(f"{event.state} at step {event.step}: {event.result}")
                return True
        return False

    def _record(self, rows: list[tuple[int, dict[str, float]]], step: int) -> None:
        self.ledger.record(self.claim, [(at, key, value) for at, values in rows for key, value in values.items()], step)

    def _settle(self) -> None:
        """Waits for the rows that are on their way. Raises what became of them."""
        recording, self.recording = self.recording, None
        if recording is not None:
            recording.result()

    def _flush(self, step: int | None = None) -> None:
        """Writes all rows that there are, and waits for that."""
        self._settle()
        self.flushed = time.monotonic()
        if self.rows or step is not None:
            rows, self.rows = self.rows, []
            self._record(rows, step if step is not None else max(at for at, _ in rows))

    def _save(self, snapshot: Any) -> None:
        """Metrics first, then the checkpoint, by a thread: what the checkpoint has seen, the ledger has."""
        from lrurun import checkpoint

        self._commit()
        self._flush(snapshot.step)
        relative = f"{self.id}/{self.claim.attempt}/checkpoints/{snapshot.step}"
        number = self.ledger.saving(self.claim, snapshot.step, relative)
        folder = self.runs / relative
        future = self.writer.submit(checkpoint.save, folder, snapshot, self.claim.run.fingerprint)
        self.writing = (number, folder, future)

    def _commit(self, *, kept: int = 2) -> None:
        """Waits for the checkpoint that is being written, if there is one, and lets go of those before it."""
        if self.writing is None:
            return
        from lrurun import checkpoint

        number, folder, future = self.writing
        self.writing = None
        try:
            size, digest = future.result()
        except Exception as error:
            _log("".join(traceback.format_exception(error)))
            reason = f"the checkpoint of step {folder.name} could not be saved: {error}".splitlines()[0]
            raise Unusable(
                f"{folder}: {reason}",
                "make room or give permission there, or choose another --runs-dir, and type the command again",
            ) from None
        self.ledger.committed(self.claim, number, size, digest)
        old = self.ledger.checkpoints(self.id)[kept:]
        self._forget(checkpoint, [c for c in old if c.id != number])

    def _forget(self, checkpoint: Any, old: list[Any]) -> None:
        if old:
            for entry in old:
                with contextlib.suppress(LrurunError):  # what leads out of the runs folder is not ours to remove
                    checkpoint.remove(inside(self.runs, entry.path))
            self.ledger.forget(self.claim, [c.id for c in old])

    def restore(self, compiled: Any) -> Any:
        """The newest snapshot that ledger and disk agree on, or None."""
        from lrurun import checkpoint

        every = self.ledger.checkpoints(self.id)
        self._forget(checkpoint, [c for c in every if c.state != "committed"])
        for entry in (c for c in every if c.state == "committed"):
            try:
                path = inside(self.runs, entry.path)
                if not path.is_dir():
                    raise LrurunError(f"{path} is missing")
                if checkpoint.digest(path)[1] != entry.sha256:
                    raise LrurunError(f"{path} does not hold the bytes that were saved")
                snapshot = checkpoint.restore(path, compiled, self.claim.run.fingerprint)
            except Exception as error:
                text = f"checkpoint of step {entry.step} not used: {str(error).splitlines()[0]}"
                _log(text)
                self.ledger.event("checkpoint", text, run=self.id, attempt=self.claim.attempt)
                self._forget(checkpoint, [entry])
                continue
            _log(f"restored step {snapshot.step}")
            self._compare()
            self.ledger.event("resumed", f"from step {snapshot.step}", run=self.id, attempt=self.claim.attempt)
            return snapshot
        return None

    def _compare(self) -> None:
        """Says what is another machine or code version than the attempt before had."""
        before, here = (attempt.environment for attempt in self.ledger.attempts(self.id)[-2:])
        pairs = [
            ("machine", "cpu"),
            ("versions", "jax"),
            ("versions", "jaxlib"),
            ("code", "lrurun"),
            ("code", "commit"),
        ]
        for table, name in [*pairs, ("code", "dirty")]:
            old, new = (environment.get(table, {}).get(name) for environment in (before, here))
            if old != new:
                text = f"resumed with another {name}: {old} before, {new} now"
                _log(text)
                self.ledger.event("changed", text, run=self.id, attempt=self.claim.attempt)


class Unusable(LrurunError):
    """A checkpoint could not be written, or data or plug-ins not be read."""


_DATA: dict[str, Data] = {}


def _loaded(config: RunConfig, where: Path) -> Data:
    key = json.dumps([config.task, config.data, config.train.protocol, str(where)], sort_keys=True)
    if key not in _DATA:
        task = tasks.get(config.task)
        _DATA[key] = folder.load(task, tasks.options_of(task, config.data), where, config.train.protocol)
    return _DATA[key]


@contextlib.contextmanager
def _log_of(folder: Path) -> Iterator[None]:
    """Standard output and error go to the attempt's own log, those of libraries too."""
    try:
        if folder.exists():
            # of a ledger that is gone, or of another one: this attempt has written nothing yet
            folder.rename(folder.with_name(f"{folder.name}.old-{time.time_ns()}"))
        folder.mkdir(parents=True)
        log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise LrurunError(
            f"{folder}: {error.strerror}", "check space and permissions, or choose another --runs-dir"
        ) from None
    before = [(number, os.dup(number)) for number in (1, 2)]
    try:
        for number, _ in before:
            os.dup2(log, number)
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        for number, copy in before:
            os.dup2(copy, number)
            os.close(copy)
        os.close(log)


def _log(text: str) -> None:
    """A line of the attempt's log; a full disk must not hide what is being reported."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


def _order() -> dict[str, Any]:
    """The first line of standard input, read without a buffer: the thread that waits for its end must hold no lock."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            return {}
        line += piece
    order: dict[str, Any] = json.loads(line)
    return order


def _die_with(supervisor: int, stop: Stop) -> None:
    """This process ends when its supervisor does: told by the kernel on Linux, by end-of-file anywhere."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG
    if os.getppid() != supervisor:
        os._exit(1)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        while not stop.idle and os.getppid() == supervisor:
            time.sleep(IDLE_SECONDS)
        os._exit(0 if os.getppid() == supervisor else 1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    code = main()
    if code == MACHINE_FAULT:
        # a save that failed may have left threads of Orbax behind that wait for ever, and the supervisor waits for this
        os._exit(code)
    sys.exit(code)

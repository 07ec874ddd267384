"""Executes a user's program in a worker: follows its process, and records what it reports."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from lrurun import machine
from lrurun.config import programs
from lrurun.config.schema import ProgramConfig
from lrurun.errors import LedgerError, LrurunError
from lrurun.instances import documents
from lrurun.items import ItemResults, TestSet
from lrurun.judging.rung_runs import SPEED
from lrurun.ledger.values import Outcome
from lrurun.programs import faults, logged_items
from lrurun.programs.commands import from_snapshot
from lrurun.programs.printed import Printed
from lrurun.programs.process import (
    KEPT,
    REPORTS,
    NotStarted,
    Process,
    command_of,
    end_leftovers,
    environment,
    started,
    write_files,
)
from lrurun.programs.reports import Reports, Row, WrongReport, divergence, mentions_items
from lrurun.runner import logs, program_faults
from lrurun.runner.attempt import ActiveAttempt, MachineFault, StopRequest
from lrurun.runner.processes import cause
from lrurun.runner.program_faults import ProgramFault
from lrurun.runner.program_files import ProgramSnapshot, changed, digest_at
from lrurun.runner.recorder import LedgerThread, Recorder

RECORDED = "recorded"
"""An empty file beside it, once all of them are in the ledger."""
LARGEST_LOG = 1_000_000_000
"""The most bytes that a program may print."""
SPEED_SECONDS = 2.0
"""How often the speed is recorded."""
HELD_SECONDS = 10.0
"""How often the ledger is asked whether this attempt still has the run."""
TAIL = 20
"""How many of the last lines of the log a failed run keeps."""


class _Scores(NamedTuple):
    """The result of a run."""

    result: Mapping[str, float]
    missing: str = ""
    """What the program has not logged; empty if the run has its scores."""
    steps: Mapping[str, int] = MappingProxyType({})
    """Test score -> the step at which it was logged."""


def execute(attempt: ActiveAttempt, stop: StopRequest) -> None:
    """Executes a program to its end, and records its result; or interrupts it at a stop request.

    Raises:
        MachineFault: its files have changed since the run was queued, it cannot be started, or nothing can be written.
    """
    config = attempt.held.run.config
    assert isinstance(config, ProgramConfig)
    of_run = attempt.runs / attempt.id
    folder, kept = of_run / str(attempt.held.attempt), of_run / KEPT
    snapshot = ProgramSnapshot(attempt.runs, attempt.data_folder, config.program.files)
    _keep_files(snapshot)
    try:
        if attempt.held.attempt == 1 and kept.exists():  # of a ledger that was removed, or of another one
            kept.rename(kept.with_name(f"{KEPT}.old-{time.time_ns()}"))
        kept.mkdir(exist_ok=True)
        write_files(config, folder)
    except OSError as error:
        raise MachineFault(f"{of_run}: {error.strerror}", "free some space, or choose another --runs-dir") from None
    if attempt.held.attempt > 1:
        end_leftovers(kept)
    command, copied = from_snapshot(command_of(config, folder, kept), snapshot)
    _check_files(config.program.files, copied, attempt.data_folder)
    of_snapshot = {"copy": str(snapshot.path.relative_to(attempt.runs))} if snapshot else {}
    attempt.ledger.describe(attempt.held, environment=_device(attempt.data_folder) | of_snapshot)
    logs.write(f"{_begin(attempt.id, folder)}{' '.join(' '.join(command).splitlines())}")
    execution = _Execution(attempt, config, stop)
    try:
        if execution.repeat(_unrecorded(attempt, of_run)):
            return
        with started(command, attempt.data_folder, environment(folder, kept)) as process:
            execution.follow(process, Reports(folder / REPORTS))
    except NotStarted as error:
        execution.end_ladder(ProgramFault(error.message, error.hint or ""))
    except WrongReport as error:
        execution.reject(error)
    finally:
        execution.close()


def _begin(run: str, folder: Path) -> str:
    """The beginning of the line of the log after which an attempt's program prints."""
    return f"run {run}, attempt {folder.name}: "


def _unrecorded(attempt: ActiveAttempt, of_run: Path) -> list[Path]:
    """The metrics of the attempts since the last one that has recorded all of its own, oldest first.

    Their programs may have saved their state after a step that was not recorded, because the worker was killed.
    """
    reports: list[Path] = []
    for earlier in reversed(attempt.ledger.attempts(attempt.id)[:-1]):
        folder = of_run / str(earlier.n)
        if (folder / RECORDED).exists():
            break
        if (folder / REPORTS).is_file():
            reports.insert(0, folder / REPORTS)
    return reports


def _keep_files(snapshot: ProgramSnapshot) -> None:
    """Makes sure that the snapshot of the program's files is there as they were when the run was queued."""
    try:
        snapshot.keep()
    except LrurunError as error:
        raise MachineFault(error.message, error.hint) from None


def _check_files(files: Mapping[str, str], copied: Collection[str], folder: Path) -> None:
    """Refuses files of the program that have changed since the run was queued, but for those that are `copied`: the
    program reads those in the snapshot, whatever becomes of the originals."""
    for name, digest in files.items():
        if name not in copied and digest_at(folder / name) != digest:
            error = changed(folder / name, digest)
            why = f"its copy is not used, because the command does not name it; {error.hint}"
            raise MachineFault(error.message, why)


def _device(folder: Path) -> dict[str, Any]:
    """The entries of an attempt's environment about this machine."""
    names = machine.nvidia_devices()
    return {
        "device": machine.nvidia_model() if names else machine.cpu(),
        "platform": "gpu" if names else "cpu",
        "devices": len(names) or 1,
        "folder": str(folder),
    }


class _Execution:
    """One attempt: what the program has reported, and what becomes of it."""

    def __init__(self, attempt: ActiveAttempt, config: ProgramConfig, stop: StopRequest) -> None:
        self.attempt, self.ledger, self.held, self.stop = attempt, attempt.ledger, attempt.held, stop
        self.program = config.program
        self.folder = attempt.runs / attempt.id / str(self.held.attempt)
        self.writes = LedgerThread()
        self.recorder = Recorder(self.ledger, self.held, self.writes, self.program.metric)
        self.sources: list[Reports | Printed] = []
        self._reports: dict[int, Reports] = {}
        """Attempt -> its metrics, as far as they were read."""
        self._log_size = self._items_lines = 0
        self._is_active = False
        self._first: tuple[int, float] | None = None
        """The first step that was reported, and when."""
        self._step = 0
        self._speed_at: float | None = None
        """When the speed was last recorded; None while earlier reports are repeated."""
        self._held_at = time.monotonic()
        self._diverged = False

    def close(self) -> None:
        """Waits for the thread."""
        self.writes.close()

    def repeat(self, unrecorded: Sequence[Path]) -> bool:
        """Records once more what earlier attempts have reported; whether that has ended this one."""
        for file in unrecorded:
            self._first = None
            sources: list[Reports | Printed] = [Reports(file), *self._printed(file.parent)]
            for source in sources:
                with contextlib.suppress(WrongReport):  # what follows a wrong line was not recorded
                    while not (self._diverged or self.stop.requested):
                        for row in source.rows():
                            self._take(row)
                            if self._diverged:
                                break
                        if not source.is_behind:
                            break
        self._first, self._speed_at = None, time.monotonic()
        self.recorder.flush()
        if self._diverged or self.stop.requested:
            self.writes.drain()
            if self._diverged:
                self._finish("diverged")
            else:
                self.attempt.interrupt("SIGTERM")
        return self._diverged or self.stop.requested

    def _printed(self, folder: Path) -> list[Printed]:
        """What the program of an attempt prints, if the recipe says how to read it."""
        read = self.program.read
        return [Printed(folder / "log.txt", read, _begin(self.attempt.id, folder))] if read else []

    def follow(self, process: Process, reports: Reports) -> None:
        """Records what the program reports until it exits, diverges or is asked to stop; ends the attempt.

        Raises:
            WrongReport: it reports what cannot be recorded.
        """
        self.sources, exited = [reports, *self._printed(self.folder)], False
        self._reports[self.held.attempt] = reports
        began = time.monotonic()
        while not self._diverged:
            exited = process.has_exited()
            self._record()
            is_behind = any(source.is_behind for source in self.sources)
            if (exited and not is_behind) or self.stop.requested:
                break
            self.writes.poll()
            self._check_held()
            if not is_behind:
                time.sleep(min(0.1, 0.002 + (time.monotonic() - began) / 20))
        if self.stop.requested and not exited and not self._diverged:
            logs.write("SIGTERM: the program may save and exit")
            process.stop(self.held.run.execution.stop_seconds, self._go_on)
        code = process.end()
        if not self._diverged:
            with contextlib.nullcontext() if exited and code == 0 else contextlib.suppress(WrongReport):
                self._record(last=exited and code == 0)  # else the end may have cut off a line
        self._record_all()
        if self._diverged:
            self._finish("diverged")
        elif not exited or (self.stop.requested and (reports.interrupted or code in _OF_SIGTERM)):
            self.attempt.interrupt("SIGTERM")
        elif not reports.interrupted and (fault := self._fault(code)) is not None:
            self.end_ladder(fault)
        elif code != 0:
            self._fail_at_exit(code)
        elif reports.interrupted:
            self._fail(
                "the program saw run.should_stop and ended, but lrurun did not ask for it: SIGTERM came from "
                "the program itself, a scheduler or a user"
            )
        else:
            self._finish("done")

    def _fault(self, code: int) -> ProgramFault | None:
        """Why a program that has ended by itself would always end so; None if it has logged something."""
        if self.stop.requested or self.ledger.metric_names([self.attempt.id]):
            return None
        return faults.of_exit(code, logs.tail(self.folder / "log.txt", TAIL)[1:], self.program)

    def end_ladder(self, fault: ProgramFault) -> None:
        """Ends the attempt with a fault that every run would have: the commands that train the ladder stop, unless
        another run of it shows that the fault is one of this run."""
        ladder = {run.id for m in self.held.run.memberships for run in self.ledger.runs(m.ladder_key, brief=True)}
        if not self.ledger.metric_names(ladder):
            self.stop.refused = True  # this process takes no other run of it
            text = f"{fault.message}; {fault.hint}"
            self.ledger.event(program_faults.KIND, text, fault, run=self.attempt.id, attempt=self.held.attempt)
        self._fail(f"{fault.message}; {fault.hint}", rejected=True)

    def _check_held(self) -> None:
        """Raises Fenced if another attempt has the run: a program that reports nothing would not find out."""
        if time.monotonic() - self._held_at >= HELD_SECONDS:
            self._held_at = time.monotonic()
            with contextlib.suppress(LedgerError):  # one that does not answer now is asked again
                self.ledger.check_held(self.held)

    def reject(self, error: WrongReport) -> None:
        """Ends the attempt of a program that cannot be started, or reports what cannot be recorded."""
        self._record_all()
        self._fail(f"{error.message}; {error.hint}", rejected=True)

    def _record_all(self) -> None:
        """Waits until all that was taken is in the ledger, and leaves the file that says so."""
        self.recorder.flush()
        self.writes.drain()
        with contextlib.suppress(OSError):  # on a full disk, a later attempt records it once more
            (self.folder / RECORDED).touch()

    def _record(self, *, last: bool = False) -> None:
        """Takes the rows that the program has reported, and has them written soon.

        A program that prints counts as active even if it reports no row.
        """
        for source in self.sources:
            for row in () if self._diverged else source.rows(last=last):
                self._take(row)
                self._is_active = True
                if self._diverged:
                    break
        items = sum(source.lines_of_items for source in self.sources if isinstance(source, Reports))
        size = os.fstat(1).st_size  # the log, to which the program prints
        if size > LARGEST_LOG:
            raise WrongReport(f"the program has printed more than {LARGEST_LOG:,} bytes", "print less")
        self._is_active |= (size, items) != (self._log_size, self._items_lines)
        self._log_size, self._items_lines = size, items
        if self._is_active and self.recorder.write_soon(self._step):
            self._is_active = False

    def _go_on(self) -> bool:
        """Records what the program reports while it stops; whether to wait on, which is so unless it has diverged."""
        self._record()
        return not self._diverged

    def _take(self, row: Row) -> None:
        if self._first is None:
            self._first, self._step = (row.step, time.monotonic()), row.step
            before = row.step - 1 if row.step else None
            self.recorder.flush()
            # what was recorded from this step on is replaced: the program has resumed here, or begins again
            self.writes.submit(lambda: self.ledger.rewind(self.held, before, score=self.program.metric))
        # numbers that are printed and those that are logged have steps of their own
        self._step = max(self._step, row.step)
        values = row.values
        if self.attempt.is_tuning:
            values = {name: value for name, value in values.items() if not name.startswith("test")}
        self._diverged |= divergence(Row(row.step, values)) is not None
        self.recorder.add(row.step, values | self._speed())

    def _speed(self) -> dict[str, float]:
        """Steps a second, where they are due and the number of steps is known."""
        now = time.monotonic()
        assert self._first is not None
        first, since = self._first
        if not self.held.run.steps or self._speed_at is None or now - max(since, self._speed_at) < SPEED_SECONDS:
            return {}
        self._speed_at = now
        return {SPEED: (self._step - first) / (now - since)}

    def _fail_at_exit(self, code: int) -> None:
        """Ends the attempt of a program that has ended with another exit code than 0.

        One that had logged its last step and ended by itself is not tried again: it would be trained once more for an
        end that is probably the same.
        """
        lines = logs.tail(self.folder / "log.txt", TAIL)[1:]
        printed = next((f": {line[:200]}" for line in reversed(lines) if line.strip()), "")
        text, is_complete = f"the program ended with {cause(code)}{printed}", False
        if not self._scores().missing:
            metric, last = self.program.metric, self.held.run.steps
            steps = [step for step, _ in self.ledger.metrics(self.attempt.id, [metric])[metric]]
            is_complete = bool(last) and steps[-1] >= last - (steps[0] == 0)  # whose first step is 0 or 1
            if is_complete:
                text += f"; all its scores were logged, up to step {steps[-1]} of {last}: let it end with exit code 0"
            elif code > 0 and not last:
                text += (
                    f"; its scores were logged, up to step {steps[-1]}: if those are all, let it end with exit code 0"
                )
        self._fail(text, rejected=is_complete and code > 0)

    def _fail(self, text: str, *, rejected: bool = False) -> None:
        """Ends the attempt as failed. One that is `rejected` is not tried again by this command."""
        log = logs.tail(self.folder / "log.txt", TAIL)
        logs.write(f"failed: {text}")
        error = "\n".join([text, "", *log])
        outcome: Outcome = "rejected" if rejected else "failed"
        self.ledger.finish(self.held, "failed", error=error, reason=f"failed: {text}", outcome=outcome)

    def _finish(self, state: str) -> None:
        """Ends the attempt with the scores at the best step; one without them as failed."""
        result, missing, steps = self._scores()
        if missing and state == "done":
            self._fail(missing, rejected=True)
            return
        items = self._items(result, steps) if state == "done" else {}
        self.ledger.finish(self.held, state, result=result, items=items, reason=state, step=self._step)
        scores = ", ".join(f"{name} {value:.6g}" for name, value in sorted(result.items()))
        logs.write(f"{state} at step {self._step}" + (f": {scores}" if scores else ""))

    def _items(self, result: Mapping[str, float], steps: Mapping[str, int]) -> dict[str, ItemResults]:
        """The per-item results at the steps of the scores.

        Results that cannot belong to a score are left out, and the run has an event that says why. Its scores stay: a
        training of days is not repeated for them.
        """
        if self.attempt.is_tuning or not self._have_items():
            return {}
        for name, step in steps.items():
            self._reports_with(name, step)  # of earlier attempts too, where the score is theirs
        logged = dict.fromkeys(name for reports in self._reports.values() for name in reports.scores_with_items)
        program = documents.program_of(self.ledger, self.held.run) if logged else None
        items: dict[str, ItemResults] = {}
        for name in logged:
            if name in result and not math.isfinite(result[name]):
                continue  # no usable score
            try:
                items[name] = self._items_of(name, steps.get(name), result, program)
            except WrongReport as error:
                self.attempt.refuse_items(name, f"{error.message}; {error.hint}")
        return items

    def _have_items(self) -> bool:
        """Whether some attempt has logged per-item results: the metrics of earlier ones may be long, and are not read
        where none has."""
        if self._reports[self.held.attempt].lines_of_items:
            return True
        earlier = (self.folder.with_name(str(attempt)) / REPORTS for attempt in range(1, self.held.attempt))
        return any(mentions_items(path) for path in earlier if path.is_file())

    def _items_of(
        self, name: str, step: int | None, result: Mapping[str, float], program: programs.ProgramTable | None
    ) -> ItemResults:
        """The per-item results of a score. Raises WrongReport where the logged ones cannot belong to it."""
        if not name.startswith("test"):
            raise WrongReport("it is no test score", "name one, as in test/accuracy")
        if step is None:
            at = f" at step {result['best_step']:.0f}, whose scores count" if "best_step" in result else ""
            raise WrongReport(f"no score of this name was logged{at}", "log both at the same step")
        if (reports := self._reports_with(name, step)) is None or (items := reports.items(name, step)) is None:
            others = _listed({at for reports in self._reports.values() for at in reports.steps_of_items(name)})
            text = f"the score is that of step {step}, and they were logged at step {others}"
            raise WrongReport(text, "log both at the same step")
        logged_items.check(name, items, result[name], program)
        self._check_test_set(name, items.test_set)
        return items

    def _check_test_set(self, name: str, test_set: TestSet) -> None:
        """Raises WrongReport if the first run of the same ladder that has per-item results has another test set."""
        for membership in self.held.run.memberships:
            if (first := self.ledger.first_test_set(membership.ladder_key, name)) is None:
                continue
            run_id, other = first
            if difference := test_set.difference(other):
                hint = f"log the same items in the same order in all runs; if run {run_id} is wrong: "
                raise WrongReport(
                    f"this run and run {run_id} have different test sets: {difference}",
                    f"{hint}lrurun mark {run_id} --exclude WHY",
                )

    def _reports_with(self, name: str, step: int) -> Reports | None:
        """The metrics with per-item results for a score at a step: of the newest attempt that has reached it."""
        for attempt in range(self.held.attempt, 0, -1):
            if (reports := self._reports_of(attempt)) is not None:
                if step in reports.steps_of_items(name):
                    return reports
                if reports.first_step is not None and reports.first_step <= step:
                    break
        return None

    def _reports_of(self, attempt: int) -> Reports | None:
        """The metrics of this attempt or of an earlier one, which has logged scores that still count; None if they are
        not here."""
        path = self.folder.with_name(str(attempt)) / REPORTS
        if attempt not in self._reports and path.is_file():
            reports = self._reports[attempt] = Reports(path)
            with contextlib.suppress(WrongReport):  # what follows a wrong line was not recorded
                reports.read()
        return self._reports.get(attempt)

    def _scores(self) -> _Scores:
        """The scores at the step with the best validation score."""
        names = [name for name in self.ledger.metric_names([self.attempt.id]) if name.startswith(("val/", "test"))]
        curves = {curve.key: curve for curve in self.ledger.curves([self.attempt.id], names)}
        chosen = self.program.metric
        if chosen not in curves:
            near = [name for name in curves if name.startswith("val/")]
            seen = f"; it logged {', '.join(near)}" if near else ""
            todo = "log it, or name another metric in [program]"
            if pattern := (self.program.read or {}).get(chosen):
                todo = f"no printed line matches {pattern!r}, see read in [program]"
            return _Scores({}, f"the program logged no {chosen}{seen}; {todo}")
        points = list(zip(curves[chosen].steps, curves[chosen].values, strict=True))
        sign = 1.0 if self.program.direction == "max" else -1.0
        finite = [(sign * value, -step) for step, value in points if math.isfinite(value)]
        self._step = max(self._step, points[-1][0])
        test = f"test/{chosen.removeprefix('val/')}"
        if not finite and self._diverged:
            return _Scores({})
        if not finite:  # no step can be chosen, so that there is no test score
            value = sign * math.inf if any(sign * value == math.inf for _, value in points) else points[-1][1]
            tests = [] if self.attempt.is_tuning else [test, *(name for name in names if name.startswith("test"))]
            return _Scores({chosen: value} | dict.fromkeys(tests, math.nan) | self._last_speed())
        best = -max(finite)[1]
        result: dict[str, float] = {"best_step": best} if len(points) > 1 else {}  # a single step is not chosen
        steps: dict[str, int] = {}
        for name, curve in curves.items():
            at = dict(zip(curve.steps, curve.values, strict=True))
            is_test = name.startswith("test")
            if best in at or (is_test and len(at) == 1):
                step = best if best in at else next(iter(at))
                result[name] = at[step]
                steps |= {name: step} if is_test else {}
        if test in result or self.attempt.is_tuning:
            return _Scores(result | self._last_speed(), "", steps)
        where = f" at step {best}, where {chosen} is best" if test in curves else ""
        return _Scores(result, f"the program logged no {test}{where}; log both at the same steps, or {test} once")

    def _last_speed(self) -> dict[str, float]:
        speeds = self.ledger.metrics(self.attempt.id, [SPEED]).get(SPEED)
        return {SPEED: speeds[-1][1]} if speeds else {}


def _listed(steps: Collection[int]) -> str:
    """The first steps, as text."""
    return ", ".join(map(str, sorted(steps)[:3])) + ", ..." * (len(steps) > 3)


_OF_SIGTERM = (-signal.SIGTERM, 128 + signal.SIGTERM)
"""Exit codes of a process that SIGTERM has ended, and of a shell whose process it has."""

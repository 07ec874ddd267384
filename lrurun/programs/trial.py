"""A trial of a program: it is started once, outside of any ledger, until its first scores."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from lrurun.config.schema import Execution, ProgramConfig
from lrurun.kinds import Trial
from lrurun.programs.commands import from_copy
from lrurun.programs.execution import (
    KEPT,
    LARGEST_LOG,
    REPORTS,
    STOPPING_POLL,
    NotStarted,
    Process,
    command_of,
    environment,
    started,
    write_files,
)
from lrurun.programs.printed import Printed
from lrurun.programs.reports import Reports, WrongReport, divergence
from lrurun.runner import logs
from lrurun.runner.processes import cause
from lrurun.runner.program_files import ProgramCopy

PRINTED = 1_000
"""How many of the last lines that it has printed a trial keeps."""


def run(
    config: ProgramConfig, execution: Execution, folder: Path, runs: Path, seconds: float, limited: Mapping[str, str]
) -> Trial:
    """Starts a program in the folder of its recipe, and ends it when its first scores are there.

    Args:
        runs: a folder for what it writes.
        seconds: the time that it has.
        limited: environment variables with its numbers of threads.

    Raises:
        LrurunError: its files cannot be copied, or the machine can start no process.
    """
    copy = ProgramCopy(runs, folder, config.program.files)
    copy.keep()
    place, kept = runs / "1", runs / KEPT
    place.mkdir()
    kept.mkdir()
    write_files(config, place)
    command, _ = from_copy(command_of(config, place, kept), copy)
    trial = Trial(command=command)
    reports, log = Reports(place / REPORTS), place / "log.txt"
    printed = [Printed(log, config.program.read, "")] if config.program.read else []
    with log.open("xb") as output:
        os.write(output.fileno(), b"\n")  # the line after which it prints
        try:
            with started(command, folder, dict(environment(place, kept)) | dict(limited), output.fileno()) as process:
                _follow(trial, process, [reports, *printed], log, config, execution, seconds)
        except (NotStarted, WrongReport) as error:
            trial.problem = f"{error.message}; {error.hint}"
    trial.printed = logs.tail(log, PRINTED)[1:]
    return trial


def _follow(
    trial: Trial,
    process: Process,
    sources: list[Reports | Printed],
    log: Path,
    config: ProgramConfig,
    execution: Execution,
    seconds: float,
) -> None:
    """Reads what the program reports until there are scores, and ends it. Raises WrongReport."""
    began = time.monotonic()
    while True:
        exited, now = process.has_exited(), time.monotonic()
        rows = [row for source in sources for row in source.rows(last=exited)]
        trial.rows.extend(rows)
        if lost := next((row for row in rows if divergence(row)), None):
            name = divergence(lost) or ""
            trial.problem = f"{name} is {lost.values[name]} at step {lost.step}: the run has diverged, and is ended"
            return
        if log.stat().st_size > LARGEST_LOG:
            raise WrongReport(f"the program has printed more than {LARGEST_LOG:,} bytes", "print less")
        if exited and not any(source.is_behind for source in sources):
            if code := process.end():
                last = next((f": {line.strip()}" for line in reversed(logs.tail(log, 3)) if line.strip()), "")
                trial.problem = f"the program ended with {cause(code)}{last}"
            trial.end = "it ended by itself with exit code 0"
            return
        if trial.is_complete(config.program.metric) or now - began >= seconds:
            is_late = now - began >= seconds
            trial.end = (
                f"ended after {seconds:g} s" if is_late else f"ended after its first scores, in {now - began:.1f} s"
            )
            trial.is_cut = True
            _stop(process, execution.stop_seconds)
            return
        time.sleep(STOPPING_POLL)


def _stop(process: Process, seconds: float) -> None:
    process.terminate()
    deadline = time.monotonic() + seconds
    while not process.has_exited() and time.monotonic() < deadline:
        time.sleep(STOPPING_POLL)
    process.end()

"""A trial of a program: it is started once, outside of any ledger, until its first scores."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

from msgspec import Struct

from lrurun.config.programs import ProgramTable
from lrurun.config.schema import Execution, ProgramConfig
from lrurun.kinds import limited
from lrurun.programs import logged_items
from lrurun.programs.commands import from_snapshot
from lrurun.programs.execution import LARGEST_LOG
from lrurun.programs.printed import Printed
from lrurun.programs.process import (
    KEPT,
    REPORTS,
    STOPPING_POLL,
    NotStarted,
    Process,
    command_of,
    environment,
    started,
    write_files,
)
from lrurun.programs.reports import Reports, WrongReport, divergence
from lrurun.runner import logs
from lrurun.runner.processes import cause
from lrurun.runner.program_files import ProgramSnapshot

PRINTED = 1_000
"""How many of the last lines that it has printed a trial keeps."""
STEPS_SHOWN = 3
"""For how many steps the per-item results are shown."""
ITEMS_SECONDS = 2.0
"""How long to wait after the first scores for their per-item results."""


class TrialItems(Struct, frozen=True, kw_only=True):
    """The per-item results that a trial has logged for a score."""

    name: str
    step: int
    count: int
    """0 if they cannot be read."""
    mean: float
    problem: str | None
    """Why they cannot belong to the score; None if they can, or if it was not logged at their step."""


class Trial(Struct, kw_only=True):
    """What a trial has shown."""

    command: list[str]
    rows: list[tuple[int, dict[str, float]]] = []
    """Steps with the metrics that were logged there, or read from what was printed."""
    items: list[TrialItems] = []
    printed: list[str] = []
    """The last lines that it has printed."""
    end: str = ""
    """How it ended, in words."""
    is_cut: bool = False
    """Whether it was ended before it did so by itself."""
    problem: str = ""
    """Why it failed; empty if it did not."""

    def steps_of(self, metric: str) -> dict[int, float]:
        """Step -> value of a metric."""
        return {step: values[metric] for step, values in self.rows if metric in values}

    def is_complete(self, metric: str) -> bool:
        """Whether it has logged a validation score and its test score, or another validation score without one."""
        tests, validated = self.steps_of(f"test/{metric.removeprefix('val/')}"), self.steps_of(metric)
        return bool(validated) and (bool(tests) or len(validated) > 1)


def try_out(
    config: ProgramConfig, execution: Execution, program: ProgramTable, folder: Path, runs: Path, seconds: float
) -> Trial:
    """Starts a program in the folder of its recipe, and ends it when its first scores are there.

    Args:
        program: the table of its recipe.
        runs: a folder for what it writes.
        seconds: the time that it has.

    Raises:
        LrurunError: its files cannot be copied, or the machine can start no process.
    """
    snapshot = ProgramSnapshot(runs, folder, config.program.files)
    snapshot.keep()
    attempt, kept = runs / "1", runs / KEPT
    attempt.mkdir()
    kept.mkdir()
    write_files(config, attempt)
    command, _ = from_snapshot(command_of(config, attempt, kept), snapshot)
    trial = Trial(command=command)
    reports, log = Reports(attempt / REPORTS), attempt / "log.txt"
    printed = [Printed(log, config.program.read, "")] if config.program.read else []
    with log.open("xb") as output:
        os.write(output.fileno(), b"\n")  # the line after which it prints
        try:
            variables = dict(environment(attempt, kept)) | limited(execution.threads)
            with started(command, folder, variables, output.fileno()) as process:
                _follow(trial, process, [reports, *printed], log, config, execution, seconds)
        except (NotStarted, WrongReport) as error:
            trial.problem = f"{error.message}; {error.hint}"
    trial.items = _items(trial, reports, program)
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
    began, scored, test = time.monotonic(), math.inf, f"test/{config.program.metric.removeprefix('val/')}"
    reports, step = sources[0], 0
    assert isinstance(reports, Reports)
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
        if scored == math.inf and trial.is_complete(config.program.metric):
            scored, step = now, trial.rows[-1][0]
        is_over = bool(reports.steps_of_items(test)) or now - scored >= ITEMS_SECONDS
        is_over = is_over or any(row.step > step for row in rows)
        if (scored < math.inf and is_over) or now - began >= seconds:
            trial.end = (
                f"ended after {seconds:g} s"
                if scored == math.inf
                else f"ended after its first scores, in {scored - began:.1f} s"
            )
            trial.is_cut = True
            process.stop(execution.stop_seconds)
            process.end()
            return
        time.sleep(STOPPING_POLL)


def _items(trial: Trial, reports: Reports, program: ProgramTable) -> list[TrialItems]:
    """The per-item results that were logged for the first steps of each score, and what is wrong with them."""
    shown = []
    for name in reports.scores_with_items:
        scores = trial.steps_of(name)
        for step in sorted(reports.steps_of_items(name))[:STEPS_SHOWN]:
            count, mean, problem = 0, math.nan, None
            try:
                items = reports.items(name, step)
                assert items is not None
                count, mean = items.test_set.count, items.mean
                if math.isfinite(scores.get(step, math.nan)):
                    logged_items.check(name, items, scores[step], program)
            except WrongReport as error:
                problem = f"{error.message}; {error.hint}"
            shown.append(TrialItems(name=name, step=step, count=count, mean=mean, problem=problem))
    return shown

"""Faults of a user's program that every run of it would have: the worker that finds one records it, and every command
that trains the ladder stops."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, convert

from lrurun.config import programs
from lrurun.config.resolve import ResolvedRung
from lrurun.config.schema import ProgramConfig
from lrurun.errors import FaultyProgram, UsageError, nearest
from lrurun.ledger.values import Event, Run

KIND = "program"
"""Kind of the event of a run that records one."""


class ProgramFault(Struct, frozen=True):
    """A fault, and how to correct it: the payload of the event."""

    message: str
    hint: str


def of_event(event: Event, run: Run | None) -> FaultyProgram | None:
    """The error about a program, if the event of a run records its fault."""
    if event.kind != KIND:
        return None
    fault = convert(event.payload, ProgramFault)
    where = f" ({run.memberships[0].rung}, seed {run.seed})" if run is not None and run.memberships else ""
    return FaultyProgram(
        f"run {event.run}{where}: {fault.message}; no run of this ladder has logged anything", fault.hint
    )


def check_command(rungs: Iterable[ResolvedRung], folder: Path, where: str) -> None:
    """Checks that the executables of a program's rungs are on this machine.

    Raises:
        UsageError: one is not.
    """
    for rung in rungs:
        config = rung.config
        assert isinstance(config, ProgramConfig)
        values = {path: programs.as_argument(value) for path, value in programs.paths_of(config.settings).items()}
        names = dict.fromkeys(programs.placeholders(config.program.command[0]), "")
        if names.keys() - values.keys():
            continue  # the seed or the folder of a run
        executable = programs.filled(config.program.command[0], values)
        # relative folders of PATH begin where the program is started
        path = os.pathsep.join(str(folder / entry) for entry in os.get_exec_path())
        if shutil.which(str(folder / executable) if "/" in executable else executable, path=path) is None:
            raise UsageError(
                f"{where} [program], command, rung {rung.name}: {executable!r} {_why(executable, folder)}",
                _instead(executable, folder),
            )


def _why(executable: str, folder: Path) -> str:
    if "/" not in executable:
        return "is not found on PATH"
    path = folder / executable
    if path.is_file():
        return "may not be executed"
    return "is a folder" if path.is_dir() else f"is not found: there is no file {path}"


def _instead(executable: str, folder: Path) -> str:
    path = folder / executable
    if "/" in executable and path.is_file():
        return f"chmod +x {path}; or begin the command with what interprets it, as in sh or python"
    if path.is_file():
        return f"for the file beside the recipe, write ./{executable}"
    if "/" not in executable and (close := nearest(executable, _executables())) is not None:
        return f"did you mean {close!r}? It may also be a whole path"
    return "activate the environment that has it, or write its whole path"


def _executables() -> list[str]:
    """The names of the files in the folders of PATH."""
    names: set[str] = set()
    for folder in os.get_exec_path():
        with contextlib.suppress(OSError):
            names.update(os.listdir(folder))
    return sorted(names)

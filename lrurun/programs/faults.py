"""Faults of a program that every run of it would have: they stop a ladder at the first run that ends with one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from lrurun.config.programs import line_to_add
from lrurun.config.schema import Program
from lrurun.runner.program_faults import ProgramFault

_PYTHON = re.compile(r"(ModuleNotFoundError|ImportError|SyntaxError|IndentationError|TabError): ")
"""The last line that Python prints of a module that is not there, or that it cannot read."""
_PLACE = re.compile(r'\s*File "(.+)", line (\d+)')
_NO_SCRIPT = re.compile(r"can't open file .*: \[Errno 2\]|: cannot open .*: No such file")
_SHELL = re.compile(r"(^|: )[Ss]yntax error\b")
_TRY = "lrurun check program FILE tries one run"
_SHELL_EXITS = {126: "a command that it starts cannot be executed", 127: "a command that it starts is not found"}
"""Exit code of shells -> what it means."""


def of_exit(code: int, printed: Sequence[str], program: Program) -> ProgramFault | None:
    """The fault of a program that has ended with this exit code and has logged nothing; None if it may be one of this
    run alone.

    Args:
        printed: the last lines that it has printed.
    """
    last = next((line.strip() for line in reversed(printed) if line.strip()), "")
    if code == 0:
        return _nothing_logged(program)
    if code == 1 and _PYTHON.match(last):
        if last.startswith(("ModuleNotFoundError", "ImportError")):
            other = "or begin the command in [program] with the path of another Python"
            return ProgramFault(
                f"the program ended with {last[:300]}", f"install it for {_python(program)}, {other}; {_TRY}"
            )
        where = next((match for line in reversed(printed) if (match := _PLACE.match(line))), None)
        at = "" if where is None else f" ({PurePath(where[1]).name}, line {where[2]})"
        return ProgramFault(f"the program ended with {last[:300]}{at}", f"correct it; {_TRY}")
    if code == 2 and (_NO_SCRIPT.search(last) or any(map(_SHELL.search, printed[-3:]))):
        return ProgramFault(
            f"the program ended with: {last[:300]}", f"correct the recipe's [program] or the script; {_TRY}"
        )
    if code in _SHELL_EXITS:
        ending = f": {last[:300]}" if last else ""
        text = f"the program ended with exit code {code}, {_SHELL_EXITS[code]}{ending}"
        return ProgramFault(text, f"correct the recipe's [program] or the script; {_TRY}")
    return None


def _python(program: Program) -> str:
    """The Python of a command, if it is named there."""
    return program.command[0] if "python" in program.command[0] else "its Python"


def _nothing_logged(program: Program) -> ProgramFault:
    metric, score = program.metric, program.metric.removeprefix("val/")
    if program.read:
        text = "the program ended with exit code 0, and nothing that it printed matches a pattern of read"
        return ProgramFault(text, f"correct read in the recipe's [program]; {_TRY}, and shows what it prints")
    hint = (
        f"add to the program: {line_to_add(metric)}, with run = lrurun.this_run(); "
        f"""or have printed numbers read: [program] read = {{ "{metric}" = '{score}=([0-9.]+)' }}"""
    )
    return ProgramFault("the program ended with exit code 0 and logged nothing", hint)

"""The command of a program, with the snapshot of its files in place of the files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from lrurun.runner.program_files import ProgramSnapshot

RUN_MODULE = Path(__file__).with_name("run_module.py")
"""The script that takes the place of `python -m`, which would import from the working directory."""
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_WITH_VALUE = ("-X", "-W")
"""Options of Python whose value may be the next argument."""
_UNUSUAL_PATH = re.compile(r"-[A-Za-z]*[PI][A-Za-z]*")
"""Options of Python with which a script does not import what is beside it."""


def from_snapshot(command: Sequence[str], snapshot: ProgramSnapshot) -> tuple[list[str], set[str]]:
    """The command with the snapshot of the files that its arguments name, and the files that the program reads there.

    The latter are those that it names and, of a Python script, the modules in its folder, because Python looks there
    first. Others it may open by their paths from the working directory, which is the folder of the recipe.
    """
    if not snapshot:
        return list(command), set()
    if (module := _module(command)) is not None and _has_module(snapshot, command[module]):
        arguments = [_replaced(text, snapshot)[0] for text in command[module + 1 :]]
        started = [*command[: module - 1], str(RUN_MODULE), str(snapshot.path), command[module], *arguments]
        return started, _named(command[module + 1 :], snapshot) | _modules(snapshot, PurePosixPath())
    new = list(command)
    copied: set[str] = set()
    for index, text in enumerate(command):
        if index == 0 and os.sep not in text:
            continue  # looked up on PATH
        new[index], name = _replaced(text, snapshot)
        if name is None:
            continue
        copied.add(name)
        before = command[:index]
        if name.endswith(".py") and not (os.environ.get("PYTHONSAFEPATH") or any(map(_UNUSUAL_PATH.fullmatch, before))):
            copied |= _modules(snapshot, PurePosixPath(name).parent)
    return new, copied


def _replaced(text: str, snapshot: ProgramSnapshot) -> tuple[str, str | None]:
    """An argument with the path of the snapshot, and the name of the file; as it is, and None, if it names none.

    It may be the path alone, or follow a "=", as in "--config=small.json".
    """
    key, equals, value = text.rpartition("=")
    for before, path in (("", text), (key + equals, value)):
        if path and (name := _name(path, snapshot)) is not None:
            return before + str(snapshot.path / name), name
    return text, None


def _name(path: str, snapshot: ProgramSnapshot) -> str | None:
    name = os.path.relpath(os.path.normpath(snapshot.folder / path), os.path.normpath(snapshot.folder))
    return name if name in snapshot.digests else None


def _named(arguments: Sequence[str], snapshot: ProgramSnapshot) -> set[str]:
    names = (_replaced(text, snapshot)[1] for text in arguments)
    return {name for name in names if name is not None}


def _modules(snapshot: ProgramSnapshot, folder: PurePosixPath) -> set[str]:
    """The listed modules of Python in a folder, or in folders in it."""
    return {name for name in snapshot.digests if name.endswith(".py") and PurePosixPath(name).is_relative_to(folder)}


def _module(command: Sequence[str]) -> int | None:
    """The index of the module's name in a command of the form `python -m NAME`."""
    if not _PYTHON.fullmatch(Path(command[0]).name) or os.environ.get("PYTHONSAFEPATH"):
        return None
    index = 1
    while index < len(command) and command[index].startswith("-") and command[index] != "-c":
        if command[index] == "-m":
            return index + 1 if index + 1 < len(command) else None
        if _UNUSUAL_PATH.fullmatch(command[index]):
            return None
        index += 2 if command[index] in _WITH_VALUE else 1
    return None


def _has_module(snapshot: ProgramSnapshot, module: str) -> bool:
    """Whether a listed file belongs to a module, or to the package that it is in."""
    package = module.partition(".")[0]
    return any(PurePosixPath(name).parts[0] in (package, f"{package}.py") for name in snapshot.digests)

"""What a user asks to import, and the name and the file of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from lrurun import paths
from lrurun.config.ladder import NAME
from lrurun.data import tasks
from lrurun.errors import UsageError
from lrurun.imported.options import ImportOptions


class Request(Struct, frozen=True, kw_only=True):
    """What is to be imported, and where its file is."""

    sources: tuple[str, ...]
    """As the user names them; the path of a file that lrurun wrote, alone, stands for the sources in it."""
    options: ImportOptions
    name: str | None
    folder: Path
    """The folder of the file."""
    command: tuple[str, ...]
    """The command, for the head of the file."""
    frame: Any = None

    @property
    def document(self) -> Path | None:
        """The file that the user names in place of a source."""
        is_file = len(self.sources) == 1 and self.sources[0].endswith(".toml") and self.frame is None
        return Path(self.sources[0]).expanduser() if is_file else None

    @property
    def target(self) -> Path:
        """The path of the file.

        Raises:
            UsageError: the name cannot be one of a task.
        """
        return self.document or self.folder / f"{self.task}.toml"

    @property
    def task(self) -> str:
        """The name of the import.

        Raises:
            UsageError: it cannot be one.
        """
        if self.name is not None:
            return checked_name(self.name, "--name")
        stem = "runs" if self.frame is not None else re.split(r"[/\\]", self.sources[0].rstrip("/\\"))[-1]
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(stem or "runs").stem).strip("-._")
        if not stem or stem.startswith("-"):
            stem = "runs"
        return checked_name(stem, f"{self.sources[0]}")


def checked_name(name: str, where: str) -> str:
    """The name of an import, which names its file and its task.

    Raises:
        UsageError: it is no file name, or the name of a task or of runs.
    """
    if not re.fullmatch(NAME, name, re.ASCII) or len(name) > 100 or name.endswith(".toml"):
        hint = "at most 100 letters, digits, '.', '_' and '-', as in --name norms"
        raise UsageError(f"{where}: {name!r} cannot be the name of an import and its file", hint)
    if name in tasks.TASKS or name in paths.names("recipes"):
        raise UsageError(f"{where}: {name!r} is a task of lrurun", "choose another name: --name NAME")
    if paths.is_run_id(name):
        raise UsageError(f"{where}: {name!r} looks like the id of a run", "choose another name: --name NAME")
    return name

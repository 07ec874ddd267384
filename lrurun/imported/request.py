"""What a user asks to import: the sources and options of the command or the call, and the name and the file of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from lrurun import paths
from lrurun.config.ladder import NAME
from lrurun.data import tasks
from lrurun.errors import UsageError

NO_SEED = "none"
"""The value of `--seed-column` where no setting has the seed, so that runs are numbered."""


class ImportOptions(Struct, frozen=True, kw_only=True):
    """The options of an import; None, and empty ones, where the user leaves them to lrurun."""

    kind: str | None = None
    metric: str | None = None
    direction: Literal["max", "min"] | None = None
    at: str | int | None = None
    metric_for_choice: str | None = None
    by: tuple[str, ...] = ()
    base: dict[str, str] = {}
    seed: str | None = None
    ladder: str | None = None
    """A file with rungs."""
    choose: tuple[str, ...] = ()
    crashed: Literal["missing", "failed"] | None = None
    repeat: Literal["latest", "mean", "all"] | None = None
    protocol: Literal["holdout", "best-of-test"] | None = None
    test_items: int | None = None
    items: str | None = None
    unit: str | None = None
    per_cent: bool | None = None
    chance: float | None = None
    project: str | None = None
    metrics_file: str | None = None

    @property
    def values(self) -> dict[str, Any]:
        """Key of `[import]` -> value, of those that are given."""
        return {KEYS[name]: value for name, value in self.recorded.items() if name in KEYS}

    @property
    def recorded(self) -> dict[str, Any]:
        """Field -> value, of those that are given, as JSON keeps them."""
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return {name: value for name, value in fields.items() if value not in (None, [], {})}


OPTIONS = {
    "kind": "--from",
    "seed": "--seed-column",
    **{name: f"--{name.replace('_', '-')}" for name in ImportOptions.__struct_fields__ if name not in ("kind", "seed")},
}
"""Field -> the option of the command."""
KEYS = {
    "kind": "from",
    **{name: name for name in ImportOptions.__struct_fields__ if name not in ("kind", "by", "base", "ladder")},
}
"""Field -> the key in `[import]`; rungs have tables of their own."""


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


# Values of options


def parsed_at(text: str) -> str | int:
    """The value of `--at`.

    Raises:
        UsageError: it is none of last, best and a step.
    """
    if text in ("last", "best"):
        return text
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    raise UsageError(f"--at: expected last, best or a step, found {text!r}", "as in --at best, or --at 10000")


def parsed_base(text: str) -> dict[str, str]:
    """The value of `--base`: setting -> value.

    Raises:
        UsageError: a part has no `=`.
    """
    values = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise UsageError(
                f"--base {text}: expected setting=value", "as in --base norm=none, or --base norm=none,opt=adam"
            )
        values[name.strip()] = value.strip()
    return values

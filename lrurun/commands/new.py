"""`lrurun new`: a small recurrence, optimiser, task, ladder, recipe or program to start from, or runs to import; the
documentation shows the same files."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Annotated, Literal

import typer

from lrurun import console, paths
from lrurun.commands._shared.options import choice
from lrurun.commands._shared.rules import examples
from lrurun.errors import LrurunError, UsageError

TEMPLATES = Path(__file__).parent / "templates"
FILES = {
    "recurrence": {".py": "recurrence.py.txt", ".toml": "recurrence.toml"},
    "optimizer": {".py": "optimizer.py.txt", ".toml": "optimizer.toml"},
    "task": {".py": "task.py.txt", ".toml": "recipe.toml"},
    "ladder": {".toml": "ladder.toml"},
    "recipe": {".toml": "recipe.toml"},
    "program": {".py": "program.py.txt", ".toml": "program.toml"},
}
"""The files that are written: suffix -> template."""
NEXT = {
    "recurrence": ("check recurrence {0} --load {0}.py", "ladder npDigits --profile smoke --ladder {0}.toml"),
    "optimizer": ("check optimizer {0} --load {0}.py", "ladder npDigits --profile smoke --ladder {0}.toml"),
    "task": ("check recipe {0}.toml --load {0}.py", "ladder {0}.toml --load {0}.py --rung gamma-norm"),
    "ladder": ("check ladder {0}.toml", "ladder npDigits --profile smoke --ladder {0}.toml"),
    "recipe": ("check recipe {0}.toml", "ladder {0}.toml --rung gamma-norm"),
    "program": ("plan {0}.toml", "ladder {0}.toml"),
}
"""Commands that work with the files as they are."""
IMPORT = "import {0}/{1} --metric test_acc --by norm --seed-column seed --base norm=none"
"""The command that imports a source of the example of `new import`."""


@examples(
    "lrurun new recurrence averages",
    "lrurun new program mine",
)
def new(
    what: Annotated[
        Literal["recurrence", "optimizer", "task", "ladder", "recipe", "program", "import"],
        typer.Argument(
            help="recurrence, optimizer, task, ladder, recipe, program or import.", **choice("new", (*FILES, "import"))
        ),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, which the files have too.")],
) -> int:
    """Write a small working example to start from.

    A recurrence or an optimiser comes with a ladder that compares it, a task with its recipe, a program with its recipe
    and ladder. The files are written to the working directory, and work as they are; the command names what to run. A
    recipe is for npDigits until it is edited. For import, a folder has the same made-up runs as several tools store
    them.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
        raise UsageError(
            f"new {what}: expected a name of letters, digits, '_' and '-' that begins with a letter, found {name!r}",
            f"as in lrurun new {what} mine",
        )
    if name.lower() in {known.lower() for known in _known(what)}:
        raise UsageError(f"new {what}: lrurun has {name!r} already", f"choose another name, as in my-{name}")
    if what == "import":
        return _new_import(Path(name))
    if what == "program" and name in {*sys.stdlib_module_names, "lrurun", "numpy", "sklearn"}:
        rule = f"{name}.py would be imported where a program means the module {name!r}"
        raise UsageError(f"new program: {rule}", f"choose another name, as in my-{name}")
    made = {Path(file): text for file, text in texts(what, name).items()}
    if existing := [str(path) for path in made if path.exists()]:
        raise LrurunError(
            f"new {what}: {', '.join(existing)}: exists already", "choose another name, or remove the file"
        )
    for path, text in made.items():
        with path.open("x") as file:
            file.write(text)
        console.write(f"wrote {path}")
    console.say("it works as it is:")
    for command in NEXT[what]:
        console.say(f"  lrurun {command.format(name)}")
    return 0


def _new_import(folder: Path) -> int:
    """Writes runs to import, and names the commands that import them."""
    from lrurun.trackers import example_runs

    if folder.exists():
        raise LrurunError(f"new import: {folder}: exists already", "choose another name, or remove the folder")
    for written in example_runs.write(folder, lambda source: f"lrurun {IMPORT.format(folder, source)}"):
        console.write(f"wrote {folder / written}")
    console.say("it works as it is, as do the commands in its README.txt:")
    console.say(f"  lrurun {IMPORT.format(folder, example_runs.SOURCES['table'].words)}")
    console.say("  lrurun report")
    return 0


def texts(what: str, name: str) -> dict[str, str]:
    """File name -> content of an example with this name."""
    parts = re.split(r"[_-]+", name)
    values = {
        "name": name,
        "task": name if what == "task" else "npDigits",
        "Class": "".join(part[:1].upper() + part[1:] for part in parts) + what.capitalize(),
    }
    return {
        f"{name}{suffix}": Template((TEMPLATES / file).read_text()).substitute(values)
        for suffix, file in FILES[what].items()
    }


def _known(what: str) -> Iterable[str]:
    """The names that this one would be confused with."""
    from lrurun.config.optimizers import OPTIMIZERS
    from lrurun.config.recurrences import KINDS
    from lrurun.data.tasks import TASKS

    return {
        "recurrence": [*KINDS, *paths.names("ablations")],
        "optimizer": [*OPTIMIZERS, *paths.names("ablations")],
        "task": [*TASKS, *paths.names("recipes")],
        "ladder": paths.names("ablations"),
        "recipe": paths.names("recipes"),
        "program": [*TASKS, *paths.names("recipes")],
        "import": [],
    }[what]

"""Programs of a user: their recipes, with ladders in the same file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import Attempt, Run
from tests.harness.machine import Machine

PYTHON = json.dumps(sys.executable)
LINEAR = """\
import lrurun

run = lrurun.this_run(lr=0.5)
settings = run.settings
for step in range(1, settings.epochs + 1):
    score = 0.3 + settings.lr * step + 0.001 * (run.seed % 10) ** 2 + (0.2 if settings.block.wide else 0)
    run.log(step, **{"train/loss": 1 / step, "val/accuracy": score, "test/accuracy": score - 0.1})
print("the learning rate is", settings.lr)
"""
"""A program whose score is a function of its settings and its seed."""
RECIPE = f"""\
task = "toy"

[program]
command = [{PYTHON}, "toy.py"]
files = ["toy.py"]
metric = "val/accuracy"
unit = "%"
chance = 0.1
steps = "settings.epochs"

[settings]
lr = 0.01
epochs = 4
name = "plain text"
block = {{ wide = false }}

[tune.grid]
"settings.lr" = [0.01, 0.02]

[[rung]]
name = "narrow"
title = "A narrow block"

[[rung]]
name = "wide"
title = "A wide block"
change = {{ "settings.block.wide" = true }}

[[claim]]
text = "wide blocks are better"
source = "a note"
rung = "wide"
than = "narrow"
"""
"""A recipe for it, with a ladder of two rungs and a claim."""


def write(folder: Path, *changes: tuple[str, str], name: str = "toy.toml") -> Path:
    """Writes the program and its recipe, in which each text of `changes` is replaced by another."""
    text = RECIPE
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    folder.mkdir(exist_ok=True)
    (folder / "toy.py").write_text(LINEAR)
    path = folder / name
    path.write_text(text)
    return path


def write_scripts(
    folder: Path, scripts: Mapping[str, str], table: str = "", programs: Mapping[str, str] | None = None
) -> None:
    """Writes a ladder with a rung for each Python script: `scripts.toml`. `table` is more of [program]; `programs` are
    rungs whose programs take the place of Python."""
    folder.mkdir(exist_ok=True)
    for name, text in scripts.items():
        (folder / f"{name}.py").write_text(text)
    rungs = [
        f'[[rung]]\nname = "{name}"\ntitle = "{name}"\nroot = true\nchange = {{ "settings.script" = "{name}" }}\n'
        for name in scripts
    ]
    rungs += [
        f'[[rung]]\nname = "{name}"\ntitle = "{name}"\nroot = true\nchange = {{ "settings.python" = "{program}" }}\n'
        for name, program in (programs or {}).items()
    ]
    first = next(iter(scripts))
    (folder / "scripts.toml").write_text(
        f'task = "scripts"\n[program]\ncommand = ["{{settings.python}}", "{{settings.script}}.py"]\nfiles = ["*.py"]\n'
        f'metric = "val/accuracy"\nstop_seconds = 1.0\n{table}\n'
        f'[settings]\npython = {PYTHON}\nscript = "{first}"\nlast = 8\n\n'
        + "\n".join(rungs).replace(f'root = true\nchange = {{ "settings.script" = "{first}" }}\n', "")
    )


def runs_of(machine: Machine) -> dict[str, tuple[Run, list[Attempt]]]:
    """Rung -> its only final run and the attempts of it."""
    with Ledger.read(machine.ledger) as ledger:
        return {run.memberships[0].rung: (run, ledger.attempts(run.id)) for run in ledger.runs()}


def curves_of(machine: Machine, run: Run) -> dict[str, list[tuple[int, float]]]:
    """The curves of a run."""
    with Ledger.read(machine.ledger) as ledger:
        curves = ledger.metrics(run.id)
        return {name: list(curve) for name, curve in curves.items() if not name.startswith("machine/")}


def error_of(run: Run) -> str:
    assert run.error is not None
    return run.error


def lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Lines of JSON."""
    return "".join(json.dumps(row) + "\n" for row in rows)

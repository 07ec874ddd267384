"""Imported runs in a ledger, as an import leaves them there."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from lrurun.config import planning
from lrurun.config.fingerprint import fingerprint
from lrurun.config.resolve import Difference
from lrurun.config.schema import ImportedConfig, Origin
from lrurun.instances import documents
from lrurun.instances.import_record import IMPORTED, Caution, ImportRecord, ReadSource
from lrurun.items import ItemResults
from lrurun.ledger.imports import ImportedRun, Member
from lrurun.ledger.ledger import Ledger

TABLE = """\
source = ["runs.csv"]
from = "csv"
metric = "test_acc"
direction = "max"
seed = "seed"
unit = "%"
test_items = 1000
chance = 0.1
"""
SCORES: Mapping[str, Sequence[float | str | None]] = {
    "none": (0.71, 0.72, 0.70, 0.73, 0.71, 0.72),
    "batch": (0.81, 0.82, 0.80, 0.83, "killed", "exit code 1"),
    "layer": (0.70, 0.73, None, 0.71, 0.74, 0.72),
}
"""Rung -> what became of the run of each seed: its score; None: it diverged; a text: it is missing, and why."""


def write(folder: Path, table: str = TABLE, rungs: Sequence[str] = tuple(SCORES), name: str = "runs.toml") -> Path:
    """Writes the file of an import, whose rungs are compared with the first one."""
    lines = ['task = "runs"', 'title = "Which norm helps?"', "", "[import]", table]
    for rung in rungs:
        on = "" if rung == rungs[0] else f'on = "{rungs[0]}"\n'
        lines.append(f'[[rung]]\nname = "{rung}"\ntitle = "norm = {rung}"\n{on}where = "norm = \'{rung}\'"\n')
    lines.append(f'[[claim]]\ntext = "{rungs[1]} is better"\nsource = "a note"\nrung = "{rungs[1]}"\n')
    lines.append(f'than = "{rungs[0]}"\n')
    folder.mkdir(exist_ok=True)
    (path := folder / name).write_text("\n".join(lines))
    return path


def fill(
    ledger_path: Path,
    file: Path,
    scores: Mapping[str, Sequence[float | str | None]] = SCORES,
    *,
    cautions: Sequence[Caution] = (),
    more: Mapping[str, Mapping[str, Any]] | None = None,
    items: Mapping[str, Sequence[ItemResults]] | None = None,
    tried: Mapping[str, Sequence[float]] | None = None,
    best_step: int | None = None,
) -> None:
    """Adds the runs of a file that `write` wrote.

    Args:
        scores: as `SCORES`.
        cautions: of the import.
        more: rung -> further settings of its runs.
        items: rung -> the per-item results of its runs.
        best_step: the step that each result is of, where it records that.
        tried: rung -> the scores of runs that only chose its settings.
    """
    plan = planning.make(str(file), imports=False)
    table = plan.recipe.imported
    assert table is not None
    shared = {rung: {"norm": rung, "lr": 0.1, **(more or {}).get(rung, {})} for rung in scores}
    plan = structs.replace(plan, rungs=tuple(_with_settings(rung, shared) for rung in plan.rungs))
    runs: list[tuple[str, str, int, ImportedRun]] = []
    for rung, ends in scores.items():
        for seed, end in enumerate(ends):
            found = None if items is None else items[rung][seed]
            runs.append((rung, "train", seed, _run(plan, rung, "train", seed, end, shared[rung], found)))
        for seed, score in enumerate((tried or {}).get(rung, ())):
            settings = {**shared[rung], "lr": 0.01}
            runs.append((rung, "tune", seed, _run(plan, rung, "tune", seed, score, settings, None)))
    with Ledger.open(ledger_path) as ledger:
        instance = ledger.add_ladder(
            plan.ladder.name, plan.recipe.task, None, plan.spec, plan.short_name, kind="imported"
        )
        documents.record(ledger, instance, plan)
        if best_step is not None:
            runs = [(*first, _at(run, best_step)) for *first, run in runs]
        outcomes = ledger.add_imported([run for *_, run in runs])
        ledger.set_members(
            instance.key,
            [
                Member(run=outcomes[fingerprint(run.config)][0], rung=rung, stage=stage, position=position)
                for position, (rung, stage, _, run) in enumerate(runs)
            ],
        )
        record = ImportRecord(
            sources=(ReadSource(place="runs.csv", tracker=table.from_, runs=len(runs)),),
            new=len(runs),
            changed=0,
            equal=0,
            vanished=0,
            cautions=tuple(cautions),
        )
        ledger.event(IMPORTED, "imported", msgspec.to_builtins(record), ladder=instance.key)


def _with_settings(rung: planning.ResolvedRung, settings: Mapping[str, Mapping[str, Any]]) -> planning.ResolvedRung:
    """A rung with the settings that its runs share, and the differences from its base."""
    own = settings[rung.name]
    base = {} if rung.on is None else settings[rung.on]
    differences = tuple(
        Difference(f"settings.{name}", base.get(name), value, "imported from runs.csv (csv)")
        for name, value in own.items()
        if rung.on is not None and base.get(name) != value
    )
    assert isinstance(rung.config, ImportedConfig)
    config = structs.replace(rung.config, settings=dict(own))
    return structs.replace(rung, config=config, differences=differences)


def _at(run: ImportedRun, step: int) -> ImportedRun:
    """A run whose result, if it has one, is of this step."""
    return run if run.result is None else structs.replace(run, result={**run.result, "best_step": float(step)})


def _run(
    plan: planning.Plan,
    rung: str,
    stage: str,
    seed: int,
    end: float | str | None,
    settings: Mapping[str, Any],
    items: ItemResults | None,
) -> ImportedRun:
    """A run that was made for a rung, with the score `end` at its last step of 20."""
    table = plan.recipe.imported
    assert table is not None
    name = f"{rung}-{seed}" if stage == "train" else f"{rung}-{stage}-{seed}"
    config = ImportedConfig(
        task=plan.recipe.task,
        origin=Origin(tracker=table.from_, project="runs", run=name),
        reading=table.reading,
        settings={**settings, "seed": seed},
        seed=seed,
    )
    test, validation = table.result, f"val/{table.name}"
    is_done = isinstance(end, float)
    steps = np.array([10, 20] if is_done else [10])
    values = np.array([end / 2, end]) if isinstance(end, float) else np.array([math.nan])
    states = {"killed": "interrupted"} if isinstance(end, str) else {}
    return ImportedRun(
        config=config,
        state="done" if is_done else "diverged" if end is None else states.get(str(end), "failed"),
        result={test: end, validation: end} if isinstance(end, float) else None,
        error=end if isinstance(end, str) else None,
        step=20 if is_done else 10,
        digest="sha256:" + hashlib.sha256(f"{name} {end} {settings}".encode()).hexdigest(),
        origin={
            "tracker": table.from_,
            "project": "runs",
            "run": name,
            "title": "CSV",
            "name": f"name of {name}",
            "place": "runs.csv",
            "state": "finished" if is_done else str(end),
            "code": "0123abcd",
            "data": "digits-v2",
        },
        curves={test: (steps, values), validation: (steps, values)},
        items={test: items} if items is not None and is_done else {},
        started_at=1_700_000_000.0,
        ended_at=1_700_000_060.0,
    )

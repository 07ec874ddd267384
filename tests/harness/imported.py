"""Imported runs in a ledger, as an import leaves them there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from lrurun.config import planning
from lrurun.config.fingerprint import fingerprint
from lrurun.config.resolve import Difference
from lrurun.config.runs import PlannedRun
from lrurun.config.schema import Execution, ImportedConfig, Origin
from lrurun.instances import documents
from lrurun.instances.import_record import IMPORTED, Caution, ImportRecord, ReadSource
from lrurun.items import ItemResults
from lrurun.ledger import values
from lrurun.ledger.ledger import Ledger

OWNER = values.Owner(host="here", boot="b", namespace="n", pid=1, pid_started=1.0)
TABLE = """\
source = ["runs.csv"]
from = "csv"
metric = "test_acc"
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
) -> None:
    """Adds the runs of a file that `write` wrote.

    Args:
        scores: as `SCORES`.
        cautions: of the import.
        more: rung -> further settings of its runs.
        items: rung -> the per-item results of its runs.
        tried: rung -> the scores of runs that only chose its settings.
    """
    plan = planning.make(str(file), imports=False)
    table = plan.recipe.imported
    assert table is not None
    shared = {rung: {"norm": rung, "lr": 0.1, **(more or {}).get(rung, {})} for rung in scores}
    plan = structs.replace(plan, rungs=tuple(_with_settings(rung, shared) for rung in plan.rungs))
    metric = table.name

    def planned(rung: str, seed: int, stage: str, settings: Mapping[str, Any]) -> PlannedRun:
        index = list(scores).index(rung)
        config = ImportedConfig(
            task=plan.recipe.task,
            origin=Origin(tracker=table.from_, project="runs", run=f"{rung}-{stage}-{seed}"),
            reading=table.reading,
            settings=dict(settings),
            seed=seed,
        )
        return PlannedRun(
            fingerprint=fingerprint(config),
            kind="imported",
            task=plan.recipe.task,
            rung=rung,
            stage=stage,
            seed=seed,
            steps=0,
            config=config,
            execution=Execution(),
            sources={f"settings.{name}": "imported from runs.csv (csv)" for name in settings},
            position=100 * index + seed,
        )

    ends: dict[str, tuple[str, int, float | str | None]] = {}
    runs = []
    for rung, found in scores.items():
        for seed, end in enumerate(found):
            runs.append(run := planned(rung, seed, "train", shared[rung]))
            ends[run.fingerprint] = rung, seed, end
        for seed, score in enumerate((tried or {}).get(rung, ())):
            runs.append(run := planned(rung, seed, "tune", {**shared[rung], "lr": 0.01}))
            ends[run.fingerprint] = rung, seed, score
    with Ledger.open(ledger_path) as ledger:
        instance = ledger.add_ladder(
            plan.ladder.name, plan.recipe.task, None, plan.spec, plan.short_name, kind="imported"
        )
        documents.record(ledger, instance, plan)
        ledger.enqueue(instance.key, runs)
        while held := ledger.hold(instance.key, OWNER, environment={}):
            rung, seed, end = ends[held.run.fingerprint]
            if isinstance(end, str):
                ledger.finish(held, "interrupted" if end == "killed" else "failed", error=end, step=10)
                continue
            if end is None:
                ledger.finish(held, "diverged", step=10)
                continue
            curve = [(step, f"{split}/{metric}", end * step / 20) for step in (10, 20) for split in ("val", "test")]
            ledger.record(held, curve, 20, score=f"val/{metric}")
            ran = {} if items is None else {f"test/{metric}": items[rung][seed]}
            ledger.finish(held, "done", result={f"test/{metric}": end, f"val/{metric}": end}, step=20, items=ran)
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

"""Finished runs of a user's program that nobody started."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from lrurun.config.runs import InstanceSpec, PlannedRun
from lrurun.config.schema import Execution, ProgramConfig, recorded
from lrurun.ledger.ledger import Ledger
from tests.harness.stores import take

Points = Mapping[str, Sequence[tuple[int, float]]]


def add_ladder(ledger: Ledger) -> str:
    """The key of an instance of a ladder whose runs are of a program."""
    return ledger.add_ladder("own", "toy", None, InstanceSpec()).key


def record(
    ledger: Ledger,
    key: str,
    settings: Mapping[str, Any],
    *,
    seed: int = 0,
    rung: str = "first",
    curves: Points | None = None,
    result: Mapping[str, float] | None = None,
    files: Mapping[str, str] | None = None,
    error: str | None = None,
) -> str:
    """Adds a run with these settings, curves and results; the run's id."""
    table = {
        "task": "toy",
        "program": {"command": ["python", "toy.py"], "metric": "val/accuracy", "files": dict(files or {})},
        "settings": dict(settings),
        "seed": seed,
    }
    config = recorded(table)
    assert isinstance(config, ProgramConfig)
    [run] = ledger.enqueue(
        key,
        [
            PlannedRun(
                fingerprint="sha256:" + hashlib.sha256(json.dumps([rung, table]).encode()).hexdigest(),
                kind="program",
                task="toy",
                rung=rung,
                stage="train",
                seed=seed,
                steps=0,
                config=config,
                execution=Execution(),
                sources={},
                position=seed,
            )
        ],
    )
    held = take(ledger, key)
    rows = [(step, name, value) for name, points in (curves or {}).items() for step, value in points]
    last = max((step for step, _, _ in rows), default=1)
    if rows:
        ledger.rewind(held, 0)
        ledger.record(held, rows, last)
    results = {"val/accuracy": 0.5, "test/accuracy": 0.5, **(result or {})}
    ledger.finish(held, "diverged" if error else "done", result=results, step=last, error=error)
    return run.id

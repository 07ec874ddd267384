"""Runs as an import gives them to a ledger, without a tracker."""

from __future__ import annotations

from typing import Any

import numpy as np

from lrurun.config.runs import InstanceSpec
from lrurun.config.schema import ImportedConfig, Origin, Reading
from lrurun.ledger.imports import ImportedRun, Member
from lrurun.ledger.ledger import Ledger

READING = Reading(metric="test_acc")


def imported(number: int = 0, digest: str = "a", **fields: Any) -> ImportedRun:
    """A run that is done; `settings` are those of its configuration."""
    settings = fields.pop("settings", {"lr": 0.1, "model.norm": "layer", "seed": number})
    config = ImportedConfig(
        task=fields.pop("task", "digits"),
        origin=Origin(tracker="mlflow", project="mine", run=f"r{number}"),
        reading=fields.pop("reading", READING),
        settings=settings,
        seed=fields.pop("seed", number),
    )
    steps = np.arange(10, 60, 10)
    curves = {"test/acc": (steps, steps / 100), "train/loss": (steps, 1 / steps)}
    whole: dict[str, Any] = {
        "state": "done",
        "result": {"test/acc": 0.5},
        "step": 50,
        "digest": digest,
        "origin": {"title": "MLflow", "name": f"run {number}"},
        "curves": curves,
    }
    return ImportedRun(config=config, **whole | fields)


def instance(ledger: Ledger, name: str = "mine") -> str:
    """The key of an instance of imported runs."""
    return ledger.add_ladder(name, "digits", None, InstanceSpec(), name, kind="imported").key


def member(run: str, rung: str = "layer", position: int = 0, stage: str = "train") -> Member:
    return Member(run=run, rung=rung, stage=stage, position=position)

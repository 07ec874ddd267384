"""Settings of every optimiser, with what some of them need of the settings that all have."""

from __future__ import annotations

from typing import Any

from lrurun.config.optimizers import OPTIMIZERS, OptimConfig

NEEDED: dict[str, dict[str, Any]] = {
    "schedule_free_adamw": {"schedule": "constant"},
    "prodigy": {"lr": 1.0, "recurrent_factor": 1.0},
}
"""What an optimiser needs of the settings that all have."""


def optim(name: str, **changes: Any) -> OptimConfig:
    common = {"lr": 0.01, "recurrent_factor": 0.5, "weight_decay": 0.05}
    return OPTIMIZERS[name].settings(name=name, **common | NEEDED.get(name, {}) | changes)

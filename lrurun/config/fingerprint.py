"""The fingerprint of a configuration, and which configurations have the same settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from lrurun.config.optimizers import OptimConfig
from lrurun.config.schema import (
    Config,
    Execution,
    FixedExecution,
    ImportedConfig,
    LadderConfig,
    RunConfig,
    UncheckedOptim,
    UncheckedSettings,
)
from lrurun.decoding import canonical

CONFIG_VERSION = 1
"""Hashed into every fingerprint: it changes when the meaning of a field or a default changes."""


RATES = ("warmup", "warmup_steps", "schedule", "cooldown", "floor")
"""The settings of `optim` that decide about the learning rate of each step, beside `lr`, and about nothing else."""


def fingerprint(config: LadderConfig) -> str:
    """`sha256:` and 64 hex digits over the canonical JSON of `config`.

    Of an imported run, settings and seed are left out: they are part of its result, which its tracker may change.
    """
    table = canonical(config)
    if isinstance(config, ImportedConfig):
        table = {name: part for name, part in table.items() if name not in ("settings", "seed")}
    document = {"config_version": CONFIG_VERSION, "run": table}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def common_settings(config: Config, without: Sequence[str] = ()) -> dict[str, Any]:
    """The settings that all seeds of a rung share: the canonical configuration less seed and the paths `without`.

    The rung of an imported run follows from a condition, so that its seeds share no more than task and reading.
    """
    if isinstance(config, ImportedConfig):
        return {"task": config.task, "reading": canonical(config.reading)}
    table: dict[str, Any] = canonical(config)
    for path in ("seed", *without):
        *sections, name = path.split(".")
        parent = table
        for section in sections:
            inner = dict(parent.get(section, {}))  # a copy: tables of a configuration stay as they are
            if section in parent:
                parent[section] = inner
            parent = inner
        parent.pop(name, None)
    return table


def same_settings(run: Config, rung: Config, without: Sequence[str] = ()) -> bool:
    """Whether a run has the settings of a rung, apart from its seed and the paths `without`.

    Documents record no defaults, runs record all. Where the code of a recurrence or optimiser is not loaded, so that
    defaults are not known, only what the rung records is compared, beside the digest of the code.
    """
    of_run, of_rung = common_settings(run, without), common_settings(rung, without)
    if isinstance(rung, RunConfig) and isinstance(rung.model.recurrence, UncheckedSettings):
        settings = of_run.get("model", {}).get("recurrence", {})
        of_run["model"]["recurrence"] = {name: settings.get(name) for name in of_rung["model"]["recurrence"]}
    if isinstance(rung, RunConfig) and isinstance(rung.optim, UncheckedOptim):
        optim, common = of_run.get("optim", {}), OptimConfig.__struct_fields__
        of_run["optim"] = {name: optim[name] for name in optim if name in common or name in of_rung["optim"]}
    return of_run == of_rung


def compiled_key(config: RunConfig, execution: Execution) -> str:
    """A key that is equal for runs that may be trained together: they have the same functions and initial values.

    They may differ in their seed, their peak learning rate, and the times at which they are saved.
    """
    return _key(config, execution, [])


def program_key(config: RunConfig, execution: Execution) -> str:
    """A key that is equal for runs with the same compiled functions, apart from those of initial values.

    They may differ as those with the same `compiled_key`, and in settings that decide about initial values or about the
    learning rates of steps alone, and in the number of steps: these are data of the functions.
    """
    initial = [f"model.recurrence.{name}" for name in config.model.recurrence.initial_only]
    return _key(config, execution, [*initial, *(f"optim.{name}" for name in RATES), "train.steps"])


def _key(config: RunConfig, execution: Execution, without: Sequence[str]) -> str:
    options = [getattr(execution, name) for name in (*FixedExecution.__struct_fields__, "devices", "probes")]
    return json.dumps([common_settings(config, ["optim.lr", *without]), *options], sort_keys=True)

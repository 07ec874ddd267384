"""The optimisers: a declaration for each name, without jax, and the registration of optimisers of plug-ins.

A new optimiser needs a declaration in the `DECLARATIONS` of a module of this package, and a line of `_MODULES`.
"""

from __future__ import annotations

import importlib
from functools import partial

from lrurun import plugins
from lrurun.config.optimizers.base import Declaration, OptimConfig
from lrurun.plugins import Registry

__all__ = ["OPTIMIZERS", "Declaration", "OptimConfig"]

_MODULES = {
    "adamw": "adamw",
    "adam": "adamw",
    "sgd": "sgd",
    "lion": "lion",
    "muon": "muon",
    "adopt": "adopt",
    "schedule_free_adamw": "schedule_free",
    "prodigy": "prodigy",
    "lamb": "lamb",
}
"""The value of `optim.name` and the module that declares it."""


def _declaration(name: str, module: str) -> Declaration:
    declarations: list[Declaration] = importlib.import_module(f"{__name__}.{module}").DECLARATIONS
    return next(declaration for declaration in declarations if declaration.name == name)


OPTIMIZERS: Registry[Declaration] = plugins.registry(
    "optimizer", {name: partial(_declaration, name, module) for name, module in _MODULES.items()}
)
"""Name -> declaration, plug-ins last. The module of an optimiser is imported when it is used."""

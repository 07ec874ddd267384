"""The recurrences: a declaration for each kind, without jax, and the registration of recurrences of plug-ins.

A new recurrence needs a declaration in the `DECLARATIONS` of a module of this package, and a line of `_FAMILIES`.
"""

from __future__ import annotations

import importlib
from functools import partial

from lrurun import plugins
from lrurun.config.recurrences.base import Declaration, RecurrenceSettings
from lrurun.plugins import Registry

__all__ = ["KINDS", "Declaration", "RecurrenceSettings"]

_FAMILIES = {
    "attention": "attention",
    "block-diagonal": "block_diagonal",
    "gru": "gru_lstm",
    "lstm": "gru_lstm",
    "dense": "rnn",
    "diagonal": "lru",
    "dlr": "dlr",
    "dss": "dss",
    "mingru": "min_gru",
    "minlstm": "min_gru",
    "hgrn": "hgrn",
    "rg-lru": "rg_lru",
    "rotrnn": "rotrnn",
    "s4": "s4",
    "s4d": "s4d",
    "s5": "s5",
    "s6": "s6",
    "sgconv": "sgconv",
}
"""The value of `model.recurrence.kind` and the module that declares it."""


def _declaration(kind: str, family: str) -> Declaration:
    module = importlib.import_module(f"{__name__}.{family}")
    declarations: list[Declaration] = module.DECLARATIONS
    return next(declaration for declaration in declarations if declaration.kind == kind)


KINDS: Registry[Declaration] = plugins.registry(
    "recurrence", {kind: partial(_declaration, kind, family) for kind, family in _FAMILIES.items()}
)
"""Kind -> declaration, plug-ins last. The module of a family is imported when one of its kinds is used."""

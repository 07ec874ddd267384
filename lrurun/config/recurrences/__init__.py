"""The recurrences: a declaration for each kind, without jax, and the registration of those of plug-ins.

A family is a module of this package with `DECLARATIONS`; it needs no other entry.
"""

from __future__ import annotations

import importlib
import pkgutil

from lrurun import plugins
from lrurun.config.recurrences.base import Declaration, RecurrenceSettings

__all__ = ["KINDS", "Declaration", "RecurrenceSettings"]

KINDS: dict[str, Declaration] = plugins.registry("recurrence")
"""By the value of `model.recurrence.kind`, in alphabetical order of the modules, those of plug-ins last."""

for _name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    _module = importlib.import_module(f"{__name__}.{_name}")
    KINDS.update({one.kind: one for one in getattr(_module, "DECLARATIONS", ())})

"""The registration of recurrences of plug-ins: `lrurun.recurrence`."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from lrurun import plugins
from lrurun.config import plugin_settings
from lrurun.config.recurrences.base import Declaration, RecurrenceSettings
from lrurun.errors import UsageError

C = TypeVar("C", bound=type)


@overload
def recurrence(name: str) -> Callable[[C], C]: ...
@overload
def recurrence(name: C) -> C: ...
def recurrence(name: str | C) -> Callable[[C], C] | C:
    """Registers a subclass of `lrurun.Recurrence` as `model.recurrence.kind = name`; a class decorator.

    `@lrurun.recurrence("name")`, or `@lrurun.recurrence` with the name in the class's attribute `name`.

    Its inner class `Settings`, a `msgspec.Struct` whose fields all have defaults, has the other keys of
    `[model.recurrence]`; `self.settings` then has their values. Without that class, there are no settings.

    Raises:
        UsageError: the name is taken or missing, the class is no subclass or has abstract methods, or its settings do
            not fit TOML.
    """
    return plugins.decorator(name, _register)


def _register(name: str, cls: C) -> C:
    base = pkgutil.resolve_name("lrurun.nn.recurrences.base:Recurrence")

    def declaration(_: plugins.Source) -> Declaration:
        return Declaration(settings=_settings(name, cls), implementation=cls)

    plugins.register("recurrence", name, declaration, cls, base)
    return cls


def _settings(name: str, cls: Any) -> type[RecurrenceSettings]:
    """The type of the settings of a kind: the fields of its `Settings`, with its tag."""
    bases = plugin_settings.declared_bases("recurrence", name, cls, RecurrenceSettings)
    if "kind" in bases[0].__struct_fields__:
        raise UsageError(f"recurrence {name!r}: Settings has a field 'kind', which is the name itself", "rename it")
    settings: type[RecurrenceSettings] = plugin_settings.settings_of(
        "recurrence",
        name,
        cls,
        bases,
        namespace=_causal_fits(name, bases) if cls.causal_only else {},
        tag_field="kind",
        tag=name,
    )
    return settings


def _causal_fits(name: str, bases: Sequence[Any]) -> dict[str, Any]:
    """The method `fits` of a causal kind, which also refuses bidirectional models."""
    inner = next(base.fits for base in bases if hasattr(base, "fits"))

    def fits(self: Any, *, width: int, state: int, bidirectional: bool) -> None:
        if bidirectional:
            raise ValueError(f'bidirectional must be false with kind = "{name}", which is causal only')
        inner(self, width=width, state=state, bidirectional=bidirectional)

    return {"fits": fits}

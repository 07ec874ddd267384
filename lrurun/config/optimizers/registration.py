"""The registration of optimisers of plug-ins: `lrurun.optimizer`."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

import msgspec
from msgspec import Struct

from lrurun import plugins
from lrurun.config import plugin_settings
from lrurun.config.optimizers.base import Declaration, OptimConfig
from lrurun.errors import UsageError

C = TypeVar("C", bound=type)

_REQUIRED = ("name", "lr", "recurrent_factor", "weight_decay")
"""The settings of a table that have no default: with one, the name would be left out of fingerprints and documents."""


@overload
def optimizer(name: str) -> Callable[[C], C]: ...
@overload
def optimizer(name: C) -> C: ...
def optimizer(name: str | C) -> Callable[[C], C] | C:
    """Registers a subclass of `lrurun.Optimizer` as `optim.name = name`; a class decorator.

    `@lrurun.optimizer("name")`, or `@lrurun.optimizer` with the name in the class's attribute `name`.

    Its inner class `Settings`, a `msgspec.Struct` whose fields all have defaults, has further keys of `[optim]`;
    `self.settings` then has their values, beside those that every optimiser has. Without that class, there are none.

    Raises:
        UsageError: the name is taken or missing, the class is no subclass or has abstract methods, or its settings do
            not fit TOML, or have names that every optimiser has.
    """
    return plugins.decorator(name, _register)


def _register(name: str, cls: C) -> C:
    base = pkgutil.resolve_name("lrurun.training.optimizers.base:Optimizer")

    def declaration(_: plugins.Source) -> Declaration:
        return Declaration(name=name, settings=_settings(name, cls), implementation=cls)

    plugins.register("optimizer", name, declaration, cls, base)
    return cls


def _settings(name: str, cls: Any) -> type[OptimConfig]:
    """The type of the table of an optimiser: what every table has, its name, and the fields of its `Settings`."""
    *declared, base = plugin_settings.declared_bases("optimizer", name, cls, OptimConfig)
    own = declared[0] if declared else base
    if clashing := [field for field in _own_fields(own) if field in OptimConfig.__struct_fields__]:
        hint = "leave it out: it is applied to the direction of each optimiser, the same for all"
        raise UsageError(
            f"optimizer {name!r}: Settings has {', '.join(clashing)}, which every [optim] has",
            "rename it: the name is that of the decorator" if "name" in clashing else hint,
        )
    with plugin_settings.usable("optimizer", name):
        fields = _fields(name, declared[0]) if declared else []
    settings: type[OptimConfig] = plugin_settings.settings_of(
        "optimizer",
        name,
        cls,
        [base],  # two structs with fields cannot both be bases
        fields=[("name", Literal[name]), *fields],
        namespace=_methods(declared[0]) if declared else {},
        required=_REQUIRED,
    )
    return settings


def _own_fields(settings: type) -> list[str]:
    """The fields that a plug-in itself declares: its `Settings` may extend those of an optimiser of lrurun."""
    classes = [cls for cls in settings.__mro__ if cls.__module__.partition(".")[0] not in ("lrurun", "msgspec")]
    return list(dict.fromkeys(field for cls in classes for field in inspect.get_annotations(cls)))


def _fields(name: str, declared: type[Struct]) -> list[tuple[str, Any, Any]]:
    """Name, type and default of the fields of a plug-in's `Settings`."""
    fields = []
    for field in msgspec.structs.fields(declared):
        if field.required:
            raise UsageError(f"optimizer {name!r}: setting {field.name} has no default", "give it one")
        if field.default is msgspec.NODEFAULT:
            fields.append((field.name, field.type, msgspec.field(default_factory=field.default_factory)))
        else:
            fields.append((field.name, field.type, field.default))
    return fields


def _methods(declared: type[Struct]) -> dict[str, Any]:
    """The methods and properties of a plug-in's `Settings`, whose `__post_init__` adds to the rules of every table."""
    own = getattr(declared, "__post_init__", None)
    methods = {
        name: value
        for name, value in vars(declared).items()
        if not name.startswith("__") and (inspect.isfunction(value) or isinstance(value, property))
    }
    if own is None:
        return methods

    def check(self: Any) -> None:
        OptimConfig.__post_init__(self)
        own(self)

    return {**methods, "__post_init__": check}

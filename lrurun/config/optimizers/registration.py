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
T = TypeVar("T", bool, str)

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
        return Declaration(
            name=name,
            settings=_settings(name, cls, averages_itself=bool(_evaluates(cls, base))),
            implementation=cls,
            is_decay_in_gradient=_attribute(name, cls, "decay_in_gradient", bool),
            title=_attribute(name, cls, "title", str),
            source=_attribute(name, cls, "source", str),
            evaluates=_evaluates(cls, base),
        )

    plugins.register("optimizer", name, declaration, cls, base)
    return cls


def _evaluates(cls: Any, base: Any) -> str:
    """What a class evaluates, for texts; empty for the parameters that train."""
    return "" if cls.evaluated is base.evaluated else "parameters that its optimiser computes"


def _attribute(name: str, cls: Any, attribute: str, type_: type[T]) -> T:
    """The value of an attribute of a class. Raises UsageError for one of another type."""
    value = getattr(cls, attribute)
    if not isinstance(value, type_):
        expected = {bool: "True or False", str: "a string"}[type_]
        raise UsageError(
            f"optimizer {name!r}: {attribute}: expected {expected}, found {value!r}", f"change {attribute}"
        )
    return value


def _settings(name: str, cls: Any, *, averages_itself: bool) -> type[OptimConfig]:
    """The type of the table of an optimiser: what every table has, its name, and the fields of its `Settings`."""
    *declared, base = plugin_settings.declared_bases("optimizer", name, cls, OptimConfig)
    own = declared[0] if declared else base
    namespace = _namespace(name, declared[0]) if declared else {}
    if clashing := [entry for entry in (*_own_fields(own), *namespace) if entry in OptimConfig.__struct_fields__]:
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
        namespace={**namespace, "averages_itself": averages_itself},
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


def _namespace(name: str, declared: type[Struct]) -> dict[str, Any]:
    """What a plug-in's `Settings` has beside fields, inherited too: methods, properties and constants of the class.

    Its `__post_init__` adds to the rules of every table.

    Raises:
        UsageError: a method uses `super()`, of a class from which the type of the table is not made.
    """
    inherited = {
        attribute: value
        for cls in reversed(declared.__mro__)
        if cls not in (Struct, object)
        for attribute, value in vars(cls).items()
    }
    entries = {
        attribute: value
        for attribute, value in inherited.items()
        if not attribute.startswith("__") and attribute not in declared.__struct_fields__
    }
    rules = getattr(declared, "__post_init__", None)
    for attribute, value in {**entries, "__post_init__": rules}.items():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if "__class__" in getattr(getattr(function, "__code__", None), "co_freevars", ()):
            raise UsageError(
                f"optimizer {name!r}: {attribute} of its Settings uses super()",
                f"call it by the name of the class, as in Base.{attribute}(self)",
            )
    if rules is None:
        return entries

    def check(self: Any) -> None:
        OptimConfig.__post_init__(self)
        rules(self)

    return {**entries, "__post_init__": check}

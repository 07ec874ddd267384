"""The settings that a class of a plug-in declares in its inner class `Settings`, as the type of a table."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from lrurun.errors import UsageError
from lrurun.plugins import PluginType

S = TypeVar("S", bound=Struct)


def declared_bases(type_: PluginType, name: str, cls: Any, base: type[S]) -> tuple[type[Struct], ...]:
    """The bases of the type of a plug-in's settings: its `Settings`, if it has any, and `base`.

    Raises:
        UsageError: `Settings` is no struct.
    """
    declared = getattr(cls, "Settings", None)
    if declared is None:
        return (base,)
    if isinstance(declared, type) and issubclass(declared, Struct):
        return (declared,) if issubclass(declared, base) else (declared, base)
    raise UsageError(f"{type_} {name!r}: Settings is not a msgspec.Struct", "class Settings(msgspec.Struct): ...")


def settings_of(
    type_: PluginType,
    name: str,
    cls: Any,
    bases: Sequence[type],
    *,
    fields: Iterable[tuple[str, Any] | tuple[str, Any, Any]] = (),
    namespace: Mapping[str, Any],
    required: Collection[str] = (),
    **options: Any,
) -> type[Any]:
    """The type of the settings of a plug-in, frozen and strict. Its own fields all have defaults that fit their types.

    Args:
        fields: name, type and, mostly, default of further fields.
        required: the fields that have no default. Without any, the defaults must fit each other too.
        options: of `msgspec.defstruct`.

    Raises:
        UsageError: a setting has no default, or one that does not fit its type or TOML.
    """
    with usable(type_, name):
        settings = msgspec.defstruct(
            f"{cls.__name__}Settings",
            list(fields),
            bases=tuple(bases),
            module=cls.__module__,
            namespace={"__doc__": inspect.cleandoc(cls.__doc__ or ""), **namespace},
            frozen=True,
            kw_only=True,
            forbid_unknown_fields=True,
            **options,
        )
        for field in msgspec.structs.fields(settings):
            if field.required and field.name not in required:
                raise UsageError(f"{type_} {name!r}: setting {field.name} has no default", "give it one")
            if not field.required:
                default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
                msgspec.convert(msgspec.to_builtins(default), field.type, strict=True)
        if not required:
            msgspec.convert(msgspec.to_builtins(settings()), settings, strict=True)
    return settings


@contextlib.contextmanager
def usable(type_: PluginType, name: str) -> Iterator[None]:
    """Refuses the settings of a plug-in where the block raises because of their types or values."""
    try:
        yield
    except (TypeError, NameError, ValueError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"{type_} {name!r}: its Settings or their defaults cannot be used: {error}",
            "use numbers, strings, booleans and lists, with defaults of the same type",
        ) from None

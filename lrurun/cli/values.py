"""The values of options and arguments, without Pydantic where Typer does not need it.

Typer makes an adapter of Pydantic for each parameter of a command, also for those that are not given. Pydantic takes
longer to import than Typer, and most values are texts, or what a parser of ours makes of them.

This relies on two things in Typer: a parameter makes its value of what was given, or of its default, in a method
`process_value(context, value)`, which also reports what is missing and calls the parameter's callback; and of what an
`Annotated` type holds, the first item beside the type is the `typer.Option` or `typer.Argument`.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

_PREPARED: WeakSet[Any] = WeakSet()
"""The commands whose parameters are as `convert_without_typer` leaves them: a process may parse many lines."""


def convert_without_typer(command: Any, context: Any) -> None:
    """Leaves to Typer only the values of a command's parameters that it has to convert, or to refuse."""
    if command in _PREPARED:
        return
    _PREPARED.add(command)
    hints = typing.get_type_hints(command.callback, include_extras=True)
    for parameter in command.get_params(context):
        # Typer adds flags of its own, for help and completion.
        annotation, *declared = typing.get_args(hints.get(parameter.name)) or (bool,)
        of_one = functools.partial(_value, declared[0].parser if declared else None, _types(annotation))
        parameter.process_value = functools.partial(_processed, parameter, parameter.process_value, of_one)


class _Unknown(Exception):
    """Typer has to convert this value."""


def _processed(
    parameter: Any, by_typer: Callable[[Any, Any], Any], of_one: Callable[[Any], Any], context: Any, value: Any
) -> Any:
    """What Typer's `process_value` returns: the value of a parameter, of the text or the default in `value`."""
    is_list = parameter.multiple or parameter.nargs != 1
    if parameter.required and (value is None or value == ()):
        return by_typer(context, value)
    try:
        if value is None:
            value = () if is_list else None
        else:
            value = [of_one(each) for each in value] if is_list else of_one(value)
    except _Unknown:
        return by_typer(context, value)
    return value if parameter.callback is None else parameter.callback(context, parameter, value)


def _types(annotation: Any) -> tuple[type, ...]:
    """The types in an annotation such as `Optional[list[str]]`."""
    inner = typing.get_args(annotation)
    if not inner:
        return (annotation,) if isinstance(annotation, type) else ()
    return tuple(type_ for each in inner for type_ in _types(each))


def _value(parser: Callable[[str], Any] | None, types: tuple[type, ...], value: Any) -> Any:
    if parser is not None:
        return parser(value)
    if isinstance(value, types):
        return value
    raise _Unknown

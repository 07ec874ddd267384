"""Pickles of a dictionary with lists, numbers, texts and arrays of bytes, read without Python's own unpickler.

A pickle is a program, which may import and call anything. Here only the operations of `_Reader` exist, and the names of
`_NAMES`, each of which stands for something in this file: nothing is imported, and nothing that a file names is called.
Time and memory are bounded by the size of the file. Python's unpickler, restricted to some names, would not do: ten
bytes, which tell it to remember a value under a large number, take gigabytes.
"""

from __future__ import annotations

import math
import pickletools
from typing import Any

import numpy as np
from msgspec import Struct

from lrurun.data.copies.reading import DAMAGED, first_line
from lrurun.errors import LrurunError

_OPERATIONS = 1 << 18
"""The most operations of a pickle: a batch of CIFAR-10 has about 30,000, or 90,000 where Python 3 has written it."""
_NAMES = {
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",  # NumPy 2
    "numpy ndarray": "class of arrays",
    "numpy dtype": "type",
    "_codecs encode": "bytes",  # Python 3 writes bytes so in protocol 2
}
"""Module and name in a pickle -> what is meant."""
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_AXES = 4
"""The most axes of an array."""


class _Name(Struct, frozen=True):
    """A name of `_NAMES`."""

    meaning: str


class _Array(Struct):
    """An array, whose numbers come later than the array itself."""

    numbers: np.ndarray | None = None


class _Type(Struct):
    """The type of an array."""


def table(content: bytes, name: str) -> dict[str, Any]:
    """The dictionary in a pickle of the protocols 2 to 4, of Python 2 or 3.

    Texts of Python 2 are `bytes`, but for the keys. Arrays must be of the type uint8.

    Args:
        name: the pickle's in messages.

    Raises:
        LrurunError: it is truncated or no pickle, or has anything else.
    """
    try:
        unpickled = _Reader(content).read()
    except _Unknown as error:
        message = f"{name}: the pickle has {error}, which published files of this kind do not have; nothing was run"
        raise LrurunError(message, DAMAGED) from None
    except Exception as error:  # pickletools raises several types; so does taking from an empty stack
        raise LrurunError(f"{name}: not a pickle, or a damaged one: {first_line(error)}", DAMAGED) from None
    if not isinstance(unpickled, dict) or not all(isinstance(key, (str, bytes)) for key in unpickled):
        raise LrurunError(f"{name}: expected a pickled dictionary, found {type(unpickled).__name__}", DAMAGED)
    return {
        key.decode("latin-1") if isinstance(key, bytes) else key: value.numbers if isinstance(value, _Array) else value
        for key, value in unpickled.items()
    }


class _Unknown(Exception):
    """An operation, a name or a value that is not read."""


class _Reader:
    """The operations on a stack that make up a pickle."""

    def __init__(self, content: bytes) -> None:
        self._content, self._room = content, len(content)
        self._stack: list[Any] = []
        self._marks: list[int] = []
        """The indices in the stack at which the elements of lists, tuples and dictionaries begin."""
        self._memo: dict[int, Any] = {}

    def read(self) -> Any:
        for number, (operation, argument, _) in enumerate(pickletools.genops(self._content)):
            if operation.name == "STOP":
                return self._stack.pop()
            if number == _OPERATIONS:
                raise _Unknown(f"more than {_OPERATIONS:,} operations")
            self._do(operation.name, argument)
        raise ValueError("it is truncated")

    def _do(self, operation: str, argument: Any) -> None:
        stack, memo = self._stack, self._memo
        match operation:
            case "PROTO" | "FRAME":
                pass
            case "MARK":
                self._marks.append(len(stack))
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append(_CONSTANTS[operation])
            case "BININT" | "BININT1" | "BININT2" | "BINUNICODE" | "SHORT_BINUNICODE" | "BINBYTES" | "SHORT_BINBYTES":
                stack.append(argument)
            case "BINSTRING" | "SHORT_BINSTRING":
                stack.append(argument.encode("latin-1"))
            case "EMPTY_LIST" | "EMPTY_DICT" | "EMPTY_TUPLE":
                stack.append({"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}[operation]())
            case "TUPLE":
                stack.append(tuple(self._marked()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                size = int(operation[-1])
                stack[-size:] = [tuple(stack[-size:])]
            case "APPEND" | "APPENDS":
                values = [stack.pop()] if operation == "APPEND" else self._marked()
                stack[-1].extend(values)
            case "SETITEM" | "SETITEMS":
                pairs = [stack.pop(), stack.pop()][::-1] if operation == "SETITEM" else self._marked()
                stack[-1].update(zip(pairs[::2], pairs[1::2], strict=True))
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "GLOBAL" | "STACK_GLOBAL":
                module_and_name = argument or " ".join([stack.pop(), stack.pop()][::-1])
                if module_and_name not in _NAMES:
                    raise _Unknown(f"the name {module_and_name.replace(' ', '.')[:100]!r}")
                stack.append(_Name(_NAMES[module_and_name]))
            case "REDUCE":
                arguments, name = stack.pop(), stack.pop()
                stack.append(self._made(name.meaning, *arguments))
            case "BUILD":
                state = stack.pop()
                if isinstance(stack[-1], _Array):
                    stack[-1].numbers = _numbers(*state)
                elif not isinstance(stack[-1], _Type):  # what follows a type is about its byte order
                    raise _Unknown("a state of something else than an array")
            case _:
                raise _Unknown(f"the operation {operation}")

    def _marked(self) -> list[Any]:
        """Takes what is above the last mark."""
        start = self._marks.pop()
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def _made(self, what: str, *arguments: Any) -> Any:
        """The result of a call that is permitted."""
        if what == "array":
            return _Array()
        if what == "type":
            if arguments[0] not in ("u1", b"u1"):
                raise _Unknown("numbers of another type than uint8")
            return _Type()
        if what == "bytes" and arguments[1] == "latin1":
            self._room -= len(arguments[0])
            if self._room < 0:  # the same text again and again
                raise _Unknown("texts that are longer than itself")
            return arguments[0].encode("latin-1")
        raise _Unknown("a call of something else")


def _numbers(version: int, shape: tuple[int, ...], dtype: _Type, fortran: bool, data: bytes) -> np.ndarray:
    """The numbers of an array."""
    if not isinstance(dtype, _Type) or not isinstance(data, bytes):
        raise _Unknown("an array of something else than bytes")
    if len(shape) > _AXES or not all(type(size) is int and size >= 0 for size in shape):
        raise _Unknown("an array without a shape")
    if math.prod(shape) != len(data):
        raise ValueError(f"an array of shape {shape} has {len(data):,} bytes")
    return np.frombuffer(data, np.uint8).reshape(shape, order="F" if fortran else "C")

"""The names in conditions, orders and lists of columns, each with the type of its values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from lrurun.config.schema import CELL, KIND, ORIGINS, SETTINGS, is_setting, known_paths, types_of
from lrurun.ledger.columns import FIELDS, METRICS
from lrurun.ledger.values import ValueType


class Names(Mapping[str, ValueType]):
    """Every name with the type of its values: fields, results and settings.

    A recurrence is imported only for a setting of recurrences.
    """

    def __init__(self, metrics: Iterable[str] = (), shares: Collection[str] = ("accuracy",)) -> None:
        """`metrics` are further results; `shares` the metrics that are fractions, and printed in per cent."""
        self._known: dict[str, ValueType] = {name: field.type for name, field in FIELDS.items()}
        for name in (*METRICS, *metrics):
            if is_plain(name):
                self._known[name] = "share" if name.rpartition("/")[2] in shares else "number"

    def __getitem__(self, name: str) -> ValueType:
        if name not in self._known:
            if not is_setting(name) or name.startswith((CELL, SETTINGS, *ORIGINS)):
                raise KeyError(name)
            self._known[name] = _type_of_setting(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._known, *known_paths()]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def is_plain(name: str) -> bool:
    """Whether SQLite finds this name in JSON, where it compares it with a text in which others are escaped."""
    return re.search(r"[^ !#-\[\]-~]", name) is None


def _type_of_setting(path: str) -> ValueType:
    if path == KIND:
        return "text"
    section, _, name = path.rpartition(".")
    return next(type_of(_hints(type_)[name]) for type_ in types_of(section) if name in type_.__struct_fields__)


_hints = cache(get_type_hints)


def type_of(hint: Any) -> ValueType:
    """The type of the values of a setting with this annotation."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        hint = get_args(hint)[0]
    return "truth" if hint is bool else "number" if hint in (int, float) else "text"

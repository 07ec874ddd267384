"""The studies: theory figures of the papers, each with its closed form, its simulation and its checks.

A study is one file of this folder and one line below; `mathematics` has what several of them compute with, `machinery`
what all of them have in common. Modules are imported when a study is asked for.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from lrurun.errors import UsageError, hint_for

if TYPE_CHECKING:
    from lrurun.studies.machinery.study import Study

STUDY: Final = "study"
"""The kind of the runs of studies, and the name of their instances, which belong to no ladder."""
PREFIX = f"{STUDY}:"
"""The beginning of a study's task in the ledger; the name of the study follows."""

_MODULES = (
    "disk",
    "ring",
    "impulse",
    "phase",
    "leak",
    "convolution",
    "powers",
    "gain",
    "memory",
    "landscape",
    "remedy",
    "teacher",
    "bridge",
    "hessian",
    "adam",
    "depth",
    "parametrise",
    "angle",
    "similarity",
    "concentration",
    "norms",
    "reals",
)
"""A module of this package for each study, in the order of lists; its class `STUDY` has the same name."""


def names() -> tuple[str, ...]:
    """The names of all studies."""
    return _MODULES


@cache
def _load(name: str) -> Study[Any]:
    study: Study[Any] = importlib.import_module(f"lrurun.studies.{name}").STUDY
    return study


def every() -> list[Study[Any]]:
    """All studies, in the order of lists."""
    return [_load(name) for name in _MODULES]


def get(name: str) -> Study[Any]:
    """The study of a name or of an alias, as "powers" or "lru-fig8".

    Raises:
        UsageError: there is none, with the nearest known name.
    """
    if name in _MODULES:
        return _load(name)
    aliases = {alias: study for study in every() for alias in study.aliases}
    if name in aliases:
        return aliases[name]
    names = [*_MODULES, *aliases]
    raise UsageError(f"unknown study {name!r}", hint_for(name, names, "studies and their aliases"))


def is_task(task: str) -> bool:
    """Whether a task of the ledger is a study."""
    return task.startswith(PREFIX)


def of_task(task: str) -> Study[Any]:
    """The study whose cells have this task in the ledger, as in "study:powers"."""
    return get(task.removeprefix(PREFIX))

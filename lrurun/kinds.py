"""Kinds of runs: how workers execute runs that are not the training of a model, and how lists describe them.

Runs and instances record their kind. Each kind but "training" is one object of a package of its own, which is imported
when it is asked for: nothing below that package knows it. What a kind has beside that, as the reports of studies, is
called by the packages above it.
"""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from lrurun.ledger.values import Run

_KINDS = {
    "study": "lrurun.studies.machinery.kind:KIND",
    "program": "lrurun.programs.kind:KIND",
    "imported": "lrurun.imported.kind:KIND",
}


def limited(threads: int) -> dict[str, str]:
    """Environment variables that limit the threads of libraries for linear algebra."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    return dict.fromkeys(names, str(threads))


class Kind(ABC):
    """A kind of runs."""

    uses_jax: ClassVar[bool]
    """Whether its workers need the accelerators that jax can use; else, all that there are."""

    @abstractmethod
    def environment(self, threads: int) -> Mapping[str, str]:
        """Environment variables of the workers of its runs, which have so many threads."""

    @abstractmethod
    def execute(self, attempt: Any, stop: Any) -> None:
        """Executes the run of an attempt in a worker, and records its result; or interrupts it at a stop request."""

    def described(self, run: Run) -> str:
        """The settings by which progress and lists name a run; empty where rung and seed do."""
        return ""

    def settings(self) -> Mapping[str, Any]:
        """Dotted path -> type of the settings that its runs can have, beside settings of trainings."""
        return {}


def of(kind: str) -> Kind | None:
    """The kind that a run or an instance records; None for trainings."""
    of_kind: Kind | None = pkgutil.resolve_name(_KINDS[kind]) if kind in _KINDS else None
    return of_kind


def every() -> list[Kind]:
    """All kinds but trainings."""
    return [pkgutil.resolve_name(name) for name in _KINDS.values()]

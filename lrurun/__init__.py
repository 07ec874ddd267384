"""Named ablation ladders between a tanh RNN and the Linear Recurrent Unit: the version, and what extends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import os

    from lrurun.trained import Trained

__version__ = "0.1.0"

_C = TypeVar("_C", bound=type)


def load(
    run: str,
    *,
    ledger: str | os.PathLike[str] | None = None,
    runs_dir: str | os.PathLike[str] | None = None,
    files: Sequence[str | os.PathLike[str]] = (),
) -> Trained:
    """The trained model of a run, by its id or the beginning of one; see `lrurun.trained.load`. This imports jax."""
    from lrurun import trained

    return trained.load(run, ledger=ledger, runs_dir=runs_dir, files=files)


def recurrence(name: str) -> Callable[[_C], _C]:
    """Makes a class the recurrence of that name; see `lrurun.plugins.recurrence`."""
    from lrurun import plugins

    return plugins.recurrence(name)


def task(cls: _C) -> _C:
    """Makes a class a task; see `lrurun.plugins.task`."""
    from lrurun import plugins

    return plugins.task(cls)

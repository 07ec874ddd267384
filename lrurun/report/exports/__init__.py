"""Runs with configuration, curves and results as files of other programs, one module for each format."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from lrurun import files
from lrurun.errors import LrurunError

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import Run

Format = Literal["parquet", "csv", "tensorboard", "mlflow"]
FORMATS: tuple[str, ...] = get_args(Format)

RESULT = "result/"
"""Before the name of a result in formats that have curves alone, so that it is no point of the curve of that name."""


def result_step(run: Run) -> int:
    """The step that the results of a run belong to: that of the best validation score, if it is known."""
    best = (run.result or {}).get("best_step", math.nan)
    return int(best) if math.isfinite(best) else run.step


def write(ledger: Ledger, ids: Sequence[str], format: Format, target: Path) -> None:
    """Writes runs to the new folder `target`, which appears when it is complete.

    Args:
        ids: exact ids of runs.

    Raises:
        LrurunError: `target` exists or cannot be written, or the libraries of the format are not installed.
    """
    check_new(target)
    writer = _writer(format)
    with _named(target), files.atomic(target.absolute()) as partial:
        partial.mkdir()
        writer(ledger, ids, partial, target.absolute())


def _writer(format: Format) -> Callable[[Ledger, Sequence[str], Path, Path], None]:
    """What writes a format: ledger, ids, the folder to write to, and the name that it will have."""
    if format == "tensorboard":
        from lrurun.report.exports import tensorboard

        return tensorboard.write
    if format == "mlflow":
        from lrurun.report.exports import mlflow

        return mlflow.write
    from lrurun.report.exports import tables

    return tables.write_parquet if format == "parquet" else tables.write_csv


def check_new(target: Path) -> None:
    """Checks the name of a new folder.

    Raises:
        LrurunError: it exists already, or cannot be made.
    """
    if target.exists() or target.is_symlink():
        raise LrurunError(f"{target}: exists already, and is not overwritten", "name a new folder")
    check_parent(target)


def check_parent(target: Path) -> None:
    """Checks the folder in which a new one is made.

    Raises:
        LrurunError: it does not exist, or is read-only.
    """
    parent = target.absolute().parent
    if not parent.is_dir():
        raise LrurunError(f"{target}: the folder {parent} does not exist", f"create it: mkdir -p {parent}")
    if not os.access(parent, os.W_OK):
        raise LrurunError(f"{target}: cannot be written: {parent} is read-only for this user", "name another folder")


@contextmanager
def _named(target: Path) -> Iterator[None]:
    """Errors of files as messages that name the target."""
    try:
        yield
    except OSError as error:
        raise LrurunError(f"{target}: {error.strerror or error}", "name another folder, or make room") from None


def missing(error: ModuleNotFoundError, extra: str) -> LrurunError:
    """The error for a library that is not installed."""
    return LrurunError(f"{error.name} is not installed", f"install it: pip install 'lrurun[{extra}]'")

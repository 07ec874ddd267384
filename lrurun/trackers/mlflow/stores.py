"""What the three kinds of MLflow's stores have in common: the runs, settings and points that they give."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from lrurun.trackers import Curve, Value

PARENT = "mlflow.parentRunId"
"""The tag of a nested run with the id of the run around it."""

Tags = dict[str, str]
"""The tags of a run."""


class StoredRun(Struct, frozen=True, kw_only=True):
    """A run as it is in a store, without its metrics."""

    id: str
    experiment: str
    """The id of its experiment."""
    name: str
    status: str
    started_at: float | None
    ended_at: float | None
    """Seconds since 1970."""
    parameters: dict[str, str]
    tags: Tags
    data: str
    """The data sets that were logged as its inputs, as "cifar 2b0eb2e9"."""
    place: str


class Last(Struct, frozen=True):
    """The end of a metric."""

    value: float
    """The newest value by time."""
    step: int
    """Its step."""
    greatest_step: int


def ends(curves: Mapping[str, Curve]) -> dict[str, Last]:
    """The ends of metrics whose points are all known."""
    return {
        name: Last(float(curve.values[-1]), int(curve.steps[-1]), int(np.max(curve.steps)))
        for name, curve in curves.items()
    }


class Store(Protocol):
    """A store, which nothing changes."""

    version: str

    def experiments(self) -> dict[str, str]:
        """Id -> name of the experiments that are not deleted."""

    def parents(self, experiments: Collection[str]) -> dict[str, str]:
        """Nested run of these experiments -> the run around it."""

    def deleted(self, experiments: Collection[str]) -> int:
        """The number of deleted runs of these experiments, where the store tells."""

    def runs(self, experiments: Collection[str]) -> Iterator[StoredRun]:
        """Yields the runs of these experiments that are not deleted, in the order in which they started."""

    def parameters(self, run: str) -> dict[str, str]:
        """The parameters of a run, none if there is no such run."""

    def metrics(self, run: StoredRun, names: Collection[str] | None) -> tuple[dict[str, Last], dict[str, Curve]]:
        """The ends of all metrics of a run, and the points by time of these metrics or of all."""

    def sentences(self) -> list[str]:
        """What was noticed while reading."""

    def close(self) -> None:
        """Closes files and connections."""


def with_infinities(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values of a database, which has the largest number of 64 bits in the place of infinity."""
    values[values == sys.float_info.max] = np.inf
    values[values == -sys.float_info.max] = -np.inf
    return values


def seconds(milliseconds: int | None) -> float | None:
    """A time of MLflow; it has 0 where there is none."""
    return milliseconds / 1000 if milliseconds else None


def typed(text: str) -> Value:
    """The value of a parameter, which MLflow keeps as text.

    It is a whole number, a finite number or a truth value where Python would write that value with the same letters,
    as `3`, `0.001`, `1e-05`, `True`. Everything else stays a text, `010`, `1.10`, `1e-3` and `None` among it, so that
    no two parameters that differ become the same.
    """
    if text in ("True", "False"):
        return text == "True"
    for number in (int, float):
        try:
            value = number(text)
        except ValueError:
            continue
        if repr(value) == text and abs(value) <= sys.float_info.max:
            return value
    return text

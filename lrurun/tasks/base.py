"""What a task is: arrays, lengths, labels, and how stored integers become inputs. No jax here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
from msgspec import Struct

SPLITS = ("train", "validation", "test")


class Spec(Struct, frozen=True, kw_only=True):
    """What a model must know of a task to be built."""

    name: str
    kind: Literal["features", "tokens"]
    """"features": inputs (n, length) or (n, length, features), multiplied by `scale`. "tokens": ids; 0 pads."""
    features: int
    """Input features a step, or the size of the vocabulary."""
    classes: int
    length: int
    scale: float = 1.0
    pair: bool = False
    """Two documents an example, inputs (n, 2, length)."""


class Split(Struct, frozen=True, kw_only=True):
    """One split on disk or in memory."""

    inputs: np.ndarray
    """(n, length[, features]) uint8 or int16, or (n, 2, length) for pairs."""
    labels: np.ndarray
    """(n,) integers below `classes`."""
    lengths: np.ndarray | None = None
    """(n,) or (n, 2) true lengths; None where every example is full."""


class Data(Struct, frozen=True, kw_only=True):
    """A prepared task, verified against its manifest."""

    spec: Spec
    sha256: str
    """Over the digests of all arrays; recorded on every run."""
    train: Split
    validation: Split
    test: Split


class Task(ABC):
    """A data set with a question. Final subclasses say what it is and make its arrays."""

    name: str
    title: str
    version: str
    """The declared version of the data; part of every fingerprint."""
    source: str
    sizes: dict[str, int]
    """Examples per split, as they must be."""
    protocols: tuple[str, ...] = ("holdout",)
    """Ways of selecting a model that the task knows; "paper" where a published habit differs from a held-out split."""

    @abstractmethod
    def spec(self) -> Spec:
        """What a model must know."""

    @abstractmethod
    def make(self) -> dict[str, Split]:
        """The three splits, made from the source."""

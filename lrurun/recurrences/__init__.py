"""The recurrences: what they are called, and how one is built from its settings."""

from __future__ import annotations

from typing import Any

from lrurun.products import Precision
from lrurun.recurrences.base import Params, Recurrence
from lrurun.recurrences.dense import Dense
from lrurun.recurrences.diagonal import Diagonal, decay_and_phase, eigenvalues
from lrurun.recurrences.dlr import DLR, DSS
from lrurun.recurrences.rotrnn import RotRNN
from lrurun.recurrences.s4 import S4
from lrurun.recurrences.s4d import S4D
from lrurun.recurrences.s5 import S5

__all__ = ["DLR", "DSS", "KINDS", "S4", "S4D", "S5", "Dense", "Diagonal", "Params", "Recurrence", "RotRNN"]
__all__ += ["build", "decay_and_phase", "eigenvalues"]

KINDS: dict[str, tuple[type[Recurrence], str]] = {
    "dense": (Dense, "dense real matrix, with tanh, ReLU or no activation"),
    "diagonal": (Diagonal, "complex diagonal, up to the Linear Recurrent Unit"),
    "rotrnn": (RotRNN, "rotations in heads, with a decay each"),
    "dlr": (DLR, "complex diagonal that all channels share, as a convolution"),
    "dss": (DSS, "the same in continuous time, with a step for each channel"),
    "s5": (S5, "one diagonal state space model for all channels"),
    "s4d": (S4D, "a diagonal state space model for each channel"),
    "s4": (S4, "the same with a matrix of rank one beside the diagonal"),
}
"""The `kind` of a settings table -> (class, one line about it); `lrurun.plugins` adds to it."""


def build(
    settings: Any,
    *,
    width: int,
    state: int,
    bidirectional: bool = False,
    backend: str = "auto",
    precision: Precision = "tf32",
) -> Recurrence:
    """The recurrence that `settings`, a tagged table such as `DiagonalRecurrence`, describes.

    `width` is H, `state` N. Raises ValueError where the kind is not known, or the settings do not fit the sizes.
    """
    kind = settings.__struct_config__.tag
    if kind not in KINDS:
        raise ValueError(f"recurrence kind must be one of {', '.join(KINDS)}, found {kind!r}")
    settings.fits(width=width, state=state, bidirectional=bidirectional)
    return KINDS[kind][0](
        settings, width=width, state=state, bidirectional=bidirectional, backend=backend, precision=precision
    )

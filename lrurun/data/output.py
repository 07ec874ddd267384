"""What a model predicts: classes or real values, for each sequence or for its positions."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Output(Struct, frozen=True, kw_only=True):
    """The outputs of a task, their loss, and where they are. The default: one class for each sequence.

    Labels are (n,) for sequences, of real values (n, size) with `size` = `Spec.classes`. For positions they are (n, P),
    or (n, P, size): those of the last P of L positions, so that P = L labels all of them. Positions without a label
    have -1 as class, or NaN as value.
    """

    loss: Literal["cross-entropy", "squared-error"] = "cross-entropy"
    """"cross-entropy": labels are integers below `Spec.classes`. "squared-error": real values. It is the mean over the
    labels of a batch."""
    at: Literal["sequence", "positions"] = "sequence"
    labelled: int | None = None
    """For positions: at most this many of an example have a label, and only these are computed; None: all P are."""
    balanced: bool = False
    """Whether each class has the same weight in the training loss of a batch: the inverse of its count."""

    def __post_init__(self) -> None:
        if self.labelled is not None and (self.at == "sequence" or self.labelled < 1):
            raise ValueError(f'labelled = {self.labelled}: at least 1, with at = "positions"')
        if self.balanced and self.loss != "cross-entropy":
            raise ValueError('balanced = true needs loss = "cross-entropy"')

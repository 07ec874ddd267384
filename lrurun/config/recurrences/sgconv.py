"""The settings of SGConv."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from lrurun.config.recurrences.base import Declaration, KernelLength, RecurrenceSettings

Decay = Annotated[float, Meta(gt=0, le=1)]


class SGConvSettings(RecurrenceSettings, frozen=True, kw_only=True, tag="sgconv"):
    """y = k * u + D u for each channel, with a kernel k of N numbers for each of several scales (Li et al. 2022)."""

    alpha_min: Decay = 0.5
    alpha_max: Decay = 0.5
    """Scale number i is multiplied by alpha^i. The alpha of the channels lie between the two."""
    train_alpha: bool = False
    """Whether alpha is trained, as in the code of DLR's paper; in that of SGConv's it is not."""
    init: Literal["one", "state"] = "one"
    """Standard deviation of the initial numbers: 1, or 1 / N as in DLR's paper. The norm of the kernel is 1 in both, so
    that they differ in how fast it trains."""
    kernel_length: KernelLength = 0
    """Length of the kernel in steps, at least that of the sequences; 0: that of the sequences. It determines the number
    of scales."""

    def __post_init__(self) -> None:
        if self.alpha_min > self.alpha_max:
            raise ValueError(
                "alpha_min must not be larger than alpha_max, "
                f"found alpha_min = {self.alpha_min}, alpha_max = {self.alpha_max}"
            )

    def fits_length(self, length: int) -> None:
        if 0 < self.kernel_length < length:
            raise ValueError(
                f"kernel_length must be at least the task's sequences, {length} steps, found {self.kernel_length}"
            )

    def at_length(self, length: int) -> SGConvSettings:
        return msgspec.structs.replace(self, kernel_length=self.kernel_length or length)


DECLARATIONS = (
    Declaration(
        settings=SGConvSettings,
        implementation="lrurun.nn.recurrences.sgconv:SGConv",
        variants={
            "two scales": {"kernel_length": 30},
            "one scale, shorter than N": {"kernel_length": 10},
            "trained decays": {
                "kernel_length": 100,
                "alpha_min": 0.3,
                "alpha_max": 1.0,
                "train_alpha": True,
                "init": "state",
            },
            "no decay": {"kernel_length": 50, "alpha_min": 1.0, "alpha_max": 1.0, "init": "state"},
        },
    ),
)

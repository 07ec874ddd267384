"""The settings of DSS."""

from __future__ import annotations

from typing import Literal

from lrurun.config.recurrences.base import (
    LARGEST_HIPPO,
    Declaration,
    KernelLength,
    RecurrenceSettings,
    Step,
    check_kernel,
    check_steps,
)


class DSSSettings(RecurrenceSettings, frozen=True, kw_only=True, tag="dss"):
    """x' = Lambda x + u for each channel with its own step size, all with the same Lambda (Gupta et al. 2022, DSS)."""

    init: Literal["lin", "hippo"] = "lin"
    """The initial Lambda: -1/2 + i pi n, or with the frequencies of HiPPO-LegS in place of pi n."""
    dt_min: Step = 0.001
    dt_max: Step = 0.1
    """The initial step size of each channel is log-uniform between the two."""
    kernel_length: KernelLength = 0
    """Length of the kernel in steps; 0: as long as the sequence."""

    @property
    def initial_only(self) -> frozenset[str]:
        return frozenset({"init", "dt_min", "dt_max"})

    def __post_init__(self) -> None:
        check_steps(self.dt_min, self.dt_max)

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        if self.init == "hippo" and 2 * state > LARGEST_HIPPO:
            raise ValueError(f'init = "hippo" needs a state of at most {LARGEST_HIPPO // 2}, found state = {state}')

    def fits_length(self, length: int) -> None:
        check_kernel(self.kernel_length, length)


DECLARATIONS = (
    Declaration(
        settings=DSSSettings,
        implementation="lrurun.nn.recurrences.dss:DSS",
        variants={"lin": {}, "hippo, short kernel": {"init": "hippo", "kernel_length": 10}},
    ),
)

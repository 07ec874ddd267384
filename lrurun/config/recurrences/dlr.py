"""The settings of DLR."""

from __future__ import annotations

from typing import Literal

from lrurun.config.recurrences.base import (
    Declaration,
    KernelLength,
    RecurrenceSettings,
    Step,
    check_kernel,
    check_steps,
)


class DLRSettings(RecurrenceSettings, frozen=True, kw_only=True, tag="dlr"):
    """x_k = Lambda x_(k-1) + u_k for each channel, all with the same Lambda (Gupta et al. 2023, DLR)."""

    cast: Literal["real", "imag", "sum", "prod"] = "real"
    """The real kernel made of the complex kernel K: Re K, Im K, their sum, or their product, which is DLR-prod."""
    poles: Literal["complex", "unit", "real"] = "complex"
    """Lambda = exp(-a^2 + i b); with b only, so that |Lambda| = 1; or with a only."""
    weights: Literal["complex", "real"] = "complex"
    phases: Literal["uniform", "normal"] = "uniform"
    """The initial b: 2 pi n / N, or N(0, 1)."""
    dt_min: Step = 0.0005
    dt_max: Step = 0.5
    """The initial a^2 is dt / 2, with dt log-uniform between the two."""
    kernel_length: KernelLength = 0
    """Length of the kernel in steps; 0: as long as the sequence."""

    @property
    def initial_only(self) -> frozenset[str]:
        return frozenset({"phases", "dt_min", "dt_max"})

    def __post_init__(self) -> None:
        check_steps(self.dt_min, self.dt_max)
        if self.poles == "real" and (self.cast, self.weights) != ("real", "real"):
            raise ValueError(
                'poles = "real" needs cast = "real" and weights = "real", because the kernel is real, '
                f'found cast = "{self.cast}", weights = "{self.weights}"'
            )

    def fits_length(self, length: int) -> None:
        check_kernel(self.kernel_length, length)


DECLARATIONS = (
    Declaration(
        settings=DLRSettings,
        implementation="lrurun.nn.recurrences.dlr:DLR",
        variants={
            "": {},
            "imaginary part": {"cast": "imag"},
            "both parts": {"cast": "sum"},
            "product": {"cast": "prod"},
            "unit circle": {"poles": "unit", "phases": "normal"},
            "real weights": {"weights": "real"},
            "real": {"poles": "real", "weights": "real"},
            "short kernel": {"kernel_length": 10},
            "product, short kernel": {"cast": "prod", "kernel_length": 10},
        },
    ),
)

"""The settings of the complex diagonal recurrence, up to the Linear Recurrent Unit."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from msgspec import Meta

from lrurun.config.recurrences.base import Declaration, Fraction, RecurrenceSettings, check_radii


class LRUSettings(RecurrenceSettings, frozen=True, kw_only=True, tag="diagonal"):
    """x_k = lambda x_(k-1) + gamma B u_k with a complex diagonal lambda (Orvieto et al. 2023, sections 3.2 to 3.4)."""

    parametrization: Literal["cartesian", "exponential", "stable-exponential"] = "stable-exponential"
    """The trained parameters: Re and Im of lambda; nu and theta; log nu and theta."""
    phase: Literal["plain", "log"] = "plain"
    """Whether theta itself or its logarithm is trained."""
    r_min: Fraction = 0.0
    r_max: Fraction = 1.0
    max_phase: Annotated[float, Meta(gt=0, le=2 * math.pi)] = 2 * math.pi
    """Upper end of the initial phases, in radians."""
    normalize: bool = False
    """Whether gamma (eq. 7) scales the input."""
    train_gamma: bool = True
    """Whether gamma is trained; otherwise it is sqrt(1 - |lambda|^2) at every step of training (footnote 9)."""
    conjugate: bool = False
    """Whether the N numbers of the state are N/2 and their conjugates, as the eigenvalues of a real matrix are."""
    heads: Annotated[int, Meta(ge=0, le=65536)] = 0
    """Number of decays, each shared by the states of a head; 0: one for each state."""

    @property
    def initial_only(self) -> frozenset[str]:
        return frozenset({"r_min", "r_max", "max_phase"})

    def __post_init__(self) -> None:
        check_radii(self.r_min, self.r_max)
        if self.parametrization == "cartesian" and self.phase == "log":
            raise ValueError('phase = "log" needs an exponential parametrization, found parametrization = "cartesian"')
        if not self.train_gamma and not (self.normalize and self.parametrization == "stable-exponential"):
            raise ValueError(
                'train_gamma = false needs normalize = true and parametrization = "stable-exponential", found '
                f'normalize = {str(self.normalize).lower()}, parametrization = "{self.parametrization}"'
            )
        if self.heads and self.parametrization != "stable-exponential":
            raise ValueError(
                'heads need parametrization = "stable-exponential", '
                f'found parametrization = "{self.parametrization}", heads = {self.heads}'
            )

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        if self.conjugate and state % 2:
            raise ValueError(f"conjugate pairs need an even state, found state = {state}")
        if self.heads and (state // 2 if self.conjugate else state) % self.heads:
            pairs = " into whole pairs" if self.conjugate else ""
            raise ValueError(f"heads must divide state{pairs}, found heads = {self.heads}, state = {state}")


_LRU = {"r_min": 0.9, "r_max": 0.999, "normalize": True}

DECLARATIONS = (
    Declaration(
        settings=LRUSettings,
        implementation="lrurun.nn.recurrences.lru:LRU",
        variants={
            "cartesian": {"parametrization": "cartesian"},
            "exponential": {"parametrization": "exponential"},
            "stable-exponential": {},
            "on a ring": {"r_min": 0.9, "r_max": 0.999},
            "normalised": _LRU,
            "gamma of lambda": _LRU | {"train_gamma": False},
            "small phase": _LRU | {"phase": "log", "max_phase": 0.314},
            "conjugate pairs": _LRU | {"conjugate": True},
            "heads": _LRU | {"conjugate": True, "heads": 4},
        },
    ),
)

"""The settings of the RG-LRU, and of the steps to it from a real LRU."""

from __future__ import annotations

from typing import Literal

from lrurun.config.recurrences.base import Declaration, Fraction, Size, check_radii
from lrurun.config.recurrences.gated import GatedRecurrence, check_elementwise


class RGLRURecurrence(GatedRecurrence, frozen=True, kw_only=True, tag="rg-lru"):
    """x_k = a_k x_(k-1) + m_k i_k u_k with gates r, i and a_k = exp(-8 r_k softplus(Lambda)) (De et al. 2024)."""

    mixing: Literal["elementwise", "dense"] = "elementwise"
    """Whether each feature has a state of its own, which is also the output, or B, C and D mix them, as in the LRU."""
    decay: Literal["softplus", "exponential", "sigmoid"] = "softplus"
    """a with a gate r, which is 1/2 without one: exp(-8 r softplus(Lambda)); exp(-2 r exp(nu_log)), without a gate as
    in the LRU; sigma(-k) of the gate's argument k, without Lambda (Gu and Dao 2023, Theorem 1)."""
    recurrence_gate: bool = True
    input_gate: bool = True
    multiplier: Literal["sqrt", "fixed", "trained", "complement"] = "sqrt"
    """m: sqrt(1 - a_k^2); the same at r = 1/2; trained, starting from that; 1 - a_k. With `negative`, sqrt(1 - a_k^2)
    is that of 2a - 1."""
    init: Literal["code", "paper"] = "code"
    """Of Lambda: exp(-2 softplus(Lambda)) is uniform in [0.9^2, 0.999^2], as in the public code, or
    exp(-8 softplus(Lambda)) in [0.9, 0.999], as in section 2.4: eight times the time constants."""
    gate_fan: Literal["width", "block"] = "width"
    """The variance of the gates' weights: 1 / W, as in the public JAX code, or that over the size of a block."""
    heads: Size = 1
    """Number of blocks of the gates' maps: 10 to 32 in the public models."""
    first: Literal["plain", "normalised"] = "plain"
    """m at the first step of a sequence: 1, as in the public code, or as at every step."""
    complex: bool = False
    """Whether the features are the real and the imaginary parts of half as many numbers (appendix B)."""
    r_min: Fraction = 0.9
    r_max: Fraction = 0.999
    """Of decay = "exponential": the initial a lies between the two, uniform in area, as |lambda| of the LRU."""

    def __post_init__(self) -> None:
        check_radii(self.r_min, self.r_max)
        if self.decay == "sigmoid" and not self.recurrence_gate:
            raise ValueError('decay = "sigmoid" is that of a gate: it needs recurrence_gate = true, found false')
        if self.decay == "sigmoid" and self.multiplier in ("fixed", "trained"):
            raise ValueError(
                f'decay = "sigmoid" has no fixed decay: it needs multiplier = "sqrt" or "complement", '
                f'found "{self.multiplier}"'
            )
        if self.complex and (self.mixing == "dense" or self.decay == "sigmoid" or self.negative):
            raise ValueError(
                'complex = true needs mixing = "elementwise", a decay other than "sigmoid" and negative = false, '
                f'found mixing = "{self.mixing}", decay = "{self.decay}", negative = {str(self.negative).lower()}'
            )

    @property
    def elementwise(self) -> bool:
        return self.mixing == "elementwise"

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        super().fits(width=width, state=state, bidirectional=bidirectional)
        if self.elementwise:
            check_elementwise('mixing = "elementwise"', width, state)
        if self.complex and state % 2:
            raise ValueError(f"complex = true needs an even state, found state = {state}")
        gates = state // 2 if self.complex else state
        if width % self.heads or gates % self.heads:
            raise ValueError(f"heads must divide width and the gates, found heads = {self.heads}, gates = {gates}")


_REAL = {"mixing": "dense", "decay": "exponential", "recurrence_gate": False, "input_gate": False}

DECLARATIONS = (
    Declaration(
        settings=RGLRURecurrence,
        implementation="lrurun.nn.recurrences.rg_lru:RGLRU",
        variants={
            "": {},
            "real LRU": _REAL | {"multiplier": "trained", "first": "normalised"},
            "tied gamma": _REAL | {"multiplier": "fixed"},
            "elementwise": _REAL | {"mixing": "elementwise", "multiplier": "fixed"},
            "no recurrence gate": {"recurrence_gate": False, "heads": 4, "gate_fan": "block"},
            "fixed multiplier": {"multiplier": "fixed", "init": "paper"},
            "dense with gates": {"mixing": "dense", "heads": 4},
            "complement": {"input_gate": False, "multiplier": "complement", "first": "normalised"},
            "sigmoid": {"input_gate": False, "decay": "sigmoid", "multiplier": "complement"},
            "complex": {"complex": True, "heads": 2},
            "negative": {"negative": True},
            "shuffled gates": {"gates": "shuffled"},
            "static gates": {"gates": "static"},
        },
    ),
)

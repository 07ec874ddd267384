"""The settings of the RG-LRU, and of the steps to it from a real LRU."""

from __future__ import annotations

from typing import Literal

from lrurun.config.recurrences.base import Declaration, Fraction, Size, check_radii
from lrurun.config.recurrences.gated import GatedSettings, check_elementwise


class RGLRUSettings(GatedSettings, frozen=True, kw_only=True, tag="rg-lru"):
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
    has 2a - 1 for a."""
    init: Literal["code", "paper", "ring"] = "code"
    """The distribution of the initial Lambda: exp(-2 softplus(Lambda)) is uniform in [0.9^2, 0.999^2], as in the
    public code; exp(-8 softplus(Lambda)) in [0.9, 0.999], as in section 2.4: eight times the time constants; or
    exp(-4 softplus(Lambda)), a for a gate of 1/2, starts as with decay = "exponential"."""
    gate_blocks: Size = 16
    """Number of blocks of the gates' maps: 16 in section 4.1, 10 to 32 in the public code. A gate sees the features of
    its block; with 1 the maps are dense."""
    gate_fan: Literal["block", "width"] = "block"
    """The initial variance of the gates' weights is 1 over the features of a block, as in the text and the public
    PyTorch code, or over all features, as in the public JAX code."""
    first: Literal["plain", "normalised"] = "plain"
    """m at the first step of a sequence: 1, as in the public code, or as at every step."""
    complex: bool = False
    """Whether the features are the real and the imaginary parts of half as many numbers (appendix B)."""
    r_min: Fraction = 0.9
    r_max: Fraction = 0.999
    """For decay = "exponential" and init = "ring": the initial a lies between the two, uniform in area, as |lambda| of
    the LRU."""

    @property
    def initial_only(self) -> frozenset[str]:
        return frozenset({"init", "gate_fan", "r_min", "r_max"})

    def __post_init__(self) -> None:
        check_radii(self.r_min, self.r_max)
        if self.decay == "sigmoid" and not self.recurrence_gate:
            raise ValueError('decay = "sigmoid" is the decay of a gate: it needs recurrence_gate = true, found false')
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
        if (self.recurrence_gate or self.input_gate) and (width % self.gate_blocks or gates % self.gate_blocks):
            raise ValueError(
                f"gate_blocks must divide the width and the number of gates, found gate_blocks = {self.gate_blocks}, "
                f"width = {width}, gates = {gates}"
            )


_REAL = {"mixing": "dense", "decay": "exponential", "recurrence_gate": False, "input_gate": False}

DECLARATIONS = (
    Declaration(
        settings=RGLRUSettings,
        implementation="lrurun.nn.recurrences.rg_lru:RGLRU",
        variants={
            "": {},
            "real LRU": _REAL | {"multiplier": "trained", "first": "normalised"},
            "tied gamma": _REAL | {"multiplier": "fixed"},
            "elementwise": _REAL | {"mixing": "elementwise", "multiplier": "fixed"},
            "softplus": {"recurrence_gate": False, "input_gate": False, "multiplier": "fixed", "init": "ring"},
            "no recurrence gate": {"recurrence_gate": False, "gate_blocks": 4, "gate_fan": "width"},
            "fixed multiplier": {"multiplier": "fixed", "init": "paper", "gate_blocks": 4},
            "dense gates": {"gate_blocks": 1},
            "dense with gates": {"mixing": "dense", "gate_blocks": 4},
            "complement": {"input_gate": False, "multiplier": "complement", "first": "normalised"},
            "sigmoid": {"input_gate": False, "decay": "sigmoid", "multiplier": "complement"},
            "complex": {"complex": True, "gate_blocks": 2},
            "negative": {"negative": True},
            "shuffled gates": {"gates": "shuffled"},
            "static gates": {"gates": "static"},
        },
    ),
)

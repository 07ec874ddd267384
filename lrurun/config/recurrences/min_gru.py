"""The settings of minGRU and minLSTM."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from lrurun.config.recurrences.base import Declaration
from lrurun.config.recurrences.gated import GatedSettings, check_elementwise


class MinimalCellSettings(GatedSettings, frozen=True, kw_only=True):
    """The settings that minGRU, minLSTM and HGRN share."""

    readout: bool = True
    """Whether y = C x + b_C, as in the public code, or x itself."""

    @property
    def elementwise(self) -> bool:
        return not self.readout

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        super().fits(width=width, state=state, bidirectional=bidirectional)
        if not self.readout:
            check_elementwise("readout = false", width, state)


class PositiveCellSettings(MinimalCellSettings, frozen=True, kw_only=True):
    """The settings that minGRU and minLSTM share (Feng et al. 2024)."""

    candidate: Literal["positive", "linear", "input"] = "positive"
    """h~: g(W_h u + b_h) with g(x) = x + 1/2, sigma(x) below 0, which is positive; W_h u + b_h; u itself."""
    form: Literal["plain", "log-space"] = "plain"
    """How the states are computed: by the scan, or, as in the public code, from sums of logarithms."""
    initial: Literal["learned", "zero"] = "learned"
    """The state before the first step: g(h0) with a trained h0, h0 for other candidates; or zero, as in other code."""

    def __post_init__(self) -> None:
        if self.form == "log-space" and (self.negative or self.candidate != "positive"):
            raise ValueError(
                'form = "log-space" has only positive numbers: it needs candidate = "positive" and negative = false, '
                f'found candidate = "{self.candidate}", negative = {str(self.negative).lower()}'
            )

    @property
    def elementwise(self) -> bool:
        return not self.readout or self.candidate == "input"

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        super().fits(width=width, state=state, bidirectional=bidirectional)
        if self.candidate == "input":
            check_elementwise('candidate = "input"', width, state)


class MinGRUSettings(PositiveCellSettings, frozen=True, kw_only=True, tag="mingru"):
    """h = (1 - z) h + z h~ with z = sigma(W_z u + b_z) (Feng et al. 2024, minGRU)."""


class MinLSTMSettings(PositiveCellSettings, frozen=True, kw_only=True, tag="minlstm"):
    """h = f h + i h~ with gates f and i (Feng et al. 2024, minLSTM)."""

    normalised: bool = False
    """Whether f and i are divided by f + i, as in the paper; in the public code an option that is off."""
    forget_bias: Annotated[float, Meta(ge=-100, le=100)] = 3.0
    """Initial bias of f."""

    @property
    def initial_only(self) -> frozenset[str]:
        return frozenset({"forget_bias"})


CONTROLS: dict[str, dict[str, Any]] = {"shuffled gates": {"gates": "shuffled"}, "static gates": {"gates": "static"}}
_VARIANTS: dict[str, dict[str, Any]] = {
    "": {},
    "in log space": {"form": "log-space"},
    "linear candidate": {"candidate": "linear", "initial": "zero"},
    "input as the candidate": {"candidate": "input", "readout": False},
    "negative": {"negative": True, "candidate": "linear"},
    **CONTROLS,
}

DECLARATIONS = (
    Declaration(settings=MinGRUSettings, implementation="lrurun.nn.recurrences.min_gru:MinGRU", variants=_VARIANTS),
    Declaration(
        settings=MinLSTMSettings,
        implementation="lrurun.nn.recurrences.min_gru:MinLSTM",
        variants=_VARIANTS | {"normalised": {"normalised": True, "form": "log-space"}},
    ),
)

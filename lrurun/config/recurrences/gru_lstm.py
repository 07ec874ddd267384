"""The settings of the gated cells, GRU and LSTM."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from lrurun.config.recurrences.base import Declaration, RecurrenceSettings

Steps = Annotated[float, Meta(ge=1, le=1e9)]
StepsOrOff = Annotated[float, Meta(ge=0, le=1e9)]

T_MIN = 2.0


class GatedCellSettings(RecurrenceSettings, frozen=True, kw_only=True):
    """The settings that both cells share: how long they remember with their initial parameters."""

    t_max: StepsOrOff = 0.0
    """Longest initial time constant T in steps, see `lrurun.nn.recurrences.gru_lstm`; 0: no chrono initialisation
    [ours]: Tallec and Ollivier (2018) take the longest dependency of the task, so no number suits all tasks."""
    t_min: Steps = T_MIN
    """Shortest initial time constant in steps, 2 in that paper. Zucchet and Orvieto (2024, appendix C.1) have
    1 / (1 - nu), half of t_max."""

    @property
    def initial_only(self) -> frozenset[str]:
        return frozenset({"t_min", "t_max"})

    def __post_init__(self) -> None:
        if not self.t_max and self.t_min != T_MIN:
            raise ValueError(f"t_min needs t_max, the longest time constant, found t_min = {self.t_min}, t_max = 0")
        if self.t_max and self.t_max < self.t_min:
            raise ValueError(f"t_max must be at least t_min, found t_min = {self.t_min}, t_max = {self.t_max}")


class GRUSettings(GatedCellSettings, frozen=True, kw_only=True, tag="gru"):
    """The gated recurrent unit (Cho et al. 2014), with the reset gate after the product; chrono initialisation."""


class LSTMSettings(GatedCellSettings, frozen=True, kw_only=True, tag="lstm"):
    """The LSTM (Hochreiter and Schmidhuber 1997) with forget gate (Gers et al. 2000); chrono initialisation."""


_VARIANTS: dict[str, dict[str, Any]] = {"": {}, "chrono": {"t_max": 64.0}}

DECLARATIONS = (
    Declaration(settings=GRUSettings, implementation="lrurun.nn.recurrences.gru_lstm:GRU", variants=_VARIANTS),
    Declaration(settings=LSTMSettings, implementation="lrurun.nn.recurrences.gru_lstm:LSTM", variants=_VARIANTS),
)

"""The settings of the cell of HGRN."""

from __future__ import annotations

from typing import Literal

from lrurun.config.recurrences.base import Declaration
from lrurun.config.recurrences.min_gru import CONTROLS, MinimalCellSettings


class HGRNSettings(MinimalCellSettings, frozen=True, kw_only=True, tag="hgrn"):
    """h = l h + (1 - l) SiLU(W_h u + b_h), l = g + (1 - g) sigma(W_z u + b_z) (Qin et al. 2023), real."""

    bound: Literal["layer", "none"] = "layer"
    """The least decay g: trained, rising from layer to layer, initially in equal steps; or zero."""


DECLARATIONS = (
    Declaration(
        settings=HGRNSettings,
        implementation="lrurun.nn.recurrences.hgrn:HGRN",
        variants={"": {}, "no bound": {"bound": "none", "readout": False}, "negative": {"negative": True}, **CONTROLS},
    ),
)

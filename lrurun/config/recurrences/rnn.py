"""The settings of the recurrence with a dense matrix."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from lrurun.config.recurrences.base import Declaration, RecurrenceSettings


class RNNSettings(RecurrenceSettings, frozen=True, kw_only=True, tag="dense"):
    """x_k = activation(A x_(k-1) + B u_k) with a dense real A (Orvieto et al. 2023, eq. 1 and section 3.1)."""

    activation: Literal["tanh", "relu", "identity"] = "identity"
    draw: Literal["normal", "truncated", "remapped"] = "normal"
    """The initial A: N(0, 1/N), whose eigenvalues reach a little beyond the unit circle; the same distribution
    truncated at two standard deviations, whose eigenvalues reach about 0.9; or the first one with |lambda| replaced by
    tanh |lambda|, so that they reach about 0.76 (Zucchet and Orvieto 2024, eq. 133)."""
    radius: Annotated[float, Meta(ge=0, le=10)] = 0.0
    """The spectral radius of the initial A, which is scaled to it after it is drawn; 0: A stays as drawn."""

    @property
    def initial_only(self) -> frozenset[str]:
        return frozenset({"draw", "radius"})


DECLARATIONS = (
    Declaration(
        settings=RNNSettings,
        implementation="lrurun.nn.recurrences.rnn:RNN",
        variants={
            "tanh": {"activation": "tanh"},
            "relu": {"activation": "relu"},
            "identity": {"activation": "identity"},
            "identity, truncated": {"draw": "truncated"},
            "identity, remapped": {"draw": "remapped"},
            "tanh, radius 1.5": {"activation": "tanh", "radius": 1.5},
            "identity, truncated, radius 1": {"draw": "truncated", "radius": 1.0},
        },
    ),
)

"""The settings that all gated and selective recurrences share; each kind is in a file of its own."""

from __future__ import annotations

from typing import Literal

from lrurun.config.recurrences.base import RecurrenceSettings


class GatedSettings(RecurrenceSettings, frozen=True, kw_only=True):
    """x_k = a_k x_(k-1) + b_k with a and b from the input, through gates; see `lrurun.nn.recurrences.gated`."""

    negative: bool = False
    """Whether the decay is 2a - 1, in [-1, 1], in place of a (Grazzi et al. 2024)."""
    gates: Literal["input", "shuffled", "static"] = "input"
    """What the gates see. Controls: "shuffled", the input of another sequence of the batch; "static", zeros, so that
    only their biases act. The parameters are the same."""

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        if bidirectional:
            kind = self.__struct_config__.tag
            raise ValueError(f'bidirectional must be false with kind = "{kind}", which is causal only')


def check_elementwise(subject: str, width: int, state: int) -> None:
    """Raise ValueError where each feature has no state of its own."""
    if state != width:
        raise ValueError(
            f"{subject} needs state = width (times expand with a branch), found state = {state}, width = {width}"
        )

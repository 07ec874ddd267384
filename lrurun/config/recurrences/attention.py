"""The settings of softmax attention."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from lrurun.config.recurrences.base import Declaration, RecurrenceSettings


class AttentionSettings(RecurrenceSettings, frozen=True, kw_only=True, tag="attention"):
    """Softmax attention in place of a recurrence (Vaswani et al. 2017), with rotary positions (Su et al. 2021).

    The baseline "Attention" of the DLR paper (Gupta et al. 2023, section 3.3) and, with `chunk`, its "LocalAttention".
    """

    heads: Annotated[int, Meta(ge=1, le=65536)] = 4
    """Number of heads, each with queries, keys and values of N / heads numbers: 4 in the DLR paper."""
    chunk: Annotated[int, Meta(ge=0, le=2**24)] = 0
    """Length in steps of the chunks of local attention, each of which attends to itself and its neighbours: the
    previous chunk, and also the next one in bidirectional layers. 0: every step attends to the whole sequence."""
    positions: Literal["rotary", "none"] = "rotary"
    """How attention knows positions: by rotations of queries and keys, or not at all."""

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        values = f"found heads = {self.heads}, state = {state}"
        if state % self.heads:
            raise ValueError(f"heads must divide state, {values}")
        if self.positions == "rotary" and state // self.heads % 2:
            raise ValueError(f'positions = "rotary" needs heads of an even size, state / heads, {values}')


DECLARATIONS = (
    Declaration(
        settings=AttentionSettings,
        implementation="lrurun.nn.recurrences.attention:Attention",
        variants={
            "": {},
            "without positions": {"heads": 2, "positions": "none"},
            "local": {"chunk": 5},
        },
    ),
)

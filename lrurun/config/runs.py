"""The runs of a ladder that go to the ledger: their seeds and their order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from lrurun.config.schema import TUNING_SEED, Config, Execution, RunKind
from lrurun.errors import UsageError


class InstanceSpec(Struct, frozen=True, kw_only=True):
    """What distinguishes an instance from others with its ladder, task and profile."""

    set: dict[str, Any] = {}
    """Dotted path -> the value of a changed setting."""
    tune: bool = False
    """Whether learning rates are tuned first."""
    extend: int = 0
    """How many values tuning may add to the grid of each rung."""
    digest: str = ""
    """A digest of the resolved rungs and the design of tuning."""

    @property
    def table(self) -> dict[str, Any]:
        """The fields by their names, as ledgers and keys have them: an instance whose grid is not extended has no field
        for it, as it had none before there was one."""
        table: dict[str, Any] = msgspec.to_builtins(self)
        return table if self.extend else {name: value for name, value in table.items() if name != "extend"}


class PlannedRun(Struct, frozen=True, kw_only=True):
    """A run that a ladder needs, finished or not."""

    fingerprint: str
    kind: RunKind = "training"
    task: str
    rung: str
    stage: str
    """"tune" or "train"."""
    seed: int
    steps: int
    config: Config
    execution: Execution
    sources: dict[str, str]
    """Dotted path -> where its value comes from."""
    position: int
    """The order within the ladder, smaller first, see `pack`."""


POSITIONS = 10_000
"""The number of positions of a rung."""
_FINAL = 5_000
"""The first position of final runs within a rung."""


def pack(rung: int, stage: Literal["tune", "train"], point_or_seed: int) -> int:
    """The position of a run in its ladder, by which workers claim runs in ladder order.

    Args:
        rung: the index of its rung.
        point_or_seed: the index of the point of the grid for a tuning run, the seed for a final run.
    """
    return rung * POSITIONS + (point_or_seed if stage == "tune" else _FINAL + point_or_seed)


def point(position: int) -> int:
    """The index of the point of the grid at which a tuning run lies."""
    return position % POSITIONS


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parses seeds: `3` means 0, 1, 2; `0,4,7` is a list, and so are `4,`, `0-4` (0, 1, 2, 3, 4) and `0-2,7`.

    Raises:
        UsageError: not a number, no seed, a repeated seed, or one reserved for tuning.
    """
    hint = (
        "a number of seeds, as in --seeds 3, or a list with ranges, as in --seeds 0-2,4,7; seed 0 alone is --seeds 0,"
    )
    outside = UsageError(
        f"--seeds {text}: seeds lie between 0 and {TUNING_SEED - 1}", f"those from {TUNING_SEED} on are for tuning runs"
    )
    if not text.strip():
        raise UsageError("--seeds: expected seeds, found an empty text", hint)
    if not re.fullmatch(r"-?[0-9]+(-[0-9]+)?(,-?[0-9]+(-[0-9]+)?)*,?", text, re.ASCII):
        raise UsageError(f"--seeds {text}: expected whole numbers", hint)
    if re.search("[0-9]{10}", text):  # Python does not convert numbers of any length
        raise outside
    if "," in text or "-" in text[1:]:
        seeds = tuple(seed for part in text.removesuffix(",").split(",") for seed in _range(part, text))
    elif int(text) < 1:
        raise UsageError(f"--seeds {text}: at least one seed is needed", hint)
    else:
        seeds = tuple(range(min(int(text), TUNING_SEED + 1)))
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"--seeds {text}: a seed is named twice", hint)
    if min(seeds) < 0 or max(seeds) >= TUNING_SEED:
        raise outside
    return seeds


def _range(part: str, text: str) -> Iterable[int]:
    """The seeds of one part of `text`: a single seed, or the first and the last seed of a range."""
    first, hyphen, last = part.rpartition("-")
    if not hyphen or not first:
        return [int(part)]
    if int(last) < int(first):
        raise UsageError(f"--seeds {text}: the range {part} ends before it begins", f"as in --seeds {last}-{first}")
    return range(int(first), min(int(last), TUNING_SEED) + 1)

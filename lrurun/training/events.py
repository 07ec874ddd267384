"""The events that training yields: small and frozen, each of one run.

`member` is the index of the run among those that are trained together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from lrurun.items import ItemResults
from lrurun.nn.spectra import Spectra
from lrurun.training.compiled import Evaluated, TrainState


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything that a run needs in order to continue, on the host."""

    step: int
    score: float
    """Best validation score so far, negated where lower is better; -inf before the first evaluation."""
    best_step: int
    live: TrainState
    best: Evaluated


class Began(Struct, frozen=True, kw_only=True):
    """All functions are compiled; training starts from `step`."""

    member: int = 0
    step: int
    parameters: int
    compile_seconds: float


class Spectrum(Struct, frozen=True, kw_only=True):
    """Eigenvalues of the recurrences before the first step, and when a run has ended.

    Absent for kinds of recurrence that do not define them.
    """

    member: int = 0
    step: int
    moment: Literal["start", "end"]
    layers: Spectra


class Measured(Struct, frozen=True, kw_only=True):
    """Metrics at `step`. Only those under `machine/` differ from attempt to attempt."""

    member: int = 0
    step: int
    values: dict[str, float]


class Reached(Struct, frozen=True, kw_only=True):
    """A dispatch boundary, where a run may be saved or stopped. `snapshot()` is valid until the next event.

    The dispatch may still be running, and the row of the training curve that ends here may still be to come: a run
    that resumes from the snapshot yields it again.
    """

    member: int = 0
    step: int
    snapshot: Callable[[], Snapshot]


class Ended(Struct, frozen=True, kw_only=True):
    """The last event of a run. `state` is "done", or "diverged" at `step`, the first whose loss was not finite."""

    member: int = 0
    state: Literal["done", "diverged"]
    step: int
    result: dict[str, float]
    """Metrics at the best validation step, and the training speed."""
    items: dict[str, ItemResults] = {}
    """Name of a test score, as "test/accuracy" -> the per-item results, of which it is the mean."""
    item_faults: dict[str, str] = {}
    """Name of a test score -> why those that its metric gives are not used."""
    snapshot: Snapshot


Event = Began | Spectrum | Measured | Reached | Ended

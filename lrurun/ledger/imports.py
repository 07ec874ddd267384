"""Imported runs: they enter the ledger finished, and a changed one as a new generation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun.config.schema import ImportedConfig
from lrurun.ledger.handle import Handle
from lrurun.ledger.values import State

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lrurun.items import ItemResults


class ImportedRun(Struct, frozen=True, kw_only=True):
    """A run that is added to a ledger as it ended elsewhere."""

    config: ImportedConfig
    state: State
    """"done" or "diverged": a result; "failed" or "interrupted": missing."""
    result: dict[str, float] | None
    """The score at the chosen step, as in "test/acc"; "val/acc" of the metric that chose it, and "best_step"."""
    error: str | None = None
    """Why it has no result."""
    step: int
    """The last step."""
    digest: str
    """`sha256:` and 64 hex digits over all that was read of the run: the ledger leaves a run with an equal one as it
    is."""
    origin: dict[str, Any]
    """What `show` says about it: the tracker's title and version, name, state and place of the run, code, data."""
    curves: Mapping[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    """Metric -> steps, which increase, and values."""
    items: Mapping[str, ItemResults] = {}
    """Name of a score -> its per-item results."""
    started_at: float | None = None
    ended_at: float | None = None


class Member(Struct, frozen=True, kw_only=True):
    """The rung and stage of an imported run."""

    run: str
    """The id of the run in the ledger."""
    rung: str
    stage: str
    """"train"; or "tune", where the run was only used to choose settings."""
    position: int


class Imports(Handle):
    """Runs that were made elsewhere, and the rungs that they are counted in."""

    def add_imported(self, runs: Iterable[ImportedRun]) -> dict[str, tuple[str, str]]:
        """Adds runs, each of them whole or not at all, in transactions of many.

        A run that the ledger has with an equal digest stays as it is; one with another digest becomes a new generation,
        which supersedes the old one and takes its place in all instances. Returns fingerprint -> the id of its run, and
        what became of it: "new", "changed" or "equal".
        """
        raise NotImplementedError

    def set_members(self, ladder_key: str, members: Sequence[Member]) -> None:
        """Makes these runs the runs of an instance, in one transaction; runs that it had before and that are not among
        them leave its rungs, and stay in the ledger."""
        raise NotImplementedError

"""Named ablation ladders between a tanh RNN and the Linear Recurrent Unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from lrurun.trained import Trained

__version__ = "0.1.0"


def load(
    run: str, *, ledger: str | os.PathLike[str] | None = None, runs_dir: str | os.PathLike[str] | None = None
) -> Trained:
    """The trained model of a run, by its id or the beginning of one; see `lrurun.trained.load`. This imports jax."""
    from lrurun import trained

    return trained.load(run, ledger=ledger, runs_dir=runs_dir)

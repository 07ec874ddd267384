"""A run's trained model, in Python. This imports jax."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from msgspec import Struct

from lrurun import checkpoint, paths, plugins, tasks
from lrurun.config import Execution, RunConfig
from lrurun.errors import NotFoundError
from lrurun.ledger.store import Ledger
from lrurun.model import Model
from lrurun.train import Programs


class Trained(Struct, frozen=True, kw_only=True):
    """What a run has learned: the parameters of its best validation score."""

    id: str
    config: RunConfig
    step: int
    """Where the score was reached."""
    score: float
    """Best validation accuracy so far; -inf before the first evaluation."""
    model: Model
    params: dict[str, Any]
    stats: dict[str, Any]

    def __call__(self, inputs: Any, lengths: Any = None) -> np.ndarray:
        """Logits (B, classes) of integer inputs as the task has them, (B, L), (B, L, features) or (B, 2, L).

        `lengths` are the true lengths, (B,) or (B, 2) for pairs; None where all is true.
        """
        return np.asarray(_logits(self.model, self.params, self.stats, inputs, lengths))


def _logits(model: Model, params: Any, stats: Any, inputs: Any, lengths: Any) -> jax.Array:
    apply = jax.jit(lambda params, stats, inputs, lengths: model.apply(params, stats, inputs, lengths, train=False)[0])
    logits: jax.Array = apply(params, stats, inputs, lengths)
    return logits


def load(
    run: str,
    *,
    ledger: str | os.PathLike[str] | None = None,
    runs_dir: str | os.PathLike[str] | None = None,
    files: Sequence[str | os.PathLike[str]] = (),
) -> Trained:
    """The model of a run, by its id or the beginning of one, from its newest sound checkpoint.

    Ledger and runs folder are looked for where the commands look for them. `files` are those of the plug-ins that the
    run was trained with; classes that the calling program has registered need none.

    Raises:
        NotFoundError: there is no such ledger or run.
        LrurunError: none of its checkpoints is on disk as it was saved; a plug-in is not loaded, or is another one now.
    """
    for file in files:
        plugins.load(file, named="files")
    places = paths.places(
        None if ledger is None else os.fspath(ledger), runs=None if runs_dir is None else os.fspath(runs_dir)
    )
    opened = Ledger.read(places.ledger)
    if opened is None:
        raise NotFoundError(f"run {run!r}: there is no ledger at {places.ledger}", "name one: ledger=PATH")
    with opened:
        found = opened.run(run)
        entries = opened.checkpoints(found.id, "committed")
    config = plugins.config_of(found.config, f"run {found.id}")
    _, path = checkpoint.newest(found, entries, places.runs)
    task = tasks.get(config.task)
    # only its size matters, which the checkpoint knows: no data need be there
    rows = checkpoint.arrays(path, found.fingerprint)["['params']['encoder']['kernel']"].shape[0]
    spec = task.spec(tasks.options_of(task, config.data), ("",) * rows)
    compiled = Programs(config, Execution(), spec)
    snapshot = checkpoint.restore(path, compiled, found.fingerprint)
    return Trained(
        id=found.id,
        config=config,
        step=snapshot.best_step,
        score=snapshot.score,
        model=compiled.model,
        params=snapshot.best.params,
        stats=snapshot.best.stats,
    )

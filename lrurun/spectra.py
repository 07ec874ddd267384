"""Eigenvalues of a run's recurrences, at initialisation and in its last checkpoint. This imports jax."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lrurun import checkpoint, recurrences, train
from lrurun.config import Execution, RunConfig
from lrurun.errors import LrurunError
from lrurun.ledger.values import Checkpoint, Run
from lrurun.strict import convert
from lrurun.tasks.base import Spec

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger

_LEAF = re.compile(r"\['params'\]\['blocks'\]\['(\d+)'\]\['recurrence'\]\['(\w+)'\]")
"""The name of a recurrence's parameter in a checkpoint."""

# What a recurrence starts with depends on the seed and its own settings: a stand-in for the task will do, without its
# data, of which a vocabulary would have to be read.
_STAND_IN = Spec(name="any", kind="features", features=1, classes=2, length=1)


def initial(run: Run) -> list[np.ndarray]:
    """The eigenvalues of every layer before the first step, a pure function of configuration and seed.

    Raises:
        LrurunError: the kind of recurrence has none.
    """
    # an accelerator may be in use by the very run that is drawn
    jax.config.update("jax_platforms", "cpu")
    config = convert(run.config, RunConfig, f"run {run.id}")
    programs = train.Programs(config, Execution(), _STAND_IN)

    @jax.jit  # so that nothing but the recurrences is computed
    def layers(seed: jax.Array) -> list[dict[str, jax.Array]]:
        return [block["recurrence"] for _, block in _numbered(programs.init(seed).params["blocks"])]

    return _spectra(run, config, layers(jnp.uint32(config.seed)))


def trained(run: Run, checkpoints: Sequence[Checkpoint], folder: Path) -> tuple[int, list[np.ndarray]]:
    """The step of the newest checkpoint on disk that holds what was saved, and its eigenvalues layer by layer.

    Args:
        checkpoints: the committed ones of the run, newest first.
        folder: of all runs.

    Raises:
        LrurunError: there is none, or the kind of recurrence has no eigenvalues.
    """
    jax.config.update("jax_platforms", "cpu")
    config = convert(run.config, RunConfig, f"run {run.id}")
    entry, path = checkpoint.newest(run, checkpoints, folder)
    layers: dict[str, dict[str, Any]] = {}
    for name, value in checkpoint.arrays(path, run.fingerprint).items():
        if found := _LEAF.fullmatch(name):
            layers.setdefault(found[1], {})[found[2]] = value
    return entry.step, _spectra(run, config, [params for _, params in _numbered(layers)])


Layers = list[tuple[complex, ...]]


def before_and_after(run: Run, ledger: Ledger, folder: Path) -> tuple[int, Layers, Layers]:
    """Step of the last checkpoint, and the eigenvalues of each layer before the first step and there.

    Raises:
        LrurunError: as `initial` and `trained` do.
    """
    step, after = trained(run, ledger.checkpoints(run.id, "committed"), folder)
    first, last = ([tuple(layer.tolist()) for layer in layers] for layers in (initial(run), after))
    return step, first, last


def _numbered(layers: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(layers.items(), key=lambda item: int(item[0]))


def _spectra(run: Run, config: RunConfig, layers: Sequence[dict[str, Any]]) -> list[np.ndarray]:
    model = config.model
    recurrence = recurrences.build(model.recurrence, width=model.width, state=model.state)
    found = [recurrence.spectrum(params) for params in layers]
    if any(one is None for one in found):
        kind = type(model.recurrence).__struct_config__.tag
        raise LrurunError(
            f"run {run.id}: the eigenvalues of recurrence {kind!r} are not known", "draw --kind curves instead"
        )
    return [np.asarray(one) for one in found]

"""Saves and restores snapshots with Orbax."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp

from lrurun.errors import LrurunError
from lrurun.training.checkpoint_verification import digest
from lrurun.training.compiled import Compiled, Evaluated, TrainState
from lrurun.training.events import Snapshot

FORMAT = 2
"""Stored in every checkpoint; another number is refused."""


def save(folder: Path, snapshot: Snapshot, fingerprint: str) -> tuple[int, str]:
    """Writes `snapshot` to the new folder `folder`; returns its size in bytes and the digest of its files.

    Raises:
        OSError: no space, no permission.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    tree = {"live": _plain(snapshot.live._asdict()), "best": _plain(snapshot.best._asdict())}
    metadata = {
        "format": FORMAT,
        "fingerprint": fingerprint,
        "step": snapshot.step,
        "score": snapshot.score if math.isfinite(snapshot.score) else None,
        "best_step": snapshot.best_step,
    }
    ocp.save(folder.absolute(), tree, custom_metadata=metadata)
    return digest(folder)


def restore(folder: Path, compiled: Compiled, fingerprint: str) -> Snapshot:
    """The snapshot in `folder`, for the compiled functions of the same configuration.

    Raises:
        LrurunError: the checkpoint belongs to another run, has another format, or other arrays than the
            functions take.
        Exception: any that Orbax raises for unreadable files.
    """
    metadata = _metadata(folder, fingerprint)
    live = compiled.abstract
    best = compiled.abstract_evaluated
    tree: Any = ocp.load(folder.absolute())  # given a target, Orbax converts types and ignores shapes
    score = metadata["score"]
    return Snapshot(
        step=int(metadata["step"]),
        score=-math.inf if score is None else float(score),
        best_step=int(metadata["best_step"]),
        live=TrainState(**fitted(tree["live"], live._asdict(), f"{folder}: live")),
        best=Evaluated(**fitted(tree["best"], best._asdict(), f"{folder}: best")),
    )


def arrays(folder: Path, fingerprint: str) -> dict[str, np.ndarray]:
    """The arrays of `TrainState` in the checkpoint in `folder`, read without a model; see `leaf` for their names.

    Raises:
        LrurunError: the checkpoint belongs to another run, or has another format.
    """
    _metadata(folder, fingerprint)
    tree: Any = ocp.load(folder.absolute())
    return dict(tree["live"])


def fitted(flat: Mapping[str, np.ndarray], abstract: Any, prefix: str) -> Any:
    """The arrays of a checkpoint in the structure of `abstract`, which has their shapes and types.

    Args:
        flat: array by name; see `leaf`.
        prefix: the beginning of the arrays' names in errors: file and part.

    Raises:
        LrurunError: one is missing, is not expected, or has another shape or type.
    """
    expected = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(abstract)}
    hint = "the checkpoint was saved by other code: load it with the version that saved it, or train again with --fresh"
    for name in sorted(expected.keys() | flat.keys()):
        wanted, found = (_form(arrays.get(name)) for arrays in (expected, flat))
        if wanted != found:
            raise LrurunError(f"{prefix}{name}: expected {wanted}, found {found}", hint)
    return jax.tree_util.tree_map_with_path(lambda path, _: flat[jax.tree_util.keystr(path)], abstract)


def _form(array: Any) -> str:
    return "no such array" if array is None else f"{array.dtype} of shape {tuple(array.shape)}"


def leaf(*names: str) -> str:
    """The name in a checkpoint of the array that nested dictionaries hold under `names`."""
    return jax.tree_util.keystr(tuple(jax.tree_util.DictKey(name) for name in names))


def _metadata(folder: Path, fingerprint: str) -> dict[str, Any]:
    metadata = ocp.metadata(folder.absolute()).custom_metadata or {}
    hint = "remove the folder: the run continues from its previous checkpoint, or starts again"
    if metadata.get("format") != FORMAT:
        raise LrurunError(f"{folder}: checkpoint of format {metadata.get('format')}, this lrurun has {FORMAT}", hint)
    if metadata.get("fingerprint") != fingerprint:
        raise LrurunError(f"{folder}: checkpoint of another run, found {metadata.get('fingerprint')}", hint)
    return dict(metadata)


def _plain(tree: Any) -> Any:
    """A flat dictionary of arrays under string keys, which every version of Orbax restores."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}

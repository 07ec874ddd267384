"""Saving and restoring snapshots through Orbax, and the digest that tells whether their bytes are what was saved."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp

from lrurun.errors import LrurunError
from lrurun.ledger.values import Checkpoint, Run
from lrurun.paths import inside
from lrurun.train import Best, Live, Programs, Snapshot

FORMAT = 1
"""Stored in every checkpoint; another number is refused."""


def save(folder: Path, snapshot: Snapshot, fingerprint: str) -> tuple[int, str]:
    """Writes `snapshot` into the new folder `folder`; returns its size in bytes and the digest of its files.

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


def restore(folder: Path, compiled: Programs, fingerprint: str) -> Snapshot:
    """The snapshot in `folder`, for programs of the same configuration.

    Raises:
        LrurunError: the checkpoint belongs to another run, or has another format.
        Exception: whatever Orbax says of unreadable files.
    """
    metadata = _metadata(folder, fingerprint)
    live, best = compiled.abstract()
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), (live, best))
    example = {"live": _plain(zeros[0]._asdict()), "best": _plain(zeros[1]._asdict())}
    tree: Any = ocp.load(folder.absolute(), example)
    score = metadata["score"]
    return Snapshot(
        step=int(metadata["step"]),
        score=-math.inf if score is None else float(score),
        best_step=int(metadata["best_step"]),
        live=Live(**_like(live._asdict(), tree["live"])),
        best=Best(**_like(best._asdict(), tree["best"])),
    )


def arrays(folder: Path, fingerprint: str) -> dict[str, np.ndarray]:
    """What a run trains with, as its checkpoint in `folder` has it: arrays by their place in `Live`, without a model.

    Raises:
        LrurunError: the checkpoint belongs to another run, or has another format.
    """
    _metadata(folder, fingerprint)
    tree: Any = ocp.load(folder.absolute())
    return dict(tree["live"])


def _metadata(folder: Path, fingerprint: str) -> dict[str, Any]:
    metadata = ocp.metadata(folder.absolute()).custom_metadata or {}
    if metadata.get("format") != FORMAT or metadata.get("fingerprint") != fingerprint:
        raise LrurunError(
            f"{folder}: is a checkpoint of another run or format, found {metadata.get('fingerprint')}",
            "remove the folder: the run starts from the checkpoint before, or anew",
        )
    return dict(metadata)


def newest(run: Run, checkpoints: Sequence[Checkpoint], folder: Path) -> tuple[Checkpoint, Path]:
    """The newest of a run's checkpoints that is on disk and holds what was saved, and where it is.

    Args:
        checkpoints: the committed ones of the run, newest first.
        folder: of all runs.

    Raises:
        LrurunError: there is none.
    """
    wrong = ""
    for entry in checkpoints:
        try:
            path = inside(folder, entry.path)
            found = digest(path)[1] if path.is_dir() else None
        except LrurunError as error:
            wrong = wrong or error.message
            continue
        if not path.is_dir():
            wrong = wrong or f"{path} is missing"
        elif found != entry.sha256:
            wrong = wrong or f"{path} does not hold the bytes that were saved"
        else:
            return entry, path
    raise LrurunError(
        f"run {run.id}: no checkpoint to read: {wrong or 'none was saved yet'}",
        "name the folder of its checkpoints with --runs-dir, or train it again with --fresh"
        if wrong
        else f"lrurun show {run.id} tells how far it is",
    )


def digest(folder: Path) -> tuple[int, str]:
    """Bytes of all files below `folder`, and a digest over their names and bytes.

    Raises:
        LrurunError: a link is among them, and could lead anywhere.
    """
    total = 0
    combined = hashlib.sha256()
    everything = sorted(folder.rglob("*"))
    for path in everything:
        if path.is_symlink():
            raise LrurunError(f"{path}: a link in a checkpoint", "it was not saved so, and is not read")
    for path in (p for p in everything if p.is_file()):
        with path.open("rb") as file:
            inner = hashlib.file_digest(file, "sha256").hexdigest()
        total += path.stat().st_size
        combined.update(f"{path.relative_to(folder)}={inner}\n".encode())
    return total, "sha256:" + combined.hexdigest()


def remove(folder: Path) -> None:
    """Removes a checkpoint that is no longer needed, half-written too; one that is gone already is no error."""
    for path in [folder, *folder.parent.glob(f"{folder.name}.orbax-checkpoint-tmp*")]:
        shutil.rmtree(path, ignore_errors=True)


def _plain(tree: Any) -> Any:
    """Leaves as arrays under string keys: what every Orbax version reads back."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def _like(example: Any, flat: dict[str, np.ndarray]) -> Any:
    return jax.tree_util.tree_map_with_path(lambda path, _: flat[jax.tree_util.keystr(path)], example)

"""Prepared data on disk: `.npy` arrays beside a manifest, written whole or not at all, verified when read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from lrurun import __version__
from lrurun.errors import LrurunError
from lrurun.tasks.base import SPLITS, Data, Split, Task

_HINT = "remove the folder, and run the command again: it is made anew"


def manifest(task: Task, data_dir: Path) -> dict[str, Any] | None:
    """The manifest of a prepared task, or None where it is not prepared.

    Raises:
        LrurunError: something stands there that is not this task's data in this version.
    """
    path = data_dir / task.name / "manifest.json"
    try:
        table = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LrurunError(f"{path}: {error.strerror}", "check the data folder and its permissions") from None
    except ValueError as error:
        raise LrurunError(f"{path}: not a manifest: {error}", _HINT) from None
    if not isinstance(table, dict) or not isinstance(table.get("sha256"), dict):
        raise LrurunError(f"{path}: not a manifest: there are no digests in it", _HINT)
    if table.get("task") != task.name or table.get("version") != task.version:
        found = f"{table.get('task')} version {table.get('version')}"
        raise LrurunError(f"{path.parent}: expected {task.name} version {task.version}, found {found}", _HINT)
    return table


def prepare(task: Task, data_dir: Path) -> dict[str, Any]:
    """Makes the data where they are missing; safe to call from several processes at once."""
    existing = manifest(task, data_dir)
    if existing:
        return existing
    target = data_dir / task.name
    work = data_dir / f".{task.name}.{os.getpid()}.tmp"
    try:
        work.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, str] = {}
        for split, content in task.make().items():
            for part in ("inputs", "labels", "lengths"):
                array = getattr(content, part)
                if array is not None:
                    name = f"{split}-{part}"
                    np.save(work / f"{name}.npy", array)
                    arrays[name] = sha256(work / f"{name}.npy")
        table = {
            "task": task.name,
            "version": task.version,
            "source": task.source,
            "counts": task.sizes,
            "sha256": arrays,
            "lrurun": __version__,
        }
        (work / "manifest.json").write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
        try:
            work.rename(target)
        except OSError:
            # another process was first, or something else stands there
            if manifest(task, data_dir) is None:
                raise LrurunError(
                    f"{target}: a folder without a manifest is in the way",
                    "move it away, or choose another folder with --data-dir",
                ) from None
    except OSError as error:
        raise LrurunError(
            f"{error.filename or target}: {error.strerror}",
            "check space and permissions, or choose another folder with --data-dir",
        ) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    found = manifest(task, data_dir)
    assert found is not None
    return found


def load(task: Task, data_dir: Path) -> Data:
    """The prepared arrays, memory-mapped, after their digests and counts were checked.

    Raises:
        LrurunError: missing, changed or incomplete data.
    """
    table = manifest(task, data_dir)
    folder = data_dir / task.name
    if table is None:
        raise LrurunError(f"{folder}: there are no prepared data for {task.name}", f"run: lrurun ladder {task.name}")
    splits: dict[str, Split] = {}
    for split in SPLITS:
        parts: dict[str, np.ndarray] = {}
        for part in ("inputs", "labels", "lengths"):
            name = f"{split}-{part}"
            if name not in table["sha256"]:
                continue
            path = folder / f"{name}.npy"
            try:
                if sha256(path) != table["sha256"][name]:
                    raise LrurunError(f"{path}: not the bytes that the manifest names", _HINT)
                parts[part] = np.load(path, mmap_mode="r", allow_pickle=False)
            except OSError as error:
                raise LrurunError(f"{path}: {error.strerror}", _HINT) from None
        for part in ("inputs", "labels"):
            count = len(parts[part]) if part in parts else 0
            if count != task.sizes[split]:
                raise LrurunError(
                    f"{folder}: {split}-{part}: expected {task.sizes[split]} examples, found {count}", _HINT
                )
        splits[split] = Split(**parts)
    return Data(spec=task.spec(), sha256=digest(table), **splits)


def digest(table: dict[str, Any]) -> str:
    """One digest over those of all arrays."""
    text = "".join(f"{name}={value}\n" for name, value in sorted(table["sha256"].items()))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

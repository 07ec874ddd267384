"""The environment record of an attempt: code version, package versions, machine. Does not import jax."""

from __future__ import annotations

import functools
import hashlib
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from lrurun import machine
from lrurun.runner import node
from lrurun.version import NUMERICS, VERSION

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def record(threads: int) -> dict[str, Any]:
    """The environment that is stored with an attempt when it begins; the device is added once jax is loaded."""
    task = node.task()
    return {
        **({} if task is None else {"node": {"task": task.name, "start": task.start}}),
        "threads": threads,
        "numerics": NUMERICS,
        "code": code(),
        "versions": versions(),
        "machine": {"system": platform.platform(), "cpu": machine.cpu(), "cores": machine.cores()},
    }


@functools.cache
def code() -> dict[str, str]:
    """The version of lrurun and, in a checkout, its commit and a hash of the uncommitted changes to the package."""
    code = {"lrurun": VERSION}
    root = Path(__file__).resolve().parents[2]
    if (root / ".git").exists():
        commit = _git(root, "rev-parse", "HEAD")
        if commit:
            code["commit"] = commit.strip()
            changes = _git(root, "diff", "HEAD", "--", "lrurun")
            if changes:
                code["dirty"] = "sha256:" + hashlib.sha256(changes.encode()).hexdigest()
    return code


@functools.cache
def versions() -> dict[str, str]:
    """Installed versions of Python and of the packages that results depend on, read from their metadata."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return installed


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None

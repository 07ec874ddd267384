"""Where a result came from: code, versions, machine. Nothing here imports jax; versions are read from metadata."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from lrurun import __version__

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


@functools.cache
def code() -> dict[str, str]:
    """The version of lrurun and, in a checkout, its commit and a hash of what is not committed in it."""
    found = {"lrurun": __version__}
    root = Path(__file__).resolve().parent.parent
    if (root / ".git").exists():
        commit = _git(root, "rev-parse", "HEAD")
        if commit:
            found["commit"] = commit.strip()
            changes = _git(root, "diff", "HEAD", "--", "lrurun")
            if changes:
                found["dirty"] = "sha256:" + hashlib.sha256(changes.encode()).hexdigest()
    return found


@functools.cache
def versions() -> dict[str, str]:
    """Installed versions of the packages that results depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Operating system, CPU and how many cores this process may use."""
    return {"system": platform.platform(), "cpu": cpu(), "cores": cores()}


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


@functools.cache
def cpu() -> str:
    """The CPU's model name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


@functools.cache
def accelerators() -> list[str]:
    """NVIDIA devices that an installed CUDA plugin of jax could use, as CUDA_VISIBLE_DEVICES names them.

    Where that variable is set (as Slurm does), those that it names; none on a CPU machine. Imports nothing.
    """
    try:
        metadata.version("jax-cuda13-plugin")
    except metadata.PackageNotFoundError:
        return []
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return sorted((path.name[6:] for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit()), key=int)
    names = (name.strip() for name in given.split(","))
    # CUDA itself stops at the first name that means no device
    return list(itertools.takewhile(lambda name: name not in ("", "-1", "NoDevFiles"), names))


def killed_for_memory() -> int:
    """How many processes Linux has ended for want of memory since it started; 0 where that cannot be told."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)

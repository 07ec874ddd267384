"""The machine that this process runs on: cores, CPU, accelerators. Imports nothing of lrurun, and no jax."""

from __future__ import annotations

import functools
import itertools
import os
import platform
from importlib import metadata
from pathlib import Path


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


@functools.cache
def accelerators() -> list[str]:
    """NVIDIA devices that an installed CUDA plugin of jax could use, as CUDA_VISIBLE_DEVICES names them.

    Where that variable is set (Slurm sets it), the devices that it names; none on a machine without accelerators.
    """
    try:
        metadata.version("jax-cuda13-plugin")
    except metadata.PackageNotFoundError:
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return sorted((path.name[6:] for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit()), key=int)
    names = (name.strip() for name in visible.split(","))
    # CUDA itself stops at the first name that is no device
    return list(itertools.takewhile(lambda name: name not in ("", "-1", "NoDevFiles"), names))


def killed_for_memory() -> int:
    """How many processes Linux has killed since boot because memory ran out; 0 where this is unknown."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)

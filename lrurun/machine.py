"""What this process runs on: cores, CPU, accelerators, its garbage collector. Imports nothing of lrurun, and no jax."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

CORES = "LRURUN_CORES"
"""The environment variable with the number of cores that an engine has given to this process without binding it."""
NOT_ON_CPU = "LRURUN_NOT_ON_CPU"
"""The environment variable of workers with the platforms that JAX_PLATFORMS names, where the CPU is none of them."""


def cores() -> int:
    """Cores that this process may use."""
    try:
        bound = len(os.sched_getaffinity(0))
    except AttributeError:
        bound = os.cpu_count() or 1
    limit = os.environ.get(CORES, "")
    return min(bound, max(1, int(limit))) if limit.isdecimal() else bound


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
    """The NVIDIA devices, if an installed CUDA plugin of jax could use them."""
    try:
        metadata.version("jax-cuda13-plugin")
    except metadata.PackageNotFoundError:
        return []
    return nvidia_devices()


def nvidia_devices() -> list[str]:
    """NVIDIA devices, as CUDA_VISIBLE_DEVICES names them; none on a machine without accelerators.

    Where that variable is set (Slurm sets it), the devices that it names.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return sorted((path.name[6:] for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit()), key=int)
    names = (name.strip() for name in visible.split(","))
    # CUDA itself stops at the first name that is no device
    return list(itertools.takewhile(lambda name: name not in ("", "-1", "NoDevFiles"), names))


def nvidia_model() -> str:
    """The model of the first NVIDIA device."""
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        with contextlib.suppress(OSError):
            if model := re.search(r"^Model:\s*(.+)$", file.read_text(), re.MULTILINE):
                return model[1].strip()
    return "NVIDIA"


def default_jobs(threads: int = 1, devices: int = 1, *, of_programs: bool = False) -> int:
    """How many workers there are without --jobs: as many as accelerators or cores suffice for.

    Args:
        threads: of each run.
        devices: of each run.
        of_programs: whether the runs execute users' programs, which need cores beside accelerators.
    """
    if of_programs:
        most = len(nvidia_devices()) // devices if nvidia_devices() else cores()
        return max(1, min(most, cores() // threads))
    return max(1, len(accelerators()) // devices or cores() // max(threads, devices))


def devices() -> int | None:
    """How many devices jax will have in a process without limits; None where only jax itself knows.

    A CPU counts as one, or as many as XLA_FLAGS or JAX_NUM_CPU_DEVICES make of it.
    """
    platform = os.environ.get("JAX_PLATFORMS", "").split(",")[0]
    if platform != "cpu":
        if listed := accelerators():
            return len(listed)
        if platform or _has_plugin():
            return None
    forced = re.findall(r"--xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    number = os.environ.get("JAX_NUM_CPU_DEVICES", "")
    return int(number) if number.isdigit() and int(number) else int(forced[-1]) if forced else 1


def _has_plugin() -> bool:
    """Whether jax may find other devices than NVIDIA's: TPUs, or devices of a plugin for another platform."""
    plugins = [point for point in entry_points("jax_plugins") if "cuda" not in point.name]
    return bool(plugins) or any(True for _ in metadata.distributions(name="libtpu"))


def entry_points(group: str) -> metadata.EntryPoints:
    """The entry points of a group, of all installed packages, whose files are read once."""
    points: metadata.EntryPoints = _entry_points(tuple(sys.path)).select(group=group)
    return points


@functools.lru_cache(1)
def _entry_points(_path: tuple[str, ...]) -> Any:  # its type differs between versions of Python
    return metadata.entry_points()


def killed_for_memory() -> int:
    """How many processes Linux has killed since boot because memory ran out; 0 where this is unknown."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """A worker's packages are imported within it without searches for garbage: of 300,000 objects nearly all stay.

    Later searches leave out all objects that live at its end, which are never freed: it belongs around imports alone.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()

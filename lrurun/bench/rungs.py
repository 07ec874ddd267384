"""Time and memory of the rungs of a ladder, and short runs of recurrences, in processes of their own. No jax here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from msgspec import Struct

from lrurun import plugins
from lrurun.bench import Process
from lrurun.config.fingerprint import compiled_key
from lrurun.errors import LrurunError, Stopped
from lrurun.instances.measurement import Measurement
from lrurun.paths import cache_dir

if TYPE_CHECKING:
    from lrurun.config.planning import ResolvedRung
    from lrurun.runner.signals import Signals

TOLERANCE = 1e-4
"""The largest relative difference of a device from the CPU that a short run may have. The two forms of the scans differ
by up to 1e-6 on a CPU; a device may round each function of a few more steps in its last digits. Products with the 10
binary digits of tf32 differ by 1e-3."""


class MeasurementDisplay(Protocol):
    """Shows the progress of measurements."""

    def update(self, what: str) -> None: ...

    def found(self, rung: ResolvedRung, measurement: Measurement | LrurunError) -> None: ...


class Measurements:
    """Measurements of rungs, each program once."""

    def __init__(
        self, rungs: Sequence[ResolvedRung], folder: Path, signals: Signals, display: MeasurementDisplay
    ) -> None:
        """Measures the rungs, one after the other, until a signal or the time limit.

        `folder` has the data of their task, if they are prepared.
        """
        self._of: dict[str, Measurement | LrurunError] = {}
        self.stopped: Stopped | None = None
        """Why not all were measured."""

        def progress(rung: ResolvedRung, stage: str) -> None:
            signals.check()
            display.update(f"measuring {rung.name}: {stage}")

        try:
            for rung in rungs:
                if _key(rung) not in self._of:
                    self._of[_key(rung)] = found = _measured(rung, folder, partial(progress, rung))
                    display.found(rung, found)
        except Stopped as stopped:
            self.stopped = stopped

    def by_rung(self, rungs: Sequence[ResolvedRung]) -> dict[str, Measurement | str]:
        """Rung -> its measurement, or why it could not be measured, for each rung that was tried."""
        found = {rung.name: self._of[_key(rung)] for rung in rungs if _key(rung) in self._of}
        return {
            name: error_text(result) if isinstance(result, LrurunError) else result for name, result in found.items()
        }


def error_text(error: LrurunError) -> str:
    """An error of a measurement, in one line."""
    return "; ".join(filter(None, (error.message, error.hint)))


def _key(rung: ResolvedRung) -> str:
    return compiled_key(rung.training, rung.execution)


def _measured(rung: ResolvedRung, folder: Path, progress: Callable[[str], None]) -> Measurement | LrurunError:
    """A rung's measurement, by a process with the environment of a worker: it may run out of memory.

    Raises:
        Stopped: `progress`, which gets what the process does, raised it.
    """
    process = Process(rung.execution.threads, str(cache_dir()), shares=False)
    try:
        answer = process.ask(
            progress,
            do="rung",
            plugins=msgspec.to_builtins(plugins.loaded()),
            config=msgspec.to_builtins(rung.training),
            execution=msgspec.to_builtins(rung.execution),
            folder=str(folder),
        )
        return msgspec.convert(_checked(answer), Measurement)
    except LrurunError as error:
        return error
    finally:
        process.close()


class DeviceCheck(Struct, frozen=True, kw_only=True):
    """A short run of a recurrence on a device, compared with the CPU."""

    kind: str
    result: Literal["ok", "differs", "failed"]
    error: str | None = None
    """The error with which a run failed."""
    difference: float | None
    """The largest relative difference of losses and of gradients; None after an error."""
    steps_per_second: float | None
    """On the device."""

    @property
    def ok(self) -> bool:
        return self.result == "ok"


class DeviceComparison(Struct, frozen=True, kw_only=True):
    """Short runs of all recurrences on the device of this machine, compared with sequential scans on its CPU."""

    device: str
    platform: str
    """The platform of jax."""
    tolerance: float
    recurrences: list[DeviceCheck]


def found_device() -> tuple[str, str]:
    """The device on which workers train, and its platform, as another process finds them: this one takes no memory.

    Raises:
        LrurunError: jax cannot start there.
    """
    process = Process(1)
    try:
        answer = process.ask(do="device")
        return answer["device"], answer["platform"]
    finally:
        process.close()


def compare_devices(kinds: Sequence[str]) -> DeviceComparison:
    """Trains each kind of recurrence for a few steps, on the device in the form for accelerators and on the CPU.

    Raises:
        LrurunError: one of the processes has ended.
    """
    processes = [Process(1, str(cache_dir()), shares=False)]
    try:
        processes.append(Process(1, str(cache_dir()), shares=False, platform="cpu"))
        request = {"do": "recurrences", "plugins": msgspec.to_builtins(plugins.loaded()), "kinds": list(kinds)}
        for process, form in zip(processes, ("associative", "sequential"), strict=True):
            process.send(**request, backend=form)
        here, reference = (process.receive() for process in processes)
    finally:
        for process in processes:
            process.close()
    checks = [_check(kind, here["runs"][kind], reference["runs"][kind]) for kind in kinds]
    return DeviceComparison(device=here["device"], platform=here["platform"], tolerance=TOLERANCE, recurrences=checks)


def _check(kind: str, run: dict[str, Any], reference: dict[str, Any]) -> DeviceCheck:
    for side, where in ((run, ""), (reference, "on the CPU: ")):
        if "error" in side:
            error = where + side["error"]
            return DeviceCheck(kind=kind, result="failed", error=error, difference=None, steps_per_second=None)
    worst = max(deviation(run["values"][name], wanted) for name, wanted in reference["values"].items())
    return DeviceCheck(
        kind=kind,
        result="ok" if worst < TOLERANCE else "differs",
        difference=worst,
        steps_per_second=run["steps_per_second"],
    )


def deviation(values: Sequence[Sequence[float]], wanted: Sequence[Sequence[float]]) -> float:
    """The largest difference between two lists of arrays, relative to the largest number wanted of the array.

    Arrays that are small beside the others, such as gradients that are zero but for rounding, count relative to a
    thousandth of the largest of all. Infinite where a number is not finite.
    """
    import numpy as np

    sizes = [float(np.max(np.abs(array))) for array in wanted]
    worst = 0.0
    for array, reference, size in zip(values, wanted, sizes, strict=True):
        difference = float(np.max(np.abs(np.subtract(array, reference)))) / max(size, 1e-3 * max(sizes), 1e-30)
        worst = max(worst, difference if np.isfinite(difference) else np.inf)
    return worst


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise LrurunError(answer["error"])
    return answer

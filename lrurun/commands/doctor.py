"""`lrurun doctor`: whether this machine is ready for training."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from lrurun import console, paths, table
from lrurun.bench import rungs
from lrurun.commands._shared import output
from lrurun.commands._shared.options import Json
from lrurun.commands._shared.rules import examples
from lrurun.errors import LrurunError, plural
from lrurun.session import opening

if TYPE_CHECKING:
    from lrurun.paths import Places


class MachineCheck(Struct, frozen=True):
    """What was found about one part of the machine."""

    part: str
    detail: str
    ok: bool = True


class DoctorDocument(Struct, frozen=True):
    """The JSON of `lrurun doctor`."""

    checks: list[MachineCheck]
    device: rungs.DeviceComparison | None = None
    """With `--device`, where there is an accelerator."""


@examples(
    "lrurun doctor",
    "lrurun doctor --device",
)
def doctor(
    context: typer.Context,
    device: Annotated[
        bool, typer.Option("--device", help="Also train each recurrence on the accelerator, and compare with the CPU.")
    ] = False,
    json: Json = False,
) -> int:
    """Check devices, packages, data, ledger and disk space.

    The exit code is 1 if there is a problem, and 3 if a recurrence differs or fails on the accelerator.
    """
    places: Places = context.obj.places
    comparison, problem = None, list[MachineCheck]()
    if device:
        try:
            comparison = _comparison()  # before this process itself has jax, and memory of the device
        except LrurunError as error:
            problem = [MachineCheck("recurrences", "; ".join(filter(None, (error.message, error.hint))), ok=False)]
    machine = [_packages(), _devices(), *problem]
    data, prepared = _data(places)
    others = _other_data(places)
    stores = [_ledger(places), _disk(places.runs, "runs"), _disk(paths.cache_dir(), "compiled programs")]
    checks = [*machine, *data, *others, *stores]
    if json:
        output.write_json(DoctorDocument(checks, comparison))
    else:
        known = f"in {places.data}, for {len(prepared)} of {len(data)} recipes: {', '.join(prepared) or 'none'}"
        if named := [check.part.removeprefix("data in ") for check in others if check.ok]:
            known += f"; of own tasks and of profiles: {', '.join(named)}"
        problems = [check for check in (*data, *others) if not check.ok]
        shown = [*machine, MachineCheck("prepared data", known), *problems, *stores]
        table.show_facts([(f"{'ok' if c.ok else 'PROBLEM':7}  {c.part}", c.detail) for c in shown])
        if comparison is not None:
            _show(comparison)
        elif device and not problem:
            console.paragraph(
                "No accelerator: jax sees the CPU alone, so that there is nothing to compare. lrurun check recurrence "
                "NAME finds on any machine whether accelerators have the operations of a recurrence."
            )
    differs = comparison is not None and not all(check.ok for check in comparison.recurrences)
    return 1 if not all(c.ok for c in checks) else 3 if differs else 0


def _comparison() -> rungs.DeviceComparison | None:
    """Every recurrence on the accelerator and on the CPU; None without an accelerator."""
    from lrurun.config.recurrences import KINDS

    if rungs.found_device()[1] == "cpu":
        return None
    console.say(f"comparing {plural(len(KINDS), 'recurrence')} on the accelerator and on the CPU")
    return rungs.compare_devices(list(KINDS))


def _show(comparison: rungs.DeviceComparison) -> None:
    rows = [
        [
            check.kind,
            check.result,
            "" if check.difference is None else f"{check.difference:.1e}",
            "" if check.steps_per_second is None else f"{check.steps_per_second:.0f}",
        ]
        for check in comparison.recurrences
    ]
    table.show_text(
        ["recurrence", "result", "difference", "steps/s"], rows, title=f"{comparison.device} against the CPU"
    )
    for check in comparison.recurrences:
        if check.error is not None:
            console.paragraph(f"{check.kind}: {check.error}")
    console.paragraph(
        "The difference is the largest one of the losses of a few steps and of the first gradient, in float32, "
        f"relative to the largest number of its array. It may be {comparison.tolerance:g}."
    )


def _packages() -> MachineCheck:
    from lrurun.runner import environment

    versions = {**environment.code(), **environment.versions(), "sqlite": sqlite3.sqlite_version}
    missing = [name for name in environment.PACKAGES if name not in versions]
    listed = ", ".join(f"{name} {version[:12]}" for name, version in versions.items())
    return MachineCheck("versions", listed + (f"; missing: {', '.join(missing)}" if missing else ""), not missing)


def _devices() -> MachineCheck:
    from lrurun import machine

    hardware = f"{machine.cpu()}, {machine.cores()} cores"
    try:
        import jax

        devices = [f"{device.device_kind} ({device.platform})" for device in jax.local_devices()]
    except Exception as error:
        reason = (str(error) or f"no device was found ({type(error).__name__})").splitlines()[0]
        return MachineCheck("devices", f"{hardware}; jax: {reason}", ok=False)
    counted = machine.devices()
    detail = f"{hardware}; jax sees {', '.join(devices)}; execution.devices: at most {len(devices)}"
    if counted not in (None, len(devices)):
        problem = f"lrurun counts {counted}, by /dev, CUDA_VISIBLE_DEVICES and XLA_FLAGS: workers would get others"
        return MachineCheck("devices", f"{detail}; {problem}", ok=False)
    return MachineCheck("devices", detail)


def _data(places: Places) -> tuple[list[MachineCheck], list[str]]:
    """A check for each recipe, and the recipes whose data are prepared."""
    from lrurun.config import planning
    from lrurun.data import task_data

    findings, prepared = [], []
    for name in paths.names("recipes"):
        try:
            task, options, folder_name = planning.data_of(name)
            where = places.data / folder_name
            manifest = task_data.manifest(task, options, where)
            if manifest is None:
                findings.append(
                    MachineCheck(f"data of {name}", f"not prepared yet; lrurun ladder {name} prepares them in {where}")
                )
                continue
            task_data.load(task, options, where)
            prepared.append(name)
            findings.append(
                MachineCheck(
                    f"data of {name}", f"version {manifest.version}, from {manifest.source}, verified, in {where}"
                )
            )
        except LrurunError as error:
            findings.append(
                MachineCheck(f"data of {name}", "; ".join(filter(None, (error.message, error.hint))), ok=False)
            )
    return findings, prepared


def _other_data(places: Places) -> list[MachineCheck]:
    """A check for each folder of prepared data that is no recipe's: of a task of one's own, or of a profile."""
    from lrurun.config import planning
    from lrurun.data import task_data

    of_recipes = set()
    for name in paths.names("recipes"):
        with suppress(LrurunError):
            of_recipes.add(planning.data_of(name)[2])
    findings = []
    folders: list[Path] = []
    with suppress(OSError):  # no such folder, or a private one
        folders = sorted(places.data.iterdir())
    for folder in (folder for folder in folders if folder.name not in of_recipes):
        try:
            if (manifest := task_data.manifest_in(folder)) is not None:
                detail = f"of {manifest.task}, from {manifest.source}"
                findings.append(MachineCheck(f"data in {folder.name}", detail))
        except LrurunError as error:
            detail = "; ".join(filter(None, (error.message, error.hint)))
            findings.append(MachineCheck(f"data in {folder.name}", detail, ok=False))
    return findings


def _ledger(places: Places) -> MachineCheck:
    try:
        with opening.read(places) as ledger:
            if not ledger.exists:
                return MachineCheck("ledger", f"{places.ledger}: none yet")
            problems = ledger.check()
            count = plural(ledger.count_runs(superseded=False), "run")
            detail = f"{places.ledger}: {count}; {'; '.join(problems) or 'no problems'}"
            return MachineCheck("ledger", detail, not problems)
    except LrurunError as error:
        return MachineCheck("ledger", "; ".join(filter(None, (error.message, error.hint))), ok=False)


def _disk(where: Path, purpose: str) -> MachineCheck:
    folder = where.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    store = paths.shown_runs(where)
    copied = "" if store == str(where) else f"{store}, copied to "
    return MachineCheck(f"disk for {purpose}", f"{copied}{where}: {free / 2**30:.1f} GiB free", free > 2**28)

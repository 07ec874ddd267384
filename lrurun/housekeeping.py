"""The commands about the ledger file and the machine: ledger path, check, migrate; doctor."""

from __future__ import annotations

import json as jsonlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from lrurun import console, paths, provenance
from lrurun import plan as planning
from lrurun.errors import LrurunError, NotFoundError
from lrurun.paths import Places
from lrurun.tasks import folder


def path(places: Places) -> int:
    """Prints the ledger's path."""
    console.write(str(places.ledger.absolute()))
    return 0


def check(places: Places, *, json: bool) -> int:
    """Integrity of the file, and of the checkpoints that it calls committed; exit code 1 where something is wrong."""
    from lrurun.ledger.store import Ledger

    ledger = Ledger.read(places.ledger)
    if ledger is None:
        raise NotFoundError(
            f"{places.ledger}: there is no ledger", "name one with --ledger PATH, or run: lrurun ledger migrate"
        )
    with ledger:
        problems = ledger.check()
        found = ledger.runs(superseded=True, brief=True)
        kept = [c for run in found for c in ledger.checkpoints(run.id, "committed")]
    problems += [
        f"checkpoint of run {c.run}, step {c.step}: {places.runs / c.path} is missing"
        for c in kept
        if not (places.runs / c.path).is_dir()
    ]
    if json:
        console.write(
            jsonlib.dumps(
                {"schema_version": 1, "path": str(places.ledger.absolute()), "runs": len(found), "problems": problems},
                indent=2,
            )
        )
    else:
        for problem in problems:
            console.write(console.clean(problem))
        console.write(f"{places.ledger}: {len(found)} runs, {len(kept)} checkpoints, {len(problems) or 'no'} problems")
    return 1 if problems else 0


def migrate(places: Places) -> int:
    """Creates the ledger, or brings it up to date."""
    from lrurun.ledger.store import Ledger

    existed = places.ledger.exists()
    with Ledger.open(places.ledger) as ledger:
        if ledger.note:
            console.warn(ledger.note)
    console.say(f"{places.ledger}: {'up to date' if existed else 'created'}")
    return 0


def doctor(places: Places, *, json: bool) -> int:
    """What a person would be asked for first when something does not work; 1 where something will not work."""
    checks = [
        _packages(),
        _devices(),
        *_data(places),
        _ledger(places),
        _disk(places.runs, "runs"),
        _disk(paths.cache_dir(), "compiled programs"),
    ]
    if json:
        console.write(jsonlib.dumps({"schema_version": 1, "checks": checks}, indent=2))
    else:
        console.table(
            None, ["", "what", "found"], [["ok" if c["ok"] else "PROBLEM", c["what"], c["found"]] for c in checks]
        )
    return 0 if all(c["ok"] for c in checks) else 1


def _finding(what: str, found: str, ok: bool = True) -> dict[str, Any]:
    return {"what": what, "ok": ok, "found": found}


def _packages() -> dict[str, Any]:
    versions = {**provenance.code(), **provenance.versions(), "sqlite": sqlite3.sqlite_version}
    missing = [name for name in provenance.PACKAGES if name not in versions]
    found = ", ".join(f"{name} {version[:12]}" for name, version in versions.items())
    return _finding("versions", found + (f"; missing: {', '.join(missing)}" if missing else ""), not missing)


def _devices() -> dict[str, Any]:
    machine = f"{provenance.cpu()}, {provenance.cores()} cores"
    try:
        import jax

        devices = [f"{device.device_kind} ({device.platform})" for device in jax.devices()]
    except Exception as error:
        return _finding("devices", f"{machine}; jax: {str(error).splitlines()[0]}", ok=False)
    return _finding("devices", f"{machine}; jax sees {', '.join(devices)}")


def _data(places: Places) -> list[dict[str, Any]]:
    findings = []
    for name in paths.names("recipes"):
        try:
            task, options, folder_name = planning.data_of(name)
            where = places.data / folder_name
            table = folder.manifest(task, options, where)
            if table is None:
                findings.append(
                    _finding(f"data of {name}", f"not prepared yet; lrurun ladder {name} prepares them in {where}")
                )
                continue
            folder.load(task, options, where)
            findings.append(
                _finding(f"data of {name}", f"version {table['version']}, from {table['source']}, verified, in {where}")
            )
        except LrurunError as error:
            findings.append(_finding(f"data of {name}", f"{error.message}; {error.hint}", ok=False))
    return findings


def _ledger(places: Places) -> dict[str, Any]:
    from lrurun.ledger.store import Ledger

    try:
        ledger = Ledger.read(places.ledger)
        if ledger is None:
            return _finding("ledger", f"{places.ledger}: none yet")
        with ledger:
            problems = ledger.check()
            note = f"; {ledger.note}" if ledger.note else ""
            return _finding(
                "ledger",
                f"{places.ledger}: {len(ledger.runs(brief=True))} runs{note}; {'; '.join(problems) or 'sound'}",
                not problems,
            )
    except LrurunError as error:
        return _finding("ledger", f"{error.message}; {error.hint}", ok=False)


def _disk(where: Path, what: str) -> dict[str, Any]:
    here = where.absolute()
    while not here.exists():
        here = here.parent
    free = shutil.disk_usage(here).free
    return _finding(f"disk for {what}", f"{where}: {free / 2**30:.1f} GiB free", free > 2**28)

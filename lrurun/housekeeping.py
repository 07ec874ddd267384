"""The commands about the ledger file and the machine: ledger path, check, backup, merge, export, gc; doctor."""

from __future__ import annotations

import contextlib
import csv
import json as jsonlib
import math
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lrurun import console, paths, provenance
from lrurun import plan as planning
from lrurun.errors import LedgerError, LrurunError, NotFoundError, UsageError
from lrurun.ledger.values import FINISHED, Run
from lrurun.paths import Places
from lrurun.report import sheet
from lrurun.tasks import folder

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger


def path(places: Places) -> int:
    """Prints the ledger's path."""
    console.write(str(places.ledger.absolute()))
    return 0


def check(places: Places, *, json: bool) -> int:
    """Integrity of the file, and of the checkpoints that it calls committed; exit code 1 where something is wrong."""

    ledger = _existing(places)
    with ledger:
        problems = ledger.check()
        found: list[Run] = []
        try:
            found = ledger.runs(superseded=True, brief=True)
        except LedgerError as error:
            problems.append(error.message)
        kept = [c for run in found for c in ledger.checkpoints(run.id, "committed")]
    for c in kept:
        try:
            missing = not (at := paths.inside(places.runs, c.path)).is_dir()
        except LrurunError as error:
            problems.append(f"checkpoint of run {c.run}, step {c.step}: {error.message}")
            continue
        if missing:
            problems.append(f"checkpoint of run {c.run}, step {c.step}: {at} is missing")
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


def backup(places: Places, out: Path | None) -> int:
    """Copies the ledger, whether or not it is being written to."""
    from lrurun.ledger import copies

    _existing(places).close()
    name = f"{places.ledger.name}.backup-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    target = (out or places.ledger.with_name(name)).absolute()
    copies.backup(places.ledger.absolute(), target)
    console.say(f"wrote {target}")
    return 0


def merge(places: Places, other: Path, other_runs: Path | None, *, json: bool) -> int:
    """Brings the runs of another ledger into this one."""
    from lrurun.ledger import copies
    from lrurun.ledger.store import Ledger

    there = Ledger.read(other)
    if there is None:
        raise NotFoundError(f"{other}: there is no ledger", "name the other ledger's file")
    there.close()
    if other.exists() and places.ledger.exists() and other.samefile(places.ledger):
        raise UsageError(f"{other}: is this ledger itself", "name another one")
    with Ledger.open(places.ledger) as ledger:
        if ledger.note:
            console.warn(ledger.note)
    found = copies.merge(
        places.ledger.absolute(), other.absolute(), places.runs, (other_runs or other.absolute().parent / "runs")
    )
    if json:
        console.write(jsonlib.dumps({"schema_version": 1, **structs.asdict(found)}, indent=2))
        return 0
    console.write(
        f"{other}: {found.new} runs are new here, {found.finished} were unfinished here and are finished now, "
        f"{found.known} stay as they are; {found.checkpoints} checkpoints came with their files"
    )
    if found.held:
        console.warn(f"{found.held} runs are finished there and running here: merge again when they have ended")
    return 0


def export(places: Places, *, format: str, out: Path | None) -> int:
    """Writes everything that the ledger has, as JSON Lines, or as a folder of CSV files."""
    from lrurun.ledger import copies

    _existing(places).close()
    if format == "csv" and out is None:
        raise UsageError("ledger export --format csv: writes a folder, and needs its name", "add --out FOLDER")
    tables = copies.export(places.ledger.absolute())
    if format == "jsonl":
        lines = (
            jsonlib.dumps({"table": table} | dict(zip(columns, map(_exported, columns, row), strict=True)))
            for table, columns, rows in tables
            for row in rows
        )
        if out is None:
            for line in lines:
                console.write(line)
            return 0
        with _whole(out) as partial, partial.open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
    else:
        assert out is not None
        with _whole(out) as partial:
            partial.mkdir()
            for table, columns, rows in tables:
                with (partial / f"{table}.csv").open("w", encoding="utf-8", newline="") as file:
                    writer = csv.writer(file)
                    writer.writerow(columns)
                    writer.writerows([sheet.csv_cell(cell) for cell in row] for row in rows)
    console.say(f"wrote {out}")
    return 0


def _exported(column: str, value: Any) -> Any:
    """A cell for JSON: packed tables as tables, infinities as the words that Python's `float` reads."""
    from lrurun.ledger import copies

    if column in copies.PACKED and isinstance(value, str):
        with contextlib.suppress(ValueError, RecursionError):  # what is none stays text
            return jsonlib.loads(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """A new file or folder that appears under its name when it is whole."""
    if out.exists():
        raise LrurunError(f"{out}: is there already, and is not overwritten", "name a new one")
    partial = out.absolute().with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        yield partial
        partial.rename(out.absolute())
    except OSError as error:
        raise LrurunError(f"{out}: {error.strerror}", "choose another --out") from None
    finally:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


def gc(places: Places, *, dry_run: bool, finished: bool) -> int:
    """Removes checkpoints that nothing needs: of superseded runs, half-written ones, and attempts set aside.

    With `finished` those of finished runs too, which only a look at trained parameters needs. Runs that go on keep
    theirs, and folders of runs that this ledger does not know are another's.
    """
    from lrurun.ledger import owner
    from lrurun.ledger.store import Ledger

    _existing(places).close()
    with Ledger.open(places.ledger, create=False) as ledger:
        ledger.reap(owner.here())
        removable: dict[Path, int | None] = {}
        elsewhere: list[str] = []

        def add(number: int | None, *names: str) -> None:
            try:
                removable[paths.inside(places.runs, *names)] = number
            except LrurunError as error:
                elsewhere.append(error.message)

        for run in ledger.runs(superseded=True, brief=True):
            if run.state == "running":
                continue
            entries = ledger.checkpoints(run.id)
            unneeded = run.superseded or (finished and run.state in FINISHED)
            for c in entries:
                if unneeded or c.state != "committed":
                    add(c.id, c.path)
            try:
                home = paths.inside(places.runs, run.id)
            except LrurunError as error:
                elsewhere.append(error.message)
                continue
            known = {places.runs / c.path for c in entries}
            for found in (*home.glob("*/checkpoints/*"), *home.glob("*.old-*")):
                if found not in known and found.is_dir():
                    add(None, str(found.relative_to(places.runs)))
        size = sum(_bytes(folder) for folder in removable)
        if not dry_run:
            gone = set(ledger.drop_checkpoints([n for n in removable.values() if n is not None]))
            for folder, number in removable.items():
                if number is None or number in gone:
                    shutil.rmtree(folder, ignore_errors=True)
    for one in elsewhere:
        console.warn(f"{one}; left alone")
    if dry_run:
        for folder in removable:
            console.write(str(folder))
    said = "would go" if dry_run else "went"
    console.say(f"{len(removable)} folders with {size / 1e6:.1f} MB {said}")
    return 0


def _bytes(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())


def _existing(places: Places) -> Ledger:
    """The ledger, open for reading. Raises NotFoundError where there is none."""
    from lrurun.ledger.store import Ledger

    ledger = Ledger.read(places.ledger)
    if ledger is None:
        raise NotFoundError(
            f"{places.ledger}: there is no ledger", "name one with --ledger PATH, or run: lrurun ledger migrate"
        )
    return ledger


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

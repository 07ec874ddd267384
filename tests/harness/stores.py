"""A ledger to test, runs for it, and what its tests ask of it."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lrurun.config.runs import InstanceSpec, PlannedRun
from lrurun.ledger import heartbeat, owner
from lrurun.ledger.database.schema import metadata
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import HeldRun, Owner
from lrurun.runner import run_files
from lrurun.server import Location
from tests.harness import ROOT
from tests.harness.configs import config, execution
from tests.harness.machine import Machine
from tests.harness.shared import once

ME = owner.this_process()
ELSEWHERE = Owner(host="elsewhere", boot="its-boot", namespace="pid:[9]", pid=77, pid_started=1.0)


def want(rung: str = "ring", seed: int = 0, position: int = 0, stage: str = "train", **changes: Any) -> PlannedRun:
    fields: dict[str, Any] = {
        "fingerprint": "sha256:" + hashlib.sha256(f"{rung} {seed} {stage}".encode()).hexdigest(),
        "task": "sDigits",
        "rung": rung,
        "stage": stage,
        "seed": seed,
        "steps": 100,
        "config": {"data": {"rung": rung}, "seed": seed},
        "execution": {"threads": 1},
        "sources": {"data.rung": "recipe"},
        "position": position,
    } | changes
    tables = {"config": config(fields["config"]), "execution": execution(fields["execution"])}
    return PlannedRun(**fields | tables)


SERVER = pytest.param("server", marks=pytest.mark.slow)


@pytest.fixture(params=["file", SERVER])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Location]:
    """Where the ledger of a test is: each test of a ledger runs on a file and on a server."""
    if request.param == "file":
        yield tmp_path / "ledger.db"
        return
    postgres = request.getfixturevalue("postgres")
    # The server of the tests has just started.
    request.getfixturevalue("monkeypatch").setattr(heartbeat, "RETURN_SECONDS", 0.0)
    server = postgres.ledger()
    yield server
    postgres.drop(server)


def machine_with(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A folder with an empty ledger: a file of it, or on a server that its commands use."""
    machine = Machine(folder)
    if kind == "file":
        make_empty(machine.ledger)
        yield machine
        return
    postgres = request.getfixturevalue("postgres")
    yield machine.use(postgres.ledger())
    postgres.drop(machine.ledger)


on_file = pytest.mark.parametrize("path", ["file"], indirect=True)
"""Marks tests of what only files have."""


def _make_empty(folder: Path) -> None:
    folder.mkdir()
    Ledger.open(folder / "ledger.db").close()


@functools.cache
def _empty() -> Path:
    return once("empty", _make_empty) / "ledger.db"


def make_empty(path: Path) -> None:
    """A ledger without rows, a copy as those on servers are: making one takes ten times as long."""
    shutil.copyfile(_empty(), path)


@pytest.fixture
def ledger(path: Location) -> Iterator[Ledger]:
    if isinstance(path, Path):
        make_empty(path)
    with Ledger.open(path) as opened:
        yield opened


@pytest.fixture
def key(ledger: Ledger) -> str:
    return ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key


def take(ledger: Ledger, key: str, by: Owner = ME, **filters: Any) -> HeldRun:
    held = ledger.hold(key, by, **filters)
    assert held is not None
    return held


def keep_all(ledger: Ledger, runs: Path) -> None:
    """Writes the records of all runs and ladder instances, as processes that train do."""
    ladders, removals = ([row.key for row in rows] for rows in (ledger.ladders(), ledger.removals()))
    run_files.keep_all(ledger, runs, ledger.run_ids(), ladders, removal_keys=removals)


def counts(ledger: Ledger, key: str) -> dict[str, int]:
    """Runs of a ladder by state."""
    return ledger.state_counts(key)


def raw(path: Location, statement: str, *values: Any) -> list[Any]:
    """The rows of a statement, in SQLite's notation of values."""
    if isinstance(path, Path):
        connection = sqlite3.connect(path)
        try:
            with connection:
                return connection.execute(statement, values).fetchall()
        finally:
            connection.close()
    import psycopg

    with psycopg.connect(path.text.replace("+psycopg", "")) as session:
        found = session.execute(statement.replace("%", "%%").replace("?", "%s").encode(), values)
        return found.fetchall() if found.description else []


def dump(path: Location) -> list[str]:
    """Everything in a ledger."""
    if isinstance(path, Path):
        connection = sqlite3.connect(path)
        try:
            return list(connection.iterdump())
        finally:
            connection.close()
    return [repr((name, sorted(raw(path, f"SELECT * FROM {name}"), key=repr))) for name in sorted(metadata.tables)]


def drop_trigger(path: Location, name: str, table: str) -> None:
    raw(path, f"DROP TRIGGER {name}" + ("" if isinstance(path, Path) else f" ON {table}"))


def refused_by_database() -> tuple[type[Exception], ...]:
    """The errors of `raw` for a change that the ledger does not allow."""
    import psycopg

    return sqlite3.IntegrityError, psycopg.IntegrityError


def python(code: str, *words: object, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **options,
    )


def finished(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out

"""A ledger to test, runs for it, and what its tests ask of it."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lrurun.config.runs import PlannedRun
from lrurun.ledger import owner
from lrurun.ledger.store import Ledger
from lrurun.ledger.values import ClaimedRun, Owner
from tests.forks import ROOT

ME = owner.here()
ELSEWHERE = Owner(host="elsewhere", boot="its-boot", namespace="pid:[9]", pid=77, pid_started=1.0)


def want(rung: str = "ring", seed: int = 0, position: int = 0, stage: str = "train", **changes: Any) -> PlannedRun:
    fields: dict[str, Any] = {
        "fingerprint": "sha256:" + hashlib.sha256(f"{rung} {seed} {stage}".encode()).hexdigest(),
        "task": "sDigits",
        "rung": rung,
        "stage": stage,
        "seed": seed,
        "steps": 100,
        "config": {"model": {"rung": rung}, "seed": seed},
        "execution": {"threads": 1},
        "sources": {"model.rung": "recipe"},
        "position": position,
    }
    return PlannedRun(**fields | changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path) as opened:
        yield opened


@pytest.fixture
def key(ledger: Ledger) -> str:
    return ledger.add_ladder("lru", "sDigits", None, {"set": {}, "tune": False}).key


def take(ledger: Ledger, key: str, by: Owner = ME, **filters: Any) -> ClaimedRun:
    claim = ledger.claim(key, by, **filters)
    assert claim is not None
    return claim


def counts(ledger: Ledger, key: str) -> dict[str, int]:
    """Runs of a ladder by state."""
    return ledger.state_counts(key)


def raw(path: Path, statement: str, *values: Any) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        with connection:
            return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def dump(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


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

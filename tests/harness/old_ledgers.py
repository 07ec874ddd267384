"""A ledger with rows in every table, and a revision that migrates it."""

from __future__ import annotations

import hashlib
import math
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

from lrurun.config.runs import InstanceSpec, PlannedRun
from lrurun.config.schema import Execution
from lrurun.items import ItemResults, TestSet
from lrurun.ledger.database import migrate
from lrurun.ledger.database.schema import SCHEMA
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import Owner
from lrurun.server import Server
from tests.harness.configs import config
from tests.harness.stores import raw

_GONE = (
    '[{"key":"feedfeedfeed","name":"sDigits-lr1.0","ladder":"lru","task":"sDigits","profile":null,'
    '"set":{"optim.lr":1.0},"tune":false}]'
)
"""The instances of a removal, as they are recorded."""

VERSIONS = Path(migrate.__file__).parent / "migrations" / "versions"

LATER = """
import os
import signal
import sqlalchemy as sa
from alembic import op

revision = "9001"
down_revision = "{head}"


def upgrade() -> None:
    # Rebuilds the table that all others refer to, as changing a column does.
    wanted = "SELECT sql FROM sqlite_master WHERE name IN ('runs', 'runs_finished_stay', 'runs_finished_not_deleted')"
    made_last = op.get_bind().exec_driver_sql(wanted).scalars().all()
    op.execute("DROP VIEW runs")
    with op.batch_alter_table("stored_runs", recreate="always") as runs:
        runs.add_column(sa.Column("later", sa.Text, nullable=False, server_default="new"))
    for statement in made_last:
        op.execute(statement)
    # More than fits into the cache, so that changes are in the files before the commit.
    op.execute(
        "CREATE TABLE filler AS WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
        " SELECT i, hex(zeroblob(2000)) AS text FROM n"
    )
    op.execute("UPDATE metrics SET value = value + 1 WHERE 0")
    {middle}
    op.execute("DROP TABLE filler")
"""
"""It rebuilds the table that all others refer to."""


def later(folder: Path, middle: str = "") -> Path:
    """A folder with a revision more, which runs `middle` before it ends."""
    shutil.copytree(VERSIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "9001_later.py").write_text(LATER.format(head=SCHEMA, middle=middle))
    return folder


def wanted(rung: str, seed: int, position: int, stage: str = "train") -> PlannedRun:
    return PlannedRun(
        fingerprint="sha256:" + hashlib.sha256(f"{rung} {stage} {seed}".encode()).hexdigest(),
        task="sDigits",
        rung=rung,
        stage=stage,
        seed=seed,
        steps=100,
        config=config({"data": {"rung": rung}, "seed": seed, "model": {"recurrence": {"r_max": 0.99}}}),
        execution=Execution(),
        sources={"model.recurrence.r_max": f"[rung.{rung}] of recipes/sDigits.toml"},
        position=position,
    )


def items_of(score: float) -> ItemResults:
    """Results on 16 items of two groups, of which a share is right."""
    groups = np.repeat([0, 1], 8)
    return ItemResults(
        test_set=TestSet(count=16, order="0" * 64, groups=groups), sums=(np.arange(16) < 16 * score).astype(float)
    )


def build(path: Path) -> None:
    owner = Owner(host="old-host", boot="old-boot", namespace="pid:[1]", pid=123, pid_started=4567.89)
    code = {"lrurun": "0.1.0", "commit": "0123456789abcdef0123456789abcdef01234567"}
    with Ledger.open(path) as ledger:
        ladder = ledger.add_ladder("lru", "sDigits", None, InstanceSpec(tune=True))
        other = ledger.add_ladder("lru", "sDigits", "smoke", InstanceSpec(set={"optimizer.lr": 0.001}))
        runs = [wanted("tanh-rnn", 1000, 0, "tune")]
        runs += [wanted(rung, seed, 1) for rung in ("tanh-rnn", "linear-rnn") for seed in range(3)]
        ledger.enqueue(ladder.key, runs)
        ledger.enqueue(other.key, [wanted("linear-rnn", 0, 0)])

        def take(key: str = ladder.key) -> Any:
            held = ledger.hold(key, owner, environment={"code": code, "device": "cpu", "threads": 1})
            assert held is not None
            return held

        for result in (0.5, 0.875):
            held = take()
            ledger.rewind(held, 0)
            ledger.describe(held, parameters=1234, data_sha256="d" * 64)
            ledger.record(held, [(s, "train/loss", 2.0 / s) for s in range(1, 41)], 40)
            ledger.record(held, [(40, "val/accuracy", result), (40, "machine/steps_per_second", 321.5)], 40)
            ledger.record_eigenvalues(held, "start", [[0.9 + 0.1j, 0.9 - 0.1j], None])
            ledger.record_eigenvalues(held, "end", [[1.0, complex(math.inf, math.nan)], None])
            checkpoint = ledger.begin_checkpoint(held, 40, f"{held.run.id}/1/checkpoints/40")
            ledger.commit_checkpoint(held, checkpoint, 1000, "c" * 64)
            results = {"val/accuracy": result, "best_step": 40, "steps_per_second": 321.5}
            ledger.finish(held, "done", result=results, step=100, items={"test/accuracy": items_of(result)})
        held = take()
        ledger.record(held, [(1, "train/loss", 2.5), (2, "train/loss", math.inf), (3, "train/loss", math.nan)], 3)
        ledger.record(held, [(3, "train/gradient", -math.inf)], 3)
        ledger.finish(held, "diverged", result={"train/loss": math.nan, "val/accuracy": -math.inf}, step=3)
        held = take()
        ledger.finish(held, "failed", error="Traceback: ü → \n  boom", reason="failed: boom")
        ledger.requeue([held.run.id])
        held = take()
        ledger.begin_checkpoint(held, 10, f"{held.run.id}/2/checkpoints/10")
        ledger.finish(held, "interrupted", reason="interrupted: SIGTERM", step=10)
        take()
        ledger.event("tuned", "tanh-rnn: chosen on validation", ladder=ladder.key)
        ledger.enqueue(ladder.key, [runs[0]], fresh=True)
        done = next(run for run in ledger.runs() if run.state == "done")
        ledger.mark([done.id], tag=["paper", "ü"])
        ledger.mark([done.id], exclude="trained on a broken disk")
        ledger.mark([done.id], note="the fan was loud\nall night")
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO hidden SELECT id, 1.5, 'someone' FROM ladders WHERE profile = 'smoke'")
        connection.execute(
            "INSERT INTO removals (key, kind, time, user_name, selection, why, runs, bytes, finished_at, instances)"
            " VALUES ('0123456789abcdef', 'forgotten', 2.5, 'someone', 'sDigits', 'a wrong import', 1, 1000, 3.5, ?)",
            [_GONE],
        )
        connection.execute(
            "INSERT INTO removed_runs (removal, run, ladder_key, rung, stage, instance, task, seed, state)"
            " SELECT 1, 'feedfeedfeed', key, 'tanh-rnn', 'train', short_name, task, 7, 'done' FROM ladders WHERE id = 1"
        )
        connection.commit()
        connection.execute("VACUUM")
    connection.close()


_OF_REVISION = {
    "1001": (
        "DROP TRIGGER runs_finished_not_deleted ON stored_runs",
        "DROP FUNCTION lrurun_refuse_runs_finished_not_deleted",
        "DROP TABLE removed_runs",
        "DROP TABLE removals",
        "DROP TABLE hidden",
        "DROP INDEX ix_stored_runs_config_id, ix_stored_runs_execution_id, ix_stored_runs_provenance_id",
        "DROP INDEX ix_stored_attempts_environment_id, ix_item_results_test_set",
        "CREATE TRIGGER documents_not_deleted BEFORE DELETE ON documents FOR EACH ROW"
        " EXECUTE FUNCTION lrurun_refuse('a document is never deleted')",
        "CREATE TRIGGER runs_finished_not_deleted BEFORE DELETE ON stored_runs FOR EACH ROW"
        " WHEN (OLD.state IN ('done', 'diverged')) EXECUTE FUNCTION lrurun_refuse('a finished run is never deleted')",
    ),
    "1000": ("DROP TABLE item_results", "DROP TABLE test_sets"),
}
"""Revision -> what leads to it from the next one, on a server."""


def make_older(server: Server, revision: str) -> None:
    """Makes a ledger on a server one of an older revision."""
    for older, statements in _OF_REVISION.items():
        if older >= revision:
            for statement in statements:
                raw(server, statement)
    raw(server, "UPDATE lrurun_version SET version_num = ?", revision)

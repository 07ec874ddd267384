"""A ledger as it is after an hour's use: instances of several tasks and ladders, with junk among them."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.ledger.ledger import Ledger
from tests.harness.results import OWNER, fill

RUNGS = {"tanh-rnn": [0.71, 0.72, 0.73], "ring-init": [0.88, 0.9, 0.91], "gamma-norm": [0.92, 0.93, 0.95]}
STATES = {"tanh-rnn": [0.7, None], "ring-init": [0.9, 0.91]}
SSM = {"s4d": [0.9, 0.91], "s5": [0.92, 0.93]}
NAMES = (
    *("npDigits-smoke", *(f"npDigits-smoke-lr{rate}" for rate in (0.001, 0.003, 0.01, 0.03, 0.1))),
    *("npDigits", "sDigits-smoke", "sDigits", "sDigits-ssm", "npDigits-ssm", "sCIFAR-ssm"),
    *("npDigits-smoke-width3", "npDigits-smoke-width5", "npDigits-lr0.5"),
)
START = 1_800_000_000
"""2027-01-15 08:00 UTC: when the first instance was requested; the others follow, an hour after each other."""


def fill_projects(path: Path) -> None:
    """Fifteen instances: of the ladder lru on two tasks, of ssm, one waits, one has failed and two are of a mistake."""
    for rate in (None, 0.001, 0.003, 0.01, 0.03, 0.1):
        sets = {} if rate is None else {"optim.lr": rate}
        _fill(path, "npDigits", RUNGS, profile="smoke", sets=sets)
    _fill(path, "npDigits", RUNGS)
    _fill(path, "sDigits", STATES, profile="smoke")
    _fill(path, "sDigits", RUNGS)
    _fill(path, "sDigits", SSM, ladder="ssm")
    _fill(path, "npDigits", SSM, ladder="ssm")
    _fill(path, "sCIFAR", SSM, ladder="ssm")
    for width in (3, 5):
        _fill(path, "npDigits", {"tanh-rnn": [0.3]}, profile="smoke", sets={"model.width": width})
    with Ledger.open(path) as ledger:
        enqueue(ledger, {"optim.lr": 0.5}, seeds=2)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        _name_and_date(connection)


def _fill(path: Path, task: str, scores: dict[str, list[float | None]], **options: object) -> None:
    """Finished runs whose validation scores are their test scores."""
    for rung, of_seeds in scores.items():
        known = [score for score in of_seeds if score is not None]
        fill(path, task, {rung: of_seeds}, more={"val/accuracy": sum(known) / len(known)}, **options)  # type: ignore[arg-type]


def enqueue(ledger: Ledger, sets: dict[str, object], seeds: int) -> str:
    """Queues the first rung of npDigits with these settings, of which one run has begun; returns the instance's key."""
    plan = planning.make("npDigits", sets=sets)
    name = f"npDigits-lr{sets['optim.lr']}"
    instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, None, plan.spec, name)
    ledger.enqueue(instance.key, final_runs(plan, plan.rungs[0], range(seeds)))
    held = ledger.hold(instance.key, OWNER, environment={"device": "cpu"})
    assert held is not None
    ledger.record(held, [(10, "train/loss", 2.0)], 10)
    ledger.finish(held, "interrupted", reason="interrupted: SIGTERM", step=10)
    return instance.key


def _name_and_date(connection: sqlite3.Connection) -> None:
    """The times of instances and of their runs, by the order in which they were made; and the names of instances."""
    [trigger] = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'runs_finished_stay'").fetchone()
    connection.execute("DROP TRIGGER runs_finished_stay")
    connection.execute("UPDATE ladders SET created_at = ? + 3600 * (id - 1)", (START,))
    first = "(SELECT min(ladder) FROM ladder_runs WHERE run = number)"
    connection.execute(f"UPDATE stored_runs SET created_at = ? + 3600 * ({first} - 1)", (START,))
    connection.execute("UPDATE stored_runs SET finished_at = created_at + 1800 WHERE finished_at IS NOT NULL")
    connection.execute(trigger)
    for number, name in enumerate(NAMES, 1):
        connection.execute("UPDATE ladders SET short_name = ? WHERE id = ?", (name, number))


def hide(path: Path, *short_names: str) -> None:
    """Hides instances as `lrurun ledger hide` does."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for name in short_names:
            connection.execute(
                "INSERT INTO hidden (ladder, time, user_name) SELECT id, ?, 'ann' FROM ladders WHERE short_name = ?",
                (START, name),
            )

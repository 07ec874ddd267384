"""Storages of Optuna: optuna 5.0.0, SQLAlchemy 2.1.9, Python 3.11."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.trackers.make import environment

PACKAGES = ["optuna==5.0.0", "sqlalchemy==2.1.9"]


def write(folder: Path) -> None:
    """The same trials in an SQLite file and in a journal; the last one is killed, and thus remains RUNNING."""
    for storage in ("studies.db", "journal.log"):
        for number in range(8):
            program = f"from tests.trackers.make.optuna import trial; trial({storage!r}, {number})"
            subprocess.run([sys.executable, "-c", program], cwd=folder, check=number != 7)


def trial(storage: str, number: int) -> None:
    """One trial of the study "norms", and with the first one all of the study "two objectives"."""
    import optuna

    def objective(trial: optuna.Trial) -> float:
        norm = trial.suggest_categorical("norm", ["none", "layer", None, 3])
        trial.suggest_float("lr", 1e-4, 1e-1, log=True)
        trial.suggest_int("model.depth", 2, 8, step=2)
        trial.set_user_attr("seed", number)
        trial.set_user_attr("test", {"acc": number / 10, "items": [1, 0]})
        if number == 1:
            raise ValueError("broken")
        if number == 2:
            return float("nan")
        if number == 3:
            return float("inf")
        for step in (0, 10, 20):
            trial.report(number + step / 100, step)
            trial.report(99.0, step)  # of a step, the first report is kept
            if number == 4 and step == 10:
                raise optuna.TrialPruned
            if number == 7 and step == 10:
                os._exit(9)
        if number == 5:
            trial.report(float("nan"), 5)
            trial.report(float("-inf"), 6)
        return number + (0.5 if norm == "layer" else 0.0)

    opened = _opened(storage)
    study = optuna.create_study(storage=opened, study_name="norms", load_if_exists=True)
    if number == 0:
        study.set_user_attr("data", "digits")
        two = optuna.create_study(storage=opened, study_name="two objectives", directions=["maximize", "minimize"])
        two.optimize(lambda trial: (trial.suggest_float("x", 0, 1, step=0.25), 2.0), n_trials=1)
        two.set_metric_names(["accuracy", "size"])
        two.enqueue_trial({"x": 0.5})  # remains WAITING
    study.enqueue_trial({"norm": ["none", "layer", None, 3][number % 4], "lr": 0.001 * (number + 1), "model.depth": 4})
    study.optimize(objective, n_trials=1, catch=ValueError)


def _opened(storage: str):
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return f"sqlite:///{storage}" if storage.endswith(".db") else JournalStorage(JournalFileBackend(storage))


def clean(folder: Path) -> None:
    """Removes the names of workers from the journal, and most of the empty space from the database."""
    journal = folder / "journal.log"
    journal.write_text(re.sub(r'"worker_id":"[^"]*"', '"worker_id":"w"', journal.read_text()))
    with contextlib.closing(sqlite3.connect(folder / "studies.db")) as connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")


if __name__ == "__main__":
    environment.main("tests.trackers.make.optuna", PACKAGES, write, clean)

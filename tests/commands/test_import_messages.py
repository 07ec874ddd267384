"""What `lrurun import` says about data that can be read in more than one way, or not at all: whole commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.machine import Machine
from tests.harness.tables import SCORES, write_csv, write_runs


def write_pair(path: Path, *columns: str, rows: dict[str, list[list[Any]]]) -> Path:
    """Writes a row for each run of each norm: its seed, and its cells of these columns."""
    return write_csv(
        path,
        ["run", "norm", "seed", *columns],
        [[f"{norm}{k}", norm, k, *cells] for norm, of_norm in rows.items() for k, cells in enumerate(of_norm)],
    )


def test_a_rate_that_differs_in_every_run_is_a_caution_where_rungs_differ_in_it(machine: Machine) -> None:
    rates = {"a": 0.0001, "b": 0.01}
    rows = {norm: [[0.8 + k / 1000, rate * (k + 1.5), k / 7] for k in range(6)] for norm, rate in rates.items()}
    write_pair(machine.folder / "runs.csv", "test_acc", "lr", "walltime", rows=rows)
    done = machine.run("import", "runs.csv", apart=True)
    assert (
        "warning: Settings vary among the runs of a rung, and not alike in those compared: a: lr (0.00015 to 0.00065, "
        "median 0.0004); b: lr (0.015 to 0.065, median 0.04). Verdicts are about the mixture." in done.stderr
    )
    assert "settings vary within rungs" in done.stdout
    assert "# Also vary: lr (12 values)." in (machine.folder / "runs.toml").read_text()

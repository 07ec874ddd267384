"""Checks of studies: what they show where they cannot decide."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

from lrurun import studies
from lrurun.report import study as reporting
from lrurun.runner import cells
from lrurun.studies import plan as planning
from tests.machine import Machine


def test_a_limit_is_no_measurement() -> None:
    # 500 updates are too few for real and imaginary parts; the exponential form needs 52 of them, or 418
    fast, slow = (in_process("powers", {"angle": 0.5, "lr": rate}) for rate in (0.003, 0.0001))
    assert "real-imaginary never: loss 0.067 (0.5); exponential 52 (0.5)" in fast.answer
    assert reporting.rows(fast.checks)[0][0::3] == ["ok", "≥ 9.61538"]
    assert reporting.rows(slow.checks)[0][0::3] == ["not tested", "≥ 1.19617"]
    assert slow.checks[0].rule == "above 2; not tested: needs more updates"
    assert reporting.counts(slow) == "0 of 1 check passed, 1 not tested"
    assert jnp.zeros(1).dtype == "float32", "what follows in this process is not float64"


def test_one_seed_does_not_fail_tests_over_seeds() -> None:
    report = in_process("disk", {}, seeds=1)
    assert report.failed == []
    assert {one.needs for one in report.checks} == {"", "at least 2 seeds"}
    assert "does not test whether the distance" in report.answer


def in_process(name: str, changes: dict[str, Any], seeds: int = 1) -> reporting.StudyReport:
    """The report of a study in its quickest form, without a ledger."""
    plan = planning.make(studies.get(name), "ci", changes, range(seeds))
    return reporting.build(plan, cells.in_process(plan))


@pytest.mark.slow
def test_a_report_does_not_take_cells_of_another_profile(machine: Machine) -> None:
    machine.run("study", "gain", "--profile", "ci")
    refused = machine.run("report", "study:gain", code=4)
    assert "has no cell of the study gain in profile laptop\n" in refused.stderr
    assert "hint: this ledger has --profile ci; or run: lrurun study gain" in refused.stderr

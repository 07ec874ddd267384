"""`--by` of `lrurun report` and `lrurun plot` with an instance in place of the task."""

from __future__ import annotations

import pytest

from tests.harness.machine import Machine
from tests.harness.results import fill

RATES = (0.002, 0.01, 0.05)


@pytest.fixture
def swept(machine: Machine) -> Machine:
    """Instances of profile smoke that differ in the rate, and one of another width."""
    for rate in RATES:
        scores = {"tanh-rnn": [0.5, 0.51, 0.5], "linear-rnn": [0.5 + rate, 0.6, 0.61]}
        validation = {rung: [0.5 + rate] * 3 for rung in scores}
        fill(machine.ledger, "npDigits", scores, profile="smoke", sets={"optim.lr": rate}, validation=validation)
    fill(machine.ledger, "npDigits", {"tanh-rnn": [0.9]}, profile="smoke", sets={"optim.lr": 0.002, "model.width": 24})
    return machine


@pytest.mark.parametrize("more", [(), ("--choose", "--choice-seeds", "1"), ("--json",)])
def test_the_instances_that_differ_from_the_named_one_in_the_settings(swept: Machine, more: tuple[str, ...]) -> None:
    by = ("--by", "optim.lr", *more)
    expected = swept.run("report", "npDigits", "--profile", "smoke", *by).stdout
    for rate in RATES:
        assert swept.run("report", "--instance", f"npDigits-smoke-lr{rate:g}", *by).stdout == expected
    assert "0.05" in expected
    wide = swept.run("report", "--instance", "npDigits-smoke-lr0.002-width24", *by[:2]).stdout
    assert "90.0" in wide
    assert "0.05" not in wide


def test_a_figure_of_them(swept: Machine) -> None:
    words = ("--by", "optim.lr", "--out")
    swept.run("plot", "npDigits", "--profile", "smoke", *words, "task.svg")
    swept.run("plot", "--instance", "npDigits-smoke-lr0.01", *words, "instance.svg")
    assert (swept.folder / "instance.svg").read_text() == (swept.folder / "task.svg").read_text()


def test_an_instance_that_is_not_there(swept: Machine) -> None:
    said = swept.refused("report", "--instance", "npDigit", "--by", "optim.lr", code=4)
    assert "no ladder instance 'npDigit' in this ledger" in said
    said = swept.refused("--ledger", "other.db", "report", "--instance", "npDigits", "--by", "optim.lr", code=4)
    assert "hint: name one with --ledger PATH" in said

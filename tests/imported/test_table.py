"""Faults of the table `[import]` beyond its types."""

from __future__ import annotations

from typing import Any

import pytest

from lrurun.config.imported import rules
from tests.harness.tracked_runs import table


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"at": "best"}, '[import], at: "best" needs metric_for_choice'),
        ({"choose": ("lr",)}, "[import], choose: needs metric_for_choice"),
        ({"metric_for_choice": "test_acc"}, "[import], metric_for_choice: is the score itself"),
        ({"protocol": "best-of-test", "at": 3}, '[import], at: protocol = "best-of-test" is the best of all steps'),
        ({"direction_for_choice": "min"}, "[import], direction_for_choice: needs metric_for_choice"),
        ({"seed": "test_acc"}, "[import], seed: is a metric, and no seed"),
        ({"seed": "val_acc", "metric_for_choice": "val_acc"}, "[import], seed: is a metric, and no seed"),
        ({"choose": ("s",), "seed": "s", "metric_for_choice": "val_acc"}, "[import], choose: s is the seed"),
        ({"choose": ("val_acc",), "metric_for_choice": "val_acc"}, "[import], choose: val_acc is a metric"),
        ({"choose": ("lr", "lr"), "metric_for_choice": "val_acc"}, "[import], choose: lr is there 2 times"),
        (
            {"at": "best", "metric_for_choice": "test_loss", "direction_for_choice": "min"},
            "[import], metric_for_choice: is of the test split by its name",
        ),
        ({"choose": ("lr",), "metric_for_choice": "acc/test"}, "[import], metric_for_choice: is of the test split"),
        ({"metric": "best_test_acc"}, "[import], metric: is the best over steps by its name"),
        ({"metric": "test/acc.max"}, "[import], metric: is the best over steps by its name"),
        ({"metric": "test_loss.min", "direction": "min"}, "[import], metric: is the best over steps by its name"),
        ({"metric_for_choice": "val_loss"}, "[import], metric_for_choice: lower values are better by its name"),
        (
            {"metric": "test_loss", "direction": "min", "metric_for_choice": "val_acc"},
            "[import], metric_for_choice: higher values are better by its name",
        ),
        ({"metric_for_choice": "val_quux"}, "[import], metric_for_choice: its name does not say whether higher or"),
        ({"repeat": "all"}, "[import], repeat: needs a seed"),
        ({"unit": "%", "chance": 10.0}, '[import], chance: with unit = "%", scores are fractions'),
    ],
)
def test_a_fault_names_its_place_and_what_to_do(fields: dict[str, Any], message: str) -> None:
    [fault] = rules(table(**fields), "mine.toml")
    assert fault.message.startswith(f"mine.toml {message}")
    assert fault.hint


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"at": "best", "metric_for_choice": "val_acc", "direction_for_choice": "min"},
        {"choose": ("lr", "wd"), "metric_for_choice": "val_acc", "seed": "seed", "repeat": "mean"},
        {"unit": "%", "chance": 0.1},
        {"unit": "points", "chance": 10.0},
        {"protocol": "best-of-test"},
        {"protocol": "best-of-test", "metric": "best_test_acc"},
        {"protocol": "best-of-test", "choose": ("lr",), "metric_for_choice": "test/top5"},
        {"metric": "best_val_acc"},
        {"metric": "test_acc_at_best_val"},
        {"metric": "test_max_error", "direction": "min"},
        {"metric": "test_quux", "metric_for_choice": "val_quux"},
        {"metric": "test_quux", "metric_for_choice": "val_other", "direction_for_choice": "max"},
        {"at": 0},
    ],
)
def test_a_sound_table_has_no_fault(fields: dict[str, Any]) -> None:
    assert not [*rules(table(**fields), "mine.toml")]

"""When it has to be said at which step runs are scored."""

from __future__ import annotations

import math

import pytest

from lrurun.config.imported import validation_metrics
from lrurun.imported.scoring import last_and_best, reversed_pair, step_to_name
from tests.harness.tracked_runs import table, tracked


@pytest.mark.parametrize(
    ("metric", "found"),
    [
        ("test_acc", ["val_acc", "Valid/ACC", "eval.acc", "acc_dev"]),
        ("acc", ["val_acc", "Valid/ACC", "eval.acc", "acc_dev"]),
        ("val_acc", []),
        ("test/loss", ["val_loss"]),
        ("bleu", []),
    ],
)
def test_validation_metrics_are_named_like_the_score(metric: str, found: list[str]) -> None:
    names = ["acc", "test_acc", "val_acc", "val_loss", "loss", "Valid/ACC", "eval.acc", "train_acc", "acc_dev", "lr"]
    assert validation_metrics(names, metric) == found


def test_a_run_has_a_last_and_a_best_score() -> None:
    run = tracked(curves={"test_acc": {1: 0.5, 2: 0.8, 3: 0.4}, "val_acc": {1: 0.6, 2: 0.9, 3: 0.5}})
    assert last_and_best(run, table(seed="seed"), "val_acc") == (0.4, 0.8)
    loss = tracked(curves={"test_loss": {1: 0.5, 2: 0.2, 3: 0.4}, "val_loss": {1: 0.6, 2: 0.3, 3: 0.5}})
    assert last_and_best(loss, table(metric="test_loss", direction="min"), "val_loss") == (0.4, 0.2)


def test_each_validation_metric_has_its_own_direction() -> None:
    curves = {
        "test_acc": {1: 0.5, 2: 0.8, 3: 0.4},
        "val_loss": {1: 0.6, 2: 0.3, 3: 0.9},
        "val_quux": {1: 0.6, 2: 0.3, 3: 0.9},
        "val_acc": {1: 0.9, 2: 0.3, 3: 0.5},
    }
    run = tracked(curves=curves)
    assert last_and_best(run, table(), "val_loss") == (0.4, 0.8)
    assert last_and_best(run, table(), "val_acc") == (0.4, 0.5)
    assert last_and_best(run, table(metric="test_acc", direction="min"), "val_acc") == (0.4, 0.8)  # as the score
    named = table(metric_for_choice="val_quux", direction_for_choice="min")
    assert last_and_best(run, named, "val_quux") == (0.4, 0.8)
    assert last_and_best(run, named, "val_acc") == (0.4, 0.5)


def test_a_run_without_both_or_without_a_result_says_nothing() -> None:
    assert last_and_best(tracked(curves={"test_acc": {1: 0.5, 2: 0.6}}), table(), "val_acc") is None
    curves = {"test_acc": {1: math.nan, 2: 0.6}, "val_acc": {1: 0.9, 2: 0.5}}
    assert last_and_best(tracked(curves=curves), table(), "val_acc") is None
    assert last_and_best(tracked(curves={}, state="crashed", last={"test_acc": 0.5}), table(), "val_acc") is None


def test_a_table_with_a_row_for_each_run_has_no_step_to_choose() -> None:
    run = tracked(settings={"test_acc": 0.7, "val_acc": 0.6})
    assert last_and_best(run, table(), "val_acc") == (0.7, 0.7)


def test_only_an_order_that_is_reversed_matters() -> None:
    layer, batch = [(0.5, 0.7), (0.5, 0.9)], [(0.6, 0.7), (0.6, 0.7)]  # means (0.5, 0.8) and (0.6, 0.7)
    assert reversed_pair({"layer": layer, "batch": batch}) == ("layer", "batch")
    assert reversed_pair({"layer": layer, "other": [(0.4, 0.6)]}) is None
    assert reversed_pair({"layer": layer, "tie": [(0.5, 0.2)]}) is None
    assert reversed_pair({"layer": layer, "none": []}) is None
    third = {"first": [(0.1, 0.1)], "layer": layer, "batch": batch}
    assert reversed_pair(third) == ("layer", "batch")
    error = step_to_name(third, table(), "val_acc")
    assert error is not None
    assert error.message == (
        "the order of layer and batch by test_acc at the last step is the opposite of that at the step at which "
        "val_acc is best"
    )
    assert error.hint == "say which counts: --at last, or --at best --metric-for-choice val_acc"
    assert step_to_name({"layer": layer}, table(), "val_acc") is None

"""When it has to be said at which step runs are scored."""

from __future__ import annotations

import math

import pytest

from lrurun.config.imported import validation_metrics
from lrurun.errors import UsageError
from lrurun.imported.scoring import LastAndBest, last_and_best
from lrurun.imported.steps import step_to_name
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


def test_an_order_that_is_reversed_matters_where_a_difference_is_larger_than_its_error() -> None:
    layer, batch = [(0.5, 0.7), (0.5, 0.9)], [(0.6, 0.7), (0.6, 0.7)]  # means (0.5, 0.8) and (0.6, 0.7)

    def found(**rungs: list[LastAndBest]) -> UsageError | None:
        return step_to_name(rungs, [], table(), "val_acc")

    error = found(first=[(0.1, 0.1)], layer=layer, batch=batch)
    assert error is not None
    assert error.message == (
        "the order of layer and batch by test_acc at the last step is the opposite of that at the step at which "
        "val_acc is best"
    )
    assert error.hint == "say which counts: --at last, or --at best --metric-for-choice val_acc"
    assert found(layer=layer) is None
    assert found(layer=layer, other=[(0.4, 0.6)]) is None
    assert found(layer=layer, tie=[(0.5, 0.2)]) is None
    assert found(layer=layer, none=[]) is None
    assert found(one=[(0.5, 0.6)], other=[(0.6, 0.5)]) is not None  # a single run has no error
    # differences of -0.001 and 0.001, with errors of 0.01
    near = [(0.8, 0.81), (0.82, 0.83)]
    assert found(near=near, beside=[(last + 0.001, best - 0.001) for last, best in near]) is None
    assert found(near=near, beside=[(last + 0.001, best - 0.02) for last, best in near]) is not None


def test_a_verdict_that_depends_on_the_step_matters() -> None:
    base = [(0.8 + k / 1000, 0.8 + k / 1000) for k in range(12)]
    late = [(last + 0.0001, best + 0.1) for last, best in base]
    error = step_to_name({"base": base, "late": late}, [("late", "base")], table(), "val_acc")
    assert error is not None
    assert error.message == (
        "the verdict on late and base by test_acc depends on the step: undecided at the last one, better at the one at "
        "which val_acc is best"
    )
    loss = table(metric="test_loss", direction="min")
    error = step_to_name({"base": base, "late": late}, [("late", "base")], loss, "val_loss")
    assert error is not None
    assert "worse at the one at which val_loss is best" in error.message
    assert step_to_name({"base": base, "late": late}, [], table(), "val_acc") is None
    both = [(last + 0.1, best + 0.2) for last, best in base]
    assert step_to_name({"base": base, "both": both}, [("both", "base")], table(), "val_acc") is None

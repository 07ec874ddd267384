"""The state, seed and score of imported runs, and their curves as a ledger has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lrurun.errors import UsageError
from lrurun.imported.repeats import seeded
from lrurun.imported.scoring import check_best, recorded_curves, scored
from tests.harness.tracked_runs import made, table, tracked

BEST = {"at": "best", "metric_for_choice": "val_acc"}


def result(run: Any, **fields: Any) -> dict[str, float] | None:
    return scored(run, "csv", table(**fields)).result


@pytest.mark.parametrize(
    ("state", "last", "crashed", "expected", "has_result"),
    [
        ("finished", {"test_acc": 0.5}, "missing", "done", True),
        ("finished", {"test_acc": math.nan}, "missing", "done", True),
        ("finished", {"test_acc": -math.inf}, "missing", "done", True),
        ("finished", {"other": 0.5}, "missing", "failed", False),
        ("finished", {"other": 0.5}, "failed", "failed", False),
        ("crashed", {"test_acc": 0.5}, "missing", "failed", False),
        ("crashed", {"test_acc": 0.5}, "failed", "diverged", True),
        ("crashed", {}, "failed", "diverged", True),
        ("running", {"test_acc": 0.5}, "missing", "interrupted", False),
        ("running", {"test_acc": 0.5}, "failed", "interrupted", False),
    ],
)
def test_the_state_follows_from_the_trackers_and_the_score(
    state: str, last: dict[str, float], crashed: str, expected: str, has_result: bool
) -> None:
    run = scored(tracked(state=state, state_text="exit code 9", last=last), "csv", table(crashed=crashed))
    assert (run.state, run.has_result) == (expected, has_result)
    assert (run.result is not None) == (expected == "done")
    assert bool(run.why) == (expected != "done")
    if state != "finished":
        assert "exit code 9" in run.why


def test_without_the_score_the_run_says_what_it_has_instead() -> None:
    assert scored(tracked(last={"loss": 1.0}), "csv", table()).why == "it has no test_acc"
    assert scored(tracked(settings={"test_acc": "n/a"}), "csv", table()).why == "its test_acc is 'n/a', no number"
    assert scored(tracked(settings={"test_acc": True}), "csv", table()).why == "its test_acc is True, no number"
    assert scored(tracked(settings={"test_acc": ""}), "csv", table()).why == "it has no test_acc"


def test_the_last_score_is_the_trackers_and_not_that_of_the_greatest_step() -> None:
    # resumed from step 20: the newest value is at step 30, and step 50 is of an attempt that was abandoned
    points = [(10, 0.1), (20, 0.2), (50, 0.9), (30, 0.3)]
    run = scored(tracked(curves={"test_acc": points}), "csv", table())
    assert (run.result, run.step, run.went_back) == ({"test/acc": 0.3}, 30, "attempts")
    assert not scored(tracked(curves={"test_acc": [(10, 0.1), (10, 0.2)]}), "csv", table()).went_back
    # a reader that knows it says so without curves
    for metric, went_back in (("test_acc", "attempts"), ("other", "")):
        run = scored(tracked(last={"test_acc": 0.3}, last_step=50, ends={metric: (30, 50)}), "mlflow", table())
        assert run.went_back == went_back


def test_an_abandoned_attempt_is_void() -> None:
    # from step 5 back to 2, where the run goes on and ends at 3
    val = [(0, 0.1), (1, 0.2), (2, 0.3), (3, 0.4), (4, 0.5), (5, 0.9), (2, 0.35), (3, 0.6)]
    test = [(step, value - 0.05) for step, value in val]
    run = tracked(curves={"val_acc": val, "test_acc": test})
    best = scored(run, "csv", table(**BEST))
    assert best.result == {"test/acc": pytest.approx(0.55), "val/acc": 0.6, "best_step": 3.0}
    assert (best.step, best.went_back, best.choice) == (3, "attempts", 0.6)
    assert result(run, protocol="best-of-test") == {"test/acc": pytest.approx(0.55)}
    assert scored(run, "csv", table(at=5)).why == "it has no test_acc at step 5; its last one is at step 3"
    recorded = recorded_curves(run, table(metric_for_choice="val_acc"))
    assert [*recorded] == ["val/acc", "test/acc"]
    assert all(of_name.steps.tolist() == [0, 1, 2, 3] for of_name in recorded.values())


def test_the_step_of_a_run_is_that_of_its_last_attempt() -> None:
    again = [(10, 0.1), (20, 0.2), (30, 0.3), (20, 0.2), (30, 0.3), (40, 0.4)]
    other = {"train_loss": {45: 1.0}}
    # it went beyond the abandoned attempt, and other metrics may go further still
    assert scored(tracked(curves={"test_acc": again} | other), "csv", table()).step == 45
    shorter = again[:4]
    assert scored(tracked(curves={"test_acc": shorter} | other), "csv", table()).step == 20
    assert scored(tracked(curves={"test_acc": {10: 0.1}} | other), "csv", table()).step == 45


def test_the_step_is_the_same_where_the_tracker_tells_ends_without_curves() -> None:
    again = [(10, 0.1), (20, 0.2), (30, 0.3), (20, 0.2)]
    for ends, step in (({"test_acc": (20, 30)}, 20), ({"test_acc": (30, 30)}, 45), ({"other": (1, 9)}, 45), ({}, 45)):
        run = tracked(last={"test_acc": 0.2}, last_step=45, ends=ends)
        found = scored(run, "mlflow", table())
        assert (found.step, found.went_back) == (step, "attempts" if step == 20 else "")
    both = tracked(curves={"test_acc": again}, last_step=45, ends={"test_acc": (20, 30)})
    assert scored(both, "mlflow", table()).step == 20


def test_the_points_of_two_writers_stay() -> None:
    lines = [(50 + k, 0.5) for k in range(5)], [(3 + k, 0.1) for k in range(5)]
    both = [point for pair in zip(*lines, strict=True) for point in pair]
    first = [(step, 0.2) for step in range(50)]
    run = scored(tracked(curves={"test_acc": first + both, "val_acc": first + both}), "csv", table(**BEST))
    assert run.went_back == "writers"
    assert run.step == 54
    assert run.result == {"test/acc": 0.5, "val/acc": 0.5, "best_step": 50.0}


def test_a_run_without_steps_is_at_step_zero() -> None:
    assert scored(tracked(last={"test_acc": 0.5}), "csv", table()).step == 0
    assert scored(tracked(last={"test_acc": 0.5}, last_step=-(2**31)), "csv", table()).step == 0


def test_a_column_of_numbers_among_the_settings_is_a_metric() -> None:
    run = tracked(settings={"test_acc": 90, "val_acc": 80.0})
    assert result(run) == {"test/acc": 90.0}
    assert result(run, per_cent=True, metric_for_choice="val_acc") == {"test/acc": 0.9, "val/acc": 0.8}
    assert result(tracked(settings={"test_acc": 90}, last={"test_acc": 0.4})) == {"test/acc": 0.4}


@pytest.mark.parametrize(
    ("metric", "name", "choice", "of_choice"),
    [
        ("test_acc", "test/acc", "val_acc", "val/acc"),
        ("acc/test", "test/acc", "acc/valid", "val/acc"),
        ("acc", "test/acc", "eval_acc", "val/acc"),
        ("Test Accuracy", "test/Accuracy", "val_loss", "val/loss"),
        ("test/acc@top 5", "test/acc_at_top 5", "dev/acc@top 5", "val/acc_at_top 5"),
        ("escape_step", "test/escape_step_of_run", "validation.acc", "val/acc"),
        ("testing", "test/testing", "evaluation", "val/evaluation"),
    ],
)
def test_results_have_the_names_by_which_reports_look_for_them(
    metric: str, name: str, choice: str, of_choice: str
) -> None:
    from lrurun.config.imported import metric_of
    from lrurun.judging.scores import form_of

    reading = table(metric=metric, metric_for_choice=choice)
    assert result(tracked(last={metric: 0.5, choice: 0.25}), metric=metric, metric_for_choice=choice) == {
        name: 0.5,
        of_choice: 0.25,
    }
    assert form_of(metric_of(reading)).result == name


def test_per_cent_of_a_score_are_not_those_of_a_loss() -> None:
    run = tracked(last={"test_acc": 50.0, "val_loss": 2.0})
    assert result(run, per_cent=True, metric_for_choice="val_loss") == {"test/acc": 0.5, "val/loss": 2.0}


def test_a_step_has_the_value_recorded_there_last() -> None:
    run = tracked(
        curves={"test_acc": [(10, 0.1), (20, 0.2), (20, 0.25), (30, 0.3)], "val_acc": {5: 0.5, 15: 0.6, 25: 0.7}}
    )
    assert result(run, at=20, metric_for_choice="val_acc") == {"test/acc": 0.25, "val/acc": 0.6}
    missing = scored(run, "csv", table(at=15))
    assert (missing.state, missing.why) == ("failed", "it has no test_acc at step 15; its last one is at step 30")
    assert scored(tracked(last={"test_acc": 0.5}), "csv", table(at=0)).why == "it has no test_acc at step 0"


@pytest.mark.parametrize(
    ("test", "val", "direction", "expected"),
    [
        # the first of equal best steps; NaN and infinities are never best
        ({1: 0.1, 2: 0.2, 3: 0.3}, {1: 0.5, 2: 0.9, 3: 0.9}, "max", (0.2, 0.9, 2)),
        ({1: 0.1, 2: 0.2, 3: 0.3}, {1: math.nan, 2: math.inf, 3: 0.1}, "max", (0.3, 0.1, 3)),
        ({1: 0.1, 2: 0.2, 3: 0.3}, {1: 2.0, 2: 1.0, 3: -math.inf}, "min", (0.2, 1.0, 2)),
        # steps at which one of them is missing do not count, even if validation is best there
        ({0: 0.1, 10: 0.2}, {0: 0.5, 5: 0.9, 10: 0.6}, "max", (0.2, 0.6, 10)),
        # of a step recorded twice, the last value; a step back makes what is after it void
        ({1: 0.1, 2: 0.2}, [(1, 0.9), (1, 0.3), (2, 0.5)], "max", (0.2, 0.5, 2)),
        ({1: 0.1, 2: 0.2}, [(1, 0.9), (2, 0.5), (1, 0.3)], "max", (0.1, 0.3, 1)),
        # calls without steps: each value belongs to the one beside it
        ({1: 0.1, 3: 0.2, 5: 0.3}, {0: 0.5, 2: 0.9, 4: 0.6}, "max", (0.2, 0.9, 2)),
        ({0: 0.1, 2: 0.2, 4: 0.3}, {1: 0.5, 3: 0.9, 5: 0.6}, "max", (0.2, 0.9, 3)),
        # a score with NaN there ranks below all others
        ({1: math.nan, 2: 0.2}, {1: 0.9, 2: 0.5}, "max", (math.nan, 0.9, 1)),
    ],
)
def test_the_best_step_is_chosen_by_validation(
    test: Any, val: Any, direction: str, expected: tuple[float, float, int]
) -> None:
    found = result(tracked(curves={"test_acc": test, "val_acc": val}), **BEST, direction_for_choice=direction)
    assert found is not None
    assert [*found.values()] == pytest.approx([*expected], nan_ok=True)
    assert [*found] == ["test/acc", "val/acc", "best_step"]


def test_a_test_after_training_counts_whatever_the_best_step() -> None:
    run = tracked(curves={"test_acc": {31: 0.7}, "val_acc": {10: 0.5, 20: 0.9, 30: 0.6}})
    assert result(run, **BEST) == {"test/acc": 0.7, "val/acc": 0.9}
    without_steps = tracked(curves={"val_acc": {10: 0.5, 20: 0.9}}, last={"test_acc": 0.7, "val_acc": 0.5})
    assert result(without_steps, **BEST) == {"test/acc": 0.7, "val/acc": 0.9}
    assert result(tracked(last={"test_acc": 0.7, "val_acc": 0.5}), **BEST) == {"test/acc": 0.7, "val/acc": 0.5}


def test_a_run_without_both_curves_is_at_its_only_value() -> None:
    assert scored(tracked(last={"test_acc": 0.7, "val_acc": 0.5}), "csv", table(**BEST)).at_only_value
    assert scored(
        tracked(curves={"test_acc": {31: 0.7}, "val_acc": {1: 0.5, 2: 0.9}}), "csv", table(**BEST)
    ).at_only_value
    assert scored(
        tracked(curves={"test_acc": {1: 0.7, 2: 0.8}, "val_acc": {2: 0.9}}), "csv", table(**BEST)
    ).at_only_value
    both = tracked(curves={"test_acc": {1: 0.7, 2: 0.8}, "val_acc": {1: 0.5, 2: 0.9}})
    assert not scored(both, "csv", table(**BEST)).at_only_value
    assert not scored(
        tracked(last={"test_acc": 0.7, "val_acc": 0.5}), "csv", table(metric_for_choice="val_acc")
    ).at_only_value


def test_the_best_step_is_refused_where_no_run_has_one() -> None:
    without, crashed = made("a", at_only_value=True), made("b", None)
    with pytest.raises(UsageError, match=r"^--at best: no run has curves of both test_acc and val_acc") as caught:
        check_best([without, crashed], table(**BEST), "--at best")
    assert "--at last" in str(caught.value.hint)
    check_best([without, made("c")], table(**BEST), "--at best")
    check_best([without], table(), "--at best")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 0.6),
        ({"at": "best"}, 0.9),
        ({"at": 15}, 0.5),
        ({"at": 5}, None),
        ({"protocol": "best-of-test"}, 0.6),
        ({"metric_for_choice": ""}, None),
        ({"metric_for_choice": "dev_acc"}, None),
        ({"per_cent": True}, 0.006),
    ],
)
@pytest.mark.parametrize("curves", [{}, {"test_acc": {30: 0.1}}, {"test_acc": {10: 0.1, 30: 0.3}}])
def test_the_metric_for_choice_does_not_depend_on_the_score(
    curves: Any, fields: dict[str, Any], expected: float | None
) -> None:
    run = tracked(curves={"val_acc": {10: 0.5, 20: 0.9, 30: 0.6}} | curves)
    found = scored(run, "csv", table(**{"metric_for_choice": "val_acc"} | fields))
    assert found.choice == (expected if expected is None else pytest.approx(expected))
    assert found.is_eligible == (expected is not None)


def test_a_run_that_has_not_ended_has_no_choice() -> None:
    reading = table(metric_for_choice="val_acc")
    for state in ("running", "crashed"):
        run = scored(tracked(state=state, last={"val_acc": 0.5}), "csv", reading)
        assert (run.choice, run.is_eligible) == (None, False)
    failed = scored(tracked(state="crashed"), "csv", table(metric_for_choice="val_acc", crashed="failed"))
    assert failed.is_eligible


def test_where_nothing_says_which_values_belong_together_the_run_is_missing() -> None:
    apart = tracked(curves={"test_acc": {1: 0.1, 2: 0.2}, "val_acc": {10: 0.5, 20: 0.9}})
    run = scored(apart, "csv", table(**BEST))
    assert (run.state, run.result) == ("failed", None)
    assert run.why == "test_acc and val_acc were not recorded at the same steps, so that none is chosen"
    no_val = scored(tracked(curves={"test_acc": {1: 0.1, 2: 0.2}}), "csv", table(**BEST))
    assert (no_val.state, no_val.why) == ("failed", "it has no val_acc")


def test_without_a_finite_validation_score_nothing_is_chosen() -> None:
    found = result(tracked(curves={"test_acc": {1: 0.1, 2: 0.2}, "val_acc": {1: math.nan, 2: math.inf}}), **BEST)
    assert found is not None
    assert math.isnan(found["test/acc"])
    assert math.isnan(found["val/acc"])
    assert "best_step" not in found


def test_best_of_test_is_the_best_finite_score() -> None:
    curves = {"test_acc": {1: 0.4, 2: math.inf, 3: 0.6, 4: math.nan, 5: 0.5}}
    assert result(tracked(curves=curves), protocol="best-of-test") == {"test/acc": 0.6}
    assert result(tracked(curves=curves), protocol="best-of-test", direction="min") == {"test/acc": 0.4}
    assert result(tracked(last={"test_acc": 0.3}), protocol="best-of-test") == {"test/acc": 0.3}


def test_a_last_validation_score_that_is_not_finite_is_left_out() -> None:
    # an infinity would be taken for an error of the metric, of the score's direction
    assert result(tracked(last={"test_acc": 0.5, "val_loss": math.inf}), metric_for_choice="val_loss") == {
        "test/acc": 0.5
    }


@pytest.mark.parametrize(
    ("value", "seed"),
    [
        (3, 3), (3.0, 3), ("3", 3), ("3.0", 3), (" 42 ", 42), (-1, -1), ("-1", -1), (0, 0),
        (2**32 - 1, 2**32 - 1), (2**63 - 1, 2**63 - 1), (str(2**63 - 1), 2**63 - 1), (2.0**53, 2**53),
        (None, None), ("", None),
    ],
)  # fmt: skip
def test_seeds_are_whole_numbers(value: Any, seed: int | None) -> None:
    assert scored(tracked(settings={"seed": value}), "csv", table(seed="seed")).seed == seed


def test_a_run_without_the_seed_setting_has_no_seed() -> None:
    assert scored(tracked(), "csv", table(seed="seed")).seed is None
    assert scored(tracked(settings={"seed": 3}), "csv", table()).seed is None


@pytest.mark.parametrize(
    "value", [True, "three", 1.5, math.nan, math.inf, [1], "1e3", 2**63, -(2**63), 2.0**60, 10**400, "9" * 5000]
)
def test_other_seeds_are_refused_with_the_run_named(value: Any) -> None:
    reading = table(seed="seed")
    run = scored(tracked("x7", name="night", settings={"seed": value}, last={"test_acc": 0.5}), "csv", reading)
    with pytest.raises(UsageError) as caught:
        seeded({"a": [run]}, reading)
    assert caught.value.message.startswith("run x7 (night), seed: ")
    assert repr(value) in caught.value.message
    assert "numbered" in str(caught.value.hint)
    # a run without a result does not need one
    crashed = scored(tracked(settings={"seed": value}, state="crashed"), "csv", reading)
    assert [run.seed for run in seeded({"a": [crashed]}, reading).rungs["a"]] == [0]


def test_a_scored_run_has_no_curves() -> None:
    run = tracked(curves={"test_acc": {1: 0.5, 2: 0.6}})
    assert scored(run, "csv", table()).run.curves == {}
    assert run.curves


def test_recorded_curves_have_the_names_of_results() -> None:
    run = tracked(
        curves={
            "test/acc": {1: 7.0},  # the name that the score gets
            "loss": {1: math.nan, 2: 1.0},
            "test_acc": {1: 50.0, 2: 60.0},
            "val_acc": {1: 40.0},
            "val/acc_2": {1: 8.0},
            "val/acc": {1: 9.0},
            "Summary": {-(2**31): 3.0},
        }
    )
    found = recorded_curves(run, table(metric_for_choice="val_acc", per_cent=True))
    values = {name: of_name.values.tolist() for name, of_name in found.items()}
    assert values.pop("loss") == pytest.approx([math.nan, 1.0], nan_ok=True)
    assert values == {
        "test/acc": [0.5, 0.6],
        "val/acc": [0.4],
        "test/acc_2": [7.0],
        "val/acc_2": [8.0],
        "val/acc_3": [9.0],
    }
    assert recorded_curves(run, table(metric="test/acc"))["test/acc"].values.tolist() == [7.0]
    assert "val_acc" in recorded_curves(run, table())


def test_recorded_curves_do_not_depend_on_the_order_of_the_metrics() -> None:
    first = recorded_curves(tracked(curves={"test/acc": {1: 1.0}, "test_acc": {1: 2.0}}), table())
    second = recorded_curves(tracked(curves={"test_acc": {1: 2.0}, "test/acc": {1: 1.0}}), table())
    assert {name: of_name.values.tolist() for name, of_name in first.items()} == {
        "test/acc": [2.0],
        "test/acc_2": [1.0],
    }
    assert np.array_equal(first["test/acc"].values, second["test/acc"].values)

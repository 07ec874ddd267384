"""What is understood of runs: metrics, directions, seeds, and the settings that vary."""

from __future__ import annotations

from typing import Any

import pytest

from lrurun.errors import UsageError
from lrurun.imported import understanding
from lrurun.trackers import TrackedRun
from tests.harness.tracked_runs import tracked


def _runs(*tables: dict[str, Any], last: dict[str, float] | None = None) -> list[TrackedRun]:
    return [TrackedRun(id=f"r{k}", settings=table, last=last or {}) for k, table in enumerate(tables)]


def test_the_only_metric_of_the_test_split_is_the_score() -> None:
    runs = _runs({}, last={"test_acc": 0.8, "val_acc": 0.7, "train_loss": 1.0})
    assert understanding.chosen_metric(runs, None) == "test_acc"
    assert understanding.chosen_metric(runs, "val_acc") == "val_acc"
    with pytest.raises(UsageError, match="no run has this metric") as caught:
        understanding.chosen_metric(runs, "test_ac")
    assert caught.value.hint == "did you mean 'test_acc'? metrics: test_acc, val_acc, train_loss"


def test_of_a_table_numbers_that_sound_like_scores_of_a_split_are_metrics() -> None:
    runs = _runs({"norm": "a", "lr": 0.1, "test_acc": 0.8, "test_size": 100, "score": 3}, last={})
    assert understanding.metrics(runs) == {"test_acc": 1}
    assert understanding.chosen_metric(runs, "score") == "score"  # any number may be one


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([0.8, 0.9], ("%", False)),
        ([80.0, 91.2], ("%", True)),
        ([1.0, 0.0], ("%", False)),
        ([-0.1, 0.5], ("", False)),
        ([800.0], ("", False)),
        ([float("nan")], ("", False)),
        ([float("nan"), 0.5], ("%", False)),
    ],
)
def test_accuracies_are_fractions_or_per_cent_by_their_values(values: list[float], scale: tuple[str, bool]) -> None:
    found = understanding.scale_of("test_acc", values)
    assert (found.unit, found.per_cent) == scale
    assert understanding.scale_of("test_loss", values).unit == ""


@pytest.mark.parametrize(
    ("tables", "column"),
    [
        ([{"seed": 0}, {"seed": 1}], "seed"),
        ([{"seed": "0"}, {"seed": "1"}], "seed"),
        ([{"train.seed": 0}, {"train.seed": 1}], "train.seed"),
        ([{"train.seed": 0, "seed": 5}, {"train.seed": 1, "seed": 6}], "seed"),
        ([{"train.seed": 0, "seed": 5}, {"train.seed": 1, "seed": 5}], "train.seed"),
        ([{"random_state": 0}, {"random_state": 2**31}], "random_state"),
        ([{"seed": 0}, {"seed": 0}], None),
        ([{"seed": 0.5}, {"seed": 1}], None),
        ([{"seed": True}, {"seed": False}], None),
        ([{"seeds": 0}, {"seeds": 1}], None),
    ],
)
def test_the_setting_with_the_seed(tables: list[dict[str, Any]], column: str | None) -> None:
    assert understanding.seed_column(_runs(*tables)) == column


def test_two_seeds_of_one_kind_are_asked_about() -> None:
    with pytest.raises(UsageError, match=r"2 settings may be the seed: a\.seed, b\.seed"):
        understanding.seed_column(_runs({"a.seed": 0, "b.seed": 1}, {"a.seed": 1, "b.seed": 0}))


def test_settings_that_vary_without_what_identifies_runs() -> None:
    tables = [
        {
            "norm": norm,
            "depth": depth,
            "same": 1,
            "sometimes": None if k else 2,
            "note": f"text {k}",
            "noise": 0.1 * k,
            "hostname": f"h{k % 2}",
            "created_at": k,
            "run.id": k,
            "seed": k,
        }
        for k, (norm, depth) in enumerate([("a", 4), ("b", 4), ("a", 8), ("b", "8"), ("a", 8.0)])
    ]
    found = understanding.varying(_runs(*tables))
    assert [each.shown for each in found] == ["norm (a, b)", "depth (4, 8, '8')", "sometimes (2, none)"]
    assert [each.is_number for each in found] == [False, False, True]
    assert understanding.chosen_by(_runs(*[{"norm": t["norm"], "lr": t["depth"]} for t in tables[:3]]), ()) == ["norm"]


def test_settings_are_named_by_their_last_parts() -> None:
    known = ["model.norm", "optim.lr", "sched.lr", "data/name"]
    assert understanding.resolved_name("norm", known, "--by") == "model.norm"
    assert understanding.resolved_name("settings.model.norm", known, "--by") == "model.norm"
    assert understanding.resolved_name("name", known, "--by") == "data/name"
    with pytest.raises(UsageError, match="--by lr: several settings end in it") as caught:
        understanding.resolved_name("lr", known, "--by")
    assert caught.value.hint == "name one of them: optim.lr, sched.lr"
    with pytest.raises(UsageError, match="--by nrom: no run has this setting") as caught:
        understanding.resolved_name("nrom", known, "--by")
    assert "did you mean 'model.norm'?" in (caught.value.hint or "")


def test_numbers_that_no_two_runs_share_are_settings_unless_their_names_say_something_else() -> None:
    names = ["lr", "loss_weight", "wall_time", "samples_per_second", "train_loss", "grad.acc"]
    runs = [tracked(f"r{k}", settings=dict.fromkeys(names, 0.1 + k / 7)) for k in range(5)]
    assert [each.name for each in understanding.varying(runs, with_drawn=True)] == ["lr", "loss_weight"]
    assert not understanding.varying(runs)


def test_whole_numbers_that_no_float_reaches() -> None:
    """Settings may be such, of which a seed is none too large to be one here; scores are infinite."""
    large = 10**400
    runs = _runs({"seed": large, "test_acc": large}, {"seed": 1, "test_acc": -large})
    assert understanding.seed_column(runs) == "seed"
    assert [run.last["test_acc"] for run in (understanding.with_metrics(run, ["test_acc"]) for run in runs)] == [
        float("inf"),
        float("-inf"),
    ]

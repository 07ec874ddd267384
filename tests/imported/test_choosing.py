"""The settings that are chosen by validation among the runs of a rung."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from lrurun.errors import UsageError
from lrurun.imported.choosing import ChosenRuns, chosen, on_choices
from lrurun.imported.scoring import ScoredRun
from tests.harness.tracked_runs import made, table

LR = table(seed="seed", choose=("lr",), metric_for_choice="val_acc")


def runs_of(lr: Any, val: Sequence[float | None], *, first: int = 0, score: float = 0.5) -> list[ScoredRun]:
    """Runs with the seeds from `first` on: the validation scores of each; None for a missing run."""
    return [
        made(f"{lr}/{seed}", None if of_run is None else score, seed=seed, val=of_run, settings={"lr": lr})
        for seed, of_run in enumerate(val, start=first)
    ]


def choose(*runs: Iterable[ScoredRun], reading: Any = LR) -> ChosenRuns:
    [found] = chosen({"a": [run for group in runs for run in group]}, reading)
    return found


def names(runs: Iterable[ScoredRun]) -> list[str]:
    return [run.run.id for run in runs]


def test_without_settings_to_choose_all_runs_are_for_the_verdict() -> None:
    found = choose(runs_of(0.1, [0.5, 0.6]), runs_of(0.2, [0.9]), reading=table())
    assert len(found.train) == 3
    assert (found.settings, found.tune, found.sentence, found.shares_runs) == ({}, (), "", False)


def test_with_enough_seeds_a_third_of_them_chooses_and_the_others_are_judged() -> None:
    # 18 common seeds: the first 6 choose. By them 0.2 is best; by all 18, 0.1 would be.
    found = choose(runs_of(0.1, [0.5] * 6 + [0.9] * 12), runs_of(0.2, [0.6] * 18))
    assert found.settings == {"lr": 0.2}
    assert names(found.train) == [f"0.2/{seed}" for seed in range(6, 18)]
    assert len(found.tune) == 18 + 6
    assert not found.shares_runs
    assert found.sentence == (
        "a: lr = 0.2 is the best of 2 by the mean val_acc of 6 seeds; the verdict uses other seeds"
    )


def test_fewer_seeds_choose_where_that_leaves_enough_to_the_verdict() -> None:
    # 14 common seeds: a third of them, four, would leave ten; the first two leave twelve
    found = choose(runs_of(0.1, [0.5] * 2 + [0.9] * 12), runs_of(0.2, [0.6] * 14))
    assert (found.settings, found.shares_runs) == ({"lr": 0.2}, False)
    assert names(found.train) == [f"0.2/{seed}" for seed in range(2, 14)]
    # 16: five would leave eleven, four leave twelve
    assert len(choose(runs_of(0.1, [0.5] * 16), runs_of(0.2, [0.6] * 16)).train) == 12


def test_where_the_verdict_would_have_too_few_it_shares_runs_with_the_choice() -> None:
    found = choose(runs_of(0.1, [0.5] * 2 + [0.9] * 11), runs_of(0.2, [0.6] * 13))
    assert found.shares_runs
    assert found.settings == {"lr": 0.1}
    assert names(found.train) == [f"0.1/{seed}" for seed in range(13)]
    assert names(found.tune) == [f"0.2/{seed}" for seed in range(13)]
    assert found.sentence.endswith("by the mean val_acc of 13 seeds; the verdict uses these runs too")


def test_a_sweep_with_few_seeds_leaves_the_others_of_the_best_to_the_verdict() -> None:
    # two seeds of each, and twelve more of the best: the two choose
    found = choose(runs_of(0.1, [0.5, 0.5]), runs_of(0.2, [0.6] * 14), runs_of(0.3, [0.4, 0.4]))
    assert not found.shares_runs
    assert names(found.train) == [f"0.2/{seed}" for seed in range(2, 14)]
    # with a single seed that all have, it chooses alone
    single = choose(runs_of(0.1, [0.5]), runs_of(0.2, [0.6] * 13))
    assert (single.shares_runs, len(single.train)) == (False, 12)
    assert "of 1 seed;" in single.sentence


def test_without_a_common_seed_all_runs_choose() -> None:
    found = choose(runs_of(0.1, [0.5, 0.9]), runs_of(0.2, [0.6, 0.6], first=5))
    assert (found.settings, found.shares_runs) == ({"lr": 0.1}, True)
    assert "of all runs of each, which have no seed in common" in found.sentence


def test_only_common_seeds_choose() -> None:
    # the third seed of 0.1 is splendid, and no other combination has it
    found = choose(runs_of(0.1, [0.5, 0.5, 1.0]), runs_of(0.2, [0.6, 0.6]))
    assert found.settings == {"lr": 0.2}


def test_a_missing_run_leaves_its_seed_out_of_the_choice() -> None:
    found = choose(runs_of(0.1, [0.5, None, 0.9]), runs_of(0.2, [0.6, 0.1, 0.6]))
    assert found.settings == {"lr": 0.1}  # (0.5 + 0.9) / 2 = 0.7 > 0.6
    assert names(found.train) == ["0.1/0", "0.1/1", "0.1/2"]  # the missing one is missing in the verdict


def test_a_run_that_diverged_or_has_no_finite_choice_is_worse_than_any_score() -> None:
    diverged = made("x", None, state="diverged", seed=1, settings={"lr": 0.1})
    assert choose([*runs_of(0.1, [0.9]), diverged], runs_of(0.2, [0.1, 0.1])).settings == {"lr": 0.2}
    assert choose(runs_of(0.1, [0.9, math.nan]), runs_of(0.2, [0.1, 0.1])).settings == {"lr": 0.2}
    # two of three without are worse than one of three
    found = choose(runs_of(0.1, [0.9, math.nan, math.nan]), runs_of(0.2, [0.1, math.nan, 0.1]))
    assert found.settings == {"lr": 0.2}


@pytest.mark.parametrize(
    ("values", "best"),
    [
        ([0.1, 0.01, 0.03], 0.01),
        ([10, 9], 9),
        ([100, 20.0], 20.0),
        (["b", "a"], "a"),
        (["a", 5], 5),
        ([3, None], None),
        ([10**400, 3], 3),
    ],
)
def test_between_equal_combinations_the_smaller_value_is_chosen(values: list[Any], best: Any) -> None:
    groups = [runs_of(value, [0.5, 0.5]) for value in values]
    for order in (groups, groups[::-1]):
        assert choose(*order).settings == {"lr": best}


def test_a_lower_loss_is_better() -> None:
    loss = table(seed="seed", choose=("lr",), metric_for_choice="val_acc", direction_for_choice="min")
    assert choose(runs_of(0.1, [0.5, 0.5]), runs_of(0.2, [0.6, 0.6]), reading=loss).settings == {"lr": 0.1}
    minimised = table(seed="seed", choose=("lr",), metric_for_choice="val_acc", direction="min")
    assert choose(runs_of(0.1, [0.5, 0.5]), runs_of(0.2, [0.6, 0.6]), reading=minimised).settings == {"lr": 0.1}


def test_the_choice_does_not_see_test_scores() -> None:
    found = choose(runs_of(0.1, [0.6, 0.6], score=0.1), runs_of(0.2, [0.5, 0.5], score=0.9))
    assert found.settings == {"lr": 0.1}


def test_the_choice_does_not_see_whether_there_are_test_scores() -> None:
    untested = [
        made(f"0.1/{seed}", 0.5 if seed == 1 else None, seed=seed, val=0.9, settings={"lr": 0.1}) for seed in range(4)
    ]
    other = runs_of(0.2, [0.6] * 4)
    found = choose(untested, other)
    assert found.settings == {"lr": 0.1}
    assert [run.run.id for run in found.train if not run.has_result] == ["0.1/0", "0.1/2", "0.1/3"]
    assert found.sentence.endswith("; 3 of its 4 runs have no test_acc, and count as missing")
    # none of them has one, and with enough seeds
    none = [made(f"0.1/{seed}", None, seed=seed, val=0.9, settings={"lr": 0.1}) for seed in range(18)]
    found = choose(none, runs_of(0.2, [0.6] * 18))
    assert (found.settings, found.shares_runs, len(found.train)) == ({"lr": 0.1}, False, 12)
    assert "12 of its 12 runs have no test_acc" in found.sentence
    # those that have not ended are left out, as before
    crashed = [made(f"0.1/{seed}", None, seed=seed, settings={"lr": 0.1}) for seed in range(4)]
    assert names(choose(crashed, other).train) == names(other)


def test_a_combination_without_the_metric_for_choice_is_not_chosen_and_a_sentence_says_so() -> None:
    without = [made(f"0.1/{seed}", 0.5, seed=seed, settings={"lr": 0.1}) for seed in range(3)]
    found = choose(without, runs_of(0.2, [0.1] * 3))
    assert names(found.train) == ["0.2/0", "0.2/1", "0.2/2"]
    assert found.sentence == "a: lr = 0.2 is the only one of 2 with val_acc"


def test_combinations_of_two_settings_are_chosen_together() -> None:
    runs = [
        made(f"{lr}/{wd}", 0.5, val=val, settings={"lr": lr, "wd": wd})
        for (lr, wd), val in {(1, 0): 0.5, (1, 1): 0.8, (2, 0): 0.7, (2, 1): 0.6}.items()
    ]
    found = choose(runs, reading=table(seed="seed", choose=("lr", "wd"), metric_for_choice="val_acc"))
    assert found.settings == {"lr": 1, "wd": 1}
    assert (found.combinations, names(found.train)) == (4, ["1/1"])


def test_equal_values_are_one_combination_and_texts_are_none() -> None:
    same = [made("x", 0.5, seed=0, val=0.5, settings={"lr": 1}), made("y", 0.5, seed=1, val=0.5, settings={"lr": 1.0})]
    assert (choose(same).combinations, len(choose(same).train)) == (1, 2)
    apart = [made(str(k), 0.5, val=0.5, settings={"lr": lr}) for k, lr in enumerate([1, "1", True, [1], None])]
    assert choose(apart).combinations == 5


def test_a_single_combination_with_results_is_not_chosen() -> None:
    found = choose(runs_of(0.1, [None, None]), runs_of(0.2, [math.nan] * 14))
    assert names(found.train) == [f"0.2/{seed}" for seed in range(14)]
    assert (names(found.tune), found.sentence, found.shares_runs) == (["0.1/0", "0.1/1"], "", False)
    nothing = choose(runs_of(0.1, [None]), runs_of(0.2, [None]))
    assert names(nothing.train) == ["0.1/0", "0.2/0"]


def test_equal_ids_of_two_projects_stay_apart() -> None:
    runs = [
        made("r", 0.5, seed=0, val=0.5, settings={"lr": 0.1}, project="p"),
        made("r", 0.5, seed=0, val=0.6, settings={"lr": 0.2}, project="q"),
    ]
    assert [run.run.project for run in choose(runs).train] == ["q"]


def test_an_unknown_setting_names_the_nearest() -> None:
    momentum = made("x", val=0.5, settings={"momentum": 0.9})
    with pytest.raises(UsageError, match=r"^--choose momentun: no run has this setting$") as caught:
        choose([momentum], reading=table(choose=("momentun",), metric_for_choice="val_acc"))
    assert str(caught.value.hint).startswith("did you mean 'momentum'?")


def test_without_a_metric_for_choice_in_any_run_nothing_is_chosen_in_silence() -> None:
    with pytest.raises(UsageError, match=r"^rung a: has 2 combinations of lr, and no run .* finite val_acc"):
        choose(runs_of(0.1, [math.nan]), runs_of(0.2, [math.inf]))


def test_cautions_name_the_rungs_that_share_runs_and_unequal_grids() -> None:
    rungs = {
        "few": [*runs_of(0.1, [0.5] * 3), *runs_of(0.2, [0.6] * 3)],
        "many": [*runs_of(0.1, [0.5] * 18), *runs_of(0.2, [0.6] * 18), *runs_of(0.3, [0.4] * 18)],
    }
    shared, unequal = on_choices(chosen(rungs, LR), LR)
    assert (shared.short, shared.rungs) == ("choice and verdict share runs", ("few",))
    assert "fewer than 12 seeds" in shared.full
    assert unequal.short == "unequal numbers of combinations"
    assert "few 2, many 3" in unequal.full
    assert not [*on_choices(chosen({"many": rungs["many"]}, LR), LR)]
    assert not [*on_choices(chosen(rungs, table()), table())]


@pytest.mark.parametrize(
    ("val", "at_edge"),
    [
        ({0.1: 0.5, 0.2: 0.6, 0.3: 0.4}, False),
        ({0.1: 0.7, 0.2: 0.6, 0.3: 0.4}, True),
        ({0.1: 0.5, 0.2: 0.6, 0.3: 0.9}, True),
        ({0.1: 0.5, 0.2: 0.6}, False),  # of two, each is at the edge
        ({"a": 0.9, "b": 0.6, "c": 0.4}, False),
        ({0.1: 0.5, 0.2: 0.6, None: 0.4}, False),
        ({0.1: 0.5, 0.2: 0.6, 0.3: None}, False),  # nothing is known of a value whose runs are missing
    ],
)
def test_a_best_number_at_the_edge_of_those_tried_is_a_caution(val: Mapping[Any, float | None], at_edge: bool) -> None:
    runs = [run for lr, of_lr in val.items() for run in runs_of(lr, [of_lr] * 18)]
    found = [*on_choices(chosen({"a": runs}, LR), LR)]
    assert [caution.short for caution in found] == ["best value at the edge of those tried"] * at_edge
    if at_edge:
        assert "a: lr" in found[0].full


def test_without_a_common_seed_many_runs_are_shared_too() -> None:
    found = choose(runs_of(0.1, [0.5] * 14), runs_of(0.2, [0.6] * 14, first=50))
    assert (found.shares_runs, len(found.train)) == (True, 14)


def test_a_rung_without_results_has_no_number_of_combinations() -> None:
    rungs = {"a": [*runs_of(0.1, [0.5] * 18), *runs_of(0.2, [0.6] * 18)], "b": runs_of(0.1, [None])}
    assert not [*on_choices(chosen(rungs, LR), LR)]

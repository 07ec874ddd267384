"""Seeds of runs without them, and several runs of one rung and seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from lrurun.errors import UsageError
from lrurun.imported.repeats import SeededRuns, mean_of, seeded
from lrurun.imported.scoring import ScoredRun
from tests.harness.tracked_runs import made, table

SEED = table(seed="seed")


def seeds(runs: SeededRuns) -> dict[str, dict[str, int | None]]:
    """Rung -> run -> its seed."""
    return {rung: {run.run.id: run.seed for run in of_rung} for rung, of_rung in runs.rungs.items()}


def repeated(repeat: str, *runs: ScoredRun) -> SeededRuns:
    return seeded({"a": runs}, table(seed="seed", repeat=repeat))


def shorts(runs: SeededRuns) -> list[str]:
    return [caution.short for caution in runs.cautions]


def test_without_a_seed_column_the_runs_of_a_rung_are_numbered_by_their_start() -> None:
    rungs = {
        "a": [made("late", seed=None, started_at=30.0), made("early", seed=None, started_at=10.0)],
        "b": [made("x", seed=None), made("lost", None, seed=None), made("y", seed=None)],
    }
    found = seeded(rungs, table())
    assert seeds(found) == {"a": {"late": 1, "early": 0}, "b": {"x": 0, "lost": 1, "y": 2}}
    assert shorts(found) == ["seeds numbered here"]
    assert "is what their user says" in found.cautions[0].full


def test_runs_without_a_time_are_numbered_after_those_with_one() -> None:
    runs = [made("untimed", seed=None), made("timed", seed=None, started_at=5.0), made("other", seed=None)]
    assert seeds(seeded({"a": runs}, table())) == {"a": {"untimed": 1, "timed": 0, "other": 2}}


def test_numbers_of_earlier_imports_stay() -> None:
    before = [made("p", seed=None, started_at=20.0), made("q", seed=None, started_at=30.0)]
    first = seeded({"a": before}, table())
    assert seeds(first) == {"a": {"p": 0, "q": 1}}
    known = {run.key: run.seed for run in first.rungs["a"] if run.seed is not None}
    added = [made("new", seed=None, started_at=1.0), *before, made("last", seed=None, started_at=99.0)]
    assert seeds(seeded({"a": added}, table(), known)) == {"a": {"new": 2, "p": 0, "q": 1, "last": 3}}
    # without them, the new run would come first
    assert seeds(seeded({"a": added}, table())) == {"a": {"new": 0, "p": 1, "q": 2, "last": 3}}
    # a number that is free again is used
    assert seeds(seeded({"a": added[:1] + added[2:]}, table(), {("", "q"): 1})) == {"a": {"new": 0, "q": 1, "last": 2}}
    # two runs of rungs that were apart may have one number: the one that started first keeps it
    assert seeds(seeded({"a": before}, table(), {("", "p"): 0, ("", "q"): 0})) == {"a": {"p": 0, "q": 1}}


def test_a_run_of_two_rungs_has_one_number() -> None:
    shared = made("shared", seed=None, started_at=2.0)
    rungs = {"a": [made("a0", seed=None, started_at=1.0), shared], "b": [shared, made("b0", seed=None, started_at=3.0)]}
    assert seeds(seeded(rungs, table())) == {"a": {"a0": 0, "shared": 1}, "b": {"shared": 1, "b0": 0}}


def test_equal_ids_of_two_projects_are_two_runs() -> None:
    runs = [made("r", seed=None, project="p"), made("r", seed=None, project="q")]
    found = seeded({"a": runs}, table())
    assert [(run.run.project, run.seed) for run in found.rungs["a"]] == [("p", 0), ("q", 1)]


def test_each_combination_of_chosen_settings_is_numbered_and_repeated_by_itself() -> None:
    runs = [made(f"{lr}-{k}", seed=None, settings={"lr": lr}) for lr in (0.1, 0.2) for k in range(2)]
    assert seeds(seeded({"a": runs}, table(choose=("lr",), metric_for_choice="val_acc"))) == {
        "a": {"0.1-0": 0, "0.1-1": 1, "0.2-0": 0, "0.2-1": 1}
    }
    same = [made("x", settings={"lr": 0.1, "seed": 0}), made("y", settings={"lr": 0.2, "seed": 0})]
    choosing = table(seed="seed", choose=("lr",), metric_for_choice="val_acc")
    assert seeds(seeded({"a": same}, choosing)) == {"a": {"x": 0, "y": 0}}
    with pytest.raises(UsageError):
        seeded({"a": same}, SEED)


def test_a_missing_run_without_a_seed_is_numbered_above_the_others() -> None:
    runs = [made("lost", None, seed=None), made("p", seed=7), made("q", seed=3)]
    found = seeded({"a": runs}, SEED)
    assert seeds(found) == {"a": {"lost": 8, "p": 7, "q": 3}}
    assert "seeds numbered here" not in shorts(found)


def test_a_run_with_a_result_and_no_seed_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"^rung b, run y \(night\): has no seed, .*, and 1 other run neither$"
    ) as caught:
        seeded({"a": [made("x")], "b": [made("y", seed=None, name="night"), made("z", seed=None)]}, SEED)
    assert "numbered" in str(caught.value.hint)


def test_several_runs_of_one_rung_and_seed_are_listed() -> None:
    rungs = {
        "a": [made("a1", seed=1, name="first", settings={"lr": 0.1, "w": 1}), made("a2", seed=2), made("a3", seed=1)],
        "b": [made("b1", seed=4, settings={"lr": 0.1, "w": 1}), made("b2", seed=4, settings={"lr": 0.2, "w": 1.0})],
    }
    with pytest.raises(UsageError) as caught:
        seeded(rungs, SEED)
    assert caught.value.message == "several runs of one rung and seed: a, seed 1: a1 (first), a3; b, seed 4: b1, b2"
    assert caught.value.hint == (
        "lr, w differ between them: let validation choose with --choose lr,w --metric-for-choice M, make other rungs "
        "of them, or say which count with --repeat latest, mean or all"
    )


def test_of_many_repeats_an_error_lists_four() -> None:
    runs = [made(f"{seed}{k}", seed=seed) for seed in range(6) for k in "ab"]
    with pytest.raises(UsageError, match=r"a, seed 3: 3a, 3b; and 2 more$"):
        seeded({"a": runs}, SEED)


def test_a_seed_that_is_the_same_everywhere_is_probably_none() -> None:
    with pytest.raises(UsageError) as caught:
        seeded({"a": [made("x"), made("y")], "b": [made("z"), made("u")]}, SEED)
    assert str(caught.value.hint).startswith("seed is 0 in all runs: name another one")


def test_seeds_that_differ_everywhere_may_be_none() -> None:
    apart = {"a": [made("x", seed=10), made("y", seed=11)], "b": [made("z", seed=12), made("u", seed=13)]}
    [caution] = seeded(apart, SEED).cautions
    assert caution.short == ""
    assert caution.full.startswith("No two of the 4 runs have the same seed")
    shared = {"a": [made("x", seed=10), made("y", seed=11)], "b": [made("z", seed=10), made("u", seed=13)]}
    assert not seeded(shared, SEED).cautions
    single = {"a": [made("x", seed=10)], "b": [made("z", seed=12)]}
    assert not seeded(single, SEED).cautions


def test_an_attempt_without_a_result_does_not_count_beside_one_with_it() -> None:
    runs = [made("killed", None, seed=1), made("again", seed=1), made("old", None, seed=2), made("new", None, seed=2)]
    found = seeded({"a": runs}, SEED)
    assert seeds(found) == {"a": {"again": 1, "new": 2}}
    assert found.sentences == ("2 runs without a score left out: another run has the same rung and seed",)
    # a failure counts where no attempt has a score
    failed = [made("p", None, seed=1, state="diverged"), made("q", None, seed=1, state="diverged"), made("r", seed=2)]
    assert seeds(seeded({"a": [*failed, made("s", None, seed=1)]}, SEED)) == {"a": {"q": 1, "r": 2}}
    assert seeds(seeded({"a": [*failed, made("s", seed=1)]}, SEED)) == {"a": {"r": 2, "s": 1}}


@pytest.mark.parametrize(
    ("times", "latest"),
    [
        ([(1.0, 50.0), (2.0, 40.0), (3.0, 30.0)], "r0"),  # by the end
        ([(1.0, None), (3.0, 40.0), (2.0, 30.0)], "r1"),  # one has no end: by the start
        ([(9.0, None), (None, 99.0), (2.0, 30.0)], "r2"),  # neither of all: the last in the source
        ([(None, None), (None, None), (None, None)], "r2"),
        ([(1.0, 50.0), (2.0, 50.0), (3.0, 30.0)], "r1"),  # equal times: the last in the source
    ],
)
def test_the_latest_run_counts(times: Sequence[tuple[float | None, float | None]], latest: str) -> None:
    runs = [made(f"r{k}", seed=1, started_at=start, ended_at=end) for k, (start, end) in enumerate(times)]
    found = repeated("latest", *runs, made("other", seed=2))
    assert seeds(found) == {"a": {latest: 1, "other": 2}}
    [caution] = found.cautions
    assert ("last of the source" in caution.full) == (latest == "r2")


def test_the_mean_of_runs_counts() -> None:
    runs = [
        made("y", 0.5, seed=1, val=0.9, settings={"lr": 0.1, "w": 1}, ended_at=5.0, code="c", step=90),
        made("x", 0.7, seed=1, val=0.5, settings={"lr": 0.2, "w": 1.0}, started_at=2.0, code="d"),
        made("z", 0.9, seed=2),
    ]
    found = repeated("mean", *runs)
    mean, other = found.rungs["a"]
    assert (mean.run.id, mean.seed, mean.state, mean.step) == ("x+y", 1, "done", 90)
    assert mean.result == pytest.approx({"test/acc": 0.6, "val/acc": 0.7})
    assert mean.run.settings == {"w": 1.0}
    assert (mean.run.started_at, mean.run.ended_at, mean.run.code) == (2.0, 5.0, "d, c")
    assert other.run.id == "z"
    assert found.parts == {("", "x+y"): (("", "x"), ("", "y"))}
    assert shorts(found) == [""]
    assert seeds(repeated("mean", runs[1], runs[0], runs[2])) == {"a": {"x+y": 1, "z": 2}}  # in whatever order


def test_the_mean_with_a_failure_is_one() -> None:
    failed = mean_of([made("x", 0.5), made("y", None, state="diverged")])
    assert (failed.state, failed.result) == ("diverged", None)
    unscored = mean_of([made("x", 0.5), made("y", math.nan)])
    assert unscored.state == "done"
    assert math.isnan((unscored.result or {})["test/acc"])


def test_all_runs_count_as_seeds_of_their_own() -> None:
    runs = [
        made("b", seed=1, started_at=2.0),
        made("c", seed=1, started_at=3.0),
        made("a", seed=1, started_at=1.0),
        made("d", seed=5, started_at=4.0),
        made("e", seed=5, started_at=5.0),
    ]
    found = repeated("all", *runs)
    assert seeds(found) == {"a": {"b": 6, "c": 7, "a": 1, "d": 5, "e": 8}}
    assert shorts(found) == ["repeats of a seed count as seeds"]
    assert found.cautions[0].full.startswith("5 runs share 2 seeds, and count as seeds of their own")


def test_whatever_repeat_is_nothing_happens_without_repeats() -> None:
    runs: Mapping[str, Sequence[ScoredRun]] = {"a": [made("x", seed=1), made("y", seed=2)]}
    for repeat in ("", "latest", "mean", "all"):
        found = seeded(runs, table(seed="seed", repeat=repeat))
        assert (seeds(found), found.cautions) == ({"a": {"x": 1, "y": 2}}, ())


def test_numbers_have_no_gaps() -> None:
    found = seeded({"a": [made(str(k), seed=None) for k in range(3000)]}, table())
    assert [run.seed for run in found.rungs["a"]] == list(range(3000))


def test_a_run_yields_in_one_rung_and_counts_in_another() -> None:
    shared = made("shared", None, seed=1)
    found = seeded({"a": [shared, made("again", seed=1), made("other", seed=2)], "b": [shared]}, SEED)
    assert seeds(found) == {"a": {"again": 1, "other": 2}, "b": {"shared": 1}}


VANISHED: Mapping[tuple[str, str], Sequence[tuple[str, str]]] = {("", "gone"): (), ("", "x+y"): (("", "x"), ("", "y"))}


@pytest.mark.parametrize("repeat", ["", "latest", "mean", "all"])
@pytest.mark.parametrize("score", [0.5, None])
def test_a_run_that_the_source_no_longer_has_wins_over_none_that_it_has(repeat: str, score: float | None) -> None:
    here, gone = made("here", score, seed=1, ended_at=1.0), made("gone", 0.9, seed=1, ended_at=99.0)
    for runs in ([here, gone], [gone, here]):
        found = seeded({"a": [*runs, made("other", seed=2)]}, table(seed="seed", repeat=repeat), vanished=VANISHED)
        both = score is not None and repeat in ("mean", "all")
        counted = {"mean": ["gone+here"], "all": ["here", "gone"]}[repeat] if both else ["here"]
        assert sorted(seeds(found)["a"]) == sorted([*counted, "other"])
        yields = "1 run of earlier imports yields to others of the same rung and seed"
        assert found.sentences == (() if both else (yields,))


def test_of_runs_that_the_source_no_longer_has_the_latest_counts() -> None:
    runs = [made("gone", 0.9, seed=1, ended_at=99.0), made("older", 0.5, seed=1, ended_at=1.0)]
    vanished = {run.key: () for run in runs}
    for order in (runs, runs[::-1]):
        assert seeds(seeded({"a": order}, table(seed="seed", repeat="latest"), vanished=vanished)) == {"a": {"gone": 1}}


def test_a_mean_is_in_no_mean() -> None:
    mean = table(seed="seed", repeat="mean")
    old, gone, new = made("x+y", 0.9, seed=1), made("gone", 0.7, seed=1), made("z", 0.5, seed=1)
    found = seeded({"a": [new, gone, old]}, mean, vanished=VANISHED)
    assert seeds(found) == {"a": {"gone+z": 1}}
    assert found.parts == {("", "gone+z"): (("", "gone"), ("", "z"))}
    longer = made("p+q+r", 0.8, seed=1)
    all_gone = {**VANISHED, longer.key: [("", "p"), ("", "q"), ("", "r")]}
    found = seeded({"a": [gone, longer, old]}, mean, vanished=all_gone)
    assert (seeds(found), found.parts) == ({"a": {"p+q+r": 1}}, {})

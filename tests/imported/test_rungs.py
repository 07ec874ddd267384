"""Rungs of the values of settings: names, bases, and the runs and settings of each."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from lrurun.config.ladder import Ladder, Rung
from lrurun.errors import UsageError
from lrurun.imported import rungs
from lrurun.trackers import TrackedRun


def _run(**settings: Any) -> TrackedRun:
    return TrackedRun(id="-".join(map(str, settings.values())), settings=settings)


def _ladder(made: list[rungs.NewRung]) -> Ladder:
    return Ladder(
        name="runs",
        title="",
        source="",
        rungs=tuple(Rung(name=rung.name, title="", on=rung.on, where=rung.where) for rung in made),
        path="runs.toml",
    )


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["layer", "batch"], ["layer", "batch"]),
        ([4, 8], ["depth-4", "depth-8"]),
        ([True, False], ["depth-true", "depth-false"]),
        ([0.001, 1e-05, -1], ["depth-0.001", "depth-1e-05", "depth--1"]),
        ([None, "a"], ["no-depth", "a"]),
        (["none", None], ["none", "no-depth"]),
        (["", "a"], ["empty", "a"]),
        (["a b", "a/b", "A-B"], ["a-b", "a-b-2", "A-B-3"]),
        ([[64, 64], [32]], ["64-64", "32"]),
        (["ü", "日"], ["x", "x-2"]),
        (["x.toml", "../y"], ["x", "y"]),
    ],
)
def test_rungs_are_named_by_values(values: list[Any], names: list[str]) -> None:
    made = rungs.by_values([_run(depth=value) for value in values], ["depth"])
    assert [rung.name for rung in made] == names
    sorted_runs = rungs.sort([(_run(depth=value), "csv") for value in values], _ladder(made))
    assert list(sorted_runs.members.values()) == [[k] for k in range(len(values))]
    assert sorted_runs.outside == []


def test_numbers_are_one_value_by_their_size_and_a_text_is_another() -> None:
    runs = [_run(depth=4), _run(depth="4"), _run(depth=4.0), _run(depth=8), _run(depth=True), _run(depth=1)]
    made = rungs.by_values(runs, ["depth"])
    assert [(rung.name, rung.where, rung.runs) for rung in made] == [
        ("4", "depth = 4 and depth != '4'", 2),
        ("4-2", "depth = '4'", 1),
        ("8", "depth = 8", 1),
        ("true", "depth = true", 1),
        ("1", "depth = 1", 1),
    ]
    members = rungs.sort([(run, "csv") for run in runs], _ladder(made)).members
    assert members == {"4": [0, 2], "4-2": [1], "8": [3], "true": [4], "1": [5]}


def test_what_the_runs_of_a_rung_share_and_in_what_rungs_differ() -> None:
    number = rungs.settings_of([_run(depth=4, w=1), _run(depth=4.0, w=1)], [])
    text = rungs.settings_of([_run(depth="4", w=True), _run(depth="4", w=True)], [])
    mixed = rungs.settings_of([_run(depth=4, w=1), _run(depth="4", w=1)], [])
    assert number.shared == {"depth": 4, "w": 1}
    assert (mixed.shared, mixed.varying) == ({"w": 1}, {"depth": ["4", "'4'"]})
    found = rungs.differences(text, number, source="runs.csv", compared=["depth", "w"])
    assert [(each.path, each.before, each.after) for each in found] == [
        ("settings.depth", 4, "4"),
        ("settings.w", 1, True),
    ]


def test_a_number_in_quotes_is_no_number() -> None:
    made = rungs.by_values([_run(depth=4), _run(depth=8)], ["depth"])
    ladder = _ladder([structs.replace(made[0], where="depth = '4'"), made[1]])
    with pytest.raises(UsageError, match="no run fits it") as caught:
        rungs.sort([(_run(depth=4), "csv"), (_run(depth=8), "csv")], ladder)
    assert caught.value.hint == "without quotes, 4 is the number; values of depth: 4, 8"


def test_bases_are_one_setting_apart_where_there_is_one_such_rung() -> None:
    pairs = [("none", "sgd"), ("layer", "sgd"), ("layer", "adam"), ("none", "adam"), ("batch", "lion"), ("batch", "x")]
    made = rungs.by_values([_run(norm=norm, opt=opt) for norm, opt in pairs], ["norm", "opt"])
    assert [(rung.name, rung.on, rung.apart) for rung in made] == [
        ("none-sgd", None, ()),
        ("layer-sgd", "none-sgd", ("norm",)),
        ("layer-adam", "layer-sgd", ("opt",)),
        ("none-adam", "none-sgd", ("opt",)),  # two are one setting apart: the first rung
        ("batch-lion", "none-sgd", ("norm", "opt")),  # none is
        ("batch-x", "batch-lion", ("opt",)),
    ]


def test_the_base_comes_first() -> None:
    runs = [_run(norm=norm, opt=opt) for norm in ("a", "b", "c") for opt in ("x", "y")]
    made = rungs.by_values(runs, ["norm", "opt"], {"norm": "b"})
    assert [rung.name for rung in made] == ["b-x", "a-x", "a-y", "b-y", "c-x", "c-y"]
    assert rungs.by_values(runs, ["norm", "opt"], {"opt": "y", "norm": "c"})[0].name == "c-y"
    with pytest.raises(UsageError, match="--base norm=d: no run has this value"):
        rungs.by_values(runs, ["norm", "opt"], {"norm": "d"})
    with pytest.raises(UsageError, match="no run has these values together"):
        rungs.by_values(runs[:-1], ["norm", "opt"], {"norm": "c", "opt": "y"})


def test_a_run_of_two_rungs_is_an_error_and_one_of_none_is_outside() -> None:
    runs = [(_run(norm=norm), "csv") for norm in ("a", "b", "c")]
    ladder = _ladder(rungs.by_values([run for run, _ in runs[:2]], ["norm"]))
    assert rungs.sort(runs, ladder).outside == [2]
    first, second = ladder.rungs
    both = structs.replace(ladder, rungs=(first, structs.replace(second, where="norm < c")))
    with pytest.raises(UsageError, match=r"runs\.toml: run a fits rung a and rung b"):
        rungs.sort(runs, both)
    nobody = structs.replace(ladder, rungs=(first, structs.replace(second, where="norm = d")))
    with pytest.raises(UsageError, match=r"rung b: no run fits it") as caught:
        rungs.sort(runs, nobody)
    assert caught.value.hint == "values of norm: a, b, c"


def test_what_runs_of_a_rung_share_and_how_rungs_differ() -> None:
    layer = [_run(norm="layer", lr=0.1, depth=4, seed=k, batch=32 * (k + 1)) for k in range(2)]
    none = [_run(norm="none", lr=0.2, depth=4.0, seed=k, batch=16) for k in range(2)]
    of_layer, of_none = rungs.settings_of(layer, {"seed"}), rungs.settings_of(none, {"seed"})
    assert of_layer.shared == {"norm": "layer", "lr": 0.1, "depth": 4}
    assert of_layer.varying == {"batch": ["32", "64"]}
    found = rungs.differences(of_layer, of_none, source="runs.toml", compared={"norm", "lr", "depth", "batch"})
    assert [(each.path, each.before, each.after) for each in found] == [
        ("settings.norm", "none", "layer"),
        ("settings.lr", 0.2, 0.1),
    ]
    some = rungs.differences(of_layer, of_none, source="", compared={"norm"})
    assert [each.path for each in some] == ["settings.norm"]

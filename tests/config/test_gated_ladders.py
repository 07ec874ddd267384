"""The ladders to gated and selective recurrences: one change per rung, and whole ladders at the smallest size."""

from __future__ import annotations

import json

import pytest

from lrurun.config import plan as planning
from lrurun.config.ladder import load_ladder
from lrurun.errors import UsageError
from tests.harness.commands import folder, said  # noqa: F401
from tests.harness.plans import differences, rungs

MAIN_LINE = {
    "tied-gamma": {"multiplier": "fixed"},
    "elementwise": {"mixing": "elementwise", "model.state": 64},
    "softplus": {"decay": "softplus", "init": "ring"},
    "initial-decay": {"init": "code"},
    "first-step": {"first": "plain"},
    "input-gate": {"input_gate": True},
    "recurrence-gate": {"recurrence_gate": True},
    "rg-lru": {"multiplier": "sqrt"},
    "shuffled-gates": {"gates": "shuffled"},
    "static-gates": {"gates": "static"},
}


def test_each_rung_of_the_main_line_is_one_change() -> None:
    made = rungs(planning.make("SelectiveCopy", ladder="selective", profile="laptop"))
    found = {name: differences(rung) for name, rung in made.items()}
    assert list(found) == ["lru", "real", *MAIN_LINE]
    for name, wanted in MAIN_LINE.items():
        assert {path: value for path, value in found[name].items() if path != "optim.lr"} == wanted, name
    # as many numbers in the state: real ones where there were complex ones
    lru, real = made["lru"].config.model, made["real"].config.model
    assert (real.state, real.recurrence.r_min, real.recurrence.r_max) == (2 * lru.state, 0.9, 0.999)
    assert (real.recurrence.mixing, real.recurrence.multiplier) == ("dense", "trained")
    assert made["shuffled-gates"].on == made["static-gates"].on == "rg-lru"


@pytest.mark.parametrize(
    ("task", "profile"), [("SelectiveCopy", None), ("SelectiveCopy", "length-64"), ("npDigits", None)]
)
def test_other_ladders_begin_where_the_main_line_ends(task: str, profile: str | None) -> None:
    last = rungs(planning.make(task, ladder="selective", profile=profile))["rg-lru"].config
    for name in ("rg-lru", "gates", "negative"):
        assert rungs(planning.make(task, ladder=name, profile=profile))["rg-lru"].config == last, name
    s6 = rungs(planning.make(task, ladder="mamba", profile=profile))["s6"].config
    assert rungs(planning.make(task, ladder="negative", profile=profile))["s6"].config == s6
    single = rungs(planning.make(task, ladder="rg-lru", profile=profile))
    assert (last.model.recurrence.gate_blocks, single["dense-gates"].config.model.recurrence.gate_blocks) == (16, 1)
    without = single["no-input-gate"].config
    assert rungs(planning.make(task, ladder="gates", profile=profile))["no-input-gate"].config == without


@pytest.mark.parametrize("task", ["Copy", "SelectiveCopy", "MQAR", "InductionHeads", "Parity"])
def test_rungs_of_a_ladder_that_is_not_tuned_share_a_learning_rate(task: str) -> None:
    """A rung that takes its settings from a tuned ladder does not take the rate, which its neighbours do not have."""
    for name in ("rg-lru", "gates", "negative", "shortconv"):
        made = rungs(planning.make(task, ladder=name, profile="laptop"))
        assert {one.config.optim.lr for one in made.values()} == {0.004}, name
        assert {one.rate_source.kind for one in made.values()} == {"default"}, name


def test_a_rate_that_equals_the_default_is_chosen_where_the_rung_that_was_tuned_has_it() -> None:
    taken = rungs(planning.make("npDigits", ladder="controls"))["gamma-norm"]
    assert (taken.config.optim.lr, taken.rate_source.kind) == (0.016, "chosen")
    noted = rungs(planning.make("Copy", ladder="selective", profile="laptop"))["lru"]
    assert (noted.rate_source.kind, "all six rates" in noted.rate_source.text) == ("chosen", True)


def test_a_control_that_needs_other_sequences_is_refused_without_any() -> None:
    refused = r'recipes/SelectiveCopy.toml: gates = "shuffled" .*train.batch must be at least 2, found 1'
    with pytest.raises(UsageError, match=refused):
        planning.make("SelectiveCopy", ladder="selective", profile="smoke", sets={"train.batch": 1})
    planning.make("SelectiveCopy", ladder="selective", profile="smoke", sets={"train.batch": 2})


def test_selection_has_delta_alone_b_and_c_alone_both_and_neither() -> None:
    made = rungs(planning.make("SelectiveCopy", ladder="mamba", profile="laptop"))
    parts = {name: made[name].config.model.recurrence for name in ("time-invariant", "low-rank", "b-and-c", "s6")}
    assert {name: (one.delta, one.b, one.c) for name, one in parts.items()} == {
        "time-invariant": ("constant", "constant", "constant"),
        "low-rank": ("low-rank", "constant", "constant"),
        "b-and-c": ("constant", "selective", "selective"),
        "s6": ("low-rank", "selective", "selective"),
    }
    assert {one.discretization for one in parts.values()} == {"euler"}
    both = {(claim.rung, claim.than) for claim in load_ladder("mamba").claims}
    assert {("low-rank", "b-and-c"), ("b-and-c", "low-rank")} <= both


def test_the_blocks_of_griffin_and_mamba_are_made_of_single_parts() -> None:
    made = rungs(planning.make("MQAR", ladder="shortconv", profile="laptop"))
    models = {name: rung.config.model for name, rung in made.items()}
    parts = {name: (one.conv, one.conv_activation, one.branch, one.expand, one.glu) for name, one in models.items()}
    assert parts["lru"] == parts["rg-lru"] == parts["s6"] == parts["attention"] == (0, "none", "none", 1, "full")
    assert parts["lru-conv"] == parts["rg-lru-conv"] == parts["attention-conv"] == (4, "none", "none", 1, "full")
    assert (parts["griffin"], parts["s6-conv"]) == ((4, "none", "gelu", 1, "none"), (4, "silu", "none", 1, "full"))
    assert parts["s6-conv-branch"] == (4, "silu", "silu", 1, "none")
    assert (parts["mamba"], parts["mamba-no-conv"]) == ((4, "silu", "silu", 2, "none"), (0, "none", "silu", 2, "none"))


@pytest.mark.rare
@pytest.mark.parametrize(
    ("ladder", "task"),
    [
        ("rg-lru", "npDigits"),
        ("gates", "Copy"),
        ("mamba", "SelectiveCopy"),
        ("negative", "Parity"),
        ("selective", "InductionHeads"),
        ("shortconv", "MQAR"),
    ],
)
def test_a_ladder_runs_whole_at_the_smallest_size(ladder: str, task: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "ladder", task, "--ladder", ladder, "--profile", "smoke", "--jobs", "2")
    assert code == 0, err
    code, out, _ = said(capsys, "report", task, "--ladder", ladder, "--profile", "smoke", "--json")
    report = json.loads(out)
    assert code == 0
    assert [row["n"] for row in report["rows"]] == [1] * len(report["rows"])
    assert all(row["diverged"] == 0 and row["mean"] is not None for row in report["rows"])
    recall = task not in ("npDigits",)
    assert all((row["escaped"] is not None) == recall for row in report["rows"])
    assert {claim["verdict"] for claim in report["claims"]} <= {"undecided", "not run"}
    of_longest = [claim for claim in report["claims"] if claim["metric"] == "accuracy@longest"]
    assert all("accuracy at longest: " in claim["detail"] for claim in of_longest)
    assert bool(of_longest) == (task in ("Parity", "InductionHeads"))

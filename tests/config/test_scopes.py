"""Claims about long sequences or a number of layers: where they are judged, and what reports say elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lrurun import paths
from lrurun.config import planning
from lrurun.config.ladder import Claim, Ladder, load_ladder, outside_scope
from lrurun.judging import design_record, published, questions
from lrurun.ledger.ledger import Ledger
from lrurun.report.tables.ladder_table import LadderReport
from tests.harness.machine import Machine
from tests.harness.reports import build, make_run, make_rung
from tests.harness.results import fill


@pytest.mark.parametrize(
    ("scope", "length", "depth", "reason"),
    [
        ({}, 1, 6, ""),
        ({"min_length": 4096}, 4096, 6, ""),
        ({"min_length": 4096}, 4095, 6, "about sequences of at least 4,096 steps; these have 4,095"),
        ({"depth": 1}, 80, 1, ""),
        ({"depth": 1}, 80, 2, "about networks of 1 layer; these have 2"),
        ({"depth": 6}, 80, 1, "about networks of 6 layers; these have 1"),
        (
            {"min_length": 4096, "depth": 1},
            80,
            2,
            "about sequences of at least 4,096 steps; these have 80, and about networks of 1 layer; these have 2",
        ),
    ],
)
def test_the_reason_names_what_the_claim_is_about_and_what_is_here(scope, length, depth, reason) -> None:
    assert outside_scope(Claim(text="t", source="s", rung="r", **scope), length, depth) == reason


@pytest.mark.parametrize(
    ("task", "profile", "sets", "length", "depth"),
    [
        ("npDigits", None, {}, 80, 2),
        ("ListOps", None, {}, 2000, 6),  # lengths vary
        ("Retrieval", "smoke", {}, 32, 1),  # pairs
        ("PathX", None, {}, 16_384, 6),
        ("PathX", "laptop", {"model.depth": 3}, 484, 3),
    ],
)
def test_a_plan_knows_length_and_depth(task, profile, sets, length, depth) -> None:
    plan = planning.make(task, profile=profile, sets=sets)
    assert (plan.length, plan.depth("gamma-norm")) == (length, depth)


def test_depth_is_that_of_the_rung() -> None:
    plan = planning.make("Select", ladder="depth", profile="laptop")
    assert [plan.depth(rung) for rung in ("dlr", "dlr-6", "attention", "attention-2")] == [1, 6, 1, 2]


def outside(task: str, ladder: str = "lru", profile: str | None = None, sets: Any = None) -> dict[str, str]:
    return planning.make(task, ladder=ladder, profile=profile, sets=sets or {}).outside_scope


PHASES = "Small initial phases are needed on very long sequences"
CONVOLUTION = "Mamba needs its convolution to recall"


def test_packaged_claims_on_very_long_sequences_are_about_pathx_at_full_size_alone() -> None:
    assert PHASES not in outside("PathX")
    assert outside("PathX", profile="laptop")[PHASES].endswith("at least 16,384 steps; these have 484")
    assert outside("npDigits")[PHASES].endswith("these have 80")
    assert PHASES in outside("Text")


def test_packaged_claims_on_one_layer_need_one() -> None:
    two = outside("MQAR", "shortconv", "laptop")
    assert two[CONVOLUTION] == "about networks of 1 layer; these have 2"
    assert CONVOLUTION not in outside("MQAR", "shortconv", "laptop", {"model.depth": 1})
    assert "The convolution lets S6 recall" not in two  # ours
    kernels = "DLR does not do what needs many kernels, or other kernels for each input"
    assert kernels not in outside("Reverse", "dlr")
    assert kernels in outside("Reverse", "dlr", "length-512")  # six layers


def test_packaged_claims_on_weight_decay_need_some() -> None:
    decay = "Decoupled weight decay generalises better than decay in the gradient"
    recurrent = "Without weight decay of its recurrent parameters, the LRU scores better"
    none = dict.fromkeys((decay, recurrent), "about weight decay; here there is none")
    assert outside("Copy", "training") == none
    assert outside("npDigits", "training") == {}
    assert outside("npDigits", "training", sets={"optim.weight_decay": 0.0}) == none
    assert outside("Copy", "training", sets={"optim.weight_decay": 0.1}) == {}


@pytest.mark.parametrize("name", paths.names("ablations"))
def test_every_packaged_claim_is_in_scope_on_a_task_of_its_paper(name: str) -> None:
    ladder = load_ladder(name)
    for claim in [one for one in ladder.claims if one.has_scope]:
        assert len([one for one in ladder.claims if one.text == claim.text]) == 1
        sets = {"model.depth": 1} if name == "shortconv" else {}
        tried = [(None, {}), ("length-16384", {})] if claim.tasks == ("Shift",) else [(None, sets)]
        known = [task for task in claim.tasks if task not in ladder.other_tasks] or ["npDigits"]
        tasks = ((task, *one) for task in known for one in tried)
        assert any(claim.text not in outside(task, name, *one) for task, *one in tasks), claim.text


def report(scope: str, **more: Any) -> LadderReport:
    claims = (
        Claim(text="long", source="Paper, 1", rung="b", than="a", kind="equal", margin=0.01, tasks=("sCIFAR",)),
        Claim(text="any", source="Paper, 1", rung="b", than="a", tasks=("sCIFAR",)),
    )
    ladder = Ladder(name="x", title="x", source="s", rungs=(make_rung("a"), make_rung("b")), claims=claims)
    scores = {"a": (0.90, 0.91, 0.92), "b": (0.95, 0.96, 0.955)}
    runs = [make_run(f"{rung}{k}", rung, k, score) for rung, found in scores.items() for k, score in enumerate(found)]
    return build(ladder, runs, outside={"long": scope} if scope else {}, **more)


def test_a_claim_outside_its_scope_is_not_judged_and_enters_no_correction() -> None:
    reason = "about sequences of at least 4,096 steps; these have 80"
    inside, found = report(""), report(reason)
    assert inside.claims[0].verdict != "not judged"
    one, other = found.claims
    assert (one.verdict, one.detail, one.reason, one.p_adjusted, one.sides) == ("not judged", reason, reason, None, ())
    assert one.shown == "not judged"
    assert one.mark == ""
    assert other.verdict == inside.claims[1].verdict == "supported"
    # two hypotheses of "equal" less
    assert found.rows[1].comparison is not None
    assert other.p_adjusted == found.rows[1].comparison.p_adjusted == other.p_unadjusted
    assert inside.claims[1].p_adjusted > other.p_adjusted
    left_out = "1 claim not judged here, see below."
    assert found.conclusions[-1].endswith(f"1 supported; 1 provisional. {left_out}")


def test_a_difference_that_a_claim_outside_its_scope_asks_too_is_judged() -> None:
    claim = Claim(text="long", source="s", rung="b", than="a")
    ladder = Ladder(name="x", title="x", source="s", rungs=(make_rung("a"), make_rung("b")), claims=(claim,))
    assert questions.asked(ladder, "sDigits", {"long"}) == [questions.difference("b", "a")]


def test_a_sequential_design_leaves_them_out(tmp_path: Path) -> None:
    plan = planning.make("MQAR", ladder="shortconv", profile="laptop")
    [no_worse] = [one for one in plan.ladder.claims if one.kind == "no-worse"]
    one_layer = planning.make("MQAR", ladder="shortconv", profile="laptop", sets={"model.depth": 1})
    with Ledger.read(str(tmp_path / "none.db")) as ledger:
        design, other = (design_record.planned(made, ledger, None).design for made in (plan, one_layer))
    assert {one.kind for one in design.questions} == {"better"}
    assert questions.of_claim(no_worse, "MQAR")[0] in other.questions


def test_the_papers_own_numbers_are_judged_at_the_papers_own_sizes() -> None:
    ladder = load_ladder("shortconv")
    [one_layer] = [one for one in ladder.claims if one.rung == "attention-conv"]
    assert one_layer.depth == 1
    assert questions.of_claim(one_layer, "MQAR")[0] in published.judge(ladder, "MQAR", "laptop")


def here(machine: Machine, task: str, text: str, *options: str) -> dict[str, Any]:
    [one] = [one for one in machine.json("claims", task, *options)["claims"] if one["text"] == text]
    return dict(one["here"])


def test_lrurun_claims_and_report_say_why(machine: Machine) -> None:
    fill(machine.ledger, "npDigits", {"gamma-norm": (0.9, 0.91), "small-phase": (0.7, 0.71)})
    one = here(machine, "npDigits", PHASES, "--ladder", "lru")
    reason = "about sequences of at least 16,384 steps; these have 80"
    assert (one["verdict"], one["detail"].split("; by the")[0]) == ("not judged", reason)
    found = machine.json("report", "npDigits")
    assert [claim["verdict"] for claim in found["claims"] if claim["text"] == PHASES] == ["not judged"]
    assert [row["verdict"] for row in found["rows"] if row["rung"] == "small-phase"] == ["hurts"]


def test_an_instance_in_scope_judges_what_another_one_cannot(machine: Machine) -> None:
    without = here(machine, "MQAR", CONVOLUTION, "--ladder", "shortconv")
    assert without["verdict"] == "not run"
    command = "lrurun ladder MQAR --ladder shortconv"
    assert without["detail"] == f"{command} would not decide it: the claim is about networks of 1 layer; these have 2"
    scores = {"mamba": (0.9, 0.91, 0.92), "mamba-no-conv": (0.2, 0.21, 0.22)}
    fill(machine.ledger, "MQAR", scores, ladder="shortconv", profile="laptop")
    two = here(machine, "MQAR", CONVOLUTION, "--ladder", "shortconv")
    assert (two["verdict"], two["detail"].split("; by the")[0]) == (
        "not judged",
        "about networks of 1 layer; these have 2",
    )
    fill(machine.ledger, "MQAR", scores, ladder="shortconv", profile="laptop", sets={"model.depth": 1})
    assert here(machine, "MQAR", CONVOLUTION, "--ladder", "shortconv")["verdict"] == "supported"

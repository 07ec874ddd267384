"""`lrurun claims` with a ledger: each claim by the runs that are there, and by the results of studies."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from lrurun import studies
from lrurun.paths import packaged
from lrurun.studies.machinery.evidence import StudyClaim
from tests.harness.machine import Machine
from tests.harness.results import fill, memory

CENTRES = {"tanh-rnn": 0.8, "linear-rnn": 0.9, "diagonal": 0.9, "ring-init": 0.7, "stable-exponential": 0.95}
SCORES = {rung: (centre, centre + 0.01) for rung, centre in CENTRES.items()}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A made-up ladder and a study."""
    machine = memory().copy(tmp_path_factory.mktemp("claims") / "here")
    fill(machine.ledger, "sDigits", SCORES, profile="smoke")
    return machine


@pytest.fixture(scope="module")
def found(judged: Machine) -> dict[str, Any]:
    return judged.json("claims")


def test_claims_have_the_verdict_of_the_report_and_its_task_lists_them(found: dict[str, Any], judged: Machine) -> None:
    report = judged.json("report", "sDigits", "--profile", "smoke")
    here = {one["text"]: one["here"] for one in found["claims"] if one["ladder"] == "lru" and one["task"] == "sDigits"}
    lines = judged.run("claims", "sDigits").stdout.splitlines()
    assert {one["verdict"] for one in report["claims"]} >= {"supported", "not run"}
    for claim in report["claims"]:
        one = here[claim["text"]]
        assert (one["verdict"], one["detail"]) == (claim["verdict"], claim["detail"])
        assert one["provisional"] == claim["provisional"]
        assert one["stand_in"], "no paper has sDigits"
        assert one["profile"] == "smoke"
        assert any(line.startswith(claim["verdict"]) and claim["text"] in line for line in lines)
    assert "Not judged: about sequences of at least 16,384 steps." in lines


def test_claims_without_runs_name_the_command_that_would_decide(found: dict[str, Any]) -> None:
    [one] = [
        one
        for one in found["claims"]
        if one["ladder"] == "ssm" and one["task"] == "PathX" and one["other"] == "s5" and one["kind"] == "no-worse"
    ]
    assert one["here"]["verdict"] == "not run"
    assert one["here"]["detail"] == "lrurun ladder PathX --ladder ssm would decide it"
    assert one["verdict"] == "supported", "by the paper's own numbers"


def test_claims_of_figures_are_decided_by_results(found: dict[str, Any]) -> None:
    of_studies = {one["text"]: one["here"] for one in found["claims"] if one["ladder"] == "study"}
    memory = of_studies["The sensitivity to the eigenvalue explodes faster than the state"]
    assert (memory["verdict"], memory["stand_in"]) == ("supported", False)
    flat = of_studies["Far from a teacher with a long memory, the loss is flat"]
    assert (flat["verdict"], flat["detail"]) == ("not run", "lrurun study landscape would decide it")
    gamma = of_studies["The normalisation by gamma lowers the loss of the complex diagonal RNN"]
    assert gamma["detail"] == "lrurun study bridge --profile paper would decide it"
    assert sum(sum(one.values()) for one in found["counts"].values()) == len(found["claims"]) >= 50
    assert found["counts"]["Zucchet and Orvieto 2024"]["supported"] == 2


def test_a_study_is_named_by_itself_or_by_its_figure(judged: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a profile without evidence names the one that has it."""
    claim = StudyClaim(text="t", source="a paper", evidence=lambda _: None, profile="paper")
    monkeypatch.setattr(type(studies.get("memory")), "claims", (claim,))
    [here] = [one["here"] for one in judged.json("claims", "study:memory")["claims"]]
    assert here["verdict"] == "not run"
    assert here["detail"] == "the profile laptop has no evidence; lrurun study memory --profile paper would decide it"
    assert {one["task"] for one in judged.json("claims", "study:lru-fig8")["claims"]} == {"study:powers"}
    assert "did you mean 'memory'?" in judged.refused("claims", "study:memry")
    assert "--ladder lru: study:memory is a study" in judged.refused("claims", "--ladder", "lru", "study:memory")


def test_details_of_a_paper_have_source_and_what_would_decide(judged: Machine) -> None:
    lines = judged.run("claims", "--paper", "lru").stdout.splitlines()
    assert [line for line in lines if line.startswith("supported") and "Dropping the nonlinearity" in line]
    assert not [line for line in lines if line.startswith("not run ")]
    assert "--details has the reasoning" in " ".join(judged.run("claims", "--paper", "rotrnn").stdout.split())
    details = " ".join(judged.run("claims", "--paper", "lru", "--details").stdout.split())
    assert "not run: A ReLU leaks a signal to higher frequencies." in details
    assert "study:leak; lrurun study leak would decide it." in details
    assert "supported (stand-in, profile smoke, provisional): Dropping the nonlinearity" in details
    assert "Zucchet" not in details
    assert "did you mean 'zucchet'?" in judged.refused("claims", "--paper", "zuchet")


def test_the_page_has_results_and_the_commands_of_their_runs(judged: Machine) -> None:
    judged.run("claims", "--page", "page.md")
    lines = (judged.folder / "page.md").read_text().splitlines()
    [table] = [line for line in lines if line.startswith("| Table 1 ") and "nonlinearity" in line]
    assert "“Dropping the nonlinearity of the recurrence improves accuracy”: not run on sCIFAR, ListOps" in table
    assert "(stand-in, profile smoke, provisional) on sDigits" in table
    assert any(line.startswith("| `lrurun ladder sDigits --profile smoke") and "tanh-rnn" in line for line in lines)
    [figure] = [line for line in lines if line.startswith("| Figure 1 ") and "study memory" in line]
    assert "`lrurun study memory`: 10 of 10 checks passed." in figure
    assert "<br>landscape: not run<br>" in figure
    assert "| memory: run at the paper's scale; landscape: configured |" in figure
    assert "| run reduced |" in table


def test_profiles_at_the_sizes_of_the_paper_are_no_stand_ins(machine: Machine) -> None:
    scores = {"dlr-6": (0.9, 0.91), "dlr": (0.2, 0.21)}
    more = {rung: [*two, *two] for rung, two in {**scores, "attention": (0.5, 0.51)}.items()}
    fill(machine.ledger, "Reverse", more, ladder="depth", profile="smoke")
    fill(machine.ledger, "Reverse", scores, ladder="depth", profile="length-512")
    found = machine.json("claims", "Reverse", "--ladder", "depth")["claims"]
    claims = {one["other"]: one for one in found if one["kind"] == "better"}
    other = claims["attention"]["here"]  # whose runs the profile at the paper's size does not have
    assert (other["verdict"], other["profile"], other["stand_in"]) == ("supported", "smoke", True)
    assert other["provisional"]
    lines = machine.run("claims", "Reverse", "--ladder", "depth").stdout
    assert "claims, all provisional\n" in lines
    supported = [line for line in lines.splitlines() if line.startswith("supported ")]
    assert [" stand-in, profile smoke " in line for line in supported] == [False, True]
    details = " ".join(machine.run("claims", "Reverse", "--ladder", "depth", "--details").stdout.split())
    assert "supported (stand-in, profile smoke, provisional): " in details
    assert "Reverse, ladder depth, profile smoke: dlr-6 better than attention; " in details
    one = claims["dlr"]
    assert (one["here"]["verdict"], one["here"]["profile"], one["here"]["stand_in"]) == (
        "supported",
        "length-512",
        False,
    )
    assert (one["difference"], one["reason"]) == (None, "no numbers")  # Table 1 has one layer at length 4,096 alone
    fill(machine.ledger, "Reverse", scores, ladder="depth", sets={"optim.lr": 0.5}, profile="length-512")
    assert machine.json("claims", "Reverse", "--ladder", "depth")["claims"][0]["here"] == one["here"]


def test_current_runs_judge_and_outdated_ones_say_why(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def here() -> dict[str, Any]:
        [one] = [one for one in machine.json("claims", "Reverse")["claims"] if one["other"] == "dlr"]
        return dict(one["here"])

    recipe = machine.folder / "recipes" / "Reverse.toml"
    recipe.parent.mkdir()
    recipe.write_text((packaged("recipes") / "Reverse.toml").read_text() + "\n[train]\nbatch = 7\n")
    monkeypatch.chdir(machine.folder)
    fill(machine.ledger, "Reverse", {"dlr-6": (0.9, 0.9), "dlr": (0.2, 0.2)}, ladder="depth")
    recipe.unlink()
    outdated = here()
    assert outdated["verdict"] == "not judged"
    assert "the ladder or the recipe has changed since" in outdated["detail"]
    assert "better than dlr; instance" in machine.run("claims", "Reverse", "--ladder", "depth", "--details").stdout
    fill(machine.ledger, "Reverse", {"dlr-6": (0.9, 0.91), "dlr": (0.2, 0.21)}, ladder="depth", profile="smoke")
    assert (here()["verdict"], here()["profile"]) == ("supported", "smoke")


def test_tasks_of_imported_arrays(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    np.save(machine.folder / "X.npy", random.normal(size=(40, 6, 2)))
    np.save(machine.folder / "Y.npy", random.normal(size=(40, 1)))
    machine.run("data", "import", "wells", "--inputs", "X.npy", "--labels", "Y.npy", "--data-dir", "d")
    monkeypatch.chdir(machine.folder)
    fill(machine.ledger, "wells", {"s4d": (0.2, 0.21), "lru": (0.8, 0.81)}, ladder="ssm")
    assert (
        "wells, ladder ssm: lru at most 0.015 r2 worse than s4d; " in machine.run("claims", "wells", "--details").stdout
    )
    fill(machine.ledger, "wells", {"tanh-rnn": (0.2, 0.21), "linear-rnn": (0.8, 0.81)})
    for options, has_claims in (((), False), (("--ladder", "lru"), True)):
        assert ("claims" in machine.run("report", "wells", *options).stdout) == has_claims, "where they are asked for"
        found = machine.json("report", "wells", *options)
        assert (bool(found["claims"]), "claim" in " ".join(found["conclusions"])) == (has_claims, has_claims)
    (machine.folder / "recipes" / "wells.toml").unlink()
    [here] = {one["here"]["detail"] for one in machine.json("claims", "wells", "--ladder", "ssm")["claims"]}
    assert "wells" in here


def test_a_ladder_that_does_not_fit_a_task_has_no_claims_on_it(machine: Machine) -> None:
    said = machine.run("claims", "sDigits", "--ladder", "shortconv", "--details").stdout
    assert "would decide it" not in said


def test_tasks_with_the_same_verdict_on_a_claim_share_a_line(machine: Machine) -> None:
    for task in ("sDigits", "npDigits", "Image"):
        low = 0.1 if task == "Image" else 0.9
        scores = {
            "tanh-rnn": [0.5 + seed / 1000 for seed in range(12)],
            "linear-rnn": [low + seed / 1000 for seed in range(12)],
        }
        fill(machine.ledger, task, scores, profile="smoke")
    lines = [re.split(" {2,}", line) for line in machine.run("claims", "--ladder", "lru").stdout.splitlines()]
    found = [line[:2] for line in lines if line[-1].startswith("Dropping the nonlin")]
    assert found == [["supported", "sDigits, npDigits"], ["contradicted", "Image"]]
    for task in ("npCIFAR", "Parity"):
        fill(machine.ledger, task, scores | {"linear-rnn": [0.9 + seed / 1000 for seed in range(12)]}, profile="smoke")
    assert "\nsupported     4 tasks " in machine.run("claims", "--ladder", "lru").stdout

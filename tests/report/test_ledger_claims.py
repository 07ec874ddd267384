"""`lrurun claims` with a ledger: each claim by the runs that are there, and by the results of studies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lrurun import studies
from lrurun.paths import packaged
from lrurun.studies.evidence import StudyClaim
from tests.harness.machine import Machine
from tests.harness.results import fill


@pytest.fixture(scope="module")
def judged(finished: Machine, tmp_path_factory) -> Machine:
    machine = finished.copy(tmp_path_factory.mktemp("claims") / "copy")
    for study in ("memory", "powers"):
        machine.run("study", study, "--profile", "ci")
    return machine


@pytest.fixture(scope="module")
def found(judged: Machine) -> dict[str, object]:
    return judged.json("claims")


def test_claims_have_the_verdict_of_the_report(found, finished: Machine) -> None:
    report = finished.json("report", "sDigits", "--profile", "smoke")
    here = {one["text"]: one["here"] for one in found["claims"] if one["ladder"] == "lru" and one["task"] == "sDigits"}
    assert here
    for claim in report["claims"]:
        one = here[claim["text"]]
        assert (one["verdict"], one["detail"]) == (claim["verdict"], claim["detail"])
        assert one["provisional"] == claim["provisional"]
        assert one["stand_in"]  # no paper has sDigits
        assert one["profile"] == "smoke"


def test_claims_without_runs_name_the_command_that_would_decide(found) -> None:
    [one] = [
        one
        for one in found["claims"]
        if one["ladder"] == "ssm" and one["task"] == "PathX" and one["other"] == "s5" and one["kind"] == "no-worse"
    ]
    assert one["here"]["verdict"] == "not run"
    assert one["here"]["detail"] == "lrurun ladder PathX --ladder ssm would decide it"
    assert one["verdict"] == "supported"  # by the paper's own numbers


def test_claims_of_figures_are_decided_by_results(found) -> None:
    of_studies = {one["text"]: one["here"] for one in found["claims"] if one["ladder"] == "study"}
    memory = of_studies["The sensitivity to the eigenvalue explodes faster than the state"]
    assert (memory["verdict"], memory["stand_in"]) == ("supported", False)
    powers = of_studies["Real and imaginary parts are slowest for a target phase of π/2"]
    assert (powers["verdict"], powers["stand_in"]) == ("contradicted", True)
    assert powers["detail"].startswith("updates of real-imaginary at π/2 over the most at a smaller angle: 0.1482; ")
    flat = of_studies["Far from a teacher with a long memory, the loss is flat"]
    assert (flat["verdict"], flat["detail"]) == ("not run", "lrurun study landscape would decide it")
    gamma = of_studies["The normalisation by gamma lowers the loss of the complex diagonal RNN"]
    assert gamma["detail"] == "lrurun study bridge --profile paper would decide it"
    neurons = of_studies["More neurons do not explain the gap"]
    assert neurons["detail"] == "lrurun study bridge would decide it"


def test_a_profile_without_evidence_names_the_one_that_has_it(judged: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = StudyClaim(text="t", source="a paper", evidence=lambda _: None, profile="paper")
    monkeypatch.setattr(type(studies.get("memory")), "claims", (claim,))
    [here] = [one["here"] for one in judged.json("claims", "study:memory")["claims"]]
    assert here["verdict"] == "not run"
    assert here["detail"] == "the profile ci has no evidence; lrurun study memory --profile paper would decide it"


def test_counts_are_those_of_the_claims(found) -> None:
    assert sum(sum(one.values()) for one in found["counts"].values()) == len(found["claims"]) >= 50
    assert found["counts"]["Zucchet and Orvieto 2024"]["supported"] == 2
    assert found["counts"]["Orvieto et al. 2023"]["contradicted"] >= 1


def test_details_have_source_and_what_would_decide(judged: Machine) -> None:
    whole = " ".join(judged.run("claims", "--paper", "lru").stdout.split())
    assert "contradicted study:powers Real and imaginary parts are slowest" in whole
    assert "study:convolution" not in whole, "that study has not run"
    details = " ".join(judged.run("claims", "--paper", "lru", "--details").stdout.split())
    assert (
        "contradicted (stand-in): Real and imaginary parts are slowest for a target phase of π/2. "
        "(Orvieto et al. 2023, appendix E.2, Fig. 8) study:powers, profile ci; updates of real-imaginary"
    ) in details
    assert "not run: A ReLU leaks a signal to higher frequencies." in details
    assert "study:leak; lrurun study leak would decide it." in details


def test_the_page_has_results_and_the_commands_of_their_runs(judged: Machine) -> None:
    judged.run("claims", "--page", "page.md")
    lines = (judged.folder / "page.md").read_text().splitlines()
    [table] = [line for line in lines if line.startswith("| Table 1 ") and "nonlinearity" in line]
    assert "“Dropping the nonlinearity of the recurrence improves accuracy”: not run on sCIFAR, ListOps" in table
    assert "(stand-in, profile smoke, provisional) on sDigits" in table
    assert any(line.startswith("| `lrurun ladder sDigits --profile smoke") and "tanh-rnn" in line for line in lines)
    [figure] = [line for line in lines if line.startswith("| Figure 1 ") and "study memory" in line]
    assert "`lrurun study memory --profile ci`: 10 of 10 checks passed." in figure
    assert "<br>landscape: not run<br>" in figure


def test_claims_of_a_task_are_all_that_its_report_counts(finished: Machine) -> None:
    lines = finished.run("claims", "sDigits").stdout.splitlines()
    for claim in finished.json("report", "sDigits", "--profile", "smoke")["claims"]:
        assert any(line.startswith(claim["verdict"]) and claim["text"] in line for line in lines)
    assert "Not judged: about sequences of at least 16,384 steps." in lines


def test_one_paper(finished: Machine) -> None:
    claims = finished.json("claims", "--paper", "rotrnn")["claims"]
    assert claims
    assert all(one["source"].startswith("Biegun et al. 2024") for one in claims)
    assert "did you mean 'zucchet'?" in finished.run("claims", "--paper", "zuchet", code=2).stderr


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
    fill(machine.ledger, "Reverse", scores, ladder="depth", sets=["optim.lr=0.5"], profile="length-512")
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
    assert "wells" in machine.run("claims").stdout
    fill(machine.ledger, "wells", {"tanh-rnn": (0.2, 0.21), "linear-rnn": (0.8, 0.81)})
    for options, has_claims in (((), False), (("--ladder", "lru"), True), (("--ladder", "ssm"), True)):
        assert ("claims" in machine.run("report", "wells", *options).stdout) == has_claims, "where they are asked for"
        found = machine.json("report", "wells", *options)
        assert (bool(found["claims"]), "claim" in " ".join(found["conclusions"])) == (has_claims, has_claims)
    (machine.folder / "recipes" / "wells.toml").unlink()
    [here] = {one["here"]["detail"] for one in machine.json("claims", "wells", "--ladder", "ssm")["claims"]}
    assert "wells" in here


def test_one_study(finished: Machine) -> None:
    claims = finished.json("claims", "study:lru-fig8")["claims"]
    assert {one["task"] for one in claims} == {"study:powers"}
    assert "did you mean 'memory'?" in finished.run("claims", "study:memry", code=2).stderr
    both = finished.run("claims", "--ladder", "lru", "study:memory", code=2).stderr
    assert both.startswith("error: --ladder lru: study:memory is a study")


def test_a_ladder_that_does_not_fit_a_task_has_no_claims_on_it(machine: Machine) -> None:
    said = machine.run("claims", "sDigits", "--ladder", "shortconv", "--details").stdout
    assert "would decide it" not in said

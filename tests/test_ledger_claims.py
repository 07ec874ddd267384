"""`lrurun claims` with a ledger: each claim by the runs that are there, and by the checks of studies."""

from __future__ import annotations

from pathlib import Path

import pytest

from lrurun.studies import claims as study_claims
from lrurun.studies import names
from lrurun.studies.checks import above, below
from tests.machine import Machine


@pytest.fixture(scope="module")
def found(finished: Machine, tmp_path_factory) -> dict[str, object]:
    machine = finished.copy(tmp_path_factory.mktemp("claims") / "copy")
    machine.run("study", "memory", "--profile", "ci")
    return machine.json("claims")


def test_claims_have_the_verdict_of_the_report(found, finished: Machine) -> None:
    report = finished.json("report", "sDigits", "--profile", "smoke")
    here = {one["text"]: one["here"] for one in found["claims"] if one["ladder"] == "lru" and one["task"] == "sDigits"}
    assert here
    for claim in report["claims"]:
        one = here[claim["text"]]
        assert (one["verdict"], one["detail"]) == (claim["verdict"], claim["detail"])
        assert one["stand_in"]  # no paper has sDigits
        assert one["profile"] == "smoke"


def test_claims_without_runs_name_the_command_that_would_decide(found) -> None:
    [one] = [
        one
        for one in found["claims"]
        if one["ladder"] == "ssm" and one["task"] == "PathX" and one["than"] == "s5" and one["kind"] == "no-worse"
    ]
    assert one["here"]["verdict"] == "not run"
    assert one["here"]["detail"] == "lrurun ladder PathX --ladder ssm would decide it"
    assert one["verdict"] == "supported"  # by the paper's own numbers


def test_claims_of_figures_are_decided_by_checks(found) -> None:
    of_studies = {one["text"]: one["here"] for one in found["claims"] if one["ladder"] == "study"}
    memory = of_studies["The sensitivity to the eigenvalue explodes faster than the state"]
    assert (memory["verdict"], memory["stand_in"]) == ("supported", False)
    powers = of_studies["Real and imaginary parts are slowest for a target phase of pi/2"]
    assert (powers["verdict"], powers["detail"]) == ("not run", "lrurun study powers would decide it")


def test_counts_are_those_of_the_claims(found) -> None:
    assert sum(sum(one.values()) for one in found["counts"].values()) == len(found["claims"]) >= 50
    assert found["counts"]["Zucchet and Orvieto 2024"]["supported"] == 1


def test_one_paper(finished: Machine) -> None:
    claims = finished.json("claims", "--paper", "rotrnn")["claims"]
    assert claims
    assert all(one["source"].startswith("Biegun et al. 2024") for one in claims)
    assert "did you mean 'zucchet'?" in finished.run("claims", "--paper", "zuchet", code=2).stderr


def test_a_claim_needs_all_of_its_checks() -> None:
    claim = study_claims.StudyClaim(study="memory", text="t", source="s", supported_by=("a*",), contradicted_by=("b",))
    good, bad = above("a 1", 2.0, 1.0), above("a 2", 0.0, 1.0)
    assert study_claims.judge(claim, [good])[0] == "supported"
    assert study_claims.judge(claim, [good, bad])[0] == "undecided"
    assert study_claims.judge(claim, [good, below("b", 0.0, 1.0)])[0] == "contradicted"
    assert study_claims.judge(claim, [])[0] == "undecided"


def test_claims_name_studies_that_exist() -> None:
    assert {claim.study for claim in study_claims.CLAIMS} <= set(names())


@pytest.mark.slow
@pytest.mark.parametrize("study", names())
def test_checks_that_decide_a_claim_exist(study: str) -> None:
    """Patterns of names that a study does not have would leave its claims undecided forever."""
    from fnmatch import fnmatchcase

    from lrurun import studies
    from lrurun.runner import cells
    from lrurun.studies import plan as planning

    made = planning.make(studies.get(study), "ci", {})
    found = [check.name for check in studies.get(study).checks(cells.in_process(made))]
    source = (Path(study_claims.__file__).parent / f"{study}.py").read_text()
    for claim in study_claims.of(study):
        for pattern in (*claim.supported_by, *claim.contradicted_by):
            words = max(pattern.split("*"), key=len)[:9]  # the rest may be made by the study
            assert any(fnmatchcase(name, pattern) for name in found) or words in source

"""`lrurun claims`: the claims of papers by the papers' own numbers."""

from __future__ import annotations

import json

import pytest

from lrurun.__main__ import run
from lrurun.config.ladder import load_ladder
from lrurun.report import published_claims
from tests.commands import folder

__all__ = ["folder"]  # a fixture: no ledger is in the working directory


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["claims", *arguments]) == 0
    return capsys.readouterr().out


def test_the_table_has_a_line_for_each_claim_and_task(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "--ladder", "ssm").splitlines()
    assert len(lines) == 2 + 12
    [one] = [" ".join(line.split()) for line in lines if "sCIFAR" in line and "s4d" in line]
    assert one == (
        "ssm sCIFAR lru at most 1.6 points worse than s4d -2.5 [-3.2, -1.8] 1.000 "
        "undecided (test of the difference: p = 0.008) "
        "Orvieto et al. 2023, section 3.4, Table 3; the margins are ours"
    )


def test_one_task_and_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(printed(capsys, "--task", "PathX").split())
    for phrase in (
        "gamma-norm within 3.0 points of chance not judged: as reported, gamma-norm not above chance",
        "small-phase-no-gamma within 3.0 points of chance not judged: as reported, small-phase-no-gamma not above",
        "small-phase faster than tanh-rnn not judged: 17.1 times on one A100, no spread is given",
        "rotrnn at most 5.6 points worse than lru -3.6 not judged: no spread is given",
        "small-phase better than log-phase not judged: no numbers",
    ):
        assert phrase in text
    assert "sCIFAR" not in text
    assert "exponential above chance" in printed(capsys, "--task", "Pathfinder", "--ladder", "lru")
    assert "dlr more than 0.900 R² above chance" in printed(capsys, "--task", "CumSum", "--ladder", "dlr")
    assert "rotrnn within 0.5 points of lru" in printed(capsys, "--task", "SpeechCommands")


def test_json_has_the_numbers_as_fields(capsys: pytest.CaptureFixture[str]) -> None:
    claims = json.loads(printed(capsys, "--ladder", "lru", "--json"))["claims"]
    assert [one for one in claims if one["task"] == "sCIFAR" and one["rung"] == "linear-rnn"] == [
        {
            **claims[0],
            "text": "Dropping the nonlinearity of the recurrence improves accuracy",
            "verdict": "supported",
        }
    ]
    mine, other = claims[0]["sides"]
    assert (mine["rung"], mine["n"], mine["mean"]) == ("linear-rnn", 3, 0.722)
    assert (other["rung"], other["n"], other["mean"], other["stderr"]) == ("tanh-rnn", 3, 0.699, 0.003)
    # a published mean says nothing of its seeds
    assert {(side["learning"], side["diverged"]) for side in (mine, other)} == {(None, 0)}
    assert (claims[0]["provisional"], claims[0]["improvement"]) == (False, None)
    [speed] = [one for one in claims if one["task"] == "sCIFAR" and one["kind"] == "faster"]
    assert (speed["paper_ratio"], speed["verdict"]) == (pytest.approx(7.95), "not judged")


def test_numbers_of_a_profile() -> None:
    for profile, difference in ((None, 0.0), ("length-512", 0.86), ("smoke", 0.0)):
        claims = published_claims.collect([load_ladder("depth")], "Select", {"Select": profile})
        [one] = [one for one in claims if one.kind == "at-chance"]
        assert one.difference == pytest.approx(difference)


def test_without_claims_and_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["claims", "--ladder", "ssm", "--task", "sDigits"]) == 0
    assert capsys.readouterr().err == "no claims of ladder ssm on sDigits\n"
    assert run(["claims", "--task", "Paht"]) == 2
    assert "did you mean 'PathX'?" in capsys.readouterr().err
    assert run(["claims", "--ladder", "smm"]) == 2

"""`lrurun claims`: the claims of papers by the papers' own numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lrurun import console
from lrurun.__main__ import run
from lrurun.config.ladder import load_ladder
from lrurun.paths import packaged
from lrurun.report.tables import published_claims
from tests.harness.commands import folder

__all__ = ["folder"]  # a fixture: no ledger is in the working directory


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["claims", *arguments]) == 0
    return capsys.readouterr().out


def test_counts_and_a_line_for_each_claim_and_task(capsys: pytest.CaptureFixture[str]) -> None:
    counts, lines = (part.splitlines() for part in printed(capsys, "--ladder", "ssm").split("\n\n")[1::2])
    assert counts[-1].split() == ["Orvieto", "et", "al.", "2023", "8", "–", "4", "13"]
    assert len(lines) == 2 + 12
    [one] = [" ".join(line.split()) for line in lines if "sCIFAR" in line and "S4D" in line]
    assert one == "undecided sCIFAR The LRU reaches similar performance as S4D"


def test_a_task_has_a_line_for_each_claim_that_its_runs_would_decide(capsys: pytest.CaptureFixture[str]) -> None:
    counts, lines = (part.splitlines()[2:] for part in printed(capsys, "npDigits").split("\n\n")[1::2])
    assert [" ".join(line.split()) for line in counts] == ["Orvieto et al. 2023 – – – 7", "other sources – – – 1"]
    assert [line.startswith("not judged  Orvieto et al. 2023  ") for line in lines] == [True] * 7 + [False]
    assert lines[0].endswith("  Dropping the nonlinearity of the recurrence improves accuracy")
    assert len(json.loads(printed(capsys, "npDigits", "--ladder", "ssm", "--json"))["claims"]) == 4


def test_claims_of_ones_own_are_under_the_name_of_their_ladder(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    text = (packaged("ablations") / "nonlinearity.toml").read_text().replace('name = "nonlinearity"', 'name = "mine"')
    (folder / "mine.toml").write_text(text.replace("Orvieto et al. 2023", "me"))
    assert "\nladder mine " in printed(capsys, "--ladder", "mine.toml")
    assert "other sources" not in printed(capsys, "--ladder", "mine.toml")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_wraps(width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = printed(capsys)
    monkeypatch.setattr(console, "width", lambda: width)
    for arguments in ((), ("PathX",), ("--details",)):
        assert max(map(len, printed(capsys, *arguments).splitlines())) <= width
    lines = printed(capsys).splitlines()
    assert any(line.endswith("...") for line in lines)
    assert sum(" sCIFAR " in line for line in lines) == sum(" sCIFAR " in line for line in whole.splitlines()) > 5
    assert max(map(len, whole.splitlines())) <= console.PIPE_WIDTH


def test_one_task_and_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(printed(capsys, "PathX", "--details").split())
    for statement, numbers in (
        ("lru: gamma-norm within 3.0 points of chance;", "not judged: as reported, gamma-norm not above chance."),
        ("small-phase-no-gamma within 3.0 points of chance;", "as reported, small-phase-no-gamma not above chance."),
        ("small-phase faster than tanh-rnn;", "not judged: 17.1 times on one A100, no spread is given."),
        ("rotrnn at most 5.6 points worse than lru;", "not judged: no spread is given, -3.6."),
        ("small-phase better than log-phase;", "not judged: no numbers."),
    ):
        assert re.search(
            f"{re.escape(statement)} lrurun ladder PathX[^.]* would decide it; by .*?{re.escape(numbers)}", text
        )
    assert "sCIFAR" not in text
    assert "exponential more than 3.0 points above chance" in printed(
        capsys, "Pathfinder", "--ladder", "lru", "--details"
    )
    assert "dlr more than 0.900 R² above chance" in printed(capsys, "CumSum", "--ladder", "dlr", "--details")
    assert "rotrnn within 0.5 points of lru" in printed(capsys, "SpeechCommands", "--details")
    found = printed(capsys, "sCIFAR", "--ladder", "ssm", "--details")
    assert "undecided (test of the difference: p = 0.008), -2.5 [-3.2, -1.8], p = 1.000.\n" in found


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
    assert run(["claims", "--ladder", "dlr", "sCIFAR", "--paper", "rotrnn"]) == 0
    assert capsys.readouterr().err == "no claims of ladder dlr on sCIFAR\n"
    assert run(["claims", "Paht"]) == 2
    assert "did you mean 'PathX'?" in capsys.readouterr().err
    assert run(["claims", "--ladder", "smm"]) == 2

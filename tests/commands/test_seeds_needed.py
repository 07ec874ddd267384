"""How many seeds are needed: for firm verdicts (`plan`, `ladder`), and for a difference (`report --detect`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.commands import answered, folder, lrurun, said  # noqa: F401 (the fixture)
from tests.harness.results import fill

LADDER = ("sDigits", "--ladder", "nonlinearity")
CENTERS = {"relu-rnn": 0.2, "tanh-rnn": 0.8, "linear-rnn": 0.805}


def fill_ladder(seeds: int, first: int = 0) -> None:
    scores = {rung: [mean + 0.02 * (7 * k % 5 - 2) for k in range(first, seeds)] for rung, mean in CENTERS.items()}
    fill(Path("ledger.db"), "sDigits", scores, ladder="nonlinearity", first=first)


COMMAND = "lrurun ladder sDigits --ladder nonlinearity"


def test_plan_and_ladder_say_what_firm_verdicts_need(capsys: pytest.CaptureFixture[str]) -> None:
    made = answered(capsys, "plan", *LADDER, "--seeds", "2")
    command = f"{COMMAND} --seeds 12"
    expected = {"seeds": 12, "runs_left": 36, "eta_seconds": None, "command": command, "compiles": True}
    assert made["firm"] == expected
    fill_ladder(2)
    firm = answered(capsys, "plan", *LADDER, "--seeds", "2")["firm"]
    assert (firm["runs_left"], firm["eta_seconds"] > 0) == (30, True)
    needed = f"{COMMAND} --seeds 12 (30 runs, about "
    text = " ".join(said(capsys, "plan", *LADDER, "--seeds", "2")[1].split())
    assert f"Firm verdicts need 12 seeds a rung, chosen beforehand: {needed}" in text
    assert text.endswith("With fewer, verdicts are provisional: they assume that no seed fails.")
    code, out, err = said(capsys, "ladder", *LADDER, "--seeds", "2")
    assert code == 0, err
    assert "provisional, fewer than 12 seeds (all rungs)" in " ".join(out.split())
    assert f"Next: {needed}" in " ".join(out.split())


def test_firm_verdicts_are_those_of_the_rungs_that_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    fill_ladder(2)
    pair = ("--rung", "relu-rnn", "--rung", "tanh-rnn")
    firm = answered(capsys, "plan", *LADDER, "--seeds", "2", *pair)["firm"]
    assert (firm["runs_left"], firm["command"]) == (20, f"{COMMAND} {' '.join(pair)} --seeds 12")
    assert answered(capsys, "plan", *firm["command"].split()[2:])["firm"] is None
    alone = answered(capsys, "plan", *LADDER, "--seeds", "2", "--rung", "relu-rnn")["firm"]
    assert alone is None, "no verdict compares it with itself"


def test_nothing_is_said_where_nothing_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    fill_ladder(2)
    for arguments in (("--seeds", "12"), ("--seeds", "0-14"), ("--decide",)):
        assert answered(capsys, "plan", *LADDER, *arguments)["firm"] is None, arguments
        assert "irm verdicts" not in said(capsys, "plan", *LADDER, *arguments)[1]
    assert answered(capsys, "plan", *LADDER, "--seeds", "2", "--profile", "smoke")["firm"] is None
    fill_ladder(12, first=2)
    assert answered(capsys, "plan", *LADDER, "--seeds", "2")["firm"] is None
    assert "makes verdicts firm" not in said(capsys, "ladder", *LADDER, "--seeds", "2")[1]


def test_after_a_look_seeds_are_added_by_the_design_alone(capsys: pytest.CaptureFixture[str]) -> None:
    fill_ladder(12)
    code, out, err = said(capsys, "ladder", *LADDER, "--decide", "--max-seeds", "12")
    assert code == 0, err
    assert "--seeds 12-31 --ledger fresh.db (60 runs" in out
    reported = said(capsys, "report", *LADDER)[1]
    assert reported == out, "with what the next step costs"
    assert "--ledger ledger.db" not in reported
    [more] = [
        line for line in said(capsys, "report", *LADDER, "--ledger", "ledger.db")[1].splitlines() if "More:" in line
    ]
    assert more.count("--ledger ledger.db") == 3, "proposed commands use the ledger that this one named"
    assert answered(capsys, "plan", *LADDER, "--seeds", "3")["firm"] is None


def test_report_says_how_many_seeds_a_difference_needs(capsys: pytest.CaptureFixture[str]) -> None:
    fill_ladder(5)
    made = answered(capsys, "report", *LADDER, "--detect", "2")
    assert made["detect"]["difference"] == pytest.approx(0.02), "two points"
    seeds = made["detect"]["seeds"]
    assert set(seeds) == {"tanh-rnn", "linear-rnn"}, "each beside its base"
    assert min(seeds.values()) > 12
    easier = answered(capsys, "report", *LADDER, "--detect", "4.5")["detect"]["seeds"]
    assert all(12 <= easier[rung] < seeds[rung] for rung in seeds)
    sentence = "Seeds a side to detect 2 points between a rung and its base (by means, power 80 %"
    for format in ("table", "md"):
        text = " ".join(said(capsys, "report", *LADDER, "--detect", "2", "--format", format)[1].split())
        assert sentence in text
        assert f"{seeds['linear-rnn']} (" in text
    assert answered(capsys, "report", *LADDER)["detect"] is None
    assert "Seeds a side to detect" not in said(capsys, "report", *LADDER)[1]


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        ((*LADDER, "--detect", "-1"), "--detect: expected a number of at least 0.0001, found '-1'", "as in --detect 2"),
        ((*LADDER, "--detect", "0"), "--detect: expected a number of at least 0.0001, found '0'", "as in --detect 2"),
        *(
            (arguments, f"--detect and {other} exclude each other", "leave one of them out")
            for other, arguments in {
                "--all": ("--all", "--detect", "2"),
                "--speed": (*LADDER, "--speed", "--detect", "2"),
                "--by": (*LADDER, "--by", "optim.lr", "--detect", "2"),
            }.items()
        ),
        (
            (*LADDER, "--format", "csv", "--detect", "2"),
            "--detect and --format csv exclude each other: CSV has the rows alone",
            "lrurun report sDigits --detect 2 --json",
        ),
        (("study:memory", "--detect", "2"), "--detect: does not apply to reports of studies", "lrurun report study"),
    ],
)
def test_detect_is_a_positive_difference_on_one_task(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], error: str, hint: str
) -> None:
    code, out, err = lrurun(capsys, "report", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {error}\nhint: {hint}")


@pytest.mark.parametrize("seeds", ["5", "8", "13"])
def test_designs_have_twelve_or_twenty_seeds(capsys: pytest.CaptureFixture[str], seeds: str) -> None:
    for command in ("plan", "ladder"):
        code, out, err = lrurun(capsys, command, *LADDER, "--decide", "--max-seeds", seeds)
        assert (code, out) == (2, "")
        assert err.splitlines() == [
            f"error: --max-seeds {seeds}: expected 12 or 20, the looks of the design",
            "hint: no look is earlier, because verdicts of fewer seeds do not hold when seeds fail",
        ]


def test_a_repetition_is_not_repeated_and_a_missing_seed_is_no_repetition(capsys: pytest.CaptureFixture[str]) -> None:
    fill_ladder(32, first=12)
    assert "Next:" not in said(capsys, "report", *LADDER)[1], "seeds 12 to 31 are the repetition"
    Path("ledger.db").unlink()
    fill_ladder(11)
    fill(Path("ledger.db"), "sDigits", {"relu-rnn": [0.2]}, ladder="nonlinearity", first=11)
    out = said(capsys, "report", *LADDER)[1]
    assert "(60 runs, about " in out
    assert "asks again with fresh seeds" in " ".join(out.split())


def test_an_answer_does_not_depend_on_the_data_folder(capsys: pytest.CaptureFixture[str]) -> None:
    fill_ladder(12)
    [folder_name] = answered(capsys, "data", "info", "sDigits")["folder"].split("/")[-1:]
    damaged = Path("data") / folder_name / "manifest.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    code, out, err = said(capsys, "report", *LADDER, "--data-dir", "data")
    assert (code, err) == (0, "")
    assert "--seeds 12-31 --ledger fresh.db (60 runs) asks again" in " ".join(out.split())

"""`--decide`: what it refuses, what it records, and that later runs and exclusions change no verdict."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import scipy.stats
from msgspec import structs

from lrurun import paths
from lrurun.config import plan as planning
from lrurun.ledger.store import Ledger
from lrurun.report.judging import design_record
from tests.harness.commands import answered, folder, lrurun, said  # noqa: F401 (the fixture)
from tests.harness.machine import Machine, wait_for
from tests.harness.results import fill

LADDER = ("--ladder", "nonlinearity", "--profile", "smoke")
CENTERS = {"relu-rnn": 0.2, "tanh-rnn": 0.8, "linear-rnn": 0.805}


def scores(center: float, first: int, seeds: int) -> list[float]:
    return [center + 0.02 * (7 * seed % 5 - 2) for seed in range(first, seeds)]


def fill_ladder(seeds: int, first: int = 0) -> None:
    """relu-rnn far below tanh-rnn, linear-rnn near it."""
    found = {rung: scores(center, first, seeds) for rung, center in CENTERS.items()}
    fill(Path("ledger.db"), "sDigits", found, ladder=LADDER[1], profile="smoke", first=first)


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return answered(capsys, "report", "sDigits", *LADDER)


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (
            ["--max-seeds", "12"],
            "--max-seeds: belongs to --decide",
            "add --decide, or leave it out",
        ),
        *(
            (
                ["--decide", "--max-seeds", seeds],
                f"--max-seeds {seeds}: expected 12 or 20, the looks of the design",
                "no look is earlier, because verdicts of fewer seeds do not hold when seeds fail",
            )
            for seeds in ("8", "13")
        ),
        (
            ["--decide", "--seeds", "3"],
            "--decide and --seeds exclude each other",
            "the design of --decide fixes seeds and rungs; --max-seeds 12 bounds the seeds",
        ),
        (["--decide", "--rung", "tanh-rnn"], "--decide and --rung exclude each other", "the design of --decide"),
    ],
)
@pytest.mark.parametrize("command", ["ladder", "plan"])
def test_wrong_options_are_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], command: str, arguments: list[str], message: str, hint: str
) -> None:
    code, out, err = lrurun(capsys, command, "sDigits", *LADDER, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert f"\nhint: {hint}" in err


def test_fresh_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = lrurun(capsys, "ladder", "sDigits", *LADDER, "--decide", "--fresh")
    assert code == 2
    assert "--decide and --fresh exclude each other" in err


def test_plan_shows_looks_and_levels(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = lrurun(capsys, "plan", "sDigits", *LADDER, "--decide", "--json")
    assert code == 0
    made = json.loads(out)
    assert made["seeds"] == list(range(12))
    design = made["design"]
    assert design["looks"] == [{"seeds": 12, "share": 0.5}, {"seeds": 20, "share": 0.5}]
    assert design["level"] == pytest.approx(0.05 * 0.5 / design["hypotheses"])
    text = lrurun(capsys, "plan", "sDigits", *LADDER, "--decide")[1]
    assert f"the smallest p at {100 * design['level']:.3f} %. Seeds are then added" in " ".join(text.split())
    text = lrurun(capsys, "plan", "sDigits", *LADDER, "--decide", "--max-seeds", "12")[1]
    assert "% of the level); 0 looks taken" in text
    assert "It is the last one." in text


def test_looks_are_taken_and_recorded_and_later_runs_change_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    fill_ladder(20)
    planned = " ".join(lrurun(capsys, "plan", "sDigits", *LADDER, "--decide")[1].split())
    assert "All runs of the next look are finished. After this look, at most 24 runs follow" in planned
    code, out, err = said(capsys, "ladder", "sDigits", *LADDER, "--decide")
    assert code == 0, err
    seen = " ".join(out.split())
    assert "Look: the change and its p use only so many first seeds, the means use all." in seen
    assert "The sequential design is complete: what is undecided stays undecided." in seen
    assert "look at 12 seeds: 1 of 3 questions undecided; next 20 seeds" in err
    assert "look at 20 seeds: 1 of 3 questions undecided; the design is complete" in err
    assert "All runs are finished." in lrurun(capsys, "plan", "sDigits", *LADDER, "--decide")[1]
    planned = json.loads(lrurun(capsys, "plan", "sDigits", *LADDER, "--decide", "--json")[1])
    assert [(row["runs_done"], row["runs"]) for row in planned["rungs"]] == [(12, 12), (20, 20), (20, 20)]
    assert " · 20 seeds a rung · look 2 of 2 · " in out
    details = " ".join(lrurun(capsys, "report", "sDigits", *LADDER, "--details")[1].split())
    assert "Sequential design (--decide --max-seeds 20): looks at 12 seeds (50 %), 20 seeds (50 %)" in details
    assert "nothing to do" in err
    made = report(capsys)
    assert made["design"]["looks_done"] == 2
    assert made["design"]["finished_before"] == 60
    found = [row["comparison"] for row in made["rows"]]
    assert [row["verdict"] for row in made["rows"]] == ["", "helps", "undecided"]
    assert [one and one["look"] for one in found] == [None, 12, 20]
    assert "Helps: tanh-rnn scores 60.00 points more than relu-rnn" in made["conclusions"][0]
    assert made["conclusions"][0].endswith(" at 12 seeds).")
    assert [row["n"] for row in made["rows"]] == [20, 20, 20]
    assert [[side["n"] for side in one["sides"]] for one in found if one] == [[12, 12], [20, 20]]
    for side, rung in zip(found[1]["sides"], ("tanh-rnn", "relu-rnn"), strict=True):
        assert side["stderr"] == pytest.approx(scipy.stats.sem(scores(CENTERS[rung], 0, 12)))
    assert made["rows"][1]["stderr"] == pytest.approx(scipy.stats.sem(scores(0.8, 0, 20)))

    fill_ladder(24, first=20)
    code, _, err = said(capsys, "mark", made["rows"][1]["runs"][0], "--exclude", "a test")
    assert code == 0, err
    later = report(capsys)
    assert [row["comparison"] for row in later["rows"]] == found
    assert later["claims"] == made["claims"]
    for name in ("md", "latex", "html", "table"):
        text = said(capsys, "report", "sDigits", *LADDER, "--details", "--format", name)[1]
        assert "Sequential design (" in text
        assert re.search(r"\+60\.00 .*] at 12 seeds.*\n", text.replace("{]}", "]")), name
        assert "points at 20 seeds" in " ".join(text.split()), name
    lines = list(csv.DictReader(said(capsys, "report", "sDigits", *LADDER, "--format", "csv")[1].splitlines()))
    assert [line["look"] for line in lines] == ["", "12", "20"]
    assert [(line["compared_n"], line["base_n"]) for line in lines] == [("", ""), ("12", "12"), ("20", "20")]

    code, out, err = said(capsys, "ladder", "sDigits", *LADDER, "--decide", "--max-seeds", "12")
    assert (code, out) == (2, "")
    assert "--max-seeds 12: the design of this ladder is recorded with --max-seeds 20" in err
    code, _, err = said(capsys, "ladder", "sDigits", *LADDER, "--decide")
    assert code == 0
    assert "look at" not in err
    assert said(capsys, "resume")[2].startswith("nothing to do: every ladder of this ledger is finished\n")


EXTRA = """
[[rung]]
name = "extra"
title = "One more"
change = { "model.depth" = 2 }
"""


def test_a_changed_ladder_has_another_design_and_names_the_earlier_one(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("own.toml")
    path.write_text((paths.packaged("ablations") / "nonlinearity.toml").read_text().replace("nonlinearity", "own"))
    options = ("--ladder", "own.toml", "--profile", "smoke")
    found = {rung: scores(center, 0, 12) for rung, center in CENTERS.items()}
    fill(Path("ledger.db"), "sDigits", found, ladder="own.toml", profile="smoke")
    assert said(capsys, "ladder", "sDigits", *options, "--decide", "--max-seeds", "12")[0] == 0
    with Ledger.open(Path("ledger.db")) as ledger:
        [earlier] = ledger.ladders()
    judged = answered(capsys, "report", "sDigits", *options)
    path.write_text(path.read_text() + EXTRA)
    sentence = f"--instance {earlier.short_name} (36 finished runs, sequential design: 2 supported, 1 undecided)"
    planned = answered(capsys, "plan", "sDigits", *options, "--decide")
    assert [note.endswith(sentence) for note in planned["notes"]] == [True]
    assert [(row["rung"], row["runs_left"]) for row in planned["rungs"]][-1] == ("extra", 12)
    assert planned["design"]["finished_before"] == 36
    assert sentence in " ".join(lrurun(capsys, "plan", "sDigits", *options)[1].split())
    fill(Path("ledger.db"), "sDigits", {"extra": scores(0.5, 0, 12)}, ladder="own.toml", profile="smoke")
    assert sentence in " ".join(said(capsys, "report", "sDigits", *options)[1].split())
    assert sentence not in " ".join(said(capsys, "report", "sDigits", "--instance", earlier.key)[1].split())
    path.unlink()
    kept = answered(capsys, "report", "sDigits", "--instance", earlier.key)
    assert (kept["rows"], kept["claims"], kept["design"]) == (judged["rows"], judged["claims"], judged["design"])


def test_a_plan_without_decide_names_an_unfinished_design(capsys: pytest.CaptureFixture[str]) -> None:
    fill_ladder(12)
    notice = "A sequential design is recorded; continue it with --decide."
    plan = planning.make("sDigits", ladder=LADDER[1], profile="smoke")
    assert notice not in lrurun(capsys, "plan", "sDigits", *LADDER)[1]
    with Ledger.open(Path("ledger.db")) as ledger:
        [instance] = ledger.ladders()
        design_record.begin(plan, instance, ledger, 12)
    assert notice in lrurun(capsys, "plan", "sDigits", *LADDER)[1]
    assert notice not in lrurun(capsys, "plan", "sDigits", *LADDER, "--decide")[1]
    assert said(capsys, "ladder", "sDigits", *LADDER, "--decide")[0] == 0
    assert notice not in lrurun(capsys, "plan", "sDigits", *LADDER)[1]


def test_of_designs_that_are_recorded_at_once_the_first_counts(capsys: pytest.CaptureFixture[str]) -> None:
    fill_ladder(20)
    plan = planning.make("sDigits", ladder=LADDER[1], profile="smoke")
    with Ledger.open(Path("ledger.db")) as ledger:
        [instance] = ledger.ladders()
        assert not design_record.is_unfinished(instance, ledger)
        first = design_record.begin(plan, instance, ledger, 20)
        other = structs.replace(first.design, finished_before=1)
        ledger.event(design_record.DESIGN, "sequential design", other, ladder=instance.key)
        assert design_record.begin(plan, instance, ledger, None) == first
        assert design_record.is_unfinished(instance, ledger)
    assert said(capsys, "ladder", "sDigits", *LADDER, "--decide")[0] == 0
    with Ledger.open(Path("ledger.db")) as ledger:
        assert not design_record.is_unfinished(instance, ledger)
        kinds = [event.kind for event in ledger.events(ladder_key=instance.key, of_runs=False)]
        assert sorted(kinds) == ["asked", "design", "design", "documents", "look", "look"]


@pytest.mark.slow
def test_plan_ladder_and_report_say_that_runs_finished_before_the_design(capsys: pytest.CaptureFixture[str]) -> None:
    """Before the design is recorded, and after it; not of other instances, and only while a look is left."""
    caution = "runs finished before the design: its error rate holds only if their results are not the reason for"
    assert caution not in said(capsys, "plan", "sDigits", *LADDER, "--decide")[1]
    fill_ladder(12)
    fill(Path("ledger.db"), "sDigits", {"relu-rnn": [0.5]}, ladder=LADDER[1], profile="smoke", sets=["optim.lr=0.1"])
    planned = said(capsys, "plan", "sDigits", *LADDER, "--decide")[1]
    assert f"36 {caution} choosing it." in " ".join(planned.split())
    assert (
        json.loads(said(capsys, "plan", "sDigits", *LADDER, "--decide", "--json")[1])["design"]["finished_before"] == 36
    )
    _, _, err = said(capsys, "ladder", "sDigits", *LADDER, "--decide", "--max-seeds", "12")
    assert f"warning: 36 {caution} choosing it\n" in err
    for details in ((), ("--details",)):
        reported = said(capsys, "report", "sDigits", *LADDER, *details)[1]
        assert f"36 {caution} choosing it" in " ".join(reported.split())
    planned = said(capsys, "plan", "sDigits", *LADDER, "--decide")[1]
    assert f"36 {caution} choosing it." in " ".join(planned.split())
    assert caution not in said(capsys, "ladder", "sDigits", *LADDER, "--decide")[2]


def test_an_excluded_run_leaves_its_questions_undecided(capsys: pytest.CaptureFixture[str]) -> None:
    fill_ladder(12)
    run_id = report(capsys)["rows"][0]["runs"][2]
    said(capsys, "mark", run_id, "--exclude", "a test")
    code, out, err = said(capsys, "ladder", "sDigits", *LADDER, "--decide", "--max-seeds", "12")
    assert code == 0, err
    assert "the look at 12 seeds lacks runs of relu-rnn" in out
    said(capsys, "mark", run_id, "--include")
    assert report(capsys)["rows"][1]["verdict"] == "undecided"


@pytest.mark.slow
def test_other_settings_have_a_design_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    fill_ladder(12)
    assert said(capsys, "ladder", "sDigits", *LADDER, "--decide", "--max-seeds", "12")[0] == 0
    plan = planning.make("sDigits", ladder=LADDER[1], profile="smoke")
    rung = plan.rungs[0]
    optim = structs.replace(rung.config.optim, lr=0.5)
    changed = structs.replace(
        plan, rungs=(structs.replace(rung, config=structs.replace(rung.config, optim=optim)), *plan.rungs[1:])
    )
    with Ledger.open(Path("ledger.db")) as ledger:
        [instance] = ledger.ladders()
        assert design_record.find(plan, instance, ledger) is not None
        assert design_record.find(changed, instance, ledger) is None
        counts = [design_record.planned(one, ledger, 12).design.finished_before for one in (plan, changed)]
    assert counts == [36, 24]  # of three rungs, one has other settings


def is_over_or_has(process: subprocess.Popen[str], machine: Machine, done: int) -> bool:
    """Whether a command has ended, or that many runs are done."""
    if process.poll() is not None or not machine.ledger.exists():
        return process.poll() is not None
    ladders = machine.json("status")["ladders"]
    return bool(ladders) and ladders[0]["done"] >= done


@pytest.mark.slow
def test_killed_and_resumed_it_takes_the_same_decisions(tmp_path: Path) -> None:
    short = (*LADDER, "--set", "train.steps=12", "--set", "train.eval_every=6")
    arguments = ("ladder", "sDigits", *short, "--decide", "--jobs", "2")
    whole, killed = Machine(tmp_path / "whole"), Machine(tmp_path / "killed")
    whole.run(*arguments, apart=True)
    for done in (3, 40):
        process = killed.start(*arguments)
        wait_for(partial(is_over_or_has, process, killed, done))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()
    other = killed.start("resume")
    killed.run(*arguments, apart=True)
    other.communicate()
    first, second = (machine.json("report", "sDigits", *short) for machine in (whole, killed))
    assert first["design"]["looks_done"] == second["design"]["looks_done"] > 0
    assert [row["comparison"] for row in first["rows"]] == [row["comparison"] for row in second["rows"]]
    assert [claim["verdict"] for claim in first["claims"]] == [claim["verdict"] for claim in second["claims"]]
    assert killed.json("status")["ladders"][0]["total"] == whole.json("status")["ladders"][0]["total"]
    repeated = killed.run("resume")
    assert "nothing to do" in repeated.stderr

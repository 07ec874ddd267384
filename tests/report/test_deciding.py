"""`--decide`: what it refuses, what it records, and that later runs, exclusions and kills change no verdict."""

from __future__ import annotations

import contextlib
import csv
import re
import signal
import sqlite3
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import scipy.stats
from msgspec import structs

from lrurun import paths
from lrurun.config import planning
from lrurun.judging import design_record
from lrurun.ledger.ledger import Ledger
from tests.harness.machine import Machine, wait_for
from tests.harness.results import fill
from tests.harness.shared import once

LADDER = ("--ladder", "nonlinearity", "--profile", "smoke")
DECIDE = ("ladder", "sDigits", *LADDER, "--decide")
CENTERS = {"relu-rnn": 0.2, "tanh-rnn": 0.8, "linear-rnn": 0.805}
CAUTION = "runs finished before the design: its error rate holds only if their results are not the reason for"


def scores(center: float, first: int, seeds: int) -> list[float]:
    return [center + 0.02 * (7 * seed % 5 - 2) for seed in range(first, seeds)]


def fill_ladder(machine: Machine, seeds: int, first: int = 0) -> None:
    """relu-rnn far below tanh-rnn, linear-rnn near it."""
    found = {rung: scores(center, first, seeds) for rung, center in CENTERS.items()}
    fill(machine.ledger, "sDigits", found, ladder=LADDER[1], profile="smoke", first=first)


@pytest.fixture(scope="session")
def of_twelve() -> Machine:
    def make(folder: Path) -> None:
        fill_ladder(Machine(folder), 12)

    return Machine(once("of-twelve", make))


@pytest.fixture(scope="session")
def of_twenty() -> Machine:
    """Finished runs of two looks, and one in other settings."""

    def make(folder: Path) -> None:
        fill_ladder(Machine(folder), 20)
        fill(folder / "ledger.db", "sDigits", {"relu-rnn": [0.5]}, ladder=LADDER[1], profile="smoke", sets={"optim.lr": 0.1})  # fmt: skip  # noqa: E501

    return Machine(once("of-twenty", make))


def flat(machine: Machine, *arguments: str) -> str:
    return " ".join(machine.run(*arguments).stdout.split())


def report(machine: Machine) -> dict[str, Any]:
    return machine.json("report", "sDigits", *LADDER)


def test_wrong_options_are_refused_before_anything_runs(machine: Machine) -> None:
    looks = "expected 12 or 20, the looks of the design"
    for words, error in (
        (("--max-seeds", "12"), "--max-seeds: belongs to --decide"),
        (("--decide", "--max-seeds", "8"), f"--max-seeds 8: {looks}"),
        (("--decide", "--max-seeds", "13"), f"--max-seeds 13: {looks}"),
        (("--decide", "--seeds", "3"), "--decide and --seeds exclude each other"),
        (("--decide", "--rung", "tanh-rnn"), "--decide and --rung exclude each other"),
        (("--decide", "--fresh"), "--decide and --fresh exclude each other"),
    ):
        for command in ("ladder", "plan") if "--fresh" not in words else ("ladder",):
            assert error in machine.refused(command, "sDigits", *LADDER, *words)


def test_plan_shows_looks_and_levels(machine: Machine) -> None:
    planned = ("plan", "sDigits", *LADDER, "--decide")
    made = machine.json(*planned)
    assert made["seeds"] == list(range(12))
    design = made["design"]
    assert design["looks"] == [{"seeds": 12, "share": 0.5}, {"seeds": 20, "share": 0.5}]
    assert design["level"] == pytest.approx(0.05 * 0.5 / design["hypotheses"])
    assert f"the smallest p at {100 * design['level']:.3f} %. Seeds are then added" in flat(machine, *planned)
    assert "It is the last one." in flat(machine, *planned, "--max-seeds", "12")


def test_looks_are_taken_and_recorded_and_later_runs_change_no_verdict(of_twenty: Machine, tmp_path: Path) -> None:
    machine = of_twenty.copy(tmp_path / "copy")
    planned = flat(machine, "plan", *DECIDE[1:])
    assert "All runs of the next look are finished. After this look, at most 24 runs follow" in planned
    assert f"60 {CAUTION} choosing it." in planned
    done = machine.run(*DECIDE)
    assert "Look: the change and its p use only so many first seeds, the means use all." in " ".join(done.stdout.split())  # fmt: skip  # noqa: E501
    assert "The sequential design is complete: what is undecided stays undecided." in " ".join(done.stdout.split())
    assert " · 20 seeds a rung · look 2 of 2 · " in done.stdout
    for line in (
        f"warning: 60 {CAUTION} choosing it\n",
        "look at 12 seeds: 1 of 3 questions undecided; next 20 seeds",
        "look at 20 seeds: 1 of 3 questions undecided; the design is complete",
        "nothing to do",
    ):
        assert line in done.stderr
    made = machine.json("plan", *DECIDE[1:])
    assert [(row["runs_done"], row["runs"]) for row in made["rungs"]] == [(12, 12), (20, 20), (20, 20)]
    made = report(machine)
    assert (made["design"]["looks_done"], made["design"]["finished_before"]) == (2, 60)
    found = [row["comparison"] for row in made["rows"]]
    assert [row["verdict"] for row in made["rows"]] == ["", "helps", "undecided"]
    assert [one and one["look"] for one in found] == [None, 12, 20]
    assert made["conclusions"][0].startswith("Helps: tanh-rnn scores 60.00 points more than relu-rnn")
    assert made["conclusions"][0].endswith(" at 12 seeds).")
    assert [row["n"] for row in made["rows"]] == [20, 20, 20]
    assert [[side["n"] for side in one["sides"]] for one in found if one] == [[12, 12], [20, 20]]
    for side, rung in zip(found[1]["sides"], ("tanh-rnn", "relu-rnn"), strict=True):
        assert side["stderr"] == pytest.approx(scipy.stats.sem(scores(CENTERS[rung], 0, 12)))
    assert made["rows"][1]["stderr"] == pytest.approx(scipy.stats.sem(scores(0.8, 0, 20)))

    fill_ladder(machine, 24, first=20)
    machine.run("mark", made["rows"][1]["runs"][0], "--exclude", "a test")
    later = report(machine)
    assert [row["comparison"] for row in later["rows"]] == found
    assert later["claims"] == made["claims"]
    for name in ("md", "latex", "table"):
        text = machine.run("report", "sDigits", *LADDER, "--details", "--format", name).stdout
        assert "Sequential design (" in text
        assert f"60 {CAUTION} choosing it" in " ".join(text.split())
        assert re.search(r"\+60\.00 .*] at 12 seeds.*\n", text.replace("{]}", "]")), name
    details = "Sequential design (--decide --max-seeds 20): looks at 12 seeds (50 %), 20 seeds (50 %)"
    assert details in " ".join(text.split())
    lines = list(csv.DictReader(machine.run("report", "sDigits", *LADDER, "--format", "csv").stdout.splitlines()))
    assert [line["look"] for line in lines] == ["", "12", "20"]
    assert [(line["compared_n"], line["base_n"]) for line in lines] == [("", ""), ("12", "12"), ("20", "20")]

    assert "--max-seeds 20" in machine.refused(*DECIDE, "--max-seeds", "12")
    again = machine.run(*DECIDE).stderr
    assert "look at" not in again
    assert CAUTION not in again, "no look is left"
    assert machine.run("resume").stderr.startswith("nothing to do: every ladder of this ledger is finished\n")


EXTRA = """
[[rung]]
name = "extra"
title = "One more"
change = { "model.depth" = 2 }
"""


def test_a_changed_ladder_has_another_design_and_names_the_earlier_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(machine.folder)
    path = Path("own.toml")
    path.write_text((paths.packaged("ablations") / "nonlinearity.toml").read_text().replace("nonlinearity", "own"))
    options = ("--ladder", "own.toml", "--profile", "smoke")
    found = {rung: scores(center, 0, 12) for rung, center in CENTERS.items()}
    fill(machine.ledger, "sDigits", found, ladder="own.toml", profile="smoke")
    machine.run("ladder", "sDigits", *options, "--decide", "--max-seeds", "12")
    with Ledger.open(machine.ledger) as ledger:
        [earlier] = ledger.ladders()
    judged = machine.json("report", "sDigits", *options)
    path.write_text(path.read_text() + EXTRA)
    sentence = f"--instance {earlier.short_name} (36 finished runs, sequential design: 2 supported, 1 undecided)"
    planned = machine.json("plan", "sDigits", *options, "--decide")
    assert [note.endswith(sentence) for note in planned["notes"]] == [True]
    assert [(row["rung"], row["runs_left"]) for row in planned["rungs"]][-1] == ("extra", 12)
    assert planned["design"]["finished_before"] == 36
    fill(machine.ledger, "sDigits", {"extra": scores(0.5, 0, 12)}, ladder="own.toml", profile="smoke")
    assert sentence in flat(machine, "report", "sDigits", *options)
    path.unlink()
    kept = machine.json("report", "sDigits", "--instance", earlier.key)
    assert (kept["rows"], kept["claims"], kept["design"]) == (judged["rows"], judged["claims"], judged["design"])


def test_of_designs_that_are_recorded_at_once_the_first_counts(of_twenty: Machine, tmp_path: Path) -> None:
    """A plan without --decide names one that is unfinished, and other settings have a design of their own."""
    machine = of_twenty.copy(tmp_path / "copy")
    notice = "A sequential design is recorded; continue it with --decide."
    assert notice not in flat(machine, "plan", "sDigits", *LADDER)
    plan = planning.make("sDigits", ladder=LADDER[1], profile="smoke")
    rung = plan.rungs[0]
    optim = structs.replace(rung.config.optim, lr=0.5)
    changed_rung = structs.replace(rung, config=structs.replace(rung.config, optim=optim))
    changed = structs.replace(plan, rungs=(changed_rung, *plan.rungs[1:]))
    with Ledger.open(machine.ledger) as ledger:
        instance = next(one for one in ledger.ladders() if len(ledger.runs(one.key)) == 60)
        assert not design_record.is_unfinished(instance, ledger)
        first = design_record.begin(plan, instance, ledger, 20)
        other = structs.replace(first.design, finished_before=1)
        ledger.event(design_record.DESIGN, "sequential design", other, ladder=instance.key)
        assert design_record.begin(plan, instance, ledger, None) == first
        assert design_record.is_unfinished(instance, ledger)
        assert design_record.find(changed, instance, ledger) is None
        counts = [design_record.planned(one, ledger, 12).design.finished_before for one in (plan, changed)]
        assert counts == [60, 40], "of three rungs, one has other settings"
    assert notice in flat(machine, "plan", "sDigits", *LADDER)
    machine.run(*DECIDE)
    with Ledger.open(machine.ledger) as ledger:
        assert not design_record.is_unfinished(instance, ledger)
        kinds = [event.kind for event in ledger.events(ladder_key=instance.key, of_runs=False)]
        assert sorted(kinds) == ["asked", "design", "design", "documents", "look", "look"]
    assert notice not in flat(machine, "plan", "sDigits", *LADDER)


def test_an_excluded_run_leaves_its_questions_undecided(of_twelve: Machine, tmp_path: Path) -> None:
    machine = of_twelve.copy(tmp_path / "copy")
    run_id = report(machine)["rows"][0]["runs"][2]
    machine.run("mark", run_id, "--exclude", "a test")
    assert "the look at 12 seeds lacks runs of relu-rnn" in machine.run(*DECIDE, "--max-seeds", "12").stdout
    machine.run("mark", run_id, "--include")
    assert report(machine)["rows"][1]["verdict"] == "undecided"


def test_reports_say_that_runs_of_looks_are_gone(of_twelve: Machine, tmp_path: Path) -> None:
    machine = of_twelve.copy(tmp_path / "copy")
    machine.run(*DECIDE, "--max-seeds", "12")
    verdicts = [row["verdict"] for row in report(machine)["rows"]]
    assert "are gone" not in flat(machine, "report", "sDigits", *LADDER, "--details")
    machine.run("ledger", "forget", "--where", "seed=11", "--why", "a trial", "--yes")
    made = report(machine)
    assert [row["verdict"] for row in made["rows"]] == verdicts
    assert made["design"]["removed"] == 3
    gone = "3 runs that looks of the design used are gone: the verdicts of these looks stay as they are recorded, and"
    assert gone in " ".join(made["conclusions"])
    assert gone in flat(machine, "report", "sDigits", *LADDER)
    assert flat(machine, "report", "sDigits", *LADDER, "--details").count(gone) == 1
    part = machine.folder / "part.db"
    machine.run("--ledger", str(part), "ledger", "merge", str(machine.ledger), "--where", "seed<10")
    assert "6 runs that looks of the design used are gone" in flat(
        machine, "--ledger", str(part), "report", "sDigits", *LADDER
    )


@pytest.fixture(scope="module")
def undisturbed(of_twelve: Machine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of a design that nothing has ended."""
    machine = of_twelve.copy(tmp_path_factory.mktemp("undisturbed") / "copy")
    machine.run(*DECIDE, "--max-seeds", "12")
    return report(machine)


class KilledError(BaseException):
    """What a command cannot catch."""


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True], ids=["before", "after"])
def test_ended_at_any_record_it_takes_the_same_decisions(
    of_twelve: Machine, undisturbed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """Before or after a record of the design or of a look; `resume` takes the looks that are left."""
    arguments = (*DECIDE, "--max-seeds", "12")
    killed = of_twelve.copy(tmp_path / "killed")
    event = Ledger.event
    for kind in (design_record.DESIGN, design_record.LOOK):

        def end(self: Ledger, found: str, *words: Any, kind: str = kind, **more: Any) -> None:
            if found != kind or whole:
                event(self, found, *words, **more)
            if found == kind:
                raise KilledError

        monkeypatch.setattr(Ledger, "event", end)
        with pytest.raises(KilledError):
            killed.run(*arguments)
        monkeypatch.setattr(Ledger, "event", event)
    killed.run("resume")
    found = report(killed)
    assert [row["comparison"] for row in found["rows"]] == [row["comparison"] for row in undisturbed["rows"]]
    assert found["design"] == undisturbed["design"]
    assert "nothing to do" in killed.run("resume").stderr


def is_over_or_has(process: subprocess.Popen[str], machine: Machine, done: int) -> bool:
    """Whether a command has ended, or that many runs are done."""
    if process.poll() is not None or not machine.ledger.exists():
        return process.poll() is not None
    ladders = machine.json("status")["ladders"]
    return bool(ladders) and ladders[0]["done"] >= done


TWO = """
name = "two"
title = "two rungs"
source = "ours"
[[rung]]
name = "tanh-rnn"
title = "tanh"
change = { "model.recurrence.kind" = "dense", "model.recurrence.activation" = "tanh" }
[[rung]]
name = "linear-rnn"
title = "linear"
change = { "model.recurrence.activation" = "identity" }
"""


@pytest.mark.slow
def test_killed_and_resumed_by_two_commands_it_decides_as_an_undisturbed_one(machine: Machine, tmp_path: Path) -> None:
    (machine.folder / "two.toml").write_text(TWO)
    short = ("--ladder", "two.toml", "--profile", "smoke", "--set", "train.steps=12", "--set", "train.eval_every=6")
    arguments = ("ladder", "sDigits", *short, "--decide", "--max-seeds", "12", "--jobs", "1")
    process = machine.start(*arguments)
    wait_for(partial(is_over_or_has, process, machine, 3))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    other = machine.start("resume")
    machine.run(*arguments, apart=True)
    other.communicate()
    found = machine.json("report", "sDigits", *short)
    assert ([row["n"] for row in found["rows"]], found["design"]["looks_done"]) == ([12, 12], 1)
    assert "nothing to do" in machine.run("resume").stderr
    # decided again, by one command alone
    again = machine.copy(tmp_path / "again")
    with contextlib.closing(sqlite3.connect(again.ledger)) as connection, connection:
        connection.execute("DELETE FROM events WHERE kind IN ('design', 'look')")
    again.run(*arguments)
    assert [row["comparison"] for row in again.json("report", "sDigits", *short)["rows"]] == [
        row["comparison"] for row in found["rows"]
    ]

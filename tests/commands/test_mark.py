"""`lrurun mark`: tags, notes and exclusions of runs, which change no run."""

from __future__ import annotations

from pathlib import Path

import pytest

from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.ledger.ledger import Ledger
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.shared import once
from tests.harness.stores import drop_trigger, dump, raw

REPORT = ("report", "sDigits", "--profile", "smoke")


def _fill(folder: Path) -> None:
    scores = {"tanh-rnn": [0.5, 0.51, 0.52], "linear-rnn": [0.53, 0.54, 0.55]}
    fill(Machine(folder).ledger, "sDigits", scores, profile="smoke")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A ledger of six finished runs: two rungs of three seeds."""
    return Machine(once("six-runs", _fill)).copy(tmp_path / "here")


@pytest.fixture
def runs(machine: Machine) -> list[str]:
    return [run["id"] for run in machine.json("runs", "--sort", "seed", "--where", "rung=tanh-rnn")["runs"]]


def rows_of_runs(machine: Machine) -> list[str]:
    return [line for line in dump(machine.ledger) if line.startswith('INSERT INTO "runs"')]


def marked(machine: Machine, *words: str) -> str:
    return machine.run("mark", *words).stdout


def test_tags_are_added_found_and_removed(machine: Machine, runs: list[str]) -> None:
    first, second, _ = runs
    before = rows_of_runs(machine)
    assert marked(machine, first[:7], "--tag", "paper", "--tag", "best") == f"run {first}: tags best, paper\n"
    assert marked(machine, second, "--tag", "paper") == f"run {second}: tags paper\n"
    for condition, found in (("tag=paper", 2), ("tag=paper and tag!=best", 1), ("not tag=paper", 4)):
        assert len(machine.json("runs", "--where", condition)["runs"]) == found
    assert machine.json("show", first)["run"]["tags"] == ["best", "paper"]
    assert "tags: best, paper" in machine.run("show", first).stdout
    lines = machine.run("runs").stdout.splitlines()
    assert lines[0].split()[-1] == "tags"
    assert [line for line in lines if "best" in line] == [line for line in lines if first in line]
    said = marked(machine, first, "--untag", "best", "--untag", "unknown")
    assert said == f"run {first}: tags paper; had no tag unknown\n"
    assert marked(machine, first, "--untag", "paper") == f"run {first}: no tags\n"
    assert rows_of_runs(machine) == before


@pytest.mark.parametrize("word", ["a b", "", "a=b", "x" * 101, "(a)", "\x1b[31ma", "and", "a\nb"])
def test_a_tag_is_one_word(machine: Machine, runs: list[str], word: str) -> None:
    said = machine.refused("mark", runs[0], "--tag", "good", "--tag", word)
    assert "expected one word of at most 100 characters" in said
    assert "\x1b" not in said
    assert machine.json("show", runs[0])["run"]["tags"] == []


def test_notes_are_events_of_the_run(machine: Machine, runs: list[str]) -> None:
    text = "\x1b[31mthe [red]fan\x07\nwas 'loud' é"
    assert marked(machine, runs[0][:8], "--note", text) == f"run {runs[0]}: noted\n"
    event = machine.json("show", runs[0])["events"][-1]
    assert (event["kind"], event["text"]) == ("note", text)
    shown = machine.run("show", runs[0]).stdout
    assert "note     the [red]fan was 'loud' é" in shown
    assert "\x1b" not in shown


def test_an_excluded_run_is_in_no_report_and_is_kept(machine: Machine, runs: list[str]) -> None:
    before, run = rows_of_runs(machine), runs[0]

    def report(*words: str) -> tuple[int, float]:
        row = machine.json(*REPORT, *words)["rows"][0]
        return row["n"], row.get("mean")

    assert report() == (3, pytest.approx(0.51))
    said = f"run {run}: excluded from all reports; --include includes it again\n"
    assert marked(machine, run[:8], "--exclude", "first try") == said
    assert "(replaces: first try)" in marked(machine, run, "--exclude", "[red]a broken\ndisk\x1b[31m")
    assert report() == (2, pytest.approx(0.515))
    assert report("--speed")[0] == 2
    text = machine.run(*REPORT, "--format", "md").stdout
    assert "1 run excluded: [red]a broken disk" in " ".join(text.replace("\\", "").split())
    assert "\x1b" not in text
    listed = {one["id"]: one["excluded"] for one in machine.json("runs")["runs"]}
    assert [name for name, why in listed.items() if why is not None] == [run]
    assert machine.run("runs").stdout.count("done, excluded") == 1
    assert "excluded from every report: [red]a broken disk\n" in machine.run("show", run).stdout
    assert [event["kind"] for event in machine.json("show", run)["events"]][-2:] == ["excluded", "excluded"]
    assert marked(machine, run, "--include") == f"run {run}: included in reports again\n"
    assert marked(machine, run, "--include") == f"run {run}: was not excluded\n"
    assert report() == (3, pytest.approx(0.51))
    assert rows_of_runs(machine) == before


def test_claims_do_not_count_excluded_runs(machine: Machine) -> None:
    before = [claim["detail"] for claim in machine.json(*REPORT)["claims"]]
    linear = [run["id"] for run in machine.json("runs", "--where", "rung=linear-rnn")["runs"]]
    machine.run("mark", *linear, "--exclude", "x")
    report = machine.json(*REPORT)
    assert [(row["n"], row["mean"] is None) for row in report["rows"][:2]] == [(3, False), (0, True)]
    assert [claim["detail"] for claim in report["claims"]] != before
    assert {claim["verdict"] for claim in report["claims"]} == {"not run", "not judged"}  # a claim on long sequences


def test_unequal_data_do_not_matter_once_excluded(machine: Machine, runs: list[str]) -> None:
    drop_trigger(machine.ledger, "runs_finished_stay", "stored_runs")
    raw(machine.ledger, "update stored_runs set data_sha256 = 'e' where id = ?", runs[0])
    machine.run(*REPORT, code=1)
    machine.run("mark", runs[0], "--exclude", "of other data")
    assert [row["n"] for row in machine.json(*REPORT)["rows"][:2]] == [2, 3]


def test_one_call_records_everything_for_all_its_runs_or_nothing(machine: Machine, runs: list[str]) -> None:
    first, second, _ = runs
    options = ("--tag", "slow", "--note", "loud fan", "--exclude", "broken disk")
    before = dump(machine.ledger)
    machine.run("mark", first, second, "zz", *options, code=4)
    assert dump(machine.ledger) == before
    said = "tags slow; noted; excluded from all reports; --include includes it again\n"
    assert marked(machine, first, second, first, *options) == f"run {first}: {said}run {second}: {said}"
    with Ledger.open(machine.ledger) as ledger:
        ledger.mark([first], note="loud fan", exclude="broken disk")  # a server that did not say that it has done it
        for run in (first, second):
            assert [event.kind for event in ledger.events(run=run)][-2:] == ["excluded", "note"]
            assert (ledger.run(run).tags, ledger.run(run).excluded) == (("slow",), "broken disk")


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ([], 2, "mark: nothing to record"),
        (["--tag", "good"], 2, "expected RUNs or --instance"),
        (["RUN"], 2, "mark: nothing to record"),
        (["RUN", "--exclude", " "], 2, "--exclude: the text is empty"),
        (["RUN", "--note", " "], 2, "--note: the text is empty"),
        (["RUN", "--note", "x" * 2001], 2, "2,001 characters, at most 2,000"),
        (["RUN", "--exclude", "x" * 2001], 2, "2,001 characters, at most 2,000"),
        (["RUN", "--exclude", "x", "--include"], 2, "--exclude and --include exclude each other"),
        (["zz", "--tag", "good"], 4, "no run 'zz' in this ledger"),
        (["zz", "--note", "x", "--ledger", "none.db"], 4, "run 'zz': there is no ledger at none.db"),
        (["zz", "--include"], 4, "no run 'zz' in this ledger"),
    ],
)
def test_what_is_refused_changes_nothing(
    machine: Machine, runs: list[str], words: list[str], code: int, error: str
) -> None:
    before = dump(machine.ledger)
    assert error in machine.refused("mark", *[runs[0] if word == "RUN" else word for word in words], code=code)
    assert dump(machine.ledger) == before


def test_tags_and_notes_stay_with_their_generation(machine: Machine, runs: list[str]) -> None:
    """A run that is repeated with --fresh is a new run, without tags and notes."""
    machine.run("mark", runs[0], "--exclude", "x", "--tag", "t")
    plan = planning.make("sDigits", profile="smoke")
    with Ledger.open(machine.ledger) as ledger:
        [new] = ledger.enqueue(ledger.ladders()[0].key, final_runs(plan, plan.rungs[0], [0]), fresh=True)
    assert (new.tags, new.excluded) == ((), None)
    shown = machine.json("show", runs[0])["run"]
    assert (shown["tags"], shown["superseded"]) == (["t"], True)
    assert "done, superseded, excluded" in machine.run("runs").stdout

"""What reports say of runs that were forgotten, or left out of a copy, and what stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import Owner
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.stores import raw
from tests.report.test_deciding import DECIDE, LADDER, of_twelve

__all__ = ["of_twelve"]  # a fixture

REPORT = ("report", "sDigits", "--profile", "smoke")
WHY = "the fan was loud"


@pytest.fixture
def partial(machine: Machine) -> Machine:
    """A ladder of which two runs of a rung were forgotten for no reason, before it was judged, and one for a reason."""
    fill(machine.ledger, "sDigits", {"gamma-norm": [None, 0.7, 0.8]}, profile="smoke")
    machine.run("ledger", "forget", "--where", "rung=gamma-norm and seed>0", "--yes")
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5, 0.6], "ring-init": [0.7, 0.8]}, profile="smoke")
    machine.run("ledger", "forget", "--where", "rung=ring-init and seed=1", "--yes", "--why", WHY)
    return machine


def test_every_format_has_the_caution_and_the_reason(partial: Machine) -> None:
    answer = partial.shown(*REPORT, width=200)
    assert "2 runs were forgotten (gamma-norm); 1 run was forgotten (ring-init): the fan was loud" in answer
    full = (
        "2 runs were forgotten by {user}: gamma-norm, seeds 1, 2. No reason is on record. 1 run was forgotten by "
        "{user}: ring-init, seed 1. Reason: the fan was loud."
    )
    [user] = {run["removed_by"] for run in partial.json(*REPORT)["removed_runs"]}
    for form in ("table", "md", "latex", "html"):
        text = partial.run(*REPORT, "--format", form, *(["--details"] if form == "table" else [])).stdout
        assert full.format(user=user) in text.replace("\n", " "), form
    found = partial.json(*REPORT)
    assert {row["rung"]: row["removed"] for row in found["rows"] if row["removed"]} == {"ring-init": 1, "gamma-norm": 2}
    assert [(run["rung"], run["seed"], run["kind"], run["why"]) for run in found["removed_runs"]] == [
        ("gamma-norm", 1, "forgotten", None),
        ("gamma-norm", 2, "forgotten", None),
        ("ring-init", 1, "forgotten", WHY),
    ]
    header, *rows = partial.run(*REPORT, "--format", "csv").stdout.splitlines()
    column = header.split(",").index("removed")
    assert [row.split(",")[column] for row in rows if row.split(",")[5] == "gamma-norm"] == ["2"]
    claims = partial.run("claims", "sDigits", "--details").stdout
    assert "runs removed" in claims


def test_a_caption_names_them_with_the_reason(partial: Machine) -> None:
    """In words of a paper, of tables of rungs and of claims."""
    for table in ("ablation", "claims"):
        caption = partial.run(*REPORT, "--format", "latex", "--plain", "--tables", table).stdout.replace("\n", " ")
        assert "2 runs of gamma-norm were deleted and are not counted. " in caption
        assert "1 run of ring-init was deleted and is not counted: the fan was loud." in caption
    raw(partial.ledger, "UPDATE removals SET kind = 'left out' WHERE why IS NULL")
    fill(partial.ledger, "sDigits", {"ring-init": [0.9]}, profile="smoke", first=1)
    caption = partial.run(*REPORT, "--format", "latex", "--plain").stdout.replace("\n", " ")
    assert "2 runs of gamma-norm are not in the record of this table. " in caption
    assert "1 run of ring-init was deleted and repeated: the fan was loud." in caption


def test_a_result_that_was_forgotten_and_trained_again_is_named_in_every_format(partial: Machine) -> None:
    fill(partial.ledger, "sDigits", {"ring-init": [0.99]}, profile="smoke", first=1)
    assert "; 1 run was forgotten and trained again (ring-init): the fan was loud" in partial.shown(*REPORT, width=200)
    found = partial.json(*REPORT)
    assert {run["rung"] for run in found["removed_runs"]} == {"gamma-norm"}
    [again] = found["trained_again"]
    assert (again["rung"], again["seed"], again["state"], again["why"]) == ("ring-init", 1, "done", WHY)
    full = (
        f"1 run was forgotten by {again['removed_by']} and trained again: ring-init, seed 1. Reason: the fan was loud."
    )
    for form in ("table", "md", "latex", "html"):
        text = partial.run(*REPORT, "--format", form, *(["--details"] if form == "table" else [])).stdout
        assert full in text.replace("\n", " "), form
    made = partial.json(*REPORT, "--methods")
    assert made["facts"]["deleted and repeated"] == {"deleted": {"ring-init": 1}, "why": [WHY]}
    assert (
        "One run was deleted with its results and then repeated (one of ring-init); the reason given: the fan was loud."
    ) in made["text"]


def test_a_failed_run_that_was_forgotten_and_trained_again_is_no_evidence(machine: Machine) -> None:
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5, 0.6], "ring-init": [0.7, 0.8]}, profile="smoke")
    machine.run("ledger", "forget", "--where", "seed=1", "--yes", "--why", WHY)
    raw(machine.ledger, "UPDATE removed_runs SET state = 'failed'")
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.6], "ring-init": [0.8]}, profile="smoke", first=1)
    assert machine.json(*REPORT)["trained_again"] == []


def test_a_run_that_a_merge_brings_back_needs_no_remark(partial: Machine, tmp_path: Path) -> None:
    old = Machine(tmp_path / "old")
    fill(old.ledger, "sDigits", {"ring-init": [0.7, 0.8]}, profile="smoke")
    raw(old.ledger, "DROP TRIGGER runs_finished_stay")
    raw(old.ledger, "UPDATE stored_runs SET created_at = 1")
    assert partial.json("ledger", "merge", str(old.ledger))["back"] == 1
    found = partial.json(*REPORT)
    assert (found["trained_again"], len(found["removed_runs"])) == ([], 2)
    assert "the fan was loud" not in partial.run(*REPORT, "--details").stdout


def test_runs_that_are_back_do_not_count_and_hidden_instances_change_nothing(partial: Machine) -> None:
    fill(partial.ledger, "sDigits", {"ring-init": [0.8]}, profile="smoke", first=1)
    answer = partial.run(*REPORT).stdout
    assert "1 run was forgotten (ring-init)" not in answer
    assert "2 runs were forgotten (gamma-norm)" in answer
    raw(partial.ledger, "INSERT INTO hidden (ladder, time) SELECT id, 0 FROM ladders")
    assert partial.run(*REPORT).stdout == answer


def test_runs_that_were_left_out_of_a_copy_are_named(partial: Machine) -> None:
    raw(partial.ledger, "UPDATE removals SET kind = 'left out' WHERE why IS NULL")
    assert "2 runs were left out of this copy (gamma-norm)" in partial.run(*REPORT).stdout


def test_runs_that_never_began_do_not_count(machine: Machine) -> None:
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5, 0.6], "ring-init": [0.7, 0.8]}, profile="smoke")
    plan = planning.make("sDigits", profile="smoke")
    [rung] = planning.choose_rungs(plan, ["ring-init"])
    with Ledger.open(machine.ledger) as ledger:
        ledger.enqueue(ledger.ladders()[0].key, final_runs(plan, rung, [5]))
    before = machine.run(*REPORT).stdout
    machine.run("ledger", "forget", "--where", "seed=5", "--yes", "--why", "not needed")
    after = machine.json(*REPORT)
    assert after["removed_runs"] == []
    assert "forgotten" not in machine.run(*REPORT).stdout
    assert "forgotten" not in before


def test_verdicts_of_looks_stay_as_they_were_recorded(of_twelve: Machine, tmp_path) -> None:
    machine = of_twelve.copy(tmp_path / "here")
    machine.run(*DECIDE, "--max-seeds", "12")
    report = ("report", "sDigits", *LADDER)

    def decided() -> list[Any]:
        rows = machine.json(*report)["rows"]
        return [(row["rung"], row["verdict"], row["comparison"]) for row in rows]

    before = decided()
    said = machine.refused("ledger", "forget", "--where", "rung=relu-rnn and seed>3", "--yes")
    assert "has a sequential design (--decide): to forget runs" in said
    machine.run("ledger", "forget", "--where", "rung=relu-rnn and seed>3", "--yes", "--why", "space")
    assert decided() == before
    assert "8 runs were forgotten (relu-rnn): space" in machine.run(*report).stdout
    machine.run("ledger", "forget", "--where", "rung=relu-rnn", "--yes", "--why", "space")
    assert [row[1:] for row in decided()] == [row[1:] for row in before]
    assert "12 runs were forgotten (relu-rnn): space" in machine.run(*report).stdout


def test_the_choice_of_tuning_stays_without_its_runs(machine: Machine) -> None:
    from lrurun.config.tuning import choose_point, tuning_runs

    plan = planning.make("npDigits", profile="smoke", tune=True)
    [rung] = planning.choose_rungs(plan, ["gamma-norm"])
    owner = Owner(host="here", boot="b", namespace="n", pid=1, pid_started=1.0)
    with Ledger.open(machine.ledger) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, "npDigits", "smoke", plan.spec, plan.short_name)
        tuning = tuning_runs(plan, [rung])
        ledger.enqueue(instance.key, tuning)
        while held := ledger.hold(instance.key, owner):
            ledger.finish(held, "done", result={"val/accuracy": 0.5 + held.run.seed % 7 / 100}, step=20)
        results = [run.result for run in ledger.runs(instance.key)]
        point = choose_point(plan, rung, results)
        choice = {"rung": rung.name, "seeds": 3, "point": point}
        ledger.event("tuned", "chosen", choice, ladder=instance.key)
        # as if another instance had trained them first: their sources do not say that they were tuned
        final = [without_sources(run) for run in final_runs(plan, rung, [0, 1], point)]
        ledger.enqueue(instance.key, final)
        while held := ledger.hold(instance.key, owner):
            ledger.finish(held, "done", result={"val/accuracy": 0.6, "test/accuracy": 0.6}, step=20)
    report = ("report", "--instance", instance.short_name)

    def source() -> Any:
        [row] = [row for row in machine.json(*report)["rows"] if row["rung"] == "gamma-norm"]
        return row["learning_rate"], row["rate_source"]

    before = source()
    assert before[1]["kind"] == "tuned"
    machine.run("ledger", "forget", "--where", "stage=tune", "--yes")
    assert source() == before
    text = machine.run(*report, "--details").stdout
    assert f"{len(tuning)} tuning runs were forgotten" in text
    assert "What tuning chose stays as it was recorded" in text
    assert f"{len(tuning)} tuning runs were forgotten (gamma-norm)" in machine.run(*report).stdout


def without_sources(run: Any) -> Any:
    from msgspec import structs

    return structs.replace(run, sources={})

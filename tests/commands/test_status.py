"""`lrurun status`: instances by ladder and task, one line each where nothing runs, and what options select."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from lrurun import console
from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.ledger.ledger import Ledger
from tests.harness.machine import Machine
from tests.harness.projects import enqueue, fill_projects, hide
from tests.harness.results import OWNER, fill
from tests.harness.shared import once

CALLS = (
    "status",
    "status --details --where task=sDigits",
    "status --instance sDigits-ssm --instance sDigits-smoke",
    "status --where 'optim.lr<0.005 and seed=0'",
    "status --instance sDigits-ssm --where rung=s9",
    "status --where tag=paper",
)


@pytest.fixture
def hour(tmp_path: Path) -> Machine:
    """A ledger of an hour's use, which may be changed."""

    def make(folder: Path) -> None:
        folder.mkdir()
        fill_projects(folder / "ledger.db")

    machine = Machine(tmp_path / "hour")
    shutil.copyfile(once("projects", make) / "ledger.db", machine.ledger)
    return machine


def printed(machine: Machine, call: str, width: int | None = None) -> str:
    """A command with what it prints, in a pipe or on a terminal of this width."""
    words = [word.strip("'") for word in call.replace(" and ", "_and_").split()[1:]]
    words = [word.replace("_and_", " and ") for word in words]
    if width is None:
        done = machine.run("status", *words)
    else:
        with mock.patch.multiple(console, is_screen=lambda: True, width=lambda: width):
            done = machine.run("status", *words)
    return f"$ lrurun {call}\n{done.stdout}{done.stderr}"


def test_what_people_see(hour: Machine, golden: Any) -> None:
    texts = [printed(hour, call) for call in CALLS]
    texts += [printed(hour, "status", width) for width in (80, 60, 30)]
    texts.append(printed(hour, "status --instance sDigits", 80))
    golden("status.txt", "\n".join(texts))


def test_an_hours_use_fits_a_screen_where_nothing_runs(hour: Machine) -> None:
    assert len(hour.json("status")["ladders"]) == 15
    for width in (80, 100):
        lines = printed(hour, "status", width).splitlines()[1:]
        assert len(lines) < 30, "a line is left for the prompt"
        assert max(map(len, lines)) <= width
    assert "tanh-rnn   0/2" in "\n".join(lines), "what waits shows its rungs while there is room"
    drawn = hour.run("status").stdout
    for room, has_rungs in ((len(drawn.splitlines()), True), (len(drawn.splitlines()) - 1, False)):
        with mock.patch("lrurun.report.live.projects.SCREEN", room):
            assert (hour.run("status").stdout == drawn) is has_rungs
    with Ledger.open(hour.ledger) as ledger:
        enqueue(ledger, {"optim.lr": 0.6}, seeds=2)
        enqueue(ledger, {"optim.lr": 0.7}, seeds=2)
    lines = printed(hour, "status", 80).splitlines()[1:]
    assert len(lines) < 30
    assert sum("mean val" in line for line in lines) == 0, "the newest would be too much already"
    assert sum("1 queued, 1 interrupted" in line for line in lines) == 3


def test_an_instance_has_the_time_of_its_end_once_nothing_remains(machine: Machine) -> None:
    fill(machine.ledger, "npDigits", {"tanh-rnn": [0.5, 0.6]}, profile="smoke")
    [ladder] = machine.json("status")["ladders"]
    assert ladder["finished_at"] is not None
    plan = planning.make("npDigits", profile="smoke")
    with Ledger.open(machine.ledger) as ledger:
        ledger.enqueue(ladder["instance"], final_runs(plan, plan.rungs[0], [7]))
    [ladder] = machine.json("status")["ladders"]
    assert (ladder["done"], ladder["queued"], ladder["finished_at"]) == (2, 1, None)


def test_what_runs_has_its_rungs_however_many_there_are(hour: Machine) -> None:
    keys = []
    with Ledger.open(hour.ledger) as ledger:
        for rate in (0.6, 0.7, 0.8, 0.9):
            keys.append(enqueue(ledger, {"optim.lr": rate}, seeds=2))
            assert ledger.hold(keys[-1], OWNER, environment={"device": "cpu"}) is not None
        with mock.patch("lrurun.ledger.ledger.Ledger.has_abandoned", return_value=False):
            shown = printed(hour, "status")
    assert shown.count("\nrung ") == 4
    assert shown.index("npDigits-lr0.9: ladder") < shown.index("npDigits-lr0.6: ladder"), "the newest is the first"
    assert "npDigits-lr0.5 " in shown, "what only waits is a line then"


def test_hidden_instances_are_left_out_unless_they_are_named(hour: Machine) -> None:
    before = hour.json("status")["ladders"]
    assert {one["hidden"] for one in before} == {False}
    hide(hour.ledger, "npDigits-smoke-width3", "npDigits-smoke-width5")
    message = "not shown: 2 hidden instances; lrurun status --hidden shows all\n"
    done = hour.run("status")
    assert "width" not in done.stdout
    assert message in done.stderr
    left = hour.json("status")["ladders"]
    assert left == [one for one in before if "width" not in one["name"]]
    every = hour.json("status", "--hidden")["ladders"]
    assert [one | {"hidden": False} for one in every] == before
    assert [one["name"] for one in every if one["hidden"]] == ["npDigits-smoke-width3", "npDigits-smoke-width5"]
    done = hour.run("status", "--hidden")
    assert message not in done.stderr
    assert done.stdout.count("hidden: lrurun ledger hide npDigits-smoke-width") == 2
    [named] = hour.json("status", "--instance", "npDigits-smoke-width3")["ladders"]
    assert (named["name"], named["hidden"]) == ("npDigits-smoke-width3", True)
    done = hour.run("status", "--where", "model.width=5")
    assert (done.stdout, done.stderr) == ("", "not shown: 1 hidden instance; lrurun status --hidden shows all\n")


def test_conditions_select_the_instances_of_runs_that_meet_them(hour: Machine) -> None:
    """Against the conditions of `lrurun runs`."""
    with Ledger.open(hour.ledger) as ledger:
        tagged = [run.id for run in ledger.runs(limit=40)][::7]
        ledger.mark(tagged, tag=["paper"])
    for condition in ("tag=paper", "seed>1", "rung=s5 or optim.lr>0.05", "state=diverged", "test/accuracy<0.4"):
        runs = hour.json("runs", "--where", condition)["runs"]
        wanted = {membership["instance"] for run in runs for membership in run["ladders"]}
        assert wanted
        found = hour.json("status", "--where", condition)["ladders"]
        assert {one["name"] for one in found} == wanted
        one = min(wanted)
        [both] = hour.json("status", "--where", condition, "--instance", one)["ladders"]
        assert both["name"] == one
    assert hour.json("status", "--where", "seed>1", "--instance", "sDigits-ssm")["ladders"] == []


def test_mistakes_name_what_there_is(hour: Machine) -> None:
    assert hour.refused("status", "--instance", "sDigits-sm", code=4) == (
        "error: no ladder instance 'sDigits-sm' in this ledger\nhint: did you mean 'sDigits-ssm'? see `lrurun status`\n"
    )
    assert "did you mean 'seed'" in hour.refused("status", "--where", "sed=1", code=2)
    for options in (("--json", "--details"), ("--watch", "--details"), ("--watch", "--json")):
        assert "exclude each other" in hour.refused("status", *options, code=2)


def test_a_terminal_without_signs_or_with_colours(hour: Machine) -> None:
    plain = hour.run("status", apart=True, env=hour.env | {"PYTHONIOENCODING": "ascii"})
    assert (plain.stdout, plain.stdout.isascii()) == (hour.run("status").stdout, True)
    with mock.patch.multiple(console, is_screen=lambda: True, width=lambda: 80, has_color=lambda: True):
        text = hour.run("status").stdout
    assert "\x1b[1mladder ssm on sCIFAR\x1b[0m\n" in text
    assert "\x1b[1minstance\x1b[0m" in text
    assert "\x1b[36m" not in text, "nothing is running"


def test_an_instance_needs_a_ledger(machine: Machine) -> None:
    for words in (("status",), ("status", "--watch")):
        assert "there is no ledger" in machine.refused(*words, "--instance", "nope", code=4)
        assert machine.run(*words).stdout == ""

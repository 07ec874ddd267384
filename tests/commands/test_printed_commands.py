"""Every command that a report prints names its instance so that it works as it is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lrurun import paths
from tests.harness.imported import fill as fill_imported
from tests.harness.imported import write as write_imported
from tests.harness.machine import Machine
from tests.harness.plans import LADDER
from tests.harness.programs import write
from tests.harness.results import fill
from tests.harness.shared import once

WIDER = """\
name = "wider"
title = "Wider blocks"
source = "ours"

[[rung]]
name = "narrow"
title = "A narrow block"

[[rung]]
name = "wide"
title = "A wide block"
change = { "settings.block.wide" = true }
"""


def printed(text: str) -> list[str]:
    """The commands in parentheses and in the lines "More" and "Next" of a report."""
    found = re.findall(r"\((lrurun [^()]*)\)", text)
    for line in text.splitlines():
        if line.startswith("More: "):
            found += line.removeprefix("More: ").split(" · ")
        if step := re.match(r"Next: (lrurun .*?) (?:\(|makes|takes|asks|trains)", line):
            found.append(step[1])
    return found


@pytest.fixture(scope="module")
def everything() -> Machine:
    """A ledger with instances of many kinds, which tests only read."""

    def make(folder: Path) -> None:
        machine = Machine(folder)
        write(folder)
        (folder / "wider.toml").write_text(WIDER)
        machine.run("ladder", "toy.toml", "--sweep", "settings.lr=0.02,0.04", "--seeds", "2", "--jobs", "1")
        machine.run("ladder", "toy.toml", "--ladder", "wider.toml", "--tune", "--seeds", "2", "--jobs", "1")
        two = {"tanh-rnn": [0.3, 0.31], "linear-rnn": [0.4, 0.45]}
        for task in ("sDigits", "npDigits"):
            fill(folder / "ledger.db", task, two)
        fill(folder / "ledger.db", "sDigits", two, profile="smoke", sets={"optim.lr": 0.5, "model.width": 4})
        fill(folder / "ledger.db", "sDigits", {"relu-rnn": [0.4, 0.4]}, ladder="nonlinearity")
        fill_imported(folder / "ledger.db", write_imported(folder))
        machine.run("ledger", "rename", "npDigits", "kept")

    return Machine(once("names-of-everything", make))


def test_every_command_that_a_report_prints_works_and_is_about_its_instance(everything: Machine) -> None:
    tried = set()
    for ladder in everything.json("status")["ladders"]:
        name = ladder["name"]
        for words in (("report", "--instance", name), ("report", "--instance", name, "--details")):
            done = everything.run(*words)
            first = done.stdout.splitlines()[0]
            assert first.startswith(f"{name}: ") == (name != ladder["task"]), first
            for command in printed(done.stdout):
                if command == "lrurun ui":
                    continue
                kind, *rest = shlex.split(command)[1:]
                tried.add(kind)
                if kind == "ladder":  # which trains; the other ledger has nothing
                    shown = everything.run("plan", *rest).stdout
                    assert "--ledger" in rest or f"Instance {name}:" in shown, command
                    continue
                if kind == "plot":
                    everything.run("plot", *rest[: rest.index("--out")], "--out", "/dev/null", "--format", "svg")
                    continue
                everything.run(kind, *rest)
                if kind == "report":
                    plain = [word for word in rest if word != "--details"]
                    assert everything.json("report", *plain)["instance"] == ladder["instance"], command
    assert tried == {"report", "plot", "claims", "ladder"}


def test_every_instance_that_an_error_names_can_be_shown(everything: Machine) -> None:
    for words in (
        ("report", "sDigits", "--tune"),
        ("report", "toy.toml", "--set", "settings.lr=0.5"),
        ("plot", "npDigits", "--profile", "smoke", "--out", "/dev/null", "--format", "svg"),
    ):
        hint = everything.run(*words, code=4).stderr.splitlines()[-1]
        named = re.findall(r"\((--instance \S+)\)", hint)
        assert named, hint
        for option in named:
            everything.run("report", *option.split())


SHORT = {
    "sDigits": "lrurun report sDigits --details",
    "kept": "lrurun report npDigits --details",
    "sDigits-smoke-lr0.5-width4": "lrurun report --instance sDigits-smoke-lr0.5-width4 --details",
    "sDigits-nonlinearity": "lrurun report --instance sDigits-nonlinearity --details",
    "toy-lr0.02": "lrurun report --instance toy-lr0.02 --details",
    "toy-wider-tune": "lrurun report --instance toy-wider-tune --details",
    "runs": "lrurun report --instance runs --details",
}


def test_commands_name_the_task_where_that_is_enough_else_the_instance(everything: Machine) -> None:
    for name, command in SHORT.items():
        assert command in everything.run("report", "--instance", name).stdout, name
    options = ("sDigits", "--profile", "smoke", "--set", "optim.lr=0.5", "--set", "model.width=4")
    assert SHORT["sDigits-smoke-lr0.5-width4"] in everything.run("report", *options).stdout


def test_a_ladder_that_is_not_the_one_in_the_file_of_the_recipe_is_named(machine: Machine) -> None:
    rungs = "\n\n".join(LADDER.split("\n\n")[1:3])
    recipe = paths.find("recipes", "sDigits").read_text()
    (machine.folder / "own.toml").write_text(f"{recipe}\n{rungs}")
    hint = machine.refused("report", "own.toml", "--ladder", "lru", code=4)
    assert "run: lrurun ladder own.toml --ladder lru\n" in hint
    assert "run: lrurun ladder own.toml\n" in machine.refused("report", "own.toml", code=4)
    assert "run: lrurun ladder sDigits\n" in machine.refused("report", "sDigits", "--ladder", "lru", code=4)

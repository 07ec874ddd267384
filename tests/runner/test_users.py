"""Ladders of several users in one ledger."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path

import pytest

from tests.harness.machine import Machine
from tests.harness.plug_ins import AVERAGES

SMOKE = ("ladder", "sDigits", "--profile", "smoke", "--rung", "ring-init", "--seeds", "1")


class User:
    """Commands of a user of this name."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine, self.env = machine, {"LOGNAME": name}

    def run(self, *arguments: str, code: int = 0) -> str:
        done = self.machine.run(*arguments, code=code, apart=True, env=self.env)
        return done.stdout + done.stderr


@pytest.fixture
def users(machine: Machine) -> tuple[User, User]:
    machine.run("data", "prepare", "sDigits")  # so that a time limit is over in training
    return User(machine, "ann"), User(machine, "bob")


@pytest.mark.slow
def test_resume_takes_what_this_user_requested(machine: Machine, users: tuple[User, User]) -> None:
    ann, bob = users
    ann.run(*SMOKE, "--time-limit", "1", code=143)
    left = bob.run("resume")
    assert "left alone: 1 unfinished ladder of ann; --all-users takes these too" in left
    assert "nothing to do: your ladders are finished" in left
    assert machine.json("status")["ladders"][0]["user"] == "ann"
    assert "requested by ann" in bob.run("status")
    assert "requested by" not in ann.run("status")
    bob.run("resume", "--all-users")
    assert machine.states() == {"done": 1}
    [[attempt]] = machine.attempts().values()
    assert attempt.user == "bob"
    assert machine.json("runs", "--where", "user=bob")["runs"]
    assert not machine.json("runs", "--where", "user=ann")["runs"]
    assert "user" in ann.run("runs"), "one other user"
    assert "user" not in bob.run("runs")
    assert " user " in ann.run("show", attempt.run)
    assert "nothing to do: every ladder" in ann.run("resume")


PLUG_IN = """
from pathlib import Path
with Path(__file__).with_name("executed").open("a") as file:
    file.write("x")
"""


@pytest.mark.slow
def test_code_of_another_user_is_executed_only_if_it_is_named(machine: Machine, users: tuple[User, User]) -> None:
    here = machine.folder
    ann, bob = users
    packaged = (Path(__file__).parents[2] / "ablations" / "lru.toml").read_text()
    (here / "mine.toml").write_text(f'load = ["mine.py"]\n{packaged}')
    (here / "mine.py").write_text(AVERAGES + PLUG_IN)
    ann.run(*SMOKE, "--ladder", "mine.toml", "--time-limit", "1", code=143)
    executed = here / "executed"
    executed.unlink()
    for change in ("", "owner", "folder"):  # what the ledger says may be forged
        os.chown(here / "mine.py", pwd.getpwnam("nobody").pw_uid if change == "owner" else os.getuid(), -1)
        here.chmod(0o777 if change == "folder" else 0o755)
        said = (ann if change else bob).run("resume", "--all-users", code=2)
        assert re.search(rf"error: ladder [\w-]+, requested by ann: its file .*mine.toml loads {here}/mine.py", said)
        assert f"lrurun resume --load {here}/mine.py" in said
        assert not executed.exists()
    bob.run("resume", "--all-users", "--load", f"{here}/mine.py")
    assert executed.exists()
    assert set(machine.states()) == {"done"}

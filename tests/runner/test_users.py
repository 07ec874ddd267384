"""Ladders of several users in one ledger on a server."""

from __future__ import annotations

import os
import pwd
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.machine import LONG, Machine, stop, training, wait_for
from tests.harness.plug_ins import AVERAGES
from tests.harness.servers import PrivateServer

pytestmark = pytest.mark.slow

LADDER = ("ladder", "sDigits", *LONG, "--rung", "ring-init", "--seeds", "1")


class User:
    """Commands of a user of this name."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine, self.env = machine, {"LOGNAME": name}

    def run(self, *arguments: str, code: int = 0) -> str:
        done = self.machine.run(*arguments, code=code, apart=True, env=self.env)
        return done.stdout + done.stderr

    def begin(self, *arguments: str) -> None:
        """Stops a ladder in training."""
        process = self.machine.start(*arguments, env=self.env)
        wait_for(training(self.machine, step=20))
        stop(process, signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 143


@pytest.fixture
def shared(machine: Machine, postgres: PrivateServer) -> Iterator[Machine]:
    server = postgres.empty()
    yield machine.use(server)
    postgres.drop(server)


@pytest.fixture
def users(shared: Machine) -> tuple[User, User]:
    return User(shared, "ann"), User(shared, "bob")


def test_resume_takes_what_this_user_requested(shared: Machine, users: tuple[User, User]) -> None:
    ann, bob = users
    ann.begin(*LADDER)
    left = bob.run("resume")
    assert "left alone: 1 unfinished ladder of ann; --all-users takes these too" in left
    assert "nothing to do: your ladders are finished" in left
    assert shared.json("status")["ladders"][0]["user"] == "ann"
    assert "requested by ann" in bob.run("status")
    assert "requested by" not in ann.run("status")
    bob.run("resume", "--all-users")
    assert shared.states() == {"done": 1}
    [attempts] = shared.attempts().values()
    assert [attempt.user for attempt in attempts] == ["ann", "bob"]
    assert shared.json("runs", "--where", "user=ann")["runs"]
    assert not shared.json("runs", "--where", "user=bob")["runs"]
    assert "user" in bob.run("runs"), "one other user"
    assert "user" not in ann.run("runs")
    assert " user " in ann.run("show", attempts[0].run)
    assert "nothing to do: every ladder" in ann.run("resume")


PLUG_IN = """
from pathlib import Path
with Path(__file__).with_name("executed").open("a") as file:
    file.write("x")
"""


def test_code_of_another_user_is_executed_only_if_it_is_named(shared: Machine, users: tuple[User, User]) -> None:
    here = shared.folder
    ann, bob = users
    packaged = (Path(__file__).parents[2] / "ablations" / "lru.toml").read_text()
    (here / "mine.toml").write_text(f'load = ["mine.py"]\n{packaged}')
    (here / "mine.py").write_text(AVERAGES + PLUG_IN)
    ann.begin(*LADDER, "--ladder", "mine.toml")
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
    assert set(shared.states()) == {"done"}

"""Faults at every moment of a ladder, simulated: the same command finishes with what an undisturbed one records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lrurun.ledger.database.sqlite import SQLite
from tests.harness import simulation
from tests.harness.simulation import Command, Late, Process, Prompt, World, attempts, history, install


class Kind(NamedTuple):
    """A fault, and what the command must do then."""

    fault: Callable[[World, Process], None]
    at: Callable[[str], bool]
    """Whether it may come before a step."""
    codes: set[int]
    """Exit codes of the command."""
    reason: str = ""
    """Why an attempt ended that did not finish its run."""
    said: str = ""
    """A part of what the command says if the fault ended an attempt."""


GONE = "interrupted: owner gone"
FULL = "error: no space left for the ledger"
UNSAVED = "could not be saved: [Errno 28] No space left on device"
KINDS = {
    "worker killed": Kind(simulation.kill_worker, lambda step: "worker" in step, {0}, GONE, "ended with SIGKILL"),
    "command killed": Kind(simulation.kill_command, lambda step: True, {-9}, GONE),
    "SIGTERM": Kind(simulation.sigterm, lambda step: True, {0, 143}, "interrupted: SIGTERM", "stopping: runs are saved"),
    "worker hangs": Kind(
        # before its first run, a worker is not watched
        simulation.hang,
        lambda step: "worker" in step and "claim" not in step,
        {0},
        GONE,
        "wrote nothing for 30 s and was killed",
    ),
    "answer lost": Kind(simulation.lose_answer, lambda step: "write" in step, {0}),
    "ledger full": Kind(simulation.fill_disk_of_ledger, lambda step: "write" in step, {1}, GONE, FULL),
    "runs full": Kind(simulation.fill_disk_of_runs, lambda step: step.endswith(": checkpoint"), {1}, "saved: ", UNSAVED),
    "machine frozen": Kind(simulation.freeze, lambda step: True, {0}, GONE),
    "clock back": Kind(partial(simulation.set_clock, -7200.0), lambda step: "worker" in step, {0}, GONE),
    "clock ahead": Kind(partial(simulation.set_clock, 7200.0), lambda step: "worker" in step, {0}, GONE),
}


def check(name: str, folder: Path, patch: pytest.MonkeyPatch, thread: type[Late], chosen: slice) -> None:
    """Compares ladders with a fault of this kind with an undisturbed one, for some of the steps that it has."""
    kind = KINDS[name]
    patch.setattr(SQLite, "may_be_away", name == "answer lost")  # as a server is
    world = install(World(folder / "calm"), patch, thread)
    assert Command(world).finish() == 0
    wanted, steps = history(world), world.steps
    assert {one.reason for one in attempts(world)} == {"done"}
    numbers = [number for number, step in enumerate(steps) if kind.at(step)]
    assert len(numbers) >= 8
    for number in numbers[chosen]:
        world = install(World(folder / str(number), number, kind.fault), patch, thread)
        where = f"{name} at step {number}, before {steps[number]}"
        command = Command(world)
        code = command.finish()
        assert code in kind.codes | {0}, (where, code, command.said)
        assert code == 0 or Command(world).finish() == 0, where
        assert history(world) == wanted, where
        *broken, last = [one.reason or "" for one in attempts(world)]
        assert last == "done", where
        assert len(broken) <= 1, where
        for reason in broken:
            assert kind.reason in reason, where
            assert any(kind.said in text for text in [*command.said, kind.said[:0]]), (where, command.said)


@pytest.mark.parametrize("name", KINDS)
def test_the_same_command_records_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = list(KINDS).index(name)
    check(name, tmp_path, monkeypatch, Prompt, slice(first, None, 11))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "thread"), [*((name, Prompt) for name in KINDS), ("command killed", Late), ("SIGTERM", Late)]
)
def test_the_same_command_records_the_same_whenever_it_comes(
    name: str, thread: type[Late], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Late`: what a thread writes it writes as late as possible."""
    check(name, tmp_path, monkeypatch, thread, slice(None))

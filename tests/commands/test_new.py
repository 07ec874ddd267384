"""`lrurun new`: its files work as they are, and nothing is replaced."""

from __future__ import annotations

import shlex

import pytest

from lrurun.commands.new import FILES, NEXT
from tests.harness.machine import Machine
from tests.harness.plug_ins import forgotten

__all__ = ["forgotten"]  # a fixture


@pytest.mark.parametrize("what", ["task", "ladder", "recipe", "program"])
def test_what_is_written_passes_its_check(what: str, machine: Machine) -> None:
    done = machine.run("new", what, "my-own")
    assert done.stdout == "".join(f"wrote my-own{suffix}\n" for suffix in FILES[what])
    first, then = (command.format("my-own") for command in NEXT[what])
    assert done.stderr == f"it works as it is:\n  lrurun {first}\n  lrurun {then}\n"
    machine.run(*shlex.split(first))
    machine.run(*shlex.split(then.replace("ladder", "plan", 1)))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["recurrence", "program"])
def test_the_commands_that_it_names_work(what: str, machine: Machine) -> None:
    machine.run("new", what, "none")
    first, then = (shlex.split(command.format("none")) for command in NEXT[what])
    machine.run(*first)
    few = "--seeds 1 --set train.steps=9" if what == "recurrence" else "--rung linear --set settings.epochs=2"
    machine.run(*then, *few.split())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("recurrence 2fast", 2, "expected a name of letters, digits, '_' and '-' that begins with a letter, found '2"),
        (
            "recurrence dense",
            2,
            "new recurrence: lrurun has 'dense' already\nhint: choose another name, as in my-dense",
        ),
        ("recurrence lru", 2, "lrurun has 'lru' already"),
        ("task listops", 2, "new task: lrurun has 'listops' already"),
        ("ladder lru", 2, "new ladder: lrurun has 'lru' already"),
        ("recipe sDigits", 2, "new recipe: lrurun has 'sDigits' already"),
        ("program sDigits", 2, "new program: lrurun has 'sDigits' already"),
        ("program json", 2, "json.py would be imported where a program means the module 'json'"),
        ("task old", 1, "new task: old.toml: exists already"),
        ("recipes x", 2, "found 'recipes'\nhint: did you mean 'recipe'?"),
    ],
)
def test_names_and_files_that_are_taken_are_refused(words: str, code: int, said: str, machine: Machine) -> None:
    (machine.folder / "old.toml").write_text("mine")
    assert said in machine.refused("new", *words.split(), code=code)
    assert (machine.folder / "old.toml").read_text() == "mine"

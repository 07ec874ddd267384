"""`lrurun new`: its files work as they are, and nothing is replaced."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from lrurun.commands.new import FILES, NEXT
from tests.harness.commands import folder, said, tree
from tests.harness.machine import Machine
from tests.harness.plug_ins import forgotten

__all__ = ["folder", "forgotten"]  # fixtures


@pytest.mark.parametrize("what", ["task", "ladder", "recipe", "program"])
def test_what_is_written_passes_its_check(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "new", what, "my-own")
    assert (code, out) == (0, "".join(f"wrote my-own{suffix}\n" for suffix in FILES[what]))
    first, then = (command.format("my-own") for command in NEXT[what])
    assert err == f"it works as it is:\n  lrurun {first}\n  lrurun {then}\n"
    assert said(capsys, *shlex.split(first))[0] == 0
    assert said(capsys, *shlex.split(then.replace("ladder", "plan", 1)))[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("what", FILES)
def test_the_commands_that_it_names_work(what: str, machine: Machine) -> None:
    machine.run("new", what, "none")
    for command in NEXT[what]:
        machine.run(*shlex.split(command.format("none")), apart=True)


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (
            ("recurrence", "2fast"),
            2,
            "new recurrence: expected a name of letters, digits, '_' and '-' that begins with a letter, found '2fast'",
            "as in lrurun new recurrence mine",
        ),
        (
            ("recurrence", "dense"),
            2,
            "new recurrence: lrurun has 'dense' already",
            "choose another name, as in my-dense",
        ),
        (("recurrence", "lru"), 2, "new recurrence: lrurun has 'lru' already", "choose another name, as in my-lru"),
        (("task", "listops"), 2, "new task: lrurun has 'listops' already", "choose another name, as in my-listops"),
        (("ladder", "lru"), 2, "new ladder: lrurun has 'lru' already", "choose another name, as in my-lru"),
        (
            ("program", "sDigits"),
            2,
            "new program: lrurun has 'sDigits' already",
            "choose another name, as in my-sDigits",
        ),
        (
            ("program", "json"),
            2,
            "new program: json.py would be imported where a program means the module 'json'",
            "choose another name, as in my-json",
        ),
        (("recipe", "sDigits"), 2, "new recipe: lrurun has 'sDigits' already", "choose another name, as in my-sDigits"),
        (("task", "old"), 1, "new task: old.toml: exists already", "choose another name, or remove the file"),
        (
            ("recipes", "x"),
            2,
            "new: expected one of recurrence, task, ladder, recipe, program, found 'recipes'",
            "did you mean 'recipe'?",
        ),
    ],
)
def test_names_and_files_that_are_taken_are_refused(
    words: tuple[str, str], code: int, message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("old.toml").write_text("mine")
    found, out, err = said(capsys, "new", *words)
    assert (found, out, err.splitlines()[0]) == (code, "", f"error: {message}")
    assert err.splitlines()[1].startswith(f"hint: {hint}")
    assert tree() == ["old.toml"]
    assert Path("old.toml").read_text() == "mine"

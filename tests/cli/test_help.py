"""Help: every command is in the file named after it, and its help fits 80 columns."""

from __future__ import annotations

import importlib
import pkgutil
import re
import shlex

import pytest
import typer

from lrurun import commands
from lrurun.__main__ import run
from lrurun.cli import GROUPS, make_app
from lrurun.cli.arguments import split_global

GROUP = typer.main.get_command(make_app())
NAMES = list(GROUP.commands)
SUPPORT = {"_shared"}
"""Modules of the package that are not named after a command."""


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_in_the_file_named_after_it(name):
    module = importlib.import_module("lrurun.studies.command" if name == "study" else f"lrurun.commands.{name}")
    command = GROUP.commands[name]
    for inner, one in getattr(command, "commands", {"": command}).items():
        assert one.callback.__module__ in (module.__name__, f"{module.__name__}_{inner}")


def test_every_file_of_the_package_is_a_command_or_support():
    modules = {module.name for module in pkgutil.iter_modules(commands.__path__)}
    inner = {f"{name}_{one}" for name in NAMES for one in getattr(GROUP.commands[name], "commands", {})}
    assert modules - inner == set(NAMES) - {"study"} | SUPPORT


def listed(capsys, *arguments: str) -> str:
    assert run([*arguments, "--help"]) == 0
    return capsys.readouterr().out


def test_the_overview_names_every_command_on_one_screen(capsys, monkeypatch):
    for columns, most in ((100, 29), (80, 40)):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = listed(capsys).splitlines()
        assert max(map(len, lines)) <= columns
        assert len(lines) <= most
        assert [found[1] for line in lines if (found := re.match(r"(?:[A-Z][a-z]+| {4}) +([a-z]+) +[A-Z]", line))] == [
            name for group in GROUPS.values() for name in group
        ]
    overview = listed(capsys)
    assert run([]) == 0
    assert capsys.readouterr().out == overview
    explained = listed(capsys, "-v")
    assert "130  stopped by ^C" in explained
    assert "--data-dir DIR" in explained


@pytest.mark.parametrize("group", ["data", "ledger"])
def test_the_list_of_commands_is_of_whole_sentences_at_80_columns(group, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = listed(capsys, group)
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text.replace("[ARGS]...", "")
    lines = re.findall(r"^  [a-z]+ +([A-Z].*)$", text.partition("Commands:")[2], re.MULTILINE)
    assert len(lines) == len(GROUP.commands[group].commands)
    assert all(line.endswith(".") for line in lines), lines


@pytest.mark.parametrize("name", NAMES)
def test_help_ends_with_two_examples_that_the_command_takes(name, capsys):
    command = GROUP.commands[name]
    for words in [[name, inner] for inner in getattr(command, "commands", ())] or [[name]]:
        examples = re.findall(r"^    (lrurun .*)$", listed(capsys, *words).partition("Examples:\n")[2], re.MULTILINE)
        assert len(examples) == 2, words
        for example in examples:
            _, rest = split_global(shlex.split(example)[1:])
            assert rest[: len(words)] == words
            inner = command.commands[words[1]] if len(words) > 1 else command
            inner.make_context(name, rest[len(words) :])


@pytest.mark.parametrize("name", NAMES)
def test_every_option_and_argument_has_help(name):
    command = GROUP.commands[name]
    for one in getattr(command, "commands", {name: command}).values():
        assert one.help
        assert [parameter.name for parameter in one.params if not parameter.help] == []

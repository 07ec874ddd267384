"""Help: what `--help` prints, and that its examples are taken by the commands."""

from __future__ import annotations

import re
import shlex

from typer.core import TyperCommand

from lrurun.cli import make_command
from lrurun.cli.arguments import split_global
from tests.harness.machine import Machine


def commands() -> dict[tuple[str, ...], TyperCommand]:
    """Every command by its words, those of groups too."""
    group = make_command()
    return {
        (name, inner) if inner else (name,): command
        for name, outer in group.commands.items()
        for inner, command in getattr(outer, "commands", {"": outer}).items()
    }


def test_help_of_every_command(machine: Machine, golden) -> None:
    machine.env["COLUMNS"] = "80"
    pages = [machine.run("--help").stdout, machine.run("--help", "-v").stdout]
    assert machine.run().stdout == pages[0]
    groups = dict.fromkeys(words[:1] for words in commands() if len(words) > 1)
    pages += [machine.run(*words, "--help").stdout for words in (*groups, *commands())]
    golden("help.txt", f"{'=' * 80}\n".join(pages))


def test_examples_are_taken_and_options_have_help() -> None:
    for words, command in commands().items():
        assert command.help, words
        assert all(parameter.help for parameter in command.params), words
        examples = re.findall(r"^  (lrurun .*)$", str(command.epilog), re.MULTILINE)
        assert len(examples) == 2, words
        for example in examples:
            _, rest = split_global(shlex.split(example)[1:])
            assert tuple(rest[: len(words)]) == words
            command.make_context(words[-1], rest[len(words) :])


def test_every_command_takes_format_json_for_json() -> None:
    options = {
        words: [name for parameter in command.params for name in parameter.opts]
        for words, command in commands().items()
    }
    with_json = [words for words, names in options.items() if "--json" in names]
    assert len(with_json) > 15
    assert {words for words, names in options.items() if "--format" in names} - {*with_json} == {
        ("plot",),
        ("ledger", "export"),
    }
    for words in with_json:
        for spelled in (["--json"], ["--format", "json"], ["--format=json"], ["--format", "json", "--json"]):
            context = commands()[words].make_context(words[-1], spelled, resilient_parsing=True)
            assert context.params["json"] is True, words
            assert context.get_parameter_source("json").name == "COMMANDLINE"

"""The values of options and arguments: those that Typer would make, without what it needs for it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lrurun import cli

LINES = (
    "runs",
    "runs --limit 20 --where seed<3 --by rung,seed --by task",
    "status",
    "report npDigits --set optim.lr=0.1 --rung tanh --rung gamma-norm --detect 0.5 --out a.md",
    "report --tables claims --format csv",
    "ladder npDigits --seeds 3 --jobs 2 --time-limit 1h --sweep optim.lr=0.1,0.2 --detach",
    "show abc --log -f",
    "show",
    "mark abc def --tag one --tag two --note text",
    "verify abc def",
    "data import mine --inputs x.npy --labels y.npy --tokens --test 0.2 --seed 3",
    "plot npDigits --width page --no-differences --out a.png",
    "ledger rename old new",
    "ledger rename old a/b",
    "runs --limit many",
    "runs --limit",
    "data import mine --test x",
    "plot npDigits",
    "show abc --log=3",
)


@pytest.mark.parametrize("line", LINES)
def test_values_and_errors_are_those_of_typer(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed() -> list[dict[str, Any]]:
        cli.make_command.cache_clear()
        words = ["--ledger", "a.db", "--load", "a.py", "-q", "-q", *shlex.split(line)]
        command = cli.make_command()
        context = command.make_context("lrurun", words, obj=[])
        found = [context.params]
        while hasattr(command, "commands"):
            name, *rest = [*context._protected_args, *context.args]
            command = command.commands[name]
            context = command.make_context(name, rest, parent=context)
            found.append(context.params)
        # Typer gives lists or tuples, and a list to the command.
        return [{n: list(v) if isinstance(v, tuple) else v for n, v in params.items()} for params in found]

    def values_or_error() -> Any:
        try:
            return parsed()
        except Exception as error:
            parameter = getattr(error, "param", None)
            text = error.format_message() if hasattr(error, "format_message") else str(error)
            return type(error), text, parameter and parameter.name

    ours = values_or_error()
    monkeypatch.setattr(cli, "convert_without_typer", lambda command, context: None)
    assert ours == values_or_error()
    cli.make_command.cache_clear()


def test_a_process_may_read_many_lines() -> None:
    """A command is prepared once: each line is read by what read the first one."""
    command = cli.make_command("runs")
    runs = command.commands["runs"]
    readers = []
    for limit in ("1", "2", "3"):
        context = command.make_context("lrurun", ["-q", "runs"], obj=[])
        assert runs.make_context("runs", ["--limit", limit], parent=context).params["limit"] == int(limit)
        readers.append([each.process_value for one in (command, runs) for each in one.get_params(context)])
    assert readers[0] == readers[1] == readers[2]


@pytest.mark.parametrize("line", ["runs --limit 3", "status", "report npDigits", "--version"])
def test_commands_that_read_need_no_pydantic(line: str, tmp_path: Path) -> None:
    script = "import sys; from lrurun.__main__ import run; run(sys.argv[1:]); print('pydantic' in sys.modules)"
    words = [sys.executable, "-c", script, "--ledger", str(tmp_path / "a.db"), *shlex.split(line)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"

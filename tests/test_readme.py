"""The README is checked against the program: commands, tree, links, examples."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from lrurun import paths
from lrurun.cli import app
from tests.machine import Machine

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def files() -> dict[str, str]:
    """The files that the examples are about, by name."""
    radius, averages = blocks("toml")
    [plugin] = [block for block in blocks("python") if "@lrurun.recurrence" in block]
    return {"radius.toml": radius, "averages.toml": averages, "averages.py": plugin}


def commands(block: str) -> list[str]:
    return [line for line in block.splitlines() if line.startswith("lrurun ")]


def test_command_table_is_the_programs() -> None:
    group = typer.main.get_command(app)
    ours = {f"lrurun {name}": command.get_short_help_str(200) for name, command in group.commands.items()}  # type: ignore[attr-defined]
    table = dict(re.findall(r"^\| `(lrurun \w+)` \| (.+?) \|$", TEXT, re.MULTILINE))
    assert table == ours
    assert list(table) == list(ours), "in the order of --help"


def test_every_command_and_option_has_help() -> None:
    def walk(command, path):
        assert command.help, path
        for parameter in command.params:
            assert getattr(parameter, "help", None), (path, parameter.name)
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, [*path, name])

    walk(typer.main.get_command(app), ["lrurun"])


def test_tree_is_the_checkouts() -> None:
    [tree] = [block for block in blocks("text") if "__main__.py" in block]
    entries = re.findall(r"^( *)(\S+)", tree, re.MULTILINE)
    top = {name for indent, name in entries if not indent}
    package = {name for indent, name in entries if indent}
    hidden = {"__pycache__", "_data"}
    assert package == {p.name + "/" * p.is_dir() for p in (ROOT / "lrurun").iterdir() if p.name not in hidden}
    assert top == {"ablations/", "benchmarks/", "recipes/", "tests/", "lrurun/"}
    assert all((ROOT / name).is_dir() for name in top)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert target.startswith("http") or (ROOT / target.split("#")[0]).exists(), target


def test_printed_table_is_the_ladders() -> None:
    """The table in the README has the rungs, in order, with n = 3, as the first command prints them."""
    [table] = [block for block in blocks("text") if "tanh-rnn" in block and "small-phase" in block]
    rungs = re.findall(r"^([a-z]+(?:-[a-z]+)*) .*?(\d+\.\d+ ± \d+\.\d+) \(n=(\d+)\)", table, re.MULTILINE)
    from lrurun.catalog import load_ladder

    assert [rung for rung, _, _ in rungs] == [rung.name for rung in load_ladder("lru").rungs]
    assert {n for _, _, n in rungs} == {"3"}
    means = {rung: float(score.split()[0]) for rung, score, _ in rungs}
    assert means["gamma-norm"] >= 97
    assert means["gamma-norm"] > means["tanh-rnn"]


def test_table_of_ladders_is_what_ships() -> None:
    from lrurun.catalog import load_ladder

    table = TEXT.partition("## The ladders")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.+?) \|$", table, re.MULTILINE))
    assert rows == {path.stem: load_ladder(path.stem).title for path in (ROOT / "ablations").glob("*.toml")}


def test_two_commands_come_first() -> None:
    assert [block.strip() for block in blocks("sh")[:2]] == [
        "pip install -e . && lrurun ladder sDigits",
        "pip install -e '.[dev]' && pytest",
    ]


def test_named_files_exist() -> None:
    for name in re.findall(r"`((?:recipes|ablations|tests|benchmarks)/[\w./-]+)`", TEXT):
        assert (ROOT / name).exists(), name
    for kind in ("ablations", "recipes"):
        assert paths.packaged(kind) == ROOT / kind


@pytest.mark.slow
def test_examples_run(machine: Machine) -> None:
    """Every `lrurun` line of the README, one after the other, in one folder; the files of its examples beside them."""
    for name, text in files().items():
        (machine.folder / name).write_text(text)
    lines = [line for block in blocks("sh")[2:] for line in commands(block)]
    assert len(lines) >= 10
    for line in lines:
        done = machine.run(*shlex.split(line)[1:])
        assert done.stdout or "--out" in line, line


def test_example_ladder_is_sound(tmp_path, monkeypatch, capsys) -> None:
    from lrurun.__main__ import run

    for name, text in files().items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert run(["check", "ladder", "radius.toml"]) == 0
    assert run(["plan", "sDigits", "--profile", "smoke", "--ladder", "radius.toml"]) == 0
    assert "r_min = 0.9; r_max = 0.99" in capsys.readouterr().out

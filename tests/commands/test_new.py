"""`lrurun new`: its files work as they are, and nothing is replaced."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from lrurun.commands.new import FILES, NEXT
from lrurun.config import planning
from lrurun.trackers import Source, example_runs, opened
from tests.harness.machine import Machine
from tests.harness.plug_ins import forgotten

__all__ = ["forgotten"]  # a fixture


@pytest.mark.parametrize("what", ["optimizer", "task", "ladder", "recipe", "program"])
def test_what_is_written_passes_its_check(what: str, machine: Machine) -> None:
    done = machine.run("new", what, "my-own")
    assert done.stdout == "".join(f"wrote my-own{suffix}\n" for suffix in FILES[what])
    first, then = (command.format("my-own") for command in NEXT[what])
    assert done.stderr == f"it works as it is:\n  lrurun {first}\n  lrurun {then}\n"
    machine.run(*shlex.split(first))
    machine.run(*shlex.split(then.replace("ladder", "plan", 1)))


def test_the_rung_of_an_optimizer_has_a_rate_and_a_grid_of_its_own(machine: Machine) -> None:
    machine.run("new", "optimizer", "signs")
    for profile, tried in ((None, [0.0003, 0.001, 0.003, 0.01]), ("smoke", [0.001, 0.003])):
        ladder = str(machine.folder / "signs.toml")
        adamw, signs = planning.make("npDigits", ladder=ladder, profile=profile, tune=True).rungs
        assert (signs.rate, signs.grid["optim.lr"]) == (0.001, tried)
        assert adamw.grid["optim.lr"] != tried


@pytest.mark.slow
@pytest.mark.parametrize("what", ["recurrence", "optimizer", "program"])
def test_the_commands_that_it_names_work(what: str, machine: Machine) -> None:
    machine.run("new", what, "none")
    first, then = (shlex.split(command.format("none")) for command in NEXT[what])
    machine.run(*first)
    few = "--seeds 1 --set train.steps=9" if what != "program" else "--rung linear --set settings.epochs=2"
    machine.run(*then, *few.split())


def test_runs_to_import_are_written_as_each_tool_stores_them(machine: Machine) -> None:
    done = machine.run("new", "import", "norms")
    kinds = list(example_runs.SOURCES)
    assert done.stdout == "".join(f"wrote norms/{name}\n" for name in ["README.txt", *kinds])
    command = "lrurun import norms/table/runs.csv --metric test_acc --by norm --seed-column seed --base norm=none"
    assert done.stderr == f"it works as it is, as do the commands in its README.txt:\n  {command}\n  lrurun report\n"
    assert sorted(path.name for path in (machine.folder / "norms").iterdir()) == sorted(["README.txt", *kinds])
    commands = (machine.folder / "norms" / "README.txt").read_text().splitlines()[2:]
    assert commands[0] == command
    assert [text.split()[2].split("/")[1] for text in commands] == kinds
    first, last = (machine.folder / "norms" / "table" / "runs.csv").read_text().splitlines()[1::17]
    assert first == "none-0,finished,none,0.001,0,0.2397,0.908,0.904"
    assert last == "layer-5,finished,layer,0.001,5,0.1891,0.9282,0.9242"


def test_without_its_package_a_source_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    written = example_runs.write(tmp_path / "norms", str)
    assert written == ["README.txt", *(kind for kind in example_runs.SOURCES if kind != "tensorboard")]
    assert "tensorboard" not in (tmp_path / "norms" / "README.txt").read_text()


@pytest.mark.parametrize("kind", example_runs.SOURCES)
def test_a_reader_gives_the_runs_that_were_written(kind: str, tmp_path: Path) -> None:
    example_runs.write(tmp_path / "norms", str)
    path, *options = example_runs.SOURCES[kind].words.split()
    source = Source(name=str(tmp_path / "norms" / path), metrics_file=options[1] if options else "")
    expected = sorted(example_runs.runs(), key=lambda run: run.number)
    runs = sorted(opened(source).runs(None), key=lambda run: (*_place(run.settings), run.id))
    assert [_place(run.settings) for run in runs] == [_place(run.settings) for run in expected]
    for run, known in zip(runs, expected, strict=True):
        values = {**run.settings, **run.last}  # a column of a table may be either
        assert {metric: values[metric] for metric in known.curves} == pytest.approx(known.last, rel=1e-6)
        assert run.state == "finished"
        for metric, curve in run.curves.items():
            if metric in known.curves:
                assert list(curve.values) == pytest.approx(known.curves[metric], rel=1e-6)


def _place(settings: Mapping[str, object]) -> tuple[int, int]:
    """Where the run with these settings is among the made-up ones."""
    return list(example_runs.ACCURACIES).index(str(settings["norm"])), int(str(settings["seed"]))


@pytest.mark.parametrize("kind", example_runs.SOURCES)
def test_the_commands_of_its_readme_import_the_runs(kind: str, machine: Machine) -> None:
    machine.run("new", "import", "norms")
    commands = (machine.folder / "norms" / "README.txt").read_text().splitlines()
    (command,) = (text for text in commands if text.startswith(f"lrurun import norms/{kind}"))
    shown = machine.run(*shlex.split(command)[1:]).stdout
    (change,) = re.findall(r"layer +none .* helps +(\S+)", shown)
    assert change == "+1.8"
    assert "undecided    +0.3" in shown
    assert machine.run("report").stdout == shown


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
        ("optimizer adamw", 2, "new optimizer: lrurun has 'adamw' already"),
        ("optimizer lru", 2, "lrurun has 'lru' already"),
        ("task listops", 2, "new task: lrurun has 'listops' already"),
        ("ladder lru", 2, "new ladder: lrurun has 'lru' already"),
        ("recipe sDigits", 2, "new recipe: lrurun has 'sDigits' already"),
        ("program sDigits", 2, "new program: lrurun has 'sDigits' already"),
        ("program json", 2, "json.py would be imported where a program means the module 'json'"),
        ("task old", 1, "new task: old.toml: exists already"),
        ("import 2fast", 2, "as in lrurun new import mine"),
        ("import folder", 1, "new import: folder: exists already\nhint: choose another name, or remove the folder"),
        ("recipes x", 2, "found 'recipes'\nhint: did you mean 'recipe'?"),
    ],
)
def test_names_and_files_that_are_taken_are_refused(words: str, code: int, said: str, machine: Machine) -> None:
    (machine.folder / "old.toml").write_text("mine")
    (machine.folder / "folder").mkdir()
    assert said in machine.refused("new", *words.split(), code=code)
    assert (machine.folder / "old.toml").read_text() == "mine"

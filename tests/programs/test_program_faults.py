"""Faults of a program that all its runs would have: how they are found, and that one stops a ladder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lrurun.config.schema import Program
from lrurun.programs import faults
from tests.harness.machine import Machine
from tests.harness.programs import PYTHON, error_of, runs_of, write, write_scripts

PROGRAM = Program(command=("python", "train.py"), metric="val/acc")
LOGS = "import lrurun\nlrurun.this_run().log(1, **{'val/accuracy': 0.5, 'test/accuracy': 0.4})\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["PYTHON", "-c", ""], "the program ended with exit code 0 and logged nothing"),
        (["PYTHON", "-c", "import no_such"], "the program ended with ModuleNotFoundError: No module named 'no_such'"),
        (
            ["PYTHON", "-c", "from os import no_such"],
            "the program ended with ImportError: cannot import name 'no_such'",
        ),
        (["PYTHON", "bad.py"], "the program ended with SyntaxError: invalid syntax (bad.py, line 2)"),
        (["PYTHON", "-c", "import bad"], "the program ended with SyntaxError: invalid syntax (bad.py, line 2)"),
        (["PYTHON", "tab.py"], "the program ended with IndentationError: unexpected indent (tab.py, line 2)"),
        (["PYTHON", "trian.py"], "the program ended with: "),
        (["sh", "trian.sh"], "the program ended with"),
        (
            ["sh", "-c", "no-such-command"],
            "the program ended with exit code 127, a command that it starts is not found: sh",
        ),
        (
            ["sh", "-c", "./bad.py"],
            "the program ended with exit code 126, a command that it starts cannot be executed: sh",
        ),
        (["sh", "-c", "if"], "the program ended with: sh"),
        (["bash", "-c", "if"], "the program ended with: bash"),
        # of which the next run may be free
        (["PYTHON", "-c", "1 / 0"], None),
        (["PYTHON", "-c", "raise SystemExit(5)"], None),
        (["PYTHON", "-c", "import os; os.kill(os.getpid(), 9)"], None),
        (["PYTHON", "-c", "import argparse; argparse.ArgumentParser().parse_args(['-x'])"], None),
        (["PYTHON", "-c", "try:\n  import no_such\nexcept ImportError as error:\n  raise ValueError from error"], None),
        (["PYTHON", "-c", "print('ImportError: caught'); raise SystemExit(5)"], None),
    ],
)
def test_faults_of_real_interpreters(tmp_path: Path, command: list[str], message: str | None) -> None:
    if shutil.which(command[0]) is None and command[0] != "PYTHON":
        pytest.skip(f"there is no {command[0]}")
    (tmp_path / "bad.py").write_text("x = 1\nx = = 1\n")
    (tmp_path / "tab.py").write_text("x = 1\n  x = 2\n")
    command = [sys.executable if word == "PYTHON" else word for word in command]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    fault = faults.of_exit(done.returncode, done.stdout.splitlines(), PROGRAM)
    if message is None:
        assert fault is None
    else:
        assert fault is not None, done
        assert fault.message.startswith(message)
        assert "lrurun check program" in fault.hint or "run.log(step" in fault.hint


def test_the_lines_to_add_are_those_of_the_recipe() -> None:
    fault = faults.of_exit(0, [], PROGRAM)
    assert fault is not None
    assert 'run.log(step, {"val/acc": ..., "test/acc": ...})' in fault.hint
    assert """read = { "val/acc" = 'acc=([0-9.]+)' }""" in fault.hint
    fault = faults.of_exit(0, [], Program(command=("sh",), metric="val/acc", read={"val/acc": "a(b)"}))
    assert fault is not None
    assert fault.message == "the program ended with exit code 0, and nothing that it printed matches a pattern of read"


@pytest.mark.slow
@pytest.mark.parametrize("script", ["", "import no_such", "x = = 1"])
def test_a_fault_of_every_run_stops_the_ladder(machine: Machine, script: str) -> None:
    """At the first run; those of the other workers are queued again. When it is corrected, the same command goes on."""
    waits = "import lrurun, time\nrun = lrurun.this_run()\nif run.seed or run.settings.block.wide: time.sleep(100)\n"
    write(machine.folder)
    (machine.folder / "toy.py").write_text(waits + script)
    done = machine.run("ladder", "toy.toml", "--seeds", "2", "--jobs", "2", code=1)
    first = done.stderr.partition("error: run ")[2]
    ended = ": the program ended with "
    # where no run waits, any may be the first
    assert (ended if script == "x = = 1" else f"(narrow, seed 0){ended}") in first
    assert "; no run of this ladder has logged anything" in first
    runs = machine.json("runs")["runs"]
    expected = {("narrow", 0): "failed"} | dict.fromkeys([("narrow", 1), ("wide", 0), ("wide", 1)], "queued")
    if script != "x = = 1":  # else no run waits
        assert {(run["rung"], run["seed"]): run["state"] for run in runs} == expected
    assert "failed" in [run["state"] for run in runs]
    assert "queued" in [run["state"] for run in runs]


@pytest.mark.slow
def test_a_fault_of_one_rung_does_not_stop_those_that_log(machine: Machine) -> None:
    """It is not tried again."""
    scripts = {"logs": LOGS, "silent": "", "needs": "import no_such", "last": LOGS}
    write_scripts(machine.folder, scripts, programs={"text": "./text"})
    (machine.folder / "text").write_text("no program")
    (machine.folder / "text").chmod(0o755)
    machine.run("ladder", "scripts.toml", "--seeds", "1", "--jobs", "1", code=3)
    ended = runs_of(machine)
    assert {rung: run.state for rung, (run, _) in ended.items()} == {
        **{"logs": "done", "silent": "failed", "needs": "failed", "last": "done", "text": "failed"}
    }
    for rung, reason in (
        ("silent", "the program ended with exit code 0 and logged nothing; add to the program: run.log(step, "),
        ("needs", "the program ended with ModuleNotFoundError: No module named 'no_such'; install it for "),
        ("text", "'./text' cannot be started: Exec format error; correct the command in the recipe's [program]"),
    ):
        run, [attempt] = ended[rung]
        assert attempt.outcome == "rejected"
        assert error_of(run).startswith(reason)


@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        ("pyhton3", "'pyhton3' is not found on PATH", "did you mean 'python3'?"),
        ("toy.py", "'toy.py' is not found on PATH", "for the file beside the recipe, write ./toy.py"),
        ("./toy.py", "'./toy.py' may not be executed", "chmod +x"),
        ("bin/none", "'bin/none' is not found: there is no file ", "activate the environment that has it"),
        ("./", "'./' is a folder", "activate the environment that has it"),
        ("{settings.name}", "'plain text' is not found on PATH", ""),
    ],
)
def test_commands_are_looked_up_before_runs_are_queued(machine: Machine, command: str, message: str, hint: str) -> None:
    write(machine.folder, (PYTHON, f'"{command}"'))
    done = machine.run("ladder", "toy.toml", code=2)
    assert done.stderr.startswith(f"error: toy.toml [program], command, rung narrow: {message}")
    assert f"hint: {hint}" in done.stderr
    assert not machine.ledger.exists()


def test_path_begins_where_the_program_is_started(machine: Machine) -> None:
    folder = machine.folder / "mine"
    write(folder, (PYTHON, '"tool"'))
    (folder / "bin").mkdir()
    (folder / "bin" / "tool").symlink_to(sys.executable)
    arguments = ("ladder", "mine/toy.toml", "--rung", "narrow", "--seeds", "1")
    machine.run(*arguments, env={"PATH": f"bin:{machine.env['PATH']}"})
    assert runs_of(machine)["narrow"][0].state == "done"


@pytest.mark.slow
def test_resume_goes_on_with_other_ladders(machine: Machine) -> None:
    for name in ("first", "second"):
        write(machine.folder / name)
        (machine.folder / name / "toy.py").write_text("")
        arguments = ("ladder", f"{name}/toy.toml", "--rung", "narrow", "--seeds", "1", "--name", name)
        machine.run(*arguments, "--set", f"settings.lr=0.{len(name)}", code=1)
    done = machine.run("resume", code=1)
    assert done.stderr.count("the program ended with exit code 0 and logged nothing; no run") == 2


def test_a_finished_ladder_needs_no_command(machine: Machine) -> None:
    write(machine.folder, (PYTHON, '"{settings.name}"'), ("plain text", sys.executable))
    arguments = ("ladder", "toy.toml", "--rung", "narrow", "--seeds", "1")
    machine.run(*arguments)
    write(machine.folder, (PYTHON, '"{settings.name}"'), ("plain text", sys.executable))
    moved = {"PATH": "/nowhere"}
    assert "nothing to do" in machine.run(*arguments, env=moved).stderr

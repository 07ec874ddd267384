"""Misused commands, closed terminals, faulty machines."""

from __future__ import annotations

import json
import os
import pty
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from lrurun.report.formats import ENDINGS
from tests.harness.machine import LONG, Machine, stop, training, wait_for
from tests.harness.results import fill

AT_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
os.dup2(1, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes its standard output the terminal of its session, and becomes the command."""

SMOKE = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn")


def error_and_hint(machine: Machine, *arguments: str, code: int) -> tuple[str, str]:
    """The two lines of an error. The command may print and write nothing else."""
    before = {path: path.read_bytes() for path in machine.folder.rglob("*") if path.is_file()}
    done = machine.run(*arguments, code=code)
    lines = done.stderr.splitlines()
    assert done.stdout == ""
    assert [line.split(" ")[0] for line in lines] == ["error:", "hint:"], done.stderr
    assert {path: path.read_bytes() for path in machine.folder.rglob("*") if path.is_file()} == before
    return lines[0].removeprefix("error: "), lines[1].removeprefix("hint: ")


def test_a_file_that_is_not_a_ledger(machine: Machine) -> None:
    (machine.folder / "notes.txt").write_text("buy milk\n")
    connection = sqlite3.connect(machine.folder / "other.db")
    connection.execute("create table milk (litres)")
    connection.commit()
    connection.close()
    for name in ("notes.txt", "other.db"):
        for arguments in (
            SMOKE,
            ("runs",),
            ("status",),
            ("report", "sDigits"),
            ("ledger", "check"),
            ("ledger", "migrate"),
        ):
            error, hint = error_and_hint(machine, *arguments, "--ledger", name, code=5)
            assert error == f"{machine.folder / name} is not a ledger of lrurun"
            assert hint.startswith("name another file; this one was not changed")
            assert ("if it was one, it is damaged" in hint) == (name == "notes.txt")


def test_ledger_of_a_newer_version(machine: Machine) -> None:
    machine.run("ledger", "migrate")
    connection = sqlite3.connect(machine.ledger)
    connection.execute("update lrurun_version set version_num = '9999'")
    connection.commit()
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    for arguments in (SMOKE, ("runs",), ("status",), ("ledger", "migrate")):
        error, hint = error_and_hint(machine, *arguments, code=5)
        assert "newer" in error
        assert "pip install" in hint


def test_ledger_in_a_missing_folder(machine: Machine) -> None:
    error, hint = error_and_hint(machine, *SMOKE, "--ledger", "nowhere/ledger.db", code=1)
    assert error == f"the folder {machine.folder / 'nowhere'} of the ledger does not exist"
    assert hint == f"create it: mkdir -p {machine.folder / 'nowhere'}"
    assert machine.json("runs", "--ledger", "nowhere/ledger.db")["runs"] == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="Linux")
def test_a_folder_in_which_nothing_can_be_created(machine: Machine) -> None:
    error, hint = error_and_hint(machine, *SMOKE, "--ledger", "/proc/x.db", code=1)
    assert error == "/proc/x-runs: the runs folder cannot be written: nothing can be created in /proc"
    assert hint.startswith("choose another folder with --runs-dir")


def test_empty_file_is_not_made_a_ledger_by_readers(machine: Machine) -> None:
    machine.ledger.touch()
    for arguments in (("runs",), ("status",)):
        machine.run(*arguments)
    machine.run("report", "sDigits", code=4)
    assert machine.ledger.read_bytes() == b""


def test_runs_folder_that_cannot_be(machine: Machine) -> None:
    (machine.folder / "file").write_text("in the way")
    error, _ = error_and_hint(machine, *SMOKE, "--runs-dir", "file", code=1)
    assert error.startswith("file: the runs folder cannot be written: ")
    error, hint = error_and_hint(machine, *SMOKE, "--runs-dir", "no/where", code=1)
    assert error == "no/where: the runs folder cannot be written: No such file or directory"
    assert hint == "create the folder: mkdir -p no"
    assert not machine.ledger.exists()


def test_out_file_is_written_whole(finished: Machine, tmp_path: Path) -> None:
    machine = finished.copy(tmp_path / "copy")
    arguments = ("report", "sDigits", "--profile", "smoke", "--format", "md")
    text = machine.run(*arguments).stdout
    (machine.folder / "real.md").write_text("old")
    (machine.folder / "link.md").symlink_to("real.md")
    machine.run(*arguments, "--out", "link.md")
    assert (machine.folder / "link.md").is_symlink()
    assert (machine.folder / "real.md").read_text() == text
    assert machine.run(*arguments, "--out", "/dev/stdout", apart=True).stdout == text
    error, _ = error_and_hint(machine, *arguments, "--out", ".", code=1)
    assert error == ".: Is a directory"
    error, hint = error_and_hint(machine, "runs", "--ladder", "lruu", code=4)
    assert (error, hint.split("?")[0]) == ("ladder 'lruu': this ledger has no runs of it", "did you mean 'lru'")
    error, _ = error_and_hint(machine, "status", "--watch", "--json", code=2)
    assert error == "--watch and --json exclude each other"


def test_json_and_another_format_exclude_each_other(finished: Machine) -> None:
    for arguments in (("report", "sDigits", "--profile", "smoke"), ("report", "--all", "--profile", "smoke")):
        for name in ("csv", "table"):
            found = error_and_hint(finished, *arguments, "--json", "--format", name, code=2)
            assert found == ("--json and --format exclude each other", "leave one of them out")
        found = error_and_hint(finished, *arguments, "--format", "json", code=2)
        assert found == ("--format: expected a format for people, found 'json'", "it is: --json")


def test_worker_that_always_dies_ends_the_command(machine: Machine) -> None:
    """The command ends soon, with the reason, if no worker can claim a run."""
    broken = machine.folder / "site"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import sys, os, signal\n"
        "if 'lrurun.runner.worker' in ' '.join(sys.orig_argv): os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    machine.run("data", "prepare", "sDigits")
    done = machine.run(*SMOKE, code=1, env={"PYTHONPATH": str(broken)})
    lines = done.stderr.splitlines()
    assert lines[-2] == "error: a worker ended with SIGSEGV"
    assert lines[-1].startswith("hint: lrurun doctor")
    assert machine.states() == {"queued": 1}


def test_ledger_texts_do_not_reach_the_terminal_raw(machine: Machine) -> None:
    """The text of a ledger is data: escape sequences and markup in it have no effect."""
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5]})
    connection = sqlite3.connect(machine.ledger)
    connection.execute("update ladder_runs set rung = char(27) || '[31m[red]tanh' || char(7)")
    connection.execute("update events set text = char(27) || ']0;owned' || char(7)")
    connection.commit()
    connection.close()
    [run] = machine.json("runs")["runs"]
    for arguments in (("runs",), ("status",), ("show", run["id"])):
        text = machine.run(*arguments).stdout
        assert "\x1b" not in text
        assert "\x07" not in text
        assert arguments[0] == "show" or "[red]tanh" in text


def test_out_onto_a_ledger_is_refused(machine: Machine) -> None:
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5]})
    error, _ = error_and_hint(machine, "report", "sDigits", "--format", "csv", "--out", "ledger.db", code=2)
    assert error == "--out ledger.db: is a database, and would be lost"
    assert machine.states() == {"done": 1}


def test_the_ending_of_out_is_the_format_unless_that_is_named(machine: Machine) -> None:
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5]})
    for ending, format in (*ENDINGS.items(), (".CSV", "csv")):
        machine.run("report", "sDigits", "--out", f"by-ending{ending}")
        machine.run("report", "sDigits", "--out", "named.txt", "--format", format, code=2 if format == "json" else 0)
        if format != "json":
            assert (machine.folder / f"by-ending{ending}").read_text() == (machine.folder / "named.txt").read_text()
    assert json.loads((machine.folder / "by-ending.json").read_text())["task"] == "sDigits"
    error, hint = error_and_hint(machine, "report", "sDigits", "--out", "table.pdf", code=2)
    assert error.endswith("must end in .txt, .md, .csv, .tex, .html, .json, found '.pdf'")
    assert hint == "as in --out table.md, or name a --format"


def test_report_leaves_out_runs_of_an_edited_rung(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    ladder = (
        'name = "radius"\ntitle = "t"\nsource = "ours"\n'
        '[[rung]]\nname = "ring"\ntitle = "r"\n'
        'change = { "model.recurrence.kind" = "diagonal", "model.recurrence.r_min" = 0.9 }\n'
    )
    (machine.folder / "radius.toml").write_text(ladder)
    arguments = ("sDigits", "--profile", "smoke", "--ladder", "radius.toml")
    monkeypatch.chdir(machine.folder)
    fill(machine.ledger, "sDigits", {"ring": [0.5]}, profile="smoke", ladder="radius.toml")
    [instance] = machine.json("status")["ladders"]
    (machine.folder / "radius.toml").write_text(ladder.replace("0.9", "0.8"))
    error, _ = error_and_hint(machine, "report", *arguments, code=4)
    assert f"--instance {instance['name']} (1 finished run)" in error
    (machine.folder / "radius.toml").write_text(ladder)
    assert [row["n"] for row in machine.json("report", *arguments)["rows"]] == [1]


@pytest.mark.slow
def test_damaged_data_are_one_error(machine: Machine) -> None:
    arguments = (*SMOKE, "--data-dir", "data")
    machine.run("data", "prepare", "sDigits", "--data-dir", "data")
    path = machine.folder / "data" / "sDigits" / "train-inputs.npy"
    whole = path.read_bytes()
    for damaged, what in (
        (whole[:-1], "has fewer bytes than its header says"),
        (whole + b"1", "has more bytes than its header says"),
        (None, "No such file or directory"),
    ):
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        error, hint = error_and_hint(machine, *arguments, code=1)
        assert error.endswith(f"train-inputs.npy: {what}")
        assert hint.startswith("remove the folder")
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    done = machine.run(*arguments, code=1)
    assert done.stderr.splitlines()[-2].endswith("train-inputs.npy: its digest is not that in the manifest")
    assert machine.states().get("failed") is None


@pytest.mark.slow
def test_a_deleted_ledger_ends_the_command_and_its_runs_do_not_matter_later(machine: Machine) -> None:
    arguments = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--set", "train.steps=6000")
    process = machine.start(*arguments)
    wait_for(training(machine, step=20))
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
        (machine.folder / name).unlink(missing_ok=True)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 5, err
    assert "was removed or replaced while this command was writing to it" in err
    arguments = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--set", "train.steps=600")
    for more in ((), ("--dry-run",)):
        refused = machine.run(*arguments, *more, code=2).stderr
        assert "lrurun ledger rebuild" in refused
        assert "--runs-dir" in refused
    machine.run(*arguments, "--runs-dir", "other")
    assert machine.states() == {"done": 1}


@pytest.mark.slow
def test_a_deleted_write_ahead_log_ends_the_command_and_no_run_is_trained_twice(machine: Machine) -> None:
    arguments = ("ladder", "sDigits", *LONG, "--rung", "ring-init", "--rung", "gamma-norm", "--jobs", "1")
    process = machine.start(*arguments, "--set", "train.steps=2000")
    wait_for(training(machine))
    wait_for(lambda: machine.states().get("done") == 1)
    [done] = (run for run in machine.json("runs")["runs"] if run["state"] == "done")
    wait_for(training(machine, step=20))
    for name in ("ledger.db-wal", "ledger.db-shm"):
        (machine.folder / name).unlink()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 5, err
    assert "ledger.db-wal, was removed or replaced while this command was writing to it" in err
    machine.run(*arguments, "--set", "train.steps=2000")
    assert machine.states() == {"done": 2}
    assert len(machine.attempts()[done["id"]]) == 1


@pytest.mark.slow
def test_closed_terminal_saves_and_exits_129(machine: Machine, long_history) -> None:
    """The terminal is closed before anything can be printed."""
    arguments = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm")
    master, terminal = pty.openpty()
    process = machine.start(
        *arguments,
        prefix=(sys.executable, "-c", AT_A_TERMINAL),
        stdout=terminal,
        stderr=terminal,
        env={"TERM": "xterm"},
    )
    os.close(terminal)
    os.set_blocking(master, False)
    condition = training(machine, step=100)
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        try:
            os.read(master, 65536)
        except BlockingIOError:
            time.sleep(0.05)
    os.close(master)
    assert process.wait(timeout=120) == 129
    assert machine.states() == {"interrupted": 1}
    [attempts] = machine.attempts().values()
    assert attempts[0].reason == "interrupted: SIGTERM"
    machine.run("ladder", "sDigits", *LONG, "--rung", "gamma-norm")
    key = ("gamma-norm", "train", 0)
    assert machine.history() == {key: long_history[key]}
    [attempts] = machine.attempts().values()
    assert attempts[-1].resumed_from


@pytest.mark.slow
def test_nohup_is_respected(machine: Machine) -> None:
    arguments = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm")
    process = machine.start(*arguments, prefix=("nohup",))
    wait_for(training(machine))
    stop(process, signal.SIGHUP)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert machine.states() == {"done": 1}


@pytest.mark.slow
def test_runs_keep_their_number_of_threads(machine: Machine, long_history) -> None:
    """A ladder with runs of one and of two threads finishes; those begun with one thread give its bits."""
    arguments = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm")
    process = machine.start(*arguments, "--jobs", "1")
    wait_for(training(machine, step=60))
    stop(process, signal.SIGTERM)
    process.communicate(timeout=10)
    assert machine.states() == {"interrupted": 1}
    machine.run(*arguments, "--seeds", "2", "--set", "execution.threads=2", timeout=120)
    assert machine.states() == {"done": 2}
    assert machine.history()["gamma-norm", "train", 0] == long_history["gamma-norm", "train", 0]
    threads = {
        run["seed"]: machine.json("show", run["id"])["execution"]["threads"] for run in machine.json("runs")["runs"]
    }
    assert threads == {0: 1, 1: 2}


@pytest.mark.rare
def test_resume_finishes_all_recorded_requests(machine: Machine) -> None:
    arguments = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm")
    process = machine.start(*arguments, "--seeds", "3", "--jobs", "1")
    wait_for(training(machine, step=60))
    stop(process, signal.SIGTERM)
    process.communicate(timeout=10)
    machine.run(*arguments, "--seeds", "1")
    assert machine.states() != {"done": 3}
    machine.run("resume")
    assert machine.states() == {"done": 3}


@pytest.mark.slow
def test_points_removed_from_the_grid_are_not_trained(machine: Machine) -> None:
    from lrurun import paths

    recipe = (paths.packaged("recipes") / "sDigits.toml").read_text()
    (machine.folder / "mine.toml").write_text(recipe.replace("[0.004, 0.016]", "[0.004, 0.008, 0.016, 0.032]"))
    arguments = ("ladder", "mine.toml", "--profile", "smoke", "--rung", "tanh-rnn", "--tune", "--jobs", "1")
    process = machine.start(*arguments)
    wait_for(training(machine, step=0))
    stop(process, signal.SIGTERM)
    process.communicate(timeout=10)
    (machine.folder / "mine.toml").write_text(recipe.replace("[0.004, 0.016]", "[0.016]"))
    machine.run(*arguments)
    finished = [run for run in machine.json("runs")["runs"] if run["state"] == "done"]
    assert sorted(run["stage"] for run in finished) == ["train", "tune"]
    assert machine.json("status")["ladders"][1]["total"] == 2
    plan = machine.json("plan", *arguments[1:-2])
    assert [(row["runs"], row["runs_done"], row["runs_left"]) for row in plan["rungs"]] == [(2, 2, 0)]
    assert "nothing to do" in machine.run("resume").stderr


@pytest.mark.slow
def test_resume_on_another_machine_says_so(machine: Machine) -> None:
    arguments = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm")
    process = machine.start(*arguments)
    wait_for(training(machine, step=60))
    stop(process, signal.SIGTERM)
    process.communicate(timeout=10)
    connection = sqlite3.connect(machine.ledger)
    connection.execute(
        "insert into documents (sha256, text) "
        "select 'another', json_set(environment, '$.machine.cpu', 'an abacus') from attempts"
    )
    connection.execute("update stored_attempts set environment_id = (select max(id) from documents)")
    connection.commit()
    connection.close()
    machine.run(*arguments)
    [run] = machine.json("runs")["runs"]
    events = [event["text"] for event in machine.json("show", run["id"])["events"] if event["kind"] == "changed"]
    assert len(events) == 1
    assert events[0].startswith("resumed with a different CPU: an abacus before, ")


@pytest.mark.slow
def test_one_faulty_run_lets_the_others_save(machine: Machine) -> None:
    """If checkpoints of one run cannot be written, the command ends with 1 and the other run is saved."""
    arguments = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--rung", "ring-init", "--set", "train.steps=4000")
    process = machine.start(*arguments, "--jobs", "2")
    wait_for(lambda: len([r for r in machine.json("runs")["runs"] if r["step"] > 100]) == 2)
    victim = machine.json("runs")["runs"][0]["id"]
    folder = machine.runs / victim / "1" / "checkpoints"
    folder.rename(folder.with_name("moved"))
    folder.write_text("in the way")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "could not be saved" in err
    assert "running" not in machine.states()
    reasons = {i: attempts[-1].reason for i, attempts in machine.attempts().items()}
    assert "the checkpoint of step" in reasons[victim]
    assert all(reason == "interrupted: SIGTERM" for i, reason in reasons.items() if i != victim)

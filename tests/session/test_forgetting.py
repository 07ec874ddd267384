"""`lrurun ledger forget`: what goes and what stays, what is refused, kills at any moment, several commands at once."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lrurun import files, paths
from lrurun.errors import LrurunError, NotFoundError
from lrurun.ledger.ledger import Ledger
from lrurun.runner import run_files, storage
from lrurun.session import forgetting
from tests.harness.machine import Machine, held, small_files
from tests.harness.results import fill
from tests.harness.stores import SERVER, dump, machine_with, raw, refused_by_database

SMOKE, OTHER = "sDigits-smoke", "npDigits"
FORGET = ("ledger", "forget")
END, INTERRUPT = "\x04", "\x03"
"""What a terminal makes of ctrl-D and ctrl-C."""


@pytest.fixture(params=["file", SERVER])
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """A ledger with two instances, of a file and of a server, and the folders of their runs."""
    for machine in machine_with(request.param, tmp_path / "here", request):
        yield fill_both(machine)


def fill_both(machine: Machine) -> Machine:
    """One instance that is judged, and one that has a single rung."""
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5, 0.6], "ring-init": [0.7, 0.8]}, profile="smoke")
    fill(machine.ledger, "npDigits", {"gamma-norm": [0.5, 0.6, 0.7]})
    return add_files(machine)


def add_files(machine: Machine) -> Machine:
    with Ledger.open(machine.ledger) as ledger:
        for run in ledger.run_ids():
            attempt = machine.runs / run / "1"
            (attempt / "checkpoints" / "20").mkdir(parents=True, exist_ok=True)
            (attempt / "checkpoints" / "20" / "arrays").write_bytes(b"0" * 1000)
            (attempt / "log.txt").write_text("a line\n")
        run_files.keep_all(ledger, machine.runs, ledger.run_ids(), [one.key for one in ledger.ladders()])
    return machine


def runs_of(machine: Machine, where: str) -> list[str]:
    return [run["id"] for run in machine.json("runs", "--where", where)["runs"]]


def names_in(runs: Path) -> list[str]:
    """What a runs folder has beside the records of removals."""
    return sorted(path.name for path in runs.iterdir() if path.name != "removals")


def check_only(machine: Machine, *instances: str) -> None:
    """Nothing refers to what is gone, and only these instances have rows and files."""
    found = machine.json("ledger", "check")
    assert found["problems"] == []
    kept = [run["id"] for run in machine.json("runs")["runs"]]
    assert {place["instance"] for run in machine.json("runs")["runs"] for place in run["ladders"]} == set(instances)
    assert names_in(machine.runs) == sorted([*kept, "ladders"])
    with Ledger.read(machine.ledger) as ledger:
        keys = {one.key for one in ledger.ladders()}
        assert {one.short_name for one in ledger.ladders()} == set(instances)
        assert {path.stem for path in (machine.runs / "ladders").iterdir()} == keys
        assert [removal for removal in ledger.removals() if removal.finished_at is None] == []
    used = "config_id", "execution_id", "provenance_id"
    documents = {n for column in used for (n,) in raw(machine.ledger, f"SELECT {column} FROM stored_runs")}
    documents |= {n for (n,) in raw(machine.ledger, "SELECT environment_id FROM stored_attempts")}
    assert {n for (n,) in raw(machine.ledger, "SELECT id FROM documents")} == documents
    tests = raw(machine.ledger, "SELECT id FROM test_sets WHERE id NOT IN (SELECT test_set FROM item_results)")
    assert tests == []
    for table in ("metrics", "eigenvalues", "item_results", "checkpoints", "ladder_runs", "stored_attempts", "events"):
        orphans = f"SELECT run FROM {table} WHERE run IS NOT NULL AND run NOT IN (SELECT number FROM stored_runs)"
        assert raw(machine.ledger, orphans) == [], table


def test_an_instance_goes_with_its_runs_and_all_else_stays(filled: Machine) -> None:
    before, runs = filled.run("report", "sDigits", "--profile", "smoke").stdout, runs_of(filled, f"instance={OTHER}")
    done = filled.run(*FORGET, OTHER, "--yes")
    assert done.stdout.splitlines()[0] == f"{OTHER} (lru on npDigits): 3 runs: 3 done"
    assert done.stdout.splitlines()[1].startswith("to be forgotten: 1 instance, 3 runs, 0.0 MB of files")
    assert done.stdout.splitlines()[2].startswith("forgotten: 1 instance, 3 runs; 0.0 MB of files removed")
    check_only(filled, SMOKE)
    assert filled.run("report", "sDigits", "--profile", "smoke").stdout == before
    [removal] = filled.json("ledger", "forgotten")["removals"]
    assert (removal["kind"], removal["selection"], removal["runs"], removal["why"]) == ("forgotten", OTHER, 3, None)
    assert removal["instances"] == [OTHER]
    assert removal["bytes"] > 3 * 1000
    assert sorted((run["run"], run["seed"], run["rung"]) for run in removal["removed"]) == sorted(
        zip(runs, [2, 1, 0], ["gamma-norm"] * 3, strict=True)
    )


def test_runs_that_meet_a_condition_go_and_an_instance_without_runs_goes_too(filled: Machine) -> None:
    [last] = runs_of(filled, f"instance={OTHER} and seed=2")
    filled.run(*FORGET, "--where", f"instance={OTHER} and seed=2", "--yes")
    check_only(filled, SMOKE, OTHER)
    key = next((filled.runs / "ladders").glob("*.json"))
    assert all(last not in path.read_text() for path in key.parent.iterdir())
    filled.run(*FORGET, "--where", "task=npDigits", "--yes")
    check_only(filled, SMOKE)


def test_a_finished_run_is_deleted_by_nothing_else(filled: Machine) -> None:
    number = "SELECT number FROM stored_runs LIMIT 1"
    for table in ("metrics", "item_results", "events", "ladder_runs", "stored_attempts"):
        raw(filled.ledger, f"DELETE FROM {table}")
    with pytest.raises(refused_by_database(), match="a finished run is only deleted by ledger forget"):
        raw(filled.ledger, f"DELETE FROM stored_runs WHERE number IN ({number})")


def test_the_removals_of_other_ledgers_and_earlier_ones_allow_no_deletion(filled: Machine, tmp_path: Path) -> None:
    """Only the one whose files remain, of a run that is not newer."""
    [run] = runs_of(filled, f"instance={OTHER} and seed=0")
    other = Machine(tmp_path / "other")
    other.run("ledger", "merge", str(filled.ledger), "--other-runs", str(filled.runs))
    other.run(*FORGET, "--where", f"id={run}", "--yes")
    filled.run("ledger", "merge", str(other.ledger), "--other-runs", str(other.runs))
    [removal] = filled.json("ledger", "forgotten")["removals"]
    assert [one["run"] for one in removal["removed"]] == [run]
    for table in ("metrics", "item_results", "events", "ladder_runs", "stored_attempts"):
        raw(filled.ledger, f"DELETE FROM {table}")
    delete = "DELETE FROM stored_runs WHERE id = ?"
    for kind, finished, time_ in (("forgotten", 2e9, 2e9), ("left out", None, 2e9), ("forgotten", None, 1.0)):
        raw(filled.ledger, "UPDATE removals SET kind = ?, finished_at = ?, time = ?", kind, finished, time_)
        with pytest.raises(refused_by_database(), match="a finished run is only deleted by ledger forget"):
            raw(filled.ledger, delete, run)
    raw(filled.ledger, "UPDATE removals SET kind = 'forgotten', finished_at = NULL, time = 2e9")
    raw(filled.ledger, delete, run)
    assert run not in [one["id"] for one in filled.json("runs")["runs"]]


def test_a_run_of_a_machine_with_a_fast_clock_is_forgotten(filled: Machine) -> None:
    raw(filled.ledger, "DROP TRIGGER runs_finished_stay" + " ON stored_runs" * (not isinstance(filled.ledger, Path)))
    raw(filled.ledger, "UPDATE stored_runs SET created_at = 4e9")
    filled.run(*FORGET, OTHER, "--yes")
    assert len(runs_of(filled, f"instance={SMOKE}")) == len(filled.json("runs")["runs"]) == 4


def change(machine: Machine, statement: str, *values: Any) -> None:
    raw(machine.ledger, statement, *values)


def test_every_refusal_says_what_and_what_to_do(machine: Machine, golden) -> None:
    fill_both(machine)
    [kept] = runs_of(machine, f"instance={OTHER} and seed=1")
    [running] = runs_of(machine, f"instance={OTHER} and seed=2")
    lines = []

    def refused(*arguments: str, code: int = 1) -> None:
        said = machine.refused(*FORGET, *arguments, code=code)
        for run in (kept, running):
            said = said.replace(run, "RUN")
        said = said.replace(str(machine.folder), "HERE")
        lines.append(f"$ lrurun ledger forget {' '.join(arguments)}\n{said}exit code {code}\n")

    refused(code=2)
    refused("npDigit", "--yes", code=4)
    refused("--where", "task=npDigit", "--yes", code=4)
    refused("--where", "tsk=npDigits", "--yes", code=2)
    refused("--where", "seed>7", "--yes", code=4)
    refused(OTHER, "--where", "seed=0", "--yes", code=2)
    refused("--where", "seed=0", "--keep-shared", "--yes", code=2)
    refused(OTHER, code=2)
    refused(OTHER, "--json", code=2)
    refused(OTHER, "--why", " ", code=2)
    refused(SMOKE, "--yes", code=2)
    refused("--where", "seed=0 and rung=tanh-rnn", "--yes", code=2)
    machine.run("mark", kept, "--tag", "keep")
    refused(OTHER, "--yes")
    machine.run("mark", kept, "--untag", "keep")
    far = time.time() + 1e6
    change(machine, "DROP TRIGGER runs_finished_stay")
    change(machine, "UPDATE stored_runs SET state = 'running', result = NULL, finished_at = NULL WHERE id = ?", running)
    attempt = "run = (SELECT number FROM stored_runs WHERE id = ?)"
    live = "host = 'far', ended_at = NULL, outcome = NULL, heartbeat_at = ?, seen_at = ?"
    change(machine, f"UPDATE stored_attempts SET {live} WHERE {attempt}", far, far, running)
    refused(OTHER, "--yes")
    golden("forget.txt", "\n".join(lines))


def test_a_dry_run_says_what_would_go_and_that_evidence_needs_a_reason(machine: Machine) -> None:
    fill_both(machine)
    before = dump(machine.ledger), machine.files()
    clause, needed = f"{SMOKE} compares tanh-rnn with ring-init", "to forget evidence, a reason is needed: --why TEXT\n"
    done = machine.run(*FORGET, SMOKE, "--dry-run")
    assert done.stdout == (
        f"{SMOKE} (lru on sDigits, profile smoke): 4 runs: 4 done\nevidence: {clause}\n"
        "to be forgotten: 1 instance, 4 runs, 0.0 MB of files\n"
    )
    assert done.stderr == needed
    assert machine.run(*FORGET, SMOKE, "--dry-run", "--why", "a wrong import").stderr == ""
    found = machine.json(*FORGET, SMOKE, "--dry-run")
    assert (found["dry_run"], found["removal"], found["evidence"]) == (True, None, [clause])
    assert sorted(found["runs"]) == sorted(runs_of(machine, f"instance={SMOKE}"))
    done = machine.run(*FORGET, OTHER, "--dry-run")
    assert "evidence" not in done.stdout + done.stderr
    assert machine.json(*FORGET, OTHER, "--dry-run")["evidence"] == []
    assert (dump(machine.ledger), machine.files()) == before


@pytest.mark.parametrize(
    ("answer", "agreed"),
    [("y", True), ("YES", True), ("n", False), ("", False), ("yeah", False), (END, False), (INTERRUPT, None)],
)
def test_on_a_terminal_it_asks(machine: Machine, answer: str, agreed: bool | None) -> None:
    fill_both(machine)
    before = dump(machine.ledger), names_in(machine.runs)
    code, shown = answered(machine, [*FORGET, OTHER], "forget them for good? [y/N]", answer)
    assert f"{OTHER} (lru on npDigits): 3 runs: 3 done" in shown
    assert shown.index("to be forgotten: 1 instance, 3 runs") < shown.index("forget them for good?")
    if agreed:
        assert code == 0, shown
        assert "forgotten: 1 instance, 3 runs; 0.0 MB of files removed" in shown
        check_only(machine, SMOKE)
    else:
        assert code == (130 if agreed is None else 1), shown
        assert ("nothing was forgotten" in shown) == (agreed is False)
        assert (dump(machine.ledger), names_in(machine.runs)) == before


OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Makes standard input the terminal that controls the process, so that ctrl-C there reaches it. A function between fork
and exec would do so too, but JAX, which other tests load, warns of every fork."""


def answered(machine: Machine, arguments: list[str], question: str, answer: str) -> tuple[int, str]:
    """The exit code of a command on a terminal of its own, and what it shows; `answer` is typed once it asks."""
    screen, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 200))
    process = subprocess.Popen(
        [sys.executable, "-c", OWN_TERMINAL, "-m", "lrurun", *arguments],
        **{"cwd": machine.folder, "env": machine.env, "start_new_session": True},
        **dict.fromkeys(("stdin", "stdout", "stderr"), terminal),
    )
    os.close(terminal)
    shown, is_answered = b"", False
    with process, contextlib.suppress(OSError):  # Linux: the last process has closed the terminal
        while data := os.read(screen, 4096):
            shown += data
            if question.encode() in shown and not is_answered:
                is_answered = True
                os.write(screen, (answer if answer in (END, INTERRUPT) else f"{answer}\n").encode())
    os.close(screen)
    assert is_answered, shown.decode()
    return process.returncode, shown.decode().replace("\r\n", "\n")


def test_json_names_instances_as_status_does(filled: Machine) -> None:
    named = {(ladder["name"], ladder["instance"]) for ladder in filled.json("status")["ladders"]}
    assert {name for name, _ in named} == {SMOKE, OTHER}
    done = filled.json(*FORGET, SMOKE, OTHER, "--yes", "--why", "a wrong import")
    assert {(one["name"], one["instance"]) for one in done["instances"]} == named
    assert {one["ladder"] for one in done["instances"]} == {"lru"}
    [removal] = filled.json("ledger", "forgotten")["removals"]
    assert {(one["name"], one["instance"]) for one in removal["removed"]} == named


def test_the_hint_about_kept_runs_is_a_command(machine: Machine) -> None:
    fill(machine.ledger, "npDigits", {"gamma-norm": [0.5] * 5, "ring-init": [0.5]})
    rungs = {"gamma-norm": runs_of(machine, "rung=gamma-norm"), "ring-init": runs_of(machine, "rung=ring-init")}
    for rung, runs in rungs.items():
        machine.run("mark", *runs, "--tag", "keep")
        command = (*FORGET, "--where", f"rung={rung}", "--yes", "--why", "a wrong import")
        hint = machine.refused(*command, code=1).partition("hint: remove the tag: lrurun ")[2]
        machine.run(*hint.split())
        assert sorted(machine.json(*command)["runs"]) == sorted(runs)


def test_a_result_that_comes_while_it_asks_makes_the_runs_evidence(filled: Machine, monkeypatch) -> None:
    from lrurun.commands._shared import asking

    def agreed(*arguments: Any, **options: Any) -> bool:
        fill(filled.ledger, "npDigits", {"ring-init": [0.5, 0.6]})
        return True

    before = runs_of(filled, f"instance={OTHER} and seed<2")
    command = (*FORGET, "--where", "rung=gamma-norm and seed<2 and task=npDigits", "--yes")
    with monkeypatch.context() as patch:
        patch.setattr(asking, "agreed", agreed)
        said = filled.run(*command, code=2).stderr
    assert said.startswith(f"error: {OTHER} compares ring-init with gamma-norm: to forget runs of a ladder")
    assert set(before) < set(runs_of(filled, f"instance={OTHER}"))
    assert filled.json("ledger", "forgotten")["removals"] == []
    assert sorted(filled.json(*command, "--why", "a wrong import")["runs"]) == sorted(before)


def test_excluded_results_are_evidence_and_their_reasons_are_kept(filled: Machine) -> None:
    one_side = "instance=sDigits-smoke and rung=tanh-rnn"
    filled.run("mark", *runs_of(filled, one_side), "--exclude", "a wrong cable")
    command = (*FORGET, "--where", one_side, "--yes")
    refused = filled.run(*command, code=2).stderr
    assert refused.startswith("error: sDigits-smoke compares tanh-rnn with ring-init: to forget runs of a ladder")
    filled.run(*command, "--why", "not needed")
    [removal] = filled.json("ledger", "forgotten")["removals"]
    assert removal["why"] == "not needed; 2 runs were excluded: a wrong cable"


def test_the_reason_of_an_exclusion_is_the_reason_where_none_is_given(filled: Machine) -> None:
    [run] = runs_of(filled, f"instance={OTHER} and seed=1")
    filled.run("mark", run, "--exclude", "a wrong cable")
    filled.run(*FORGET, "--where", f"instance={OTHER} and seed=1", "--yes")
    [removal] = filled.json("ledger", "forgotten")["removals"]
    assert removal["why"] == "1 run was excluded: a wrong cable"


def test_a_command_that_trains_says_who_has_forgotten_its_instance(filled: Machine) -> None:
    with Ledger.open(filled.ledger) as ledger:
        key = ledger.ladder(OTHER).key
        filled.run(*FORGET, OTHER, "--yes")
        with pytest.raises(NotFoundError, match=f"{OTHER}: it was forgotten at .* by "):
            ledger.ladder_file(key)
        with pytest.raises(NotFoundError, match="no ladder instance 'abc'"):
            ledger.ladder_file("abc")


def test_a_run_that_another_instance_needs_stays(filled: Machine) -> None:
    fill(filled.ledger, "npDigits", {"gamma-norm": []}, sets={"model.width": 999})
    [shared] = runs_of(filled, f"instance={OTHER} and seed=1")
    with Ledger.open(filled.ledger) as ledger:
        other = ledger.ladders()[-1]
        ladder = raw(filled.ledger, "SELECT id FROM ladders WHERE key = ?", other.key)[0][0]
    number = raw(filled.ledger, "SELECT number FROM stored_runs WHERE id = ?", shared)[0][0]
    new = "INSERT INTO ladder_runs (ladder, run, rung, stage, position) VALUES (?, ?, 'gamma-norm', 'train', 1)"
    raw(filled.ledger, new, ladder, number)
    before = dump(filled.ledger)
    said = filled.run(*FORGET, OTHER, "--yes", code=1).stderr
    assert said == (
        f"error: 1 run of {OTHER} is needed by {other.short_name}: {shared} ({OTHER}, {other.short_name})\n"
        f"hint: forget both: lrurun ledger forget {OTHER} {other.short_name}; or leave these runs there: "
        "--keep-shared\n"
    )
    assert dump(filled.ledger) == before
    done = filled.json(*FORGET, OTHER, "--keep-shared", "--yes")
    assert shared not in done["runs"]
    assert len(done["runs"]) == 2
    assert runs_of(filled, "task=npDigits") == [shared]
    assert (filled.runs / shared / "run.json").exists()
    assert filled.json(*FORGET, other.short_name, "--yes")["runs"] == [shared]
    check_only(filled, SMOKE)


def test_earlier_generations_go_with_the_one_that_has_replaced_them(filled: Machine) -> None:
    from lrurun.config import planning
    from lrurun.config.planning import final_runs

    plan = planning.make("npDigits")
    [rung] = planning.choose_rungs(plan, ["gamma-norm"])
    with Ledger.open(filled.ledger) as ledger:
        instance = ledger.ladder(OTHER)
        [second] = ledger.enqueue(instance.key, final_runs(plan, rung, [0]), fresh=True)
    done = filled.json(*FORGET, "--where", f"id={second.id}", "--yes")
    assert sorted(done["runs"]) == [second.id.removesuffix("-2"), second.id]
    check_only(filled, SMOKE, OTHER)
    with Ledger.read(filled.ledger) as ledger:
        [removed] = ledger.removed_from(instance.key)
        assert removed.run == second.id


# Kills


class Killed(BaseException):
    """The command is killed at this moment."""


@contextlib.contextmanager
def killed_at(step: int) -> Iterator[list[str]]:
    """The command ends before a step: a transaction, its commit, and each change of a file. Yields the steps."""
    steps: list[str] = []

    def moment(name: str) -> None:
        steps.append(name)
        if len(steps) == step + 1:
            raise Killed

    def before(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            moment(name)
            return function(*arguments, **options)

        return call

    from lrurun.ledger.database.sqlite import SQLite

    writing = SQLite.writing

    @contextlib.contextmanager
    def transaction(self: SQLite, *, durable: bool) -> Iterator[Any]:
        moment("begin")
        with writing(self, durable=durable) as connection:
            yield connection
            moment("commit")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SQLite, "writing", transaction)
        patch.setattr(Path, "rename", before(Path.rename, "rename"))
        patch.setattr(Path, "replace", before(Path.replace, "replace"))
        for name in ("unlink", "rmdir"):
            patch.setattr(files.os, name, before(getattr(os, name), name))
        yield steps


def state(machine: Machine) -> tuple[list[str], list[Any]]:
    """Files, and rows without times and keys of removals."""
    named = [path for path in machine.files() if not path.startswith(("ledger.db", "runs/removals/"))]
    tables = ("stored_runs", "ladders", "documents", "metrics", "ladder_runs", "removed_runs", "item_results")
    rows = [sorted(raw(machine.ledger, f"SELECT * FROM {table}"), key=repr) for table in tables]
    removals = raw(machine.ledger, "SELECT kind, selection, why, runs, bytes, finished_at IS NULL FROM removals")
    return named, [*rows, removals]


@pytest.mark.parametrize("chosen", [slice(3, None, 12), pytest.param(slice(None), marks=pytest.mark.slow)])
def test_killed_before_any_step_the_same_command_goes_on(machine: Machine, tmp_path: Path, chosen: slice) -> None:
    fill_both(machine)
    command = (*FORGET, OTHER, "--yes")
    calm = machine.copy(tmp_path / "calm")
    with killed_at(-2) as steps:
        calm.run(*command)
    expected, count = state(calm), len(steps)
    assert steps.count("rename") == 4  # three runs, and the file of the instance
    assert steps.count("commit") >= 4
    for step in range(count)[chosen]:
        copy = machine.copy(tmp_path / str(step))
        with killed_at(step), pytest.raises(Killed):
            copy.run(*command)
        checked = copy.json("ledger", "check", code=None)["problems"]
        unfinished = raw(copy.ledger, "SELECT count(*) FROM removals WHERE finished_at IS NULL")[0][0]
        assert checked == [f"runs are forgotten, and their files remain: {OTHER}"] * unfinished, (step, steps[step])
        finished = raw(copy.ledger, "SELECT count(*) FROM removals WHERE finished_at IS NOT NULL")[0][0]
        copy.run(*command, code=4 if finished else 0)
        assert state(copy) == expected, (step, steps[step])


def test_killed_in_between_gc_goes_on_and_rebuild_brings_nothing_back(machine: Machine, tmp_path: Path) -> None:
    fill_both(machine)
    runs = runs_of(machine, f"instance={OTHER}")
    with killed_at(-2) as steps:
        machine.copy(tmp_path / "calm").run(*FORGET, OTHER, "--yes")
    moved = max(n for n, name in enumerate(steps) if name == "rename") + 2
    with killed_at(moved), pytest.raises(Killed):
        machine.run(*FORGET, OTHER, "--yes")
    [aside] = machine.runs.glob(".forgotten-*")
    assert sorted(path.name for path in aside.iterdir()) == sorted([*runs, "ladders"])
    lost = machine.copy(tmp_path / "lost")
    lost.ledger.unlink()
    lost.run("ledger", "rebuild")
    assert not set(runs) & {run["id"] for run in lost.json("runs")["runs"]}
    assert "the files of npDigits, which was forgotten" in machine.run("ledger", "gc", "--dry-run").stderr
    assert aside.exists()
    assert "the files of npDigits, which was forgotten" in machine.run("ledger", "gc").stderr
    check_only(machine, SMOKE)


def test_the_folder_of_a_run_that_was_queued_again_meanwhile_stays(filled: Machine, monkeypatch) -> None:
    from lrurun.config import planning
    from lrurun.config.planning import final_runs

    def stop(*arguments: Any) -> bool:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "_remove_files", stop)
        with pytest.raises(Killed):
            filled.run(*FORGET, OTHER, "--yes")
    plan = planning.make("npDigits")
    [rung] = planning.choose_rungs(plan, ["gamma-norm"])
    places = paths.Places(ledger=filled.ledger, runs=filled.runs, data=filled.folder)
    with Ledger.open(filled.ledger) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, None, plan.spec, plan.short_name)
        [again] = ledger.enqueue(instance.key, final_runs(plan, rung, [1]))
        assert len(ledger.removed_from(instance.key)) == 2
        [removal] = forgetting.go_on(ledger, places)
        assert forgetting.go_on(ledger, places) == []
    assert removal.selection == OTHER
    assert (filled.runs / again.id / "1" / "log.txt").exists()
    assert len(list(filled.runs.glob("[0-9a-f]*"))) == 4 + 1
    assert (filled.runs / "ladders" / f"{instance.key}.json").exists()


@pytest.mark.slow
def test_killed_by_the_system_it_goes_on(machine: Machine, tmp_path: Path) -> None:
    fill(machine.ledger, "npDigits", {"gamma-norm": [0.5] * 150})
    add_files(machine)
    draw, moments = random.Random(0), set()
    for number in range(8):
        copy = machine.copy(tmp_path / str(number))
        process = copy.start(*FORGET, OTHER, "--yes")
        deadline = time.monotonic() + 60
        # from the first transaction on
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(sqlite3.Error):
                if raw(copy.ledger, "SELECT 1 FROM removals"):
                    break
        time.sleep(draw.uniform(0, 0.05) * number)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        unfinished = raw(copy.ledger, "SELECT count(*) FROM removals WHERE finished_at IS NULL")[0][0]
        moments.add(unfinished)
        done = copy.run(*FORGET, OTHER, "--yes", code=None)
        assert done.returncode == (0 if unfinished else 4), done.stderr
        assert names_in(copy.runs) == ["ladders"]
        assert not list((copy.runs / "ladders").iterdir())
        assert copy.json("ledger", "check")["problems"] == []
    assert 1 in moments


@pytest.mark.parametrize(
    ("meanwhile", "error"),
    [
        (("mark", "RUN", "--tag", "keep"), "other commands have changed what was to be forgotten: nothing was removed"),
        (("mark", "RUN", "--exclude", "odd"), "other commands have changed what was to be forgotten"),
        ((*FORGET, "--where", "id=RUN", "--yes"), "other commands have changed what was to be forgotten"),
        ((*FORGET, OTHER, "--yes"), f"{OTHER}: is gone: another command has forgotten it"),
    ],
)
def test_what_changes_after_it_was_shown_is_not_forgotten(
    filled: Machine, meanwhile: tuple[str, ...], error: str
) -> None:
    """Between the plan, which a user reads, and the answer."""
    [run] = runs_of(filled, f"instance={OTHER} and seed=1")
    places = paths.Places(ledger=filled.ledger, runs=filled.runs, data=filled.folder)
    with Ledger.open(filled.ledger) as ledger:
        plan = forgetting.plan(ledger, places, [OTHER], None)
        filled.run(*(word.replace("RUN", run) for word in meanwhile))
        before = dump(filled.ledger), filled.files()
        with pytest.raises(LrurunError, match=error):
            forgetting.forget(ledger, places, plan, None)
        assert (dump(filled.ledger), filled.files()) == before


@pytest.mark.slow
def test_of_two_at_once_one_wins_and_the_other_says_so(filled: Machine) -> None:
    processes = [filled.start(*FORGET, OTHER, "--yes") for _ in range(3)]
    ends = [(process.communicate()[1], process.returncode) for process in processes]
    assert sum("forgotten" in said or code == 0 for said, code in ends) >= 1
    assert {code for _, code in ends} <= {0, 1, 4}
    assert 0 in {code for _, code in ends}
    for said, code in ends:
        assert "Traceback" not in said
        assert code == 0 or f"{OTHER}: is gone" in said or "was forgotten at" in said or "nothing was removed" in said
    assert len(filled.json("ledger", "forgotten")["removals"]) == 1
    check_only(filled, SMOKE)


def stopped(machine: Machine, *arguments: str) -> None:
    """Forgets, and is killed before files are removed."""

    def stop(*arguments: Any) -> bool:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forgetting, "_remove_files", stop)
        with pytest.raises(Killed):
            machine.run(*FORGET, *arguments, "--yes")


def test_a_command_that_goes_on_forgets_what_meets_its_condition_now(filled: Machine) -> None:
    other = "task=npDigits"
    stopped(filled, "--where", other)
    assert filled.run(*FORGET, "--where", other, "--yes").stdout.endswith(
        ": was forgotten before, 3 runs; the files that were left are removed now\n"
    )
    filled.run(*FORGET, "--where", other, "--yes", code=4)
    fill(filled.ledger, "npDigits", {"gamma-norm": [0.5, 0.6, 0.7]})
    add_files(filled)
    stopped(filled, "--where", other)
    fill(filled.ledger, "npDigits", {"ring-init": [0.5, 0.6]})
    add_files(filled)
    done = filled.run(*FORGET, "--where", other, "--yes").stdout
    assert "was forgotten before, 3 runs" in done
    assert "forgotten: 1 instance, 2 runs; " in done
    check_only(filled, SMOKE)


# Disks and rights


@pytest.mark.parametrize("is_mounted", [False, True])
def test_files_that_are_not_in_this_folder_wait(machine: Machine, is_mounted: bool) -> None:
    """The disk is not mounted, or the command runs on another machine with another folder at this path."""
    fill_both(machine)
    runs = runs_of(machine, f"instance={OTHER}")
    stopped(machine, OTHER)
    away = machine.runs.rename(machine.folder / "away")
    if is_mounted:
        machine.runs.mkdir()
    assert machine.run("ledger", "gc", "--dry-run").stderr == "nothing to remove\n"
    assert machine.run("ledger", "gc").stderr == (
        f"warning: runs: has no files of {OTHER}, which was forgotten: is a disk not mounted? lrurun ledger "
        "gc removes them once they are there, and lrurun ledger gc --gone is for files that are gone\n"
        "nothing to remove\n"
    )
    [removal] = machine.json("ledger", "forgotten")["removals"]
    assert (removal["bytes"], removal["finished_at"]) == (None, None)
    if is_mounted:
        machine.runs.rmdir()
    away.rename(machine.runs)
    assert {path.name for path in machine.runs.iterdir()} > set(runs)
    assert "the files of npDigits, which was forgotten" in machine.run("ledger", "gc").stderr
    check_only(machine, SMOKE)


def test_files_that_are_gone_are_looked_for_no_more(machine: Machine) -> None:
    fill_both(machine)
    stopped(machine, OTHER)
    machine.runs.rename(machine.folder / "away")
    assert machine.json("ledger", "check", code=1)["problems"] == [
        f"runs are forgotten, and their files remain: {OTHER}"
    ]
    expected = "the files of npDigits, which was forgotten\n"
    assert machine.run("ledger", "gc", "--gone", "--dry-run").stderr == f"to be removed: {expected}"
    assert machine.run("ledger", "gc", "--gone").stderr == f"removed: {expected}"
    assert machine.json("ledger", "check", "--quick")["problems"] == []


def test_rebuild_brings_back_what_a_merge_did_and_no_files_that_have_survived(machine: Machine, tmp_path: Path) -> None:
    fill_both(machine)
    first, second, third = runs_of(machine, f"instance={OTHER}")  # of seeds 2, 1, 0
    old = machine.copy(tmp_path / "old")
    machine.run(*FORGET, OTHER, "--yes")
    shutil.copytree(old.runs / first, machine.runs / first)
    other = ("--other-runs", str(old.runs), "--where", f"id={second}")
    merged = machine.json("ledger", "merge", str(old.ledger), *other)
    assert (merged["new"], merged["back"]) == (1, 1)
    fill(machine.ledger, "npDigits", {"gamma-norm": [0.1]}, first=0)
    add_files(machine)
    machine.ledger.unlink()
    said = machine.run("ledger", "rebuild").stderr
    assert (
        f"{machine.runs / first / 'run.json'}: left out: it was forgotten; lrurun ledger gc or rm removes the rest"
        in said
    )
    assert sorted(runs_of(machine, f"instance={OTHER}")) == sorted([second, third])


def test_on_a_full_disk_nothing_is_lost(machine: Machine) -> None:
    fill_both(machine)
    before = dump(machine.ledger), [path for path in machine.files() if not path.startswith("ledger.db-")]
    with small_files(40_000):
        said = machine.run(*FORGET, OTHER, "--yes", code=1).stderr
    assert "hint: " in said
    assert said.startswith((f"error: no space left for the ledger {machine.ledger}", "error: reading or writing"))
    assert (dump(machine.ledger), [path for path in machine.files() if not path.startswith("ledger.db-")]) == before
    machine.run(*FORGET, OTHER, "--yes")
    check_only(machine, SMOKE)


def test_files_that_cannot_be_removed_are_tried_again(machine: Machine, monkeypatch) -> None:
    fill_both(machine)

    def refuse(*arguments: Any) -> None:
        raise PermissionError(13, "Permission denied", "runs/log.txt")

    with monkeypatch.context() as patch:
        patch.setattr(storage.Storage, "remove_aside", refuse)
        done = machine.run(*FORGET, OTHER, "--yes", code=1)
    assert (
        "warning: runs/log.txt: Permission denied: the runs are forgotten, and some of their files remain"
        in done.stderr
    )
    assert "forgotten: 1 instance, 3 runs; files remain" in done.stdout
    assert "forgotten, unfinished" in machine.run("ledger", "forgotten").stdout
    assert f"{OTHER}: was forgotten before, 3 runs" in machine.run(*FORGET, OTHER, "--yes").stdout
    check_only(machine, SMOKE)


def test_space_is_given_back_unless_somebody_is_in_the_way(machine: Machine, tmp_path: Path) -> None:
    fill(machine.ledger, "npDigits", {"gamma-norm": [0.5]})
    number = raw(machine.ledger, "SELECT number FROM stored_runs")[0][0]
    key = raw(machine.ledger, "SELECT min(id) FROM metric_keys")[0][0]
    with contextlib.closing(sqlite3.connect(machine.ledger)) as connection, connection:
        rows = ((number, key, step, 0.5) for step in range(1000, 200_000))
        connection.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?)", rows)
    before = machine.ledger.stat().st_size
    read = machine.copy(tmp_path / "read")
    done = machine.run(*FORGET, OTHER, "--yes")
    assert "the ledger is " in done.stderr
    assert machine.ledger.stat().st_size < before / 5
    with contextlib.closing(sqlite3.connect(read.ledger, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM stored_runs").fetchall()
        done = read.run(*FORGET, OTHER, "--yes")
    assert "the space of what was forgotten is used for what is recorded next" in done.stderr
    assert read.json("ledger", "check")["problems"] == []


@pytest.mark.parametrize(("freed", "lines"), [(8192, []), (2_000_000, ["the ledger is 2.0 MB smaller"])])
def test_space_of_no_account_is_not_named(machine: Machine, monkeypatch, freed: int, lines: list[str]) -> None:
    from lrurun.ledger.database import Freed
    from lrurun.ledger.database.sqlite import SQLite

    fill_both(machine)
    monkeypatch.setattr(SQLite, "give_back", lambda self: Freed(freed, ""))
    done = machine.run(*FORGET, OTHER, "--yes")
    assert [line for line in (done.stdout + done.stderr).splitlines() if "smaller" in line] == lines


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("failure", "text"), [(LrurunError("the disk is broken"), "the disk is broken"), (KeyboardInterrupt(), "stopped")]
)
def test_what_is_forgotten_is_said_although_no_space_is_given_back(
    machine: Machine, monkeypatch, form: str, failure: BaseException, text: str
) -> None:
    from lrurun.ledger.database.sqlite import SQLite

    def give_back(self: SQLite) -> None:
        raise failure

    fill_both(machine)
    monkeypatch.setattr(SQLite, "give_back", give_back)
    done = machine.run(*FORGET, OTHER, "--yes", *(["--json"] if form == "json" else []))
    assert done.stderr == (
        f"the ledger was not made smaller ({text}): the space of what was forgotten is used for what is recorded next\n"
    )
    if form == "json":
        found = json.loads(done.stdout)
        assert (len(found["runs"]), found["finished"], found["given_back"]) == (3, True, 0)
    else:
        assert done.stdout.splitlines()[-1].startswith("forgotten: 1 instance, 3 runs; ")


def test_a_ledger_that_is_busy_or_only_readable_is_refused(machine: Machine, monkeypatch) -> None:
    from lrurun.ledger.database import sqlite
    from lrurun.session import opening

    fill_both(machine)
    before = dump(machine.ledger)
    with held(machine.ledger), monkeypatch.context() as patch:
        patch.setattr(opening, "TIMEOUT", 0.3)
        patch.setattr(sqlite, "TIMEOUT", 0.3)
        patch.setitem(Ledger.open.__kwdefaults__, "timeout", 0.3)
        said = machine.run(*FORGET, OTHER, "--yes", code=5).stderr
    assert said.startswith(f"error: the ledger {machine.ledger} is busy: another process held it for more than 0.3 s")
    assert dump(machine.ledger) == before
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: not (mode & os.W_OK))
        said = machine.run(*FORGET, OTHER, "--yes", code=1).stderr
    assert f"error: the ledger {machine.ledger} cannot be written: {machine.folder} is read-only for this user" in said
    assert dump(machine.ledger) == before


# Several users of a server


@pytest.fixture
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    for machine in machine_with("server", tmp_path / "here", request):
        yield fill_both(machine)


@pytest.mark.slow
def test_runs_of_other_users_need_all_users(served: Machine) -> None:
    raw(served.ledger, "UPDATE ladders SET user_name = 'ann' WHERE short_name = ?", OTHER)
    raw(served.ledger, "UPDATE stored_attempts SET user_name = 'bob' WHERE n = 1")
    before = dump(served.ledger)
    assert served.run(*FORGET, OTHER, "--yes", code=1).stderr == (
        "error: 3 runs: belong to bob, ann\nhint: ask them first; with --all-users, it is done\n"
    )
    assert dump(served.ledger) == before
    served.run(*FORGET, OTHER, "--yes", "--all-users")
    check_only(served, SMOKE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("granted", "missing"),
    [("SELECT", "DELETE on metrics, DELETE on eigenvalues, DELETE on item_results and 13 more"),
     ("SELECT, INSERT, UPDATE", "DELETE on metrics, DELETE on eigenvalues, DELETE on item_results and 10 more")],
)  # fmt: skip
def test_a_role_without_the_right_to_delete_is_refused(
    served: Machine, postgres, request: pytest.FixtureRequest, granted: str, missing: str
) -> None:
    database = served.ledger.text.rpartition("/")[2]
    role = f"role_{len(granted)}"
    with contextlib.suppress(Exception):
        postgres.admin(f"CREATE ROLE {role} LOGIN")
    postgres.admin(f"GRANT {granted} ON ALL TABLES IN SCHEMA public TO {role}", database)
    before = dump(served.ledger), served.files()
    url = postgres.server(database, role)
    done = served.run(*FORGET, OTHER, "--yes", "--ledger", str(url), code=1)
    assert done.stderr == (
        f"error: the user of the ledger {url} may not forget runs: it lacks {missing}\n"
        "hint: the owner of the tables grants it: GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public "
        "TO name; GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO name\n"
    )
    # nobody hides what he could not show again
    refused = served.run("ledger", "hide", OTHER, "--ledger", str(url), code=1).stderr
    assert "may not hide instances and show them again: it lacks " in refused
    assert "DELETE on hidden\n" in refused
    assert (dump(served.ledger), served.files()) == before
    plan = served.run(*FORGET, OTHER, "--dry-run", "--ledger", str(url))
    assert "to be forgotten: 1 instance, 3 runs" in plan.stdout
    grants = [part for part in re.split("[:;] ", done.stderr) if part.startswith("GRANT ")]
    for grant in grants:
        postgres.admin(grant.replace(" TO name", f" TO {role}"), database)
    served.run("ledger", "hide", OTHER, "--ledger", str(url))
    served.run("ledger", "hide", OTHER, "--undo", "--ledger", str(url))
    done = served.run(*FORGET, OTHER, "--yes", "--ledger", str(url))
    assert "only the owner of its tables may vacuum them: the space of what was forgotten is used" in done.stderr
    check_only(served, SMOKE)


# Stores, programs


def test_files_in_a_store_are_removed(machine: Machine, tmp_path: Path, monkeypatch) -> None:
    fill_both(machine)
    fill(machine.ledger, "npDigits", {"gamma-norm": [0.5] * 25}, first=3)
    add_files(machine)
    store, cache = tmp_path / "store", tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    machine.env |= {"XDG_CACHE_HOME": str(cache), "LRURUN_RUNS": f"file://{store}"}
    machine.runs.rename(store)
    storage._connected.cache_clear()
    names = runs_of(machine, f"instance={OTHER}")
    size = sum(path.stat().st_size for run in names for path in (store / run).rglob("*") if path.is_file())
    batches = []
    set_aside = storage.ObjectStore.set_aside

    def counted(self: storage.ObjectStore, names: list[str], aside: Path) -> None:
        batches.append(len(names))
        set_aside(self, names, aside)

    monkeypatch.setattr(storage.ObjectStore, "set_aside", counted)
    assert machine.json(*FORGET, OTHER, "--yes")["bytes"] == size
    assert sum(batches) == len(names) + 1
    assert max(batches) <= 20  # in one transaction, for which others wait
    kept = runs_of(machine, f"instance={SMOKE}")
    assert names_in(store) == sorted([*kept, "ladders"])
    assert len(list((store / "ladders").iterdir())) == 1


def test_copies_of_the_files_of_a_program_go_with_its_last_run(machine: Machine, monkeypatch) -> None:
    from lrurun.config.programs import digest_of
    from lrurun.runner.program_files import ProgramSnapshot

    fill_both(machine)
    folder = machine.folder / "mine"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    version = {"train.py": digest_of(folder / "train.py")}
    snapshot = ProgramSnapshot(machine.runs.resolve(), folder, version)
    snapshot.keep()
    text = f'{{"program":{{"files":{{"train.py":"{version["train.py"]}"}}}}}}'
    raw(machine.ledger, "DROP TRIGGER runs_finished_stay")
    raw(machine.ledger, "INSERT INTO documents (sha256, text) VALUES ('one', ?)", text)
    of_program = "UPDATE stored_runs SET kind = 'program', config_id = (SELECT id FROM documents WHERE sha256 = 'one')"
    raw(machine.ledger, f"{of_program} WHERE task = 'npDigits'")
    machine.run(*FORGET, "--where", "task=npDigits and seed=0", "--yes")
    assert (snapshot.path / "train.py").exists()
    again = machine.copy(machine.folder.with_name("again"))

    def stop(*arguments: Any) -> bool:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "_remove_files", stop)
        with pytest.raises(Killed):
            again.run(*FORGET, OTHER, "--yes")
    raw(again.ledger, "INSERT INTO documents (sha256, text) VALUES ('one', ?)", text)
    raw(again.ledger, f"{of_program} WHERE task = 'sDigits'")
    places = paths.Places(ledger=again.ledger, runs=again.runs, data=again.folder)
    with Ledger.open(again.ledger) as ledger:
        assert len(forgetting.go_on(ledger, places)) == 1
    assert (again.runs / snapshot.path.relative_to(snapshot.path.parents[1]) / "train.py").exists(), (
        "it is needed again"
    )
    machine.run(*FORGET, OTHER, "--yes")
    assert not snapshot.path.exists()


@pytest.mark.slow
def test_a_ladder_that_trains_again_first_removes_what_is_left(machine: Machine, monkeypatch) -> None:
    small = ("ladder", "sDigits", "--profile", "smoke", "--rung", "gamma-norm", "--seeds", "1")
    machine.run(*small, apart=True)
    [run] = [run["id"] for run in machine.json("runs")["runs"]]

    def stop(*arguments: Any) -> bool:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "_remove_files", stop)
        with pytest.raises(Killed):
            machine.run(*FORGET, SMOKE, "--yes")
    (machine.runs / run / "1" / "old").write_text("of the run before")
    machine.run(*small, apart=True)
    assert runs_of(machine, "task=sDigits") == [run]
    assert not (machine.runs / run / "1" / "old").exists()
    assert (machine.runs / run / "1" / "log.txt").exists()
    assert not list((machine.runs / run).glob("*.old-*"))
    assert machine.json("ledger", "check")["problems"] == []

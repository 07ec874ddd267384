"""A whole ladder, from nothing to the table; signals in all its phases."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lrurun.config.planning import Plan, final_runs
from lrurun.errors import LrurunError, PreparationError, Stopped
from lrurun.instances import requests
from lrurun.instances.requests import LadderRequest
from lrurun.ledger.ledger import Ledger
from tests.harness.machine import FINISHED, FINISHED_LADDER, LONG, Machine, stop, training, wait_for


def test_smoke_ladder_fills_table_and_ledger(finished: Machine) -> None:
    report = finished.json("report", *FINISHED_LADDER[1:])
    assert [row["rung"] for row in report["rows"]] == [*FINISHED]
    runs = {run["id"]: run for run in finished.json("runs")["runs"]}
    assert len(runs) == 3
    for row in report["rows"]:
        assert row["n"] == 1
        [run] = [runs[i] for i in row["runs"]]
        assert run["state"] == "done"
        assert run["step"] == run["steps"] == 60
        assert row["mean"] == run["metrics"]["test/accuracy"]
        assert row["parameters"] == run["parameters"]
        assert row["comparison"] is None or row["comparison"]["p_adjusted"] is None
    claims = finished.json("report", "sDigits", "--profile", "smoke")["claims"]  # one is on long sequences
    assert {claim["verdict"] for claim in claims} == {"not run", "undecided", "not judged"}
    status = finished.json("status")["ladders"]
    assert [(s["ladder"], s["task"], s["profile"], s["total"], s["done"]) for s in status] == [
        ("lru", "sDigits", "smoke", 3, 3)
    ]
    # a pipe gets every column, however narrow
    title, headers, *lines, last, best = finished.run("status", "--details", env={"COLUMNS": "40"}).stdout.splitlines()
    assert (title, last) == ("sDigits-smoke: ladder lru on sDigits, profile smoke", "3 of 3 done")
    first = max(status[0]["rungs"], key=lambda row: row["val/accuracy"])
    assert best == f"best on validation: {first['rung']}, {100 * first['val/accuracy']:.1f} % (mean of 1 seed)"
    assert re.sub(" {2,}", "|", headers) == "rung|runs|state|steps|loss|mean val %|steps/s|time left"
    wanted = [(r["rung"], "1/1", "done", "100%", f"{r['train/loss']:.3f}") for r in status[0]["rungs"]]
    assert [tuple(line.split()[:5]) for line in lines] == wanted


def test_show_has_config_provenance_attempts_and_curves(finished: Machine) -> None:
    run = finished.json("runs", "--limit", "1")["runs"][0]
    shown = finished.json("show", run["id"][:8])
    assert shown["run"] == run
    assert shown["config"]["model"]["depth"] == 1
    assert shown["provenance"]["model.depth"] == "recipes/sDigits.toml [profile.smoke]"
    assert [step for step, _ in shown["metrics"]["train/loss"]] == [10, 20, 30, 40, 50, 60]
    assert [step for step, _ in shown["metrics"]["val/accuracy"]] == [30, 60]
    best = max(value for _, value in shown["metrics"]["val/accuracy"])
    assert shown["run"]["metrics"]["val/accuracy"] == best
    [attempt] = shown["attempts"]
    assert attempt["reason"] == "done"
    assert attempt["environment"]["versions"]["jax"]
    assert attempt["environment"]["threads"] == 1
    text = finished.run("show", run["id"]).stdout
    assert "recipes/sDigits.toml [profile.smoke]" in text
    assert f"run {run['id']}: sDigits, seed 0, done at step 60 of 60" in text


def test_finished_ladder_has_nothing_to_do(finished: Machine) -> None:
    """The same command again: no work, no jax, the same table."""
    before = finished.json("runs"), finished.files()
    script = (
        "import sys; from lrurun.__main__ import run; code = run(sys.argv[1:]); "
        "assert 'jax' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *FINISHED_LADDER],
        cwd=finished.folder,
        env=finished.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "nothing to do" in done.stderr
    assert done.stdout == finished.run("report", *FINISHED_LADDER[1:]).stdout
    assert (finished.json("runs"), finished.files()) == before
    assert all(len(attempts) == 1 for attempts in finished.attempts().values())


@pytest.mark.slow
def test_same_command_on_another_machine_gives_the_same_bits(finished: Machine, machine: Machine) -> None:
    machine.run(
        "ladder", "sDigits", "--profile", "smoke", "--rung", "gamma-norm", "--jobs", "1", prefix=("taskset", "-c", "0")
    )
    key = ("gamma-norm", "train", 0)
    assert machine.history()[key] == finished.history()[key]


SMOKE = ("ladder", "sDigits", "--profile", "smoke")


@pytest.mark.slow
def test_rungs_and_seeds_say_how_much_now(finished: Machine, tmp_path: Path) -> None:
    """And a pipe gets one plain line for each change of a run."""
    machine = finished.copy(tmp_path / "copy")
    done = machine.run(*SMOKE, "--rung", "gamma-norm", "--seeds", "3,5", "--jobs", "1", env={"FORCE_COLOR": "1"})
    lines = [line for line in done.stderr.splitlines() if "gamma-norm seed 3" in line]
    assert [line.split(": ")[1].split(",")[0] for line in lines] == ["running", "done"]
    assert "\x1b[?25l" not in done.stderr  # the cursor is not hidden
    report = machine.json("report", "sDigits", "--profile", "smoke")
    assert {row["rung"]: row["n"] for row in report["rows"] if row["n"]} == {
        rung: 3 if rung == "gamma-norm" else 1 for rung in FINISHED
    }
    assert len(machine.json("status")["ladders"]) == 1


@pytest.mark.slow
def test_fresh_sets_the_old_runs_aside(finished: Machine, tmp_path: Path) -> None:
    machine = finished.copy(tmp_path / "copy")
    [old] = [run for run in machine.json("runs")["runs"] if run["rung"] == "tanh-rnn"]
    quiet = machine.run(*SMOKE, "--rung", "tanh-rnn", "--fresh", "-q")
    assert quiet.stderr == ""
    new, kept = [run for run in machine.json("runs")["runs"] if run["rung"] == "tanh-rnn"]
    assert (new["id"], new["superseded"]) == (old["id"] + "-2", False)
    assert (kept["id"], kept["superseded"]) == (old["id"], True)
    assert new["metrics"]["test/accuracy"] == old["metrics"]["test/accuracy"]
    rows = machine.json("report", "sDigits", "--profile", "smoke")["rows"]
    assert rows[0]["runs"] == [new["id"]]


def test_another_ladder_shares_the_runs_they_have_in_common(finished: Machine, tmp_path: Path) -> None:
    machine = finished.copy(tmp_path / "copy")
    assert "nothing to do" in machine.run(*SMOKE, "--rung", "tanh-rnn", "--ladder", "nonlinearity").stderr
    [run] = [run for run in machine.json("runs")["runs"] if run["rung"] == "tanh-rnn"]
    assert [(m["ladder"], m["rung"]) for m in run["ladders"]] == [("lru", "tanh-rnn"), ("nonlinearity", "tanh-rnn")]


@pytest.mark.slow
def test_tuning_chooses_on_validation_and_stays_out_of_the_table(machine: Machine) -> None:
    command = (*SMOKE, "--rung", "diagonal", "--tune", "--jobs", "1")
    machine.run(*command)
    runs = machine.json("runs")["runs"]
    tuned = [run for run in runs if run["stage"] == "tune"]
    assert len(tuned) == 2
    assert all(run["seed"] == 1000 and "test/accuracy" not in run["metrics"] for run in tuned)
    rates = {r["metrics"]["val/accuracy"]: machine.json("show", r["id"])["config"]["optim"]["lr"] for r in tuned}
    [final] = [run for run in runs if run["stage"] == "train"]
    shown = machine.json("show", final["id"])
    assert shown["config"]["optim"]["lr"] == rates[max(rates)]
    assert shown["provenance"]["optim.lr"] == "tuned on validation with 1 seed"
    machine.run("report", "sDigits", "--profile", "smoke", code=4)  # the plain instance was never run
    rows = machine.json("report", "sDigits", "--profile", "smoke", "--tune")["rows"]
    assert {row["rung"]: row["n"] for row in rows if row["n"]} == {"diagonal": 1}
    assert "nothing to do" in machine.run(*command).stderr


@pytest.mark.slow
def test_diverged_run_is_a_result(machine: Machine) -> None:
    values = ("optim.lr=10", "optim.recurrent_factor=10", "model.norm=layer", "train.steps=40", "train.eval_every=40")
    sets = [word for value in values for word in ("--set", value)]
    machine.run(*SMOKE, "--rung", "linear-rnn", *sets)
    [run] = machine.json("runs")["runs"]
    assert run["state"] == "diverged"
    assert 0 < run["step"] < 40
    assert "nothing to do" in machine.run(*SMOKE, "--rung", "linear-rnn", *sets).stderr
    assert "1 run diverged (linear-rnn)" in machine.run("report", "sDigits", "--profile", "smoke", *sets).stdout


@pytest.mark.slow
def test_resume_finishes_what_a_stopped_command_left(machine: Machine, long_history) -> None:
    process = machine.start("ladder", "sDigits", *LONG, "--rung", "gamma-norm")
    wait_for(training(machine, step=60))
    stop(process, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert re.search(r"^stopped by \^C.* 1 of 1 run remain", err, re.MULTILINE)
    done = machine.run("resume")
    key = ("gamma-norm", "train", 0)
    assert machine.history() == {key: long_history[key]}
    assert "gamma-norm" in done.stdout
    [attempts] = machine.attempts().values()
    assert attempts[1].resumed_from
    assert "nothing to do" in machine.run("resume").stderr


@pytest.mark.slow
def test_sigterm_in_training_saves_and_the_same_command_goes_on(machine: Machine, long_history) -> None:
    arguments = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm")
    process = machine.start(*arguments)
    wait_for(training(machine, step=60))
    stop(process, signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 143, err
    assert machine.states() == {"interrupted": 1}
    machine.run(*arguments, "--jobs", "1", prefix=("taskset", "-c", "0"))
    key = ("gamma-norm", "train", 0)
    assert machine.history() == {key: long_history[key]}
    [attempts] = machine.attempts().values()
    assert len(attempts) == 2
    assert attempts[1].resumed_from, "something was saved, and used"


@pytest.mark.slow
def test_sigterm_while_starting_and_compiling(machine: Machine) -> None:
    """No compiled programs to reuse: the workers are importing or compiling when the signal comes."""
    arguments = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn")
    process = machine.start(*arguments, env={"XDG_CACHE_HOME": str(machine.folder / "cold")})
    wait_for(training(machine, step=0))
    stop(process, signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert machine.states() == {"interrupted": 1}
    machine.run(*arguments)
    assert machine.states() == {"done": 1}


def _cannot_prepare(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("lrurun.session.preparing.prepare_data", fail)


NEW = ("ladder", "sDigits", "--profile", "smoke", "--rung", "linear-rnn")


@pytest.mark.parametrize("more", [(), ("--fresh",), ("--tune",), ("--sweep", "optim.lr=0.1,0.2"), ("--jobs", "1")])
def test_nothing_is_recorded_where_data_cannot_be_prepared(
    more: tuple[str, ...], finished: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = finished.copy(tmp_path / "copy")
    shutil.rmtree(machine.runs)
    _cannot_prepare(monkeypatch, LrurunError("no data"))
    assert machine.refused(*NEW, *more, code=1).endswith("error: no data\n")  # no file is changed
    assert not machine.runs.exists()
    _cannot_prepare(monkeypatch, Stopped(signal.SIGINT))
    said = machine.refused(*NEW, *more, code=130)
    assert "stopped by ^C before any training; the same command continues: lrurun ladder sDigits" in said


def test_nothing_is_recorded_for_another_ladder_on_other_data(
    finished: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first rung of both ladders is the same run, which was trained before the data were prepared again."""
    machine = finished.copy(tmp_path / "copy")
    with Ledger.open(machine.ledger) as ledger:
        [wanted] = [run for run in ledger.runs() if run.memberships[0].rung == "tanh-rnn"]
        assert wanted.data_sha256
    monkeypatch.setattr("lrurun.data.task_data.digest", lambda _: "f" * 64)
    other = ("ladder", "sDigits", "--profile", "smoke", "--ladder", "nonlinearity")
    assert f"1 finished run ({wanted.id}) had other data" in machine.refused(*other, code=1)


def test_data_are_prepared_if_a_run_remains_and_only_then(
    finished: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = finished.copy(tmp_path / "copy")
    _cannot_prepare(monkeypatch, LrurunError("no data"))
    assert "nothing to do" in machine.run(*FINISHED_LADDER, "--data-dir", "none").stderr
    # another ladder, which is recorded, with a run that this one has trained
    shared = ("--ladder", "nonlinearity", "--rung", "tanh-rnn", "--data-dir", "none")
    assert "nothing to do" in machine.run(*FINISHED_LADDER[:4], *shared).stderr
    # a rung that is the same as its base, which is not asked for
    same = ("--ladder", "controls", "--rung", "diagonal")
    assert machine.refused(*FINISHED_LADDER[:4], *same, code=1).endswith("no data\n")


def test_resume_continues_with_other_ladders_where_data_cannot_be_prepared(
    finished: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = finished.copy(tmp_path / "copy")
    with Ledger.open(machine.ledger) as ledger:
        for task in ("npDigits", "sDigits"):
            request = LadderRequest(task=task, ladder="nonlinearity", profile="smoke", tune=False, sets={})
            plan = request.plan()
            instance = ledger.add_ladder(plan.ladder.name, task, plan.profile, plan.spec, plan.short_name)
            requests.remember(ledger, instance, request, plan, [0])
            ledger.enqueue(instance.key, final_runs(plan, plan.rungs[0], [0]))
    asked = []

    def fail(places: object, plan: Plan, signals: object) -> None:
        asked.append(plan.recipe.task)
        raise PreparationError("no data")

    monkeypatch.setattr("lrurun.session.preparing.prepare_data", fail)
    assert machine.run("resume", code=1).stderr.count("error: no data\n") == 2
    assert asked == ["npDigits", "sDigits"]


@pytest.mark.slow
def test_a_task_that_raises_queues_nothing(machine: Machine) -> None:
    machine.run("ledger", "migrate")
    machine.run("new", "task", "own")
    file = machine.folder / "own.py"
    file.write_text(
        file.read_text().replace("def fill(writer, report):", "def fill(writer, report):\n            1 / 0")
    )
    said = machine.run("ladder", "own.toml", "--load", "own.py", code=1).stderr
    assert "ZeroDivisionError" in said
    assert machine.json("status")["ladders"] == machine.json("runs")["runs"] == []
    assert "every ladder of this ledger is finished" in machine.run("resume").stderr


@pytest.mark.slow
def test_sigterm_while_preparing_leaves_no_half_data(machine: Machine) -> None:
    slow = machine.folder / "site"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(
        "import sys, time\n"
        "class Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'sklearn': open('preparing', 'w').close(); time.sleep(60)\n"
        "sys.meta_path.insert(0, Slow())\n"
    )
    arguments = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn", "--data-dir", "data")
    process = machine.start(*arguments, env={"PYTHONPATH": str(slow)})
    wait_for((machine.folder / "preparing").exists)
    stop(process, signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert not (machine.folder / "data").exists()
    assert not machine.ledger.exists()  # nothing is asked for before there are data
    machine.run(*arguments)
    assert machine.states() == {"done": 1}


def test_reading_commands_create_nothing(machine: Machine) -> None:
    assert machine.json("runs") == {"schema_version": 1, "runs": []}
    assert machine.json("status") == {"schema_version": 1, "ladders": []}
    machine.run("list")
    machine.run("plan", "sDigits")
    for arguments in (["show", "abc"], ["report", "sDigits"]):
        done = machine.run(*arguments, code=4)
        assert done.stderr.splitlines()[0].startswith("error: ")
        assert done.stderr.splitlines()[1].startswith("hint: ")
    machine.run("ledger", "check", code=4)
    assert list(machine.folder.iterdir()) == []


def test_plan_counts_what_is_done_and_guesses_the_time(finished: Machine) -> None:
    plan = finished.json("plan", *FINISHED_LADDER[1:], "--seeds", "2")
    assert [(row["rung"], row["runs"], row["runs_done"], row["runs_left"]) for row in plan["rungs"]] == [
        (r, 2, 1, 1) for r in FINISHED
    ]
    assert all(row["steps_per_second"] > 0 for row in plan["rungs"])
    assert plan["eta_seconds"] > 0
    verbose = finished.run("plan", "sDigits", "--profile", "smoke", "-v").stdout
    assert "nu_log" in verbose
    assert "recurrent" in verbose


def test_json_is_one_object_with_a_version(finished: Machine) -> None:
    for arguments in (
        ["runs"],
        ["status"],
        ["list"],
        ["plan", "sDigits"],
        ["ledger", "check"],
        ["doctor"],
        ["check", "ladder", "lru"],
    ):
        table = json.loads(finished.run(*arguments, "--json").stdout)
        assert table["schema_version"] == 1


@pytest.mark.slow
def test_closed_pipe_ends_quietly(finished: Machine) -> None:
    read, write = os.pipe()
    os.close(read)
    process = finished.start("report", "sDigits", "--profile", "smoke", stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")

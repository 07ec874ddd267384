"""A whole ladder, from nothing to the table, and everything that can stop it short of a kill."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.machine import LONG, Machine, stop, training, wait_for, workers_of

RUNGS = [
    "tanh-rnn",
    "linear-rnn",
    "diagonal",
    "exponential",
    "stable-exponential",
    "ring-init",
    "gamma-norm",
    "small-phase",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache) -> Machine:
    """A finished smoke ladder."""
    machine = Machine(tmp_path_factory.mktemp("finished"), cache)
    machine.run("ladder", "sDigits", "--profile", "smoke")
    return machine


def test_smoke_ladder_fills_table_and_ledger(finished: Machine) -> None:
    report = finished.json("report", "sDigits", "--profile", "smoke")
    assert [row["rung"] for row in report["rows"]] == RUNGS
    runs = {run["id"]: run for run in finished.json("runs")["runs"]}
    assert len(runs) == 8
    for row in report["rows"]:
        assert row["n"] == 1
        [run] = [runs[i] for i in row["runs"]]
        assert run["state"] == "done"
        assert run["step"] == run["steps"] == 60
        assert row["mean"] == run["metrics"]["test/accuracy"]
        assert row["parameters"] == run["parameters"]
        assert row["p_value"] is None
    assert {claim["verdict"] for claim in report["claims"]} == {"undecided"}
    status = finished.json("status")["ladders"]
    assert [(s["ladder"], s["task"], s["profile"], s["total"], s["done"]) for s in status] == [
        ("lru", "sDigits", "smoke", 8, 8)
    ]
    # a pipe gets every column, however narrow
    title, headers, *lines, last = finished.run("status", env={"COLUMNS": "40"}).stdout.splitlines()
    assert (title, last) == ("ladder lru on sDigits, profile smoke", "8 of 8 done")
    assert re.sub(" {2,}", "|", headers) == "rung|runs|state|steps|loss|last val %|steps/s|left"
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
    before = finished.history()
    script = (
        "import sys; from lrurun.__main__ import run; code = run(sys.argv[1:]); "
        "assert 'jax' not in sys.modules; sys.exit(code)"
    )
    words = ["ladder", "sDigits", "--profile", "smoke"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=finished.folder,
        env=finished.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "nothing to do" in done.stderr
    assert done.stdout == finished.run("report", "sDigits", "--profile", "smoke").stdout
    assert finished.history() == before
    assert all(len(attempts) == 1 for attempts in finished.attempts().values())


def test_same_command_on_another_machine_gives_the_same_bits(finished: Machine, machine: Machine) -> None:
    machine.run(
        "ladder", "sDigits", "--profile", "smoke", "--rung", "gamma-norm", "--jobs", "1", prefix=("taskset", "-c", "0")
    )
    key = ("gamma-norm", "train", 0)
    assert machine.history()[key] == finished.history()[key]


def test_rungs_and_seeds_say_how_much_now(machine: Machine) -> None:
    words = ("ladder", "sDigits", "--profile", "smoke")
    machine.run(*words, "--rung", "diagonal", "--seeds", "2,4")
    assert set(machine.history()) == {("diagonal", "train", 2), ("diagonal", "train", 4)}
    machine.run(*words, "--rung", "diagonal", "--seeds", "3")
    report = machine.json("report", "sDigits", "--profile", "smoke")
    assert {row["rung"]: row["n"] for row in report["rows"]} == {rung: 4 if rung == "diagonal" else 0 for rung in RUNGS}
    assert len(machine.json("status")["ladders"]) == 1


def test_fresh_sets_the_old_runs_aside(machine: Machine) -> None:
    words = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn")
    machine.run(*words)
    [old] = machine.json("runs")["runs"]
    machine.run(*words, "--fresh")
    new, kept = machine.json("runs")["runs"]
    assert (new["id"], new["superseded"]) == (old["id"] + "-2", False)
    assert (kept["id"], kept["superseded"]) == (old["id"], True)
    assert new["metrics"]["test/accuracy"] == old["metrics"]["test/accuracy"]
    rows = machine.json("report", "sDigits", "--profile", "smoke")["rows"]
    assert rows[0]["runs"] == [new["id"]]


def test_tuning_chooses_on_validation_and_stays_out_of_the_table(machine: Machine) -> None:
    machine.run("ladder", "sDigits", "--profile", "smoke", "--rung", "linear-rnn", "--rung", "diagonal", "--tune")
    runs = machine.json("runs")["runs"]
    for rung in ("linear-rnn", "diagonal"):
        tuned = [r for r in runs if r["rung"] == rung and r["stage"] == "tune"]
        assert len(tuned) == 2
        assert all(r["seed"] == 1000 and "test/accuracy" not in r["metrics"] for r in tuned)
        rates = {r["metrics"]["val/accuracy"]: machine.json("show", r["id"])["config"]["optim"]["lr"] for r in tuned}
        [final] = [r for r in runs if r["rung"] == rung and r["stage"] == "train"]
        shown = machine.json("show", final["id"])
        assert shown["config"]["optim"]["lr"] == rates[max(rates)]
        assert shown["provenance"]["optim.lr"] == "tuned on validation"
    machine.run("report", "sDigits", "--profile", "smoke", code=4)  # the plain instance was never run
    rows = machine.json("report", "sDigits", "--profile", "smoke", "--tune")["rows"]
    assert {row["rung"]: row["n"] for row in rows if row["n"]} == {"linear-rnn": 1, "diagonal": 1}
    assert (
        "nothing to do"
        in machine.run(
            "ladder", "sDigits", "--profile", "smoke", "--rung", "linear-rnn", "--rung", "diagonal", "--tune"
        ).stderr
    )


def test_other_ladder_shares_the_runs_it_has_in_common(machine: Machine) -> None:
    words = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn")
    machine.run(*words)
    out = machine.run(*words, "--ladder", "nonlinearity")
    assert "nothing to do" in out.stderr
    [run] = machine.json("runs")["runs"]
    assert [(m["ladder"], m["rung"]) for m in run["ladders"]] == [("lru", "tanh-rnn"), ("nonlinearity", "tanh-rnn")]


def test_diverged_run_is_a_result(machine: Machine) -> None:
    sets = [
        "--set",
        "optim.lr=10",
        "--set",
        "model.norm=layer",
        "--set",
        "train.steps=600",
        "--set",
        "train.eval_every=600",
    ]
    words = ("ladder", "sDigits", "--profile", "smoke", "--rung", "linear-rnn", *sets)
    machine.run(*words)
    [run] = machine.json("runs")["runs"]
    assert run["state"] == "diverged"
    assert 0 < run["step"] < 600
    assert "nothing to do" in machine.run(*words).stderr
    table = machine.run("report", "sDigits", "--profile", "smoke", *sets).stdout
    assert "1 diverged" in table


def test_failed_run_is_tried_three_times_and_again_by_the_next_command(machine: Machine) -> None:
    """A run that raises keeps its traceback; exit code 3; mended, the same command finishes it."""
    broken = machine.folder / "site"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'lrurun.train': raise RuntimeError('a broken machine')\n"
        "sys.meta_path.insert(0, Refuse())\n"
    )
    words = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn")
    done = machine.run(*words, code=3, env={"PYTHONPATH": str(broken)})
    [run] = machine.json("runs")["runs"]
    assert run["state"] == "failed"
    assert f"run {run['id']} (tanh-rnn, seed 0): RuntimeError: a broken machine" in done.stderr
    assert len(machine.attempts()[run["id"]]) == 3
    assert "Traceback" in machine.json("show", run["id"])["error"]
    machine.run(*words)
    [run] = machine.json("runs")["runs"]
    assert run["state"] == "done"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
    ],
)
def test_signal_in_training_saves_and_the_same_command_goes_on(
    number: signal.Signals, code: int, machine: Machine, long_history
) -> None:
    words = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--rung", "ring-init")
    process = machine.start(*words)
    wait_for(training(machine, step=60))
    stop(process, number)
    _, err = process.communicate(timeout=10)
    assert process.returncode == code, err
    states = machine.states()
    assert "running" not in states
    assert states.get("interrupted", 0) >= 1
    before = {i: [a.n for a in attempts] for i, attempts in machine.attempts().items()}
    machine.run(*words, "--jobs", "1", prefix=("taskset", "-c", "0"))
    assert machine.history() == {
        key: value for key, value in long_history.items() if key[0] in ("gamma-norm", "ring-init")
    }
    resumed = [a for i, attempts in machine.attempts().items() for a in attempts if a.n > len(before.get(i, [])) > 0]
    assert any(a.resumed_from for a in resumed), "something was saved, and used"


@pytest.mark.slow
def test_packed_seeds_are_runs_of_their_own(machine: Machine, long_history) -> None:
    """Trained in one program, stopped, and finished one by one: near those that never were packed, and said to be."""
    words = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--seeds", "2")
    process = machine.start(*words, "--pack", "2")
    wait_for(training(machine, step=60))
    stop(process, signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 143, err
    first = machine.attempts()
    packed = [attempts[0].environment.get("packed") for attempts in first.values()]
    assert packed == [2] * len(first)
    assert len(first) >= 2
    machine.run(*words)
    assert set(machine.states()) == {"done"}
    for run, attempts in machine.attempts().items():
        assert attempts[1].resumed_from
        assert "packed" not in attempts[1].environment
        assert "one of 2 runs packed" in machine.run("show", run).stdout
    found, alone = (history["gamma-norm", "train", 0] for history in (machine.history(), long_history))
    one, two = found[4]["train/loss"], alone[4]["train/loss"]
    assert [step for step, _ in one] == [step for step, _ in two]
    # sums in another order differ in their last digits, and training amplifies that as it goes
    np.testing.assert_allclose([loss for _, loss in one[:5]], [loss for _, loss in two[:5]], rtol=1e-3)
    assert found[3]["val/accuracy"] == pytest.approx(alone[3]["val/accuracy"], abs=0.1)


def test_sigterm_while_starting_and_compiling(machine: Machine) -> None:
    """No compiled programs to reuse: the workers are importing or compiling when the signal comes."""
    words = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn")
    process = machine.start(*words, env={"XDG_CACHE_HOME": str(machine.folder / "cold")})
    wait_for(training(machine, step=0))
    stop(process, signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 143
    assert machine.states() == {"interrupted": 1}
    machine.run(*words)
    assert machine.states() == {"done": 1}


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
    words = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn", "--data-dir", "data")
    process = machine.start(*words, env={"PYTHONPATH": str(slow)})
    wait_for((machine.folder / "preparing").exists)
    stop(process, signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 143
    assert not (machine.folder / "data").exists()
    assert not machine.ledger.exists()  # nothing is asked for before there are data
    machine.run(*words)
    assert machine.states() == {"done": 1}


def test_resume_finishes_what_any_command_left(machine: Machine) -> None:
    words = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--seeds", "2")
    process = machine.start(*words, "--jobs", "1")
    wait_for(training(machine, step=60))
    stop(process, signal.SIGINT)
    process.communicate(timeout=10)
    done = machine.run("resume")
    assert machine.states() == {"done": 2}
    assert "gamma-norm" in done.stdout
    assert "nothing to do" in machine.run("resume").stderr


def test_two_terminals_share_the_work(machine: Machine) -> None:
    words = ("ladder", "sDigits", "--profile", "smoke", "--seeds", "2", "--rung", "tanh-rnn", "--rung", "diagonal")
    both = [machine.start(*words, "--jobs", "1") for _ in range(2)]
    outputs = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert machine.states() == {"done": 4}
    assert all(len(attempts) == 1 for attempts in machine.attempts().values())
    assert outputs[0][0] == outputs[1][0]  # the same table


def test_piped_output_is_one_plain_line_an_event(machine: Machine) -> None:
    done = machine.run("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn", env={"FORCE_COLOR": "1"})
    lines = [line for line in done.stderr.splitlines() if "tanh-rnn seed 0" in line]
    assert [line.split(": ")[1].split(",")[0] for line in lines] == ["running", "done"]
    assert "\x1b[?25l" not in done.stderr  # no cursor tricks
    quiet = machine.run("ladder", "sDigits", "--profile", "smoke", "--rung", "linear-rnn", "-q")
    assert quiet.stderr == ""


def test_closed_pipe_ends_quietly(finished: Machine) -> None:
    for words in (
        ["runs"],
        ["report", "sDigits", "--profile", "smoke"],
        ["list"],
        ["show", finished.json("runs")["runs"][0]["id"]],
    ):
        read, write = os.pipe()
        os.close(read)
        process = finished.start(*words, stdout=write)
        os.close(write)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, ""), words


def test_reading_commands_create_nothing(machine: Machine) -> None:
    assert machine.json("runs") == {"schema_version": 1, "runs": []}
    assert machine.json("status") == {"schema_version": 1, "ladders": []}
    machine.run("list")
    machine.run("plan", "sDigits")
    for words in (["show", "abc"], ["report", "sDigits"]):
        done = machine.run(*words, code=4)
        assert done.stderr.splitlines()[0].startswith("error: ")
        assert done.stderr.splitlines()[1].startswith("hint: ")
    machine.run("ledger", "check", code=4)
    assert list(machine.folder.iterdir()) == []


def test_plan_counts_what_is_done_and_guesses_the_time(finished: Machine) -> None:
    plan = finished.json("plan", "sDigits", "--profile", "smoke", "--seeds", "2")
    assert [(row["rung"], row["runs"], row["runs_done"], row["runs_left"]) for row in plan["rungs"]] == [
        (r, 2, 1, 1) for r in RUNGS
    ]
    assert all(row["steps_per_second"] > 0 for row in plan["rungs"])
    assert plan["eta_seconds"] > 0
    verbose = finished.run("plan", "sDigits", "--profile", "smoke", "-v").stdout
    assert "nu_log" in verbose
    assert "recurrent" in verbose


def test_report_formats_carry_the_same_numbers(finished: Machine, tmp_path) -> None:
    words = ("report", "sDigits", "--profile", "smoke")
    rows = finished.json(*words)["rows"]
    for kind in ("table", "md", "csv"):
        text = finished.run(*words, "--format", kind).stdout
        for row in rows:
            start = rf"(\| *|sDigits(,[^,]*){{4}},)?{row['rung']}[ ,]"
            [line] = [line for line in text.splitlines() if re.match(start, line)]
            assert f"{row['mean'] * 100:.2f}" in line or repr(row["mean"]) in line
    finished.run(*words, "--format", "csv", "--out", str(tmp_path / "table.csv"))
    assert (tmp_path / "table.csv").read_text() == finished.run(*words, "--format", "csv").stdout
    done = finished.run(*words, "--out", str(tmp_path / "missing" / "table.md"), code=1)
    assert done.stderr.startswith("error: ")


def test_worker_that_dies_is_replaced(machine: Machine) -> None:
    words = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--jobs", "1")
    process = machine.start(*words)
    wait_for(training(machine, step=60))
    workers_of(process)[0].kill()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "a worker ended with SIGKILL" in err
    [attempts] = machine.attempts().values()
    assert [a.reason for a in attempts] == ["interrupted: owner gone", "done"]


def test_json_is_one_object_with_a_version(finished: Machine) -> None:
    for words in (
        ["runs"],
        ["status"],
        ["list"],
        ["plan", "sDigits"],
        ["ledger", "check"],
        ["doctor"],
        ["check", "ladder", "--all"],
    ):
        table = json.loads(finished.run(*words, "--json").stdout)
        assert table["schema_version"] == 1

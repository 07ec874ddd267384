"""The commands compare, logs and show, on ledgers made without training."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path

import pytest
from msgspec import structs

from lrurun import console
from lrurun.config import plan as planning
from lrurun.config.plan import final_runs
from lrurun.ledger.store import Ledger
from lrurun.ledger.values import ClaimedRun, Run
from lrurun.report.tables import sparkline
from tests.commands.test_where import on_terminal
from tests.harness import results
from tests.harness.commands import answered, said
from tests.harness.machine import Machine, stop
from tests.harness.stores import ME

CODE = {"lrurun": "0.1.0", "commit": "0123456789abcdef"}


def fill(path: Path, rungs: tuple[str, ...] = ("tanh-rnn", "linear-rnn"), seeds: int = 2) -> list[Run]:
    """A finished smoke ladder of sDigits; the score rises by 0.01 from run to run."""
    plan = planning.make("sDigits", ladder="lru", profile="smoke")
    with Ledger.open(path) as ledger:
        key = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec).key
        wanted = [w for r in planning.choose_rungs(plan, rungs) for w in final_runs(plan, r, range(seeds))]
        ledger.enqueue(key, wanted)
        for number in range(len(wanted)):
            claim = ledger.claim(key, ME, environment={"code": CODE})
            assert claim is not None
            ledger.rewind(claim, 0)
            ledger.record(claim, [(step, "train/loss", 2 / step) for step in range(1, 61)], 60)
            ledger.record(claim, [(step, "val/accuracy", step / 100) for step in (30, 60)], 60)
            ledger.describe(claim, parameters=1000, data_sha256="d" * 64)
            score = 0.5 + number / 100
            result = {"test/accuracy": score, "val/accuracy": score, "machine/steps_per_second": 100.0, "best_step": 60}
            ledger.finish(claim, "done", result=result, step=60)
        return ledger.runs()[::-1]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Four finished runs in the working directory: two rungs of two seeds."""
    monkeypatch.chdir(tmp_path)
    return fill(tmp_path / "ledger.db")


# compare


def test_compare_shows_only_differences(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    tanh, _, linear, _ = runs
    code, out, err = said(capsys, "compare", tanh.id[:6], linear.id)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "differences",
        f"path                         {tanh.id}          {linear.id}",
        "rung                         lru/tanh-rnn (train)  lru/linear-rnn (train)",
        "model.recurrence.activation  tanh                  identity",
        "optim.lr                     0.004                 0.032",
        "results",
        f"metric                    {tanh.id}  {linear.id}",
        "best_step                           60            60",
        "machine/steps_per_second           100           100",
        "test/accuracy                      0.5          0.52",
        "val/accuracy                       0.5          0.52",
    ]
    assert answered(capsys, "compare", tanh.id, runs[1].id, tanh.id) == {
        "schema_version": 1,
        "runs": [tanh.id, runs[1].id],
        "differs": [{"path": "seed", "values": [0, 1]}],
        "results": [
            {"metric": "best_step", "values": [60, 60]},
            {"metric": "machine/steps_per_second", "values": [100.0, 100.0]},
            {"metric": "test/accuracy", "values": [0.5, 0.51]},
            {"metric": "val/accuracy", "values": [0.5, 0.51]},
        ],
    }


def test_compare_shows_execution_code_and_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = []
    with Ledger.open("ledger.db") as ledger:
        for sets, code, data, value in (
            ({}, "a", "d", 0.5),
            ({"execution.threads": 2, "optim.lr": 0.5}, "b\x1b[31m", "e", math.nan),
        ):
            plan = planning.make("sDigits", ladder="lru", profile="smoke", sets=sets)
            key = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec).key
            ledger.enqueue(key, final_runs(plan, plan.rungs[0], [0]))
            claim = ledger.claim(key, ME, environment={"code": code})
            assert claim is not None
            ledger.describe(claim, data_sha256=data)
            ledger.finish(claim, "done", result={"val/accuracy": value})
            made.append(claim.run.id)
    table = answered(capsys, "compare", *made)
    assert {one["path"]: one["values"] for one in table["differs"]} == {
        "optim.lr": [planning.make("sDigits", ladder="lru", profile="smoke").rungs[0].config.optim.lr, 0.5],
        "execution.threads": [1, 2],
        "code": ["a", "b\x1b[31m"],
        "data_sha256": ["d", "e"],
    }
    assert table["results"] == [{"metric": "val/accuracy", "values": [0.5, None], "finite": False}]
    assert "\x1b" not in said(capsys, "compare", *made)[1]


def test_compare_refuses_one_run_and_unknown_ones(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    one = runs[0].id
    alone = f"error: compare: found only run {one}\nhint: name a different run to compare it with\n"
    assert said(capsys, "compare", one) == (2, "", alone)
    assert said(capsys, "compare", one, one[:8]) == (2, "", alone)
    unknown = "error: no run 'zz' in this ledger\nhint: see `lrurun runs`\n"
    assert said(capsys, "compare", one, "zz") == (4, "", unknown)
    assert said(capsys, "compare", one, "zz", "--ledger", "none.db") == (
        4,
        "",
        f"error: run '{one}': there is no ledger at none.db\nhint: name one with --ledger PATH\n",
    )


def test_compare_of_equal_runs(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    with Ledger.open("ledger.db") as ledger:
        plan = planning.make("sDigits", ladder="lru", profile="smoke")
        ledger.enqueue(ledger.ladders()[0].key, final_runs(plan, plan.rungs[0], [0]), fresh=True)
        claim = ledger.claim(ledger.ladders()[0].key, ME, environment={"code": CODE})
        assert claim is not None
        ledger.describe(claim, data_sha256="d" * 64)
        ledger.finish(claim, "done")
    code, out, err = said(capsys, "compare", runs[0].id, f"{runs[0].id}-2")
    assert (code, err) == (0, "the runs differ only in their results\n")
    assert out.startswith("results\n")


# logs


def write_log(run: str, attempt: int, text: str) -> Path:
    folder = Path("runs") / run / str(attempt)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
    return folder / "log.txt"


def begin(ledger: Ledger, key: str) -> ClaimedRun:
    claim = ledger.claim(key, ME)
    assert claim is not None
    return claim


@pytest.fixture
def two_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run that was interrupted once and is done."""
    monkeypatch.chdir(tmp_path)
    plan = planning.make("sDigits", ladder="lru", profile="smoke")
    with Ledger.open("ledger.db") as ledger:
        key = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec).key
        [run] = ledger.enqueue(key, final_runs(plan, plan.rungs[0], [0]))
        ledger.finish(begin(ledger, key), "interrupted")
        ledger.requeue([run.id])
        claim = begin(ledger, key)
        ledger.record(claim, [(1, "train/loss", math.nan)], 1)
        ledger.finish(claim, "done", result={"val/accuracy": 0.5}, step=60)
    write_log(run.id, 1, "first\n")
    write_log(run.id, 2, "one\n\x1b[31mtwo [red]\x07\udcff\n\nfour")
    return run.id


def test_logs_are_of_the_newest_attempt_or_of_one(two_attempts: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = two_attempts
    text = "one\ntwo [red]\ufffd\n\nfour\n"
    assert said(capsys, "show", run[:6], "--log") == (0, text, "")
    assert said(capsys, "show", run, "--log", "--attempt", "2") == (0, text, "")
    assert said(capsys, "show", run, "--log", "--attempt", "1") == (0, "first\n", "")
    assert said(capsys, "show", run, "--log", "-f") == (0, text, f"run {run}: done at step 60 of 60\n")
    assert answered(capsys, "show", run, "--log") == {
        "schema_version": 1,
        "run": run,
        "attempt": 2,
        "path": f"runs/{run}/2/log.txt",
        "lines": ["one", "two [red]\ufffd", "", "four"],
    }
    write_log(run, 2, "")
    assert said(capsys, "show", run, "--log") == (0, "", "")
    write_log(run, 2, "x" * 200_000 + "\n" + "y\n" * 100_000)
    assert said(capsys, "show", run, "--log")[1] == "x" * 200_000 + "\n" + "y\n" * 100_000


def test_missing_logs(two_attempts: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = two_attempts
    assert said(capsys, "show", run, "--log", "--attempt", "3") == (
        4,
        "",
        f"error: run {run} has no attempt 3\nhint: it has: 1, 2; without --attempt the newest is shown\n",
    )
    assert said(capsys, "show", run, "--log", "--runs-dir", "elsewhere") == (
        4,
        "",
        f"error: run {run}, attempt 2: no log at elsewhere/{run}/2/log.txt: No such file or directory\n"
        "hint: name the runs folder: --runs-dir DIR\n",
    )
    assert said(capsys, "show", "zz", "--log")[0] == 4
    assert said(capsys, "show", run, "--log", "--ledger", "none.db")[0] == 4
    for arguments in (("-f", "--json"), ("-f", "--attempt", "1"), ("--attempt", "0")):
        assert said(capsys, "show", run, "--log", *arguments)[:2] == (2, "")
    with Ledger.open("ledger.db") as ledger:
        plan = planning.make("sDigits", ladder="lru", profile="smoke")
        [queued] = ledger.enqueue(ledger.ladders()[0].key, final_runs(plan, plan.rungs[0], [1]))
    assert said(capsys, "show", queued.id, "--log") == (
        4,
        "",
        f"error: run {queued.id} has no log: it has not begun\nhint: lrurun status shows which runs are running\n",
    )


@pytest.mark.slow
def test_logs_are_followed_until_the_run_is_over(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(machine.folder)
    plan = planning.make("sDigits", ladder="lru", profile="smoke")
    with Ledger.open("ledger.db") as ledger:
        key = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec).key
        [run] = ledger.enqueue(key, final_runs(plan, plan.rungs[0], [0]))
        process = machine.start("show", run.id, "--log", "--follow")
        out, talk = process.stdout, process.stderr
        assert out is not None
        assert talk is not None
        assert talk.readline() == f"run {run.id} is queued\n"
        first = begin(ledger, key)
        log = write_log(run.id, 1, "begun\nhalf")
        assert out.readline() == "begun\n"
        with log.open("a") as file:
            file.write(" a line\n")
        assert out.readline() == "half a line\n"
        with log.open("a") as file:
            file.write("unfinished")
        process.send_signal(signal.SIGSTOP)  # it sees the run fail and begin again at once: otherwise it would end
        ledger.finish(first, "failed", error="boom")
        ledger.requeue([run.id])
        second = begin(ledger, key)
        process.send_signal(signal.SIGCONT)
        assert out.readline() == "unfinished\n"
        write_log(run.id, 2, "again\n")
        assert out.readline() == "again\n"
        ledger.finish(second, "done", step=60)
        rest, err = process.communicate(timeout=30)
    assert (rest, process.returncode) == ("", 0)
    assert err.splitlines() == ["attempt 2", f"run {run.id}: done at step 60 of 60"]


def test_following_ends_when_the_process_of_the_run_has_exited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = planning.make("sDigits", ladder="lru", profile="smoke")
    with Ledger.open("ledger.db") as ledger:
        key = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec).key
        [run] = ledger.enqueue(key, final_runs(plan, plan.rungs[0], [0]))
        ledger.claim(key, structs.replace(ME, pid=2**22 + 1))
    write_log(run.id, 1, "begun\n")
    assert said(capsys, "show", run.id, "--log", "-f") == (0, "begun\n", f"run {run.id}: interrupted at step 0 of 60\n")


def test_a_follower_is_stopped_with_an_interrupt(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(machine.folder)
    plan = planning.make("sDigits", ladder="lru", profile="smoke")
    with Ledger.open("ledger.db") as ledger:
        key = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec).key
        [run] = ledger.enqueue(key, final_runs(plan, plan.rungs[0], [0]))
        begin(ledger, key)
        write_log(run.id, 1, "begun\n")
        process = machine.start("show", run.id, "--log", "-f")
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        stop(process, signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 130


# Without further arguments


def test_commands_without_arguments_are_about_what_was_begun_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (("report",), ("show",), ("plot", "--out", "a.png")):
        code, _, err = said(capsys, *command)
        assert (code, "there is no ledger at ledger.db yet" in err) == (4, True)
    fill(tmp_path / "ledger.db", seeds=1)
    with Ledger.open("ledger.db") as ledger:
        plan = planning.make("sDigits", ladder="lru", profile="smoke", sets=["optim.lr=0.5"])
        newer = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec, "newer").key
        instance = ledger.ladders()[0].short_name
        [run] = [run.id for run in ledger.runs() if run.id == ledger.latest_run()]
    assert newer != instance
    note = f"the latest instance: --instance {instance}; lrurun status lists all\n"
    assert said(capsys, "report")[::2] == (0, note)
    assert said(capsys, "report")[1] == said(capsys, "report", "--instance", instance)[1]
    assert said(capsys, "plot", "--out", "a.png")[2].startswith(note)
    code, out, err = said(capsys, "show", "--json")
    assert (json.loads(out)["run"]["id"], err) == (run, f"the latest run: {run}; lrurun runs lists all\n")


def test_runs_show_the_settings_that_vary_within_a_rung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "ledger.db", seeds=2)
    assert "optim.lr" not in said(capsys, "runs")[1]
    with Ledger.open("ledger.db") as ledger:
        plan = planning.make("sDigits", ladder="lru", profile="smoke", sets=["optim.lr=0.5"])
        key = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec).key
        ledger.enqueue(key, final_runs(plan, plan.rungs[0], [0]))
    header, first, *_ = said(capsys, "runs")[1].splitlines()
    assert (header.split()[-1], first.split()[-1]) == ("optim.lr", "0.5")
    assert "optim.lr" not in said(capsys, "runs", "--where", "optim.lr=0.5")[1]


# show


def test_show_draws_the_main_curves_and_ends_with_the_log(
    runs: list[Run], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs[0].id
    write_log(run, 1, "".join(f"line {n}\x1b[2J\n" for n in range(20)))
    out = said(capsys, "show", run)[1].splitlines()
    [loss] = [line for line in out if line.startswith("train/loss") and "▁" in line]
    assert loss == "train/loss    █▄▃▂▂▂▂" + "▁" * 53
    [score] = [line for line in out if line.startswith("val/accuracy") and "▁" in line]
    assert score == "val/accuracy  ▁█"
    assert out[-11:] == [f"log, the last lines of runs/{run}/1/log.txt", *(f"line {n}" for n in range(10, 20))]
    monkeypatch.setattr(console, "can_show", lambda text: False)
    plain = said(capsys, "show", run)[1].splitlines()
    assert "train/loss    #-:...." + "_" * 53 in plain
    assert "val/accuracy  _#" in plain


def test_show_has_the_recorded_eigenvalues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ledger.db"
    results.fill(
        path, "sDigits", {"tanh-rnn": [0.5]}, eigenvalues={"start": [0.6 + 0.8j, 0.1j], "end": [complex("nan")]}
    )
    results.fill(path, "sDigits", {"linear-rnn": [0.5]})
    with Ledger.read(path) as ledger:
        old, new = (run.id for run in ledger.runs())
    shown = said(capsys, "show", new, "--ledger", str(path))[1].splitlines()
    at = shown.index("eigenvalues: largest magnitude")
    assert [line.split()[0] for line in shown[at + 1 : at + 4]] == ["layer", "0", "1"]
    assert shown[at + 2].split() == ["0", "1", "nan"]
    values = [line.split()[1] for line in shown if line.startswith(("model.", "optim."))]
    assert "false" in values
    assert not {"True", "False", "None"} & set(values)
    assert shown[at + 3].split() == ["1", "none", "none"]
    assert "eigenvalues: not recorded" in said(capsys, "show", old, "--ledger", str(path))[1]
    table = json.loads(said(capsys, "show", new, "--json", "--ledger", str(path))[1])
    assert table["eigenvalues"] == {
        "start": [[[0.6, 0.8], [0.0, 0.1]], None],
        "end": [[[None, 0.0]], None],
        "finite": False,
    }
    assert json.loads(said(capsys, "show", old, "--json", "--ledger", str(path))[1])["eigenvalues"] == {}


def test_show_in_ascii_and_without_a_log(machine: Machine) -> None:
    [run] = fill(machine.ledger, ("tanh-rnn",), seeds=1)
    done = machine.run("show", run.id, apart=True, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert "val/accuracy  _#\n" in done.stdout
    assert "?" not in done.stdout
    assert "the last lines" not in done.stdout


@pytest.mark.parametrize(
    ("values", "width", "drawn"),
    [
        ([], 10, ""),
        ([1.0], 10, "▁"),
        ([1.0, 1.0], 10, "▁▁"),
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([7, 0], 8, "█▁"),
        ([0, 0, 7, 7], 2, "▁█"),
        ([math.nan, 0, math.inf, 1, -math.inf], 9, "!▁!█!"),
        ([math.nan, math.nan], 9, "!!"),
        ([-1.7e308, 1.7e308], 9, "▁█"),
        ([1, 2, 3], 0, "▁"),
    ],
)
def test_a_sparkline_goes_from_the_least_to_the_most(values: list[float], width: int, drawn: str) -> None:
    assert sparkline.draw(values, width) == drawn


def test_long_curves_fit_any_width() -> None:
    for width in range(1, 200):
        assert len(sparkline.draw(range(1000), width)) == width


# terminals and pipes


def test_narrow_and_wide_terminals_show_everything(machine: Machine) -> None:
    tanh, linear = fill(machine.ledger, seeds=1)
    for columns in (40, 200):
        out, err, code = on_terminal(machine, "compare", tanh.id, linear.id, columns=columns)
        assert (err, code) == ("", 0)
        assert max(map(len, out.splitlines())) <= columns
        assert "\x1b" not in out
        assert ("identity" in out, "0.51" in out) == (True, True)
        assert columns < 100 or "model.recurrence.activation" in out
        out, err, code = on_terminal(machine, "query", "select id, state, seed from runs", columns=columns)
        assert (err, code, out.count("done")) == ("", 0, 2)
        out, err, code = on_terminal(machine, "show", tanh.id, columns=columns)
        assert (err, code) == ("", 0)
        assert max(len(line) for line in out.splitlines() if "█" in line) <= columns


def test_a_closed_pipe_is_not_an_error(machine: Machine) -> None:
    tanh, linear = fill(machine.ledger, seeds=1)
    for run in (tanh, linear):
        folder = machine.runs / run.id / "1"
        folder.mkdir(parents=True)
        (folder / "log.txt").write_text("a line\n" * 100_000)
    for arguments in (
        ["compare", tanh.id, linear.id],
        ["show", tanh.id, "--log"],
        ["show", tanh.id],
        ["show", tanh.id, "--toml"],
        ["ledger", "export"],
    ):
        read, write = os.pipe()
        os.close(read)
        process = machine.start(*arguments, stdout=write)
        os.close(write)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, ""), arguments

"""`lrurun show` and `compare`: curves, logs, what trains a run again, the versions that it ran with, differences."""

from __future__ import annotations

import math
import os
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from packaging.requirements import Requirement

from lrurun import console
from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.config.runs import InstanceSpec, parse_seeds
from lrurun.config.settings import parse_sets
from lrurun.config.tuning import tuning_runs
from lrurun.instances.requests import LadderRequest, recorded, remember
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import HeldRun, Owner, Run
from lrurun.report.tables import sparkline
from lrurun.runner import environment
from tests.harness import results
from tests.harness.machine import Machine
from tests.harness.stores import ME, raw

VERSIONS = {"python": "3.11.7", "jax": "0.10.2", "jaxlib": "0.10.2", "orbax-checkpoint": "0.12.8", "numpy": "2.4.6"}
RELEASE = {
    "threads": 2,
    "versions": VERSIONS,
    "code": {"lrurun": "0.1.0"},
    "device": "cpu",
    "machine": {"cpu": "AMD EPYC"},
}


def enqueue(machine: Machine, rungs: list[str], seed: int = 0, task: str = "sDigits", **options: Any) -> list[Run]:
    plan = planning.make(task, **{"profile": "smoke", **options})
    with Ledger.open(machine.ledger) as ledger:
        key = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec).key
        return ledger.enqueue(
            key, [w for rung in planning.choose_rungs(plan, rungs) for w in final_runs(plan, rung, [seed])]
        )


def held_run(ledger: Ledger, about: dict[str, Any] | None = None, by: Owner = ME) -> HeldRun:
    held = ledger.hold(ledger.ladders()[-1].key, by, environment=about)
    assert held is not None
    return held


def write_log(machine: Machine, run: str, attempt: int, text: str) -> Path:
    file = machine.runs / run / str(attempt) / "log.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    return file


@pytest.fixture
def pair(machine: Machine) -> tuple[str, str]:
    """Two finished runs of a ledger, of the rungs tanh-rnn and linear-rnn."""
    runs = enqueue(machine, ["tanh-rnn", "linear-rnn"])
    with Ledger.open(machine.ledger) as ledger:
        for score in (0.5, 0.52):
            held = held_run(ledger, RELEASE, results.OWNER)
            ledger.rewind(held, 0)
            ledger.record(held, [(step, "train/loss", 2 / step) for step in range(1, 61)], 60)
            ledger.record(held, [(step, "val/accuracy", step / 100) for step in (30, 60)], 60)
            ledger.describe(held, parameters=1000, data_sha256="d" * 64)
            result = {"test/accuracy": score, "val/accuracy": score, "machine/steps_per_second": 100.0, "best_step": 60}
            ledger.finish(held, "done", result=result, step=60)
    return runs[0].id, runs[1].id


def settled(text: str, machine: Machine) -> str:
    """A text without what differs from one session to the next."""
    for volatile, kept in (
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ( +\d+\.\d )?", r"2026-01-01T00:00:00Z"),
        (r"sha256:[0-9a-f]+", "sha256:0123"),
        (r"\b[0-9a-f]{12}\b", "0123456789ab"),
    ):
        text = re.sub(volatile, kept, text)
    return text.replace(str(machine.folder), "HERE")


def test_a_run_is_shown_and_compared(machine: Machine, pair: tuple[str, str], monkeypatch, golden) -> None:
    write_log(machine, pair[0], 1, "".join(f"line {n}\x1b[2J\n" for n in range(12)))
    calls = [("show", pair[0]), ("show", pair[0], "--toml"), ("show", pair[0], "--requirements"), ("compare", *pair)]
    text = "\n".join(machine.run(*words).stdout for words in calls)
    narrow = machine.shown("compare", *pair, width=40)
    assert max(map(len, narrow.splitlines())) <= 40
    monkeypatch.setattr(console, "can_show", lambda text: False)
    text += f"\n{narrow}\n" + "".join(
        line
        for line in machine.run("show", pair[0]).stdout.splitlines(keepends=True)
        if "_" * 9 in line or "_#" in line
    )
    golden("show.txt", settled(text, machine))


def test_eigenvalues_are_shown(machine: Machine) -> None:
    moments = {"start": [0.6 + 0.8j, 0.1j], "end": [complex("nan")]}
    results.fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5]}, eigenvalues=moments)
    results.fill(machine.ledger, "sDigits", {"linear-rnn": [0.5]})
    old, new = (run["id"] for run in machine.json("runs")["runs"])
    lines = machine.run("show", new).stdout.splitlines()
    at = lines.index("eigenvalues: largest magnitude")
    assert [line.split() for line in lines[at + 2 : at + 4]] == [["0", "1", "nan"], ["1", "none", "none"]]
    assert "eigenvalues: not recorded" in machine.run("show", old).stdout
    found = machine.json("show", new)["eigenvalues"]
    assert found == {"start": [[[0.6, 0.8], [0.0, 0.1]], None], "end": [[[None, 0.0]], None], "finite": False}
    assert machine.json("show", old)["eigenvalues"] == {}


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
        ([-1.7e308, 1.7e308], 9, "▁█"),
        ([1, 2, 3], 0, "▁"),
    ],
)
def test_a_sparkline_goes_from_the_least_to_the_most(values: list[float], width: int, drawn: str) -> None:
    assert sparkline.draw(values, width) == drawn
    assert [len(sparkline.draw(range(1000), width)) for width in range(1, 99, 7)] == list(range(1, 99, 7))


def test_commands_without_arguments_are_about_what_was_begun_last(machine: Machine, pair: tuple[str, str]) -> None:
    for words in (("report",), ("show",), ("plot", "--out", "a.png")):
        assert "there is no ledger at no.db yet" in machine.refused(*words, "--ledger", "no.db", code=4)
    with Ledger.open(machine.ledger) as ledger:
        spec = planning.make("sDigits", profile="smoke", sets={"optim.lr": 0.5}).spec
        ledger.add_ladder("lru", "sDigits", "smoke", spec, "newer")
        begun = [attempt for run in ledger.runs() for attempt in ledger.attempts(run.id)]
        run = max(begun, key=lambda attempt: attempt.started_at).run
        instance = ledger.ladders()[0].short_name
    done = machine.run("report")
    assert done.stderr == f"the latest instance: --instance {instance}; lrurun status lists all\n"
    assert done.stdout == machine.run("report", "--instance", instance).stdout
    done = machine.run("show", "--json")
    assert f'"id": "{run}"' in done.stdout
    assert done.stderr == f"the latest run: {run}; lrurun runs lists all\n"


# compare


def test_compare_has_execution_code_and_data(machine: Machine) -> None:
    rate = planning.make("sDigits", profile="smoke").rungs[0].config.optim.lr
    made = []
    for sets, code, data, value in (
        ({}, "a", "d", 0.5),
        ({"execution.threads": 2, "optim.lr": 0.5}, "b\x1b[31m", "e", math.nan),
    ):
        made += [run.id for run in enqueue(machine, ["tanh-rnn"], sets=sets)]
        with Ledger.open(machine.ledger) as ledger:
            held = held_run(ledger, {"code": code})
            ledger.describe(held, data_sha256=data)
            ledger.finish(held, "done", result={"val/accuracy": value})
    found = machine.json("compare", *made)
    assert {one["path"]: one["values"] for one in found["differs"]} == {
        "optim.lr": [rate, 0.5],
        "execution.threads": [1, 2],
        "code": ["a", "b\x1b[31m"],
        "data_sha256": ["d", "e"],
    }
    assert found["results"] == [{"metric": "val/accuracy", "values": [0.5, None], "finite": False}]
    assert "\x1b" not in machine.run("compare", *made).stdout


def test_compare_of_equal_unknown_and_single_runs(machine: Machine, pair: tuple[str, str]) -> None:
    one = pair[0]
    for words, found in (((one,), f"only {one}"), ((one, one[:8]), f"{one} and {one[:8]}, which are one run")):
        assert machine.refused("compare", *words) == (
            f"error: compare: expected two runs, found {found}\n"
            "hint: name another run beside it, as in lrurun compare RUN RUN; lrurun runs lists them\n"
        )
    assert "no run 'zz' in this ledger" in machine.refused("compare", one, "zz", code=4)
    assert "there is no ledger at none.db" in machine.refused("compare", one, "zz", "--ledger", "none.db", code=4)
    plan = planning.make("sDigits", profile="smoke")
    with Ledger.open(machine.ledger) as ledger:
        ledger.enqueue(ledger.ladders()[0].key, final_runs(plan, plan.rungs[0], [0]), fresh=True)
        held = held_run(ledger, RELEASE)
        ledger.describe(held, data_sha256="d" * 64)
        ledger.finish(held, "done")
    done = machine.run("compare", one, f"{one}-2")
    assert done.stderr == "the runs differ only in their results\n"
    assert done.stdout.startswith("results\n")


# Logs


@pytest.fixture
def twice(machine: Machine) -> str:
    """A run that was interrupted once and is done."""
    [run] = enqueue(machine, ["tanh-rnn"])
    with Ledger.open(machine.ledger) as ledger:
        ledger.finish(held_run(ledger), "interrupted")
        ledger.requeue([run.id])
        ledger.finish(held_run(ledger), "done", result={"val/accuracy": 0.5}, step=60)
    write_log(machine, run.id, 1, "first\n")
    write_log(machine, run.id, 2, "one\n\x1b[31mtwo [red]\x07\udcff\n\nfour")
    return run.id


def test_logs_are_of_the_newest_attempt_or_of_one(machine: Machine, twice: str) -> None:
    log, text = ("show", twice, "--log"), "one\ntwo [red]\ufffd\n\nfour\n"
    assert machine.run("show", twice[:6], "--log").stdout == text
    assert machine.run(*log, "--attempt", "1").stdout == "first\n"
    done = machine.run(*log, "-f")
    assert (done.stdout, done.stderr) == (text, f"run {twice}: done at step 60 of 60\n")
    found = machine.json(*log)
    assert (found["attempt"], found["path"]) == (2, f"runs/{twice}/2/log.txt")
    assert found["lines"] == ["one", "two [red]\ufffd", "", "four"]
    write_log(machine, twice, 2, "")
    assert machine.run(*log).stdout == ""
    long = "x" * 200_000 + "\n" + "y\n" * 50_000
    write_log(machine, twice, 2, long)
    assert machine.run(*log).stdout == long


BARS = (
    "begun\n\router:   0%|          | 0/2 [00:00<?, ?it/s]\n"
    "\rinner:   0%|          | 0/9 [00:00<?, ?it/s]\x1b[A"
    + "".join(f"\n\rinner: {k}1%|{'#' * k}{' ' * (10 - k)}| {k}/9 [00:0{k}<00:09, 1.0it/s]\x1b[A" for k in range(10))
    + f"\n\r{' ' * 60}\r\x1b[A"
    + "\router:  50%|#####     | 1/2 [00:09<00:09, 9.0s/it]" * 9000
    + "\n\x1b[2K\rinner: 100%\n"
    + "[1/3] saving\b\b\b\b\b\bdone \x1b[K\r\n\x1b[1mend\x1b[0m"
)
"""Nested bars as tqdm draws them into a file, more than 400,000 characters long, and a line that is written over."""


def test_a_log_is_what_a_terminal_shows_in_the_end(machine: Machine, twice: str) -> None:
    """Of a progress bar the last state, with `--json` and after everything else too; the file stays as it is."""
    log = write_log(machine, twice, 2, BARS)
    lines = ["begun", "outer:  50%|#####     | 1/2 [00:09<00:09, 9.0s/it]", "inner: 100%", "[1/3] done", "end"]
    assert machine.run("show", twice, "--log").stdout.splitlines() == lines
    assert machine.run("show", twice, "--log", "-f").stdout.splitlines() == lines
    assert machine.json("show", twice, "--log")["lines"] == lines
    assert machine.run("show", twice).stdout.splitlines()[-5:] == lines
    assert log.read_text(newline="") == BARS


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ("--attempt 3", 4, "has no attempt 3\nhint: it has: 1, 2;"),
        ("--runs-dir elsewhere", 4, "attempt 2: no log at elsewhere/"),
        ("--ledger none.db", 4, "there is no ledger at none.db"),
        ("-f --json", 2, "exclude each other"),
        ("-f --attempt 1", 2, "exclude each other"),
        ("--attempt 0", 2, "of at least 1, found '0'"),
    ],
)
def test_missing_logs(machine: Machine, twice: str, words: str, code: int, error: str) -> None:
    assert error in machine.refused("show", twice, "--log", *words.split(), code=code)


def test_a_run_that_has_not_begun_or_whose_process_is_gone(machine: Machine) -> None:
    [run] = enqueue(machine, ["tanh-rnn"])
    assert "has no log: it has not begun" in machine.refused("show", run.id, "--log", code=4)
    with Ledger.open(machine.ledger) as ledger:
        held_run(ledger, by=structs.replace(ME, pid=2**22 + 1))
    write_log(machine, run.id, 1, "begun\n")
    done = machine.run("show", run.id, "--log", "-f")
    assert (done.stdout, done.stderr) == ("begun\n", f"run {run.id}: interrupted at step 0 of 60\n")


@pytest.mark.slow
def test_logs_are_followed_until_the_run_is_over(machine: Machine) -> None:
    [run] = enqueue(machine, ["tanh-rnn"])
    with Ledger.open(machine.ledger) as ledger:
        process = machine.start("show", run.id, "--log", "--follow")
        out, talk = process.stdout, process.stderr
        assert out is not None
        assert talk is not None
        assert talk.readline() == f"run {run.id} is queued\n"
        first = held_run(ledger)
        log = write_log(machine, run.id, 1, "begun\nhalf")
        assert out.readline() == "begun\n"
        with log.open("a") as file:
            file.write(" a line\n")
        assert out.readline() == "half a line\n"
        with log.open("a") as file:
            file.write("".join(f"outer {k}\ninner {k}\x1b[A\r" for k in range(9)) + "\n\n")
        assert [out.readline(), out.readline()] == ["outer 8\n", "inner 8\n"]
        with log.open("a") as file:
            file.write("unfinished")
        process.send_signal(signal.SIGSTOP)  # it sees the run fail and begin again at once: otherwise it would end
        ledger.finish(first, "failed", error="boom")
        ledger.requeue([run.id])
        second = held_run(ledger)
        process.send_signal(signal.SIGCONT)
        assert out.readline() == "unfinished\n"
        write_log(machine, run.id, 2, "again\n")
        assert out.readline() == "again\n"
        ledger.finish(second, "done", step=60)
        rest, err = process.communicate(timeout=30)
    assert (rest, process.returncode) == ("", 0)
    assert err.splitlines() == ["attempt 2", f"run {run.id}: done at step 60 of 60"]


@pytest.mark.slow
def test_a_closed_pipe_is_not_an_error(machine: Machine, twice: str) -> None:
    write_log(machine, twice, 2, "a line\n" * 100_000)
    read, write = os.pipe()
    os.close(read)
    process = machine.start("show", twice, "--log", stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


# --toml


def again(text: str, file: Path) -> tuple[str, dict[str, object]]:
    """Fingerprint and execution of what the command in the text's comment would train, once the text is in a file."""
    file.write_text(text)
    words = shlex.split(text.splitlines()[1].removeprefix("# ").replace("FILE.toml", str(file)))
    pairs = list(zip(words[3::2], words[4::2], strict=True))
    options, sets = dict(pairs), [value for name, value in pairs if name == "--set"]
    asked = LadderRequest(
        task=words[2],
        ladder=options["--ladder"],
        profile=options.get("--profile"),
        rungs=[],
        seeds=options["--seeds"],
        tune=False,
        sets=parse_sets(sets),
    )
    plan = asked.plan()
    [wanted] = final_runs(plan, plan.rungs[0], parse_seeds(options["--seeds"]))
    return wanted.fingerprint, wanted.execution


@pytest.mark.parametrize(
    ("task", "rungs", "options"),
    [
        ("sDigits", ["small-phase"], {"sets": {"optim.lr": 1, "model.dropout": 0.3}, "profile": None}),
        ("sDigits", ["relu-rnn"], {"ladder": "nonlinearity", "sets": {"execution.threads": 2}}),
        ("sCIFAR", ["gamma-0.9-0.999"], {"ladder": "stability", "profile": None}),
        ("sDigits", ["gamma-norm"], {"sets": {"optim.warmup_steps": 3}}),
        ("sDigits", ["gamma-norm"], {"sets": {"optim.name": "sgd", "optim.schedule": "wsd", "optim.cooldown": 0.4}}),
        ("ListOps", ["exponential"], {"profile": "laptop", "sets": {"optim.floor": 1e-09, "execution.remat": True}}),
    ],
)
def test_the_document_has_the_fingerprint_of_the_run(
    machine: Machine, task: str, rungs: list[str], options: dict[str, Any]
) -> None:
    [run] = enqueue(machine, rungs, 7, task, **options)
    text = machine.run("show", run.id[:8], "--toml").stdout
    file = machine.folder / "again.toml"
    assert again(text, file) == (run.fingerprint, run.execution)
    assert again(text.replace('"train.steps" = ', '"train.steps" = 1'), file)[0] != run.fingerprint


def test_what_cannot_be_trained_again_is_not_printed(machine: Machine) -> None:
    plan = planning.make("sDigits", profile="smoke", tune=True)
    with Ledger.open(machine.ledger) as ledger:
        key = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec).key
        tuning = ledger.enqueue(key, tuning_runs(plan, plan.rungs[:1]))[0]
    assert f"run {tuning.id} is a tuning run" in machine.refused("show", tuning.id, "--toml", code=1)
    [run] = enqueue(machine, ["tanh-rnn"])
    toml = ("show", run.id, "--toml")
    for other in ("--json", "--requirements"):
        assert "exclude each other" in machine.refused(*toml, other)
    machine.refused(*toml, "--ledger", "none.db", code=4)
    raw(machine.ledger, "update ladder_runs set rung = char(27) || '[31m\"x' || char(10) || '[evil]'")
    text = machine.run(*toml).stdout
    assert "\x1b" not in text
    assert again(text, machine.folder / "again.toml")[0] == run.fingerprint
    (machine.folder / "again.toml").unlink()
    other = "select 'another', json_set(config, '$.data.version', 'another') from runs where id = ?"
    raw(machine.ledger, f"insert into documents (sha256, text) {other}", run.id)
    raw(machine.ledger, "update stored_runs set config_id = (select max(id) from documents) where id = ?", run.id)
    assert "the recipe of sDigits has changed its data, or was not found" in machine.refused(*toml, code=1)


def test_the_newest_way_to_execute_the_same_runs_is_repeated(machine: Machine) -> None:
    with Ledger.open(machine.ledger) as ledger:
        instance = ledger.add_ladder("lru", "sDigits", "smoke", InstanceSpec())
        for seeds, devices in (([0], 4), ([0], 2), ([0, 1], 1), ([0], 4), ([0], 4)):
            sets = {"train.steps": 9, "execution.devices": devices}
            asked = LadderRequest(task="sDigits", ladder="lru", profile="smoke", tune=False, sets=sets)
            remember(ledger, instance, asked, asked.plan(), seeds)
        found = recorded(ledger, instance, LadderRequest)
        assert len(ledger.events(ladder_key=instance.key)) == 4
    ways = [("0,1", 1), ("0,", 4)]
    assert [(one.seeds, one.sets["execution.devices"]) for one in found] == ways


# --requirements


def requirements(machine: Machine, *environments: dict[str, Any]) -> tuple[str, dict[str, Requirement]]:
    """The text for a run with an attempt in each of these environments, and what pip would install."""
    [run] = enqueue(machine, ["tanh-rnn"])
    with Ledger.open(machine.ledger) as ledger:
        for found in environments:
            ledger.finish(held_run(ledger, found), "interrupted")
            ledger.requeue([run.id])
    text = machine.run("show", run.id, "--requirements").stdout
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return text, {one.name: one for one in map(Requirement, lines)}


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ({"lrurun": "1.0.0.dev0", "commit": "ae69"}, "# lrurun 1.0.0.dev0: install it from a checkout of commit ae69"),
        ({"lrurun": "0.1.0", "commit": "ae", "dirty": "sha256:ab"}, "commit ae, with uncommitted changes (sha256:ab)"),
        ({"lrurun": "0.2.0+local"}, "# lrurun 0.2.0+local: not a release; its commit is not recorded"),
        ({}, "# lrurun not recorded: not a release; its commit is not recorded"),
    ],
)
def test_other_code_than_a_release_is_named_in_a_comment(machine: Machine, code: dict[str, str], line: str) -> None:
    text, found = requirements(machine, {**RELEASE, "code": code})
    assert f"{line}\n" in text
    assert "lrurun" not in found


def test_earlier_versions_and_accelerators_are_named(machine: Machine) -> None:
    earlier = {**RELEASE, "versions": {**VERSIONS, "jax": "0.9.1", "python": "3.12.1"}}
    text, found = requirements(machine, earlier, {**RELEASE, "device": "NVIDIA H100 80GB HBM3"})
    assert text.endswith("# Attempt 1 had: python 3.12.1, jax 0.9.1\n")
    assert (found["jax"].extras, str(found["jax"].specifier)) == ({"cuda13"}, "==0.10.2")


def test_what_pip_would_take_for_options_or_lines_of_their_own_is_a_comment(machine: Machine) -> None:
    evil = {"--index-url": "http://x", "jax": "0.1\nevil==1", "a b": "1", "numpy": "2.4.6", "x": "1 @ http://y"}
    found = requirements(machine, {**RELEASE, "versions": evil})[1]
    assert {name: str(one.specifier) for name, one in found.items()} == {"lrurun": "==0.1.0", "numpy": "==2.4.6"}


def test_what_is_recorded_today_are_requirements_and_a_run_without_attempts_has_none(machine: Machine) -> None:
    [run] = enqueue(machine, ["tanh-rnn"])
    assert "no versions are recorded" in machine.refused("show", run.id, "--requirements", code=1)
    today = environment.record(1)
    found = requirements(machine, today)[1]
    versions = {name: f"=={version}" for name, version in today["versions"].items() if name != "python"}
    assert {name: str(one.specifier) for name, one in found.items() if name != "lrurun"} == versions

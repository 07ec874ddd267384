"""Training speeds: which runs a row holds, over which rung it is faster, what is published, and the command."""

from __future__ import annotations

import csv
import re

import msgspec
import pytest
from msgspec import structs

from lrurun.config import planning
from lrurun.config.ladder import TrainingSpeed, load_ladder
from lrurun.config.planning import final_runs
from lrurun.errors import LrurunError
from lrurun.judging.rung_runs import Note
from lrurun.ledger.ledger import Ledger
from lrurun.report import formats
from tests.harness import configs
from tests.harness.machine import Machine
from tests.harness.reports import make_run
from tests.harness.results import OWNER
from tests.harness.speeds import H100, HERE, MADE, MINI, XEON, body, build, document, runs_of

# Which runs a row holds


def test_a_row_holds_the_runs_of_a_rung_on_one_device_and_a_speedup_stays_on_it() -> None:
    rows = document(build())["rows"]
    found = [
        (r["rung"], r["device"], r["n"], r["steps_per_second"], r["stderr"], r["speedup"], r["runs"]) for r in rows
    ]
    assert found == [
        ("tanh-rnn", "Xeon", 3, 12.0, pytest.approx(1.1547005), 1.0, ["t0", "t1", "t2"]),
        ("diagonal", None, 0, None, None, None, []),
        ("lru", "Xeon", 2, 40.0, pytest.approx(10.0), pytest.approx(3.3333333), ["l0", "l2"]),
        # the first rung with runs on this device, and one run has no spread
        ("lru", "NVIDIA H100", 1, 600.0, None, 1.0, ["l1"]),
    ]


@pytest.mark.parametrize(
    ("execution", "environment", "field", "value"),
    [
        ({"threads": 2}, {}, "threads", 2),
        ({"steps_per_dispatch": 50}, {}, "steps_per_dispatch", 50),
        ({}, {"packed": 4}, "packed", 4),
        ({}, {"machine": {"cpu": "EPYC"}}, "device", "EPYC"),
    ],
)
def test_a_mean_never_mixes_settings(execution, environment, field, value) -> None:
    made = [
        ("a", "tanh-rnn", 10.0, XEON),
        ("b", "tanh-rnn", 30.0, XEON | environment),
        ("c", "lru", 90.0, XEON | environment),
    ]
    runs = runs_of(made)
    runs[1:] = [
        structs.replace(run, settings=structs.replace(run.settings, execution=configs.execution(HERE | execution)))
        for run in runs[1:]
    ]
    rows = document(build(made, runs))["rows"]
    assert [(r["rung"], r["steps_per_second"], r["speedup"]) for r in rows if r["n"]] == [
        ("tanh-rnn", 10.0, 1.0),
        ("tanh-rnn", 30.0, 1.0),
        ("lru", 90.0, 3.0),
    ]
    assert [r[field] for r in rows] == [rows[0][field], value, None, value]
    assert rows[0][field] != value
    # a value that differs has a column; a value that all rows share is printed once
    table = formats.render(build(made, runs), "table")
    name = field.replace("steps_per_dispatch", "steps a dispatch")
    assert f"Speed-up: over tanh-rnn of the same {name}, with " in table
    assert re.search(rf"speed-up +{name}", table)
    [shared] = [line for line in table.split("\n") if line.startswith("All runs: ")]
    assert f"{name} " not in shared


@pytest.mark.parametrize(
    ("environment", "device", "shown"),
    [
        (XEON, "Xeon", "device Xeon, "),
        ({"device": "cpu"}, "cpu", "device cpu, "),
        (H100 | {"machine": {"cpu": "Xeon"}}, "NVIDIA H100", "device NVIDIA H100, "),
        ({}, None, ""),
    ],
)
def test_a_cpu_is_named_by_its_model_and_what_is_not_recorded_is_not_guessed(environment, device, shown) -> None:
    report = build([("a", "tanh-rnn", 10.0, environment)])
    assert document(report)["rows"][0]["device"] == device
    assert f"\nAll runs: {shown}threads 1, steps a dispatch 25.\n" in formats.render(report, "table")
    if device is None:
        report = build([("a", "tanh-rnn", 10.0, environment), ("b", "tanh-rnn", 10.0, XEON)])
        assert "not recorded" in body(report)


def test_runs_without_a_speed_tuning_runs_and_those_of_others_do_not_count() -> None:
    runs = [
        *runs_of([("a", "tanh-rnn", 10.0, XEON), ("b", "tanh-rnn", None, XEON), ("c", "tanh-rnn", float("inf"), XEON)]),
        make_run("d", "tanh-rnn", 3, 0.5, speed=99.0, state="diverged"),
        make_run("e", "tanh-rnn", 1000, 0.5, speed=99.0, stage="tune"),
        make_run("f", "tanh-rnn", 0, 0.5, speed=99.0, key="another instance"),
    ]
    report = build([("a", "tanh-rnn", 10.0, XEON)], runs)
    assert report.rows[0].runs == ("a",)
    assert report.notes == (
        Note("tanh-rnn: 2 runs not counted, for lack of a finite machine/steps_per_second", ("b", "c")),
    )


def test_runs_of_unequal_data_are_refused() -> None:
    runs = runs_of(MADE)
    runs[1] = msgspec.structs.replace(runs[1], data_sha256="b" * 64)
    with pytest.raises(LrurunError, match="trained on unequal data"):
        build(runs=runs)


def test_a_rung_of_the_same_settings_has_the_runs_of_the_one_that_it_changes() -> None:
    report = build(MADE[:3], same_as_base={"diagonal"})
    rows = document(report)["rows"]
    assert [(r["runs"], r["speedup"], r["same_as_before"]) for r in rows] == [
        (["t0", "t1", "t2"], 1.0, False),
        (["t0", "t1", "t2"], 1.0, True),
        ([], None, False),
    ]
    assert report.notes == (Note("diagonal has the settings of tanh-rnn, and these are its runs"),)


def test_hosts_and_code_versions_are_not_hidden() -> None:
    runs = runs_of(MADE)
    runs[1] = msgspec.structs.replace(runs[1], code=("0.2.0 def",))
    report = build(runs=runs, hosts={"l0": "there"})
    assert report.rows[0].code_versions == ("0.1.0 abc", "0.2.0 def")
    table = formats.render(report, "table")
    assert "12.0 ± 1.15 (n=3), 2 code versions" in table
    assert "\nThese runs come from more than one code version: 0.1.0 abc; 0.2.0 def.\n" in table
    assert table.endswith("\nNote: these runs were made on more than one host: here, there")


# Published speeds


def test_published_speedups_are_over_the_first_rung_of_the_same_source_and_device() -> None:
    other = TrainingSpeed(system="LRU", rung="lru", steps_per_second={"sDigits": 7.0}, source="Other", device="A100")
    report = build(ladder=msgspec.structs.replace(MINI, speeds=(*MINI.speeds, other)))
    rows = document(report)["rows"]
    one = {"system": "tanh RNN", "source": "Paper, Table 4", "device": "A100", "value": 2.0, "speedup": 1.0}
    one |= {"relative_time": None}
    lru = one | {"system": "LRU", "value": 15.0, "speedup": 7.5}
    alone = lru | {"source": "Other", "value": 7.0, "speedup": None}
    assert [row["published"] for row in rows] == [[one], [], [lru, alone], [lru, alone]]
    assert document(report)["published_others"] == [one | {"system": "S4D", "value": 13.0, "speedup": 6.5}]
    assert "15.0 (A100) / 7.0 (A100)     7.50× / –" in body(report)
    assert "Published: Paper, Table 4, on A100 (tanh-rnn, lru); Other, on A100 (lru)." in formats.render(
        report, "table"
    )


def test_a_task_without_published_speeds_has_no_column_of_them() -> None:
    table = formats.render(build(task="ListOps"), "table")
    assert "its speed-up" not in table
    assert "\nPublished: no speeds for ListOps.\nSpeed-ups depend on the device" in table
    # where the ladder has none at all, there is nothing to compare with
    assert "A100" not in formats.render(build(ladder=msgspec.structs.replace(MINI, speeds=())), "table")


TABLE_4 = """\
sCIFAR ListOps Text Retrieval Pathfinder PathX
tanh-rnn 2.0 1.1 0.5 0.5 2.1 0.14
LRU 15.9 (8x) 2.1 (1.9x) 14.7 (29x) 5.7 (11.4x) 15.5 (7.4x) 2.4 (17x)
S4D 13.5 2.2 10.6 3.0 24.5 2.6
S5 15.9 2.2 14.4 5.7 15.6 2.3"""


def test_the_published_speeds_are_those_of_the_paper() -> None:
    tasks, *lines = [line.split() for line in re.sub(r" \([\d.]+x\)", "", TABLE_4).split("\n")]
    ladder = load_ladder("lru")
    table = {(line[0], task): float(cell) for line in lines for task, cell in zip(tasks, line[1:], strict=True)}
    found = {
        (one.rung if one.rung == "tanh-rnn" else one.system.split()[0], task): value
        for one in ladder.speeds
        for task, value in one.steps_per_second.items()
    }
    assert found == table
    assert {(one.source, one.device) for one in ladder.speeds} == {("Orvieto et al. 2023, Table 4", "A100")}
    # the speed-ups that the paper prints, of the rung that is the whole LRU on the task
    for task, printed in zip(tasks, re.findall(r"\(([\d.]+)x\)", TABLE_4), strict=True):
        rows = document(build([], ladder=ladder, task=task))["rows"]
        [(rung, times)] = [
            (r["rung"], one["speedup"]) for r in rows for one in r["published"] if r["rung"] != "tanh-rnn"
        ]
        assert rung == ("small-phase" if task == "PathX" else "gamma-norm")
        assert times == pytest.approx(float(printed), rel=0.03)


# The command


def test_the_command_prints_the_speeds_of_the_ledger(machine: Machine) -> None:
    """Of the plain sCIFAR ladder: two finished runs of tanh-rnn, one of gamma-norm, one more on another device."""
    plan = planning.make("sCIFAR")
    with Ledger.open(machine.ledger) as opened:
        instance = opened.add_ladder("lru", "sCIFAR", None, plan.spec)
        for rung, seed, steps, where in (
            ("tanh-rnn", 0, 4.0, XEON),
            ("tanh-rnn", 1, 6.0, XEON),
            ("gamma-norm", 0, 20.0, XEON),
            ("gamma-norm", 1, 100.0, H100),
        ):
            [resolved] = planning.choose_rungs(plan, [rung])
            opened.enqueue(instance.key, final_runs(plan, resolved, [seed]))
            # an attempt elsewhere came first: the speed is of the last one
            held = opened.hold(instance.key, OWNER, environment={"device": "elsewhere"})
            assert held is not None
            opened.finish(held, "interrupted")
            opened.requeue([held.run.id])
            held = opened.hold(instance.key, OWNER, environment=where)
            assert held is not None
            opened.describe(held, parameters=1000, data_sha256="d" * 64)
            opened.finish(held, "done", result={"test/accuracy": 0.5, "machine/steps_per_second": steps}, step=1)
    speed = ("report", "sCIFAR", "--speed")
    found = machine.json(*speed)
    shown = [(r["rung"], r["n"], r["steps_per_second"], r["speedup"], r["device"]) for r in found["rows"] if r["n"]]
    assert shown == [
        ("tanh-rnn", 2, 5.0, 1.0, "Xeon"),
        ("gamma-norm", 1, 20.0, 4.0, "Xeon"),
        ("gamma-norm", 1, 100.0, 1.0, "NVIDIA H100"),
    ]
    assert found["rows"][0]["stderr"] == pytest.approx(1.0)
    assert len(found["rows"]) == 9
    lines = machine.run(*speed, "--limit", "2", "--format", "csv").stdout.splitlines()
    assert [line["rung"] for line in csv.DictReader(lines)] == ["tanh-rnn", "linear-rnn"]
    assert machine.run(*speed, "--format", "md", "--out", "speed.md").stdout == ""
    assert (machine.folder / "speed.md").read_text().startswith("### training speed, from a tanh RNN to")
    assert machine.json(*speed, "--instance", found["instance"]) == found


def test_a_ledger_without_the_ladder_names_the_command_that_trains_it(machine: Machine) -> None:
    error = machine.refused("report", "sCIFAR", "--speed", "--ledger", "none.db", code=4)
    assert "none.db: there is no ledger" in error
    assert error.endswith("\nhint: run: lrurun ladder sCIFAR --ledger none.db\n")
    given = ("--ladder", "ssm", "--profile", "laptop", "--set", "train.batch=5", "--set", "train.steps=9", "--tune")
    given = (*given, "--ledger", "none.db")
    error = machine.refused("report", "sCIFAR", *given, code=4)
    assert sorted(error.split("hint: run: lrurun ladder sCIFAR ")[1].split()) == sorted(given)
    with Ledger.open(machine.ledger):
        pass
    error = machine.run("report", "sDigits", "--ladder", "ssm", "--set", "optim.lr=0.1", code=4).stderr
    assert error.endswith("\nhint: run: lrurun ladder sDigits --ladder ssm --set optim.lr=0.1\n")

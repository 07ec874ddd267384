"""`--sweep`, and `report --by`: the instances of a ladder that differ in some settings."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest

from lrurun.config import plan as planning
from lrurun.config.settings import by_paths, sweep_points
from lrurun.errors import UsageError
from lrurun.ledger.store import Ledger
from lrurun.report import instance_documents
from tests.harness import results
from tests.harness.commands import answered, folder, lrurun, said
from tests.harness.machine import Machine
from tests.harness.printed import Page as read

__all__ = ["folder"]  # a fixture


def test_a_sweep_is_every_combination() -> None:
    assert sweep_points([], ["a=1"]) == [["a=1"]]
    assert sweep_points(["optim.lr=0.001, 0.004", "model.pooling=mean,last"], ["train.steps=7"]) == [
        ["train.steps=7", "optim.lr=0.001", "model.pooling=mean"],
        ["train.steps=7", "optim.lr=0.001", "model.pooling=last"],
        ["train.steps=7", "optim.lr=0.004", "model.pooling=mean"],
        ["train.steps=7", "optim.lr=0.004", "model.pooling=last"],
    ]
    # the kind comes first, because the other settings depend on it
    [first, _] = sweep_points(["model.recurrence.r_min=0.1,0.2", "model.recurrence.kind=diagonal"], [])
    assert first == ["model.recurrence.kind=diagonal", "model.recurrence.r_min=0.1"]
    assert sweep_points(['model.glu="full","none"', "model.bidirectional=true"], []) == [
        ["model.glu=full", "model.bidirectional=true"],
        ["model.glu=none", "model.bidirectional=true"],
    ]
    assert by_paths(["optim.lr, train.batch", "model.depth"]) == ("optim.lr", "train.batch", "model.depth")


LIKE = "as in --sweep optim.lr=0.001,0.004"


@pytest.mark.parametrize(
    ("texts", "message", "hint"),
    [
        (["optim.lr"], "--sweep optim.lr: expected path=value,value", LIKE),
        (["=1"], "--sweep =1: expected path=value,value", LIKE),
        (["optim.lr="], "--sweep optim.lr=: expected values, separated by commas", LIKE),
        (["model.glu=full,"], "--sweep model.glu=full,: expected values, separated by commas", LIKE),
        (["optim.rl=1"], "--sweep optim.rl: unknown name", "did you mean 'optim.lr'?"),
        (["optim.lr=0.001,1e-3"], "--sweep optim.lr: 0.001 is named twice", "leave one of them out"),
        (["seed=0,1"], "--sweep seed: seeds are not set this way", "use --seeds 0-4"),
        (
            ["data.length=1,2"],
            "--sweep data.length: settings of the data cannot be set on the command line",
            "write a recipe with a profile for each: [profile.<name>.data]",
        ),
        (
            ["execution.threads=1,2"],
            "--sweep execution.threads: says how runs are executed, and does not distinguish instances of a ladder",
            "set it for all of them: --set execution.threads=V",
        ),
        (
            ["optim.lr=1", "optim.lr=2"],
            "--sweep optim.lr: named twice",
            "give all values at once: --sweep optim.lr=V,V",
        ),
        (
            ["train.steps=1,2"],
            "--set train.steps and --sweep train.steps exclude each other",
            "leave one of them out",
        ),
    ],
)
def test_wrong_sweeps_are_refused(texts: list[str], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        sweep_points(texts, ["train.steps=3"])
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("swept") / "ledger.db"
    small = {"profile": "smoke", "more": {"val/accuracy": 0.2}}
    results.fill(path, "sDigits", {"diagonal": [0.5, 0.6], "gamma-norm": [0.7]}, sets=["optim.lr=0.02"], **small)
    small["more"] = {"val/accuracy": 0.3}
    results.fill(path, "sDigits", {"diagonal": [0.4, 0.5]}, sets=["optim.lr=0.001"], **small)
    results.fill(path, "sDigits", {"diagonal": [0.25]}, **small)
    results.fill(path, "sDigits", {"diagonal": [0.1]}, sets=["train.batch=20", "optim.lr=0.001"], **small)
    results.fill(path, "sDigits", {"diagonal": [0.1]}, tune=True, first=5, **small)
    results.fill(path, "sDigits", {"diagonal": [0.9]}, sets=["optim.lr=0.001"])
    return path


@pytest.fixture
def swept(made, folder):
    """Instances of the ladder lru: two learning rates and a batch made by `--set`, the plain recipe, a tuned one."""
    return shutil.copy(made, folder / "ledger.db")


BY = ("report", "sDigits", "--profile", "smoke", "--by", "optim.lr")

TABLE = """\
from a tanh RNN to the Linear Recurrent Unit, by optim.lr on sDigits, profile smoke, without --tune

rung        optim.lr  test accuracy       val accuracy  parameters  steps/s
──────────  ────────  ──────────────────  ────────────  ──────────  ───────
diagonal       0.001  45.00 ± 5.00 (n=2)       30.00 *       1,000     10.0
diagonal       0.016  25.00 (n=1)              30.00 *       1,000     10.0
diagonal        0.02  55.00 ± 5.00 (n=2)         20.00       1,000     10.0
gamma-norm     0.001  – (n=0)                        –           –        –
gamma-norm      0.02  70.00 (n=1)              20.00 *       1,000     10.0
gamma-norm     0.064  – (n=0)                        –           –        –

Steps/s: median.
"""


def test_instances_are_shown_by_a_setting_in_every_format(swept, capsys) -> None:
    rungs = ("--rung", "diagonal", "--rung", "gamma-norm")
    code, out, err = lrurun(capsys, *BY, *rungs)
    assert (code, err) == (0, "")
    assert out.startswith(TABLE)
    assert "The best validation score of each rung is marked." in out
    found = answered(capsys, *BY, *rungs)
    assert (found["by"], found["set"], found["tune"], len(found["instances"])) == (["optim.lr"], {}, False, 3)
    assert [(row["rung"], row["by"]["optim.lr"], row["n"], row["validation"]) for row in found["rows"]] == [
        *(("diagonal", 0.001, 2, 0.3), ("diagonal", 0.016, 1, 0.3), ("diagonal", 0.02, 2, 0.2)),
        *(("gamma-norm", 0.001, 0, None), ("gamma-norm", 0.02, 1, 0.2), ("gamma-norm", 0.064, 0, None)),
    ]
    assert [row["set"] for row in found["rows"][:3]] == [{"optim.lr": 0.001}, {}, {"optim.lr": 0.02}]
    [first, *_] = csv.DictReader(io.StringIO(said(capsys, *BY, *rungs, "--format", "csv")[1]))
    assert (first["rung"], first["optim.lr"], first["mean"], first["n"]) == ("diagonal", "0.001", "0.45", "2")
    assert "| diagonal | 0.001 | 45.00 ± 5.00 (n=2) | **30.00** |" in said(capsys, *BY, "--format", "md")[1]
    latex = said(capsys, *BY, "--format", "latex")[1]
    assert r"diagonal & 0.001 & 45.00 $\pm$ 5.00 (n=2) & \textbf{30.00} & 1,000" in latex
    assert r"\label{tab:lru-sDigits-smoke-by-optim.lr}" in latex
    page = read(said(capsys, *BY, *rungs, "--format", "html")[1])
    assert page.tables[0][1][:3] == ["diagonal", "0.001", "45.00 ± 5.00 (n=2)"]
    assert [row[0] for row in page.tables[1] if len(row) == 1][:1] == ["diagonal: optim.lr=0.001"]


def test_several_settings_and_values_that_all_instances_share(swept, capsys) -> None:
    found = answered(capsys, *BY, "--by", "train.batch", "--rung", "diagonal")
    assert [tuple(row["by"].values()) for row in found["rows"]] == [(0.001, 20), (0.001, 32), (0.016, 32), (0.02, 32)]
    both = answered(capsys, "report", "sDigits", "--profile", "smoke", "--by", "train.batch,optim.lr", "--limit", "3")
    assert [(row["rung"], tuple(row["by"].values())) for row in both["rows"]][-1] == ("diagonal", (32, 0.02))
    shared = answered(capsys, *BY, "--set", "train.batch=20", "--rung", "diagonal")
    assert (shared["set"], [row["by"] for row in shared["rows"]]) == ({"train.batch": 20}, [{"optim.lr": 0.001}])
    assert shared["label"] == "sDigits, profile smoke, without --tune, train.batch=20"
    # tuning chooses the rate of each rung
    tuned = answered(capsys, *BY, "--tune", "--rung", "diagonal")
    assert [(row["by"], row["n"]) for row in tuned["rows"]] == [({"optim.lr": None}, 1)]
    # a setting that the model of a rung does not have: one row, as the runs are the same
    ring = answered(capsys, "report", "sDigits", "--profile", "smoke", "--by", "model.recurrence.r_min", "--limit", "1")
    assert [row["by"] for row in ring["rows"]] == [{"model.recurrence.r_min": None}]


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (
            ("--set", "optim.lr=0.01"),
            2,
            "--set optim.lr and --by optim.lr exclude each other\nhint: leave one of them out",
        ),
        (("--by", "optim.lr"), 2, "--by optim.lr: named twice\nhint: leave one of them out"),
        (("--by", "optim.rl"), 2, "--by optim.rl: unknown name\nhint: did you mean 'optim.lr'?"),
        (("--speed",), 2, "--by and --speed exclude each other\nhint: leave one of them out"),
        (("--instance", "abc"), 2, "--by and --instance exclude each other\nhint: leave one of them out"),
        (
            ("--set", "model.depth=3"),
            4,
            "ladder lru on sDigits, profile smoke, without --tune, model.depth=3: not in this ledger, with any value "
            "of optim.lr\nhint: this ledger has: ladder lru on sDigits, ",
        ),
    ],
)
def test_wrong_reports_by_settings_are_refused(swept, capsys, arguments, code, error) -> None:
    exit_code, out, err = lrurun(capsys, *BY, *arguments)
    assert (exit_code, out) == (code, "")
    assert err.startswith(f"error: {error}")


def test_reports_by_settings_are_of_one_task_and_need_a_ledger(folder, capsys) -> None:
    assert lrurun(capsys, "report", "--all", "--by", "optim.lr") == (
        2,
        "",
        "error: --all and --by exclude each other\nhint: leave one of them out\n",
    )
    code, _, err = lrurun(capsys, *BY)
    assert (code, err.splitlines()[1]) == (
        4,
        "hint: run: lrurun ladder sDigits --profile smoke --sweep optim.lr=V,V",
    )


def test_instances_on_unequal_data_are_not_compared(swept, capsys) -> None:
    results.fill(
        swept, "sDigits", {"diagonal": [0.5]}, sets=["optim.lr=0.1"], profile="smoke", data="e", about={"source": "s"}
    )
    results.fill(
        swept, "sDigits", {"diagonal": [0.5]}, sets=["optim.lr=0.2"], profile="smoke", data="d", about={"source": "s"}
    )
    code, _, err = lrurun(capsys, *BY)
    assert (code, err.split(":")[1]) == (1, " these instances were trained on unequal data and are never compared")


def test_a_sweep_is_planned(swept, capsys) -> None:
    plan = ("plan", "sDigits", "--profile", "smoke", "--rung", "diagonal", "--seeds", "0-1")
    sweeps = ("--sweep", "optim.lr=0.001,0.002")
    code, out, err = lrurun(capsys, *plan, *sweeps)
    assert (code, err) == (0, "")
    assert [line.split()[:2] for line in out.splitlines()[2:4]] == [["0.001", "2/2"], ["0.002", "0/2"]]
    assert "2 runs remaining: about 0:" in out
    found = answered(capsys, *plan, *sweeps, "--sweep", "train.batch=50,20")
    assert found["sweep"] == {"optim.lr": [0.001, 0.002], "train.batch": [50, 20]}
    assert [one["set"] for one in found["plans"]] == [
        {"optim.lr": lr, "train.batch": batch} for lr in (0.001, 0.002) for batch in (50, 20)
    ]
    assert {"schema_version": 1, **found["plans"][0]} == answered(
        capsys, *plan, "--set", "optim.lr=0.001", "--set", "train.batch=50"
    )
    assert "All runs are finished." in lrurun(capsys, *plan, "--sweep", "optim.lr=0.001")[1]
    # as converted, both are the same number
    assert lrurun(capsys, *plan, "--sweep", "optim.lr=1,1.0") == (
        2,
        "",
        "error: --sweep optim.lr: 1 is named twice\nhint: leave one of them out\n",
    )
    # nothing is trained if any combination is wrong
    code, _, err = lrurun(capsys, "ladder", "sDigits", "--profile", "smoke", "--sweep", "optim.lr=0.1,-1")
    assert (code, err.splitlines()[0]) == (2, "error: --sweep optim.lr: expected a number > 0, found -1")
    assert err.splitlines()[1] == "hint: give it another value: --sweep optim.lr=..."


@pytest.mark.slow
def test_a_sweep_is_trained_and_resumed(machine: Machine) -> None:
    arguments = ("sDigits", "--profile", "smoke", "--rung", "gamma-norm", "--seeds", "0,")
    sweeps = ("--sweep", "optim.lr=0.001,0.004")
    done = machine.run("ladder", *arguments, *sweeps)
    assert [line for line in done.stderr.splitlines() if " of 2: " in line] == [
        "1 of 2: optim.lr=0.001",
        "2 of 2: optim.lr=0.004",
    ]
    assert [line.split()[:2] for line in done.stdout.splitlines()[4:6]] == [
        ["gamma-norm", "0.001"],
        ["gamma-norm", "0.004"],
    ]
    again = machine.run("ladder", *arguments, *sweeps)
    assert again.stdout == done.stdout
    assert again.stderr.count("nothing to do") == 2
    assert "every ladder of this ledger is finished" in machine.run("resume").stderr
    # a run of one of the instances that is not there yet
    machine.run("ladder", *arguments[:-1], "1,", *sweeps, "--time-limit", "1s", code=143)
    machine.run("resume")
    runs = machine.json("runs")["runs"]
    assert {run["state"] for run in runs} == {"done"}
    assert json.dumps(machine.json("report", *arguments[:3], "--by", "optim.lr"))


# `report --ladder` of a ladder whose file is gone


MINE = """\
name = "mine"
title = "two radii"
source = "ours"

[[rung]]
name = "diagonal"
title = "the whole disk"
change = { "model.recurrence.kind" = "diagonal" }

[[rung]]
name = "ring"
title = "a ring"
change = { "model.recurrence.r_min" = 0.9, "model.recurrence.r_max" = 0.99 }
"""


def test_a_ladder_without_its_file_is_reported_as_recorded(folder, capsys) -> None:
    file = folder / "away" / "mine.toml"
    file.parent.mkdir()
    file.write_text(MINE)
    results.fill(folder / "ledger.db", "sDigits", {"diagonal": [0.5]}, ladder="away/mine.toml", profile="smoke")
    report = ("report", "sDigits", "--profile", "smoke", "--rung", "diagonal", "--json")
    code, _, err = said(capsys, *report, "--ladder", "mine")
    assert (code, err.splitlines()[0]) == (2, "error: unknown ladder 'mine'")  # nothing recorded it
    assert said(capsys, *report[:-1], "--ladder", "mine", "--by", "optim.lr")[0] == 2
    with Ledger.open("ledger.db") as ledger:
        [instance] = ledger.ladders("mine")
        plan = planning.make("sDigits", ladder="away/mine.toml", profile="smoke")
        for _ in range(2):
            instance_documents.record(ledger, instance, plan)
        assert [event.kind for event in ledger.events(ladder_key=instance.key)].count("documents") == 1
    wanted = json.loads(said(capsys, *report, "--ladder", "away/mine.toml")[1])
    assert wanted["rows"][0]["n"] == 1
    shutil.rmtree(file.parent)
    for name in ("mine", "away/mine.toml"):
        code, out, err = said(capsys, *report, "--ladder", name)
        assert (code, err) == (
            0,
            f"ladder {name}: as the ledger records it, from {file}; there is no such file here\n",
        )
        assert json.loads(out) == wanted
    assert said(capsys, *report[:-1], "--ladder", "mine", "--by", "optim.lr")[0] == 0


def test_instances_are_found_by_resolved_values(folder, capsys) -> None:
    """`full` is the recipe's own value: `--set` and `--sweep` with it make the instance without it."""
    for glu in ("full", "none"):
        sets = [f"model.glu={glu}"]
        results.fill(folder / "ledger.db", "sDigits", {"diagonal": [0.5]}, profile="smoke", sets=sets)
    report = ("report", "sDigits", "--profile", "smoke", "--rung", "diagonal", "--by", "optim.lr")
    [row] = answered(capsys, *report)["rows"]
    assert (row["set"], row["n"]) == ({}, 1)
    swept = answered(capsys, "plan", "sDigits", "--profile", "smoke", "--sweep", "model.glu=full,none")
    names = [ladder["name"] for ladder in answered(capsys, "status")["ladders"]]
    assert [(plan["name"], plan["set"]) for plan in swept["plans"]] == [
        (names[0], {}),
        (names[1], {"model.glu": "none"}),
    ]
    assert swept["sweep"] == {"model.glu": ["full", "none"]}
    results.fill(folder / "ledger.db", "sDigits", {"diagonal": [0.6, 0.7]}, profile="smoke", first=1)
    results.fill(folder / "ledger.db", "sDigits", {"diagonal": [0.7]}, profile="smoke", sets=["optim.lr=0.5"])
    assert [(row["set"], row["n"]) for row in answered(capsys, *report)["rows"]] == [({}, 3), ({"optim.lr": 0.5}, 1)]


# `report --rung`


def test_reports_of_some_rungs(swept, capsys) -> None:
    report = ("report", "sDigits", "--profile", "smoke", "--set", "optim.lr=0.02")
    whole, found = answered(capsys, *report), answered(capsys, *report, "--rung", "gamma-norm", "--rung", "diagonal")
    assert [row["rung"] for row in found["rows"]] == ["diagonal", "gamma-norm"]
    by_rung = {row["rung"]: row for row in whole["rows"]}
    for row in found["rows"]:
        assert row | {"branches": False} == by_rung[row["rung"]] | {"branches": False}
    # their bases are not among them
    assert [(row["on"], row["branches"]) for row in found["rows"]] == [("linear-rnn", True), ("ring-init", True)]
    assert {claim["rung"] for claim in found["claims"]} <= {"diagonal", "gamma-norm"}
    about = "These sentences are about diagonal, gamma-norm of 8 rungs, without 7 claims about others; p and "
    about += "verdicts count all with results."
    assert found["conclusions"][-1] == about
    text = lrurun(capsys, *report, "--rung", "diagonal")[1]
    assert [line.split()[:2] for line in text.splitlines() if line.startswith("diagonal")] == [
        ["diagonal", "linear-rnn"]
    ]
    page = read(said(capsys, *report, "--rung", "diagonal", "--format", "html")[1])
    assert len(page.tables[0]) == 2
    speeds = answered(capsys, *report, "--rung", "gamma-norm", "--speed")
    assert [(row["rung"], row["n"], row["speedup"]) for row in speeds["rows"]] == [("gamma-norm", 1, 1.0)]
    every = answered(capsys, "report", "--all", "--set", "optim.lr=0.02", "--rung", "diagonal")
    assert [(row["rung"], [cell["n"] for cell in row["cells"]]) for row in every["rows"]] == [("diagonal", [2])]
    code, _, err = lrurun(capsys, *report, "--rung", "diagnal")
    assert (code, err.splitlines()[1].partition("?")[0]) == (2, "hint: did you mean 'diagonal'")

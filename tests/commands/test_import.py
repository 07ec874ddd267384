"""`lrurun import`: what it understands, writes and prints, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sqlite3
import time
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lrurun import trackers
from lrurun.commands.import_runs import KINDS
from tests.harness.machine import Machine
from tests.harness.tables import SCORES, write_csv, write_runs, write_steps

USUAL = ("import", "runs.csv", "--metric", "test_acc", "--by", "norm", "--seed-column", "seed")


def test_a_table_becomes_a_file_and_an_answer(machine: Machine, golden: Any) -> None:
    write_runs(machine.folder / "runs.csv", lr=0.1, test_loss=0.5)
    done = machine.run(*USUAL, apart=True)
    again = machine.run(*USUAL, apart=True)
    by_file = machine.run("import", "runs.toml")
    texts = {
        f"$ lrurun {' '.join(USUAL)}": done.stderr + done.stdout,
        "$ cat runs.toml": (machine.folder / "runs.toml").read_text(),
        "The same command again:": again.stderr,
        "$ lrurun import runs.toml": by_file.stderr,
    }
    golden("import.txt", "\n".join(f"{title}\n{text}" for title, text in texts.items()))
    assert done.stdout == again.stdout == by_file.stdout
    assert machine.run("report", "--instance", "runs").stdout == done.stdout


def test_what_the_kinds_of_the_help_are() -> None:
    assert set(KINDS) == set(trackers.BUILT_IN) - {"frame"}


def test_a_dry_run_prints_the_file_and_writes_nothing(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    before = machine.files()
    text = machine.run(*USUAL, "--dry-run").stdout
    assert machine.files() == before
    machine.run(*USUAL)
    written = (machine.folder / "runs.toml").read_text()
    assert written == text.replace(" --dry-run", "")
    assert machine.run("import", "runs.toml", "--dry-run").stdout == written


def test_the_ledger_has_each_run_as_the_table_has_it(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv", lr=0.1)
    document = machine.json(*USUAL)
    assert document["record"]["new"] == 18
    assert {rung["rung"]: rung["seeds"] for rung in document["rungs"]} == {norm: list(range(6)) for norm in SCORES}
    runs = machine.json("runs", "--columns", "rung,seed,test/acc,settings.norm,settings.lr", "--limit", "0")["runs"]
    found = {(run["rung"], run["seed"]): (run["test/acc"], run["settings.norm"], run["settings.lr"]) for run in runs}
    assert found == {(n, s): (score, n, 0.1) for n, of_norm in SCORES.items() for s, score in enumerate(of_norm)}


def test_an_edited_file_counts_as_it_stands(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    machine.run(*USUAL)
    file = machine.folder / "runs.toml"
    text = file.read_text()
    text = text.replace("where = \"norm = 'batch'\"", "where = \"norm = 'batch' and seed < 4\"")
    file.write_text(text.replace('on = "none"', 'on = "layer"').replace('on = "layer"', 'on = "none"', 1))
    done = machine.run("import", "runs.csv")
    assert "2 runs fit no rung: batch-4, batch-5" in done.stderr
    assert "0 new runs, 0 changed, 16 as they were" in done.stderr
    assert file.read_text() != text
    rungs = machine.json("import", "runs.csv")["rungs"]
    assert [(rung["on"], len(rung["seeds"])) for rung in rungs] == [(None, 6), ("none", 6), ("layer", 4)]


def test_the_report_of_a_task_is_that_of_the_file_as_it_was_last_imported(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    machine.run(*USUAL)
    file = machine.folder / "runs.toml"
    text = file.read_text()
    file.write_text(text.replace("norm = 'batch'", "norm = 'batch' and seed < 4"))
    machine.run("import", "runs.toml")
    assert [row["n"] for row in machine.json("report", "runs")["rows"]] == [6, 6, 4]
    file.write_text(text)
    machine.run("import", "runs.toml")
    assert [row["n"] for row in machine.json("report", "runs")["rows"]] == [6, 6, 6]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metric", "test_loss"], "--metric test_loss: runs.toml, line 11 has metric = test_acc"),
        (["--at", "best"], "--at best: runs.toml, line 15 has at = last"),
        (["--seed-column", "lr"], "--seed-column lr: runs.toml, line 17 has seed = seed"),
        (["--by", "lr"], "has the rungs none, layer, batch, without lr-0.1"),
        (["--by", "norm", "--base", "norm=layer"], "has the rungs none, layer, batch, with other conditions or bases"),
        (["--test-items", "100"], "runs.toml [import] has no test_items"),
    ],
)
def test_options_that_contradict_the_file_are_refused(machine: Machine, options: list[str], message: str) -> None:
    write_runs(machine.folder / "runs.csv", lr=0.1, test_loss=0.5)
    machine.run(*USUAL)
    before = (machine.folder / "runs.toml").read_bytes()
    done = machine.run("import", "runs.csv", *options, code=2)
    assert message in done.stderr
    assert "edit the file, or import under another name: --name NAME" in done.stderr
    assert (machine.folder / "runs.toml").read_bytes() == before


def test_the_same_command_takes_an_edited_file(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv", lr=0.1, val_acc=0.5)
    write_runs(machine.folder / "more.csv", lr=0.1, val_acc=0.5)
    command = (*USUAL, "--base", "norm=layer", "--at", "last")
    machine.run(*command)
    file = machine.folder / "runs.toml"
    text = file.read_text()
    for old, new in {
        'source = ["runs.csv"]': 'source = ["more.csv"]',
        'metric = "test_acc"': 'metric = "val_acc"',
        'seed = "seed"': 'seed = ""',
        "norm = 'batch'": "norm = 'batch' and seed < 4",
    }.items():
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    done = machine.run(*command)
    for kept in (
        "runs.toml, line 8 has source = more.csv, which counts",
        "runs.toml, line 11 has metric = val_acc, which counts",
        'runs.toml, line 17 has seed = "", which counts',
        "has the rungs layer, none, batch, with other conditions or bases, which counts",
        "more.csv: CSV, 18 runs",
        "score: val_acc",
    ):
        assert kept in done.stderr
    assert "has at = " not in done.stderr
    assert file.read_text() == text
    later = machine.run(*command)
    assert "has metric = val_acc, which counts" in later.stderr, "a later import is compared with the same command"
    for other, message in {
        ("--direction", "min"): "--direction min: runs.toml, line 13 has direction = max",
        ("--metric", "lr"): "--metric lr: runs.toml, line 11 has metric = val_acc",
        ("--by", "norm", "--base", "norm=none"): "--by norm: runs.toml, line",
    }.items():
        assert message in machine.run("import", "runs.csv", *other, code=2).stderr


def test_what_a_deleted_file_was_written_by_does_not_count(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv", test_loss=0.5)
    file = machine.folder / "runs.toml"
    for metric in ("test_loss", "test_acc"):
        file.unlink(missing_ok=True)
        machine.run("import", "runs.csv", "--metric", metric, "--by", "norm")
    file.write_text(file.read_text().replace('metric = "test_acc"', 'metric = "test_loss"'))
    assert "which counts" in machine.run(*USUAL[:4]).stderr
    file.write_text(file.read_text().replace('metric = "test_loss"', 'metric = "test_acc"'))
    assert "has metric = test_acc" in machine.run("import", "runs.csv", "--metric", "test_loss", code=2).stderr


def test_an_edited_ladder_file_is_no_edit_of_the_import(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    ladder = machine.folder / "norms.toml"
    rungs = "\n".join(f'[[rung]]\nname = "{norm}"\nwhere = "norm = \'{norm}\'"' for norm in ("none", "layer"))
    ladder.write_text(
        f'name = "norms"\ntitle = "norms"\nsource = ""\n{rungs}\n[[rung]]\nname = "batch"\n'
        'where = "norm = \'batch\'"\non = "none"\n'
    )
    command = ("import", "runs.csv", "--metric", "test_acc", "--ladder", "norms.toml")
    machine.run(*command)
    file = machine.folder / "runs.toml"
    file.write_text(file.read_text().replace("norm = 'batch'", "norm = 'batch' and seed < 4"))
    assert "has the rungs none, layer, batch, which counts" in machine.run(*command).stderr
    ladder.write_text(ladder.read_text().replace("norm = 'batch'", "norm = 'batch' and seed < 3"))
    assert "--ladder norms.toml: runs.toml, line" in machine.run(*command, code=2).stderr


def test_another_source_of_the_same_name_is_refused(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    write_runs(machine.folder / "other" / "runs.csv")
    machine.run(*USUAL)
    done = machine.run("import", "other/runs.csv", code=2)
    assert "other/runs.csv: runs.toml, line 8 has source = runs.csv" in done.stderr
    machine.run("import", "other/runs.csv", "--name", "others")
    assert 'source = ["other/runs.csv"]' in (machine.folder / "others.toml").read_text()


def test_a_file_that_lrurun_did_not_write_stays(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    for text in ('task = "runs"\n', "not toml", ""):
        (machine.folder / "runs.toml").write_text(text)
        done = machine.run(*USUAL, code=2)
        assert "runs.toml: is there already, and is no file of lrurun import" in done.stderr
        assert (machine.folder / "runs.toml").read_text() == text
        assert not machine.ledger.exists()


def test_a_wrong_file_is_reported_with_its_place(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    machine.run(*USUAL)
    file = machine.folder / "runs.toml"
    text = file.read_text()
    file.write_text(text.replace('metric = "test_acc"', 'metrc = "test_acc"'))
    assert "metrc" in machine.run("import", "runs.toml", code=2).stderr
    file.write_text(text.replace("norm = 'layer'", "nrom = 'layer'"))
    done = machine.run("import", "runs.toml", code=2)
    assert "runs.toml, rung layer, where, column 1: unknown name 'nrom'" in done.stderr
    assert "did you mean 'norm'?" in done.stderr
    file.write_text(text.replace("norm = 'layer'", "norm = 'lyer'"))
    done = machine.run("import", "runs.toml", code=2)
    assert "rung layer: no run fits it" in done.stderr
    assert "did you mean 'layer'? values of norm: none, layer, batch" in done.stderr
    file.write_text(text.replace("norm = 'layer'", "norm != 'batch'"))
    done = machine.run("import", "runs.toml", code=2)
    assert "run none-0 fits rung none and rung layer" in done.stderr
    file.write_text(text.partition("[[rung]]")[0])
    assert "has an [import], but no rungs" in machine.run("import", "runs.toml", code=2).stderr


def test_new_runs_are_added_and_changed_ones_supersede(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    machine.run(*USUAL)
    changed = {**SCORES, "layer": (0.9, *SCORES["layer"][1:]), "batch": (*SCORES["batch"], 0.81)}
    write_runs(machine.folder / "runs.csv", changed)
    record = machine.json(*USUAL)["record"]
    assert (record["new"], record["changed"], record["equal"], record["vanished"]) == (1, 1, 17, 0)
    runs = machine.json("runs", "--where", "rung=layer and seed=0")["runs"]
    assert sorted((run["metrics"]["test/acc"], run["superseded"]) for run in runs) == [(0.846, True), (0.9, False)]
    assert machine.json("report", "--instance", "runs")["rows"][1]["n"] == 6


def test_a_run_that_vanished_still_counts(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    machine.run(*USUAL)
    write_runs(machine.folder / "runs.csv", {**SCORES, "batch": SCORES["batch"][:4]})
    done = machine.run(*USUAL)
    assert "2 runs of earlier imports are no longer in the source, and count as before: batch-4, batch-5" in done.stderr
    document = machine.json(*USUAL)
    assert document["record"]["vanished"] == 2
    assert [row["n"] for row in machine.json("report", "--instance", "runs")["rows"]] == [6, 6, 6]
    shutil.move(write_runs(machine.folder / "runs.csv"), machine.folder / "runs.csv")
    assert machine.json(*USUAL)["record"]["vanished"] == 0


def test_runs_without_seeds_keep_their_numbers(machine: Machine) -> None:
    rows = [[f"r{k}", norm, 0.8 + k / 100] for k, norm in enumerate(("a", "b") * 3)]
    write_csv(machine.folder / "runs.csv", ["run", "norm", "test_acc"], rows)
    done = machine.run("import", "runs.csv")
    assert "seeds: no setting has them" in done.stderr
    assert "seeds numbered here" in done.stdout
    ids = {run["id"]: run["seed"] for run in machine.json("runs")["runs"]}
    write_csv(machine.folder / "runs.csv", ["run", "norm", "test_acc"], [["r9", "a", 0.7], *rows])
    assert machine.json("import", "runs.csv")["record"]["equal"] == 6
    after = {run["id"]: run["seed"] for run in machine.json("runs")["runs"]}
    assert {run: after[run] for run in ids} == ids
    assert sorted(after.values()) == [0, 0, 1, 1, 2, 2, 3]


def test_without_its_file_an_import_begins_again(machine: Machine) -> None:
    rows = [[f"r{k}", norm, 0.8 + k / 100] for k, norm in enumerate(("a", "b") * 3)]
    write_csv(machine.folder / "runs.csv", ["run", "norm", "test_acc"], rows)
    machine.run("import", "runs.csv")
    seeds = {run["id"]: run["seed"] for run in machine.json("runs")["runs"]}
    (machine.folder / "runs.toml").unlink()
    write_csv(machine.folder / "runs.csv", ["run", "norm", "test_acc"], [["r9", "a", 0.7], *rows[2:]])
    done = machine.run("import", "runs.csv", "--json")
    record = json.loads(done.stdout)["record"]
    assert (record["new"], record["equal"], record["vanished"]) == (1, 4, 0)
    sentence = "runs was imported before; without runs.toml, it begins again, so that 2 runs that the source no longer"
    assert f"{sentence} has do not count" in done.stderr
    assert "imported before" not in machine.run("import", "runs.csv").stderr
    after = {run["id"]: run["seed"] for run in machine.json("runs")["runs"]}
    assert {run: after[run] for run in seeds} == seeds  # those that have gone stay in the ledger
    assert [row["n"] for row in machine.json("report", "--instance", "runs")["rows"]] == [3, 2]


def test_seeds_are_left_aside_where_that_is_asked_for(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    done = machine.run("import", "runs.csv", "--by", "norm", "--seed-column", "none")
    assert "seeds: the setting seed is left aside, as asked for: the runs of a rung are numbered" in done.stderr


def test_seeds_that_are_none_are_left_out(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    done = machine.run("import", "runs.csv", "--seed-column", "none")
    assert "the runs of a rung are numbered" in done.stderr
    assert "18 as they were" in machine.run("import", "runs.csv", "--seed-column", "none").stderr
    done = machine.run("import", "runs.csv", "--seed-column", "seed", code=2)
    assert '--seed-column seed: runs.toml, line 17 has seed = ""' in done.stderr


def test_curves_are_recorded_and_scores_only_leaves_them_out(machine: Machine) -> None:
    write_steps(machine.folder / "runs.csv")
    options = ("--metric", "test_acc", "--by", "norm", "--at", "last")
    assert machine.json("import", "runs.csv", *options, "--scores-only")["record"]["new"] == 18
    assert _points(machine) == 0
    assert machine.json("import", "runs.csv", *options)["record"]["changed"] == 18
    assert _points(machine) == 18 * 20 * 3
    assert machine.json("import", "runs.csv", *options)["record"]["equal"] == 18
    assert machine.json("import", "runs.csv", *options, "--scores-only")["record"]["equal"] == 18
    run = machine.json("runs", "--where", "rung=layer and seed=0 and test/acc>0")["runs"][0]["id"]
    assert "test/acc" in machine.run("show", run).stdout


def _points(machine: Machine) -> int:
    with closing(sqlite3.connect(machine.ledger)) as database:
        return int(database.execute("select count(*) from metrics").fetchone()[0])


def test_the_step_is_asked_for_where_it_decides(machine: Machine) -> None:
    write_steps(machine.folder / "runs.csv")
    for options in ([], ["--metric", "test_acc"]):
        done = machine.run("import", "runs.csv", *options, "--by", "norm", code=2)
        assert "--at last, or --at best --metric-for-choice val_acc" in done.stderr
    best = machine.run(
        *("import", "runs.csv", "--metric", "test_acc", "--by", "norm"),
        *("--at", "best", "--metric-for-choice", "val_acc"),
    )
    assert "score: test_acc, at the best step by val_acc" in best.stderr
    scores = {row["rung"]: round(row["mean"], 3) for row in machine.json("report", "--instance", "runs")["rows"]}
    means = {norm: round(sum(of_norm) / len(of_norm), 3) for norm, of_norm in SCORES.items()}
    assert scores == means
    machine.run("import", "runs.csv", "--name", "end", "--by", "norm", "--at", "last", "--metric", "test_acc")
    last = {row["rung"]: round(row["mean"], 3) for row in machine.json("report", "--instance", "end")["rows"]}
    assert last["layer"] == pytest.approx(means["layer"] - 0.5, abs=1e-3)
    at_step = ("--metric", "test_acc", "--by", "norm", "--at", "10")
    machine.run("import", "runs.csv", "--name", "ten", *at_step)
    ten = {row["rung"]: round(row["mean"], 3) for row in machine.json("report", "--instance", "ten")["rows"]}
    assert ten == means


def test_rungs_by_two_settings_and_their_bases(machine: Machine) -> None:
    rows = [
        [f"{norm}-{opt}-{seed}", norm, opt, seed, 0.8 + seed / 100]
        for norm, opt in (("layer", "sgd"), ("none", "sgd"), ("none", "adam"), ("layer", "adam"), ("batch", "sgd"))
        for seed in range(3)
    ]
    write_csv(machine.folder / "runs.csv", ["run", "norm", "opt", "seed", "test_acc"], rows)
    document = machine.json("import", "runs.csv", "--by", "norm,opt", "--base", "norm=none")
    assert [(rung["rung"], rung["on"]) for rung in document["rungs"]] == [
        ("none-sgd", None),
        ("layer-sgd", "none-sgd"),
        ("none-adam", "none-sgd"),
        ("layer-adam", "none-sgd"),
        ("batch-sgd", "none-sgd"),
    ]
    text = (machine.folder / "runs.toml").read_text()
    assert '# 3 runs; it differs from its base in norm and opt\nname = "layer-adam"' in text
    assert [c["short"] for c in document["record"]["cautions"] if c["short"]] == [
        "more than one difference from the base"
    ]
    done = machine.run("show", machine.json("runs", "--where", "rung=layer-adam")["runs"][0]["id"])
    assert "layer-adam" in done.stdout


def test_rungs_of_a_ladder_file(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    (machine.folder / "rungs.toml").write_text(
        'name = "norms"\ntitle = "Norms"\nsource = "ours"\n'
        '[[rung]]\nname = "plain"\ntitle = "no norm"\nwhere = "norm = none"\n'
        '[[rung]]\nname = "normed"\ntitle = "any norm"\nwhere = "norm = layer and id != layer-0"\n'
        '[[claim]]\ntext = "Norms help"\nsource = "ours"\nrung = "normed"\nthan = "plain"\n'
    )
    done = machine.run("import", "runs.csv", "--ladder", "rungs.toml")
    assert "7 runs fit no rung: layer-0, batch-0" in done.stderr
    claims = machine.json("report", "--instance", "runs")["claims"]
    assert [(claim["text"], claim["verdict"]) for claim in claims] == [("Norms help", "supported")]
    assert "0 new runs, 0 changed, 11 as they were" in machine.run("import", "runs.toml").stderr
    machine.run("import", "runs.csv", "--ladder", "rungs.toml")
    (machine.folder / "rungs.toml").write_text('name = "norms"\ntitle = ""\nsource = ""\n[[rung]]\nname = "a"\n')
    done = machine.run("import", "runs.csv", "--name", "b", "--ladder", "rungs.toml", code=2)
    assert "rung a: has no condition on its runs" in done.stderr


@pytest.mark.parametrize(
    ("head", "rows", "options", "message"),
    [
        ("run,norm,test_acc", "a,x,.8|b,y,.9", ["--metric", "tset_acc"], "did you mean 'test_acc'?"),
        ("run,norm,test_acc", "a,x,.8|b,y,.9", ["--metric", "norm"], "--metric norm: is no number in run a, found 'x'"),
        ("run,norm,test_acc", "a,x,.8|b,y,?|c,y,.9", ["--metric", "test_acc"], "found '?'\nhint: correct it in the"),
        ("run,norm,test_acc", "a,x,.8|b,y,.9", ["--by", "nrom"], "did you mean 'norm'? settings: norm"),
        ("run,norm,test_acc", "a,x,.8|b,y,.9", ["--seed-column", "s"], "--seed-column s: no run has this setting"),
        ("run,norm,test_acc", "a,x,.8|b,y,.9", ["--base", "nrm=x"], "--base nrm: no run has this setting"),
        ("run,norm,test_acc", "a,x,.8|b,y,.9", ["--base", "norm=z"], "values of norm: x, y"),
        ("run,norm,test_acc", "a,x,.8|b,x,.9", [], "no setting varies between the runs"),
        ("run,norm,test_acc", "a,x,.8|b,x,.9", ["--by", "norm"], "all runs have norm=x, so that there is one rung"),
        ("run,norm,lr,test_acc", "a,x,1,.8|b,y,2,.9|c,x,2,.8", ["--by", "norm,norm"], "norm is named twice"),
        ("run,norm,opt,test_acc", "a,x,s,.8|b,y,s,.9|c,x,t,.8", [], "norm (x, y); opt (s, t)"),
        ("run,norm,test_acc,test_f1", "a,x,.8,.7|b,y,.9,.8", [], "2 metrics of a test split: which is the score?"),
        ("run,norm,score", "a,x,.8|b,y,.9", [], "name the column with the score: --metric NAME"),
        ("run,norm,seed,test_acc", "a,x,0,.8|b,x,0,.9|c,y,1,.8", [], "x, seed 0: a, b"),
        ("run,norm,seed,test_acc", "a,x,0,.8|b,x,,.9|c,y,1,.8", ["--seed-column", "seed"], "run b: has no seed"),
        ("run,norm,test_acc", "a,x,|b,y,", ["--metric", "test_acc"], "no run has a value of it"),
        ("run,norm,test_acc", "", [], "has no runs"),
        ("run,norm,test_acc", "a,x,.8|b,y,.9", ["--at", "best"], "--at best: needs the validation metric"),
        ("run,norm,test_acc", "a,x,.8|b,y,.9", ["--at", "end"], "expected last, best or a step, found 'end'"),
        ("run,norm,test_acc", "a,x,.8|b,y,.9", ["--base", "norm"], "--base norm: expected setting=value"),
        ("run,norm,test_acc", "a,x,.8|b,y,.9", ["--name", "npDigits"], "'npDigits' is a task of lrurun"),
        ("run,norm,test_acc", "a,x,.8|b,y,.9", ["--name", "a/b"], "cannot be the name of an import"),
        ("run,norm,test_acc", "a,x,.8|b,y,.9", ["--from", "cvs"], "did you mean 'csv'?"),
        ("run,norm,seed,test_acc", "a,x,0,.8|b,x,1,.9|c,x,0,.8", ["--by", "norm"], "there is one rung"),
    ],
)
def test_bad_input_is_an_error_and_writes_nothing(
    machine: Machine, head: str, rows: str, options: list[str], message: str
) -> None:
    lines = [head, *filter(None, rows.split("|"))]
    (machine.folder / "runs.csv").write_text("\n".join(lines) + "\n")
    done = machine.run("import", "runs.csv", *options, code=2)
    assert message in done.stderr, done.stderr
    assert done.stderr.startswith("error: ")
    assert "\nhint: " in done.stderr
    assert machine.files() == ["runs.csv"]


def test_sources_that_are_the_same_or_have_the_same_runs(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    done = machine.run("import", "runs.csv", "./runs.csv", code=2)
    assert "./runs.csv: is the same source as runs.csv" in done.stderr
    shutil.copytree(machine.folder, machine.folder / "copy", ignore=shutil.ignore_patterns("copy"))
    done = machine.run("import", "runs.csv", "copy/runs.csv", code=2)
    assert "run none-0 is there twice: in" in done.stderr
    (machine.folder / "copy" / "runs.csv").rename(machine.folder / "more.csv")
    done = machine.run("import", "runs.csv", "more.csv", "--by", "norm", "--repeat", "all", code=2)
    assert "run none-0 is there twice: in" in done.stderr  # the name of a table is no part of the identity of runs
    for name in ("runs.csv", "more.csv"):
        write_runs(machine.folder / name, project=name)
    done = machine.run("import", "runs.csv", "more.csv", "--by", "norm", "--repeat", "all")
    assert "36 new runs" in done.stderr


def test_a_single_run_of_each_rung_is_stated(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv", {norm: of_norm[:1] for norm, of_norm in SCORES.items()})
    done = machine.run(*USUAL)
    assert "a single run: none, layer, batch; a verdict needs several seeds of each rung" in done.stderr
    assert "n = 1: no test" in done.stdout


def test_scores_in_per_cent_and_losses(machine: Machine) -> None:
    write_runs(machine.folder / "a.csv", {norm: [100 * score for score in s] for norm, s in SCORES.items()})
    done = machine.run("import", "a.csv")
    assert "higher is better, in per cent, divided by 100" in done.stderr
    assert machine.json("report", "--instance", "a")["rows"][0]["mean"] == pytest.approx(0.80333, abs=1e-4)
    rows = [[f"{n}{s}", n, s, v] for n, of_norm in SCORES.items() for s, v in enumerate(of_norm)]
    write_csv(machine.folder / "b.csv", ["run", "norm", "seed", "test/loss"], rows)
    done = machine.run("import", "b.csv")
    assert "score: test/loss, at the last step; lower is better" in done.stderr
    assert "Hurts: layer." in done.stdout
    done = machine.run("import", "b.csv", "--name", "c", "--direction", "max")
    assert "higher is better" in done.stderr
    assert "Helps: layer." in done.stdout


def test_names_of_settings_with_blanks_and_of_rungs_alike(machine: Machine) -> None:
    rows = [[f"r{k}", value, k // 4, 0.8] for k, value in enumerate(("a b", "a-b", "A B", "ü") * 2)]
    write_csv(machine.folder / "runs.csv", ["run", "layer norm", "seed", "test_acc"], rows)
    document = machine.json("import", "runs.csv", "--by", "layer norm")
    assert [rung["rung"] for rung in document["rungs"]] == ["a-b", "a-b-2", "A-B-3", "x"]
    assert document["rungs"][0]["where"] == "'layer norm' = 'a b'"
    found = machine.json("runs", "--where", "'settings.layer norm' = 'a b'")["runs"]
    assert len(found) == 2
    assert machine.json("import", "runs.toml")["record"]["equal"] == 8


def test_the_folder_of_the_ledger_has_the_file_and_paths_are_from_there(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    (machine.folder / "results").mkdir()
    place = ("--ledger", "results/ledger.db")
    machine.run(*USUAL, *place)
    assert 'source = ["../runs.csv"]' in (machine.folder / "results" / "runs.toml").read_text()
    assert "18 as they were" in machine.run("import", "results/runs.toml", *place).stderr
    assert "18 as they were" in machine.run("import", "runs.csv", *place).stderr
    assert not (machine.folder / "runs.toml").exists()


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_import_goes_on_with_the_same_command(machine: Machine, sent: signal.Signals) -> None:
    scores = {norm: [0.8 + k / 10_000 for k in range(300)] for norm in ("none", "layer")}
    write_steps(machine.folder / "runs.csv", 40, scores)
    command = ("import", "runs.csv", "--metric", "test_acc", "--by", "norm", "--at", "last")
    process = machine.start(*command)
    for _ in range(6000):
        if _count(machine) >= 250 or process.poll() is not None:
            break
        time.sleep(0.005)
    process.send_signal(sent)
    _, stderr = process.communicate()
    count = _count(machine)
    if sent == signal.SIGINT:
        assert stderr.splitlines()[-1] == f"interrupted: {count} of 600 runs recorded; the same command goes on"
        assert process.returncode == 130
    error = machine.run("report", "runs", code=4).stderr
    assert error.splitlines() == [
        f"error: runs: its import was interrupted after {count} runs, before they had their rungs",
        "hint: run the same lrurun import: it goes on",
    ]
    assert 0 < count < 600, "it was not killed in the middle"
    assert _points(machine) == count * 40 * 3, "a run is there with a part of its curves"
    assert not (machine.folder / "runs.toml").exists()
    record = machine.json(*command)["record"]
    assert (record["new"], record["equal"]) == (600 - count, count)
    assert _points(machine) == 600 * 40 * 3
    other = Machine(machine.folder / "other")
    shutil.copy(machine.folder / "runs.csv", other.folder)
    other.run(*command)
    assert other.run("report", "--instance", "runs").stdout == machine.run("report", "--instance", "runs").stdout


def _count(machine: Machine) -> int:
    if not machine.ledger.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{machine.ledger}?mode=ro", uri=True)) as database:
            return int(database.execute("select count(*) from runs").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def test_a_rebuilt_ledger_names_what_to_import_again(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    machine.runs.mkdir()  # as where other runs were trained
    key = machine.json(*USUAL)["instance"]["key"]
    [kept] = machine.runs.rglob("*.json")
    assert kept == machine.runs / "ladders" / f"{key}.json"
    machine.ledger.rename(machine.folder / "lost.db")
    message = "hint: runs: imported runs have no records: import them again with lrurun import"
    assert message in machine.run("ledger", "rebuild", code=4).stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by", ","], "--by: names no setting, found ','"),
        (["--by", "seed"], "--by seed: seed has the seeds, and each rung needs several"),
        (["--by", "norm", "--choose", "norm", "--metric-for-choice", "val_acc"], "--choose norm: makes the rungs"),
        (["--by", "norm", "--metrics-file", "x"], "runs.csv: no reader that takes --metrics-file knows this source"),
        (["", "--by", "norm"], "a source has an empty name"),
    ],
)
def test_options_that_mean_nothing_are_refused(machine: Machine, options: list[str], message: str) -> None:
    write_runs(machine.folder / "runs.csv", val_acc=0.5)
    before = machine.files()
    assert message in machine.run("import", "runs.csv", "--metric", "test_acc", *options, code=2).stderr
    assert machine.files() == before


def test_values_that_are_hard_to_write(machine: Machine) -> None:
    values = ["it's", "[a, b]", "new\nline", 'say "x"', "a and b", "=", "%", "\u202e\x7f", "ü µ", -0.0, 0, -1.5, 10**25]
    values += [True, [1, 2], [], "x" * 300, "x" * 301]
    runs = [
        {"run": f"a/{k}/{seed}", "value": value, "seed": seed, "test/acc@5": 0.8 + (7 * k + seed) % 11 / 100}
        for k, value in enumerate(values)
        for seed in range(2)
    ]
    runs[20] |= {"seed": 2}  # of 0, which -0.0 is
    runs[21] |= {"seed": 3}
    (machine.folder / "runs.jsonl").write_text("".join(f"{json.dumps(run)}\n" for run in runs))
    document = machine.json("import", "runs.jsonl", "--metric", "test/acc@5", "--by", "value")
    assert [len(rung["seeds"]) for rung in document["rungs"]] == [2] * 9 + [4] + [2] * 7
    assert len({rung["rung"] for rung in document["rungs"]}) == len(values) - 1
    assert machine.json("import", "runs.jsonl")["record"]["equal"] == len(runs)
    assert "and 5 more" in machine.run("import", "runs.toml").stderr


def test_the_commands_for_importing_name_each_other(machine: Machine) -> None:
    assert "lrurun data import" in machine.run("import", "--help").stdout
    assert re.search(r"made\s+elsewhere:\s+lrurun\s+import", machine.run("data", "import", "--help").stdout)
    done = machine.run("ledger", "import", code=2)
    assert "lrurun import reads runs" in done.stderr
    assert "lrurun data import makes a task" in done.stderr


def test_json_is_one_object(machine: Machine) -> None:
    write_runs(machine.folder / "runs.csv")
    document = json.loads(machine.run(*USUAL, "--json").stdout)
    assert list(document) == ["instance", "file", "import", "rungs", "record"]
    assert document["instance"]["short_name"] == "runs"
    assert Path(document["file"]).name == "runs.toml"


def test_values_with_control_characters_make_rungs(machine: Machine) -> None:
    """The file has the values themselves, escaped: its conditions are those of the runs of the source."""
    values = ["a\x1b[31mred", "a", "two\nlines", "del\x7f", "\x85", "\u2028", "\u202eturned", "back\\slash"]
    rows = [
        {"run_id": f"{index}-{seed}", "norm": value, "seed": seed, "test_acc": 0.5 + index / 100}
        for index, value in enumerate(values)
        for seed in range(2)
    ]
    (machine.folder / "runs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    usual = ("import", "runs.jsonl", "--metric", "test_acc", "--by", "norm")
    document = machine.json(*usual)
    assert [len(rung["seeds"]) for rung in document["rungs"]] == [2] * len(values)
    text = (machine.folder / "runs.toml").read_text()
    assert text.isprintable() or set(text) - {"\n"} == {character for character in text if character.isprintable()}
    rungs = tomllib.loads(text)["rung"]
    assert [rung["where"] for rung in rungs] == [f"norm = '{value}'" for value in values]
    assert machine.json("import", "runs.toml")["record"]["equal"] == 2 * len(values)


def test_half_a_character_makes_no_condition(machine: Machine) -> None:
    rows = [
        {"run_id": str(seed), "norm": ["\ud800", "a"][seed % 2], "seed": seed, "test_acc": 0.5} for seed in range(4)
    ]
    (machine.folder / "runs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = machine.run("import", "runs.jsonl", "--metric", "test_acc", "--by", "norm", code=2)
    assert "the value of norm: '\\ud800' has half of a character" in done.stderr

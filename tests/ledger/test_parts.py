"""Parts of ledgers: backup, merge and export of the runs that --where and --instance select."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lrurun.config.runs import InstanceSpec
from lrurun.ledger import backups
from lrurun.ledger.database.schema import metadata
from lrurun.ledger.ledger import Ledger
from lrurun.server import Location
from lrurun.session import parts
from tests.harness.machine import Machine
from tests.harness.old_ledgers import items_of, make_older
from tests.harness.stores import ELSEWHERE, SERVER, drop_trigger, machine_with, python, raw, want


def fill(machine: Machine) -> None:
    """Instances `sDigits` with 6 runs and `sDigits-smoke` with 4, of which 2 are shared; a run of no instance; and
    everything that a ledger may have of them."""
    with Ledger.open(machine.ledger) as ledger:
        first = ledger.add_ladder("lru", "sDigits", None, InstanceSpec(), "sDigits")
        second = ledger.add_ladder("lru", "sDigits", "smoke", InstanceSpec(), "sDigits-smoke")
        own = ledger.add_ladder("own", "npDigits", None, InstanceSpec(), "npDigits")
        ledger.enqueue(
            first.key, [want(rung, seed, k) for k, rung in enumerate(("ring", "dense")) for seed in range(3)]
        )
        for seed in range(3):
            finish(machine, ledger, first.key, "ring", seed)
        ledger.enqueue(first.key, [want("ring", 1, 0)], fresh=True)
        ledger.enqueue(
            second.key, [want("ring", seed, 0) for seed in (0, 1)] + [want("small", seed, 1) for seed in (0, 1)]
        )
        finish(machine, ledger, second.key, "small", 0)
        ledger.enqueue(own.key, [want("alone", 0), want("other", 0, task="npDigits")])
        alone, *_ = [run.id for run in ledger.runs(own.key) if run.memberships[0].rung == "alone"]
        ledger.unlink(own.key, [alone], "alone", "train")
        for instance in (first, second, own):
            ledger.event("documents", f"of {instance.short_name}", {"name": instance.short_name}, ladder=instance.key)
            ledger.event("look", "look at 2 seeds", {"seeds": 2}, ladder=instance.key)
        [done, *_] = [run.id for run in ledger.runs(second.key, states=["done"])]
        ledger.mark([done], tag=["paper"], note="the fan was loud", exclude="a broken disk")
        ledger.hide([second.key])
    for number, (key, kind, finished) in enumerate(((first.key, "forgotten", None), (own.key, "left out", 3.5)), 1):
        raw(
            machine.ledger,
            "INSERT INTO removals (key, kind, time, user_name, selection, why, runs, bytes, finished_at)"
            " VALUES (?, ?, 2.5, 'ada', 'what was named', 'a typo', 1, NULL, ?)",
            *(f"{number}" * 6, kind, finished),
        )
        raw(
            machine.ledger,
            "INSERT INTO removed_runs (removal, run, ladder_key, rung, stage, instance, task, seed, state)"
            " SELECT id, 'feedfeedfeed', ?, 'ring', 'train', 'old', 'sDigits', 9, 'done' FROM removals WHERE key = ?",
            *(key, f"{number}" * 6),
        )


def finish(machine: Machine, ledger: Ledger, key: str, rung: str, seed: int) -> None:
    held = ledger.hold(key, ELSEWHERE, rungs=[rung], seeds=[seed], environment={"device": rung})
    assert held
    ledger.record(held, [(10, "train/loss", 0.5 + seed), (10, f"of/{rung}", 1.0)], 10)
    ledger.record_eigenvalues(held, "start", [[complex(seed, 1)], None])
    number = ledger.begin_checkpoint(held, 100, f"{held.run.id}/1/checkpoints/100")
    folder = machine.runs / held.run.id / "1" / "checkpoints" / "100"
    folder.mkdir(parents=True)
    (folder / "data").write_text(held.run.id)
    ledger.commit_checkpoint(held, number, 10, "sha256:0")
    items = {"test/accuracy": items_of(0.5 + seed / 4)}
    ledger.finish(held, "done", result={"val/accuracy": seed / 8}, step=100, items=items)


@pytest.fixture(params=["file", SERVER])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """The ledger of which parts are copied."""
    for machine in machine_with(request.param, tmp_path / "there", request):
        fill(machine)
        yield machine


@pytest.fixture
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """An empty ledger, in a file if not parametrized."""
    yield from machine_with(getattr(request, "param", "file"), tmp_path / "here", request)


on_file = pytest.mark.parametrize("there", ["file"], indirect=True)
to_both = pytest.mark.parametrize("here", ["file", SERVER], indirect=True)


# What a part has, by plain SQL

Rows = dict[str, list[dict[str, Any]]]
"""Table -> its rows."""


def tables(path: Location) -> Rows:
    found = {}
    for table in metadata.sorted_tables:
        names = [column.name for column in table.c]
        rows = raw(path, f"SELECT {', '.join(names)} FROM {table.name}")
        found[table.name] = [dict(zip(names, row, strict=True)) for row in rows]
    return found


def expected(path: Location, names: tuple[str, ...], chosen: Callable[[dict[str, Any]], bool]) -> Rows:
    """The rows of the chosen runs in the instances of these names, or of all if there are none."""
    rows = tables(path)
    named = {row["id"] for row in rows["ladders"] if row["short_name"] in names}
    members = [row for row in rows["ladder_runs"] if row["ladder"] in named or not names]
    of_named = {row["run"] for row in members}
    rungs = {row["run"]: row["rung"] for row in rows["ladder_runs"]}
    runs = {
        row["number"]: row
        for row in rows["stored_runs"]
        if (row["number"] in of_named or not names) and chosen(row | {"rung": rungs.get(row["number"])})
    }
    for row in rows["stored_runs"]:
        later = [run for run in runs.values() if run["fingerprint"] == row["fingerprint"]]
        if any(run["generation"] > row["generation"] for run in later):
            runs[row["number"]] = row
    members = [row for row in members if row["run"] in runs]
    ladders = named or {row["ladder"] for row in members}
    keys = {row["key"] for row in rows["ladders"] if row["id"] in ladders}

    def those(table: str, column: str, values: Any) -> list[dict[str, Any]]:
        return [row for row in rows[table] if row[column] in values]

    of_runs = ("stored_attempts", "metrics", "eigenvalues", "item_results", "checkpoints", "tags", "exclusions")
    found = {table: those(table, "run", runs) for table in of_runs}
    texts = {run[name] for run in runs.values() for name in ("config_id", "execution_id", "provenance_id")}
    texts |= {row["environment_id"] for row in found["stored_attempts"]}
    removed = those("removed_runs", "ladder_key", keys)
    removals = those("removals", "id", {row["removal"] for row in removed})
    return found | {
        "stored_runs": list(runs.values()),
        "ladder_runs": members,
        "ladders": those("ladders", "id", ladders),
        "hidden": those("hidden", "ladder", ladders),
        "documents": those("documents", "id", texts),
        "metric_keys": those("metric_keys", "id", {row["key"] for row in found["metrics"]}),
        "test_sets": those("test_sets", "id", {row["test_set"] for row in found["item_results"]}),
        "events": those("events", "run", runs) + [row for row in those("events", "ladder", ladders) if not row["run"]],
        "removals": [row | {"finished_at": row["finished_at"] or row["time"]} for row in removals],
        "removed_runs": removed,
    }


PARTS: dict[str, tuple[tuple[str, ...], str | None, Callable[[dict[str, Any]], bool]]] = {
    "instance": (("sDigits-smoke",), None, lambda run: True),
    "two": (("sDigits", "npDigits"), None, lambda run: True),
    "where": ((), "seed=0", lambda run: run["seed"] == 0),
    "state": ((), "state=done or rung=alone", lambda run: run["state"] == "done"),
    "both": (("sDigits",), "rung=ring and seed<2", lambda run: run["rung"] == "ring" and run["seed"] < 2),
    "nothing of one": (("sDigits", "npDigits"), "rung=ring", lambda run: run["rung"] == "ring"),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_backup_of_a_part_has_every_row_of_its_runs(there: Machine, tmp_path: Path, name: str) -> None:
    names, where, chosen = PARTS[name]
    wanted = expected(there.ledger, names, chosen)
    target = tmp_path / "part.db"
    with Ledger.read(there.ledger) as ledger:
        copied = backups.backup(ledger, target, parts.required(ledger, names, where))
        totals = {ladder.short_name: {run.id for run in ledger.runs(ladder.key)} for ladder in ledger.ladders()}
    assert copied is not None
    found = tables(target)
    added = {row["id"] for row in found["removals"] if row["user_name"] != "ada"}
    found["removals"] = [row for row in found["removals"] if row["id"] not in added]
    found["removed_runs"] = [row for row in found["removed_runs"] if row["removal"] not in added]
    for table, rows in wanted.items():
        assert sorted(found[table], key=repr) == sorted(rows, key=repr), table
    assert set(found) - set(wanted) == {"ledger_info"}
    with Ledger.read(target) as part:
        assert part.check() == []
        have = {run.id for run in part.runs()}
        for ladder in part.ladders():
            removed = {run.run for run in part.removed_from(ladder.key) if run.kind == "left out" and run.why is None}
            assert removed == totals[ladder.short_name] - have, "reports say what was left out"
        counts = {entry.name: (entry.runs, entry.of) for entry in copied.instances}
        assert counts == {
            ladder.short_name: (len(part.runs(ladder.key)), len(totals[ladder.short_name])) for ladder in part.ladders()
        }
    assert copied.runs == len(wanted["stored_runs"])
    assert len(added) == bool(copied.in_part)


def removed(path: Location) -> dict[str, list[tuple[str, int, str]]]:
    """Short name -> rung, seed and kind of the runs that were removed from an instance and are not there."""
    with Ledger.read(path) as ledger:
        runs = {ladder.short_name: ledger.removed_from(ladder.key) for ladder in ledger.ladders()}
        return {name: [(run.rung, run.seed, run.kind) for run in found] for name, found in runs.items()}


FORGOTTEN = [("ring", 9, "forgotten")]
"""Of the instance sDigits, where it is."""


@to_both
@on_file
def test_a_part_says_what_was_left_out_until_the_rest_is_merged(there: Machine, here: Machine, tmp_path: Path) -> None:
    before = tables(there.ledger)
    part = tmp_path / "part.db"
    said = there.run("ledger", "backup", "--where", "rung=ring and seed<2", "--out", str(part))
    phrase = "3 runs of 2 instances (2 in part: sDigits, 2 of 6 runs; sDigits-smoke, 2 of 4 runs)"
    assert said.stdout + said.stderr == f"wrote {part}: {phrase}\n"
    left_out = {
        "sDigits": [("dense", 0), ("dense", 1), ("dense", 2), ("ring", 2)],
        "sDigits-smoke": [("small", 0), ("small", 1)],
    }
    partly = {name: [(rung, seed, "left out") for rung, seed in runs] for name, runs in left_out.items()}
    partly["sDigits"] = FORGOTTEN + partly["sDigits"]
    assert removed(part) == partly
    [(selection, why, runs, finished)] = raw(
        part, "SELECT selection, why, runs, finished_at = time FROM removals WHERE kind = 'left out'"
    )
    assert (selection, why, runs, finished) == ("--where 'rung=ring and seed<2'", None, 6, 1)
    for _ in range(2):  # twice is the same as once
        here.run("ledger", "merge", str(part))
        assert removed(here.ledger) == partly
        assert raw(here.ledger, "SELECT count(*) FROM removals") == [(2,)]
    there.run("ledger", "backup", "--where", "rung=ring and seed<2", "--out", str(tmp_path / "again.db"))
    here.run("ledger", "merge", str(tmp_path / "again.db"))
    assert raw(here.ledger, "SELECT count(*) FROM removals") == [(2,)], "the same part has one key"
    here.run("ledger", "merge", str(there.ledger))
    assert removed(here.ledger) == {"sDigits": FORGOTTEN, "sDigits-smoke": [], "npDigits": [("ring", 9, "left out")]}
    assert tables(there.ledger) == before


def test_two_parts_of_a_ledger_are_a_whole(there: Machine, here: Machine) -> None:
    """A shared run that one of them brings is in both instances at the end."""
    for options in (["--instance", "sDigits-smoke"], ["--where", "rung!=ring"], ["--where", "rung=ring"]):
        there.run("ledger", "backup", *options, "--out", str(there.folder / "part.db"))
        here.run("ledger", "merge", str(there.folder / "part.db"))
        (there.folder / "part.db").unlink()
    with Ledger.read(there.ledger) as theirs, Ledger.read(here.ledger) as ours:
        assert ours.check() == []
        for ladder in theirs.ladders():
            members = [
                {(run.id, m.rung, m.stage) for run in ledger.runs(ladder.key) for m in run.memberships}
                for ledger in (theirs, ours)
            ]
            assert members[0] == members[1], ladder.short_name
            events = [
                [
                    (event.kind, event.text, event.payload)
                    for event in ledger.events(ladder_key=ladder.key, of_runs=False)
                ]
                for ledger in (theirs, ours)
            ]
            assert [event for event in events[1] if event[0] != "hidden"] == [
                event for event in events[0] if event[0] != "hidden"
            ]


def test_a_run_that_comes_with_another_instance_is_left_out_of_its_own(there: Machine, here: Machine) -> None:
    """The run is in the ledger, and the report on the instance has it not."""
    for options in (["--instance", "sDigits-smoke"], ["--instance", "sDigits", "--where", "seed!=0"]):
        there.run("ledger", "backup", *options, "--out", str(there.folder / "part.db"))
        here.run("ledger", "merge", str(there.folder / "part.db"))
        (there.folder / "part.db").unlink()
    left_out = [("dense", 0, "left out"), ("ring", 0, "left out")]
    assert removed(here.ledger) == {"sDigits-smoke": [], "sDigits": FORGOTTEN + left_out}


@to_both
def test_merge_brings_the_part_with_its_folders_alone(there: Machine, here: Machine) -> None:
    name = str(there.ledger)
    part = ("--where", "rung=ring and seed<2", "--instance", "sDigits")
    wanted = expected(there.ledger, ("sDigits",), lambda run: run["rung"] == "ring" and run["seed"] < 2)
    said = here.run("ledger", "merge", name, "--other-runs", str(there.runs), *part)
    assert said.stdout == (
        f"{name}: 3 runs of 1 instance (1 in part: sDigits, 2 of 6 runs); runs new here: 3; unfinished here and now "
        "finished: 0; unchanged: 0; checkpoints copied: 2\n"
    )
    assert said.stderr == ""
    ids = sorted(row["id"] for row in wanted["stored_runs"])
    assert sorted(id for (id,) in raw(here.ledger, "SELECT id FROM stored_runs")) == ids
    trained = sorted(row["id"] for row in wanted["stored_runs"] if row["state"] == "done")
    assert sorted(path.name for path in here.runs.iterdir() if (path / "1" / "checkpoints").is_dir()) == trained
    for table in ("metrics", "item_results", "events", "stored_attempts", "eigenvalues", "ladder_runs", "ladders"):
        assert len(tables(here.ledger)[table]) == len(wanted[table]), table
    assert here.json("ledger", "merge", name, "--other-runs", str(there.runs), *part) == {
        **{"schema_version": 1, "new": 0, "finished": 0, "known": 3, "held": 0, "checkpoints": 0, "back": 0},
        **{
            "hidden": [],
            "instances": [{"name": "sDigits", "instance": only(wanted["ladders"])["key"], "runs": 2, "of": 6}],
        },
    }


def only(rows: list[Any]) -> Any:
    (row,) = rows
    return row


def test_a_part_of_a_merged_ledger_is_rebuilt(there: Machine, here: Machine) -> None:
    here.run("ledger", "merge", str(there.ledger), "--other-runs", str(there.runs), "--where", "state=done")
    before = {name: tables(here.ledger)[name] for name in ("hidden", "removals", "removed_runs")}
    here.ledger.unlink()
    here.run("ledger", "rebuild")
    after = tables(here.ledger)
    assert {name: after[name] for name in before} == before


# Hidden instances and removals in a merge


@on_file
def test_a_merge_hides_only_what_is_new(there: Machine, here: Machine) -> None:
    said = here.run("ledger", "merge", str(there.ledger))
    assert said.stderr == (
        f"hidden here as in {there.ledger}: sDigits-smoke; lrurun ledger hide NAME --undo shows it again\n"
    )
    hidden = [{name: row[name] for name in ("time", "user_name")} for row in tables(there.ledger)["hidden"]]
    assert [{name: row[name] for name in ("time", "user_name")} for row in tables(here.ledger)["hidden"]] == hidden
    here.run("ledger", "hide", "sDigits-smoke", "--undo")
    here.run("ledger", "hide", "npDigits")
    assert here.run("ledger", "merge", str(there.ledger)).stderr == ""
    with Ledger.read(here.ledger) as ledger:
        assert [ledger.ladder(key).short_name for key in ledger.hidden()] == ["npDigits"]


@to_both
@on_file
def test_files_that_a_removal_left_are_not_those_of_the_other_ledger(there: Machine, here: Machine) -> None:
    here.run("ledger", "merge", str(there.ledger))
    assert [(row["key"], row["time"], row["finished_at"]) for row in tables(there.ledger)["removals"]] == [
        ("111111", 2.5, None),
        ("222222", 2.5, 3.5),
    ]
    assert [(row["key"], row["time"], row["finished_at"]) for row in tables(here.ledger)["removals"]] == [
        ("111111", 2.5, 2.5),
        ("222222", 2.5, 3.5),
    ]


@to_both
@on_file
def test_a_forgotten_run_comes_back_with_an_old_backup(there: Machine, here: Machine) -> None:
    here.run("ledger", "merge", str(there.ledger), "--other-runs", str(there.runs))
    with Ledger.read(here.ledger) as ledger:
        run, count = ledger.runs(states=["done"])[0].id, ledger.count_runs()
    here.run("ledger", "forget", "--where", f"id={run}", "--yes", "--why", "a typo")
    assert not (here.runs / run).exists()
    raw(here.ledger, "UPDATE removals SET finished_at = NULL WHERE why = 'a typo' AND user_name != 'ada'")
    said = here.run("ledger", "merge", str(there.ledger), "--other-runs", str(there.runs))
    assert "runs new here: 1;" in said.stdout
    assert said.stderr == "forgotten before, and back: 1 run\n"
    with Ledger.read(here.ledger) as ledger:
        assert ledger.count_runs() == count
        assert ledger.check() == []
        assert [ledger.removed_from(ladder.key) for ladder in ledger.ladders() if ladder.short_name != "sDigits"] == [
            [],
            ledger.removed_from(ledger.ladder("npDigits").key),
        ]
    here.run("ledger", "gc")  # which goes on with the removal
    assert (here.runs / run / "1" / "checkpoints" / "100" / "data").read_text() == run
    assert here.run("ledger", "merge", str(there.ledger)).stderr == ""


@on_file
def test_what_only_the_other_ledger_had_forgotten_is_no_return(there: Machine, here: Machine) -> None:
    with Ledger.read(there.ledger) as ledger:
        run = ledger.runs(states=["done"])[0].id
    raw(
        there.ledger,
        "INSERT INTO removed_runs (removal, run, ladder_key, rung, stage, instance, task, seed, state)"
        " SELECT id, ?, '', 'ring', 'train', 'old', 'sDigits', 9, 'done' FROM removals WHERE kind = 'forgotten'",
        run,
    )
    assert here.json("ledger", "merge", str(there.ledger))["back"] == 0


# Older ledgers


def older(machine: Machine, revision: str) -> None:
    """Makes the ledger one of an older revision."""
    if not isinstance(machine.ledger, Path):
        make_older(machine.ledger, revision)
        return
    connection = sqlite3.connect(machine.ledger)
    with connection:
        for table in (
            "removed_runs",
            "removals",
            "hidden",
            *(["item_results", "test_sets"] if revision < "1001" else []),
        ):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("UPDATE lrurun_version SET version_num = ?", (revision,))
    connection.close()


@pytest.mark.parametrize("revision", ["1000", "1001"])
def test_parts_of_older_ledgers_are_copied_and_merged(there: Machine, here: Machine, revision: str) -> None:
    older(there, revision)
    assert there.run("ledger", "backup", "--where", "seed=0", "--out", str(there.folder / "part.db")).stderr.startswith(
        f"wrote {there.folder / 'part.db'}: 5 runs of 3 instances (2 in part: sDigits, 2 of 6 runs; sDigits-smoke, "
    )
    copied = tables(there.folder / "part.db")
    assert len(copied["stored_runs"]) == 5
    assert len(copied["item_results"]) == (2 if revision == "1001" else 0)
    assert [row["kind"] for row in copied["removals"]] == ["left out"]
    here.run("ledger", "merge", str(there.ledger), "--where", "seed=0")
    merged = tables(here.ledger)
    assert {name: len(merged[name]) for name in merged if name not in ("metric_keys", "documents", "checkpoints")} == {
        name: len(copied[name]) for name in copied if name not in ("metric_keys", "documents", "checkpoints")
    }
    assert here.json("ledger", "merge", str(there.ledger))["known"] == 5
    assert len(tables(here.ledger)["item_results"]) == (4 if revision == "1001" else 0)
    assert raw(there.ledger, "SELECT version_num FROM lrurun_version") == [(revision,)], "it is only read"


# Exports


def test_an_export_of_a_part_has_the_rows_of_the_part(there: Machine) -> None:
    part = ("--where", "seed=0", "--instance", "sDigits")
    lines = [json.loads(line) for line in there.run("ledger", "export", *part).stdout.splitlines()]
    wanted = expected(there.ledger, ("sDigits",), lambda run: run["seed"] == 0)
    ids = {row["id"] for row in wanted["stored_runs"]}
    assert len(ids) == 2
    assert {line["id"] for line in lines if line["table"] == "runs"} == ids
    assert {line["run"] for line in lines if line.get("run") and line["table"] != "removed_runs"} <= ids
    for table in ("ladders", "ladder_runs", "metrics", "item_results", "events"):
        assert sum(line["table"] == table for line in lines) == len(wanted[table]), table
    keys = {line["key"]: line["kind"] for line in lines if line["table"] == "removals"}
    assert sorted(keys.values()) == ["forgotten", "left out"]
    assert {line["removal"] for line in lines if line["table"] == "removed_runs"} == keys.keys()
    out = there.folder / "tables"
    said = there.run("ledger", "export", *part, "--format", "csv", "--out", str(out))
    assert said.stderr == f"wrote {out}: 2 runs of 1 instance (1 in part: sDigits, 2 of 6 runs)\n"
    with (out / "runs.csv").open(newline="") as file:
        assert {row["id"] for row in csv.DictReader(file)} == ids


def test_runs_are_exported_with_the_named_instances_alone(there: Machine) -> None:
    out = there.folder / "out"
    there.run("ledger", "export", "--to", "csv", str(out), "--instance", "sDigits-smoke", "--where", "rung=ring")
    with (out / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with Ledger.read(there.ledger) as ledger:
        runs = ledger.runs(ledger.ladder("sDigits-smoke").key)
    assert {row["id"] for row in rows} == {run.id for run in runs if run.memberships[0].rung == "ring"}
    assert [len(run.memberships) for run in runs if run.memberships[0].rung == "ring"] == [2, 2]
    assert {row["profile"] for row in rows} == {"smoke"}


# Wrong requests


@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        (
            ["--where", "ladder=lrv"],
            4,
            "error: --where: none of 11 runs meets the condition in LEDGER\nhint: did you mean ladder=lru?\n",
        ),
        (
            ["--where", "instance=sDigit and seed=77"],
            4,
            "error: --where: none of 11 runs meets the condition in LEDGER\nhint: did you mean instance=sDigits?\n",
        ),
        (
            ["--instance", "npDigits", "--where", "seed=77"],
            4,
            "error: --instance npDigits --where seed=77: none of 1 run meets the condition in LEDGER\n"
            "hint: lrurun runs lists the runs\n",
        ),
        (
            ["--instance", "npDigit"],
            4,
            "error: no ladder instance 'npDigit' in this ledger\nhint: did you mean 'npDigits'? see `lrurun status`\n",
        ),
        (["--where", "seeed=1"], 2, "error: --where, column 1: unknown name 'seeed'\nhint: did you mean 'seed'?"),
    ],
)
@on_file
def test_a_part_without_runs_is_refused(
    there: Machine, here: Machine, options: list[str], code: int, error: str
) -> None:
    out = there.folder / "new"
    commands = [
        (there, ["ledger", "backup", "--out", str(out)]),
        (there, ["ledger", "export", "--out", str(out)]),
        (there, ["ledger", "export", "--to", "csv", str(out)]),
        (here, ["ledger", "merge", str(there.ledger)]),
    ]
    before = tables(here.ledger)
    for machine, command in commands:
        said = machine.run(*command, *options, code=code)
        expected, shown = error.replace("LEDGER", str(there.ledger)), said.stderr
        if machine is here:  # which is not the ledger that is meant
            expected = expected.replace("this ledger", str(there.ledger))
            shown = shown.replace(f" --ledger {there.ledger}", "")
        assert shown.startswith(expected), command
        assert said.stdout == ""
        assert not out.exists()
        assert not list(there.folder.glob(".new*"))
    assert tables(here.ledger) == before


@on_file
def test_a_part_with_altered_settings_is_not_merged(there: Machine, here: Machine) -> None:
    """The error names the ledger, not the copy of the part."""
    drop_trigger(there.ledger, "documents_stay", "documents")
    raw(there.ledger, "UPDATE documents SET text = replace(text, 'alone', 'others')")
    here.run("ledger", "merge", str(there.ledger), "--instance", "sDigits-smoke")
    before = tables(here.ledger)
    said = here.run("ledger", "merge", str(there.ledger), "--where", "seed>=0", code=5).stderr
    assert said == (
        f"error: the ledger {there.ledger} has settings that do not match their hashes\n"
        f"hint: see what else is wrong: lrurun ledger check --ledger {there.ledger}\n"
    )
    assert tables(here.ledger) == before


@on_file
def test_a_name_that_the_other_ledger_lacks_is_looked_for_there(there: Machine, here: Machine) -> None:
    merge = ("ledger", "merge", str(there.ledger), "--instance")
    assert here.run(*merge, "nosuch", code=4).stderr == (
        f"error: no ladder instance 'nosuch' in {there.ledger}\nhint: see `lrurun status --ledger {there.ledger}`\n"
    )
    assert here.run(*merge, "sDigits-smok", code=4).stderr.endswith(
        f"hint: did you mean 'sDigits-smoke'? see `lrurun status --ledger {there.ledger}`\n"
    )


# Kills


@on_file
def test_a_killed_backup_of_a_part_leaves_no_ledger(there: Machine, here: Machine) -> None:
    killed = """
import os, sys
from pathlib import Path
from lrurun.ledger import backups, copying
from lrurun.ledger.ledger import Ledger
from lrurun.session import parts
copying._Copy._record_left_out = lambda *_: os.kill(os.getpid(), 9)
with Ledger.read(Path(sys.argv[1])) as ledger:
    backups.backup(ledger, Path(sys.argv[2]), parts.named(ledger, (), "seed=0"))
"""
    out, before = there.folder / "part.db", tables(there.ledger)
    process = python(killed, there.ledger, out)
    process.communicate(timeout=120)
    assert process.returncode == -9
    assert not out.exists()
    there.run("ledger", "backup", "--where", "seed=0", "--out", str(out))
    here.run("ledger", "merge", str(out))
    assert tables(there.ledger) == before


@to_both
@on_file
@pytest.mark.parametrize("place", ["_add_checkpoints", "move"])
def test_a_killed_merge_of_a_part_changes_nothing(there: Machine, here: Machine, place: str) -> None:
    killed = """
import os, sys
from pathlib import Path
from lrurun.ledger import backups, merging
from lrurun.ledger.ledger import Ledger
from lrurun.session import parts
def kill(*_):
    os.kill(os.getpid(), 9)
if sys.argv[5] == "_add_checkpoints":
    merging._add_checkpoints = kill
else:
    merging.AttemptFolders.move = kill
with Ledger.open(sys.argv[1]) as ledger, Ledger.read(Path(sys.argv[2])) as other:
    with backups.of_part(other, parts.named(other, (), "seed=0")) as (part, _):
        merging.merge(ledger, part, Path(sys.argv[3]), Path(sys.argv[4]))
"""
    before = tables(here.ledger)
    process = python(killed, here.ledger, there.ledger, here.runs, there.runs, place)
    process.communicate(timeout=120)
    assert process.returncode == -9
    assert tables(here.ledger) == before
    here.run("ledger", "merge", str(there.ledger), "--other-runs", str(there.runs), "--where", "seed=0")
    found = tables(here.ledger)
    assert len(found["stored_runs"]) == 5
    assert len(found["checkpoints"]) == 2

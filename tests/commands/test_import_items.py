"""`lrurun import --items`: per-item results in a table, and what cannot be the results of the items of a score."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness.imported import TABLE, fill, write
from tests.harness.items import on_items
from tests.harness.machine import Machine

ITEMS, SEEDS = 400, 12
NORMS = {"none": 0.70, "layer": 0.78}
"""Norm -> the share of items that its runs get right."""


def results() -> dict[str, list[list[int]]]:
    """Norm -> the results of each seed: some items are harder than others for all."""
    generator = np.random.default_rng(1)
    ease = generator.normal(0.0, 0.1, ITEMS)
    return {
        norm: [[int(x) for x in generator.random(ITEMS) < share + ease] for _ in range(SEEDS)]
        for norm, share in NORMS.items()
    }


def rows(items: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [
        {"run": f"{norm}-{seed}", "norm": norm, "seed": seed, "test_acc": sum(right) / len(right), "right": right}
        for norm, of_norm in items.items()
        for seed, right in enumerate(of_norm)
    ]


def write_csv(folder: Path, table: Sequence[Mapping[str, Any]]) -> str:
    with (folder / "runs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows({name: json.dumps(v) if name == "right" else v for name, v in row.items()} for row in table)
    return "runs.csv"


def write_jsonl(folder: Path, table: Sequence[Mapping[str, Any]]) -> str:
    (folder / "runs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in table))
    return "runs.jsonl"


def command(source: str) -> tuple[str, ...]:
    return ("import", source, "--metric", "test_acc", "--by", "norm", "--seed-column", "seed", "--items", "right")


@pytest.mark.parametrize("writer", [write_csv, write_jsonl])
def test_verdicts_hold_for_other_items_as_of_the_same_numbers_in_a_ledger(
    writer: Any, machine: Machine, tmp_path: Path
) -> None:
    right = results()
    machine.run(*command(writer(machine.folder, rows(right))))
    report = machine.json("report", "runs")
    direct = Machine(tmp_path / "direct")
    scores = {norm: [sum(one) / ITEMS for one in of_norm] for norm, of_norm in right.items()}
    items = {norm: [on_items(np.array(one, float)) for one in of_norm] for norm, of_norm in right.items()}
    table = TABLE.replace("test_items = 1000\n", 'items = "right"\n').replace("chance = 0.1\n", "")
    fill(direct.folder / "ledger.db", write(direct.folder, table, tuple(NORMS)), scores, items=items)
    [_, found], [_, wanted] = report["rows"], direct.json("report", "runs")["rows"]
    comparison = found["comparison"]
    assert comparison["items_known"] == "results"
    assert comparison["item_error"] > 0
    assert {name: value for name, value in comparison.items() if name != "sides"} == {
        name: value for name, value in wanted["comparison"].items() if name != "sides"
    } | {"p_adjusted": comparison["p_adjusted"]}  # there, a claim is one more comparison
    assert found["verdict"] == wanted["verdict"] == "helps"
    assert "test items alone" not in machine.run("report", "runs").stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"right": [1, 0, 1]}, "layer-3: there are 3, and most runs have 400"),
        ({"test_acc": 0.5}, "layer-3: their mean is 0.7"),
        ({"right": [2] + [1] * 399}, "layer-3: item 1 of 400 has 2, and those of a share are from 0 to 1"),
        ({"right": [float("nan")] + [1] * 399}, "layer-3: item 1 of 400 has nan"),
        ({"right": []}, "layer-3: there are none"),
    ],
)
def test_what_cannot_be_the_items_of_a_score_is_left_out(
    machine: Machine, change: dict[str, Any], message: str
) -> None:
    table = rows(results())
    next(row for row in table if row["run"] == "layer-3").update(change)
    done = machine.run(*command(write_jsonl(machine.folder, table)))
    assert f"Per-item results of 1 run are left out: {message}" in done.stderr
    assert "per-item results left out" in done.stdout
    assert machine.json("report", "runs")["rows"][1]["n"] == SEEDS, "the score counts"
    assert machine.json(*command("runs.jsonl"))["record"]["equal"] == 2 * SEEDS
    write_jsonl(machine.folder, rows(results()))
    record = machine.json(*command("runs.jsonl"))["record"]
    assert (record["changed"], record["equal"]) == (1, 2 * SEEDS - 1)
    assert "left out" not in machine.run("report", "runs").stdout


def test_runs_without_a_usable_score_need_no_items(machine: Machine) -> None:
    table = [row | {"state": "finished"} for row in rows(results())]
    table[3] |= {"state": "crashed", "right": [0]}
    table[4] |= {"test_acc": float("nan"), "right": [0]}
    assert "left out" not in machine.run(*command(write_jsonl(machine.folder, table))).stderr


def test_the_number_of_items_is_that_of_the_option(machine: Machine) -> None:
    done = machine.run(*command(write_csv(machine.folder, rows(results()))), "--test-items", "500")
    assert (
        "Per-item results of 24 runs are left out: none-0: there are 400, and test_items is 500; none-1:" in done.stderr
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("rigth", "runs.csv: has no column 'rigth' with results of items"),
        ("norm", "'norm' of the run 'none-0' is no list of numbers"),
    ],
)
def test_what_is_no_column_of_items_is_refused(machine: Machine, option: str, message: str) -> None:
    source = write_csv(machine.folder, rows(results()))
    before = machine.files()
    assert message in machine.run(*command(source)[:-1], option, code=2).stderr
    assert machine.files() == before

"""Settings that are lists or tables are the same values for all that show, compare, sort and group runs."""

from __future__ import annotations

import csv
import html
import io
import itertools
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lrurun
from lrurun.errors import UsageError
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import Run
from lrurun.ledger.where import grammar
from lrurun.report.listing import Choice
from tests.harness import where
from tests.harness.browsing import View, closed
from tests.harness.machine import Machine
from tests.harness.recorded_programs import add_ladder, record
from tests.harness.stores import SERVER, machine_with

__all__ = ["closed"]  # a fixture

VALUES: list[Any] = [
    *([64, 64], [64.0, 64], [64, 64, 64], [128], [], [[1, 2.5], ["x", True]], [[1, 2.5], ["x", 1]], [1e20, 0.1]),
    *(["a", "b c"], ['q"u', "ü", "it's"], ["[1]"], ["a, b"], [False], [0], [-0.0]),
    *("[64,64]", "[64, 64]", "text", "", "true", 64, 0.5, True),
]
"""Values of one setting, as several versions of a recipe might have them."""
TYPED = [
    *("[64,64]", "[64, 64]", "[ 64.0,64 ]", "'[64, 64]'", '"[64,64]"', "[64,64,64]", "[128]", "[]", "[100e18, 0.1]"),
    *('[[1,2.5],["x",true]]', "[[1, 2.5], ['x', 1]]", '["a", "b c"]', '["b c", "a"]', """['q"u', "ü", "it's"]"""),
    *('["[1]"]', '["a, b"]', "[false]", "[0]", "[1]", "[true]", "[", "[x]", "{}", "text", "64", "true", "''"),
]


@pytest.fixture(scope="module", params=["file", SERVER])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A run for each value, and two without the setting."""
    for machine in machine_with(request.param, tmp_path_factory.mktemp("lists"), request):
        with Ledger.open(machine.ledger) as ledger:
            key = add_ladder(ledger)
            for seed, value in enumerate(VALUES):
                table = {"wide": bool(seed % 2), "sizes": [seed % 3, "é"]}
                record(ledger, key, {"x": value, "block": table}, seed=seed, result={"test/accuracy": seed / 8})
            record(ledger, key, {"y": 1}, seed=90)
            record(ledger, key, {"x": {"a": [1]}}, seed=91)
        yield machine


@pytest.fixture(scope="module")
def ledger(machine: Machine) -> Iterator[Ledger]:
    with Ledger.open(machine.ledger) as opened:
        yield opened


@pytest.fixture(scope="module")
def everything(ledger: Ledger) -> list[Run]:
    return ledger.runs()


def test_conditions_choose_what_python_chooses(ledger: Ledger, everything: list[Run]) -> None:
    known = {"settings.x": "text"}
    found = set()
    for compare, text in [*itertools.product(["=", "!="], TYPED), *itertools.product(["<", ">="], TYPED[:2])]:
        condition = f"settings.x{compare}{text}"
        parsed = grammar.parse(condition, known)  # type: ignore[arg-type]
        wanted = [run.id for run in everything if where.holds(parsed, partial(where.value, run))]
        assert Choice(condition, None, ledger).ids(ledger) == wanted, condition
        found |= {run.seed for run in everything if compare == "=" and run.id in wanted}
    unequal = {seed for seed, value in enumerate(VALUES) if value in (0.5, [-0.0])}
    assert set(range(len(VALUES))) - found <= unequal, "every other value was found by some text"


def test_lists_are_equal_as_their_parts_are(machine: Machine) -> None:
    def seeds(condition: str) -> list[int]:
        return [run["seed"] for run in machine.json("runs", "--where", condition)["runs"]][::-1]

    assert seeds("settings.x=[64, 64]") == [0, 1, VALUES.index("[64, 64]")]
    assert seeds("settings.x='[64,64]'") == [0, 1, VALUES.index("[64,64]")]
    assert seeds('(settings.x=["a", "b c"] or settings.x=[false]) and not seed=3') == [8, 12]
    assert seeds("settings.x!=[64, 64] and settings.x!=text and seed<4") == [2, 3]
    assert seeds("settings.x!=[64, 64] and seed>=90") == [91], "a run without the setting is not unequal"
    assert seeds("settings.block={wide = true, sizes = [1, 'é']}") == [1, 7, 13, 19]
    assert seeds('settings.block={"sizes":[1.0,"\\u00e9"],"wide":true}') == [1, 7, 13, 19]
    assert seeds("settings.block.sizes=[0, 'é'] and seed<4") == [0, 3]


def test_every_format_has_the_values(machine: Machine, everything: list[Run]) -> None:
    names = "seed,settings.x,settings.block"
    rows = machine.json("runs", "--columns", names, "--where", "seed<90", "--sort", "seed")["runs"]
    assert json.dumps([row["settings.x"] for row in rows]) == json.dumps(VALUES), "the types too"
    assert rows[1]["settings.block"] == {"wide": True, "sizes": [1, "é"]}
    arguments = ("runs", "--columns", names, "--where", "seed<90", "--sort", "seed", "--format")
    lines = list(csv.DictReader(io.StringIO(machine.run(*arguments, "csv").stdout)))
    lists = [(line["settings.x"], value) for line, value in zip(lines, VALUES, strict=True) if isinstance(value, list)]
    for text, value in lists:
        assert text == json.dumps(value, ensure_ascii=False)
    table = machine.run(*arguments, "table").stdout
    assert '   5  [[1, 2.5], ["x", true]]  {"wide": true, "sizes": [2, "é"]}\n' in table
    [run] = [run for run in everything if run.seed == 9]
    shown = machine.run("show", run.id).stdout
    assert lists[9][0] in shown, "as the page of the run has it"
    assert lists[9][0] in table


def test_a_group_has_the_runs_with_equal_lists(machine: Machine) -> None:
    groups = machine.json("runs", "--by", "settings.x")["groups"]
    runs = {json.dumps(group["settings.x"]): group["runs"] for group in groups}
    merged = {"[64, 64]": 2, "[64.0, 64]": 2, "[0]": 2, "[-0.0]": 2}  # one of each pair stands for both
    distinct = {json.dumps(value) for value in VALUES} | {'{"a": [1]}', "null"}
    assert runs == {text: merged.get(text, 1) for text in runs}
    assert distinct - runs.keys() < merged.keys()
    assert len(runs) == len(distinct) - 2
    [equal] = [group for group in groups if group["settings.x"] == [64, 64]]
    assert equal["mean"] == pytest.approx((0 + 1 / 8) / 2)
    kinds = [type(group["settings.x"]) for group in groups]
    order = [
        0 if kind in (int, float, bool) else 1 if kind is str else 3 if kind is type(None) else 2 for kind in kinds
    ]
    assert order == sorted(order), "numbers, texts, lists, nothing"
    table = machine.run("runs", "--by", "settings.block.sizes", "--where", "seed<4").stdout
    assert [line.split("  ")[0] for line in table.splitlines()[1:]] == ['[0, "é"]', '[1, "é"]', '[2, "é"]']


def test_lists_are_sorted_alike_in_lists_and_in_groups(machine: Machine, ledger: Ledger) -> None:
    def values(rows: list[dict[str, Any]]) -> list[str]:
        texts = [json.dumps(row["settings.x"]) for row in rows]
        merged = {"[64.0, 64]": "[64, 64]", "[-0.0]": "[0]"}
        return list(dict.fromkeys(merged.get(text, text) for text in texts))

    columns = machine.json("runs", "--columns", "settings.x", "--sort", "settings.x", "--where", "seed<90")["runs"]
    groups = machine.json("runs", "--by", "settings.x", "--where", "seed<90")["groups"]
    lists = [text for text in values(columns) if text.startswith("[")]
    assert lists == [text for text in values(groups) if text.startswith("[")]
    assert len(lists) == sum(isinstance(value, list) for value in VALUES) - 2
    backwards = machine.json("runs", "--columns", "settings.x", "--sort", "-settings.x", "--where", "seed<90")["runs"]
    assert values(backwards)[0] == lists[-1]


def test_the_page_of_runs_has_them(machine: Machine, tmp_path: Path) -> None:
    page = View(machine.ledger, tmp_path).page("/runs?column=settings.x&where=settings.x=[64,+64]+or+seed=9&sort=seed")
    for text in ("[64, 64]", "[64.0, 64]", '["q\\"u", "ü", "it\'s"]'):
        assert f">{html.escape(text)}<" in page.replace("&#39;", "&#x27;").replace("&#34;", "&quot;"), text


def test_frames_have_them_as_text(machine: Machine) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    with lrurun.open(str(machine.ledger)) as opened:
        runs = opened.runs("seed<90", sort="seed")
    frame = runs.to_pandas()
    assert list(frame["settings.x"]) == runs.to_polars()["settings.x"].to_list()
    for text, value in zip(frame["settings.x"], VALUES, strict=True):
        if isinstance(value, list):
            assert text == json.dumps(value, ensure_ascii=False)
    assert set(frame["settings.block.sizes"]) == {'[0, "é"]', '[1, "é"]', '[2, "é"]'}
    assert len(frame.groupby("settings.block.sizes")) == 3


def test_what_is_no_list_is_named(ledger: Ledger) -> None:
    for text, message in [
        ("settings.x=[64, 64", "--where, column 17: expected and, or, or the end, found '64'"),
        ("settings.x=[a, b]", "--where, column 16: expected and, or, or the end, found 'b]'"),
        (
            "settings.block.wide=[true]",
            "--where, column 21: expected true or false to compare settings.block.wide with",
        ),
        ("seed=[1]", "--where, column 6: expected a number to compare seed with, found '[1]'"),
    ]:
        with pytest.raises(UsageError) as refused:
            Choice(text, None, ledger)
        assert refused.value.message.startswith(message)
    assert "a list is written as in settings.layers=[64, 64]" in str(refused_hint(ledger))
    deep = "[" * 4000 + "]" * 4000
    for value in (deep, f"'{deep}'", "[1e999]", "[nan]", "[2026-11-22]", '["\\u0000"]'):
        assert Choice(f"settings.x={value}", None, ledger).ids(ledger) == []


def refused_hint(ledger: Ledger) -> str | None:
    with pytest.raises(UsageError) as refused:
        Choice("settings.x=[64, 64", None, ledger)
    return refused.value.hint


def test_lists_of_files_and_of_settings_are_shown_where_they_differ(tmp_path: Path) -> None:
    """What distinguishes runs of one rung has its column, settings or not."""
    machine = Machine(tmp_path)
    with Ledger.open(machine.ledger) as ledger:
        key = add_ladder(ledger)
        for seed, letter in enumerate("ab"):
            record(ledger, key, {"x": [seed]}, seed=seed, files={"dir/toy.py": f"sha256:{letter * 64}"})
        record(ledger, key, {"x": [7]}, rung="other", files={"dir/toy.py": f"sha256:{'c' * 64}"})
    header, *rows = machine.run("runs").stdout.splitlines()
    assert header.split()[-2:] == ["program.files.dir/toy.py", "settings.x"]
    assert [row.split()[-2:] for row in rows] == [
        [f"sha256:{letter * 12}", f"[{n}]"] for letter, n in ("c7", "b1", "a0")
    ]

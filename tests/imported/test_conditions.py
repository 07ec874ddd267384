"""Conditions of rungs mean what `--where` means: both are asked about the same runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lrurun
from lrurun.config.schema import ImportedConfig, Origin, Reading
from lrurun.errors import UsageError
from lrurun.imported import conditions
from lrurun.ledger.imports import ImportedRun
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.where.grammar import comparable
from lrurun.trackers import TrackedRun

SETTINGS: dict[str, dict[str, Any]] = {
    "number": {"norm": "layer", "depth": 4, "lr": 1e-3, "optim.name": "adam"},
    "float": {"norm": "none", "depth": 4.0, "lr": 0.001, "optim.name": "sgd"},
    "text": {"norm": "layer", "depth": "4", "lr": "1e-3"},
    "words": {"norm": "Layer", "depth": "four", "batch size": 32, "no/te": "a 'b'"},
    "truth": {"norm": True, "depth": False, "and": 1},
    "lists": {"norm": [64, 64], "depth": [1], "batch size": 64, "and": 2},
    "other lists": {"norm": [64.0, 64.0], "depth": [True]},
    "null": {"norm": None, "depth": None, "lr": None},
    "empty": {"norm": "", "depth": 0},
    "none": {},
    "text of a list": {"norm": "[64, 64]"},
    "umlaut": {"norm": "größe", "depth": -1, "lr": 1e300},
}
CONDITIONS = [
    "norm = layer",
    "norm = 'layer'",
    "norm != layer",
    "not norm = layer",
    "norm = ''",
    "norm != ''",
    "not (norm = '' or norm != '')",
    "norm = true",
    "norm = false or depth = false",
    "norm = [64, 64]",
    "norm != [64, 64]",
    "depth = [1]",
    "depth = [true]",
    "depth = 4",
    "depth = '4'",
    "depth = 4.0",
    "depth != 4",
    "depth < 4",
    "depth <= 4",
    "depth > 0 and norm != none",
    "depth >= -1",
    "depth >= four",
    "depth > 'f'",
    "depth < [2]",
    "lr = 0.001",
    "lr = 1e-3",
    "lr < 1",
    "lr > 1e299",
    "norm = 'größe'",
    "norm > 'm'",
    "optim.name = adam",
    "optim.name != adam",
    '"batch size" = 32',
    "'batch size' > 32",
    "'and' = 1 or \"and\" = 2",
    "no/te = \"a 'b'\"",
    "norm = layer and (depth = 4 or depth = '4') and not lr = '1e-3'",
    "depth = 4 and depth != '4'",
    "norm = [ 64, 64]",
    "norm = '[64, 64]' and norm != [ 64, 64]",
]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("conditions") / "ledger.db"
    with Ledger.open(path) as opened:
        opened.add_imported(
            ImportedRun(
                config=ImportedConfig(
                    task="runs",
                    origin=Origin(tracker="csv", project="runs", run=name),
                    reading=Reading(metric="test_acc"),
                    settings=settings,
                    seed=0,
                ),
                state="done",
                result={"test/acc": 0.5},
                step=0,
                digest="sha256:0",
                origin={},
            )
            for name, settings in SETTINGS.items()
        )
    return path


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_condition_holds_for_the_runs_that_where_finds(text: str, ledger: Path) -> None:
    paths = [path for settings in SETTINGS.values() for path in settings]
    condition = conditions.parse(text, conditions.names_of(paths), "rung x")
    runs = {name: TrackedRun(id=name, settings=settings) for name, settings in SETTINGS.items()}
    holding = {name for name, run in runs.items() if conditions.holds(condition, run, "csv")}
    in_ledger = text
    for path in sorted(set(paths), key=len, reverse=True):
        for quote in ("", "'", '"'):
            for before in ("", "(", " "):
                for operator in (" =", " !=", " <", " >"):
                    old = f"{before}{quote}{path}{quote}{operator}"
                    if in_ledger.startswith(old) or (before and old in in_ledger):
                        in_ledger = in_ledger.replace(old, f"{before}{quote}settings.{path}{quote}{operator}")
    with lrurun.open(ledger) as opened:
        found = {run.config.origin.run for run in opened.runs(in_ledger)}  # type: ignore[union-attr]
    assert holding == found


def test_the_conditions_tell_the_runs_apart() -> None:
    """Else the comparison above would prove little."""
    names = conditions.names_of([path for settings in SETTINGS.values() for path in settings])
    runs = [TrackedRun(id=name, settings=settings) for name, settings in SETTINGS.items()]
    answers = [
        tuple(conditions.holds(conditions.parse(text, names, ""), run, "csv") for run in runs) for text in CONDITIONS
    ]
    assert len(set(zip(*answers, strict=True))) == len(runs) - 1  # without a value is without one, null or not
    assert all(any(answer) and not all(answer) for answer in answers)


def test_names_of_a_run_and_paths_with_their_section() -> None:
    run = TrackedRun(id="r1", name="first try", project="norms", settings={"norm": "layer", "name": "own"})
    names = conditions.names_of(run.settings)
    for text in ("id = r1", "name = 'first try'", "project = norms", "tracker = wandb", "settings.norm = layer"):
        assert conditions.holds(conditions.parse(text, names, ""), run, "wandb"), text
    assert conditions.holds(conditions.parse("settings.name = own", names, ""), run, "wandb")


def test_an_unknown_name_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"rung x, column 1: unknown name 'nrom'") as caught:
        conditions.parse("nrom = layer", conditions.names_of(["norm"]), "rung x")
    assert "did you mean 'norm'?" in (caught.value.hint or "")


VALUES: list[Any] = [
    *(None, "", "other", 17, True, False, [1], "None", "none", 4, 1, 0, "layer", [64, 64], "4", "4.0", "1", "1.0"),
    *("[1]", "[1.0]", "[ 1]", "[64, 64]", "nan", 1e-05, "1e-05", [True], ["1"], "false", 10**400, "it's", [[1], None]),
]


@pytest.mark.parametrize(
    ("name", "value", "others", "text"),
    [
        ("norm", "layer", [], "norm = 'layer'"),
        ("norm", "it's", [], 'norm = "it\'s"'),
        ("depth", 4, [5, "x"], "depth = 4"),
        ("depth", 4, ["4", 4.0], "depth = 4 and depth != '4'"),
        ("depth", 4.0, ["4"], "depth = 4.0"),
        ("depth", "4", [4], "depth = '4'"),
        ("bias", True, [1, "true"], "bias = true"),
        ("sizes", [64, 64], [], "sizes = [64, 64]"),
        ("sizes", [64, 64], ["[64, 64]"], "sizes = [ 64, 64]"),
        ("sizes", "[64, 64]", [[64, 64]], "sizes = '[64, 64]' and sizes != [ 64, 64]"),
        ("norm", None, ["none"], "not (norm = '' or norm != '')"),
        ("norm", "none", [None], "norm = 'none'"),
        ("batch size", 32, [], "'batch size' = 32"),
        ("and", 1, [], "'and' = 1"),
        ("name", "a", [], "settings.name = 'a'"),
        ("lr", 1e-05, [], "lr = 1e-05"),
    ],
)
def test_the_condition_of_a_value(name: str, value: Any, others: list[Any], text: str) -> None:
    assert conditions.equals(name, value, others) == text


@pytest.mark.parametrize("value", VALUES, ids=[repr(value)[:20] for value in VALUES])
def test_the_condition_of_a_value_holds_for_equal_ones_alone(value: Any) -> None:
    text = conditions.equals("d", value, VALUES)
    condition = conditions.parse(text, conditions.names_of(["d"]), "")
    for other in VALUES:
        holds = conditions.holds(condition, TrackedRun(id="a", settings={"d": other}), "csv")
        assert holds == (comparable(other) == comparable(value)), (text, other)


def test_values_are_equal_as_conditions_take_them() -> None:
    groups: list[list[Any]] = [
        *([1, 1.0], ["1"], ["1.0"], [True, "true"], [0, 0.0, -0.0], [None], ["none"], ["null"], ["nan"]),
        *([[1, 2], [1.0, 2.0]], ["[1, 2]"], [[True, 2]], [["1", 2]], [10**400], [2**53, 2**53 + 1], [["true"]]),
    ]
    keys = [{comparable(value) for value in group} for group in groups]
    assert [len(of_group) for of_group in keys] == [1] * len(groups)
    assert len(set.union(*keys)) == len(groups)


def test_what_no_condition_can_write_is_an_error() -> None:
    with pytest.raises(UsageError, match="both kinds of quotes"):
        conditions.equals("norm", "a'b\"c")

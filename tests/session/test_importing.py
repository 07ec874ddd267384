"""`lrurun.import_runs`: files and frames, what it returns, and errors that name its arguments."""

from __future__ import annotations

from typing import Any

import pandas
import polars
import pytest

import lrurun
from lrurun.errors import UsageError
from tests.harness.machine import Machine
from tests.harness.tables import SCORES, write_runs


def _columns() -> dict[str, list[Any]]:
    rows = [(f"{norm}-{seed}", norm, seed, score) for norm, s in SCORES.items() for seed, score in enumerate(s)]
    return dict(zip(("run", "norm", "seed", "test_acc"), map(list, zip(*rows, strict=True)), strict=True))


MEANS = {norm: sum(of_norm) / len(of_norm) for norm, of_norm in SCORES.items()}


def test_a_table_is_reported_and_drawn(here: Machine) -> None:
    write_runs(here.folder / "runs.csv")
    runs = lrurun.import_runs("runs.csv", metric="test_acc", by="norm", base={"norm": "layer"}, seed_column="seed")
    assert repr(runs) == "<imported runs runs: 18 new, 0 changed, 0 as they were>"
    assert {row.rung: row.mean for row in runs.report()} == pytest.approx(MEANS)
    assert runs.report()[0].rung == "layer"
    assert [claim.text for claim in runs.report().claims] == []
    assert len(runs.runs) == 18
    assert sorted(set(runs.runs.columns()["rung"])) == sorted(SCORES)
    assert runs._repr_html_() == runs.report()._repr_html_()
    assert runs.plot().axes
    assert runs.path.read_text().startswith("# Runs that were made elsewhere")
    again = lrurun.import_runs(runs.path)
    assert (again.record.new, again.record.equal) == (0, 18)
    assert lrurun.import_runs(["runs.csv"]).record.equal == 18


@pytest.mark.parametrize("library", [pandas, polars])
def test_a_frame_is_read_again_when_it_is_passed_again(library: Any, here: Machine) -> None:
    frame = library.DataFrame(_columns())
    runs = lrurun.import_runs(frame, name="norms", metric="test_acc", by=["norm"])
    assert {row.rung: row.mean for row in runs.report()} == pytest.approx(MEANS)
    assert lrurun.import_runs(frame, name="norms").record.equal == 18
    assert runs.path.name == "norms.toml"
    with pytest.raises(UsageError, match="its runs came from a data frame") as caught:
        lrurun.import_runs("norms.toml")
    assert caught.value.hint == 'pass it: lrurun.import_runs(frame, name="norms")'
    write_runs(here.folder / "norms.csv")
    with pytest.raises(UsageError, match=r"norms\.csv: norms\.toml, line 8 has source = frame"):
        lrurun.import_runs("norms.csv")


def test_a_frame_and_a_table_give_the_same_report(here: Machine) -> None:
    write_runs(here.folder / "runs.csv")
    of_table = lrurun.import_runs("runs.csv", by="norm").report()
    of_frame = lrurun.import_runs(pandas.DataFrame(_columns()), name="other", by="norm").report()
    assert [(row.rung, row.n, row.mean, row.verdict) for row in of_table] == [
        (row.rung, row.n, row.mean, row.verdict) for row in of_frame
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metric": "tset_acc"}, 'metric tset_acc: no run has this metric|metric="tset_acc"'),
        ({"metric": 3}, "metric: expected text, found int"),
        ({"direction": "up"}, "direction: expected one of max, min, found 'up'"),
        ({"at": "end"}, "at"),
        ({"by": 3}, "by: expected a text, or a list of texts, found int"),
        ({"base": "norm=a"}, "base: expected a mapping, found str"),
        ({"test_items": 0}, "test_items: expected a whole number from 1"),
        ({"chance": "0.1"}, "chance: expected a number, found str"),
        ({"chance": True}, "chance: expected a number, found bool"),
        ({"chance": float("nan")}, r"chance: expected a number from -1e\+09 to 1e\+09, found nan"),
        ({"chance": 10**400}, "chance: expected a number from"),
        ({"per_cent": "yes"}, "per_cent: expected True or False, found str"),
        ({"scores_only": "yes"}, "scores_only: expected True or False, found str"),
        ({"seed_column": "s"}, "seed_column"),
        ({"name": "npDigits"}, "'npDigits' is a task of lrurun"),
        ({"kind": "cvs"}, "kind"),
    ],
)
def test_errors_name_arguments(arguments: dict[str, Any], message: str, here: Machine) -> None:
    write_runs(here.folder / "runs.csv")
    with pytest.raises(UsageError, match=message) as caught:
        lrurun.import_runs("runs.csv", **arguments)
    assert "--" not in str(caught.value) + (caught.value.hint or "")
    assert here.files() == ["runs.csv"]


@pytest.mark.parametrize("source", [3, None, [], [3], {"a": 1}])
def test_what_is_no_source_is_refused(source: Any) -> None:
    with pytest.raises(UsageError, match="source: expected"):
        lrurun.import_runs(source)

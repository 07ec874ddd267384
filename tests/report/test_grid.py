"""How ladders that are grids are declared."""

from __future__ import annotations

from pathlib import Path

import pytest

from lrurun.config.ladder import Ladder, load_ladder
from lrurun.errors import UsageError


def test_the_ladder_of_stability_is_table_5() -> None:
    ladder = load_ladder("stability")
    assert ladder.grid is not None
    forms = dict(zip(("free", "stable", "gamma"), ladder.grid.rows, strict=True))
    for form, row in forms.items():
        rings = [column.replace(" to ", "-") for column in ladder.grid.columns]
        assert list(ladder.grid.rows[row]) == [f"{form}-{ring}" for ring in rings]
    for form, row in forms.items():
        said = {"free": "not kept stable", "stable": "kept stable", "gamma": "kept stable and normalised"}[form]
        assert {rung.title.split(", ")[1] for rung in ladder.rungs if rung.name in ladder.grid.rows[row]} == {said}


DOCUMENT = """
name = "forms"
title = "t"
source = "ours"
rung = [
  { name = "free-1", title = "a", change = { "model.recurrence.kind" = "diagonal" } },
  { name = "free-2", title = "b", change = { "model.recurrence.r_min" = 0.5 } },
  { name = "kept-1", title = "c", change = { "model.recurrence.r_min" = 0.6 } },
]
[grid]
down = "form"
across = "ring"
columns = ["one", "two"]
[grid.rows]
free = ["free-1", "free-2"]
kept = ["kept-1", ""]
"""


def load(tmp_path: Path, text: str) -> Ladder:
    (tmp_path / "forms.toml").write_text(text)
    return load_ladder(str(tmp_path / "forms.toml"))


def test_a_grid_may_have_empty_cells(tmp_path: Path) -> None:
    grid = load(tmp_path, DOCUMENT).grid
    assert grid is not None
    assert grid.rows == {"free": ("free-1", "free-2"), "kept": ("kept-1", "")}


@pytest.mark.parametrize(
    ("old", "new", "error", "hint"),
    [
        ('"free-2"]', '"fre-2"]', "row 'free', column 'two': unknown rung 'fre-2'", "did you mean 'free-2'?"),
        ('"kept-1", ""', '"", ""', "rung kept-1 is in no cell", "add it to a row"),
        ('"kept-1", ""', '"kept-1"', "expected a rung for each of the 2 columns, found 1", "leave a cell empty"),
        ('"kept-1", ""', '"kept-1", "free-1"', "free-1 is in row 'free', column 'one' already", "remove one"),
        ('["one", "two"]', '["one", "one"]', "columns: 'one' is listed twice", "rename one of them"),
        ('across = "ring"', 'acros = "ring"', "unknown name", ""),
        ('across = "ring"', "", "grid.across: missing", ""),
        ('["one", "two"]', "[]", "grid.columns: expected", ""),
        ('["kept-1", ""]', "3", "grid.rows.kept: expected a list, found 3", ""),
    ],
)
def test_a_grid_that_is_not_its_rungs_is_refused(tmp_path: Path, old: str, new: str, error: str, hint: str) -> None:
    assert old in DOCUMENT
    with pytest.raises(UsageError) as caught:
        load(tmp_path, DOCUMENT.replace(old, new))
    assert "forms.toml" in caught.value.message
    assert error in caught.value.message
    assert hint in (caught.value.hint or "")

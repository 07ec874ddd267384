# ruff: noqa: E501 (whole outputs are compared as they are)
"""Ladders that are grids: how they are declared, and how reports print them."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lrurun.config.ladder import Grid, Ladder, Published, load_ladder
from lrurun.errors import UsageError
from lrurun.report import formats
from tests.harness.printed import read
from tests.harness.reports import body, build, make_run, make_rung

PUBLISHED = {
    "free-1": Published(source="Paper", value=0.7, stderr=0.01),
    "stable-2": Published(source="Paper", note="not above chance"),
}
LADDER = Ladder(
    name="forms",
    title="two forms on three rings",
    source="Paper",
    rungs=tuple(
        make_rung(name, **({"sDigits": (PUBLISHED[name],)} if name in PUBLISHED else {}))
        for name in ("free-1", "stable-1", "free-2", "stable-2", "free-3")
    ),
    grid=Grid(
        down="form",
        across="ring",
        columns=("one", "two", "th|ree"),
        rows={"free": ("free-1", "free-2", "free-3"), "kept_stable": ("stable-1", "stable-2", "")},
    ),
)
# Means 0.71, 0.82 twice, 0.5; standard errors sqrt(0.0001 / 3) = 0.0058, sqrt(0.0004 / 3) = 0.0115, sqrt(0.0002 / 2) = 0.01.
SCORES = {"free-1": (0.70, 0.72, 0.71), "stable-1": (0.80, 0.84, 0.82), "free-2": (0.81, 0.83), "stable-2": (0.5,)}
RUNS = [
    *(make_run(f"{rung}.{seed}", rung, seed, score) for rung, scores in SCORES.items() for seed, score in enumerate(scores)),
    make_run("bad", "stable-2", 1, state="diverged"),
]  # fmt: skip


def report(**more: Any) -> Any:
    return build(LADDER, RUNS, **more)


WIDE = """\
form         one                   two                   th|ree
───────────  ────────────────────  ────────────────────  ───────
free         71.00 ± 0.58 (n=3)    82.00 ± 1.00 (n=2) *  – (n=0)
             (70.0 ± 1.0)
kept_stable  82.00 ± 1.15 (n=3) *  50.00 (n=1)
                                   1 diverged
                                   (chance)"""

TALL = """\
ring    free                  kept_stable
──────  ────────────────────  ────────────────────
one     71.00 ± 0.58 (n=3)    82.00 ± 1.15 (n=3) *
        (70.0 ± 1.0)
two     82.00 ± 1.00 (n=2) *  50.00 (n=1)
                              1 diverged
                              (chance)
th|ree  – (n=0)"""

MARKDOWN = """\
| form | one | two | th\\|ree |
| --- | --- | --- | --- |
| free | 71.00 ± 0.58 (n=3)<br>(70.0 ± 1.0) | **82.00 ± 1.00 (n=2)** | – (n=0) |
| kept_stable | **82.00 ± 1.15 (n=3)** | 50.00 (n=1)<br>1 diverged<br>(chance) |  |

| rung | title |"""

LATEX = r"""\caption{two forms on three rings on sDigits, without -{}-tune.}
\label{tab:forms-sDigits-grid}
\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%
\begin{tabular}{lll}
\toprule
ring & free & kept\_stable \\
\midrule
one & 71.00 $\pm$ 0.58 (n=3) & \textbf{82.00 $\pm$ 1.15 (n=3)} \\
 & (70.0 $\pm$ 1.0) &  \\
two & \textbf{82.00 $\pm$ 1.00 (n=2)} & 50.00 (n=1) \\
 &  & 1 diverged \\
 &  & (chance) \\
th\textbar{}ree & -- (n=0) &  \\
\bottomrule
\end{tabular}}
\end{table}
\begin{table}[htbp]
\centering
\caption{two forms on three rings on sDigits, without -{}-tune.}
\label{tab:forms-sDigits}
"""


@pytest.mark.parametrize(("width", "expected"), [(200, WIDE), (64, WIDE), (63, TALL), (50, TALL)])
def test_a_terminal_has_the_grid_as_declared_or_on_its_side(width: int, expected: str) -> None:
    table = formats.render(report(), "table", width=width)
    assert body(table) == expected
    assert "rung" in table.split("\n\n")[2].split("\n")[0].split()
    assert "Grid: the best mean is marked; in parentheses, the published values." in re.sub(r"\s+", " ", table)


def test_a_terminal_too_narrow_for_the_grid_has_the_rows_alone() -> None:
    table = formats.render(report(), "table", width=49)
    assert body(table).startswith("rung ")
    for width in range(25, 100, 3):
        assert max(map(len, formats.render(report(), "table", width=width).split("\n"))) <= width


def test_documents_have_the_grid_and_the_rows() -> None:
    assert MARKDOWN in formats.render(report(), "md")
    assert LATEX in formats.render(report(), "latex")
    text = formats.render(report(), "html")
    page = read(text)
    assert page.tables[0] == [
        ["form", "one", "two", "th|ree"],
        ["free", "71.00 ± 0.58 (n=3)\n(70.0 ± 1.0)", "82.00 ± 1.00 (n=2)", "– (n=0)"],
        ["kept_stable", "82.00 ± 1.15 (n=3)", "50.00 (n=1)\n1 diverged\n(chance)", ""],
    ]
    assert page.texts["strong"] == ["82.00 ± 1.00 (n=2)", "82.00 ± 1.15 (n=3)"]
    assert '<a href="#runs/stable-1"><strong>82.00 ± 1.15 (n=3)</strong></a>' in text
    assert [row[0] for row in page.tables[1][1:]] == [f"{rung.name}\na rung" for rung in LADDER.rungs]


def test_data_stay_one_row_a_rung() -> None:
    plain = build(msgspec.structs.replace(LADDER, grid=None), RUNS)
    found = json.loads(formats.render(report(), "json"))
    assert found.pop("grid")["rows"]["free"] == ["free-1", "free-2", "free-3"]
    assert found | {"grid": None} == json.loads(formats.render(plain, "json"))
    assert formats.render(report(), "csv") == formats.render(plain, "csv")
    assert len(list(csv.reader(io.StringIO(formats.render(report(), "csv"))))) == 6


def test_an_empty_grid_has_no_best_cell() -> None:
    table = formats.render(build(LADDER, []), "table")
    assert table.count("– (n=0)") == 10
    assert " *" not in table


def test_some_rungs_of_a_grid_are_none() -> None:
    assert build(LADDER, [], shown=[rung.name for rung in LADDER.rungs[:4]]).grid is None
    assert build(LADDER, []).grid == LADDER.grid


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
def test_the_grid_of_the_paper_fits_a_page(tmp_path: Path) -> None:
    ladder = load_ladder("stability")
    runs = [make_run(rung.name, rung.name, 0, 0.5) for rung in ladder.rungs]
    (tmp_path / "grid.tex").write_text(formats.render(build(ladder, runs, task="sCIFAR"), "latex"))
    document = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}\input{grid}\end{document}"
    (tmp_path / "document.tex").write_text(document)
    words = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "document.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout
    assert "too large" not in done.stdout
    assert "Overfull" not in done.stdout


# Declared


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
        ('"free-2"]', '"fre-2"]', "row 'free', column 'two': unknown rung 'fre-2'", "did you mean 'free-2'? rungs: free-1, free-2, kept-1"),
        ('"kept-1", ""', '"", ""', "rung kept-1 is in no cell", "add it to a row, or remove [grid]"),
        ('"kept-1", ""', '"kept-1"', "row 'kept': expected a rung for each of the 2 columns, found 1", 'leave a cell empty with ""'),
        ('"kept-1", ""', '"kept-1", "free-1"', "row 'kept', column 'two': free-1 is in row 'free', column 'one' already", "remove one of them"),
        ('["one", "two"]', '["one", "one"]', "columns: 'one' is listed twice", "rename one of them"),
    ],
)  # fmt: skip
def test_a_grid_that_is_not_its_rungs_is_refused(tmp_path: Path, old: str, new: str, error: str, hint: str) -> None:
    assert old in DOCUMENT
    with pytest.raises(UsageError) as caught:
        load(tmp_path, DOCUMENT.replace(old, new))
    where, _, said = caught.value.message.partition(" [grid]")
    assert where.endswith("forms.toml")
    assert said.lstrip(",: ") == error
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('across = "ring"', 'acros = "ring"', "unknown name"),
        ('across = "ring"', "", "grid.across: missing"),
        ('["one", "two"]', "[]", "grid.columns: expected"),
        ('["kept-1", ""]', "3", "grid.rows.kept: expected a list, found 3"),
    ],
)
def test_a_grid_is_parsed_strictly(tmp_path: Path, old: str, new: str, error: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, DOCUMENT.replace(old, new))
    assert error in caught.value.message

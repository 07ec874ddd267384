# ruff: noqa: E501 (whole outputs are compared as they are)
"""`lrurun report --all`: a ladder on all its tasks, and what is never mixed."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lrurun import console, paths
from lrurun.config.runs import InstanceSpec
from lrurun.data.metric import Metric
from lrurun.ledger.store import Ledger
from lrurun.report.figures import task_map
from lrurun.report.scores import form_of
from lrurun.report.tables import all_tasks
from tests.harness.commands import said
from tests.harness.drawings import caption, lines, misplaced
from tests.harness.printed import agrees, from_latex, from_markdown, from_table, number, read
from tests.harness.reports import MINI, build, make_run, make_rung
from tests.harness.results import fill

LADDERS = ", ".join(sorted(paths.names("ablations")))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five instances of the ladder lru on four tasks, and two that are not asked for."""
    path = tmp_path_factory.mktemp("filled") / "ledger.db"
    # Means 85, 60, 61, 71; standard errors 5, 10, 1 and sqrt(1 / 3) = 0.577 points.
    fill(path, "Text", {"tanh-rnn": (0.8, 0.9), "linear-rnn": (0.95,)}, sets=["train.protocol=paper"])
    fill(path, "sDigits", {"tanh-rnn": (0.5, 0.7), "linear-rnn": (0.8,)})
    fill(path, "sDigits", {"tanh-rnn": (0.25,)}, profile="smoke", data="e")
    fill(path, "Image", {"tanh-rnn": (0.6, 0.62)})
    fill(path, "sCIFAR", {"tanh-rnn": (0.7, 0.71, 0.72), "small-phase": (0.9,)})
    fill(path, "sCIFAR", {"tanh-rnn": (0.1,)}, sets=["optim.lr=0.5"])
    fill(path, "ListOps", {"tanh-rnn": (0.1,)}, ladder="nonlinearity")
    return path


@pytest.fixture
def ledger(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of `filled` in the working directory."""
    monkeypatch.chdir(tmp_path)
    yield Path(shutil.copy(filled, tmp_path))
    console.set_verbosity(0)


def lrurun(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    return said(capsys, "report", *words)


def out(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code, text, err = lrurun(capsys, *words)
    assert (code, err) == (0, "")
    return text


TABLE = """\
from a tanh RNN to the Linear Recurrent Unit on all tasks, without --tune

                                                                                    Text                                     sDigits
rung        title                           sCIFAR              Image               selected on test    sDigits              profile smoke
──────────  ──────────────────────────────  ──────────────────  ──────────────────  ──────────────────  ───────────────────  ─────────────
tanh-rnn    dense RNN with tanh             71.00 ± 0.58 (n=3)  61.00 ± 1.00 (n=2)  85.00 ± 5.00 (n=2)  60.00 ± 10.00 (n=2)  25.00 (n=1)
                                            (69.9 ± 0.3)                            (87.2 ± 0.1)
linear-rnn  dense RNN without nonlinearity  – (n=0)             – (n=0)             95.00 (n=1)         80.00 (n=1)          – (n=0)
                                            (72.2 ± 0.2)                            undecided +10.00    undecided +20.00
                                                                                    (89.1 ± 0.1)

"""

FOOT = [
    "Test accuracy in per cent: mean ± standard error over n finished seeds; in parentheses, the published values. Each column is a separate task, and nothing is averaged over columns.",
    "Below the score: what the change to the base rung did, the difference with its 95 % interval (Welch), not corrected, and p, corrected by Holm's method over the differences and claims of a task.",
    "Image has gray pictures, sCIFAR the same pictures in colour: these are different tasks, and values published for sCIFAR do not apply to Image.",
    'Selected on test: trained with protocol = "paper", which selects the model on the test split, as the paper did; such scores are too high to be compared with those of models selected on validation.',
    "Learning rate untuned (the recipe's default): sCIFAR; Image; Text, selected on test.",
    "Learning rate chosen for each rung: sDigits; sDigits, profile smoke.",
    "Published: Orvieto et al. 2023, Table 6 (sCIFAR, Text). They are for the full tasks; these profiles are smaller (smoke).",
    "Caution, Image; sDigits; sDigits, profile smoke: stand-in for the paper's tasks.",
    "Caution, Text, selected on test: not tuned, see --tune (all rungs).",
    "Caution, Text, selected on test; sDigits: n = 1: no test (all rungs).",
    "Caution, sDigits, profile smoke: profile smoke shows that everything runs, its scores mean nothing.",
    "Note: left out, because profile, --set, --tune or the recipe differ: ladder lru on sCIFAR, without --tune, optim.lr=0.5",
]

MARKDOWN = """\
### from a tanh RNN to the Linear Recurrent Unit on all tasks, without --tune

| rung | title | sCIFAR | Image | Text<br>selected on test | sDigits | sDigits<br>profile smoke |
| --- | --- | --- | --- | --- | --- | --- |
| tanh-rnn | dense RNN with tanh | 71.00 ± 0.58 (n=3)<br>(69.9 ± 0.3) | 61.00 ± 1.00 (n=2) | 85.00 ± 5.00 (n=2)<br>(87.2 ± 0.1) | 60.00 ± 10.00 (n=2) | 25.00 (n=1) |
| linear-rnn | dense RNN without nonlinearity | – (n=0)<br>(72.2 ± 0.2) | – (n=0) | 95.00 (n=1)<br>undecided +10.00<br>(89.1 ± 0.1) | 80.00 (n=1)<br>undecided +20.00 | – (n=0) |

"""

LATEX = r"""\caption{from a tanh RNN to the Linear Recurrent Unit on all tasks, without -{}-tune.}
\label{tab:lru-all}
\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%
\begin{tabular}{llllll}
\toprule
rung & sCIFAR & Image & Text & sDigits & sDigits \\
 &  &  & selected on test &  & profile smoke \\
\midrule
tanh-rnn & 71.00 $\pm$ 0.58 (n=3) & 61.00 $\pm$ 1.00 (n=2) & 85.00 $\pm$ 5.00 (n=2) & 60.00 $\pm$ 10.00 (n=2) & 25.00 (n=1) \\
 & (69.9 $\pm$ 0.3) &  & (87.2 $\pm$ 0.1) &  &  \\
linear-rnn & -- (n=0) & -- (n=0) & 95.00 (n=1) & 80.00 (n=1) & -- (n=0) \\
 & (72.2 $\pm$ 0.2) &  & undecided +10.00 & undecided +20.00 &  \\
 &  &  & (89.1 $\pm$ 0.1) &  &  \\
\bottomrule
"""

STACKED = """\
tanh-rnn
  sCIFAR: 71.00 ± 0.58 (n=3), (69.9 ± 0.3)
  Image: 61.00 ± 1.00 (n=2)
  Text, selected on test: 85.00 ± 5.00 (n=2), (87.2 ± 0.1)
  sDigits: 60.00 ± 10.00 (n=2)
  sDigits, profile smoke: 25.00 (n=1)
"""


def test_the_map_has_a_sign_for_each_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], drawing: list[Any]
) -> None:
    """As text, on the page, and as a figure."""
    monkeypatch.chdir(tmp_path)
    ledger = tmp_path / "ledger.db"
    near = [0.5 + seed / 1000 for seed in range(12)]
    better, worse = [one + 0.12 for one in near], [one - 0.2 for one in near]
    fill(ledger, "sDigits", {"tanh-rnn": near, "linear-rnn": better, "diagonal": better[::-1]})
    fill(ledger, "sCIFAR", {"tanh-rnn": near, "linear-rnn": worse})
    text = out(capsys, "--all", "--limit", "3")
    assert text.split("\n\n")[1].split("\n") == [
        "rung        sCIFAR   sDigits",
        "──────────  ───────  ───────",
        "tanh-rnn    50.6 %   50.6 %",
        "linear-rnn  ▼ -20.0  ▲ +12.0",
        "diagonal    –        · +0.0",
    ]
    caution = "not tuned, see --tune (sCIFAR); stand-in for the paper's tasks (sDigits)."
    assert f"\nCaution: {caution}\n" in text
    cells = [["50.6 %", "50.6 %"], ["▼ −20.0", "▲ +12.0"], ["", "· +0.0"]]
    page = read(out(capsys, "--all", "--limit", "3", "--format", "html"))
    assert [row[1:] for row in page.picture[1:]] == cells
    assert f"Caution: {caution}" in page.texts["p"]
    looks = [found["class"] for tag, found in page.tags if tag == "td" and "class" in found]
    # by the size of the difference, as a share of the largest; what is undecided is pale
    assert [look for look in looks if look][:2] == ["worse s4", "better s3"]
    code, _, _ = said(capsys, "plot", "--kind", "map", "--out", "map.svg")
    assert code == 0
    [ax] = drawing[0].axes
    assert [one.get_text() for one in ax.texts][:6] == [cell for row in cells for cell in row]
    [mesh] = ax.collections
    lightness = mesh.get_array()
    colors = mesh.to_rgba(lightness)
    for (red, _, blue, _), sign in ((colors[1, 0], -1), (colors[1, 1], 1)):
        assert (blue - red) * sign > 0
    assert -lightness[1, 0] > lightness[1, 1] > lightness[2, 1] > 0
    for kind in ("map", "summary"):
        assert said(capsys, "plot", "sDigits", "--kind", kind, "--out", "map.svg")[0] == 2


def test_a_summary_has_the_scores_of_tasks_and_their_mean_beside_the_published(ledger, capsys, drawing) -> None:
    assert said(capsys, "plot", "--kind", "summary", "--out", "summary.png")[0] == 0
    ours, published = drawing[0].axes
    drawn = lines(ours)
    assert [tick.get_text() for tick in ours.get_yticklabels()][:2] == ["tanh-rnn", "linear-rnn"]
    assert drawn["sCIFAR"] == ([pytest.approx(71.0), pytest.approx(90.0)], [0.0, -7.0])
    assert drawn["Image"] == ([pytest.approx(61.0)], [0.0])
    # 71, 61, 85, 60 and 25; no other rung has a score on each of these tasks
    assert drawn["mean"] == ([pytest.approx(60.4)], [0.0])
    theirs = lines(published)
    assert theirs["sCIFAR"][0][0] == pytest.approx(69.9)
    assert theirs["mean"][0][0] == pytest.approx((69.9 + 87.2) / 2)
    assert "Orvieto et al. 2023, Table 6" in caption(drawing[0])
    assert misplaced(drawing[0]) == []


def test_a_cell_whose_sign_and_difference_point_apart_says_why() -> None:
    base = [0.84 + seed / 300 for seed in range(12)]
    ladder = msgspec.structs.replace(MINI, rungs=(make_rung("a"), make_rung("b")), claims=())
    runs = [make_run(f"a{seed}", "a", seed, score) for seed, score in enumerate(base)]
    runs += [make_run(f"b{seed}", "b", seed, score + 0.06 if seed > 1 else 0.1) for seed, score in enumerate(base)]
    report = build(ladder, runs)
    drawn = task_map.make(all_tasks.build(ladder, [report]))
    assert (drawn.tasks, drawn.cells[1][0].text) == (("sDigits",), "▲ mean -7.4")
    bits = form_of(Metric(name="bits_per_byte", unit="bits", higher_is_better=False))
    drawn = task_map.make(all_tasks.build(ladder, [msgspec.structs.replace(report, score=bits)]))
    assert drawn.tasks == ("sDigits, lower is better",)
    assert "mean" not in drawn.cells[1][0].text


def test_the_whole_table(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "--all", "--limit", "2", "--details")
    assert text == TABLE + "\n".join(FOOT) + "\n"


def test_a_narrow_terminal_has_a_line_a_task(
    ledger: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for width, start in ((60, STACKED), (120, None)):
        monkeypatch.setattr(console, "width", lambda width=width: width)
        text = out(capsys, "--all", "--details")
        assert max(map(len, text.split("\n"))) <= width
        assert (start is None) or start in text
    assert "rung                sCIFAR              Image" in text


def test_documents(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        out(capsys, "--all", "--limit", "2", "--format", "md")
        == MARKDOWN + "\n".join(f"- {one}" for one in FOOT) + "\n"
    )
    assert LATEX in out(capsys, "--all", "--limit", "2", "--format", "latex")
    text = out(capsys, "--all", "--limit", "2", "--format", "html")
    page = read(text)
    assert page.tables[0] == [
        ["rung", "sCIFAR", "Image", "Text\nselected on test", "sDigits", "sDigits\nprofile smoke"],
        ["tanh-rnn\ndense RNN with tanh", "71.00 ± 0.58 (n=3)\n(69.9 ± 0.3)", "61.00 ± 1.00 (n=2)", "85.00 ± 5.00 (n=2)\n(87.2 ± 0.1)", "60.00 ± 10.00 (n=2)", "25.00 (n=1)"],
        ["linear-rnn\ndense RNN without nonlinearity", "– (n=0)\n(72.2 ± 0.2)", "– (n=0)", "95.00 (n=1)\nundecided +10.00\n(89.1 ± 0.1)", "80.00 (n=1)\nundecided +20.00", "– (n=0)"],
    ]  # fmt: skip
    assert page.texts["li"] == [text for text in FOOT if not text.startswith("Caution")]  # they are at its top
    # every score leads to its runs, of which there are ten
    assert [row[0].partition(" compared")[0] for row in page.tables[1] if len(row) == 1][:4] == [
        "sCIFAR: tanh-rnn",
        "Image: tanh-rnn",
        "Text, selected on test: tanh-rnn",
        "Text, selected on test: linear-rnn",
    ]
    assert [row[3] for row in page.tables[1] if len(row) == 6][1:] == [
        *("70.00", "71.00", "72.00"),
        *("60.00", "62.00"),
        *("80.00", "90.00", "95.00"),
        *("50.00", "70.00", "80.00"),
        "25.00",
    ]
    assert "<svg" not in text


def test_json_has_a_row_a_rung_and_a_cell_a_task(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(out(capsys, "--all", "--json"))
    assert {key: found[key] for key in ("schema_version", "ladder", "metric", "tasks")} == {
        "schema_version": 1,
        "ladder": "lru",
        "metric": "test/accuracy",
        "tasks": ["sCIFAR", "Image", "Text", "sDigits"],
    }
    assert [(one["task"], one["profile"], one["test_selected"]) for one in found["columns"]] == [
        ("sCIFAR", None, False),
        ("Image", None, False),
        ("Text", None, True),
        ("sDigits", None, False),
        ("sDigits", "smoke", False),
    ]
    assert len(found["rows"]) == 8
    first = found["rows"][0]
    assert (first["rung"], first["title"]) == ("tanh-rnn", "dense RNN with tanh")
    assert [(cell["task"], cell["n"], cell["mean"], cell["stderr"]) for cell in first["cells"]] == [
        ("sCIFAR", 3, pytest.approx(0.71), pytest.approx(0.01 / 3**0.5)),
        ("Image", 2, pytest.approx(0.61), pytest.approx(0.01)),
        ("Text", 2, pytest.approx(0.85), pytest.approx(0.05)),
        ("sDigits", 2, pytest.approx(0.6), pytest.approx(0.1)),
        ("sDigits", 1, 0.25, None),
    ]
    assert [cell["profile"] for cell in first["cells"]] == [None] * 4 + ["smoke"]
    paper = {"source": "Orvieto et al. 2023, Table 6", "value": 0.699, "stderr": 0.003, "n": 3, "note": ""}
    paper |= {"metric": "", "profile": ""}
    assert first["cells"][0]["published"] == [paper]
    assert first["cells"][1]["published"] == []
    with Ledger.open(ledger) as opened:
        runs = {run.id: (run.task, run.seed) for run in opened.runs()}
    assert [[runs[run] for run in cell["runs"]] for cell in first["cells"][:2]] == [
        [("sCIFAR", 0), ("sCIFAR", 1), ("sCIFAR", 2)],
        [("Image", 0), ("Image", 1)],
    ]
    assert found["notes"] == [{"text": FOOT[-1].removeprefix("Note: "), "runs": []}]


@pytest.mark.slow
def test_all_formats_of_the_matrix_carry_the_same_numbers(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(out(capsys, "--all", "--json"))
    lines = list(csv.DictReader(io.StringIO(out(capsys, "--all", "--format", "csv"))))
    cells = [(row["rung"], cell) for row in document["rows"] for cell in row["cells"]]
    assert len(lines) == len(cells) == 40
    for line, (rung, cell) in zip(lines, cells, strict=True):
        assert (line["rung"], line["task"], line["profile"] or None) == (rung, cell["task"], cell["profile"])
        assert [number(line[key]) for key in ("n", "mean", "stderr")] == [cell[key] for key in ("n", "mean", "stderr")]
        comparison = cell["comparison"] or {"difference": None, "p_adjusted": None}
        assert (line["verdict"], number(line["difference"])) == (cell["verdict"], comparison["difference"])
        assert number(line["p_adjusted"]) == comparison["p_adjusted"]
        assert line["test_selected"] == ("true" if cell["test_selected"] else "false")
        assert line["runs"] == " ".join(cell["runs"])
        assert [number(line["published_value"])] == ([one["value"] for one in cell["published"]] or [None])
    page = read(out(capsys, "--all", "--format", "html")).tables[0][1:]
    shown = {"html": [[row[0].split("\n")[0], *row[1:]] for row in page]}
    markdown = from_markdown(out(capsys, "--all", "--format", "md"))[1:]
    shown["md"] = [[row[0], *(cell.replace("<br>", "\n") for cell in row[2:])] for row in markdown]
    shown["latex"] = [
        [cell.replace(", ", "\n") for cell in row] for row in from_latex(out(capsys, "--all", "--format", "latex"))[1:]
    ]
    shown["table"] = []
    for row in from_matrix(out(capsys, "--all", "--details")):
        shown["table"].append([row[0], *row[2:]])
    shown["latex"] = [row for row in shown["latex"] if row[0] != "rung" and any("n=" in cell for cell in row)]
    assert shown["md"] == shown["html"] == shown["latex"] == shown["table"]
    for texts, row in zip(shown["md"], document["rows"], strict=True):
        for text, cell in zip(texts[1:], row["cells"], strict=True):
            score, *changed = text.split("\n")
            published = changed.pop() if cell["published"] else ""
            difference = (cell["comparison"] or {}).get("difference")
            if difference is None:
                assert changed in ([], [cell["verdict"]])
            else:
                verdict, _, found = changed[0].rpartition(" ")
                assert verdict == cell["verdict"]
                agrees(found, difference, 100)
            mean, _, rest = score.removesuffix(f" (n={cell['n']})").partition(" ± ")
            assert score.endswith(f"(n={cell['n']})")
            agrees(mean, cell["mean"], 100)
            agrees(rest, cell["stderr"], 100)
            if cell["published"]:
                value, _, rest = published.strip("()").partition(" ± ")
                agrees(value.replace("chance", "–"), cell["published"][0]["value"], 100)
                agrees(rest, cell["published"][0]["stderr"], 100)
            else:
                assert published == ""


def from_matrix(text: str) -> list[list[str]]:
    """The rows of the table, lines of a cell put together."""
    _, *lines = text.split("\n\n")[1].split("\n")
    rows: list[list[str]] = []
    # the head has two lines, of which the second is over the rule
    for row in from_table("\n\n".join(["", "\n".join(lines)]))[1:]:
        if row[0]:
            rows.append(row)
        else:
            rows[-1] = [f"{known}\n{more}" if more else known for known, more in zip(rows[-1], row, strict=True)]
    return rows


# What is never mixed


def tasks(capsys: pytest.CaptureFixture[str], *words: str) -> list[tuple[str, str | None]]:
    found = json.loads(out(capsys, "--all", "--json", *words))
    return [(one["task"], one["profile"]) for one in found["columns"]]


def test_a_profile_is_a_column_of_its_own_or_asked_for(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tasks(capsys, "--profile", "smoke") == [("sDigits", "smoke")]
    found = json.loads(out(capsys, "--all", "--json", "--profile", "smoke"))
    assert found["rows"][0]["cells"][0]["mean"] == 0.25
    titles = [f"ladder lru on {name}" for name in ("sCIFAR, without --tune", "sCIFAR, without --tune, optim.lr=0.5", "Image, without --tune", "Text, without --tune, train.protocol=paper", "sDigits, without --tune")]  # fmt: skip
    assert [note["text"] for note in found["notes"]] == [
        f"left out, because profile, --set, --tune or the recipe differ: {'; '.join(titles)}"
    ]


def test_other_settings_are_left_out_unless_they_are_asked_for(
    ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(out(capsys, "--all", "--json", "--set", "optim.lr=0.5"))
    assert [(one["task"], cell["mean"]) for one, cell in zip(found["columns"], found["rows"][0]["cells"], strict=True)] == [("sCIFAR", 0.1)]  # fmt: skip
    assert tasks(capsys, "--ladder", "nonlinearity") == [("ListOps", None)]
    fill(ledger, "Pathfinder", {"tanh-rnn": (0.3,)}, tune=True)
    assert ("Pathfinder", None) not in tasks(capsys)
    found = json.loads(out(capsys, "--all", "--json", "--tune"))
    assert [(cell["task"], cell["mean"]) for cell in found["rows"][0]["cells"]] == [("Pathfinder", 0.3)]


def test_text_selected_on_test_is_another_column_than_text(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(ledger, "Text", {"tanh-rnn": (0.5,)})
    found = json.loads(out(capsys, "--all", "--json"))
    texts = {one["test_selected"]: k for k, one in enumerate(found["columns"]) if one["task"] == "Text"}
    assert found["tasks"] == ["sCIFAR", "Image", "Text", "sDigits"]
    assert found["rows"][0]["cells"][texts[False]]["mean"] == 0.5
    assert found["rows"][0]["cells"][texts[True]]["mean"] == pytest.approx(0.85)
    assert out(capsys, "--all", "--limit", "1", "--details").count("selected on test") == 2
    read(out(capsys, "--all", "--format", "html"))


def test_an_instance_of_unequal_data_is_left_out_and_named(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(ledger, "sDigits", {"diagonal": (0.5,)}, data="f")
    found = json.loads(out(capsys, "--all", "--json"))
    assert ("sDigits", None) not in [(one["task"], one["profile"]) for one in found["columns"]]
    assert found["notes"][0]["text"].startswith(
        "left out: ladder lru on sDigits, without --tune: these runs were trained on unequal data and are never"
    )


def test_where_everything_is_refused_it_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "ledger.db", "sDigits", {"tanh-rnn": (0.5,)})
    fill(tmp_path / "ledger.db", "sDigits", {"linear-rnn": (0.5,)}, data="e")
    code, text, err = lrurun(capsys, "--all")
    assert (code, text) == (1, "")
    assert err.startswith("error: these runs were trained on unequal data and are never averaged or compared: ")


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["--profile", "smoke"], "report: expected a TASK, --instance or --all", "lrurun status lists the tasks that have results"),
        (["sDigits", "--all"], "--all and TASK exclude each other", "leave one of them out"),
        (["--all", "--speed"], "--all and --speed exclude each other", "leave one of them out"),
        (["--all", "--instance", "a"], "--all and --instance exclude each other", "leave one of them out"),
        (
            ["--all", "--ladder", "lur"],
            "unknown ladder 'lur'",
            f"did you mean 'lru'? ladders: {LADDERS}",
        ),
    ],
)  # fmt: skip
def test_wrong_words(words: list[str], error: str, hint: str, ledger: Path, capsys: Any) -> None:
    assert lrurun(capsys, *words) == (2, "", f"error: {error}\nhint: {hint}\n")


def test_without_results_it_says_so(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, err = lrurun(capsys, "--all", "--ladder", "stability")
    assert (code, text) == (4, "")
    assert (
        err
        == "error: ladder stability, without --tune: on no task of this ledger\nhint: this ledger has: --ladder lru; --ladder nonlinearity\n"
    )
    code, text, err = lrurun(capsys, "--all", "--ledger", "none.db")
    assert (code, text) == (4, "")
    assert (
        err
        == "error: none.db: there is no ledger, so there are no results\nhint: run: lrurun ladder TASK --ladder lru\n"
    )
    assert not Path("none.db").exists()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
def test_latex_of_the_matrix_compiles(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("all.tex").write_text(out(capsys, "--all", "--format", "latex"))
    document = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}\input{all}\end{document}"
    Path("document.tex").write_text(document)
    words = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "document.tex"]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout
    assert "Overfull" not in done.stdout


def test_the_title_has_the_settings_of_all_columns(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "--all", "--set", "optim.lr=0.5")
    assert (
        text.splitlines()[0]
        == "from a tanh RNN to the Linear Recurrent Unit on all tasks, without --tune, optim.lr=0.5"
    )
    column = json.loads(out(capsys, "--all", "--set", "optim.lr=0.5", "--json"))["columns"][0]
    assert (column["set"], column["tune"]) == ({"optim.lr": 0.5}, False)
    latex = out(capsys, "--all", "--set", "optim.lr=0.5", "--format", "latex")
    assert re.search(r"\\label{tab:lru-all-[0-9a-f]{6}}", latex)


def test_a_task_of_ones_own_that_is_not_loaded_is_left_out_with_a_hint(
    ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger.open(ledger) as opened:
        opened.add_ladder("lru", "Oddness", None, InstanceSpec())
    note = "left out: ladder lru on Oddness, without --tune: unknown task 'Oddness'; --load FILE if it is a task of your own"
    assert note in [found["text"] for found in json.loads(out(capsys, "--all", "--json"))["notes"]]

"""`lrurun report --all`: a ladder on all its tasks, and what is never mixed."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from lrurun import console
from lrurun.config.runs import InstanceSpec
from lrurun.data.metric import Metric
from lrurun.judging.scores import form_of
from lrurun.ledger.ledger import Ledger
from lrurun.report import formats
from lrurun.report.figures import task_map
from lrurun.report.tables import all_tasks
from tests.harness.drawings import caption, lines, misplaced
from tests.harness.machine import Machine
from tests.harness.printed import number, read
from tests.harness.reports import MINI, build, make_run, make_rung
from tests.harness.results import fill
from tests.harness.shared import once

TWO = ("report", "--all", "--limit", "2")


@pytest.fixture(scope="session")
def filled() -> Machine:
    """Five instances of the ladder lru on four tasks, and two that are not asked for."""

    def make(folder: Path) -> None:
        path = Machine(folder).ledger
        # Means 85, 60, 61, 71; standard errors 5, 10, 1 and sqrt(1 / 3) = 0.577 points.
        fill(path, "Text", {"tanh-rnn": (0.8, 0.9), "linear-rnn": (0.95,)}, sets={"train.protocol": "paper"})
        fill(path, "sDigits", {"tanh-rnn": (0.5, 0.7), "linear-rnn": (0.8,)})
        fill(path, "sDigits", {"tanh-rnn": (0.25,)}, profile="smoke", data="e")
        fill(path, "Image", {"tanh-rnn": (0.6, 0.62)})
        fill(path, "sCIFAR", {"tanh-rnn": (0.7, 0.71, 0.72), "small-phase": (0.9,)})
        fill(path, "sCIFAR", {"tanh-rnn": (0.1,)}, sets={"optim.lr": 0.5})
        fill(path, "ListOps", {"tanh-rnn": (0.1,)}, ladder="nonlinearity")

    return Machine(once("all-tasks", make))


@pytest.fixture
def changed(filled: Machine, tmp_path: Path) -> Machine:
    """A copy of `filled`, to which more may be added."""
    return filled.copy(tmp_path / "copy")


def test_what_people_see(filled: Machine, golden: Any) -> None:
    texts = {
        "table": filled.run(*TWO, "--details").stdout,
        "answer": filled.run(*TWO).stdout,
        "md": filled.run(*TWO, "--format", "md").stdout,
        "latex": filled.run(*TWO, "--format", "latex").stdout,
    }
    with mock.patch.object(console, "width", return_value=60):
        texts["table of 60 columns"] = filled.run(*TWO, "--details").stdout
    page = read(filled.run(*TWO, "--format", "html").stdout)
    cells = [" | ".join(row).replace("\n", " / ") for table in (page.picture, *page.tables) for row in table]
    texts["html"] = re.sub(r"\b[0-9a-f]{12}\b", "RUN", "\n".join([*cells, *page.texts["p"], *page.texts["li"]]))
    golden("report/all-tasks.txt", "".join(f"==== {name}\n{text}\n" for name, text in texts.items()))


def test_the_map_has_a_sign_for_each_verdict(machine: Machine, sketched: list[Any]) -> None:
    """As text, on the page, and as a figure."""
    ledger = machine.ledger
    near = [0.5 + seed / 1000 for seed in range(12)]
    better, worse = [one + 0.12 for one in near], [one - 0.2 for one in near]
    fill(ledger, "sDigits", {"tanh-rnn": near, "linear-rnn": better, "diagonal": better[::-1]})
    fill(ledger, "sCIFAR", {"tanh-rnn": near, "linear-rnn": worse})
    text = machine.run("report", "--all", "--limit", "3").stdout
    assert text.split("\n\n")[1].split("\n") == [
        "rung        sCIFAR   sDigits  number of tasks",
        "──────────  ───────  ───────  ───────────────",
        "tanh-rnn    50.6 %   50.6 %   –",
        "linear-rnn  ▼ -20.0  ▲ +12.0  ▲1 ▼1",
        "diagonal    –        · +0.0   ·1",
    ]
    conclusion = "By the task: linear-rnn (helps on 1, hurts on 1 of 2)."
    assert f"\n{conclusion}\n" in text
    caution = "not tuned, see --tune (sCIFAR); stand-in for the paper's tasks (sDigits)."
    assert f"\nCaution: {caution}\n" in text
    cells = [["50.6 %", "50.6 %", ""], ["▼ −20.0", "▲ +12.0", "▲1 ▼1"], ["", "· +0.0", "·1"]]
    page = read(machine.run("report", "--all", "--limit", "3", "--format", "html").stdout)
    assert [row[1:] for row in page.picture[1:]] == cells
    assert f"Caution: {caution}" in page.texts["p"]
    assert conclusion in page.texts["li"]
    styles = [found["class"] for tag, found in page.tags if tag == "td" and "class" in found]
    # by the size of the difference, as a share of the largest; what is undecided is grey
    assert [style for style in styles if style][:3] == ["worse s4", "better s3", "undecided"]
    machine.run("plot", "--kind", "map", "--out", "map.svg")
    [ax] = sketched[0].axes
    assert [one.get_text() for one in ax.texts][:9] == [cell for row in cells for cell in row]
    [mesh] = ax.collections
    lightness = mesh.get_array()
    colors = mesh.to_rgba(lightness)
    for (red, _, blue, _), sign in ((colors[1, 0], -1), (colors[1, 1], 1)):
        assert (blue - red) * sign > 0
    assert -lightness[1, 0] > lightness[1, 1] > lightness[2, 1] == 0.0
    for kind in ("map", "summary"):
        machine.refused("plot", "sDigits", "--kind", kind, "--out", "map.svg")


def test_a_summary_has_the_scores_of_tasks_and_their_mean_beside_the_published(
    changed: Machine, sketched: list[Any]
) -> None:
    changed.run("plot", "--kind", "summary", "--out", "summary.png")
    ours, published = sketched[0].axes
    drawn = lines(ours)
    assert [tick.get_text() for tick in ours.get_yticklabels()][:2] == ["tanh-rnn", "linear-rnn"]
    assert drawn["sCIFAR"] == ([pytest.approx(71.0), pytest.approx(90.0)], [0.0, -7.0])
    assert drawn["Image"] == ([pytest.approx(61.0)], [0.0])
    # 71, 61, 85, 60 and 25; no other rung has a score on each of these tasks
    assert drawn["mean"] == ([pytest.approx(60.4)], [0.0])
    theirs = lines(published)
    assert theirs["sCIFAR"][0][0] == pytest.approx(69.9)
    assert theirs["mean"][0][0] == pytest.approx((69.9 + 87.2) / 2)
    assert "Orvieto et al. 2023, Table 6" in caption(sketched[0])
    assert misplaced(sketched[0]) == []


def test_a_cell_whose_sign_and_difference_point_apart_says_why() -> None:
    base = [0.84 + seed / 300 for seed in range(12)]
    ladder = msgspec.structs.replace(MINI, rungs=(make_rung("a"), make_rung("b")), claims=())
    runs = [make_run(f"a{seed}", "a", seed, score) for seed, score in enumerate(base)]
    runs += [make_run(f"b{seed}", "b", seed, score + 0.06 if seed > 1 else 0.1) for seed, score in enumerate(base)]
    report = build(ladder, runs)
    drawn = task_map.make(all_tasks.build(ladder, [report]))
    assert (drawn.columns, drawn.cells[1][0].text) == (("sDigits",), "▲ mean -7.4")
    assert drawn.cells[1][0].style == "better s4"  # as the sign, not as the mean
    bits = form_of(Metric(name="bits_per_byte", unit="bits", higher_is_better=False))
    text = formats.render(all_tasks.build(MINI, [build()]), "md")
    assert "(n=3)<br>helps +4.50" in text
    assert "| ring-init | a ring | 95.50 ± 0.29 (n=3)<br>same runs |" in text
    drawn = task_map.make(all_tasks.build(ladder, [msgspec.structs.replace(report, score=bits)]))
    assert drawn.columns == ("sDigits, lower is better",)
    assert "mean" not in drawn.cells[1][0].text


def test_json_has_a_row_a_rung_and_a_cell_a_task(filled: Machine) -> None:
    found = filled.json("report", "--all")
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
    with Ledger.open(filled.ledger) as opened:
        runs = {run.id: (run.task, run.seed) for run in opened.runs()}
    assert [[runs[run] for run in cell["runs"]] for cell in first["cells"][:2]] == [
        [("sCIFAR", 0), ("sCIFAR", 1), ("sCIFAR", 2)],
        [("Image", 0), ("Image", 1)],
    ]
    lines = list(csv.DictReader(io.StringIO(filled.run("report", "--all", "--format", "csv").stdout)))
    cells = [(row["rung"], cell) for row in found["rows"] for cell in row["cells"]]
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


# What is never mixed


def columns(machine: Machine, *words: str) -> list[tuple[str, str | None, float]]:
    """Task, profile and first mean of each column."""
    found = machine.json("report", "--all", *words)
    cells = found["rows"][0]["cells"]
    return [(one["task"], one["profile"], cell["mean"]) for one, cell in zip(found["columns"], cells, strict=True)]


def test_a_profile_is_a_column_of_its_own_or_asked_for(filled: Machine) -> None:
    assert columns(filled, "--profile", "smoke") == [("sDigits", "smoke", 0.25)]
    names = ("sCIFAR, without --tune", "sCIFAR, without --tune, optim.lr=0.5", "Image, without --tune", "Text, without --tune, train.protocol=paper", "sDigits, without --tune")  # fmt: skip  # noqa: E501
    [note] = filled.json("report", "--all", "--profile", "smoke")["notes"]
    titles = "; ".join(f"ladder lru on {name}" for name in names)
    assert note["text"] == f"left out, because profile, --set, --tune or the recipe differ: {titles}"


def test_other_settings_are_left_out_unless_they_are_asked_for(changed: Machine) -> None:
    other = ("--set", "optim.lr=0.5")
    assert columns(changed, *other) == [("sCIFAR", None, 0.1)]
    column = changed.json("report", "--all", *other)["columns"][0]
    assert (column["set"], column["tune"]) == ({"optim.lr": 0.5}, False)
    title = "from a tanh RNN to the Linear Recurrent Unit on all tasks, without --tune, optim.lr=0.5"
    assert changed.run("report", "--all", *other).stdout.splitlines()[0] == title
    latex = changed.run("report", "--all", *other, "--format", "latex").stdout
    assert re.search(r"\\label{tab:lru-all-[0-9a-f]{6}}", latex)
    assert [task for task, _, _ in columns(changed, "--ladder", "nonlinearity")] == ["ListOps"]
    fill(changed.ledger, "Pathfinder", {"tanh-rnn": (0.3,)}, tune=True)
    fill(changed.ledger, "Text", {"tanh-rnn": (0.5,)})
    fill(changed.ledger, "sDigits", {"diagonal": (0.5,)}, data="f")
    with Ledger.open(changed.ledger) as opened:
        opened.add_ladder("lru", "Oddness", None, InstanceSpec())
    found = changed.json("report", "--all")
    assert columns(changed, "--tune") == [("Pathfinder", None, 0.3)]
    # text selected on test is another column than text, and an instance of unequal data is none
    assert [(one["task"], one["test_selected"]) for one in found["columns"]] == [("sCIFAR", False), ("Image", False), ("Text", True), ("Text", False), ("sDigits", False)]  # fmt: skip  # noqa: E501
    means = [cell["mean"] for cell in found["rows"][0]["cells"]]
    assert means == pytest.approx([0.71, 0.61, 0.85, 0.5, 0.25])
    notes = " ".join(note["text"] for note in found["notes"])
    unequal = "these runs were trained on unequal data and are never"
    assert f"left out: ladder lru on sDigits, without --tune: {unequal}" in notes
    assert "ladder lru on Oddness, without --tune: unknown task 'Oddness'; --load FILE if it is" in notes


def test_where_everything_is_refused_it_says_why(machine: Machine) -> None:
    fill(machine.ledger, "sDigits", {"tanh-rnn": (0.5,)})
    fill(machine.ledger, "sDigits", {"linear-rnn": (0.5,)}, data="e")
    error = machine.refused("report", "--all", code=1)
    assert "these runs were trained on unequal data and are never averaged or compared: " in error


def test_a_profile_that_no_instance_has_is_named_with_the_nearest(machine: Machine) -> None:
    fill(machine.ledger, "npDigits", {"linear-rnn": (0.5,)}, profile="map")
    fill(machine.ledger, "npDigits", {"linear-rnn": (0.5,)}, profile="smoke", tune=True)
    for words, hint in (
        (["--profile", "mapp"], "did you mean 'map'? this ledger has: "),
        (["--profile", "smoke"], "add --tune; this ledger has: "),
        (["--profile", "map", "--tune"], "leave --tune out; this ledger has: "),
        (["--profile", "xyz"], "this ledger has: "),
    ):
        assert f"\nhint: {hint}ladder lru on npDigits" in machine.run("report", "--all", *words, code=4).stderr


def test_wrong_words_and_nothing_to_report(filled: Machine) -> None:
    for words, error in (
        (["--profile", "smoke"], "expected a TASK, --instance or --all"),
        (["sDigits", "--all"], "--all and TASK exclude each other"),
        (["--all", "--speed"], "--all and --speed exclude each other"),
        (["--all", "--instance", "a"], "--all and --instance exclude each other"),
        (["--all", "--ladder", "lur"], "did you mean 'lru'?"),
    ):
        assert error in filled.run("report", *words, code=2).stderr
    error = filled.run("report", "--all", "--ladder", "stability", code=4).stderr
    assert "ladder stability, without --tune: on no task of this ledger" in error
    assert "--ladder lru; --ladder nonlinearity" in error
    assert "none.db: there is no ledger" in filled.run("report", "--all", "--ledger", "none.db", code=4).stderr

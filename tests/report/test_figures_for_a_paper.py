"""Figures as a paper prints them: verdicts, seeds side by side, sizes of type, fonts, prints without colour."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from lrurun.errors import NotFoundError, UsageError
from lrurun.ledger.ledger import Ledger
from lrurun.report.figures import figure_files
from lrurun.session import plotting
from tests.docs import kept
from tests.harness import drawings, typeset
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.shared import once

LOW = [0.300 + 0.001 * k for k in range(12)]
SCORES = {
    "tanh-rnn": LOW,
    "linear-rnn": [score + 0.4 for score in LOW],
    "diagonal": [1.0] * 12,
    "exponential": [1.0] * 11 + [0.95],
    "stable-exponential": LOW,
    "ring-init": [score + 0.0005 for score in LOW],
}
"""A rung that helps, rungs with equal seeds, one that hurts, one that is undecided."""
SMOKE = ("sDigits", "--profile", "smoke")


@pytest.fixture(scope="module")
def filled() -> Machine:
    def make(folder: Path) -> None:
        fill(Machine(folder).ledger, "sDigits", SCORES, profile="smoke")
        fill(Machine(folder).ledger, "npDigits", SCORES, profile="smoke")

    return Machine(once("figures for a paper", make))


@pytest.fixture
def draw(filled: Machine, tmp_path: Path, drawing: list[Any]) -> Callable[..., Any]:
    """Draws with `lrurun plot`: the figure."""

    def drawn(*words: str) -> Any:
        filled.run("plot", *words, "--out", str(tmp_path / "a.png"))
        return drawing[-1]

    return drawn


def sizes(figure: Any) -> list[float]:
    """The sizes of type of all texts that are shown."""
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for ax in figure.axes:
        texts += [ax.title, ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels(), *ax.texts]
    return [text.get_fontsize() for text in texts if text.get_text()]


def outside(figure: Any) -> list[str]:
    """Texts of panels that are not wholly on the figure."""
    figure.canvas.draw()
    page = figure.bbox
    found = []
    for ax in figure.axes:
        ticks = [
            label
            for axis, ends in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim()))
            for place, label in zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)
            if min(ends) <= place <= max(ends)  # others are not drawn
        ]
        for text in (*ticks, *ax.texts):
            box = text.get_window_extent()
            if text.get_text() and text.get_visible() and box.width:
                inside = box.x0 >= page.x0 - 1 and box.x1 <= page.x1 + 1 and box.y0 >= page.y0 - 1
                found += [] if inside and box.y1 <= page.y1 + 1 else [text.get_text()]
    return found


@pytest.mark.parametrize("width", ["column", "page"])
def test_a_ladder_shows_what_each_change_did(draw: Callable[..., Any], filled: Machine, width: str) -> None:
    figure = draw(*SMOKE, "--width", width)
    scored, changed = figure.axes
    report = json.loads(filled.run("report", *SMOKE, "--json").stdout)
    rows = report["rows"]
    assert [row["verdict"] for row in rows[:6]] == ["", "helps", "helps", "undecided", "hurts", "undecided"]
    expected = {
        -k: (row["verdict"], *(100 * row["comparison"][name] for name in ("difference", "low", "high")))
        for k, row in enumerate(rows)
        if row["comparison"] is not None and row["comparison"]["difference"] is not None
    }
    bars = {segment[0][1]: segment[:, 0] for bar in changed.collections for segment in bar.get_segments()}
    drawn = {}
    for verdict in ("helps", "hurts", "undecided"):
        for x, y in zip(*drawings.lines(changed)[verdict], strict=True):
            drawn[y] = (verdict, x, *bars[y])
    assert drawn == {y: (verdict, *map(pytest.approx, numbers)) for y, (verdict, *numbers) in expected.items()}
    notes = {text.get_position()[1]: text.get_text().split("\n")[0] for text in changed.texts}
    assert notes == {-k: row["verdict"] for k, row in enumerate(rows[: len(SCORES)]) if row["comparison"]}
    assert scored.get_ylim() == changed.get_ylim()
    assert f"Holm's method over {report['hypotheses']} comparisons" in drawings.caption(figure)


def test_without_differences_there_are_the_scores_alone(draw: Callable[..., Any], filled: Machine) -> None:
    [ax] = draw(*SMOKE, "--no-differences").axes
    assert "mean ± standard error" in drawings.lines(ax)
    error = filled.run("plot", *SMOKE, "--kind", "curves", "--no-differences", "--out", "b.png", code=2).stderr
    assert "--no-differences: is for --kind ladder, found --kind curves" in error
    with pytest.raises(UsageError, match="differences: is for ladder, found curves"):
        plotting.check("curves", (), (), None, differences=False)


@pytest.mark.parametrize("words", [(), ("--width", "page"), ("--no-differences",)])
def test_no_seed_covers_another(draw: Callable[..., Any], words: tuple[str, ...]) -> None:
    figure = draw(*SMOKE, *words)
    figure.canvas.draw()
    ax = figure.axes[0]
    [rings] = [line for line in ax.lines if line.get_label() == "one seed"]
    marker = (rings.get_markersize() + rings.get_markeredgewidth()) * figure_files.DPI / 72
    points = ax.transData.transform(rings.get_xydata()).tolist()
    assert len(points) == 12 * len(SCORES)
    assert min(math.dist(a, b) for a, b in combinations(points, 2)) >= marker
    # each is in the row of its rung, and not far from its score
    scores = [score for row in SCORES.values() for score in row]
    rows = sorted(round(-y + 0.02) for y in rings.get_ydata())
    assert rows == [k for k in range(len(SCORES)) for _ in range(12)]
    moved = [abs(x - ax.transData.transform((100 * score, 0))[0]) for (x, _), score in zip(points, scores, strict=True)]
    assert max(moved) <= 3 * marker


@pytest.mark.parametrize("kind", ["ladder", "speed", "map", "summary"])
@pytest.mark.parametrize("width", ["column", "page"])
def test_type_is_large_enough_and_on_the_figure(draw: Callable[..., Any], kind: str, width: str) -> None:
    subject = ("--profile", "smoke") if kind in ("map", "summary") else SMOKE
    figure = draw(*subject, "--kind", kind, "--width", width)
    assert min(sizes(figure)) >= 7
    assert drawings.misplaced(figure) == []
    assert outside(figure) == []
    assert figure.get_figwidth() == {"column": 3.3, "page": 6.75}[width]


def test_figures_leave_out_rungs_that_were_not_run(draw: Callable[..., Any]) -> None:
    def names(*words: str) -> list[str]:
        figure = draw(*SMOKE, *words)
        return [text.get_text().split("\n")[0] for text in figure.axes[0].get_yticklabels()]

    assert names("--plain") == [*SCORES]
    assert names() == [*SCORES]
    assert "Not run, and not drawn: gamma-norm, small-phase." in drawings.caption(draw(*SMOKE))


def test_verdicts_and_rungs_differ_without_colour(draw: Callable[..., Any]) -> None:
    figure = draw(*SMOKE)
    [legend] = figure.legends
    looks = [(one.get_marker(), one.get_markerfacecolor() in ("none", "white")) for one in legend.legend_handles]
    assert len(looks) == len(set(looks)) == 5
    figure = draw(*SMOKE, "--kind", "curves")
    looks = [(one.get_linestyle(), one.get_marker()) for one in figure.legends[0].legend_handles]
    assert len(looks) == len(set(looks)) == len(SCORES)


def test_fonts_of_pdf_are_embedded_and_svg_needs_none(filled: Machine, tmp_path: Path) -> None:
    filled.run("plot", *SMOKE, "--out", str(tmp_path / "a.pdf"))
    pdf = (tmp_path / "a.pdf").read_bytes()
    assert b"/Type3" not in pdf.replace(b" ", b"")
    assert len(re.findall(rb"/FontFile2 ", pdf)) == len(re.findall(rb"/Subtype */CIDFontType2", pdf)) > 0
    filled.run("plot", *SMOKE, "--out", str(tmp_path / "a.svg"))
    assert "<text" not in (tmp_path / "a.svg").read_text()


INSTANCE_KINDS = ("ladder", "curves", "rates", "norms", "speed", "eigenvalues", "slots", "lengths", "items")


@pytest.mark.slow
@pytest.mark.parametrize("width", ["column", "page"])
def test_figures_of_the_kept_results(tmp_path: Path, drawing: list[Any], width: str) -> None:
    """Of one instance of each ladder, and of all tasks: every kind that its runs have."""
    typeset.need("pdffonts")
    drawn = set()
    with kept.merged("map") as machine:
        with Ledger.read(machine.ledger) as ledger:
            instances = {(one.name, one.task == "MQAR"): one for one in reversed(ledger.ladders())}
        commands = [
            ("--instance", one.short_name, "--kind", kind) for one in instances.values() for kind in INSTANCE_KINDS
        ]
        commands += [("--kind", kind, "--profile", "map", "--tune") for kind in ("map", "summary")]
        for words in commands:
            done = machine.run("plot", *words, "--width", width, "--out", str(tmp_path / "a.pdf"), code=None)
            if done.returncode == NotFoundError.exit_code or "no checkpoint to read" in done.stderr:
                continue  # these runs have no such results
            assert done.returncode == 0, done.stderr
            figure = drawing[-1]
            assert min(sizes(figure)) >= 7, words
            assert drawings.misplaced(figure) == [], words
            assert outside(figure) == [], words
            fonts = subprocess.run(["pdffonts", tmp_path / "a.pdf"], capture_output=True, text=True, check=True).stdout
            for font in fonts.splitlines()[2:]:
                assert re.search(r"(CID )?(TrueType|Type 1C?)( \(OT\))? +\S+ +yes", font), font
            drawn.add(words[words.index("--kind") + 1])
    assert drawn >= {"ladder", "curves", "rates", "norms", "speed", "eigenvalues", "map", "summary"}

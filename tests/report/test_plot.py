"""Figures: the files are images of the right size, and what is drawn are the ledger's numbers."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.ledger import values
from lrurun.ledger.ledger import Ledger
from lrurun.report.figures import curves, figure_files
from lrurun.report.figures.figures import Curve, Figure, Panel
from tests.harness.drawings import caption, lines, size
from tests.harness.machine import Machine
from tests.harness.results import OWNER

XEON = {"device": "cpu", "machine": {"cpu": "Xeon"}}
H100 = {"device": "NVIDIA H100"}

# rung, seed, test accuracy, steps/s, device, training loss at steps 10 and 20, validation accuracy at step 20
MADE: list[tuple[str, int, float, float, dict[str, Any], tuple[float, float], float]] = [
    ("tanh-rnn", 0, 0.60, 4.0, XEON, (2.0, 1.0), 0.5),
    ("tanh-rnn", 1, 0.64, 6.0, XEON, (4.0, 2.0), 0.7),
    ("gamma-norm", 0, 0.90, 20.0, XEON, (1.0, 0.1), 0.8),
    ("gamma-norm", 1, 0.80, 100.0, H100, (1.0, 0.3), 0.8),
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Machine, dict[tuple[str, int], str]]:
    """A ledger with the runs of a plain sCIFAR ladder, and their ids; one more of tanh-rnn has diverged."""
    machine = Machine(tmp_path_factory.mktemp("filled"))
    plan = planning.make("sCIFAR")
    found = {}
    with Ledger.open(machine.ledger) as ledger:
        instance = ledger.add_ladder("lru", "sCIFAR", None, plan.spec)

        def begin(rung: str, seed: int, where: dict[str, Any]) -> values.HeldRun:
            [resolved] = planning.choose_rungs(plan, [rung])
            ledger.enqueue(instance.key, final_runs(plan, resolved, [seed]))
            held = ledger.hold(instance.key, OWNER, environment=where)
            assert held is not None
            ledger.describe(held, parameters=1000, data_sha256="d" * 64)
            found[rung, seed] = held.run.id
            return held

        for rung, seed, score, speed, where, losses, accuracy in MADE:
            held = begin(rung, seed, where)
            rows = [(10 * k, "train/loss", loss) for k, loss in enumerate(losses, 1)]
            # twice the training loss in the first layer, its square in the second
            rows += [(10 * k, "norm/layer0", 2 * loss) for k, loss in enumerate(losses, 1)]
            rows += [(10 * k, "norm/layer1", loss**2) for k, loss in enumerate(losses, 1)]
            ledger.record(held, [*rows, (20, "val/accuracy", accuracy)], 20)
            result = {"test/accuracy": score, "machine/steps_per_second": speed}
            ledger.finish(held, "done", result=result, step=20)
        held = begin("tanh-rnn", 2, XEON)
        ledger.record(held, [(10, "train/loss", 3.0), (13, "train/loss", float("nan"))], 13)
        ledger.finish(held, "diverged", result={}, step=13)
        plain = begin("linear-rnn", 0, XEON)
        ledger.finish(plain, "interrupted")
    return machine, found


@pytest.fixture
def plot(filled: Any, sketched: list[Any]) -> Callable[..., Any]:
    """Draws with `lrurun plot`: the figure, as it was before it became bytes."""

    def draw(*words: str) -> Any:
        done = filled[0].run("plot", *words, "--out", "a.png")
        assert (done.stdout, "wrote a.png\n" in done.stderr) == ("", True)
        return sketched[-1]

    return draw


@pytest.fixture
def ids(filled: Any) -> dict[tuple[str, int], str]:
    return dict(filled[1])


def errors(ax: Any, label: str) -> list[tuple[float, float, list[float]]]:
    """The means of a label: the place from above, the value, and the ends of its error bar."""
    bars = {tuple(segment[0]): segment[:, 0] for one in ax.collections for segment in one.get_segments()}
    found = []
    for x, y in zip(*lines(ax)[label], strict=True):
        [ends] = [ends for (_, place), ends in bars.items() if place == y and ends[0] <= x <= ends[1]]
        found.append((-float(y), float(x), list(map(float, ends))))
    return found


# Files


@pytest.mark.slow
def test_the_same_data_are_the_same_bytes_in_every_format(filled: Any, drawing: list[Any]) -> None:
    folder = filled[0].folder
    for name in ("a.svg", "a.pdf", "B.SVG", "b.pdf"):
        filled[0].run("plot", "sCIFAR", "--out", name)
    figure = drawing[-1]
    for one, other in (("a.svg", "B.SVG"), ("a.pdf", "b.pdf")):
        assert (folder / one).read_bytes() == (folder / other).read_bytes()
    root = ET.parse(folder / "a.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert float(root.attrib["width"].removesuffix("pt")) == pytest.approx(3.3 * 72)
    content = (folder / "a.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert b"%%EOF" in content[-16:]
    image = figure_files.encode(figure, ".png")
    assert image == figure_files.encode(figure, ".png")


def test_the_option_format_decides_where_the_name_of_the_file_says_nothing(filled: Any) -> None:
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF-"}
    for format, beginning in begins.items():
        filled[0].run("plot", "sCIFAR", "--format", format, "--out", "figure")
        assert (filled[0].folder / "figure").read_bytes().startswith(beginning)
    assert "--format pdf --out tasks.pdf" in filled[0].refused("plot", "sCIFAR", "--format", "pdf")
    filled[0].run("plot", "sCIFAR", "--format", "svg", "--out", "figure.of.a.ladder")
    assert (filled[0].folder / "figure.of.a.ladder").read_bytes().startswith(b"<?xml")


def test_a_plain_figure_has_no_texts_and_says_its_caption(filled: Any, drawing: list[Any]) -> None:
    machine = filled[0]
    machine.run("plot", "sCIFAR", "--out", "a.png")
    err = machine.run("plot", "sCIFAR", "--plain", "--width", "page", "--out", "b.png").stderr
    whole, plain = drawing
    assert err == f"wrote b.png\n{caption(whole)}\n"
    assert [text.get_text() for text in plain.texts] == ["", ""]
    assert [size(str(machine.folder / name))[0] for name in ("a.png", "b.png")] == [990, 2025]
    assert lines(plain.axes[0])["published"] == lines(whole.axes[0])["published"]
    sizes = [figure.axes[0].xaxis.label.get_size() for figure in drawing]
    assert sizes[0] == sizes[1] >= 7


def check_places(figure: Any) -> None:
    """No part is cut off or covers another."""
    figure.draw_without_rendering()
    title, foot = (text.get_window_extent() for text in figure.texts)
    [legend] = [one.get_window_extent() for one in figure.legends]
    boxes = [ax.get_tightbbox() for ax in figure.axes]
    page = figure.bbox
    for box in (title, foot, legend, *boxes):
        assert page.x0 <= box.x0 < box.x1 <= page.x1
        assert page.y0 <= box.y0 < box.y1 <= page.y1
    assert foot.y1 <= legend.y0
    assert legend.y1 <= min(box.y0 for box in boxes)
    assert max(box.y1 for box in boxes) <= title.y0


def test_only_figures_that_say_so_have_mathematics() -> None:
    for mathematics in (True, False):
        panel = Panel(x="$λ$", y="y", curves=(Curve(label="$|λ|$", x=(1.0, 2.0), y=(0.0, 3.0)),), title="$x$")
        figure = figure_files.draw(Figure(panels=(panel,), mathematics=mathematics, title="$y$", caption="$z$"))
        [ax], [legend] = figure.axes, figure.legends
        labels = [ax.xaxis.label, ax.title, *legend.get_texts()]
        assert [text.get_parse_math() for text in labels] == [mathematics] * 3
        assert not any(text.get_parse_math() for text in figure.texts)  # title and caption have names from files


def test_names_from_files_are_drawn_as_they_are(tmp_path) -> None:
    """No mathematics is read in them, long ones are folded, and unknown letters warn nobody."""
    names = ["$x^", "a" * 60, "列表", "\x1b[31mred"]
    ticks = tuple((float(k), f"{name}\nn = 1") for k, name in enumerate(names))
    panel = Panel(x="x", y="", curves=(Curve(label="a", x=(1.0, 2.0), y=(0.0, 3.0)),), y_ticks=ticks)
    figure = figure_files.draw(Figure(panels=(panel,), title="$y^ " + "b" * 90, caption="$z^ " * 30))
    (tmp_path / "a.png").write_bytes(figure_files.encode(figure, ".png"))
    figure.draw_without_rendering()
    [ax] = figure.axes
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["$x^\nn = 1", "\n".join(["a" * 24, "a" * 24, "a" * 12, "n = 1"]), "列表\nn = 1", "red\nn = 1"]
    assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in figure.texts)


# What is drawn


def test_a_ladder_has_means_errors_seeds_and_published_values(plot: Callable[..., Any]) -> None:
    figure = plot("sCIFAR")
    check_places(figure)
    [ax] = figure.axes
    # standard errors: |0.60 - 0.64| / 2 = 0.02 and |0.9 - 0.8| / 2 = 0.05
    assert errors(ax, "mean ± standard error") == [
        (-0.16, pytest.approx(62.0), pytest.approx([60.0, 64.0])),
        (5.84, pytest.approx(85.0), pytest.approx([80.0, 90.0])),
    ]
    assert errors(ax, "published")[0] == (-0.38, pytest.approx(69.9), pytest.approx([69.6, 70.2]))
    # the first rung is on top, its seeds under its mean
    seeds = list(zip(*lines(ax)["one seed"], strict=True))
    assert seeds[:2] == [(pytest.approx(60.0), pytest.approx(-0.03)), (pytest.approx(64.0), pytest.approx(-0.03))]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[:3] == ["tanh-rnn\nn = 2, 1 diverged", "linear-rnn\nn = 0, 1 unfinished", "diagonal\nn = 0"]
    assert len(labels) == 7, "nothing is known of small-phase, which has no published value either"
    assert ax.get_xlabel() == "test accuracy [%]"
    assert "Orvieto et al. 2023, Table 6" in caption(figure)


def test_curves_of_a_ladder_are_means_over_seeds_in_a_band(plot: Callable[..., Any]) -> None:
    """A page has twice as many panels in a row as a column."""
    figure = plot("sCIFAR", "--kind", "curves", "--width", "page")
    grid = figure.axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == (1, 2)
    figure = plot("sCIFAR", "--kind", "curves")
    grid = figure.axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == (2, 1)
    check_places(figure)
    loss, accuracy = figure.axes
    assert set(lines(loss)) == {"tanh-rnn (n=2)", "gamma-norm (n=2)"}
    assert lines(loss)["tanh-rnn (n=2)"] == ([10, 20], pytest.approx([3.0, 1.5]))
    assert lines(loss)["gamma-norm (n=2)"] == ([10, 20], pytest.approx([1.0, 0.2]))
    assert lines(accuracy)["tanh-rnn (n=2)"] == ([20], pytest.approx([60.0]))
    band = loss.collections[0].get_paths()[0].vertices
    assert {tuple(np.round(point, 6)) for point in band} == {(10, 2.0), (10, 4.0), (20, 1.0), (20, 2.0)}
    assert (loss.get_yscale(), accuracy.get_yscale()) == ("log", "linear")
    assert [ax.get_ylabel() for ax in figure.axes] == ["training loss", "validation accuracy [%]"]
    assert "band: ± standard error" in caption(figure)
    lost = "diverged, failed, unfinished or without a finite score: tanh-rnn (1 of 3), linear-rnn (1 of 1)."
    assert f"Left out, because {lost}" in caption(figure)


def test_curves_of_runs_are_their_own(ids: dict[tuple[str, int], str], plot: Callable[..., Any]) -> None:
    run, lost = ids["gamma-norm", 1], ids["tanh-rnn", 2]
    figure = plot(run, lost, run[:8])
    loss, accuracy = figure.axes
    assert lines(loss)["gamma-norm, seed 1"] == ([10, 20], [1.0, 0.3])
    steps, seen = lines(loss)["tanh-rnn, seed 2"]
    assert (steps, seen[0]) == ([10, 13], 3.0)
    assert np.isnan(seen[1])
    assert list(lines(accuracy)) == ["gamma-norm, seed 1"]
    assert not loss.collections
    assert f"{lost} is diverged, at step 13 of " in caption(figure)


def test_speeds_stay_on_their_device(plot: Callable[..., Any]) -> None:
    figure = plot("sCIFAR", "--kind", "speed")
    check_places(figure)
    [ax] = figure.axes
    assert errors(ax, "Xeon")[0][1:] == (5.0, pytest.approx([4.0, 6.0]))
    assert [errors(ax, name)[-1][1] for name in ("Xeon", "NVIDIA H100")] == [20.0, 100.0]
    assert lines(ax)["published"][0] == [2.0, 15.9]
    assert ax.get_xscale() == "log"
    assert ax.get_xlabel() == "training speed [steps/s]"
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == ["Xeon", "NVIDIA H100", "published", "one seed"]
    assert "Orvieto et al. 2023, Table 4, on A100" in caption(figure)


def test_norms_have_a_panel_a_rung_and_a_curve_a_layer(
    filled: Any, ids: dict[tuple[str, int], str], plot: Callable[..., Any]
) -> None:
    figure = plot("sCIFAR", "--kind", "norms")
    check_places(figure)
    panels = {ax.get_title(): ax for ax in figure.axes}
    assert list(panels) == ["tanh-rnn (n=2)", "gamma-norm (n=2)"]
    found = lines(panels["tanh-rnn (n=2)"])
    assert found == {
        "layer 0": ([10, 20], pytest.approx([6.0, 3.0])),
        "layer 1": ([10, 20], pytest.approx([10.0, 2.5])),
    }
    band = panels["tanh-rnn (n=2)"].collections[1].get_paths()[0].vertices
    assert {tuple(np.round(point, 6)) for point in band} == {(10, 4.0), (10, 16.0), (20, 1.0), (20, 4.0)}
    [ax] = plot(ids["gamma-norm", 0], "--kind", "norms").axes
    assert lines(ax)["layer 1"] == ([10, 20], pytest.approx([1.0, 0.01]))
    assert ax.get_ylabel() == "mean state norm"
    error = filled[0].run("plot", ids["tanh-rnn", 2], "--kind", "norms", "--out", "b.png", code=4).stderr
    assert f"run {ids['tanh-rnn', 2]}: no norms are recorded" in error


def test_metrics_by_name_are_a_panel_each_with_a_curve_a_rung_or_run(
    ids: dict[tuple[str, int], str], plot: Callable[..., Any]
) -> None:
    named = ["--metric", "norm/layer0", "--metric", "train/loss"]
    norm, loss, _ = plot("sCIFAR", *named, "--metric", "val/accuracy", "--width", "page").axes
    assert (norm.get_ylabel(), norm.get_yscale(), loss.get_ylabel()) == ("norm/layer0", "log", "train/loss")
    assert lines(norm)["tanh-rnn (n=2)"] == ([10, 20], pytest.approx([6.0, 3.0]))
    ax = plot(ids["gamma-norm", 0], *named[:2]).axes[0]
    assert list(lines(ax).values()) == [([10, 20], pytest.approx([2.0, 0.2]))]


def test_a_mean_is_over_the_steps_that_all_seeds_have() -> None:
    curve = curves.average("x", [[(1, 1.0), (2, 2.0)], [(2, 4.0), (3, 9.0)]])
    assert (curve.x, curve.y, curve.low, curve.high) == ((2,), (3.0,), (2.0,), (4.0,))
    alone = curves.average("x", [[(1, 1.0), (2, 2.0)]])
    assert (alone.y, alone.low, alone.high) == ((1.0, 2.0), (), ())


# Errors


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["sCIFAR", "--out", "a.gif"], 2, "--out a.gif: the name must end in .png, .svg or .pdf, found '.gif'"),
        (["sCIFAR", "--out", "a"], 2, "found no suffix"),
        (["sCIFAR", "--no-out"], 2, "missing option '--out'"),
        (["sCIFAR", "sDigits"], 2, "plot takes one TASK, or RUNs alone, found sCIFAR sDigits"),
        (["RUN", "--kind", "ladder"], 2, "--kind ladder: compares the rungs of a TASK, found runs"),
        (["RUN", "--profile", "smoke"], 2, "--profile: chooses among the ladders of a TASK, found runs"),
        (["sCIFAR", "--out", "no/a.png"], 1, "no/a.png: No such file or directory"),
        (["sCIFAR", "--kind", "curve"], 2, "did you mean 'curves'?"),
        (["f0f0f0"], 4, "no run 'f0f0f0' in this ledger"),
        (["LOST"], 4, "run LOST: has no curves yet"),
        (["sCIFAR", "--ledger", "none.db"], 4, "run: lrurun ladder sCIFAR"),
        (["sDigits"], 4, "ladder lru on sDigits, without --tune: not in this ledger"),
        (["sDigits", "--profile", "smoke"], 4, "ladder lru on sDigits --profile smoke: no run is finished"),
        (["sCIFRA"], 2, "did you mean 'sCIFAR'?"),
        (["sCIFAR", "--metric", "train/los"], 4, "did you mean 'train/loss'? curves: norm/layer0, norm/layer1"),
        (["RUN", "--metric", "val/loss", "--kind", "norms"], 2, "--metric: names a curve, found --kind norms"),
        (["sCIFAR", "--examples", "3"], 2, "--examples: is for errors and predictions, found --kind ladder"),
        (["RUN", "--kind", "eigenvalues"], 1, "no checkpoint to read: none is kept"),
    ],
)
def test_errors_say_what_to_do_and_leave_no_file(
    words: list[str], code: int, error: str, filled: Any, sketched: list[Any], ids: dict[tuple[str, int], str]
) -> None:
    names = {"RUN": ids["tanh-rnn", 0], "LOST": ids["linear-rnn", 0]}
    machine = filled[0]
    if "smoke" in words:
        with Ledger.open(machine.ledger) as ledger:
            ledger.add_ladder("lru", "sDigits", "smoke", planning.make("sDigits", profile="smoke").spec)
    before = [name for name in machine.files() if not name.startswith("ledger")]
    out = [] if {"--out", "--no-out"} & {*words} else ["--out", "new.png"]
    given = [names.get(word, word) for word in words if word != "--no-out"]
    done = machine.run("plot", *given, *out, code=code)
    assert done.stdout == ""
    assert error.replace("LOST", names["LOST"]) in done.stderr
    assert [name for name in machine.files() if not name.startswith("ledger")] == before


def test_a_file_appears_whole_or_not_at_all(filled: Any, sketched: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    machine = filled[0]
    (machine.folder / "old.png").write_bytes(b"old")

    def fail(self: Path, target: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    assert "old.png: No space left on device" in machine.run("plot", "sCIFAR", "--out", "old.png", code=1).stderr
    assert (machine.folder / "old.png").read_bytes() == b"old"
    assert not [name for name in machine.files() if name.endswith(".tmp")]


@pytest.mark.slow
def test_drawing_loads_no_jax_and_no_windows(filled: Any) -> None:
    script = (
        "import sys; from lrurun.__main__ import run; assert run(['plot', 'sCIFAR', '--out', 'a.pdf']) == 0\n"
        "print([n for n in ('jax', 'orbax', 'flax', 'matplotlib.pyplot', 'tkinter') if n in sys.modules])"
    )
    machine = filled[0]
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, cwd=machine.folder, env=machine.env, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_bands_are_standard_errors() -> None:
    values = [0.1, 0.4, 0.35]
    curve = curves.average("a", [[(1, value), (2, 1.0)] for value in values])
    mean, error = statistics.mean(values), statistics.stdev(values) / math.sqrt(3)
    assert (curve.low[0], curve.high[0]) == pytest.approx((mean - error, mean + error))
    assert (curve.low[1], curve.high[1]) == (1.0, 1.0)


def test_a_legend_of_many_entries_has_as_many_columns_as_fit() -> None:
    def columns(length: int) -> int:
        names = [f"{k} ".ljust(length, "m") for k in range(30)]
        drawn = tuple(Curve(label=name, x=(1.0, 2.0), y=(0.0, 1.0)) for name in names)
        figure = figure_files.draw(Figure(panels=(Panel(x="step", y="a", curves=drawn),)))
        [legend] = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == names
        assert legend.get_window_extent().width <= figure.bbox.width
        return int(legend._ncols)

    assert [columns(length) for length in (4, 14, 30)] == [3, 2, 1]


@pytest.mark.parametrize("count", [2, 30])
def test_an_entry_of_a_legend_that_is_too_wide_has_several_lines(count: int) -> None:
    names = [f"an-instance-with-a-long-name-{k}: a rung with a long name, and others" for k in range(count)]
    drawn = tuple(Curve(label=name, x=(1.0, 2.0), y=(0.0, 1.0)) for name in names)
    figure = figure_files.draw(Figure(panels=(Panel(x="step", y="a", curves=drawn),), title="t", caption="c"))
    check_places(figure)
    [legend] = figure.legends
    assert ["".join(text.get_text().split()) for text in legend.get_texts()] == ["".join(n.split()) for n in names]
    assert legend._ncols == 1

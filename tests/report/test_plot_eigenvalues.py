"""Figures of eigenvalues: those of the first and the last parameters, recorded or read from checkpoints."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lrurun.report.figures import figure_files, figures
from tests.harness.drawings import caption, lines, size
from tests.harness.machine import Machine
from tests.harness.results import fill


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A finished ladder of a dense and a diagonal recurrence, with its checkpoints."""
    machine = Machine(tmp_path_factory.mktemp("small"))
    (machine.folder / "two.toml").write_text(TWO)
    machine.run(
        "ladder", "sDigits", "--profile", "smoke", "--ladder", "two.toml", "--set", "model.depth=2", "--jobs", "1"
    )
    return machine


TWO = """
name = "two"
title = "two rungs"
source = "ours"
[[rung]]
name = "dense"
title = "dense"
change = { "model.recurrence.kind" = "dense", "model.recurrence.activation" = "identity" }
[[rung]]
name = "ring"
title = "ring"
change = { "model.recurrence.kind" = "diagonal", "model.recurrence.phase" = "log", "model.recurrence.normalize" = true }
"""
OF_TWO = ("sDigits", "--profile", "smoke", "--ladder", "two.toml", "--set", "model.depth=2", "--kind", "eigenvalues")


def sorted_pairs(x: Any, y: Any) -> np.ndarray:
    points = np.stack([x, y], axis=1)
    return points[np.lexsort(points.round(4).T)]


def by_hand(kind: str, params: dict[str, np.ndarray]) -> np.ndarray:
    """Eigenvalues by numpy from parameters, real and imaginary part."""
    if kind == "dense":
        values = np.linalg.eigvals(np.asarray(params["A"], np.float64))
    else:
        nu, theta = (np.exp(np.asarray(params[name], np.float64)) for name in ("nu_log", "theta_log"))
        values = np.exp(-nu + 1j * theta)
    return sorted_pairs(values.real, values.imag)


@pytest.mark.slow
@pytest.mark.parametrize(("rung", "kind"), [("dense", "dense"), ("ring", "diagonal")])
def test_eigenvalues_are_those_of_the_first_and_the_last_parameters(
    rung: str, kind: str, small: Machine, drawing: list[Any]
) -> None:
    [run] = [r for r in small.json("runs")["runs"] if r["rung"] == rung]
    small.run("plot", run["id"], "--kind", "eigenvalues", "--out", "a.png")
    assert size(str(small.folder / "a.png"))[0] == 990

    from lrurun.config.schema import Execution, RunConfig, decode
    from lrurun.data import tasks
    from lrurun.training.compiled import Compiled

    config = decode(small.json("show", run["id"])["config"], RunConfig, "test")
    task = tasks.get("sDigits")
    spec = task.spec(tasks.options_of(task, config.data))
    seeds = np.array([config.seed], np.uint32)
    compiled = Compiled(config, Execution(), spec)
    first = compiled.on_host(compiled.init(config.model, seeds))[0].params["blocks"]
    [history] = [h for (name, _, _), h in small.history().items() if name == rung]
    axes = drawing[0].axes
    assert [ax.get_title() for ax in axes] == ["layer 0", "layer 1"]
    for layer, ax in enumerate(axes):
        shape = (16, 16) if kind == "dense" else (16,)
        names = ("A",) if kind == "dense" else ("nu_log", "theta_log")
        at_end = {
            name: np.frombuffer(
                history[5][f"['params']['blocks']['{layer}']['recurrence']['{name}']"], np.float32
            ).reshape(shape)
            for name in names
        }
        points = lines(ax)
        start = by_hand(kind, first[str(layer)]["recurrence"])
        np.testing.assert_allclose(sorted_pairs(*points["at initialisation"]), start, atol=1e-5)
        np.testing.assert_allclose(sorted_pairs(*points["after training"]), by_hand(kind, at_end), atol=1e-5)
        assert ax.patches[0].get_radius() == 1
        assert ax.get_aspect() == 1
    assert not np.allclose(lines(axes[0])["after training"][0], lines(axes[0])["at initialisation"][0], atol=1e-4)
    assert "trained to step 60" in caption(drawing[0])
    # of a task, all layers of a rung's first seed in one panel
    small.run("plot", *OF_TWO, "--out", "a.svg")
    panels = {ax.get_title(): lines(ax) for ax in drawing[1].axes}
    assert list(panels) == ["dense", "ring"]
    for name in ("at initialisation", "after training"):
        together = [value for ax in axes for value in lines(ax)[name][0]]
        assert panels[rung][name][0] == pytest.approx(together)


@pytest.fixture
def older(small: Machine, tmp_path: Path) -> Machine:
    """The same without recorded eigenvalues, as an earlier version has left it."""
    machine = small.copy(tmp_path / "older")
    with contextlib.closing(sqlite3.connect(machine.ledger)) as connection, connection:
        connection.execute("DELETE FROM eigenvalues")
    return machine


@pytest.mark.slow
def test_eigenvalues_that_are_not_recorded_are_read_from_sound_checkpoints(
    older: Machine, small: Machine, drawing: list[Any]
) -> None:
    [run] = [r["id"] for r in small.json("runs")["runs"] if r["rung"] == "ring"]
    words = ("plot", run, "--kind", "eigenvalues", "--out")
    for machine in (small, older):
        machine.run(*words, "a.png")
    recorded, read = ([lines(ax) for ax in figure.axes] for figure in drawing)
    for one, other in zip(recorded, read, strict=True):
        for name, points in one.items():
            np.testing.assert_allclose(sorted_pairs(*points), sorted_pairs(*other[name]), atol=1e-6)
    # the page reads no checkpoint
    assert "Not recorded: dense, ring." in older.run("report", *OF_TWO[:-2], "--format", "html").stdout
    folder = older.runs / run / "1" / "checkpoints" / "60"
    victim = max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    error = older.refused(*words, "b.png", code=1)
    assert f"run {run}: no checkpoint to read: " in error
    assert "does not hold the bytes that were saved" in error
    shutil.rmtree(folder)
    assert "60 is missing" in older.refused(*words, "b.png", code=1)


def test_eigenvalues_that_are_not_finite_are_none() -> None:
    from lrurun.config.recurrences.rnn import RNNSettings
    from lrurun.nn import recurrences

    dense = recurrences.build(RNNSettings(), width=2, state=2)
    assert dense.spectrum({"A": np.array([[0.0, 2.0], [-2.0, 0.0]])}) == pytest.approx([2j, -2j])
    assert np.isnan(dense.spectrum({"A": np.array([[0.0, np.nan], [1.0, 0.0]])})).all()
    lost = figures.spectra([figures.spectrum("x", (1j,), (complex(np.nan),))], title="t", caption="")
    assert figure_files.render(lost, ".png").startswith(b"\x89PNG")


GATED = """
[[rung]]
name = "gated"
title = "gated"
change = { "model.recurrence.kind" = "gru" }
"""


def test_rungs_without_eigenvalues_are_named_and_the_others_drawn(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, drawing: list[Any]
) -> None:
    monkeypatch.chdir(machine.folder)
    Path("two.toml").write_text(TWO + GATED)
    options = {"ladder": "two.toml", "profile": "smoke", "sets": {"model.depth": 2}}
    fill(machine.ledger, "sDigits", {"gated": [0.5]}, eigenvalues={"start": None, "end": None}, **options)  # type: ignore[dict-item, arg-type]
    error = machine.run("plot", *OF_TWO, "--out", "a.png", code=1).stderr
    assert "its recurrence has no eigenvalues" in error
    assert not Path("a.png").exists()
    found = {"dense": [0.5], "ring": [0.5]}
    fill(machine.ledger, "sDigits", found, eigenvalues={"start": [0.5j], "end": [0.6j]}, **options)  # type: ignore[arg-type]
    error = machine.run("plot", *OF_TWO, "--out", "a.png").stderr
    assert "not drawn, because their recurrences define no eigenvalues: gated" in error
    assert [ax.get_title() for ax in drawing[0].axes] == ["dense", "ring"]


def test_many_spectra_share_one_pair_of_axes() -> None:
    """Matplotlib needs minutes for hundreds of panels. Each spectrum is around its own circle, under its own name."""
    count = figures.MOST_PLANES + 3
    values = [(complex(0.01 * k, 0.5), complex(-0.2, 0.01 * k)) for k in range(count)]
    spectra = [figures.spectrum(f"rung {k}", one, one[:1]) for k, one in enumerate(values)]
    [ax] = figure_files.draw(figures.spectra(spectra, title="t", caption="c")).axes
    assert {circle.get_radius() for circle in ax.patches} == {1}
    centres = [complex(*circle.get_center()) for circle in ax.patches]
    names = {text.get_text(): complex(*text.get_position()) for text in ax.texts}
    assert [names[f"rung {k}"].real for k in range(count)] == pytest.approx([centre.real for centre in centres])
    drawn = {line.get_label(): line for line in ax.lines}
    initial, trained = drawn["at initialisation"], drawn["after training"]
    points = [complex(*point) for point in initial.get_xydata()]
    expected = [z + centre for one, centre in zip(values, centres, strict=True) for z in one]
    assert [z.real for z in points] == pytest.approx([z.real for z in expected])
    assert [z.imag for z in points] == pytest.approx([z.imag for z in expected])
    assert len(trained.get_xydata()) == count
    apart = min(abs(one - other) for k, one in enumerate(centres) for other in centres[:k])
    assert apart > 2

"""Checks of studies, answers and profiles: what they show where they cannot decide; and the parts of a figure."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from lrurun import studies
from lrurun.report.figures import figure_files
from lrurun.report.figures import figures as figure
from lrurun.studies import convolution as module
from lrurun.studies import execution
from lrurun.studies import plan as planning
from lrurun.studies import report as reporting
from tests.harness.drawings import misplaced
from tests.harness.machine import Machine


def test_a_training_that_ends_too_early_is_no_measurement() -> None:
    # 500 updates are too few for real and imaginary parts; the exponential form needs 52 of them, or 418
    fast, slow = (in_process("powers", {"angle": 0.5, "lr": rate}) for rate in (0.003, 0.0001))
    assert "real-imaginary never: loss 0.067 (0.5); exponential 52 (0.5)" in fast.answer
    verdicts = [(claim.verdict, claim.detail.split(";")[0]) for report in (fast, slow) for claim in report.claims]
    name = "updates of real-imaginary over exponential, geometric mean over the angles"
    assert verdicts == [("supported", f"{name}: 9.615"), ("undecided", f"{name}: 1.196")]
    assert reporting.counts(slow) == "6 of 6 checks passed"
    assert jnp.zeros(1).dtype == "float32", "what follows in this process is not float64"


def test_one_seed_decides_no_claim_about_seeds() -> None:
    report = in_process("disk", {}, seeds=1)
    assert report.failed == []
    assert [(claim.verdict, "needs 5 seeds" in claim.detail) for claim in report.claims] == [("undecided", True)] * 2


@pytest.mark.parametrize("study", studies.every(), ids=studies.names())
def test_every_profile_says_what_stands_in_for_the_paper(study) -> None:
    paper = (study.profiles["paper"], study.seeds.get("paper", 1))
    other = {name for name, table in study.profiles.items() if (table, study.seeds.get(name, 1)) != paper}
    assert other <= set(study.stand_in) or study.exact
    assert all(sentence.endswith(".") for sentence in study.stand_in.values())


def test_a_simulation_has_the_colour_of_its_closed_form() -> None:
    curves = (
        figure.line("exact", [1, 10], [1, 2]),
        figure.points("sampled", [1, 10], [1, 2], low=[0.9, 1.9], high=[1.1, 2.1], family="exact"),
        figure.dashed("printed", [1, 10], [1, 3], family="exact"),
        figure.grey("other", [1, 10], [1, 4]),
    )
    panel = figure.Panel(x="a - b", y="y", curves=curves, y_scale="log", x_ticks=((1, "first"), (10, "second")))
    drawn = figure_files.draw(figure.Figure(panels=(panel,), title="Q?", caption="A."))
    [ax] = drawn.axes
    exact, sampled, printed, other = (line.get_color() for line in ax.lines)
    assert exact == sampled == printed != other
    assert ax.get_xlabel() == "a − b"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["first", "second"]
    assert {1.0, 2.0} <= set(ax.get_yticks())  # there are not two powers of ten between 1 and 4
    assert misplaced(drawn) == []


def test_pictures_of_one_label_have_one_scale_of_colours() -> None:
    def panel(label: str, *values: float) -> figure.Panel:
        picture = figure.Picture(x=(0.0, 1.0), y=(0.0,), z=(values,), label=label, scale="log")
        return figure.Panel(x="x", y="y", picture=picture)

    panels = (panel("a", 1.0, 10.0), panel("a", 0.1, float("nan")), panel("b", 1.0, 2.0))
    drawn = figure_files.draw(figure.Figure(panels=panels, columns=2, title="Q?", caption="A."))
    meshes = [ax.collections[0] for ax in drawn.axes[:3]]
    assert [(mesh.norm.vmin, mesh.norm.vmax) for mesh in meshes] == [(0.1, 10.0), (0.1, 10.0), (1.0, 2.0)]
    bars = [
        ax for ax in (*drawn.axes, *(child for ax in drawn.axes for child in ax.child_axes)) if ax.get_ylabel() in "ab"
    ]
    assert sorted(ax.get_ylabel() for ax in bars) == ["a", "b"]
    assert misplaced(drawn) == []


@pytest.mark.parametrize("form", ["polar", "exponential", "optimal", "optimal-stop"])
def test_the_path_of_an_angle_is_within_its_landscape(form: str) -> None:
    [result] = execution.in_process(planning.make(studies.get("angle"), "ci", {"form": form}))
    for name in "wv":
        path, axis = result.curves[name], result.curves[f"landscape {name}"]
        assert axis[0] < path.min() < path.max() < axis[-1]


def test_powers_shows_the_landscape_of_the_loss_with_its_paths() -> None:
    powers = studies.get("powers")
    results = execution.in_process(planning.make(powers, "ci", {"angle": 0.5}))
    for result, panel in zip(results, powers.draw(results).panels, strict=False):
        path, start, target = panel.curves
        assert (path.x[0], path.y[0]) == (start.x[0], start.y[0])
        eigenvalue = complex(target.x[0], target.y[0])
        if result.cell.form == "exponential":
            eigenvalue = np.exp(-eigenvalue.real + 1j * eigenvalue.imag)
        assert eigenvalue == pytest.approx(0.99 * np.exp(0.25j * np.pi))
        # The loss of the landscape next to the start is that of the first update.
        x, y = (result.curves[f"landscape {name}"] for name in "xy")
        place = np.argmin(np.abs(y - start.y[0])), np.argmin(np.abs(x - start.x[0]))
        loss = result.curves["landscape loss"].reshape(len(y), len(x))[place]
        assert loss == pytest.approx(result.curves["loss"][0], rel=0.3)


def test_the_learned_kernel_is_that_of_the_outputs() -> None:
    convolution = studies.get("convolution")
    changes = {"model": "linear", "state": 10, "updates": 60, "lr": 1e-4}
    results = execution.in_process(planning.make(convolution, "ci", changes))
    u, y = module.data(0)
    outputs = np.stack([np.convolve(column, results[0].curves["learned kernel"])[: len(u)] for column in u.T], axis=1)
    assert 0.5 * np.mean((outputs - y) ** 2) == pytest.approx(results[0]["final loss"], rel=0.1)
    linear, target = convolution.draw(results).panels[-1].curves
    assert (target.label, linear.label) == ("target", "linear")
    assert target.y == tuple(module.kernel())


def test_medians_have_bars_over_the_middle_of_their_samples() -> None:
    samples = {1.0: [10.0, 3.0, 0.0, 2.0, 1.0], 2.0: []}
    for percent, low, high in ((50.0, 1.0, 3.0), (100.0, 0.0, 10.0)):
        found = figure.spread("a", samples, percent=percent)
        assert (found.x, found.y, found.low, found.high) == ((1.0,), (2.0,), (low,), (high,))


def in_process(name: str, changes: dict[str, Any], seeds: int = 1) -> reporting.StudyReport:
    """The report of a study in its quickest form, without a ledger."""
    plan = planning.make(studies.get(name), "ci", changes, range(seeds))
    return reporting.build(plan, execution.in_process(plan))


@pytest.mark.slow
def test_a_report_is_of_the_largest_profile_that_is_complete(machine: Machine) -> None:
    machine.run("study", "gain", "--profile", "ci", "--cell", "white/0-0.9")
    refused = machine.run("report", "study:gain", code=4)  # cells of a profile that lacks others are not taken
    assert "has no cell of the study gain in profile laptop\n" in refused.stderr
    assert "hint: this ledger has --profile ci; or run: lrurun study gain" in refused.stderr
    machine.run("study", "gain", "--profile", "ci")
    complete = machine.run("report", "study:gain").stdout
    assert complete == machine.run("report", "study:gain", "--profile", "ci").stdout
    partial = machine.run("report", "study:gain", "--profile", "laptop")
    assert "60 of 100 cells have no result" in partial.stdout + partial.stderr
    assert complete != partial.stdout

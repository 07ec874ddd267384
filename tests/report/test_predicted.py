"""`plot --kind errors` and `--kind predictions`: what trained models predict, counted and drawn."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import lrurun
from lrurun.config import planning
from lrurun.data import task_data
from lrurun.data.synthetic import listops_generator
from lrurun.data.task import Grouping, Split
from lrurun.data.tasks import TASKS
from lrurun.errors import UsageError
from lrurun.report.figures import figure_files, predicted
from tests.harness.machine import Machine

SUBTREES, SEGMENTS = TASKS["ListOpsSubTrees"], TASKS["PathfinderSegmentation"]
PARAMETERS = listops_generator.Parameters(min_length=20, max_length=120, max_depth=8, max_args=5, subtrees=True)


def subtrees(tokens: list[str]) -> dict[int, tuple[int, str]]:
    """Position of each closing bracket -> height and operator of its subtree, by recursion over the words."""
    found: dict[int, tuple[int, str]] = {}

    def parse(place: int) -> tuple[int, int]:
        """The place behind the expression that begins here, and its height."""
        if not tokens[place].startswith("["):
            return place + 1, 0
        heights, next_place = [], place + 1
        while tokens[next_place] != "]":
            next_place, height = parse(next_place)
            heights.append(height)
        found[next_place] = 1 + max(heights), tokens[place].removeprefix("[")
        return next_place + 1, 1 + max(heights)

    parse(0)
    return found


def test_subtrees_are_grouped_by_height_and_operator():
    examples = listops_generator.draw(3, 0, PARAMETERS, trees=3000)
    split = Split(inputs=examples.inputs, labels=examples.labels, lengths=examples.lengths)
    heights, operators = SUBTREES.groupings(SUBTREES.spec(SUBTREES.options()), split)
    assert (heights.name, operators.name) == ("height of the subtree", "operator")
    highest = 0
    for row, length in enumerate(examples.lengths.tolist()):
        wanted = subtrees([listops_generator.TOKENS[token] for token in examples.inputs[row, :length]])
        assert sorted(wanted) == np.flatnonzero(examples.labels[row] >= 0).tolist()
        for place, (height, operator) in wanted.items():
            assert heights.groups[heights.index[row, place]] == str(height)
            assert operators.groups[operators.index[row, place]] == operator
            highest = max(highest, height)
    assert highest > 4
    assert len(examples.lengths) > 100


LABELS = np.array([[1, -1, 0, 2], [0, 0, -1, 1]])
PREDICTED = np.array([[1, 9, 1, 2], [0, 1, 7, 0]])
HALVES = Grouping(name="half", groups=("none", "left", "right"), index=np.array([[1, 1, 2, 2]] * 2))


def test_errors_are_counted_by_group_and_averaged_over_runs():
    first, second = predicted.errors([HALVES], LABELS, {"dlr": [PREDICTED, LABELS], "attention": [PREDICTED]})
    assert (first.division, first.group, first.labels) == ("half", "left", 3)
    assert (second.group, second.labels) == ("right", 3)
    assert first.rates["attention"] == (pytest.approx(1 / 3), None)
    assert second.rates["attention"] == (pytest.approx(2 / 3), None)
    assert second.rates["dlr"] == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    headers, texts = predicted.error_texts([first, second])
    assert headers == ["labels by", "group", "labels", "dlr [%]", "attention [%]"]
    assert texts[1] == ["half", "right", "3", "33.3 ± 33.3", "66.7"]
    (panel,) = predicted.error_figure([first, second], title="t", caption="c").panels
    assert [curve.y for curve in panel.curves] == [pytest.approx((100 / 6, 100 / 3)), pytest.approx((100 / 3, 200 / 3))]
    assert panel.curves[0].high == pytest.approx((100 / 3, 200 / 3))
    assert panel.x_ticks == ((0.0, "left"), (1.0, "right"))


def test_other_tasks_count_errors_by_class():
    task = TASKS["npDigits"]
    split = Split(inputs=np.zeros((4, 64)), labels=np.array([3, 3, 0, 9]))
    rows = predicted.errors(
        task.groupings(task.spec(task.options()), split), split.labels, {"a": [np.array([3, 0, 0, 0])]}
    )
    assert [(row.group, row.labels, row.rates["a"][0]) for row in rows] == [("0", 1, 0.0), ("3", 2, 0.5), ("9", 1, 1.0)]


def test_masks_are_drawn_as_images_with_predictions_below():
    spec = SEGMENTS.spec(SEGMENTS.options(size=32, quirks=False))
    labels = np.random.default_rng(0).integers(0, 3, (2, 1024), np.uint8)
    split = Split(inputs=np.zeros((2, 1024), np.uint8), labels=labels)
    figure = predicted.example_figure(spec, split, {"dlr": [2 - labels]}, title="t", caption="c")
    assert (figure.columns, [panel.y for panel in figure.panels]) == (2, ["labels", "", "dlr", ""])
    for panel, wanted in zip(figure.panels, [*labels, *(2 - labels)], strict=True):
        assert panel.picture is not None
        np.testing.assert_array_equal(panel.picture.z, wanted.reshape(32, 32))
    drawing = figure_files.draw(figure)
    (mesh,) = drawing.axes[0].collections
    shades = np.asarray(mesh.to_rgba(mesh.get_array()))[..., 0].reshape(32, 32)
    np.testing.assert_allclose(shades, 1 - labels[0].reshape(32, 32) / 2, atol=0.01)
    top, bottom = (drawing.axes[0].transData.transform((0, -row))[1] for row in (0, 31))
    assert top > bottom


def test_classes_and_values_are_drawn_over_their_positions():
    spec = SUBTREES.spec(SUBTREES.options(min_length=1, max_length=6))
    split = Split(inputs=np.zeros((2, 6), np.uint8), labels=LABELS)
    panels = predicted.example_figure(spec, split, {"dlr": [PREDICTED]}, title="", caption="").panels
    label, prediction = panels[1].curves
    assert (label.x, label.y) == ((2.0, 3.0, 5.0), (0.0, 0.0, 1.0)), "the last of 6 positions has the last label"
    assert (prediction.x, prediction.y) == ((2.0, 3.0, 5.0), (0.0, 1.0, 0.0))
    digits = TASKS["npDigits"].spec(TASKS["npDigits"].options())
    with pytest.raises(UsageError, match="an example of npDigits has one label"):
        predicted.example_figure(digits, split, {}, title="", caption="")


@pytest.mark.slow
def test_a_trained_run_is_drawn_by_one_command(machine: Machine):
    """The printed shares are those of `lrurun.load`, counted in another way, and of the recorded accuracy."""
    words = ["--ladder", "dlr", "--profile", "smoke"]
    machine.run("ladder", "ListOpsSubTrees", *words, "--rung", "dlr", "--seeds", "2")
    runs = machine.json("runs")["runs"]
    printed = machine.run("plot", "ListOpsSubTrees", *words, "--kind", "errors", "--out", "errors.png").stdout
    plan = planning.make("ListOpsSubTrees", ladder="dlr", profile="smoke")
    data = task_data.load(plan.task, plan.options, Path(machine.env["XDG_DATA_HOME"]) / "lrurun" / plan.data_name)
    wrong: dict[str, list[list[bool]]] = defaultdict(lambda: [[] for _ in runs])
    for number, run in enumerate(runs):
        model = lrurun.load(run["id"], ledger=machine.ledger, runs_dir=machine.runs)
        classes = model(data.validation.inputs, data.validation.lengths).argmax(-1)
        for row, length in enumerate(data.validation.lengths.tolist()):
            tokens = [listops_generator.TOKENS[token] for token in data.validation.inputs[row, :length]]
            for place, groups in subtrees(tokens).items():
                for group in (*map(str, groups), "all"):
                    wrong[group][number].append(bool(classes[row, place] != data.validation.labels[row, place]))
        assert 1 - np.mean(wrong["all"][number]) == pytest.approx(run["metrics"]["val/accuracy"], abs=1e-6)
    table = re.findall(r"(?:subtree|operator) +(\w+) +([\d,]+) +([\d.]+) ± ([\d.]+)", printed)
    assert {group for group, *_ in table} == {*wrong} - {"all"}
    for group, labels, mean, _ in table:
        assert int(labels.replace(",", "")) == len(wrong[group][0])
        assert float(mean) == pytest.approx(100 * np.mean([np.mean(of) for of in wrong[group]]), abs=0.06)
    machine.run("plot", runs[0]["id"], "--kind", "predictions", "--examples", "2", "--out", "examples.svg")
    assert (machine.folder / "examples.svg").stat().st_size > 1000
    assert (machine.folder / "errors.png").stat().st_size > 1000

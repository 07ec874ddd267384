"""Reports on tasks whose metric is not accuracy: R^2, and bits per byte, of which fewer are better."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from lrurun.config.ladder import Claim, Ladder, Published
from lrurun.data.metric import R2 as RSquared
from lrurun.data.metric import Accuracy, BitsPerByte, Exact, Metric
from lrurun.errors import UsageError
from lrurun.judging import scores
from lrurun.ledger import values
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import Run
from lrurun.report import formats, listing, verification
from lrurun.report.figures.curves import panels
from lrurun.report.live import progress
from lrurun.report.run_details import RunDetail
from lrurun.report.tables import all_tasks
from lrurun.report.tables.ladder_table import LadderReport
from tests.harness import results, scored
from tests.harness.machine import Machine
from tests.harness.plug_ins import forget
from tests.harness.reports import build as build_report
from tests.harness.reports import make_run, make_rung
from tests.harness.scored import tasks  # noqa: F401

BITS = BitsPerByte(chance=8.0)
R2 = RSquared()
CLAIM = Claim(text="b is as good", source="s", rung="b", than="a", kind="no-worse", margin=0.25)


def runs_of(metric: Metric, rung: str, scores: Sequence[float], **settings: Sequence[float]) -> list[Run]:
    """Runs with these scores and, setting -> scores, those in other settings."""
    found = []
    for seed, score in enumerate(scores):
        others = {f"test@{name}/{metric.name}": values[seed] for name, values in settings.items()}
        result = {f"test/{metric.name}": score, f"val/{metric.name}": score, "test/loss": 7.0, "test@x/loss": 7.0}
        found.append(make_run(f"{rung}{seed}", rung, seed, result={**result, **others}))
    return found


def build(metric: Metric, runs: Sequence[Run], *claims: Claim, **more: Any) -> LadderReport:
    published = Published(source="Paper", value=-1.5 if metric is R2 else 1.25, stderr=0.5)
    rungs = (make_rung("a", sDigits=(published,)), make_rung("b"))
    ladder = Ladder(name="two", title="two", source="s", rungs=rungs, claims=claims)
    return build_report(ladder, list(runs), metric=metric, **more)


def bits(**more: Any) -> LadderReport:
    """b has half a bit less than a."""
    runs = runs_of(BITS, "a", (2.5, 2.51, 2.52)) + runs_of(BITS, "b", (2.0, 2.01, 2.02))
    return build(BITS, runs, CLAIM, **more)


def test_of_a_metric_of_which_less_is_better_the_lower_score_wins(golden: Any) -> None:
    """Margins are in the units of the metric, scores on further tests are columns, and each task has its own metric."""
    report = bits()
    [claim] = report.claims
    assert [report.rows[1].verdict, claim.verdict] == ["helps", "supported"]
    assert report.rows[1].comparison is not None
    assert report.rows[1].comparison.difference == pytest.approx(-0.5)
    worse = build(BITS, runs_of(BITS, "a", (2.0, 2.01, 2.02)) + runs_of(BITS, "b", (2.5, 2.51, 2.52)))
    assert worse.rows[1].verdict == "hurts"
    accuracy = build(Accuracy(chance=0.5), runs_of(Accuracy(), "a", (0.5, 0.75)), task="sCIFAR")
    ladder = Ladder(name="two", title="two", source="s", rungs=(make_rung("a"), make_rung("b")))
    both = all_tasks.build(ladder, [report, accuracy])
    texts = {"bits per byte": formats.render(report, "table", width=120), "worse": "\n".join(worse.conclusions)}
    for name, one in (("further tests", lengths()), ("all tasks", both)):
        texts[name] = formats.render(one, "table", width=250)
        texts[f"{name}, csv"] = formats.render(one, "csv")
    texts["further tests in all tasks"] = formats.render(all_tasks.build(ladder, [lengths()]), "table", width=200)
    text = "".join(f"==== {name}\n{one}\n\n" for name, one in texts.items())
    golden("report/metrics.txt", re.sub(r"(\.\d{9})\d+", r"\1", text))
    [row, _] = json.loads(formats.render(lengths(), "json"))["rows"]
    assert row["further_tests"][0] == {"test": "256", "n": 2, "mean": 0.375, "stderr": 0.125}
    found = json.loads(formats.render(both, "json"))
    assert found["metric"] == "test/bits_per_byte, test/accuracy"
    assert [column["score"]["higher_is_better"] for column in found["columns"]] == [False, True]


@pytest.mark.parametrize("format", get_args(formats.Format))
def test_no_format_has_the_units_of_accuracy(format: formats.Format) -> None:
    for metric in (R2, BITS):
        runs = runs_of(metric, "a", (-0.5, 0.25, 0.125)) + runs_of(metric, "b", (0.5, 0.75, 0.625))
        lost = make_run("lost", "b", 9, state="diverged")
        text = formats.render(build(metric, [*runs, lost], CLAIM), format, width=200)
        for word in ("accuracy", "points", "per cent", "test item is"):
            assert word not in text
        assert metric.name in text or metric.name.replace("_", " ") in text
    if format not in ("csv", "json"):
        text = formats.render(lengths(), format, width=200)
        assert ("r2 at 1024" in text, "0.3750" in text) == (True, True)


def test_the_page_names_the_metric_of_every_run() -> None:
    def detail(score: float) -> RunDetail:
        return RunDetail(seed=0, state="done", step=1, steps=1, score=score, attempts=1, settings={})

    page = formats.render(bits(), "html", details={"a0": detail(2.5)})
    assert '<th scope="col" class="right">test bits per byte</th>' in page
    assert '<td class="right">2.5000</td>' in page
    ladder = Ladder(name="two", title="two", source="s", rungs=(make_rung("a"), make_rung("b")))
    accuracy = build(Accuracy(chance=0.5), [make_run("c0", "a", 0, 0.5)], task="sCIFAR")
    both = all_tasks.build(ladder, [bits(), accuracy])
    page = formats.render(both, "html", details={"a0": detail(2.5), "c0": detail(0.5)})
    for cell in ("2.5000 bits per byte", "50.00 %"):
        assert f'<td class="right">{cell}</td>' in page


def test_the_escape_is_the_first_score_beyond_the_plateau() -> None:
    curve = [(10, 0.2), (20, math.nan), (30, 0.5), (40, 0.1), (50, 0.9)]
    assert Accuracy(escape=0.5).escape_step(curve) == 30
    assert Accuracy(escape=0.95).escape_step(curve) == math.inf
    assert BitsPerByte(escape=0.1).escape_step(curve) == 40


def test_a_continuous_score_has_no_size_of_a_test_item() -> None:
    assert bits().test_step is None
    assert build(Accuracy(chance=0.5), runs_of(Accuracy(), "a", (0.5,)), test_items=50).test_step == 0.02


@pytest.mark.parametrize(
    ("metric", "data", "sentence"),
    [
        (Accuracy(), {"test_labels": 100}, "One label is 1.00 points: 100 labels in 20 test sequences."),
        (Accuracy(), {"test_labels": 20}, "One test item is 5.00 points (20 items)."),
        (Accuracy(), {}, "One test item is 5.00 points (20 items)."),
        (Exact(), {"test_labels": 100}, "One test item is 5.00 points (20 items)."),
    ],
)
def test_a_score_over_labels_moves_by_one_label(metric: Metric, data: dict[str, Any], sentence: str) -> None:
    runs = runs_of(metric, "a", (0.97, 0.93, 0.93)) + runs_of(metric, "b", (0.5, 0.5, 0.5))
    report = build(metric, runs, test_items=20, data=data, items=lambda *_: {})
    assert sentence in formats.render(report, "md")
    assert report.without_spread == (("b",) if sentence.startswith("One label") else ("a", "b"))
    assert build(metric, runs, test_items=20, data=data).without_spread == (), "per-item results have the error"


# Other settings


def lengths(metric: Metric = R2) -> LadderReport:
    """Scores at three other lengths, of which b has one, and that not for all seeds."""
    a = runs_of(metric, "a", (0.5, 0.75), **{"256": (0.25, 0.5), "1024": (-1.0, -1.5), "64": (0.5, float("nan"))})
    b = runs_of(metric, "b", (0.5, 0.75), **{"256": (0.5, 0.5)})
    return build(metric, [*a, *b])


# Several tasks


def test_curves_have_the_label_and_scale_of_the_metric() -> None:
    curves = {"train/loss": [(10, 3.0), (20, 0.3)], "val/bits_per_byte": [(10, 3.0)], "val/accuracy": [(10, 0.1)]}
    for metric, label, value in (
        (BITS, "validation bits per byte", 3.0),
        (Accuracy(), "validation accuracy [%]", 10.0),
    ):
        loss, score = panels({"a": [curves]}, scores.curves_of(scores.form_of(metric)))
        assert (loss.y, loss.y_scale, score.y_scale) == ("training loss", "log", "linear")
        assert (score.y, score.curves[0].y[0]) == (label, value)


# Commands, on tasks of a plug-in


@pytest.fixture
def runs(tasks: Path, machine: Machine) -> Machine:  # noqa: F811
    """A ledger with runs of both tasks; they are loaded."""
    for task, name, score in (("Wave", "r2", -0.5), ("Letters", "bits_per_byte", 1.5)):
        more = {f"val/{name}": score, "val/loss": 9.0}
        results.fill(machine.ledger, task, {"few": [score, score + 1]}, ladder="sizes", more=more)
    scored.write(machine.folder)
    return machine


def cells(text: str) -> list[list[str]]:
    return [re.split(r"  +|\t", line.strip()) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("is_loaded", [True, False])
def test_lists_have_the_scores_of_each_metric(runs: Machine, is_loaded: bool) -> None:
    if not is_loaded:
        forget()
        assert "unknown task 'Letters'" in runs.run("report", "Letters", "--ladder", "sizes", code=2).stderr
    head, *lines = cells(runs.run("runs", "--sort", "seed").stdout)
    assert head[7:9] == ["val score", "test score"]
    assert [line[7:9] for line in lines] == [
        ["1.5000 bits per byte", "1.5000 bits per byte"],
        ["-0.5000 r2", "-0.5000 r2"],
        ["1.5000 bits per byte", "2.5000 bits per byte"],
        ["-0.5000 r2", "0.5000 r2"],
    ]
    head, *lines = cells(runs.run("runs", "--where", "task=Wave and test/r2>0").stdout)
    assert (head[7:9], [line[7:9] for line in lines]) == (["val r2", "test r2"], [["-0.5000", "0.5000"]])
    found = {one["task"]: one for one in runs.json("status")["ladders"]}
    assert {task: one["metric"] for task, one in found.items()} == {"Wave": "val/r2", "Letters": "val/bits_per_byte"}
    [rung] = found["Wave"]["rungs"]
    assert (rung["score"], rung["val/accuracy"]) == (-0.5, None)
    text = runs.run("status", "--details").stdout
    assert all(part in text for part in ("mean val r2", "mean val bits per byte", " -0.500 "))


def test_status_of_accuracy_is_in_the_field_of_released_versions(machine: Machine) -> None:
    results.fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5]}, more={"val/accuracy": 0.25})
    [ladder] = machine.json("status")["ladders"]
    rung = ladder["rungs"][0]
    assert (ladder["metric"], rung["val/accuracy"], rung["score"]) == ("val/accuracy", 0.25, 0.25)


def test_show_progress_report_and_plot_read_the_metric_of_the_task(runs: Machine) -> None:
    [run] = runs.json("runs", "--where", "task=Letters and seed=0")["runs"]
    assert "\nval/bits_per_byte  " in runs.run("show", run["id"]).stdout
    with Ledger.open(runs.ledger) as ledger:
        [ladder] = [one for one in ledger.ladders("sizes") if one.task == "Wave"]
        found = ledger.runs(ladder.key)
        lines = progress.Lines().update({ladder.key: ""}, found, str, {})
    assert lines[0].endswith(": done, val -0.5000 r2, test -0.5000 r2")
    report = runs.json("report", "Letters", "--ladder", "sizes")
    score = (report["metric"], report["rows"][0]["mean"], report["score"]["higher_is_better"])
    assert score == ("test/bits_per_byte", 2.0, False)
    columns = runs.json("report", "--all", "--ladder", "sizes")["columns"]
    assert [column["metric"] for column in columns] == ["test/r2", "test/bits_per_byte"]
    runs.run("plot", "Wave", "--ladder", "sizes", "--kind", "curves", "--out", "curves.svg")


@pytest.mark.usefixtures("tasks")
def test_scores_of_known_metrics_can_be_named_before_a_run_has_them(tmp_path: Path) -> None:
    with Ledger.read(tmp_path / "ledger.db") as ledger:
        listing.Choice("test/r2>0.5 or val/bits_per_byte<2", "-val/r2", ledger)
        with pytest.raises(UsageError, match="unknown name 'val/r3'"):
            listing.Choice("val/r3>0", None, ledger)


@pytest.mark.parametrize(("repeated", "verdict"), [(-2.9, "within tolerance"), (-2.5, "different")])
def test_a_repetition_is_judged_by_scores_of_any_metric(repeated: float, verdict: str) -> None:
    def recorded(score: float, device: str) -> verification.Recorded:
        attempt = values.Attempt(
            run="a", n=1, host="h", boot="b", namespace="n", pid=1, pid_started=1.0, started_at=1.0, heartbeat_at=1.0,
            seen_at=1.0, ended_at=2.0, outcome="done", reason="done", resumed_from=0, numerics=2,
            environment={"device": device, "platform": "cpu"},
        )  # fmt: skip
        run = make_run("a", "a", 0, result={"test/r2": score, "test/loss": score})
        return verification.Recorded(run=run, attempts=[attempt], curves={})

    assert verification.verify(recorded(-3.0, "one"), recorded(repeated, "other")).verdict == verdict


def test_scores_of_a_task_that_is_not_loaded_have_no_direction() -> None:
    own = scores.of_task("of-a-plug-in", ("val/loss", "val/error"))
    assert (own.name, own.higher_is_better, own.best([0.1, 0.2])) == ("error", None, None)
    # names of lrurun's own tasks with other results are of a plug-in that had the name before
    assert scores.of_task("Copy", ("val/error",)) == own
    assert scores.of_task("TeacherStudent", ("val/nmse", "val/r2")).best([0.1, 0.2]) == 0.1
    assert scores.of_task("TeacherStudent").name == "nmse"

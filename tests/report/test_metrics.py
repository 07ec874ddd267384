"""Reports on tasks whose metric is not accuracy: R^2, and bits per byte, of which fewer are better."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import structs

from lrurun.__main__ import run as command
from lrurun.config.ladder import Claim, Grid, Ladder, Published
from lrurun.data.metric import R2 as RSquared
from lrurun.data.metric import Accuracy, BitsPerByte, Exact, Metric
from lrurun.errors import UsageError
from lrurun.ledger import values
from lrurun.ledger.store import Ledger
from lrurun.ledger.values import Run
from lrurun.report import formats, listing, scores, verification
from lrurun.report.figures.curves import panels
from lrurun.report.live import progress
from lrurun.report.run_details import RunDetail
from lrurun.report.tables import all_tasks
from lrurun.report.tables.ladder_table import LadderReport
from tests.harness import results
from tests.harness.plug_ins import forget
from tests.harness.reports import GRID, make_run, make_rung
from tests.harness.reports import build as build_report
from tests.harness.scored import LADDER, tasks  # noqa: F401

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


def test_of_a_metric_of_which_less_is_better_the_lower_score_wins() -> None:
    report = bits()
    row = report.rows[1]
    assert row.comparison is not None
    assert (row.verdict, round(row.comparison.difference or 0, 9)) == ("helps", -0.5)
    assert report.conclusions[0].startswith("Helps: b scores 0.5000 bits per byte less than a (p")
    worse = build(BITS, runs_of(BITS, "a", (2.0, 2.01, 2.02)) + runs_of(BITS, "b", (2.5, 2.51, 2.52)))
    assert worse.rows[1].verdict == "hurts"
    assert worse.conclusions[0].startswith("Hurts: b scores 0.5000 bits per byte more than a (p")


def test_the_escape_is_the_first_score_beyond_the_plateau() -> None:
    curve = [(10, 0.2), (20, math.nan), (30, 0.5), (40, 0.1), (50, 0.9)]
    assert Accuracy(escape=0.5).escape_step(curve) == 30
    assert Accuracy(escape=0.95).escape_step(curve) == math.inf
    assert BitsPerByte(escape=0.1).escape_step(curve) == 40


def test_a_margin_is_in_the_units_of_the_metric() -> None:
    [claim] = bits().claims
    assert claim.verdict == "supported"
    assert "b 2.0100 ± 0.0058 (n=3), a 2.5100 ± 0.0058 (n=3)" in claim.detail
    assert "difference -0.5000 bits per byte [-0.5227, -0.4773]; margin 0.2500, p" in claim.detail


def test_the_table_has_the_unit_and_decimals_of_the_metric() -> None:
    table = formats.render(bits(), "table", width=200)
    assert "test bits per byte" in table
    assert "2.0100 ± 0.0058 (n=3)" in table
    assert "-0.5000 [-0.5227, -0.4773]" in table
    assert "1.250 ± 0.500" in table
    assert "Test bits per byte, lower is better: mean ± standard error over n finished seeds." in " ".join(
        table.split()
    )
    assert "in bits per byte, with its 95 % interval" in " ".join(table.split())


@pytest.mark.parametrize("metric", [R2, BITS])
@pytest.mark.parametrize("format", get_args(formats.Format))
def test_no_format_has_the_units_of_accuracy(metric: Metric, format: formats.Format) -> None:
    runs = runs_of(metric, "a", (-0.5, 0.25, 0.125)) + runs_of(metric, "b", (0.5, 0.75, 0.625))
    text = formats.render(build(metric, [*runs, make_run("lost", "b", 9, state="diverged")], CLAIM), format, width=200)
    for word in ("accuracy", "points", "per cent", "test item is"):
        assert word not in text
    assert metric.name in text or metric.name.replace("_", " ") in text


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
    report = build(metric, runs, test_items=20, data=data)
    assert sentence in formats.render(report, "md")
    assert report.without_spread == (("b",) if sentence.startswith("One label") else ("a", "b"))


def test_the_best_cell_of_a_grid_is_the_lowest_where_less_is_better() -> None:
    scores = {"free-1": 3.0, "stable-1": 2.0, "free-2": 2.00004, "stable-2": 2.5}
    runs = [run for rung, score in scores.items() for run in runs_of(BITS, rung, (score,))]
    rows = {form: tuple(f"{form}-{k}" for k in (1, 2, 3)) for form in ("free", "stable")}
    ladder = structs.replace(GRID, grid=Grid(down="form", across="ring", columns=("1", "2", "3"), rows=rows))
    [wide, tall] = formats.content_of(build_report(ladder, runs, metric=BITS)).above
    for table in (wide, tall):
        cells = [(column.cell(row), column.is_marked(row)) for row in table.rows for column in table.columns[1:]]
        assert sorted(text for text, marked in cells if marked) == ["2.0000 (n=1)"] * 2, "they look equal"


# Other settings


def lengths(metric: Metric = R2) -> LadderReport:
    """Scores at three other lengths, of which b has one, and that not for all seeds."""
    a = runs_of(metric, "a", (0.5, 0.75), **{"256": (0.25, 0.5), "1024": (-1.0, -1.5), "64": (0.5, float("nan"))})
    b = runs_of(metric, "b", (0.5, 0.75), **{"256": (0.5, 0.5)})
    return build(metric, [*a, *b])


def test_scores_on_further_tests_are_columns_of_every_format() -> None:
    report = lengths()
    assert [(score.test, score.n, score.mean, score.stderr) for score in report.rows[0].further_tests] == [
        ("256", 2, 0.375, 0.125),
        ("1024", 2, -1.25, 0.25),
        ("64", 1, 0.5, None),
    ]
    table = formats.render(report, "table", width=250)
    for text in ("r2 at 256", "r2 at 1024", "r2 at 64", "0.3750 ± 0.1250", "-1.2500 ± 0.2500", "0.5000 (n=1)"):
        assert text in table
    assert "loss" not in table
    for format in ("markdown", "latex"):
        text = formats.render(report, format, width=200)  # type: ignore[arg-type]
        assert "r2 at 1024" in text
        assert "0.3750" in text
    [row, _] = json.loads(formats.render(report, "json"))["rows"]
    assert row["further_tests"][0] == {"test": "256", "n": 2, "mean": 0.375, "stderr": 0.125}
    head, first, second = formats.render(report, "csv").splitlines()
    assert head.endswith(",label,mean@256,stderr@256,n@256,mean@1024,stderr@1024,n@1024,mean@64,stderr@64,n@64")
    assert first.endswith(",0.375,0.125,2,-1.25,0.25,2,0.5,,1")
    assert second.endswith(",0.5,0.0,2,,,,,,")


def test_scores_on_further_tests_are_on_the_page_and_in_the_table_of_all_tasks() -> None:
    page = formats.render(lengths(), "html", details={})
    assert "r2 at 256" in page
    ladder = Ladder(name="two", title="two", source="s", rungs=(make_rung("a"), make_rung("b")))
    text = formats.render(all_tasks.build(ladder, [lengths()]), "table", width=200)
    assert "at 256: 0.3750 ± 0.1250" in text
    assert "at 1024: -1.2500 ± 0.2500" in text


# Several tasks


def test_columns_of_all_tasks_have_metrics_of_their_own() -> None:
    ladder = Ladder(name="two", title="two", source="s", rungs=(make_rung("a"), make_rung("b")))
    accuracy = build(Accuracy(chance=0.5), runs_of(Accuracy(), "a", (0.5, 0.75)), task="sCIFAR")
    report = all_tasks.build(ladder, [bits(), accuracy])
    table = " ".join(formats.render(report, "table", width=200).split())
    assert "2.5100 ± 0.0058 (n=3)" in table
    assert "62.50 ± 12.50 (n=2)" in table
    assert "Test bits per byte, lower is better (sDigits); Test accuracy in per cent (sCIFAR): mean" in table
    found = json.loads(formats.render(report, "json"))
    assert found["metric"] == "test/bits_per_byte, test/accuracy"
    assert [column["score"]["higher_is_better"] for column in found["columns"]] == [False, True]
    lines = [line.split(",") for line in formats.render(report, "csv").splitlines()]
    place = lines[0].index("metric")
    assert [line[place] for line in lines[1:]] == ["test/bits_per_byte", "test/accuracy"] * 2


def test_the_page_names_the_metric_of_every_run() -> None:
    def detail(score: float) -> RunDetail:
        return RunDetail(seed=0, state="done", step=1, steps=1, score=score, attempts=1, settings={})

    page = formats.render(bits(), "html", details={"a0": detail(2.5)})
    assert '<th scope="col" class="right">test bits per byte</th>' in page
    assert '<td class="right">2.5000</td>' in page
    ladder = Ladder(name="two", title="two", source="s", rungs=(make_rung("a"), make_rung("b")))
    accuracy = build(Accuracy(chance=0.5), [make_run("c0", "a", 0, 0.5)], task="sCIFAR")
    page = formats.render(
        all_tasks.build(ladder, [bits(), accuracy]), "html", details={"a0": detail(2.5), "c0": detail(0.5)}
    )
    assert '<th scope="col" class="right">test score</th>' in page
    assert '<td class="right">2.5000 bits per byte</td>' in page
    assert '<td class="right">50.00 %</td>' in page


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
def runs(tasks: Path, tmp_path: Path) -> None:  # noqa: F811
    """A ledger with runs of both tasks."""
    for task, name, score in (("Wave", "r2", -0.5), ("Letters", "bits_per_byte", 1.5)):
        more = {f"val/{name}": score, "val/loss": 9.0}
        results.fill(tmp_path / "ledger.db", task, {"few": [score, score + 1]}, ladder="sizes", more=more)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert command(list(arguments)) == 0
    return capsys.readouterr().out


def cells(text: str) -> list[list[str]]:
    return [re.split(r"  +|\t", line.strip()) for line in text.splitlines() if line.strip()]


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("is_loaded", [True, False])
def test_runs_of_several_metrics_are_in_one_list(capsys: pytest.CaptureFixture[str], is_loaded: bool) -> None:
    if not is_loaded:
        forget()
    head, *lines = cells(said(capsys, "runs", "--sort", "seed"))
    assert head[7:9] == ["val score", "test score"]
    assert [line[7:9] for line in lines] == [
        ["1.5000 bits per byte", "1.5000 bits per byte"],
        ["-0.5000 r2", "-0.5000 r2"],
        ["1.5000 bits per byte", "2.5000 bits per byte"],
        ["-0.5000 r2", "0.5000 r2"],
    ]
    head, *lines = cells(said(capsys, "runs", "--where", "task=Wave and test/r2>0"))
    assert head[7:9] == ["val r2", "test r2"]
    assert [line[7:9] for line in lines] == [["-0.5000", "0.5000"]]


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("is_loaded", [True, False])
def test_status_has_the_score_of_the_metric(capsys: pytest.CaptureFixture[str], is_loaded: bool) -> None:
    if not is_loaded:
        forget()
    found = {one["task"]: one for one in json.loads(said(capsys, "status", "--json"))["ladders"]}
    assert {task: one["metric"] for task, one in found.items()} == {"Wave": "val/r2", "Letters": "val/bits_per_byte"}
    [rung] = found["Wave"]["rungs"]
    assert (rung["score"], rung["val/accuracy"]) == (-0.5, None)
    text = said(capsys, "status")
    assert "mean val r2" in text
    assert "mean val bits per byte" in text
    assert " -0.500 " in text


def test_status_of_accuracy_is_in_the_field_of_released_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    results.fill(tmp_path / "ledger.db", "sDigits", {"tanh-rnn": [0.5]}, more={"val/accuracy": 0.25})
    [ladder] = json.loads(said(capsys, "status", "--json"))["ladders"]
    assert (ladder["metric"], ladder["rungs"][0]["val/accuracy"], ladder["rungs"][0]["score"]) == (
        "val/accuracy",
        0.25,
        0.25,
    )


@pytest.mark.usefixtures("runs")
def test_show_draws_the_validation_score(capsys: pytest.CaptureFixture[str]) -> None:
    [run] = json.loads(said(capsys, "runs", "--json", "--where", "task=Letters and seed=0"))["runs"]
    assert "\nval/bits_per_byte  " in said(capsys, "show", run["id"])


@pytest.mark.usefixtures("runs")
def test_a_line_of_progress_has_the_score_with_its_metric(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        [ladder] = [one for one in ledger.ladders("sizes") if one.task == "Wave"]
        runs = ledger.runs(ladder.key)
        lines = progress.Lines().update(ladder.key, runs, lambda: progress.collect(ledger, ladder), {})
    assert lines[0].endswith(": done, val -0.5000 r2, test -0.5000 r2")


@pytest.mark.usefixtures("tasks")
def test_scores_of_known_metrics_can_be_named_before_a_run_has_them() -> None:
    listing.Choice("test/r2>0.5 or val/bits_per_byte<2", "-val/r2", None)
    with pytest.raises(UsageError, match="unknown name 'val/r3'"):
        listing.Choice("val/r3>0", None, None)


@pytest.mark.usefixtures("runs")
def test_report_and_plot_read_the_metric_of_the_task(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = json.loads(said(capsys, "report", "Letters", "--ladder", "sizes", "--json"))
    assert (found["metric"], found["rows"][0]["mean"], found["score"]["higher_is_better"]) == (
        "test/bits_per_byte",
        2.0,
        False,
    )
    found = json.loads(said(capsys, "report", "--all", "--ladder", "sizes", "--json"))
    assert [column["metric"] for column in found["columns"]] == ["test/r2", "test/bits_per_byte"]
    for kind in ("ladder", "curves"):
        said(capsys, "plot", "Wave", "--ladder", "sizes", "--kind", kind, "--out", f"{kind}.svg")
        assert (tmp_path / f"{kind}.svg").exists()


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

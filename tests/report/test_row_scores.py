"""Scores by slot, at other lengths, and the step at which a run leaves its plateau: computed, reported, claimed."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lrurun.config import planning
from lrurun.config.ladder import Claim, Ladder
from lrurun.data import tasks
from lrurun.data.metric import Accuracy, WorstSlot, named
from lrurun.errors import NotFoundError, UsageError
from lrurun.ledger.values import Run
from lrurun.report import formats
from lrurun.report.figures import drawing
from lrurun.report.tables.ladder_table import LadderReport
from tests.harness.reports import build as build_report
from tests.harness.reports import make_run, make_rung
from tests.training.test_outputs import TAGS, sums_of

SLOT = {"test/slot/1": 0.25, "test/slot/2": 0.5, "test/slot/10": 1.0}
METRIC = Accuracy(chance=0.1, escape=0.5)


def test_slot_k_has_the_kth_label_of_every_example() -> None:
    random = np.random.default_rng(3)
    outputs = random.normal(size=(10, 7, 3)).astype(np.float32)
    labels = random.integers(-1, 3, size=(10, 7)).astype(np.int32)
    labels[0] = -1  # nothing of it counts
    labels[1, 3:] = -1  # it has three slots at most
    right: dict[int, list[bool]] = {}
    for row, guess in zip(labels, outputs.argmax(-1), strict=True):
        for k, place in enumerate(np.flatnonzero(row >= 0)):
            right.setdefault(k + 1, []).append(bool(row[place] == guess[place]))
    sums = sums_of(TAGS, [WorstSlot()], outputs, labels)
    wanted = {f"slot/{k}": pytest.approx(np.mean(each)) for k, each in sorted(right.items())}
    assert WorstSlot().parts(sums) == wanted
    assert WorstSlot().value(sums) == pytest.approx(min(np.mean(each) for each in right.values()))


def rung(name: str, steps: Sequence[float], scores: Sequence[float] = (0.5, 0.6, 0.7), **more: Any) -> list[Run]:
    """Three seeds that left the plateau at these steps, with the scores of slots and of two longer tests."""
    return [
        make_run(
            f"{name}{seed}",
            name,
            seed,
            result={"test/accuracy": score, "escape_step": step, "test@9/accuracy": 0.9, "test@128/accuracy": score}
            | SLOT,
            step=1000,
            steps=1000,
            **more,
        )
        for seed, (step, score) in enumerate(zip(steps, scores, strict=True))
    ]


def build(runs: Sequence[Run], *claims: Claim) -> LadderReport:
    ladder = Ladder(name="mini", title="two rungs", source="s", rungs=(make_rung("a"), make_rung("b")), claims=claims)
    return build_report(ladder=ladder, runs=runs, metric=METRIC, metrics=(METRIC, WorstSlot()), task="Parity")


@pytest.fixture(scope="module")
def report() -> LadderReport:
    never = math.inf
    return build([*rung("a", (never, never, never)), *rung("b", (300, never, 500))])


def test_the_escape_is_the_median_of_the_seeds_that_left_the_plateau(report: LadderReport) -> None:
    assert [(row.escape_step, row.escaped) for row in report.rows] == [(None, 0), (400.0, 2)]
    table = formats.render(report, "table", width=250)
    assert "400 (2 of 3)" in table
    assert "never" in table
    assert "Escape: the step of the first validation score of 75.0 % or better" in table
    others = build([make_run("a0", "a", 0, 0.5), make_run("b0", "b", 0, 0.5)])
    assert [row.escaped for row in others.rows] == [None, None]
    assert "escape" not in formats.render(others, "table", width=250).lower()


def test_slots_are_a_curve_in_tables_and_numbers_elsewhere(report: LadderReport) -> None:
    assert [(one.slot, one.n, one.mean, one.stderr) for one in report.rows[0].slots] == [
        (1, 3, 0.25, 0.0),
        (2, 3, 0.5, 0.0),
        (10, 3, 1.0, 0.0),
    ]
    assert "25 ▃▅█ 100" in formats.render(report, "table", width=250)
    for format in ("markdown", "html"):
        assert "25 ▃▅█ 100" in formats.render(report, format, details={})  # type: ignore[arg-type]
    [row, _] = json.loads(formats.render(report, "json"))["rows"]
    assert (row["slots"][2], row["escape_step"], row["escaped"]) == (
        {"slot": 10, "n": 3, "mean": 1.0, "stderr": 0.0},
        None,
        0,
    )
    head, first, _ = formats.render(report, "csv").splitlines()
    assert head.endswith("mean@slot/1,stderr@slot/1,n@slot/1,mean@slot/2,stderr@slot/2,n@slot/2,"
                         "mean@slot/10,stderr@slot/10,n@slot/10")  # fmt: skip
    assert first.endswith(",0.25,0.0,3,0.5,0.0,3,1.0,0.0,3")


def test_figures_have_the_slots_and_the_lengths_on_their_axes(report: LadderReport) -> None:
    [panel] = drawing.slots(report).panels
    assert [curve.label for curve in panel.curves] == ["a (n=3)", "b (n=3)"]
    assert (panel.curves[0].x, panel.curves[0].y) == ((1, 2, 10), (25, 50, 100))
    [panel] = drawing.lengths(report, 64).panels
    np.testing.assert_allclose((panel.curves[0].x, panel.curves[0].y), [[9, 64, 128], [90, 60, 60]])
    assert (panel.x, panel.x_scale) == ("length", "log")
    error = 10 / 3**0.5
    band = (panel.curves[0].low[1], panel.curves[0].high[1])
    assert band == pytest.approx((60 - error, 60 + error)), "by the standard error"
    with pytest.raises(NotFoundError, match="its runs have no scores by slot"):
        drawing.slots(build([make_run("a0", "a", 0, 0.5)]))


def claim(metric: str, **more: Any) -> Claim:
    fields: dict[str, Any] = {"text": "t", "source": "s", "rung": "b", "than": "a", "metric": metric}
    return Claim(**(fields | more))


def test_a_claim_may_be_about_the_escape_or_about_a_longer_test() -> None:
    runs = [*rung("a", (900, math.inf, 1000), (0.1, 0.2, 0.1)), *rung("b", (300, 310, 290), (0.9, 0.91, 0.9))]
    found = build(runs, claim("escape_step"), claim("accuracy@longest"), claim("accuracy@9")).claims
    assert [one.verdict for one in found] == ["supported", "supported", "undecided"]
    # a seed that never escapes counts with its steps, 1000
    assert found[0].detail.startswith("escape step: provisional (3 seeds); b 300.0 ± 5.8 (n=3), a 966.7 ± 33.3 (n=3)")
    assert found[1].detail.startswith(
        "accuracy at longest: provisional (3 seeds); a learns in 1 of 3 seeds; b 90.33 "
    )  # of 9 and 128, the number and not the text
    assert found[2].detail.startswith("accuracy at 9: provisional (3 seeds); b 90.00 ")
    # a diverged run counts with the step of its escape, if it had one
    diverged = make_run("a3", "a", 3, state="diverged", steps=1000, result={"escape_step": math.inf})
    found = build([*runs, diverged], claim("escape_step")).claims
    assert "a 975.0 ± 25.0 (n=4" in found[0].detail


@pytest.mark.parametrize(
    ("task", "metric", "message"),
    [
        ("npDigits", "escape_step", "npDigits declares no plateau, found 'escape_step'"),
        ("MQAR", "accuracy@longest", "MQAR has no further tests, found 'accuracy@longest'"),
        ("MQAR", "f1", "MQAR has no metric 'f1'"),
    ],
)
def test_a_claim_needs_what_it_names(task: str, metric: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(
        'name = "two"\ntitle = "t"\nsource = "s"\n'
        '[[rung]]\nname = "a"\ntitle = "a"\nchange = { "model.recurrence.kind" = "diagonal" }\n'
        '[[rung]]\nname = "b"\ntitle = "b"\nchange = { "model.recurrence.normalize" = true }\n'
        f'[[claim]]\ntext = "c"\nsource = "s"\nrung = "b"\nthan = "a"\nmetric = "{metric}"\ntasks = ["{task}"]\n'
    )
    with pytest.raises(UsageError, match=message):
        planning.make(task, ladder=str(path), profile=None)
    # on other tasks a claim about the escape or a longer test is not judged
    assert not claim("escape_step", tasks=("MQAR",)).is_about("npDigits")
    assert claim("escape_step", tasks=("MQAR",)).is_about("MQAR")


def test_recall_tasks_declare_their_plateau_and_slots() -> None:
    for name, bound in {"SelectiveCopy": 0.5, "Copy": 0.5, "MQAR": 0.5, "InductionHeads": 0.5, "Parity": 0.75}.items():
        task = tasks.get(name)
        assert (task.metric.escape, named("escape_step", task.metrics) is not None) == (bound, True)
        slots = any(metric.name == "worst_slot" for metric in task.metrics)
        assert slots == (name in ("SelectiveCopy", "Copy", "MQAR"))

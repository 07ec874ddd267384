"""Metrics that a task plug-in computes from outputs and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, top_k_accuracy_score

from lrurun import plugins
from lrurun.data import TASKS
from lrurun.data.metric import Accuracy, Mean, Metric
from lrurun.data.task import Output
from lrurun.errors import UsageError
from lrurun.ledger.store import Ledger
from lrurun.training.objective import Objective, own_sum
from tests.docs.test_docs import ROOT, files
from tests.harness.machine import Machine
from tests.harness.plug_ins import MAJORITY, forget
from tests.training.test_outputs import TAGS, VALUES, spec, sums_of

RANDOM = np.random.default_rng(11)


class TopTwo(Mean, frozen=True, kw_only=True):
    name: str = "top_two"
    unit: str = "points"

    def each(self, outputs: Any, labels: Any) -> Any:
        return (jax.lax.top_k(outputs, 2)[1] == labels[..., None]).any(-1)


class Absolute(Mean, frozen=True, kw_only=True):
    name: str = "absolute"
    unit: str = "a"

    def each(self, outputs: Any, labels: Any) -> Any:
        return abs(outputs - labels).mean(-1)


class Sharpest(Metric, frozen=True, kw_only=True):
    """The largest logit of the evaluation: its sums are no sums, and have the names of another metric's."""

    name: str = "sharpest"
    unit: str = "logits"

    def measure(self, outputs: Any, labels: Any, weight: Any) -> Any:
        return {"total": (outputs.max(-1) * weight).max()}

    def value(self, sums: Any) -> float:
        return float(sums["total"].max())


def score(metric: Metric, sums: Any) -> float:
    prefix = own_sum(metric.name, "")
    return metric.value(sums | {name.removeprefix(prefix): one for name, one in sums.items() if prefix in name})


@pytest.mark.parametrize("output", [Output(), TAGS], ids=["sequence", "positions"])
def test_metrics_of_ones_own_leave_out_padding_and_positions_without_a_label(output: Output) -> None:
    shape = (10,) if output.at == "sequence" else (10, 12)
    outputs = RANDOM.normal(size=(*shape, 4)).astype(np.float32)
    labels = RANDOM.integers(0 if output.at == "sequence" else -1, 4, size=shape).astype(np.int32)
    outputs[-1] += 5  # the last batch is padded with the last example
    sums = sums_of(output, [Accuracy(), TopTwo(), Sharpest()], outputs, labels)
    real = labels >= 0
    wanted = top_k_accuracy_score(labels[real], outputs[real], k=2, labels=range(4))
    assert score(TopTwo(), sums) == pytest.approx(wanted, rel=1e-6)
    assert score(Sharpest(), sums) == pytest.approx(outputs.max(-1)[real].max(), rel=1e-6)


def test_a_metric_of_real_values_gets_no_nan() -> None:
    outputs = RANDOM.normal(size=(10, 12, 3)).astype(np.float32)
    labels = RANDOM.normal(size=outputs.shape).astype(np.float32)
    labels[2, 3:] = np.nan
    real = ~np.isnan(labels)
    wanted = mean_absolute_error(labels[real], outputs[real])
    assert score(Absolute(), sums_of(VALUES, [Absolute()], outputs, labels)) == pytest.approx(wanted, rel=1e-6)


def test_a_mean_needs_a_number_for_each_label() -> None:
    class Wide(TopTwo, frozen=True, kw_only=True):
        def each(self, outputs: Any, labels: Any) -> Any:
            return outputs

    outputs, labels = np.zeros((3, 4), np.float32), np.zeros(3, np.int32)
    with pytest.raises(ValueError, match=r"metric top_two: each returns \(3, 4\), expected \(3,\), a number per label"):
        Objective(spec(Output(), 4), [Wide()]).sums(outputs, labels, np.ones(3, np.float32))


DECLARED = "    metrics = (Accuracy(chance=0.5), Own())\n"
OWN = """
from lrurun.data.metric import Accuracy, Mean, Metric


class Own(Mean, frozen=True, kw_only=True):
    name: str = "own"
    unit: str = "points"

    def each(self, outputs, labels):
        return labels

"""


@pytest.mark.parametrize(
    ("old", "new", "error", "hint"),
    [
        ("def each", "def every", "metric 'own' (Own): defines no each", "def each(self, outputs, labels)"),
        ("Own(Mean", "Own(Metric", "metric 'own' (Own): defines no value", "def value(self, sums)"),
        ('"own"', '"accuracy"', "metric 'accuracy' (Accuracy): two metrics have this name", "another name"),
        ('"own"', '"loss"', "metric 'loss' (Own): expected a name of letters", 'name: str = "top_two"'),
        ('"own"', '"my own"', "metric 'my own' (Own): expected a name of letters", 'name: str = "top_two"'),
        ("Own())", "Own(sums=('corect',)))", "sums has an unknown name 'corect'", "did you mean 'correct'?"),
        (
            "(Accuracy(chance=0.5), Own())",
            "(Own(),)",
            "metrics begins with 'own', metric is 'accuracy'",
            "metric first",
        ),
        ("(Accuracy(chance=0.5), Own())", "('accuracy',)", "metrics are ['str']", "lrurun.data.metric.Metric"),
    ],
)
def test_metrics_that_cannot_be_computed_are_refused_when_the_file_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, error: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text = OWN + MAJORITY.replace("    classes = 2\n", f"    classes = 2\n{DECLARED}")
    Path("mine.py").write_text(text)
    plugins.load("mine.py")
    assert [metric.name for metric in TASKS["Majority"].metrics] == ["accuracy", "own"]
    forget()
    Path("mine.py").write_text(text.replace(old, new))
    with pytest.raises(UsageError) as caught:
        plugins.load("mine.py")
    assert error in caught.value.message
    assert hint in caught.value.hint
    forget()


@pytest.mark.slow
def test_the_example_measures_its_own_metrics(machine: Machine) -> None:
    """In results, curves, conditions, a claim, and with several seeds in one program."""
    found = files(ROOT / "docs" / "extending.md")
    for name in ("largest.py", "largest.toml", "oddness.toml", "states.toml"):
        (machine.folder / name).write_text(found[name])
    machine.env |= {"LRURUN_DATA": str(machine.folder / "data")}
    machine.run("ladder", "largest.toml", "--ladder", "states.toml", "--pack", "2")
    listed = machine.json("runs", "--where", "test/top_two>0.2")["runs"]
    assert len(listed) == 4
    for run in listed:
        result = run["metrics"]
        assert result["test/accuracy"] <= result["test/top_two"] <= 1
        assert 0 < result["test/calibration_error"] < 1
        curves = machine.json("show", run["id"])["metrics"]
        assert [step for step, _ in curves["val/top_two"]] == [step for step, _ in curves["val/accuracy"]]
    report = machine.json("report", "largest.toml", "--ladder", "states.toml")
    [claim] = report["claims"]
    assert claim["metric"] == "top_two"
    with Ledger.open(machine.folder / "ledger.db") as ledger:
        of = {run.id: (run.result or {})["test/top_two"] for run in ledger.runs()}
    assert claim["sides"][0]["mean"] == pytest.approx(np.mean([of[run] for run in report["rows"][1]["runs"]]))

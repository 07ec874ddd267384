"""Losses, labels and metrics, also those of plug-ins, against scikit-learn; and training on sampled data."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from msgspec import structs
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    f1_score,
    mean_absolute_error,
    r2_score,
    top_k_accuracy_score,
)

from lrurun import items as item_results
from lrurun import plugins, trained
from lrurun.config.optimizers.adamw import AdamW
from lrurun.config.recurrences.lru import LRUSettings
from lrurun.config.schema import Execution, ModelConfig, RunConfig, TrainConfig
from lrurun.data import on_device, task_data
from lrurun.data.metric import (
    R2,
    Accuracy,
    BalancedAccuracy,
    BatchR2,
    BitsPerByte,
    CrossEntropy,
    Exact,
    MacroF1,
    Mean,
    Metric,
    Nmse,
    Perplexity,
    Sums,
    WorstSlot,
)
from lrurun.data.task import Data, Output, Spec
from lrurun.data.tasks import TASKS
from lrurun.errors import LrurunError, UsageError
from lrurun.items import ItemResults
from lrurun.ledger.ledger import Ledger
from lrurun.nn.network import Model
from lrurun.training import evaluation
from lrurun.training.events import Ended, Measured, Reached
from lrurun.training.loop import train, train_together
from lrurun.training.objective import Objective, own_sum
from tests.harness import toy
from tests.harness.machine import Machine
from tests.harness.plug_ins import MAJORITY, forget

RANDOM = np.random.default_rng(7)
TAGS = Output(at="positions")
VALUES = Output(loss="squared-error", at="positions")


def spec(output: Output, classes: int = 3, length: int = 12, features: int = 1) -> Spec:
    return Spec(name="t", kind="features", features=features, classes=classes, length=length, output=output)


def test_a_class_that_is_impossible_leaves_a_finite_loss() -> None:
    """Of the label's class, with its gradient; infinite where the label itself is impossible."""
    objective = Objective(spec(Output()), [Accuracy()])
    outputs, labels = np.array([[0.5, -np.inf, 2.0], [1.0, 0.0, -np.inf]], np.float32), np.array([2, 0])
    mean = lambda outputs: objective.loss(outputs, labels)[0]  # noqa: E731
    loss, gradient = jax.value_and_grad(mean)(outputs)
    p = np.exp(outputs.astype(float)) / np.exp(outputs.astype(float)).sum(1, keepdims=True)
    assert loss == pytest.approx(-np.log(p[[0, 1], labels]).mean(), rel=1e-6)
    np.testing.assert_allclose(gradient, (p - np.eye(3)[labels]) / 2, atol=1e-6)
    assert objective.loss(jnp.asarray(outputs), np.array([1, 0]))[0] == np.inf


def sums_of(output: Output, metrics: list[Metric], outputs: np.ndarray, labels: np.ndarray, batch: int = 4) -> Any:
    """The sums of batches of 4, of which the last one is padded with an example that must not count."""
    objective = Objective(spec(output, outputs.shape[-1]), metrics)
    found = []
    for start in range(0, len(labels), batch):
        index = np.minimum(np.arange(start, start + batch), len(labels) - 1)
        weight = (np.arange(start, start + batch) < len(labels)).astype(np.float32)
        found.append(jax.jit(objective.sums)(outputs[index], labels[index], weight))
    return {name: np.asarray([one[name] for one in found], np.float64) for name in found[0]}


def test_metrics_of_tags_are_those_of_scikit_learn() -> None:
    outputs = RANDOM.normal(size=(10, 12, 3)).astype(np.float32)
    labels = RANDOM.integers(-1, 3, size=(10, 12)).astype(np.int32)
    labels[0] = -1  # nothing of it counts
    labels[1] = np.argmax(outputs[1], -1)
    metrics = [Accuracy(), MacroF1(), BalancedAccuracy(), Exact(), BitsPerByte(), Perplexity()]
    sums = sums_of(TAGS, metrics, outputs, labels)
    real = labels >= 0
    truth, guess = labels[real], np.argmax(outputs, -1)[real]
    exact = [
        np.array_equal(g[r], t[r]) for g, t, r in zip(np.argmax(outputs, -1), labels, real, strict=True) if r.any()
    ]
    logs = np.log(np.exp(outputs.astype(np.float64)).sum(-1))[real] - outputs[real][np.arange(len(truth)), truth]
    wanted = [
        accuracy_score(truth, guess),
        f1_score(truth, guess, average="macro"),
        balanced_accuracy_score(truth, guess),
        np.mean(exact),
        logs.mean() / np.log(2),
        np.exp(logs.mean()),
    ]
    np.testing.assert_allclose([metric.value(sums) for metric in metrics], wanted, rtol=1e-6)


def items_of(output: Output, metric: Metric, outputs: np.ndarray, labels: np.ndarray) -> Any:
    """The sums and weights of single examples, of which those of padding are left out."""
    objective = Objective(spec(output, outputs.shape[-1]), [metric])
    padded = [np.concatenate([array, array[-1:]]) for array in (outputs, labels)]
    weight = np.array([1.0] * len(labels) + [0.0], np.float32)
    found = jax.jit(objective.items)(*padded, weight)
    assert all(value[-1] == 0 for value in found.values()), "padding"
    sums = {name.removeprefix(own_sum(metric.name, "")): np.float64(value[:-1]) for name, value in found.items()}
    return metric.items(sums, labels)


class Distance(Mean, frozen=True, kw_only=True):
    """A metric of one's own, of tags."""

    name: str = "distance"
    unit: str = "classes"

    def each(self, outputs: Any, labels: Any) -> Any:
        return jnp.abs(jnp.argmax(outputs, -1) - labels).astype(jnp.float32)


TAG_METRICS = [Accuracy(), Exact(), BitsPerByte(), CrossEntropy(), Perplexity(), Distance()]


@pytest.mark.parametrize("metric", TAG_METRICS, ids=lambda metric: metric.name)
@pytest.mark.parametrize("output", [Output(), TAGS, Output(at="positions", labelled=12)], ids=["one", "all", "some"])
def test_the_mean_over_items_gives_the_score_of_classes(metric: Metric, output: Output) -> None:
    random = np.random.default_rng(3)
    places = () if output.at == "sequence" else (12,)
    outputs = random.normal(size=(10, *places, 3)).astype(np.float32)
    labels = random.integers(-1 if places else 0, 3, size=(10, *places)).astype(np.int32)
    labels[0] = np.argmax(outputs[0], -1)
    if places:
        labels[1] = -1
    sums, weights = items_of(output, metric, outputs, labels)
    assert sums.shape == weights.shape == (10,)
    known = sums_of(output, [metric], outputs, labels)
    score_of = metric.value({name.removeprefix(own_sum(metric.name, "")): value for name, value in known.items()})
    assert metric.of_mean(sums.sum() / weights.sum()) == pytest.approx(score_of, rel=1e-6)
    right = np.argmax(outputs, -1) == labels
    if metric.name == "accuracy":
        assert np.array_equal(sums, right.reshape(10, -1).sum(1))
        assert np.array_equal(weights, (labels >= 0).reshape(10, -1).sum(1))
    if metric.name == "exact":
        has_label = (labels >= 0).reshape(10, -1).any(1)
        assert np.array_equal(sums, has_label & (right | (labels < 0)).reshape(10, -1).all(1))
        assert np.array_equal(weights, has_label)


@pytest.mark.parametrize("metric", [R2(), Nmse()], ids=lambda metric: metric.name)
@pytest.mark.parametrize(("output", "size"), [(VALUES, 1), (VALUES, 3), (Output(loss="squared-error"), 2)])
def test_the_mean_over_items_gives_the_score_of_values(metric: Metric, output: Output, size: int) -> None:
    random = np.random.default_rng(4)
    places = () if output.at == "sequence" else (12,)
    labels = (random.normal(size=(10, *places, size)) + np.arange(10.0).reshape(10, *[1] * (len(places) + 1))).astype(
        "f4"
    )
    outputs = (labels + 0.01 * random.normal(size=labels.shape)).astype(np.float32)
    if places:
        labels[2, 3:] = np.nan
    sums, weights = items_of(output, metric, outputs, labels)
    wanted = metric.value(sums_of(output, [metric], outputs, labels))
    assert metric.of_mean(sums.sum() / weights.sum()) == pytest.approx(wanted, rel=1e-5)
    rows = [labels[k].astype(np.float64)[~np.isnan(labels[k])] for k in range(10)]
    mean = np.concatenate(rows).mean()
    assert weights == pytest.approx(np.array([np.square(row - mean).sum() / size for row in rows]), rel=1e-6)
    assert metric.of_mean(0.3) > metric.of_mean(0.2), "it increases with the mean, whichever direction is better"


@pytest.mark.parametrize(
    "metric", [MacroF1(), BalancedAccuracy(), WorstSlot(), BatchR2()], ids=lambda metric: metric.name
)
def test_scores_that_are_no_mean_over_items_have_none(metric: Metric) -> None:
    values = isinstance(metric, BatchR2)
    outputs = RANDOM.normal(size=(10, 12, 3)).astype(np.float32)
    labels = outputs if values else RANDOM.integers(0, 3, size=(10, 12)).astype(np.int32)
    assert items_of(VALUES if values else TAGS, metric, outputs, labels) is None


def test_the_metric_of_the_documentation_has_items() -> None:
    text = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    found: dict[str, Any] = {"Metric": Metric}
    exec(re.search(r"```python\n(class RootError.*?)```", text, re.DOTALL)[1], found)
    metric = found["RootError"]()
    outputs, labels = RANDOM.normal(size=(2, 10, 3)).astype(np.float32)
    output = Output(loss="squared-error")
    sums, weights = items_of(output, metric, outputs, labels)
    known = {
        name.removeprefix(own_sum("root_error", "")): value
        for name, value in sums_of(output, [metric], outputs, labels).items()
    }
    assert metric.of_mean(sums.sum() / weights.sum()) == pytest.approx(metric.value(known), rel=1e-6)
    assert metric.value(known) == pytest.approx(np.sqrt(np.square(outputs - labels).mean()), rel=1e-6)


class Halved(Accuracy, frozen=True, kw_only=True):
    """A metric whose items do not give its score."""

    name: str = "halved"

    def value(self, sums: Sums) -> float:
        return super().value(sums) / 2


class Loud(Accuracy, frozen=True, kw_only=True):
    name: str = "loud"

    def items(self, sums: Any, labels: Any) -> Any:
        raise KeyError("a mistake")


def test_a_run_ends_with_items_and_names_those_that_do_not_give_the_score() -> None:
    metrics = (Accuracy(), Halved(), Loud(), MacroF1(), BitsPerByte())
    made = structs.replace(toy.make_data(), metrics=metrics)
    further = {"long": made.validation}
    data = structs.replace(made, further_tests=further)
    [ended] = [event for event in train(toy.config(steps=9), toy.EXECUTION, data) if isinstance(event, Ended)]
    assert list(ended.items) == ["test/accuracy", "test/bits_per_byte", "test@long/accuracy", "test@long/bits_per_byte"]
    for name, found in ended.items.items():
        mean = found.mean / (np.log(2) if "bits" in name else 1)
        assert mean == pytest.approx(ended.result[name], rel=1e-6)
        assert found.test_set.weights is None
        assert found.test_set.count == (21 if "long" in name else 19)
    orders = {name: found.test_set.order for name, found in ended.items.items()}
    assert orders["test/accuracy"] == orders["test/bits_per_byte"] != orders["test@long/accuracy"]
    other = structs.replace(data, sha256="sha256:1")
    [again] = [event for event in train(toy.config(steps=9), toy.EXECUTION, other) if isinstance(event, Ended)]
    assert again.items["test/accuracy"].test_set.order != orders["test/accuracy"]
    score, half = ended.result["test/accuracy"], ended.result["test/halved"]
    assert ended.item_faults["test/halved"] == f"the mean over items gives {score:.6g}, the score is {half:.6g}"
    assert ended.item_faults["test@long/loud"] == "KeyError('a mistake')"
    tuned = [event for event in train(toy.config(steps=9), toy.EXECUTION, data, test=False) if isinstance(event, Ended)]
    assert [event.items for event in tuned] == [{}]


@pytest.mark.parametrize(
    ("recorded", "evaluated", "differs"),
    [
        ({"perplexity": np.inf, "f1": np.nan}, {"perplexity": np.inf, "f1": np.nan}, ""),
        ({"perplexity": np.inf}, {"perplexity": np.nan}, ""),
        ({"f1": np.nan}, {}, "test/f1 is 0.5 in the evaluation, nan in the run"),
        ({}, {"f1": np.nan}, "test/f1 is nan in the evaluation, 0.5 in the run"),
        ({}, {"accuracy": 0.52}, "test/accuracy is 0.52 in the evaluation, 0.5 in the run"),
        ({}, {"exact": 0.52}, ""),
        ({}, {"exact": 0.53}, "test/exact is 0.53 in the evaluation, 0.5 in the run"),
    ],
)
def test_an_evaluation_gives_the_recorded_scores_or_none_of_their_items(
    recorded: dict[str, float], evaluated: dict[str, float], differs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a step is allowed, which is one of 19 sequences for a share of sequences, and of 190 labels for one of
    labels; and what is no finite number cannot be compared."""
    metrics = (Accuracy(), Exact(), MacroF1(name="f1"), Perplexity())
    data = structs.replace(toy.make_data(), metrics=metrics)
    assert len(data.test.labels) == 19
    scores = {metric.name: 0.5 for metric in metrics}
    run = SimpleNamespace(
        execution=toy.EXECUTION,
        fingerprint="",
        result={f"test/{name}": score for name, score in (scores | recorded).items()},
    )
    items = {"accuracy": ItemResults(test_set=item_results.TestSet(count=19), sums=np.ones(19))}
    found = evaluation.Evaluation(scores | evaluated, {}, items, {}, labels=190)
    monkeypatch.setattr(trained, "evaluate", lambda *_: [found])
    monkeypatch.setattr(trained.checkpoints, "restore", lambda *_: SimpleNamespace(best={}))
    evaluate = partial(trained.items, run, toy.config(steps=9), Path(), data)
    if differs:
        with pytest.raises(trained.OtherScores, match=f"^{re.escape(differs)}$"):
            evaluate()
    else:
        assert evaluate() == {"test/accuracy": items["accuracy"]}


def test_runs_that_are_trained_together_have_items_of_their_own() -> None:
    data = toy.make_data()
    ended = {}
    for seeds in ((3, 4), (3,), (4,)):
        for event in train_together([toy.config(steps=9, seed=seed) for seed in seeds], toy.EXECUTION, data):
            if isinstance(event, Ended):
                ended[len(seeds), seeds[event.member]] = event.items["test/accuracy"].sums
    assert all(np.array_equal(ended[2, seed], ended[1, seed]) for seed in (3, 4))
    assert not np.array_equal(ended[1, 3], ended[1, 4])


@pytest.mark.parametrize("size", [1, 3])
def test_r2_is_that_of_scikit_learn(size: int) -> None:
    outputs = RANDOM.normal(size=(10, 12, size)).astype(np.float32)
    labels = (outputs + RANDOM.normal(size=outputs.shape) + 5).astype(np.float32)
    labels[2, 3:] = np.nan
    sums = sums_of(VALUES, [R2(), BatchR2()], outputs, labels)

    def reference(rows: slice) -> float:
        real = ~np.isnan(labels[rows])
        return float(r2_score(labels[rows][real].astype(np.float64), outputs[rows][real].astype(np.float64)))

    assert R2().value(sums) == pytest.approx(reference(slice(None)), rel=1e-5)
    batches = [reference(slice(start, start + 4)) for start in (0, 4, 8)]
    assert BatchR2().value(sums) == pytest.approx(np.mean(batches), rel=1e-5)


def test_a_balanced_loss_is_the_mean_over_the_classes() -> None:
    outputs = RANDOM.normal(size=(4, 12, 3)).astype(np.float32)
    labels = RANDOM.choice([-1, 0, 0, 0, 2], size=(4, 12)).astype(np.int32)
    loss, _, count = jax.jit(Objective(spec(Output(at="positions", balanced=True)), ()).loss)(outputs, labels)
    each = np.log(np.exp(outputs).sum(-1)) - np.take_along_axis(outputs, np.maximum(labels, 0)[..., None], -1)[..., 0]
    assert loss == pytest.approx(np.mean([each[labels == k].mean() for k in (0, 2)]), rel=1e-5)
    assert count == (labels >= 0).sum()


@pytest.mark.parametrize("length", [12, pytest.param(1024, marks=pytest.mark.slow)], ids=["whole", "chunks"])
def test_only_labelled_positions_are_decoded(length: int) -> None:
    """They are those of the last positions, in order, whether the recurrence processes chunks side by side or not."""
    config = ModelConfig[LRUSettings](
        recurrence=LRUSettings(parametrization="stable-exponential", r_min=0.5, r_max=0.9),
        depth=1,
        width=4,
        state=4,
        norm="layer",
    )
    sparse = spec(Output(at="positions", labelled=3), length=length)
    model = Model(config, sparse)
    inputs = RANDOM.normal(size=(2, length)).astype(np.float32)
    labels = np.full((2, 10), -1, np.int32)
    labels[0, [1, 5, 9]], labels[1, [0, 2]] = [2, 0, 1], [1, 1]

    @jax.jit
    def run(inputs, labels):
        objective = Objective(sparse, ())
        positions, chosen = objective.positions(labels, length), objective.labels_at(labels)
        apply = partial(model.apply, *model.init(jax.random.key(0)), inputs, train=False)
        return chosen, *(apply(positions=at)[0] for at in (positions, None, 10))

    chosen, some, everywhere, last = jax.device_get(run(inputs, labels))
    assert (everywhere.shape, some.shape) == ((2, length, 3), (2, 3, 3))
    np.testing.assert_array_equal(chosen[0], [2, 0, 1])
    np.testing.assert_array_equal(chosen[1], [1, 1, -1])
    np.testing.assert_allclose(some[0], everywhere[0, length - 10 + np.array([1, 5, 9])], atol=5e-6)
    np.testing.assert_allclose(some[1, :2], everywhere[1, length - 10 + np.array([0, 2])], atol=5e-6)
    np.testing.assert_allclose(last, everywhere[:, -10:], atol=5e-6)


class Delay(on_device.Sampled):
    """The input of 4 steps ago; also at 32 steps."""

    name, title, version, classes = "Delay", "delay", "1", 1
    options = on_device.SampledOptions
    metric = R2()

    def further_tests(self, options: Any) -> dict[str, Any]:
        return {"easy": options}

    def spec(self, options: Any, vocabulary: Any = ()) -> Spec:
        return spec(VALUES, 1, 16)

    def sample(self, key: Any, count: int, options: Any) -> Any:
        x = jax.random.normal(key, (count, 16, 1))
        return x, jnp.roll(x, 4, axis=1).at[:, :4].set(0.0), None


def run_config(seed: int = 0) -> RunConfig[LRUSettings]:
    return RunConfig(
        task="Delay",
        data={"version": "1"},
        model=ModelConfig(
            recurrence=LRUSettings(parametrization="stable-exponential", r_min=0.5, r_max=0.99),
            depth=1,
            width=16,
            state=32,
            norm="layer",
        ),
        optim=AdamW(lr=0.01, recurrent_factor=1.0, weight_decay=0.0),
        train=TrainConfig(steps=80, batch=16, eval_every=40),
        seed=seed,
    )


@pytest.fixture(scope="module")
def delay(tmp_path_factory: pytest.TempPathFactory) -> Data:
    task, options = Delay(), on_device.SampledOptions(validation=96, test=70)
    folder = tmp_path_factory.mktemp("data") / "Delay"
    task_data.prepare(task, options, folder)
    return task_data.load(task, options, folder)


def test_sampled_examples_are_new_at_every_step_and_resume_gives_the_same_bits(delay: Data) -> None:
    assert delay.sampler is not None
    assert (len(delay.validation.labels), len(delay.test.labels), len(delay.further_tests["easy"].labels)) == (
        96,
        70,
        70,
    )
    assert not np.array_equal(delay.test.inputs[:64], delay.validation.inputs[:64])
    sampled = jax.jit(lambda step: delay.sampler(on_device.training_key(0, step), 16)[0])
    first, second = (sampled(np.int32(step)) for step in (0, 1))
    assert not np.isin(np.asarray(second), np.asarray(first)).any()
    events = []
    for event in train(run_config(), Execution(), delay):
        events.append(event)
        if isinstance(event, Reached) and event.step == 60:
            snapshot = event.snapshot()
    assert isinstance(events[-1], Ended)
    result = events[-1].result
    assert {"val/r2", "test/r2", "test@easy/r2", "val/loss"} <= result.keys()
    assert "val/accuracy" not in result
    assert result["test/r2"] > 0.6
    assert not any("train/accuracy" in event.values for event in events if isinstance(event, Measured))
    resumed = list(train(run_config(), Execution(), delay, resume=snapshot))[-1]
    assert isinstance(resumed, Ended)
    jax.tree.map(np.testing.assert_array_equal, resumed.snapshot.live.params, events[-1].snapshot.live.params)
    assert resumed.result["test/r2"] == result["test/r2"]


@pytest.mark.parametrize(
    ("labels", "output", "message"),
    [
        (
            np.full((2, 4), 3),
            TAGS,
            r"test-labels\[0, 0\]: expected classes from 0 to 2, or -1 where there is no label, found 3",
        ),
        (np.full((2, 4, 3), [1, -np.inf, 0]), VALUES, r"test-labels\[0, 0, 1\]: expected finite numbers, or NaN where"),
        (np.array([[0, 1], [-1, -1]]), TAGS, "example 1 has no labelled position"),
        (np.zeros((2, 13), int), TAGS, r"expected the shape \(2, 12\), found \(2, 13\)"),
        (np.zeros((2, 4, 1)), TAGS, "expected whole numbers, found float64"),
        (np.zeros((2, 4, 2)), VALUES, r"expected the shape \(2, 4, 3\), found \(2, 4, 2\)"),
        (np.zeros((2, 4), int), VALUES, "expected real numbers, found int64"),
        (np.zeros((2, 4), int), Output(at="positions", labelled=3), "has 4 labelled positions, its task declares"),
    ],
)
def test_labels_that_do_not_fit_the_output_are_refused(labels: np.ndarray, output: Output, message: str) -> None:
    with pytest.raises(LrurunError, match=message):
        task_data.check(labels, "labels", spec(output), "test-labels", "")


# --- metrics of plug-ins -----------------------------------------------------------------------------------------


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
        jax.eval_shape(Objective(spec(Output(), 4), [Wide()]).sums, outputs, labels, np.ones(3, np.float32))


@pytest.mark.parametrize("name", ["half//1", "half/", "half/../1", "/half", "", "a half"])
def test_a_part_of_a_score_has_a_name_that_is_no_other_path(name: str) -> None:
    class Halves(TopTwo, frozen=True, kw_only=True):
        def parts(self, sums: Sums) -> dict[str, float]:
            return {"half/1": 0.5, name: 0.5}

    with pytest.raises(ValueError, match=rf"metric top_two: parts returns the name '{re.escape(name)}', expected"):
        evaluation._parts(Halves(), {})


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
    from tests.docs.test_docs import ROOT, files

    found = files(ROOT / "docs" / "extending.md")
    for name in ("largest.py", "largest.toml", "oddness.toml", "states.toml"):
        (machine.folder / name).write_text(found[name])
    machine.env |= {"LRURUN_DATA": str(machine.folder / "data")}
    short = ("--set", "train.steps=100", "--set", "train.eval_every=50")
    machine.run("ladder", "largest.toml", "--ladder", "states.toml", "--pack", "2", *short)
    listed = machine.json("runs", "--where", "test/top_two>0")["runs"]
    assert len(listed) == 4
    for run in listed:
        result = run["metrics"]
        assert result["test/accuracy"] <= result["test/top_two"] <= 1
        assert 0 < result["test/calibration_error"] < 1
        curves = machine.json("show", run["id"])["metrics"]
        assert [step for step, _ in curves["val/top_two"]] == [step for step, _ in curves["val/accuracy"]]
    report = machine.json("report", "largest.toml", "--ladder", "states.toml", *short)
    [claim] = report["claims"]
    assert claim["metric"] == "top_two"
    with Ledger.open(machine.folder / "ledger.db") as ledger:
        of = {run.id: (run.result or {})["test/top_two"] for run in ledger.runs()}
    assert claim["sides"][0]["mean"] == pytest.approx(np.mean([of[run] for run in report["rows"][1]["runs"]]))

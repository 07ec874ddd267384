"""Training as a pure function of configuration and seed: resume, dispatch lengths, divergence, evaluation."""

from __future__ import annotations

import math

import jax
import msgspec
import numpy as np
import pytest

from lrurun import checkpoint, optim, train
from lrurun.config import (
    DataConfig,
    DenseRecurrence,
    DiagonalRecurrence,
    Execution,
    ModelConfig,
    OptimConfig,
    RunConfig,
    TrainConfig,
    fingerprint,
)
from lrurun.errors import LrurunError
from lrurun.tasks.base import Data, Spec, Split

EXECUTION = Execution(steps_per_dispatch=5, scan_backend="sequential")


def config(**changes: object) -> RunConfig:
    fields = {
        "recurrence": DiagonalRecurrence(normalize=True, r_min=0.5, r_max=0.9),
        "norm": "batch",
        "dropout": 0.1,
        "lr": 0.01,
        "steps": 23,
        "eval_every": 9,
        "seed": 3,
        "batch": 8,
    } | changes
    return RunConfig(
        task="toy",
        data=DataConfig(version="1"),
        model=ModelConfig(
            recurrence=fields["recurrence"],  # type: ignore[arg-type]
            depth=1,
            width=6,
            state=5,
            norm=fields["norm"],  # type: ignore[arg-type]
            dropout=fields["dropout"],  # type: ignore[arg-type]
        ),
        optim=OptimConfig(lr=fields["lr"], recurrent_factor=0.5, weight_decay=0.05),  # type: ignore[arg-type]
        train=TrainConfig(
            steps=fields["steps"],  # type: ignore[arg-type]
            batch=fields["batch"],  # type: ignore[arg-type]
            eval_every=fields["eval_every"],  # type: ignore[arg-type]
            log_every=4,
        ),
        seed=fields["seed"],  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def data() -> Data:
    """Sequences of 0 and 1 of different lengths; the label says whether the ones are in the majority."""
    draw = np.random.RandomState(0)

    def split(n: int) -> Split:
        lengths = draw.randint(3, 13, n).astype(np.int32)
        inputs = draw.randint(0, 2, (n, 12)).astype(np.uint8)
        inputs[np.arange(12)[None] >= lengths[:, None]] = 0
        labels = (2 * inputs.sum(1) > lengths).astype(np.uint8)
        return Split(inputs=inputs, labels=labels, lengths=lengths)

    spec = Spec(name="toy", kind="features", features=1, classes=2, length=12)
    return Data(spec=spec, sha256="sha256:0", train=split(50), validation=split(21), test=split(19))


def history(events: list[train.Event]) -> dict[tuple[int, str], float]:
    """The rows that a ledger would keep, those about the machine left out."""
    return {
        (event.step, key): value
        for event in events
        if isinstance(event, train.Measured)
        for key, value in event.values.items()
        if not key.startswith("machine/")
    }


def leaves(snapshot: train.Snapshot) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves((snapshot.live, snapshot.best))]


def assert_same(a: train.Snapshot, b: train.Snapshot) -> None:
    assert (a.step, a.score, a.best_step) == (b.step, b.score, b.best_step)
    for left, right in zip(leaves(a), leaves(b), strict=True):
        assert left.tobytes() == right.tobytes()


@pytest.fixture(scope="module")
def undisturbed(data: Data) -> list[train.Event]:
    return list(train.train(config(), EXECUTION, data))


def test_events_tell_the_whole_run(undisturbed: list[train.Event], data: Data) -> None:
    assert isinstance(undisturbed[0], train.Began)
    assert undisturbed[0].step == 0
    ended = undisturbed[-1]
    assert isinstance(ended, train.Ended)
    assert (ended.state, ended.step) == ("done", 23)
    rows = history(undisturbed)
    assert [step for step, key in rows if key == "train/loss"] == [4, 8, 12, 16, 20, 23]
    assert [step for step, key in rows if key == "val/accuracy"] == [9, 18, 23]
    validation = {step: value for (step, key), value in rows.items() if key == "val/accuracy"}
    best = max(validation.values())
    assert ended.result["val/accuracy"] == best
    assert ended.result["best_step"] == min(step for step, value in validation.items() if value == best)
    # dispatches of 5 steps are cut at rows of the curve and at evaluations
    boundaries = [event.step for event in undisturbed if isinstance(event, train.Reached)]
    assert boundaries == [4, 5, 8, 9, 10, 12, 15, 16, 18, 20]


def test_curve_rows_are_means_over_their_steps(data: Data) -> None:
    """A curve logged every 4 steps is the mean, four by four, of one logged at each step."""
    coarse = history(list(train.train(config(dropout=0.0), EXECUTION, data)))
    table = msgspec.to_builtins(config(dropout=0.0))
    table["train"]["log_every"] = 1
    fine = history(list(train.train(msgspec.convert(table, RunConfig), EXECUTION, data)))
    for end in (4, 8, 12, 16, 20):
        mean = np.mean([fine[step, "train/loss"] for step in range(end - 3, end + 1)])
        assert coarse[end, "train/loss"] == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("stop", [4, 9, 15, 20])
def test_resume_is_bit_identical(stop: int, undisturbed: list[train.Event], data: Data, tmp_path) -> None:
    """Stopped at a boundary, saved through Orbax, restored by fresh programs: the same bits, curve for curve."""
    first: list[train.Event] = []
    name = fingerprint(config())
    for event in train.train(config(), EXECUTION, data):
        first.append(event)
        if isinstance(event, train.Reached) and event.step == stop:
            checkpoint.save(tmp_path / "saved", event.snapshot(), name)
            break
    train._KEPT.clear()
    compiled = train.programs(config(), EXECUTION, data.spec)
    restored = checkpoint.restore(tmp_path / "saved", compiled, name)
    assert restored.step == stop
    second = list(train.train(config(), EXECUTION, data, resume=restored))
    kept = {key: value for key, value in history(first).items() if key[0] <= stop}
    assert kept | history(second) == history(undisturbed)
    assert_same(second[-1].snapshot, undisturbed[-1].snapshot)  # type: ignore[union-attr]


def test_resume_from_the_last_step_is_the_same_end(undisturbed: list[train.Event], data: Data) -> None:
    """Killed between its last checkpoint and its last word, a run ends as it would have."""
    for steps in (20, 23):
        ended = list(train.train(config(steps=steps), EXECUTION, data))[-1]
        again = list(train.train(config(steps=steps), EXECUTION, data, resume=ended.snapshot))  # type: ignore[union-attr]
        assert_same(again[-1].snapshot, ended.snapshot)  # type: ignore[union-attr]
        test = {key: value for key, value in ended.result.items() if not key.startswith("machine/")}  # type: ignore[union-attr]
        assert again[-1].result == test  # type: ignore[union-attr]


@pytest.mark.parametrize("chunk", [1, 7, 40])
def test_steps_per_dispatch_change_no_bit(chunk: int, undisturbed: list[train.Event], data: Data) -> None:
    other = Execution(steps_per_dispatch=chunk, scan_backend="sequential")
    events = list(train.train(config(), other, data))
    assert history(events) == history(undisturbed)
    assert_same(events[-1].snapshot, undisturbed[-1].snapshot)  # type: ignore[union-attr]


def test_seeds_and_rates_share_one_program(data: Data) -> None:
    train._KEPT.clear()
    results = [
        list(train.train(config(seed=s, lr=lr), EXECUTION, data))[-1] for s, lr in ((0, 0.01), (1, 0.01), (0, 0.02))
    ]
    assert len(train._KEPT) == 1
    compiled = next(iter(train._KEPT.values()))
    assert compiled.dispatch._cache_size() == 1
    assert compiled.evaluate._cache_size() == 1
    losses = [event.result["val/loss"] for event in results]  # type: ignore[union-attr]
    assert len(set(losses)) == 3


def test_a_worse_model_later_does_not_replace_the_best(data: Data) -> None:
    """The parameters tested are those of the best validation score, not the last ones."""
    events = list(train.train(config(lr=0.5, steps=60, eval_every=2), EXECUTION, data))
    ended = events[-1]
    assert isinstance(ended, train.Ended)
    assert ended.snapshot.best_step < 60
    compiled = train.programs(config(lr=0.5, steps=60, eval_every=2), EXECUTION, data.spec)
    again = train._evaluate(compiled, jax.tree.map(np.asarray, ended.snapshot.best), data.test, 8)
    assert ended.result["test/accuracy"] == again["accuracy"]
    last = train._evaluate(compiled, train.Best(ended.snapshot.live.params, ended.snapshot.live.stats), data.test, 8)
    assert last["loss"] != again["loss"]


def test_divergence_is_a_result_at_its_step(data: Data) -> None:
    """|A|^12 overflows when a dense linear recurrence is pushed far enough; the first bad step is found exactly."""
    hot = config(recurrence=DenseRecurrence(activation="identity"), lr=10.0, steps=400, eval_every=400, norm="layer")
    at = []
    for chunk in (1, 16):
        events = list(train.train(hot, Execution(steps_per_dispatch=chunk), data))
        ended = events[-1]
        assert isinstance(ended, train.Ended)
        assert ended.state == "diverged"
        assert "test/accuracy" not in ended.result
        assert math.isnan(events[-2].values["train/loss"])  # type: ignore[union-attr]
        at.append(ended.step)
        # killed between its last checkpoint and its last word, it is still diverged
        again = list(train.train(hot, Execution(steps_per_dispatch=chunk), data, resume=ended.snapshot))[-1]
        assert (again.state, again.step) == ("diverged", ended.step)  # type: ignore[union-attr]
    assert at[0] == at[1] > 1


def test_tuning_never_sees_test(data: Data) -> None:
    events = list(train.train(config(), EXECUTION, data, test=False))
    assert not any("test/" in key for _, key in history(events))
    assert not any(key.startswith("test/") for key in events[-1].result)  # type: ignore[union-attr]


def test_evaluation_counts_each_example_once(data: Data) -> None:
    """Batches of 8 over 21 examples, one by one, and all at once give the same mean."""
    run = config()
    compiled = train.programs(run, EXECUTION, data.spec)
    live = compiled.init(np.uint32(0))
    best = train.Best(live.params, live.stats)
    values = [train._evaluate(compiled, best, data.validation, batch) for batch in (1, 8, 21)]
    model = compiled.model
    split = data.validation
    logits, _ = model.apply(live.params, live.stats, split.inputs, split.lengths, train=False)
    logits = np.asarray(logits, np.float64)
    labels = split.labels.astype(int)
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    expected = {"loss": -log_p[np.arange(21), labels].mean(), "accuracy": (logits.argmax(1) == labels).mean()}
    for value in values:
        assert value["accuracy"] == pytest.approx(expected["accuracy"], abs=1e-12)
        assert value["loss"] == pytest.approx(expected["loss"], rel=1e-5)


def test_batches_visit_every_example_once_an_epoch() -> None:
    batches = train.Batches(seed=5, batch=7, examples=23)
    stream = np.concatenate([batches(step) for step in range(23)])
    for epoch in range(7):
        order = np.random.RandomState([5, epoch]).permutation(23)
        np.testing.assert_array_equal(stream[23 * epoch : 23 * (epoch + 1)], order)
    # random access: any step, in any order, from a new object
    np.testing.assert_array_equal(train.Batches(5, 7, 23)(17), batches(17))
    assert (train.Batches(6, 7, 23)(0) != batches(0)).any()


def test_a_batch_larger_than_the_data_spans_epochs() -> None:
    index = train.Batches(seed=0, batch=50, examples=23)(0)
    assert set(np.bincount(index, minlength=23)) == {2, 3}


def test_training_learns(data: Data) -> None:
    """Majority of ones, from 50 examples: well above the share of the larger class."""
    events = list(train.train(config(steps=400, eval_every=100, dropout=0.0), EXECUTION, data))
    share = max(np.mean(data.validation.labels), 1 - np.mean(data.validation.labels))
    assert events[-1].result["val/accuracy"] > share + 0.15  # type: ignore[union-attr]


def test_checkpoint_of_another_run_is_refused(data: Data, tmp_path) -> None:
    ended = list(train.train(config(), EXECUTION, data))[-1]
    checkpoint.save(tmp_path / "saved", ended.snapshot, fingerprint(config()))  # type: ignore[union-attr]
    compiled = train.programs(config(), EXECUTION, data.spec)
    with pytest.raises(LrurunError, match="another run or format"):
        checkpoint.restore(tmp_path / "saved", compiled, fingerprint(config(seed=4)))


def test_digest_sees_every_byte_and_name(data: Data, tmp_path) -> None:
    ended = list(train.train(config(), EXECUTION, data))[-1]
    size, digest = checkpoint.save(tmp_path / "saved", ended.snapshot, "x")  # type: ignore[union-attr]
    files = [path for path in (tmp_path / "saved").rglob("*") if path.is_file()]
    assert size == sum(path.stat().st_size for path in files)
    for path in files:
        content = path.read_bytes()
        if content:
            path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
            assert checkpoint.digest(tmp_path / "saved")[1] != digest
            path.write_bytes(content)
    assert checkpoint.digest(tmp_path / "saved") == (size, digest)
    files[0].rename(files[0].with_name("elsewhere"))
    assert checkpoint.digest(tmp_path / "saved")[1] != digest


def test_moments_follow_the_schedule(data: Data) -> None:
    """Two steps of the whole program equal two steps by hand: gradient, AdamW, rate of each step."""
    run = config(dropout=0.0, steps=2, eval_every=2)
    compiled = train.programs(run, EXECUTION, data.spec)
    live = compiled.init(np.uint32(run.seed))
    params, stats, moments = live.params, live.stats, live.moments
    model, groups = compiled.model, compiled.model.groups(live.params)
    rates = optim.rates(run.optim, 2)
    batches = train.Batches(run.seed, 8, 50)

    def loss(params, stats, index):
        split = data.train
        logits, stats = model.apply(params, stats, split.inputs[index], split.lengths[index], train=True, key=None)
        log_p = jax.nn.log_softmax(logits)
        return -log_p[np.arange(8), split.labels[index].astype(int)].mean(), stats

    for step in range(2):
        (_, stats), grads = jax.value_and_grad(loss, has_aux=True)(params, stats, batches(step))
        params, moments = optim.update(run.optim, groups, grads, moments, params, rates[step])
    ended = list(train.train(run, EXECUTION, data))[-1]
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(ended.snapshot.live.params), strict=True):  # type: ignore[union-attr]
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-6)

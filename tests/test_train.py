"""Training as a pure function of configuration and seed: resume, dispatch lengths, feeds, divergence, evaluation."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import jax
import msgspec
import numpy as np
import pytest

from lrurun import checkpoint, optim, train
from lrurun.config import (
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
from lrurun.strict import convert
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
        data={"version": "1"},
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
    fine = history(list(train.train(convert(table, RunConfig, "a test"), EXECUTION, data)))
    for end in (4, 8, 12, 16, 20):
        mean = np.mean([fine[step, "train/loss"] for step in range(end - 3, end + 1)])
        assert coarse[end, "train/loss"] == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize(
    ("stop", "slow"),
    [
        pytest.param(4, math.inf, marks=pytest.mark.slow),
        (9, -1.0),
        pytest.param(15, math.inf, marks=pytest.mark.slow),
        pytest.param(20, math.inf, marks=pytest.mark.slow),
        (20, -1.0),
    ],
)
def test_resume_is_bit_identical(
    stop: int, slow: float, undisturbed: list[train.Event], data: Data, tmp_path, monkeypatch
) -> None:
    """Stopped at a boundary, saved through Orbax, restored by fresh programs: the same bits, curve for curve.

    Whether the host waits for each dispatch, or reads its row while the next one runs.
    """
    monkeypatch.setattr(train, "SLOW_SECONDS", slow)
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
    assert ((20, "train/loss") in history(first)) == (stop == 20 and slow < 0)
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


@pytest.mark.parametrize(
    "chunk", [pytest.param(1, marks=pytest.mark.slow), 7, pytest.param(40, marks=pytest.mark.slow)]
)
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
    again = train._evaluate(compiled, jax.tree.map(np.asarray, ended.snapshot.best), data.test, 8)[0]
    assert ended.result["test/accuracy"] == again["accuracy"]
    last = train._evaluate(compiled, train.Best(ended.snapshot.live.params, ended.snapshot.live.stats), data.test, 8)[0]
    assert last["loss"] != again["loss"]


def test_divergence_is_a_result_at_its_step(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """|A|^12 overflows when a dense linear recurrence is pushed far enough; the first bad step is found exactly.

    Its last snapshot is the same whether or not the next dispatch was already under way.
    """
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
        with monkeypatch.context() as patch:
            patch.setattr(train, "SLOW_SECONDS", -1.0)
            waited = list(train.train(hot, Execution(steps_per_dispatch=chunk), data))[-1]
        assert_same(waited.snapshot, ended.snapshot)  # type: ignore[union-attr]
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
    values = [train._evaluate(compiled, best, data.validation, batch)[0] for batch in (1, 8, 21)]
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


STREAM = Execution(steps_per_dispatch=5, scan_backend="sequential", feed="stream")
DEVICE = Execution(steps_per_dispatch=5, scan_backend="sequential", feed="device")
RUNS = {
    "features": config(),
    "tokens": config(dropout=0.0),
    "pairs": config(recurrence=DenseRecurrence(), norm="layer", dropout=0.0),
}


def task(kind: str) -> Data:
    """Noise with labels: 47 examples to train on, so that batches cross from epoch to epoch."""
    draw = np.random.RandomState(1)
    tall, classes = (7, 3) if kind != "features" else (3, 3)
    stored = {"features": np.int64, "tokens": np.uint8, "pairs": np.int16}[kind]
    shape = {"features": (12, 3), "tokens": (12,), "pairs": (2, 12)}[kind]

    def split(n: int) -> Split:
        high = 1000 if kind == "features" else tall
        return Split(
            inputs=draw.randint(0, high, (n, *shape)).astype(np.int16 if kind == "features" else np.uint8),
            labels=draw.randint(0, classes, n).astype(stored),
            lengths=None if kind == "features" else draw.randint(3, 13, (n, *shape[:-1])).astype(np.int16),
        )

    spec = Spec(
        name=kind,
        kind="features" if kind == "features" else "tokens",
        features=tall,
        classes=classes,
        length=12,
        scale=0.001,
        mean=(0.4, 0.5, 0.6) if kind == "features" else (),
        std=(0.3, 0.2, 0.1) if kind == "features" else (),
        pair=kind == "pairs",
    )
    return Data(spec=spec, sha256="sha256:0", train=split(47), validation=split(21), test=split(19))


def outcome(events: list[train.Event]) -> dict[str, float]:
    ended = events[-1]
    assert isinstance(ended, train.Ended)
    return {key: value for key, value in ended.result.items() if not key.startswith("machine/")}


@pytest.mark.parametrize("kind", ["features", "tokens", "pairs"])
def test_both_feeds_give_the_same_bits_and_take_over_from_each_other(kind: str) -> None:
    run, data = RUNS[kind], task(kind)
    events: dict[str, list[train.Event]] = {}
    taken: dict[tuple[str, int], train.Snapshot] = {}
    for feed in (DEVICE, STREAM):
        for event in train.train(run, feed, data):
            events.setdefault(feed.feed, []).append(event)
            if isinstance(event, train.Reached) and event.step in (5, 18):
                taken[feed.feed, event.step] = event.snapshot()
    whole = events["device"]
    assert history(events["stream"]) == history(whole)
    assert outcome(events["stream"]) == outcome(whole)
    assert_same(events["stream"][-1].snapshot, whole[-1].snapshot)  # type: ignore[union-attr]
    for begun, ended, step in (("stream", STREAM, 5), ("device", STREAM, 18), ("stream", DEVICE, 18)):
        rest = list(train.train(run, ended, data, resume=taken[begun, step]))
        assert history(rest).items() <= history(whole).items()
        assert outcome(rest) == outcome(whole)
        assert_same(rest[-1].snapshot, whole[-1].snapshot)  # type: ignore[union-attr]


@pytest.mark.parametrize("start", [0, 9, 23])
def test_streamed_blocks_hold_the_batches_of_their_steps(start: int) -> None:
    """Example i holds the number i, so that blocks say what was drawn; also where training goes on from a step."""
    split = Split(
        inputs=np.arange(47, dtype=np.int16)[:, None], labels=np.arange(47), lengths=np.arange(47, dtype=np.int16)
    )
    plan = train.dispatches(config().train, 5, start)
    drawn = []
    seeds = (3, 6)
    for block in train._streamed(split, [train.Batches(seed, 8, 47) for seed in seeds], plan, 5, 4):
        inputs, labels, lengths = block.split
        assert (inputs.shape, inputs.dtype, labels.dtype, lengths.dtype) == ((64, 1), np.int16, np.int32, np.int32)
        assert block.places.shape == (2, 5, 8)
        assert 0 <= block.places.min() <= block.places.max() < 64
        for k in range(block.n):
            for run, seed in enumerate(seeds):
                examples = train.Batches(seed, 8, 47)(block.step + k)
                for array in (inputs[:, 0], labels, lengths):
                    np.testing.assert_array_equal(array[block.places[run, k]], examples)
            drawn.append(block.step + k)
    assert drawn == list(range(start, 23))


def test_dispatches_end_wherever_something_is_due() -> None:
    for steps, log_every, eval_every, chunk in ((23, 4, 9, 5), (23, 10, 23, 25), (1, 10, 7, 3), (24, 4, 8, 1)):
        schedule = TrainConfig(steps=steps, batch=8, eval_every=eval_every, log_every=log_every)
        whole = train.dispatches(schedule, chunk, 0).tolist()
        for start in (0, *(step + n for step, n in whole)):
            wanted, step = [[start, 0]], start
            while step < steps:
                n = min(every - step % every for every in (chunk, log_every, eval_every))
                wanted.append([step, min(n, steps - step)])
                step += n
            assert train.dispatches(schedule, chunk, start).tolist() == wanted
            assert max(n for _, n in wanted) <= train._longest(schedule, chunk)


def test_auto_goes_by_the_size_of_the_training_data(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 50 * 12 + 50 + 4 * 50
    monkeypatch.setattr(train, "RESIDENT_ACCELERATOR", size - 1)
    for room, streamed in ((size, False), (size - 1, True)):
        monkeypatch.setattr(train, "RESIDENT_CPU", room)
        assert train.streams(Execution(), data.train) is streamed
        assert train.streams(Execution(feed="stream"), data.train)
        assert not train.streams(Execution(feed="device"), data.train)
    monkeypatch.setattr(train, "RESIDENT_CPU", size)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert train.streams(Execution(), data.train)


class Broken:
    """Inputs on a disk that fails at the fourth batch."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.dtype, self.shape = array, array.dtype, array.shape
        self.error = OSError(5, "Input/output error")
        self.left = 3

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        self.left -= 1
        if self.left < 0:
            raise self.error
        return self.array[index]


def begun(data: Data) -> Iterator[train.Event]:
    """A streamed run that has reached its first boundary."""
    events = train.train(RUNS["tokens"], STREAM, data)
    while not isinstance(next(events), train.Reached):
        pass
    return events


def to_the_end(data: Data) -> None:
    before = set(threading.enumerate())
    for event in begun(data):
        if isinstance(event, train.Ended):
            assert set(threading.enumerate()) <= before  # while the last checkpoint is being saved


def closed(data: Data) -> None:
    begun(data).close()  # type: ignore[attr-defined]


def dropped(data: Data) -> None:
    begun(data)


def interrupted(data: Data) -> None:
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt) as caught:
        begun(data).throw(KeyboardInterrupt())  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before, caught  # whose traceback still holds the run


def never_used(data: Data) -> None:
    train.train(RUNS["tokens"], STREAM, data).close()  # type: ignore[attr-defined]


def diverged(data: Data) -> None:
    snapshot = list(begun(data))[-1].snapshot  # type: ignore[union-attr]
    nan = jax.tree.map(lambda x: np.full_like(x, np.nan), snapshot.live.params)
    live = snapshot.live._replace(step=np.int32(5), params=nan)
    broken = msgspec.structs.replace(snapshot, step=5, live=live)
    ended = list(train.train(RUNS["tokens"], STREAM, data, resume=broken))[-1]
    assert (ended.state, ended.step) == ("diverged", 6)  # type: ignore[union-attr]


def failed(data: Data) -> None:
    inputs = Broken(data.train.inputs)
    split = msgspec.structs.replace(data.train, inputs=inputs)
    with pytest.raises(OSError, match="Input/output error") as caught:
        list(train.train(RUNS["tokens"], STREAM, msgspec.structs.replace(data, train=split)))
    assert caught.value is inputs.error


@pytest.mark.parametrize("end", [to_the_end, closed, dropped, interrupted, never_used, diverged, failed])
def test_a_stream_leaves_no_thread(end: Callable[[Data], None]) -> None:
    before = set(threading.enumerate())
    end(task("tokens"))  # whose programs are compiled already
    assert set(threading.enumerate()) <= before
    gc.collect()  # what an iterator has to say at its end would be an error here


LARGE = """
import sys, threading, time
from types import SimpleNamespace
import numpy as np, psutil
from lrurun import train
from lrurun.config import Execution
from lrurun.tasks.base import Data, Spec, Split
from tests.test_train import RUNS

path = sys.argv[1]
array = np.lib.format.open_memmap(path, "w+", np.uint8, (150_000, 10, 1000))
array[[0, 7, 149_999]] = 3
array.flush()
del array
large = Split(inputs=np.load(path, mmap_mode="r"), labels=np.zeros(150_000, np.int64))
small = Split(inputs=large.inputs[:50], labels=large.labels[:50])
spec = Spec(name="large", kind="features", features=1000, classes=2, length=10)
peak, over = 0, False

def private():
    memory = psutil.Process().memory_info()
    return memory.rss - memory.shared  # without the pages of mapped files

def watch():
    global peak
    while not over:
        peak = max(peak, private())
        time.sleep(0.01)

list(train._resident(small, [train.Batches(0, 8, 50)], train.dispatches(RUNS["pairs"].train, 5, 0), 5, 4))
assert "grain" not in sys.modules
before = private()
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
data = Data(spec=spec, sha256="sha256:0", train=large, validation=small, test=small)
ended = list(train.train(RUNS["pairs"], Execution(), data))[-1]
assert (ended.state, ended.step) == ("done", 23)
assert "grain" in sys.modules
train._evaluate(SimpleNamespace(evaluate=lambda best, batch, weight: np.zeros(2)), None, large, 500)
over = True
watcher.join()
print(large.inputs.nbytes, before, peak)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="private memory is read as Linux counts it")
def test_a_mapped_file_is_never_in_memory_whole(tmp_path) -> None:
    """1.5 GB, of which three examples are written: they stream by their size, and evaluation reads them in batches."""
    command = [sys.executable, "-W", "error", "-c", LARGE, str(tmp_path / "large.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    size, before, peak = map(int, done.stdout.split())
    assert size == 1_500_000_000
    assert peak - before < size / 4


def by_member(events: list[train.Event], members: int) -> list[list[train.Event]]:
    return [[event for event in events if event.member == member] for member in range(members)]


def assert_near(packed: list[train.Event], alone: list[train.Event]) -> None:
    """The same events, and numbers that differ by no more than float32 sums in another order."""
    # a row comes before or after the boundary that it belongs to, as the clock has it
    kinds = [sorted((event.step, type(event).__name__) for event in events) for events in (packed, alone)]
    assert kinds[0] == kinds[1]
    one, two = history(packed), history(alone)
    assert one.keys() == two.keys()
    for key, value in one.items():
        # accuracies move by whole examples where two logits are as good as equal
        assert value == pytest.approx(two[key], rel=1e-3, abs=1e-4 if "loss" in key[1] else 0.05), key
    (*_, ended), (*_, last) = packed, alone
    assert isinstance(ended, train.Ended)
    assert isinstance(last, train.Ended)
    for left, right in zip(leaves(ended.snapshot), leaves(last.snapshot), strict=True):
        np.testing.assert_allclose(left, right, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("feed", ["device", pytest.param("stream", marks=pytest.mark.slow)])
def test_runs_trained_together_are_those_trained_alone(feed: str, data: Data) -> None:
    execution = msgspec.structs.replace(EXECUTION, feed=feed)
    configs = [config(seed=seed) for seed in (0, 1, 4)]
    together = by_member(list(train.train_together(configs, execution, data)), 3)
    for packed, run in zip(together, configs, strict=True):
        assert_near(packed, list(train.train(run, execution, data)))
    ends = [leaves(events[-1].snapshot) for events in together]  # type: ignore[union-attr]
    assert not np.allclose(ends[0][1], ends[1][1])  # and not the same run thrice


@pytest.mark.slow
def test_a_run_may_leave_those_it_was_trained_with(data: Data) -> None:
    """Stopped together, it goes on alone; and those that were stopped alone go on together."""
    configs = [config(seed=seed) for seed in (0, 1)]
    whole = [list(train.train(run, EXECUTION, data)) for run in configs]

    def stopped(events: Iterator[train.Event], members: int) -> list[train.Snapshot]:
        found = []
        for event in events:
            if isinstance(event, train.Reached) and event.step == 9:
                found.append(event.snapshot())
                if len(found) == members:
                    break
        return found

    packed = stopped(train.train_together(configs, EXECUTION, data), 2)
    second = list(train.train(configs[1], EXECUTION, data, resume=packed[1]))
    np.testing.assert_allclose(second[-1].result["val/loss"], whole[1][-1].result["val/loss"], rtol=1e-3)  # type: ignore[union-attr]
    alone = [stopped(train.train(run, EXECUTION, data), 1)[0] for run in configs]
    events = by_member(list(train.train_together(configs, EXECUTION, data, resume=alone)), 2)
    for packed_events, of_run in zip(events, whole, strict=True):
        after = [e for e in of_run if e.step > 9 or isinstance(e, train.Ended)]
        assert_near([e for e in packed_events if e.step > 9 or isinstance(e, train.Ended)], after)


def test_one_that_diverges_leaves_the_others_alone(data: Data) -> None:
    configs = [config(seed=seed) for seed in (0, 1)]
    starts = [next(e for e in train.train(run, EXECUTION, data) if isinstance(e, train.Reached)) for run in configs]
    good, bad = (start.snapshot() for start in starts)
    broken = jax.tree.map(lambda leaf: leaf * np.nan, bad.live.params)
    bad = msgspec.structs.replace(bad, live=bad.live._replace(params=broken))
    one, two = by_member(list(train.train_together(configs, EXECUTION, data, resume=[good, bad])), 2)
    assert_near(one, list(train.train(configs[0], EXECUTION, data, resume=good)))
    *_, nan, ended = two
    assert isinstance(ended, train.Ended)
    assert (ended.state, ended.step) == ("diverged", good.step + 1)
    assert isinstance(nan, train.Measured)
    assert nan.step == good.step + 1
    assert math.isnan(nan.values["train/loss"])


def test_only_runs_of_one_program_are_trained_together(data: Data) -> None:
    with pytest.raises(ValueError, match="differ in seed and rates alone"):
        next(iter(train.train_together([config(), config(dropout=0.5)], EXECUTION, data)))

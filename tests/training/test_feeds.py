"""Batches on their way to training: their order, from the device or as a stream, and threads at the end."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import jax
import msgspec
import numpy as np
import pytest

from lrurun.config.recurrences.rnn import RNNSettings
from lrurun.config.schema import Execution, TrainConfig
from lrurun.data.task import Data, Spec, Split
from lrurun.training import feed
from lrurun.training.events import Ended, Event, Reached, Snapshot
from lrurun.training.loop import train
from tests.harness.toy import assert_same, config, data, history

__all__ = ["data"]  # a fixture

STREAM = Execution(steps_per_dispatch=5, scan_backend="sequential", feed="stream")
DEVICE = Execution(steps_per_dispatch=5, scan_backend="sequential", feed="device")
RUNS = {
    "features": config(),
    "tokens": config(dropout=0.0),
    "pairs": config(recurrence=RNNSettings(), norm="layer", dropout=0.0),
}


def test_batches_visit_every_example_once_an_epoch() -> None:
    batches = feed.Batches(seed=5, batch=7, examples=23)
    stream = np.concatenate([batches(step) for step in range(23)])
    for epoch in range(7):
        order = np.random.RandomState([5, epoch]).permutation(23)
        np.testing.assert_array_equal(stream[23 * epoch : 23 * (epoch + 1)], order)
    # random access: any step, in any order, from a new object
    np.testing.assert_array_equal(feed.Batches(5, 7, 23)(17), batches(17))
    assert (feed.Batches(6, 7, 23)(0) != batches(0)).any()


def test_a_batch_larger_than_the_data_spans_epochs() -> None:
    index = feed.Batches(seed=0, batch=50, examples=23)(0)
    assert set(np.bincount(index, minlength=23)) == {2, 3}


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


def outcome(events: list[Event]) -> dict[str, float]:
    ended = events[-1]
    assert isinstance(ended, Ended)
    return {key: value for key, value in ended.result.items() if not key.startswith("machine/")}


@pytest.mark.slow
def test_both_feeds_give_the_same_bits_and_take_over_from_each_other() -> None:
    run, data = RUNS["pairs"], task("pairs")
    events: dict[str, list[Event]] = {}
    taken: dict[tuple[str, int], Snapshot] = {}
    for execution in (DEVICE, STREAM):
        for event in train(run, execution, data):
            events.setdefault(execution.feed, []).append(event)
            if isinstance(event, Reached) and event.step in (5, 18):
                taken[execution.feed, event.step] = event.snapshot()
    whole = events["device"]
    assert history(events["stream"]) == history(whole)
    assert outcome(events["stream"]) == outcome(whole)
    assert_same(events["stream"][-1].snapshot, whole[-1].snapshot)  # type: ignore[union-attr]
    for begun, ended, step in (("stream", STREAM, 5), ("device", STREAM, 18), ("stream", DEVICE, 18)):
        rest = list(train(run, ended, data, resume=taken[begun, step]))
        assert history(rest).items() <= history(whole).items()
        assert outcome(rest) == outcome(whole)
        assert_same(rest[-1].snapshot, whole[-1].snapshot)  # type: ignore[union-attr]


@pytest.mark.parametrize("start", [0, 9, 23])
def test_streamed_blocks_hold_the_batches_of_their_steps(start: int) -> None:
    """Example i holds the number i, so a block shows which examples it has, also after a resume from a later step."""
    split = Split(
        inputs=np.arange(47, dtype=np.int16)[:, None], labels=np.arange(47), lengths=np.arange(47, dtype=np.int16)
    )
    plan = feed.dispatches(config().train, 5, start)
    drawn = []
    seeds = (3, 6)
    for block in feed.streamed(split, [feed.Batches(seed, 8, 47) for seed in seeds], plan, 5, 4):
        inputs, labels, lengths = block.split
        assert (inputs.shape, inputs.dtype, labels.dtype, lengths.dtype) == ((64, 1), np.int16, np.int32, np.int32)
        assert block.indices.shape == (2, 5, 8)
        assert 0 <= block.indices.min() <= block.indices.max() < 64
        for k in range(block.n):
            for run, seed in enumerate(seeds):
                examples = feed.Batches(seed, 8, 47)(block.step + k)
                for array in (inputs[:, 0], labels, lengths):
                    np.testing.assert_array_equal(array[block.indices[run, k]], examples)
            drawn.append(block.step + k)
    assert drawn == list(range(start, 23))


def test_dispatches_end_wherever_something_is_due() -> None:
    for steps, log_every, eval_every, chunk in ((23, 4, 9, 5), (23, 10, 23, 25), (1, 10, 7, 3), (24, 4, 8, 1)):
        schedule = TrainConfig(steps=steps, batch=8, eval_every=eval_every, log_every=log_every)
        whole = feed.dispatches(schedule, chunk, 0).tolist()
        for start in (0, *(step + n for step, n in whole)):
            wanted, step = [[start, 0]], start
            while step < steps:
                n = min(every - step % every for every in (chunk, log_every, eval_every))
                wanted.append([step, min(n, steps - step)])
                step += n
            assert feed.dispatches(schedule, chunk, start).tolist() == wanted
            assert max(n for _, n in wanted) <= feed.longest(schedule, chunk)


def test_auto_goes_by_the_size_of_the_training_data(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 50 * 12 + 50 + 4 * 50
    monkeypatch.setattr(feed, "RESIDENT_ACCELERATOR", size - 1)
    for room, streamed in ((size, False), (size - 1, True)):
        monkeypatch.setattr(feed, "RESIDENT_CPU", room)
        assert feed.streams(Execution(), data.train) is streamed
        assert feed.streams(Execution(feed="stream"), data.train)
        assert not feed.streams(Execution(feed="device"), data.train)
    monkeypatch.setattr(feed, "RESIDENT_CPU", size)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert feed.streams(Execution(), data.train)


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


def begun(data: Data) -> Iterator[Event]:
    """A streamed run that has reached its first boundary."""
    events = train(RUNS["tokens"], STREAM, data)
    while not isinstance(next(events), Reached):
        pass
    return events


def to_the_end(data: Data) -> None:
    before = set(threading.enumerate())
    for event in begun(data):
        if isinstance(event, Ended):
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
    train(RUNS["tokens"], STREAM, data).close()  # type: ignore[attr-defined]


def diverged(data: Data) -> None:
    snapshot = list(begun(data))[-1].snapshot  # type: ignore[union-attr]
    nan = jax.tree.map(lambda x: np.full_like(x, np.nan), snapshot.live.params)
    live = snapshot.live._replace(step=np.int32(5), params=nan)
    broken = msgspec.structs.replace(snapshot, step=5, live=live)
    ended = list(train(RUNS["tokens"], STREAM, data, resume=broken))[-1]
    assert (ended.state, ended.step) == ("diverged", 6)  # type: ignore[union-attr]


def failed(data: Data) -> None:
    inputs = Broken(data.train.inputs)
    split = msgspec.structs.replace(data.train, inputs=inputs)
    with pytest.raises(OSError, match="Input/output error") as caught:
        list(train(RUNS["tokens"], STREAM, msgspec.structs.replace(data, train=split)))
    assert caught.value is inputs.error


@pytest.mark.parametrize("end", [to_the_end, closed, dropped, interrupted, never_used, diverged, failed])
def test_a_stream_leaves_no_thread(end: Callable[[Data], None]) -> None:
    gc.freeze()  # older objects need not be searched below
    before = set(threading.enumerate())
    end(task("tokens"))  # whose programs are compiled already
    assert set(threading.enumerate()) <= before
    gc.collect()  # what an iterator has to say at its end would be an error here


LARGE = """
import sys, threading, time
from types import SimpleNamespace
import numpy as np, psutil
from lrurun.training import feed
from lrurun.training.evaluation import evaluate
from lrurun.training.loop import train
from lrurun.training.placement import placement
from lrurun.config.schema import Execution
from lrurun.data.task import Data, Spec, Split
from tests.training.test_feeds import RUNS

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

one = placement(1)
list(feed.resident(small, [feed.Batches(0, 8, 50)], feed.dispatches(RUNS["pairs"].train, 5, 0), 5, one.everywhere))
assert "grain" not in sys.modules
before = private()
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
data = Data(spec=spec, sha256="sha256:0", train=large, validation=small, test=small)
ended = list(train(RUNS["pairs"], Execution(), data))[-1]
assert (ended.state, ended.step) == ("done", 23)
assert "grain" in sys.modules
sums = {"loss": np.zeros(1), "count": np.ones(1)}
programs = SimpleNamespace(
    outputs=lambda *_: (np.zeros((1, 500)), np.zeros((1, 1))), scores=lambda *_: (sums, {}), placement=one
)
evaluate(programs, None, large, 500, ())
over = True
watcher.join()
print(large.inputs.nbytes, before, peak)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="private memory is read as Linux counts it")
def test_a_mapped_file_is_never_in_memory_whole(tmp_path) -> None:
    """1.5 GB, of which three examples are written: they stream by their size, and evaluation reads them in batches."""
    command = [sys.executable, "-W", "error", "-c", LARGE, str(tmp_path / "large.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    size, before, peak = map(int, done.stdout.split())
    assert size == 1_500_000_000
    assert peak - before < size / 4

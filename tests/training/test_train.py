"""Training as a pure function of configuration and seed: resume, dispatch lengths, divergence, evaluation."""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from lrurun.config.recurrences.rnn import RNNRecurrence
from lrurun.config.schema import Execution, RunConfig, decode, fingerprint
from lrurun.data.task import Data
from lrurun.errors import LrurunError
from lrurun.training import checkpoints, digests, feed, loop, optimizer, programs
from lrurun.training.evaluation import evaluate
from lrurun.training.events import Began, Ended, Event, Reached, Spectrum
from lrurun.training.loop import train
from lrurun.training.programs import Best, of_member, programs_for
from tests.harness.toy import EXECUTION, assert_same, config, data, history

__all__ = ["data"]  # a fixture


@pytest.fixture(scope="module")
def undisturbed(data: Data) -> list[Event]:
    return list(train(config(), EXECUTION, data))


def test_events_tell_the_whole_run(undisturbed: list[Event], data: Data) -> None:
    assert isinstance(undisturbed[0], Began)
    assert undisturbed[0].step == 0
    ended = undisturbed[-1]
    assert isinstance(ended, Ended)
    assert (ended.state, ended.step) == ("done", 23)
    rows = history(undisturbed)
    assert [step for step, key in rows if key == "train/loss"] == [4, 8, 12, 16, 20, 23]
    assert [step for step, key in rows if key == "val/accuracy"] == [9, 18, 23]
    validation = {step: value for (step, key), value in rows.items() if key == "val/accuracy"}
    best = max(validation.values())
    assert ended.result["val/accuracy"] == best
    assert ended.result["best_step"] == min(step for step, value in validation.items() if value == best)
    # dispatches of 5 steps are cut at rows of the curve and at evaluations
    boundaries = [event.step for event in undisturbed if isinstance(event, Reached)]
    assert boundaries == [4, 5, 8, 9, 10, 12, 15, 16, 18, 20]


def test_eigenvalues_are_reported_at_start_and_end(undisturbed: list[Event], data: Data) -> None:
    """Those of the parameters there, and no others: |lambda| = exp(-exp(nu_log))."""
    found = [event for event in undisturbed if isinstance(event, Spectrum)]
    assert [(event.moment, event.step) for event in found] == [("start", 0), ("end", 23)]
    assert undisturbed[1] is found[0]
    assert undisturbed[-2] is found[1]
    last = undisturbed[-1].snapshot  # type: ignore[union-attr]
    first = of_member(programs_for(config(), EXECUTION, data).init(np.array([3], np.uint32)), 0)
    for event, params in zip(found, (first.params, last.live.params), strict=True):
        (layer,) = event.layers
        assert layer.dtype == np.complex128
        nu = np.asarray(params["blocks"]["0"]["recurrence"]["nu_log"], np.float64)
        np.testing.assert_allclose(np.sort(np.abs(layer)), np.sort(np.exp(-np.exp(nu))), rtol=1e-6)
    resumed = list(train(config(), EXECUTION, data, resume=last))
    assert [event.moment for event in resumed if isinstance(event, Spectrum)] == ["end"]


@pytest.mark.slow
def test_a_run_outlives_a_failure_to_compute_its_eigenvalues(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: object, params: object) -> None:
        raise ZeroDivisionError("no inverse")

    for spectrum in (fails, lambda self, params: None):
        monkeypatch.setattr("lrurun.nn.recurrences.lru.LRU.spectrum", spectrum)
        run = partial(list, train(config(steps=4), EXECUTION, data))
        if spectrum is fails:
            with pytest.warns(RuntimeWarning, match="no eigenvalues at step .: ZeroDivisionError: no inverse"):
                events = run()
        else:
            events = run()
        assert not any(isinstance(event, Spectrum) for event in events)
        assert events[-1].state == "done"  # type: ignore[union-attr]


def test_curve_rows_are_means_over_their_steps(data: Data) -> None:
    """A curve logged every 4 steps is the mean, four by four, of one logged at each step."""
    coarse = history(list(train(config(dropout=0.0), EXECUTION, data)))
    table = msgspec.to_builtins(config(dropout=0.0))
    table["train"]["log_every"] = 1
    fine = history(list(train(decode(table, RunConfig, "a test"), EXECUTION, data)))
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
    stop: int, slow: float, undisturbed: list[Event], data: Data, tmp_path, monkeypatch
) -> None:
    """Stopped at a boundary, saved through Orbax, restored by fresh programs: the same bits, curve for curve.

    Whether the host waits for each dispatch, or reads its row while the next one runs.
    """
    monkeypatch.setattr(loop, "SLOW_SECONDS", slow)
    first: list[Event] = []
    name = fingerprint(config())
    for event in train(config(), EXECUTION, data):
        first.append(event)
        if isinstance(event, Reached) and event.step == stop:
            checkpoints.save(tmp_path / "saved", event.snapshot(), name)
            break
    programs._CACHE.clear()
    compiled = programs_for(config(), EXECUTION, data)
    restored = checkpoints.restore(tmp_path / "saved", compiled, name)
    assert restored.step == stop
    assert ((20, "train/loss") in history(first)) == (stop == 20 and slow < 0)
    second = list(train(config(), EXECUTION, data, resume=restored))
    kept = {key: value for key, value in history(first).items() if key[0] <= stop}
    assert kept | history(second) == history(undisturbed)
    assert_same(second[-1].snapshot, undisturbed[-1].snapshot)  # type: ignore[union-attr]


@pytest.mark.parametrize("slow", [math.inf, -1.0])
def test_a_dispatch_is_read_while_the_next_one_runs_unless_it_is_slow(slow: float, monkeypatch) -> None:
    monkeypatch.setattr(loop, "SLOW_SECONDS", slow)
    one, two, three, four = (loop.Dispatched(step, None) for step in range(4))  # type: ignore[arg-type]
    pipeline = loop.Pipeline()
    found = [pipeline.put(one, wait=False), pipeline.put(two, wait=False), pipeline.put(three, wait=True)]
    assert found == ([[], [one], [two, three]] if slow > 0 else [[one], [two], [three]])
    assert pipeline.put(four, wait=True) == [four]


def test_resume_from_the_last_step_is_the_same_end(undisturbed: list[Event], data: Data) -> None:
    """Killed between its last checkpoint and its last word, a run ends as it would have."""
    for steps in (20, 23):
        ended = list(train(config(steps=steps), EXECUTION, data))[-1]
        again = list(train(config(steps=steps), EXECUTION, data, resume=ended.snapshot))  # type: ignore[union-attr]
        assert_same(again[-1].snapshot, ended.snapshot)  # type: ignore[union-attr]
        test = {key: value for key, value in ended.result.items() if not key.startswith("machine/")}  # type: ignore[union-attr]
        assert again[-1].result == test  # type: ignore[union-attr]


@pytest.mark.slow
def test_one_step_per_dispatch_changes_rounding_alone(undisturbed: list[Event], data: Data) -> None:
    """XLA compiles a loop of one step as none, and rounds as it likes: a run keeps its number of steps per dispatch."""
    other = Execution(steps_per_dispatch=1, scan_backend="sequential")
    found, wanted = history(list(train(config(), other, data))), history(undisturbed)
    assert found.keys() == wanted.keys()
    assert list(found.values()) == pytest.approx([wanted[key] for key in found], rel=1e-5)


@pytest.mark.parametrize("chunk", [7, pytest.param(40, marks=pytest.mark.slow)])
def test_steps_per_dispatch_change_no_bit(chunk: int, undisturbed: list[Event], data: Data) -> None:
    other = Execution(steps_per_dispatch=chunk, scan_backend="sequential")
    events = list(train(config(), other, data))
    assert history(events) == history(undisturbed)
    assert_same(events[-1].snapshot, undisturbed[-1].snapshot)  # type: ignore[union-attr]


def test_seeds_and_rates_share_one_program(data: Data) -> None:
    programs._CACHE.clear()
    results = [list(train(config(seed=s, lr=lr), EXECUTION, data))[-1] for s, lr in ((0, 0.01), (1, 0.01), (0, 0.02))]
    assert len(programs._CACHE) == 1
    compiled = next(iter(programs._CACHE.values()))
    assert compiled.dispatch._cache_size() == 1
    assert compiled.evaluate._cache_size() == 1
    losses = [event.result["val/loss"] for event in results]  # type: ignore[union-attr]
    assert len(set(losses)) == 3


@pytest.mark.slow
def test_all_programs_are_compiled_before_the_first_step(data: Data, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "jax")
    events = train(config(dropout=0.2), EXECUTION, data)
    assert isinstance(next(events), Began)
    before = Counter(re.findall(r"Finished XLA compilation of jit\((\w+)\)", caplog.text))
    assert before["_dispatch"] == before["_evaluate"] == 1
    list(events)
    after = Counter(re.findall(r"Finished XLA compilation of jit\((\w+)\)", caplog.text))
    assert {name for name in after - before if name.startswith("_")} <= {"_keep"}


def test_the_first_state_is_that_of_model_and_optimiser(data: Data) -> None:
    compiled = programs_for(config(), EXECUTION, data)
    first = of_member(compiled.init(np.array([3], np.uint32)), 0)
    jax.tree.map(np.testing.assert_array_equal, first, jax.jit(compiled._init)(np.uint32(3)))


@pytest.mark.slow
def test_a_worse_model_later_does_not_replace_the_best(data: Data) -> None:
    """The parameters tested are those of the best validation score, not the last ones."""
    events = list(train(config(lr=0.5, steps=60, eval_every=2), EXECUTION, data))
    ended = events[-1]
    assert isinstance(ended, Ended)
    assert ended.snapshot.best_step < 60
    compiled = programs_for(config(lr=0.5, steps=60, eval_every=2), EXECUTION, data)
    best, live = jax.tree.map(lambda leaf: leaf[None], (ended.snapshot.best, ended.snapshot.live))
    again, last = (evaluate(compiled, of, data.test, 8, data.metrics)[0].scores for of in (best, Best(*live[1:3])))
    assert ended.result["test/accuracy"] == again["accuracy"]
    assert last["loss"] != again["loss"]


def test_divergence_is_a_result_at_its_step(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """|A|^12 overflows when a dense linear recurrence is pushed far enough; the first bad step is found exactly.

    Far enough is a matter of the version of jax where the learning rate is just too large: at 10, jax 0.10 overflows
    at step 43, jax 0.12 recovers. At 100 both overflow at step 11.

    Its last snapshot is the same whether or not the next dispatch was already under way.
    """
    hot = config(recurrence=RNNRecurrence(activation="identity"), lr=100.0, steps=40, eval_every=40, norm="layer")
    at = []
    for chunk in (1, 4):
        events = list(train(hot, Execution(steps_per_dispatch=chunk), data))
        ended = events[-1]
        assert isinstance(ended, Ended)
        assert ended.state == "diverged"
        assert "test/accuracy" not in ended.result
        assert isinstance(events[-2], Spectrum)
        assert math.isnan(events[-3].values["train/loss"])  # type: ignore[union-attr]
        at.append(ended.step)
        with monkeypatch.context() as patch:
            patch.setattr(loop, "SLOW_SECONDS", -1.0)
            waited = list(train(hot, Execution(steps_per_dispatch=chunk), data))[-1]
        assert_same(waited.snapshot, ended.snapshot)  # type: ignore[union-attr]
        # killed between its last checkpoint and its last word, it is still diverged
        again = list(train(hot, Execution(steps_per_dispatch=chunk), data, resume=ended.snapshot))[-1]
        assert (again.state, again.step) == ("diverged", ended.step)  # type: ignore[union-attr]
    assert at[0] == at[1] > 1


def test_tuning_never_sees_test(data: Data) -> None:
    events = list(train(config(), EXECUTION, data, test=False))
    assert not any("test/" in key for _, key in history(events))
    assert not any(key.startswith("test/") for key in events[-1].result)  # type: ignore[union-attr]


def test_evaluation_counts_each_example_once(data: Data) -> None:
    """Batches of 8 over 21 examples, one by one, and all at once give the same mean."""
    run = config()
    compiled = programs_for(run, EXECUTION, data)
    state = compiled.init(np.zeros(1, np.uint32))
    live, best = of_member(state, 0), Best(state.params, state.stats)
    values = [evaluate(compiled, best, data.validation, batch, data.metrics)[0].scores for batch in (1, 8, 21)]
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


@pytest.mark.slow
def test_training_learns(data: Data) -> None:
    """Majority of ones, from 50 examples: well above the share of the larger class."""
    events = list(train(config(steps=400, eval_every=100, dropout=0.0), EXECUTION, data))
    share = max(np.mean(data.validation.labels), 1 - np.mean(data.validation.labels))
    assert events[-1].result["val/accuracy"] > share + 0.15  # type: ignore[union-attr]


def test_checkpoint_of_another_run_is_refused(data: Data, tmp_path) -> None:
    ended = list(train(config(), EXECUTION, data))[-1]
    checkpoints.save(tmp_path / "saved", ended.snapshot, fingerprint(config()))  # type: ignore[union-attr]
    compiled = programs_for(config(), EXECUTION, data)
    with pytest.raises(LrurunError, match="checkpoint of another run, found sha256"):
        checkpoints.restore(tmp_path / "saved", compiled, fingerprint(config(seed=4)))


def test_digest_sees_every_byte_and_name(data: Data, tmp_path) -> None:
    ended = list(train(config(), EXECUTION, data))[-1]
    size, digest = checkpoints.save(tmp_path / "saved", ended.snapshot, "x")  # type: ignore[union-attr]
    files = [path for path in (tmp_path / "saved").rglob("*") if path.is_file()]
    assert size == sum(path.stat().st_size for path in files)
    for path in files:
        content = path.read_bytes()
        if content:
            path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
            assert digests.digest(tmp_path / "saved")[1] != digest
            path.write_bytes(content)
    assert digests.digest(tmp_path / "saved") == (size, digest)
    files[0].rename(files[0].with_name("elsewhere"))
    assert digests.digest(tmp_path / "saved")[1] != digest


def test_moments_follow_the_schedule(data: Data) -> None:
    """Two steps of the whole program equal two steps by hand: gradient, AdamW, rate of each step."""
    run = config(dropout=0.0, steps=2, eval_every=2)
    compiled = programs_for(run, EXECUTION, data)
    live = of_member(compiled.init(np.array([run.seed], np.uint32)), 0)
    params, stats, moments = live.params, live.stats, live.moments
    model, groups = compiled.model, compiled.model.groups(live.params)
    rates = optimizer.rates(run.optim, 2)
    batches = feed.Batches(run.seed, 8, 50)
    split = data.train

    def loss(params, stats, index):
        inputs, lengths, labels = (jnp.asarray(of)[index] for of in (split.inputs, split.lengths, split.labels))
        logits, stats = model.apply(params, stats, inputs, lengths, train=True, key=None)
        log_p = jax.nn.log_softmax(logits)
        return -log_p[np.arange(8), labels.astype(int)].mean(), stats

    @jax.jit
    def by_hand(params, stats, moments, index, rate):
        (_, stats), grads = jax.value_and_grad(loss, has_aux=True)(params, stats, index)
        return stats, optimizer.update(run.optim, groups, grads, moments, params, rate)

    for step in range(2):
        stats, (params, moments) = by_hand(params, stats, moments, batches(step), rates[step])
    ended = list(train(run, EXECUTION, data))[-1]
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(ended.snapshot.live.params), strict=True):  # type: ignore[union-attr]
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-6)

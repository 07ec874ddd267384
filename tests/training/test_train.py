"""Training as a pure function of configuration and seed: resume, dispatches, divergence, evaluation, several runs."""

from __future__ import annotations

import copy
import logging
import math
import re
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
import pytest
from msgspec import structs

from lrurun.config.fingerprint import fingerprint
from lrurun.config.recurrences.rnn import RNNSettings
from lrurun.config.schedules import learning_rates
from lrurun.config.schema import Execution, RunConfig, decode
from lrurun.data.metric import Accuracy
from lrurun.data.on_device import stream
from lrurun.data.task import Data
from lrurun.errors import LrurunError
from lrurun.training import COMPILED_KEPT, checkpoint_verification, checkpoints, feed, loop, optimizer
from lrurun.training.compiled import _CACHE, compiled_for, of_member
from lrurun.training.evaluation import evaluate
from lrurun.training.events import Began, Ended, Event, Measured, Reached, Snapshot, Spectrum
from lrurun.training.loop import train, train_together
from lrurun.training.optimizers.adamw import AdamW
from tests.harness.optims import optim
from tests.harness.toy import EXECUTION, assert_same, config, data, history, leaves

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
    compiled = compiled_for(config(), EXECUTION, data)
    [first] = compiled.on_host(compiled.init(config().model, np.array([3], np.uint32)))
    for event, params in zip(found, (first.params, last.live.params), strict=True):
        (layer,) = event.layers
        assert layer.dtype == np.complex128
        nu = np.asarray(params["blocks"]["0"]["recurrence"]["nu_log"], np.float64)
        np.testing.assert_allclose(np.sort(np.abs(layer)), np.sort(np.exp(-np.exp(nu))), rtol=1e-6)


def test_every_evaluation_records_the_norms_of_states_on_the_first_validation_batch(
    undisturbed: list[Event], data: Data
) -> None:
    rows = {step: value for (step, key), value in history(undisturbed).items() if key == "norm/layer0"}
    assert list(rows) == [9, 18, 23]
    live, split = undisturbed[-1].snapshot.live, data.validation  # type: ignore[union-attr]
    assert split.lengths is not None
    model = compiled_for(config(), EXECUTION, data).model
    _, [last] = jax.jit(model.evaluate)(
        live.params, live.stats, jnp.asarray(split.inputs[:8]), jnp.asarray(split.lengths[:8]), np.ones(8, bool)
    )
    assert rows[23] == pytest.approx(float(last), rel=1e-6)


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


def test_curve_rows_are_means_over_their_steps_and_other_dispatches_change_no_bit(
    undisturbed: list[Event], data: Data
) -> None:
    """A curve logged every 4 steps is the mean of two rows of one logged every 2 steps, and so dispatched."""
    coarse = history(undisturbed)
    table = msgspec.to_builtins(config())
    table["train"]["log_every"] = 2
    other = Execution(steps_per_dispatch=7, scan_backend="sequential")
    events = list(train(decode(table, RunConfig, "a test"), other, data))
    fine = history(events)
    for end in (4, 8, 12, 16, 20):
        mean = np.mean([fine[step, "train/loss"] for step in (end - 2, end)])
        assert coarse[end, "train/loss"] == pytest.approx(mean, rel=1e-5)
    assert [{row: x for row, x in rows.items() if "train/" not in row[1]} for rows in (fine, coarse)] == [
        {row: x for row, x in coarse.items() if "train/" not in row[1]}
    ] * 2
    one, two = (ended[-1].snapshot for ended in (events, undisturbed))  # type: ignore[union-attr]
    assert_same(msgspec.structs.replace(one, live=one.live._replace(window=two.live.window)), two)


@pytest.mark.parametrize("slow", [math.inf, -1.0])
def test_resume_at_every_boundary_is_bit_identical(
    slow: float, undisturbed: list[Event], data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed there, a run goes on with the same bits, curve for curve.

    Whether the host waits for each dispatch, or reads its row while the next one runs.
    """
    monkeypatch.setattr(loop, "SLOW_SECONDS", slow)
    first: list[Event] = []
    stops: list[tuple[Snapshot, int]] = []
    for event in train(config(), EXECUTION, data):
        first.append(event)
        if isinstance(event, Reached):
            stops.append((event.snapshot(), len(first)))
    last = undisturbed[-1].snapshot  # type: ignore[union-attr]
    assert [snapshot.step for snapshot, _ in stops] == [4, 5, 8, 9, 10, 12, 15, 16, 18, 20]
    for snapshot, seen in stops:
        before = history(first[:seen])
        if snapshot.step == 20:
            assert ((20, "train/loss") in before) == (slow < 0)
        second = list(train(config(), EXECUTION, data, resume=snapshot))
        kept = {key: value for key, value in before.items() if key[0] <= snapshot.step}
        assert kept | history(second) == history(undisturbed)
        assert_same(second[-1].snapshot, last)  # type: ignore[union-attr]
        assert [event.moment for event in second if isinstance(event, Spectrum)] == ["end"]


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("live", lambda array: array.T, "live['params']['encoder']['kernel']: expected float32 of shape {0}, found "),
        (
            "best",
            lambda array: array[:, :1],
            "best['params']['encoder']['kernel']: expected float32 of shape {0}, found ",
        ),
        ("live", lambda array: array.astype(np.float16), "{0}, found float16 of shape {0}"),
        ("best", lambda array: array.astype(np.int32), "{0}, found int32 of shape {0}"),
        ("live", lambda _: None, "expected float32 of shape {0}, found no such array"),
        ("best", lambda array: {"a": array}, "best['params']['encoder']['kernel']: expected float32 of shape {0}"),
        ("live", lambda array: array[None], "found float32 of shape (1, "),
    ],
)
def test_a_checkpoint_with_other_arrays_is_refused_by_name(
    part: str,
    change: Callable[[np.ndarray], object],
    message: str,
    undisturbed: list[Event],
    data: Data,
    tmp_path: Path,
) -> None:
    """Of the same fingerprint and undamaged: the code has changed since."""
    snapshot: Snapshot = undisturbed[-1].snapshot  # type: ignore[union-attr]
    params = copy.deepcopy(getattr(snapshot, part).params)
    kernel = params["encoder"].pop("kernel")
    if (changed := change(kernel)) is not None:
        params["encoder"]["kernel"] = changed
    state = getattr(snapshot, part)._replace(params=params)
    checkpoints.save(tmp_path / "saved", msgspec.structs.replace(snapshot, **{part: state}), "a fingerprint")
    compiled = compiled_for(config(), EXECUTION, data)
    with pytest.raises(LrurunError) as refused:
        checkpoints.restore(tmp_path / "saved", compiled, "a fingerprint")
    assert message.format(kernel.shape) in refused.value.message
    assert refused.value.message.startswith(f"{tmp_path / 'saved'}: {part}")


def test_a_checkpoint_restores_every_bit_and_only_its_run(undisturbed: list[Event], data: Data, tmp_path: Path) -> None:
    """Saved through Orbax; its digest sees every byte and name."""
    name, folder = fingerprint(config()), tmp_path / "saved"
    for event in train(config(), EXECUTION, data):
        if isinstance(event, Reached) and event.step == 9:
            size, digest = checkpoints.save(folder, event.snapshot(), name)
            break
    compiled = compiled_for(config(), EXECUTION, data)
    restored = checkpoints.restore(folder, compiled, name)
    assert restored.step == 9
    second = list(train(config(), EXECUTION, data, resume=restored))
    assert_same(second[-1].snapshot, undisturbed[-1].snapshot)  # type: ignore[union-attr]
    with pytest.raises(LrurunError, match="checkpoint of another run, found sha256"):
        checkpoints.restore(folder, compiled, fingerprint(config(seed=4)))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert size == sum(path.stat().st_size for path in files)
    for path in files:
        content = path.read_bytes()
        if content:
            path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
            assert checkpoint_verification.digest(folder)[1] != digest
            path.write_bytes(content)
    assert checkpoint_verification.digest(folder) == (size, digest)
    files[0].rename(files[0].with_name("elsewhere"))
    assert checkpoint_verification.digest(folder)[1] != digest


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
    ended = undisturbed[-1]
    assert isinstance(ended, Ended)
    again = list(train(config(), EXECUTION, data, resume=ended.snapshot))[-1]
    assert isinstance(again, Ended)
    assert_same(again.snapshot, ended.snapshot)
    assert again.result == {key: value for key, value in ended.result.items() if not key.startswith("machine/")}


def test_seeds_and_rates_share_compiled_functions(data: Data) -> None:
    results, sizes = [], []
    for seed, lr in ((0, 0.01), (1, 0.01), (0, 0.02)):
        results.append(list(train(config(seed=seed, lr=lr), EXECUTION, data))[-1])
        compiled = compiled_for(config(), EXECUTION, data)
        sizes.append(
            (
                len(_CACHE),
                compiled.dispatch._cache_size(),
                compiled.outputs._cache_size(),
                compiled.scores._cache_size(),
            )
        )
    assert sizes == sizes[:1] * 3
    losses = [event.result["val/loss"] for event in results]  # type: ignore[union-attr]
    assert len(set(losses)) == 3


@pytest.mark.slow
def test_all_functions_are_compiled_before_the_first_step(data: Data, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "jax")
    events = train(config(dropout=0.2), EXECUTION, data)
    assert isinstance(next(events), Began)
    before = Counter(re.findall(r"Finished XLA compilation of jit\((\w+)\)", caplog.text))
    ours = ("_dispatch", "_outputs", "scores", "_lrurun_sample")
    assert [before[name] for name in ours[:2]] == [1, 1]
    assert before["scores"] <= 1, "all rungs of a process share it"
    list(events)
    after = Counter(re.findall(r"Finished XLA compilation of jit\((\w+)\)", caplog.text))
    assert {name: after[name] for name in ours} == {name: before[name] for name in ours}


def test_a_worse_model_later_does_not_replace_the_best(data: Data) -> None:
    """The parameters tested are those of the best validation score, not the last ones."""
    ends: Any = (list(train(config(lr=0.5, seed=seed), EXECUTION, data))[-1] for seed in range(1, 9))
    ended = next(end for end in ends if end.snapshot.best_step < 23)
    compiled = compiled_for(config(), EXECUTION, data)
    both = (
        compiled.on_device([of])
        for of in (ended.snapshot.best, compiled.evaluated(compiled.vectors(ended.snapshot.live)))
    )
    again, last = (evaluate(compiled, of, data.test, 8, data.metrics)[0].scores for of in both)
    assert ended.result["test/accuracy"] == again["accuracy"]
    assert last["loss"] != again["loss"]


def test_divergence_is_a_result_at_its_step(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """|A|^12 overflows when a dense linear recurrence is pushed far enough; the first bad step is found exactly.

    Far enough is a matter of the version of jax where the learning rate is just too large: at 10, jax 0.10 overflows
    at step 43, jax 0.12 recovers. At 100 both overflow at step 11.

    Its last snapshot is the same whether or not the next dispatch was already under way.
    """
    hot = config(recurrence=RNNSettings(activation="identity"), lr=100.0, steps=40, eval_every=40, norm="layer")
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
        if chunk == 1:
            continue
        with monkeypatch.context() as patch:
            patch.setattr(loop, "SLOW_SECONDS", -1.0)
            waited = list(train(hot, Execution(steps_per_dispatch=chunk), data))[-1]
        assert_same(waited.snapshot, ended.snapshot)  # type: ignore[union-attr]
        # killed between its last checkpoint and its last word, it is still diverged
        again = list(train(hot, Execution(steps_per_dispatch=chunk), data, resume=ended.snapshot))[-1]
        assert (again.state, again.step) == ("diverged", ended.step)  # type: ignore[union-attr]
    assert at[0] == at[1] > 1


class Broken(Accuracy, frozen=True, kw_only=True):
    """An accuracy of which every evaluation gives the same number, which is not finite."""

    score: float

    def value(self, sums: Any) -> float:
        return self.score


@pytest.mark.parametrize("score", [math.nan, -math.inf, math.inf])
def test_a_run_without_a_finite_validation_score_has_no_test_score(data: Data, score: float) -> None:
    """No step was chosen: the scores of the initial parameters, which are kept until then, say nothing. An infinity of
    either sign stays in the result."""
    broken = structs.replace(data, metrics=(Broken(score=score),))
    events = list(train(config(), EXECUTION, broken))
    ended = events[-1]
    assert isinstance(ended, Ended)
    assert (ended.state, "best_step" in ended.result) == ("done", False)
    assert repr(ended.result["val/accuracy"]) == repr(score)
    assert math.isnan(ended.result["test/accuracy"])
    last = max(step for step, key in history(events) if key == "val/loss")
    assert ended.result["val/loss"] == history(events)[last, "val/loss"]
    assert not any(key.startswith("test") for _, key in history(events))


def test_tuning_never_sees_test(data: Data) -> None:
    events = list(train(config(), EXECUTION, data, test=False))
    assert not any("test/" in key for _, key in history(events))
    assert not any(key.startswith("test/") for key in events[-1].result)  # type: ignore[union-attr]


def test_evaluation_counts_each_example_once(data: Data) -> None:
    """Batches of 8 over 21 examples, and all at once give the same mean."""
    run = config()
    compiled = compiled_for(run, EXECUTION, data)
    [live] = compiled.on_host(compiled.init(run.model, np.zeros(1, np.uint32)))
    best = compiled.on_device([compiled.evaluated(compiled.vectors(live))])
    values = [evaluate(compiled, best, data.validation, batch, data.metrics)[0].scores for batch in (8, 21)]
    model = compiled.model
    split = data.validation
    apply = jax.jit(lambda inputs, lengths: model.apply(live.params, live.stats, inputs, lengths, train=False)[0])
    logits = apply(split.inputs, split.lengths)
    logits = np.asarray(logits, np.float64)
    labels = split.labels.astype(int)
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    expected = {"loss": -log_p[np.arange(21), labels].mean(), "accuracy": (logits.argmax(1) == labels).mean()}
    for value in values:
        assert value["accuracy"] == pytest.approx(expected["accuracy"], abs=1e-12)
        assert value["loss"] == pytest.approx(expected["loss"], rel=1e-5)


@pytest.mark.parametrize("name", ["adamw", "schedule_free_adamw", "muon", "sgd"])
def test_states_of_the_host_are_those_of_the_device(data: Data, name: str) -> None:
    """With names for parameters and for what the optimiser keeps of each, from which the same vectors return."""
    run = config(seed=3, optim=optim(name))
    compiled = compiled_for(run, EXECUTION, data)
    states = compiled.init(run.model, np.array([3, 4], np.uint32))
    moments = jax.tree.map(lambda of: of + np.arange(of.size, dtype=of.dtype).reshape(of.shape), states.moments)
    states = jax.device_get(states._replace(moments=moments))
    for number, named in enumerate(compiled.on_host(states)):
        state = of_member(states, number)
        assert set(named.params) == {"blocks", "encoder", "head"}
        vectors = compiled.vectors(named)
        assert jax.tree.structure(vectors) == jax.tree.structure(state)
        jax.tree.map(np.testing.assert_array_equal, vectors, state)
        evaluated = compiled.evaluated_on_host(states)[number]
        jax.tree.map(np.testing.assert_array_equal, evaluated, compiled.evaluated(state))


def test_parts_of_an_optimiser_that_are_dictionaries_stay_what_they_are(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optax's `named_chain` keeps its states in a dictionary of its own, around the vectors."""
    chain = optax.named_chain(("adam", optax.scale_by_adam()), ("by", optax.scale(-0.1)))
    monkeypatch.setattr(AdamW, "transformation", lambda _: chain)
    monkeypatch.setattr("lrurun.training.compiled._CACHE", OrderedDict())
    run = config(seed=3)
    compiled = compiled_for(run, EXECUTION, data)
    state = of_member(jax.device_get(compiled.init(run.model, np.array([3], np.uint32))), 0)
    assert isinstance(state.moments, dict)
    vectors = compiled.vectors(compiled.named(state))
    assert jax.tree.structure(vectors) == jax.tree.structure(state)
    jax.tree.map(np.testing.assert_array_equal, vectors, state)


def test_moments_follow_the_schedule(data: Data) -> None:
    """Four steps of the whole program equal four by hand: dropout, gradient, AdamW, rate of each step."""
    run = config()
    compiled = compiled_for(run, EXECUTION, data)
    live = of_member(compiled.init(run.model, np.array([run.seed], np.uint32)), 0)
    params, stats, moments = live.params, live.stats, live.moments
    model, layout, adamw = compiled.model, compiled.layout, optimizer.LayoutOptimizer(run.optim, compiled.layout)
    rates = learning_rates(run.optim, 23)
    batches = feed.Batches(run.seed, 8, 50)
    split = data.train

    def loss(params, stats, step, index):
        key = jax.random.fold_in(stream(np.uint32(run.seed), "dropout"), step)
        inputs, lengths, labels = (jnp.asarray(of)[index] for of in (split.inputs, split.lengths, split.labels))
        logits, stats = model.apply(layout.tree(params), stats, inputs, lengths, train=True, key=key)
        log_p = jax.nn.log_softmax(logits)
        return -log_p[np.arange(8), labels.astype(int)].mean(), stats

    @jax.jit
    def by_hand(params, stats, moments, step, index, rate):
        (_, stats), grads = jax.value_and_grad(loss, has_aux=True)(params, stats, step, index)
        changes, moments = adamw.update(grads, moments, params, rate=rate)
        return stats, (optax.apply_updates(params, changes), moments)

    for step in range(4):
        stats, (params, moments) = by_hand(params, stats, moments, np.int32(step), batches(step), rates[step])
    reached = next(event for event in train(run, EXECUTION, data) if isinstance(event, Reached)).snapshot()
    assert reached.step == 4
    for ours, theirs in zip(jax.tree.leaves(layout.tree(params)), jax.tree.leaves(reached.live.params), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-6)


def test_an_optimiser_starts_from_the_state_that_it_asks_for(data: Data) -> None:
    """Schedule-free's z starts at the parameters; four steps equal optax's."""
    free = optax.contrib.schedule_free_adamw(0.01)
    settings = optim("schedule_free_adamw", warmup=0.0, recurrent_factor=1.0, weight_decay=0.0)
    run = config(seed=3, optim=settings)
    compiled = compiled_for(run, EXECUTION, data)
    states = compiled.init(run.model, np.array([3, 4], np.uint32))
    jax.tree.map(np.testing.assert_array_equal, states.moments.z, states.params)

    @jax.jit
    def by_hand(state, index):
        key = jax.random.fold_in(stream(np.uint32(3), "dropout"), state.step)
        batch = jax.tree.map(lambda array: jnp.asarray(array)[index], feed.to_devices(data.train, None))
        loss = jax.grad(lambda of: compiled._loss(compiled.layout.tree(of), state.stats, batch, key), has_aux=True)
        grads, (stats, *_) = loss(state.params)
        changes, moments = free.update(grads, state.moments, state.params)
        params = optax.apply_updates(state.params, changes)
        return state._replace(step=state.step + 1, params=params, stats=stats, moments=moments)

    wanted, batches = of_member(states, 0), feed.Batches(3, 8, 50)
    wanted = wanted._replace(moments=free.init(wanted.params))
    for step in range(4):
        wanted = by_hand(wanted, batches(step))
    reached = next(event for event in train(run, EXECUTION, data) if isinstance(event, Reached)).snapshot()
    moments = jax.tree.map(lambda part: compiled.layout.tree(part) if part.ndim else part, wanted.moments)
    for ours, theirs in zip(jax.tree.leaves(moments), jax.tree.leaves(reached.live.moments), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-6)


# --- runs trained together ---------------------------------------------------------------------------------------


PROBES = ("gradient", "effective_step", "lambda", "phase")


def by_member(events: list[Event], members: int) -> list[list[Event]]:
    return [[event for event in events if event.member == member] for member in range(members)]


def assert_near(packed: list[Event], alone: list[Event]) -> None:
    """The same events, and numbers that differ by no more than float32 sums in another order."""
    # a row comes before or after the boundary that it belongs to, as the clock has it
    kinds = [sorted((event.step, type(event).__name__) for event in events) for events in (packed, alone)]
    assert kinds[0] == kinds[1]
    one, two = history(packed), history(alone)
    assert one.keys() == two.keys()
    for key, value in one.items():
        # accuracies move by whole examples where two logits are as good as equal
        assert value == pytest.approx(
            two[key],
            rel=0.02 if "/" in key[1] and key[1].split("/")[0] in PROBES else 1e-3,
            abs=1e-4 if "loss" in key[1] else 0.05,
        ), key
    (*_, ended), (*_, last) = packed, alone
    assert isinstance(ended, Ended)
    assert isinstance(last, Ended)
    for left, right in zip(leaves(ended.snapshot), leaves(last.snapshot), strict=True):
        np.testing.assert_allclose(left, right, rtol=2e-3, atol=2e-4)


@pytest.mark.slow
def test_runs_trained_together_are_those_trained_alone(data: Data) -> None:
    """Also from a stream, and with probes."""
    execution = msgspec.structs.replace(EXECUTION, feed="stream", probes=True)
    configs = [config(seed=seed, lr=lr) for seed, lr in ((3, 0.01), (4, 0.02))]
    together = by_member(list(train_together(configs, execution, data)), 2)
    for packed, run in zip(together, configs, strict=True):
        assert_near(packed, list(train(run, execution, data)))
    ends = [leaves(events[-1].snapshot) for events in together]  # type: ignore[union-attr]
    assert not np.allclose(ends[0][1], ends[1][1])  # and not the same run thrice


@pytest.mark.slow
def test_a_run_may_leave_those_it_was_trained_with(data: Data) -> None:
    """Stopped together, it goes on alone; and those that were stopped alone go on together."""
    configs = [config(seed=seed) for seed in (0, 1)]
    whole = [list(train(run, EXECUTION, data)) for run in configs]

    def stopped(events: Iterator[Event], members: int) -> list[Snapshot]:
        found = []
        for event in events:
            if isinstance(event, Reached) and event.step == 9:
                found.append(event.snapshot())
                if len(found) == members:
                    break
        return found

    packed = stopped(train_together(configs, EXECUTION, data), 2)
    second = list(train(configs[1], EXECUTION, data, resume=packed[1]))
    np.testing.assert_allclose(second[-1].result["val/loss"], whole[1][-1].result["val/loss"], rtol=1e-3)  # type: ignore[union-attr]
    alone = [stopped(train(run, EXECUTION, data), 1)[0] for run in configs]
    events = by_member(list(train_together(configs, EXECUTION, data, resume=alone)), 2)
    for packed_events, of_run in zip(events, whole, strict=True):
        after = [e for e in of_run if e.step > 9 or isinstance(e, Ended)]
        assert_near([e for e in packed_events if e.step > 9 or isinstance(e, Ended)], after)


@pytest.mark.slow
def test_one_that_diverges_leaves_the_others_alone(data: Data) -> None:
    configs = [config(seed=seed) for seed in (0, 1)]
    starts = [next(e for e in train(run, EXECUTION, data) if isinstance(e, Reached)) for run in configs]
    good, bad = (start.snapshot() for start in starts)
    broken = jax.tree.map(lambda leaf: leaf * np.nan, bad.live.params)
    bad = msgspec.structs.replace(bad, live=bad.live._replace(params=broken))
    one, two = by_member(list(train_together(configs, EXECUTION, data, resume=[good, bad])), 2)
    assert_near(one, list(train(configs[0], EXECUTION, data, resume=good)))
    *_, nan, spectrum, ended = two
    assert isinstance(spectrum, Spectrum)
    assert np.isnan(spectrum.layers[0]).all()
    assert isinstance(ended, Ended)
    assert (ended.state, ended.step) == ("diverged", good.step + 1)
    assert isinstance(nan, Measured)
    assert nan.step == good.step + 1
    assert math.isnan(nan.values["train/loss"])


def test_only_runs_of_one_program_are_trained_together(data: Data) -> None:
    with pytest.raises(ValueError, match="differ only in seed and learning rate"):
        next(iter(train_together([config(), config(dropout=0.5)], EXECUTION, data)))


def test_functions_that_are_no_longer_kept_leave_memory(data: Data) -> None:
    """Of several configurations, only those remain that the next runs may need: the others are freed at once."""
    rates = [0.3 + 0.01 * k for k in range(COMPILED_KEPT + 1)]
    functions = [weakref.ref(compiled_for(config(dropout=rate), EXECUTION, data)) for rate in rates]
    assert [of() is not None for of in functions] == [False] + [True] * COMPILED_KEPT
